/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions of NVIDIA's devices for attention's kernels that are theirs alone, for files that
 * include this after helpers.h. */
/* 2^x; 0 below 2^-126. */
INLINE float power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* That of the lane whose number differs in one bit. */
INLINE float swap_lanes(float x, const int bit)
{
    float y;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                 : "=f"(y)
                 : "f"(x), "r"(bit));
    return y;
}
