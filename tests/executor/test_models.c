/* SPDX-License-Identifier: Apache-2.0 */
/* Ready-made models, in batches that several requests share: known answers, and the same computed
 * in double precision. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../support/check.h"
#include "../support/served.h"

enum { ROWS = 24, WIDTH = 4, MOST = 6 };

/* ---- requests: one a row, which all meet ---- */

/* Arrays of ROWS rows, and the numbers of a row of each. */
struct array {
    float *data;
    size_t width;
};

static kiln_executor *open_executor(kiln_context *context, const kiln_model *model, size_t rows)
{
    kiln_executor_options options = served_options(ROWS, 1, 0);
    kiln_executor *executor;
    options.min_batch = rows;
    expect_ok(kiln_executor_create(&context, 1, model, &options, &executor));
    return executor;
}

static kiln_future *submit_row(kiln_executor *executor, const kiln_model *model,
                               const struct array *inputs, const struct array *outputs, size_t row)
{
    kiln_input in[MOST];
    kiln_output out[MOST];
    kiln_future *future;
    for (size_t i = 0; i < model->input_count; i++) {
        size_t width = inputs[i].width;
        in[i] = (kiln_input){inputs[i].data + row * width, width * sizeof(float), KILN_F32};
    }
    for (size_t i = 0; i < model->output_count; i++) {
        size_t width = outputs[i].width;
        out[i] = (kiln_output){outputs[i].data + row * width, width * sizeof(float), KILN_F32};
    }
    expect_ok(kiln_executor_submit(executor, in, out, 1, NULL, &future));
    return future;
}

/* All rows as requests of their own, in batches of `together` rows. */
static void serve(const kiln_model *model, const struct array *inputs, const struct array *outputs,
                  size_t rows, size_t together)
{
    kiln_future *futures[ROWS];
    kiln_context *context = open_context();
    kiln_executor *executor = open_executor(context, model, together);
    for (size_t first = 0; first < rows; first += together) {
        for (size_t i = 0; i < together; i++)
            futures[i] = submit_row(executor, model, inputs, outputs, first + i);
        for (size_t i = 0; i < together; i++) {
            expect_ok(kiln_future_wait(futures[i]));
            kiln_future_release(futures[i]);
        }
    }
    cr_expect_eq(served_stats(executor).batches, rows / together);
    served_end(executor, context);
}

static void expect_near(const float *found, const double *wanted, size_t count, double error)
{
    for (size_t i = 0; i < count; i++)
        cr_expect(fabs((double)found[i] - wanted[i]) <= error * (1 + fabs(wanted[i])),
                  "number %zu is %.9g, not %.9g", i, (double)found[i], wanted[i]);
}

/* From -1 to 1, and no row like another. */
static void spread(float *values, size_t count, double phase)
{
    for (size_t i = 0; i < count; i++)
        values[i] = (float)sin(1.7 * (double)i + phase);
}

/* ---- interpolation ---- */

Test(models, lerp_of_known_rows)
{
    static float a[] = {1, 2, -3, 0.5f, 8, 8}, b[] = {3, -2, 1, 0.5f, 0, 16},
                 weights[] = {0, 0.25f, 1.5f}, y[6];
    static const double wanted[] = {1, 2, -2, 0.5, -4, 20};
    const struct array in[] = {{a, 2}, {b, 2}, {weights, 1}}, out[] = {{y, 2}};
    kiln_model *model;
    expect_ok(kiln_model_create_lerp(DIMS(2), &model));
    serve(model, in, out, 3, 3);
    expect_near(y, wanted, 6, 0);
    kiln_free(model);
}

Test(models, lerp_of_numbers_and_of_matrices)
{
    static float a[6] = {1, 2, 3, 4, 5, 6}, b[6] = {2, 4, 6, 8, 10, 12}, weights[] = {0.5f}, y[6];
    static const double wanted[] = {1.5, 3, 4.5, 6, 7.5, 9};
    const struct array of_number[] = {{a, 1}, {b, 1}, {weights, 1}}, number[] = {{y, 1}};
    const struct array of_matrix[] = {{a, 6}, {b, 6}, {weights, 1}}, matrix[] = {{y, 6}};
    kiln_model *model;
    expect_ok(kiln_model_create_lerp(SCALAR, &model));
    serve(model, of_number, number, 1, 1);
    expect_near(y, wanted, 1, 0);
    kiln_free(model);
    expect_ok(kiln_model_create_lerp(DIMS(2, 3), &model));
    serve(model, of_matrix, matrix, 1, 1);
    expect_near(y, wanted, 6, 0);
    kiln_free(model);
}

