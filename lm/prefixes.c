/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of prompts' beginnings: which there are, and copies between them and a text. */
#include "lm/prefixes.h"

#include <stdlib.h>
#include <string.h>

#include "lm/error.h"

/* ---- which pages ---- */

static struct kiln__lm_page *find_page(const struct kiln__lm_prefixes *prefixes,
                                       const struct kiln__lm_page *before, const int32_t *tokens)
{
    for (size_t i = 0; i < prefixes->caches.slots; i++) {
        struct kiln__lm_page *page = &prefixes->pages[i];
        if (page->is_kept && page->before == before &&
            !memcmp(page->tokens, tokens, sizeof page->tokens))
            return page;
    }
    return NULL;
}

/* A page for something else; NULL: all are of the text at hand, or before others. */
static struct kiln__lm_page *take_page(struct kiln__lm_prefixes *prefixes)
{
    struct kiln__lm_page *oldest = NULL;
    for (size_t i = 0; i < prefixes->caches.slots; i++) {
        struct kiln__lm_page *page = &prefixes->pages[i];
        if (!page->behind && page->used < prefixes->time && (!oldest || page->used < oldest->used))
            oldest = page;
    }
    if (oldest && oldest->before)
        oldest->before->behind--;
    if (oldest)
        *oldest = (struct kiln__lm_page){.is_kept = false};
    return oldest;
}

static void fill_page(struct kiln__lm_page *page, struct kiln__lm_page *before,
                      const int32_t *tokens)
{
    memcpy(page->tokens, tokens, sizeof page->tokens);
    page->is_kept = true;
    page->before = before;
    if (before)
        before->behind++;
}

size_t kiln__lm_prefixes_find(struct kiln__lm_prefixes *prefixes, const int32_t *text, size_t most)
{
    const struct kiln__lm_page *before = NULL;
    size_t kept = 0;
    prefixes->time++;
    for (; most - kept >= KILN__LM_PART; kept += KILN__LM_PART) {
        struct kiln__lm_page *page = find_page(prefixes, before, text + kept);
        if (!page)
            return kept;
        page->used = prefixes->time;
        before = page;
    }
    return kept;
}

/* ---- copies ---- */

/* Caches as matrices of rows, each of a token: a text's, or all pages'. */
struct rows {
    size_t dims[3];
    int axis;     /* along which a part lies */
    size_t count; /* of it, along that axis */
    kiln_tensor start;
    const size_t *own; /* the buffers' four dimensions */
};

/* In one launch. */
static void record_copy(kiln_batch *b, const struct rows *from, kiln_buffer *source,
                        const struct rows *to, kiln_buffer *target)
{
    kiln_tensor part = kiln_reshape(b, kiln_import(b, source), 3, from->dims);
    part = kiln_slice_at(b, part, from->start, from->count, from->axis);
    kiln_tensor all = kiln_reshape(b, kiln_import(b, target), 3, to->dims);
    all = kiln_update_slice(b, all, part, to->start, to->axis);
    kiln_export(b, kiln_reshape(b, all, 4, to->own), target);
}

/* All pages one behind the other, or in an ONNX file's order the heads of each. */
static struct rows rows_of_pages(const kiln_lm *lm, const struct kiln__lm_prefixes *prefixes,
                                 const size_t *own)
{
    const size_t pairs = lm->shape.pairs, pages = prefixes->caches.slots, size = lm->shape.size;
    return lm->genai
               ? (struct rows){{pages * pairs, KILN__LM_PART, size}, .axis = 0, pairs, .own = own}
               : (struct rows){{pairs, pages * KILN__LM_PART, size}, 1, KILN__LM_PART, .own = own};
}

