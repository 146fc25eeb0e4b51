/* SPDX-License-Identifier: Apache-2.0 */
/* Recognition of layers spread over several nodes (GELU, attention, weights of 4 bits), so that
 * they are recorded as one. */
#include "onnx/patterns.h"

#include <stdlib.h>
#include <string.h>

#include "onnx/operators.h"
#include "onnx/types.h"

struct finder {
    struct kiln__onnx_graphs *graphs;
    struct kiln__onnx_graph *graph;
    uint32_t *makers; /* of each value: its node's number, or KILN__ONNX_NONE */
    uint32_t *users;  /* of each value: the last node that reads it */
    uint32_t *uses;   /* how often it is read; by inner graphs and as an output it counts twice */
    bool *gone;       /* of each node: it has become a part */
};

/* ---- who reads what ---- */

static void count_inner(struct finder *finder, const struct kiln__onnx_graph *graph)
{
    for (size_t i = 0; i < graph->n_outputs; i++)
        if (graph->outputs[i] != KILN__ONNX_NONE)
            finder->uses[graph->outputs[i]] += 2;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        const struct kiln__onnx_node *node = &graph->nodes[n];
        for (size_t i = 0; i < node->n_inputs; i++)
            if (node->inputs[i] != KILN__ONNX_NONE)
                finder->uses[node->inputs[i]] += 2;
        for (size_t i = 0; i < node->n_graphs; i++)
            if (node->graphs[i])
                count_inner(finder, node->graphs[i]);
    }
}

static void count_uses(struct finder *finder)
{
    const struct kiln__onnx_graph *graph = finder->graph;
    for (size_t i = 0; i < graph->n_outputs; i++)
        finder->uses[graph->outputs[i]] += 2;
    for (uint32_t n = 0; n < graph->n_nodes; n++) {
        const struct kiln__onnx_node *node = &graph->nodes[n];
        for (size_t i = 0; i < node->n_outputs; i++)
            finder->makers[node->outputs[i]] = n;
        for (size_t i = 0; node->live && i < node->n_inputs; i++)
            if (node->inputs[i] != KILN__ONNX_NONE) {
                finder->uses[node->inputs[i]]++;
                finder->users[node->inputs[i]] = n;
            }
        for (size_t i = 0; node->live && i < node->n_graphs; i++)
            if (node->graphs[i])
                count_inner(finder, node->graphs[i]);
    }
}

static bool is(const struct kiln__onnx_node *node, const char *name)
{
    return node && node->row && !node->row->domain && !strcmp(node->row->name, name);
}

/* The node that makes a value and nothing else, of which nobody else knows; NULL if there is none.
 */
static struct kiln__onnx_node *maker(const struct finder *finder, uint32_t value)
{
    if (value == KILN__ONNX_NONE || finder->makers[value] == KILN__ONNX_NONE ||
        finder->uses[value] != 1)
        return NULL;
    struct kiln__onnx_node *node = &finder->graph->nodes[finder->makers[value]];
    return node->n_outputs == 1 && !finder->gone[finder->makers[value]] ? node : NULL;
}

/* ---- attention ---- */

/* The way from the softmax back to the product: nodes, what each does, with which operands. */
struct way {
    size_t n;
    struct kiln__onnx_node *nodes[KILN__ONNX_MOST_PARTS];
    enum kiln__onnx_step steps[KILN__ONNX_MOST_PARTS];
    uint32_t operands[KILN__ONNX_MOST_PARTS][2];
    struct kiln__onnx_node *product;
};

enum { MOST_STEPS = 4 };

static bool walk_back(const struct finder *finder, uint32_t value, struct way *way);

/* One step more, whose scores are operand `at` of the node. */
static bool step_back(const struct finder *finder, struct kiln__onnx_node *node, size_t at,
                      enum kiln__onnx_step step, uint32_t first, uint32_t second, struct way *way)
{
    if (way->n == MOST_STEPS || at >= node->n_inputs)
        return false;
    size_t n = way->n++;
    way->nodes[n] = node;
    way->steps[n] = step;
    way->operands[n][0] = first;
    way->operands[n][1] = second;
    if (walk_back(finder, node->inputs[at], way))
        return true;
    way->n = n;
    return false;
}

