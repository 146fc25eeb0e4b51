/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that travels without a copy. */

#include "runtime/pages.h"
#include "session/context.h"

/* Of pages: drivers use them in place where memory is shared. */
#define ALIGNMENT ((size_t)4096)

static kiln_status host_memory_make(const struct kiln__runtime *runtime, size_t bytes,
                                    struct kiln__pinned *pinned, struct kiln__error *error)
{
    if (runtime->host_mode == KILN__HOST_SEPARATE)
        return kiln__pinned_make(runtime->context, runtime->device.id, bytes, pinned, error);
    bool fits = bytes < runtime->device.info.memory; /* it is the host's, too */
    *pinned = (struct kiln__pinned){.memory = fits ? kiln__pages_alloc(bytes, ALIGNMENT) : NULL,
                                    .bytes = bytes};
    return pinned->memory
               ? KILN_OK
               : kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "no %zu bytes of memory", bytes);
}

kiln_status kiln_host_alloc(kiln_context *context, size_t bytes, void **memory)
{
    struct kiln__pinned pinned;
    struct kiln__error error = {0};
    if (memory)
        *memory = NULL;
    KILN__RETURN_IF_NULL(NULL, __func__, context, memory);
    struct kiln__runtime *runtime = &context->runtime;
    kiln_status status = kiln__runtime_check_process(runtime, NULL);
    if (status)
        return status;
    status = host_memory_make(runtime, bytes ? bytes : 1, &pinned, &error);
    if (status)
        return kiln__fail(NULL, status, "kiln_host_alloc: %s", error.text);
    if (!kiln__pins_add(&runtime->pins, &pinned)) {
        kiln__pinned_free(runtime->context, runtime->device.id, &pinned);
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "kiln_host_alloc: no memory");
    }
    kiln_context_retain(context);
    *memory = pinned.memory;
    return KILN_OK;
}

kiln_status kiln_host_free(kiln_context *context, void *memory)
{
    if (!memory)
        return KILN_OK;
    KILN__RETURN_IF_NULL(NULL, __func__, context);
    struct kiln__runtime *runtime = &context->runtime;
    bool child = kiln__runtime_check_process(runtime, NULL);
    struct kiln__pinned pinned = kiln__pins_remove(&runtime->pins, memory);
    if (!pinned.memory)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "kiln_host_free: %p is not the beginning of memory that "
                          "kiln_host_alloc() of this context gave",
                          memory);
    if (!child && atomic_load(&runtime->lost) && kiln__runtime_finish(runtime))
        kiln__pins_leave(&runtime->pins, &pinned);
    else if (!child) /* else it is the driver's, which must be left alone there */
        kiln__pinned_free(runtime->context, runtime->device.id, &pinned);
    kiln_context_release(context);
    return KILN_OK;
}
