/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that need more memory than there may be, and fit where values are computed again instead
 * of being held: the same bits as without a limit, whatever the limit is. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "../support/context.h"
#include "../support/graph.h"
#include "codegen/codegen.h"
#include "session/compile.h"
#include "session/context.h"

enum { LAYERS = 24, ROWS = 96, WIDE = 64, MOST_RESULTS = LAYERS + 1 };

static float data[ROWS * WIDE], weights[LAYERS][WIDE * WIDE], target[ROWS * WIDE];

static void make_data(void)
{
    fill(data, ROWS * WIDE, 1);
    fill(target, ROWS * WIDE, 2);
    for (unsigned i = 0; i < LAYERS; i++) {
        fill(weights[i], WIDE * WIDE, 3 + i);
        for (size_t k = 0; k < WIDE * WIDE; k++)
            weights[i][k] /= 17;
    }
}

struct model {
    kiln_context *context;
    kiln_batch *batch;
    kiln_buffer *buffers[LAYERS];
    float loss;
};

typedef kiln_tensor layer(kiln_batch *batch, kiln_tensor x, kiln_tensor w, unsigned number);

/* One step of training: each layer's weights are in a buffer, and are updated there. */
static void record_step(struct model *model, layer *record)
{
    kiln_batch *batch = model->batch;
    const size_t square[] = {WIDE, WIDE}, rows[] = {ROWS, WIDE};
    kiln_tensor w[LAYERS], g[LAYERS];
    kiln_tensor y = kiln_upload(batch, KILN_F32, 2, rows, data);
    for (unsigned i = 0; i < LAYERS; i++) {
        expect_ok(kiln_buffer_create(model->context, KILN_F32, 2, square, &model->buffers[i]));
        expect_ok(kiln_buffer_write(model->buffers[i], 0, weights[i], sizeof weights[i]));
        w[i] = kiln_import(batch, model->buffers[i]);
        y = record(batch, y, w[i], i);
    }
    kiln_tensor off = kiln_sub(batch, y, kiln_upload(batch, KILN_F32, 2, rows, target));
    kiln_tensor loss = kiln_mean(batch, kiln_mul(batch, off, off), 0, NULL, 0);
    expect_ok(kiln_grad(batch, loss, w, LAYERS, g));
    for (unsigned i = 0; i < LAYERS; i++) {
        kiln_tensor by = kiln_mul(batch, g[i], kiln_constant(batch, KILN_F32, 0.5));
        expect_ok(kiln_export(batch, kiln_sub(batch, w[i], by), model->buffers[i]));
    }
    expect_ok(kiln_read(batch, loss, &model->loss, sizeof model->loss));
}

static void end_step(struct model *model)
{
    kiln_batch_release(model->batch);
    for (unsigned i = 0; i < LAYERS; i++)
        kiln_buffer_release(model->buffers[i]);
    close_context(model->context);
}

struct results {
    float loss, weights[LAYERS][WIDE * WIDE];
};
static struct results whole, limited;

/* What the plan needs at its peak. */
static uint64_t run(layer *record, uint64_t limit, struct results *results)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.memory_limit = limit;
    make_data();
    struct model model = {.context = open_context_with(&options)};
    model.batch = kiln_batch_create(model.context);
    record_step(&model, record);
    uint64_t peak = cost_of(model.batch).peak_bytes;
    run_batch(model.batch);
    cr_expect_eq(stats_of(model.context).batches, 1u, "%u runs",
                 (unsigned)stats_of(model.context).batches);
    if (limit)
        cr_expect_leq(stats_of(model.context).pool_bytes, limit);
    results->loss = model.loss;
    kiln_batch_release(model.batch);
    for (unsigned i = 0; i < LAYERS; i++) {
        expect_ok(
            kiln_buffer_read(model.buffers[i], 0, results->weights[i], sizeof results->weights[i]));
        kiln_buffer_release(model.buffers[i]);
    }
    close_context(model.context);
    return peak;
}

