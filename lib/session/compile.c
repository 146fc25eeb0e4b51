/* SPDX-License-Identifier: Apache-2.0 */
/* The stages in their order. None of them calls a later one, and nobody else calls them. */
#include "session/compile.h"

#include <stdlib.h>

#include "codegen/codegen.h"
#include "lower/lower.h"
#include "memory/rematerialise.h"
#include "rewrite/passes.h"

/* Plans that are tried to bring one below its limit. */
#define MOST_ROUNDS 48

static kiln_status no_memory(struct kiln__error *error)
{
    return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
}

/* ---- a stage each, and its verifier ---- */

kiln_status kiln__compile_rewrite(const struct kiln__graph *recorded,
                                  const struct kiln__kernel_support *support,
                                  struct kiln__text *log, struct kiln__graph *graph,
                                  struct kiln__error *error)
{
    kiln_status status = kiln__graph_copy(recorded, graph) ? KILN_OK : no_memory(error);
    if (!status)
        status = kiln__rewrite(graph, support, log, error);
    if (status)
        kiln__graph_free(graph);
    return status;
}

kiln_status kiln__compile_fuse(struct kiln__graph *graph,
                               const struct kiln__kernel_support *support,
                               struct kiln__fusion *fusion, struct kiln__error *error)
{
    char wrong[KILN__WRONG];
    if (!kiln__fuse(graph, support, fusion))
        return no_memory(error);
    if (!kiln__verifies || !kiln__fusion_verify(fusion, wrong))
        return KILN_OK;
    kiln__fusion_free(fusion);
    return kiln__fail(error, KILN_WRONG_STATE, "kiln: fusion left broken groups: %s", wrong);
}

static kiln_status make_plan(struct kiln__fusion *fusion, const struct kiln__plan_options *options,
                             struct kiln__plan *plan, struct kiln__error *error)
{
    char wrong[KILN__WRONG];
    kiln_status status = kiln__plan_make(fusion, options, plan, error);
    if (status || !kiln__verifies)
        return status;
    status = kiln__plan_verify(plan, wrong);
    if (!status)
        status = kiln__plan_verify_dependencies(plan, wrong);
    if (!status)
        status = kiln__launches_verify(plan, wrong);
    if (status)
        kiln__plan_free(plan);
    return status == KILN_WRONG_STATE
               ? kiln__fail(error, status, "kiln: planning left a broken plan: %s", wrong)
           : status ? no_memory(error)
                    : KILN_OK;
}

/* ---- recorded graph -> rewrite -> fuse -> plan ---- */

/* What the catalogue answers for one graph. */
struct catalogue {
    struct kiln__kernel_support support; /* first */
    const struct kiln__plan_options *options;
    bool batch_invariant;
};

static bool has_exact_integers(const struct kiln__kernel_support *support)
{
    const struct catalogue *catalogue = (const struct catalogue *)support;
    return !catalogue->batch_invariant && kiln__matmul_has_exact_integers(catalogue->options);
}

static struct catalogue catalogue_of(const struct kiln__plan_options *options,
                                     const struct kiln__graph *graph)
{
    return (struct catalogue){.support = {.narrow_operands = options->self_tester != NULL,
                                          .reads_padded = options->device->traits->chunked,
                                          .exact_integers = has_exact_integers},
                              .options = options,
                              .batch_invariant = graph->batch_invariant};
}

static kiln_status fuse_and_plan(struct kiln__graph *graph,
                                 const struct kiln__plan_options *options, struct kiln__plan *plan,
                                 struct kiln__error *error)
{
    struct kiln__fusion fusion;
    const struct catalogue catalogue = catalogue_of(options, graph);
    kiln_status status = kiln__compile_fuse(graph, &catalogue.support, &fusion, error);
    return status ? status : make_plan(&fusion, options, plan, error);
}

/* Another plan of the same batch, of which less is alive at its peak: first without computing
 * anything again. *made is false: there is none. */
