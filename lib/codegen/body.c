/* SPDX-License-Identifier: Apache-2.0 */
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

void kiln__body_turn(struct kiln__body *body, unsigned phase)
{
    body->phase = phase;
    kiln__nest_needs(body->group, &body->nest, phase, body->needed);
    bool partial = body->form->stage == KILN__STAGE_PARTIAL;
    for (size_t i = kiln__group_total(body->group) + 1; partial && i < body->group->steps.count;
         i++)
        body->needed[i] = false;
}

/* Rows that lie side by side are visited together, so that nothing is a row's own before they
 * end. */
void kiln__body_begin(struct kiln__body *body, const struct kiln__emit *emit)
{
    *body = (struct kiln__body){
        .emit = emit, .group = emit->group, .form = emit->form, .text = emit->text};
    /* Lanes that carry sums have other elements in other phases. */
    bool keeps = !emit->form->native_math && !emit->form->carried;
    kiln__nest_of(emit->group, keeps, &body->nest);
    if (emit->form->kept_walk == KILN__WALK_VECTORS)
        for (unsigned i = 0; i < emit->group->reduced_step; i++)
            body->nest.full[i] = true;
    kiln__body_turn(body, 0);
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
    return indexed || kiln__body_carries(body) ? 1
           : steps <= 6 && reductions == 1     ? 4
           : steps <= 12 && reductions <= 2    ? 2
                                               : 1;
}

/* ---- positions ---- */

/* Maps may know accesses by the element's number. */
static bool needs_coordinates(const struct kiln__body *body)
{
    bool needs = body->form->placed;
    for (size_t k = 0; k < body->group->accesses.count; k++)
        needs = needs || body->form->along[k] != KILN__LINEAR;
    return needs;
}

/* As kiln__emit_dot(), of stores. */
static struct kiln__phrase dot_placed(uint32_t first, uint32_t end)
{
    struct kiln__phrase dot = {""};
    for (uint32_t d = first; d < end; d++)
        dot = kiln__phrase("%s + c_%u * u0_%u", dot.text, d, d);
    return dot;
}

void kiln__body_bases(const struct kiln__body *body, uint32_t end)
{
    bool tiles = body->form->kept_walk == KILN__WALK_TILES;
    if (!tiles && needs_coordinates(body))
        kiln__emit_coordinates(body->emit, "p", 0, end);
    for (size_t k = 0; k < body->group->accesses.count; k++) {
        uint8_t along = body->form->along[k];
        if (along != KILN__ACROSS)
            kiln__text_add(body->text, "const idx h%zu = o%zu%s;\n", k, k,
                           along == KILN__LINEAR ? " + p" : kiln__emit_dot(k, 0, end).text);
    }
    for (size_t k = 0; body->form->placed && k < body->group->stores.count; k++)
        if (body->group->stores.items[k].full)
            kiln__text_add(body->text, "const idx z%zu = q%zu%s;\n", k, k, dot_placed(0, end).text);
}

/* Whether a step's value comes from its keeper in this phase. */
static bool is_kept(const struct kiln__body *body, unsigned i)
{
    return body->nest.keeper[i] && body->nest.phase[i] < body->phase;
}

/* Whether the phase loads elements of an access. */
static bool loads(const struct kiln__body *body, size_t access)
{
    for (unsigned i = 0; i < body->group->steps.count; i++) {
        const struct kiln__step *step = step_at(body, i);
        if (body->needed[i] && body->nest.full[i] && kiln__step_reads(step) &&
            step->index == access)
            return true;
    }
    return false;
}

static bool writes(const struct kiln__body *body, size_t k)
{
    return body->form->stage != KILN__STAGE_PARTIAL && body->group->stores.items[k].full &&
           kiln__nest_store_phase(body->group, &body->nest, k) == body->phase;
}

