/* SPDX-License-Identifier: Apache-2.0 */
/* What attention's gradient is made of where no scores are stored (graph/attention_backward.h): by
 * the kernel that every device has, its second derivatives, and which launches a device with tensor
 * cores gets.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/attention.h>
#include <kiln/gradient.h>
#include <kiln/movement.h>
#include <kiln/operations.h>

#include "../support/check.h"
#include "../support/gradient.h"
#include "../support/graph.h"
#include "graph/attention_backward.h"
#include "plan/plan.h"
#include "record/record_attention_backward.h"
#include "session/compile.h"

/* A batch of the device that is there, which records as for one that has the kernels. */
static kiln_batch *begin(void)
{
    kiln_batch *batch = check_begin();
    batch->limits.rounds_gradients = true;
    batch->takes_attention_backward = take_attention_backward;
    return batch;
}

static size_t count_slopes(const kiln_batch *batch)
{
    size_t count = 0;
    for (size_t i = 0; i < batch->graph.nodes.count; i++)
        count += batch->graph.nodes.items[i].kind == KILN__ATTENTION_BACKWARD;
    return count;
}

/* ---- on the device ---- */

/* Numbers up to 3: where the largest is a power of two, what undoes units has no bound. */
static kiln_tensor numbers(kiln_batch *batch, kiln_type type, size_t rank, const size_t *dims)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    char *data = malloc((count + 1) * kiln_type_size(type));
    cr_assert(data);
    for (size_t i = 0; i < count; i++)
        kiln__type_store(type, (double)check_random(769) / 128 - 3,
                         data + i * kiln_type_size(type));
    kiln_tensor tensor = check_given(batch, type, rank, dims, data);
    free(data);
    return tensor;
}

/* Gradients of an attention of this many heads, asked for as floats, or in the operands' type. */
static void differ(kiln_type type, size_t heads, size_t m, size_t n, size_t d, size_t e, int causal,
                   int64_t diagonal, bool narrow)
{
    kiln_batch *b = begin();
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.causal = causal;
    options.diagonal = diagonal;
    kiln_tensor x[3] = {numbers(b, type, DIMS(2, heads, m, d)), numbers(b, type, DIMS(heads, n, d)),
                        numbers(b, type, DIMS(2, 1, n, e))};
    kiln_tensor out[3], g = numbers(b, KILN_F32, DIMS(2, heads, m, e));
    options.scale = 0.0625;
    kiln_tensor y = kiln_attention(b, x[0], x[1], x[2], (kiln_tensor){0}, &options);
    kiln_grad(b, kiln_sum(b, kiln_mul(b, y, g), 0, NULL, 0), x, 3, out);
    cr_expect_eq(count_slopes(b), n ? 4 : 0);
    for (int i = 0; i < 3; i++)
        check_read(b, narrow ? kiln_cast(b, out[i], type) : out[i]);
    cr_expect(check_run(b), "%s, %zu heads of %zu x %zu x %zu x %zu, causal %d %lld",
              kiln_type_name(type), heads, m, n, d, e, causal, (long long)diagonal);
    check_end(b);
}

Test(slopes, sizes)
{
    differ(KILN_F16, 1, 1, 1, 8, 8, 0, 0, false);
    differ(KILN_F16, 3, 17, 40, 24, 16, 0, 0, false);
    differ(KILN_BF16, 3, 40, 17, 16, 40, 0, 0, true);
    differ(KILN_F16, 2, 131, 70, 64, 64, 0, 0, true);
    differ(KILN_BF16, 2, 5, 3, 128, 8, 0, 0, false);
    differ(KILN_F16, 2, 5, 0, 8, 8, 0, 0, false);
    check_close();
}

Test(slopes, causal)
{
    differ(KILN_F16, 2, 20, 20, 16, 16, 1, 0, false);
    differ(KILN_BF16, 2, 20, 33, 16, 16, 1, 13, true);
    differ(KILN_F16, 2, 20, 12, 16, 16, 1, -7, false); /* some queries see nothing */
    differ(KILN_F16, 2, 5, 6, 16, 16, 1, -9, false);   /* none does */
    check_close();
}

/* By queries, keys or values: the gradient is as that in floats, up to what f16 rounds. */
static void agree(const float *found, const float *exact, size_t count, double scale, double slope)
{
    double most = 0, gap = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)exact[i]));
        gap = isfinite(found[i]) ? fmax(gap, fabs((double)found[i] - (double)exact[i])) : INFINITY;
    }
    cr_expect(most > 0 && gap <= most / 64, "scale %g, slopes times %g: %g of %g off", scale, slope,
              gap, most);
}

/* What flows to the scores stays within f16 whatever scale they have, and whatever size slopes. */
static void differ_by_scale(double scale, double slope)
{
    kiln_batch *b = begin();
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.scale = scale;
    kiln_tensor g = kiln_scale(b, numbers(b, KILN_F32, DIMS(2, 40, 64)), slope);
    const float *read[2][3];
    for (int exact = 0; exact < 2; exact++) {
        kiln_tensor x[3], out[3];
        check_seed(7);
        for (int i = 0; i < 3; i++)
            x[i] = numbers(b, exact ? KILN_F32 : KILN_F16, DIMS(2, i ? 70 : 40, 64));
        kiln_tensor y = kiln_attention(b, x[0], x[1], x[2], (kiln_tensor){0}, &options);
        kiln_grad(b, kiln_sum(b, kiln_mul(b, y, g), 0, NULL, 0), x, 3, out);
        cr_expect_eq(count_slopes(b), 4);
        for (int i = 0; i < 3; i++)
            read[exact][i] = check_read(b, out[i]);
    }
    cr_expect(check_run(b), "scale %g, slopes times %g", scale, slope);
    for (int i = 0; i < 3; i++)
        agree(read[0][i], read[1][i], 2 * (i ? 70 : 40) * 64, scale, slope);
    check_end(b);
}

