/* SPDX-License-Identifier: Apache-2.0 */
/* Reverse-mode differentiation: the table of adjoints by node kind, and accumulation of the
 * contributions to each node. */
#include "grad/gradient.h"

#include <kiln/elementwise.h>
#include <kiln/gradient.h>
#include <kiln/movement.h>
#include <kiln/reductions.h>

#include <stdio.h>
#include <stdlib.h>

#include "record/call.h"
#include "record/replayed.h"

static kiln__adjoint *const adjoints[] = {
    [KILN__ELEMENTWISE] = kiln__adjoint_elementwise,
    [KILN__CAST] = kiln__adjoint_cast,
    [KILN__REDUCE] = kiln__adjoint_reduce,
    [KILN__VIEW] = kiln__adjoint_view,
    [KILN__RESHAPE] = kiln__adjoint_reshape,
    [KILN__MATMUL] = kiln__adjoint_matmul,
    [KILN__SCAN] = kiln__adjoint_scan,
    [KILN__INSERT_SLICE] = kiln__adjoint_insert_slice,
    [KILN__ATTENTION] = kiln__adjoint_attention,
    [KILN__GATHER] = kiln__adjoint_gather,
    [KILN__SCATTER] = kiln__adjoint_scatter,
    [KILN__ATTENTION_BACKWARD] = kiln__adjoint_attention_backward,
    [KILN__CUSTOM] = kiln__adjoint_custom,
};

/* NULL where there is none. */
static kiln__adjoint *adjoint_of(const struct kiln__node *node)
{
    if (node->kind == KILN__CUSTOM && !node->custom.call->call.gradient && !node->custom.call->loop)
        return NULL;
    return node->kind < sizeof adjoints / sizeof *adjoints ? adjoints[node->kind] : NULL;
}

/* ---- what adjoints use ---- */

bool kiln__gradient_wants(const struct kiln__gradient *walk, uint32_t to)
{
    return walk->flows[to].wanted;
}

bool kiln__gradient_asked(const struct kiln__gradient *walk, uint32_t node)
{
    return walk->flows[node].asked;
}

kiln_tensor kiln__gradient_operand(const struct kiln__gradient *walk, const struct kiln__node *node,
                                   unsigned k)
{
    return kiln__batch_tensor(walk->batch, node->input[k]);
}

struct kiln__shape kiln__gradient_shape(const struct kiln__gradient *walk, kiln_tensor tensor)
{
    return tensor.id ? kiln__gradient_at(walk, kiln__tensor_index(tensor))->shape
                     : (struct kiln__shape){0};
}

/* The sum over what broadcasting `to` to the shape of `part` repeated. */
static kiln_tensor sum_to(kiln_batch *batch, kiln_tensor part, const struct kiln__shape *from,
                          const struct kiln__shape *to)
{
    int axes[KILN_MAX_RANK];
    size_t count = 0;
    uint32_t shift = from->rank - to->rank;
    for (uint32_t d = 0; d < from->rank; d++)
        if (d < shift || (to->dims[d - shift] == 1 && from->dims[d] != 1))
            axes[count++] = (int)d;
    kiln_tensor sum = count ? kiln_sum(batch, part, count, axes, 0) : part;
    return kiln_reshape(batch, sum, to->rank, to->dims);
}

static kiln_tensor gradient_fit(struct kiln__gradient *walk, kiln_tensor part,
                                const struct kiln__shape *to)
{
    struct kiln__shape from = kiln__gradient_shape(walk, part), both;
    if (kiln__shape_equal(&from, to))
        return part;
    if (kiln__shape_broadcast(&from, to, &both) && kiln__shape_equal(&both, to))
        return kiln_broadcast(walk->batch, part, to->rank, to->dims);
    return sum_to(walk->batch, part, &from, to);
}

void kiln__gradient_accumulate_where(struct kiln__gradient *walk, uint32_t to, kiln_tensor part,
                                     kiln_tensor chosen)
{
    kiln_tensor *sum = &walk->flows[to].gradient, *mask = &walk->flows[to].chosen;
    struct kiln__shape shape = kiln__gradient_at(walk, to)->shape; /* recording moves nodes */
    struct kiln__shape from = kiln__gradient_shape(walk, part);
    if (!part.id || !walk->flows[to].wanted)
        return;
    if (!kiln__shape_equal(&from, &shape) || (sum->id && mask->id != chosen.id))
        chosen = (kiln_tensor){0};
    *mask = chosen;
    part = gradient_fit(walk, part, &shape);
    *sum = sum->id ? kiln_add(walk->batch, *sum, part) : part;
}

void kiln__gradient_accumulate(struct kiln__gradient *walk, uint32_t to, kiln_tensor part)
{
    kiln__gradient_accumulate_where(walk, to, part, (kiln_tensor){0});
}

/* ---- the walk ---- */

static bool carries_gradient(const struct kiln__node *node)
{
    return kiln__node_is_floating(node) && !(node->kind == KILN__CAST && node->op == KILN__DETACH);
}

/* Inputs are marked; what is computed from them in f32 is wanted too. */
static void mark_wanted(struct kiln__gradient *walk)
{
    for (uint32_t i = 0; i < walk->count; i++) {
        const struct kiln__node *node = kiln__gradient_at(walk, i);
        for (unsigned k = 0; k < node->n_inputs && carries_gradient(node); k++)
            walk->flows[i].wanted |= walk->flows[node->input[k]].wanted;
    }
}

