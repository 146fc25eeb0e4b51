/* SPDX-License-Identifier: Apache-2.0 */
/* Trees of statements and their printer. */
#include <criterion/criterion.h>

#include "codegen/code.h"

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
