/* SPDX-License-Identifier: Apache-2.0 */
/* What plan and codegen rely on in groups. Each rule is stated from the group and the graph alone,
 * not from how the groups were formed. */
#include <stdio.h>

#include "fuse/kinds.h"
#include "fuse/nest.h"

struct kiln__group_verifier {
    const struct kiln__fusion *fusion;
    const struct kiln__group *group;
    uint32_t number; /* of the group */
    char *text;
};

static const struct kiln__node *node_at(const struct kiln__group_verifier *verifier, uint32_t index)
{
    return &verifier->fusion->graph.nodes.items[index];
}

/* The node that began the group; NULL: of a kind that none begins alone. */
static const struct kiln__node *began(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    enum kiln__kind root = kiln__group_traits[group->kind].root;
    for (size_t i = 0; root && i < group->nodes.count; i++)
        if (node_at(verifier, group->nodes.items[i])->kind == root)
            return node_at(verifier, group->nodes.items[i]);
    return NULL;
}

static const char *say(const struct kiln__group_verifier *verifier, const char *part, size_t index,
                       const char *wrong)
{
    snprintf(verifier->text, KILN__WRONG, "group %u (%s), %s %zu: %s", verifier->number,
             kiln__group_name(verifier->group), part, index, wrong);
    return verifier->text;
}

static const char *say_whole(const struct kiln__group_verifier *verifier, const char *wrong)
{
    snprintf(verifier->text, KILN__WRONG, "group %u (%s): %s", verifier->number,
             kiln__group_name(verifier->group), wrong);
    return verifier->text;
}

/* ---- steps ---- */

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
    if (step->type != node_at(verifier, access->node)->type)
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
static size_t first_visible(const struct kiln__group *group, size_t step)
{
    bool operand = group->kind == KILN__GROUP_MATMUL && step < group->reduced_step;
    size_t second = operand ? group->steps.items[group->reduced_step].args[0] + 1u : 0;
    return step > group->reduced_step ? group->reduced_step : step >= second ? second : 0;
}

static const char *check_steps(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    for (size_t i = 0; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        for (unsigned k = 0; k < step->n_args; k++) {
            if (k >= 3 || step->args[k] >= i)
                return say(verifier, "step", i, "an operand that is no earlier step");
            if (step->args[k] < first_visible(group, i))
                return say(verifier, "step", i, "an operand that is gone once there is a result");
        }
        if (!kiln__type_row(step->type))
            return say(verifier, "step", i, "no such type");
        const char *wrong = check_own(verifier, step);
        if (wrong)
            return say(verifier, "step", i, wrong);
    }
    return NULL;
}

/* ---- accesses ---- */

/* The dimensions that an access walks: the group's, or those of the input that a kernel for a
 * single node, or a product, takes as it is. */
static const struct kiln__shape *walked(const struct kiln__group_verifier *verifier, size_t access)
{
    const struct kiln__group *group = verifier->group;
    const struct kiln__node *node = began(verifier);
    size_t input = access;
    if (group->kind == KILN__GROUP_MATMUL)
        input = access >= kiln__group_operand_accesses(group)
                    ? KILN__OPERANDS
                    : access >= kiln__group_operand(group, 1).access;
    bool operand = node && input < kiln__group_operands(group, node);
    return operand ? &node_at(verifier, node->input[input])->shape : &group->shape;
}

/* Whether offset and strides stay among `count` elements, all over `shape`. */
static bool stays_within(const struct kiln__shape *shape, int64_t offset, const int64_t *stride,
                         int64_t jumps, size_t count)
{
    int64_t low = offset, high = offset;
    for (uint32_t d = 0; d < shape->rank; d++) {
        int64_t reach = stride[d] * ((int64_t)shape->dims[d] - 1);
        *(reach < 0 ? &low : &high) += reach;
    }
    *(jumps < 0 ? &low : &high) += jumps;
    return low >= 0 && high < (int64_t)count;
}

static bool has_store(const struct kiln__group *group, uint32_t node)
{
    for (size_t i = 0; i < group->stores.count; i++)
        if (group->stores.items[i].node == node)
            return true;
    return false;
}

