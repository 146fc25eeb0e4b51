/* SPDX-License-Identifier: Apache-2.0 */
/* Rows kernels of devices whose work-groups share local memory: `lanes` work-items, a power of two,
 * share a row.
 *
 *   values; for each phase { every lanes-th vector { body } fold, tree, finish, values } stores
 *
 * Every lane computes the row's values. A lane reads back only what it has stored itself. Lanes
 * beyond the last row go along, for the barriers' sake, and store nothing. Where a lane has few
 * vectors of its row (the form's `held`), it keeps them from phase to phase. */
#include "codegen/rows.h"

#include <stdio.h>

/* `unroll` vectors that are `lanes` vectors apart, from accumulator `into` on. */
static void emit_loop(const struct kiln__rows_emit *rows, unsigned unroll, unsigned width,
                      unsigned into)
{
    const struct kiln__emit *emit = rows->emit;
    kiln__text_add(emit->text,
                   "        for (; r + lanes * %u + %u <= reduced; r += lanes * %u) {\n",
                   (unroll - 1) * width, width, unroll * width);
    for (unsigned u = 0; u < unroll; u++) {
        char from[48];
        snprintf(from, sizeof from, u ? "(r + lanes * %u)" : "r", u * width);
        kiln__text_add(emit->text, "            {\n");
        kiln__rows_reduced_bases(rows, "                ", from);
        kiln__rows_element(rows, "                ", into + u, width, "0");
        kiln__text_add(emit->text, "            }\n");
    }
    kiln__text_add(emit->text, "        }\n");
}

static void emit_elements(const struct kiln__rows_emit *rows)
{
    const struct kiln__emit *emit = rows->emit;
    /* Single elements one at a time: four took an H200 longer. */
    unsigned width = emit->form->vector, unroll = width > 1 ? kiln__rows_unroll(rows) : 1;
    kiln__rows_totals(rows, "    ");
    kiln__text_add(emit->text, "    if (live) {\n        %s r = lane * %u;\n", emit->index, width);
    kiln__rows_accumulators(rows, "        ", unroll);
    if (unroll > 1)
        emit_loop(rows, unroll, width, 0);
    emit_loop(rows, 1, width, 0);
    kiln__rows_fold(rows, "        ", unroll);
    if (width > 1) {
        kiln__text_add(emit->text, "        r = reduced / %u * %u + lane;\n", width, width);
        emit_loop(rows, 1, 1, KILN__ROWS_TOTAL);
    }
    kiln__text_add(emit->text, "    }\n");
}

/* Places of a lane's vectors: at<u>, and whether they are in the row. */
static void emit_places(const struct kiln__rows_emit *rows)
{
    const struct kiln__emit *emit = rows->emit;
    for (unsigned u = 0; u < emit->form->held; u++)
        kiln__text_add(emit->text,
                       "    const %s at%u = (lane + lanes * %u) * %u;\n"
                       "    const bool in%u = live && at%u < reduced;\n",
                       emit->index, u, u, emit->form->vector, u, u);
}

static void emit_held_elements(struct kiln__rows_emit *rows)
{
    const struct kiln__emit *emit = rows->emit;
    unsigned width = emit->form->vector, unroll = kiln__rows_unroll(rows);
    unroll = unroll < emit->form->held ? unroll : emit->form->held;
    kiln__rows_totals(rows, "    ");
    kiln__text_add(emit->text, "    {\n");
    kiln__rows_accumulators(rows, "        ", unroll);
    for (rows->slot = 0; rows->slot < emit->form->held; rows->slot++) {
        char from[16];
        snprintf(from, sizeof from, "at%u", rows->slot);
        kiln__text_add(emit->text, "        if (in%u) {\n", rows->slot);
        kiln__rows_reduced_bases(rows, "            ", from);
        kiln__rows_element(rows, "            ", rows->slot % unroll, width, "0");
        kiln__text_add(emit->text, "        }\n");
    }
    kiln__rows_fold(rows, "        ", unroll);
    kiln__text_add(emit->text, "    }\n");
}

/* The totals of a row's lanes become its first lane's, which all read. */
static void emit_tree(const struct kiln__rows_emit *rows)
{
    const struct kiln__emit *emit = rows->emit;
    char into[48], from[48];
    bool any = false;
    for (size_t i = 0; i < emit->group->steps.count; i++) {
        if (!kiln__rows_reduces(rows, i))
            continue;
        any = true;
        kiln__text_add(emit->text, "    scratch%zu[item] = t%zu;\n", i, i);
    }
    if (!any)
        return;
    kiln__text_add(emit->text, "    barrier(CLK_LOCAL_MEM_FENCE);\n"
                               "    for (int other = (int)lanes / 2; other; other /= 2) {\n"
                               "        if (lane < other) {\n");
    for (size_t i = 0; i < emit->group->steps.count; i++) {
        if (!kiln__rows_reduces(rows, i))
            continue;
        snprintf(into, sizeof into, "scratch%zu[item]", i);
        snprintf(from, sizeof from, "scratch%zu[item + other]", i);
        kiln__rows_merge(rows, "            ", i, into, from);
    }
    kiln__text_add(emit->text, "        }\n"
                               "        barrier(CLK_LOCAL_MEM_FENCE);\n"
                               "    }\n");
    for (size_t i = 0; i < emit->group->steps.count; i++)
        if (kiln__rows_reduces(rows, i))
            kiln__text_add(emit->text, "    t%zu = scratch%zu[item - lane];\n", i, i);
}

static void emit_scratch(const struct kiln__rows_emit *rows)
{
    const struct kiln__emit *emit = rows->emit;
    for (size_t i = 0; i < emit->group->steps.count; i++)
        if (emit->group->steps.items[i].kind == KILN__STEP_REDUCED)
            kiln__text_add(emit->text, "    local %s scratch%zu[%u];\n",
                           kiln__type_row(kiln__rows_type(rows, i))->device, i,
                           1u << emit->form->work_group);
}

void kiln__emit_rows_grouped(const struct kiln__emit *emit)
{
    struct kiln__rows_emit rows = {.emit = emit};
    kiln__rows_of(emit->group, !emit->form->native_math, &rows.rows);
    kiln__rows_signature(&rows, "lanes");
    emit_scratch(&rows);
    kiln__text_add(emit->text,
                   "    const int item = get_local_id(0), lane = item & ((int)lanes - 1);\n"
                   "    const %s place = (%s)get_global_id(0) / lanes, p = min(place, n - 1);\n"
                   "    const bool live = place < n;\n",
                   emit->index, emit->index);
    kiln__rows_bases(&rows, "    ");
    if (emit->form->held) {
        kiln__rows_hold(&rows);
        kiln__rows_held(&rows, "    ");
        emit_places(&rows);
    }
    for (unsigned phase = 0; phase <= rows.rows.phases; phase++) {
        kiln__rows_turn(&rows, phase);
        kiln__rows_values(&rows, "    ");
        if (phase == rows.rows.phases)
            break;
        if (emit->form->held)
            emit_held_elements(&rows);
        else
            emit_elements(&rows);
        emit_tree(&rows);
        kiln__rows_finish(&rows, "    ");
    }
    kiln__text_add(emit->text, "    if (live && lane == 0) {\n");
    kiln__rows_store(&rows);
    kiln__text_add(emit->text, "    }\n}\n");
}
