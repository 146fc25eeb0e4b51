/* SPDX-License-Identifier: Apache-2.0 */
/* Models in ONNX files: sessions and batchers of a folder in onnxruntime-genai's form, and what of
 * such folders is refused. Texts beside onnxruntime-genai's are in test_generate_tool. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/device.h"
#include "../support/failing_memory.h"
#include "hub.h"
#include "lm/batcher.h"

enum { WORDS = 266, ANSWER = 20, TEXTS = 4 };

TestSuite(genai, .init = open_device, .fini = close_device);

static const char file[] = "genai_config.json";
static const int32_t text[] = {259, 84, 86, 79,  223, 74, 84, 261, 86, 85,
                               223, 85, 73, 264, 70,  12, 9,  200, 11, 13};
enum { LENGTH = sizeof text / sizeof *text };

static kiln_lm *load(const struct hub *hub)
{
    kiln_lm *lm;
    expect_ok(kiln_lm_load(context, hub->path, NULL, &lm));
    return lm;
}

/* ---- sessions ---- */

static void go_on(kiln_lm_session *session, size_t count, int32_t *tokens)
{
    for (size_t i = 0; i < count; i++)
        expect_ok(kiln_lm_next(session, &tokens[i]));
}

static double furthest(kiln_lm_session *session, const float *wanted)
{
    float logits[WORDS];
    double worst = 0;
    expect_ok(kiln_lm_logits(session, logits, WORDS));
    for (size_t i = 0; i < WORDS; i++)
        worst = fmax(worst, fabs((double)logits[i] - (double)wanted[i]));
    return worst;
}

/* A prompt in pieces, each of a chunk's size or filled up to one, and a text that is cut. */
Test(genai, pieces)
{
    static const size_t sizes[] = {1, 3, 13};
    const struct hub hub = hub_genai();
    kiln_lm *lm = load(&hub);
    kiln_lm_session *session;
    float logits[WORDS];
    int32_t wanted[ANSWER], found[ANSWER];
    expect_ok(kiln_lm_session_create(lm, NULL, &session));
    cr_expect_eq(kiln_lm_session_context(session), 64);
    expect_ok(kiln_lm_feed(session, text, LENGTH));
    expect_ok(kiln_lm_logits(session, logits, WORDS));
    go_on(session, ANSWER, wanted);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        expect_ok(kiln_lm_session_truncate(session, i)); /* keys of the text before stay behind */
        for (size_t at = i; at < LENGTH; at += sizes[i])
            expect_ok(
                kiln_lm_feed(session, text + at, sizes[i] < LENGTH - at ? sizes[i] : LENGTH - at));
        cr_expect_lt(furthest(session, logits), 1e-4);
        go_on(session, ANSWER, found);
        cr_expect_arr_eq(found, wanted, sizeof wanted);
    }
    while (kiln_lm_session_length(session) < 64)
        go_on(session, 1, found);
    expect_error_part(kiln_lm_next(session, found), KILN_TOO_LARGE, "context of 64 is full");
    kiln_lm_session_release(session);
    kiln_lm_release(lm);
    hub_remove(&hub);
}

