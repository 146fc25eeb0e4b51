/* SPDX-License-Identifier: Apache-2.0 */
/* The tiny model on a device, beside numpy in float64; sessions and their errors. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "known.h"
#include "tiny.h"
#include "tiny_model.h"

TestSuite(session, .init = open_model, .fini = close_model);

static kiln_lm_session *open_session(const kiln_lm_session_options *options)
{
    kiln_lm_session *session;
    expect_ok(kiln_lm_session_create(lm, options, &session));
    return session;
}

/* ---- numbers ---- */

static void expect_logits(kiln_lm_session *session, double bound)
{
    float logits[WORDS];
    double worst = 0;
    expect_ok(kiln_lm_logits(session, logits, WORDS));
    for (size_t i = 0; i < WORDS; i++)
        worst = fmax(worst, fabs((double)logits[i] - logits_known[i]));
    cr_expect_lt(worst, bound, "off by %g", worst);
}

static void expect_answer(kiln_lm_session *session, size_t from)
{
    for (size_t i = from; i < ANSWER_COUNT; i++) {
        int32_t token = -1;
        expect_ok(kiln_lm_next(session, &token));
        cr_assert_eq(token, answer[i], "token %zu is %d, not %d", i, (int)token, (int)answer[i]);
    }
}

Test(session, answer)
{
    kiln_lm_session *session = open_session(NULL);
    expect_ok(kiln_lm_feed(session, prompt, PROMPT_COUNT));
    expect_logits(session, 2e-4);
    expect_answer(session, 0);
    cr_expect_eq(kiln_lm_session_length(session), (size_t)PROMPT_COUNT + ANSWER_COUNT);
    cr_expect_eq(kiln_lm_session_context(session), 96u);
    /* Back to the prompt, without feeding it. */
    expect_ok(kiln_lm_session_truncate(session, PROMPT_COUNT));
    expect_logits(session, 2e-4);
    expect_answer(session, 0);
    kiln_lm_session_release(session);
}

/* One by one, and in parts: the same text. */
Test(session, parts)
{
    kiln_lm_session *session = open_session(NULL);
    expect_ok(kiln_lm_feed(session, prompt, 1));
    expect_ok(kiln_lm_feed(session, prompt + 1, PROMPT_COUNT - 1));
    expect_logits(session, 2e-4);
    for (size_t i = 0; i < 20; i++) /* tokens that were fed count as those that were chosen */
        expect_ok(kiln_lm_feed(session, answer + i, 1));
    expect_answer(session, 20);
    expect_ok(kiln_lm_session_truncate(session, 0));
    expect_ok(kiln_lm_feed(session, prompt, PROMPT_COUNT));
    expect_logits(session, 2e-4);
    kiln_lm_session_release(session);
}

/* From the second token on nothing is planned or compiled. */
Test(session, one_recording)
{
    kiln_lm_session *session = open_session(NULL);
    int32_t token;
    expect_ok(kiln_lm_feed(session, prompt, PROMPT_COUNT));
    expect_ok(kiln_lm_next(session, &token));
    expect_ok(kiln_lm_next(session, &token));
    const kiln_context_stats before = stats_of(context);
    for (int i = 0; i < 30; i++)
        expect_ok(kiln_lm_next(session, &token));
    const kiln_context_stats after = stats_of(context);
    expect_nothing_made(&before);
    cr_expect_eq(after.batches - before.batches, 30u);
    kiln_lm_session_release(session);
}

/* How many runs read a prompt: on CPUs three quarters of a long one are full and more. */
Test(session, runs_of_a_prompt)
{
    static const struct {
        size_t tokens, on_cpus, elsewhere;
    } rows[] = {{1, 1, 1},  {2, 1, 1},   {8, 1, 1},   {9, 2, 1},   {16, 2, 1}, {24, 3, 1},
                {25, 1, 1}, {32, 1, 1},  {33, 2, 1},  {40, 2, 1},  {64, 2, 1}, {96, 3, 1},
                {97, 1, 1}, {129, 2, 1}, {256, 2, 1}, {257, 3, 1}, {137, 3, 1}};
    kiln_lm_session_options options = KILN_LM_SESSION_OPTIONS_INIT;
    options.context = 1024;
    kiln_lm_session *session = open_session(&options);
    kiln_device_info device;
    float logits[WORDS];
    int32_t text[300];
    expect_ok(kiln_context_device(context, &device));
    for (size_t i = 0; i < 300; i++)
        text[i] = prompt[i % PROMPT_COUNT];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expect_ok(kiln_lm_session_truncate(session, 0));
        const uint64_t before = stats_of(context).batches;
        expect_ok(kiln_lm_feed(session, text, rows[i].tokens));
        expect_ok(kiln_lm_logits(session, logits, WORDS));
        cr_expect_eq(stats_of(context).batches - before,
                     device.type == KILN_DEVICE_CPU ? rows[i].on_cpus : rows[i].elsewhere,
                     "%zu tokens", rows[i].tokens);
    }
    kiln_lm_session_release(session);
}

