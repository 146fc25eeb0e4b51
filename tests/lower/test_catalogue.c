/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue of kernels: each row has a name of its own, a text, and its line in the manual; and
 * what names a row by hand is checked against them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/graph.h"
#include "device/kernels.h"
#include "device/tunables.h"
#include "session/context.h"
#include "util/kernel_texts.h"

Test(catalogue, rows_have_names_and_texts)
{
    const struct kiln__kernel_row *kernel;
    for (size_t i = 0; (kernel = kiln__kernel(i)); i++) {
        cr_expect_eq(kiln__kernel_named(kernel->family, kernel->name), kernel, "%s", kernel->name);
        cr_expect(!*kernel->file || kiln__kernel_text(kernel->file), "%s", kernel->file);
        cr_expect_eq(kiln__kernel_number(kernel), i);
    }
    cr_expect_null(kiln__kernel_of(KILN__KERNEL_PRODUCT, KILN__PRODUCT_KERNELS - 1));
    cr_expect_str_eq(kiln__kernel_of(KILN__KERNEL_PRODUCT, KILN__BY_packed - 1)->name, "packed");
}

/* A page of doc/. */
static const char *read_page(const char *name)
{
    static char page[1 << 16];
    char path[4096];
    const char *folder = getenv("top_srcdir") ? getenv("top_srcdir") : getenv("srcdir");
    snprintf(path, sizeof path, "%s/doc/%s", folder ? folder : ".", name);
    FILE *file = fopen(path, "r");
    cr_assert(file, "%s", path);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    return page;
}

Test(catalogue, names_of_products_stand_in_the_manual_of_the_program)
{
    const char *manual = strstr(read_page("kiln.1"), "\n.B KILN_MATMUL\n");
    cr_assert(manual);
    for (size_t i = 0; i < KILN__PRODUCT_KERNELS - 1; i++) {
        char name[64];
        snprintf(name, sizeof name, " %s ", kiln__kernel_of(KILN__KERNEL_PRODUCT, i)->name);
        const char *found = strstr(manual, name), *end = strstr(manual, "\n.TP");
        cr_expect(found && (!end || found < end), "KILN_MATMUL in doc/kiln.1 lacks%s", name);
    }
}

/* What a kernel is, without "a " or "an ", its name and what it is for. */
Test(catalogue, rows_stand_in_the_manual)
{
    char line[512], number[16];
    const char *manual = read_page("kernels.md");
    const struct kiln__kernel_row *kernel;
    for (size_t i = 0; (kernel = kiln__kernel(i)); i++) {
        const char *of = strchr(kiln__kernel_family_name(kernel->family), ' ') + 1;
        snprintf(number, sizeof number, " (%zu)", i + 1);
        snprintf(line, sizeof line, "| %s | `%s`%s | %s%s%s | %s |", of, kernel->name,
                 kernel->family == KILN__KERNEL_PRODUCT ? number : "", *kernel->file ? "`" : "",
                 kernel->file, *kernel->file ? ".cl`" : "", kernel->purpose);
        cr_expect(strstr(manual, line), "doc/kernels.md lacks \"%s\"", line);
    }
}

static void expect_tuned(const kiln_context *context, const char *words, unsigned product)
{
    struct kiln__traits traits = *context->runtime.device.traits;
    bool applied = kiln__tunable_apply(&context->runtime.device, words, &traits);
    cr_expect_eq(applied, product != 0, "%s", words);
    cr_expect_eq(traits.product, product, "%s", words);
}

Test(catalogue, tuning_takes_rows_of_the_device_alone)
{
    kiln_context *cpu = imagined_cpu(), *gpu = imagined_gpu();
    char named[32], beyond[32];
    expect_tuned(cpu, "product=packed", KILN__BY_packed);
    snprintf(named, sizeof named, "product=%d,tile=1", KILN__BY_packed);
    expect_tuned(cpu, named, KILN__BY_packed);
    expect_tuned(gpu, "product tiled", KILN__BY_tiled);
    expect_tuned(gpu, "product=packed", 0);
    expect_tuned(cpu, "product=tiled", 0);
    snprintf(beyond, sizeof beyond, "product=%d", KILN__PRODUCT_KERNELS);
    expect_tuned(cpu, beyond, 0);
    expect_tuned(gpu, beyond, 0);
    expect_tuned(cpu, "product=pack", 0);
    expect_tuned(cpu, "product=9packed", 0);
    expect_tuned(cpu, "product=", 0);
    expect_tuned(cpu, "tile=packed", 0);
}

Test(catalogue, is_listed_where_a_value_is_not_understood)
{
    struct kiln__text text = {0};
    kiln__tunables_list(&imagined_cpu()->runtime.device, &text);
    cr_expect(strstr(text.data, "product (1 im2col, 3 blocks, "), "%s", text.data);
    cr_expect_null(strstr(text.data, "wgmma"), "%s", text.data);
    kiln__text_free(&text);
}

/* Lines of so many elements, of which so many are kept, and the kernels for them: the first
 * launch's row on both devices, and how many launches there are. */
