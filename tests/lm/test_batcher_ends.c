/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that end among others: who leaves, and when; in many threads; errors and failures. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

#include "../support/layer.h"
#include "batched.h"

TestSuite(batcher_ends, .init = open_model, .fini = close_model);

/* ---- who leaves, and when ---- */

static void check_ends(void)
{
    kiln_lm_batcher *batcher = open_batcher(2);
    int32_t text[MOST];
    make_text(text, MOST, 3);
    kiln_lm_request *one = submit(batcher, text, MOST - 1, 0); /* room for one token */
    kiln_lm_request *two = submit(batcher, prompt, PROMPT_COUNT, 1);
    run_all(batcher);
    cr_expect_eq(kiln_lm_request_read(one, 0, text, MOST), 1u);
    expect_answer(two, answer, 1);
    cr_expect_eq(kiln_lm_request_read(two, 1, text, MOST), 0u);
    kiln_lm_request_release(one);
    kiln_lm_request_release(two);

    /* A token that ends an answer is its last one. */
    lm->tokenizer.ends[answer[3]] = true;
    one = submit(batcher, prompt, PROMPT_COUNT, 0);
    run_all(batcher);
    size_t count = 0;
    while (answer[count] != answer[3])
        count++;
    expect_answer(one, answer, count + 1);
    lm->tokenizer.ends[answer[3]] = false;
    kiln_lm_request_release(one);
    kiln_lm_batcher_release(batcher);
}

static void check_cancelled(void)
{
    kiln_lm_batcher *batcher = open_batcher(2);
    kiln_lm_request *requests[5];
    for (size_t i = 0; i < 5; i++)
        requests[i] = submit(batcher, prompt, PROMPT_COUNT, 40);
    for (size_t i = 0; i < 3; i++)
        expect_ok(kiln_lm_batcher_step(batcher));
    cr_expect(stats_now(batcher).running == 2 && stats_now(batcher).queued == 3);
    kiln_lm_request_cancel(requests[0]); /* goes on */
    kiln_lm_request_cancel(requests[3]); /* waits */
    kiln_lm_request_release(requests[4]);
    kiln_lm_request_cancel(NULL);
    cr_expect_eq(stats_now(batcher).queued, 1u);
    expect_error_part(kiln_lm_request_poll(requests[0]), KILN_CANCELLED, "it was cancelled");
    expect_error_part(kiln_lm_request_poll(requests[3]), KILN_CANCELLED, "it was cancelled");
    run_all(batcher);
    expect_answer(requests[1], answer, 40);
    expect_answer(requests[2], answer, 40);
    kiln_lm_request_cancel(requests[1]); /* has ended: stays as it is */
    expect_ok(kiln_lm_request_poll(requests[1]));
    cr_expect_eq(stats_now(batcher).cancelled, 3u);
    /* A batcher's end is that of what waits. */
    kiln_lm_request *late[3];
    for (size_t i = 0; i < 3; i++)
        late[i] = submit(batcher, prompt, PROMPT_COUNT, 40);
    int32_t token;
    while (!kiln_lm_request_read(late[0], 0, &token, 1))
        expect_ok(kiln_lm_batcher_step(batcher));
    kiln_lm_batcher_release(batcher);
    cr_expect_eq(token, answer[0]);
    for (size_t i = 0; i < 3; i++) {
        expect_error_part(kiln_lm_request_poll(late[i]), KILN_CANCELLED, "it was cancelled");
        kiln_lm_request_release(late[i]);
    }
    for (size_t i = 0; i < 4; i++)
        kiln_lm_request_release(requests[i]);
}

