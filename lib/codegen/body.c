/* SPDX-License-Identifier: Apache-2.0 */
/* The statements inside a generated kernel's loops: loads, steps, accumulators and stores, for one
 * element or a vector of them. */
#include "codegen/body.h"

static const struct kiln__step *step_at(const struct kiln__body *body, unsigned i)
{
    return &body->group->steps.items[i];
}

void kiln__body_enter_phase(struct kiln__body *body, unsigned phase)
{
    body->phase = phase;
    kiln__nest_needs(body->group, &body->nest, phase, body->needed);
    bool partial = body->variant->stage == KILN__STAGE_PARTIAL;
    for (size_t i = kiln__group_total(body->group) + 1; partial && i < body->group->steps.count;
         i++)
        body->needed[i] = false;
}

/* Rows that lie side by side are visited together, so that nothing is a row's own before they
 * end. */
void kiln__body_begin(struct kiln__body *body, const struct kiln__emit *emit)
{
    *body = (struct kiln__body){
        .emit = emit, .group = emit->group, .variant = emit->variant, .code = emit->code};
    /* Lanes that carry sums have other elements in other phases. */
    bool keeps = !emit->variant->native_math && !emit->variant->carried;
    kiln__nest_of(emit->group, keeps, &body->nest);
    if (emit->variant->kept_mapping == KILN__AXIS_VECTORS)
        for (unsigned i = 0; i < emit->group->reduced_step; i++)
            body->nest.full[i] = true;
    kiln__body_enter_phase(body, 0);
}

/* ---- positions ---- */

/* Maps may know accesses by the element's number. */
static bool needs_coordinates(const struct kiln__body *body)
{
    bool needs = body->variant->placed;
    for (size_t k = 0; k < body->group->accesses.count; k++)
        needs = needs || body->variant->along[k] != KILN__LINEAR;
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
    bool tiles = body->variant->kept_mapping == KILN__AXIS_TILES;
    if (!tiles && needs_coordinates(body))
        kiln__emit_coordinates(body->emit, "p", 0, end);
    for (size_t k = 0; k < body->group->accesses.count; k++) {
        uint8_t along = body->variant->along[k];
        if (along != KILN__ACROSS)
            kiln__code_add(body->code, "const idx h%zu = o%zu%s", k, k,
                           along == KILN__LINEAR ? " + p" : kiln__emit_dot(k, 0, end).text);
    }
    for (size_t k = 0; body->variant->placed && k < body->group->stores.count; k++)
        if (body->group->stores.items[k].full)
            kiln__code_add(body->code, "const idx z%zu = q%zu%s", k, k, dot_placed(0, end).text);
}

/* Whether a step's value comes from its keeper in this phase. */
static bool is_reloaded(const struct kiln__body *body, unsigned i)
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
    return body->variant->stage != KILN__STAGE_PARTIAL && body->group->stores.items[k].full &&
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

void kiln__body_reduced_offsets(const struct kiln__body *body, const char *r)
{
    for (size_t k = 0; k < body->group->accesses.count; k++)
        if (loads(body, k))
            kiln__code_add(body->code, "const idx b%zu = h%zu%s", k, k,
                           kiln__emit_dot(k, body->variant->kept, body->variant->rank).text);
    for (size_t k = 0; k < body->group->stores.count; k++)
        if (uses_store(body, k) && body->variant->placed)
            kiln__code_add(body->code, "const idx g%zu = z%zu%s", k, k,
                           dot_placed(body->variant->kept, body->variant->rank).text);
        else if (uses_store(body, k))
            kiln__code_add(body->code, "const idx g%zu = q%zu + p * reduced + %s", k, k, r);
}

