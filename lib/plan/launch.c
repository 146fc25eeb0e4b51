/* SPDX-License-Identifier: Apache-2.0 */
/* Appending of arguments to a launch: slots, offsets, integers, floats, tables. */
#include "plan/launch.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "util/format.h"

bool kiln__launch_names(const struct kiln__launch *launch, uint32_t slot)
{
    for (size_t i = 0; i < launch->arguments.count; i++)
        if (launch->arguments.items[i].kind == KILN__ARGUMENT_MEMORY &&
            launch->arguments.items[i].slot == slot)
            return true;
    return false;
}

static void launch_add(struct kiln__launch *launch, struct kiln__argument argument)
{
    struct kiln__argument *place = kiln__vector_push(&launch->arguments);
    if (place)
        *place = argument;
    launch->failed = launch->failed || !place;
}

void kiln__launch_add(struct kiln__launch *launch, struct kiln__argument argument,
                      const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = kiln__vformat(argument.name, sizeof argument.name, format, arguments);
    va_end(arguments);
    assert(length > 0 && (size_t)length < sizeof argument.name);
    (void)length;
    argument.part = launch->part;
    launch_add(launch, argument);
}

void kiln__launch_memory(struct kiln__launch *launch, uint32_t slot)
{
    launch->failed = launch->failed || slot == UINT32_MAX; /* KILN__NO_SLOT: without memory */
    launch_add(launch, (struct kiln__argument){.kind = KILN__ARGUMENT_MEMORY, .slot = slot});
}

void kiln__launch_offset(struct kiln__launch *launch, uint32_t slot, int64_t elements, size_t item)
{
    assert(item > 0 && item <= UINT8_MAX);
    launch_add(launch, (struct kiln__argument){.kind = KILN__ARGUMENT_OFFSET,
                                               .slot = slot,
                                               .integer = elements,
                                               .item = (uint8_t)item});
}

void kiln__launch_index(struct kiln__launch *launch, int64_t value)
{
    launch_add(launch, (struct kiln__argument){.kind = KILN__ARGUMENT_INDEX, .integer = value});
}

void kiln__launch_i32(struct kiln__launch *launch, int64_t value)
{
    launch_add(launch, (struct kiln__argument){.kind = KILN__ARGUMENT_I32, .integer = value});
}

void kiln__launch_f32(struct kiln__launch *launch, float value)
{
    launch_add(launch, (struct kiln__argument){.kind = KILN__ARGUMENT_F32, .real = value});
}

void kiln__launch_table(struct kiln__launch *launch)
{
    launch_add(launch, (struct kiln__argument){.kind = KILN__ARGUMENT_TABLE});
}
