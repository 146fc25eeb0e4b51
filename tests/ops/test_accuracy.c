/* SPDX-License-Identifier: Apache-2.0 */
/* The accuracy of every floating row, reduction and product against the host in double. The bounds
 * of the tables have to hold; KILN_ACCURACY names a file that the table of doc/accuracy.md is
 * appended to. KILN_ACCURACY_STEP=1 takes every float there is; the default is every 16384th. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../support/check.h"
#include "../support/sweep.h"
#include "record/batch.h"
#include "reference/bounds.h"

static FILE *table;

/* A line of the table, if one is written. */
__attribute__((format(printf, 1, 2))) static void line(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (table)
        vfprintf(table, format, arguments);
    va_end(arguments);
}

static uint64_t step_of(void)
{
    const char *text = getenv("KILN_ACCURACY_STEP");
    uint64_t step = text ? strtoull(text, NULL, 10) : 0;
    return step ? step : 16384;
}

/* ---- rows ---- */

static void expect_within(unsigned op, const struct sweep *sweep)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    cr_expect_leq(sweep->ulp, (double)row->max_ulp,
                  "%s is %.9g, off by %.3f ulp, and %g are allowed; %" PRIu64 " of %" PRIu64
                  " are off by more",
                  sweep_call(op, sweep).text, sweep->found, sweep->ulp, (double)row->max_ulp,
                  sweep->wrong, sweep->tested);
}

/* Every float of a row takes minutes: say where a written table is, and keep what there is. */
static void report_progress(const char *row, unsigned number)
{
    static time_t begin;
    if (!table)
        return;
    begin = begin ? begin : time(NULL);
    fprintf(stderr, "accuracy: %s, row %u of %d, after %.0f s\n", row, number + 1, KILN__OP_COUNT,
            difftime(time(NULL), begin));
    fflush(table);
}

static void sweep_rows(void)
{
    line("| operation | tested | allowed | worst | where |\n|---|--:|--:|--:|---|\n");
    for (unsigned op = 0; op < KILN__OP_COUNT; op++) {
        struct sweep sweep;
        const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
        if (!sweep_takes(op))
            continue;
        report_progress(row->name, op);
        sweep_row(op, step_of(), &sweep);
        expect_within(op, &sweep);
        line("| %s | %" PRIu64 " | %g | %.3f | %s%s%s%s |\n", row->name, sweep.tested,
             (double)row->max_ulp, sweep.ulp, sweep.ulp > 0 ? "`" : "",
             sweep.ulp > 0 ? sweep_call(op, &sweep).text : "exact", sweep.ulp > 0 ? "`" : "",
             sweep.ulp > (double)row->max_ulp ? ", **beyond the bound**" : "");
    }
}

/* ---- sums and products ---- */

/* How much of its bound the worst element of a result uses. */
static void measure(kiln_batch *batch, kiln_tensor tensor, const char *name, const char *size)
{
    struct kiln__reference reference;
    struct kiln__bounds bounds;
    const float *found = check_read(batch, tensor);
    uint32_t index = kiln__tensor_index(tensor);
    size_t count = kiln__node_count(&batch->graph.nodes.items[index]);
    const void **inputs = calloc(batch->bindings.inputs.count + 1, sizeof *inputs);
    cr_assert(inputs);
    run_batch(batch);
    for (size_t i = 0; i < batch->bindings.inputs.count; i++)
        inputs[i] = batch->bindings.inputs.items[i].host;
    cr_assert(kiln__reference_run(&batch->graph, inputs, &reference));
    cr_assert(kiln__bounds_make(&batch->graph, &reference, check_denormal(), &bounds));
    double ratio = 0, allowed = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        double wanted = reference.values[index][i], bound = bounds.errors[index][i];
        double error = fabs((double)found[i] - wanted);
        bool overflows = isinf(wanted) && (double)found[i] == wanted;
        cr_assert(overflows || (isfinite(error) && isfinite(bound)),
                  "%s of %s: %.9g, wanted %.9g, bound %.3g", name, size, (double)found[i], wanted,
                  bound);
        ratio = fmax(ratio, !overflows && error > 0 ? error / bound : 0);
        allowed = fmax(allowed, bound);
        largest = fmax(largest, fabs(wanted));
    }
    cr_expect_leq(ratio, 1, "%s of %s: %.3g of the bound", name, size, ratio);
    if (isfinite(largest))
        line("| %s | %s | %.2g | %.2g | %.2g |\n", name, size, largest, allowed, ratio);
    kiln__bounds_free(&bounds);
    kiln__reference_free(&reference);
    free(inputs);
    check_end(batch);
}

