/* SPDX-License-Identifier: Apache-2.0 */
/* Steps and memory of plans, for devices that are only imagined. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"
#include "../support/graph.h"
#include "codegen/codegen.h"
#include "memory/memory.h"

/* ---- memory ---- */

static unsigned seed = 12345;

static unsigned any(unsigned below)
{
    seed = seed * 1664525u + 1013904223u;
    return (unsigned)((uint64_t)seed * below >> 32);
}

/* Steps that use slots at random; what is planned from real batches is only part of that. */
static struct kiln__plan random_plan(unsigned slots, unsigned steps)
{
    struct kiln__plan plan = {0};
    for (unsigned i = 0; i < slots; i++) {
        struct kiln__slot *slot = kiln__vector_push(&plan.slots);
        cr_assert(slot);
        slot->node = KILN__SCRATCH;
        slot->bytes = any(8) ? 1 + any(100000) : 0;
        slot->storage = any(6) ? KILN__STORAGE_ARENA : KILN__STORAGE_RESULT;
        slot->binding = i;
    }
    for (unsigned i = 0; i < steps; i++) {
        struct kiln__plan_step *step = kiln__vector_push(&plan.steps);
        cr_assert(step);
        step->kind = any(2) ? KILN__STEP_UPLOAD : KILN__STEP_LAUNCH;
        step->slot = any(slots);
        if (step->kind != KILN__STEP_LAUNCH)
            continue;
        struct kiln__launch *launch = kiln__vector_push(&plan.launches);
        cr_assert(launch);
        step->launch = (uint32_t)(plan.launches.count - 1);
        for (unsigned k = any(5); k > 0; k--)
            kiln__launch_memory(launch, any(slots));
        cr_assert(!launch->failed);
    }
    return plan;
}

static bool uses_at(const struct kiln__plan *plan, uint32_t slot, size_t number)
{
    const struct kiln__plan_step *step = &plan->steps.items[number];
    if (step->kind != KILN__STEP_LAUNCH)
        return step->slot == slot;
    const struct kiln__launch *launch = &plan->launches.items[step->launch];
    for (size_t k = 0; k < launch->arguments.count; k++)
        if (launch->arguments.items[k].kind == KILN__ARGUMENT_MEMORY &&
            launch->arguments.items[k].slot == slot)
            return true;
    return false;
}

/* First and last use, found again by other means; false if there is none. */
static bool lifetime(const struct kiln__plan *plan, uint32_t slot, size_t *first, size_t *last)
{
    bool used = false;
    for (size_t i = 0; i < plan->steps.count; i++) {
        if (!uses_at(plan, slot, i))
            continue;
        *first = used ? *first : i;
        *last = i;
        used = true;
    }
    return used && plan->slots.items[slot].bytes &&
           plan->slots.items[slot].storage == KILN__STORAGE_ARENA;
}

static void check_pair(const struct kiln__plan *plan, uint32_t a, uint32_t b)
{
    size_t a_first, a_last, b_first, b_last;
    const struct kiln__slot *x = &plan->slots.items[a], *y = &plan->slots.items[b];
    if (!lifetime(plan, a, &a_first, &a_last) || !lifetime(plan, b, &b_first, &b_last) ||
        a_first > b_last || b_first > a_last)
        return;
    cr_assert(x->offset + x->bytes <= y->offset || y->offset + y->bytes <= x->offset,
              "slots %u and %u overlap in steps %zu to %zu and %zu to %zu", a, b, a_first, a_last,
              b_first, b_last);
}

/* The most that is alive in one step: nothing can do with less. */
static size_t least_bytes(const struct kiln__plan *plan)
{
    size_t most = 0;
    for (size_t step = 0; step < plan->steps.count; step++) {
        size_t alive = 0, first, last;
        for (uint32_t i = 0; i < plan->slots.count; i++)
            if (lifetime(plan, i, &first, &last) && first <= step && step <= last)
                alive += plan->slots.items[i].bytes;
        most = alive > most ? alive : most;
    }
    return most;
}

