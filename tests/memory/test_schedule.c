/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of a group's axes, for a CPU and for a GPU that exist only here: every word of a
 * schedule, where it is used and where it is not. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

#include "../support/context.h"
#include "../support/graph.h"
#include "session/context.h"

typedef kiln_tensor structure(kiln_batch *batch, size_t m, size_t n);

struct walks {
    enum kiln__axis_mapping kept, reduced;
};

/* Of the first launch, or of the one behind it. */
static struct kiln__variant form_of(kiln_context *context, structure *record, size_t m, size_t n,
                                    size_t launch)
{
    kiln_batch *batch = kiln_batch_create(context);
    ask(batch, record(batch, m, n));
    struct kiln__plan plan = plan_of(batch, false);
    cr_assert_gt(plan.launches.count, launch);
    struct kiln__variant variant = plan.launches.items[launch].variant;
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
    return variant;
}

static void expect_walks(kiln_context *context, structure *record, size_t m, size_t n,
                         size_t launch, struct walks walks)
{
    struct kiln__variant variant = form_of(context, record, m, n, launch);
    cr_expect_eq(variant.kept_mapping, walks.kept, "%zu x %zu: kept %u", m, n,
                 variant.kept_mapping);
    cr_expect_eq(variant.reduced_mapping, walks.reduced, "%zu x %zu: reduced %u", m, n,
                 variant.reduced_mapping);
}

#define STRUCTURE(name, expression)                                                                \
    static kiln_tensor name(kiln_batch *batch, size_t m, size_t n)                                 \
    {                                                                                              \
        kiln_tensor x = imagine_matrix(batch, m, n);                                               \
        return expression;                                                                         \
    }                                                                                              \
    structure name

static kiln_tensor slopes_of(kiln_batch *batch, kiln_tensor y, kiln_tensor x)
{
    kiln_tensor slopes, loss = kiln_sum(batch, kiln_mul(batch, y, y), 0, NULL, 0);
    cr_assert_eq(kiln_grad(batch, loss, &x, 1, &slopes), KILN_OK);
    return slopes;
}

STRUCTURE(adds, kiln_add(batch, x, x));
STRUCTURE(functions, kiln_exp(batch, x));
STRUCTURE(turns, kiln_add(batch, kiln_transpose(batch, x, NULL), imagine_matrix(batch, n, m)));
STRUCTURE(rows, kiln_sum(batch, x, 1, (int[]){1}, 0));
STRUCTURE(columns, kiln_sum(batch, x, 1, (int[]){0}, 0));
STRUCTURE(softmax, kiln_softmax(batch, x, 1, (int[]){1}));
STRUCTURE(norms, kiln_layer_norm(batch, x, imagine_vector(batch, n), imagine_vector(batch, n), 1,
                                 (int[]){1}, 1e-5));
STRUCTURE(running_sums, kiln_cumsum(batch, kiln_scale(batch, x, 2), 1, 0));
STRUCTURE(softmax_columns, kiln_softmax(batch, x, 1, (int[]){0}));

/* Small products keep a panel of one operand there, and lines of the other that they compute. */
Test(schedule, of_a_product_takes_no_more_local_memory_than_there_is)
{
    kiln_context *cpu = imagined_cpu();
    for (uint64_t room = 48 << 10; room >= 24 << 10; room -= 4 << 10) {
        kiln_batch *batch = kiln_batch_create(cpu);
        cpu->runtime.device.info.local_memory = room;
        kiln_tensor x = imagine_matrix(batch, 40, 300), w = imagine_matrix(batch, 300, 64);
        ask(batch, kiln_matmul(batch, kiln_add(batch, x, kiln_constant(batch, KILN_F32, 1)), w));
        struct kiln__plan plan = plan_of(batch, false);
        const struct kiln__launch *launch = &plan.launches.items[0];
        unsigned vector, rows, vectors, depth;
        cr_assert_eq(sscanf(launch->options,
                            "-DVECTOR=%u -DTILE_ROWS=%u -DTILE_VECTORS=%u -DBLOCK_DEPTH=%u",
                            &vector, &rows, &vectors, &depth),
                     4, "%s", launch->options);
        cr_expect_str_eq(launch->choice.taken->name, "small");
        cr_expect(launch->variant.operands & KILN__READS_A, "computes x + 1 as it reads it");
        cr_expect_leq((vector * vectors + rows) * depth * sizeof(float), room);
        cr_expect_eq(depth, 256u, "the order of additions is that of other sizes");
        kiln__plan_free(&plan);
        kiln_batch_release(batch);
    }
}

