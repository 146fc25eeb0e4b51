/* SPDX-License-Identifier: Apache-2.0 */
/* Error sentences of libkiln-lm. */
#include "lm/error.h"

#include <stdarg.h>

#include "util/format.h"

kiln_status kiln__lm_fail(kiln_status status, const char *format, ...)
{
    char sentence[4096];
    va_list arguments;
    va_start(arguments, format);
    kiln__vformat(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    for (char *at = sentence; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    return kiln_error_set(status, sentence);
}

kiln_status kiln__lm_no_memory(const char *call)
{
    return kiln__lm_fail(KILN_OUT_OF_HOST_MEMORY, "%s: no memory", call);
}
