/* SPDX-License-Identifier: Apache-2.0 */
/* Whether working memory is as large as what kernels keep there. Lowering sizes it, and the
 * kernel's text says of which type its elements are: partial results of segments and splits, sums
 * of a product, packed operands. */
#include "codegen/verify_scratch.h"

#include <string.h>

#include "lower/iteration_space.h"

struct sizing {
    const struct kiln__launch *launch;
    const struct kiln__parameters *parameters;
    const struct kiln__space *space;
};

/* What the launch tells the kernel under a name; 0 if it tells nothing so. */
static size_t value_of(const struct sizing *sizing, const char *name)
{
    const struct kiln__parameter *parameters = sizing->parameters->list.items;
    for (size_t i = 0; i < sizing->parameters->list.count; i++)
        if (!parameters[i].memory && !strcmp(parameters[i].name, name))
            return (size_t)sizing->launch->arguments.items[i].integer;
    return 0;
}

/* A total of each kept element in each segment. */
static size_t least_totals(const struct sizing *sizing)
{
    size_t segments = kiln__stage_of_segments(sizing->launch->variant.stage)
                          ? sizing->launch->global[1]
                          : value_of(sizing, "segments");
    return value_of(sizing, "n") * segments;
}

static size_t least_products(const struct sizing *sizing)
{
    return sizing->space->kept_count * sizing->space->reduced_count;
}

static size_t least_splits(const struct sizing *sizing)
{
    return least_products(sizing) * value_of(sizing, "splits");
}

/* Of one matrix at least, without what fills its last panel up. */
static size_t least_packed(const struct sizing *sizing)
{
    size_t lines = value_of(sizing, "lines");
    return (lines ? lines : value_of(sizing, "n")) * value_of(sizing, "k");
}

/* What kernels call working memory, up to a number, and the elements that they have there. */
static const struct {
    const char *name;
    bool nest; /* of generated kernels, else of products */
    size_t (*least)(const struct sizing *sizing);
} rows[] = {
    {"partial_t", true, least_totals}, {"partial_j", true, least_totals},
    {"c", false, least_products},      {"out", false, least_products},
    {"partial", false, least_splits},  {"packed", false, least_packed},
};

size_t kiln__scratch_least(const struct kiln__launch *launch, const struct kiln__group *group,
                           const struct kiln__parameters *parameters, size_t number)
{
    const struct kiln__parameter *parameter = &parameters->list.items[number];
    bool nest = launch->source == KILN__SOURCE_NEST;
    struct kiln__space space;
    struct sizing sizing = {.launch = launch, .parameters = parameters, .space = &space};
    if (launch->variant.generic || !(nest || group->kind == KILN__GROUP_MATMUL))
        return 0;
    kiln__space_of(group, &space);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t length = strlen(rows[i].name);
        const char *rest = parameter->name + length;
        if (nest == rows[i].nest && !strncmp(parameter->name, rows[i].name, length) &&
            !rest[strspn(rest, "0123456789")])
            return rows[i].least(&sizing) * (parameter->item ? parameter->item : 1);
    }
    return 0;
}
