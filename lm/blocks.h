/* SPDX-License-Identifier: Apache-2.0 */
/* How GGUF files store weights: numbers, or blocks of quantised ones, which are types of kiln. */
#ifndef KILN_LM_BLOCKS_H
#define KILN_LM_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#include <kiln/types.h>

struct kiln__block_format {
    uint32_t number;         /* in files */
    uint32_t weights, bytes; /* of a block */
    kiln_type type;
};

/* NULL: nobody knows it. */
const struct kiln__block_format *kiln__block_format(uint32_t number);

/* That of a type of single numbers; NULL: files have no such. */
const struct kiln__block_format *kiln__block_format_of(kiln_type type);

#endif
