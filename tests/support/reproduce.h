/* SPDX-License-Identifier: Apache-2.0 */
/* A batch as a C program that records, runs and validates it through the public interface alone,
 * and a smaller batch that still goes wrong. */
#pragma once

#include <stdbool.h>

#include "record/batch.h"
#include "reference/reference.h"

/* Append the program: it prints what validation says, and returns whether there was anything. */
void reproduce_print(const kiln_batch *batch, struct kiln__text *text);

/* What is in an input now, which the caller frees, and what each node then is. */
void *reproduce_content(const kiln_batch *batch, const struct kiln__binding *binding);
struct kiln__reference reproduce_values(const kiln_batch *batch);

/* Whether a run of the batch, with its inputs as they are now, is what it should be. */
typedef bool reproduce_judge(kiln_batch *batch);

/* A copy of `batch` without what it does not take to fail: one result, fewer operations, computed
 * values as inputs. The copy's memory lives until it is released by reproduce_release(). */
kiln_batch *reproduce_shrink(const kiln_batch *batch, kiln_context *context,
                             reproduce_judge *is_right);
void reproduce_release(kiln_batch *batch);

/* By validation: the batch's context has it switched on. */
bool reproduce_validates(kiln_batch *batch);
