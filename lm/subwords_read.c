/* SPDX-License-Identifier: Apache-2.0 */
/* Pre-tokenizers and models of subwords from tokenizer.json. */
#include <stdlib.h>
#include <string.h>

#include "lm/subwords.h"

enum { MOST_TOKENS = 1 << 24 };

struct reading {
    const struct kiln__tokenizer_json *file;
    struct kiln__subwords *to;
    const char *rule; /* how byte-level BPE cuts; NULL: not at all */
    bool has_bytes, has_digits;
    bool is_raw; /* tokens are written as they are */
};

static bool no_memory(const struct reading *r)
{
    return kiln__tokenizer_refuse(r->file, "out of memory");
}

/* ---- pre-tokenizers ---- */

/* Whether what a text begins with stays where it is, which "first" goes by. */
static bool keeps_beginnings(const struct kiln__subwords_normalizer *normalizer)
{
    for (size_t i = 0; i < normalizer->count; i++)
        if (normalizer->steps[i].kind != KILN__SUBWORDS_UNICODE &&
            normalizer->steps[i].kind != KILN__SUBWORDS_LOWERCASE)
            return false;
    return true;
}

static bool read_metaspace(struct reading *r, const json_t *object)
{
    static const char *const schemes[] = {[KILN__SUBWORDS_NEVER] = "never",
                                          [KILN__SUBWORDS_FIRST] = "first",
                                          [KILN__SUBWORDS_ALWAYS] = "always"};
    struct kiln__subwords *to = r->to;
    const char *space = kiln__json_text(object, "replacement"),
               *scheme = kiln__json_text(object, "prepend_scheme");
    if (!*space || strlen(space) >= sizeof to->space)
        return kiln__tokenizer_refuse(r->file, "its Metaspace has the replacement \"%s\"", space);
    stpcpy(to->space, space);
    to->is_spaced = true;
    to->cuts_spaced = kiln__json_flag(object, "split", true);
    to->begins = kiln__json_flag(object, "add_prefix_space", true) ? KILN__SUBWORDS_ALWAYS
                                                                   : KILN__SUBWORDS_NEVER;
    if (!*scheme)
        return true;
    if (!strcmp(scheme, "first") && !keeps_beginnings(&to->normalizer))
        return kiln__tokenizer_refuse(r->file, "its Metaspace has the scheme \"first\" behind a "
                                               "normalizer that takes away beginnings");
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (!strcmp(scheme, schemes[i])) {
            to->begins = i;
            return true;
        }
    return kiln__tokenizer_refuse(r->file, "its Metaspace has the scheme \"%s\"", scheme);
}

static bool read_bytes(struct reading *r, const json_t *object)
{
    r->has_bytes = true;
    r->to->leads = kiln__json_flag(object, "add_prefix_space", true);
    if (!kiln__json_flag(object, "use_regex", true))
        return true;
    if (r->rule)
        return kiln__tokenizer_refuse(r->file, "its pre-tokenizer cuts twice");
    r->rule = r->has_digits ? "smollm" : "gpt-2";
    return true;
}

#define MIDDLE "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define BEGIN "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"

/* Whether all spaces become something else, as Gemma's do. */
static bool takes_spaces(const struct kiln__subwords_normalizer *normalizer)
{
    if (!normalizer->count)
        return false;
    const struct kiln__subwords_step *last = &normalizer->steps[normalizer->count - 1];
    return last->kind == KILN__SUBWORDS_REPLACE && !strcmp(last->from, " ") &&
           !strchr(last->to, ' ');
}

static bool read_split(struct reading *r, const json_t *object)
{
    static const struct {
        const char *pattern, *rule;
    } patterns[] = {
        {BEGIN "\\p{N}{1,3}" MIDDLE, "llama-bpe"},
        {BEGIN "\\p{N}" MIDDLE, "qwen2"},
        {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
         "gpt-2"},
    };
    const char *pattern = kiln__json_text(json_object_get(object, "pattern"), "Regex"),
               *behaviour = kiln__json_text(object, "behavior");
    const bool inverts = kiln__json_flag(object, "invert", false);
    if (!strcmp(kiln__json_text(json_object_get(object, "pattern"), "String"), " ") &&
        takes_spaces(&r->to->normalizer))
        return true; /* there are none */
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (!strcmp(pattern, patterns[i].pattern) && !r->rule && !r->has_digits &&
            ((!strcmp(behaviour, "Isolated") && !inverts) ||
             (!strcmp(behaviour, "Removed") && inverts))) {
            r->rule = patterns[i].rule;
            return true;
        }
    return kiln__tokenizer_refuse(r->file, "its pre-tokenizer cuts by \"%s\", \"%s\"", pattern,
                                  behaviour);
}

