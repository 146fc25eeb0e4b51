/* SPDX-License-Identifier: Apache-2.0 */
/* Groups computed on the machine, each kind element by element. */
#ifndef KILN_TESTS_SUPPORT_INTERPRET_GROUPS_H
#define KILN_TESTS_SUPPORT_INTERPRET_GROUPS_H

#include "interpret_machine.h"

/* Compute what group `number` stores. */
void interpret_group(struct machine *machine, size_t number);

#endif
