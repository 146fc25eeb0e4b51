/* SPDX-License-Identifier: Apache-2.0 */
/* The counting and failing OpenCL layer as tests use it; its keys stand in tests/layer/layer.h.
 *
 *     if (!layer_available())
 *         cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
 *     for (unsigned long n = 1, hit = 1; hit; n++) {
 *         layer_fail(n, NULL, -5, KILN_LAYER_ONCE, KILN_LAYER_CALL);
 *         ... the work; it must report an error if layer_failures() says so ...
 *         hit = layer_failures();
 *         layer_reset();
 *     }
 *
 * Without the layer counts are UINT64_MAX and nothing fails. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../layer/layer.h"

/* Whether the loader has put the layer into this process. Starts OpenCL if nothing else has. */
bool layer_available(void);

/* One count, such as "clBuildProgram" or "alive.mem"; UINT64_MAX if there is none of that name. */
uint64_t layer_count(const char *key);

/* All counts as text, "" without the layer; lasts until the thread's next call. */
const char *layer_snapshot(void);

/* Counts to zero, nothing fails any more. */
void layer_reset(void);

/* Fail the n-th call from now on, of that name or (NULL) of any; n = 0 for none. False for an
 * unknown name. */
bool layer_fail(unsigned long n, const char *name, int code, enum kiln_layer_mode mode,
                enum kiln_layer_where where);

/* Fail the next call of that name, or (NULL) the next call at all, once. */
bool layer_fail_next(const char *name, int code, enum kiln_layer_where where);

/* Failures injected since the last reset. */
uint64_t layer_failures(void);
