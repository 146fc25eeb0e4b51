/* SPDX-License-Identifier: Apache-2.0 */
/* What the reductions of a phase add up: accumulators, the totals that these become, and the values
 * that come of totals. */
#include "codegen/body.h"

#include <string.h>

static const struct kiln__step *step_at(const struct kiln__body *body, unsigned i)
{
    return &body->group->steps.items[i];
}

static const struct kiln__reduce_row *row_at(const struct kiln__body *body, unsigned i)
{
    bool scanned = step_at(body, i)->kind == KILN__STEP_SCANNED;
    return &kiln__reduce_rows[scanned ? KILN__REDUCE_sum : step_at(body, i)->op];
}

/* The type of the accumulators of a reduction or a running sum. */
static kiln_type sums_type(const struct kiln__body *body, unsigned i)
{
    const struct kiln__step *value = step_at(body, step_at(body, i)->args[0]);
    return kiln__reduce_accumulator(row_at(body, i), value->type);
}

unsigned kiln__body_reduction(const struct kiln__body *body, unsigned i)
{
    while (i < body->group->steps.count &&
           (step_at(body, i)->kind != KILN__STEP_REDUCED || body->nest.phase[i] != body->phase))
        i++;
    return i;
}

unsigned kiln__body_unroll(const struct kiln__body *body)
{
    unsigned steps = 0, reductions = 0;
    bool indexed = false;
    for (unsigned i = 0; i < body->group->steps.count; i++)
        steps += body->needed[i] && body->nest.full[i];
    for (KILN__EACH_REDUCTION(i, body)) {
        reductions++;
        indexed = indexed || row_at(body, i)->indexed;
    }
    return indexed || kiln__body_has_scan(body) ? 1
           : steps <= 6 && reductions == 1      ? 4
           : steps <= 12 && reductions <= 2     ? 2
                                                : 1;
}

/* ---- texts for each total ---- */

/* What a reduction adds up: its value, and of an indexed one the position that goes with it. */
struct total {
    struct kiln__phrase name; /* t3, j3 */
    kiln_type type;
    const char *start;
};

static struct total total_of(const struct kiln__body *body, unsigned i, bool position)
{
    kiln_type type = sums_type(body, i);
    return (struct total){.name = kiln__phrase(position ? "j%u" : "t%u", i),
                          .type = position ? KILN_I32 : type,
                          .start = position ? KILN__NO_POSITION
                                            : kiln__emit_identity(row_at(body, i), type)};
}

/* A pattern with the total's name for `@`, its type for `$` and its start for `!`. */
static struct kiln__phrase totals_fill(const struct total *total, unsigned width,
                                       const char *pattern)
{
    struct kiln__type_name type = kiln__emit_type(total->type, width);
    struct kiln__phrase text = {""};
    for (const char *at = pattern; *at;) {
        size_t plain = strcspn(at, "@$!");
        const char *word = at[plain] == '@'   ? total->name.text
                           : at[plain] == '$' ? type.text
                           : at[plain] == '!' ? total->start
                                              : "";
        text = kiln__phrase("%s%.*s%s", text.text, (int)plain, at, word);
        at += plain + (at[plain] != 0);
    }
    return text;
}

/* Its value, and the position that goes with it. */
static int totals_of(const struct kiln__body *body, unsigned i)
{
    return row_at(body, i)->indexed ? 2 : 1;
}

void kiln__body_totals(const struct kiln__body *body, unsigned width, const char *pattern)
{
    for (KILN__EACH_REDUCTION(i, body))
        for (int position = 0; position < totals_of(body, i); position++) {
            struct total total = total_of(body, i, position);
            kiln__code_add(body->code, "%s", totals_fill(&total, width, pattern).text);
        }
}

void kiln__body_sums(const struct kiln__body *body, unsigned width, const char *pattern)
{
    for (unsigned i = kiln__body_scan(body, 0); i < body->group->steps.count;
         i = kiln__body_scan(body, i + 1)) {
        struct total total = total_of(body, i, false);
        kiln__code_add(body->code, "%s", totals_fill(&total, width, pattern).text);
    }
}

