/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a tokenizer. Everything in such a file comes from outside: what is not as expected is an
 * error in words. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lm/wordpiece.h"

struct reading {
    const struct kiln__tokenizer_json *file;
    struct kiln__wordpiece *to;
};

/* ---- what both kinds of file end in ---- */

static bool find_piece(const struct reading *reading, const char *piece, int32_t *id)
{
    json_t *number = json_object_get(reading->to->vocabulary, piece);
    if (!number)
        return kiln__tokenizer_refuse(reading->file, "its vocabulary has no \"%s\"", piece);
    *id = (int32_t)json_integer_value(number);
    return true;
}

static void note_number(const struct reading *reading, json_int_t id)
{
    struct kiln__tokenizer_facts *to = reading->file->to;
    to->largest = id > to->largest ? (int32_t)id : to->largest;
}

static bool add_piece(const struct reading *reading, const char *piece, json_int_t id)
{
    if (id < 0 || id > INT32_MAX)
        return kiln__tokenizer_refuse(reading->file, "\"%s\" has the number %lld", piece,
                                      (long long)id);
    if (!kiln__wordpiece_add(reading->to, piece, (int32_t)id))
        return kiln__tokenizer_refuse(reading->file, "out of memory");
    note_number(reading, id);
    return true;
}

static bool add_special(const struct reading *reading, const char *token, json_int_t id)
{
    struct kiln__wordpiece *to = reading->to;
    if (!*token || id < 0 || id > INT32_MAX)
        return kiln__tokenizer_refuse(reading->file, "the special token \"%s\" has the number %lld",
                                      token, (long long)id);
    if (json_object_set_new_nocheck(to->specials, token, json_integer(id)))
        return kiln__tokenizer_refuse(reading->file, "out of memory");
    to->special_begins[(unsigned char)*token] = true;
    note_number(reading, id);
    return true;
}

/* ---- tokenizer.json ---- */

static bool read_normalizer(const struct reading *reading, const json_t *root)
{
    const json_t *normalizer = json_object_get(root, "normalizer");
    const char *type = kiln__json_text(normalizer, "type");
    if (!normalizer || json_is_null(normalizer))
        return true; /* nothing is done */
    if (strcmp(type, "BertNormalizer"))
        return kiln__tokenizer_refuse(reading->file,
                                      "its normalizer is \"%s\", not \"BertNormalizer\"", type);
    bool lowercase = kiln__json_flag(normalizer, "lowercase", true);
    reading->to->rules = (struct kiln__wordpiece_rules){
        .clean = kiln__json_flag(normalizer, "clean_text", true),
        .space_chinese = kiln__json_flag(normalizer, "handle_chinese_chars", true),
        .strip_accents = kiln__json_flag(normalizer, "strip_accents", lowercase),
        .lowercase = lowercase,
    };
    return true;
}

static bool read_pieces(const struct reading *reading, const json_t *model)
{
    const char *piece;
    json_t *id, *vocabulary = json_object_get(model, "vocab");
    if (!json_is_object(vocabulary))
        return kiln__tokenizer_refuse(reading->file, "its model has no vocabulary");
    json_object_foreach(vocabulary, piece, id)
    {
        if (!json_is_integer(id))
            return kiln__tokenizer_refuse(reading->file, "\"%s\" has no number", piece);
        if (!add_piece(reading, piece, json_integer_value(id)))
            return false;
    }
    return true;
}

static bool read_model(const struct reading *reading, const json_t *root)
{
    struct kiln__wordpiece *to = reading->to;
    const json_t *model = json_object_get(root, "model");
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    const json_t *longest = json_object_get(model, "max_input_chars_per_word");
    const char *cut = kiln__json_text(json_object_get(root, "pre_tokenizer"), "type");
    if (strcmp(cut, "BertPreTokenizer"))
        return kiln__tokenizer_refuse(reading->file,
                                      "its pre-tokenizer is \"%s\", not \"BertPreTokenizer\"", cut);
    if (json_is_string(prefix)) {
        if (json_string_length(prefix) > KILN__WORDPIECE_MOST_PREFIX)
            return kiln__tokenizer_refuse(reading->file, "its prefix of pieces is too long");
        snprintf(to->prefix, sizeof to->prefix, "%s", json_string_value(prefix));
    }
    if (json_is_integer(longest)) {
        json_int_t most = json_integer_value(longest);
        if (most < 1 || most > KILN__WORDPIECE_MOST_WORD)
            return kiln__tokenizer_refuse(reading->file,
                                          "words of %lld characters are not from 1 to %d",
                                          (long long)most, KILN__WORDPIECE_MOST_WORD);
        to->longest_word = (size_t)most;
    }
    return read_pieces(reading, model) &&
           find_piece(reading, kiln__json_text(model, "unk_token"), &to->unknown);
}