/* Whether the phase reads or writes whole rows of store k. */
static bool uses_store(const struct kiln__body *body, size_t k)
{
    bool uses = writes(body, k);
    for (size_t i = 0; i < body->group->steps.count; i++)
        uses = uses || (body->needed[i] && body->nest.keeper[i] == k + 1);
    return uses;
}

void kiln__body_reduced_places(const struct kiln__body *body, const char *r)
{
    for (size_t k = 0; k < body->group->accesses.count; k++)
        if (loads(body, k))
            kiln__text_add(body->text, "const idx b%zu = h%zu%s;\n", k, k,
                           kiln__emit_dot(k, body->form->kept, body->form->rank).text);
    for (size_t k = 0; k < body->group->stores.count; k++)
        if (uses_store(body, k) && body->form->placed)
            kiln__text_add(body->text, "const idx g%zu = z%zu%s;\n", k, k,
                           dot_placed(body->form->kept, body->form->rank).text);
        else if (uses_store(body, k))
            kiln__text_add(body->text, "const idx g%zu = q%zu + p * reduced + %s;\n", k, k, r);
}

void kiln__body_reduced_bases(const struct kiln__body *body, const char *r)
{
    kiln__emit_coordinates(body->emit, r, body->form->kept, body->form->rank);
    kiln__body_reduced_places(body, r);
}

/* The first step that loads elements of access k. */
static unsigned find_load(const struct kiln__body *body, size_t k)
{
    unsigned i = 0;
    while (step_at(body, i)->kind != KILN__STEP_LOAD || !body->nest.full[i] ||
           step_at(body, i)->index != k)
        i++;
    return i;
}

/* All at once, so that a lane waits for memory once: beyond the row's end those of the end. */
static void hold(const struct kiln__body *body, size_t k)
{
    unsigned i = find_load(body, k), width = body->form->vector;
    for (unsigned u = 0; u < body->form->held; u++) {
        struct kiln__type_name type = kiln__emit_type(step_at(body, i)->type, width);
        kiln__text_add(body->text, "%s m%zu_%u;\n{\n", type.text, k, u);
        kiln__emit_coordinates(body->emit, kiln__phrase("min(at%u, to - %u)", u, width).text,
                               body->form->kept, body->form->rank);
        kiln__text_add(body->text, "const idx b%zu = h%zu%s;\n", k, k,
                       kiln__emit_dot(k, body->form->kept, body->form->rank).text);
        kiln__emit_steps(body->emit, i, i + 1, width, "b", "0");
        kiln__text_add(body->text, "m%zu_%u = v%u;\n}\n", k, u, i);
    }
}

/* Its registers are those of what it is computed from, as a rule. */
static void hold_costly(struct kiln__body *body)
{
    for (unsigned i = 0; i < body->group->steps.count && !body->costly.step; i++) {
        const struct kiln__step *step = step_at(body, i);
        unsigned phases = 0, from = 0;
        if (step->kind != KILN__STEP_APPLY || !body->nest.full[i] || body->nest.keeper[i] ||
            kiln__elementwise_rows[step->op].cost < KILN__COSTLY)
            continue;
        for (unsigned phase = body->nest.phases; phase-- > 0;) {
            kiln__body_turn(body, phase);
            if (!body->needed[i])
                continue;
            from = phase;
            phases++;
        }
        if (phases < 2)
            continue;
        body->costly.step = i + 1;
        body->costly.from = from;
        struct kiln__type_name type = kiln__emit_type(step->type, body->form->vector);
        for (unsigned u = 0; u < body->form->held; u++)
            kiln__text_add(body->text, "%s k%u_%u = (%s)(0);\n", type.text, i, u, type.text);
    }
    kiln__body_turn(body, 0);
}

void kiln__body_hold(struct kiln__body *body)
{
    hold_costly(body);
    body->held = kiln__nest_loads(body->group, &body->nest).shared;
    for (size_t k = 0; k < body->group->accesses.count; k++)
        if (body->held >> k & 1)
            hold(body, k);
}

/* ---- values of rows ---- */

