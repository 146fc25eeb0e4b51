/* SPDX-License-Identifier: Apache-2.0 */
/* Versioned public structures of kiln/lm.h. */
#include "lm/structure.h"

#include <string.h>

#include "lm/error.h"

enum { LARGEST = 4096 };

kiln_status kiln__lm_read_options(const char *call, const char *initialiser, const void *given,
                                  void *own, size_t own_size)
{
    if (!given)
        return KILN_OK;
    size_t size;
    memcpy(&size, given, sizeof size);
    const size_t common = size < own_size ? size : own_size;
    if (size < sizeof size || size > LARGEST || size % _Alignof(size_t))
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: options->size is %zu; start from %s", call,
                             size, initialiser);
    for (size_t i = common; i < size; i++)
        if (((const char *)given)[i])
            return kiln__lm_fail(KILN_UNSUPPORTED,
                                 "%s: options has fields that this version of kiln has not, and "
                                 "they are not 0",
                                 call);
    memcpy(own, given, common);
    return KILN_OK;
}

void kiln__lm_structure_fill(void *to, size_t size, const void *own, size_t own_size)
{
    const size_t common = size < own_size ? size : own_size;
    memcpy(to, own, common);
    memset((char *)to + common, 0, size - common);
}

void kiln__lm_options_fill(void *to, size_t size, const void *own, size_t own_size)
{
    if (!to || size < sizeof size)
        return;
    kiln__lm_structure_fill(to, size, own, own_size);
    memcpy(to, &size, sizeof size);
}
