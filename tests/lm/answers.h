/* SPDX-License-Identifier: Apache-2.0 */
/* A model's tokens and logits beside what a table of known answers says. */
#pragma once

#include <criterion/criterion.h>
#include <kiln/lm.h>
#include <math.h>
#include <string.h>

#include "../support/context.h"

#define TOKENS(...) ((const int32_t[]){__VA_ARGS__})
#define REALS(...) ((const double[]){__VA_ARGS__})

enum { ANSWER_COUNT = 12, LOGITS = 64, MOST_WORDS = 1024 };

/* The largest difference of the logits behind the session's text. */
static double difference(const kiln_lm *lm, kiln_lm_session *session, const double *wanted)
{
    float logits[MOST_WORDS];
    double worst = 0;
    kiln_lm_info info;
    expect_ok(kiln_lm_get_info(lm, &info));
    cr_assert(info.vocabulary <= MOST_WORDS);
    expect_ok(kiln_lm_logits(session, logits, info.vocabulary));
    for (size_t i = 0; i < LOGITS; i++)
        worst = fmax(worst, fabs((double)logits[i] - wanted[i]));
    return worst;
}

static void check_logits(const kiln_lm *lm, kiln_lm_session *session, const double *wanted,
                         double most)
{
    const double worst = difference(lm, session, wanted);
    cr_expect_lt(worst, most, "off by %g", worst);
}

/* `text` is the prompt's `start` tokens and the greedy answer behind them. */
static void check_text(kiln_lm *lm, const char *name, const char *prompt, size_t start,
                       const int32_t *text, const double *logits)
{
    kiln_lm_session *session;
    int32_t *tokens, token;
    size_t count;
    expect_ok(kiln_lm_session_create(lm, NULL, &session));
    expect_ok(kiln_lm_tokenize(lm, prompt, strlen(prompt), KILN_LM_BEGIN, &tokens, &count));
    cr_assert_eq(count, start, "%s: %zu tokens", name, count);
    cr_expect_arr_eq(tokens, text, start * sizeof *text);
    kiln_free(tokens);
    expect_ok(kiln_lm_feed(session, text, start));
    check_logits(lm, session, logits, 2e-4);
    for (size_t i = 0; i < ANSWER_COUNT; i++) {
        expect_ok(kiln_lm_next(session, &token));
        cr_assert_eq(token, text[start + i], "%s: token %zu is %d, not %d", name, i, (int)token,
                     (int)text[start + i]);
    }
    kiln_lm_session_release(session);
}