static bool walk_back(const struct finder *finder, uint32_t value, struct way *way)
{
    struct kiln__onnx_node *node = maker(finder, value);
    bool two = node && node->n_inputs == 2, three = node && node->n_inputs == 3;
    const uint32_t *in = node ? node->inputs : NULL;
    if (two && is(node, "MatMul")) {
        way->product = node;
        return true;
    }
    if (two && is(node, "Add"))
        return step_back(finder, node, 0, KILN__ONNX_PLUS, in[1], 0, way) ||
               step_back(finder, node, 1, KILN__ONNX_PLUS, in[0], 0, way);
    if (two && is(node, "Mul"))
        return step_back(finder, node, 0, KILN__ONNX_TIMES, in[1], 0, way) ||
               step_back(finder, node, 1, KILN__ONNX_TIMES, in[0], 0, way);
    if (two && is(node, "Div"))
        return step_back(finder, node, 0, KILN__ONNX_DIVIDED, in[1], 0, way);
    if (three && is(node, "Where"))
        return step_back(finder, node, 1, KILN__ONNX_WHERE, in[0], in[2], way) ||
               step_back(finder, node, 2, KILN__ONNX_WHERE_NOT, in[0], in[1], way);
    return false;
}

/* Put the parts, first to last, under one node in the last one's place. */
static kiln_status join(struct finder *finder, const struct kiln__onnx_row *row, size_t n_parts,
                        struct kiln__onnx_node **parts, size_t n_inputs, const uint32_t *inputs,
                        const void *steps)
{
    struct kiln__onnx_node *last = parts[n_parts - 1];
    struct kiln__onnx_node *kept = kiln__onnx_graphs_alloc(finder->graphs, n_parts, sizeof *kept);
    uint32_t *operands = kiln__onnx_graphs_alloc(finder->graphs, n_inputs, sizeof *operands);
    if (!kept || !operands)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    memcpy(operands, inputs, n_inputs * sizeof *inputs);
    for (size_t i = 0; i < n_parts; i++) {
        kept[i] = *parts[i];
        if (i + 1 < n_parts) {
            finder->gone[parts[i] - finder->graph->nodes] = true;
            parts[i]->live = false;
        }
    }
    last->row = row;
    last->n_inputs = n_inputs;
    last->inputs = operands;
    last->n_parts = n_parts;
    last->parts = kept;
    last->steps = steps;
    return KILN_OK;
}

/* where(isnan(weights), zero, weights), which reads the weights alone; NULL if it is something
 * else. */
static struct kiln__onnx_node *find_or_zero(const struct finder *finder, uint32_t weights)
{
    if (finder->uses[weights] != 2)
        return NULL;
    struct kiln__onnx_node *node = &finder->graph->nodes[finder->users[weights]];
    if (!is(node, "Where") || node->n_inputs != 3 || node->inputs[2] != weights || node->n_parts ||
        node->n_outputs != 1)
        return NULL;
    const struct kiln__onnx_node *asks = maker(finder, node->inputs[0]);
    return is(asks, "IsNaN") && asks->n_inputs == 1 && asks->inputs[0] == weights ? node : NULL;
}

/* Whether the file has a single number for it. */
static bool is_number(const struct finder *finder, uint32_t value)
{
    for (size_t i = 0; i < finder->graphs->n_constants; i++) {
        const struct kiln__onnx_constant *constant = &finder->graphs->constants[i];
        if (constant->value != value)
            continue;
        for (size_t d = 0; d < constant->proto->n_dims; d++)
            if (constant->proto->dims[d] != 1)
                return false;
        return true;
    }
    return false;
}

/* The node that only multiplies an operand of the scores' product with a number, as PyTorch shares
 * the factor out between both; NULL if there is none. */
static struct kiln__onnx_node *find_factor(const struct finder *finder, uint32_t operand,
                                           size_t *number)
{
    struct kiln__onnx_node *node = maker(finder, operand);
    if (!is(node, "Mul") || node->n_inputs != 2 || node->n_parts)
        return NULL;
    *number = is_number(finder, node->inputs[0]) ? 0 : 1;
    return is_number(finder, node->inputs[*number]) ? node : NULL;
}

