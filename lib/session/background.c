/* SPDX-License-Identifier: Apache-2.0 */
/* Background compilation: a second plan, or launches that are not joined yet, and workers that
 * compile the kernels that are missing. Each batch changes to its own kernels between two of its
 * runs.
 *
 * Where a driver can compile without optimising (quick_options), which takes a fourth of the time,
 * the second plan is the same with its missing kernels compiled so. Contraction is off in all of
 * kiln's texts and nothing else that a compiler may do changes a float: results have the same bits.
 * The workers begin with a share of those quick kernels, by way of the driver's own cache.
 *
 * Elsewhere it has the generic kernel, which is off unless asked for: that adds in another order,
 * so that a result's last bits may change once. There batch-invariant graphs wait for their
 * kernels. So do runs that are compared with the host. Joined launches have the bits of those
 * apart.
 */
#include "session/background.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "graph/attention.h"
#include "graph/attention_backward.h"
#include "lower/generic.h"
#include "runtime/executable.h"
#include "session/compile.h"
#include "util/clock.h"
#include "util/log.h"

/* Fewer are compiled sooner than the generic kernel, if that is missing as well, or than a process
 * begins. */
#define FEWEST_MISSING 3
#define FEWEST_MISSING_COLD 8

/* Steps of the generic kernel, one after the other, that take as long as a kernel's compilation:
 * 0.1 s of a CPU's, 0.3 of a GPU's. */
#define MOST_STEPS_CPU ((uint64_t)12000000)
#define MOST_STEPS_GPU ((uint64_t)3000000)

/* Operations of all launches of a quick kernel that take it as long as the compilation of one that
 * is optimised: half a second of a core, 0.2 ns for a product's multiply-add, some 1 ns for others.
 */
#define MOST_QUICK_PRODUCTS 2.5e9
#define MOST_QUICK_STEPS 5e8

#define MOST_WORKERS 8

/* Fewer quick kernels are compiled by the batch's own thread before a worker has the first one:
 * both begin by reading the driver's library, and the worker's process begins later. */
#define FEWEST_SHARED 8

/* A launch that is done as a phase saves PoCL some 1.5 us, and a GPU's host what it takes to
 * enqueue it. A second or two of compiling, which nobody waits for, begins once that many runs
 * would have saved this. */
#define SAVED_NS 1500
#define SAVED_GPU_NS 5500
#define PAYS_NS (50 * (uint64_t)KILN__MS)

struct search {
    struct kiln__runtime *runtime;
    const struct kiln__plan *plan;
    struct kiln__program_specs specs;
    struct kiln__missing missing; /* of those */
    bool *generic;                /* per group */
};

/* The spec for the launch's kernel among those missing; their count: it is not. */
static size_t find_missing(const struct search *search, const struct kiln__launch *launch)
{
    struct kiln__text name = {0};
    size_t found = 0;
    kiln__codegen_name(search->plan, launch, false, &name);
    while (found < search->missing.count && !name.failed &&
           (search->missing.items[found]->name_length != name.length ||
            memcmp(search->missing.items[found]->name, name.data, name.length) != 0))
        found++;
    kiln__text_free(&name);
    return found;
}

static bool is_missing(const struct search *search, const struct kiln__launch *launch)
{
    return launch->source != KILN__SOURCE_CLBLAST &&
           find_missing(search, launch) < search->missing.count;
}

/* ---- quick kernels ---- */

static double count_products(const struct kiln__plan *plan, const struct kiln__group *group)
{
    const struct kiln__graph *graph = &plan->fusion.graph;
    struct kiln__attention_size size = {0};
    if (group->kind == KILN__GROUP_MATMUL)
        return (double)kiln__shape_count(&group->shape) * (double)group->reduced;
    if (group->kind == KILN__GROUP_ATTENTION)
        size = kiln__attention_size(graph, &graph->nodes.items[group->nodes.items[0]]);
    if (group->kind == KILN__GROUP_ATTENTION_BACKWARD)
        size = kiln__attention_backward_size(graph, &graph->nodes.items[group->nodes.items[0]]);
    return (double)size.batches * (double)size.m * (double)size.n * (double)(size.d + size.e);
}

/* Of a launch, as a share of what is soon done. */
static double quick_share(const struct kiln__plan *plan, const struct kiln__launch *launch)
{
    const struct kiln__group *group = &plan->fusion.groups.items[launch->group];
    const double steps =
        (double)kiln__shape_count(&group->shape) * (double)(group->steps.count + 1);
    return count_products(plan, group) / MOST_QUICK_PRODUCTS + steps / MOST_QUICK_STEPS;
}

