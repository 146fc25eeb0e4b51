/* SPDX-License-Identifier: Apache-2.0 */
/* What a model consists of, for the modules that load, record and keep it. */
#pragma once

#include <pthread.h>

#include <kiln/onnx.h>

#include "onnx/graph.h"
#include "onnx/host.h"

/* The content of a value that the file has. */
struct kiln__onnx_weight {
    int type; /* as TensorProto.DataType; 0: nobody needs it */
    size_t rank;
    size_t dims[KILN_MAX_RANK];
    struct kiln__onnx_host *host; /* if it is small */
    kiln_buffer *buffer;          /* made when it is needed first, from `host`; else at load */
    bool apart;                   /* its content is in blocks alone */
};

struct kiln__onnx_blocks;
struct kiln__onnx_cached;
struct kiln__onnx_form;

struct kiln_onnx_model {
    kiln_context *context;
    kiln_model_options options;
    Onnx__ModelProto *proto; /* without the content of weights */
    struct kiln__onnx_graphs graphs;
    struct kiln__onnx_file *file;      /* that it was read from; or NULL */
    struct kiln__onnx_weight *weights; /* one for each of graphs.constants */
    struct kiln__onnx_host *hosts;     /* theirs */
    size_t n_blocks;
    struct kiln__onnx_blocks *blocks; /* weights of products of blocks */
    kiln_model_value *inputs, *outputs;
    struct kiln__onnx_form *forms; /* the same as callers of other headers have it (structure.c) */
    const int *input_types, *output_types; /* as TensorProto.DataType; 0: the file does not say */
    char *notes;

    pthread_mutex_t lock; /* of buffers that are made late, of what is kept, and of forms */
    struct kiln__onnx_cached *kept;
};

/* Arrays of more elements are not computed on the host: numbers, then truth values and integers. */
#define KILN__ONNX_MOST_FLOATS 256
#define KILN__ONNX_MOST_INTEGERS 65536

/* Whether an array is small enough to be known while a model is recorded. */
bool kiln__onnx_is_small(int type, size_t count);

/* Inputs and outputs of the main graph, model->inputs and so on. */
kiln_status kiln__onnx_describe(kiln_onnx_model *model, struct kiln__onnx_text *notes);
