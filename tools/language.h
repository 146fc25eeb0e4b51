/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands that run language models have in common: a model with a session, and the
 * options that say how a text goes on. */
#pragma once

#include <argp.h>
#include <jansson.h>
#include <kiln/kiln.h>
#include <kiln/lm.h>
#include <stdbool.h>

#include "precision.h"

struct language_request {
    const char *model, *device;
    struct precision precision;
    size_t window; /* of a file that does not say it; 0: as it says */
    kiln_lm_session_options session;
    size_t most; /* tokens of an answer */
};

struct language {
    kiln_context *context;
    kiln_lm *lm;
    kiln_lm_session *session;
    double load; /* seconds */
};

/* Options that both commands have, as a child of theirs; its input is a language_request. */
extern const struct argp language_argp;
#define LANGUAGE_WINDOW_HELP                                                                       \
    "Tokens before it that a token sees, where the file should say so and does not: 4096 of "      \
    "Mistral 7B v0.1"

/* With every default. */
void language_begin(struct language_request *request, size_t most);

/* False: said, as `command`. To be closed then, too. */
bool language_open(const char *command, const struct language_request *request,
                   struct language *language);
/* Whether a folder has a language model, as its configuration says: models to generate texts are
 * called "...ForCausalLM" or "...ForConditionalGeneration"; in onnxruntime-genai's form they have a
 * file of their own. */
bool language_is_folder(const char *path);
void language_close(struct language *language);

/* False, and kiln's last sentence on standard error. */
bool language_complain(const char *command);

double language_now(void); /* seconds */

/* Of an argument; another one is a wrong usage. */
uint64_t language_read_whole(const char *text, uint64_t least, uint64_t most,
                             struct argp_state *state);

/* A text as JSON has it: what is no UTF-8, as half a character at the end, becomes U+FFFD. NULL: no
 * memory. */
json_t *language_json_text(const char *text, size_t bytes);
