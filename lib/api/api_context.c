/* SPDX-License-Identifier: Apache-2.0 */
/* Creation and end of contexts: options and environment variables become a device, a runtime and a
 * plan cache. */
#include "debug/self_test.h"
#include "session/context.h"
#include "tune/tuning_record.h"
#include "util/environment.h"
#include "util/structure.h"

#include <stdlib.h>
#include <string.h>

#include <kiln/opencl.h>
#include <kiln/version.h>

const char *kiln_version(void)
{
    return KILN_VERSION;
}

void kiln_free(void *memory)
{
    free(memory);
}

static kiln_status read_options(const char *call, const kiln_context_options *options,
                                kiln_context_options *own)
{
    *own = (kiln_context_options)KILN_CONTEXT_OPTIONS_INIT;
    return options ? KILN__STRUCTURE_READ(NULL, call, options, "KILN_CONTEXT_OPTIONS_INIT", own)
                   : KILN_OK;
}

static const char *or_environment(const char *option, const char *variable)
{
    if (option)
        return *option ? option : NULL;
    return kiln__environment(variable);
}

/* "mapped" is "shared" on a driver whose wrappers are only current at a map: for tests. */
static void choose_host_mode(const kiln_context_options *options, struct kiln__runtime *runtime)
{
    const char *word = runtime->device.info.shares_host_memory ? "shared" : "separate";
    const char *variable = or_environment(NULL, "KILN_HOST_MEMORY");
    if (options->host_memory == KILN_HOST_MEMORY_SHARED)
        word = "shared";
    else if (options->host_memory == KILN_HOST_MEMORY_SEPARATE)
        word = "separate";
    else if (variable)
        word = variable;
    bool live = runtime->device.traits->live_host_pointers;
    if (!strcmp(word, "separate"))
        runtime->host_mode = KILN__HOST_SEPARATE;
    else
        runtime->host_mode = live && strcmp(word, "mapped") ? KILN__HOST_LIVE : KILN__HOST_MAPPED;
}

/* The words have been checked. */
static uint8_t choose_product(const kiln_context_options *options)
{
    const char *variable = kiln__environment("KILN_PRECISION");
    if (options->precision)
        return (uint8_t)(options->precision - KILN_PRECISION_EXACT);
    for (uint8_t name = 0; variable && name < KILN__PRODUCT_EXACT_INTEGER; name++)
        if (!strcmp(variable, kiln__product_name_text(name)))
            return name;
    return KILN__PRODUCT_EXACT;
}

static kiln_status make_parts(const char *call, const kiln_context_options *given,
                              cl_command_queue queue, kiln_context *context)
{
    struct kiln__runtime *runtime = &context->runtime;
    const char *matmul = or_environment(given->matmul, "KILN_MATMUL");
    const char *trace = or_environment(given->trace, "KILN_TRACE");
    const struct kiln__runtime_options options = {.queue = queue,
                                                  .profile = given->profile || trace,
                                                  .trace = trace,
                                                  .memory_limit = given->memory_limit,
                                                  .programs = {.folder = given->cache_dir,
                                                               .limit = given->cache_limit,
                                                               .mode = given->cache,
                                                               .compile = given->compile}};
    kiln_status status = kiln__runtime_begin(runtime, &options, NULL);
    if (!status)
        status = kiln__tuning_load(call, context);
    if (status)
        return status;
    context->product = choose_product(given);
    context->matmul = matmul ? strdup(matmul) : NULL;
    context->plan_cache = kiln__plan_cache_create(runtime, context->matmul, &context->tuning);
    bool passes = runtime->device.ptx_level > 0;
    context->self_tester = passes ? kiln__self_tester_create(runtime) : NULL;
    if (context->plan_cache)
        kiln__plan_cache_use_self_tester(context->plan_cache, context->self_tester);
    if (context->plan_cache && context->validate.share > 0)
        kiln__plan_cache_wait_for_kernels(context->plan_cache);
    return context->plan_cache && (context->matmul || !matmul) && (context->self_tester || !passes)
               ? KILN_OK
               : kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory for the context", call);
}

/* A forked child leaves the driver's objects alone: they belong to threads it does not have. */
static void api_context_destroy(kiln_context *context)
{
    if (context->runtime.forks == kiln__forks()) {
        struct kiln__runtime *runtime = &context->runtime;
        if (!kiln__runtime_finish(runtime))
            kiln__pins_clear(&runtime->pins, runtime->context, runtime->device.id);
        kiln__plan_cache_destroy(context->plan_cache);
        kiln__self_tester_destroy(context->self_tester);
        kiln__runtime_end(runtime);
    }
    kiln__tuning_free(&context->tuning);
    pthread_mutex_destroy(&context->precision.mutex);
    free(context->matmul);
    free(context);
}

