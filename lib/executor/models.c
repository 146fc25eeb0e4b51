/* SPDX-License-Identifier: Apache-2.0 */
/* Ready-made models. Each is one block of memory: the model, and what it points to. */
#include <kiln/models.h>

#include <stdlib.h>
#include <string.h>

#include <kiln/gradient.h>
#include <kiln/interpolation.h>
#include <kiln/movement.h>
#include <kiln/reductions.h>

#include "executor/model.h"
#include "util/error.h"
#include "util/structure.h"

static kiln_status no_memory(const char *call)
{
    return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", call);
}

/* ---- interpolation ---- */

typedef kiln_tensor interpolation(kiln_batch *batch, kiln_tensor a, kiln_tensor b,
                                  kiln_tensor weight);

struct between {
    kiln_model model;
    kiln_row rows[3]; /* a, b, weight */
    interpolation *of;
};

/* The weight of a row is that of all its numbers. */
static kiln_status record_between(kiln_batch *batch, size_t context, size_t rows,
                                  const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    const struct between *between = user;
    size_t dims[KILN_MAX_RANK] = {rows};
    (void)context;
    for (size_t i = 0; i < between->rows[0].rank; i++)
        dims[i + 1] = 1;
    kiln_tensor weight = kiln_reshape(batch, inputs[2], between->rows[0].rank + 1, dims);
    outputs[0] = between->of(batch, inputs[0], inputs[1], weight);
    return KILN_OK;
}

static kiln_status create_between(const char *call, interpolation *of, size_t rank,
                                  const size_t *dims, kiln_model **result)
{
    if (result)
        *result = NULL;
    if (!result || (rank && !dims))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                          result ? "dims" : "model");
    if (rank >= KILN_MAX_RANK)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: a row of %zu dimensions, and %d are the most", call, rank,
                          KILN_MAX_RANK - 1);
    struct between *between = calloc(1, sizeof *between);
    if (!between)
        return no_memory(call);
    between->of = of;
    for (size_t i = 0; i < 3; i++)
        between->rows[i].type = KILN_F32;
    for (size_t i = 0; i < 2; i++) {
        between->rows[i].rank = rank;
        if (rank)
            memcpy(between->rows[i].dims, dims, rank * sizeof *dims);
    }
    const kiln_model model = {.size = sizeof model,
                              .record = record_between,
                              .user = between,
                              .input_count = 3,
                              .inputs = between->rows,
                              .output_count = 1};
    between->model = model;
    *result = &between->model;
    return KILN_OK;
}

kiln_status kiln_model_create_lerp(size_t rank, const size_t *dims, kiln_model **model)
{
    return create_between(__func__, kiln_lerp, rank, dims, model);
}

/* Without dimensions of its own the vectors would lie across rows. */
kiln_status kiln_model_create_slerp(size_t rank, const size_t *dims, kiln_model **model)
{
    if (rank)
        return create_between(__func__, kiln_slerp, rank, dims, model);
    if (model)
        *model = NULL;
    return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: a row of one number is no vector",
                      __func__);
}

/* ---- gradients ---- */

struct gradient {
    kiln_model model, of;
    kiln_row rows[KILN_MODEL_MOST];
    size_t n, inputs[KILN_MODEL_MOST];
};

/* Rows do not depend on each other: the gradient of the sum of all losses is each row's own. */
static kiln_status record_gradient(kiln_batch *batch, size_t context, size_t rows,
                                   const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    const struct gradient *gradient = user;
    const kiln_model *of = &gradient->of;
    kiln_tensor by[KILN_MODEL_MOST];
    kiln_status status = of->record(batch, context, rows, inputs, outputs, of->user);
    if (status)
        return status;
    for (size_t i = 0; i < gradient->n; i++)
        by[i] = inputs[gradient->inputs[i]];
    return kiln_grad(batch, kiln_sum(batch, outputs[0], 0, NULL, 0), by, gradient->n,
                     outputs + of->output_count);
}

static const char gradient_call[] = "kiln_model_create_gradient";

static kiln_status check_model(const kiln_model *of)
{
    if (!of->record || !of->inputs)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: of->%s is NULL", gradient_call,
                          of->record ? "inputs" : "record");
    if (of->input_count < 1 || of->input_count > KILN_MODEL_MOST || of->output_count < 1)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: of has %zu inputs and %zu outputs; 1 to %d are taken", gradient_call,
                          of->input_count, of->output_count, KILN_MODEL_MOST);
    return KILN_OK;
}

static kiln_status check_inputs(const kiln_model *of, size_t n, const size_t *inputs)
{
    KILN__RETURN_IF_NULL(NULL, gradient_call, inputs);
    if (!n || n > KILN_MODEL_MOST || of->output_count > KILN_MODEL_MOST - n)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: %zu gradients beside %zu outputs; a model has 1 to %d",
                          gradient_call, n, of->output_count, KILN_MODEL_MOST);
    for (size_t i = 0; i < n; i++)
        if (inputs[i] >= of->input_count)
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: input %zu of %zu", gradient_call,
                              inputs[i], of->input_count);
    return KILN_OK;
}

kiln_status kiln_model_create_gradient(const kiln_model *of, size_t n, const size_t *inputs,
                                       kiln_model **model)
{
    if (model)
        *model = NULL;
    else
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: model is NULL", gradient_call);
    KILN__RETURN_IF_NULL(NULL, gradient_call, of);
    kiln_model given;
    kiln_status status = KILN__STRUCTURE_READ(NULL, gradient_call, of, "KILN_MODEL_INIT", &given);
    if (!status)
        status = check_model(&given);
    if (!status)
        status = check_inputs(&given, n, inputs);
    if (status)
        return status;
    struct gradient *gradient = calloc(1, sizeof *gradient);
    if (!gradient)
        return no_memory(gradient_call);
    gradient->of = gradient->model = given;
    for (size_t i = 0; i < given.input_count && !status; i++)
        status = kiln__model_row(gradient_call, &given, i, &gradient->rows[i]);
    if (status) {
        free(gradient);
        return status;
    }
    memcpy(gradient->inputs, inputs, n * sizeof *inputs);
    gradient->n = n;
    gradient->model.record = record_gradient;
    gradient->model.user = gradient;
    gradient->model.size = sizeof gradient->model;
    gradient->model.inputs = gradient->rows;
    gradient->model.row_size = sizeof *gradient->rows;
    gradient->model.output_count = given.output_count + n;
    *model = &gradient->model;
    return KILN_OK;
}
