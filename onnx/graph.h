/* SPDX-License-Identifier: Apache-2.0 */
/* A model's graphs with names resolved: every value of the model, those of graphs inside nodes and
 * of functions' calls too, has a number. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "onnx/error.h"
#include "onnx/onnx.pb-c.h"

struct kiln__onnx_row;
struct kiln__onnx_graph;

/* The number of what is left out, such as an optional operand. */
#define KILN__ONNX_NONE UINT32_MAX

/* Attributes of the node that calls a function, for nodes inside that refer to them. */
struct kiln__onnx_attributes {
    const struct kiln__onnx_attributes *outer; /* of the caller, which may be in a function too */
    const Onnx__NodeProto *caller;
    size_t n_defaults; /* what the function has where the caller has none */
    Onnx__AttributeProto **defaults;
};

struct kiln__onnx_node {
    const Onnx__NodeProto *proto;
    const struct kiln__onnx_attributes *attributes; /* NULL outside of functions */
    const struct kiln__onnx_row *row; /* NULL: no operator that is known by this version */
    int version;                      /* of its domain's set */
    bool live;                        /* an output of the model depends on it */
    size_t n_inputs, n_outputs;
    uint32_t *inputs, *outputs; /* numbers of values, or KILN__ONNX_NONE */
    size_t n_graphs;
    struct kiln__onnx_graph **graphs; /* for each attribute of the node a graph or NULL */
    size_t n_parts;
    struct kiln__onnx_node
        *parts;        /* of several nodes that are recorded as one: these (patterns.c) */
    const void *steps; /* what its row wants to know of them */
};

struct kiln__onnx_graph {
    size_t n_nodes, n_inputs, n_outputs;
    struct kiln__onnx_node *nodes; /* each after what it reads; functions are written out */
    uint32_t *inputs;              /* without those that are initialised */
    Onnx__ValueInfoProto **input_protos;
    uint32_t *outputs;
};

/* A value that the file has the content of: an initialiser, or what a node Constant gives. */
struct kiln__onnx_constant {
    uint32_t value;
    Onnx__TensorProto *proto;
    bool shared; /* a function's: its other calls read the content too */
};

struct kiln__onnx_block;

/* Everything that resolving makes, freed together. */
struct kiln__onnx_graphs {
    struct kiln__onnx_graph *main;
    uint32_t n_values;
    const char **names; /* of each value, as the file has it */
    bool *needed;       /* whether an output of the model depends on it */
    size_t n_constants;
    struct kiln__onnx_constant *constants;
    struct kiln__onnx_block *blocks; /* all allocations */
};

/* Resolve the names of a model. Operators that no row knows are no error here. */
kiln_status kiln__onnx_resolve(const Onnx__ModelProto *model, struct kiln__onnx_graphs *graphs);
void kiln__onnx_graphs_free(struct kiln__onnx_graphs *graphs);

/* Memory of `count` times `size` bytes, all 0, freed with the graphs; NULL without memory. */
void *kiln__onnx_graphs_alloc(struct kiln__onnx_graphs *graphs, size_t count, size_t size);

/* The name to call a node by: its own, or its first output's. */
const char *kiln__onnx_node_name(const struct kiln__onnx_node *node);

/* The domain with "" for ONNX's own. */
const char *kiln__onnx_domain(const char *domain);

/* UNSUPPORTED with all operators that no row knows and an output depends on, with their counts. */
kiln_status kiln__onnx_supported(const struct kiln__onnx_graphs *graphs);