/* What a segment, or what comes of segments, has to do with. */
static bool is_of_stage(const struct kiln__body *body, unsigned i)
{
    switch ((enum kiln__stage)body->form->stage) {
    case KILN__STAGE_PARTIAL: return i < kiln__group_total(body->group);
    case KILN__STAGE_FINAL: return i > kiln__group_total(body->group);
    case KILN__STAGE_WHOLE:
    case KILN__STAGE_BEHIND: break;
    }
    return true;
}

void kiln__body_values(const struct kiln__body *body, unsigned width, const char *at)
{
    struct kiln__emit own = *body->emit;
    own.letter = 'r';
    for (unsigned i = 0; i < body->group->steps.count; i++)
        if (!body->nest.full[i] && body->nest.phase[i] == body->phase &&
            step_at(body, i)->kind != KILN__STEP_REDUCED && is_of_stage(body, i))
            kiln__emit_steps(&own, i, i + 1, width, "h", at);
}

/* ---- totals ---- */

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
static struct kiln__phrase fill(const struct total *total, unsigned width, const char *pattern)
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
            kiln__text_add(body->text, "%s", fill(&total, width, pattern).text);
        }
}

void kiln__body_sums(const struct kiln__body *body, unsigned width, const char *pattern)
{
    for (unsigned i = kiln__body_scan(body, 0); i < body->group->steps.count;
         i = kiln__body_scan(body, i + 1)) {
        struct total total = total_of(body, i, false);
        kiln__text_add(body->text, "%s", fill(&total, width, pattern).text);
    }
}

void kiln__body_accumulators(const struct kiln__body *body, unsigned count)
{
    for (unsigned u = 0; u < count; u++)
        kiln__body_totals(body, body->form->vector, kiln__phrase("$ @_%u = ($)(!);\n", u).text);
}

/* target = a combined with b */
static void combine(const struct kiln__body *body, unsigned i, unsigned width, const char *target,
                    const char *a, const char *b)
{
    kiln__text_add(body->text, "%s = ", target);
    kiln__emit_expression(body->emit, row_at(body, i)->combine, a, b, NULL, sums_type(body, i),
                          width);
    kiln__text_add(body->text, ";\n");
}

/* The numbers of a visit's elements along the reduced axis; rows side by side have one. */
static struct kiln__phrase positions(const struct kiln__body *body, const struct kiln__visit *visit)
{
    unsigned width = visit->width;
    struct kiln__phrase text = kiln__phrase("(int)(%s)", visit->number);
    if (width == 1)
        return text;
    text = kiln__phrase("(int%u)(%s)", width, text.text);
    if (kiln__emit_vector_dimension(body->emit) < body->form->kept)
        return text;
    text = kiln__phrase("(%s + (int%u)(", text.text, width);
    for (unsigned lane = 0; lane < width; lane++)
        text = kiln__phrase("%s%s%u", text.text, lane ? ", " : "", lane);
    return kiln__phrase("%s))", text.text);
}

/* The better of an accumulator and a value, and where it is. */
static void choose(const struct kiln__body *body, unsigned i, const struct kiln__visit *visit,
                   const char *a, const char *j, const char *value)
{
    kiln_type type = sums_type(body, i);
    unsigned width = visit->width;
    struct kiln__phrase at = positions(body, visit);
    if (width == 1)
        kiln__text_add(body->text, "if (");
    else
        kiln__text_add(body->text, "const %s%u chosen = ", kiln__type_row(type)->mask, width);
    kiln__emit_expression(body->emit, row_at(body, i)->combine, a, value, NULL, type, width);
    if (width == 1)
        kiln__text_add(body->text, ") {\n%s = %s;\n%s = %s;\n}\n", a, value, j, at.text);
    else
        kiln__text_add(body->text,
                       ";\n%s = select(%s, %s, chosen);\n"
                       "%s = select(%s, %s, convert_int%u(chosen));\n",
                       a, a, value, j, j, at.text, width);
}

