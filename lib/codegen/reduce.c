/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction kernels of chunked devices: a work-item owns a run of results.
 *
 * Along rows:    for each result { for vectors of its row { body } fold lanes, finish }
 * Along columns: for tiles of results { for each few rows { for vectors of results { body } }
 * finish } Final:         for each result { for each segment { merge } finish } */
#include <stdio.h>

#include "codegen/reduce.h"

static void emit_unrolled(const struct kiln__emit *emit, unsigned unroll, const char *apart)
{
    unsigned width = emit->form->vector;
    char positions[160];
    for (unsigned u = 0; u < unroll; u++) {
        char at[48], from[64];
        snprintf(at, sizeof at, u ? "(i + %s * %u)" : "i", apart, u);
        snprintf(from, sizeof from, "r + %s", at);
        kiln__emit_positions(positions, sizeof positions, from, width);
        kiln__text_add(emit->text, "                {\n");
        kiln__emit_element(emit, "                    ", u, width, at, positions);
        kiln__text_add(emit->text, "                }\n");
    }
}

/* Elements from which on memory is read faster at several places at once than in one run: as many
 * as a page or two, which is how far prefetching goes. */
#define LONG_RUN 4096

/* As many vectors as `unroll` divides: neighbours, or, of a long run, each from a part of its
 * own. */
static void emit_parts(const struct kiln__emit *emit, unsigned unroll)
{
    unsigned width = emit->form->vector;
    kiln__text_add(emit->text,
                   "            const bool apart = count >= %d;\n"
                   "            const %s whole = count / %u * %u, part = whole / %u;\n"
                   "            const %s between = apart ? part : %u, step = apart ? %u : %u;\n"
                   "            const %s end = apart ? part : whole;\n"
                   "            for (; i < end; i += step) {\n",
                   LONG_RUN, emit->index, unroll * width, unroll * width, unroll, emit->index,
                   width, width, unroll * width, emit->index);
    emit_unrolled(emit, unroll, "between");
    kiln__text_add(emit->text, "            }\n            i = whole;\n");
}

static void emit_vectors(const struct kiln__emit *emit)
{
    unsigned width = emit->form->vector;
    kiln__text_add(emit->text, "            for (; i + %u <= count; i += %u) {\n", width, width);
    emit_unrolled(emit, 1, "");
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
        emit_parts(emit, unroll);
    emit_vectors(emit);
    kiln__text_add(emit->text, "            for (; i < count; i++) {\n");
    kiln__emit_element(emit, "                ", KILN__TOTAL, 1, "i", "r + i");
    kiln__text_add(emit->text, "            }\n            r += count;\n        }\n");
    kiln__emit_fold(emit, "        ", unroll);
    kiln__emit_default_position(emit, "        ");
    kiln__emit_finish(emit, "        ", 1, KILN__TOTAL_VALUE, KILN__TOTAL_POSITION, "p", "0");
    kiln__text_add(emit->text, "    }\n");
}

/* ---- along columns ---- */

/* As many results as the nearest cache keeps accumulators of, beside the rows that are read. */
#define TILE 1024

/* Rows that are read at once: an accumulator is loaded and stored once for all of them. */
static unsigned choose_rows(const struct kiln__emit *emit)
{
    return kiln__emit_is_short(emit) ? 4 : 1;
}

static void emit_tile_start(const struct kiln__emit *emit)
{
    kiln__text_add(emit->text, "            for (int i = 0; i < tile; i++) {\n");
    kiln__emit_accumulators(emit, "                ", 0, 1, 1);
    kiln__text_add(emit->text, "                values[i] = a0;\n");
    if (kiln__emit_row(emit)->indexed)
        kiln__text_add(emit->text, "                places[i] = j0;\n");
    kiln__text_add(emit->text, "            }\n");
}

/* The `width` elements of a tile's array from `i` on. */
struct tile_text {
    char text[64];
};
static struct tile_text tile_elements(const char *array, kiln_type type, unsigned width)
{
    struct tile_text place;
    if (width == 1)
        snprintf(place.text, sizeof place.text, "%s[i]", array);
    else
        snprintf(place.text, sizeof place.text, "*(loose_%s *)(%s + i)",
                 kiln__emit_type(type, width).text, array);
    return place;
}

/* Declare accumulator 0 with the tile's elements. */
static void emit_tile_load(const struct kiln__emit *emit, const char *indent, unsigned width)
{
    kiln_type type = kiln__emit_accumulator(emit);
    kiln__text_add(emit->text, "%s%s a0 = %s;\n", indent, kiln__emit_type(type, width).text,
                   tile_elements("values", type, width).text);
    if (kiln__emit_row(emit)->indexed)
        kiln__text_add(emit->text, "%s%s j0 = %s;\n", indent, kiln__emit_type(KILN_I32, width).text,
                       tile_elements("places", KILN_I32, width).text);
}

