/* SPDX-License-Identifier: Apache-2.0 */
/* Look-up of plans by graph hash, leases of plan and executable, and compilation of what is
 * missing. */
#include "session/plan_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "runtime/executable.h"
#include "session/background.h"
#include "session/compile.h"
#include "session/explain.h"
#include "session/plan_table.h"
#include "session/plan_workloads.h"
#include "util/clock.h"
#include "util/environment.h"
#include "util/hash.h"
#include "util/index.h"
#include "util/log.h"

/* Who waits for other processes looks so often. */
#define LOOKS_NS (5 * KILN__MS)

/* Of a batch whose kernels are not built, with plans that do without some. */
#define MOST_TRIES 4

struct kiln__plan_cache {
    struct kiln__runtime *runtime;
    struct kiln__plan_options options;
    atomic_bool plain;         /* a kernel that had proved right has failed, and its batch runs
                                  without such: so do all plans */
    atomic_bool runs_behind;   /* batches run before their kernels are compiled */
    pthread_mutex_t beginning; /* held while a plan to run by meanwhile is made, and an entry's
                                  `behind` is settled; `lock` may be taken under it, and never the
                                  other way around */
    pthread_mutex_t lock;      /* guards what follows; planning and compiling happen outside */
    struct kiln__plan_table table;
    struct kiln__index works; /* hashes of those that were written down (plan_workloads.h) */
};

/* The word has been checked. An imagined device runs nothing often, and what joins launches comes
 * by way of the disk; and on an H200 threads that share a context and change to a joined plan
 * between runs under way waited for each other for ever. */
static enum kiln__one_launch choose_one_launch(const struct kiln__runtime *runtime)
{
    const char *variable = kiln__environment("KILN_ONE_LAUNCH");
    if (variable && strcmp(variable, "auto") != 0)
        return strcmp(variable, "on") ? KILN__ONE_LAUNCH_OFF : KILN__ONE_LAUNCH_ON;
    return runtime->programs && kiln__programs_have_disk(runtime->programs) &&
                   runtime->device.traits->chunked
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
    atomic_init(&cache->runs_behind,
                runtime->programs &&
                    kiln__programs_compile_mode(runtime->programs) == KILN_COMPILE_BACKGROUND);
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
    atomic_store(&cache->runs_behind, false);
}

void kiln__plan_cache_use_one_launch(struct kiln__plan_cache *cache, enum kiln__one_launch use)
{
    const bool apart =
        atomic_load(&cache->runs_behind) || (use == KILN__ONE_LAUNCH_AUTO && cache->runtime->trace);
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
    free_idle(&entry->idle);
    free_idle(&entry->interim);
    kiln__background_free(entry->background);
    kiln__plan_free(&entry->plan);
    kiln__text_free(&entry->key);
    free(entry);
}

static void free_entries(struct kiln__plan_entry *list)
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
    free_entries(list);
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

static void make_key(const struct kiln__graph *graph, struct kiln__text *key)
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

