/* SPDX-License-Identifier: Apache-2.0 */
/* Which attentions go to tensor cores, on a device that exists only here, and with which launches.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include <kiln/attention.h>
#include <kiln/elementwise.h>
#include <kiln/gradient.h>
#include <kiln/operations.h>
#include <kiln/reductions.h>

#include "../support/context.h"
#include "../support/graph.h"
#include "codegen/codegen.h"
#include "graph/graph.h"
#include "lower/lower.h"
#include "programs/edit.h"
#include "session/compile.h"
#include "session/context.h"
#include "util/kernel_texts.h"

/* ---- the device, and who believes in it ---- */

static bool believes(struct kiln__self_tester *self_tester, const struct kiln__self_test *self_test)
{
    (void)self_tester;
    return !strcmp(self_test->kernel->file, "attention_wgmma");
}

static bool doubts(struct kiln__self_tester *self_tester, const struct kiln__self_test *self_test)
{
    (void)self_tester;
    (void)self_test;
    return false;
}

/* ---- attentions ---- */

struct attention {
    kiln_type q, k, v;
    size_t heads, m, n, d, e;
    double scale;
    kiln_type mask;   /* 0: none; i32: lengths in its place */
    kiln_type result; /* that it is cast to; 0: none */
};

static int64_t window; /* of all of a test's */

static const char nothing[16];

static kiln_tensor operand(kiln_batch *batch, kiln_type type, size_t heads, size_t rows,
                           size_t columns)
{
    const size_t dims[] = {heads, rows, columns};
    return kiln_upload(batch, type, 3, dims, nothing);
}

/* The kernel of the plan's one launch, its options and how many work-groups it has. */
static const char *planned_by(const struct kiln__device *device,
                              struct kiln__self_tester *self_tester, const struct attention *a)
{
    static char words[512];
    struct kiln__plan_options options = {.device = device, .self_tester = self_tester};
    struct kiln__plan plan;
    char wrong[KILN__WRONG] = "";
    kiln_batch *batch = kiln_batch_create(imagined_gpu());
    kiln_attention_options how = KILN_ATTENTION_OPTIONS_INIT;
    how.scale = a->scale;
    how.window = window;
    kiln_tensor q = operand(batch, a->q, a->heads, a->m, a->d);
    kiln_tensor k = operand(batch, a->k, a->heads, a->n, a->d);
    kiln_tensor v = operand(batch, a->v, a->heads, a->n, a->e);
    kiln_tensor mask = {0};
    const bool lengths = a->mask == KILN_I32;
    if (a->mask && !lengths)
        mask = operand(batch, a->mask, 1, a->m, a->n);
    if (mask.id && a->mask != KILN_U8 && a->mask != KILN_BOOL)
        mask = kiln_cast(batch, mask, KILN_F32);
    kiln_tensor y =
        lengths
            ? kiln_attention_with_lengths(
                  batch, q, k, v, mask,
                  kiln_reshape(batch, operand(batch, KILN_I32, a->heads, 1, 1), 1, &a->heads), &how)
            : kiln_attention(batch, q, k, v, mask, &how);
    ask(batch, a->result ? kiln_cast(batch, y, a->result) : y);
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    cr_assert_eq(kiln__compile_plan(&batch->graph, &options, NULL, &plan, NULL), KILN_OK, "%s",
                 kiln_last_error());
    cr_expect_eq(kiln__launches_verify(&plan, wrong), KILN_OK, "%s", wrong);
    cr_expect_eq(plan.launches.count, 1);
    const struct kiln__launch *launch = &plan.launches.items[0];
    snprintf(words, sizeof words, "%s", launch->kernel);
    if (launch->self_tested || strstr(launch->options, "RESULT"))
        snprintf(words, sizeof words, "%s %zu x %zu", launch->options,
                 launch->global[0] / launch->local[0], launch->global[1]);
    if (strstr(launch->options, "-DLOCAL=")) /* more than an array may have */
        cr_expect(kiln__edit_is_wanted(kiln__kernel_text(launch->file)), "%s", launch->file);
    if (strcmp(launch->file, launch->kernel))
        snprintf(words, sizeof words, "%s %s", launch->file, launch->options);
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
    return words;
}

static void expect_words(const struct attention *attention, const char *words)
{
    struct kiln__device device = imagined_hopper();
    struct kiln__self_tester self_tester = {believes};
    cr_expect_str_eq(planned_by(&device, &self_tester, attention), words);
}

static void expect_other(const struct attention *attention)
{
    expect_words(attention, "attention_gpu");
}

#define NARROW(type) type, type, type

