/* SPDX-License-Identifier: Apache-2.0 */
/* What of this machine shapes a program's binary besides what the device says of itself. */
#pragma once

#include <stdbool.h>

#include "util/text.h"

/* Append lines that differ wherever a driver may compile the same source to something else: the
 * build of its libraries, its settings in the environment and, if `cpu`, the processor. */
void kiln__host_describe(bool cpu, struct kiln__text *text);
