/* SPDX-License-Identifier: Apache-2.0 */
/* What is made of buffers alone, as a product's packed weights, is made once, and again after
 * whatever may have written one of them. */
#include <criterion/criterion.h>
#include <kiln/opencl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "../support/context.h"
#include "../support/product.h"
#include "runtime/prepacked.h"
#include "session/context.h"

#define M 7
#define N 70
#define K 19

static const struct product_size size = {M, K, N};
static float a[M * K], b[2][K * N], want[2][M * N], got[M * N];

struct scene {
    kiln_context *context;
    kiln_buffer *weights;
    kiln_batch *batch;
};

static kiln_batch *record(const struct scene *scene, float *y)
{
    return record_product(scene->context, &size, a, scene->weights, y);
}

static struct scene begin_within(uint64_t memory_limit)
{
    struct scene scene;
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.matmul = "packed";
    options.memory_limit = memory_limit;
    scene.context = open_context_with(&options);
    fill(a, M * K, 1);
    for (unsigned i = 0; i < 2; i++) {
        fill(b[i], K * N, 2 + i);
        multiply_plainly(&size, a, b[i], want[i]);
    }
    expect_ok(kiln_buffer_create(scene.context, KILN_F32, 2, (size_t[]){K, N}, &scene.weights));
    expect_ok(kiln_buffer_write(scene.weights, 0, b[0], sizeof b[0]));
    scene.batch = record(&scene, got);
    return scene;
}

static struct scene begin(void)
{
    return begin_within(0);
}

static void end(struct scene *scene)
{
    kiln_batch_release(scene->batch);
    kiln_buffer_release(scene->weights);
    close_context(scene->context);
}

/* Launches of a run that multiplies with content `which`. */
static uint64_t run(const struct scene *scene, kiln_batch *batch, int which)
{
    uint64_t before = stats_of(scene->context).launches;
    memset(got, 0xff, sizeof got);
    run_batch(batch);
    cr_expect_arr_eq(got, want[which], sizeof got);
    return stats_of(scene->context).launches - before;
}

/* Whether this device's products have anything to keep. */
static bool keeps(const struct scene *scene)
{
    return explains(scene->batch, "kept while nobody writes");
}

/* Once they are made for the second time they are kept. */
static uint64_t settle(const struct scene *scene, int which)
{
    run(scene, scene->batch, which);
    run(scene, scene->batch, which);
    return run(scene, scene->batch, which);
}

Test(kept, weights_are_packed_once)
{
    struct scene scene = begin();
    uint64_t first = run(&scene, scene.batch, 0);
    cr_expect_eq(settle(&scene, 0), first - keeps(&scene));
    end(&scene);
}

Test(kept, batches_share_what_is_kept)
{
    struct scene scene = begin();
    uint64_t settled = settle(&scene, 0);
    kiln_batch *other = record(&scene, got);
    cr_expect_eq(run(&scene, other, 0), settled);
    kiln_batch_release(other);
    end(&scene);
}

Test(kept, a_write_is_seen)
{
    struct scene scene = begin();
    uint64_t settled = settle(&scene, 0);
    expect_ok(kiln_buffer_write(scene.weights, 0, b[1], sizeof b[1]));
    cr_expect_geq(run(&scene, scene.batch, 1), settled);
    cr_expect_eq(settle(&scene, 1), settled);
    expect_ok(kiln_buffer_write(scene.weights, 0, b[0], sizeof b[0] / 2));
    memcpy(b[1], b[0], sizeof b[0] / 2);
    multiply_plainly(&size, a, b[1], want[1]);
    settle(&scene, 1);
    end(&scene);
}

Test(kept, what_is_exported_there_is_seen)
{
    struct scene scene = begin();
    settle(&scene, 0);
    kiln_batch *update = kiln_batch_create(scene.context);
    kiln_tensor old = kiln_import(update, scene.weights);
    expect_ok(kiln_export(update, kiln_scale(update, old, 2), scene.weights));
    for (int i = 0; i < 3; i++) {
        run_batch(update);
        for (size_t k = 0; k < M * N; k++)
            want[0][k] *= 2;
        run(&scene, scene.batch, 0);
        run(&scene, scene.batch, 0);
        run(&scene, scene.batch, 0);
    }
    kiln_batch_release(update);
    end(&scene);
}

