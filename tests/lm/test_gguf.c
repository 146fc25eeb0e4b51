/* SPDX-License-Identifier: Apache-2.0 */
/* Files of language models: what is damaged or hostile is refused in words. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"
#include "lm/architecture.h"
#include "tiny.h"

static void put(uint8_t *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

/* ---- files ---- */

Test(gguf, keys_and_tensors)
{
    size_t count;
    uint8_t *bytes = tiny_bytes(&count);
    struct kiln__gguf gguf;
    expect_ok(kiln__gguf_read("a file", bytes, count, &gguf));
    uint64_t layers = 7, none = 7;
    double base = 0;
    bool adds = true;
    struct kiln__gguf_text name = {"", 0};
    expect_ok(kiln__gguf_whole(&gguf, "llama.block_count", 100, &layers));
    expect_ok(kiln__gguf_whole(&gguf, "llama.nothing", 100, &none));
    expect_ok(kiln__gguf_real(&gguf, "llama.rope.freq_base", &base));
    expect_ok(kiln__gguf_bool(&gguf, "tokenizer.ggml.add_bos_token", &adds));
    expect_ok(kiln__gguf_string(&gguf, "general.name", &name));
    cr_expect(layers == 2 && none == 7 && base == 10000 && !adds);
    cr_expect(kiln__gguf_text_is(name, "tiny") && !kiln__gguf_text_is(name, "tin"));
    expect_error_part(kiln__gguf_whole(&gguf, "llama.block_count", 1, &layers),
                      KILN_INVALID_ARGUMENT,
                      "\"llama.block_count\" is no whole number from 0 to 1");
    expect_error_part(kiln__gguf_whole(&gguf, "general.name", 1, &layers), KILN_INVALID_ARGUMENT,
                      "no whole number");
    expect_error_part(kiln__gguf_real(&gguf, "general.name", &base), KILN_INVALID_ARGUMENT,
                      "\"general.name\" is no floating number");
    expect_error_part(kiln__gguf_bool(&gguf, "general.name", &adds), KILN_INVALID_ARGUMENT,
                      "no truth value");
    expect_error_part(kiln__gguf_string(&gguf, "llama.block_count", &name), KILN_INVALID_ARGUMENT,
                      "is no text");
    const struct kiln__gguf_key *key;
    expect_error_part(kiln__gguf_array(&gguf, "general.name", KILN__GGUF_STRING, &key),
                      KILN_INVALID_ARGUMENT, "is no array");
    expect_error_part(kiln__gguf_array(&gguf, "nothing", KILN__GGUF_STRING, &key),
                      KILN_INVALID_ARGUMENT, "key \"nothing\" is missing");
    const struct kiln__gguf_tensor *tensor = kiln__gguf_tensor(&gguf, "blk.0.ffn_down.weight");
    cr_assert(tensor);
    cr_expect(tensor->rank == 2 && tensor->dims[0] == 256 && tensor->dims[1] == 64);
    cr_expect_eq(tensor->bytes, (size_t)64 * 210);
    cr_expect_not(kiln__gguf_tensor(&gguf, "blk.2.ffn_down.weight"));
    kiln__gguf_free(&gguf);
    free(bytes);
}

/* Spoil the bytes behind a text, have the file refused, and put them back. */
static void spoil(uint8_t *bytes, size_t count, const char *text, ptrdiff_t behind, uint64_t value,
                  size_t size, kiln_status status, const char *part)
{
    uint8_t *at = bytes + place_of(bytes, count, text, strlen(text)) + strlen(text) + behind;
    uint8_t before[8];
    memcpy(before, at, size);
    put(at, value, size);
    expect_refused(bytes, count, status, part);
    memcpy(at, before, size);
}