Test(session, narrow)
{
    kiln_lm *narrow;
    kiln_lm_options options = KILN_LM_OPTIONS_INIT;
    options.weights = KILN_BF16;
    expect_ok(kiln_lm_load(context, tiny_path(), &options, &narrow));
    kiln_lm_session *session;
    expect_ok(kiln_lm_session_create(narrow, NULL, &session));
    kiln_lm_release(narrow); /* the session holds it */
    expect_ok(kiln_lm_feed(session, prompt, PROMPT_COUNT));
    expect_logits(session, 0.5);
    kiln_lm_session_release(session);
}

/* Matrices of the file's floats in blocks: off by little, and in less memory. */
Test(session, quantised)
{
    const kiln_type types[] = {KILN_F32, KILN_Q8_0};
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        kiln_lm *model;
        kiln_lm_options options = KILN_LM_OPTIONS_INIT;
        kiln_lm_session *session;
        options.weights = types[i];
        const uint64_t before = stats_of(context).buffer_bytes;
        expect_ok(kiln_lm_load(context, tiny_path(), &options, &model));
        bytes[i] = stats_of(context).buffer_bytes - before;
        expect_ok(kiln_lm_session_create(model, NULL, &session));
        expect_ok(kiln_lm_feed(session, prompt, PROMPT_COUNT));
        expect_logits(session, i ? 0.2 : 1e-4);
        kiln_lm_session_release(session);
        kiln_lm_release(model);
    }
    cr_expect_lt(bytes[1], bytes[0] / 2);
}

/* A seed gives the same text again; a draw among one is the most probable token. */
Test(session, drawn)
{
    kiln_lm_session_options options = KILN_LM_SESSION_OPTIONS_INIT;
    options.temperature = 1.5;
    options.seed = 7;
    int32_t first[8], second[8];
    for (int turn = 0; turn < 2; turn++) {
        kiln_lm_session *session = open_session(&options);
        expect_ok(kiln_lm_feed(session, prompt, PROMPT_COUNT));
        for (int i = 0; i < 8; i++)
            expect_ok(kiln_lm_next(session, turn ? &second[i] : &first[i]));
        kiln_lm_session_release(session);
    }
    cr_expect_arr_eq(first, second, sizeof first);
    cr_expect(memcmp(first, answer, sizeof first));
    options.top_k = 1;
    kiln_lm_session *session = open_session(&options);
    expect_ok(kiln_lm_feed(session, prompt, PROMPT_COUNT));
    expect_answer(session, 0);
    kiln_lm_session_release(session);
}

/* What a text begins with is not fed again. */
Test(session, rewritten)
{
    kiln_lm_session *session = open_session(NULL);
    int32_t other[PROMPT_COUNT];
    memcpy(other, prompt, sizeof other);
    other[4] = 7;
    expect_ok(kiln_lm_session_rewrite(session, prompt, PROMPT_COUNT));
    expect_logits(session, 2e-4);
    expect_answer(session, 0);
    expect_ok(kiln_lm_session_rewrite(session, other, PROMPT_COUNT));
    const kiln_context_stats before = stats_of(context);
    expect_ok(kiln_lm_session_rewrite(session, other, PROMPT_COUNT - 2));
    cr_expect_eq(stats_of(context).batches, before.batches);
    cr_expect_eq(kiln_lm_session_length(session), (size_t)PROMPT_COUNT - 2);
    expect_ok(kiln_lm_session_rewrite(session, prompt, PROMPT_COUNT));
    expect_logits(session, 2e-4);
    expect_answer(session, 0);
    expect_error_part(kiln_lm_session_rewrite(session, prompt, 97), KILN_TOO_LARGE,
                      "97 tokens are more than the session's context of 96");
    expect_error_part(kiln_lm_session_rewrite(session, NULL, 1), KILN_INVALID_ARGUMENT,
                      "kiln_lm_session_rewrite: tokens is NULL");
    expect_error_part(kiln_lm_session_rewrite(NULL, prompt, 1), KILN_INVALID_ARGUMENT,
                      "session is NULL");
    cr_expect_eq(kiln_lm_session_length(session), (size_t)PROMPT_COUNT + ANSWER_COUNT);
    expect_ok(kiln_lm_session_rewrite(session, NULL, 0));
    cr_expect_eq(kiln_lm_session_length(session), 0u);
    kiln_lm_session_release(session);
}

