/* SPDX-License-Identifier: Apache-2.0 */
/* How GGUF files store weights: numbers, or blocks of quantised ones. */
#ifndef KILN_LM_BLOCKS_H
#define KILN_LM_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include <kiln/types.h>

enum { KILN__BLOCK_MOST = 256 }; /* weights of a block */

struct kiln__block_format {
    const char *name;
    uint32_t number;         /* in files */
    uint32_t weights, bytes; /* of a block */
    void (*widen)(const uint8_t *block, float *weights);
};

/* NULL: nobody knows it. */
const struct kiln__block_format *kiln__block_format(uint32_t number);

/* Format number i of the table, NULL behind the last. */
const struct kiln__block_format *kiln__block_format_at(size_t i);

/* Store f32 numbers as f32, f16 or bf16, rounded to nearest. `to` is aligned to its elements. */
void kiln__lm_store(const float *from, size_t count, kiln_type type, void *to);

#endif
