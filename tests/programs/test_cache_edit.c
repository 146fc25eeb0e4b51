/* SPDX-License-Identifier: Apache-2.0 */
/* Edits of a program's binary: what a source asks for, and what comes of a text. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "programs/edit.h"

static char why[KILN__EDIT_WHY];

static void expect_edited(const char *source, const char *options, const char *text,
                          const char *wanted)
{
    char *edited = kiln__edit_apply(source, options, text, strlen(text), why);
    cr_assert(edited, "%s", why);
    cr_expect_str_eq(edited, wanted);
    free(edited);
}

static void expect_refused(const char *source, const char *text, const char *reason)
{
    cr_expect_null(kiln__edit_apply(source, "", text, strlen(text), why));
    cr_expect_str_eq(why, reason);
}

Test(cache_edit, a_source_says_in_a_line_of_its_own_that_it_wants_edits)
{
    cr_expect(kiln__edit_is_wanted("//edit 1 \"a\" \"b\"\n"));
    cr_expect(kiln__edit_is_wanted("int x;\n//edit 1 \"a\" \"b\"\n"));
    cr_expect_not(kiln__edit_is_wanted("int x; //edit 1 \"a\" \"b\"\n"));
    cr_expect_not(kiln__edit_is_wanted("// edit 1\n"));
    cr_expect_not(kiln__edit_is_wanted(""));
}

Test(cache_edit, what_is_there_as_often_as_it_should_be_is_replaced)
{
    expect_edited("//edit 1 \"sm_90,\" \"sm_90a,\"", "", ".target sm_90, x", ".target sm_90a, x");
    expect_edited("//edit 2 \"//!\" \"\"\n", "", "//!one;\n//!two;", "one;\ntwo;");
    expect_edited("//edit 2 \"aa\" \"b\"\n", "", "aaaaa", "bba");
}

Test(cache_edit, what_is_there_more_or_less_often_is_refused)
{
    expect_refused("//edit 1 \"x\" \"y\"\n", "a b c", "\"x\" is there 0 times, not 1");
    expect_refused("//edit 1 \"x\" \"y\"\n", "a x x", "\"x\" is there 2 times, not 1");
    expect_refused("//edit 3 \"x\" \"y\"\n", "a x x", "\"x\" is there 2 times, not 3");
    expect_refused("//edit 1 \"x\" \"y\"\n", "", "\"x\" is there 0 times, not 1");
}

Test(cache_edit, all_edits_follow_each_other_or_none_is_made)
{
    static const char two[] = "//edit 1 \"a\" \"b\"\nint x;\n//edit 2 \"b\" \"c\"\n";
    expect_edited(two, "", "a b", "c c");
    expect_refused(two, "a d", "\"b\" is there 1 times, not 2");
}

Test(cache_edit, a_name_behind_a_dollar_is_an_option)
{
    expect_edited("//edit 1 \"[1024]\" \"[$LOCAL]\"", "-w -DLOCALE=9 -DLOCAL=4711 -DX=1",
                  "m[1024];", "m[4711];");
    expect_edited("//edit $MARKS \"x\" \"y\"", "-DMARK=1 -DMARKS=3", "x x x", "y y y");
    expect_refused("//edit $MARKS \"x\" \"y\"", "x", "no edit: //edit $MARKS \"x\" \"y\"");
    expect_edited("//edit 1 \"x\" \"$NONE.$A\"", "-DA=b", "x", ".b");
}

Test(cache_edit, what_follows_a_zero_byte_is_not_the_text)
{
    static const char text[] = "a\0a";
    char *edited = kiln__edit_apply("//edit 1 \"a\" \"b\"", "", text, sizeof text, why);
    cr_assert(edited, "%s", why);
    cr_expect_str_eq(edited, "b");
    free(edited);
}

Test(cache_edit, a_line_that_is_no_edit_is_refused)
{
    expect_refused("//edit \"a\" \"b\"", "a", "no edit: //edit \"a\" \"b\"");
    expect_refused("//edit 1 \"a\"\n\"b\"", "a", "no edit: //edit 1 \"a\"");
    expect_refused("//edit 1 \"\" \"b\"", "a", "no edit: //edit 1 \"\" \"b\"");
}
