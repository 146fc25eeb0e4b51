/* SPDX-License-Identifier: Apache-2.0 */
/* Works, which are kernels by kind and sizes: their names, and values that are tuned for one, on a
 * CPU and on a GPU that exist only here. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "../support/graph.h"
#include "lower/matmul.h"
#include "lower/workload.h"
#include "session/compile.h"
#include "session/context.h"

typedef kiln_tensor structure(kiln_batch *batch);

#define STRUCTURE(name, expression)                                                                \
    static kiln_tensor name(kiln_batch *batch)                                                     \
    {                                                                                              \
        return expression;                                                                         \
    }                                                                                              \
    structure name

#define X(m, n) imagine_matrix(batch, m, n)
#define TURNED(m, n) kiln_transpose(batch, X(m, n), NULL)
#define CUBE(a, b, c) imagine(batch, 3, (size_t[]){a, b, c})

STRUCTURE(map, kiln_relu(batch, X(30, 50)));
STRUCTURE(spread, kiln_add(batch, X(30, 50), imagine_vector(batch, 50)));
STRUCTURE(turned, kiln_scale(batch, TURNED(300, 500), 2));
STRUCTURE(sums, kiln_sum(batch, X(30, 5000), 1, (int[]){1}, 0));
STRUCTURE(sum, kiln_sum(batch, imagine_vector(batch, 7000000), 0, NULL, 0));
STRUCTURE(column_sums, kiln_sum(batch, X(5000, 30), 1, (int[]){0}, 0));
STRUCTURE(softmax, kiln_softmax(batch, X(30, 1000), 1, (int[]){1}));
STRUCTURE(column_softmax, kiln_softmax(batch, X(1000, 30), 1, (int[]){0}));
STRUCTURE(running, kiln_cumsum(batch, X(30, 1000), 1, 0));
STRUCTURE(product, kiln_matmul(batch, X(300, 2000), X(2000, 256)));
STRUCTURE(product_nt, kiln_matmul(batch, X(300, 2000), TURNED(256, 2000)));
STRUCTURE(product_tn, kiln_matmul(batch, TURNED(2000, 300), X(2000, 256)));
STRUCTURE(products, kiln_matmul(batch, CUBE(8, 300, 70), CUBE(8, 70, 90)));
STRUCTURE(attention, kiln_attention(batch, CUBE(6, 100, 32), CUBE(6, 90, 32), CUBE(6, 90, 48),
                                    (kiln_tensor){0}, NULL));
STRUCTURE(order, kiln_argsort(batch, X(30, 50), 1, 0));

static struct kiln__plan plan_by(kiln_context *context, structure *record, bool batch_invariant,
                                 const char *line)
{
    struct kiln__tuning tuning = {0};
    struct kiln__plan plan;
    const struct kiln__device *device = &context->runtime.device;
    struct kiln__plan_options options = {.device = device, .tuning = &tuning};
    kiln_batch *batch = kiln_batch_create(context);
    cr_assert(!*line || !kiln__tuning_add(device, line, strlen(line), &tuning), "%s", line);
    ask(batch, record(batch));
    batch->graph.batch_invariant = batch_invariant;
    cr_assert_eq(kiln__compile_plan(&batch->graph, &options, NULL, &plan, NULL), KILN_OK, "%s: %s",
                 line, kiln_last_error());
    kiln__tuning_free(&tuning);
    kiln_batch_release(batch);
    return plan;
}

/* ---- names ---- */

static void expect_work(kiln_context *context, structure *record, const char *wanted)
{
    struct kiln__plan plan = plan_by(context, record, false, "");
    struct kiln__text text = {0};
    kiln__plan_work(&plan, (uint32_t)plan.fusion.groups.count - 1, &text);
    cr_expect_str_eq(text.data, wanted);
    kiln__text_free(&text);
    kiln__plan_free(&plan);
}

Test(works, are_named_by_kind_and_sizes)
{
    kiln_context *devices[] = {imagined_cpu(), imagined_gpu()};
    for (size_t i = 0; i < 2; i++) {
        expect_work(devices[i], map, "map 1500");
        expect_work(devices[i], spread, "map 30x50");
        expect_work(devices[i], turned, "transpose 500x300");
        expect_work(devices[i], sums, "reduce 30x5000");
        expect_work(devices[i], sum, "reduce 1x7000000");
        expect_work(devices[i], column_sums, "reduce 30x5000 columns");
        expect_work(devices[i], softmax, "rows 30x1000");
        expect_work(devices[i], column_softmax, "rows 30x1000 columns");
        expect_work(devices[i], running, "scan 30x1000");
        expect_work(devices[i], product, "product 300x2000x256 nn");
        expect_work(devices[i], product_nt, "product 300x2000x256 nt");
        expect_work(devices[i], product_tn, "product 300x2000x256 tn");
        expect_work(devices[i], products, "product 8x300x70x90 nn");
        expect_work(devices[i], attention, "attention 6x100x90x32x48");
        expect_work(devices[i], order, "sort 30x50");
    }
}

/* ---- values ---- */

