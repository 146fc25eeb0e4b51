/* SPDX-License-Identifier: Apache-2.0 */
/* A step of a batcher: texts that go on get a token each, in one run; then a part of a prompt is
 * read, in a run of its own, so that its bits depend on the prompt alone. */
#include <stdlib.h>
#include <string.h>

#include "lm/batcher.h"
#include "lm/error.h"

/* ---- who takes part; under the lock ---- */

static void leave_slot(kiln_lm_batcher *batcher, size_t slot)
{
    kiln_lm_request *request = batcher->slots[slot];
    batcher->slots[slot] = NULL;
    if (batcher->reading == request)
        batcher->reading = NULL;
    kiln__lm_request_drop(request);
}

static void drop_ended(kiln_lm_batcher *batcher)
{
    const int64_t now = kiln__lm_now();
    kiln__lm_queue_expire(batcher, now);
    for (size_t i = 0; i < batcher->caches.slots; i++) {
        kiln_lm_request *request = batcher->slots[i];
        if (request && request->deadline <= now)
            kiln__lm_request_end(request, KILN_TIMED_OUT);
        if (request && request->ended)
            leave_slot(batcher, i);
    }
}

/* The next request gets the lowest slot, so that few lanes have all texts. */
static void admit(kiln_lm_batcher *batcher)
{
    size_t slot = 0;
    while (slot < batcher->caches.slots && batcher->slots[slot])
        slot++;
    if (batcher->reading || slot == batcher->caches.slots)
        return;
    batcher->reading = batcher->slots[slot] = kiln__lm_queue_take(batcher);
    batcher->reading_slot = slot;
    batcher->has_begun = false;
}

/* What the texts that go on have at the end, and where; answers how many slots hold all of them. */
static size_t fill_lanes(kiln_lm_batcher *batcher)
{
    size_t used = 0;
    for (size_t i = 0; i < batcher->caches.slots; i++) {
        const kiln_lm_request *request = batcher->slots[i];
        const bool goes_on = request && request->going;
        batcher->tokens[i] = goes_on ? request->text[request->length - 1] : 0;
        batcher->positions[i] = goes_on ? (int32_t)request->length - 1 : -1;
        used = goes_on ? i + 1 : used;
    }
    return used;
}

static void add_token(kiln_lm_request *request, int32_t token)
{
    kiln_lm_batcher *batcher = request->batcher;
    if (request->ended)
        return;
    if (token < 0) {
        kiln__lm_request_end(request, kiln__lm_fail(KILN_BAD_VALUE,
                                                    "kiln_lm_request_poll: the model made NaN of "
                                                    "%zu tokens",
                                                    request->length));
        return;
    }
    if (request->length == request->prompt)
        kiln__histogram_add(&batcher->first, kiln__lm_now() - request->submitted);
    request->text[request->length++] = token;
    batcher->stats.tokens++;
    if (request->length == request->most || kiln_lm_is_end(batcher->lm, token))
        kiln__lm_request_end(request, KILN_OK);
}

/* ---- tokens of all texts that go on ---- */

static int32_t choose(const kiln_lm_batcher *batcher, kiln_lm_request *request, const float *logits)
{
    request->logits = logits;
    const int32_t token =
        kiln__sample(&request->sampling, logits, batcher->lm->shape.words,
                     kiln__draw(request->seed, request->length), batcher->readers[0]->choices);
    if (request->kept && token >= 0)
        kiln__lm_keep_logprobs(request, logits, token);
    return token;
}

/* Texts whose keys a run may have spoilt are read again, before others. */
static void read_again(kiln_lm_batcher *batcher, kiln_status status)
{
    for (size_t i = batcher->caches.slots; i-- > 0;) {
        kiln_lm_request *request = batcher->slots[i];
        if (!request || !request->going)
            continue;
        request->going = false;
        if (++request->failures >= KILN__LM_MOST_FAILURES)
            kiln__lm_request_end(request, status);
        if (request->ended)
            continue;
        batcher->slots[i] = NULL;
        kiln__lm_queue_put_first(request);
    }
}

/* An ONNX file's operators may do something else with one text than with several. */
static size_t fewest_lanes(const kiln_lm_batcher *batcher)
{
    return batcher->lm->genai ? KILN__LM_FEWEST_SLOTS : 1;
}