static kiln_status plan_smaller(const struct kiln__plan *plan, bool first, uint64_t bytes,
                                struct kiln__plan *next, bool *made, struct kiln__error *error)
{
    struct kiln__choice *choices = NULL;
    struct kiln__graph graph = {0};
    bool done = first || kiln__plan_choose_rematerialised(plan, bytes, &choices);
    *made = first || choices;
    if (done && *made)
        done = first ? kiln__plan_schedule_early(plan, &graph)
                     : kiln__rematerialise(&plan->fusion.graph, choices, &graph);
    free(choices);
    kiln_status status = done ? KILN_OK : no_memory(error);
    if (!status && *made)
        status = fuse_and_plan(&graph, &plan->options, next, error);
    kiln__graph_free(&graph);
    return status;
}

/* What is left of the limit for the arena. */
static uint64_t room_for_arena(const struct kiln__plan *plan, uint64_t limit)
{
    uint64_t others = kiln__executable_pool_bytes(plan, 0) - plan->arena_bytes;
    return others < limit ? limit - others : 0;
}

/* A plan that needs more than its limit becomes one that computes some values again, if that one
 * does not. What is alive at once finds no place without gaps each time: less is aimed at then. */
static kiln_status compile_fit(struct kiln__plan *plan, struct kiln__error *error)
{
    const uint64_t limit = plan->options.limit;
    struct kiln__plan now = {0};
    uint64_t bytes = room_for_arena(plan, limit);
    bool made = limit && kiln__executable_pool_bytes(plan, 0) > limit, fits = !made;
    kiln_status status = KILN_OK;
    for (unsigned round = 0; round < MOST_ROUNDS && made && !fits && !status; round++) {
        struct kiln__plan next;
        status = plan_smaller(round ? &now : plan, !round, bytes, &next, &made, error);
        if (status || !made)
            break;
        kiln__plan_free(&now);
        now = next;
        fits = kiln__executable_pool_bytes(&now, 0) <= limit;
    }
    if (made && fits && !status) {
        struct kiln__plan large = *plan;
        *plan = now;
        now = large;
    }
    kiln__plan_free(&now);
    if (status)
        kiln__plan_free(plan);
    return status;
}

kiln_status kiln__compile_plan(const struct kiln__graph *recorded,
                               const struct kiln__plan_options *options, struct kiln__text *log,
                               struct kiln__plan *plan, struct kiln__error *error)
{
    struct kiln__graph graph;
    const struct catalogue catalogue = catalogue_of(options, recorded);
    kiln_status status = kiln__compile_rewrite(recorded, &catalogue.support, log, &graph, error);
    if (!status)
        status = fuse_and_plan(&graph, options, plan, error);
    if (!status)
        status = compile_fit(plan, error);
    if (!status && options->one_launch == KILN__ONE_LAUNCH_ON && !kiln__launches_join(plan)) {
        kiln__plan_free(plan);
        status = no_memory(error);
    }
    return status;
}

kiln_status kiln__compile_joined(const struct kiln__plan *plan, struct kiln__plan *joined,
                                 struct kiln__error *error)
{
    if (!kiln__plan_copy(plan, joined))
        return no_memory(error);
    if (kiln__launches_join(joined))
        return KILN_OK;
    kiln__plan_free(joined);
    return no_memory(error);
}

/* ---- plan -> codegen -> cache -> executable ---- */

kiln_status kiln__compile_executable(struct kiln__runtime *runtime, const struct kiln__plan *plan,
                                     const struct kiln__labels *labels,
                                     enum kiln__kernel_set kernels, const unsigned *threads,
                                     struct kiln__executable **made, struct kiln__error *error)
{
    struct kiln__launch_program *programs = calloc(kiln__plan_launches(plan) + 1, sizeof *programs);
    kiln_status status = programs ? KILN_OK : no_memory(error);
    *made = NULL;
    bool found = !status && kiln__find_programs(runtime->programs, plan, kernels, programs);
    if (!status && kernels != KILN__KERNELS_CHECKED && (threads || !found))
        status = kiln__compile_ahead(runtime->programs, plan, kernels, threads, error);
    if (!status && !found)
        status = kiln__get_programs(runtime->programs, plan, labels, kernels, programs, error);
    if (!status)
        status = kiln__executable_create(runtime, plan, programs, made, error);
    free(programs);
    return status;
}
