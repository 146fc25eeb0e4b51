/* SPDX-License-Identifier: Apache-2.0 */
/* How byte-level BPE cuts a text before it merges: the patterns of models' pre-tokenizers. */
#ifndef KILN_LM_SPLIT_H
#define KILN_LM_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

/* A row of the table of patterns. */
struct kiln__split_rule {
    const char *name; /* tokenizer.ggml.pre */
    bool wide;        /* llama-3's pattern, else gpt-2's */
    bool digits;      /* each digit is cut out before the pattern is looked for */
    size_t most_digits;
    bool whole; /* a piece that is a token needs no merges */
};

/* NULL: nobody knows it. */
const struct kiln__split_rule *kiln__split_rule(const char *name, size_t length);

/* The names of all, with commas. */
const char *kiln__split_names(void);

/* A text as pieces. */
struct kiln__split {
    const struct kiln__split_rule *rule;
    const char *at, *part, *end; /* what is not cut yet, the end of the part without digits, all */
};

struct kiln__split kiln__split_begin(const struct kiln__split_rule *rule, const char *text,
                                     size_t bytes);

/* The length of the next piece, which begins at *piece; 0: the text has ended. */
size_t kiln__split_next(struct kiln__split *split, const char **piece);

#endif
