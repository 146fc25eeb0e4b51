/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction kernels of devices whose work-groups share local memory.
 *
 * Along rows:    `lanes` work-items, a power of two, share a result: each takes every lanes-th
 *                element, then a tree in local memory. The final stage is the same over partials.
 * Along columns: one work-item per result, neighbours side by side. */
#include <stdio.h>

#include "codegen/reduce.h"

static void emit_element(const struct kiln__emit *emit, const char *indent)
{
    kiln__emit_reduced_bases(emit, indent, "r");
    kiln__emit_steps(emit, indent, 0, emit->group->reduced_step, 1, "b", "0");
    kiln__emit_combine(emit, indent, 0, 1, "r");
}

static void emit_partial(const struct kiln__emit *emit, const char *indent)
{
    kiln__emit_merge(emit, indent, "a0", "j0", "partial[partial_offset + r * n + p]",
                     "partial_position[position_offset + r * n + p]");
}

static void emit_tree(const struct kiln__emit *emit)
{
    bool indexed = kiln__emit_row(emit)->indexed;
    kiln__text_add(emit->text, "    scratch[item] = a0;\n");
    if (indexed)
        kiln__text_add(emit->text, "    places[item] = j0;\n");
    kiln__text_add(emit->text,
                   "    barrier(CLK_LOCAL_MEM_FENCE);\n"
                   "    for (int other = (int)lanes / 2; other; other /= 2) {\n"
                   "        if (lane < other) {\n");
    kiln__emit_merge(emit, "            ", "scratch[item]", "places[item]",
                     "scratch[item + other]", "places[item + other]");
    kiln__text_add(emit->text,
                   "        }\n"
                   "        barrier(CLK_LOCAL_MEM_FENCE);\n"
                   "    }\n"
                   "    if (lane != 0 || p >= n)\n"
                   "        return;\n"
                   "    a0 = scratch[item];\n");
    if (indexed)
        kiln__text_add(emit->text, "    j0 = places[item];\n");
}

static void emit_rows(const struct kiln__emit *emit)
{
    unsigned group = 1u << emit->form->work_group;
    bool final = emit->form->stage == KILN__STAGE_FINAL;
    kiln__text_add(emit->text, "    local %s scratch[%u];\n",
                   kiln__type_row(kiln__emit_accumulator(emit))->device, group);
    if (kiln__emit_row(emit)->indexed)
        kiln__text_add(emit->text, "    local int places[%u];\n", group);
    kiln__text_add(emit->text,
                   "    const int item = get_local_id(0), lane = item & ((int)lanes - 1);\n"
                   "    const %s p = (%s)get_global_id(0) / lanes;\n",
                   emit->index, emit->index);
    kiln__emit_accumulators(emit, "    ", 0, 1, 1);
    kiln__emit_result_bases(emit, "    ", "p");
    kiln__text_add(emit->text,
                   "    if (p < n) {\n"
                   "        for (%s r = %s + lane; r < %s; r += lanes) {\n",
                   emit->index, final ? "0" : "from", final ? "segments" : "to");
    if (final)
        emit_partial(emit, "            ");
    else
        emit_element(emit, "            ");
    kiln__text_add(emit->text, "        }\n    }\n");
    emit_tree(emit);
}

static void emit_columns(const struct kiln__emit *emit)
{
    kiln__text_add(emit->text,
                   "    const %s p = get_global_id(0);\n"
                   "    if (p >= n)\n"
                   "        return;\n",
                   emit->index);
    kiln__emit_accumulators(emit, "    ", 0, 1, 1);
    kiln__emit_result_bases(emit, "    ", "p");
    kiln__text_add(emit->text, "    for (%s r = from; r < to; r++) {\n", emit->index);
    emit_element(emit, "        ");
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
    if (kiln__emit_row(emit)->indexed)
        kiln__text_add(emit->text,
                       "    if (j0 == " KILN__NO_POSITION ")\n"
                       "        j0 = (int)from;\n");
    kiln__emit_finish(emit, "    ", 1, "a0", "j0", "p", "0");
    kiln__text_add(emit->text, "}\n");
}
