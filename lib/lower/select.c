/* SPDX-License-Identifier: Apache-2.0 */
/* Takes one row of the catalogue for a group: asked for, tuned, or the first that suits. */
#include "lower/select.h"

#include <string.h>

static const struct kiln__lowering *const lowerings[] = {
#define KERNEL(family, module, name, ...) &kiln__##module##_##name,
#include "device/kernels.def"
};

static const struct kiln__lowering *lowering_of(const struct kiln__kernel_row *kernel)
{
    return lowerings[kiln__kernel_number(kernel)];
}

/* What is asked of each row. */
struct question {
    const struct kiln__plan *plan;
    const struct kiln__device *device; /* of the group */
    enum kiln__kernel_family family;
    unsigned needs;
    const void *work;
};

static bool is_able(const struct question *question, const struct kiln__kernel_row *kernel)
{
    const struct kiln__plan_options *options = &question->plan->options;
    const struct kiln__lowering *lowering = lowering_of(kernel);
    return (kernel->traits & question->needs) == question->needs &&
           (options->self_tester || !(kernel->traits & KILN__KERNEL_PROVED)) &&
           kiln__kernel_is_for(kernel, question->device) &&
           (!lowering->fits || lowering->fits(question->plan, question->work));
}

static bool takes_asked(const struct question *question, const struct kiln__kernel_row *kernel)
{
    const char *wanted = question->plan->options.matmul;
    return question->family == KILN__KERNEL_PRODUCT && wanted && !strcmp(kernel->name, wanted) &&
           is_able(question, kernel);
}

/* Numbers of rows for a device's other kind are not taken; nor is one for some sizes alone where
 * each has an order of its own. */
static bool takes_tuned(const struct question *question, const struct kiln__kernel_row *kernel)
{
    const struct kiln__traits *traits = question->device->traits;
    return question->family == KILN__KERNEL_PRODUCT && traits->product &&
           !(question->needs & KILN__KERNEL_OWN_ORDER) &&
           kernel == kiln__kernel_of(question->family, traits->product - 1) &&
           kiln__kernel_is_tuned_on(kernel, question->device) && is_able(question, kernel);
}

static bool takes_cheapest(const struct question *question, const struct kiln__kernel_row *kernel)
{
    const struct kiln__lowering *lowering = lowering_of(kernel);
    return is_able(question, kernel) &&
           (!lowering->suits || lowering->suits(question->plan, question->work));
}

typedef bool condition(const struct question *question, const struct kiln__kernel_row *kernel);

/* The first row that meets the condition. `beside`: but for this one, and for those that would have
 * to be proved. */
static const struct kiln__kernel_row *first(const struct question *question, condition *takes,
                                            const struct kiln__kernel_row *beside)
{
    const struct kiln__kernel_row *kernel;
    for (size_t i = 0; (kernel = kiln__kernel(i)); i++)
        if (kernel->family == question->family && kernel != beside &&
            !(beside && kernel->traits & KILN__KERNEL_PROVED) && takes(question, kernel))
            return kernel;
    return NULL;
}

bool kiln__select_is_able(const struct kiln__plan *plan, const struct kiln__group *group,
                          enum kiln__kernel_family family, unsigned needs, const void *work)
{
    const struct question question = {plan, kiln__plan_device(plan, group), family, needs, work};
    return first(&question, is_able, NULL) != NULL;
}

static const struct kiln__kernel_row *last_of(enum kiln__kernel_family family)
{
    size_t count = 1;
    while (kiln__kernel_of(family, count))
        count++;
    return kiln__kernel_of(family, count - 1);
}

struct kiln__selection kiln__select(const struct kiln__plan *plan, const struct kiln__group *group,
                                    enum kiln__kernel_family family, unsigned needs,
                                    const void *work)
{
    static condition *const conditions[] = {[KILN__REASON_ASKED] = takes_asked,
                                            [KILN__REASON_TUNED] = takes_tuned,
                                            [KILN__REASON_CHEAPEST] = takes_cheapest};
    const struct question question = {plan, kiln__plan_device(plan, group), family, needs, work};
    struct kiln__selection choice = {.reason = KILN__REASON_ASKED};
    while (choice.reason < KILN__REASON_LAST &&
           !(choice.taken = first(&question, conditions[choice.reason], NULL)))
        choice.reason++;
    if (!choice.taken)
        choice.taken = last_of(family);
    else
        choice.next = first(&question, takes_cheapest, choice.taken);
    choice.substitute = family == KILN__KERNEL_PRODUCT && plan->options.matmul &&
                        choice.reason != KILN__REASON_ASKED;
    return choice;
}

void kiln__lower_by(struct kiln__plan *plan, uint32_t group, const struct kiln__selection *choice,
                    const void *work)
{
    const size_t count = plan->launches.count;
    lowering_of(choice->taken)->lower(plan, group, work);
    for (size_t i = count; i < plan->launches.count; i++)
        plan->launches.items[i].choice = *choice;
}