/* Whether what it reads is in memory by then. */
static const char *check_source(const struct kiln__group_verifier *verifier, uint32_t index)
{
    const struct kiln__fusion *fusion = verifier->fusion;
    if (!fusion->stored[index])
        return "reads what nobody stores";
    if (kiln__node_is_input(node_at(verifier, index)))
        return NULL;
    uint32_t maker = fusion->group_of[index];
    if (maker >= verifier->number)
        return "reads what no earlier group has made";
    if (!has_store(&fusion->groups.items[maker], index))
        return "reads what its group does not store";
    uint32_t heir = fusion->heir[index];
    if (heir != KILN__NO_HEIR && verifier->number > fusion->group_of[heir])
        return "reads what has been overwritten";
    return NULL;
}

static const char *check_access(const struct kiln__group_verifier *verifier, size_t index)
{
    const struct kiln__access *access = &verifier->group->accesses.items[index];
    if (access->node >= verifier->fusion->graph.nodes.count || access->kind > KILN__ACCESS_GATHER)
        return "of no node";
    const struct kiln__node *node = node_at(verifier, access->node);
    const struct kiln__shape *shape = walked(verifier, index);
    bool gathers = access->kind == KILN__ACCESS_GATHER,
         number = access->kind == KILN__ACCESS_NUMBER;
    if (number && node->kind != KILN__IOTA)
        return "the number of what is no iota";
    const char *wrong = number ? NULL : check_source(verifier, access->node);
    if (wrong)
        return wrong;
    if (kiln__shape_count(shape) == 0 || (gathers && access->extent == 0))
        return NULL;
    int64_t jumps = gathers ? access->jump * (int64_t)(access->extent - 1) : 0;
    return stays_within(shape, access->offset, access->stride, jumps, kiln__node_count(node))
               ? NULL
               : "reaches beyond what it reads";
}

static const char *check_accesses(const struct kiln__group_verifier *verifier)
{
    for (size_t i = 0; i < verifier->group->accesses.count; i++) {
        const char *wrong = check_access(verifier, i);
        if (wrong)
            return say(verifier, "access", i, wrong);
    }
    return NULL;
}

/* ---- stores ---- */

/* Whether a value of `shape` is row-major over the first `rank` dimensions of `over`: equal but for
 * dimensions of 1. */
static bool is_over(const struct kiln__shape *shape, const struct kiln__shape *over, uint32_t rank)
{
    uint32_t d = 0;
    for (uint32_t own = 0; own < shape->rank; own++) {
        if (shape->dims[own] == 1)
            continue;
        while (d < rank && over->dims[d] == 1)
            d++;
        if (d == rank || over->dims[d++] != shape->dims[own])
            return false;
    }
    while (d < rank && over->dims[d] == 1)
        d++;
    return d == rank;
}

static const char *check_placed(const struct kiln__group_verifier *verifier,
                                const struct kiln__store *store)
{
    const struct kiln__group *group = verifier->group;
    if (group->kind != KILN__GROUP_MAP || group->stores.count != 1)
        return "placed beside other stores, or not by a map";
    if (kiln__shape_count(&group->shape) == 0)
        return NULL;
    return stays_within(&group->shape, store->offset, store->stride, 0,
                        kiln__node_count(node_at(verifier, store->node)))
               ? NULL
               : "reaches beyond what it stores";
}

static const char *check_result(const struct kiln__group_verifier *verifier,
                                const struct kiln__store *store)
{
    const struct kiln__group *group = verifier->group;
    const struct kiln__node *node = node_at(verifier, store->node);
    if (store->step >= group->steps.count)
        return "of no step";
    if (group->steps.items[store->step].type != node->type)
        return "not of its node's type";
    if (store->step < first_visible(group, group->steps.count))
        return "of a step that is gone once there is a result";
    if (store->full == kiln__group_reduces(group) && !kiln__group_traits[group->kind].phased)
        return "not one for each of its results";
    if (store->placed)
        return check_placed(verifier, store);
    const struct kiln__shape visited = kiln__group_visited(group);
    return is_over(&node->shape, store->full ? &visited : &group->shape,
                   store->full ? visited.rank : group->kept)
               ? NULL
               : "not of its node's shape";
}

