/* SPDX-License-Identifier: Apache-2.0 */
/* The products are those of networks: activations by square weights. With few rows, as where one
 * request is answered, all weights are read for little work; with many, as in training, each is
 * used often.
 *
 * Elements are multiples of 1/8 from -1 to below 1, which every floating type holds, so that sums
 * of up to 2^18 products are exact in f32 in whatever order: a result is right or wrong, and no
 * bound is needed. */
#include "tune/measure_products.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include <kiln/buffer.h>
#include <kiln/operations.h>
#include <kiln/product.h>

#include "ops/ops.h"
#include "session/context.h"
#include "util/clock.h"
#include "util/log.h"

/* Weights grow from the smallest side until the products with few rows take `ENOUGH` seconds in
 * f32: beside that a launch and the noise of a clock are small, and what all takes is bounded. */
enum { LEAST_SIDE = 256, MOST_SIDE = 4096, MOST_ROWS = 128, MOST_WEIGHTS = 4 };
#define ENOUGH 2e-3

/* On slow devices fewer runs, when all together have taken `LONG` seconds. */
enum { LEAST_RUNS = 3, MOST_RUNS = 16 };
#define LONG 1.0

static const struct form {
    size_t rows, weights;
} forms[] = {{8, MOST_WEIGHTS}, {MOST_ROWS, 1}};
enum { FORMS = sizeof forms / sizeof *forms };

/* The products of one form with operands of one type, each with weights and a result of its own. */
struct products {
    const struct form *form;
    kiln_buffer *x, *weights[MOST_WEIGHTS], *y[MOST_WEIGHTS];
    kiln_batch *batch;
    double seconds[MOST_RUNS];
};

/* What all products of one side start from. */
struct data {
    size_t side;
    float *values; /* side * side, at least MOST_ROWS * side: the content of each operand */
    float *y;      /* MOST_ROWS * side */
    double *check; /* side: the weights by `multiplier` */
};

/* ---- data ---- */

static double measure_multiplier(size_t column)
{
    return (double)((uint32_t)column * UINT32_C(2654435761) >> 22);
}

static void free_data(struct data *data)
{
    free(data->values);
    free(data->y);
    free(data->check);
    *data = (struct data){0};
}

static kiln_status make_data(size_t side, struct data *data)
{
    data->side = side;
    data->values = malloc(side * side * sizeof *data->values);
    data->y = malloc(MOST_ROWS * side * sizeof *data->y);
    data->check = calloc(side, sizeof *data->check);
    if (!data->values || !data->y || !data->check)
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "no memory to measure with");
    for (size_t i = 0; i < side * side; i++) {
        uint32_t mixed = ((uint32_t)i ^ (uint32_t)(i >> 11)) * UINT32_C(2246822519);
        data->values[i] = (float)((int)(mixed >> 28) - 8) / 8;
        data->check[i / side] += (double)data->values[i] * measure_multiplier(i % side);
    }
    return KILN_OK;
}

/* ---- products ---- */

static void free_products(struct products *products)
{
    kiln_batch_release(products->batch);
    kiln_buffer_release(products->x);
    for (size_t i = 0; i < MOST_WEIGHTS; i++) {
        kiln_buffer_release(products->weights[i]);
        kiln_buffer_release(products->y[i]);
    }
    *products = (struct products){0};
}

static kiln_batch *begin_batch(kiln_context *context)
{
    kiln_batch *batch = kiln_batch_create(context);
    if (batch)
        batch->unvalidated = true;
    return batch;
}

/* A buffer of `rows` rows; with `batch`, which fills it from the data when it runs. */
static kiln_status make_operand(kiln_context *context, kiln_batch *batch, kiln_type type,
                                size_t rows, const struct data *data, kiln_buffer **buffer)
{
    const size_t dims[] = {rows, data->side};
    kiln_status status = kiln_buffer_create(context, type, 2, dims, buffer);
    if (status || !batch)
        return status;
    kiln_tensor values = kiln_upload(batch, KILN_F32, 2, dims, data->values);
    return kiln_export(batch, kiln_cast(batch, values, type), *buffer);
}

