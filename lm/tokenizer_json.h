/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer.json as it is read. Everything in such a file comes from outside: what is not as
 * expected is an error in words. */
#ifndef KILN_LM_TOKENIZER_JSON_H
#define KILN_LM_TOKENIZER_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KILN__MOST_AROUND = 4, /* tokens before and behind each text */
    KILN__TOKENIZER_ERROR = 512
};

/* Tokens before and behind each text. */
struct kiln__tokenizer_around {
    int32_t before[KILN__MOST_AROUND], after[KILN__MOST_AROUND];
    size_t before_count, after_count;
};

/* What tokenizers of all kinds have. */
struct kiln__tokenizer_facts {
    struct kiln__tokenizer_around around;
    int32_t unknown; /* a token for a text that would have none */
    int32_t largest; /* number of a token */
};

struct kiln__tokenizer_json {
    const char *path;
    const json_t *root; /* of tokenizer.json */
    char *error;        /* KILN__TOKENIZER_ERROR bytes */
    struct kiln__tokenizer_facts *to;
};

/* Answers false. */
bool kiln__tokenizer_refuse(const struct kiln__tokenizer_json *reading, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A member's text, "" if there is none; a flag that may be left out. */
const char *kiln__json_text(const json_t *object, const char *key);
bool kiln__json_flag(const json_t *object, const char *key, bool usual);

/* Read what stands around a text. */
bool kiln__tokenizer_read_around(const struct kiln__tokenizer_json *reading);

#endif
