/* SPDX-License-Identifier: Apache-2.0 */
/* Tiny models of Gemma 3, Phi 3 and Mistral beside numpy in float64, past the window of their
 * layers. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../support/device.h"
#include "../support/file.h"
#include "answers.h"
#include "tiny.h"

TestSuite(architectures, .init = open_device, .fini = close_device);

static kiln_lm *load(const char *name)
{
    kiln_lm *lm;
    expect_ok(kiln_lm_load(context, model_path(name), NULL, &lm));
    return lm;
}

/* ---- numbers ---- */

static void check_answer(const char *name, const char *prompt, size_t start, const int32_t *text,
                         const double *logits)
{
    kiln_lm *lm = load(name);
    check_text(lm, name, prompt, start, text, logits);
    kiln_lm_release(lm);
}

Test(architectures, answers)
{
#define ANSWER(name, prompt, start, text, logits) check_answer(name, prompt, start, text, logits);
#include "architectures.def"
}

/* A prompt in pieces, each of a chunk's size or filled up to one, has the logits of the whole. */
static void check_pieces(const char *name, size_t start, const int32_t *text, const double *logits)
{
    static const size_t sizes[] = {1, 2, 3, 13, 40};
    kiln_lm *lm = load(name);
    kiln_lm_session *session;
    expect_ok(kiln_lm_session_create(lm, NULL, &session));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        expect_ok(kiln_lm_session_truncate(session, 0));
        for (size_t at = 0; at < start; at += sizes[i])
            expect_ok(
                kiln_lm_feed(session, text + at, sizes[i] < start - at ? sizes[i] : start - at));
        check_logits(lm, session, logits, 2e-4);
    }
    kiln_lm_session_release(session);
    kiln_lm_release(lm);
}

Test(architectures, pieces)
{
#define ANSWER(name, prompt, start, text, logits) check_pieces(name, start, text, logits);
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
    if (*(name) != 'p')                                                                            \
        check_company(name, start, text);
#include "architectures.def"
}

/* The key that says the window, under another name: a file that does not say it. */
static void put_unsaid(char path[512])
{
    size_t count;
    uint8_t *bytes = model_bytes("mistral.gguf", &count);
    bytes[place_of(bytes, count, "sliding_window", 14)] = 'g';
    temporary_path(path, "unsaid.gguf");
    put_file(path, bytes, count);
    free(bytes);
}

/* Without it another model; said with an option, the one that it is. */
static void check_unsaid(size_t start, const int32_t *text, const double *logits)
{
    char path[512];
    kiln_lm_options options = KILN_LM_OPTIONS_INIT;
    put_unsaid(path);
    for (int i = 0; i < 2; i++) {
        kiln_lm *lm;
        kiln_lm_session *session;
        options.window = i ? 7 : 0;
        expect_ok(kiln_lm_load(context, path, &options, &lm));
        expect_ok(kiln_lm_session_create(lm, NULL, &session));
        expect_ok(kiln_lm_feed(session, text, start));
        if (i)
            check_logits(lm, session, logits, 2e-4);
        else
            cr_expect_gt(difference(lm, session, logits), 1);
        kiln_lm_session_release(session);
        kiln_lm_release(lm);
    }
    unlink(path);
}

Test(architectures, unsaid_window)
{
#define ANSWER(name, prompt, start, text, logits)                                                  \
    if (*(name) == 'm')                                                                            \
        check_unsaid(start, text, logits);
#include "architectures.def"
    kiln_lm *lm;
    kiln_lm_options options = KILN_LM_OPTIONS_INIT;
    options.window = 7;
    expect_error_part(kiln_lm_load(context, model_path("gemma3.gguf"), &options, &lm),
                      KILN_UNSUPPORTED, "options->window is 7, which layers of gemma3 have not");
    options.window = SIZE_MAX;
    expect_error_part(kiln_lm_load(context, model_path("tiny.gguf"), &options, &lm),
                      KILN_UNSUPPORTED, "which layers of llama have not");
}