static void emit_tile_keep(const struct kiln__emit *emit, const char *indent, unsigned width)
{
    kiln_type type = kiln__emit_accumulator(emit);
    kiln__text_add(emit->text, "%s%s = a0;\n", indent, tile_elements("values", type, width).text);
    if (kiln__emit_row(emit)->indexed)
        kiln__text_add(emit->text, "%s%s = j0;\n", indent,
                       tile_elements("places", KILN_I32, width).text);
}

/* Rows `r` to `r + rows - 1` into the accumulators, `width` of them at a time. */
static void emit_tile_rows(const struct kiln__emit *emit, unsigned rows, unsigned width)
{
    struct kiln__type_name index = kiln__emit_type(KILN_I32, width);
    char row[32], position[64];
    kiln__text_add(emit->text, "                for (; i + %u <= tile; i += %u) {\n", width, width);
    emit_tile_load(emit, "                    ", width);
    for (unsigned u = 0; u < rows; u++) {
        snprintf(row, sizeof row, "(r + %u)", u);
        snprintf(position, sizeof position, "(%s)((int)%s)", index.text, row);
        kiln__text_add(emit->text, "                    {\n");
        kiln__emit_reduced_bases(emit, "                        ", row);
        kiln__emit_element(emit, "                        ", 0, width, "(t + i)", position);
        kiln__text_add(emit->text, "                    }\n");
    }
    emit_tile_keep(emit, "                    ", width);
    kiln__text_add(emit->text, "                }\n");
}

static void emit_tile_blocks(const struct kiln__emit *emit, unsigned rows)
{
    kiln__text_add(emit->text,
                   "            for (; r + %u <= to; r += %u) {\n                int i = 0;\n",
                   rows, rows);
    emit_tile_rows(emit, rows, emit->form->vector);
    emit_tile_rows(emit, rows, 1);
    kiln__text_add(emit->text, "            }\n");
}

static void emit_tile_finish(const struct kiln__emit *emit, unsigned width)
{
    struct kiln__type_name index = kiln__emit_type(KILN_I32, width);
    kiln__text_add(emit->text, "            for (; i + %u <= tile; i += %u) {\n", width, width);
    emit_tile_load(emit, "                ", width);
    if (kiln__emit_row(emit)->indexed)
        kiln__text_add(emit->text,
                       "                j0 = %s(j0 == " KILN__NO_POSITION
                       ", (%s)((int)from), j0);\n",
                       width > 1 ? "PICK_VECTOR" : "PICK", index.text);
    kiln__emit_finish(emit, "                ", width, "a0", "j0", "p + t + i", "(t + i)");
    kiln__text_add(emit->text, "            }\n");
}

/* A run of `count` results that are neighbours, a tile at a time. */
static void emit_tiles(const struct kiln__emit *emit)
{
    unsigned rows = choose_rows(emit);
    kiln__text_add(emit->text,
                   "        for (%s t = 0; t < count; t += %d) {\n"
                   "            const int tile = min((%s)%d, count - t);\n",
                   emit->index, TILE, emit->index, TILE);
    emit_tile_start(emit);
    kiln__text_add(emit->text, "            %s r = from;\n", emit->index);
    emit_tile_blocks(emit, rows);
    if (rows > 1)
        emit_tile_blocks(emit, 1);
    kiln__text_add(emit->text, "            int i = 0;\n");
    emit_tile_finish(emit, emit->form->vector);
    emit_tile_finish(emit, 1);
    kiln__text_add(emit->text, "        }\n");
}

static void emit_columns(const struct kiln__emit *emit)
{
    unsigned inner = emit->form->kept - 1u;
    kiln__text_add(emit->text, "    %s values[%d];\n",
                   kiln__type_row(kiln__emit_accumulator(emit))->device, TILE);
    if (kiln__emit_row(emit)->indexed)
        kiln__text_add(emit->text, "    int places[%d];\n", TILE);
    kiln__text_add(emit->text, "    for (%s p = first; p < last;) {\n", emit->index);
    if (inner)
        kiln__text_add(emit->text, "        const %s count = min(d%u - p %% d%u, last - p);\n",
                       emit->index, inner, inner);
    else
        kiln__text_add(emit->text, "        const %s count = last - p;\n", emit->index);
    kiln__emit_result_bases(emit, "        ", "p");
    emit_tiles(emit);
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
                     "partial_position[partial_position_offset + s * n + p]");
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
