/* SPDX-License-Identifier: Apache-2.0 */
/* Short launches that become one: the same bits as many launches give, however often and in however
 * many threads it runs, and its phases by name. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "../support/context.h"
#include "session/context.h"

#define MOST ((size_t)96 * 512)
#define RESULTS 3
#define STEPS 12

struct results {
    float values[RESULTS][MOST];
    size_t launches;
};

static float given[MOST], pairs[(size_t)2 * 2 * 1100 * 32 + 100];
static struct results apart, joined;

static kiln_context *open_with(const char *word)
{
    setenv("KILN_ONE_LAUNCH", word, 1);
    kiln_context *context = open_context();
    unsetenv("KILN_ONE_LAUNCH");
    return context;
}

static bool joins(const kiln_context *context)
{
    const struct kiln__traits *traits = context->runtime.device.traits;
    return traits->one_launch && traits->chunked;
}

/* Each step needs sums over what the one before has stored, along one axis and the other in turn:
 * each is a launch or two. Values are asked for in the middle, too. */
static kiln_batch *record_steps(kiln_context *context, size_t m, size_t n, struct results *results)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){m, n}, given);
    for (int i = 0; i < STEPS; i++) {
        kiln_tensor sums = kiln_sum(batch, kiln_abs(batch, x), 1, (int[]){i % 2}, 1);
        x = kiln_tanh(batch, kiln_mul(batch, kiln_div(batch, x, sums), kiln_exp(batch, x)));
        if (i == 4)
            expect_ok(kiln_read(batch, sums, results->values[0], n * sizeof(float)));
        if (i == 5)
            expect_ok(kiln_read(batch, x, results->values[1], m * n * sizeof(float)));
    }
    expect_ok(kiln_read(batch, x, results->values[2], m * n * sizeof(float)));
    return batch;
}

static void run_steps(kiln_context *context, size_t m, size_t n, struct results *results)
{
    memset(results, 0, sizeof *results);
    kiln_batch *batch = record_steps(context, m, n, results);
    run_batch(batch);
    results->launches = cost_of(batch).launches;
    kiln_batch_release(batch);
}

/* Whole numbers, some of them not finite. */
static void begin(void)
{
    check_cheaply();
    fill(given, MOST, 1);
    given[17] = INFINITY;
    given[600] = NAN;
    given[1000] = -0.0F;
}

/* From one work-item to sixteen, of each phase. */
Test(one_launch, has_the_bits_of_many)
{
    static const size_t sizes[][2] = {{1, 1}, {3, 7}, {1, 1030}, {96, 512}, {0, 5}};
    begin();
    kiln_context *many = open_with("off"), *one = open_with("on");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t m = sizes[i][0], n = sizes[i][1];
        run_steps(many, m, n, &apart);
        run_steps(one, m, n, &joined);
        cr_expect_eq(memcmp(apart.values, joined.values, sizeof apart.values), 0, "%zu x %zu", m,
                     n);
        if (joins(one) && m * n > 1)
            cr_expect_lt(2 * joined.launches, apart.launches, "%zu x %zu: %zu of %zu", m, n,
                         joined.launches, apart.launches);
        else if (!joins(one))
            cr_expect_eq(joined.launches, apart.launches);
    }
    close_context(many);
    close_context(one);
}

/* A recurrent layer behind maps and a product and before others, with weights in buffers: what
 * brings these into other forms runs once, and all that runs again is one launch. */
static kiln_batch *record_recurrent(kiln_context *context, size_t gates,
                                    kiln_buffer *const *weights, struct results *results)
{
    enum { WIDE = 20, HIDDEN = 24 };
    kiln_batch *batch = kiln_batch_create(context);
    const size_t rows = gates * HIDDEN;
    kiln_tensor x = kiln_upload(batch, KILN_F32, 3, (size_t[]){2, 3, WIDE}, given + 5000), last;
    kiln_tensor w[4];
    for (int i = 0; i < 4; i++)
        w[i] = kiln_import(batch, weights[i]);
    kiln_recurrent layer = KILN_RECURRENT_INIT;
    x = kiln_tanh(
        batch, kiln_matmul(batch, kiln_sin(batch, x),
                           kiln_transpose(
                               batch, kiln_reshape(batch, w[0], 2, (size_t[]){WIDE, WIDE}), NULL)));
    layer.x = x;
    layer.w = kiln_reshape(batch, w[1], 3, (size_t[]){2, rows, WIDE});
    layer.r = kiln_reshape(batch, w[2], 3, (size_t[]){2, rows, HIDDEN});
    layer.direction = KILN_BIDIRECTIONAL;
    x = gates == 4 ? kiln_lstm(batch, &layer, &last, NULL) : kiln_gru(batch, &layer, &last);
    x = kiln_matmul(batch, x, kiln_reshape(batch, w[3], 2, (size_t[]){HIDDEN, 10}));
    expect_ok(kiln_read(batch, kiln_sigmoid(batch, x), results->values[0],
                        2 * 2 * 3 * 10 * sizeof(float)));
    expect_ok(kiln_read(batch, last, results->values[1], 2 * 3 * HIDDEN * sizeof(float)));
    return batch;
}

