/* SPDX-License-Identifier: Apache-2.0 */
/* A group of steps as a table for kernels/generic.cl. */
#include "lower/generic.h"

#include <math.h>
#include <string.h>

#include "graph/attention.h"
#include "lower/lower.h"

#define NONE KILN__GENERIC_MEMORIES

/* As many items as keep any device busy; each takes several where there are more. */
#define MOST_ITEMS (1 << 18)

/* ---- what it can do ---- */

/* Functions that few batches have cost all others time when the kernel is compiled. */
bool kiln__generic_has(unsigned op)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    static const char *const rare[] = {"FN(pow)",           "FN(acos)",  "FN(asin)",  "FN(atan)",
                                       "FN(atan2)",         "FN(tan)",   "FN(sinh)",  "FN(cosh)",
                                       "FN(asinh)",         "FN(acosh)", "FN(atanh)", "FN(philox)",
                                       "FN(philox_second)", "REMAINDER", "POWER"};
    for (size_t i = 0; i < sizeof rare / sizeof *rare; i++)
        if (strstr(row->device, rare[i]))
            return false;
    return true;
}

static bool is_computed(kiln_type type)
{
    return kiln__type_row(type)->computed == type;
}

static double start_of(unsigned op, kiln_type type)
{
    const struct kiln__reduce_row *row = &kiln__reduce_rows[op];
    return kiln__identity_value((enum kiln__identity)row->identity,
                                kiln__reduce_accumulator(row, type));
}

/* Whether the table has room for it: an int. */
static bool fits_cell(kiln_type type, double value)
{
    return type != KILN_I64 ||
           kiln__value_integer(type, value) == (int32_t)kiln__value_integer(type, value);
}

static bool can_compute(const struct kiln__group *group, const struct kiln__step *step)
{
    const struct kiln__step *steps = group->steps.items;
    kiln_type last = step->n_args ? steps[step->args[step->n_args - 1]].type : KILN_F32;
    if (kiln__type_is_block(step->type))
        return false;
    switch (step->kind) {
    case KILN__STEP_APPLY: return kiln__generic_has(step->op) && is_computed(last);
    case KILN__STEP_SCALAR: return fits_cell(step->type, group->scalars.items[step->index]);
    case KILN__STEP_REDUCED: return is_computed(last) && fits_cell(last, start_of(step->op, last));
    case KILN__STEP_CONVERT: return step->op != KILN__CAST_SATURATED || step->type == KILN_I32;
    case KILN__STEP_PRODUCT:
        return step->op != KILN__PRODUCT_EXACT_INTEGER && /* it would round */
               step->type == KILN_F32 && steps[step->args[0]].type == KILN_F32 &&
               steps[step->args[1]].type == KILN_F32;
    case KILN__STEP_SCANNED: return false;
    default: return true;
    }
}

/* Inputs as they lie in memory, and nothing but its result, as floats. */
static bool can_attend(const struct kiln__node *nodes, const struct kiln__group *group)
{
    const struct kiln__node *node = &nodes[group->nodes.items[0]];
    bool can = group->kind == KILN__GROUP_ATTENTION && !node->attention.window &&
               group->stores.count == 1 && nodes[group->stores.items[0].node].type == KILN_F32 &&
               group->accesses.count == node->n_inputs;
    for (unsigned k = 0; can && k < group->accesses.count; k++) {
        struct kiln__operand operand = kiln__group_operand(group, k);
        const struct kiln__step *step = &group->steps.items[operand.first];
        can = operand.first == operand.value && step->kind == KILN__STEP_LOAD && step->index == k &&
              group->accesses.items[k].kind == KILN__ACCESS_MEMORY &&
              step->type == nodes[node->input[k]].type;
    }
    return can;
}

static struct kiln__attention_size attention_of(const struct kiln__plan *plan,
                                                const struct kiln__group *group)
{
    const struct kiln__graph *graph = &plan->fusion.graph;
    return kiln__attention_size(graph, &graph->nodes.items[group->nodes.items[0]]);
}

/* How far operands go along their own last dimensions, which are none of the group's. */
static double depth_of(const struct kiln__plan *plan, const struct kiln__group *group)
{
    if (group->kind == KILN__GROUP_MATMUL)
        return (double)group->reduced;
    return group->kind == KILN__GROUP_ATTENTION
               ? (double)attention_of(plan, group).n + (double)attention_of(plan, group).d
               : 0;
}

