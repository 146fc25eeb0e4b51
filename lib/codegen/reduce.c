/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction kernels of chunked devices: a work-item owns a run of results.
 *
 * Along rows:    for each result { for vectors of its row { body } fold lanes, finish }
 * Along columns: for vectors of results { for each row { body } finish }
 * Final:         for each result { for each segment { merge } finish } */
#include <stdio.h>

#include "codegen/reduce.h"

/* The scalar accumulator of a result, beside vectors a0 to a3. */
#define TOTAL 9
#define TOTAL_VALUE "a9"
#define TOTAL_POSITION "j9"

/* Independent accumulators hide the latency of adding; long bodies have enough to do. */
static unsigned choose_unroll(const struct kiln__emit *emit)
{
    bool short_body = emit->group->reduced_step <= 6;
    return !kiln__emit_row(emit)->indexed && short_body ? 4 : 1;
}

/* The body for `width` elements at `at` along the vector, into accumulator `u`. */
static void emit_body(const struct kiln__emit *emit, const char *indent, unsigned u,
                      unsigned width, const char *at, const char *position)
{
    kiln__emit_steps(emit, indent, 0, emit->group->reduced_step, width, "b", at);
    kiln__emit_combine(emit, indent, u, width, position);
}

/* Positions of the lanes of a vector that starts at reduced element `from`. */
static void lane_positions(char *text, size_t size, const char *from, unsigned width)
{
    int used = width > 1 ? snprintf(text, size, "((int%u)((int)(%s)) + (int%u)(", width, from, width)
                         : snprintf(text, size, "(%s", from);
    for (unsigned lane = 0; width > 1 && lane < width; lane++)
        used += snprintf(text + used, size - (size_t)used, "%s%u", lane ? ", " : "", lane);
    snprintf(text + used, size - (size_t)used, width > 1 ? "))" : ")");
}

static void emit_vectors(const struct kiln__emit *emit, unsigned unroll)
{
    unsigned width = emit->form->vector;
    char positions[160];
    lane_positions(positions, sizeof positions, "r + i", width);
    kiln__text_add(emit->text, "            for (; i + %u <= count; i += %u) {\n", width * unroll,
                   width * unroll);
    for (unsigned u = 0; u < unroll; u++) {
        char at[32];
        snprintf(at, sizeof at, "(i + %u)", u * width);
        kiln__text_add(emit->text, "                {\n");
        emit_body(emit, "                    ", u, width, u ? at : "i", positions);
        kiln__text_add(emit->text, "                }\n");
    }
    kiln__text_add(emit->text, "            }\n");
}

/* Vector accumulators to the scalar one. */
static void emit_fold(const struct kiln__emit *emit, unsigned unroll)
{
    const struct kiln__reduce_row *row = kiln__emit_row(emit);
    kiln_type type = kiln__emit_accumulator(emit);
    unsigned width = emit->form->vector;
    if (row->indexed) {
        kiln__text_add(emit->text,
                       "        %s lane[%u];\n        int place[%u];\n"
                       "        vstore%u(a0, 0, lane);\n        vstore%u(j0, 0, place);\n"
                       "        for (int l = 0; l < %u; l++) {\n",
                       kiln__type_row(type)->device, width, width, width, width, width);
        kiln__emit_merge(emit, "            ", TOTAL_VALUE, TOTAL_POSITION, "lane[l]", "place[l]");
        kiln__text_add(emit->text, "        }\n");
        return;
    }
    for (unsigned u = 1; u < unroll; u++) {
        char other[16];
        snprintf(other, sizeof other, "a%u", u);
        kiln__text_add(emit->text, "        a0 = ");
        kiln__emit_expression(emit, row->combine, "a0", other, NULL, type, width);
        kiln__text_add(emit->text, ";\n");
    }
    char from[16] = "a0", low[24], high[24];
    for (unsigned half = width / 2; half; half /= 2) {
        snprintf(low, sizeof low, "%s.lo", from);
        snprintf(high, sizeof high, "%s.hi", from);
        kiln__text_add(emit->text, "        const %s half%u = ",
                       kiln__emit_type(type, half).text, half);
        kiln__emit_expression(emit, row->combine, low, high, NULL, type, half);
        kiln__text_add(emit->text, ";\n");
        snprintf(from, sizeof from, "half%u", half);
    }
    kiln__emit_merge(emit, "        ", TOTAL_VALUE, "", from, "");
}

/* A reduced element's row: `count` elements from `r` on are one run. */
static void emit_row_loop(const struct kiln__emit *emit)
{
    uint32_t inner = emit->form->rank - 1u;
    kiln__text_add(emit->text, "        for (%s r = from; r < to;) {\n", emit->index);
    if (emit->form->rank - emit->form->kept > 1)
        kiln__text_add(emit->text,
                       "            const %s count = min(d%u - r %% d%u, to - r);\n", emit->index,
                       inner, inner);
    else
        kiln__text_add(emit->text, "            const %s count = to - r;\n", emit->index);
    kiln__emit_reduced_bases(emit, "            ", "r");
    kiln__text_add(emit->text, "            %s i = 0;\n", emit->index);
}

