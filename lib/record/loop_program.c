/* SPDX-License-Identifier: Apache-2.0 */
/* A step of elementwise operations becomes a program (graph/loop.h), and the loop a call of a
 * kernel that runs it. All that varies has as many elements, or one: then element i of everything
 * is made of elements i alone. */
#include "record/loop_call.h"

#include <kiln/movement.h>

#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"

struct builder {
    struct kiln__loop_call *loop;
    size_t elements;
    uint16_t *step_of; /* per node of the batch before the loop */
    struct kiln__loop *program;
    struct kiln__custom_argument constants[KILN__LOOP_CONSTANTS];
    unsigned n_inputs;
    uint32_t inputs[KILN_CUSTOM_INPUTS];
    bool failed;
};

static const struct kiln__node *node_at(const struct builder *builder, uint32_t index)
{
    return &builder->loop->batch->graph.nodes.items[index];
}

/* ---- steps ---- */

static uint16_t add(struct builder *builder, struct kiln__loop_step step)
{
    struct kiln__loop *program = builder->program;
    if (program->n_steps == KILN__LOOP_MOST_STEPS) {
        builder->failed = true;
        return 0;
    }
    program->steps[program->n_steps] = step;
    return program->n_steps++;
}

static uint16_t add_input(struct builder *builder, enum kiln__loop_kind kind, uint32_t node)
{
    const struct kiln__node *input = node_at(builder, node);
    if (builder->n_inputs == KILN_CUSTOM_INPUTS) {
        builder->failed = true;
        return 0;
    }
    const unsigned number = builder->n_inputs++;
    const size_t steps = kind == KILN__LOOP_ELEMENT ? builder->loop->options.steps : 1;
    builder->inputs[number] = node;
    if (kiln__node_count(input) == steps)
        builder->program->single_inputs |= 1u << number;
    return add(builder, (struct kiln__loop_step){.kind = (uint8_t)kind,
                                                 .type = (uint8_t)input->type,
                                                 .index = (uint16_t)number});
}

/* As an argument: a bool and bytes as an int. */
static struct kiln__custom_argument argument_of(const struct kiln__node *constant)
{
    struct kiln__custom_argument argument = {.kind = KILN__CUSTOM_F32};
    if (kiln__node_is_floating(constant)) {
        argument.real = (float)constant->value;
        return argument;
    }
    argument.kind = constant->type == KILN_I64 ? KILN__CUSTOM_I64 : KILN__CUSTOM_I32;
    argument.integer = kiln__value_integer(constant->type, constant->value);
    return argument;
}

static uint16_t add_constant(struct builder *builder, const struct kiln__node *constant)
{
    struct kiln__loop *program = builder->program;
    if (program->n_constants == KILN__LOOP_CONSTANTS) {
        builder->failed = true;
        return 0;
    }
    builder->constants[program->n_constants] = argument_of(constant);
    return add(builder, (struct kiln__loop_step){.kind = KILN__LOOP_CONSTANT,
                                                 .type = (uint8_t)constant->type,
                                                 .index = program->n_constants++});
}

/* The one number that a tensor is made of, or the tensor itself. */
static uint32_t source_of(const struct builder *builder, uint32_t index)
{
    uint32_t source = index;
    while (kiln__node_is_movement(node_at(builder, source)))
        source = node_at(builder, source)->input[0];
    const struct kiln__node *node = node_at(builder, source);
    return node->kind == KILN__CONSTANT || kiln__node_count(node) == 1 ? source : index;
}

/* What is the same in all steps, as an operand of something of `shape`. */
static uint16_t shared(struct builder *builder, uint32_t index, const struct kiln__shape *shape)
{
    if (builder->step_of[index] != KILN__LOOP_NONE)
        return builder->step_of[index];
    const uint32_t source = source_of(builder, index);
    const struct kiln__node *node = node_at(builder, source);
    const size_t count = kiln__node_count(node);
    if (node->kind == KILN__CONSTANT)
        return builder->step_of[index] = add_constant(builder, node);
    if (kiln__node_has_blocks(node)) {
        builder->failed = true;
        return 0;
    }
    if (count == 1 || count == builder->elements)
        return builder->step_of[index] = add_input(builder, KILN__LOOP_SHARED, source);
    const kiln_tensor whole =
        kiln_broadcast(builder->loop->batch, kiln__batch_tensor(builder->loop->batch, source),
                       shape->rank, shape->dims);
    if (!whole.id) {
        builder->failed = true;
        return 0;
    }
    return add_input(builder, KILN__LOOP_SHARED, kiln__tensor_index(whole));
}