static void slerp_in_double(const float *a, const float *b, double t, double *y)
{
    double aa = 0, bb = 0, ab = 0;
    for (int k = 0; k < WIDTH; k++) {
        aa += (double)a[k] * a[k];
        bb += (double)b[k] * b[k];
        ab += (double)a[k] * b[k];
    }
    double angle = acos(ab / sqrt(aa * bb));
    for (int k = 0; k < WIDTH; k++)
        y[k] = sin((1 - t) * angle) / sin(angle) * a[k] + sin(t * angle) / sin(angle) * b[k];
}

/* The first row is a quarter of a circle, in its middle. */
Test(models, slerp_of_quaternions)
{
    static float a[ROWS * WIDTH] = {0}, b[ROWS * WIDTH] = {0}, weights[ROWS], y[ROWS * WIDTH];
    double wanted[ROWS * WIDTH] = {sqrt(0.5), sqrt(0.5), 0, 0};
    const struct array in[] = {{a, WIDTH}, {b, WIDTH}, {weights, 1}}, out[] = {{y, WIDTH}};
    kiln_model *model;
    spread(a + WIDTH, (ROWS - 1) * WIDTH, 0.3);
    spread(b + WIDTH, (ROWS - 1) * WIDTH, 2);
    spread(weights, ROWS, 1);
    a[0] = b[1] = 1;
    weights[0] = 0.5f;
    for (size_t i = 1; i < ROWS; i++)
        slerp_in_double(a + i * WIDTH, b + i * WIDTH, (double)weights[i], wanted + i * WIDTH);
    expect_ok(kiln_model_create_slerp(DIMS(WIDTH), &model));
    serve(model, in, out, ROWS, ROWS);
    expect_near(y, wanted, ROWS * WIDTH, 2e-6);
    kiln_free(model);
}

/* ---- gradients ---- */

/* Logistic regression of a row x with its own weights w and label t, -1 or 1: the logit, and before
 * it the loss log(1 + exp(-t w.x)). */
static kiln_status record_logistic(kiln_batch *batch, size_t context, size_t rows,
                                   const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    (void)context, (void)rows, (void)user;
    kiln_tensor product = kiln_mul(batch, inputs[0], inputs[1]);
    outputs[1] = kiln_sum(batch, product, 1, (const int[]){1}, 0);
    outputs[0] = kiln_softplus(batch, kiln_neg(batch, kiln_mul(batch, inputs[2], outputs[1])));
    return KILN_OK;
}

static const kiln_row logistic_rows[] = {{.type = KILN_F32, .rank = 1, .dims = {WIDTH}},
                                         {.type = KILN_F32, .rank = 1, .dims = {WIDTH}},
                                         {.type = KILN_F32}};
static const kiln_model logistic = {.size = sizeof logistic,
                                    .record = record_logistic,
                                    .input_count = 3,
                                    .inputs = logistic_rows,
                                    .output_count = 2};

struct logistic {
    float x[ROWS * WIDTH], w[ROWS * WIDTH], t[ROWS];
    float loss[ROWS], logit[ROWS], by_w[ROWS * WIDTH], by_x[ROWS * WIDTH];
};

static void serve_logistic(struct logistic *l, size_t together)
{
    const struct array in[] = {{l->x, WIDTH}, {l->w, WIDTH}, {l->t, 1}};
    const struct array out[] = {{l->loss, 1}, {l->logit, 1}, {l->by_w, WIDTH}, {l->by_x, WIDTH}};
    kiln_model *model;
    spread(l->x, ROWS * WIDTH, 0.1);
    spread(l->w, ROWS * WIDTH, 2.2);
    for (size_t i = 0; i < ROWS; i++)
        l->t[i] = i % 3 ? 1 : -1;
    expect_ok(kiln_model_create_gradient(&logistic, 2, (const size_t[]){1, 0}, &model));
    serve(model, in, out, ROWS, together);
    kiln_free(model);
}

Test(models, gradient_of_a_row_among_others)
{
    static struct logistic l;
    serve_logistic(&l, ROWS);
    for (size_t i = 0; i < ROWS; i++) {
        const float *x = l.x + i * WIDTH, *w = l.w + i * WIDTH;
        double logit = 0, by_w[WIDTH], by_x[WIDTH], t = (double)l.t[i];
        for (int k = 0; k < WIDTH; k++)
            logit += (double)x[k] * w[k];
        double loss = log1p(exp(-t * logit)), slope = -t / (1 + exp(t * logit));
        for (int k = 0; k < WIDTH; k++) {
            by_w[k] = slope * x[k];
            by_x[k] = slope * w[k];
        }
        expect_near(&l.loss[i], &loss, 1, 2e-6);
        expect_near(&l.logit[i], &logit, 1, 2e-6);
        expect_near(l.by_w + i * WIDTH, by_w, WIDTH, 2e-6);
        expect_near(l.by_x + i * WIDTH, by_x, WIDTH, 2e-6);
    }
}

