/* SPDX-License-Identifier: Apache-2.0 */
/* The tiny model, loaded for each test of a suite. */
#pragma once

#include <kiln/lm.h>

#include "../support/device.h"

extern kiln_lm *lm;

void open_model(void);
void close_model(void);

/* The context has planned and compiled nothing since then. */
void expect_nothing_made(const kiln_context_stats *since);
