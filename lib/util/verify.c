/* SPDX-License-Identifier: Apache-2.0 */
/* The switch that tests set in order to have verifiers run in every build. */
#include "util/verify.h"

#ifdef KILN_DEBUG
bool kiln__verifies = true;
#else
bool kiln__verifies = false;
#endif