static void check_deadlines(void)
{
    kiln_lm_batcher *batcher = open_batcher(2);
    kiln_lm_request_options options = KILN_LM_REQUEST_OPTIONS_INIT;
    kiln_lm_request *late, *low, *high, *first[2];
    options.deadline_us = 1;
    expect_ok(kiln_lm_batcher_submit(batcher, prompt, PROMPT_COUNT, &options, &late));
    while (kiln__lm_now() <= late->deadline)
        ;
    cr_expect_eq(kiln_lm_batcher_step(batcher), KILN_NOT_READY);
    expect_error_part(kiln_lm_request_poll(late), KILN_TIMED_OUT, "its deadline passed");
    options.deadline_us = UINT64_MAX;
    options.priority = KILN_PRIORITY_LOW;
    options.max_tokens = 2;
    for (size_t i = 0; i < 2; i++)
        first[i] = submit(batcher, prompt, PROMPT_COUNT, 10);
    expect_ok(kiln_lm_batcher_step(batcher));
    expect_ok(kiln_lm_batcher_step(batcher));
    expect_ok(kiln_lm_batcher_submit(batcher, prompt, PROMPT_COUNT, &options, &low));
    options.priority = KILN_PRIORITY_HIGH;
    expect_ok(kiln_lm_batcher_submit(batcher, prompt, PROMPT_COUNT, &options, &high));
    while (kiln_lm_request_poll(high) == KILN_NOT_READY)
        expect_ok(kiln_lm_batcher_step(batcher));
    cr_expect_eq(kiln_lm_request_poll(low), KILN_NOT_READY);
    /* One that goes on ends, too; what it has so far can be read. */
    first[1]->deadline = 0;
    run_all(batcher);
    cr_expect(kiln_lm_request_poll(first[1]) == KILN_OK ||
              kiln_lm_request_poll(first[1]) == KILN_TIMED_OUT);
    expect_answer(low, answer, 2);
    expect_answer(high, answer, 2);
    kiln_lm_request_release(late);
    kiln_lm_request_release(low);
    kiln_lm_request_release(high);
    kiln_lm_request_release(first[0]);
    kiln_lm_request_release(first[1]);
    kiln_lm_batcher_release(batcher);
}

/* A NaN ends its own text alone. */
static void check_nan(void)
{
    kiln_lm_batcher *batcher = open_batcher(2);
    kiln_lm_request *spoilt = submit(batcher, prompt, PROMPT_COUNT, 20);
    kiln_lm_request *other = submit(batcher, prompt, PROMPT_COUNT, 20);
    while (!other->going)
        expect_ok(kiln_lm_batcher_step(batcher));
    /* Its value of its first token, in the first slot. */
    const float nan_value = NAN;
    expect_ok(kiln_buffer_write(batcher->caches.values[0], 0, &nan_value, sizeof nan_value));
    run_all(batcher);
    expect_error_part(kiln_lm_request_poll(spoilt), KILN_BAD_VALUE, "the model made NaN of");
    expect_answer(other, answer, 20);
    cr_expect(stats_now(batcher).failed == 1 && stats_now(batcher).completed == 1);
    kiln_lm_request_release(spoilt);
    kiln_lm_request_release(other);
    kiln_lm_batcher_release(batcher);
}

Test(batcher_ends, leaving)
{
    check_ends();
    check_cancelled();
    check_deadlines();
    check_nan();
}

/* ---- many threads ---- */

enum { THREADS = 4, EACH = 6 };

static void *ask(void *user)
{
    kiln_lm_batcher *batcher = user;
    for (int i = 0; i < EACH; i++) {
        kiln_lm_request *request = submit(batcher, prompt, PROMPT_COUNT, 8);
        if (i % 3 == 2) {
            kiln_lm_request_release(request);
            continue;
        }
        while (kiln_lm_request_poll(request) == KILN_NOT_READY)
            usleep(1000);
        expect_answer(request, answer, 8);
        kiln_lm_request_release(request);
    }
    return NULL;
}

Test(batcher_ends, threads)
{
    kiln_lm_batcher *batcher = open_batcher(4);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        cr_assert_not(pthread_create(&threads[i], NULL, ask, batcher));
    for (kiln_lm_batcher_stats stats = {0}; stats.completed + stats.cancelled < THREADS * EACH;
         stats = stats_now(batcher))
        if (kiln_lm_batcher_step(batcher))
            usleep(1000);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_expect_geq(stats_now(batcher).completed, (uint64_t)THREADS * EACH * 2 / 3);
    kiln_lm_batcher_release(batcher);
}

