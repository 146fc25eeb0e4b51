/* SPDX-License-Identifier: Apache-2.0 */
/* What a checked kernel's places in memory are: KILN_AT gives the address, or spare memory where
 * the index is outside; the first that is, is noted (codegen/checked_text.c). */
static bool kiln_inside(long at, int width, long low, long high, int memory, int launch,
                        volatile global int *wrong)
{
    if (at >= low && at + width <= high)
        return true;
    if (atomic_cmpxchg(wrong, 0, launch) == 0) {
        wrong[1] = memory;
        wrong[2] = (int)(at - low);
        wrong[3] = (int)((at - low) >> 32);
    }
    return false;
}
#define KILN_AT(name, at, width)                                                                   \
    (kiln_inside((long)(at), width, low_##name / (long)sizeof *name,                               \
                 high_##name / (long)sizeof *name, memory_##name, kiln_launch, kiln_wrong)         \
         ? (name + (at))                                                                           \
         : spare_##name)
