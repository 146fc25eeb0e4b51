/* SPDX-License-Identifier: Apache-2.0 */
/* Decoder of fuzz bytes into arguments: texts, callbacks, answers, and objects of OpenCL. */
#include "fuzz/take.h"

#include <string.h>

#include "session/context.h"

/* ---- texts, callbacks ---- */

const char *long_text(void)
{
    static char text[5000];
    memset(text, 'x', sizeof text - 1);
    return text;
}

const char *take_device_name(void)
{
    const char *names[] = {NULL, "",     "0",  "cpu",      "gpu", "99999999999999999999",
                           "-1", "%s%n", "0x", long_text()};
    return ONE_OF(names);
}

const char *take_folder(void)
{
    const char *names[] = {NULL,        world.cache, "",         "/dev/null/folder",
                           "/dev/null", world.cache, long_text()};
    return ONE_OF(names);
}

const char *take_file(void)
{
    const char *names[] = {NULL,        world.bundle, "",         "/dev/null/file",
                           "/dev/null", world.folder, long_text()};
    return ONE_OF(names);
}

/* Its elements are those of a buffer or tensor, or what is known to be none. */
const kiln_array *take_array(void)
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
const char *const *take_words(void)
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

const char *const *take_many_words(void)
{
    static const char *words[SHORTEST];
    for (unsigned i = 0; i < SHORTEST; i++)
        words[i] = one_in(32) ? NULL : "name";
    return one_in(16) ? NULL : words;
}

const char ***take_words_out(void)
{
    return one_in(16) ? NULL : &world.words;
}

kiln_buffer **take_new_buffers(void)
{
    unsigned turn;
    return array_allowed(&turn) ? world.new_buffers : NULL;
}

kiln_saved **take_saved_out(void)
{
    return one_in(16) ? NULL : &world.saved;
}

kiln_array *take_array_out(void)
{
    return one_in(16) ? NULL : &world.array;
}

static void be_called(kiln_status status, void *user)
{
    (void)status;
    (void)user;
}

kiln_event_callback take_callback(void)
{
    return one_in(4) ? NULL : be_called;
}

static kiln_status read_source(void *user, size_t offset, void *data, size_t bytes)
{
    (void)user, (void)offset;
    memset(data, 0, bytes);
    return bytes % 16 == 5 ? KILN_IO_ERROR : KILN_OK;
}

kiln_buffer_reader take_reader(void)
{
    return one_in(8) ? NULL : read_source;
}

static void be_ended(void *user)
{
    (void)user;
}

end_function take_ender(void)
{
    return one_in(4) ? NULL : be_ended;
}

static int visit(const kiln_cache_entry *entry, void *user)
{
    return !entry || !user;
}

kiln_cache_visitor take_visitor(void)
{
    return one_in(4) ? NULL : visit;
}

/* ---- answers ---- */

#define ANSWER(name, type)                                                                         \
    type *take_##name(void)                                                                        \
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
ANSWER(own_kernel_defaults, kiln_custom_kernel)
ANSWER(loop_defaults, kiln_loop_options)
ANSWER(resize_defaults, kiln_resize_options)
ANSWER(reducer_defaults, kiln_reducer)
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

cl_context take_cl_context(void)
{
    return one_in(4) ? NULL : world.contexts[byte() % LASTING]->runtime.context;
}

cl_device_id take_cl_device(void)
{
    return one_in(4) ? NULL : world.contexts[0]->runtime.device.id;
}

cl_command_queue take_cl_queue(void)
{
    const cl_command_queue queues[] = {NULL, world.contexts[0]->runtime.compute->queue,
                                       world.contexts[1]->runtime.compute->queue,
                                       world.out_of_order};
    return ONE_OF(queues);
}

cl_mem take_cl_memory(void)
{
    kiln_buffer *buffer = take_buffer();
    return buffer ? buffer->memory : NULL;
}
