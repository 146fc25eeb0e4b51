/* SPDX-License-Identifier: Apache-2.0 */
/* Maps with accesses whose neighbours lie along another dimension than the last. On chunked
 * devices:
 *
 *   for each tile { for each block { load it turned; for each of its rows { bases; body } } }
 *
 * Elsewhere a tile is a work-group's, whose items read neighbours before the barrier and write
 * neighbours behind it:
 *
 *   for each line { load into local memory } barrier; for each line { bases; body } */
#include "codegen/tiles.h"

/* A square block's rows become its columns. An element's address is (row, lane); each stage moves
 * its bits by one place, so that half of them swaps the two. */
static void emit_turn(const struct kiln__emit *emit, kiln_type type)
{
    unsigned width = emit->variant->vector;
    struct kiln__type_name name = kiln__emit_type(type, width);
    kiln__text_add(emit->text,
                   "static inline __attribute__((always_inline)) void turn_%s(%s *block)\n{\n"
                   "#pragma unroll\n"
                   "for (int stage = 1; stage < %u; stage *= 2) {\n"
                   "%s next[%u];\n"
                   "#pragma unroll\n"
                   "for (int i = 0; i < %u; i++) {\n"
                   "next[i] = (%s)(block[2 * i].even, block[2 * i + 1].even);\n"
                   "next[i + %u] = (%s)(block[2 * i].odd, block[2 * i + 1].odd);\n"
                   "}\n"
                   "#pragma unroll\n"
                   "for (int i = 0; i < %u; i++)\n"
                   "block[i] = next[i];\n"
                   "}\n}\n",
                   name.text, name.text, width, name.text, width, width / 2, name.text, width / 2,
                   name.text, width);
}

static bool is_turned(const struct kiln__emit *emit, const struct kiln__step *step)
{
    return step->kind == KILN__STEP_LOAD && emit->variant->along[step->index] == KILN__ACROSS;
}

void kiln__emit_turns(const struct kiln__emit *emit)
{
    bool seen[16] = {false};
    for (size_t i = 0; i < emit->group->steps.count; i++) {
        const struct kiln__step *step = &emit->group->steps.items[i];
        kiln_type type = kiln__type_row(step->type)->computed;
        if (!is_turned(emit, step) || seen[type])
            continue;
        seen[type] = true;
        emit_turn(emit, type);
    }
}

/* [from<d>, to<d>): the part of dimension d that tile number `number` covers. */
static void emit_range(const struct kiln__body *body, uint32_t d, struct kiln__phrase number)
{
    kiln__text_add(body->text,
                   "const idx t%u = %s, from%u = t%u * %d;\n"
                   "const idx to%u = t%u + 1 == tiles%u ? d%u : from%u + %d;\n",
                   d, number.text, d, d, KILN__TILE, d, d, d, d, d, KILN__TILE);
}

/* Coordinates of the dimensions that a tile does not span. */
static void emit_others(const struct kiln__body *body, uint32_t across, uint32_t last)
{
    kiln__text_add(body->text, "idx rest = tile / tiles%u / tiles%u;\n", last, across);
    for (uint32_t d = last; d-- > 0;)
        if (d != across)
            kiln__text_add(body->text, "const idx c_%u = rest %% d%u;\nrest /= d%u;\n", d, d, d);
}

/* These, and where a tile is in the two that it does. */
static void emit_tile(const struct kiln__body *body, uint32_t across, uint32_t last)
{
    emit_others(body, across, last);
    emit_range(body, last, kiln__phrase("tile %% tiles%u", last));
    emit_range(body, across, kiln__phrase("tile / tiles%u %% tiles%u", last, across));
}

static void emit_turned_load(const struct kiln__body *body, const struct kiln__step *step,
                             uint32_t across, uint32_t last)
{
    unsigned width = body->variant->vector, k = step->index;
    struct kiln__type_name type = kiln__emit_type(step->type, width);
    struct kiln__phrase pointer = kiln__phrase("x%u", k);
    struct kiln__phrase offset =
        kiln__phrase("o%u%s%s + (l + r) * s%u_%u + e", k, kiln__emit_dot(k, 0, across).text,
                     kiln__emit_dot(k, across + 1, last).text, k, last);
    struct kiln__elements elements =
        kiln__emit_run(body->emit, step->type, width, pointer.text, offset.text);
    kiln__text_add(body->text,
                   "%s t%u[%u];\n"
                   "#pragma unroll\n"
                   "for (int r = 0; r < %u; r++)\n"
                   "t%u[r] = ",
                   type.text, k, width, width, k);
    kiln__emit_load(body->text, &elements);
    kiln__text_add(body->text, ";\nturn_%s(t%u);\n", type.text, k);
}

/* Where row `r` of a block is. */
static void emit_row_bases(const struct kiln__body *body, uint32_t across, uint32_t last)
{
    kiln__text_add(body->text, "const idx c_%u = e + r;\n", across);
    kiln__body_bases(body, last);
    if (body->variant->placed)
        return;
    kiln__text_add(body->text, "idx p = c_0;\n");
    for (uint32_t d = 1; d < last; d++)
        kiln__text_add(body->text, "p = p * d%u + c_%u;\n", d, d);
    kiln__text_add(body->text, "p *= d%u;\n", last);
}

/* The last block of a tile starts early enough to end with it: no tile is smaller than a block, and
 * storing an element twice does no harm. */
