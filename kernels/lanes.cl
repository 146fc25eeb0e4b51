/* SPDX-License-Identifier: Apache-2.0 */
/* What other items have of a value, among 32 that lie side by side and run together, without local
 * memory. All of them have to be there.
 *     across_<type>(x, other)  that of the item whose number differs in these bits
 *     before_<type>(x, back)   of the one so many before; its own where there is none
 *     of_<type>(x, item)       of that one, counted from the first of the 32
 * NVIDIA's instructions: its OpenCL C takes assembly and has no sub-groups. */
#define KILN_SHUFFLE(name, mode, clamp)                                                            \
    static inline int name##_int(int x, int by)                                                    \
    {                                                                                              \
        int y;                                                                                     \
        asm volatile("shfl.sync." mode ".b32 %0, %1, %2, " clamp ", 0xffffffff;"                   \
                     : "=r"(y)                                                                     \
                     : "r"(x), "r"(by));                                                           \
        return y;                                                                                  \
    }                                                                                              \
    static inline float name##_float(float x, int by)                                              \
    {                                                                                              \
        return as_float(name##_int(as_int(x), by));                                                \
    }                                                                                              \
    static inline uchar name##_uchar(uchar x, int by)                                              \
    {                                                                                              \
        return (uchar)name##_int(x, by);                                                           \
    }
KILN_SHUFFLE(across, "bfly", "31")
KILN_SHUFFLE(before, "up", "0")
KILN_SHUFFLE(of, "idx", "31")
#undef KILN_SHUFFLE
