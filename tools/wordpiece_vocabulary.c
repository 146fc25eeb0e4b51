/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a tokenizer. Everything in such a file comes from outside: what is not as expected is an
 * error in words. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wordpiece.h"

struct reading {
    const char *path;
    struct wordpiece *to;
    char *error;
};

static bool refuse(const struct reading *reading, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool refuse(const struct reading *reading, const char *format, ...)
{
    va_list arguments;
    int length = snprintf(reading->error, WORDPIECE_ERROR, "%s: ", reading->path);
    va_start(arguments, format);
    if (length >= 0 && length < WORDPIECE_ERROR)
        vsnprintf(reading->error + length, WORDPIECE_ERROR - (size_t)length, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- what both kinds of file end in ---- */

static bool find_piece(const struct reading *reading, const char *piece, int32_t *id)
{
    json_t *number = json_object_get(reading->to->vocabulary, piece);
    if (!number)
        return refuse(reading, "its vocabulary has no \"%s\"", piece);
    *id = (int32_t)json_integer_value(number);
    return true;
}

static bool add_piece(const struct reading *reading, const char *piece, json_int_t id)
{
    struct wordpiece *to = reading->to;
    size_t length = strlen(piece);
    if (id < 0 || id > INT32_MAX)
        return refuse(reading, "\"%s\" has the number %lld", piece, (long long)id);
    if (json_object_set_new_nocheck(to->vocabulary, piece, json_integer(id)))
        return refuse(reading, "out of memory");
    to->longest_piece = length > to->longest_piece ? length : to->longest_piece;
    to->largest = id > to->largest ? (int32_t)id : to->largest;
    return true;
}

static bool add_special(const struct reading *reading, const char *token, json_int_t id)
{
    struct wordpiece *to = reading->to;
    if (!*token || id < 0 || id > INT32_MAX)
        return refuse(reading, "the special token \"%s\" has the number %lld", token,
                      (long long)id);
    if (json_object_set_new_nocheck(to->specials, token, json_integer(id)))
        return refuse(reading, "out of memory");
    to->special_begins[(unsigned char)*token] = true;
    to->largest = id > to->largest ? (int32_t)id : to->largest;
    return true;
}

/* ---- tokenizer.json ---- */

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* A flag that may be left out. */
static bool flag_of(const json_t *object, const char *key, bool usual)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : usual;
}

static bool read_normalizer(const struct reading *reading, const json_t *root)
{
    const json_t *normalizer = json_object_get(root, "normalizer");
    const char *type = text_of(normalizer, "type");
    if (!normalizer || json_is_null(normalizer))
        return true; /* nothing is done */
    if (strcmp(type, "BertNormalizer"))
        return refuse(reading, "its normalizer is \"%s\", not \"BertNormalizer\"", type);
    bool lowercase = flag_of(normalizer, "lowercase", true);
    reading->to->rules = (struct wordpiece_rules){
        .clean = flag_of(normalizer, "clean_text", true),
        .space_chinese = flag_of(normalizer, "handle_chinese_chars", true),
        .strip_accents = flag_of(normalizer, "strip_accents", lowercase),
        .lowercase = lowercase,
    };
    return true;
}

static bool read_pieces(const struct reading *reading, const json_t *model)
{
    const char *piece;
    json_t *id, *vocabulary = json_object_get(model, "vocab");
    if (!json_is_object(vocabulary))
        return refuse(reading, "its model has no vocabulary");
    json_object_foreach(vocabulary, piece, id)
    {
        if (!json_is_integer(id))
            return refuse(reading, "\"%s\" has no number", piece);
        if (!add_piece(reading, piece, json_integer_value(id)))
            return false;
    }
    return true;
}

static bool read_model(const struct reading *reading, const json_t *root)
{
    struct wordpiece *to = reading->to;
    const json_t *model = json_object_get(root, "model");
    const json_t *prefix = json_object_get(model, "continuing_subword_prefix");
    const json_t *longest = json_object_get(model, "max_input_chars_per_word");
    const char *type = text_of(model, "type"),
               *cut = text_of(json_object_get(root, "pre_tokenizer"), "type");
    if (strcmp(type, "WordPiece"))
        return refuse(reading, "its model is \"%s\", not \"WordPiece\"", type);
    if (strcmp(cut, "BertPreTokenizer"))
        return refuse(reading, "its pre-tokenizer is \"%s\", not \"BertPreTokenizer\"", cut);
    if (json_is_string(prefix)) {
        if (json_string_length(prefix) > WORDPIECE_MOST_PREFIX)
            return refuse(reading, "its prefix of pieces is too long");
        snprintf(to->prefix, sizeof to->prefix, "%s", json_string_value(prefix));
    }
    if (json_is_integer(longest)) {
        json_int_t most = json_integer_value(longest);
        if (most < 1 || most > WORDPIECE_MOST_WORD)
            return refuse(reading, "words of %lld characters are not from 1 to %d", (long long)most,
                          WORDPIECE_MOST_WORD);
        to->longest_word = (size_t)most;
    }
    return read_pieces(reading, model) &&
           find_piece(reading, text_of(model, "unk_token"), &to->unknown);
}

static bool read_specials(const struct reading *reading, const json_t *root)
{
    size_t i;
    json_t *token;
    json_array_foreach(json_object_get(root, "added_tokens"), i, token)
    {
        json_t *id = json_object_get(token, "id");
        if (!json_is_integer(id))
            return refuse(reading, "added token %zu has no number", i);
        if (!add_special(reading, text_of(token, "content"), json_integer_value(id)))
            return false;
    }
    return true;
}

static bool add_around(const struct reading *reading, int32_t around[WORDPIECE_MOST_AROUND],
                       size_t *count, const json_t *id)
{
    json_int_t value = json_integer_value(id);
    if (!json_is_integer(id) || value < 0 || value > INT32_MAX)
        return refuse(reading, "a token of its post-processor has no number");
    if (*count == WORDPIECE_MOST_AROUND)
        return refuse(reading, "its post-processor has more than %d tokens on one side",
                      WORDPIECE_MOST_AROUND);
    around[(*count)++] = (int32_t)value;
    return true;
}

/* A list of special tokens and the text itself. */
static bool read_template(const struct reading *reading, const json_t *processor)
{
    struct wordpiece *to = reading->to;
    const json_t *tokens = json_object_get(processor, "special_tokens");
    bool is_behind = false;
    size_t i, k;
    json_t *part, *id;
    json_array_foreach(json_object_get(processor, "single"), i, part)
    {
        const char *name = text_of(json_object_get(part, "SpecialToken"), "id");
        is_behind |= json_object_get(part, "Sequence") != NULL;
        json_array_foreach(json_object_get(json_object_get(tokens, name), "ids"), k, id)
        {
            if (!(is_behind ? add_around(reading, to->after, &to->after_count, id)
                            : add_around(reading, to->before, &to->before_count, id)))
                return false;
        }
    }
    return is_behind || refuse(reading, "its post-processor's template has no place for the text");
}

static bool read_processor(const struct reading *reading, const json_t *root)
{
    struct wordpiece *to = reading->to;
    const json_t *processor = json_object_get(root, "post_processor");
    const char *type = text_of(processor, "type");
    if (!processor || json_is_null(processor))
        return true; /* nothing around a text */
    if (!strcmp(type, "TemplateProcessing"))
        return read_template(reading, processor);
    if (strcmp(type, "BertProcessing") && strcmp(type, "RobertaProcessing"))
        return refuse(reading, "its post-processor is \"%s\"", type);
    return add_around(reading, to->before, &to->before_count,
                      json_array_get(json_object_get(processor, "cls"), 1)) &&
           add_around(reading, to->after, &to->after_count,
                      json_array_get(json_object_get(processor, "sep"), 1));
}

static bool read_json(const struct reading *reading)
{
    json_error_t error;
    json_t *root = json_load_file(reading->path, 0, &error);
    if (!root)
        return refuse(reading, "%s", error.text);
    bool fine = read_normalizer(reading, root) && read_model(reading, root) &&
                read_specials(reading, root) && read_processor(reading, root);
    json_decref(root);
    return fine;
}

/* ---- vocab.txt ---- */

/* An uncased model's, unless the configuration beside it says otherwise. */
static void read_configuration(const struct reading *reading)
{
    struct wordpiece_rules *rules = &reading->to->rules;
    const char *slash = strrchr(reading->path, '/');
    char *path;
    if (asprintf(&path, "%.*stokenizer_config.json", slash ? (int)(slash - reading->path) + 1 : 0,
                 reading->path) < 0)
        return;
    json_t *configuration = json_load_file(path, 0, NULL);
    rules->clean = true;
    rules->lowercase = flag_of(configuration, "do_lower_case", true);
    rules->strip_accents = flag_of(configuration, "strip_accents", rules->lowercase);
    rules->space_chinese = flag_of(configuration, "tokenize_chinese_chars", true);
    json_decref(configuration);
    free(path);
}

static bool read_lines(const struct reading *reading)
{
    FILE *file = fopen(reading->path, "re");
    char *line = NULL;
    size_t capacity = 0;
    bool fine = true;
    if (!file)
        return refuse(reading, "%s", strerror(errno));
    for (json_int_t id = 0; fine; id++) {
        ssize_t length = getline(&line, &capacity, file);
        if (length < 0)
            break;
        while (length && strchr(" \t\r\n", line[length - 1]))
            line[--length] = 0;
        fine = add_piece(reading, line, id);
    }
    if (fine && ferror(file))
        fine = refuse(reading, "%s", strerror(errno));
    free(line);
    fclose(file);
    return fine;
}

static bool read_vocabulary(const struct reading *reading)
{
    static const char *const specials[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
    struct wordpiece *to = reading->to;
    read_configuration(reading);
    if (!read_lines(reading) || !find_piece(reading, "[UNK]", &to->unknown) ||
        !find_piece(reading, "[CLS]", to->before) || !find_piece(reading, "[SEP]", to->after))
        return false;
    to->before_count = to->after_count = 1;
    for (size_t i = 0; i < sizeof specials / sizeof *specials; i++) {
        json_t *id = json_object_get(to->vocabulary, specials[i]);
        if (id && !add_special(reading, specials[i], json_integer_value(id)))
            return false;
    }
    return true;
}

/* ---- both ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

static char *new_word(const struct wordpiece *wordpiece)
{
    return malloc(WORDPIECE_MOST_PREFIX + 4 * wordpiece->longest_word + 1);
}

static bool make_room(const struct reading *reading)
{
    struct wordpiece *to = reading->to;
    to->word = new_word(to);
    return to->word || refuse(reading, "out of memory");
}

struct wordpiece *wordpiece_open(const char *path, char error[WORDPIECE_ERROR])
{
    struct wordpiece *to = calloc(1, sizeof *to);
    const struct reading reading = {path, to, error};
    bool fine = to && (to->vocabulary = json_object()) && (to->specials = json_object());
    if (!fine) {
        refuse(&reading, "out of memory");
    } else {
        memcpy(to->prefix, "##", 3);
        to->longest_word = 100;
        fine = (ends_with(path, ".json") ? read_json(&reading) : read_vocabulary(&reading)) &&
               make_room(&reading);
    }
    if (!fine) {
        wordpiece_close(to);
        return NULL;
    }
    return to;
}

struct wordpiece *wordpiece_share(const struct wordpiece *wordpiece)
{
    struct wordpiece *shared = malloc(sizeof *shared);
    if (!shared)
        return NULL;
    *shared = *wordpiece;
    shared->points = (struct points){0};
    shared->word = new_word(shared);
    json_incref(shared->vocabulary);
    json_incref(shared->specials);
    if (shared->word)
        return shared;
    wordpiece_close(shared);
    return NULL;
}

void wordpiece_close(struct wordpiece *wordpiece)
{
    if (!wordpiece)
        return;
    json_decref(wordpiece->vocabulary);
    json_decref(wordpiece->specials);
    free(wordpiece->points.data);
    free(wordpiece->word);
    free(wordpiece);
}
