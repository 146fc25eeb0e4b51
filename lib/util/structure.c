/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of versioned public structures: missing fields become 0, unknown fields that are not 0 are
 * refused. */
#include "util/structure.h"

#include <stdbool.h>
#include <string.h>

/* No structure is larger: what is says something else. */
enum { LARGEST = 4096 };

static bool is_size(size_t size)
{
    return size >= sizeof(size_t) && size <= LARGEST && size % _Alignof(size_t) == 0;
}

static bool is_zero(const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i])
            return false;
    return true;
}

kiln_status kiln__structure_take(struct kiln__error *error, const struct kiln__given *given,
                                 void *own, size_t own_size)
{
    const size_t common = given->size < own_size ? given->size : own_size;
    if (!is_size(given->size))
        return kiln__fail(error, KILN_INVALID_ARGUMENT, "%s: %s->size is %zu; start from %s",
                          given->call, given->name, given->size, given->initialiser);
    if (!is_zero((const char *)given->at + common, given->size - common))
        return kiln__fail(error, KILN_UNSUPPORTED,
                          "%s: %s has fields that this version of kiln has not, and they are not 0",
                          given->call, given->name);
    memset(own, 0, own_size);
    memcpy(own, given->at, common);
    return KILN_OK;
}

void kiln__structure_fill(void *to, size_t size, const void *own, size_t own_size)
{
    const size_t common = size < own_size ? size : own_size;
    memcpy(to, own, common);
    memset((char *)to + common, 0, size - common);
}
