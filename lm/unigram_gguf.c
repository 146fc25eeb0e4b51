/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's unigram model from a GGUF file's metadata, with the stages before it that XLM-R's
 * and T5's tokenizers have: a table of characters, and words that begin with U+2581. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lm/error.h"
#include "lm/subwords.h"
#include "lm/unigram_gguf.h"

/* It stays when the file is gone. */
static kiln_status read_charsmap(const struct kiln__gguf *gguf,
                                 struct kiln__subwords_normalizer *normalizer)
{
    static const char name[] = "tokenizer.ggml.precompiled_charsmap";
    const struct kiln__gguf_key *key = kiln__gguf_key(gguf, name);
    if (!key)
        return KILN_OK;
    if (!key->is_array || (key->type != KILN__GGUF_U8 && key->type != KILN__GGUF_I8))
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s: key \"%s\" has no bytes",
                             gguf->path, name);
    struct kiln__subwords_step *step = &normalizer->steps[normalizer->count++];
    step->kind = KILN__SUBWORDS_CHARSMAP;
    step->data = malloc(key->count + 1);
    if (!step->data)
        return kiln__lm_no_memory("kiln_lm_load");
    memcpy(step->data, key->values, key->count);
    return kiln__charsmap_read(step->data, key->count, &step->map)
               ? KILN_OK
               : kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s: key \"%s\" is damaged",
                               gguf->path, name);
}

static kiln_status read_scores(const struct kiln__gguf *gguf, struct kiln__unigram *unigram)
{
    static const char name[] = "tokenizer.ggml.scores";
    const struct kiln__gguf_key *key;
    const size_t count = unigram->vocabulary->count;
    const kiln_status status = kiln__gguf_array(gguf, name, KILN__GGUF_F32, &key);
    if (status)
        return status;
    if (key->count != count)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "kiln_lm_load: %s: key \"%s\" has %zu elements for %zu tokens",
                             gguf->path, name, key->count, count);
    unigram->scores = calloc(count, sizeof *unigram->scores);
    if (!unigram->scores)
        return kiln__lm_no_memory("kiln_lm_load");
    for (size_t i = 0; i < count; i++) {
        unigram->scores[i] = (double)kiln__gguf_f32_at(key, i);
        if (!isfinite(unigram->scores[i]))
            return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                                 "kiln_lm_load: %s: the score of token %zu is no number",
                                 gguf->path, i);
    }
    return KILN_OK;
}

static kiln_status read_unknown(const struct kiln__gguf *gguf, struct kiln__unigram *unigram)
{
    uint64_t unknown = UINT64_MAX;
    const kiln_status status = kiln__gguf_whole(gguf, "tokenizer.ggml.unknown_token_id",
                                                unigram->vocabulary->count - 1, &unknown);
    unigram->unknown = (int32_t)unknown;
    return status || unknown != UINT64_MAX
               ? status
               : kiln__lm_fail(KILN_INVALID_ARGUMENT,
                               "kiln_lm_load: %s: no token is for characters that have none",
                               gguf->path);
}

static kiln_status read_all(const struct kiln__gguf *gguf, struct kiln__subwords *subwords)
{
    struct kiln__unigram *unigram = &subwords->unigram;
    bool leads = true, cuts = true;
    kiln_status status = kiln__vocabulary_read(gguf, KILN__AS_WRITTEN, &subwords->vocabulary);
    unigram->vocabulary = &subwords->vocabulary;
    memset(unigram->bytes, -1, sizeof unigram->bytes);
    if (!status)
        status = read_charsmap(gguf, &subwords->normalizer);
    if (!status)
        status = kiln__gguf_bool(gguf, "tokenizer.ggml.add_space_prefix", &leads);
    if (!status)
        status = kiln__gguf_bool(gguf, "tokenizer.ggml.remove_extra_whitespaces", &cuts);
    if (!status)
        status = read_unknown(gguf, unigram);
    if (!status)
        status = read_scores(gguf, unigram);
    if (status)
        return status;
    subwords->is_unigram = subwords->is_spaced = true;
    memcpy(subwords->space, "\342\226\201", 4);
    subwords->begins = leads || cuts ? KILN__SUBWORDS_ALWAYS : KILN__SUBWORDS_NEVER;
    subwords->cuts_white = cuts;
    kiln__unigram_begin(unigram);
    return KILN_OK;
}

kiln_status kiln__unigram_read_gguf(const struct kiln__gguf *gguf, struct kiln__subwords **subwords)
{
    *subwords = calloc(1, sizeof **subwords);
    if (!*subwords)
        return kiln__lm_no_memory("kiln_lm_load");
    atomic_init(&(*subwords)->holders, 1);
    return read_all(gguf, *subwords);
}
