/* SPDX-License-Identifier: Apache-2.0 */
/* A loop step by step: what a step is made of is recorded once for each. */
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/operations.h>

#include <stdlib.h>
#include <string.h>

#include "record/loop_call.h"
#include "record/replayed.h"

/* Most operations of steps that are recorded one by one. */
#define MOST_OPERATIONS 65536

#define REFUSE KILN__LOOP_REFUSE
#define node_at kiln__loop_node

static const kiln_tensor none = {0};

bool kiln__loop_is_placeholder(const struct kiln__loop_call *loop, uint32_t index)
{
    const kiln_loop_options *given = &loop->options;
    bool found = given->step.id && kiln__tensor_index(given->step) == index;
    for (size_t k = 0; k < given->state_count; k++)
        found = found || kiln__tensor_index(given->states[k]) == index;
    for (size_t k = 0; k < given->element_count; k++)
        found = found || kiln__tensor_index(given->elements[k]) == index;
    return found;
}

/* The nodes that are recorded for each step; NULL: how many. */
static size_t list_nodes(const struct kiln__loop_call *loop, uint32_t *nodes)
{
    size_t count = 0;
    for (uint32_t i = 0; i < loop->count; i++) {
        if (!loop->needed[i] || !loop->varies[i] || kiln__loop_is_placeholder(loop, i))
            continue;
        if (nodes)
            nodes[count] = i;
        count++;
    }
    return count;
}

struct unrolled {
    struct kiln__loop_call *loop;
    uint32_t *now;      /* per node: what it is in this step */
    size_t most;        /* nodes of the batch */
    kiln_tensor *state; /* before it */
    kiln_tensor *left;  /* outputs: of each step, one output behind the other */
};

/* Of a node of the batch. */
struct through {
    bool asked, depends; /* an input, or made of one */
    bool passes;         /* such a loop, or made of it */
    bool needed;
};

static void copy_node(kiln_batch *batch, const char *call, uint32_t index, uint32_t *now,
                      size_t most);

static void refuse_many(struct kiln__loop_call *loop)
{
    (void)REFUSE(loop, KILN_TOO_LARGE,
                 "a loop of %zu steps of %zu operations: for a gradient steps that are no kernel "
                 "with the loop inside are recorded one by one, and %d operations are the most",
                 loop->options.steps, list_nodes(loop, NULL), MOST_OPERATIONS);
}

static kiln_tensor in_step(const struct unrolled *unrolled, kiln_tensor tensor)
{
    return kiln__batch_tensor(unrolled->loop->batch, unrolled->now[kiln__tensor_index(tensor)]);
}

static void begin_step(struct unrolled *unrolled, size_t number)
{
    struct kiln__loop_call *loop = unrolled->loop;
    const kiln_loop_options *given = &loop->options;
    for (size_t k = 0; k < given->state_count; k++)
        unrolled->now[kiln__tensor_index(given->states[k])] =
            kiln__tensor_index(unrolled->state[k]);
    for (size_t k = 0; k < given->element_count; k++) {
        const uint32_t all = loop->rows ? kiln__tensor_index(loop->rows[k])
                                        : node_at(loop, given->elements[k])->input[0];
        unrolled->now[kiln__tensor_index(given->elements[k])] = kiln__tensor_index(
            kiln__loop_view(loop->batch, all, true, (int64_t)number, loop->call));
    }
    if (given->step.id)
        unrolled->now[kiln__tensor_index(given->step)] = kiln__tensor_index(
            kiln__batch_number(loop->batch, KILN_I32, (double)number, loop->call));
}

kiln_tensor kiln__loop_end_mask(const struct kiln__loop_call *loop, kiln_tensor until)
{
    if (until.id && kiln__shape_count(&node_at(loop, until)->shape) == 1)
        return kiln_reshape(loop->batch, until, 0, NULL);
    return until;
}

kiln_tensor kiln__loop_keep_where_ended(const struct kiln__loop_call *loop, kiln_tensor until,
                                        kiln_tensor state, kiln_tensor next)
{
    const kiln_type type = node_at(loop, state)->type;
    return until.id ? kiln_cast(loop->batch, kiln_where(loop->batch, until, state, next), type)
                    : next;
}

static void take_step(struct unrolled *unrolled, const uint32_t *nodes, size_t count, size_t number)
{
    struct kiln__loop_call *loop = unrolled->loop;
    kiln_batch *batch = loop->batch;
    const kiln_loop_options *given = &loop->options;
    begin_step(unrolled, number);
    for (size_t i = 0; i < count && !batch->error.status; i++)
        copy_node(batch, loop->call, nodes[i], unrolled->now, unrolled->most);
    if (batch->graph.nodes.count > unrolled->most)
        refuse_many(loop);
    for (size_t k = 0; k < given->output_count && !batch->error.status; k++)
        unrolled->left[k * given->steps + number] = in_step(unrolled, given->outputs[k]);
    kiln_tensor until = none;
    if (given->until.id && !batch->error.status)
        until = kiln__loop_end_mask(loop, in_step(unrolled, given->until));
    /* The states of this step are still asked for by others: they change behind all. */
    for (size_t k = 0; k < given->state_count && !batch->error.status; k++)
        unrolled->state[given->state_count + k] = kiln__loop_keep_where_ended(
            loop, until, unrolled->state[k], in_step(unrolled, given->next[k]));
    memcpy(unrolled->state, unrolled->state + given->state_count,
           given->state_count * sizeof *unrolled->state);
}

