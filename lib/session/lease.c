/* SPDX-License-Identifier: Apache-2.0 */
/* Leases of plan and executable: the plan's own kernels, or what it runs by before these are
 * compiled, and what becomes of a batch whose kernels a driver does not build. */
#include "session/plan_cache_state.h"

#include "runtime/executable.h"
#include "session/background.h"
#include "session/compile.h"
#include "util/clock.h"
#include "util/hash.h"
#include "util/log.h"

/* Who waits for other processes looks so often. */
#define LOOKS_NS (5 * KILN__MS)

/* Of a batch whose kernels are not built, with plans that do without some. */
#define MOST_TRIES 4

static bool has_self_tested(const struct kiln__plan *plan)
{
    bool has = false;
    for (size_t i = 0; i < plan->launches.count; i++)
        has = has || plan->launches.items[i].self_tested;
    return has;
}

/* A driver has not built a plan's programs. If one of them is of a kernel that had passed its
 * self-test, this plan is not found again. False: one without such would not help. */
static bool forget_self_tested(struct kiln__plan_cache *cache, struct kiln__plan_entry *entry)
{
    if (!has_self_tested(&entry->plan) ||
        kiln__programs_compile_mode(cache->runtime->programs) == KILN_COMPILE_NEVER)
        return false;
    pthread_mutex_lock(&cache->lock);
    kiln__plan_table_forget(&cache->table, entry);
    pthread_mutex_unlock(&cache->lock);
    return true;
}

/* What has become of a batch without them. If it still is not built, they were not the cause. */
static void settle_portable(struct kiln__plan_cache *cache, kiln_status status,
                            const struct kiln__error *first)
{
    if (status != KILN_BUILD_FAILED && !atomic_exchange(&cache->portable, true))
        KILN__LOG(KILN__LOG_WARN, "this context does without kernels that had proved right: %s",
                  first->text);
}

/* An imagined device has no limit. */
static bool fits_memory(const struct kiln__plan_cache *cache, const struct kiln__plan *plan)
{
    uint64_t limit = cache->runtime->memory.limit;
    return !limit || kiln__executable_pool_bytes(plan, 0) <= limit;
}

/* Under the lock. Who prepares waits for the plan's own kernels, but not for what joins launches.
 */
static enum kiln__tier tier_of(const struct kiln__plan_entry *entry, bool prepares)
{
    enum kiln__tier tier = prepares ? KILN__TIER_UNJOINED : KILN__TIER_BASELINE;
    while (tier > KILN__TIER_OWN &&
           (!entry->background[tier] || kiln__background_is_over(entry->background[tier])))
        tier--;
    return tier;
}

/* Under the lock: an executable that nobody uses. */
static struct kiln__executable *take_idle(struct kiln__plan_entry *entry, bool prepares,
                                          enum kiln__tier *tier)
{
    *tier = tier_of(entry, prepares);
    struct kiln__idle *idle = &entry->idle[*tier];
    return idle->count ? idle->items[--idle->count] : NULL;
}

/* What joins the entry's launches is looked for, or compiled if it is not there. */
static void advance_background(struct kiln__plan_cache *cache, struct kiln__plan_entry *entry,
                               bool compiles)
{
    struct kiln__background *background = entry->background[KILN__TIER_UNJOINED];
    pthread_mutex_lock(&cache->beginning);
    pthread_mutex_lock(&cache->lock);
    bool waits = background->state == KILN__BACKGROUND_WAITS;
    pthread_mutex_unlock(&cache->lock);
    if (waits) {
        const struct kiln__background_step step =
            kiln__background_advance(background, cache->runtime, &entry->plan, compiles);
        pthread_mutex_lock(&cache->lock);
        background->state = step.state;
        background->pays = step.pays;
        entry->bytes += step.bytes;
        pthread_mutex_unlock(&cache->lock);
    }
    pthread_mutex_unlock(&cache->beginning);
}

/* The plan of a borrowed entry is about to run once more; by quick kernels it does not count. */
static void count_run(struct kiln__plan_cache *cache, struct kiln__plan_entry *entry)
{
    enum kiln__background_due due = KILN__DUE_NOTHING;
    pthread_mutex_lock(&cache->lock);
    if (tier_of(entry, false) == KILN__TIER_UNJOINED)
        due = kiln__background_count(entry->background[KILN__TIER_UNJOINED]);
    pthread_mutex_unlock(&cache->lock);
    if (due)
        advance_background(cache, entry, due == KILN__DUE_COMPILE);
}

