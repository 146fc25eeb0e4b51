/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that launches are said to move, beside a count by hand: on a CPU and on a GPU that
 * exist only here, for each kind of launch. */
#include <criterion/criterion.h>
#include <stdbool.h>
#include <string.h>

#include "../support/graph.h"
#include "session/compile.h"
#include "session/context.h"

#define F32 sizeof(float)
#define MOST 12

static _Alignas(64) char nowhere[64];

static kiln_tensor given(kiln_batch *batch, kiln_type type, size_t m, size_t n)
{
    return kiln_upload(batch, type, 2, (size_t[]){m, n}, nowhere);
}

#define X(m, n) imagine_matrix(batch, m, n)
#define CUBE(a, b, c) imagine(batch, 3, (size_t[]){a, b, c})
#define VECTOR(n) imagine_vector(batch, n)
#define GIVEN(type, m, n) given(batch, type, m, n)
#define TURNED(x) kiln_transpose(batch, x, NULL)
#define SLICE(x, from, to) kiln_slice(batch, x, (int64_t[]){from}, (int64_t[]){to}, NULL)
#define NUMBERS(n) kiln_upload(batch, KILN_I32, 1, (size_t[]){n}, nowhere)

/* ---- counting ---- */

/* Bytes of each launch, in their order. */
struct moved {
    size_t launches;
    uint64_t bytes[MOST], all;
    const char *kernel[MOST];
};

/* `product`: the implementation; NULL: as the device has it. Empties the batch. */
static struct moved moved_by(kiln_batch *batch, const char *product)
{
    struct kiln__plan_options options = {.device = &batch->context->runtime.device,
                                         .matmul = product};
    struct moved moved = {0};
    struct kiln__plan plan;
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    cr_assert_eq(kiln__compile_plan(&batch->graph, &options, NULL, &plan, NULL), KILN_OK, "%s",
                 kiln_last_error());
    moved.launches = plan.launches.count;
    cr_assert_leq(moved.launches, MOST);
    for (size_t i = 0; i < moved.launches; i++) {
        const struct kiln__launch *launch = &plan.launches.items[i];
        moved.bytes[i] = launch->bytes;
        moved.kernel[i] = launch->kernel;
        moved.all += launch->bytes;
        cr_expect(!product || !launch->choice.substitute, "%s", product);
    }
    kiln__plan_free(&plan);
    cr_assert_eq(kiln_batch_reset(batch), KILN_OK);
    return moved;
}

static void expect_on(kiln_batch *batch, kiln_tensor y, const char *product, size_t launches,
                      uint64_t bytes, const char *what)
{
    ask(batch, y);
    struct moved moved = moved_by(batch, product);
    cr_expect_eq(moved.launches, launches, "%s: %zu launches", what, moved.launches);
    cr_expect_eq(moved.all, bytes, "%s: %llu bytes, not %llu", what, (unsigned long long)moved.all,
                 (unsigned long long)bytes);
}

