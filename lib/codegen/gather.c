/* SPDX-License-Identifier: Apache-2.0 */
/* Values that come from positions: gathers, whose position depends on a value, and numbers, which
 * are positions. */
#include <stdio.h>

#include "codegen/emit.h"

/* More than any group has. */
#define MOST_STEPS 512

/* Whether all lanes of a vector have the same value of a step. */
static bool is_uniform(const struct kiln__emit *emit, unsigned index)
{
    bool uniform[MOST_STEPS];
    if (index >= MOST_STEPS)
        return false;
    for (unsigned i = 0; i <= index; i++) {
        const struct kiln__step *step = &emit->group->steps.items[i];
        bool reads = step->kind == KILN__STEP_LOAD || step->kind == KILN__STEP_NUMBER ||
                     step->kind == KILN__STEP_GATHER;
        uniform[i] = step->kind != KILN__STEP_REDUCED && step->kind != KILN__STEP_PRODUCT &&
                     (!reads || emit->form->along[step->index] == KILN__REPEATED);
        for (unsigned k = 0; k < step->n_args; k++)
            uniform[i] = uniform[i] && uniform[step->args[k]];
    }
    return uniform[index];
}

/* The position of lane `lane` of access `k`, but for what a gather adds. */
static void emit_position(const struct kiln__emit *emit, size_t k, const char *base, const char *at,
                          unsigned lane)
{
    uint8_t along = emit->form->along[k];
    kiln__text_add(emit->text, "%s%zu", base, k);
    if (along == KILN__REPEATED)
        return;
    if (along == KILN__STRIDED)
        kiln__text_add(emit->text, " + (%s + %u) * s%zu_%u", at, lane, k,
                       kiln__emit_vector_dimension(emit));
    else
        kiln__text_add(emit->text, " + %s + %u", at, lane);
}

/* ---- numbers ---- */

void kiln__emit_number(const struct kiln__emit *emit, const struct kiln__step *step, unsigned width,
                       const char *base, const char *at)
{
    size_t k = step->index;
    uint8_t along = emit->form->along[k];
    struct kiln__type_name type = kiln__emit_type(KILN_I32, width);
    kiln__text_add(emit->text, "(%s)((int)(", type.text);
    emit_position(emit, k, base, at, 0);
    kiln__text_add(emit->text, "))");
    if (width == 1 || along == KILN__REPEATED)
        return;
    kiln__text_add(emit->text, " + (%s)(", type.text);
    for (unsigned lane = 0; lane < width; lane++)
        kiln__text_add(emit->text, "%s%u", lane ? ", " : "", lane);
    kiln__text_add(emit->text, ")");
    if (along == KILN__STRIDED)
        kiln__text_add(emit->text, " * (%s)((int)s%zu_%u)", type.text, k,
                       kiln__emit_vector_dimension(emit));
}

/* ---- gathers ---- */

/* What stands where the index is none of the data's. */
static const char *nothing(const struct kiln__step *step)
{
    return kiln__type_row((kiln_type)step->type)->floating ? "NAN" : "0";
}

static void emit_element(const struct kiln__emit *emit, const struct kiln__step *step,
                         const char *index, const char *base, const char *at, unsigned lane)
{
    unsigned k = step->index;
    kiln__text_add(emit->text, "(uint)%s < (uint)e%u ? x%u[", index, k, k);
    emit_position(emit, k, base, at, lane);
    kiln__text_add(emit->text, " + %s * g%u] : %s", index, k, nothing(step));
}

/* One index for all lanes. */
static void emit_row(const struct kiln__emit *emit, const struct kiln__step *step, const char *type,
                     const char *index, const char *base, const char *at)
{
    unsigned k = step->index;
    uint8_t along = emit->form->along[k];
    if (along == KILN__REPEATED) {
        kiln__text_add(emit->text, "(%s)(", type);
        emit_element(emit, step, index, base, at, 0);
        kiln__text_add(emit->text, ")");
        return;
    }
    kiln__text_add(emit->text, "(uint)%s < (uint)e%u ? *(global const %s%s *)(x%u + ", index, k,
                   emit->form->aligned ? "" : "loose_", type, k);
    emit_position(emit, k, base, at, 0);
    kiln__text_add(emit->text, " + %s * g%u) : (%s)(%s)", index, k, type, nothing(step));
}

void kiln__emit_gathered(const struct kiln__emit *emit, const struct kiln__step *step,
                         unsigned width, const char *base, const char *at)
{
    char index[24];
    struct kiln__type_name type = kiln__emit_type((kiln_type)step->type, width);
    const char letter = emit->letter ? emit->letter : 'v';
    snprintf(index, sizeof index, "%c%u%s", letter, step->args[0], width > 1 ? ".s0" : "");
    if (width == 1) {
        emit_element(emit, step, index, base, at, 0);
    } else if (emit->form->along[step->index] != KILN__STRIDED && is_uniform(emit, step->args[0])) {
        emit_row(emit, step, type.text, index, base, at);
    } else {
        kiln__text_add(emit->text, "(%s)(", type.text);
        for (unsigned lane = 0; lane < width; lane++) {
            snprintf(index, sizeof index, "%c%u.s%x", letter, step->args[0], lane);
            kiln__text_add(emit->text, lane ? ", (" : "(");
            emit_element(emit, step, index, base, at, lane);
            kiln__text_add(emit->text, ")");
        }
        kiln__text_add(emit->text, ")");
    }
}
