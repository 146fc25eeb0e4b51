/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/launch.h"

#include <assert.h>

static bool add(struct kiln__launch *launch, struct kiln__argument argument)
{
    struct kiln__argument *place = kiln__vector_push(&launch->arguments);
    if (place)
        *place = argument;
    return place;
}

bool kiln__launch_memory(struct kiln__launch *launch, uint32_t slot)
{
    assert(slot != UINT32_MAX); /* KILN__NO_SLOT */
    return add(launch, (struct kiln__argument){.kind = KILN__ARGUMENT_MEMORY, .slot = slot});
}

bool kiln__launch_offset(struct kiln__launch *launch, uint32_t slot, int64_t elements, size_t item)
{
    assert(slot != UINT32_MAX && item > 0 && item <= UINT8_MAX);
    return add(launch, (struct kiln__argument){.kind = KILN__ARGUMENT_OFFSET,
                                               .slot = slot,
                                               .integer = elements,
                                               .item = (uint8_t)item});
}

bool kiln__launch_index(struct kiln__launch *launch, int64_t value)
{
    return add(launch, (struct kiln__argument){.kind = KILN__ARGUMENT_INDEX, .integer = value});
}

bool kiln__launch_i32(struct kiln__launch *launch, int64_t value)
{
    return add(launch, (struct kiln__argument){.kind = KILN__ARGUMENT_I32, .integer = value});
}

bool kiln__launch_f32(struct kiln__launch *launch, float value)
{
    return add(launch, (struct kiln__argument){.kind = KILN__ARGUMENT_F32, .real = value});
}

bool kiln__launch_scalar(struct kiln__launch *launch, kiln_type type, double value)
{
    return kiln__type_row(type)->floating ? kiln__launch_f32(launch, (float)value)
                                          : kiln__launch_i32(launch, (int64_t)value);
}
