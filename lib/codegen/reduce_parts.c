/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "codegen/reduce.h"

const struct kiln__reduce_row *kiln__emit_row(const struct kiln__emit *emit)
{
    return &kiln__reduce_rows[emit->group->steps.items[emit->group->reduced_step].op];
}

kiln_type kiln__emit_accumulator(const struct kiln__emit *emit)
{
    return kiln__reduce_accumulator(kiln__emit_row(emit), (kiln_type)emit->form->value_type);
}

static void emit_partial_parameters(const struct kiln__emit *emit)
{
    const char *constant = emit->form->stage == KILN__STAGE_FINAL ? "const " : "";
    const char *type = kiln__type_row(kiln__emit_accumulator(emit))->device;
    if (emit->form->stage == KILN__STAGE_WHOLE)
        return;
    kiln__text_add(emit->text, ",\n    global %s%s *restrict partial, const %s partial_offset",
                   constant, type, emit->index);
    if (kiln__emit_row(emit)->indexed)
        kiln__text_add(
            emit->text,
            ",\n    global %sint *restrict partial_position, const %s partial_position_offset",
            constant, emit->index);
}

void kiln__emit_reduce_signature(const struct kiln__emit *emit, const char *parameter)
{
    const char *index = emit->index;
    if (emit->form->chunked)
        kiln__text_add(emit->text, "kernel __attribute__((reqd_work_group_size(1, 1, 1)))\n");
    else
        kiln__text_add(emit->text, "kernel __attribute__((reqd_work_group_size(%u, 1, 1)))\n",
                       1u << emit->form->work_group);
    kiln__text_add(emit->text,
                   "void kiln_reduce(const %s n, const %s reduced, const %s %s,\n"
                   "    const %s segments, const %s length",
                   index, index, index, parameter, index, index);
    for (uint32_t d = 1; d < emit->form->rank; d++)
        if (d != emit->form->kept)
            kiln__text_add(emit->text, ", const %s d%u", index, d);
    kiln__emit_accesses(emit);
    emit_partial_parameters(emit);
    if (emit->form->stage != KILN__STAGE_PARTIAL)
        kiln__emit_stores(emit);
    kiln__emit_scalars(emit);
    kiln__text_add(emit->text, ")\n{\n");
    kiln__emit_updated(emit);
}

void kiln__emit_accumulators(const struct kiln__emit *emit, const char *indent, unsigned first,
                             unsigned count, unsigned width)
{
    struct kiln__type_name type = kiln__emit_type(kiln__emit_accumulator(emit), width);
    struct kiln__type_name position = kiln__emit_type(KILN_I32, width);
    for (unsigned u = first; u < first + count; u++) {
        kiln__text_add(emit->text, "%s%s a%u = (%s)(%s);\n", indent, type.text, u, type.text,
                       kiln__emit_identity(kiln__emit_row(emit), kiln__emit_accumulator(emit)));
        if (kiln__emit_row(emit)->indexed)
            kiln__text_add(emit->text, "%s%s j%u = (%s)(" KILN__NO_POSITION ");\n", indent,
                           position.text, u, position.text);
    }
}

void kiln__emit_result_bases(const struct kiln__emit *emit, const char *indent, const char *p)
{
    kiln__emit_coordinates(emit, indent, p, 0, emit->form->kept);
    for (size_t k = 0; k < emit->group->accesses.count; k++) {
        kiln__text_add(emit->text, "%sconst %s h%zu = o%zu%s;\n", indent, emit->index, k, k,
                       kiln__emit_dot(k, 0, emit->form->kept).text);
    }
}

void kiln__emit_reduced_bases(const struct kiln__emit *emit, const char *indent, const char *r)
{
    kiln__emit_coordinates(emit, indent, r, emit->form->kept, emit->form->rank);
    for (size_t k = 0; k < emit->group->accesses.count; k++) {
        if (!kiln__emit_loads(emit, k, 0, emit->group->reduced_step))
            continue;
        kiln__text_add(emit->text, "%sconst %s b%zu = h%zu%s;\n", indent, emit->index, k, k,
                       kiln__emit_dot(k, emit->form->kept, emit->form->rank).text);
    }
}

