/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: every implementation over edge sizes, transposes, batches, views; the bound is
 * gamma_k * sum |a||b|, and products of whole numbers are exact. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "../support/context.h"
#include "session/context.h"

/* ---- known answers ---- */

static void expect_product(kiln_batch *b, kiln_tensor y, size_t count, const float *wanted)
{
    float *found = check_read(b, y);
    check_run(b);
    for (size_t i = 0; i < count; i++)
        cr_expect_eq(found[i], wanted[i], "element %zu is %g, not %g", i, found[i], wanted[i]);
    check_end(b);
}

static const float left[] = {1, 2, 3, 4, 5, 6}, right[] = {7, 8, 9, 10, 11, 12};

Test(matmul, known_answers)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_given(b, KILN_F32, DIMS(2, 3), left);
    kiln_tensor y = check_given(b, KILN_F32, DIMS(3, 2), right);
    expect_product(b, kiln_matmul(b, x, y), 4, (float[]){58, 64, 139, 154});

    b = check_begin(); /* x y', of which both are 2 by 3 */
    x = check_given(b, KILN_F32, DIMS(2, 3), left);
    y = check_given(b, KILN_F32, DIMS(2, 3), right);
    expect_product(b, kiln_matmul_transposed(b, x, 0, y, 1), 4, (float[]){50, 68, 122, 167});

    b = check_begin(); /* x' y */
    x = check_given(b, KILN_F32, DIMS(2, 3), left);
    y = check_given(b, KILN_F32, DIMS(2, 3), right);
    expect_product(b, kiln_matmul_transposed(b, x, 1, y, 0), 9,
                   (float[]){47, 52, 57, 64, 71, 78, 81, 90, 99});

    b = check_begin(); /* row times matrix, matrix times column */
    x = check_given(b, KILN_F32, DIMS(3), left);
    y = check_given(b, KILN_F32, DIMS(3, 2), right);
    expect_product(b, kiln_matmul(b, x, y), 2, (float[]){58, 64});
    b = check_begin();
    x = check_given(b, KILN_F32, DIMS(2, 3), left);
    y = check_given(b, KILN_F32, DIMS(3), right);
    expect_product(b, kiln_matmul(b, x, y), 2, (float[]){50, 122});

    b = check_begin();
    x = check_given(b, KILN_F32, DIMS(6), left);
    y = check_given(b, KILN_F32, DIMS(6), right);
    check_read(b, kiln_dot(b, x, y));
    expect_product(b, kiln_matmul(b, x, y), 1, (float[]){217});
    check_close();
}

/* ---- shapes of the result ---- */

