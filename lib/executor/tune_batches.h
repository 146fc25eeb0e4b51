/* SPDX-License-Identifier: Apache-2.0 */
/* Times of a model's batches, as a text and as numbers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "util/text.h"

/* "2 rows 1.25e-05 s, 4 rows 1.5e-05 s": in this order, each size that there is. */
void kiln__tune_write(const size_t *rows, const double *seconds, size_t count,
                      struct kiln__text *text);

/* False: the text is of other sizes, or of no sense. */
bool kiln__tune_read(const char *text, const size_t *rows, size_t count, double *seconds);

/* Which of the sizes to take: see kiln_model_choose_batch(). `most`: seconds. */
size_t kiln__tune_choose_batch(const size_t *rows, const double *seconds, size_t count,
                               double most);