static kiln_status make_operands(kiln_context *context, kiln_type type, const struct data *data,
                                 struct products *products)
{
    const struct form *form = products->form;
    kiln_batch *fill = begin_batch(context);
    kiln_status status = fill ? KILN_OK : KILN_OUT_OF_HOST_MEMORY;
    if (!status)
        status = make_operand(context, fill, type, form->rows, data, &products->x);
    for (size_t i = 0; i < form->weights && !status; i++) {
        status = make_operand(context, fill, type, data->side, data, &products->weights[i]);
        if (!status)
            status = make_operand(context, NULL, KILN_F32, form->rows, data, &products->y[i]);
    }
    if (!status)
        status = kiln_batch_execute(fill);
    kiln_batch_release(fill);
    return status;
}

static kiln_status record_products(kiln_context *context, struct products *products)
{
    kiln_batch *batch = products->batch = begin_batch(context);
    if (!batch)
        return KILN_OUT_OF_HOST_MEMORY;
    kiln_tensor x = kiln_import(batch, products->x);
    for (size_t i = 0; i < products->form->weights; i++) {
        kiln_tensor weights = kiln_import(batch, products->weights[i]);
        kiln_export(batch, kiln_matmul(batch, x, weights), products->y[i]);
    }
    return KILN_OK;
}

/* R. Freivalds (1977): y = x w, if both give the same column by a third matrix. What that costs is
 * little beside the product, and every element counts. All of these sums are exact. */
static bool is_right(const struct products *products, const struct data *data)
{
    for (size_t i = 0; i < products->form->rows; i++) {
        const float *x = data->values + i * data->side, *y = data->y + i * data->side;
        double wanted = 0, found = 0;
        for (size_t k = 0; k < data->side; k++) {
            wanted += (double)x[k] * data->check[k];
            found += (double)y[k] * measure_multiplier(k);
        }
        if (!(found == wanted))
            return false;
    }
    return true;
}

/* Whether all results of the last run are right. */
static kiln_status check_products(const struct products *products, const struct data *data,
                                  bool *right)
{
    kiln_status status = KILN_OK;
    *right = true;
    for (size_t i = 0; i < products->form->weights && !status && *right; i++) {
        status = kiln_buffer_read(products->y[i], 0, data->y, kiln_buffer_bytes(products->y[i]));
        *right = !status && is_right(products, data);
    }
    return status;
}

/* Make them, run them once, which compiles their kernels, and look at the results. */
static kiln_status make_products(kiln_context *context, const struct form *form, kiln_type type,
                                 const struct data *data, struct products *products, bool *right)
{
    products->form = form;
    kiln_status status = make_operands(context, type, data, products);
    if (!status)
        status = record_products(context, products);
    if (!status)
        status = kiln_batch_execute(products->batch);
    if (!status)
        status = check_products(products, data, right);
    return status;
}

static kiln_status time_products(const struct products *products, double *seconds)
{
    const int64_t start = kiln__now();
    kiln_status status = kiln_batch_execute(products->batch);
    *seconds = 1e-9 * (double)(kiln__now() - start);
    return status;
}

/* ---- the side ---- */

/* The weights of all types in an eighth of the device's memory. */
static bool measure_fits(const kiln_device_info *device, size_t side, size_t types)
{
    const uint64_t matrix = side * side * sizeof(float);
    return side <= MOST_SIDE && matrix <= device->max_allocation &&
           matrix * (MOST_WEIGHTS + 1) * types <= device->memory / 8;
}

