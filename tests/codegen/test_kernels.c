/* SPDX-License-Identifier: Apache-2.0 */
/* What generated kernels look like, for a CPU and for a GPU that exist only here. Each text
 * has one structure, and every kind of loop that code generation knows is in one of them. Eight are
 * golden whole, the others as hashes. */
#include <criterion/criterion.h>
#include <string.h>

#include "../support/context.h"
#include "../support/golden.h"
#include "../support/graph.h"
#include "codegen/codegen.h"
#include "session/context.h"

typedef kiln_tensor structure(kiln_batch *batch);

static void add_kernels(kiln_context *context, const char *device, structure *record,
                        struct kiln__text *text)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor result = record(batch);
    if (result.id)
        ask(batch, result);
    struct kiln__plan plan = plan_of(batch, false);
    for (size_t i = 0; i < plan.launches.count; i++) {
        kiln__text_add(text, "/* ---- %s, launch %zu ---- */\n", device, i);
        kiln__codegen_show(&plan, &plan.launches.items[i], text);
    }
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
}

static void check_whole(const char *name, structure *record)
{
    struct kiln__text text = {0};
    add_kernels(imagined_cpu(), "CPU", record, &text);
    add_kernels(imagined_gpu(), "GPU", record, &text);
    expect_golden(name, &text);
}

static void check_hashes(const char *name, structure *record)
{
    struct kiln__text cpu = {0}, gpu = {0};
    add_kernels(imagined_cpu(), "CPU", record, &cpu);
    expect_golden_hash(name, "CPU", &cpu);
    add_kernels(imagined_gpu(), "GPU", record, &gpu);
    expect_golden_hash(name, "GPU", &gpu);
}

/* ---- what takes more than an expression ---- */

static kiln_tensor imagine_numbers(kiln_batch *batch, size_t n)
{
    return kiln_cast(batch, imagine_vector(batch, n), KILN_I32);
}

static kiln_tensor imagine_bytes(kiln_batch *batch, size_t m, size_t n)
{
    static uint8_t none;
    return kiln_upload(batch, KILN_U8, 2, (size_t[]){m, n}, &none);
}

/* y (x - sum(x y)), as in the gradient of softmax. */
static kiln_tensor slope(kiln_batch *batch)
{
    kiln_tensor x = imagine_matrix(batch, 64, 1000), y = imagine_matrix(batch, 64, 1000);
    kiln_tensor sum = kiln_sum(batch, kiln_mul(batch, x, y), 1, (int[]){1}, 1);
    return kiln_mul(batch, y, kiln_sub(batch, x, sum));
}

static kiln_tensor every_second(kiln_batch *batch, kiln_tensor x)
{
    return kiln_slice(batch, x, (int64_t[]){0, 0}, (int64_t[]){64, 64}, (int64_t[]){1, 2});
}

/* Turned into a result of its own and into part of one. */
static kiln_tensor turn(kiln_batch *batch)
{
    kiln_tensor x =
        kiln_transpose(batch, imagine(batch, 3, (size_t[]){5, 96, 64}), (size_t[]){0, 2, 1});
    ask(batch, kiln_add(batch, x, imagine_vector(batch, 96)));
    return kiln_pad(batch, x, (size_t[]){0, 1, 2}, (size_t[]){0, 3, 4}, 5);
}

/* Gathers with an index for each lane and with one for all; numbers, neighbouring ones and every
 * second one; elements that lie apart. */
static kiln_tensor pick(kiln_batch *batch)
{
    kiln_tensor lanes =
        kiln_gather(batch, imagine_matrix(batch, 64, 96), imagine_numbers(batch, 32), 1);
    kiln_tensor rows = kiln_gather(batch, imagine_vector(batch, 96), imagine_numbers(batch, 64), 0);
    kiln_tensor number = kiln_iota(batch, 2, (size_t[]){64, 32}, 1);
    kiln_tensor second = every_second(batch, kiln_iota(batch, 2, (size_t[]){64, 64}, 1));
    kiln_tensor mask = kiln_less(batch, kiln_abs(batch, kiln_sub(batch, number, second)),
                                 kiln_div(batch, number, kiln_constant(batch, KILN_I32, 3)));
    return kiln_where(batch, mask,
                      kiln_add(batch, lanes, kiln_reshape(batch, rows, 2, (size_t[]){64, 1})),
                      every_second(batch, imagine_matrix(batch, 64, 64)));
}

