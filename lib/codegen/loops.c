/* SPDX-License-Identifier: Apache-2.0 */
/* A generated kernel: its signature and the loops over the kept axis. What becomes of the axis is
 * the variant's word; a function for each word writes it. */
#include "codegen/loops.h"

static void open_chunk(const struct kiln__body *body, const char *step)
{
    kiln__code_add(body->code,
                   "const idx first = get_global_id(0) * chunk, last = min(first + chunk, n)");
    kiln__code_for(body->code, "idx p = first; p < last;%s", step);
}

static void keep_each(struct kiln__body *body)
{
    open_chunk(body, " p++");
    kiln__body_bases(body, body->variant->kept);
    kiln__emit_phases(body);
    kiln__body_store(body, 1, "p", "0");
    kiln__code_end(body->code);
}

/* A run of a map: vectors, and single elements after them; before them too where a streaming store
 * needs them to start at a cache line, or at a multiple of their size. */
static void emit_run(const struct kiln__body *body)
{
    unsigned width = body->variant->vector;
    struct kiln__phrase next = kiln__phrase("(i + %u)", width);
    struct kiln__visit pair[] = {{.width = width, .at = "i"},
                                 {.width = width, .at = next.text, .letter = 'w'}};
    if (body->variant->streams) {
        unsigned bytes = width * (unsigned)kiln_type_size(kiln__emit_store_type(body->emit, 0));
        unsigned line = bytes > KILN__LINE ? bytes : KILN__LINE;
        kiln__code_add(body->code,
                       "const idx head = stream ? (%u - ((size_t)(y0 + q0 + p) & %u)) / "
                       "(int)sizeof *y0 %% (%u / (int)sizeof *y0) : 0",
                       line, line - 1, line);
    }
    kiln__code_add(body->code, "idx i = 0, stop = %s",
                   body->variant->streams ? "min(head, count)" : "0");
    kiln__code_for(body->code, ";;");
    kiln__code_for(body->code, "; i < stop; i++");
    kiln__body_element(body, 1, "i", "", 0);
    kiln__code_end(body->code);
    kiln__code_leave(body->code, "break", "i == count");
    for (unsigned count = body->variant->pairs ? 2 : 1; count > 0; count--) {
        kiln__emit_strip_loop(body, count * width, "count");
        kiln__body_elements(body, pair, count);
        kiln__code_end(body->code);
    }
    kiln__code_add(body->code, "stop = count");
    kiln__code_end(body->code);
}

static void keep_vectors(struct kiln__body *body)
{
    uint32_t inner = body->variant->kept - 1u;
    if (body->variant->reduced_mapping == KILN__AXIS_BLOCKS)
        kiln__emit_strip_totals(body);
    open_chunk(body, "");
    kiln__emit_count(body, inner, inner > 0, "p", "last");
    kiln__body_bases(body, body->variant->kept);
    if (body->variant->reduced_mapping == KILN__AXIS_BLOCKS)
        kiln__emit_strips(body);
    else if (body->variant->reduced_mapping == KILN__AXIS_EACH)
        kiln__emit_columns(body);
    else
        emit_run(body);
    kiln__code_add(body->code, "p += count");
    kiln__code_end(body->code);
}

/* Two vectors of a work-item, one for each item of its group between them. */
static void keep_pair(struct kiln__body *body)
{
    unsigned width = body->variant->vector, items = 1u << body->variant->work_group;
    kiln__code_add(body->code,
                   "const idx first = ((idx)get_group_id(0) * %u + get_local_id(0)) * %u\n"
                   "const idx last = min(n, first + %u)",
                   2 * items, width, (items + 1) * width);
    kiln__code_if(body->code, "first + %u <= n", (items + 1) * width);
    for (unsigned u = 0; u < 2; u++) {
        kiln__code_block(body->code);
        kiln__code_add(body->code, "const idx p = first + %u", u * items * width);
        kiln__body_bases(body, body->variant->kept);
        kiln__body_element(body, width, "0", "", 0);
        kiln__code_end(body->code);
    }
    kiln__code_add(body->code, "return");
    kiln__code_end(body->code);
    kiln__code_for(body->code, "idx p = first; p < last; p += %u", items * width);
    kiln__body_bases(body, body->variant->kept);
    kiln__code_for(body->code, "idx i = 0; i < min((idx)%u, n - p); i++", width);
    kiln__body_element(body, 1, "i", "", 0);
    kiln__code_end(body->code);
    kiln__code_end(body->code);
}

