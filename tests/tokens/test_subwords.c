/* SPDX-License-Identifier: Apache-2.0 */
/* Byte-level BPE and unigram tokenizers of `kiln embed` beside Hugging Face's `tokenizers`: the
 * numbers that version 0.23 of it gives for odd texts (known.def), and files that are refused. */
#include <criterion/criterion.h>

#if HAVE_UTF8PROC

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../lm/subwords.h"
#include "../support/tokens.h"

/* A file beside this one. */
static const char *path_of(const char *name)
{
    static char path[1024];
    const char *source = getenv("srcdir");
    snprintf(path, sizeof path, "%s/tests/tokens/%s.json", source ? source : ".", name);
    return path;
}

/* ---- known answers ---- */

static const struct known {
    const char *file, *text;
    size_t bytes;
    const char *numbers;
} known[] = {
#define KNOWN(file, text, bytes, numbers) {#file, text, bytes, numbers},
#include "known.def"
};

static void expect_known(const char *file)
{
    struct tokenizer *first = open_one(path_of(file)), *tokenizer = tokenizer_share(first);
    size_t seen = 0;
    cr_assert(tokenizer);
    tokenizer_close(first);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].file, file) != 0)
            continue;
        const char *got = numbers_of(tokenizer, known[i].text, known[i].bytes, MOST);
        cr_expect_str_eq(got, known[i].numbers, "%s: \"%s\" is %s, not %s", file, known[i].text,
                         got, known[i].numbers);
        seen++;
    }
    cr_expect_gt(seen, 20);
    tokenizer_close(tokenizer);
}

Test(subwords, byte_level_bpe_gives_the_known_numbers)
{
    expect_known("bytes");
    expect_known("wide");
}

Test(subwords, bpe_of_characters_gives_the_known_numbers)
{
    expect_known("characters");
}

Test(subwords, unigram_models_give_the_known_numbers)
{
    expect_known("unigram");
    expect_known("fallback");
}

/* ---- back to texts ---- */

/* A space may be set before the first word; what is unknown comes back as its bytes. */
Test(subwords, tokens_are_written_as_the_text_that_they_are_of)
{
    static const char *const files[] = {"bytes", "wide", "characters", "fallback"};
    static const char text[] = "the sun\xf0\x9f\x98\x80 is out";
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct tokenizer *tokenizer = open_one(path_of(files[i]));
        const struct kiln__reading reading = {text, strlen(text), true, NULL};
        struct kiln__tokens tokens = {0};
        char written[16 * MOST] = "";
        size_t length = 0;
        cr_assert(kiln__subwords_encode(tokenizer->subwords, &reading, MOST, &tokens));
        for (size_t k = 0; k < tokens.count; k++)
            length +=
                kiln__subwords_write(tokenizer->subwords, tokens.numbers[k], written + length);
        free(tokens.numbers);
        cr_expect_str_eq(written + (*written == ' '), text, "%s: \"%s\"", files[i], written);
        tokenizer_close(tokenizer);
    }
}

/* ---- texts that `tokenizers` does not take, and ends ---- */

Test(subwords, bytes_that_are_no_text_are_replacement_characters)
{
    static const char *const files[] = {"bytes", "wide", "characters", "unigram", "fallback"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct tokenizer *tokenizer = open_one(path_of(files[i]));
        char wanted[8 * MOST];
        strcpy(wanted,
               numbers_of(tokenizer, "a\xef\xbf\xbd the\xef\xbf\xbd\xef\xbf\xbd", 14, MOST));
        cr_expect_str_eq(numbers_of(tokenizer, "a\xff the\xe2\x82", 8, MOST), wanted);
        cr_expect(*numbers_of(tokenizer, "a\0b", 3, MOST));
        tokenizer_close(tokenizer);
    }
}

