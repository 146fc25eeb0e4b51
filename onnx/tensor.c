/* SPDX-License-Identifier: Apache-2.0 */
/* TensorProto content: inline, raw and external data, with checks of its path, range and size. */
#include "onnx/tensor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "onnx/types.h"

static const char *name_of(const Onnx__TensorProto *proto)
{
    return proto->name && *proto->name ? proto->name : "without a name";
}

static kiln_status check_shape(const Onnx__TensorProto *proto, struct kiln__onnx_elements *elements)
{
    const struct kiln__onnx_type *type = kiln__onnx_type(proto->data_type);
    if (!type)
        return kiln__onnx_fail(KILN_UNSUPPORTED, "kiln_model_load: tensor '%s' is of type %s",
                               name_of(proto), kiln__onnx_type_name(proto->data_type));
    if (proto->n_dims > KILN_MAX_RANK)
        return kiln__onnx_fail(
            KILN_UNSUPPORTED,
            "kiln_model_load: tensor '%s' has %zu dimensions, and %d are the most", name_of(proto),
            proto->n_dims, KILN_MAX_RANK);
    if (proto->segment)
        return kiln__onnx_fail(KILN_UNSUPPORTED, "kiln_model_load: tensor '%s' is in segments",
                               name_of(proto));
    elements->type = proto->data_type;
    elements->rank = proto->n_dims;
    for (size_t i = 0; i < proto->n_dims; i++) {
        if (proto->dims[i] < 0 || (uint64_t)proto->dims[i] > PTRDIFF_MAX)
            return kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                                   "kiln_model_load: tensor '%s': dimension %zu is %" PRId64,
                                   name_of(proto), i, proto->dims[i]);
        elements->dims[i] = (size_t)proto->dims[i];
    }
    if (!kiln__onnx_count(elements->rank, elements->dims, &elements->count))
        return kiln__onnx_fail(KILN_TOO_LARGE,
                               "kiln_model_load: tensor '%s' has more elements than can be counted",
                               name_of(proto));
    return KILN_OK;
}

/* ---- content in a file of its own ---- */

struct place {
    const char *location;
    uint64_t offset, length;
    bool has_length;
};

static bool read_number(const char *text, uint64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno;
}

static bool read_place(const Onnx__TensorProto *proto, struct place *place)
{
    for (size_t i = 0; i < proto->n_external_data; i++) {
        const Onnx__StringStringEntryProto *entry = proto->external_data[i];
        const char *key = entry->key ? entry->key : "", *value = entry->value ? entry->value : "";
        if (!strcmp(key, "location"))
            place->location = value;
        else if (!strcmp(key, "offset") && !read_number(value, &place->offset))
            return false;
        else if (!strcmp(key, "length")) {
            place->has_length = true;
            if (!read_number(value, &place->length))
                return false;
        }
    }
    return place->location && *place->location;
}