static uint16_t operand(struct builder *builder, const struct kiln__node *of, unsigned k)
{
    const uint32_t input = of->input[k];
    return builder->loop->varies[input] ? builder->step_of[input]
                                        : shared(builder, input, &of->shape);
}

/* Whether a movement shows each element where it is, or one everywhere. */
static bool keeps_positions(const struct builder *builder, const struct kiln__node *node)
{
    const struct kiln__node *from = node_at(builder, node->input[0]);
    return node->kind == KILN__RESHAPE || kiln__node_count(from) == 1 ||
           kiln__view_is_identity(&node->view, &node->shape, &from->shape);
}

static void add_node(struct builder *builder, uint32_t index)
{
    struct kiln__node node; /* recording moves nodes */
    kiln__node_copy(&node, node_at(builder, index));
    struct kiln__loop_step step = {.kind = KILN__LOOP_APPLY,
                                   .op = node.op,
                                   .type = (uint8_t)node.type,
                                   .n_args = node.n_inputs};
    if (kiln__node_is_movement(&node) && keeps_positions(builder, &node)) {
        builder->step_of[index] = builder->step_of[node.input[0]];
        return;
    }
    if (!kiln__node_is_pointwise(&node)) {
        builder->failed = true;
        return;
    }
    if (node.kind == KILN__CAST)
        step.kind = KILN__LOOP_CAST;
    for (unsigned k = 0; k < node.n_inputs && !builder->failed; k++)
        step.args[k] = operand(builder, &node, k);
    builder->step_of[index] = add(builder, step);
}

/* ---- the step as a whole ---- */

static void add_placeholders(struct builder *builder)
{
    const kiln_loop_options *given = &builder->loop->options;
    struct kiln__loop *program = builder->program;
    for (size_t k = 0; k < given->state_count; k++) {
        const uint32_t state = kiln__tensor_index(given->states[k]);
        struct kiln__shape shape = node_at(builder, state)->shape;
        program->initial[k] = shared(builder, kiln__loop_initial(builder->loop, k), &shape);
        program->state_types[k] = (uint8_t)node_at(builder, state)->type;
        builder->step_of[state] =
            add(builder, (struct kiln__loop_step){.kind = KILN__LOOP_STATE,
                                                  .type = program->state_types[k],
                                                  .index = (uint16_t)k});
    }
    for (size_t k = 0; k < given->element_count; k++) {
        const uint32_t element = kiln__tensor_index(given->elements[k]);
        if (!builder->loop->needed[element])
            continue;
        builder->step_of[element] =
            add_input(builder, KILN__LOOP_ELEMENT, node_at(builder, element)->input[0]);
    }
    if (given->step.id)
        builder->step_of[kiln__tensor_index(given->step)] =
            add(builder, (struct kiln__loop_step){.kind = KILN__LOOP_NUMBER, .type = KILN_I32});
}

static uint16_t cast(struct builder *builder, uint16_t step, kiln_type type)
{
    if (builder->program->steps[step].type == type)
        return step;
    return add(builder,
               (struct kiln__loop_step){
                   .kind = KILN__LOOP_CAST, .type = (uint8_t)type, .n_args = 1, .args = {step}});
}

static uint16_t computed(struct builder *builder, uint16_t step)
{
    return cast(builder, step,
                kiln__type_row((kiln_type)builder->program->steps[step].type)->computed);
}

/* What the step gives for a tensor, which need not vary. */
static uint16_t given_step(struct builder *builder, kiln_tensor tensor)
{
    const uint32_t index = kiln__tensor_index(tensor);
    const struct kiln__shape shape = node_at(builder, index)->shape;
    return builder->loop->varies[index] ? builder->step_of[index] : shared(builder, index, &shape);
}