Test(one_launch, has_recurrent_layers)
{
    begin();
    kiln_context *contexts[2] = {open_with("off"), open_with("on")};
    struct results *const all[2] = {&apart, &joined};
    for (size_t gates = 3; gates <= 4; gates++) {
        for (int i = 0; i < 2; i++) {
            kiln_buffer *weights[4];
            const size_t counts[4] = {400, 2 * gates * 24 * 20, 2 * gates * 24 * 24, 240};
            for (int k = 0; k < 4; k++)
                weights[k] = make_buffer(contexts[i], counts[k], given + 7000 * k + 3000);
            memset(all[i], 0, sizeof *all[i]);
            kiln_batch *batch = record_recurrent(contexts[i], gates, weights, all[i]);
            run_batch(batch);
            run_batch(batch);
            const uint64_t before = stats_of(contexts[i]).launches;
            run_batch(batch);
            all[i]->launches = (size_t)(stats_of(contexts[i]).launches - before);
            kiln_batch_release(batch);
            for (int k = 0; k < 4; k++)
                kiln_buffer_release(weights[k]);
        }
        cr_expect_eq(memcmp(apart.values, joined.values, sizeof apart.values), 0, "%zu gates",
                     gates);
        if (joins(contexts[1]))
            cr_expect_eq(joined.launches, 1, "%zu gates: %zu of %zu", gates, joined.launches,
                         apart.launches);
    }
    close_context(contexts[0]);
    close_context(contexts[1]);
}

/* Layers with products of each form: one row, few and many, weights along rows and columns. */
static kiln_batch *record_layers(kiln_context *context, size_t rows, struct results *results)
{
    enum { WIDE = 72, LAYERS = 4 };
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){rows, WIDE}, given + 2000);
    for (size_t i = 0; i < LAYERS; i++) {
        kiln_tensor w = kiln_upload(batch, KILN_F32, 2, (size_t[]){WIDE, WIDE}, given + 3000 + i);
        w = i % 2 ? kiln_transpose(batch, w, NULL) : w;
        x = kiln_softmax(batch, kiln_tanh(batch, kiln_matmul(batch, x, w)), 1, (int[]){1});
    }
    expect_ok(kiln_read(batch, x, results->values[0], rows * WIDE * sizeof(float)));
    return batch;
}

Test(one_launch, has_the_bits_of_many_products)
{
    static const size_t rows[] = {1, 5, 50};
    begin();
    kiln_context *many = open_with("off"), *one = open_with("on");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_batch *batch = record_layers(many, rows[i], &apart);
        run_batch(batch);
        const size_t launches = cost_of(batch).launches;
        kiln_batch_release(batch);
        batch = record_layers(one, rows[i], &joined);
        run_batch(batch);
        cr_expect_eq(memcmp(apart.values[0], joined.values[0], sizeof apart.values[0]), 0,
                     "%zu rows", rows[i]);
        if (joins(one))
            cr_expect_lt(2 * cost_of(batch).launches, launches, "%zu rows: %zu of %zu", rows[i],
                         cost_of(batch).launches, launches);
        kiln_batch_release(batch);
    }
    close_context(many);
    close_context(one);
}

