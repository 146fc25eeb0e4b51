/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdlib.h>

#include "embed.h"

/* Lines that are sorted together. More would be padded less, and answered later. */
enum { CHUNK = 8192 };

static bool make_room(struct embed_lines *lines, size_t max_length)
{
    if (!lines->starts) {
        lines->starts = calloc(CHUNK + 1, sizeof *lines->starts);
        lines->order = calloc(CHUNK, sizeof *lines->order);
    }
    if (lines->id_capacity - lines->id_count < max_length) {
        size_t capacity = 2 * lines->id_capacity + max_length + CHUNK;
        int32_t *ids = realloc(lines->ids, capacity * sizeof *ids);
        if (!ids)
            return false;
        lines->ids = ids;
        lines->id_capacity = capacity;
    }
    return lines->starts && lines->order;
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

bool embed_read_lines(FILE *file, struct wordpiece *wordpiece, size_t max_length,
                      struct embed_lines *lines)
{
    char *line = NULL;
    size_t capacity = 0;
    bool fine = true;
    lines->count = lines->id_count = 0;
    while (fine && lines->count < CHUNK) {
        size_t count = 0;
        ssize_t length = getline(&line, &capacity, file);
        if (length < 0)
            break;
        fine = make_room(lines, max_length) &&
               wordpiece_encode(wordpiece, line, (size_t)length, max_length,
                                lines->ids + lines->id_count, &count);
        if (fine && !count) /* a tokenizer that puts nothing around a text */
            lines->ids[lines->id_count + count++] = wordpiece->unknown;
        if (fine) {
            lines->order[lines->count] = (uint32_t)lines->count;
            lines->starts[lines->count++] = lines->id_count;
            lines->id_count += count;
            lines->starts[lines->count] = lines->id_count;
        }
    }
    free(line);
    if (fine && lines->count)
        qsort_r(lines->order, lines->count, sizeof *lines->order, longest_first, lines->starts);
    return fine && !ferror(file);
}

void embed_free_lines(struct embed_lines *lines)
{
    free(lines->ids);
    free(lines->starts);
    free(lines->order);
}
