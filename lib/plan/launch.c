/* SPDX-License-Identifier: Apache-2.0 */
/* Appending of arguments to a launch: slots, offsets, integers, floats, tables. */
#include "plan/launch.h"

#include <assert.h>
#include <string.h>

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
    launch->failed = !kiln__vector_add(&launch->arguments, argument) || launch->failed;
}

void kiln__launch_add(struct kiln__launch *launch, struct kiln__argument argument, const char *name,
                      size_t first, size_t second)
{
    assert(first <= UINT16_MAX && second <= UINT16_MAX);
    argument.name = name;
    argument.numbers[0] = (uint16_t)first;
    argument.numbers[1] = (uint16_t)second;
    argument.part = launch->part;
    launch_add(launch, argument);
}

int64_t kiln__argument_bits(const struct kiln__argument *argument)
{
    int32_t bits;
    memcpy(&bits, &argument->real, sizeof bits);
    return argument->kind == KILN__ARGUMENT_F32 ? bits : argument->integer;
}

struct kiln__phrase kiln__argument_name(const struct kiln__argument *argument)
{
    const char *form = argument->name ? argument->name : "", *hash = strchr(form, '#');
    const char *second = hash ? strchr(hash + 1, '#') : NULL;
    if (!hash)
        return kiln__phrase("%s", form);
    struct kiln__phrase name =
        kiln__phrase("%.*s%u", (int)(hash - form), form, (unsigned)argument->numbers[0]);
    return second ? kiln__phrase("%s%.*s%u%s", name.text, (int)(second - hash - 1), hash + 1,
                                 (unsigned)argument->numbers[1], second + 1)
                  : kiln__phrase("%s%s", name.text, hash + 1);
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