void kiln__body_accumulators(const struct kiln__body *body, unsigned count)
{
    for (unsigned u = 0; u < count; u++)
        kiln__body_totals(body, body->variant->vector, kiln__phrase("$ @_%u = ($)(!)", u).text);
}

/* ---- elements into accumulators ---- */

/* target = a combined with b */
static void totals_combine(const struct kiln__body *body, unsigned i, unsigned width,
                           const char *target, const char *a, const char *b)
{
    kiln__emit_expression(kiln__code_add(body->code, "%s = ", target), row_at(body, i)->combine, a,
                          b, NULL, sums_type(body, i), width);
}

/* The numbers of a visit's elements along the reduced axis; rows side by side have one. */
static struct kiln__phrase totals_positions(const struct kiln__body *body,
                                            const struct kiln__visit *visit)
{
    unsigned width = visit->width;
    struct kiln__phrase text = kiln__phrase("(int)(%s)", visit->number);
    if (width == 1)
        return text;
    text = kiln__phrase("(int%u)(%s)", width, text.text);
    if (kiln__emit_vector_dimension(body->emit) < body->variant->kept)
        return text;
    text = kiln__phrase("(%s + (int%u)(", text.text, width);
    for (unsigned lane = 0; lane < width; lane++)
        text = kiln__phrase("%s%s%u", text.text, lane ? ", " : "", lane);
    return kiln__phrase("%s))", text.text);
}

/* The better of an accumulator and a value, and where it is. */
static void totals_choose(const struct kiln__body *body, unsigned i,
                          const struct kiln__visit *visit, const char *a, const char *j,
                          const char *value)
{
    kiln_type type = sums_type(body, i);
    unsigned width = visit->width;
    struct kiln__phrase at = totals_positions(body, visit);
    struct kiln__text *better =
        width == 1
            ? kiln__code_if(body->code, "%s", "")
            : kiln__code_add(body->code, "const %s%u chosen = ", kiln__type_row(type)->mask, width);
    kiln__emit_expression(better, row_at(body, i)->combine, a, value, NULL, type, width);
    if (width == 1) {
        kiln__code_add(body->code, "%s = %s\n%s = %s", a, value, j, at.text);
        kiln__code_end(body->code);
    } else
        kiln__code_add(body->code,
                       "%s = select(%s, %s, chosen)\n"
                       "%s = select(%s, %s, convert_int%u(chosen))",
                       a, a, value, j, j, at.text, width);
}

struct kiln__phrase kiln__body_summand(const struct kiln__body *body, unsigned i,
                                       const struct kiln__visit *visit, kiln_type type)
{
    struct kiln__value_name value = kiln__emit_value(visit->letter, i);
    return type == step_at(body, i)->type
               ? kiln__phrase("%s", value.text)
               : kiln__phrase("convert_%s(%s)", kiln__emit_type(type, visit->width).text,
                              value.text);
}

void kiln__body_accumulate(const struct kiln__body *body, unsigned i,
                           const struct kiln__visit *visit)
{
    uint16_t from = step_at(body, i)->args[0];
    kiln_type type = sums_type(body, i);
    struct kiln__phrase number = {""};
    if (visit->into != KILN__TOTALS)
        number = kiln__phrase("_%u", visit->into);
    struct kiln__phrase into = kiln__phrase("t%u%s", i, number.text);
    struct kiln__phrase value = kiln__body_summand(body, from, visit, type);
    if (row_at(body, i)->indexed)
        totals_choose(body, i, visit, into.text, kiln__phrase("j%u%s", i, number.text).text,
                      value.text);
    else
        totals_combine(body, i, visit->width, into.text, into.text, value.text);
}

/* ---- accumulators into totals ---- */

