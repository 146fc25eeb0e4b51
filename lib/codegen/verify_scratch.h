/* SPDX-License-Identifier: Apache-2.0 */
/* How large working memory has to be, as a kernel's text and its launch say. */
#pragma once

#include "codegen/parameters.h"

/* Bytes of working memory that a kernel's parameter of this number needs at least, by the type that
 * its text declares and the sizes that the launch tells it; 0 where nothing is known of it. */
size_t kiln__scratch_least(const struct kiln__launch *launch, const struct kiln__group *group,
                           const struct kiln__parameters *parameters, size_t number);
