/* SPDX-License-Identifier: Apache-2.0 */
/* Text of a kernel with a loop inside, from its program (graph/loop.h).
 *
 * kernel = prelude signature position (state = load)* shared* for (element* step* leave? next*)
 * store*
 *
 * in<k> and out<k> are memories, in<k>_offset and out<k>_offset where they begin, number<k>
 * constants, s<k> states, v<i> values of steps. A work-item takes a vector of elements; the last
 * one begins so that it ends with the elements, and computes some that its neighbour does as well.
 */
#include "codegen/codegen.h"

#include <string.h>

#include "codegen/emit.h"

struct writer {
    struct kiln__emit emit; /* over steps of a group that is made for the purpose */
    const struct kiln__custom *custom;
    const struct kiln__loop *loop;
    unsigned width;
};

/* ---- the program as steps of a group ---- */

static struct kiln__step step_of(const struct kiln__loop_step *from)
{
    static const enum kiln__step_kind kinds[] = {
        [KILN__LOOP_SHARED] = KILN__STEP_LOAD,     [KILN__LOOP_ELEMENT] = KILN__STEP_LOAD,
        [KILN__LOOP_STATE] = KILN__STEP_LOAD,      [KILN__LOOP_NUMBER] = KILN__STEP_LOAD,
        [KILN__LOOP_CONSTANT] = KILN__STEP_SCALAR, [KILN__LOOP_APPLY] = KILN__STEP_APPLY,
        [KILN__LOOP_CAST] = KILN__STEP_CONVERT,
    };
    struct kiln__step step = {.kind = kinds[from->kind],
                              .op = from->op,
                              .type = (kiln_type)from->type,
                              .n_args = from->n_args,
                              .index = from->index};
    memcpy(step.args, from->args, sizeof step.args);
    return step;
}

/* ---- memory ---- */

/* Element `at` of a memory, and of those behind it; or its only one. */
static struct kiln__elements elements_of(const struct writer *writer, const char *memory,
                                         unsigned k, kiln_type type, bool stepwise, bool single)
{
    const char *number = writer->loop->reverse ? "(steps - 1 - k)" : "k";
    struct kiln__phrase at = kiln__phrase("%s%u_offset", memory, k);
    if (stepwise)
        at = kiln__phrase(single ? "%s + %s" : "%s + %s * count", at.text, number);
    if (!single)
        at = kiln__phrase("%s + at", at.text);
    return kiln__emit_run(&writer->emit, type, single ? 1 : writer->width,
                          kiln__phrase("%s%u", memory, k), at);
}

static void load(const struct writer *writer, struct kiln__text *text, unsigned k, bool stepwise)
{
    const bool single = writer->loop->single_inputs >> k & 1;
    const kiln_type type = writer->custom->call.inputs[k];
    const struct kiln__elements elements = elements_of(writer, "in", k, type, stepwise, single);
    const bool repeats = single && writer->width > 1;
    if (repeats)
        kiln__text_add(text, "(%s)(", kiln__emit_type(type, writer->width).text);
    kiln__emit_load(text, &elements);
    kiln__text_add(text, repeats ? ")" : "");
}

static void store(const struct writer *writer, unsigned k, bool stepwise, const char *value)
{
    struct kiln__code *code = writer->emit.code;
    const bool single = writer->loop->single_outputs >> k & 1;
    const struct kiln__elements elements =
        elements_of(writer, "out", k, writer->custom->call.outputs[k].type, stepwise, single);
    if (single)
        kiln__code_if(code, "at == 0");
    kiln__emit_store(code, &elements,
                     kiln__phrase(single && writer->width > 1 ? "%s.s0" : "%s", value).text, false);
    if (single)
        kiln__code_end(code);
}

/* ---- the kernel ---- */

static void write_signature(const struct writer *writer)
{
    const struct kiln__custom_call *call = &writer->custom->call;
    struct kiln__text *text =
        kiln__code_function(writer->emit.code, "kernel void %s(", writer->custom->kernel);
    for (unsigned k = 0; k < call->n_inputs; k++)
        kiln__text_add(text, "global const %s *restrict in%u, const long in%u_offset,\n    ",
                       kiln__emit_memory_type(call->inputs[k]), k, k);
    for (unsigned k = 0; k < call->n_outputs; k++)
        kiln__text_add(text, "global %s *restrict out%u, const long out%u_offset,\n    ",
                       kiln__emit_memory_type(call->outputs[k].type), k, k);
    kiln__text_add(text, "const long steps, const long count");
    for (unsigned k = 0; k < writer->loop->n_constants; k++) {
        static const char *const types[] = {
            [KILN__CUSTOM_I32] = "int", [KILN__CUSTOM_I64] = "long", [KILN__CUSTOM_F32] = "float"};
        const unsigned at = call->n_inputs + call->n_outputs + 2 + k;
        kiln__text_add(text, ", const %s number%u", types[writer->custom->arguments[at].kind], k);
    }
    kiln__text_add(text, ")");
}

