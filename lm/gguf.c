/* SPDX-License-Identifier: Apache-2.0 */
/* Reading GGUF: once through the file to see that it is whole, then again to note what it has. */
#include "lm/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lm/error.h"

enum {
    USUAL_ALIGNMENT = 32,
    LONGEST_NAME = 65535,
    LEAST_KEY = 8 + 4 + 1,
    LEAST_TENSOR = 8 + 4 + 8 + 4 + 8
};

/* A place in the file. After a failure everything reads as zeros. */
struct cursor {
    const char *path;
    const uint8_t *data;
    size_t bytes, at;
    kiln_status status;
};

static kiln_status fail(struct cursor *cursor, const char *what)
{
    if (!cursor->status)
        cursor->status = kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s: %s (at byte %zu)",
                                       cursor->path, what, cursor->at);
    return cursor->status;
}

static size_t left(const struct cursor *cursor)
{
    return cursor->bytes - cursor->at;
}

/* NULL: so many bytes are not there. */
static const uint8_t *take(struct cursor *cursor, uint64_t bytes)
{
    if (cursor->status || bytes > left(cursor)) {
        fail(cursor, "the file ends too early");
        return NULL;
    }
    const uint8_t *taken = cursor->data + cursor->at;
    cursor->at += (size_t)bytes;
    return taken;
}

/* ---- numbers and texts ---- */

static uint64_t number_at(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; at && i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

static uint32_t take_u32(struct cursor *cursor)
{
    return (uint32_t)number_at(take(cursor, 4), 4);
}

static uint64_t take_u64(struct cursor *cursor)
{
    return number_at(take(cursor, 8), 8);
}

static struct kiln__gguf_text take_text(struct cursor *cursor)
{
    const uint64_t length = take_u64(cursor);
    const uint8_t *bytes = take(cursor, length);
    return (struct kiln__gguf_text){bytes ? (const char *)bytes : "", bytes ? (size_t)length : 0};
}

static struct kiln__gguf_text take_name(struct cursor *cursor)
{
    struct kiln__gguf_text name = take_text(cursor);
    if (!cursor->status && (!name.length || name.length > LONGEST_NAME))
        fail(cursor, "a name is empty or too long");
    return name;
}

/* ---- keys ---- */

/* Bytes of a value; 0 for those without a fixed number, and for what is no type. */
static size_t size_of(uint32_t type)
{
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof sizes ? sizes[type] : 0;
}

static void take_values(struct cursor *cursor, struct kiln__gguf_key *key, uint64_t count)
{
    const uint64_t least = key->type == KILN__GGUF_STRING ? 8 : size_of(key->type);
    key->values = cursor->data + cursor->at;
    key->count = (size_t)count;
    if (cursor->status || !least || count > left(cursor) / least)
        fail(cursor, "an array is longer than the file");
    else if (key->type != KILN__GGUF_STRING)
        take(cursor, count * least);
    else
        for (uint64_t i = 0; i < count && !cursor->status; i++)
            take_text(cursor);
}

static struct kiln__gguf_key take_key(struct cursor *cursor)
{
    struct kiln__gguf_key key = {.name = take_name(cursor)};
    uint32_t type = take_u32(cursor);
    key.is_array = type == KILN__GGUF_ARRAY;
    if (key.is_array)
        type = take_u32(cursor);
    if (!cursor->status && type != KILN__GGUF_STRING && !size_of(type))
        fail(cursor, type == KILN__GGUF_ARRAY ? "an array of arrays" : "a value of no known type");
    key.type = cursor->status ? KILN__GGUF_U8 : (enum kiln__gguf_type)type;
    take_values(cursor, &key, key.is_array ? take_u64(cursor) : 1);
    return key;
}

/* ---- tensors ---- */

/* Its blocks lie at an offset from where the data begin, which `blocks` says for now: NULL and so
 * many bytes. */
struct described {
    struct kiln__gguf_tensor tensor;
    uint64_t offset;
};

static void take_dims(struct cursor *cursor, struct kiln__gguf_tensor *tensor)
{
    const uint32_t rank = take_u32(cursor);
    if (!cursor->status && (!rank || rank > KILN__GGUF_MOST_RANK))
        fail(cursor, "a tensor of no dimension, or of more than 4");
    tensor->rank = cursor->status ? 1 : rank;
    for (size_t i = 0; i < tensor->rank; i++) {
        const uint64_t dim = take_u64(cursor);
        if (!cursor->status && (!dim || dim > INT64_MAX || dim > SIZE_MAX))
            fail(cursor, "a dimension of 0, or a huge one");
        tensor->dims[i] = cursor->status ? 1 : (size_t)dim;
    }
}

/* Errors: UNSUPPORTED; more bytes than the file has. */
static void measure(struct cursor *cursor, uint32_t type, struct kiln__gguf_tensor *tensor)
{
    const struct kiln__block_format *format = kiln__block_format(type);
    if (!format && !cursor->status)
        cursor->status = kiln__lm_fail(KILN_UNSUPPORTED,
                                       "kiln_lm_load: %s: tensor \"%.*s\" is of type %" PRIu32
                                       ", which kiln does not read",
                                       cursor->path, KILN__GGUF_SAID(tensor->name), type);
    if (cursor->status)
        return;
    tensor->format = format;
    if (tensor->dims[0] % format->weights) {
        fail(cursor, "a tensor's row is no whole number of blocks");
        return;
    }
    size_t bytes = format->bytes;
    for (size_t i = 0; i < tensor->rank; i++) {
        const size_t dim = i ? tensor->dims[i] : tensor->dims[0] / format->weights;
        if (dim > cursor->bytes / bytes) {
            fail(cursor, "a tensor is larger than the file");
            return;
        }
        bytes *= dim;
    }
    tensor->bytes = bytes;
}

static struct described take_tensor(struct cursor *cursor)
{
    struct described described = {.tensor.name = take_name(cursor)};
    take_dims(cursor, &described.tensor);
    const uint32_t type = take_u32(cursor);
    described.offset = take_u64(cursor);
    measure(cursor, type, &described.tensor);
    return described;
}

/* ---- order ---- */

static int compare_texts(struct kiln__gguf_text a, struct kiln__gguf_text b)
{
    const size_t common = a.length < b.length ? a.length : b.length;
    const int order = memcmp(a.bytes, b.bytes, common);
    return order ? order : (a.length > b.length) - (a.length < b.length);
}

static int compare_keys(const void *a, const void *b)
{
    return compare_texts(((const struct kiln__gguf_key *)a)->name,
                         ((const struct kiln__gguf_key *)b)->name);
}

static int compare_tensors(const void *a, const void *b)
{
    return compare_texts(((const struct kiln__gguf_tensor *)a)->name,
                         ((const struct kiln__gguf_tensor *)b)->name);
}

static int compare_places(const void *a, const void *b)
{
    const uint8_t *first = ((const struct kiln__gguf_tensor *)a)->blocks;
    const uint8_t *second = ((const struct kiln__gguf_tensor *)b)->blocks;
    return (first > second) - (first < second);
}

static kiln_status refuse_twice(const struct kiln__gguf *gguf, const char *what,
                                struct kiln__gguf_text name)
{
    return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s: two %s are called \"%.*s\"",
                         gguf->path, what, KILN__GGUF_SAID(name));
}

