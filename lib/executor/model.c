/* SPDX-License-Identifier: Apache-2.0 */
#include "executor/model.h"

#include <string.h>
#include <sys/mman.h>

#include <kiln/batch.h>

#include "ops/ops.h"
#include "util/error.h"

static const char call[] = "kiln_executor_create";

/* ---- what the caller says ---- */

static kiln_status check_row(size_t number, const kiln_row *row, struct kiln__part *part)
{
    part->row = *row;
    part->bytes = kiln_type_size(row->type);
    if (!part->bytes)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: input %zu: %d is no data type", call,
                          number, (int)row->type);
    if (row->rank >= KILN_MAX_RANK)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: input %zu: a row of %zu dimensions, and %d are the most", call,
                          number, row->rank, KILN_MAX_RANK - 1);
    for (size_t i = 0; i < row->rank; i++) {
        if (!row->dims[i])
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                              "%s: input %zu: dimension %zu of a row is 0", call, number, i);
        if (__builtin_mul_overflow(part->bytes, row->dims[i], &part->bytes))
            return kiln__fail(NULL, KILN_TOO_LARGE, "%s: input %zu: a row has too many elements",
                              call, number);
    }
    if (row->below && kiln__type_row(row->type)->floating)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: input %zu: only whole numbers have a bound, and it is %s", call,
                          number, kiln_type_name(row->type));
    return KILN_OK;
}

static kiln_status check_count(const char *what, size_t count)
{
    if (count >= 1 && count <= KILN_MODEL_MOST)
        return KILN_OK;
    return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %zu %s, and a model has 1 to %d", call,
                      count, what, KILN_MODEL_MOST);
}

/* 2, 4, ..., the largest. A dimension of 1 is one that no stride and no order says anything of: a
 * single row could be added up in another order than two. */
static void list_sizes(struct kiln__model *model, size_t most_rows)
{
    model->size_count = 0;
    for (size_t rows = 2; rows < most_rows; rows *= 2)
        model->sizes[model->size_count++] = rows;
    model->sizes[model->size_count++] = most_rows;
}

kiln_status kiln__model_check(const kiln_model *from, size_t most_rows, struct kiln__model *model)
{
    kiln_model given = KILN_MODEL_INIT;
    memset(model, 0, sizeof *model);
    if (!from)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: model is NULL", call);
    if (from->size != sizeof given)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: model->size is %zu; start from KILN_MODEL_INIT", call, from->size);
    given = *from;
    if (!given.record || !given.inputs)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: model->%s is NULL", call,
                          given.record ? "inputs" : "record");
    kiln_status status = check_count("inputs", given.input_count);
    if (!status)
        status = check_count("outputs", given.output_count);
    for (size_t i = 0; i < given.input_count && !status; i++)
        status = check_row(i, &given.inputs[i], &model->parts[i]);
    model->record = given.record;
    model->user = given.user;
    model->input_count = given.input_count;
    model->output_count = given.output_count;
    list_sizes(model, most_rows);
    return status;
}

unsigned kiln__model_size(const struct kiln__model *model, size_t rows)
{
    unsigned size = 0;
    while (model->sizes[size] < rows)
        size++;
    return size;
}

/* ---- outputs, which the first recording tells ---- */

static kiln_status find_output(struct kiln__model *model, const kiln_batch *batch, size_t rows,
                               size_t number, kiln_tensor tensor)
{
    struct kiln__part *part = &model->parts[model->input_count + number];
    size_t rank, dims[KILN_MAX_RANK], bytes;
    kiln_type type;
    if (!tensor.id)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: the model left no output %zu", call,
                          number);
    kiln_status status = kiln_tensor_shape(batch, tensor, &type, &rank, dims);
    if (status)
        return kiln__fail(NULL, status, "%s: output %zu of the model is no tensor of its batch",
                          call, number);
    if (!rank || dims[0] != rows)
        return kiln__fail(NULL, KILN_SHAPE_MISMATCH,
                          "%s: output %zu of the model for %zu rows has %zu rows", call, number,
                          rows, rank ? dims[0] : 0);
    bytes = kiln_type_size(type);
    for (size_t i = 1; i < rank; i++)
        bytes *= dims[i];
    bool known = part->bytes != 0;
    if (!bytes || (known && (bytes != part->bytes || type != part->row.type)))
        return kiln__fail(NULL, KILN_SHAPE_MISMATCH,
                          "%s: output %zu of the model for %zu rows has %zu bytes of %s a row%s",
                          call, number, rows, bytes, kiln_type_name(type),
                          known ? ", which is not what it had for fewer rows" : "");
    part->bytes = bytes;
    part->row.type = type;
    return KILN_OK;
}

/* ---- a batch ---- */

