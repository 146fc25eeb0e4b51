/* SPDX-License-Identifier: Apache-2.0 */
/* A loop that is replayed: its step, which has been recorded, is kept as a list of nodes, and
 * results that nothing computes are recorded behind it. */
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/operations.h>
#include <kiln/reductions.h>

#include <stdlib.h>
#include <string.h>

#include "graph/attention.h"
#include "record/loop_call.h"
#include "record/replayed.h"

#define REFUSE KILN__LOOP_REFUSE

struct recording {
    struct kiln__loop_call *loop;
    struct kiln__replayed *made;
    KILN__VECTOR(uint32_t) shared;
    bool *listed; /* per node: it is in there */
};

bool kiln__loop_is_long(const struct kiln__loop_call *loop)
{
    size_t operations = 1 + loop->options.output_count;
    for (uint32_t i = 0; i < loop->count; i++) {
        if (!loop->needed[i] || !loop->varies[i])
            continue;
        if (kiln__node_is_replayed(&loop->batch->graph.nodes.items[i]))
            return true;
        operations++;
    }
    return loop->options.steps > loop->batch->limits.unrolled / operations;
}

void kiln__replayed_free(struct kiln__replayed *loop)
{
    if (loop) {
        kiln__replayed_free(loop->stretch);
        free((void *)loop->options.states);
        free(loop->states);
        free(loop->shared);
    }
    free(loop);
}

/* ---- what it is made of ---- */

static const kiln_tensor *keep(kiln_tensor **room, const kiln_tensor *from, size_t count)
{
    kiln_tensor *to = *room;
    if (count)
        memcpy(to, from, count * sizeof *to);
    *room += count;
    return to;
}

static bool keep_options(struct recording *recording)
{
    const kiln_loop_options *given = &recording->loop->options;
    kiln_loop_options *own = &recording->made->options;
    const size_t states = given->state_count;
    kiln_tensor *room =
        calloc(2 * states + given->element_count + given->output_count + 1, sizeof *room);
    *own = *given;
    own->states = room;
    if (!room)
        return false;
    keep(&room, given->states, states);
    own->next = keep(&room, given->next, states);
    own->elements = keep(&room, given->elements, given->element_count);
    own->outputs = keep(&room, given->outputs, given->output_count);
    recording->made->states = calloc(3 * (states + 1), sizeof *recording->made->states);
    recording->made->initial = recording->made->states + states + 1;
    recording->made->next = recording->made->initial + states + 1;
    return recording->made->states;
}

static void add_state(struct kiln__replayed *made, uint32_t state, uint32_t initial,
                      kiln_tensor next)
{
    made->states[made->n_states] = state;
    made->initial[made->n_states] = initial;
    made->next[made->n_states++] = kiln__tensor_index(next);
}

/* The number of a step counts from the first one taken. */
static void add_number(struct recording *recording)
{
    const struct kiln__loop_call *loop = recording->loop;
    const kiln_loop_options *given = &loop->options;
    kiln_batch *batch = loop->batch;
    const kiln_tensor from = kiln__batch_number(
        batch, KILN_I32, given->reverse ? (double)(given->steps - 1) : 0, loop->call);
    const kiln_tensor by = kiln__batch_number(batch, KILN_I32, given->reverse ? -1 : 1, loop->call);
    add_state(recording->made, kiln__tensor_index(given->step), kiln__tensor_index(from),
              kiln_add(batch, given->step, by));
}

static bool add_states(struct recording *recording)
{
    const struct kiln__loop_call *loop = recording->loop;
    const kiln_loop_options *given = &loop->options;
    const kiln_tensor until = kiln__loop_end_mask(loop, given->until);
    if (until.id && loop->varies[kiln__tensor_index(given->until)])
        recording->made->ended = kiln__tensor_index(kiln_cast(
            loop->batch, kiln_min(loop->batch, kiln_cast(loop->batch, until, KILN_F32), 0, NULL, 0),
            KILN_I32));
    for (size_t k = 0; k < given->state_count && !loop->batch->error.status; k++)
        add_state(recording->made, kiln__tensor_index(given->states[k]),
                  kiln__loop_initial(loop, k),
                  kiln__loop_keep_where_ended(loop, until, given->states[k], given->next[k]));
    if (given->step.id && !loop->batch->error.status)
        add_number(recording);
    return !loop->batch->error.status;
}

