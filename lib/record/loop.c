/* SPDX-License-Identifier: Apache-2.0 */
/* Loops: the step that was recorded is looked at, and becomes a kernel with the loop inside, or is
 * recorded once for each step. */
#include "record/loop_call.h"

#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/operations.h>

#include <stdlib.h>
#include <string.h>

#include "record/call.h"
#include "record/replayed.h"
#include "util/structure.h"

static const kiln_tensor none = {0};

#define REFUSE KILN__LOOP_REFUSE
#define node_at kiln__loop_node

/* ---- what a step is recorded with ---- */

kiln_tensor kiln__loop_view(kiln_batch *batch, uint32_t input, bool row, int64_t start,
                            const char *call)
{
    const struct kiln__node *from = &batch->graph.nodes.items[input];
    struct kiln__node node = {.kind = KILN__VIEW, .type = from->type, .n_inputs = 1};
    node.op = row ? KILN__SLICE : KILN__VIEW_COMPOSED;
    node.input[0] = input;
    node.shape.rank = from->shape.rank - row;
    node.view.start[0] = row ? start : 0;
    for (uint32_t d = 0; d < node.shape.rank; d++) {
        node.shape.dims[d] = from->shape.dims[d + row];
        node.view.source[d] = (int8_t)(d + row);
        node.view.step[d] = 1;
    }
    return kiln__batch_record(batch, &node, call);
}

/* Its tensor with elements that lie apart. */
static kiln_tensor unpacked(kiln_batch *batch, kiln_tensor x, const char *call, const char *name)
{
    const struct kiln__node *node = kiln__batch_node(batch, x, call, name);
    return !node ? none : kiln__node_has_blocks(node) ? kiln_cast(batch, x, KILN_F32) : x;
}

kiln_tensor kiln_loop_state(kiln_batch *batch, kiln_tensor initial)
{
    KILN__CALL(batch);
    initial = unpacked(batch, initial, __func__, "initial");
    return initial.id ? kiln__loop_view(batch, kiln__tensor_index(initial), false, 0, __func__)
                      : none;
}

kiln_tensor kiln_loop_element(kiln_batch *batch, kiln_tensor xs)
{
    KILN__CALL(batch);
    xs = unpacked(batch, xs, __func__, "xs");
    if (!xs.id)
        return none;
    const struct kiln__node *node = kiln__tensor_node(batch, xs);
    const struct kiln__shape shape = node->shape;
    if (shape.rank == 0) {
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: xs has shape [], and no dimension that steps could go along", __func__);
        return none;
    }
    if (shape.dims[0] == 0)
        return kiln_fill(batch, node->type, shape.rank - 1, shape.dims + 1, 0);
    return kiln__loop_view(batch, kiln__tensor_index(xs), true, 0, __func__);
}

kiln_tensor kiln_loop_step(kiln_batch *batch)
{
    KILN__CALL(batch);
    if (!kiln__batch_is_open(batch, __func__))
        return none;
    return kiln__batch_number(batch, KILN_I32, 0, __func__);
}

/* ---- checks ---- */

uint32_t kiln__loop_initial(const struct kiln__loop_call *loop, size_t k)
{
    return node_at(loop, loop->options.states[k])->input[0];
}

bool kiln__loop_stacked(const struct kiln__loop_call *loop, size_t k, struct kiln__shape *shape)
{
    const struct kiln__shape *one = &node_at(loop, loop->options.outputs[k])->shape;
    size_t dims[KILN_MAX_RANK + 1] = {loop->options.steps};
    memcpy(dims + 1, one->dims, one->rank * sizeof *dims);
    return kiln__check_dims(loop->batch, loop->call, one->rank + (size_t)1, dims, shape);
}

static bool check_tensors(struct kiln__loop_call *loop, const char *what, size_t count,
                          const kiln_tensor *tensors)
{
    if (count && !tensors)
        return REFUSE(loop, KILN_INVALID_ARGUMENT, "%s is NULL", what);
    for (size_t k = 0; k < count; k++)
        if (!kiln__batch_node(loop->batch, tensors[k], loop->call, what))
            return false;
    return true;
}

