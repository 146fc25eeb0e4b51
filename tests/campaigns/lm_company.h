/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of a language model in company: each token's logits beside those that the text had alone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <kiln/kiln.h>
#include <kiln/lm.h>

/* A model, batchers of it, and what its texts have alone. */
struct company;

/* Models that there are: files of tests/lm as they are, and with weights of other types. */
unsigned company_models(void);
const char *company_name(unsigned model);

/* Each text is run alone in a batcher. NULL: a sentence was printed. */
struct company *company_begin(kiln_context *context, unsigned model);
void company_end(struct company *company);

struct company_seen {
    unsigned long tokens;      /* whose logits were compared */
    unsigned long differences; /* of these */
    unsigned long texts;       /* that ended by themselves */
    unsigned long cancelled;
    unsigned long shared; /* tokens of prompts that another had read */
    unsigned most;        /* texts at once */
};

/* Texts join and leave until so many tokens have been compared: from 1 to 31 beside each, now these
 * and now others, some of which are cancelled. False: a call failed, as was printed. */
bool company_go_on(struct company *company, unsigned long tokens, struct company_seen *seen);
