/* SPDX-License-Identifier: Apache-2.0 */
/* clBuildProgram and binaries: build logs as errors, loading, fetching, and the second build of
 * edited binaries. */
#include "programs/build.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "programs/builtins.h"
#include "programs/compiler_guard.h"
#include "programs/edit.h"
#include "util/log.h"
#include "util/verify.h"

/* ---- the compiler's words ---- */

/* All of them; "" if there are none. NULL without memory. Owner: the caller. */
static char *read_log(cl_program program, cl_device_id device)
{
    size_t size = 0;
    if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &size))
        size = 0;
    char *log = calloc(1, size + 1);
    if (log && size &&
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log, NULL))
        *log = 0;
    return log;
}

/* One line of the log each: a line of kiln's log has an end. */
static void print_log(const char *kernel, const char *log)
{
    KILN__LOG(KILN__LOG_DEBUG, "the compiler's log for %s:", kernel);
    while (*log) {
        size_t length = strcspn(log, "\n");
        KILN__LOG(KILN__LOG_DEBUG, "  %.*s", (int)length, log);
        log += length + (log[length] == '\n');
    }
}

/* The part that a sentence has room for: from the line with the first error on. */
static void shorten_log(char *log, size_t most)
{
    char *first = strstr(log, "error:");
    while (first && first > log && first[-1] != '\n')
        first--;
    if (first)
        memmove(log, first, strlen(first) + 1);
    log[strlen(log) < most ? strlen(log) : most] = 0;
    for (size_t end = strlen(log); end && strchr(" \n", log[end - 1]); end--)
        log[end - 1] = 0;
}

static kiln_status build_error(cl_program program, const struct kiln__device *device,
                               const char *kernel, cl_int code, struct kiln__error *error)
{
    if (code == CL_COMPILER_NOT_AVAILABLE)
        return kiln__fail(error, KILN_UNSUPPORTED, "%s has no compiler for OpenCL C",
                          device->info.name);
    if (code != CL_BUILD_PROGRAM_FAILURE && code != CL_INVALID_BUILD_OPTIONS)
        return kiln__cl_fail(error, "clBuildProgram", code);
    char *log = read_log(program, device->id);
    if (log) {
        print_log(kernel, log);
        shorten_log(log, 320);
    }
    kiln_status status =
        kiln__fail(error, KILN_BUILD_FAILED, "kernel %.80s could not be compiled: %s", kernel,
                   log && *log ? log : kiln__cl_name(code));
    free(log);
    return status;
}

/* ---- from a binary ---- */

static cl_int build_binary(cl_context context, const struct kiln__device *device, const void *bytes,
                           size_t length, const char *options, cl_program *program)
{
    const unsigned char *binary = bytes;
    cl_int code, of_binary = CL_SUCCESS;
    *program =
        clCreateProgramWithBinary(context, 1, &device->id, &length, &binary, &of_binary, &code);
    if (!*program)
        return code ? code : CL_INVALID_BINARY;
    code = of_binary;
    if (!code)
        code = clBuildProgram(*program, 1, &device->id, options, NULL, NULL);
    if (code) {
        clReleaseProgram(*program);
        *program = NULL;
    }
    return code;
}

cl_int kiln__build_binary(cl_context context, const struct kiln__device *device, const void *bytes,
                          size_t length, const char *options, cl_program *program)
{
    *program = NULL;
    if (!kiln__compiler_enter())
        return CL_COMPILER_NOT_AVAILABLE;
    cl_int code = build_binary(context, device, bytes, length, options, program);
    kiln__compiler_leave();
    return code;
}

/* ---- fetching ---- */

/* A context of several devices has a binary for each; the others' are not asked for. */
struct binaries {
    cl_uint count;
    cl_device_id *devices;
    size_t *sizes;
    unsigned char **bytes;
};

