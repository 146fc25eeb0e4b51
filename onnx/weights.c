/* SPDX-License-Identifier: Apache-2.0 */
/* Initialisers to device buffers or host constants, in the type that the model computes in. */
#include "onnx/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/blocks.h"
#include "onnx/record.h"
#include "onnx/source.h"
#include "onnx/tensor.h"
#include "onnx/types.h"

bool kiln__onnx_is_small(int type, size_t count)
{
    return count <=
           (kiln__onnx_type_floats(type) ? KILN__ONNX_MOST_FLOATS : KILN__ONNX_MOST_INTEGERS);
}

kiln_status kiln__onnx_buffer_of(kiln_context *context, const struct kiln__onnx_host *host,
                                 size_t rank, const size_t *dims, kiln_buffer **buffer)
{
    kiln_type type = kiln__onnx_type(host->type)->type;
    size_t bytes = host->count * kiln_type_size(type);
    void *content = malloc(bytes ? bytes : 1);
    *buffer = NULL;
    if (!content)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_record: no memory");
    kiln_status status = kiln__onnx_host_store(host, type, content);
    if (status)
        status = kiln__onnx_fail(status, "kiln_model_record: a constant is beyond what i32 holds");
    else
        status = kiln_buffer_create(context, type, rank, dims, buffer);
    if (!status && bytes)
        status = kiln_buffer_write(*buffer, 0, content, bytes);
    if (status) {
        kiln_buffer_release(*buffer);
        *buffer = NULL;
    }
    free(content);
    return status;
}

/* ---- at load ---- */

/* Elements that changed on their way, and the first of them. */
struct changes {
    size_t count;
    union kiln__onnx_cell first;
};

/* What is lost where a weight is not stored as the file has it. */
static void note(const kiln_onnx_model *model, size_t which, kiln_type type, size_t count,
                 const struct changes *changes, struct kiln__onnx_text *notes)
{
    const char *name = model->graphs.names[model->graphs.constants[which].value];
    if (changes->count && type == KILN_F32)
        kiln__onnx_say(notes, "'%s': %zu of %zu numbers rounded from double, the first %.17g\n",
                       name, changes->count, count, changes->first.f);
    else if (changes->count)
        kiln__onnx_say(notes, "'%s': %zu of %zu integers are beyond i32, the first %" PRId64 "\n",
                       name, changes->count, count, changes->first.i);
}

/* Small arrays keep doubles: they are rounded when the device gets them. */
static kiln_status read_small(kiln_onnx_model *model, size_t which,
                              const struct kiln__onnx_elements *elements,
                              struct kiln__onnx_text *notes)
{
    struct kiln__onnx_weight *weight = &model->weights[which];
    struct changes changes = {0};
    weight->host =
        kiln__onnx_host_new(&model->hosts, elements->type, elements->rank, elements->dims);
    if (!weight->host)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    for (size_t i = 0; i < elements->count; i++) {
        union kiln__onnx_cell cell = weight->host->cells[i] = kiln__onnx_element(elements, i);
        bool changed = weight->host->floats && (double)(float)cell.f != cell.f && !isnan(cell.f);
        if (changed && !changes.count++)
            changes.first = cell;
    }
    note(model, which, KILN_F32, elements->count, &changes, notes);
    return KILN_OK;
}

/* What a weight's elements become on the device. */
static kiln_type stored_type(const kiln_onnx_model *model,
                             const struct kiln__onnx_elements *elements)
{
    kiln_type type = kiln__onnx_type(elements->type)->type;
    bool narrow = model->options.weights == KILN_F16 || model->options.weights == KILN_BF16;
    return narrow && type == KILN_F32 && elements->rank >= 2 ? model->options.weights : type;
}

/* Elements start to start + n as the device stores them. */
static void convert(const struct kiln__onnx_elements *elements, kiln_type type, size_t start,
                    size_t n, void *bytes, struct changes *changes)
{
    if (elements->type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT && type != KILN_F32) {
        /* By far the most of what is converted. */
        kiln__onnx_narrow_floats((const char *)elements->bytes + start * sizeof(float), type, n,
                                 bytes);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        union kiln__onnx_cell cell = kiln__onnx_element(elements, start + i), was = cell;
        bool changed = false;
        switch (type) {
        case KILN_F32:
            ((float *)bytes)[i] = (float)cell.f;
            changed = (double)(float)cell.f != cell.f && !isnan(cell.f);
            break;
        case KILN_F16: ((uint16_t *)bytes)[i] = kiln__onnx_half(cell.f); break;
        case KILN_BF16: ((uint16_t *)bytes)[i] = kiln__onnx_bfloat(cell.f); break;
        default:
            if (type == KILN_I64)
                ((int64_t *)bytes)[i] = cell.i;
            else if (type == KILN_I32)
                ((int32_t *)bytes)[i] = (int32_t)cell.i;
            else
                ((uint8_t *)bytes)[i] = (uint8_t)cell.i;
        }
        if (changed && !changes->count++)
            changes->first = was;
    }
}

static void convert_again(const struct kiln__onnx_elements *elements, kiln_type type, size_t n,
                          void *to)
{
    struct changes changes = {0};
    convert(elements, type, 0, n, to, &changes);
}

enum { PIECE = 1 << 16 };

static kiln_status write_converted(const kiln_onnx_model *model, size_t which, kiln_type type,
                                   const struct kiln__onnx_elements *elements,
                                   struct kiln__onnx_text *notes)
{
    const struct kiln__onnx_weight *weight = &model->weights[which];
    size_t size = kiln_type_size(type);
    kiln_status status = KILN_OK;
    struct changes changes = {0};
    void *piece = malloc(PIECE * size);
    if (!piece)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    for (size_t start = 0; start < elements->count && !status; start += PIECE) {
        size_t n = elements->count - start < PIECE ? elements->count - start : PIECE;
        convert(elements, type, start, n, piece, &changes);
        status = kiln_buffer_write(weight->buffer, start * size, piece, n * size);
    }
    free(piece);
    note(model, which, type, elements->count, &changes, notes);
    return status;
}

