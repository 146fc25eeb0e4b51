/* SPDX-License-Identifier: Apache-2.0 */
/* The operands are multiples of 1/8 from -1 to below 1, as those of measure_products.c, or whole
 * numbers, or have parts that do not fit into 11 bits, A's at other k than B's: all sums of
 * products are exact in f32 in whatever order. The sizes are no multiples of a tile's, there are
 * more tiles of a product than cores, and more steps than a kernel has stages. An attention's keys
 * are its values, too, and each row sees some of them; of backward nodes both operands are taken
 * twice. */
#include "debug/self_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/attention.h>
#include <kiln/buffer.h>
#include <kiln/opencl.h>
#include <kiln/operations.h>
#include <kiln/product.h>

#include "debug/crash_probe.h"
#include "record/record_attention_backward.h"
#include "reference/reference_attention.h"
#include "session/context.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/kernel_texts.h"

enum { BATCH = 2, M = 1104, N = 2296, K = 328, QUERIES = 200, KEYS = 392 };
#define SCALE 2.0          /* of scores: some keys weigh much, most little */
#define SLOPES_SCALE 0.125 /* whose weights are not divided by their sum: f16 holds them */
enum { PATIENCE = 5, LIFE = 120, LONG = 20 /* seconds: what does not end by then never will */ };

struct known {
    struct kiln__self_test self_test;
    enum kiln__probe_outcome end;
};

struct self_tests {
    struct kiln__self_tester self_tester; /* first */
    struct kiln__runtime *runtime;
    pthread_mutex_t mutex; /* held while one is tried, device and disk included */
    KILN__VECTOR(struct known) known;
};

static bool is_same(const struct kiln__self_test *a, const struct kiln__self_test *b)
{
    return a->kernel == b->kernel && a->type == b->type && a->mask == b->mask &&
           a->transpose_a == b->transpose_a && a->transpose_b == b->transpose_b &&
           a->parts == b->parts && a->tile == b->tile && a->form == b->form;
}

/* ---- the product ---- */

/* A context's prover that lets it use this kernel alone. */
struct only {
    struct kiln__self_tester self_tester; /* first */
    struct kiln__self_test self_test;
    bool used;
};

static bool is_it(struct kiln__self_tester *self_tester, const struct kiln__self_test *self_test)
{
    struct only *only = (struct only *)self_tester;
    bool same = is_same(&only->self_test, self_test);
    only->used = only->used || same;
    return same;
}

struct test {
    struct kiln__runtime *runtime; /* whose device it is */
    struct only only;
    cl_context cl;
    kiln_context *context;
    kiln_batch *batch;
    kiln_buffer *a, *b, *mask, *stats, *y,
        *beside; /* beside: of the second node, if there is one */
    float *values_a, *values_b, *sums, *sums_beside;
};

/* What there is of a and b in memory, and of y: [BATCH][rows][columns]. */
struct shapes {
    size_t a[2], b[2], y[2], beside[2]; /* beside: or 0 */
};

static bool is_attention(const struct kiln__self_test *self_test)
{
    return self_test->kernel->family != KILN__KERNEL_PRODUCT;
}

/* A product of floats on tensor cores, which takes them in tf32. */
static bool is_of_floats(const struct kiln__self_test *self_test)
{
    return !is_attention(self_test) && self_test->type == KILN_F32;
}

static bool is_backward(const struct kiln__self_test *self_test)
{
    return self_test->kernel->family == KILN__KERNEL_ATTENTION_GRADIENT;
}

/* Of a product; where tiles are handed over, a core has three. */
static size_t rows_of(const struct kiln__self_test *self_test)
{
    return self_test->form ? 2 * M : M;
}

static struct shapes shapes_of(const struct kiln__self_test *self_test)
{
    size_t columns = self_test->tile - 8u; /* fewer than its kernel has room for */
    struct shapes shapes = {{QUERIES, columns}, {KEYS, columns}, {QUERIES, columns}, {0, 0}};
    if (is_backward(self_test) && self_test->form == KILN__BACKWARD_LOG_SUM_EXP)
        shapes.y[1] = 1;
    if (is_backward(self_test) && self_test->form == KILN__BACKWARD_BOTH)
        shapes.beside[0] = QUERIES, shapes.beside[1] = columns;
    if (is_attention(self_test) && !is_backward(self_test) && self_test->form)
        shapes.beside[0] = QUERIES, shapes.beside[1] = 1;
    if (is_attention(self_test))
        return shapes;
    const size_t m = rows_of(self_test);
    shapes = (struct shapes){{m, K}, {K, N}, {m, N}, {0, 0}};
    if (self_test->transpose_a)
        shapes.a[0] = K, shapes.a[1] = m;
    if (self_test->transpose_b)
        shapes.b[0] = N, shapes.b[1] = K;
    return shapes;
}

