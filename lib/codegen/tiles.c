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
#include "codegen/loops.h"

/* A square block's rows become its columns. An element's address is (row, lane); each stage moves
 * its bits by one place, so that half of them swaps the two. */
static void emit_turn(const struct kiln__emit *emit, kiln_type type)
{
    unsigned width = emit->variant->vector;
    struct kiln__type_name name = kiln__emit_type(type, width);
    kiln__code_function(emit->code,
                        "static inline __attribute__((always_inline)) void turn_%s(%s *block)",
                        name.text, name.text);
    kiln__code_unroll(emit->code, 0);
    kiln__code_for(emit->code, "int stage = 1; stage < %u; stage *= 2", width);
    kiln__code_add(emit->code, "%s next[%u]", name.text, width);
    kiln__code_unroll(emit->code, 0);
    kiln__code_for(emit->code, "int i = 0; i < %u; i++", width / 2);
    kiln__code_add(emit->code,
                   "next[i] = (%s)(block[2 * i].even, block[2 * i + 1].even)\n"
                   "next[i + %u] = (%s)(block[2 * i].odd, block[2 * i + 1].odd)",
                   name.text, width / 2, name.text);
    kiln__code_end(emit->code);
    kiln__code_unroll(emit->code, 0);
    kiln__code_single(emit->code, KILN__FOR, "int i = 0; i < %u; i++", width);
    kiln__code_add(emit->code, "block[i] = next[i]");
    kiln__code_end(emit->code);
    kiln__code_end(emit->code);
}

static bool is_turned(const struct kiln__emit *emit, const struct kiln__step *step)
{
    return step->kind == KILN__STEP_LOAD && emit->variant->along[step->index] == KILN__ACROSS;
}

void kiln__emit_tile_transposes(const struct kiln__emit *emit)
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
    kiln__code_add(body->code,
                   "const idx t%u = %s, from%u = t%u * %d\n"
                   "const idx to%u = t%u + 1 == tiles%u ? d%u : from%u + %d",
                   d, number.text, d, d, KILN__TILE, d, d, d, d, d, KILN__TILE);
}

/* Coordinates of the dimensions that a tile does not span. */
static void emit_others(const struct kiln__body *body, uint32_t across, uint32_t last)
{
    kiln__code_add(body->code, "idx rest = tile / tiles%u / tiles%u", last, across);
    for (uint32_t d = last; d-- > 0;)
        if (d != across)
            kiln__code_add(body->code, "const idx c_%u = rest %% d%u\nrest /= d%u", d, d, d);
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
    struct kiln__phrase offset =
        kiln__phrase("o%u%s%s + (l + r) * s%u_%u + e", k, kiln__emit_dot(k, 0, across).text,
                     kiln__emit_dot(k, across + 1, last).text, k, last);
    struct kiln__elements elements =
        kiln__emit_run(body->emit, step->type, width, kiln__phrase("x%u", k), offset);
    kiln__code_add(body->code, "%s t%u[%u]", type.text, k, width);
    kiln__code_unroll(body->code, 0);
    kiln__code_single(body->code, KILN__FOR, "int r = 0; r < %u; r++", width);
    kiln__emit_load(kiln__code_add(body->code, "t%u[r] = ", k), &elements);
    kiln__code_add(body->code, "turn_%s(t%u)", type.text, k);
}

/* Where row `r` of a block is. */
static void emit_row_bases(const struct kiln__body *body, uint32_t across, uint32_t last)
{
    kiln__code_add(body->code, "const idx c_%u = e + r", across);
    kiln__body_bases(body, last);
    if (body->variant->placed)
        return;
    kiln__code_add(body->code, "idx p = c_0");
    for (uint32_t d = 1; d < last; d++)
        kiln__code_add(body->code, "p = p * d%u + c_%u", d, d);
    kiln__code_add(body->code, "p *= d%u", last);
}

/* The last block of a tile starts early enough to end with it: no tile is smaller than a block, and
 * storing an element twice does no harm. */
static void emit_blocks(const struct kiln__body *body, uint32_t across, uint32_t last)
{
    unsigned width = body->variant->vector;
    kiln__code_for(body->code, "idx f = from%u; f < to%u; f += %u", across, across, width);
    kiln__code_add(body->code, "const idx e = min(f, to%u - %u)", across, width);
    kiln__code_for(body->code, "idx g = from%u; g < to%u; g += %u", last, last, width);
    kiln__code_add(body->code, "const idx l = min(g, to%u - %u)", last, width);
    for (size_t i = 0; i < body->group->steps.count; i++)
        if (is_turned(body->emit, &body->group->steps.items[i]))
            emit_turned_load(body, &body->group->steps.items[i], across, last);
    kiln__code_for(body->code, "int r = 0; r < %u; r++", width);
    emit_row_bases(body, across, last);
    kiln__body_element(body, width, "l", "", 0);
    kiln__code_end(body->code);
    kiln__code_end(body->code);
    kiln__code_end(body->code);
}