/* ---- errors ---- */

static void expect_refused_options(kiln_lm_batcher_options options, kiln_status status,
                                   const char *part)
{
    kiln_lm_batcher *batcher;
    options.size = sizeof options;
    expect_error_part(kiln_lm_batcher_create(lm, &options, &batcher), status, part);
    cr_expect_not(batcher);
}

static void check_memory_limit(void)
{
    kiln_lm_batcher_options options = KILN_LM_BATCHER_OPTIONS_INIT;
    kiln_lm_batcher *batcher;
    const uint64_t slot =
        2 * 2 * 2 * 100 * 16 * 4; /* layers, keys and values, pairs, tokens, size */
    options.context = 100;
    options.memory_limit = 3 * slot - 1;
    expect_refused_options(options, KILN_OUT_OF_DEVICE_MEMORY,
                           "two texts of 100 tokens and a prompt's need 153600 bytes for keys and "
                           "values, and options->memory_limit is 153599");
    options.memory_limit = 6 * slot - 1;
    expect_ok(kiln_lm_batcher_create(lm, &options, &batcher));
    cr_expect(stats_now(batcher).slots == 4 && stats_now(batcher).cache_bytes == 5 * slot);
    kiln_lm_batcher_release(batcher);
    /* Beginnings of prompts have what the slots leave. */
    options.context = 400;
    options.slots = 2;
    options.memory_limit = 3 * 4 * slot + 3 * 128 * slot / 100 - 1;
    expect_ok(kiln_lm_batcher_create(lm, &options, &batcher));
    cr_expect_eq(stats_now(batcher).cache_bytes, 3 * 4 * slot + 2 * 128 * slot / 100);
    kiln_lm_batcher_release(batcher);
    options.memory_limit = 0;
    expect_ok(kiln_lm_batcher_create(lm, &options, &batcher));
    cr_expect_eq(stats_now(batcher).cache_bytes, 3 * 4 * slot + 3 * 128 * slot / 100);
    kiln_lm_batcher_release(batcher);
}