static void unroll(struct unrolled *unrolled, uint32_t *nodes, kiln_tensor *last,
                   kiln_tensor *stacked)
{
    struct kiln__loop_call *loop = unrolled->loop;
    kiln_batch *batch = loop->batch;
    const kiln_loop_options *given = &loop->options;
    const size_t count = list_nodes(loop, nodes), steps = given->steps;
    for (size_t k = 0; k < given->state_count; k++)
        unrolled->state[k] =
            loop->rows ? given->states[k]
                       : kiln__batch_tensor(batch, unrolled->now[kiln__loop_initial(loop, k)]);
    for (size_t i = 0; i < steps && !batch->error.status; i++)
        take_step(unrolled, nodes, count, given->reverse ? steps - 1 - i : i);
    if (batch->error.status)
        return;
    memcpy(last, unrolled->state, given->state_count * sizeof *last);
    for (size_t k = 0; k < given->output_count; k++)
        stacked[k] = kiln_stack(batch, steps, unrolled->left + k * steps, 0);
}

/* `now`: what the nodes before the loop are by now. */
static void unroll_call(struct kiln__loop_call *loop, uint32_t *now, size_t most, kiln_tensor *last,
                        kiln_tensor *stacked)
{
    const kiln_loop_options *given = &loop->options;
    const size_t operations = list_nodes(loop, NULL) + given->output_count + 1;
    const size_t states = given->state_count, left = given->output_count * given->steps;
    if (given->steps > MOST_OPERATIONS / operations) {
        refuse_many(loop);
        return;
    }
    uint32_t *nodes = calloc(loop->count, sizeof *nodes);
    kiln_tensor *state = calloc(2 * states + left, sizeof *state);
    if (nodes && state)
        unroll(&(struct unrolled){loop, now, most, state, state + 2 * states}, nodes, last,
               stacked);
    else
        (void)REFUSE(loop, KILN_OUT_OF_HOST_MEMORY, "%s", "no memory to record");
    free(nodes);
    free(state);
}

void kiln__loop_unroll(struct kiln__loop_call *loop, kiln_tensor *last, kiln_tensor *stacked)
{
    uint32_t *now = calloc(loop->count, sizeof *now);
    for (uint32_t i = 0; now && i < loop->count; i++)
        now[i] = i;
    if (now)
        unroll_call(loop, now, SIZE_MAX, last, stacked);
    else
        (void)REFUSE(loop, KILN_OUT_OF_HOST_MEMORY, "%s", "no memory to record");
    free(now);
}

/* ---- kernels that take all steps ---- */

bool kiln__stepwise_keep(kiln_batch *batch, struct kiln__stepwise *kernel)
{
    struct kiln__stepwise **place = kiln__vector_push(&batch->kernels);
    if (!place)
        free(kernel);
    else
        *place = kernel;
    return place;
}

/* The one whose output it is, NULL if there is none. */
static const struct kiln__stepwise *stepwise_of(const kiln_batch *batch, uint32_t index)
{
    if (batch->graph.nodes.items[index].kind != KILN__CUSTOM)
        return NULL;
    for (size_t i = 0; i < batch->kernels.count; i++)
        if (index >= batch->kernels.items[i]->first && index < batch->kernels.items[i]->end)
            return batch->kernels.items[i];
    return NULL;
}

static struct kiln__stepwise *
copy_stepwise(const kiln_batch *batch, const struct kiln__stepwise *kernel, const uint32_t *now)
{
    struct kiln__stepwise *copy = malloc(kernel->size);
    if (!copy)
        return NULL;
    memcpy(copy, kernel, kernel->size);
    for (size_t k = 0; k < kernel->n_operands; k++)
        if (kernel->operands[k].id)
            copy->operands[k] =
                kiln__batch_tensor(batch, now[kiln__tensor_index(kernel->operands[k])]);
    return copy;
}

/* In place of the kernel whose first output the node is; or `again`: the kernel is recorded. */
static void take_stepwise(kiln_batch *batch, const char *call, const struct kiln__stepwise *kernel,
                          uint32_t *now, bool again)
{
    const uint32_t count = kernel->end - kernel->first;
    struct kiln__stepwise *copy = copy_stepwise(batch, kernel, now);
    kiln_tensor results[KILN_CUSTOM_OUTPUTS] = {{0}};
    const uint32_t first = kernel->first;
    if (copy && again) {
        copy->first = now[first];
        copy->end = copy->first + count;
        if (kiln__stepwise_keep(batch, copy))
            return;
        copy = NULL;
    }
    if (!copy) {
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", call);
        return;
    }
    copy->record(batch, copy, results);
    for (uint32_t k = 0; k < count && !batch->error.status; k++)
        if (results[k].id)
            now[first + k] = kiln__tensor_index(results[k]);
    free(copy);
}