static size_t self_test_count(const size_t shape[2])
{
    return BATCH * shape[0] * shape[1];
}

/* Element i, which is even as k is. */
static float value(const struct kiln__self_test *self_test, size_t i)
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

static kiln_status make_context(struct test *test)
{
    const struct kiln__device *device = &test->runtime->device;
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                          (cl_context_properties)device->platform, 0};
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    cl_int code;
    options.matmul = is_attention(&test->only.self_test) ? NULL : test->only.self_test.kernel->name;
    options.cache = KILN_CACHE_OFF;
    options.host_memory = KILN_HOST_MEMORY_SEPARATE;
    options.trace = "";
    options.compile = KILN_COMPILE_ALONE;
    options.precision = !is_of_floats(&test->only.self_test) ? KILN_PRECISION_EXACT
                        : test->only.self_test.parts > 1     ? KILN_PRECISION_F32X3
                                                             : KILN_PRECISION_TF32;
    test->cl = clCreateContext(properties, 1, &device->id, NULL, NULL, &code);
    if (code)
        return kiln__cl_fail(NULL, "clCreateContext", code);
    kiln_status status =
        kiln_context_create_cl(test->cl, device->id, NULL, &options, &test->context);
    if (!status)
        kiln__plan_cache_use_self_tester(test->context->plan_cache, &test->only.self_tester);
    return status;
}

/* An operand's values, and a buffer with them, which are brought into its type here: a kernel that
 * did it would have to be compiled. */
static kiln_status make_operand(struct test *test, const size_t shape[2], size_t first,
                                float **values, kiln_buffer **buffer)
{
    const struct kiln__self_test *self_test = &test->only.self_test;
    const size_t dims[] = {BATCH, shape[0], shape[1]}, item = kiln_type_size(self_test->type);
    char *stored = malloc(self_test_count(shape) * item);
    *values = malloc(self_test_count(shape) * sizeof **values);
    kiln_status status = stored && *values
                             ? kiln_buffer_create(test->context, self_test->type, 3, dims, buffer)
                             : KILN_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; !status && i < self_test_count(shape); i++) {
        (*values)[i] = value(self_test, first + i);
        kiln__type_store(self_test->type, (double)(*values)[i], stored + i * item);
    }
    if (!status)
        status = kiln_buffer_write(*buffer, 0, stored, self_test_count(shape) * item);
    free(stored);
    return status;
}

/* What the mask adds to a score; each row sees some keys. */
static float mask_value(kiln_type type, size_t row, size_t key)
{
    const uint32_t mixed = (uint32_t)(row * KEYS + key) * UINT32_C(2654435761) >> 24;
    if (mixed % 5 == 0)
        return -INFINITY;
    return type == KILN_U8 ? 0 : (float)(mixed % 32) / 8;
}

/* One for all matrices. */
static kiln_status make_mask(struct test *test)
{
    const kiln_type type = test->only.self_test.mask;
    const size_t dims[] = {1, QUERIES, KEYS}, item = kiln_type_size(type);
    const size_t scores = dims[1] * dims[2];
    char *stored = malloc(scores * item);
    kiln_status status = stored ? kiln_buffer_create(test->context, type, 3, dims, &test->mask)
                                : KILN_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; !status && i < scores; i++) {
        const float value = mask_value(type, i / KEYS, i % KEYS);
        kiln__type_store(type, (double)(type == KILN_U8 ? value == 0 : value), stored + i * item);
    }
    if (!status)
        status = kiln_buffer_write(test->mask, 0, stored, scores * item);
    free(stored);
    return status;
}

/* Of what is walked there are KEYS rows, whether they are keys or queries. */
static struct kiln__node backward_node(const struct kiln__self_test *self_test, bool beside)
{
    struct kiln__node node = {
        .kind = KILN__ATTENTION_BACKWARD, .type = KILN_F32, .op = (uint8_t)self_test->type};
    node.attention.form = !is_backward(self_test)                  ? KILN__BACKWARD_LOG_SUM_EXP
                          : self_test->form != KILN__BACKWARD_BOTH ? self_test->form
                          : beside                                 ? KILN__BACKWARD_VALUES
                                                                   : KILN__BACKWARD_KEYS;
    node.attention.scale = is_backward(self_test) ? SLOPES_SCALE : SCALE;
    node.attention.causal = 1;
    node.n_inputs = node.attention.form == KILN__BACKWARD_LOG_SUM_EXP ? 2 : KILN__STATS + 1;
    node.attention.diagonal =
        kiln__attention_backward_by_key(&node) ? -(int64_t)(QUERIES / 4) : KEYS - QUERIES;
    return node;
}

