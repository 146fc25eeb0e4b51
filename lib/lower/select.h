/* SPDX-License-Identifier: Apache-2.0 */
/* Which row of the catalogue (device/kernels.def) computes a group. */
#pragma once

#include "device/kernels.h"
#include "plan/plan.h"

/* What a row does. `work` is what its family takes: a struct kiln__product; of attentions what
 * lower_attention.c or lower_attention_backward.c makes of a group. */
struct kiln__lowering {
    /* Whether it is right for this work on this device, and whether it is then the one to take,
     * where no earlier row is; NULL: always. What its traits say is not asked again. */
    bool (*fits)(const struct kiln__plan *plan, const void *work);
    bool (*suits)(const struct kiln__plan *plan, const void *work);
    /* Append its launches. */
    void (*lower)(struct kiln__plan *plan, uint32_t group, const void *work);
};

#define KERNEL(family, module, name, ...)                                                          \
    extern const struct kiln__lowering kiln__##module##_##name;
#include "device/kernels.def"

/* The row of this family that has all the traits `needs`, is for the device and fits: the one that
 * was asked for, else the tuned one, else the first that suits; if none fits, the last one of all.
 */
struct kiln__selection kiln__select(const struct kiln__plan *plan, const struct kiln__group *group,
                                    enum kiln__kernel_family family, unsigned needs,
                                    const void *work);

/* Whether a row of the family that has all these traits is for the device and fits. */
bool kiln__select_is_able(const struct kiln__plan *plan, const struct kiln__group *group,
                          enum kiln__kernel_family family, unsigned needs, const void *work);

/* Have it append its launches, which say by what they are. */
void kiln__lower_by(struct kiln__plan *plan, uint32_t group, const struct kiln__selection *choice,
                    const void *work);
