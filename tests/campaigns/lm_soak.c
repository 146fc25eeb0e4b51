/* SPDX-License-Identifier: Apache-2.0 */
/* Whether batchers of language models can be left alone: texts join and leave all the time, models
 * and batchers come and go. In shifts, after each of which the process's memory, descriptors,
 * threads and OpenCL objects are counted: none may grow. Each token's logits are compared, too.
 *
 *     lm_soak            two seconds
 *     lm_soak SECONDS    make check-soak: an hour
 *     lm_soak long       15 minutes */
#include <stdio.h>
#include <stdlib.h>

#include "../support/cache.h"
#include "lm_company.h"
#include "soak.h"

enum { NOT_RUN = 77, AT_LEAST = 200 /* tokens of a shift */, FEWER = 10 };

static struct company_seen seen;

/* One model stays; another comes anew in each shift where there is time for it. Else two come in
 * turns, in a tenth of the shifts: both have come before anything is compared. */
static unsigned guest_of(unsigned shift, bool brief)
{
    return 1 + (brief ? shift / FEWER % 2 : shift % (company_models() - 1));
}

static bool work(kiln_context *context, struct company *kept, unsigned shift, double until,
                 bool brief)
{
    const bool visits = !brief || shift % FEWER == 0;
    struct company *guest = visits ? company_begin(context, guest_of(shift, brief)) : NULL;
    bool fine = guest || !visits;
    for (bool first = true; fine && (first || soak_now() < until); first = false)
        fine = company_go_on(kept, AT_LEAST, &seen) &&
               (!guest || company_go_on(guest, AT_LEAST, &seen));
    if (guest)
        company_end(guest);
    return fine;
}

static bool soak(kiln_context *context, double seconds)
{
    static unsigned long found[SOAK_SHIFTS][SOAK_COUNTS];
    struct company *kept = company_begin(context, 0);
    bool fine = kept != NULL;
    const double start = soak_now();
    for (unsigned i = 0; i < SOAK_SHIFTS && fine; i++) {
        fine = work(context, kept, i, start + seconds / SOAK_SHIFTS * (i + 1), seconds < 60);
        soak_count(found[i]);
        printf("%7.1f s", soak_now() - start);
        soak_print(found[i]);
        printf("; %lu tokens\n", seen.tokens);
        fflush(stdout);
    }
    if (kept)
        company_end(kept);
    printf("%lu tokens of %lu texts, %lu cancelled: %lu differences\n", seen.tokens, seen.texts,
           seen.cancelled, seen.differences);
    return fine && soak_is_flat(found, seconds) && !seen.differences;
}

int main(int argc, char **argv)
{
    kiln_context *context;
    if (kiln_context_create(NULL, &context)) {
        printf("%s\n", kiln_last_error());
        return NOT_RUN;
    }
    const bool fine = soak(context, campaign_is_long(argc, argv) ? 900
                                    : argc > 1                   ? atof(argv[1])
                                                                 : 2);
    kiln_context_release(context);
    return fine ? 0 : 1;
}
