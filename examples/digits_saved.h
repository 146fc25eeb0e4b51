/* SPDX-License-Identifier: Apache-2.0 */
/* Training in a file: to end it and to go on, as if it had not ended. */
#ifndef EXAMPLES_DIGITS_SAVED_H
#define EXAMPLES_DIGITS_SAVED_H

#include <kiln/kiln.h>

/* What training is besides its parameters and its optimiser. */
struct progress {
    int32_t *epochs;  /* that are over */
    uint64_t *random; /* the state of the random numbers */
    int32_t *order;   /* of the rows, so many */
    size_t rows;
    float *losses; /* of each epoch, so many places */
    size_t places;
};

/* All of it in a file, and back. Errors: those of kiln_save() and kiln_load_into(). */
kiln_status digits_save(const char *path, kiln_context *context, size_t n,
                        kiln_buffer *const *parameters, const kiln_optimizer *optimizer,
                        const struct progress *progress);
kiln_status digits_resume(const char *path, kiln_context *context, size_t n,
                          kiln_buffer *const *parameters, const kiln_optimizer *optimizer,
                          const struct progress *progress);

#endif
