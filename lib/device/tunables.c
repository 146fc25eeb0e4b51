/* SPDX-License-Identifier: Apache-2.0 */
/* The table of tunable parameters, and the parser of tuning records ("name=value" for a device or a
 * workload). */
#include "device/tunables.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "device/kernels.h"
#include "util/hash.h"

/* A parameter of chunked devices, of others, of all; 1 where it is of works, where it reorders. */
#define CHUNKED(name, works, reorders, purpose, ...)                                               \
    {#name,    purpose,      offsetof(struct kiln__traits, name), KILN__TUNES_CHUNKED, works,      \
     reorders, {__VA_ARGS__}},
#define GROUPED(name, works, reorders, purpose, ...)                                               \
    {#name,    purpose,      offsetof(struct kiln__traits, name), KILN__TUNES_GROUPED, works,      \
     reorders, {__VA_ARGS__}},
#define EITHER(name, works, reorders, purpose, ...)                                                \
    {#name,    purpose,      offsetof(struct kiln__traits, name), KILN__TUNES_ALL, works,          \
     reorders, {__VA_ARGS__}},

/* In the order in which they are tried: what decides most comes first. */
static const struct kiln__tunable rows[] = {
    /* clang-format off */
    {"product", "implementation of products", offsetof(struct kiln__traits, product), KILN__TUNES_ALL, true, false, {
#define PRODUCT(name, ...) KILN__BY_##name,
#include "device/kernels.def"
    }},
    EITHER (tile,       1, 0, "size of tiles, by number",                1, 2, 3, 4, 5, 6, 7, 8)
    EITHER (splits,     1, 1, "parts of a product's depth",              1, 2, 4, 8, 16, 32)
    CHUNKED(vector,     0, 1, "elements of a vector",                    4, 8, 16)
    CHUNKED(chunks,     0, 0, "work-items of a launch",                  2, 4, 8, 16, 32, 64)
    CHUNKED(min_chunk,  0, 0, "elements that are worth a work-item",     256, 1024, 4096, 16384)
    CHUNKED(long_run,   0, 1, "log2 of a run that is read in parts",     10, 12, 14, 16, 20)
    GROUPED(work_group, 0, 1, "work-items of a work-group",              64, 128, 256, 512)
    GROUPED(vector,     0, 1, "elements of a vector",                    1, 4)
    GROUPED(lanes,      1, 1, "work-items that share a row",             8, 16, 32, 64, 128, 256, 512, 1024)
    GROUPED(held,       1, 1, "vectors of a row that an item keeps",     1, 2, 4, 8, 16)
    EITHER (segment,    1, 1, "elements of a part of a long reduction",  256, 1024, 4096, 16384, 65536)
    GROUPED(carried,    1, 1, "of a running sum, in one item",           4, 8, 16)
    GROUPED(edge,       1, 0, "of tiles that are turned",                32, 64)
    CHUNKED(rows,       1, 1, "read at once where columns are reduced",  1, 2, 4, 8)
    CHUNKED(stream,     1, 0, "stores past the caches: never, always",   1, 2)
    CHUNKED(share,      1, 0, "work-items of a product for each core",   1, 2, 4, 8)
    CHUNKED(depth,      1, 1, "of a product's blocks",                   128, 256, 384, 512)
    EITHER (gemm,       0, 1, "CLBlast's parameters, by number",         1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
    EITHER (gemm_direct, 0, 1, "the same for small products",            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
    /* clang-format on */
};

enum { ROWS = sizeof rows / sizeof *rows };

const struct kiln__tunable *kiln__tunable(const struct kiln__device *device, size_t number)
{
    for (size_t i = 0; i < ROWS; i++) {
        bool about = rows[i].devices == KILN__TUNES_ALL ||
                     (rows[i].devices == KILN__TUNES_CHUNKED) == device->traits->chunked;
        if (about && number-- == 0)
            return &rows[i];
    }
    return NULL;
}

static unsigned *field_of(struct kiln__traits *traits, const struct kiln__tunable *tunable)
{
    return (unsigned *)(void *)((char *)traits + tunable->field);
}

unsigned kiln__tunable_get(const struct kiln__traits *traits, const struct kiln__tunable *tunable)
{
    struct kiln__traits copy = *traits;
    return *field_of(&copy, tunable);
}

/* The row of the catalogue that a value stands for, or NULL. */
static const struct kiln__kernel_row *kernel_of(const struct kiln__tunable *tunable, unsigned value)
{
    bool is_product = tunable->field == offsetof(struct kiln__traits, product);
    return is_product && value ? kiln__kernel_of(KILN__KERNEL_PRODUCT, value - 1) : NULL;
}

bool kiln__tunable_takes(const struct kiln__device *device, const struct kiln__tunable *tunable,
                         unsigned value)
{
    const struct kiln__kernel_row *kernel = kernel_of(tunable, value);
    bool fits = (tunable->field != offsetof(struct kiln__traits, work_group) ||
                 value <= device->info.max_work_group) &&
                (!kernel || kiln__kernel_is_tuned_on(kernel, device));
    for (size_t i = 0; fits && tunable->candidates[i]; i++)
        if (tunable->candidates[i] == value)
            return true;
    return false;
}

/* Which one the words begin with, or NULL. */
static const struct kiln__tunable *tunables_find(const struct kiln__device *device,
                                                 const char *words)
{
    const struct kiln__tunable *tunable;
    size_t length = strcspn(words, " =,\n");
    for (size_t i = 0; (tunable = kiln__tunable(device, i)); i++)
        if (strlen(tunable->name) == length && !strncmp(tunable->name, words, length))
            break;
    return tunable;
}

/* A number, or the name of what one stands for, up to a comma or the line's end; 0: neither. */
static unsigned value_of(const struct kiln__tunable *tunable, const char *word)
{
    const size_t length = strcspn(word, ",\n");
    char *end;
    unsigned long value = strtoul(word, &end, 10);
    for (unsigned i = 1; value == 0 && kernel_of(tunable, i); i++) {
        const char *name = kernel_of(tunable, i)->name;
        if (strlen(name) == length && !strncmp(name, word, length))
            return i;
    }
    return end == word + length && value <= 1u << 30 ? (unsigned)value : 0;
}

bool kiln__tunable_apply(const struct kiln__device *device, const char *words,
                         struct kiln__traits *traits)
{
    const struct kiln__tunable *tunable = tunables_find(device, words);
    size_t length = strcspn(words, " =,\n");
    if (!tunable || (words[length] != ' ' && words[length] != '='))
        return false;
    const unsigned value = value_of(tunable, words + length + 1);
    if (!kiln__tunable_takes(device, tunable, value))
        return false;
    *field_of(traits, tunable) = value;
    return true;
}

/* ---- works ---- */

/* Calls it a failure, too, if there is nothing. */
static bool apply_words(const struct kiln__device *device, const char *words, bool alike,
                        struct kiln__traits *traits)
{
    bool all = *words;
    while (*words) {
        const struct kiln__tunable *tunable = tunables_find(device, words);
        all = all && ((alike && tunable && tunable->reorders) ||
                      kiln__tunable_apply(device, words, traits));
        words += strcspn(words, ",");
        words += strspn(words, ", ");
    }
    return all;
}

kiln_status kiln__tuning_add(const struct kiln__device *device, const char *line, size_t length,
                             struct kiln__tuning *tuning)
{
    struct kiln__traits traits = *device->traits;
    struct kiln__tuned_work row = {0};
    const char *colon = memchr(line, ':', length);
    size_t name = colon ? (size_t)(colon - line) : 0, words = length - name;
    if (!name || words < 3 || colon[1] != ' ' || words - 2 >= sizeof row.words)
        return KILN_INVALID_ARGUMENT;
    memcpy(row.words, colon + 2, words - 2);
    row.work = kiln__hash64(line, name);
    if (!apply_words(device, row.words, false, &traits))
        return KILN_INVALID_ARGUMENT;
    return kiln__vector_add(&tuning->works, row) ? KILN_OK : KILN_OUT_OF_HOST_MEMORY;
}

void kiln__tuning_free(struct kiln__tuning *tuning)
{
    kiln__vector_free(&tuning->works);
}

void kiln__tuning_apply(const struct kiln__tuning *tuning, const struct kiln__device *device,
                        const char *work, bool alike, struct kiln__traits *traits)
{
    uint64_t wanted = kiln__hash64(work, strlen(work));
    for (size_t i = 0; i < tuning->works.count; i++)
        if (tuning->works.items[i].work == wanted)
            apply_words(device, tuning->works.items[i].words, alike, traits);
}

void kiln__tunables_list(const struct kiln__device *device, struct kiln__text *text)
{
    const struct kiln__tunable *tunable;
    for (size_t i = 0; (tunable = kiln__tunable(device, i)); i++) {
        kiln__text_add(text, "%s%s (", i ? ", " : "", tunable->name);
        for (size_t k = 0, listed = 0; tunable->candidates[k]; k++) {
            const unsigned value = tunable->candidates[k];
            const struct kiln__kernel_row *kernel = kernel_of(tunable, value);
            if (!kiln__tunable_takes(device, tunable, value))
                continue;
            kiln__text_add(text, "%s%u%s%s", listed++ ? ", " : "", value, kernel ? " " : "",
                           kernel ? kernel->name : "");
        }
        kiln__text_add(text, ")");
    }
}
