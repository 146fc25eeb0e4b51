/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that go on together: the same bits alone and in company, who waits, who leaves, errors. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "known.h"
#include "lm/batcher.h"
#include "tiny.h"
#include "tiny_model.h"

enum { MOST = 400 }; /* tokens of a text */

TestSuite(batcher, .init = open_model, .fini = close_model);

static kiln_lm_batcher *open_batcher(size_t slots)
{
    kiln_lm_batcher_options options = KILN_LM_BATCHER_OPTIONS_INIT;
    kiln_lm_batcher *batcher;
    options.slots = slots;
    options.context = MOST;
    expect_ok(kiln_lm_batcher_create(lm, &options, &batcher));
    return batcher;
}

static kiln_lm_request *submit(kiln_lm_batcher *batcher, const int32_t *tokens, size_t count,
                               size_t max_tokens)
{
    kiln_lm_request_options options = KILN_LM_REQUEST_OPTIONS_INIT;
    kiln_lm_request *request;
    options.max_tokens = max_tokens;
    expect_ok(kiln_lm_batcher_submit(batcher, tokens, count, &options, &request));
    return request;
}

static kiln_lm_batcher_stats stats_now(kiln_lm_batcher *batcher)
{
    kiln_lm_batcher_stats stats;
    expect_ok(kiln_lm_batcher_get_stats(batcher, &stats));
    return stats;
}

/* Until there is nothing to do. */
static void run_all(kiln_lm_batcher *batcher)
{
    kiln_status status;
    while (!(status = kiln_lm_batcher_step(batcher)))
        ;
    cr_assert_eq(status, KILN_NOT_READY, "%s", kiln_last_error());
}

/* Some text of its own for each number, without tokens that end one. */
static void make_text(int32_t *tokens, size_t count, unsigned number)
{
    uint32_t state = number + 1;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525 + 1013904223;
        tokens[i] = 3 + (int32_t)((state >> 8) % (WORDS - 3));
    }
}

static void expect_answer(kiln_lm_request *request, const int32_t *wanted, size_t count)
{
    int32_t tokens[MOST];
    expect_ok(kiln_lm_request_poll(request));
    cr_assert_eq(kiln_lm_request_read(request, 0, tokens, MOST), count);
    cr_expect_arr_eq(tokens, wanted, count * sizeof *tokens);
}

/* ---- the same bits ---- */

/* The logits of each token of an answer. */
struct logits {
    float rows[ANSWER_COUNT][WORDS];
};

/* The request's tokens, as they come. Companions join one by one behind it and leave before. */
static void gather_in_company(kiln_lm_batcher *batcher, const int32_t *tokens, size_t count,
                              unsigned companions, bool joins_last, struct logits *logits)
{
    kiln_lm_request *others[16], *request = NULL;
    unsigned there = 0, step = 0;
    size_t done = 0;
    if (!joins_last)
        request = submit(batcher, tokens, count, ANSWER_COUNT);
    for (; done < ANSWER_COUNT; step++) {
        if (there < companions) {
            int32_t text[MOST];
            const size_t length = 1 + there * 37 % 150;
            make_text(text, length, there);
            others[there] = submit(batcher, text, length, 5 + 7 * there);
            there++;
        } else if (!request) {
            request = submit(batcher, tokens, count, ANSWER_COUNT);
        }
        expect_ok(kiln_lm_batcher_step(batcher));
        if (request && request->length > count + done)
            memcpy(logits->rows[done++], request->logits, sizeof *logits->rows);
        cr_assert_lt(step, 1000u);
    }
    kiln_lm_request_release(request);
    run_all(batcher);
    for (unsigned i = 0; i < there; i++)
        kiln_lm_request_release(others[i]);
}

