/* SPDX-License-Identifier: Apache-2.0 */
/* Decoder of fuzz bytes into arguments: a function for each kind of value in values.def. */
#include "fuzz/values.h"
#include "session/context.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/world.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- bytes ---- */

static const uint8_t *at, *end;

void bytes_begin(const uint8_t *bytes, size_t size)
{
    at = bytes;
    end = bytes + size;
}

bool bytes_left(void)
{
    return at < end;
}

uint8_t byte(void)
{
    return at < end ? *at++ : 0;
}

/* True in about one of `n` cases. */
static bool one_in(unsigned n)
{
    return byte() % n == n - 1;
}

#define ONE_OF(array) (array)[byte() % COUNT(array)]

/* ---- what arguments of one call share ---- */

static struct {
    struct batch_slot *batch;
    struct kiln__shape shape; /* of the latest tensor or buffer, else of anything */
    size_t bytes;             /* its bytes */
    struct kiln__shape model; /* that dims follow */
    bool has_model;
    size_t rank, n; /* the largest so far */
    bool array;     /* one that is not NULL has been handed out: no large n from now on */
    unsigned arrays;
    float *floats;
    kiln_tensor *tensors;
} now;

void values_begin(void)
{
    memset(&now, 0, sizeof now);
}

/* An array, unless the count beside it is beyond any array. `turn` tells those of a call apart. */
static bool array_allowed(unsigned *turn)
{
    if (now.n > SHORTEST || one_in(24))
        return false;
    now.array = true;
    *turn = now.arrays++ % 4;
    return true;
}

/* ---- numbers ---- */

static size_t take_size(void)
{
    static const size_t small[] = {1, 2, 3, 4, 4, 4, 8, 5};
    static const size_t large[] = {
        0,       7,        65,       1000,     65537,        SIZE_MAX / 8 + 1, SIZE_MAX / 4,
        1 << 20, SIZE_MAX, SIZE_MAX, SIZE_MAX, INT32_MAX,    UINT32_MAX,       SIZE_MAX / 2 + 1,
        0,       0,        1,        1,        SIZE_MAX - 1, (size_t)1 << 40,  (size_t)1 << 62};
    return one_in(8) ? ONE_OF(large) : ONE_OF(small);
}

static int64_t take_position(size_t extent)
{
    static const int64_t far[] = {INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1, -2, 1000};
    const int64_t near[] = {0, 1, -1, 2, (int64_t)extent, (int64_t)extent - 1, (int64_t)extent + 1};
    return one_in(8) ? ONE_OF(far) : ONE_OF(near);
}

static double take_number(void)
{
    static const double odd[] = {NAN,
                                 INFINITY,
                                 -INFINITY,
                                 1e300,
                                 -1e300,
                                 5e-324,
                                 -0.0,
                                 2147483647.0,
                                 2147483648.,
                                 -2147483649.,
                                 4294967296,
                                 3.4028235e38,
                                 255,
                                 256,
                                 -1,
                                 1e-300,
                                 18446744073709551616.0};
    static const double usual[] = {0, 1, 0.5, 2, 3, 0.1, 1e-5, 0.9};
    return one_in(4) ? ONE_OF(odd) : ONE_OF(usual);
}

static size_t take_index(void)
{
    return one_in(4) ? take_size() : byte() % 4;
}

static int take_flag(void)
{
    static const int flags[] = {0, 1, -1, 2, INT_MIN};
    return ONE_OF(flags);
}

static uint32_t take_word(void)
{
    static const uint32_t words[] = {0, 1, 2, (1u << 30) - 2, (1u << 30) - 1, 1u << 31, UINT32_MAX};
    return ONE_OF(words);
}

static uint64_t take_wide(void)
{
    static const uint64_t numbers[] = {0, 1, UINT32_MAX, (uint64_t)1 << 63, UINT64_MAX};
    return ONE_OF(numbers);
}

static kiln_status take_status(void)
{
    static const int numbers[] = {0, 1, 2, -1, -9, -15, -16, INT_MAX, INT_MIN};
    return (kiln_status)ONE_OF(numbers);
}

