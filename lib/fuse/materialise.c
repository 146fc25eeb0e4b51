/* SPDX-License-Identifier: Apache-2.0 */
/* Which values are materialised, and why: they are the roots that fuse.c puts into groups.
 * Everything else is computed where it is used. A root that only its own group goes on with, as a
 * product with a gelu behind it, is never stored (drop_stores() in fuse.c). */
#include "fuse/group_kinds.h"

const char *kiln__fusion_why(enum kiln__why why)
{
#define KILN__WHY(name, text) text,
    static const char *const texts[] = {KILN__WHYS(KILN__WHY)};
#undef KILN__WHY
    return texts[why];
}

bool kiln__fuse_in_registers(const struct kiln__fuser *fuser, uint32_t index)
{
    return kiln__node_is_computed(kiln__fuse_node(fuser, index)) && !fuser->fusion->why[index];
}

static bool is_in_memory(const struct kiln__fuser *fuser, const struct kiln__layout *layout)
{
    return layout->known && kiln__fuse_node(fuser, layout->base)->kind != KILN__IOTA;
}

/* A movement that goes to memory reads memory. */
static void materialise(struct kiln__fuser *fuser, uint32_t index, enum kiln__why why)
{
    uint32_t base = fuser->layouts[index].base;
    if (kiln__node_is_movement(kiln__fuse_node(fuser, index)) && fuser->prologue[base])
        materialise(fuser, base, why);
    fuser->prologue[index] = false;
    if (!fuser->fusion->why[index])
        fuser->fusion->why[index] = why;
    fuser->layouts[index] = kiln__layout_of(&fuser->fusion->graph, index, fuser->layouts, true);
}

bool kiln__fuse_is_widened(const struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    if (node->kind != KILN__CAST || fuser->layouts[index].known)
        return false;
    const struct kiln__node *input = kiln__fuse_node(fuser, node->input[0]);
    return node->type == kiln__node_computed(input) && kiln__node_is_floating(input) &&
           !kiln__node_has_blocks(input) &&
           kiln_type_size(input->type) < kiln_type_size(node->type);
}

/* As wide as it has to be. */
static void materialise_value(struct kiln__fuser *fuser, uint32_t index, enum kiln__why why)
{
    bool widened = kiln__fuse_is_widened(fuser, index);
    materialise(fuser, widened ? kiln__fuse_node(fuser, index)->input[0] : index, why);
    if (widened)
        fuser->layouts[index] =
            kiln__layout_of(&fuser->fusion->graph, index, fuser->layouts, false);
}

/* Requests of a reshape are requests of what it reshapes: the same bytes. */
static void materialise_requested(struct kiln__fuser *fuser)
{
    struct kiln__graph *graph = &fuser->fusion->graph;
    for (size_t i = 0; i < graph->requests.count; i++) {
        uint32_t node = graph->requests.items[i].node;
        while (kiln__fuse_node(fuser, node)->kind == KILN__RESHAPE)
            node = kiln__fuse_node(fuser, node)->input[0];
        graph->requests.items[i].node = node;
        if (!kiln__node_is_input(kiln__fuse_node(fuser, node)))
            fuser->fusion->why[node] = KILN__BECAUSE_ASKED;
    }
}

/* Whether operand `k` is an earlier one, too, as of a square: it is loaded or computed once. */
static bool is_again(const struct kiln__node *node, unsigned k)
{
    bool again = false;
    for (unsigned earlier = 0; earlier < k; earlier++)
        again = again || node->input[k] == node->input[earlier];
    return again;
}

static void count_users(struct kiln__fuser *fuser)
{
    struct kiln__graph *graph = &fuser->fusion->graph;
    for (uint32_t i = 0; i < graph->nodes.count; i++) {
        const struct kiln__node *node = kiln__fuse_node(fuser, i);
        for (unsigned k = 0; k < node->n_inputs; k++)
            fuser->sizes[node->input[k]].users += !is_again(node, k);
        if (node->kind == KILN__REDUCE)
            fuser->sizes[node->input[0]].axes = node->axes;
    }
}

/* What is left after everything that others use has gone. */
static void find_operands(struct kiln__fuser *fuser)
{
    const struct kiln__graph *graph = &fuser->fusion->graph;
    for (uint32_t i = 0; i < graph->nodes.count; i++)
        fuser->for_products[i] = fuser->sizes[i].users > 0;
    for (size_t i = 0; i < graph->requests.count; i++)
        fuser->for_products[graph->requests.items[i].node] = false;
    for (uint32_t i = (uint32_t)graph->nodes.count; i-- > 0;) {
        const struct kiln__node *node = kiln__fuse_node(fuser, i);
        bool passes = kiln__node_is_movement(node) && fuser->for_products[i];
        for (unsigned k = 0; k < node->n_inputs; k++)
            if (node->kind != KILN__MATMUL && !passes)
                fuser->for_products[node->input[k]] = false;
    }
}

