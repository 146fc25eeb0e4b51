/* SPDX-License-Identifier: Apache-2.0 */
/* Language models in ONNX files, in onnxruntime-genai's form: a folder with genai_config.json, the
 * file that this names, and tokenizer.json. Without libkiln-onnx they are refused in words. */
#ifndef KILN_LM_GENAI_H
#define KILN_LM_GENAI_H

#include "lm/decoder.h"
#include "lm/folder.h"

struct kiln__lm_genai;

#ifdef HAVE_ONNX
/* The model itself, lm->shape and lm->architecture. Errors: as kiln_lm_load(). */
kiln_status kiln__lm_genai_load(const struct kiln__lm_folder *folder, kiln_lm *lm);
void kiln__lm_genai_free(struct kiln__lm_genai *genai);

/* What its caches are stored as. */
kiln_type kiln__lm_genai_cache(const struct kiln__lm_genai *genai);

/* A step. Errors: those of kiln_model_record() and of the batch. */
kiln_status kiln__lm_genai_record(const struct kiln__lm_step *step, kiln_batch *batch);
#else
static inline kiln_status kiln__lm_genai_load(const struct kiln__lm_folder *folder, kiln_lm *lm)
{
    (void)lm;
    return kiln__lm_folder_fail(folder, KILN_UNSUPPORTED, "genai_config.json",
                                "this libkiln-lm was built without libkiln-onnx");
}

static inline void kiln__lm_genai_free(struct kiln__lm_genai *genai)
{
    (void)genai;
}

static inline kiln_type kiln__lm_genai_cache(const struct kiln__lm_genai *genai)
{
    (void)genai;
    return KILN_F32;
}

static inline kiln_status kiln__lm_genai_record(const struct kiln__lm_step *step, kiln_batch *batch)
{
    (void)step, (void)batch;
    return KILN_UNSUPPORTED;
}
#endif

#endif
