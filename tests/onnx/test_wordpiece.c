/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of `kiln embed` beside Hugging Face's `tokenizers`: the numbers that version 0.23
 * of it gives for odd texts with a small vocabulary. */
#include <criterion/criterion.h>

#if HAVE_UTF8PROC

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/missing.h"
#include "../support/tokens.h"

/* A piece's number is its place. */
static const char *const pieces[] = {
    "[PAD]",  "[UNK]", "[CLS]",    "[SEP]",    "[MASK]", "a",    "an",  "the",    "cafe",
    "ecole",  "is",    "i",        "s",        "##s",    "##er", "##e", "##st",   "sun",
    "sunny",  "out",   "##side",   "un",       "##able", "able", "e",   "mail",   "-",
    "'",      ".",     "!",        "?",        "$",      "[",    "]",   "##1",    "1",
    "2",      "3",     "##4",      "日",       "本",     "語",   "ᄒ",  "##ᅡ",   "##ᆫ",
    "straße", "ss",    "strasse",  "σ",        "##ο",    "##σ",  "##ς", "привет", "👩",
    "🇩",      "##🇪",   "istanbul", "##tanbul", "don",    "t",    "cls", "x",      ";",
    "=",      "∑",     "¿",        "«",        "»",      "(",    ")",   ",",      "…",
    "—",      "naive", "h",        "##h"};
enum { PIECES = sizeof pieces / sizeof *pieces };

#define TEXT(text) text, sizeof(text) - 1

static const struct {
    const char *text;
    size_t bytes;
    const char *usual, *cased, *accented; /* NULL: as usual */
} texts[] = {
    {TEXT(""), "2 3", NULL, NULL},
    {TEXT("   \x09\x0d\x0a "), "2 3", NULL, NULL},
    {TEXT("The sun is out!"), "2 7 17 10 19 29 3", "2 1 17 10 19 29 3", "2 7 17 10 19 29 3"},
    {TEXT("Unable sunnyside sunnyoutside zebra"), "2 21 22 18 20 1 1 3", "2 1 18 20 1 1 3",
     "2 21 22 18 20 1 1 3"},
    {TEXT("Caf\xc3\xa9 \xc3\x89"
          "COLE na\xc3\xafve cafe\xcc\x81"),
     "2 8 9 73 8 3", "2 1 1 1 1 3", "2 1 1 1 1 3"},
    {TEXT("日本語 the日本"), "2 39 40 41 7 39 40 3", NULL, NULL},
    {TEXT("한 straße STRASSE"), "2 42 43 44 45 47 3", "2 1 45 1 3", "2 1 45 47 3"},
    {TEXT("ΣΟΣ σος Привет"), "2 48 49 50 48 49 51 52 3", "2 1 48 49 51 1 3",
     "2 48 49 50 48 49 51 52 3"},
    {TEXT("\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa9 \xf0\x9f\x87\xa9\xf0\x9f\x87\xaa "
          "\xf0\x9f\x91\xa9x"),
     "2 1 54 55 1 3", NULL, NULL},
    {TEXT("İstanbul ISTANBUL"), "2 56 56 3", "2 1 1 3", "2 1 56 3"},
    {TEXT("don't e-mail: $1.2;x=3"), "2 58 27 59 24 26 25 1 31 35 28 36 62 61 63 37 3", NULL, NULL},
    {TEXT("¿Is «the» (a), … — ∑?"), "2 65 10 66 7 67 68 5 69 70 71 72 64 30 3",
     "2 65 1 66 7 67 68 5 69 70 71 72 64 30 3", "2 65 10 66 7 67 68 5 69 70 71 72 64 30 3"},
    {TEXT("[CLS] the [MASK][SEP] [cls] [mask [UNK]x"), "2 2 7 4 3 32 60 33 32 1 1 61 3", NULL,
     NULL},
    {TEXT("a\xe2\x80\x8bn a\xc2\xa0n a\xe3\x80\x80n a\xe2\x80\xa8n \xef\xbb\xbfthe a\x00n a\x01n "
          "a\xc2\x85n"),
     "2 6 5 1 5 1 5 1 7 6 6 6 3", NULL, NULL},
    {TEXT("a\xffn \xe2\x82the \xc0\x80 \xed\xa0\x80 \xf0\x9f\x91 is"), "2 6 7 10 3", NULL, NULL},
    {TEXT("a\xcd\xb8n \xee\x80\x80the"), "2 1 7 3", NULL, NULL},
};

