/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels whose arguments are packed, on the tests' device: the same bits as those that take an
 * argument for each, and no argument more than they need. */
#include <criterion/criterion.h>
#include <string.h>

#include "../support/check.h"
#include "../support/context.h"
#include "../support/graph.h"
#include "codegen/codegen.h"
#include "plan/packing.h"
#include "session/context.h"

enum { N = 24, ELEMENTS = 4 * N * N };

static float x[ELEMENTS], y[ELEMENTS];

static kiln_context *open_packed(bool packed)
{
    static struct kiln__traits traits[2];
    kiln_context *context = open_context();
    traits[packed] = *context->runtime.device.traits;
    traits[packed].dear_arguments = packed;
    context->runtime.device.traits = &traits[packed];
    return context;
}

/* ---- what is computed ---- */

typedef kiln_tensor packed_work(kiln_batch *batch, kiln_tensor a, kiln_tensor b);

/* Numbers of both signs and of no short form. */
static kiln_tensor scales(kiln_batch *batch, kiln_tensor a, kiln_tensor b)
{
    a = kiln_add(batch, kiln_scale(batch, a, -0.1), kiln_constant(batch, KILN_F32, 1e-30));
    return kiln_sub(batch, a, kiln_scale(batch, b, 3.25e20));
}

/* More than 16 numbers: strides of five dimensions and of two operands. */
static kiln_tensor turns(kiln_batch *batch, kiln_tensor a, kiln_tensor b)
{
    const size_t dims[] = {2, 3, 4, 6, 16};
    a = kiln_transpose(batch, kiln_reshape(batch, a, 5, dims), (size_t[]){4, 2, 0, 3, 1});
    b = kiln_transpose(batch, kiln_reshape(batch, b, 5, dims), (size_t[]){4, 2, 0, 3, 1});
    return kiln_sub(batch, a, kiln_mul(batch, b, a));
}

static kiln_tensor sums_rows(kiln_batch *batch, kiln_tensor a, kiln_tensor b)
{
    return kiln_softmax(batch, kiln_mul(batch, a, kiln_scale(batch, b, 0.01)), 1, (int[]){-1});
}

static kiln_tensor rounds(kiln_batch *batch, kiln_tensor a, kiln_tensor b)
{
    kiln_tensor whole = kiln_cast(batch, kiln_add(batch, a, b), KILN_I64);
    kiln_tensor far = kiln_constant(batch, KILN_I64, -0x123456789ABCD);
    return kiln_cast(batch, kiln_mul(batch, whole, far), KILN_F32);
}

static kiln_tensor multiplies(kiln_batch *batch, kiln_tensor a, kiln_tensor b)
{
    kiln_tensor product = kiln_matmul(batch, kiln_scale(batch, a, 0.5), kiln_tanh(batch, b));
    product = kiln_add(batch, kiln_scale(batch, product, 0.3), kiln_tanh(batch, a));
    return kiln_matmul(batch, product, product);
}

static kiln_tensor attends(kiln_batch *batch, kiln_tensor a, kiln_tensor b)
{
    kiln_tensor q = kiln_tanh(batch, a), k = kiln_tanh(batch, b);
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.causal = 1;
    options.scale = 0.7;
    return kiln_attention(batch, q, k, kiln_square(batch, k), (kiln_tensor){0}, &options);
}

static packed_work *const works[] = {scales, turns, sums_rows, rounds, multiplies, attends};
enum { WORKS = sizeof works / sizeof *works };

static kiln_tensor record(kiln_batch *batch, size_t i, kiln_tensor *inputs)
{
    const size_t dims[] = {4, N, N};
    inputs[0] = kiln_upload(batch, KILN_F32, 3, dims, x);
    inputs[1] = kiln_upload(batch, KILN_F32, 3, dims, y);
    return works[i](batch, inputs[0], inputs[1]);
}