/* What is behind movements, which each step has for itself; so it has constants. */
static bool record_shared(struct recording *recording, uint32_t index)
{
    const struct kiln__graph *graph = &recording->loop->batch->graph;
    const uint32_t behind = kiln__node_after_movements(graph, index);
    if (recording->loop->varies[index] || recording->listed[behind] ||
        kiln__node_is_free(&graph->nodes.items[behind]))
        return true;
    uint32_t *place = kiln__vector_push(&recording->shared);
    if (!place)
        return false;
    recording->listed[behind] = true;
    *place = behind;
    return true;
}

static bool find_shared(struct recording *recording)
{
    const struct kiln__loop_call *loop = recording->loop;
    const kiln_loop_options *given = &loop->options;
    bool done = true;
    for (uint32_t i = 0; i < loop->count && done; i++) {
        const struct kiln__node *node = &loop->batch->graph.nodes.items[i];
        for (unsigned k = 0; loop->needed[i] && loop->varies[i] &&
                             !kiln__loop_is_placeholder(loop, i) && k < node->n_inputs && done;
             k++)
            done = record_shared(recording, node->input[k]);
    }
    for (size_t k = 0; k < given->state_count && done; k++)
        done = record_shared(recording, kiln__tensor_index(given->next[k]));
    for (size_t k = 0; k < given->output_count && done; k++)
        done = record_shared(recording, kiln__tensor_index(given->outputs[k]));
    if (given->until.id && done)
        done = record_shared(recording, kiln__tensor_index(given->until));
    recording->made->shared = recording->shared.items;
    recording->made->n_shared = (uint32_t)recording->shared.count;
    return done;
}

/* ---- several steps as one ---- */

/* What a stretch may have of nodes, and a step of elements that it reads and leaves, and of
 * multiplications: some 50 us of a core's. */
#define MOST_NODES 1024
#define MOST_ELEMENTS ((size_t)1 << 17)
#define MOST_MULTIPLIED ((size_t)1 << 19)

struct size {
    size_t nodes, elements, multiplied;
};

/* False: a step has a loop or an own kernel inside, which may take any time. */
static bool measure(const struct kiln__loop_call *loop, struct size *size)
{
    const struct kiln__node *nodes = loop->batch->graph.nodes.items;
    *size = (struct size){.nodes = 1 + loop->options.output_count};
    for (size_t i = 0; i < loop->count; i++) {
        if (!loop->varies[i] || !loop->needed[i])
            continue;
        if (kiln__node_is_replayed(&nodes[i]) || nodes[i].kind == KILN__CUSTOM ||
            nodes[i].kind == KILN__ATTENTION_BACKWARD)
            return false;
        const struct kiln__shape *first = &nodes[nodes[i].input[0]].shape;
        size->nodes++;
        if (!kiln__node_is_movement(&nodes[i]))
            size->elements += kiln__node_count(&nodes[i]);
        for (unsigned k = 0; k < nodes[i].n_inputs && !kiln__node_is_movement(&nodes[i]); k++)
            size->elements += kiln__node_count(&nodes[nodes[i].input[k]]);
        if (nodes[i].kind == KILN__MATMUL)
            size->multiplied += kiln__node_count(&nodes[i]) * first->dims[first->rank - 1];
        if (nodes[i].kind == KILN__ATTENTION) {
            const struct kiln__attention_size own =
                kiln__attention_size(&loop->batch->graph, &nodes[i]);
            size->multiplied += own.batches * own.m * own.n * (own.d + own.e);
        }
    }
    return true;
}

static bool varies(const struct kiln__loop_call *loop, uint32_t index)
{
    return index >= loop->count || loop->varies[index]; /* those behind unless a loop has ended */
}