static void expect_same_bits(const int32_t *tokens, size_t count, unsigned slots)
{
    static struct logits alone, beside;
    kiln_lm_batcher *batcher = open_batcher(slots);
    gather_in_company(batcher, tokens, count, 0, false, &alone);
    for (unsigned companions = 1; companions < slots; companions++) {
        const bool joins_last = companions % 2;
        gather_in_company(batcher, tokens, count, companions, joins_last, &beside);
        for (size_t i = 0; i < ANSWER_COUNT; i++)
            cr_assert(!memcmp(alone.rows[i], beside.rows[i], sizeof *alone.rows),
                      "%u companions, joined %s: token %zu", companions,
                      joins_last ? "last" : "first", i);
    }
    kiln_lm_batcher_release(batcher);
}

/* What a prompt has in common with the one before is not read again, and changes nothing. */
static void check_shared_prefix(void)
{
    static struct logits fresh, shared;
    int32_t text[MOST], before[MOST];
    make_text(text, 300, 5);
    memcpy(before, text, sizeof text);
    before[280]++;
    kiln_lm_batcher *batcher = open_batcher(2);
    gather_in_company(batcher, text, 300, 0, false, &fresh);
    cr_expect_eq(stats_now(batcher).shared_tokens, 0u);
    kiln_lm_request_release(submit(batcher, text + 1, 20, 1)); /* never read */
    kiln_lm_request *request = submit(batcher, before, 290, 1);
    run_all(batcher);
    kiln_lm_request_release(request);
    cr_expect_eq(stats_now(batcher).shared_tokens, 256u);
    gather_in_company(batcher, text, 300, 0, false, &shared);
    cr_expect_eq(stats_now(batcher).shared_tokens, 512u);
    cr_expect(!memcmp(&fresh, &shared, sizeof fresh));
    kiln_lm_batcher_release(batcher);
}

Test(batcher, same_bits)
{
    int32_t text[MOST];
    expect_same_bits(prompt, PROMPT_COUNT, 12); /* more than kernels for few rows take */
    make_text(text, 201, 99);                   /* two parts */
    expect_same_bits(text, 201, 4);
    check_shared_prefix();
}

/* Weights that are no blocks take other kernels. */
Test(batcher, same_bits_of_floats)
{
    kiln_lm *blocks = lm;
    kiln_lm_options options = KILN_LM_OPTIONS_INIT;
    options.weights = KILN_BF16;
    expect_ok(kiln_lm_load(context, tiny_path(), &options, &lm));
    expect_same_bits(prompt, PROMPT_COUNT, 4);
    kiln_lm_release(lm);
    lm = blocks;
}

/* ---- numbers ---- */

/* The known answer, and the numbers behind its first token; beside others all the same. */
static void check_answer(void)
{
    kiln_lm_batcher *batcher = open_batcher(4);
    kiln_lm_request *requests[7]; /* more than there are slots */
    for (size_t i = 0; i < 7; i++)
        requests[i] = submit(batcher, prompt, PROMPT_COUNT, ANSWER_COUNT);
    expect_ok(kiln_lm_batcher_step(batcher));
    for (size_t i = 0; i < WORDS; i++)
        cr_assert_lt(fabs((double)requests[0]->logits[i] - logits_known[i]), 2e-4);
    cr_expect_eq(kiln_lm_request_poll(requests[0]), KILN_NOT_READY);
    run_all(batcher);
    for (size_t i = 0; i < 7; i++) {
        expect_answer(requests[i], answer, ANSWER_COUNT);
        kiln_lm_request_release(requests[i]);
    }
    const kiln_lm_batcher_stats stats = stats_now(batcher);
    cr_expect(stats.requests == 7 && stats.completed == 7 && stats.tokens == 7 * ANSWER_COUNT);
    cr_expect(stats.prompt_tokens == 7 * PROMPT_COUNT && stats.shared_tokens == 0);
    cr_expect(stats.slots == 4 && stats.running == 0 && stats.queued == 0);
    cr_expect(stats.fill > 0.5 && stats.fill <= 1 && stats.first.count == 7 &&
              stats.total.count == 7);
    kiln_lm_batcher_release(batcher);
}