static void write_step(const struct writer *writer, unsigned i)
{
    const struct kiln__loop_step *step = &writer->loop->steps[i];
    const struct kiln__type_name name = kiln__emit_type((kiln_type)step->type, writer->width);
    struct kiln__text *text;
    switch ((enum kiln__loop_kind)step->kind) {
    case KILN__LOOP_SHARED:
    case KILN__LOOP_ELEMENT:
        text = kiln__code_add(writer->emit.code, "const %s v%u = ", name.text, i);
        load(writer, text, step->index, step->kind == KILN__LOOP_ELEMENT);
        break;
    case KILN__LOOP_STATE:
        kiln__code_add(writer->emit.code, "const %s v%u = s%u", name.text, i, step->index);
        break;
    case KILN__LOOP_NUMBER:
        kiln__code_add(writer->emit.code, "const %s v%u = (%s)((int)%s)", name.text, i, name.text,
                       writer->loop->reverse ? "(steps - 1 - k)" : "k");
        break;
    case KILN__LOOP_CONSTANT:
        kiln__code_add(writer->emit.code, "const %s v%u = (%s)(number%u)", name.text, i, name.text,
                       step->index);
        break;
    case KILN__LOOP_APPLY:
    case KILN__LOOP_CAST: kiln__emit_steps(&writer->emit, i, i + 1, writer->width, "", ""); break;
    }
}

static bool is_shared(const struct writer *writer, unsigned i)
{
    const uint8_t kind = writer->loop->steps[i].kind;
    return kind == KILN__LOOP_SHARED || kind == KILN__LOOP_CONSTANT;
}

static void write_steps(const struct writer *writer, bool shared)
{
    for (unsigned i = 0; i < writer->loop->n_steps; i++)
        if (is_shared(writer, i) == shared)
            write_step(writer, i);
}

/* Once the loop has ended for all elements of the vector. */
static void write_leave(const struct writer *writer)
{
    const struct kiln__loop *loop = writer->loop;
    if (loop->until == KILN__LOOP_NONE)
        return;
    if (writer->width > 1)
        kiln__code_leave(
            writer->emit.code, "break", "all(v%u != (%s)(0))", loop->until,
            kiln__emit_type((kiln_type)loop->steps[loop->until].type, writer->width).text);
    else
        kiln__code_leave(writer->emit.code, "break", "v%u", loop->until);
}

static void write_loop(const struct writer *writer)
{
    const struct kiln__loop *loop = writer->loop;
    struct kiln__code *code = writer->emit.code;
    kiln__code_for(code, "long k = 0; k < steps; k++");
    write_steps(writer, false);
    write_leave(writer);
    for (unsigned k = 0; k < loop->n_outputs; k++)
        store(writer, loop->n_states + k, true, kiln__phrase("v%u", loop->outputs[k]).text);
    for (unsigned k = 0; k < loop->n_states; k++)
        kiln__code_add(code, "s%u = v%u", k, loop->next[k]);
    kiln__code_end(code);
}

static void write_kernel(const struct writer *writer)
{
    const struct kiln__loop *loop = writer->loop;
    struct kiln__code *code = writer->emit.code;
    write_signature(writer);
    kiln__code_add(code, "long at = (long)get_global_id(0) * %u", writer->width);
    kiln__code_leave(code, "return", "at >= count");
    if (writer->width > 1)
        kiln__code_add(code, "at = min(at, count - %u)", writer->width);
    write_steps(writer, true);
    for (unsigned k = 0; k < loop->n_states; k++)
        kiln__code_add(code, "%s s%u = v%u",
                       kiln__emit_type((kiln_type)loop->state_types[k], writer->width).text, k,
                       loop->initial[k]);
    write_loop(writer);
    for (unsigned k = 0; k < loop->n_states; k++)
        store(writer, k, false, kiln__phrase("s%u", k).text);
    kiln__code_end(code);
}

void kiln__emit_loop(const struct kiln__emit *emit, const struct kiln__custom *custom)
{
    struct kiln__step steps[KILN__LOOP_MOST_STEPS];
    struct kiln__group group = {.kind = KILN__GROUP_CUSTOM};
    struct writer writer = {
        .emit = *emit, .custom = custom, .loop = custom->loop, .width = emit->variant->vector};
    for (unsigned i = 0; i < custom->loop->n_steps; i++)
        steps[i] = step_of(&custom->loop->steps[i]);
    group.steps.items = steps;
    group.steps.count = custom->loop->n_steps;
    writer.emit.group = &group;
    kiln__emit_prelude(&writer.emit);
    write_kernel(&writer);
}
