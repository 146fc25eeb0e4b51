/* SPDX-License-Identifier: Apache-2.0 */
/* Ring buffers of pinned memory, and the threads that copy pieces between them and the caller's
 * arrays. */
#include "runtime/staging.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* What fits into a piece of the first ring goes through that, more through the second. (Pinning
 * takes its time: the first, which all need, is small.) */
static const struct ring_size {
    unsigned pieces;
    size_t bytes; /* of a piece */
} sizes[] = {
    {8, (size_t)256 << 10},
    {16, (size_t)2 << 20},
};
enum { RINGS = sizeof sizes / sizeof *sizes, MOST_PIECES = 16 };

/* A thread more for each so many pieces: fewer are copied before it has started. One alone copies
 * no faster than the driver, which is left what is not worth two: on an H200 it brings up 8.5 to 15
 * GB/s and down 17, two threads 19, four 33 and eight 45, of 55 that the bus can do. */
#define PIECES_A_THREAD 2
#define MOST_THREADS 8

struct ring {
    pthread_mutex_t lock; /* guards what follows; held while a transfer goes through, so that pieces
                             are used in the order in which they become free */
    bool tried;
    struct kiln__pinned pinned; /* without memory: the driver gave none, and transfers go straight
                                   from and to the caller's */
    cl_event busy[MOST_PIECES]; /* the command that still uses a piece, or NULL */
    unsigned next;
};

struct kiln__staging {
    struct kiln__staging_options options;
    struct ring rings[RINGS];
};

struct kiln__staging *kiln__staging_create(const struct kiln__staging_options *options)
{
    struct kiln__staging *staging = calloc(1, sizeof *staging);
    if (!staging)
        return NULL;
    staging->options = *options;
    for (unsigned i = 0; i < RINGS; i++)
        pthread_mutex_init(&staging->rings[i].lock, NULL);
    return staging;
}

void kiln__staging_destroy(struct kiln__staging *staging)
{
    if (!staging)
        return;
    for (unsigned i = 0; i < RINGS; i++) {
        struct ring *ring = &staging->rings[i];
        for (unsigned k = 0; k < MOST_PIECES; k++)
            if (ring->busy[k])
                clReleaseEvent(ring->busy[k]);
        kiln__pinned_free(staging->options.context, staging->options.device, &ring->pinned);
        pthread_mutex_destroy(&ring->lock);
    }
    free(staging);
}

/* ---- straight ---- */

/* A command of whose end nobody could hear is waited for. */
static kiln_status staging_note(cl_command_queue queue, struct kiln__events *events, cl_event event,
                                struct kiln__error *error)
{
    if (kiln__vector_add(events, event))
        return KILN_OK;
    kiln__cl_finish(queue);
    clReleaseEvent(event);
    return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for a transfer");
}

static cl_int staging_enqueue(cl_command_queue queue, const struct kiln__transfer *transfer,
                              bool up, cl_event *event)
{
    return up ? clEnqueueWriteBuffer(queue, transfer->memory, CL_FALSE, transfer->offset,
                                     transfer->bytes, transfer->host, 0, NULL, event)
              : clEnqueueReadBuffer(queue, transfer->memory, CL_FALSE, transfer->offset,
                                    transfer->bytes, transfer->host, 0, NULL, event);
}

static kiln_status go_straight(cl_command_queue queue, const struct kiln__transfer *transfer,
                               bool up, struct kiln__events *events, struct kiln__error *error)
{
    cl_event event = NULL;
    cl_int code = staging_enqueue(queue, transfer, up, &event);
    return code ? kiln__cl_fail(error, up ? "clEnqueueWriteBuffer" : "clEnqueueReadBuffer", code)
                : staging_note(queue, events, event, error);
}

/* ---- through a ring ---- */

/* One transfer, and the threads that share it: each has every so-manieth piece, and with them
 * pieces of the ring that no other one touches. */
struct striped_transfer {
    cl_command_queue queue;
    struct ring *ring;
    const struct kiln__transfer *whole;
    bool up;
    size_t piece_bytes, pieces;
    unsigned slots, first, threads; /* slots are a multiple of threads */
};

struct transfer_thread {
    const struct striped_transfer *striped;
    pthread_t thread;
    struct kiln__events events;                 /* of its pieces, in their order */
    struct kiln__transfer leaving[MOST_PIECES]; /* per piece of the ring: what it brings down */
    struct kiln__error error;
    unsigned number;
};

static struct kiln__transfer staging_part(const struct striped_transfer *striped, size_t piece)
{
    struct kiln__transfer transfer = *striped->whole;
    size_t from = piece * striped->piece_bytes, left = transfer.bytes - from;
    transfer.offset += from;
    transfer.host += from;
    transfer.bytes = left < striped->piece_bytes ? left : striped->piece_bytes;
    return transfer;
}

