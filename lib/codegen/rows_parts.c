/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "codegen/rows.h"

static const struct kiln__step *step_at(const struct kiln__rows_emit *rows, size_t i)
{
    return &rows->emit->group->steps.items[i];
}

static const struct kiln__reduce_row *row_of(const struct kiln__rows_emit *rows, size_t i)
{
    return &kiln__reduce_rows[step_at(rows, i)->op];
}

void kiln__rows_turn(struct kiln__rows_emit *rows, unsigned phase)
{
    rows->phase = phase;
    kiln__rows_needs(rows->emit->group, &rows->rows, phase, rows->needed);
}

bool kiln__rows_reduces(const struct kiln__rows_emit *rows, size_t i)
{
    return step_at(rows, i)->kind == KILN__STEP_REDUCED && rows->rows.phase[i] == rows->phase;
}

kiln_type kiln__rows_type(const struct kiln__rows_emit *rows, size_t i)
{
    const struct kiln__step *value = step_at(rows, step_at(rows, i)->args[0]);
    return kiln__reduce_accumulator(row_of(rows, i), (kiln_type)value->type);
}

void kiln__rows_signature(const struct kiln__rows_emit *rows, const char *parameter)
{
    const struct kiln__emit *emit = rows->emit;
    kiln__text_add(emit->text,
                   "kernel __attribute__((reqd_work_group_size(%u, 1, 1)))\n"
                   "void kiln_rows(const %s n, const %s reduced, const %s %s",
                   emit->form->chunked ? 1 : 1u << emit->form->work_group, emit->index, emit->index,
                   emit->index, parameter);
    for (uint32_t d = 1; d < emit->form->rank; d++)
        if (d != emit->form->kept)
            kiln__text_add(emit->text, ", const %s d%u", emit->index, d);
    kiln__emit_accesses(emit);
    kiln__emit_stores(emit);
    kiln__emit_scalars(emit);
    kiln__text_add(emit->text, ")\n{\n");
}

/* ---- positions ---- */

void kiln__rows_bases(const struct kiln__rows_emit *rows, const char *indent)
{
    const struct kiln__emit *emit = rows->emit;
    kiln__emit_coordinates(emit, indent, "p", 0, emit->form->kept);
    for (size_t k = 0; k < emit->group->accesses.count; k++) {
        kiln__text_add(emit->text, "%sconst %s h%zu = o%zu%s;\n", indent, emit->index, k, k,
                       kiln__emit_dot(k, 0, emit->form->kept).text);
    }
}

/* Whether a step's value comes from its keeper in this phase. */
static bool is_kept(const struct kiln__rows_emit *rows, size_t i)
{
    return rows->rows.keeper[i] && rows->rows.phase[i] < rows->phase;
}

static bool loads(const struct kiln__rows_emit *rows, size_t access)
{
    for (size_t i = 0; i < rows->emit->group->steps.count; i++) {
        const struct kiln__step *step = step_at(rows, i);
        bool reads = step->kind == KILN__STEP_LOAD || step->kind == KILN__STEP_NUMBER;
        if (rows->needed[i] && rows->rows.full[i] && reads && step->index == access)
            return true;
    }
    return false;
}

void kiln__rows_hold(struct kiln__rows_emit *rows)
{
    for (size_t k = 0; k < rows->emit->group->accesses.count; k++) {
        unsigned phases = 0;
        for (unsigned phase = rows->rows.phases; phase-- > 0;) {
            kiln__rows_turn(rows, phase);
            if (!loads(rows, k))
                continue;
            rows->access[k].from = phase;
            phases++;
        }
        rows->access[k].held =
            phases > 1 && rows->emit->group->accesses.items[k].kind == KILN__ACCESS_MEMORY;
    }
}

void kiln__rows_held(const struct kiln__rows_emit *rows, const char *indent)
{
    const struct kiln__emit *emit = rows->emit;
    const struct kiln__graph *graph = &emit->plan->fusion.graph;
    for (size_t k = 0; k < emit->group->accesses.count; k++) {
        if (!rows->access[k].held)
            continue;
        const struct kiln__node *node = &graph->nodes.items[emit->group->accesses.items[k].node];
        struct kiln__type_name type = kiln__emit_type((kiln_type)node->type, emit->form->vector);
        for (unsigned u = 0; u < emit->form->held; u++)
            kiln__text_add(emit->text, "%s%s m%zu_%u = (%s)(0);\n", indent, type.text, k, u,
                           type.text);
    }
}