/* The number of the batch for the first `used` slots; *lanes is how many it has. */
static size_t choose_lanes(const kiln_lm_batcher *batcher, size_t used, size_t *lanes)
{
    size_t number = 0;
    for (*lanes = fewest_lanes(batcher); *lanes < used; *lanes *= 2)
        number++;
    if (*lanes > batcher->caches.slots)
        *lanes = batcher->caches.slots;
    return number;
}

kiln_status kiln__lm_record_lanes(kiln_lm_batcher *batcher, size_t lanes, kiln_batch **step)
{
    return *step ? KILN_OK
                 : kiln__lm_record(&(struct kiln__lm_step){.lm = batcher->lm,
                                                           .caches = &batcher->caches,
                                                           .lanes = lanes,
                                                           .rows = 1,
                                                           .tokens = batcher->tokens,
                                                           .positions = batcher->positions,
                                                           .logits = batcher->logits},
                                   step);
}

/* A model that takes one text at a time: each has a run of its own. */
static kiln_status run_alone(kiln_lm_batcher *batcher, size_t used, size_t *lanes)
{
    const size_t words = batcher->lm->shape.words;
    kiln_status status = KILN_OK;
    *lanes = 0;
    for (size_t i = 0; i < used && !status; i++) {
        kiln_lm_session *session = batcher->readers[i];
        if (batcher->positions[i] < 0)
            continue;
        session->text[batcher->positions[i]] = batcher->tokens[i];
        status = kiln__lm_session_step(session, (size_t)batcher->positions[i] + 1);
        if (!status)
            memcpy(batcher->logits + i * words, session->logits, words * sizeof *session->logits);
        ++*lanes;
    }
    return status;
}

static kiln_status run_lanes(kiln_lm_batcher *batcher, size_t used, size_t *lanes)
{
    if (batcher->alone)
        return run_alone(batcher, used, lanes);
    kiln_batch **step = &batcher->steps[choose_lanes(batcher, used, lanes)];
    kiln_status status = kiln__lm_record_lanes(batcher, *lanes, step);
    if (!status && (status = kiln_batch_execute(*step)))
        kiln_error_set(status, kiln_batch_error(*step));
    return status;
}

static kiln_status go_on(kiln_lm_batcher *batcher, size_t used)
{
    const size_t words = batcher->lm->shape.words;
    int32_t tokens[KILN__LM_MOST_SLOTS];
    size_t lanes, texts = 0;
    const kiln_status status = run_lanes(batcher, used, &lanes);
    for (size_t i = 0; i < used && !status; i++)
        if (batcher->positions[i] >= 0)
            tokens[i] = choose(batcher, batcher->slots[i], batcher->logits + i * words);
    pthread_mutex_lock(&batcher->lock);
    if (status)
        read_again(batcher, status);
    for (size_t i = 0; i < used && !status; i++)
        if (batcher->positions[i] >= 0) {
            batcher->slots[i]->failures = 0;
            add_token(batcher->slots[i], tokens[i]);
            texts++;
        }
    batcher->stats.steps += !status;
    batcher->stats.failed_steps += status != KILN_OK;
    batcher->texts_run += texts;
    batcher->lanes_run += status ? 0 : lanes;
    pthread_mutex_unlock(&batcher->lock);
    return status;
}

/* ---- a part of a prompt ---- */

kiln_lm_session *kiln__lm_batcher_reader(const kiln_lm_batcher *batcher)
{
    return batcher->readers[batcher->alone ? batcher->reading_slot : 0];
}

/* What the text before had in common with this one need not be read again, nor what is kept of
 * others: of whole parts, whose bits do not depend on what follows. */
static kiln_status begin_reading(kiln_lm_batcher *batcher, const kiln_lm_request *request)
{
    kiln_lm_session *reader = kiln__lm_batcher_reader(batcher);
    const size_t most = reader->seen < request->length - 1 ? reader->seen : request->length - 1;
    size_t common = 0;
    while (common < most && reader->text[common] == request->text[common])
        common++;
    common -= common % KILN__LM_PART;
    const size_t kept =
        kiln__lm_prefixes_find(&batcher->prefixes, request->text, request->length - 1);
    const kiln_status status =
        kiln__lm_prefixes_bring(&batcher->prefixes, request->text, common, kept);
    if (status) {
        reader->seen = 0;
        return status;
    }
    common = kept > common ? kept : common;
    memcpy(reader->text, request->text, request->length * sizeof *request->text);
    reader->seen = common;
    reader->has_logits = false;
    batcher->has_begun = true;
    pthread_mutex_lock(&batcher->lock);
    batcher->stats.prompt_tokens += request->length;
    batcher->stats.shared_tokens += common;
    pthread_mutex_unlock(&batcher->lock);
    return KILN_OK;
}

