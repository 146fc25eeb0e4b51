/* SPDX-License-Identifier: Apache-2.0 */
/* A file's tokenizer: special tokens are found first, what is between them is merged. */
#include "lm/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "lm/error.h"
#include "lm/unigram_gguf.h"

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
        if ((token->kind == KILN__TOKEN_CONTROL || token->kind == KILN__TOKEN_USER) &&
            token->length == strlen(texts[i]) && !memcmp(token->bytes, texts[i], token->length))
            return true;
    return false;
}

kiln_status kiln__tokenizer_make_ends(struct kiln__tokenizer *tokenizer)
{
    struct kiln__vocabulary *vocabulary = &tokenizer->vocabulary;
    tokenizer->ends = calloc(vocabulary->count, sizeof *tokenizer->ends);
    if (!tokenizer->ends)
        return kiln__lm_no_memory("kiln_lm_load");
    for (size_t i = 0; i < vocabulary->count; i++) {
        tokenizer->ends[i] = is_known_end(&vocabulary->tokens[i]);
        if (tokenizer->ends[i]) /* some files say that a user may write it */
            vocabulary->tokens[i].kind = KILN__TOKEN_CONTROL;
    }
    tokenizer->end = -1;
    return KILN_OK;
}

static kiln_status read_ends(const struct kiln__gguf *gguf, struct kiln__tokenizer *tokenizer)
{
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    const struct kiln__vocabulary *vocabulary = &tokenizer->vocabulary;
    kiln_status status = kiln__tokenizer_make_ends(tokenizer);
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
    const struct kiln__split_rule *rule = tokenizer->bpe.rule;
    kiln_status status = read_number(gguf, "tokenizer.ggml.bos_token_id",
                                     tokenizer->vocabulary.count, &tokenizer->begin);
    tokenizer->adds_begin = !rule || (rule->wide && rule->most_digits == 3);
    if (!status)
        status = kiln__gguf_bool(gguf, "tokenizer.ggml.add_bos_token", &tokenizer->adds_begin);
    if (tokenizer->begin < 0)
        tokenizer->adds_begin = false;
    return status ? status : read_ends(gguf, tokenizer);
}

/* The token of one of two keys, or the piece that is written so; -1: none. */
static kiln_status read_around(const struct kiln__gguf *gguf,
                               const struct kiln__tokenizer *tokenizer, const char *const keys[2],
                               const char *usual, int32_t *token)
{
    kiln_status status = KILN_OK;
    *token = -1;
    for (int i = 0; i < 2 && !status && *token < 0; i++)
        status = read_number(gguf, keys[i], tokenizer->vocabulary.count, token);
    const json_t *number =
        tokenizer->words ? json_object_get(tokenizer->words->vocabulary, usual) : NULL;
    if (!status && *token < 0 && number)
        *token = (int32_t)json_integer_value(number);
    return status;
}

/* An encoder's texts stand between two tokens; what a mask is, if there is one. */
static kiln_status read_both_ends(const struct kiln__gguf *gguf, struct kiln__tokenizer *tokenizer)
{
    static const char *const begins[] = {"tokenizer.ggml.cls_token_id",
                                         "tokenizer.ggml.bos_token_id"},
                             *const ends[] = {"tokenizer.ggml.seperator_token_id",
                                              "tokenizer.ggml.eos_token_id"};
    kiln_status status = read_around(gguf, tokenizer, begins, "[CLS]", &tokenizer->begin);
    if (!status)
        status = read_around(gguf, tokenizer, ends, "[SEP]", &tokenizer->end);
    if (!status && (tokenizer->begin < 0 || tokenizer->end < 0))
        status =
            kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s: no token is for a text's %s",
                          gguf->path, tokenizer->begin < 0 ? "beginning" : "end");
    if (!status)
        status = read_number(gguf, "tokenizer.ggml.mask_token_id", tokenizer->vocabulary.count,
                             &tokenizer->mask);
    const int32_t end = tokenizer->end;
    if (!status)
        status = kiln__tokenizer_make_ends(tokenizer);
    tokenizer->end = end;
    tokenizer->adds_begin = true;
    return status;
}

/* ---- models ---- */

static kiln_status read_bytes(const struct kiln__gguf *gguf, struct kiln__tokenizer *tokenizer)
{
    return kiln__bpe_read(gguf, &tokenizer->vocabulary, &tokenizer->bpe);
}

static kiln_status read_scored(const struct kiln__gguf *gguf, struct kiln__tokenizer *tokenizer)
{
    return kiln__bpe_read_scores(gguf, &tokenizer->vocabulary, &tokenizer->bpe);
}

static kiln_status read_words(const struct kiln__gguf *gguf, struct kiln__tokenizer *tokenizer)
{
    return kiln__wordpiece_read_gguf(gguf, &tokenizer->vocabulary, &tokenizer->words);
}

static kiln_status read_pieces(const struct kiln__gguf *gguf, struct kiln__tokenizer *tokenizer)
{
    return kiln__unigram_read_gguf(gguf, &tokenizer->pieces);
}

