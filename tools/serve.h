/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln serve`: HTTP (serve_http.c) brings bodies to routes (serve_routes.c), which read forms in
 * JSON (serve_forms.c) and make jobs of them. A model's thread (serve_jobs.c) has its batcher go
 * on, and writes answers (serve_answers.c) that connections wait for. */
#ifndef KILN_TOOLS_SERVE_H
#define KILN_TOOLS_SERVE_H

#include <jansson.h>
#include <kiln/kiln.h>
#include <kiln/lm.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
    SERVE_MOST_CHOICES = 64, /* of an answer */
    SERVE_MOST_STOPS = 16,
    SERVE_MOST_LOGPROBS = 20,  /* beside that of the token itself */
    SERVE_LONGEST_STOP = 1000, /* bytes: each token's text is compared with all beginnings of it */
};

/* Bytes that grow; after a lack of memory nothing is added any more. */
struct serve_text {
    char *bytes;
    size_t count, capacity;
    bool failed;
};

void serve_text_add(struct serve_text *text, const char *bytes, size_t count);
void serve_text_print(struct serve_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* An object, and its end; it is given back. */
void serve_text_json(struct serve_text *text, json_t *json);

/* ---- models ---- */

struct served {
    char *name;
    kiln_lm *lm;
    kiln_lm_info info;
    kiln_lm_batcher *batcher;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* of what follows, and of jobs */
    pthread_cond_t wake;
    struct serve_job *jobs; /* that have not ended */
    bool closed;            /* jobs that begin end at once, as cancelled */
    bool stops;
};

struct server {
    kiln_context *context;
    struct served *models;
    size_t count;
    const char *api_key; /* NULL: everybody may */
    size_t most_tokens;  /* of an answer; 0: what the context has room for */
    size_t most_body;    /* bytes */
    time_t began;
    atomic_bool draining;
    atomic_size_t open;               /* requests that have not been answered to the end */
    atomic_uint_least64_t answers[6]; /* by the first digit of the status */
};

/* Thread and lock of a model; false: none could be made. */
bool serve_jobs_start(struct served *model);

/* Waits for the thread; jobs that have not ended do so as cancelled, so that no connection waits.
 * Once. */
void serve_jobs_stop(struct served *model);

/* When no connection is left; stops it where nobody has. */
void serve_jobs_free(struct served *model);

/* End all jobs as cancelled, those too that begin from now on. */
void serve_jobs_cancel(struct served *model);

/* ---- what is wrong with a request ---- */

struct serve_problem {
    unsigned status;         /* of HTTP; 0: nothing is wrong */
    const char *type, *code; /* as OpenAI's; `code` may be NULL */
    const char *allow;       /* of 405: the methods that there are; else NULL */
    char param[32];          /* "": none */
    char message[1024];
};

/* Answers false. */
bool serve_refuse(struct serve_problem *problem, unsigned status, const char *code,
                  const char *param, const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The same of kiln's last sentence. */
bool serve_refuse_kiln(struct serve_problem *problem, kiln_status status);

/* {"error": {...}} */
json_t *serve_problem_json(const struct serve_problem *problem);

/* ---- forms ---- */

struct serve_prompt {
    int32_t *tokens;
    size_t count;
};

/* What a request asks for. */
struct serve_form {
    const struct server *server;
    struct served *model;
    bool chat, stream, usage; /* `usage`: a stream ends with it */
    struct serve_prompt prompts[SERVE_MOST_CHOICES];
    size_t prompt_count, each; /* choices for each prompt */
    kiln_lm_request_options options;
    char *stops[SERVE_MOST_STOPS];
    size_t stop_count;
};

/* False: *problem says why not; the form is to be freed even so. */
bool serve_form_read(const struct server *server, bool chat, const char *body, size_t bytes,
                     struct serve_form *form, struct serve_problem *problem);
void serve_form_free(struct serve_form *form);

/* ---- jobs ---- */

/* A token of an answer whose log-probabilities are asked for: its number, and where its text begins
 * in the answer's. */
struct serve_said {
    size_t number, begin;
};

/* One of the texts that are asked for. */
struct serve_choice {
    kiln_lm_request *request;
    size_t tokens;           /* of the answer, that were read */
    struct serve_text text;  /* theirs */
    size_t sent;             /* bytes of it that a stream has */
    const char *finish;      /* "stop", "length"; NULL: it goes on */
    struct serve_said *said; /* that have a text */
    size_t said_count, said_room, said_sent;
};

/* A request that texts are made for. Under its model's lock, once it has begun. */
struct serve_job {
    struct serve_form form;
    char id[40];
    time_t created;
    struct serve_choice choices[SERVE_MOST_CHOICES];
    size_t count;
    struct serve_problem problem; /* that ended it */
    struct serve_text out;        /* what the connection gets */
    size_t taken;                 /* bytes of it that it has */
    bool ended;
    bool gone;        /* the connection is broken */
    void *connection; /* that waits; NULL: none does */
    int descriptor;   /* its socket */
    struct serve_job *next;
};

/* Begin what a form asks for, which becomes the job's. NULL: *problem says why not. */
struct serve_job *serve_job_begin(struct serve_form *form, struct serve_problem *problem);

/* Whoever asked for it has gone, or has all of it. */
void serve_job_close(struct serve_job *job);

/* Its connection, which waits, goes on. */
void serve_http_resume(struct serve_job *job);

/* ---- answers; under the model's lock ---- */

/* New tokens of a choice as text, and its end. */
void serve_choice_read(struct serve_job *job, struct serve_choice *choice);

/* What a stream has not had yet. */
void serve_choice_send(struct serve_job *job, struct serve_choice *choice);

/* One more that was said; false: no memory. */
bool serve_said_add(struct serve_choice *choice, size_t number, size_t begin);

/* Log-probabilities of what begins before `end` in the answer's text, and has not been given; null
 * where none are asked for. */
json_t *serve_logprobs_json(const struct serve_job *job, struct serve_choice *choice, size_t end);

/* The whole answer, or a stream's end. */
void serve_job_finish(struct serve_job *job);

/* ---- routes ---- */

struct serve_reply {
    unsigned status;
    const char *type;
    struct serve_text text;
    struct serve_job *job; /* which makes the answer; NULL: the text is it */
};

/* What is wrong before there is a body: no such path, another method, the token. */
bool serve_route_check(const struct server *server, const char *method, const char *path,
                       const char *authorization, struct serve_problem *problem);

/* The answer to a whole request that was checked. */
void serve_route(struct server *server, const char *path, const char *content_type,
                 const struct serve_text *body, struct serve_reply *reply);

void serve_reply_problem(struct serve_reply *reply, const struct serve_problem *problem);

/* Prometheus' text. */
void serve_metrics(struct server *server, struct serve_text *text);

/* ---- HTTP ---- */

struct serve_http;

/* Listen at an address; *port 0 is any, which is left there. NULL: why not was printed. */
struct serve_http *serve_http_start(struct server *server, const char *host, unsigned *port,
                                    unsigned connections);
void serve_http_stop(struct serve_http *http);

#endif
