/* SPDX-License-Identifier: Apache-2.0 */
/* The server of examples/serve_digits, with a model that needs no training, among clients that do
 * not behave: whoever asks properly is answered all the same. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "../../examples/serve_server.h"
#include "../support/context.h"
#include "../support/served.h"

/* ---- descriptors that cannot be made ---- */

static atomic_bool no_descriptors;

int __real_eventfd(unsigned value, int flags);
int __wrap_eventfd(unsigned value, int flags);

int __wrap_eventfd(unsigned value, int flags)
{
    errno = EMFILE;
    return atomic_load(&no_descriptors) ? -1 : __real_eventfd(value, flags);
}

/* ---- a server ---- */

/* The largest pixel of each row. */
static kiln_status record_largest(kiln_batch *batch, size_t context, size_t rows,
                                  const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    (void)context, (void)rows, (void)user;
    outputs[0] = kiln_max(batch, inputs[0], 1, (const int[]){1}, 0);
    return KILN_OK;
}

static struct {
    kiln_context *context;
    kiln_executor *executor;
    int stop[2];
    char folder[32], path[64];
    pthread_t thread;
    struct served served;
} world;

static void *run(void *listener)
{
    struct served served = serve_run(world.executor, (int)(intptr_t)listener, world.stop[0]);
    world.served.clients += served.clients;
    world.served.questions += served.questions;
    world.served.refused += served.refused;
    world.served.cut_off += served.cut_off;
    return NULL;
}

static void begin(void)
{
    const kiln_row row = {KILN_U8, 1, {SERVE_PIXELS}, 17, 0};
    const kiln_model model = {.size = sizeof model,
                              .record = record_largest,
                              .input_count = 1,
                              .inputs = &row,
                              .output_count = 1};
    kiln_executor_options options = served_options(SERVE_ROWS, 1, 0);
    options.max_queue = SERVE_CLIENTS * SERVE_AHEAD;
    world.context = open_context();
    expect_ok(kiln_executor_create(&world.context, 1, &model, &options, &world.executor));
    strcpy(world.folder, "/tmp/kiln-serve.XXXXXX");
    cr_assert(mkdtemp(world.folder));
    snprintf(world.path, sizeof world.path, "%s/socket", world.folder);
    cr_assert_eq(pipe(world.stop), 0);
    int listener = serve_listen(world.path);
    cr_assert_geq(listener, 0);
    cr_assert_eq(pthread_create(&world.thread, NULL, run, (void *)(intptr_t)listener), 0);
}

static void end(void)
{
    cr_assert_eq(write(world.stop[1], "", 1), 1);
    pthread_join(world.thread, NULL);
    unlink(world.path);
    rmdir(world.folder);
    kiln_executor_stats stats = served_stats(world.executor);
    cr_expect_eq(stats.requests + world.served.refused, world.served.questions);
    cr_expect_eq(stats.queued + stats.running, 0u);
    served_end(world.executor, world.context);
}

/* ---- clients ---- */

static int dial(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = 300};
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    strcpy(address.sun_path, world.path);
    while (connect(s, (const struct sockaddr *)&address, sizeof address))
        cr_assert_eq(errno, EINTR, "%s", strerror(errno));
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience); /* rather than hang */
    return s;
}

struct message {
    struct question head;
    uint8_t pixels[SERVE_ROWS][SERVE_PIXELS];
};

static uint8_t largest_of(uint32_t tag, uint32_t row)
{
    return (uint8_t)((tag * 5 + row * 3) % 17);
}

/* A question whose answer is known. Answers its length. */
static size_t compose(struct message *message, uint32_t tag, uint32_t rows)
{
    memset(message, 0, sizeof *message);
    message->head = (struct question){tag, rows};
    for (uint32_t i = 0; i < rows; i++)
        message->pixels[i][(tag + i) % SERVE_PIXELS] = largest_of(tag, i);
    return sizeof message->head + rows * SERVE_PIXELS;
}

static void give(int s, const void *from, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t put = send(s, (const char *)from + done, length - done, MSG_NOSIGNAL);
        cr_assert(put > 0 || errno == EINTR);
        done += put > 0 ? (size_t)put : 0;
    }
}

static void ask(int s, uint32_t tag, uint32_t rows)
{
    struct message message;
    give(s, &message, compose(&message, tag, rows));
}

