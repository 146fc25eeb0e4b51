/* SPDX-License-Identifier: Apache-2.0 */
/* Trains the network of train_digits and serves it on a Unix socket, its metrics over HTTP, until
 * it is interrupted. Without arguments it asks itself: a load of clients reads the digits of the
 * test through the socket, which have to be as many as one batch of all of them read. */
#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "digits_train.h"
#include "serve_load.h"
#include "serve_metrics.h"
#include "serve_server.h"

static const char usage[] =
    "usage: serve_digits                            train, serve, and ask for the test's digits\n"
    "       serve_digits --socket PATH [--http PORT] train, and serve until interrupted\n"
    "       serve_digits --load PATH [--clients N] [--rounds N]   ask a server\n";

struct command {
    const char *socket, *load;
    int http; /* -1: none */
    unsigned clients, rounds;
};

static int fail(const char *what, const char *why)
{
    fprintf(stderr, "serve_digits: %s: %s\n", what, why);
    return 1;
}

static void check(kiln_status status, const char *what)
{
    if (status)
        exit(fail(what, kiln_last_error()));
}

/* ---- the model ---- */

struct digit_reader {
    kiln_buffer *parameters[MOST_PARAMETERS];
};

static kiln_status record(kiln_batch *b, size_t context, size_t rows, const kiln_tensor *inputs,
                          kiln_tensor *outputs, void *user)
{
    const struct digit_reader *reader = user;
    kiln_tensor parameters[MOST_PARAMETERS];
    (void)context;
    for (size_t i = 0; i < digits_two_layers.n; i++)
        parameters[i] = kiln_import(b, reader->parameters[i]);
    kiln_tensor x = kiln_scale(b, kiln_cast(b, inputs[0], KILN_F32), 1.0 / 16);
    kiln_tensor logits = digits_two_layers.forward(b, x, parameters, rows, KILN_F32);
    outputs[0] = kiln_cast(b, kiln_argmax(b, logits, 1, (const int[]){1}, 0), KILN_U8);
    return KILN_OK;
}

/* Grey levels beyond 16 are a client's error, and found when it asks. */
static kiln_executor *make_executor(kiln_context *context, struct digit_reader *reader)
{
    const kiln_row row = {.type = KILN_U8, .rank = 1, .dims = {DIGIT_PIXELS}, .below = 17};
    kiln_executor_options options = KILN_EXECUTOR_OPTIONS_INIT;
    kiln_model model = KILN_MODEL_INIT;
    kiln_executor *executor;
    model.record = record;
    model.user = reader;
    model.inputs = &row;
    model.input_count = model.output_count = 1;
    options.max_batch = 64;
    options.max_queue = SERVE_CLIENTS * SERVE_AHEAD;
    check(kiln_executor_create(&context, 1, &model, &options, &executor), "no executor");
    return executor;
}

/* ---- the test's digits, asked for ---- */

static int ask(const struct command *command, const struct digits *digits,
               struct load_result *result)
{
    const size_t first = digits->count - TEST_ROWS;
    const struct load load = {.path = command->load,
                              .clients = command->clients,
                              .rounds = command->rounds,
                              .pixels = digits->pixels + first * DIGIT_PIXELS,
                              .labels = digits->labels + first,
                              .rows = TEST_ROWS};
    if (load_run(&load, result))
        return fail("no load", strerror(errno));
    printf("%zu answers to %u clients, %zu failed: %.0f a second, %.0f us p50, %.0f us p99\n"
           "%zu of %d right (%.1f%%), %zu only at times\n",
           result->answered, command->clients, result->failed,
           (double)result->answered / result->seconds, result->p50 * 1e6, result->p99 * 1e6,
           result->right, TEST_ROWS, 100.0 * (double)result->right / TEST_ROWS, result->wavering);
    return result->failed || result->wavering;
}

/* ---- serving ---- */

static int interrupted[2]; /* a pipe: a signal may come at any time */

static void interrupt(int number)
{
    int before = errno;
    (void)number;
    if (write(interrupted[1], "", 1) < 0)
        errno = before;
    errno = before;
}

/* What asks while the server serves; then the server is to end. */
struct demonstration {
    const struct command *command;
    const struct digits *digits;
    struct load_result result;
    unsigned port; /* 0: no HTTP */
    int failed;
};

/* Every answer is in the metrics, however one asks for them; and other pages are not there. */
static int look_at_metrics(unsigned port, size_t answered)
{
    static const struct {
        const char *path, *part;
        int is_count; /* a number follows, of answers */
    } pages[] = {{"/metrics", "\nkiln_executor_completed_total ", 1},
                 {"/metrics.json", "\"completed\": ", 1},
                 {"/elsewhere", " 404 ", 0}};
    char page[16384];
    int missed = 0;
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        size_t length = metrics_fetch(port, pages[i].path, page, sizeof page);
        const char *part = strstr(page, pages[i].part);
        const char *value = part ? part + strlen(pages[i].part) : page;
        int fine = part && (!pages[i].is_count || strtoul(value, NULL, 10) >= answered);
        printf("http://127.0.0.1:%u%s: %zu bytes%s\n", port, pages[i].path, length,
               fine ? "" : ", which are not as they should be");
        missed += !fine;
    }
    return missed;
}

