/* SPDX-License-Identifier: Apache-2.0 */
/* Interpreter of groups on the host: each kind element by element, from its steps, accesses and
 * stores. */
#include "interpret_groups.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/bounds.h"

/* ---- steps ---- */

static int64_t position(const int64_t *stride, int64_t offset, const size_t *index, uint32_t rank)
{
    for (uint32_t d = 0; d < rank; d++)
        offset += stride[d] * (int64_t)index[d];
    return offset;
}

static double gather(struct machine *machine, const struct kiln__access *access, int64_t at,
                     double where, kiln_type type)
{
    if (!(where >= 0 && where < (double)access->extent))
        return kiln__type_row(type)->floating ? NAN : 0;
    return interpret_fetch(machine, access->node, at + (int64_t)where * access->jump);
}

/* What access `number` of the group says of `index`, if it has one. */
static const struct kiln__access *find_access(struct machine *machine,
                                              const struct kiln__group *group, size_t number)
{
    if (number < group->accesses.count)
        return &group->accesses.items[number];
    interpret_complain(machine, "access %zu of a group that has %zu", number,
                       group->accesses.count);
    return NULL;
}

/* Step `i` at one element; `values` holds those of each step, `apart` from one step to the next. */
static double evaluate(struct machine *machine, const struct kiln__group *group, size_t i,
                       const size_t *index, const double *values, size_t apart)
{
    const struct kiln__step *step = &group->steps.items[i];
    const kiln_type type = (kiln_type)step->type;
    const struct kiln__access *access = NULL;
    double operand[3] = {0};
    int64_t at = 0;
    for (unsigned k = 0; k < step->n_args; k++)
        operand[k] = step->args[k] < i ? values[step->args[k] * apart] : NAN;
    if (step->kind == KILN__STEP_LOAD || step->kind == KILN__STEP_NUMBER ||
        step->kind == KILN__STEP_GATHER) {
        access = find_access(machine, group, step->index);
        if (!access)
            return NAN;
        at = position(access->stride, access->offset, index, group->shape.rank);
    }
    switch ((enum kiln__step_kind)step->kind) {
    case KILN__STEP_LOAD: return interpret_fetch(machine, access->node, at);
    case KILN__STEP_SCALAR: return group->scalars.items[step->index];
    case KILN__STEP_APPLY: {
        kiln_type last = (kiln_type)group->steps.items[step->args[step->n_args - 1]].type;
        return kiln__elementwise_value((enum kiln__elementwise)step->op, last, operand);
    }
    case KILN__STEP_CONVERT:
        return kiln__value_cast(group->steps.items[step->args[0]].type, type, operand[0],
                                step->op == KILN__CAST_SATURATED);
    case KILN__STEP_NUMBER: return (double)at;
    case KILN__STEP_GATHER: return gather(machine, access, at, operand[0], type);
    case KILN__STEP_REDUCED:
    case KILN__STEP_SCANNED:
    case KILN__STEP_PRODUCT: interpret_complain(machine, "step v%zu where it cannot be", i);
    }
    return NAN;
}

static void evaluate_all(struct machine *machine, const struct kiln__group *group, size_t from,
                         const size_t *index, double *values)
{
    for (size_t i = from; i < group->steps.count; i++)
        values[i] = evaluate(machine, group, i, index, values, 1);
}

/* `count` values as a REDUCED step makes one of them. */
static double reduce(const struct kiln__group *group, const struct kiln__step *step,
                     const double *values, size_t count)
{
    const struct kiln__reduce_row *row = &kiln__reduce_rows[step->op];
    kiln_type from = (kiln_type)group->steps.items[step->args[0]].type;
    const enum kiln__reduction op = (enum kiln__reduction)step->op;
    double best = kiln__identity_value((enum kiln__identity)row->identity,
                                       kiln__reduce_accumulator(row, from));
    double place = 0;
    for (size_t i = 0; i < count; i++) {
        double combined = kiln__reduce_combine(op, from, best, values[i]);
        if (row->indexed && combined != 0)
            place = (double)i;
        if (!row->indexed || combined != 0)
            best = row->indexed ? values[i] : combined;
    }
    return row->indexed ? place : kiln__reduce_finish(op, from, best, (double)count);
}

/* ---- groups ---- */

static size_t count_dims(const struct kiln__shape *shape, uint32_t from, uint32_t to)
{
    size_t count = 1;
    for (uint32_t d = from; d < to; d++)
        count *= shape->dims[d];
    return count;
}

static void store_all(struct machine *machine, const struct kiln__group *group, const size_t *index,
                      size_t number, const double *values)
{
    for (size_t k = 0; k < group->stores.count; k++) {
        const struct kiln__store *store = &group->stores.items[k];
        int64_t at = store->placed
                         ? position(store->stride, store->offset, index, group->shape.rank)
                         : (int64_t)number;
        if (store->position) {
            const double where = values[store->position - 1];
            if (!(where >= 0 && where < (double)store->extent))
                continue;
            at += (int64_t)where * store->jump;
        }
        interpret_put(machine, store->node, at, values[store->step]);
    }
}

