/* SPDX-License-Identifier: Apache-2.0 */
/* The loops over the reduced axis of one row: what becomes of the axis is the variant's word; a
 * function for each word writes it. */
#include "codegen/loops.h"
#include "codegen/online_phases.h"

/* ---- for both axes ---- */

void kiln__emit_strip_loop(const struct kiln__body *body, unsigned elements, const char *count)
{
    kiln__code_for(body->code, "; i + %u <= %s; i += %u", elements, count, elements);
}

void kiln__emit_count(const struct kiln__body *body, uint32_t d, bool outer, const char *from,
                      const char *to)
{
    if (outer)
        kiln__code_add(body->code, "const idx count = min(d%u - %s %% d%u, %s - %s)", d, from, d,
                       to, from);
    else
        kiln__code_add(body->code, "const idx count = %s - %s", to, from);
}

/* Totals of lanes whose numbers differ in one bit become those of both, bit by bit. Where several
 * accesses are held it stays a loop: without one NVIDIA's compiler loads what only a later phase
 * needs behind it, and layer norm's gradient took an H200 17.9 us instead of 14.4. */
static void emit_exchange(const struct kiln__body *body, unsigned lanes)
{
    if (__builtin_popcount(body->held) > 1)
        kiln__code_unroll(body->code, 1);
    kiln__code_for(body->code, "int other = %u; other; other /= 2", lanes / 2);
    kiln__body_totals(body, 1, "const $ @_other = across_$(@, other)");
    kiln__body_merge(body, "@", "@_other");
    kiln__code_end(body->code);
}

/* As emit_tree() where items exchange values: through local memory go those of each 32 lanes. */
static void emit_shuffled_tree(const struct kiln__body *body)
{
    unsigned lanes = kiln__body_shuffled(body), parts = lanes / KILN__SHUFFLED;
    if (lanes > 1)
        emit_exchange(body, lanes < KILN__SHUFFLED ? lanes : KILN__SHUFFLED);
    if (parts < 2)
        return;
    kiln__code_if(body->code, "lane %% %d == 0", KILN__SHUFFLED);
    kiln__body_totals(body, 1, kiln__phrase("scratch_@[item / %d] = @", KILN__SHUFFLED).text);
    kiln__code_end(body->code);
    kiln__code_barrier(body->code);
    kiln__body_totals(
        body, 1,
        kiln__phrase("@ = scratch_@[(item - lane) / %d + lane %% %u]", KILN__SHUFFLED, parts).text);
    emit_exchange(body, parts);
}

/* The totals of a row's lanes become its first lane's, which all read. */
static void emit_tree(const struct kiln__body *body)
{
    if (kiln__body_reduction(body, 0) == body->group->steps.count)
        return;
    if (body->variant->shuffles) {
        emit_shuffled_tree(body);
        return;
    }
    const bool columns = body->variant->kept_mapping == KILN__AXIS_COLUMNS;
    kiln__body_totals(body, 1, "scratch_@[item] = @");
    kiln__code_barrier(body->code);
    kiln__code_for(body->code, "int other = (int)lanes / 2; other; other /= 2");
    kiln__code_if(body->code, "lane < other");
    kiln__body_merge(body, "scratch_@[item]",
                     columns ? "scratch_@[item + other * beside]" : "scratch_@[item + other]");
    kiln__code_end(body->code);
    kiln__code_barrier(body->code);
    kiln__code_end(body->code);
    kiln__body_totals(
        body, 1, columns ? "@ = scratch_@[item - lane * beside]" : "@ = scratch_@[item - lane]");
}

/* Single elements from `from` on, each `step` behind the one before: after so many of them the
 * totals go on. In between stands "for (; at < stop; at += step)". */
static void open_long(const struct kiln__body *body, const char *at, const char *from,
                      const char *end, const char *step)
{
    kiln__body_long_totals(body, 1);
    kiln__code_for(body->code, "idx %s = %s;;", at, from);
    kiln__code_add(body->code, "const idx stop = min(%s + %s * %d, %s)", at, step, KILN__IN_ONE,
                   end);
}

