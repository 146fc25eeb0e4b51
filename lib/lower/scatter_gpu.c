/* SPDX-License-Identifier: Apache-2.0 */
/* Scatters on devices with work-groups: sums of integers by atomics (kernels/scatter_atomic.cl),
 * rows that the last index writes (kernels/scatter_winners.cl), work-groups that mark and walk the
 * indices of their rows (kernels/scatter_gpu.cl), indices in the order of their rows
 * (kernels/scatter_sorted.cl). */
#include "lower/scatter.h"
#include "lower/sort.h"

#include <stdio.h>

/* Work-groups: several for each core of the largest. */
#define GROUPS 1024
/* Indices of an item that goes over them, at least. */
#define OF_AN_ITEM 8

/* Work-items, of whole work-groups, that go over `count`. */
static size_t items_over(size_t count, size_t local)
{
    const size_t groups = kiln__divide_up(count, local * OF_AN_ITEM);
    return local * (groups < GROUPS ? groups : GROUPS);
}

/* ---- atomics ---- */

/* Bytes of sums in a work-group's local memory. */
#define LOCAL_SUMS 16384

/* What kernels/scatter_atomic.cl is told, but for sums. */
#define SMALLEST " -DATOMIC=atomic_min -DWORD=int -DNEUTRAL=INT_MAX"
#define LARGEST " -DATOMIC=atomic_max -DWORD=int -DNEUTRAL=INT_MIN"

/* Sums of integers of whole words; the smallest or the largest of those of 32 bits. */
static bool atomics_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__scattering *scatter = work;
    const bool extreme = scatter->mode == KILN_SCATTER_MIN || scatter->mode == KILN_SCATTER_MAX;
    (void)plan;
    return (kiln__scatter_adds_integers(scatter) &&
            kiln_type_size(scatter->type) >= sizeof(uint32_t)) ||
           (extreme && scatter->type == KILN_I32 && scatter->inner == 1 && scatter->outer == 1);
}

static void lower_atomics(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__scattering *scatter = work;
    const size_t item = kiln_type_size(scatter->type);
    const size_t local = scatter->device->traits->work_group;
    size_t rows = 1;
    char more[128];
    (void)group;
    while (rows < scatter->extent && rows * item <= LOCAL_SUMS)
        rows *= 2;
    if (rows * item > LOCAL_SUMS)
        rows = 0;
    snprintf(more, sizeof more, " -DWORDS=%zu -DWG=%zu -DROWS=%zu%s", item / sizeof(uint32_t),
             local, rows,
             scatter->mode == KILN_SCATTER_MIN   ? SMALLEST
             : scatter->mode == KILN_SCATTER_MAX ? LARGEST
                                                 : "");
    struct kiln__launch launch =
        kiln__scatter_launch(plan, scatter, "scatter_atomic", "scatter_atomic", local, more);
    launch.global[0] = items_over(scatter->count, local);
    launch.bytes = kiln__scatter_bytes(plan, scatter);
    kiln__scatter_add_values(plan, scatter, &launch);
    kiln__scatter_add_indices(plan, scatter, &launch);
    kiln__scatter_add_result(plan, scatter, &launch);
    KILN__LAUNCH_INDICES(&launch, (int64_t)scatter->count, (int64_t)scatter->extent);
    kiln__plan_launch(plan, &launch);
}

/* ---- winners ---- */

/* Indices that are worth three launches instead of one. */
#define LEAST_WON 2048

static bool winners_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__scattering *scatter = work;
    (void)plan;
    return scatter->mode == KILN_SCATTER_SET && scatter->count <= INT32_MAX;
}

static bool winners_suits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__scattering *scatter = work;
    (void)plan;
    return scatter->count > LEAST_WON;
}

static void lower_winners(struct kiln__plan *plan, uint32_t group, const void *work)
{
    static const char file[] = "scatter_winners";
    const struct kiln__scattering *scatter = work;
    const size_t local = scatter->device->traits->work_group;
    const int64_t count = (int64_t)scatter->count, extent = (int64_t)scatter->extent;
    const bool by_rows = extent <= count;
    const size_t visits = by_rows ? scatter->extent : scatter->count;
    const uint32_t winners = kiln__plan_scratch(plan, scatter->extent * sizeof(int32_t));
    size_t columns = 1;
    char more[64];
    (void)group;
    while (columns < scatter->inner && columns < local)
        columns *= 2;
    snprintf(more, sizeof more, " -DWG=%zu -DCOLUMNS=%zu%s", local, columns,
             by_rows ? " -DBY_ROWS" : "");
    struct kiln__launch clear =
        kiln__scatter_launch(plan, scatter, file, "scatter_clear", local, more);
    struct kiln__launch claim =
        kiln__scatter_launch(plan, scatter, file, "scatter_claim", local, more);
    struct kiln__launch write =
        kiln__scatter_launch(plan, scatter, file, "scatter_write", columns, more);
    clear.global[0] = items_over(visits, local);
    claim.global[0] = items_over(scatter->count, local);
    write.dimensions = 3;
    write.local[1] = local / columns;
    write.global[1] = kiln__divide_up(visits, write.local[1]) * write.local[1];
    write.global[2] = scatter->outer;
    clear.bytes = visits * sizeof(int32_t);
    claim.bytes = (scatter->count + scatter->extent) * sizeof(int32_t);
    write.bytes = kiln__scatter_bytes(plan, scatter);
    kiln__scatter_add_values(plan, scatter, &write);
    struct kiln__launch *launches[] = {&clear, &claim, &write};
    for (size_t i = 0; i < 3; i++) {
        kiln__scatter_add_indices(plan, scatter, launches[i]);
        kiln__scatter_add_room(winners, sizeof(int32_t), launches[i]);
        if (launches[i] == &write)
            kiln__scatter_add_result(plan, scatter, &write);
        KILN__LAUNCH_INDICES(launches[i], count, extent);
    }
    KILN__LAUNCH_INDICES(&write, (int64_t)scatter->inner);
    for (size_t i = 0; i < 3; i++)
        kiln__plan_launch(plan, launches[i]);
}