/* All of it: a driver's child that ends interrupts calls. */
static void take(int s, void *to, size_t length)
{
    for (size_t done = 0; done < length;) {
        ssize_t got = recv(s, (char *)to + done, length - done, 0);
        if (got < 0 && errno == EINTR)
            continue;
        cr_assert_gt(got, 0, "%zd bytes, %s", got, strerror(errno));
        done += (size_t)got;
    }
}

static void hear(int s, uint32_t tag, uint32_t rows)
{
    struct answer answer;
    uint8_t digits[SERVE_ROWS];
    take(s, &answer, sizeof answer);
    cr_expect_eq(answer.tag, tag);
    cr_expect_eq(answer.status, KILN_OK);
    cr_assert_eq(answer.rows, rows);
    take(s, digits, rows);
    for (uint32_t i = 0; i < rows; i++)
        cr_expect_eq(digits[i], largest_of(tag, i));
}

static void expect_hung_up(int s)
{
    char byte;
    ssize_t got;
    do
        got = recv(s, &byte, 1, 0);
    while (got < 0 && errno == EINTR);
    cr_expect(got == 0 || (got < 0 && errno == ECONNRESET));
    close(s);
}

static void expect_served(void)
{
    int s = dial();
    ask(s, 3, 2);
    hear(s, 3, 2);
    close(s);
}

/* ---- those that behave ---- */

Test(serve, answers_each_question_in_its_order)
{
    begin();
    int a = dial(), b = dial();
    for (uint32_t i = 0; i < SERVE_AHEAD; i++) {
        ask(a, i, 1 + i);
        ask(b, 100 + i, SERVE_ROWS);
    }
    for (uint32_t i = 0; i < SERVE_AHEAD; i++) {
        hear(b, 100 + i, SERVE_ROWS);
        hear(a, i, 1 + i);
    }
    ask(a, 7, 1); /* and then no more: the answer comes first */
    shutdown(a, SHUT_WR);
    hear(a, 7, 1);
    expect_hung_up(a);
    close(b);
    end();
    cr_expect_eq(world.served.clients, 2u);
    cr_expect_eq(world.served.questions, 2u * SERVE_AHEAD + 1);
    cr_expect_eq(world.served.refused + world.served.cut_off, 0u);
}

/* ---- those that do not ---- */

static void ask_byte_by_byte(void)
{
    struct message message;
    size_t length = compose(&message, 9, 2);
    int s = dial();
    for (size_t i = 0; i < length; i++)
        give(s, (const char *)&message + i, 1);
    hear(s, 9, 2);
    close(s);
}

/* Parts of a question, and nothing at all. */
static void leave_in_the_middle(void)
{
    static const size_t parts[] = {0, 1, 7, 8, 9, 71};
    struct message message;
    compose(&message, 1, 1);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        int s = dial();
        give(s, &message, parts[i]);
        close(s);
        expect_served();
    }
}

static void ask_for_odd_numbers_of_rows(void)
{
    static const uint32_t rows[] = {0, SERVE_ROWS + 1, UINT32_MAX, (uint32_t)1 << 26};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct question question = {1, rows[i]};
        int s = dial();
        give(s, &question, sizeof question);
        expect_hung_up(s);
        expect_served();
    }
}

static void send_garbage(void)
{
    unsigned state = 1;
    for (int i = 0; i < 20; i++) {
        uint8_t bytes[500];
        int s = dial();
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (uint8_t)((state = state * 1664525 + 1013904223) >> 24);
        if (send(s, bytes, sizeof bytes, MSG_NOSIGNAL) > 0)
            close(s);
    }
    expect_served();
}

/* The question is refused, and the client may go on. */
static void ask_with_a_bad_pixel(void)
{
    struct message message;
    struct answer answer;
    size_t length = compose(&message, 4, 3);
    int s = dial();
    message.pixels[1][5] = 17;
    give(s, &message, length);
    ask(s, 5, 1);
    take(s, &answer, sizeof answer);
    cr_expect_eq(answer.tag, 4u);
    cr_expect_eq(answer.status, KILN_INVALID_ARGUMENT);
    cr_expect_eq(answer.rows, 0u);
    hear(s, 5, 1);
    close(s);
}

