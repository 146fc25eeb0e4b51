/* SPDX-License-Identifier: Apache-2.0 */
/* Common text of generated kernels: the signature, expressions of rows with operands put in,
 * indices, guards. */
#include "codegen/emit.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- expressions ---- */

/* What a word of a row's expression becomes. */
static void emit_word(struct kiln__text *text, const char *word, size_t length,
                      const char *const operands[3], const struct kiln__type_name *type,
                      unsigned width)
{
    if (length == 1 && *word >= 'a' && *word <= 'c' && operands[*word - 'a'])
        kiln__text_add(text, "%s", operands[*word - 'a']);
    else if (length == 1 && *word == 'n' && operands[2])
        kiln__text_add(text, "%s", operands[2]);
    else if (length == 1 && *word == 'F')
        kiln__text_add(text, "%s", type->text);
    else if (length == 4 && !strncmp(word, "PICK", length))
        kiln__text_add(text, width > 1 ? "PICK_VECTOR" : "PICK");
    else if (kiln__emit_is_helper(word, length))
        kiln__text_add(text, "%.*s_%s", (int)length, word, type->text);
    else
        kiln__text_add_bytes(text, word, length);
}

static void emit_words(struct kiln__text *text, const char *expression,
                       const char *const operands[3], kiln_type type, unsigned width)
{
    struct kiln__type_name name = kiln__emit_type(type, width);
    for (const char *at = expression; *at;) {
        size_t length = 0;
        while (isalnum((unsigned char)at[length]) || at[length] == '_')
            length++;
        const char *close = !strncmp(at, "FN(", 3) ? strchr(at, ')') : NULL;
        if (close) {
            kiln__text_add(text, "kiln_%.*s_%s", (int)(close - at - 3), at + 3,
                           width > 1 ? "vec" : "float");
            length = (size_t)(close - at) + 1;
        } else if (length) {
            emit_word(text, at, length, operands, &name, width);
        } else {
            kiln__text_add_bytes(text, at, 1);
            length = 1;
        }
        at += length;
    }
}

/* Sums, differences and products of operands, nothing else. */
static bool may_overflow(const char *expression)
{
    return strpbrk(expression, "+-*") && strspn(expression, "abc +-*") == strlen(expression);
}

/* A zero of unsigned integers that no compiler knows to be one. Negations are differences from it:
 * NVIDIA's assembler (CUDA 13.0, sm_90) makes one instruction of min(min(a, -b), -c), VIMNMX3, and
 * loses the sign of b. kiln's launches have no offset. No wider than an element of `type`. */
static const char *zero_of(kiln_type type)
{
    return kiln_type_size(type) < sizeof(int32_t) ? "(uchar)get_global_offset(0) "
                                                  : "(uint)get_global_offset(0) ";
}

/* What a signed integer does beyond its range is left open in C, and compilers make use of that:
 * -a < -b becomes a > b, also for INT_MIN. As unsigned ones they wrap around. */
void kiln__emit_expression(struct kiln__text *text, const char *expression, const char *a,
                           const char *b, const char *c, kiln_type type, unsigned width)
{
    const char *const given[3] = {a, b, c}, *operands[3] = {a, b, c};
    const struct kiln__type_row *row = kiln__type_row(type);
    char wrapping[3][160];
    bool is_signed = !row->floating && row->lowest < 0;
    if (!is_signed || !may_overflow(expression)) {
        emit_words(text, expression, given, type, width);
        return;
    }
    struct kiln__type_name name = kiln__emit_type(type, width);
    for (unsigned k = 0; k < 3 && given[k]; k++) {
        snprintf(wrapping[k], sizeof wrapping[k], "as_u%s(%s)", name.text, given[k]);
        operands[k] = wrapping[k];
    }
    const bool promoted = row->bytes < sizeof(int32_t) && width == 1;
    kiln__text_add(text, promoted ? "as_%s((%s)(" : "as_%s(", name.text, row->sums);
    kiln__text_add(text, "%s", *expression == '-' ? zero_of(type) : "");
    emit_words(text, expression, operands, type, width);
    kiln__text_add(text, promoted ? "))" : ")");
}

/* ---- parameters ---- */

kiln_type kiln__emit_access_type(const struct kiln__emit *emit, size_t access)
{
    const struct kiln__node *nodes = emit->plan->fusion.graph.nodes.items;
    return nodes[emit->group->accesses.items[access].node].type;
}

