/* SPDX-License-Identifier: Apache-2.0 */
/* Recording and preparing a model's batch for each batch size, sequence length and context; checks
 * of its description.
 *
 * Sequences have batches for a few lengths (8, 16, ... up to the greatest). Rows are padded with
 * zeros to such a length, and the model gets each row's own length and a mask.
 */
#include "executor/model.h"

#include <string.h>
#include <sys/mman.h>

#include <kiln/batch.h>
#include <kiln/buffer.h>
#include <kiln/elementwise.h>
#include <kiln/movement.h>

#include "ops/ops.h"
#include "util/error.h"
#include "util/structure.h"

static const char call[] = "kiln_executor_create";

/* ---- what the caller says ---- */

static kiln_status check_row(size_t number, const kiln_row *row, struct kiln__model_part *part)
{
    part->row = *row;
    part->bytes = kiln_type_size(row->type);
    if (!part->bytes)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: input %zu: %d is no data type", call,
                          number, (int)row->type);
    if (kiln__type_is_block(row->type))
        return kiln__fail(NULL, KILN_TYPE_MISMATCH,
                          "%s: input %zu: rows are of elements that lie apart, not of %s", call,
                          number, kiln_type_name(row->type));
    if (row->rank >= KILN_MAX_RANK)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: input %zu: a row of %zu dimensions, and %d are the most", call,
                          number, row->rank, KILN_MAX_RANK - 1);
    if (row->sequence && (!row->rank || row->dims[0] > KILN__MOST_LENGTH))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: input %zu: a sequence of length %zu; 1 to %zu are taken", call,
                          number, row->rank ? row->dims[0] : 0, KILN__MOST_LENGTH);
    for (size_t i = 0; i < row->rank; i++) {
        if (!row->dims[i])
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                              "%s: input %zu: dimension %zu of a row is 0", call, number, i);
        if ((i || !row->sequence) &&
            __builtin_mul_overflow(part->bytes, row->dims[i], &part->bytes))
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

/* All sequences of a row have one length. */
static kiln_status find_longest(struct kiln__model *model)
{
    for (size_t i = 0; i < model->input_count; i++) {
        const kiln_row *row = &model->parts[i].row;
        if (!row->sequence)
            continue;
        if (model->longest && model->longest != row->dims[0])
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                              "%s: input %zu: a sequence of length %zu beside one of %zu", call, i,
                              row->dims[0], model->longest);
        model->longest = row->dims[0];
    }
    return KILN_OK;
}

/* 2, 4, ..., the largest. A dimension of 1 is one that no stride and no order says anything of: a
 * single row could be added up in another order than two. */
static void list_rows(struct kiln__model *model, const kiln_executor_options *options,
                      size_t length)
{
    struct kiln__batch_size *sizes = model->sizes + (size_t)model->length_count * model->size_count;
    const size_t least = options->max_batch < 2 ? options->max_batch : 2;
    size_t most = options->max_batch;
    unsigned count = 0;
    if (length && options->max_elements && options->max_elements / length < most)
        most = options->max_elements / length > least ? options->max_elements / length : least;
    for (size_t rows = 2; rows < options->max_batch; rows *= 2)
        sizes[count++] = (struct kiln__batch_size){rows < most ? rows : most, length};
    sizes[count++] = (struct kiln__batch_size){most, length};
    model->size_count = count;
    model->length_count++;
}

/* 8, 16, ..., the greatest: two at least if it is not 1, which tell what an output that grows is.
 * With close lengths 24, 48, ... are among them. */
static void list_sizes(struct kiln__model *model, const kiln_executor_options *options)
{
    size_t length = 8;
    while (length > 1 && length >= model->longest)
        length /= 2;
    model->size_count = model->length_count = 0;
    for (; length < model->longest; length *= 2) {
        size_t between = length / 2 * 3;
        list_rows(model, options, length);
        if (options->close_lengths && length >= 16 && between < model->longest)
            list_rows(model, options, between);
    }
    list_rows(model, options, model->longest);
}

