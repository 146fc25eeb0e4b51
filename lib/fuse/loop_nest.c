/* SPDX-License-Identifier: Apache-2.0 */
/* Assignment of a group's steps to the phases of its loop nest, and the loads and values that each
 * phase needs. */
#include "fuse/loop_nest.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static bool moves_along_row(const struct kiln__group *group, const struct kiln__access *access)
{
    for (uint32_t d = group->kept; d < group->shape.rank; d++)
        if (access->stride[d] && group->shape.dims[d] != 1)
            return true;
    return false;
}

bool kiln__step_reads(const struct kiln__step *step)
{
    return step->kind == KILN__STEP_LOAD || step->kind == KILN__STEP_NUMBER ||
           step->kind == KILN__STEP_GATHER;
}

/* Where a step stands, from where its operands do. */
static void place_step(const struct kiln__group *group, struct kiln__nest *nest, size_t i)
{
    const struct kiln__step *step = &group->steps.items[i];
    uint8_t after = 0;
    bool full = false;
    for (unsigned k = 0; k < step->n_args; k++) {
        uint16_t arg = step->args[k];
        bool reduced = group->steps.items[arg].kind == KILN__STEP_REDUCED;
        uint8_t ready = (uint8_t)(nest->phase[arg] + reduced);
        after = ready > after ? ready : after;
        full = full || nest->full[arg];
    }
    if (kiln__step_reads(step))
        full = full || moves_along_row(group, &group->accesses.items[step->index]);
    full = (full || step->kind == KILN__STEP_SCANNED) && step->kind != KILN__STEP_REDUCED;
    nest->full[i] = full || !kiln__group_reduces(group);
    nest->phase[i] = after;
}

static unsigned count_phases(const struct kiln__group *group, const struct kiln__nest *nest)
{
    unsigned phases = 0;
    for (size_t i = 0; i < group->steps.count; i++)
        if (group->steps.items[i].kind == KILN__STEP_REDUCED && nest->phase[i] >= phases)
            phases = nest->phase[i] + 1u;
    for (size_t k = 0; k < group->stores.count; k++) {
        unsigned phase = kiln__nest_store_phase(group, nest, k);
        if (group->stores.items[k].full && phase >= phases)
            phases = phase + 1;
    }
    return phases;
}

unsigned kiln__nest_store_phase(const struct kiln__group *group, const struct kiln__nest *nest,
                                size_t store)
{
    uint16_t step = group->stores.items[store].step;
    return nest->phase[step] + (group->steps.items[step].kind == KILN__STEP_REDUCED);
}

void kiln__nest_needs(const struct kiln__group *group, const struct kiln__nest *nest,
                      unsigned phase, bool needed[KILN__MOST_STEPS])
{
    memset(needed, 0, KILN__MOST_STEPS * sizeof *needed);
    for (size_t i = 0; i < group->steps.count; i++)
        if (group->steps.items[i].kind == KILN__STEP_REDUCED && nest->phase[i] == phase)
            needed[group->steps.items[i].args[0]] = true;
    for (size_t k = 0; k < group->stores.count; k++) {
        const struct kiln__store *store = &group->stores.items[k];
        if (!store->full || kiln__nest_store_phase(group, nest, k) != phase)
            continue;
        needed[store->step] = true;
        if (store->position)
            needed[store->position - 1] = true;
    }
    for (size_t i = group->steps.count; i-- > 0;) {
        const struct kiln__step *step = &group->steps.items[i];
        bool kept = nest->keeper[i] && nest->phase[i] < phase;
        for (unsigned k = 0; needed[i] && nest->full[i] && !kept && k < step->n_args; k++)
            needed[step->args[k]] = true;
    }
}

/* From which accesses a phase loads elements, a bit each. */
static uint32_t loads_of(const struct kiln__group *group, const struct kiln__nest *nest,
                         unsigned phase)
{
    bool needed[KILN__MOST_STEPS];
    uint32_t loads = 0;
    kiln__nest_needs(group, nest, phase, needed);
    for (size_t i = 0; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        if (step->kind == KILN__STEP_LOAD && needed[i] && nest->full[i])
            loads |= UINT32_C(1) << step->index;
    }
    return loads;
}

struct kiln__loads kiln__nest_loads(const struct kiln__group *group, const struct kiln__nest *nest)
{
    _Static_assert(KILN__MOST_ACCESSES <= 32, "a bit each");
    struct kiln__loads loads = {0};
    uint32_t seen = 0;
    for (unsigned phase = 0; phase < nest->phases; phase++) {
        uint32_t now = loads_of(group, nest, phase);
        loads.shared |= seen & now;
        loads.behind |= phase ? now & ~seen : 0;
        seen |= now;
    }
    loads.behind &= ~loads.shared;
    return loads;
}

