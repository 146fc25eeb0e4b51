/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's precompiled_charsmap: a trie of what is replaced, and what it becomes. */
#ifndef KILN_LM_CHARSMAP_H
#define KILN_LM_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kiln__charsmap {
    const uint8_t *units; /* of the trie, a double array of u32, the lowest byte first */
    size_t n_units;
    const char *texts; /* each ends with a zero */
    size_t n_texts;    /* bytes */
};

/* `bytes`, which stay lent. False: they are none. */
bool kiln__charsmap_read(const uint8_t *data, size_t bytes, struct kiln__charsmap *map);

/* What the shortest key that a text begins with becomes; NULL: no key does. */
const char *kiln__charsmap_find(const struct kiln__charsmap *map, const char *text, size_t bytes,
                                size_t *length);

/* The length of the first grapheme of a text that is not empty. */
size_t kiln__grapheme(const char *text, size_t bytes);

#endif
