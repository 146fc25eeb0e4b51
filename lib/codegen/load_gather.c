/* SPDX-License-Identifier: Apache-2.0 */
/* Values that come from positions: gathers, whose position depends on a value, and numbers, which
 * are positions. */
#include "codegen/emit.h"
#include "fuse/loop_nest.h"

bool kiln__emit_is_uniform(const struct kiln__emit *emit, unsigned index)
{
    bool uniform[KILN__MOST_STEPS];
    for (unsigned i = 0; i <= index; i++) {
        const struct kiln__step *step = &emit->group->steps.items[i];
        uniform[i] =
            step->kind != KILN__STEP_REDUCED && step->kind != KILN__STEP_PRODUCT &&
            step->kind != KILN__STEP_SCANNED &&
            (!kiln__step_reads(step) || emit->variant->along[step->index] == KILN__REPEATED);
        for (unsigned k = 0; k < step->n_args; k++)
            uniform[i] = uniform[i] && uniform[step->args[k]];
    }
    return uniform[index];
}

/* The position of lane `lane` of access `k`, but for what a gather adds. */
static struct kiln__phrase position_of(const struct kiln__emit *emit, size_t k, const char *base,
                                       const char *at, unsigned lane)
{
    uint8_t along = emit->variant->along[k];
    return along == KILN__REPEATED  ? kiln__phrase("%s%zu", base, k)
           : along == KILN__STRIDED ? kiln__phrase("%s%zu + (%s + %u) * s%zu_%u", base, k, at, lane,
                                                   k, kiln__emit_vector_dimension(emit))
                                    : kiln__phrase("%s%zu + %s + %u", base, k, at, lane);
}

/* ---- numbers ---- */

void kiln__emit_number(const struct kiln__emit *emit, struct kiln__text *text,
                       const struct kiln__step *step, unsigned width, const char *base,
                       const char *at)
{
    size_t k = step->index;
    uint8_t along = emit->variant->along[k];
    struct kiln__type_name type = kiln__emit_type(KILN_I32, width);
    kiln__text_add(text, "(%s)((int)(%s))", type.text, position_of(emit, k, base, at, 0).text);
    if (width == 1 || along == KILN__REPEATED)
        return;
    kiln__text_add(text, " + (%s)(", type.text);
    for (unsigned lane = 0; lane < width; lane++)
        kiln__text_add(text, "%s%u", lane ? ", " : "", lane);
    kiln__text_add(text, ")");
    if (along == KILN__STRIDED)
        kiln__text_add(text, " * (%s)((int)s%zu_%u)", type.text, k,
                       kiln__emit_vector_dimension(emit));
}

/* ---- gathers ---- */

/* What stands where the index is none of the data's. */
static const char *out_of_range_value(const struct kiln__step *step)
{
    bool open = step->op == KILN__GATHER_OPEN;
    return kiln__type_row(step->type)->floating && open ? "NAN" : "0";
}

/* `width` neighbours from where the index says. */
static void emit_element(const struct kiln__emit *emit, struct kiln__text *text,
                         const struct kiln__step *step, unsigned width, const char *index,
                         const char *position)
{
    unsigned k = step->index;
    struct kiln__elements elements =
        kiln__emit_run(emit, step->type, width, kiln__phrase("x%u", k),
                       kiln__phrase("%s + %s * g%u", position, index, k));
    kiln__text_add(text, "(uint)%s < (uint)e%u ? ", index, k);
    kiln__emit_load(text, &elements);
    if (width == 1)
        kiln__text_add(text, " : %s", out_of_range_value(step));
    else
        kiln__text_add(text, " : (%s)(%s)", kiln__emit_type(elements.type, width).text,
                       out_of_range_value(step));
}

void kiln__emit_gathered(const struct kiln__emit *emit, struct kiln__text *text,
                         const struct kiln__step *step, unsigned width, const char *base,
                         const char *at)
{
    const struct kiln__type_name type = kiln__emit_type(step->type, width);
    const struct kiln__value_name where = kiln__emit_value(emit->letter, step->args[0]);
    uint8_t along = emit->variant->along[step->index];
    bool uniform =
        width > 1 && along != KILN__STRIDED && kiln__emit_is_uniform(emit, step->args[0]);
    if (width == 1 || (uniform && along != KILN__REPEATED)) {
        emit_element(emit, text, step, width,
                     kiln__phrase(width > 1 ? "%s.s0" : "%s", where.text).text,
                     position_of(emit, step->index, base, at, 0).text);
        return;
    }
    kiln__text_add(text, "(%s)(", type.text);
    for (unsigned lane = 0; lane < (uniform ? 1 : width); lane++) {
        kiln__text_add(text, uniform ? "" : lane ? ", (" : "(");
        emit_element(emit, text, step, 1, kiln__phrase("%s.s%x", where.text, lane).text,
                     position_of(emit, step->index, base, at, lane).text);
        kiln__text_add(text, uniform ? "" : ")");
    }
    kiln__text_add(text, ")");
}
