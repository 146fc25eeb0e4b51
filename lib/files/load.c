/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of safetensors files into buffers. */
#include <stdlib.h>
#include <string.h>

#include <kiln/files.h>

#include "files/safetensors.h"
#include "session/context.h"
#include "util/structure.h"
#include "util/text.h"

/* Elements that are converted go through so many bytes. */
enum { PIECE = 1 << 16 };

/* A call on an open file. */
struct load {
    const char *call, *path;
    struct kiln__safetensors file;
};

static kiln_status load_refuse(const struct load *load, kiln_status status, const char *name,
                               const char *why)
{
    return kiln__fail(NULL, status, "%s: %s: tensor %s: %s", load->call, load->path,
                      kiln__safetensors_name(name).text, why);
}

/* What a call that this one is made of said. */
static kiln_status pass_on(const struct load *load, kiln_status status, const char *name)
{
    struct kiln__text why = {0};
    kiln__text_add(&why, "%s", kiln_last_error());
    load_refuse(load, status, name, why.data ? why.data : kiln_status_text(status));
    kiln__text_free(&why);
    return status;
}

/* ---- one tensor ---- */

static kiln_status load_find(const struct load *load, const char *name,
                             const struct kiln__saved **saved)
{
    *saved = kiln__safetensors_find(&load->file, name);
    if (!*saved)
        return load_refuse(load, KILN_INVALID_ARGUMENT, name, "the file has none of that name");
    if ((*saved)->stored)
        return KILN_OK;
    struct kiln__phrase why = kiln__phrase("kiln has nothing for its type %s",
                                           kiln__safetensors_name((*saved)->word).text);
    return load_refuse(load, KILN_UNSUPPORTED, name, why.text);
}

static char *elements(const struct load *load, const struct kiln__saved *saved)
{
    return load->file.mapping->bytes + load->file.data + saved->begin;
}

static kiln_status write_converted(const struct load *load, const struct kiln__saved *saved,
                                   kiln_buffer *buffer)
{
    const struct kiln__file_type *stored = saved->stored;
    const char *from = elements(load, saved);
    size_t left = kiln__shape_count(&saved->shape), offset = 0, n = PIECE / sizeof(int64_t);
    int64_t piece[PIECE / sizeof(int64_t)], aligned[PIECE / sizeof(int64_t)];
    for (; left; left -= n, from += n * stored->bytes) {
        n = left < n ? left : n;
        memcpy(aligned, from, n * stored->bytes);
        if (!stored->convert(aligned, n, piece))
            return load_refuse(load, KILN_TOO_LARGE, saved->name,
                               "it has a number that an i64 cannot be");
        size_t bytes = n * kiln_type_size(stored->type);
        kiln_status status = kiln_buffer_write(buffer, offset, piece, bytes);
        if (status)
            return pass_on(load, status, saved->name);
        offset += bytes;
    }
    return KILN_OK;
}

static kiln_status write(const struct load *load, const struct kiln__saved *saved,
                         kiln_buffer *buffer)
{
    if (saved->stored->convert)
        return write_converted(load, saved, buffer);
    kiln_status status =
        saved->end == saved->begin
            ? KILN_OK
            : kiln_buffer_write(buffer, 0, elements(load, saved), saved->end - saved->begin);
    return status ? pass_on(load, status, saved->name) : KILN_OK;
}

static void let_go(void *mapping)
{
    kiln__mapping_release(mapping);
}

/* The file's own memory as a buffer, or NULL where its elements have to be copied. */
static kiln_buffer *load_wrap(const struct load *load, kiln_context *context,
                              const struct kiln__saved *saved)
{
    kiln_type type = saved->stored->type;
    if (saved->stored->convert || saved->begin == saved->end)
        return NULL;
    kiln__mapping_retain(load->file.mapping);
    kiln_buffer *buffer = kiln__buffer_wrap(context, type, &saved->shape, elements(load, saved),
                                            let_go, load->file.mapping);
    if (!buffer)
        kiln__mapping_release(load->file.mapping);
    return buffer;
}

static kiln_status load_make(const struct load *load, kiln_context *context, const char *name,
                             kiln_buffer **buffer)
{
    const struct kiln__saved *saved;
    kiln_status status = load_find(load, name, &saved);
    if (status)
        return status;
    *buffer = load_wrap(load, context, saved);
    if (*buffer)
        return KILN_OK;
    status = kiln_buffer_create(context, saved->stored->type, saved->shape.rank, saved->shape.dims,
                                buffer);
    if (status)
        return pass_on(load, status, name);
    return write(load, saved, *buffer);
}

/* ---- calls ---- */

