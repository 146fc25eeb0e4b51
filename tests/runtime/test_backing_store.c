/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers whose content can be had again: memory that is given up while runs need only what was
 * made of it, and is there again for who reads it. */
#include <criterion/criterion.h>
#include <kiln/opencl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "../support/product.h"
#include "session/context.h"

#define M 7
#define N 70
#define K 19

enum { ENOUGH = 8 }; /* runs until memory that nobody reads is gone */

static const struct product_size size = {M, K, N};
static float a[M * K], b[K * N], want[M * N], got[M * N];

/* What the program has the content from. */
struct origin {
    atomic_int reads, ends;
    kiln_status answer;
};

struct scene {
    struct origin origin;
    kiln_context *context;
    kiln_buffer *weights;
    kiln_batch *batch;
};

static kiln_status read_again(void *user, size_t offset, void *data, size_t bytes)
{
    struct origin *origin = user;
    atomic_fetch_add(&origin->reads, 1);
    if (!origin->answer)
        memcpy(data, (const char *)b + offset, bytes);
    return origin->answer;
}

static void end_source(void *user)
{
    atomic_fetch_add(&((struct origin *)user)->ends, 1);
}

static kiln_batch *record(const struct scene *scene, float *y)
{
    return record_product(scene->context, &size, a, scene->weights, y);
}

/* The scene stays where it is: the buffer's source is in it. */
static void begin(struct scene *scene)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.matmul = "packed";
    *scene = (struct scene){.context = open_context_with(&options)};
    fill(a, M * K, 1);
    fill(b, K * N, 2);
    multiply_plainly(&size, a, b, want);
    expect_ok(kiln_buffer_create(scene->context, KILN_F32, 2, (size_t[]){K, N}, &scene->weights));
    expect_ok(kiln_buffer_write(scene->weights, 0, b, sizeof b));
    expect_ok(kiln_buffer_set_source(scene->weights, read_again, end_source, &scene->origin));
    scene->batch = record(scene, got);
}

static void end(struct scene *scene)
{
    kiln_batch_release(scene->batch);
    kiln_buffer_release(scene->weights);
    cr_expect_eq(atomic_load(&scene->origin.ends), 1);
    cr_expect_eq(stats_of(scene->context).buffers_live, 0u);
    cr_expect_eq(stats_of(scene->context).evicted_bytes, 0u);
    cr_expect_eq(atomic_load(&scene->context->runtime.memory.buffers), 0u);
    close_context(scene->context);
}

static void run(kiln_batch *batch)
{
    memset(got, 0xff, sizeof got);
    run_batch(batch);
    cr_expect_arr_eq(got, want, sizeof got);
}

/* Bytes that are given up in the end: none where this device's products keep nothing. */
static uint64_t settle(struct scene *scene)
{
    for (int i = 0; i < ENOUGH; i++)
        run(scene->batch);
    return explains(scene->batch, "kept while nobody writes") ? sizeof b : 0;
}

static uint64_t given_up(const struct scene *scene)
{
    cr_expect_eq(atomic_load(&scene->context->runtime.memory.buffers) +
                     stats_of(scene->context).evicted_bytes,
                 sizeof b);
    return stats_of(scene->context).evicted_bytes;
}

static void expect_content(const struct scene *scene)
{
    static float content[K * N];
    memset(content, 0, sizeof content);
    expect_ok(kiln_buffer_read(scene->weights, 0, content, sizeof content));
    cr_expect_arr_eq(content, b, sizeof b);
    cr_expect_eq(given_up(scene), 0u);
}

Test(source, memory_is_given_up_once_nobody_reads_it)
{
    struct scene scene;
    begin(&scene);
    run(scene.batch);
    cr_expect_eq(given_up(&scene), 0u);
    uint64_t bytes = settle(&scene);
    cr_expect_eq(given_up(&scene), bytes);
    cr_expect_eq(atomic_load(&scene.origin.reads), 0);
    kiln_batch *other = record(&scene, got); /* finds what is kept */
    run(other);
    cr_expect_eq(given_up(&scene), bytes);
    kiln_batch_release(other);
    end(&scene);
}

/* A batch that waits holds none of it: nobody but the buffer has a reference. */
Test(source, memory_is_gone_for_all_batches)
{
    struct scene scene;
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    begin(&scene);
    kiln_batch *other = record(&scene, got);
    run(other); /* by reading it */
    run(scene.batch);
    expect_ok(kiln_context_trim(scene.context));
    uint64_t alive = layer_count("alive.mem");
    uint64_t bytes = settle(&scene);
    cr_expect_eq(given_up(&scene), bytes);
    expect_ok(kiln_context_finish(scene.context));
    expect_ok(kiln_context_trim(scene.context));
    cr_expect_eq(layer_count("alive.mem"), alive - (bytes != 0));
    kiln_batch_release(other);
    end(&scene);
}

