/* SPDX-License-Identifier: Apache-2.0 */
/* The stages in their order. None of them calls a later one, and nobody else calls them. */
#include "session/compile.h"

#include <stdlib.h>

#include "codegen/codegen.h"
#include "rewrite/passes.h"

static kiln_status no_memory(struct kiln__error *error)
{
    return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
}

/* ---- a stage each, and its verifier ---- */

kiln_status kiln__compile_rewrite(const struct kiln__graph *recorded, bool integers,
                                  struct kiln__text *log, struct kiln__graph *graph,
                                  struct kiln__error *error)
{
    kiln_status status = kiln__graph_copy(recorded, graph) ? KILN_OK : no_memory(error);
    graph->integers = integers;
    if (!status)
        status = kiln__rewrite(graph, log, error);
    if (status)
        kiln__graph_free(graph);
    return status;
}

kiln_status kiln__compile_fuse(struct kiln__graph *graph, struct kiln__fusion *fusion,
                               struct kiln__error *error)
{
    char wrong[KILN__WRONG];
    if (!kiln__fuse(graph, fusion))
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

static bool has_integers(const struct kiln__graph *graph)
{
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.items[i].kind == KILN__MATMUL &&
            graph->nodes.items[i].op == KILN__PRODUCT_WHOLE)
            return true;
    return false;
}

kiln_status kiln__compile_plan(const struct kiln__graph *recorded,
                               const struct kiln__plan_options *options, struct kiln__text *log,
                               struct kiln__plan *plan, struct kiln__error *error)
{
    struct kiln__graph graph;
    struct kiln__fusion fusion;
    bool integers = has_integers(recorded) && kiln__plan_adds_integers(options, recorded);
    kiln_status status = kiln__compile_rewrite(recorded, integers, log, &graph, error);
    graph.narrow = options->prover != NULL;
    if (!status)
        status = kiln__compile_fuse(&graph, &fusion, error);
    if (!status)
        status = make_plan(&fusion, options, plan, error);
    return status;
}

/* ---- plan -> codegen -> cache -> executable ---- */

kiln_status kiln__compile_executable(struct kiln__runtime *runtime, const struct kiln__plan *plan,
                                     const struct kiln__labels *labels, bool checked,
                                     const unsigned *threads, struct kiln__executable **made,
                                     struct kiln__error *error)
{
    struct kiln__launch_program *programs = calloc(plan->launches.count + 1, sizeof *programs);
    kiln_status status = programs ? KILN_OK : no_memory(error);
    *made = NULL;
    if (!status && !checked)
        status = kiln__compile_ahead(runtime->programs, plan, threads, error);
    if (!status)
        status = kiln__compile_programs(runtime->programs, plan, labels, checked, programs, error);
    if (!status)
        status = kiln__executable_create(runtime, plan, programs, made, error);
    free(programs);
    return status;
}
