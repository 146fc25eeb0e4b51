/* SPDX-License-Identifier: Apache-2.0 */
/* A body is recorded up to three times: as its first turn would be unrolled, which shows what would
 * be known on the host; with values of which nothing is known; and then for good. Loops inside are
 * not tried in a trial: what cannot be recorded once there ends it. */
#include "onnx/once.h"

#include <stdlib.h>
#include <string.h>

#include "onnx/record.h"
#include "onnx/values.h"

enum {
    BOOLEAN = ONNX__TENSOR_PROTO__DATA_TYPE__BOOL,
    INT64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64
};

/* So few turns are unrolled, if they are counted: each knows its number, and gathers become slices.
 */
enum { FEW_TURNS = 16 };

struct pass {
    struct kiln__onnx_call *call;
    const struct kiln__onnx_once *once;
    bool known; /* as an unrolled turn */
    kiln_tensor *states, *next, *elements, *outputs;
    size_t n_states; /* with what counts turns and says whether the loop has ended */
    kiln_tensor step, until, left, ended;
};

static size_t results_of(const struct kiln__onnx_once *once)
{
    return once->carried + once->collected;
}

static struct kiln__onnx_value on_device(const struct pass *pass, int type, kiln_tensor tensor)
{
    struct kiln__onnx_value value = {.type = type, .tensor = tensor};
    if (!tensor.id || kiln_tensor_shape(pass->call->batch, tensor, NULL, &value.rank, value.dims))
        value.type = 0;
    return value;
}

static struct kiln__onnx_value known_scalar(const struct pass *pass, int type, int64_t number)
{
    struct kiln__onnx_host *host = kiln__onnx_new_host(pass->call, type, 0, NULL);
    if (host)
        host->cells[0].i = number;
    return (struct kiln__onnx_value){.type = host ? type : 0, .host = host};
}

/* Its tensor in the type that turns give, not the narrower one that it may be stored in. */
static kiln_tensor computed(const struct pass *pass, const struct kiln__onnx_value *value)
{
    struct kiln__onnx_value copy = *value;
    const kiln_type wanted = kiln__onnx_type(value->type)->computed;
    const kiln_tensor tensor = kiln__onnx_tensor_of(pass->call, &copy);
    kiln_type type;
    return !tensor.id || kiln_tensor_shape(pass->call->batch, tensor, &type, NULL, NULL) ||
                   type == wanted
               ? tensor
               : kiln_cast(pass->call->batch, tensor, wanted);
}

/* Of a value of one element: 1 where it is 0. */
static kiln_tensor is_not(const struct pass *pass, struct kiln__onnx_value *value)
{
    kiln_batch *batch = pass->call->batch;
    const kiln_tensor scalar =
        kiln_reshape(batch, kiln__onnx_tensor_of(pass->call, value), 0, NULL);
    return kiln_cast(batch, kiln_logical_not(batch, scalar), KILN_U8);
}

/* ---- before the body ---- */

static void add_state(struct pass *pass, kiln_tensor initial, kiln_tensor *state)
{
    *state = kiln_loop_state(pass->call->batch, initial);
    pass->states[pass->n_states++] = *state;
}

static kiln_tensor none_left(const struct pass *pass, kiln_tensor left)
{
    kiln_batch *batch = pass->call->batch;
    return kiln_cast(batch, kiln_less_equal(batch, left, kiln_constant(batch, KILN_I32, 0)),
                     KILN_U8);
}

/* The states behind those that are carried. */
static void begin_ending(struct pass *pass, bool may_end)
{
    const struct kiln__onnx_once *once = pass->once;
    kiln_batch *batch = pass->call->batch;
    kiln_tensor ended = once->on ? is_not(pass, once->on) : kiln_constant(batch, KILN_U8, 0);
    if (once->most) {
        kiln_tensor most = kiln__onnx_tensor_of(pass->call, once->most);
        most = kiln__onnx_positions(pass->call, kiln_reshape(batch, most, 0, NULL));
        add_state(pass, most, &pass->left);
        ended = kiln_bit_or(batch, ended, none_left(pass, most));
    }
    if (once->most || once->on || may_end) {
        add_state(pass, ended, &pass->ended);
        pass->until = pass->ended;
    }
    if (!pass->n_states)
        add_state(pass, kiln_constant(batch, KILN_I32, 0), &pass->left);
}

