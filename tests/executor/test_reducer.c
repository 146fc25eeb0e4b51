/* SPDX-License-Identifier: Apache-2.0 */
/* What kiln_parallel asks of a reducer: here one that plays another process with the same
 * gradients, in a thread of its own. tests/mpi has real ones. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include <kiln/parallel.h>

#include "../support/context.h"
#include "../support/layer.h"

enum { CONTEXTS = 2, ROWS = 6, IN = 7, OUT = 3, WEIGHTS = IN * OUT + OUT, MOST_PIECES = 64 };

/* ---- the other process ---- */

static struct other {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct {
        float *values;
        size_t count;
    } pieces[MOST_PIECES];
    size_t begun, done, awaited;
    bool over;
    int joins, agreements;
    kiln_status own;                     /* of the last agreement or joining */
    size_t numbers;                      /* of the last joining */
    kiln_status joining, waiting, fails; /* what it answers */
    int fails_after;                     /* so many agreements */
} other;

/* The sum with the other's, which are the same, some time later. */
static void *add(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&other.lock);
    while (!other.over || other.done < other.begun) {
        if (other.done == other.begun) {
            pthread_cond_wait(&other.changed, &other.lock);
            continue;
        }
        float *values = other.pieces[other.done].values;
        size_t count = other.pieces[other.done].count;
        pthread_mutex_unlock(&other.lock);
        for (size_t i = 0; i < count; i++)
            values[i] *= 2;
        pthread_mutex_lock(&other.lock);
        other.done++;
        pthread_cond_broadcast(&other.changed);
    }
    pthread_mutex_unlock(&other.lock);
    return NULL;
}

static kiln_status answer(kiln_status status, const char *sentence)
{
    return status ? kiln_error_set(status, sentence) : KILN_OK;
}

static kiln_status join(void *user, kiln_status own, size_t numbers, uint32_t layout,
                        double *shares)
{
    (void)layout;
    cr_assert_eq(user, &other);
    other.joins++;
    other.own = own;
    other.numbers = numbers;
    *shares *= 2;
    return answer(other.joining, "the other does not join");
}

static kiln_status begin(void *user, float *values, size_t count)
{
    (void)user;
    pthread_mutex_lock(&other.lock);
    other.pieces[other.begun].values = values;
    other.pieces[other.begun++].count = count;
    pthread_cond_broadcast(&other.changed);
    pthread_mutex_unlock(&other.lock);
    return KILN_OK;
}

static kiln_status wait(void *user)
{
    (void)user;
    pthread_mutex_lock(&other.lock);
    while (other.done == other.awaited)
        pthread_cond_wait(&other.changed, &other.lock);
    other.awaited++;
    pthread_mutex_unlock(&other.lock);
    return answer(other.waiting, "the other has gone");
}

static kiln_status agree(void *user, kiln_status own)
{
    (void)user;
    other.agreements++;
    other.own = own;
    bool fails = other.agreements > other.fails_after;
    return own ? own : answer(fails ? other.fails : KILN_OK, "the other has failed");
}

static const kiln_reducer reducer = {sizeof reducer, &other, 5, join, begin, wait,
                                     agree,          0,      0, NULL, NULL};

static void open_other(void)
{
    memset(&other, 0, sizeof other);
    pthread_mutex_init(&other.lock, NULL);
    pthread_cond_init(&other.changed, NULL);
    cr_assert(!pthread_create(&other.thread, NULL, add, NULL));
}

static void close_other(void)
{
    pthread_mutex_lock(&other.lock);
    other.over = true;
    pthread_cond_broadcast(&other.changed);
    pthread_mutex_unlock(&other.lock);
    pthread_join(other.thread, NULL);
}

/* ---- this one: y = x @ w + b towards 1 ---- */

static struct {
    kiln_context *contexts[CONTEXTS];
    kiln_buffer *w[CONTEXTS], *b[CONTEXTS];
    kiln_status recording;
} world;
static float x[CONTEXTS][ROWS * IN], losses[CONTEXTS];