static void check_memory(const struct kiln__plan *plan)
{
    size_t end = 0, all = 0, first, last;
    for (uint32_t i = 0; i < plan->slots.count; i++) {
        const struct kiln__slot *slot = &plan->slots.items[i];
        if (!lifetime(plan, i, &first, &last))
            continue;
        cr_assert_eq(slot->offset % 256, 0u);
        end = slot->offset + slot->bytes > end ? slot->offset + slot->bytes : end;
        all += slot->bytes;
        for (uint32_t k = 0; k < i; k++)
            check_pair(plan, i, k);
    }
    cr_expect_geq(plan->arena_bytes, end);
    cr_expect_geq(plan->arena_bytes, least_bytes(plan));
    cr_expect_leq(plan->arena_bytes, plan->unshared_bytes + 256);
    cr_expect_geq(plan->unshared_bytes, all);
    cr_expect_leq(plan->unshared_bytes, all + 256 * plan->slots.count);
}

Test(plan_memory, never_overlaps_while_it_is_alive)
{
    size_t arena = 0, unshared = 0;
    for (int round = 0; round < 300; round++) {
        struct kiln__plan plan = random_plan(1 + any(25), any(60));
        cr_assert(kiln__plan_assign_memory(&plan));
        check_memory(&plan);
        arena += plan.arena_bytes;
        unshared += plan.unshared_bytes;
        kiln__plan_free(&plan);
    }
    cr_expect_lt(arena, unshared, "nothing shares memory");
}

/* Packed weights take as much memory as weights: beside many rows they are packed again. */
Test(plan_products, keep_packed_weights_for_few_rows_only)
{
    for (size_t rows = 500; rows < 5000; rows += 4000) {
        kiln_batch *batch = imagined_batch();
        ask(batch,
            kiln_matmul(batch, imagine_matrix(batch, rows, 384), imagine_weights(batch, 384, 384)));
        struct kiln__plan plan = plan_of(batch, true);
        cr_expect_eq(plan.launches.count, 2u);
        cr_expect_eq(plan.prepacked_bytes > 0, rows == 500);
        kiln__plan_free(&plan);
    }
}

/* Windows of one dimension are rows that overlap: one product, not one for each. */
Test(plan_products, are_one_for_windows_of_one_dimension)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine(batch, 4, (size_t[]){1, 64, 1, 256});
    ask(batch, kiln_conv(batch, x, imagine(batch, 4, (size_t[]){5, 1, 256, 128}), NULL));
    struct kiln__plan plan = plan_of(batch, true);
    const struct kiln__launch *last = &plan.launches.items[plan.launches.count - 1];
    cr_expect_str_eq(last->kernel, "matmul_small");
    cr_expect_eq(last->global[2], 1u);
    kiln__plan_free(&plan);
}

/* On a CPU. Windows would take nine times the image. */
Test(plan_memory, never_has_the_windows_of_a_convolution)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine(batch, 4, (size_t[]){2, 20, 20, 8});
    kiln_tensor w = imagine(batch, 4, (size_t[]){3, 3, 8, 40});
    ask(batch, kiln_relu(batch, kiln_conv2d(batch, x, w, NULL)));
    struct kiln__plan plan = plan_of(batch, true);
    cr_expect_eq(plan.launches.count, 2u);
    cr_expect_str_eq(plan.launches.items[1].kernel, "matmul_im2col");
    cr_expect_lt(plan.arena_bytes, 2u * 20 * 20 * 8 * sizeof(float));
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
}

/* On a GPU, nor what flows back to them: a training step reads the image as it lies, three times.
 */
