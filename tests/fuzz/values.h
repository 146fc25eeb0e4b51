/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes become arguments: sane ones mostly, so that calls get somewhere, and hostile ones. What the
 * headers leave undefined is never made: pointers that dangle, arrays shorter than their count. */
#pragma once

#include <stdbool.h>

#include <kiln/opencl.h>

/* All arrays have so many elements; larger counts come with NULL. */
#define SHORTEST 16

/* All memory that calls read and write has so many bytes behind every offset that is used. */
#define ROOM ((size_t)1 << 16)

typedef void (*end_function)(void *user);

enum kind {
    KIND_END,
#define KIND(name, type) KIND_##name,
#include "fuzz/values.def"
#undef KIND
};

union value {
#define KIND(name, type) type name;
#include "fuzz/values.def"
#undef KIND
};

void bytes_begin(const uint8_t *bytes, size_t size);
bool bytes_left(void);
uint8_t byte(void);

/* Forget what the arguments of the call before depended on each other by. */
void values_begin(void);

/* The next argument. */
union value value_of(enum kind kind);