static bool check_states(struct kiln__loop_call *loop)
{
    const kiln_loop_options *given = &loop->options;
    if (given->state_count == 0)
        return REFUSE(loop, KILN_INVALID_ARGUMENT, "%s", "there is no state");
    if (!check_tensors(loop, "states", given->state_count, given->states) ||
        !check_tensors(loop, "next", given->state_count, given->next))
        return false;
    for (size_t k = 0; k < given->state_count; k++) {
        const struct kiln__node *state = node_at(loop, given->states[k]);
        const struct kiln__node *next = node_at(loop, given->next[k]);
        if (state->kind != KILN__VIEW || state->op != KILN__VIEW_COMPOSED)
            return REFUSE(loop, KILN_INVALID_ARGUMENT, "states[%zu] is none of kiln_loop_state()",
                          k);
        for (size_t j = 0; j < k; j++)
            if (given->states[j].id == given->states[k].id)
                return REFUSE(loop, KILN_INVALID_ARGUMENT, "states[%zu] and states[%zu] are one", j,
                              k);
        if (state->type != next->type)
            return REFUSE(loop, KILN_TYPE_MISMATCH,
                          "state %zu is %s at first and %s after a step; cast it", k,
                          kiln_type_name(state->type), kiln_type_name(next->type));
        if (!kiln__shape_equal(&state->shape, &next->shape))
            return REFUSE(
                loop, KILN_SHAPE_MISMATCH, "state %zu has shape %s at first and %s after a step", k,
                kiln__shape_text(&state->shape).text, kiln__shape_text(&next->shape).text);
    }
    return true;
}

static bool check_elements(struct kiln__loop_call *loop)
{
    const kiln_loop_options *given = &loop->options;
    if (!check_tensors(loop, "elements", given->element_count, given->elements))
        return false;
    for (size_t k = 0; k < given->element_count && given->steps; k++) {
        const struct kiln__node *element = node_at(loop, given->elements[k]);
        if (element->kind != KILN__VIEW || element->op != KILN__SLICE)
            return REFUSE(loop, KILN_INVALID_ARGUMENT,
                          "elements[%zu] is none of kiln_loop_element()", k);
        const struct kiln__shape *all = &loop->batch->graph.nodes.items[element->input[0]].shape;
        if (all->rank != element->shape.rank + 1 || all->dims[0] != given->steps)
            return REFUSE(loop, KILN_SHAPE_MISMATCH,
                          "elements[%zu] is of xs of shape %s, and the loop takes %zu steps", k,
                          kiln__shape_text(all).text, given->steps);
    }
    return true;
}

static bool check_until(struct kiln__loop_call *loop)
{
    const kiln_loop_options *given = &loop->options;
    if (!given->until.id)
        return true;
    const struct kiln__node *until =
        kiln__batch_node(loop->batch, given->until, loop->call, "until");
    if (!until)
        return false;
    if (until->type != KILN_U8 && until->type != KILN_BOOL)
        return REFUSE(loop, KILN_TYPE_MISMATCH, "until is %s, and it takes a mask, u8 or bool",
                      kiln_type_name(until->type));
    if (given->output_count)
        return REFUSE(loop, KILN_INVALID_ARGUMENT, "%s",
                      "a loop that may end early leaves nothing of each step: outputs or until");
    for (size_t k = 0; k < given->state_count; k++) {
        const struct kiln__shape *state = &node_at(loop, given->states[k])->shape;
        if (kiln__shape_count(&until->shape) != 1 && !kiln__shape_equal(&until->shape, state))
            return REFUSE(
                loop, KILN_SHAPE_MISMATCH,
                "until has shape %s and state %zu %s: it is of one element, or each state "
                "has its shape",
                kiln__shape_text(&until->shape).text, k, kiln__shape_text(state).text);
    }
    return true;
}