Test(source, content_is_there_for_who_reads_it)
{
    struct scene scene;
    begin(&scene);
    uint64_t bytes = settle(&scene);
    expect_content(&scene);
    cr_expect_eq(atomic_load(&scene.origin.reads), bytes != 0);
    settle(&scene);
    cr_expect_eq(given_up(&scene), bytes);
    end(&scene);
}

/* Who asks for it again and again has it stay for longer each time. */
Test(source, patience_grows)
{
    struct scene scene;
    begin(&scene);
    uint64_t bytes = settle(&scene);
    for (int i = 0; i < 64; i++) {
        expect_content(&scene);
        for (int k = 0; k < ENOUGH; k++)
            run(scene.batch);
    }
    cr_expect_leq(atomic_load(&scene.origin.reads), 4);
    cr_expect_eq(bytes != 0, atomic_load(&scene.origin.reads) != 0);
    end(&scene);
}

Test(source, a_batch_that_reads_it_directly_has_it)
{
    static float sum[K * N], twice[K * N];
    struct scene scene;
    begin(&scene);
    for (size_t i = 0; i < K * N; i++)
        twice[i] = b[i] + b[i];
    kiln_batch *direct = kiln_batch_create(scene.context);
    kiln_tensor w = kiln_import(direct, scene.weights);
    expect_ok(kiln_read(direct, kiln_add(direct, w, w), sum, sizeof sum));
    kiln_batch *copy = kiln_batch_create(scene.context);
    static float copied[K * N];
    expect_ok(kiln_read(copy, kiln_import(copy, scene.weights), copied, sizeof copied));
    for (int i = 0; i < 3; i++) {
        settle(&scene);
        memset(sum, 0, sizeof sum);
        run_batch(direct);
        cr_expect_arr_eq(sum, twice, sizeof sum);
        settle(&scene);
        memset(copied, 0, sizeof copied);
        run_batch(copy);
        cr_expect_arr_eq(copied, b, sizeof b);
    }
    kiln_batch_release(copy);
    kiln_batch_release(direct);
    end(&scene);
}

/* What is kept goes first where memory is short, and is made again. */
/* No step of the plan names it. */
Test(source, a_batch_that_shows_none_of_it_does_not_have_it)
{
    struct scene scene;
    begin(&scene);
    uint64_t bytes = settle(&scene);
    kiln_batch *batch = kiln_batch_create(scene.context);
    const int64_t start[2] = {0, 0}, stop[2] = {0, N};
    float one, none;
    kiln_tensor shown = kiln_slice(batch, kiln_import(batch, scene.weights), start, stop, NULL);
    expect_ok(kiln_read(batch, shown, &none, 0));
    expect_ok(kiln_read(batch, kiln_constant(batch, KILN_F32, 1), &one, sizeof one));
    run_batch(batch);
    cr_expect_eq(one, 1);
    cr_expect_eq(atomic_load(&scene.origin.reads), 0);
    cr_expect_eq(given_up(&scene), bytes);
    kiln_batch_release(batch);
    end(&scene);
}

Test(source, what_is_kept_is_made_again)
{
    struct scene scene;
    begin(&scene);
    for (int i = 0; i < 3; i++) {
        settle(&scene);
        expect_ok(kiln_context_trim(scene.context));
        run(scene.batch);
        cr_expect_eq(given_up(&scene), 0u);
    }
    end(&scene);
}

Test(source, ends_with_a_write)
{
    struct scene scene;
    begin(&scene);
    uint64_t bytes = settle(&scene);
    float first = b[0] + 1;
    expect_ok(kiln_buffer_write(scene.weights, 0, &first, sizeof first));
    cr_expect_eq(atomic_load(&scene.origin.reads), bytes != 0);
    b[0] = first; /* the rest is what it was */
    for (size_t i = 0; i < M; i++)
        want[i * N] += a[i * K];
    for (int i = 0; i < 2 * ENOUGH; i++)
        run_batch(scene.batch);
    for (size_t i = 0; i < M * N; i++)
        cr_expect_float_eq(got[i], want[i], 1e-5);
    cr_expect_eq(given_up(&scene), 0u);
    expect_content(&scene);
    cr_expect_eq(atomic_load(&scene.origin.reads), bytes != 0);
    end(&scene);
}

