/* SPDX-License-Identifier: Apache-2.0 */
/* Online softmax: maximum and sum in one visit of a row, the sum rescaled whenever the running
 * maximum grows. */
#include "codegen/online_phases.h"

bool kiln__online_applies(const struct kiln__body *body, unsigned phase)
{
    return body->variant->online && kiln__nest_is_online(body->group, &body->nest, phase);
}

bool kiln__online_enter_phase(struct kiln__body *body)
{
    if (!kiln__online_applies(body, body->phase + 1))
        return false;
    kiln__body_enter_phase(body, body->phase + 1);
    return true;
}

void kiln__online_leave_phase(struct kiln__body *body)
{
    kiln__body_enter_phase(body, body->phase - 1);
}

/* ---- running maxima ---- */

/* The largest of the first phase's accumulators, or its total, but no infinity: what is below that
 * is infinitely far below the lowest number, where -INFINITY less itself is NaN. */
static void emit_largest(const struct kiln__body *body, unsigned i, unsigned width, unsigned count)
{
    struct kiln__type_name type = kiln__emit_type(KILN_F32, width);
    const char *pick = width > 1 ? "PICK_VECTOR" : "PICK";
    kiln__code_add(body->code, "%s r%u = (%s)(-FLT_MAX)", type.text, i, type.text);
    for (unsigned u = 0; u < (count ? count : 1); u++) {
        struct kiln__phrase from = kiln__phrase(count ? "t%u_%u" : "t%u", i, u);
        if (body->variant->level_80) /* one instruction; after a NaN all is NaN in any case */
            kiln__code_add(body->code, "r%u = LARGER_%s(%s, r%u)", i, type.text, from.text, i);
        else
            kiln__code_add(body->code, "r%u = %s(%s > r%u, %s, r%u)", i, pick, from.text, i,
                           from.text, i);
    }
}

/* Declare the running maxima, and the value each is of. */
static void emit_maxima(const struct kiln__body *body, unsigned width, unsigned count)
{
    const struct kiln__step *steps = body->group->steps.items;
    struct kiln__emit own = *body->emit;
    bool wanted[KILN__MOST_STEPS] = {false};
    own.letter = 'r';
    for (KILN__EACH_REDUCTION(i, body))
        wanted[body->nest.top[i] - 1] = true;
    for (size_t i = body->group->steps.count; i-- > 0;)
        for (unsigned k = 0; wanted[i] && k < steps[i].n_args && !body->nest.full[steps[i].args[k]];
             k++)
            wanted[steps[i].args[k]] = true;
    for (unsigned i = 0; i < body->group->steps.count; i++)
        if (wanted[i] && steps[i].kind == KILN__STEP_REDUCED)
            emit_largest(body, i, width, count);
        else if (wanted[i])
            kiln__emit_steps(&own, i, i + 1, width, "h", "0");
}

static struct kiln__phrase top_of(const struct kiln__body *body, unsigned i)
{
    return kiln__phrase("r%u", body->nest.top[i] - 1u);
}

/* "exp(top_t4 - r1)", to a statement. */
static void emit_scale(const struct kiln__body *body, struct kiln__text *text, unsigned i,
                       unsigned width, const char *at)
{
    const char *power = kiln__elementwise_rows[KILN__OP_exp].device;
    struct kiln__phrase fall = kiln__phrase("(top_t%u%s - %s)", i, at, top_of(body, i).text);
    kiln__emit_expression(text, power, fall.text, NULL, NULL, KILN_F32, width);
}

/* The totals, or `count` accumulators, from below their top to below the one so far. */
static void rescale(const struct kiln__body *body, unsigned i, unsigned width, unsigned count)
{
    struct kiln__type_name type = kiln__emit_type(KILN_F32, width);
    if (count == 0) {
        emit_scale(body, kiln__code_add(body->code, "t%u *= ", i), i, width, "");
        return;
    }
    emit_scale(body, kiln__code_add(body->code, "const %s scale_%u = ", type.text, i), i, width,
               "_0");
    for (unsigned u = 0; u < count; u++)
        kiln__code_add(body->code, "t%u_%u *= scale_%u", i, u, i);
}

/* ---- in a phase's loops ---- */

void kiln__online_totals(struct kiln__body *body)
{
    if (!kiln__online_enter_phase(body))
        return;
    kiln__body_totals(body, 1, KILN__START "\n$ top_@ = -FLT_MAX");
    kiln__online_leave_phase(body);
}

void kiln__online_accumulators(struct kiln__body *body, unsigned count)
{
    if (!kiln__online_enter_phase(body))
        return;
    kiln__body_accumulators(body, count);
    kiln__body_totals(body, body->variant->vector, "$ top_@_0 = ($)(-FLT_MAX)");
    kiln__online_leave_phase(body);
}

void kiln__online_rescale(struct kiln__body *body, unsigned width, unsigned count)
{
    if (!kiln__online_enter_phase(body))
        return;
    emit_maxima(body, width, count);
    for (KILN__EACH_REDUCTION(i, body)) {
        rescale(body, i, width, count);
        kiln__code_add(body->code, "top_t%u%s = %s", i, count ? "_0" : "", top_of(body, i).text);
    }
    kiln__online_leave_phase(body);
}

void kiln__online_fold(struct kiln__body *body, unsigned count)
{
    if (!kiln__online_applies(body, body->phase + 1))
        return;
    kiln__code_block(body->code);
    kiln__online_rescale(body, 1, 0);
    kiln__online_enter_phase(body);
    for (KILN__EACH_REDUCTION(i, body))
        rescale(body, i, body->variant->vector, count);
    kiln__body_fold(body, count);
    kiln__online_leave_phase(body);
    kiln__code_end(body->code);
}

void kiln__online_end(const struct kiln__body *body)
{
    for (KILN__EACH_REDUCTION(i, body))
        rescale(body, i, 1, 0);
}
