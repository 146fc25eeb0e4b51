/* SPDX-License-Identifier: Apache-2.0 */
/* Finite-difference gradient checks in double precision. */
#include "gradient.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "record/batch.h"
#include "reference/reference.h"

#define GRID 0x1p-8
#define STEP 0x1p-11

static const struct kiln__node *node_of(const kiln_batch *batch, kiln_tensor tensor)
{
    return &batch->graph.nodes.items[kiln__tensor_index(tensor)];
}

/* ---- evaluating ---- */

double *check_values(const kiln_batch *batch, kiln_tensor tensor)
{
    struct kiln__request asked = {.node = kiln__tensor_index(tensor), .kind = KILN__READ};
    struct kiln__graph graph = batch->graph;
    struct kiln__reference reference;
    const void *inputs[64];
    cr_assert(batch->bindings.inputs.count <= 64);
    for (size_t i = 0; i < batch->bindings.inputs.count; i++)
        inputs[i] = batch->bindings.inputs.items[i].host;
    graph.requests.items = &asked;
    graph.requests.count = 1;
    cr_assert(kiln__reference_run(&graph, inputs, &reference));
    double *values = reference.values[asked.node];
    reference.values[asked.node] = NULL;
    kiln__reference_free(&reference);
    return values;
}

double check_sum(const kiln_batch *batch, kiln_tensor tensor)
{
    size_t count = kiln__node_count(&batch->graph.nodes.items[kiln__tensor_index(tensor)]);
    double *values = check_values(batch, tensor), sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i] * (double)(i * 3 % 17 + 1);
    free(values);
    return sum;
}

static double value_of(const kiln_batch *batch, kiln_tensor loss)
{
    double *values = check_values(batch, loss), value = values[0];
    free(values);
    return value;
}

/* ---- differences ---- */

static float *content_of(const kiln_batch *batch, kiln_tensor upload)
{
    const struct kiln__node *node = node_of(batch, upload);
    cr_assert_eq(node->kind, KILN__UPLOAD);
    return batch->bindings.inputs.items[node->binding].host;
}

static void move_to_grid(const kiln_batch *batch, kiln_tensor upload)
{
    float *content = content_of(batch, upload);
    for (size_t i = 0; i < kiln__node_count(node_of(batch, upload)); i++)
        content[i] = (float)((floor(content[i] / GRID) + 0.5) * GRID);
}

static double loss_at(const kiln_batch *batch, kiln_tensor loss, float *place, double value)
{
    float before = *place;
    *place = (float)value;
    cr_assert(*place == value, "%g is no float", value);
    double moved = value_of(batch, loss);
    *place = before;
    return moved;
}

/* Off by STEP^4 / 30 times the fifth derivative. */
static double difference(const kiln_batch *batch, kiln_tensor loss, float *place)
{
    double x = *place;
    double near = loss_at(batch, loss, place, x + STEP) - loss_at(batch, loss, place, x - STEP);
    double far =
        loss_at(batch, loss, place, x + 2 * STEP) - loss_at(batch, loss, place, x - 2 * STEP);
    return (8 * near - far) / (12 * STEP);
}

static void compare(const kiln_batch *batch, kiln_tensor loss, size_t number, kiln_tensor input,
                    kiln_tensor gradient, double tolerance)
{
    const struct kiln__node *node = node_of(batch, input);
    float *content = content_of(batch, input);
    double *found = check_values(batch, gradient), largest = 1;
    size_t count = kiln__node_count(node), wrong = 0;
    cr_assert(kiln__shape_equal(&node_of(batch, gradient)->shape, &node->shape),
              "the gradient of input %zu has shape %s", number,
              kiln__shape_text(&node_of(batch, gradient)->shape).text);
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(found[i]));
    for (size_t i = 0; i < count; i++) {
        double wanted = difference(batch, loss, &content[i]);
        if (!(fabs(found[i] - wanted) <= tolerance * largest) && wrong++ == 0)
            cr_expect(false, "input %zu, element %zu (%g): the gradient is %.12g, not %.12g",
                      number, i, content[i], found[i], wanted);
    }
    free(found);
}

/* Weights tell elements apart: a gradient that arrives at a wrong place is wrong. */
static kiln_tensor weighted_sum(kiln_batch *batch, kiln_tensor y)
{
    struct kiln__shape shape = node_of(batch, y)->shape;
    size_t count = kiln__shape_count(&shape);
    float *weights = malloc((count + 1) * sizeof *weights);
    cr_assert(weights);
    for (size_t i = 0; i < count; i++)
        weights[i] = (float)((double)(i * 7 % 11) / 16 + 0.625);
    kiln_tensor w = check_given(batch, KILN_F32, shape.rank, shape.dims, weights);
    free(weights);
    return kiln_sum(batch, kiln_mul(batch, y, w), 0, NULL, 0);
}

kiln_tensor check_gradient(kiln_batch *batch, kiln_tensor y, size_t n, const kiln_tensor *inputs,
                           double tolerance, kiln_tensor *out)
{
    kiln_tensor gradients[8];
    cr_assert_leq(n, 8);
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    for (size_t i = 0; i < n; i++)
        move_to_grid(batch, inputs[i]);
    kiln_tensor loss = weighted_sum(batch, y);
    kiln_grad(batch, loss, inputs, n, gradients);
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    for (size_t i = 0; i < n; i++)
        compare(batch, loss, i, inputs[i], gradients[i], tolerance);
    if (out)
        memcpy(out, gradients, n * sizeof *out);
    return loss;
}

void expect_gradient(kiln_batch *batch, kiln_tensor y, size_t n, const kiln_tensor *inputs)
{
    check_gradient(batch, y, n, inputs, GRADIENT_TOLERANCE, NULL);
    check_end(batch);
}

void expect_zeros(kiln_batch *batch, kiln_tensor gradient, size_t count)
{
    kiln_type type;
    size_t rank, dims[KILN_MAX_RANK], found = 1;
    expect_ok(kiln_tensor_shape(batch, gradient, &type, &rank, dims));
    for (size_t d = 0; d < rank; d++)
        found *= dims[d];
    cr_expect_eq(type, KILN_F32);
    cr_expect_eq(found, count);
    double *values = check_values(batch, gradient);
    for (size_t i = 0; i < count; i++)
        cr_expect_eq(values[i], 0);
    free(values);
}
