/* SPDX-License-Identifier: Apache-2.0 */
/* The first error of something, in words. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <kiln/status.h>

struct kiln__error {
    kiln_status status; /* KILN_OK: text is empty */
    char text[480];
};

/* Record an error unless one is recorded already, and make it this thread's last error.
 * Returns the status of the error that stands. `error` may be NULL: only the thread's is set. */
kiln_status kiln__fail(struct kiln__error *error, kiln_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "CALL: NAME is NULL" of the first that was not given; `names` are "first, second". KILN_OK: all
 * were. */
kiln_status kiln__check_not_null(struct kiln__error *error, const char *call, const char *names,
                                 const bool *given, size_t count);

/* Of pointers, in a function that returns a status. */
#define KILN__RETURN_IF_NULL(error, call, ...)                                                     \
    do {                                                                                           \
        const bool kiln__given[] = {__VA_ARGS__};                                                  \
        kiln_status kiln__answer = kiln__check_not_null(error, call, #__VA_ARGS__, kiln__given,    \
                                                        sizeof kiln__given / sizeof *kiln__given); \
        if (kiln__answer)                                                                          \
            return kiln__answer;                                                                   \
    } while (0)

/* Who is speaking: a call of a recording, of which sentences say the number. */
struct kiln__speaker {
    const char *call;
    size_t number; /* from 1 */
    /* Append more that is known, to text of so many bytes; may be NULL. */
    void (*add)(const struct kiln__speaker *speaker, char *text, size_t size);
    const void *user;
};

/* Errors of this thread are this one's from now on, until NULL: "kiln_add, call 57: ...", also
 * where another call on its behalf refuses. */
void kiln__error_speaker(const struct kiln__speaker *who);

/* Put what was being done before the sentence of what failed in it: the name of the call that the
 * caller made, or words as "computing layer3.q". */
void kiln__error_within(struct kiln__error *error, const char *doing);
