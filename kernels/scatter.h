/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of an element `a` that a value `b` comes to: COMBINE is one of these. NaN wins. */
static inline TYPE scatter_set(TYPE a, TYPE b)
{
    return b;
}

static inline TYPE scatter_add(TYPE a, TYPE b)
{
    return a + b;
}

static inline TYPE scatter_mul(TYPE a, TYPE b)
{
    return a * b;
}

static inline TYPE scatter_min(TYPE a, TYPE b)
{
    return (b < a) | (b != b) ? b : a;
}

static inline TYPE scatter_max(TYPE a, TYPE b)
{
    return (b > a) | (b != b) ? b : a;
}

/* A text before the file may say how elements of what is stored otherwise are read (operands.h): A
 * is the values, B the indices. */
#ifdef OPERAND_A
#define VALUE(i) OPERAND_A(values + (i), 0, 0, 0)
#else
#define OPERAND_A_TYPE TYPE
#define VALUE(i) values[i]
#endif
#ifdef OPERAND_B
#define ROW(j) OPERAND_B(indices + (j), 0, 0, 0)
#else
#define OPERAND_B_TYPE INDEX
#define ROW(j) indices[j]
#endif

/* The row that index j leads to; a negative one is too large. */
#define ROW_OF(j) (ulong)(long)ROW(j)
