/* SPDX-License-Identifier: Apache-2.0 */
#include "device/tunables.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define CHUNKED(name, purpose, ...)                                                                \
    {#name, purpose, offsetof(struct kiln__traits, name), KILN__TUNES_CHUNKED, {__VA_ARGS__}},
#define GROUPED(name, purpose, ...)                                                                \
    {#name, purpose, offsetof(struct kiln__traits, name), KILN__TUNES_GROUPED, {__VA_ARGS__}},

static const struct kiln__tunable rows[] = {
    /* clang-format off */
    CHUNKED(vector,     "elements of a vector",                     4, 8, 16)
    CHUNKED(chunks,     "work-items of a launch",                   2, 4, 8, 16, 32, 64)
    CHUNKED(min_chunk,  "elements that are worth a work-item",      256, 1024, 4096, 16384)
    GROUPED(work_group, "work-items of a work-group",               64, 128, 256, 512)
    GROUPED(vector,     "elements of a vector",                     1, 4)
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

bool kiln__tunable_takes(const struct kiln__device *device, const struct kiln__tunable *tunable,
                         unsigned value)
{
    bool fits = tunable->field != offsetof(struct kiln__traits, work_group) ||
                value <= device->info.max_work_group;
    for (size_t i = 0; fits && tunable->candidates[i]; i++)
        if (tunable->candidates[i] == value)
            return true;
    return false;
}

bool kiln__tunable_apply(const struct kiln__device *device, const char *words,
                         struct kiln__traits *traits)
{
    const struct kiln__tunable *tunable;
    size_t length = strcspn(words, " =,\n");
    char *end;
    for (size_t i = 0; (tunable = kiln__tunable(device, i)); i++)
        if (strlen(tunable->name) == length && !strncmp(tunable->name, words, length))
            break;
    if (!tunable || (words[length] != ' ' && words[length] != '='))
        return false;
    unsigned long value = strtoul(words + length + 1, &end, 10);
    if (!strchr(",\n", *end) || value > 1u << 30 ||
        !kiln__tunable_takes(device, tunable, (unsigned)value))
        return false;
    *field_of(traits, tunable) = (unsigned)value;
    return true;
}

void kiln__tunables_list(const struct kiln__device *device, struct kiln__text *text)
{
    const struct kiln__tunable *tunable;
    for (size_t i = 0; (tunable = kiln__tunable(device, i)); i++) {
        kiln__text_add(text, "%s%s (", i ? ", " : "", tunable->name);
        for (size_t k = 0; tunable->candidates[k]; k++)
            kiln__text_add(text, "%s%u", k ? ", " : "", tunable->candidates[k]);
        kiln__text_add(text, ")");
    }
}
