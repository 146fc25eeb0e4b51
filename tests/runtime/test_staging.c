/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between the caller's memory and a device with memory of its own: through pinned memory
 * piece by piece, or straight from memory that is pinned. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "session/context.h"

enum { MOST = (37 << 20) + 5, MARGIN = 64 };

static unsigned char there[MOST], back[MOST + 2 * MARGIN];

struct stage {
    kiln_context *context;
    struct kiln__runtime *runtime;
    struct kiln__stream *stream;
    struct kiln__staging *staging;
    kiln_buffer *buffer;
};

static struct stage open_stage(unsigned threads)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.host_memory = KILN_HOST_MEMORY_SEPARATE;
    struct stage stage = {.context = open_context_with(&options)};
    stage.runtime = &stage.context->runtime;
    stage.stream = stage.runtime->compute;
    const struct kiln__staging_options made = {.context = stage.runtime->context,
                                               .device = stage.runtime->device.id,
                                               .queue = stage.stream->queue,
                                               .pins = &stage.runtime->pins,
                                               .separate = true,
                                               .threads = threads};
    stage.staging = kiln__staging_create(&made);
    cr_assert(stage.staging);
    expect_ok(
        kiln_buffer_create(stage.context, KILN_U8, 1, (size_t[]){MOST + MARGIN}, &stage.buffer));
    for (size_t i = 0; i < MOST; i++)
        there[i] = (unsigned char)(i * 2654435761u >> 13);
    return stage;
}

static void close_stage(struct stage *stage)
{
    expect_ok(kiln_context_finish(stage->context));
    kiln__staging_destroy(stage->staging);
    kiln_buffer_release(stage->buffer);
    close_context(stage->context);
}

static void await(struct kiln__events *events)
{
    cr_assert_gt(events->count, 0u);
    cr_expect_eq(clWaitForEvents((cl_uint)events->count, events->items), CL_SUCCESS);
    kiln__events_free(events);
}

/* Each size goes there and back, at an odd place of the buffer, and nothing beside it is touched.
 */
static void expect_sizes(unsigned threads)
{
    static const size_t sizes[] = {1,       4 << 10,          256 << 10, (256 << 10) + 1,
                                   1 << 20, (8 << 20) + 7777, MOST};
    struct stage stage = open_stage(threads);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct kiln__events events = {0};
        const struct kiln__transfer up = {stage.buffer->memory, 3, (char *)there, sizes[i]};
        const struct kiln__transfer down = {stage.buffer->memory, 3, (char *)back + MARGIN,
                                            sizes[i]};
        memset(back, 77, sizeof back);
        expect_ok(kiln__staging_upload(stage.staging, &up, &events, NULL));
        await(&events);
        expect_ok(kiln__staging_download(stage.staging, &down, true, &events, NULL));
        if (threads > 1 && sizes[i] > (8 << 20)) /* else it is left to the driver */
            cr_expect(!memcmp(back + MARGIN, there, sizes[i]), "%zu bytes, not awaited", sizes[i]);
        await(&events);
        cr_expect(!memcmp(back + MARGIN, there, sizes[i]), "%zu bytes", sizes[i]);
        for (int k = 0; k < MARGIN; k++)
            cr_assert(back[k] == 77 && back[MARGIN + sizes[i] + (size_t)k] == 77, "written beside");
    }
    close_stage(&stage);
}

Test(staging, brings_every_size_there_and_back)
{
    expect_sizes(1);
}

Test(staging, brings_every_size_there_and_back_with_several_threads)
{
    expect_sizes(2);
    expect_sizes(8);
}

