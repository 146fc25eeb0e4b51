/* SPDX-License-Identifier: Apache-2.0 */
/* Parser and checks of a safetensors header: shapes, types, ranges without gaps or overlap. */
#include "files/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "util/text.h"

/* What is being opened, and for whom. */
struct opening {
    const char *call, *path;
    struct kiln__safetensors *file;
};

struct kiln__phrase kiln__safetensors_name(const char *name)
{
    struct kiln__phrase phrase =
        kiln__phrase("\"%.100s%s\"", name, strlen(name) > 100 ? "..." : "");
    kiln__phrase_clean(&phrase);
    return phrase;
}

static kiln_status safetensors_refuse(const struct opening *opening, kiln_status status,
                                      const char *why)
{
    return kiln__fail(NULL, status, "%s: %s: %s", opening->call, opening->path, why);
}

static kiln_status refuse_tensor(const struct opening *opening, kiln_status status,
                                 const char *name, const char *why)
{
    return kiln__fail(NULL, status, "%s: %s: tensor %s: %s", opening->call, opening->path,
                      kiln__safetensors_name(name).text, why);
}

/* ---- a tensor's entry ---- */

/* A number from 0 on. */
static bool take_size(const json_t *number, size_t *size)
{
    json_int_t value = json_integer_value(number);
    *size = (size_t)value;
    return json_is_integer(number) && value >= 0 && (uintmax_t)value <= SIZE_MAX;
}

static kiln_status read_shape(const struct opening *opening, const char *name, const json_t *list,
                              struct kiln__shape *shape)
{
    size_t rank = json_array_size(list), dims[KILN_MAX_RANK];
    if (!json_is_array(list))
        return refuse_tensor(opening, KILN_IO_ERROR, name, "it has no shape");
    if (rank > KILN_MAX_RANK)
        return refuse_tensor(opening, KILN_UNSUPPORTED, name, "it has more than 8 dimensions");
    for (size_t i = 0; i < rank; i++)
        if (!take_size(json_array_get(list, i), &dims[i]))
            return refuse_tensor(opening, KILN_IO_ERROR, name, "a dimension is no size");
    return kiln__shape_make(rank, dims, shape)
               ? KILN_OK
               : refuse_tensor(opening, KILN_TOO_LARGE, name, "its shape has too many elements");
}

static kiln_status read_entry(const struct opening *opening, const char *name, const json_t *entry,
                              struct kiln__saved *saved)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    saved->name = name;
    saved->word = json_string_value(json_object_get(entry, "dtype"));
    if (!saved->word)
        return refuse_tensor(opening, KILN_IO_ERROR, name, "it has no dtype");
    saved->stored = kiln__file_type_by_name(saved->word);
    kiln_status status = read_shape(opening, name, json_object_get(entry, "shape"), &saved->shape);
    if (status)
        return status;
    if (json_array_size(offsets) != 2 || !take_size(json_array_get(offsets, 0), &saved->begin) ||
        !take_size(json_array_get(offsets, 1), &saved->end) || saved->begin > saved->end)
        return refuse_tensor(opening, KILN_IO_ERROR, name, "it has no data_offsets");
    size_t bytes = saved->stored ? kiln__shape_count(&saved->shape) * saved->stored->bytes
                                 : saved->end - saved->begin;
    return bytes == saved->end - saved->begin
               ? KILN_OK
               : refuse_tensor(opening, KILN_IO_ERROR, name,
                               "its data_offsets are not those of its shape and dtype");
}

/* ---- all of them ---- */