static void close_long(const struct kiln__body *body, const char *at, const char *end)
{
    kiln__code_leave(body->code, "break", "%s >= %s", at, end);
    kiln__body_export_sums(body, 1, 0);
    kiln__code_end(body->code);
    kiln__body_import_sums(body, 1, 0);
}

/* Of lanes that have a column, each a run of it: what they read of so many elements comes at
 * once. */
#define AT_ONCE 8

static void reduce_each(struct kiln__body *body)
{
    struct kiln__phrase r = kiln__body_scan_position(body, "r", 1, "to");
    bool carries = kiln__body_has_scan(body),
         shares = kiln__axis_shares(body->variant->kept_mapping);
    if (carries)
        kiln__code_block(body->code);
    kiln__body_sums(body, 1, KILN__START);
    const bool adds = shares && !carries && kiln__body_adds(body);
    if (shares)
        kiln__code_add(body->code, "const idx part = (to - from + (lanes - 1)) / lanes\n"
                                   "const idx begin = live ? from + lane * part : to\n"
                                   "const idx end = min(begin + part, to)");
    if (adds)
        open_long(body, "r", "begin", "end", "1");
    if (shares)
        kiln__code_unroll(body->code, AT_ONCE);
    kiln__code_for(body->code, "%s; r < %s; r++",
                   adds     ? ""
                   : shares ? "idx r = begin"
                            : "idx r = from",
                   adds     ? "stop"
                   : shares ? "end"
                            : "to");
    kiln__body_reduced_bases(body, r.text);
    kiln__body_element(body, 1, "0", r.text, KILN__TOTALS);
    kiln__code_end(body->code);
    if (carries)
        kiln__code_end(body->code);
    if (adds)
        close_long(body, "r", "end");
}

/* `unroll` vectors of the run at `i`, each `apart` elements behind the one before. */
static void emit_unrolled(const struct kiln__body *body, unsigned unroll, const char *i,
                          const char *apart)
{
    for (unsigned u = 0; u < unroll; u++) {
        unsigned width = body->variant->vector;
        struct kiln__phrase place = kiln__phrase(u ? "(%s + %s * %u)" : "%s", i, apart, u);
        struct kiln__phrase at = kiln__body_scan_position(body, place.text, width, "count");
        kiln__code_block(body->code);
        kiln__body_element(body, width, at.text, kiln__phrase("r + %s", at.text).text, u);
        kiln__code_end(body->code);
    }
}

/* As many vectors as `unroll` divides: neighbours, or, of a long run, each from a part of its
 * own. */
static void emit_parts(const struct kiln__body *body, unsigned unroll)
{
    unsigned width = body->variant->vector;
    kiln__code_add(body->code,
                   "const bool apart = count >= %d\n"
                   "const idx whole = count / %u * %u, part = whole / %u\n"
                   "const idx between = apart ? part : %u, step = apart ? %u : %u\n"
                   "const idx end = apart ? part : whole",
                   1 << body->variant->partials, unroll * width, unroll * width, unroll, width,
                   width, unroll * width);
    const bool adds = kiln__body_adds(body);
    if (adds) {
        kiln__code_for(body->code, ";;");
        kiln__code_add(body->code, "const idx stop = min(i + step * %d, end)", KILN__IN_ONE);
    }
    kiln__code_for(body->code, "; i < %s; i += step", adds ? "stop" : "end");
    emit_unrolled(body, unroll, "i", "between");
    kiln__code_end(body->code);
    if (adds) {
        kiln__code_leave(body->code, "break", "i >= end");
        kiln__body_export_sums(body, body->variant->vector, unroll);
        kiln__code_end(body->code);
    }
    kiln__code_add(body->code, "i = whole");
}