/* Where the loop has ended the state stays. */
static uint16_t unless_ended(struct builder *builder, size_t k, uint16_t next)
{
    const struct kiln__loop *program = builder->program;
    const kiln_type type = (kiln_type)program->state_types[k];
    const uint16_t state = builder->step_of[kiln__tensor_index(builder->loop->options.states[k])];
    const struct kiln__loop_step chosen = {
        .kind = KILN__LOOP_APPLY,
        .op = KILN__OP_where,
        .type = (uint8_t)kiln__type_row(type)->computed,
        .n_args = 3,
        .args = {program->until, computed(builder, state), computed(builder, next)}};
    return cast(builder, add(builder, chosen), type);
}

static void add_results(struct builder *builder)
{
    const kiln_loop_options *given = &builder->loop->options;
    struct kiln__loop *program = builder->program;
    program->until = KILN__LOOP_NONE;
    if (given->until.id)
        program->until = computed(builder, given_step(builder, given->until));
    for (size_t k = 0; k < given->state_count && !builder->failed; k++) {
        program->next[k] = given_step(builder, given->next[k]);
        if (given->until.id)
            program->next[k] = unless_ended(builder, k, program->next[k]);
    }
    for (size_t k = 0; k < given->output_count && !builder->failed; k++)
        program->outputs[k] = given_step(builder, given->outputs[k]);
}

/* All that varies has as many elements, or one. */
static bool count_elements(struct builder *builder)
{
    const struct kiln__loop_call *loop = builder->loop;
    size_t all = 0;
    for (uint32_t i = 0; i < loop->count; i++)
        if (loop->varies[i] && loop->needed[i] && kiln__node_count(node_at(builder, i)) > all)
            all = kiln__node_count(node_at(builder, i));
    for (size_t k = 0; k < loop->options.state_count; k++)
        if (kiln__node_count(node_at(builder, kiln__loop_initial(loop, k))) > all)
            all = kiln__node_count(node_at(builder, kiln__loop_initial(loop, k)));
    builder->elements = all;
    for (uint32_t i = 0; i < loop->count; i++) {
        const size_t count = kiln__node_count(node_at(builder, i));
        if (loop->varies[i] && loop->needed[i] && count != all && count != 1)
            return false;
    }
    for (size_t k = 0; k < loop->options.output_count; k++) {
        const size_t count =
            kiln__node_count(node_at(builder, kiln__tensor_index(loop->options.outputs[k])));
        if (count != all && count != 1)
            return false;
    }
    for (size_t k = 0; k < loop->options.state_count; k++) {
        const size_t count = kiln__node_count(node_at(builder, kiln__loop_initial(loop, k)));
        if (count != all && count != 1)
            return false;
    }
    return true;
}

static bool build(struct builder *builder)
{
    const struct kiln__loop_call *loop = builder->loop;
    const kiln_loop_options *given = &loop->options;
    if (given->state_count + given->output_count > KILN_CUSTOM_OUTPUTS || !count_elements(builder))
        return false;
    builder->program->n_states = (uint8_t)given->state_count;
    builder->program->n_outputs = (uint8_t)given->output_count;
    builder->program->reverse = given->reverse != 0;
    memset(builder->step_of, 0xff, loop->count * sizeof *builder->step_of);
    add_placeholders(builder);
    for (uint32_t i = 0; i < loop->count && !builder->failed; i++)
        if (loop->varies[i] && loop->needed[i] && builder->step_of[i] == KILN__LOOP_NONE)
            add_node(builder, i);
    if (!builder->failed)
        add_results(builder);
    return !builder->failed;
}

/* ---- the call ---- */

static bool add_output(struct builder *builder, struct kiln__custom_call *call, kiln_type type,
                       const struct kiln__shape *shape, bool single)
{
    if (single)
        builder->program->single_outputs |= 1u << call->n_outputs;
    call->outputs[call->n_outputs++] = (struct kiln__custom_output){.type = type, .shape = *shape};
    return true;
}

