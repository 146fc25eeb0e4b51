/* SPDX-License-Identifier: Apache-2.0 */
/* A model from its file, what it says of itself, and its end. */
#include "lm/model.h"

#include <stdlib.h>
#include <string.h>

#include "lm/error.h"
#include "lm/folder.h"
#include "lm/genai.h"
#include "lm/gguf_files.h"
#include "lm/structure.h"

void(kiln_lm_options_init)(kiln_lm_options *options, size_t size)
{
    static const kiln_lm_options own = KILN_LM_OPTIONS_INIT;
    kiln__lm_options_fill(options, size, &own, sizeof own);
}

/* ---- loading ---- */

static kiln_status copy_text(const struct kiln__gguf *gguf, const char *key, char **text)
{
    struct kiln__gguf_text value = {"", 0};
    kiln_status status = kiln__gguf_string(gguf, key, &value);
    if (status)
        return status;
    *text = strndup(value.bytes, value.length);
    return *text ? KILN_OK : kiln__lm_no_memory("kiln_lm_load");
}

static kiln_status read_model(const struct kiln__gguf *gguf, kiln_lm *lm)
{
    kiln_status status = copy_text(gguf, "general.name", &lm->name);
    if (!status)
        status = copy_text(gguf, "general.architecture", &lm->architecture);
    if (!status)
        status = copy_text(gguf, "tokenizer.chat_template", &lm->template);
    if (!status)
        status = kiln__lm_shape_read(gguf, &lm->shape);
    if (!status)
        status = kiln__tokenizer_read(gguf, lm->shape.architecture->encodes, &lm->tokenizer);
    lm->shape.words = lm->tokenizer.vocabulary.count;
    return status ? status : kiln__lm_weights_read(gguf, lm);
}

static kiln_status read_file(const char *path, kiln_lm *lm)
{
    struct kiln__gguf_files files;
    kiln_status status = kiln__gguf_open(path, &files);
    if (status)
        return status;
    status = read_model(&files.gguf, lm);
    kiln__gguf_close(&files);
    return status;
}

static kiln_status load(kiln_context *context, const char *path, const kiln_lm_options *options,
                        kiln_lm **result)
{
    kiln_lm *lm = calloc(1, sizeof *lm);
    if (!lm)
        return kiln__lm_no_memory("kiln_lm_load");
    atomic_init(&lm->references, 1);
    kiln_context_retain(context);
    lm->context = context;
    lm->stored = options->weights;
    kiln_status status = (kiln__lm_folder_is(path) ? kiln__lm_folder_load : read_file)(path, lm);
    if (!status && options->window)
        status = kiln__lm_set_window(path, options->window, &lm->shape);
    if (status)
        kiln_lm_release(lm);
    else
        *result = lm;
    return status;
}

static kiln_status check_arguments(kiln_context *context, const char *path,
                                   const kiln_lm_options *options, kiln_lm_options *own)
{
    if (!context || !path)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s is NULL",
                             context ? "path" : "context");
    kiln_status status =
        kiln__lm_read_options("kiln_lm_load", "KILN_LM_OPTIONS_INIT", options, own, sizeof *own);
    if (status)
        return status;
    if (own->weights && own->weights != KILN_F32 && own->weights != KILN_F16 &&
        own->weights != KILN_BF16 && !kiln__lm_is_block_type(own->weights))
        return kiln__lm_fail(
            KILN_INVALID_ARGUMENT,
            "kiln_lm_load: options->weights is %s, and can be f32, f16, bf16, q8_0 "
            "or q4_0",
            kiln_type_name(own->weights));
    return KILN_OK;
}

kiln_status kiln_lm_load(kiln_context *context, const char *path, const kiln_lm_options *options,
                         kiln_lm **lm)
{
    kiln_lm_options own = KILN_LM_OPTIONS_INIT;
    if (!lm)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: lm is NULL");
    *lm = NULL;
    kiln_status status = check_arguments(context, path, options, &own);
    return status ? status : load(context, path, &own, lm);
}

void kiln_lm_release(kiln_lm *lm)
{
    if (!lm || atomic_fetch_sub(&lm->references, 1) != 1)
        return;
    kiln__lm_weights_free(lm);
    kiln__lm_genai_free(lm->genai);
    kiln__tokenizer_free(&lm->tokenizer);
    free(lm->name);
    free(lm->architecture);
    free(lm->template);
    kiln_context_release(lm->context);
    free(lm);
}

kiln_status(kiln_lm_get_info)(const kiln_lm *lm, kiln_lm_info *info, size_t size)
{
    if (!lm || !info)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_get_info: %s is NULL",
                             lm ? "info" : "lm");
    const kiln_lm_info own = {
        lm->architecture,  lm->name,
        lm->template,      lm->shape.words,
        lm->shape.context, lm->shape.layers,
        lm->shape.width,   lm->tokenizer.begin,
        lm->tokenizer.end, lm->shape.architecture && lm->shape.architecture->encodes};
    kiln__lm_structure_fill(info, size, &own, sizeof own);
    return KILN_OK;
}

/* ---- texts and tokens ---- */

kiln_status kiln__lm_encode(const char *call, const kiln_lm *lm,
                            const struct kiln__reading *reading, bool begin, int32_t **tokens,
                            size_t *count)
{
    struct kiln__tokens found = {0};
    const struct kiln__tokenizer *tokenizer = &lm->tokenizer;
    begin = begin && tokenizer->adds_begin;
    bool fine = (!begin || kiln__tokens_add(&found, tokenizer->begin)) &&
                kiln__tokenizer_encode(tokenizer, reading, &found) &&
                (!begin || !tokenizer->encodes || kiln__tokens_add(&found, tokenizer->end));
    if (fine && !found.numbers) /* none at all: still something to free */
        fine = (found.numbers = malloc(sizeof *found.numbers)) != NULL;
    if (!fine) {
        free(found.numbers);
        return kiln__lm_no_memory(call);
    }
    *tokens = found.numbers;
    *count = found.count;
    return KILN_OK;
}

kiln_status kiln_lm_tokenize(const kiln_lm *lm, const char *text, size_t bytes, int reading,
                             int32_t **tokens, size_t *count)
{
    if (tokens)
        *tokens = NULL;
    if (!lm || (!text && bytes) || !tokens || !count)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_tokenize: an argument is NULL");
    if (reading & ~(KILN_LM_BEGIN | KILN_LM_CONTROL))
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_tokenize: reading is %d", reading);
    const struct kiln__reading how = {text ? text : "", bytes, reading & KILN_LM_CONTROL, NULL};
    return kiln__lm_encode("kiln_lm_tokenize", lm, &how, reading & KILN_LM_BEGIN, tokens, count);
}

const char *kiln_lm_token_text(const kiln_lm *lm, int32_t token, size_t *bytes)
{
    const bool is_token = lm && token >= 0 && (size_t)token < lm->tokenizer.vocabulary.count;
    const struct kiln__token *found = is_token ? &lm->tokenizer.vocabulary.tokens[token] : NULL;
    const bool is_text =
        found && (found->kind == KILN__TOKEN_NORMAL || found->kind == KILN__TOKEN_USER ||
                  found->kind == KILN__TOKEN_BYTE);
    if (bytes)
        *bytes = is_text ? found->length : 0;
    return is_text ? found->bytes : "";
}

int kiln_lm_is_end(const kiln_lm *lm, int32_t token)
{
    return lm && token >= 0 && (size_t)token < lm->tokenizer.vocabulary.count &&
           lm->tokenizer.ends[token];
}