static kiln_status check_names(const char *call, const char *path, size_t n,
                               const char *const *names, const void *buffers)
{
    if (!path || (n && (!names || !buffers)))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                          !path    ? "path"
                          : !names ? "names"
                                   : "buffers");
    for (size_t i = 0; i < n; i++)
        if (!names[i])
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: names[%zu] is NULL", call, i);
    return KILN_OK;
}

kiln_status kiln_load(kiln_context *context, const char *path, size_t n, const char *const *names,
                      kiln_buffer **buffers)
{
    struct load load = {.call = "kiln_load", .path = path};
    KILN__RETURN_IF_NULL(NULL, __func__, context);
    kiln_status status = check_names(load.call, path, n, names, buffers);
    if (status)
        return status;
    for (size_t i = 0; i < n; i++)
        buffers[i] = NULL;
    status = kiln__safetensors_open(load.call, path, &load.file);
    for (size_t i = 0; i < n && !status; i++)
        status = load_make(&load, context, names[i], &buffers[i]);
    for (size_t i = 0; i < n && status; i++) {
        kiln_buffer_release(buffers[i]);
        buffers[i] = NULL;
    }
    kiln__safetensors_close(&load.file);
    return status;
}

/* ---- into buffers that are there ---- */

static kiln_status load_fits(const struct load *load, const char *name, const kiln_buffer *buffer)
{
    const struct kiln__saved *saved;
    kiln_status status = load_find(load, name, &saved);
    if (status)
        return status;
    if (saved->stored->type != buffer->type) {
        struct kiln__phrase why =
            kiln__phrase("it is read as %s, and the buffer is %s",
                         kiln_type_name(saved->stored->type), kiln_type_name(buffer->type));
        return load_refuse(load, KILN_TYPE_MISMATCH, name, why.text);
    }
    if (kiln__shape_equal(&saved->shape, &buffer->shape))
        return KILN_OK;
    struct kiln__phrase why =
        kiln__phrase("its shape is %s, and the buffer's %s", kiln__shape_text(&saved->shape).text,
                     kiln__shape_text(&buffer->shape).text);
    return load_refuse(load, KILN_SHAPE_MISMATCH, name, why.text);
}

kiln_status kiln_load_into(const char *path, size_t n, const char *const *names,
                           kiln_buffer *const *buffers)
{
    struct load load = {.call = "kiln_load_into", .path = path};
    kiln_status status = check_names(load.call, path, n, names, buffers);
    for (size_t i = 0; i < n && !status; i++)
        if (!buffers[i])
            status =
                kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_load_into: buffers[%zu] is NULL", i);
    if (!status)
        status = kiln__safetensors_open(load.call, path, &load.file);
    for (size_t i = 0; i < n && !status; i++)
        status = load_fits(&load, names[i], buffers[i]);
    for (size_t i = 0; i < n && !status; i++)
        status = write(&load, kiln__safetensors_find(&load.file, names[i]), buffers[i]);
    kiln__safetensors_close(&load.file);
    return status;
}

/* ---- what a file has ---- */

/* One piece of memory: the entries, and behind them their words. */
/* A list of structures of `size` bytes, and behind them the words. */
static kiln_saved *load_copy(const struct kiln__safetensors *file, size_t size)
{
    size_t bytes = file->count * size;
    for (size_t i = 0; i < file->count; i++)
        bytes += strlen(file->tensors[i].name) + strlen(file->tensors[i].word) + 2;
    char *list = malloc(bytes + 1), *words = list ? list + file->count * size : NULL;
    for (size_t i = 0; i < file->count && list; i++) {
        const struct kiln__saved *saved = &file->tensors[i];
        kiln_saved own = {.type = saved->stored ? saved->stored->type : (kiln_type)0,
                          .rank = saved->shape.rank,
                          .name = words};
        memcpy(own.dims, saved->shape.dims, sizeof own.dims);
        words = stpcpy(words, saved->name) + 1;
        own.stored = words;
        words = stpcpy(words, saved->word) + 1;
        kiln__structure_fill(list + i * size, size, &own, sizeof own);
    }
    return (kiln_saved *)(void *)list;
}

kiln_status(kiln_saved_list)(const char *path, kiln_saved **tensors, size_t *count, size_t size)
{
    struct kiln__safetensors file;
    if (tensors)
        *tensors = NULL;
    if (count)
        *count = 0;
    KILN__RETURN_IF_NULL(NULL, __func__, path, tensors, count);
    kiln_status status = kiln__safetensors_open("kiln_saved_list", path, &file);
    if (status)
        return status;
    *tensors = load_copy(&file, size);
    *count = *tensors ? file.count : 0;
    kiln__safetensors_close(&file);
    return *tensors ? KILN_OK
                    : kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "kiln_saved_list: no memory");
}
