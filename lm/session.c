/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: a text is fed in chunks of a few sizes, and goes on token by token. */
#include "lm/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lm/error.h"
#include "lm/structure.h"

enum { USUAL_CONTEXT = 4096 };

void(kiln_lm_session_options_init)(kiln_lm_session_options *options, size_t size)
{
    static const kiln_lm_session_options own = KILN_LM_SESSION_OPTIONS_INIT;
    kiln__lm_options_fill(options, size, &own, sizeof own);
}

/* ---- beginning and end ---- */

static kiln_status check_options(const kiln_lm_session_options *own)
{
    static const char call[] = "kiln_lm_session_create";
    if (own->cache && own->cache != KILN_F32 && own->cache != KILN_F16 && own->cache != KILN_BF16)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "%s: options->cache is %s, and can be f32, f16 or bf16", call,
                             kiln_type_name(own->cache));
    if (own->context > INT32_MAX / 2)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: options->context is %zu", call,
                             own->context);
    if (!(own->temperature >= 0 && own->temperature < 1e6))
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: options->temperature is %g", call,
                             own->temperature);
    if (!(own->top_p >= 0 && own->top_p <= 1) || !(own->min_p >= 0 && own->min_p <= 1))
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "%s: options->top_p is %g and min_p %g; both are from 0 to 1", call,
                             own->top_p, own->min_p);
    return KILN_OK;
}

/* Cosine and sine of each position's angles, in double precision until they are stored. */
static kiln_status fill_angles(kiln_lm_session *session)
{
    const struct kiln__lm_shape *shape = &session->lm->shape;
    const float *factors = session->lm->weights.factors;
    const size_t half = shape->turned / 2, bytes = half * sizeof(float);
    float *cosine = malloc(session->context * bytes), *sine = malloc(session->context * bytes);
    kiln_status status = cosine && sine ? KILN_OK : kiln__lm_no_memory("kiln_lm_session_create");
    for (size_t i = 0; i < half && !status; i++) {
        const double frequency = shape->scale *
                                 pow(shape->base, -2.0 * (double)i / (double)shape->turned) /
                                 (factors ? (double)factors[i] : 1);
        for (size_t place = 0; place < session->context; place++) {
            cosine[place * half + i] = (float)cos((double)place * frequency);
            sine[place * half + i] = (float)sin((double)place * frequency);
        }
    }
    if (!status)
        status = kiln_buffer_write(session->cosine, 0, cosine, session->context * bytes);
    if (!status)
        status = kiln_buffer_write(session->sine, 0, sine, session->context * bytes);
    free(cosine);
    free(sine);
    return status;
}

/* Zeros: what lies behind the text takes part in products, with a weight of 0. */
static kiln_status make_cache(kiln_lm_session *session, const size_t *dims, void *zeros,
                              kiln_buffer **cache)
{
    kiln_status status = kiln_buffer_create(session->lm->context, session->cache, 4, dims, cache);
    return status ? status : kiln_buffer_write(*cache, 0, zeros, kiln_buffer_bytes(*cache));
}

static kiln_status make_caches(kiln_lm_session *session)
{
    const struct kiln__lm_shape *shape = &session->lm->shape;
    const size_t dims[] = {shape->pairs, 1, session->context, shape->size};
    const size_t angles[] = {session->context, shape->turned / 2};
    kiln_context *context = session->lm->context;
    void *zeros = calloc(dims[0] * dims[2] * dims[3], kiln_type_size(session->cache));
    session->keys = calloc(shape->layers, sizeof *session->keys);
    session->values = calloc(shape->layers, sizeof *session->values);
    kiln_status status = zeros && session->keys && session->values
                             ? KILN_OK
                             : kiln__lm_no_memory("kiln_lm_session_create");
    for (size_t i = 0; i < shape->layers && !status; i++) {
        status = make_cache(session, dims, zeros, &session->keys[i]);
        if (!status)
            status = make_cache(session, dims, zeros, &session->values[i]);
    }
    free(zeros);
    if (!status)
        status = kiln_buffer_create(context, KILN_F32, 2, angles, &session->cosine);
    if (!status)
        status = kiln_buffer_create(context, KILN_F32, 2, angles, &session->sine);
    return status ? status : fill_angles(session);
}