/* Everything after device and device context are there; takes the context over. */
static kiln_status api_context_complete(const char *call, kiln_context *context,
                                        const kiln_context_options *options, cl_command_queue queue,
                                        kiln_context **result)
{
    atomic_init(&context->references, 1);
    pthread_mutex_init(&context->precision.mutex, NULL);
    context->runtime.forks = kiln__forks();
    kiln_status status = kiln__option_words_check(call, options);
    if (!status && !kiln__forks_watch())
        status = kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory for the context", call);
    if (!status)
        choose_host_mode(options, &context->runtime);
    if (!status)
        status = kiln__sample_choose(&context->validate, call, "validate", options->validate,
                                     "KILN_VALIDATE");
    if (!status)
        status = kiln__sample_choose(&context->check_values, call, "check_values",
                                     options->check_values, "KILN_CHECK_VALUES");
    if (!status)
        status = make_parts(call, options, queue, context);
    context->runtime.looks_at_buffers =
        context->validate.share > 0 || context->check_values.share > 0;
    if (status)
        api_context_destroy(context);
    else
        *result = context;
    return status;
}

kiln_status kiln_context_create(const kiln_context_options *given, kiln_context **result)
{
    kiln_context_options options;
    if (!result)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_context_create: context is NULL");
    *result = NULL;
    kiln_status status = read_options(__func__, given, &options);
    if (status)
        return status;
    kiln_context *context = calloc(1, sizeof *context);
    if (!context)
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "kiln_context_create: no memory");
    status = kiln__device_check_process(NULL);
    if (!status)
        status = kiln__device_choose(options.device, &context->runtime.device, NULL);
    if (status) {
        free(context);
        return status;
    }
    cl_context_properties properties[] = {
        CL_CONTEXT_PLATFORM, (cl_context_properties)context->runtime.device.platform, 0};
    cl_int code;
    context->runtime.context =
        clCreateContext(properties, 1, &context->runtime.device.id, NULL, NULL, &code);
    if (code) {
        free(context);
        return kiln__cl_fail(NULL, "clCreateContext", code);
    }
    return api_context_complete(__func__, context, &options, NULL, result);
}

/* ---- over the caller's OpenCL objects ---- */

/* PoCL names, of a context over a part of a device, the whole one. */
static cl_device_id whole_of(cl_device_id device)
{
    cl_device_id parent = NULL;
    cl_int code =
        clGetDeviceInfo(device, CL_DEVICE_PARENT_DEVICE, sizeof(cl_device_id), &parent, NULL);
    return code || !parent ? device : parent;
}

static kiln_status check_device(cl_context cl, cl_device_id device)
{
    cl_device_id devices[64];
    size_t bytes = 0;
    cl_int code = clGetContextInfo(cl, CL_CONTEXT_DEVICES, sizeof devices, devices, &bytes);
    if (code)
        return kiln__cl_fail(NULL, "kiln_context_create_cl: clGetContextInfo", code);
    for (size_t i = 0; i < bytes / sizeof *devices; i++)
        if (devices[i] == device || devices[i] == whole_of(device))
            return KILN_OK;
    return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                      "kiln_context_create_cl: the device is not of the cl_context");
}

static kiln_status check_queue(cl_command_queue queue, cl_context cl, bool *profiles)
{
    cl_command_queue_properties properties = 0;
    cl_context own = NULL;
    cl_int code = clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof own, &own, NULL);
    if (!code)
        code =
            clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
    if (code)
        return kiln__cl_fail(NULL, "kiln_context_create_cl: clGetCommandQueueInfo", code);
    *profiles = properties & CL_QUEUE_PROFILING_ENABLE;
    if (own != cl)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "kiln_context_create_cl: the queue is of another cl_context");
    if (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "kiln_context_create_cl: the queue is out of order");
    return KILN_OK;
}

kiln_status kiln_context_create_cl(cl_context cl, cl_device_id device, cl_command_queue queue,
                                   const kiln_context_options *given, kiln_context **result)
{
    kiln_context_options options;
    bool profiles = true;
    if (result)
        *result = NULL;
    if (!result || !cl || !device)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "kiln_context_create_cl: %s is NULL",
                          !result ? "context"
                          : !cl   ? "cl"
                                  : "device");
    kiln_status status = read_options(__func__, given, &options);
    if (!status)
        status = kiln__device_check_process(NULL);
    if (!status)
        status = check_device(cl, device);
    if (!status && queue)
        status = check_queue(queue, cl, &profiles);
    if (!status && !profiles && (options.profile || or_environment(options.trace, "KILN_TRACE")))
        status = kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                            "kiln_context_create_cl: spans need a queue with profiling enabled");
    if (status)
        return status;
    kiln_context *context = calloc(1, sizeof *context);
    if (!context)
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "kiln_context_create_cl: no memory");
    status = kiln__device_from_cl(device, &context->runtime.device, NULL);
    if (status) {
        free(context);
        return status;
    }
    cl_int code = clRetainContext(cl);
    if (code) {
        free(context);
        return kiln__cl_fail(NULL, "kiln_context_create_cl: clRetainContext", code);
    }
    context->runtime.context = cl;
    return api_context_complete(__func__, context, &options, queue, result);
}

