/* SPDX-License-Identifier: Apache-2.0 */
#include "util/verify.h"

#ifdef KILN_DEBUG
bool kiln__verifies = true;
#else
bool kiln__verifies = false;
#endif