static bool fits_int(const struct kiln__plan *plan, const struct kiln__group *group)
{
    const double most = INT32_MAX / 2, depth = depth_of(plan, group);
    if ((double)kiln__shape_count(&group->shape) > most || (double)group->reduced > most)
        return false;
    for (size_t i = 0; i < group->accesses.count; i++) {
        const struct kiln__access *access = &group->accesses.items[i];
        double reach =
            fabs((double)access->offset) + fabs((double)access->jump) * (double)access->extent;
        for (uint32_t d = 0; d < group->shape.rank; d++)
            reach += fabs((double)access->stride[d]) * (double)group->shape.dims[d];
        if (depth > 0)
            reach += depth * (fabs((double)access->stride[group->shape.rank - 1]) +
                              fabs((double)access->stride[group->shape.rank - 2]));
        if (reach > most)
            return false;
    }
    for (size_t k = 0; k < group->stores.count; k++) {
        const struct kiln__store *store = &group->stores.items[k];
        double reach = store->placed ? fabs((double)store->offset) : 0;
        for (uint32_t d = 0; store->placed && d < group->shape.rank; d++)
            reach += fabs((double)store->stride[d]) * (double)group->shape.dims[d];
        if (reach > most)
            return false;
    }
    return true;
}

/* The slots that a group names; more than there is room for: more than the most. */
static unsigned list_memories(const struct kiln__plan *plan, const struct kiln__group *group,
                              uint32_t slots[KILN__GENERIC_MEMORIES])
{
    unsigned count = 0;
    for (size_t i = 0; i < group->accesses.count + group->stores.count; i++) {
        bool access = i < group->accesses.count;
        if (access && group->accesses.items[i].kind == KILN__ACCESS_NUMBER)
            continue;
        uint32_t node = access ? group->accesses.items[i].node
                               : group->stores.items[i - group->accesses.count].node;
        unsigned known = 0;
        while (known < count && slots[known] != plan->slot_of[node])
            known++;
        if (known == count && count == KILN__GENERIC_MEMORIES)
            return count + 1;
        slots[known] = plan->slot_of[node];
        count += known == count;
    }
    return count;
}

static bool can_lower(const struct kiln__plan *plan, const struct kiln__group *group)
{
    uint32_t slots[KILN__GENERIC_MEMORIES];
    bool can = kiln__group_is_of_steps(group) || group->kind == KILN__GROUP_MATMUL ||
               can_attend(plan->fusion.graph.nodes.items, group);
    can = can && group->stores.count && group->steps.count <= KILN__GENERIC_MOST_STEPS &&
          fits_int(plan, group) && list_memories(plan, group, slots) <= KILN__GENERIC_MEMORIES;
    for (size_t i = 0; i < group->steps.count && can; i++)
        can = can_compute(group, &group->steps.items[i]);
    return can && !group->stores.items[0].position;
}

bool kiln__plan_is_generic(const struct kiln__plan *plan, uint32_t group)
{
    return (plan->options.generic && plan->options.generic[group]) ||
           (plan->options.all_generic && can_lower(plan, &plan->fusion.groups.items[group]));
}

/* Both operands are floats as they lie in memory. */
static bool is_plain(const struct kiln__group *group)
{
    for (unsigned k = 0; k < KILN__OPERANDS; k++) {
        struct kiln__operand operand = kiln__group_operand(group, k);
        const struct kiln__step *step = &group->steps.items[operand.first];
        if (operand.first != operand.value || step->kind != KILN__STEP_LOAD ||
            step->type != KILN_F32 || step->index != k)
            return false;
    }
    return true;
}

/* ---- the table ---- */

struct table {
    struct kiln__plan *plan;
    const struct kiln__group *group;
    struct kiln__launch *launch;
    uint32_t slots[KILN__GENERIC_MEMORIES];
    unsigned memories;
};

/* The index of a new entry of `ints` zeros. */
static size_t add_entry(struct table *table, size_t ints)
{
    size_t at = table->launch->table.count;
    for (size_t i = 0; i < ints; i++)
        table->launch->failed =
            !kiln__vector_add(&table->launch->table, 0) || table->launch->failed;
    return at;
}

static void generic_put(struct table *table, size_t entry, int field, int64_t value)
{
    if (!table->launch->failed)
        table->launch->table.items[entry + (size_t)field] = (int32_t)value;
}

static int32_t bits_of(kiln_type type, double value)
{
    float real = (float)value;
    int32_t bits;
    if (!kiln__type_row(type)->floating)
        return (int32_t)kiln__value_integer(type, value);
    memcpy(&bits, &real, sizeof bits);
    return bits;
}

