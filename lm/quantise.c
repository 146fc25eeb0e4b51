/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix of floats on the device becomes one of blocks, where kiln_lm_options::weights asks. */
#include <stdlib.h>

#include "lm/blocks.h"
#include "lm/error.h"
#include "lm/model.h"

enum { BLOCK = 32, PIECE = 1 << 20 };

bool kiln__lm_is_block_type(kiln_type type)
{
    return type == KILN_Q8_0 || type == KILN_Q4_0;
}

/* Rows of f32 to rows of blocks; *fits: blocks of that type can hold them. */
static kiln_status convert_rows(kiln_type type, size_t rows, size_t width, kiln_buffer *from,
                                kiln_buffer *to, bool *fits)
{
    const size_t bytes = width / BLOCK * kiln_type_size(type);
    const size_t most = width < PIECE ? PIECE / width : 1;
    float *floats = malloc(most * width * sizeof *floats);
    void *blocks = malloc(most * bytes);
    kiln_status status = floats && blocks ? KILN_OK : kiln__lm_no_memory("kiln_lm_load");
    for (size_t row = 0; row < rows && !status && *fits; row += most) {
        const size_t count = rows - row < most ? rows - row : most;
        status = kiln_buffer_read(from, row * width * sizeof *floats, floats,
                                  count * width * sizeof *floats);
        *fits =
            !status && !kiln_quantize_blocks(type, count * width, floats, blocks, count * bytes);
        if (*fits)
            status = kiln_buffer_write(to, row * bytes, blocks, count * bytes);
    }
    free(floats);
    free(blocks);
    return status;
}

kiln_status kiln__lm_quantise(kiln_context *context, kiln_type type, size_t rows, size_t width,
                              kiln_buffer **matrix)
{
    kiln_buffer *blocks;
    bool fits = true;
    if (width % BLOCK || !rows)
        return KILN_OK;
    kiln_status status = kiln_buffer_create(context, type, 2, (size_t[]){rows, width}, &blocks);
    if (!status)
        status = convert_rows(type, rows, width, *matrix, blocks, &fits);
    if (status || !fits) {
        kiln_buffer_release(blocks);
        return status;
    }
    kiln_buffer_release(*matrix);
    *matrix = blocks;
    return KILN_OK;
}
