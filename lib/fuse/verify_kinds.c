/* SPDX-License-Identifier: Apache-2.0 */
/* What holds for one kind of group alone (group_kinds.c). */
#include "fuse/loop_nest.h"
#include "fuse/verify_groups.h"

/* What is read once per result stands still along what is reduced. */
static const char *check_late_reads(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    for (size_t i = group->reduced_step + 1u; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        for (uint32_t d = group->kept; kiln__step_reads(step) && d < group->shape.rank; d++)
            if (group->shape.dims[d] != 1 && group->accesses.items[step->index].stride[d])
                return kiln__verifier_fault(verifier, "step", i,
                                            "moves along what is reduced before it");
    }
    return NULL;
}

const char *kiln__group_check_reduce(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    size_t reductions = 0;
    for (size_t i = 0; i < group->steps.count; i++)
        reductions += group->steps.items[i].kind == KILN__STEP_REDUCED;
    if (reductions != 1 || group->reduced_step >= group->steps.count ||
        group->steps.items[group->reduced_step].kind != KILN__STEP_REDUCED)
        return kiln__verifier_group_fault(verifier, "not one reduction, where it says");
    if (group->steps.items[group->reduced_step].op !=
        kiln__group_root(&verifier->fusion->graph, group)->op)
        return kiln__verifier_group_fault(verifier, "its reduction is another one");
    return check_late_reads(verifier);
}

/* What is kept from phase to phase is used before the result is written that it lies in. */
static const char *check_reloaded(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    struct kiln__nest nest;
    bool needed[KILN__MOST_STEPS];
    kiln__nest_of(group, true, &nest);
    for (unsigned phase = 1; phase < nest.phases; phase++) {
        kiln__nest_needs(group, &nest, phase, needed);
        for (size_t i = 0; i < group->steps.count; i++) {
            size_t k = nest.keeper[i] - (size_t)1;
            if (needed[i] && nest.keeper[i] && group->stores.items[k].step != i &&
                kiln__nest_store_phase(group, &nest, k) < phase)
                return kiln__verifier_fault(verifier, "step", i,
                                            "kept where another result is written");
        }
    }
    return NULL;
}

const char *kiln__group_check_rows(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    struct kiln__nest nest;
    if (group->kept >= group->shape.rank)
        return kiln__verifier_group_fault(verifier, "its rows have no dimension");
    if (group->axes >> group->shape.rank ||
        group->kept + (uint32_t)__builtin_popcountll(group->axes) != group->shape.rank)
        return kiln__verifier_group_fault(verifier,
                                          "its axes are not as many as its rows' dimensions");
    for (size_t i = 0; i < group->steps.count; i++)
        if (group->steps.items[i].kind == KILN__STEP_GATHER)
            return kiln__verifier_fault(verifier, "step", i, "a gather among rows");
    kiln__nest_of(group, false, &nest);
    if (nest.phases == 0 && group->stores.count)
        return kiln__verifier_group_fault(verifier, "no phase");
    for (size_t i = 0; i < group->stores.count; i++) {
        const struct kiln__store *store = &group->stores.items[i];
        if (store->step < group->steps.count && !store->full && nest.full[store->step])
            return kiln__verifier_fault(verifier, "store", i,
                                        "one for each row of what each element has");
    }
    return check_reloaded(verifier);
}

/* Kernels read elements, and matrices that are one stride apart. */
static const char *check_operand(const struct kiln__group_verifier *verifier, unsigned k)
{
    const struct kiln__group *group = verifier->group;
    struct kiln__operand operand = kiln__group_operand(group, k);
    const struct kiln__step *load = &group->steps.items[operand.first];
    int64_t batch;
    if (operand.end > group->accesses.count || operand.access >= operand.end)
        return "no access of its own";
    const struct kiln__shape *shape =
        kiln__group_access_shape(&verifier->fusion->graph, group, operand.access);
    size_t rows = k ? group->reduced : group->shape.dims[group->shape.rank - 2];
    size_t columns = k ? group->shape.dims[group->shape.rank - 1] : group->reduced;
    if (load->kind != KILN__STEP_LOAD || load->index != operand.access ||
        shape->rank != group->shape.rank || shape->dims[shape->rank - 2] != rows ||
        shape->dims[shape->rank - 1] != columns)
        return "not its own access, of its own extent";
    for (size_t i = operand.first; i <= operand.value; i++)
        if (group->steps.items[i].kind == KILN__STEP_GATHER ||
            group->steps.items[i].kind == KILN__STEP_NUMBER)
            return "read at positions that are computed";
    for (size_t i = operand.access; i < operand.end; i++)
        if (!kiln__shape_batch_stride(group->accesses.items[i].stride, shape, 2, &batch))
            return "matrices at no single distance";
    return group->steps.items[operand.value].type == KILN_F32 ? NULL : "not of the product's type";
}

const char *kiln__group_check_product(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    if (group->accesses.count < KILN__OPERANDS || group->steps.count <= group->reduced_step ||
        group->shape.rank < 2)
        return kiln__verifier_group_fault(verifier,
                                          "not two operands, each with an access of its own");
    const struct kiln__step *product = &group->steps.items[group->reduced_step];
    if (product->kind != KILN__STEP_PRODUCT || product->n_args != KILN__OPERANDS ||
        product->args[0] >= product->args[1] || product->args[1] + 1 != group->reduced_step)
        return kiln__verifier_group_fault(verifier, "no product of two operands, where it says");
    for (unsigned k = 0; k < KILN__OPERANDS; k++) {
        const char *wrong = check_operand(verifier, k);
        if (wrong)
            return kiln__verifier_fault(verifier, "operand", k, wrong);
    }
    return NULL;
}

/* Each is loaded by one step, and is then of its input's type. */
static const char *check_whole_loads(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    size_t step = 0;
    for (size_t k = 0; k < group->accesses.count; k++) {
        kiln_type type = kiln__verified_node(
                             verifier, kiln__group_root(&verifier->fusion->graph, group)->input[k])
                             ->type;
        if (step >= group->steps.count || group->steps.items[step].kind != KILN__STEP_LOAD ||
            group->steps.items[step].index != k)
            return kiln__verifier_fault(verifier, "access", k, "not loaded by a step of its own");
        step += 1 + (step + 1 < group->steps.count &&
                     group->steps.items[step + 1].kind == KILN__STEP_CONVERT);
        if (group->steps.items[step - 1].type != type)
            return kiln__verifier_fault(verifier, "access", k, "not of its input's type");
    }
    return step == group->steps.count
               ? NULL
               : kiln__verifier_group_fault(verifier, "steps without an input");
}

/* One access for each input that its kernel reads, equal ones too. */
const char *kiln__group_check_whole(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    if (group->stores.count == 0)
        return NULL; /* another computes its node as well */
    if (group->stores.count > group->nodes.count || group->nodes.count > KILN__MOST_WHOLE)
        return kiln__verifier_group_fault(verifier, "more nodes than its kernel computes");
    if (group->accesses.count !=
        kiln__group_operands(group, kiln__group_root(&verifier->fusion->graph, group)))
        return kiln__verifier_group_fault(verifier, "not one access for each input");
    for (size_t i = 0; i < group->accesses.count; i++)
        if (group->accesses.items[i].kind != KILN__ACCESS_MEMORY)
            return kiln__verifier_fault(verifier, "access", i, "not of memory");
    return check_whole_loads(verifier);
}
