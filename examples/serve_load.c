/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_load.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "serve_server.h"

enum { AHEAD = 4 }; /* below SERVE_AHEAD */

struct shared {
    const struct load *load;
    atomic_uint *right; /* of each row, how often */
    double *latency;    /* of each question, at its place among all */
    atomic_size_t answered;
};

struct client {
    pthread_t thread;
    struct shared *shared;
    unsigned number;
    int socket;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    while (s >= 0 && connect(s, (const struct sockaddr *)&address, sizeof address))
        if (errno != EINTR) {
            close(s);
            s = -1;
        }
    return s;
}

/* All of it, whatever interrupts; 0: the connection is over. */
static int give(int s, const void *from, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t put = send(s, (const char *)from + done, length - done, MSG_NOSIGNAL);
        if (put < 0 && errno != EINTR)
            return 0;
        done += put > 0 ? (size_t)put : 0;
    }
    return 1;
}

static int take(int s, void *to, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t got = recv(s, (char *)to + done, length - done, 0);
        if (got == 0 || (got < 0 && errno != EINTR))
            return 0;
        done += got > 0 ? (size_t)got : 0;
    }
    return 1;
}

static int ask(int s, const uint8_t *pixels, uint32_t tag)
{
    struct {
        struct question head;
        uint8_t pixels[SERVE_PIXELS];
    } message = {.head = {tag, 1}};
    memcpy(message.pixels, pixels, SERVE_PIXELS);
    return give(s, &message, sizeof message);
}

static int hear(int s, struct answer *answer, uint8_t *digit)
{
    return take(s, answer, sizeof *answer) && answer->rows <= 1 && take(s, digit, answer->rows);
}

/* Question i of a client is row (number + i * clients) mod rows: all clients together ask for every
 * row equally often. */
static void *work(void *argument)
{
    struct client *client = argument;
    struct shared *shared = client->shared;
    const struct load *load = shared->load;
    const size_t all = load->rows * load->rounds, step = load->clients;
    double start[AHEAD];
    size_t asked = client->number, heard = asked;
    for (; client->socket >= 0 && heard < all; heard += step) {
        struct answer answer;
        uint8_t digit;
        for (; asked < all && asked < heard + AHEAD * step; asked += step) {
            start[asked / step % AHEAD] = now();
            if (!ask(client->socket, load->pixels + asked % load->rows * SERVE_PIXELS,
                     (uint32_t)asked))
                return NULL;
        }
        if (!hear(client->socket, &answer, &digit) || answer.tag != heard)
            return NULL;
        shared->latency[heard] = now() - start[heard / step % AHEAD];
        if (!answer.status && answer.rows == 1) {
            atomic_fetch_add(&shared->answered, 1);
            atomic_fetch_add(&shared->right[heard % load->rows],
                             digit == load->labels[heard % load->rows]);
        }
    }
    return NULL;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void sum_up(const struct shared *shared, struct load_result *result)
{
    const struct load *load = shared->load;
    const size_t all = load->rows * load->rounds;
    for (size_t i = 0; i < load->rows; i++) {
        unsigned right = atomic_load(&shared->right[i]);
        result->right += right == load->rounds;
        result->wavering += right && right < load->rounds;
    }
    result->answered = atomic_load(&shared->answered);
    result->failed = all - result->answered;
    qsort(shared->latency, all, sizeof *shared->latency, by_size);
    result->p50 = shared->latency[all / 2];
    result->p99 = shared->latency[all * 99 / 100];
}

int load_run(const struct load *load, struct load_result *result)
{
    struct client clients[SERVE_CLIENTS];
    struct shared shared = {.load = load};
    unsigned made = 0;
    *result = (struct load_result){0};
    shared.right = calloc(load->rows, sizeof *shared.right);
    shared.latency = calloc(load->rows * load->rounds, sizeof *shared.latency);
    double start = now();
    for (; shared.right && shared.latency && made < load->clients; made++) {
        clients[made] =
            (struct client){.shared = &shared, .number = made, .socket = dial(load->path)};
        if (pthread_create(&clients[made].thread, NULL, work, &clients[made]))
            break;
    }
    for (unsigned i = 0; i < made; i++) {
        pthread_join(clients[i].thread, NULL);
        if (clients[i].socket >= 0)
            close(clients[i].socket);
    }
    result->seconds = now() - start;
    if (made == load->clients)
        sum_up(&shared, result);
    free(shared.latency);
    free(shared.right);
    return made == load->clients ? 0 : -1;
}