static kiln_status read_model(const kiln_model *model, kiln_model *own)
{
    return KILN__STRUCTURE_READ(NULL, call, model, "KILN_MODEL_INIT", own);
}

kiln_status kiln__model_row(const char *asks, const kiln_model *model, size_t number, kiln_row *row)
{
    /* Headers without row_size had these fields. */
    const size_t first = offsetof(kiln_row, sequence) + sizeof row->sequence;
    const size_t size = model->row_size ? model->row_size : first;
    return kiln__structure_take(NULL,
                                &(struct kiln__given){asks, "row of the model", "KILN_MODEL_INIT",
                                                      (const char *)model->inputs + number * size,
                                                      size},
                                row, sizeof *row);
}

kiln_status kiln__model_check(const kiln_model *from, const kiln_executor_options *options,
                              struct kiln__model *model)
{
    kiln_model given;
    memset(model, 0, sizeof *model);
    if (!from)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: model is NULL", call);
    kiln_status status = read_model(from, &given);
    if (status)
        return status;
    if (!given.record || !given.inputs)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: model->%s is NULL", call,
                          given.record ? "inputs" : "record");
    if ((int)given.precision < 0 || given.precision > KILN_PRECISION_F16)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: model->precision is %d, no kiln_precision", call,
                          (int)given.precision);
    status = check_count("inputs", given.input_count);
    if (!status)
        status = check_count("outputs", given.output_count);
    for (size_t i = 0; i < given.input_count && !status; i++) {
        kiln_row row;
        status = kiln__model_row(call, &given, i, &row);
        if (!status)
            status = check_row(i, &row, &model->parts[i]);
    }
    model->record = given.record;
    model->user = given.user;
    model->precision = given.precision;
    model->input_count = given.input_count;
    model->output_count = given.output_count;
    if (!status)
        status = find_longest(model);
    if (!status)
        list_sizes(model, options);
    return status;
}

unsigned kiln__model_length(const struct kiln__model *model, size_t length)
{
    unsigned number = 0;
    while (model->sizes[(size_t)number * model->size_count].length < length)
        number++;
    return number;
}

unsigned kiln__model_size(const struct kiln__model *model, size_t rows, unsigned length)
{
    unsigned size = length * model->size_count;
    while (model->sizes[size].rows < rows)
        size++;
    return size;
}

size_t kiln__model_most(const struct kiln__model *model, unsigned length)
{
    return model->sizes[(size_t)(length + 1) * model->size_count - 1].rows;
}

size_t kiln__part_bytes(const struct kiln__model_part *part, size_t length)
{
    return part->bytes * (part->row.sequence ? length : 1);
}

/* ---- outputs, which the first recording tells, and that of a second length ---- */

/* Sequences have as many elements as the length says, others as many as before. */
static bool agrees(struct kiln__model_part *part, kiln_type type, size_t bytes, size_t length,
                   bool long_)
{
    bool grows = long_ && part->known && bytes * part->known == part->bytes * length;
    if (part->known && part->known != length) {
        part->row.sequence = grows;
        part->bytes /= grows ? part->known : 1;
        part->known = 0;
    }
    return part->row.type == type && kiln__part_bytes(part, length) == bytes;
}

static kiln_status find_output(struct kiln__model *model, const kiln_batch *batch,
                               const struct kiln__batch_size *size, size_t number,
                               kiln_tensor tensor)
{
    struct kiln__model_part *part = &model->parts[model->input_count + number];
    size_t rank, dims[KILN_MAX_RANK], bytes, rows = size->rows;
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
    if (!bytes ||
        (known && !agrees(part, type, bytes, size->length, rank > 1 && dims[1] == size->length)))
        return kiln__fail(NULL, KILN_SHAPE_MISMATCH,
                          "%s: output %zu of the model for %zu rows has %zu bytes of %s a row%s",
                          call, number, rows, bytes, kiln_type_name(type),
                          known ? ", which is not what it had for fewer or shorter rows" : "");
    if (known)
        return KILN_OK;
    part->bytes = bytes;
    part->row.type = type;
    part->known = model->length_count > 1 ? size->length : 0;
    return KILN_OK;
}

