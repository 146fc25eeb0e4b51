/* SPDX-License-Identifier: Apache-2.0 */
/* A text in the making: its tokens, the keys and values of those that the model has seen. */
#ifndef KILN_LM_SESSION_H
#define KILN_LM_SESSION_H

#include "lm/decoder.h"
#include "lm/sample.h"

enum {
    KILN__LM_STEPS = 5,       /* sizes of steps */
    KILN__LM_MOST_ROWS = 512, /* tokens of the largest */
};

struct kiln_lm_session {
    kiln_lm *lm;
    size_t context;
    size_t most_rows;              /* of a step */
    bool by_rows;                  /* the device takes its time for each row of a step */
    struct kiln__lm_caches caches; /* of one slot */
    struct kiln__sampling sampling;
    uint64_t seed;
    int32_t *text;       /* `context` tokens, of which */
    size_t length, seen; /* there are so many, and the model has seen so many */
    bool has_logits;     /* of what may follow the first `seen` */
    float *logits;
    struct kiln__candidate *choices;
    kiln_batch *steps[KILN__LM_STEPS]; /* of each size, at any position; NULL: not yet recorded */
    int32_t rows[KILN__LM_MOST_ROWS];  /* what a run reads: tokens, */
    int32_t position, last;            /* the first one's place, which one's logits are wanted */
};

/* Errors: INVALID_ARGUMENT, as `call`. */
kiln_status kiln__lm_check_sampling(const char *call, double temperature, double top_p,
                                    double min_p);

/* Compile a batch and run it once, on what operands hold: where kernels are compiled when they are
 * first enqueued (PoCL) and no process can do it apart, only a run does it. Errors: those of
 * kiln_batch_prepare() and kiln_batch_execute(). */
kiln_status kiln__lm_session_try(kiln_batch *batch);

/* Record and try all steps; nothing has been fed. Errors: as kiln__lm_session_try(). */
kiln_status kiln__lm_session_prepare(kiln_lm_session *session);

/* The model sees the next tokens of the text's first `length`, as many as one run takes. Errors:
 * those of kiln_batch_execute(). */
kiln_status kiln__lm_session_step(kiln_lm_session *session, size_t length);

#endif
