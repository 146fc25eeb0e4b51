/* SPDX-License-Identifier: Apache-2.0 */
#include <kiln/cache.h>

#include "cache/catalog.h"
#include "cache/store.h"
#include "util/error.h"

static kiln_status is_null(const char *function, const char *argument)
{
    return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

kiln_status kiln_cache_list(const char *directory, kiln_cache_visitor visitor, void *user)
{
    if (!visitor)
        return is_null("kiln_cache_list", "visitor");
    return kiln__catalog_list(directory, visitor, user);
}

kiln_status kiln_cache_get_stats(const char *directory, kiln_cache_stats *stats)
{
    if (!stats)
        return is_null("kiln_cache_get_stats", "stats");
    return kiln__catalog_stats(directory, stats);
}

kiln_status kiln_cache_prune(const char *directory, uint64_t limit, uint64_t *removed)
{
    uint64_t ignored;
    return kiln__catalog_prune(directory, limit, removed ? removed : &ignored);
}

kiln_status kiln_cache_export(const char *directory, const char *file, uint64_t *count)
{
    uint64_t ignored;
    if (!file)
        return is_null("kiln_cache_export", "file");
    return kiln__catalog_export(directory, file, count ? count : &ignored);
}

kiln_status kiln_cache_import(const char *directory, const char *file, uint64_t *count)
{
    uint64_t ignored;
    if (!file)
        return is_null("kiln_cache_import", "file");
    return kiln__catalog_import(directory, file, KILN__STORE_LIMIT, count ? count : &ignored);
}
