/* SPDX-License-Identifier: Apache-2.0 */
/* Tiny models of Gemma 3 and Phi 3 beside numpy in float64, past the window of their layers. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../support/context.h"
#include "tiny.h"
#include <kiln/lm.h>

#define TOKENS(...) ((const int32_t[]){__VA_ARGS__})
#define REALS(...) ((const double[]){__VA_ARGS__})

enum { ANSWER_COUNT = 12, LOGITS = 64, MOST_WORDS = 1024 };

static kiln_context *context;

static void open_device(void)
{
    context = open_context();
}

static void close_device(void)
{
    close_context(context);
}

TestSuite(architectures, .init = open_device, .fini = close_device);

static kiln_lm *load(const char *name)
{
    kiln_lm *lm;
    expect_ok(kiln_lm_load(context, model_path(name), NULL, &lm));
    return lm;
}

/* ---- numbers ---- */

static void check_logits(kiln_lm_session *session, size_t words, const double *wanted)
{
    float logits[MOST_WORDS];
    double worst = 0;
    cr_assert(words <= MOST_WORDS);
    expect_ok(kiln_lm_logits(session, logits, words));
    for (size_t i = 0; i < LOGITS; i++)
        worst = fmax(worst, fabs((double)logits[i] - wanted[i]));
    cr_expect_lt(worst, 2e-4, "off by %g", worst);
}

static void check_answer(const char *name, const char *prompt, size_t start, const int32_t *text,
                         const double *logits)
{
    kiln_lm *lm = load(name);
    kiln_lm_session *session;
    kiln_lm_info info;
    int32_t *tokens, token;
    size_t count;
    expect_ok(kiln_lm_get_info(lm, &info));
    expect_ok(kiln_lm_session_create(lm, NULL, &session));
    expect_ok(kiln_lm_tokenize(lm, prompt, strlen(prompt), KILN_LM_BEGIN, &tokens, &count));
    cr_assert_eq(count, start);
    cr_expect_arr_eq(tokens, text, start * sizeof *text);
    kiln_free(tokens);
    expect_ok(kiln_lm_feed(session, text, start));
    check_logits(session, info.vocabulary, logits);
    for (size_t i = 0; i < ANSWER_COUNT; i++) {
        expect_ok(kiln_lm_next(session, &token));
        cr_assert_eq(token, text[start + i], "%s: token %zu is %d, not %d", name, i, (int)token,
                     (int)text[start + i]);
    }
    kiln_lm_session_release(session);
    kiln_lm_release(lm);
}

Test(architectures, answers)
{
#define ANSWER(name, prompt, start, text, logits) check_answer(name, prompt, start, text, logits);
#include "architectures.def"
}

/* Two texts at once have the same tokens as one. */
static void check_company(const char *name, size_t start, const int32_t *text)
{
    kiln_lm *lm = load(name);
    kiln_lm_batcher *batcher;
    kiln_lm_request *requests[2];
    kiln_lm_batcher_options options = KILN_LM_BATCHER_OPTIONS_INIT;
    kiln_lm_request_options request = KILN_LM_REQUEST_OPTIONS_INIT;
    kiln_status status = KILN_OK;
    options.slots = 2;
    request.max_tokens = ANSWER_COUNT;
    expect_ok(kiln_lm_batcher_create(lm, &options, &batcher));
    for (int i = 0; i < 2; i++)
        expect_ok(kiln_lm_batcher_submit(batcher, text, start, &request, &requests[i]));
    while (!status)
        status = kiln_lm_batcher_step(batcher);
    cr_expect_eq(status, KILN_NOT_READY);
    for (int i = 0; i < 2; i++) {
        int32_t found[ANSWER_COUNT];
        expect_ok(kiln_lm_request_poll(requests[i]));
        cr_assert_eq(kiln_lm_request_read(requests[i], 0, found, ANSWER_COUNT), ANSWER_COUNT);
        cr_expect_arr_eq(found, text + start, sizeof found);
        kiln_lm_request_release(requests[i]);
    }
    kiln_lm_batcher_release(batcher);
    kiln_lm_release(lm);
}

Test(architectures, company)
{
#define ANSWER(name, prompt, start, text, logits)                                                  \
    if (*(name) == 'g')                                                                            \
        check_company(name, start, text);
#include "architectures.def"
}
