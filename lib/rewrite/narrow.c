/* SPDX-License-Identifier: Apache-2.0 */
/* Narrow products (kiln__node_narrow()) become exact ones of operands that are stored in the narrow
 * type. A value is rounded once, where it is made, and whoever else computes with it reads it as it
 * is stored. Nothing else is rounded: scores may have a mask of -1e9, the largest of logits is that
 * of those which are read. All is computed in f32.
 *
 * As it is stays what is asked for, what comes from outside (but for narrow products themselves),
 * and what is updated from there, as a parameter is. The rule looks at the graph alone, never at
 * sizes: a row is rounded in the same places in every batch. */
#include <stdlib.h>

#include "graph/attention.h"
#include "rewrite/rewrite.h"

struct kiln__narrow {
    uint8_t *wanted;   /* per node of `from`: the narrow type that it is to be stored in; 0: none */
    bool *kept;        /* others read it as it is, */
    uint32_t *stored;  /* and of `to` what it is as it is stored, */
    uint32_t *widened; /* and that as f32 */
};

/* What is found out about the nodes before any is copied. */
struct findings {
    const struct kiln__graph *graph;
    const uint32_t *uses;
    struct kiln__narrow *narrow;
    bool *updates; /* per node: it leads to a result, element by element, */
    bool *outside; /* and comes from outside so */
};

static const struct kiln__node *at(const struct findings *findings, uint32_t index)
{
    return &findings->graph->nodes.items[index];
}

static bool is_same_shape(const struct findings *findings, uint32_t a, uint32_t b)
{
    return kiln__shape_equal(&at(findings, a)->shape, &at(findings, b)->shape);
}

/* Whether the node computes with elements of its shape and numbers for all of them alone: as
 * updates of parameters do, and not norms and layers, with a number by row or column. */
static bool is_uniform(const struct findings *findings, uint32_t index)
{
    const struct kiln__node *node = at(findings, index);
    bool uniform = kiln__node_is_pointwise(node);
    for (unsigned k = 0; k < node->n_inputs; k++)
        uniform = uniform && (is_same_shape(findings, index, node->input[k]) ||
                              kiln__node_count(at(findings, node->input[k])) == 1);
    return uniform;
}

/* ---- what is asked of each node by its readers ---- */

/* Operands that are multiplied. */
static unsigned factors_of(const struct kiln__node *node)
{
    return node->kind == KILN__MATMUL ? 2 : node->kind == KILN__ATTENTION ? KILN__MASK : 0;
}

/* Whether a node is stored narrow by what it is made of being so. Of an input only a part may be
 * wanted: that is rounded, not the whole. */
static bool hands_on(const struct findings *findings, uint32_t index)
{
    const struct kiln__node *node = at(findings, index);
    uint32_t base = index;
    while (kiln__node_is_movement(at(findings, base)))
        base = at(findings, base)->input[0];
    bool part = kiln__node_is_input(at(findings, base)) &&
                kiln__node_count(node) < kiln__node_count(at(findings, base));
    return node->kind == KILN__INSERT_SLICE || (kiln__node_is_movement(node) && !part);
}

static void request_type(const struct findings *findings, uint32_t index, kiln_type type)
{
    uint8_t *wanted = &findings->narrow->wanted[index];
    if (at(findings, index)->type == KILN_F32 && !*wanted)
        *wanted = (uint8_t)type;
}

static void want_operands(const struct findings *findings, uint32_t index)
{
    const struct kiln__node *node = at(findings, index);
    const kiln_type type = kiln__node_narrow(node);
    for (unsigned k = 0; type && k < factors_of(node); k++)
        request_type(findings, node->input[k], type);
    const kiln_type own = (kiln_type)findings->narrow->wanted[index];
    for (unsigned k = 0; own && hands_on(findings, index) && k < node->n_inputs; k++)
        request_type(findings, node->input[k], own);
}

