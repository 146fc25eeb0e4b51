/* SPDX-License-Identifier: Apache-2.0 */
/* Lines become tokens, on as many threads as have enough of them, and are sorted by length. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "embed.h"

enum {
    MOST_CUTTERS = 8,  /* what keeps the largest GPU busy */
    LEAST_LINES = 256, /* of a thread: a fraction of a millisecond is what starting one takes */
    LEAST_CAPACITY = 1 << 14 /* of tokens */
};

/* Consecutive lines, in one thread. */
struct cutter {
    struct tokenizer *tokenizer;
    const struct embed_lines *lines;
    size_t max_length, first, end; /* of the lines */
    int32_t *ids;
    size_t count, capacity;
    bool fine;
    pthread_t thread;
};

struct embed_cutters {
    struct cutter cutters[MOST_CUTTERS];
    size_t count;
};

struct embed_cutters *embed_open_cutters(const struct tokenizer *tokenizer)
{
    struct embed_cutters *all = calloc(1, sizeof *all);
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    while (all && all->count < MOST_CUTTERS && (!all->count || (long)all->count < processors)) {
        struct cutter *cutter = &all->cutters[all->count];
        cutter->tokenizer = tokenizer_share(tokenizer);
        if (!cutter->tokenizer)
            break;
        all->count++;
    }
    if (all && all->count)
        return all;
    fputs("kiln embed: out of memory\n", stderr);
    free(all);
    return NULL;
}

void embed_close_cutters(struct embed_cutters *all)
{
    for (size_t i = 0; all && i < all->count; i++) {
        tokenizer_close(all->cutters[i].tokenizer);
        free(all->cutters[i].ids);
    }
    free(all);
}

/* ---- one thread's lines ---- */

static bool make_room(int32_t **ids, size_t *capacity, size_t wanted)
{
    if (*capacity >= wanted)
        return true;
    int32_t *grown = realloc(*ids, (2 * wanted + LEAST_CAPACITY) * sizeof **ids);
    if (!grown)
        return false;
    *ids = grown;
    *capacity = 2 * wanted + LEAST_CAPACITY;
    return true;
}

/* The starts are those within this thread's tokens. */
static void *cut(void *user)
{
    struct cutter *cutter = user;
    const struct embed_lines *lines = cutter->lines;
    cutter->count = 0;
    cutter->fine = true;
    for (size_t i = cutter->first; i < cutter->end && cutter->fine; i++) {
        size_t begin = i ? lines->ends[i - 1] : 0, count = 0;
        cutter->fine =
            make_room(&cutter->ids, &cutter->capacity, cutter->count + cutter->max_length) &&
            tokenizer_encode(cutter->tokenizer, lines->text + begin, lines->ends[i] - begin,
                             cutter->max_length, cutter->ids + cutter->count, &count);
        if (cutter->fine && !count) /* a tokenizer that puts nothing around a text */
            cutter->ids[cutter->count + count++] = cutter->tokenizer->facts.unknown;
        lines->starts[i] = cutter->count;
        cutter->count += count;
    }
    return NULL;
}

/* ---- all lines ---- */

static void cut_all(struct embed_cutters *all, size_t count, size_t max_length,
                    struct embed_lines *lines)
{
    bool started[MOST_CUTTERS] = {false};
    for (size_t i = 0; i < count; i++) {
        struct cutter *cutter = &all->cutters[i];
        cutter->lines = lines;
        cutter->max_length = max_length;
        cutter->first = lines->count * i / count;
        cutter->end = lines->count * (i + 1) / count;
        started[i] = i + 1 < count && !pthread_create(&cutter->thread, NULL, cut, cutter);
        if (!started[i])
            cut(cutter);
    }
    for (size_t i = 0; i < count; i++)
        if (started[i])
            pthread_join(all->cutters[i].thread, NULL);
}

/* What the threads cut, one behind the other. */
static bool gather(const struct embed_cutters *all, size_t count, struct embed_lines *lines)
{
    size_t total = 0;
    bool fine = true;
    for (size_t i = 0; i < count; i++) {
        total += all->cutters[i].count;
        fine = fine && all->cutters[i].fine;
    }
    if (!fine || !make_room(&lines->ids, &lines->id_capacity, total))
        return false;
    lines->id_count = 0;
    for (size_t i = 0; i < count; i++) {
        const struct cutter *cutter = &all->cutters[i];
        for (size_t line = cutter->first; line < cutter->end; line++)
            lines->starts[line] += lines->id_count;
        if (cutter->count)
            memcpy(lines->ids + lines->id_count, cutter->ids, cutter->count * sizeof *cutter->ids);
        lines->id_count += cutter->count;
    }
    lines->starts[lines->count] = lines->id_count;
    return true;
}

/* By length, and in the order of the text where that is the same. */
static int longest_first(const void *left, const void *right, void *user)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    const size_t *starts = user;
    size_t a_length = starts[a + 1] - starts[a], b_length = starts[b + 1] - starts[b];
    if (a_length != b_length)
        return a_length < b_length ? 1 : -1;
    return (a > b) - (a < b);
}

bool embed_cut_lines(struct embed_cutters *all, size_t max_length, struct embed_lines *lines)
{
    size_t most = lines->count / LEAST_LINES, count = most < all->count ? most : all->count;
    count = count ? count : 1;
    cut_all(all, count, max_length, lines);
    if (!gather(all, count, lines))
        return false;
    for (uint32_t i = 0; i < lines->count; i++)
        lines->order[i] = i;
    if (lines->count)
        qsort_r(lines->order, lines->count, sizeof *lines->order, longest_first, lines->starts);
    return true;
}