/* Types that are only stored: loaded and stored as neighbours and apart, rounded in between. */
static kiln_tensor narrow(kiln_batch *batch)
{
    static const double nowhere[1];
    const size_t dims[] = {64, 64};
    kiln_tensor half = kiln_upload(batch, KILN_F16, 2, dims, nowhere);
    kiln_tensor large = every_second(batch, kiln_upload(batch, KILN_I64, 2, dims, nowhere));
    kiln_tensor inside = kiln_cast(batch, kiln_square(batch, every_second(batch, half)), KILN_BF16);
    return kiln_cast(batch, kiln_mul(batch, inside, kiln_cast(batch, large, KILN_F32)), KILN_I8);
}

static kiln_tensor update(kiln_batch *batch, kiln_tensor amount)
{
    imagine_update(batch, amount);
    return (kiln_tensor){0};
}

/* Bytes are summed as integers, along dimensions that are no single run. */
static kiln_tensor count(kiln_batch *batch)
{
    kiln_tensor x = imagine(batch, 3, (size_t[]){64, 6, 32});
    kiln_tensor greater = kiln_greater(batch, x, imagine_vector(batch, 32));
    kiln_tensor sum = kiln_sum(batch, greater, 2, (int[]){0, 2}, 0);
    return kiln_scale(batch, kiln_cast(batch, sum, KILN_F32), 0.5);
}

/* Long enough that one row is taken at a time, and unlike a sum in its last step. */
static kiln_tensor difference(kiln_batch *batch)
{
    kiln_tensor a = imagine_matrix(batch, 64, 96), b = imagine_matrix(batch, 64, 96);
    kiln_tensor weight = kiln_add(batch, imagine_matrix(batch, 64, 96), imagine_vector(batch, 96));
    kiln_tensor x = kiln_mul(batch, weight, kiln_square(batch, kiln_sub(batch, a, b)));
    return kiln_mean(batch, x, 1, (int[]){0}, 0);
}

/* Two values of each row, of which one is a result too, and rows that are no single run. */
static kiln_tensor share(kiln_batch *batch)
{
    kiln_tensor x =
        kiln_add(batch, imagine(batch, 3, (size_t[]){30, 64, 32}), imagine_matrix(batch, 64, 1));
    kiln_tensor mean = kiln_mean(batch, x, 2, (int[]){1, 2}, 1);
    kiln_tensor greater = kiln_greater(batch, x, mean);
    kiln_tensor count = kiln_sum(batch, greater, 2, (int[]){1, 2}, 1);
    ask(batch, mean);
    return kiln_div(batch, x, kiln_cast(batch, count, KILN_F32));
}

/* Matrices whose product is a result too. */
static kiln_tensor update_matrices(kiln_batch *batch)
{
    kiln_tensor product = kiln_matmul(batch, imagine(batch, 3, (size_t[]){5, 64, 96}),
                                      imagine(batch, 3, (size_t[]){5, 96, 64}));
    kiln_tensor picked =
        kiln_gather(batch, imagine_matrix(batch, 10, 64), imagine_numbers(batch, 64), 0);
    kiln_tensor bias = imagine(batch, 3, (size_t[]){5, 1, 64});
    ask(batch, product);
    return update(batch,
                  kiln_scale(batch, kiln_add(batch, kiln_add(batch, product, bias), picked), 0.5));
}

/* Bytes less the mean of each column, times scaled ones. */
static kiln_tensor multiply_bytes(kiln_batch *batch)
{
    kiln_tensor x = kiln_cast(batch, imagine_bytes(batch, 64, 96), KILN_F32);
    kiln_tensor w = kiln_cast(batch, imagine_bytes(batch, 48, 96), KILN_F32);
    x = kiln_sub(batch, x, imagine_vector(batch, 96));
    w = kiln_mul(batch, w, imagine_matrix(batch, 48, 1));
    return kiln_matmul_transposed(batch, x, 0, kiln_scale(batch, w, 0.5), 1);
}

