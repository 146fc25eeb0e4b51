/* SPDX-License-Identifier: Apache-2.0 */
/* Public functions on the kernel cache (kiln/cache.h), and notes that a program keeps in it:
 * argument checks, then store/catalog.c. */
#include <kiln/cache.h>

#include <string.h>

#include "programs/device_note.h"
#include "session/context.h"
#include "store/catalog.h"
#include "store/store.h"
#include "util/error.h"
#include "util/structure.h"

kiln_status kiln_cache_list(const char *folder, kiln_cache_visitor visitor, void *user)
{
    KILN__RETURN_IF_NULL(NULL, __func__, visitor);
    return kiln__catalog_list(folder, visitor, user);
}

kiln_status(kiln_cache_get_stats)(const char *folder, kiln_cache_stats *stats, size_t size)
{
    kiln_cache_stats own;
    KILN__RETURN_IF_NULL(NULL, __func__, stats);
    kiln_status status = kiln__catalog_stats(folder, &own);
    kiln__structure_fill(stats, size, &own, sizeof own);
    return status;
}

kiln_status kiln_cache_prune(const char *folder, uint64_t limit, uint64_t *removed)
{
    uint64_t ignored;
    return kiln__catalog_prune(folder, limit, removed ? removed : &ignored);
}

kiln_status kiln_cache_export(const char *folder, const char *file, uint64_t *count)
{
    uint64_t ignored;
    KILN__RETURN_IF_NULL(NULL, __func__, file);
    return kiln__catalog_export(folder, file, NULL, count ? count : &ignored);
}

kiln_status kiln_cache_export_used(const char *folder, const char *file, const char *used,
                                   uint64_t *count)
{
    uint64_t ignored;
    KILN__RETURN_IF_NULL(NULL, __func__, file, used);
    return kiln__catalog_export(folder, file, used, count ? count : &ignored);
}

kiln_status kiln_cache_import(const char *folder, const char *file, uint64_t *count)
{
    uint64_t ignored;
    KILN__RETURN_IF_NULL(NULL, __func__, file);
    return kiln__catalog_import(folder, file, KILN__STORE_LIMIT, count ? count : &ignored);
}

/* ---- notes ---- */

kiln_status kiln_context_remember(kiln_context *context, const char *subject, const char *text)
{
    KILN__RETURN_IF_NULL(NULL, __func__, context, subject, text);
    if (strlen(text) > KILN__LONGEST_NOTE)
        return kiln__fail(NULL, KILN_TOO_LARGE, "%s: a text of %zu bytes, and %d are the most",
                          __func__, strlen(text), KILN__LONGEST_NOTE);
    kiln_status status = kiln__runtime_check_process(&context->runtime, NULL);
    if (!status)
        kiln__device_note_put(context->runtime.programs, subject, text);
    return status;
}

kiln_status kiln_context_recall(kiln_context *context, const char *subject, char **text)
{
    if (text)
        *text = NULL;
    KILN__RETURN_IF_NULL(NULL, __func__, context, subject, text);
    kiln_status status = kiln__runtime_check_process(&context->runtime, NULL);
    if (status)
        return status;
    *text = malloc(KILN__LONGEST_NOTE + 1);
    if (!*text)
        return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", __func__);
    if (!kiln__device_note_get(context->runtime.programs, subject, *text, KILN__LONGEST_NOTE + 1)) {
        free(*text);
        *text = NULL;
    }
    return KILN_OK;
}
