/* SPDX-License-Identifier: Apache-2.0 */
/* Whether steps are such as kernels compute: of known kinds, of right types, from earlier ones. */
#include "fuse/verify_groups.h"

static const char *check_read(const struct kiln__group_verifier *verifier,
                              const struct kiln__step *step)
{
    static const enum kiln__access_kind kinds[] = {[KILN__STEP_LOAD] = KILN__ACCESS_MEMORY,
                                                   [KILN__STEP_NUMBER] = KILN__ACCESS_NUMBER,
                                                   [KILN__STEP_GATHER] = KILN__ACCESS_GATHER};
    if (step->index >= verifier->group->accesses.count)
        return "no such access";
    const struct kiln__access *access = &verifier->group->accesses.items[step->index];
    if (access->node >= verifier->fusion->graph.nodes.count)
        return "its access is of no node";
    if (step->type != kiln__verified_node(verifier, access->node)->type)
        return "not of the type of what it reads";
    if (kiln__group_is_of_steps(verifier->group) && access->kind != kinds[step->kind])
        return "its access is of another kind";
    if (step->kind == KILN__STEP_GATHER && step->op > KILN__GATHER_PADDED)
        return "gathers in no known way";
    if (step->n_args != (step->kind == KILN__STEP_GATHER))
        return "wrong number of operands";
    return NULL;
}

static kiln_type operand_type(const struct kiln__group_verifier *verifier,
                              const struct kiln__step *step, unsigned k)
{
    return verifier->group->steps.items[step->args[k]].type;
}

static const char *check_apply(const struct kiln__group_verifier *verifier,
                               const struct kiln__step *step)
{
    if (step->op >= KILN__OP_COUNT)
        return "no such operation";
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[step->op];
    if (step->n_args != row->arity)
        return "wrong number of operands";
    enum kiln__types types = row->types;
    kiln_type type = operand_type(verifier, step, step->n_args - 1u);
    bool right = kiln__types_accept(types, type) && step->type == kiln__types_result(types, type);
    for (unsigned k = 0; k < step->n_args; k++)
        right = right && operand_type(verifier, step, k) == kiln__types_operand(types, k, type);
    return right ? NULL : "wrong types";
}

static const char *check_reduced(const struct kiln__group_verifier *verifier,
                                 const struct kiln__step *step)
{
    if (!kiln__group_reduces(verifier->group))
        return "a reduction in a group that has no reduced dimensions";
    if (step->op >= KILN__REDUCE_COUNT || step->n_args != 1)
        return "no such reduction";
    kiln_type type =
        kiln__reduce_result(&kiln__reduce_rows[step->op], operand_type(verifier, step, 0));
    return step->type == type ? NULL : "wrong types";
}

/* Rows that are one dimension have an order. */
static const char *check_scanned(const struct kiln__group_verifier *verifier,
                                 const struct kiln__step *step)
{
    const struct kiln__group *group = verifier->group;
    if (!kiln__group_traits[group->kind].phased || group->kept + 1 != group->shape.rank)
        return "running sums in a group that has no rows of one dimension";
    if (step->n_args != 1 || step->op != kiln__group_scan(group)->op)
        return "running sums that go another way than others";
    kiln_type type =
        kiln__reduce_result(&kiln__reduce_rows[KILN__REDUCE_sum], operand_type(verifier, step, 0));
    return step->type == type ? NULL : "wrong types";
}

static const char *check_own(const struct kiln__group_verifier *verifier,
                             const struct kiln__step *step)
{
    switch (step->kind) {
    case KILN__STEP_LOAD:
    case KILN__STEP_NUMBER:
    case KILN__STEP_GATHER: return check_read(verifier, step);
    case KILN__STEP_SCALAR:
        return step->index < verifier->group->scalars.count ? NULL : "no such scalar";
    case KILN__STEP_APPLY: return check_apply(verifier, step);
    case KILN__STEP_CONVERT: return step->n_args == 1 ? NULL : "wrong number of operands";
    case KILN__STEP_REDUCED: return check_reduced(verifier, step);
    case KILN__STEP_SCANNED: return check_scanned(verifier, step);
    case KILN__STEP_PRODUCT:
        if (verifier->group->kind != KILN__GROUP_MATMUL)
            return "a product in another group";
        return step == &verifier->group->steps.items[verifier->group->reduced_step]
                   ? NULL
                   : "a second product";
    }
    return "no such kind";
}

/* What comes once per result does not use what comes once per element before, and one operand of a
 * product not what comes once per element of the other. */
size_t kiln__verifier_first_visible(const struct kiln__group *group, size_t step)
{
    bool operand = group->kind == KILN__GROUP_MATMUL && step < group->reduced_step;
    size_t second = operand ? group->steps.items[group->reduced_step].args[0] + 1u : 0;
    return step > group->reduced_step ? group->reduced_step : step >= second ? second : 0;
}

const char *kiln__group_check_steps(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    for (size_t i = 0; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        for (unsigned k = 0; k < step->n_args; k++) {
            if (k >= 3 || step->args[k] >= i)
                return kiln__verifier_fault(verifier, "step", i,
                                            "an operand that is no earlier step");
            if (step->args[k] < kiln__verifier_first_visible(group, i))
                return kiln__verifier_fault(verifier, "step", i,
                                            "an operand that is gone once there is a result");
        }
        if (!kiln__type_row(step->type))
            return kiln__verifier_fault(verifier, "step", i, "no such type");
        const char *wrong = check_own(verifier, step);
        if (wrong)
            return kiln__verifier_fault(verifier, "step", i, wrong);
    }
    return NULL;
}
