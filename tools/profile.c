/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln profile`: runs a program with $KILN_TRACE naming a file, to which the library writes a span
 * for each launch and transfer, and shows where the device's time went. */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "columns.h"
#include "profile.h"
#include "suggest.h"
#include "tool.h"

#define EXIT_USAGE 2

struct request {
    const char *trace; /* NULL: in a temporary file */
    const char *svg;   /* NULL: no picture */
    bool json, no_peaks, by_name;
    unsigned long rows;
    char **program; /* with its arguments, NULL-terminated */
};

enum { OPTION_SVG = 256, OPTION_NO_PEAKS };

static const struct argp_option options[] = {
    {"by-name", 'b', 0, 0, "A row for each name that the program gives, not for each kernel", 0},
    {"json", 'j', 0, 0, "Print an object instead of a table", 0},
    {"no-peaks", OPTION_NO_PEAKS, 0, 0, "Do not measure what the device reaches", 0},
    {"rows", 'n', "COUNT", 0, "Show so many rows, the longest first (20; 0: all)", 0},
    {"svg", OPTION_SVG, "FILE", 0, "Draw the rows as bars in FILE", 0},
    {"trace", 't', "FILE", 0, "Leave the trace in FILE, for ui.perfetto.dev", 0},
    {0},
};

/* What follows the program's name is the program's own. */
static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct request *request = state->input;
    char *end = NULL;
    switch (key) {
    case 'b': request->by_name = true; return 0;
    case 'j': request->json = true; return 0;
    case OPTION_NO_PEAKS: request->no_peaks = true; return 0;
    case 'n':
        errno = 0;
        request->rows = strtoul(arg, &end, 10);
        if (end == arg || *end || errno || *arg == '-')
            argp_error(state, "\"%s\" is no number of rows", arg);
        return 0;
    case OPTION_SVG: request->svg = arg; return 0;
    case 't': request->trace = arg; return 0;
    case ARGP_KEY_ARG:
        request->program = state->argv + state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "a program to run is missing"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void complain(const char *what)
{
    fprintf(stderr, "kiln profile: %s: %s\n", what, strerror(errno));
}

static bool is_empty(const char *path)
{
    FILE *file = fopen(path, "re");
    bool empty = !file || fgetc(file) == EOF;
    if (file)
        fclose(file);
    return empty;
}

/* ---- showing ---- */

static size_t rows_of(const struct request *request, const struct kiln__profile *profile)
{
    return request->rows && request->rows < profile->count ? request->rows : profile->count;
}

/* Of lines below a row: under its last column, where there is room for that. */
static int indent(void)
{
    return printf("%*s", kiln__tool_width() < 65 + 30 ? 12 : 65, "");
}

/* The first few. */
static void print_names(json_t *names)
{
    char text[512] = "";
    size_t told = 0, length = 0;
    const char *name;
    json_t *nothing;
    json_object_foreach(names, name, nothing)
    {
        if (told < 3 && length < sizeof text)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%s",
                                       told ? ", " : "", name);
        told++;
    }
    if (told > 3)
        kiln__tool_print_rest(indent(), "for %s and %zu more", text, told - 3);
    else
        kiln__tool_print_rest(indent(), "for %s", text);
}

static json_t *names_json(json_t *names)
{
    json_t *list = json_array(), *nothing;
    const char *name;
    json_object_foreach(names, name, nothing)
    {
        json_array_append_new(list, json_string(name));
    }
    return list;
}

static void print_row(const struct kiln__profile *profile, const struct kiln__profile_row *row)
{
    double share = kiln__profile_share(profile, row);
    int printed = printf("%9.3f %5.1f %8llu %9.1f %9.2f %8.2f ", row->seconds * 1e3,
                         profile->seconds > 0 ? row->seconds / profile->seconds * 100 : 0,
                         (unsigned long long)row->count, row->seconds / (double)row->count * 1e6,
                         row->seconds > 0 ? row->operations / row->seconds / 1e9 : 0,
                         row->seconds > 0 ? row->bytes / row->seconds / 1e9 : 0);
    printed += share >= 0 ? printf("%6.0f  ", share * 100) : printf("%6s  ", "");
    kiln__tool_print_rest(printed, "%s%s%s", row->name, row->what[0] ? ": " : "", row->what);
    if (json_object_size(row->names))
        print_names(row->names);
    if (row->shapes[0])
        kiln__tool_print_rest(indent(), "%s", row->shapes);
}

static void print_table(const struct request *request, const struct kiln__profile *profile)
{
    size_t count = rows_of(request, profile);
    kiln__tool_print_rest(
        0, "%.3f ms of kernels and transfers on %s, in %.3f ms from the first to the last",
        profile->seconds * 1e3, profile->device, profile->span * 1e3);
    if (profile->peaks.bytes > 0)
        printf("peak: %.1f GFLOP/s by a product, %.1f GB/s by a map, of this library here\n",
               profile->peaks.operations / 1e9, profile->peaks.bytes / 1e9);
    printf("%9s %5s %8s %9s %9s %8s %6s  %s\n", "ms", "%", "times", "us each", "GFLOP/s", "GB/s",
           "% peak", "what");
    for (size_t i = 0; i < count; i++)
        print_row(profile, &profile->rows[i]);
    if (count < profile->count)
        printf("... and %zu rows more\n", profile->count - count);
}

static json_t *row_json(const struct kiln__profile *profile, const struct kiln__profile_row *row)
{
    json_t *object = json_pack("{s:s, s:s, s:o, s:s, s:I, s:f, s:f, s:f}", "name", row->name,
                               "what", row->what, "names", names_json(row->names), "shapes",
                               row->shapes, "count", (json_int_t)row->count, "seconds",
                               row->seconds, "operations", row->operations, "bytes", row->bytes);
    double share = kiln__profile_share(profile, row);
    if (share >= 0)
        json_object_set_new(object, "peak_share", json_real(share));
    return object;
}

static void print_json(const struct request *request, const struct kiln__profile *profile)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < rows_of(request, profile); i++)
        json_array_append_new(rows, row_json(profile, &profile->rows[i]));
    json_t *root = json_pack("{s:s, s:f, s:f, s:o}", "device", profile->device, "seconds",
                             profile->seconds, "span", profile->span, "rows", rows);
    if (profile->peaks.bytes > 0)
        json_object_set_new(root, "peaks",
                            json_pack("{s:f, s:f}", "operations", profile->peaks.operations,
                                      "bytes", profile->peaks.bytes));
    json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
}

static bool draw(const struct request *request, const struct kiln__profile *profile)
{
    FILE *file = fopen(request->svg, "we");
    if (file)
        kiln__profile_draw(profile, rows_of(request, profile), file);
    bool written = file && !ferror(file);
    if (file)
        written = !fclose(file) && written;
    if (!written)
        complain(request->svg);
    return written;
}

static int show(const struct request *request, const char *path)
{
    struct kiln__profile profile;
    if (!kiln__profile_read(path, request->by_name, &profile))
        return EXIT_FAILURE;
    unsetenv("KILN_TRACE"); /* the program's, not this one's */
    if (!request->no_peaks)
        kiln__profile_find_peaks(&profile);
    if (request->json)
        print_json(request, &profile);
    else
        print_table(request, &profile);
    bool drawn = !request->svg || draw(request, &profile);
    kiln__profile_free(&profile);
    return drawn ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int profile(const struct request *request)
{
    char path[PATH_MAX];
    int status = EXIT_FAILURE;
    int file = kiln__tool_make_file("kiln profile", request->trace, "kiln-profile", path);
    if (file < 0)
        return EXIT_FAILURE;
    close(file);
    if (setenv("KILN_TRACE", path, 1))
        complain("KILN_TRACE");
    else
        status = kiln__tool_run("kiln profile", request->program, request->json);
    if (!is_empty(path)) {
        int shown = show(request, path);
        status = status ? status : shown;
    } else if (status < KILN__EXIT_NOT_RUNNABLE) {
        fprintf(stderr, "kiln profile: %s ran no batch of kiln to its end\n", request->program[0]);
    }
    if (!request->trace)
        unlink(path);
    return status;
}

int kiln__tool_profile(int argc, char **argv)
{
    static const char doc[] =
        "Run PROGRAM and show where its time on the device went: a row for each kernel over the "
        "same shapes, with what it computes, and the operations and bytes that it has to its "
        "credit, beside what a large product and a large map reach on this device. The exit "
        "status is the program's.\v"
        "A span for each launch costs time between launches: compare kernels by it, and programs "
        "without it. With several contexts in a program the last one to end is shown.";
    struct argp argp = {
        .options = options, .parser = parse, .args_doc = "PROGRAM [ARGUMENT...]", .doc = doc};
    struct request request = {.rows = 20};
    kiln__tool_parse(&argp, argc, argv, ARGP_IN_ORDER, &request);
    return request.program ? profile(&request) : EXIT_USAGE;
}