/* The data of the side at which a run is long enough. */
static kiln_status choose_side(kiln_context *context, size_t types, struct data *data)
{
    const kiln_device_info *device = &context->runtime.device.info;
    kiln_status status = KILN_OK;
    double seconds = 0;
    for (size_t side = LEAST_SIDE; !status && seconds < ENOUGH; side *= 2) {
        struct products products = {0};
        bool right;
        if (side > LEAST_SIDE && !measure_fits(device, side, types))
            break;
        free_data(data);
        status = make_data(side, data);
        if (!status)
            status = make_products(context, &forms[0], KILN_F32, data, &products, &right);
        if (!status)
            status = time_products(&products, &seconds);
        free_products(&products);
    }
    return status;
}

/* ---- all types ---- */

static void list_types(struct kiln__measured *measured)
{
#define TYPE(name, value, bytes, ctype) KILN_##name,
    static const kiln_type all[] = {KILN_TYPE_MAP(TYPE)};
#undef TYPE
    measured->types[measured->count++] = KILN_F32;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct kiln__type_row *row = kiln__type_row(all[i]);
        if (all[i] != KILN_F32 && row->floating && row->computed == KILN_F32 &&
            measured->count < KILN__MEASURED_TYPES)
            measured->types[measured->count++] = all[i];
    }
}

/* A narrow type that is wrong is out. */
static kiln_status note_wrong(struct kiln__measured *measured, size_t type)
{
    measured->shares[type] = INFINITY;
    if (!type)
        return kiln__fail(NULL, KILN_WRONG_RESULT, "a product of f32 is wrong");
    KILN__LOG(KILN__LOG_ERROR, "a product of %s is wrong, the type is not recommended",
              kiln_type_name(measured->types[type]));
    return KILN_OK;
}

/* Run for run the types take turns, so that what else the machine does meets all of them. */
static kiln_status time_types(const struct kiln__measured *measured,
                              struct products products[][FORMS], size_t *runs)
{
    kiln_status status = KILN_OK;
    double spent = 0;
    for (*runs = 0; *runs < MOST_RUNS && (*runs < LEAST_RUNS || spent < LONG) && !status; ++*runs)
        for (size_t i = 0; i < measured->count * FORMS && !status; i++) {
            struct products *timed = &products[i / FORMS][i % FORMS];
            status = time_products(timed, &timed->seconds[*runs]);
            spent += timed->seconds[*runs];
        }
    return status;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* What the rounds say, each of which compares the types at nearly one time: the share that the type
 * keeps within in three of four. Where other work disturbs some rounds, a type has to win in the
 * others still; where it disturbs all of them, none does. */
static double compare_type(const struct products *products, const struct products *base,
                           size_t runs)
{
    double shares[MOST_RUNS] = {0};
    for (size_t run = 0; run < runs; run++) {
        double product = 1;
        for (size_t form = 0; form < FORMS; form++)
            product *= products[form].seconds[run] / base[form].seconds[run];
        shares[run] = pow(product, 1.0 / FORMS);
    }
    qsort(shares, runs, sizeof *shares, by_value);
    return shares[runs * 3 / 4];
}

kiln_status kiln__measure_products(kiln_context *context, struct kiln__measured *measured)
{
    struct data data = {0};
    struct products products[KILN__MEASURED_TYPES][FORMS] = {0};
    size_t runs = 0;
    *measured = (struct kiln__measured){0};
    list_types(measured);
    kiln_status status = choose_side(context, measured->count, &data);
    measured->side = data.side;
    for (size_t type = 0; type < measured->count; type++)
        for (size_t form = 0; form < FORMS && !status; form++) {
            bool right = true;
            status = make_products(context, &forms[form], measured->types[type], &data,
                                   &products[type][form], &right);
            if (!status && !right)
                status = note_wrong(measured, type);
        }
    if (!status)
        status = time_types(measured, products, &runs);
    for (size_t type = 0; type < measured->count && !status; type++)
        if (isfinite(measured->shares[type]))
            measured->shares[type] = compare_type(products[type], products[0], runs);
    for (size_t type = 0; type < measured->count; type++)
        for (size_t form = 0; form < FORMS; form++)
            free_products(&products[type][form]);
    free_data(&data);
    return status;
}