Test(gguf, refused)
{
    size_t count;
    uint8_t *bytes = tiny_bytes(&count);
    expect_refused(bytes, 0, KILN_INVALID_ARGUMENT, "a file is no GGUF file");
    expect_refused(bytes, 3, KILN_INVALID_ARGUMENT, "is no GGUF file");
    expect_refused(bytes, 20, KILN_INVALID_ARGUMENT, "ends too early (at byte 16)");
    expect_refused(bytes, count - 64, KILN_INVALID_ARGUMENT, "goes beyond the file's end");
    spoil(bytes, count, "GGUF", 0, 2, 4, KILN_UNSUPPORTED, "is GGUF of version 2");
    spoil(bytes, count, "GGUF", 4, UINT64_MAX, 8, KILN_INVALID_ARGUMENT, "more keys or tensors");
    spoil(bytes, count, "GGUF", 12, UINT64_MAX, 8, KILN_INVALID_ARGUMENT, "more keys or tensors");
    /* A key: its type, then the value; of an array the type of its elements, and how many. */
    spoil(bytes, count, "general.name", 0, 13, 4, KILN_INVALID_ARGUMENT, "no known type");
    spoil(bytes, count, "general.name", 4, UINT64_MAX, 8, KILN_INVALID_ARGUMENT, "ends too early");
    spoil(bytes, count, "tokenizer.ggml.tokens", 4, 9, 4, KILN_INVALID_ARGUMENT, "array of arrays");
    spoil(bytes, count, "tokenizer.ggml.tokens", 8, UINT64_MAX / 8 + 2, 8, KILN_INVALID_ARGUMENT,
          "an array is longer than the file");
    spoil(bytes, count, "tokenizer.ggml.token_type", 8, UINT64_MAX, 8, KILN_INVALID_ARGUMENT,
          "an array is longer than the file");
    /* A tensor: rank, dimensions, type, offset. */
    const char *tensor = "blk.0.attn_q.weight";
    spoil(bytes, count, tensor, 0, 5, 4, KILN_INVALID_ARGUMENT, "more than 4");
    spoil(bytes, count, tensor, 0, 0, 4, KILN_INVALID_ARGUMENT, "no dimension");
    spoil(bytes, count, tensor, 4, 0, 8, KILN_INVALID_ARGUMENT, "a dimension of 0");
    spoil(bytes, count, tensor, 4, 48, 8, KILN_INVALID_ARGUMENT, "no whole number of blocks");
    spoil(bytes, count, tensor, 12, UINT64_MAX / 2, 8, KILN_INVALID_ARGUMENT,
          "larger than the file");
    spoil(bytes, count, tensor, 20, 99, 4, KILN_UNSUPPORTED,
          "tensor \"blk.0.attn_q.weight\" is of type 99, which kiln does not read");
    spoil(bytes, count, tensor, 24, 16, 8, KILN_INVALID_ARGUMENT, "offset is not aligned");
    spoil(bytes, count, tensor, 24, UINT64_MAX - 31, 8, KILN_INVALID_ARGUMENT,
          "goes beyond the file's end");
    spoil(bytes, count, tensor, 24, 0, 8, KILN_INVALID_ARGUMENT, "overlap");
    spoil(bytes, count, tensor, -8, 'k', 1, KILN_INVALID_ARGUMENT,
          "two tensors are called \"blk.0.attn_k.weight\"");
    spoil(bytes, count, "general.name", -1, 'x', 1, KILN_OK, "");
    spoil(bytes, count, "tokenizer.ggml.bos_token_id", -12, 'e', 1, KILN_INVALID_ARGUMENT,
          "two keys are called \"tokenizer.ggml.eos_token_id\"");
    free(bytes);
}

/* An answer's end under another key, where there is no eos_token_id. */
Test(gguf, another_end)
{
    size_t count;
    uint8_t *bytes = tiny_bytes(&count);
    bytes[place_of(bytes, count, "eos_token_id", 12) + 2] = 't';
    struct kiln__gguf gguf;
    struct kiln__tokenizer tokenizer = {0};
    expect_ok(kiln__gguf_read("a file", bytes, count, &gguf));
    expect_ok(kiln__tokenizer_read(&gguf, false, &tokenizer));
    cr_expect(tokenizer.end == 2 && tokenizer.ends[2]);
    kiln__tokenizer_free(&tokenizer);
    kiln__gguf_free(&gguf);
    free(bytes);
}