static bool read_digits(struct reading *r, const json_t *object)
{
    r->has_digits = true;
    return (kiln__json_flag(object, "individual_digits", false) && !r->rule) ||
           kiln__tokenizer_refuse(r->file,
                                  "its pre-tokenizer has Digits in a way that is not known");
}

static bool read_white(struct reading *r, const json_t *object)
{
    (void)object;
    r->to->cuts_white = true;
    return true;
}

static const struct row {
    const char *type;
    bool (*read)(struct reading *r, const json_t *object);
} rows[] = {{"ByteLevel", read_bytes},
            {"Digits", read_digits},
            {"Metaspace", read_metaspace},
            {"Split", read_split},
            {"WhitespaceSplit", read_white}};

static bool read_cut(struct reading *r, const json_t *object)
{
    const char *type = kiln__json_text(object, "type");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].type, type))
            return rows[i].read(r, object);
    return kiln__tokenizer_refuse(r->file, "its pre-tokenizer is \"%s\"", type);
}

/* Stages that are known to follow one another: white space, then Metaspace; digits or a pattern,
 * then ByteLevel. */
static bool read_cuts(struct reading *r)
{
    const json_t *object = json_object_get(r->file->root, "pre_tokenizer");
    const struct kiln__subwords *to = r->to;
    size_t i;
    json_t *part;
    if (!object || json_is_null(object))
        return true;
    if (strcmp(kiln__json_text(object, "type"), "Sequence") != 0)
        return read_cut(r, object);
    json_array_foreach(json_object_get(object, "pretokenizers"), i, part)
    {
        const bool is_late = to->is_spaced || r->has_bytes;
        if (is_late)
            return kiln__tokenizer_refuse(r->file, "its pre-tokenizer goes on behind \"%s\"",
                                          to->is_spaced ? "Metaspace" : "ByteLevel");
        if (!read_cut(r, part))
            return false;
    }
    return true;
}

/* ---- tokens ---- */

/* Room for tokens up to a number, and their texts. */
static bool make_tokens(struct reading *r, size_t count, size_t bytes)
{
    struct kiln__vocabulary *vocabulary = &r->to->vocabulary;
    if (!count || count > MOST_TOKENS)
        return kiln__tokenizer_refuse(r->file, "its model has %zu tokens", count);
    vocabulary->count = count;
    vocabulary->tokens = calloc(count, sizeof *vocabulary->tokens);
    vocabulary->storage = malloc(bytes + 1);
    for (size_t i = 0; vocabulary->tokens && i < count; i++)
        vocabulary->tokens[i] = (struct kiln__token){"", 0, KILN__TOKEN_NORMAL};
    r->file->to->largest = (int32_t)count - 1;
    return (vocabulary->tokens && vocabulary->storage) || no_memory(r);
}

/* A token of a text that JSON has; answers how many bytes it takes. */
static size_t put_token(struct reading *r, size_t number, const json_t *text, char *storage)
{
    const char *bytes = json_string_value(text);
    size_t length = json_string_length(text), characters = 0;
    enum kiln__token_kind kind = KILN__TOKEN_NORMAL;
    for (size_t i = 0; i < length; i++)
        characters += ((unsigned char)bytes[i] & 0xc0) != 0x80;
    if (r->is_raw) {
        memcpy(storage, bytes, length);
    } else {
        length = kiln__byte_level(bytes, length, storage);
        kind = length == characters ? kind : KILN__TOKEN_UNUSED; /* no bytes are written so */
    }
    r->to->vocabulary.tokens[number] = (struct kiln__token){storage, length, kind};
    return length;
}

/* ---- unigram ---- */

static bool read_unigram_tokens(struct reading *r, const json_t *list)
{
    struct kiln__subwords *to = r->to;
    char *storage = to->vocabulary.storage;
    size_t i;
    json_t *one;
    to->unigram.scores = calloc(to->vocabulary.count, sizeof *to->unigram.scores);
    if (!to->unigram.scores)
        return no_memory(r);
    json_array_foreach(list, i, one)
    {
        const json_t *score = json_array_get(one, 1);
        if (!json_is_number(score))
            return kiln__tokenizer_refuse(r->file, "token %zu has no score", i);
        to->unigram.scores[i] = json_number_value(score);
        storage += put_token(r, i, json_array_get(one, 0), storage);
    }
    return true;
}

static void find_bytes(const struct kiln__vocabulary *vocabulary, int32_t bytes[256])
{
    for (unsigned byte = 0; byte < 256; byte++) {
        static const char digits[] = "0123456789ABCDEF";
        const char name[] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
        bytes[byte] = kiln__vocabulary_find(vocabulary, name, sizeof name);
    }
}