Test(attention_wgmma, has_a_program_for_each_type_and_for_few_columns_and_many)
{
    expect_words(
        &(struct attention){NARROW(KILN_F16), 8, 2048, 2048, 64, 64, 0, 0, 0},
        "-DTYPE=f16 -DRESULT=f32 -DDEPTH=64 -DSTAGES=2 -DLOCAL=82944 -DALIGNED=1 -DRUNS=1 8 x 16");
    expect_words(&(struct attention){NARROW(KILN_BF16), 3, 300, 70, 72, 16, 0.5, 0, 0},
                 "-DTYPE=bf16 -DRESULT=f32 -DDEPTH=128 -DSTAGES=2 -DLOCAL=164864 -DALIGNED=1 "
                 "-DRUNS=1 3 x 3");
    expect_words(
        &(struct attention){NARROW(KILN_F16), 1, 1, 70, 8, 128, 0, 0, 0},
        "-DTYPE=f16 -DRESULT=f32 -DDEPTH=128 -DSTAGES=2 -DLOCAL=164864 -DALIGNED=1 -DRUNS=1 1 x 1");
}

Test(attention_wgmma, counts_keys_itself)
{
    expect_words(&(struct attention){NARROW(KILN_F16), 8, 1, 512, 64, 64, 0, KILN_I32, 0},
                 "-DTYPE=f16 -DRESULT=f32 -DDEPTH=64 -DSTAGES=2 -DLOCAL=82944 -DALIGNED=1 -DRUNS=1 "
                 "-DLENGTHS=1 8 x 1");
}

Test(attention_wgmma, stores_narrow_results_at_once)
{
    expect_words(&(struct attention){NARROW(KILN_F16), 8, 2048, 2048, 64, 64, 0, 0, KILN_F16},
                 "-DTYPE=f16 -DRESULT=f16 -DDEPTH=64 -DSTAGES=2 -DLOCAL=82944 -DALIGNED=1 -DRUNS=1 "
                 "8 x 16");
    expect_words(
        &(struct attention){NARROW(KILN_BF16), 8, 512, 512, 64, 63, 0, KILN_F32, KILN_BF16},
        "-DROWS=64 -DKEYS=32 -DLANES=16 -DDEPTH=64 -DWIDTH=64 -DMASK=2 -DRUNS=1 "
        "-DRESULT_BF16 8 x 8");
}

Test(attention_wgmma, skips_keys_before_windows)
{
    window = 100;
    expect_words(&(struct attention){NARROW(KILN_F16), 8, 1024, 512, 64, 64, 0, KILN_I32, 0},
                 "-DTYPE=f16 -DRESULT=f32 -DDEPTH=64 -DSTAGES=2 -DLOCAL=82944 -DALIGNED=1 -DRUNS=1 "
                 "-DWINDOW=2 -DLENGTHS=1 8 x 8");
}

/* Of a size that tensor cores do not take; attention_cpu would store none. */
Test(attention_wgmma, stores_narrow_results_of_windows)
{
    window = 100;
    expect_words(&(struct attention){NARROW(KILN_BF16), 8, 512, 512, 64, 63, 0, 0, KILN_BF16},
                 "-DROWS=64 -DKEYS=32 -DLANES=16 -DDEPTH=64 -DWIDTH=64 -DMASK=0 -DRUNS=1 "
                 "-DRESULT_BF16 -DWINDOW=2 8 x 8");
}

#define MASKED "-DTYPE=f16 -DRESULT=f32 -DDEPTH=64 -DSTAGES=2 -DLOCAL=82944 -DALIGNED=1 -DRUNS=1 "

Test(attention_wgmma, reads_masks_as_they_lie_and_two_keys_at_once_where_all_rows_start_even)
{
    struct attention attention = {NARROW(KILN_F16), 8, 512, 512, 64, 64, 0, KILN_U8, 0};
    expect_words(&attention, MASKED "-DMASK=1 -DPAIRS=1 8 x 4");
    attention.mask = KILN_BOOL; /* as comparisons make them */
    expect_words(&attention, MASKED "-DMASK=1 -DPAIRS=1 8 x 4");
    attention.mask = KILN_F32;
    expect_words(&attention, MASKED "-DMASK=2 -DPAIRS=1 8 x 4");
    attention.mask = KILN_F16;
    expect_words(&attention, MASKED "-DMASK=3 -DPAIRS=1 8 x 4");
    attention.mask = KILN_BF16;
    expect_words(&attention, MASKED "-DMASK=4 -DPAIRS=1 8 x 4");
    attention.n = 511;
    expect_words(&attention, MASKED "-DMASK=4 -DPAIRS=0 8 x 4");
}

