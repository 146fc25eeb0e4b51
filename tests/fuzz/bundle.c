/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of bundles: any bytes; any bytes behind a good beginning; and good entries made of
 * them, some with a byte that is wrong. What an import adds is as good as what a build stores, and
 * what it says fits what it did. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <kiln/kiln.h>

#include "store/entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* No power fails here, and waiting for the disk is most of the time. */
int __wrap_fsync(int file);
int __wrap_fsync(int file)
{
    (void)file;
    return 0;
}

enum { RAW, BEHIND_THE_HEADER, ENTRIES, KINDS };

static const unsigned char header[16] = {0x8b, 'k', 'i', 'l', 'n', 'p', '\n', 0x1a, 1};
static char folder[160], bundle[192], cache[192];

static void demand(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "%s (kiln_last_error(): %s)\n", what, kiln_last_error());
    abort();
}

static void begin(void)
{
    const char *parent = getenv("TMPDIR");
    if (*folder)
        return;
    snprintf(folder, sizeof folder, "%.120s/kiln-fuzz.XXXXXX", parent ? parent : "/tmp");
    demand(mkdtemp(folder) != NULL, "no folder");
    snprintf(bundle, sizeof bundle, "%s/bundle", folder);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    demand(!mkdir(cache, 0700), "no cache folder");
}

/* What the bytes are made into: how many entries, and how many of these are good. */
struct made {
    struct kiln__text text;
    unsigned entries, good;
    bool ends;
};

static void add_frame(struct made *made, uint64_t length)
{
    unsigned char frame[8];
    for (int i = 0; i < 8; i++)
        frame[i] = (unsigned char)(length >> 8 * i);
    kiln__text_add_bytes(&made->text, frame, sizeof frame);
}

/* A key and a payload of the bytes; a damage of 1 or more is the number of a byte that is wrong. */
static void add_entry(struct made *made, const uint8_t *data, size_t size, unsigned damage)
{
    struct kiln__text entry = {0};
    struct kiln__entry parts = {{{data, size / 2},
                                 {"device", 7},
                                 {"driver", 7},
                                 {"kernel", 7},
                                 {data + size / 2, size - size / 2}}};
    kiln__entry_encode(&parts, &entry);
    if (damage)
        entry.data[damage % entry.length] ^= 1;
    add_frame(made, entry.length);
    kiln__text_add_bytes(&made->text, entry.data, entry.length);
    made->entries++;
    made->good += !damage;
    kiln__text_free(&entry);
}

/* Each entry begins with its length, and with 0 or what is wrong with it. */
static void add_entries(struct made *made, const uint8_t *data, size_t size)
{
    while (size > 2) {
        size_t length = data[0] < size - 2 ? data[0] : size - 2;
        add_entry(made, data + 2, length, data[1] < 192 ? 0 : data[1]);
        data += 2 + length;
        size -= 2 + length;
    }
    made->ends = size == 0 || *data % 2;
    if (made->ends)
        add_frame(made, 0);
}

static void write_bundle(const struct made *made)
{
    FILE *file = fopen(bundle, "wb");
    demand(file && fwrite(made->text.data, 1, made->text.length, file) == made->text.length &&
               !fclose(file),
           "no bundle");
}

/* The whole of it. */
static void check_import(const struct made *made, bool known)
{
    kiln_cache_stats stats;
    uint64_t added = UINT64_MAX, removed;
    kiln_status status = kiln_cache_import(cache, bundle, &added);
    demand(status == KILN_OK || status == KILN_INVALID_ARGUMENT, "an odd status");
    demand(!status || *kiln_last_error(), "a failure without a sentence");
    demand(!kiln_cache_get_stats(cache, &stats), "no statistics");
    demand(stats.invalid == 0 && stats.entries <= added, "an import that adds what is not good");
    if (known) {
        demand(added == made->good, "not all good entries are added");
        demand((status == KILN_OK) == (made->ends && made->good == made->entries),
               "a status that does not fit");
    }
    demand(!kiln_cache_prune(cache, 0, &removed) && removed == stats.entries, "what is left");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct made made = {0};
    begin();
    int kind = size ? *data % KINDS : RAW;
    kiln__text_add_bytes(&made.text, header, kind == RAW ? 0 : sizeof header);
    if (kind == ENTRIES)
        add_entries(&made, data + 1, size - 1);
    else if (size)
        kiln__text_add_bytes(&made.text, data + 1, size - 1);
    write_bundle(&made);
    check_import(&made, kind == ENTRIES);
    kiln__text_free(&made.text);
    return 0;
}
