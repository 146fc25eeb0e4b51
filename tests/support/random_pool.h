/* SPDX-License-Identifier: Apache-2.0 */
/* What random batches are recorded from: choices, operands, and the actions, each of which records
 * an operation. */
#pragma once

#include <stdbool.h>

#include "check.h"

#define MOST_ELEMENTS 20000
#define MOST_TENSORS 64

/* Everything recorded so far that can be an operand. */
struct pool {
    kiln_batch *batch;
    kiln_tensor tensors[MOST_TENSORS];
    size_t count;
    kiln_tensor focus; /* an operand of many */
};

/* A tensor with what it is. */
struct operand {
    kiln_tensor tensor;
    kiln_type type, stored; /* what operations read it as; its own */
    size_t rank, dims[KILN_MAX_RANK];
};

/* Which operations there are and on what; sizes and content are check_random()'s. Batches of one
 * structure and other sizes share most kernels, which saves compiling them. */
void random_structure(uint64_t seed);
uint32_t choose(uint32_t below);
bool chance(uint32_t one_in);

/* A size. */
size_t pick(const size_t *from, size_t count);
#define PICK(...) pick((size_t[]){__VA_ARGS__}, sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t))

kiln_type any_type(void);
kiln_type stored_as(kiln_type type);
size_t count_of(const struct operand *x);
bool is_small(const struct operand *x);

struct operand describe(const struct pool *pool, kiln_tensor tensor);
struct operand any_operand(const struct pool *pool);

/* New inputs: of any content, read as the type or of exactly that one; of finite numbers, and one
 * that broadcasts against x. */
kiln_tensor fresh(const struct pool *pool, kiln_type type, size_t rank, const size_t *dims);
kiln_tensor fresh_stored(const struct pool *pool, kiln_type type, size_t rank, const size_t *dims);
kiln_tensor numbers(const struct pool *pool, size_t rank, const size_t *dims);
kiln_tensor smaller(const struct pool *pool, const struct operand *x);

/* x with its first and last dimension exchanged, where they are equal, or from its last element on.
 */
kiln_tensor turned_around(const struct pool *pool, const struct operand *x);

/* x within what squares and powers can follow. */
kiln_tensor tamed(const struct pool *pool, const struct operand *x);

/* Record something, or answer the empty tensor if that cannot be. */
kiln_tensor random_upload(struct pool *pool);
kiln_tensor random_basic(struct pool *pool);   /* elementwise, reductions, movements */
kiln_tensor random_network(struct pool *pool); /* products, rows, losses, random numbers */
kiln_tensor random_again(struct pool *pool);   /* one tensor in several places of an operation */
