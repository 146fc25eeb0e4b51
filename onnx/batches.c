/* SPDX-License-Identifier: Apache-2.0 */
/* Cache of recorded batches by input shapes, and the run of a model on host arrays. */
#include "onnx/batches.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/kiln.h>

#include "onnx/error.h"
#include "onnx/types.h"

/* Arrays of so many bytes are bound where a caller of kiln_model_run() has them; wrapping smaller
 * ones takes longer than copying them. */
#define LARGE 65536

/* A batch, on lease or kept. Inputs and outputs that are large have no memory of their own before
 * kiln_model_batch() gives it: what they were bound to in a run may be gone since. */
struct kiln__onnx_cached {
    kiln_model_lease lease; /* first: a caller has its address */
    kiln_onnx_model *model;
    bool borrows;                   /* large ones have no memory of their own */
    struct kiln__onnx_cached *next; /* among the kept: less recently used */
    kiln_array *contents; /* of inputs that decide about shapes: copies, else data is NULL */
};

static size_t bytes_of(const kiln_array *array)
{
    size_t count = 1;
    for (size_t i = 0; i < array->rank; i++)
        count *= array->dims[i];
    return count * kiln_type_size(array->type);
}

static bool same_shape(const kiln_array *a, const kiln_array *b)
{
    return a->type == b->type && a->rank == b->rank &&
           (!a->rank || !memcmp(a->dims, b->dims, a->rank * sizeof *a->dims));
}

/* Whether a batch was recorded for inputs like these. */
static bool fits(const struct kiln__onnx_cached *kept, const kiln_array *inputs)
{
    for (size_t i = 0; i < kept->lease.n_inputs; i++) {
        const kiln_array *content = &kept->contents[i];
        if (!same_shape(&kept->lease.inputs[i], &inputs[i]))
            return false;
        const size_t bytes = content->data ? bytes_of(content) : 0;
        if (bytes && (!inputs[i].data || memcmp(content->data, inputs[i].data, bytes)))
            return false;
    }
    return true;
}

/* ---- making and releasing one ---- */

static void release(struct kiln__onnx_cached *kept)
{
    kiln_context *context = kept->model->context;
    kiln_batch_release(kept->lease.batch);
    for (size_t i = 0; kept->lease.inputs && i < kept->lease.n_inputs; i++)
        (void)kiln_host_free(context, kept->lease.inputs[i].data);
    for (size_t i = 0; kept->lease.outputs && i < kept->lease.n_outputs; i++)
        (void)kiln_host_free(context, kept->lease.outputs[i].data);
    for (size_t i = 0; kept->contents && i < kept->lease.n_inputs; i++)
        free(kept->contents[i].data);
    free(kept->contents);
    free(kept->lease.inputs);
    free(kept->lease.outputs);
    free(kept->lease.input_tensors);
    free(kept);
}

/* Room for an array's elements, at least one. */
static kiln_status find_room(kiln_context *context, kiln_array *array)
{
    size_t bytes = bytes_of(array);
    return kiln_host_alloc(context, bytes ? bytes : 1, &array->data);
}

static bool is_large(const kiln_array *array)
{
    return bytes_of(array) >= LARGE;
}

static kiln_status enter_input(struct kiln__onnx_cached *kept, size_t i, const kiln_array *given)
{
    kiln_array *input = &kept->lease.inputs[i];
    *input = *given;
    input->data = NULL;
    if (kept->model->inputs[i].content) {
        size_t bytes = bytes_of(given);
        kept->contents[i] = *given;
        kept->contents[i].data = malloc(bytes ? bytes : 1);
        if (!kept->contents[i].data)
            return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_batch: no memory");
        if (bytes)
            memcpy(kept->contents[i].data, given->data, bytes);
        return KILN_OK;
    }
    const bool borrowed = kept->borrows && is_large(given);
    kiln_status status = borrowed ? KILN_OK : find_room(kept->model->context, input);
    if (!status)
        kept->lease.input_tensors[i] =
            kiln_upload(kept->lease.batch, input->type, input->rank, input->dims,
                        borrowed ? given->data : input->data);
    return status ? status : kiln_batch_status(kept->lease.batch);
}