/* A visit's value of reduction i into its accumulator or total. */
static void take(const struct kiln__body *body, unsigned i, const struct kiln__visit *visit)
{
    uint16_t from = step_at(body, i)->args[0];
    kiln_type type = sums_type(body, i);
    struct kiln__phrase number = {""};
    if (visit->into != KILN__TOTALS)
        number = kiln__phrase("_%u", visit->into);
    struct kiln__phrase into = kiln__phrase("t%u%s", i, number.text);
    struct kiln__emit own = *body->emit;
    own.letter = visit->letter;
    struct kiln__phrase value = kiln__phrase("%s", kiln__emit_value(&own, from).text);
    if (type != step_at(body, from)->type)
        value = kiln__phrase("convert_%s(%s)", kiln__emit_type(type, visit->width).text,
                             kiln__emit_value(&own, from).text);
    if (row_at(body, i)->indexed)
        choose(body, i, visit, into.text, kiln__phrase("j%u%s", i, number.text).text, value.text);
    else
        combine(body, i, visit->width, into.text, into.text, value.text);
}

/* Of equal values the first is chosen. */
static void merge(const struct kiln__body *body, unsigned i, const char *into, const char *from)
{
    const struct kiln__reduce_row *row = row_at(body, i);
    struct total value = total_of(body, i, false), position = total_of(body, i, true);
    struct kiln__phrase a = fill(&value, 1, into), b = fill(&value, 1, from);
    struct kiln__phrase j = fill(&position, 1, into), k = fill(&position, 1, from);
    if (!row->indexed) {
        combine(body, i, 1, a.text, a.text, b.text);
        return;
    }
    kiln__text_add(body->text, "if ((");
    kiln__emit_expression(body->emit, row->combine, a.text, b.text, NULL, value.type, 1);
    kiln__text_add(body->text, ") || (!(");
    kiln__emit_expression(body->emit, row->combine, b.text, a.text, NULL, value.type, 1);
    kiln__text_add(body->text, ") && %s < %s)) {\n%s = %s;\n%s = %s;\n}\n", k.text, j.text, a.text,
                   b.text, j.text, k.text);
}

void kiln__body_merge(const struct kiln__body *body, const char *into, const char *from)
{
    for (KILN__EACH_REDUCTION(i, body))
        merge(body, i, into, from);
}

/* Lane by lane: of positions that are not in order. */
static void fold_indexed(const struct kiln__body *body, unsigned i)
{
    unsigned width = body->form->vector;
    struct kiln__phrase lanes =
        kiln__phrase("$ lane_@[%u];\nvstore%u(@_0, 0, lane_@);\n", width, width);
    kiln__body_totals(body, 1, lanes.text);
    kiln__text_add(body->text, "for (int l = 0; l < %u; l++) {\n", width);
    merge(body, i, "@", "lane_@[l]");
    kiln__text_add(body->text, "}\n");
}

