/* SPDX-License-Identifier: Apache-2.0 */
/* How rows lie in a shape, and so how long they may be. */
#include "graph/row_limits.h"

bool kiln__axes_are_innermost(const struct kiln__shape *shape, uint64_t axes)
{
    uint32_t d = shape->rank;
    while (d > 0 && (axes >> (d - 1) & 1 || shape->dims[d - 1] == 1))
        d--;
    return axes >> d << d == axes;
}

size_t kiln__longest_row(const struct kiln__shape *shape, uint64_t axes)
{
    uint32_t last = shape->rank;
    while (last > 0 && shape->dims[last - 1] == 1)
        last--;
    return kiln__axes_are_innermost(shape, axes)   ? KILN__LONGEST_ROW
           : last > 0 && !(axes >> (last - 1) & 1) ? KILN__LONGEST_COLUMN
                                                   : KILN__LONGEST_SCATTERED_ROW;
}
