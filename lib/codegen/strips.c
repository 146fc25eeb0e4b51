/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions whose kept elements are neighbours, on chunked devices:
 *
 *   for strips of a run { for each phase { for each few reduced ones { for vectors of the strip
 *   { body } } ends } values }
 *
 * What a phase leaves for those behind it is kept beside the totals: strip_r<i>. Few reduced ones,
 * as the elements of a window, are all visited for each vector:
 *
 *   for vectors of a run { for each reduced one { body } ends } */
#include "codegen/loops.h"

/* As many totals as the nearest cache keeps, beside the rows that are read, where there is one for
 * each kept element, and where there are a few and values beside them. */
#define STRIP 1024
#define PHASED_STRIP 256

/* Reduced ones that a total adds up before that goes on to a second one. With 64 the kernel takes
 * twice as many additions for that. */
#define IN_ONE 128

static int strip_of(const struct kiln__body *body)
{
    return kiln__group_reads_once(body->group) ? STRIP : PHASED_STRIP;
}

/* Whether step i is kept for later phases: those of a row, but for scalars. */
static bool is_left(const struct kiln__body *body, unsigned i)
{
    return !kiln__group_reads_once(body->group) && !body->nest.full[i] &&
           body->group->steps.items[i].kind != KILN__STEP_SCALAR;
}

static struct kiln__type_name type_of(const struct kiln__body *body, unsigned i, unsigned width)
{
    return kiln__emit_type(body->group->steps.items[i].type, width);
}

void kiln__emit_strip_totals(struct kiln__body *body)
{
    for (unsigned phase = 0; phase < body->nest.phases; phase++) {
        kiln__body_enter_phase(body, phase);
        kiln__body_totals(body, 1, kiln__phrase("$ strip_@[%d]", strip_of(body)).text);
        if (kiln__body_adds(body))
            kiln__body_totals(
                body, 1,
                kiln__phrase("$ sum_@[%d], lost_@[%d]", strip_of(body), strip_of(body)).text);
    }
    for (unsigned i = 0; i < body->group->steps.count; i++)
        if (is_left(body, i))
            kiln__code_add(body->code, "%s strip_r%u[%d]", type_of(body, i, 1).text, i,
                           strip_of(body));
    kiln__body_enter_phase(body, 0);
}

/* A strip's elements at `i`, such as *(loose_float8 *)(strip_r3 + i). */
static struct kiln__phrase strip_at(const char *strip, const char *type, unsigned width)
{
    return width > 1 ? kiln__phrase("*(loose_%s *)(%s + i)", type, strip)
                     : kiln__phrase("%s[i]", strip);
}

static struct kiln__phrase left_at(const struct kiln__body *body, unsigned i, unsigned width)
{
    return strip_at(kiln__phrase("strip_r%u", i).text, type_of(body, i, width).text, width);
}

/* Keep the phase's values of rows, or those of its reductions. */
static void strips_leave(const struct kiln__body *body, unsigned width, bool reductions)
{
    for (unsigned i = 0; i < body->group->steps.count; i++) {
        bool reduced = body->group->steps.items[i].kind == KILN__STEP_REDUCED;
        if (is_left(body, i) && body->nest.phase[i] == body->phase && reduced == reductions)
            kiln__code_add(body->code, "%s = r%u", left_at(body, i, width).text, i);
    }
}

/* Declare r<i> of the steps that are wanted and that the phase does not compute now. */
static void strips_fetch(const struct kiln__body *body, unsigned width, const bool *wanted,
                         bool computes)
{
    struct kiln__emit own = *body->emit;
    own.letter = 'r';
    for (unsigned i = 0; i < body->group->steps.count; i++) {
        bool reduced = body->group->steps.items[i].kind == KILN__STEP_REDUCED;
        bool now = computes && !reduced && body->nest.phase[i] == body->phase;
        if (!wanted[i] || body->nest.full[i] || now)
            continue;
        if (is_left(body, i))
            kiln__code_add(body->code, "const %s r%u = %s", type_of(body, i, width).text, i,
                           left_at(body, i, width).text);
        else
            kiln__emit_steps(&own, i, i + 1, width, "h", "i");
    }
}