static cl_int build_prepare(cl_program program, struct binaries *all)
{
    cl_int code =
        clGetProgramInfo(program, CL_PROGRAM_NUM_DEVICES, sizeof all->count, &all->count, NULL);
    if (code)
        return code;
    all->devices = calloc(all->count + 1, sizeof *all->devices);
    all->sizes = calloc(all->count + 1, sizeof *all->sizes);
    all->bytes = calloc(all->count + 1, sizeof *all->bytes);
    if (!all->devices || !all->sizes || !all->bytes)
        return CL_OUT_OF_HOST_MEMORY;
    code = clGetProgramInfo(program, CL_PROGRAM_DEVICES, all->count * sizeof *all->devices,
                            all->devices, NULL);
    if (!code)
        code = clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, all->count * sizeof *all->sizes,
                                all->sizes, NULL);
    return code;
}

static cl_int build_fetch(cl_program program, cl_device_id device, struct binaries *all,
                          void **bytes, size_t *length)
{
    cl_uint mine = 0;
    while (mine < all->count && all->devices[mine] != device)
        mine++;
    if (mine == all->count || !all->sizes[mine])
        return CL_INVALID_PROGRAM_EXECUTABLE;
    all->bytes[mine] = malloc(all->sizes[mine]);
    if (!all->bytes[mine])
        return CL_OUT_OF_HOST_MEMORY;
    cl_int code = clGetProgramInfo(program, CL_PROGRAM_BINARIES, all->count * sizeof *all->bytes,
                                   all->bytes, NULL);
    if (code) {
        free(all->bytes[mine]);
        return code;
    }
    *bytes = all->bytes[mine];
    *length = all->sizes[mine];
    return CL_SUCCESS;
}

cl_int kiln__build_fetch(cl_program program, const struct kiln__device *device, void **bytes,
                         size_t *length)
{
    struct binaries all = {0};
    if (!kiln__compiler_enter()) /* PoCL compiles again */
        return CL_COMPILER_NOT_AVAILABLE;
    cl_int code = build_prepare(program, &all);
    if (!code)
        code = build_fetch(program, device->id, &all, bytes, length);
    kiln__compiler_leave();
    free(all.devices);
    free(all.sizes);
    free(all.bytes);
    return code;
}

/* ---- from source ---- */

static kiln_status edit_failed(const char *kernel, const char *why, struct kiln__error *error)
{
    return kiln__fail(error, KILN_BUILD_FAILED, "kernel %.80s cannot be edited: %s", kernel, why);
}

/* Build what the source's edits make of a program's binary, in its place. */
static kiln_status edit(cl_context context, const struct kiln__device *device, const char *source,
                        const char *options, const char *kernel, cl_program *program,
                        struct kiln__error *error)
{
    char why[KILN__EDIT_WHY];
    void *binary = NULL;
    size_t length;
    cl_int code = kiln__build_fetch(*program, device, &binary, &length);
    clReleaseProgram(*program);
    *program = NULL;
    if (code)
        return edit_failed(kernel, kiln__cl_name(code), error);
    char *text = kiln__edit_apply(source, options, binary, length, why);
    free(binary);
    if (!text)
        return edit_failed(kernel, why, error);
    code = kiln__build_binary(context, device, text, strlen(text), options, program);
    free(text);
    return code ? edit_failed(kernel, kiln__cl_name(code), error) : KILN_OK;
}

/* Whether the compiler has failed and does not say why. So PoCL does, now and then, where another
 * process builds the same into its cache. */
static bool is_unexplained(cl_program program, const struct kiln__device *device, cl_int code)
{
    char *log = code == CL_BUILD_PROGRAM_FAILURE ? read_log(program, device->id) : NULL;
    const bool silent = log && !log[strspn(log, " \n")];
    free(log);
    return silent;
}

/* What is asked for. */
struct request {
    cl_context context;
    const struct kiln__device *device;
    const char *source, *options, *kernel;
};

/* After an error there may still be a program, whose log says why. */
static cl_int compile(const struct request *request, cl_program *program)
{
    const cl_device_id id = request->device->id;
    cl_int code;
    *program = clCreateProgramWithSource(request->context, 1, (const char **)&request->source, NULL,
                                         &code);
    if (!*program)
        return code;
    code = clBuildProgram(*program, 1, &id, request->options, NULL, NULL);
    if (is_unexplained(*program, request->device, code)) {
        KILN__LOG(KILN__LOG_WARN, "kernel %s was not compiled, without a cause: once more",
                  request->kernel);
        code = clBuildProgram(*program, 1, &id, request->options, NULL, NULL);
    }
    return code;
}

