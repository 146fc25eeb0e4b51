/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and values of texts on the device, each in a slot, and the angles of positions. */
#ifndef KILN_LM_CACHES_H
#define KILN_LM_CACHES_H

#include "lm/model.h"

struct kiln__lm_caches {
    kiln_type type;
    size_t slots, context;                 /* texts, and the most tokens of each */
    kiln_buffer **keys, **values;          /* of each layer [pairs,slots,context,size]; of an ONNX
                                              file [slots,pairs,...] */
    kiln_buffer *cosine[KILN__LM_REACHES]; /* of each position [context,turned/2] */
    kiln_buffer *sine[KILN__LM_REACHES];
};

/* How many tokens a text has room for, and as what keys are stored, where nobody says. */
size_t kiln__lm_usual_context(const kiln_lm *lm);
kiln_type kiln__lm_usual_cache(const kiln_lm *lm);

/* Errors: INVALID_ARGUMENT, as `call`. */
kiln_status kiln__lm_check_caches(const char *call, kiln_type type, size_t context);

/* Of a layer's keys, or of its values. */
void kiln__lm_caches_get_dims(const kiln_lm *lm, const struct kiln__lm_caches *caches,
                              size_t dims[4]);

/* Of the keys and values of one slot. */
double kiln__lm_slot_bytes(const kiln_lm *lm, kiln_type type, size_t context);

/* Cosine and sine of each position's angles, [context,turned/2]; to be released also after an
 * error. Errors: those of buffers, as `call`. */
kiln_status kiln__lm_angles_make(const char *call, const kiln_lm *lm, size_t context,
                                 enum kiln__lm_reach reach, kiln_buffer **cosine,
                                 kiln_buffer **sine);

/* For `caches->slots` texts of `caches->context` tokens as `caches->type`; to be freed also after
 * an error. Errors: those of buffers, as `call`. */
kiln_status kiln__lm_caches_make(const char *call, const kiln_lm *lm,
                                 struct kiln__lm_caches *caches);
void kiln__lm_caches_free(const kiln_lm *lm, struct kiln__lm_caches *caches);

#endif