kiln_status kiln_context_cl(const kiln_context *context, cl_context *cl, cl_device_id *device,
                            cl_command_queue *queue)
{
    KILN__RETURN_IF_NULL(NULL, __func__, context);
    if (cl)
        *cl = context->runtime.context;
    if (device)
        *device = context->runtime.device.id;
    if (queue)
        *queue = context->runtime.compute->queue;
    if (queue)
        atomic_store(&((kiln_context *)(uintptr_t)context)->runtime.shown, true);
    return KILN_OK;
}

/* ---- the rest of its life ---- */

void kiln_context_retain(kiln_context *context)
{
    if (context)
        atomic_fetch_add(&context->references, 1);
}

void kiln_context_release(kiln_context *context)
{
    if (context && atomic_fetch_sub(&context->references, 1) == 1)
        api_context_destroy(context);
}

kiln_status kiln_context_finish(kiln_context *context)
{
    KILN__RETURN_IF_NULL(NULL, __func__, context);
    kiln_status status = kiln__runtime_check_process(&context->runtime, NULL);
    cl_int code = status ? CL_SUCCESS : kiln__runtime_finish(&context->runtime);
    if (status || code)
        return status ? status : kiln__cl_fail(NULL, "clFinish", code);
    return kiln__runtime_report_failure(&context->runtime, "kiln_context_finish", NULL);
}

kiln_status(kiln_context_device)(const kiln_context *context, kiln_device_info *info, size_t size)
{
    KILN__RETURN_IF_NULL(NULL, __func__, context, info);
    kiln__structure_fill(info, size, &context->runtime.device.info, sizeof *info);
    return KILN_OK;
}

kiln_status(kiln_context_get_stats)(const kiln_context *context, kiln_context_stats *stats,
                                    size_t size)
{
    KILN__RETURN_IF_NULL(NULL, __func__, context, stats);
    const struct kiln__counters *counters = &context->runtime.counters;
    struct kiln__programs_stats programs;
    kiln__programs_get_stats(context->runtime.programs, &programs);
    const kiln_context_stats own = {
        .uploads = atomic_load(&counters->uploads),
        .upload_bytes = atomic_load(&counters->upload_bytes),
        .downloads = atomic_load(&counters->downloads),
        .download_bytes = atomic_load(&counters->download_bytes),
        .launches = atomic_load(&counters->launches),
        .batches = atomic_load(&counters->batches),
        .plans_made = atomic_load(&counters->plans_made),
        .plans_reused = atomic_load(&counters->plans_reused),
        .buffers_live = atomic_load(&counters->buffers_live),
        .buffer_bytes = atomic_load(&counters->buffer_bytes),
        .kernels_compiled = programs.compiled,
        .kernels_from_disk = programs.from_disk,
        .kernels_from_memory = programs.from_memory,
        .cache_stores = programs.stores,
        .cache_failures = programs.failures,
        .pool_bytes = atomic_load(&context->runtime.memory.bytes),
        .cache_pending = programs.pending,
        .compile_seconds = (double)programs.compile_ns * 1e-9,
        .host_bytes = kiln__pins_bytes((struct kiln__pins *)(uintptr_t)&context->runtime.pins),
        .evicted_bytes = atomic_load(&counters->evicted_bytes),
    };
    kiln__structure_fill(stats, size, &own, sizeof own);
    return KILN_OK;
}

kiln_status kiln_context_sync_cache(kiln_context *context)
{
    KILN__RETURN_IF_NULL(NULL, __func__, context);
    kiln_status status = kiln__runtime_check_process(&context->runtime, NULL);
    if (!status) {
        kiln__programs_sync(context->runtime.programs);
        kiln__plan_cache_wait_for_background(context->plan_cache);
    }
    return status;
}

kiln_status kiln_context_trim(kiln_context *context)
{
    KILN__RETURN_IF_NULL(NULL, __func__, context);
    kiln_status status = kiln__runtime_check_process(&context->runtime, NULL);
    if (!status)
        kiln__budget_trim(&context->runtime.memory);
    return status;
}