Test(subwords, a_text_is_cut_at_its_end_and_keeps_what_is_around_it)
{
    struct tokenizer *tokenizer = open_one(path_of("bytes"));
    char whole[8 * MOST];
    strcpy(whole, numbers_of(tokenizer, "the sun is out", 14, MOST));
    const char *cut = numbers_of(tokenizer, "the sun is out", 14, 4), *behind = strrchr(cut, ' ');
    cr_expect(behind && !strcmp(behind, " 2") && !strncmp(cut, whole, (size_t)(behind - cut)), "%s",
              cut);
    cr_expect_str_eq(numbers_of(tokenizer, "the sun", 7, 2), "0 2");
    tokenizer_close(tokenizer);
}

Test(subwords, a_long_text_of_one_piece)
{
    static int32_t ids[1 << 16];
    size_t count;
    enum { BYTES = 20000 };
    char *text = malloc(BYTES);
    cr_assert(text);
    memset(text, 'e', BYTES);
    static const char *const files[] = {"bytes", "unigram"};
    for (size_t i = 0; i < 2; i++) {
        struct tokenizer *tokenizer = open_one(path_of(files[i]));
        cr_assert(tokenizer_encode(tokenizer, text, BYTES, sizeof ids / sizeof *ids, ids, &count));
        cr_expect_gt(count, 1000);
        tokenizer_close(tokenizer);
    }
    free(text);
}

/* ---- files that are refused ---- */

/* A file with a change: what a path of keys is to be, as JSON. */
static const char *changed(const char *file, const char *of, const char *key, const char *value)
{
    static char path[256];
    const char *temporary = getenv("TMPDIR");
    json_error_t error;
    json_t *root = json_load_file(path_of(file), 0, &error);
    cr_assert(root, "%s", error.text);
    json_t *to = of ? json_object_get(root, of) : root;
    if (value)
        cr_assert_not(json_object_set_new(to, key, json_loads(value, JSON_DECODE_ANY, &error)),
                      "%s: %s", value, error.text);
    else
        json_object_del(to, key);
    snprintf(path, sizeof path, "%s/subwords.XXXXXX.json", temporary ? temporary : "/tmp");
    const int descriptor = mkstemps(path, 5);
    cr_assert_geq(descriptor, 0);
    cr_assert_not(json_dumpfd(root, descriptor, 0));
    close(descriptor);
    json_decref(root);
    return path;
}