Test(kept, what_a_map_writes_is_seen)
{
    struct scene scene = begin();
    void *data;
    settle(&scene, 0);
    expect_ok(kiln_buffer_map(scene.weights, &data));
    memcpy(data, b[1], sizeof b[1]);
    expect_ok(kiln_buffer_unmap(scene.weights));
    settle(&scene, 1);
    end(&scene);
}

/* Who has the cl_mem may write it unseen. */
Test(kept, nothing_is_kept_of_memory_that_the_program_has)
{
    struct scene scene = begin();
    uint64_t first = run(&scene, scene.batch, 0);
    settle(&scene, 0);
    cl_command_queue queue;
    expect_ok(kiln_context_cl(scene.context, NULL, NULL, &queue));
    cl_mem memory = kiln_buffer_cl(scene.weights);
    cr_assert_eq(clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, sizeof b[1], b[1], 0, NULL, NULL),
                 CL_SUCCESS);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(run(&scene, scene.batch, 1), first);
    end(&scene);
}

Test(kept, memory_counts_and_is_the_first_to_go)
{
    struct scene scene = begin();
    uint64_t settled = settle(&scene, 0);
    uint64_t held = stats_of(scene.context).pool_bytes;
    expect_ok(kiln_context_trim(scene.context));
    cr_expect(!keeps(&scene) || stats_of(scene.context).pool_bytes < held);
    cr_expect_eq(run(&scene, scene.batch, 0), settled + keeps(&scene));
    cr_expect_eq(settle(&scene, 0), settled);
    end(&scene);
}

Test(kept, memory_is_that_in_which_it_was_made_first)
{
    struct scene scene = begin();
    run(&scene, scene.batch, 0);
    uint64_t held = stats_of(scene.context).pool_bytes;
    settle(&scene, 0);
    cr_expect_eq(stats_of(scene.context).pool_bytes, held);
    end(&scene);
}

/* One run that makes it is under way, and the next one is enqueued: it makes its own, in memory
 * that nobody needs after that. */
Test(kept, memory_of_who_could_not_wait_is_given_back)
{
    enum { BYTES = 100000 };
    struct scene scene = begin();
    struct kiln__pool *pool = scene.context->runtime.compute->pool;
    struct kiln__prepacked_use use = {.buffers = {scene.weights}, .n_buffers = 1, .key = {1, 2}};
    cl_mem own[2];
    cl_int code;
    cl_event ended = clCreateUserEvent(scene.context->runtime.context, &code);
    cr_assert_eq(code, CL_SUCCESS);
    for (int run = 0; run < 2; run++) {
        use.bytes = BYTES;
        kiln__prepacked_take(&use, pool);
    }
    cr_assert_eq(use.state, KILN__PREPACKED_NEW);
    kiln__prepacked_offer(&use, ended);
    kiln__prepacked_give(&use);
    for (int run = 0; run < 2; run++) {
        kiln__prepacked_take(&use, pool);
        cr_expect_eq(use.state, KILN__PREPACKED_NOT);
        expect_ok(kiln__pool_take(pool, BYTES, &own[run], NULL));
        kiln__pool_give(pool, own[run]);
    }
    cr_expect_eq(own[0], own[1]);
    uint64_t held = stats_of(scene.context).pool_bytes;
    clSetUserEventStatus(ended, CL_COMPLETE);
    clReleaseEvent(ended);
    for (int run = 0; run < 2; run++) {
        kiln__prepacked_take(&use, pool);
        cr_expect_eq(use.state, KILN__PREPACKED_READY);
        kiln__prepacked_give(&use);
        cr_expect_eq(stats_of(scene.context).pool_bytes, held - kiln__pool_rounded(BYTES));
    }
    end(&scene);
}