static kiln_padding take_padding(void)
{
    static const int numbers[] = {0, 1, 2, 3, 4, -1, INT_MAX, INT_MIN};
    return (kiln_padding)ONE_OF(numbers);
}

static kiln_device_type take_device_type(void)
{
    static const int numbers[] = {0, 1, 2, 3, 4, 5, -1, INT_MAX, INT_MIN};
    return (kiln_device_type)ONE_OF(numbers);
}

static kiln_optimizer_method take_optimizer_method(void)
{
    static const int methods[] = {1, 2, 3, 0, 4, -1, INT_MAX};
    return (kiln_optimizer_method)ONE_OF(methods);
}

/* ---- objects ---- */

#define OBJECT(name, plural, most)                                                                 \
    static kiln_##name *take_##name(void)                                                          \
    {                                                                                              \
        return one_in(32) ? NULL : world.plural[byte() % (most)];                                  \
    }

OBJECT(event, events, EVENTS)
OBJECT(optimizer, optimizers, OPTIMIZERS)
OBJECT(executor, executors, EXECUTORS)
OBJECT(future, futures, FUTURES)
OBJECT(parallel, parallels, PARALLELS)

static kiln_context *take_context(void)
{
    uint8_t number = byte();
    return number < 200   ? world.contexts[0]
           : number < 208 ? NULL
                          : world.contexts[number % CONTEXTS];
}

static kiln_batch *take_batch(void)
{
    uint8_t number = byte();
    if (number >= 250)
        return NULL;
    now.batch = &world.batches[number < 180 ? 0 : number % BATCHES];
    return now.batch->batch;
}

static kiln_batch *take_runnable(void)
{
    kiln_batch *batch = take_batch();
    return batch && batch_runs(batch) ? batch : NULL;
}

static kiln_buffer *take_buffer(void)
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
    static kiln_##name *take_gone_##name(void)                                                     \
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

static kiln_batch *take_gone_batch(void)
{
    struct batch_slot *slot = &world.batches[byte() % BATCHES];
    kiln_batch *batch = one_in(4) ? NULL : slot->batch;
    if (batch)
        slot->batch = NULL;
    return batch;
}

#define COUNTED(name, plural, most, lasts)                                                         \
    static kiln_##name *take_kept_##name(void)                                                     \
    {                                                                                              \
        unsigned i = byte() % (most);                                                              \
        if (world.plural[i])                                                                       \
            world.name##_references[i]++;                                                          \
        return world.plural[i];                                                                    \
    }                                                                                              \
    static kiln_##name *take_gone_##name(void)                                                     \
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

static kiln_buffer *const *take_buffers(void)
{
    static kiln_buffer *arrays[4][SHORTEST];
    unsigned turn;
    if (!array_allowed(&turn))
        return NULL;
    for (unsigned i = 0; i < SHORTEST; i++)
        arrays[turn][i] = take_buffer();
    return arrays[turn];
}

static void *take_memory(void)
{
    return one_in(2) ? NULL : strdup("memory");
}

static void *take_host(void)
{
    static char odd;
    uint8_t number = byte();
    return number < 192 ? world.host[number % HOSTS].memory : number < 224 ? NULL : &odd;
}

static void **take_new_host(void)
{
    return one_in(16) ? NULL : &world.new_host;
}

/* What is found there after a call that fails is told from what was there. */
#define NEW(name)                                                                                  \
    static kiln_##name **take_new_##name(void)                                                     \
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
static kiln_context **take_new_context(void)
{
    return one_in(64) ? &world.new_context : NULL;
}

static char **take_text_out(void)
{
    return one_in(16) ? NULL : &world.text;
}

/* ---- tensors ---- */

static kiln_tensor take_tensor(void)
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

static const kiln_tensor *take_tensors(void)
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
static kiln_tensor *take_results(void)
{
    unsigned turn;
    if (!array_allowed(&turn))
        return NULL;
    return now.tensors && one_in(4) ? now.tensors : world.results;
}

/* ---- shapes ---- */