/* A path below the folder, by its text: no way up, none from the root. */
static bool stays_inside(const char *path)
{
    if (*path == '/')
        return false;
    for (const char *part = path; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (!strncmp(part, "..", 2) && (part[2] == '/' || !part[2]))
            return false;
    return true;
}

/* The file of that name, unless links lead out of the folder; -1 with a reason. */
static int open_inside(const char *folder, const char *location, const char **why)
{
    char path[PATH_MAX], real[PATH_MAX], root[PATH_MAX];
    *why = "is outside of the model's folder";
    int length = snprintf(path, sizeof path, "%s/%s", folder, location);
    if (!stays_inside(location) || length < 0 || (size_t)length >= sizeof path)
        return -1;
    if (!realpath(folder, root) || !realpath(path, real)) {
        *why = strerror(errno);
        return -1;
    }
    size_t inside = strlen(root);
    if (strcmp(root, "/") && (strncmp(real, root, inside) || real[inside] != '/'))
        return -1;
    int file = open(real, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0)
        *why = strerror(errno);
    return file;
}

bool kiln__onnx_read_at(int file, void *bytes, uint64_t length, uint64_t offset)
{
    for (uint64_t done = 0; done < length;) {
        size_t part = length - done > 1 << 30 ? 1 << 30 : (size_t)(length - done);
        ssize_t got = pread(file, (char *)bytes + done, part, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        done += (uint64_t)got;
    }
    return true;
}

static kiln_status read_external(const Onnx__TensorProto *proto, const char *folder, size_t bytes,
                                 struct kiln__onnx_elements *elements)
{
    struct place place = {0};
    if (!read_place(proto, &place))
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                               "kiln_model_load: tensor '%s': its external data has no place",
                               name_of(proto));
    if (!folder)
        return kiln__onnx_fail(
            KILN_INVALID_ARGUMENT,
            "kiln_model_load: tensor '%s' lies in the file '%s', and there is no "
            "folder to look in",
            name_of(proto), place.location);
    if (place.has_length && place.length != bytes)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                               "kiln_model_load: tensor '%s' has %" PRIu64
                               " bytes of external data, and its shape wants %zu",
                               name_of(proto), place.length, bytes);
    const char *why;
    int file = open_inside(folder, place.location, &why);
    if (file < 0)
        return kiln__onnx_fail(KILN_IO_ERROR, "kiln_model_load: tensor '%s': its file '%s': %s",
                               name_of(proto), place.location, why);
    struct stat about;
    bool regular = !fstat(file, &about) && S_ISREG(about.st_mode);
    uint64_t size = regular ? (uint64_t)about.st_size : 0;
    if (!regular || place.offset > size || bytes > size - place.offset) {
        close(file);
        return kiln__onnx_fail(KILN_IO_ERROR,
                               "kiln_model_load: tensor '%s': its file '%s' has %" PRIu64
                               " bytes, fewer than %zu at %" PRIu64,
                               name_of(proto), place.location, size, bytes, place.offset);
    }
    elements->owned = malloc(bytes ? bytes : 1);
    elements->bytes = elements->owned;
    bool whole = elements->owned && kiln__onnx_read_at(file, elements->owned, bytes, place.offset);
    close(file);
    if (!elements->owned)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory for '%s'",
                               name_of(proto));
    return whole ? KILN_OK
                 : kiln__onnx_fail(KILN_IO_ERROR, "kiln_model_load: '%s' cannot be read",
                                   place.location);
}

/* ---- content in the message ---- */

/* The field that has a type's elements one by one, and how many. */
static const void *field_of(const Onnx__TensorProto *proto, size_t *count)
{
    switch (proto->data_type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT:
        *count = proto->n_float_data;
        return proto->float_data;
    case ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE:
        *count = proto->n_double_data;
        return proto->double_data;
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT64:
        *count = proto->n_int64_data;
        return proto->int64_data;
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT32:
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT64:
        *count = proto->n_uint64_data;
        return proto->uint64_data;
    default: *count = proto->n_int32_data; return proto->int32_data;
    }
}

