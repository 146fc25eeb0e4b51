/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_metrics.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in local(unsigned port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr = {htonl(INADDR_LOOPBACK)}};
}

size_t metrics_fetch(unsigned port, const char *path, char *text, size_t size)
{
    const struct sockaddr_in address = local(port);
    char head[256];
    size_t length = 0;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int asked = snprintf(head, sizeof head,
                         "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    if (!connect(s, (const struct sockaddr *)&address, sizeof address) &&
        send(s, head, (size_t)asked, MSG_NOSIGNAL) == asked)
        for (ssize_t got;
             length + 1 < size && (got = read(s, text + length, size - 1 - length)) > 0;)
            length += (size_t)got;
    text[length] = 0;
    close(s);
    return length;
}

#ifdef HAVE_MICROHTTPD

#include <microhttpd.h>

struct metrics {
    struct MHD_Daemon *daemon;
    kiln_executor *executor;
};

static const struct page {
    const char *path, *type;
    kiln_metrics_format format;
} pages[] = {
    {"/metrics", "text/plain; version=0.0.4", KILN_METRICS_PROMETHEUS},
    {"/metrics.json", "application/json", KILN_METRICS_JSON},
};

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *type,
                             const char *text, enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, mode);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result handle(void *self, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *data,
                              size_t *data_size, void **state)
{
    struct metrics *metrics = self;
    char *text;
    (void)version, (void)data, (void)data_size, (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0)
        return reply(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "text/plain", "only GET\n",
                     MHD_RESPMEM_PERSISTENT);
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (!strcmp(path, pages[i].path)) {
            if (kiln_executor_metrics(metrics->executor, pages[i].format, &text))
                return reply(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "text/plain",
                             kiln_last_error(), MHD_RESPMEM_MUST_COPY);
            return reply(connection, MHD_HTTP_OK, pages[i].type, text, MHD_RESPMEM_MUST_FREE);
        }
    return reply(connection, MHD_HTTP_NOT_FOUND, "text/plain", "/metrics or /metrics.json\n",
                 MHD_RESPMEM_PERSISTENT);
}

struct metrics *metrics_start(kiln_executor *executor, unsigned *port)
{
    const struct sockaddr_in address = local(*port);
    struct metrics *metrics = calloc(1, sizeof *metrics);
    if (!metrics)
        return NULL;
    metrics->executor = executor;
    metrics->daemon = MHD_start_daemon(
        MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, handle, metrics,
        MHD_OPTION_SOCK_ADDR, (const struct sockaddr *)&address, MHD_OPTION_CONNECTION_LIMIT, 16u,
        MHD_OPTION_CONNECTION_TIMEOUT, 10u, MHD_OPTION_END);
    if (!metrics->daemon) {
        free(metrics);
        return NULL;
    }
    *port = MHD_get_daemon_info(metrics->daemon, MHD_DAEMON_INFO_BIND_PORT)->port;
    return metrics;
}

void metrics_stop(struct metrics *metrics)
{
    if (metrics)
        MHD_stop_daemon(metrics->daemon);
    free(metrics);
}

#else

struct metrics *metrics_start(kiln_executor *executor, unsigned *port)
{
    (void)executor, (void)port;
    return NULL;
}

void metrics_stop(struct metrics *metrics)
{
    (void)metrics;
}

#endif