static void begin_vectors(struct kiln__body *body, unsigned count)
{
    kiln__body_accumulators(body, count);
    kiln__online_accumulators(body, count);
}

static void end_vectors(struct kiln__body *body, unsigned count)
{
    kiln__body_fold(body, count);
    kiln__online_fold(body, count);
}

/* The vectors of a run before `end`. */
static void emit_vectors(const struct kiln__body *body, unsigned unroll, const char *end)
{
    unsigned width = body->variant->vector;
    struct kiln__phrase apart = kiln__phrase("%u", width);
    for (unsigned u = unroll;; u = 1) {
        kiln__emit_strip_loop(body, width * u, end);
        emit_unrolled(body, u, "i", apart.text);
        kiln__code_end(body->code);
        if (u == 1)
            break;
    }
}

/* The same in parts, after each of which the accumulators go on. */
static void emit_long(const struct kiln__body *body, unsigned unroll)
{
    unsigned width = body->variant->vector, visit = unroll * width;
    struct kiln__phrase apart = kiln__phrase("%u", width);
    kiln__code_for(body->code, ";;");
    kiln__code_add(body->code, "const idx stop = min(i + %u, count)", KILN__IN_ONE * visit);
    kiln__emit_strip_loop(body, visit, "stop");
    emit_unrolled(body, unroll, "i", apart.text);
    kiln__code_end(body->code);
    kiln__code_leave(body->code, "break", "i + %u > count", visit);
    kiln__body_export_sums(body, width, unroll);
    kiln__code_end(body->code);
}

static void emit_singles(const struct kiln__body *body)
{
    struct kiln__phrase at = kiln__body_scan_position(body, "i", 1, "count");
    kiln__code_for(body->code, "; i < count; i++");
    kiln__body_element(body, 1, at.text, kiln__phrase("r + %s", at.text).text, KILN__TOTALS);
    kiln__code_end(body->code);
}

/* Elements that a phase is ahead of the one that follows it: enough to make little of rescaling,
 * few enough to be in the nearest cache until then. */
#define AHEAD 1024

/* The two side by side: one waits for memory while the other computes. */
static void emit_ahead(struct kiln__body *body, unsigned unroll)
{
    unsigned width = body->variant->vector;
    struct kiln__phrase apart = kiln__phrase("%u", width), ahead = kiln__phrase("(i + %d)", AHEAD);
    kiln__code_add(body->code, "const idx whole = count / %u * %u, lead = min((idx)%d, whole)",
                   width, width, AHEAD);
    emit_vectors(body, unroll, "lead");
    kiln__code_add(body->code, "i = 0");
    kiln__code_while(body->code, "i + %d <= whole", 2 * AHEAD);
    kiln__online_rescale(body, width, unroll);
    kiln__code_for(body->code, "const idx end = i + %d; i < end; i += %u", AHEAD, unroll * width);
    kiln__online_enter_phase(body);
    emit_unrolled(body, unroll, "i", apart.text);
    kiln__online_leave_phase(body);
    emit_unrolled(body, unroll, ahead.text, apart.text);
    kiln__code_end(body->code);
    kiln__code_end(body->code);
    kiln__code_add(body->code, "const idx rest = i\ni += lead");
    emit_vectors(body, unroll, "whole");
    kiln__online_rescale(body, width, unroll);
    kiln__code_add(body->code, "i = rest");
    kiln__online_enter_phase(body);
    emit_vectors(body, unroll, "whole");
    kiln__online_leave_phase(body);
    kiln__code_block(body->code);
    emit_singles(body);
    kiln__online_rescale(body, 1, 0);
    kiln__code_add(body->code, "i = whole");
    kiln__online_enter_phase(body);
    emit_singles(body);
    kiln__online_leave_phase(body);
    kiln__code_end(body->code);
}