static void emit_choose(const struct kiln__emit *emit, const char *indent, unsigned u,
                        unsigned width, const char *value, const char *position)
{
    char a[16];
    kiln_type type = kiln__emit_accumulator(emit);
    snprintf(a, sizeof a, "a%u", u);
    if (width == 1)
        kiln__text_add(emit->text, "%sif (", indent);
    else
        kiln__text_add(emit->text, "%sconst %s%u chosen = ", indent, kiln__type_row(type)->mask,
                       width);
    kiln__emit_expression(emit, kiln__emit_row(emit)->combine, a, value, NULL, type, width);
    if (width == 1)
        kiln__text_add(emit->text, ") {\n%s    a%u = %s;\n%s    j%u = (int)(%s);\n%s}\n", indent, u,
                       value, indent, u, position, indent);
    else
        kiln__text_add(emit->text,
                       ";\n%sa%u = select(a%u, %s, chosen);\n"
                       "%sj%u = select(j%u, %s, convert_int%u(chosen));\n",
                       indent, u, u, value, indent, u, u, position, width);
}

/* Take the value of the reduced step's argument, at position `position`, into accumulator `u`. */
static void emit_combine(const struct kiln__emit *emit, const char *indent, unsigned u,
                         unsigned width, const char *position)
{
    const struct kiln__step *reduced = &emit->group->steps.items[emit->group->reduced_step];
    kiln_type type = kiln__emit_accumulator(emit);
    char value[48], a[16];
    snprintf(a, sizeof a, "a%u", u);
    if (type == (kiln_type)emit->form->value_type)
        snprintf(value, sizeof value, "v%u", reduced->args[0]);
    else
        snprintf(value, sizeof value, "convert_%s(v%u)", kiln__emit_type(type, width).text,
                 reduced->args[0]);
    if (kiln__emit_row(emit)->indexed) {
        emit_choose(emit, indent, u, width, value, position);
        return;
    }
    kiln__text_add(emit->text, "%s%s = ", indent, a);
    kiln__emit_expression(emit, kiln__emit_row(emit)->combine, a, value, NULL, type, width);
    kiln__text_add(emit->text, ";\n");
}

void kiln__emit_merge(const struct kiln__emit *emit, const char *indent, const char *into,
                      const char *into_position, const char *from, const char *from_position)
{
    const struct kiln__reduce_row *row = kiln__emit_row(emit);
    kiln_type type = kiln__emit_accumulator(emit);
    if (!row->indexed) {
        kiln__text_add(emit->text, "%s%s = ", indent, into);
        kiln__emit_expression(emit, row->combine, into, from, NULL, type, 1);
        kiln__text_add(emit->text, ";\n");
        return;
    }
    kiln__text_add(emit->text, "%sif ((", indent);
    kiln__emit_expression(emit, row->combine, into, from, NULL, type, 1);
    kiln__text_add(emit->text, ") || (!(");
    kiln__emit_expression(emit, row->combine, from, into, NULL, type, 1);
    kiln__text_add(emit->text, ") && %s < %s)) {\n%s    %s = %s;\n%s    %s = %s;\n%s}\n",
                   from_position, into_position, indent, into, from, indent, into_position,
                   from_position, indent);
}

static void store(const struct kiln__emit *emit, kiln_type type, unsigned width,
                  const char *pointer, const char *offset, const char *value)
{
    struct kiln__elements elements = {.type = type,
                                      .width = width,
                                      .fit = kiln__emit_fit(emit),
                                      .pointer = pointer,
                                      .offset = offset};
    kiln__emit_store(emit->text, &elements, value, false);
}

/* Results of one segment, those of neighbouring results beside each other. */
static void emit_partial_store(const struct kiln__emit *emit, unsigned width, const char *a,
                               const char *j, const char *place)
{
    store(emit, kiln__emit_accumulator(emit), width, "partial",
          kiln__phrase("partial_offset + segment * n + %s", place).text, a);
    if (kiln__emit_row(emit)->indexed)
        store(emit, KILN_I32, width, "partial_position",
              kiln__phrase("partial_position_offset + segment * n + %s", place).text, j);
}

void kiln__emit_finish(const struct kiln__emit *emit, const char *indent, unsigned width,
                       const char *a, const char *j, const char *place, const char *at)
{
    const struct kiln__group *group = emit->group;
    const struct kiln__reduce_row *row = kiln__emit_row(emit);
    if (emit->form->stage == KILN__STAGE_PARTIAL) {
        emit_partial_store(emit, width, a, j, place);
        return;
    }
    kiln_type type = (kiln_type)group->steps.items[group->reduced_step].type;
    struct kiln__type_name name = kiln__emit_type(type, width);
    char count[64];
    snprintf(count, sizeof count, "((%s)((%s)reduced))", name.text, kiln__type_row(type)->device);
    kiln__text_add(emit->text, "%sconst %s v%u = ", indent, name.text, group->reduced_step);
    if (row->indexed)
        kiln__text_add(emit->text, "%s", j);
    else
        kiln__emit_expression(emit, row->finish, a, NULL, count, type, width);
    kiln__text_add(emit->text, ";\n");
    kiln__emit_steps(emit, indent, group->reduced_step + 1u, (unsigned)group->steps.count, width,
                     "h", at);
    for (size_t k = 0; k < group->stores.count; k++) {
        uint16_t step = group->stores.items[k].step;
        store(emit, (kiln_type)group->steps.items[step].type, width, kiln__phrase("y%zu", k).text,
              kiln__phrase("q%zu + %s", k, place).text, kiln__phrase("v%u", step).text);
    }
}

