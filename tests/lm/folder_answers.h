/* SPDX-License-Identifier: Apache-2.0 */
/* Folders' answers beside those of transformers in float64: make_folders.py writes folders.def. */
#pragma once

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../support/context.h"
#include "hub.h"

#define TOKENS(...) ((const int32_t[]){__VA_ARGS__})
#define REALS(...) ((const double[]){__VA_ARGS__})

enum { ANSWER_COUNT = 12, LOGITS = 64, MOST_WORDS = 512 };

static const char prompt[] = "The sun is out, they're going to 1984";

static kiln_lm *load_hub(kiln_context *context, const struct hub *hub, kiln_type weights)
{
    kiln_lm_options options = KILN_LM_OPTIONS_INIT;
    kiln_lm *lm;
    options.weights = weights;
    expect_ok(kiln_lm_load(context, hub->path, &options, &lm));
    return lm;
}

static void check_logits(kiln_lm_session *session, size_t words, const double *wanted, double most)
{
    float logits[MOST_WORDS];
    double worst = 0;
    cr_assert(words <= MOST_WORDS);
    expect_ok(kiln_lm_logits(session, logits, words));
    for (size_t i = 0; i < LOGITS; i++)
        worst = fmax(worst, fabs((double)logits[i] - wanted[i]));
    cr_expect_lt(worst, most, "off by %g", worst);
}

static void check_answer(kiln_context *context, const char *name, const char *tokenizer,
                         size_t words, size_t start, const int32_t *text, const double *logits)
{
    const struct hub hub = hub_make(name, tokenizer);
    kiln_lm *lm = load_hub(context, &hub, (kiln_type)0);
    kiln_lm_session *session;
    kiln_lm_info info;
    int32_t *tokens, token;
    size_t count;
    expect_ok(kiln_lm_get_info(lm, &info));
    cr_expect_str_eq(info.architecture, name);
    cr_expect_eq(info.vocabulary, words);
    expect_ok(kiln_lm_session_create(lm, NULL, &session));
    expect_ok(kiln_lm_tokenize(lm, prompt, strlen(prompt), KILN_LM_BEGIN, &tokens, &count));
    cr_assert_eq(count, start, "%s: %zu tokens", name, count);
    cr_expect_arr_eq(tokens, text, start * sizeof *text);
    kiln_free(tokens);
    expect_ok(kiln_lm_feed(session, text, start));
    check_logits(session, words, logits, 2e-4);
    for (size_t i = 0; i < ANSWER_COUNT; i++) {
        expect_ok(kiln_lm_next(session, &token));
        cr_assert_eq(token, text[start + i], "%s: token %zu is %d, not %d", name, i, (int)token,
                     (int)text[start + i]);
    }
    kiln_lm_session_release(session);
    kiln_lm_release(lm);
    hub_remove(&hub);
}
