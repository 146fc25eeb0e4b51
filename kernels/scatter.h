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
