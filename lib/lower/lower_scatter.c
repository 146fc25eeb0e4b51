/* SPDX-License-Identifier: Apache-2.0 */
/* Scatter groups to launches: which row of the catalogue does it, and what its rows have in common.
 *
 * Whatever hangs on the order of a row's values keeps that of the indices, so that every run gives
 * the same bits.
 */
#include "lower/scatter.h"
#include "plan/traffic.h"

#include <stdio.h>

static const struct kiln__node *result_of(const struct kiln__plan *plan,
                                          const struct kiln__group *group)
{
    return &plan->fusion.graph.nodes.items[group->stores.items[0].node];
}

static struct kiln__scattering scattering_of(const struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    const struct kiln__node *nodes = plan->fusion.graph.nodes.items;
    const struct kiln__node *node = result_of(plan, group);
    struct kiln__scattering scatter = {.device = kiln__plan_device(plan, group),
                                       .group = index,
                                       .type = node->type,
                                       .mode = (kiln_scatter_mode)node->op,
                                       .outer = 1,
                                       .extent = node->shape.dims[node->axis],
                                       .inner = 1};
    for (uint32_t d = 0; d < node->shape.rank; d++)
        if (d != node->axis)
            *(d < node->axis ? &scatter.outer : &scatter.inner) *= node->shape.dims[d];
    scatter.count = kiln__node_count(&nodes[node->input[KILN__SCATTER_INDICES]]);
    return scatter;
}

bool kiln__scatter_adds_integers(const struct kiln__scattering *scatter)
{
    return scatter->mode == KILN_SCATTER_ADD && !kiln__type_row(scatter->type)->floating &&
           scatter->inner == 1 && scatter->outer == 1;
}

size_t kiln__scatter_classes(const struct kiln__scattering *scatter, size_t wanted, size_t others)
{
    size_t classes = 1;
    while (classes < scatter->extent && classes < scatter->count && classes * others < wanted)
        classes *= 2;
    return classes;
}

/* ---- launches ---- */

/* Whether signs matter; else integers are those that wrap around. */
static bool orders(kiln_scatter_mode mode)
{
    return mode == KILN_SCATTER_MIN || mode == KILN_SCATTER_MAX;
}

struct kiln__launch kiln__scatter_launch(const struct kiln__plan *plan,
                                         const struct kiln__scattering *scatter, const char *file,
                                         const char *kernel, size_t local, const char *more)
{
    const struct kiln__group *group = &plan->fusion.groups.items[scatter->group];
    const struct kiln__node *nodes = plan->fusion.graph.nodes.items;
    const uint32_t indices = group->accesses.items[KILN__SCATTER_INDICES].node;
    const struct kiln__type_row *type = kiln__type_row(scatter->type);
    struct kiln__launch launch = {.source = KILN__SOURCE_TEMPLATE, .group = scatter->group};
    launch.file = file;
    launch.kernel = kernel;
    launch.variant.wide = true;
    kiln__launch_reads(plan, KILN__READABLE, 1, &launch);
    launch.dimensions = 1;
    launch.global[0] = launch.local[0] = local;
    for (int d = 1; d < 3; d++)
        launch.global[d] = launch.local[d] = 1;
    snprintf(launch.options, sizeof launch.options, "-DTYPE=%s -DCOMBINE=%s -DINDEX=%s%s",
             orders(scatter->mode) ? type->device : type->sums,
             kiln__node_name(result_of(plan, group)), kiln__type_row(nodes[indices].type)->device,
             more);
    return launch;
}

/* ---- arguments ---- */

static void add_access(const struct kiln__plan *plan, const struct kiln__access *access,
                       struct kiln__launch *launch)
{
    const struct kiln__node *node = &plan->fusion.graph.nodes.items[access->node];
    const uint32_t slot = plan->slot_of[access->node];
    kiln__launch_memory(launch, slot);
    kiln__launch_offset(launch, slot, access->offset, kiln_type_size(node->type));
}

void kiln__scatter_add_values(const struct kiln__plan *plan, const struct kiln__scattering *scatter,
                              struct kiln__launch *launch)
{
    const struct kiln__group *group = &plan->fusion.groups.items[scatter->group];
    add_access(plan, &group->accesses.items[KILN__SCATTER_VALUES], launch);
}

void kiln__scatter_add_indices(const struct kiln__plan *plan,
                               const struct kiln__scattering *scatter, struct kiln__launch *launch)
{
    const struct kiln__group *group = &plan->fusion.groups.items[scatter->group];
    add_access(plan, &group->accesses.items[KILN__SCATTER_INDICES], launch);
}

void kiln__scatter_add_result(const struct kiln__plan *plan, const struct kiln__scattering *scatter,
                              struct kiln__launch *launch)
{
    const struct kiln__group *group = &plan->fusion.groups.items[scatter->group];
    const struct kiln__access result = {.node = group->stores.items[0].node};
    add_access(plan, &result, launch);
}

void kiln__scatter_add_room(uint32_t slot, size_t item, struct kiln__launch *launch)
{
    kiln__launch_memory(launch, slot);
    kiln__launch_offset(launch, slot, 0, item);
}

uint64_t kiln__scatter_bytes(const struct kiln__plan *plan, const struct kiln__scattering *scatter)
{
    static const bool both[] = {true, true};
    const struct kiln__group *group = &plan->fusion.groups.items[scatter->group];
    const uint64_t values = scatter->outer * scatter->count * scatter->inner;
    const uint64_t most = kiln__node_count(result_of(plan, group));
    return kiln__group_bytes_read(plan, group, both) +
           2 * (values < most ? values : most) * kiln_type_size(scatter->type);
}

void kiln__scatter_walk(struct kiln__plan *plan, const struct kiln__scattering *scatter,
                        struct kiln__launch *launch)
{
    launch->bytes = kiln__scatter_bytes(plan, scatter);
    kiln__scatter_add_values(plan, scatter, launch);
    kiln__scatter_add_indices(plan, scatter, launch);
    kiln__scatter_add_result(plan, scatter, launch);
    KILN__LAUNCH_INDICES(launch, (int64_t)scatter->count, (int64_t)scatter->extent,
                         (int64_t)scatter->inner, (int64_t)launch->global[1]);
    kiln__plan_launch(plan, launch);
}

void kiln__lower_scatter(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    if (group->stores.count == 0 || kiln__shape_count(&group->shape) == 0)
        return;
    const struct kiln__scattering scatter = scattering_of(plan, index);
    if (scatter.extent == 0 || scatter.count == 0)
        return;
    const struct kiln__selection choice =
        kiln__select(plan, group, KILN__KERNEL_SCATTER, 0, &scatter);
    kiln__lower_by(plan, index, &choice, &scatter);
}