/* The share of each missing kernel: all its launches'. NULL without memory. */
static double *list_shares(const struct search *search)
{
    const struct kiln__plan *plan = search->plan;
    double *shares = calloc(search->missing.count + 1, sizeof *shares);
    for (size_t i = 0; shares && i < plan->launches.count; i++)
        shares[find_missing(search, &plan->launches.items[i])] +=
            quick_share(plan, &plan->launches.items[i]);
    return shares;
}

/* Have the launch's kernel compiled quickly. What users wrote is compiled as it always is: they may
 * not have switched contraction off. */
static bool use_quick_kernel(const struct kiln__plan *plan, struct kiln__launch *launch)
{
    const char *quick = plan->options.device->traits->quick_options;
    const size_t used = strlen(launch->options);
    if (launch->source == KILN__SOURCE_CUSTOM || launch->source == KILN__SOURCE_CLBLAST ||
        used + strlen(quick) + 2 > sizeof launch->options)
        return false;
    snprintf(launch->options + used, sizeof launch->options - used, " %s", quick);
    return true;
}

/* The plan with quick kernels in the place of those that are missing. */
static struct kiln__background *begin_quick(const struct search *search)
{
    struct kiln__background *background = calloc(1, sizeof *background);
    double *shares = list_shares(search);
    bool *quick = calloc(search->missing.count + 1, sizeof *quick);
    size_t count = 0;
    if (background && shares && quick && kiln__plan_copy(search->plan, &background->plan))
        for (size_t i = 0; i < search->plan->launches.count; i++) {
            const size_t missing = find_missing(search, &search->plan->launches.items[i]);
            if (missing < search->missing.count && shares[missing] < 1 &&
                use_quick_kernel(search->plan, &background->plan.launches.items[i])) {
                count += !quick[missing];
                quick[missing] = true;
            }
        }
    free(quick);
    free(shares);
    if (count >= FEWEST_MISSING)
        return background;
    kiln__background_free(background);
    return NULL;
}

/* ---- the generic kernel ---- */

/* Whether the generic kernel is soon done with it. */
static bool suits_generic(const struct search *search, uint32_t group)
{
    const bool chunked = search->plan->options.device->traits->chunked;
    uint64_t work = kiln__generic_work(search->plan, group);
    return work && work <= (chunked ? MOST_STEPS_CPU : MOST_STEPS_GPU);
}

/* Groups without a launch: another one's kernel does their work, which the generic one does not. */
static void choose_parts(struct search *search)
{
    const struct kiln__plan *plan = search->plan;
    size_t groups = plan->fusion.groups.count;
    bool *launched = calloc(groups + 1, sizeof *launched);
    for (size_t i = 0; launched && i < plan->launches.count; i++)
        launched[plan->launches.items[i].group] = true;
    for (uint32_t g = 0; launched && g < groups; g++)
        search->generic[g] = search->generic[g] || (!launched[g] && suits_generic(search, g));
    free(launched);
}

/* Which groups lack a kernel and are better computed by the generic one. */
static size_t choose_groups(struct search *search)
{
    const struct kiln__plan *plan = search->plan;
    size_t chosen = 0;
    for (size_t i = 0; i < plan->launches.count; i++) {
        const struct kiln__launch *launch = &plan->launches.items[i];
        bool *generic = &search->generic[launch->group];
        if (*generic || !is_missing(search, launch))
            continue;
        *generic = suits_generic(search, launch->group);
        chosen += *generic;
    }
    choose_parts(search);
    return chosen;
}

static struct kiln__background *make_plan(const struct search *search,
                                          const struct kiln__graph *graph)
{
    struct kiln__plan_options options = search->plan->options;
    struct kiln__background *background = calloc(1, sizeof *background);
    struct kiln__error error = {0};
    uint64_t limit = search->runtime->memory.limit;
    options.generic = search->generic;
    options.limit = 0; /* its groups are the plan's */
    if (!background || kiln__compile_plan(graph, &options, NULL, &background->plan, &error)) {
        free(background);
        return NULL;
    }
    if (kiln__executable_pool_bytes(&background->plan, 0) <= limit)
        return background;
    kiln__background_free(background);
    return NULL;
}

/* Whether the generic kernel itself would have to be compiled: any launch of the plan has it. */
static bool lacks_generic(const struct search *search, const struct kiln__plan *plan)
{
    struct kiln__program_specs specs = {0};
    struct kiln__missing absent = {0};
    bool lacks = false;
    if (kiln__program_specs_list(search->runtime->programs, plan, KILN__KERNELS_JOINED, true,
                                 &specs))
        kiln__programs_find_missing(search->runtime->programs, specs.items, specs.count, &absent);
    for (size_t i = 0; i < absent.count; i++)
        lacks = lacks || !strcmp(absent.items[i]->kernel, "kiln_generic");
    free(absent.items);
    kiln__program_specs_free(&specs);
    return lacks;
}

