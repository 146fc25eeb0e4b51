/* SPDX-License-Identifier: Apache-2.0 */
#include <kiln/cache.h>

#include "cache/catalog.h"
#include "cache/store.h"
#include "util/error.h"

static kiln_status is_null(const char *function, const char *argument)
{
    return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is NULL", function, argument);
}

kiln_status kiln_cache_list(const char *folder, kiln_cache_visitor visitor, void *user)
{
    if (!visitor)
        return is_null("kiln_cache_list", "visitor");
    return kiln__catalog_list(folder, visitor, user);
}

kiln_status kiln_cache_get_stats(const char *folder, kiln_cache_stats *stats)
{
    if (!stats)
        return is_null("kiln_cache_get_stats", "stats");
    return kiln__catalog_stats(folder, stats);
}

kiln_status kiln_cache_prune(const char *folder, uint64_t limit, uint64_t *removed)
{
    uint64_t ignored;
    return kiln__catalog_prune(folder, limit, removed ? removed : &ignored);
}

kiln_status kiln_cache_export(const char *folder, const char *file, uint64_t *count)
{
    uint64_t ignored;
    if (!file)
        return is_null("kiln_cache_export", "file");
    return kiln__catalog_export(folder, file, count ? count : &ignored);
}

kiln_status kiln_cache_import(const char *folder, const char *file, uint64_t *count)
{
    uint64_t ignored;
    if (!file)
        return is_null("kiln_cache_import", "file");
    return kiln__catalog_import(folder, file, KILN__STORE_LIMIT, count ? count : &ignored);
}
