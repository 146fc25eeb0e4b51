/* SPDX-License-Identifier: Apache-2.0 */
/* Text normalisation for WordPiece: cleaning, lower case, accents, splitting at punctuation. */
#include <stdlib.h>
#include <utf8proc.h>

#include "lm/unicode.h"
#include "lm/wordpiece.h"

#define REPLACEMENT 0xfffd
#define CAPITAL_I_WITH_DOT 0x130 /* the one letter whose lower case has two code points */
#define DOT_ABOVE 0x307

static bool add(struct kiln__points *points, int32_t point)
{
    if (points->count == points->capacity) {
        size_t capacity = points->capacity ? 2 * points->capacity : 256;
        int32_t *data = realloc(points->data, capacity * sizeof *data);
        if (!data)
            return false;
        points->data = data;
        points->capacity = capacity;
    }
    points->data[points->count++] = point;
    return true;
}

/* ---- kinds of characters ---- */

/* Code points that nobody has assigned stay: a younger Unicode than ours may know them. */
static bool is_control(int32_t point)
{
    utf8proc_category_t category = utf8proc_category(point);
    return point != '\t' && point != '\n' && point != '\r' &&
           (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
            category == UTF8PROC_CATEGORY_CO);
}

bool kiln__points_is_punctuation(int32_t point)
{
    utf8proc_category_t category = utf8proc_category(point);
    bool is_ascii = (point >= '!' && point <= '/') || (point >= ':' && point <= '@') ||
                    (point >= '[' && point <= '`') || (point >= '{' && point <= '~');
    return is_ascii || (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO);
}

/* BERT's own list; the fourth of the supplementary ones begins where `tokenizers` has it. */
static bool is_chinese(int32_t point)
{
    static const struct {
        int32_t first, last;
    } ranges[] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df}, {0x2a700, 0x2b73f},
                  {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (point >= ranges[i].first && point <= ranges[i].last)
            return true;
    return false;
}

/* ---- from text to points ---- */

static bool add_lower(struct kiln__points *points, int32_t point,
                      const struct kiln__wordpiece_rules *rules)
{
    if (!rules->lowercase)
        return add(points, point);
    if (point == CAPITAL_I_WITH_DOT)
        return add(points, 'i') && add(points, DOT_ABOVE);
    return add(points, utf8proc_tolower(point));
}

/* Canonical decomposition less the accents. What is left of the marks (of Hangul's tones and of
 * music) stays in the order in which it came. */
static bool add_plain(struct kiln__points *points, int32_t point,
                      const struct kiln__wordpiece_rules *rules)
{
    int32_t parts[16];
    int boundary = 0;
    utf8proc_ssize_t count = utf8proc_decompose_char(point, parts, sizeof parts / sizeof *parts,
                                                     UTF8PROC_DECOMPOSE, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; i++)
        if (utf8proc_category(parts[i]) != UTF8PROC_CATEGORY_MN &&
            !add_lower(points, parts[i], rules))
            return false;
    return true;
}

static bool add_folded(struct kiln__points *points, int32_t point,
                       const struct kiln__wordpiece_rules *rules)
{
    return rules->strip_accents ? add_plain(points, point, rules) : add_lower(points, point, rules);
}

static bool add_cleaned(struct kiln__points *points, int32_t point,
                        const struct kiln__wordpiece_rules *rules)
{
    if (rules->clean && (point == 0 || point == REPLACEMENT || is_control(point)))
        return true;
    if (rules->clean && kiln__unicode_is_space(point))
        point = ' ';
    if (!rules->space_chinese || !is_chinese(point))
        return add_folded(points, point, rules);
    return add(points, ' ') && add_folded(points, point, rules) && add(points, ' ');
}

bool kiln__points_normalize(struct kiln__points *points, const char *text, size_t bytes,
                            const struct kiln__wordpiece_rules *rules)
{
    points->count = 0;
    for (size_t at = 0; at < bytes;) {
        int32_t point;
        utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)text + at,
                                                   (utf8proc_ssize_t)(bytes - at), &point);
        if (length < 1 || point == 0) /* no vocabulary has what a zero is part of */
            point = REPLACEMENT;
        at += length < 1 ? 1 : (size_t)length;
        if (!add_cleaned(points, point, rules))
            return false;
    }
    return true;
}
