/* SPDX-License-Identifier: Apache-2.0 */
/* Whether what every stage leaves is verified before the next one takes it: always in debug builds;
 * tests ask for it in all others. */
#pragma once

#include <stdbool.h>

/* Set before there are threads. */
extern bool kiln__verifies;

/* Room for a verifier's sentence. */
#define KILN__WRONG 200
