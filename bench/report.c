/* SPDX-License-Identifier: Apache-2.0 */
/* Output of benchmark rows: a table on the terminal, JSON in a file. */
#define _GNU_SOURCE
#include "report.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* figure = amount^exponent * scale * seconds^(more is better ? -1 : 1) */
static const struct unit {
    const char *name;
    double scale;
    bool per_amount, rate;
} units[] = {
    [BENCH_NS_PER_ELEMENT] = {"ns/element", 1e9, true, false},
    [BENCH_GFLOPS] = {"GFLOP/s", 1e-9, true, true},
    [BENCH_GB_PER_SECOND] = {"GB/s", 1e-9, true, true},
    [BENCH_MS] = {"ms", 1e3, false, false},
    [BENCH_US] = {"us", 1e6, false, false},
};

static json_t *report, *rows, *notes;
static size_t targets, met, marked;

static double figure_of(const struct bench_row *row, double seconds)
{
    const struct unit *unit = &units[row->unit];
    double amount = unit->per_amount ? row->amount : 1;
    return unit->scale * (unit->rate ? amount / seconds : seconds / amount);
}

static double read_load(void)
{
    double load[1] = {0};
    return getloadavg(load, 1) == 1 ? load[0] : 0;
}

static void join(char *text, size_t size, int argc, char **argv)
{
    size_t used = 0;
    for (int i = 0; i < argc && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " " : "", argv[i]);
}

static void start_json(const char *program, const char *command, const char *date,
                       const kiln_device_info *info, long cores)
{
    rows = json_array();
    report =
        json_pack("{s:s s:s s:s s:s s:s s:s s:s s:i s:f s:o}", "program", program, "command",
                  command, "date", date, "device", info->name, "platform", info->platform,
                  "platform_version", info->platform_version, "driver_version",
                  info->driver_version, "cores", (int)cores, "load", read_load(), "rows", rows);
    if (!report)
        bench_fail("out of memory");
}

void bench_report_header(const char *program, const char *purpose, kiln_context *context, int argc,
                         char **argv)
{
    kiln_device_info info;
    char command[400], date[32];
    time_t now = time(NULL);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    bench_ok(kiln_context_device(context, &info), "asking for the device");
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    join(command, sizeof command, argc, argv);
    printf("%s: %s\n", program, purpose);
    printf("  device   %s, %u compute units\n", info.name, info.compute_units);
    printf("  driver   %s %s, %s\n", info.platform, info.platform_version, info.driver_version);
    printf("  machine  %ld cores, load %.2f, %s\n", cores, read_load(), date);
    printf("  command  %s\n", command);
    fflush(stdout);
    start_json(program, command, date, &info, cores);
}

/* ---- remarks ---- */

static void remark(const char *format, va_list arguments)
{
    char text[300];
    vsnprintf(text, sizeof text, format, arguments);
    if (!notes)
        notes = json_array();
    json_array_append_new(notes, json_string(text));
}

void bench_note(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    remark(format, arguments);
    va_end(arguments);
}

void bench_mark(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    remark(format, arguments);
    va_end(arguments);
    marked++;
}

static json_t *print_remarks(void)
{
    json_t *all = notes ? notes : json_array();
    for (size_t i = 0; i < json_array_size(all); i++)
        printf("    ! %s\n", json_string_value(json_array_get(all, i)));
    notes = NULL;
    return all;
}

static void judge_alone(const struct bench_way *way, const struct bench_result *result)
{
    if (bench_is_off(result))
        bench_mark("%s takes %.3g ms at best here and %.3g ms alone (the pairs' middle: %.2f): "
                   "the row does not count",
                   way->name, 1e3 * result->best, 1e3 * result->alone, result->beside);
}

/* ---- rows ---- */

/* Peers have none. */
static struct limit limit_of_way(const struct bench_row *row, const struct bench_result *results,
                                 size_t way, struct limit common)
{
    if (row->ways[way].peer)
        return (struct limit){0, ""};
    for (size_t w = 0; w < row->way_count && row->ways[way].limit; w++)
        if (!strcmp(row->ways[w].name, row->ways[way].limit))
            return (struct limit){results[w].seconds, row->ways[w].name};
    return common;
}

