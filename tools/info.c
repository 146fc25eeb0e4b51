/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln info`: the devices of this machine, the one that is taken, and where the cache is. */
#include <argp.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <kiln/cache.h>
#include <kiln/context.h>

#include "columns.h"
#include "suggest.h"
#include "tool.h"
#include "util/format.h"

struct request {
    bool json;
    bool precision;     /* have it measured */
    const char *device; /* NULL: all */
};

struct report {
    kiln_device_info *devices;
    kiln_type *precisions; /* per device; NULL: nobody asked, 0: it could not be had */
    size_t count;
    size_t chosen; /* index of the default device; SIZE_MAX: none */
    kiln_cache_stats cache;
};

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "Print JSON", 0},
    {"device", 'd', "CHOICE", 0, "Only this device: number, type, or part of a name", 0},
    {"precision", 'p', NULL, 0, "Measure, once, which type products are fastest from", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct request *request = state->input;
    switch (key) {
    case 'j': request->json = true; return 0;
    case 'd': request->device = arg; return 0;
    case 'p': request->precision = true; return 0;
    case ARGP_KEY_ARG: argp_error(state, "\"%s\" is one argument too many", arg); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int complain(void)
{
    fprintf(stderr, "kiln info: %s\n", kiln_last_error());
    return 1;
}

/* The devices that were asked for: all, or the one that fits. */
static int gather_devices(struct report *report, const char *choice)
{
    size_t first = 0, count = 1;
    if (choice ? kiln_device_find(choice, &first) : kiln_device_count(&count))
        return complain();
    report->devices = calloc(count + 1, sizeof *report->devices);
    if (!report->devices)
        return fputs("kiln info: out of memory\n", stderr), 1;
    for (report->count = 0; report->count < count; report->count++)
        if (kiln_device_describe(first + report->count, &report->devices[report->count]))
            return complain();
    return 0;
}

static kiln_status find_precision(const kiln_device_info *info, kiln_type *type)
{
    kiln_context_options wanted = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context;
    char device[32];
    snprintf(device, sizeof device, "%zu", info->index);
    wanted.device = device;
    kiln_status status = kiln_context_create(&wanted, &context);
    if (!status)
        status = kiln_context_best_precision(context, type);
    kiln_context_release(context);
    return status;
}

/* A device that does not work does not keep the others from being told of. */
static int gather_precisions(struct report *report)
{
    int failed = 0;
    report->precisions = calloc(report->count + 1, sizeof *report->precisions);
    if (!report->precisions)
        return fputs("kiln info: out of memory\n", stderr), 1;
    for (size_t i = 0; i < report->count; i++) {
        kiln_type type;
        if (find_precision(&report->devices[i], &type))
            failed = complain();
        else
            report->precisions[i] = type;
    }
    return failed;
}

/* The default device is no reason to fail for someone who asked for another one. */
static int gather_defaults(struct report *report, const char *choice)
{
    int failed = 0;
    report->chosen = SIZE_MAX;
    if (kiln_device_find(NULL, &report->chosen) && !choice)
        failed = complain();
    if (kiln_cache_get_stats(NULL, &report->cache))
        failed = complain();
    return failed;
}

/* "3.6 GiB", in a static buffer for each of a few calls in one printf. */
static const char *bytes(uint64_t value)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    static char texts[4][32];
    static unsigned next;
    char *text = texts[next++ % 4];
    double scaled = (double)value;
    size_t unit = 0;
    while (scaled >= 1024) {
        scaled /= 1024;
        unit++;
    }
    kiln__format(text, sizeof *texts, "%.*f %s", unit && scaled < 10 ? 1 : 0, scaled, units[unit]);
    return text;
}

static void print_features(const kiln_device_info *info)
{
    const struct {
        int has;
        const char *name;
    } features[] = {
        {info->shares_host_memory, "shared host memory"},
        {info->has_f16, "f16"},
        {info->has_f64, "f64"},
        {info->has_subgroups, "sub-groups"},
        {info->has_inline_ptx, "inline PTX"},
    };
    char text[256] = "";
    size_t length = 0;
    for (size_t i = 0; i < sizeof features / sizeof *features; i++)
        if (features[i].has && length < sizeof text)
            length += (size_t)snprintf(text + length, sizeof text - length, "%s%s",
                                       length ? ", " : "", features[i].name);
    kiln__tool_print_rest(printf("  features    "), "%s", length ? text : "none");
}

static void print_device(const kiln_device_info *info, bool chosen)
{
    kiln__tool_print_rest(printf("%zu: ", info->index), "%s%s", info->name,
                          chosen ? " (default)" : "");
    printf("  type        %s\n", kiln_device_type_name(info->type));
    printf("  vendor      %s\n", info->vendor);
    kiln__tool_print_rest(printf("  platform    "), "%s, %s", info->platform,
                          info->platform_version);
    kiln__tool_print_rest(printf("  driver      "), "%s, %s", info->driver_version,
                          info->opencl_c_version);
    printf("  compute     %u units at %u MHz\n", info->compute_units, info->clock_mhz);
    printf("  memory      %s, at most %s in one allocation\n", bytes(info->memory),
           bytes(info->max_allocation));
    printf("  near memory %s cache, %s local memory\n", bytes(info->cache),
           bytes(info->local_memory));
    kiln__tool_print_rest(printf("  limits      "),
                          "%zu work-items in a group, float vectors of %u, buffers aligned to %u",
                          info->max_work_group, info->preferred_vector_f32, info->base_alignment);
    print_features(info);
}

static void print_text(const struct report *report)
{
    for (size_t i = 0; i < report->count; i++) {
        print_device(&report->devices[i], report->devices[i].index == report->chosen);
        if (report->precisions)
            printf("  precision   %s\n", kiln_type_name(report->precisions[i]));
    }
    if (report->cache.folder[0])
        kiln__tool_print_rest(printf("cache: "), "%s, %llu entries, %s", report->cache.folder,
                              (unsigned long long)report->cache.entries,
                              bytes(report->cache.bytes));
    else
        puts("cache: in memory only");
}

static json_t *device_json(const kiln_device_info *info)
{
    return json_pack(
        "{s:I,s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:b,s:b,s:b,s:b,s:b}",
        "index", (json_int_t)info->index, "name", info->name, "type",
        kiln_device_type_name(info->type), "vendor", info->vendor, "platform", info->platform,
        "platform_version", info->platform_version, "driver_version", info->driver_version,
        "opencl_c_version", info->opencl_c_version, "compute_units",
        (json_int_t)info->compute_units, "clock_mhz", (json_int_t)info->clock_mhz, "memory",
        (json_int_t)info->memory, "max_allocation", (json_int_t)info->max_allocation, "cache",
        (json_int_t)info->cache, "local_memory", (json_int_t)info->local_memory, "max_work_group",
        (json_int_t)info->max_work_group, "preferred_vector_f32",
        (json_int_t)info->preferred_vector_f32, "base_alignment", (json_int_t)info->base_alignment,
        "shares_host_memory", info->shares_host_memory, "has_f16", info->has_f16, "has_f64",
        info->has_f64, "has_subgroups", info->has_subgroups, "has_inline_ptx",
        info->has_inline_ptx);
}

static int print_json(const struct report *report)
{
    json_t *devices = json_array();
    for (size_t i = 0; i < report->count; i++) {
        json_t *device = device_json(&report->devices[i]);
        if (report->precisions)
            json_object_set_new(device, "best_precision",
                                report->precisions[i]
                                    ? json_string(kiln_type_name(report->precisions[i]))
                                    : json_null());
        json_array_append_new(devices, device);
    }
    json_t *chosen =
        report->chosen == SIZE_MAX ? json_null() : json_integer((json_int_t)report->chosen);
    json_t *root = json_pack(
        "{s:o,s:o,s:{s:s,s:I,s:I,s:I}}", "devices", devices, "default", chosen, "cache", "folder",
        report->cache.folder, "entries", (json_int_t)report->cache.entries, "bytes",
        (json_int_t)report->cache.bytes, "invalid", (json_int_t)report->cache.invalid);
    int failed = !root || json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
    if (failed)
        fputs("kiln info: the JSON text could not be written\n", stderr);
    return failed;
}

int kiln__tool_info(int argc, char **argv)
{
    static const char doc[] = "List the OpenCL devices of this machine, the one that kiln takes "
                              "where none is named, and the place of the kernel cache.";
    struct argp argp = {.options = options, .parser = parse, .doc = doc};
    struct request request = {0};
    struct report report = {.chosen = SIZE_MAX};
    kiln__tool_parse(&argp, argc, argv, 0, &request);
    int failed = gather_devices(&report, request.device);
    if (!failed) {
        failed = gather_defaults(&report, request.device);
        if (request.precision)
            failed |= gather_precisions(&report);
        if (request.json)
            failed |= print_json(&report);
        else
            print_text(&report);
    }
    free(report.devices);
    free(report.precisions);
    return failed;
}