/* How a structure is compared, its name, and what records it. */
#define KERNELS(check, name, expression)                                                           \
    static kiln_tensor name(kiln_batch *batch)                                                     \
    {                                                                                              \
        return expression;                                                                         \
    }                                                                                              \
    Test(kernels, name)                                                                            \
    {                                                                                              \
        check("kernel_" #name, name);                                                              \
    }                                                                                              \
    structure name

/* ---- maps ---- */

KERNELS(check_whole, map,
        kiln_scale(batch, kiln_add(batch, imagine_matrix(batch, 64, 96), imagine_vector(batch, 96)),
                   2));
KERNELS(check_hashes, map_turned,
        kiln_add(batch, kiln_transpose(batch, imagine_matrix(batch, 96, 64), NULL),
                 imagine_matrix(batch, 64, 96)));
KERNELS(check_hashes, map_placed,
        kiln_pad(batch, imagine_matrix(batch, 64, 96), (size_t[]){1, 2}, (size_t[]){3, 4}, 5));
KERNELS(check_hashes, map_gathers,
        kiln_gather(batch, imagine_matrix(batch, 64, 96),
                    kiln_cast(batch, imagine_vector(batch, 32), KILN_I32), 0));
/* Two vectors of an item on the GPU. */
KERNELS(check_hashes, map_gathers_much,
        kiln_gather(batch, imagine_matrix(batch, 64, 96),
                    kiln_cast(batch, imagine_vector(batch, 1000), KILN_I32), 0));

/* Functions: two vectors beside each other on the CPU, the device's own ones on the GPU. */
KERNELS(check_hashes, map_functions,
        kiln_tanh(batch,
                  kiln_mul(batch, imagine_vector(batch, 1000), imagine_vector(batch, 1000))));
KERNELS(check_hashes, map_turned_apart, turn(batch));
/* Neighbours that are stored apart. */
KERNELS(check_hashes, map_stacked,
        kiln_stack(batch, 2,
                   (kiln_tensor[]){imagine_matrix(batch, 64, 96),
                                   kiln_neg(batch, imagine_matrix(batch, 64, 96))},
                   -1));
KERNELS(check_hashes, map_picks, pick(batch));
KERNELS(check_hashes, map_narrow, narrow(batch));
KERNELS(check_hashes, map_updates,
        update(batch, kiln_transpose(batch, imagine_matrix(batch, 96, 64), NULL)));

/* A vector that goes past the caches must lie at a multiple of its size: 16 of 8 bytes. */
static kiln_tensor widen(kiln_batch *batch)
{
    return kiln_cast(batch, imagine_vector(batch, 1000), KILN_I64);
}

Test(kernels, streams_vectors_to_multiples_of_their_size)
{
    struct kiln__text text = {0};
    add_kernels(imagined_cpu(), "CPU", widen, &text);
    cr_expect(strstr(text.data, "head = stream ? (128 - ((size_t)(y0 + q0 + p) & 127)) / "), "%s",
              text.data);
    kiln__text_free(&text);
}

static kiln_tensor find_largest(kiln_batch *batch)
{
    const int axis = 1;
    return kiln_max(batch, imagine_matrix(batch, 64, 1000), 1, &axis, 0);
}

Test(kernels, take_the_larger_by_an_instruction_where_there_is_one)
{
    static const unsigned levels[] = {0, 75, 80, 90};
    kiln_context *gpu = imagined_gpu();
    struct kiln__device *device = &gpu->runtime.device, before = *device;
    device->info.has_inline_ptx = true;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        struct kiln__text text = {0};
        device->ptx_level = levels[i];
        add_kernels(gpu, "GPU", find_largest, &text);
        cr_expect_eq(strstr(text.data, "max.NaN.f32") != NULL, levels[i] >= 80, "%s", text.data);
        kiln__text_free(&text);
    }
    *device = before;
}

/* ---- reductions ---- */