kiln_status kiln__gguf_order(struct kiln__gguf *gguf)
{
    struct kiln__gguf_tensor *tensors = gguf->tensors;
    if (gguf->n_tensors)
        qsort(tensors, gguf->n_tensors, sizeof *tensors, compare_tensors);
    for (size_t i = 1; i < gguf->n_tensors; i++)
        if (!compare_tensors(&tensors[i - 1], &tensors[i]))
            return refuse_twice(gguf, "tensors", tensors[i].name);
    return KILN_OK;
}

/* Sorted by name, no name is there twice; sorted by place, none begins before the last one ends. */
static kiln_status put_in_order(struct kiln__gguf *gguf)
{
    struct kiln__gguf_tensor *tensors = gguf->tensors;
    if (gguf->n_keys)
        qsort(gguf->keys, gguf->n_keys, sizeof *gguf->keys, compare_keys);
    for (size_t i = 1; i < gguf->n_keys; i++)
        if (!compare_keys(&gguf->keys[i - 1], &gguf->keys[i]))
            return refuse_twice(gguf, "keys", gguf->keys[i].name);
    if (!gguf->n_tensors)
        return KILN_OK;
    qsort(tensors, gguf->n_tensors, sizeof *tensors, compare_places);
    for (size_t i = 1; i < gguf->n_tensors; i++)
        if (tensors[i - 1].blocks + tensors[i - 1].bytes > tensors[i].blocks)
            return kiln__lm_fail(
                KILN_INVALID_ARGUMENT, "kiln_lm_load: %s: tensors \"%.*s\" and \"%.*s\" overlap",
                gguf->path, KILN__GGUF_SAID(tensors[i - 1].name), KILN__GGUF_SAID(tensors[i].name));
    return kiln__gguf_order(gguf);
}

/* ---- the file ---- */

/* All counts behind the magic number. */
struct head {
    uint64_t tensors, keys;
};