/* Whether this phase reads or writes whole rows of store k. */
static bool visits(const struct kiln__rows_emit *rows, size_t k)
{
    const struct kiln__group *group = rows->emit->group;
    bool uses =
        group->stores.items[k].full && kiln__rows_store_phase(group, &rows->rows, k) == rows->phase;
    for (size_t i = 0; i < group->steps.count; i++)
        uses = uses || (rows->needed[i] && rows->rows.keeper[i] == k + 1);
    return uses;
}

void kiln__rows_reduced_bases(const struct kiln__rows_emit *rows, const char *indent, const char *r)
{
    const struct kiln__emit *emit = rows->emit;
    kiln__emit_coordinates(emit, indent, r, emit->form->kept, emit->form->rank);
    for (size_t k = 0; k < emit->group->accesses.count; k++) {
        if (!loads(rows, k))
            continue;
        kiln__text_add(emit->text, "%sconst %s b%zu = h%zu%s;\n", indent, emit->index, k, k,
                       kiln__emit_dot(k, emit->form->kept, emit->form->rank).text);
    }
    for (size_t k = 0; k < emit->group->stores.count; k++)
        if (visits(rows, k))
            kiln__text_add(emit->text, "%sconst %s g%zu = q%zu + p * reduced + %s;\n", indent,
                           emit->index, k, k, r);
}

/* ---- values of rows ---- */

void kiln__rows_values(const struct kiln__rows_emit *rows, const char *indent)
{
    struct kiln__emit own = *rows->emit;
    own.letter = 'r';
    for (unsigned i = 0; i < own.group->steps.count; i++)
        if (!rows->rows.full[i] && rows->rows.phase[i] == rows->phase &&
            step_at(rows, i)->kind != KILN__STEP_REDUCED)
            kiln__emit_steps(&own, indent, i, i + 1, 1, "h", "0");
}

static void store_one(const struct kiln__rows_emit *rows, size_t k)
{
    uint16_t step = rows->emit->group->stores.items[k].step;
    struct kiln__phrase pointer = kiln__phrase("y%zu", k), offset = kiln__phrase("q%zu + p", k);
    struct kiln__elements elements = {.type = (kiln_type)step_at(rows, step)->type,
                                      .width = 1,
                                      .pointer = pointer.text,
                                      .offset = offset.text};
    kiln__emit_store(rows->emit->text, &elements, kiln__phrase("r%u", step).text, false);
}

void kiln__rows_store(const struct kiln__rows_emit *rows)
{
    const struct kiln__group *group = rows->emit->group;
    for (size_t k = 0; k < group->stores.count; k++)
        if (!group->stores.items[k].full)
            store_one(rows, k);
}

/* ---- reductions ---- */

void kiln__rows_totals(const struct kiln__rows_emit *rows, const char *indent)
{
    for (size_t i = 0; i < rows->emit->group->steps.count; i++)
        if (kiln__rows_reduces(rows, i))
            kiln__text_add(rows->emit->text, "%s%s t%zu = %s;\n", indent,
                           kiln__type_row(kiln__rows_type(rows, i))->device, i,
                           kiln__emit_identity(row_of(rows, i), kiln__rows_type(rows, i)));
}

void kiln__rows_accumulators(const struct kiln__rows_emit *rows, const char *indent,
                             unsigned unroll)
{
    for (size_t i = 0; i < rows->emit->group->steps.count; i++) {
        if (!kiln__rows_reduces(rows, i))
            continue;
        struct kiln__type_name type =
            kiln__emit_type(kiln__rows_type(rows, i), rows->emit->form->vector);
        for (unsigned u = 0; u < unroll; u++)
            kiln__text_add(rows->emit->text, "%s%s a%zu_%u = (%s)(%s);\n", indent, type.text, i, u,
                           type.text,
                           kiln__emit_identity(row_of(rows, i), kiln__rows_type(rows, i)));
    }
}

