/* SPDX-License-Identifier: Apache-2.0 */
/* How long the device takes for products whose operands are stored in different types. */
#pragma once

#include <stddef.h>

#include <kiln/status.h>
#include <kiln/types.h>

#define KILN__MEASURED_TYPES 8

struct kiln__measured {
    size_t count;
    /* What operands were stored as; f32 comes first. */
    kiln_type types[KILN__MEASURED_TYPES];
    /* The time with it as a share of that with f32, the geometric mean over the products: at most
     * this in three of four rounds. INFINITY: a result was wrong. */
    double shares[KILN__MEASURED_TYPES];
    size_t side; /* of the square matrices of weights */
};

/* Measure every type that is computed in f32, in the context's stream. Batches of other threads
 * that run meanwhile disturb it. Errors: those of kiln_batch_execute(), also WRONG_RESULT if a
 * product of f32 is wrong; the sentence is kiln_last_error(). */
kiln_status kiln__measure_products(kiln_context *context, struct kiln__measured *measured);
