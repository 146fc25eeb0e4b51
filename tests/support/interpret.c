/* SPDX-License-Identifier: Apache-2.0 */
#include "interpret.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/bounds.h"
#include "session/compile.h"
#include "session/context.h"

/* Where a node is: `step` cells per element, as many as it has bytes where memory is shared. */
struct memory {
    double *cells;
    size_t step, count;
    const double *seen; /* what a launch before this one found in them; or NULL */
};

/* What a group stores, until its last launch. */
struct pending {
    KILN__VECTOR(struct write {
        struct memory *memory;
        size_t number;
        double value;
    })
    writes;
    double *seen[KILN__MOST_ACCESSES]; /* per access: what it read, once a launch has done so */
    size_t launches;                   /* still to come */
    bool begun;
};

struct machine {
    const struct kiln__fusion *fusion;
    struct memory *memory;   /* per node */
    bool backwards;          /* elements are visited from the last one on */
    struct pending *pending; /* where stores wait; NULL: they do not */
    char wrong[200];         /* the first thing that must not be; empty: nothing */
};

static const struct kiln__node *node_at(const struct machine *machine, uint32_t index)
{
    return &machine->fusion->graph.nodes.items[index];
}

static void __attribute__((format(printf, 2, 3)))
complain(struct machine *machine, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!machine->wrong[0])
        vsnprintf(machine->wrong, sizeof machine->wrong, format, arguments);
    va_end(arguments);
}

static double *room(size_t count)
{
    double *values = malloc((count + 1) * sizeof *values);
    cr_assert(values);
    for (size_t i = 0; i < count; i++)
        values[i] = NAN;
    return values;
}

/* ---- memory ---- */

static bool is_there(struct machine *machine, uint32_t node, int64_t number, const char *what)
{
    if (node >= machine->fusion->graph.nodes.count) {
        complain(machine, "%s %%%u, which is no node", what, node);
        return false;
    }
    const struct memory *memory = &machine->memory[node];
    if (memory->cells && number >= 0 && (size_t)number < memory->count)
        return true;
    complain(machine, "%s element %lld of %%%u, which has %zu in memory", what, (long long)number,
             node, memory->cells ? memory->count : 0);
    return false;
}

static double fetch(struct machine *machine, uint32_t node, int64_t number)
{
    if (!is_there(machine, node, number, "load of"))
        return NAN;
    const struct memory *memory = &machine->memory[node];
    return (memory->seen ? memory->seen : memory->cells)[(size_t)number * memory->step];
}

/* What lay in an element's other bytes is gone. */
static void commit(const struct write *write)
{
    double *cells = write->memory->cells + write->number * write->memory->step;
    cells[0] = write->value;
    for (size_t i = 1; i < write->memory->step; i++)
        cells[i] = NAN;
}

static void put(struct machine *machine, uint32_t node, int64_t number, double value)
{
    if (!is_there(machine, node, number, "store to"))
        return;
    struct write write = {&machine->memory[node], (size_t)number, value};
    if (!machine->pending) {
        commit(&write);
        return;
    }
    struct write *place = kiln__vector_push(&machine->pending->writes);
    cr_assert(place);
    *place = write;
}

static void commit_all(struct pending *pending)
{
    for (size_t i = 0; i < pending->writes.count; i++)
        commit(&pending->writes.items[i]);
    kiln__vector_free(&pending->writes);
}

/* ---- steps ---- */

static double wrap(kiln_type type, double value)
{
    const struct kiln__type_row *row = kiln__type_row(type);
    if (row->floating || (value >= row->lowest && value <= row->highest))
        return value;
    double count = row->highest - row->lowest + 1;
    return value - floor((value - row->lowest) / count) * count;
}

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
    return fetch(machine, access->node, at + (int64_t)where * access->jump);
}

