/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the arrays that nodes made are still read: those of values that nodes to come read, that
 * graphs give, or that loops keep. The rest is freed. */
#include <stdlib.h>

#include "onnx/record.h"

static void mark_node(const struct kiln__onnx_node *node, bool *read)
{
    for (size_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != KILN__ONNX_NONE)
            read[node->inputs[i]] = true;
    for (size_t i = 0; i < node->n_parts; i++)
        mark_node(&node->parts[i], read);
    for (size_t i = 0; i < node->n_graphs; i++)
        if (node->graphs[i])
            kiln__onnx_mark_read(node->graphs[i], 0, read);
}

void kiln__onnx_mark_read(const struct kiln__onnx_graph *graph, size_t from, bool *read)
{
    for (size_t i = from; i < graph->n_nodes; i++)
        if (graph->nodes[i].live)
            mark_node(&graph->nodes[i], read);
    for (size_t i = 0; i < graph->n_outputs; i++)
        read[graph->outputs[i]] = true;
}

typedef const struct kiln__onnx_host *array;

static int by_address(const void *a, const void *b)
{
    const array *x = a, *y = b;
    return (uintptr_t)*x < (uintptr_t)*y ? -1 : (uintptr_t)*x > (uintptr_t)*y;
}

/* The arrays of values that are read, by their addresses; the other values forget theirs. */
static size_t find_used(struct kiln__onnx_recorder *recorder, const bool *read, array *used)
{
    size_t n = 0;
    for (size_t v = 0; v < recorder->model->graphs.n_values; v++) {
        struct kiln__onnx_value *value = &recorder->values[v];
        if (!read[v])
            value->host = NULL;
        else if (value->host)
            used[n++] = value->host;
    }
    for (const struct kiln__onnx_frame *frame = recorder->frame; frame; frame = frame->outer)
        for (size_t i = 0; i < frame->n_held; i++)
            if (frame->kept[i].host)
                used[n++] = frame->kept[i].host;
    qsort(used, n, sizeof *used, by_address);
    return n;
}

static void free_others(struct kiln__onnx_recorder *recorder, size_t n, const array *used)
{
    struct kiln__onnx_host **link = &recorder->hosts;
    recorder->used = 0;
    while (*link) {
        struct kiln__onnx_host *host = *link;
        if (bsearch(&(array){host}, used, n, sizeof *used, by_address)) {
            recorder->used += kiln__onnx_host_bytes(host);
            link = &host->next;
        } else {
            *link = host->next;
            free(host);
        }
    }
    recorder->held = recorder->used;
}

void kiln__onnx_free_unused(struct kiln__onnx_recorder *recorder)
{
    size_t n_values = recorder->model->graphs.n_values, most = n_values;
    for (const struct kiln__onnx_frame *frame = recorder->frame; frame; frame = frame->outer)
        most += frame->n_held;
    bool *read = calloc(n_values + 1, sizeof *read);
    array *used = malloc((most + 1) * sizeof *used);
    if (read && used) {
        for (const struct kiln__onnx_frame *frame = recorder->frame; frame; frame = frame->outer)
            kiln__onnx_mark_read(frame->graph, frame->node, read);
        free_others(recorder, find_used(recorder, read, used), used);
    }
    free(read);
    free(used);
}