/* An idle piece of the same size that no such run has left is another one's. */
Test(kept, memory_of_others_stays)
{
    enum { BYTES = 100000 };
    struct scene scene = begin();
    struct kiln__pool *pool = scene.context->runtime.compute->pool;
    struct kiln__prepacked_use use = {
        .buffers = {scene.weights}, .n_buffers = 1, .key = {1, 2}, .bytes = BYTES};
    cl_mem own, others;
    cl_int code;
    cl_event ended = clCreateUserEvent(scene.context->runtime.context, &code);
    cr_assert_eq(code, CL_SUCCESS);
    kiln__prepacked_take(&use, pool);
    expect_ok(kiln__pool_take(pool, BYTES, &own, NULL));
    expect_ok(kiln__pool_take(pool, BYTES, &others, NULL));
    kiln__pool_give(pool, own);
    kiln__prepacked_take(&use, pool);
    cr_assert_eq(use.state, KILN__PREPACKED_NEW);
    kiln__pool_give(pool, others);
    kiln__prepacked_offer(&use, ended);
    kiln__prepacked_give(&use);
    clSetUserEventStatus(ended, CL_COMPLETE);
    clReleaseEvent(ended);
    uint64_t held = stats_of(scene.context).pool_bytes;
    kiln__prepacked_take(&use, pool);
    cr_expect_eq(use.state, KILN__PREPACKED_READY);
    kiln__prepacked_give(&use);
    cr_expect_eq(stats_of(scene.context).pool_bytes, held);
    end(&scene);
}

Test(kept, nothing_is_kept_beyond_the_limit)
{
    struct scene scene = begin_within(24 << 10);
    uint64_t first = run(&scene, scene.batch, 0);
    for (int i = 0; i < 3; i++)
        cr_expect_eq(run(&scene, scene.batch, 0), first);
    cr_expect_leq(stats_of(scene.context).pool_bytes, 24u << 10);
    end(&scene);
}

/* ---- more than one launch, of more than one buffer ---- */

/* Weights as two buffers side by side, the second one times a factor for each column: put together,
 * scaled, turned around, and perhaps packed. */
static kiln_batch *record_made(const struct scene *scene, kiln_buffer *factors)
{
    kiln_batch *batch = kiln_batch_create(scene->context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){M, K}, a);
    kiln_tensor w = kiln_import(batch, scene->weights);
    kiln_tensor parts[2] = {
        kiln_slice(batch, w, (int64_t[]){0, 0}, (int64_t[]){K, N / 2}, NULL),
        kiln_mul(batch, kiln_slice(batch, w, (int64_t[]){0, N / 2}, (int64_t[]){K, N}, NULL),
                 kiln_import(batch, factors))};
    kiln_tensor product = kiln_matmul(batch, x, kiln_concat(batch, 2, parts, 1));
    expect_ok(kiln_read(batch, product, got, sizeof got));
    return batch;
}

static kiln_buffer *make_factors(const struct scene *scene, float factor)
{
    float content[N / 2];
    kiln_buffer *buffer;
    for (size_t i = 0; i < N / 2; i++)
        content[i] = factor;
    expect_ok(kiln_buffer_create(scene->context, KILN_F32, 1, (size_t[]){N / 2}, &buffer));
    expect_ok(kiln_buffer_write(buffer, 0, content, sizeof content));
    return buffer;
}

/* `want[0]` for content `which`, with the second half times the factor. */
static void want_made(int which, float factor)
{
    multiply_plainly(&size, a, b[which], want[0]);
    for (size_t i = 0; i < M * N; i++)
        want[0][i] *= i % N < N / 2 ? 1 : factor;
}

static uint64_t settle_made(const struct scene *scene, kiln_batch *batch)
{
    run(scene, batch, 0);
    run(scene, batch, 0);
    return run(scene, batch, 0);
}

Test(kept, what_several_launches_make_of_several_buffers_is_made_once)
{
    struct scene scene = begin();
    kiln_buffer *factors = make_factors(&scene, 2);
    kiln_batch *batch = record_made(&scene, factors);
    want_made(0, 2);
    uint64_t first = run(&scene, batch, 0), settled = settle_made(&scene, batch);
    cr_expect_leq(settled, first - 2);
    kiln_batch_release(batch);
    kiln_buffer_release(factors);
    end(&scene);
}

