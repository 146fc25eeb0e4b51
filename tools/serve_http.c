/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP by libmicrohttpd: one thread for all connections, none of which waits for another. One whose
 * body is long is suspended while another thread reads it, and one whose answer is in the making
 * until its model's thread resumes it. */
#define _GNU_SOURCE
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve.h"

enum {
    IDLE_SECONDS = 60,     /* a connection that neither reads nor writes */
    HEAD_BYTES = 32 << 10, /* of a request, and what is sent at once */
    BLOCK = 16 << 10,      /* of a stream */
    LONG_BODY = 8 << 10,   /* bytes, of which reading keeps other connections waiting */
    MOST_BODIES = 8        /* times the limit: a longer body breaks the connection */
};

struct serve_http {
    struct MHD_Daemon *daemon;
    struct server *server;
    pthread_t reader; /* of long bodies */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct exchange *first, **end; /* whose bodies are to be read, under the lock; */
    bool stops;                    /* as this is */
};

/* A request and its answer. */
struct exchange {
    struct serve_http *http;
    struct server *server;
    struct MHD_Connection *connection;
    struct kiln__text body; /* up to a byte more than the limit */
    size_t body_bytes;
    bool is_refused;                 /* before its body */
    const char *allow;               /* see struct serve_problem */
    const char *path, *content_type; /* as long as the connection has the request */
    bool is_read;                    /* the body: there is a job, or */
    struct serve_reply reply;
    struct serve_job *job;
    struct exchange *next; /* whose body is to be read */
};

/* ---- answers ---- */

static enum MHD_Result queue(struct exchange *exchange, struct MHD_Connection *connection,
                             unsigned status, const char *type, struct MHD_Response *response)
{
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == 401)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (exchange->allow)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, exchange->allow);
    if (status == 429 || status == 503)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    const enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    atomic_fetch_add(&exchange->server->answers[status / 100], 1);
    return result;
}

/* The text is given back. */
static enum MHD_Result queue_text(struct exchange *exchange, struct MHD_Connection *connection,
                                  unsigned status, const char *type, struct kiln__text *text)
{
    static char no_memory[] = "{\"error\":{\"message\":\"no memory\",\"type\":\"server_error\","
                              "\"param\":null,\"code\":null}}";
    if (text->failed) {
        kiln__text_free(text);
        return queue(exchange, connection, 500, "application/json",
                     MHD_create_response_from_buffer(sizeof no_memory - 1, no_memory,
                                                     MHD_RESPMEM_PERSISTENT));
    }
    return queue(exchange, connection, status, type,
                 MHD_create_response_from_buffer(text->length, text->data, MHD_RESPMEM_MUST_FREE));
}

static enum MHD_Result queue_problem(struct exchange *exchange, struct MHD_Connection *connection,
                                     const struct serve_problem *problem)
{
    struct serve_reply reply = {0};
    exchange->allow = problem->allow;
    serve_reply_problem(&reply, problem);
    return queue_text(exchange, connection, reply.status, reply.type, &reply.text);
}

/* ---- answers in the making ---- */

/* Under the model's lock. */
static void suspend(struct serve_job *job, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    job->descriptor = info ? info->connect_fd : -1;
    job->connection = connection;
    MHD_suspend_connection(connection);
}

void serve_http_resume(struct serve_job *job)
{
    struct MHD_Connection *connection = job->connection;
    job->connection = NULL;
    MHD_resume_connection(connection);
}

/* What a stream's reader gets: what is there; nothing, once, while it is suspended. */
static ssize_t read_stream(void *user, uint64_t position, char *to, size_t most)
{
    struct exchange *exchange = user;
    struct serve_job *job = exchange->job;
    struct served *model = job->form.model;
    ssize_t count = 0;
    (void)position;
    pthread_mutex_lock(&model->lock);
    const size_t left = job->out.length - job->taken;
    if (job->gone || job->out.failed) {
        count = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (left) {
        count = (ssize_t)(left < most ? left : most);
        memcpy(to, job->out.data + job->taken, (size_t)count);
        job->taken += (size_t)count;
    } else if (job->ended) {
        count = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        suspend(job, exchange->connection);
    }
    pthread_mutex_unlock(&model->lock);
    return count;
}

static enum MHD_Result queue_stream(struct exchange *exchange, struct MHD_Connection *connection)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, exchange, NULL);
    if (response)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    return queue(exchange, connection, 200, "text/event-stream", response);
}