/* Out of a ring: past the caches, since lines of `to` need not be fetched then. With two and four
 * threads an H200's host does so at 22 and 41 GB/s, and at 14 and 24 by memcpy(). */
static void copy_past(char *to, const char *from, size_t bytes)
{
#ifdef __SSE2__
    size_t head = (16 - (uintptr_t)to % 16) % 16;
    head = head < bytes ? head : bytes;
    memcpy(to, from, head);
    for (to += head, from += head, bytes -= head; bytes >= 64; to += 64, from += 64, bytes -= 64)
        for (int i = 0; i < 4; i++)
            _mm_stream_si128((__m128i *)(void *)to + i,
                             _mm_loadu_si128((const __m128i *)(const void *)from + i));
    _mm_sfence();
#endif
    memcpy(to, from, bytes);
}

static char *pinned_at(const struct striped_transfer *striped, unsigned slot)
{
    return striped->ring->pinned.memory + slot * striped->piece_bytes;
}

/* Until nothing uses the piece of the ring any more: its command has completed, or failed; which of
 * the two is for the events to say. What it brought is handed over. */
static kiln_status staging_empty(struct transfer_thread *thread, unsigned slot)
{
    const struct striped_transfer *striped = thread->striped;
    cl_event *busy = &striped->ring->busy[slot];
    struct kiln__transfer *leaving = &thread->leaving[slot];
    if (!*busy)
        return KILN_OK;
    cl_int code = clWaitForEvents(1, busy);
    if (code && code != CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
        return kiln__cl_fail(&thread->error, "clWaitForEvents", code);
    clReleaseEvent(*busy);
    *busy = NULL;
    if (leaving->host && !code)
        copy_past(leaving->host, pinned_at(striped, slot), leaving->bytes);
    leaving->host = NULL;
    return KILN_OK;
}

static kiln_status carry_piece(struct transfer_thread *thread, size_t piece)
{
    const struct striped_transfer *striped = thread->striped;
    unsigned slot = (unsigned)((striped->first + piece) % striped->slots);
    struct kiln__transfer own = staging_part(striped, piece), staged = own;
    cl_event *busy = &striped->ring->busy[slot], event = NULL;
    kiln_status status = staging_empty(thread, slot);
    if (status)
        return status;
    staged.host = pinned_at(striped, slot);
    if (striped->up)
        memcpy(staged.host, own.host, own.bytes);
    status = go_straight(striped->queue, &staged, striped->up, &thread->events, &thread->error);
    if (status)
        return status;
    event = thread->events.items[thread->events.count - 1];
    cl_int code = clRetainEvent(event);
    if (code) {
        kiln__cl_finish(striped->queue);
        return kiln__cl_fail(&thread->error, "clRetainEvent", code);
    }
    *busy = event;
    if (!striped->up)
        thread->leaving[slot] = own;
    code = striped->pieces > 1 ? clFlush(striped->queue) : CL_SUCCESS;
    return code ? kiln__cl_fail(&thread->error, "clFlush", code) : KILN_OK;
}

/* Pieces that are on their way down arrive also after an error. */
static void *carry(void *argument)
{
    struct transfer_thread *thread = argument;
    const struct striped_transfer *striped = thread->striped;
    kiln_status status = KILN_OK;
    size_t piece = thread->number;
    for (; piece < striped->pieces && !status; piece += striped->threads)
        status = carry_piece(thread, piece);
    for (unsigned i = 0; i < striped->slots && !striped->up; i++, piece += striped->threads) {
        unsigned slot = (unsigned)((striped->first + piece) % striped->slots);
        if (thread->leaving[slot].host)
            staging_empty(thread, slot);
    }
    return NULL;
}

/* The caller is the first thread, and does also what no thread could be made for. */
static void carry_all(struct transfer_thread *carriers, unsigned threads)
{
    sigset_t every, before;
    unsigned started = 1;
    sigfillset(&every); /* signals are for the program's threads */
    if (threads > 1)
        pthread_sigmask(SIG_SETMASK, &every, &before);
    while (started < threads &&
           !pthread_create(&carriers[started].thread, NULL, carry, &carriers[started]))
        started++;
    if (threads > 1)
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    carry(&carriers[0]);
    for (unsigned i = started; i < threads; i++)
        carry(&carriers[i]);
    for (unsigned i = 1; i < started; i++)
        pthread_join(carriers[i].thread, NULL);
}

/* The events in the pieces' order. Threads enqueued them in any: a marker comes after all. */
static kiln_status staging_collect(const struct striped_transfer *striped,
                                   struct transfer_thread *carriers, struct kiln__events *events,
                                   struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < striped->pieces; i++) {
        struct transfer_thread *thread = &carriers[i % striped->threads];
        if (i / striped->threads >= thread->events.count)
            continue;
        kiln_status kept =
            staging_note(striped->queue, events, thread->events.items[i / striped->threads], error);
        status = status ? status : kept;
    }
    for (unsigned i = 0; i < striped->threads; i++) {
        kiln__vector_free(&carriers[i].events);
        if (carriers[i].error.status && !status)
            status = kiln__fail(error, carriers[i].error.status, "%s", carriers[i].error.text);
    }
    if (status || striped->threads == 1)
        return status;
    cl_event event = NULL;
    status = kiln__cl_mark(striped->queue, &event, error);
    return status ? status : staging_note(striped->queue, events, event, error);
}

