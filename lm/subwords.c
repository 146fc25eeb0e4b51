/* SPDX-License-Identifier: Apache-2.0 */
/* A text's way through the stages. */
#include "lm/subwords.h"

#include <stdlib.h>
#include <string.h>

#include "lm/unicode.h"

struct encoding {
    const struct kiln__subwords *subwords;
    struct kiln__tokens *tokens;
    size_t most;
};

static bool is_full(const struct encoding *encoding)
{
    return encoding->tokens->count >= encoding->most;
}

/* ---- pre-tokenizer and model ---- */

static bool encode_piece(struct encoding *encoding, const char *text, size_t bytes)
{
    const struct kiln__subwords *subwords = encoding->subwords;
    if (!bytes || is_full(encoding))
        return true;
    return subwords->is_unigram
               ? kiln__unigram_encode(&subwords->unigram, text, bytes, encoding->tokens)
               : kiln__bpe_encode(&subwords->bpe, text, bytes, true, encoding->tokens);
}

/* Up to the next mark that stands for a space, but for one at the beginning. */
static size_t piece_of(const struct kiln__subwords *subwords, const char *text, size_t bytes)
{
    const size_t mark = strlen(subwords->space);
    size_t at = 1;
    while (at < bytes && (bytes - at < mark || memcmp(text + at, subwords->space, mark) != 0))
        at++;
    return at;
}

static bool encode_spaced(struct encoding *encoding, const char *text, size_t bytes, bool begins)
{
    const struct kiln__subwords *subwords = encoding->subwords;
    const size_t mark = strlen(subwords->space);
    const bool has_mark =
        (bytes && *text == ' ') || (bytes >= mark && !memcmp(text, subwords->space, mark));
    struct kiln__text spaced = {0};
    if (!has_mark && bytes &&
        (subwords->begins == KILN__SUBWORDS_ALWAYS ||
         (subwords->begins == KILN__SUBWORDS_FIRST && begins)))
        kiln__text_add_bytes(&spaced, subwords->space, mark);
    for (size_t i = 0; i < bytes; i++)
        kiln__text_add_bytes(&spaced, text[i] == ' ' ? subwords->space : text + i,
                             text[i] == ' ' ? mark : 1);
    bool fine = !spaced.failed;
    for (size_t at = 0, length; fine && at < spaced.length; at += length) {
        length = spaced.length - at;
        if (subwords->cuts_spaced)
            length = piece_of(subwords, spaced.data + at, length);
        fine = encode_piece(encoding, spaced.data + at, length);
    }
    kiln__text_free(&spaced);
    return fine;
}

static bool encode_led(struct encoding *encoding, const char *text, size_t bytes)
{
    struct kiln__text led = {0};
    kiln__text_add_bytes(&led, " ", 1);
    kiln__text_add_bytes(&led, text, bytes);
    const bool fine = !led.failed && encode_piece(encoding, led.data, led.length);
    kiln__text_free(&led);
    return fine;
}

static bool encode_part(struct encoding *encoding, const char *text, size_t bytes, bool begins)
{
    const struct kiln__subwords *subwords = encoding->subwords;
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
static bool encode_between(struct encoding *encoding, bool is_normal,
                           const struct kiln__reading *reading, bool begins);

/* Which bytes are given is lost with the normal form: a part that has some has no control tokens.
 */
static bool encode_plain(struct encoding *encoding, const struct kiln__reading *part, bool begins)
{
    struct kiln__text normal = {0};
    kiln__text_add_bytes(&normal, part->text, part->bytes);
    kiln__subwords_normalize(&encoding->subwords->normalizer, &normal);
    const bool has_given = part->given && memchr(part->given, 1, part->bytes);
    const struct kiln__reading reading = {normal.data, normal.length, part->control && !has_given,
                                          NULL};
    const bool fine =
        !normal.failed && (!normal.length || encode_between(encoding, true, &reading, begins));
    kiln__text_free(&normal);
    return fine;
}

static bool encode_between(struct encoding *encoding, bool is_normal,
                           const struct kiln__reading *reading, bool begins)
{
    size_t from = 0, at = 0;
    bool fine = true;
    while (fine && from < reading->bytes && !is_full(encoding)) {
        const struct kiln__subwords_place place =
            kiln__subwords_find(&encoding->subwords->list, is_normal, reading, from, &at);
        const struct kiln__reading part = {reading->text + from, place.begin - from,
                                           reading->control,
                                           reading->given ? reading->given + from : NULL};
        if (part.bytes)
            fine = is_normal ? encode_words(encoding, part.text, part.bytes, begins && !from)
                             : encode_plain(encoding, &part, begins && !from);
        if (fine && place.added)
            fine = kiln__tokens_add(encoding->tokens, place.added->id);
        from = place.end;
    }
    return fine;
}

/* What is no UTF-8 becomes U+FFFD. */
static void add_clean(const struct kiln__reading *reading, struct kiln__text *clean,
                      struct kiln__text *given)
{
    for (size_t at = 0, length; at < reading->bytes; at += length) {
        const char *text = reading->text + at;
        int32_t point;
        length = kiln__unicode_next(text, reading->bytes - at, &point);
        const size_t size = point < 0 ? 3 : length;
        kiln__text_add_bytes(clean, point < 0 ? "\xef\xbf\xbd" : text, size);
        for (size_t i = 0; reading->given && i < size; i++)
            kiln__text_add_bytes(given, reading->given + at, 1);
    }
}

bool kiln__subwords_encode(const struct kiln__subwords *subwords,
                           const struct kiln__reading *reading, size_t most,
                           struct kiln__tokens *tokens)
{
    struct encoding encoding = {.subwords = subwords, .tokens = tokens, .most = most};
    struct kiln__text clean = {0}, given = {0};
    add_clean(reading, &clean, &given);
    const struct kiln__reading whole = {clean.data, clean.length, reading->control, given.data};
    const bool fine =
        !clean.failed && !given.failed && encode_between(&encoding, false, &whole, true);
    tokens->count = tokens->count < most ? tokens->count : most;
    kiln__text_free(&given);
    kiln__text_free(&clean);
    return fine;
}

size_t kiln__subwords_write(const struct kiln__subwords *subwords, int32_t token, char *bytes)
{
    const struct kiln__token *found = &subwords->vocabulary.tokens[token];
    const bool of_characters = !subwords->is_unigram && !subwords->bpe.rule;
    const int32_t *names = subwords->is_unigram ? subwords->unigram.bytes : subwords->bpe.bytes;
    for (int byte = 0; byte < 256 && found->length == strlen("<0x0A>"); byte++)
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

void kiln__subwords_hold(struct kiln__subwords *subwords)
{
    atomic_fetch_add(&subwords->holders, 1);
}

void kiln__subwords_close(struct kiln__subwords *subwords)
{
    if (!subwords || atomic_fetch_sub(&subwords->holders, 1) > 1)
        return;
    kiln__subwords_free_added(&subwords->list);
    kiln__subwords_free_normalizer(&subwords->normalizer);
    kiln__vocabulary_free(&subwords->vocabulary);
    kiln__bpe_free(&subwords->bpe);
    kiln__unigram_free(&subwords->unigram);
    free(subwords);
}
