/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels are tried, each in an OpenCL context of its own, and what came of it is remembered. */
#include "debug/self_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/attention.h>
#include <kiln/buffer.h>
#include <kiln/opencl.h>
#include <kiln/operations.h>
#include <kiln/product.h>

#include "debug/crash_probe.h"
#include "debug/self_test_data.h"
#include "record/record_attention_backward.h"
#include "session/context.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/kernel_texts.h"

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
    kiln_buffer *a, *b, *mask, *stats, *y, *second;
    struct kiln__self_test_values values;
};

static kiln_status make_context(struct test *test)
{
    const struct kiln__device *device = &test->runtime->device;
    cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                          (cl_context_properties)device->platform, 0};
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    cl_int code;
    options.matmul = kiln__self_test_is_attention(&test->only.self_test)
                         ? NULL
                         : test->only.self_test.kernel->name;
    options.cache = KILN_CACHE_OFF;
    options.host_memory = KILN_HOST_MEMORY_SEPARATE;
    options.trace = "";
    options.compile = KILN_COMPILE_ALONE;
    options.precision = !kiln__self_test_is_of_floats(&test->only.self_test) ? KILN_PRECISION_EXACT
                        : test->only.self_test.parts > 1                     ? KILN_PRECISION_F32X3
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
    const size_t dims[] = {MATRICES, shape[0], shape[1]}, item = kiln_type_size(self_test->type);
    char *stored = malloc(kiln__self_test_count(shape) * item);
    *values = malloc(kiln__self_test_count(shape) * sizeof **values);
    kiln_status status = stored && *values
                             ? kiln_buffer_create(test->context, self_test->type, 3, dims, buffer)
                             : KILN_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; !status && i < kiln__self_test_count(shape); i++) {
        (*values)[i] = kiln__self_test_value(self_test, first + i);
        kiln__type_store(self_test->type, (double)(*values)[i], stored + i * item);
    }
    if (!status)
        status = kiln_buffer_write(*buffer, 0, stored, kiln__self_test_count(shape) * item);
    free(stored);
    return status;
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
        const float value = kiln__self_test_mask(type, i / KEYS, i % KEYS);
        kiln__type_store(type, (double)(type == KILN_U8 ? value == 0 : value), stored + i * item);
    }
    if (!status)
        status = kiln_buffer_write(test->mask, 0, stored, scores * item);
    free(stored);
    return status;
}

/* The same for all matrices. */
static kiln_status make_stats(struct test *test)
{
    const struct kiln__node node = kiln__self_test_node(&test->only.self_test, false);
    const size_t queries = kiln__attention_backward_by_key(&node) ? KEYS : QUERIES;
    const size_t dims[] = {1, queries, KILN__STATS_COLUMNS};
    float stats[KEYS * KILN__STATS_COLUMNS];
    kiln_status status = kiln_buffer_create(test->context, KILN_F32, 3, dims, &test->stats);
    for (size_t i = 0; i < queries * KILN__STATS_COLUMNS; i++)
        stats[i] = (float)kiln__self_test_stat(i / KILN__STATS_COLUMNS, i % KILN__STATS_COLUMNS);
    return status ? status
                  : kiln_buffer_write(test->stats, 0, stats, kiln_buffer_bytes(test->stats));
}

static kiln_status make_operands(struct test *test)
{
    const struct kiln__self_test_shapes shapes = kiln__self_test_shapes(&test->only.self_test);
    const size_t dims[] = {MATRICES, shapes.y[0], shapes.y[1]};
    kiln_status status = make_operand(test, shapes.a, 0, &test->values.a, &test->a);
    if (!status)
        status = make_operand(test, shapes.b, 7777, &test->values.b, &test->b);
    if (!status && test->only.self_test.mask)
        status = make_mask(test);
    if (!status && kiln__self_test_is_backward(&test->only.self_test))
        status = make_stats(test);
    if (!status)
        status = kiln_buffer_create(test->context, KILN_F32, 3, dims, &test->y);
    const size_t second[] = {MATRICES, shapes.second[0], shapes.second[1]};
    if (!status && second[1])
        status = kiln_buffer_create(test->context, KILN_F32, 3, second, &test->second);
    test->values.y = calloc(kiln__self_test_count(shapes.y), sizeof *test->values.y);
    test->values.second = calloc(kiln__self_test_count(shapes.second) + 1, sizeof(float));
    return status || (test->values.y && test->values.second) ? status : KILN_OUT_OF_HOST_MEMORY;
}

static kiln_tensor record_backward(const struct test *test, kiln_tensor a, kiln_tensor b,
                                   bool second)
{
    const struct kiln__node node = kiln__self_test_node(&test->only.self_test, second);
    kiln_batch *batch = test->batch;
    a = kiln_cast(batch, a, KILN_F32);
    b = kiln_cast(batch, b, KILN_F32);
    const size_t queries = kiln__attention_backward_by_key(&node) ? KEYS : QUERIES;
    const size_t dims[] = {MATRICES, queries, KILN__STATS_COLUMNS};
    kiln_tensor stats =
        test->stats ? kiln_broadcast(batch, kiln_import(batch, test->stats), 3, dims) : kiln__none;
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
    kiln_tensor mask = self_test->mask ? kiln_import(batch, test->mask) : kiln__none;
    if (self_test->mask && self_test->mask != KILN_U8)
        mask = kiln_cast(batch, mask, KILN_F32);
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.scale = SCALE;
    options.causal = 1;
    options.diagonal = KEYS - QUERIES;
    kiln_tensor a = kiln_import(batch, test->a), b = kiln_import(batch, test->b);
    kiln_tensor y =
        kiln__self_test_is_backward(self_test)    ? record_backward(test, a, b, false)
        : kiln__self_test_is_attention(self_test) ? kiln_attention(batch, a, b, b, mask, &options)
        : self_test->type == KILN_I8
            ? kiln_matmul_quantized(batch, a, kiln__none, b, self_test->transpose_b, kiln__none)
            : kiln_matmul_transposed(batch, a, self_test->transpose_a, b, self_test->transpose_b);
    kiln_status status = kiln_export(batch, y, test->y);
    return status || !test->second
               ? status
               : kiln_export(batch, record_backward(test, a, b, true), test->second);
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

static void end_test(struct test *test)
{
    kiln_batch_release(test->batch);
    kiln_buffer_release(test->a);
    kiln_buffer_release(test->b);
    kiln_buffer_release(test->mask);
    kiln_buffer_release(test->stats);
    kiln_buffer_release(test->y);
    kiln_buffer_release(test->second);
    kiln_context_release(test->context);
    if (test->cl)
        clReleaseContext(test->cl);
    free(test->values.a);
    free(test->values.b);
    free(test->values.y);
    free(test->values.second);
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
        status = kiln_buffer_read(test.y, 0, test.values.y, kiln_buffer_bytes(test.y));
    if (!status && test.second)
        status =
            kiln_buffer_read(test.second, 0, test.values.second, kiln_buffer_bytes(test.second));
    bool right =
        !status && test.only.used && kiln__self_test_is_right(&test.only.self_test, &test.values);
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
        kiln__self_test_is_attention(self_test) ? self_test->kernel->file : self_test->kernel->name,
        (unsigned)hash, kiln_type_name(self_test->type), self_test->parts > 1 ? " in parts" : "",
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
        if (end != KILN__PROBE_BUSY)
            (void)kiln__vector_add(&self_tests->known, (struct known){*self_test, end});
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