/* Whether strides over `shape` visit as many neighbours as it has elements, each once. */
static bool is_reordered(const struct kiln__shape *shape, const int64_t *stride)
{
    int64_t dense = 1;
    uint32_t left = 0;
    for (uint32_t d = 0; d < shape->rank; d++)
        left |= (uint32_t)(shape->dims[d] != 1) << d;
    for (uint32_t d = 0; d < shape->rank && left; d++)
        if (left >> d & 1 && stride[d] == dense) {
            dense *= (int64_t)shape->dims[d];
            left &= ~(UINT32_C(1) << d);
            d = UINT32_MAX; /* from the first one again */
        }
    return left == 0;
}

/* Of a kernel for a single node: that node, or what it is once its elements are reordered. */
static const char *check_whole_result(const struct kiln__group_verifier *verifier,
                                      const struct kiln__store *store)
{
    const struct kiln__group *group = verifier->group;
    const struct kiln__node *node = node_at(verifier, store->node);
    const size_t index = (size_t)(store - group->stores.items);
    const struct kiln__node *root = node_at(verifier, group->nodes.items[index]);
    if (!store->placed)
        return node == root ? NULL : "not of the node that it is computed for";
    bool places = group->kind == KILN__GROUP_ATTENTION || group->kind == KILN__GROUP_SLOPES;
    if (!places || store->offset)
        return "placed, not by an attention from its start";
    bool narrow = verifier->fusion->graph.narrow && root->op && node->type == root->op;
    if ((node->type != root->type && !narrow) || kiln__node_count(node) != kiln__node_count(root))
        return "of another type or size";
    return is_reordered(&root->shape, store->stride) ? NULL : "not each of its elements once";
}

static const char *check_store(const struct kiln__group_verifier *verifier, size_t index)
{
    const struct kiln__fusion *fusion = verifier->fusion;
    const struct kiln__store *store = &verifier->group->stores.items[index];
    uint32_t own = verifier->number;
    if (store->node >= fusion->graph.nodes.count ||
        kiln__node_is_input(node_at(verifier, store->node)))
        return "of no node";
    uint32_t completed = fusion->group_of[store->node];
    bool below =
        completed < fusion->groups.count && fusion->groups.items[completed].base_group == own;
    if (completed != own && !below)
        return "of a node that another group completes";
    if (!fusion->stored[store->node])
        return "of a node that is not in memory";
    for (size_t i = 0; i < index; i++)
        if (verifier->group->stores.items[i].node == store->node)
            return "of a node that is stored already";
    return kiln__group_is_of_steps(verifier->group) ? check_result(verifier, store)
                                                    : check_whole_result(verifier, store);
}

static const char *check_stores(const struct kiln__group_verifier *verifier)
{
    for (size_t i = 0; i < verifier->group->stores.count; i++) {
        const char *wrong = check_store(verifier, i);
        if (wrong)
            return say(verifier, "store", i, wrong);
    }
    return NULL;
}

/* ---- each kind's own ---- */

/* What is read once per result stands still along what is reduced. */
static const char *check_late_reads(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    for (size_t i = group->reduced_step + 1u; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        for (uint32_t d = group->kept; kiln__step_reads(step) && d < group->shape.rank; d++)
            if (group->shape.dims[d] != 1 && group->accesses.items[step->index].stride[d])
                return say(verifier, "step", i, "moves along what is reduced before it");
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
        return say_whole(verifier, "not one reduction, where it says");
    if (group->steps.items[group->reduced_step].op != began(verifier)->op)
        return say_whole(verifier, "its reduction is another one");
    return check_late_reads(verifier);
}

/* What is kept from phase to phase is used before the result is written that it lies in. */
static const char *check_kept(const struct kiln__group_verifier *verifier)
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
                return say(verifier, "step", i, "kept where another result is written");
        }
    }
    return NULL;
}

const char *kiln__group_check_rows(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    struct kiln__nest nest;
    if (group->kept >= group->shape.rank)
        return say_whole(verifier, "its rows have no dimension");
    if (group->axes >> group->shape.rank ||
        group->kept + (uint32_t)__builtin_popcountll(group->axes) != group->shape.rank)
        return say_whole(verifier, "its axes are not as many as its rows' dimensions");
    for (size_t i = 0; i < group->steps.count; i++)
        if (group->steps.items[i].kind == KILN__STEP_GATHER)
            return say(verifier, "step", i, "a gather among rows");
    kiln__nest_of(group, false, &nest);
    if (nest.phases == 0 && group->stores.count)
        return say_whole(verifier, "no phase");
    for (size_t i = 0; i < group->stores.count; i++) {
        const struct kiln__store *store = &group->stores.items[i];
        if (store->step < group->steps.count && !store->full && nest.full[store->step])
            return say(verifier, "store", i, "one for each row of what each element has");
    }
    return check_kept(verifier);
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
    const struct kiln__shape *shape = walked(verifier, operand.access);
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
        if (!kiln__layout_batch_stride(group->accesses.items[i].stride, shape, 2, &batch))
            return "matrices at no single distance";
    return group->steps.items[operand.value].type == KILN_F32 ? NULL : "not of the product's type";
}

