/* SPDX-License-Identifier: Apache-2.0 */
/* kiln_context_best_precision(): measured once for a device, and told by a record from then on. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "programs/device_note.h"
#include "session/context.h"

#define SUBJECT "best precision for products"

/* Operands of some types are twice what they should be (--wrap), so that products are wrong. */
static struct {
    bool f32, narrow;
} spoilt;

kiln_tensor __real_kiln_cast(kiln_batch *batch, kiln_tensor x, kiln_type type);
kiln_tensor __wrap_kiln_cast(kiln_batch *batch, kiln_tensor x, kiln_type type);

kiln_tensor __wrap_kiln_cast(kiln_batch *batch, kiln_tensor x, kiln_type type)
{
    if (type == KILN_F32 ? spoilt.f32 : spoilt.narrow)
        x = kiln_scale(batch, x, 2);
    return __real_kiln_cast(batch, x, type);
}

static char folder[64];

static void make_folder(void)
{
    strcpy(folder, "/tmp/kiln-precision.XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command))
        fprintf(stderr, "%s is left over\n", folder);
}

TestSuite(precision, .init = make_folder, .fini = remove_folder, .timeout = 300);

static kiln_context *open_cached(kiln_cache_mode mode)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_device_info device;
    options.cache_dir = folder;
    options.cache = mode;
    options.validate = 1;
    kiln_context *context = open_context_with(&options);
    expect_ok(kiln_context_device(context, &device));
    if (!layer_available() || strstr(device.platform, "Oclgrind"))
        cr_skip("the counting layer is not loaded, or the device would take hours");
    return context;
}

static kiln_type ask(kiln_context *context)
{
    kiln_type type = (kiln_type)0;
    expect_ok(kiln_context_best_precision(context, &type));
    cr_expect(type == KILN_F32 || type == KILN_F16 || type == KILN_BF16, "%s",
              kiln_type_name(type));
    return type;
}

/* Nothing runs for this answer. */
static void expect_remembered(kiln_context *context, kiln_type type)
{
    layer_reset();
    cr_expect_eq(ask(context), type);
    cr_expect_eq(layer_count("launches"), 0u);
    cr_expect_eq(layer_count("created.mem"), 0u);
}

/* Measuring is tried, which fails here before it takes time. */
static void expect_measured_again(kiln_context *context)
{
    kiln_type type = (kiln_type)0;
    cr_assert(layer_fail(1, "clCreateBuffer", -5, KILN_LAYER_FOREVER, KILN_LAYER_CALL));
    expect_error_part(kiln_context_best_precision(context, &type), KILN_OUT_OF_DEVICE_MEMORY,
                      "kiln_context_best_precision: ");
    cr_expect_eq(type, KILN_F32);
    cr_expect_gt(layer_failures(), 0u);
    layer_reset();
}

static int find_record(const kiln_cache_entry *entry, void *path)
{
    if (strcmp(entry->kernel, SUBJECT))
        return 0;
    snprintf(path, 128, "%s/%s.bin", folder, entry->name);
    return 1;
}

static void damage_record(void)
{
    char path[128] = "", last;
    expect_ok(kiln_cache_list(folder, find_record, path));
    int file = open(path, O_RDWR);
    cr_assert(file >= 0, "no record in %s", folder);
    off_t end = lseek(file, -40, SEEK_END);
    cr_assert(pread(file, &last, 1, end) == 1);
    last ^= 1;
    cr_assert(pwrite(file, &last, 1, end) == 1);
    close(file);
}

Test(precision, is_measured_once_for_a_device)
{
    kiln_context *context = open_cached(KILN_CACHE_ON);
    kiln_type type = ask(context);
    cr_expect_gt(layer_count("launches"), 0u);
    kiln_context_stats stats = stats_of(context);
    cr_expect_eq(stats.buffers_live, 0u);
    cr_expect_eq(atomic_load(&context->validate.runs), 0u, "runs that are timed are compared");
    expect_remembered(context, type);
    close_context(context);

    context = open_cached(KILN_CACHE_READ_ONLY);
    expect_remembered(context, type);
    close_context(context);
}

Test(precision, is_measured_again_where_its_record_is_broken)
{
    kiln_context *context = open_cached(KILN_CACHE_ON);
    kiln__device_note_put(context->runtime.programs, SUBJECT,
                          "bf16: of a record made by hand, of which "
                          "only the first word is read");
    expect_remembered(context, KILN_BF16);
    close_context(context);
    damage_record();
    context = open_cached(KILN_CACHE_ON);
    expect_measured_again(context);
    cr_expect_eq(stats_of(context).cache_failures, 1u);
    kiln__device_note_put(context->runtime.programs, SUBJECT, "i32: which is no such type");
    expect_measured_again(context);
    kiln__device_note_put(context->runtime.programs, SUBJECT, "");
    expect_measured_again(context);
    kiln__device_note_put(context->runtime.programs, SUBJECT, "f16");
    expect_remembered(context, KILN_F16);
    close_context(context);
}

/* What fails on the way is told, leaves nothing behind, and is no reason to fail the next time. */
Test(precision, of_a_device_that_fails_is_a_status)
{
    static const struct {
        const char *call;
        unsigned long number;
        enum kiln_layer_mode mode; /* memory is asked for twice */
    } failures[] = {{"clBuildProgram", 1, KILN_LAYER_ONCE},
                    {"clCreateBuffer", 5, KILN_LAYER_FOREVER},
                    {"clEnqueueNDRangeKernel", 1, KILN_LAYER_ONCE},
                    {"clEnqueueNDRangeKernel", 20, KILN_LAYER_ONCE}};
    kiln_context *context = open_cached(KILN_CACHE_OFF);
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        kiln_type type = (kiln_type)0;
        layer_reset();
        cr_assert(layer_fail(failures[i].number, failures[i].call, -5, failures[i].mode,
                             KILN_LAYER_CALL));
        kiln_status status = kiln_context_best_precision(context, &type);
        cr_expect_geq(layer_failures(), 1u, "%s", failures[i].call);
        cr_expect(status, "%s", failures[i].call);
        cr_expect(!strncmp(kiln_last_error(), "kiln_context_best_precision: ", 29), "%s",
                  kiln_last_error());
        cr_expect_eq(type, KILN_F32);
        cr_expect_eq(stats_of(context).buffers_live, 0u, "%s", failures[i].call);
    }
    layer_reset();
    expect_remembered(context, ask(context));
    close_context(context);
}

Test(precision, slow_is_no_type_whose_products_are_wrong)
{
    kiln_type type = KILN_BF16;
    kiln_context *context = open_cached(KILN_CACHE_OFF);
    spoilt.f32 = true;
    expect_error(kiln_context_best_precision(context, &type), KILN_WRONG_RESULT,
                 "kiln_context_best_precision: a product of f32 is wrong");
    cr_expect_eq(type, KILN_F32);
    spoilt.f32 = false;
    spoilt.narrow = true;
    cr_expect_eq(ask(context), KILN_F32);
    close_context(context);
}

Test(precision, of_nothing_is_refused)
{
    kiln_type type = KILN_BF16;
    expect_error(kiln_context_best_precision(NULL, &type), KILN_INVALID_ARGUMENT,
                 "kiln_context_best_precision: context is NULL");
    cr_expect_eq(type, KILN_F32);
    kiln_context *context = open_context();
    expect_error(kiln_context_best_precision(context, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_context_best_precision: type is NULL");
    close_context(context);
}
