/* SPDX-License-Identifier: Apache-2.0 */
/* The machine of the interpreter: the memories of nodes, what waits to be stored, blocks that live
 * as long as a run. */
#include "interpret_machine.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const struct kiln__node *interpret_node(const struct machine *machine, uint32_t index)
{
    return &machine->fusion->graph.nodes.items[index];
}

void interpret_complain(struct machine *machine, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!machine->wrong[0])
        vsnprintf(machine->wrong, sizeof machine->wrong, format, arguments);
    va_end(arguments);
}

double *interpret_room(size_t count)
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
        interpret_complain(machine, "%s %%%u, which is no node", what, node);
        return false;
    }
    const struct memory *memory = &machine->memory[node];
    if (memory->cells && number >= 0 && (size_t)number < memory->count)
        return true;
    interpret_complain(machine, "%s element %lld of %%%u, which has %zu in memory", what,
                       (long long)number, node, memory->cells ? memory->count : 0);
    return false;
}

double interpret_fetch(struct machine *machine, uint32_t node, int64_t number)
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

void interpret_put(struct machine *machine, uint32_t node, int64_t number, double value)
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

void interpret_commit_all(struct pending *pending)
{
    for (size_t i = 0; i < pending->writes.count; i++)
        commit(&pending->writes.items[i]);
    kiln__vector_free(&pending->writes);
}

/* ---- blocks of a run ---- */

double *interpret_keep(struct heap *heap, double *values)
{
    double **place = kiln__vector_push(&heap->blocks);
    cr_assert(place);
    return *place = values;
}

void interpret_free_heap(struct heap *heap)
{
    for (size_t i = 0; i < heap->blocks.count; i++)
        free(heap->blocks.items[i]);
    kiln__vector_free(&heap->blocks);
}

double **interpret_results(const struct kiln__graph *graph, struct heap *heap)
{
    double **results = calloc(graph->requests.count + 1, sizeof *results);
    cr_assert(results);
    for (size_t i = 0; i < graph->requests.count; i++)
        results[i] = interpret_keep(heap, interpret_room(kiln__node_count(
                                              &graph->nodes.items[graph->requests.items[i].node])));
    return results;
}

double *interpret_input(const struct kiln__node *node, const void *data)
{
    size_t count = kiln__node_count(node), bytes = kiln_type_size((kiln_type)node->type);
    double *values = interpret_room(count);
    for (size_t i = 0; i < count; i++)
        values[i] = kiln__value_load(node->type, (const char *)data + i * bytes);
    return values;
}