/* Panels that stay from run to run are taken where they are; others are packed as they are used. */
Test(schedule, of_products_goes_by_whether_weights_stay)
{
    static const struct {
        size_t rows;
        bool stays;
        const char *chosen;
    } cases[] = {{4, true, "skinny"},     {16, true, "few"},     {16, false, "small"},
                 {32, true, "few"},       {33, true, "packed"},  {33, false, "small"},
                 {1000, false, "single"}, {1000, true, "packed"}};
    kiln_context *cpu = imagined_cpu();
    cpu->runtime.device.info.local_memory = 1 << 20;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kiln_batch *batch = kiln_batch_create(cpu);
        kiln_tensor w =
            cases[i].stays ? imagine_weights(batch, 200, 100) : imagine_matrix(batch, 200, 100);
        ask(batch, kiln_matmul(batch, imagine_matrix(batch, cases[i].rows, 200), w));
        struct kiln__plan plan = plan_of(batch, false);
        cr_expect_str_eq(plan.launches.items[0].choice.taken->name, cases[i].chosen, "%zu rows, %s",
                         cases[i].rows, plan.launches.items[0].choice.taken->name);
        kiln__plan_free(&plan);
        kiln_batch_release(batch);
    }
}

#define WALKS(kept, reduced) ((struct walks){KILN__AXIS_##kept, KILN__AXIS_##reduced})

Test(schedule, has_a_word_for_each_axis_on_a_cpu)
{
    kiln_context *cpu = imagined_cpu();
    expect_walks(cpu, adds, 64, 96, 0, WALKS(VECTORS, NONE));
    expect_walks(cpu, turns, 64, 96, 0, WALKS(TILES, NONE));
    expect_walks(cpu, turns, 64, 3, 0, WALKS(VECTORS, NONE)); /* no block fits */
    expect_walks(cpu, rows, 64, 96, 0, WALKS(EACH, VECTORS));
    expect_walks(cpu, columns, 64, 96, 0, WALKS(VECTORS, EACH)); /* as few as a window has */
    expect_walks(cpu, columns, 65, 96, 0, WALKS(VECTORS, BLOCKS));
    expect_walks(cpu, softmax, 64, 96, 0, WALKS(EACH, VECTORS));
    expect_walks(cpu, softmax_columns, 64, 96, 0, WALKS(VECTORS, BLOCKS));
    expect_walks(cpu, rows, 2, 1 << 18, 0, WALKS(EACH, VECTORS));
    expect_walks(cpu, rows, 2, 1 << 18, 1, WALKS(EACH, PARTIALS));
    expect_walks(cpu, columns, 1 << 14, 32, 0, WALKS(VECTORS, BLOCKS));
    expect_walks(cpu, columns, 1 << 14, 32, 1, WALKS(EACH, PARTIALS));
}

Test(schedule, has_a_word_for_each_axis_on_a_gpu)
{
    kiln_context *gpu = imagined_gpu();
    expect_walks(gpu, adds, 64, 96, 0, WALKS(ITEM, NONE));
    expect_walks(gpu, turns, 64, 96, 0, WALKS(TILES, NONE));
    expect_walks(gpu, turns, 64, 3, 0, WALKS(ITEM, NONE)); /* most of a tile would be empty */
    expect_walks(gpu, rows, 64, 96, 0, WALKS(LANES, LANES));
    expect_walks(gpu, columns, 64, 96, 0, WALKS(COLUMNS, EACH));
    expect_walks(gpu, softmax, 64, 96, 0, WALKS(LANES, HELD));
    expect_walks(gpu, softmax, 64, 1 << 16, 0, WALKS(LANES, LANES)); /* too long to hold */
    expect_walks(gpu, softmax_columns, 64, 96, 0, WALKS(COLUMNS, HELD));
    expect_walks(gpu, softmax_columns, 2048, 96, 0, WALKS(COLUMNS, LANES));
    expect_walks(gpu, rows, 2, 1 << 18, 1, WALKS(LANES, PARTIALS));
    expect_walks(gpu, columns, 1 << 14, 32, 1, WALKS(LANES, PARTIALS));
}