static kiln_type take_type(void)
{
    static const int odd[] = {0, 99, -1, 257, INT_MAX, INT_MIN};
    static const int types[] = {KILN_F32, KILN_F32, KILN_F32,
#define TYPE(name, value, bytes, ctype) KILN_##name,
                                KILN_TYPE_MAP(TYPE)
#undef TYPE
    };
    return (kiln_type)(one_in(32) ? ONE_OF(odd) : ONE_OF(types));
}

/* Often that of a tensor which is there, for its shape to follow. */
static size_t take_rank(void)
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

static const size_t *take_dims(void)
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

static size_t take_n(void)
{
    static const size_t usual[] = {1, 1, 2, 0, 2, 3, 4, 8};
    static const size_t large[] = {SIZE_MAX,         SIZE_MAX / 8 + 1, SIZE_MAX / 4,
                                   UINT32_MAX,       (size_t)1 << 32,  (size_t)1 << 61,
                                   SIZE_MAX / 2 + 1, 1000000,          17};
    size_t n = one_in(16) && !now.array ? ONE_OF(large) : one_in(16) ? SHORTEST : ONE_OF(usual);
    now.n = n > now.n ? n : now.n;
    return n;
}

static int take_axis(void)
{
    static const int odd[] = {8, 9, -8, -9, INT_MAX, INT_MIN};
    return one_in(16) ? ONE_OF(odd) : (int)(byte() % 7) - 3;
}

static const int *take_axes(void)
{
    static int axes[SHORTEST];
    unsigned turn;
    if (!array_allowed(&turn))
        return NULL;
    for (unsigned i = 0; i < SHORTEST; i++)
        axes[i] = take_axis();
    return axes;
}

static const size_t *take_order(void)
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

static const size_t *take_counts(void)
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

static const int64_t *take_start(void)
{
    static int64_t start[SHORTEST];
    if (one_in(32))
        return NULL;
    uint8_t same = byte();
    for (unsigned i = 0; i < SHORTEST; i++)
        start[i] = same < 160 ? 0 : take_position(i < KILN_MAX_RANK ? now.shape.dims[i] : 0);
    return start;
}

static const int64_t *take_stop(void)
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

static const int64_t *take_step(void)
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

static const void *take_data(void)
{
    return one_in(32) ? NULL : arena + take_place();
}

static void *take_room(void)
{
    return one_in(32) ? NULL : arena + (one_in(8) ? 0 : 2 * ROOM) + take_place();
}

static size_t take_offset(void)
{
    static const size_t odd[] = {1, 4, 64, SIZE_MAX, SIZE_MAX - 3, SIZE_MAX / 2 + 1};
    return one_in(4) ? ONE_OF(odd) : 0;
}

/* Never a number that could be right but is more than the memory. */
static size_t take_bytes(void)
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

static const float *take_floats(void)
{
    unsigned turn;
    if (!array_allowed(&turn))
        return NULL;
    now.floats = floats_at(turn);
    return now.floats;
}

static float *take_floats_out(void)
{
    unsigned turn;
    if (!array_allowed(&turn))
        return NULL;
    return now.floats && one_in(4) ? now.floats : floats_at(3);
}

static void *take_user(void)
{
    return arena;
}

/* ---- words, functions ---- */

static const char *long_text(void)
{
    static char text[5000];
    memset(text, 'x', sizeof text - 1);
    return text;
}

static const char *take_device_name(void)
{
    const char *names[] = {NULL, "",     "0",  "cpu",      "gpu", "99999999999999999999",
                           "-1", "%s%n", "0x", long_text()};
    return ONE_OF(names);
}

static const char *take_folder(void)
{
    const char *names[] = {NULL,        world.cache, "",         "/dev/null/folder",
                           "/dev/null", world.cache, long_text()};
    return ONE_OF(names);
}

static const char *take_file(void)
{
    const char *names[] = {NULL,        world.bundle, "",         "/dev/null/file",
                           "/dev/null", world.folder, long_text()};
    return ONE_OF(names);
}

