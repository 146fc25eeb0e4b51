/* SPDX-License-Identifier: Apache-2.0 */
/* Model files made of bytes: the same bytes, the same file. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* What decides, a byte after the other; zeros when there are no more. */
struct fuzz_bytes {
    const uint8_t *data;
    size_t size, at;
};

/* A number below n, which is 1 at least and 65,536 at most. */
unsigned fuzz_take(struct fuzz_bytes *bytes, unsigned n);

/* A file that is whole or nearly so; *size bytes, which the caller frees. NULL without memory. */
uint8_t *fuzz_make_file(struct fuzz_bytes *bytes, size_t *size);