const char *kiln__group_check_product(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    if (group->accesses.count < KILN__OPERANDS || group->steps.count <= group->reduced_step ||
        group->shape.rank < 2)
        return say_whole(verifier, "not two operands, each with an access of its own");
    const struct kiln__step *product = &group->steps.items[group->reduced_step];
    if (product->kind != KILN__STEP_PRODUCT || product->n_args != KILN__OPERANDS ||
        product->args[0] >= product->args[1] || product->args[1] + 1 != group->reduced_step)
        return say_whole(verifier, "no product of two operands, where it says");
    for (unsigned k = 0; k < KILN__OPERANDS; k++) {
        const char *wrong = check_operand(verifier, k);
        if (wrong)
            return say(verifier, "operand", k, wrong);
    }
    return NULL;
}

/* Each is loaded by one step, and is then of its input's type. */
static const char *check_whole_loads(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    size_t step = 0;
    for (size_t k = 0; k < group->accesses.count; k++) {
        kiln_type type = node_at(verifier, began(verifier)->input[k])->type;
        if (step >= group->steps.count || group->steps.items[step].kind != KILN__STEP_LOAD ||
            group->steps.items[step].index != k)
            return say(verifier, "access", k, "not loaded by a step of its own");
        step += 1 + (step + 1 < group->steps.count &&
                     group->steps.items[step + 1].kind == KILN__STEP_CONVERT);
        if (group->steps.items[step - 1].type != type)
            return say(verifier, "access", k, "not of its input's type");
    }
    return step == group->steps.count ? NULL : say_whole(verifier, "steps without an input");
}

/* One access for each input that its kernel reads, equal ones too. */
const char *kiln__group_check_whole(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    if (group->stores.count == 0)
        return NULL; /* another computes its node as well */
    if (group->stores.count > group->nodes.count || group->nodes.count > KILN__MOST_WHOLE)
        return say_whole(verifier, "more nodes than its kernel computes");
    if (group->accesses.count != kiln__group_operands(group, began(verifier)))
        return say_whole(verifier, "not one access for each input");
    for (size_t i = 0; i < group->accesses.count; i++)
        if (group->accesses.items[i].kind != KILN__ACCESS_MEMORY)
            return say(verifier, "access", i, "not of memory");
    return check_whole_loads(verifier);
}

/* Which dimensions are reduced, and to how many elements each result comes. */
static const char *check_reduced_dimensions(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    const struct kiln__group_traits *traits = &kiln__group_traits[group->kind];
    size_t reduced = 1;
    if (group->kept > group->shape.rank || (!traits->reduces && group->kept < group->shape.rank))
        return say_whole(verifier, "reduces dimensions that it does not have");
    for (uint32_t d = group->kept; d < group->shape.rank; d++)
        reduced *= group->shape.dims[d];
    bool multiplies = traits->joins[0] && traits->operands;
    return reduced == group->reduced || multiplies
               ? NULL
               : say_whole(verifier, "not as many elements for each result as it says");
}

static const char *check_limits(const struct kiln__group_verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    if (group->accesses.count > KILN__MOST_ACCESSES)
        return say_whole(verifier, "too many accesses");
    if (group->steps.count > KILN__MOST_STEPS)
        return say_whole(verifier, "too many steps");
    if (group->stores.count > KILN__MOST_STORES)
        return say_whole(verifier, "too many stores");
    if (group->shape.rank > KILN_MAX_RANK)
        return say_whole(verifier, "too many dimensions");
    for (size_t i = 0; i < group->nodes.count; i++)
        if (group->nodes.items[i] >= verifier->fusion->graph.nodes.count)
            return say(verifier, "node", i, "not in the graph");
    bool becomes = kiln__group_traits[group->kind].phased; /* without a node of its own */
    if (kiln__group_traits[group->kind].root && !becomes && !began(verifier))
        return say_whole(verifier, "no node that it computes");
    return NULL;
}