/* What access `number` of the group says of `index`, if it has one. */
static const struct kiln__access *find_access(struct machine *machine,
                                              const struct kiln__group *group, size_t number)
{
    if (number < group->accesses.count)
        return &group->accesses.items[number];
    complain(machine, "access %zu of a group that has %zu", number, group->accesses.count);
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
    case KILN__STEP_LOAD: return fetch(machine, access->node, at);
    case KILN__STEP_SCALAR: return group->scalars.items[step->index];
    case KILN__STEP_APPLY: {
        kiln_type last = (kiln_type)group->steps.items[step->args[step->n_args - 1]].type;
        return wrap(type, kiln__elementwise_rows[step->op].host(operand[0], operand[1], operand[2],
                                                                !kiln__type_row(last)->floating));
    }
    case KILN__STEP_CONVERT:
        return type == KILN_F32 ? operand[0] : kiln__type_round(type, operand[0]);
    case KILN__STEP_NUMBER: return (double)at;
    case KILN__STEP_GATHER: return gather(machine, access, at, operand[0], type);
    case KILN__STEP_REDUCED:
    case KILN__STEP_SCANNED:
    case KILN__STEP_PRODUCT: complain(machine, "step v%zu where it cannot be", i);
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
    double best = kiln__identity_value((enum kiln__identity)row->identity, from);
    double place = 0;
    for (size_t i = 0; i < count; i++) {
        double combined = row->host_combine(best, values[i]);
        if (row->indexed && combined != 0)
            place = (double)i;
        if (!row->indexed || combined != 0)
            best = row->indexed ? values[i] : combined;
    }
    return row->indexed ? place
                        : wrap((kiln_type)step->type, row->host_finish(best, (double)count));
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
        put(machine, store->node, at, values[store->step]);
    }
}

static size_t turned(const struct machine *machine, size_t i, size_t count)
{
    return machine->backwards ? count - 1 - i : i;
}

