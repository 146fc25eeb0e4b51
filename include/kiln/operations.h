/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Elementwise operations that are not one row of a table. Each records one or more operations and
 *  returns the result's tensor, the empty tensor after an error.
 *
 *  For all of them: the result belongs to the batch; one thread at a time; errors are sticky:
 *  INVALID_HANDLE, INVALID_ARGUMENT, SHAPE_MISMATCH, TYPE_MISMATCH, TOO_LARGE,
 *  OUT_OF_HOST_MEMORY. */
#ifndef KILN_OPERATIONS_H
#define KILN_OPERATIONS_H

#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** factor * x, of the type that x is computed in and of its shape. */
KILN_API kiln_tensor kiln_scale(kiln_batch *batch, kiln_tensor x, double factor);

/** The elements of x as another type: to a floating type rounded to nearest, of two as near to the
 *  even one; of a floating type to an integer one towards zero, with numbers beyond its range as
 * its ends and NaN as 0; of an integer type to another one its lower bits, so that it wraps around;
 * to bool whether it is not 0, as NaN is not. */
KILN_API kiln_tensor kiln_cast(kiln_batch *batch, kiln_tensor x, kiln_type type);

#ifdef __cplusplus
}
#endif

#endif
