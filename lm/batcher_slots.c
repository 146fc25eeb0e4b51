/* SPDX-License-Identifier: Apache-2.0 */
/* How many texts a batcher has, and whether they share runs. */
#include "lm/batcher.h"
#include "lm/error.h"

/* Whether an error is what the model has recorded so, and not of what was there to record it
 * with: memory, the device, the file. */
static bool is_of_the_model(kiln_status status)
{
    return status == KILN_SHAPE_MISMATCH || status == KILN_TYPE_MISMATCH ||
           status == KILN_UNSUPPORTED || status == KILN_INVALID_ARGUMENT;
}

/* An ONNX file may have it that there is one text: then each goes on by itself. That shows when a
 * step of two is recorded, with caches of a few tokens. */
static kiln_status find_alone(kiln_lm_batcher *batcher)
{
    enum { TOKENS = 2 };
    static const char call[] = "kiln_lm_batcher_create";
    kiln_lm *lm = batcher->lm;
    struct kiln__lm_caches *caches = &batcher->caches;
    if (!lm->genai)
        return KILN_OK;
    *caches = (struct kiln__lm_caches){
        .type = kiln__lm_usual_cache(lm), .slots = KILN__LM_FEWEST_SLOTS, .context = TOKENS};
    kiln_batch *step = NULL;
    kiln_status status = kiln__lm_caches_make(call, lm, caches);
    if (!status) {
        status = kiln__lm_record_lanes(batcher, KILN__LM_FEWEST_SLOTS, &step);
        batcher->alone = is_of_the_model(status);
    }
    kiln_batch_release(step);
    kiln__lm_caches_free(lm, caches);
    *caches = (struct kiln__lm_caches){0};
    return batcher->alone ? KILN_OK : status;
}

static kiln_status refuse_limit(const kiln_lm_batcher *batcher, double needed, uint64_t limit)
{
    return kiln__lm_fail(KILN_OUT_OF_DEVICE_MEMORY,
                         "kiln_lm_batcher_create: %s of %zu tokens%s %.0f bytes for keys and "
                         "values, and options->memory_limit is %.0f; a smaller context needs less",
                         batcher->alone ? "a text" : "two texts", batcher->caches.context,
                         batcher->alone ? " needs" : " and a prompt's need", needed, (double)limit);
}

/* Of a layer's keys, where all layers' keys and values are so many bytes. */
static double count_elements(const kiln_lm *lm, kiln_type type, double bytes)
{
    return bytes / 2 / (double)lm->shape.layers / (double)kiln_type_size(type);
}

/* As many slots as the limit holds, beside the one of prompts where texts share runs. */
static kiln_status choose_slots(kiln_lm_batcher *batcher, const kiln_lm_batcher_options *own)
{
    const kiln_lm *lm = batcher->lm;
    struct kiln__lm_caches *caches = &batcher->caches;
    caches->context = own->context ? own->context : kiln__lm_usual_context(lm);
    caches->type = own->cache ? own->cache : kiln__lm_usual_cache(lm);
    caches->slots = own->slots;
    const double slot = kiln__lm_slot_bytes(lm, caches->type, caches->context);
    const double room = (double)own->memory_limit / slot - !batcher->alone;
    const int fewest = batcher->alone ? 1 : KILN__LM_FEWEST_SLOTS;
    if (own->memory_limit && room < fewest)
        return refuse_limit(batcher, (fewest + !batcher->alone) * slot, own->memory_limit);
    if (own->memory_limit && room < (double)caches->slots)
        caches->slots = (size_t)room;
    const size_t together = batcher->alone ? 1 : caches->slots;
    const double elements = count_elements(lm, caches->type, (double)together * slot);
    if (elements > INT32_MAX)
        return kiln__lm_fail(
            KILN_TOO_LARGE,
            "kiln_lm_batcher_create: %zu texts of %zu tokens have %.0f elements of "
            "keys in a layer; 2147483647 are the most",
            together, caches->context, elements);
    return KILN_OK;
}

/* What the limit leaves beside slots, and as many as have a number of rows in 32 bits. */
size_t kiln__lm_batcher_count_pages(const kiln_lm_batcher *batcher,
                                    const kiln_lm_batcher_options *options)
{
    const kiln_lm *lm = batcher->lm;
    const struct kiln__lm_caches *caches = &batcher->caches;
    const size_t tokens = options->prefix_tokens ? options->prefix_tokens : caches->context;
    const double page = kiln__lm_slot_bytes(lm, caches->type, KILN__LM_PART);
    const double elements = count_elements(lm, caches->type, page);
    const double slots =
        ((double)caches->slots + 1) * kiln__lm_slot_bytes(lm, caches->type, caches->context);
    const size_t parts = tokens / KILN__LM_PART;
    double most = (double)parts;
    if (batcher->alone || caches->context <= KILN__LM_PART)
        return 0;
    if (most * elements > INT32_MAX)
        most = INT32_MAX / elements;
    if (options->memory_limit && most * page > (double)options->memory_limit - slots)
        most = ((double)options->memory_limit - slots) / page;
    return (size_t)most;
}

kiln_status kiln__lm_batcher_choose_slots(kiln_lm_batcher *batcher,
                                          const kiln_lm_batcher_options *options)
{
    const kiln_status status = find_alone(batcher);
    return status ? status : choose_slots(batcher, options);
}