/* What the node's operand learns of being read by it. */
static void note_reader(const struct findings *findings, uint32_t index, uint32_t operand)
{
    findings->updates[operand] |= findings->updates[index] && is_uniform(findings, index) &&
                                  is_same_shape(findings, index, operand);
}

static void look_at_readers(const struct findings *findings)
{
    for (size_t i = 0; i < findings->graph->requests.count; i++)
        findings->updates[findings->graph->requests.items[i].node] = true;
    for (uint32_t i = (uint32_t)findings->graph->nodes.count; i-- > 0;) {
        const struct kiln__node *node = at(findings, i);
        if (!findings->uses[i])
            continue;
        want_operands(findings, i);
        for (unsigned k = 0; k < node->n_inputs; k++)
            if (k == 0 || node->input[k] != node->input[0])
                note_reader(findings, i, node->input[k]);
    }
}

/* ---- what is asked of each node by what it is made of ---- */

/* Whether the value comes from outside, element by element. */
static bool is_from_outside(const struct findings *findings, uint32_t index)
{
    const struct kiln__node *node = at(findings, index);
    bool outside = kiln__node_is_input(node);
    for (unsigned k = 0; k < node->n_inputs && !outside && is_uniform(findings, index); k++)
        outside =
            is_same_shape(findings, index, node->input[k]) && findings->outside[node->input[k]];
    return outside;
}

static void look_at_operands(const struct findings *findings, uint32_t index)
{
    const struct kiln__node *node = at(findings, index);
    struct kiln__narrow *narrow = findings->narrow;
    const bool moves = kiln__node_is_movement(node), outside = is_from_outside(findings, index);
    findings->outside[index] = outside;
    narrow->kept[index] = kiln__node_is_input(node) || node->kind == KILN__CONSTANT ||
                          node->kind == KILN__IOTA || (outside && findings->updates[index]);
    if (moves && narrow->wanted[node->input[0]] && !narrow->kept[node->input[0]])
        request_type(findings, index, (kiln_type)narrow->wanted[node->input[0]]);
    else if (moves)
        narrow->kept[index] = narrow->kept[node->input[0]];
}

void kiln__rewrite_free_narrow(struct kiln__rewrite *rewrite)
{
    struct kiln__narrow *narrow = rewrite->narrow;
    if (!narrow)
        return;
    free(narrow->wanted);
    free(narrow->kept);
    free(narrow->stored);
    free(narrow->widened);
    free(narrow);
    rewrite->narrow = NULL;
}

static bool find_narrow(struct kiln__rewrite *rewrite)
{
    const size_t count = rewrite->from->nodes.count;
    struct kiln__narrow *narrow = rewrite->narrow = calloc(1, sizeof *narrow);
    if (!narrow)
        return false;
    narrow->wanted = calloc(count, sizeof *narrow->wanted);
    narrow->kept = calloc(count, sizeof *narrow->kept);
    narrow->stored = calloc(count, sizeof *narrow->stored);
    narrow->widened = calloc(count, sizeof *narrow->widened);
    struct findings findings = {.graph = rewrite->from,
                                .uses = rewrite->from_uses,
                                .narrow = narrow,
                                .updates = calloc(count, sizeof *findings.updates),
                                .outside = calloc(count, sizeof *findings.outside)};
    bool done = narrow->wanted && narrow->kept && narrow->stored && narrow->widened &&
                findings.updates && findings.outside;
    if (done) {
        look_at_readers(&findings);
        for (uint32_t i = 0; i < count; i++)
            look_at_operands(&findings, i);
    }
    free(findings.updates);
    free(findings.outside);
    return done;
}

/* ---- copying ---- */

static uint32_t add_cast(struct kiln__rewrite *rewrite, uint32_t input, kiln_type type)
{
    if (input == KILN__NO_NODE)
        return input;
    const struct kiln__node cast = {.kind = KILN__CAST,
                                    .type = type,
                                    .n_inputs = 1,
                                    .input = {input},
                                    .shape = kiln__rewrite_at(rewrite, input)->shape};
    return kiln__rewrite_add(rewrite, &cast);
}

