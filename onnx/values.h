/* SPDX-License-Identifier: Apache-2.0 */
/* Movement of values: on the host where they are known and small, else recorded. Each gives a new
 * value, one of type 0 after refusing the node. */
#pragma once

#include "onnx/call.h"

struct kiln__onnx_value kiln__onnx_reshape(struct kiln__onnx_call *call,
                                           struct kiln__onnx_value *value, size_t rank,
                                           const size_t *dims);

/* Dimension i of the result is dimension axes[i] of the value. */
struct kiln__onnx_value kiln__onnx_transpose(struct kiln__onnx_call *call,
                                             struct kiln__onnx_value *value, const size_t *axes);

/* In dimension i the count[i] elements start[i], start[i] + step[i], ...; all of them exist. */
struct kiln__onnx_value kiln__onnx_slice(struct kiln__onnx_call *call,
                                         struct kiln__onnx_value *value, const int64_t *start,
                                         const int64_t *step, const size_t *count);

/* Repeated to a larger shape by numpy's rule. */
struct kiln__onnx_value kiln__onnx_broadcast(struct kiln__onnx_call *call,
                                             struct kiln__onnx_value *value, size_t rank,
                                             const size_t *dims);

/* n values of one type, at least one, one after the other. */
struct kiln__onnx_value kiln__onnx_concat(struct kiln__onnx_call *call, size_t n,
                                          struct kiln__onnx_value **values, size_t axis);

/* Elements along an axis by indices, of which negative ones count from the end. */
struct kiln__onnx_value kiln__onnx_gather(struct kiln__onnx_call *call,
                                          struct kiln__onnx_value *value,
                                          struct kiln__onnx_value *indices, size_t axis);

/* As another type, TensorProto.DataType. */
struct kiln__onnx_value kiln__onnx_cast(struct kiln__onnx_call *call,
                                        struct kiln__onnx_value *value, int type);

/* The shape that two have together by numpy's rule; refuses the node where there is none. */
bool kiln__onnx_join_shapes(struct kiln__onnx_call *call, size_t *rank, size_t *dims,
                            size_t other_rank, const size_t *other);

/* Whether a value has this shape; without dimensions `dims` may be NULL. */
bool kiln__onnx_has_shape(const struct kiln__onnx_value *value, size_t rank, const size_t *dims);

/* Whether a result of this type and shape may be computed on the host. */
bool kiln__onnx_fits_host(int type, size_t rank, const size_t *dims);