static struct kiln__background *begin_generic(struct search *search,
                                              const struct kiln__graph *graph)
{
    if (graph->batch_invariant || search->plan->fusion.graph.rematerialised.count ||
        search->runtime->device.traits->no_generic_kernel)
        return NULL;
    search->generic = calloc(search->plan->fusion.groups.count + 1, sizeof *search->generic);
    if (!search->generic || choose_groups(search) < FEWEST_MISSING)
        return NULL;
    struct kiln__background *background = make_plan(search, graph);
    if (background && search->missing.count < FEWEST_MISSING_COLD &&
        lacks_generic(search, &background->plan)) {
        kiln__background_free(background);
        background = NULL;
    }
    return background;
}

/* ---- missing kernels ---- */

/* A core is left for the runs meanwhile. */
static unsigned count_workers(size_t jobs)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t workers = cores > 1 ? (size_t)cores - 1 : 1;
    workers = workers < jobs ? workers : jobs;
    return (unsigned)(workers < MOST_WORKERS ? workers : MOST_WORKERS);
}

/* Of the second plan's quick kernels the workers' share goes to `jobs` first: each worker compiles
 * three to two of the batch's own thread, which runs them as well. That one builds and launches
 * from the first on, hence theirs are the last, in reverse order. What is compiled twice where they
 * meet costs a moment. */
static void add_quick_jobs(const struct search *search, const struct kiln__program_specs *quick,
                           unsigned workers, struct kiln__missing *jobs)
{
    const struct kiln__device *device = &search->runtime->device;
    size_t count = 0;
    for (size_t i = 0; i < quick->count; i++)
        count += kiln__program_is_quick(device, quick->items[i].options);
    const size_t share = count < FEWEST_SHARED ? 0 : count * 3 * workers / (3 * workers + 2);
    for (size_t i = quick->count; i-- > 0 && jobs->count < share;)
        if (kiln__program_is_quick(device, quick->items[i].options))
            jobs->items[jobs->count++] = &quick->items[i];
}

static void start_workers(const struct search *search, struct kiln__background *background)
{
    struct kiln__programs *programs = search->runtime->programs;
    const unsigned workers = count_workers(search->missing.count);
    struct kiln__program_specs quick = {0};
    struct kiln__missing jobs = {0};
    if (kiln__program_specs_list(programs, &background->plan, KILN__KERNELS_JOINED, true, &quick))
        jobs.items = calloc(quick.count + search->missing.count + 1, sizeof *jobs.items);
    if (jobs.items) {
        add_quick_jobs(search, &quick, workers, &jobs);
        for (size_t i = 0; i < search->missing.count; i++)
            jobs.items[jobs.count++] = search->missing.items[i];
    }
    kiln__compile_workers_start_specs(&background->workers, programs,
                                      jobs.items ? &jobs : &search->missing, workers, true);
    free(jobs.items);
    kiln__program_specs_free(&quick);
}

static struct kiln__background *background_begin(struct search *search,
                                                 const struct kiln__graph *graph)
{
    struct kiln__programs *programs = search->runtime->programs;
    if (!kiln__program_specs_list(programs, search->plan, KILN__KERNELS_JOINED, true,
                                  &search->specs))
        return NULL;
    kiln__programs_find_missing(programs, search->specs.items, search->specs.count,
                                &search->missing);
    if (!search->missing.items || search->missing.count < FEWEST_MISSING)
        return NULL;
    const bool quick = search->runtime->device.traits->quick_options;
    struct kiln__background *background =
        quick ? begin_quick(search) : begin_generic(search, graph);
    if (!background)
        return NULL;
    start_workers(search, background);
    background->state = KILN__BACKGROUND_COMPILES;
    KILN__LOG(KILN__LOG_INFO,
              "%zu kernels are compiled in the background of a batch that runs %s until then",
              search->missing.count,
              quick ? "by ones that are not optimised" : "without most of them");
    return background;
}

/* ---- joined launches ---- */

/* Nothing is joined before the plan runs for the second time: most of ever new shapes do not. */
struct kiln__background *kiln__background_begin_unjoined(const struct kiln__plan *plan)
{
    struct kiln__background *background = NULL;
    if (plan->options.one_launch == KILN__ONE_LAUNCH_AUTO && kiln__launches_may_join(plan))
        background = calloc(1, sizeof *background);
    if (background)
        background->unjoined = true;
    return background;
}

enum kiln__background_due kiln__background_count(struct kiln__background *background)
{
    if (!background->unjoined || background->state != KILN__BACKGROUND_WAITS)
        return KILN__DUE_NOTHING;
    const uint64_t runs = ++background->runs;
    if (runs == 1)
        return KILN__DUE_LOOK;
    if (!background->pays || runs < background->pays)
        return KILN__DUE_NOTHING;
    background->pays = UINT64_MAX; /* one has it compiled */
    return KILN__DUE_COMPILE;
}

