/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers into safetensors files. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/files.h>

#include "files/safetensors.h"
#include "session/context.h"
#include "store/store_file.h"
#include "util/text.h"

/* The contents of buffers go through so many bytes. */
enum { PIECE = 1 << 22 };

/* Tensors begin where whoever maps the file may want them to. */
enum { ALIGNMENT = 64 };

struct save {
    const char *path;
    size_t n;
    const char *const *names;
    kiln_buffer *const *buffers;
    size_t *order; /* in which they are written */
    json_t *header;
};

static kiln_status no_memory(void)
{
    return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "kiln_save: no memory");
}

/* ---- the header ---- */

static kiln_status add_entry(struct save *save, size_t i, size_t *at)
{
    const kiln_buffer *buffer = save->buffers[i];
    struct kiln__phrase name = kiln__safetensors_name(save->names[i]);
    json_t *dims = json_array(), *text = json_string(save->names[i]);
    bool is_text = text != NULL;
    json_decref(text);
    for (uint32_t k = 0; k < buffer->shape.rank; k++)
        json_array_append_new(dims, json_integer((json_int_t)buffer->shape.dims[k]));
    if (!is_text || !strcmp(save->names[i], KILN__SAFETENSORS_METADATA) ||
        json_object_get(save->header, save->names[i])) {
        json_decref(dims);
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_save: the name %s is %s", name.text,
                          is_text ? "there twice, or the format's own" : "no UTF-8");
    }
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype",
                              kiln__file_type_of(buffer->type)->word, "shape", dims, "data_offsets",
                              (json_int_t)*at, (json_int_t)*at + (json_int_t)buffer->bytes);
    *at += buffer->bytes;
    if (json_array_size(json_object_get(entry, "shape")) != buffer->shape.rank) {
        json_decref(entry);
        return no_memory();
    }
    return json_object_set_new(save->header, save->names[i], entry) ? no_memory() : KILN_OK;
}

/* Those with the widest elements first, so that all are aligned. */
static void choose_order(struct save *save)
{
    size_t place = 0;
    for (size_t width = sizeof(int64_t); width; width /= 2)
        for (size_t i = 0; i < save->n; i++)
            if (kiln_type_size(save->buffers[i]->type) == width)
                save->order[place++] = i;
}

static kiln_status make_header(struct save *save)
{
    size_t at = 0;
    kiln_status status = KILN_OK;
    save->order = calloc(save->n + 1, sizeof *save->order);
    save->header = json_object();
    if (!save->order || !save->header)
        return no_memory();
    choose_order(save);
    for (size_t i = 0; i < save->n && !status; i++)
        status = add_entry(save, save->order[i], &at);
    return status;
}

static kiln_status write_header(const struct save *save, struct kiln__writer *writer)
{
    static const char blanks[ALIGNMENT + 1] =
        "                                                                ";
    unsigned char length[8];
    char *text = json_dumps(save->header, JSON_COMPACT);
    if (!text)
        return no_memory();
    size_t used = strlen(text), whole = (8 + used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)(whole - 8) >> 8 * i);
    kiln__writer_add(writer, length, sizeof length);
    kiln__writer_add(writer, text, used);
    kiln__writer_add(writer, blanks, whole - 8 - used);
    free(text);
    return whole - 8 <= KILN__SAFETENSORS_HEADER
               ? KILN_OK
               : kiln__fail(NULL, KILN_TOO_LARGE,
                            "kiln_save: %s: its header is longer than 100,000,000 bytes",
                            save->path);
}

/* ---- the elements ---- */

static kiln_status write_buffer(const struct save *save, size_t i, char *piece,
                                struct kiln__writer *writer)
{
    kiln_buffer *buffer = save->buffers[i];
    struct kiln__text why = {0};
    for (size_t at = 0; at < buffer->bytes && !writer->error;) {
        size_t bytes = buffer->bytes - at < PIECE ? buffer->bytes - at : PIECE;
        kiln_status status = kiln_buffer_read(buffer, at, piece, bytes);
        if (status) {
            kiln__text_add(&why, "%s", kiln_last_error());
            kiln__fail(NULL, status, "kiln_save: %s: tensor %s: %s", save->path,
                       kiln__safetensors_name(save->names[i]).text, why.data ? why.data : "");
            kiln__text_free(&why);
            return status;
        }
        kiln__writer_add(writer, piece, bytes);
        at += bytes;
    }
    return KILN_OK;
}

static kiln_status write_all(const struct save *save)
{
    struct kiln__writer writer;
    char *piece = malloc(PIECE);
    if (!piece)
        return no_memory();
    kiln__writer_begin(&writer, AT_FDCWD, save->path, 0666);
    kiln_status status = write_header(save, &writer);
    for (size_t i = 0; i < save->n && !status; i++)
        status = write_buffer(save, save->order[i], piece, &writer);
    free(piece);
    if (status)
        kiln__writer_drop(&writer);
    else if (!kiln__writer_commit(&writer))
        status = kiln__fail(NULL, KILN_IO_ERROR, "kiln_save: %s could not be written: %s",
                            save->path, strerror(writer.error));
    return status;
}

kiln_status kiln_save(const char *path, size_t n, const char *const *names,
                      kiln_buffer *const *buffers)
{
    struct save save = {.path = path, .n = n, .names = names, .buffers = buffers};
    if (!path || (n && (!names || !buffers)))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_save: %s is NULL",
                          !path    ? "path"
                          : !names ? "names"
                                   : "buffers");
    for (size_t i = 0; i < n; i++)
        if (!names[i] || !buffers[i])
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_save: %s[%zu] is NULL",
                              names[i] ? "buffers" : "names", i);
    for (size_t i = 0; i < n; i++)
        if (!kiln__file_type_of(buffers[i]->type))
            return kiln__fail(NULL, KILN_UNSUPPORTED,
                              "kiln_save: tensor %s is %s, which safetensors has no word for",
                              kiln__safetensors_name(names[i]).text,
                              kiln_type_name(buffers[i]->type));
    if (!kiln__file_replaceable(path))
        return kiln__fail(NULL, KILN_IO_ERROR,
                          "kiln_save: %s is not written: it is no regular file", path);
    kiln_status status = make_header(&save);
    if (!status)
        status = write_all(&save);
    json_decref(save.header);
    free(save.order);
    return status;
}