/* What the first turn gets of operand i, as unrolled. */
static struct kiln__onnx_value first_element(struct pass *pass, size_t i)
{
    struct kiln__onnx_value from = pass->once->elements[i];
    int64_t start[KILN_MAX_RANK] = {0}, step[KILN_MAX_RANK];
    size_t count[KILN_MAX_RANK];
    for (size_t d = 0; d < from.rank; d++) {
        step[d] = 1;
        count[d] = d ? from.dims[d] : 1;
    }
    struct kiln__onnx_value one = kiln__onnx_slice(pass->call, &from, start, step, count);
    return one.type ? kiln__onnx_reshape(pass->call, &one, from.rank - 1, from.dims + 1) : one;
}

static void begin(struct pass *pass, bool may_end)
{
    const struct kiln__onnx_once *once = pass->once;
    kiln_batch *batch = pass->call->batch;
    struct kiln__onnx_value *values = pass->call->recorder->values;
    const uint32_t *inputs = once->body->inputs;
    if (once->counts) {
        pass->step = kiln_loop_step(batch);
        values[inputs[0]] = pass->known
                                ? known_scalar(pass, INT64, 0)
                                : on_device(pass, INT64, kiln_cast(batch, pass->step, KILN_I64));
        values[inputs[1]] = known_scalar(pass, BOOLEAN, 1);
        inputs += 2;
    }
    for (size_t i = 0; i < once->carried; i++) {
        kiln_tensor state;
        add_state(pass, computed(pass, &once->carry[i]), &state);
        values[inputs[i]] =
            pass->known ? once->carry[i] : on_device(pass, once->carry[i].type, state);
    }
    for (size_t i = 0; i < once->scanned; i++) {
        struct kiln__onnx_value all = once->elements[i];
        pass->elements[i] = kiln_loop_element(batch, kiln__onnx_tensor_of(pass->call, &all));
        values[inputs[once->carried + i]] =
            pass->known ? first_element(pass, i) : on_device(pass, all.type, pass->elements[i]);
    }
    begin_ending(pass, may_end);
}

/* ---- behind it ---- */

static struct kiln__onnx_value *result_of(const struct pass *pass, size_t i)
{
    const struct kiln__onnx_once *once = pass->once;
    return &pass->call->recorder->values[once->body->outputs[once->counts + i]];
}

static void end(struct pass *pass)
{
    const struct kiln__onnx_once *once = pass->once;
    kiln_batch *batch = pass->call->batch;
    size_t n = once->carried;
    for (size_t i = 0; i < once->carried; i++)
        pass->next[i] = computed(pass, result_of(pass, i));
    for (size_t i = 0; i < once->collected; i++)
        pass->outputs[i] = computed(pass, result_of(pass, once->carried + i));
    if (pass->left.id)
        pass->next[n++] = once->most
                              ? kiln_sub(batch, pass->left, kiln_constant(batch, KILN_I32, 1))
                              : pass->left;
    if (!pass->ended.id)
        return;
    struct kiln__onnx_value *on = &pass->call->recorder->values[once->body->outputs[0]];
    kiln_tensor ended = on->host ? kiln_constant(batch, KILN_U8, 0) : is_not(pass, on);
    if (once->most)
        ended = kiln_bit_or(batch, ended, none_left(pass, pass->next[n - 1]));
    pass->next[n] = ended;
}

/* Record the body with the pass's call; false after a failure. */
static bool record_body(struct pass *pass, bool may_end)
{
    struct kiln__onnx_recorder *recorder = pass->call->recorder;
    begin(pass, may_end);
    if (kiln__onnx_failed(pass->call))
        return false;
    recorder->depth++;
    kiln__onnx_record_graph(recorder, pass->once->body, 0, NULL);
    recorder->depth--;
    return !kiln__onnx_failed(pass->call);
}

/* ---- trying it ---- */

enum ending { NEVER, AT_ONCE, MAY_END };

/* What a trial shows. */
struct shown {
    bool recorded;
    bool stays; /* values keep type and shape */
    bool knows; /* a result that somebody wants is known on the host */
    enum ending ending;
};

