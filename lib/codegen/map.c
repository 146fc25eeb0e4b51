/* SPDX-License-Identifier: Apache-2.0 */
/* Map kernels.
 *
 * Chunked, a work-item walks a long run of elements row by row:
 *   for each row of [first, last) { bases; for vectors { body } for the rest { body } }
 * Chunked with accesses that lie across, it walks tiles of the two dimensions:
 *   for each tile for each block { load turned for each row { bases; body } }
 * Otherwise a work-item does one vector:
 *   bases; if it is whole { body } else for the rest { body } */
#include "codegen/emit.h"

#include <stdio.h>

/* A cache line, to which non-temporal stores must be aligned with 16-wide vectors. */
#define LINE 64

static void emit_signature(const struct kiln__emit *emit)
{
    if (emit->form->chunked)
        kiln__text_add(emit->text, "kernel __attribute__((reqd_work_group_size(1, 1, 1)))\n");
    else
        kiln__text_add(emit->text, "kernel ");
    kiln__text_add(emit->text, "void kiln_map(const %s n", emit->index);
    if (emit->form->chunked)
        kiln__text_add(emit->text, ", const %s chunk", emit->index);
    if (emit->form->streams)
        kiln__text_add(emit->text, ", const int %s", emit->form->across ? "wanted" : "stream");
    if (emit->form->across)
        kiln__text_add(emit->text, ", const %s d0", emit->index);
    for (uint32_t d = 1; d < emit->form->rank; d++)
        kiln__text_add(emit->text, ", const %s d%u", emit->index, d);
    kiln__emit_accesses(emit);
    kiln__emit_stores(emit);
    kiln__emit_scalars(emit);
    kiln__text_add(emit->text, ")\n{\n");
    kiln__emit_updated(emit);
}

/* Where a placed store is at the coordinates of dimensions 0 to `end`. */
static void emit_store_base(const struct kiln__emit *emit, const char *indent, uint32_t end)
{
    if (!emit->form->placed)
        return;
    kiln__text_add(emit->text, "%sconst %s z0 = q0", indent, emit->index);
    for (uint32_t d = 0; d < end; d++)
        kiln__text_add(emit->text, " + c_%u * u0_%u", d, d);
    kiln__text_add(emit->text, ";\n");
}

/* Where element p is, for each access and store. */
static void emit_bases(const struct kiln__emit *emit, const char *indent)
{
    bool strides = emit->form->placed;
    for (size_t k = 0; k < emit->group->accesses.count; k++)
        strides = strides || emit->form->along[k] != KILN__LINEAR;
    if (strides)
        kiln__emit_coordinates(emit, indent, "p", 0, emit->form->rank);
    for (size_t k = 0; k < emit->group->accesses.count; k++) {
        kiln__text_add(emit->text, "%sconst %s b%zu = o%zu", indent, emit->index, k, k);
        if (emit->form->along[k] == KILN__LINEAR)
            kiln__text_add(emit->text, " + p");
        else
            kiln__text_add(emit->text, "%s", kiln__emit_dot(k, 0, emit->form->rank).text);
        kiln__text_add(emit->text, ";\n");
    }
    emit_store_base(emit, indent, emit->form->rank);
}

static void emit_result(const struct kiln__emit *emit, size_t k, unsigned width, const char *at)
{
    uint16_t step = emit->group->stores.items[k].step;
    bool scattered = emit->form->placed == KILN__STRIDED;
    struct kiln__phrase offset = scattered            ? kiln__phrase("z%zu", k)
                                 : emit->form->placed ? kiln__phrase("z%zu + %s", k, at)
                                                      : kiln__phrase("q%zu + p + %s", k, at);
    struct kiln__phrase pointer = kiln__phrase("y%zu", k);
    struct kiln__phrase stride = kiln__phrase("u%zu_%u", k, emit->form->rank - 1u);
    struct kiln__elements elements = {
        .type = (kiln_type)emit->group->steps.items[step].type,
        .width = width,
        .fit = scattered ? KILN__FIT_STRIDED : kiln__emit_fit(emit),
        .pointer = pointer.text,
        .offset = offset.text,
        .at = at,
        .stride = stride.text,
    };
    kiln__emit_store(emit->text, &elements, kiln__emit_value(emit, step).text, emit->form->streams);
}

