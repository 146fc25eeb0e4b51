/* SPDX-License-Identifier: Apache-2.0 */
/* The verifiers of plans and of launches: a good plan is broken by hand, in one way after another.
 * Nothing here needs a device. */
#include <criterion/criterion.h>
#include <string.h>

#include "../support/context.h"
#include "../support/graph.h"
#include "codegen/codegen.h"

/* Slots: 0, 1 uploads, 2 product, 3 sums of it, 4 a product of both, 5 attention.
 * Steps: 0, 1 upload, 2 product, 3 sums, 4 product, 5 download of 4, 6 attention, 7 download of 5.
 * Launches in this order; the third has an epilogue. */
static struct kiln__plan sound_plan(void)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 16, 16), y = imagine_matrix(batch, 16, 16);
    kiln_tensor product = kiln_matmul(batch, x, y);
    kiln_tensor sums = kiln_cumsum(batch, product, 0, 0);
    ask(batch, kiln_scale(batch, kiln_matmul(batch, sums, product), 2));
    ask(batch, kiln_attention(batch, x, y, sums, (kiln_tensor){0}, NULL));
    struct kiln__plan plan = plan_of(batch, false);
    kiln_batch_release(batch);
    return plan;
}

/* Slots: 0 upload, 1 weights, 2 product, 3 the weights packed. Launch 0 packs. */
static struct kiln__plan keeping_plan(void)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 300, 300), w = imagine_weights(batch, 300, 300);
    ask(batch, kiln_matmul(batch, x, w));
    struct kiln__plan plan = plan_of(batch, false);
    kiln_batch_release(batch);
    return plan;
}

static kiln_status verify(const struct kiln__plan *plan, char *wrong)
{
    kiln_status status = kiln__plan_verify(plan, wrong);
    if (!status)
        status = kiln__plan_verify_dependencies(plan, wrong);
    return status ? status : kiln__launches_verify(plan, wrong);
}

#define EXPECT_BROKEN(sentence, change) EXPECT_BROKEN_PLAN(sound_plan(), sentence, change)
#define EXPECT_BROKEN_PLAN(sound, sentence, change)                                                \
    do {                                                                                           \
        char wrong[KILN__WRONG] = "";                                                              \
        struct kiln__plan plan = sound;                                                            \
        struct kiln__slot *slot = plan.slots.items;                                                \
        struct kiln__launch *launch = plan.launches.items;                                         \
        cr_assert_eq(verify(&plan, wrong), KILN_OK, "%s", wrong);                                  \
        change;                                                                                    \
        (void)slot, (void)launch;                                                                  \
        cr_expect_eq(verify(&plan, wrong), KILN_WRONG_STATE, "not seen: %s", sentence);            \
        cr_expect_str_eq(wrong, sentence, "\"%s\" instead of \"%s\"", wrong, sentence);            \
        kiln__plan_free(&plan);                                                                    \
    } while (0)

#define ARGUMENT(i, k) launch[i].arguments.items[k]

static void swap_arguments(struct kiln__launch *launch, size_t a, size_t b)
{
    struct kiln__argument kept = launch->arguments.items[a];
    launch->arguments.items[a] = launch->arguments.items[b];
    launch->arguments.items[b] = kept;
}

Test(verify_plan, names_the_slot_that_is_broken)
{
    EXPECT_BROKEN("slot 5: in the memory of slot 1, which step 6 still needs",
                  slot[5].offset = slot[1].offset);
    EXPECT_BROKEN("slot 3: in the memory of slot 2, which step 4 still needs",
                  slot[3].offset = slot[2].offset);
    EXPECT_BROKEN("slot 2: said to matter in other steps than those that use it", slot[2].last = 3);
    EXPECT_BROKEN("slot 4: beyond the end of the arena", slot[4].offset += 64);
    EXPECT_BROKEN("slot 3: not aligned", slot[3].offset += 4);
    EXPECT_BROKEN("slot 3: counters, and no working memory of their size",
                  slot[3].storage = KILN__STORAGE_COUNTERS);
    EXPECT_BROKEN("slot 3: not as large as its node", slot[3].bytes -= 4);
    EXPECT_BROKEN("slot 3: of a node that lives elsewhere", slot[3].node = 2);
    EXPECT_BROKEN("slot 0: in an input that is another one", slot[0].storage = KILN__STORAGE_INPUT;
                  slot[0].binding = 1);
    EXPECT_BROKEN("slot 4: in the memory of a result that is another one",
                  slot[4].storage = KILN__STORAGE_RESULT;
                  slot[4].binding = 1);
    EXPECT_BROKEN("node %4: in the wrong slot, or in none", plan.slot_of[4] = 0);
}

