/* SPDX-License-Identifier: Apache-2.0 */
/* Walking a model's graph, node by node, into a batch. */
#ifndef KILN_ONNX_RECORD_H
#define KILN_ONNX_RECORD_H

#include "onnx/call.h"
#include "onnx/model.h"

struct kiln__onnx_recorder {
    kiln_onnx_model *model;
    kiln_batch *batch;
    struct kiln__onnx_value *values; /* by their numbers */
    struct kiln__onnx_host *hosts;   /* arrays made meanwhile */
    size_t held;                     /* bytes of those that nodes made */
    kiln_status status;              /* the first failure */
    unsigned depth;                  /* of graphs in nodes */
    size_t recorded;                 /* nodes, each turn of a loop anew */
    const char *name;                /* of the node that is being recorded; or NULL */
};

/* Record the nodes of a graph whose inputs are in recorder->values. */
kiln_status kiln__onnx_record_graph(struct kiln__onnx_recorder *recorder,
                                    const struct kiln__onnx_graph *graph);

/* The tensor of a value, made of what is known of it if need be. */
kiln_tensor kiln__onnx_on_device(struct kiln__onnx_recorder *recorder,
                                 struct kiln__onnx_value *value);

#endif