static kiln_status find_elements(const Onnx__TensorProto *proto, const char *folder,
                                 struct kiln__onnx_elements *elements)
{
    *elements = (struct kiln__onnx_elements){0};
    kiln_status status = check_shape(proto, elements);
    if (status)
        return status;
    unsigned bits = kiln__onnx_type(elements->type)->bits;
    size_t bytes =
        bits < 8 ? elements->count / 2 + elements->count % 2 : elements->count * (bits / 8);
    if (proto->has_data_location &&
        proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        return read_external(proto, folder, bytes, elements);
    size_t have;
    elements->bytes = field_of(proto, &have);
    elements->unpacked = true;
    if (!have && proto->has_raw_data) {
        elements->bytes = proto->raw_data.data;
        elements->unpacked = false;
        if (proto->raw_data.len != bytes)
            return kiln__onnx_fail(
                KILN_INVALID_ARGUMENT,
                "kiln_model_load: tensor '%s' has %zu bytes, and its shape wants %zu",
                name_of(proto), proto->raw_data.len, bytes);
    } else if (have != (bits < 8 ? bytes : elements->count))
        return kiln__onnx_fail(
            KILN_INVALID_ARGUMENT,
            "kiln_model_load: tensor '%s' has %zu elements, and its shape wants %zu",
            name_of(proto), have, elements->count);
    return KILN_OK;
}

void kiln__onnx_elements_free(struct kiln__onnx_elements *elements)
{
    free(elements->owned);
    elements->owned = NULL;
}

/* An integer of 1 to 8 bytes, as ONNX has them: the lowest byte first. */
static uint64_t bits_at(const uint8_t *at, size_t bytes)
{
    uint64_t bits = 0;
    for (size_t i = bytes; i-- > 0;)
        bits = bits << 8 | at[i];
    return bits;
}

static uint64_t bits_of(const struct kiln__onnx_elements *elements, size_t i)
{
    const struct kiln__onnx_type *type = kiln__onnx_type(elements->type);
    uint32_t word;
    if (type->bits < 8) {
        word = elements->unpacked ? ((const uint32_t *)elements->bytes)[i / 2]
                                  : ((const uint8_t *)elements->bytes)[i / 2];
        return word >> i % 2 * 4 & 15;
    }
    if (!elements->unpacked)
        return bits_at((const uint8_t *)elements->bytes + i * (type->bits / 8), type->bits / 8);
    uint64_t words;
    switch (elements->type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE:
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT64:
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT32:
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT64:
        memcpy(&words, (const uint64_t *)elements->bytes + i, sizeof words);
        return words;
    default: memcpy(&word, (const uint32_t *)elements->bytes + i, sizeof word); return word;
    }
}

/* uint64 is computed as i64, which has no larger numbers. */
static kiln_status check_range(const Onnx__TensorProto *proto,
                               const struct kiln__onnx_elements *elements)
{
    if (elements->type != ONNX__TENSOR_PROTO__DATA_TYPE__UINT64)
        return KILN_OK;
    for (size_t i = 0; i < elements->count; i++)
        if (bits_of(elements, i) > INT64_MAX)
            return kiln__onnx_fail(KILN_UNSUPPORTED,
                                   "kiln_model_load: tensor '%s': element %zu is %" PRIu64
                                   ", and uint64 is computed as i64",
                                   name_of(proto), i, bits_of(elements, i));
    return KILN_OK;
}

kiln_status kiln__onnx_elements(const Onnx__TensorProto *proto, const char *folder,
                                struct kiln__onnx_elements *elements)
{
    kiln_status status = find_elements(proto, folder, elements);
    if (!status)
        status = check_range(proto, elements);
    if (status)
        kiln__onnx_elements_free(elements);
    return status;
}

union kiln__onnx_cell kiln__onnx_element(const struct kiln__onnx_elements *elements, size_t i)
{
    uint64_t bits = bits_of(elements, i);
    uint32_t word = (uint32_t)bits;
    float narrow;
    double wide;
    switch (elements->type) {
    case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT:
        memcpy(&narrow, &word, sizeof narrow);
        return (union kiln__onnx_cell){.f = (double)narrow};
    case ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE:
        memcpy(&wide, &bits, sizeof wide);
        return (union kiln__onnx_cell){.f = wide};
    case ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16:
        return (union kiln__onnx_cell){.f = kiln__onnx_from_half((uint16_t)bits)};
    case ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16:
        word = word << 16;
        memcpy(&narrow, &word, sizeof narrow);
        return (union kiln__onnx_cell){.f = (double)narrow};
    default:
        return kiln__onnx_host_round(elements->type, (union kiln__onnx_cell){.i = (int64_t)bits});
    }
}
