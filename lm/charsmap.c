/* SPDX-License-Identifier: Apache-2.0 */
/* The trie is darts-clone's. */
#include "lm/charsmap.h"

#include <string.h>
#include <utf8proc.h>

#include "lm/unicode.h"

static uint32_t read_u32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

bool kiln__charsmap_read(const uint8_t *data, size_t bytes, struct kiln__charsmap *map)
{
    if (bytes < 8)
        return false;
    const size_t trie = read_u32(data);
    if (!trie || trie % 4 || trie > bytes - 4)
        return false;
    *map = (struct kiln__charsmap){data + 4, trie / 4, (const char *)data + 4 + trie,
                                   bytes - 4 - trie};
    return map->n_texts && !map->texts[map->n_texts - 1];
}

/* Of a unit: how far its children are, whether a key ends there, the byte that leads to it, and a
 * leaf's value. */
static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

static bool has_leaf(uint32_t unit)
{
    return unit >> 8 & 1;
}

static uint32_t label_of(uint32_t unit)
{
    return unit & (1u << 31 | 0xff);
}

static size_t value_of(uint32_t unit)
{
    return unit & ~(1u << 31);
}

const char *kiln__charsmap_find(const struct kiln__charsmap *map, const char *text, size_t bytes,
                                size_t *length)
{
    size_t at = offset_of(read_u32(map->units));
    for (size_t i = 0; i < bytes && text[i]; i++) {
        const unsigned char byte = (unsigned char)text[i];
        at ^= byte;
        if (at >= map->n_units)
            return NULL;
        const uint32_t unit = read_u32(map->units + 4 * at);
        if (label_of(unit) != byte)
            return NULL;
        at ^= offset_of(unit);
        if (at >= map->n_units)
            return NULL;
        if (!has_leaf(unit))
            continue;
        const size_t value = value_of(read_u32(map->units + 4 * at));
        if (value >= map->n_texts)
            return NULL;
        *length = strlen(map->texts + value);
        return map->texts + value;
    }
    return NULL;
}

size_t kiln__grapheme(const char *text, size_t bytes)
{
    int32_t before, point, state = 0;
    size_t at = kiln__unicode_next(text, bytes, &before);
    while (at < bytes) {
        const size_t length = kiln__unicode_next(text + at, bytes - at, &point);
        if (utf8proc_grapheme_break_stateful(before, point, &state))
            break;
        before = point;
        at += length;
    }
    return at;
}