/* The last event is that of the end, whichever thread enqueued last: the others have ended then. */
Test(staging, ends_with_its_last_event)
{
    struct stage stage = open_stage(4);
    for (int round = 0; round < 8; round++) {
        struct kiln__events events = {0};
        const struct kiln__transfer up = {stage.buffer->memory, 0, (char *)there, 36 << 20};
        expect_ok(kiln__staging_upload(stage.staging, &up, &events, NULL));
        cr_assert_eq(clWaitForEvents(1, &events.items[events.count - 1]), CL_SUCCESS);
        for (size_t i = 0; i < events.count; i++) {
            cl_int state = CL_QUEUED;
            clGetEventInfo(events.items[i], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state,
                           NULL);
            cr_assert_eq(state, CL_COMPLETE, "event %zu", i);
        }
        kiln__events_free(&events);
    }
    close_stage(&stage);
}

/* ---- threads that transfer at the same moment ---- */

enum { THREADS = 3, PART = 9 << 20 };

static struct stage shared;
static atomic_int failures;

static void *transfer_a_part(void *argument)
{
    size_t at = (size_t)(uintptr_t)argument * PART;
    for (int round = 0; round < 3; round++) {
        struct kiln__events events = {0};
        const struct kiln__transfer up = {shared.buffer->memory, at, (char *)there + at, PART};
        const struct kiln__transfer down = {shared.buffer->memory, at, (char *)back + at, PART};
        if (kiln__staging_upload(shared.staging, &up, &events, NULL) ||
            kiln__staging_download(shared.staging, &down, true, &events, NULL) ||
            memcmp(back + at, there + at, PART))
            atomic_fetch_add(&failures, 1);
        kiln__events_free(&events);
    }
    return NULL;
}