/* Whether the value `index`, in registers, is made of what the rows of `visited` come to: in
 * memory, it joins their kernel. */
static bool follows_rows(const struct kiln__fuser *fuser, uint32_t visited, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    bool follows = false;
    if (kiln__node_is_computed(node) && kiln__fuse_in_registers(fuser, index)) {
        for (unsigned k = 0; k < node->n_inputs && !follows; k++)
            follows = follows_rows(fuser, visited, node->input[k]);
        return follows;
    }
    if (!fuser->layouts[index].known)
        return false;
    const struct kiln__node *base = kiln__fuse_node(fuser, fuser->layouts[index].base);
    return kiln__node_goes_over_rows(base) && base->axes == fuser->sizes[visited].axes &&
           kiln__shape_equal(&kiln__fuse_node(fuser, base->input[0])->shape,
                             &kiln__fuse_node(fuser, visited)->shape);
}

/* Whether an operand is one for each row of those that a reduction of `visited` goes over, and one
 * kernel is sure to go over them: it is computed once per row there. */
static bool is_of_row(const struct kiln__fuser *fuser, uint32_t visited, uint32_t operand)
{
    const struct kiln__shape *shape = &kiln__fuse_node(fuser, visited)->shape;
    const struct kiln__shape *own = &kiln__fuse_node(fuser, operand)->shape;
    const uint64_t axes = fuser->sizes[visited].axes;
    const uint32_t kept = shape->rank - (uint32_t)__builtin_popcountll(axes);
    size_t length = 1;
    if (!axes || axes >> kept << kept != axes)
        return false;
    for (uint32_t d = kept; d < shape->rank; d++) {
        const uint32_t behind = shape->rank - d;
        if (own->rank >= behind && own->dims[own->rank - behind] != 1)
            return false;
        length *= shape->dims[d];
    }
    return length >= KILN__SHORTEST_MAPPED_ROW && length <= KILN__LONGEST_MAPPED_ROW &&
           !follows_rows(fuser, visited, operand);
}

/* Steps, loads and cost of computing a pointwise node in registers. What only has a row's own value
 * taken from it costs as much as it did before. */
static void measure(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    struct kiln__size *size = &fuser->sizes[index];
    size->steps = 1;
    size->loads = 0;
    size->large_loads = 0;
    size->cost = node->kind == KILN__ELEMENTWISE ? kiln__elementwise_rows[node->op].cost : 1;
    for (unsigned k = 0; k < node->n_inputs; k++) {
        uint32_t input = node->input[k];
        if (is_again(node, k))
            continue;
        bool deeper = kiln__fuse_in_registers(fuser, input);
        bool of_row = deeper && is_of_row(fuser, index, input);
        size->steps += deeper ? fuser->sizes[input].steps : 1;
        size->loads += deeper ? fuser->sizes[input].loads
                              : kiln__fuse_node(fuser, input)->kind != KILN__CONSTANT;
        size->cost += deeper && !of_row ? fuser->sizes[input].cost : 0;
        size->cost -= of_row && size->cost ? 1 : 0;
        if (kiln__node_count(kiln__fuse_node(fuser, input)) >= kiln__node_count(node))
            size->large_loads += deeper ? fuser->sizes[input].large_loads
                                        : kiln__fuse_node(fuser, input)->kind != KILN__CONSTANT;
    }
}

/* The inputs of a pointwise node are computed in its registers, unless each would be computed
 * often, or the kernel would grow too large. */
static void decide_pointwise(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    for (unsigned k = 0; k < node->n_inputs; k++) {
        uint32_t input = node->input[k];
        bool repeated = kiln__node_count(kiln__fuse_node(fuser, input)) < kiln__node_count(node);
        if (kiln__fuse_in_registers(fuser, input) && repeated &&
            fuser->sizes[input].cost > KILN__CHEAP_REPEATED && !is_of_row(fuser, index, input))
            materialise(fuser, input, KILN__BECAUSE_REPEATED);
    }
    measure(fuser, index);
    for (unsigned k = 0; k < node->n_inputs; k++) {
        const struct kiln__size *size = &fuser->sizes[index];
        if (size->steps <= KILN__MOST_ROOT_STEPS && size->loads <= KILN__MOST_ROOT_LOADS)
            break;
        if (kiln__fuse_in_registers(fuser, node->input[k]) &&
            fuser->sizes[node->input[k]].steps > 1 && !fuser->layouts[node->input[k]].known)
            materialise(fuser, node->input[k], KILN__BECAUSE_LARGE);
        measure(fuser, index);
    }
    const struct kiln__size *size = &fuser->sizes[index];
    /* What is made of smaller operands, as a mask of labels, or of one that is as large, as what is
     * left of the mean, is sooner made again than loaded. */
    if (size->users > 1 && (size->cost > KILN__CHEAP || size->large_loads > 1))
        materialise_value(fuser, index, KILN__BECAUSE_SHARED);
    fuser->prologue[index] = kiln__fuse_may_be_prologue(fuser, index);
    fuser->layouts[index] =
        kiln__layout_of(&fuser->fusion->graph, index, fuser->layouts, fuser->prologue[index]);
}