/* Its elements are those of a buffer or tensor, or what is known to be none. */
static const kiln_array *take_array(void)
{
    static kiln_array array;
    array.type = take_type();
    array.rank = take_rank();
    const size_t *dims = take_dims();
    size_t bytes = kiln_type_size(array.type);
    for (unsigned i = 0; i < KILN_MAX_RANK; i++) {
        array.dims[i] = dims ? dims[i] : 1;
        bytes = i >= array.rank                                 ? bytes
                : array.dims[i] && bytes > ROOM / array.dims[i] ? ROOM + 1
                                                                : bytes * array.dims[i];
    }
    array.data = bytes <= ROOM ? take_room() : NULL;
    return one_in(16) ? NULL : &array;
}

/* Names of tensors. */
static const char *const *take_words(void)
{
    static const char *arrays[4][SHORTEST];
    static const char *const words[] = {"a",  "b",  "c", "d", "e", "f",        "g",
                                        "h",  NULL, "",  "i", "j", "\xff\xff", "__metadata__",
                                        "%s", "k"};
    unsigned turn;
    if (!array_allowed(&turn))
        return NULL;
    uint8_t first = byte();
    for (unsigned i = 0; i < SHORTEST; i++)
        arrays[turn][i] = words[(first + i) % COUNT(words)];
    return arrays[turn];
}

static const char *const *take_many_words(void)
{
    static const char *words[SHORTEST];
    for (unsigned i = 0; i < SHORTEST; i++)
        words[i] = one_in(32) ? NULL : "name";
    return one_in(16) ? NULL : words;
}

static const char ***take_words_out(void)
{
    return one_in(16) ? NULL : &world.words;
}

static kiln_buffer **take_new_buffers(void)
{
    unsigned turn;
    return array_allowed(&turn) ? world.new_buffers : NULL;
}

static kiln_saved **take_saved_out(void)
{
    return one_in(16) ? NULL : &world.saved;
}

static kiln_array *take_array_out(void)
{
    return one_in(16) ? NULL : &world.array;
}

static void be_called(kiln_status status, void *user)
{
    (void)status;
    (void)user;
}

static kiln_event_callback take_callback(void)
{
    return one_in(4) ? NULL : be_called;
}

static kiln_status read_source(void *user, size_t offset, void *data, size_t bytes)
{
    (void)user, (void)offset;
    memset(data, 0, bytes);
    return bytes % 16 == 5 ? KILN_IO_ERROR : KILN_OK;
}

static kiln_buffer_reader take_reader(void)
{
    return one_in(8) ? NULL : read_source;
}

static void be_ended(void *user)
{
    (void)user;
}

static end_function take_ender(void)
{
    return one_in(4) ? NULL : be_ended;
}

static int visit(const kiln_cache_entry *entry, void *user)
{
    return !entry || !user;
}

static kiln_cache_visitor take_visitor(void)
{
    return one_in(4) ? NULL : visit;
}

/* ---- options ---- */

static size_t take_struct_size(size_t right)
{
    const size_t wrong[] = {0, 1, 4, 8, right - 1, right + 1, right / 2, 4097, SIZE_MAX};
    return one_in(16) ? ONE_OF(wrong) : right;
}

static const kiln_attention_options *take_attention_options(void)
{
    static const int64_t diagonals[] = {0, 1, -1, 100, INT64_MIN, INT64_MAX};
    static kiln_attention_options options;
    if (one_in(3))
        return NULL;
    options.size = take_struct_size(sizeof options);
    options.scale = take_number();
    options.causal = take_flag();
    options.diagonal = ONE_OF(diagonals);
    return &options;
}

static const kiln_cross_entropy_options *take_cross_entropy_options(void)
{
    static kiln_cross_entropy_options options;
    if (one_in(3))
        return NULL;
    options.size = take_struct_size(sizeof options);
    options.reduction = (kiln_loss_reduction)(byte() % 4);
    options.class_weights = take_tensor();
    options.label_smoothing = one_in(2) ? take_number() : 0;
    options.ignores = take_flag();
    options.ignored_label = take_axis();
    options.log_probabilities = take_flag();
    return &options;
}

