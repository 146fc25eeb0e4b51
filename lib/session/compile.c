/* SPDX-License-Identifier: Apache-2.0 */
#include "session/compile.h"

#include "codegen/codegen.h"
#include "rewrite/passes.h"

static kiln_status no_memory(struct kiln__error *error)
{
    return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to plan the batch");
}

static kiln_status verify_fusion(const struct kiln__fusion *fusion, struct kiln__error *error)
{
    char wrong[KILN__WRONG];
    if (kiln__verifies && kiln__fusion_verify(fusion, wrong))
        return kiln__fail(error, KILN_WRONG_STATE, "kiln: fusion left broken groups: %s", wrong);
    return KILN_OK;
}

static kiln_status verify_plan(const struct kiln__plan *plan, struct kiln__error *error)
{
    char wrong[KILN__WRONG];
    kiln_status status = kiln__verifies ? kiln__plan_verify(plan, wrong) : KILN_OK;
    if (kiln__verifies && !status)
        status = kiln__launches_verify(plan, wrong);
    return status == KILN_WRONG_STATE
               ? kiln__fail(error, status, "kiln: planning left a broken plan: %s", wrong)
           : status ? no_memory(error)
                    : KILN_OK;
}

kiln_status kiln__compile_rewrite(const struct kiln__graph *recorded, struct kiln__text *log,
                                  struct kiln__graph *graph, struct kiln__error *error)
{
    kiln_status status =
        kiln__graph_copy(recorded, graph) ? kiln__passes_run(graph, log, error) : no_memory(error);
    if (status)
        kiln__graph_free(graph);
    return status;
}

kiln_status kiln__compile_fuse(const struct kiln__graph *recorded, struct kiln__text *log,
                               struct kiln__fusion *fusion, struct kiln__error *error)
{
    struct kiln__graph graph;
    kiln_status status = kiln__compile_rewrite(recorded, log, &graph, error);
    if (status)
        return status;
    if (!kiln__fuse(&graph, fusion))
        return no_memory(error);
    status = verify_fusion(fusion, error);
    if (status)
        kiln__fusion_free(fusion);
    return status;
}

kiln_status kiln__compile_plan(const struct kiln__graph *recorded,
                               const struct kiln__plan_options *options, struct kiln__text *log,
                               struct kiln__plan *plan, struct kiln__error *error)
{
    struct kiln__fusion fusion;
    kiln_status status = kiln__compile_fuse(recorded, log, &fusion, error);
    if (!status)
        status = kiln__plan_make(&fusion, options, plan, error);
    if (status)
        return status;
    status = verify_plan(plan, error);
    if (status)
        kiln__plan_free(plan);
    return status;
}