/* A line of the tile lies along `across` in memory. What is beyond the last elements is read in
 * their place. Rows of local memory are one longer than the tile, so that neighbours down a column
 * lie in different banks. */
static void emit_local_load(const struct kiln__body *body, const struct kiln__step *step,
                            uint32_t across, uint32_t last)
{
    unsigned k = step->index;
    struct kiln__phrase offset =
        kiln__phrase("o%u%s%s + min(from%u + r, d%u - 1) * s%u_%u + min(from%u + lane, d%u - 1)", k,
                     kiln__emit_dot(k, 0, across).text, kiln__emit_dot(k, across + 1, last).text,
                     last, last, k, last, across, across);
    struct kiln__elements elements =
        kiln__emit_run(body->emit, step->type, 1, kiln__phrase("x%u", k), offset);
    kiln__emit_load(kiln__code_add(body->code, "t%u[r][lane] = ", k), &elements);
}

static void open_lines(const struct kiln__body *body)
{
    unsigned tile = body->variant->tile, items = 1u << body->variant->work_group;
    kiln__code_unroll(body->code, 0);
    kiln__code_for(body->code, "int first = 0; first < %u; first += %u", tile, items / tile);
    kiln__code_add(body->code, "const int r = first + line");
}

static void emit_local_tile(struct kiln__body *body, uint32_t across, uint32_t last)
{
    const struct kiln__group *group = body->group;
    unsigned tile = body->variant->tile;
    struct kiln__phrase first = kiln__phrase("tile %% tiles%u * %u", last, tile);
    struct kiln__phrase second = kiln__phrase("tile / tiles%u %% tiles%u * %u", last, across, tile);
    for (size_t i = 0; i < group->steps.count; i++)
        if (is_turned(body->emit, &group->steps.items[i]))
            kiln__code_add(body->code, "local %s t%u[%u][%u]",
                           kiln__emit_type(group->steps.items[i].type, 1).text,
                           group->steps.items[i].index, tile, tile + 1);
    kiln__code_add(body->code,
                   "const int lane = (int)get_local_id(0) %% %u, line = (int)get_local_id(0) / %u\n"
                   "const idx tiles%u = (d%u + %u) / %u, tiles%u = (d%u + %u) / %u\n"
                   "const idx tile = get_group_id(0)",
                   tile, tile, across, across, tile - 1, tile, last, last, tile - 1, tile);
    emit_others(body, across, last);
    kiln__code_add(body->code, "const idx from%u = %s, from%u = %s", last, first.text, across,
                   second.text);
    open_lines(body);
    for (size_t i = 0; i < group->steps.count; i++)
        if (is_turned(body->emit, &group->steps.items[i]))
            emit_local_load(body, &group->steps.items[i], across, last);
    kiln__code_end(body->code);
    kiln__code_barrier(body->code);
    kiln__code_add(body->code, "const idx e = from%u, l = from%u + lane", across, last);
    kiln__code_leave(body->code, "return", "l >= d%u", last);
    open_lines(body);
    kiln__code_if(body->code, "e + r < d%u", across);
    emit_row_bases(body, across, last);
    kiln__body_element(body, 1, "l", "", 0);
    kiln__code_end(body->code);
    kiln__code_end(body->code);
}

static void emit_chunk_of_tiles(struct kiln__body *body, uint32_t across, uint32_t last)
{
    unsigned width = body->variant->vector;
    kiln__code_add(body->code,
                   "const idx first = get_global_id(0) * chunk, last = min(first + chunk, n)\n"
                   "const idx tiles%u = max(d%u / %d, (idx)1), tiles%u = max(d%u / %d, (idx)1)",
                   across, across, KILN__TILE, last, last, KILN__TILE);
    if (body->variant->streams)
        kiln__code_add(body->code,
                       "const int stream = wanted && d%u %% %u == 0 && "
                       "(size_t)(y0 + q0) %% (%u * sizeof *y0) == 0",
                       last, width, width);
    kiln__code_for(body->code, "idx tile = first; tile < last; tile++");
    emit_tile(body, across, last);
    emit_blocks(body, across, last);
    kiln__code_end(body->code);
}

void kiln__emit_tiles(struct kiln__body *body)
{
    uint32_t last = body->variant->rank - 1u, across = body->variant->across - 1u;
    if (body->variant->chunked)
        emit_chunk_of_tiles(body, across, last);
    else
        emit_local_tile(body, across, last);
}
