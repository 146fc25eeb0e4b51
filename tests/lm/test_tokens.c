/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level BPE beside PyPI's `tokenizers`: pieces of each pattern, tokens of the tiny model. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"
#include "tiny.h"

#define TOKENS(...) ((const int32_t[]){__VA_ARGS__})

static struct kiln__gguf gguf;
static struct kiln__tokenizer tokenizer;
static uint8_t *file;
static size_t file_bytes;

static void open_tokenizer(void)
{
    file = tiny_bytes(&file_bytes);
    expect_ok(kiln__gguf_read("a file", file, file_bytes, &gguf));
    expect_ok(kiln__tokenizer_read(&gguf, false, &tokenizer));
}

static void close_tokenizer(void)
{
    kiln__tokenizer_free(&tokenizer);
    kiln__gguf_free(&gguf);
    free(file);
}

TestSuite(tokens, .init = open_tokenizer, .fini = close_tokenizer);

/* ---- pieces ---- */

static void check_pieces(const char *name, const char *text, size_t bytes, const int32_t *sizes)
{
    const struct kiln__split_rule *rule = kiln__split_rule(name, strlen(name));
    cr_assert(rule, "%s", name);
    struct kiln__split split = kiln__split_begin(rule, text, bytes);
    const char *piece;
    size_t length, i = 0;
    for (; (length = kiln__split_next(&split, &piece)) > 0; i++) {
        cr_assert_eq((int32_t)length, sizes[i], "%s, \"%s\": piece %zu has %zu bytes, not %d", name,
                     text, i, length, (int)sizes[i]);
    }
    cr_assert_eq(sizes[i], -1, "%s, \"%s\": %zu pieces", name, text, i);
}

Test(tokens, pieces)
{
#define PIECES(name, text, bytes, sizes) check_pieces(name, text, bytes, sizes);
#include "known.def"
    cr_expect_not(kiln__split_rule("tekken", 6));
}

/* ---- tokens ---- */

static void encode(const char *text, size_t bytes, bool control, struct kiln__tokens *tokens)
{
    const struct kiln__reading reading = {text, bytes, control, NULL};
    cr_assert(kiln__tokenizer_encode(&tokenizer, &reading, tokens));
}

static void check_line(const char *text, size_t bytes, size_t count, const int32_t *wanted)
{
    struct kiln__tokens tokens = {0};
    encode(text, bytes, true, &tokens);
    cr_expect_eq(tokens.count, count, "\"%s\": %zu tokens, not %zu", text, tokens.count, count);
    for (size_t i = 0; i < count && i < tokens.count; i++)
        cr_expect_eq(tokens.numbers[i], wanted[i], "\"%s\": token %zu is %d, not %d", text, i,
                     (int)tokens.numbers[i], (int)wanted[i]);
    free(tokens.numbers);
}

Test(tokens, lines)
{
#define LINE(text, bytes, count, tokens) check_line(text, bytes, count, tokens);
#include "known.def"
}

/* ---- SentencePiece's BPE, beside sentencepiece ---- */

struct model {
    uint8_t *bytes;
    struct kiln__gguf gguf;
    struct kiln__tokenizer tokenizer;
};

static void open_model(const char *name, struct model *model)
{
    size_t count;
    model->bytes = model_bytes(name, &count);
    expect_ok(kiln__gguf_read(name, model->bytes, count, &model->gguf));
    expect_ok(kiln__tokenizer_read(&model->gguf, false, &model->tokenizer));
}

static void close_model(struct model *model)
{
    kiln__tokenizer_free(&model->tokenizer);
    kiln__gguf_free(&model->gguf);
    free(model->bytes);
}

/* The tokens, and their bytes again, but for a space before them. */
static void check_spaced(const struct kiln__tokenizer *of, const char *text, size_t bytes,
                         size_t count, const int32_t *wanted)
{
    const struct kiln__reading reading = {text, bytes, true, NULL};
    struct kiln__tokens tokens = {0};
    char back[256] = "";
    size_t at = 0;
    cr_assert(kiln__tokenizer_encode(of, &reading, &tokens));
    cr_expect_eq(tokens.count, count, "\"%s\": %zu tokens, not %zu", text, tokens.count, count);
    for (size_t i = 0; i < tokens.count; i++) {
        const struct kiln__token *token = &of->vocabulary.tokens[tokens.numbers[i]];
        cr_expect_eq(tokens.numbers[i], wanted[i], "\"%s\": token %zu is %d, not %d", text, i,
                     (int)tokens.numbers[i], (int)wanted[i]);
        memcpy(back + at, token->bytes, token->length);
        at += token->length;
    }
    const bool has_mark = strstr(text, "\xe2\x96\x81");
    const size_t lead = at - bytes;
    cr_expect(has_mark ||
                  (lead <= 1 && !memcmp(back + lead, text, bytes) && (!lead || *back == ' ')),
              "\"%s\" is \"%s\"", text, back);
    free(tokens.numbers);
}

