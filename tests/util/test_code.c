/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of statements and their printer; which kernels share a name and a text. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../support/context.h"
#include "../support/graph.h"
#include "codegen/codegen.h"
#include "plan/plan_builder.h"
#include "util/code.h"

static void expect(struct kiln__code *code, const char *expected)
{
    struct kiln__text text = {0};
    kiln__code_print(code, &text);
    cr_expect_str_eq(text.data, expected);
    kiln__text_free(&text);
}

Test(code, each_line_is_a_statement_to_the_last_of_which_an_expression_is_appended)
{
    struct kiln__code code = {.open = 0};
    kiln__text_add(kiln__code_add(&code, "int a = %d\nint b = ", 1), "a + %d", 2);
    expect(&code, "int a = 1;\nint b = a + 2;\n");
}

Test(code, blocks_are_further_in_and_lines_of_the_preprocessor_are_not)
{
    struct kiln__code code = {.open = 0};
    kiln__code_function(&code, "void f(int a,\nint b)");
    kiln__code_unroll(&code, 4);
    kiln__code_for(&code, "int i = 0; i < a; i++");
    kiln__code_leave(&code, "break", "i == b");
    kiln__code_add(&code, "g(i)");
    kiln__code_end(&code);
    kiln__code_end(&code);
    expect(&code, "void f(int a,\n    int b)\n{\n#pragma unroll 4\n"
                  "    for (int i = 0; i < a; i++) {\n        if (i == b)\n            break;\n"
                  "        g(i);\n    }\n}\n");
}

Test(code, one_without_braces_ends_with_its_statement)
{
    struct kiln__code code = {.open = 0};
    kiln__code_single(&code, KILN__FOR, "%s", ";;");
    kiln__code_single(&code, KILN__IF, "a");
    kiln__code_block(&code);
    kiln__code_add(&code, "b");
    kiln__code_end(&code);
    kiln__code_single(&code, KILN__ELSE, "%s", "");
    kiln__code_add(&code, "c");
    expect(&code, "for (;;)\n    if (a)\n        {\n            b;\n        }\nelse\n    c;\n");
}

/* ---- names and texts of kernels ---- */

/* Structures of one kernel; `n` and `m` are only sizes, `value` only a number. */
typedef kiln_tensor structure(kiln_batch *batch, size_t n, size_t m, double value);

#define STRUCTURE(name, expression)                                                                \
    static kiln_tensor name(kiln_batch *batch, size_t n, size_t m, double value)                   \
    {                                                                                              \
        kiln_tensor x = imagine_matrix(batch, n, m), y = imagine_matrix(batch, n, m);              \
        kiln_tensor row = imagine_vector(batch, m);                                                \
        (void)y, (void)row, (void)value;                                                           \
        return expression;                                                                         \
    }                                                                                              \
    structure name

STRUCTURE(adds, kiln_add(batch, x, y));
STRUCTURE(adds_row, kiln_add(batch, x, row));
STRUCTURE(subtracts, kiln_sub(batch, x, y));
STRUCTURE(squares, kiln_mul(batch, x, x));
STRUCTURE(scales, kiln_scale(batch, x, value));
STRUCTURE(turns, kiln_add(batch, kiln_transpose(batch, x, NULL), kiln_transpose(batch, y, NULL)));
STRUCTURE(turns_one, kiln_add(batch, kiln_transpose(batch, x, NULL),
                              kiln_reshape(batch, y, 2, (size_t[]){m, n})));
STRUCTURE(casts, kiln_cast(batch, x, KILN_I32));
STRUCTURE(casts_bytes, kiln_cast(batch, x, KILN_U8));
STRUCTURE(sums_rows, kiln_sum(batch, x, 1, (int[]){1}, 0));
STRUCTURE(sums_columns, kiln_sum(batch, x, 1, (int[]){0}, 0));
STRUCTURE(finds_rows, kiln_argmax(batch, x, 1, (int[]){1}, 0));
STRUCTURE(tops_rows, kiln_max(batch, x, 1, (int[]){1}, 0));
STRUCTURE(adds_up, kiln_tanh(batch, kiln_cumsum(batch, x, 0, 1)));
STRUCTURE(norms_rows, kiln_sqrt(batch, kiln_sum(batch, kiln_square(batch, x), 1, (int[]){1}, 0)));

static structure *const structures[] = {
    adds,        adds_row,  subtracts,    squares,    scales,    turns,      turns_one, casts,
    casts_bytes, sums_rows, sums_columns, finds_rows, tops_rows, norms_rows, adds_up,
};
enum { STRUCTURES = sizeof structures / sizeof *structures };

/* The name and the text of a kernel: the first, where a long reduction takes two. */
struct kernel {
    struct kiln__text name, source;
    bool wide;
};

static struct kernel kernel_of(kiln_context *context, structure *record, size_t n, size_t m,
                               double value)
{
    struct kernel kernel = {.wide = false};
    kiln_batch *batch = kiln_batch_create(context);
    ask(batch, record(batch, n, m, value));
    struct kiln__plan plan = plan_of(batch, true);
    cr_assert_geq(plan.launches.count, 1u);
    const struct kiln__launch *launch = &plan.launches.items[0];
    kiln__codegen_name(&plan, launch, false, &kernel.name);
    kiln__codegen_source(&plan, launch, false, &kernel.source);
    kernel.wide = launch->variant.wide;
    for (size_t i = 0; i < launch->arguments.count; i++)
        cr_expect_neq(launch->arguments.items[i].kind, KILN__ARGUMENT_OFFSET);
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
    return kernel;
}

static bool same_text(const struct kiln__text *a, const struct kiln__text *b)
{
    return a->length == b->length && !memcmp(a->data, b->data, a->length);
}

