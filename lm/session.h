/* SPDX-License-Identifier: Apache-2.0 */
/* A text in the making: its tokens, the keys and values of those that the model has seen. */
#ifndef KILN_LM_SESSION_H
#define KILN_LM_SESSION_H

#include "lm/model.h"
#include "lm/sample.h"

enum {
    KILN__LM_STEPS = 5,       /* sizes of steps */
    KILN__LM_MOST_ROWS = 512, /* tokens of the largest */
};

struct kiln_lm_session {
    kiln_lm *lm;
    size_t context;
    kiln_type cache;
    struct kiln__sampling sampling;
    uint64_t seed;
    int32_t *text;       /* `context` tokens, of which */
    size_t length, seen; /* there are so many, and the model has seen so many */
    bool has_logits;     /* of what may follow the first `seen` */
    float *logits;
    struct kiln__candidate *choices;
    kiln_buffer **keys, **values;      /* of each layer [pairs,1,context,size] */
    kiln_buffer *cosine, *sine;        /* of each position [context,turned/2] */
    kiln_batch *steps[KILN__LM_STEPS]; /* of each size, at any position; NULL: not yet recorded */
    int32_t rows[KILN__LM_MOST_ROWS];  /* what a run reads: tokens, */
    int32_t position, last;            /* the first one's place, which one's logits are wanted */
};

/* A step's batch, recorded: it reads the session's rows, position and last, puts keys and values
 * into the caches, and writes logits. Errors: those of the batch; *batch is NULL. */
kiln_status kiln__lm_record(kiln_lm_session *session, size_t rows, kiln_batch **batch);

#endif