static enum ending ending_of(const struct pass *pass)
{
    const struct kiln__onnx_value *on = &pass->call->recorder->values[pass->once->body->outputs[0]];
    if (!pass->once->counts)
        return NEVER;
    return !on->host || on->host->count != 1 ? MAY_END : on->host->cells[0].i ? NEVER : AT_ONCE;
}

static bool is_one(const struct kiln__onnx_value *value)
{
    size_t count;
    return value->type && kiln__onnx_count(value->rank, value->dims, &count) && count == 1;
}

static void look(const struct pass *pass, struct shown *shown)
{
    const struct kiln__onnx_once *once = pass->once;
    const struct kiln__onnx_call *call = pass->call;
    shown->recorded = shown->stays = true;
    for (size_t i = 0; i < results_of(once); i++) {
        const struct kiln__onnx_value *value = result_of(pass, i);
        const struct kiln__onnx_value *before = i < once->carried ? &once->carry[i] : NULL;
        shown->knows |= call->wanted[i] && value->host;
        shown->stays &= before ? value->type == before->type &&
                                     kiln__onnx_has_shape(value, before->rank, before->dims)
                               : value->type && value->rank < KILN_MAX_RANK;
    }
    if (once->counts && !is_one(&call->recorder->values[once->body->outputs[0]]))
        shown->stays = false;
    else
        shown->ending = ending_of(pass);
}

/* The same in another batch, where content that the device alone knows does not matter. */
static void stand_in(kiln_batch *from, kiln_batch *to, struct kiln__onnx_value *value)
{
    kiln_type type;
    size_t rank, dims[KILN_MAX_RANK];
    if (value->tensor.id && !kiln_tensor_shape(from, value->tensor, &type, &rank, dims))
        value->tensor = kiln_fill(to, type, rank, dims, 0);
}

static struct kiln__onnx_value *stand_ins(kiln_batch *from, kiln_batch *to, size_t n,
                                          const struct kiln__onnx_value *values, const bool *read)
{
    struct kiln__onnx_value *own = calloc(n + 1, sizeof *own);
    if (own && n)
        memcpy(own, values, n * sizeof *own);
    for (size_t i = 0; own && i < n; i++)
        if (!read || read[i])
            stand_in(from, to, &own[i]);
    return own;
}

static bool make_room(struct pass *pass)
{
    const struct kiln__onnx_once *once = pass->once;
    const size_t states = once->carried + 2;
    pass->states = calloc(2 * states + once->scanned + once->collected, sizeof *pass->states);
    pass->next = pass->states + states;
    pass->elements = pass->next + states;
    pass->outputs = pass->elements + once->scanned;
    return pass->states;
}

/* What the body reads from outside of itself, among all else that it reads. */
static bool *find_read(const struct kiln__onnx_call *call, const struct kiln__onnx_graph *body)
{
    bool *read = calloc((size_t)call->recorder->model->graphs.n_values + 1, sizeof *read);
    if (read)
        kiln__onnx_mark_read(body, 0, read);
    return read;
}

static void try_in(struct kiln__onnx_call *call, const struct kiln__onnx_once *once, bool known,
                   kiln_batch *beside, struct shown *shown)
{
    struct kiln__onnx_recorder trial = *call->recorder;
    struct kiln__onnx_call own = *call;
    struct kiln__onnx_once with = *once;
    struct kiln__onnx_value most, on;
    bool *read = find_read(call, once->body);
    struct pass pass = {.call = &own, .once = &with, .known = known};
    trial.batch = own.batch = beside;
    own.recorder = &trial;
    trial.hosts = NULL;
    trial.held = trial.used = 0;
    trial.trials++;
    trial.values =
        read ? stand_ins(call->batch, beside, trial.model->graphs.n_values, trial.values, read)
             : NULL;
    with.carry = stand_ins(call->batch, beside, once->carried, once->carry, NULL);
    with.elements = stand_ins(call->batch, beside, once->scanned, once->elements, NULL);
    if (once->most) {
        most = *once->most;
        stand_in(call->batch, beside, with.most = &most);
    }
    if (once->on) {
        on = *once->on;
        stand_in(call->batch, beside, with.on = &on);
    }
    if (trial.values && with.carry && with.elements && make_room(&pass) &&
        record_body(&pass, false))
        look(&pass, shown);
    free(pass.states);
    free((void *)with.carry);
    free((void *)with.elements);
    free(trial.values);
    free(read);
    kiln__onnx_host_free(trial.hosts);
}