/* From the last node back: when a node's turn comes, all its users have given. */
static void walk_back(struct kiln__gradient *walk)
{
    kiln_batch *batch = walk->batch;
    const uint32_t scope = batch->labels.scope;
    for (uint32_t i = (uint32_t)walk->count; i-- > 0 && !batch->error.status;) {
        struct kiln__node node = *kiln__gradient_at(walk, i);
        bool computed = false;
        for (unsigned k = 0; k < node.n_inputs; k++)
            computed |= walk->flows[node.input[k]].wanted;
        if (!computed || !carries_gradient(&node) || !walk->flows[i].gradient.id)
            continue;
        kiln__call_for(batch, "gradient of", i, scope);
        kiln__adjoint *adjoint = adjoint_of(&node);
        if (adjoint)
            adjoint(walk, &node, kiln__batch_tensor(batch, i), walk->flows[i].gradient);
        else
            kiln__fail(&batch->error, KILN_UNSUPPORTED,
                       "%s: the loss depends on an input through %s, which has no derivative",
                       walk->call, kiln__node_name(&node));
    }
    batch->labels.scope = scope;
}

static kiln_tensor filled(kiln_batch *batch, const struct kiln__shape *shape, double value)
{
    return kiln_fill(batch, KILN_F32, shape->rank, shape->dims, value);
}

/* The loss grows by 1 with itself. */
static void run_walk(struct kiln__gradient *walk, kiln_tensor loss, kiln_tensor *out)
{
    for (size_t i = 0; i < walk->n_inputs; i++)
        walk->flows[kiln__tensor_index(walk->inputs[i])].wanted =
            walk->flows[kiln__tensor_index(walk->inputs[i])].asked = true;
    mark_wanted(walk);
    struct kiln__shape shape = kiln__gradient_shape(walk, loss);
    kiln__gradient_accumulate(walk, kiln__tensor_index(loss), filled(walk->batch, &shape, 1));
    walk_back(walk);
    for (size_t i = 0; i < walk->n_inputs; i++) {
        shape = kiln__gradient_shape(walk, walk->inputs[i]);
        kiln_tensor found = walk->flows[kiln__tensor_index(walk->inputs[i])].gradient;
        out[i] = found.id ? found : filled(walk->batch, &shape, 0);
    }
}

/* ---- the calls ---- */

kiln_tensor kiln_detach(kiln_batch *batch, kiln_tensor x)
{
    KILN__CALL(batch);
    const struct kiln__node *input = kiln__batch_node(batch, x, __func__, "x");
    if (!input)
        return (kiln_tensor){0};
    struct kiln__node node = {.kind = KILN__CAST, .op = KILN__DETACH, .n_inputs = 1};
    node.type = input->type;
    node.shape = input->shape;
    node.input[0] = kiln__tensor_index(x);
    return kiln__batch_record(batch, &node, __func__);
}

static bool check_loss(kiln_batch *batch, const char *call, kiln_tensor loss)
{
    const struct kiln__node *node = kiln__batch_node(batch, loss, call, "loss");
    if (!node)
        return false;
    if (!kiln__node_is_floating(node))
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                   "%s: loss is %s, and only floating types have a gradient", call,
                   kiln_type_name(node->type));
    else if (kiln__node_count(node) != 1)
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: loss has shape %s, and a gradient is one of a single element; sum it", call,
                   kiln__shape_text(&node->shape).text);
    return !batch->error.status;
}

static bool check_inputs(kiln_batch *batch, const char *call, const kiln_tensor *inputs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "inputs[%zu]", i);
        const struct kiln__node *node = kiln__batch_node(batch, inputs[i], call, name);
        if (!node)
            return false;
        if (!kiln__node_is_floating(node)) {
            kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                       "%s: %s is %s, and only floating types have a gradient", call, name,
                       kiln_type_name(node->type));
            return false;
        }
        if (kiln__node_has_blocks(node)) {
            kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                       "%s: %s is %s, and blocks have no gradient", call, name,
                       kiln_type_name(node->type));
            return false;
        }
    }
    return true;
}

static bool check_arguments(kiln_batch *batch, const char *call, kiln_tensor loss,
                            const kiln_tensor *inputs, size_t n, const kiln_tensor *out)
{
    if (!check_loss(batch, call, loss))
        return false;
    if (n && (!inputs || !out)) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                   inputs ? "out" : "inputs");
        return false;
    }
    return check_inputs(batch, call, inputs, n);
}

static void mean(const kiln_batch *batch, const kiln_tensor *inputs, size_t n, kiln_tensor *meant)
{
    for (size_t i = 0; meant && i < n; i++)
        meant[i] = kiln__batch_resolve(batch, inputs[i]);
}

kiln_status kiln_grad(kiln_batch *batch, kiln_tensor loss, const kiln_tensor *inputs, size_t n,
                      kiln_tensor *out)
{
    KILN__CALL(batch);
    if (check_arguments(batch, __func__, loss, inputs, n, out)) {
        kiln__call_unnamed(batch);
        kiln_tensor *meant = calloc(n + 1, sizeof *meant);
        mean(batch, inputs, n, meant);
        if (meant)
            loss = kiln__loops_unroll(batch, __func__, kiln__batch_resolve(batch, loss), meant, n);
        mean(batch, inputs, n, meant); /* results of such loops among them */
        struct kiln__gradient walk = {.batch = batch,
                                      .call = __func__,
                                      .inputs = meant,
                                      .n_inputs = n,
                                      .count = batch->graph.nodes.count};
        walk.flows = meant ? calloc(walk.count, sizeof *walk.flows) : NULL;
        if (walk.flows && !batch->error.status)
            run_walk(&walk, loss, out);
        else
            kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", __func__);
        free(walk.flows);
        free(meant);
    }
    kiln_status status = batch ? batch->error.status : KILN_INVALID_ARGUMENT;
    for (size_t i = 0; status && out && i < n; i++)
        out[i] = (kiln_tensor){0};
    return status;
}
