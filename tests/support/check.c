/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a batch on the device, and compares every result with the reference within its error bound.
 * */
#include "check.h"
#include "session/context.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "record/operations.h"
#include "reference/bounds.h"

#define MOST_UNKNOWN 0.1 /* of what a program compares */
/* Of random batches: chains of 40 operations lose bounds, those with casts to few digits sooner. */
#define MOST_UNKNOWN_AT_RANDOM 0.5
#define MOST_UNKNOWN_OF_ONE 0.9 /* of the results of one operation */
#define GUARD 64                /* bytes before and after a result */
#define GARBAGE 0xa5            /* in results before a run, and around them */

/* Elements of the results of an operation, and those of them without a bound. */
struct share {
    const char *operation;
    double compared, unknown;
};

/* Memory of the batch under test: one at a time. */
static struct {
    KILN__VECTOR(void *) memory;
    KILN__VECTOR(struct share) shares;
    kiln_context *context;
} check;

/* ---- context, memory ---- */

kiln_context *check_context(void)
{
    if (check.context)
        return check.context;
    check.context = open_context();
    if (getenv("KILN_TEST_GENERIC"))
        kiln__plan_cache_use_generic(check.context->plan_cache);
    return check.context;
}

bool check_is_open(void)
{
    return check.context;
}

void check_prefer(const char *matmul, bool of_cpus)
{
    setenv("KILN_MATMUL", matmul, 1);
    if (of_cpus && !check_context()->runtime.device.traits->chunked)
        cr_skip("not for this device");
}

void check_cheaply(void)
{
    setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 0);
}

static struct share *share_of(const char *operation)
{
    for (size_t i = 0; i < check.shares.count; i++)
        if (!strcmp(check.shares.items[i].operation, operation))
            return &check.shares.items[i];
    struct share *share = kiln__vector_push(&check.shares);
    cr_assert(share);
    *share = (struct share){.operation = operation};
    return share;
}

static bool is_known(const struct share *share, double most)
{
    return share->unknown <= most * share->compared;
}

/* Few of all; `each` operation, which may follow others that have no bounds, some. */
static void expect_known(bool each, double most)
{
    struct share all = {0};
    for (size_t i = 0; i < check.shares.count; i++) {
        const struct share *share = &check.shares.items[i];
        all.compared += share->compared;
        all.unknown += share->unknown;
        cr_expect(!each || is_known(share, MOST_UNKNOWN_OF_ONE),
                  "%s: %g of %g elements had no bound", share->operation, share->unknown,
                  share->compared);
    }
    cr_expect(is_known(&all, most), "%g of %g elements had no bound", all.unknown, all.compared);
    kiln__vector_free(&check.shares);
}

static void close_checked(void)
{
    if (check.context)
        close_context(check.context);
    check.context = NULL;
}

void check_close(void)
{
    expect_known(true, MOST_UNKNOWN);
    close_checked();
}

void check_close_random(void)
{
    expect_known(false, MOST_UNKNOWN_AT_RANDOM);
    close_checked();
}

kiln_batch *check_begin(void)
{
    kiln_batch *batch = kiln_batch_create(check_context());
    cr_assert(batch, "%s", kiln_last_error());
    return batch;
}

void check_end(kiln_batch *batch)
{
    kiln_batch_release(batch);
    for (size_t i = 0; i < check.memory.count; i++)
        free(check.memory.items[i]);
    kiln__vector_free(&check.memory);
}

/* As results are aligned: like malloc()'s, 16 bytes. */
static void *allocate(size_t bytes)
{
    void **place = kiln__vector_push(&check.memory);
    cr_assert(place);
    *place = malloc(bytes + 2 * GUARD);
    cr_assert(*place);
    memset(*place, GARBAGE, bytes + 2 * GUARD);
    return (char *)*place + GUARD;
}

/* ---- inputs ---- */

static size_t count_of(size_t rank, const size_t *dims)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    return count;
}

kiln_tensor check_input(kiln_batch *batch, kiln_type type, size_t rank, const size_t *dims,
                        enum check_values values)
{
    size_t count = count_of(rank, dims), bytes = kiln_type_size(type);
    char *data = allocate(count * bytes);
    for (size_t i = 0; i < count; i++)
        kiln__value_store(type, check_value(type, values), data + i * bytes);
    return kiln_upload(batch, type, rank, dims, data);
}

kiln_tensor check_plain(kiln_batch *batch, size_t rank, const size_t *dims)
{
    return check_input(batch, KILN_F32, rank, dims, CHECK_PLAIN);
}

kiln_tensor check_positive(kiln_batch *batch, size_t rank, const size_t *dims)
{
    return check_input(batch, KILN_F32, rank, dims, CHECK_POSITIVE);
}

kiln_tensor check_given(kiln_batch *batch, kiln_type type, size_t rank, const size_t *dims,
                        const void *data)
{
    size_t bytes = kiln__type_bytes(type, count_of(rank, dims));
    void *copy = allocate(bytes);
    if (bytes)
        memcpy(copy, data, bytes);
    return kiln_upload(batch, type, rank, dims, copy);
}

void *check_read(kiln_batch *batch, kiln_tensor tensor)
{
    const struct kiln__node *node = kiln__batch_node(batch, tensor, "check_read", "tensor");
    cr_assert(node, "%s", kiln_batch_error(batch));
    void *data = allocate(kiln__node_bytes(node));
    expect_ok(kiln_read(batch, tensor, data, kiln__node_bytes(node)));
    return data;
}

/* ---- comparing ---- */

