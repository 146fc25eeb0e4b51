/* SPDX-License-Identifier: Apache-2.0 */
/* Groups as text, for explanations. */
#include "fuse/group.h"

static void dump_step(const struct kiln__group *group, uint16_t index, struct kiln__text *text)
{
    const struct kiln__step *step = &group->steps.items[index];
    kiln__text_add(text, "    v%u = ", index);
    switch (step->kind) {
    case KILN__STEP_LOAD:
        kiln__text_add(text, "load %%%u", group->accesses.items[step->index].node);
        break;
    case KILN__STEP_SCALAR:
        kiln__text_add(text, "%s",
                       kiln__value_text(step->type, group->scalars.items[step->index]).text);
        break;
    case KILN__STEP_APPLY: kiln__text_add(text, "%s", kiln__elementwise_rows[step->op].name); break;
    case KILN__STEP_CONVERT: kiln__text_add(text, "to %s", kiln_type_name(step->type)); break;
    case KILN__STEP_NUMBER: kiln__text_add(text, "number"); break;
    case KILN__STEP_GATHER:
        kiln__text_add(text, "gather %%%u at", group->accesses.items[step->index].node);
        break;
    case KILN__STEP_REDUCED: kiln__text_add(text, "%s", kiln__reduce_rows[step->op].name); break;
    case KILN__STEP_SCANNED:
        kiln__text_add(text, "cumsum%s", step->op == KILN__SCAN_BACKWARD ? " back" : "");
        break;
    case KILN__STEP_PRODUCT:
        kiln__text_add(text, "product");
        if (step->op != KILN__PRODUCT_EXACT)
            kiln__text_add(text, " %s", kiln__product_name_text(step->op));
        break;
    }
    for (unsigned k = 0; k < step->n_args; k++)
        kiln__text_add(text, " v%u", step->args[k]);
    kiln__text_add(text, "\n");
}

void kiln__group_dump(const struct kiln__group *group, struct kiln__text *text)
{
    kiln__text_add(text, "%s over %s", kiln__group_name(group),
                   kiln__shape_text(&group->shape).text);
    if (kiln__group_reduces(group))
        kiln__text_add(text, ", dimensions from %u on reduced", group->kept);
    kiln__text_add(text, "\n");
    for (uint16_t i = 0; i < group->steps.count; i++)
        dump_step(group, i, text);
    for (size_t i = 0; i < group->stores.count; i++) {
        const struct kiln__store *store = &group->stores.items[i];
        kiln__text_add(text, "    store v%u %s %%%u", store->step, store->placed ? "into" : "as",
                       store->node);
        if (store->position)
            kiln__text_add(text, " at v%u", store->position - 1u);
        kiln__text_add(text, "\n");
    }
}