/* ---- loops that are replayed ---- */

static void unroll_replayed(kiln_batch *batch, const char *call, const struct kiln__replayed *made,
                            uint32_t *now, size_t most)
{
    struct kiln__loop_call loop = {
        .batch = batch, .call = call, .options = made->options, .count = made->first};
    const size_t states = made->options.state_count, outputs = made->options.output_count;
    kiln_tensor *results = calloc(states + outputs, sizeof *results);
    if (!results)
        (void)REFUSE(&loop, KILN_OUT_OF_HOST_MEMORY, "%s", "no memory to record");
    else if (kiln__loop_find_nodes(&loop))
        unroll_call(&loop, now, most, results, results + states);
    for (size_t k = 0; k < states + outputs && !batch->error.status; k++)
        now[made->results + (k < states ? k : made->n_states - states + k)] =
            kiln__tensor_index(results[k]);
    free(results);
    free(loop.varies);
}

static void copy_node(kiln_batch *batch, const char *call, uint32_t index, uint32_t *now,
                      size_t most)
{
    struct kiln__node node;
    kiln__node_copy(&node, &batch->graph.nodes.items[index]);
    if (kiln__node_is_replayed(&node)) {
        const struct kiln__replayed *made = kiln__replayed_of(batch, &node);
        if (index == made->results)
            unroll_replayed(batch, call, made, now, most);
        return;
    }
    const struct kiln__stepwise *kernel = stepwise_of(batch, index);
    if (kernel && most != SIZE_MAX) {
        if (index == kernel->first)
            take_stepwise(batch, call, kernel, now, false);
        return;
    }
    for (unsigned k = 0; k < node.n_inputs; k++)
        node.input[k] = now[node.input[k]];
    now[index] = kiln__tensor_index(kiln__batch_record(batch, &node, call));
    if (kernel && index == kernel->first && !batch->error.status)
        take_stepwise(batch, call, kernel, now, true);
}

/* Those of the nodes that go through such a kernel or a replayed loop which depends on an input. */
static void mark_through(const kiln_batch *batch, const kiln_tensor *inputs, size_t n, size_t count,
                         struct through *marks)
{
    for (size_t k = 0; k < n; k++)
        marks[kiln__tensor_index(inputs[k])].asked = true;
    for (size_t i = 0; i < count; i++) {
        const struct kiln__node *node = &batch->graph.nodes.items[i];
        for (unsigned k = 0; k < node->n_inputs; k++) {
            marks[i].depends |= marks[node->input[k]].depends;
            marks[i].passes |= marks[node->input[k]].passes;
        }
        marks[i].passes |=
            (kiln__node_is_replayed(node) || stepwise_of(batch, (uint32_t)i)) && marks[i].depends;
        marks[i].depends |= marks[i].asked;
    }
    for (size_t i = count; i-- > 0;) {
        const struct kiln__node *node = &batch->graph.nodes.items[i];
        const struct kiln__stepwise *kernel =
            marks[i].needed ? stepwise_of(batch, (uint32_t)i) : NULL;
        for (unsigned k = 0; marks[i].needed && k < node->n_inputs; k++)
            marks[node->input[k]].needed = true;
        if (kernel) /* all have the first one's turn */
            marks[kernel->first].needed = true;
        else if (marks[i].needed && kiln__node_is_replayed(node))
            marks[kiln__replayed_of(batch, node)->results].needed = true;
    }
}

/* Later calls and requests mean the copies. */
static bool put_instead(kiln_batch *batch, const uint32_t *now, size_t count)
{
    for (uint32_t i = (uint32_t)batch->instead.count; i < count; i++)
        if (!kiln__vector_add(&batch->instead, i))
            return false;
    for (size_t i = 0; i < count; i++)
        if (now[i] != i)
            batch->instead.items[i] = now[i];
    for (size_t i = 0; i < batch->graph.requests.count; i++)
        batch->graph.requests.items[i].node =
            kiln__batch_instead(batch, batch->graph.requests.items[i].node);
    return true;
}

kiln_tensor kiln__loops_unroll(kiln_batch *batch, const char *call, kiln_tensor of,
                               const kiln_tensor *inputs, size_t n)
{
    const size_t count = batch->graph.nodes.count;
    const bool any = batch->loops.count || batch->kernels.count;
    uint32_t *now = any ? calloc(count, sizeof *now) : NULL;
    struct through *marks = now ? calloc(count, sizeof *marks) : NULL;
    if (marks) {
        marks[kiln__tensor_index(of)].needed = true;
        mark_through(batch, inputs, n, count, marks);
        for (uint32_t i = 0; i < count; i++)
            now[i] = i;
        for (uint32_t i = 0; i < count && !batch->error.status; i++)
            if (marks[i].passes && marks[i].needed)
                copy_node(batch, call, i, now, count + MOST_OPERATIONS);
        of = kiln__batch_tensor(batch, now[kiln__tensor_index(of)]);
    }
    if (any && (!marks || (!batch->error.status && !put_instead(batch, now, count))))
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", call);
    free(now);
    free(marks);
    return of;
}