/* Of equal values the first is chosen. */
static void totals_merge(const struct kiln__body *body, unsigned i, const char *into,
                         const char *from)
{
    const struct kiln__reduce_row *row = row_at(body, i);
    struct total value = total_of(body, i, false), position = total_of(body, i, true);
    struct kiln__phrase a = totals_fill(&value, 1, into), b = totals_fill(&value, 1, from);
    struct kiln__phrase j = totals_fill(&position, 1, into), k = totals_fill(&position, 1, from);
    if (!row->indexed) {
        totals_combine(body, i, 1, a.text, a.text, b.text);
        return;
    }
    struct kiln__text *better = kiln__code_if(body->code, "(");
    kiln__emit_expression(better, row->combine, a.text, b.text, NULL, value.type, 1);
    kiln__text_add(better, ") || (!(");
    kiln__emit_expression(better, row->combine, b.text, a.text, NULL, value.type, 1);
    kiln__text_add(better, ") && %s < %s)", k.text, j.text);
    kiln__code_add(body->code, "%s = %s\n%s = %s", a.text, b.text, j.text, k.text);
    kiln__code_end(body->code);
}

void kiln__body_merge(const struct kiln__body *body, const char *into, const char *from)
{
    for (KILN__EACH_REDUCTION(i, body))
        totals_merge(body, i, into, from);
}

/* Lane by lane: of positions that are not in order. */
static void fold_indexed(const struct kiln__body *body, unsigned i)
{
    unsigned width = body->variant->vector;
    struct kiln__phrase lanes =
        kiln__phrase("$ lane_@[%u]\nvstore%u(@_0, 0, lane_@)", width, width);
    kiln__body_totals(body, 1, lanes.text);
    kiln__code_for(body->code, "int l = 0; l < %u; l++", width);
    totals_merge(body, i, "@", "lane_@[l]");
    kiln__code_end(body->code);
}

static void fold(const struct kiln__body *body, unsigned i, unsigned count)
{
    struct kiln__phrase from = kiln__phrase("t%u_0", i);
    for (unsigned u = 1; u < count; u++)
        totals_combine(body, i, body->variant->vector, from.text, from.text,
                       kiln__phrase("t%u_%u", i, u).text);
    for (unsigned half = body->variant->vector / 2; half; half /= 2) {
        struct kiln__phrase into = kiln__phrase("f%u_%u", i, half);
        struct kiln__type_name type = kiln__emit_type(sums_type(body, i), half);
        totals_combine(body, i, half, kiln__phrase("const %s %s", type.text, into.text).text,
                       kiln__phrase("%s.lo", from.text).text,
                       kiln__phrase("%s.hi", from.text).text);
        from = into;
    }
    totals_merge(body, i, "@", from.text);
}

void kiln__body_fold(const struct kiln__body *body, unsigned count)
{
    for (KILN__EACH_REDUCTION(i, body)) {
        if (row_at(body, i)->indexed)
            fold_indexed(body, i);
        else
            fold(body, i, count);
    }
}

/* ---- sums of sums ---- */

static bool adds_floats(const struct kiln__body *body, unsigned i)
{
    return row_at(body, i)->adds && kiln__type_row(sums_type(body, i))->floating;
}

bool kiln__body_adds(const struct kiln__body *body)
{
    bool adds = false;
    for (KILN__EACH_REDUCTION(i, body))
        adds = adds || adds_floats(body, i);
    return adds;
}

/* t<i>_0, with what the other accumulators have; or, of no accumulators, t<i>. */
static struct kiln__phrase gather_accumulators(const struct kiln__body *body, unsigned i,
                                               unsigned count)
{
    struct kiln__phrase first = kiln__phrase(count ? "t%u_0" : "t%u", i);
    for (unsigned u = 1; u < count; u++)
        totals_combine(body, i, body->variant->vector, first.text, first.text,
                       kiln__phrase("t%u_%u", i, u).text);
    return first;
}

/* What a sum loses by taking more is added with the next (W. Kahan, CACM 8, 1965), but where an
 * infinity or NaN is among them. */
static void add_compensated(const struct kiln__body *body, unsigned i, unsigned width,
                            const char *more)
{
    struct kiln__type_name type = kiln__emit_type(KILN_F32, width);
    kiln__code_block(body->code);
    kiln__code_add(body->code,
                   "const %s more = %s + t%u_lost, next = t%u_sum + more\n"
                   "t%u_lost = %s(fabs(next) < INFINITY, more - (next - t%u_sum), (%s)(0))\n"
                   "t%u_sum = next",
                   type.text, more, i, i, i, width > 1 ? "PICK_VECTOR" : "PICK", i, type.text, i);
    kiln__code_end(body->code);
}

