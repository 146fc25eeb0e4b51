/* SPDX-License-Identifier: Apache-2.0 */
/* A folder's tokenizer: tokenizer.json, and which tokens begin and end a text. */
#include <stdlib.h>
#include <string.h>

#include "lm/error.h"
#include "lm/folder.h"

static const char file[] = "tokenizer.json";

/* ---- tokens as texts ---- */

static bool is_added(const struct kiln__subwords *subwords, size_t words, size_t i)
{
    return (size_t)subwords->list.added[i].id < words;
}

/* Some tokenizers have tokens that their models have not, such as one for pictures: no text has
 * them. */
static void leave_out(struct kiln__subwords *subwords, size_t words)
{
    struct kiln__subwords_list *list = &subwords->list;
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (is_added(subwords, words, i))
            list->added[kept++] = list->added[i];
        else
            free(list->added[i].text);
    list->count = kept;
}

static bool is_byte(const struct kiln__subwords *subwords, int32_t token)
{
    const int32_t *bytes = subwords->is_unigram ? subwords->unigram.bytes : subwords->bpe.bytes;
    for (int i = 0; i < 256; i++)
        if (bytes[i] == token)
            return true;
    return false;
}

/* What each token stands for; those that the tokenizer lacks are unused. */
static kiln_status make_vocabulary(struct kiln__tokenizer *tokenizer, size_t words)
{
    const struct kiln__subwords *subwords = tokenizer->subwords;
    struct kiln__vocabulary *vocabulary = &tokenizer->vocabulary;
    const size_t own = subwords->vocabulary.count;
    size_t bytes = 1;
    for (size_t i = 0; i < own; i++)
        bytes += subwords->vocabulary.tokens[i].length;
    for (size_t i = 0; i < subwords->list.count; i++)
        bytes += subwords->list.added[i].length;
    char *storage = vocabulary->storage = malloc(bytes);
    vocabulary->tokens = calloc(words, sizeof *vocabulary->tokens);
    if (!storage || !vocabulary->tokens)
        return kiln__lm_no_memory("kiln_lm_load");
    vocabulary->count = words;
    for (size_t i = 0; i < words; i++) {
        const size_t length = i < own ? kiln__subwords_write(subwords, (int32_t)i, storage) : 0;
        vocabulary->tokens[i] = (struct kiln__token){
            storage, length, i < own ? KILN__TOKEN_NORMAL : KILN__TOKEN_UNUSED};
        storage += length;
    }
    for (size_t i = 0; i < subwords->list.count; i++) {
        const struct kiln__subwords_added *added = &subwords->list.added[i];
        if (is_byte(subwords, added->id)) /* such as <0x0A>, which some files list as well */
            continue;
        memcpy(storage, added->text, added->length);
        vocabulary->tokens[added->id] = (struct kiln__token){
            storage, added->length, added->is_special ? KILN__TOKEN_CONTROL : KILN__TOKEN_USER};
        storage += added->length;
    }
    return KILN_OK;
}

static kiln_status read_subwords(const struct kiln__lm_folder *folder, const json_t *root,
                                 struct kiln__tokenizer_facts *facts,
                                 struct kiln__tokenizer *tokenizer)
{
    char error[KILN__TOKENIZER_ERROR] = "";
    const struct kiln__tokenizer_json reading = {file, root, error, facts};
    if (kiln__tokenizer_read_around(&reading))
        tokenizer->subwords = kiln__subwords_read(&reading);
    return tokenizer->subwords
               ? KILN_OK
               : kiln__lm_fail(KILN_UNSUPPORTED, "kiln_lm_load: %s/%s", folder->path, error);
}

/* ---- beginnings and ends ---- */

/* -1: there is none. */
static int32_t find_token(const struct kiln__vocabulary *vocabulary, const char *text)
{
    const size_t length = text ? strlen(text) : 0;
    for (size_t i = 0; length && i < vocabulary->count; i++)
        if (vocabulary->tokens[i].length == length &&
            !memcmp(vocabulary->tokens[i].bytes, text, length))
            return (int32_t)i;
    return -1;
}