static bool is_costly(const struct kiln__group *group, const struct kiln__nest *nest, size_t i)
{
    const struct kiln__step *step = &group->steps.items[i];
    return nest->full[i] && step->kind == KILN__STEP_APPLY &&
           kiln__elementwise_rows[step->op].cost >= KILN__COSTLY;
}

/* A store of the same type that is not written before phase `last`, nor keeps another value. */
static uint8_t find_keeper(const struct kiln__group *group, const struct kiln__nest *nest, size_t i,
                           unsigned last)
{
    for (size_t k = 0; k < group->stores.count; k++) {
        const struct kiln__store *store = &group->stores.items[k];
        bool own = store->step == i;
        bool taken = false;
        for (size_t other = 0; other < i; other++)
            taken = taken || nest->keeper[other] == k + 1;
        if (store->full && !taken && (own || kiln__nest_store_phase(group, nest, k) >= last) &&
            group->steps.items[store->step].type == group->steps.items[i].type)
            return (uint8_t)(k + 1);
    }
    return 0;
}

/* A costly value that several phases need is kept from the first of them on. */
static void keep_step(const struct kiln__group *group, struct kiln__nest *nest, size_t i)
{
    bool needed[KILN__MOST_STEPS], used = false;
    unsigned first = 0, last = 0;
    for (unsigned phase = nest->phase[i]; phase < nest->phases; phase++) {
        kiln__nest_needs(group, nest, phase, needed);
        if (!needed[i])
            continue;
        first = used ? first : phase;
        last = phase;
        used = true;
    }
    if (first == last)
        return;
    nest->phase[i] = (uint8_t)first;
    nest->keeper[i] = find_keeper(group, nest, i, last);
}

/* ---- phases that follow others ---- */

static bool applies(const struct kiln__step *step, enum kiln__elementwise op)
{
    return step->kind == KILN__STEP_APPLY && step->op == op && step->type == KILN_F32;
}

static bool is_finite(const struct kiln__group *group, uint16_t i)
{
    const struct kiln__step *step = &group->steps.items[i];
    return step->kind == KILN__STEP_SCALAR && isfinite((float)group->scalars.items[step->index]);
}

/* Whether step i is the largest element `x` of a row, or that within finite limits: it only grows
 * while a row is visited. */
static bool is_top(const struct kiln__group *group, uint16_t i, uint16_t x)
{
    const struct kiln__step *step = &group->steps.items[i];
    while (applies(step, KILN__OP_minimum) || applies(step, KILN__OP_maximum)) {
        unsigned limit = is_finite(group, step->args[0]) ? 0 : 1;
        if (!is_finite(group, step->args[limit]))
            return false;
        step = &group->steps.items[step->args[1 - limit]];
    }
    return step->kind == KILN__STEP_REDUCED && step->op == KILN__REDUCE_max && step->args[0] == x;
}

/* A sum, or mean, of exp(x - top). What is kept of these elements would not be what it is once the
 * row is over. */
static uint8_t find_top(const struct kiln__group *group, const struct kiln__nest *nest, size_t i)
{
    const struct kiln__step *steps = group->steps.items, *sum = &steps[i];
    if (sum->kind != KILN__STEP_REDUCED || sum->type != KILN_F32 ||
        !kiln__reduce_rows[sum->op].adds)
        return 0;
    const struct kiln__step *power = &steps[sum->args[0]], *below = &steps[power->args[0]];
    if (!applies(power, KILN__OP_exp) || !applies(below, KILN__OP_sub) ||
        nest->keeper[sum->args[0]] || nest->keeper[power->args[0]])
        return 0;
    return is_top(group, below->args[1], below->args[0]) ? (uint8_t)(below->args[1] + 1) : 0;
}

bool kiln__nest_is_online(const struct kiln__group *group, const struct kiln__nest *nest,
                          unsigned phase)
{
    bool follows = false;
    if (kiln__group_scan(group))
        return false; /* both would carry sums */
    for (size_t i = 0; i < group->steps.count; i++) {
        if (group->steps.items[i].kind != KILN__STEP_REDUCED || nest->phase[i] != phase)
            continue;
        follows = nest->top[i];
        if (!follows)
            return false;
    }
    for (size_t k = 0; k < group->stores.count; k++)
        if (group->stores.items[k].full && kiln__nest_store_phase(group, nest, k) == phase)
            return false;
    return follows;
}

void kiln__nest_of(const struct kiln__group *group, bool keeps, struct kiln__nest *nest)
{
    assert(group->steps.count <= KILN__MOST_STEPS);
    memset(nest, 0, sizeof *nest);
    for (size_t i = 0; i < group->steps.count; i++)
        place_step(group, nest, i);
    nest->phases = count_phases(group, nest);
    for (size_t i = 0; keeps && i < group->steps.count; i++)
        if (is_costly(group, nest, i))
            keep_step(group, nest, i);
    for (size_t i = 0; i < group->steps.count; i++)
        nest->top[i] = find_top(group, nest, i);
}
