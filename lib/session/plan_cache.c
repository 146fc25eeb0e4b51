/* SPDX-License-Identifier: Apache-2.0 */
/* Plans by graph hash: their keys, making what is missing, and what can be said of one. */
#include "session/plan_cache_state.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "runtime/executable.h"
#include "session/background.h"
#include "session/compile.h"
#include "session/explain.h"
#include "session/plan_workloads.h"
#include "util/environment.h"

/* The word has been checked. An imagined device runs nothing often, and what joins launches comes
 * by way of the disk. */
static enum kiln__one_launch choose_one_launch(const struct kiln__runtime *runtime)
{
    const char *variable = kiln__environment("KILN_ONE_LAUNCH");
    if (variable && strcmp(variable, "auto") != 0)
        return strcmp(variable, "on") ? KILN__ONE_LAUNCH_OFF : KILN__ONE_LAUNCH_ON;
    return runtime->programs && kiln__programs_have_disk(runtime->programs) &&
                   runtime->device.traits->one_launch
               ? KILN__ONE_LAUNCH_AUTO
               : KILN__ONE_LAUNCH_OFF;
}

struct kiln__plan_cache *kiln__plan_cache_create(struct kiln__runtime *runtime, const char *matmul,
                                                 const struct kiln__tuning *tuning)
{
    struct kiln__plan_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return NULL;
    cache->runtime = runtime;
    cache->options.device = &runtime->device;
    cache->options.shared = runtime->host_mode != KILN__HOST_SEPARATE;
    cache->options.matmul = matmul;
    cache->options.tuning = tuning;
    cache->options.no_clblast = /* an imagined device has no programs */
        runtime->programs && kiln__programs_compile_mode(runtime->programs) == KILN_COMPILE_NEVER;
    atomic_init(&cache->runs_baseline,
                runtime->programs && kiln__programs_compile_in_background(runtime->programs));
    kiln__plan_cache_use_one_launch(cache, choose_one_launch(runtime));
    pthread_mutex_init(&cache->lock, NULL);
    pthread_mutex_init(&cache->beginning, NULL);
    return cache;
}

void kiln__plan_cache_use_self_tester(struct kiln__plan_cache *cache,
                                      struct kiln__self_tester *self_tester)
{
    cache->options.self_tester = self_tester;
}

void kiln__plan_cache_wait_for_kernels(struct kiln__plan_cache *cache)
{
    atomic_store(&cache->runs_baseline, false);
}

void kiln__plan_cache_use_one_launch(struct kiln__plan_cache *cache, enum kiln__one_launch use)
{
    const bool apart = (use == KILN__ONE_LAUNCH_ON && atomic_load(&cache->runs_baseline)) ||
                       (use == KILN__ONE_LAUNCH_AUTO && cache->runtime->trace);
    cache->options.one_launch = apart ? KILN__ONE_LAUNCH_OFF : use;
}

void kiln__plan_cache_use_generic(struct kiln__plan_cache *cache)
{
    cache->options.all_generic = true;
}

/* ---- entries ---- */

static void free_idle(struct kiln__idle *idle)
{
    while (idle->count)
        kiln__executable_destroy(idle->items[--idle->count]);
}

static void free_entry(struct kiln__plan_entry *entry)
{
    for (enum kiln__tier tier = KILN__TIER_OWN; tier < KILN__TIERS; tier++) {
        free_idle(&entry->idle[tier]);
        kiln__background_free(entry->background[tier]);
    }
    kiln__plan_free(&entry->plan);
    kiln__text_free(&entry->key);
    free(entry);
}

void kiln__plan_entries_free(struct kiln__plan_entry *list)
{
    while (list) {
        struct kiln__plan_entry *next = list->next;
        free_entry(list);
        list = next;
    }
}

void kiln__plan_cache_forget(struct kiln__plan_cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    struct kiln__plan_entry *list = kiln__plan_table_forget_all(&cache->table);
    pthread_mutex_unlock(&cache->lock);
    kiln__plan_entries_free(list);
}

void kiln__plan_cache_destroy(struct kiln__plan_cache *cache)
{
    if (!cache)
        return;
    kiln__plan_cache_forget(cache);
    kiln__plan_table_free(&cache->table);
    kiln__index_clear(&cache->works);
    pthread_mutex_destroy(&cache->lock);
    pthread_mutex_destroy(&cache->beginning);
    free(cache);
}

/* ---- finding ---- */

#define NODE_WORDS (sizeof(struct kiln__node) / sizeof(uint64_t))
_Static_assert(sizeof(struct kiln__node) % sizeof(uint64_t) == 0 && NODE_WORDS <= 64,
               "a bit for each word");

/* Most of a node's words are 0: which are not, and what these are. */
static void add_node(const struct kiln__node *node, struct kiln__text *key)
{
    uint64_t words[NODE_WORDS], packed[1 + NODE_WORDS] = {0};
    size_t count = 1;
    memcpy(words, node, sizeof words);
    for (size_t i = 0; i < NODE_WORDS; i++) {
        packed[0] |= (uint64_t)(words[i] != 0) << i;
        packed[count] = words[i];
        count += words[i] != 0;
    }
    kiln__text_add_bytes(key, packed, count * sizeof *packed);
}

void kiln__plan_key(const struct kiln__graph *graph, struct kiln__text *key)
{
    uint64_t count = graph->nodes.count;
    kiln__text_add_bytes(key, &count, sizeof count);
    kiln__text_add_bytes(key, &graph->batch_invariant, sizeof graph->batch_invariant);
    for (size_t i = 0; i < count; i++)
        add_node(&graph->nodes.items[i], key);
    kiln__text_add_bytes(key, graph->requests.items,
                         graph->requests.count * sizeof *graph->requests.items);
}