static kiln_status read_large(kiln_onnx_model *model, size_t which,
                              const struct kiln__onnx_elements *elements,
                              struct kiln__onnx_text *notes)
{
    struct kiln__onnx_weight *weight = &model->weights[which];
    kiln_type type = stored_type(model, elements);
    size_t size = kiln_type_size(type);
    bool as_it_is = kiln__onnx_type(elements->type)->bits == 8 * size &&
                    type == kiln__onnx_type(elements->type)->type &&
                    (!elements->unpacked || type == KILN_F32);
    kiln_status status =
        kiln_buffer_create(model->context, type, elements->rank, elements->dims, &weight->buffer);
    if (!status && as_it_is)
        status = kiln_buffer_write(weight->buffer, 0, elements->bytes, elements->count * size);
    else if (!status)
        status = write_converted(model, which, type, elements, notes);
    return status
               ? status
               : kiln__onnx_file_serve(model->file, model->graphs.constants[which].proto, elements,
                                       type, as_it_is ? NULL : convert_again, weight->buffer);
}

/* The content is in its place: what the message has of it is not needed any more. */
static void forget(Onnx__TensorProto *proto)
{
    free(proto->raw_data.data);
    free(proto->float_data);
    free(proto->int32_data);
    free(proto->int64_data);
    free(proto->double_data);
    free(proto->uint64_data);
    proto->raw_data = (ProtobufCBinaryData){0};
    proto->n_float_data = proto->n_int32_data = proto->n_int64_data = 0;
    proto->n_double_data = proto->n_uint64_data = 0;
    proto->float_data = NULL;
    proto->int32_data = NULL;
    proto->int64_data = NULL;
    proto->double_data = NULL;
    proto->uint64_data = NULL;
}

static kiln_status read_weight(kiln_onnx_model *model, size_t which, const char *folder,
                               struct kiln__onnx_text *notes)
{
    const struct kiln__onnx_constant *constant = &model->graphs.constants[which];
    struct kiln__onnx_weight *weight = &model->weights[which];
    struct kiln__onnx_elements elements;
    kiln_status status = kiln__onnx_elements(constant->proto, folder, &elements);
    if (status)
        return status;
    weight->type = elements.type;
    weight->rank = elements.rank;
    memcpy(weight->dims, elements.dims, sizeof weight->dims);
    if (!weight->apart)
        status = kiln__onnx_is_small(elements.type, elements.count)
                     ? read_small(model, which, &elements, notes)
                     : read_large(model, which, &elements, notes);
    kiln__onnx_elements_free(&elements);
    if (!constant->shared)
        forget(constant->proto);
    return status;
}

kiln_status kiln__onnx_read_weights(kiln_onnx_model *model, const char *folder,
                                    struct kiln__onnx_text *notes)
{
    size_t n = model->graphs.n_constants;
    model->weights = calloc(n + 1, sizeof *model->weights);
    if (!model->weights)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    kiln_status status = kiln__onnx_read_blocks(model, folder);
    if (status)
        return status;
    for (size_t i = 0; i < n; i++) {
        if (model->graphs.needed[model->graphs.constants[i].value])
            status = read_weight(model, i, folder, notes);
        if (status)
            return status;
    }
    return KILN_OK;
}

void kiln__onnx_free_weights(kiln_onnx_model *model)
{
    for (size_t i = 0; model->weights && i < model->graphs.n_constants; i++)
        kiln_buffer_release(model->weights[i].buffer);
    free(model->weights);
    kiln__onnx_free_blocks(model);
    kiln__onnx_host_free(model->hosts);
}

/* ---- at recording ---- */

/* Arrays of some elements get a buffer of the model's when they are wanted on the device first; the
 * smallest are constants of the batch, or in a buffer of its own. */
static kiln_status share(kiln_onnx_model *model, struct kiln__onnx_weight *weight,
                         kiln_buffer **buffer)
{
    double number;
    kiln_status status = KILN_OK;
    *buffer = weight->host ? NULL : weight->buffer;
    if (!weight->host || !weight->host->floats || weight->host->count < 2 ||
        kiln__onnx_host_uniform(weight->host, &number))
        return KILN_OK;
    pthread_mutex_lock(&model->lock);
    if (!weight->buffer)
        status = kiln__onnx_buffer_of(model->context, weight->host, weight->rank, weight->dims,
                                      &weight->buffer);
    *buffer = weight->buffer;
    pthread_mutex_unlock(&model->lock);
    return status;
}

kiln_status kiln__onnx_take_weights(struct kiln__onnx_recorder *recorder)
{
    kiln_onnx_model *model = recorder->model;
    for (size_t i = 0; i < model->graphs.n_constants; i++) {
        struct kiln__onnx_weight *weight = &model->weights[i];
        struct kiln__onnx_value *value = &recorder->values[model->graphs.constants[i].value];
        kiln_buffer *buffer = NULL;
        if (!weight->type)
            continue;
        kiln_status status = share(model, weight, &buffer);
        if (status)
            return status;
        value->type = weight->type;
        value->rank = weight->rank;
        memcpy(value->dims, weight->dims, sizeof value->dims);
        value->host = weight->host;
        if (buffer)
            value->tensor = kiln_import(recorder->batch, buffer);
    }
    return kiln_batch_status(recorder->batch);
}
