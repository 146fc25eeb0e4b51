/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs inside nodes, where what decides about them is known: one branch is recorded, and a loop
 * as often as it runs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/record.h"
#include "onnx/values.h"

enum {
    BOOLEAN = ONNX__TENSOR_PROTO__DATA_TYPE__BOOL,
    INT64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64
};

/* Graphs in graphs while they are recorded, and how often a loop may run. */
enum { DEEPEST = 32, MOST_TURNS = 4096, MOST_COLLECTED = 256 };

static const struct kiln__onnx_graph *graph_of(struct kiln__onnx_call *call, const char *name)
{
    const Onnx__NodeProto *proto = call->node->proto;
    for (size_t i = 0; i < call->node->n_graphs; i++)
        if (call->node->graphs[i] && proto->attribute[i]->name &&
            !strcmp(proto->attribute[i]->name, name))
            return call->node->graphs[i];
    kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "attribute '%s' is no graph", name);
    return NULL;
}

/* Record a graph of at least so many results; false after a failure. */
static bool enter(struct kiln__onnx_call *call, const struct kiln__onnx_graph *graph,
                  size_t n_outputs)
{
    struct kiln__onnx_recorder *recorder = call->recorder;
    if (graph->n_outputs < n_outputs)
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "a graph of %zu results, and %zu are wanted",
                          graph->n_outputs, n_outputs);
    else if (recorder->depth == DEEPEST)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "graphs in graphs more than %d deep", DEEPEST);
    if (kiln__onnx_failed(call))
        return false;
    recorder->depth++;
    kiln__onnx_record_graph(recorder, graph);
    recorder->depth--;
    return !kiln__onnx_failed(call);
}

static struct kiln__onnx_value *result_of(struct kiln__onnx_call *call,
                                          const struct kiln__onnx_graph *graph, size_t i)
{
    struct kiln__onnx_value *value = &call->recorder->values[graph->outputs[i]];
    if (value->type)
        return value;
    kiln__onnx_refuse(call, KILN_UNSUPPORTED, "result %zu of its graph is not computed", i);
    return NULL;
}

static void choose(struct kiln__onnx_call *call)
{
    double condition;
    if (!kiln__onnx_need(call, 0))
        return;
    if (!kiln__onnx_scalar(call, 0, &condition)) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                          "its condition is not known when the model is recorded");
        return;
    }
    const struct kiln__onnx_graph *graph =
        graph_of(call, condition != 0 ? "then_branch" : "else_branch");
    if (!graph || !enter(call, graph, call->n_outputs))
        return;
    for (size_t i = 0; i < call->n_outputs; i++) {
        struct kiln__onnx_value *value = result_of(call, graph, i);
        if (value)
            kiln__onnx_give_value(call, i, value);
    }
}

/* ---- loops ---- */

struct loop {
    const struct kiln__onnx_graph *body; /* (turn, condition, carried...) to (condition, carried...,
                                            collected...) */
    size_t carried, collected;
    struct kiln__onnx_value *state;  /* the carried ones */
    struct kiln__onnx_value *pieces; /* collected: MOST_TURNS for each */
    size_t turns;
};

static struct kiln__onnx_value scalar(struct kiln__onnx_call *call, int type, int64_t number)
{
    struct kiln__onnx_host *host = kiln__onnx_new_host(call, type, 0, NULL);
    struct kiln__onnx_value value = {.type = host ? type : 0, .host = host};
    if (host)
        host->cells[0].i = number;
    return value;
}

/* Whether a value says that the loop goes on; refuses one that is not known. */
static bool goes_on(struct kiln__onnx_call *call, const struct kiln__onnx_value *condition)
{
    if (condition && condition->host && condition->host->count == 1)
        return condition->host->cells[0].i != 0;
    kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                      "its condition is not known when the model is recorded");
    return false;
}

/* One turn; false if it is the last. */
static bool turn(struct kiln__onnx_call *call, struct loop *loop)
{
    const struct kiln__onnx_graph *body = loop->body;
    struct kiln__onnx_value *values = call->recorder->values;
    values[body->inputs[0]] = scalar(call, INT64, (int64_t)loop->turns);
    values[body->inputs[1]] = scalar(call, BOOLEAN, 1);
    for (size_t i = 0; i < loop->carried; i++)
        values[body->inputs[2 + i]] = loop->state[i];
    if (!enter(call, body, 1 + loop->carried + loop->collected))
        return false;
    for (size_t i = 0; i < loop->carried + loop->collected; i++) {
        struct kiln__onnx_value *value = result_of(call, body, 1 + i);
        if (!value)
            return false;
        if (i < loop->carried)
            loop->state[i] = *value;
        else
            loop->pieces[(i - loop->carried) * MOST_TURNS + loop->turns] = *value;
    }
    loop->turns++;
    return goes_on(call, result_of(call, body, 0));
}

