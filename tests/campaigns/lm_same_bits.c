/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a text of a language model has the same logits, to the bit, alone and in company: of 1 to
 * 31 others that join and leave, with prompts that begin as one before did.
 *
 *     lm_same_bits           20,000 tokens
 *     lm_same_bits TOKENS    make check-lm-long: a million
 *     lm_same_bits long      a million */
#include <stdio.h>
#include <stdlib.h>

#include "../support/cache.h"
#include "lm_company.h"

enum { NOT_RUN = 77 };

static bool run_model(kiln_context *context, unsigned model, unsigned long tokens,
                      unsigned long *compared)
{
    struct company_seen seen = {0};
    struct company *company = company_begin(context, model);
    if (!company)
        return false;
    const bool fine = company_go_on(company, tokens, &seen);
    company_end(company);
    printf("%s: %lu tokens of %lu texts, up to %u at once, %lu cancelled, %lu tokens of prompts "
           "shared: %lu differences\n",
           company_name(model), seen.tokens, seen.texts, seen.most, seen.cancelled, seen.shared,
           seen.differences);
    fflush(stdout);
    *compared += seen.tokens;
    return fine && !seen.differences;
}

int main(int argc, char **argv)
{
    kiln_context *context;
    const unsigned long wanted = campaign_is_long(argc, argv) ? 1000000
                                 : argc > 1                   ? strtoul(argv[1], NULL, 10)
                                                              : 20000;
    unsigned long compared = 0;
    bool fine = true;
    if (kiln_context_create(NULL, &context)) {
        printf("%s\n", kiln_last_error());
        return NOT_RUN;
    }
    for (unsigned i = 0; i < company_models() && fine; i++)
        fine = run_model(context, i, (wanted - compared) / (company_models() - i), &compared);
    kiln_context_release(context);
    printf("%lu tokens\n", compared);
    return fine ? 0 : 1;
}