/* ---- making ---- */

static struct kiln__plan_options options_of(const struct kiln__plan_cache *cache, bool portable)
{
    struct kiln__plan_options options = cache->options;
    if (portable || atomic_load(&cache->portable))
        options.self_tester = NULL;
    options.limit = cache->runtime->memory.limit;
    return options;
}

/* Launches that are joined later are explained as they will be. */
static void explain_plan(const char *path, const struct kiln__graph *graph,
                         const struct kiln__text *log, const struct kiln__plan *plan)
{
    struct kiln__plan joined;
    struct kiln__error ignored = {0};
    const bool later = plan->options.one_launch == KILN__ONE_LAUNCH_AUTO &&
                       !kiln__compile_joined(plan, &joined, &ignored);
    kiln__explain_to(path, kiln__environment("KILN_EXPLAIN_AS"), graph, log,
                     later ? &joined : plan);
    if (later)
        kiln__plan_free(&joined);
}

/* Plan, and explain the plan where $KILN_EXPLAIN asks for it. */
static kiln_status make_plan(const struct kiln__plan_cache *cache, const struct kiln__graph *graph,
                             bool portable, struct kiln__plan *plan, struct kiln__error *error)
{
    const char *path = kiln__environment("KILN_EXPLAIN");
    const struct kiln__plan_options options = options_of(cache, portable);
    struct kiln__text log = {0};
    kiln_status status = kiln__compile_plan(graph, &options, path ? &log : NULL, plan, error);
    if (!status && path)
        explain_plan(path, graph, &log, plan);
    kiln__text_free(&log);
    return status;
}

/* Under the lock. */
static bool is_new_work(struct kiln__plan_cache *cache, uint64_t hash)
{
    size_t at = 0;
    uint32_t ignored;
    return !kiln__index_find(&cache->works, hash, &at, &ignored) &&
           kiln__index_add(&cache->works, hash, 0);
}

/* Append the plan's works that no earlier one has had to $KILN_RECORD_SHAPES. The context could
 * write there when it was made: what goes wrong later is logged. */
static void record_works(struct kiln__plan_cache *cache, const struct kiln__plan *plan)
{
    const char *path = kiln__environment("KILN_RECORD_SHAPES");
    struct kiln__plan_workloads works = {0};
    struct kiln__text text = {0};
    if (!path)
        return;
    kiln__plan_workloads_of(plan, &works);
    pthread_mutex_lock(&cache->lock);
    for (size_t i = 0; i < works.count; i++)
        if (is_new_work(cache, works.items[i].hash))
            kiln__plan_workload_write(&works.items[i], &text);
    pthread_mutex_unlock(&cache->lock);
    kiln__plan_workloads_append(path, &text);
    kiln__plan_workloads_free(&works);
    kiln__text_free(&text);
}

/* Two threads may make the same plan at once; the second one's is dropped. The key is taken over.
 */
kiln_status kiln__plan_cache_add(struct kiln__plan_cache *cache, const struct kiln__graph *graph,
                                 bool portable, uint64_t hash, struct kiln__text *key,
                                 struct kiln__plan_entry **result, struct kiln__error *error)
{
    struct kiln__plan_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
    kiln_status status = make_plan(cache, graph, portable, &entry->plan, error);
    if (status) {
        free(entry);
        return status;
    }
    atomic_fetch_add(&cache->runtime->counters.plans_made, 1);
    record_works(cache, &entry->plan);
    entry->hash = hash;
    entry->key = *key;
    *key = (struct kiln__text){0};
    entry->bytes = kiln__plan_pack(&entry->plan) + kiln__text_trim(&entry->key);
    pthread_mutex_lock(&cache->lock);
    *result = kiln__plan_table_find(&cache->table, hash, &entry->key);
    if (!*result && kiln__plan_table_add(&cache->table, entry))
        *result = entry;
    pthread_mutex_unlock(&cache->lock);
    if (*result != entry)
        free_entry(entry);
    return *result ? KILN_OK
                   : kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for a plan");
}

/* ---- saying ---- */

kiln_status kiln__plan_cache_list_works(struct kiln__plan_cache *cache,
                                        const struct kiln__graph *graph, struct kiln__text *text,
                                        struct kiln__error *error)
{
    struct kiln__plan plan;
    struct kiln__plan_workloads works = {0};
    const struct kiln__plan_options options = options_of(cache, false);
    kiln_status status = kiln__compile_plan(graph, &options, NULL, &plan, error);
    if (status)
        return status;
    kiln__plan_workloads_of(&plan, &works);
    for (size_t i = 0; i < works.count; i++)
        kiln__plan_workload_write(&works.items[i], text);
    kiln__plan_workloads_free(&works);
    kiln__plan_free(&plan);
    return text->failed ? kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for a list")
                        : KILN_OK;
}

kiln_status kiln__plan_cache_explain(struct kiln__plan_cache *cache,
                                     const struct kiln__graph *graph, struct kiln__text *text,
                                     struct kiln__error *error)
{
    struct kiln__plan plan;
    const struct kiln__plan_options options = options_of(cache, false);
    struct kiln__text log = {0};
    kiln_status status = kiln__compile_plan(graph, &options, &log, &plan, error);
    if (!status) {
        if (options.one_launch != KILN__ONE_LAUNCH_AUTO || kiln__launches_join(&plan))
            kiln__explain(graph, &log, &plan, text);
        else
            text->failed = true;
        kiln__plan_free(&plan);
    }
    kiln__text_free(&log);
    return !status && text->failed
               ? kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for the explanation")
               : status;
}