/* softmax(steps of q k) v: `softmax` is the number of its node. */
static kiln_status find_attention(struct finder *finder, uint32_t softmax)
{
    struct kiln__onnx_node *node = &finder->graph->nodes[softmax], *last;
    struct way way = {0};
    uint32_t weights = node->outputs[0];
    struct kiln__onnx_node *or_zero = find_or_zero(finder, weights);
    weights = or_zero ? or_zero->outputs[0] : weights;
    if (finder->uses[weights] != 1 || !walk_back(finder, node->inputs[0], &way))
        return KILN_OK;
    last = &finder->graph->nodes[finder->users[weights]];
    if (!is(last, "MatMul") || last->n_inputs != 2 || last->inputs[0] != weights ||
        last->n_outputs != 1 || last->n_parts)
        return KILN_OK;
    struct kiln__onnx_node *parts[KILN__ONNX_MOST_PARTS];
    uint32_t inputs[2 * KILN__ONNX_MOST_PARTS];
    size_t n = 0, k = 0;
    struct kiln__onnx_attention *steps = kiln__onnx_graphs_alloc(finder->graphs, 1, sizeof *steps);
    if (!steps)
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    inputs[k++] = way.product->inputs[0];
    inputs[k++] = way.product->inputs[1];
    inputs[k++] = last->inputs[1];
    for (size_t i = 0, number; i < 2; i++) {
        struct kiln__onnx_node *factor = find_factor(finder, way.product->inputs[i], &number);
        if (!factor)
            continue;
        parts[n++] = factor;
        steps->steps[steps->n++] = KILN__ONNX_TIMES;
        inputs[i] = factor->inputs[1 - number];
        inputs[k++] = factor->inputs[number];
    }
    parts[n++] = way.product;
    for (size_t i = way.n; i-- > 0;) {
        parts[n++] = way.nodes[i];
        steps->steps[steps->n++] = way.steps[i];
        inputs[k++] = way.operands[i][0];
        if (way.steps[i] == KILN__ONNX_WHERE || way.steps[i] == KILN__ONNX_WHERE_NOT)
            inputs[k++] = way.operands[i][1];
    }
    steps->softmax = n;
    parts[n++] = node;
    if (or_zero) {
        parts[n++] = &finder->graph->nodes[finder->makers[or_zero->inputs[0]]];
        parts[n++] = or_zero;
        steps->steps[steps->n++] = KILN__ONNX_OR_ZERO;
        inputs[k++] = or_zero->inputs[1];
    }
    parts[n++] = last;
    return join(finder, &kiln__onnx_attention_row, n, parts, k, inputs, steps);
}

/* ---- gelu ---- */

/* The other operand of a node of two, where one is `value`. */
static uint32_t other(const struct kiln__onnx_node *node, uint32_t value)
{
    return node->inputs[0] == value ? node->inputs[1] : node->inputs[0];
}

/* The only reader of a value, of two operands and this name. */
static struct kiln__onnx_node *reader(const struct finder *finder, uint32_t value, const char *name)
{
    if (finder->uses[value] != 1)
        return NULL;
    struct kiln__onnx_node *node = &finder->graph->nodes[finder->users[value]];
    return is(node, name) && node->n_inputs == 2 && node->n_outputs == 1 && !node->n_parts ? node
                                                                                           : NULL;
}

/* x / sqrt(2), erf, + 1, then times x and one half in any order: `erf` is the number of its node.
 * The operands are x, and the numbers for sqrt(2), 1 and one half. */