void kiln__body_reduced_bases(const struct kiln__body *body, const char *r)
{
    kiln__emit_coordinates(body->emit, r, body->variant->kept, body->variant->rank);
    kiln__body_reduced_offsets(body, r);
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
static void body_hold(const struct kiln__body *body, size_t k)
{
    unsigned i = find_load(body, k), width = body->variant->vector;
    for (unsigned u = 0; u < body->variant->held; u++) {
        struct kiln__type_name type = kiln__emit_type(step_at(body, i)->type, width);
        kiln__code_add(body->code, "%s m%zu_%u", type.text, k, u);
        kiln__code_block(body->code);
        kiln__emit_coordinates(body->emit, kiln__phrase("min(at%u, to - %u)", u, width).text,
                               body->variant->kept, body->variant->rank);
        kiln__code_add(body->code, "const idx b%zu = h%zu%s", k, k,
                       kiln__emit_dot(k, body->variant->kept, body->variant->rank).text);
        kiln__emit_steps(body->emit, i, i + 1, width, "b", "0");
        kiln__code_add(body->code, "m%zu_%u = v%u", k, u, i);
        kiln__code_end(body->code);
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
            kiln__body_enter_phase(body, phase);
            if (!body->needed[i])
                continue;
            from = phase;
            phases++;
        }
        if (phases < 2)
            continue;
        body->costly.step = i + 1;
        body->costly.from = from;
        struct kiln__type_name type = kiln__emit_type(step->type, body->variant->vector);
        for (unsigned u = 0; u < body->variant->held; u++)
            kiln__code_add(body->code, "%s k%u_%u = (%s)(0)", type.text, i, u, type.text);
    }
    kiln__body_enter_phase(body, 0);
}

void kiln__body_cache_loads(struct kiln__body *body)
{
    hold_costly(body);
    body->held = kiln__nest_loads(body->group, &body->nest).shared;
    for (size_t k = 0; k < body->group->accesses.count; k++)
        if (body->held >> k & 1)
            body_hold(body, k);
}

/* ---- values of rows ---- */