/* The sum of n matrices that are read turned. */
static kiln_tensor many_turns(kiln_batch *batch, size_t m, size_t n)
{
    kiln_tensor sum = imagine_matrix(batch, 64, m);
    for (size_t i = 0; i < n; i++)
        sum = kiln_add(batch, sum, kiln_transpose(batch, imagine_matrix(batch, m, 64), NULL));
    return sum;
}

Test(schedule, keeps_as_many_tiles_as_half_of_local_memory_has_room_for)
{
    kiln_context *gpu = imagined_gpu();
    cr_expect_eq(form_of(gpu, turns, 64, 96, 0).tile, 64);
    gpu->runtime.device.info.local_memory = 32 << 10;
    for (size_t n = 1; n <= 6; n++) {
        struct kiln__variant variant = form_of(gpu, many_turns, 96, n, 0);
        unsigned turned = 0, strided = 0;
        for (size_t k = 0; k < n + 1; k++) {
            turned += variant.along[k] == KILN__ACROSS;
            strided += variant.along[k] == KILN__STRIDED;
        }
        cr_expect_eq(turned, n < 3 ? n : 3, "%u of %zu", turned, n);
        cr_expect_eq(turned + strided, n);
        cr_expect_eq(variant.tile, 32);
    }
    gpu->runtime.device.info.local_memory = 48 << 10;
}

Test(schedule, has_larger_work_groups_for_rows_that_are_read_twice)
{
    kiln_context *gpu = imagined_gpu();
    cr_expect_eq(1 << form_of(gpu, softmax, 64, 8192, 0).work_group, 256); /* held */
    cr_expect_eq(1 << form_of(gpu, rows, 64, 1 << 16, 0).work_group, 256);
    cr_expect_eq(1 << form_of(gpu, softmax, 64, 1 << 16, 0).work_group, 1024);
    gpu->runtime.device.info.max_work_group = 512;
    cr_expect_eq(1 << form_of(gpu, softmax, 64, 1 << 16, 0).work_group, 512);
    gpu->runtime.device.info.max_work_group = 1024;
}

/* Of columns each item has a place in local memory for each reduction. */
Test(schedule, has_larger_work_groups_for_long_columns_that_are_read_twice)
{
    kiln_context *gpu = imagined_gpu();
    cr_expect_eq(1 << form_of(gpu, softmax_columns, 512, 64, 0).work_group, 256);
    cr_expect_eq(1 << form_of(gpu, softmax_columns, 1500, 64, 0).work_group, 1024);
    gpu->runtime.device.info.local_memory = 16 << 10;
    cr_expect_eq(1 << form_of(gpu, softmax_columns, 1500, 64, 0).work_group, 512);
    gpu->runtime.device.info.local_memory = 48 << 10;
}

Test(schedule, has_smaller_work_groups_for_maps)
{
    cr_expect_eq(1 << form_of(imagined_gpu(), adds, 64, 96, 0).work_group, 128);
    cr_expect_eq(1 << form_of(imagined_gpu(), rows, 64, 96, 0).work_group, 256);
}

Test(schedule, exchanges_values_of_lanes_beside_each_other)
{
    kiln_context *gpu = imagined_gpu();
    cr_expect_eq(1 << (form_of(gpu, rows, 64, 96, 0).shuffles - 1), 4);
    cr_expect_eq(1 << (form_of(gpu, rows, 64, 96000, 0).shuffles - 1), 256);
    cr_expect_eq(1 << (form_of(gpu, running_sums, 64, 96, 0).shuffles - 1), 32);
    cr_expect_not(form_of(gpu, softmax_columns, 64, 96, 0).shuffles);
    cr_expect_not(form_of(gpu, adds, 64, 96, 0).shuffles);
    cr_expect_not(form_of(imagined_cpu(), rows, 64, 96, 0).shuffles);
}