/* Nothing is rounded. */
static bool is_choice(const struct kiln__reduce_row *row)
{
    return row->identity == KILN__IDENTITY_LOWEST || row->identity == KILN__IDENTITY_HIGHEST;
}

static void measure_reductions(void)
{
    static const size_t lengths[] = {100, 10000, 1000000};
    for (unsigned op = 0; op < KILN__REDUCE_COUNT; op++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            const struct kiln__reduce_row *row = &kiln__reduce_rows[op];
            char size[32];
            if (kiln__reduce_result(row, KILN_F32) != KILN_F32 || is_choice(row))
                continue;
            snprintf(size, sizeof size, "%zu", lengths[i]);
            check_seed(op);
            kiln_batch *batch = check_begin();
            kiln_tensor x = check_input(batch, KILN_F32, DIMS(3, lengths[i]), CHECK_PLAIN);
            measure(batch, check_reduction(batch, op, x, 1, (int[]){1}, 0), row->name, size);
        }
}

static void measure_products(void)
{
    static const size_t shapes[][3] = {
        {1, 1000, 64}, {7, 5, 3}, {100, 100, 100}, {128, 64, 2048}, {33, 4000, 17}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char size[64];
        const size_t m = shapes[i][0], k = shapes[i][1], n = shapes[i][2];
        snprintf(size, sizeof size, "%zu x %zu x %zu", m, k, n);
        check_seed(i);
        kiln_batch *batch = check_begin();
        kiln_tensor a = check_input(batch, KILN_F32, DIMS(m, k), CHECK_PLAIN);
        kiln_tensor b = check_input(batch, KILN_F32, DIMS(k, n), CHECK_PLAIN);
        measure(batch, kiln_matmul(batch, a, b), "matmul", size);
    }
}

static void measure_sums(void)
{
    line("\n| operation | elements | largest result | allowed error | worst of what is allowed |\n"
         "|---|--:|--:|--:|--:|\n");
    measure_reductions();
    measure_products();
}

/* ---- all ---- */