static unsigned memory_of(const struct table *table, uint32_t node)
{
    unsigned known = 0;
    while (known < table->memories && table->slots[known] != table->plan->slot_of[node])
        known++;
    return known;
}

static void add_phase(struct table *table, int64_t reduced, size_t from, size_t to, size_t visits)
{
    size_t phase = add_entry(table, KILN__GENERIC_PHASE_INTS);
    generic_put(table, phase, KILN__GENERIC_REDUCED, reduced);
    generic_put(table, phase, KILN__GENERIC_FROM, (int64_t)from);
    generic_put(table, phase, KILN__GENERIC_TO, (int64_t)to);
    generic_put(table, phase, KILN__GENERIC_VISITS, (int64_t)visits);
}

/* A phase for each reduction, and one that stores. */
static size_t add_phases(struct table *table)
{
    const struct kiln__group *group = table->group;
    if (group->kind == KILN__GROUP_ATTENTION) { /* whose result is there already */
        add_phase(table, -1, 0, 0, 1);
        return 1;
    }
    bool rows = group->kind == KILN__GROUP_ROWS, map = group->kind == KILN__GROUP_MAP;
    size_t phases = 1;
    for (size_t i = 0; i < group->steps.count; i++) {
        uint8_t kind = group->steps.items[i].kind;
        if (kind != KILN__STEP_REDUCED && kind != KILN__STEP_PRODUCT)
            continue;
        add_phase(table, (int64_t)i, 0, i, group->reduced);
        phases++;
    }
    add_phase(table, -1, rows || map ? 0 : group->reduced_step + 1u, group->steps.count,
              rows ? group->reduced : 1);
    return phases;
}

static void add_reduced(struct table *table, size_t entry, const struct kiln__step *step)
{
    const struct kiln__reduce_row *row = &kiln__reduce_rows[step->op];
    kiln_type type = table->group->steps.items[step->args[0]].type;
    kiln_type sums = kiln__reduce_accumulator(row, type);
    generic_put(table, entry, KILN__GENERIC_KEY_,
                row->adds && sums == KILN_F32 ? -1 : (int64_t)KILN__GENERIC_KEY(step->op, sums));
    generic_put(table, entry, KILN__GENERIC_VALUE, bits_of(sums, start_of(step->op, type)));
    generic_put(table, entry, KILN__GENERIC_B, row->indexed);
    generic_put(table, entry, KILN__GENERIC_C, (int64_t)KILN__GENERIC_KEY(step->op, step->type));
}

static void add_step(struct table *table, size_t number)
{
    const struct kiln__group *group = table->group;
    const struct kiln__step *step = &group->steps.items[number], *steps = group->steps.items;
    size_t entry = add_entry(table, KILN__GENERIC_STEP_INTS);
    generic_put(table, entry, KILN__GENERIC_KIND, step->kind);
    generic_put(table, entry, KILN__GENERIC_TYPE, step->type);
    generic_put(table, entry, KILN__GENERIC_INDEX, step->index);
    for (int k = 0; k < step->n_args; k++)
        generic_put(table, entry, KILN__GENERIC_A + k, step->args[k]);
    if (group->kind == KILN__GROUP_MATMUL)
        generic_put(table, entry, KILN__GENERIC_SECOND,
                    number >= kiln__group_operand(group, 1).first && number < group->reduced_step);
    if (step->kind == KILN__STEP_APPLY)
        generic_put(table, entry, KILN__GENERIC_KEY_,
                    (int64_t)KILN__GENERIC_KEY(step->op, steps[step->args[step->n_args - 1]].type));
    else if (step->kind == KILN__STEP_CONVERT)
        generic_put(table, entry, KILN__GENERIC_KEY_,
                    (int64_t)KILN__GENERIC_CONVERT(
                        step->type, kiln__type_row(steps[step->args[0]].type)->computed,
                        step->op == KILN__CAST_SATURATED));
    else if (step->kind == KILN__STEP_SCALAR)
        generic_put(table, entry, KILN__GENERIC_VALUE,
                    bits_of(step->type, group->scalars.items[step->index]));
    else if (step->kind == KILN__STEP_GATHER)
        generic_put(table, entry, KILN__GENERIC_VALUE,
                    kiln__type_row(step->type)->floating && step->op == KILN__GATHER_OPEN
                        ? bits_of(KILN_F32, NAN)
                        : 0);
    else if (step->kind == KILN__STEP_REDUCED)
        add_reduced(table, entry, step);
}