/* ---- marks ---- */

/* Indices that a work-group marks at once; half as many as rounds after which Mesa's llvmpipe
 * leaves loops. */
#define BLOCK 32768
/* And so many for each round of launches that putting them in order takes. */
#define WORTH 3072

/* Of 8 bits, of which rows' numbers and one more have so many. */
static size_t digits_of(const struct kiln__scattering *scatter)
{
    size_t digits = 1;
    while (digits < 4 && scatter->extent >> 8 * digits)
        digits++;
    return digits;
}

static bool marks_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__scattering *scatter = work;
    (void)plan;
    return scatter->count <= BLOCK;
}

static bool marks_suits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__scattering *scatter = work;
    (void)plan;
    return scatter->count <= WORTH * (digits_of(scatter) + 1);
}

static void lower_marks(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__scattering *scatter = work;
    const size_t local = scatter->device->traits->work_group;
    const size_t strips = kiln__divide_up(scatter->inner, local);
    char more[64];
    (void)group;
    snprintf(more, sizeof more, " -DWG=%zu -DBLOCK=%d", local, BLOCK);
    struct kiln__launch launch =
        kiln__scatter_launch(plan, scatter, "scatter_gpu", "scatter", local, more);
    launch.dimensions = 3;
    launch.global[0] = strips * local;
    launch.global[1] = kiln__scatter_classes(scatter, GROUPS, strips * scatter->outer);
    launch.global[2] = scatter->outer;
    kiln__scatter_walk(plan, scatter, &launch);
}

/* ---- sorted ---- */

/* Values in a work-group's local memory (kernels/scatter_sorted.cl), and columns of them at most.
 */
#define HELD 2048
#define LANES 32

static void lower_sorted(struct kiln__plan *plan, uint32_t group, const void *work)
{
    static const char file[] = "scatter_sorted";
    const struct kiln__scattering *scatter = work;
    const size_t local = scatter->device->traits->work_group, key = sizeof(uint64_t);
    const int64_t count = (int64_t)scatter->count, extent = (int64_t)scatter->extent;
    const uint32_t keys = kiln__plan_scratch(plan, scatter->count * key);
    size_t lanes = 1;
    char more[64];
    while (lanes < scatter->inner && lanes < LANES && lanes < local)
        lanes *= 2;
    snprintf(more, sizeof more, " -DWG=%zu -DLANES=%zu -DHELD=%d", local, lanes, HELD);
    struct kiln__launch make =
        kiln__scatter_launch(plan, scatter, file, "scatter_keys", local, more);
    struct kiln__launch fold =
        kiln__scatter_launch(plan, scatter, file, "scatter_fold", lanes, more);
    make.global[0] = items_over(scatter->count, local);
    make.bytes = scatter->count * (sizeof(int32_t) + key);
    kiln__scatter_add_indices(plan, scatter, &make);
    kiln__scatter_add_room(keys, key, &make);
    KILN__LAUNCH_INDICES(&make, count, extent);
    kiln__plan_launch(plan, &make);
    const uint32_t ordered = kiln__sort_keys(plan, group, keys, scatter->count, digits_of(scatter));
    fold.dimensions = 3;
    fold.local[1] = local / lanes;
    fold.global[0] = kiln__divide_up(scatter->inner, lanes) * lanes;
    fold.global[1] = kiln__divide_up(scatter->count, HELD / lanes) * fold.local[1];
    fold.global[2] = scatter->outer;
    fold.bytes = kiln__scatter_bytes(plan, scatter) + scatter->count * key;
    kiln__scatter_add_values(plan, scatter, &fold);
    kiln__scatter_add_room(ordered, key, &fold);
    kiln__scatter_add_result(plan, scatter, &fold);
    KILN__LAUNCH_INDICES(&fold, count, extent, (int64_t)scatter->inner);
    kiln__plan_launch(plan, &fold);
}

/* ---- the rows ---- */

const struct kiln__lowering kiln__scatter_atomics = {.fits = atomics_fits, .lower = lower_atomics};
const struct kiln__lowering kiln__scatter_winners = {
    .fits = winners_fits, .suits = winners_suits, .lower = lower_winners};
const struct kiln__lowering kiln__scatter_marks = {
    .fits = marks_fits, .suits = marks_suits, .lower = lower_marks};
const struct kiln__lowering kiln__scatter_sorted = {.lower = lower_sorted};
