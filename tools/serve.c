/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln serve`: language models and encoders answer over HTTP, as OpenAI's clients ask. */
#define _GNU_SOURCE
#include "serve.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "language.h"
#include "suggest.h"
#include "tool.h"

enum {
    USUAL_PORT = 8080,
    USUAL_BODY = 1 << 20,
    USUAL_CONNECTIONS = 256,
    USUAL_DRAIN = 30, /* seconds */
    MOST_MODELS = 16,
    LATEST_MS = 2000 /* for answers to be sent, once their texts are cut off */
};

static const char command[] = "kiln serve";

struct serve_request {
    const char *models[MOST_MODELS], *host, *device;
    size_t count;
    struct precision precision;
    size_t queue;  /* texts; 0: as usual */
    size_t window; /* of language models whose files do not say it; 0: as they say */
    kiln_lm_batcher_options batcher;
    unsigned port, connections;
    unsigned drain; /* seconds */
    struct server server;
};

/* ---- models ---- */

static bool complain(const char *sentence, const char *what)
{
    fprintf(stderr, "%s: %s%s\n", command, sentence, what);
    return false;
}

static bool is_folder(const char *path)
{
    struct stat status;
    return !stat(path, &status) && S_ISDIR(status.st_mode);
}

/* Of "NAME=MODEL" the name, else a folder's, or a file's without its ending. */
static char *name_of(const char *argument, const char **path)
{
    const char *equals = strchr(argument, '='), *slash = strchr(argument, '/');
    *path = argument;
    if (equals && equals > argument && (!slash || equals < slash)) {
        *path = equals + 1;
        return strndup(argument, (size_t)(equals - argument));
    }
    const char *end = argument + strlen(argument);
    while (end > argument + 1 && end[-1] == '/')
        end--;
    const char *base = end;
    while (base > argument && base[-1] != '/')
        base--;
    const char *dot = is_folder(argument) ? NULL : strrchr(base, '.');
    return strndup(base, (size_t)((dot && dot > base ? dot : end) - base));
}

static bool is_encoder(const char *path)
{
    const size_t length = strlen(path);
    return (length > 5 && !strcmp(path + length - 5, ".onnx")) ||
           (is_folder(path) && !language_is_folder(path));
}

static bool open_encoder(const struct serve_request *request, const char *path,
                         struct served *model)
{
#ifdef HAVE_ONNX
    const struct server *server = &request->server;
    struct serve_encoder_options options = {.most_tokens = request->batcher.context,
                                            .most_texts = request->queue,
                                            .weights = request->precision.weights};
    kiln_device_info info;
    if (kiln_context_device(server->context, &info))
        return language_complain(command);
    options.is_cpu = info.type == KILN_DEVICE_CPU;
    return serve_encoder_open(model, server->context, path, &options);
#else
    (void)request, (void)model;
    return complain("this kiln was built without libkiln-onnx, which reads ", path);
#endif
}

static bool open_language(const struct serve_request *request, const char *path,
                          struct served *model)
{
    kiln_lm_options options;
    kiln_lm_options_init(&options);
    options.weights = request->precision.weights;
    options.window = request->window;
    model->kind = &serve_language;
    kiln_lm_info info;
    if (kiln_lm_load(request->server.context, path, &options, &model->lm) ||
        kiln_lm_get_info(model->lm, &info))
        return language_complain(command);
    if (info.encoder)
        return open_encoder(request, path, model);
    return !kiln_lm_batcher_create(model->lm, &request->batcher, &model->batcher) ||
           language_complain(command);
}

static bool open_model(const struct serve_request *request, const char *argument,
                       struct server *server)
{
    struct served *model = &server->models[server->count];
    const char *path;
    model->name = name_of(argument, &path);
    if (!model->name)
        return complain("no memory", "");
    server->count++;
    for (size_t i = 0; i + 1 < server->count; i++)
        if (!strcmp(server->models[i].name, model->name))
            return complain("two models are called ", model->name);
    return (is_encoder(path) ? open_encoder : open_language)(request, path, model) &&
           (serve_jobs_start(model) || complain("no thread could be made", ""));
}

static bool open_models(struct serve_request *request)
{
    struct server *server = &request->server;
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.device = request->device;
    options.precision = request->precision.products;
    server->models = calloc(request->count, sizeof *server->models);
    if (!server->models)
        return complain("no memory", "");
    if (kiln_context_create(&options, &server->context))
        return language_complain(command);
    for (size_t i = 0; i < request->count; i++)
        if (!open_model(request, request->models[i], server))
            return false;
    return true;
}

static void close_models(struct server *server)
{
    for (size_t i = 0; i < server->count; i++) {
        struct served *model = &server->models[i];
        serve_jobs_free(model);
        if (model->kind)
            model->kind->close(model);
        free(model->name);
    }
    free(server->models);
    kiln_context_release(server->context);
}

/* ---- until a signal ends it ---- */

static void block_signals(sigset_t *ending)
{
    sigemptyset(ending);
    sigaddset(ending, SIGTERM);
    sigaddset(ending, SIGINT);
    pthread_sigmask(SIG_BLOCK, ending, NULL); /* threads that are made later have it so, too */
    signal(SIGPIPE, SIG_IGN);
}

/* While nothing is asked yet, as a signal ends other programs. */
static void *end_at_once(void *ending)
{
    int number;
    sigwait(ending, &number);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, ending, NULL);
    raise(number);
    return NULL;
}

static bool open_models_until(struct serve_request *request, sigset_t *ending)
{
    pthread_t watcher;
    const bool watches = !pthread_create(&watcher, NULL, end_at_once, ending);
    const bool fine = open_models(request);
    if (watches) {
        pthread_cancel(watcher);
        pthread_join(watcher, NULL);
    }
    return fine;
}

/* False: there are requests still, after so many milliseconds or another signal. */
static bool wait_for_answers(const struct server *server, const sigset_t *ending, unsigned ms)
{
    enum { STEP_MS = 10 };
    const struct timespec step = {0, STEP_MS * 1000000L};
    for (unsigned waited = 0; atomic_load(&server->open); waited += STEP_MS)
        if (waited >= ms || sigtimedwait(ending, NULL, &step) > 0)
            return false;
    return true;
}

/* Answers that have begun are finished; those that take too long are cut off. */
static void drain(const struct serve_request *request, const sigset_t *ending)
{
    const struct server *server = &request->server;
    fprintf(stderr, "%s: ends as soon as %zu requests are answered\n", command,
            atomic_load(&server->open));
    if (wait_for_answers(server, ending, 1000 * request->drain))
        return;
    for (size_t i = 0; i < server->count; i++)
        serve_jobs_cancel(&server->models[i]);
    wait_for_answers(server, ending, LATEST_MS);
}

static bool is_loopback(const char *host)
{
    return !strncmp(host, "127.", 4) || !strcmp(host, "::1");
}

static bool serve(struct serve_request *request)
{
    struct server *server = &request->server;
    sigset_t ending;
    int signal_number;
    block_signals(&ending);
    if (!open_models_until(request, &ending))
        return false;
    server->began = time(NULL);
    struct serve_http *http =
        serve_http_start(server, request->host, &request->port, request->connections);
    if (!http)
        return false;
    if (!is_loopback(request->host) && !server->api_key)
        complain("anybody who reaches this machine may ask; --api-key has a secret for it", "");
    printf(strchr(request->host, ':') ? "http://[%s]:%u\n" : "http://%s:%u\n", request->host,
           request->port);
    fflush(stdout);
    sigwait(&ending, &signal_number);
    atomic_store(&server->draining, true);
    drain(request, &ending);
    /* No connection may wait for a thread when the daemon ends. */
    for (size_t i = 0; i < server->count; i++)
        serve_jobs_stop(&server->models[i]);
    serve_http_stop(http);
    return true;
}

/* ---- arguments ---- */

enum {
    HOST = 256,
    API_KEY,
    SLOTS,
    CONTEXT,
    QUEUE,
    MEMORY,
    PREFIXES,
    BODY,
    CONNECTIONS,
    DRAIN,
    WINDOW,
};

static const struct argp_option options[] = {
    {"port", 'p', "NUMBER", 0, "Listen there; 8080; 0: at any that is free", 0},
    {"host", HOST, "ADDRESS", 0, "Listen at this address; 127.0.0.1, for this machine alone", 0},
    {"api-key", API_KEY, "KEY", 0,
     "Answer those alone that send it (Authorization: Bearer KEY); else $KILN_API_KEY", 0},
    {"slots", SLOTS, "TEXTS", 0, "Most texts at once; 8", 0},
    {"context", CONTEXT, "TOKENS", 0, "Most tokens of a text", 0},
    {"queue", QUEUE, "TEXTS", 0, "Most texts that wait; 128, for an encoder 2048", 0},
    {"max-tokens", 'n', "TOKENS", 0, "Most tokens of an answer; else as the context has room", 0},
    {"memory-limit", MEMORY, "MIB", 0, "Most device memory for keys and values of each model", 0},
    {"prefix-tokens", PREFIXES, "TOKENS", 0,
     "Keep beginnings of prompts for later ones, so many tokens in all; as many as a text has", 0},
    {"max-body", BODY, "BYTES", 0, "Largest request; 1048576", 0},
    {"max-connections", CONNECTIONS, "NUMBER", 0, "Most connections at once; 256", 0},
    {"drain", DRAIN, "SECONDS", 0, "How long answers may take after SIGTERM; 30", 0},
    {"window", WINDOW, "TOKENS", 0, LANGUAGE_WINDOW_HELP, 0},
    {"precision", 't', PRECISION_WORDS, 0, PRECISION_HELP, 0},
    {"device", 'd', "CHOICE", 0, "This device: number, type, or part of a name", 0},
    {0},
};

static void add_model(struct serve_request *request, const char *argument, struct argp_state *state)
{
    if (request->count == MOST_MODELS)
        argp_error(state, "more than %d models", MOST_MODELS);
    request->models[request->count++] = argument;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    enum { MOST_TOKENS = 1 << 24, MOST_BYTES = 1 << 30 };
    struct serve_request *request = state->input;
    kiln_lm_batcher_options *batcher = &request->batcher;
    struct server *server = &request->server;
    switch (key) {
    case 'p': request->port = (unsigned)language_read_whole(arg, 0, 65535, state); return 0;
    case HOST: request->host = arg; return 0;
    case API_KEY:
        if (!*arg)
            argp_error(state, "the key is empty");
        server->api_key = arg;
        return 0;
    case SLOTS: batcher->slots = (size_t)language_read_whole(arg, 2, 64, state); return 0;
    case CONTEXT:
        batcher->context = (size_t)language_read_whole(arg, 2, MOST_TOKENS, state);
        return 0;
    case QUEUE:
        request->queue = batcher->max_queue = (size_t)language_read_whole(arg, 1, 1 << 20, state);
        return 0;
    case 'n':
        server->most_tokens = (size_t)language_read_whole(arg, 1, MOST_TOKENS, state);
        return 0;
    case MEMORY:
        batcher->memory_limit = language_read_whole(arg, 1, 1 << 24, state) << 20;
        return 0;
    case PREFIXES:
        batcher->prefix_tokens = (size_t)language_read_whole(arg, 1, MOST_TOKENS, state);
        return 0;
    case BODY: server->most_body = (size_t)language_read_whole(arg, 1, MOST_BYTES, state); return 0;
    case CONNECTIONS:
        request->connections = (unsigned)language_read_whole(arg, 1, 1 << 20, state);
        return 0;
    case DRAIN: request->drain = (unsigned)language_read_whole(arg, 0, 86400, state); return 0;
    case WINDOW:
        request->window = (size_t)language_read_whole(arg, 1, MOST_TOKENS, state);
        return 0;
    case 't': request->precision = precision_read(arg, state); return 0;
    case 'd': request->device = arg; return 0;
    case ARGP_KEY_ARG: add_model(request, arg, state); return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "MODEL is missing"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int kiln__tool_serve(int argc, char **argv)
{
    static const char doc[] =
        "Answer over HTTP, as OpenAI's clients ask: /v1/completions, /v1/chat/completions, "
        "/v1/embeddings, /v1/models, /health, and /metrics for Prometheus. MODEL is a language "
        "model in a GGUF file or a folder, or a sentence encoder in an ONNX or GGUF file or a "
        "folder, called by its name without its ending; NAME=MODEL calls it otherwise. Where it "
        "listens is "
        "printed. "
        "SIGTERM ends it, once what was asked is answered.";
    struct argp argp = {
        .options = options, .parser = parse, .args_doc = "[NAME=]MODEL...", .doc = doc};
    struct serve_request request = {
        .host = "127.0.0.1",
        .port = USUAL_PORT,
        .connections = USUAL_CONNECTIONS,
        .drain = USUAL_DRAIN,
        .server = {.most_body = USUAL_BODY, .api_key = getenv("KILN_API_KEY")}};
    kiln_lm_batcher_options_init(&request.batcher);
    request.batcher.prepare = 1; /* before it listens */
    kiln__tool_parse(&argp, argc, argv, 0, &request);
    if (request.server.api_key && !*request.server.api_key)
        request.server.api_key = NULL;
    const bool fine = serve(&request);
    close_models(&request.server);
    return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}