/* After how many runs what joins the launches would have saved enough. */
static uint64_t count_paying(const struct kiln__plan *joined)
{
    const uint64_t each = joined->options.device->traits->chunked ? SAVED_NS : SAVED_GPU_NS;
    const uint64_t saved = each * (joined->launches.count - kiln__plan_enqueued(joined));
    return (PAYS_NS + saved - 1) / saved;
}

/* One process: a core is left for the runs meanwhile. */
static enum kiln__background_state compile_joined(struct kiln__background *background,
                                                  struct kiln__programs *programs,
                                                  const struct kiln__missing *missing)
{
    if (!kiln__programs_compile_in_parallel(programs) ||
        !kiln__compile_workers_is_possible(programs))
        return KILN__BACKGROUND_STAYS;
    KILN__LOG(KILN__LOG_INFO, "what joins launches is compiled behind a batch that runs often");
    kiln__compile_workers_start_specs(&background->workers, programs, missing, 1, false);
    return KILN__BACKGROUND_COMPILES;
}

/* Their kernels that are not there, of those wished for; without memory no list. */
static void list_missing(const struct kiln__background *background, struct kiln__programs *programs,
                         struct kiln__program_specs *specs, struct kiln__missing *missing)
{
    if (kiln__program_specs_list(programs, &background->plan, KILN__KERNELS_JOINED_ALONE, true,
                                 specs))
        kiln__programs_find_missing(programs, specs->items, specs->count, missing);
}

bool kiln__background_is_missing(const struct kiln__background *background,
                                 struct kiln__programs *programs)
{
    struct kiln__program_specs specs = {0};
    struct kiln__missing missing = {0};
    list_missing(background, programs, &specs, &missing);
    const bool lacks = missing.count;
    free(missing.items);
    kiln__program_specs_free(&specs);
    return lacks;
}

/* Whether there is what joins them, now that it is looked for, or compiled. */
static enum kiln__background_state find_joined(struct kiln__background *background,
                                               struct kiln__programs *programs, bool compiles)
{
    struct kiln__program_specs specs = {0};
    struct kiln__missing missing = {0};
    enum kiln__background_state state = KILN__BACKGROUND_STAYS;
    list_missing(background, programs, &specs, &missing);
    if (missing.items)
        state = !missing.count ? KILN__BACKGROUND_OVER
                : compiles     ? compile_joined(background, programs, &missing)
                               : KILN__BACKGROUND_WAITS;
    free(missing.items);
    kiln__program_specs_free(&specs);
    return state;
}

struct kiln__background_step kiln__background_advance(struct kiln__background *background,
                                                      struct kiln__runtime *runtime,
                                                      const struct kiln__plan *plan, bool compiles)
{
    struct kiln__background_step step = {.state = KILN__BACKGROUND_STAYS};
    struct kiln__plan *joined = &background->plan;
    struct kiln__error ignored = {0};
    if (!joined->launches.count && !kiln__compile_joined(plan, joined, &ignored))
        step.bytes = kiln__plan_pack(joined);
    if (joined->joined.count) {
        step.state = find_joined(background, runtime->programs, compiles);
        step.pays = count_paying(joined);
    }
    return step;
}

/* ---- both ---- */

struct kiln__background *kiln__background_begin(struct kiln__runtime *runtime,
                                                const struct kiln__graph *graph,
                                                const struct kiln__plan *plan)
{
    struct search search = {.runtime = runtime, .plan = plan};
    struct kiln__background *background = NULL;
    if (kiln__compile_workers_is_possible(runtime->programs))
        background = background_begin(&search, graph);
    free(search.missing.items);
    kiln__program_specs_free(&search.specs);
    free(search.generic);
    return background;
}

bool kiln__background_is_over(struct kiln__background *background)
{
    struct kiln__compile_workers *workers = &background->workers;
    if (background->state != KILN__BACKGROUND_COMPILES) /* another thread may be asking them */
        return background->state == KILN__BACKGROUND_OVER;
    const size_t asked = workers->jobs.texts.count;
    if (kiln__compile_workers_listen(workers, false))
        return false;
    const size_t failed = asked - workers->stored - workers->present;
    background->state =
        background->unjoined && failed ? KILN__BACKGROUND_STAYS : KILN__BACKGROUND_OVER;
    if (failed)
        KILN__LOG(KILN__LOG_WARN, "%zu of %zu kernels could not be compiled in the background: %s",
                  failed, asked,
                  background->unjoined ? "launches stay apart"
                                       : "the run that is next compiles them itself");
    kiln__compile_workers_free(workers);
    return background->state == KILN__BACKGROUND_OVER;
}

void kiln__background_free(struct kiln__background *background)
{
    if (!background)
        return;
    kiln__compile_workers_free(&background->workers);
    kiln__plan_free(&background->plan);
    free(background);
}
