/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs inside nodes: one branch is recorded, where what decides about it is known, and a loop
 * once (once.h) or as often as it runs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/once.h"
#include "onnx/record.h"
#include "onnx/values.h"

enum {
    BOOLEAN = ONNX__TENSOR_PROTO__DATA_TYPE__BOOL,
    INT64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64
};

enum { DEEPEST = KILN__ONNX_DEEPEST, MOST_TURNS = KILN__ONNX_MOST_TURNS, MOST_COLLECTED = 256 };

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

/* Record a graph of at least so many results, while n_held values are kept; false after a failure.
 */
static bool enter(struct kiln__onnx_call *call, const struct kiln__onnx_graph *graph,
                  size_t n_outputs, size_t n_held, const struct kiln__onnx_value *kept)
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
    kiln__onnx_record_graph(recorder, graph, n_held, kept);
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
    size_t room, turns, kept;        /* of each; and of all pieces, with what is behind them */
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
    return enter(call, loop->body, first + loop->carried + loop->collected, loop->kept,
                 loop->pieces) &&
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

/* Memory for what so many turns carry and collect, and more behind that; the caller frees it in any
 * case. */
static bool make_room(struct kiln__onnx_call *call, struct loop *loop, size_t turns, size_t more)
{
    if (loop->collected > MOST_COLLECTED) {
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "it collects %zu values, and %d are the most",
                          loop->collected, MOST_COLLECTED);
        return false;
    }
    loop->room = turns;
    loop->state = calloc(loop->carried + 1, sizeof *loop->state);
    loop->kept = loop->collected * turns + more;
    loop->pieces = calloc(loop->kept + 1, sizeof *loop->pieces);
    if (!loop->state || !loop->pieces)
        kiln__onnx_refuse(call, KILN_OUT_OF_HOST_MEMORY, "no memory");
    return !kiln__onnx_failed(call);
}

static void unroll_loop(struct kiln__onnx_call *call, struct loop *loop, size_t most, bool bounded,
                        bool on)
{
    while (on && !kiln__onnx_failed(call) && (!bounded || loop->turns < most)) {
        if (loop->turns == MOST_TURNS) {
            kiln__onnx_refuse(call, KILN_UNSUPPORTED, "a loop of more than %d turns", MOST_TURNS);
            return;
        }
        on = turn(call, loop);
    }
    for (size_t i = 0; i < loop->carried; i++)
        kiln__onnx_give_value(call, i, &loop->state[i]);
    for (size_t i = 0; i < loop->collected && !kiln__onnx_failed(call); i++)
        give_collected(call, loop, i, 0, false);
}

/* Its operands as the values that turns begin with. */
static bool take_carried(struct kiln__onnx_call *call, struct loop *loop, size_t first)
{
    for (size_t i = 0; i < loop->carried && kiln__onnx_need(call, first + i); i++)
        loop->state[i] = *kiln__onnx_operand(call, first + i);
    return !kiln__onnx_failed(call);
}

static void run_loop(struct kiln__onnx_call *call, struct loop *loop)
{
    double most = 0;
    struct kiln__onnx_value *turns = kiln__onnx_operand(call, 0), *on = kiln__onnx_operand(call, 1);
    const bool counted = !turns || kiln__onnx_scalar(call, 0, &most);
    const bool never = (turns && counted && most < 1) || (on && on->host && !goes_on(call, on));
    struct kiln__onnx_once once = {.body = loop->body,
                                   .counts = true,
                                   .carried = loop->carried,
                                   .collected = loop->collected,
                                   .carry = loop->state,
                                   .turns = most < INT32_MAX ? (size_t)most : INT32_MAX,
                                   .most = counted ? NULL : turns,
                                   .on = on && !on->host ? on : NULL};
    if (!take_carried(call, loop, 2))
        return;
    if (!never && kiln__onnx_record_once(call, &once, call->out))
        return;
    if (!kiln__onnx_failed(call) && !never && (once.most || once.on))
        kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                          "its %s is not known when the model is recorded, and %s",
                          once.most ? "number of turns" : "condition", once.why);
    else
        unroll_loop(call, loop, once.turns, turns, !never);
}

static void loop(struct kiln__onnx_call *call)
{
    struct loop loop = {.body = graph_of(call, "body")};
    if (!loop.body)
        return;
    loop.carried = call->node->n_inputs > 2 ? call->node->n_inputs - 2 : 0;
    if (loop.body->n_inputs != 2 + loop.carried || call->n_outputs < loop.carried) {
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT,
                          "its graph has %zu operands and the node %zu results for %zu values",
                          loop.body->n_inputs, call->n_outputs, loop.carried);
        return;
    }
    loop.collected = call->n_outputs - loop.carried;
    if (make_room(call, &loop, MOST_TURNS, 0))
        run_loop(call, &loop);
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
    return turns;
}

/* The other way along the first dimension. */
static struct kiln__onnx_value turned(struct kiln__onnx_call *call, struct kiln__onnx_value *value)
{
    int64_t start[KILN_MAX_RANK] = {(int64_t)value->dims[0] - 1}, step[KILN_MAX_RANK] = {-1};
    for (size_t d = 1; d < value->rank; d++)
        step[d] = 1;
    return kiln__onnx_slice(call, value, start, step, value->dims);
}