/* A draw depends on the seed and the place alone, and is a session's. */
static void check_drawn(void)
{
    kiln_lm_request_options options = KILN_LM_REQUEST_OPTIONS_INIT;
    int32_t first[20], again[20];
    options.temperature = 1.5;
    options.seed = 7;
    options.max_tokens = 20;
    kiln_lm_batcher *batcher = open_batcher(4);
    kiln_lm_request *request, *other = NULL;
    for (int turn = 0; turn < 2; turn++) {
        if (turn)
            other = submit(batcher, prompt, 5, 30);
        expect_ok(kiln_lm_batcher_submit(batcher, prompt, PROMPT_COUNT, &options, &request));
        run_all(batcher);
        cr_assert_eq(kiln_lm_request_read(request, 0, turn ? again : first, 20), 20u);
        kiln_lm_request_release(request);
    }
    cr_expect_arr_eq(first, again, sizeof first);
    cr_expect(memcmp(first, answer, sizeof first));
    kiln_lm_request_release(other);
    kiln_lm_batcher_release(batcher);
}

/* Texts join and leave, and nothing is planned or compiled that has run before. */
static void check_recordings(void)
{
    kiln_lm_batcher *batcher = open_batcher(4);
    kiln_context_stats before = {0};
    for (int turn = 0; turn < 2; turn++) {
        kiln_lm_request *requests[6];
        before = stats_of(context);
        for (size_t i = 0; i < 6; i++)
            requests[i] = submit(batcher, prompt, PROMPT_COUNT - i, 4 + 5 * i);
        run_all(batcher);
        for (size_t i = 0; i < 6; i++)
            kiln_lm_request_release(requests[i]);
    }
    expect_nothing_made(&before);
    kiln_lm_batcher_release(batcher);
}

/* What is prepared neither plans nor compiles, whatever is asked. */
static void check_prepared(void)
{
    kiln_lm_batcher_options options = KILN_LM_BATCHER_OPTIONS_INIT;
    kiln_lm_batcher *batcher;
    int32_t text[MOST];
    kiln_lm_request *requests[5];
    options.slots = 4;
    options.context = MOST;
    options.prepare = 1;
    const uint64_t batches = stats_of(context).batches;
    expect_ok(kiln_lm_batcher_create(lm, &options, &batcher));
    const kiln_context_stats before = stats_of(context);
    cr_expect_eq(before.batches - batches, 4 + 2 + 2); /* chunks, numbers of lanes, lengths */
    make_text(text, MOST, 8);
    for (size_t i = 0; i < 5; i++)
        requests[i] = submit(batcher, text, 1 + 70 * i, 5);
    run_all(batcher);
    for (size_t i = 0; i < 5; i++)
        kiln_lm_request_release(requests[i]);
    expect_nothing_made(&before);
    kiln_lm_batcher_release(batcher);
}

/* Each key and value is written where it lies: a step takes no memory that grows with the caches,
 * and a move no more than a part. */
static void check_in_place(void)
{
    kiln_lm_batcher *batcher = open_batcher(8);
    kiln_lm_request *request = submit(batcher, prompt, PROMPT_COUNT, 3);
    run_all(batcher);
    const uint64_t cache = kiln_buffer_bytes(batcher->caches.keys[0]);
    cr_expect_lt(cost_of(batcher->steps[0]).peak_bytes, cache / 4);
    cr_expect_lt(cost_of(batcher->moves[0]).peak_bytes, cache / 8);
    kiln_lm_request_release(request);
    kiln_lm_batcher_release(batcher);
}

Test(batcher, numbers)
{
    check_answer();
    check_drawn();
    check_recordings();
    check_prepared();
    check_in_place();
}

/* ---- log-probabilities ---- */

/* Of one token: its own, and the best of all, by sums in double precision. */
static void expect_logprobs(const float *logits, const kiln_lm_logprob *found, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < WORDS; i++)
        sum += exp((double)logits[i]);
    for (size_t i = 0; i < count; i++) {
        size_t above = 0;
        for (size_t k = 0; k < WORDS; k++)
            above += logits[k] > logits[found[i].token] ||
                     (logits[k] == logits[found[i].token] && (int32_t)k < found[i].token);
        cr_expect_float_eq(found[i].logprob, (double)logits[found[i].token] - log(sum), 1e-5);
        cr_expect(i == 0 || above == i - 1, "%zu is better than %zu", i, above);
    }
}