/* ---- what a model says ---- */

Test(session, info)
{
    kiln_lm_info info;
    size_t bytes = 7;
    expect_ok(kiln_lm_get_info(lm, &info));
    cr_expect_str_eq(info.architecture, "llama");
    cr_expect_str_eq(info.name, "tiny");
    cr_expect(strstr(info.chat_template, "You are tiny"));
    cr_expect(info.vocabulary == WORDS && info.context == 96 && info.layers == 2 &&
              info.width == 64 && info.begin == 1 && info.end == 2);
    cr_expect(kiln_lm_is_end(lm, 2) && kiln_lm_is_end(lm, 0) && !kiln_lm_is_end(lm, 3) &&
              !kiln_lm_is_end(lm, -1) && !kiln_lm_is_end(lm, WORDS));
    const char *text = kiln_lm_token_text(lm, prompt[1], &bytes);
    cr_expect(bytes == 4 && !memcmp(text, " sun", 4));
    kiln_lm_token_text(lm, 1, &bytes);
    cr_expect_eq(bytes, 0u);
    kiln_lm_token_text(lm, WORDS, &bytes);
    cr_expect_eq(bytes, 0u);
}

Test(session, tokenize)
{
    static const char text[] = "The sun is out, they're going to the river";
    int32_t *tokens;
    size_t count;
    expect_ok(kiln_lm_tokenize(lm, text, sizeof text - 1, KILN_LM_BEGIN, &tokens, &count));
    cr_assert_eq(count, (size_t)PROMPT_COUNT); /* the file wants no token before it */
    cr_expect_arr_eq(tokens, prompt, count * sizeof *tokens);
    kiln_free(tokens);
    expect_ok(kiln_lm_tokenize(lm, "", 0, 0, &tokens, &count));
    cr_expect(count == 0 && tokens);
    kiln_free(tokens);
    expect_error_part(kiln_lm_tokenize(lm, "x", 1, 8, &tokens, &count), KILN_INVALID_ARGUMENT,
                      "reading is 8");
    expect_error_part(kiln_lm_tokenize(lm, NULL, 1, 0, &tokens, &count), KILN_INVALID_ARGUMENT,
                      "an argument is NULL");
}

/* ---- errors ---- */

Test(session, wrong_calls)
{
    kiln_lm_session *session = open_session(NULL);
    float logits[WORDS];
    int32_t token = 0;
    expect_error_part(kiln_lm_next(session, &token), KILN_WRONG_STATE, "nothing was fed");
    expect_error_part(kiln_lm_logits(session, logits, WORDS), KILN_WRONG_STATE, "nothing was fed");
    expect_error_part(kiln_lm_logits(session, logits, 3), KILN_INVALID_ARGUMENT,
                      "count is 3, and the model has 400 tokens");
    token = WORDS;
    expect_error_part(kiln_lm_feed(session, &token, 1), KILN_INVALID_ARGUMENT,
                      "token 0 is 400, and the model has 400");
    token = -1;
    expect_error_part(kiln_lm_feed(session, &token, 1), KILN_INVALID_ARGUMENT, "token 0 is -1");
    expect_error_part(kiln_lm_feed(session, NULL, 1), KILN_INVALID_ARGUMENT, "tokens is NULL");
    expect_error_part(kiln_lm_feed(NULL, &token, 1), KILN_INVALID_ARGUMENT, "session is NULL");
    expect_error_part(kiln_lm_next(session, NULL), KILN_INVALID_ARGUMENT, "token is NULL");
    expect_error_part(kiln_lm_session_truncate(session, 1), KILN_INVALID_ARGUMENT,
                      "length is 1, and the text has 0 tokens");
    expect_ok(kiln_lm_feed(session, NULL, 0));
    kiln_lm_session_release(session);
    kiln_lm_session_release(NULL);
    kiln_lm_release(NULL);
}