static const char *check_group(const struct kiln__group_verifier *verifier)
{
    kiln__group_check *const checks[] = {
        check_limits,   check_reduced_dimensions,
        check_steps,    kiln__group_traits[verifier->group->kind].check,
        check_accesses, check_stores};
    const char *wrong = NULL;
    for (size_t i = 0; i < sizeof checks / sizeof *checks && !wrong; i++)
        wrong = checks[i] ? checks[i](verifier) : NULL;
    return wrong;
}

/* ---- nodes ---- */

/* What is put over a base finds it there: copied by the group before, or taken over. */
static const char *check_base(const struct kiln__fusion *fusion, uint32_t index)
{
    uint32_t base = kiln__node_base(&fusion->graph.nodes.items[index]);
    uint32_t own = fusion->group_of[index];
    uint32_t below = fusion->groups.items[own].base_group;
    if (below == KILN__NO_GROUP)
        return base == UINT32_MAX ? NULL : "nothing below what is put over it";
    if (base == UINT32_MAX || below >= own)
        return "over something that it does not have";
    bool copied = has_store(&fusion->groups.items[below], index);
    return copied == (fusion->heir[base] == index) ? "its base is neither copied nor taken over"
                                                   : NULL;
}

static const char *check_heir(const struct kiln__fusion *fusion, uint32_t index)
{
    uint32_t heir = fusion->heir[index];
    if (heir == KILN__NO_HEIR)
        return NULL;
    if (heir >= fusion->graph.nodes.count ||
        kiln__node_base(&fusion->graph.nodes.items[heir]) != index)
        return "its heir is not put over it";
    if (kiln__node_is_input(&fusion->graph.nodes.items[index]) ||
        fusion->why[index] == KILN__BECAUSE_ASKED || !fusion->stored[index])
        return "taken over, though others know its memory";
    return NULL;
}

static const char *check_node(const struct kiln__fusion *fusion, uint32_t index)
{
    const struct kiln__node *node = &fusion->graph.nodes.items[index];
    const char *wrong = check_heir(fusion, index);
    uint32_t group = fusion->group_of[index];
    bool root = fusion->why[index] > KILN__BECAUSE_INPUT;
    if (wrong || kiln__node_is_input(node))
        return wrong;
    if (root != (group != KILN__NO_GROUP) || (root && group >= fusion->groups.count))
        return "in memory, and in no group, or the reverse";
    if (!fusion->stored[index])
        return NULL;
    if (!root || !has_store(&fusion->groups.items[group], index))
        return "needed in memory, but its group does not store it";
    bool laid = node->kind == KILN__PLACE || node->kind == KILN__SCATTER;
    return laid ? check_base(fusion, index) : NULL;
}

static const char *check_request(const struct kiln__fusion *fusion, size_t index)
{
    uint32_t node = fusion->graph.requests.items[index].node;
    return node >= fusion->graph.nodes.count ? "names no node"
           : !fusion->stored[node]           ? "is never stored"
                                             : NULL;
}

const char *kiln__fusion_verify(const struct kiln__fusion *fusion, char text[KILN__WRONG])
{
    for (uint32_t g = 0; g < fusion->groups.count; g++) {
        const struct kiln__group_verifier verifier = {fusion, &fusion->groups.items[g], g, text};
        if (verifier.group->kind >= KILN__GROUP_KINDS) {
            snprintf(text, KILN__WRONG, "group %u: no such kind", g);
            return text;
        }
        const char *wrong = check_group(&verifier);
        if (wrong)
            return wrong;
    }
    for (uint32_t i = 0; i < fusion->graph.nodes.count; i++) {
        const char *wrong = check_node(fusion, i);
        if (wrong) {
            snprintf(text, KILN__WRONG, "node %%%u (%s): %s", i,
                     kiln__node_name(&fusion->graph.nodes.items[i]), wrong);
            return text;
        }
    }
    for (size_t i = 0; i < fusion->graph.requests.count; i++) {
        const char *wrong = check_request(fusion, i);
        if (wrong) {
            snprintf(text, KILN__WRONG, "result #%zu %s", i, wrong);
            return text;
        }
    }
    return NULL;
}