/* A model with one key more before the others, and room for the data to move; the test frees
 * it. */
static uint8_t *with_key(const char *model, const char *name, uint32_t type, const void *value,
                         size_t size, size_t *total)
{
    enum { HEAD = 24, ALIGNMENT = 32 };
    size_t count;
    uint8_t *bytes = model_bytes(model, &count);
    const size_t length = strlen(name), more = 8 + length + 4 + size;
    uint8_t *longer = calloc(count + more + ALIGNMENT, 1), *at = longer + HEAD;
    memcpy(longer, bytes, HEAD);
    memcpy(at + more, bytes + HEAD, count - HEAD);
    longer[16]++; /* keys */
    put(at, length, 8);
    memcpy(at + 8, name, length);
    put(at + 8 + length, type, 4);
    memcpy(at + 12 + length, value, size);
    free(bytes);
    *total = count + more + ALIGNMENT;
    return longer;
}

static kiln_status shape_with(const char *model, const char *name, uint32_t type, const void *value,
                              size_t size, struct kiln__lm_shape *shape)
{
    size_t count;
    uint8_t *bytes = with_key(model, name, type, value, size, &count);
    struct kiln__gguf gguf;
    expect_ok(kiln__gguf_read("a file", bytes, count, &gguf));
    const kiln_status status = kiln__lm_shape_read(&gguf, shape);
    kiln__gguf_free(&gguf);
    free(bytes);
    return status;
}

static double scale_with(const char *name, float factor)
{
    struct kiln__lm_shape shape = {0};
    expect_ok(shape_with("tiny.gguf", name, KILN__GGUF_F32, &factor, sizeof factor, &shape));
    return shape.scale[KILN__LM_FAR];
}

/* Without a type a factor is a linear one, as it was before there were types. */
Test(gguf, factor_alone)
{
    cr_expect_eq(scale_with("llama.rope.scaling.factor", 4), 0.25);
    cr_expect_eq(scale_with("llama.rope.scale_linear", 4), 0.25);
    cr_expect_eq(scale_with("llama.nothing", 4), 1.0);
}

/* ---- windows ---- */

/* The layers that see a window, as bits; `period` is what the file says. */
static unsigned near_layers(const char *model, const char *name, uint32_t period)
{
    struct kiln__lm_shape shape = {0};
    unsigned layers = 0;
    expect_ok(shape_with(model, name, KILN__GGUF_U32, &period, sizeof period, &shape));
    for (size_t i = 0; i < shape.layers; i++)
        layers |= (unsigned)(kiln__lm_reach(&shape, i) == KILN__LM_NEAR) << i;
    return layers;
}

Test(gguf, windows)
{
    static const char gemma[] = "gemma3.attention.sliding_window_pattern";
    static const char llama[] = "llama.attention.sliding_window_pattern";
    cr_expect_eq(near_layers("gemma3.gguf", "gemma3.nothing", 1), 0x1f);
    cr_expect_eq(near_layers("gemma3.gguf", gemma, 6), 0x1f);
    cr_expect_eq(near_layers("gemma3.gguf", gemma, 3), 0x1b);
    cr_expect_eq(near_layers("gemma3.gguf", gemma, 1), 0);
    cr_expect_eq(near_layers("gemma3.gguf", gemma, 0), 0x3f);
    cr_expect_eq(near_layers("mistral.gguf", "llama.nothing", 1), 7);
    cr_expect_eq(near_layers("mistral.gguf", llama, 2), 5);
    cr_expect_eq(near_layers("tiny.gguf", "llama.attention.sliding_window", 8), 3);
    cr_expect_eq(near_layers("tiny.gguf", "llama.attention.sliding_window", 0), 0);
}