Test(kept, a_write_of_any_of_the_buffers_is_seen)
{
    struct scene scene = begin();
    kiln_buffer *factors = make_factors(&scene, 2), *others = make_factors(&scene, 4);
    kiln_batch *batch = record_made(&scene, factors), *other = record_made(&scene, others);
    float fours[N / 2];
    want_made(0, 2);
    uint64_t settled = settle_made(&scene, batch);
    want_made(0, 4);
    cr_expect_gt(run(&scene, other, 0), settled, "of other buffers it is another thing");
    for (size_t i = 0; i < N / 2; i++)
        fours[i] = 4;
    expect_ok(kiln_buffer_write(factors, 0, fours, sizeof fours));
    cr_expect_gt(run(&scene, batch, 0), settled);
    cr_expect_eq(settle_made(&scene, batch), settled);
    expect_ok(kiln_buffer_write(scene.weights, 0, b[1], sizeof b[1]));
    want_made(1, 4);
    cr_expect_gt(run(&scene, batch, 0), settled);
    cr_expect_eq(settle_made(&scene, batch), settled);
    kiln_buffer_release(others);
    kiln_batch_release(other);
    kiln_batch_release(batch);
    kiln_buffer_release(factors);
    end(&scene);
}

/* ---- whose place is whose ---- */

static kiln_buffer *make_matrix(const struct scene *scene, size_t rows, unsigned seed)
{
    static float content[2 * K * N];
    kiln_buffer *buffer;
    fill(content, rows * N, seed);
    expect_ok(kiln_buffer_create(scene->context, KILN_F32, 2, (size_t[]){rows, N}, &buffer));
    expect_ok(kiln_buffer_write(buffer, 0, content, rows * N * sizeof *content));
    return buffer;
}

static kiln_batch *record_difference(const struct scene *scene, kiln_buffer *small,
                                     kiln_buffer *large, bool reversed, float *y)
{
    kiln_batch *batch = kiln_batch_create(scene->context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){M, K}, a);
    kiln_tensor left = kiln_import(batch, small);
    kiln_tensor right =
        kiln_slice(batch, kiln_import(batch, large), (int64_t[]){0, 0}, (int64_t[]){K, N}, NULL);
    kiln_tensor w = reversed ? kiln_sub(batch, right, left) : kiln_sub(batch, left, right);
    expect_ok(kiln_read(batch, kiln_matmul(batch, x, w), y, M * N * sizeof *y));
    return batch;
}

/* The larger buffer is where both are found, whichever comes first. */
Test(kept, operands_that_change_places_are_others)
{
    struct scene scene = begin();
    static float there[M * N], back[M * N];
    kiln_buffer *small = make_matrix(&scene, K, 11), *large = make_matrix(&scene, 2 * K, 12);
    kiln_batch *forth = record_difference(&scene, small, large, false, there);
    kiln_batch *reversed = record_difference(&scene, small, large, true, back);
    for (int i = 0; i < 3; i++)
        run_batch(forth);
    for (int i = 0; i < 3; i++)
        run_batch(reversed);
    for (size_t i = 0; i < M * N; i++)
        cr_assert_float_eq(back[i], -there[i], 1e-5, "%zu: %g, %g", i, there[i], back[i]);
    kiln_batch_release(forth);
    kiln_batch_release(reversed);
    kiln_buffer_release(small);
    kiln_buffer_release(large);
    end(&scene);
}

/* What is put over a value takes its memory, after a product has read that. */
Test(kept, a_value_and_what_is_put_over_it_are_two)
{
    struct scene scene = begin();
    static float first[2][M * N], last[2][M * N];
    kiln_buffer *weights = make_matrix(&scene, K, 13), *part = make_matrix(&scene, 3, 14);
    kiln_batch *batch = kiln_batch_create(scene.context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){M, K}, a);
    kiln_tensor w = kiln_exp(batch, kiln_import(batch, weights));
    kiln_tensor before = kiln_matmul(batch, x, w);
    kiln_tensor over =
        kiln_insert_slice(batch, w, kiln_import(batch, part), (int64_t[]){2, 0}, NULL);
    kiln_tensor after = kiln_matmul(batch, x, over);
    expect_ok(kiln_read(batch, before, last[0], sizeof last[0]));
    expect_ok(kiln_read(batch, after, last[1], sizeof last[1]));
    for (int i = 0; i < 5; i++) {
        run_batch(batch);
        if (i == 0)
            memcpy(first, last, sizeof first);
        cr_assert_arr_eq(first[0], last[0], sizeof first[0], "run %d", i);
        cr_assert_arr_eq(first[1], last[1], sizeof first[1], "run %d", i);
    }
    kiln_batch_release(batch);
    kiln_buffer_release(weights);
    kiln_buffer_release(part);
    end(&scene);
}

