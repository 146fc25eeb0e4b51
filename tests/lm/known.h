/* SPDX-License-Identifier: Apache-2.0 */
/* What numpy in float64 makes of a prompt with the tiny model: tests/lm/make.py writes known.def.
 */
#pragma once

#include <stdint.h>

#define TOKENS(...)                                                                                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define REALS(...)                                                                                 \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static const int32_t prompt[] =
#define PROMPT(count, tokens) tokens
#include "known.def"
    ;
static const double logits_known[] =
#define LOGITS(values) values
#include "known.def"
    ;
static const int32_t answer[] =
#define ANSWER(count, tokens) tokens
#include "known.def"
    ;

enum {
    PROMPT_COUNT = sizeof prompt / sizeof *prompt - 1, /* -1 ends both */
    ANSWER_COUNT = sizeof answer / sizeof *answer - 1,
    WORDS = sizeof logits_known / sizeof *logits_known
};