void kiln__rows_merge(const struct kiln__rows_emit *rows, const char *indent, size_t i,
                      const char *into, const char *from)
{
    kiln__text_add(rows->emit->text, "%s%s = ", indent, into);
    kiln__emit_expression(rows->emit, row_of(rows, i)->combine, into, from, NULL,
                          kiln__rows_type(rows, i), 1);
    kiln__text_add(rows->emit->text, ";\n");
}

static void combine(const struct kiln__rows_emit *rows, const char *indent, size_t i, unsigned u,
                    unsigned width)
{
    const struct kiln__step *step = step_at(rows, i);
    kiln_type type = kiln__rows_type(rows, i);
    char value[48], into[48];
    if (type == (kiln_type)step_at(rows, step->args[0])->type)
        snprintf(value, sizeof value, "v%u", step->args[0]);
    else
        snprintf(value, sizeof value, "convert_%s(v%u)", kiln__emit_type(type, width).text,
                 step->args[0]);
    if (u == KILN__ROWS_TOTAL)
        snprintf(into, sizeof into, "t%zu", i);
    else
        snprintf(into, sizeof into, "a%zu_%u", i, u);
    kiln__text_add(rows->emit->text, "%s%s = ", indent, into);
    kiln__emit_expression(rows->emit, row_of(rows, i)->combine, into, value, NULL, type, width);
    kiln__text_add(rows->emit->text, ";\n");
}

static void fold(const struct kiln__rows_emit *rows, const char *indent, size_t i, unsigned unroll)
{
    const struct kiln__emit *emit = rows->emit;
    kiln_type type = kiln__rows_type(rows, i);
    char from[48], other[48], total[32], low[64], high[64];
    snprintf(from, sizeof from, "a%zu_0", i);
    snprintf(total, sizeof total, "t%zu", i);
    for (unsigned u = 1; u < unroll; u++) {
        snprintf(other, sizeof other, "a%zu_%u", i, u);
        kiln__text_add(emit->text, "%s%s = ", indent, from);
        kiln__emit_expression(emit, row_of(rows, i)->combine, from, other, NULL, type,
                              emit->form->vector);
        kiln__text_add(emit->text, ";\n");
    }
    for (unsigned half = emit->form->vector / 2; half; half /= 2) {
        snprintf(low, sizeof low, "%s.lo", from);
        snprintf(high, sizeof high, "%s.hi", from);
        kiln__text_add(emit->text, "%sconst %s f%zu_%u = ", indent,
                       kiln__emit_type(type, half).text, i, half);
        kiln__emit_expression(emit, row_of(rows, i)->combine, low, high, NULL, type, half);
        kiln__text_add(emit->text, ";\n");
        snprintf(from, sizeof from, "f%zu_%u", i, half);
    }
    kiln__rows_merge(rows, indent, i, total, from);
}

void kiln__rows_fold(const struct kiln__rows_emit *rows, const char *indent, unsigned unroll)
{
    for (size_t i = 0; i < rows->emit->group->steps.count; i++)
        if (kiln__rows_reduces(rows, i))
            fold(rows, indent, i, unroll);
}

void kiln__rows_finish(const struct kiln__rows_emit *rows, const char *indent)
{
    for (size_t i = 0; i < rows->emit->group->steps.count; i++) {
        if (!kiln__rows_reduces(rows, i))
            continue;
        kiln_type type = (kiln_type)step_at(rows, i)->type;
        char total[32], count[32];
        snprintf(total, sizeof total, "t%zu", i);
        snprintf(count, sizeof count, "((%s)reduced)", kiln__type_row(type)->device);
        kiln__text_add(rows->emit->text, "%sconst %s r%zu = ", indent, kiln__type_row(type)->device,
                       i);
        kiln__emit_expression(rows->emit, row_of(rows, i)->finish, total, NULL, count, type, 1);
        kiln__text_add(rows->emit->text, ";\n");
    }
}

/* ---- elements ---- */

