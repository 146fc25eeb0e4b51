/* SPDX-License-Identifier: Apache-2.0 */
/* The tiny model, loaded for each test of a suite. */
#pragma once

#include <kiln/kiln.h>
#include <kiln/lm.h>

extern kiln_context *context;
extern kiln_lm *lm;

void open_model(void);
void close_model(void);

/* The context has planned and compiled nothing since then. */
void expect_nothing_made(const kiln_context_stats *since);
