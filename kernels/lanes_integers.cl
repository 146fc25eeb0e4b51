/* SPDX-License-Identifier: Apache-2.0 */
/* What lanes.cl has, which stands before this, for further types. */
#define KILN_SHUFFLE(name)                                                                         \
    static inline char name##_char(char x, int by)                                                 \
    {                                                                                              \
        return (char)name##_int(x, by);                                                            \
    }                                                                                              \
    static inline long name##_long(long x, int by)                                                 \
    {                                                                                              \
        const int2 halves = as_int2(x);                                                            \
        return as_long((int2)(name##_int(halves.x, by), name##_int(halves.y, by)));                \
    }
KILN_SHUFFLE(across)
KILN_SHUFFLE(before)
KILN_SHUFFLE(of)
#undef KILN_SHUFFLE
