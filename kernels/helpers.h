/* SPDX-License-Identifier: Apache-2.0 */
/* For files of kernels that include this. */
/* Always, for PoCL 3.1 loses local memory that a helper gets by a call. */
#define INLINE static inline __attribute__((always_inline))
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
/* a * b + c, in vectors too, where fma() may be slow. */
#ifdef KILN_NO_FMA
#define ADD_PRODUCT(a, b, c) ((a) * (b) + (c))
#else
#define ADD_PRODUCT fma
#endif
