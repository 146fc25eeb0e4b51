/* SPDX-License-Identifier: Apache-2.0 */
/* Structures of kiln/lm.h in the form that a caller was built with: lib/util/structure.h for this
 * library, which has only what is public. */
#ifndef KILN_LM_STRUCTURE_H
#define KILN_LM_STRUCTURE_H

#include <stddef.h>

#include <kiln/status.h>

/* What a caller says, NULL perhaps, over the defaults in *own; both begin with their size. Errors:
 * INVALID_ARGUMENT, UNSUPPORTED. */
kiln_status kiln__lm_read_options(const char *call, const char *initialiser, const void *given,
                                  void *own, size_t own_size);

/* Fill the caller's form of ours: what ours lacks is 0. */
void kiln__lm_structure_fill(void *to, size_t size, const void *own, size_t own_size);

/* The same of options, which begin with their size. */
void kiln__lm_options_fill(void *to, size_t size, const void *own, size_t own_size);

#endif