static void show_graph(const kiln_batch *batch)
{
    struct kiln__text text = {0};
    kiln__graph_dump(&batch->graph, &text);
    if (text.length < 8000)
        cr_log_warn("%s", text.data);
    kiln__text_free(&text);
}

/* A buffer's content is copied, because the batch may overwrite it. */
static const void *content_of(const kiln_batch *batch, const struct kiln__binding *binding)
{
    if (binding->host || !binding->bytes)
        return binding->host;
    void *copy = allocate(binding->bytes);
    cr_assert_eq(clEnqueueReadBuffer(batch->context->runtime.compute->queue, binding->memory,
                                     CL_TRUE, 0, binding->bytes, copy, 0, NULL, NULL),
                 0);
    return copy;
}

static struct kiln__reference reference_of(const kiln_batch *batch)
{
    struct kiln__reference reference;
    size_t count = batch->bindings.inputs.count;
    const void **inputs = calloc(count + 1, sizeof *inputs);
    cr_assert(inputs);
    for (size_t i = 0; i < count; i++)
        inputs[i] = content_of(batch, &batch->bindings.inputs.items[i]);
    cr_assert(kiln__reference_run(&batch->graph, inputs, &reference));
    free(inputs);
    return reference;
}

static bool compare(const kiln_batch *batch, const struct kiln__reference *reference,
                    const struct kiln__bounds *bounds, size_t i, const char *found)
{
    uint32_t index = batch->graph.requests.items[i].node;
    const struct kiln__node *node = &batch->graph.nodes.items[index];
    size_t wrong = 0, bytes = kiln_type_size((kiln_type)node->type);
    struct share *share = share_of(kiln__node_name(node));
    for (size_t e = 0; e < kiln__node_count(node); e++) {
        double value = kiln__value_load(node->type, found + e * bytes);
        double wanted = reference->values[index][e], error = bounds->errors[index][e];
        share->compared++;
        share->unknown += isinf(error);
        if (kiln__bounds_allow(node->type, wanted, error, value))
            continue;
        if (wrong++ == 0)
            cr_expect(false, "%%%u %s%s, element %zu: %s is not %s by %.3g, %.3g is allowed", index,
                      kiln__node_name(node), kiln__shape_text(&node->shape).text, e,
                      kiln__value_text(node->type, value).text,
                      kiln__value_text(node->type, wanted).text,
                      fabs(kiln__value_number(node->type, value) -
                           kiln__value_number(node->type, wanted)),
                      error);
    }
    if (wrong > 1)
        cr_log_warn("%zu of %zu elements are wrong", wrong, kiln__node_count(node));
    return wrong == 0;
}

static bool is_garbage(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != GARBAGE)
            return false;
    return true;
}

static void spoil_results(const kiln_batch *batch)
{
    for (size_t i = 0; i < batch->bindings.results.count; i++) {
        const struct kiln__binding *result = &batch->bindings.results.items[i];
        if (result->host)
            memset(result->host, GARBAGE, result->bytes);
    }
}

/* What the first run left in host memory. */
static void **keep_results(const kiln_batch *batch)
{
    size_t count = batch->bindings.results.count;
    void **kept = allocate((count + 1) * sizeof *kept);
    for (size_t i = 0; i < count; i++) {
        const struct kiln__binding *result = &batch->bindings.results.items[i];
        kept[i] = allocate(result->bytes);
        if (result->host && result->bytes)
            memcpy(kept[i], result->host, result->bytes);
    }
    return kept;
}

static bool run_again(kiln_batch *batch)
{
    bool good = true;
    void **kept = keep_results(batch);
    spoil_results(batch);
    run_batch(batch);
    for (size_t i = 0; i < batch->bindings.results.count; i++) {
        const struct kiln__binding *result = &batch->bindings.results.items[i];
        bool same = !result->host || !memcmp(result->host, kept[i], result->bytes);
        cr_expect(same, "result %zu has other bits in a second run", i);
        good = good && same;
    }
    return good;
}

static bool guards_are_whole(const kiln_batch *batch)
{
    bool good = true;
    for (size_t i = 0; i < batch->bindings.results.count; i++) {
        const struct kiln__binding *result = &batch->bindings.results.items[i];
        const unsigned char *host = result->host;
        if (!host)
            continue;
        bool before = is_garbage(host - GUARD, GUARD);
        bool after = is_garbage(host + result->bytes, GUARD);
        cr_expect(before && after, "written around result %zu", i);
        good = good && before && after;
    }
    return good;
}

bool check_run(kiln_batch *batch)
{
    struct kiln__bounds bounds;
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    struct kiln__reference reference = reference_of(batch);
    cr_assert(kiln__bounds_make(&batch->graph, &reference, check_denormal(), &bounds));
    spoil_results(batch);
    run_batch(batch);
    bool good = true;
    for (size_t i = 0; i < batch->bindings.results.count; i++) {
        const struct kiln__binding *result = &batch->bindings.results.items[i];
        good = compare(batch, &reference, &bounds, i, content_of(batch, result)) && good;
    }
    good = run_again(batch) && good;
    good = guards_are_whole(batch) && good;
    if (!good)
        show_graph(batch);
    kiln__bounds_free(&bounds);
    kiln__reference_free(&reference);
    return good;
}

void check_tensor(kiln_batch *batch, kiln_tensor tensor)
{
    check_read(batch, tensor);
    check_run(batch);
    check_end(batch);
}

void check_refusal(kiln_batch *batch, kiln_status status, const char *sentence)
{
    expect_error(kiln_batch_status(batch), status, sentence);
    check_end(batch);
}