Test(genai, what_it_says)
{
    const struct hub hub = hub_genai();
    kiln_lm_info info;
    hub_text(&hub, "chat_template.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
    hub_replace(&hub, file, "\"eos_token_id\": [\n   0", "\"eos_token_id\": [\n   5, 0");
    kiln_lm *lm = load(&hub);
    expect_ok(kiln_lm_get_info(lm, &info));
    cr_expect_str_eq(info.architecture, "llama");
    cr_expect(info.vocabulary == WORDS && info.context == 64 && info.layers == 2);
    cr_expect(info.width == 32 && info.end == 5 && kiln_lm_is_end(lm, 0) && !kiln_lm_is_end(lm, 1));
    int32_t *tokens;
    size_t count;
    expect_ok(
        kiln_lm_chat_tokens(lm, &(kiln_lm_message){"user", "a<|end|>"}, 1, NULL, &tokens, &count));
    cr_expect_gt(count, 4); /* what a user writes is no control token */
    kiln_free(tokens);
    kiln_lm_release(lm);
    hub_remove(&hub);
}

/* ---- many texts ---- */

struct answer {
    int32_t tokens[ANSWER];
    kiln_lm_logprob logprobs[ANSWER];
};

static void submit(kiln_lm_batcher *batcher, size_t i, kiln_lm_request **request)
{
    kiln_lm_request_options options = KILN_LM_REQUEST_OPTIONS_INIT;
    options.max_tokens = ANSWER - i;
    options.logprobs = 1;
    expect_ok(kiln_lm_batcher_submit(batcher, text + i, LENGTH - 3 * i, &options, request));
}

static void finish(kiln_lm_batcher *batcher, size_t i, kiln_lm_request *request,
                   struct answer *answer)
{
    while (kiln_lm_request_poll(request) == KILN_NOT_READY)
        expect_ok(kiln_lm_batcher_step(batcher));
    expect_ok(kiln_lm_request_poll(request));
    const size_t count = kiln_lm_request_read(request, 0, answer->tokens, ANSWER);
    cr_expect(count && count <= ANSWER - i);
    for (size_t k = 0; k < count; k++)
        cr_assert_eq(kiln_lm_request_logprobs(request, k, &answer->logprobs[k], 1), 1);
    kiln_lm_request_release(request);
}

/* Texts that go on beside others, and join midway, have the same bits as alone; so have those that
 * come to a slot that another text was in. They share runs, unless the file has one text. */
static void check_same_bits(const struct hub *hub, bool is_alone)
{
    kiln_lm *lm = load(hub);
    struct answer alone[TEXTS] = {0}, beside[TEXTS] = {0};
    kiln_lm_batcher_options options = KILN_LM_BATCHER_OPTIONS_INIT;
    kiln_lm_batcher *batcher;
    kiln_lm_request *requests[TEXTS];
    options.slots = 3;
    options.prepare = 1;
    for (size_t i = 0; i < TEXTS; i++) {
        expect_ok(kiln_lm_batcher_create(lm, &options, &batcher));
        submit(batcher, i, &requests[i]);
        finish(batcher, i, requests[i], &alone[i]);
        kiln_lm_batcher_release(batcher);
    }
    expect_ok(kiln_lm_batcher_create(lm, &options, &batcher));
    cr_expect_eq(batcher->alone, is_alone, "%s", kiln_last_error());
    for (int round = 0; round < 2; round++) {
        memset(beside, 0, sizeof beside);
        for (size_t i = 0; i < TEXTS; i++) {
            submit(batcher, i, &requests[i]);
            expect_ok(kiln_lm_batcher_step(batcher));
        }
        for (size_t i = 0; i < TEXTS; i++)
            finish(batcher, i, requests[i], &beside[i]);
        cr_expect_arr_eq(beside, alone, sizeof alone);
    }
    if (!is_alone) /* new keys are all that a step writes */
        cr_expect_lt(cost_of(batcher->steps[0]).peak_bytes,
                     kiln_buffer_bytes(batcher->caches.keys[0]));
    kiln_lm_batcher_release(batcher);
    kiln_lm_release(lm);
}

/* Have the file say that there is one text, in as many bytes: a dimension's name becomes a number,
 * and a denotation. */
static void say_one_text(const struct hub *hub)
{
    static const char name[] = "\x12\005batch", number[] = "\x08\001\x1a\003one";
    enum { BYTES = sizeof name - 1 };
    size_t count, found = 0;
    char *bytes = hub_get(hub, "model.onnx", &count);
    for (size_t i = 0; i + BYTES <= count; i++)
        if (!memcmp(bytes + i, name, BYTES)) {
            memcpy(bytes + i, number, BYTES);
            found++;
        }
    cr_assert_gt(found, 1);
    hub_put(hub, "model.onnx", bytes, count);
    free(bytes);
}

/* ---- memory ---- */

/* Where memory ends for a moment there is an error, and no batcher whose texts take turns. */
Test(genai, memory_that_runs_out_changes_no_batcher)
{
    enum { APART = 7, MOST = 100000 };
    const struct hub hub = hub_genai();
    kiln_lm *lm = load(&hub);
    long n = 0, errors = 0;
    memory.ran_out = true;
    for (; memory.ran_out && n < MOST; n += APART) {
        kiln_lm_batcher *batcher;
        memory.ran_out = false;
        memory.once = true;
        memory.left = n;
        const kiln_status status = kiln_lm_batcher_create(lm, NULL, &batcher);
        memory.left = -1;
        errors += status != KILN_OK;
        cr_assert(status ? !batcher && *kiln_last_error() : !batcher->alone, "%ld: %s", n,
                  kiln_last_error());
        kiln_lm_batcher_release(batcher);
    }
    cr_expect(errors && n < MOST, "%ld errors, %ld allocations", errors, n);
    kiln_lm_release(lm);
    hub_remove(&hub);
}

/* A limit has as many slots as fit into it, beside none of prompts where texts take turns. */
static void check_limit(kiln_lm *lm, uint64_t bytes, size_t slots)
{
    kiln_lm_batcher_options options = KILN_LM_BATCHER_OPTIONS_INIT;
    kiln_lm_batcher *batcher;
    kiln_lm_batcher_stats stats;
    kiln_lm_request *requests[2];
    struct answer answers[2] = {0};
    options.memory_limit = bytes;
    expect_ok(kiln_lm_batcher_create(lm, &options, &batcher));
    expect_ok(kiln_lm_batcher_get_stats(batcher, &stats));
    cr_expect(stats.slots == slots && stats.cache_bytes <= bytes, "%d slots", (int)stats.slots);
    for (size_t i = 0; i < 2; i++)
        submit(batcher, 0, &requests[i]);
    for (size_t i = 0; i < 2; i++)
        finish(batcher, 0, requests[i], &answers[i]);
    cr_expect_arr_eq(&answers[0], &answers[1], sizeof answers[0]);
    kiln_lm_batcher_release(batcher);
}

static void expect_limit_refused(kiln_lm *lm, uint64_t bytes, const char *part)
{
    kiln_lm_batcher_options options = KILN_LM_BATCHER_OPTIONS_INIT;
    kiln_lm_batcher *batcher;
    options.memory_limit = bytes;
    expect_error_part(kiln_lm_batcher_create(lm, &options, &batcher), KILN_OUT_OF_DEVICE_MEMORY,
                      part);
}

Test(genai, memory_limits)
{
    const struct hub hub = hub_genai();
    kiln_lm *lm = load(&hub);
    const uint64_t slot =
        (uint64_t)kiln__lm_slot_bytes(lm, kiln__lm_usual_cache(lm), kiln__lm_usual_context(lm));
    check_limit(lm, 3 * slot, 2);
    expect_limit_refused(lm, 3 * slot - 1, "two texts of 64 tokens and a prompt's need");
    kiln_lm_release(lm);
    say_one_text(&hub);
    lm = load(&hub);
    check_limit(lm, slot, 1);
    check_limit(lm, 3 * slot - 1, 2);
    check_limit(lm, 3 * slot, 3);
    expect_limit_refused(lm, slot - 1, "a text of 64 tokens needs");
    kiln_lm_release(lm);
    hub_remove(&hub);
}

Test(genai, same_bits)
{
    const struct hub hub = hub_genai();
    check_same_bits(&hub, false);
    say_one_text(&hub);
    check_same_bits(&hub, true);
    hub_remove(&hub);
}

/* ---- beginnings of prompts ---- */

static void write_numbers(kiln_buffer *buffer, float *numbers, size_t count, float first)
{
    for (size_t i = 0; i < count; i++)
        numbers[i] = first + (float)i;
    expect_ok(kiln_buffer_write(buffer, 0, numbers, count * sizeof *numbers));
}

/* Pages have the file's order of keys, too: what was kept comes back to where it was, and nothing
 * else changes. The model of the tests has too short a context for a page, so this is no text. */
Test(genai, kept_prefixes)
{
    enum { ROWS = 300, PAGES = 2 };
    const struct hub hub = hub_genai();
    kiln_lm *lm = load(&hub);
    struct kiln__lm_caches reader = {.type = KILN_F32, .slots = 1, .context = ROWS};
    struct kiln__lm_prefixes prefixes = {.time = 0};
    int32_t tokens[ROWS] = {1, 2, 3};
    tokens[200] = 5;
    lm->shape.context = ROWS;
    expect_ok(kiln__lm_caches_make("test", lm, &reader));
    expect_ok(kiln__lm_prefixes_make("test", lm, KILN_F32, PAGES, &reader, &prefixes));
    const size_t count = kiln_buffer_bytes(reader.keys[0]) / sizeof(float);
    const size_t size = lm->shape.size, pair = ROWS * size;
    float *numbers = malloc(count * sizeof *numbers), *found = malloc(count * sizeof *found);
    write_numbers(reader.keys[0], numbers, count, 1);
    expect_ok(kiln__lm_prefixes_keep(&prefixes, tokens, ROWS));
    write_numbers(reader.keys[0], numbers, count, -1e6f);
    cr_expect_eq(kiln__lm_prefixes_find(&prefixes, tokens, ROWS - 1), 256u);
    expect_ok(kiln__lm_prefixes_bring(&prefixes, tokens, 128, 256));
    expect_ok(kiln_buffer_read(reader.keys[0], 0, found, count * sizeof *found));
    for (size_t i = 0; i < count; i++) {
        const size_t row = i % pair / size;
        cr_assert_eq(found[i], row >= 128 && row < 256 ? 1 + (float)i : numbers[i], "%zu", i);
    }
    tokens[200] = 6;
    cr_expect_eq(kiln__lm_prefixes_find(&prefixes, tokens, ROWS - 1), 128u);
    free(numbers);
    free(found);
    kiln__lm_prefixes_free(lm, &prefixes);
    kiln__lm_caches_free(lm, &reader);
    kiln_lm_release(lm);
    hub_remove(&hub);
}

/* ---- what is refused ---- */

static void refused(const struct hub *hub, kiln_status status, const char *part)
{
    kiln_lm *lm;
    expect_error_part(kiln_lm_load(context, hub->path, NULL, &lm), status, part);
    cr_expect_not(lm);
}

Test(genai, configurations_that_are_refused)
{
    static const struct {
        const char *from, *to, *part;
        kiln_status status;
    } rows[] = {
        {"\"model\"", "model", "genai_config.json: line 2", KILN_INVALID_ARGUMENT},
        {"\"model.onnx\"", "\"../model.onnx\"", "is no name of a file", KILN_INVALID_ARGUMENT},
        {"\"model.onnx\"", "\"nowhere.onnx\"", "nowhere.onnx: No such file", KILN_IO_ERROR},
        {"\"context_length\": 64", "\"context_length\": -64", "context_length is -64",
         KILN_INVALID_ARGUMENT},
        {"\"vocab_size\": 266", "\"vocab_size\": -1", "a vocab_size or hidden_size that cannot be",
         KILN_INVALID_ARGUMENT},
        {"[\n   0\n  ]", "[null]", "eos_token_id is no token", KILN_INVALID_ARGUMENT},
        {"[\n   0\n  ]", "266", "eos_token_id is no token", KILN_INVALID_ARGUMENT},
        {"past_key_values.%d.key", "past.%d.key", "has an input 'past_key_values.0.key', which",
         KILN_UNSUPPORTED},
        {"present.%d.key", "present.%s.key", "gives 0 keys and 2 values, and takes 2",
         KILN_UNSUPPORTED},
        {"\"logits\": \"logits\"", "\"logits\": \"scores\"", "no output 'scores'",
         KILN_UNSUPPORTED},
        {"\"attention_mask\": \"attention_mask\"", "\"attention_mask\": \"mask\"",
         "an input 'attention_mask', which kiln does not know", KILN_UNSUPPORTED},
        {"\"decoder\": {", "\"vision\": {}, \"decoder\": {", "a model of several networks",
         KILN_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct hub hub = hub_genai();
        hub_replace(&hub, file, rows[i].from, rows[i].to);
        refused(&hub, rows[i].status, rows[i].part);
        hub_remove(&hub);
    }
}

Test(genai, sizes_that_are_refused)
{
    const struct hub hub = hub_genai();
    kiln_lm *lm = load(&hub);
    kiln_lm_session *session;
    kiln_lm_session_options options = KILN_LM_SESSION_OPTIONS_INIT;
    options.context = 65;
    expect_error_part(kiln_lm_session_create(lm, &options, &session), KILN_INVALID_ARGUMENT,
                      "options->context is 65 tokens, and the model has 64");
    options.context = 0;
    options.cache = KILN_F16;
    expect_error_part(kiln_lm_session_create(lm, &options, &session), KILN_UNSUPPORTED,
                      "options->cache is f16, and the model's is f32");
    kiln_lm_release(lm);
    kiln_lm_options model = KILN_LM_OPTIONS_INIT;
    model.window = 8;
    expect_error_part(kiln_lm_load(context, hub.path, &model, &lm), KILN_UNSUPPORTED,
                      "which layers of a model in an ONNX file have not");
    hub_text(&hub, "tokenizer.json", NULL);
    refused(&hub, KILN_INVALID_ARGUMENT, "the folder has no tokenizer.json");
    hub_text(&hub, "model.onnx", "no model");
    refused(&hub, KILN_INVALID_ARGUMENT, "model.onnx");
    hub_remove(&hub);
}

/* Whatever the configuration says, loading ends with an answer, and a session with it, too. */
Test(genai, mutations)
{
    enum { FILES = 300 };
    const struct hub hub = hub_genai();
    size_t count;
    char *bytes = hub_get(&hub, file, &count), *spoilt = malloc(count);
    uint32_t state = 1;
    for (int i = 0; i < FILES; i++) {
        kiln_lm *lm;
        kiln_lm_session *session;
        memcpy(spoilt, bytes, count);
        for (int k = 0; k < 1 + i % 3; k++) {
            state = state * 1664525 + 1013904223;
            char *at = &spoilt[(state >> 8) % count];
            *at = state & 1 && *at >= '0' && *at <= '9' ? (char)('0' + (state >> 20) % 10)
                                                        : (char)(*at ^ 1 << (state >> 28) % 7);
        }
        hub_put(&hub, file, spoilt, count);
        const kiln_status status = kiln_lm_load(context, hub.path, NULL, &lm);
        cr_expect(status ? !lm && *kiln_last_error() : lm != NULL);
        if (status || kiln_lm_session_create(lm, NULL, &session)) {
            kiln_lm_release(lm);
            continue;
        }
        if (i % 8 == 0 && kiln_lm_feed(session, text, 3))
            cr_expect(*kiln_last_error());
        kiln_lm_session_release(session);
        kiln_lm_release(lm);
    }
    free(spoilt);
    free(bytes);
    hub_remove(&hub);
}