Test(matmul, shapes)
{
    static const struct {
        size_t a_rank, a[4], b_rank, b[4], rank, dims[4];
    } rows[] = {
        {2, {3, 5}, 2, {5, 7}, 2, {3, 7}},
        {1, {5}, 2, {5, 7}, 1, {7}},
        {2, {3, 5}, 1, {5}, 1, {3}},
        {1, {5}, 1, {5}, 0, {0}},
        {3, {4, 3, 5}, 2, {5, 7}, 3, {4, 3, 7}},
        {2, {3, 5}, 3, {4, 5, 7}, 3, {4, 3, 7}},
        {3, {4, 3, 5}, 3, {4, 5, 7}, 3, {4, 3, 7}},
        {3, {1, 3, 5}, 3, {4, 5, 7}, 3, {4, 3, 7}},
        {4, {2, 1, 3, 5}, 3, {6, 5, 7}, 4, {2, 6, 3, 7}},
        {4, {2, 6, 3, 5}, 4, {2, 1, 5, 7}, 4, {2, 6, 3, 7}},
        {3, {4, 3, 5}, 1, {5}, 2, {4, 3}},
        {1, {5}, 3, {4, 5, 7}, 2, {4, 7}},
        {3, {0, 3, 5}, 2, {5, 7}, 3, {0, 3, 7}},
        {3, {0, 3, 5}, 3, {1, 5, 7}, 3, {0, 3, 7}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t rank, dims[KILN_MAX_RANK];
        kiln_batch *b = check_begin();
        kiln_tensor y =
            kiln_matmul(b, check_input(b, KILN_F32, rows[i].a_rank, rows[i].a, CHECK_FEW),
                        check_input(b, KILN_F32, rows[i].b_rank, rows[i].b, CHECK_FEW));
        expect_ok(kiln_tensor_shape(b, y, NULL, &rank, dims));
        cr_expect_eq(rank, rows[i].rank, "row %zu", i);
        cr_expect(!memcmp(dims, rows[i].dims, rank * sizeof *dims), "row %zu", i);
        check_tensor(b, y);
    }
    check_close();
}

Test(matmul, operands_are_checked)
{
    static const struct {
        size_t a_rank, a[3], b_rank, b[3];
    } rows[] = {{2, {3, 5}, 2, {4, 7}},
                {1, {5}, 1, {4}},
                {0, {0}, 1, {4}},
                {3, {2, 3, 5}, 3, {3, 5, 7}},
                {2, {3, 5}, 1, {4}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_batch *b = check_begin();
        kiln_matmul(b, check_input(b, KILN_F32, rows[i].a_rank, rows[i].a, CHECK_FEW),
                    check_input(b, KILN_F32, rows[i].b_rank, rows[i].b, CHECK_FEW));
        cr_expect_lt(kiln_batch_status(b), 0, "row %zu", i);
        check_end(b);
    }
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_I32, DIMS(3, 3), CHECK_FEW);
    kiln_matmul(b, x, x);
    cr_expect_eq(kiln_batch_status(b), KILN_TYPE_MISMATCH);
    check_end(b);
    check_close();
}

/* ---- every implementation ---- */

static void multiply(size_t m, size_t n, size_t k, int transposes, enum check_values values)
{
    kiln_batch *b = check_begin();
    int ta = transposes & 1, tb = transposes >> 1;
    kiln_tensor x = check_input(b, KILN_F32, DIMS(ta ? k : m, ta ? m : k), values);
    kiln_tensor y = check_input(b, KILN_F32, DIMS(tb ? n : k, tb ? k : n), values);
    check_tensor(b, kiln_matmul_transposed(b, x, ta, y, tb));
}

static void edge_sizes(void)
{
    static const size_t sizes[][3] = {
        {1, 1, 1},     {1, 17, 5},    {17, 1, 5},    {3, 5, 0},    {0, 5, 3},    {5, 0, 3},
        {2, 3, 1},     {7, 15, 16},   {8, 16, 17},   {9, 31, 33},  {16, 16, 16}, {31, 33, 65},
        {64, 64, 64},  {65, 63, 130}, {129, 65, 40}, {5, 200, 3},  {200, 5, 3},  {1, 1009, 64},
        {1009, 1, 64}, {4, 100, 257}, {100, 4, 257}, {1, 1, 1009}, {6, 64, 256}, {12, 128, 512}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int transposes = 0; transposes < 4; transposes++)
            multiply(sizes[i][0], sizes[i][1], sizes[i][2], transposes, CHECK_FEW);
    multiply(67, 97, 301, 0, CHECK_PLAIN);
    multiply(67, 97, 301, 3, CHECK_PLAIN);
    multiply(260, 140, 520, 0, CHECK_PLAIN);
    multiply(33, 18, 50, 0, CHECK_SPECIAL);
}

/* Batches of matrices, some of which are the same one. */
static void batches(void)
{
    static const size_t pairs[][2][4] = {
        {{3, 2, 17, 9}, {3, 2, 9, 33}},  {{3, 2, 17, 9}, {1, 1, 9, 33}},
        {{1, 2, 5, 9}, {3, 1, 9, 16}},   {{1, 1, 17, 9}, {3, 2, 9, 33}},
        {{5, 1, 1, 64}, {5, 1, 64, 40}}, {{5, 1, 40, 64}, {5, 1, 64, 1}},
        {{2, 1, 4, 0}, {2, 1, 0, 6}}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = check_input(b, KILN_F32, 4, pairs[i][0], CHECK_FEW);
        kiln_tensor y = check_input(b, KILN_F32, 4, pairs[i][1], CHECK_FEW);
        check_read(b, kiln_matmul(b, x, y));
        check_read(b, kiln_matmul_transposed(b, kiln_transpose(b, x, NULL), 1,
                                             kiln_transpose(b, y, NULL), 1));
        check_run(b);
        check_end(b);
    }
}

/* Sums of more than two blocks, by what is wished for or takes its place. */
static void multiply_alike(const char *name, float *y)
{
    float a[4 * 600], b[600 * 64];
    fill(a, 4 * 600, 1);
    fill(b, 600 * 64, 2);
    for (size_t i = 0; i < 600; i++)
        a[i] /= 3;
    check_prefer(name, false);
    kiln_batch *batch = check_begin();
    expect_ok(kiln_batch_set_batch_invariant(batch));
    kiln_tensor few = kiln_upload(batch, KILN_F32, DIMS(4, 600), a);
    kiln_tensor product = kiln_matmul(batch, few, kiln_upload(batch, KILN_F32, DIMS(600, 64), b));
    expect_ok(kiln_read(batch, product, y, 4 * 64 * sizeof *y));
    run_batch(batch);
    check_end(batch);
    check_close();
}

Test(matmul, adds_up_alike_by_each_implementation_that_may)
{
    static const char *const names[] = {"dots", "few", "small", "single", "packed", "clblast"};
    float wanted[4 * 64], found[4 * 64];
    multiply_alike("skinny", wanted);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        multiply_alike(names[i], found);
        cr_expect_arr_eq(found, wanted, sizeof found, "%s", names[i]);
    }
}

