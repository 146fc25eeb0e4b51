/* SPDX-License-Identifier: Apache-2.0 */
/* Sentence encoders in GGUF files beside transformers in float64, whose numbers encoders.def has.
 */
#include <criterion/criterion.h>
#include <kiln/lm.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/device.h"
#include "../support/file.h"
#include "tiny.h"

#define TOKENS(...) ((const int32_t[]){__VA_ARGS__})
#define REALS(...) ((const double[]){__VA_ARGS__})

TestSuite(encoder, .init = open_device, .fini = close_device);

enum { WIDTH = 64 }; /* of a vector, at most */

struct known {
    const char *model, *text;
    const int32_t *tokens;
    const double *vector;
};

static const struct known known_texts[] = {
#define ENCODED(model, text, tokens, vector) {model, text, tokens, vector},
#include "encoders.def"
};

enum { COUNT = sizeof known_texts / sizeof *known_texts };

static kiln_lm *load(const char *name)
{
    kiln_lm *lm;
    expect_ok(kiln_lm_load(context, model_path(name), NULL, &lm));
    return lm;
}

static size_t width_of(const kiln_lm *lm)
{
    kiln_lm_info info;
    expect_ok(kiln_lm_get_info(lm, &info));
    cr_assert(info.encoder && info.width <= WIDTH);
    return info.width;
}

/* ---- numbers ---- */

static void expect_tokens(const kiln_lm *lm, const struct known *known)
{
    int32_t *tokens;
    size_t count;
    expect_ok(kiln_lm_tokenize(lm, known->text, strlen(known->text),
                               KILN_LM_BEGIN | KILN_LM_CONTROL, &tokens, &count));
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(tokens[i], known->tokens[i], "%s, \"%s\": token %zu is %d, not %d",
                     known->model, known->text, i, tokens[i], known->tokens[i]);
    cr_expect_eq(known->tokens[count], -1, "\"%s\" has more tokens", known->text);
    kiln_free(tokens);
}

static void expect_vector(const struct known *known, const float *vector, size_t width)
{
    double worst = 0;
    for (size_t i = 0; i < width; i++)
        worst = fmax(worst, fabs((double)vector[i] - known->vector[i]));
    cr_expect_lt(worst, 2e-6, "%s, \"%s\": off by %g", known->model, known->text, worst);
}

/* Each text alone, and all at once: the same bits. */
static void check_model(const struct known *known, size_t count)
{
    static float all[COUNT * WIDTH];
    const char *texts[COUNT];
    kiln_lm *lm = load(known->model);
    const size_t width = width_of(lm);
    for (size_t i = 0; i < count; i++)
        texts[i] = known[i].text;
    expect_ok(kiln_lm_embed(lm, texts, count, all, count * width));
    for (size_t i = 0; i < count; i++) {
        float alone[WIDTH];
        expect_tokens(lm, &known[i]);
        expect_vector(&known[i], all + i * width, width);
        expect_ok(kiln_lm_embed(lm, texts + i, 1, alone, width));
        cr_expect_arr_eq(alone, all + i * width, width * sizeof *alone, "\"%s\"", texts[i]);
    }
    expect_ok(kiln_lm_embed(lm, NULL, 0, NULL, 0));
    kiln_lm_release(lm);
}

Test(encoder, vectors)
{
    size_t from = 0;
    for (size_t i = 1; i <= COUNT; i++)
        if (i == COUNT || strcmp(known_texts[i].model, known_texts[from].model) != 0) {
            check_model(known_texts + from, i - from);
            from = i;
        }
}

/* ---- parts of batches ---- */