/* ---- files ---- */

/* A folder of this process's own: tests run side by side. */
static const char *in_folder(const char *name)
{
    static char folder[256], path[512];
    const char *temporary = getenv("TMPDIR");
    if (!*folder) {
        snprintf(folder, sizeof folder, "%s/wordpiece.XXXXXX", temporary ? temporary : "/tmp");
        cr_assert(mkdtemp(folder));
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *write_file(const char *name, const char *text)
{
    const char *path = in_folder(name);
    FILE *file = fopen(path, "w");
    cr_assert(file && fputs(text, file) >= 0 && !fclose(file), "%s could not be written", path);
    return path;
}

static const char *write_vocabulary(void)
{
    char text[1024] = "";
    for (size_t i = 0; i < PIECES; i++)
        strcat(strcat(text, pieces[i]), i % 2 ? "\n" : "\r\n");
    return write_file("vocab.txt", text);
}

/* A tokenizer.json with a change: what `key` of the whole is, or of its "of". */
static const char *write_tokenizer(const char *of, const char *key, const char *value)
{
    json_t *root = json_pack("{s:{s:s}, s:{s:s}, s:[], s:{s:s, s:[{s:{s:s}}, {s:{}}, {s:{s:s}}], "
                             "s:{s:{s:[i]}, s:{s:[i]}}},"
                             " s:{s:s, s:s, s:s, s:{}}}",
                             "normalizer", "type", "BertNormalizer", "pre_tokenizer", "type",
                             "BertPreTokenizer", "added_tokens", "post_processor", "type",
                             "TemplateProcessing", "single", "SpecialToken", "id", "[CLS]",
                             "Sequence", "SpecialToken", "id", "[SEP]", "special_tokens", "[CLS]",
                             "ids", 2, "[SEP]", "ids", 3, "model", "type", "WordPiece", "unk_token",
                             "[UNK]", "continuing_subword_prefix", "##", "vocab");
    json_t *vocabulary = json_object_get(json_object_get(root, "model"), "vocab");
    for (int i = 0; i < PIECES; i++)
        json_object_set_new(vocabulary, pieces[i], json_integer(i));
    for (int i = 0; i < 5; i++)
        json_array_append_new(json_object_get(root, "added_tokens"),
                              json_pack("{s:s, s:i}", "content", pieces[i], "id", i));
    if (key)
        json_object_set_new(of ? json_object_get(root, of) : root, key,
                            json_loads(value, JSON_DECODE_ANY, NULL));
    char *text = json_dumps(root, 0);
    const char *path = write_file("tokenizer.json", text);
    free(text);
    json_decref(root);
    return path;
}

/* ---- numbers ---- */

static void expect_texts(const char *path, int column)
{
    struct tokenizer *tokenizer = open_one(path);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *columns[] = {texts[i].usual, texts[i].cased, texts[i].accented};
        const char *expected = columns[column] ? columns[column] : texts[i].usual;
        const char *got = numbers_of(tokenizer, texts[i].text, texts[i].bytes, 512);
        cr_expect_str_eq(got, expected, "\"%s\" is %s, not %s", texts[i].text, got, expected);
    }
    tokenizer_close(tokenizer);
}

Test(wordpiece, a_vocabulary_of_lines_gives_the_known_numbers)
{
    expect_texts(write_vocabulary(), 0);
}

Test(wordpiece, tokenizer_json_gives_the_known_numbers)
{
    expect_texts(write_tokenizer(NULL, NULL, NULL), 0);
}

Test(wordpiece, a_cased_model_keeps_capitals_and_accents)
{
    expect_texts(write_tokenizer("normalizer", "lowercase", "false"), 1);
    write_file("tokenizer_config.json", "{\"do_lower_case\": false}");
    expect_texts(write_vocabulary(), 1);
    write_file("tokenizer_config.json", "{}");
}

Test(wordpiece, accents_may_stay_while_capitals_go)
{
    expect_texts(write_tokenizer("normalizer", "strip_accents", "false"), 2);
}

Test(wordpiece, a_text_is_cut_at_its_end_and_keeps_what_is_around_it)
{
    struct tokenizer *tokenizer = open_one(write_vocabulary());
    cr_expect_str_eq(numbers_of(tokenizer, TEXT("the sun is out the sun"), 6), "2 7 17 10 19 3");
    cr_expect_str_eq(numbers_of(tokenizer, TEXT("the sun"), 2), "2 3");
    tokenizer_close(tokenizer);
}

Test(wordpiece, a_word_of_more_than_a_hundred_characters_is_unknown)
{
    struct tokenizer *tokenizer = open_one(write_vocabulary());
    char word[101];
    memset(word, '1', sizeof word);
    const char *numbers = numbers_of(tokenizer, word, 100, 512);
    cr_expect_eq(strncmp(numbers, "2 35 34 34 ", 11), 0, "%s", numbers);
    cr_expect_str_eq(numbers_of(tokenizer, word, 101, 512), "2 1 3");
    tokenizer_close(tokenizer);
}

Test(wordpiece, what_stands_around_a_text_is_as_the_file_says)
{
    static const char *const processors[][2] = {
        {"null", "7"},
        {"{\"type\": \"BertProcessing\", \"cls\": [\"[CLS]\", 2], \"sep\": [\"[SEP]\", 3]}",
         "2 7 3"},
        {"{\"type\": \"RobertaProcessing\", \"cls\": [\"<s>\", 4], \"sep\": [\"</s>\", 5]}",
         "4 7 5"}};
    for (size_t i = 0; i < sizeof processors / sizeof *processors; i++) {
        struct tokenizer *tokenizer =
            open_one(write_tokenizer(NULL, "post_processor", processors[i][0]));
        cr_expect_str_eq(numbers_of(tokenizer, TEXT("the"), 512), processors[i][1]);
        tokenizer_close(tokenizer);
    }
}

Test(wordpiece, a_file_that_is_not_understood_is_refused_in_words)
{
    static const struct {
        const char *of, *key, *value, *sentence;
    } changes[] = {
        {"model", "type", "\"WordLevel\"", "its model is \"WordLevel\", neither \"WordPiece\""},
        {"model", "vocab", "[]", "its model has no vocabulary"},
        {"model", "vocab", "{\"a\": \"b\"}", "\"a\" has no number"},
        {"model", "vocab", "{\"a\": -1}", "\"a\" has the number -1"},
        {"model", "vocab", "{}", "its vocabulary has no \"[UNK]\""},
        {"model", "continuing_subword_prefix", "\"################\"",
         "prefix of pieces is too long"},
        {"model", "max_input_chars_per_word", "0", "words of 0 characters"},
        {"normalizer", "type", "\"NFC\"", "its normalizer is \"NFC\""},
        {NULL, "normalizer", "[]", "its normalizer is \"\""},
        {"pre_tokenizer", "type", "\"ByteLevel\"", "its pre-tokenizer is \"ByteLevel\""},
        {NULL, "post_processor", "{\"type\": \"Odd\"}", "its post-processor is \"Odd\""},
        {NULL, "post_processor", "{\"type\": \"BertProcessing\"}", "has no number"},
        {"post_processor", "single", "[]", "has no place for the text"},
        {NULL, "added_tokens", "[{}]", "added token 0 has no number"},
        {NULL, "added_tokens", "[{\"id\": 1}]", "the special token \"\" has the number 1"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char error[KILN__TOKENIZER_ERROR] = "";
        const char *path = write_tokenizer(changes[i].of, changes[i].key, changes[i].value);
        cr_expect_null(tokenizer_open(path, error), "taken: %s", changes[i].sentence);
        cr_expect(strstr(error, changes[i].sentence) && strstr(error, path),
                  "not \"%s\" but \"%s\"", changes[i].sentence, error);
    }
}

Test(wordpiece, a_file_that_cannot_be_read_is_named)
{
    char error[KILN__TOKENIZER_ERROR] = "";
    cr_expect_null(tokenizer_open(missing_path("vocab.txt"), error));
    cr_expect_not_null(strstr(error, "/vocab.txt: No such file or directory"));
    cr_expect_null(tokenizer_open(write_file("tokenizer.json", "{\"model\": "), error));
    cr_expect(strstr(error, "tokenizer.json: "), "%s", error);
    cr_expect_null(tokenizer_open(write_file("vocab.txt", "[UNK]\na\n"), error));
    cr_expect(strstr(error, "its vocabulary has no \"[CLS]\""), "%s", error);
}

#else

Test(wordpiece, skipped)
{
    cr_skip("built without libutf8proc");
}

#endif