static struct shown try(struct kiln__onnx_call *call, const struct kiln__onnx_once *once,
                        bool known)
{
    struct shown shown = {0};
    kiln_batch *beside = kiln_batch_create(call->recorder->model->context);
    if (beside)
        try_in(call, once, known, beside, &shown);
    kiln_batch_release(beside);
    return shown;
}

/* Why a body, of which nothing is known, cannot be recorded once; NULL: it can. */
static const char *find_change(const struct kiln__onnx_once *once, const struct shown *any)
{
    if (!any->recorded)
        return kiln_last_error();
    if (!any->stays)
        return "what it carries does not keep its type and shape";
    if (once->collected && (once->most || once->on || any->ending == MAY_END))
        return "it collects a value of each turn";
    if (any->ending == AT_ONCE || (any->ending == NEVER && !once->most && !once->turns))
        return "its graph's condition never changes";
    return NULL;
}

/* The same of a loop; *may_end: by its condition. */
static const char *find_obstacle(struct kiln__onnx_call *call, const struct kiln__onnx_once *once,
                                 bool *may_end)
{
    const bool on_device = once->most || once->on;
    const bool few = !on_device && once->turns && once->turns <= FEW_TURNS;
    if (once->body->n_outputs < once->counts + results_of(once) ||
        call->recorder->depth == KILN__ONNX_DEEPEST)
        return "its graph cannot be recorded";
    *may_end = !once->collected;
    if (call->recorder->trials)
        return few ? "it has few turns" : NULL;
    if (!on_device) {
        const struct shown first = try(call, once, true);
        if (!first.recorded || first.ending == AT_ONCE)
            return "its first turn is its last";
        if (first.ending == NEVER && few)
            return "it has few turns";
        if (first.ending == NEVER && first.knows && once->turns <= KILN__ONNX_MOST_TURNS)
            return "its results are known when the model is recorded";
    }
    const struct shown any = try(call, once, false);
    *may_end = any.ending == MAY_END;
    return find_change(once, &any);
}

/* ---- for good ---- */

static void give(struct pass *pass, const bool *read, struct kiln__onnx_value *results)
{
    const struct kiln__onnx_once *once = pass->once;
    kiln_loop_options options = KILN_LOOP_INIT;
    kiln_tensor *last = calloc(pass->n_states + once->collected, sizeof *last);
    options.steps = once->turns && !once->most ? once->turns : INT32_MAX;
    options.state_count = pass->n_states;
    options.states = pass->states;
    options.next = pass->next;
    options.element_count = once->scanned;
    options.elements = pass->elements;
    options.output_count = once->collected;
    options.outputs = pass->outputs;
    options.until = pass->until;
    if (once->counts && read[once->body->inputs[0]])
        options.step = pass->step;
    if (!last)
        kiln__onnx_refuse(pass->call, KILN_OUT_OF_HOST_MEMORY, "no memory");
    else if (!kiln_loop(pass->call->batch, &options, last, last + pass->n_states))
        for (size_t i = 0; i < results_of(once); i++)
            results[i] =
                on_device(pass, result_of(pass, i)->type,
                          last[i < once->carried ? i : pass->n_states + i - once->carried]);
    free(last);
}

bool kiln__onnx_record_once(struct kiln__onnx_call *call, struct kiln__onnx_once *once,
                            struct kiln__onnx_value *results)
{
    bool may_end = false;
    once->why = find_obstacle(call, once, &may_end);
    if (once->why)
        return false;
    struct pass pass = {.call = call, .once = once};
    struct shown shown = {0};
    bool *read = find_read(call, once->body);
    if (!read || !make_room(&pass))
        kiln__onnx_refuse(call, KILN_OUT_OF_HOST_MEMORY, "no memory");
    else if (record_body(&pass, may_end)) {
        look(&pass, &shown);
        once->why = find_change(once, &shown);
        if (once->why) /* in a trial, which it ends */
            kiln__onnx_refuse(call, KILN_UNSUPPORTED, "it is to be unrolled: %s", once->why);
        else {
            end(&pass);
            give(&pass, read, results);
        }
    }
    free(read);
    free(pass.states);
    return true;
}