Test(source, ends_with_an_export_and_a_map)
{
    for (int mapped = 0; mapped < 2; mapped++) {
        struct scene scene;
        begin(&scene);
        settle(&scene);
        if (mapped) {
            void *data;
            expect_ok(kiln_buffer_map(scene.weights, &data));
            cr_expect_arr_eq(data, b, sizeof b);
            ((float *)data)[0] = b[0] *= 2;
            expect_ok(kiln_buffer_unmap(scene.weights));
        } else {
            kiln_batch *update = kiln_batch_create(scene.context);
            kiln_tensor old = kiln_import(update, scene.weights);
            expect_ok(kiln_export(update, kiln_scale(update, old, 2), scene.weights));
            run_batch(update);
            kiln_batch_release(update);
            for (size_t i = 0; i < K * N; i++)
                b[i] *= 2;
        }
        for (int i = 0; i < ENOUGH; i++)
            run_batch(scene.batch);
        cr_expect_eq(given_up(&scene), 0u);
        expect_content(&scene);
        end(&scene);
    }
}

/* One value for several buffers is computed in one of them and copied to the others. */
Test(source, ends_with_a_copy_to_it)
{
    struct scene scene;
    kiln_buffer *first;
    begin(&scene);
    settle(&scene);
    expect_ok(kiln_buffer_create(scene.context, KILN_F32, 2, (size_t[]){K, N}, &first));
    kiln_batch *update = kiln_batch_create(scene.context);
    for (size_t i = 0; i < K * N; i++)
        b[i] = (float)i;
    kiln_tensor value = kiln_upload(update, KILN_F32, 2, (size_t[]){K, N}, b);
    value = kiln_add(update, value, kiln_constant(update, KILN_F32, 1));
    expect_ok(kiln_export(update, value, first));
    expect_ok(kiln_export(update, value, scene.weights));
    run_batch(update);
    for (size_t i = 0; i < K * N; i++)
        b[i] += 1;
    kiln_batch_release(update);
    kiln_buffer_release(first);
    expect_content(&scene);
    end(&scene);
}

/* The program may do with it what kiln cannot see. */
Test(source, ends_when_the_program_has_the_memory)
{
    struct scene scene;
    begin(&scene);
    settle(&scene);
    cl_mem memory = kiln_buffer_cl(scene.weights);
    cl_command_queue queue;
    static float content[K * N];
    cr_assert_not_null(memory);
    expect_ok(kiln_context_cl(scene.context, NULL, NULL, &queue));
    cr_assert_eq(
        clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, sizeof content, content, 0, NULL, NULL),
        CL_SUCCESS);
    cr_expect_arr_eq(content, b, sizeof b);
    settle(&scene);
    cr_expect_eq(given_up(&scene), 0u);
    end(&scene);
}

/* ---- what goes wrong ---- */

Test(source, a_failure_is_told_and_can_be_tried_again)
{
    struct scene scene;
    static float content[K * N];
    begin(&scene);
    if (!settle(&scene))
        cr_skip("this device's products keep nothing");
    scene.origin.answer = KILN_IO_ERROR;
    expect_error_part(kiln_buffer_read(scene.weights, 0, content, sizeof content), KILN_IO_ERROR,
                      "kiln_buffer_read: kiln: a buffer of 5320 bytes cannot be read again from "
                      "its source, at byte 0: ");
    run(scene.batch); /* which goes without it */
    expect_ok(kiln_context_trim(scene.context));
    expect_error_part(kiln_batch_execute(scene.batch), KILN_IO_ERROR,
                      "a buffer of 5320 bytes cannot be read again from its source");
    cr_expect_null(kiln_buffer_cl(scene.weights));
    cr_expect_eq(given_up(&scene), sizeof b);
    scene.origin.answer = KILN_OK;
    run(scene.batch);
    expect_content(&scene);
    end(&scene);
}

/* Each OpenCL call of getting it back may fail: what is told then, and nothing is lost. */
Test(source, survives_any_failure_of_the_driver)
{
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    struct scene scene;
    begin(&scene);
    if (!settle(&scene))
        cr_skip("this device's products keep nothing");
    for (unsigned long n = 1, hit = 1; hit; n++) {
        static float content[K * N];
        settle(&scene);
        scene.weights->source.patience = 2;
        settle(&scene);
        cr_expect_eq(given_up(&scene), sizeof b);
        layer_fail(n, NULL, -5, KILN_LAYER_ONCE, KILN_LAYER_CALL);
        kiln_status status = kiln_buffer_read(scene.weights, 0, content, sizeof content);
        hit = layer_failures();
        layer_reset();
        cr_expect(status || !memcmp(content, b, sizeof b), "call %lu", n);
        expect_content(&scene);
    }
    end(&scene);
}

