/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of a given length, for tests of linear planning time. */
#include "grown.h"

#include <stdlib.h>

static const size_t square[2] = {GROWN_EDGE, GROWN_EDGE}, line[1] = {GROWN_EDGE};

static kiln_tensor upload(kiln_batch *batch, const struct grown_memory *memory)
{
    return kiln_upload(batch, KILN_F32, 2, square, memory->input);
}

static void read_back(kiln_batch *batch, struct grown_memory *memory, kiln_tensor tensor)
{
    size_t rank, dims[KILN_MAX_RANK], bytes = sizeof(float);
    if (kiln_tensor_shape(batch, tensor, NULL, &rank, dims))
        return;
    for (size_t d = 0; d < rank; d++)
        bytes *= dims[d];
    if (!kiln_read(batch, tensor, memory->results + memory->reads * GROWN_ITEMS, bytes))
        memory->reads++;
}

/* What depends on all of them: a tree of sums, so that no kernel grows too deep. */
static kiln_tensor sum_all(kiln_batch *batch, kiln_tensor *tensors, size_t count)
{
    for (; count > 1; count = (count + 1) / 2)
        for (size_t i = 0; i < count / 2; i++)
            tensors[i] = kiln_add(batch, tensors[i], tensors[count - 1 - i]);
    return tensors[0];
}

/* ---- structures ---- */

static void record_reductions(kiln_batch *batch, size_t n, struct grown_memory *memory)
{
    kiln_tensor x = upload(batch, memory);
    for (size_t i = 0; i < n / 2; i++)
        x = kiln_sub(batch, x, kiln_max(batch, x, 1, (int[]){(int)(i % 2)}, 1));
    read_back(batch, memory, x);
}

static void record_products(kiln_batch *batch, size_t n, struct grown_memory *memory)
{
    kiln_tensor w = upload(batch, memory), x = w;
    for (size_t i = 0; i < n; i++)
        x = kiln_matmul(batch, x, w);
    read_back(batch, memory, x);
}

static void record_wide(kiln_batch *batch, size_t n, struct grown_memory *memory)
{
    kiln_tensor x = upload(batch, memory);
    for (size_t i = 0; i < n / 2; i++)
        read_back(batch, memory, kiln_cumsum(batch, kiln_scale(batch, x, 1 + (double)i), 0, 0));
}

static void record_shared(kiln_batch *batch, size_t n, struct grown_memory *memory)
{
    kiln_tensor *made = malloc((n / 4 + 1) * sizeof *made), x = upload(batch, memory);
    kiln_tensor y = kiln_matmul(batch, x, x);
    if (!made)
        return;
    for (size_t i = 0; i < n / 4 + 1; i++)
        made[i] = kiln_matmul(batch, y, kiln_scale(batch, x, 1 + (double)i));
    read_back(batch, memory, sum_all(batch, made, n / 4 + 1));
    read_back(batch, memory, y);
    free(made);
}

/* Every other value lives until the end, in the order in which they were made. */
static void record_alive(kiln_batch *batch, size_t n, struct grown_memory *memory)
{
    kiln_tensor *made = malloc((n / 3 + 1) * sizeof *made), w = upload(batch, memory), x = w;
    if (!made)
        return;
    for (size_t i = 0; i < n / 3; i++)
        made[i] = x = kiln_matmul(batch, x, i % 2 ? w : x);
    for (size_t i = 0; i < n / 3; i++)
        x = kiln_matmul(batch, x, made[i]);
    for (size_t i = n / 3; i-- > 0;)
        x = kiln_matmul(batch, x, made[i]);
    read_back(batch, memory, x);
    free(made);
}

/* Parts put together and cut again: the cuts see through to the parts. */
static void record_parts(kiln_batch *batch, size_t n, struct grown_memory *memory)
{
    size_t count = n / 4;
    kiln_tensor *parts = calloc(count + 1, sizeof *parts);
    if (!parts)
        return;
    for (size_t i = 0; i < count; i++)
        parts[i] = kiln_exp(batch, kiln_upload(batch, KILN_F32, 1, line, memory->input));
    kiln_tensor whole = kiln_concat(batch, count, parts, 0);
    if (!kiln_split(batch, whole, 0, count, NULL, parts))
        for (size_t i = 0; i < count; i++)
            read_back(batch, memory, kiln_neg(batch, parts[i]));
    read_back(batch, memory, kiln_sum(batch, whole, 0, NULL, 0));
    free(parts);
}

static void record_gradient(kiln_batch *batch, size_t n, struct grown_memory *memory)
{
    kiln_tensor w = upload(batch, memory), x = w, gradient;
    for (size_t i = 0; i < n / 16; i++)
        x = kiln_tanh(batch, kiln_add(batch, kiln_matmul(batch, x, w), x));
    if (!kiln_grad(batch, kiln_sum(batch, x, 0, NULL, 0), &w, 1, &gradient))
        read_back(batch, memory, gradient);
}

/* A step with momentum for each parameter, in the buffers that hold it. */
static void record_training(kiln_batch *batch, size_t n, struct grown_memory *memory)
{
    size_t count = n / 12 + 1;
    kiln_tensor *w = malloc(2 * count * sizeof *w), *gradients = w + count;
    kiln_tensor x = upload(batch, memory);
    if (!w)
        return;
    for (size_t i = 0; i < count; i++) {
        w[i] = kiln_import(batch, memory->buffers[2 * i]);
        x = kiln_tanh(batch, kiln_matmul(batch, x, w[i]));
    }
    kiln_tensor loss = kiln_sum(batch, x, 0, NULL, 0);
    read_back(batch, memory, loss);
    kiln_status status = kiln_grad(batch, loss, w, count, gradients);
    for (size_t i = 0; i < count && !status; i++) {
        kiln_tensor moment = kiln_import(batch, memory->buffers[2 * i + 1]);
        moment = kiln_add(batch, kiln_scale(batch, moment, 0.9), gradients[i]);
        status = kiln_export(batch, moment, memory->buffers[2 * i + 1]);
        if (!status)
            status = kiln_export(batch, kiln_sub(batch, w[i], kiln_scale(batch, moment, 0.1)),
                                 memory->buffers[2 * i]);
    }
    free(w);
}

const struct grown grown[] = {
    {"reductions", "a chain of maps between reductions", record_reductions},
    {"products", "a chain of matrix products", record_products},
    {"wide", "independent results of one input", record_wide},
    {"shared", "one value that all kernels read", record_shared},
    {"alive", "half of all values alive at once", record_alive},
    {"parts", "parts put together and cut again", record_parts},
    {"gradient", "the gradient of a deep chain", record_gradient},
    {"training", "a training step over many parameters", record_training},
    {0},
};