static bool read_unigram(struct reading *r, const json_t *model)
{
    struct kiln__subwords *to = r->to;
    const json_t *list = json_object_get(model, "vocab"),
                 *unknown = json_object_get(model, "unk_id");
    const size_t count = json_array_size(list);
    size_t i, bytes = 0;
    json_t *one;
    to->is_unigram = r->is_raw = true;
    if (r->has_bytes || r->rule || r->has_digits)
        return kiln__tokenizer_refuse(r->file,
                                      "its pre-tokenizer is not known with a unigram model");
    json_array_foreach(list, i, one)
    {
        if (!json_is_string(json_array_get(one, 0)))
            return kiln__tokenizer_refuse(r->file, "token %zu has no text", i);
        bytes += json_string_length(json_array_get(one, 0));
    }
    if (!json_is_integer(unknown) || json_integer_value(unknown) < 0 ||
        json_integer_value(unknown) >= (json_int_t)count)
        return kiln__tokenizer_refuse(r->file, "its model has no unk_id");
    if (!make_tokens(r, count, bytes) || !read_unigram_tokens(r, list))
        return false;
    if (!kiln__vocabulary_index(&to->vocabulary))
        return no_memory(r);
    to->unigram.vocabulary = &to->vocabulary;
    to->unigram.unknown = (int32_t)json_integer_value(unknown);
    r->file->to->unknown = to->unigram.unknown;
    kiln__unigram_begin(&to->unigram);
    memset(to->unigram.bytes, -1, sizeof to->unigram.bytes);
    if (kiln__json_flag(model, "byte_fallback", false))
        find_bytes(&to->vocabulary, to->unigram.bytes);
    return true;
}

/* ---- byte-level BPE ---- */

static bool read_bpe_tokens(struct reading *r, json_t *vocabulary)
{
    const char *piece;
    json_t *id;
    json_int_t largest = -1;
    size_t bytes = 0;
    json_object_foreach(vocabulary, piece, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= MOST_TOKENS)
            return kiln__tokenizer_refuse(r->file, "\"%s\" has no number", piece);
        largest = json_integer_value(id) > largest ? json_integer_value(id) : largest;
        bytes += strlen(piece);
    }
    if (!make_tokens(r, (size_t)(largest + 1), bytes))
        return false;
    char *storage = r->to->vocabulary.storage;
    json_object_foreach(vocabulary, piece, id)
    {
        json_t *text = json_string(piece);
        if (!text)
            return no_memory(r);
        storage += put_token(r, (size_t)json_integer_value(id), text, storage);
        json_decref(text);
    }
    return kiln__vocabulary_index(&r->to->vocabulary) || no_memory(r);
}

/* "left right", or [left, right]; `pair` has room for both, and a zero. */
static bool read_merge(const json_t *one, const json_t *vocabulary, char *pair,
                       struct kiln__bpe_merge *merge)
{
    const char *text = json_string_value(one);
    if (text) {
        stpcpy(pair, text);
    } else {
        const char *left = json_string_value(json_array_get(one, 0)),
                   *right = json_string_value(json_array_get(one, 1));
        if (!left || !right)
            return false;
        stpcpy(stpcpy(stpcpy(pair, left), " "), right);
    }
    char *space = *pair ? strchr(pair + 1, ' ') : NULL;
    if (!space)
        return false;
    *space = 0;
    const json_t *left = json_object_get(vocabulary, pair),
                 *right = json_object_get(vocabulary, space + 1);
    memmove(space, space + 1, strlen(space + 1) + 1);
    const json_t *made = json_object_get(vocabulary, pair);
    merge->left = (int32_t)json_integer_value(left);
    merge->right = (int32_t)json_integer_value(right);
    merge->made = (int32_t)json_integer_value(made);
    return left && right && made;
}

static size_t merge_bytes(const json_t *one)
{
    return json_is_string(one) ? json_string_length(one)
                               : json_string_length(json_array_get(one, 0)) +
                                     json_string_length(json_array_get(one, 1)) + 1;
}

static bool read_merges(struct reading *r, const json_t *list, const json_t *vocabulary)
{
    struct kiln__bpe *bpe = &r->to->bpe;
    size_t i, longest = 0;
    json_t *one;
    json_array_foreach(list, i, one) longest =
        merge_bytes(one) > longest ? merge_bytes(one) : longest;
    char *pair = malloc(longest + 1);
    bpe->merges = malloc((json_array_size(list) + 1) * sizeof *bpe->merges);
    if (!pair || !bpe->merges) {
        free(pair);
        return no_memory(r);
    }
    json_array_foreach(list, i, one)
    {
        bpe->merges[i].rank = (uint32_t)i;
        if (read_merge(one, vocabulary, pair, &bpe->merges[i]))
            continue;
        free(pair);
        return kiln__tokenizer_refuse(r->file, "merge %zu is no pair of tokens that makes a token",
                                      i);
    }
    free(pair);
    bpe->n_merges = json_array_size(list);
    kiln__bpe_order(bpe);
    return true;
}

