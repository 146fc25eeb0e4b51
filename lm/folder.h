/* SPDX-License-Identifier: Apache-2.0 */
/* A folder as Hugging Face's transformers saves language models: config.json, safetensors and
 * tokenizer.json. Nothing that its files say is believed. */
#ifndef KILN_LM_FOLDER_H
#define KILN_LM_FOLDER_H

#include <jansson.h>

#include <kiln/files.h>

#include "lm/model.h"

/* A safetensors file, and what it has. */
struct kiln__lm_folder_file {
    char *path;
    kiln_saved *list;
    size_t count;
};

struct kiln__lm_folder {
    const char *path;
    json_t *config, *generation, *tokenizer; /* config.json; the other two's settings, or NULL */
    json_t *genai;                           /* genai_config.json, which comes first; or NULL */
    const json_t *decoder;                   /* of config.json the part about the decoder */
    struct kiln__gguf tensors;               /* without keys */
    size_t n_files;
    struct kiln__lm_folder_file *files;
};

bool kiln__lm_folder_is(const char *path);

/* Tokenizer, shape and weights of a model. Errors: as kiln_lm_load(). */
kiln_status kiln__lm_folder_load(const char *path, kiln_lm *lm);

/* A sentence that names one of the folder's files. */
kiln_status kiln__lm_folder_fail(const struct kiln__lm_folder *folder, kiln_status status,
                                 const char *file, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* "FOLDER/FILE", which the caller frees; NULL: no memory. */
char *kiln__lm_folder_path(const struct kiln__lm_folder *folder, const char *file);

/* A file's bytes, ended by a zero, which the caller frees; NULL: there is none. Errors:
 * INVALID_ARGUMENT (what is no file, or is too long), IO_ERROR, OUT_OF_HOST_MEMORY. */
kiln_status kiln__lm_folder_read(const struct kiln__lm_folder *folder, const char *file,
                                 char **text, size_t *bytes);

/* A file of JSON, an object; NULL: there is none. Errors: as above, INVALID_ARGUMENT. */
kiln_status kiln__lm_folder_json(const struct kiln__lm_folder *folder, const char *file,
                                 json_t **root);

/* ---- parts ---- */

/* lm->shape from config.json, and lm->weights.factors. Errors: INVALID_ARGUMENT, UNSUPPORTED,
 * OUT_OF_HOST_MEMORY. */
kiln_status kiln__lm_folder_shape(struct kiln__lm_folder *folder, kiln_lm *lm);

/* All tensors of the folder's safetensors files; then their content, in buffers. Errors: those of
 * kiln_saved_list() and kiln_load(), INVALID_ARGUMENT, UNSUPPORTED. */
kiln_status kiln__lm_folder_list(struct kiln__lm_folder *folder, const kiln_lm *lm);
kiln_status kiln__lm_folder_tensors(struct kiln__lm_folder *folder, const kiln_lm *lm);
void kiln__lm_folder_free_tensors(struct kiln__lm_folder *folder);

/* What a folder calls the tensor that GGUF files call `name`; `layer` is SIZE_MAX for none. */
void kiln__lm_folder_name(const struct kiln__architecture *architecture, const char *prefix,
                          const char *name, size_t layer, char *full, size_t room);

/* lm->tokenizer, for as many tokens as lm->shape has words. Errors: INVALID_ARGUMENT, UNSUPPORTED,
 * OUT_OF_HOST_MEMORY. */
kiln_status kiln__lm_folder_tokenizer(struct kiln__lm_folder *folder, kiln_lm *lm);

#endif