/* Longer rows have more lanes, each of them four vectors; the longest more of these. */
Test(schedule, holds_few_vectors_where_there_are_lanes)
{
    static const struct {
        size_t row, lanes, held;
    } wanted[] = {{64, 8, 2}, {256, 16, 4}, {1024, 64, 4}, {4096, 256, 4}, {4100, 256, 8}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct kiln__variant variant = form_of(imagined_gpu(), softmax, 64, wanted[i].row, 0);
        cr_expect_eq(1u << (variant.shuffles - 1), wanted[i].lanes, "%zu", wanted[i].row);
        cr_expect_eq(variant.held, wanted[i].held, "%zu", wanted[i].row);
    }
    struct kiln__variant variant = form_of(imagined_gpu(), norms, 64, 1024, 0);
    cr_expect_eq(1u << (variant.shuffles - 1), 128u);
    cr_expect_eq(variant.held, 2);
}

STRUCTURE(norm_slopes, slopes_of(batch,
                                 kiln_layer_norm(batch, x, imagine_vector(batch, n),
                                                 imagine_vector(batch, n), 1, (int[]){1}, 1e-5),
                                 x));

/* A row has the same bits whatever stands beside it: as many lanes, and as much in each. */
Test(schedule, of_a_row_does_not_depend_on_others)
{
    structure *const structures[] = {softmax, norms, running_sums, norm_slopes};
    for (size_t i = 0; i < sizeof structures / sizeof *structures; i++)
        for (size_t n = 7; n < 10000; n = n * 5 / 4) {
            struct kiln__variant one = form_of(imagined_gpu(), structures[i], 1, n, 0);
            struct kiln__variant many = form_of(imagined_gpu(), structures[i], 37, n, 0);
            cr_expect_eq(one.shuffles, many.shuffles, "%zu: rows of %zu", i, n);
            cr_expect_eq(one.held, many.held, "%zu: rows of %zu", i, n);
        }
}

Test(schedule, pairs_vectors_only_where_operations_wait_for_each_other)
{
    cr_expect(form_of(imagined_cpu(), functions, 64, 96, 0).pairs);
    cr_expect_not(form_of(imagined_cpu(), adds, 64, 96, 0).pairs);
    cr_expect_not(form_of(imagined_gpu(), functions, 64, 96, 0).pairs);
}

Test(schedule, holds_what_a_lane_has_room_for)
{
    cr_expect_eq(form_of(imagined_gpu(), softmax, 64, 96, 0).held, 4);
    cr_expect_eq(form_of(imagined_gpu(), softmax, 64, 1 << 16, 0).held, 0);
    cr_expect_eq(form_of(imagined_cpu(), softmax, 64, 96, 0).held, 0);
}

STRUCTURE(log_softmax, kiln_log_softmax(batch, x, 1, (int[]){1}));
STRUCTURE(logsumexp, kiln_logsumexp(batch, x, 1, (int[]){1}, 0));
STRUCTURE(log_softmax_columns, kiln_log_softmax(batch, x, 1, (int[]){0}));
STRUCTURE(variance, kiln_variance(batch, x, 1, (int[]){1}, 0, 0));

/* A sum of powers below `top`. */
static kiln_tensor powers(kiln_batch *batch, kiln_tensor x, kiln_tensor top)
{
    return kiln_sum(batch, kiln_exp(batch, kiln_sub(batch, x, top)), 1, (int[]){1}, 1);
}
STRUCTURE(powers_below_largest, powers(batch, x, kiln_max(batch, x, 1, (int[]){1}, 1)));
STRUCTURE(powers_below_smallest, powers(batch, x, kiln_min(batch, x, 1, (int[]){1}, 1)));
STRUCTURE(powers_below_others,
          powers(batch, x, kiln_max(batch, kiln_abs(batch, x), 1, (int[]){1}, 1)));
