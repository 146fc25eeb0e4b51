/* SPDX-License-Identifier: Apache-2.0 */
/* The adjoint of a kernel with a loop inside: another one, from the last step back.
 *
 * Its elements are the states before each step, which the loop is run once more for; what flows to
 * the state, and what has flowed to what the steps share, is its state. A step of it is the
 * gradient of a step that is recorded anew. Where the states of all steps are much memory they are
 * kept at the start of some steps alone, and those in between computed once more, part by part. */
#include <kiln/elementwise.h>
#include <kiln/gradient.h>
#include <kiln/loop.h>
#include <kiln/movement.h>
#include <kiln/operations.h>
#include <kiln/reductions.h>

#include <stdlib.h>

#include "grad/gradient.h"

/* States of all steps that are kept at once, in bytes. */
#define MOST_BYTES ((size_t)64 << 20)

#define MOST_ROOTS (KILN__LOOP_STATES + KILN_CUSTOM_INPUTS)

struct walk {
    kiln_batch *batch;
    const struct kiln__custom *custom;
    const struct kiln__loop *loop;
    size_t steps, elements, part;            /* steps of one part */
    kiln_tensor inputs[KILN_CUSTOM_INPUTS];  /* [elements] or [1], of elements [steps, ...] */
    kiln_tensor flowed[KILN_CUSTOM_OUTPUTS]; /* to stacked outputs, as these; {0}: nothing */
    kiln_tensor first;                       /* 1, and 0 at other elements */
    kiln_tensor *before;                     /* per part and state */
    kiln_tensor adjoint[KILN__LOOP_STATES];  /* what flows to the states: f32, [elements] */
    kiln_tensor sums[KILN_CUSTOM_INPUTS];    /* to what steps share; {0}: not asked for */
    kiln_tensor *pieces[KILN_CUSTOM_INPUTS]; /* per part, to elements; NULL: not asked for */
    enum { NOT_READ, AS_SHARED, AS_ELEMENT } role[KILN_CUSTOM_INPUTS];
};

/* ---- tensors ---- */

static bool is_floating(unsigned type)
{
    return kiln__type_row((kiln_type)type)->floating;
}

static kiln_tensor flat(const struct walk *walk, kiln_tensor x, bool stepwise, bool single)
{
    const size_t row = single ? 1 : walk->elements;
    return stepwise ? kiln_reshape(walk->batch, x, 2, (size_t[]){walk->steps, row})
                    : kiln_reshape(walk->batch, x, 1, &row);
}

static kiln_tensor whole(const struct walk *walk, kiln_tensor x)
{
    return kiln_broadcast(walk->batch, x, 1, &walk->elements);
}

static kiln_tensor constant(const struct walk *walk, const struct kiln__loop_step *step)
{
    const struct kiln__custom_call *call = &walk->custom->call;
    const struct kiln__custom_argument *argument =
        &walk->custom->arguments[call->n_inputs + call->n_outputs + 2 + step->index];
    struct kiln__node node = {.kind = KILN__CONSTANT, .type = (kiln_type)step->type};
    node.value = argument->kind == KILN__CUSTOM_F32
                     ? (double)argument->real
                     : kiln__value_of_integer((kiln_type)step->type, argument->integer);
    return kiln__batch_record(walk->batch, &node, "kiln_grad");
}

/* ---- a step, recorded anew ---- */

struct operands {
    kiln_tensor states[KILN__LOOP_STATES], inputs[KILN_CUSTOM_INPUTS], number;
};

static kiln_tensor replay_operation(const struct walk *walk, const struct kiln__loop_step *step,
                                    const kiln_tensor *values)
{
    const bool cast = step->kind == KILN__LOOP_CAST;
    struct kiln__node node = {.kind = cast ? KILN__CAST : KILN__ELEMENTWISE,
                              .op = step->op,
                              .type = (kiln_type)step->type,
                              .n_inputs = step->n_args};
    for (unsigned k = 0; k < step->n_args; k++) {
        if (!values[step->args[k]].id)
            return (kiln_tensor){0};
        node.input[k] = kiln__tensor_index(values[step->args[k]]);
        const struct kiln__shape other = walk->batch->graph.nodes.items[node.input[k]].shape;
        struct kiln__shape both = other;
        if (k && !kiln__shape_broadcast(&node.shape, &other, &both))
            return (kiln_tensor){0};
        node.shape = both;
    }
    return kiln__batch_record(walk->batch, &node, "kiln_grad");
}