static void keep_item(struct kiln__body *body)
{
    unsigned width = body->variant->vector;
    if (body->variant->pairs) {
        keep_pair(body);
        return;
    }
    kiln__code_add(body->code, "const idx p = (idx)get_global_id(0) * %u", width);
    kiln__code_leave(body->code, "return", "p >= n");
    kiln__body_bases(body, body->variant->kept);
    if (body->variant->reduced_mapping != KILN__AXIS_NONE) {
        kiln__emit_phases(body);
        kiln__body_store(body, 1, "p", "0");
        return;
    }
    if (width > 1) {
        kiln__code_if(body->code, "p + %u <= n", width);
        kiln__body_element(body, width, "0", "", 0);
        kiln__code_add(body->code, "return");
        kiln__code_end(body->code);
    }
    kiln__code_for(body->code, "idx i = 0; i < min((idx)%u, n - p); i++", width);
    kiln__body_element(body, 1, "i", "", 0);
    kiln__code_end(body->code);
}

/* Where a lane's held vectors are in the row: at<u>, and whether they are. */
static void emit_held(struct kiln__body *body)
{
    for (unsigned u = 0; u < body->variant->held; u++)
        kiln__code_add(body->code,
                       "const idx at%u = (lane + lanes * %u) * %u\n"
                       "const bool in%u = live && at%u < to",
                       u, u, body->variant->vector, u, u);
    kiln__body_cache_loads(body);
}

/* Lanes beyond the last row go along, for the barriers' sake, and store nothing. A lane reads back
 * only what it has stored itself. */
static void keep_lanes(struct kiln__body *body)
{
    unsigned shared = kiln__body_shared(body);
    struct kiln__phrase scratch = kiln__phrase("local $ scratch_@[%u]", shared);
    if (body->variant->shuffles)
        kiln__code_add(body->code, "enum { lanes = %u }", kiln__body_shuffled(body));
    for (unsigned phase = 0; phase < body->nest.phases && shared; phase++) {
        kiln__body_enter_phase(body, phase);
        kiln__body_totals(body, 1, scratch.text);
    }
    kiln__body_lanes_memory(body);
    if (body->variant->kept_mapping == KILN__AXIS_COLUMNS)
        kiln__code_add(body->code,
                       "const int item = get_local_id(0), beside = %u / (int)lanes\n"
                       "const int lane = item / beside\n"
                       "const idx place = (idx)get_group_id(0) * beside + item %% beside\n"
                       "const idx p = min(place, n - 1)",
                       1u << body->variant->work_group);
    else
        kiln__code_add(body->code,
                       "const int item = get_local_id(0), lane = item & ((int)lanes - 1)\n"
                       "const idx place = (idx)get_global_id(0) / lanes, p = min(place, n - 1)");
    kiln__code_add(body->code, "const bool live = place < n");
    kiln__body_bases(body, body->variant->kept);
    if (body->variant->reduced_mapping == KILN__AXIS_HELD)
        emit_held(body);
    kiln__emit_phases(body);
    kiln__code_if(body->code, "live && lane == 0");
    kiln__body_store(body, 1, "p", "0");
    kiln__code_end(body->code);
}

/* ---- kernels ---- */

/* What the launch sets, in its order. */
static void emit_signature(const struct kiln__body *body)
{
    const struct kiln__launch *launch = body->emit->launch;
    bool shares = body->variant->reduced_mapping != KILN__AXIS_NONE || body->variant->across;
    const bool sized = body->variant->chunked || shares;
    if (sized)
        kiln__code_line(body->code, "kernel __attribute__((reqd_work_group_size(%u, 1, 1)))",
                        body->variant->chunked ? 1 : 1u << body->variant->work_group);
    struct kiln__text *text =
        kiln__code_function(body->code, sized ? "void %s(" : "kernel void %s(", launch->kernel);
    kiln__emit_parameters(body->emit, text);
    kiln__text_add(text, ")");
}

/* The part of the reduced axis that the kernel has to do with. */
static void emit_range(const struct kiln__body *body)
{
    if (body->variant->reduced_mapping == KILN__AXIS_NONE ||
        body->variant->reduced_mapping == KILN__AXIS_PARTIALS)
        return;
    if (kiln__stage_of_segments(body->variant->stage))
        kiln__code_add(body->code, "const idx segment = get_global_id(1), from = segment * length\n"
                                   "const idx to = min(from + length, reduced)");
    else
        kiln__code_add(body->code, "const idx from = 0, to = reduced");
}

void kiln__emit_nest(const struct kiln__emit *emit)
{
    static kiln__emitter *const walks[] = {
        [KILN__AXIS_EACH] = keep_each,         [KILN__AXIS_VECTORS] = keep_vectors,
        [KILN__AXIS_TILES] = kiln__emit_tiles, [KILN__AXIS_ITEM] = keep_item,
        [KILN__AXIS_LANES] = keep_lanes,       [KILN__AXIS_COLUMNS] = keep_lanes,
    };
    struct kiln__body body;
    kiln__body_begin(&body, emit);
    if (emit->variant->kept_mapping == KILN__AXIS_TILES && emit->variant->chunked)
        kiln__emit_tile_transposes(emit);
    emit_signature(&body);
    kiln__emit_in_place_accesses(emit);
    emit_range(&body);
    walks[emit->variant->kept_mapping](&body);
    kiln__code_end(emit->code);
}
