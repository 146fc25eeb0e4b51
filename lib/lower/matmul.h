/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products: what rows of the catalogue (device/kernels.def) take, and what their launches
 * are made of. */
#pragma once

#include "lower/lower.h"
#include "lower/select.h"

/* Of counts, none of which is negative. */
static inline int64_t kiln__least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t kiln__most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t kiln__div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
static inline int64_t kiln__round_up(int64_t a, int64_t b)
{
    return kiln__div_up(a, b) * b;
}

/* Elements of a matrix, of `item` bytes: offset and strides in elements. One of row and column
 * stride is 1. */
struct kiln__matrix {
    uint32_t slot;
    int64_t offset, row, column, batch;
    uint8_t item;
    uint8_t operand;  /* of the group: which one */
    kiln_type stored; /* an operand's elements in memory */
    bool plain_load; /* loaded as it lies, but for its conversion to the type that is computed in */
    bool blocks;     /* of a type of blocks */
    bool computed;   /* a generated text makes something of what is read, */
    bool frozen;     /* what is made of it may be prepacked (frozen.c) */
    bool across; /* by vectors that run across lines (lower/iteration_space.h), else along them */
};

/* Implicit im2col: rows are patches of an image, indexed by up to three levels, the last one
 * fastest; so are the elements of a row, whose last level is contiguous. */
#define KILN__IM2COL_LEVELS 3
struct kiln__im2col {
    uint32_t slot;
    int64_t offset;
    struct kiln__im2col_level {
        int64_t count, stride;
    } rows[KILN__IM2COL_LEVELS], depth[KILN__IM2COL_LEVELS];
};

/* c[b] = a[b] b[b] for each b of `batch`; c is dense. Where the group has an epilogue, c may hold
 * sums before, and then what the epilogue makes of them. */
struct kiln__product {
    const struct kiln__device *device; /* with the tuned values of its workload */
    int64_t m, n, k, batch;
    struct kiln__matrix a, b, c;
    uint8_t result;  /* as in kiln__variant */
    uint8_t sums;    /* how it adds up: enum kiln__product_name */
    uint32_t finish; /* what the group's steps after it cost for an element, */
    uint32_t loads;  /* and how many operands they read that have one for each */
    uint32_t copies; /* the group that brings `a` there from patches, and does nothing else; or
                        KILN__NO_GROUP */
};

/* The arguments of a CLBlast launch, by position: each matrix's memory and offset, the sizes, the
 * leading dimensions, whether operands are transposed, the batch strides. */
enum kiln__clblast_argument {
    KILN__CLBLAST_A,
    KILN__CLBLAST_A_OFFSET,
    KILN__CLBLAST_B,
    KILN__CLBLAST_B_OFFSET,
    KILN__CLBLAST_C,
    KILN__CLBLAST_C_OFFSET,
    KILN__CLBLAST_M,
    KILN__CLBLAST_N,
    KILN__CLBLAST_K,
    KILN__CLBLAST_BATCH,
    KILN__CLBLAST_A_LEAD,
    KILN__CLBLAST_B_LEAD,
    KILN__CLBLAST_C_LEAD,
    KILN__CLBLAST_A_TRANSPOSED,
    KILN__CLBLAST_B_TRANSPOSED,
    KILN__CLBLAST_A_STRIDE,
    KILN__CLBLAST_B_STRIDE,
    KILN__CLBLAST_C_STRIDE
};

/* The group that product `index` absorbs, computing it as it loads; or KILN__NO_GROUP. */
uint32_t kiln__matmul_absorbed(struct kiln__plan *plan, uint32_t index);

/* Where what group `copies` brings to the first operand lies otherwise: rows of as many elements as
 * one of the copy has, which is a column of a transposed operand. KILN__NO_GROUP: where the rows of
 * a batch lie that is one product but for that. False: not in patches. */
bool kiln__plan_im2col(const struct kiln__plan *plan, const struct kiln__product *product,
                       uint32_t copies, struct kiln__im2col *im2col);

/* ---- for implementations ---- */

/* Distance of a matrix's contiguous lines. */
static inline int64_t kiln__matrix_lead(const struct kiln__matrix *matrix)
{
    return matrix->column == 1 ? matrix->row : matrix->column;
}

/* A launch of kernels/<file>.cl, to be given its options, arguments and ranges. */
struct kiln__launch kiln__product_launch(uint32_t group, const char *file, const char *kernel);

/* Ranges of single work-items, as kernels of chunked devices have them. */
void kiln__product_range(struct kiln__launch *launch, int64_t x, int64_t y, int64_t z);

/* What a launch does beside multiplying. */
struct kiln__extras {
    const struct kiln__matrix *a, *b; /* as its kernel calls the operands that it reads, or NULL */
    const struct kiln__product *product; /* the group's, if the launch ends it; or NULL */
    int64_t vector; /* width of OPERAND_A_VECTOR, OPERAND_B_VECTOR and EPILOGUE_VECTOR */
    bool aligned;   /* rows of all matrices and their memory start at multiples of that */
};

/* Append a launch that has all its arguments but those of OPERAND_A_, OPERAND_B_ and
 * EPILOGUE_PARAMETERS: it gets these, and the steps of operands and the group's epilogue, if there
 * are any. */
void kiln__plan_add_product_launch(struct kiln__plan *plan, const struct kiln__extras *extras,
                                   struct kiln__launch *launch);

/* Where k is split, on GPUs: working memory for each split's sums, [batch][split][m][n], and the
 * launch that adds them up and does what the group does to them. */
struct kiln__matrix kiln__product_split_k(struct kiln__plan *plan,
                                          const struct kiln__product *product, int64_t splits);
void kiln__plan_product_sums(struct kiln__plan *plan, uint32_t group,
                             const struct kiln__product *product, const struct kiln__matrix *sums,
                             int64_t splits);

/* The operand, a or b of the product, in lines along k that begin at multiples of 16 bytes: a
 * launch that makes them, of elements of `bytes` and so many `parts` (kernels/matmul_gpu_pack.cl).
 * Of two bytes they are those that it is stored in. */
struct kiln__matrix kiln__product_pack(struct kiln__plan *plan, uint32_t group,
                                       const struct kiln__product *product,
                                       const struct kiln__matrix *operand, int bytes, int parts);

/* Whether its lines, and where it begins, are multiples of so many elements. */
static inline bool kiln__matrix_by(const struct kiln__matrix *matrix, int64_t elements)
{
    return matrix->offset % elements == 0 && kiln__matrix_lead(matrix) % elements == 0 &&
           matrix->batch % elements == 0;
}

/* Whether a kernel may copy so many elements at once, as they are stored. */
static inline bool kiln__matrix_copies(const struct kiln__matrix *matrix, kiln_type type,
                                       int64_t elements)
{
    return matrix->stored == type && matrix->plain_load && kiln__matrix_by(matrix, elements);
}

/* Append `count` integers. */
void kiln__launch_indices(struct kiln__launch *launch, size_t count, const int64_t *values);
#define KILN__LAUNCH_INDICES(launch, ...)                                                          \
    kiln__launch_indices(launch, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),               \
                         (int64_t[]){__VA_ARGS__})

/* Append where a matrix begins in its memory, how far apart its lines are, and its batches. */
static inline void kiln__launch_matrix(struct kiln__launch *launch,
                                       const struct kiln__matrix *matrix)
{
    kiln__launch_offset(launch, matrix->slot, matrix->offset, matrix->item);
    KILN__LAUNCH_INDICES(launch, kiln__matrix_lead(matrix), matrix->batch);
}
