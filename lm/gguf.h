/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files, version 3, in memory: keys with values, and tensors. Nothing that a file says is
 * believed: all counts, lengths, offsets and types are looked at before anything is allocated for
 * them, and what is handed out lies within the file. */
#ifndef KILN_LM_GGUF_H
#define KILN_LM_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kiln/status.h>

#include "lm/blocks.h"

enum { KILN__GGUF_MOST_RANK = 4 };

/* Part of the file; no zero ends it. */
struct kiln__gguf_text {
    const char *bytes;
    size_t length;
};

enum kiln__gguf_type {
    KILN__GGUF_U8 = 0,
    KILN__GGUF_I8 = 1,
    KILN__GGUF_U16 = 2,
    KILN__GGUF_I16 = 3,
    KILN__GGUF_U32 = 4,
    KILN__GGUF_I32 = 5,
    KILN__GGUF_F32 = 6,
    KILN__GGUF_BOOL = 7,
    KILN__GGUF_STRING = 8,
    KILN__GGUF_ARRAY = 9,
    KILN__GGUF_U64 = 10,
    KILN__GGUF_I64 = 11,
    KILN__GGUF_F64 = 12
};

struct kiln__gguf_key {
    struct kiln__gguf_text name;
    enum kiln__gguf_type type; /* of an array's elements */
    bool is_array;
    size_t count; /* 1 unless it is an array */
    const uint8_t *values;
};

struct kiln__gguf_tensor {
    struct kiln__gguf_text name;
    const struct kiln__block_format *format;
    size_t rank;
    size_t dims[KILN__GGUF_MOST_RANK]; /* the fastest first */
    const uint8_t *blocks;
    size_t bytes;
    struct kiln_buffer *buffer; /* of a folder's, in place of the blocks; NULL once it is used */
};

struct kiln__gguf {
    const char *path;   /* for sentences */
    const char *prefix; /* of names in a folder of Hugging Face; NULL: a GGUF file */
    size_t n_keys, n_tensors;
    struct kiln__gguf_key *keys; /* both in the order of their names */
    struct kiln__gguf_tensor *tensors;
};

/* Read `bytes` bytes, which have to stay where they are. Errors: INVALID_ARGUMENT, UNSUPPORTED,
 * OUT_OF_HOST_MEMORY; nothing is to be freed then. */
kiln_status kiln__gguf_read(const char *path, const uint8_t *data, size_t bytes,
                            struct kiln__gguf *gguf);

/* Put tensors in the order of their names. Errors: INVALID_ARGUMENT (a name is there twice). */
kiln_status kiln__gguf_order(struct kiln__gguf *gguf);
void kiln__gguf_free(struct kiln__gguf *gguf);

/* NULL: there is none. */
const struct kiln__gguf_key *kiln__gguf_key(const struct kiln__gguf *gguf, const char *name);
const struct kiln__gguf_tensor *kiln__gguf_tensor(const struct kiln__gguf *gguf, const char *name);

/* The value of a key. A key that is not there leaves `value` as it is; one of another kind, or a
 * number beyond `most`, is INVALID_ARGUMENT. */
kiln_status kiln__gguf_whole(const struct kiln__gguf *gguf, const char *name, uint64_t most,
                             uint64_t *value);
kiln_status kiln__gguf_real(const struct kiln__gguf *gguf, const char *name, double *value);
kiln_status kiln__gguf_bool(const struct kiln__gguf *gguf, const char *name, bool *value);
kiln_status kiln__gguf_string(const struct kiln__gguf *gguf, const char *name,
                              struct kiln__gguf_text *value);

/* An array of a type; one that is not there is INVALID_ARGUMENT. */
kiln_status kiln__gguf_array(const struct kiln__gguf *gguf, const char *name,
                             enum kiln__gguf_type type, const struct kiln__gguf_key **key);

/* The text at *at, of an array of texts, and on to the next one. */
struct kiln__gguf_text kiln__gguf_next_text(const uint8_t **at);

/* Element i of an array of i32 or f32. */
int32_t kiln__gguf_i32_at(const struct kiln__gguf_key *key, size_t i);
float kiln__gguf_f32_at(const struct kiln__gguf_key *key, size_t i);

bool kiln__gguf_text_is(struct kiln__gguf_text text, const char *word);

/* For "%.*s": most of a text in a sentence. */
#define KILN__GGUF_SAID(text) (int)((text).length < 100 ? (text).length : 100), (text).bytes

#endif