static void emit_results(const struct kiln__emit *emit, unsigned width, const char *at)
{
    for (size_t k = 0; k < emit->group->stores.count; k++)
        emit_result(emit, k, width, at);
}

static void emit_body(const struct kiln__emit *emit, const char *indent, unsigned width,
                      const char *at)
{
    kiln__emit_steps(emit, indent, 0, (unsigned)emit->group->steps.count, width, "b", at);
    emit_results(emit, width, at);
}

/* What a step costs at least where two vectors are worth computing side by side. */
#define COSTLY 8

/* Functions are long chains in which each operation waits for the one before: two vectors, step by
 * step beside each other, wait together. */
static bool has_costly_step(const struct kiln__group *group)
{
    for (size_t i = 0; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        if (step->kind == KILN__STEP_APPLY && kiln__elementwise_rows[step->op].cost >= COSTLY)
            return true;
    }
    return false;
}

static void emit_pairs(const struct kiln__emit *emit)
{
    struct kiln__emit twin = *emit;
    unsigned width = emit->form->vector;
    char at[32];
    twin.letter = 'w';
    snprintf(at, sizeof at, "(i + %u)", width);
    kiln__text_add(emit->text, "            for (; i + %u <= count; i += %u) {\n", 2 * width,
                   2 * width);
    for (unsigned i = 0; i < emit->group->steps.count; i++) {
        kiln__emit_steps(emit, "                ", i, i + 1, width, "b", "i");
        kiln__emit_steps(&twin, "                ", i, i + 1, width, "b", at);
    }
    emit_results(emit, width, "i");
    emit_results(&twin, width, at);
    kiln__text_add(emit->text, "            }\n");
}

/* Vectors, and single elements after them; before them too where a streaming store needs them to
 * start at a cache line. */
static void emit_run(const struct kiln__emit *emit)
{
    const char *index = emit->index;
    unsigned width = emit->form->vector;
    if (emit->form->streams)
        kiln__text_add(emit->text,
                       "        const %s head = stream ? (%d - ((size_t)(y0 + q0 + p) & %d)) / "
                       "(int)sizeof *y0 %% (%d / (int)sizeof *y0) : 0;\n",
                       index, LINE, LINE - 1, LINE);
    kiln__text_add(emit->text, "        %s i = 0, stop = %s;\n", index,
                   emit->form->streams ? "min(head, count)" : "0");
    kiln__text_add(emit->text, "        for (;;) {\n            for (; i < stop; i++) {\n");
    emit_body(emit, "                ", 1, "i");
    kiln__text_add(emit->text, "            }\n"
                               "            if (i == count)\n"
                               "                break;\n");
    if (width > 1 && has_costly_step(emit->group))
        emit_pairs(emit);
    kiln__text_add(emit->text, "            for (; i + %u <= count; i += %u) {\n", width, width);
    emit_body(emit, "                ", width, "i");
    kiln__text_add(emit->text, "            }\n"
                               "            stop = count;\n"
                               "        }\n");
}

static void emit_chunked(const struct kiln__emit *emit)
{
    uint32_t rank = emit->form->rank;
    kiln__text_add(emit->text,
                   "    const %s first = get_global_id(0) * chunk, last = min(first + chunk, n);\n"
                   "    for (%s p = first; p < last;) {\n",
                   emit->index, emit->index);
    if (rank > 1)
        kiln__text_add(emit->text, "        const %s count = min(d%u - p %% d%u, last - p);\n",
                       emit->index, rank - 1, rank - 1);
    else
        kiln__text_add(emit->text, "        const %s count = last - p;\n", emit->index);
    emit_bases(emit, "        ");
    emit_run(emit);
    kiln__text_add(emit->text, "        p += count;\n    }\n}\n");
}

/* ---- turned ---- */

/* A square block's rows become its columns. An element's address is (row, lane); each stage moves
 * its bits by one place, so that half of them swaps the two. */