static bool check(struct kiln__loop_call *loop, const kiln_tensor *last, const kiln_tensor *stacked)
{
    const kiln_loop_options *given = &loop->options;
    if (!last || (given->output_count && !stacked))
        return REFUSE(loop, KILN_INVALID_ARGUMENT, "%s is NULL", last ? "stacked" : "last");
    if (given->steps > INT32_MAX)
        return REFUSE(loop, KILN_TOO_LARGE, "%zu steps, and 2^31 - 1 are the most", given->steps);
    if (!check_states(loop) || !check_elements(loop) ||
        !check_tensors(loop, "outputs", given->output_count, given->outputs))
        return false;
    if (given->step.id) {
        const struct kiln__node *step =
            kiln__batch_node(loop->batch, given->step, loop->call, "step");
        if (step && (step->kind != KILN__CONSTANT || step->type != KILN_I32 || step->shape.rank))
            return REFUSE(loop, KILN_INVALID_ARGUMENT, "%s", "step is none of kiln_loop_step()");
        if (!step)
            return false;
    }
    return check_until(loop);
}

/* ---- what the step is ---- */

static void mark_needed(struct kiln__loop_call *loop, kiln_tensor tensor)
{
    if (tensor.id)
        loop->needed[kiln__tensor_index(tensor)] = true;
}

/* A call's outputs follow each other, and its gradient looks for all of them; a replayed loop is
 * recorded step by step in its first result's turn. */
static void need_outputs(struct kiln__loop_call *loop, const struct kiln__node *nodes, size_t i)
{
    if (kiln__node_is_replayed(&nodes[i]))
        loop->needed[kiln__replayed_of(loop->batch, &nodes[i])->results] = true;
    if (nodes[i].kind == KILN__CUSTOM)
        for (unsigned k = 0; k < nodes[i].custom.call->call.n_outputs; k++)
            loop->needed[i - nodes[i].custom.output + k] = true;
}

/* What depends on what `of` has marks of. */
static void mark_dependents(const struct kiln__loop_call *loop, bool *of)
{
    const struct kiln__node *nodes = loop->batch->graph.nodes.items;
    for (size_t i = 0; i < loop->count; i++)
        for (unsigned k = 0; k < nodes[i].n_inputs; k++)
            of[i] = of[i] || of[nodes[i].input[k]];
}

static void mark_elements(const struct kiln__loop_call *loop, bool *of)
{
    const kiln_loop_options *given = &loop->options;
    for (size_t k = 0; k < given->element_count; k++)
        of[kiln__tensor_index(given->elements[k])] = true;
    if (given->step.id)
        of[kiln__tensor_index(given->step)] = true;
}

/* What a loop begins with is there before it, and its end is seen by the states alone: steps that
 * are recorded one by one look at them again. */
static bool check_dependence(struct kiln__loop_call *loop)
{
    const kiln_loop_options *given = &loop->options;
    for (size_t k = 0; k < given->state_count; k++)
        if (loop->varies[kiln__loop_initial(loop, k)])
            return REFUSE(loop, KILN_INVALID_ARGUMENT,
                          "state %zu is at first what a step of this loop is made of", k);
    for (size_t k = 0; k < given->element_count && given->steps; k++)
        if (loop->varies[node_at(loop, given->elements[k])->input[0]])
            return REFUSE(loop, KILN_INVALID_ARGUMENT,
                          "elements[%zu] is of what a step of this loop is made of", k);
    if (!given->until.id)
        return true;
    bool *beside = calloc(loop->count, sizeof *beside);
    if (!beside)
        return REFUSE(loop, KILN_OUT_OF_HOST_MEMORY, "%s", "no memory to record");
    mark_elements(loop, beside);
    mark_dependents(loop, beside);
    const bool does = beside[kiln__tensor_index(given->until)];
    free(beside);
    return !does ||
           REFUSE(loop, KILN_INVALID_ARGUMENT, "%s",
                  "until depends on an element or the number of a step: it is of the states alone, "
                  "of which one may count");
}

