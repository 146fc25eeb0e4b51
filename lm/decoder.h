/* SPDX-License-Identifier: Apache-2.0 */
/* A step of a decoder: the next tokens of some texts become logits. */
#ifndef KILN_LM_DECODER_H
#define KILN_LM_DECODER_H

#include "lm/caches.h"

/* What a step's runs read and write. Where there are several slots, lanes have one token each: such
 * a step is batch-invariant, and a lane's logits have the same bits whatever the others are. */
struct kiln__lm_step {
    const kiln_lm *lm;
    const struct kiln__lm_caches *caches;
    size_t lanes, rows;       /* texts, those of the first slots; tokens of each */
    const int32_t *tokens;    /* [lanes,rows] */
    const int32_t *positions; /* [slots] of a text's first token; -1: there is none, and nothing is
                                 put into the slot */
    const int32_t *last;      /* of several rows the one whose logits are wanted */
    float *logits;            /* [lanes,words] */
};

/* x times a matrix of all its parts [rows,matrix rows]. */
kiln_tensor kiln__lm_product(kiln_batch *batch, kiln_tensor x,
                             const struct kiln__lm_matrix *matrix);

/* A step's batch. Errors: those of the batch; *batch is NULL. */
kiln_status kiln__lm_record(const struct kiln__lm_step *step, kiln_batch **batch);

#endif