static struct head take_head(struct cursor *cursor)
{
    struct head head = {0};
    const uint8_t *magic = take(cursor, 4);
    if (!magic || memcmp(magic, "GGUF", 4)) {
        cursor->status =
            kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s is no GGUF file", cursor->path);
        return head;
    }
    const uint32_t version = take_u32(cursor);
    if (!cursor->status && version != 3)
        cursor->status =
            kiln__lm_fail(KILN_UNSUPPORTED,
                          "kiln_lm_load: %s is GGUF of version %" PRIu32 "; kiln reads version 3",
                          cursor->path, version);
    head.tensors = take_u64(cursor);
    head.keys = take_u64(cursor);
    if (!cursor->status &&
        (head.keys > left(cursor) / LEAST_KEY || head.tensors > left(cursor) / LEAST_TENSOR))
        fail(cursor, "more keys or tensors than the file has room for");
    return head;
}

/* Where the data begin; 0 after a failure. */
static size_t find_data(struct cursor *cursor, uint64_t alignment)
{
    if (!cursor->status && (!alignment || alignment & (alignment - 1) || alignment > 1 << 20))
        fail(cursor, "general.alignment is no power of two, or beyond a megabyte");
    if (cursor->status)
        return 0;
    const size_t more = (size_t)(-cursor->at & (alignment - 1));
    /* A file without tensors may end here. */
    return more > left(cursor) ? cursor->bytes : cursor->at + more;
}

static void place(struct cursor *cursor, const struct described *described, size_t data,
                  uint64_t alignment, struct kiln__gguf_tensor *tensor)
{
    const size_t room = cursor->bytes - data;
    *tensor = described->tensor;
    if (!cursor->status && (!alignment || described->offset % alignment))
        fail(cursor, "a tensor's offset is not aligned");
    if (!cursor->status &&
        (described->offset > room || tensor->bytes > room - (size_t)described->offset))
        cursor->status = kiln__lm_fail(
            KILN_INVALID_ARGUMENT, "kiln_lm_load: %s: tensor \"%.*s\" goes beyond the file's end",
            cursor->path, KILN__GGUF_SAID(tensor->name));
    if (!cursor->status)
        tensor->blocks = cursor->data + data + (size_t)described->offset;
}

static uint64_t alignment_of(const struct kiln__gguf_key *key, uint64_t alignment)
{
    if (!kiln__gguf_text_is(key->name, "general.alignment"))
        return alignment;
    return key->type == KILN__GGUF_U32 && !key->is_array ? number_at(key->values, 4) : 0;
}

/* All of it, noted where gguf has room; answers where the data begin. */
static size_t walk(struct cursor *cursor, struct head head, struct kiln__gguf *gguf, size_t data,
                   uint64_t *alignment)
{
    for (uint64_t i = 0; i < head.keys && !cursor->status; i++) {
        const struct kiln__gguf_key key = take_key(cursor);
        if (!cursor->status)
            *alignment = alignment_of(&key, *alignment);
        if (gguf->keys && !cursor->status)
            gguf->keys[i] = key;
    }
    for (uint64_t i = 0; i < head.tensors && !cursor->status; i++) {
        const struct described described = take_tensor(cursor);
        if (gguf->tensors && !cursor->status)
            place(cursor, &described, data, *alignment, &gguf->tensors[i]);
    }
    return find_data(cursor, *alignment);
}

kiln_status kiln__gguf_read(const char *path, const uint8_t *data, size_t bytes,
                            struct kiln__gguf *gguf)
{
    struct cursor cursor = {.path = path, .data = data, .bytes = bytes};
    uint64_t alignment = USUAL_ALIGNMENT;
    *gguf = (struct kiln__gguf){.path = path};
    const struct head head = take_head(&cursor);
    const size_t begin = cursor.at, start = walk(&cursor, head, gguf, 0, &alignment);
    if (cursor.status)
        return cursor.status;
    gguf->n_keys = (size_t)head.keys;
    gguf->n_tensors = (size_t)head.tensors;
    gguf->keys = calloc(gguf->n_keys + 1, sizeof *gguf->keys);
    gguf->tensors = calloc(gguf->n_tensors + 1, sizeof *gguf->tensors);
    if (!gguf->keys || !gguf->tensors) {
        kiln__gguf_free(gguf);
        return kiln__lm_no_memory("kiln_lm_load");
    }
    cursor.at = begin;
    walk(&cursor, head, gguf, start, &alignment);
    kiln_status status = cursor.status ? cursor.status : put_in_order(gguf);
    if (status)
        kiln__gguf_free(gguf);
    return status;
}

void kiln__gguf_free(struct kiln__gguf *gguf)
{
    free(gguf->keys);
    free(gguf->tensors);
    *gguf = (struct kiln__gguf){.path = gguf->path};
}