Test(slopes, of_any_size)
{
    static const double scales[] = {0x1p-40, 0x1p-14, 0x1p-4}, slopes[] = {0x1p-60, 1, 0x1p+30};
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 3; j++)
            differ_by_scale(scales[i], slopes[j]);
    check_close();
}

/* Heads side by side: operands and results are read and stored by strides. */
Test(slopes, heads_in_rows)
{
    const size_t order[] = {0, 2, 1, 3};
    kiln_batch *b = begin();
    kiln_tensor x[3], out[3], heads[3];
    for (int i = 0; i < 3; i++) {
        x[i] = numbers(b, KILN_F16, DIMS(2, i ? 30 : 19, 3, 16));
        heads[i] = kiln_transpose(b, x[i], order);
    }
    kiln_tensor y = kiln_attention(b, heads[0], heads[1], heads[2], (kiln_tensor){0}, NULL);
    kiln_tensor g = numbers(b, KILN_F32, DIMS(2, 3, 19, 16));
    kiln_grad(b, kiln_sum(b, kiln_mul(b, y, g), 0, NULL, 0), x, 3, out);
    cr_expect_eq(count_slopes(b), 4);
    for (int i = 0; i < 3; i++)
        check_read(b, kiln_cast(b, out[i], KILN_F16));
    cr_expect(check_run(b));
    check_end(b);
    check_close();
}

/* ---- what is not recorded so ---- */

Test(slopes, others_go_through_products)
{
    const struct {
        kiln_type type;
        bool masked, slopes;
    } others[] = {{KILN_F16, false, true},
                  {KILN_F32, false, false},
                  {KILN_F16, true, false},
                  {KILN_BF16, false, true}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        kiln_batch *b = begin();
        kiln_tensor x = check_input(b, others[i].type, DIMS(9, 16), CHECK_PLAIN), out;
        kiln_tensor mask = {0};
        if (others[i].masked)
            mask = check_plain(b, DIMS(9, 9));
        kiln_tensor y = kiln_attention(b, x, x, x, mask, NULL);
        kiln_grad(b, kiln_sum(b, y, 0, NULL, 0), &x, 1, &out);
        cr_expect_eq(count_slopes(b), others[i].slopes ? 4 : 0, "%zu", i);
        cr_expect_eq(kiln_batch_status(b), KILN_OK, "%s", kiln_batch_error(b));
        check_end(b);
    }
}

/* ---- second derivatives, by the reference ---- */

static void expect_second(enum kiln__attention_backward_result result, int causal)
{
    enum { M = 3, N = 4, D = 2, E = 3 };
    kiln_batch *b = kiln_batch_create(imagined_cpu());
    const bool by_key = result == KILN__BACKWARD_VALUES || result == KILN__BACKWARD_KEYS;
    const size_t queries = by_key ? N : M;
    struct kiln__attention how = {.scale = 0.5, .causal = causal, .backward_result = result};
    float data[5][N * 4];
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < N * 4; j++)
            data[i][j] = (float)check_random(512) / 256 - 1;
    kiln_tensor x[] = {kiln_upload(b, KILN_F32, DIMS(M, D), data[0]),
                       kiln_upload(b, KILN_F32, DIMS(N, D), data[1]),
                       kiln_upload(b, KILN_F32, DIMS(M, E), data[2]),
                       kiln_upload(b, KILN_F32, DIMS(N, E), data[3]),
                       kiln_upload(b, KILN_F32, DIMS(queries, 2), data[4])};
    /* What undoes units is constant. */
    kiln_tensor parts[] = {x[4], kiln_constant(b, KILN_F32, 0.5)};
    parts[1] = kiln_broadcast(b, parts[1], DIMS(queries, 2));
    kiln_tensor inputs[] = {x[0], x[1], x[2], x[3], kiln_concat(b, 2, parts, 1)};
    const bool scales = result == KILN__BACKWARD_LOG_SUM_EXP;
    kiln_tensor y = kiln__record_attention_backward(b, &how, 0, scales ? 2 : 5, inputs);
    const kiln_tensor of_values[] = {x[0], x[1], x[3], x[4]};
    if (result == KILN__BACKWARD_VALUES)
        expect_gradient(b, y, 4, of_values);
    else
        expect_gradient(b, y, scales ? 2 : 5, x);
}

Test(slopes, second_derivatives)
{
    for (int causal = 0; causal < 2; causal++) {
        expect_second(KILN__BACKWARD_LOG_SUM_EXP, causal);
        expect_second(KILN__BACKWARD_VALUES, causal);
        expect_second(KILN__BACKWARD_KEYS, causal);
        expect_second(KILN__BACKWARD_QUERIES, causal);
    }
}