static kiln_status fill(kiln_lm_session *session, const kiln_lm_session_options *own)
{
    const struct kiln__lm_shape *shape = &session->lm->shape;
    session->context = own->context                     ? own->context
                       : shape->context < USUAL_CONTEXT ? shape->context
                                                        : USUAL_CONTEXT;
    session->cache = own->cache ? own->cache : session->lm->stored ? session->lm->stored : KILN_F32;
    session->sampling =
        (struct kiln__sampling){own->temperature, own->top_k, own->top_p, own->min_p};
    session->seed = own->seed;
    session->text = malloc(session->context * sizeof *session->text);
    session->logits = malloc(shape->words * sizeof *session->logits);
    session->choices = malloc(shape->words * sizeof *session->choices);
    if (!session->text || !session->logits || !session->choices)
        return kiln__lm_no_memory("kiln_lm_session_create");
    return make_caches(session);
}

kiln_status kiln_lm_session_create(kiln_lm *lm, const kiln_lm_session_options *options,
                                   kiln_lm_session **session)
{
    kiln_lm_session_options own = KILN_LM_SESSION_OPTIONS_INIT;
    if (session)
        *session = NULL;
    if (!lm || !session)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_session_create: %s is NULL",
                             lm ? "session" : "lm");
    kiln_status status = kiln__lm_read_options(
        "kiln_lm_session_create", "KILN_LM_SESSION_OPTIONS_INIT", options, &own, sizeof own);
    if (!status)
        status = check_options(&own);
    if (status)
        return status;
    kiln_lm_session *made = calloc(1, sizeof *made);
    if (!made)
        return kiln__lm_no_memory("kiln_lm_session_create");
    atomic_fetch_add(&lm->references, 1);
    made->lm = lm;
    status = fill(made, &own);
    if (status)
        kiln_lm_session_release(made);
    else
        *session = made;
    return status;
}

void kiln_lm_session_release(kiln_lm_session *session)
{
    if (!session)
        return;
    for (size_t i = 0; i < KILN__LM_STEPS; i++)
        kiln_batch_release(session->steps[i]);
    for (size_t i = 0; i < session->lm->shape.layers; i++) {
        kiln_buffer_release(session->keys ? session->keys[i] : NULL);
        kiln_buffer_release(session->values ? session->values[i] : NULL);
    }
    free(session->keys);
    free(session->values);
    kiln_buffer_release(session->cosine);
    kiln_buffer_release(session->sine);
    free(session->text);
    free(session->logits);
    free(session->choices);
    kiln_lm_release(session->lm);
    free(session);
}

/* ---- steps ---- */

/* Chunks of a prompt, so that few batches serve all lengths. */
static const size_t sizes[KILN__LM_STEPS] = {1, 8, 32, 128, KILN__LM_MOST_ROWS};

/* The size that takes `count` tokens, or the largest that `room` has, places that are left. */
static size_t choose_size(size_t count, size_t room)
{
    size_t i = 0;
    while (i + 1 < KILN__LM_STEPS && sizes[i] < count && sizes[i + 1] <= room)
        i++;
    return i;
}

/* The model sees the next tokens of the text, as many as one run takes. Those that fill a chunk up,
 * the last one again and again, leave keys behind the text, which nobody sees before they are
 * written anew. A run that failed may have spoilt any key: all are made again. */
static kiln_status run_step(kiln_lm_session *session, size_t length)
{
    const size_t left = length - session->seen;
    const size_t size = choose_size(left, session->context - session->seen), rows = sizes[size];
    const size_t count = left < rows ? left : rows;
    kiln_batch **step = &session->steps[size];
    kiln_status status = *step ? KILN_OK : kiln__lm_record(session, rows, step);
    if (status)
        return status;
    for (size_t i = 0; i < rows; i++)
        session->rows[i] = session->text[session->seen + (i < count ? i : count - 1)];
    session->position = (int32_t)session->seen;
    session->last = (int32_t)count - 1;
    session->has_logits = false;
    status = kiln_batch_execute(*step);
    if (status) {
        session->seen = 0;
        return kiln_error_set(status, kiln_batch_error(*step));
    }
    session->seen += count;
    session->has_logits = true;
    return KILN_OK;
}