/* Of each query: such that weights are of all sizes, to some dozens. */
static double self_test_stat(size_t query, size_t column)
{
    const double of[] = {4 + (double)(query % 7) / 2, (double)(query % 5) / 4, 0.5, 2};
    return of[column];
}

/* The same for all matrices. */
static kiln_status make_stats(struct test *test)
{
    const struct kiln__node node = backward_node(&test->only.self_test, false);
    const size_t queries = kiln__attention_backward_by_key(&node) ? KEYS : QUERIES;
    const size_t dims[] = {1, queries, KILN__STATS_COLUMNS};
    float stats[KEYS * KILN__STATS_COLUMNS];
    kiln_status status = kiln_buffer_create(test->context, KILN_F32, 3, dims, &test->stats);
    for (size_t i = 0; i < queries * KILN__STATS_COLUMNS; i++)
        stats[i] = (float)self_test_stat(i / KILN__STATS_COLUMNS, i % KILN__STATS_COLUMNS);
    return status ? status
                  : kiln_buffer_write(test->stats, 0, stats, kiln_buffer_bytes(test->stats));
}

static kiln_status make_operands(struct test *test)
{
    const struct shapes shapes = shapes_of(&test->only.self_test);
    const size_t dims[] = {BATCH, shapes.y[0], shapes.y[1]};
    kiln_status status = make_operand(test, shapes.a, 0, &test->values_a, &test->a);
    if (!status)
        status = make_operand(test, shapes.b, 7777, &test->values_b, &test->b);
    if (!status && test->only.self_test.mask)
        status = make_mask(test);
    if (!status && is_backward(&test->only.self_test))
        status = make_stats(test);
    if (!status)
        status = kiln_buffer_create(test->context, KILN_F32, 3, dims, &test->y);
    const size_t beside[] = {BATCH, shapes.beside[0], shapes.beside[1]};
    if (!status && beside[1])
        status = kiln_buffer_create(test->context, KILN_F32, 3, beside, &test->beside);
    test->sums = calloc(self_test_count(shapes.y), sizeof *test->sums);
    test->sums_beside = calloc(self_test_count(shapes.beside) + 1, sizeof *test->sums_beside);
    return status || (test->sums && test->sums_beside) ? status : KILN_OUT_OF_HOST_MEMORY;
}

static kiln_tensor record_backward(const struct test *test, kiln_tensor a, kiln_tensor b,
                                   bool beside)
{
    const struct kiln__node node = backward_node(&test->only.self_test, beside);
    kiln_batch *batch = test->batch;
    a = kiln_cast(batch, a, KILN_F32);
    b = kiln_cast(batch, b, KILN_F32);
    const size_t queries = kiln__attention_backward_by_key(&node) ? KEYS : QUERIES;
    const size_t dims[] = {BATCH, queries, KILN__STATS_COLUMNS};
    const kiln_tensor none = {0};
    kiln_tensor stats =
        test->stats ? kiln_broadcast(batch, kiln_import(batch, test->stats), 3, dims) : none;
    const kiln_tensor inputs[] = {a, b, a, b, stats};
    return kiln__record_attention_backward(batch, &node.attention, node.op, node.n_inputs, inputs);
}

static kiln_status self_test_record(struct test *test)
{
    const struct kiln__self_test *self_test = &test->only.self_test;
    kiln_batch *batch = test->batch = kiln_batch_create(test->context);
    if (!batch)
        return KILN_OUT_OF_HOST_MEMORY;
    batch->unvalidated = true;
    const kiln_tensor none = {0};
    kiln_tensor mask = self_test->mask ? kiln_import(batch, test->mask) : none;
    if (self_test->mask && self_test->mask != KILN_U8)
        mask = kiln_cast(batch, mask, KILN_F32);
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.scale = SCALE;
    options.causal = 1;
    options.diagonal = KEYS - QUERIES;
    kiln_tensor a = kiln_import(batch, test->a), b = kiln_import(batch, test->b);
    kiln_tensor y =
        is_backward(self_test)    ? record_backward(test, a, b, false)
        : is_attention(self_test) ? kiln_attention(batch, a, b, b, mask, &options)
        : self_test->type == KILN_I8
            ? kiln_matmul_quantized(batch, a, none, b, self_test->transpose_b, none)
            : kiln_matmul_transposed(batch, a, self_test->transpose_a, b, self_test->transpose_b);
    kiln_status status = kiln_export(batch, y, test->y);
    return status || !test->beside
               ? status
               : kiln_export(batch, record_backward(test, a, b, true), test->beside);
}