/* Of two threads one finds out what the plan is run by meanwhile. */
static void begin_background(struct kiln__plan_cache *cache, const struct kiln__graph *graph,
                             struct kiln__plan_entry *entry, bool baseline)
{
    pthread_mutex_lock(&cache->beginning);
    if (!entry->looked) {
        struct kiln__background *background =
            baseline ? kiln__background_begin(cache->runtime, graph, &entry->plan) : NULL;
        struct kiln__background *unjoined = kiln__background_begin_unjoined(&entry->plan);
        pthread_mutex_lock(&cache->lock);
        entry->background[KILN__TIER_BASELINE] = background;
        entry->background[KILN__TIER_UNJOINED] = unjoined;
        entry->looked = true;
        if (background)
            entry->bytes += kiln__plan_pack(&background->plan);
        pthread_mutex_unlock(&cache->lock);
    }
    pthread_mutex_unlock(&cache->beginning);
}

/* What a batch is run by now. */
static enum kiln__tier find_tier(struct kiln__plan_cache *cache, const struct kiln__graph *graph,
                                 struct kiln__plan_entry *entry, bool prepares)
{
    const bool joins = entry->plan.options.one_launch == KILN__ONE_LAUNCH_AUTO;
    const bool baseline = !prepares && atomic_load(&cache->runs_baseline);
    if (!joins && !baseline)
        return KILN__TIER_OWN;
    begin_background(cache, graph, entry, baseline);
    if (prepares && entry->background[KILN__TIER_UNJOINED])
        advance_background(cache, entry, false);
    pthread_mutex_lock(&cache->lock);
    enum kiln__tier tier = tier_of(entry, prepares);
    pthread_mutex_unlock(&cache->lock);
    return tier;
}

/* An executable of this tier. */
static kiln_status make_for_tier(struct kiln__plan_cache *cache, const struct kiln__lease *lease,
                                 enum kiln__tier tier, const struct kiln__labels *labels,
                                 const unsigned *threads, struct kiln__executable **made,
                                 struct kiln__error *error)
{
    const struct kiln__plan_entry *entry = lease->entry;
    const struct kiln__background *joined = entry->background[KILN__TIER_UNJOINED];
    const struct kiln__plan *plan = tier == KILN__TIER_BASELINE ? &entry->background[tier]->plan
                                    : tier == KILN__TIER_OWN && joined && !lease->checked
                                        ? &joined->plan
                                        : &entry->plan;
    return kiln__compile_executable(cache->runtime, plan, labels,
                                    lease->checked           ? KILN__KERNELS_CHECKED
                                    : tier == KILN__TIER_OWN ? KILN__KERNELS_JOINED
                                                             : KILN__KERNELS_UNJOINED,
                                    threads, made, error);
}

/* Kernels of the lease's tier cannot be built, as it turns out: what ran without them goes on so.
 * Where another plan may do without what failed, nothing is done here. */
static kiln_status fall_back(struct kiln__plan_cache *cache, struct kiln__lease *lease,
                             kiln_status status, struct kiln__error *error)
{
    struct kiln__error ignored = {0};
    enum kiln__tier tier = lease->tier + 1;
    while (tier < KILN__TIERS &&
           (!lease->entry->background[tier] ||
            (tier == KILN__TIER_BASELINE && has_self_tested(&lease->entry->plan)) ||
            make_for_tier(cache, lease, tier, NULL, NULL, &lease->executable, &ignored)))
        tier++;
    if (tier == KILN__TIERS)
        return status;
    struct kiln__background *background = lease->entry->background[tier];
    pthread_mutex_lock(&cache->lock);
    bool first = background->state != KILN__BACKGROUND_STAYS;
    background->state = KILN__BACKGROUND_STAYS;
    lease->tier = tier;
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
    struct kiln__background *background = entry->background[KILN__TIER_UNJOINED];
    if (!kiln__background_is_missing(background, cache->runtime->programs))
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
    const bool joins = !lease->checked && entry->plan.options.one_launch == KILN__ONE_LAUNCH_AUTO;
    if (!lease->checked)
        lease->tier = find_tier(cache, graph, entry, threads);
    if (lease->tier == KILN__TIER_BASELINE) {
        if (!make_for_tier(cache, lease, lease->tier, graph->labels, NULL, &lease->executable,
                           &ignored))
            return KILN_OK;
        KILN__LOG(KILN__LOG_WARN, "a batch waits for its kernels, since it cannot run without: %s",
                  ignored.text);
        lease->tier = entry->background[KILN__TIER_UNJOINED] ? KILN__TIER_UNJOINED : KILN__TIER_OWN;
    }
    if (joins && lease->tier == KILN__TIER_OWN && entry->background[KILN__TIER_UNJOINED] &&
        is_lost(cache, entry))
        lease->tier = KILN__TIER_UNJOINED;
    kiln_status status =
        make_for_tier(cache, lease, lease->tier, graph->labels, threads, &lease->executable, error);
    return status == KILN_BUILD_FAILED && !lease->checked && !threads
               ? fall_back(cache, lease, status, error)
               : status;
}

