/* SPDX-License-Identifier: Apache-2.0 */
/* An operand A of matmul_gpu.cl that is no matrix: its rows are patches of an image. A row is given
 * by an index of up to three levels, of which each has a stride in the image, and so is an element
 * of a row; the last level of these is contiguous, in runs. With TRANSPOSE_A lines are elements, and
 * k counts rows.
 *
 * PATCHES 1: runs are multiples of 4 elements, which are read at once; 2: of any length. */

/* Quotients of numbers below 2^31 (T. Granlund and P. Montgomery, "Division by invariant integers
 * using multiplication", 1994): lib/lower/matmul_gpu.c has the inverse and the shift. */
struct divisor {
    uint by, inverse, shift;
};

INLINE int quotient(int x, const struct divisor *divisor)
{
    return (int)(mul_hi((uint)x << 1, divisor->inverse) >> divisor->shift);
}

/* How many there are of the two inner levels, and the strides of all three. */
struct levels {
    struct divisor inner, last;
    int stride[3];
};

INLINE int place_of(int index, const struct levels *levels)
{
    const int line = quotient(index, &levels->last), outer = quotient(line, &levels->inner);
    return outer * levels->stride[0] + (line - outer * (int)levels->inner.by) * levels->stride[1] +
           (index - line * (int)levels->last.by) * levels->stride[2];
}

struct patches {
    struct levels rows, elements;
};

/* What fetching A takes, in place of what operands.h says of matrices. Where a line's elements, or
 * a row's, begin is found once, at the start. */
#undef PLACE_A
#undef PLACED_A
#undef AT_A
#undef READ_A
#undef READ_A_VECTOR
#define PLACE_A , const struct patches *a_patches, int a_line, int a_k
#define PLACED_A , a_patches, a_line, a_k
#define AT_A(batch, line, lines, k) , &patches, line, k
#define ROW(i) place_of(i, &a_patches->rows)
#define WITHIN(i) place_of(i, &a_patches->elements)
#if TRANSPOSE_A
#define START_A(line, k) (PATCHES == 1 ? WITHIN(a_line + (line)) : 0)
#define READ_A(from, at, line, k)                                                                  \
    (from)[ROW(a_k + (k)) + (PATCHES == 1 ? (at) : WITHIN(a_line + (line)))]
#define NEXT(from, e, line, k) READ_A(from, e, (line) + e, k)
#define FIRST(line, k) ROW(a_k + (k))
#else
#define START_A(line, k) ROW(a_line + (line))
#define READ_A(from, at, line, k) (from)[WITHIN(a_k + (k))]
#define NEXT(from, e, line, k) READ_A(from, e, line, (k) + e)
#define FIRST(line, k) WITHIN(a_k + (k))
#endif
#if PATCHES == 1
#define READ_A_VECTOR(i, from, line, k) LOAD_QUAD((from) + FIRST(line, k))
#else
#define READ_A_VECTOR(i, from, line, k)                                                            \
    (float4)(NEXT(from, 0, line, k), NEXT(from, 1, line, k), NEXT(from, 2, line, k),               \
             NEXT(from, 3, line, k))
#endif