static bool read_specials(const struct reading *reading, const json_t *root)
{
    size_t i;
    json_t *token;
    json_array_foreach(json_object_get(root, "added_tokens"), i, token)
    {
        json_t *id = json_object_get(token, "id");
        if (!json_is_integer(id))
            return kiln__tokenizer_refuse(reading->file, "added token %zu has no number", i);
        if (!add_special(reading, kiln__json_text(token, "content"), json_integer_value(id)))
            return false;
    }
    return true;
}

static bool read_json(const struct reading *reading)
{
    const json_t *root = reading->file->root;
    return read_normalizer(reading, root) && read_model(reading, root) &&
           read_specials(reading, root);
}

/* ---- vocab.txt ---- */

/* An uncased model's, unless the configuration beside it says otherwise. */
static void read_configuration(const struct reading *reading)
{
    struct kiln__wordpiece_rules *rules = &reading->to->rules;
    const char *slash = strrchr(reading->file->path, '/');
    char *path;
    if (asprintf(&path, "%.*stokenizer_config.json",
                 slash ? (int)(slash - reading->file->path) + 1 : 0, reading->file->path) < 0)
        return;
    json_t *configuration = json_load_file(path, 0, NULL);
    rules->clean = true;
    rules->lowercase = kiln__json_flag(configuration, "do_lower_case", true);
    rules->strip_accents = kiln__json_flag(configuration, "strip_accents", rules->lowercase);
    rules->space_chinese = kiln__json_flag(configuration, "tokenize_chinese_chars", true);
    json_decref(configuration);
    free(path);
}

static bool read_lines(const struct reading *reading)
{
    FILE *file = fopen(reading->file->path, "re");
    char *line = NULL;
    size_t capacity = 0;
    bool fine = true;
    if (!file)
        return kiln__tokenizer_refuse(reading->file, "%s", strerror(errno));
    for (json_int_t id = 0; fine; id++) {
        ssize_t length = getline(&line, &capacity, file);
        if (length < 0)
            break;
        while (length && strchr(" \t\r\n", line[length - 1]))
            line[--length] = 0;
        fine = add_piece(reading, line, id);
    }
    if (fine && ferror(file))
        fine = kiln__tokenizer_refuse(reading->file, "%s", strerror(errno));
    free(line);
    fclose(file);
    return fine;
}

static bool read_vocabulary(const struct reading *reading)
{
    static const char *const specials[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    struct kiln__wordpiece *to = reading->to;
    read_configuration(reading);
    struct kiln__tokenizer_around *around = &reading->file->to->around;
    if (!read_lines(reading) || !find_piece(reading, "[UNK]", &to->unknown) ||
        !find_piece(reading, "[CLS]", around->before) ||
        !find_piece(reading, "[SEP]", around->after))
        return false;
    around->before_count = around->after_count = 1;
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        json_t *id = json_object_get(to->vocabulary, specials[i]);
        if (id && !add_special(reading, specials[i], json_integer_value(id)))
            return false;
    }
    return true;
}

/* ---- any ---- */

struct kiln__wordpiece *kiln__wordpiece_read(const struct kiln__tokenizer_json *file)
{
    struct kiln__wordpiece *to = kiln__wordpiece_create();
    const struct reading reading = {file, to};
    if (!to) {
        kiln__tokenizer_refuse(file, "out of memory");
        return NULL;
    }
    to->rules = (struct kiln__wordpiece_rules){false, false, false, false};
    if (!(file->root ? read_json : read_vocabulary)(&reading)) {
        kiln__wordpiece_close(to);
        return NULL;
    }
    file->to->unknown = to->unknown;
    return to;
}

struct kiln__wordpiece *kiln__wordpiece_create(void)
{
    struct kiln__wordpiece *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    atomic_init(&made->holders, 1);
    made->rules = (struct kiln__wordpiece_rules){true, true, true, true};
    memcpy(made->prefix, "##", 3);
    made->longest_word = 100;
    made->vocabulary = json_object();
    made->specials = json_object();
    if (made->vocabulary && made->specials)
        return made;
    kiln__wordpiece_close(made);
    return NULL;
}

bool kiln__wordpiece_add(struct kiln__wordpiece *wordpiece, const char *piece, int32_t id)
{
    const size_t length = strlen(piece);
    wordpiece->longest_piece =
        length > wordpiece->longest_piece ? length : wordpiece->longest_piece;
    return !json_object_set_new_nocheck(wordpiece->vocabulary, piece, json_integer(id));
}

void kiln__wordpiece_hold(struct kiln__wordpiece *wordpiece)
{
    atomic_fetch_add(&wordpiece->holders, 1);
}

void kiln__wordpiece_close(struct kiln__wordpiece *wordpiece)
{
    if (!wordpiece || atomic_fetch_sub(&wordpiece->holders, 1) != 1)
        return;
    json_decref(wordpiece->vocabulary);
    json_decref(wordpiece->specials);
    free(wordpiece);
}
