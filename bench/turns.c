/* SPDX-License-Identifier: Apache-2.0 */
/* The child's half of `make bench-against`: rows and rounds as lines of text, so that two builds
 * take turns. */
#include "report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static FILE *answers;

void bench_turns_start(void)
{
    int output = dup(STDOUT_FILENO);
    answers = output < 0 ? NULL : fdopen(output, "w");
    if (!answers || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        bench_fail("standard output cannot be taken aside");
}

void bench_turns_row(const struct bench_row *row)
{
    fprintf(answers, "row\t%s", row->name);
    for (size_t w = 0; w < row->way_count; w++)
        fprintf(answers, "\t%s", row->ways[w].name);
    fputc('\n', answers);
    fflush(answers);
}

bool bench_turns_wanted(void)
{
    char line[16];
    return fgets(line, sizeof line, stdin) && strcmp(line, "next\n");
}

void bench_turns_round(const struct bench_row *row, const double *seconds, bool quiet)
{
    fprintf(answers, "round\t%d", quiet);
    for (size_t w = 0; w < row->way_count; w++)
        fprintf(answers, "\t%.9g", seconds[w]);
    fputc('\n', answers);
    fflush(answers);
}