Test(subwords, what_is_not_known_is_refused_in_words)
{
    static const struct {
        const char *file, *of, *key, *value, *sentence;
    } changes[] = {
        {"bytes", "model", "type", "\"WordLevel\"", "its model is \"WordLevel\", neither"},
        {"bytes", "model", "byte_fallback", "true", "is beside something else"},
        {"bytes", "model", "end_of_word_suffix", "\"x\"", "a prefix or suffix of words"},
        {"characters", "model", "byte_fallback", "false", "without byte_fallback alone"},
        {"characters", "model", "ignore_merges", "true", "without byte_fallback alone"},
        {"characters", NULL, "normalizer", "null", "its pre-tokenizer cuts by \"\""},
        {"bytes", "model", "vocab", "{\"a\": 0}", "is no pair of tokens that makes a token"},
        {"bytes", "model", "vocab", "{\"a\": -1}", "\"a\" has no number"},
        {"bytes", "model", "vocab", "{\"a\": 1000000000}", "\"a\" has no number"},
        {"bytes", "model", "vocab", "{}", "its model has 0 tokens"},
        {"bytes", "model", "vocab", "[]", "its model has 0 tokens"},
        {"bytes", "model", "merges", "[\"ab\"]", "merge 0 is no pair"},
        {"bytes", "model", "merges", "[[\"a\"]]", "merge 0 is no pair"},
        {"bytes", "model", "merges", "[\"\"]", "merge 0 is no pair"},
        {"bytes", "model", "merges", "[3]", "merge 0 is no pair"},
        {"bytes", NULL, "pre_tokenizer", "null", "without a ByteLevel pre-tokenizer"},
        {"bytes", NULL, "pre_tokenizer", "{\"type\": \"Whitespace\"}",
         "its pre-tokenizer is \"Whitespace\""},
        {"wide", "pre_tokenizer", "pretokenizers",
         "[{\"type\": \"ByteLevel\", \"use_regex\": false}]", "cuts nowhere"},
        {"wide", "pre_tokenizer", "pretokenizers",
         "[{\"type\": \"Split\", \"pattern\": {\"Regex\": \"x\"}, \"behavior\": \"Isolated\"}]",
         "its pre-tokenizer cuts by \"x\""},
        {"wide", "pre_tokenizer", "pretokenizers",
         "[{\"type\": \"ByteLevel\"}, {\"type\": \"ByteLevel\"}]", "goes on behind \"ByteLevel\""},
        {"bytes", NULL, "normalizer", "{\"type\": \"Nmt\"}", "its normalizer is \"Nmt\""},
        {"bytes", NULL, "normalizer",
         "{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"x+\"}, \"content\": \"\"}",
         "replaces the pattern \"x+\""},
        {"bytes", NULL, "added_tokens", "[{\"content\": \"x\"}]", "\"x\" has no number"},
        {"bytes", NULL, "added_tokens", "[{\"id\": 300, \"content\": \"\"}, {\"content\": \"x\"}]",
         "\"x\" has no number"},
        {"bytes", NULL, "post_processor", "{\"type\": \"Odd\"}", "its post-processor is \"Odd\""},
        {"unigram", "model", "unk_id", "null", "its model has no unk_id"},
        {"unigram", "model", "unk_id", "100000", "its model has no unk_id"},
        {"unigram", "model", "vocab", "[[\"a\"]]", "its model has no unk_id"},
        {"unigram", "model", "vocab", "[3, 4, 5, 6]", "token 0 has no text"},
        {"unigram", "model", "vocab", "[[\"a\"], [\"b\"], [\"c\"], [\"d\"]]",
         "token 0 has no score"},
        {"unigram", NULL, "pre_tokenizer", "{\"type\": \"ByteLevel\"}", "with a unigram model"},
        {"unigram", "pre_tokenizer", "prepend_scheme", "\"last\"", "has the scheme \"last\""},
        {"unigram", "pre_tokenizer", "prepend_scheme", "\"first\"", "takes away beginnings"},
        {"unigram", "pre_tokenizer", "replacement", "\"\"", "has the replacement \"\""},
        {"unigram", NULL, "normalizer",
         "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA\"}", "is damaged"},
        {"unigram", NULL, "normalizer",
         "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"/////w==\"}", "is damaged"},
        {"unigram", NULL, "normalizer",
         "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"a?\"}", "is damaged"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char error[KILN__TOKENIZER_ERROR] = "";
        const char *path =
            changed(changes[i].file, changes[i].of, changes[i].key, changes[i].value);
        cr_expect_null(tokenizer_open(path, error), "taken: %s", changes[i].sentence);
        cr_expect(strstr(error, changes[i].sentence) && strstr(error, path),
                  "not \"%s\" but \"%s\"", changes[i].sentence, error);
        unlink(path);
    }
}

/* A trie that leads out of itself, or round in a circle, finds nothing. */
Test(subwords, a_charsmap_of_noise_is_no_danger)
{
    static const char *const maps[] = {"CAAAAP///////////wA=", "BAAAAAAAAAAA",
                                       "CAAAAAAEAABhBQAAAA==", "CAAAAAAEAABhBQAAAGEA"};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        char value[200], error[KILN__TOKENIZER_ERROR] = "";
        snprintf(value, sizeof value,
                 "{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"%s\"}", maps[i]);
        const char *path = changed("unigram", NULL, "normalizer", value);
        struct tokenizer *tokenizer = tokenizer_open(path, error);
        if (tokenizer)
            cr_expect(*numbers_of(tokenizer, "the sun aaa", 11, MOST));
        tokenizer_close(tokenizer);
        unlink(path);
    }
}

#else

Test(subwords, skipped)
{
    cr_skip("built without libutf8proc");
}

#endif