static void run_map(struct machine *machine, const struct kiln__group *group)
{
    size_t count = kiln__shape_count(&group->shape), index[KILN_MAX_RANK];
    double *values = room(group->steps.count);
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
    double *values = room(group->steps.count), *reducing = room(reduced);
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
static void scan(const struct kiln__step *step, const double *values, size_t length, double *sums)
{
    double sum = 0;
    for (size_t i = 0; i < length; i++) {
        size_t at = step->op == KILN__SCAN_BACKWARD ? length - 1 - i : i;
        sum = wrap((kiln_type)step->type, sum + values[at]);
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
            scan(step, values + step->args[0] * length, length, values + s * length);
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
    double *values = room(group->steps.count * length);
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
                put(machine, store->node,
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
        complain(machine, "a matmul group whose step v%zu is no product", product);
        return;
    }
    double *values = room(group->steps.count);
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
    double *values = room(count);
    bool base = group->kind == KILN__GROUP_SCATTER && k == KILN__SCATTER_BASE;
    const struct kiln__access *access = base ? NULL : find_access(machine, group, k);
    for (size_t i = 0; i < count && !machine->wrong[0]; i++) {
        kiln__shape_indices(shape, i, index);
        values[i] = base ? fetch(machine, group->stores.items[0].node, (int64_t)i)
                         : fetch(machine, access->node,
                                 position(access->stride, access->offset, index, shape->rank));
    }
    return values;
}

/* The one node of the group, as the reference computes it from inputs that the group finds. */
static void run_whole(struct machine *machine, const struct kiln__group *group)
{
    struct kiln__node node = *node_at(machine, group->stores.items[0].node);
    struct kiln__graph graph = {0};
    double *values[KILN__MOST_INPUTS + 1] = {0}, *result = room(kiln__node_count(&node));
    uint32_t own;
    for (unsigned k = 0; k < node.n_inputs; k++) {
        struct kiln__node input = {.kind = KILN__UPLOAD};
        input.type = node_at(machine, node.input[k])->type;
        input.shape = node_at(machine, node.input[k])->shape;
        cr_assert(kiln__graph_add(&graph, &input, &node.input[k]));
        values[k] = read_input(machine, group, k, &input.shape);
    }
    cr_assert(kiln__graph_add(&graph, &node, &own));
    struct kiln__reference given = {values, own};
    cr_assert(kiln__reference_node(&graph, own, NULL, &given, result));
    for (size_t i = 0; i < kiln__node_count(&node); i++)
        put(machine, group->stores.items[0].node, (int64_t)i, result[i]);
    for (unsigned k = 0; k < node.n_inputs; k++)
        free(values[k]);
    free(result);
    kiln__graph_free(&graph);
}

static void run_group(struct machine *machine, size_t number)
{
    static void (*const run[])(struct machine *, const struct kiln__group *) = {
        [KILN__GROUP_MAP] = run_map,         [KILN__GROUP_REDUCE] = run_reduce,
        [KILN__GROUP_ROWS] = run_rows,       [KILN__GROUP_MATMUL] = run_matmul,
        [KILN__GROUP_ATTENTION] = run_whole, [KILN__GROUP_SCATTER] = run_whole,
    };
    const struct kiln__group *group = &machine->fusion->groups.items[number];
    if (group->stores.count)
        run[group->kind](machine, group);
}

/* ---- a fusion ---- */

static double *load_input(const struct kiln__node *node, const void *data)
{
    size_t count = kiln__node_count(node), bytes = kiln_type_size((kiln_type)node->type);
    double *values = room(count);
    for (size_t i = 0; i < count; i++)
        values[i] = kiln__type_load((kiln_type)node->type, (const char *)data + i * bytes);
    return values;
}

/* What was made along the way. */
struct heap {
    KILN__VECTOR(double *) blocks;
};

static double *keep(struct heap *heap, double *values)
{
    double **place = kiln__vector_push(&heap->blocks);
    cr_assert(place);
    return *place = values;
}

static void free_heap(struct heap *heap)
{
    for (size_t i = 0; i < heap->blocks.count; i++)
        free(heap->blocks.items[i]);
    kiln__vector_free(&heap->blocks);
}

/* Of each request a place for its elements. */
static double **make_results(const struct kiln__graph *graph, struct heap *heap)
{
    double **results = calloc(graph->requests.count + 1, sizeof *results);
    cr_assert(results);
    for (size_t i = 0; i < graph->requests.count; i++)
        results[i] =
            keep(heap, room(kiln__node_count(&graph->nodes.items[graph->requests.items[i].node])));
    return results;
}

/* Groups in their order, a memory for each value but those that a later one takes over. */
static double **run_fusion(struct machine *machine, const void *const *inputs, struct heap *heap)
{
    const struct kiln__fusion *fusion = machine->fusion;
    const struct kiln__graph *graph = &fusion->graph;
    for (size_t i = graph->nodes.count; i-- > 0;) {
        const struct kiln__node *node = &graph->nodes.items[i];
        size_t count = kiln__node_count(node);
        if (fusion->heir[i] != KILN__NO_HEIR)
            machine->memory[i] = machine->memory[fusion->heir[i]];
        else if (kiln__node_is_input(node))
            machine->memory[i] = (struct memory){
                keep(heap, load_input(node, inputs[node->binding])), 1, count, NULL};
        else if (fusion->stored[i])
            machine->memory[i] = (struct memory){keep(heap, room(count)), 1, count, NULL};
    }
    for (size_t g = 0; g < fusion->groups.count; g++)
        run_group(machine, g);
    double **results = make_results(graph, heap);
    for (size_t i = 0; i < graph->requests.count; i++) {
        uint32_t node = graph->requests.items[i].node;
        for (size_t e = 0; e < kiln__node_count(&graph->nodes.items[node]); e++)
            results[i][e] = fetch(machine, node, (int64_t)e);
    }
    return results;
}

/* ---- a plan ---- */

/* Working memory of a launch holds nothing of anyone else's. */
static void spoil_scratch(const struct kiln__plan *plan, const struct kiln__launch *launch,
                          double *arena)
{
    for (size_t k = 0; k < launch->arguments.count; k++) {
        const struct kiln__argument *argument = &launch->arguments.items[k];
        if (argument->kind != KILN__ARGUMENT_MEMORY)
            continue;
        const struct kiln__slot *slot = &plan->slots.items[argument->slot];
        for (size_t i = 0; slot->node == KILN__SCRATCH && i < slot->bytes; i++)
            arena[slot->offset + i] = NAN;
    }
}

/* Whether the launch has this memory for an argument, under whatever slot. */
static bool names(const struct machine *machine, const struct kiln__plan *plan,
                  const struct kiln__launch *launch, const struct memory *memory)
{
    for (uint32_t i = 0; i < plan->slots.count; i++)
        if (plan->slots.items[i].node != KILN__SCRATCH &&
            machine->memory[plan->slots.items[i].node].cells == memory->cells &&
            kiln__launch_names(launch, i))
            return true;
    return false;
}

/* What a launch reads is what others of its group have read there. */
static void look(struct machine *machine, const struct kiln__plan *plan,
                 const struct kiln__launch *launch, struct pending *pending)
{
    const struct kiln__group *group = &machine->fusion->groups.items[launch->group];
    for (size_t i = 0; i < group->accesses.count; i++) {
        const struct memory *memory = &machine->memory[group->accesses.items[i].node];
        size_t cells = memory->count * memory->step;
        double **seen = &pending->seen[i];
        if (!memory->cells || !names(machine, plan, launch, memory))
            continue;
        if (*seen && memcmp(*seen, memory->cells, cells * sizeof **seen))
            complain(machine, "group %u: its launches do not read the same", launch->group);
        *seen = *seen ? *seen : room(cells);
        memcpy(*seen, memory->cells, cells * sizeof **seen);
    }
}

/* The group computes with what its launches have read, each what it names. */
static void run_seen(struct machine *machine, uint32_t number, struct pending *pending)
{
    const struct kiln__group *group = &machine->fusion->groups.items[number];
    for (size_t i = 0; i < group->accesses.count; i++)
        machine->memory[group->accesses.items[i].node].seen = pending->seen[i];
    machine->pending = pending;
    run_group(machine, number);
    machine->pending = NULL;
    for (size_t i = 0; i < group->accesses.count; i++) {
        machine->memory[group->accesses.items[i].node].seen = NULL;
        free(pending->seen[i]);
        pending->seen[i] = NULL;
    }
    commit_all(pending);
}

/* Of several launches of a group each may read what it names, and the last one stores; where there
 * is one alone it stores as it goes. */
static void run_launch(struct machine *machine, const struct kiln__plan *plan,
                       const struct kiln__launch *launch, struct pending *pending, double *arena)
{
    bool alone = pending->launches == 1 && !pending->begun;
    pending->begun = true;
    pending->launches--;
    spoil_scratch(plan, launch, arena);
    if (!alone)
        look(machine, plan, launch, pending);
    if (alone)
        run_group(machine, launch->group);
    else if (!pending->launches)
        run_seen(machine, launch->group, pending);
}

static void run_step(struct machine *machine, const struct kiln__plan *plan, size_t number,
                     struct pending *pending, double *arena, double **inputs, double **results)
{
    const struct kiln__plan_step *step = &plan->steps.items[number];
    if (step->kind == KILN__STEP_LAUNCH) {
        const struct kiln__launch *launch = &plan->launches.items[step->launch];
        run_launch(machine, plan, launch, &pending[launch->group], arena);
        return;
    }
    uint32_t node = plan->slots.items[step->slot].node;
    size_t count = kiln__node_count(node_at(machine, node));
    for (size_t i = 0; i < count; i++)
        if (step->kind == KILN__STEP_UPLOAD)
            put(machine, node, (int64_t)i, inputs[step->binding][i]);
        else
            results[step->binding][i] = fetch(machine, node, (int64_t)i);
}

static struct memory memory_of(const struct machine *machine, const struct kiln__slot *slot,
                               uint32_t node, double *arena, double **inputs, double **results)
{
    const struct kiln__node *value = node_at(machine, node);
    struct memory memory = {.step = 1, .count = kiln__node_count(value)};
    if (slot->place == KILN__PLACE_ARENA) {
        memory.cells = arena + slot->offset;
        memory.step = kiln_type_size((kiln_type)value->type);
    } else {
        memory.cells =
            slot->place == KILN__PLACE_INPUT ? inputs[slot->binding] : results[slot->binding];
    }
    return memory;
}

/* By their binding; NULL for those that the passes dropped. */
static double **load_inputs(const struct kiln__graph *graph, const void *const *given,
                            struct heap *heap)
{
    uint64_t count = 0;
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (kiln__node_is_input(&graph->nodes.items[i]) && graph->nodes.items[i].binding >= count)
            count = graph->nodes.items[i].binding + 1;
    for (size_t i = 0; i < graph->requests.count; i++)
        if (graph->requests.items[i].replaces > count)
            count = graph->requests.items[i].replaces;
    double **inputs = calloc(count + 1, sizeof *inputs);
    cr_assert(inputs);
    for (size_t i = 0; i < graph->nodes.count; i++) {
        const struct kiln__node *node = &graph->nodes.items[i];
        if (kiln__node_is_input(node))
            inputs[node->binding] = keep(heap, load_input(node, given[node->binding]));
    }
    return inputs;
}

static unsigned any(unsigned below)
{
    static unsigned seed = 12345;
    seed = seed * 1664525u + 1013904223u;
    return (unsigned)((uint64_t)seed * below >> 32);
}

/* Steps as they depend on each other, else in any order: of those that can be next, any. */
static void shuffle(const struct kiln__plan *plan, uint32_t *order)
{
    size_t count = plan->steps.count, ready = 0;
    uint32_t *missing = calloc(count + 1, sizeof *missing);
    cr_assert(missing);
    for (uint32_t i = 0; i < count; i++) {
        missing[i] = plan->steps.items[i].dependencies;
        if (!missing[i])
            order[ready++] = i;
    }
    for (size_t at = 0; at < count; at++) {
        cr_assert_lt(at, ready, "steps depend on each other in a circle");
        size_t other = at + any((unsigned)(ready - at));
        uint32_t next = order[other];
        order[other] = order[at];
        order[at] = next;
        for (uint32_t i = next + 1; i < count; i++) {
            const struct kiln__plan_step *step = &plan->steps.items[i];
            for (uint32_t k = 0; k < step->dependencies; k++)
                if (plan->dependencies.items[step->first_dependency + k] == next && !--missing[i])
                    order[ready++] = i;
        }
    }
    free(missing);
}

/* Steps one after the other; where elements are visited backwards, in an order of their own. */
static void run_steps(struct machine *machine, const struct kiln__plan *plan, double *arena,
                      double **inputs, double **results)
{
    uint32_t *order = calloc(plan->steps.count + 1, sizeof *order);
    struct pending *pending = calloc(plan->fusion.groups.count + 1, sizeof *pending);
    cr_assert(order && pending);
    for (uint32_t i = 0; i < plan->steps.count; i++)
        order[i] = i;
    for (size_t i = 0; i < plan->launches.count; i++)
        pending[plan->launches.items[i].group].launches++;
    if (machine->backwards)
        shuffle(plan, order);
    for (size_t i = 0; i < plan->steps.count; i++)
        run_step(machine, plan, order[i], pending, arena, inputs, results);
    free(order);
    free(pending);
}

/* A result that is computed in the buffer of an import is its memory. */
static double **run_plan(struct machine *machine, const struct kiln__plan *plan,
                         const void *const *given, struct heap *heap)
{
    const struct kiln__graph *graph = &plan->fusion.graph;
    double *arena = keep(heap, room(plan->arena_bytes)), **results = make_results(graph, heap);
    double **inputs = load_inputs(graph, given, heap);
    for (size_t i = 0; i < plan->slots.count; i++) {
        const struct kiln__slot *slot = &plan->slots.items[i];
        const struct kiln__request *request = &graph->requests.items[slot->binding];
        if (slot->place == KILN__PLACE_RESULT && slot->in_place && inputs[request->replaces - 1])
            results[slot->binding] = inputs[request->replaces - 1];
    }
    for (uint32_t i = 0; i < graph->nodes.count; i++)
        if (plan->slot_of[i] != KILN__NO_SLOT)
            machine->memory[i] =
                memory_of(machine, &plan->slots.items[plan->slot_of[i]], i, arena, inputs, results);
    run_steps(machine, plan, arena, inputs, results);
    free(inputs);
    return results;
}

/* ---- comparing ---- */

struct expectation {
    const struct kiln__graph *graph; /* as recorded */
    struct kiln__reference reference;
    struct kiln__bounds bounds;
};

static struct interpret_counts counts;

/* Folded constants are rounded to f32, as on a device: beyond that nothing differs. */
static bool is_close(double wanted, double error, double found)
{
    return fabs(found - wanted) <= 1e-9 * fabs(wanted) || kiln__bounds_allow(wanted, error, found);
}

static void compare(struct machine *machine, const struct expectation *expected, double **results)
{
    const struct kiln__graph *graph = expected->graph;
    for (size_t i = 0; i < graph->requests.count; i++) {
        uint32_t node = graph->requests.items[i].node;
        for (size_t e = 0; e < kiln__node_count(&graph->nodes.items[node]); e++) {
            double wanted = expected->reference.values[node][e], found = results[i][e];
            if (!is_close(wanted, expected->bounds.errors[node][e], found))
                complain(machine, "result %zu, %%%u %s, element %zu: %.9g is not %.9g", i, node,
                         kiln__node_name(&graph->nodes.items[node]), e, found, wanted);
        }
    }
}

static void show(const struct machine *machine, const struct kiln__graph *graph, const char *stage)
{
    struct kiln__text text = {0};
    kiln__graph_dump(graph, &text);
    for (size_t g = 0; g < machine->fusion->groups.count; g++) {
        kiln__text_add(&text, "group %zu: ", g);
        kiln__group_dump(&machine->fusion->groups.items[g], &text);
    }
    cr_log_warn("%s: %s\n%s", stage, machine->wrong, text.length < 12000 ? text.data : "");
    kiln__text_free(&text);
}

static bool run_both_ways(const struct expectation *expected, const struct kiln__fusion *fusion,
                          const struct kiln__plan *plan, const void *const *inputs,
                          const char *stage)
{
    bool right = true;
    for (int backwards = 0; backwards < 2 && right; backwards++) {
        struct heap heap = {0};
        struct machine machine = {.fusion = fusion, .backwards = backwards};
        machine.memory = calloc(fusion->graph.nodes.count + 1, sizeof *machine.memory);
        cr_assert(machine.memory);
        double **results =
            plan ? run_plan(&machine, plan, inputs, &heap) : run_fusion(&machine, inputs, &heap);
        compare(&machine, expected, results);
        right = !machine.wrong[0];
        if (!right)
            show(&machine, expected->graph, stage);
        counts.runs++;
        free(results);
        free_heap(&heap);
        free(machine.memory);
    }
    return right;
}

static bool check_plan(const struct expectation *expected, const void *const *inputs,
                       const struct kiln__device *device, bool shared)
{
    struct kiln__plan_options options = {.device = device, .shared = shared};
    struct kiln__plan plan;
    if (kiln__compile_plan(expected->graph, &options, NULL, &plan, NULL)) {
        struct kiln__text text = {0};
        kiln__graph_dump(expected->graph, &text);
        cr_log_warn("%s\n%s", kiln_last_error(), text.length < 12000 ? text.data : "");
        kiln__text_free(&text);
        return false;
    }
    bool right = shared || run_both_ways(expected, &plan.fusion, NULL, inputs, "the groups");
    right = right && run_both_ways(expected, &plan.fusion, &plan, inputs,
                                   shared ? "the plan with shared memory" : "the plan");
    kiln__plan_free(&plan);
    return right;
}

bool interpret_graph(const struct kiln__graph *graph, const void *const *inputs,
                     const struct kiln__device *device)
{
    struct expectation expected = {.graph = graph};
    cr_assert(kiln__reference_run(graph, inputs, &expected.reference));
    cr_assert(kiln__bounds_make(graph, &expected.reference, 0, &expected.bounds));
    bool right =
        check_plan(&expected, inputs, device, false) && check_plan(&expected, inputs, device, true);
    counts.graphs++;
    kiln__bounds_free(&expected.bounds);
    kiln__reference_free(&expected.reference);
    return right;
}

static bool interpret_uploads(const kiln_batch *batch, const struct kiln__graph *graph)
{
    size_t count = batch->bindings.inputs.count;
    const void **inputs = calloc(count + 1, sizeof *inputs);
    cr_assert(inputs);
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    for (size_t i = 0; i < count; i++)
        inputs[i] = batch->bindings.inputs.items[i].host;
    bool right = interpret_graph(graph, inputs, &batch->context->runtime.device);
    free(inputs);
    return right;
}

bool interpret_batch(const kiln_batch *batch)
{
    return interpret_uploads(batch, &batch->graph);
}

/* Have `request` replace an input that is like it. */
static bool replace_input(struct kiln__graph *graph, struct kiln__request *request)
{
    const struct kiln__node *made = &graph->nodes.items[request->node];
    for (size_t i = 0; i < graph->nodes.count && !kiln__node_is_input(made); i++) {
        struct kiln__node *node = &graph->nodes.items[i];
        if (node->kind != KILN__UPLOAD || node->type != made->type ||
            !kiln__shape_equal(&node->shape, &made->shape))
            continue;
        node->kind = KILN__IMPORT;
        request->kind = KILN__EXPORT;
        request->replaces = 1 + (uint32_t)node->binding;
        return true;
    }
    return false;
}

bool interpret_taken_over(const kiln_batch *batch)
{
    struct kiln__graph graph;
    bool right = true, replaced = false;
    cr_assert(kiln__graph_copy(&batch->graph, &graph));
    for (size_t i = 0; i < graph.requests.count; i++)
        replaced |= replace_input(&graph, &graph.requests.items[i]);
    if (replaced)
        right = interpret_uploads(batch, &graph);
    kiln__graph_free(&graph);
    return right;
}

struct interpret_counts interpret_counts(void)
{
    return counts;
}
