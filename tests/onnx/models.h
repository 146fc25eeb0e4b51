/* SPDX-License-Identifier: Apache-2.0 */
/* ONNX files in memory, put together node by node. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <kiln/onnx.h>

#include "onnx/onnx.pb-c.h"

#define FLOAT ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT
#define INT64 ONNX__TENSOR_PROTO__DATA_TYPE__INT64
#define BOOLEAN ONNX__TENSOR_PROTO__DATA_TYPE__BOOL
#define DOUBLE ONNX__TENSOR_PROTO__DATA_TYPE__DOUBLE

/* A model of this version of ONNX's operators. All that is made for it lives until free_model(). */
Onnx__ModelProto *new_model(int version);
void free_model(Onnx__ModelProto *model);

/* Shapes in words: "2 batch 3"; a name is a dynamic dimension. */
void add_input(Onnx__ModelProto *model, const char *name, int type, const char *shape);
void add_output(Onnx__ModelProto *model, const char *name, int type, const char *shape);

/* Operands and results in words: "x weight"; "-" is one that is left out. */
Onnx__NodeProto *add_node(Onnx__ModelProto *model, const char *op, const char *inputs,
                          const char *outputs);
/* The same outside of the model: of a function, or of a graph in a node. */
Onnx__NodeProto *new_node(const char *op, const char *inputs, const char *outputs);

Onnx__AttributeProto *set_int(Onnx__NodeProto *node, const char *name, int64_t value);
void set_float(Onnx__NodeProto *node, const char *name, float value);
void set_text(Onnx__NodeProto *node, const char *name, const char *value);
void set_ints(Onnx__NodeProto *node, const char *name, size_t n, const int64_t *values);
void set_graph(Onnx__NodeProto *node, const char *name, Onnx__GraphProto *graph);

Onnx__TensorProto *add_floats(Onnx__ModelProto *model, const char *name, const char *shape,
                              const float *values);
Onnx__TensorProto *add_integers(Onnx__ModelProto *model, const char *name, const char *shape,
                                const int64_t *values);

/* Of any type, as it lies in a file. */
Onnx__TensorProto *add_bytes(Onnx__ModelProto *model, const char *name, int type, const char *shape,
                             size_t bytes, const void *content);

/* An empty graph, and what is put into one. */
Onnx__GraphProto *new_graph(void);
void graph_node(Onnx__GraphProto *graph, Onnx__NodeProto *node);
void graph_input(Onnx__GraphProto *graph, const char *name);
void graph_output(Onnx__GraphProto *graph, const char *name);

/* A function of the model, in the domain "local". */
Onnx__FunctionProto *add_function(Onnx__ModelProto *model, const char *name, const char *inputs,
                                  const char *outputs);
void function_node(Onnx__FunctionProto *function, Onnx__NodeProto *node);

/* A field of text or a message that the schema may be too old for. */
void late_field(ProtobufCMessage *message, unsigned number, size_t length, const void *content);

/* The model's bytes. Owner: as the model. */
uint8_t *pack_model(const Onnx__ModelProto *model, size_t *bytes);

/* The fixture of tests: a context, and what was made for models goes with it. */
extern kiln_context *context;
void begin_models(void);
void end_models(void);

/* Load it. */
kiln_status load_model(kiln_context *in, const Onnx__ModelProto *model,
                       const kiln_model_options *options, kiln_onnx_model **loaded);
kiln_onnx_model *loaded(const Onnx__ModelProto *model);

#define DIMS(...) sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), ((size_t[]){__VA_ARGS__})

/* Run it: one input, one output, of floats. */
void expect_floats(kiln_onnx_model *model, size_t rank, const size_t *dims, const float *input,
                   size_t wanted_rank, const size_t *wanted_dims, const float *wanted);