static const char *take_equation(void)
{
    static const char *const texts[] = {"ij,jk->ik", "...i,...i", "ii->i", "i,j->ji",
                                        "->",        ",",         "a b",   "ij,ij->",
                                        "i1",        "abcdefghi", "i..j",  NULL};
    return ONE_OF(texts);
}

static const kiln_window_options *take_window_options(void)
{
    static kiln_window_options options;
    size_t *const pairs[] = {options.stride, options.dilation, options.before, options.after};
    if (one_in(3))
        return NULL;
    options.size = take_struct_size(sizeof options);
    for (unsigned i = 0; i < COUNT(pairs); i++)
        for (unsigned k = 0; k < 2; k++)
            pairs[i][k] = one_in(4) ? take_size() : byte() % 2;
    options.groups = take_index();
    return &options;
}

static kiln_layout take_layout(void)
{
    return (kiln_layout)(one_in(8) ? 2 : byte() % 2);
}

static void take_triples(unsigned count, size_t *const *triples)
{
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < 3; k++)
            triples[i][k] = one_in(4) ? take_size() : byte() % 2;
}

static const kiln_conv_options *take_conv_options(void)
{
    static kiln_conv_options options;
    size_t *const triples[] = {options.stride, options.dilation, options.before, options.after,
                               options.output_padding};
    if (one_in(3))
        return NULL;
    options.size = take_struct_size(sizeof options);
    options.layout = take_layout();
    options.groups = take_index();
    take_triples(COUNT(triples), triples);
    return &options;
}

static const kiln_pool_options *take_pool_options(void)
{
    static kiln_pool_options options;
    size_t *const triples[] = {options.stride, options.dilation, options.before, options.after};
    if (one_in(3))
        return NULL;
    options.size = take_struct_size(sizeof options);
    options.layout = take_layout();
    options.ceil = take_flag();
    options.count_padding = take_flag();
    take_triples(COUNT(triples), triples);
    return &options;
}

static kiln_dft_kind take_dft_kind(void)
{
    return (kiln_dft_kind)(byte() % 5);
}

static kiln_taper take_taper(void)
{
    return (kiln_taper)(byte() % 4);
}

static kiln_block_order take_block_order(void)
{
    return (kiln_block_order)(one_in(8) ? 2 : byte() % 2);
}

static const kiln_resize_options *take_resize_options(void)
{
    static kiln_resize_options options;
    static double numbers[3][KILN_MAX_RANK];
    if (one_in(3))
        return NULL;
    options.size = take_struct_size(sizeof options);
    options.method = (kiln_resize_method)(one_in(16) ? 3 : byte() % 3);
    options.coordinates = (kiln_coordinates)(byte() % 8);
    options.nearest = (kiln_nearest)(one_in(16) ? 4 : byte() % 4);
    options.cubic = one_in(4) ? take_number() : -0.75;
    options.exclude_outside = take_flag();
    options.antialias = take_flag();
    for (unsigned i = 0; i < 3; i++)
        for (unsigned d = 0; d < KILN_MAX_RANK; d++)
            numbers[i][d] = one_in(4) ? take_number() : 1;
    options.scales = one_in(2) ? NULL : numbers[0];
    options.start = one_in(4) ? NULL : numbers[1];
    options.end = one_in(4) ? NULL : numbers[2];
    options.extrapolation = take_number();
    return &options;
}

static const kiln_recurrent *take_recurrent(void)
{
    static kiln_recurrent layer;
    kiln_tensor *const operands[] = {&layer.x, &layer.w, &layer.r,        &layer.bias,
                                     &layer.h, &layer.c, &layer.peephole, &layer.lengths};
    if (one_in(8))
        return NULL;
    layer.size = take_struct_size(sizeof layer);
    for (unsigned i = 0; i < COUNT(operands); i++)
        *operands[i] = i > 2 && one_in(2) ? (kiln_tensor){0} : take_tensor();
    layer.direction = (kiln_direction)(byte() % 4);
    layer.gates = (kiln_gates)(one_in(8) ? 2 : byte() % 2);
    layer.clip = one_in(4) ? take_number() : 0;
    layer.linear_before_reset = take_flag();
    layer.input_forget = take_flag();
    layer.activation[byte() % 2][byte() % 3] = one_in(2) ? kiln_relu : NULL;
    return &layer;
}