static kiln_status read_rows(kiln_lm_batcher *batcher, const kiln_lm_request *request)
{
    kiln_lm_session *reader = kiln__lm_batcher_reader(batcher);
    const kiln_status status = kiln__lm_session_step(reader, request->length);
    return status ? status
                  : kiln__lm_prefixes_keep(&batcher->prefixes, request->text, reader->seen);
}

/* The first rows of the reader's keys or values are put into a slot, as one launch. */
static void move_rows(kiln_lm_batcher *batcher, kiln_batch *b, size_t length, kiln_tensor start,
                      kiln_buffer *from, kiln_buffer *to)
{
    const struct kiln__lm_shape *shape = &batcher->lm->shape;
    const size_t pairs = shape->pairs, size = shape->size, slots = batcher->caches.slots;
    const size_t context = batcher->caches.context;
    kiln_tensor rows =
        kiln_slice(b, kiln_import(b, from), kiln_positions(0, 0, 0, 0),
                   kiln_positions((int64_t)pairs, 1, (int64_t)length, (int64_t)size), NULL);
    rows = kiln_reshape(b, rows, kiln_shape(pairs, length, size));
    kiln_tensor all = kiln_reshape(b, kiln_import(b, to), kiln_shape(pairs, slots * context, size));
    all = kiln_update_slice(b, all, rows, start, 1);
    kiln_export(b, kiln_reshape(b, all, kiln_shape(pairs, slots, context, size)), to);
}

/* The same in an ONNX file's order, where a slot's keys do not lie side by side. */
static void move_rows_of_file(kiln_lm_batcher *batcher, kiln_batch *b, size_t length,
                              kiln_tensor starts, kiln_buffer *from, kiln_buffer *to)
{
    const struct kiln__lm_shape *shape = &batcher->lm->shape;
    const size_t pairs = shape->pairs, size = shape->size, slots = batcher->caches.slots;
    kiln_tensor rows =
        kiln_slice(b, kiln_import(b, from), kiln_positions(0, 0, 0, 0),
                   kiln_positions(1, (int64_t)pairs, (int64_t)length, (int64_t)size), NULL);
    rows = kiln_broadcast(b, rows, kiln_shape(slots, pairs, length, size));
    kiln_export(b, kiln_update_slice(b, kiln_import(b, to), rows, starts, 2), to);
}

static kiln_status record_move(kiln_lm_batcher *batcher, size_t length, kiln_batch **batch)
{
    const struct kiln__lm_caches *from = &batcher->readers[0]->caches, *to = &batcher->caches;
    kiln_batch *b = *batch = kiln_batch_create(batcher->lm->context);
    if (!b)
        return KILN_OUT_OF_HOST_MEMORY;
    const bool is_file = batcher->lm->genai;
    kiln_tensor start =
        is_file ? kiln_upload(b, KILN_I32, kiln_shape(to->slots, 1), batcher->move_starts)
                : kiln_upload(b, KILN_I32, KILN_SCALAR, &batcher->move_start);
    for (size_t i = 0; i < batcher->lm->shape.layers; i++) {
        void (*const move)(kiln_lm_batcher *, kiln_batch *, size_t, kiln_tensor, kiln_buffer *,
                           kiln_buffer *) = is_file ? move_rows_of_file : move_rows;
        move(batcher, b, length, start, from->keys[i], to->keys[i]);
        move(batcher, b, length, start, from->values[i], to->values[i]);
    }
    const kiln_status status = kiln_batch_status(b);
    if (status) {
        kiln_error_set(status, kiln_batch_error(b));
        kiln_batch_release(b);
        *batch = NULL;
    }
    return status;
}

/* The number of the batch that moves `seen` tokens or more; *length is how many. */
static size_t choose_length(const kiln_lm_batcher *batcher, size_t seen, size_t *length)
{
    size_t number = 0;
    for (*length = KILN__LM_PART; *length < seen; *length *= 4)
        number++;
    if (*length > batcher->caches.context)
        *length = batcher->caches.context;
    return number;
}

/* A text of `seen` tokens goes to its slot, with what is behind it up to one of a few lengths.
 * After an error any slot's keys may be spoilt: where it begins is an operand, too. */
