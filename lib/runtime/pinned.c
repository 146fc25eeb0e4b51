/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation of pinned host memory, and the sorted table that finds the pinned block of an address.
 * */
#include "runtime/pinned.h"

#include <stdlib.h>
#include <string.h>

/* ---- a piece ---- */

/* A queue of its own: in one that has commands the map would wait for them. */
static cl_int pinned_map(cl_context context, cl_device_id device, struct kiln__pinned *pinned)
{
    cl_int code;
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    if (code)
        return code;
    pinned->memory = clEnqueueMapBuffer(queue, pinned->object, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE,
                                        0, pinned->bytes, 0, NULL, NULL, &code);
    if (code)
        pinned->memory = NULL;
    clReleaseCommandQueue(queue);
    return code;
}

kiln_status kiln__pinned_make(cl_context context, cl_device_id device, size_t bytes,
                              struct kiln__pinned *pinned, struct kiln__error *error)
{
    cl_int code;
    *pinned = (struct kiln__pinned){.bytes = bytes};
    pinned->object = clCreateBuffer(context, CL_MEM_ALLOC_HOST_PTR, bytes, NULL, &code);
    if (!code) {
        code = pinned_map(context, device, pinned);
        if (code)
            clReleaseMemObject(pinned->object);
    }
    if (!code)
        return KILN_OK;
    *pinned = (struct kiln__pinned){0};
    kiln_status status = kiln__cl_status(code);
    return kiln__fail(error, status == KILN_OUT_OF_DEVICE_MEMORY ? KILN_OUT_OF_HOST_MEMORY : status,
                      "no %zu bytes of pinned memory (%s)", bytes, kiln__cl_name(code));
}

void kiln__pinned_free(cl_context context, cl_device_id device, struct kiln__pinned *pinned)
{
    cl_int code;
    if (!pinned->memory)
        return;
    if (pinned->object) {
        cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
        if (!code) {
            clEnqueueUnmapMemObject(queue, pinned->object, pinned->memory, 0, NULL, NULL);
            kiln__cl_finish(queue);
            clReleaseCommandQueue(queue);
        }
        clReleaseMemObject(pinned->object);
    } else {
        free(pinned->memory);
    }
    *pinned = (struct kiln__pinned){0};
}

/* ---- the program's ---- */

void kiln__pins_begin(struct kiln__pins *pins)
{
    pthread_mutex_init(&pins->lock, NULL);
}

void kiln__pins_end(struct kiln__pins *pins)
{
    kiln__vector_free(&pins->pieces);
    kiln__vector_free(&pins->left);
    pthread_mutex_destroy(&pins->lock);
}

/* How many begin before `memory`. The lock is held. */
static size_t rank_of(const struct kiln__pins *pins, const void *memory)
{
    size_t low = 0, high = pins->pieces.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uintptr_t)pins->pieces.items[middle].memory < (uintptr_t)memory)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool kiln__pins_add(struct kiln__pins *pins, const struct kiln__pinned *pinned)
{
    pthread_mutex_lock(&pins->lock);
    size_t count = pins->pieces.count, at = rank_of(pins, pinned->memory);
    struct kiln__pinned *last = kiln__vector_push(&pins->pieces);
    if (last) {
        struct kiln__pinned *place = &pins->pieces.items[at];
        memmove(place + 1, place, (count - at) * sizeof *place);
        *place = *pinned;
        pins->bytes += pinned->bytes;
    }
    pthread_mutex_unlock(&pins->lock);
    return last != NULL;
}

struct kiln__pinned kiln__pins_remove(struct kiln__pins *pins, const void *memory)
{
    struct kiln__pinned found = {0};
    pthread_mutex_lock(&pins->lock);
    size_t at = rank_of(pins, memory);
    struct kiln__pinned *place = at < pins->pieces.count ? &pins->pieces.items[at] : NULL;
    if (place && place->memory == memory) {
        found = *place;
        pins->pieces.count--;
        memmove(place, place + 1, (pins->pieces.count - at) * sizeof *place);
        pins->bytes -= found.bytes;
    }
    pthread_mutex_unlock(&pins->lock);
    return found;
}

/* Without memory for a note the piece is nobody's, which is better than freed under a command. */
void kiln__pins_leave(struct kiln__pins *pins, const struct kiln__pinned *pinned)
{
    pthread_mutex_lock(&pins->lock);
    (void)kiln__vector_add(&pins->left, *pinned);
    pthread_mutex_unlock(&pins->lock);
}

void kiln__pins_clear(struct kiln__pins *pins, cl_context context, cl_device_id device)
{
    for (size_t i = 0; i < pins->left.count; i++)
        kiln__pinned_free(context, device, &pins->left.items[i]);
    pins->left.count = 0;
}

bool kiln__pins_hold(struct kiln__pins *pins, const void *memory, size_t bytes)
{
    uintptr_t from = (uintptr_t)memory;
    pthread_mutex_lock(&pins->lock);
    size_t at = rank_of(pins, (const char *)memory + 1);
    const struct kiln__pinned *piece = at ? &pins->pieces.items[at - 1] : NULL;
    bool inside = piece && from - (uintptr_t)piece->memory <= piece->bytes &&
                  bytes <= piece->bytes - (from - (uintptr_t)piece->memory);
    pthread_mutex_unlock(&pins->lock);
    return inside;
}

uint64_t kiln__pins_bytes(struct kiln__pins *pins)
{
    pthread_mutex_lock(&pins->lock);
    uint64_t bytes = pins->bytes;
    pthread_mutex_unlock(&pins->lock);
    return bytes;
}