/* tokenizer.ggml.model, and whose texts it is known to cut. */
static const struct row {
    const char *name;
    bool decoders, encoders;
    enum kiln__spelling spelling;
    kiln_status (*read)(const struct kiln__gguf *gguf, struct kiln__tokenizer *tokenizer);
} models[] = {
    {"gpt2", true, true, KILN__BYTE_LEVEL, read_bytes},
    {"llama", true, false, KILN__SPACED, read_scored},
    {"bert", false, true, KILN__SPACED, read_words},
    {"t5", false, true, KILN__SPACED, read_pieces},
};

static kiln_status find_model(const struct kiln__gguf *gguf, const struct row **found)
{
    struct kiln__gguf_text model = {"none", 4};
    const kiln_status status = kiln__gguf_string(gguf, "tokenizer.ggml.model", &model);
    size_t row = 0;
    while (row < sizeof models / sizeof *models && !kiln__gguf_text_is(model, models[row].name))
        row++;
    *found = &models[row];
    if (status || row < sizeof models / sizeof *models)
        return status;
    return kiln__lm_fail(KILN_UNSUPPORTED,
                         "kiln_lm_load: %s: the tokenizer is \"%.*s\"; kiln knows gpt2 "
                         "(byte-level BPE), llama (SentencePiece's BPE), bert (WordPiece) and t5 "
                         "(SentencePiece's unigram model)",
                         gguf->path, KILN__GGUF_SAID(model));
}

kiln_status kiln__tokenizer_read(const struct kiln__gguf *gguf, bool encodes,
                                 struct kiln__tokenizer *tokenizer)
{
    const struct row *row;
    kiln_status status = find_model(gguf, &row);
    tokenizer->encodes = encodes;
    if (!status && !(encodes ? row->encoders : row->decoders))
        status = kiln__lm_fail(KILN_UNSUPPORTED,
                               "kiln_lm_load: %s: the tokenizer is \"%s\", and kiln knows %s",
                               gguf->path, row->name,
                               encodes ? "gpt2, bert and t5 of encoders"
                                       : "gpt2 and llama of models whose texts go on");
    if (!status)
        status = kiln__vocabulary_read(gguf, row->spelling, &tokenizer->vocabulary);
    if (!status)
        status = row->read(gguf, tokenizer);
    if (status)
        return status;
    return encodes ? read_both_ends(gguf, tokenizer) : read_special(gguf, tokenizer);
}

void kiln__tokenizer_free(struct kiln__tokenizer *tokenizer)
{
    kiln__subwords_close(tokenizer->subwords);
    kiln__wordpiece_close(tokenizer->words);
    kiln__subwords_close(tokenizer->pieces);
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
    const size_t *from = &vocabulary->special_from[(unsigned char)*text];
    if (from[0] == from[1])
        return -1;
    const char *given = reading->given ? memchr(reading->given + at, 1, rest) : NULL;
    const size_t own = given ? (size_t)(given - reading->given) - at : rest;
    const int32_t special =
        reading->control && own ? kiln__vocabulary_special(vocabulary, text, own, true) : -1;
    return special < 0 ? kiln__vocabulary_special(vocabulary, text, rest, false) : special;
}

/* What stands before a special token, or before the end. A text begins where nothing comes before
 * it, or the token that a text begins with. */
static bool encode_part(const struct kiln__tokenizer *tokenizer, const char *text, size_t bytes,
                        bool *begins, struct kiln__tokens *tokens)
{
    const bool leads = *begins;
    *begins = false;
    const struct kiln__reading part = {text, bytes, false, NULL};
    if (tokenizer->words)
        return kiln__wordpiece_encode(tokenizer->words, text, bytes, SIZE_MAX, tokens);
    if (tokenizer->pieces)
        return kiln__subwords_encode(tokenizer->pieces, &part, SIZE_MAX, tokens);
    return kiln__bpe_encode(&tokenizer->bpe, text, bytes, leads, tokens);
}

/* Before a mask RoBERTa has no white space; others have none anyway. */
static bool takes_white(const struct kiln__tokenizer *tokenizer, int32_t special)
{
    return tokenizer->encodes && special == tokenizer->mask;
}

bool kiln__tokenizer_encode(const struct kiln__tokenizer *tokenizer,
                            const struct kiln__reading *reading, struct kiln__tokens *tokens)
{
    const struct kiln__vocabulary *vocabulary = &tokenizer->vocabulary;
    const char *text = reading->text;
    size_t from = 0;
    bool fine = true, begins = true;
    if (tokenizer->subwords)
        return kiln__subwords_encode(tokenizer->subwords, reading, SIZE_MAX, tokens);
    for (size_t at = 0; at < reading->bytes && fine;) {
        const int32_t special = find_special(vocabulary, reading, at);
        if (special < 0) {
            at++;
            continue;
        }
        const struct kiln__token *token = &vocabulary->tokens[special];
        const size_t end =
            takes_white(tokenizer, special) ? kiln__subwords_white(text, at, from) : at;
        if (end > from || token->kind == KILN__TOKEN_USER)
            fine = encode_part(tokenizer, text + from, end - from, &begins, tokens);
        fine = fine && kiln__tokens_add(tokens, special);
        begins = special == tokenizer->begin;
        from = at += token->length;
    }
    if (fine && reading->bytes > from)
        fine = encode_part(tokenizer, text + from, reading->bytes - from, &begins, tokens);
    return fine;
}