static struct kiln__phrase loading(unsigned width)
{
    return kiln__phrase("$ @ = %s", strip_at("strip_@", "$", width).text);
}

static void keep_totals(const struct kiln__body *body, unsigned width)
{
    struct kiln__phrase keep = kiln__phrase("%s = @", strip_at("strip_@", "$", width).text);
    kiln__body_totals(body, width, keep.text);
    kiln__body_sums(body, width, keep.text);
}

/* Rows `r` to `r + rows - 1`, `width` elements of each at a time. */
static void emit_rows(const struct kiln__body *body, unsigned rows, unsigned width)
{
    kiln__emit_strip_loop(body, width, "strip");
    kiln__body_totals(body, width, loading(width).text);
    kiln__body_sums(body, width, loading(width).text);
    strips_fetch(body, width, body->needed, false);
    for (unsigned u = 0; u < rows; u++) {
        struct kiln__phrase at = kiln__phrase("(r + %u)", u);
        struct kiln__phrase row = kiln__body_scan_position(body, at.text, 1, "to");
        kiln__code_block(body->code);
        kiln__body_reduced_bases(body, row.text);
        kiln__body_element(body, width, "(t + i)", row.text, KILN__TOTALS);
        kiln__code_end(body->code);
    }
    keep_totals(body, width);
    kiln__code_end(body->code);
}

/* Totals are loaded and stored once for several rows. */
static void emit_blocks(const struct kiln__body *body, unsigned rows)
{
    kiln__code_for(body->code, "; r + %u <= to; r += %u", rows, rows);
    kiln__code_add(body->code, "int i = 0");
    emit_rows(body, rows, body->variant->vector);
    emit_rows(body, rows, 1);
    kiln__code_end(body->code);
}

static void emit_part(const struct kiln__body *body)
{
    kiln__code_add(body->code, "idx r = from");
    if (body->variant->rows > 1)
        emit_blocks(body, body->variant->rows);
    emit_blocks(body, 1);
}

/* What a part has come to, into what those before it have; behind the last one, back. */
static void emit_part_end(struct kiln__body *body, unsigned width)
{
    struct kiln__phrase sum = strip_at("sum_@", "$", width), lost = strip_at("lost_@", "$", width);
    struct kiln__phrase go_on =
        kiln__phrase("$ @_sum = part > begin ? %s : %s\n$ @_lost = part > begin ? %s : %s",
                     sum.text, width > 1 ? "($)(!)" : "(!)", lost.text, width > 1 ? "($)(0)" : "0");
    kiln__emit_strip_loop(body, width, "strip");
    kiln__body_totals(body, width, loading(width).text);
    kiln__body_totals(body, width, go_on.text);
    kiln__body_export_sums(body, width, 0);
    kiln__body_totals(body, width,
                      kiln__phrase("%s = @_sum\n%s = @_lost", sum.text, lost.text).text);
    kiln__code_if(body->code, "to == all");
    kiln__body_import_sums(body, width, 0);
    kiln__code_end(body->code);
    keep_totals(body, width);
    kiln__code_end(body->code);
}

/* A long axis in parts, if it adds up floats: the error of a sum grows with the length of one. */
static void emit_reduced_axis(struct kiln__body *body)
{
    if (!kiln__body_adds(body) || kiln__body_has_scan(body)) {
        emit_part(body);
        return;
    }
    kiln__code_add(body->code, "const idx begin = from, all = to");
    kiln__code_for(body->code, "idx part = begin; part < all; part += %d", IN_ONE);
    kiln__code_add(body->code, "const idx from = part, to = min(part + %d, all)", IN_ONE);
    emit_part(body);
    kiln__code_if(body->code, "all - begin > %d", IN_ONE);
    kiln__code_add(body->code, "int i = 0");
    emit_part_end(body, body->variant->vector);
    emit_part_end(body, 1);
    kiln__code_end(body->code);
    kiln__code_end(body->code);
}

