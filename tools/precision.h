/* SPDX-License-Identifier: Apache-2.0 */
/* How precise a model is on a device: what its weights are stored as, and how products are
 * computed. All zero: as the file and the environment say. */
#ifndef KILN_TOOLS_PRECISION_H
#define KILN_TOOLS_PRECISION_H

#include <kiln/kiln.h>

struct argp_state;

struct precision {
    kiln_type weights;
    kiln_precision products;
};

#define PRECISION_WORDS "f32|tf32|bf16|f16|i8"
#define PRECISION_HELP "Store weights and compute in this type"

/* Of its word; another one is a wrong usage. */
struct precision precision_read(const char *word, struct argp_state *state);

#endif