/* Each channel with a window of its own. */
static kiln_tensor convolve_each(kiln_batch *batch)
{
    kiln_window_options options = KILN_WINDOW_OPTIONS_INIT;
    options.groups = 24;
    return kiln_conv2d(batch, imagine(batch, 4, (size_t[]){2, 9, 11, 24}),
                       imagine(batch, 4, (size_t[]){3, 3, 1, 24}), &options);
}

KERNELS(check_whole, reduce_rows, kiln_sum(batch, imagine_matrix(batch, 64, 96), 1, (int[]){1}, 0));
KERNELS(check_whole, reduce_columns,
        kiln_sum(batch, imagine_matrix(batch, 80, 96), 1, (int[]){0}, 0));
KERNELS(check_whole, reduce_windows, convolve_each(batch));
KERNELS(check_hashes, reduce_segments, kiln_max(batch, imagine_vector(batch, 1 << 20), 0, NULL, 0));
KERNELS(check_hashes, reduce_positions,
        kiln_argmax(batch, imagine_matrix(batch, 64, 96), 1, (int[]){1}, 0));
KERNELS(check_hashes, reduce_positions_segments,
        kiln_argmin(batch, imagine(batch, 3, (size_t[]){3, 1 << 16, 32}), 1, (int[]){1}, 0));
KERNELS(check_hashes, reduce_counts, count(batch));
KERNELS(check_hashes, reduce_updates, update(batch, difference(batch)));

/* ---- rows, products ---- */

KERNELS(check_whole, rows, kiln_softmax(batch, imagine_matrix(batch, 64, 96), 1, (int[]){1}));
/* More than the lanes of a work-group hold. */
KERNELS(check_hashes, rows_long,
        kiln_log_softmax(batch, imagine_matrix(batch, 64, 40000), 1, (int[]){1}));
/* In one visit, and not in whole vectors. */
KERNELS(check_hashes, rows_once,
        kiln_logsumexp(batch, imagine_matrix(batch, 64, 50257), 1, (int[]){1}, 0));
/* Two operands are held: work-items exchange in loops. */
KERNELS(check_hashes, rows_held, slope(batch));
KERNELS(check_hashes, rows_apart, share(batch));
/* Neighbours are in different rows; rows that are two dimensions of three, the last one too. */
KERNELS(check_hashes, rows_columns,
        kiln_softmax(batch, imagine_matrix(batch, 64, 96), 1, (int[]){0}));
KERNELS(check_hashes, rows_around,
        kiln_softmax(batch, imagine(batch, 3, (size_t[]){5, 64, 96}), 2, (int[]){0, 2}));
/* Running sums and what is around them: along rows, from the last element on, in rows of no whole
 * vectors, along columns; with values of the same rows. */
KERNELS(check_whole, scan,
        kiln_add(batch,
                 kiln_cumsum(batch, kiln_scale(batch, imagine_matrix(batch, 64, 96), 2), 1, 0),
                 imagine_vector(batch, 96)));
KERNELS(check_hashes, scan_back, kiln_cumsum(batch, imagine_matrix(batch, 64, 97), 1, 1));
KERNELS(check_hashes, scan_long,
        kiln_cumsum(batch, kiln_scale(batch, imagine_vector(batch, 1 << 18), 2), 0, 1));
KERNELS(check_hashes, scan_columns,
        kiln_relu(batch, kiln_cumsum(batch, imagine_matrix(batch, 64, 96), 0, 1)));
KERNELS(check_hashes, scan_softmax,
        kiln_cumsum(batch, kiln_softmax(batch, imagine_matrix(batch, 64, 96), 1, (int[]){1}), 1,
                    0));
KERNELS(check_whole, product_epilogue,
        kiln_relu(batch, kiln_add(batch,
                                  kiln_matmul(batch, imagine_matrix(batch, 64, 96),
                                              imagine_matrix(batch, 96, 64)),
                                  imagine_vector(batch, 64))));
KERNELS(check_hashes, product_operands, multiply_bytes(batch));
KERNELS(check_hashes, product_updates, update_matrices(batch));

KERNELS(check_whole, attention,
        kiln_attention(batch, imagine_matrix(batch, 64, 96), imagine_matrix(batch, 80, 96),
                       imagine_matrix(batch, 80, 96), imagine_matrix(batch, 64, 80), NULL));
