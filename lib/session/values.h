/* SPDX-License-Identifier: Apache-2.0 */
/* Who made the first NaN: before a run its operations run one by one on copies of its inputs, and
 * the first that makes a NaN of operands without one, an infinity of finite operands, or that has
 * an index out of range, is named. What does not leave the call that recorded it (as where a call
 * itself chooses another value in its place) is nobody's business. */
#ifndef KILN_SESSION_VALUES_H
#define KILN_SESSION_VALUES_H

#include "session/context.h"

/* If this run of the batch is one to look at. The batch itself must not run after an error, so that
 * its buffers keep what they have. Errors: BAD_VALUE; OUT_OF_HOST_MEMORY, DEVICE_ERROR. */
kiln_status kiln__values_check(const kiln_batch *batch, const char *call,
                               struct kiln__error *error);

#endif