/* ---- with kiln's declarations of OpenCL C's functions ---- */

/* The compiler has taken a program with its own declarations alone: all have these from then on. */
static atomic_bool needs_own;

/* The option among a program's; NULL: the compiler's declarations are wanted. */
static const char *find_bare_option(const struct request *request)
{
    const char *option = request->device->traits->bare_option;
    return option && request->options ? strstr(request->options, option) : NULL;
}

static cl_int compile_bare(const struct request *request, cl_program *program)
{
    struct request bare = *request;
    struct kiln__text text = {0};
    kiln__builtins_declare(request->source, &text);
    bare.source = text.data;
    const cl_int code = text.failed ? CL_OUT_OF_HOST_MEMORY : compile(&bare, program);
    kiln__text_free(&text);
    return code;
}

/* Without the option, which is at `option`. */
static cl_int compile_whole(const struct request *request, const char *option, cl_program *program)
{
    struct request whole = *request;
    struct kiln__text text = {0};
    kiln__text_add_bytes(&text, request->options, (size_t)(option - request->options));
    kiln__text_add(&text, "%s", option + strlen(request->device->traits->bare_option));
    whole.options = text.data;
    const cl_int code = text.failed ? CL_OUT_OF_HOST_MEMORY : compile(&whole, program);
    kiln__text_free(&text);
    return code;
}

/* Whether kernels/builtins.cl lacks a function that the program calls, as its log says. */
static bool lacks_function(const char *log)
{
    return strstr(log, "undeclared identifier") || strstr(log, "implicit declaration");
}

/* What a compiler does not take with kiln's declarations it is given with its own: it may be
 * another than those that they were tried with. An error that stays is the program's. */
static cl_int compile_again(const struct request *request, const char *option, const char *log,
                            cl_program *program)
{
    const cl_int code = compile_whole(request, option, program);
    if (code || !log[strspn(log, " \n")])
        return code;
    if (!atomic_exchange(&needs_own, true))
        KILN__LOG(KILN__LOG_INFO, "this compiler takes %s with its own declarations alone",
                  request->kernel);
    print_log(request->kernel, log);
    return code;
}

static cl_int compile_either(const struct request *request, const char *option, cl_program *program)
{
    if (atomic_load(&needs_own))
        return compile_whole(request, option, program);
    const cl_int code = compile_bare(request, program);
    if (code != CL_BUILD_PROGRAM_FAILURE && code != CL_INVALID_BUILD_OPTIONS)
        return code;
    cl_program refused = *program;
    char *log = read_log(refused, request->device->id);
    if (!log || (kiln__verifies && lacks_function(log))) { /* tests are to see it */
        free(log);
        return code;
    }
    const cl_int again = compile_again(request, option, log, program);
    clReleaseProgram(refused);
    free(log);
    return again;
}

static kiln_status build_source(const struct request *request, cl_program *program,
                                struct kiln__error *error)
{
    const char *option = find_bare_option(request);
    const cl_int code =
        option ? compile_either(request, option, program) : compile(request, program);
    if (!*program)
        return kiln__cl_fail(error, "clCreateProgramWithSource", code);
    if (!code)
        return kiln__edit_is_wanted(request->source)
                   ? edit(request->context, request->device, request->source, request->options,
                          request->kernel, program, error)
                   : KILN_OK;
    const kiln_status status = build_error(*program, request->device, request->kernel, code, error);
    clReleaseProgram(*program);
    *program = NULL;
    return status;
}

kiln_status kiln__build_source(cl_context context, const struct kiln__device *device,
                               const char *source, const char *options, const char *kernel,
                               cl_program *program, struct kiln__error *error)
{
    *program = NULL;
    if (!kiln__compiler_enter())
        return kiln__fail(error, KILN_BUILD_FAILED,
                          "kernel %.80s is not compiled: the process ends", kernel);
    const struct request request = {context, device, source, options, kernel};
    kiln_status status = build_source(&request, program, error);
    kiln__compiler_leave();
    return status;
}