/* What arrays without memory are bound to between runs; nothing is there to be read. */
static void *nowhere(struct kiln__onnx_cached *kept)
{
    return kept;
}

static kiln_status ask_output(struct kiln__onnx_cached *kept, size_t i, kiln_tensor tensor)
{
    kiln_array *output = &kept->lease.outputs[i];
    kiln_batch *batch = kept->lease.batch;
    kiln_status status =
        kiln_tensor_shape(batch, tensor, &output->type, &output->rank, output->dims);
    const bool borrowed = !status && kept->borrows && is_large(output);
    if (!status && !borrowed)
        status = find_room(kept->model->context, output);
    return status ? status
                  : kiln_read(batch, tensor, borrowed ? nowhere(kept) : output->data,
                              bytes_of(output));
}

/* Inputs and outputs are bound to their own memory, or nowhere. */
static void bind_own(struct kiln__onnx_cached *kept)
{
    const kiln_model_lease *lease = &kept->lease;
    for (size_t i = 0; i < lease->n_inputs; i++)
        if (lease->input_tensors[i].id)
            (void)kiln_rebind_upload(lease->batch, lease->input_tensors[i],
                                     lease->inputs[i].data ? lease->inputs[i].data : nowhere(kept));
    for (size_t i = 0; i < lease->n_outputs; i++)
        (void)kiln_rebind_read(lease->batch, i,
                               lease->outputs[i].data ? lease->outputs[i].data : nowhere(kept),
                               bytes_of(&lease->outputs[i]));
}

/* Memory for the large ones, too. */
static kiln_status give_memory(struct kiln__onnx_cached *kept)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < kept->lease.n_inputs && !status; i++)
        if (kept->lease.input_tensors[i].id && !kept->lease.inputs[i].data)
            status = find_room(kept->model->context, &kept->lease.inputs[i]);
    for (size_t i = 0; i < kept->lease.n_outputs && !status; i++)
        if (!kept->lease.outputs[i].data)
            status = find_room(kept->model->context, &kept->lease.outputs[i]);
    kept->borrows = status != KILN_OK;
    bind_own(kept);
    return status;
}

static bool allocate(struct kiln__onnx_cached *kept)
{
    size_t ins = kept->lease.n_inputs, outs = kept->lease.n_outputs;
    kept->contents = calloc(ins + 1, sizeof *kept->contents);
    kept->lease.inputs = calloc(ins + 1, sizeof *kept->lease.inputs);
    kept->lease.outputs = calloc(outs + 1, sizeof *kept->lease.outputs);
    kept->lease.input_tensors = calloc(ins + 1, sizeof *kept->lease.input_tensors);
    return kept->contents && kept->lease.inputs && kept->lease.outputs && kept->lease.input_tensors;
}

/* The outputs are the batch's reads, in their order. */
static kiln_status record(struct kiln__onnx_cached *kept)
{
    size_t n = kept->lease.n_outputs;
    kiln_tensor *outputs = calloc(n + 1, sizeof *outputs);
    if (!outputs)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_batch: no memory");
    kiln_status status = kiln_model_record(kept->model, kept->lease.batch,
                                           kept->lease.input_tensors, kept->contents, outputs);
    for (size_t i = 0; i < n && !status; i++)
        status = ask_output(kept, i, outputs[i]);
    free(outputs);
    return status;
}

static kiln_status make(kiln_onnx_model *model, const kiln_array *inputs, bool borrows,
                        struct kiln__onnx_cached **result)
{
    struct kiln__onnx_cached *kept = calloc(1, sizeof *kept);
    if (!kept)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_batch: no memory");
    kept->model = model;
    kept->borrows = borrows;
    kept->lease.size = sizeof kept->lease;
    kept->lease.n_inputs = kiln_model_inputs(model, NULL);
    kept->lease.n_outputs = kiln_model_outputs(model, NULL);
    kiln_status status = KILN_OK;
    if (!allocate(kept))
        status = kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_batch: no memory");
    else if (!(kept->lease.batch = kiln_batch_create(model->context)))
        status = KILN_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; i < kept->lease.n_inputs && !status; i++)
        status = enter_input(kept, i, &inputs[i]);
    if (!status)
        status = record(kept);
    if (status) {
        release(kept);
        return status;
    }
    *result = kept;
    return KILN_OK;
}