/* `count` elements from `r` on are one run. */
static void reduce_vectors(struct kiln__body *body)
{
    unsigned unroll = kiln__body_unroll(body);
    bool parts = unroll > 1 && body->variant->partials > 0;
    uint32_t inner = body->variant->rank - 1u;
    kiln__code_block(body->code);
    kiln__body_sums(body, 1, KILN__START);
    kiln__body_sums(body, 1, "$ @_lost = 0");
    begin_vectors(body, unroll);
    const bool adds = kiln__body_adds(body) && !kiln__body_has_scan(body) &&
                      !kiln__online_applies(body, body->phase + 1);
    if (adds)
        kiln__body_long_totals(body, body->variant->vector);
    kiln__code_for(body->code, "idx r = from; r < to;");
    kiln__emit_count(body, inner, inner > body->variant->kept, "r", "to");
    kiln__body_reduced_bases(body, "r");
    kiln__code_add(body->code, "idx i = 0");
    if (kiln__online_applies(body, body->phase + 1)) {
        emit_ahead(body, unroll);
    } else {
        if (parts)
            emit_parts(body, unroll);
        if (adds && !parts)
            emit_long(body, unroll);
        if (parts || !adds || unroll > 1)
            emit_vectors(body, parts || adds ? 1 : unroll, "count");
        emit_singles(body);
    }
    kiln__code_add(body->code, "r += count");
    kiln__code_end(body->code);
    if (adds)
        kiln__body_import_sums(body, body->variant->vector, unroll);
    end_vectors(body, unroll);
    kiln__code_end(body->code);
}

/* `unroll` vectors that are `lanes` vectors apart, into accumulators or all into `into`. */
static void emit_interleaved(const struct kiln__body *body, unsigned unroll, unsigned width,
                             unsigned into)
{
    for (unsigned u = 0; u < unroll; u++) {
        struct kiln__phrase r = kiln__phrase(u ? "(r + lanes * %u)" : "r", u * width);
        kiln__code_block(body->code);
        kiln__body_reduced_bases(body, r.text);
        kiln__body_element(body, width, "0", r.text, into == KILN__TOTALS ? into : into + u);
        kiln__code_end(body->code);
    }
}

/* While all are whole, for the phase that follows, too. */
static void emit_lanes(struct kiln__body *body, unsigned unroll, unsigned width, unsigned into,
                       unsigned most)
{
    kiln__code_for(body->code, "; r + lanes * %u + %u <= to; r += lanes * %u", (unroll - 1) * width,
                   width, unroll * width);
    emit_interleaved(body, unroll, width, into);
    kiln__online_rescale(body, width, into == KILN__TOTALS ? 0 : most);
    if (kiln__online_enter_phase(body)) {
        emit_interleaved(body, unroll, width, into);
        kiln__online_leave_phase(body);
    }
    kiln__code_end(body->code);
}

static void emit_long_lanes(struct kiln__body *body)
{
    open_long(body, "at", "r", "to", "lanes");
    kiln__code_for(body->code, "; at < stop; at += lanes");
    kiln__code_add(body->code, "const idx r = at");
    emit_interleaved(body, 1, 1, KILN__TOTALS);
    kiln__code_end(body->code);
    close_long(body, "at", "to");
}

/* Every lane has part in each piece, for the barriers' sake. */
static void carry_lanes(struct kiln__body *body)
{
    bool vectors = body->variant->vector > 1, partial = body->variant->stage == KILN__STAGE_PARTIAL;
    if (!partial) /* else the totals are still to be stored */
        kiln__code_block(body->code);
    kiln__body_sums(body, 1, KILN__START "\n$ @_lost = 0");
    kiln__body_reduced_bases(body, "0");
    if (vectors)
        kiln__body_accumulators(body, 1);
    if (kiln__body_shared(body))
        kiln__code_add(body->code, "int side = 0");
    if (body->variant->stage == KILN__STAGE_BEHIND)
        kiln__body_segments(body);
    kiln__body_lane_chunks(body);
    if (vectors)
        kiln__body_fold(body, 1);
    if (!partial)
        kiln__code_end(body->code);
}