/* Layers whose weights lie in buffers, and are packed before the first of them runs. */
Test(one_launch, packs_the_weights_of_all_layers_first)
{
    enum { ROWS = 32, WIDE = 64, INNER = 512 };
    begin();
    const char *const words[] = {"off", "on"};
    struct results *const results[] = {&apart, &joined};
    for (int i = 0; i < 2; i++) {
        kiln_context *context = open_with(words[i]);
        kiln_buffer *up, *down;
        expect_ok(kiln_buffer_create(context, KILN_F32, 2, (size_t[]){INNER, WIDE}, &up));
        expect_ok(kiln_buffer_create(context, KILN_F32, 2, (size_t[]){WIDE, INNER}, &down));
        expect_ok(kiln_buffer_write(up, 0, given + 2000, sizeof(float) * INNER * WIDE));
        expect_ok(kiln_buffer_write(down, 0, given + 2001, sizeof(float) * INNER * WIDE));
        kiln_batch *batch = kiln_batch_create(context);
        expect_ok(kiln_batch_set_batch_invariant(batch));
        kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){ROWS, WIDE}, given + 3000);
        for (int layer = 0; layer < 3; layer++) {
            const kiln_tensor inner =
                kiln_tanh(batch, kiln_matmul_transposed(batch, x, 0, kiln_import(batch, up), 1));
            x = kiln_softmax(batch,
                             kiln_matmul_transposed(batch, inner, 0, kiln_import(batch, down), 1),
                             1, (int[]){1});
        }
        expect_ok(kiln_read(batch, x, results[i]->values[0], ROWS * WIDE * sizeof(float)));
        run_batch(batch);
        run_batch(batch);
        kiln_batch_release(batch);
        kiln_buffer_release(up);
        kiln_buffer_release(down);
        close_context(context);
    }
    cr_expect_eq(memcmp(apart.values[0], joined.values[0], ROWS * WIDE * sizeof(float)), 0);
}

/* Layers of attention, of one text's heads or of many rows, each over the keys that it says: with
 * room for more than 512 they are taken in parts, which another launch puts together. */
static kiln_batch *record_attention(kiln_context *context, size_t rows, size_t room, bool counted,
                                    struct results *results)
{
    enum { PAIRS = 2, SHARED = 3, DEEP = 32, LAYERS = 2 };
    static int32_t lengths[2] = {3};
    kiln_batch *batch = kiln_batch_create(context);
    const size_t all[] = {PAIRS, SHARED, 2, rows, DEEP}, few[] = {PAIRS, 1, 2, room, DEEP};
    const size_t count = (size_t)PAIRS * SHARED * 2 * rows * DEEP;
    kiln_tensor x = kiln_upload(batch, KILN_F32, 5, all, given + 2000);
    kiln_tensor k = kiln_upload(batch, KILN_F32, 5, few, pairs);
    kiln_tensor v = kiln_upload(batch, KILN_F32, 5, few, pairs + 100);
    lengths[1] = room < 1050 ? (int32_t)room - 9 : 1050;
    kiln_tensor length = kiln_upload(batch, KILN_I32, 1, (size_t[]){2}, lengths);
    const kiln_tensor none = {0};
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    for (size_t i = 0; i < LAYERS; i++) {
        x = counted ? kiln_attention_with_lengths(batch, x, k, v, none, length, &options)
                    : kiln_attention(batch, x, k, v, none, &options);
        x = kiln_softmax(batch, kiln_tanh(batch, x), 1, (int[]){4});
    }
    expect_ok(kiln_read(batch, x, results->values[0], count * sizeof(float)));
    return batch;
}

Test(one_launch, has_the_bits_of_many_attentions)
{
    static const struct {
        size_t rows, room;
        bool counted;
    } cases[] = {{1, 40, false}, {1, 90, true}, {1, 1100, true}, {40, 90, true}, {40, 90, false}};
    begin();
    fill(pairs, sizeof pairs / sizeof *pairs, 2);
    kiln_context *many = open_with("off"), *one = open_with("on");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t rows = cases[i].rows, room = cases[i].room;
        kiln_batch *batch = record_attention(many, rows, room, cases[i].counted, &apart);
        run_batch(batch);
        kiln_batch_release(batch);
        batch = record_attention(one, rows, room, cases[i].counted, &joined);
        run_batch(batch);
        cr_expect_eq(memcmp(apart.values[0], joined.values[0], sizeof apart.values[0]), 0,
                     "case %zu", i);
        if (joins(one))
            cr_expect_eq(cost_of(batch).launches, 1, "case %zu: %zu launches", i,
                         cost_of(batch).launches);
        kiln_batch_release(batch);
    }
    close_context(many);
    close_context(one);
}

/* Two products by one kernel, or one by two kernels of the same file, that adds up parts of it. */
static void run_products(kiln_context *context, int count, size_t n, float *y)
{
    enum { DEEP = 4096 };
    kiln_batch *batch = kiln_batch_create(context);
    for (int i = 0; i < count; i++) {
        kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){1, DEEP}, given + 2000 + i);
        kiln_tensor w = kiln_upload(batch, KILN_F32, 2, (size_t[]){DEEP, n}, given);
        expect_ok(kiln_read(batch, kiln_matmul(batch, x, w), y + (size_t)i * n, n * sizeof *y));
    }
    run_batch(batch);
    kiln_batch_release(batch);
}

