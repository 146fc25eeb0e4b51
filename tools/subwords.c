/* SPDX-License-Identifier: Apache-2.0 */
/* A text's way through the stages. */
#include "subwords.h"

#include <stdlib.h>
#include <string.h>

#include "../lm/unicode.h"

struct encoding {
    const struct subwords *subwords;
    struct kiln__tokens tokens;
    size_t most;
};

static bool is_full(const struct encoding *encoding)
{
    return encoding->tokens.count >= encoding->most;
}

/* ---- pre-tokenizer and model ---- */

static bool encode_piece(struct encoding *encoding, const char *text, size_t bytes)
{
    const struct subwords *subwords = encoding->subwords;
    if (!bytes || is_full(encoding))
        return true;
    return subwords->is_unigram
               ? kiln__unigram_encode(&subwords->unigram, text, bytes, &encoding->tokens)
               : kiln__bpe_encode(&subwords->bpe, text, bytes, true, &encoding->tokens);
}

/* Up to the next mark that stands for a space, but for one at the beginning. */
static size_t piece_of(const struct subwords *subwords, const char *text, size_t bytes)
{
    const size_t mark = strlen(subwords->space);
    size_t at = 1;
    while (at < bytes && (bytes - at < mark || memcmp(text + at, subwords->space, mark) != 0))
        at++;
    return at;
}

static bool encode_spaced(struct encoding *encoding, const char *text, size_t bytes, bool begins)
{
    const struct subwords *subwords = encoding->subwords;
    const size_t mark = strlen(subwords->space);
    const bool has_mark =
        (bytes && *text == ' ') || (bytes >= mark && !memcmp(text, subwords->space, mark));
    struct chars spaced = {0};
    if (!has_mark && bytes &&
        (subwords->begins == SUBWORDS_ALWAYS || (subwords->begins == SUBWORDS_FIRST && begins)))
        chars_add(&spaced, subwords->space, mark);
    for (size_t i = 0; i < bytes; i++)
        chars_add(&spaced, text[i] == ' ' ? subwords->space : text + i, text[i] == ' ' ? mark : 1);
    bool fine = !spaced.failed;
    for (size_t at = 0, length; fine && at < spaced.count; at += length) {
        length = spaced.count - at;
        if (subwords->cuts_spaced)
            length = piece_of(subwords, spaced.bytes + at, length);
        fine = encode_piece(encoding, spaced.bytes + at, length);
    }
    free(spaced.bytes);
    return fine;
}

static bool encode_led(struct encoding *encoding, const char *text, size_t bytes)
{
    struct chars led = {0};
    chars_add(&led, " ", 1);
    chars_add(&led, text, bytes);
    const bool fine = !led.failed && encode_piece(encoding, led.bytes, led.count);
    free(led.bytes);
    return fine;
}

static bool encode_part(struct encoding *encoding, const char *text, size_t bytes, bool begins)
{
    const struct subwords *subwords = encoding->subwords;
    if (subwords->is_spaced)
        return encode_spaced(encoding, text, bytes, begins);
    if (subwords->leads && bytes && *text != ' ')
        return encode_led(encoding, text, bytes);
    return encode_piece(encoding, text, bytes);
}

static bool encode_words(struct encoding *encoding, const char *text, size_t bytes, bool begins)
{
    if (!encoding->subwords->cuts_white)
        return encode_part(encoding, text, bytes, begins);
    bool fine = true;
    for (size_t at = 0, begin = 0; fine && at < bytes; begin = at) {
        size_t length = 0;
        int32_t point = 0;
        while (at < bytes) {
            length = kiln__unicode_next(text + at, bytes - at, &point);
            if (kiln__unicode_is_space(point))
                break;
            at += length;
        }
        fine = at == begin || encode_part(encoding, text + begin, at - begin, begins && !begin);
        at += at < bytes ? length : 0;
    }
    return fine;
}

/* ---- added tokens ---- */

/* What is between those of a kind goes on to the next stage. */
static bool encode_between(struct encoding *encoding, bool is_normal, const char *text,
                           size_t bytes, bool begins);

static bool encode_plain(struct encoding *encoding, const char *text, size_t bytes, bool begins)
{
    struct chars normal = {0};
    chars_add(&normal, text, bytes);
    subwords_normalize(&encoding->subwords->normalizer, &normal);
    const bool fine =
        !normal.failed &&
        (!normal.count || encode_between(encoding, true, normal.bytes, normal.count, begins));
    free(normal.bytes);
    return fine;
}

static bool encode_between(struct encoding *encoding, bool is_normal, const char *text,
                           size_t bytes, bool begins)
{
    size_t from = 0, at = 0;
    bool fine = true;
    while (fine && from < bytes && !is_full(encoding)) {
        const struct subwords_place place =
            subwords_find(&encoding->subwords->list, is_normal, text, bytes, from, &at);
        if (place.begin > from)
            fine = (is_normal ? encode_words : encode_plain)(encoding, text + from,
                                                             place.begin - from, begins && !from);
        if (fine && place.added)
            fine = kiln__tokens_add(&encoding->tokens, place.added->id);
        from = place.end;
    }
    return fine;
}

/* What is no UTF-8 becomes U+FFFD. */
static void add_clean(struct chars *clean, const char *text, size_t bytes)
{
    for (size_t at = 0, length; at < bytes; at += length) {
        int32_t point;
        length = kiln__unicode_next(text + at, bytes - at, &point);
        chars_add(clean, point < 0 ? "\xef\xbf\xbd" : text + at, point < 0 ? 3 : length);
    }
}

bool subwords_encode(const struct subwords *subwords, const char *text, size_t bytes, size_t most,
                     int32_t *ids, size_t *count)
{
    struct encoding encoding = {.subwords = subwords, .most = most};
    struct chars clean = {0};
    add_clean(&clean, text, bytes);
    const bool fine =
        !clean.failed && encode_between(&encoding, false, clean.bytes, clean.count, true);
    *count = encoding.tokens.count < most ? encoding.tokens.count : most;
    if (*count)
        memcpy(ids, encoding.tokens.numbers, *count * sizeof *ids);
    free(encoding.tokens.numbers);
    free(clean.bytes);
    return fine;
}

size_t subwords_write(const struct subwords *subwords, int32_t token, char *bytes)
{
    const struct kiln__token *found = &subwords->vocabulary.tokens[token];
    const bool of_characters = !subwords->is_unigram && !subwords->bpe.rule;
    const int32_t *names = subwords->is_unigram ? subwords->unigram.bytes : subwords->bpe.bytes;
    for (int byte = 0; byte < 256; byte++)
        if (names[byte] == token) {
            *bytes = (char)byte;
            return 1;
        }
    if (subwords->is_spaced || of_characters)
        return kiln__spaced(found->bytes, found->length, bytes);
    memcpy(bytes, found->bytes, found->length);
    return found->length;
}

/* ---- holders ---- */

void subwords_hold(struct subwords *subwords)
{
    atomic_fetch_add(&subwords->holders, 1);
}

void subwords_close(struct subwords *subwords)
{
    if (!subwords || atomic_fetch_sub(&subwords->holders, 1) > 1)
        return;
    subwords_free_added(&subwords->list);
    subwords_free_normalizer(&subwords->normalizer);
    kiln__vocabulary_free(&subwords->vocabulary);
    kiln__bpe_free(&subwords->bpe);
    kiln__unigram_free(&subwords->unigram);
    free(subwords);
}