static void fold(const struct kiln__body *body, unsigned i, unsigned count)
{
    struct kiln__phrase from = kiln__phrase("t%u_0", i);
    for (unsigned u = 1; u < count; u++)
        combine(body, i, body->form->vector, from.text, from.text,
                kiln__phrase("t%u_%u", i, u).text);
    for (unsigned half = body->form->vector / 2; half; half /= 2) {
        struct kiln__phrase into = kiln__phrase("f%u_%u", i, half);
        kiln__text_add(body->text, "const %s ", kiln__emit_type(sums_type(body, i), half).text);
        combine(body, i, half, into.text, kiln__phrase("%s.lo", from.text).text,
                kiln__phrase("%s.hi", from.text).text);
        from = into;
    }
    merge(body, i, "@", from.text);
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

/* ---- elements ---- */

/* Elements of store k at `at`: load them, or store `value`. */
static void visit_store(const struct kiln__body *body, size_t k, const struct kiln__visit *visit,
                        const char *value)
{
    const struct kiln__form *form = body->form;
    bool scattered = form->placed == KILN__STRIDED;
    struct kiln__phrase pointer = kiln__phrase("y%zu", k);
    const bool rows = form->reduced_walk != KILN__WALK_NONE;
    struct kiln__phrase stride = kiln__phrase("u0_%u", form->rank - 1u);
    struct kiln__phrase offset = scattered      ? kiln__phrase(rows ? "g%zu" : "z%zu", k)
                                 : rows         ? kiln__phrase("g%zu + %s", k, visit->at)
                                 : form->placed ? kiln__phrase("z%zu + %s", k, visit->at)
                                                : kiln__phrase("q%zu + p + %s", k, visit->at);
    struct kiln__elements elements = kiln__emit_run(
        body->emit, kiln__emit_store_type(body->emit, k), visit->width, pointer.text, offset.text);
    if (scattered) {
        elements.fit = KILN__FIT_STRIDED;
        elements.at = visit->at;
        elements.stride = stride.text;
    }
    if (value)
        kiln__emit_store(body->text, &elements, value, form->streams);
    else
        kiln__emit_load(body->text, &elements);
}

static void emit_value(const struct kiln__body *body, unsigned i, const struct kiln__visit *visit)
{
    const struct kiln__step *step = step_at(body, i);
    const char *base = body->form->reduced_walk == KILN__WALK_NONE ? "h" : "b";
    struct kiln__type_name type = kiln__emit_type(step->type, visit->width);
    struct kiln__emit own = *body->emit;
    own.letter = visit->letter;
    struct kiln__value_name name = kiln__emit_value(&own, i);
    bool held = step->kind == KILN__STEP_LOAD && body->held >> step->index & 1;
    bool costly = body->costly.step == i + 1;
    if (!body->nest.full[i]) {
        kiln__text_add(body->text, "const %s %s = (%s)(r%u);\n", type.text, name.text, type.text,
                       i);
    } else if (is_kept(body, i)) {
        kiln__text_add(body->text, "const %s v%u = ", type.text, i);
        visit_store(body, body->nest.keeper[i] - 1u, visit, NULL);
        kiln__text_add(body->text, ";\n");
    } else if (held) {
        kiln__text_add(body->text, "const %s v%u = m%u_%u;\n", type.text, i, step->index,
                       body->slot);
    } else if (costly && body->costly.from < body->phase) {
        kiln__text_add(body->text, "const %s v%u = k%u_%u;\n", type.text, i, i, body->slot);
        costly = false;
    } else {
        kiln__emit_steps(&own, i, i + 1, visit->width, base, visit->at);
    }
    if (costly)
        kiln__text_add(body->text, "k%u_%u = v%u;\n", i, body->slot, i);
}

/* What the phase stores of the elements: first values that are kept for later phases. */
static void emit_stores(const struct kiln__body *body, const struct kiln__visit *visit)
{
    const struct kiln__group *group = body->group;
    struct kiln__emit own = *body->emit;
    own.letter = visit->letter;
    for (unsigned i = 0; i < group->steps.count; i++) {
        unsigned keeper = body->nest.keeper[i];
        bool first = body->needed[i] && keeper && body->nest.phase[i] == body->phase;
        if (first && group->stores.items[keeper - 1].step != i)
            visit_store(body, keeper - 1, visit, kiln__emit_value(&own, i).text);
    }
    for (size_t k = 0; k < group->stores.count; k++)
        if (writes(body, k))
            visit_store(body, k, visit, kiln__emit_value(&own, group->stores.items[k].step).text);
}

void kiln__body_elements(const struct kiln__body *body, const struct kiln__visit *visits,
                         unsigned count)
{
    for (unsigned i = 0; i < body->group->steps.count; i++) {
        if (i == kiln__body_scan(body, i)) {
            kiln__body_scanned(body, i, visits, count);
            continue;
        }
        for (unsigned u = 0; body->needed[i] && u < count; u++)
            emit_value(body, i, &visits[u]);
    }
    for (unsigned u = 0; u < count; u++) {
        if (visits[u].only)
            kiln__text_add(body->text, "if (%s) {\n", visits[u].only);
        for (KILN__EACH_REDUCTION(i, body))
            take(body, i, &visits[u]);
        emit_stores(body, &visits[u]);
        if (visits[u].only)
            kiln__text_add(body->text, "}\n");
    }
}

void kiln__body_element(const struct kiln__body *body, unsigned width, const char *at,
                        const char *number, unsigned into)
{
    struct kiln__visit visit = {.width = width, .at = at, .number = number, .into = into};
    kiln__body_elements(body, &visit, 1);
}

/* ---- rows ---- */

/* Where every element is the accumulator's start, the first one is chosen. */
static void emit_default_position(const struct kiln__body *body, unsigned i, unsigned width)
{
    kiln__text_add(body->text, "j%u = %s(j%u == " KILN__NO_POSITION ", (%s)((int)from), j%u);\n", i,
                   width > 1 ? "PICK_VECTOR" : "PICK", i, kiln__emit_type(KILN_I32, width).text, i);
}

void kiln__body_finish(const struct kiln__body *body, unsigned width)
{
    for (KILN__EACH_REDUCTION(i, body)) {
        if (row_at(body, i)->indexed && body->form->stage != KILN__STAGE_FINAL)
            emit_default_position(body, i, width);
        if (body->form->stage == KILN__STAGE_PARTIAL)
            continue;
        kiln_type type = step_at(body, i)->type;
        struct kiln__type_name name = kiln__emit_type(type, width);
        struct kiln__phrase count =
            kiln__phrase("((%s)((%s)reduced))", name.text, kiln__emit_type(type, 1).text);
        kiln__text_add(body->text, "const %s r%u = ", name.text, i);
        if (row_at(body, i)->indexed)
            kiln__text_add(body->text, "j%u", i);
        else
            kiln__emit_expression(body->emit, row_at(body, i)->finish, kiln__phrase("t%u", i).text,
                                  NULL, count.text, type, width);
        kiln__text_add(body->text, ";\n");
    }
}

static void store(const struct kiln__body *body, kiln_type type, unsigned width,
                  const char *pointer, struct kiln__phrase offset, struct kiln__phrase value)
{
    struct kiln__elements elements = kiln__emit_run(body->emit, type, width, pointer, offset.text);
    kiln__emit_store(body->text, &elements, value.text, false);
}

/* Results of one segment, those of neighbouring rows beside each other. */
static void store_partials(const struct kiln__body *body, unsigned width, const char *p)
{
    unsigned i = kiln__group_total(body->group);
    struct kiln__phrase offset = kiln__phrase("partial_@_offset + segment * n + %s", p);
    for (int position = 0; position < totals_of(body, i); position++) {
        struct total total = total_of(body, i, position);
        store(body, total.type, width, fill(&total, 1, "partial_@").text,
              fill(&total, 1, offset.text), total.name);
    }
}

const char *kiln__body_partial(const struct kiln__body *body)
{
    return body->emit->checked ? "(*KILN_AT(partial_@, partial_@_offset + s * n + p, 1))"
                               : "partial_@[partial_@_offset + s * n + p]";
}

void kiln__body_store(struct kiln__body *body, unsigned width, const char *p, const char *at)
{
    const struct kiln__group *group = body->group;
    if (body->form->stage == KILN__STAGE_PARTIAL) {
        store_partials(body, width, p);
        return;
    }
    kiln__body_turn(body, body->nest.phases);
    kiln__body_values(body, width, at);
    for (size_t k = 0; k < group->stores.count; k++)
        if (!group->stores.items[k].full)
            store(body, kiln__emit_store_type(body->emit, k), width, kiln__phrase("y%zu", k).text,
                  kiln__phrase("q%zu + %s", k, p),
                  kiln__phrase("r%u", group->stores.items[k].step));
}