static kiln_status find_gelu(struct finder *finder, uint32_t erf)
{
    struct kiln__onnx_node *node = &finder->graph->nodes[erf];
    struct kiln__onnx_node *scale = maker(finder, node->inputs[0]);
    struct kiln__onnx_node *plus = reader(finder, node->outputs[0], "Add");
    if (!plus || !scale || !is(scale, "Div") || scale->n_inputs != 2)
        return KILN_OK;
    uint32_t x = scale->inputs[0], half;
    struct kiln__onnx_node *first = reader(finder, plus->outputs[0], "Mul"), *last = NULL;
    if (!first)
        return KILN_OK;
    uint32_t factor = other(first, plus->outputs[0]);
    struct kiln__onnx_node *halved = maker(finder, factor);
    struct kiln__onnx_node *parts[KILN__ONNX_MOST_PARTS] = {scale, node, plus};
    size_t n = 3;
    if (factor == x) { /* (1 + erf) x 1/2 */
        last = reader(finder, first->outputs[0], "Mul");
        half = last ? other(last, first->outputs[0]) : KILN__ONNX_NONE;
        parts[n++] = first;
    } else if (halved && is(halved, "Mul") && halved->n_inputs == 2 &&
               (halved->inputs[0] == x || halved->inputs[1] == x)) { /* (1 + erf) (x 1/2) */
        half = other(halved, x);
        last = first;
        parts[n++] = halved;
    } else { /* (1 + erf) 1/2 x */
        half = factor;
        last = reader(finder, first->outputs[0], "Mul");
        last = last && other(last, first->outputs[0]) == x ? last : NULL;
        parts[n++] = first;
    }
    if (!last)
        return KILN_OK;
    parts[n++] = last;
    uint32_t inputs[] = {x, scale->inputs[1], other(plus, node->outputs[0]), half};
    return join(finder, &kiln__onnx_gelu_row, n, parts, 4, inputs, NULL);
}

/* ---- weights of 4 bits ---- */

static const struct kiln__onnx_constant *constant_of(const struct finder *finder, uint32_t value)
{
    for (size_t i = 0; i < finder->graphs->n_constants; i++)
        if (finder->graphs->constants[i].value == value)
            return &finder->graphs->constants[i];
    return NULL;
}

/* DequantizeLinear of a matrix of int4 or uint4, perhaps transposed, that a MatMul alone reads:
 * operands are x, the matrix, its scales and zero points. */
static kiln_status find_linear(struct finder *finder, uint32_t matmul)
{
    struct kiln__onnx_node *last = &finder->graph->nodes[matmul], *parts[3];
    struct kiln__onnx_node *turn = maker(finder, last->inputs[1]), *wide = turn;
    size_t n = 0;
    if (is(turn, "Transpose") && turn->n_inputs == 1)
        wide = maker(finder, turn->inputs[0]);
    if (!is(wide, "DequantizeLinear") || wide->n_inputs < 2 || wide->n_inputs > 3)
        return KILN_OK;
    const struct kiln__onnx_constant *w = constant_of(finder, wide->inputs[0]);
    const int type = w ? (int)w->proto->data_type : 0;
    if ((type != KILN__ONNX_INT4 && type != KILN__ONNX_UINT4) || w->proto->n_dims != 2)
        return KILN_OK;
    parts[n++] = wide;
    if (turn != wide)
        parts[n++] = turn;
    parts[n++] = last;
    const uint32_t inputs[] = {last->inputs[0], wide->inputs[0], wide->inputs[1],
                               wide->n_inputs == 3 ? wide->inputs[2] : KILN__ONNX_NONE};
    return join(finder, &kiln__onnx_linear_row, n, parts, 4, inputs, NULL);
}

kiln_status kiln__onnx_find_patterns(struct kiln__onnx_graphs *graphs)
{
    size_t n = graphs->n_values, nodes = graphs->main->n_nodes;
    struct finder finder = {.graphs = graphs, .graph = graphs->main};
    finder.makers = malloc((n + 1) * sizeof *finder.makers);
    finder.users = calloc(n + 1, sizeof *finder.users);
    finder.uses = calloc(n + 1, sizeof *finder.uses);
    finder.gone = calloc(nodes + 1, sizeof *finder.gone);
    kiln_status status = KILN_OK;
    if (!finder.makers || !finder.users || !finder.uses || !finder.gone)
        status = kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    else {
        memset(finder.makers, 0xff, n * sizeof *finder.makers);
        count_uses(&finder);
    }
    for (uint32_t i = 0; i < nodes && !status; i++) {
        const struct kiln__onnx_node *node = &graphs->main->nodes[i];
        if (!node->live || node->n_parts || node->n_outputs != 1)
            continue;
        if (is(node, "Softmax") && node->n_inputs == 1)
            status = find_attention(&finder, i);
        else if (is(node, "Erf") && node->n_inputs == 1)
            status = find_gelu(&finder, i);
        else if (is(node, "MatMul") && node->n_inputs == 2)
            status = find_linear(&finder, i);
    }
    free(finder.makers);
    free(finder.users);
    free(finder.uses);
    free(finder.gone);
    return status;
}