/* ---- products of one operand ---- */

#define TOKENS 9
#define WIDTH 32

static float x[TOKENS * WIDTH], parameters[6][WIDTH * WIDTH];

/* Attention of x with itself: weights and biases of queries, keys and values from buffers, or from
 * the host where there are none. */
static kiln_batch *record_attention(const struct scene *scene, kiln_buffer *const *buffers,
                                    float *y)
{
    kiln_batch *batch = kiln_batch_create(scene->context);
    const size_t dims[] = {TOKENS, WIDTH}, square[] = {WIDTH, WIDTH};
    kiln_tensor in = kiln_upload(batch, KILN_F32, 2, dims, x), of[3], own[6];
    for (size_t i = 0; i < 6; i++)
        own[i] = buffers ? kiln_import(batch, buffers[i])
                         : kiln_upload(batch, KILN_F32, i % 2 ? 1 : 2, square, parameters[i]);
    for (size_t i = 0; i < 3; i++)
        of[i] = kiln_add(batch, kiln_matmul(batch, in, own[2 * i]), own[2 * i + 1]);
    kiln_tensor result = kiln_attention(batch, of[0], of[1], of[2], (kiln_tensor){0}, NULL);
    expect_ok(kiln_read(batch, result, y, TOKENS * WIDTH * sizeof *y));
    return batch;
}

Test(kept, queries_keys_and_values_are_one_product)
{
    struct scene scene = begin();
    kiln_buffer *buffers[6];
    float apart[TOKENS * WIDTH], together[TOKENS * WIDTH];
    fill(x, TOKENS * WIDTH, 5);
    for (size_t i = 0; i < 6; i++) {
        fill(parameters[i], WIDTH * WIDTH, 6 + (unsigned)i);
        for (size_t k = 0; k < WIDTH * WIDTH; k++)
            parameters[i][k] /= 64;
        expect_ok(kiln_buffer_create(scene.context, KILN_F32, i % 2 ? 1 : 2,
                                     (size_t[]){WIDTH, WIDTH}, &buffers[i]));
        expect_ok(kiln_buffer_write(buffers[i], 0, parameters[i],
                                    sizeof(float) * (i % 2 ? WIDTH : WIDTH * WIDTH)));
    }
    kiln_batch *batches[] = {record_attention(&scene, NULL, apart),
                             record_attention(&scene, buffers, together)};
    cr_expect(!explains(batches[0], "one product with 2 others"));
    cr_expect(explains(batches[1], "one product with 2 others"));
    run_batch(batches[0]);
    for (int i = 0; i < 3; i++) {
        memset(together, 0xff, sizeof together);
        run_batch(batches[1]);
        for (size_t k = 0; k < TOKENS * WIDTH; k++)
            cr_assert_float_eq(together[k], apart[k], 1e-4, "element %zu: %g and %g", k,
                               together[k], apart[k]);
    }
    for (size_t i = 0; i < 2; i++)
        kiln_batch_release(batches[i]);
    for (size_t i = 0; i < 6; i++)
        kiln_buffer_release(buffers[i]);
    end(&scene);
}

/* ---- threads ---- */

#define ROUNDS 60

static atomic_int failed; /* Criterion's assertions are for the test's own thread */

static void *multiply_again_and_again(void *user)
{
    const struct scene *scene = user;
    float y[M * N];
    kiln_batch *batch = record(scene, y);
    for (int i = 0; i < ROUNDS; i++) {
        failed += kiln_batch_execute(batch) != KILN_OK;
        failed += memcmp(y, want[0], sizeof y) && memcmp(y, want[1], sizeof y);
    }
    kiln_batch_release(batch);
    return NULL;
}

Test(kept, threads_that_multiply_while_another_writes_see_one_content_or_the_other)
{
    struct scene scene = begin();
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, multiply_again_and_again, &scene), 0);
    for (int i = 0; i < ROUNDS; i++) {
        expect_ok(kiln_buffer_write(scene.weights, 0, b[i % 2], sizeof b[0]));
        run(&scene, scene.batch, i % 2);
        run(&scene, scene.batch, i % 2);
        run(&scene, scene.batch, i % 2);
    }
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(failed, 0);
    end(&scene);
}