STRUCTURE(powers_below_no_number, powers(batch, x,
                                         kiln_minimum(batch, kiln_max(batch, x, 1, (int[]){1}, 1),
                                                      kiln_constant(batch, KILN_F32, -INFINITY))));

STRUCTURE(powers_of_running_sums,
          kiln_logsumexp(batch, kiln_cumsum(batch, x, 1, 0), 1, (int[]){1}, 0));

/* Stored, the powers have to be below the row's largest element. */
static kiln_tensor powers_stored(kiln_batch *batch, size_t m, size_t n)
{
    kiln_tensor x = imagine_matrix(batch, m, n);
    kiln_tensor y = kiln_exp(batch, kiln_sub(batch, x, kiln_max(batch, x, 1, (int[]){1}, 1)));
    ask(batch, y);
    return kiln_sum(batch, y, 1, (int[]){1}, 1);
}

static void expect_together(kiln_context *context, structure *record, size_t n, bool wanted)
{
    cr_expect_eq(form_of(context, record, 64, n, 0).online, wanted, "%zu", n);
}

Test(schedule, finds_a_long_row_s_maximum_and_sum_in_one_visit)
{
    expect_together(imagined_cpu(), logsumexp, 8192, true);
    expect_together(imagined_cpu(), logsumexp, 8191, false);
    expect_together(imagined_cpu(), log_softmax, 1 << 16, true);
    expect_together(imagined_cpu(), softmax, 1 << 16, false); /* its powers are kept */
    expect_together(imagined_gpu(), softmax, 1 << 16, true);
    expect_together(imagined_gpu(), softmax, 1 << 12, false); /* held */
    cr_expect(form_of(imagined_gpu(), log_softmax_columns, 2048, 96, 0).online);
    cr_expect_not(form_of(imagined_cpu(), log_softmax_columns, 2048, 96, 0).online);
}

Test(schedule, knows_sums_that_can_follow_a_maximum)
{
    expect_together(imagined_cpu(), powers_below_largest, 1 << 16, true);
    expect_together(imagined_cpu(), powers_below_smallest, 1 << 16, false);
    expect_together(imagined_cpu(), powers_below_others, 1 << 16, false);
    expect_together(imagined_cpu(), powers_below_no_number, 1 << 16, false);
    expect_together(imagined_cpu(), powers_stored, 1 << 16, false);
    expect_together(imagined_gpu(), powers_stored, 1 << 16, false);
    expect_together(imagined_cpu(), powers_of_running_sums, 1 << 13, false);
    expect_together(imagined_cpu(), variance, 1 << 16, false);
}

static void expect_cut(kiln_context *context, structure *record)
{
    size_t lengths[2];
    for (size_t i = 0; i < 2; i++) {
        kiln_batch *batch = kiln_batch_create(context);
        ask(batch, record(batch, i ? 1000 : 1, 1 << 18));
        struct kiln__plan plan = plan_of(batch, false);
        cr_assert_eq(plan.launches.count, 2u);
        lengths[i] = plan.launches.items[0].global[1];
        kiln__plan_free(&plan);
        kiln_batch_release(batch);
    }
    cr_expect_gt(lengths[0], 1u);
    cr_expect_eq(lengths[0], lengths[1]);
}

/* A row's segments are its length's, whatever is beside it. */
Test(schedule, cuts_segments_by_the_length_alone)
{
    expect_cut(imagined_gpu(), rows);
    expect_cut(imagined_gpu(), running_sums);
}

Test(schedule, cuts_long_running_sums_alone)
{
    kiln_context *gpu = imagined_gpu();
    cr_expect_eq(form_of(gpu, running_sums, 1, 1 << 18, 1).stage, KILN__STAGE_BEHIND);
    cr_expect_eq(form_of(gpu, running_sums, 1, (1 << 18) - 1, 0).stage, KILN__STAGE_WHOLE);
    cr_expect_eq(form_of(imagined_cpu(), running_sums, 1, 1 << 18, 0).stage, KILN__STAGE_WHOLE);
}
