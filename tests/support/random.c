/* SPDX-License-Identifier: Apache-2.0 */
/* Random batches by seed: the list of actions, gradients, requests. */
#include "random.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kiln/gradient.h>

#include "random_pool.h"
#include "record/batch.h"
#include "reproduce.h"
#include "session/context.h"

enum {
    DATA_SETS = 3, /* of each batch */
    MOST_RESULTS = 6,
    MOST_NARROW = 8, /* operations */
    PROGRESS_S = 5
};

/* ---- a whole batch ---- */

static void expect_recorded(const struct pool *pool)
{
    cr_assert_eq(kiln_batch_status(pool->batch), KILN_OK, "%s", kiln_batch_error(pool->batch));
}

static kiln_tensor act(struct pool *pool)
{
    return chance(4) ? random_again(pool) : chance(3) ? random_network(pool) : random_basic(pool);
}

/* A fourth of the batches are narrow, but for long ones: nothing could be said of their results. */
static kiln_precision precision_of(uint64_t seed, size_t operations)
{
    return operations > MOST_NARROW ? KILN_PRECISION_DEFAULT
           : seed % 8 == 5          ? KILN_PRECISION_BF16
           : seed % 8 == 7          ? KILN_PRECISION_F16
                                    : KILN_PRECISION_DEFAULT;
}

static struct pool record(kiln_batch *batch, uint64_t seed, uint64_t sizes, size_t operations)
{
    struct pool pool = {.batch = batch};
    random_structure(seed);
    check_seed(seed * 1000 + sizes);
    cr_assert_eq(kiln_batch_set_precision(batch, precision_of(seed, operations)), KILN_OK);
    pool.tensors[pool.count++] = pool.focus = random_upload(&pool);
    for (size_t tries = 0; pool.count < operations + 1 && tries < 20 * operations; tries++) {
        kiln_tensor made = act(&pool);
        expect_recorded(&pool);
        if (made.id && pool.count < MOST_TENSORS)
            pool.tensors[pool.count++] = made;
        if (made.id && chance(8))
            pool.focus = made;
    }
    check_read(batch, pool.tensors[pool.count - 1]);
    for (size_t more = choose(MOST_RESULTS); more > 0; more--)
        check_read(batch, any_operand(&pool).tensor);
    return pool;
}

void random_record(kiln_batch *batch, uint64_t seed, uint64_t sizes, size_t operations)
{
    record(batch, seed, sizes, operations);
}

/* ---- what only validation can follow ---- */

/* Of the sum of a result by an input; nothing where an operation has no derivative. */
static void differentiate(struct pool *pool)
{
    struct operand y = any_operand(pool), x = any_operand(pool);
    if (y.type != KILN_F32 || x.type != KILN_F32)
        return;
    kiln_tensor gradient, loss = kiln_sum(pool->batch, y.tensor, 0, NULL, 0);
    kiln_status status = kiln_grad(pool->batch, loss, &x.tensor, 1, &gradient);
    if (status == KILN_UNSUPPORTED)
        pool->batch->error = (struct kiln__error){0};
    else
        check_read(pool->batch, gradient);
    expect_recorded(pool);
}

static void clear(kiln_buffer *buffer)
{
    void *content;
    if (!kiln_buffer_bytes(buffer))
        return;
    expect_ok(kiln_buffer_map(buffer, &content));
    memset(content, 0, kiln_buffer_bytes(buffer));
    expect_ok(kiln_buffer_unmap(buffer));
}

/* A buffer that is imported and overwritten. */
static void update(struct pool *pool)
{
    struct operand x = any_operand(pool);
    kiln_buffer *buffer;
    expect_ok(kiln_buffer_create(pool->batch->context, x.stored, x.rank, x.dims, &buffer));
    clear(buffer);
    kiln_tensor old = kiln_import(pool->batch, buffer);
    kiln_tensor made = kiln_add(pool->batch, old, x.tensor);
    kiln_export(pool->batch, kiln_cast(pool->batch, made, x.stored), buffer);
    if (chance(2) && x.rank > 1)
        check_read(pool->batch, kiln_transpose(pool->batch, old, NULL));
    expect_recorded(pool);
    kiln_buffer_release(buffer);
}

/* A step of an optimiser, whose state and whose parameter are updated in place. */
static void train(struct pool *pool)
{
    static const kiln_optimizer_options methods[] = {KILN_SGD_INIT, KILN_ADAM_INIT,
                                                     KILN_ADAMW_INIT};
    struct operand x = any_operand(pool);
    kiln_optimizer_options options = methods[choose(3)];
    kiln_context *context = pool->batch->context;
    kiln_buffer *parameter;
    kiln_optimizer *optimizer;
    if (x.type != KILN_F32 || x.rank > 4)
        return;
    options.learning_rate = 0.125;
    options.momentum = options.method == KILN_SGD && chance(2) ? 0.5 : 0;
    options.weight_decay = chance(2) ? 0.25 : 0;
    expect_ok(kiln_buffer_create(context, stored_as(KILN_F32), x.rank, x.dims, &parameter));
    clear(parameter);
    expect_ok(kiln_optimizer_create(context, &options, 1, &parameter, &optimizer));
    kiln_tensor gradient = kiln_sub(pool->batch, kiln_import(pool->batch, parameter), x.tensor);
    if (chance(2))
        kiln_clip_by_norm(pool->batch, 1, &gradient, 2, &gradient);
    kiln_optimizer_step(pool->batch, optimizer, &gradient);
    expect_recorded(pool);
    kiln_optimizer_release(optimizer);
    kiln_buffer_release(parameter);
}