static void emit_ends(struct kiln__body *body, unsigned width)
{
    kiln__emit_strip_loop(body, width, "strip");
    kiln__body_enter_phase(body, 0);
    kiln__body_totals(body, width, loading(width).text);
    kiln__body_values(body, width, "(t + i)");
    kiln__body_finish(body, width);
    kiln__body_store(body, width, "p + t + i", "(t + i)");
    kiln__code_end(body->code);
}

/* What rows have once the phases before this one are over: values, or, behind the last phase, what
 * there is one of to store. */
static bool has_values(const struct kiln__body *body)
{
    const struct kiln__group *group = body->group;
    bool has = false;
    for (unsigned i = 0; i < group->steps.count; i++)
        has = has || (is_left(body, i) && body->nest.phase[i] == body->phase &&
                      group->steps.items[i].kind != KILN__STEP_REDUCED);
    for (size_t k = 0; body->phase == body->nest.phases && k < group->stores.count; k++)
        has = has || !group->stores.items[k].full;
    return has;
}

/* The steps that these take. */
static void find_wanted(const struct kiln__body *body, bool wanted[KILN__MOST_STEPS])
{
    const struct kiln__group *group = body->group;
    for (size_t k = 0; body->phase == body->nest.phases && k < group->stores.count; k++)
        wanted[group->stores.items[k].step] |= !group->stores.items[k].full;
    for (unsigned i = 0; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        bool now = !body->nest.full[i] && step->kind != KILN__STEP_REDUCED &&
                   body->nest.phase[i] == body->phase;
        for (unsigned k = 0; now && k < step->n_args; k++)
            wanted[step->args[k]] = true;
    }
}

static void emit_values(struct kiln__body *body, unsigned width)
{
    bool wanted[KILN__MOST_STEPS] = {false};
    find_wanted(body, wanted);
    kiln__emit_strip_loop(body, width, "strip");
    strips_fetch(body, width, wanted, true);
    if (body->phase == body->nest.phases) {
        kiln__body_store(body, width, "p + t + i", "(t + i)");
    } else {
        kiln__body_values(body, width, "(t + i)");
        strips_leave(body, width, false);
    }
    kiln__code_end(body->code);
}

static void emit_reduced(struct kiln__body *body, unsigned width)
{
    kiln__emit_strip_loop(body, width, "strip");
    kiln__body_totals(body, width, loading(width).text);
    kiln__body_finish(body, width);
    strips_leave(body, width, true);
    kiln__code_end(body->code);
}

/* Vectors of a strip, and single elements after them. */
static void emit_strip(struct kiln__body *body, void (*emit)(struct kiln__body *, unsigned))
{
    kiln__code_block(body->code);
    kiln__code_add(body->code, "int i = 0");
    emit(body, body->variant->vector);
    emit(body, 1);
    kiln__code_end(body->code);
}

static void emit_start(const struct kiln__body *body)
{
    kiln__code_for(body->code, "int i = 0; i < strip; i++");
    kiln__body_totals(body, 1, KILN__START);
    kiln__body_sums(body, 1, KILN__START);
    keep_totals(body, 1);
    kiln__code_end(body->code);
}

static void emit_phases(struct kiln__body *body)
{
    for (unsigned phase = 0; phase <= body->nest.phases; phase++) {
        kiln__body_enter_phase(body, phase);
        if (has_values(body))
            emit_strip(body, emit_values);
        if (phase == body->nest.phases)
            break;
        bool reduces = kiln__body_reduction(body, 0) < body->group->steps.count;
        kiln__code_block(body->code);
        kiln__body_sums(body, 1, kiln__phrase("$ strip_@[%d]", strip_of(body)).text);
        if (reduces || kiln__body_has_scan(body))
            emit_start(body);
        emit_reduced_axis(body);
        kiln__code_end(body->code);
        if (reduces)
            emit_strip(body, emit_reduced);
    }
}