/* The more costly of both goes to memory where one kernel would grow too large. */
static void decide_part(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    if (node->kind == KILN__SCATTER) {
        const uint32_t values = node->input[KILN__SCATTER_VALUES],
                       indices = node->input[KILN__SCATTER_INDICES];
        const bool repeated = kiln__node_count(kiln__fuse_node(fuser, indices)) <
                              kiln__node_count(kiln__fuse_node(fuser, values));
        if (kiln__fuse_in_registers(fuser, indices) && repeated &&
            fuser->sizes[indices].cost > KILN__CHEAP)
            materialise(fuser, indices, KILN__BECAUSE_REPEATED);
        measure(fuser, index);
        if (fuser->sizes[index].steps > KILN__MOST_ROOT_STEPS ||
            fuser->sizes[index].loads > KILN__MOST_ROOT_LOADS)
            materialise_value(fuser, values, KILN__BECAUSE_LARGE);
    }
    materialise(fuser, index, KILN__BECAUSE_INSERTED);
}

/* A movement reads memory through strides; what it moves must be there if none can say it. */
static void decide_movement(struct kiln__fuser *fuser, uint32_t index)
{
    struct kiln__graph *graph = &fuser->fusion->graph;
    fuser->layouts[index] = kiln__layout_of(graph, index, fuser->layouts, false);
    if (fuser->layouts[index].known)
        return;
    materialise_value(fuser, kiln__fuse_node(fuser, index)->input[0], KILN__BECAUSE_MOVED);
    fuser->layouts[index] = kiln__layout_of(graph, index, fuser->layouts, false);
}

/* A gather reads memory; its indices are computed where it is. */
static void decide_gather(struct kiln__fuser *fuser, uint32_t index)
{
    uint32_t data = kiln__fuse_node(fuser, index)->input[0];
    if (!is_in_memory(fuser, &fuser->layouts[data]))
        materialise(fuser, data, KILN__BECAUSE_GATHERED);
    decide_pointwise(fuser, index);
}

/* What is only a cast of what lies in memory is put in order as it lies there. */
static void materialise_operand(struct kiln__fuser *fuser, uint32_t index, enum kiln__why why)
{
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    struct kiln__layout *layout = &fuser->layouts[index];
    bool loaded = node->kind == KILN__CAST && layout->known && layout->base != index;
    if (!loaded) {
        materialise_value(fuser, index, why);
        return;
    }
    materialise(fuser, node->input[0], why);
    *layout = kiln__layout_of(&fuser->fusion->graph, index, fuser->layouts, false);
}

/* Whether the value is read from blocks: among kernels for single nodes those of products can. */
static bool is_of_blocks(const struct kiln__fuser *fuser, const struct kiln__layout *layout)
{
    return layout->known && kiln__node_has_blocks(kiln__fuse_node(fuser, layout->base));
}

/* What a group of its own reads is read from memory as it lies there, if it suits. */
static void decide_operand(struct kiln__fuser *fuser, uint32_t index, unsigned k)
{
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    const struct kiln__group_traits *traits = &kiln__group_traits[kiln__group_kind_of(node)];
    uint32_t operand = node->input[k];
    const struct kiln__layout *layout = &fuser->layouts[operand];
    const struct kiln__shape *shape = &kiln__fuse_node(fuser, operand)->shape;
    if (node->kind != KILN__MATMUL && is_of_blocks(fuser, layout))
        materialise(fuser, operand, traits->operand);
    else if (!is_in_memory(fuser, layout) || (traits->suits && !traits->suits(layout, shape)))
        materialise_operand(fuser, operand, traits->operand);
    if (node->kind == KILN__MATMUL && !kiln__fuse_operand_suits(fuser, index, k))
        materialise(fuser, fuser->prologue[layout->base] ? layout->base : operand, traits->operand);
}

/* An own kernel reads its operands in the types that they have, and row-major unless it takes
 * strides. */
static void decide_custom(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    for (unsigned k = 0; k < node->n_inputs; k++) {
        const uint32_t operand = node->input[k];
        const struct kiln__layout *layout = &fuser->layouts[operand];
        const bool strided = node->custom.call->call.strided >> k & 1;
        if (!is_in_memory(fuser, layout) ||
            kiln__fuse_node(fuser, layout->base)->type != kiln__fuse_node(fuser, operand)->type ||
            !(strided || kiln__layout_is_dense(layout, &kiln__fuse_node(fuser, operand)->shape)))
            materialise(fuser, operand, KILN__BECAUSE_CUSTOM);
    }
    materialise(fuser, index, KILN__BECAUSE_CUSTOM);
}

