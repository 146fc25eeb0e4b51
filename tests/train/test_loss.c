/* SPDX-License-Identifier: Apache-2.0 */
/* Losses and their gradients against PyTorch 1.13 (torch.nn.functional, float64). */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../support/check.h"
#include "../support/context.h"
#include "../support/movement.h"
#include "../support/pattern.h"

/* One loss of x and a target, and its gradient by x. */
struct result {
    float loss;
    float gradient[16];
};

typedef kiln_tensor loss_function(kiln_batch *batch, kiln_tensor x, kiln_tensor target);

static struct result run(loss_function *loss, size_t rank, const size_t *dims, const float *x,
                         kiln_type type, size_t target_rank, const void *target)
{
    struct result result = {0};
    size_t count = 1;
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor in = kiln_upload(batch, KILN_F32, rank, dims, x), g;
    kiln_tensor made = loss(batch, in, kiln_upload(batch, type, target_rank, dims, target));
    expect_ok(kiln_grad(batch, made, &in, 1, &g));
    expect_ok(kiln_read(batch, made, &result.loss, sizeof result.loss));
    expect_ok(kiln_read(batch, g, result.gradient, count * sizeof(float)));
    run_batch(batch);
    kiln_batch_release(batch);
    close_context(context);
    return result;
}

static void expect_close(double found, double wanted, const char *what, int i)
{
    /* A loss is the difference of two numbers that may be larger. */
    double bound = *what == 'l' ? 4e-7 * (fabs(wanted) + 1) : 4e-7 * (fabs(wanted) + 1e-2);
    cr_expect_float_eq(found, wanted, bound, "%s %d: %.9g, not %.9g", what, i, found, wanted);
}

static void expect_result(const struct result *found, double loss, int n, const double *gradient)
{
    expect_close(found->loss, loss, "loss", 0);
    for (int i = 0; i < n; i++)
        expect_close(found->gradient[i], gradient[i], "gradient", i);
}

#define ROWS 4
#define CLASSES 3

static const float logits[ROWS * CLASSES] = {1, 2, -1, 0, 0, 0, 100, -100, 3, -2, .5F, 88};
static const float scores[] = {0, 1, -1, 50, -120, 3.5F}, targets[] = {0, 1, .25F, 0, 1, .5F};

/* ---- known answers ---- */

Test(loss, cross_entropy)
{
    static const uint8_t bytes[] = {1, 2, 0, 0};
    static const int32_t words[] = {1, 2, 0, 0};
    static const double gradient[] = {0.06487411508560478,
                                      -0.0736538718254397,
                                      0.008779756739834933,
                                      0.08333333333333333,
                                      0.08333333333333333,
                                      -0.16666666666666669,
                                      0,
                                      0,
                                      0,
                                      -0.25,
                                      0,
                                      0.25};
    const size_t dims[] = {ROWS, CLASSES};
    struct result of_bytes = run(kiln_cross_entropy, 2, dims, logits, KILN_U8, 1, bytes);
    struct result of_words = run(kiln_cross_entropy, 2, dims, logits, KILN_I32, 1, words);
    expect_result(&of_bytes, 22.861906126359074, ROWS * CLASSES, gradient);
    cr_expect_eq(memcmp(&of_bytes, &of_words, sizeof of_bytes), 0);
}

Test(loss, cross_entropy_of_one_row_and_of_more_dimensions)
{
    static const uint8_t labels[] = {1, 2, 0, 0};
    struct result one = run(kiln_cross_entropy, 1, (size_t[]){CLASSES}, logits, KILN_U8, 0, labels);
    expect_close(one.loss, 0.34901221676818, "loss", 0);
    struct result two =
        run(kiln_cross_entropy, 3, (size_t[]){2, 1, CLASSES}, logits, KILN_U8, 2, labels);
    expect_close(two.loss, 0.72381225271814809, "loss", 0);
}