static void report_way(const struct bench_row *row, const struct limit *limit,
                       const struct bench_way *way, const struct bench_result *result, json_t *list)
{
    double figure = figure_of(row, result->seconds);
    printf("  %-52s %10.4g  +-%2.0f%%", way->name, figure, 100 * result->spread);
    if (limit->seconds > 0)
        printf("  %3.0f%% of its limit: %s", 100 * limit->seconds / result->seconds, limit->of);
    putchar('\n');
    json_array_append_new(
        list, json_pack("{s:s s:f s:f s:f s:f s:f s:f s:b}", "way", way->name, "figure", figure,
                        "seconds", result->seconds, "spread", result->spread, "best", result->best,
                        "alone", result->alone, "beside", result->beside, "peer", way->peer));
    judge_alone(way, result);
}

static bool is_met(const struct bench_target *target, const struct bench_outcome *outcome)
{
    return target->at_most > 0 ? outcome->seconds <= target->at_most
                               : outcome->ratio >= target->at_least;
}

static void print_target(const struct bench_target *target, const struct bench_outcome *outcome,
                         const char *verdict)
{
    char names[128], wanted[48] = "";
    snprintf(names, sizeof names, "%s %s %s", target->way, target->in_seconds ? "-" : "/",
             target->peer);
    if (target->at_most > 0)
        snprintf(wanted, sizeof wanted, "at most %.3g us: ", 1e6 * target->at_most);
    else if (target->at_least > 0)
        snprintf(wanted, sizeof wanted, "at least %.3g: ", target->at_least);
    if (target->in_seconds)
        printf("    %-50s %10.2f us  %s%s\n", names, 1e6 * outcome->seconds, wanted, verdict);
    else
        printf("    %-50s %10.2f x   %s%s\n", names, outcome->ratio, wanted, verdict);
}

static void report_target(const struct bench_target *target, const struct bench_outcome *outcome,
                          json_t *list)
{
    bool wanted = target->at_most > 0 || target->at_least > 0;
    bool is = wanted && is_met(target, outcome);
    json_t *object = json_pack("{s:s s:s s:f s:f}", "way", target->way, "peer", target->peer,
                               "ratio", outcome->ratio, "seconds_on_top", outcome->seconds);
    print_target(target, outcome, !wanted ? "" : is ? "met" : "MISSED");
    if (wanted) {
        json_object_set_new(object, target->at_most > 0 ? "at_most" : "at_least",
                            json_real(target->at_most > 0 ? target->at_most : target->at_least));
        json_object_set_new(object, "met", json_boolean(is));
    }
    json_array_append_new(list, object);
    targets += wanted;
    met += is;
}

void bench_report_row(const struct bench_row *row, struct limit rows_limit,
                      const struct bench_result *results, const struct bench_outcome *outcomes,
                      size_t rounds, size_t quiet)
{
    json_t *ways = json_array(), *list = json_array();
    bench_progress(" ");
    printf("\n%-54s %10s\n", row->name, units[row->unit].name);
    struct limit first = limit_of_way(row, results, 0, rows_limit);
    for (size_t w = 0; w < row->way_count; w++) {
        struct limit limit = limit_of_way(row, results, w, rows_limit);
        report_way(row, &limit, &row->ways[w], &results[w], ways);
    }
    if (quiet < rounds)
        printf("    (something else ran during %zu of %zu rounds)\n", rounds - quiet, rounds);
    for (size_t t = 0; t < row->target_count; t++)
        report_target(&row->targets[t], &outcomes[t], list);
    json_array_append_new(
        rows, json_pack("{s:s s:s s:f s:i s:i s:f s:s s:o s:o s:o}", "row", row->name, "unit",
                        units[row->unit].name, "amount", row->amount, "rounds", (int)rounds,
                        "quiet_rounds", (int)quiet, "limit", first.seconds, "limit_of", first.of,
                        "ways", ways, "targets", list, "remarks", print_remarks()));
    fflush(stdout);
}

bool bench_report_end(const char *json)
{
    if (marked)
        printf("\n%zu marks: rows that have one do not count\n", marked);
    if (targets)
        printf("\n%zu of %zu targets met, load %.2f\n", met, targets, read_load());
    json_object_set_new(report, "targets", json_integer((json_int_t)targets));
    json_object_set_new(report, "met", json_integer((json_int_t)met));
    if (json && !strcmp(json, "-"))
        json_dumpf(report, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(5));
    else if (json && json_dump_file(report, json, JSON_INDENT(2) | JSON_REAL_PRECISION(5)))
        bench_fail("%s cannot be written", json);
    json_decref(report);
    return !marked;
}