static struct kiln__plan_options options_of(const struct kiln__plan_cache *cache, bool plain)
{
    struct kiln__plan_options options = cache->options;
    if (plain || atomic_load(&cache->plain))
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
                             bool plain, struct kiln__plan *plan, struct kiln__error *error)
{
    const char *path = kiln__environment("KILN_EXPLAIN");
    const struct kiln__plan_options options = options_of(cache, plain);
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
static kiln_status add_entry(struct kiln__plan_cache *cache, const struct kiln__graph *graph,
                             bool plain, uint64_t hash, struct kiln__text *key,
                             struct kiln__plan_entry **result, struct kiln__error *error)
{
    struct kiln__plan_entry *entry = calloc(1, sizeof *entry);
    if (!entry)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
    kiln_status status = make_plan(cache, graph, plain, &entry->plan, error);
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

/* ---- leasing ---- */

static bool has_proved(const struct kiln__plan *plan)
{
    bool has = false;
    for (size_t i = 0; i < plan->launches.count; i++)
        has = has || plan->launches.items[i].self_tested;
    return has;
}

/* A driver has not built a plan's programs. If one of them is of a kernel that had proved
 * right, this plan is not found again. False: one without such would not help. */
static bool do_without_proved(struct kiln__plan_cache *cache, struct kiln__plan_entry *entry)
{
    if (!has_proved(&entry->plan) ||
        kiln__programs_compile_mode(cache->runtime->programs) == KILN_COMPILE_NEVER)
        return false;
    pthread_mutex_lock(&cache->lock);
    kiln__plan_table_forget(&cache->table, entry);
    pthread_mutex_unlock(&cache->lock);
    return true;
}

/* What has become of a batch without them. If it still is not built, they were not the cause. */
static void settle_proved(struct kiln__plan_cache *cache, kiln_status status,
                          const struct kiln__error *first)
{
    if (status != KILN_BUILD_FAILED && !atomic_exchange(&cache->plain, true))
        KILN__LOG(KILN__LOG_WARN, "this context does without kernels that had proved right: %s",
                  first->text);
}

/* An imagined device has no limit. */
static bool fits_memory(const struct kiln__plan_cache *cache, const struct kiln__plan *plan)
{
    uint64_t limit = cache->runtime->memory.limit;
    return !limit || kiln__executable_room(plan, 0) <= limit;
}

/* Under the lock. Who prepares waits for the plan's own kernels, but not for what joins launches.
 */
static bool is_interim(const struct kiln__plan_entry *entry, bool prepares)
{
    return entry->background && (!prepares || entry->background->apart) &&
           !kiln__background_is_over(entry->background);
}

/* Under the lock: an executable that nobody uses. */
static struct kiln__executable *take_idle(struct kiln__plan_entry *entry, bool prepares,
                                          bool *interim)
{
    *interim = is_interim(entry, prepares);
    struct kiln__idle *idle = *interim ? &entry->interim : &entry->idle;
    return idle->count ? idle->items[--idle->count] : NULL;
}

/* What joins the entry's launches is looked for, or compiled if it is not there. */
static void go_on(struct kiln__plan_cache *cache, struct kiln__plan_entry *entry, bool compiles)
{
    struct kiln__background *background = entry->background;
    pthread_mutex_lock(&cache->beginning);
    pthread_mutex_lock(&cache->lock);
    bool waits = background->state == KILN__BACKGROUND_WAITS;
    pthread_mutex_unlock(&cache->lock);
    if (waits) {
        const struct kiln__background_step step =
            kiln__background_go_on(background, cache->runtime, &entry->plan, compiles);
        pthread_mutex_lock(&cache->lock);
        background->state = step.state;
        background->pays = step.pays;
        entry->bytes += step.bytes;
        pthread_mutex_unlock(&cache->lock);
    }
    pthread_mutex_unlock(&cache->beginning);
}

/* The plan of a borrowed entry is about to run once more. */
static void count_run(struct kiln__plan_cache *cache, struct kiln__plan_entry *entry)
{
    enum kiln__background_due due = KILN__DUE_NOTHING;
    pthread_mutex_lock(&cache->lock);
    if (entry->background)
        due = kiln__background_count(entry->background);
    pthread_mutex_unlock(&cache->lock);
    if (due)
        go_on(cache, entry, due == KILN__DUE_COMPILE);
}

/* Of two threads one finds out what the plan is run by meanwhile. */
static void look_behind(struct kiln__plan_cache *cache, const struct kiln__graph *graph,
                        struct kiln__plan_entry *entry)
{
    pthread_mutex_lock(&cache->beginning);
    if (!entry->looked) {
        struct kiln__background *background =
            kiln__background_begin(cache->runtime, graph, &entry->plan);
        pthread_mutex_lock(&cache->lock);
        entry->background = background;
        entry->looked = true;
        if (background && !background->apart)
            entry->bytes += kiln__plan_pack(&background->plan);
        pthread_mutex_unlock(&cache->lock);
    }
    pthread_mutex_unlock(&cache->beginning);
}

/* Whether the plan's own kernels are not there yet, and a batch runs without them. */
static bool runs_interim(struct kiln__plan_cache *cache, const struct kiln__graph *graph,
                         struct kiln__plan_entry *entry, bool prepares)
{
    const bool joins = entry->plan.options.one_launch == KILN__ONE_LAUNCH_AUTO;
    if (!joins && (prepares || !atomic_load(&cache->runs_behind)))
        return false;
    look_behind(cache, graph, entry);
    if (joins && prepares && entry->background)
        go_on(cache, entry, false);
    pthread_mutex_lock(&cache->lock);
    bool interim = is_interim(entry, prepares);
    pthread_mutex_unlock(&cache->lock);
    return interim;
}

/* Kernels to run by before the plan's own are there. */
static kiln_status make_interim(struct kiln__plan_cache *cache,
                                const struct kiln__plan_entry *entry,
                                const struct kiln__labels *labels, const unsigned *threads,
                                struct kiln__executable **made, struct kiln__error *error)
{
    const struct kiln__background *background = entry->background;
    return kiln__compile_executable(cache->runtime,
                                    background->apart ? &entry->plan : &background->plan, labels,
                                    KILN__KERNELS_APART, threads, made, error);
}

/* The plan's own kernels cannot be built, as it turns out: what ran without them goes on so. Where
 * another plan may do without what failed, nothing is done here. */
static kiln_status stay_without(struct kiln__plan_cache *cache, struct kiln__lease *lease,
                                kiln_status status, struct kiln__error *error)
{
    struct kiln__background *background = lease->entry->background;
    struct kiln__error ignored = {0};
    if (!background || (!background->apart && has_proved(&lease->entry->plan)) ||
        make_interim(cache, lease->entry, NULL, NULL, &lease->executable, &ignored))
        return status;
    pthread_mutex_lock(&cache->lock);
    bool first = background->state != KILN__BACKGROUND_STAYS;
    background->state = KILN__BACKGROUND_STAYS;
    lease->interim = true;
    pthread_mutex_unlock(&cache->lock);
    if (first)
        KILN__LOG(KILN__LOG_WARN, "a batch goes on without kernels of its own: %s", error->text);
    *error = (struct kiln__error){0};
    return KILN_OK;
}

/* Whether the kernel that joins the plan's launches was there, and is gone, as from a cache that is
 * cleared. It is compiled anew as at first: behind, once that pays. */
static bool is_lost(struct kiln__plan_cache *cache, struct kiln__plan_entry *entry)
{
    struct kiln__background *background = entry->background;
    if (!kiln__background_lacks(background, cache->runtime->programs))
        return false;
    pthread_mutex_lock(&cache->lock);
    if (background->state == KILN__BACKGROUND_OVER) {
        background->state = KILN__BACKGROUND_WAITS;
        background->runs = background->pays = 0;
    }
    pthread_mutex_unlock(&cache->lock);
    return true;
}

/* Kernels for the lease: the plan's own, or what it runs by before these are compiled. */
static kiln_status make_executable(struct kiln__plan_cache *cache, const struct kiln__graph *graph,
                                   const unsigned *threads, struct kiln__lease *lease,
                                   struct kiln__error *error)
{
    struct kiln__plan_entry *entry = lease->entry;
    struct kiln__error ignored = {0};
    lease->interim = !lease->checked && runs_interim(cache, graph, entry, threads);
    const bool joins = !lease->checked && entry->background && entry->background->apart;
    if (joins && !lease->interim)
        lease->interim = is_lost(cache, entry);
    if (lease->interim && entry->background->apart)
        return make_interim(cache, entry, graph->labels, threads, &lease->executable, error);
    if (lease->interim &&
        !make_interim(cache, entry, graph->labels, NULL, &lease->executable, &ignored))
        return KILN_OK;
    if (lease->interim)
        KILN__LOG(KILN__LOG_WARN, "a batch waits for its kernels, since it cannot run without: %s",
                  ignored.text);
    lease->interim = false;
    kiln_status status = kiln__compile_executable(
        cache->runtime, joins ? &entry->background->plan : &entry->plan, graph->labels,
        lease->checked ? KILN__KERNELS_CHECKED : KILN__KERNELS_JOINED, threads, &lease->executable,
        error);
    return status == KILN_BUILD_FAILED && !lease->checked && !threads
               ? stay_without(cache, lease, status, error)
               : status;
}

/* Kernels for an executable that nobody has used. */
static kiln_status wake(struct kiln__lease *lease, struct kiln__error *error)
{
    kiln_status status = kiln__executable_borrow(lease->executable, error);
    if (status) {
        kiln__executable_destroy(lease->executable);
        lease->executable = NULL;
    }
    return status;
}

/* `threads`: see kiln__compile_executable(). `plain`: a new plan does without kernels that had
 * proved right. `again`: it failed, and may not with such a plan. */
static kiln_status lease_once(struct kiln__plan_cache *cache, const struct kiln__graph *graph,
                              bool checked, const unsigned *threads, bool plain,
                              struct kiln__lease *lease, bool *again, struct kiln__error *error)
{
    struct kiln__text key = {0};
    kiln_status status = KILN_OK;
    *lease = (struct kiln__lease){.checked = checked};
    *again = false;
    make_key(graph, &key);
    if (key.failed)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
    uint64_t hash = kiln__hash64(key.data, key.length);
    pthread_mutex_lock(&cache->lock);
    lease->entry = kiln__plan_table_find(&cache->table, hash, &key);
    pthread_mutex_unlock(&cache->lock);
    if (lease->entry && !checked)
        count_run(cache, lease->entry);
    pthread_mutex_lock(&cache->lock);
    if (lease->entry && !checked)
        lease->executable = take_idle(lease->entry, threads, &lease->interim);
    pthread_mutex_unlock(&cache->lock);
    if (lease->entry)
        atomic_fetch_add(&cache->runtime->counters.plans_reused, 1);
    else
        status = add_entry(cache, graph, plain, hash, &key, &lease->entry, error);
    kiln__text_free(&key);
    if (!status && lease->executable)
        status = wake(lease, error);
    else if (!status && (checked || fits_memory(cache, &lease->entry->plan)))
        status = make_executable(cache, graph, threads, lease, error);
    *again = status == KILN_BUILD_FAILED && lease->entry && do_without_proved(cache, lease->entry);
    if (!status)
        lease->plan =
            lease->executable && !lease->interim ? lease->executable->plan : &lease->entry->plan;
    else if (lease->entry)
        kiln__plan_cache_return(cache, lease);
    return status;
}

static kiln_status lease_plan(struct kiln__plan_cache *cache, const struct kiln__graph *graph,
                              bool checked, const unsigned *threads, struct kiln__lease *lease,
                              struct kiln__error *error)
{
    bool again;
    struct kiln__error first = {0}, last;
    kiln_status status = lease_once(cache, graph, checked, threads, false, lease, &again, &first);
    last = first;
    /* Another thread may have made such a plan once more meanwhile. */
    for (int i = 0; i < MOST_TRIES && again; i++) {
        last = (struct kiln__error){0};
        status = lease_once(cache, graph, checked, threads, true, lease, &again, &last);
        if (!again)
            settle_proved(cache, status, &first);
    }
    if (status && error && !error->status)
        *error = last;
    return status;
}

kiln_status kiln__plan_cache_lease(struct kiln__plan_cache *cache, const struct kiln__graph *graph,
                                   bool checked, struct kiln__lease *lease,
                                   struct kiln__error *error)
{
    return lease_plan(cache, graph, checked, NULL, lease, error);
}

kiln_status kiln__plan_cache_prepare(struct kiln__plan_cache *cache,
                                     const struct kiln__graph *graph, unsigned threads,
                                     struct kiln__lease *lease, struct kiln__error *error)
{
    return lease_plan(cache, graph, false, &threads, lease, error);
}

bool kiln__plan_cache_has_changed(struct kiln__plan_cache *cache, const struct kiln__lease *lease)
{
    if (!lease->interim)
        return false;
    count_run(cache, lease->entry);
    pthread_mutex_lock(&cache->lock);
    bool changed = !is_interim(lease->entry, false);
    pthread_mutex_unlock(&cache->lock);
    return changed;
}

static bool is_compiled(const struct kiln__plan_entry *entry)
{
    return entry->background && !kiln__background_is_over(entry->background) &&
           entry->background->state == KILN__BACKGROUND_COMPILES;
}

void kiln__plan_cache_settle(struct kiln__plan_cache *cache)
{
    bool compiles = true;
    while (compiles) {
        pthread_mutex_lock(&cache->lock);
        compiles = kiln__plan_table_any(&cache->table, is_compiled);
        pthread_mutex_unlock(&cache->lock);
        if (compiles)
            kiln__sleep(LOOKS_NS);
    }
}

void kiln__plan_cache_return(struct kiln__plan_cache *cache, struct kiln__lease *lease)
{
    struct kiln__plan_entry *entry = lease->entry;
    if (!entry)
        return;
    if (lease->executable)
        kiln__executable_return(lease->executable);
    pthread_mutex_lock(&cache->lock);
    struct kiln__idle *idle = lease->interim ? &entry->interim : &entry->idle;
    bool wanted = !lease->checked && (!lease->interim || is_interim(entry, false));
    if (lease->executable && wanted && idle->count < KILN__MOST_IDLE) {
        idle->items[idle->count++] = lease->executable;
        lease->executable = NULL;
    }
    pthread_mutex_unlock(&cache->lock);
    kiln__executable_destroy(lease->executable); /* before the plan, which it looks at, may go */
    pthread_mutex_lock(&cache->lock);
    struct kiln__plan_entry *surplus = kiln__plan_table_return(&cache->table, entry);
    pthread_mutex_unlock(&cache->lock);
    free_entries(surplus);
    *lease = (struct kiln__lease){0};
}

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
