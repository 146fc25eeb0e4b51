/* SPDX-License-Identifier: Apache-2.0 */
/* Making a context, and what it can be asked. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "../support/missing.h"
#include "device/kernels.h"

static void skip_without_device(void)
{
    size_t devices = 0;
    if (kiln_device_count(&devices) || !devices)
        cr_skip("no OpenCL device here");
}

/* ---- options ---- */

Test(context, refuses_options_that_are_not_initialised)
{
    kiln_context_options options;
    kiln_context *context = (kiln_context *)&options;
    memset(&options, 0, sizeof options);
    expect_error(kiln_context_create(&options, &context), KILN_INVALID_ARGUMENT,
                 "kiln_context_create: options->size is 0; start from KILN_CONTEXT_OPTIONS_INIT");
    cr_expect_null(context);
    options.size = 1000000;
    expect_error_part(kiln_context_create(&options, &context), KILN_INVALID_ARGUMENT,
                      "options->size is 1000000");
    expect_error(kiln_context_create(NULL, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_context_create: context is NULL");
}

/* A program built against older headers has fewer fields. */
Test(context, takes_shorter_options)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    skip_without_device();
    options.size = offsetof(kiln_context_options, cache_dir);
    options.cache_dir = (const char *)1; /* is not looked at */
    options.matmul = (const char *)1;
    close_context(open_context_with(&options));
}

Test(context, names_the_device_that_it_cannot_find)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context;
    options.device = "abacus";
    skip_without_device();
    expect_error_part(kiln_context_create(&options, &context), KILN_NO_DEVICE,
                      "no OpenCL device fits \"abacus\"; found: 0: ");
    cr_expect_null(context);
    setenv("KILN_DEVICE", "slide rule", 1);
    expect_error_part(kiln_context_create(NULL, &context), KILN_NO_DEVICE,
                      "no OpenCL device fits \"slide rule\" of $KILN_DEVICE; found: 0: ");
}

/* A driver that is there and fails is not taken for one that is missing. */
Test(context, names_the_query_that_left_it_without_a_device)
{
    kiln_context *context;
    skip_without_device();
    if (!layer_available())
        cr_skip("the counting layer is not loaded");
    cr_assert(layer_fail(1, "clGetDeviceIDs", -5, KILN_LAYER_FOREVER, KILN_LAYER_CALL));
    expect_error_part(kiln_context_create(NULL, &context), KILN_NO_DEVICE,
                      "no OpenCL device can be used: an OpenCL platform is left out: "
                      "clGetDeviceIDs answered CL_OUT_OF_RESOURCES (-5)");
    layer_reset();
}

Test(context, is_of_the_device_that_was_chosen)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    size_t devices = 0;
    skip_without_device();
    expect_ok(kiln_device_count(&devices));
    for (size_t i = 0; i < devices; i++) {
        char index[24];
        kiln_device_info wanted, found;
        snprintf(index, sizeof index, "%zu", i);
        options.device = index;
        kiln_context *context = open_context_with(&options);
        expect_ok(kiln_device_describe(i, &wanted));
        expect_ok(kiln_context_device(context, &found));
        cr_expect_eq(found.index, i);
        cr_expect_str_eq(found.name, wanted.name);
        close_context(context);
    }
}

/* ---- words ---- */

static void expect_refused(const kiln_context_options *options, kiln_status status,
                           const char *part)
{
    kiln_context *context;
    expect_error_part(kiln_context_create(options, &context), status, part);
    cr_expect_null(context);
}

Test(context, names_an_option_whose_value_nobody_knows_and_the_known_ones)
{
    skip_without_device();
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    char known[1024];
    int used = snprintf(known, sizeof known, "kiln_context_create: matmul is \"abacus\", none of");
    for (size_t i = 0; i < KILN__PRODUCT_KERNELS - 1; i++)
        used += snprintf(known + used, sizeof known - (size_t)used, "%s %s", i ? "," : "",
                         kiln__kernel_of(KILN__KERNEL_PRODUCT, i)->name);
    options.matmul = "abacus";
    expect_refused(&options, KILN_INVALID_ARGUMENT, known);
    options.matmul = "";
    options.cache = (kiln_cache_mode)7;
    expect_refused(&options, KILN_INVALID_ARGUMENT, "cache is 7, none of KILN_CACHE_DEFAULT, ");
    options.cache = KILN_CACHE_DEFAULT;
    options.compile = (kiln_compile_mode)9;
    expect_refused(&options, KILN_INVALID_ARGUMENT, "compile is 9, none of KILN_COMPILE_DEFAULT, ");
    options.compile = KILN_COMPILE_DEFAULT;
    options.precision = (kiln_precision)6;
    expect_refused(
        &options, KILN_INVALID_ARGUMENT,
        "precision is 6, none of KILN_PRECISION_DEFAULT, _EXACT, _TF32, _F32X3, _BF16, _F16");
    options.precision = KILN_PRECISION_DEFAULT;
    options.host_memory = (kiln_host_memory)3;
    expect_refused(&options, KILN_INVALID_ARGUMENT, "host_memory is 3, none of KILN_HOST_MEMORY_");
    options.host_memory = KILN_HOST_MEMORY_DEFAULT;
    options.trace = missing_path("trace.json");
    expect_refused(&options, KILN_IO_ERROR, "trace.json, which cannot be written: No such file");
}