/* What a loop collected, along a new first dimension. */
static void give_collected(struct kiln__onnx_call *call, struct loop *loop, size_t which)
{
    struct kiln__onnx_value *pieces = loop->pieces + which * MOST_TURNS;
    struct kiln__onnx_value **list = calloc(loop->turns + 1, sizeof *list);
    if (!list)
        kiln__onnx_refuse(call, KILN_OUT_OF_HOST_MEMORY, "no memory");
    else if (!loop->turns)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "it collects nothing in no turns");
    for (size_t i = 0; i < loop->turns && !kiln__onnx_failed(call); i++) {
        size_t dims[KILN_MAX_RANK] = {1};
        if (pieces[i].rank >= KILN_MAX_RANK) { /* each turn may have another */
            kiln__onnx_refuse(call, KILN_UNSUPPORTED, "it collects what has too many dimensions");
            break;
        }
        memcpy(dims + 1, pieces[i].dims, pieces[i].rank * sizeof *dims);
        pieces[i] = kiln__onnx_reshape(call, &pieces[i], pieces[i].rank + 1, dims);
        list[i] = &pieces[i];
    }
    if (!kiln__onnx_failed(call)) {
        struct kiln__onnx_value all = kiln__onnx_concat(call, loop->turns, list, 0);
        kiln__onnx_give_value(call, loop->carried + which, &all);
    }
    free(list);
}

static void run_loop(struct kiln__onnx_call *call, struct loop *loop, size_t most, bool bounded)
{
    bool on = !kiln__onnx_operand(call, 1) || goes_on(call, kiln__onnx_operand(call, 1));
    for (size_t i = 0; i < loop->carried; i++)
        if (kiln__onnx_need(call, 2 + i))
            loop->state[i] = *kiln__onnx_operand(call, 2 + i);
    while (on && !kiln__onnx_failed(call) && (!bounded || loop->turns < most)) {
        if (loop->turns == MOST_TURNS) {
            kiln__onnx_refuse(call, KILN_UNSUPPORTED, "a loop of more than %d turns", MOST_TURNS);
            return;
        }
        on = turn(call, loop);
    }
    for (size_t i = 0; i < loop->carried && i < call->n_outputs; i++)
        kiln__onnx_give_value(call, i, &loop->state[i]);
    for (size_t i = 0; i < loop->collected && !kiln__onnx_failed(call); i++)
        give_collected(call, loop, i);
}

static void loop(struct kiln__onnx_call *call)
{
    double most = 0;
    struct loop loop = {.body = graph_of(call, "body")};
    bool bounded = kiln__onnx_operand(call, 0) != NULL;
    if (!loop.body)
        return;
    loop.carried = call->node->n_inputs > 2 ? call->node->n_inputs - 2 : 0;
    if (loop.body->n_inputs != 2 + loop.carried || call->n_outputs < loop.carried) {
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT,
                          "its graph has %zu operands and the node %zu results for %zu values",
                          loop.body->n_inputs, call->n_outputs, loop.carried);
        return;
    }
    if (bounded && !kiln__onnx_scalar(call, 0, &most)) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                          "its number of turns is not known when the model is recorded");
        return;
    }
    loop.collected = call->n_outputs - loop.carried;
    if (loop.collected > MOST_COLLECTED) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "it collects %zu values, and %d are the most",
                          loop.collected, MOST_COLLECTED);
        return;
    }
    loop.state = calloc(loop.carried + 1, sizeof *loop.state);
    loop.pieces = calloc(loop.collected * MOST_TURNS + 1, sizeof *loop.pieces);
    if (!loop.state || !loop.pieces)
        kiln__onnx_refuse(call, KILN_OUT_OF_HOST_MEMORY, "no memory");
    else
        run_loop(call, &loop, most > 0 ? (size_t)most : 0, bounded);
    free(loop.state);
    free(loop.pieces);
}

const struct kiln__onnx_row kiln__onnx_control_rows[] = {
    {"If", 1, KILN__ONNX_NEWEST, choose, KILN__ONNX_BIT(0), NULL, NULL},
    {"Loop", 1, KILN__ONNX_NEWEST, loop, KILN__ONNX_BIT(0) | KILN__ONNX_BIT(1), NULL, NULL},
    {0},
};