Test(plan_memory, never_has_the_windows_of_a_step_either)
{
    kiln_batch *batch = kiln_batch_create(imagined_gpu());
    cr_assert(batch);
    kiln_window_options options = KILN_WINDOW_OPTIONS_INIT;
    kiln_tensor in[] = {imagine(batch, 4, (size_t[]){2, 20, 20, 8}),
                        imagine(batch, 4, (size_t[]){3, 3, 8, 8})},
                out[2];
    options.before[0] = options.before[1] = options.after[0] = options.after[1] = 1;
    kiln_tensor y = kiln_relu(batch, kiln_conv2d(batch, in[0], in[1], &options));
    cr_assert_eq(kiln_grad(batch, kiln_sum(batch, y, 0, NULL, 0), in, 2, out), KILN_OK);
    ask(batch, out[0]);
    ask(batch, out[1]);
    struct kiln__plan plan = plan_of(batch, true);
    size_t fetching = 0;
    for (size_t i = 0; i < plan.launches.count; i++)
        fetching +=
            plan.launches.items[i].covers && !strcmp(plan.launches.items[i].kernel, "matmul_gpu");
    cr_expect_eq(fetching, 3u, "%zu", fetching);
    /* Two for each padding, one that turns the weights, three products; nothing is copied. */
    cr_expect_eq(plan.launches.count, 8u, "%zu launches", plan.launches.count);
    cr_expect_lt(plan.unshared_bytes, 9u * 2 * 20 * 20 * 8 * sizeof(float));
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
}

/* All slots are working memory, which counts as written: whoever shares a byte must wait. */
Test(plan_memory, is_waited_for)
{
    char wrong[KILN__WRONG] = "";
    for (int round = 0; round < 300; round++) {
        struct kiln__plan plan = random_plan(1 + any(25), any(60));
        cr_assert(kiln__plan_assign_memory(&plan));
        struct kiln__plan_builder builder = {.plan = &plan};
        cr_assert(kiln__plan_find_dependencies(&builder));
        cr_assert_eq(kiln__plan_verify_dependencies(&plan, wrong), KILN_OK, "%s", wrong);
        kiln__plan_free(&plan);
    }
}

static bool is_placed_before(const struct kiln__plan *plan, uint32_t a, uint32_t b)
{
    size_t x = plan->slots.items[a].bytes, y = plan->slots.items[b].bytes;
    return x > y || (x == y && a < b);
}

static bool has_place(const struct kiln__slot *slot)
{
    return slot->storage == KILN__STORAGE_ARENA && slot->bytes && slot->first <= slot->last;
}

static size_t end_of(const struct kiln__slot *slot)
{
    return slot->offset + (slot->bytes + 255) / 256 * 256;
}

/* Whether a slot that has its place before `slot`, and is alive with it, is in the way of `offset`.
 */
static bool is_in_the_way(const struct kiln__plan *plan, uint32_t number, size_t offset)
{
    struct kiln__slot slot = plan->slots.items[number];
    slot.offset = offset;
    for (uint32_t i = 0; i < plan->slots.count; i++) {
        const struct kiln__slot *other = &plan->slots.items[i];
        if (is_placed_before(plan, i, number) && has_place(other) && other->first <= slot.last &&
            slot.first <= other->last && offset < end_of(other) && other->offset < end_of(&slot))
            return true;
    }
    return false;
}

/* A lower one would be 0, or the end of another slot. */
Test(plan_memory, is_given_by_size_each_time_at_the_lowest_place)
{
    for (int round = 0; round < 200; round++) {
        struct kiln__plan plan = random_plan(1 + any(60), any(120));
        cr_assert(kiln__plan_assign_memory(&plan));
        for (uint32_t i = 0; i < plan.slots.count; i++) {
            const struct kiln__slot *slot = &plan.slots.items[i];
            cr_assert(!has_place(slot) || !slot->offset || is_in_the_way(&plan, i, 0));
            for (uint32_t k = 0; k < plan.slots.count && has_place(slot); k++) {
                size_t at = has_place(&plan.slots.items[k]) ? end_of(&plan.slots.items[k]) : 0;
                cr_assert(at >= slot->offset || is_in_the_way(&plan, i, at),
                          "slot %u could lie at %zu", i, at);
            }
        }
        kiln__plan_free(&plan);
    }
}

Test(plan_memory, is_given_back_along_a_chain)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 256, 256);
    for (int i = 0; i < 20; i++)
        x = kiln_matmul(batch, x, x);
    ask(batch, x);
    struct kiln__plan plan = plan_of(batch, false);
    check_memory(&plan);
    cr_expect_geq(plan.unshared_bytes, 21u * 256 * 256 * 4);
    cr_expect_leq(plan.arena_bytes, 4u * 256 * 256 * 4 + 65536);
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
}

