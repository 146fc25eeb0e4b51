/* SPDX-License-Identifier: Apache-2.0 */
/* A program in a locale with a decimal comma: what kiln writes and reads is as in any other. The
 * locale is made for the test where none is installed. */
#include <criterion/criterion.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/graph.h"
#include "executor/tune_batches.h"
#include "session/explain.h"
#include "util/format.h"

#define MADE "de_DE.UTF-8"

static bool has_comma(const char *name)
{
    return setlocale(LC_ALL, name) && !strcmp(localeconv()->decimal_point, ",");
}

/* Of the files of which all locales are made; once for all tests, whichever comes first. */
static void make_locale(void)
{
    const char *below = getenv("TMPDIR");
    char folder[300], made[340], command[800];
    snprintf(folder, sizeof folder, "%s/locales", below ? below : "/tmp");
    setenv("LOCPATH", folder, 1);
    if (!access(folder, R_OK)) /* a name that was not found once is not looked for again */
        return;
    snprintf(made, sizeof made, "%s.%d", folder, (int)getpid());
    snprintf(command, sizeof command,
             "mkdir '%s' && localedef -c -i de_DE -f UTF-8 '%s/" MADE "' >/dev/null 2>&1", made,
             made);
    cr_log_info("localedef ended with %d", system(command));
    if (rename(made, folder))
        setenv("LOCPATH", made, 1); /* another test was quicker */
}

static void take_comma(void)
{
    if (has_comma(MADE) || has_comma("de_DE.utf8") || has_comma("fr_FR.UTF-8"))
        return;
    make_locale();
    if (!has_comma(MADE))
        cr_skip("no locale with a decimal comma, and no localedef that makes one");
}

Test(locale, numbers_have_a_point)
{
    char text[64], *end;
    take_comma();
    snprintf(text, sizeof text, "%g", 0.5);
    cr_expect_str_eq(text, "0,5", "the program's own numbers have a comma");
    cr_expect_eq(kiln__format(text, sizeof text, "%g %.3f", 0.5, 1234.5678), 12);
    cr_expect_str_eq(text, "0.5 1234.568");
    cr_expect_eq(kiln__parse_double("0.75 of it", &end), 0.75);
    cr_expect_str_eq(end, " of it");
    kiln__parse_double("0,75", &end);
    cr_expect_str_eq(end, ",75");
    snprintf(text, sizeof text, "%g", 0.5);
    cr_expect_str_eq(text, "0,5", "the program has its locale again");
}

Test(locale, variables_are_read)
{
    static const char *const variables[] = {"KILN_VALIDATE", "KILN_CHECK_VALUES"};
    take_comma();
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        kiln_context *context = NULL;
        setenv(variables[i], "0.5", 1);
        kiln_status status = kiln_context_create(NULL, &context);
        if (status == KILN_NO_DEVICE)
            cr_skip("no OpenCL device here");
        cr_expect_eq(status, KILN_OK, "%s", kiln_last_error());
        kiln_context_release(context);
        setenv(variables[i], "0,5", 1);
        cr_expect_eq(kiln_context_create(NULL, &context), KILN_INVALID_ARGUMENT);
        cr_expect(strstr(kiln_last_error(), "\"0,5\""), "%s", kiln_last_error());
        unsetenv(variables[i]);
    }
}

Test(locale, sentences_have_a_point)
{
    take_comma();
    kiln_batch *batch = imagined_batch();
    kiln_arange(batch, KILN_F32, 0.25, 1, 0);
    cr_expect(strstr(kiln_batch_error(batch), "0.25"), "%s", kiln_batch_error(batch));
    kiln_batch_release(batch);
}

/* All that is said of a batch, its kernels' texts too. */
static char *said(void)
{
    kiln_batch *batch = imagined_batch();
    struct kiln__text text = {0};
    char *explained;
    kiln_tensor x = imagine_matrix(batch, 30, 1500);
    kiln_tensor y = kiln_cast(batch, kiln_scale(batch, kiln_gelu(batch, x), 0.37), KILN_I8);
    ask(batch, kiln_cast(batch, y, KILN_F16));
    ask(batch, kiln_softmax(batch, kiln_clamp(batch, x, -0.25, 3.75), 1, (int[]){1}));
    ask(batch, kiln_fill(batch, KILN_BF16, 1, (size_t[]){7}, 0.1));
    cr_assert_eq(kiln_batch_explain(batch, &explained), KILN_OK, "%s", kiln_last_error());
    kiln__text_add(&text, "%s", explained);
    kiln_free(explained);
    struct kiln__plan plan = plan_of(batch, true);
    kiln__explain_summary(&batch->graph, &plan, &text);
    kiln__explain_json(&batch->graph, &plan, &text);
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
    return kiln__text_take(&text);
}

Test(locale, kernels_and_explanations_are_the_same)
{
    char *plain = said();
    take_comma();
    char *with_comma = said();
    cr_expect(strstr(plain, "0.37"));
    cr_expect_str_eq(with_comma, plain);
    free(plain);
    free(with_comma);
}

Test(locale, records_are_the_same)
{
    const size_t rows[] = {2, 4};
    const double seconds[] = {1.5e-5, 2.25};
    double found[2] = {0};
    struct kiln__text text = {0};
    take_comma();
    kiln__tune_write(rows, seconds, 2, &text);
    cr_expect_str_eq(text.data, "2 rows 1.5e-05 s, 4 rows 2.25 s");
    cr_expect(kiln__tune_read(text.data, rows, 2, found));
    cr_expect_arr_eq(found, seconds, sizeof seconds);
    kiln__text_free(&text);
}