static kiln_status record(kiln_batch *batch, size_t context, kiln_tensor *gradients, void *user)
{
    (void)user;
    kiln_tensor in = kiln_upload(batch, KILN_F32, 2, (size_t[]){ROWS, IN}, x[context]);
    kiln_tensor weights[] = {kiln_import(batch, world.w[context]),
                             kiln_import(batch, world.b[context])};
    kiln_tensor y = kiln_add(batch, kiln_matmul(batch, in, weights[0]), weights[1]);
    kiln_tensor one = kiln_fill(batch, KILN_F32, 2, (size_t[]){ROWS, OUT}, 1);
    kiln_tensor loss = kiln_mean_squared_error(batch, y, one);
    kiln_grad(batch, loss, weights, 2, gradients);
    kiln_status status = kiln_read(batch, loss, &losses[context], sizeof(float));
    return world.recording ? world.recording : status;
}

static kiln_status update(kiln_batch *batch, size_t context, const kiln_tensor *gradients,
                          void *user)
{
    kiln_buffer *weights[] = {world.w[context], world.b[context]};
    (void)user;
    for (int i = 0; i < 2; i++)
        kiln_export(
            batch,
            kiln_sub(batch, kiln_import(batch, weights[i]), kiln_scale(batch, gradients[i], 0.125)),
            weights[i]);
    return KILN_OK;
}

static const kiln_training training = {sizeof training, record, update, NULL, 2, NULL,
                                       &reducer,        NULL,   NULL};

static void open_world(void)
{
    kiln_context_options how = KILN_CONTEXT_OPTIONS_INIT;
    float w[IN * OUT], b[OUT] = {0};
    how.host_memory = KILN_HOST_MEMORY_SEPARATE;
    fill(w, IN * OUT, 3);
    for (int i = 0; i < CONTEXTS; i++) {
        fill(x[i], ROWS * IN, 7 + (unsigned)i);
        world.contexts[i] = open_context_with(&how);
        expect_ok(
            kiln_buffer_create(world.contexts[i], KILN_F32, 2, (size_t[]){IN, OUT}, &world.w[i]));
        expect_ok(kiln_buffer_create(world.contexts[i], KILN_F32, 1, (size_t[]){OUT}, &world.b[i]));
        expect_ok(kiln_buffer_write(world.w[i], 0, w, sizeof w));
        expect_ok(kiln_buffer_write(world.b[i], 0, b, sizeof b));
    }
    open_other();
}

static void close_with(kiln_parallel *parallel, void (*close)(kiln_context *))
{
    kiln_parallel_release(parallel);
    for (int i = 0; i < CONTEXTS; i++) {
        kiln_buffer_release(world.w[i]);
        kiln_buffer_release(world.b[i]);
        close(world.contexts[i]);
    }
    close_other();
}

static void close_world(kiln_parallel *parallel)
{
    close_with(parallel, close_context);
}

static void read_weights(int context, float *weights)
{
    expect_ok(kiln_buffer_read(world.w[context], 0, weights, IN * OUT * sizeof *weights));
    expect_ok(kiln_buffer_read(world.b[context], 0, weights + IN * OUT, OUT * sizeof *weights));
}

static kiln_parallel *create(const kiln_reducer *with)
{
    kiln_parallel *parallel;
    kiln_training how = training;
    how.reducer = with;
    expect_ok(kiln_parallel_create(world.contexts, CONTEXTS, &how, &parallel));
    return parallel;
}

static void expect_weights(const float *wanted)
{
    float weights[WEIGHTS];
    for (int i = 0; i < CONTEXTS; i++) {
        read_weights(i, weights);
        cr_expect(!memcmp(weights, wanted, sizeof weights), "weights of context %d", i);
    }
}

