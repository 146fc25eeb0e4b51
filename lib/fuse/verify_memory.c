/* SPDX-License-Identifier: Apache-2.0 */
/* What groups read and write: values that are in memory by then, and nothing beyond them. */
#include "fuse/verify_groups.h"

/* ---- accesses ---- */

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

/* Whether what it reads is in memory by then. */
static const char *check_source(const struct kiln__group_verifier *verifier, uint32_t index)
{
    const struct kiln__fusion *fusion = verifier->fusion;
    if (!fusion->stored[index])
        return "reads what nobody stores";
    if (kiln__node_is_input(kiln__verified_node(verifier, index)))
        return NULL;
    uint32_t maker = fusion->group_of[index];
    if (maker >= verifier->number)
        return "reads what no earlier group has made";
    if (!kiln__group_stores(&fusion->groups.items[maker], index))
        return "reads what its group does not store";
    uint32_t donated_to = fusion->donated_to[index];
    if (donated_to != KILN__NO_DONATION && verifier->number > fusion->group_of[donated_to])
        return "reads what has been overwritten";
    return NULL;
}

static const char *check_access(const struct kiln__group_verifier *verifier, size_t index)
{
    const struct kiln__access *access = &verifier->group->accesses.items[index];
    if (access->node >= verifier->fusion->graph.nodes.count || access->kind > KILN__ACCESS_GATHER)
        return "of no node";
    const struct kiln__node *node = kiln__verified_node(verifier, access->node);
    const struct kiln__shape *shape =
        kiln__group_access_shape(&verifier->fusion->graph, verifier->group, index);
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

const char *kiln__group_check_accesses(const struct kiln__group_verifier *verifier)
{
    for (size_t i = 0; i < verifier->group->accesses.count; i++) {
        const char *wrong = check_access(verifier, i);
        if (wrong)
            return kiln__verifier_fault(verifier, "access", i, wrong);
    }
    return NULL;
}

/* ---- stores ---- */

/* Whether a value of `shape` has an element for each of the first `rank` dimensions of `over`: it
 * is row-major over them, whatever its own dimensions are. */
static bool is_over(const struct kiln__shape *shape, const struct kiln__shape *over, uint32_t rank)
{
    size_t count = 1;
    for (uint32_t d = 0; d < rank; d++)
        count *= over->dims[d];
    return count == kiln__shape_count(shape);
}

static const char *check_placed(const struct kiln__group_verifier *verifier,
                                const struct kiln__store *store)
{
    const struct kiln__group *group = verifier->group;
    if (group->kind != KILN__GROUP_MAP || group->stores.count != 1)
        return "placed beside other stores, or not by a map";
    if (store->position > group->steps.count ||
        (store->position && kiln__type_row(group->steps.items[store->position - 1].type)->floating))
        return "at what is no position";
    if (kiln__shape_count(&group->shape) == 0 || (store->position && store->extent == 0))
        return NULL;
    int64_t jumps = store->position ? store->jump * (int64_t)(store->extent - 1) : 0;
    return stays_within(&group->shape, store->offset, store->stride, jumps,
                        kiln__node_count(kiln__verified_node(verifier, store->node)))
               ? NULL
               : "reaches beyond what it stores";
}

static const char *check_result(const struct kiln__group_verifier *verifier,
                                const struct kiln__store *store)
{
    const struct kiln__group *group = verifier->group;
    const struct kiln__node *node = kiln__verified_node(verifier, store->node);
    if (store->step >= group->steps.count)
        return "of no step";
    if (group->steps.items[store->step].type != node->type)
        return "not of its node's type";
    if (store->step < kiln__verifier_first_visible(group, group->steps.count))
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
    const struct kiln__node *node = kiln__verified_node(verifier, store->node);
    const size_t index = (size_t)(store - group->stores.items);
    const struct kiln__node *root = kiln__verified_node(verifier, group->nodes.items[index]);
    if (!store->placed)
        return node == root ? NULL : "not of the node that it is computed for";
    bool places =
        group->kind == KILN__GROUP_ATTENTION || group->kind == KILN__GROUP_ATTENTION_BACKWARD;
    if (!places || store->offset)
        return "placed, not by an attention from its start";
    bool narrow = verifier->fusion->narrow_operands && root->op && node->type == root->op;
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
        kiln__node_is_input(kiln__verified_node(verifier, store->node)))
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

const char *kiln__group_check_stores(const struct kiln__group_verifier *verifier)
{
    for (size_t i = 0; i < verifier->group->stores.count; i++) {
        const char *wrong = check_store(verifier, i);
        if (wrong)
            return kiln__verifier_fault(verifier, "store", i, wrong);
    }
    return NULL;
}