static void compute(kiln_context *context, size_t i, float *result)
{
    kiln_tensor inputs[2];
    kiln_batch *batch = kiln_batch_create(context);
    expect_ok(kiln_read(batch, record(batch, i, inputs), result, ELEMENTS * sizeof *result));
    cr_expect_eq(explains(batch, "long16 of numbers"),
                 context->runtime.device.traits->dear_arguments);
    run_batch(batch);
    run_batch(batch);
    kiln_batch_release(batch);
}

Test(packed_arguments, have_the_bits_of_others)
{
    static float plain[ELEMENTS], packed[ELEMENTS];
    kiln_context *one = open_packed(true), *other = open_packed(false);
    fill(x, ELEMENTS, 1);
    fill(y, ELEMENTS, 2);
    for (size_t i = 0; i < WORKS; i++) {
        compute(other, i, plain);
        compute(one, i, packed);
        cr_expect_eq(memcmp(plain, packed, sizeof plain), 0, "work %zu", i);
    }
    close_context(one);
    close_context(other);
}

/* ---- what kernels take ---- */

static struct kiln__plan plan_work(kiln_context *context, size_t i)
{
    kiln_tensor inputs[2];
    kiln_batch *batch = kiln_batch_create(context);
    ask(batch, record(batch, i, inputs));
    struct kiln__plan plan = plan_of(batch, true);
    kiln_batch_release(batch);
    return plan;
}

/* Of those of a plan's launches that are packed; the others have few numbers. */
static unsigned count_packed(const struct kiln__plan *plan, bool *shares)
{
    unsigned count = 0;
    for (size_t i = 0; i < plan->launches.count; i++) {
        const struct kiln__launch *launch = &plan->launches.items[i];
        struct kiln__packing packing;
        struct kiln__text text = {0};
        const bool packs = kiln__packing_of(plan, launch, &packing);
        kiln__codegen_source(plan, launch, false, &text);
        cr_expect_eq(packs, text.data && strstr(text.data, "const long16 numbers0"));
        for (unsigned m = 0; packs && m < packing.memories; m++)
            *shares = *shares || packing.shared[m] > 1;
        count += packs;
        kiln__text_free(&text);
    }
    return count;
}

Test(packed_arguments, are_in_vectors_and_memory_is_named_once)
{
    kiln_context *one = open_packed(true), *other = open_packed(false);
    for (size_t i = 0; i < WORKS; i++) {
        bool shares = false, ignored = false;
        struct kiln__plan packed = plan_work(one, i), plain = plan_work(other, i);
        cr_expect(count_packed(&packed, &shares), "work %zu", i);
        cr_expect_not(count_packed(&plain, &ignored));
        if (works[i] == multiplies)
            cr_expect(shares, "a product's operand and its result are intermediates");
        kiln__plan_free(&packed);
        kiln__plan_free(&plain);
    }
    close_context(one);
    close_context(other);
}

/* A kernel that is told how memory is shared is no other launch's. */
Test(packed_arguments, are_part_of_a_programs_name)
{
    kiln_context *context = open_packed(true);
    struct kiln__plan plan = plan_work(context, WORKS - 2);
    struct kiln__text packed = {0}, phase = {0}, checked = {0};
    const struct kiln__launch *launch = &plan.launches.items[plan.launches.count - 1];
    kiln__codegen_name(&plan, launch, false, &packed);
    kiln__codegen_name(&plan, launch, true, &checked);
    kiln__codegen_phase_name(&plan, launch, &phase);
    cr_expect_lt(phase.length, packed.length);
    cr_expect_eq(memcmp(phase.data, packed.data, phase.length), 0);
    cr_expect(strstr(packed.data + phase.length, launch->kernel));
    cr_expect(strstr(checked.data + phase.length, "checked"));
    kiln__text_free(&packed);
    kiln__text_free(&phase);
    kiln__text_free(&checked);
    kiln__plan_free(&plan);
    close_context(context);
}
