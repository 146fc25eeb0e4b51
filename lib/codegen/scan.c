/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums: t<i> is what the elements before have come to, and goes on with each element. Of
 * several elements at once, in a vector or side by side in a lane, t<i>_<u> are first the sums of
 * each visit alone.
 *
 * On a CPU a row is scanned in vectors, or columns side by side. Elsewhere each lane has a few
 * neighbouring elements, merged in local memory, and long lines are cut into segments: one kernel
 * sums each segment, another starts each with the sum before it. The order of additions depends on
 * a row's length and on the stride of its elements.
 */
#include "codegen/body.h"

#include <assert.h>

static kiln_type type_of(const struct kiln__body *body, unsigned i)
{
    return body->group->steps.items[i].type;
}

bool kiln__body_has_scan(const struct kiln__body *body)
{
    return kiln__body_scan(body, 0) < body->group->steps.count;
}

unsigned kiln__body_scan(const struct kiln__body *body, unsigned i)
{
    while (i < body->group->steps.count &&
           (body->group->steps.items[i].kind != KILN__STEP_SCANNED || !body->needed[i]))
        i++;
    return i;
}

static bool is_backward(const struct kiln__body *body)
{
    return kiln__body_has_scan(body) && kiln__group_scan(body->group)->op == KILN__SCAN_BACKWARD;
}

struct kiln__phrase kiln__body_scan_position(const struct kiln__body *body, const char *at,
                                             unsigned width, const char *count)
{
    return is_backward(body) ? kiln__phrase("(%s - %u - %s)", count, width, at)
                             : kiln__phrase("%s", at);
}

/* "into = a + b" */
static void scan_add(const struct kiln__body *body, unsigned i, unsigned width, const char *into,
                     const char *a, const char *b)
{
    kiln__emit_expression(kiln__code_add(body->code, "%s = ", into),
                          kiln__reduce_rows[KILN__REDUCE_sum].combine, a, b, NULL, type_of(body, i),
                          width);
}

static struct kiln__phrase total_of(unsigned i)
{
    return kiln__phrase("t%u", i);
}

/* t3_0: the sums of visit 0 alone. */
static struct kiln__phrase sums_of(unsigned i, unsigned visit)
{
    return kiln__phrase("t%u_%u", i, visit);
}

/* "const float4 w3": the step's value at a visit. */
static struct kiln__phrase scan_declare(const struct kiln__body *body, unsigned i,
                                        const struct kiln__visit *visit)
{
    return kiln__phrase("const %s %s", kiln__emit_type(type_of(body, i), visit->width).text,
                        kiln__emit_value(visit->letter, i).text);
}

/* What a visit adds. */
static struct kiln__phrase added(const struct kiln__body *body, unsigned i,
                                 const struct kiln__visit *visit)
{
    return kiln__body_summand(body, body->group->steps.items[i].args[0], visit, type_of(body, i));
}

/* Component `at` of a vector of `width` in the order of the sums. */
static unsigned component(const struct kiln__body *body, unsigned at, unsigned width)
{
    return is_backward(body) ? width - 1 - at : at;
}

static struct kiln__phrase last_of(const struct kiln__body *body, const char *vector,
                                   unsigned width)
{
    return width == 1 ? kiln__phrase("%s", vector)
                      : kiln__phrase("%s.s%x", vector, component(body, width - 1, width));
}

/* One element after the other: of one row, or of rows side by side. */
static void scan_each(const struct kiln__body *body, unsigned i, const struct kiln__visit *visit)
{
    struct kiln__phrase total = total_of(i);
    scan_add(body, i, visit->width, total.text, total.text, added(body, i, visit).text);
    kiln__code_add(body->code, "%s = %s", scan_declare(body, i, visit).text, total.text);
}

/* Halves of ever larger blocks: what comes to the first one is added to all of the second
 * (J. Sklansky, "Conditional-Sum Addition Logic", 1960). */
