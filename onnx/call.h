/* SPDX-License-Identifier: Apache-2.0 */
/* What a row of the tables of operators has to work with: one node while it is recorded.
 *
 * An operator reads its operands with kiln__onnx_tensor(), or, where their content decides about
 * shapes, with kiln__onnx_integers(); its attributes by name and type; and gives each of its
 * results with kiln__onnx_give(). It records through kiln's public functions. After an error
 * everything goes on with empty tensors and defaults, so that only what would not end needs to
 * look. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kiln/kiln.h>

#include "onnx/graph.h"
#include "onnx/host.h"
#include "onnx/operators.h"
#include "onnx/types.h"

/* A value of the graph: on the device, known on the host, or both. */
struct kiln__onnx_value {
    int type; /* as TensorProto.DataType; 0: none */
    size_t rank;
    size_t dims[KILN_MAX_RANK];
    kiln_tensor tensor;                 /* {0}: not yet on the device */
    const struct kiln__onnx_host *host; /* NULL: only the device knows */
};

struct kiln__onnx_recorder;

struct kiln__onnx_call {
    struct kiln__onnx_recorder *recorder;
    kiln_batch *batch;
    const struct kiln__onnx_node *node;
    const struct kiln__onnx_row *row;
    int version;                  /* of the set of operators */
    size_t n_inputs;              /* without those that are left out at the end */
    struct kiln__onnx_value **in; /* n_inputs; NULL: left out */
    size_t n_outputs;
    struct kiln__onnx_value *out; /* n_outputs, to be given */
    const bool *wanted;           /* n_outputs; false: nobody reads it, it need not be given */
};

/* ---- operands ---- */

/* Operand i, or NULL if it is left out. */
struct kiln__onnx_value *kiln__onnx_operand(const struct kiln__onnx_call *call, size_t i);

/* Whether operand i is there; refuses the node if it is not. */
bool kiln__onnx_need(struct kiln__onnx_call *call, size_t i);

/* The tensor of operand i; {0} if it is left out. It has the type that kiln computes ONNX's in,
 * or the narrower one that it is stored in. */
kiln_tensor kiln__onnx_tensor(struct kiln__onnx_call *call, size_t i);

/* Integers as positions, in i32; beyond its range its ends, which are in no tensor. */
kiln_tensor kiln__onnx_positions(struct kiln__onnx_call *call, kiln_tensor tensor);

/* Integers in the type that ONNX's is computed in, wrapped around as ONNX's type does; what is
 * floating as it is. */
kiln_tensor kiln__onnx_settle(struct kiln__onnx_call *call, kiln_tensor tensor, int type);

/* The tensor of any value. */
kiln_tensor kiln__onnx_tensor_of(struct kiln__onnx_call *call, struct kiln__onnx_value *value);

/* The content of operand i as integers, *n of them; NULL if it is left out (*n is 0), and after
 * refusing the node where it is not known. Owner: the recorder. */
const int64_t *kiln__onnx_integers(struct kiln__onnx_call *call, size_t i, size_t *n);

/* The content of operand i if it is known and of one element. */
bool kiln__onnx_scalar(const struct kiln__onnx_call *call, size_t i, double *number);

/* A list of sizes as a shape; refuses what is none. */
bool kiln__onnx_shape_of(struct kiln__onnx_call *call, const int64_t *list, size_t n, size_t *dims);

/* ---- attributes: the default where the node has none, refused where it has another type ---- */

bool kiln__onnx_has_attribute(const struct kiln__onnx_call *call, const char *name);
int64_t kiln__onnx_int(struct kiln__onnx_call *call, const char *name, int64_t usual);
double kiln__onnx_float(struct kiln__onnx_call *call, const char *name, double usual);
/* "" is the usual one if `usual` is NULL. Owner: the recorder. */
const char *kiln__onnx_string(struct kiln__onnx_call *call, const char *name, const char *usual);
/* NULL and *n = 0 where there is none. Owner: the model. */
const int64_t *kiln__onnx_ints(struct kiln__onnx_call *call, const char *name, size_t *n);
const float *kiln__onnx_floats(struct kiln__onnx_call *call, const char *name, size_t *n);
/* The attribute itself, NULL where there is none or it is of another type. */
const Onnx__AttributeProto *kiln__onnx_attribute(struct kiln__onnx_call *call, const char *name,
                                                 Onnx__AttributeProto__AttributeType type);

/* An axis from -rank to rank - 1, counted from the front; refuses the node if it is another. */
size_t kiln__onnx_axis(struct kiln__onnx_call *call, int64_t axis, size_t rank);

/* What lists of axes come as: an attribute in older versions, operand i in newer ones. */
const int64_t *kiln__onnx_list(struct kiln__onnx_call *call, const char *name, size_t i, size_t *n);

/* ---- other operators ---- */

/* Record ONNX's operator of that name and version of its set with these values, and this node's
 * attributes. Results that it does not have stay as they are. */
void kiln__onnx_apply(struct kiln__onnx_call *call, const char *name, int version, size_t n_inputs,
                      struct kiln__onnx_value *const *in, size_t n_outputs,
                      struct kiln__onnx_value *out);

/* ---- results ---- */

/* Result k is this tensor, of a type of ONNX. */
void kiln__onnx_give(struct kiln__onnx_call *call, size_t k, kiln_tensor tensor, int type);

/* Result 0 is this tensor, of operand 0's type. Nothing happens if that operand is missing. */
void kiln__onnx_give_like(struct kiln__onnx_call *call, kiln_tensor tensor);

/* Result k is another value, or a copy of it under another type. */
void kiln__onnx_give_value(struct kiln__onnx_call *call, size_t k,
                           const struct kiln__onnx_value *value);

/* Result k is known: an array to be filled. NULL after refusing the node (no memory, too large). */
struct kiln__onnx_host *kiln__onnx_give_host(struct kiln__onnx_call *call, size_t k, int type,
                                             size_t rank, const size_t *dims);

/* An array of the recorder's. NULL after refusing the node. */
struct kiln__onnx_host *kiln__onnx_new_host(struct kiln__onnx_call *call, int type, size_t rank,
                                            const size_t *dims);

/* ---- errors ---- */

/* The node cannot be recorded: the sentence gets its name and operator before it. Of several calls
 * the first counts. */
void kiln__onnx_refuse(struct kiln__onnx_call *call, kiln_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether something has failed: the node, or the batch. */
bool kiln__onnx_failed(const struct kiln__onnx_call *call);