Test(context, names_a_variable_whose_value_nobody_knows_and_the_known_ones)
{
    static const struct {
        const char *variable, *value; /* NULL: a file that cannot be made */
        kiln_status status;
        const char *part;
    } rows[] = {
        {"KILN_MATMUL", "abacus", KILN_INVALID_ARGUMENT,
         "KILN_MATMUL is \"abacus\", none of im2col, tiled_im2col, blocks, dots"},
        {"KILN_HOST_MEMORY", "both", KILN_INVALID_ARGUMENT,
         "KILN_HOST_MEMORY is \"both\", none of shared, separate"},
        {"KILN_CACHE", "yes", KILN_INVALID_ARGUMENT, "KILN_CACHE is \"yes\", none of on, ro, off"},
        {"KILN_ONE_LAUNCH", "yes", KILN_INVALID_ARGUMENT,
         "KILN_ONE_LAUNCH is \"yes\", none of off, auto, on"},
        {"KILN_PRECISION", "f64", KILN_INVALID_ARGUMENT,
         "KILN_PRECISION is \"f64\", none of exact, tf32, f32x3, bf16, f16"},
        {"KILN_COMPILE", "later", KILN_INVALID_ARGUMENT,
         "KILN_COMPILE is \"later\", none of together, alone, never"},
        {"KILN_VALIDATE", "2", KILN_INVALID_ARGUMENT, "KILN_VALIDATE is \"2\""},
        {"KILN_CHECK_VALUES", "yes", KILN_INVALID_ARGUMENT, "KILN_CHECK_VALUES is \"yes\""},
        {"KILN_TRACE", NULL, KILN_IO_ERROR, "/file, which cannot be written"},
        {"KILN_EXPLAIN", NULL, KILN_IO_ERROR, "/file, which cannot be written"},
    };
    skip_without_device();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        setenv(rows[i].variable, rows[i].value ? rows[i].value : missing_path("file"), 1);
        expect_refused(NULL, rows[i].status, rows[i].part);
        unsetenv(rows[i].variable);
    }
    setenv("KILN_MATMUL", "", 1); /* as if it were not there */
    close_context(open_context());
}

/* ---- lives ---- */

Test(context, lives_as_long_as_what_holds_it)
{
    kiln_context *context = open_context();
    float x = -3, y = 7;
    kiln_batch *batch = kiln_batch_create(context);
    kiln_context_retain(context);
    kiln_context_release(context);
    kiln_context_release(context);
    kiln_tensor tensor = kiln_upload(batch, KILN_F32, 0, NULL, &x);
    expect_ok(kiln_read(batch, kiln_abs(batch, tensor), &y, sizeof y));
    run_batch(batch);
    cr_expect_eq(y, 3);
    kiln_batch_release(batch);
    kiln_context_retain(NULL);
    kiln_context_release(NULL);
}

Test(context, can_be_made_many_times_and_beside_others)
{
    float x = -3, y;
    skip_without_device();
    for (int i = 0; i < 5; i++) {
        kiln_context *first = open_context(), *second = open_context();
        expect_ok(kiln_now_relu(first, 1, &x, &y));
        kiln_context_release(first);
        expect_ok(kiln_now_relu(second, 1, &x, &y));
        kiln_context_release(second);
    }
}

/* ---- questions ---- */

Test(context, refuses_null)
{
    kiln_device_info info;
    kiln_context_stats stats;
    kiln_context *context = open_context();
    expect_error(kiln_context_finish(NULL), KILN_INVALID_ARGUMENT,
                 "kiln_context_finish: context is NULL");
    expect_error(kiln_context_device(NULL, &info), KILN_INVALID_ARGUMENT,
                 "kiln_context_device: context is NULL");
    expect_error(kiln_context_device(context, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_context_device: info is NULL");
    expect_error(kiln_context_get_stats(NULL, &stats), KILN_INVALID_ARGUMENT,
                 "kiln_context_get_stats: context is NULL");
    expect_error(kiln_context_get_stats(context, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_context_get_stats: stats is NULL");
    expect_error(kiln_context_sync_cache(NULL), KILN_INVALID_ARGUMENT,
                 "kiln_context_sync_cache: context is NULL");
    expect_error(kiln_context_trim(NULL), KILN_INVALID_ARGUMENT,
                 "kiln_context_trim: context is NULL");
    close_context(context);
}

Test(context, counts_nothing_at_first)
{
    static const kiln_context_stats none;
    kiln_context *context = open_context();
    kiln_context_stats stats = stats_of(context);
    cr_expect_arr_eq(&stats, &none, sizeof stats);
    close_context(context);
}

/* The second context finds on disk what the first one compiled. */
Test(context, stores_kernels_for_the_next_one)
{
    float x[3] = {-1, 2, -3}, y[3];
    kiln_context *context = open_context();
    expect_ok(kiln_now_relu(context, 3, x, y));
    expect_ok(kiln_context_sync_cache(context));
    kiln_context_stats first = stats_of(context);
    close_context(context);
    context = open_context();
    expect_ok(kiln_now_relu(context, 3, x, y));
    kiln_context_stats second = stats_of(context);
    close_context(context);
    cr_expect_eq(first.kernels_compiled + first.kernels_from_disk, 1u);
    cr_expect_eq(first.cache_stores, first.kernels_compiled);
    cr_expect_eq(second.kernels_compiled, 0u);
    cr_expect_eq(second.kernels_from_disk, 1u);
    cr_expect_eq(second.cache_failures, 0u);
}

Test(context, leaves_the_disk_alone_if_told_to)
{
    float x[3] = {-1, 2, -3}, y[3];
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.cache = KILN_CACHE_OFF;
    kiln_context *context = open_context_with(&options);
    expect_ok(kiln_now_relu(context, 3, x, y));
    expect_ok(kiln_context_sync_cache(context));
    kiln_context_stats stats = stats_of(context);
    cr_expect_eq(stats.kernels_compiled, 1u);
    cr_expect_eq(stats.cache_stores, 0u);
    close_context(context);
}

Test(context, tells_its_version)
{
    cr_expect_str_eq(kiln_version(), KILN_VERSION);
}