Test(loss, binary_cross_entropy)
{
    static const double gradient[] = {0.08333333333333333,   -0.04482357022833252,
                                      0.0031569035616658505, 0.16666666666666666,
                                      -0.16666666666666666,  0.07844796154144061};
    struct result found =
        run(kiln_binary_cross_entropy, 1, (size_t[]){6}, scores, KILN_F32, 1, targets);
    expect_result(&found, 28.891570162311506, 6, gradient);
}

/* log(1 + exp(-60)) = 8.7565e-27 (mpmath): nothing is lost beside a 60. */
Test(loss, binary_cross_entropy_of_the_sure_is_not_rounded_to_0)
{
    static const float x[] = {60, -60}, target[] = {1, 0};
    struct result found = run(kiln_binary_cross_entropy, 1, (size_t[]){2}, x, KILN_F32, 1, target);
    cr_expect_float_eq(found.loss, 8.75651076269652e-27, 1e-32, "%g", found.loss);
}

Test(loss, mean_squared_error)
{
    static const double gradient[] = {
        0, 0, -0.41666666666666663, 16.666666666666664, -40.33333333333333, 1};
    struct result found =
        run(kiln_mean_squared_error, 1, (size_t[]){6}, scores, KILN_F32, 1, targets);
    expect_result(&found, 2858.59375, 6, gradient);
}

/* ---- the unusual ---- */

Test(loss, a_label_that_is_no_class_makes_nan)
{
    const size_t dims[] = {1, CLASSES};
    for (int32_t label = -1; label <= CLASSES; label++) {
        struct result found = run(kiln_cross_entropy, 2, dims, logits, KILN_I32, 1, &label);
        bool exists = label >= 0 && label < CLASSES;
        cr_expect(exists ? !isnan(found.loss) : isnan(found.loss), "%d", label);
    }
}

/* A class that is ruled out is no NaN unless it is the label: then the loss is infinite. */
Test(loss, classes_that_are_ruled_out)
{
    static const float ruled[] = {1, -INFINITY, 1};
    const size_t dims[] = {1, CLASSES};
    uint8_t label = 0;
    struct result found = run(kiln_cross_entropy, 2, dims, ruled, KILN_U8, 1, &label);
    expect_close(found.loss, 0.693147180559945, "loss", 0);
    expect_close(found.gradient[1], 0, "gradient", 1);
    label = 1;
    found = run(kiln_cross_entropy, 2, dims, ruled, KILN_U8, 1, &label);
    cr_expect(isinf(found.loss) && found.loss > 0, "%g", found.loss);
}

Test(loss, nan_in_nan_out)
{
    static const float x[] = {1, NAN, 1};
    static const uint8_t label = 0;
    const size_t dims[] = {1, CLASSES};
    cr_expect(isnan(run(kiln_cross_entropy, 2, dims, x, KILN_U8, 1, &label).loss));
    cr_expect(isnan(run(kiln_mean_squared_error, 2, dims, x, KILN_F32, 2, logits).loss));
    cr_expect(isnan(run(kiln_binary_cross_entropy, 2, dims, x, KILN_F32, 2, targets).loss));
}