static kiln_status record(const kiln_lm *lm, struct kiln__lm_prefixes *prefixes,
                          const struct kiln__lm_caches *reader, bool keeps, kiln_batch **batch)
{
    kiln_batch *b = *batch = kiln_batch_create(lm->context);
    if (!b)
        return KILN_OUT_OF_HOST_MEMORY;
    size_t own[4], all[4];
    kiln__lm_caches_get_dims(lm, reader, own);
    kiln__lm_caches_get_dims(lm, &prefixes->caches, all);
    struct rows text = {
        {lm->shape.pairs, reader->context, lm->shape.size}, 1, KILN__LM_PART, .own = own};
    struct rows pages = rows_of_pages(lm, prefixes, all);
    text.start = kiln_upload(b, KILN_I32, KILN_SCALAR, &prefixes->place);
    pages.start = kiln_upload(b, KILN_I32, KILN_SCALAR, &prefixes->row);
    for (size_t i = 0; i < lm->shape.layers; i++) {
        kiln_buffer *const texts[] = {reader->keys[i], reader->values[i]};
        kiln_buffer *const kept[] = {prefixes->caches.keys[i], prefixes->caches.values[i]};
        for (size_t k = 0; k < 2; k++)
            if (keeps)
                record_copy(b, &text, texts[k], &pages, kept[k]);
            else
                record_copy(b, &pages, kept[k], &text, texts[k]);
    }
    const kiln_status status = kiln_batch_status(b);
    if (status)
        kiln_error_set(status, kiln_batch_error(b));
    return status;
}

/* Of the text's part at `place`. */
static kiln_status copy(struct kiln__lm_prefixes *prefixes, kiln_batch *batch,
                        const struct kiln__lm_page *page, size_t place)
{
    prefixes->row = (int32_t)((size_t)(page - prefixes->pages) * prefixes->rows);
    prefixes->place = (int32_t)place;
    const kiln_status status = kiln_batch_execute(batch);
    if (status)
        kiln_error_set(status, kiln_batch_error(batch));
    return status;
}

kiln_status kiln__lm_prefixes_bring(struct kiln__lm_prefixes *prefixes, const int32_t *text,
                                    size_t from, size_t to)
{
    const struct kiln__lm_page *page = NULL;
    kiln_status status = KILN_OK;
    for (size_t at = 0; at < to && !status; at += KILN__LM_PART) {
        page = find_page(prefixes, page, text + at);
        if (at >= from)
            status = copy(prefixes, prefixes->bring, page, at);
    }
    return status;
}

kiln_status kiln__lm_prefixes_keep(struct kiln__lm_prefixes *prefixes, const int32_t *text,
                                   size_t length)
{
    struct kiln__lm_page *before = NULL;
    prefixes->time++;
    for (size_t at = 0; length - at >= KILN__LM_PART; at += KILN__LM_PART) {
        struct kiln__lm_page *page = find_page(prefixes, before, text + at);
        if (!page) {
            page = take_page(prefixes);
            if (!page)
                return KILN_OK;
            const kiln_status status = copy(prefixes, prefixes->keep, page, at);
            if (status) { /* which page was written is an operand, too */
                memset(prefixes->pages, 0, prefixes->caches.slots * sizeof *prefixes->pages);
                return status;
            }
            fill_page(page, before, text + at);
        }
        page->used = prefixes->time;
        before = page;
    }
    return KILN_OK;
}

/* ---- beginning and end ---- */

kiln_status kiln__lm_prefixes_make(const char *call, const kiln_lm *lm, kiln_type type,
                                   size_t pages, const struct kiln__lm_caches *reader,
                                   struct kiln__lm_prefixes *prefixes)
{
    if (!pages)
        return KILN_OK;
    prefixes->pages = calloc(pages, sizeof *prefixes->pages);
    if (!prefixes->pages)
        return kiln__lm_no_memory(call);
    prefixes->caches =
        (struct kiln__lm_caches){.type = type, .slots = pages, .context = KILN__LM_PART};
    prefixes->rows = lm->genai ? lm->shape.pairs : KILN__LM_PART;
    kiln_status status = kiln__lm_caches_make(call, lm, &prefixes->caches);
    if (!status)
        status = record(lm, prefixes, reader, true, &prefixes->keep);
    return status ? status : record(lm, prefixes, reader, false, &prefixes->bring);
}

void kiln__lm_prefixes_free(const kiln_lm *lm, struct kiln__lm_prefixes *prefixes)
{
    kiln_batch_release(prefixes->keep);
    kiln_batch_release(prefixes->bring);
    kiln__lm_caches_free(lm, &prefixes->caches);
    free(prefixes->pages);
}
