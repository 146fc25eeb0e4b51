/* SPDX-License-Identifier: Apache-2.0 */
/* Products by CLBlast, where the library was built with it. */
#include "fuse/limits.h"
#include "lower/matmul.h"

static bool clblast_fits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
#ifdef HAVE_CLBLAST
    const struct kiln__matrix *a = &product->a;
    bool overlaps = a->column == 1 && a->row < product->k && product->m > 1;
    return product->k > 0 && !overlaps && !plan->options.no_clblast;
#else
    (void)plan, (void)product;
    return false;
#endif
}

/* It compiles its programs anew in every process, which only large products on a GPU repay. */
static bool clblast_suits(const struct kiln__plan *plan, const void *work)
{
    const struct kiln__product *product = work;
    (void)plan;
    return product->device->info.type == KILN_DEVICE_GPU && product->device->traits->clblast &&
           product->m >= KILN__LIBRARY_EDGE && product->n >= KILN__LIBRARY_EDGE &&
           product->k >= KILN__LIBRARY_DEPTH;
}

static void lower_clblast(struct kiln__plan *plan, uint32_t group, const void *work)
{
    const struct kiln__product *product = work;
    const struct kiln__matrix *matrices[3] = {&product->a, &product->b, &product->c};
    struct kiln__launch launch = kiln__product_launch(group, "", "CLBlastSgemm");
    launch.source = KILN__SOURCE_CLBLAST;
    for (int i = 0; i < 3; i++) {
        kiln__launch_memory(&launch, matrices[i]->slot);
        kiln__launch_offset(&launch, matrices[i]->slot, matrices[i]->offset, sizeof(float));
    }
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, product->k, product->batch,
                         kiln__matrix_lead(&product->a), kiln__matrix_lead(&product->b),
                         product->c.row, product->a.column != 1, product->b.column != 1,
                         product->a.batch, product->b.batch, product->c.batch);
    kiln__plan_launch(plan, &launch);
}

const struct kiln__lowering kiln__matmul_clblast = {
    .fits = clblast_fits, .suits = clblast_suits, .lower = lower_clblast};