/* Kernels with a mask are others, and so are those with one of another type. */
static bool believes_unmasked(struct kiln__self_tester *self_tester,
                              const struct kiln__self_test *self_test)
{
    return believes(self_tester, self_test) && !self_test->mask;
}

Test(attention_wgmma, has_to_be_proved_with_the_mask_that_it_reads)
{
    struct kiln__device device = imagined_hopper();
    struct kiln__self_tester self_tester = {believes_unmasked};
    struct attention attention = {NARROW(KILN_F16), 8, 512, 512, 64, 64, 0, KILN_U8, 0};
    cr_expect_str_eq(planned_by(&device, &self_tester, &attention), "attention_gpu");
    attention.mask = (kiln_type)0;
    cr_expect_str_neq(planned_by(&device, &self_tester, &attention), "attention_gpu");
}

/* Operands that are rounded on the way lie as floats: the kernel that takes such ones stores
 * floats. */
Test(attention_wgmma, has_no_narrow_result_stored_as_floats)
{
    struct kiln__device device = imagined_hopper();
    struct kiln__self_tester self_tester = {believes};
    struct kiln__plan_options options = {.device = &device, .self_tester = &self_tester};
    struct kiln__plan plan;
    kiln_batch *batch = kiln_batch_create(imagined_gpu());
    kiln_tensor x = operand(batch, KILN_F32, 8, 512, 64);
    kiln_tensor half = kiln_cast(batch, kiln_add(batch, x, x), KILN_F16);
    kiln_tensor y = kiln_attention(batch, half, half, half, (kiln_tensor){0}, NULL);
    ask(batch, kiln_cast(batch, y, KILN_F16));
    cr_assert_eq(kiln__compile_plan(&batch->graph, &options, NULL, &plan, NULL), KILN_OK, "%s",
                 kiln_last_error());
    const struct kiln__launch *last = &plan.launches.items[plan.launches.count - 1];
    cr_expect(strstr(last->options, "RESULT") || !strstr(last->kernel, "attention"), "%s %s",
              last->kernel, last->options);
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
}

Test(attention_wgmma, leaves_others_to_others)
{
    expect_other(&(struct attention){KILN_F16, KILN_F16, KILN_BF16, 8, 512, 512, 64, 64, 0, 0, 0});
    expect_other(&(struct attention){NARROW(KILN_F16), 8, 512, 512, 64, 64, -1, 0, 0});
    expect_other(&(struct attention){NARROW(KILN_F16), 8, 512, 512, 60, 64, 0, 0, 0});
    expect_other(&(struct attention){NARROW(KILN_F16), 8, 512, 512, 64, 60, 0, 0, 0});
    expect_other(&(struct attention){NARROW(KILN_F16), 8, 512, 512, 136, 64, 0, 0, 0});
}

Test(attention_wgmma, leaves_floats_to_a_kernel_that_copies_in_the_background)
{
    expect_words(&(struct attention){NARROW(KILN_F32), 8, 512, 512, 64, 64, 0, 0, 0},
                 "attention_copies");
    expect_words(&(struct attention){NARROW(KILN_F32), 8, 100, 70, 260, 128, -1, KILN_F32, 0},
                 "attention_copies");
    expect_other(&(struct attention){NARROW(KILN_F32), 8, 512, 512, 63, 64, 0, 0, 0});
    expect_other(&(struct attention){NARROW(KILN_F32), 8, 512, 512, 64, 132, 0, 0, 0});
}

static kiln_type believed_mask;

static bool believes_long(struct kiln__self_tester *self_tester,
                          const struct kiln__self_test *self_test)
{
    (void)self_tester;
    return !strcmp(self_test->kernel->file, "attention_copies_long") &&
           self_test->type == KILN_F32 && self_test->mask == believed_mask;
}

