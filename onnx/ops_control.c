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

/* Record a graph of at least so many results, while n_kept values are kept; false after a failure.
 */
static bool enter(struct kiln__onnx_call *call, const struct kiln__onnx_graph *graph,
                  size_t n_outputs, size_t n_kept, const struct kiln__onnx_value *kept)
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
    kiln__onnx_record_graph(recorder, graph, n_kept, kept);
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
    if (!graph || !enter(call, graph, call->n_outputs, 0, NULL))
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
    struct kiln__onnx_value *pieces; /* collected: `room` for each */
    size_t room, turns;
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

/* What the body has given behind its first `first` results: the state of the next turn, and a piece
 * of each of the collected ones. */
static bool collect(struct kiln__onnx_call *call, struct loop *loop, size_t first)
{
    for (size_t i = 0; i < loop->carried + loop->collected; i++) {
        struct kiln__onnx_value *value = result_of(call, loop->body, first + i);
        if (!value)
            return false;
        if (i < loop->carried)
            loop->state[i] = *value;
        else
            loop->pieces[(i - loop->carried) * loop->room + loop->turns] = *value;
    }
    return true;
}

/* Record the body, whose inputs stand ready; `first` as above. */
static bool record_turn(struct kiln__onnx_call *call, struct loop *loop, size_t first)
{
    return enter(call, loop->body, first + loop->carried + loop->collected,
                 loop->collected * loop->room, loop->pieces) &&
           collect(call, loop, first);
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
    if (!record_turn(call, loop, 1))
        return false;
    loop->turns++;
    return goes_on(call, result_of(call, body, 0));
}

/* What a loop collected, along a new dimension, from the last turn on if `backwards`. */
static void give_collected(struct kiln__onnx_call *call, struct loop *loop, size_t which,
                           int64_t axis, bool backwards)
{
    struct kiln__onnx_value *pieces = loop->pieces + which * loop->room;
    struct kiln__onnx_value **list = calloc(loop->turns + 1, sizeof *list);
    if (!list)
        kiln__onnx_refuse(call, KILN_OUT_OF_HOST_MEMORY, "no memory");
    else if (!loop->turns)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "it collects nothing in no turns");
    size_t at = 0;
    for (size_t i = 0; i < loop->turns && !kiln__onnx_failed(call); i++) {
        struct kiln__onnx_value *piece = &pieces[backwards ? loop->turns - 1 - i : i];
        size_t dims[KILN_MAX_RANK];
        if (piece->rank >= KILN_MAX_RANK) { /* each turn may have another */
            kiln__onnx_refuse(call, KILN_UNSUPPORTED, "it collects what has too many dimensions");
            break;
        }
        at = kiln__onnx_axis(call, axis, piece->rank + 1);
        memcpy(dims, piece->dims, at * sizeof *dims);
        dims[at] = 1;
        memcpy(dims + at + 1, piece->dims + at, (piece->rank - at) * sizeof *dims);
        *piece = kiln__onnx_reshape(call, piece, piece->rank + 1, dims);
        list[i] = piece;
    }
    if (!kiln__onnx_failed(call)) {
        struct kiln__onnx_value all = kiln__onnx_concat(call, loop->turns, list, at);
        kiln__onnx_give_value(call, loop->carried + which, &all);
    }
    free(list);
}

/* Memory for what so many turns carry and collect; the caller frees it in any case. */
static bool make_room(struct kiln__onnx_call *call, struct loop *loop, size_t turns)
{
    if (loop->collected > MOST_COLLECTED) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "it collects %zu values, and %d are the most",
                          loop->collected, MOST_COLLECTED);
        return false;
    }
    loop->room = turns;
    loop->state = calloc(loop->carried + 1, sizeof *loop->state);
    loop->pieces = calloc(loop->collected * turns + 1, sizeof *loop->pieces);
    if (!loop->state || !loop->pieces)
        kiln__onnx_refuse(call, KILN_OUT_OF_HOST_MEMORY, "no memory");
    return !kiln__onnx_failed(call);
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
        give_collected(call, loop, i, 0, false);
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
    if (make_room(call, &loop, MOST_TURNS))
        run_loop(call, &loop, most > 0 ? (size_t)most : 0, bounded);
    free(loop.state);
    free(loop.pieces);
}

/* ---- scans: a loop over the elements of operands along an axis ---- */

struct scan {
    struct loop loop; /* its body: (carried..., elements...) to (carried..., collected...) */
    size_t scanned;   /* operands that are gone through, behind the carried ones */
    const int64_t *axes, *backwards; /* of those operands, NULL: 0 everywhere */
};

/* A list with an entry for each of n; NULL where the node has none. */
static const int64_t *entries(struct kiln__onnx_call *call, const char *name, size_t n)
{
    size_t count;
    const int64_t *list = kiln__onnx_ints(call, name, &count);
    if (list && count != n)
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "attribute '%s' has %zu entries, not %zu",
                          name, count, n);
    return kiln__onnx_failed(call) ? NULL : list;
}

static size_t scan_axis(struct kiln__onnx_call *call, const struct scan *scan, size_t i)
{
    return kiln__onnx_axis(call, scan->axes ? scan->axes[i] : 0,
                           kiln__onnx_operand(call, scan->loop.carried + i)->rank);
}