static void emit_blocks(const struct kiln__body *body, uint32_t across, uint32_t last)
{
    unsigned width = body->variant->vector;
    kiln__text_add(body->text,
                   "for (idx f = from%u; f < to%u; f += %u) {\n"
                   "const idx e = min(f, to%u - %u);\n"
                   "for (idx g = from%u; g < to%u; g += %u) {\n"
                   "const idx l = min(g, to%u - %u);\n",
                   across, across, width, across, width, last, last, width, last, width);
    for (size_t i = 0; i < body->group->steps.count; i++)
        if (is_turned(body->emit, &body->group->steps.items[i]))
            emit_turned_load(body, &body->group->steps.items[i], across, last);
    kiln__text_add(body->text, "for (int r = 0; r < %u; r++) {\n", width);
    emit_row_bases(body, across, last);
    kiln__body_element(body, width, "l", "", 0);
    kiln__text_add(body->text, "}\n}\n}\n");
}

/* A line of the tile lies along `across` in memory. What is beyond the last elements is read in
 * their place. Rows of local memory are one longer than the tile, so that neighbours down a column
 * lie in different banks. */
static void emit_local_load(const struct kiln__body *body, const struct kiln__step *step,
                            uint32_t across, uint32_t last)
{
    unsigned k = step->index;
    struct kiln__phrase pointer = kiln__phrase("x%u", k);
    struct kiln__phrase offset =
        kiln__phrase("o%u%s%s + min(from%u + r, d%u - 1) * s%u_%u + min(from%u + lane, d%u - 1)", k,
                     kiln__emit_dot(k, 0, across).text, kiln__emit_dot(k, across + 1, last).text,
                     last, last, k, last, across, across);
    struct kiln__elements elements =
        kiln__emit_run(body->emit, step->type, 1, pointer.text, offset.text);
    kiln__text_add(body->text, "t%u[r][lane] = ", k);
    kiln__emit_load(body->text, &elements);
    kiln__text_add(body->text, ";\n");
}

static void open_lines(const struct kiln__body *body)
{
    unsigned tile = body->variant->tile, items = 1u << body->variant->work_group;
    kiln__text_add(body->text,
                   "#pragma unroll\n"
                   "for (int first = 0; first < %u; first += %u) {\n"
                   "const int r = first + line;\n",
                   tile, items / tile);
}

static void emit_local_tile(struct kiln__body *body, uint32_t across, uint32_t last)
{
    const struct kiln__group *group = body->group;
    unsigned tile = body->variant->tile;
    struct kiln__phrase first = kiln__phrase("tile %% tiles%u * %u", last, tile);
    struct kiln__phrase second = kiln__phrase("tile / tiles%u %% tiles%u * %u", last, across, tile);
    for (size_t i = 0; i < group->steps.count; i++)
        if (is_turned(body->emit, &group->steps.items[i]))
            kiln__text_add(body->text, "local %s t%u[%u][%u];\n",
                           kiln__emit_type(group->steps.items[i].type, 1).text,
                           group->steps.items[i].index, tile, tile + 1);
    kiln__text_add(
        body->text,
        "const int lane = (int)get_local_id(0) %% %u, line = (int)get_local_id(0) / %u;\n"
        "const idx tiles%u = (d%u + %u) / %u, tiles%u = (d%u + %u) / %u;\n"
        "const idx tile = get_group_id(0);\n",
        tile, tile, across, across, tile - 1, tile, last, last, tile - 1, tile);
    emit_others(body, across, last);
    kiln__text_add(body->text, "const idx from%u = %s, from%u = %s;\n", last, first.text, across,
                   second.text);
    open_lines(body);
    for (size_t i = 0; i < group->steps.count; i++)
        if (is_turned(body->emit, &group->steps.items[i]))
            emit_local_load(body, &group->steps.items[i], across, last);
    kiln__text_add(body->text,
                   "}\n"
                   "barrier(CLK_LOCAL_MEM_FENCE);\n"
                   "const idx e = from%u, l = from%u + lane;\n"
                   "if (l >= d%u)\n"
                   "return;\n",
                   across, last, last);
    open_lines(body);
    kiln__text_add(body->text, "if (e + r < d%u) {\n", across);
    emit_row_bases(body, across, last);
    kiln__body_element(body, 1, "l", "", 0);
    kiln__text_add(body->text, "}\n}\n");
}

static void emit_chunk_of_tiles(struct kiln__body *body, uint32_t across, uint32_t last)
{
    unsigned width = body->variant->vector;
    kiln__text_add(body->text,
                   "const idx first = get_global_id(0) * chunk, last = min(first + chunk, n);\n"
                   "const idx tiles%u = max(d%u / %d, (idx)1), tiles%u = max(d%u / %d, (idx)1);\n",
                   across, across, KILN__TILE, last, last, KILN__TILE);
    if (body->variant->streams)
        kiln__text_add(body->text,
                       "const int stream = wanted && d%u %% %u == 0 &&\n"
                       "(size_t)(y0 + q0) %% (%u * sizeof *y0) == 0;\n",
                       last, width, width);
    kiln__text_add(body->text, "for (idx tile = first; tile < last; tile++) {\n");
    emit_tile(body, across, last);
    emit_blocks(body, across, last);
    kiln__text_add(body->text, "}\n");
}

void kiln__emit_tiles(struct kiln__body *body)
{
    uint32_t last = body->variant->rank - 1u, across = body->variant->across - 1u;
    if (body->variant->chunked)
        emit_chunk_of_tiles(body, across, last);
    else
        emit_local_tile(body, across, last);
}