static void *demonstrate(void *argument)
{
    struct demonstration *of = argument;
    of->failed = ask(of->command, of->digits, &of->result);
    if (of->port)
        of->failed |= look_at_metrics(of->port, of->result.answered) > 0;
    interrupt(0);
    return NULL;
}

static void print_end(kiln_executor *executor, const struct served *served)
{
    kiln_executor_stats stats;
    check(kiln_executor_get_stats(executor, &stats), "stats");
    printf("%llu clients, %llu questions, %llu refused, %llu cut off; %.1f rows a batch, waiting "
           "%.0f us p50, running %.0f us p50\n",
           (unsigned long long)served->clients, (unsigned long long)served->questions,
           (unsigned long long)served->refused, (unsigned long long)served->cut_off,
           stats.batches ? (double)stats.rows / (double)stats.batches : 0, stats.wait.p50 * 1e6,
           stats.run.p50 * 1e6);
}

/* Until interrupted; with a demonstration, until that is over. */
static int serve(kiln_executor *executor, const struct command *command, struct demonstration *of)
{
    pthread_t thread;
    unsigned port = command->http > 0 ? (unsigned)command->http : 0;
    const struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
    int listener = pipe(interrupted) ? -1 : serve_listen(command->socket);
    if (listener < 0)
        return fail(command->socket, strerror(errno));
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct metrics *metrics = command->http < 0 ? NULL : metrics_start(executor, &port);
    if (!metrics && command->http > 0) {
        unlink(command->socket);
        return fail("no metrics over HTTP", "the port is taken, or libmicrohttpd was not there");
    }
    if (of)
        of->port = metrics ? port : 0;
    printf("serving at %s", command->socket);
    printf(metrics ? ", metrics at http://127.0.0.1:%u/metrics\n" : "\n", port);
    fflush(stdout);
    if (of && pthread_create(&thread, NULL, demonstrate, of))
        return fail("no thread", strerror(errno));
    struct served served = serve_run(executor, listener, interrupted[0]);
    unlink(command->socket);
    if (of)
        pthread_join(thread, NULL);
    metrics_stop(metrics);
    print_end(executor, &served);
    return 0;
}

/* As many right through the socket as in one batch. */
static int serve_demonstration(kiln_executor *executor, struct command *command,
                               const struct digits *digits, size_t right)
{
    char folder[] = "/tmp/serve_digits.XXXXXX", path[64];
    struct demonstration of = {.command = command, .digits = digits};
    if (!mkdtemp(folder))
        return fail("no folder for the socket", strerror(errno));
    snprintf(path, sizeof path, "%s/socket", folder);
    command->socket = command->load = path;
    command->http = 0; /* any port */
    int status = serve(executor, command, &of);
    rmdir(folder);
    printf("%zu right in one batch\n", right);
    return status || of.failed || of.result.right != right;
}

static int train_and_serve(struct command *command, const struct digits *digits)
{
    struct digit_reader reader;
    const struct training training = {.epochs = 60,
                                      .learning_rate = 0.01,
                                      .weight_decay = 0.01,
                                      .type = KILN_F32,
                                      .trained = reader.parameters};
    struct outcome outcome;
    kiln_context *context;
    check(kiln_context_create(NULL, &context), "no context");
    digits_train(context, digits, &digits_two_layers, &training, &outcome);
    kiln_executor *executor = make_executor(context, &reader);
    int status = command->socket ? serve(executor, command, NULL)
                                 : serve_demonstration(executor, command, digits, outcome.right);
    kiln_executor_release(executor);
    for (size_t i = 0; i < digits_two_layers.n; i++)
        kiln_buffer_release(reader.parameters[i]);
    kiln_context_release(context);
    return status;
}

/* ---- the command line ---- */

static void refuse(void)
{
    fputs(usage, stderr);
    exit(2);
}

static unsigned number(const char *text, unsigned most)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end || value < 1 || value > most)
        refuse();
    return (unsigned)value;
}

static struct command read_command(int argc, char **argv)
{
    static const struct option known[] = {{"socket", required_argument, NULL, 's'},
                                          {"http", required_argument, NULL, 'p'},
                                          {"load", required_argument, NULL, 'l'},
                                          {"clients", required_argument, NULL, 'c'},
                                          {"rounds", required_argument, NULL, 'r'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    struct command command = {.http = -1, .clients = 8, .rounds = 10};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;)
        switch (option) {
        case 's': command.socket = optarg; break;
        case 'p': command.http = (int)number(optarg, 65535); break;
        case 'l': command.load = optarg; break;
        case 'c': command.clients = number(optarg, SERVE_CLIENTS); break;
        case 'r': command.rounds = number(optarg, 1000000); break;
        case 'h': fputs(usage, stdout); exit(0);
        default: refuse();
        }
    if (optind < argc || (command.socket && command.load))
        refuse();
    return command;
}

int main(int argc, char **argv)
{
    struct command command = read_command(argc, argv);
    struct load_result result;
    struct digits digits;
    if (digits_read(DIGITS_DATA, &digits))
        return 1;
    int status =
        command.load ? ask(&command, &digits, &result) : train_and_serve(&command, &digits);
    digits_free(&digits);
    return status;
}
