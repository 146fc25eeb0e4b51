/* SPDX-License-Identifier: Apache-2.0 */
/* Decoder of fuzz bytes into arguments: objects, tensors, shapes, and memory. */
#include "fuzz/take.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "session/context.h"

/* ---- objects ---- */

#define OBJECT(name, plural, most)                                                                 \
    kiln_##name *take_##name(void)                                                                 \
    {                                                                                              \
        return one_in(32) ? NULL : world.plural[byte() % (most)];                                  \
    }

OBJECT(event, events, EVENTS)
OBJECT(optimizer, optimizers, OPTIMIZERS)
OBJECT(executor, executors, EXECUTORS)
OBJECT(future, futures, FUTURES)
OBJECT(parallel, parallels, PARALLELS)

kiln_context *take_context(void)
{
    uint8_t number = byte();
    return number < 200   ? world.contexts[0]
           : number < 208 ? NULL
                          : world.contexts[number % CONTEXTS];
}

kiln_batch *take_batch(void)
{
    uint8_t number = byte();
    if (number >= 250)
        return NULL;
    now.batch = &world.batches[number < 180 ? 0 : number % BATCHES];
    return now.batch->batch;
}

kiln_batch *take_runnable(void)
{
    kiln_batch *batch = take_batch();
    return batch && batch_runs(batch) ? batch : NULL;
}

kiln_buffer *take_buffer(void)
{
    kiln_buffer *buffer = one_in(32) ? NULL : world.buffers[byte() % BUFFERS];
    if (buffer) {
        now.shape = buffer->shape;
        now.bytes = buffer->bytes;
    }
    return buffer;
}

/* A slot gives a reference away, and is empty without one. */
#define GONE(name, plural, most)                                                                   \
    kiln_##name *take_gone_##name(void)                                                            \
    {                                                                                              \
        unsigned i = byte() % (most);                                                              \
        kiln_##name *object = one_in(32) ? NULL : world.plural[i];                                 \
        if (object)                                                                                \
            world.plural[i] = NULL;                                                                \
        return object;                                                                             \
    }
GONE(event, events, EVENTS)
GONE(optimizer, optimizers, OPTIMIZERS)
GONE(future, futures, FUTURES)
GONE(parallel, parallels, PARALLELS)

kiln_batch *take_gone_batch(void)
{
    struct batch_slot *slot = &world.batches[byte() % BATCHES];
    kiln_batch *batch = one_in(4) ? NULL : slot->batch;
    if (batch)
        slot->batch = NULL;
    return batch;
}

