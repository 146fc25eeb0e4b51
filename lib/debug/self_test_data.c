/* SPDX-License-Identifier: Apache-2.0 */
/* The operands are multiples of 1/8 from -1 to below 1, as those of measure_products.c, or whole
 * numbers, or have parts that do not fit into 11 bits, A's at other k than B's: all sums of
 * products are exact in f32 in whatever order. The sizes are no multiples of a tile's, there are
 * more tiles of a product than cores, and more steps than a kernel has stages. An attention's keys
 * are its values, too, and each row sees some of them; of backward nodes both operands are taken
 * twice. */
#include "debug/self_test_data.h"

#include <math.h>
#include <stdlib.h>

#include "reference/reference_attention.h"

bool kiln__self_test_is_attention(const struct kiln__self_test *self_test)
{
    return self_test->kernel->family != KILN__KERNEL_PRODUCT;
}

/* A product of floats on tensor cores, which takes them in tf32. */
bool kiln__self_test_is_of_floats(const struct kiln__self_test *self_test)
{
    return !kiln__self_test_is_attention(self_test) && self_test->type == KILN_F32;
}

bool kiln__self_test_is_backward(const struct kiln__self_test *self_test)
{
    return self_test->kernel->family == KILN__KERNEL_ATTENTION_GRADIENT;
}

/* Of a product; where tiles are handed over, a core has three. A kernel for few rows has fewer than
 * it has room for. */
static size_t rows_of(const struct kiln__self_test *self_test)
{
    if (self_test->kernel == kiln__kernel_of(KILN__KERNEL_PRODUCT, KILN__BY_mma_rows - 1u))
        return self_test->tile - 3u;
    return self_test->form ? 2 * M : M;
}

struct kiln__self_test_shapes kiln__self_test_shapes(const struct kiln__self_test *self_test)
{
    size_t columns = self_test->tile - 8u; /* fewer than its kernel has room for */
    struct kiln__self_test_shapes shapes = {
        {QUERIES, columns}, {KEYS, columns}, {QUERIES, columns}, {0, 0}};
    if (kiln__self_test_is_backward(self_test) && self_test->form == KILN__BACKWARD_LOG_SUM_EXP)
        shapes.y[1] = 1;
    if (kiln__self_test_is_backward(self_test) && self_test->form == KILN__BACKWARD_BOTH)
        shapes.second[0] = QUERIES, shapes.second[1] = columns;
    if (kiln__self_test_is_attention(self_test) && !kiln__self_test_is_backward(self_test) &&
        self_test->form)
        shapes.second[0] = QUERIES, shapes.second[1] = 1;
    if (kiln__self_test_is_attention(self_test))
        return shapes;
    const size_t m = rows_of(self_test);
    shapes = (struct kiln__self_test_shapes){{m, K}, {K, N}, {m, N}, {0, 0}};
    if (self_test->transpose_a)
        shapes.a[0] = K, shapes.a[1] = m;
    if (self_test->transpose_b)
        shapes.b[0] = N, shapes.b[1] = K;
    return shapes;
}

size_t kiln__self_test_count(const size_t shape[2])
{
    return MATRICES * shape[0] * shape[1];
}

/* Element i, which is even as k is. */
float kiln__self_test_value(const struct kiln__self_test *self_test, size_t i)
{
    uint32_t mixed = ((uint32_t)i ^ (uint32_t)(i >> 11)) * UINT32_C(2246822519);
    int whole = (int)(mixed >> 28) - 8;
    if (self_test->type == KILN_I8)
        return (float)whole;
    if (self_test->parts == 1)
        return (float)whole / 8;
    float rest = i % 2 == 0 ? ((float)(mixed >> 20 & 3) - 1) * 0x1p-13f : 0;
    const int quarter = whole / 4;
    return (float)quarter / 2 + rest;
}

static double self_test_multiplier(size_t column)
{
    return (double)((uint32_t)column * UINT32_C(2654435761) >> 22);
}