static size_t turned(const struct machine *machine, size_t i, size_t count)
{
    return machine->backwards ? count - 1 - i : i;
}

static void run_map(struct machine *machine, const struct kiln__group *group)
{
    size_t count = kiln__shape_count(&group->shape), index[KILN_MAX_RANK];
    double *values = interpret_room(group->steps.count);
    for (size_t i = 0; i < count && !machine->wrong[0]; i++) {
        size_t number = turned(machine, i, count);
        kiln__shape_indices(&group->shape, number, index);
        evaluate_all(machine, group, 0, index, values);
        store_all(machine, group, index, number, values);
    }
    free(values);
}

static void run_reduce(struct machine *machine, const struct kiln__group *group)
{
    size_t kept = count_dims(&group->shape, 0, group->kept), index[KILN_MAX_RANK] = {0};
    size_t reduced = count_dims(&group->shape, group->kept, group->shape.rank);
    const struct kiln__step *step = &group->steps.items[group->reduced_step];
    double *values = interpret_room(group->steps.count), *reducing = interpret_room(reduced);
    for (size_t i = 0; i < kept && !machine->wrong[0]; i++) {
        size_t number = turned(machine, i, kept);
        for (size_t r = 0; r < reduced; r++) {
            kiln__shape_indices(&group->shape, number * reduced + r, index);
            for (size_t s = 0; s < group->reduced_step; s++)
                values[s] = evaluate(machine, group, s, index, values, 1);
            reducing[r] = values[step->args[0]];
        }
        struct kiln__shape shape = {.rank = group->kept};
        memcpy(shape.dims, group->shape.dims, sizeof shape.dims);
        memset(index, 0, sizeof index);
        kiln__shape_indices(&shape, number, index);
        values[group->reduced_step] = reduce(group, step, reducing, reduced);
        evaluate_all(machine, group, group->reduced_step + 1u, index, values);
        store_all(machine, group, index, number, values);
    }
    free(values);
    free(reducing);
}

/* The sums of a row of values, from its first element on or from its last. */
static void scan(const struct kiln__step *step, kiln_type from, const double *values, size_t length,
                 double *sums)
{
    double sum = 0;
    for (size_t i = 0; i < length; i++) {
        size_t at = step->op == KILN__SCAN_BACKWARD ? length - 1 - i : i;
        sum = kiln__reduce_combine(KILN__REDUCE_sum, from, sum, values[at]);
        sums[at] = sum;
    }
}

/* All elements of a row of one step after the other: phases only say when they are computed. */
static void compute_row(struct machine *machine, const struct kiln__group *group, size_t row,
                        size_t length, double *values)
{
    size_t index[KILN_MAX_RANK];
    for (size_t s = 0; s < group->steps.count; s++) {
        const struct kiln__step *step = &group->steps.items[s];
        if (step->kind == KILN__STEP_SCANNED) {
            scan(step, group->steps.items[step->args[0]].type, values + step->args[0] * length,
                 length, values + s * length);
            continue;
        }
        for (size_t e = 0; e < length; e++) {
            double *value = &values[s * length + e];
            if (step->kind == KILN__STEP_REDUCED) {
                *value =
                    e ? value[-1] : reduce(group, step, values + step->args[0] * length, length);
                continue;
            }
            kiln__shape_indices(&group->shape, row * length + e, index);
            *value = evaluate(machine, group, s, index, values + e, length);
        }
    }
}

static void run_rows(struct machine *machine, const struct kiln__group *group)
{
    size_t rows = count_dims(&group->shape, 0, group->kept);
    size_t length = count_dims(&group->shape, group->kept, group->shape.rank);
    double *values = interpret_room(group->steps.count * length);
    const struct kiln__shape visited = kiln__group_visited(group);
    int64_t own[KILN_MAX_RANK], stride[KILN_MAX_RANK];
    uint32_t at[KILN_MAX_RANK];
    kiln__shape_strides(&visited, own);
    kiln__group_order(group, at);
    for (uint32_t d = 0; d < visited.rank; d++)
        stride[at[d]] = own[d];
    for (size_t i = 0; i < rows && length && !machine->wrong[0]; i++) {
        size_t row = turned(machine, i, rows);
        compute_row(machine, group, row, length, values);
        for (size_t k = 0; k < group->stores.count; k++) {
            const struct kiln__store *store = &group->stores.items[k];
            for (size_t e = 0; e < (store->full ? length : 1); e++) {
                size_t index[KILN_MAX_RANK];
                kiln__shape_indices(&group->shape, row * length + e, index);
                interpret_put(machine, store->node,
                              store->full ? position(stride, 0, index, visited.rank) : (int64_t)row,
                              values[store->step * length + e]);
            }
        }
    }
    free(values);
}

/* What an operand of a product has at an element of its own. */
static double read_operand(struct machine *machine, const struct kiln__group *group, unsigned k,
                           const size_t *index, double *values)
{
    const struct kiln__operand operand = kiln__group_operand(group, k);
    for (size_t s = operand.first; s <= operand.value; s++)
        values[s] = evaluate(machine, group, s, index, values, 1);
    return values[operand.value];
}