/* Kernels for an executable that nobody has used. */
static kiln_status borrow_kernels(struct kiln__lease *lease, struct kiln__error *error)
{
    kiln_status status = kiln__executable_borrow(lease->executable, error);
    if (status) {
        kiln__executable_destroy(lease->executable);
        lease->executable = NULL;
    }
    return status;
}

/* `threads`: see kiln__compile_executable(). `portable`: a new plan does without kernels
 * that need a self-test. `again`: it failed, and may not with such a plan. */
static kiln_status lease_once(struct kiln__plan_cache *cache, const struct kiln__graph *graph,
                              bool checked, const unsigned *threads, bool portable,
                              struct kiln__lease *lease, bool *again, struct kiln__error *error)
{
    struct kiln__text key = {0};
    kiln_status status = KILN_OK;
    *lease = (struct kiln__lease){.checked = checked};
    *again = false;
    kiln__plan_key(graph, &key);
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
        lease->executable = take_idle(lease->entry, threads, &lease->tier);
    pthread_mutex_unlock(&cache->lock);
    if (lease->entry)
        atomic_fetch_add(&cache->runtime->counters.plans_reused, 1);
    else
        status = kiln__plan_cache_add(cache, graph, portable, hash, &key, &lease->entry, error);
    kiln__text_free(&key);
    if (!status && lease->executable)
        status = borrow_kernels(lease, error);
    else if (!status && (checked || fits_memory(cache, &lease->entry->plan)))
        status = make_executable(cache, graph, threads, lease, error);
    *again = status == KILN_BUILD_FAILED && lease->entry && forget_self_tested(cache, lease->entry);
    if (!status)
        lease->plan = lease->executable && lease->tier == KILN__TIER_OWN ? lease->executable->plan
                                                                         : &lease->entry->plan;
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
            settle_portable(cache, status, &first);
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
    if (lease->tier == KILN__TIER_OWN)
        return false;
    count_run(cache, lease->entry);
    pthread_mutex_lock(&cache->lock);
    bool changed = tier_of(lease->entry, false) < lease->tier;
    pthread_mutex_unlock(&cache->lock);
    return changed;
}

static bool is_compiled(const struct kiln__plan_entry *entry)
{
    bool compiles = false;
    for (enum kiln__tier tier = KILN__TIER_UNJOINED; tier < KILN__TIERS; tier++)
        compiles = compiles ||
                   (entry->background[tier] && !kiln__background_is_over(entry->background[tier]) &&
                    entry->background[tier]->state == KILN__BACKGROUND_COMPILES);
    return compiles;
}

void kiln__plan_cache_wait_for_background(struct kiln__plan_cache *cache)
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
    struct kiln__idle *idle = &entry->idle[lease->tier];
    bool wanted = !lease->checked && tier_of(entry, false) >= lease->tier;
    if (lease->executable && wanted && idle->count < KILN__MOST_IDLE) {
        idle->items[idle->count++] = lease->executable;
        lease->executable = NULL;
    }
    pthread_mutex_unlock(&cache->lock);
    kiln__executable_destroy(lease->executable); /* before the plan, which it looks at, may go */
    pthread_mutex_lock(&cache->lock);
    struct kiln__plan_entry *surplus = kiln__plan_table_return(&cache->table, entry);
    pthread_mutex_unlock(&cache->lock);
    kiln__plan_entries_free(surplus);
    *lease = (struct kiln__lease){0};
}