/* Operand i along its first dimension, in the order of the turns. */
static struct kiln__onnx_value in_turns(struct kiln__onnx_call *call, const struct scan *scan,
                                        size_t i)
{
    struct kiln__onnx_value *from = kiln__onnx_operand(call, scan->loop.carried + i);
    size_t axis = scan_axis(call, scan, i), order[KILN_MAX_RANK];
    for (size_t d = 0; d < from->rank; d++)
        order[d] = d ? d - (d <= axis) : axis;
    struct kiln__onnx_value all = axis ? kiln__onnx_transpose(call, from, order) : *from;
    return scan->backwards && scan->backwards[i] && all.type ? turned(call, &all) : all;
}

/* What a turn gets of what `in_turns` gave. */
static struct kiln__onnx_value element(struct kiln__onnx_call *call, struct kiln__onnx_value *from,
                                       size_t turn)
{
    int64_t start[KILN_MAX_RANK] = {(int64_t)turn}, step[KILN_MAX_RANK];
    size_t count[KILN_MAX_RANK];
    for (size_t d = 0; d < from->rank; d++) {
        step[d] = 1;
        count[d] = d ? from->dims[d] : 1;
    }
    struct kiln__onnx_value one = kiln__onnx_slice(call, from, start, step, count);
    return one.type ? kiln__onnx_reshape(call, &one, from->rank - 1, from->dims + 1) : one;
}

static void unroll_scan(struct kiln__onnx_call *call, struct scan *scan, size_t turns,
                        struct kiln__onnx_value *elements)
{
    struct loop *loop = &scan->loop;
    for (; loop->turns < turns && !kiln__onnx_failed(call); loop->turns++) {
        struct kiln__onnx_value *values = call->recorder->values;
        for (size_t i = 0; i < loop->carried; i++)
            values[loop->body->inputs[i]] = loop->state[i];
        for (size_t i = 0; i < scan->scanned; i++)
            values[loop->body->inputs[loop->carried + i]] =
                element(call, &elements[i], loop->turns);
        if (!record_turn(call, loop, 0))
            return;
    }
}

/* What turns left along a first dimension, along this one. */
static struct kiln__onnx_value arranged(struct kiln__onnx_call *call, struct kiln__onnx_value *all,
                                        int64_t axis, bool backwards)
{
    size_t order[KILN_MAX_RANK], at = kiln__onnx_axis(call, axis, all->rank);
    struct kiln__onnx_value value = backwards ? turned(call, all) : *all;
    for (size_t d = 0; d < all->rank; d++)
        order[d] = d == at ? 0 : d + (d < at);
    return at && value.type ? kiln__onnx_transpose(call, &value, order) : value;
}

static void run_scan(struct kiln__onnx_call *call, struct scan *scan, size_t turns)
{
    struct loop *loop = &scan->loop;
    struct kiln__onnx_value *elements = loop->pieces + loop->collected * loop->room;
    const int64_t *axes = entries(call, "scan_output_axes", loop->collected);
    const int64_t *backwards = entries(call, "scan_output_directions", loop->collected);
    struct kiln__onnx_once once = {.body = loop->body,
                                   .carried = loop->carried,
                                   .scanned = scan->scanned,
                                   .collected = loop->collected,
                                   .carry = loop->state,
                                   .elements = elements,
                                   .turns = turns};
    if (!take_carried(call, loop, 0))
        return;
    for (size_t i = 0; turns && i < scan->scanned && !kiln__onnx_failed(call); i++)
        elements[i] = in_turns(call, scan, i);
    if (kiln__onnx_failed(call))
        return;
    const bool recorded = turns && kiln__onnx_record_once(call, &once, call->out);
    if (!recorded && turns > MOST_TURNS)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "a scan of more than %d turns, and %s",
                          MOST_TURNS, once.why);
    if (!recorded)
        unroll_scan(call, scan, turns, elements);
    for (size_t i = 0; !recorded && i < loop->carried && !kiln__onnx_failed(call); i++)
        kiln__onnx_give_value(call, i, &loop->state[i]);
    for (size_t i = 0; i < loop->collected && !kiln__onnx_failed(call); i++) {
        struct kiln__onnx_value *out = &call->out[loop->carried + i];
        if (recorded)
            *out = arranged(call, out, axes ? axes[i] : 0, backwards && backwards[i]);
        else
            give_collected(call, loop, i, axes ? axes[i] : 0, backwards && backwards[i]);
    }
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
    if (!kiln__onnx_failed(call) &&
        make_room(call, &scan.loop, turns < MOST_TURNS ? turns : MOST_TURNS, scan.scanned))
        run_scan(call, &scan, turns);
    free(scan.loop.state);
    free(scan.loop.pieces);
}

const struct kiln__onnx_row kiln__onnx_control_rows[] = {
    KILN__ONNX_ROW("If", 1, choose, .known = KILN__ONNX_BIT(0)),
    KILN__ONNX_ROW("Loop", 1, loop, .known = KILN__ONNX_BIT(0) | KILN__ONNX_BIT(1)),
    KILN__ONNX_ROW("Scan", 9, scan),
    {0},
};