static void compare(const char *name, layer *record, double least)
{
    uint64_t peak = run(record, 0, &whole);
    for (double share = 0.9; share > least; share -= 0.2) {
        uint64_t limit = (uint64_t)((double)peak * share), now = run(record, limit, &limited);
        cr_expect_leq(now, limit, "%s: %g of the peak", name, share);
        cr_expect(!memcmp(&whole, &limited, sizeof whole), "%s: other bits at %g of the peak", name,
                  share);
    }
}

static kiln_tensor plain(kiln_batch *batch, kiln_tensor x, kiln_tensor w, unsigned number)
{
    (void)number;
    return kiln_name(batch, kiln_relu(batch, kiln_matmul(batch, x, w)), "activation");
}

/* Optimised is this one alone: elsewhere, too, a limit leaves the kernels of sums as they are. */
Test(again, trains_a_deep_network)
{
    compare("plain", plain, 0.25);
}

static struct kiln__plan plan_below(const kiln_batch *batch, const kiln_context *context,
                                    uint64_t limit)
{
    const struct kiln__plan_options options = {.device = &context->runtime.device, .limit = limit};
    struct kiln__plan plan;
    expect_ok(kiln__compile_plan(&batch->graph, &options, NULL, &plan, NULL));
    return plan;
}

/* How many launches compute something of that name; no kernel is compiled for that. */
static unsigned count_named(uint64_t limit, uint64_t *peak)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.memory_limit = limit;
    struct model model = {.context = open_context_with(&options)};
    model.batch = kiln_batch_create(model.context);
    record_step(&model, plain);
    char *text;
    unsigned count = 0;
    expect_ok(kiln_batch_explain(model.batch, &text)); /* says which buffers are updated, too */
    struct kiln__plan plan = plan_below(model.batch, model.context, limit);
    *peak = kiln__plan_peak(&plan);
    kiln__plan_free(&plan);
    for (const char *at = text; (at = strstr(at, ", for activation")); at++)
        count++;
    kiln_free(text);
    end_step(&model);
    return count;
}

Test(again, copies_have_the_names_of_what_they_do, .init = check_cheaply)
{
    uint64_t peak, now;
    unsigned once = count_named(0, &peak), again = count_named(peak / 2, &now);
    cr_expect_leq(now, peak / 2);
    cr_expect_geq(again, once + LAYERS / 2, "%u, %u without a limit", again, once);
}

static kiln_tensor smooth(kiln_batch *batch, kiln_tensor x, kiln_tensor w, unsigned number)
{
    (void)number;
    return kiln_tanh(batch, kiln_matmul(batch, x, w));
}

Test(again, slow_trains_with_smooth_functions, .init = check_cheaply)
{
    compare("smooth", smooth, 0.25);
}

/* Each is added to what it goes by, and loses some elements by random numbers. */
static kiln_tensor residual(kiln_batch *batch, kiln_tensor x, kiln_tensor w, unsigned number)
{
    kiln_tensor key = kiln_random_key(batch, 7 + number);
    kiln_tensor y = kiln_gelu(batch, kiln_matmul(batch, x, w));
    return kiln_add(batch, x, kiln_dropout(batch, y, 0.25, key));
}

Test(again, slow_trains_with_random_numbers, .init = check_cheaply)
{
    compare("residual", residual, 0.25);
}

static kiln_tensor normal(kiln_batch *batch, kiln_tensor x, kiln_tensor w, unsigned number)
{
    kiln_tensor mean = kiln_mean(batch, x, 1, (int[]){1}, 1);
    kiln_tensor apart = kiln_sub(batch, x, mean);
    kiln_tensor spread = kiln_mean(batch, kiln_mul(batch, apart, apart), 1, (int[]){1}, 1);
    spread = kiln_sqrt(batch, kiln_add(batch, spread, kiln_constant(batch, KILN_F32, 1e-3)));
    kiln_tensor y = kiln_matmul(batch, kiln_div(batch, apart, spread), w);
    return kiln_add(batch, x, number % 2 ? kiln_tanh(batch, y) : kiln_relu(batch, y));
}