Test(plan_memory, is_a_little_even_for_a_kernel_without_elements)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 3, 0);
    ask(batch, kiln_sum(batch, x, 1, (int[]){1}, 0));
    struct kiln__plan plan = plan_of(batch, true);
    cr_expect_gt(plan.arena_bytes, 0u);
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
}

/* ---- steps ---- */

/* u: upload, k: kernel, d: download, c: copy. */
static void expect_steps(kiln_batch *batch, bool shared, const char *wanted)
{
    char found[64] = "";
    struct kiln__plan plan = plan_of(batch, shared);
    cr_assert_lt(plan.steps.count, sizeof found);
    for (size_t i = 0; i < plan.steps.count; i++)
        found[i] = "ukdc"[plan.steps.items[i].kind];
    cr_expect_str_eq(found, wanted, "%s instead of %s", found, wanted);
    check_memory(&plan);
    kiln__plan_free(&plan);
}

Test(plan_steps, bring_inputs_late_and_results_early)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8), y = imagine_vector(batch, 9);
    ask(batch, kiln_neg(batch, x));
    ask(batch, kiln_neg(batch, y));
    expect_steps(batch, false, "ukdukd");
    expect_steps(batch, true, "kk");
    kiln_batch_release(batch);
}

Test(plan_steps, work_in_the_callers_memory_once_per_value)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8), y = kiln_exp(batch, x);
    ask(batch, y);
    ask(batch, y);
    ask(batch, kiln_reshape(batch, y, 2, (size_t[]){2, 4}));
    expect_steps(batch, false, "ukddd");
    expect_steps(batch, true, "kdd");
    kiln_batch_release(batch);
}

Test(plan_steps, copy_inputs_that_are_asked_for)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8);
    ask(batch, x);
    expect_steps(batch, false, "ud");
    expect_steps(batch, true, "d");
    ask(batch, kiln_neg(batch, x));
    expect_steps(batch, false, "ukdd");
    kiln_batch_release(batch);
}

Test(plan_steps, do_nothing_for_no_elements)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 0);
    ask(batch, x);
    expect_steps(batch, false, "");
    expect_steps(batch, true, "");
    kiln_batch_release(batch);
}

/* ---- in one piece ---- */

static struct kiln__text text_of(const struct kiln__plan *plan)
{
    struct kiln__text text = {0};
    kiln__graph_dump(&plan->fusion.graph, &text);
    for (size_t i = 0; i < plan->fusion.groups.count; i++)
        kiln__group_dump(&plan->fusion.groups.items[i], &text);
    for (size_t i = 0; i < plan->launches.count; i++) {
        const struct kiln__launch *launch = &plan->launches.items[i];
        kiln__codegen_source(plan, launch, false, &text);
        for (size_t k = 0; k < launch->arguments.count; k++)
            kiln__text_add(&text, "%d %u %lld ", (int)launch->arguments.items[k].kind,
                           launch->arguments.items[k].slot,
                           (long long)launch->arguments.items[k].integer);
    }
    for (size_t i = 0; i < plan->slots.count; i++)
        kiln__text_add(&text, "%zu at %zu ", plan->slots.items[i].bytes,
                       plan->slots.items[i].offset);
    cr_assert(!text.failed);
    return text;
}

Test(plan_pieces, are_what_they_were_before)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    float x[64] = {0};
    kiln_tensor a = kiln_upload(batch, KILN_F32, 2, (size_t[]){8, 8}, x), b = kiln_exp(batch, a);
    ask(batch, kiln_softmax(batch, kiln_matmul(batch, kiln_add(batch, a, b), b), 1, (int[]){1}));
    struct kiln__plan plan = plan_of(batch, false);
    struct kiln__text before = text_of(&plan);
    char wrong[KILN__WRONG];
    const size_t bytes = kiln__plan_pack(&plan);
    cr_assert(plan.packed != NULL);
    const char *from = plan.packed, *to = from + bytes;
    const char *steps = (const char *)plan.steps.items;
    cr_expect(steps >= from && steps + sizeof *plan.steps.items * plan.steps.count <= to);
    cr_expect_eq(kiln__plan_pack(&plan), bytes, "twice");
    cr_expect_eq(plan.packed, from);
    struct kiln__text after = text_of(&plan);
    cr_expect_str_eq(after.data, before.data);
    cr_expect_eq(kiln__plan_verify(&plan, wrong), KILN_OK, "%s", wrong);
    kiln__text_free(&before);
    kiln__text_free(&after);
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
    close_context(context);
}

