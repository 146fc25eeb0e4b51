/* SPDX-License-Identifier: Apache-2.0 */
/* --precision of the commands that run models. */
#include "precision.h"

#include <argp.h>
#include <string.h>

struct precision precision_read(const char *word, struct argp_state *state)
{
    static const struct {
        const char *word;
        struct precision precision;
    } known[] = {{"f32", {KILN_F32, KILN_PRECISION_EXACT}},
                 {"tf32", {KILN_F32, KILN_PRECISION_TF32}},
                 {"bf16", {KILN_BF16, KILN_PRECISION_BF16}},
                 {"f16", {KILN_F16, KILN_PRECISION_F16}},
                 {"i8", {KILN_Q8_0, KILN_PRECISION_EXACT}}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(word, known[i].word))
            return known[i].precision;
    argp_error(state, "\"%s\" is no precision: f32, tf32, bf16, f16 or i8", word);
    return known[0].precision;
}