Test(tokens, spaced)
{
    struct model gemma = {0}, phi = {0};
    open_model("gemma3.gguf", &gemma);
    open_model("phi3.gguf", &phi);
#define LINE(name, text, bytes, count, tokens)                                                     \
    check_spaced(*(name) == 'g' ? &gemma.tokenizer : &phi.tokenizer, text, bytes, count, tokens);
#include "architectures.def"
    cr_expect(gemma.tokenizer.adds_begin && gemma.tokenizer.begin == 1 && gemma.tokenizer.ends[2]);
    /* A text begins anew behind the token that texts begin with. */
    struct kiln__tokens plain = {0}, behind = {0};
    cr_assert(kiln__tokenizer_encode(&phi.tokenizer, &(struct kiln__reading){"sun", 3, true, NULL},
                                     &plain));
    cr_assert(kiln__tokenizer_encode(
        &phi.tokenizer, &(struct kiln__reading){"sun<s>sun</s>sun", 16, true, NULL}, &behind));
    cr_expect(behind.count > 2 * plain.count + 1 &&
              !memcmp(behind.numbers + plain.count + 1, plain.numbers,
                      plain.count * sizeof *plain.numbers) &&
              behind.numbers[plain.count] == 1);
    cr_expect(memcmp(behind.numbers + 2 * plain.count + 2, plain.numbers,
                     plain.count * sizeof *plain.numbers));
    free(plain.numbers);
    free(behind.numbers);
    close_model(&gemma);
    close_model(&phi);
}

/* Any bytes come back from their tokens; control tokens are found only where they are asked for. */
Test(tokens, there_and_back)
{
    enum { MOST = 200 };
    uint32_t state = 1;
    for (int text = 0; text < 500; text++) {
        char bytes[MOST];
        size_t count = 0;
        for (; count < MOST && count < (size_t)text; count++) {
            state = state * 1664525 + 1013904223;
            bytes[count] = (char)(text % 2 ? state >> 24 : 32 + (state >> 24) % 95);
        }
        struct kiln__tokens tokens = {0};
        size_t at = 0;
        encode(bytes, count, false, &tokens);
        for (size_t i = 0; i < tokens.count; i++) {
            const struct kiln__token *token = &tokenizer.vocabulary.tokens[tokens.numbers[i]];
            cr_assert(at + token->length <= count &&
                      !memcmp(bytes + at, token->bytes, token->length));
            at += token->length;
        }
        cr_assert_eq(at, count);
        free(tokens.numbers);
    }
    struct kiln__tokens plain = {0}, control = {0};
    encode("<|im_end|>", 10, false, &plain);
    encode("<|im_end|>", 10, true, &control);
    cr_expect(plain.count > 1 && control.count == 1 && control.numbers[0] == 2);
    free(plain.numbers);
    free(control.numbers);
}

/* A long word takes no longer a byte than a short one: with every pair compared anew this would
 * take an hour. */
Test(tokens, long_word, .timeout = 300)
{
    const size_t bytes = 1 << 20;
    char *text = malloc(bytes);
    struct kiln__tokens tokens = {0};
    cr_assert(text);
    for (size_t i = 0; i < bytes; i++)
        text[i] = "then"[i % 4];
    encode(text, bytes, true, &tokens);
    cr_expect_gt(tokens.count, bytes / 16);
    free(tokens.numbers);
    free(text);
}

/* ---- what is refused ---- */

static void spoil(const char *text, size_t behind, char value, kiln_status status, const char *part)
{
    const size_t at = place_of(file, file_bytes, text, strlen(text)) + strlen(text) + behind;
    const uint8_t before = file[at];
    struct kiln__tokenizer spoilt = {0};
    file[at] = (uint8_t)value;
    expect_error_part(kiln__tokenizer_read(&gguf, false, &spoilt), status, part);
    kiln__tokenizer_free(&spoilt);
    file[at] = before;
}

Test(tokens, refused)
{
    spoil("tokenizer.ggml.model", 12, 'x', KILN_UNSUPPORTED,
          "the tokenizer is \"xpt2\"; kiln knows gpt2");
    spoil("tokenizer.ggml.pre", 12, 'x', KILN_UNSUPPORTED,
          "the pre-tokenizer is \"xmollm\"; kiln knows gpt-2, smollm");
    spoil("tokenizer.ggml.eos_token_id", 6, 1, KILN_INVALID_ARGUMENT,
          "\"tokenizer.ggml.eos_token_id\" is no whole number from 0 to 399");
    spoil("tokenizer.ggml.merges", 16 + 8, '~', KILN_INVALID_ARGUMENT,
          "is no pair of tokens that makes a token");
}

Test(tokens, of_no_encoder)
{
    struct model model = {.bytes = NULL};
    open_model("gemma3.gguf", &model);
    struct kiln__tokenizer refused = {0};
    expect_error_part(kiln__tokenizer_read(&model.gguf, true, &refused), KILN_UNSUPPORTED,
                      "the tokenizer is \"llama\", and kiln knows gpt2, bert and t5 of encoders");
    kiln__tokenizer_free(&refused);
    close_model(&model);
}
