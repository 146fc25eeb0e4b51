/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that go on together: the same bits alone and in company, their log-probabilities. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "batched.h"

TestSuite(batcher, .init = open_model, .fini = close_model);

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

/* ---- prompts that began alike ---- */

enum { LONG = 300, WHOLE = 256 }; /* tokens of a text, and of its whole parts */

/* What may follow the text. */
static void gather_first(kiln_lm_batcher *batcher, const int32_t *text, size_t count, float *logits)
{
    kiln_lm_request *request = submit(batcher, text, count, 2);
    while (!request->logits)
        expect_ok(kiln_lm_batcher_step(batcher));
    memcpy(logits, request->logits, WORDS * sizeof *logits);
    run_all(batcher);
    kiln_lm_request_release(request);
}

/* The text is answered as ever; so many tokens of it were not read. */
static void expect_kept(kiln_lm_batcher *batcher, const int32_t *text, const float *fresh,
                        unsigned kept)
{
    float own[WORDS];
    const uint64_t before = stats_now(batcher).shared_tokens;
    gather_first(batcher, text, LONG, own);
    cr_expect_eq(stats_now(batcher).shared_tokens - before, kept, "%u, not %u",
                 (unsigned)(stats_now(batcher).shared_tokens - before), kept);
    cr_expect(!fresh || !memcmp(fresh, own, sizeof own));
}

static kiln_lm_batcher *open_keeping(size_t prefix_tokens)
{
    kiln_lm_batcher_options options = KILN_LM_BATCHER_OPTIONS_INIT;
    kiln_lm_batcher *batcher;
    options.slots = 2;
    options.context = MOST;
    options.prefix_tokens = prefix_tokens;
    options.prepare = 1;
    expect_ok(kiln_lm_batcher_create(lm, &options, &batcher));
    return batcher;
}

/* Texts by turns, in room for two: the one that was not read for the longest goes. */
static void check_turns(int32_t texts[3][MOST])
{
    float fresh[3][WORDS];
    kiln_lm_batcher *batcher = open_keeping(1); /* nothing is kept */
    for (unsigned i = 0; i < 3; i++)
        gather_first(batcher, texts[i], LONG, fresh[i]);
    for (unsigned i = 0; i < 3; i++)
        expect_kept(batcher, texts[i], fresh[i], 0);
    kiln_lm_batcher_release(batcher);
    batcher = open_keeping(2 * WHOLE + 127);
    expect_kept(batcher, texts[0], fresh[0], 0);
    expect_kept(batcher, texts[1], fresh[1], 0);
    expect_kept(batcher, texts[0], fresh[0], WHOLE);
    expect_kept(batcher, texts[2], fresh[2], 0); /* the second goes */
    expect_kept(batcher, texts[0], fresh[0], WHOLE);
    expect_kept(batcher, texts[1], fresh[1], 0); /* the third */
    expect_kept(batcher, texts[0], fresh[0], WHOLE);
    expect_kept(batcher, texts[2], NULL, 0);
    kiln_lm_batcher_release(batcher);
}

/* Two texts go on from one part in different ways; one is longer than all that is kept. */
static void check_branches(int32_t texts[3][MOST])
{
    int32_t branch[MOST], mixed[MOST];
    memcpy(branch, texts[0], sizeof branch);
    memcpy(branch + 130, texts[1] + 130, (MOST - 130) * sizeof *branch);
    kiln_lm_batcher *batcher = open_keeping(3 * 128);
    expect_kept(batcher, texts[0], NULL, 0);
    expect_kept(batcher, branch, NULL, 128);
    expect_kept(batcher, texts[0], NULL, WHOLE);
    expect_kept(batcher, branch, NULL, WHOLE);
    kiln_lm_batcher_release(batcher);
    float own[WORDS];
    memcpy(mixed, texts[1], 128 * sizeof *mixed); /* a part is another one behind another */
    memcpy(mixed + 128, texts[0] + 128, (MOST - 128) * sizeof *mixed);
    batcher = open_keeping(5 * 128);
    expect_kept(batcher, texts[1], NULL, 0);
    expect_kept(batcher, texts[0], NULL, 0);
    expect_kept(batcher, mixed, NULL, 128);
    kiln_lm_batcher_release(batcher);
    batcher = open_keeping(2 * 128); /* of a text the last part goes first */
    expect_kept(batcher, texts[0], NULL, 0);
    gather_first(batcher, texts[1], 140, own);
    expect_kept(batcher, texts[0], NULL, 128);
    kiln_lm_batcher_release(batcher);
    batcher = open_keeping(128); /* a page is first come, first served to the text's first part */
    expect_kept(batcher, texts[0], NULL, 0);
    expect_kept(batcher, texts[1], NULL, 0);
    expect_kept(batcher, texts[0], NULL, 0);
    expect_kept(batcher, branch, NULL, 128); /* from the text before */
    expect_kept(batcher, texts[1], NULL, 0);
    expect_kept(batcher, texts[2], NULL, 0);
    kiln_lm_batcher_release(batcher);
}

Test(batcher, kept_prefixes)
{
    int32_t texts[3][MOST];
    for (unsigned i = 0; i < 3; i++)
        make_text(texts[i], MOST, 40 + i);
    check_turns(texts);
    check_branches(texts);
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
    while (!requests[0]->logits)
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
    cr_expect_eq(before.batches - batches,
                 4 + 3 + 2 + 2); /* chunks, numbers of lanes, lengths, pages */
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