/* All numbers in their order, 5 at a time: 3 of the last gradient before 21 of the first. */
static void expect_pieces(void)
{
    static const size_t counts[] = {5, 5, 5, 5, 4};
    cr_expect_eq(other.begun, 5);
    cr_expect_eq(other.awaited, 5);
    for (size_t i = 0; i < 5; i++) {
        cr_expect_eq(other.pieces[i].count, counts[i]);
        cr_expect_eq(other.pieces[i].values, other.pieces[0].values + 5 * i);
    }
    other.begun = other.done = other.awaited = 0;
}

/* With another process that has the same gradients, halves of them add up to the same. */
Test(reducer, sums_are_what_weights_are_updated_by)
{
    float wanted[WEIGHTS];
    open_world();
    kiln_parallel *parallel = create(NULL);
    for (int i = 0; i < 3; i++)
        expect_ok(kiln_parallel_step(parallel));
    read_weights(0, wanted);
    close_world(parallel);
    open_world();
    parallel = create(&reducer);
    cr_expect_eq(other.joins, 1);
    cr_expect_eq(other.numbers, WEIGHTS);
    for (int i = 0; i < 3; i++) {
        expect_ok(kiln_parallel_step(parallel));
        expect_pieces();
    }
    cr_expect_eq(other.agreements, 6, "before each update and after it");
    expect_weights(wanted);
    close_world(parallel);
}

/* The others wait for its pieces, and have to be told. */
Test(reducer, is_told_of_a_failure_and_gets_all_pieces)
{
    float before[WEIGHTS];
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    open_world();
    kiln_parallel *parallel = create(&reducer);
    read_weights(0, before);
    layer_fail_next("clEnqueueNDRangeKernel", -36, KILN_LAYER_CALL);
    expect_error_part(kiln_parallel_step(parallel), KILN_DEVICE_ERROR, ", deriving: ");
    expect_pieces();
    cr_expect_eq(other.agreements, 1);
    cr_expect_eq(other.own, KILN_DEVICE_ERROR);
    expect_weights(before);
    other.fails = KILN_BUSY;
    expect_error_part(kiln_parallel_step(parallel), KILN_BUSY,
                      "waiting for other processes: the other has failed");
    expect_pieces();
    cr_expect_eq(other.own, KILN_OK);
    expect_weights(before);
    other.fails = KILN_OK;
    expect_ok(kiln_parallel_step(parallel));
    close_world(parallel);
}

static void expect_no_step(kiln_parallel *parallel)
{
    other.agreements = 0;
    expect_error_part(kiln_parallel_step(parallel), KILN_WRONG_STATE,
                      "kiln_parallel_step: an update has failed, and weights may differ");
    cr_expect_eq(other.begun, 0);
    cr_expect_eq(other.agreements, 0);
}

/* Nobody goes on with weights that are not those of the others. */
Test(reducer, is_told_of_an_update_that_fails)
{
    static const char kernels[] = "clEnqueueNDRangeKernel";
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    open_world();
    kiln_parallel *parallel = create(&reducer);
    expect_ok(kiln_parallel_step(parallel));
    layer_reset();
    expect_ok(kiln_parallel_step(parallel));
    unsigned long last = (unsigned long)layer_count(kernels);
    other.begun = other.done = other.awaited = 0;
    other.agreements = 0;
    layer_fail(last, kernels, -36, KILN_LAYER_ONCE, KILN_LAYER_CALL);
    expect_error_part(kiln_parallel_step(parallel), KILN_DEVICE_ERROR, ", updating: ");
    expect_pieces();
    cr_expect_eq(other.agreements, 2);
    cr_expect_eq(other.own, KILN_DEVICE_ERROR);
    expect_no_step(parallel);
    close_world(parallel);
}