static kiln_status move(kiln_lm_batcher *batcher, size_t seen, size_t slot)
{
    size_t length;
    kiln_batch **batch = &batcher->moves[choose_length(batcher, seen, &length)];
    kiln_status status = *batch ? KILN_OK : record_move(batcher, length, batch);
    batcher->move_start = (int32_t)(slot * batcher->caches.context);
    for (size_t i = 0; i < batcher->caches.slots; i++)
        batcher->move_starts[i] = i == slot ? 0 : (int32_t)batcher->caches.context;
    if (!status && (status = kiln_batch_execute(*batch)))
        kiln_error_set(status, kiln_batch_error(*batch));
    return status;
}

/* Whether the text ends with this token, so that nobody needs its keys. */
static bool will_end(const kiln_lm_request *request, int32_t token)
{
    return token < 0 || request->length + 1 == request->most ||
           kiln_lm_is_end(request->batcher->lm, token);
}

static kiln_status read_part(kiln_lm_batcher *batcher, kiln_lm_request *request)
{
    kiln_lm_session *reader = kiln__lm_batcher_reader(batcher);
    kiln_status status = batcher->has_begun ? KILN_OK : begin_reading(batcher, request);
    if (!status && reader->seen < request->length)
        status = read_rows(batcher, request);
    if (status || reader->seen < request->length)
        return status;
    const int32_t token = choose(batcher, request, reader->logits);
    if (!batcher->alone && !will_end(request, token) &&
        (status = move(batcher, reader->seen, batcher->reading_slot))) {
        pthread_mutex_lock(&batcher->lock);
        read_again(batcher, status);
        pthread_mutex_unlock(&batcher->lock);
        return status;
    }
    pthread_mutex_lock(&batcher->lock);
    request->going = true;
    batcher->reading = NULL;
    add_token(request, token);
    pthread_mutex_unlock(&batcher->lock);
    return KILN_OK;
}

static kiln_status read_on(kiln_lm_batcher *batcher)
{
    kiln_lm_request *request = batcher->reading;
    const kiln_status status = read_part(batcher, request);
    if (!status)
        return KILN_OK;
    pthread_mutex_lock(&batcher->lock);
    batcher->stats.failed_steps++;
    if (++request->failures >= KILN__LM_MOST_FAILURES)
        kiln__lm_request_end(request, status);
    pthread_mutex_unlock(&batcher->lock);
    return status;
}

/* ---- all runs, beforehand ---- */

static kiln_status prepare(kiln_status status, kiln_batch *batch)
{
    return status ? status : kiln__lm_session_try(batch);
}

kiln_status kiln__lm_batcher_prepare(kiln_lm_batcher *batcher)
{
    const size_t slots = batcher->caches.slots, context = batcher->caches.context;
    if (batcher->alone) {
        kiln_status all = KILN_OK;
        for (size_t i = 0; i < slots && !all; i++)
            all = kiln__lm_session_prepare(batcher->readers[i]);
        return all;
    }
    kiln_status status = kiln__lm_session_prepare(batcher->readers[0]);
    for (size_t used = 1, lanes = 0; lanes < slots && !status; used = lanes + 1) {
        kiln_batch **step = &batcher->steps[choose_lanes(batcher, used, &lanes)];
        status = kiln__lm_record_lanes(batcher, lanes, step);
        status = prepare(status, *step);
    }
    if (batcher->prefixes.pages) {
        status = prepare(status, batcher->prefixes.keep);
        status = prepare(status, batcher->prefixes.bring);
    }
    for (size_t seen = 1, length = 0; length < context && !status; seen = length + 1) {
        kiln_batch **batch = &batcher->moves[choose_length(batcher, seen, &length)];
        status = record_move(batcher, length, batch);
        status = prepare(status, *batch);
    }
    return status;
}

/* ---- a step ---- */

kiln_status kiln_lm_batcher_step(kiln_lm_batcher *batcher)
{
    if (!batcher)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_batcher_step: batcher is NULL");
    const int64_t began = kiln__lm_now();
    pthread_mutex_lock(&batcher->lock);
    drop_ended(batcher);
    admit(batcher);
    const size_t used = fill_lanes(batcher);
    const bool reads = batcher->reading != NULL;
    pthread_mutex_unlock(&batcher->lock);
    if (!used && !reads)
        return KILN_NOT_READY;
    const kiln_status status = used ? go_on(batcher, used) : KILN_OK;
    const kiln_status read_status = reads ? read_on(batcher) : KILN_OK;
    pthread_mutex_lock(&batcher->lock);
    kiln__histogram_add(&batcher->step, kiln__lm_now() - began);
    drop_ended(batcher);
    pthread_mutex_unlock(&batcher->lock);
    return status ? status : read_status;
}
