/* SPDX-License-Identifier: Apache-2.0 */
/* What rewriting and fusion are told about the kernels that a graph will be lowered to: answers of
 * the catalogue, without the device that they are for. */
#pragma once

#include <stdbool.h>

struct kiln__kernel_support {
    /* Large products, too, read narrow operands as they lie in memory, and such results are stored
     * narrow at once. */
    bool narrow_operands;
    /* To read a part between padding costs no more than to read it where it lies by itself. */
    bool reads_padded;
    /* Whether a product's kernel accumulates integers exactly, at any depth; NULL: none does. Asked
     * where a graph has such a product: a kernel may have to pass its self-test first. */
    bool (*exact_integers)(const struct kiln__kernel_support *support);
};