static bool describe(struct builder *builder, struct kiln__custom_call *call)
{
    const struct kiln__loop_call *loop = builder->loop;
    bool done = true;
    call->n_inputs = builder->n_inputs;
    for (unsigned k = 0; k < builder->n_inputs; k++)
        call->inputs[k] = node_at(builder, builder->inputs[k])->type;
    for (size_t k = 0; k < loop->options.state_count; k++) {
        const struct kiln__node *state =
            node_at(builder, kiln__tensor_index(loop->options.states[k]));
        done = done &&
               add_output(builder, call, state->type, &state->shape, kiln__node_count(state) == 1);
    }
    for (size_t k = 0; k < loop->options.output_count; k++) {
        const struct kiln__node *output =
            node_at(builder, kiln__tensor_index(loop->options.outputs[k]));
        struct kiln__shape shape = {0};
        done = done && kiln__loop_stacked(loop, k, &shape) &&
               add_output(builder, call, output->type, &shape, kiln__node_count(output) == 1);
    }
    call->global[0] = builder->elements ? builder->elements : 1;
    call->global[1] = call->global[2] = 1;
    return done;
}

static unsigned list_arguments(const struct builder *builder, const struct kiln__custom_call *call,
                               struct kiln__custom_argument *arguments)
{
    unsigned count = 0;
    for (unsigned k = 0; k < call->n_inputs; k++)
        arguments[count++] =
            (struct kiln__custom_argument){.kind = KILN__CUSTOM_INPUT, .number = (uint8_t)k};
    for (unsigned k = 0; k < call->n_outputs; k++)
        arguments[count++] =
            (struct kiln__custom_argument){.kind = KILN__CUSTOM_OUTPUT, .number = (uint8_t)k};
    arguments[count++] = (struct kiln__custom_argument){
        .kind = KILN__CUSTOM_I64, .integer = (int64_t)builder->loop->options.steps};
    arguments[count++] = (struct kiln__custom_argument){.kind = KILN__CUSTOM_I64,
                                                        .integer = (int64_t)builder->elements};
    memcpy(arguments + count, builder->constants,
           builder->program->n_constants * sizeof *arguments);
    return count + builder->program->n_constants;
}

static void record_call(struct builder *builder, kiln_tensor *last, kiln_tensor *stacked)
{
    const struct kiln__loop_call *loop = builder->loop;
    struct kiln__custom_argument
        arguments[KILN_CUSTOM_INPUTS + KILN_CUSTOM_OUTPUTS + 2 + KILN__LOOP_CONSTANTS];
    struct kiln__custom custom;
    memset(&custom, 0, sizeof custom); /* compared as bytes */
    if (!describe(builder, &custom.call))
        return;
    custom.call.n_arguments = list_arguments(builder, &custom.call, arguments);
    custom.arguments = arguments;
    custom.kernel = KILN__CUSTOM_PREFIX "loop";
    custom.text = "";
    custom.loop = builder->program;
    const struct kiln__custom *found = kiln__custom_find(&custom);
    if (!found) {
        kiln__fail(&loop->batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record",
                   loop->call);
        return;
    }
    struct kiln__node node = {.kind = KILN__CUSTOM, .n_inputs = (uint8_t)builder->n_inputs};
    memcpy(node.input, builder->inputs, builder->n_inputs * sizeof *node.input);
    for (unsigned k = 0; k < found->call.n_outputs; k++) {
        node.type = found->call.outputs[k].type;
        node.shape = found->call.outputs[k].shape;
        node.custom = (struct kiln__custom_node){.call = found, .output = k};
        const kiln_tensor output = kiln__batch_record(loop->batch, &node, loop->call);
        if (k < loop->options.state_count)
            last[k] = output;
        else
            stacked[k - loop->options.state_count] = output;
    }
    kiln__custom_release(found);
}

bool kiln__loop_in_kernel(struct kiln__loop_call *loop, kiln_tensor *last, kiln_tensor *stacked)
{
    struct builder builder = {.loop = loop};
    builder.program =
        calloc(1, sizeof *builder.program + KILN__LOOP_MOST_STEPS * sizeof *builder.program->steps);
    builder.step_of = malloc((loop->count + 1) * sizeof *builder.step_of);
    bool built = false;
    if (!builder.program || !builder.step_of)
        kiln__fail(&loop->batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record",
                   loop->call);
    else
        built = build(&builder);
    if (built)
        record_call(&builder, last, stacked);
    free(builder.program);
    free(builder.step_of);
    return built;
}
