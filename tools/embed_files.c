/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a sentence encoder, as they lie in the folders that people publish: the model at the
 * top or in onnx/, the tokenizer beside it or above, and what the encoder was trained with. */
#define _GNU_SOURCE
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "embed.h"

/* Tokens of a line where nothing says how many, or the tokenizer's files alone do. */
enum { USUAL_LENGTH = 256, MOST_USUAL_LENGTH = 512 };

static bool is_folder(const char *path)
{
    struct stat status;
    return !stat(path, &status) && S_ISDIR(status.st_mode);
}

/* The first of `names` that can be read in `folder`; NULL: none. */
static char *find_in(const char *folder, const char *const *names)
{
    for (; *names; names++) {
        char *path;
        if (asprintf(&path, "%s/%s", folder, *names) < 0)
            return NULL;
        if (!access(path, R_OK))
            return path;
        free(path);
    }
    return NULL;
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (is_folder(path))
        return strdup(path);
    return slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
}

static bool find_model(const struct embed_request *request, struct embed_files *files)
{
    if (access(request->model, R_OK)) {
        fprintf(stderr, "%s: %s: %s\n", request->command, request->model, strerror(errno));
        return false;
    }
    static const char *const names[] = {"model.onnx", "onnx/model.onnx", NULL};
    files->model =
        is_folder(request->model) ? find_in(request->model, names) : strdup(request->model);
    if (!files->model)
        fprintf(stderr, "%s: there is neither model.onnx nor onnx/model.onnx in %s\n",
                request->command, request->model);
    return files->model;
}

static bool starts_as_gguf(const char *path)
{
    char begin[4] = "";
    FILE *file = fopen(path, "re");
    const bool fine = file && fread(begin, 1, sizeof begin, file) == sizeof begin;
    if (file)
        fclose(file);
    return fine && !memcmp(begin, "GGUF", sizeof begin);
}

static bool find_vocabulary(const struct embed_request *request, const char *folder,
                            struct embed_files *files)
{
    static const char *const names[] = {"tokenizer.json", "vocab.txt", "../tokenizer.json",
                                        "../vocab.txt", NULL};
    files->vocabulary = request->vocabulary ? strdup(request->vocabulary) : find_in(folder, names);
    if (!files->vocabulary)
        fprintf(stderr, "%s: there is neither tokenizer.json nor vocab.txt beside the model%s\n",
                request->command, request->advice);
    return files->vocabulary;
}

/* One value of a configuration that sentence-transformers wrote; 0: it is not there. */
static size_t setting(const char *folder, const char *const *names, const char *key)
{
    char *path = find_in(folder, names);
    json_t *root = path ? json_load_file(path, 0, NULL) : NULL;
    const json_t *value = json_object_get(root, key);
    json_int_t number = json_is_true(value) ? 1 : json_integer_value(value);
    json_decref(root);
    free(path);
    return number > 0 ? (size_t)number : 0;
}

/* As sentence-transformers has it: its own setting, else the tokenizer's. */
static size_t find_length(const char *folder)
{
    static const char *const own[] = {"sentence_bert_config.json", "../sentence_bert_config.json",
                                      NULL};
    static const char *const tokenizers[] = {"tokenizer_config.json", "../tokenizer_config.json",
                                             NULL};
    const size_t length = setting(folder, own, "max_seq_length"),
                 longest = setting(folder, tokenizers, "model_max_length");
    if (length && length <= EMBED_MOST_LENGTH)
        return length;
    return !longest ? USUAL_LENGTH : longest < MOST_USUAL_LENGTH ? longest : MOST_USUAL_LENGTH;
}

bool embed_find_files(const struct embed_request *request, struct embed_files *files)
{
    static const char *const poolings[] = {"1_Pooling/config.json", "../1_Pooling/config.json",
                                           NULL};
    *files = (struct embed_files){0};
    char *folder = folder_of(request->model);
    bool found = folder && find_model(request, files);
    files->is_gguf = found && starts_as_gguf(files->model);
    if (files->is_gguf) {
        files->max_length = request->max_length;
    } else if ((found = found && find_vocabulary(request, folder, files))) {
        files->max_length = request->max_length ? request->max_length : find_length(folder);
        files->cls = request->pooling == EMBED_AS_CONFIGURED
                         ? setting(folder, poolings, "pooling_mode_cls_token")
                         : request->pooling == EMBED_CLS;
    }
    free(folder);
    return found;
}

void embed_free_files(struct embed_files *files)
{
    free(files->model);
    free(files->vocabulary);
}