bool kiln__loop_find_nodes(struct kiln__loop_call *loop)
{
    const kiln_loop_options *given = &loop->options;
    const struct kiln__node *nodes = loop->batch->graph.nodes.items;
    loop->count = loop->batch->graph.nodes.count;
    loop->varies = calloc(2 * loop->count, sizeof *loop->varies);
    if (!loop->varies)
        return REFUSE(loop, KILN_OUT_OF_HOST_MEMORY, "%s", "no memory to record");
    loop->needed = loop->varies + loop->count;
    for (size_t k = 0; k < given->state_count; k++)
        loop->varies[kiln__tensor_index(given->states[k])] = true;
    mark_elements(loop, loop->varies);
    for (size_t k = 0; k < given->state_count; k++)
        mark_needed(loop, given->next[k]);
    for (size_t k = 0; k < given->output_count; k++)
        mark_needed(loop, given->outputs[k]);
    mark_needed(loop, given->until);
    mark_dependents(loop, loop->varies);
    for (size_t i = loop->count; i-- > 0;) {
        if (!loop->needed[i] || !loop->varies[i])
            continue;
        need_outputs(loop, nodes, i);
        for (unsigned k = 0; k < nodes[i].n_inputs; k++)
            loop->needed[nodes[i].input[k]] = true;
    }
    return true;
}

/* ---- recording ---- */

static void record_none(struct kiln__loop_call *loop, kiln_tensor *last, kiln_tensor *stacked)
{
    struct kiln__shape shape;
    for (size_t k = 0; k < loop->options.state_count; k++)
        last[k] = kiln__batch_tensor(loop->batch, kiln__loop_initial(loop, k));
    for (size_t k = 0; k < loop->options.output_count; k++)
        if (kiln__loop_stacked(loop, k, &shape))
            stacked[k] = kiln_fill(loop->batch, node_at(loop, loop->options.outputs[k])->type,
                                   shape.rank, shape.dims, 0);
}

static void record_checked(struct kiln__loop_call *loop, kiln_tensor *last, kiln_tensor *stacked)
{
    if (loop->options.steps == 0)
        record_none(loop, last, stacked);
    else if (!kiln__loop_in_kernel(loop, last, stacked) && !loop->batch->error.status)
        (kiln__loop_is_long(loop) ? kiln__loop_replay : kiln__loop_unroll)(loop, last, stacked);
}

static void record(kiln_batch *batch, const char *call, const kiln_loop_options *options,
                   kiln_tensor *last, kiln_tensor *stacked)
{
    struct kiln__loop_call loop = {.batch = batch, .call = call};
    if (!kiln__batch_is_open(batch, call))
        return;
    if (!options) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: options is NULL", call);
        return;
    }
    if (KILN__STRUCTURE_READ(&batch->error, call, options, "KILN_LOOP_INIT", &loop.options) ||
        !check(&loop, last, stacked) || !kiln__loop_find_nodes(&loop))
        return;
    if (check_dependence(&loop))
        record_checked(&loop, last, stacked);
    free(loop.varies);
}

kiln_status kiln_loop(kiln_batch *batch, const kiln_loop_options *options, kiln_tensor *last,
                      kiln_tensor *stacked)
{
    KILN__CALL(batch);
    if (batch)
        kiln__call_unnamed(batch);
    record(batch, __func__, options, last, stacked);
    const kiln_status status = batch ? batch->error.status : KILN_INVALID_ARGUMENT;
    if (!status || !options || options->size <= offsetof(kiln_loop_options, output_count))
        return status;
    for (size_t k = 0; last && k < options->state_count; k++)
        last[k] = none;
    for (size_t k = 0; stacked && k < options->output_count; k++)
        stacked[k] = none;
    return status;
}