/* What tells launches apart: kernels, sizes and forms. */
static void describe(const struct kiln__plan *plan, char text[2000])
{
    size_t at = 0;
    for (size_t i = 0; i < plan->launches.count; i++) {
        const struct kiln__launch *launch = &plan->launches.items[i];
        at += (size_t)snprintf(text + at, 2000 - at, "%s %s %zux%zux%zu of %zu,", launch->kernel,
                               launch->options, launch->global[0], launch->global[1],
                               launch->global[2], launch->local[0]);
        const unsigned char *variant = (const unsigned char *)&launch->variant;
        for (size_t k = 0; k < sizeof launch->variant; k++)
            at +=
                (size_t)snprintf(text + at, 2000 - at, variant[k] ? "%zu:%u " : "", k, variant[k]);
    }
}

static bool changes(kiln_context *context, structure *record, bool batch_invariant,
                    const char *line)
{
    char usual[2000], tuned[2000];
    struct kiln__plan plan = plan_by(context, record, batch_invariant, "");
    describe(&plan, usual);
    kiln__plan_free(&plan);
    plan = plan_by(context, record, batch_invariant, line);
    describe(&plan, tuned);
    cr_expect(!strstr(line, "unknown"));
    bool same = plan.options.device == &context->runtime.device;
    cr_expect(same, "the device's own traits are in their place again");
    kiln__plan_free(&plan);
    return strcmp(usual, tuned) != 0;
}

static void expect_changes(kiln_context *context, structure *record, const char *line)
{
    cr_expect(changes(context, record, false, line), "%s", line);
}

static void expect_none(kiln_context *context, structure *record, bool batch_invariant,
                        const char *line)
{
    cr_expect_not(changes(context, record, batch_invariant, line), "%s", line);
}

Test(works, have_values_of_their_own_on_a_cpu)
{
    kiln_context *cpu = imagined_cpu();
    char line[80];
    snprintf(line, sizeof line, "product 300x2000x256 nn: product %d", KILN__BY_small);
    expect_changes(cpu, product, line);
    expect_changes(cpu, product, "product 300x2000x256 nn: product small");
    expect_changes(cpu, product, "product 300x2000x256 nn: tile 2");
    expect_changes(cpu, product, "product 300x2000x256 nn: depth 128, share 4");
    expect_changes(cpu, column_sums, "reduce 30x5000 columns: rows 2");
    expect_changes(cpu, sums, "reduce 30x5000: segment 1024");
    expect_changes(cpu, softmax, "rows 30x1000: vector 8");
    expect_changes(cpu, attention, "attention 6x100x90x32x48: tile 1");
    expect_none(cpu, product, false, "product 300x2000x257 nn: tile 2");
}

Test(works, have_values_of_their_own_on_a_gpu)
{
    kiln_context *gpu = imagined_gpu();
    expect_changes(gpu, product, "product 300x2000x256 nn: tile 1");
    expect_changes(gpu, product, "product 300x2000x256 nn: splits 16");
    expect_changes(gpu, softmax, "rows 30x1000: lanes 32");
    expect_changes(gpu, softmax, "rows 30x1000: held 1");
    expect_changes(gpu, sum, "reduce 1x7000000: segment 4096, work_group 64");
    expect_changes(gpu, turned, "transpose 500x300: edge 32");
    expect_changes(gpu, running, "scan 30x1000: carried 16");
    expect_changes(gpu, attention, "attention 6x100x90x32x48: tile 4");
    expect_none(gpu, product, false, "product 8x300x2000x256 nn: tile 1");
}

/* Values that no kernel has room for are as none. */
Test(works, go_by_their_rule_where_a_value_does_not_fit)
{
    expect_none(imagined_gpu(), product, false, "product 300x2000x256 nn: tile 8");
    expect_none(imagined_cpu(), product, false, "product 300x2000x256 nn: tile 8");
}

/* An equal row in a batch of another size is to have the same bits. */
Test(works, keep_the_order_of_sums_where_they_have_to_be_alike)
{
    expect_none(imagined_gpu(), product, true, "product 300x2000x256 nn: splits 16");
    expect_none(imagined_gpu(), softmax, true, "rows 30x1000: lanes 32, held 1, vector 1");
    expect_none(imagined_gpu(), attention, true, "attention 6x100x90x32x48: tile 4");
    expect_none(imagined_cpu(), product, true, "product 300x2000x256 nn: depth 128");
    expect_none(imagined_cpu(), sum, true, "reduce 1x7000000: segment 1024, vector 4");
    cr_expect(changes(imagined_gpu(), product, true, "product 300x2000x256 nn: tile 1"));
    cr_expect(changes(imagined_cpu(), product, true, "product 300x2000x256 nn: tile 2"));
}

/* ---- lines ---- */

Test(works, take_no_line_that_is_not_understood)
{
    static const char *const lines[] = {"",
                                        "rows 30x1000",
                                        "rows 30x1000:",
                                        "rows 30x1000: ",
                                        "rows 30x1000: vector",
                                        "rows 30x1000: vector 5",
                                        "product 300x2000x256 nn: product 16",
                                        "rows 30x1000: abacus 7",
                                        "rows 30x1000: vector 4, abacus 7",
                                        "rows 30x1000:vector 4",
                                        ": vector 4"};
    struct kiln__tuning tuning = {0};
    const struct kiln__device *device = &imagined_cpu()->runtime.device;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_expect_eq(kiln__tuning_add(device, lines[i], strlen(lines[i]), &tuning),
                     KILN_INVALID_ARGUMENT, "%s", lines[i]);
    cr_expect_eq(tuning.works.count, 0u);
    kiln__tuning_free(&tuning);
}
