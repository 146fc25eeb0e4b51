/* SPDX-License-Identifier: Apache-2.0 */
/* Reads weights from the model file again, for evictable buffers. */
#include "onnx/source.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kiln/kiln.h>

#include "onnx/types.h"
#include "onnx/wire.h"

struct kiln__onnx_file {
    atomic_int references;
    int descriptor;
    struct stat about; /* when it was loaded */
    size_t count, next;
    const Onnx__TensorProto **protos; /* while the model is read; in the file's order, mostly */
    uint64_t *places;                 /* theirs; 0: elsewhere */
};

/* What one buffer is filled from. */
struct part {
    struct kiln__onnx_file *file;
    uint64_t place;
    struct kiln__onnx_elements elements; /* all but where they are */
    kiln_type type;
    kiln__onnx_converter *convert;
};

/* ---- files ---- */

struct kiln__onnx_file *kiln__onnx_file_open(int descriptor, const uint8_t *bytes, size_t length,
                                             const Onnx__ModelProto *model)
{
    struct kiln__onnx_file *file = calloc(1, sizeof *file);
    size_t count = model->graph ? model->graph->n_initializer : 0;
    if (file) {
        atomic_init(&file->references, 1);
        file->descriptor = descriptor;
        file->count = count;
        file->places = calloc(count + 1, sizeof *file->places);
        file->protos = calloc(count + 1, sizeof *file->protos);
    } else {
        close(descriptor);
    }
    bool found = file && file->places && file->protos && !fstat(descriptor, &file->about) &&
                 kiln__onnx_find_raw(bytes, length, model, file->places);
    bool any = false;
    for (size_t i = 0; i < count && found; i++) {
        file->protos[i] = model->graph->initializer[i];
        any = any || file->places[i];
    }
    if (any)
        return file;
    kiln__onnx_file_release(file);
    return NULL;
}

void kiln__onnx_file_release(struct kiln__onnx_file *file)
{
    if (!file || atomic_fetch_sub(&file->references, 1) != 1)
        return;
    close(file->descriptor);
    free(file->protos);
    free(file->places);
    free(file);
}

static bool is_as_it_was(const struct kiln__onnx_file *file)
{
    struct stat about;
    return !fstat(file->descriptor, &about) && about.st_size == file->about.st_size &&
           about.st_mtim.tv_sec == file->about.st_mtim.tv_sec &&
           about.st_mtim.tv_nsec == file->about.st_mtim.tv_nsec;
}

/* ---- a buffer's part ---- */

static kiln_status read_converted(const struct part *part, size_t first, void *data, size_t n)
{
    size_t bytes = kiln__onnx_type(part->elements.type)->bits / 8;
    struct kiln__onnx_elements elements = part->elements;
    void *raw = malloc(n * bytes);
    if (!raw)
        return KILN_OUT_OF_HOST_MEMORY;
    bool whole = kiln__onnx_read_at(part->file->descriptor, raw, n * bytes,
                                    part->place + (uint64_t)first * bytes);
    elements.bytes = raw;
    if (whole)
        part->convert(&elements, part->type, n, data);
    free(raw);
    return whole ? KILN_OK : KILN_IO_ERROR;
}

static kiln_status read_part(void *user, size_t offset, void *data, size_t bytes)
{
    const struct part *part = user;
    size_t item = kiln_type_size(part->type);
    kiln_status status = KILN_OK;
    if (!is_as_it_was(part->file))
        return KILN_IO_ERROR;
    if (part->convert)
        status = read_converted(part, offset / item, data, bytes / item);
    else if (!kiln__onnx_read_at(part->file->descriptor, data, bytes, part->place + offset))
        status = KILN_IO_ERROR;
    return !status && !is_as_it_was(part->file) ? KILN_IO_ERROR : status;
}

static void end_part(void *user)
{
    struct part *part = user;
    kiln__onnx_file_release(part->file);
    free(part);
}

/* Where the file has a tensor's raw data; 0: it has none. */
static uint64_t find_place(struct kiln__onnx_file *file, const Onnx__TensorProto *proto)
{
    for (size_t i = 0; i < file->count; i++) {
        size_t at = (file->next + i) % file->count;
        if (file->protos[at] != proto)
            continue;
        file->next = at + 1;
        return file->places[at];
    }
    return 0;
}

kiln_status kiln__onnx_file_serve(struct kiln__onnx_file *file, const Onnx__TensorProto *proto,
                                  const struct kiln__onnx_elements *elements, kiln_type type,
                                  kiln__onnx_converter *convert, kiln_buffer *buffer)
{
    bool raw = !elements->unpacked && !elements->owned;
    uint64_t place =
        file && raw && kiln__onnx_type(elements->type)->bits % 8 == 0 ? find_place(file, proto) : 0;
    if (!place)
        return KILN_OK;
    struct part *part = malloc(sizeof *part);
    if (!part)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    *part = (struct part){file, place, *elements, type, convert};
    kiln_status status = kiln_buffer_set_source(buffer, read_part, end_part, part);
    if (status) {
        free(part);
        return status;
    }
    atomic_fetch_add(&file->references, 1);
    return KILN_OK;
}
