/* SPDX-License-Identifier: Apache-2.0 */
/* Scatters on chunked devices: items with sums of their own (kernels/scatter_parts.cl), items with
 * strips of the result (kernels/scatter.cl). */
#include "lower/scatter.h"

#include <stdio.h>

/* ---- parts ---- */

/* Indices for each sum of an item's own. */
#define LEAST_SHARED 8
/* Rows of an item that adds sums up (kernels/scatter_parts.cl is told). */
#define ROWS 64

static bool parts_fits(const struct kiln__plan *plan, const void *work)
{
    (void)plan;
    return kiln__scatter_adds_integers(work);
}

static bool parts_suits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__scattering *scatter = work;
    (void)plan;
    return scatter->count / LEAST_SHARED >= scatter->extent;
}

static void lower_parts(struct kiln__plan *plan, uint32_t group, const void *work)
{
    static const char file[] = "scatter_parts";
    const struct kiln__scattering *scatter = work;
    const size_t parts = scatter->device->traits->chunks, item = kiln_type_size(scatter->type);
    const uint32_t sums = kiln__plan_scratch(plan, parts * scatter->extent * item);
    char more[32];
    (void)group;
    snprintf(more, sizeof more, " -DROWS=%d", ROWS);
    struct kiln__launch part = kiln__scatter_launch(plan, scatter, file, "scatter_part", 1, more);
    struct kiln__launch join = kiln__scatter_launch(plan, scatter, file, "scatter_join", 1, more);
    part.global[0] = parts;
    join.global[0] = kiln__divide_up(scatter->extent, ROWS);
    part.bytes = kiln__scatter_bytes(plan, scatter);
    join.bytes = (parts + 2) * scatter->extent * item;
    kiln__scatter_add_values(plan, scatter, &part);
    kiln__scatter_add_indices(plan, scatter, &part);
    kiln__scatter_add_room(sums, item, &part);
    KILN__LAUNCH_INDICES(&part, (int64_t)scatter->count, (int64_t)scatter->extent);
    kiln__scatter_add_room(sums, item, &join);
    kiln__scatter_add_result(plan, scatter, &join);
    KILN__LAUNCH_INDICES(&join, (int64_t)scatter->extent, (int64_t)parts);
    kiln__plan_launch(plan, &part);
    kiln__plan_launch(plan, &join);
}

/* ---- strips ---- */

/* Columns of an item: a few cache lines. */
#define STRIP 256
/* Columns below which walking the indices takes longer than what is done with them. */
#define NARROW 16

static void lower_strips(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__scattering *scatter = work;
    const size_t chunks = scatter->device->traits->chunks;
    const size_t cores = scatter->device->info.compute_units;
    const bool narrow = scatter->inner < NARROW && cores && cores < chunks;
    char more[32];
    (void)group;
    snprintf(more, sizeof more, " -DCOLUMNS=%d", STRIP);
    struct kiln__launch launch = kiln__scatter_launch(plan, scatter, "scatter", "scatter", 1, more);
    launch.dimensions = 3;
    launch.global[0] = kiln__divide_up(scatter->inner, STRIP);
    launch.global[1] =
        kiln__scatter_classes(scatter, narrow ? cores : chunks, launch.global[0] * scatter->outer);
    launch.global[2] = scatter->outer;
    kiln__scatter_walk(plan, scatter, &launch);
}

/* ---- the rows ---- */

const struct kiln__lowering kiln__scatter_parts = {
    .fits = parts_fits, .suits = parts_suits, .lower = lower_parts};
const struct kiln__lowering kiln__scatter_strips = {.lower = lower_strips};