Test(catalogue, sorts_by_their_lines)
{
    static const struct {
        size_t lines, extent, kept;
        const char *cpu, *gpu;
        size_t launches[2];
    } rows[] = {{4, 1000, 1000, "lines", "blocks", {1, 1}},
                {4, 5000, 5000, "lines", "tiles", {1, 12}},
                {4, 5000, 20, "lines", "first", {1, 1}},
                {4, 5000, 2000, "lines", "tiles", {1, 12}},
                {1, 1 << 20, 1 << 20, "digits", "tiles", {8, 12}},
                {1, 1 << 20, 50, "lines", "first", {2, 2}},
                {64, 1 << 20, 1 << 20, "lines", "tiles", {1, 12}},
                {200, 1 << 20, 50, "lines", "first", {1, 2}}};
    kiln_context *devices[] = {imagined_cpu(), imagined_gpu()};
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const size_t shape[] = {rows[i / 2].lines, rows[i / 2].extent};
        kiln_batch *batch = kiln_batch_create(devices[i % 2]);
        kiln_tensor at = {0};
        kiln_topk(batch, imagine(batch, 2, shape), rows[i / 2].kept, 1, 0, &at);
        ask(batch, at);
        struct kiln__plan plan = plan_of(batch, false);
        cr_expect_eq(plan.launches.count, rows[i / 2].launches[i % 2], "row %zu: %zu", i / 2,
                     plan.launches.count);
        cr_expect_str_eq(plan.launches.items[0].choice.taken->name,
                         i % 2 ? rows[i / 2].gpu : rows[i / 2].cpu, "row %zu", i / 2);
        kiln__plan_free(&plan);
        kiln_batch_release(batch);
    }
}

/* Scatters of so many indices into so many rows, and the kernels for them: the first launch's row
 * on both devices, and how many launches there are. */
Test(catalogue, scatters_by_their_indices)
{
    static const struct {
        kiln_type type;
        kiln_scatter_mode mode;
        size_t count, extent, inner;
        const char *cpu, *gpu;
        size_t launches[2];
    } rows[] = {{KILN_I32, KILN_SCATTER_ADD, 100000, 64, 1, "parts", "atomics", {2, 1}},
                {KILN_I64, KILN_SCATTER_ADD, 100, 64, 1, "strips", "atomics", {1, 1}},
                {KILN_I32, KILN_SCATTER_ADD, 100, 64, 8, "strips", "marks", {1, 1}},
                {KILN_F32, KILN_SCATTER_SET, 100, 64, 1, "strips", "marks", {1, 1}},
                {KILN_F32, KILN_SCATTER_SET, 1 << 20, 1000, 1, "strips", "winners", {1, 3}},
                {KILN_U8, KILN_SCATTER_SET, 3000, 100000, 8, "strips", "winners", {1, 3}},
                {KILN_F32, KILN_SCATTER_ADD, 1000, 50000, 256, "strips", "marks", {1, 1}},
                {KILN_F32, KILN_SCATTER_ADD, 6000, 200, 8, "strips", "marks", {1, 1}},
                {KILN_F32, KILN_SCATTER_ADD, 7000, 200, 8, "strips", "sorted", {1, 5}},
                {KILN_I32, KILN_SCATTER_MIN, 20000, 50000, 1, "strips", "atomics", {1, 1}},
                {KILN_F32, KILN_SCATTER_MIN, 20000, 50000, 1, "strips", "sorted", {1, 8}},
                {KILN_U8, KILN_SCATTER_ADD, 20000, 1 << 24, 1, "strips", "sorted", {1, 14}}};
    kiln_context *devices[] = {imagined_cpu(), imagined_gpu()};
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        const size_t row = i / 2, into[] = {rows[row].extent, rows[row].inner};
        const size_t values[] = {rows[row].count, rows[row].inner};
        kiln_batch *b = kiln_batch_create(devices[i % 2]);
        kiln_tensor x = kiln_cast(b, imagine(b, 2, into), rows[row].type);
        kiln_tensor v = kiln_cast(b, imagine(b, 2, values), rows[row].type);
        kiln_tensor at = kiln_cast(b, imagine(b, 1, values), KILN_I32);
        ask(b, kiln_scatter(b, x, at, v, 0, rows[row].mode));
        struct kiln__plan plan = plan_of(b, false);
        const char *taken = NULL;
        size_t launches = 0;
        for (size_t l = 0; l < plan.launches.count; l++)
            if (kiln__launch_is_by(&plan.launches.items[l], KILN__KERNEL_SCATTER)) {
                taken = plan.launches.items[l].choice.taken->name;
                launches++;
            }
        cr_expect_eq(launches, rows[row].launches[i % 2], "row %zu: %zu", row, launches);
        cr_expect_str_eq(taken, i % 2 ? rows[row].gpu : rows[row].cpu, "row %zu", row);
        kiln__plan_free(&plan);
        kiln_batch_release(b);
    }
}

/* Which kernel an attention and a product are by, and what would be next. */
Test(catalogue, tells_what_is_taken_and_what_is_next)
{
    kiln_context *cpu = imagined_cpu();
    const size_t dims[] = {2, 40, 32};
    kiln_batch *batch = kiln_batch_create(cpu);
    kiln_tensor x = imagine(batch, 3, dims);
    ask(batch, kiln_attention(batch, x, x, x, (kiln_tensor){0}, NULL));
    ask(batch, kiln_matmul(batch, imagine_matrix(batch, 16, 200), imagine_matrix(batch, 200, 100)));
    struct kiln__plan plan = plan_of(batch, false);
    cr_assert_eq(plan.launches.count, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct kiln__selection *choice = &plan.launches.items[i].choice;
        const bool product = kiln__launch_is_by(&plan.launches.items[i], KILN__KERNEL_PRODUCT);
        cr_expect_str_eq(choice->taken->name, product ? "small" : "items");
        cr_expect_eq(choice->reason, KILN__REASON_CHEAPEST);
        if (product)
            cr_expect_str_eq(choice->next->name, "packed");
        else
            cr_expect_null(choice->next);
    }
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
}