static void check_wrong_calls(void)
{
    kiln_lm_request_options wrong = KILN_LM_REQUEST_OPTIONS_INIT;
    kiln_lm_batcher_stats stats;
    kiln_lm_batcher *batcher;
    kiln_lm_request *request;
    int32_t tokens[] = {3, WORDS}, long_text[MOST] = {0};
    expect_refused_options((kiln_lm_batcher_options){.slots = 1}, KILN_INVALID_ARGUMENT,
                           "options->slots is 1, not from 2 to 64");
    expect_refused_options((kiln_lm_batcher_options){.slots = 65}, KILN_INVALID_ARGUMENT,
                           "options->slots is 65");
    expect_refused_options((kiln_lm_batcher_options){.max_queue = SIZE_MAX}, KILN_INVALID_ARGUMENT,
                           "options->max_queue is");
    expect_refused_options((kiln_lm_batcher_options){.cache = KILN_I8}, KILN_INVALID_ARGUMENT,
                           "options->cache is i8");
    expect_refused_options((kiln_lm_batcher_options){.slots = 64, .context = INT32_MAX / 2},
                           KILN_TOO_LARGE, "elements of keys in a layer");
    expect_error_part(kiln_lm_batcher_create(NULL, NULL, &batcher), KILN_INVALID_ARGUMENT,
                      "lm is NULL");
    kiln_lm_batcher_options options = KILN_LM_BATCHER_OPTIONS_INIT;
    options.max_queue = 1;
    options.context = MOST;
    expect_ok(kiln_lm_batcher_create(lm, &options, &batcher));
    expect_error_part(kiln_lm_batcher_submit(batcher, tokens, 0, NULL, &request),
                      KILN_INVALID_ARGUMENT, "no tokens to go on from");
    expect_error_part(kiln_lm_batcher_submit(batcher, tokens, 2, NULL, &request),
                      KILN_INVALID_ARGUMENT, "token 1 is 400, and the model has 400");
    expect_error_part(kiln_lm_batcher_submit(batcher, long_text, MOST, NULL, &request),
                      KILN_TOO_LARGE,
                      "400 tokens leave no room for an answer in the context of 400");
    wrong.temperature = -1;
    expect_error_part(kiln_lm_batcher_submit(batcher, tokens, 1, &wrong, &request),
                      KILN_INVALID_ARGUMENT, "options->temperature is -1");
    wrong.temperature = 0;
    wrong.priority = (kiln_priority)3;
    expect_error_part(kiln_lm_batcher_submit(batcher, tokens, 1, &wrong, &request),
                      KILN_INVALID_ARGUMENT, "options->priority is 3");
    wrong.size = 3;
    expect_error_part(kiln_lm_batcher_submit(batcher, tokens, 1, &wrong, &request),
                      KILN_INVALID_ARGUMENT, "start from KILN_LM_REQUEST_OPTIONS_INIT");
    cr_expect_not(request);
    kiln_lm_request *waits = submit(batcher, tokens, 1, 1);
    expect_error_part(kiln_lm_batcher_submit(batcher, tokens, 1, NULL, &request), KILN_BUSY,
                      "1 requests wait already");
    expect_ok(kiln_lm_batcher_get_stats(batcher, &stats));
    cr_expect(stats.refused == 7 && stats.requests == 1);
    expect_error_part(kiln_lm_batcher_step(NULL), KILN_INVALID_ARGUMENT, "batcher is NULL");
    expect_error_part(kiln_lm_request_poll(NULL), KILN_INVALID_ARGUMENT, "request is NULL");
    expect_error_part(kiln_lm_batcher_get_stats(NULL, &stats), KILN_INVALID_ARGUMENT,
                      "batcher is NULL");
    cr_expect_eq(kiln_lm_request_read(NULL, 0, tokens, 2), 0u);
    kiln_lm_request_release(waits);
    kiln_lm_request_release(NULL);
    kiln_lm_batcher_release(batcher);
    kiln_lm_batcher_release(NULL);
}

Test(batcher_ends, refused)
{
    check_memory_limit();
    check_wrong_calls();
}

/* Whichever call fails, all texts come to their ends. */
static void expect_survival(enum kiln_layer_where where)
{
    enum { MOST_CALLS = 4000, APART = 29 };
    kiln_lm_batcher *batcher = open_batcher(2);
    unsigned long n = 1, failed = 0;
    for (bool hit = true; hit && n < MOST_CALLS; n += APART) {
        kiln_lm_request *requests[3];
        for (size_t i = 0; i < 3; i++)
            requests[i] = submit(batcher, prompt, PROMPT_COUNT, 4);
        layer_fail(n, NULL, -5, KILN_LAYER_ONCE, where);
        kiln_status status;
        while ((status = kiln_lm_batcher_step(batcher)) != KILN_NOT_READY)
            failed += status != KILN_OK;
        hit = layer_failures() > 0;
        layer_reset();
        for (size_t i = 0; i < 3; i++) {
            expect_answer(requests[i], answer, 4);
            kiln_lm_request_release(requests[i]);
        }
    }
    cr_expect(n < MOST_CALLS && failed, "%lu calls, %lu errors", n, failed);
    cr_expect_eq(stats_now(batcher).failed_steps, failed);
    kiln_lm_batcher_release(batcher);
}