/* The logits behind the first `length` tokens. */
static kiln_status catch_up(kiln_lm_session *session, size_t length)
{
    kiln_status status = KILN_OK;
    if (!session->has_logits && session->seen == length)
        session->seen--;
    while (session->seen < length && !status)
        status = run_step(session, length);
    return status;
}

/* ---- the text ---- */

kiln_status kiln_lm_feed(kiln_lm_session *session, const int32_t *tokens, size_t count)
{
    if (!session || (!tokens && count))
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_feed: %s is NULL",
                             session ? "tokens" : "session");
    const size_t words = session->lm->shape.words;
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || (size_t)tokens[i] >= words)
            return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                                 "kiln_lm_feed: token %zu is %d, and the model has %zu", i,
                                 (int)tokens[i], words);
    if (count > session->context - session->length)
        return kiln__lm_fail(KILN_TOO_LARGE,
                             "kiln_lm_feed: %zu tokens and the %zu of the text are more than the "
                             "session's context of %zu",
                             count, session->length, session->context);
    if (!count)
        return KILN_OK;
    memcpy(session->text + session->length, tokens, count * sizeof *tokens);
    const size_t before = session->length;
    kiln_status status = catch_up(session, before + count);
    if (!status) {
        session->length += count;
    } else if (session->seen > before) { /* by steps that went well */
        session->seen = before;
        session->has_logits = false;
    }
    return status;
}

static kiln_status need_logits(const char *call, kiln_lm_session *session)
{
    if (!session->length)
        return kiln__lm_fail(KILN_WRONG_STATE, "%s: nothing was fed to the session", call);
    return catch_up(session, session->length);
}

kiln_status kiln_lm_next(kiln_lm_session *session, int32_t *token)
{
    if (!session || !token)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_next: %s is NULL",
                             session ? "token" : "session");
    if (session->length && session->length == session->context)
        return kiln__lm_fail(KILN_TOO_LARGE, "kiln_lm_next: the session's context of %zu is full",
                             session->context);
    kiln_status status = need_logits("kiln_lm_next", session);
    if (status)
        return status;
    const int32_t chosen =
        kiln__sample(&session->sampling, session->logits, session->lm->shape.words,
                     kiln__draw(session->seed, session->length), session->choices);
    if (chosen < 0)
        return kiln__lm_fail(KILN_BAD_VALUE, "kiln_lm_next: the model made NaN of %zu tokens",
                             session->length);
    session->text[session->length++] = *token = chosen;
    return KILN_OK;
}

kiln_status kiln_lm_logits(kiln_lm_session *session, float *logits, size_t count)
{
    if (!session || !logits)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_logits: %s is NULL",
                             session ? "logits" : "session");
    if (count != session->lm->shape.words)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "kiln_lm_logits: count is %zu, and the model has %zu tokens", count,
                             session->lm->shape.words);
    kiln_status status = need_logits("kiln_lm_logits", session);
    if (!status)
        memcpy(logits, session->logits, count * sizeof *logits);
    return status;
}

size_t kiln_lm_session_length(const kiln_lm_session *session)
{
    return session ? session->length : 0;
}

size_t kiln_lm_session_context(const kiln_lm_session *session)
{
    return session ? session->context : 0;
}

kiln_status kiln_lm_session_truncate(kiln_lm_session *session, size_t length)
{
    if (!session)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_session_truncate: session is NULL");
    if (length > session->length)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "kiln_lm_session_truncate: length is %zu, and the text has %zu tokens",
                             length, session->length);
    session->length = length;
    if (session->seen > length) {
        session->seen = length;
        session->has_logits = false;
    }
    return KILN_OK;
}