/* Whether all that a step leaves varies: what is made of the rest in the next step would be
 * nobody's to compute. */
static bool leaves_what_varies(const struct recording *recording)
{
    const struct kiln__loop_call *loop = recording->loop;
    bool all = true;
    for (size_t k = 0; k < recording->made->n_states; k++)
        all = all && varies(loop, recording->made->next[k]);
    for (size_t k = 0; k < loop->options.output_count; k++)
        all = all && varies(loop, kiln__tensor_index(loop->options.outputs[k]));
    return all;
}

/* As few as can be are left over of all. 0: each is one. */
static size_t choose_stretch(const struct recording *recording)
{
    const struct kiln__loop_call *loop = recording->loop;
    const size_t steps = loop->options.steps;
    struct size size;
    if (!leaves_what_varies(recording) || !measure(loop, &size) || size.elements > MOST_ELEMENTS ||
        size.multiplied > MOST_MULTIPLIED)
        return 0;
    size_t most = MOST_NODES / size.nodes;
    most = most < loop->batch->limits.stretch ? most : loop->batch->limits.stretch;
    most = most < steps ? most : steps;
    size_t chosen = most;
    for (size_t i = most; i > most / 2; i--)
        if (steps % i < steps % chosen)
            chosen = i;
    return chosen < 2 ? 0 : chosen;
}

static kiln_tensor first_rows(const struct kiln__loop_call *loop, kiln_tensor element, size_t count)
{
    const struct kiln__node *all =
        &loop->batch->graph.nodes.items[kiln__loop_node(loop, element)->input[0]];
    int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK];
    for (uint32_t d = 0; d < all->shape.rank; d++)
        stop[d] = (int64_t)(d ? all->shape.dims[d] : count);
    return kiln_slice(loop->batch,
                      kiln__batch_tensor(loop->batch, kiln__loop_node(loop, element)->input[0]),
                      start, stop, NULL);
}

/* What has been kept of the options is overwritten by what the stretch has instead. */
static void record_stretch(struct kiln__loop_call *loop, struct kiln__replayed *made)
{
    const kiln_loop_options *own = &made->options;
    kiln_tensor *next = (kiln_tensor *)(uintptr_t)own->next;
    kiln_tensor *rows = (kiln_tensor *)(uintptr_t)own->elements;
    for (size_t k = 0; k < own->element_count && !loop->batch->error.status; k++)
        rows[k] = first_rows(loop, loop->options.elements[k], own->steps);
    loop->rows = rows;
    if (loop->batch->error.status || !kiln__loop_find_nodes(loop))
        return;
    kiln__loop_unroll(loop, next, (kiln_tensor *)(uintptr_t)own->outputs);
    for (size_t k = 0; k < own->state_count; k++)
        add_state(made, kiln__tensor_index(own->states[k]), 0, next[k]);
    free(loop->varies);
}

static kiln_tensor *tensors_of(const kiln_batch *batch, const uint32_t *nodes, size_t count)
{
    kiln_tensor *tensors = calloc(count + 1, sizeof *tensors);
    for (size_t k = 0; k < count && tensors; k++)
        tensors[k] = kiln__batch_tensor(batch, nodes[k]);
    return tensors;
}

static bool add_stretch(struct recording *recording)
{
    const struct kiln__replayed *step = recording->made;
    struct kiln__loop_call loop = {
        .batch = recording->loop->batch, .call = recording->loop->call, .options = step->options};
    struct recording own = {.loop = &loop};
    loop.options.steps = choose_stretch(recording);
    if (!loop.options.steps)
        return true;
    kiln_tensor *states = tensors_of(loop.batch, step->states, step->n_states);
    kiln_tensor *next = tensors_of(loop.batch, step->next, step->n_states);
    loop.options.state_count = step->n_states;
    loop.options.states = states;
    loop.options.next = next;
    loop.options.step = loop.options.until = (kiln_tensor){0};
    recording->made->stretch = own.made = calloc(1, sizeof *own.made);
    const bool done = states && next && own.made && keep_options(&own);
    if (done)
        record_stretch(&loop, own.made);
    free(states);
    free(next);
    return done;
}

