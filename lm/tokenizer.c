/* SPDX-License-Identifier: Apache-2.0 */
/* A file's tokenizer: special tokens are found first, what is between them is merged. */
#include "lm/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "lm/error.h"

/* ---- from the file ---- */

static kiln_status read_number(const struct kiln__gguf *gguf, const char *name, size_t count,
                               int32_t *token)
{
    uint64_t number = UINT64_MAX;
    kiln_status status = kiln__gguf_whole(gguf, name, count - 1, &number);
    *token = number == UINT64_MAX ? -1 : (int32_t)number;
    return status;
}

/* What families of models end an answer with, whichever of them the file calls its end. */
static bool is_known_end(const struct kiln__token *token)
{
    static const char *const texts[] = {"<|im_end|>",    "<|endoftext|>",   "<|eot_id|>", "<|end|>",
                                        "<end_of_turn>", "<|end_of_text|>", "<|eom_id|>"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (token->kind == KILN__TOKEN_CONTROL && token->length == strlen(texts[i]) &&
            !memcmp(token->bytes, texts[i], token->length))
            return true;
    return false;
}

static kiln_status read_ends(const struct kiln__gguf *gguf, struct kiln__tokenizer *tokenizer)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const struct kiln__vocabulary *vocabulary = &tokenizer->vocabulary;
    kiln_status status = KILN_OK;
    tokenizer->ends = calloc(vocabulary->count, sizeof *tokenizer->ends);
    if (!tokenizer->ends)
        return kiln__lm_no_memory("kiln_lm_load");
    for (size_t i = 0; i < vocabulary->count; i++)
        tokenizer->ends[i] = is_known_end(&vocabulary->tokens[i]);
    tokenizer->end = -1;
    for (size_t i = sizeof keys / sizeof *keys;
         i-- > 0 && !status;) { /* the first one counts most */
        int32_t end;
        status = read_number(gguf, keys[i], vocabulary->count, &end);
        if (status || end < 0)
            continue;
        tokenizer->ends[end] = true;
        tokenizer->end = end;
    }
    return status;
}

static kiln_status read_special(const struct kiln__gguf *gguf, struct kiln__tokenizer *tokenizer)
{
    kiln_status status = read_number(gguf, "tokenizer.ggml.bos_token_id",
                                     tokenizer->vocabulary.count, &tokenizer->begin);
    tokenizer->adds_begin = tokenizer->bpe.rule->wide && tokenizer->bpe.rule->most_digits == 3;
    if (!status)
        status = kiln__gguf_bool(gguf, "tokenizer.ggml.add_bos_token", &tokenizer->adds_begin);
    if (tokenizer->begin < 0)
        tokenizer->adds_begin = false;
    return status ? status : read_ends(gguf, tokenizer);
}

kiln_status kiln__tokenizer_read(const struct kiln__gguf *gguf, struct kiln__tokenizer *tokenizer)
{
    struct kiln__gguf_text model = {"none", 4};
    kiln_status status = kiln__gguf_string(gguf, "tokenizer.ggml.model", &model);
    if (!status && !kiln__gguf_text_is(model, "gpt2"))
        status = kiln__lm_fail(KILN_UNSUPPORTED,
                               "kiln_lm_load: %s: the tokenizer is \"%.*s\"; kiln knows gpt2 "
                               "(byte-level BPE)",
                               gguf->path, KILN__GGUF_SAID(model));
    if (!status)
        status = kiln__vocabulary_read(gguf, true, &tokenizer->vocabulary);
    if (!status)
        status = kiln__bpe_read(gguf, &tokenizer->vocabulary, &tokenizer->bpe);
    return status ? status : read_special(gguf, tokenizer);
}

void kiln__tokenizer_free(struct kiln__tokenizer *tokenizer)
{
    kiln__bpe_free(&tokenizer->bpe);
    kiln__vocabulary_free(&tokenizer->vocabulary);
    free(tokenizer->ends);
}

/* ---- texts ---- */

/* The special token at a place; -1: there is none. A control token has no given bytes. */
static int32_t find_special(const struct kiln__vocabulary *vocabulary,
                            const struct kiln__reading *reading, size_t at)
{
    const char *text = reading->text + at;
    const size_t rest = reading->bytes - at;
    if (!vocabulary->special_begins[(unsigned char)*text])
        return -1;
    const char *given = reading->given ? memchr(reading->given + at, 1, rest) : NULL;
    const size_t own = given ? (size_t)(given - reading->given) - at : rest;
    const int32_t special =
        reading->control && own ? kiln__vocabulary_special(vocabulary, text, own, true) : -1;
    return special < 0 ? kiln__vocabulary_special(vocabulary, text, rest, false) : special;
}

bool kiln__tokenizer_encode(const struct kiln__tokenizer *tokenizer,
                            const struct kiln__reading *reading, struct kiln__tokens *tokens)
{
    const struct kiln__vocabulary *vocabulary = &tokenizer->vocabulary;
    const char *text = reading->text;
    size_t from = 0;
    for (size_t at = 0; at < reading->bytes;) {
        const int32_t special = find_special(vocabulary, reading, at);
        if (special < 0) {
            at++;
            continue;
        }
        if (!kiln__bpe_encode(&tokenizer->bpe, text + from, at - from, tokens) ||
            !kiln__tokens_add(tokens, special))
            return false;
        from = at += vocabulary->tokens[special].length;
    }
    return kiln__bpe_encode(&tokenizer->bpe, text + from, reading->bytes - from, tokens);
}