static const kiln_optimizer_options *take_optimizer_options(void)
{
    static kiln_optimizer_options options;
    static const int methods[] = {0, 4, -1, INT_MAX};
    const kiln_optimizer_options usual[] = {KILN_SGD_INIT, KILN_ADAM_INIT, KILN_ADAMW_INIT};
    if (one_in(32))
        return NULL;
    options = ONE_OF(usual);
    double *const numbers[] = {&options.learning_rate, &options.weight_decay, &options.momentum,
                               &options.beta1,         &options.beta2,        &options.epsilon};
    options.size = take_struct_size(sizeof options);
    if (one_in(2))
        *ONE_OF(numbers) = take_number();
    if (one_in(16))
        options.method = (kiln_optimizer_method)ONE_OF(methods);
    options.nesterov = one_in(4) ? take_flag() : 0;
    return &options;
}

static const kiln_context_options *take_context_options(void)
{
    static kiln_context_options options;
    static const int modes[] = {0, 0, 0, 1, 2, 3, 4, -1, INT_MAX};
    const char *matmul[] = {NULL, NULL, "", "no such kernel", "cpu_packed", long_text()};
    if (one_in(4))
        return NULL;
    options = (kiln_context_options)KILN_CONTEXT_OPTIONS_INIT;
    options.size = take_struct_size(sizeof options);
    options.device = one_in(2) ? take_device_name() : NULL;
    options.cache_dir = one_in(2) ? take_folder() : NULL;
    options.cache_limit = take_wide();
    options.cache = (kiln_cache_mode)ONE_OF(modes);
    options.host_memory = (kiln_host_memory)ONE_OF(modes);
    options.matmul = ONE_OF(matmul);
    options.profile = take_flag();
    options.trace = one_in(4) ? take_file() : NULL;
    options.validate = one_in(4) ? take_number() : 0;
    return &options;
}

/* ---- executors ---- */

static kiln_context *const *take_contexts(void)
{
    static kiln_context *contexts[SHORTEST];
    for (unsigned i = 0; i < SHORTEST; i++)
        contexts[i] = i < LASTING ? world.contexts[i] : take_context();
    return one_in(32) ? NULL : contexts;
}

static size_t take_context_count(void)
{
    static const size_t odd[] = {0, 3, SHORTEST, 65, SIZE_MAX};
    return one_in(8) ? ONE_OF(odd) : 1u + byte() % LASTING;
}

/* Doubles its first input, adds up the others, and may leave something else altogether. */
static kiln_status record_model(kiln_batch *batch, size_t context, size_t rows,
                                const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    uint8_t way = *(uint8_t *)user;
    outputs[0] = kiln_add(batch, inputs[0], inputs[0]);
    if (way == 1)
        outputs[0] = kiln_reshape(batch, inputs[0], 0, NULL);
    else if (way == 2)
        outputs[0] = (kiln_tensor){rows + context};
    return way == 3 ? KILN_UNSUPPORTED : KILN_OK;
}

static const kiln_model *take_model(void)
{
    static kiln_model model;
    static kiln_row rows[KILN_MODEL_MOST];
    static uint8_t way;
    memset(rows, 0, sizeof rows);
    rows[0] = (kiln_row){KILN_F32, 1, {4}, 0, 0};
    if (one_in(4))
        rows[0].type = take_type();
    if (one_in(8))
        rows[0].below = take_word();
    if (one_in(8))
        rows[0].dims[0] = take_size();
    if (one_in(16))
        rows[0].rank = take_size();
    rows[0].sequence = one_in(8);
    way = one_in(8) ? byte() % 4 : 0;
    model = (kiln_model){
        take_struct_size(sizeof model), record_model, &way, 1, rows, 1, sizeof(kiln_row)};
    if (one_in(16))
        model.input_count = take_size();
    if (one_in(16))
        model.output_count = take_size();
    if (one_in(16))
        model.record = NULL;
    return one_in(16) ? NULL : &model;
}