/* A token by its text, which is a setting: itself, or an object's content. */
static int32_t named_token(const struct kiln__lm_folder *folder, const struct kiln__tokenizer *to,
                           const char *key)
{
    const json_t *token = json_object_get(folder->tokenizer, key);
    const json_t *content = json_object_get(token, "content");
    return find_token(&to->vocabulary, json_string_value(content ? content : token));
}

/* Numbers under a key: one, or a list. */
static kiln_status read_ends(const struct kiln__lm_folder *folder, const char *settings,
                             const json_t *object, struct kiln__tokenizer *to)
{
    json_t *ends = json_object_get(object, "eos_token_id");
    const size_t count = json_is_array(ends) ? json_array_size(ends) : ends && !json_is_null(ends);
    for (size_t i = 0; i < count; i++) {
        const json_t *end = json_is_array(ends) ? json_array_get(ends, i) : ends;
        const json_int_t number = json_integer_value(end);
        if (!json_is_integer(end) || number < 0 || (uint64_t)number >= to->vocabulary.count)
            return kiln__lm_folder_fail(folder, KILN_INVALID_ARGUMENT, settings,
                                        "eos_token_id is no token, or no list of such");
        to->ends[number] = true;
        to->end = to->end < 0 ? (int32_t)number : to->end;
    }
    return KILN_OK;
}

static kiln_status find_ends(const struct kiln__lm_folder *folder, struct kiln__tokenizer *to)
{
    kiln_status status = kiln__tokenizer_make_ends(to);
    to->end = named_token(folder, to, "eos_token");
    if (!status && to->end >= 0)
        to->ends[to->end] = true;
    if (!status)
        status = read_ends(folder, "generation_config.json", folder->generation, to);
    if (!status)
        status = read_ends(folder, "config.json", folder->config, to);
    if (!status)
        status =
            read_ends(folder, "genai_config.json", json_object_get(folder->genai, "model"), to);
    return status || folder->decoder == folder->config
               ? status
               : read_ends(folder, "config.json", folder->decoder, to);
}

static kiln_status find_begin(const struct kiln__lm_folder *folder,
                              const struct kiln__tokenizer_around *around,
                              struct kiln__tokenizer *to)
{
    to->adds_begin = around->before_count > 0;
    to->begin = to->adds_begin ? around->before[0] : named_token(folder, to, "bos_token");
    if (around->before_count > 1)
        return kiln__lm_folder_fail(folder, KILN_UNSUPPORTED, file,
                                    "a text begins with %zu tokens; kiln knows one",
                                    around->before_count);
    return to->begin < 0 || (size_t)to->begin < to->vocabulary.count
               ? KILN_OK
               : kiln__lm_folder_fail(folder, KILN_INVALID_ARGUMENT, file,
                                      "a text begins with token %d of %zu", (int)to->begin,
                                      to->vocabulary.count);
}

kiln_status kiln__lm_folder_tokenizer(struct kiln__lm_folder *folder, kiln_lm *lm)
{
    struct kiln__tokenizer *to = &lm->tokenizer;
    struct kiln__tokenizer_facts facts = {0};
    const size_t words = lm->shape.words;
    json_t *root;
    kiln_status status = kiln__lm_folder_json(folder, file, &root);
    if (!status && !root)
        status = kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s: the folder has no %s",
                               folder->path, file);
    if (!status)
        status = read_subwords(folder, root, &facts, to);
    json_decref(root);
    if (!status && to->subwords->vocabulary.count > words)
        status = kiln__lm_folder_fail(folder, KILN_INVALID_ARGUMENT, file,
                                      "it has %zu tokens, and the model %zu",
                                      to->subwords->vocabulary.count, words);
    if (status)
        return status;
    leave_out(to->subwords, words);
    status = make_vocabulary(to, words);
    if (!status)
        status = find_ends(folder, to);
    return status ? status : find_begin(folder, &facts.around, to);
}