Test(attention_wgmma, leaves_floats_to_longer_stages_where_these_are_proved)
{
    struct kiln__device device = imagined_hopper();
    struct kiln__self_tester self_tester = {believes_long};
    struct attention attention = {NARROW(KILN_F32), 8, 512, 512, 128, 100, 0, 0, 0};
    cr_expect_str_eq(
        planned_by(&device, &self_tester, &attention),
        "attention_copies_long -DWIDTH=128 -DMASK=0 -DRUNS=1 -DDEPTH=32 -DLOCAL=100352");
    attention.d = 64, attention.e = 36;
    cr_expect_str_eq(planned_by(&device, &self_tester, &attention),
                     "attention_copies_long -DWIDTH=64 -DMASK=0 -DRUNS=1 -DDEPTH=32 -DLOCAL=83968");
    attention.d = 68; /* more than there is room for */
    cr_expect_str_eq(planned_by(&device, &self_tester, &attention), "attention_copies");
    attention.d = 64, attention.mask = KILN_U8; /* another kernel */
    cr_expect_str_eq(planned_by(&device, &self_tester, &attention), "attention_copies");
    believed_mask = KILN_U8;
    cr_expect(strstr(planned_by(&device, &self_tester, &attention), "_long -DWIDTH=64 -DMASK=1"));
    attention.mask = KILN_F16; /* as generated text makes it floats */
    cr_expect_str_eq(planned_by(&device, &self_tester, &attention), "attention_copies");
    believed_mask = KILN_F32;
    cr_expect(strstr(planned_by(&device, &self_tester, &attention), "_long -DWIDTH=64 -DMASK=2"));
    attention.mask = believed_mask = (kiln_type)0;
    cr_expect(strstr(planned_by(&device, &self_tester, &attention), "_long "));
    device.ptx_level = 80;
    cr_expect_str_eq(planned_by(&device, &self_tester, &attention), "attention_copies");
}

Test(attention_wgmma, is_for_the_device_that_has_it_and_has_proved_it)
{
    struct kiln__device device = imagined_hopper();
    struct kiln__self_tester self_tester = {doubts};
    const struct attention attention = {NARROW(KILN_F16), 8, 512, 512, 64, 64, 0, 0, 0};
    cr_expect_str_eq(planned_by(&device, &self_tester, &attention), "attention_gpu");
    cr_expect_str_eq(planned_by(&device, NULL, &attention), "attention_gpu");
    self_tester.passes = believes;
    device.ptx_level = 89;
    cr_expect_str_eq(planned_by(&device, &self_tester, &attention), "attention_gpu");
}

static bool believes_all(struct kiln__self_tester *self_tester,
                         const struct kiln__self_test *self_test)
{
    (void)self_tester;
    (void)self_test;
    return true;
}

/* A gradient by q, k and v as narrow as they are, planned for a device whose kernels are believed.
 */
static struct kiln__plan plan_of_gradient(kiln_type type, bool slopes,
                                          struct kiln__self_tester *self_tester)
{
    struct kiln__device device = imagined_hopper();
    struct kiln__plan_options options = {.device = &device, .self_tester = self_tester};
    struct kiln__plan plan;
    kiln_batch *batch = kiln_batch_create(imagined_gpu());
    kiln_tensor x[4], out[3];
    batch->takes_attention_backward = slopes ? take_attention_backward : NULL;
    for (int i = 0; i < 4; i++)
        x[i] = operand(batch, type, 4, 512, 64);
    kiln_tensor y = kiln_attention(batch, x[0], x[1], x[2], (kiln_tensor){0}, NULL);
    y = kiln_cast(batch, y, type);
    ask(batch, y);
    kiln_grad(batch, kiln_sum(batch, kiln_mul(batch, y, x[3]), 0, NULL, 0), x, 3, out);
    for (int i = 0; i < 3; i++)
        ask(batch, kiln_cast(batch, out[i], type));
    cr_assert_eq(kiln__compile_plan(&batch->graph, &options, NULL, &plan, NULL), KILN_OK, "%s",
                 kiln_last_error());
    char wrong[KILN__WRONG] = "";
    cr_expect_eq(kiln__launches_verify(&plan, wrong), KILN_OK, "%s", wrong);
    kiln_batch_release(batch);
    return plan;
}

static size_t count_launches(const struct kiln__plan *plan, const char *kernel)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->launches.count; i++)
        count += !strcmp(plan->launches.items[i].kernel, kernel);
    return count;
}

/* Scores are made once as floats; weights, and what flows to the scores, lie in 16 bits, and each
 * product takes them as they lie. */
Test(attention_wgmma, makes_gradients_of_narrow_products)
{
    struct kiln__self_tester self_tester = {believes_all};
    struct kiln__plan plan = plan_of_gradient(KILN_F16, false, &self_tester);
    cr_expect_eq(count_launches(&plan, "matmul_wgmma"), 5);
    cr_expect_eq(count_launches(&plan, "kiln_map"), 0);
    cr_expect_eq(plan.launches.count,
                 12); /* two for the largest slope, two for the largest value */
    kiln__plan_free(&plan);
}

/* Or else by kernels that store no scores, and find two things at once: the log-sum-exp beside the
 * attention, what flows to values beside what flows to keys. Results are stored narrow at once. */