/* Elements of store k at `at`. */
static void visit_store(const struct kiln__rows_emit *rows, size_t k, size_t i, unsigned width,
                        const char *at, const char *value)
{
    struct kiln__phrase pointer = kiln__phrase("y%zu", k),
                        offset = kiln__phrase("g%zu + %s", k, at);
    struct kiln__elements elements = {.type = (kiln_type)step_at(rows, i)->type,
                                      .width = width,
                                      .fit = kiln__emit_fit(rows->emit),
                                      .pointer = pointer.text,
                                      .offset = offset.text};
    if (value)
        kiln__emit_store(rows->emit->text, &elements, value, false);
    else
        kiln__emit_load(rows->emit->text, &elements);
}

static void emit_kept(const struct kiln__rows_emit *rows, const char *indent, size_t i,
                      unsigned width, const char *at)
{
    struct kiln__type_name type = kiln__emit_type((kiln_type)step_at(rows, i)->type, width);
    kiln__text_add(rows->emit->text, "%sconst %s v%zu = ", indent, type.text, i);
    visit_store(rows, rows->rows.keeper[i] - 1u, i, width, at, NULL);
    kiln__text_add(rows->emit->text, ";\n");
}

/* A LOAD of a held access, in the phase that loads it or a later one. */
static void emit_held(const struct kiln__rows_emit *rows, const char *indent, unsigned i,
                      unsigned width, const char *at)
{
    const struct kiln__step *step = step_at(rows, i);
    struct kiln__type_name type = kiln__emit_type((kiln_type)step->type, width);
    if (rows->access[step->index].from == rows->phase) {
        kiln__emit_steps(rows->emit, indent, i, i + 1, width, "b", at);
        kiln__text_add(rows->emit->text, "%sm%u_%u = v%u;\n", indent, step->index, rows->slot, i);
    } else {
        kiln__text_add(rows->emit->text, "%sconst %s v%u = m%u_%u;\n", indent, type.text, i,
                       step->index, rows->slot);
    }
}

static void emit_value(const struct kiln__rows_emit *rows, const char *indent, unsigned i,
                       unsigned width, const char *at)
{
    const struct kiln__step *step = step_at(rows, i);
    struct kiln__type_name type = kiln__emit_type((kiln_type)step->type, width);
    if (rows->rows.full[i] && step->kind == KILN__STEP_LOAD && rows->access[step->index].held)
        emit_held(rows, indent, i, width, at);
    else if (!rows->rows.full[i])
        kiln__text_add(rows->emit->text, "%sconst %s v%u = (%s)(r%u);\n", indent, type.text, i,
                       type.text, i);
    else if (is_kept(rows, i))
        emit_kept(rows, indent, i, width, at);
    else
        kiln__emit_steps(rows->emit, indent, i, i + 1, width, "b", at);
}

void kiln__rows_element(const struct kiln__rows_emit *rows, const char *indent, unsigned u,
                        unsigned width, const char *at)
{
    const struct kiln__group *group = rows->emit->group;
    for (unsigned i = 0; i < group->steps.count; i++)
        if (rows->needed[i])
            emit_value(rows, indent, i, width, at);
    for (unsigned i = 0; i < group->steps.count; i++)
        if (kiln__rows_reduces(rows, i))
            combine(rows, indent, i, u, width);
    for (unsigned i = 0; i < group->steps.count; i++) {
        unsigned keeper = rows->rows.keeper[i];
        bool first = rows->needed[i] && keeper && rows->rows.phase[i] == rows->phase;
        if (first && group->stores.items[keeper - 1].step != i)
            visit_store(rows, keeper - 1, i, width, at, kiln__phrase("v%u", i).text);
    }
    for (size_t k = 0; k < group->stores.count; k++)
        if (group->stores.items[k].full &&
            kiln__rows_store_phase(group, &rows->rows, k) == rows->phase)
            visit_store(rows, k, group->stores.items[k].step, width, at,
                        kiln__phrase("v%u", group->stores.items[k].step).text);
}

unsigned kiln__rows_unroll(const struct kiln__rows_emit *rows)
{
    size_t steps = 0, reductions = 0;
    for (size_t i = 0; i < rows->emit->group->steps.count; i++) {
        steps += rows->needed[i] && rows->rows.full[i];
        reductions += kiln__rows_reduces(rows, i);
    }
    return steps <= 6 && reductions == 1 ? 4 : steps <= 12 && reductions <= 2 ? 2 : 1;
}
