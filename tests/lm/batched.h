/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of the tiny model in a batcher: what its tests share. */
#pragma once

#include <criterion/criterion.h>

#include "../support/context.h"
#include "known.h"
#include "lm/batcher.h"
#include "tiny.h"
#include "tiny_model.h"

enum { MOST = 400 }; /* tokens of a text */

static inline kiln_lm_batcher *open_batcher(size_t slots)
{
    kiln_lm_batcher_options options = KILN_LM_BATCHER_OPTIONS_INIT;
    kiln_lm_batcher *batcher;
    options.slots = slots;
    options.context = MOST;
    expect_ok(kiln_lm_batcher_create(lm, &options, &batcher));
    return batcher;
}

static inline kiln_lm_request *submit(kiln_lm_batcher *batcher, const int32_t *tokens, size_t count,
                                      size_t max_tokens)
{
    kiln_lm_request_options options = KILN_LM_REQUEST_OPTIONS_INIT;
    kiln_lm_request *request;
    options.max_tokens = max_tokens;
    expect_ok(kiln_lm_batcher_submit(batcher, tokens, count, &options, &request));
    return request;
}

static inline kiln_lm_batcher_stats stats_now(kiln_lm_batcher *batcher)
{
    kiln_lm_batcher_stats stats;
    expect_ok(kiln_lm_batcher_get_stats(batcher, &stats));
    return stats;
}

/* Until there is nothing to do. */
static inline void run_all(kiln_lm_batcher *batcher)
{
    kiln_status status;
    while (!(status = kiln_lm_batcher_step(batcher)))
        ;
    cr_assert_eq(status, KILN_NOT_READY, "%s", kiln_last_error());
}

/* Some text of its own for each number, without tokens that end one. */
static inline void make_text(int32_t *tokens, size_t count, unsigned number)
{
    uint32_t state = number + 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223;
        tokens[i] = 3 + (int32_t)((state >> 8) % (WORDS - 3));
    }
}

static inline void expect_answer(kiln_lm_request *request, const int32_t *wanted, size_t count)
{
    int32_t tokens[MOST];
    expect_ok(kiln_lm_request_poll(request));
    cr_assert_eq(kiln_lm_request_read(request, 0, tokens, MOST), count);
    cr_expect_arr_eq(tokens, wanted, count * sizeof *tokens);
}
