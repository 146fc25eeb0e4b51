/* SPDX-License-Identifier: Apache-2.0 */
/* Groups computed on the machine, each kind element by element. */
#pragma once

#include "interpret_machine.h"

/* Compute what group `number` stores. */
void interpret_group(struct machine *machine, size_t number);