Test(source, makes_room_for_itself)
{
    struct scene scene;
    begin(&scene);
    if (!settle(&scene))
        cr_skip("this device's products keep nothing");
    struct kiln__budget *budget = &scene.context->runtime.memory;
    uint64_t all = budget->device_memory;
    budget->device_memory = atomic_load(&budget->bytes) + sizeof b / 2;
    expect_content(&scene); /* in the place of what is kept */
    budget->device_memory = all;
    run(scene.batch);
    end(&scene);
}

/* Between finding the memory and the run's last command. */
Test(source, memory_stays_while_somebody_uses_it)
{
    struct scene scene;
    cl_mem memory, again;
    begin(&scene);
    expect_ok(kiln__backing_hold(scene.weights, &memory, NULL));
    for (int i = 0; i < ENOUGH; i++)
        kiln__backing_was_unread(scene.weights);
    cr_expect_eq(given_up(&scene), 0u);
    expect_ok(kiln__backing_hold(scene.weights, &again, NULL));
    cr_expect_eq(again, memory);
    kiln__backing_release(scene.weights);
    kiln__backing_release(scene.weights);
    for (int i = 0; i < ENOUGH; i++)
        kiln__backing_was_unread(scene.weights);
    cr_expect_eq(given_up(&scene), sizeof b);
    expect_content(&scene);
    end(&scene);
}

Test(source, refuses_what_is_none)
{
    struct scene scene;
    begin(&scene);
    expect_error(kiln_buffer_set_source(NULL, read_again, NULL, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_set_source: buffer is NULL");
    expect_error(kiln_buffer_set_source(scene.weights, NULL, NULL, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_buffer_set_source: read is NULL");
    expect_error(kiln_buffer_set_source(scene.weights, read_again, NULL, NULL), KILN_WRONG_STATE,
                 "kiln_buffer_set_source: the buffer has a source already");
    kiln_buffer *shared;
    expect_ok(kiln_buffer_create(scene.context, KILN_F32, 0, NULL, &shared));
    kiln_buffer_retain(shared);
    expect_error(kiln_buffer_set_source(shared, read_again, NULL, NULL), KILN_WRONG_STATE,
                 "kiln_buffer_set_source: somebody else has the buffer already");
    kiln_buffer_release(shared);
    expect_ok(kiln_buffer_set_source(shared, read_again, NULL, NULL));
    kiln_buffer_release(shared);
    end(&scene);
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 150 };

struct worker {
    pthread_t thread;
    struct scene *scene;
    int number;
    unsigned wrong;
};

/* Products, sums with the buffer itself, reads of it, and trims. */
static void *work(void *user)
{
    struct worker *worker = user;
    struct scene *scene = worker->scene;
    float y[M * N], sum[K * N], content[K * N];
    kiln_batch *product = record(scene, y), *direct = kiln_batch_create(scene->context);
    kiln_tensor w = kiln_import(direct, scene->weights);
    worker->wrong += kiln_read(direct, kiln_add(direct, w, w), sum, sizeof sum) != KILN_OK;
    for (int i = 0; i < ROUNDS; i++) {
        memset(y, 0, sizeof y);
        worker->wrong += kiln_batch_execute(product) || memcmp(y, want, sizeof y);
        if (i % 16 == worker->number)
            worker->wrong += kiln_batch_execute(direct) || sum[3] != b[3] + b[3];
        if (i % 16 == 8 + worker->number)
            worker->wrong += kiln_buffer_read(scene->weights, 0, content, sizeof content) ||
                             memcmp(content, b, sizeof b);
        if (i % 32 == 20 + worker->number)
            worker->wrong += kiln_context_trim(scene->context) != KILN_OK;
        if (worker->number == 0) { /* or it would be there for good */
            pthread_mutex_lock(&scene->weights->lock);
            scene->weights->source.patience = 2;
            pthread_mutex_unlock(&scene->weights->lock);
        }
    }
    kiln_batch_release(direct);
    kiln_batch_release(product);
    return NULL;
}

Test(source, threads_give_up_and_ask_again)
{
    struct scene scene;
    struct worker workers[THREADS] = {0};
    begin(&scene);
    uint64_t bytes = settle(&scene);
    for (int i = 0; i < THREADS; i++) {
        workers[i].scene = &scene;
        workers[i].number = i;
        cr_assert_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        cr_expect_eq(workers[i].wrong, 0u);
    }
    cr_expect(!bytes || atomic_load(&scene.origin.reads) > 1);
    expect_content(&scene);
    end(&scene);
}
