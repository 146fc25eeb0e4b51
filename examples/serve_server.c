/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_server.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A question and its answer. */
struct exchange {
    struct question question; /* and its pixels, as they come */
    uint8_t pixels[SERVE_ROWS * SERVE_PIXELS];
    struct answer answer; /* and its digits, as they go */
    uint8_t digits[SERVE_ROWS];
    kiln_future *future; /* NULL: the answer stands */
};
_Static_assert(offsetof(struct exchange, pixels) == sizeof(struct question), "");
_Static_assert(offsetof(struct exchange, digits) ==
                   offsetof(struct exchange, answer) + sizeof(struct answer),
               "");

struct client {
    int socket; /* -1: gone */
    bool taken; /* gone or not, something of it is left */
    bool ended; /* it asks no more */
    struct exchange ring[SERVE_AHEAD];
    unsigned first, count; /* asked and not yet answered */
    size_t received;       /* of the next question */
    size_t sent;           /* of the first answer */
    uint64_t active;       /* when it last asked or read, as a number that grows */
};

struct server {
    kiln_executor *executor;
    int listener; /* -1: it is to end */
    struct client clients[SERVE_CLIENTS];
    uint64_t time;
    struct served seen;
};

static struct exchange *first_of(struct client *client)
{
    return &client->ring[client->first];
}

/* ---- one client ---- */

/* What runs has to end first, since its answer is written to the client's memory. */
static void hang_up(struct client *client)
{
    if (client->socket >= 0)
        close(client->socket);
    client->socket = -1;
    for (unsigned i = 0; i < client->count; i++) {
        kiln_future *future = client->ring[(client->first + i) % SERVE_AHEAD].future;
        kiln_status status = future ? kiln_future_cancel(future) : KILN_OK;
        (void)status; /* it runs or has ended */
    }
}

/* The client would have stayed. */
static void cut_off(struct server *server, struct client *client)
{
    server->seen.cut_off++;
    hang_up(client);
}

static void set_answer(struct exchange *e, kiln_status status)
{
    e->answer = (struct answer){e->question.tag, status, status ? 0 : e->question.rows};
}

static void ask(struct server *server, struct exchange *e)
{
    const size_t rows = e->question.rows;
    const kiln_input input = {e->pixels, rows * SERVE_PIXELS, KILN_U8};
    const kiln_output output = {e->digits, rows, KILN_U8};
    kiln_request_options options = KILN_REQUEST_OPTIONS_INIT;
    options.when_full = KILN_WHEN_FULL_FAIL;
    kiln_status status =
        kiln_executor_submit(server->executor, &input, &output, rows, &options, &e->future);
    server->seen.questions++;
    server->seen.refused += status != KILN_OK;
    if (status)
        set_answer(e, status);
}

/* How much of a question is known to come. */
static size_t wanted(const struct exchange *e, size_t received)
{
    if (received < sizeof e->question)
        return sizeof e->question;
    return sizeof e->question + e->question.rows * SERVE_PIXELS;
}

/* One step of the next question; false: there is nothing more for now. */
static bool receive_some(struct server *server, struct client *client)
{
    struct exchange *e = &client->ring[(client->first + client->count) % SERVE_AHEAD];
    ssize_t got = recv(client->socket, (char *)e + client->received,
                       wanted(e, client->received) - client->received, MSG_DONTWAIT);
    if (got <= 0) {
        client->ended = got == 0;
        if (got < 0 && errno != EAGAIN && errno != EINTR)
            hang_up(client);
        return false;
    }
    client->active = ++server->time;
    client->received += (size_t)got;
    if (client->received < sizeof e->question)
        return true;
    if (!e->question.rows || e->question.rows > SERVE_ROWS) {
        cut_off(server, client);
        return false;
    }
    if (client->received == wanted(e, client->received)) {
        client->received = 0;
        client->count++;
        ask(server, e);
    }
    return true;
}

/* What has come, as long as there is room for questions. */
static void receive(struct server *server, struct client *client)
{
    while (client->count < SERVE_AHEAD && receive_some(server, client))
        ;
}

/* Whether the first answer stands. */
static bool is_answered(struct client *client)
{
    struct exchange *e = first_of(client);
    if (!e->future)
        return true;
    kiln_status status = kiln_future_poll(e->future);
    if (status == KILN_NOT_READY)
        return false;
    set_answer(e, status);
    kiln_future_release(e->future);
    e->future = NULL;
    return true;
}

/* False: the client does not take it now. */
static bool send_first(struct server *server, struct client *client)
{
    struct exchange *e = first_of(client);
    size_t length = sizeof e->answer + e->answer.rows;
    while (client->socket >= 0 && client->sent < length) {
        ssize_t put = send(client->socket, (char *)&e->answer + client->sent, length - client->sent,
                           MSG_DONTWAIT | MSG_NOSIGNAL);
        if (put < 0 && (errno == EAGAIN || errno == EINTR))
            return false;
        if (put < 0) {
            hang_up(client);
        } else {
            client->sent += (size_t)put;
            client->active = ++server->time;
        }
    }
    return true;
}

static void answer(struct server *server, struct client *client)
{
    while (client->count && is_answered(client) && send_first(server, client)) {
        client->first = (client->first + 1) % SERVE_AHEAD;
        client->count--;
        client->sent = 0;
    }
    if (client->ended && !client->count)
        hang_up(client);
    if (client->socket < 0 && !client->count)
        client->taken = false;
}