Test(serve, survives_those_that_do_not_behave)
{
    begin();
    ask_byte_by_byte();
    leave_in_the_middle();
    ask_for_odd_numbers_of_rows();
    ask_with_a_bad_pixel();
    send_garbage();
    end();
    cr_expect_eq(world.served.refused, 1u);
    cr_expect_geq(world.served.cut_off, 4u);
}

/* One that asks and asks waits itself, and gets every answer in the end. */
Test(serve, is_not_held_up_by_one_that_does_not_read)
{
    struct message message;
    uint32_t asked = 0, heard = 0;
    begin();
    int s = dial();
    const size_t length = compose(&message, 0, SERVE_ROWS);
    size_t sent = 0;
    for (;;) { /* as much as there is room for, perhaps half a question at the end */
        compose(&message, asked, SERVE_ROWS);
        ssize_t put =
            send(s, (const char *)&message + sent, length - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            break;
        sent += (size_t)put;
        if (sent == length) {
            sent = 0;
            asked++;
        }
        if (asked % 64 == 0)
            expect_served();
        cr_assert_lt(asked, 1000000u);
    }
    expect_served();
    for (; heard < asked; heard++)
        hear(s, heard, SERVE_ROWS);
    close(s);
    end();
}

Test(serve, goes_on_when_one_leaves_while_its_question_runs)
{
    begin();
    expect_served();
    cl_event gate = gate_close(world.context);
    int s = dial();
    for (uint32_t i = 0; i < 3; i++)
        ask(s, i, SERVE_ROWS);
    cr_assert(served_running(world.executor, 2)); /* each a batch, and the third waits */
    close(s);
    gate_open(gate);
    expect_served();
    end();
}

Test(serve, answers_what_runs_when_it_ends)
{
    begin();
    cl_event gate = gate_close(world.context);
    int asking = dial(), idle = dial();
    ask(asking, 1, 1);
    cr_assert(served_running(world.executor, 1));
    cr_assert_eq(write(world.stop[1], "", 1), 1);
    expect_hung_up(idle);
    gate_open(gate);
    hear(asking, 1, 1);
    expect_hung_up(asking);
    end();
}

/* ---- when there is no room ---- */

Test(serve, has_room_for_another_where_one_is_idle)
{
    int all[SERVE_CLIENTS];
    begin();
    for (int i = 0; i < SERVE_CLIENTS; i++) {
        all[i] = dial();
        ask(all[i], 1, 1);
        hear(all[i], 1, 1);
    }
    ask(all[0], 2, 1);
    hear(all[0], 2, 1);
    expect_served();
    expect_hung_up(all[1]); /* it has been quiet longest */
    for (int i = 0; i < SERVE_CLIENTS; i++) {
        if (i == 1)
            continue;
        ask(all[i], 3, 1);
        hear(all[i], 3, 1);
        close(all[i]);
    }
    end();
    cr_expect_eq(world.served.cut_off, 1u);
}

/* It waits for each request in turn then. */
Test(serve, answers_without_descriptors)
{
    begin();
    int s = dial();
    atomic_store(&no_descriptors, true);
    for (uint32_t i = 0; i < 3; i++)
        ask(s, i, 1);
    for (uint32_t i = 0; i < 3; i++)
        hear(s, i, 1);
    atomic_store(&no_descriptors, false);
    close(s);
    end();
}

/* ---- the socket ---- */

Test(serve, listens_where_nobody_else_does)
{
    char long_path[200] = {0};
    struct stat info;
    begin();
    cr_expect_eq(stat(world.path, &info), 0);
    cr_expect_eq(info.st_mode & 0777, 0600u);
    errno = 0;
    cr_expect_lt(serve_listen(world.path), 0);
    cr_expect_eq(errno, EADDRINUSE);
    expect_served();
    memset(long_path, 'x', sizeof long_path - 1);
    cr_expect_lt(serve_listen(long_path), 0);
    cr_expect_eq(errno, ENAMETOOLONG);
    cr_assert_eq(write(world.stop[1], "", 1), 1);
    pthread_join(world.thread, NULL); /* the socket's name is left, as by a server that crashed */
    int listener = serve_listen(world.path);
    cr_assert_geq(listener, 0);
    cr_assert_eq(pthread_create(&world.thread, NULL, run, (void *)(intptr_t)listener), 0);
    end();
}