Test(verify_plan, names_the_launch_that_is_broken)
{
    EXPECT_BROKEN("launch 1 (kiln_rows): its work-items are not a whole number of work-groups",
                  launch[1].local[0] = 2);
    EXPECT_BROKEN("launch 1 (kiln_rows): its work-items are not a whole number of work-groups",
                  launch[1].global[0] = 0);
    EXPECT_BROKEN("launch 1 (kiln_rows): work-groups larger than the device has",
                  launch[1].global[0] = launch[1].local[0] = 2048);
    EXPECT_BROKEN("launch 1 (kiln_rows), argument 4: an offset that is outside of its slot",
                  ARGUMENT(1, 4).integer += 257);
    EXPECT_BROKEN("launch 1 (kiln_rows), argument 3: of no slot", ARGUMENT(1, 3).slot = 6);
    EXPECT_BROKEN("launch 1: of no group or kernel", launch[1].group = 4);
    EXPECT_BROKEN("group 1: none of its launches stores %3", ARGUMENT(1, 7).slot = 2;
                  slot[3].first = 4);
}

Test(verify_plan, walks_the_steps)
{
    EXPECT_BROKEN("step 2: group 3 reads %3, which is not there", launch[0].group = 3;
                  launch[3].group = 0);
    EXPECT_BROKEN("step 2: group 0 reads %1, which is not there",
                  plan.steps.items[1] = plan.steps.items[0];
                  slot[1].first = 2);
    EXPECT_BROKEN("step 1: uploads input #0 to %1", plan.steps.items[1].binding = 0);
    EXPECT_BROKEN("step 5: result #1 is %7, which is not there", plan.steps.items[5].binding = 1);
    EXPECT_BROKEN("result #1 is never made", plan.steps.count--; slot[5].last = 6);
    EXPECT_BROKEN("step 3: not the next launch", plan.steps.items[3].launch = 2);
}

Test(verify_plan, knows_what_is_kept)
{
#define EXPECT_WRONGLY_KEPT(sentence, change) EXPECT_BROKEN_PLAN(keeping_plan(), sentence, change)
    EXPECT_WRONGLY_KEPT("step 1: names what is kept before it is made", launch[0].prepacks = 0);
    EXPECT_WRONGLY_KEPT("step 2: made of what does not stay", launch[1].prepacks = 4);
    EXPECT_WRONGLY_KEPT("step 1: made of what does not stay", ARGUMENT(0, 0).slot = 0);
    EXPECT_WRONGLY_KEPT("step 1: made of more than its sources", slot[3].sources[0] = 0);
    EXPECT_WRONGLY_KEPT("step 1: makes what is not its own", launch[0].prepacks = 3);
    EXPECT_WRONGLY_KEPT("step 2: needs what nobody is known to need", slot[3].wanted = false);
    EXPECT_WRONGLY_KEPT("slot 0: frozen, and an input that changes",
                        slot[0].storage = KILN__STORAGE_INPUT;
                        slot[0].frozen = true);
    EXPECT_WRONGLY_KEPT("slot 2: kept, and made of nothing",
                        slot[2].storage = KILN__STORAGE_PREPACKED);
}

/* Groups: 0 windows, 1 product. Launch 0 packs, 1 multiplies. */
static struct kiln__plan covering_plan(void)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine(batch, 4, (size_t[]){1, 9, 9, 8});
    ask(batch, kiln_conv2d(batch, x, imagine(batch, 4, (size_t[]){3, 3, 8, 40}), NULL));
    struct kiln__plan plan = plan_of(batch, true);
    kiln_batch_release(batch);
    return plan;
}