/* Single elements one at a time: four took an H200 longer. With a phase that follows they are
 * rescaled together. */
#define VECTORS_AT_ONCE 8

static void reduce_lanes(struct kiln__body *body)
{
    unsigned width = body->variant->vector, unroll = kiln__body_unroll(body);
    if (kiln__body_has_scan(body)) {
        carry_lanes(body);
        return;
    }
    kiln__code_if(body->code, "live");
    kiln__code_add(body->code, "idx r = from + lane * %u", width);
    if (width > 1) {
        begin_vectors(body, unroll);
        if (unroll > 1)
            emit_lanes(body, unroll, width, 0, unroll);
        emit_lanes(body, 1, width, 0, unroll);
        end_vectors(body, unroll);
        kiln__code_add(body->code, "r = from + (to - from) / %u * %u + lane", width, width);
    } else if (kiln__online_applies(body, body->phase + 1)) {
        emit_lanes(body, VECTORS_AT_ONCE, 1, KILN__TOTALS, 0);
    }
    if (width == 1 && kiln__body_adds(body) && !kiln__online_applies(body, body->phase + 1))
        emit_long_lanes(body);
    else
        emit_lanes(body, 1, 1, KILN__TOTALS, 0);
    kiln__code_end(body->code);
}

/* All vectors of a lane, which it keeps from phase to phase. */
static void reduce_held(struct kiln__body *body)
{
    unsigned width = body->variant->vector, unroll = kiln__body_unroll(body);
    unroll = unroll < body->variant->held ? unroll : body->variant->held;
    kiln__code_block(body->code);
    kiln__body_accumulators(body, unroll);
    for (body->slot = 0; body->slot < body->variant->held; body->slot++) {
        struct kiln__phrase r = kiln__phrase("at%u", body->slot);
        kiln__code_if(body->code, "in%u", body->slot);
        kiln__body_reduced_bases(body, r.text);
        kiln__body_element(body, width, "0", r.text, body->slot % unroll);
        kiln__code_end(body->code);
    }
    kiln__body_fold(body, unroll);
    kiln__code_end(body->code);
}

static void reduce_partials(struct kiln__body *body)
{
    const bool shares = body->variant->kept_mapping == KILN__AXIS_LANES;
    const bool adds = shares && kiln__body_adds(body);
    if (adds)
        open_long(body, "s", "live ? lane : segments", "segments", "lanes");
    kiln__code_for(body->code, "%s; s < %s; s += %s",
                   adds     ? ""
                   : shares ? "idx s = live ? lane : segments"
                            : "idx s = 0",
                   adds ? "stop" : "segments", shares ? "lanes" : "1");
    kiln__body_merge(body, "@", kiln__body_partial(body));
    kiln__code_end(body->code);
    if (adds)
        close_long(body, "s", "segments");
}

static void reduce_axis(struct kiln__body *body)
{
    static kiln__emitter *const walks[] = {
        [KILN__AXIS_EACH] = reduce_each,         [KILN__AXIS_VECTORS] = reduce_vectors,
        [KILN__AXIS_LANES] = reduce_lanes,       [KILN__AXIS_HELD] = reduce_held,
        [KILN__AXIS_PARTIALS] = reduce_partials,
    };
    walks[body->variant->reduced_mapping](body);
}

void kiln__emit_phases(struct kiln__body *body)
{
    for (unsigned phase = 0; phase < body->nest.phases; phase++) {
        kiln__body_enter_phase(body, phase);
        kiln__body_values(body, 1, "0");
        if (kiln__online_applies(body, phase)) {
            kiln__online_end(body);
        } else {
            kiln__body_totals(body, 1, KILN__START);
            kiln__online_totals(body);
            reduce_axis(body);
        }
        if (kiln__axis_shares(body->variant->kept_mapping))
            emit_tree(body);
        kiln__body_finish(body, 1);
    }
}