/* What the mask adds to a score; each row sees some keys. */
float kiln__self_test_mask(kiln_type type, size_t row, size_t key)
{
    const uint32_t mixed = (uint32_t)(row * KEYS + key) * UINT32_C(2654435761) >> 24;
    if (mixed % 5 == 0)
        return -INFINITY;
    return type == KILN_U8 ? 0 : (float)(mixed % 32) / 8;
}

/* Of what is walked there are KEYS rows, whether they are keys or queries. */
struct kiln__node kiln__self_test_node(const struct kiln__self_test *self_test, bool second)
{
    struct kiln__node node = {
        .kind = KILN__ATTENTION_BACKWARD, .type = KILN_F32, .op = (uint8_t)self_test->type};
    node.attention.backward_result = !kiln__self_test_is_backward(self_test)
                                         ? KILN__BACKWARD_LOG_SUM_EXP
                                     : self_test->form != KILN__BACKWARD_BOTH ? self_test->form
                                     : second ? KILN__BACKWARD_VALUES
                                              : KILN__BACKWARD_KEYS;
    node.attention.scale = kiln__self_test_is_backward(self_test) ? SLOPES_SCALE : SCALE;
    node.attention.causal = 1;
    node.n_inputs =
        node.attention.backward_result == KILN__BACKWARD_LOG_SUM_EXP ? 2 : KILN__STATS + 1;
    node.attention.diagonal =
        kiln__attention_backward_by_key(&node) ? -(int64_t)(QUERIES / 4) : KEYS - QUERIES;
    return node;
}

/* Of each query: such that weights are of all sizes, to some dozens. */
double kiln__self_test_stat(size_t query, size_t column)
{
    const double of[] = {4 + (double)(query % 7) / 2, (double)(query % 5) / 4, 0.5, 2};
    return of[column];
}

/* ---- what is right ---- */

struct judged {
    const struct kiln__self_test *self_test;
    const struct kiln__self_test_values *values;
};

/* One row of an attention; an error of each weight, rounded to the operands' type, is no error. */
static bool is_right_row(struct judged test, size_t row, const float *q, const float *keys,
                         const float *y)
{
    const kiln_type mask = test.self_test->mask;
    const size_t seen = row + KEYS - QUERIES + 1;
    const size_t columns = kiln__self_test_shapes(test.self_test).y[1];
    const double slack = test.self_test->type == KILN_F32   ? 0
                         : test.self_test->type == KILN_F16 ? 0x1p-11
                                                            : 0x1p-8;
    double scores[KEYS], peak = -INFINITY, total = 0;
    for (size_t j = 0; j < seen; j++) {
        scores[j] = mask ? (double)kiln__self_test_mask(mask, row, j) : 0;
        for (size_t c = 0; c < columns; c++)
            scores[j] += SCALE * (double)q[c] * (double)keys[j * columns + c];
        peak = fmax(peak, scores[j]);
    }
    for (size_t j = 0; j < seen; j++)
        total += scores[j] = exp(scores[j] - peak);
    for (size_t c = 0; c < columns; c++) {
        double wanted = 0;
        for (size_t j = 0; j < seen; j++)
            wanted += scores[j] * (double)keys[j * columns + c];
        if (!(fabs((double)y[c] - wanted / total) <= slack + 1e-4))
            return false;
    }
    return true;
}

static bool is_right_attention(struct judged test, size_t matrix)
{
    const size_t columns = kiln__self_test_shapes(test.self_test).y[1];
    for (size_t i = matrix * QUERIES; i < (matrix + 1) * QUERIES; i++)
        if (!is_right_row(test, i - matrix * QUERIES, test.values->a + i * columns,
                          test.values->b + matrix * KEYS * columns, test.values->y + i * columns))
            return false;
    return true;
}

