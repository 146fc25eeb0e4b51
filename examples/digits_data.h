/* SPDX-License-Identifier: Apache-2.0 */
/* Real handwritten digits, 8 by 8 grey levels from 0 to 16: see examples/data/README.md. */
#ifndef EXAMPLES_DIGITS_DATA_H
#define EXAMPLES_DIGITS_DATA_H

#include <stddef.h>
#include <stdint.h>

#define DIGIT_SIDE 8
#define DIGIT_PIXELS (DIGIT_SIDE * DIGIT_SIDE)

struct digits {
    size_t count;
    uint8_t *pixels; /* count rows of DIGIT_PIXELS */
    uint8_t *labels; /* count of them, 0 to 9 */
};

/* Read a gzipped CSV file, 64 pixels and a label a line. Returns 0, or -1 after a sentence on
 * standard error. */
int digits_read(const char *path, struct digits *digits);
void digits_free(struct digits *digits);

/* Print some digits side by side as characters, each with a caption. */
void digits_print(const struct digits *digits, const size_t *which, const char *const *captions,
                  size_t count);

#endif
