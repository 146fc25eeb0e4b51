/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that `kiln tune` prints as it searches. */
#include "tune_report.h"

#include <math.h>

#include "columns.h"

static void print_table(const struct tune_gain *gains, size_t count, bool compares)
{
    double sum = 0;
    size_t beyond = 0;
    printf("\n%-36s %10s %10s %8s  %s\n", "tuned, beside the usual", "usual ms", "tuned ms",
           compares ? "tuned/us" : "times as", "values");
    for (size_t i = 0; i < count; i++) {
        double share = gains[i].share;
        const int printed =
            printf("%-36s %10.4g %10.4g %8.2f  ", gains[i].name, 1e3 * gains[i].seconds / share,
                   1e3 * gains[i].seconds, compares ? share : 1 / share);
        kiln__tool_print_rest(printed, "%s", gains[i].values);
        sum += log(share);
        beyond += share < 0.8;
    }
    if (!count)
        return;
    double mean = exp(sum / (double)count);
    printf("%-36s %10s %10s %8.2f\n", "all (geometric mean)", "", "", compares ? mean : 1 / mean);
    if (compares)
        printf("%zu of %zu works take the usual values more than 1.25 times as long as the tuned\n",
               beyond, count);
}

/* A work that could not be timed takes no number of milliseconds; JSON has no infinity. */
static void print_milliseconds(const char *name, double seconds)
{
    if (isfinite(seconds))
        printf("\"%s\": %.6g, ", name, 1e3 * seconds);
    else
        printf("\"%s\": null, ", name);
}

static void print_json(const struct tune_gain *gains, size_t count)
{
    printf("[");
    for (size_t i = 0; i < count; i++) {
        printf("%s\n {\"work\": \"%s\", ", i ? "," : "", gains[i].name);
        print_milliseconds("usual_ms", gains[i].seconds / gains[i].share);
        print_milliseconds("tuned_ms", gains[i].seconds);
        printf("\"tuned_over_usual\": %.4f, \"values\": \"%s\"}", gains[i].share, gains[i].values);
    }
    printf("\n]\n");
}

/* Of the device as a whole: "vector 8, chunks 4", or why there is nothing to name. */
static void say_kept_values(const struct tune_search *search)
{
    const struct tune_record *record = search->record;
    size_t kept = 0;
    fputs("kept for this device: ", search->progress);
    for (size_t i = 0; i < record->count; i++)
        if (record->tunables[i].value != record->tunables[i].usual)
            fprintf(search->progress, "%s%s %u", kept++ ? ", " : "", record->tunables[i].name,
                    record->tunables[i].value);
    if (kept)
        fputs("; the usual values of all others were as fast\n", search->progress);
    else if (search->measured)
        fputs("the usual values, which were as fast as all others\n", search->progress);
    else
        fputs(search->left ? "the usual values; no others were measured this time\n"
                           : "the usual values; all others were measured before, and no faster\n",
              search->progress);
}

static void say_kept_works(const struct tune_search *search, const struct tune_gain *gains,
                           size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        kept += *gains[i].values != 0;
    if (kept == count)
        fprintf(search->progress, "kept: values of %zu work%s\n", kept, kept == 1 ? "" : "s");
    else
        fprintf(search->progress,
                "kept: values of %zu of %zu work%s; for the others none was faster\n", kept, count,
                count == 1 ? "" : "s");
}

/* The last words: what programs find from now on, and why not more. */
static void say_kept(const struct tune_search *search, const struct tune_report *report,
                     const struct tune_gain *gains, size_t count)
{
    if (search->left)
        fprintf(search->progress, "%zu candidates are left for the next time\n", search->left);
    if (!search->keeps)
        fputs("kept: nothing, as --compare only compares\n", search->progress);
    else if (report->of_works)
        say_kept_works(search, gains, count);
    else
        say_kept_values(search);
}

void tune_report(const struct tune_search *search, const struct tune_report *report,
                 const struct tune_gain *gains, size_t count)
{
    if (report->json)
        print_json(gains, count);
    else
        print_table(gains, count, report->compares);
    say_kept(search, report, gains, count);
}