Test(verify_plan, knows_what_is_made_on_the_way)
{
#define EXPECT_WRONGLY_COVERED(sentence, change)                                                   \
    EXPECT_BROKEN_PLAN(covering_plan(), sentence, change)
    EXPECT_WRONGLY_COVERED("step 0: group 1 reads %2, which is not there",
                           launch[0].covers = launch[1].covers = 0);
    EXPECT_WRONGLY_COVERED("launch 1 (matmul_im2col), argument 0 for a: memory that the group does "
                           "not read",
                           launch[1].covers = 0);
    EXPECT_WRONGLY_COVERED("step 0: does group 0, which others do too", launch[1].group = 0);
    EXPECT_WRONGLY_COVERED("launch 1: of no group or kernel", launch[1].covers = 3);
}

/* Groups: 0 windows, 1 product of them, 2 product of its result and them turned. */
static struct kiln__plan shared_windows_plan(void)
{
    kiln_batch *batch = kiln_batch_create(imagined_gpu());
    kiln_tensor in[] = {imagine(batch, 4, (size_t[]){1, 9, 9, 8}),
                        imagine(batch, 4, (size_t[]){3, 3, 8, 16})},
                out;
    kiln_tensor y = kiln_conv2d(batch, in[0], in[1], NULL);
    cr_assert_eq(
        kiln_grad(batch, kiln_sum(batch, kiln_square(batch, y), 0, NULL, 0), in + 1, 1, &out),
        KILN_OK);
    ask(batch, out);
    struct kiln__plan plan = plan_of(batch, true);
    kiln_batch_release(batch);
    return plan;
}

Test(verify_plan, knows_who_makes_it_on_the_way)
{
    EXPECT_BROKEN_PLAN(shared_windows_plan(), "step 0: group 1 reads %2, which is not there",
                       launch[0].covers = 0);
    EXPECT_BROKEN_PLAN(shared_windows_plan(), "step 1: group 2 reads %2, which is not there",
                       launch[1].covers = 0;
                       launch[2].covers = 0);
}

/* Step 4 reads the slots of steps 2 and 3; 6 reads 0, 1 and 3 and writes over what 4 and 5 leave.
 */
Test(verify_plan, misses_what_a_step_depends_on)
{
    struct kiln__plan_step *steps;
    EXPECT_BROKEN("step 4: uses memory of step 3, and does not wait for it",
                  steps = plan.steps.items;
                  steps[4].dependencies--);
    EXPECT_BROKEN("step 2: uses memory of step 0, and does not wait for it",
                  steps = plan.steps.items;
                  steps[2].dependencies--; steps[2].first_dependency++);
    EXPECT_BROKEN("step 5: uses memory of step 4, and does not wait for it",
                  plan.steps.items[5].dependencies = 0);
    EXPECT_BROKEN("step 5: its dependencies are no ascending earlier steps",
                  plan.dependencies.items[plan.steps.items[5].first_dependency] = 5);
    EXPECT_BROKEN("step 2: its dependencies are no ascending earlier steps",
                  steps = plan.steps.items;
                  plan.dependencies.items[steps[2].first_dependency + 1] = 0);
}