static void scan_blocks(const struct kiln__body *body, unsigned i, unsigned width,
                        const char *vector)
{
    for (unsigned half = 1; half < width; half *= 2) {
        struct kiln__phrase to = kiln__phrase("%s.s", vector), from = to;
        for (unsigned at = 0; at < width; at++) {
            if (!(at & half))
                continue;
            to = kiln__phrase("%s%x", to.text, component(body, at, width));
            unsigned before = (at & ~(2 * half - 1)) | (half - 1);
            from = kiln__phrase("%s%x", from.text, component(body, before, width));
        }
        scan_add(body, i, width / 2, to.text, from.text, to.text);
    }
}

/* `more` is added to the total. What a float loses by that is added with the next one (W. Kahan,
 * CACM 8, 1965), but where an infinity or NaN is among them: sums of many do not drift. */
static void go_on(const struct kiln__body *body, unsigned i, const char *more)
{
    struct kiln__phrase total = total_of(i);
    if (!kiln__type_row(type_of(body, i))->floating) {
        scan_add(body, i, 1, total.text, total.text, more);
        return;
    }
    kiln__code_add(body->code,
                   "const float t%u_more = %s + t%u_lost, t%u_next = t%u + t%u_more\n"
                   "t%u_lost = fabs(t%u_next) < INFINITY ? t%u_more - (t%u_next - t%u) : 0\n"
                   "t%u = t%u_next",
                   i, more, i, i, i, i, i, i, i, i, i, i, i);
}

/* A vector along the row. */
static void scan_vector(const struct kiln__body *body, unsigned i, const struct kiln__visit *visit)
{
    struct kiln__phrase total = total_of(i), sums = sums_of(i, 0);
    struct kiln__type_name type = kiln__emit_type(type_of(body, i), visit->width);
    kiln__code_add(body->code, "%s %s = %s", type.text, sums.text, added(body, i, visit).text);
    scan_blocks(body, i, visit->width, sums.text);
    scan_add(body, i, visit->width, scan_declare(body, i, visit).text,
             kiln__phrase("(%s)(%s)", type.text, total.text).text, sums.text);
    go_on(body, i, last_of(body, sums.text, visit->width).text);
}

/* The visits of a lane, one behind the other, as if they were single elements: elements that are
 * not there add nothing. */
static void scan_lane(const struct kiln__body *body, unsigned i, const struct kiln__visit *visits,
                      unsigned count)
{
    struct kiln__phrase before = {""};
    for (unsigned u = 0; u < count; u++) {
        unsigned width = visits[u].width;
        struct kiln__phrase sums = sums_of(i, u);
        struct kiln__type_name type = kiln__emit_type(type_of(body, i), width);
        kiln__code_add(body->code, "%s %s = %s ? %s : (%s)(0)", type.text, sums.text,
                       visits[u].only, added(body, i, &visits[u]).text, type.text);
        for (unsigned at = 0; at < width; at++) {
            struct kiln__phrase own =
                width == 1 ? sums : kiln__phrase("%s.s%x", sums.text, component(body, at, width));
            if (*before.text)
                scan_add(body, i, 1, own.text, before.text, own.text);
            before = own;
        }
    }
    kiln__code_add(body->code, "%s t%u_all = %s", kiln__emit_type(type_of(body, i), 1).text, i,
                   before.text);
}

/* As scan_lanes() where items exchange values: through local memory go the sums of each 32 lanes.
 */