static void replay(const struct walk *walk, const struct operands *given, kiln_tensor *values)
{
    for (unsigned i = 0; i < walk->loop->n_steps; i++) {
        const struct kiln__loop_step *step = &walk->loop->steps[i];
        switch ((enum kiln__loop_kind)step->kind) {
        case KILN__LOOP_SHARED:
        case KILN__LOOP_ELEMENT: values[i] = given->inputs[step->index]; break;
        case KILN__LOOP_STATE: values[i] = given->states[step->index]; break;
        case KILN__LOOP_NUMBER: values[i] = given->number; break;
        case KILN__LOOP_CONSTANT: values[i] = constant(walk, step); break;
        case KILN__LOOP_APPLY:
        case KILN__LOOP_CAST: values[i] = replay_operation(walk, step, values); break;
        }
    }
}

/* ---- parts ---- */

/* Steps of part `j`, in the order in which the loop takes them, are rows from `first` on. */
struct part {
    size_t first, count;
};

static struct part part_at(const struct walk *walk, size_t j)
{
    struct part part = {.first = j * walk->part, .count = walk->part};
    if (part.first + part.count > walk->steps)
        part.count = walk->steps - part.first;
    if (walk->loop->reverse)
        part.first = walk->steps - part.first - part.count;
    return part;
}

static size_t count_parts(const struct walk *walk)
{
    return (walk->steps + walk->part - 1) / walk->part;
}

static kiln_tensor rows_of(const struct walk *walk, kiln_tensor x, const struct part *part)
{
    const struct kiln__shape shape = kiln__tensor_node(walk->batch, x)->shape;
    if (part->count == walk->steps)
        return x;
    return kiln_slice(walk->batch, x, (int64_t[]){(int64_t)part->first, 0},
                      (int64_t[]){(int64_t)(part->first + part->count), (int64_t)shape.dims[1]},
                      (int64_t[]){1, 1});
}

static kiln_tensor number_of(const struct walk *walk, kiln_tensor step, const struct part *part)
{
    return part->first ? kiln_add(walk->batch, step,
                                  kiln_constant(walk->batch, KILN_I32, (double)part->first))
                       : step;
}

/* The states behind a part, from those before it; and those before each of its steps. */
static void run_part(struct walk *walk, const struct part *part, const kiln_tensor *before,
                     kiln_tensor *behind, kiln_tensor *states)
{
    const unsigned n = walk->loop->n_states;
    struct operands given = {.number = kiln_loop_step(walk->batch)};
    kiln_tensor *values = calloc(walk->loop->n_steps, sizeof *values);
    kiln_tensor elements[KILN_CUSTOM_INPUTS], next[KILN__LOOP_STATES], last[KILN__LOOP_STATES];
    kiln_loop_options options = KILN_LOOP_INIT;
    options.steps = part->count;
    options.state_count = n;
    options.states = given.states;
    options.next = next;
    options.elements = elements;
    options.step = given.number;
    options.reverse = walk->loop->reverse;
    options.output_count = states ? n : 0;
    options.outputs = given.states;
    for (unsigned k = 0; k < n; k++)
        given.states[k] = kiln_loop_state(walk->batch, before[k]);
    for (unsigned k = 0; k < walk->custom->call.n_inputs; k++) {
        given.inputs[k] = walk->inputs[k];
        if (walk->role[k] == AS_ELEMENT)
            given.inputs[k] = elements[options.element_count++] =
                kiln_loop_element(walk->batch, rows_of(walk, walk->inputs[k], part));
    }
    given.number = number_of(walk, given.number, part);
    if (values && !walk->batch->error.status) {
        replay(walk, &given, values);
        for (unsigned k = 0; k < n; k++) {
            next[k] = values[walk->loop->next[k]];
            next[k] = next[k].id ? whole(walk, next[k]) : next[k];
        }
        kiln_loop(walk->batch, &options, behind ? behind : last, states);
    }
    free(values);
}

/* ---- a part, backwards ---- */

struct back {
    struct operands given;
    kiln_tensor states[MOST_ROOTS], next[MOST_ROOTS];
    unsigned n_states;
    kiln_tensor elements[KILN__LOOP_STATES + KILN_CUSTOM_INPUTS + KILN_CUSTOM_OUTPUTS];
    unsigned n_elements;
    kiln_tensor roots[MOST_ROOTS], gradients[MOST_ROOTS];
    unsigned n_roots;
    kiln_tensor loss;
};

static kiln_tensor add_element(struct walk *walk, struct back *back, kiln_tensor rows)
{
    return back->elements[back->n_elements++] = kiln_loop_element(walk->batch, rows);
}

static kiln_tensor add_state(struct walk *walk, struct back *back, kiln_tensor initial)
{
    return back->states[back->n_states++] = kiln_loop_state(walk->batch, initial);
}

