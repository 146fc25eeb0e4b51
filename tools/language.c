/* SPDX-License-Identifier: Apache-2.0 */
/* A language model and its session from a command line. */
#define _GNU_SOURCE
#include "language.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "util/format.h"

double language_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

bool language_complain(const char *command)
{
    fprintf(stderr, "%s: %s\n", command, kiln_last_error());
    return false;
}

void language_begin(struct language_request *request, size_t most)
{
    *request = (struct language_request){.most = most};
    kiln_lm_session_options_init(&request->session);
}

bool language_open(const char *command, const struct language_request *request,
                   struct language *language)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_lm_options lm_options;
    const double began = language_now();
    kiln_lm_options_init(&lm_options);
    options.device = request->device;
    options.precision = request->precision.products;
    lm_options.weights = request->precision.weights;
    lm_options.window = request->window;
    *language = (struct language){0};
    if (kiln_context_create(&options, &language->context) ||
        kiln_lm_load(language->context, request->model, &lm_options, &language->lm) ||
        kiln_lm_session_create(language->lm, &request->session, &language->session))
        return language_complain(command);
    language->load = language_now() - began;
    return true;
}

/* "FOLDER/NAME" as JSON; NULL: it is none. */
static json_t *read_in(const char *folder, const char *name)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return NULL;
    json_t *root = json_load_file(path, 0, NULL);
    free(path);
    return root;
}

bool language_is_folder(const char *path)
{
    static const char *const ends[] = {"ForCausalLM", "ForConditionalGeneration"};
    json_t *genai = read_in(path, "genai_config.json"), *config = read_in(path, "config.json");
    bool is = genai != NULL;
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(config, "architectures"), i, one)
    {
        const size_t length = json_string_length(one);
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++)
            is |= length >= strlen(ends[k]) &&
                  !strcmp(json_string_value(one) + length - strlen(ends[k]), ends[k]);
    }
    json_decref(genai);
    json_decref(config);
    return is;
}

void language_close(struct language *language)
{
    kiln_lm_session_release(language->session);
    kiln_lm_release(language->lm);
    kiln_context_release(language->context);
}

/* ---- JSON ---- */

json_t *language_json_text(const char *text, size_t bytes)
{
    json_t *whole = json_stringn(text, bytes);
    if (whole)
        return whole;
    char *clean = malloc(3 * bytes + 1);
    size_t count = 0;
    for (size_t at = 0; clean && at < bytes;) {
        size_t length = 4 < bytes - at ? 4 : bytes - at;
        json_t *one = NULL;
        for (; length && !(one = json_stringn(text + at, length)); length--)
            ;
        json_decref(one);
        memcpy(clean + count, length ? text + at : "\xef\xbf\xbd", length ? length : 3);
        count += length ? length : 3;
        at += length ? length : 1;
    }
    whole = clean ? json_stringn(clean, count) : NULL;
    free(clean);
    return whole;
}

/* ---- arguments ---- */

enum { TOP_K = 256, TOP_P, MIN_P, CONTEXT, WINDOW };

static const struct argp_option options[] = {
    {"max-tokens", 'n', "TOKENS", 0, "Most tokens of an answer", 0},
    {"temperature", 'T', "NUMBER", 0,
     "Draw tokens: 1 as probable as they are, below that the "
     "more probable ones more often; 0, the usual: the most "
     "probable one",
     0},
    {"top-k", TOP_K, "TOKENS", 0, "Of so many most probable tokens", 0},
    {"top-p", TOP_P, "SHARE", 0, "Of the most probable tokens that make up this probability", 0},
    {"min-p", MIN_P, "SHARE", 0, "Of tokens this times as probable as the most probable one", 0},
    {"seed", 's', "NUMBER", 0, "What is drawn depends on it; 0", 0},
    {"context", CONTEXT, "TOKENS", 0, "Most tokens of the text", 0},
    {"window", WINDOW, "TOKENS", 0, LANGUAGE_WINDOW_HELP, 0},
    {"precision", 't', PRECISION_WORDS, 0, PRECISION_HELP, 0},
    {"device", 'd', "CHOICE", 0, "This device: number, type, or part of a name", 0},
    {0},
};

uint64_t language_read_whole(const char *text, uint64_t least, uint64_t most,
                             struct argp_state *state)
{
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (end == text || *end || strchr(text, '-') || errno || number < least || number > most)
        argp_error(state, "\"%s\" is no whole number from %llu to %llu", text,
                   (unsigned long long)least, (unsigned long long)most);
    return number;
}

static double read_real(const char *text, double most, struct argp_state *state)
{
    char *end;
    const double number = kiln__parse_double(text, &end);
    if (end == text || *end || !(number >= 0 && number <= most))
        argp_error(state, "\"%s\" is no number from 0 to %g", text, most);
    return number;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    enum { MOST_TOKENS = 1 << 24 };
    struct language_request *request = state->input;
    kiln_lm_session_options *session = &request->session;
    switch (key) {
    case 'n': request->most = (size_t)language_read_whole(arg, 0, MOST_TOKENS, state); return 0;
    case 'T': session->temperature = read_real(arg, 1000, state); return 0;
    case TOP_K: session->top_k = (size_t)language_read_whole(arg, 0, MOST_TOKENS, state); return 0;
    case TOP_P: session->top_p = read_real(arg, 1, state); return 0;
    case MIN_P: session->min_p = read_real(arg, 1, state); return 0;
    case 's': session->seed = language_read_whole(arg, 0, INT64_MAX, state); return 0;
    case CONTEXT:
        session->context = (size_t)language_read_whole(arg, 1, MOST_TOKENS, state);
        return 0;
    case WINDOW:
        request->window = (size_t)language_read_whole(arg, 1, MOST_TOKENS, state);
        return 0;
    case 't': request->precision = precision_read(arg, state); return 0;
    case 'd': request->device = arg; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

const struct argp language_argp = {.options = options, .parser = parse};