static void emit_once(struct kiln__body *body)
{
    emit_start(body);
    emit_reduced_axis(body);
    kiln__code_add(body->code, "int i = 0");
    emit_ends(body, body->variant->vector);
    emit_ends(body, 1);
}

/* ---- few reduced ones ---- */

/* All of them one after the other, a loop for each dimension: "for (idx c_3 = 0; ...". */
static void open_reduced(const struct kiln__body *body)
{
    uint32_t first = body->variant->kept, end = body->variant->rank;
    kiln__code_add(body->code, "idx r = from");
    for (uint32_t d = first; d < end; d++) {
        struct kiln__text *loop = d + 1 == end ? kiln__code_for(body->code, "%s", "")
                                               : kiln__code_single(body->code, KILN__FOR, "%s", "");
        if (d == first)
            kiln__text_add(loop, "idx c_%u = 0; r < to; c_%u++", d, d);
        else
            kiln__text_add(loop, "idx c_%u = 0; c_%u < d%u; c_%u++", d, d, d, d);
    }
}

/* What becomes of the totals of vector `u`. */
static void emit_column_end(struct kiln__body *body, unsigned width, unsigned u)
{
    struct kiln__phrase at = kiln__phrase("(i + %u)", u * width);
    kiln__code_block(body->code);
    kiln__body_enter_phase(body, 0);
    kiln__body_totals(body, width, kiln__phrase("$ @ = @_%u", u).text);
    kiln__body_values(body, width, at.text);
    kiln__body_finish(body, width);
    kiln__body_store(body, width, kiln__phrase("p + %s", at.text).text, at.text);
    kiln__code_end(body->code);
}

/* Totals stay in registers, those of `count` vectors side by side. */
static void emit_column(struct kiln__body *body, unsigned width, unsigned count)
{
    static const char letters[] = "vw";
    struct kiln__phrase at[sizeof letters - 1];
    struct kiln__visit visits[sizeof letters - 1];
    for (unsigned u = 0; u < count; u++) {
        at[u] = kiln__phrase("(i + %u)", u * width);
        visits[u] = (struct kiln__visit){
            .width = width, .at = at[u].text, .number = "r", .into = u, .letter = letters[u]};
    }
    kiln__emit_strip_loop(body, count * width, "count");
    kiln__body_enter_phase(body, 0);
    for (unsigned u = 0; u < count; u++)
        kiln__body_totals(body, width, kiln__phrase("$ @_%u = ($)(!)", u).text);
    open_reduced(body);
    kiln__body_reduced_offsets(body, "r");
    kiln__body_elements(body, visits, count);
    kiln__code_add(body->code, "r++");
    kiln__code_end(body->code);
    for (unsigned u = 0; u < count; u++)
        emit_column_end(body, width, u);
    kiln__code_end(body->code);
}

/* Where elements are found is the same for vectors side by side. */
void kiln__emit_columns(struct kiln__body *body)
{
    kiln__code_add(body->code, "idx i = 0");
    if (kiln__body_unroll(body) > 1)
        emit_column(body, body->variant->vector, 2);
    emit_column(body, body->variant->vector, 1);
    emit_column(body, 1, 1);
}

void kiln__emit_strips(struct kiln__body *body)
{
    kiln__code_for(body->code, "idx t = 0; t < count; t += %d", strip_of(body));
    kiln__code_add(body->code, "const int strip = min((idx)%d, count - t)", strip_of(body));
    if (kiln__group_reads_once(body->group))
        emit_once(body);
    else
        emit_phases(body);
    kiln__code_end(body->code);
}