static void scan_shuffled(const struct kiln__body *body, unsigned i)
{
    struct kiln__type_name type = kiln__emit_type(type_of(body, i), 1);
    struct kiln__phrase all = kiln__phrase("t%u_all", i), total = total_of(i);
    struct kiln__phrase mine = kiln__phrase("t%u_mine", i), end = kiln__phrase("t%u_end", i);
    struct kiln__phrase one = kiln__phrase("t%u_one", i);
    enum { PART = KILN__SHUFFLED };
    unsigned lanes = kiln__body_shuffled(body), within = lanes < PART ? lanes : PART;
    kiln__code_for(body->code, "int back = 1; back < %u; back *= 2", within);
    kiln__code_add(body->code, "const %s %s = before_%s(%s, back)", type.text, one.text, type.text,
                   all.text);
    kiln__code_single(body->code, KILN__IF, "lane %% %d >= back", PART);
    scan_add(body, i, 1, all.text, one.text, all.text);
    kiln__code_end(body->code);
    kiln__code_add(body->code,
                   "%s %s = before_%s(%s, 1)\n"
                   "%s = lane %% %d ? %s : 0\n"
                   "%s %s = of_%s(%s, item %% %d | %u)",
                   type.text, mine.text, type.text, all.text, mine.text, PART, mine.text, type.text,
                   end.text, type.text, all.text, PART, within - 1);
    if (within < lanes) {
        kiln__code_add(body->code, "side ^= %u", kiln__body_shared(body));
        kiln__code_single(body->code, KILN__IF, "lane %% %d == %d", PART, PART - 1);
        kiln__code_add(body->code, "lanes_t%u[side + item / %d] = %s", i, PART, all.text);
        kiln__code_barrier(body->code);
        kiln__code_add(body->code, "%s = 0", end.text);
        kiln__code_for(body->code, "int part = 0; part < %u; part++", lanes / PART);
        kiln__code_add(body->code, "const %s %s = lanes_t%u[side + (item - lane) / %d + part]",
                       type.text, one.text, i, PART);
        kiln__code_single(body->code, KILN__IF, "part == lane / %d", PART);
        scan_add(body, i, 1, mine.text, end.text, mine.text);
        scan_add(body, i, 1, end.text, end.text, one.text);
        kiln__code_end(body->code);
    }
    scan_add(body, i, 1, kiln__phrase("const %s t%u_before", type.text, i).text, total.text,
             mine.text);
    go_on(body, i, end.text);
}

/* What the lanes before this one have come to is added, and the total goes on behind the last. Two
 * halves of local memory take turns, so that each step has one barrier. */
static void scan_lanes(const struct kiln__body *body, unsigned i)
{
    if (body->variant->shuffles) {
        scan_shuffled(body, i);
        return;
    }
    const bool columns = body->variant->kept_mapping == KILN__AXIS_COLUMNS;
    const char *apart = columns ? " * beside" : "";
    struct kiln__phrase all = kiln__phrase("t%u_all", i), total = total_of(i);
    struct kiln__phrase before = kiln__phrase("lanes_t%u[side + item - back%s]", i, apart);
    kiln__code_add(body->code, "side ^= %u\nlanes_t%u[side + item] = %s",
                   1u << body->variant->work_group, i, all.text);
    kiln__code_barrier(body->code);
    kiln__code_for(body->code, "int back = 1; back < lanes; back *= 2");
    kiln__code_single(body->code, KILN__IF, "lane >= back");
    scan_add(body, i, 1, all.text, before.text, all.text);
    kiln__code_add(body->code, "side ^= %u\nlanes_t%u[side + item] = %s",
                   1u << body->variant->work_group, i, all.text);
    kiln__code_barrier(body->code);
    kiln__code_end(body->code);
    before = kiln__phrase("(lane ? lanes_t%u[side + item - 1%s] : 0)", i, apart);
    scan_add(body, i, 1,
             kiln__phrase("const %s t%u_before", kiln__emit_type(type_of(body, i), 1).text, i).text,
             total.text, before.text);
    go_on(body, i,
          kiln__phrase("lanes_t%u[side + item + ((int)lanes - 1 - lane)%s]", i, apart).text);
}

static void scan_piece(const struct kiln__body *body, unsigned i, const struct kiln__visit *visits,
                       unsigned count)
{
    scan_lane(body, i, visits, count);
    if (body->variant->stage == KILN__STAGE_PARTIAL) {
        go_on(body, i, kiln__phrase("t%u_all", i).text);
        return;
    }
    scan_lanes(body, i);
    for (unsigned u = 0; u < count; u++) {
        struct kiln__type_name type = kiln__emit_type(type_of(body, i), visits[u].width);
        scan_add(body, i, visits[u].width, scan_declare(body, i, &visits[u]).text,
                 kiln__phrase("(%s)(t%u_before)", type.text, i).text, sums_of(i, u).text);
    }
}