/* Bytes in the place of characters that are no tokens: what is no UTF-8 has none. Of byte-level BPE
 * those without a token are left out, unless there is a token for what is unknown. */
static bool check_bytes(const struct reading *r, const json_t *model)
{
    const bool may_lack = !r->is_raw && !json_is_string(json_object_get(model, "unk_token"));
    for (int byte = 0; byte < 0xf5 && !may_lack; byte++)
        if (r->to->bpe.bytes[byte] < 0 && byte != 0xc0 && byte != 0xc1)
            return kiln__tokenizer_refuse(r->file, "its vocabulary has no token for the byte %d",
                                          byte);
    return true;
}

/* How texts are cut: into bytes, or characters. */
static bool read_kind(struct reading *r, const json_t *model)
{
    struct kiln__bpe *bpe = &r->to->bpe;
    const bool falls_back = kiln__json_flag(model, "byte_fallback", false);
    r->is_raw = !r->has_bytes;
    bpe->whole = kiln__json_flag(model, "ignore_merges", false);
    if (*kiln__json_text(model, "continuing_subword_prefix") ||
        *kiln__json_text(model, "end_of_word_suffix"))
        return kiln__tokenizer_refuse(r->file, "its model has a prefix or suffix of words");
    if (r->is_raw)
        return (falls_back && !r->rule && !r->has_digits && !bpe->whole) ||
               kiln__tokenizer_refuse(r->file,
                                      "its model is \"BPE\" without a ByteLevel pre-tokenizer, "
                                      "and without byte_fallback alone");
    if (falls_back || r->to->is_spaced || r->to->cuts_white)
        return kiln__tokenizer_refuse(r->file,
                                      "its ByteLevel pre-tokenizer is beside something else");
    if (!r->rule)
        return kiln__tokenizer_refuse(r->file, "its ByteLevel pre-tokenizer cuts nowhere");
    bpe->rule = kiln__split_rule(r->rule, strlen(r->rule));
    return true;
}

static bool read_bpe(struct reading *r, const json_t *model)
{
    struct kiln__bpe *bpe = &r->to->bpe;
    json_t *vocabulary = json_object_get(model, "vocab");
    bpe->vocabulary = &r->to->vocabulary;
    if (!read_kind(r, model) || !read_bpe_tokens(r, vocabulary) ||
        !read_merges(r, json_object_get(model, "merges"), vocabulary))
        return false;
    if (r->is_raw)
        find_bytes(bpe->vocabulary, bpe->bytes);
    for (unsigned byte = 0; !r->is_raw && byte < 256; byte++) {
        const char bytes[] = {(char)byte};
        bpe->bytes[byte] = kiln__vocabulary_find(bpe->vocabulary, bytes, 1);
    }
    const json_t *unknown = json_object_get(vocabulary, kiln__json_text(model, "unk_token"));
    r->file->to->unknown = (int32_t)json_integer_value(unknown);
    return check_bytes(r, model);
}

/* ---- all ---- */

static bool read_all(struct reading *r)
{
    const json_t *model = json_object_get(r->file->root, "model");
    const char *type = kiln__json_text(model, "type");
    if (!*type) /* which files of earlier years leave out */
        type = json_is_array(json_object_get(model, "vocab")) ? "Unigram" : "BPE";
    const bool is_unigram = !strcmp(type, "Unigram");
    if (!is_unigram && strcmp(type, "BPE") != 0)
        return kiln__tokenizer_refuse(r->file,
                                      "its model is \"%s\", neither \"WordPiece\", \"Unigram\" "
                                      "nor \"BPE\"",
                                      type);
    return kiln__subwords_read_normalizer(r->file, &r->to->normalizer) && read_cuts(r) &&
           (is_unigram ? read_unigram : read_bpe)(r, model);
}

struct kiln__subwords *kiln__subwords_read(const struct kiln__tokenizer_json *reading)
{
    struct kiln__subwords *to = calloc(1, sizeof *to);
    struct reading r = {.file = reading, .to = to};
    if (!to) {
        no_memory(&r);
        return NULL;
    }
    atomic_init(&to->holders, 1);
    if (read_all(&r) && kiln__subwords_read_added(reading, &to->normalizer, &to->list))
        return to;
    kiln__subwords_close(to);
    return NULL;
}