/* A pattern of truth values has to be the architecture's own. */
static void check_pattern(size_t count, uint8_t type, uint8_t last, kiln_status status,
                          const char *part)
{
    static const char name[] = "gemma3.attention.sliding_window_pattern";
    struct kiln__lm_shape shape = {0};
    uint8_t array[12 + 7] = {type, 0, 0, 0, (uint8_t)count};
    memset(array + 12, 1, count);
    array[12 + count - 1] = last;
    const kiln_status answered =
        shape_with("gemma3.gguf", name, KILN__GGUF_ARRAY, array, 12 + count, &shape);
    if (status)
        expect_error_part(answered, status, part);
    else
        expect_ok(answered);
}

Test(gguf, windows_of_each_layer)
{
    static const char words[] = "sliding_window_pattern\" has layers see the window that";
    check_pattern(6, KILN__GGUF_BOOL, 0, KILN_OK, "");
    check_pattern(6, KILN__GGUF_BOOL, 1, KILN_UNSUPPORTED, words);
    check_pattern(7, KILN__GGUF_BOOL, 0, KILN_UNSUPPORTED, words);
    check_pattern(6, KILN__GGUF_U8, 0, KILN_UNSUPPORTED, words);
}

/* Whatever is damaged, reading ends with an answer, and what it hands out lies within the file. */
static void mutate(uint8_t *bytes, size_t count)
{
    enum { FILES = 3000 };
    const size_t head = place_of(bytes, count, "output_norm.weight", 18);
    uint32_t state = 1;
    for (int file = 0; file < FILES; file++) {
        uint8_t before[8];
        size_t at[8];
        for (int i = 0; i < 8; i++) {
            state = state * 1664525 + 1013904223;
            /* Mostly among the counts, keys and names: tokens are long. */
            at[i] = i % 2 ? (size_t)(state >> 8) % 700 : (size_t)(state >> 8) % (head + 1500);
            before[i] = bytes[at[i]];
            const uint32_t other = state >> 16, bit = 1u << (other & 7);
            bytes[at[i]] = (uint8_t)(state & 1 ? other : before[i] ^ bit);
        }
        struct kiln__gguf gguf;
        const size_t length = state >> 30 ? count : count - (size_t)(state >> 4) % 5000;
        if (!kiln__gguf_read("a file", bytes, length, &gguf)) {
            for (size_t i = 0; i < gguf.n_tensors; i++) {
                const struct kiln__gguf_tensor *tensor = &gguf.tensors[i];
                cr_assert(tensor->blocks >= bytes && tensor->bytes <= length &&
                          tensor->blocks <= bytes + length - tensor->bytes);
            }
            struct kiln__tokenizer tokenizer = {0};
            struct kiln__lm_shape shape;
            if (!kiln__tokenizer_read(&gguf, false, &tokenizer)) {
                struct kiln__tokens tokens = {0};
                const struct kiln__reading reading = {"the sun", 7, true, NULL};
                cr_assert(kiln__tokenizer_encode(&tokenizer, &reading, &tokens));
                free(tokens.numbers);
                if (kiln__lm_shape_read(&gguf, &shape))
                    cr_assert_neq(*kiln_last_error(), 0);
            }
            kiln__tokenizer_free(&tokenizer);
            kiln__gguf_free(&gguf);
        } else {
            cr_assert_neq(*kiln_last_error(), 0);
        }
        for (int i = 8; i-- > 0;)
            bytes[at[i]] = before[i];
    }
}

Test(gguf, mutations)
{
    static const uint8_t pattern[] = {
        KILN__GGUF_BOOL, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0};
    size_t count;
    uint8_t *bytes = tiny_bytes(&count);
    mutate(bytes, count);
    free(bytes);
    bytes = with_key("gemma3.gguf", "gemma3.attention.sliding_window_pattern", KILN__GGUF_ARRAY,
                     pattern, sizeof pattern, &count);
    mutate(bytes, count);
    free(bytes);
}
