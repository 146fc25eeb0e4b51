/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of work-groups that become one launch, on the tests' device, for which kernels are made as
 * for a GPU: the same bits as many launches give, and never two of which one needs the other. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../support/check.h"
#include "../support/grouped.h"

enum { PARAMETERS = 5, MOST = 1500 };

static const size_t sizes[PARAMETERS] = {1500, 1, 700, 256, 33};
static float weights[PARAMETERS][MOST], slopes[PARAMETERS][MOST];

static void begin(void)
{
    check_cheaply();
    for (size_t i = 0; i < PARAMETERS; i++) {
        fill(weights[i], MOST, (unsigned)i);
        fill(slopes[i], MOST, (unsigned)i + 9);
    }
    weights[0][17] = NAN;
    slopes[2][3] = INFINITY;
}

/* Updates by two steps of an optimiser, of parameters of unlike sizes: each step's are independent,
 * those of the second need those of the first. */
static size_t run_updates(kiln_context *context, float results[PARAMETERS][MOST])
{
    kiln_buffer *buffers[PARAMETERS];
    kiln_batch *batch = kiln_batch_create(context);
    for (size_t i = 0; i < PARAMETERS; i++) {
        buffers[i] = make_buffer(context, sizes[i], weights[i]);
        kiln_tensor w = kiln_import(batch, buffers[i]);
        kiln_tensor g = kiln_upload(batch, KILN_F32, 1, &sizes[i], slopes[i]);
        w = kiln_sub(batch, w, kiln_scale(batch, i % 2 ? kiln_tanh(batch, g) : g, 0.125));
        expect_ok(kiln_export(batch, w, buffers[i]));
    }
    for (int i = 0; i < 3; i++)
        run_batch(batch);
    const size_t launches = cost_of(batch).launches;
    kiln_batch_release(batch);
    for (size_t i = 0; i < PARAMETERS; i++) {
        expect_ok(kiln_buffer_read(buffers[i], 0, results[i], sizes[i] * sizeof(float)));
        kiln_buffer_release(buffers[i]);
    }
    return launches;
}

Test(one_launch_horizontal, updates_are_one)
{
    static float apart[PARAMETERS][MOST], joined[PARAMETERS][MOST];
    begin();
    kiln_context *many = open_grouped("off"), *one = open_grouped("on");
    const size_t launches = run_updates(many, apart);
    cr_expect_eq(launches, PARAMETERS);
    cr_expect_eq(run_updates(one, joined),
                 one->runtime.host_mode == KILN__HOST_SEPARATE ? PARAMETERS : 1);
    cr_expect_eq(memcmp(apart, joined, sizeof apart), 0);
    close_context(many);
    close_context(one);
}

/* What a map computes is no obstacle, as it is to work-items of a core. */
Test(one_launch_horizontal, maps_of_many_operations_are_joined_by_default)
{
    enum { MANY = 262144, STEPS = 5 };
    static float x[2][MANY];
    check_cheaply();
    kiln_context *context = open_grouped("off");
    kiln__plan_cache_use_one_launch(context->plan_cache, KILN__ONE_LAUNCH_AUTO);
    kiln_batch *batch = kiln_batch_create(context);
    for (size_t i = 0; i < 2; i++) {
        kiln_tensor y = kiln_upload(batch, KILN_F32, 1, (size_t[]){MANY - i}, x[i]);
        for (int step = 0; step < STEPS; step++)
            y = kiln_add(batch, kiln_square(batch, y), y);
        expect_ok(kiln_read(batch, y, x[i], (MANY - i) * sizeof(float)));
    }
    if (context->runtime.host_mode != KILN__HOST_SEPARATE)
        cr_expect(explains(batch, "once the batch has run often"));
    kiln_batch_release(batch);
    close_context(context);
}

/* Elements of a stored map are picked out of it by another one; a third needs neither. */
static size_t run_chain(kiln_context *context, float results[3][MOST])
{
    static int32_t places[MOST];
    for (int i = 0; i < MOST; i++)
        places[i] = MOST - 1 - i;
    kiln_batch *batch = kiln_batch_create(context);
    const size_t n = MOST;
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, &n, weights[1]);
    kiln_tensor y = kiln_upload(batch, KILN_F32, 1, &n, weights[3]);
    kiln_tensor from = kiln_upload(batch, KILN_I32, 1, &n, places);
    kiln_tensor a = kiln_tanh(batch, x), b = kiln_exp(batch, kiln_gather(batch, a, from, 0));
    expect_ok(kiln_read(batch, a, results[0], n * sizeof(float)));
    expect_ok(kiln_read(batch, b, results[1], n * sizeof(float)));
    expect_ok(kiln_read(batch, kiln_exp(batch, y), results[2], n * sizeof(float)));
    run_batch(batch);
    const size_t launches = cost_of(batch).launches;
    kiln_batch_release(batch);
    return launches;
}

Test(one_launch_horizontal, maps_that_need_each_other_stay_apart)
{
    static float apart[3][MOST], joined[3][MOST];
    begin();
    kiln_context *many = open_grouped("off"), *one = open_grouped("on");
    const size_t launches = run_chain(many, apart), fewer = run_chain(one, joined);
    cr_expect_eq(memcmp(apart, joined, sizeof apart), 0);
    cr_expect_eq(launches, 3);
    cr_expect_eq(fewer, one->runtime.host_mode == KILN__HOST_SEPARATE ? 3 : 2);
    close_context(many);
    close_context(one);
}
