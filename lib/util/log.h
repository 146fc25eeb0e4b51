/* SPDX-License-Identifier: Apache-2.0 */
/* What kiln says on standard error, and only if $KILN_LOG asks for it: error, warn, info or debug.
 * Of another value it says so, once, and takes it for error. */
#pragma once

enum kiln__log_level {
    KILN__LOG_ERROR = 1,
    KILN__LOG_WARN, /* results are right, but something is not used that should be */
    KILN__LOG_INFO,
    KILN__LOG_DEBUG
};

int kiln__log_wants(enum kiln__log_level level);
void kiln__log(enum kiln__log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The arguments are not evaluated unless the level is asked for. */
#define KILN__LOG(level, ...)                                                                      \
    do {                                                                                           \
        if (kiln__log_wants(level))                                                                \
            kiln__log(level, __VA_ARGS__);                                                         \
    } while (0)