static int by_offset(const void *a, const void *b)
{
    const struct kiln__saved *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* The format allows neither gaps nor overlaps, in which something could hide. */
static kiln_status check_ranges(const struct opening *opening)
{
    struct kiln__safetensors *file = opening->file;
    size_t at = 0, all = file->mapping->length - file->data;
    qsort(file->tensors, file->count, sizeof *file->tensors, by_offset);
    for (size_t i = 0; i < file->count; at = file->tensors[i++].end)
        if (file->tensors[i].begin != at)
            return refuse_tensor(opening, KILN_IO_ERROR, file->tensors[i].name,
                                 "its data_offsets do not follow the tensor before it");
        else if (file->tensors[i].end > all)
            return refuse_tensor(opening, KILN_IO_ERROR, file->tensors[i].name,
                                 "its elements go beyond the end of the file");
    return at == all ? KILN_OK
                     : safetensors_refuse(opening, KILN_IO_ERROR,
                                          "there is something behind the last tensor");
}

static int by_name(const void *a, const void *b)
{
    const struct kiln__saved *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static kiln_status read_entries(const struct opening *opening)
{
    struct kiln__safetensors *file = opening->file;
    kiln_status status = KILN_OK;
    const char *name;
    json_t *entry;
    file->tensors = calloc(json_object_size(file->header) + 1, sizeof *file->tensors);
    if (!file->tensors)
        return safetensors_refuse(opening, KILN_OUT_OF_HOST_MEMORY, "no memory");
    json_object_foreach(file->header, name, entry)
    {
        if (!status && strcmp(name, KILN__SAFETENSORS_METADATA))
            status = read_entry(opening, name, entry, &file->tensors[file->count++]);
    }
    if (!status)
        status = check_ranges(opening);
    if (!status)
        qsort(file->tensors, file->count, sizeof *file->tensors, by_name);
    return status;
}

/* ---- the header ---- */

static uint64_t little_endian(const char *bytes)
{
    uint64_t number = 0;
    for (int i = 8; i-- > 0;)
        number = number << 8 | (unsigned char)bytes[i];
    return number;
}

static kiln_status read_header(const struct opening *opening)
{
    struct kiln__safetensors *file = opening->file;
    const struct kiln__mapping *mapping = file->mapping;
    json_error_t wrong;
    uint64_t length = mapping->length < 8 ? 0 : little_endian(mapping->bytes);
    if (mapping->length < 8 || length > mapping->length - 8)
        return safetensors_refuse(opening, KILN_IO_ERROR, "it ends before its header does");
    if (length > KILN__SAFETENSORS_HEADER)
        return safetensors_refuse(opening, KILN_IO_ERROR,
                                  "its header is longer than 100,000,000 bytes");
    file->data = 8 + (size_t)length;
    file->header = json_loadb(mapping->bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &wrong);
    if (!file->header) {
        struct kiln__phrase why = kiln__phrase("its header: %s", wrong.text);
        kiln__phrase_clean(&why);
        return safetensors_refuse(opening, KILN_IO_ERROR, why.text);
    }
    return json_is_object(file->header)
               ? KILN_OK
               : safetensors_refuse(opening, KILN_IO_ERROR, "its header is no object");
}

kiln_status kiln__safetensors_open(const char *call, const char *path,
                                   struct kiln__safetensors *file)
{
    *file = (struct kiln__safetensors){0};
    const struct opening opening = {call, path, file};
    struct kiln__error error = {0};
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return safetensors_refuse(&opening, KILN_UNSUPPORTED,
                              "its order of bytes is not this machine's");
#endif
    kiln_status status = kiln__mapping_open(path, &file->mapping, &error);
    if (status)
        return safetensors_refuse(&opening, status, error.text);
    status = read_header(&opening);
    if (!status)
        status = read_entries(&opening);
    if (status)
        kiln__safetensors_close(file);
    return status;
}

void kiln__safetensors_close(struct kiln__safetensors *file)
{
    json_decref(file->header);
    free(file->tensors);
    kiln__mapping_release(file->mapping);
    *file = (struct kiln__safetensors){0};
}

const struct kiln__saved *kiln__safetensors_find(const struct kiln__safetensors *file,
                                                 const char *name)
{
    const struct kiln__saved wanted = {.name = name};
    return bsearch(&wanted, file->tensors, file->count, sizeof wanted, by_name);
}