kiln_type kiln__emit_store_type(const struct kiln__emit *emit, size_t store)
{
    return emit->group->steps.items[emit->group->stores.items[store].step].type;
}

static void emit_parameter(const struct kiln__emit *emit, struct kiln__text *text,
                           const struct kiln__argument *argument)
{
    static const char *const values[] = {
        [KILN__ARGUMENT_I32] = "int",
        [KILN__ARGUMENT_I64] = "long",
        [KILN__ARGUMENT_F32] = "float",
    };
    const char *index = emit->variant->wide ? "long" : "int";
    const struct kiln__phrase name = kiln__argument_name(argument);
    if (argument->kind == KILN__ARGUMENT_MEMORY)
        kiln__text_add(text, "global %s%s *%s%s", argument->constant ? "const " : "",
                       kiln__emit_memory_type(argument->type),
                       argument->restricted ? "restrict " : "", name.text);
    else
        kiln__text_add(text, "const %s %s",
                       argument->kind < KILN__ARGUMENT_I32 ? index : values[argument->kind],
                       name.text);
}

void kiln__emit_parameters(const struct kiln__emit *emit, struct kiln__text *text)
{
    const struct kiln__launch *launch = emit->launch;
    bool first = true;
    for (size_t i = 0; i < launch->arguments.count; i++) {
        const struct kiln__argument *argument = &launch->arguments.items[i];
        bool line = argument->kind == KILN__ARGUMENT_MEMORY;
        if (!argument->name)
            continue;
        kiln__text_add(text, first ? "" : line ? ",\n" : ", ");
        emit_parameter(emit, text, argument);
        first = false;
    }
    kiln__emit_check_parameters(emit, text);
}

void kiln__emit_section(const struct kiln__emit *emit, const char *define,
                        enum kiln__argument_section part, bool declares)
{
    struct kiln__text *text = kiln__code_line(emit->code, "#define %s ", define);
    for (size_t i = 0; i < emit->launch->arguments.count; i++) {
        const struct kiln__argument *argument = &emit->launch->arguments.items[i];
        if (!argument->name || argument->part != part)
            continue;
        kiln__text_add(text, declares ? ", " : ", %s", kiln__argument_name(argument).text);
        if (declares)
            emit_parameter(emit, text, argument);
    }
}

void kiln__emit_in_place_accesses(const struct kiln__emit *emit)
{
    kiln__emit_check_memories(emit);
    for (size_t k = 0; k < emit->group->accesses.count; k++) {
        if (!emit->variant->updates[k])
            continue;
        unsigned store = emit->variant->updates[k] - 1u;
        kiln__code_add(emit->code, "global const %s *x%zu = y%u",
                       kiln__emit_memory_type(kiln__emit_access_type(emit, k)), k, store);
        kiln__emit_check_alias(emit, k, store);
    }
}

/* ---- positions ---- */

void kiln__emit_coordinates(const struct kiln__emit *emit, const char *of, uint32_t first,
                            uint32_t end)
{
    if (end - first == 1) {
        kiln__code_add(emit->code, "const idx c_%u = %s", first, of);
        return;
    }
    kiln__code_add(emit->code, "idx rest%u = %s", first, of);
    for (uint32_t d = end; d-- > first + 1;)
        kiln__code_add(emit->code, "const idx c_%u = rest%u %% d%u\nrest%u /= d%u", d, first, d,
                       first, d);
    kiln__code_add(emit->code, "const idx c_%u = rest%u", first, first);
}

struct kiln__phrase kiln__emit_dot(size_t access, uint32_t first, uint32_t end)
{
    struct kiln__phrase dot = {""};
    for (uint32_t d = first; d < end; d++)
        dot = kiln__phrase("%s + c_%u * s%zu_%u", dot.text, d, access, d);
    return dot;
}

/* ---- steps ---- */

uint32_t kiln__emit_vector_dimension(const struct kiln__emit *emit)
{
    if (emit->along)
        return emit->along - 1u;
    uint8_t walk = emit->variant->kept_mapping;
    bool kept = walk == KILN__AXIS_VECTORS || walk == KILN__AXIS_ITEM ||
                (walk == KILN__AXIS_COLUMNS && !emit->variant->carried);
    return kept ? emit->variant->kept - 1u : emit->variant->rank - 1u;
}

