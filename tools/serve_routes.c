/* SPDX-License-Identifier: Apache-2.0 */
/* What is at which path. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve.h"

static const char media_type[] = "application/json";

void serve_reply_problem(struct serve_reply *reply, const struct serve_problem *problem)
{
    reply->status = problem->status;
    reply->type = media_type;
    serve_text_json(&reply->text, serve_problem_json(problem));
}

/* ---- pages ---- */

static void health(struct server *server, struct serve_reply *reply)
{
    const bool draining = atomic_load(&server->draining);
    reply->status = draining ? 503 : 200;
    reply->type = media_type;
    kiln__text_add(&reply->text, "{\"status\":\"%s\"}", draining ? "draining" : "ready");
}

static void metrics(struct server *server, struct serve_reply *reply)
{
    reply->status = 200;
    reply->type = "text/plain; version=0.0.4; charset=utf-8";
    serve_metrics(server, &reply->text);
}

static json_t *model_json(const struct server *server, const struct served *model)
{
    return json_pack("{s:s, s:s, s:I, s:s}", "id", model->name, "object", "model", "created",
                     (json_int_t)server->began, "owned_by", "kiln");
}

static void models(struct server *server, struct serve_reply *reply)
{
    json_t *list = json_array();
    for (size_t i = 0; i < server->count; i++)
        json_array_append_new(list, model_json(server, &server->models[i]));
    reply->status = 200;
    reply->type = media_type;
    serve_text_json(&reply->text, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

/* ---- jobs ---- */

static void begin(struct server *server, serve_reader *reader, const struct kiln__text *body,
                  struct serve_reply *reply)
{
    struct serve_problem problem = {0};
    struct serve_form form;
    if (atomic_load(&server->draining)) {
        serve_refuse(&problem, 503, "draining", NULL, "this server is about to end");
        serve_reply_problem(reply, &problem);
        return;
    }
    if (serve_form_read(server, reader, body->data, body->length, &form, &problem))
        reply->job = serve_job_begin(&form, &problem);
    else
        serve_form_free(&form);
    if (!reply->job)
        serve_reply_problem(reply, &problem);
}

/* ---- all ---- */

static const struct route {
    const char *method, *path;
    void (*page)(struct server *server, struct serve_reply *reply); /* NULL: there is a body, */
    serve_reader *reader;                                           /* which this reads */
    bool is_open; /* to those without a token, too */
} routes[] = {
    {"GET", "/health", health, NULL, true},
    {"GET", "/metrics", metrics, NULL, false},
    {"GET", "/v1/models", models, NULL, false},
    {"POST", "/v1/completions", NULL, serve_read_completion, false},
    {"POST", "/v1/chat/completions", NULL, serve_read_chat, false},
#ifdef HAVE_ONNX
    {"POST", "/v1/embeddings", NULL, serve_read_vectors, false},
#endif
};

static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (!strcmp(path, routes[i].path))
            return &routes[i];
    return NULL;
}

/* In a time that tells nothing of the key but its length. */
static bool has_key(const char *key, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    if (!key)
        return true;
    if (!authorization || strncasecmp(authorization, scheme, sizeof scheme - 1) != 0)
        return false;
    const char *given = authorization + sizeof scheme - 1;
    if (strlen(given) != strlen(key))
        return false;
    unsigned differ = 0;
    for (; *key; key++, given++)
        differ |= (unsigned char)*key ^ (unsigned char)*given;
    return !differ;
}

/* HEAD is GET without the page, which libmicrohttpd leaves out. */
static bool takes(const struct route *route, const char *method)
{
    return !strcmp(method, route->method) ||
           (!strcmp(method, "HEAD") && !strcmp(route->method, "GET"));
}

bool serve_route_check(const struct server *server, const char *method, const char *path,
                       const char *authorization, struct serve_problem *problem)
{
    const struct route *route = find_route(path);
    if (!(route && route->is_open) && !has_key(server->api_key, authorization))
        return serve_refuse(problem, 401, "invalid_api_key", NULL,
                            "the header Authorization: Bearer KEY is missing, or has another key");
    if (!route)
        return serve_refuse(problem, 404, "unknown_url", NULL, "there is no %.20s %.200s", method,
                            path);
    if (takes(route, method))
        return true;
    serve_refuse(problem, 405, "method_not_allowed", NULL, "%s takes %s alone", path,
                 route->method);
    problem->allow = strcmp(route->method, "GET") ? route->method : "GET, HEAD";
    return false;
}

/* Only such bodies: a page in a browser may send others anywhere without asking. */
static bool is_json(const char *type)
{
    const size_t length = sizeof media_type - 1;
    return type && !strncasecmp(type, media_type, length) && strchr("; ", type[length]);
}

void serve_route(struct server *server, const char *path, const char *content_type,
                 const struct kiln__text *body, struct serve_reply *reply)
{
    const struct route *route = find_route(path);
    struct serve_problem problem;
    *reply = (struct serve_reply){0};
    if (route->page) {
        route->page(server, reply);
    } else if (body->length > server->most_body) {
        serve_refuse(&problem, 413, "body_too_large", NULL, "the body has more than %zu bytes",
                     server->most_body);
        serve_reply_problem(reply, &problem);
    } else if (!is_json(content_type)) {
        serve_refuse(&problem, 415, NULL, NULL, "the header Content-Type is not %s", media_type);
        serve_reply_problem(reply, &problem);
    } else {
        begin(server, route->reader, body, reply);
    }
}