static void emit_choice_of_none(const struct kiln__emit *emit)
{
    if (kiln__emit_row(emit)->indexed)
        kiln__text_add(emit->text,
                       "        if (" TOTAL_POSITION " == " KILN__NO_POSITION ")\n"
                       "            " TOTAL_POSITION " = (int)from;\n");
}

static void emit_rows(const struct kiln__emit *emit)
{
    unsigned unroll = choose_unroll(emit);
    kiln__text_add(emit->text, "    for (%s p = first; p < last; p++) {\n", emit->index);
    kiln__emit_result_bases(emit, "        ", "p");
    kiln__emit_accumulators(emit, "        ", TOTAL, 1, 1);
    kiln__emit_accumulators(emit, "        ", 0, unroll, emit->form->vector);
    emit_row_loop(emit);
    if (unroll > 1)
        emit_vectors(emit, unroll);
    emit_vectors(emit, 1);
    kiln__text_add(emit->text, "            for (; i < count; i++) {\n");
    emit_body(emit, "                ", TOTAL, 1, "i", "r + i");
    kiln__text_add(emit->text, "            }\n            r += count;\n        }\n");
    emit_fold(emit, unroll);
    emit_choice_of_none(emit);
    kiln__emit_finish(emit, "        ", 1, TOTAL_VALUE, TOTAL_POSITION, "p", "0");
    kiln__text_add(emit->text, "    }\n");
}

/* `width` results side by side. */
static void emit_column_block(const struct kiln__emit *emit, unsigned width)
{
    char position[48];
    struct kiln__type_name index = kiln__emit_type(KILN_I32, width);
    snprintf(position, sizeof position, "(%s)((int)r)", index.text);
    kiln__emit_accumulators(emit, "            ", 0, 1, width);
    kiln__text_add(emit->text, "            for (%s r = from; r < to; r++) {\n", emit->index);
    kiln__emit_reduced_bases(emit, "                ", "r");
    emit_body(emit, "                ", 0, width, "i", position);
    kiln__text_add(emit->text, "            }\n");
    if (kiln__emit_row(emit)->indexed)
        kiln__text_add(emit->text,
                       "            j0 = %s(j0 == " KILN__NO_POSITION ", (%s)((int)from), j0);\n",
                       width > 1 ? "PICK_VECTOR" : "PICK", index.text);
    kiln__emit_finish(emit, "            ", width, "a0", "j0", "p + i", "i");
}

static void emit_columns(const struct kiln__emit *emit)
{
    unsigned width = emit->form->vector, inner = emit->form->kept - 1u;
    kiln__text_add(emit->text, "    for (%s p = first; p < last;) {\n", emit->index);
    if (inner)
        kiln__text_add(emit->text, "        const %s count = min(d%u - p %% d%u, last - p);\n",
                       emit->index, inner, inner);
    else
        kiln__text_add(emit->text, "        const %s count = last - p;\n", emit->index);
    kiln__emit_result_bases(emit, "        ", "p");
    kiln__text_add(emit->text,
                   "        %s i = 0;\n        for (; i + %u <= count; i += %u) {\n", emit->index,
                   width, width);
    emit_column_block(emit, width);
    kiln__text_add(emit->text, "        }\n        for (; i < count; i++) {\n");
    emit_column_block(emit, 1);
    kiln__text_add(emit->text, "        }\n        p += count;\n    }\n");
}

static void emit_final(const struct kiln__emit *emit)
{
    kiln__text_add(emit->text, "    for (%s p = first; p < last; p++) {\n", emit->index);
    kiln__emit_result_bases(emit, "        ", "p");
    kiln__emit_accumulators(emit, "        ", TOTAL, 1, 1);
    kiln__text_add(emit->text, "        for (%s s = 0; s < segments; s++) {\n", emit->index);
    kiln__emit_merge(emit, "            ", TOTAL_VALUE, TOTAL_POSITION, "partial[partial_offset + s * n + p]",
                     "partial_position[position_offset + s * n + p]");
    kiln__text_add(emit->text, "        }\n");
    kiln__emit_finish(emit, "        ", 1, TOTAL_VALUE, TOTAL_POSITION, "p", "0");
    kiln__text_add(emit->text, "    }\n");
}

void kiln__emit_reduce(const struct kiln__emit *emit)
{
    kiln__emit_reduce_signature(emit, "chunk");
    kiln__text_add(emit->text,
                   "    const %s first = get_global_id(0) * chunk, last = min(first + chunk, n);\n"
                   "    const %s segment = get_global_id(1), from = segment * length;\n"
                   "    const %s to = min(from + length, reduced);\n",
                   emit->index, emit->index, emit->index);
    if (emit->form->stage == KILN__STAGE_FINAL)
        emit_final(emit);
    else if (emit->form->direction == KILN__ALONG_ROWS)
        emit_rows(emit);
    else
        emit_columns(emit);
    kiln__text_add(emit->text, "}\n");
}
