/* SPDX-License-Identifier: Apache-2.0 */
/* Operands in lines along k, for kernels that read no others (kernels/matmul_gpu_pack.cl): of
 * weights once, of others in each run. */
#include <stdio.h>

#include "lower/matmul.h"

#define SQUARE 64 /* of an operand that a work-group packs */
#define PACKERS 256

struct kiln__matrix kiln__product_pack(struct kiln__plan *plan, uint32_t group,
                                       const struct kiln__product *product,
                                       const struct kiln__matrix *operand, int bytes, int parts)
{
    const bool second = operand->operand;
    const int64_t lines = second ? product->n : product->m;
    const int64_t row = second ? operand->column : operand->row;
    const int64_t column = second ? operand->row : operand->column;
    const int64_t chunk = 16 / bytes, lead = kiln__div_up(product->k, chunk) * chunk;
    const int64_t count = operand->batch ? product->batch : 1;
    struct kiln__matrix packed = *operand;
    packed.slot = kiln__plan_scratch(plan, (size_t)(count * parts * lines * lead) * (size_t)bytes);
    packed.offset = 0;
    packed.item = (uint8_t)bytes;
    packed.batch = operand->batch ? parts * lines * lead : 0;
    packed.row = second ? 1 : lead;
    packed.column = second ? lead : 1;
    struct kiln__launch launch = kiln__product_launch(group, "matmul_gpu_pack", "matmul_gpu_pack");
    const bool aligned = kiln__matrix_by(operand, 4) && (column == 1 ? product->k : lines) % 4 == 0;
    struct kiln__extras extras = {
        .a = bytes == 2 ? NULL : operand, .vector = 4, .aligned = aligned};
    snprintf(launch.options, sizeof launch.options, "-DBYTES=%d -DPARTS=%d -DALIGNED=%d", bytes,
             parts, aligned);
    kiln__product_range(&launch, kiln__div_up(product->k, SQUARE) * PACKERS,
                        kiln__div_up(lines, SQUARE), count);
    launch.local[0] = PACKERS;
    kiln__launch_memory(&launch, operand->slot);
    kiln__launch_memory(&launch, packed.slot);
    kiln__launch_offset(&launch, packed.slot, 0, packed.item);
    KILN__LAUNCH_INDICES(&launch, lines, product->k, lead);
    kiln__launch_offset(&launch, operand->slot, operand->offset, operand->item);
    KILN__LAUNCH_INDICES(&launch, row, column, operand->batch);
    kiln__plan_add_product_launch(plan, &extras, &launch);
    kiln__plan_prepack(plan, packed.slot, operand->operand);
    return packed;
}
