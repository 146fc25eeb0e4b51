/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences of errors: the thread's last error of kiln is set, so that there is one place to look.
 */
#ifndef KILN_LM_ERROR_H
#define KILN_LM_ERROR_H

#include <kiln/status.h>

/* Returns `status`. What a file says may be in the sentence: control characters become '?'. */
kiln_status kiln__lm_fail(kiln_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

kiln_status kiln__lm_no_memory(const char *call);

#endif