Test(one_launch, tells_kernels_of_one_file_apart)
{
    static float results[2][4][64];
    begin();
    for (int on = 0; on < 2; on++) {
        kiln_context *context = open_with(on ? "on" : "off");
        run_products(context, 2, 11, results[on][0]);
        run_products(context, 1, 11, results[on][2]);
        close_context(context);
    }
    cr_expect_eq(memcmp(results[0], results[1], sizeof results[0]), 0);
}

/* Its counters are zeros again after each run. */
Test(one_launch, runs_again_and_again)
{
    begin();
    kiln_context *one = open_with("on");
    kiln_batch *batch = record_steps(one, 96, 512, &joined);
    run_batch(batch);
    memcpy(&apart, &joined, sizeof apart);
    for (int i = 0; i < 200; i++) {
        memset(joined.values[2], 0, sizeof joined.values[2]);
        run_batch(batch);
        cr_assert_eq(memcmp(apart.values, joined.values, sizeof apart.values), 0, "run %d", i);
    }
    kiln_batch_release(batch);
    close_context(one);
}

struct runner {
    kiln_context *context;
    struct results own;
    bool same;
};

static void *run_often(void *argument)
{
    struct runner *runner = argument;
    runner->same = true;
    for (int i = 0; i < 50; i++) {
        run_steps(runner->context, 96, 512, &runner->own);
        runner->same =
            runner->same && !memcmp(apart.values, runner->own.values, sizeof apart.values);
    }
    return NULL;
}

/* More work-groups at once than there are cores: some begin when others have ended. */
Test(one_launch, runs_in_several_threads)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    struct runner *runners = calloc(THREADS, sizeof *runners);
    begin();
    kiln_context *one = open_with("on");
    run_steps(one, 96, 512, &apart);
    for (int i = 0; i < THREADS; i++) {
        runners[i].context = one;
        cr_assert_eq(pthread_create(&threads[i], NULL, run_often, &runners[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        cr_expect(runners[i].same, "thread %d", i);
    }
    free(runners);
    close_context(one);
}

/* A launch of 1024 bytes of arguments is all that any device takes. */
Test(one_launch, is_several_where_arguments_are_many)
{
    enum { COUNT = 60, N = 5 };
    static float x[COUNT][N], y[COUNT][N];
    begin();
    kiln_context *one = open_with("on");
    kiln_batch *batch = kiln_batch_create(one);
    for (size_t i = 0; i < COUNT; i++) {
        fill(x[i], N, (unsigned)i);
        kiln_tensor each = kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, x[i]);
        expect_ok(kiln_read(batch, kiln_square(batch, each), y[i], sizeof y[i]));
    }
    run_batch(batch);
    for (size_t i = 0; i < COUNT; i++)
        for (size_t k = 0; k < N; k++)
            cr_expect_eq(y[i][k], x[i][k] * x[i][k]);
    if (joins(one) && one->runtime.host_mode != KILN__HOST_SEPARATE) {
        const size_t launches = cost_of(batch).launches;
        cr_expect(launches > 1 && launches <= COUNT / 4, "%zu", launches);
    }
    kiln_batch_release(batch);
    close_context(one);
}

Test(one_launch, is_explained_by_its_phases)
{
    begin();
    kiln_context *one = open_with("on");
    kiln_batch *batch = record_steps(one, 3, 7, &joined);
    if (joins(one)) {
        cr_expect(explains(batch, "done by launch"));
        cr_expect(explains(batch, "kiln_one_launch("));
        cr_expect(explains(batch, "p0_kiln_"));
    }
    kiln_batch_release(batch);
    close_context(one);
}

/* Each launch by itself, with every index looked at. */
Test(one_launch, is_validated_launch_by_launch)
{
    begin();
    setenv("KILN_VALIDATE", "1", 1);
    kiln_context *one = open_with("on");
    unsetenv("KILN_VALIDATE");
    run_steps(one, 3, 7, &joined);
    close_context(one);
    kiln_context *many = open_with("off");
    run_steps(many, 3, 7, &apart);
    cr_expect_eq(memcmp(apart.values, joined.values, sizeof apart.values), 0);
    close_context(many);
}