static const char introduction[] =
    "# Accuracy\n\n"
    "Written by `make accuracy`; do not edit. `make check` holds every row to its bound with a\n"
    "coarser sweep.\n\n"
    "Elementwise operations: the worst error found, in units of the last place (ulp) of the exact\n"
    "result, against the host in double precision. `allowed` is the bound that the row of\n"
    "`lib/ops/elementwise.def` promises on every device. Operations of one operand see floats at\n"
    "equal distances over all 2^32, infinities, NaN and denormals among them; those of several "
    "see\n"
    "all pairs of special values and random bit patterns. Infinities, NaN and the signs of\n"
    "infinities have to be the host's; an overflow has to be one on both sides.\n\n"
    "Sums and products: elements are random between -4 and 4. The allowed error is gamma_n times\n"
    "the sum of the magnitudes, gamma_n = n u / (1 - n u), u = 2^-24 (Higham 2002, section 3.1),\n"
    "which holds for any order of additions. The last column is the largest error as a share of\n"
    "it. Maxima, minima, comparisons and movements are exact, integers too.\n\n"
    "Tensor cores, where they multiply f16 and bf16 operands (wgmma, on NVIDIA's Hopper), have "
    "exact\n"
    "products and sums of f32 that are cut off instead of rounded: of 1024 near-normal numbers "
    "the\n"
    "root of the mean square of the error is 1e-6 of that of the results, of 8192 9e-6 (an H200;\n"
    "cuBLAS the same). That is well within what is allowed.\n\n"
    "KILN_PRECISION and kiln_batch_set_precision() have products of f32 run there, too. Errors of "
    "2048\n"
    "near-normal numbers, by the sum of the magnitudes (an H200; root of the mean square, and the\n"
    "largest of 600; plain f32, one fma after the other: 2.5e-8, 1.6e-7):\n\n"
    "| precision | what rounds | error | |\n"
    "|---|---|--:|--:|\n"
    "| exact | products and sums to f32, on no tensor core; the default | 2.5e-8 | 1.6e-7 |\n"
    "| tf32 | operands to nearest with 11 bits; sums of f32 are cut off (cuBLAS the same: 1.0e-5, "
    "5.2e-5) | 1.0e-5 | 3.7e-5 |\n"
    "| f32x3 | operands to 11 bits and 11 of the rest; the product of both rests is left out; sums "
    "of 32 elements are cut off, sums of those rounded | 9.2e-9 | 4.3e-8 |\n\n"
    "Of an infinite operand f32x3 makes NaN. Products of i8 are exact integers, rounded once to "
    "f32.\n"
    "Devices without such tensor cores compute all of these in plain f32.\n\n"
    "By bf16 and f16 operands of products, convolutions and attention are rounded to that type on "
    "every\n"
    "device, and what norms read of their results; the rest is f32. Encoders of BERT's kind with "
    "random\n"
    "weights, 32 x 128 tokens, a vector from the mean: the least cosine with f32's is 0.999985 by "
    "bf16 in\n"
    "MiniLM-L6's shape and 0.999978 in BERT-base's, by f16 1.000000 in both (an H200; PoCL, 2 x 32 "
    "in the\n"
    "former: 0.999988 and 1.000000). Digits, with parameters in f32, trained and tested so: 353 of "
    "360\n"
    "are right by bf16 and 350 by f16 with convolutions (f32: 352), 333 and 334 without (334; "
    "PoCL).\n"
    "\n"
    "Attention whose operands are all f16, or all bf16, may round each weight to that type, an\n"
    "error of 2^-11 or 2^-8 of it at most, as other implementations do: on an H200 the root of\n"
    "the mean square of the error is 2e-4 (f16) and 2e-3 (bf16) of that of the results, before\n"
    "these are rounded. On a GPU its gradients are made of weights and gradients of result and\n"
    "scores that are rounded to it: 3.7e-4 and 2.9e-3 of them, by q and k; 2.9e-4 and 2.3e-3 by v\n"
    "(rounded results; PyTorch 2.11: 3.0e-4 and 2.4e-3, 2.9e-4 and 2.3e-3).\n";

static void open_table(void)
{
    const char *path = getenv("KILN_ACCURACY");
    kiln_device_info device;
    expect_ok(kiln_context_device(check_context(), &device));
    if (!path || !*path)
        return;
    table = fopen(path, "a");
    cr_assert(table, "cannot write %s", path);
    fseek(table, 0, SEEK_END);
    if (ftell(table) == 0)
        line("%s", introduction);
    line("\n## %s, %s\n", device.name, device.platform);
    line("Every %" PRIu64 "th float. Denormals %s.\n\n", step_of(),
         check_denormal() > 0 ? "may be flushed to zero, operands and results (the driver says so)"
                              : "are numbers like any other");
}

Test(accuracy, within_the_bounds, .timeout = 360000)
{
    open_table();
    sweep_rows();
    measure_sums();
    if (table)
        fclose(table);
    check_close();
}

/* Near where a function changes its form, or nearly cancels, every float counts. */
Test(accuracy, around)
{
    static const float centres[] = {
        1.0f,         0.5f,     2.0f,        1.41421356f, 0.70710678f, 0.0625f,   0.00024414062f,
        -1.0f,        -0.5f,    -5.0f,       -10.0f,      -13.0f,      10.0f,     20.0f,
        88.0f,        -87.0f,   0.34657359f, 3.93f,       9.01f,       0x1p-126f, 3.14159274f,
        -1.57079637f, 65536.0f, -11.0f,      -3.0f,       3.0f,        0.9f};
    for (unsigned op = 0; op < KILN__OP_COUNT; op++) {
        struct sweep sweep;
        if (!sweep_takes(op) || kiln__elementwise_rows[op].tensors != 1 ||
            kiln__elementwise_rows[op].types != KILN__FLOATING)
            continue;
        sweep_around(op, centres, sizeof centres / sizeof *centres, 4096, &sweep);
        expect_within(op, &sweep);
    }
    check_close();
}
