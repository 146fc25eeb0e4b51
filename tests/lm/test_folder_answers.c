/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of each architecture beside transformers in float64. */
#include "folder_answers.h"

TestSuite(folder_answers, .init = open_device, .fini = close_device);

Test(folder_answers, answers)
{
#define FOLDER(name, tokenizer, words, start, text, logits)                                        \
    check_answer(name, tokenizer, words, start, text, logits);
#include "folders.def"
}

/* In f32 all are the same numbers; in bf16 those that are stored so already. */
static void check_weights(kiln_type weights, const char *name, const char *tokenizer, size_t start,
                          const int32_t *text, const double *logits, double most)
{
    const struct hub hub = hub_make(name, tokenizer);
    kiln_lm *lm = load_hub(&hub, weights);
    kiln_lm_session *session;
    kiln_lm_session_options options = KILN_LM_SESSION_OPTIONS_INIT;
    options.cache = KILN_F32;
    expect_ok(kiln_lm_session_create(lm, &options, &session));
    expect_ok(kiln_lm_feed(session, text, start));
    check_logits(lm, session, logits, most);
    kiln_lm_session_release(session);
    kiln_lm_release(lm);
    hub_remove(&hub);
}

Test(folder_answers, types_of_weights)
{
#undef FOLDER
#define FOLDER(name, tokenizer, words, start, text, logits)                                        \
    if (strcmp(name, "mistral") != 0)                                                              \
        check_weights(KILN_F32, name, tokenizer, start, text, logits, 2e-4);                       \
    else                                                                                           \
        check_weights(KILN_BF16, name, tokenizer, start, text, logits, 1);
#include "folders.def"
}