/* The derivative of a sum of squares, or something else altogether. */
static kiln_status record_training(kiln_batch *batch, size_t context, kiln_tensor *gradients,
                                   void *user)
{
    static const float numbers[4] = {1, 2, 3, 4};
    uint8_t way = *(uint8_t *)user;
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, (size_t[]){4}, numbers);
    gradients[0] = way == 1 ? (kiln_tensor){context + 7} : kiln_add(batch, x, x);
    if (way == 2)
        gradients[0] = kiln_cast(batch, x, KILN_I32);
    return way == 3 ? KILN_UNSUPPORTED : KILN_OK;
}

static kiln_status record_update(kiln_batch *batch, size_t context, const kiln_tensor *gradients,
                                 void *user)
{
    static float sums[LASTING];
    (void)user;
    kiln_tensor sum = kiln_sum(batch, gradients[0], 1, (const int[]){0}, 0);
    return kiln_read(batch, sum, &sums[context % LASTING], sizeof(float));
}

static const kiln_training *take_training(void)
{
    static kiln_training training;
    static double shares[SHORTEST];
    static uint8_t way;
    way = one_in(8) ? byte() % 4 : 0;
    for (unsigned i = 0; i < SHORTEST; i++)
        shares[i] = take_number();
    training = (kiln_training){
        take_struct_size(sizeof training), record_training, record_update, &way, 1, NULL};
    if (one_in(8))
        training.shares = shares;
    if (one_in(16))
        training.gradient_count = 0;
    if (one_in(16))
        training.record = NULL;
    if (one_in(16))
        training.update = NULL;
    return one_in(16) ? NULL : &training;
}

/* Requests end soon: nobody comes to fill a batch. */
static const kiln_executor_options *take_executor_options(void)
{
    static kiln_executor_options options;
    static const uint64_t waits[] = {0, 1, 100, 1000, UINT64_MAX};
    options = (kiln_executor_options){
        take_struct_size(sizeof options), 1 + byte() % 8, 0, 100, 4, 0, one_in(16), one_in(2)};
    options.min_batch = one_in(8) ? take_size() : byte() % 3;
    options.max_wait_us = ONE_OF(waits);
    options.max_queue = byte() % 4;
    options.retry_us = ONE_OF(waits);
    if (one_in(16))
        options.max_batch = take_size();
    return one_in(16) ? NULL : &options;
}

static size_t take_rows(void)
{
    static const size_t odd[] = {0, 9, 1025, SIZE_MAX, SIZE_MAX / 16 + 1};
    return one_in(8) ? ONE_OF(odd) : now.n;
}

/* Of rows of four. */
static size_t take_row_bytes(void)
{
    return one_in(8) ? take_size() : now.n * 16;
}

/* What has more than the memory here is not there. */
static const kiln_input *take_inputs(void)
{
    static kiln_input inputs[KILN_MODEL_MOST];
    now.n = 1 + byte() % 4;
    for (unsigned i = 0; i < COUNT(inputs); i++) {
        size_t bytes = take_row_bytes();
        inputs[i] = (kiln_input){bytes <= ROOM ? take_data() : NULL, bytes, take_type()};
    }
    return one_in(32) ? NULL : inputs;
}

static const kiln_output *take_outputs(void)
{
    static kiln_output outputs[KILN_MODEL_MOST];
    for (unsigned i = 0; i < COUNT(outputs); i++) {
        size_t bytes = take_row_bytes();
        outputs[i] = (kiln_output){bytes <= ROOM ? take_room() : NULL, bytes, take_type()};
    }
    return one_in(32) ? NULL : outputs;
}

static const kiln_request_options *take_request_options(void)
{
    static kiln_request_options options;
    static const uint64_t waits[] = {0, 0, 0, 1, 1000, UINT64_MAX};
    if (one_in(2))
        return NULL;
    options = (kiln_request_options){take_struct_size(sizeof options),
                                     (kiln_priority)(one_in(16) ? take_flag() : byte() % 3),
                                     ONE_OF(waits),
                                     (kiln_when_full)(one_in(16) ? take_flag() : byte() % 2),
                                     ONE_OF(waits),
                                     0};
    if (one_in(8))
        options.length = take_size();
    return &options;
}

