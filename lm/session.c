/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: a text is fed in chunks of a few sizes, and goes on token by token. */
#include "lm/session.h"

#include <stdlib.h>
#include <string.h>

#include "lm/error.h"
#include "lm/structure.h"

void(kiln_lm_session_options_init)(kiln_lm_session_options *options, size_t size)
{
    static const kiln_lm_session_options own = KILN_LM_SESSION_OPTIONS_INIT;
    kiln__lm_options_fill(options, size, &own, sizeof own);
}

/* ---- beginning and end ---- */

/* Of the numbers by which tokens are drawn. */
kiln_status kiln__lm_check_sampling(const char *call, double temperature, double top_p,
                                    double min_p)
{
    if (!(temperature >= 0 && temperature < 1e6))
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: options->temperature is %g", call,
                             temperature);
    if (!(top_p >= 0 && top_p <= 1) || !(min_p >= 0 && min_p <= 1))
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "%s: options->top_p is %g and min_p %g; both are from 0 to 1", call,
                             top_p, min_p);
    return KILN_OK;
}

static kiln_status check_options(const kiln_lm_session_options *own)
{
    static const char call[] = "kiln_lm_session_create";
    kiln_status status = kiln__lm_check_caches(call, own->cache, own->context);
    return status ? status
                  : kiln__lm_check_sampling(call, own->temperature, own->top_p, own->min_p);
}

static kiln_status fill(kiln_lm_session *session, const kiln_lm_session_options *own)
{
    const kiln_lm *lm = session->lm;
    session->context = own->context ? own->context : kiln__lm_usual_context(lm);
    session->most_rows = KILN__LM_MOST_ROWS;
    session->caches =
        (struct kiln__lm_caches){.type = own->cache ? own->cache : kiln__lm_usual_cache(lm),
                                 .slots = 1,
                                 .context = session->context};
    session->sampling =
        (struct kiln__sampling){own->temperature, own->top_k, own->top_p, own->min_p};
    session->seed = own->seed;
    kiln_device_info device;
    const kiln_status status = kiln_context_device(lm->context, &device);
    if (status)
        return status;
    session->by_rows = device.type == KILN_DEVICE_CPU;
    session->text = malloc(session->context * sizeof *session->text);
    session->logits = malloc(lm->shape.words * sizeof *session->logits);
    session->choices = malloc(lm->shape.words * sizeof *session->choices);
    if (!session->text || !session->logits || !session->choices)
        return kiln__lm_no_memory("kiln_lm_session_create");
    return kiln__lm_caches_make("kiln_lm_session_create", lm, &session->caches);
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
    if (!status && lm->tokenizer.encodes)
        status = kiln__lm_fail(KILN_UNSUPPORTED,
                               "kiln_lm_session_create: %s is an encoder: its texts do not go on, "
                               "see kiln_lm_embed()",
                               lm->architecture);
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
    kiln__lm_caches_free(session->lm, &session->caches);
    free(session->text);
    free(session->logits);
    free(session->choices);
    kiln_lm_release(session->lm);
    free(session);
}

/* ---- steps ---- */

/* Chunks of a prompt, so that few batches serve all lengths. */
static const size_t sizes[KILN__LM_STEPS] = {1, 8, 32, 128, KILN__LM_MOST_ROWS};

/* The size that takes `count` tokens, or the largest of `most` or fewer. On CPUs a row takes its
 * time whatever is beside it: those behind 8 are to be three quarters full and more. */
static size_t choose_size(const kiln_lm_session *session, size_t count, size_t most)
{
    size_t i = 0;
    while (i + 1 < KILN__LM_STEPS && sizes[i] < count && sizes[i + 1] <= most &&
           (i == 0 || !session->by_rows || 4 * count > 3 * sizes[i + 1]))
        i++;
    return i;
}

static kiln_status record(kiln_lm_session *session, size_t rows, kiln_batch **batch)
{
    return kiln__lm_record(&(struct kiln__lm_step){.lm = session->lm,
                                                   .caches = &session->caches,
                                                   .lanes = 1,
                                                   .rows = rows,
                                                   .tokens = session->rows,
                                                   .positions = &session->position,
                                                   .last = &session->last,
                                                   .logits = session->logits},
                           batch);
}

/* Tokens that fill a chunk up, the last one again and again, leave keys behind the text, which
 * nobody sees before they are written anew. A run that failed may have spoilt any key: all are made
 * again. */
kiln_status kiln__lm_session_step(kiln_lm_session *session, size_t length)
{
    const size_t left = length - session->seen, room = session->context - session->seen;
    const size_t most = room < session->most_rows ? room : session->most_rows;
    const size_t size = choose_size(session, left, most), rows = sizes[size];
    const size_t count = left < rows ? left : rows;
    kiln_batch **step = &session->steps[size];
    kiln_status status = *step ? KILN_OK : record(session, rows, step);
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

kiln_status kiln__lm_session_try(kiln_batch *batch)
{
    kiln_status status = kiln_batch_prepare(batch, 0);
    status = status ? status : kiln_batch_execute(batch);
    return status ? kiln_error_set(status, kiln_batch_error(batch)) : KILN_OK;
}

kiln_status kiln__lm_session_prepare(kiln_lm_session *session)
{
    const size_t context = session->context;
    const size_t most = context < session->most_rows ? context : session->most_rows;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < KILN__LM_STEPS && sizes[i] <= most && !status; i++) {
        kiln_batch **step = &session->steps[i];
        status = *step ? KILN_OK : record(session, sizes[i], step);
        status = status ? status : kiln__lm_session_try(*step);
    }
    return status;
}

/* The logits behind the first `length` tokens. */
static kiln_status catch_up(kiln_lm_session *session, size_t length)
{
    kiln_status status = KILN_OK;
    if (!session->has_logits && session->seen == length)
        session->seen--;
    while (session->seen < length && !status)
        status = kiln__lm_session_step(session, length);
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

kiln_status kiln_lm_session_rewrite(kiln_lm_session *session, const int32_t *tokens, size_t count)
{
    static const char call[] = "kiln_lm_session_rewrite";
    size_t same = 0;
    if (!session || (!tokens && count))
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                             session ? "tokens" : "session");
    if (count > session->context)
        return kiln__lm_fail(KILN_TOO_LARGE,
                             "%s: %zu tokens are more than the session's context of %zu", call,
                             count, session->context);
    while (same < count && same < session->length && session->text[same] == tokens[same])
        same++;
    kiln_status status = kiln_lm_session_truncate(session, same);
    return status ? status : kiln_lm_feed(session, tokens + same, count - same);
}
