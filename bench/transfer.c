/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers: buffers written and read, and batches that upload and read, from pinned memory and
 * from pageable memory, beside the driver's own way with pageable memory. Where the device works on
 * the host's memory, it is copies that are measured, and a batch makes none. */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#include <kiln/opencl.h>

static const struct size {
    const char *write, *read, *batch;
    size_t bytes;
    bool quick;
} sizes[] = {
    {"write 256 MiB", "read 256 MiB", "up and down, 256 MiB", (size_t)256 << 20, false},
    {"write 64 MiB", "read 64 MiB", "up and down, 64 MiB", (size_t)64 << 20, false},
    {"write 16 MiB", "read 16 MiB", "up and down, 16 MiB", (size_t)16 << 20, true},
    {"write 2 MiB", "read 2 MiB", "up and down, 2 MiB", (size_t)2 << 20, false},
    {"write 64 KiB", "read 64 KiB", "up and down, 64 KiB", (size_t)64 << 10, true},
};

#define MOST ((size_t)256 << 20)

/* One kind of the program's memory. */
struct memory {
    char *from, *to;
    kiln_batch *batch; /* to = -from */
};

static struct work {
    kiln_context *context;
    cl_command_queue queue; /* of the driver alone */
    kiln_buffer *buffer;
    size_t bytes;
    struct memory pinned, pageable;
} work;

/* ---- ways ---- */

static void write_buffer(void *user)
{
    const struct memory *memory = user;
    bench_ok(kiln_buffer_write(work.buffer, 0, memory->from, work.bytes), "writing");
}

static void read_buffer(void *user)
{
    const struct memory *memory = user;
    bench_ok(kiln_buffer_read(work.buffer, 0, memory->to, work.bytes), "reading");
}

/* Pages that nobody has touched yet: most of the time goes to making them. */
static void read_into_new(void *user)
{
    (void)user;
    char *fresh = malloc(work.bytes);
    if (!fresh)
        bench_fail("no memory");
    bench_ok(kiln_buffer_read(work.buffer, 0, fresh, work.bytes), "reading");
    free(fresh);
}

static void driver_writes(void *user)
{
    const struct memory *memory = user;
    if (clEnqueueWriteBuffer(work.queue, kiln_buffer_cl(work.buffer), CL_TRUE, 0, work.bytes,
                             memory->from, 0, NULL, NULL))
        bench_fail("clEnqueueWriteBuffer");
}

static void driver_reads(void *user)
{
    const struct memory *memory = user;
    if (clEnqueueReadBuffer(work.queue, kiln_buffer_cl(work.buffer), CL_TRUE, 0, work.bytes,
                            memory->to, 0, NULL, NULL))
        bench_fail("clEnqueueReadBuffer");
}

static void run_batch(void *user)
{
    const struct memory *memory = user;
    bench_ok(kiln_batch_execute(memory->batch), "the batch");
}

/* ---- checks ---- */

static bool has_arrived(void *user)
{
    struct memory *memory = user;
    memset(memory->to, 0, work.bytes);
    driver_reads(user);
    return !memcmp(memory->to, memory->from, work.bytes);
}

static bool came_back(void *user)
{
    struct memory *memory = user;
    bool right = !memcmp(memory->to, memory->from, work.bytes);
    memset(memory->to, 0, work.bytes);
    return right;
}

static bool is_negated(void *user)
{
    const struct memory *memory = user;
    const float *from = (const void *)memory->from, *to = (const void *)memory->to;
    for (size_t i = 0; i < work.bytes / sizeof *to; i++)
        if (to[i] != -from[i])
            return false;
    return true;
}

/* ---- rows ---- */

static struct bench_row row_of(const char *name, double bytes)
{
    return (struct bench_row){.name = name, .unit = BENCH_GB_PER_SECOND, .amount = bytes};
}

static void measure_write(const char *name)
{
    struct bench_row row = row_of(name, (double)work.bytes);
    if (!bench_wants(name))
        return;
    bench_way(&row, "pinned", write_buffer, has_arrived, &work.pinned);
    bench_way(&row, "pageable", write_buffer, has_arrived, &work.pageable);
    bench_peer(&row, "the driver, pageable", driver_writes, has_arrived, &work.pageable);
    bench_compare(&row, "pageable", "the driver, pageable");
    bench_measure(&row);
}

static void measure_read(const char *name)
{
    struct bench_row row = row_of(name, (double)work.bytes);
    if (!bench_wants(name))
        return;
    write_buffer(&work.pageable);
    bench_way(&row, "pinned", read_buffer, came_back, &work.pinned);
    bench_way(&row, "pageable", read_buffer, came_back, &work.pageable);
    bench_way(&row, "pages never touched", read_into_new, NULL, NULL);
    bench_peer(&row, "the driver, pageable", driver_reads, came_back, &work.pageable);
    bench_compare(&row, "pageable", "the driver, pageable");
    bench_measure(&row);
}

static void record(struct memory *memory)
{
    const size_t count = work.bytes / sizeof(float);
    memory->batch = kiln_batch_create(work.context);
    kiln_tensor x = kiln_upload(memory->batch, KILN_F32, 1, &count, memory->from);
    kiln_read(memory->batch, kiln_neg(memory->batch, x), memory->to, work.bytes);
    bench_ok(kiln_batch_status(memory->batch), "recording");
}

static void measure_batch(const char *name)
{
    struct bench_row row = row_of(name, 2 * (double)work.bytes);
    if (!bench_wants(name))
        return;
    record(&work.pinned);
    record(&work.pageable);
    bench_way(&row, "pinned", run_batch, is_negated, &work.pinned);
    bench_way(&row, "pageable", run_batch, is_negated, &work.pageable);
    bench_compare(&row, "pinned", "pageable");
    bench_measure(&row);
    kiln_batch_release(work.pinned.batch);
    kiln_batch_release(work.pageable.batch);
}

static void measure(const struct size *size)
{
    const size_t count = size->bytes / sizeof(float);
    work.bytes = size->bytes;
    bench_ok(kiln_buffer_create(work.context, KILN_F32, 1, &count, &work.buffer), "a buffer");
    measure_write(size->write);
    measure_read(size->read);
    measure_batch(size->batch);
    kiln_buffer_release(work.buffer);
}

static void make_memory(size_t most)
{
    work.pageable.from = (char *)bench_floats(most / sizeof(float), 1);
    work.pageable.to = bench_memory(most);
    bench_ok(kiln_host_alloc(work.context, most, (void **)&work.pinned.from), "pinned memory");
    bench_ok(kiln_host_alloc(work.context, most, (void **)&work.pinned.to), "pinned memory");
    memcpy(work.pinned.from, work.pageable.from, most);
    memset(work.pinned.to, 0, most);
}

int main(int argc, char **argv)
{
    const struct bench_program program = {
        .name = "transfer", .purpose = "transfers between host memory and the device"};
    cl_context cl;
    cl_device_id device;
    work.context = bench_start(&program, argc, argv);
    bench_ok(kiln_context_cl(work.context, &cl, &device, NULL), "kiln's cl_context");
    work.queue = clCreateCommandQueue(cl, device, 0, NULL);
    if (!work.queue)
        bench_fail("clCreateCommandQueue");
    make_memory(bench_is_quick() ? MOST / 16 : MOST);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].quick || !bench_is_quick())
            measure(&sizes[i]);
    kiln_host_free(work.context, work.pinned.from);
    kiln_host_free(work.context, work.pinned.to);
    clReleaseCommandQueue(work.queue);
    return bench_end(work.context);
}
