/* SPDX-License-Identifier: Apache-2.0 */
/* Types of elements as files have them, and what kiln makes of each. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <kiln/types.h>

struct kiln__file_type {
    char kind;      /* numpy's letter; 0: numpy has none */
    kiln_type type; /* 0: kiln has none for it */
    size_t bytes;
    const char *word; /* safetensors' */
    /* The elements as kiln's; false if one is none of them. NULL: they are as they are. */
    bool (*convert)(const void *from, size_t count, void *to);
};

/* The row of a word, or of a letter and a size; NULL: there is none. */
const struct kiln__file_type *kiln__file_type_by_name(const char *word);
const struct kiln__file_type *kiln__file_type_by_letter(char kind, size_t bytes);

/* The row that has a type of kiln's as it is; NULL: of blocks there is none. */
const struct kiln__file_type *kiln__file_type_of(kiln_type type);