/* Neither a prompt nor an answer goes beyond the context; the text is as it was. */
Test(session, full)
{
    kiln_lm_session_options options = KILN_LM_SESSION_OPTIONS_INIT;
    options.context = PROMPT_COUNT + 2;
    kiln_lm_session *session = open_session(&options);
    int32_t token;
    expect_ok(kiln_lm_feed(session, prompt, PROMPT_COUNT));
    expect_error_part(kiln_lm_feed(session, prompt, 3), KILN_TOO_LARGE,
                      "3 tokens and the 11 of the text are more than the session's context of 13");
    expect_ok(kiln_lm_next(session, &token));
    cr_expect_eq(token, answer[0]);
    expect_ok(kiln_lm_next(session, &token));
    cr_expect_eq(token, answer[1]);
    expect_error_part(kiln_lm_next(session, &token), KILN_TOO_LARGE, "context of 13 is full");
    cr_expect_eq(kiln_lm_session_length(session), 13u);
    kiln_lm_session_release(session);
}

Test(session, options)
{
    static const struct {
        kiln_lm_session_options options;
        const char *part;
    } wrong[] = {
        {{.temperature = -1}, "options->temperature is -1"},
        {{.temperature = NAN}, "options->temperature is "},
        {{.top_p = 2}, "options->top_p is 2"},
        {{.min_p = -0.5}, "min_p -0.5"},
        {{.cache = KILN_I8}, "options->cache is i8"},
        {{.context = SIZE_MAX}, "options->context is"},
    };
    kiln_lm_session *session;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        kiln_lm_session_options options = wrong[i].options;
        options.size = sizeof options;
        expect_error_part(kiln_lm_session_create(lm, &options, &session), KILN_INVALID_ARGUMENT,
                          wrong[i].part);
        cr_expect_not(session);
    }
    struct {
        kiln_lm_session_options known;
        size_t more;
    } newer = {.known.size = sizeof newer};
    expect_ok(kiln_lm_session_create(lm, &newer.known, &session));
    kiln_lm_session_release(session);
    newer.more = 1;
    expect_error_part(kiln_lm_session_create(lm, &newer.known, &session), KILN_UNSUPPORTED,
                      "fields that this version of kiln has not");
    newer.known.size = 3;
    expect_error_part(kiln_lm_session_create(lm, &newer.known, &session), KILN_INVALID_ARGUMENT,
                      "start from KILN_LM_SESSION_OPTIONS_INIT");
}

/* Whichever call fails, the text is what it was, and goes on as if nothing had been. */
static void expect_survival(enum kiln_layer_where where)
{
    enum { MOST_CALLS = 4000, APART = 13 }; /* of a few hundred */
    kiln_lm_session *session = open_session(NULL);
    unsigned long n = 1, failed = 0;
    expect_ok(kiln_lm_feed(session, prompt, PROMPT_COUNT));
    for (bool hit = true; hit && n < MOST_CALLS; n += APART) {
        int32_t token = -1;
        layer_fail(n, NULL, -5, KILN_LAYER_ONCE, where);
        kiln_status status = kiln_lm_feed(session, answer, 3);
        if (!status)
            status = kiln_lm_next(session, &token);
        hit = layer_failures() > 0;
        layer_reset();
        failed += status != 0;
        const size_t length = kiln_lm_session_length(session);
        cr_assert(length == PROMPT_COUNT + (status ? length > PROMPT_COUNT ? 3u : 0u : 4u));
        if (length == PROMPT_COUNT)
            expect_logits(session, 2e-4);
        expect_answer(session, length - PROMPT_COUNT);
        expect_ok(kiln_lm_session_truncate(session, PROMPT_COUNT));
    }
    cr_expect(n < MOST_CALLS && failed, "%lu calls, %lu errors", n, failed);
    kiln_lm_session_release(session);
}