/* Some rows of a product by a kernel for GPUs. */
static void multiply_rows_alike(size_t rows, float *y)
{
    enum { N = 24, K = 1000, MOST = 40 };
    static float a[MOST * K], b[K * N], all[MOST * N];
    fill(a, MOST * K, 1);
    fill(b, K * N, 2);
    for (size_t i = 0; i < MOST * K; i++)
        a[i] /= 3;
    kiln_batch *batch = check_begin();
    expect_ok(kiln_batch_set_batch_invariant(batch));
    kiln_tensor few = kiln_upload(batch, KILN_F32, DIMS(rows, K), a);
    kiln_tensor product = kiln_matmul(batch, few, kiln_upload(batch, KILN_F32, DIMS(K, N), b));
    expect_ok(kiln_read(batch, product, all, rows * N * sizeof *all));
    run_batch(batch);
    check_end(batch);
    memcpy(y, all, 2 * N * sizeof *y);
}

Test(matmul, adds_up_alike_for_any_number_of_rows_on_gpus)
{
    float wanted[2 * 24], found[2 * 24];
    check_prefer("tiled", false);
    multiply_rows_alike(40, wanted);
    multiply_rows_alike(2, found);
    cr_expect_arr_eq(found, wanted, sizeof found);
    check_close();
}

/* Long sums in few tiles are split, and added up by a second launch. */
Test(matmul, splits_long_sums_on_gpus)
{
    check_prefer("tiled", false);
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(2, 10, 3000), CHECK_FEW);
    kiln_tensor y = check_input(b, KILN_F32, DIMS(2, 3000, 22), CHECK_FEW);
    kiln_tensor bias = check_input(b, KILN_F32, DIMS(22), CHECK_FEW);
    check_read(b, kiln_relu(b, kiln_add(b, kiln_matmul(b, x, y), bias)));
    cr_expect(explains(b, "matmul_gpu_sum"));
    check_run(b);
    check_end(b);
    check_close();
}

/* Whose text its kernel then has once. */
Test(matmul, tells_its_kernel_of_a_costly_epilogue)
{
    check_prefer("tiled", false);
    for (int costly = 0; costly < 2; costly++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = check_input(b, KILN_F32, DIMS(64, 64), CHECK_FEW);
        kiln_tensor y = kiln_matmul(b, x, x);
        check_read(b, costly ? kiln_gelu(b, y) : kiln_relu(b, y));
        cr_expect_eq(explains(b, "-DCOSTLY=1"), costly);
        check_end(b);
    }
    check_close();
}

/* Where fences order memory for the whole device, by the last work-group of each tile: as of CPUs
 * with many units. Whole tiles and ragged ones, transposed, in batches, with what follows. */
Test(matmul, splits_are_added_up_by_the_last_work_group_of_a_tile)
{
    check_prefer("tiled", false);
    struct kiln__device *device = &check_context()->runtime.device;
    struct kiln__traits traits = *device->traits;
    if (device->info.type == KILN_DEVICE_CPU)
        traits.fence = KILN__FENCE_OPENCL;
    device->traits = &traits;
    device->info.compute_units = 132;
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(2, 64, 1000), CHECK_FEW);
    kiln_tensor y = check_input(b, KILN_F32, DIMS(2, 42, 1000), CHECK_FEW);
    kiln_tensor z = check_input(b, KILN_F32, DIMS(2, 1000, 64), CHECK_FEW);
    kiln_tensor bias = check_input(b, KILN_F32, DIMS(64), CHECK_FEW);
    check_read(b, kiln_relu(b, kiln_add(b, kiln_matmul(b, x, z), bias)));
    check_read(b, kiln_matmul_transposed(b, y, 0, x, 1));
    if (traits.fence)
        cr_expect(explains(b, "-DTOGETHER="));
    check_run(b);
    check_end(b);
    check_close();
}