/* ---- vectors ---- */

bool kiln__emit_is_short(const struct kiln__emit *emit)
{
    return emit->group->reduced_step <= 6;
}

unsigned kiln__emit_unroll(const struct kiln__emit *emit)
{
    return !kiln__emit_row(emit)->indexed && kiln__emit_is_short(emit) ? 4 : 1;
}

void kiln__emit_element(const struct kiln__emit *emit, const char *indent, unsigned u,
                        unsigned width, const char *at, const char *position)
{
    kiln__emit_steps(emit, indent, 0, emit->group->reduced_step, width, "b", at);
    emit_combine(emit, indent, u, width, position);
}

void kiln__emit_positions(char *text, size_t size, const char *from, unsigned width)
{
    int used = width > 1
                   ? snprintf(text, size, "((int%u)((int)(%s)) + (int%u)(", width, from, width)
                   : snprintf(text, size, "(%s", from);
    for (unsigned lane = 0; width > 1 && lane < width; lane++)
        used += snprintf(text + used, size - (size_t)used, "%s%u", lane ? ", " : "", lane);
    snprintf(text + used, size - (size_t)used, width > 1 ? "))" : ")");
}

static void fold_indexed(const struct kiln__emit *emit, const char *indent)
{
    unsigned width = emit->form->vector;
    char inner[32];
    snprintf(inner, sizeof inner, "%s    ", indent);
    kiln__text_add(emit->text,
                   "%s%s lane_value[%u];\n%sint lane_place[%u];\n"
                   "%svstore%u(a0, 0, lane_value);\n%svstore%u(j0, 0, lane_place);\n"
                   "%sfor (int l = 0; l < %u; l++) {\n",
                   indent, kiln__type_row(kiln__emit_accumulator(emit))->device, width, indent,
                   width, indent, width, indent, width, indent, width);
    kiln__emit_merge(emit, inner, KILN__TOTAL_VALUE, KILN__TOTAL_POSITION, "lane_value[l]",
                     "lane_place[l]");
    kiln__text_add(emit->text, "%s}\n", indent);
}

void kiln__emit_fold(const struct kiln__emit *emit, const char *indent, unsigned unroll)
{
    const struct kiln__reduce_row *row = kiln__emit_row(emit);
    kiln_type type = kiln__emit_accumulator(emit);
    unsigned width = emit->form->vector;
    if (row->indexed) {
        fold_indexed(emit, indent);
        return;
    }
    for (unsigned u = 1; u < unroll; u++) {
        char other[16];
        snprintf(other, sizeof other, "a%u", u);
        kiln__text_add(emit->text, "%sa0 = ", indent);
        kiln__emit_expression(emit, row->combine, "a0", other, NULL, type, width);
        kiln__text_add(emit->text, ";\n");
    }
    char from[16] = "a0", low[24], high[24];
    for (unsigned half = width / 2; half; half /= 2) {
        snprintf(low, sizeof low, "%s.lo", from);
        snprintf(high, sizeof high, "%s.hi", from);
        kiln__text_add(emit->text, "%sconst %s half%u = ", indent, kiln__emit_type(type, half).text,
                       half);
        kiln__emit_expression(emit, row->combine, low, high, NULL, type, half);
        kiln__text_add(emit->text, ";\n");
        snprintf(from, sizeof from, "half%u", half);
    }
    kiln__emit_merge(emit, indent, KILN__TOTAL_VALUE, "", from, "");
}

void kiln__emit_default_position(const struct kiln__emit *emit, const char *indent)
{
    if (kiln__emit_row(emit)->indexed)
        kiln__text_add(emit->text,
                       "%sif (" KILN__TOTAL_POSITION " == " KILN__NO_POSITION ")\n"
                       "%s    " KILN__TOTAL_POSITION " = (int)from;\n",
                       indent, indent);
}