/* ---- a batch ---- */

static kiln_status too_large(size_t rows)
{
    return kiln__fail(NULL, KILN_TOO_LARGE, "%s: %zu rows have too many bytes", call, rows);
}

/* More is not pinned. */
#define MOST_PINNED ((size_t)1 << 28)

/* Memory that the device needs no copy of, else some that it does: what nobody writes to is not
 * there yet either, as far as it is not pinned. */
static bool model_reserve(struct kiln__region *region, kiln_context *context)
{
    if (region->bytes <= MOST_PINNED && !kiln_host_alloc(context, region->bytes, &region->base)) {
        region->context = context;
        return true;
    }
    region->base =
        mmap(NULL, region->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    region->met = true;
    if (region->base == MAP_FAILED)
        region->base = NULL;
    return region->base;
}

static void model_release(struct kiln__region *region)
{
    if (region->context)
        kiln_host_free(region->context, region->base);
    else if (region->base)
        munmap(region->base, region->bytes);
}

void kiln__slot_meet(struct kiln__batch_slot *slot)
{
    if (!slot->in.met)
        memset(slot->in.base, 0, slot->in.bytes);
    slot->in.met = true;
}

/* Memory of some parts, and of lengths with the inputs. */
static kiln_status model_map(struct kiln__batch_slot *slot, struct kiln__region *region,
                             kiln_context *context, const struct kiln__model *model, size_t first,
                             size_t count, const struct kiln__batch_size *size)
{
    size_t offsets[KILN_MODEL_MOST], bytes, lengths = first ? 0 : size->rows * sizeof(int32_t);
    for (size_t i = 0; i < count; i++) {
        const struct kiln__model_part *part = &model->parts[first + i];
        offsets[i] = region->bytes;
        bytes = kiln__part_bytes(part, size->length);
        if (part->bytes > SIZE_MAX / KILN__MOST_LENGTH ||
            __builtin_mul_overflow(bytes, size->rows, &bytes) || bytes > SIZE_MAX / 64)
            return too_large(size->rows);
        region->bytes += (bytes + 4095) / 4096 * 4096;
    }
    size_t end = region->bytes;
    region->bytes += lengths;
    if (!model_reserve(region, context))
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no %zu bytes of memory for rows",
                          call, region->bytes);
    for (size_t i = 0; i < count; i++)
        slot->memory[first + i] = (char *)region->base + offsets[i];
    if (lengths)
        slot->lengths = (int32_t *)(void *)((char *)region->base + end);
    return KILN_OK;
}

/* KILN_OK, or the batch's first error. */
static kiln_status model_look(const kiln_batch *batch, size_t rows)
{
    if (!kiln_batch_status(batch))
        return KILN_OK;
    return kiln__fail(NULL, kiln_batch_status(batch), "%s: the model for %zu rows: %s", call, rows,
                      kiln_batch_error(batch));
}

/* Each row's length, and where it has elements. */
static void record_lengths(struct kiln__batch_slot *slot, const struct kiln__batch_size *size,
                           kiln_tensor *inputs)
{
    kiln_batch *batch = slot->batch;
    inputs[0] = kiln_upload(batch, KILN_I32, 1, &size->rows, slot->lengths);
    kiln_tensor place = kiln_iota(batch, 2, (const size_t[]){1, size->length}, 1);
    inputs[1] =
        kiln_less(batch, place, kiln_reshape(batch, inputs[0], 2, (const size_t[]){size->rows, 1}));
}