static void decide_own(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    const struct kiln__group_traits *traits = &kiln__group_traits[kiln__group_kind_of(node)];
    for (unsigned k = 0; k < traits->operands && k < node->n_inputs; k++)
        decide_operand(fuser, index, k);
    materialise(fuser, index, traits->result);
}

bool kiln__fuse_suits_scan(const struct kiln__fuser *fuser, uint32_t index)
{
    return fuser->sizes[index].cost < KILN__COSTLY;
}

/* Whether all that is loaded to compute `index` has neighbours, or one value for all, along the
 * dimension that has `behind` others behind it. */
static bool loads_run_along(const struct kiln__fuser *fuser, uint32_t index, uint32_t behind)
{
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    const struct kiln__layout *layout = &fuser->layouts[index];
    bool run = node->kind != KILN__GATHER || layout->known;
    if (kiln__node_is_computed(node) && !layout->known) {
        for (unsigned k = 0; k < node->n_inputs; k++)
            run = run && loads_run_along(fuser, node->input[k], behind);
    } else if (layout->known && node->shape.rank > behind) {
        uint32_t d = node->shape.rank - 1 - behind;
        run = node->shape.dims[d] == 1 || layout->stride[d] == 0 || layout->stride[d] == 1;
    }
    return run;
}

/* What a scan adds up is computed where it does, unless that is a function, or reads memory across
 * the direction in which the sums are stored. */
static void decide_scan(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuse_node(fuser, index);
    const struct kiln__shape *shape = &node->shape;
    uint32_t behind = 0, input = node->input[0];
    while (behind + 1 < shape->rank && shape->dims[shape->rank - 1 - behind] == 1)
        behind++;
    if (!loads_run_along(fuser, input, behind) || !kiln__fuse_suits_scan(fuser, input))
        materialise_operand(fuser, input, KILN__BECAUSE_SCAN);
    decide_own(fuser, index);
}

static void decide(struct kiln__fuser *fuser, uint32_t index)
{
    switch (kiln__fuse_node(fuser, index)->kind) {
    case KILN__UPLOAD:
    case KILN__IMPORT: materialise(fuser, index, KILN__BECAUSE_INPUT); break;
    case KILN__CONSTANT: break;
    case KILN__IOTA:
        fuser->layouts[index] = kiln__layout_of(&fuser->fusion->graph, index, NULL, false);
        break;
    case KILN__ELEMENTWISE:
    case KILN__CAST: decide_pointwise(fuser, index); break;
    case KILN__GATHER: decide_gather(fuser, index); break;
    case KILN__VIEW:
    case KILN__RESHAPE: decide_movement(fuser, index); break;
    case KILN__INSERT_SLICE: decide_part(fuser, index); break;
    case KILN__REDUCE:
    case KILN__MATMUL:
    case KILN__ATTENTION:
    case KILN__ATTENTION_BACKWARD:
    case KILN__SORT: decide_own(fuser, index); break;
    case KILN__SCATTER:
        if (kiln__node_puts_part(kiln__fuse_node(fuser, index)))
            decide_part(fuser, index);
        else
            decide_own(fuser, index);
        break;
    case KILN__SCAN: decide_scan(fuser, index); break;
    case KILN__CUSTOM: decide_custom(fuser, index); break;
    }
    if (fuser->fusion->graph.rematerialised.count &&
        fuser->fusion->graph.rematerialised.items[index].held)
        materialise(fuser, index, KILN__BECAUSE_REMATERIALISED);
    if (fuser->fusion->why[index])
        materialise(fuser, index, fuser->fusion->why[index]);
}

/* Decisions of later nodes have put earlier ones into memory. */
static void settle_layouts(struct kiln__fuser *fuser)
{
    struct kiln__graph *graph = &fuser->fusion->graph;
    for (uint32_t i = 0; i < graph->nodes.count; i++)
        if (fuser->prologue[i] && !kiln__fuse_may_be_prologue(fuser, i))
            materialise(fuser, i, KILN__BECAUSE_OPERAND);
    for (uint32_t i = 0; i < graph->nodes.count; i++)
        fuser->layouts[i] = kiln__layout_of(
            graph, i, fuser->layouts, fuser->fusion->why[i] != KILN__INLINE || fuser->prologue[i]);
}

void kiln__fuse_materialise(struct kiln__fuser *fuser)
{
    materialise_requested(fuser);
    count_users(fuser);
    find_operands(fuser);
    for (uint32_t i = 0; i < fuser->fusion->graph.nodes.count; i++)
        decide(fuser, i);
    settle_layouts(fuser);
}