static void add_access(struct table *table, const struct kiln__access *access)
{
    size_t entry = add_entry(table, KILN__GENERIC_ACCESS_INTS);
    bool number = access->kind == KILN__ACCESS_NUMBER;
    generic_put(table, entry, KILN__GENERIC_MEMORY, number ? 0 : memory_of(table, access->node));
    generic_put(table, entry, KILN__GENERIC_OFFSET, access->offset);
    generic_put(table, entry, KILN__GENERIC_JUMP, access->jump);
    generic_put(table, entry, KILN__GENERIC_EXTENT,
                access->extent < INT32_MAX ? (int64_t)access->extent : INT32_MAX);
    for (uint32_t d = 0; d < table->group->shape.rank; d++)
        generic_put(table, entry, KILN__GENERIC_STRIDES + (int)d, access->stride[d]);
}

/* What a store is of: all that is visited, in the order of a value's dimensions, or kept elements.
 */
static void strides_of(const struct kiln__group *group, const struct kiln__store *store,
                       int64_t stride[KILN_MAX_RANK])
{
    struct kiln__shape shape = group->shape;
    int64_t own[KILN_MAX_RANK] = {0};
    uint32_t at[KILN_MAX_RANK];
    memset(stride, 0, KILN_MAX_RANK * sizeof *stride);
    if (store->placed) {
        memcpy(stride, store->stride, KILN_MAX_RANK * sizeof *stride);
    } else if (store->full && kiln__group_reduces(group)) {
        shape = kiln__group_visited(group);
        kiln__shape_strides(&shape, own);
        kiln__group_order(group, at);
        for (uint32_t d = 0; d < shape.rank; d++)
            stride[at[d]] = own[d];
    } else {
        shape.rank = group->kept;
        kiln__shape_strides(&shape, stride);
    }
}

static void add_store(struct table *table, const struct kiln__store *store)
{
    size_t entry = add_entry(table, KILN__GENERIC_STORE_INTS);
    int64_t stride[KILN_MAX_RANK];
    strides_of(table->group, store, stride);
    generic_put(table, entry, KILN__GENERIC_INTO, memory_of(table, store->node));
    generic_put(table, entry, KILN__GENERIC_START, store->placed ? store->offset : 0);
    generic_put(table, entry, KILN__GENERIC_OF, store->step);
    generic_put(table, entry, KILN__GENERIC_AS, table->group->steps.items[store->step].type);
    generic_put(table, entry, KILN__GENERIC_FULL, store->full);
    for (uint32_t d = 0; d < table->group->shape.rank; d++)
        generic_put(table, entry, KILN__GENERIC_STEPS_OF + (int)d, stride[d]);
}

static size_t count_items(const struct kiln__group *group)
{
    size_t items = 1;
    for (uint32_t d = 0; d < group->kept; d++)
        items *= group->shape.dims[d];
    return items;
}

static void add_attention(struct table *table, size_t head)
{
    const struct kiln__graph *graph = &table->plan->fusion.graph;
    const struct kiln__node *node = &graph->nodes.items[table->group->nodes.items[0]];
    const struct kiln__attention_size size = attention_of(table->plan, table->group);
    generic_put(table, head, KILN__GENERIC_ATTENDS, true);
    generic_put(table, head, KILN__GENERIC_KEYS, (int64_t)size.n);
    generic_put(table, head, KILN__GENERIC_DEPTH, (int64_t)size.d);
    generic_put(table, head, KILN__GENERIC_SCALE, bits_of(KILN_F32, node->attention.scale));
    generic_put(table, head, KILN__GENERIC_DIAGONAL, kiln__attention_diagonal(node, &size));
    generic_put(table, head, KILN__GENERIC_LENGTHS, kiln__attention_lengths(node));
    if (kiln__attention_is_masked(node))
        generic_put(table, head, KILN__GENERIC_MASK,
                    kiln__graph_input(graph, node, KILN__MASK)->type);
}

