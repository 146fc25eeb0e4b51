/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that a model file is made of decide; here is what they choose from. */
#pragma once

#include <stdbool.h>

#include "onnx_file.h"

enum { MOST_VALUES = 96 };

struct onnx_maker {
    struct fuzz_bytes *bytes;
    unsigned wild; /* one of so many choices; 0: none */
    const char *names[MOST_VALUES];
    unsigned n_names, depth;
};

/* Zeroed memory until onnx_free_room(). A byte that decides makes 2 KiB of it at most. */
void *onnx_room(size_t bytes);
void onnx_free_room(void);

/* A number below n. */
unsigned onnx_choose(struct onnx_maker *maker, unsigned n);

/* Whether something wild is to stand here. */
bool onnx_is_wild(struct onnx_maker *maker);
int64_t onnx_wild_number(struct onnx_maker *maker);

/* One of `count` numbers from `lowest` on, or a wild one. */
int64_t onnx_small_number(struct onnx_maker *maker, int lowest, unsigned count);

/* "v17"; a name that nothing has yet; one that something has, or an odd one. */
char *onnx_number_name(char letter, unsigned number);
const char *onnx_new_name(struct onnx_maker *maker);
const char *onnx_old_name(struct onnx_maker *maker);