/* The whole answer, or the connection waits for it. */
static enum MHD_Result answer_job(struct exchange *exchange, struct MHD_Connection *connection)
{
    struct serve_job *job = exchange->job;
    struct served *model = job->form.model;
    struct kiln__text text = {0};
    pthread_mutex_lock(&model->lock);
    const bool ended = job->ended, gone = job->gone;
    if (!ended)
        suspend(job, connection);
    else if (!gone) {
        text = job->out;
        job->out = (struct kiln__text){0};
    }
    pthread_mutex_unlock(&model->lock);
    if (!ended)
        return MHD_YES;
    return gone ? MHD_NO
                : queue_text(exchange, connection, job->problem.status ? job->problem.status : 200,
                             "application/json", &text);
}

/* ---- long bodies ---- */

static void read_body(struct exchange *exchange)
{
    serve_route(exchange->server, exchange->path, exchange->content_type, &exchange->body,
                &exchange->reply);
    exchange->job = exchange->reply.job;
    exchange->is_read = true;
}

/* What is there is read to the end, even once it stops: a connection waits for each. */
static void *read_bodies(void *user)
{
    struct serve_http *http = user;
    pthread_mutex_lock(&http->lock);
    while (http->first || !http->stops) {
        struct exchange *exchange = http->first;
        if (!exchange) {
            pthread_cond_wait(&http->wake, &http->lock);
            continue;
        }
        http->first = exchange->next;
        http->end = http->first ? http->end : &http->first;
        pthread_mutex_unlock(&http->lock);
        read_body(exchange);
        MHD_resume_connection(exchange->connection);
        pthread_mutex_lock(&http->lock);
    }
    pthread_mutex_unlock(&http->lock);
    return NULL;
}

static bool start_reader(struct serve_http *http)
{
    http->end = &http->first;
    if (pthread_mutex_init(&http->lock, NULL))
        return false;
    if (pthread_cond_init(&http->wake, NULL)) {
        pthread_mutex_destroy(&http->lock);
        return false;
    }
    if (!pthread_create(&http->reader, NULL, read_bodies, http))
        return true;
    pthread_cond_destroy(&http->wake);
    pthread_mutex_destroy(&http->lock);
    return false;
}

/* From now on all bodies are read where they come. */
static void stop_reader(struct serve_http *http)
{
    pthread_mutex_lock(&http->lock);
    http->stops = true;
    pthread_cond_signal(&http->wake);
    pthread_mutex_unlock(&http->lock);
    pthread_join(http->reader, NULL);
}

/* Whether another thread reads it; the connection is suspended. */
static bool hand_over(struct exchange *exchange)
{
    struct serve_http *http = exchange->http;
    if (exchange->body.length <= LONG_BODY)
        return false;
    pthread_mutex_lock(&http->lock);
    const bool reads = !http->stops;
    if (reads) {
        MHD_suspend_connection(exchange->connection);
        *http->end = exchange;
        http->end = &exchange->next;
        pthread_cond_signal(&http->wake);
    }
    pthread_mutex_unlock(&http->lock);
    return reads;
}

/* ---- requests ---- */

static enum MHD_Result begin(struct serve_http *http, struct MHD_Connection *connection,
                             const char *path, const char *method, void **state)
{
    struct server *server = http->server;
    struct exchange *exchange = calloc(1, sizeof *exchange);
    struct serve_problem problem;
    if (!exchange)
        return MHD_NO;
    *state = exchange;
    exchange->http = http;
    exchange->server = server;
    exchange->connection = connection;
    atomic_fetch_add(&server->open, 1);
    const char *key =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    const char *length =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    bool fine = serve_route_check(server, method, path, key, &problem);
    if (fine && length && strtoull(length, NULL, 10) > server->most_body)
        fine = serve_refuse(&problem, 413, "body_too_large", NULL,
                            "the body has more than %zu bytes", server->most_body);
    exchange->is_refused = !fine;
    return fine ? MHD_YES : queue_problem(exchange, connection, &problem);
}