Test(verify_plan, compares_arguments_with_parameters)
{
    EXPECT_BROKEN("launch 3 (attention_cpu): 25 arguments for 26 parameters",
                  launch[3].arguments.count--);
    EXPECT_BROKEN("launch 3 (attention_cpu), argument 3 for out: a value for what is memory",
                  swap_arguments(&launch[3], 3, 4));
    EXPECT_BROKEN("launch 3 (attention_cpu), argument 2 for v: memory that the group does not read",
                  swap_arguments(&launch[3], 2, 3));
    EXPECT_BROKEN("launch 3 (attention_cpu), argument 10 for q_offset: the offset of other memory",
                  swap_arguments(&launch[3], 10, 13));
    EXPECT_BROKEN("launch 3 (attention_cpu), argument 6 for d: of another type",
                  ARGUMENT(3, 6).kind = KILN__ARGUMENT_I32);
    EXPECT_BROKEN("launch 3 (attention_cpu), argument 19 for out_offset: no offset",
                  ARGUMENT(3, 19).item = 0);
    EXPECT_BROKEN("launch 3 (attention_cpu), argument 1 for k: other memory",
                  swap_arguments(&launch[3], 1, 2));
    EXPECT_BROKEN("launch 3 (attention_cpu), argument 6 for d: another value",
                  ARGUMENT(3, 6).integer = 2);
    EXPECT_BROKEN("launch 3 (lines): its text has no such kernel", launch[3].kernel = "lines");
}

Test(verify_plan, knows_the_values_of_generated_parameters)
{
    size_t last = 0;
    EXPECT_BROKEN("launch 1 (kiln_rows), argument 5 for s0_0: another value",
                  ARGUMENT(1, 5).integer = 2);
    EXPECT_BROKEN("launch 2 (matmul_small), argument 23 for c0: another value",
                  last = launch[2].arguments.count - 1;
                  ARGUMENT(2, last).real = 3);
    EXPECT_BROKEN("launch 2 (matmul_small), argument 21 for y0: memory that the group does not "
                  "store to",
                  ARGUMENT(2, last - 2).slot = 3);
    EXPECT_BROKEN("launch 2 (matmul_small), argument 22 for q0: another value",
                  ARGUMENT(2, last - 1).integer++);
}

/* Launches: 0 totals of segments, 1 what they come to. */
static struct kiln__plan plan_of_segments(kiln_type type, bool positions)
{
    static int64_t none;
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = kiln_upload(batch, type, 1, (size_t[]){1 << 20}, &none);
    ask(batch, positions ? kiln_argmax(batch, x, 0, NULL, 0) : kiln_sum(batch, x, 0, NULL, 0));
    struct kiln__plan plan = plan_of(batch, false);
    kiln_batch_release(batch);
    return plan;
}

/* A long product in splits, on the GPU. Launches: 0 sums of splits, 1 what they come to. */
static struct kiln__plan plan_of_splits(void)
{
    kiln_batch *batch = kiln_batch_create(imagined_gpu());
    ask(batch,
        kiln_matmul(batch, imagine_matrix(batch, 64, 1 << 16), imagine_matrix(batch, 1 << 16, 64)));
    struct kiln__plan plan = plan_of(batch, false);
    kiln_batch_release(batch);
    return plan;
}

Test(verify_plan, knows_how_much_working_memory_is_used)
{
#define EXPECT_SMALL(sound, where, change)                                                         \
    EXPECT_BROKEN_PLAN(sound, where ": working memory that is smaller than what is kept there",    \
                       change)
    /* Totals of 4 bytes for those of 8; positions. */
    EXPECT_SMALL(plan_of_segments(KILN_I64, false),
                 "launch 0 (kiln_reduce), argument 8 for partial_t1", slot[2].bytes /= 2);
    EXPECT_SMALL(plan_of_segments(KILN_F32, true),
                 "launch 0 (kiln_reduce), argument 10 for partial_j1", slot[3].bytes -= 4);
    EXPECT_SMALL(plan_of_segments(KILN_I64, false),
                 "launch 1 (kiln_reduce), argument 8 for partial_t1",
                 ARGUMENT(1, 3).integer *= 2); /* segments */
    /* Of products: sums, those of all splits, packed weights. */
    EXPECT_SMALL(plan_of_splits(), "launch 0 (matmul_gpu), argument 2 for c",
                 slot[3].bytes = 16384 - 4);
    EXPECT_SMALL(plan_of_splits(), "launch 1 (matmul_gpu_sum), argument 0 for partial",
                 slot[3].bytes -= 4);
    EXPECT_SMALL(keeping_plan(), "launch 0 (matmul_pack_b), argument 1 for packed",
                 slot[3].bytes = 360000 - 4);
}
