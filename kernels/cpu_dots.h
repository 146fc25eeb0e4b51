/* SPDX-License-Identifier: Apache-2.0 */
/* Dot products of ROWS lines of one operand, the few, with lines of the other, the many, TILE_MANY at
 * once: what becomes of them, for kernels that include this after cpu_vector.h. */

/* dots[f][i] = sums[f][i], added up. */
INLINE void add_up(vector sums[ROWS][TILE_MANY], float dots[ROWS][TILE_MANY])
{
#pragma unroll
    for (int f = 0; f < ROWS; f++) {
#pragma unroll
        for (int i = 0; i < TILE_MANY; i++)
            dots[f][i] = sum_of(sums[f][i]);
    }
}

/* Those of `count` of the few with the many from `row` to `end`. */
INLINE void store_dots(float dots[ROWS][TILE_MANY], __global float *c, long count, long row,
                       long end, long c_few, long c_many)
{
#pragma unroll
    for (int f = 0; f < ROWS; f++) {
#pragma unroll
        for (int i = 0; i < TILE_MANY; i++) {
            if (f < count && row + i < end)
                c[f * c_few + (row + i) * c_many] = dots[f][i];
        }
    }
}

/* What the caller does to finished elements: within the loops that make them its constants would
 * take the sums' registers. The few are those from few0 on. */
INLINE void finish_dots(__global float *c, long batch, long few0, long count, long first, long end,
                        long c_few, long c_many, long few_are_columns EPILOGUE_PARAMETERS)
{
#ifdef EPILOGUE_LATE
    for (long f = 0; f < count; f++) {
        for (long row = first; row < end; row++) {
            __global float *place = c + f * c_few + row * c_many;
            *place = few_are_columns ? EPILOGUE(*place, batch, row, few0 + f)
                                     : EPILOGUE(*place, batch, few0 + f, row);
        }
    }
#endif
}