Test(reducer, tells_of_an_update_that_fails_elsewhere)
{
    open_world();
    kiln_parallel *parallel = create(&reducer);
    other.fails = KILN_BUSY;
    other.fails_after = 1;
    expect_error_part(kiln_parallel_step(parallel), KILN_BUSY, "updating: the other has failed");
    cr_expect_eq(other.own, KILN_OK);
    expect_pieces();
    expect_no_step(parallel);
    close_world(parallel);
}

Test(reducer, that_loses_the_others_changes_no_weights)
{
    float before[WEIGHTS];
    open_world();
    kiln_parallel *parallel = create(&reducer);
    read_weights(0, before);
    other.waiting = KILN_TIMED_OUT;
    expect_error_part(kiln_parallel_step(parallel), KILN_TIMED_OUT,
                      "adding up with other processes: the other has gone");
    cr_expect_eq(other.own, KILN_TIMED_OUT);
    expect_weights(before);
    close_with(parallel, kiln_context_release); /* the memory of pieces holds them */
}

Test(reducer, takes_part_in_making)
{
    kiln_parallel *parallel;
    kiln_reducer half = reducer;
    kiln_training how = training;
    open_world();
    other.joining = KILN_SHAPE_MISMATCH;
    expect_error(kiln_parallel_create(world.contexts, CONTEXTS, &training, &parallel),
                 KILN_SHAPE_MISMATCH, "the other does not join");
    cr_expect_eq(other.own, KILN_OK);
    cr_expect_null(parallel);
    world.recording = KILN_UNSUPPORTED;
    expect_error(kiln_parallel_create(world.contexts, CONTEXTS, &training, &parallel),
                 KILN_UNSUPPORTED,
                 "kiln_parallel_create: context 0: the callback answered UNSUPPORTED");
    cr_expect_eq(other.joins, 2);
    cr_expect_eq(other.own, KILN_UNSUPPORTED);
    half.agree = NULL;
    how.reducer = &half;
    expect_error(kiln_parallel_create(world.contexts, CONTEXTS, &how, &parallel),
                 KILN_INVALID_ARGUMENT, "kiln_parallel_create: the reducer lacks a function");
    half.size = 3;
    expect_error_part(kiln_parallel_create(world.contexts, CONTEXTS, &how, &parallel),
                      KILN_INVALID_ARGUMENT, "KILN_REDUCER_INIT");
    cr_expect_eq(other.joins, 2);
    world.recording = KILN_OK;
    close_world(NULL);
}

/* ---- shards ---- */

/* All elements once, in the order of processes, as even as can be. */
Test(reducer, leaves_each_process_a_part)
{
    size_t first, next = 0, elements = 100003;
    for (size_t p = 0; p < 7; p++) {
        size_t count = kiln_shard_range(elements, p, 7, &first);
        cr_expect_eq(first, next);
        cr_expect(count == elements / 7 || count == elements / 7 + 1);
        next = first + count;
    }
    cr_expect_eq(next, elements);
    cr_expect_eq(kiln_shard_range(4096, 1, 2, &first), 2048);
    cr_expect_eq(first, 2048);
    cr_expect_eq(kiln_shard_range(4095, 1, 2, &first), 4095, "too few");
    cr_expect_eq(first, 0);
    cr_expect_eq(kiln_shard_range(((size_t)1 << 31) - 1, 1, 2, NULL), (size_t)1 << 30);
    cr_expect_eq(kiln_shard_range((size_t)1 << 31, 1, 2, NULL), (size_t)1 << 31, "too many");
    cr_expect_eq(kiln_shard_range(1 << 20, 0, 1, NULL), 1 << 20);
    cr_expect_eq(kiln_shard_range(1 << 20, 0, 0, NULL), 1 << 20);
    cr_expect_eq(kiln_shard_range(1 << 20, 3, 3, NULL), 1 << 20, "no such process");
}

static kiln_status gather(void *user, void *values, size_t elements, size_t bytes)
{
    (void)user, (void)values, (void)elements, (void)bytes;
    return KILN_UNSUPPORTED;
}

