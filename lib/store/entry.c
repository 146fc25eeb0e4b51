/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding and checking of entries: magic, lengths, key, payload, digest. */
#include "store/entry.h"

#include <stdint.h>
#include <string.h>

/* A byte above 127 and both line ends, so that a transfer as text is noticed as such. */
static const unsigned char magic[KILN__ENTRY_MAGIC_BYTES] = {0x8b, 'k',  'i',  'l',
                                                             'n',  '\r', '\n', 0x1a};

enum {
    AT_FORMAT = 8,
    AT_HEADER_BYTES = 12,
    AT_LENGTHS = 16,
    HEADER_BYTES = AT_LENGTHS + 8 * KILN__ENTRY_SECTIONS,
    DIGEST_BYTES = 16
};

static void put_number(unsigned char *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get_number(const unsigned char *in, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)in[i] << 8 * i;
    return value;
}

static void digest(const void *bytes, size_t length, unsigned char out[DIGEST_BYTES])
{
    struct kiln__hash128 hash = kiln__hash128(bytes, length);
    put_number(out, hash.low, 8);
    put_number(out + 8, hash.high, 8);
}

bool kiln__entry_has_magic(const void *bytes, size_t length)
{
    return !memcmp(bytes, magic, length < sizeof magic ? length : sizeof magic);
}

void kiln__entry_encode(const struct kiln__entry *entry, struct kiln__text *file)
{
    unsigned char header[HEADER_BYTES], end[DIGEST_BYTES];
    memcpy(header, magic, sizeof magic);
    put_number(header + AT_FORMAT, KILN__ENTRY_FORMAT, 4);
    put_number(header + AT_HEADER_BYTES, HEADER_BYTES, 4);
    for (size_t i = 0; i < KILN__ENTRY_SECTIONS; i++)
        put_number(header + AT_LENGTHS + 8 * i, entry->sections[i].length, 8);
    kiln__text_add_bytes(file, header, sizeof header);
    for (size_t i = 0; i < KILN__ENTRY_SECTIONS; i++)
        kiln__text_add_bytes(file, entry->sections[i].bytes, entry->sections[i].length);
    if (file->failed)
        return;
    digest(file->data, file->length, end);
    kiln__text_add_bytes(file, end, sizeof end);
}

/* What is wrong with the fixed part, NULL if nothing is. Format before digest: an entry of a later
 * kiln is not damaged, it is just of no use here. */
static const char *header_fault(const unsigned char *at, size_t length)
{
    if (length < HEADER_BYTES + DIGEST_BYTES)
        return "it is too short";
    if (memcmp(at, magic, sizeof magic))
        return "it does not start as an entry does";
    if (get_number(at + AT_FORMAT, 4) != KILN__ENTRY_FORMAT)
        return "it is of another format";
    if (get_number(at + AT_HEADER_BYTES, 4) != HEADER_BYTES)
        return "its header has another length";
    return NULL;
}

/* Point the spans into the file; the lengths have to add up to it exactly. */
static bool find_sections(const unsigned char *at, size_t length, struct kiln__entry *entry)
{
    size_t offset = HEADER_BYTES, end = length - DIGEST_BYTES;
    for (size_t i = 0; i < KILN__ENTRY_SECTIONS; i++) {
        uint64_t bytes = get_number(at + AT_LENGTHS + 8 * i, 8);
        if (bytes > end - offset)
            return false;
        entry->sections[i] = (struct kiln__span){at + offset, (size_t)bytes};
        offset += (size_t)bytes;
    }
    return offset == end;
}

static bool texts_end(const struct kiln__entry *entry)
{
    for (size_t i = KILN__ENTRY_DEVICE; i <= KILN__ENTRY_KERNEL; i++) {
        const struct kiln__span *text = &entry->sections[i];
        if (!text->length || ((const char *)text->bytes)[text->length - 1])
            return false;
    }
    return true;
}

static const char *entry_fault(const unsigned char *at, size_t length, struct kiln__entry *entry)
{
    unsigned char expected[DIGEST_BYTES];
    const char *wrong = header_fault(at, length);
    if (wrong)
        return wrong;
    if (!find_sections(at, length, entry))
        return "its length is not what its header says";
    digest(at, length - DIGEST_BYTES, expected);
    if (memcmp(expected, at + length - DIGEST_BYTES, DIGEST_BYTES))
        return "its digest does not fit its bytes";
    return texts_end(entry) ? NULL : "one of its texts has no end";
}

bool kiln__entry_decode(const void *bytes, size_t length, struct kiln__entry *entry,
                        const char **why)
{
    *why = entry_fault(bytes, length, entry);
    if (*why)
        *entry = (struct kiln__entry){0};
    return !*why;
}

bool kiln__entry_has_key(const struct kiln__entry *entry, const void *key, size_t length)
{
    const struct kiln__span *own = &entry->sections[KILN__ENTRY_KEY];
    return own->length == length && !memcmp(own->bytes, key, length);
}

void kiln__entry_name(const void *key, size_t length, char name[33])
{
    kiln__hash128_name(kiln__hash128(key, length), name);
}

const char *kiln__entry_text(const struct kiln__entry *entry, enum kiln__entry_section section)
{
    return entry->sections[section].bytes;
}
