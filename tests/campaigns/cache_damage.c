/* SPDX-License-Identifier: Apache-2.0 */
/* Every damage to an entry: each bit flipped, each truncation, each run of zeros, everything that
 * can stand behind its end. All have to be refused before a driver sees a byte, the damaged file
 * has to go, and the next put has to repair it. With "long" each damage is repaired, not each 16th.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/cache.h"
#include "store/store_file.h"

struct trial {
    struct kiln__disk_store *store;
    struct kiln__key key;
    int number;
    char path[512];
    unsigned char *whole; /* the entry as it should be */
    size_t length;
    int repair_each;
    /* what came of it */
    int damages, accepted, kept, repaired, not_repaired;
};

static void write_bytes(const char *path, const unsigned char *bytes, size_t length)
{
    FILE *stream = fopen(path, "wb");
    if (!stream || fwrite(bytes, 1, length, stream) != length || fclose(stream)) {
        perror(path);
        exit(99);
    }
}

static void begin(struct trial *trial, int number)
{
    struct kiln__file file;
    trial->number = number;
    fake_key(number, &trial->key);
    fake_path(&trial->key, trial->path, sizeof trial->path);
    if (!fake_put(trial->store, &trial->key, number) ||
        kiln__file_read(-1, trial->path, 1 << 20, false, &file) != KILN__FILE_READ) {
        fprintf(stderr, "the entry could not be written and read back\n");
        exit(99);
    }
    trial->whole = file.bytes;
    trial->length = file.length;
}

static void end(struct trial *trial)
{
    kiln__key_free(&trial->key);
    free(trial->whole);
}

static void repair(struct trial *trial)
{
    struct kiln__loaded loaded;
    bool good = fake_put(trial->store, &trial->key, trial->number) &&
                kiln__store_get(trial->store, &trial->key, &loaded) &&
                fake_fits(&loaded, trial->number);
    if (good)
        kiln__store_unload(&loaded);
    trial->repaired += good;
    trial->not_repaired += !good;
}

static void damage(struct trial *trial, const unsigned char *bytes, size_t length)
{
    struct kiln__loaded loaded;
    write_bytes(trial->path, bytes, length);
    if (kiln__store_get(trial->store, &trial->key, &loaded)) {
        trial->accepted++;
        kiln__store_unload(&loaded);
    }
    trial->kept += !access(trial->path, F_OK);
    if (trial->damages++ % trial->repair_each == 0)
        repair(trial);
}

static void flip_bits(struct trial *trial)
{
    for (size_t bit = 0; bit < trial->length * 8; bit++) {
        trial->whole[bit / 8] ^= (unsigned char)(1u << bit % 8);
        damage(trial, trial->whole, trial->length);
        trial->whole[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
}

static void truncate_everywhere(struct trial *trial)
{
    for (size_t length = 0; length < trial->length; length++)
        damage(trial, trial->whole, length);
}

/* What a power cut leaves where a file's length was written and its pages were not. */
static void zero_runs(struct trial *trial, size_t run)
{
    unsigned char *copy = malloc(trial->length);
    for (size_t at = 0; copy && at < trial->length; at += run) {
        size_t length = trial->length - at < run ? trial->length - at : run;
        memcpy(copy, trial->whole, trial->length);
        memset(copy + at, 0, length);
        if (memcmp(copy, trial->whole, trial->length))
            damage(trial, copy, trial->length);
    }
    free(copy);
}

/* One byte of each value, a page of zeros, itself once more. */
static void extend(struct trial *trial)
{
    unsigned char *longer = calloc(1, trial->length * 2 + 4096);
    if (!longer)
        exit(99);
    memcpy(longer, trial->whole, trial->length);
    for (int value = 0; value < 256; value++) {
        longer[trial->length] = (unsigned char)value;
        damage(trial, longer, trial->length + 1);
    }
    longer[trial->length] = 0;
    damage(trial, longer, trial->length + 4096);
    memcpy(longer + trial->length, trial->whole, trial->length);
    damage(trial, longer, trial->length * 2);
    free(longer);
}

/* Numbers whose payloads are the shortest and the longest of the first few. */
static int find_number(struct kiln__disk_store *store, bool shortest)
{
    int best = 0;
    size_t length = 0;
    for (int number = 0; number < 200; number++) {
        struct kiln__key key;
        struct kiln__loaded loaded;
        fake_key(number, &key);
        if (fake_put(store, &key, number) && kiln__store_get(store, &key, &loaded)) {
            size_t found = loaded.entry.sections[KILN__ENTRY_PAYLOAD].length;
            if (!length || (shortest ? found < length : found > length)) {
                best = number;
                length = found;
            }
            kiln__store_unload(&loaded);
        }
        kiln__key_free(&key);
    }
    return best;
}

int main(int argc, char **argv)
{
    struct trial trial = {.repair_each = campaign_is_long(argc, argv) ? 1 : 16};
    trial.store = fake_open(0);
    begin(&trial, find_number(trial.store, true));
    flip_bits(&trial);
    truncate_everywhere(&trial);
    zero_runs(&trial, 16);
    extend(&trial);
    end(&trial);
    begin(&trial, find_number(trial.store, false));
    zero_runs(&trial, 4096);
    zero_runs(&trial, 512);
    end(&trial);
    printf("%d damages: %d reached the driver, %d files kept; %d repaired, %d not\n", trial.damages,
           trial.accepted, trial.kept, trial.repaired, trial.not_repaired);
    bool counted = kiln__store_failures(trial.store) == (uint64_t)trial.damages;
    if (!counted)
        printf("%llu were counted as failures\n",
               (unsigned long long)kiln__store_failures(trial.store));
    kiln__store_close(trial.store);
    fake_end();
    return trial.accepted || trial.kept || trial.not_repaired || !counted || trial.damages < 5000;
}
