/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing a token by logits on the host. */
#ifndef KILN_LM_SAMPLE_H
#define KILN_LM_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

/* A token and its probability. */
struct kiln__candidate {
    double probability;
    int32_t token;
};

struct kiln__sampling {
    double temperature;
    size_t top_k;
    double top_p, min_p;
};

/* The token; -1: a logit is NaN. `drawn` is from [0, 1); `room` has `count` places. */
int32_t kiln__sample(const struct kiln__sampling *sampling, const float *logits, size_t count,
                     double drawn, struct kiln__candidate *room);

/* Number `place` of a seed's, from [0, 1): each is computed from both alone. */
double kiln__draw(uint64_t seed, uint64_t place);

#endif