static void make_table(struct table *table, size_t items)
{
    const struct kiln__group *group = table->group;
    uint32_t rank = group->shape.rank ? group->shape.rank : 1;
    size_t head = add_entry(table, KILN__GENERIC_HEAD_INTS);
    generic_put(table, head, KILN__GENERIC_ITEMS, (int64_t)items);
    generic_put(table, head, KILN__GENERIC_RANK, rank);
    generic_put(table, head, KILN__GENERIC_KEPT, group->shape.rank ? group->kept : 1);
    generic_put(table, head, KILN__GENERIC_STORES, (int64_t)group->stores.count);
    generic_put(table, head, KILN__GENERIC_PLAIN,
                group->kind == KILN__GROUP_MATMUL && is_plain(group));
    if (group->kind == KILN__GROUP_ATTENTION)
        add_attention(table, head);
    generic_put(table, head, KILN__GENERIC_DIMS_AT, (int64_t)table->launch->table.count);
    size_t dims = add_entry(table, rank);
    for (uint32_t d = 0; d < rank; d++)
        generic_put(table, dims, (int)d, group->shape.rank ? (int64_t)group->shape.dims[d] : 1);
    generic_put(table, head, KILN__GENERIC_PHASES_AT, (int64_t)table->launch->table.count);
    generic_put(table, head, KILN__GENERIC_PHASES, (int64_t)add_phases(table));
    generic_put(table, head, KILN__GENERIC_STEPS_AT, (int64_t)table->launch->table.count);
    for (size_t i = 0; i < group->steps.count; i++)
        add_step(table, i);
    generic_put(table, head, KILN__GENERIC_ACCESSES_AT, (int64_t)table->launch->table.count);
    for (size_t i = 0; i < group->accesses.count; i++)
        add_access(table, &group->accesses.items[i]);
    generic_put(table, head, KILN__GENERIC_STORES_AT, (int64_t)table->launch->table.count);
    for (size_t k = 0; k < group->stores.count; k++)
        add_store(table, &group->stores.items[k]);
}

/* ---- launches ---- */

/* The last memory once more for those that the group does not need. */
static void add_arguments(struct table *table)
{
    for (unsigned i = 0; i < KILN__GENERIC_MEMORIES; i++) {
        uint32_t slot = table->slots[i < table->memories ? i : table->memories - 1];
        kiln__launch_memory(table->launch, slot);
        kiln__launch_offset(table->launch, slot, 0, 1);
    }
    kiln__launch_table(table->launch);
}

void kiln__lower_generic(struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    const struct kiln__device *device = kiln__plan_device(plan, group);
    const struct kiln__traits *traits = device->traits;
    size_t items = count_items(group);
    if (items == 0 || (group->kind == KILN__GROUP_ROWS && group->reduced == 0))
        return;
    struct kiln__launch launch = {.source = KILN__SOURCE_TEMPLATE,
                                  .group = index,
                                  .file = "generic",
                                  .kernel = "kiln_generic"};
    struct table table = {.plan = plan, .group = group, .launch = &launch};
    launch.variant = (struct kiln__variant){
        .generic = true, .vector = 1, .wide = true, .chunked = traits->chunked};
    kiln__variant_arithmetic(device, &launch.variant);
    while (!traits->chunked && 1u << launch.variant.work_group < traits->work_group)
        launch.variant.work_group++;
    table.memories = list_memories(plan, group, table.slots);
    make_table(&table, items);
    add_arguments(&table);
    kiln__launch_line(items < MOST_ITEMS ? items : MOST_ITEMS, &launch);
    if (traits->chunked && launch.global[0] > traits->chunks)
        launch.global[0] = traits->chunks;
    kiln__plan_launch(plan, &launch);
}

/* ---- how long it takes ---- */

uint64_t kiln__generic_work(const struct kiln__plan *plan, uint32_t index)
{
    const struct kiln__group *group = &plan->fusion.groups.items[index];
    size_t items = count_items(group);
    const struct kiln__device *device = kiln__plan_device(plan, group);
    uint64_t steps = 0, lanes = device->traits->chunked
                                    ? device->info.compute_units
                                    : (uint64_t)device->info.compute_units * 256;
    if (!can_lower(plan, group))
        return 0;
    for (size_t i = 0; i < group->steps.count; i++) {
        uint8_t kind = group->steps.items[i].kind;
        if (kind == KILN__STEP_PRODUCT && is_plain(group))
            steps += group->reduced / 4;
        else if (kind == KILN__STEP_REDUCED || kind == KILN__STEP_PRODUCT)
            steps += group->reduced * (i + 1);
    }
    if (group->kind == KILN__GROUP_ATTENTION)
        steps += attention_of(plan, group).n * (attention_of(plan, group).d / 4 + 4);
    steps += group->steps.count * (group->kind == KILN__GROUP_ROWS ? group->reduced : 1);
    lanes = lanes && lanes < items ? lanes : items;
    return (steps + 1) * kiln__divide_up(items, lanes ? lanes : 1) + 1;
}