/* As measured on a device with 132 units: the largest tile waits longest where four elements do not
 * load as one. */
Test(matmul, takes_smaller_tiles_for_odd_lengths)
{
    static const struct {
        size_t batch, m, k, n;
        const char *tile;
    } odd[] = {{1, 2047, 1023, 511, "-DTILE_M=64 -DTILE_N=64"},
               {1, 97, 2049, 1153, "-DTILE_M=128 -DTILE_N=32"},
               {24, 127, 65, 190, "-DTILE_M=32 -DTILE_N=32"}};
    check_prefer("tiled", false);
    struct kiln__device *device = &check_context()->runtime.device;
    struct kiln__traits traits = *device->traits;
    traits.fence = KILN__FENCE_OPENCL;
    device->traits = &traits;
    device->info.compute_units = 132;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = check_input(b, KILN_F32, DIMS(odd[i].batch, odd[i].m, odd[i].k), CHECK_FEW);
        kiln_tensor y = check_input(b, KILN_F32, DIMS(odd[i].batch, odd[i].k, odd[i].n), CHECK_FEW);
        check_read(b, kiln_matmul(b, x, y));
        cr_expect(explains(b, odd[i].tile), "%zux%zux%zu", odd[i].m, odd[i].k, odd[i].n);
        check_end(b);
    }
    check_close();
}

/* Operands in memory that is not their own. */
static void views(void)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(40, 50), CHECK_FEW);
    kiln_tensor y = check_input(b, KILN_F32, DIMS(60, 70), CHECK_FEW);
    kiln_tensor corner = kiln_slice(b, x, (int64_t[]){3, 5}, (int64_t[]){36, 36}, NULL);
    kiln_tensor inner = kiln_slice(b, y, (int64_t[]){7, 9}, (int64_t[]){38, 62}, NULL);
    kiln_tensor skipped =
        kiln_slice(b, y, (int64_t[]){0, 0}, (int64_t[]){60, 62}, (int64_t[]){2, 2});
    kiln_tensor backward =
        kiln_slice(b, x, (int64_t[]){39, 29}, (int64_t[]){-1, -1}, (int64_t[]){-1, -1});
    kiln_tensor row = kiln_slice(b, x, (int64_t[]){4, 0}, (int64_t[]){5, 50}, NULL);
    kiln_tensor column = kiln_slice(b, x, (int64_t[]){0, 4}, (int64_t[]){40, 5}, NULL);
    check_read(b, kiln_matmul(b, corner, inner));
    check_read(b, kiln_matmul_transposed(b, inner, 1, corner, 1));
    check_read(b, kiln_matmul(b, backward, skipped));
    check_read(b, kiln_matmul(b, column, row));
    check_read(b, kiln_matmul(b, kiln_broadcast(b, row, DIMS(9, 50)), kiln_transpose(b, x, NULL)));
    check_read(b, kiln_matmul(b, kiln_broadcast(b, corner, DIMS(2, 33, 31)), inner));
    check_read(b, kiln_dot(b, kiln_reshape(b, column, DIMS(40)),
                           kiln_slice(b, kiln_reshape(b, row, DIMS(50)), (int64_t[]){45},
                                      (int64_t[]){5}, (int64_t[]){-1})));
    check_run(b);
    check_end(b);
}

/* What is computed before and after a product. */
static void neighbours(void)
{
    static const size_t sizes[][3] = {
        {33, 65, 40}, {1, 70, 64}, {70, 1, 64}, {5, 9, 0}, {4, 16, 300}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        kiln_batch *b = check_begin();
        kiln_tensor x = check_input(b, KILN_F32, DIMS(m, k), CHECK_FEW);
        kiln_tensor w = check_input(b, KILN_F32, DIMS(n, k), CHECK_FEW);
        kiln_tensor bias = check_input(b, KILN_F32, DIMS(n), CHECK_FEW);
        kiln_tensor rest = check_input(b, KILN_F32, DIMS(m, n), CHECK_FEW);
        kiln_tensor product = kiln_matmul_transposed(b, kiln_relu(b, x), 0, w, 1);
        kiln_tensor layer = kiln_relu(b, kiln_add(b, product, bias));
        check_read(b, kiln_sub(b, kiln_scale(b, layer, 0.5), rest));
        check_read(b, product);
        kiln_tensor second = kiln_matmul(b, kiln_transpose(b, layer, NULL), rest);
        check_read(b, kiln_sum(b, second, 1, (int[]){0}, 0));
        check_run(b);
        check_end(b);
    }
}