/* ---- all of them ---- */

static struct client *find_free(struct server *server)
{
    for (unsigned i = 0; i < SERVE_CLIENTS; i++)
        if (!server->clients[i].taken)
            return &server->clients[i];
    return NULL;
}

/* The one of those that have nothing under way, or do not read, that has been quiet longest. */
static struct client *find_idle(struct server *server)
{
    struct client *found = NULL;
    for (unsigned i = 0; i < SERVE_CLIENTS; i++) {
        struct client *client = &server->clients[i];
        bool idle = client->socket >= 0 && (!client->count || !first_of(client)->future);
        if (idle && (!found || client->active < found->active))
            found = client;
    }
    return found;
}

static void make_room(struct server *server)
{
    struct client *idle = find_idle(server);
    if (!idle)
        return;
    cut_off(server, idle);
    answer(server, idle);
}

static void admit(struct server *server)
{
    struct client *client = find_free(server);
    int socket = client ? accept(server->listener, NULL, NULL) : -1;
    if (!client || (socket < 0 && (errno == EMFILE || errno == ENFILE)))
        make_room(server);
    if (socket < 0)
        return; /* it has gone again, or is met in the next turn */
    client->socket = socket;
    client->taken = true;
    client->ended = false;
    client->first = client->count = 0;
    client->received = client->sent = 0;
    client->active = ++server->time;
    server->seen.clients++;
}

static bool is_running(struct client *client)
{
    return client->taken && client->count && first_of(client)->future;
}

/* The descriptor of the first request; -1: none runs. Where none is left, it is waited for here. */
static int descriptor_of(struct server *server, struct client *client)
{
    int descriptor = -1;
    while (is_running(client) && kiln_future_descriptor(first_of(client)->future, &descriptor)) {
        kiln_status status = kiln_future_wait(first_of(client)->future);
        (void)status; /* the answer tells */
        answer(server, client);
    }
    return descriptor;
}

/* What there is to wait for: of a client its socket, and the end of its first request. */
static void watch(struct server *server, struct pollfd *sockets, struct pollfd *futures)
{
    for (unsigned i = 0; i < SERVE_CLIENTS; i++) {
        struct client *client = &server->clients[i];
        futures[i] = (struct pollfd){.fd = descriptor_of(server, client), .events = POLLIN};
        sockets[i] = (struct pollfd){.fd = client->taken ? client->socket : -1};
        if (server->listener >= 0 && client->count < SERVE_AHEAD && !client->ended)
            sockets[i].events |= POLLIN;
        if (client->count && !is_running(client))
            sockets[i].events |= POLLOUT;
    }
}

/* At the end: leave those that have their answers, and those that do not read. True: nobody is
 * left. */
static bool is_over(struct server *server)
{
    bool over = true;
    for (unsigned i = 0; i < SERVE_CLIENTS; i++) {
        struct client *client = &server->clients[i];
        if (client->socket >= 0 && (!client->count || !first_of(client)->future)) {
            server->seen.cut_off += client->count > 0;
            hang_up(client);
            answer(server, client);
        }
        over = over && !client->taken;
    }
    return over;
}

static void turn(struct server *server, struct pollfd *fds)
{
    struct pollfd *sockets = fds + 2, *futures = sockets + SERVE_CLIENTS;
    for (unsigned i = 0; i < SERVE_CLIENTS; i++) {
        struct client *client = &server->clients[i];
        if (!client->taken)
            continue;
        if (sockets[i].revents & (POLLHUP | POLLERR))
            hang_up(client);
        else if (sockets[i].revents & POLLIN)
            receive(server, client);
        if (sockets[i].revents || futures[i].revents)
            answer(server, client);
    }
}

struct served serve_run(kiln_executor *executor, int listener, int stop)
{
    struct pollfd fds[2 + 2 * SERVE_CLIENTS];
    struct served seen = {0};
    struct server *server = calloc(1, sizeof *server);
    if (!server)
        return seen;
    server->executor = executor;
    server->listener = listener;
    for (unsigned i = 0; i < SERVE_CLIENTS; i++)
        server->clients[i].socket = -1;
    while (server->listener >= 0 || !is_over(server)) {
        bool room = find_free(server) || find_idle(server);
        fds[0] = (struct pollfd){.fd = server->listener >= 0 ? stop : -1, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = room ? server->listener : -1, .events = POLLIN};
        watch(server, fds + 2, fds + 2 + SERVE_CLIENTS);
        if (poll(fds, sizeof fds / sizeof *fds, -1) < 0)
            continue;
        turn(server, fds);
        if (fds[1].revents)
            admit(server);
        if (fds[0].revents) {
            close(server->listener);
            server->listener = -1;
        }
    }
    seen = server->seen;
    free(server);
    return seen;
}

/* ---- the socket ---- */

static bool is_dead(const struct sockaddr_un *address)
{
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool dead = connect(probe, (const struct sockaddr *)address, sizeof *address) < 0 &&
                errno == ECONNREFUSED;
    close(probe);
    return dead;
}

int serve_listen(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct sockaddr *at = (const struct sockaddr *)&address;
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0177);
    int status = bind(listener, at, sizeof address);
    if (status && errno == EADDRINUSE && is_dead(&address) && !unlink(path))
        status = bind(listener, at, sizeof address);
    umask(before);
    if (status || listen(listener, SERVE_CLIENTS)) {
        int error = errno;
        close(listener);
        errno = error;
        return -1;
    }
    return listener;
}
