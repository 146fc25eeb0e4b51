/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and names to choose from, wild ones among them, and memory until the next file. */
#include "onnx_choices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 23 };

unsigned fuzz_take(struct fuzz_bytes *bytes, unsigned n)
{
    unsigned value = 0;
    for (unsigned most = n > 256 ? 2 : 1; most; most--)
        value = value << 8 | (bytes->at < bytes->size ? bytes->data[bytes->at++] : 0);
    return value % n;
}

static union {
    char bytes[ROOM];
    long double aligned;
} arena;
static size_t arena_used;

void *onnx_room(size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (arena_used + bytes > ROOM)
        abort();
    void *place = arena.bytes + arena_used;
    arena_used += bytes;
    return memset(place, 0, bytes);
}

void onnx_free_room(void)
{
    arena_used = 0;
}

unsigned onnx_choose(struct onnx_maker *maker, unsigned n)
{
    return fuzz_take(maker->bytes, n);
}

bool onnx_is_wild(struct onnx_maker *maker)
{
    return maker->wild && !onnx_choose(maker, maker->wild);
}

char *onnx_number_name(char letter, unsigned number)
{
    char *name = onnx_room(24);
    snprintf(name, 24, "%c%u", letter, number);
    return name;
}

int64_t onnx_wild_number(struct onnx_maker *maker)
{
    static const int64_t numbers[] = {0,
                                      -1,
                                      1,
                                      2,
                                      7,
                                      8,
                                      9,
                                      -9,
                                      255,
                                      4096,
                                      65536,
                                      INT32_MAX,
                                      INT32_MIN,
                                      INT64_MAX,
                                      INT64_MIN,
                                      (int64_t)1 << 32,
                                      (int64_t)1 << 40,
                                      ((int64_t)1 << 61) + 1,
                                      -((int64_t)1 << 33),
                                      1 << 20};
    return numbers[onnx_choose(maker, sizeof numbers / sizeof *numbers)];
}

int64_t onnx_small_number(struct onnx_maker *maker, int lowest, unsigned count)
{
    return onnx_is_wild(maker) ? onnx_wild_number(maker)
                               : lowest + (int64_t)onnx_choose(maker, count);
}

/* ---- names ---- */

const char *onnx_new_name(struct onnx_maker *maker)
{
    const char *name = onnx_number_name('v', maker->n_names + 1000 * maker->depth);
    if (maker->n_names < MOST_VALUES)
        maker->names[maker->n_names++] = name;
    return name;
}

const char *onnx_old_name(struct onnx_maker *maker)
{
    static const char *const odd[] = {"", "v0", "nobody", "v1001"};
    if (!maker->n_names || onnx_is_wild(maker))
        return odd[onnx_choose(maker, 4)];
    return maker->names[onnx_choose(maker, maker->n_names)];
}
