/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction kernels of chunked devices: a work-item owns a run of results.
 *
 * Along rows:    for each result { for vectors of its row { body } fold lanes, finish }
 * Along columns: for vectors of results { for each row { body } finish }
 * Final:         for each result { for each segment { merge } finish } */
#include <stdio.h>

#include "codegen/reduce.h"

static void emit_vectors(const struct kiln__emit *emit, unsigned unroll)
{
    unsigned width = emit->form->vector;
    char positions[160];
    kiln__emit_positions(positions, sizeof positions, "r + i", width);
    kiln__text_add(emit->text, "            for (; i + %u <= count; i += %u) {\n", width * unroll,
                   width * unroll);
    for (unsigned u = 0; u < unroll; u++) {
        char at[32];
        snprintf(at, sizeof at, "(i + %u)", u * width);
        kiln__text_add(emit->text, "                {\n");
        kiln__emit_element(emit, "                    ", u, width, u ? at : "i", positions);
        kiln__text_add(emit->text, "                }\n");
    }
    kiln__text_add(emit->text, "            }\n");
}

/* A reduced element's row: `count` elements from `r` on are one run. */
static void emit_row_loop(const struct kiln__emit *emit)
{
    uint32_t inner = emit->form->rank - 1u;
    kiln__text_add(emit->text, "        for (%s r = from; r < to;) {\n", emit->index);
    if (emit->form->rank - emit->form->kept > 1)
        kiln__text_add(emit->text, "            const %s count = min(d%u - r %% d%u, to - r);\n",
                       emit->index, inner, inner);
    else
        kiln__text_add(emit->text, "            const %s count = to - r;\n", emit->index);
    kiln__emit_reduced_bases(emit, "            ", "r");
    kiln__text_add(emit->text, "            %s i = 0;\n", emit->index);
}

static void emit_rows(const struct kiln__emit *emit)
{
    unsigned unroll = kiln__emit_unroll(emit);
    kiln__text_add(emit->text, "    for (%s p = first; p < last; p++) {\n", emit->index);
    kiln__emit_result_bases(emit, "        ", "p");
    kiln__emit_accumulators(emit, "        ", KILN__TOTAL, 1, 1);
    kiln__emit_accumulators(emit, "        ", 0, unroll, emit->form->vector);
    emit_row_loop(emit);
    if (unroll > 1)
        emit_vectors(emit, unroll);
    emit_vectors(emit, 1);
    kiln__text_add(emit->text, "            for (; i < count; i++) {\n");
    kiln__emit_element(emit, "                ", KILN__TOTAL, 1, "i", "r + i");
    kiln__text_add(emit->text, "            }\n            r += count;\n        }\n");
    kiln__emit_fold(emit, "        ", unroll);
    kiln__emit_default_position(emit, "        ");
    kiln__emit_finish(emit, "        ", 1, KILN__TOTAL_VALUE, KILN__TOTAL_POSITION, "p", "0");
    kiln__text_add(emit->text, "    }\n");
}

/* Vectors of results side by side: several make longer runs of each row that is read. */
static unsigned choose_column_vectors(const struct kiln__emit *emit)
{
    bool short_body = emit->group->reduced_step <= 6;
    return short_body ? 4 : 1;
}

/* `vectors` times `width` results side by side. */
static void emit_column_block(const struct kiln__emit *emit, unsigned vectors, unsigned width)
{
    char position[48], at[32], place[48], a[16], j[16];
    struct kiln__type_name index = kiln__emit_type(KILN_I32, width);
    snprintf(position, sizeof position, "(%s)((int)r)", index.text);
    kiln__emit_accumulators(emit, "            ", 0, vectors, width);
    kiln__text_add(emit->text, "            for (%s r = from; r < to; r++) {\n", emit->index);
    kiln__emit_reduced_bases(emit, "                ", "r");
    for (unsigned u = 0; u < vectors; u++) {
        snprintf(at, sizeof at, "(i + %u)", u * width);
        kiln__text_add(emit->text, "                {\n");
        kiln__emit_element(emit, "                    ", u, width, at, position);
        kiln__text_add(emit->text, "                }\n");
    }
    kiln__text_add(emit->text, "            }\n");
    for (unsigned u = 0; u < vectors; u++) {
        snprintf(at, sizeof at, "(i + %u)", u * width);
        snprintf(place, sizeof place, "p + i + %u", u * width);
        snprintf(a, sizeof a, "a%u", u);
        snprintf(j, sizeof j, "j%u", u);
        kiln__text_add(emit->text, "            {\n");
        if (kiln__emit_row(emit)->indexed)
            kiln__text_add(emit->text,
                           "                %s = %s(%s == " KILN__NO_POSITION
                           ", (%s)((int)from), %s);\n",
                           j, width > 1 ? "PICK_VECTOR" : "PICK", j, index.text, j);
        kiln__emit_finish(emit, "                ", width, a, j, place, at);
        kiln__text_add(emit->text, "            }\n");
    }
}

/* Blocks of results while there are that many. */
static void emit_column_loop(const struct kiln__emit *emit, unsigned vectors, unsigned width)
{
    kiln__text_add(emit->text, "        for (; i + %u <= count; i += %u) {\n", vectors * width,
                   vectors * width);
    emit_column_block(emit, vectors, width);
    kiln__text_add(emit->text, "        }\n");
}

static void emit_columns(const struct kiln__emit *emit)
{
    unsigned vectors = choose_column_vectors(emit), inner = emit->form->kept - 1u;
    kiln__text_add(emit->text, "    for (%s p = first; p < last;) {\n", emit->index);
    if (inner)
        kiln__text_add(emit->text, "        const %s count = min(d%u - p %% d%u, last - p);\n",
                       emit->index, inner, inner);
    else
        kiln__text_add(emit->text, "        const %s count = last - p;\n", emit->index);
    kiln__emit_result_bases(emit, "        ", "p");
    kiln__text_add(emit->text, "        %s i = 0;\n", emit->index);
    if (vectors > 1)
        emit_column_loop(emit, vectors, emit->form->vector);
    emit_column_loop(emit, 1, emit->form->vector);
    emit_column_loop(emit, 1, 1);
    kiln__text_add(emit->text, "        p += count;\n    }\n");
}

static void emit_final(const struct kiln__emit *emit)
{
    kiln__text_add(emit->text, "    for (%s p = first; p < last; p++) {\n", emit->index);
    kiln__emit_result_bases(emit, "        ", "p");
    kiln__emit_accumulators(emit, "        ", KILN__TOTAL, 1, 1);
    kiln__text_add(emit->text, "        for (%s s = 0; s < segments; s++) {\n", emit->index);
    kiln__emit_merge(emit, "            ", KILN__TOTAL_VALUE, KILN__TOTAL_POSITION,
                     "partial[partial_offset + s * n + p]",
                     "partial_position[position_offset + s * n + p]");
    kiln__text_add(emit->text, "        }\n");
    kiln__emit_finish(emit, "        ", 1, KILN__TOTAL_VALUE, KILN__TOTAL_POSITION, "p", "0");
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