static kiln_status record_inputs(struct kiln__batch_slot *slot, kiln_context *context,
                                 const struct kiln__model *model,
                                 const struct kiln__batch_size *size, kiln_tensor *inputs)
{
    kiln_status status = model_map(slot, &slot->in, context, model, 0, model->input_count, size);
    for (size_t i = 0; i < model->input_count && !status; i++) {
        const kiln_row *row = &model->parts[i].row;
        size_t dims[KILN_MAX_RANK] = {size->rows};
        memcpy(dims + 1, row->dims, row->rank * sizeof *dims);
        if (row->sequence)
            dims[1] = size->length;
        inputs[i] = kiln_upload(slot->batch, row->type, row->rank + 1, dims, slot->memory[i]);
    }
    if (!status && size->length)
        record_lengths(slot, size, inputs + model->input_count);
    return status ? status : model_look(slot->batch, size->rows);
}

static kiln_status record_outputs(struct kiln__batch_slot *slot, kiln_context *context,
                                  struct kiln__model *model, const struct kiln__batch_size *size,
                                  const kiln_tensor *outputs)
{
    kiln_status status = KILN_OK;
    size_t first = model->input_count;
    for (size_t i = 0; i < model->output_count && !status; i++)
        status = find_output(model, slot->batch, size, i, outputs[i]);
    if (!status)
        status = model_map(slot, &slot->out, context, model, first, model->output_count, size);
    for (size_t i = 0; i < model->output_count && !status; i++)
        kiln_read(slot->batch, outputs[i], slot->memory[first + i],
                  size->rows * kiln__part_bytes(&model->parts[first + i], size->length));
    return status ? status : model_look(slot->batch, size->rows);
}

kiln_status kiln__slot_record(struct kiln__batch_slot *slot, struct kiln__model *model,
                              kiln_context *context, size_t number,
                              const struct kiln__batch_size *size)
{
    kiln_tensor inputs[KILN_MODEL_MOST + 2] = {{0}}, outputs[KILN_MODEL_MOST] = {{0}};
    size_t rows = size->rows;
    slot->batch = kiln_batch_create(context);
    if (!slot->batch)
        return KILN_OUT_OF_HOST_MEMORY;
    kiln_status status = kiln_batch_set_batch_invariant(slot->batch);
    if (!status)
        status = kiln_batch_set_independent(slot->batch); /* it has memory of its own */
    if (!status)
        status = kiln_batch_set_precision(slot->batch, model->precision);
    if (!status)
        status = record_inputs(slot, context, model, size, inputs);
    if (status)
        return status;
    status = model->record(slot->batch, number, rows, inputs, outputs, model->user);
    if (model_look(slot->batch, rows))
        return kiln_batch_status(slot->batch);
    if (status)
        return kiln__fail(NULL, status < 0 ? status : KILN_INVALID_ARGUMENT,
                          "%s: the model for %zu rows answered %s", call, rows,
                          kiln_status_name(status));
    return record_outputs(slot, context, model, size, outputs);
}

kiln_status kiln__slots_record(struct kiln__slots *slots, struct kiln__model *model,
                               kiln_context *context, size_t number, bool prepare)
{
    kiln_status status = KILN_OK;
    for (unsigned i = 0; i < model->size_count * model->length_count && !status; i++) {
        if (i % model->size_count && model->sizes[i].rows == model->sizes[i - 1].rows)
            continue; /* the last of its length, again */
        status = kiln__slot_record(&slots->of[i], model, context, number, &model->sizes[i]);
        if (!status && prepare)
            status = kiln_batch_prepare(slots->of[i].batch, 0);
    }
    return status;
}

void kiln__slot_free(struct kiln__batch_slot *slot)
{
    kiln_batch_release(slot->batch);
    model_release(&slot->in);
    model_release(&slot->out);
    memset(slot, 0, sizeof *slot);
}

void kiln__slots_free(struct kiln__slots *slots)
{
    for (unsigned i = 0; i < KILN__MOST_SIZES; i++)
        if (slots->of[i].batch)
            kiln__slot_free(&slots->of[i]);
}