void kiln__body_long_totals(const struct kiln__body *body, unsigned width)
{
    kiln__body_totals(body, width, "$ @_sum = ($)(!)");
    for (KILN__EACH_REDUCTION(i, body))
        if (adds_floats(body, i))
            kiln__code_add(body->code, "%s t%u_lost = 0", kiln__emit_type(KILN_F32, width).text, i);
}

void kiln__body_export_sums(const struct kiln__body *body, unsigned width, unsigned count)
{
    for (KILN__EACH_REDUCTION(i, body)) {
        struct kiln__phrase sum = kiln__phrase("t%u_sum", i);
        struct kiln__phrase first = gather_accumulators(body, i, count);
        if (adds_floats(body, i))
            add_compensated(body, i, width, first.text);
        else
            totals_combine(body, i, width, sum.text, sum.text, first.text);
        struct total total = total_of(body, i, false);
        for (unsigned u = 0; u < (count ? count : 1); u++)
            kiln__code_add(body->code, "%s",
                           totals_fill(&total, width,
                                       count ? kiln__phrase("@_%u = ($)(!)", u).text : "@ = ($)(!)")
                               .text);
    }
}

void kiln__body_import_sums(const struct kiln__body *body, unsigned width, unsigned count)
{
    for (KILN__EACH_REDUCTION(i, body)) {
        struct kiln__phrase first = kiln__phrase(count ? "t%u_0" : "t%u", i);
        if (adds_floats(body, i))
            totals_combine(body, i, width, first.text, first.text,
                           kiln__phrase("t%u_lost", i).text);
        totals_combine(body, i, width, first.text, kiln__phrase("t%u_sum", i).text, first.text);
    }
}

/* ---- values of totals ---- */

/* Where every element is the accumulator's start, the first one is chosen. */
static void emit_default_position(const struct kiln__body *body, unsigned i, unsigned width)
{
    kiln__code_add(body->code, "j%u = %s(j%u == " KILN__NO_POSITION ", (%s)((int)from), j%u)", i,
                   width > 1 ? "PICK_VECTOR" : "PICK", i, kiln__emit_type(KILN_I32, width).text, i);
}

void kiln__body_finish(const struct kiln__body *body, unsigned width)
{
    for (KILN__EACH_REDUCTION(i, body)) {
        if (row_at(body, i)->indexed && body->variant->stage != KILN__STAGE_FINAL)
            emit_default_position(body, i, width);
        if (body->variant->stage == KILN__STAGE_PARTIAL)
            continue;
        kiln_type type = step_at(body, i)->type;
        struct kiln__type_name name = kiln__emit_type(type, width);
        struct kiln__phrase count =
            kiln__phrase("((%s)((%s)reduced))", name.text, kiln__emit_type(type, 1).text);
        struct kiln__text *value = kiln__code_add(body->code, "const %s r%u = ", name.text, i);
        if (row_at(body, i)->indexed)
            kiln__text_add(value, "j%u", i);
        else
            kiln__emit_expression(value, row_at(body, i)->finish, kiln__phrase("t%u", i).text, NULL,
                                  count.text, type, width);
    }
}

void kiln__body_store_totals(const struct kiln__body *body, unsigned width, const char *p)
{
    unsigned i = kiln__group_total(body->group);
    struct kiln__phrase place = kiln__phrase("partial_@_offset + segment * n + %s", p);
    for (int position = 0; position < totals_of(body, i); position++) {
        struct total total = total_of(body, i, position);
        struct kiln__elements elements =
            kiln__emit_run(body->emit, total.type, width, totals_fill(&total, 1, "partial_@"),
                           totals_fill(&total, 1, place.text));
        kiln__emit_store(body->code, &elements, total.name.text, false);
    }
}

const char *kiln__body_partial(const struct kiln__body *body)
{
    return body->emit->checked ? "(*KILN_AT(partial_@, partial_@_offset + s * n + p, 1))"
                               : "partial_@[partial_@_offset + s * n + p]";
}
