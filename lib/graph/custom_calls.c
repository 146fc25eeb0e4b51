/* SPDX-License-Identifier: Apache-2.0 */
/* The table of all calls of own kernels that some graph in the process names. */
#include "graph/custom_calls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "util/hash.h"

#define BUCKETS 256

struct entry {
    struct kiln__custom custom; /* first: what users have points here */
    uint64_t hash;
    size_t references;
    struct entry *next;
    struct kiln__custom_argument arguments[]; /* and behind them loop and text */
};

/* A name stays: traces and errors say it when its call is gone. */
struct name {
    struct name *next;
    char text[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static struct entry *buckets[BUCKETS];
static struct name *names;

const char *kiln__custom_name(const struct kiln__custom *custom)
{
    return custom->kernel + strlen(KILN__CUSTOM_PREFIX);
}

static size_t argument_bytes(const struct kiln__custom *custom)
{
    return custom->call.n_arguments * sizeof *custom->arguments;
}

static uint64_t hash_of(const struct kiln__custom *custom)
{
    uint64_t parts[4] = {kiln__hash64(&custom->call, sizeof custom->call),
                         kiln__hash64(custom->arguments, argument_bytes(custom)),
                         kiln__hash64(custom->text, strlen(custom->text)),
                         kiln__hash64(custom->loop, kiln__loop_bytes(custom->loop))};
    return kiln__hash64(parts, sizeof parts);
}

static bool is_same(const struct kiln__custom *a, const struct kiln__custom *b)
{
    return !memcmp(&a->call, &b->call, sizeof a->call) &&
           !memcmp(a->arguments, b->arguments, argument_bytes(a)) &&
           !strcmp(a->kernel, b->kernel) && !strcmp(a->text, b->text) && a->file == b->file &&
           kiln__loop_bytes(a->loop) == kiln__loop_bytes(b->loop) &&
           (!a->loop || !memcmp(a->loop, b->loop, kiln__loop_bytes(a->loop)));
}

/* The lock is held. NULL without memory. */
static const char *keep_name(const char *text)
{
    struct name *name = names;
    while (name && strcmp(name->text, text) != 0)
        name = name->next;
    if (name)
        return name->text;
    const size_t bytes = strlen(text) + 1;
    name = malloc(sizeof *name + bytes);
    if (!name)
        return NULL;
    memcpy(name->text, text, bytes);
    name->next = names;
    names = name;
    return name->text;
}

/* The lock is held. */
static struct entry *make_entry(const struct kiln__custom *custom, uint64_t hash)
{
    const size_t arguments = argument_bytes(custom), text = strlen(custom->text) + 1;
    const size_t loop = kiln__loop_bytes(custom->loop);
    const char *kernel = keep_name(custom->kernel);
    struct entry *entry = kernel ? malloc(sizeof *entry + arguments + loop + text) : NULL;
    if (!entry)
        return NULL;
    *entry = (struct entry){.hash = hash};
    char *program = (char *)entry->arguments + arguments, *words = program + loop;
    memcpy(entry->arguments, custom->arguments, arguments);
    memcpy(words, custom->text, text);
    memcpy(&entry->custom.call, &custom->call, sizeof custom->call);
    entry->custom.arguments = entry->arguments;
    entry->custom.kernel = kernel;
    entry->custom.text = words;
    entry->custom.file = custom->file;
    if (loop)
        entry->custom.loop = memcpy(program, custom->loop, loop);
    return entry;
}

const struct kiln__custom *kiln__custom_find(const struct kiln__custom *custom)
{
    const uint64_t hash = hash_of(custom);
    struct entry **bucket = &buckets[hash % BUCKETS];
    pthread_mutex_lock(&lock);
    struct entry *entry = *bucket;
    while (entry && (entry->hash != hash || !is_same(&entry->custom, custom)))
        entry = entry->next;
    if (!entry) {
        entry = make_entry(custom, hash);
        if (entry) {
            entry->next = *bucket;
            *bucket = entry;
        }
    }
    if (entry)
        entry->references++;
    pthread_mutex_unlock(&lock);
    return entry ? &entry->custom : NULL;
}

void kiln__custom_retain(const struct kiln__custom *custom)
{
    pthread_mutex_lock(&lock);
    ((struct entry *)(uintptr_t)custom)->references++;
    pthread_mutex_unlock(&lock);
}

void kiln__custom_release(const struct kiln__custom *custom)
{
    struct entry *entry = (struct entry *)(uintptr_t)custom;
    pthread_mutex_lock(&lock);
    const bool last = !--entry->references;
    if (last) {
        struct entry **at = &buckets[entry->hash % BUCKETS];
        while (*at != entry)
            at = &(*at)->next;
        *at = entry->next;
    }
    pthread_mutex_unlock(&lock);
    if (last)
        free(entry);
}
