/* SPDX-License-Identifier: Apache-2.0 */
/* What prompts began with, kept for later ones: pages with the keys and values of so many tokens,
 * each behind another page or at the beginning of a text. Where a page is needed and all are
 * taken, the one that was not used for the longest goes, of those that no page is behind. */
#ifndef KILN_LM_PREFIXES_H
#define KILN_LM_PREFIXES_H

#include "lm/caches.h"

enum { KILN__LM_PART = 128 }; /* tokens of a page, and of a prompt in a step */

struct kiln__lm_page {
    int32_t tokens[KILN__LM_PART];
    struct kiln__lm_page *before; /* NULL: a text begins with it */
    size_t behind;                /* pages that go on from it */
    uint64_t used;                /* when; 0: never */
    bool is_kept;
};

/* Of one thread at a time. */
struct kiln__lm_prefixes {
    struct kiln__lm_caches caches; /* a slot is a page */
    struct kiln__lm_page *pages;
    uint64_t time;            /* counts prompts and their parts */
    kiln_batch *keep, *bring; /* copy a part of a text to a page, and from one */
    int32_t row, place;       /* that they read: where the page begins, and the part in its text */
    size_t rows;              /* of a page, along the dimension of `row` */
};

/* For `pages` pages of keys as `type`, beside the one text of `reader`; 0: nothing is kept. To be
 * freed also after an error. Errors: those of buffers and of recording, as `call`. */
kiln_status kiln__lm_prefixes_make(const char *call, const kiln_lm *lm, kiln_type type,
                                   size_t pages, const struct kiln__lm_caches *reader,
                                   struct kiln__lm_prefixes *prefixes);
void kiln__lm_prefixes_free(const kiln_lm *lm, struct kiln__lm_prefixes *prefixes);

/* How many of the first `most` tokens of a text are kept, in whole parts. */
size_t kiln__lm_prefixes_find(struct kiln__lm_prefixes *prefixes, const int32_t *text, size_t most);

/* Have the reader's keys and values of the tokens from `from` to before `to`, whole parts that
 * kiln__lm_prefixes_find() found. After an error any of its keys may be spoilt. Errors: those of
 * kiln_batch_execute(). */
kiln_status kiln__lm_prefixes_bring(struct kiln__lm_prefixes *prefixes, const int32_t *text,
                                    size_t from, size_t to);

/* Keep what is not kept yet of the reader's keys and values of the first `length` tokens, in whole
 * parts, as far as there are pages. After an error nothing is kept. Errors: those of
 * kiln_batch_execute(). */
kiln_status kiln__lm_prefixes_keep(struct kiln__lm_prefixes *prefixes, const int32_t *text,
                                   size_t length);

#endif