/* ---- those that are kept ---- */

static struct kiln__onnx_cached *take(kiln_onnx_model *model, const kiln_array *inputs)
{
    struct kiln__onnx_cached *found = NULL;
    pthread_mutex_lock(&model->lock);
    for (struct kiln__onnx_cached **at = &model->kept; *at; at = &(*at)->next)
        if (fits(*at, inputs)) {
            found = *at;
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&model->lock);
    return found;
}

/* Enter a batch as the one most recently used; what is then too much comes back. */
static struct kiln__onnx_cached *keep(kiln_onnx_model *model, struct kiln__onnx_cached *kept)
{
    pthread_mutex_lock(&model->lock);
    kept->next = model->kept;
    model->kept = kept;
    struct kiln__onnx_cached **at = &model->kept;
    for (size_t n = 0; *at && n < model->options.batches; n++)
        at = &(*at)->next;
    struct kiln__onnx_cached *surplus = *at;
    *at = NULL;
    pthread_mutex_unlock(&model->lock);
    return surplus;
}

static void release_all(struct kiln__onnx_cached *kept)
{
    while (kept) {
        struct kiln__onnx_cached *next = kept->next;
        release(kept);
        kept = next;
    }
}

void kiln__onnx_free_cached(kiln_onnx_model *model)
{
    release_all(model->kept);
    model->kept = NULL;
}

/* Whether inputs can be looked at: shapes that can be counted, content where it is needed. */
static kiln_status check_inputs(const kiln_onnx_model *model, const char *call,
                                const kiln_array *inputs)
{
    size_t n = kiln_model_inputs(model, NULL), count;
    if (n && !inputs)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT, "%s: inputs is NULL", call);
    for (size_t i = 0; i < n; i++) {
        const char *name = model->inputs[i].name;
        if (inputs[i].rank > KILN_MAX_RANK || !kiln_type_size(inputs[i].type))
            return kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                                   "%s: input '%s' has no type, or more than %d dimensions", call,
                                   name, KILN_MAX_RANK);
        if (!kiln__onnx_count(inputs[i].rank, inputs[i].dims, &count))
            return kiln__onnx_fail(
                KILN_TOO_LARGE, "%s: input '%s' has more elements than can be counted", call, name);
        if (model->inputs[i].content && !inputs[i].data && count)
            return kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                                   "%s: input '%s' decides about shapes, and its data is NULL",
                                   call, name);
    }
    return KILN_OK;
}

/* One that is kept, or a new one. `borrows`: its holder binds what is large. */
static kiln_status find_batch(kiln_onnx_model *model, const kiln_array *inputs, bool borrows,
                              struct kiln__onnx_cached **result)
{
    struct kiln__onnx_cached *kept = take(model, inputs);
    kiln_status status = kept ? KILN_OK : make(model, inputs, borrows, &kept);
    if (!status && kept->borrows && !borrows)
        status = give_memory(kept);
    if (!status)
        *result = kept;
    else if (kept)
        release(kept);
    return status;
}

kiln_status kiln_model_batch(kiln_onnx_model *model, const kiln_array *inputs,
                             kiln_model_lease **lease)
{
    struct kiln__onnx_cached *kept = NULL;
    if (!lease)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT, "kiln_model_batch: lease is NULL");
    *lease = NULL;
    if (!model)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT, "kiln_model_batch: model is NULL");
    kiln_status status = check_inputs(model, "kiln_model_batch", inputs);
    if (!status)
        status = find_batch(model, inputs, false, &kept);
    if (!status)
        *lease = &kept->lease;
    return status;
}

void kiln_model_batch_return(kiln_model_lease *lease)
{
    if (!lease)
        return;
    struct kiln__onnx_cached *kept = (struct kiln__onnx_cached *)lease;
    bind_own(kept);
    if (kiln_batch_status(lease->batch)) /* of its holder's making, and it stays */
        release(kept);
    else
        release_all(keep(kept->model, kept));
}

/* ---- running once ---- */