/* Rows of other lengths beside it, filled up with what does not count. */
static void gather(kiln_lm *lm, kiln_lm_pooling pooling, float *vectors)
{
    enum { ROWS = 3, LONGEST = 6 };
    const int32_t tokens[ROWS * LONGEST] = {2,  9,  10, 3, 77, 88, 2, 20, 30,
                                            40, 50, 3,  2, 3,  9,  9, 9,  9};
    const int32_t lengths[ROWS] = {4, 6, 2};
    const size_t width = width_of(lm);
    kiln_tensor made;
    kiln_batch *b = kiln_batch_create(context);
    const kiln_tensor rows = kiln_upload(b, KILN_I32, kiln_shape(ROWS, LONGEST), tokens);
    expect_ok(kiln_lm_record_vectors(
        lm, b, rows, kiln_upload(b, KILN_I32, kiln_shape(ROWS), lengths), pooling, &made));
    kiln_read(b, made, vectors, ROWS * width * sizeof *vectors);
    run_batch(b);
    kiln_batch_release(b);
}

/* A file of CLS pooling: the first row's mean is none of its tokens', its last no other row's. */
static void check_poolings(void)
{
    float of_file[3 * WIDTH], of[4][3 * WIDTH];
    kiln_lm *lm = load("bert.gguf");
    const size_t width = width_of(lm);
    gather(lm, KILN_LM_POOLING_OF_FILE, of_file);
    for (int pooling = KILN_LM_POOLING_MEAN; pooling <= KILN_LM_POOLING_LAST; pooling++)
        gather(lm, (kiln_lm_pooling)pooling, of[pooling]);
    cr_expect_arr_eq(of_file, of[KILN_LM_POOLING_CLS], 3 * width * sizeof *of_file);
    for (size_t i = 0; i < width; i++) { /* the last row has two tokens */
        const double mean = ((double)of[KILN_LM_POOLING_CLS][2 * width + i] +
                             (double)of[KILN_LM_POOLING_LAST][2 * width + i]) /
                            2;
        cr_expect_float_eq((double)of[KILN_LM_POOLING_MEAN][2 * width + i], mean, 1e-5);
    }
    cr_expect(memcmp(of[KILN_LM_POOLING_LAST], of[KILN_LM_POOLING_CLS], width * sizeof(float)));
    kiln_lm_release(lm);
}

/* What is read of a text: specials that are written out only where that is asked for. */
static void check_readings(void)
{
    static const char text[] = "[MASK] sun";
    kiln_lm *lm = load("bert.gguf");
    int32_t *tokens;
    size_t count, plain;
    expect_ok(kiln_lm_tokenize(lm, text, strlen(text), KILN_LM_PLAIN, &tokens, &plain));
    kiln_free(tokens);
    expect_ok(kiln_lm_tokenize(lm, text, strlen(text), KILN_LM_CONTROL, &tokens, &count));
    cr_expect(count == 2 && tokens[0] == 4 && plain > 2);
    const char *word = kiln_lm_token_text(lm, tokens[1], &count);
    cr_expect(count == 4 && !memcmp(word, " sun", 4));
    kiln_free(tokens);
    kiln_lm_release(lm);
}

/* What fills a vocabulary up is no piece by which capitals would count, as converters write it:
 * with or without what begins a word. */
static void check_filled_up(const char *piece)
{
    static const char taken[] = "\342\226\201there", text[] = "The SUN", lower[] = "the sun";
    size_t count, others;
    int32_t *tokens, *wanted;
    char path[512];
    kiln_lm *lm;
    uint8_t *bytes = model_bytes("bert.gguf", &count);
    cr_assert_eq(strlen(piece), strlen(taken));
    memcpy(bytes + place_of(bytes, count, taken, strlen(taken)), piece, strlen(piece));
    temporary_path(path, "filled.gguf");
    put_file(path, bytes, count);
    free(bytes);
    expect_ok(kiln_lm_load(context, path, NULL, &lm));
    unlink(path);
    expect_ok(kiln_lm_tokenize(lm, text, strlen(text), KILN_LM_PLAIN, &tokens, &count));
    expect_ok(kiln_lm_tokenize(lm, lower, strlen(lower), KILN_LM_PLAIN, &wanted, &others));
    cr_assert_eq(count, others);
    cr_expect_arr_eq(tokens, wanted, count * sizeof *tokens, "with %s", piece);
    kiln_free(tokens);
    kiln_free(wanted);
    kiln_lm_release(lm);
}