static void emit_turn(const struct kiln__emit *emit, kiln_type type)
{
    unsigned width = emit->form->vector;
    struct kiln__type_name name = kiln__emit_type(type, width);
    kiln__text_add(emit->text,
                   "static inline __attribute__((always_inline)) void turn_%s(%s *block)\n{\n"
                   "#pragma unroll\n"
                   "    for (int stage = 1; stage < %u; stage *= 2) {\n"
                   "        %s next[%u];\n"
                   "#pragma unroll\n"
                   "        for (int i = 0; i < %u; i++) {\n"
                   "            next[i] = (%s)(block[2 * i].even, block[2 * i + 1].even);\n"
                   "            next[i + %u] = (%s)(block[2 * i].odd, block[2 * i + 1].odd);\n"
                   "        }\n"
                   "#pragma unroll\n"
                   "        for (int i = 0; i < %u; i++)\n"
                   "            block[i] = next[i];\n"
                   "    }\n}\n",
                   name.text, name.text, width, name.text, width, width / 2, name.text, width / 2,
                   name.text, width);
}

static void emit_turns(const struct kiln__emit *emit)
{
    bool seen[16] = {false};
    for (size_t i = 0; i < emit->group->steps.count; i++) {
        const struct kiln__step *step = &emit->group->steps.items[i];
        if (step->kind != KILN__STEP_LOAD || seen[step->type] ||
            emit->form->along[step->index] != KILN__ACROSS)
            continue;
        seen[step->type] = true;
        emit_turn(emit, (kiln_type)step->type);
    }
}

/* [<d>_from, <d>_to): the part of dimension d that tile number `number` covers. */
static void emit_range(const struct kiln__emit *emit, uint32_t d, const char *number)
{
    kiln__text_add(emit->text,
                   "        const %s t%u = %s, from%u = t%u * %d;\n"
                   "        const %s to%u = t%u + 1 == tiles%u ? d%u : from%u + %d;\n",
                   emit->index, d, number, d, d, KILN__TILE, emit->index, d, d, d, d, d,
                   KILN__TILE);
}

/* Coordinates of a tile: those of the dimensions that it does not span, and where it is in the two
 * that it does. */
static void emit_tile(const struct kiln__emit *emit, uint32_t across, uint32_t last)
{
    char number[48];
    kiln__text_add(emit->text, "        %s rest = tile / tiles%u / tiles%u;\n", emit->index, last,
                   across);
    for (uint32_t d = last; d-- > 0;)
        if (d != across)
            kiln__text_add(emit->text,
                           "        const %s c_%u = rest %% d%u;\n        rest /= d%u;\n",
                           emit->index, d, d, d);
    snprintf(number, sizeof number, "tile %% tiles%u", last);
    emit_range(emit, last, number);
    snprintf(number, sizeof number, "tile / tiles%u %% tiles%u", last, across);
    emit_range(emit, across, number);
}

static void emit_turned_load(const struct kiln__emit *emit, const struct kiln__step *step,
                             uint32_t across, uint32_t last)
{
    unsigned width = emit->form->vector, k = step->index;
    struct kiln__type_name type = kiln__emit_type((kiln_type)step->type, width);
    struct kiln__phrase pointer = kiln__phrase("x%u", k);
    struct kiln__phrase offset =
        kiln__phrase("o%u%s%s + (l + r) * s%u_%u + e", k, kiln__emit_dot(k, 0, across).text,
                     kiln__emit_dot(k, across + 1, last).text, k, last);
    struct kiln__elements elements = {.type = (kiln_type)step->type,
                                      .width = width,
                                      .fit = KILN__FIT_LOOSE,
                                      .pointer = pointer.text,
                                      .offset = offset.text};
    kiln__text_add(emit->text,
                   "%s t%u[%u];\n"
                   "#pragma unroll\n"
                   "for (int r = 0; r < %u; r++)\n"
                   "t%u[r] = ",
                   type.text, k, width, width, k);
    kiln__emit_load(emit->text, &elements);
    kiln__text_add(emit->text, ";\nturn_%s(t%u);\n", type.text, k);
}

static void emit_turned_loads(const struct kiln__emit *emit, uint32_t across, uint32_t last)
{
    for (size_t i = 0; i < emit->group->steps.count; i++) {
        const struct kiln__step *step = &emit->group->steps.items[i];
        if (step->kind == KILN__STEP_LOAD && emit->form->along[step->index] == KILN__ACROSS)
            emit_turned_load(emit, step, across, last);
    }
}