/* What a segment, or what comes of segments, has to do with. */
static bool is_of_stage(const struct kiln__body *body, unsigned i)
{
    switch ((enum kiln__stage)body->variant->stage) {
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

/* ---- elements ---- */

/* Where elements of store k are at `at`, but for what a computed position adds. */
static struct kiln__elements stored_elements(const struct kiln__body *body, size_t k,
                                             const struct kiln__visit *visit)
{
    const struct kiln__variant *variant = body->variant;
    bool scattered = variant->placed == KILN__STRIDED;
    const bool rows = variant->reduced_mapping != KILN__AXIS_NONE;
    struct kiln__phrase offset = scattered         ? kiln__phrase(rows ? "g%zu" : "z%zu", k)
                                 : rows            ? kiln__phrase("g%zu + %s", k, visit->at)
                                 : variant->placed ? kiln__phrase("z%zu + %s", k, visit->at)
                                                   : kiln__phrase("q%zu + p + %s", k, visit->at);
    struct kiln__elements elements =
        kiln__emit_run(body->emit, kiln__emit_store_type(body->emit, k), visit->width,
                       kiln__phrase("y%zu", k), offset);
    if (scattered) {
        elements.fit = KILN__FIT_STRIDED;
        elements.at = visit->at;
        elements.stride = kiln__phrase("u0_%u", variant->rank - 1u);
    }
    return elements;
}

/* Elements of store k where the position `index` says; nothing if it is beyond the last. */
static void store_at(const struct kiln__body *body, size_t k, struct kiln__elements elements,
                     const char *index, const char *value)
{
    elements.offset = kiln__phrase("%s + %s * j%zu", elements.offset.text, index, k);
    kiln__code_if(body->code, "(uint)%s < (uint)l%zu", index, k);
    kiln__emit_store(body->code, &elements, value, false);
    kiln__code_end(body->code);
}

/* Neighbours at one position are stored as a vector, others one by one. */
static void visit_positions(const struct kiln__body *body, size_t k,
                            const struct kiln__visit *visit, const char *value)
{
    const unsigned step = body->group->stores.items[k].position - 1u;
    const struct kiln__value_name index = kiln__emit_value(visit->letter, step);
    struct kiln__elements elements = stored_elements(body, k, visit);
    if (visit->width == 1 || kiln__emit_is_uniform(body->emit, step)) {
        store_at(body, k, elements,
                 kiln__phrase(visit->width > 1 ? "%s.s0" : "%s", index.text).text, value);
        return;
    }
    const struct kiln__phrase offset = elements.offset, at = kiln__phrase("%s", visit->at);
    elements.width = 1;
    for (unsigned lane = 0; lane < visit->width; lane++) {
        const struct kiln__phrase there = kiln__phrase("(%s + %u)", at.text, lane);
        elements.at = there.text;
        if (elements.fit != KILN__FIT_STRIDED)
            elements.offset = kiln__phrase("%s + %u", offset.text, lane);
        else
            elements.offset = offset;
        store_at(body, k, elements, kiln__phrase("%s.s%x", index.text, lane).text,
                 kiln__phrase("%s.s%x", value, lane).text);
    }
}

/* Elements of store k at `at`: store `value`, or append them to the statement. */
static void visit_store(const struct kiln__body *body, size_t k, const struct kiln__visit *visit,
                        const char *value)
{
    if (value && body->group->stores.items[k].position) {
        visit_positions(body, k, visit, value);
        return;
    }
    const struct kiln__elements elements = stored_elements(body, k, visit);
    if (value)
        kiln__emit_store(body->code, &elements, value, body->variant->streams);
    else
        kiln__emit_load(&body->code->words, &elements);
}

static void emit_value(const struct kiln__body *body, unsigned i, const struct kiln__visit *visit)
{
    const struct kiln__step *step = step_at(body, i);
    const char *base = body->variant->reduced_mapping == KILN__AXIS_NONE ? "h" : "b";
    struct kiln__type_name type = kiln__emit_type(step->type, visit->width);
    struct kiln__emit own = *body->emit;
    own.letter = visit->letter;
    struct kiln__value_name name = kiln__emit_value(visit->letter, i);
    bool held = step->kind == KILN__STEP_LOAD && body->held >> step->index & 1;
    bool costly = body->costly.step == i + 1;
    if (!body->nest.full[i]) {
        kiln__code_add(body->code, "const %s %s = (%s)(r%u)", type.text, name.text, type.text, i);
    } else if (is_reloaded(body, i)) {
        kiln__code_add(body->code, "const %s v%u = ", type.text, i);
        visit_store(body, body->nest.keeper[i] - 1u, visit, NULL);
    } else if (held) {
        kiln__code_add(body->code, "const %s v%u = m%u_%u", type.text, i, step->index, body->slot);
    } else if (costly && body->costly.from < body->phase) {
        kiln__code_add(body->code, "const %s v%u = k%u_%u", type.text, i, i, body->slot);
        costly = false;
    } else {
        kiln__emit_steps(&own, i, i + 1, visit->width, base, visit->at);
    }
    if (costly)
        kiln__code_add(body->code, "k%u_%u = v%u", i, body->slot, i);
}

/* What the phase stores of the elements: first values that are kept for later phases. */
static void emit_stores(const struct kiln__body *body, const struct kiln__visit *visit)
{
    const struct kiln__group *group = body->group;
    for (unsigned i = 0; i < group->steps.count; i++) {
        unsigned keeper = body->nest.keeper[i];
        bool first = body->needed[i] && keeper && body->nest.phase[i] == body->phase;
        if (first && group->stores.items[keeper - 1].step != i)
            visit_store(body, keeper - 1, visit, kiln__emit_value(visit->letter, i).text);
    }
    for (size_t k = 0; k < group->stores.count; k++)
        if (writes(body, k))
            visit_store(body, k, visit,
                        kiln__emit_value(visit->letter, group->stores.items[k].step).text);
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
            kiln__code_if(body->code, "%s", visits[u].only);
        for (KILN__EACH_REDUCTION(i, body))
            kiln__body_accumulate(body, i, &visits[u]);
        emit_stores(body, &visits[u]);
        if (visits[u].only)
            kiln__code_end(body->code);
    }
}

void kiln__body_element(const struct kiln__body *body, unsigned width, const char *at,
                        const char *number, unsigned into)
{
    struct kiln__visit visit = {.width = width, .at = at, .number = number, .into = into};
    kiln__body_elements(body, &visit, 1);
}

/* ---- rows ---- */

static void store_value(const struct kiln__body *body, size_t k, unsigned width, const char *p)
{
    struct kiln__phrase value = kiln__phrase("r%u", body->group->stores.items[k].step);
    struct kiln__elements elements =
        kiln__emit_run(body->emit, kiln__emit_store_type(body->emit, k), width,
                       kiln__phrase("y%zu", k), kiln__phrase("q%zu + %s", k, p));
    kiln__emit_store(body->code, &elements, value.text, false);
}

void kiln__body_store(struct kiln__body *body, unsigned width, const char *p, const char *at)
{
    const struct kiln__group *group = body->group;
    if (body->variant->stage == KILN__STAGE_PARTIAL) {
        kiln__body_store_totals(body, width, p);
        return;
    }
    kiln__body_enter_phase(body, body->nest.phases);
    kiln__body_values(body, width, at);
    for (size_t k = 0; k < group->stores.count; k++)
        if (!group->stores.items[k].full)
            store_value(body, k, width, p);
}