struct kiln__elements kiln__emit_run(const struct kiln__emit *emit, kiln_type type, unsigned width,
                                     struct kiln__phrase pointer, struct kiln__phrase offset)
{
    enum kiln__fit fit = emit->variant->aligned   ? KILN__FIT_ALIGNED
                         : emit->variant->chunked ? KILN__FIT_LOOSE
                                                  : KILN__FIT_SPREAD;
    return (struct kiln__elements){.type = type,
                                   .width = width,
                                   .fit = fit,
                                   .checked = emit->checked,
                                   .pointer = pointer,
                                   .offset = offset};
}

static void emit_load(const struct kiln__emit *emit, struct kiln__text *text,
                      const struct kiln__step *step, unsigned width, const char *base,
                      const char *at)
{
    size_t k = step->index;
    uint8_t along = emit->variant->along[k];
    bool repeats = along == KILN__REPEATED;
    struct kiln__elements elements =
        kiln__emit_run(emit, step->type, repeats ? 1 : width, kiln__phrase("x%zu", k),
                       kiln__phrase("%s%zu + %s", base, k, at));
    if (along == KILN__ACROSS && (width > 1 || !emit->variant->chunked)) {
        kiln__text_add(text, emit->variant->chunked ? "t%zu[r]" : "t%zu[lane][r]", k);
        return;
    }
    if (repeats)
        kiln__text_add(text, "(%s)(", kiln__emit_type(elements.type, width).text);
    if (along != KILN__CONTIGUOUS && along != KILN__LINEAR)
        elements.offset = kiln__phrase("%s%zu", base, k);
    if (along == KILN__STRIDED || along == KILN__ACROSS) {
        elements.fit = KILN__FIT_STRIDED;
        elements.at = at;
        elements.stride = kiln__phrase("s%zu_%u", k, kiln__emit_vector_dimension(emit));
    }
    kiln__emit_load(text, &elements);
    kiln__text_add(text, repeats ? ")" : "");
}

struct kiln__value_name kiln__emit_value(char letter, unsigned step)
{
    struct kiln__value_name name;
    snprintf(name.text, sizeof name.text, "%c%u", letter ? letter : 'v', step & 0xffff);
    return name;
}

static void emit_step(const struct kiln__emit *emit, unsigned index, unsigned width,
                      const char *base, const char *at)
{
    const struct kiln__step *step = &emit->group->steps.items[index];
    struct kiln__type_name type = kiln__emit_type(step->type, width);
    struct kiln__value_name operand[3];
    for (unsigned k = 0; k < 3; k++)
        operand[k] = kiln__emit_value(emit->letter, step->args[k]);
    struct kiln__text *text = kiln__code_add(emit->code, "const %s %s = ", type.text,
                                             kiln__emit_value(emit->letter, index).text);
    switch ((enum kiln__step_kind)step->kind) {
    case KILN__STEP_LOAD: emit_load(emit, text, step, width, base, at); break;
    case KILN__STEP_NUMBER: kiln__emit_number(emit, text, step, width, base, at); break;
    case KILN__STEP_GATHER: kiln__emit_gathered(emit, text, step, width, base, at); break;
    case KILN__STEP_SCALAR: kiln__text_add(text, "(%s)(c%u)", type.text, step->index); break;
    case KILN__STEP_APPLY:
        kiln__emit_expression(text, kiln__elementwise_rows[step->op].device, operand[0].text,
                              operand[1].text, operand[2].text,
                              kiln__emit_operands_type(emit, step), width);
        break;
    case KILN__STEP_CONVERT:
        kiln__emit_convert(text, emit->group->steps.items[step->args[0]].type, step->type, width,
                           operand[0].text, step->op == KILN__CAST_SATURATED);
        break;
    case KILN__STEP_REDUCED: /* declared by the reduction itself */
    case KILN__STEP_SCANNED: break;
    case KILN__STEP_PRODUCT: kiln__text_add(text, "value"); break;
    }
}

void kiln__emit_steps(const struct kiln__emit *emit, unsigned from, unsigned to, unsigned width,
                      const char *base, const char *at)
{
    for (unsigned i = from; i < to; i++)
        emit_step(emit, i, width, base, at);
}

const char *kiln__emit_identity(const struct kiln__reduce_row *row, kiln_type accumulator)
{
    const struct kiln__type_row *type = kiln__type_row(accumulator);
    const char *const texts[] = {"0", "1", type->least_text, type->most_text};
    return texts[row->identity];
}