/* A wish falls back where it cannot be met: here it can, so that what follows tests what it says.
 */
static void expect_chosen(const char *name, size_t m, int transposes)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_input(b, KILN_F32, DIMS(m, 40), CHECK_FEW);
    bool turned = transposes & 2;
    kiln_tensor y = check_input(b, KILN_F32, DIMS(turned ? 70 : 40, turned ? 40 : 70), CHECK_FEW);
    check_read(b, kiln_matmul_transposed(b, x, 0, y, turned));
    expect_product_by(b, name);
    check_run(b);
    check_end(b);
}

static bool fits_few_rows(const char *name)
{
    return !strcmp(name, "skinny") || !strcmp(name, "dots") || !strcmp(name, "few") ||
           !strcmp(name, "rows");
}

static void everything_with(const char *name, bool of_cpus)
{
    check_prefer(name, of_cpus);
    if (*name)
        expect_chosen(name, fits_few_rows(name) ? 3 : 37, !strcmp(name, "dots") ? 2 : 0);
    edge_sizes();
    batches();
    views();
    neighbours();
    check_close();
}

/* Optimised is what the heuristic takes; the other kernels are so in test_matmul_epilogue and
 * test_matmul_operands. */
Test(matmul, slow_chosen_by_the_heuristic)
{
    everything_with("", false);
}
Test(matmul, dots, .init = check_cheaply)
{
    everything_with("dots", true);
}
Test(matmul, skinny, .init = check_cheaply)
{
    everything_with("skinny", true);
}
Test(matmul, few, .init = check_cheaply)
{
    everything_with("few", true);
}
Test(matmul, small, .init = check_cheaply)
{
    everything_with("small", true);
}
Test(matmul, single, .init = check_cheaply)
{
    everything_with("single", true);
}
Test(matmul, packed, .init = check_cheaply)
{
    everything_with("packed", true);
}
Test(matmul, rows, .init = check_cheaply)
{
    static const size_t sizes[][3] = {{1, 4, 1},   {1, 70, 64}, {3, 31, 33},   {4, 100, 257},
                                      {8, 16, 17}, {5, 200, 3}, {1, 129, 1009}};
    check_prefer("rows", false);
    if (check_context()->runtime.device.info.local_memory < 40000)
        cr_skip("not for this device");
    expect_chosen("rows", 3, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int transposes = 0; transposes < 4; transposes++) {
            multiply(sizes[i][0], sizes[i][1], sizes[i][2], transposes, CHECK_FEW);
            multiply(sizes[i][1], sizes[i][0], sizes[i][2], transposes, CHECK_FEW);
        }
    batches();
    views();
    neighbours();
    check_close();
}
Test(matmul, slow_tiled, .init = check_cheaply)
{
    everything_with("tiled", false);
}

/* What a wish cannot be met for is done by another one, which an explanation says. */
Test(matmul, says_where_a_wish_is_not_met)
{
    check_prefer("skinny", false);
    if (!check_context()->runtime.device.traits->chunked)
        cr_skip("not for this device");
    kiln_batch *b = check_begin();
    check_read(b, kiln_matmul(b, check_plain(b, DIMS(70, 40)), check_plain(b, DIMS(40, 90))));
    cr_expect(explains(b, " because the wanted implementation cannot do it"));
    check_end(b);
    check_close();
}

Test(matmul, clblast, .init = check_cheaply)
{
    check_prefer("clblast", false);
#ifdef HAVE_CLBLAST
    expect_chosen("clblast", 37, 0);
#endif
    multiply(33, 18, 50, 0, CHECK_FEW);
    check_close();
}

Test(matmul, slow_clblast, .init = check_cheaply)
{
    check_prefer("clblast", false);
    multiply(17, 40, 9, 3, CHECK_FEW);
    multiply(3, 5, 0, 0, CHECK_FEW);
    views();
    check_close();
}

/* ---- dot ---- */

Test(matmul, slow_dots_of_every_type)
{
    static const size_t sizes[] = {0, 1, 15, 64, 1009, 100003};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (unsigned type = KILN_F32; type <= KILN_I32; type++) {
            kiln_batch *b = check_begin();
            kiln_tensor x = check_input(b, (kiln_type)type, DIMS(sizes[i]), CHECK_PLAIN);
            kiln_tensor y = check_input(b, (kiln_type)type, DIMS(sizes[i]), CHECK_PLAIN);
            check_tensor(b, kiln_dot(b, x, y));
        }
    }
    check_close();
}