Test(models, gradient_alone_has_the_bits_it_has_in_company)
{
    static struct logistic together, alone;
    serve_logistic(&together, ROWS);
    serve_logistic(&alone, 1);
    cr_expect_eq(memcmp(&together, &alone, sizeof alone), 0);
}

/* Between numbers: by the weight it is b - a, by a and b what is left and the weight. */
Test(models, gradient_of_a_ready_made_model)
{
    static float a[] = {1, -2}, b[] = {4, 2}, weights[] = {0.25f, 0.75f}, y[2], by[3][2];
    static const double at[] = {1.75, 1}, by_a[] = {0.75, 0.25}, by_b[] = {0.25, 0.75},
                        by_weight[] = {3, 4};
    const struct array in[] = {{a, 1}, {b, 1}, {weights, 1}};
    const struct array out[] = {{y, 1}, {by[0], 1}, {by[1], 1}, {by[2], 1}};
    kiln_model *lerp, *model;
    expect_ok(kiln_model_create_lerp(SCALAR, &lerp));
    expect_ok(kiln_model_create_gradient(lerp, 3, (const size_t[]){0, 1, 2}, &model));
    serve(model, in, out, 2, 2);
    expect_near(y, at, 2, 0);
    expect_near(by[0], by_a, 2, 1e-6);
    expect_near(by[1], by_b, 2, 1e-6);
    expect_near(by[2], by_weight, 2, 1e-6);
    kiln_free(model);
    kiln_free(lerp);
}

/* ---- refusals ---- */

#define REFUSED(words, made)                                                                       \
    model = (kiln_model *)&logistic;                                                               \
    expect_error(made, KILN_INVALID_ARGUMENT, words);                                              \
    cr_expect_null(model)

Test(models, refusals)
{
    kiln_model *model, of = logistic;
    const size_t first = 0, beyond = 3;
    REFUSED("kiln_model_create_lerp: dims is NULL", kiln_model_create_lerp(1, NULL, &model));
    REFUSED("kiln_model_create_lerp: a row of 8 dimensions, and 7 are the most",
            kiln_model_create_lerp(DIMS(1, 1, 1, 1, 1, 1, 1, 1), &model));
    REFUSED("kiln_model_create_slerp: a row of one number is no vector",
            kiln_model_create_slerp(SCALAR, &model));
    REFUSED("kiln_model_create_gradient: of is NULL",
            kiln_model_create_gradient(NULL, 1, &first, &model));
    REFUSED("kiln_model_create_gradient: inputs is NULL",
            kiln_model_create_gradient(&logistic, 1, NULL, &model));
    REFUSED("kiln_model_create_gradient: 0 gradients beside 2 outputs; a model has 1 to 16",
            kiln_model_create_gradient(&logistic, 0, &first, &model));
    REFUSED("kiln_model_create_gradient: 15 gradients beside 2 outputs; a model has 1 to 16",
            kiln_model_create_gradient(&logistic, 15, &first, &model));
    REFUSED("kiln_model_create_gradient: input 3 of 3",
            kiln_model_create_gradient(&logistic, 1, &beyond, &model));
    of.record = NULL;
    REFUSED("kiln_model_create_gradient: of->record is NULL",
            kiln_model_create_gradient(&of, 1, &first, &model));
    of.size = 0;
    REFUSED("kiln_model_create_gradient: of->size is 0; start from KILN_MODEL_INIT",
            kiln_model_create_gradient(&of, 1, &first, &model));
    of = logistic;
    of.input_count = 17;
    REFUSED("kiln_model_create_gradient: of has 17 inputs and 2 outputs; 1 to 16 are taken",
            kiln_model_create_gradient(&of, 1, &first, &model));
    expect_error(kiln_model_create_lerp(0, NULL, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_model_create_lerp: model is NULL");
    expect_error(kiln_model_create_gradient(&logistic, 1, &first, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_model_create_gradient: model is NULL");
}

/* What only a recording finds, in the words of the call that finds it. */
Test(models, gradient_by_what_is_not_f32)
{
    kiln_row rows[3];
    kiln_model *model, of = logistic;
    kiln_executor *executor;
    kiln_context *context = open_context();
    memcpy(rows, logistic_rows, sizeof rows);
    rows[0].type = KILN_I32;
    of.inputs = rows;
    expect_ok(kiln_model_create_gradient(&of, 1, (const size_t[]){0}, &model));
    kiln_status status = kiln_executor_create(&context, 1, model, NULL, &executor);
    cr_expect_eq(status, KILN_TYPE_MISMATCH, "%s", kiln_last_error());
    kiln_free(model);
    close_context(context);
}
