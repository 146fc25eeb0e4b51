/* SPDX-License-Identifier: Apache-2.0 */
/* What the last work-groups of a launch do for launches behind it (lib/codegen/last_groups.h), for
 * files whose work-items all reach the kernel's end: BEHIND_MEMORY at its begin, BEHIND at its end,
 * once its results are stored. By default nothing. BEHIND_PARAMETERS starts with a comma. */
#ifndef BEHIND
#define BEHIND_PARAMETERS
#define BEHIND_MEMORY
#define BEHIND
#endif