/* What it is a copy of may go, in one piece or not; it may become one itself. */
Test(plan_pieces, may_be_copied)
{
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    float x[64] = {0};
    kiln_tensor a = kiln_upload(batch, KILN_F32, 2, (size_t[]){8, 8}, x);
    ask(batch, kiln_softmax(batch, kiln_matmul(batch, a, kiln_exp(batch, a)), 1, (int[]){1}));
    for (int packed = 0; packed < 2; packed++) {
        struct kiln__plan plan = plan_of(batch, false), copy;
        if (packed)
            kiln__plan_pack(&plan);
        struct kiln__text before = text_of(&plan);
        cr_assert(kiln__plan_copy(&plan, &copy));
        kiln__plan_free(&plan);
        cr_expect_eq(copy.packed, NULL);
        cr_assert_neq(kiln__plan_scratch(&copy, 100), KILN__NO_SLOT);
        copy.slots.count--;
        cr_expect_gt(kiln__plan_pack(&copy), 0u);
        struct kiln__text after = text_of(&copy);
        cr_expect_str_eq(after.data, before.data);
        kiln__text_free(&before);
        kiln__text_free(&after);
        kiln__plan_free(&copy);
    }
    kiln_batch_release(batch);
    close_context(context);
}

/* ---- what steps depend on ---- */

/* "k0,1": a kernel that waits for steps 0 and 1. */
static void expect_dependencies(kiln_batch *batch, bool shared, const char *wanted)
{
    struct kiln__plan plan = plan_of(batch, shared);
    struct kiln__text found = {0};
    for (size_t i = 0; i < plan.steps.count; i++) {
        const struct kiln__plan_step *step = &plan.steps.items[i];
        kiln__text_add(&found, "%s%c", i ? " " : "", "ukdc"[step->kind]);
        for (uint32_t k = 0; k < step->dependencies; k++)
            kiln__text_add(&found, "%s%u", k ? "," : "",
                           plan.dependencies.items[step->first_dependency + k]);
    }
    cr_expect_str_eq(found.data, wanted, "%s instead of %s", found.data, wanted);
    kiln__text_free(&found);
    kiln__plan_free(&plan);
}

Test(plan_dependencies, are_values_and_memory_that_others_had)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 8), y = imagine_vector(batch, 9);
    ask(batch, kiln_neg(batch, x));
    ask(batch, kiln_neg(batch, y));
    expect_dependencies(batch, false,
                        "u k0 d1 u1 k2,3 d4"); /* the second upload lies where x was */
    expect_dependencies(batch, true, "k k");
    kiln_batch_release(batch);
}

Test(plan_dependencies, leave_apart_what_shares_nothing)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 16, 16), y = imagine_matrix(batch, 16, 16);
    kiln_tensor left = kiln_matmul(batch, x, y), right = kiln_matmul(batch, y, x);
    ask(batch, kiln_matmul(batch, left, right));
    expect_dependencies(batch, true, "k k k0,1");
    expect_dependencies(batch, false, "u u k0,1 k0,1 k2,3 d4");
    kiln_batch_release(batch);
}

/* Two sums of one input, and a result in its place: it waits for whoever reads the old content. */
Test(plan_dependencies, let_readers_go_before_what_replaces_an_input)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 16, 16);
    imagine_update(batch, x);
    kiln_tensor old = kiln__batch_tensor(batch, 1);
    ask(batch, kiln_sum(batch, old, 1, (int[]){0}, 0));
    ask(batch, kiln_matmul(batch, old, old));
    expect_dependencies(batch, true, "k k k0,1");
    kiln_batch_release(batch);
}