/* Record an expression of `batch`, whose so many launches move `bytes` together. */
#define EXPECT(expression, launches, bytes)                                                        \
    expect_on(batch, (expression), NULL, launches, bytes, #expression)
#define EXPECT_BY(product, expression, bytes)                                                      \
    expect_on(batch, (expression), product, 1, bytes, product ": " #expression)

/* Run `check` for both devices. */
static void on_both(void (*check)(kiln_batch *batch))
{
    kiln_context *devices[] = {imagined_cpu(), imagined_gpu()};
    for (size_t i = 0; i < 2; i++) {
        kiln_batch *batch = kiln_batch_create(devices[i]);
        cr_assert(batch);
        check(batch);
        kiln_batch_release(batch);
    }
}

/* ---- maps ---- */

static void check_maps(kiln_batch *batch)
{
    const uint64_t all = 1500 * F32;
    EXPECT(kiln_relu(batch, X(30, 50)), 1, 2 * all);
    EXPECT(kiln_add(batch, X(30, 50), VECTOR(50)), 1, 2 * all + 50 * F32);
    EXPECT(kiln_add(batch, X(30, 50), X(30, 1)), 1, 2 * all + 30 * F32);
    EXPECT(kiln_cast(batch, X(30, 50), KILN_BF16), 1, all + all / 2);
    EXPECT(kiln_relu(batch, GIVEN(KILN_F16, 30, 50)), 1, all / 2 + all);
    EXPECT(kiln_scale(batch, TURNED(X(300, 50)), 2), 1, 20 * all);
    EXPECT(kiln_fill(batch, KILN_F32, 2, ((size_t[]){30, 50}), 7), 1, all);
    EXPECT(kiln_iota(batch, 2, ((size_t[]){30, 50}), 1), 1, all);
    kiln_tensor x = X(30, 50);
    EXPECT(kiln_mul(batch, x, x), 1, 2 * all);
}

Test(traffic, of_maps)
{
    on_both(check_maps);
}

static void check_slices(kiln_batch *batch)
{
    EXPECT(kiln_neg(batch, SLICE(VECTOR(1000), 10, 20)), 1, 20 * F32);
    kiln_tensor x = VECTOR(1000);
    EXPECT(kiln_sub(batch, SLICE(x, 1, 11), SLICE(x, 0, 10)), 1, (11 + 10) * F32);
    x = VECTOR(1000);
    EXPECT(kiln_sub(batch, SLICE(x, 500, 600), SLICE(x, 0, 100)), 1, 300 * F32);
    x = kiln_slice(batch, VECTOR(1000), (int64_t[]){0}, (int64_t[]){1000}, (int64_t[]){4});
    EXPECT(kiln_neg(batch, x), 1, 500 * F32);
    EXPECT(kiln_concat(batch, 2, ((kiln_tensor[]){X(30, 50), X(20, 50)}), 0), 2, 2 * 2500 * F32);
}

Test(traffic, of_slices_and_parts)
{
    on_both(check_slices);
}

static void check_random(kiln_batch *batch)
{
    ask(batch, kiln_random_uniform(batch, 1, (size_t[]){1000}, NUMBERS(2)));
    struct moved moved = moved_by(batch, NULL);
    cr_expect_eq(moved.all, 1000 * F32 + 2 * sizeof(int32_t), "%llu",
                 (unsigned long long)moved.all);
}

/* An old content is read, and a new one written there. */
static void check_updates(kiln_batch *batch)
{
    imagine_update(batch, kiln_scale(batch, X(30, 50), 0.5));
    cr_expect_eq(moved_by(batch, NULL).all, 3 * 1500 * F32);
}

Test(traffic, of_updates_and_random_numbers)
{
    on_both(check_updates);
    on_both(check_random);
}

/* ---- reductions and rows ---- */

static void check_reductions(kiln_batch *batch)
{
    const uint64_t all = 150000 * F32;
    EXPECT(kiln_sum(batch, X(30, 5000), 1, ((int[]){1}), 0), 1, all + 30 * F32);
    EXPECT(kiln_sum(batch, GIVEN(KILN_BF16, 30, 5000), 1, ((int[]){1}), 0), 1, all / 2 + 30 * F32);
    EXPECT(kiln_softmax(batch, X(30, 1000), 1, ((int[]){1})), 1, 2 * 30000 * F32);
    EXPECT(kiln_cumsum(batch, X(30, 1000), 1, 0), 1, 2 * 30000 * F32);
    kiln_tensor x = kiln_sum(batch, kiln_square(batch, X(30, 500)), 1, (int[]){1}, 0);
    EXPECT(kiln_add(batch, x, VECTOR(30)), 1, (15000 + 30 + 30) * F32);
}

Test(traffic, of_reductions)
{
    on_both(check_reductions);
}

/* Two launches: what the first one leaves, the second reads; each reads what it needs. */
static void check_long(kiln_batch *batch)
{
    enum { N = 7000000 };
    kiln_tensor sum = kiln_sum(batch, VECTOR(N), 0, NULL, 1);
    ask(batch, kiln_add(batch, sum, VECTOR(1)));
    struct moved moved = moved_by(batch, NULL);
    cr_assert_eq(moved.launches, 2u);
    uint64_t left = moved.bytes[0] - N * F32;
    cr_expect(left >= F32 && left < N && left % F32 == 0, "%llu", (unsigned long long)left);
    cr_expect_eq(moved.bytes[1], left + 2 * F32);

    ask(batch, kiln_argmax(batch, VECTOR(N), 0, NULL, 0));
    moved = moved_by(batch, NULL);
    cr_assert_eq(moved.launches, 2u);
    left = moved.bytes[0] - N * F32;
    cr_expect(left >= 2 * F32 && left < 2 * N && left % (2 * F32) == 0);
    cr_expect_eq(moved.bytes[1], left + sizeof(int32_t));

    ask(batch, kiln_add(batch, kiln_cumsum(batch, VECTOR(N), 0, 0), VECTOR(1)));
    moved = moved_by(batch, NULL);
    if (moved.launches == 2) { /* a CPU carries sums along the whole row */
        left = moved.bytes[0] - N * F32;
        cr_expect(left >= F32 && left < N, "%llu", (unsigned long long)left);
        cr_expect_eq(moved.bytes[1], left + 2 * N * F32 + F32);
    } else {
        cr_expect_eq(moved.all, 2 * N * F32 + F32);
    }
}

Test(traffic, of_reductions_in_two_launches)
{
    on_both(check_long);
}

/* ---- products ---- */

enum { M = 64, K = 96, N = 48, A = M * K * 4, B = K * N * 4, C = M * N * 4 };

/* By a kernel that is one launch. */
#define CHECK_PRODUCTS(by)                                                                         \
    do {                                                                                           \
        EXPECT_BY(by, kiln_matmul(batch, X(M, K), X(K, N)), A + B + C);                            \
        EXPECT_BY(by, kiln_matmul(batch, X(M, K), TURNED(X(N, K))), A + B + C);                    \
        EXPECT_BY(by, kiln_add(batch, kiln_matmul(batch, X(M, K), X(K, N)), VECTOR(N)),            \
                  A + B + C + N * F32);                                                            \
        EXPECT_BY(by, kiln_add(batch, kiln_matmul(batch, X(M, K), X(K, N)), X(M, N)),              \
                  A + B + 2 * C);                                                                  \
        EXPECT_BY(by, kiln_relu(batch, kiln_matmul(batch, X(M, K), X(K, N))), A + B + C);          \
        EXPECT_BY(by, kiln_matmul(batch, CUBE(5, M, K), CUBE(5, K, N)), 5 * (A + B + C));          \
        EXPECT_BY(by, kiln_matmul(batch, CUBE(5, M, K), CUBE(1, K, N)), 5 * (A + C) + B);          \
        EXPECT_BY(by,                                                                              \
                  kiln_matmul(batch, X(M, K), kiln_cast(batch, GIVEN(KILN_BF16, K, N), KILN_F32)), \
                  A + B / 2 + C);                                                                  \
        EXPECT_BY(by, kiln_matmul(batch, GIVEN(KILN_BF16, M, K), GIVEN(KILN_BF16, K, N)),          \
                  A / 2 + B / 2 + C);                                                              \
        EXPECT_BY(by, kiln_matmul(batch, X(M, K), scaled_bytes(batch)), A + B / 4 + N * F32 + C);  \
        EXPECT_BY(by,                                                                              \
                  kiln_matmul_quantized(batch, GIVEN(KILN_I8, M, K), (kiln_tensor){0},             \
                                        GIVEN(KILN_I8, K, N), 0, VECTOR(N)),                       \
                  A / 4 + B / 4 + N * F32 + C);                                                    \
    } while (0)

/* Weights as bytes with a scale for each column. */
static kiln_tensor scaled_bytes(kiln_batch *batch)
{
    kiln_tensor bytes = kiln_cast(batch, GIVEN(KILN_I8, K, N), KILN_F32);
    return kiln_mul(batch, bytes, VECTOR(N));
}

Test(traffic, of_products_in_one_launch)
{
    kiln_batch *batch = kiln_batch_create(imagined_cpu());
    CHECK_PRODUCTS("small");
    kiln_batch_release(batch);
    batch = kiln_batch_create(imagined_gpu());
    CHECK_PRODUCTS("tiled");
    kiln_batch_release(batch);
}

/* Of an operand in panels one launch makes what the other reads, a few zeros longer. */
Test(traffic, of_products_in_panels)
{
    kiln_batch *batch = kiln_batch_create(imagined_cpu());
    ask(batch, kiln_add(batch, kiln_matmul(batch, X(M, K), GIVEN(KILN_F32, K, N)), VECTOR(N)));
    struct moved moved = moved_by(batch, "packed");
    cr_assert_eq(moved.launches, 2u);
    uint64_t panels = moved.bytes[0] - B;
    cr_expect(panels >= B && panels < 3 * B, "%llu", (unsigned long long)panels);
    cr_expect_eq(moved.bytes[1], A + panels + N * F32 + C);

    ask(batch, kiln_matmul(batch, GIVEN(KILN_BF16, M, K), GIVEN(KILN_BF16, K, N)));
    moved = moved_by(batch, "packed");
    cr_assert_eq(moved.launches, 2u);
    cr_expect_eq(moved.bytes[0], B / 2 + panels);
    cr_expect_eq(moved.bytes[1], A / 2 + panels + C);
    kiln_batch_release(batch);
}

/* Sums of parts of k, which another launch adds up and finishes. */
Test(traffic, of_products_in_splits)
{
    enum { DEEP = 100000 };
    kiln_batch *batch = kiln_batch_create(imagined_cpu());
    kiln_tensor y = kiln_matmul(batch, X(3, DEEP), X(DEEP, 40));
    ask(batch, kiln_add(batch, y, VECTOR(40)));
    struct moved moved = moved_by(batch, "skinny");
    cr_assert_eq(moved.launches, 2u);
    uint64_t left = moved.bytes[0] - 43 * DEEP * F32;
    cr_expect(left >= 2 * 120 * F32 && left % (120 * F32) == 0, "%llu", (unsigned long long)left);
    cr_expect_eq(moved.bytes[1], left + (120 + 40) * F32);
    kiln_batch_release(batch);

    batch = kiln_batch_create(imagined_gpu());
    y = kiln_matmul(batch, X(M, DEEP), X(DEEP, N));
    ask(batch, kiln_add(batch, y, VECTOR(N)));
    moved = moved_by(batch, "tiled");
    left = moved.bytes[0] - (M + N) * DEEP * F32;
    if (moved.launches == 2) {
        cr_expect(left >= 2 * C && left % C == 0, "%llu", (unsigned long long)left);
        cr_expect_eq(moved.bytes[1], left + C + N * F32);
    } else {
        cr_expect_eq(left, C + N * F32);
    }
    kiln_batch_release(batch);
}

/* The image once, however many windows an element is in. */
static void check_convolution(kiln_batch *batch)
{
    const uint64_t image = 64 * 64 * 32 * F32, weights = 9 * 32 * 64 * F32,
                   result = 62 * 62 * 64 * F32;
    ask(batch, kiln_conv2d(batch, imagine(batch, 4, (size_t[]){1, 64, 64, 32}),
                           imagine(batch, 4, (size_t[]){3, 3, 32, 64}), NULL));
    struct moved moved = moved_by(batch, NULL);
    uint64_t panels = moved.launches == 2 ? moved.bytes[0] - weights : 0;
    cr_assert_leq(moved.launches, 2u);
    cr_expect_eq(moved.bytes[moved.launches - 1], image + (panels ? panels : weights) + result);
    cr_expect(!panels || (panels >= weights && panels < 2 * weights));
    ask(batch,
        kiln_max_pool(batch, imagine(batch, 4, (size_t[]){1, 64, 64, 32}), (size_t[]){2, 2},
                      &(kiln_pool_options){.size = sizeof(kiln_pool_options), .stride = {2, 2}},
                      NULL));
    moved = moved_by(batch, NULL);
    cr_expect_eq(moved.all, image + image / 4, "%llu", (unsigned long long)moved.all);
}

Test(traffic, of_convolutions)
{
    on_both(check_convolution);
}

/* ---- kernels for one node ---- */

#define ATTENTION(mask)                                                                            \
    kiln_attention(batch, CUBE(6, 100, 32), CUBE(6, 90, 32), CUBE(6, 90, 48), mask, NULL)

static void check_attention(kiln_batch *batch)
{
    const uint64_t all = 6 * (100 * 32 + 90 * 32 + 90 * 48 + 100 * 48) * F32;
    EXPECT(ATTENTION(((kiln_tensor){0})), 1, all);
    EXPECT(ATTENTION(GIVEN(KILN_U8, 100, 90)), 1, all + 100 * 90);
    kiln_tensor qkv = CUBE(3, 100, 32), part[3];
    for (int64_t i = 0; i < 3; i++)
        part[i] = kiln_slice(batch, qkv, (int64_t[]){i, 0, 0}, (int64_t[]){i + 1, 100, 32}, NULL);
    EXPECT(kiln_attention(batch, part[0], part[1], part[2], (kiln_tensor){0}, NULL), 1,
           4 * 3200 * F32);
}

Test(traffic, of_attention)
{
    on_both(check_attention);
}

static kiln_tensor rows_of(kiln_batch *batch)
{
    return kiln_upload(batch, KILN_BF16, 3, (size_t[]){6, 100, 32}, nowhere);
}

/* The scales of rows are of queries and keys; slopes of all four, and of each query's stats. */
Test(traffic, of_gradients_of_attention)
{
    enum { ROWS = 6 * 100 * 32 * 2, SCALES = 6 * 100 * 4, STATS = 4 * SCALES, FLOATS = 2 * ROWS };
    const uint64_t each = 4 * ROWS + STATS + FLOATS;
    size_t found[3] = {0};
    kiln_batch *batch = kiln_batch_create(imagined_gpu());
    batch->takes_attention_backward = take_attention_backward;
    kiln_tensor given[3] = {rows_of(batch), rows_of(batch), rows_of(batch)}, slopes[3];
    kiln_tensor y = kiln_attention(batch, given[0], given[1], given[2], (kiln_tensor){0}, NULL);
    kiln_tensor loss = kiln_sum(batch, kiln_mul(batch, y, rows_of(batch)), 0, NULL, 0);
    cr_assert_eq(kiln_grad(batch, loss, given, 3, slopes), KILN_OK, "%s", kiln_batch_error(batch));
    for (size_t i = 0; i < 3; i++)
        ask(batch, slopes[i]);
    struct moved moved = moved_by(batch, NULL);
    for (size_t i = 0; i < moved.launches; i++) {
        bool slopes_of = !strcmp(moved.kernel[i], "attention_backward");
        found[0] += slopes_of && moved.bytes[i] == each;
        found[1] += slopes_of && moved.bytes[i] == 2 * ROWS + SCALES;
        found[2] +=
            !strcmp(moved.kernel[i], "attention_gpu") && moved.bytes[i] == 3 * ROWS + FLOATS;
    }
    cr_expect_eq(found[0], 3u, "of queries, keys and values");
    cr_expect_eq(found[1], 1u, "of scales");
    cr_expect_eq(found[2], 1u, "of the attention itself");
    kiln_batch_release(batch);
}

static void check_lookups(kiln_batch *batch)
{
    enum { ROW = 64 * sizeof(float), INDEX = sizeof(int32_t) };
    EXPECT(kiln_gather(batch, X(1000, 64), NUMBERS(4), 0), 1, 8 * ROW + 4 * INDEX);
    EXPECT(kiln_gather(batch, X(3, 64), NUMBERS(400), 0), 1, 403 * ROW + 400 * INDEX);
    kiln_tensor rows = kiln_gather(batch, X(1000, 64), NUMBERS(4), 0);
    EXPECT(kiln_add(batch, CUBE(5, 4, 64), rows), 1, (20 + 4 + 20) * ROW + 4 * INDEX);
    EXPECT(kiln_gather_elements(batch, X(10, 64), GIVEN(KILN_I32, 2, 64), 0), 1,
           (2 + 2) * ROW + 128 * INDEX);
    ask(batch, kiln_scatter_add(batch, X(1000, 64), NUMBERS(4), X(4, 64), 0));
    struct moved moved = moved_by(batch, NULL);
    cr_assert_eq(moved.launches, 2u);
    cr_expect_eq(moved.bytes[0], 2000u * ROW);
    cr_expect_eq(moved.bytes[1], 12u * ROW + 4 * INDEX);
    ask(batch, kiln_scatter_add(batch, X(10, 64), NUMBERS(400), X(400, 64), 0));
    moved = moved_by(batch, NULL);
    cr_expect_eq(moved.bytes[1], 420u * ROW + 400 * INDEX);
}

Test(traffic, of_gathers_and_scatters)
{
    on_both(check_lookups);
}

static void check_sorts(kiln_batch *batch)
{
    const uint64_t line = 70000 * F32, key = 2 * line;
    EXPECT(kiln_argsort(batch, X(30, 50), 1, 0), 1, 2 * 1500 * F32);
    kiln_tensor first;
    kiln_topk(batch, X(2, 1000), 3, 1, 0, &first);
    EXPECT(first, 1, (2000 + 6) * F32);
    kiln_topk(batch, VECTOR(70000), 5, 0, 0, &first);
    ask(batch, first);
    struct moved moved = moved_by(batch, NULL);
    cr_assert_eq(moved.launches, 2u);
    cr_expect_eq(moved.bytes[0] - line, (moved.bytes[1] - 5 * F32) / 2); /* what parts have left */
    ask(batch, kiln_argsort(batch, VECTOR(70000), 0, 0));
    moved = moved_by(batch, NULL);
    const size_t each = moved.launches / 4; /* digits */
    cr_assert(each == 2 || each == 3);
    cr_expect_eq(moved.bytes[0], line);
    cr_expect_eq(moved.bytes[each - 1], line + key);
    cr_expect_eq(moved.bytes[each], key);
    cr_expect_eq(moved.bytes[2 * each - 1], 2 * key);
    cr_expect_eq(moved.bytes[4 * each - 1], key + line);
}

Test(traffic, of_sorts)
{
    on_both(check_sorts);
}