#define COUNTED(name, plural, most, lasts)                                                         \
    kiln_##name *take_kept_##name(void)                                                            \
    {                                                                                              \
        unsigned i = byte() % (most);                                                              \
        if (world.plural[i])                                                                       \
            world.name##_references[i]++;                                                          \
        return world.plural[i];                                                                    \
    }                                                                                              \
    kiln_##name *take_gone_##name(void)                                                            \
    {                                                                                              \
        unsigned i = byte() % (most);                                                              \
        kiln_##name *object = world.plural[i];                                                     \
        if (!object || world.name##_references[i] == (lasts))                                      \
            return NULL;                                                                           \
        if (--world.name##_references[i] == 0)                                                     \
            world.plural[i] = NULL;                                                                \
        return object;                                                                             \
    }
COUNTED(context, contexts, CONTEXTS, i < LASTING)
COUNTED(buffer, buffers, BUFFERS, false)
COUNTED(executor, executors, EXECUTORS, false)

kiln_buffer *const *take_buffers(void)
{
    static kiln_buffer *arrays[4][SHORTEST];
    unsigned turn;
    if (!array_allowed(&turn))
        return NULL;
    for (unsigned i = 0; i < SHORTEST; i++)
        arrays[turn][i] = take_buffer();
    return arrays[turn];
}

void *take_memory(void)
{
    return one_in(2) ? NULL : strdup("memory");
}

void *take_host(void)
{
    static char odd;
    uint8_t number = byte();
    return number < 192 ? world.host[number % HOSTS].memory : number < 224 ? NULL : &odd;
}

void **take_new_host(void)
{
    return one_in(16) ? NULL : &world.new_host;
}

/* What is found there after a call that fails is told from what was there. */
#define NEW(name)                                                                                  \
    kiln_##name **take_new_##name(void)                                                            \
    {                                                                                              \
        return one_in(16) ? NULL : &world.new_##name;                                              \
    }
NEW(buffer)
NEW(event)
NEW(optimizer)
NEW(executor)
NEW(future)
NEW(parallel)
NEW(model)

/* A context takes the time of a thousand calls. */
kiln_context **take_new_context(void)
{
    return one_in(64) ? &world.new_context : NULL;
}

char **take_text_out(void)
{
    return one_in(16) ? NULL : &world.text;
}

/* ---- tensors ---- */

kiln_tensor take_tensor(void)
{
    static const uint64_t nothing[] = {0, 1, UINT64_MAX, UINT32_MAX, (uint64_t)1 << 32};
    uint8_t number = byte();
    const struct batch_slot *slot = now.batch ? now.batch : &world.batches[0];
    kiln_tensor tensor = slot->recent[number % RECENT];
    if (number >= 250)
        tensor.id = ONE_OF(nothing);
    else if (number >= 245)
        tensor = world.stale[number % RECENT];
    else if (number >= 240)
        tensor = world.batches[number % BATCHES].recent[number % RECENT];
    else if (number >= 237)
        tensor.id += 0x40000000;
    if (slot->batch && tensor.id >> 32 == slot->batch->serial &&
        kiln__tensor_index(tensor) < slot->batch->graph.nodes.count) {
        const struct kiln__node *node = &slot->batch->graph.nodes.items[kiln__tensor_index(tensor)];
        now.shape = node->shape;
        now.bytes = kiln__node_bytes(node);
    }
    return tensor;
}

const kiln_tensor *take_tensors(void)
{
    static kiln_tensor arrays[4][SHORTEST];
    unsigned turn;
    if (!array_allowed(&turn))
        return NULL;
    uint8_t same = byte();
    kiln_tensor first = take_tensor();
    for (unsigned i = 0; i < SHORTEST; i++)
        arrays[turn][i] = same % 2 ? first : take_tensor();
    now.tensors = arrays[turn];
    return arrays[turn];
}

/* The results may take the place of the inputs. */
kiln_tensor *take_results(void)
{
    unsigned turn;
    if (!array_allowed(&turn))
        return NULL;
    return now.tensors && one_in(4) ? now.tensors : world.results;
}

/* ---- shapes ---- */

kiln_type take_type(void)
{
    static const int odd[] = {0, 99, -1, 257, INT_MAX, INT_MIN};
    static const int types[] = {KILN_F32, KILN_F32, KILN_F32,
#define TYPE(name, value, bytes, ctype) KILN_##name,
                                KILN_TYPE_MAP(TYPE) KILN_BLOCK_TYPE_MAP(TYPE)
#undef TYPE
    };
    return (kiln_type)(one_in(32) ? ONE_OF(odd) : ONE_OF(types));
}

/* Often that of a tensor which is there, for its shape to follow. */
size_t take_rank(void)
{
    static const size_t ranks[] = {0, 1, 1, 2, 2, 3, 4, 8, 9, 16, SIZE_MAX, ((size_t)1 << 32) + 1};
    uint8_t number = byte();
    if (number < 128) {
        take_tensor();
        now.model = now.shape;
        now.has_model = true;
        now.rank = now.model.rank;
    } else {
        now.rank = number < 240 ? number % 5 : ONE_OF(ranks);
    }
    return now.rank;
}

const size_t *take_dims(void)
{
    static size_t dims[SHORTEST];
    if (now.rank > SHORTEST || one_in(32))
        return NULL;
    for (unsigned i = 0; i < SHORTEST; i++)
        dims[i] = now.has_model && i < now.model.rank ? now.model.dims[i] : 1;
    uint8_t change = byte();
    if (now.has_model && change >= 128)
        dims[change % SHORTEST] = take_size();
    for (unsigned i = 0; !now.has_model && i < now.rank; i++)
        dims[i] = take_size();
    return dims;
}

size_t take_n(void)
{
    static const size_t usual[] = {1, 1, 2, 0, 2, 3, 4, 8};
    static const size_t large[] = {SIZE_MAX,         SIZE_MAX / 8 + 1, SIZE_MAX / 4,
                                   UINT32_MAX,       (size_t)1 << 32,  (size_t)1 << 61,
                                   SIZE_MAX / 2 + 1, 1000000,          17};
    size_t n = one_in(16) && !now.array ? ONE_OF(large) : one_in(16) ? SHORTEST : ONE_OF(usual);
    now.n = n > now.n ? n : now.n;
    return n;
}

int take_axis(void)
{
    static const int odd[] = {8, 9, -8, -9, INT_MAX, INT_MIN};
    return one_in(16) ? ONE_OF(odd) : (int)(byte() % 7) - 3;
}

const int *take_axes(void)
{
    static int axes[SHORTEST];
    unsigned turn;
    if (!array_allowed(&turn))
        return NULL;
    for (unsigned i = 0; i < SHORTEST; i++)
        axes[i] = take_axis();
    return axes;
}

const size_t *take_order(void)
{
    static size_t order[SHORTEST];
    uint32_t rank = now.shape.rank;
    if (one_in(8))
        return NULL;
    for (unsigned i = 0; i < SHORTEST; i++)
        order[i] = i < rank ? rank - 1 - i : i;
    if (one_in(4))
        order[byte() % SHORTEST] = take_size();
    return order;
}

const size_t *take_counts(void)
{
    static size_t arrays[4][SHORTEST];
    unsigned turn;
    if (!array_allowed(&turn))
        return NULL;
    uint8_t same = byte();
    size_t first = byte() % 3;
    for (unsigned i = 0; i < SHORTEST; i++)
        arrays[turn][i] = same < 200 ? first : take_size();
    return arrays[turn];
}

const int64_t *take_start(void)
{
    static int64_t start[SHORTEST];
    if (one_in(32))
        return NULL;
    uint8_t same = byte();
    for (unsigned i = 0; i < SHORTEST; i++)
        start[i] = same < 160 ? 0 : take_position(i < KILN_MAX_RANK ? now.shape.dims[i] : 0);
    return start;
}

const int64_t *take_stop(void)
{
    static int64_t stop[SHORTEST];
    if (one_in(32))
        return NULL;
    uint8_t same = byte();
    for (unsigned i = 0; i < SHORTEST; i++) {
        size_t extent = i < KILN_MAX_RANK ? now.shape.dims[i] : 0;
        stop[i] = same < 160 ? (int64_t)extent : take_position(extent);
    }
    return stop;
}

const int64_t *take_step(void)
{
    static int64_t steps[SHORTEST];
    uint8_t same = byte();
    if (same < 128)
        return NULL;
    for (unsigned i = 0; i < SHORTEST; i++)
        steps[i] = same < 200 ? 1 : take_position(2);
    return steps;
}

/* ---- memory ---- */

/* Uploads read the one half, reads write either. */
static _Alignas(64) char arena[4 * ROOM];

static size_t take_place(void)
{
    static const size_t places[] = {0, 0, 64, 4, 1, 4096, ROOM - 64, 0};
    return ONE_OF(places);
}

const void *take_data(void)
{
    return one_in(32) ? NULL : arena + take_place();
}

void *take_room(void)
{
    return one_in(32) ? NULL : arena + (one_in(8) ? 0 : 2 * ROOM) + take_place();
}

size_t take_offset(void)
{
    static const size_t odd[] = {1, 4, 64, SIZE_MAX, SIZE_MAX - 3, SIZE_MAX / 2 + 1};
    return one_in(4) ? ONE_OF(odd) : 0;
}

/* Never a number that could be right but is more than the memory. */
size_t take_bytes(void)
{
    static const size_t odd[] = {0, 1, 3, ROOM, SIZE_MAX, SIZE_MAX - 3, SIZE_MAX / 2 + 1};
    size_t bytes = one_in(8) ? ONE_OF(odd) : now.bytes;
    return bytes <= ROOM || bytes >= SIZE_MAX / 2 ? bytes : ROOM;
}

/* A matrix of SHORTEST by SHORTEST fits. */
static float *floats_at(unsigned place)
{
    static float arrays[4][SHORTEST * SHORTEST];
    return arrays[place % 4];
}

const float *take_floats(void)
{
    unsigned turn;
    if (!array_allowed(&turn))
        return NULL;
    now.floats = floats_at(turn);
    return now.floats;
}

float *take_floats_out(void)
{
    unsigned turn;
    if (!array_allowed(&turn))
        return NULL;
    return now.floats && one_in(4) ? now.floats : floats_at(3);
}

void *take_user(void)
{
    return arena;
}