/* How many turns there are; refuses operands that do not agree. */
static size_t count_turns(struct kiln__onnx_call *call, const struct scan *scan)
{
    size_t turns = 0;
    for (size_t i = 0; i < scan->scanned; i++) {
        size_t number = scan->loop.carried + i;
        if (!kiln__onnx_need(call, number))
            return 0;
        if (!kiln__onnx_operand(call, number)->rank)
            kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "operand %zu has no dimensions", number);
        if (kiln__onnx_failed(call))
            return 0;
        size_t axis = scan_axis(call, scan, i);
        if (kiln__onnx_failed(call))
            return 0;
        size_t extent = kiln__onnx_operand(call, number)->dims[axis];
        if (i && extent != turns)
            kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "operands of %zu and %zu elements", turns,
                              extent);
        turns = extent;
    }
    if (turns > MOST_TURNS)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "a scan of more than %d turns", MOST_TURNS);
    return turns;
}

/* What operand i gives to this turn: its elements there, without the axis. */
static struct kiln__onnx_value element(struct kiln__onnx_call *call, const struct scan *scan,
                                       size_t i, size_t turns)
{
    struct kiln__onnx_value *from = kiln__onnx_operand(call, scan->loop.carried + i);
    size_t axis = scan_axis(call, scan, i), t = scan->loop.turns;
    int64_t start[KILN_MAX_RANK] = {0}, step[KILN_MAX_RANK];
    size_t count[KILN_MAX_RANK], rest[KILN_MAX_RANK] = {0};
    for (size_t d = 0; d < from->rank; d++) {
        step[d] = 1;
        count[d] = d == axis ? 1 : from->dims[d];
        if (d != axis)
            rest[d - (d > axis)] = from->dims[d];
    }
    start[axis] = (int64_t)(scan->backwards && scan->backwards[i] ? turns - 1 - t : t);
    struct kiln__onnx_value one = kiln__onnx_slice(call, from, start, step, count);
    return one.type ? kiln__onnx_reshape(call, &one, from->rank - 1, rest) : one;
}

static void run_scan(struct kiln__onnx_call *call, struct scan *scan, size_t turns)
{
    struct loop *loop = &scan->loop;
    const int64_t *axes = entries(call, "scan_output_axes", loop->collected);
    const int64_t *backwards = entries(call, "scan_output_directions", loop->collected);
    for (size_t i = 0; i < loop->carried; i++)
        if (kiln__onnx_need(call, i))
            loop->state[i] = *kiln__onnx_operand(call, i);
    for (; loop->turns < turns && !kiln__onnx_failed(call); loop->turns++) {
        struct kiln__onnx_value *values = call->recorder->values;
        for (size_t i = 0; i < loop->carried; i++)
            values[loop->body->inputs[i]] = loop->state[i];
        for (size_t i = 0; i < scan->scanned; i++)
            values[loop->body->inputs[loop->carried + i]] = element(call, scan, i, turns);
        if (!record_turn(call, loop, 0))
            return;
    }
    for (size_t i = 0; i < loop->carried && !kiln__onnx_failed(call); i++)
        kiln__onnx_give_value(call, i, &loop->state[i]);
    for (size_t i = 0; i < loop->collected && !kiln__onnx_failed(call); i++)
        give_collected(call, loop, i, axes ? axes[i] : 0, backwards && backwards[i]);
}

static void scan(struct kiln__onnx_call *call)
{
    struct scan scan = {.loop = {.body = graph_of(call, "body")}};
    int64_t scanned = kiln__onnx_int(call, "num_scan_inputs", 0);
    if (!scan.loop.body)
        return;
    if (scanned < 1 || (size_t)scanned > call->n_inputs ||
        scan.loop.body->n_inputs != call->n_inputs ||
        call->n_outputs < call->n_inputs - (size_t)scanned) {
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT,
                          "its graph has %zu operands and the node %zu results for %zu values",
                          scan.loop.body->n_inputs, call->n_outputs, call->n_inputs);
        return;
    }
    scan.scanned = (size_t)scanned;
    scan.loop.carried = call->n_inputs - scan.scanned;
    scan.loop.collected = call->n_outputs - scan.loop.carried;
    scan.axes = entries(call, "scan_input_axes", scan.scanned);
    scan.backwards = entries(call, "scan_input_directions", scan.scanned);
    if (kiln__onnx_failed(call))
        return;
    size_t turns = count_turns(call, &scan);
    if (!kiln__onnx_failed(call) && make_room(call, &scan.loop, turns))
        run_scan(call, &scan, turns);
    free(scan.loop.state);
    free(scan.loop.pieces);
}

const struct kiln__onnx_row kiln__onnx_control_rows[] = {
    {"If", 1, KILN__ONNX_NEWEST, choose, KILN__ONNX_BIT(0), NULL, NULL},
    {"Loop", 1, KILN__ONNX_NEWEST, loop, KILN__ONNX_BIT(0) | KILN__ONNX_BIT(1), NULL, NULL},
    {"Scan", 9, KILN__ONNX_NEWEST, scan, 0, NULL, NULL},
    {0},
};