/* What a gradient is asked for by: of as many elements as all, and a tensor of its own. */
static kiln_tensor add_root(struct walk *walk, struct back *back, kiln_tensor x)
{
    return back->roots[back->n_roots++] = kiln_loop_state(walk->batch, whole(walk, x));
}

static void weigh(struct walk *walk, struct back *back, kiln_tensor value, kiln_tensor flows)
{
    kiln_batch *batch = walk->batch;
    if (!value.id || batch->error.status)
        return;
    value = whole(walk, kiln_cast(batch, value, KILN_F32));
    const kiln_tensor sum = kiln_sum(batch, kiln_mul(batch, value, flows), 0, NULL, 0);
    back->loss = back->loss.id ? kiln_add(batch, back->loss, sum) : sum;
}

static void take_inputs(struct walk *walk, struct back *back, const struct part *part,
                        const kiln_tensor *before)
{
    for (unsigned k = 0; k < walk->loop->n_states; k++) {
        const kiln_tensor state = add_element(walk, back, before[k]);
        back->given.states[k] =
            is_floating(walk->loop->state_types[k]) ? add_root(walk, back, state) : state;
    }
    for (unsigned k = 0; k < walk->custom->call.n_inputs; k++) {
        kiln_tensor x = walk->inputs[k];
        if (walk->role[k] == AS_ELEMENT)
            x = add_element(walk, back, rows_of(walk, x, part));
        back->given.inputs[k] = walk->sums[k].id || walk->pieces[k] ? add_root(walk, back, x) : x;
    }
}

/* The sum of what the step gives times what flows to that. */
static void record_loss(struct walk *walk, struct back *back, const struct part *part,
                        const kiln_tensor *values)
{
    const struct kiln__loop *loop = walk->loop;
    for (unsigned k = 0; k < loop->n_states; k++)
        if (is_floating(loop->state_types[k]))
            weigh(walk, back, values[loop->next[k]], add_state(walk, back, walk->adjoint[k]));
    for (unsigned k = 0; k < loop->n_outputs; k++) {
        if (!walk->flowed[k].id)
            continue;
        kiln_tensor flows = add_element(walk, back, rows_of(walk, walk->flowed[k], part));
        if (loop->single_outputs >> (loop->n_states + k) & 1 && walk->elements != 1)
            flows = kiln_mul(walk->batch, flows, walk->first);
        weigh(walk, back, values[loop->outputs[k]], flows);
    }
}

static kiln_tensor gradient_at(const struct walk *walk, const struct back *back, unsigned root)
{
    return kiln_cast(walk->batch, back->gradients[root], KILN_F32);
}

/* Distribute the gradients of the roots, which are in the order of take_inputs(). */
static unsigned list_next(struct walk *walk, struct back *back, kiln_tensor *outputs)
{
    unsigned root = 0, next = 0, n_outputs = 0;
    for (unsigned k = 0; k < walk->loop->n_states; k++)
        if (is_floating(walk->loop->state_types[k]))
            back->next[next++] = gradient_at(walk, back, root++);
    for (unsigned k = 0; k < walk->custom->call.n_inputs; k++) {
        if (walk->sums[k].id) {
            const kiln_tensor sum = add_state(walk, back, walk->sums[k]);
            back->next[next++] = kiln_add(walk->batch, sum, gradient_at(walk, back, root++));
        } else if (walk->pieces[k]) {
            outputs[n_outputs++] = gradient_at(walk, back, root++);
        }
    }
    return n_outputs;
}

static void keep(struct walk *walk, size_t j, const kiln_tensor *last, const kiln_tensor *stacked)
{
    unsigned next = 0, n_outputs = 0;
    for (unsigned k = 0; k < walk->loop->n_states; k++)
        if (is_floating(walk->loop->state_types[k]))
            walk->adjoint[k] = last[next++];
    for (unsigned k = 0; k < walk->custom->call.n_inputs; k++) {
        if (walk->sums[k].id)
            walk->sums[k] = last[next++];
        else if (walk->pieces[k])
            walk->pieces[k][j] = stacked[n_outputs++];
    }
}

