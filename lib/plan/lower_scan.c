/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums to launches of kernels/scan.cl. */
#include <stdio.h>

#include "plan/lower.h"

struct scan {
    size_t lines, n, inner;
};

static struct scan scan_of(const struct kiln__node *node)
{
    struct scan scan = {.lines = 1, .inner = 1};
    bool after = false;
    for (uint32_t d = 0; d < node->shape.rank; d++) {
        if (node->axes >> d & 1) {
            scan.n = node->shape.dims[d];
            after = true;
            continue;
        }
        scan.lines *= node->shape.dims[d];
        scan.inner *= after ? node->shape.dims[d] : 1;
    }
    return scan;
}

static void choose_options(const struct kiln__plan *plan, const struct kiln__group *group,
                           const struct kiln__node *node, struct kiln__launch *launch)
{
    const struct kiln__node *nodes = plan->fusion.graph.nodes.items;
    const struct kiln__node *input = &nodes[group->accesses.items[0].node];
    snprintf(launch->options, sizeof launch->options, "-DIN=%s -DOUT=%s -DWG=%u%s",
             kiln__type_row((kiln_type)input->type)->device,
             kiln__type_row((kiln_type)node->type)->sums, plan->options.device->traits->work_group,
             node->op == KILN__SCAN_BACKWARD ? " -DREVERSED" : "");
}

/* Which kernel, and how many work-items. */
static size_t size_launch(const struct kiln__traits *traits, const struct scan *scan,
                          struct kiln__launch *launch)
{
    size_t chunk = kiln__chunk_size(traits, scan->lines, scan->n);
    if (traits->chunked) {
        launch->kernel = "scan_lines";
        kiln__launch_line(traits, kiln__divide_up(scan->lines, chunk), launch);
    } else if (scan->inner > 1) {
        launch->kernel = "scan_columns";
        kiln__launch_line(traits, scan->lines, launch);
    } else {
        launch->kernel = "scan_rows";
        kiln__launch_line(traits, scan->lines * traits->work_group, launch);
    }
    return chunk;
}

bool kiln__lower_scan(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    if (group->stores.count == 0)
        return true;
    const struct kiln__access *access = &group->accesses.items[0];
    const struct kiln__node *nodes = plan->fusion.graph.nodes.items;
    const struct kiln__node *node = &nodes[group->stores.items[0].node];
    const struct scan scan = scan_of(node);
    if (scan.lines == 0 || scan.n == 0)
        return true;
    struct kiln__launch launch = {.source = KILN__SOURCE_TEMPLATE, .group = index, .file = "scan"};
    uint32_t from = plan->slot_of[access->node], to = plan->slot_of[group->stores.items[0].node];
    launch.form.wide = true;
    launch.bytes = kiln__group_bytes(plan, group);
    choose_options(plan, group, node, &launch);
    size_t chunk = size_launch(plan->options.device->traits, &scan, &launch);
    bool done = kiln__launch_memory(&launch, from) && kiln__launch_memory(&launch, to) &&
                kiln__launch_index(&launch, (int64_t)scan.lines) &&
                kiln__launch_index(&launch, (int64_t)scan.n) &&
                kiln__launch_index(&launch, (int64_t)scan.inner) &&
                kiln__launch_offset(&launch, from, access->offset,
                                    kiln_type_size((kiln_type)nodes[access->node].type)) &&
                kiln__launch_offset(&launch, to, 0, kiln_type_size((kiln_type)node->type));
    if (plan->options.device->traits->chunked)
        done = done && kiln__launch_index(&launch, (int64_t)chunk);
    return kiln__plan_launch(plan, &launch, done);
}