static void expect_refused(kiln_training how, kiln_status status, const char *part)
{
    kiln_parallel *parallel;
    expect_error_part(kiln_parallel_create(world.contexts, 1, &how, &parallel), status, part);
    cr_expect_null(parallel);
}

static kiln_status derive_large(kiln_batch *batch, size_t context, kiln_tensor *gradients,
                                void *large)
{
    (void)context;
    gradients[0] = kiln_import(batch, large);
    return KILN_OK;
}

static kiln_status clip_part(kiln_batch *batch, size_t context, const kiln_tensor *averages,
                             void *large)
{
    kiln_tensor clipped;
    (void)context, (void)large;
    kiln_clip_by_norm(batch, 1, averages, 1, &clipped);
    return KILN_OK;
}

Test(reducer, norm_of_a_part_is_refused)
{
    kiln_buffer *large, *half;
    kiln_reducer divides = reducer;
    open_world();
    divides.processes = 2;
    divides.begin_shard = begin;
    divides.begin_gather = gather;
    expect_ok(kiln_buffer_create(world.contexts[0], KILN_F32, 2, (size_t[]){64, 65}, &large));
    expect_ok(kiln_shard_create(world.contexts[0], &divides, large, &half));
    kiln_training how = KILN_TRAINING_INIT;
    how.record = derive_large;
    how.update = clip_part;
    how.user = large;
    how.gradient_count = 1;
    how.reducer = &divides;
    how.weights = &large;
    how.shards = &half;
    expect_refused(how, KILN_UNSUPPORTED,
                   "context 0: kiln_clip_by_norm: this process has a part of the gradients");
    kiln_buffer_release(half);
    kiln_buffer_release(large);
    close_world(NULL);
}

Test(reducer, shards_that_do_not_fit_are_refused)
{
    kiln_buffer *large, *shard, *half;
    kiln_reducer divides = reducer;
    kiln_training how = training;
    open_world();
    divides.processes = 2;
    expect_error(kiln_shard_create(world.contexts[0], &divides, world.w[0], &shard),
                 KILN_INVALID_ARGUMENT, "kiln_shard_create: the reducer lacks a function");
    expect_error(kiln_shard_create(world.contexts[0], NULL, NULL, &shard), KILN_INVALID_ARGUMENT,
                 "kiln_shard_create: weights is NULL");
    divides.begin_shard = begin;
    divides.begin_gather = gather;
    expect_ok(kiln_buffer_create(world.contexts[0], KILN_F16, 2, (size_t[]){64, 65}, &large));
    expect_ok(kiln_shard_create(world.contexts[0], &divides, large, &half));
    cr_expect_eq(kiln_buffer_bytes(half), 2080 * 2);
    expect_ok(kiln_shard_create(world.contexts[0], &divides, world.w[0], &shard));
    cr_expect_eq(shard, world.w[0], "small ones are whole");
    kiln_buffer_release(shard);
    kiln_buffer *weights[] = {world.w[0], world.b[0]}, *shards[] = {world.w[0], world.b[0]};
    how.reducer = NULL;
    how.weights = weights;
    expect_refused(how, KILN_INVALID_ARGUMENT, "kiln_parallel_create: training->shards is NULL");
    how.shards = shards;
    shards[1] = NULL;
    expect_refused(how, KILN_INVALID_ARGUMENT,
                   "kiln_parallel_create: context 0: weights and shard 1 are not both there");
    shards[1] = half;
    expect_refused(how, KILN_TYPE_MISMATCH, "weights and shard 1 are not of one floating type");
    weights[1] = large;
    expect_refused(how, KILN_SHAPE_MISMATCH, "weights and shard 1 have not the gradient's");
    weights[1] = world.b[0];
    shards[1] = world.b[1];
    expect_refused(how, KILN_INVALID_ARGUMENT, "weights and shard 1 are one buffer, or two");
    kiln_buffer_release(half);
    kiln_buffer_release(large);
    close_world(NULL);
}