Test(batcher, has_log_probabilities_of_each_token)
{
    kiln_lm_batcher *batcher = open_batcher(4);
    kiln_lm_request_options options = KILN_LM_REQUEST_OPTIONS_INIT;
    kiln_lm_request *request, *others[3];
    kiln_lm_logprob found[6];
    int32_t text[MOST], token;
    make_text(text, 40, 3);
    for (size_t i = 0; i < 3; i++)
        others[i] = submit(batcher, text, 10 + i, 20);
    options.max_tokens = 12;
    options.temperature = 1.5;
    options.logprobs = 5;
    expect_ok(kiln_lm_batcher_submit(batcher, text, 40, &options, &request));
    for (size_t done = 0; done < 12 && kiln_lm_request_poll(request) == KILN_NOT_READY;) {
        cr_expect_eq(kiln_lm_request_logprobs(request, done, found, 6), 0);
        expect_ok(kiln_lm_batcher_step(batcher));
        if (!kiln_lm_request_read(request, done, &token, 1))
            continue;
        cr_assert_eq(kiln_lm_request_logprobs(request, done++, found, 6), 5);
        cr_expect_eq(found[0].token, token);
        expect_logprobs(request->logits, found, 5);
    }
    cr_expect_eq(kiln_lm_request_logprobs(request, 0, found, 1), 1);
    cr_expect_eq(kiln_lm_request_logprobs(others[0], 0, found, 6), 0);
    cr_expect_eq(kiln_lm_request_logprobs(NULL, 0, found, 6), 0);
    run_all(batcher);
    for (size_t i = 0; i < 3; i++)
        kiln_lm_request_release(others[i]);
    kiln_lm_request_release(request);
    options.logprobs = WORDS + 1;
    cr_expect_eq(kiln_lm_batcher_submit(batcher, text, 40, &options, &request),
                 KILN_INVALID_ARGUMENT);
    kiln_lm_batcher_release(batcher);
}

/* An infinite logit has all of the probability, as the choice has it; none is NaN. */
Test(batcher, has_log_probabilities_of_infinite_logits)
{
    const float up[] = {1, INFINITY, 2, -INFINITY}, down[] = {1, -INFINITY, 1, -INFINITY};
    struct kiln_lm few = {.shape = {.words = 4}};
    kiln_lm_batcher batcher = {.lm = &few};
    kiln_lm_logprob found[4];
    kiln_lm_request request = {.batcher = &batcher, .kept = 4, .logprobs = found};
    kiln__lm_keep_logprobs(&request, up, 1);
    cr_expect_eq(found[0].logprob, 0);
    cr_expect_eq(found[1].token, 1);
    cr_expect_eq(found[1].logprob, 0);
    cr_expect_eq(found[2].token, 2);
    cr_expect_eq(found[2].logprob, -INFINITY);
    kiln__lm_keep_logprobs(&request, down, 2);
    cr_expect_float_eq(found[0].logprob, -log(2), 1e-6);
    cr_expect_eq(found[3].logprob, -INFINITY);
}

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
    expect_ok(kiln_lm_batcher_step(batcher));
    kiln_lm_batcher_release(batcher);
    int32_t token;
    cr_expect_eq(kiln_lm_request_read(late[0], 0, &token, 1), 1u);
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

Test(batcher, leaving)
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

Test(batcher, threads)
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

Test(batcher, refused)
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

/* A text in another slot is not spoilt by a prompt's run or move that fails, wherever that is. */
static void expect_others_unharmed(enum kiln_layer_where where)
{
    enum { MOST_CALLS = 4000, COUNT = 20 };
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
        if (batcher->reading && batcher->reader->seen == COUNT) { /* it was the move */
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

Test(batcher, failures)
{
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    expect_survival(KILN_LAYER_CALL);
    expect_survival(KILN_LAYER_EVENT);
    expect_others_unharmed(KILN_LAYER_CALL);
    expect_others_unharmed(KILN_LAYER_EVENT);
    check_failure_that_stays();
}