static void free_kernel(struct kernel *kernel)
{
    kiln__text_free(&kernel->name);
    kiln__text_free(&kernel->source);
}

static void expect_same_kernel(kiln_context *context, structure *record, size_t n, size_t m)
{
    struct kernel a = kernel_of(context, record, 160, 320, 2.5);
    struct kernel b = kernel_of(context, record, n, m, -7);
    cr_expect(same_text(&a.name, &b.name), "another name for %zu x %zu", n, m);
    cr_expect(same_text(&a.source, &b.source), "another text for %zu x %zu", n, m);
    free_kernel(&a);
    free_kernel(&b);
}

Test(kernels, do_not_depend_on_sizes_and_numbers)
{
    for (size_t i = 0; i < STRUCTURES; i++) {
        expect_same_kernel(imagined_cpu(), structures[i], 320, 480);
        expect_same_kernel(imagined_cpu(), structures[i], 480, 1600);
        expect_same_kernel(imagined_gpu(), structures[i], 320, 480);
    }
}

/* Names are what kernels are found by: equal names must mean equal texts, and the reverse. */
Test(kernels, have_one_name_for_one_text)
{
    enum { SIZES = 5, KERNELS = STRUCTURES * SIZES * 2 };
    static const size_t sizes[SIZES][2] = {{160, 320}, {7, 13}, {1, 5000}, {2, 5000}, {100000, 3}};
    static struct kernel kernels[KERNELS];
    for (size_t i = 0; i < KERNELS; i++)
        kernels[i] = kernel_of(i % 2 ? imagined_cpu() : imagined_gpu(), structures[i / 2 / SIZES],
                               sizes[i / 2 % SIZES][0], sizes[i / 2 % SIZES][1], 3);
    for (size_t i = 0; i < KERNELS; i++)
        for (size_t k = 0; k < i; k++) {
            bool names = same_text(&kernels[i].name, &kernels[k].name);
            bool texts = same_text(&kernels[i].source, &kernels[k].source);
            cr_assert(!names || texts, "kernels %zu and %zu share a name, not a text", k, i);
            cr_assert(names || !texts, "kernels %zu and %zu share a text, not a name", k, i);
        }
    for (size_t i = 0; i < KERNELS; i++)
        free_kernel(&kernels[i]);
}

/* Two sums of powers of one row, the second below its largest element or `value`. */
static kiln_tensor sums_powers_twice(kiln_batch *batch, size_t n, size_t m, double value)
{
    kiln_tensor x = imagine_matrix(batch, n, m);
    x = kiln_sub(batch, x, kiln_logsumexp(batch, x, 1, (int[]){1}, 1));
    kiln_tensor top = kiln_minimum(batch, kiln_max(batch, x, 1, (int[]){1}, 1),
                                   kiln_constant(batch, KILN_F32, value));
    return kiln_sum(batch, kiln_exp(batch, kiln_sub(batch, x, top)), 1, (int[]){1}, 0);
}

/* Below a finite number they may be added up in one visit with what finds the largest. */
Test(kernels, have_names_of_their_own_where_a_number_decides_their_text)
{
    struct kernel a = kernel_of(imagined_cpu(), sums_powers_twice, 2, 16384, 1);
    struct kernel b = kernel_of(imagined_cpu(), sums_powers_twice, 2, 16384, -INFINITY);
    cr_expect_not(same_text(&a.source, &b.source));
    cr_expect_not(same_text(&a.name, &b.name));
    free_kernel(&a);
    free_kernel(&b);
}

Test(kernels, differ_where_their_work_differs)
{
    for (size_t i = 0; i < STRUCTURES; i++)
        for (size_t k = 0; k < i; k++) {
            struct kernel a = kernel_of(imagined_cpu(), structures[i], 160, 320, 2);
            struct kernel b = kernel_of(imagined_cpu(), structures[k], 160, 320, 2);
            cr_assert_not(same_text(&a.name, &b.name), "%zu and %zu", i, k);
            cr_assert_not(same_text(&a.source, &b.source), "%zu and %zu", i, k);
            free_kernel(&a);
            free_kernel(&b);
        }
}

/* Number, order, types and values: the text says what the kernel takes. */
Test(kernels, take_the_arguments_that_launches_set)
{
    for (size_t i = 0; i < 2 * STRUCTURES; i++) {
        char wrong[KILN__WRONG] = "";
        kiln_batch *batch = kiln_batch_create(i % 2 ? imagined_cpu() : imagined_gpu());
        ask(batch, structures[i / 2](batch, 160, 320, 2));
        struct kiln__plan plan = plan_of(batch, true);
        cr_expect_eq(kiln__launches_verify(&plan, wrong), KILN_OK, "structure %zu: %s", i / 2,
                     wrong);
        kiln__plan_free(&plan);
        kiln_batch_release(batch);
    }
}

/* ---- large sizes ---- */

static kiln_tensor sums_many(kiln_batch *batch, size_t n, size_t m, double value)
{
    kiln_tensor x = kiln_broadcast(batch, imagine_matrix(batch, 1, m), 2, (size_t[]){n, m});
    (void)value;
    return kiln_sum(batch, x, 1, (int[]){0}, 0);
}

Test(kernels, index_with_64_bits_only_where_they_must)
{
    struct kernel narrow = kernel_of(imagined_gpu(), sums_many, 1 << 10, 1 << 10, 0);
    struct kernel wide = kernel_of(imagined_gpu(), sums_many, (size_t)1 << 31, 1 << 10, 0);
    cr_expect_not(narrow.wide);
    cr_expect(wide.wide);
    cr_expect_not(same_text(&narrow.name, &wide.name));
    cr_expect(strstr(wide.source.data, "long"));
    free_kernel(&narrow);
    free_kernel(&wide);
}