Test(again, slow_trains_with_normalised_rows, .init = check_cheaply)
{
    compare("normal", normal, 0.45);
}

static kiln_tensor narrow(kiln_batch *batch, kiln_tensor x, kiln_tensor w, unsigned number)
{
    (void)number;
    kiln_tensor half = kiln_cast(batch, kiln_relu(batch, kiln_matmul(batch, x, w)), KILN_F16);
    return kiln_cast(batch, half, KILN_F32);
}

Test(again, slow_trains_with_narrow_values, .init = check_cheaply)
{
    compare("narrow", narrow, 0.25);
}

/* ---- for devices that are not there ---- */

/* What follows a product in its kernel may be less: of these which file they are from. */
static struct kiln__text name_of(const struct kiln__plan *plan, size_t launch)
{
    struct kiln__text name = {0};
    kiln__codegen_name(plan, &plan->launches.items[launch], false, &name);
    cr_assert(!name.failed);
    if (!strncmp(name.data, "matmul", strlen("matmul")))
        name.length = strcspn(name.data, " ");
    return name;
}

/* All but maps, whose elements have the same bits in any kernel. */
static bool adds_up(const struct kiln__plan *plan, size_t launch)
{
    return plan->fusion.groups.items[plan->launches.items[launch].group].kind != KILN__GROUP_MAP;
}

/* How many launches of `plan` that add up find no kernel of their own among those of `other`. */
static unsigned count_lacking(const struct kiln__plan *plan, const struct kiln__plan *other)
{
    bool *taken = calloc(other->launches.count + 1, sizeof *taken);
    unsigned lacking = 0;
    for (size_t i = 0; i < plan->launches.count; i++) {
        struct kiln__text wanted = name_of(plan, i);
        bool found = false;
        for (size_t k = 0; k < other->launches.count && !found; k++) {
            struct kiln__text name = name_of(other, k);
            found = !taken[k] && name.length == wanted.length &&
                    !memcmp(name.data, wanted.data, name.length);
            taken[k] = taken[k] || found;
            kiln__text_free(&name);
        }
        lacking += !found && adds_up(plan, i);
        kiln__text_free(&wanted);
    }
    free(taken);
    return lacking;
}

/* What adds up without a limit does so below one, too, by the same kernels, in the same order. */
static void expect_same_kernels(const char *name, layer *record, const kiln_context *context)
{
    const kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    struct model model = {.context = open_context_with(&options)};
    model.batch = kiln_batch_create(model.context);
    record_step(&model, record);
    explains(model.batch, ""); /* says which buffers are updated; a cost compiles kernels, too */
    struct kiln__plan whole_plan = plan_below(model.batch, context, 0);
    for (unsigned tenths = 9; tenths > 4; tenths--) {
        uint64_t limit = kiln__plan_peak(&whole_plan) * tenths / 10;
        struct kiln__plan plan = plan_below(model.batch, context, limit);
        cr_expect_leq(kiln__plan_peak(&plan), limit, "%s, %u tenths", name, tenths);
        unsigned lacking = count_lacking(&whole_plan, &plan);
        cr_expect_eq(lacking, 0u, "%s: %u kernels are others at %u tenths of the peak", name,
                     lacking, tenths);
        kiln__plan_free(&plan);
    }
    kiln__plan_free(&whole_plan);
    end_step(&model);
}

static void expect_same_everywhere(const kiln_context *context)
{
    expect_same_kernels("plain", plain, context);
    expect_same_kernels("smooth", smooth, context);
    expect_same_kernels("residual", residual, context);
    expect_same_kernels("normal", normal, context);
    expect_same_kernels("narrow", narrow, context);
}

Test(again, leaves_kernels_of_cpus_as_they_are, .init = check_cheaply)
{
    expect_same_everywhere(imagined_cpu());
}

Test(again, leaves_kernels_of_gpus_as_they_are, .init = check_cheaply)
{
    expect_same_everywhere(imagined_gpu());
}
