/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln serve`: HTTP (serve_http.c) brings bodies to routes (serve_routes.c), which read forms in
 * JSON (serve_read.c, serve_forms.c) and make jobs of them (serve_jobs.c). A model's thread writes
 * answers that connections wait for: a language model's (serve_language.c) has its batcher go on
 * and writes texts (serve_answers.c), an encoder's (serve_encoder.c) vectors that its executor
 * made. */
#ifndef KILN_TOOLS_SERVE_H
#define KILN_TOOLS_SERVE_H

#include <jansson.h>
#include <kiln/kiln.h>
#include <kiln/lm.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "util/text.h"

enum {
    SERVE_MOST_CHOICES = 64, /* of an answer */
    SERVE_MOST_STOPS = 16,
    SERVE_MOST_LOGPROBS = 20,  /* beside that of the token itself */
    SERVE_LONGEST_STOP = 1000, /* bytes: each token's text is compared with all beginnings of it */
};

/* A value of JSON, which is given back. */
void serve_text_json(struct kiln__text *text, json_t *json);

/* ---- models ---- */

struct serve_job;
struct serve_problem;

struct served {
    char *name;
    const struct serve_kind *kind;
    kiln_lm *lm; /* a language model's, as the batcher */
    kiln_lm_batcher *batcher;
    struct serve_encoder *encoder; /* an encoder's */
    pthread_t thread;
    bool has_thread;
    sem_t wake;             /* the thread has something to look at */
    pthread_mutex_t lock;   /* of what follows, and of jobs */
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

/* What a model does with jobs. */
struct serve_kind {
    const char *what, *paths;   /* in sentences: what it is, and where it answers */
    void *(*work)(void *model); /* its thread, until it `stops`: has jobs go on, and ends them */

    /* Have what a job asks for begin. False: *problem says why not, and nothing has begun. */
    bool (*submit)(struct serve_job *job, struct serve_problem *problem);
    void (*cancel)(struct serve_job *job); /* under the lock: it may end early */
    void (*write)(struct serve_job *job);  /* the whole answer, or a stream's end */
    void (*free)(struct serve_job *job);   /* what belongs to it, which may be waited for */
    kiln_status (*stats)(struct served *model, kiln_lm_batcher_stats *stats);
    void (*close)(struct served *model);
};
extern const struct serve_kind serve_language, serve_encoding;

struct serve_encoder_options {
    size_t most_tokens; /* of a text; 0: as the encoder has it */
    size_t most_texts;  /* that wait; 0: as many as a request may have */
    kiln_type weights;
    bool is_cpu;
};

/* An encoder in a folder or an ONNX file; in a GGUF file, if the model has its lm already. False:
 * said. */
bool serve_encoder_open(struct served *model, kiln_context *context, const char *path,
                        const struct serve_encoder_options *options);

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

struct serve_vectors; /* serve_encoder.h */

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
    struct serve_vectors *vectors; /* that are asked for; NULL: texts are */
};

/* A form in the making. */
struct serve_reading {
    struct serve_form *form;
    json_t *body;
    struct serve_problem *problem;
};

/* What is asked for at a path. */
typedef bool serve_reader(struct serve_reading *r);
serve_reader serve_read_completion, serve_read_chat, serve_read_vectors;

/* False: *problem says why not; the form is to be freed even so. */
bool serve_form_read(const struct server *server, serve_reader *reader, const char *body,
                     size_t bytes, struct serve_form *form, struct serve_problem *problem);
void serve_form_free(struct serve_form *form);
void serve_vectors_free(struct serve_vectors *vectors);

/* Parts of readers. A member that is absent or null is none, and leaves *value as it is, but for
 * a truth value, which is false then. */
bool serve_refuse_param(struct serve_reading *r, const char *param, const char *what);
json_t *serve_member(struct serve_reading *r, const char *name);
bool serve_read_bool(struct serve_reading *r, const char *name, bool *value);
bool serve_read_whole(struct serve_reading *r, const char *name, json_int_t least, json_int_t most,
                      json_int_t *value);
bool serve_read_number(struct serve_reading *r, const char *name, double most, double *value);

/* The model that is named; where none is, the only one of this kind. */
bool serve_read_model(struct serve_reading *r, const struct serve_kind *kind);

/* ---- jobs ---- */

/* A token of an answer whose log-probabilities are asked for: its number, and where its text begins
 * in the answer's, in bytes and in characters. */
struct serve_said {
    size_t number, begin, character;
};

/* One of the texts that are asked for. */
struct serve_choice {
    kiln_lm_request *request;
    size_t tokens;           /* of the answer, that were read */
    struct kiln__text text;  /* theirs */
    size_t sent;             /* bytes of it that a stream has */
    const char *finish;      /* "stop", "length"; NULL: it goes on */
    struct serve_said *said; /* that have a text */
    size_t said_count, said_room, said_sent;
};

/* A request that texts or vectors are made for. Under its model's lock, once it has begun. */
struct serve_job {
    struct serve_form form;
    char id[40];
    time_t created;
    struct serve_choice choices[SERVE_MOST_CHOICES];
    size_t count;
    struct serve_problem problem; /* that ended it */
    struct kiln__text out;        /* what the connection gets */
    size_t taken;                 /* bytes of it that it has */
    bool ended;
    bool gone;        /* the connection is broken */
    bool is_left;     /* nobody has it any more: its model's thread frees it */
    void *connection; /* that waits; NULL: none does */
    int descriptor;   /* its socket */
    struct serve_job *next;
};

/* Begin what a form asks for, which becomes the job's. NULL: *problem says why not. */
struct serve_job *serve_job_begin(struct serve_form *form, struct serve_problem *problem);

/* Whoever asked for it has gone, or has all of it. */
void serve_job_close(struct serve_job *job);

/* For a model's thread, under the lock: whether the connection that waits is broken; the end of a
 * job that is no longer among its model's, whose answer is written; a job's memory. */
bool serve_job_has_gone(const struct serve_job *job);
void serve_job_end(struct serve_job *job);
void serve_job_free(struct serve_job *job);
enum { SERVE_WATCH_MS = 50 }; /* between looks at connections that wait */

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
void serve_texts_write(struct serve_job *job);

/* ---- routes ---- */

struct serve_reply {
    unsigned status;
    const char *type;
    struct kiln__text text;
    struct serve_job *job; /* which makes the answer; NULL: the text is it */
};

/* What is wrong before there is a body: no such path, another method, the token. */
bool serve_route_check(const struct server *server, const char *method, const char *path,
                       const char *authorization, struct serve_problem *problem);

/* The answer to a whole request that was checked. */
void serve_route(struct server *server, const char *path, const char *content_type,
                 const struct kiln__text *body, struct serve_reply *reply);

void serve_reply_problem(struct serve_reply *reply, const struct serve_problem *problem);

/* Prometheus' text. */
void serve_metrics(struct server *server, struct kiln__text *text);

/* ---- HTTP ---- */

struct serve_http;

/* Listen at an address; *port 0 is any, which is left there. NULL: why not was printed. */
struct serve_http *serve_http_start(struct server *server, const char *host, unsigned *port,
                                    unsigned connections);
void serve_http_stop(struct serve_http *http);

#endif