/* Numbers that are others in each run. */
static void draw_on(struct pool *pool)
{
    static const int32_t seed[] = {12, 34};
    kiln_buffer *state;
    expect_ok(kiln_buffer_create(pool->batch->context, KILN_I32, DIMS(2), &state));
    expect_ok(kiln_buffer_write(state, 0, seed, sizeof seed));
    kiln_tensor key = kiln_random_next(pool->batch, state);
    check_read(pool->batch, kiln_random_uniform(pool->batch, DIMS(PICK(1, 5, 33)), key));
    expect_recorded(pool);
    kiln_buffer_release(state);
}

static kiln_context *open_validating(void)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.validate = 1;
    return open_context_with(&options);
}

/* ---- running ---- */

/* As a program, after making it smaller. */
static void show(const kiln_batch *batch)
{
    struct kiln__text text = {0};
    kiln_context *context = open_validating();
    kiln_batch *small = reproduce_shrink(batch, context, reproduce_validates);
    reproduce_print(small ? small : batch, &text);
    fprintf(stderr, "/* ---- %s ---- */\n%s", small ? "made smaller" : "fails only as a whole",
            text.data);
    kiln__text_free(&text);
    if (small)
        reproduce_release(small);
    close_context(context);
}

/* Other data for the same kernels: each input's elements start elsewhere. Their kind stays, so that
 * what has to be finite is. */
static void turn_inputs(kiln_batch *batch)
{
    for (size_t i = 0; i < batch->bindings.inputs.count; i++) {
        const struct kiln__binding *input = &batch->bindings.inputs.items[i];
        size_t count = input->item ? input->bytes / input->item : 0;
        if (!input->host || count < 2)
            continue;
        size_t first = (1 + check_random((uint32_t)count - 1)) * input->item;
        char *data = input->host, *copy = malloc(input->bytes);
        cr_assert(copy);
        memcpy(copy, data, input->bytes);
        memcpy(data, copy + first, input->bytes - first);
        memcpy(data + input->bytes - first, copy, first);
        free(copy);
    }
}

static uint64_t batches; /* structures, in several sizes, with several sets of data */

static bool run_validated(kiln_context *context, uint64_t seed, uint64_t sizes, size_t operations)
{
    kiln_batch *batch = kiln_batch_create(context);
    cr_assert(batch);
    struct pool pool = record(batch, seed, sizes, operations);
    differentiate(&pool);
    update(&pool);
    train(&pool);
    if (chance(4))
        draw_on(&pool);
    kiln_status status = kiln_batch_execute(batch);
    if (!status) {
        turn_inputs(batch);
        status = kiln_batch_execute(batch);
    }
    cr_expect_eq(status, KILN_OK, "%s", kiln_last_error());
    batches += 2;
    if (status)
        show(batch);
    check_end(batch);
    return !status;
}

static bool run_compared(uint64_t seed, uint64_t sizes, size_t operations)
{
    kiln_batch *batch = check_begin();
    record(batch, seed, sizes, operations);
    bool good = true;
    for (int data = 0; data < DATA_SETS && good; data++) {
        if (data)
            turn_inputs(batch);
        good = check_run(batch);
        batches++;
    }
    if (!good)
        show(batch);
    check_end(batch);
    return good;
}

/* ---- progress, to the file that $KILN_RANDOM_PROGRESS names ---- */

struct progress {
    FILE *file; /* NULL: none is asked for */
    double start, last;
};

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static struct progress begin_progress(void)
{
    const char *path = getenv("KILN_RANDOM_PROGRESS");
    double now = seconds();
    return (struct progress){path && *path ? fopen(path, "a") : NULL, now, now};
}

static void show_progress(struct progress *progress, const struct random_range *range,
                          uint64_t seeds)
{
    double now = seconds(), rate = (double)seeds / (now - progress->start);
    if (!progress->file || (now < progress->last + PROGRESS_S && seeds < range->count))
        return;
    progress->last = now;
    fprintf(progress->file,
            "%zu operations: %llu of %llu structures (%llu batches), %.1f a minute, %.0f minutes "
            "left\n",
            range->operations, (unsigned long long)seeds, (unsigned long long)range->count,
            (unsigned long long)batches, 60 * rate, (double)(range->count - seeds) / rate / 60);
    fflush(progress->file);
}

static void end_progress(const struct progress *progress)
{
    if (progress->file)
        fclose(progress->file);
}

/* ---- a range ---- */

/* Of one structure: the kernels of the first sizes and data do for nearly all of the others. Every
 * second one has its short launches joined. */
static bool check_structure(const struct random_range *range, kiln_context *validating, uint64_t i)
{
    bool good = true, joins = (range->first + i) % 2;
    kiln__plan_cache_use_one_launch(check_context()->plan_cache,
                                    joins ? KILN__ONE_LAUNCH_ON : KILN__ONE_LAUNCH_OFF);
    for (uint64_t sizes = 0; sizes < range->variants; sizes++) {
        uint64_t seed = range->first + i;
        bool validates = validating && i % range->validate_each == 0 && sizes == 0;
        bool right = validates ? run_validated(validating, seed, sizes, range->operations)
                               : run_compared(seed, sizes, range->operations);
        cr_expect(right, "this was KILN_RANDOM_SEED=%llu, sizes %llu, %zu operations",
                  (unsigned long long)(seed - range->base), (unsigned long long)sizes,
                  range->operations);
        good = good && right;
    }
    return good;
}

bool random_check(const struct random_range *range)
{
    size_t failures = 0;
    kiln_context *context = range->validate_each ? open_validating() : NULL;
    struct progress progress = begin_progress();
    for (uint64_t i = 0; i < range->count && failures < 3; i++) {
        failures += !check_structure(range, context, i);
        show_progress(&progress, range, i + 1);
    }
    end_progress(&progress);
    if (context)
        close_context(context);
    return failures == 0;
}