#define ALIGNMENT 64 /* of results: a line of a processor's cache */

static kiln_status make_outputs(const kiln_model_lease *lease, kiln_array *outputs)
{
    for (size_t i = 0; i < lease->n_outputs; i++) {
        outputs[i] = lease->outputs[i];
        outputs[i].data =
            aligned_alloc(ALIGNMENT, (bytes_of(&outputs[i]) / ALIGNMENT + 1) * ALIGNMENT);
        if (!outputs[i].data)
            return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_run: no memory");
    }
    return KILN_OK;
}

/* What is large is read and written where the caller has it; else it is copied. */
static kiln_status bring_inputs(const kiln_model_lease *lease, const kiln_array *inputs)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < lease->n_inputs && !status; i++)
        if (!lease->input_tensors[i].id || !bytes_of(&inputs[i]))
            continue;
        else if (is_large(&inputs[i]))
            status = kiln_rebind_upload(lease->batch, lease->input_tensors[i], inputs[i].data);
        else
            memcpy(lease->inputs[i].data, inputs[i].data, bytes_of(&inputs[i]));
    return status;
}

static kiln_status bind_outputs(const kiln_model_lease *lease, const kiln_array *outputs)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < lease->n_outputs && !status; i++)
        if (is_large(&outputs[i]))
            status = kiln_rebind_read(lease->batch, i, outputs[i].data, bytes_of(&outputs[i]));
    return status;
}

static void copy_out(const kiln_model_lease *lease, const kiln_array *outputs)
{
    for (size_t i = 0; i < lease->n_outputs; i++)
        if (bytes_of(&outputs[i]) && !is_large(&outputs[i]))
            memcpy(outputs[i].data, lease->outputs[i].data, bytes_of(&outputs[i]));
}

/* uint64 is computed as i64, and from 2^63 on its numbers are negative there. */
static kiln_status check_range(const kiln_onnx_model *model, size_t input, const kiln_array *array)
{
    const int64_t *numbers = array->data;
    if (model->input_types[input] != ONNX__TENSOR_PROTO__DATA_TYPE__UINT64 ||
        array->type != KILN_I64)
        return KILN_OK;
    for (size_t i = 0; i < bytes_of(array) / sizeof *numbers; i++)
        if (numbers[i] < 0)
            return kiln__onnx_fail(
                KILN_INVALID_ARGUMENT,
                "kiln_model_run: input '%s' is uint64, and element %zu is %" PRId64,
                model->inputs[input].name, i, numbers[i]);
    return KILN_OK;
}

static kiln_status run(kiln_onnx_model *model, const kiln_array *inputs, kiln_array *outputs)
{
    struct kiln__onnx_cached *kept = NULL;
    kiln_status status = find_batch(model, inputs, true, &kept);
    if (status)
        return status;
    status = make_outputs(&kept->lease, outputs);
    if (!status)
        status = bring_inputs(&kept->lease, inputs);
    if (!status)
        status = bind_outputs(&kept->lease, outputs);
    if (!status)
        status = kiln_batch_execute(kept->lease.batch);
    if (!status)
        copy_out(&kept->lease, outputs);
    kiln_model_batch_return(&kept->lease);
    return status;
}

kiln_status kiln_model_run(kiln_onnx_model *model, const kiln_array *inputs, kiln_array *outputs)
{
    if (!model || !outputs)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT, "kiln_model_run: %s is NULL",
                               model ? "outputs" : "model");
    size_t n = kiln_model_outputs(model, NULL);
    memset(outputs, 0, n * sizeof *outputs);
    kiln_status status = check_inputs(model, "kiln_model_run", inputs);
    for (size_t i = 0; i < kiln_model_inputs(model, NULL) && !status; i++)
        if (!inputs[i].data && bytes_of(&inputs[i]))
            status = kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                                     "kiln_model_run: the data of input '%s' is NULL",
                                     model->inputs[i].name);
        else
            status = check_range(model, i, &inputs[i]);
    if (!status)
        status = run(model, inputs, outputs);
    for (size_t i = 0; i < n && status; i++) {
        free(outputs[i].data);
        outputs[i] = (kiln_array){0};
    }
    return status;
}