Test(encoder, parts)
{
    check_poolings();
    check_readings();
    check_filled_up("[PAD200]");
    check_filled_up("\342\226\201[PAD7");
}

/* ---- refused ---- */

static void expect_load(const uint8_t *bytes, size_t count, kiln_status status, const char *part)
{
    char path[512];
    kiln_lm *lm;
    temporary_path(path, "spoilt.gguf");
    put_file(path, bytes, count);
    const kiln_status answered = kiln_lm_load(context, path, NULL, &lm);
    unlink(path);
    expect_error_part(answered, status, part);
    cr_expect_not(lm);
}

/* Have a file refused in which what stands behind a text has another value. */
static void spoil(const char *model, const char *text, ptrdiff_t behind, uint32_t value,
                  size_t size, kiln_status status, const char *part)
{
    size_t count;
    uint8_t *bytes = model_bytes(model, &count);
    const size_t at = place_of(bytes, count, text, strlen(text)) + strlen(text);
    memcpy(bytes + at + behind, &value, size); /* of a machine with the least byte first */
    expect_load(bytes, count, status, part);
    free(bytes);
}

static void put_over(uint8_t *bytes, size_t count, const char *name, const char *other)
{
    memcpy(bytes + place_of(bytes, count, name, strlen(name)), other, strlen(other));
}

/* Under another name it is missing, or not known. */
static void rename_in(const char *model, const char *name, const char *other, kiln_status status,
                      const char *part)
{
    size_t count;
    uint8_t *bytes = model_bytes(model, &count);
    put_over(bytes, count, name, other);
    expect_load(bytes, count, status, part);
    free(bytes);
}

/* Words that have no token, where neither the key nor the usual piece says which one they are; a
 * model that is not known is said before its tokenizer is. */
