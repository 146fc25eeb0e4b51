/* SPDX-License-Identifier: Apache-2.0 */
/* Walking a model's graph, node by node, into a batch. */
#pragma once

#include "onnx/call.h"
#include "onnx/model.h"

/* A graph while its nodes are recorded. */
struct kiln__onnx_frame {
    const struct kiln__onnx_frame *outer; /* whose node holds this graph; NULL: the main graph */
    const struct kiln__onnx_graph *graph;
    size_t node;                         /* which is recorded */
    size_t n_held;                       /* values that the holding node keeps meanwhile */
    const struct kiln__onnx_value *kept; /* those of other turns of a loop */
};

struct kiln__onnx_recorder {
    kiln_onnx_model *model;
    kiln_batch *batch;
    struct kiln__onnx_value *values; /* by their numbers */
    struct kiln__onnx_host *inputs;  /* content that the caller gave */
    struct kiln__onnx_host *hosts;   /* arrays that nodes made */
    size_t held;                     /* bytes of these */
    size_t used;                     /* when it was last looked which are in use */
    const struct kiln__onnx_frame *frame;
    kiln_status status; /* the first failure */
    unsigned depth;     /* of graphs in nodes */
    unsigned trials;    /* of bodies, one in the other, that this is (once.h) */
    size_t recorded;    /* nodes, each turn of a loop anew */
    const char *name;   /* of the node that is being recorded; or NULL */
};

/* Record the nodes of a graph whose inputs are in recorder->values. Meanwhile the node that holds
 * it keeps n_held other values. */
kiln_status kiln__onnx_record_graph(struct kiln__onnx_recorder *recorder,
                                    const struct kiln__onnx_graph *graph, size_t n_held,
                                    const struct kiln__onnx_value *kept);

/* Between nodes: free arrays that neither nodes to come nor outputs read. Without memory for that
 * they stay. */
void kiln__onnx_free_unused(struct kiln__onnx_recorder *recorder);

/* Mark the values that a graph reads from node `from` on, and those that it gives. */
void kiln__onnx_mark_read(const struct kiln__onnx_graph *graph, size_t from, bool *read);

/* The tensor of a value, made of what is known of it if need be. */
kiln_tensor kiln__onnx_on_device(struct kiln__onnx_recorder *recorder,
                                 struct kiln__onnx_value *value);
