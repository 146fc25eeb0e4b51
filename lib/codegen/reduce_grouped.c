/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction kernels of devices whose work-groups share local memory.
 *
 * Along rows:    `lanes` work-items, a power of two, share a result: each takes every lanes-th
 *                vector of its elements, then a tree in local memory.
 * Along columns: one work-item per result, neighbours side by side.
 * Final:         as along rows, over the results of segments. */
#include <stdio.h>

#include "codegen/reduce.h"

/* `unroll` vectors that are `lanes` vectors apart, while all are whole, from accumulator `into`
 * on. */
static void emit_loop(const struct kiln__emit *emit, unsigned unroll, unsigned width, unsigned into)
{
    kiln__text_add(emit->text, "        for (; r + lanes * %u + %u <= to; r += lanes * %u) {\n",
                   (unroll - 1) * width, width, unroll * width);
    for (unsigned u = 0; u < unroll; u++) {
        char from[48], position[160];
        snprintf(from, sizeof from, u ? "(r + lanes * %u)" : "r", u * width);
        kiln__emit_positions(position, sizeof position, from, width);
        kiln__text_add(emit->text, "            {\n");
        kiln__emit_reduced_bases(emit, "                ", from);
        kiln__emit_element(emit, "                ", into + u, width, "0", position);
        kiln__text_add(emit->text, "            }\n");
    }
    kiln__text_add(emit->text, "        }\n");
}

static void emit_elements(const struct kiln__emit *emit)
{
    unsigned width = emit->form->vector, unroll = width > 1 ? kiln__emit_unroll(emit) : 1;
    kiln__text_add(emit->text, "        %s r = from + lane * %u;\n", emit->index, width);
    if (width > 1) {
        kiln__emit_accumulators(emit, "        ", 0, unroll, width);
        if (unroll > 1)
            emit_loop(emit, unroll, width, 0);
        emit_loop(emit, 1, width, 0);
        kiln__emit_fold(emit, "        ", unroll);
        kiln__text_add(emit->text, "        r = from + (to - from) / %u * %u + lane;\n", width,
                       width);
    }
    emit_loop(emit, 1, 1, KILN__TOTAL);
}

static void emit_partials(const struct kiln__emit *emit)
{
    kiln__text_add(emit->text, "        for (%s r = lane; r < segments; r += lanes) {\n",
                   emit->index);
    kiln__emit_merge(emit, "            ", KILN__TOTAL_VALUE, KILN__TOTAL_POSITION,
                     "partial[partial_offset + r * n + p]",
                     "partial_position[partial_position_offset + r * n + p]");
    kiln__text_add(emit->text, "        }\n");
}

static void emit_tree(const struct kiln__emit *emit)
{
    bool indexed = kiln__emit_row(emit)->indexed;
    kiln__text_add(emit->text, "    scratch[item] = " KILN__TOTAL_VALUE ";\n");
    if (indexed)
        kiln__text_add(emit->text, "    places[item] = " KILN__TOTAL_POSITION ";\n");
    kiln__text_add(emit->text, "    barrier(CLK_LOCAL_MEM_FENCE);\n"
                               "    for (int other = (int)lanes / 2; other; other /= 2) {\n"
                               "        if (lane < other) {\n");
    kiln__emit_merge(emit, "            ", "scratch[item]", "places[item]", "scratch[item + other]",
                     "places[item + other]");
    kiln__text_add(emit->text, "        }\n"
                               "        barrier(CLK_LOCAL_MEM_FENCE);\n"
                               "    }\n"
                               "    if (lane != 0 || p >= n)\n"
                               "        return;\n"
                               "    " KILN__TOTAL_VALUE " = scratch[item];\n");
    if (indexed)
        kiln__text_add(emit->text, "    " KILN__TOTAL_POSITION " = places[item];\n");
}

static void emit_rows(const struct kiln__emit *emit)
{
    unsigned group = 1u << emit->form->work_group;
    kiln__text_add(emit->text, "    local %s scratch[%u];\n",
                   kiln__type_row(kiln__emit_accumulator(emit))->device, group);
    if (kiln__emit_row(emit)->indexed)
        kiln__text_add(emit->text, "    local int places[%u];\n", group);
    kiln__text_add(emit->text,
                   "    const int item = get_local_id(0), lane = item & ((int)lanes - 1);\n"
                   "    const %s p = (%s)get_global_id(0) / lanes;\n",
                   emit->index, emit->index);
    kiln__emit_accumulators(emit, "    ", KILN__TOTAL, 1, 1);
    kiln__emit_result_bases(emit, "    ", "p");
    kiln__text_add(emit->text, "    if (p < n) {\n");
    if (emit->form->stage == KILN__STAGE_FINAL)
        emit_partials(emit);
    else
        emit_elements(emit);
    kiln__text_add(emit->text, "    }\n");
    emit_tree(emit);
}

static void emit_columns(const struct kiln__emit *emit)
{
    kiln__text_add(emit->text,
                   "    const %s p = get_global_id(0);\n"
                   "    if (p >= n)\n"
                   "        return;\n",
                   emit->index);
    kiln__emit_accumulators(emit, "    ", KILN__TOTAL, 1, 1);
    kiln__emit_result_bases(emit, "    ", "p");
    kiln__text_add(emit->text, "    for (%s r = from; r < to; r++) {\n", emit->index);
    kiln__emit_reduced_bases(emit, "        ", "r");
    kiln__emit_element(emit, "        ", KILN__TOTAL, 1, "0", "r");
    kiln__text_add(emit->text, "    }\n");
}

void kiln__emit_reduce_grouped(const struct kiln__emit *emit)
{
    kiln__emit_reduce_signature(emit, "lanes");
    kiln__text_add(emit->text,
                   "    const %s segment = get_global_id(1), from = segment * length;\n"
                   "    const %s to = min(from + length, reduced);\n",
                   emit->index, emit->index);
    if (emit->form->direction == KILN__ALONG_ROWS)
        emit_rows(emit);
    else
        emit_columns(emit);
    kiln__emit_default_position(emit, "    ");
    kiln__emit_finish(emit, "    ", 1, KILN__TOTAL_VALUE, KILN__TOTAL_POSITION, "p", "0");
    kiln__text_add(emit->text, "}\n");
}