static kiln_shutdown take_shutdown(void)
{
    static const int numbers[] = {0, 1, 2, 3, -1, INT_MAX};
    return (kiln_shutdown)ONE_OF(numbers);
}

static kiln_metrics_format take_metrics_format(void)
{
    static const int numbers[] = {1, 2, 1, 2, 0, 3, -1, INT_MAX};
    return (kiln_metrics_format)ONE_OF(numbers);
}

static kiln_scatter_mode take_scatter_mode(void)
{
    static const int numbers[] = {0, 1, 2, 3, 4, 5, -1, INT_MAX};
    return (kiln_scatter_mode)ONE_OF(numbers);
}

static kiln_precision take_precision(void)
{
    static const int numbers[] = {0, 1, 2, 3, 4, -1};
    return (kiln_precision)ONE_OF(numbers);
}

static int64_t take_diagonal(void)
{
    static const int64_t numbers[] = {0, 1, -1, 2, INT64_MAX, INT64_MIN};
    return ONE_OF(numbers);
}

/* ---- answers ---- */

#define ANSWER(name, type)                                                                         \
    static type *take_##name(void)                                                                 \
    {                                                                                              \
        static type answer[KILN_MAX_RANK];                                                         \
        return one_in(8) ? NULL : answer;                                                          \
    }
ANSWER(type_out, kiln_type)
ANSWER(rank_out, size_t)
ANSWER(dims_out, size_t)
ANSWER(size_out, size_t)
ANSWER(wide_out, uint64_t)
ANSWER(attention_defaults, kiln_attention_options)
ANSWER(context_defaults, kiln_context_options)
ANSWER(conv_defaults, kiln_conv_options)
ANSWER(cross_entropy_defaults, kiln_cross_entropy_options)
ANSWER(executor_defaults, kiln_executor_options)
ANSWER(model_defaults, kiln_model)
ANSWER(pool_defaults, kiln_pool_options)
ANSWER(request_defaults, kiln_request_options)
ANSWER(recurrent_defaults, kiln_recurrent)
ANSWER(resize_defaults, kiln_resize_options)
ANSWER(training_defaults, kiln_training)
ANSWER(window_defaults, kiln_window_options)
ANSWER(optimizer_defaults, kiln_optimizer_options)
ANSWER(cost_out, kiln_batch_cost)
ANSWER(stats_out, kiln_context_stats)
ANSWER(cache_stats_out, kiln_cache_stats)
ANSWER(info_out, kiln_device_info)
ANSWER(tunable_out, kiln_tunable)
ANSWER(address_out, void *)
ANSWER(descriptor_out, int)
ANSWER(executor_stats_out, kiln_executor_stats)
ANSWER(context_stats_out, kiln_executor_context_stats)
ANSWER(cl_context_out, cl_context)
ANSWER(cl_device_out, cl_device_id)
ANSWER(cl_queue_out, cl_command_queue)

/* ---- OpenCL objects ---- */

static cl_context take_cl_context(void)
{
    return one_in(4) ? NULL : world.contexts[byte() % LASTING]->runtime.context;
}

static cl_device_id take_cl_device(void)
{
    return one_in(4) ? NULL : world.contexts[0]->runtime.device.id;
}

static cl_command_queue take_cl_queue(void)
{
    const cl_command_queue queues[] = {NULL, world.contexts[0]->runtime.compute->queue,
                                       world.contexts[1]->runtime.compute->queue,
                                       world.out_of_order};
    return ONE_OF(queues);
}

static cl_mem take_cl_memory(void)
{
    kiln_buffer *buffer = take_buffer();
    return buffer ? buffer->memory : NULL;
}

union value value_of(enum kind kind)
{
    union value value;
    memset(&value, 0, sizeof value);
    switch (kind) {
    case KIND_END: break;
#define KIND(name, type)                                                                           \
    case KIND_##name:                                                                              \
        value.name = take_##name();                                                                \
        break;
#include "fuzz/values.def"
#undef KIND
    }
    return value;
}