/* NOT_READY: it has not ended and is not waited for any longer. */
static kiln_status self_test_run(const struct test *test)
{
    kiln_event *event;
    const int64_t until = kiln__now() + LONG * (1000 * KILN__MS);
    kiln_status status = kiln_batch_submit(test->batch, &event);
    if (status)
        return status;
    do {
        status = kiln_event_poll(event);
        if (status == KILN_NOT_READY)
            kiln__sleep(KILN__MS);
    } while (status == KILN_NOT_READY && kiln__now() < until);
    if (status != KILN_NOT_READY)
        kiln_event_release(event);
    return status;
}

/* One row of an attention; an error of each weight, rounded to the operands' type, is no error. */
static bool is_right_row(const struct test *test, size_t row, const float *q, const float *keys,
                         const float *y)
{
    const kiln_type mask = test->only.self_test.mask;
    const size_t seen = row + KEYS - QUERIES + 1;
    const size_t columns = shapes_of(&test->only.self_test).y[1];
    const double slack = test->only.self_test.type == KILN_F32   ? 0
                         : test->only.self_test.type == KILN_F16 ? 0x1p-11
                                                                 : 0x1p-8;
    double scores[KEYS], peak = -INFINITY, total = 0;
    for (size_t j = 0; j < seen; j++) {
        scores[j] = mask ? (double)mask_value(mask, row, j) : 0;
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

static bool is_right_attention(const struct test *test, size_t matrix)
{
    const size_t columns = shapes_of(&test->only.self_test).y[1];
    for (size_t i = matrix * QUERIES; i < (matrix + 1) * QUERIES; i++)
        if (!is_right_row(test, i - matrix * QUERIES, test->values_a + i * columns,
                          test->values_b + matrix * KEYS * columns, test->sums + i * columns))
            return false;
    return true;
}

/* Errors are small beside the largest result. */
static bool is_right_backward(const struct test *test, size_t matrix, bool beside)
{
    const struct kiln__self_test *self_test = &test->only.self_test;
    const struct shapes shapes = shapes_of(self_test);
    const size_t *shape = beside ? shapes.beside : shapes.y;
    const float *sums = beside ? test->sums_beside : test->sums;
    const size_t columns = shapes.a[1], results = shape[0] * shape[1];
    struct kiln__node node = backward_node(self_test, beside);
    const double slack = node.attention.form == KILN__BACKWARD_LOG_SUM_EXP ? 1e-4
                         : self_test->type == KILN_F16                     ? 0x1p-10
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
        a[i] = (double)test->values_a[matrix * QUERIES * columns + i];
    for (size_t i = 0; i < KEYS * columns; i++)
        b[i] = (double)test->values_b[matrix * KEYS * columns + i];
    for (size_t i = 0; i < sizeof stats / sizeof *stats; i++)
        stats[i] = self_test_stat(i / KILN__STATS_COLUMNS, i % KILN__STATS_COLUMNS);
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
static bool is_right_product(const struct test *test, size_t matrix)
{
    const struct kiln__self_test *self_test = &test->only.self_test;
    const size_t rows = rows_of(self_test);
    const float *a = test->values_a + matrix * rows * K, *b = test->values_b + matrix * K * N;
    const float *y = test->sums + matrix * rows * N;
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

static void end_test(struct test *test)
{
    kiln_batch_release(test->batch);
    kiln_buffer_release(test->a);
    kiln_buffer_release(test->b);
    kiln_buffer_release(test->mask);
    kiln_buffer_release(test->stats);
    kiln_buffer_release(test->y);
    kiln_buffer_release(test->beside);
    kiln_context_release(test->context);
    if (test->cl)
        clReleaseContext(test->cl);
    free(test->values_a);
    free(test->values_b);
    free(test->sums);
    free(test->sums_beside);
}

/* Whether a kernel may be right that has failed so: it was not the kernel's fault. */
static bool says_nothing(kiln_status status)
{
    return status && status != KILN_BUILD_FAILED && status != KILN_DEVICE_ERROR;
}

/* What still runs keeps all that it uses for as long as the process lives. */
static enum kiln__probe_outcome self_test_outcome(void *user, char why[KILN__PROBE_WHY])
{
    struct test test = {.runtime = ((struct test *)user)->runtime,
                        .only = ((struct test *)user)->only};
    kiln_status status = make_context(&test);
    bool begun = !status;
    if (!status)
        status = make_operands(&test);
    if (!status)
        status = self_test_record(&test);
    if (!status)
        status = self_test_run(&test);
    if (status == KILN_NOT_READY) {
        *(struct test *)user = test;
        snprintf(why, KILN__PROBE_WHY, "it does not come to an end");
        return KILN__PROBE_WRONG;
    }
    if (!status)
        status = kiln_buffer_read(test.y, 0, test.sums, kiln_buffer_bytes(test.y));
    if (!status && test.beside)
        status = kiln_buffer_read(test.beside, 0, test.sums_beside, kiln_buffer_bytes(test.beside));
    bool right = !status && test.only.used;
    for (size_t matrix = 0; matrix < BATCH && right && test.beside; matrix++)
        right = is_right_backward(&test, matrix, true);
    for (size_t matrix = 0; matrix < BATCH && right; matrix++)
        right = is_backward(&test.only.self_test)    ? is_right_backward(&test, matrix, false)
                : is_attention(&test.only.self_test) ? is_right_attention(&test, matrix)
                                                     : is_right_product(&test, matrix);
    if (!right)
        snprintf(why, KILN__PROBE_WHY, "%s", status ? kiln_last_error() : "its result is wrong");
    end_test(&test);
    return right                            ? KILN__PROBE_RIGHT
           : !begun || says_nothing(status) ? KILN__PROBE_BUSY
                                            : KILN__PROBE_WRONG;
}

/* ---- all kernels of a context ---- */

static enum kiln__probe_outcome find_out(const struct self_tests *self_tests,
                                         const struct kiln__self_test *self_test)
{
    const char *text = kiln__kernel_text(self_test->kernel->file);
    uint64_t hash = text ? kiln__hash64(text, strlen(text)) : 0;
    char subject[128];
    snprintf(
        subject, sizeof subject, "kernel %s %08x: %s%s, %c%c, form %u, tiles of %u columns%s%s",
        is_attention(self_test) ? self_test->kernel->file : self_test->kernel->name, (unsigned)hash,
        kiln_type_name(self_test->type), self_test->parts > 1 ? " in parts" : "",
        self_test->transpose_a ? 't' : 'n', self_test->transpose_b ? 't' : 'n', self_test->form,
        self_test->tile, self_test->mask ? ", mask of " : "",
        self_test->mask ? kiln_type_name(self_test->mask) : "");
    struct test test = {.runtime = self_tests->runtime, .only = {{is_it}, *self_test, false}};
    const struct kiln__crash_probe probe = {subject, PATIENCE, LIFE};
    struct kiln__programs *programs = self_tests->runtime->programs;
    bool may_compile = kiln__programs_compile_mode(programs) != KILN_COMPILE_NEVER;
    return kiln__crash_probe(programs, &probe, may_compile ? self_test_outcome : NULL, &test);
}

/* What another process is trying is asked again the next time. */
static bool passes(struct kiln__self_tester *self_tester, const struct kiln__self_test *self_test)
{
    struct self_tests *self_tests = (struct self_tests *)self_tester;
    enum kiln__probe_outcome end = KILN__PROBE_BUSY;
    pthread_mutex_lock(&self_tests->mutex);
    for (size_t i = 0; i < self_tests->known.count; i++)
        if (is_same(&self_tests->known.items[i].self_test, self_test))
            end = self_tests->known.items[i].end;
    if (end == KILN__PROBE_BUSY) {
        end = find_out(self_tests, self_test);
        struct known *place =
            end == KILN__PROBE_BUSY ? NULL : kiln__vector_push(&self_tests->known);
        if (place)
            *place = (struct known){*self_test, end};
    }
    pthread_mutex_unlock(&self_tests->mutex);
    return end == KILN__PROBE_RIGHT;
}

struct kiln__self_tester *kiln__self_tester_create(struct kiln__runtime *runtime)
{
    struct self_tests *self_tests = calloc(1, sizeof *self_tests);
    if (!self_tests)
        return NULL;
    self_tests->self_tester.passes = passes;
    self_tests->runtime = runtime;
    pthread_mutex_init(&self_tests->mutex, NULL);
    return &self_tests->self_tester;
}

void kiln__self_tester_destroy(struct kiln__self_tester *self_tester)
{
    struct self_tests *self_tests = (struct self_tests *)self_tester;
    if (!self_tests)
        return;
    kiln__vector_free(&self_tests->known);
    pthread_mutex_destroy(&self_tests->mutex);
    free(self_tests);
}