/* ---- its nodes ---- */

/* A node with as many of the inputs as it has room for, behind the one before it. */
static void add_input(struct recording *recording, struct kiln__node *tie, uint32_t input)
{
    kiln_batch *batch = recording->loop->batch;
    if (tie->n_inputs == KILN__MOST_INPUTS) {
        const uint32_t before =
            kiln__tensor_index(kiln__batch_record(batch, tie, recording->loop->call));
        tie->n_inputs = 1;
        tie->input[0] = before;
    }
    tie->input[tie->n_inputs++] = input;
}

static uint32_t record_inputs(struct recording *recording, size_t number)
{
    const struct kiln__loop_call *loop = recording->loop;
    const struct kiln__replayed *made = recording->made;
    struct kiln__node tie = {.kind = KILN__IMPORT, .type = KILN_I32, .binding = number};
    for (size_t k = 0; k < made->n_states; k++)
        add_input(recording, &tie, made->initial[k]);
    for (size_t k = 0; k < loop->options.element_count; k++)
        add_input(recording, &tie, kiln__loop_node(loop, loop->options.elements[k])->input[0]);
    for (size_t k = 0; k < made->n_shared; k++)
        add_input(recording, &tie, made->shared[k]);
    return kiln__tensor_index(kiln__batch_record(loop->batch, &tie, loop->call));
}

static kiln_tensor record_result(struct recording *recording, uint32_t tie, size_t number,
                                 kiln_type type, const struct kiln__shape *shape)
{
    struct kiln__node node = {.kind = KILN__IMPORT,
                              .type = type,
                              .n_inputs = 1,
                              .input = {tie},
                              .shape = *shape,
                              .binding = number};
    return kiln__batch_record(recording->loop->batch, &node, recording->loop->call);
}

static void record_nodes(struct recording *recording, size_t number, kiln_tensor *last,
                         kiln_tensor *stacked)
{
    struct kiln__loop_call *loop = recording->loop;
    const struct kiln__replayed *made = recording->made;
    const struct kiln__graph *graph = &loop->batch->graph;
    recording->made->first = (uint32_t)graph->nodes.count;
    const uint32_t tie = record_inputs(recording, number);
    recording->made->results = (uint32_t)graph->nodes.count;
    for (size_t k = 0; k < made->n_states && !loop->batch->error.status; k++) {
        const struct kiln__node state = graph->nodes.items[made->states[k]];
        const kiln_tensor result = record_result(recording, tie, number, state.type, &state.shape);
        if (k < loop->options.state_count)
            last[k] = result;
    }
    for (size_t k = 0; k < loop->options.output_count && !loop->batch->error.status; k++) {
        struct kiln__shape shape;
        const kiln_type type = kiln__loop_node(loop, loop->options.outputs[k])->type;
        if (kiln__loop_stacked(loop, k, &shape))
            stacked[k] = record_result(recording, tie, number, type, &shape);
    }
    recording->made->end = (uint32_t)graph->nodes.count;
}

void kiln__loop_replay(struct kiln__loop_call *loop, kiln_tensor *last, kiln_tensor *stacked)
{
    kiln_batch *batch = loop->batch;
    struct recording recording = {.loop = loop};
    struct kiln__replayed **place = kiln__vector_push(&batch->loops);
    recording.made = place ? *place = calloc(1, sizeof **place) : NULL;
    recording.listed = calloc(loop->count + 1, sizeof *recording.listed);
    bool done =
        recording.made && recording.listed && keep_options(&recording) && find_shared(&recording);
    done = done && (!add_states(&recording) || add_stretch(&recording));
    if (!done)
        (void)REFUSE(loop, KILN_OUT_OF_HOST_MEMORY, "%s", "no memory to record");
    if (!batch->error.status)
        record_nodes(&recording, batch->loops.count - 1, last, stacked);
    free(recording.listed);
}