Test(attention_wgmma, makes_gradients_of_slopes)
{
    struct kiln__self_tester self_tester = {believes_all};
    struct kiln__plan plan = plan_of_gradient(KILN_BF16, true, &self_tester);
    const struct kiln__launch *launch = plan.launches.items;
    cr_expect_eq(plan.launches.count, 5); /* the slope rounded, with its shift; stats */
    cr_expect(strstr(launch[0].options, "-DLOG_SUM_EXP=1"), "%s", launch[0].options);
    cr_expect_eq(count_launches(&plan, "attention_backward_wgmma"), 2);
    cr_expect_str_eq(launch[3].options,
                     "-DFORM=3 -DMARKS=35 -DTYPE=bf16 -DRESULT=bf16 -DDEPTH=64 -DWALKED=64 "
                     "-DSTAGES=3 -DLOCAL=84480 -DALIGNED=1 -DRUNS=1");
    cr_expect_str_eq(launch[4].options,
                     "-DFORM=4 -DMARKS=29 -DTYPE=bf16 -DRESULT=bf16 -DDEPTH=64 -DWALKED=64 "
                     "-DSTAGES=3 -DLOCAL=84480 -DALIGNED=1 -DRUNS=1 -DPAIR=1");
    kiln__plan_free(&plan);
    plan = plan_of_gradient(KILN_F16, true, &self_tester);
    cr_expect_eq(plan.launches.count, 9); /* two for the largest slope, two for the largest value */
    cr_expect_eq(count_launches(&plan, "attention_backward_wgmma"), 2);
    kiln__plan_free(&plan);
}

/* What is wrong on a new driver has other kernels take its place. */
static bool doubts_pairs(struct kiln__self_tester *self_tester,
                         const struct kiln__self_test *self_test)
{
    (void)self_tester;
    switch (self_test->kernel->family) {
    case KILN__KERNEL_ATTENTION: return !self_test->form;
    case KILN__KERNEL_ATTENTION_GRADIENT: return self_test->form < KILN__BACKWARD_BOTH;
    default: return true;
    }
}

static bool doubts_slopes(struct kiln__self_tester *self_tester,
                          const struct kiln__self_test *self_test)
{
    return doubts_pairs(self_tester, self_test) && self_test->form != KILN__BACKWARD_KEYS;
}

static bool doubts_both(struct kiln__self_tester *self_tester,
                        const struct kiln__self_test *self_test)
{
    (void)self_tester;
    return self_test->form != KILN__BACKWARD_BOTH;
}

Test(attention_wgmma, has_each_form_of_slopes_proved)
{
    struct kiln__self_tester self_tester = {doubts_pairs};
    struct kiln__plan plan = plan_of_gradient(KILN_BF16, true, &self_tester);
    cr_expect_eq(count_launches(&plan, "attention_backward_wgmma"), 4);
    cr_expect_eq(count_launches(&plan, "attention_wgmma"), 1);
    kiln__plan_free(&plan);
    self_tester.passes = doubts_slopes;
    plan = plan_of_gradient(KILN_BF16, true, &self_tester);
    cr_expect_eq(count_launches(&plan, "attention_backward_wgmma"), 3);
    cr_expect_eq(count_launches(&plan, "attention_backward"), 1);
    kiln__plan_free(&plan);
}

/* Whether gradients are found so at all is asked before: of rows of 16 bytes, no more columns than
 * the kernels have room for, scales above 0, and where both kernels have proved right. */
Test(attention_wgmma, takes_gradients_of_some_sizes)
{
    static const struct {
        size_t d, e;
        double scale;
        bool taken;
    } sizes[] = {{64, 64, 1, true},  {8, 128, 0.5, true}, {12, 16, 1, false},
                 {16, 12, 1, false}, {136, 16, 1, false}, {16, 136, 1, false},
                 {0, 16, 1, false},  {16, 16, 0, false},  {16, 16, -1, false}};
    struct kiln__device device = imagined_hopper();
    struct kiln__self_tester self_tester = {believes_all};
    struct kiln__plan_options options = {.device = &device, .self_tester = &self_tester};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cr_expect_eq(kiln__has_attention_gradients(&options, KILN_F16, sizes[i].scale, sizes[i].d,
                                                   sizes[i].e),
                     sizes[i].taken, "%zu", i);
    }
    cr_expect(!kiln__has_attention_gradients(&options, (kiln_type)0, 1, 64, 64));
    device.info.max_work_group = 256;
    cr_expect(!kiln__has_attention_gradients(&options, KILN_F16, 1, 64, 64));
    device = imagined_hopper();
    self_tester.passes = doubts_both;
    cr_expect(!kiln__has_attention_gradients(&options, KILN_F16, 1, 64, 64));
    options.self_tester = NULL;
    cr_expect(!kiln__has_attention_gradients(&options, KILN_F16, 1, 64, 64));
}