static unsigned threads_for(const struct kiln__staging *staging, size_t bytes)
{
    size_t pieces = bytes / sizes[RINGS - 1].bytes;
    unsigned threads = 1;
    while (threads * 2 <= staging->options.threads && threads * 2 <= MOST_THREADS &&
           (size_t)threads * 2 * PIECES_A_THREAD <= pieces)
        threads *= 2;
    return threads;
}

/* The ring's lock is held. */
static kiln_status go_through(struct kiln__staging *staging, unsigned number,
                              const struct kiln__transfer *transfer, bool up,
                              struct kiln__events *events, struct kiln__error *error)
{
    const struct ring_size *size = &sizes[number];
    struct transfer_thread carriers[MOST_THREADS];
    struct striped_transfer striped = {.queue = staging->options.queue,
                                       .ring = &staging->rings[number],
                                       .whole = transfer,
                                       .up = up,
                                       .piece_bytes = size->bytes,
                                       .pieces = (transfer->bytes + size->bytes - 1) / size->bytes,
                                       .slots = size->pieces,
                                       .first = staging->rings[number].next};
    striped.threads = threads_for(staging, transfer->bytes);
    for (unsigned i = 0; i < striped.threads; i++)
        carriers[i] = (struct transfer_thread){.striped = &striped, .number = i};
    carry_all(carriers, striped.threads);
    staging->rings[number].next = (unsigned)((striped.first + striped.pieces) % size->pieces);
    return staging_collect(&striped, carriers, events, error);
}

/* Once: a driver that refuses is not asked again. The lock is held. */
static bool has_memory(const struct kiln__staging *staging, struct ring *ring)
{
    const struct ring_size *size = &sizes[ring - staging->rings];
    struct kiln__error refused = {0};
    if (!ring->tried)
        kiln__pinned_make(staging->options.context, staging->options.device,
                          size->pieces * size->bytes, &ring->pinned, &refused);
    ring->tried = true;
    return ring->pinned.memory;
}

static kiln_status staging_go(struct kiln__staging *staging, const struct kiln__transfer *transfer,
                              bool up, struct kiln__events *events, struct kiln__error *error)
{
    unsigned number = 0;
    kiln_status status = KILN_OK;
    while (number + 1 < RINGS && transfer->bytes > sizes[number].bytes)
        number++;
    struct ring *ring = &staging->rings[number];
    pthread_mutex_lock(&ring->lock);
    bool staged = has_memory(staging, ring);
    if (staged)
        status = go_through(staging, number, transfer, up, events, error);
    pthread_mutex_unlock(&ring->lock);
    return staged ? status : go_straight(staging->options.queue, transfer, up, events, error);
}

/* ---- which way ---- */

static bool is_small(const struct kiln__transfer *transfer)
{
    return transfer->bytes <= sizes[0].bytes;
}

static bool is_worth_threads(const struct kiln__staging *staging,
                             const struct kiln__transfer *transfer)
{
    return staging->options.separate && threads_for(staging, transfer->bytes) > 1;
}

kiln_status kiln__staging_upload(struct kiln__staging *staging,
                                 const struct kiln__transfer *transfer, struct kiln__events *events,
                                 struct kiln__error *error)
{
    bool staged = (is_small(transfer) || is_worth_threads(staging, transfer)) &&
                  !kiln__pins_hold(staging->options.pins, transfer->host, transfer->bytes);
    return staged ? staging_go(staging, transfer, true, events, error)
                  : go_straight(staging->options.queue, transfer, true, events, error);
}

kiln_status kiln__staging_download(struct kiln__staging *staging,
                                   const struct kiln__transfer *transfer, bool now,
                                   struct kiln__events *events, struct kiln__error *error)
{
    bool staged = now && is_worth_threads(staging, transfer) &&
                  !kiln__pins_hold(staging->options.pins, transfer->host, transfer->bytes);
    return staged ? staging_go(staging, transfer, false, events, error)
                  : go_straight(staging->options.queue, transfer, false, events, error);
}