Test(session, failures)
{
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    expect_survival(KILN_LAYER_CALL);
    expect_survival(KILN_LAYER_AFTER);
    expect_survival(KILN_LAYER_EVENT);
}

/* ---- files ---- */

static kiln_status load_bytes(const uint8_t *bytes, size_t count, kiln_lm **loaded)
{
    char path[4096];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/spoilt.%ld.gguf", folder ? folder : "/tmp", (long)getpid());
    FILE *file = fopen(path, "wb");
    cr_assert(file && fwrite(bytes, 1, count, file) == count && !fclose(file));
    const kiln_status status = kiln_lm_load(context, path, NULL, loaded);
    remove(path);
    return status;
}

/* The model with a byte behind a text changed. */
static void expect_refused_model(const char *text, size_t behind, char value, kiln_status status,
                                 const char *part)
{
    size_t count;
    uint8_t *bytes = tiny_bytes(&count);
    bytes[place_of(bytes, count, text, strlen(text)) + strlen(text) + behind] = (uint8_t)value;
    kiln_lm *spoilt;
    expect_error_part(load_bytes(bytes, count, &spoilt), status, part);
    cr_expect_not(spoilt);
    free(bytes);
}

/* What fills a chunk up is nothing that the text has not: token 0 is NaN here. */
Test(session, filled_up)
{
    size_t count;
    uint8_t *bytes = tiny_bytes(&count);
    struct kiln__gguf gguf;
    expect_ok(kiln__gguf_read("a file", bytes, count, &gguf));
    bytes[kiln__gguf_tensor(&gguf, "token_embd.weight")->blocks - bytes + 1] = 0x7e; /* a scale */
    kiln__gguf_free(&gguf);
    kiln_lm *spoilt;
    kiln_lm_session *session;
    float logits[WORDS];
    expect_ok(load_bytes(bytes, count, &spoilt));
    expect_ok(kiln_lm_session_create(spoilt, NULL, &session));
    kiln_lm_release(spoilt);
    expect_ok(kiln_lm_feed(session, prompt, PROMPT_COUNT));
    expect_ok(kiln_lm_logits(session, logits, WORDS));
    cr_expect(isnan(logits[0]));
    for (size_t i = 1; i < WORDS; i++)
        cr_assert_lt(fabs((double)logits[i] - logits_known[i]), 2e-4);
    kiln_lm_session_release(session);
    free(bytes);
}

Test(session, refused)
{
    kiln_lm *none;
    kiln_lm_options options = KILN_LM_OPTIONS_INIT;
    expect_error_part(kiln_lm_load(context, "/nowhere.gguf", NULL, &none), KILN_IO_ERROR,
                      "/nowhere.gguf: No such file");
    expect_error_part(kiln_lm_load(context, "/dev/null", NULL, &none), KILN_INVALID_ARGUMENT,
                      "is empty, or no file");
    expect_error_part(kiln_lm_load(NULL, tiny_path(), NULL, &none), KILN_INVALID_ARGUMENT,
                      "context is NULL");
    options.weights = KILN_I32;
    expect_error_part(kiln_lm_load(context, tiny_path(), &options, &none), KILN_INVALID_ARGUMENT,
                      "options->weights is i32");
    expect_refused_model("general.architecture", 12, 'X', KILN_UNSUPPORTED,
                         "the architecture is \"Xlama\"; kiln knows llama");
    expect_refused_model("llama.block_count", 4, 3, KILN_INVALID_ARGUMENT,
                         "has no tensor \"blk.2.attn_norm.weight\"");
    expect_refused_model("llama.block_count", 4, 1, KILN_UNSUPPORTED,
                         "kiln knows no tensor \"blk.1.attn_k.weight\" (llama, layers: 1)");
    expect_refused_model("llama.block_count", 6, 3, KILN_INVALID_ARGUMENT, "tensors for");
    expect_refused_model("llama.attention.head_count_kv", 4, 3, KILN_UNSUPPORTED,
                         "4 heads of 16 with 3 of keys");
    expect_refused_model("llama.attention.head_count_kv", 4, 4, KILN_INVALID_ARGUMENT,
                         "tensor \"blk.0.attn_k.weight\" is [32,64], and should be [64,64]");
    expect_refused_model("llama.embedding_length", 4, 0, KILN_INVALID_ARGUMENT,
                         "key \"llama.embedding_length\" is 0, or missing");
}