Test(staging, is_shared_by_threads)
{
    pthread_t threads[THREADS];
    shared = open_stage(2);
    for (uintptr_t i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, transfer_a_part, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_expect_eq(failures, 0);
    close_stage(&shared);
}

/* ---- calls that fail ---- */

/* Each call that a large transfer makes, one after the other: it is told, or made up for. */
static void fail_each(bool up)
{
    struct stage stage = open_stage(2);
    const struct kiln__transfer transfer = {stage.buffer->memory, 0,
                                            up ? (char *)there : (char *)back, 20 << 20};
    const struct kiln__transfer content = {stage.buffer->memory, 0, (char *)there, 20 << 20};
    bool hit = true;
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    for (unsigned long n = 1; hit; n += 1 + n / 8) {
        struct kiln__events events = {0};
        struct kiln__error error = {0};
        expect_ok(kiln__staging_upload(stage.staging, &content, &events, NULL));
        await(&events);
        memset(back, 0, sizeof back);
        layer_fail(n, NULL, -5, KILN_LAYER_ONCE, KILN_LAYER_CALL);
        kiln_status status =
            up ? kiln__staging_upload(stage.staging, &transfer, &events, &error)
               : kiln__staging_download(stage.staging, &transfer, true, &events, &error);
        hit = layer_failures();
        layer_reset();
        cr_assert_eq(status != KILN_OK, error.status != KILN_OK);
        if (!status && !up)
            cr_assert(!memcmp(back, there, 20 << 20), "call %lu", n);
        kiln__cl_finish(stage.stream->queue);
        kiln__events_free(&events);
    }
    close_stage(&stage);
    cr_expect_eq(layer_count("alive"), 0u, "%s", layer_snapshot());
}

Test(staging, tells_of_a_call_that_fails_on_the_way_up)
{
    fail_each(true);
}

Test(staging, tells_of_a_call_that_fails_on_the_way_down)
{
    fail_each(false);
}

/* A driver that pins nothing: the caller's memory is handed to it as it is. */
Test(staging, goes_without_pinned_memory)
{
    struct stage stage = open_stage(2);
    struct kiln__events events = {0};
    const struct kiln__transfer up = {stage.buffer->memory, 0, (char *)there, 9 << 20};
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    layer_fail_next("clEnqueueMapBuffer", -12, KILN_LAYER_CALL);
    expect_ok(kiln__staging_upload(stage.staging, &up, &events, NULL));
    cr_expect_eq(layer_failures(), 1u);
    cr_expect_eq(layer_count("clEnqueueWriteBuffer"), 1u);
    await(&events);
    expect_ok(kiln_buffer_read(stage.buffer, 0, back, 9 << 20));
    cr_expect(!memcmp(back, there, 9 << 20));
    close_stage(&stage);
}

/* ---- memory of kiln_host_alloc() ---- */

/* From anywhere in it, also after other pieces came and went. */
Test(staging, leaves_pinned_memory_where_it_is)
{
    struct stage stage = open_stage(2);
    char *pieces[3];
    enum { BYTES = 9 << 20 };
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    for (int i = 0; i < 3; i++)
        expect_ok(kiln_host_alloc(stage.context, BYTES, (void **)&pieces[i]));
    cr_expect_eq(stats_of(stage.context).host_bytes, 3u * BYTES);
    expect_ok(kiln_host_free(stage.context, pieces[1]));
    for (int i = 0; i < 3; i += 2) {
        memcpy(pieces[i] + 100, there, BYTES - 100);
        layer_reset();
        const struct kiln__transfer up = {stage.buffer->memory, 0, pieces[i] + 100, BYTES - 100};
        const struct kiln__transfer down = {stage.buffer->memory, 0, pieces[i], BYTES - 200};
        const struct kiln__transfer small = {stage.buffer->memory, 0, pieces[i], 100};
        struct kiln__events events = {0};
        expect_ok(kiln__staging_upload(stage.staging, &up, &events, NULL));
        expect_ok(kiln__staging_download(stage.staging, &down, true, &events, NULL));
        expect_ok(kiln__staging_upload(stage.staging, &small, &events, NULL));
        await(&events);
        cr_expect_eq(layer_count("upload.count"), 2u);
        cr_expect_eq(layer_count("download.count"), 1u);
        cr_expect_eq(layer_count("clEnqueueMapBuffer"), 0u);
        cr_expect(!memcmp(pieces[i], there, BYTES - 200));
    }
    expect_ok(kiln_host_free(stage.context, pieces[0]));
    expect_ok(kiln_host_free(stage.context, pieces[2]));
    cr_expect_eq(stats_of(stage.context).host_bytes, 0u);
    close_stage(&stage);
    cr_expect_eq(layer_count("alive"), 0u, "%s", layer_snapshot());
}

Test(staging, knows_what_is_pinned)
{
    static char memory[1000];
    struct kiln__pins pins = {0};
    kiln__pins_begin(&pins);
    const struct kiln__pinned pieces[] = {{memory + 500, 100, NULL}, {memory + 100, 50, NULL}};
    cr_expect(!kiln__pins_hold(&pins, memory, 1));
    for (int i = 0; i < 2; i++)
        cr_assert(kiln__pins_add(&pins, &pieces[i]));
    cr_expect(kiln__pins_hold(&pins, memory + 100, 50));
    cr_expect(kiln__pins_hold(&pins, memory + 149, 1));
    cr_expect(kiln__pins_hold(&pins, memory + 530, 70));
    cr_expect(!kiln__pins_hold(&pins, memory + 99, 2));
    cr_expect(!kiln__pins_hold(&pins, memory + 149, 2));
    cr_expect(!kiln__pins_hold(&pins, memory + 530, 71));
    cr_expect(!kiln__pins_hold(&pins, memory + 530, SIZE_MAX));
    cr_expect(!kiln__pins_hold(&pins, memory + 601, 0));
    cr_expect_eq(kiln__pins_bytes(&pins), 150u);
    cr_expect_null(kiln__pins_remove(&pins, memory + 101).memory);
    cr_expect_eq(kiln__pins_remove(&pins, memory + 100).bytes, 50u);
    cr_expect_null(kiln__pins_remove(&pins, memory + 100).memory);
    cr_expect(!kiln__pins_hold(&pins, memory + 100, 50));
    cr_expect_eq(kiln__pins_bytes(&pins), 100u);
    kiln__pins_end(&pins);
}