/* Element `index` of the product. */
static double multiply(struct machine *machine, const struct kiln__group *group,
                       const size_t *index, double *values)
{
    uint32_t rank = group->shape.rank;
    size_t at_a[KILN_MAX_RANK], at_b[KILN_MAX_RANK];
    double sum = 0;
    memcpy(at_a, index, sizeof at_a);
    memcpy(at_b, index, sizeof at_b);
    for (size_t q = 0; q < group->reduced; q++) {
        at_a[rank - 1] = at_b[rank - 2] = q;
        sum += read_operand(machine, group, 0, at_a, values) *
               read_operand(machine, group, 1, at_b, values);
    }
    return sum;
}

static void run_matmul(struct machine *machine, const struct kiln__group *group)
{
    size_t count = kiln__shape_count(&group->shape), index[KILN_MAX_RANK];
    const size_t product = group->reduced_step;
    if (group->steps.count <= product || group->steps.items[product].kind != KILN__STEP_PRODUCT) {
        interpret_complain(machine, "a matmul group whose step v%zu is no product", product);
        return;
    }
    double *values = interpret_room(group->steps.count);
    for (size_t i = 0; i < count && !machine->wrong[0]; i++) {
        size_t number = turned(machine, i, count);
        kiln__shape_indices(&group->shape, number, index);
        values[product] = multiply(machine, group, index, values);
        evaluate_all(machine, group, product + 1, index, values);
        store_all(machine, group, index, number, values);
    }
    free(values);
}

/* Input `k` of a node with a kernel of its own: through its access; what is below a scatter: what
 * the node's memory has by then. */
static double *read_input(struct machine *machine, const struct kiln__group *group, unsigned k,
                          const struct kiln__shape *shape)
{
    size_t count = kiln__shape_count(shape), index[KILN_MAX_RANK];
    double *values = interpret_room(count);
    bool base = group->kind == KILN__GROUP_SCATTER && k == KILN__SCATTER_BASE;
    const struct kiln__access *access = base ? NULL : find_access(machine, group, k);
    for (size_t i = 0; i < count && !machine->wrong[0]; i++) {
        kiln__shape_indices(shape, i, index);
        values[i] =
            base ? interpret_fetch(machine, group->stores.items[0].node, (int64_t)i)
                 : interpret_fetch(machine, access->node,
                                   position(access->stride, access->offset, index, shape->rank));
    }
    return values;
}

/* A node of the group, as the reference computes it from inputs that the group finds. */
static void run_node(struct machine *machine, const struct kiln__group *group, size_t number)
{
    const struct kiln__store *store = &group->stores.items[number];
    struct kiln__node node = *interpret_node(machine, group->nodes.items[number]);
    size_t index[KILN_MAX_RANK];
    struct kiln__graph graph = {0};
    double *values[KILN__MOST_INPUTS + 1] = {0}, *result = interpret_room(kiln__node_count(&node));
    uint32_t own;
    for (unsigned k = 0; k < node.n_inputs; k++) {
        struct kiln__node input = {.kind = KILN__UPLOAD};
        input.type = interpret_node(machine, node.input[k])->type;
        input.shape = interpret_node(machine, node.input[k])->shape;
        cr_assert(kiln__graph_add(&graph, &input, &node.input[k]));
        values[k] = read_input(machine, group, k, &input.shape);
    }
    cr_assert(kiln__graph_add(&graph, &node, &own));
    struct kiln__reference given = {values, own};
    cr_assert(kiln__reference_node(&graph, own, NULL, &given, result));
    for (size_t i = 0; i < kiln__node_count(&node); i++) {
        kiln__shape_indices(&node.shape, i, index);
        int64_t at = store->placed ? position(store->stride, store->offset, index, node.shape.rank)
                                   : (int64_t)i;
        interpret_put(machine, store->node, at, result[i]);
    }
    for (unsigned k = 0; k < node.n_inputs; k++)
        free(values[k]);
    free(result);
    kiln__graph_free(&graph);
}

static void run_whole(struct machine *machine, const struct kiln__group *group)
{
    for (size_t i = 0; i < group->stores.count; i++)
        run_node(machine, group, i);
}

void interpret_group(struct machine *machine, size_t number)
{
    static void (*const run[])(struct machine *, const struct kiln__group *) = {
        [KILN__GROUP_MAP] = run_map,         [KILN__GROUP_REDUCE] = run_reduce,
        [KILN__GROUP_ROWS] = run_rows,       [KILN__GROUP_MATMUL] = run_matmul,
        [KILN__GROUP_ATTENTION] = run_whole, [KILN__GROUP_SCATTER] = run_whole,
        [KILN__GROUP_SORT] = run_whole,      [KILN__GROUP_ATTENTION_BACKWARD] = run_whole,
        [KILN__GROUP_CUSTOM] = run_whole,
    };
    const struct kiln__group *group = &machine->fusion->groups.items[number];
    if (group->stores.count)
        run[group->kind](machine, group);
}
