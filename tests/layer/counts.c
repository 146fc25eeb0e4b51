/* SPDX-License-Identifier: Apache-2.0 */
/* Atomic counters of OpenCL calls, bytes and live objects in the interposed layer. */
#include "counts.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef _Atomic uint64_t counter;

static const char *const call_names[] = {
#define CALL(shape, name, ...) #name,
#include "calls.def"
#undef CALL
};

static counter calls[LAYER__CALLS];
static counter tallies[LAYER__TALLY_COUNT];
static counter moves[LAYER__TRANSFER_COUNT], bytes_moved[LAYER__TRANSFER_COUNT];
static counter created[LAYER__KIND_COUNT], alive[LAYER__KIND_COUNT];
static atomic_bool saw_context;
static _Atomic int last_failed = LAYER__CALLS;

/* Every key but "alive" and "failed", which are computed. */
static const struct row {
    const char *key;
    counter *value;
} rows[] = {
#define CALL(shape, name, ...) {#name, &calls[LAYER__##name]},
#include "calls.def"
#undef CALL
#define KIND(key, type, release)                                                                   \
    {"alive." #key, &alive[LAYER__KIND_##key]}, {"created." #key, &created[LAYER__KIND_##key]},
    LAYER__KINDS(KIND)
#undef KIND
#define TRANSFER(key)                                                                              \
    {#key ".count", &moves[LAYER__##key]}, {#key ".bytes", &bytes_moved[LAYER__##key]},
        LAYER__TRANSFERS(TRANSFER)
#undef TRANSFER
#define TALLY(key, text) {text, &tallies[LAYER__TALLY_##key]},
            LAYER__TALLIES(TALLY)
#undef TALLY
};

enum { ROWS = sizeof rows / sizeof *rows, LINE = 64 };

void layer__called(enum layer__call call)
{
    calls[call]++;
}

void layer__tallied(enum layer__tally tally, uint64_t amount)
{
    tallies[tally] += amount;
}

void layer__moved(enum layer__transfer transfer, uint64_t bytes)
{
    moves[transfer]++;
    bytes_moved[transfer] += bytes;
}

void layer__created(enum layer__kind kind, int64_t objects)
{
    created[kind] += (uint64_t)objects;
    alive[kind] += (uint64_t)objects;
    if (kind == LAYER__KIND_context)
        saw_context = true;
}

bool layer__saw_context(void)
{
    return saw_context;
}

void layer__retained(enum layer__kind kind)
{
    alive[kind]++;
}

void layer__released(enum layer__kind kind)
{
    alive[kind]--;
}

void layer__failed(enum layer__call call)
{
    last_failed = call;
    tallies[LAYER__TALLY_failures]++;
}

enum layer__call layer__call_named(const char *name, size_t length)
{
    int call = 0;
    while (call < LAYER__CALLS &&
           (strncmp(call_names[call], name, length) != 0 || call_names[call][length] != '\0'))
        call++;
    return call;
}

static uint64_t all_alive(void)
{
    uint64_t sum = 0;
    for (int kind = 0; kind < LAYER__KIND_COUNT; kind++)
        sum += alive[kind];
    return sum;
}

uint64_t layer__count(const char *key)
{
    if (!strcmp(key, "alive"))
        return all_alive();
    for (size_t i = 0; i < ROWS; i++)
        if (!strcmp(key, rows[i].key))
            return *rows[i].value;
    return UINT64_MAX;
}

/* "alive=" comes before "alive.mem=". */
static int by_key(const void *a, const void *b)
{
    size_t length_a = strcspn(a, "="), length_b = strcspn(b, "=");
    int order = memcmp(a, b, length_a < length_b ? length_a : length_b);
    return order ? order : (length_a > length_b) - (length_a < length_b);
}

const char *layer__snapshot(void)
{
    static _Thread_local char lines[ROWS + 2][LINE], text[(ROWS + 2) * LINE];
    size_t count = 0, length = 0;
    for (size_t i = 0; i < ROWS; i++)
        /* Signed: more released than created shows as a negative number. */
        if (i >= LAYER__CALLS || *rows[i].value)
            snprintf(lines[count++], LINE, "%s=%" PRId64 "\n", rows[i].key,
                     (int64_t)*rows[i].value);
    int failed = last_failed;
    snprintf(lines[count++], LINE, "alive=%" PRId64 "\n", (int64_t)all_alive());
    snprintf(lines[count++], LINE, "failed=%s\n", failed < LAYER__CALLS ? call_names[failed] : "-");
    qsort(lines, count, LINE, by_key);
    for (size_t i = 0; i < count; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s", lines[i]);
    return text;
}

void layer__counts_reset(void)
{
    for (int call = 0; call < LAYER__CALLS; call++)
        calls[call] = 0;
    for (int tally = 0; tally < LAYER__TALLY_COUNT; tally++)
        tallies[tally] = 0;
    for (int transfer = 0; transfer < LAYER__TRANSFER_COUNT; transfer++)
        moves[transfer] = bytes_moved[transfer] = 0;
    for (int kind = 0; kind < LAYER__KIND_COUNT; kind++)
        created[kind] = 0;
    last_failed = LAYER__CALLS;
}