/* What is beyond the limit is read, so that the client reads the answer, but not kept. */
static enum MHD_Result add_body(struct exchange *exchange, const char *data, size_t *bytes)
{
    const size_t most = exchange->server->most_body, kept = exchange->body.length;
    exchange->body_bytes += *bytes;
    kiln__text_add_bytes(&exchange->body, data,
                         *bytes < most + 1 - kept ? *bytes : most + 1 - kept);
    *bytes = 0;
    return exchange->body.failed || exchange->body_bytes / MOST_BODIES > most ? MHD_NO : MHD_YES;
}

static enum MHD_Result handle(void *user, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *data,
                              size_t *data_bytes, void **state)
{
    struct exchange *exchange = *state;
    (void)version;
    if (!exchange)
        return begin(user, connection, path, method, state);
    if (*data_bytes)
        return add_body(exchange, data, data_bytes);
    if (exchange->is_refused)
        return MHD_YES;
    if (!exchange->is_read) {
        exchange->path = path;
        exchange->content_type =
            MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE);
        if (hand_over(exchange))
            return MHD_YES;
        read_body(exchange);
    }
    if (exchange->job)
        return exchange->job->form.stream ? queue_stream(exchange, connection)
                                          : answer_job(exchange, connection);
    struct kiln__text text = exchange->reply.text;
    exchange->reply.text = (struct kiln__text){0};
    return queue_text(exchange, connection, exchange->reply.status, exchange->reply.type, &text);
}

static void completed(void *user, struct MHD_Connection *connection, void **state,
                      enum MHD_RequestTerminationCode code)
{
    struct exchange *exchange = *state;
    (void)user, (void)connection, (void)code;
    if (!exchange)
        return;
    if (exchange->job)
        serve_job_close(exchange->job);
    atomic_fetch_sub(&exchange->server->open, 1);
    kiln__text_free(&exchange->body);
    kiln__text_free(&exchange->reply.text);
    free(exchange);
    *state = NULL;
}

/* ---- listening ---- */

static struct MHD_Daemon *listen_at(struct serve_http *http, const struct addrinfo *address,
                                    unsigned connections)
{
    const unsigned flags = MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
                           (address->ai_family == AF_INET6 ? MHD_USE_IPv6 : 0u);
    return MHD_start_daemon(flags, 0, NULL, NULL, handle, http, MHD_OPTION_SOCK_ADDR,
                            address->ai_addr, MHD_OPTION_NOTIFY_COMPLETED, completed, http,
                            MHD_OPTION_CONNECTION_LIMIT, connections, MHD_OPTION_CONNECTION_TIMEOUT,
                            (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)HEAD_BYTES, MHD_OPTION_END);
}

struct serve_http *serve_http_start(struct server *server, const char *host, unsigned *port,
                                    unsigned connections)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *address;
    char service[16];
    snprintf(service, sizeof service, "%u", *port);
    const int error = getaddrinfo(host, service, &hints, &address);
    if (error) {
        fprintf(stderr, "kiln serve: %s is no address: %s\n", host, gai_strerror(error));
        return NULL;
    }
    struct serve_http *http = calloc(1, sizeof *http);
    if (http)
        http->server = server;
    const bool reads = http && start_reader(http);
    if (reads)
        http->daemon = listen_at(http, address, connections);
    const int why = errno;
    freeaddrinfo(address);
    if (!reads || !http->daemon) {
        fprintf(stderr, "kiln serve: port %u of %s cannot be had: %s\n", *port, host,
                strerror(reads ? why : ENOMEM));
        if (reads) {
            stop_reader(http);
            pthread_cond_destroy(&http->wake);
            pthread_mutex_destroy(&http->lock);
        }
        free(http);
        return NULL;
    }
    *port = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
    return http;
}

void serve_http_stop(struct serve_http *http)
{
    if (!http)
        return;
    stop_reader(http);
    MHD_stop_daemon(http->daemon);
    pthread_cond_destroy(&http->wake);
    pthread_mutex_destroy(&http->lock);
    free(http);
}
