/* SPDX-License-Identifier: Apache-2.0 */
/* Options and environment variables whose values are words out of a few, or files. */
#ifndef KILN_SESSION_WORDS_H
#define KILN_SESSION_WORDS_H

#include <kiln/context.h>

/* Say which option or variable has a value that nobody knows, or names a file that cannot be
 * written, on behalf of `call`. Errors: INVALID_ARGUMENT, IO_ERROR. */
kiln_status kiln__words_check(const char *call, const kiln_context_options *options);

#endif