/* Errors are small beside the largest result. */
static bool is_right_backward(struct judged test, size_t matrix, bool second)
{
    const struct kiln__self_test *self_test = test.self_test;
    const struct kiln__self_test_shapes shapes = kiln__self_test_shapes(self_test);
    const size_t *shape = second ? shapes.second : shapes.y;
    const float *sums = second ? test.values->second : test.values->y;
    const size_t columns = shapes.a[1], results = shape[0] * shape[1];
    struct kiln__node node = kiln__self_test_node(self_test, second);
    const double slack = node.attention.backward_result == KILN__BACKWARD_LOG_SUM_EXP ? 1e-4
                         : self_test->type == KILN_F16                                ? 0x1p-10
                                                                                      : 0x1p-7;
    const struct kiln__attention_size size = {QUERIES, KEYS, columns, columns, 1};
    double *a = malloc((QUERIES * 2 + KEYS) * columns * sizeof *a),
           stats[KEYS * KILN__STATS_COLUMNS];
    bool right = true;
    node.shape = (struct kiln__shape){.rank = 2, .dims = {shape[0], shape[1]}};
    if (!a)
        return false;
    double *b = a + QUERIES * columns, *wanted = b + KEYS * columns, most = 0;
    for (size_t i = 0; i < QUERIES * columns; i++)
        a[i] = (double)test.values->a[matrix * QUERIES * columns + i];
    for (size_t i = 0; i < KEYS * columns; i++)
        b[i] = (double)test.values->b[matrix * KEYS * columns + i];
    for (size_t i = 0; i < sizeof stats / sizeof *stats; i++)
        stats[i] = kiln__self_test_stat(i / KILN__STATS_COLUMNS, i % KILN__STATS_COLUMNS);
    const double *const inputs[KILN__MOST_INPUTS] = {a, b, a, b, stats};
    kiln__attention_backward_evaluate_matrix(&node, &size, inputs, wanted);
    for (size_t i = 0; i < results; i++)
        most = fmax(most, isinf(wanted[i]) ? 0 : fabs(wanted[i]));
    for (size_t i = 0; i < results && right; i++) {
        const double found = (double)sums[matrix * results + i];
        right = found == wanted[i] || fabs(found - wanted[i]) <= slack * most;
    }
    free(a);
    return right;
}

/* R. Freivalds (1977): y = a b, if both give the same column by a third matrix. */
static bool is_right_product(struct judged test, size_t matrix)
{
    const struct kiln__self_test *self_test = test.self_test;
    const size_t rows = rows_of(self_test);
    const float *a = test.values->a + matrix * rows * K, *b = test.values->b + matrix * K * N;
    const float *y = test.values->y + matrix * rows * N;
    double check[K] = {0};
    for (size_t k = 0; k < K; k++)
        for (size_t n = 0; n < N; n++)
            check[k] +=
                (double)b[self_test->transpose_b ? n * K + k : k * N + n] * self_test_multiplier(n);
    for (size_t m = 0; m < rows; m++) {
        double wanted = 0, found = 0;
        for (size_t k = 0; k < K; k++)
            wanted += (double)a[self_test->transpose_a ? k * rows + m : m * K + k] * check[k];
        for (size_t n = 0; n < N; n++)
            found += (double)y[m * N + n] * self_test_multiplier(n);
        if (!(found == wanted))
            return false;
    }
    return true;
}

bool kiln__self_test_is_right(const struct kiln__self_test *self_test,
                              const struct kiln__self_test_values *values)
{
    const struct judged test = {self_test, values};
    bool right = true;
    for (size_t matrix = 0; matrix < MATRICES && right; matrix++)
        right = kiln__self_test_is_backward(self_test)    ? is_right_backward(test, matrix, false)
                : kiln__self_test_is_attention(self_test) ? is_right_attention(test, matrix)
                                                          : is_right_product(test, matrix);
    for (size_t matrix = 0;
         matrix < MATRICES && right && kiln__self_test_shapes(self_test).second[0]; matrix++)
        right = is_right_backward(test, matrix, true);
    return right;
}
