/* SPDX-License-Identifier: Apache-2.0 */
/* One cache entry as bytes: what stands in a file. Pure functions on memory.
 *
 *   entry = magic[8] format[4] header_bytes[4] length[8] * sections, section * sections, digest[16]
 *
 * Numbers are little-endian. The digest is XXH3-128 over everything before it. */
#pragma once

#include <stdbool.h>

#include "util/hash.h"
#include "util/text.h"

#define KILN__ENTRY_FORMAT 1

/* Parts of an entry, in this order. All but KEY and PAYLOAD are zero-terminated texts. */
enum kiln__entry_section {
    KILN__ENTRY_KEY,     /* the full key: see store/key.h */
    KILN__ENTRY_DEVICE,  /* for people who list the cache */
    KILN__ENTRY_DRIVER,  /* the same */
    KILN__ENTRY_KERNEL,  /* the same */
    KILN__ENTRY_PAYLOAD, /* the program's binary */
    KILN__ENTRY_SECTIONS
};

struct kiln__span {
    const void *bytes;
    size_t length;
};

/* A view: the spans belong to someone else. */
struct kiln__entry {
    struct kiln__span sections[KILN__ENTRY_SECTIONS];
};

/* Whether a file that begins like this may be an entry, as far as `length` goes. */
#define KILN__ENTRY_MAGIC_BYTES 8
bool kiln__entry_has_magic(const void *bytes, size_t length);

/* Append the entry's bytes to `file`, which has to be empty. */
void kiln__entry_encode(const struct kiln__entry *entry, struct kiln__text *file);

/* Check all bytes of a file and look into it. False: it is no undamaged entry of this format, and
 * `why` says in a few words what is wrong. `entry` points into `bytes`. */
bool kiln__entry_decode(const void *bytes, size_t length, struct kiln__entry *entry,
                        const char **why);

/* Whether the entry is the one of this full key. */
bool kiln__entry_has_key(const struct kiln__entry *entry, const void *key, size_t length);

/* The name that an entry of this key is filed under: 32 hexadecimal digits and a zero. */
void kiln__entry_name(const void *key, size_t length, char name[33]);

/* A text section. */
const char *kiln__entry_text(const struct kiln__entry *entry, enum kiln__entry_section section);