static void rename_twice(void)
{
    static const struct {
        const char *model, *names[2][2];
        kiln_status status;
        const char *part;
    } cases[] = {
        {"bert.gguf",
         {{"tokenizer.ggml.unknown_token_id", "tokenizer.ggml.unwritten"}, {"[UNK]", "[UNX]"}},
         KILN_INVALID_ARGUMENT,
         "no token is for words that have none"},
        {"roberta.gguf",
         {{"roberta-bpe", "fortran-bpe"}, {"bert", "jina"}},
         KILN_UNSUPPORTED,
         "the architecture is \"jina\"; kiln knows"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t count;
        uint8_t *bytes = model_bytes(cases[i].model, &count);
        for (size_t k = 0; k < 2; k++)
            put_over(bytes, count, cases[i].names[k][0], cases[i].names[k][1]);
        expect_load(bytes, count, cases[i].status, cases[i].part);
        free(bytes);
    }
}

Test(encoder, files_refused)
{
    const kiln_status bad = KILN_INVALID_ARGUMENT, unknown = KILN_UNSUPPORTED;
    /* A key's value comes behind its type of 4 bytes. */
    spoil("bert.gguf", "bert.pooling_type", 4, 4, 4, unknown,
          "pooling_type is 4, of a model that ranks");
    spoil("bert.gguf", "bert.pooling_type", 4, 9, 4, unknown, "pooling_type is 9; kiln knows none");
    spoil("bert.gguf", "bert.attention.causal", 4, 1, 1, unknown,
          "where tokens see those before them");
    spoil("bert.gguf", "bert.context_length", 4, 41, 4, bad,
          "tensor \"position_embd.weight\" is [40,32], and should be [41,32]");
    spoil("bert.gguf", "bert.attention.head_count", 4, 3, 4, bad, "should be");
    spoil("bert.gguf", "bert.block_count", 4, 1, 4, unknown, "kiln knows no tensor \"blk.1.");
    spoil("bert.gguf", "bert.block_count", 4, 1000, 4, bad, "tensors for 1000 layers");
    spoil("bert.gguf", "tokenizer.ggml.unknown_token_id", 4, 5000, 4, bad, "no whole number");
    spoil("bert.gguf", "tokenizer.ggml.cls_token_id", 4, UINT32_MAX, 4, bad, "no whole number");
    rename_in("bert.gguf", "blk.0.attn_output.bias", "blk.0.attn_outputs", bad,
              "has no tensor \"blk.0.attn_output.bias\"");
    rename_in("bert.gguf", "token_embd_norm.bias", "token_embd_form", bad,
              "no tensor \"token_embd_norm.bias\"");
    rename_in("bert.gguf", "token_types.weight", "other_kinds", unknown,
              "kiln knows no tensor \"other_kinds");
    rename_in("nomic-bert.gguf", "blk.1.attn_qkv.weight", "blk.1.attn_qkw", bad,
              "has no tensor \"blk.1.attn_q.weight\"");
    rename_in("tiny.gguf", "gpt2", "bert", unknown,
              "the tokenizer is \"bert\", and kiln knows gpt2 and llama of models whose texts");
    rename_twice();
    spoil("xlm-roberta.gguf", "tokenizer.ggml.scores", 8, 7, 4, bad, "");
    spoil("xlm-roberta.gguf", "tokenizer.ggml.scores", 16, 0x7fc00000, 4, bad,
          "the score of token 0 is no number");
    spoil("xlm-roberta.gguf", "tokenizer.ggml.precompiled_charsmap", 16, 3, 4, bad,
          "key \"tokenizer.ggml.precompiled_charsmap\" is damaged");
    rename_in("xlm-roberta.gguf", "tokenizer.ggml.scores", "tokenizer.ggml.stores", bad,
              "key \"tokenizer.ggml.scores\" is missing");
    rename_in("xlm-roberta.gguf", "tokenizer.ggml.unknown_token_id",
              "tokenizer.ggml.unwritten_token_", bad, "no token is for characters that have none");
    rename_in("xlm-roberta.gguf", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.box_token_id", bad,
              "no token is for a text's beginning");
    rename_in("roberta.gguf", "roberta-bpe", "fortran-bpe", unknown,
              "the pre-tokenizer is \"fortran-bpe\"; kiln knows gpt-2");
    rename_in("roberta.gguf", "tokenizer.ggml.merges", "tokenizer.ggml.verges", bad,
              "key \"tokenizer.ggml.merges\" is missing");
    spoil("roberta.gguf", "tokenizer.ggml.mask_token_id", 4, 5000, 4, bad, "no whole number");
}

/* Whatever a file says before its tensors' content, loading ends with an answer, and so does a
 * text.
 */
Test(encoder, mutations)
{
    enum { FILES = 400, HEAD = 9000 };
    static const char *const models[] = {"bert.gguf", "nomic-bert.gguf", "xlm-roberta.gguf",
                                         "roberta.gguf"};
    static const char *const texts[] = {"The sun is out, [MASK] caf\303\251 \377"};
    const unsigned long files =
        getenv("KILN_FUZZ_FILES") ? strtoul(getenv("KILN_FUZZ_FILES"), NULL, 10) : FILES;
    char path[512];
    uint32_t state = 1;
    unsigned long loaded = 0;
    temporary_path(path, "mutated.gguf");
    for (unsigned long i = 0; i < files; i++) {
        size_t count;
        kiln_lm *lm;
        kiln_lm_info info;
        uint8_t *bytes = model_bytes(models[i / 4 % 4], &count);
        for (unsigned long k = 0; k < 1 + i % 4; k++) {
            state = state * 1664525 + 1013904223;
            uint8_t *at = &bytes[(state >> 8) % HEAD];
            *at = state & 1 ? (uint8_t)(state >> 24) : (uint8_t)(*at ^ 1 << (state >> 28) % 8);
        }
        put_file(path, bytes, count);
        free(bytes);
        const kiln_status status = kiln_lm_load(context, path, NULL, &lm);
        cr_expect(status ? !lm && *kiln_last_error() : lm != NULL);
        if (status || kiln_lm_get_info(lm, &info))
            continue;
        float *vector = calloc(info.width, sizeof *vector);
        if (loaded++ % 16 == 0 && info.encoder && kiln_lm_embed(lm, texts, 1, vector, info.width))
            cr_expect(*kiln_last_error());
        free(vector);
        kiln_lm_release(lm);
    }
    unlink(path);
    cr_expect_gt(loaded, 0);
}

Test(encoder, calls_refused)
{
    float vectors[2 * WIDTH];
    const char *const texts[] = {"sun", NULL};
    const int32_t tokens[41] = {2}, length[] = {1};
    kiln_tensor made;
    kiln_lm_session *session;
    kiln_lm_batcher *batcher;
    kiln_lm *lm = load("bert.gguf"), *decoder = load("tiny.gguf");
    const size_t width = width_of(lm);
    expect_error_part(kiln_lm_session_create(lm, NULL, &session), KILN_UNSUPPORTED,
                      "bert is an encoder: its texts do not go on");
    expect_error_part(kiln_lm_batcher_create(lm, NULL, &batcher), KILN_UNSUPPORTED,
                      "bert is an encoder");
    expect_error_part(kiln_lm_embed(decoder, texts, 1, vectors, width), KILN_UNSUPPORTED,
                      "llama is no encoder");
    expect_error_part(kiln_lm_embed(NULL, texts, 1, vectors, width), KILN_INVALID_ARGUMENT,
                      "lm is NULL");
    expect_error_part(kiln_lm_embed(lm, NULL, 1, vectors, width), KILN_INVALID_ARGUMENT,
                      "texts is NULL");
    expect_error_part(kiln_lm_embed(lm, texts, 1, NULL, width), KILN_INVALID_ARGUMENT,
                      "vectors is NULL");
    expect_error_part(kiln_lm_embed(lm, texts, 2, vectors, 2 * width), KILN_INVALID_ARGUMENT,
                      "text 1 is NULL");
    expect_error_part(kiln_lm_embed(lm, texts, 1, vectors, width + 1), KILN_INVALID_ARGUMENT,
                      "33 elements for 1 vectors of 32");
    kiln_batch *b = kiln_batch_create(context);
    const kiln_tensor row = kiln_upload(b, KILN_I32, kiln_shape(1, 41), tokens);
    const kiln_tensor one = kiln_upload(b, KILN_I32, kiln_shape(1), length);
    const kiln_lm_pooling file = KILN_LM_POOLING_OF_FILE;
    expect_error_part(kiln_lm_record_vectors(lm, b, row, one, file, &made), KILN_TOO_LARGE,
                      "41 tokens, and the encoder takes 40");
    expect_error_part(kiln_lm_record_vectors(lm, b, one, one, file, &made), KILN_INVALID_ARGUMENT,
                      "are of rank 1 and 1");
    expect_error_part(kiln_lm_record_vectors(lm, b, row, one, (kiln_lm_pooling)4, &made),
                      KILN_INVALID_ARGUMENT, "pooling is 4");
    expect_error_part(kiln_lm_record_vectors(lm, NULL, row, one, file, &made),
                      KILN_INVALID_ARGUMENT, "batch is NULL");
    expect_error_part(kiln_lm_record_vectors(lm, b, row, one, file, NULL), KILN_INVALID_ARGUMENT,
                      "vectors is NULL");
    kiln_batch_release(b);
    kiln_lm_release(lm);
    kiln_lm_release(decoder);
}