Test(loss, as_the_reference)
{
    static const size_t shapes[][2] = {{7, 10}, {33, 1009}, {0, 5}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        kiln_batch *batch = check_begin();
        size_t rows = shapes[i][0], classes = shapes[i][1];
        kiln_tensor x = check_input(batch, KILN_F32, 2, shapes[i], CHECK_PLAIN), g;
        kiln_tensor labels = check_input(batch, KILN_U8, 1, &rows, CHECK_PLAIN);
        if (classes < 256)
            labels =
                kiln_minimum(batch, labels, kiln_constant(batch, KILN_U8, (double)classes - 1));
        kiln_tensor loss = kiln_cross_entropy(batch, x, labels);
        check_read(batch, loss);
        expect_ok(kiln_grad(batch, loss, &x, 1, &g));
        check_read(batch, g);
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

/* ---- misuse ---- */

#define MISUSE(status, sentence, call)                                                             \
    do {                                                                                           \
        kiln_batch *batch = kiln_batch_create(context);                                            \
        kiln_tensor one = kiln_fill(batch, KILN_F32, 1, (size_t[]){3}, 1);                         \
        kiln_tensor two = kiln_fill(batch, KILN_F32, 2, (size_t[]){3, 3}, 1);                      \
        kiln_tensor whole = kiln_fill(batch, KILN_I32, 1, (size_t[]){3}, 1);                       \
        (void)one, (void)two, (void)whole;                                                         \
        cr_expect_eq((call).id, 0u);                                                               \
        cr_expect_eq(kiln_batch_status(batch), status);                                            \
        cr_expect_str_eq(without_call(kiln_batch_error(batch)), sentence);                         \
        kiln_batch_release(batch);                                                                 \
    } while (0)

Test(loss, misuse_is_named)
{
    kiln_context *context = open_context();
    const kiln_tensor none = {0};
    MISUSE(KILN_SHAPE_MISMATCH,
           "kiln_mean_squared_error: shapes [3] of x and [3,3] of target must be equal",
           kiln_mean_squared_error(batch, one, two));
    MISUSE(KILN_TYPE_MISMATCH,
           "kiln_mean_squared_error: operand x is i32, and only floating types are taken; cast it",
           kiln_mean_squared_error(batch, whole, one));
    MISUSE(KILN_INVALID_HANDLE, "kiln_mean_squared_error: operand target is the empty tensor",
           kiln_mean_squared_error(batch, one, none));
    MISUSE(KILN_TYPE_MISMATCH,
           "kiln_binary_cross_entropy: operand target is i32, and only floating types are taken; "
           "cast it",
           kiln_binary_cross_entropy(batch, one, whole));
    MISUSE(KILN_INVALID_HANDLE, "kiln_binary_cross_entropy: operand logits is the empty tensor",
           kiln_binary_cross_entropy(batch, none, one));
    MISUSE(KILN_INVALID_HANDLE, "kiln_cross_entropy: operand labels is the empty tensor",
           kiln_cross_entropy(batch, two, none));
    MISUSE(KILN_TYPE_MISMATCH, "kiln_cross_entropy: labels are f32, and only integers are taken",
           kiln_cross_entropy(batch, two, one));
    MISUSE(KILN_SHAPE_MISMATCH,
           "kiln_cross_entropy: logits are [3] and labels [3], not one for each row",
           kiln_cross_entropy(batch, one, whole));
    MISUSE(KILN_SHAPE_MISMATCH,
           "kiln_cross_entropy: logits are [] and labels [3], not one for each row",
           kiln_cross_entropy(batch, kiln_constant(batch, KILN_F32, 1), whole));
    close_context(context);
}

/* ---- options ---- */

static kiln_tensor record_options(kiln_batch *b, kiln_tensor x, kiln_cross_entropy_options *options,
                                  bool weighted)
{
    static const int32_t label[] = {0, 3, 1, 2, 2, 3};
    const size_t classes = 4;
    if (weighted)
        options->class_weights =
            kiln_add(b, kiln_abs(b, pattern(b, 1, &classes, 8)), kiln_constant(b, KILN_F32, 0.25));
    return kiln_cross_entropy_with(b, x, check_given(b, KILN_I32, DIMS(6), label), options);
}

/* PyTorch 2.15 in float64: the mean, the sum, each row's. */
Test(loss, slow_cross_entropy_with_options)
{
    static const struct {
        int weighted;
        double smoothing;
        int ignores;
        int32_t ignored;
        double both[2], each[6];
    } rows[] = {{0,
                 0,
                 0,
                 0,
                 {1.61964686, 9.71788115},
                 {1.97815048, 0.976329543, 0.860745145, 2.27082084, 2.12723977, 1.50459536}},
                {1,
                 0,
                 0,
                 0,
                 {1.41151478, 4.23454434},
                 {1.23634405, 0.366123579, 0.968338289, 0.567705211, 0.531809943, 0.564223262}},
                {0,
                 0.1,
                 0,
                 0,
                 {1.61443853, 9.68663115},
                 {1.93127548, 1.04507954, 0.926370145, 2.20832084, 2.07098977, 1.50459536}},
                {0,
                 0,
                 1,
                 2,
                 {1.32995513, 5.31982054},
                 {1.97815048, 0.976329543, 0.860745145, 0, 0, 1.50459536}},
                {1,
                 0.25,
                 1,
                 3,
                 {1.47987892, 3.32972756},
                 {1.12128038, 0, 0.934098699, 0.653478878, 0.620869611, 0}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int reduction = KILN_REDUCTION_MEAN; reduction <= KILN_REDUCTION_NONE; reduction++) {
            kiln_batch *b = check_begin();
            kiln_cross_entropy_options options = KILN_CROSS_ENTROPY_INIT;
            options.reduction = (kiln_loss_reduction)reduction;
            options.label_smoothing = rows[i].smoothing;
            options.ignores = rows[i].ignores;
            options.ignored_label = rows[i].ignored;
            options.log_probabilities = i % 2;
            kiln_tensor x = pattern(b, DIMS(6, 4), 6);
            x = i % 2 ? kiln_log_softmax(b, x, 1, (int[]){1}) : x;
            kiln_tensor loss = record_options(b, x, &options, rows[i].weighted);
            bool each = reduction == KILN_REDUCTION_NONE;
            expect_pattern(b, loss, each ? 6 : 1, each ? rows[i].each : &rows[i].both[reduction]);
        }
    check_close();
}

Test(loss, cross_entropy_with_options_has_a_gradient)
{
    static const double gradient[] = {-0.187751174,
                                      0.101185028,
                                      0.0482626887,
                                      0.0383034573,
                                      0,
                                      0,
                                      0,
                                      0,
                                      0.0242445707,
                                      -0.219786271,
                                      0.0928623977,
                                      0.102679302,
                                      0.071331277,
                                      -0.00583920536,
                                      -0.0748653517,
                                      0.0093732801,
                                      0.062377597,
                                      -0.00536263166,
                                      -0.0724856671,
                                      0.0154707017,
                                      0,
                                      0,
                                      0,
                                      0};
    kiln_batch *b = check_begin();
    kiln_cross_entropy_options options = KILN_CROSS_ENTROPY_INIT;
    options.label_smoothing = 0.25;
    options.ignores = 1;
    options.ignored_label = 3;
    kiln_tensor x = pattern(b, DIMS(6, 4), 6), g;
    expect_ok(kiln_grad(b, record_options(b, x, &options, true), &x, 1, &g));
    EXPECT_PATTERN(b, g, gradient);
    check_close();
}

Test(loss, options_are_checked)
{
    kiln_cross_entropy_options options = KILN_CROSS_ENTROPY_INIT;
    kiln_batch *b = check_begin();
    options.label_smoothing = 1.5;
    record_options(b, pattern(b, DIMS(6, 4), 6), &options, false);
    check_refusal(b, KILN_INVALID_ARGUMENT,
                  "kiln_cross_entropy_with: label smoothing is 1.5, not from 0 to 1");
    b = check_begin();
    options.label_smoothing = 0;
    options.reduction = (kiln_loss_reduction)3;
    record_options(b, pattern(b, DIMS(6, 4), 6), &options, false);
    check_refusal(b, KILN_INVALID_ARGUMENT, "kiln_cross_entropy_with: 3 is no reduction");
    b = check_begin();
    options.reduction = KILN_REDUCTION_MEAN;
    record_options(b, pattern(b, DIMS(6, 3), 6), &options, true);
    check_refusal(b, KILN_SHAPE_MISMATCH,
                  "kiln_cross_entropy_with: class weights have shape [4], and there are 3 classes");
    b = check_begin();
    options.size = 3;
    record_options(b, pattern(b, DIMS(6, 4), 6), &options, false);
    check_refusal(b, KILN_INVALID_ARGUMENT,
                  "kiln_cross_entropy_with: options->size is 3; start "
                  "from KILN_CROSS_ENTROPY_INIT");
    check_close();
}
