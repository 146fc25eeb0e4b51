/* SPDX-License-Identifier: Apache-2.0 */
/* Folders' answers beside those of transformers in float64: make_folders.py writes folders.def. */
#pragma once

#include "../support/device.h"
#include "answers.h"
#include "hub.h"

static const char prompt[] = "The sun is out, they're going to 1984";

static kiln_lm *load_hub(const struct hub *hub, kiln_type weights)
{
    kiln_lm_options options = KILN_LM_OPTIONS_INIT;
    kiln_lm *lm;
    options.weights = weights;
    expect_ok(kiln_lm_load(context, hub->path, &options, &lm));
    return lm;
}

static void check_answer(const char *name, const char *tokenizer, size_t words, size_t start,
                         const int32_t *text, const double *logits)
{
    const struct hub hub = hub_make(name, tokenizer);
    kiln_lm *lm = load_hub(&hub, (kiln_type)0);
    kiln_lm_info info;
    expect_ok(kiln_lm_get_info(lm, &info));
    cr_expect_str_eq(info.architecture, name);
    cr_expect_eq(info.vocabulary, words);
    check_text(lm, name, prompt, start, text, logits);
    kiln_lm_release(lm);
    hub_remove(&hub);
}