/* Operand `index` of `from`, which became `copy`, as it is stored in the narrow type. */
static uint32_t stored_as(struct kiln__rewrite *rewrite, uint32_t index, uint32_t copy,
                          kiln_type type)
{
    const struct kiln__narrow *narrow = rewrite->narrow;
    return narrow->wanted[index] == type ? narrow->stored[index] : add_cast(rewrite, copy, type);
}

/* The node, which became `copy`, in the narrow type. */
static uint32_t store(struct kiln__rewrite *rewrite, const struct kiln__node *node, uint32_t copy,
                      kiln_type type)
{
    const struct findings findings = {.graph = rewrite->from};
    const struct kiln__node *from = at(&findings, rewrite->current);
    struct kiln__node moved = *from;
    if (from->kind == KILN__CAST && kiln__graph_input(rewrite->to, node, 0)->type == type)
        return node->input[0];
    if (!hands_on(&findings, rewrite->current)) {
        kiln__rewrite_log(rewrite, "stored as %s", kiln_type_name(type));
        return add_cast(rewrite, copy, type);
    }
    moved.type = type;
    for (unsigned k = 0; k < from->n_inputs; k++) {
        moved.input[k] = stored_as(rewrite, from->input[k], rewrite->map[from->input[k]], type);
        if (moved.input[k] == KILN__NO_NODE)
            return KILN__NO_NODE;
    }
    return kiln__rewrite_clone_at(rewrite, copy, &moved);
}

/* What the node reads instead of `copy`, of what its operand `k` became. */
static uint32_t operand(struct kiln__rewrite *rewrite, const struct kiln__node *node, unsigned k,
                        uint32_t copy)
{
    const struct kiln__narrow *narrow = rewrite->narrow;
    const uint32_t index = rewrite->from->nodes.items[rewrite->current].input[k];
    const kiln_type type = kiln__node_narrow(node);
    if (type && k < factors_of(node))
        return narrow->wanted[index] == type
                   ? narrow->widened[index]
                   : add_cast(rewrite, add_cast(rewrite, copy, type), KILN_F32);
    bool computes = kiln__node_is_pointwise(node) || node->kind == KILN__REDUCE;
    return computes && narrow->wanted[index] && !narrow->kept[index] ? narrow->widened[index]
                                                                     : copy;
}

uint32_t kiln__rewrite_narrow(struct kiln__rewrite *rewrite, const struct kiln__node *node)
{
    if (!rewrite->narrow && !find_narrow(rewrite))
        return KILN__NO_NODE;
    struct kiln__narrow *narrow = rewrite->narrow;
    const uint32_t index = rewrite->current;
    const kiln_type type = kiln__node_narrow(node), wanted = (kiln_type)narrow->wanted[index];
    struct kiln__node own = *node;
    for (unsigned k = 0; k < node->n_inputs; k++) {
        own.input[k] = operand(rewrite, node, k, node->input[k]);
        if (own.input[k] == KILN__NO_NODE)
            return KILN__NO_NODE;
    }
    if (type && node->kind == KILN__ATTENTION) {
        own.op = (uint8_t)type;
        own.attention.product = KILN__PRODUCT_EXACT;
    } else if (type) {
        own.op = KILN__PRODUCT_EXACT;
    }
    uint32_t copy = kiln__rewrite_add(rewrite, &own);
    if (copy == KILN__NO_NODE || !wanted)
        return copy;
    narrow->stored[index] = store(rewrite, &own, copy, wanted);
    narrow->widened[index] = add_cast(rewrite, narrow->stored[index], KILN_F32);
    return narrow->widened[index] == KILN__NO_NODE ? KILN__NO_NODE : copy;
}