static void walk_part(struct walk *walk, size_t j, kiln_tensor *values)
{
    const struct part part = part_at(walk, j);
    struct back back = {.n_roots = 0};
    kiln_tensor states[KILN__LOOP_STATES], last[MOST_ROOTS], outputs[KILN_CUSTOM_INPUTS];
    kiln_tensor stacked[KILN_CUSTOM_INPUTS];
    kiln_loop_options options = KILN_LOOP_INIT;
    run_part(walk, &part, walk->before + j * walk->loop->n_states, NULL, states);
    if (walk->batch->error.status)
        return;
    options.step = kiln_loop_step(walk->batch);
    back.given.number = number_of(walk, options.step, &part);
    take_inputs(walk, &back, &part, states);
    replay(walk, &back.given, values);
    record_loss(walk, &back, &part, values);
    if (!back.loss.id ||
        kiln_grad(walk->batch, back.loss, back.roots, back.n_roots, back.gradients))
        return;
    options.steps = part.count;
    options.output_count = list_next(walk, &back, outputs);
    options.outputs = outputs;
    options.state_count = back.n_states;
    options.states = back.states;
    options.next = back.next;
    options.element_count = back.n_elements;
    options.elements = back.elements;
    options.reverse = !walk->loop->reverse;
    if (!kiln_loop(walk->batch, &options, last, stacked))
        keep(walk, j, last, stacked);
}

/* ---- the loop as a whole ---- */

static bool is_nothing(const struct walk *walk, kiln_tensor x)
{
    const struct kiln__node *node = kiln__tensor_node(walk->batch, x);
    return node->kind == KILN__CONSTANT && node->value == 0;
}

static void take_flows(struct walk *walk, const kiln_tensor *flowed)
{
    const struct kiln__loop *loop = walk->loop;
    const kiln_tensor one = kiln_constant(walk->batch, KILN_F32, 1);
    const kiln_tensor zero = kiln_constant(walk->batch, KILN_F32, 0);
    const kiln_tensor number = kiln_iota(walk->batch, 1, &walk->elements, 0);
    walk->first = kiln_where(
        walk->batch, kiln_equal(walk->batch, number, kiln_constant(walk->batch, KILN_I32, 0)), one,
        zero);
    for (unsigned k = 0; k < loop->n_states; k++) {
        const bool single = loop->single_outputs >> k & 1;
        if (!flowed[k].id || is_nothing(walk, flowed[k]))
            walk->adjoint[k] = kiln_fill(walk->batch, KILN_F32, 1, &walk->elements, 0);
        else
            walk->adjoint[k] = flat(walk, flowed[k], false, single);
        if (single && walk->elements != 1 && flowed[k].id)
            walk->adjoint[k] = kiln_mul(walk->batch, walk->adjoint[k], walk->first);
    }
    for (unsigned k = 0; k < loop->n_outputs; k++) {
        const unsigned output = loop->n_states + k;
        if (flowed[output].id && !is_nothing(walk, flowed[output]))
            walk->flowed[k] = flat(walk, flowed[output], true, loop->single_outputs >> output & 1);
    }
}

/* Which input steps read, and how. */
static void find_roles(struct walk *walk)
{
    const struct kiln__loop *loop = walk->loop;
    bool read[KILN__LOOP_MOST_STEPS] = {false};
    for (unsigned i = 0; i < loop->n_steps; i++)
        for (unsigned k = 0; k < loop->steps[i].n_args; k++)
            read[loop->steps[i].args[k]] = true;
    for (unsigned k = 0; k < loop->n_states; k++)
        read[loop->next[k]] = true;
    for (unsigned k = 0; k < loop->n_outputs; k++)
        read[loop->outputs[k]] = true;
    for (unsigned i = 0; i < loop->n_steps; i++) {
        const struct kiln__loop_step *step = &loop->steps[i];
        if (step->kind == KILN__LOOP_ELEMENT)
            walk->role[step->index] = AS_ELEMENT;
        else if (step->kind == KILN__LOOP_SHARED && read[i] && !walk->role[step->index])
            walk->role[step->index] = AS_SHARED;
    }
}

static bool take_operands(struct walk *walk, const struct kiln__gradient *gradient,
                          const struct kiln__node *node, const kiln_tensor *inputs)
{
    bool done = true;
    for (unsigned k = 0; k < node->n_inputs; k++) {
        const bool single = walk->loop->single_inputs >> k & 1;
        const bool wanted = kiln__gradient_wants(gradient, node->input[k]) &&
                            is_floating(walk->custom->call.inputs[k]);
        walk->inputs[k] = flat(walk, inputs[k], walk->role[k] == AS_ELEMENT, single);
        if (wanted && walk->role[k] == AS_SHARED)
            walk->sums[k] = kiln_fill(walk->batch, KILN_F32, 1, &walk->elements, 0);
        if (wanted && walk->role[k] == AS_ELEMENT) {
            walk->pieces[k] = calloc(count_parts(walk), sizeof *walk->pieces[k]);
            done = done && walk->pieces[k];
        }
    }
    return done;
}

