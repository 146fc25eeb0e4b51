/* SPDX-License-Identifier: Apache-2.0 */
/* A folder's files, and the order in which a model comes of them. */
#define _GNU_SOURCE
#include "lm/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lm/error.h"
#include "lm/genai.h"
#include "lm/tokenizer_json.h"
#include "util/format.h"

enum { LONGEST_FILE = 1 << 30 };

bool kiln__lm_folder_is(const char *path)
{
    struct stat about;
    return !stat(path, &about) && S_ISDIR(about.st_mode);
}

kiln_status kiln__lm_folder_fail(const struct kiln__lm_folder *folder, kiln_status status,
                                 const char *file, const char *format, ...)
{
    char why[2048];
    va_list arguments;
    va_start(arguments, format);
    kiln__vformat(why, sizeof why, format, arguments);
    va_end(arguments);
    return kiln__lm_fail(status, "kiln_lm_load: %s/%s: %s", folder->path, file, why);
}

char *kiln__lm_folder_path(const struct kiln__lm_folder *folder, const char *file)
{
    char *path;
    return asprintf(&path, "%s/%s", folder->path, file) < 0 ? NULL : path;
}

/* ---- files ---- */

static kiln_status read_all(const struct kiln__lm_folder *folder, const char *file, int descriptor,
                            char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t got = read(descriptor, text + at, bytes - at);
        if (got <= 0)
            return kiln__lm_folder_fail(folder, KILN_IO_ERROR, file, "%s",
                                        got ? strerror(errno) : "it became shorter");
        at += (size_t)got;
    }
    text[bytes] = 0;
    return KILN_OK;
}

static kiln_status read_open(const struct kiln__lm_folder *folder, const char *file, int descriptor,
                             char **text, size_t *bytes)
{
    struct stat about;
    if (fstat(descriptor, &about))
        return kiln__lm_folder_fail(folder, KILN_IO_ERROR, file, "%s", strerror(errno));
    if (!S_ISREG(about.st_mode) || about.st_size > LONGEST_FILE)
        return kiln__lm_folder_fail(folder, KILN_INVALID_ARGUMENT, file,
                                    "it is no file, or longer than %d bytes", LONGEST_FILE);
    *bytes = (size_t)about.st_size;
    *text = malloc(*bytes + 1);
    return *text ? read_all(folder, file, descriptor, *text, *bytes)
                 : kiln__lm_no_memory("kiln_lm_load");
}

kiln_status kiln__lm_folder_read(const struct kiln__lm_folder *folder, const char *file,
                                 char **text, size_t *bytes)
{
    char *path = kiln__lm_folder_path(folder, file);
    *text = NULL;
    if (!path)
        return kiln__lm_no_memory("kiln_lm_load");
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const int why = errno;
    free(path);
    if (descriptor < 0)
        return why == ENOENT
                   ? KILN_OK
                   : kiln__lm_folder_fail(folder, KILN_IO_ERROR, file, "%s", strerror(why));
    kiln_status status = read_open(folder, file, descriptor, text, bytes);
    close(descriptor);
    if (status) {
        free(*text);
        *text = NULL;
    }
    return status;
}

kiln_status kiln__lm_folder_json(const struct kiln__lm_folder *folder, const char *file,
                                 json_t **root)
{
    char *text;
    size_t bytes;
    json_error_t why;
    *root = NULL;
    kiln_status status = kiln__lm_folder_read(folder, file, &text, &bytes);
    if (status || !text)
        return status;
    *root = json_loadb(text, bytes, 0, &why);
    free(text);
    if (json_is_object(*root))
        return KILN_OK;
    status = *root ? kiln__lm_folder_fail(folder, KILN_INVALID_ARGUMENT, file, "it is no object")
                   : kiln__lm_folder_fail(folder, KILN_INVALID_ARGUMENT, file, "line %d: %s",
                                          why.line, why.text);
    json_decref(*root);
    *root = NULL;
    return status;
}

/* ---- what the model says of itself ---- */

/* The folder's own name. */
static char *name_of(const char *path)
{
    size_t end = strlen(path), begin;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (begin = end; begin && path[begin - 1] != '/'; begin--)
        ;
    return strndup(path + begin, end - begin);
}

/* A file of its own, or a setting: a text, or some with names, of which "default" is taken. */
static kiln_status read_template(const struct kiln__lm_folder *folder, char **text)
{
    size_t bytes, i;
    json_t *one;
    kiln_status status = kiln__lm_folder_read(folder, "chat_template.jinja", text, &bytes);
    if (status || *text)
        return status;
    const json_t *set = json_object_get(folder->tokenizer, "chat_template");
    const char *found = json_string_value(set);
    json_array_foreach(set, i, one)
    {
        if (!strcmp(kiln__json_text(one, "name"), "default"))
            found = kiln__json_text(one, "template");
    }
    *text = strdup(found ? found : "");
    return *text ? KILN_OK : kiln__lm_no_memory("kiln_lm_load");
}

/* ---- all ---- */

static kiln_status read_settings(struct kiln__lm_folder *folder)
{
    kiln_status status = kiln__lm_folder_json(folder, "genai_config.json", &folder->genai);
    if (!status)
        status = kiln__lm_folder_json(folder, "config.json", &folder->config);
    if (!status && !folder->config && !folder->genai)
        status = kiln__lm_fail(KILN_INVALID_ARGUMENT,
                               "kiln_lm_load: %s: the folder has no config.json", folder->path);
    if (!status)
        status = kiln__lm_folder_json(folder, "generation_config.json", &folder->generation);
    return status ? status
                  : kiln__lm_folder_json(folder, "tokenizer_config.json", &folder->tokenizer);
}

static kiln_status load_weights(struct kiln__lm_folder *folder, kiln_lm *lm)
{
    kiln_status status = kiln__lm_folder_tensors(folder, lm);
    return status ? status : kiln__lm_weights_read(&folder->tensors, lm);
}

static kiln_status read_shape(struct kiln__lm_folder *folder, kiln_lm *lm)
{
    if (folder->genai)
        return kiln__lm_genai_load(folder, lm);
    kiln_status status = kiln__lm_folder_shape(folder, lm);
    if (status)
        return status;
    lm->architecture = strdup(lm->shape.architecture->name);
    return lm->architecture ? kiln__lm_folder_list(folder, lm) : kiln__lm_no_memory("kiln_lm_load");
}

static kiln_status load(struct kiln__lm_folder *folder, kiln_lm *lm)
{
    lm->name = name_of(folder->path);
    kiln_status status = lm->name ? read_settings(folder) : kiln__lm_no_memory("kiln_lm_load");
    if (!status)
        status = read_shape(folder, lm);
    if (!status)
        status = read_template(folder, &lm->template);
    if (!status)
        status = kiln__lm_folder_tokenizer(folder, lm);
    return status || folder->genai ? status : load_weights(folder, lm);
}

kiln_status kiln__lm_folder_load(const char *path, kiln_lm *lm)
{
    struct kiln__lm_folder folder = {.path = path, .tensors.path = path};
    const kiln_status status = load(&folder, lm);
    kiln__lm_folder_free_tensors(&folder);
    json_decref(folder.genai);
    json_decref(folder.config);
    json_decref(folder.generation);
    json_decref(folder.tokenizer);
    return status;
}