void kiln__body_scanned(const struct kiln__body *body, unsigned i, const struct kiln__visit *visits,
                        unsigned count)
{
    if (body->variant->carried)
        scan_piece(body, i, visits, count);
    else if (visits->width > 1 && body->variant->reduced_mapping == KILN__AXIS_VECTORS)
        scan_vector(body, i, visits);
    else
        scan_each(body, i, visits);
}

void kiln__body_lanes_memory(const struct kiln__body *body)
{
    unsigned shared = kiln__body_shared(body);
    for (unsigned i = 0; i < body->group->steps.count && shared; i++)
        if (body->group->steps.items[i].kind == KILN__STEP_SCANNED)
            kiln__code_add(body->code, "local %s lanes_t%u[%u]",
                           kiln__emit_type(type_of(body, i), 1).text, i, 2 * shared);
}

unsigned kiln__body_shuffled(const struct kiln__body *body)
{
    return 1u << (body->variant->shuffles - 1);
}

unsigned kiln__body_shared(const struct kiln__body *body)
{
    unsigned items = 1u << body->variant->work_group;
    if (!body->variant->shuffles)
        return items;
    return kiln__body_shuffled(body) > KILN__SHUFFLED ? items / KILN__SHUFFLED : 0;
}

/* What each lane has come to becomes what all have. */
static void gather_lanes(const struct kiln__body *body, unsigned i)
{
    kiln__code_block(body->code);
    kiln__body_sums(body, 1, "$ @_all = @ + @_lost\n@ = @_lost = 0");
    scan_lanes(body, i);
    kiln__code_end(body->code);
}

/* Each lane adds up every lanes-th segment. */
void kiln__body_segments(const struct kiln__body *body)
{
    unsigned i = kiln__group_total(body->group);
    kiln__code_for(body->code, "idx s = lane; s < segment; s += lanes");
    kiln__body_sums(body, 1, kiln__phrase("const $ @_one = %s", kiln__body_partial(body)).text);
    go_on(body, i, kiln__phrase("t%u_one", i).text);
    kiln__code_end(body->code);
    gather_lanes(body, i);
}

/* ---- pieces ---- */

void kiln__body_lane_chunks(const struct kiln__body *body)
{
    enum { MOST = 16 };
    unsigned width = body->variant->vector, share = body->variant->carried, count = share / width;
    struct kiln__phrase at[MOST], only[MOST];
    struct kiln__visit visits[MOST];
    assert(share <= MOST);
    const char *end = kiln__stage_of_segments(body->variant->stage) ? "reduced" : "to";
    if (body->variant->stage == KILN__STAGE_PARTIAL)
        kiln__code_unroll(body->code, 4); /* no barrier is in the way */
    kiln__code_for(body->code, "idx piece = from; piece < to; piece += lanes * %u", share);
    kiln__code_add(body->code, "const idx r = piece + lane * %u", share);
    for (unsigned u = 0; u < count; u++) {
        struct kiln__phrase place = kiln__phrase("min(r + %u, to - %u)", u * width, width);
        at[u] = kiln__phrase("at%u", u);
        only[u] = kiln__phrase("in%u", u);
        visits[u] = (struct kiln__visit){.width = width,
                                         .at = at[u].text,
                                         .number = at[u].text,
                                         .into = width > 1 ? 0 : KILN__TOTALS,
                                         .letter = (char)('A' + u),
                                         .only = only[u].text};
        kiln__code_add(body->code, "const bool in%u = live && r + %u < to\nconst idx at%u = %s", u,
                       u * width, u, kiln__body_scan_position(body, place.text, width, end).text);
    }
    kiln__body_elements(body, visits, count);
    kiln__code_end(body->code);
    if (body->variant->stage == KILN__STAGE_PARTIAL)
        gather_lanes(body, kiln__group_total(body->group));
}