/* Whichever call fails around what is kept of prompts, they are answered as ever. */
static void expect_kept_survival(enum kiln_layer_where where)
{
    enum { MOST_CALLS = 4000, APART = 31, LONG = 140 };
    kiln_lm_batcher *batcher = open_batcher(2);
    int32_t texts[4][LONG], answers[4][4], own[4];
    unsigned long n = 1;
    for (unsigned i = 0; i < 4; i++)
        make_text(texts[i], LONG, 60 + i);
    for (bool hit = true; hit && n < MOST_CALLS; n += APART) {
        for (unsigned i = 0; i < 4; i++) { /* more than are kept */
            kiln_lm_request *request = submit(batcher, texts[i], LONG, 4);
            if (n > 1)
                layer_fail(n, NULL, -5, KILN_LAYER_ONCE, where);
            while (kiln_lm_batcher_step(batcher) != KILN_NOT_READY)
                ;
            hit = n == 1 || layer_failures() > 0;
            layer_reset();
            expect_ok(kiln_lm_request_poll(request));
            cr_assert_eq(kiln_lm_request_read(request, 0, n > 1 ? own : answers[i], 4), 4);
            cr_assert(n == 1 || !memcmp(own, answers[i], sizeof own), "call %lu", n);
            kiln_lm_request_release(request);
        }
    }
    cr_expect(n > 2 * APART && n < MOST_CALLS, "%lu calls", n);
    kiln_lm_batcher_release(batcher);
}

/* A text in another slot is not spoilt by a prompt's run or move that fails, wherever that is. */
static void expect_others_unharmed(enum kiln_layer_where where)
{
    enum { MOST_CALLS = 4000, COUNT = 8 }; /* read in one run */
    kiln_lm_batcher *batcher = open_batcher(2);
    int32_t text[COUNT], token;
    make_text(text, COUNT, 3);
    unsigned long n = 1, moves = 0;
    for (bool hit = true; hit && n < MOST_CALLS; n++) {
        kiln_lm_request *first = submit(batcher, prompt, PROMPT_COUNT, ANSWER_COUNT);
        while (!kiln_lm_request_read(first, 0, &token, 1))
            expect_ok(kiln_lm_batcher_step(batcher));
        kiln_lm_request *other = submit(batcher, text, COUNT, 2);
        layer_fail(n, NULL, -5, KILN_LAYER_ONCE, where);
        (void)!kiln_lm_batcher_step(batcher);
        hit = layer_failures() > 0;
        layer_reset();
        if (batcher->reading && batcher->readers[0]->seen == COUNT) { /* it was the move */
            cr_expect_not(first->going);
            moves++;
        }
        run_all(batcher);
        expect_answer(first, answer, ANSWER_COUNT);
        kiln_lm_request_release(first);
        kiln_lm_request_release(other);
    }
    cr_expect(n < MOST_CALLS && moves, "%lu calls, %lu moves", n, moves);
    kiln_lm_batcher_release(batcher);
}

/* What fails again and again is told. */
static void check_failure_that_stays(void)
{
    kiln_lm_batcher *batcher = open_batcher(2);
    kiln_lm_request *request = submit(batcher, prompt, PROMPT_COUNT, 20);
    expect_ok(kiln_lm_batcher_step(batcher));
    layer_fail(1, "clEnqueueNDRangeKernel", -5, KILN_LAYER_FOREVER, KILN_LAYER_CALL);
    unsigned failed = 0;
    for (kiln_status status; (status = kiln_lm_batcher_step(batcher)) != KILN_NOT_READY;)
        failed += status != KILN_OK;
    layer_reset();
    cr_expect_eq(failed, (unsigned)KILN__LM_MOST_FAILURES);
    cr_expect(kiln_lm_request_poll(request) != KILN_OK && *kiln_last_error());
    kiln_lm_request_release(request);
    request = submit(batcher, prompt, PROMPT_COUNT, 4);
    run_all(batcher);
    expect_answer(request, answer, 4);
    kiln_lm_request_release(request);
    kiln_lm_batcher_release(batcher);
}

Test(batcher_ends, failures)
{
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    expect_survival(KILN_LAYER_CALL);
    expect_survival(KILN_LAYER_EVENT);
    expect_kept_survival(KILN_LAYER_CALL);
    expect_kept_survival(KILN_LAYER_EVENT);
    expect_others_unharmed(KILN_LAYER_CALL);
    expect_others_unharmed(KILN_LAYER_EVENT);
    check_failure_that_stays();
}