/* Where row `r` of a block is, in the accesses that are not turned and in the stores. */
static void emit_row_bases(const struct kiln__emit *emit, uint32_t across, uint32_t last)
{
    const char *indent = "                    ";
    kiln__text_add(emit->text, "%sconst %s c_%u = e + r;\n", indent, emit->index, across);
    for (size_t k = 0; k < emit->group->accesses.count; k++) {
        if (emit->form->along[k] == KILN__ACROSS)
            continue;
        kiln__text_add(emit->text, "%sconst %s b%zu = o%zu%s;\n", indent, emit->index, k, k,
                       kiln__emit_dot(k, 0, last).text);
    }
    if (emit->form->placed) {
        emit_store_base(emit, indent, last);
        return;
    }
    kiln__text_add(emit->text, "%s%s p = c_0;\n", indent, emit->index);
    for (uint32_t d = 1; d < last; d++)
        kiln__text_add(emit->text, "%sp = p * d%u + c_%u;\n", indent, d, d);
    kiln__text_add(emit->text, "%sp *= d%u;\n", indent, last);
}

/* The last block of a tile starts early enough to end with it: no tile is smaller than a block, and
 * storing an element twice does no harm. */
static void emit_blocks(const struct kiln__emit *emit, uint32_t across, uint32_t last)
{
    unsigned width = emit->form->vector;
    kiln__text_add(emit->text,
                   "        for (%s f = from%u; f < to%u; f += %u) {\n"
                   "            const %s e = min(f, to%u - %u);\n"
                   "            for (%s g = from%u; g < to%u; g += %u) {\n"
                   "                const %s l = min(g, to%u - %u);\n",
                   emit->index, across, across, width, emit->index, across, width, emit->index,
                   last, last, width, emit->index, last, width);
    emit_turned_loads(emit, across, last);
    kiln__text_add(emit->text, "                for (int r = 0; r < %u; r++) {\n", width);
    emit_row_bases(emit, across, last);
    emit_body(emit, "                    ", width, "l");
    kiln__text_add(emit->text, "                }\n            }\n        }\n");
}

static void emit_turned(const struct kiln__emit *emit)
{
    uint32_t last = emit->form->rank - 1u, across = emit->form->across - 1u;
    unsigned width = emit->form->vector;
    kiln__text_add(emit->text,
                   "    const %s first = get_global_id(0) * chunk, last = min(first + chunk, n);\n"
                   "    const %s tiles%u = max(d%u / %d, (%s)1), tiles%u = max(d%u / %d, (%s)1);\n",
                   emit->index, emit->index, across, across, KILN__TILE, emit->index, last, last,
                   KILN__TILE, emit->index);
    if (emit->form->streams)
        kiln__text_add(emit->text,
                       "    const int stream = wanted && d%u %% %u == 0 &&\n"
                       "                       (size_t)(y0 + q0) %% (%u * sizeof *y0) == 0;\n",
                       last, width, width);
    kiln__text_add(emit->text, "    for (%s tile = first; tile < last; tile++) {\n", emit->index);
    emit_tile(emit, across, last);
    emit_blocks(emit, across, last);
    kiln__text_add(emit->text, "    }\n}\n");
}

static void emit_grouped(const struct kiln__emit *emit)
{
    unsigned width = emit->form->vector;
    kiln__text_add(emit->text,
                   "    const %s p = (%s)get_global_id(0) * %u;\n"
                   "    if (p >= n)\n"
                   "        return;\n",
                   emit->index, emit->index, width);
    emit_bases(emit, "    ");
    if (width > 1) {
        kiln__text_add(emit->text, "    if (p + %u <= n) {\n", width);
        emit_body(emit, "        ", width, "0");
        kiln__text_add(emit->text, "        return;\n    }\n");
    }
    kiln__text_add(emit->text, "    for (%s i = 0; i < min((%s)%u, n - p); i++) {\n", emit->index,
                   emit->index, width);
    emit_body(emit, "        ", 1, "i");
    kiln__text_add(emit->text, "    }\n}\n");
}

void kiln__emit_map(const struct kiln__emit *emit)
{
    if (emit->form->across)
        emit_turns(emit);
    emit_signature(emit);
    if (emit->form->across)
        emit_turned(emit);
    else if (emit->form->chunked)
        emit_chunked(emit);
    else
        emit_grouped(emit);
}