/* The states before each part. */
static void run_parts(struct walk *walk)
{
    const unsigned n = walk->loop->n_states;
    for (unsigned k = 0; k < n; k++) {
        const struct kiln__loop_step *step = &walk->loop->steps[walk->loop->initial[k]];
        walk->before[k] =
            whole(walk, step->kind == KILN__LOOP_CONSTANT ? constant(walk, step)
                                                          : walk->inputs[step->index]);
    }
    for (size_t j = 0; j + 1 < count_parts(walk) && !walk->batch->error.status; j++) {
        const struct part part = part_at(walk, j);
        run_part(walk, &part, walk->before + j * n, walk->before + (j + 1) * n, NULL);
    }
}

/* As what the kernel was given. */
static kiln_tensor fitted(struct walk *walk, unsigned k, kiln_tensor flows, kiln_tensor input)
{
    const bool single = walk->loop->single_inputs >> k & 1, rows = walk->role[k] == AS_ELEMENT;
    const struct kiln__shape shape = kiln__tensor_node(walk->batch, input)->shape;
    if (single && walk->elements != 1)
        flows = kiln_sum(walk->batch, flows, 1, (int[]){rows ? 1 : 0}, 0);
    return kiln_reshape(walk->batch, flows, shape.rank, shape.dims);
}

static void hand_on(struct walk *walk, const struct kiln__gradient *gradient,
                    const struct kiln__node *node, const kiln_tensor *inputs,
                    kiln_tensor *gradients)
{
    kiln_batch *batch = walk->batch;
    const size_t parts = count_parts(walk);
    for (unsigned k = 0; k < node->n_inputs && !batch->error.status; k++) {
        kiln_tensor flows = walk->sums[k];
        if (walk->pieces[k]) {
            for (size_t j = 0; walk->loop->reverse && j < parts / 2; j++) {
                const kiln_tensor piece = walk->pieces[k][j];
                walk->pieces[k][j] = walk->pieces[k][parts - 1 - j];
                walk->pieces[k][parts - 1 - j] = piece;
            }
            flows = parts > 1 ? kiln_concat(batch, parts, walk->pieces[k], 0) : walk->pieces[k][0];
        }
        for (unsigned i = 0; i < walk->loop->n_states; i++) {
            const struct kiln__loop_step *step = &walk->loop->steps[walk->loop->initial[i]];
            if (step->kind == KILN__LOOP_SHARED && step->index == k && is_floating(step->type) &&
                kiln__gradient_wants(gradient, node->input[k]))
                flows = flows.id ? kiln_add(batch, flows, walk->adjoint[i]) : walk->adjoint[i];
        }
        if (flows.id)
            gradients[k] = fitted(walk, k, flows, inputs[k]);
    }
}

/* All at once, or about as many parts as each has steps. */
static size_t choose_part(const struct walk *walk)
{
    const size_t row = walk->elements * walk->loop->n_states * sizeof(float);
    size_t part = 1;
    if (walk->steps <= MOST_BYTES / (row + 1))
        return walk->steps;
    while (part * part < walk->steps)
        part++;
    return part;
}

void kiln__adjoint_loop(struct kiln__gradient *gradient, const struct kiln__node *node,
                        const kiln_tensor *inputs, const kiln_tensor *flowed,
                        kiln_tensor *gradients)
{
    const struct kiln__custom *custom = node->custom.call;
    const struct kiln__custom_argument *counts =
        &custom->arguments[custom->call.n_inputs + custom->call.n_outputs];
    struct walk walk = {.batch = gradient->batch,
                        .custom = custom,
                        .loop = custom->loop,
                        .steps = (size_t)counts[0].integer,
                        .elements = (size_t)counts[1].integer};
    walk.part = choose_part(&walk);
    walk.before = calloc((count_parts(&walk) + 1) * walk.loop->n_states, sizeof *walk.before);
    kiln_tensor *values = calloc(walk.loop->n_steps, sizeof *values);
    find_roles(&walk);
    if (!walk.before || !values || !take_operands(&walk, gradient, node, inputs)) {
        kiln__fail(&gradient->batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record",
                   gradient->call);
    } else {
        take_flows(&walk, flowed);
        run_parts(&walk);
        for (size_t j = count_parts(&walk); j-- > 0 && !gradient->batch->error.status;)
            walk_part(&walk, j, values);
        hand_on(&walk, gradient, node, inputs, gradients);
    }
    for (unsigned k = 0; k < node->n_inputs; k++)
        free(walk.pieces[k]);
    free(walk.before);
    free(values);
}