/* Memory of some parts. Pages that nobody writes to are not there yet: sizes that never run cost
 * nothing. */
static kiln_status map(struct kiln__slot *slot, struct kiln__region *region,
                       const struct kiln__model *model, size_t first, size_t count, size_t rows)
{
    size_t offsets[KILN_MODEL_MOST], bytes;
    for (size_t i = 0; i < count; i++) {
        offsets[i] = region->bytes;
        if (__builtin_mul_overflow(model->parts[first + i].bytes, rows, &bytes) ||
            bytes > SIZE_MAX / 64)
            return kiln__fail(NULL, KILN_TOO_LARGE, "%s: %zu rows have too many bytes", call, rows);
        region->bytes += (bytes + 4095) / 4096 * 4096;
    }
    region->base =
        mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region->base == MAP_FAILED) {
        region->base = NULL;
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no %zu bytes of memory for rows",
                          call, region->bytes);
    }
    for (size_t i = 0; i < count; i++)
        slot->memory[first + i] = (char *)region->base + offsets[i];
    return KILN_OK;
}

/* KILN_OK, or the batch's first error. */
static kiln_status look(const kiln_batch *batch, size_t rows)
{
    if (!kiln_batch_status(batch))
        return KILN_OK;
    return kiln__fail(NULL, kiln_batch_status(batch), "%s: the model for %zu rows: %s", call, rows,
                      kiln_batch_error(batch));
}

static kiln_status record_inputs(struct kiln__slot *slot, const struct kiln__model *model,
                                 size_t rows, kiln_tensor *inputs)
{
    kiln_status status = map(slot, &slot->in, model, 0, model->input_count, rows);
    for (size_t i = 0; i < model->input_count && !status; i++) {
        const kiln_row *row = &model->parts[i].row;
        size_t dims[KILN_MAX_RANK] = {rows};
        memcpy(dims + 1, row->dims, row->rank * sizeof *dims);
        inputs[i] = kiln_upload(slot->batch, row->type, row->rank + 1, dims, slot->memory[i]);
    }
    return status ? status : look(slot->batch, rows);
}

static kiln_status record_outputs(struct kiln__slot *slot, struct kiln__model *model, size_t rows,
                                  const kiln_tensor *outputs)
{
    kiln_status status = KILN_OK;
    size_t first = model->input_count;
    for (size_t i = 0; i < model->output_count && !status; i++)
        status = find_output(model, slot->batch, rows, i, outputs[i]);
    if (!status)
        status = map(slot, &slot->out, model, first, model->output_count, rows);
    for (size_t i = 0; i < model->output_count && !status; i++)
        kiln_read(slot->batch, outputs[i], slot->memory[first + i],
                  rows * model->parts[first + i].bytes);
    return status ? status : look(slot->batch, rows);
}

static kiln_status record(struct kiln__slot *slot, struct kiln__model *model, kiln_context *context,
                          size_t number, size_t rows)
{
    kiln_tensor inputs[KILN_MODEL_MOST] = {{0}}, outputs[KILN_MODEL_MOST] = {{0}};
    slot->batch = kiln_batch_create(context);
    if (!slot->batch)
        return KILN_OUT_OF_HOST_MEMORY;
    kiln_status status = kiln_batch_sum_alike(slot->batch);
    if (!status)
        status = record_inputs(slot, model, rows, inputs);
    if (status)
        return status;
    status = model->record(slot->batch, number, rows, inputs, outputs, model->user);
    if (look(slot->batch, rows))
        return kiln_batch_status(slot->batch);
    if (status)
        return kiln__fail(NULL, status < 0 ? status : KILN_INVALID_ARGUMENT,
                          "%s: the model for %zu rows answered %s", call, rows,
                          kiln_status_name(status));
    return record_outputs(slot, model, rows, outputs);
}

kiln_status kiln__slots_record(struct kiln__slots *slots, struct kiln__model *model,
                               kiln_context *context, size_t number, bool prepare)
{
    kiln_status status = KILN_OK;
    for (unsigned i = 0; i < model->size_count && !status; i++) {
        status = record(&slots->of[i], model, context, number, model->sizes[i]);
        if (!status && prepare)
            status = kiln_batch_prepare(slots->of[i].batch, 0);
    }
    return status;
}

void kiln__slots_free(struct kiln__slots *slots)
{
    for (unsigned i = 0; i < KILN__MOST_SIZES; i++) {
        struct kiln__slot *slot = &slots->of[i];
        kiln_batch_release(slot->batch);
        if (slot->in.base)
            munmap(slot->in.base, slot->in.bytes);
        if (slot->out.base)
            munmap(slot->out.base, slot->out.bytes);
    }
    memset(slots, 0, sizeof *slots);
}
