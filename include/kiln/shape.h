/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Lists as arguments, in C11 and in C++11, without a variable or a compound literal:
 *  @code
 *  x = kiln_upload(batch, KILN_F32, kiln_shape(2, 3), values);
 *  y = kiln_sum(batch, x, kiln_axes(-1), 0);
 *  z = kiln_slice(batch, x, kiln_positions(0, 1), kiln_positions(2, 3), NULL);
 *  w = kiln_concat(batch, kiln_tensors(x, z), 1);
 *  @endcode
 *  Each has at least one element and lives as long as the call that it is an argument of. In C++ an
 *  element that is no constant has to have the list's type. */
#ifndef KILN_SHAPE_H
#define KILN_SHAPE_H

#include <kiln/types.h>

#ifdef __cplusplus
#include <initializer_list>
/** Elements alone. */
#define KILN_LIST(type, ...) (std::initializer_list<type>{__VA_ARGS__}.begin())
/** Two arguments: how many, and the elements. */
#define KILN_COUNTED_LIST(type, ...)                                                               \
    (std::initializer_list<type>{__VA_ARGS__}.size()), KILN_LIST(type, __VA_ARGS__)
#else
/** Elements alone. */
#define KILN_LIST(type, ...) ((const type[]){__VA_ARGS__})
/** Two arguments: how many, and the elements. */
#define KILN_COUNTED_LIST(type, ...)                                                               \
    (sizeof((const type[]){__VA_ARGS__}) / sizeof(type)), KILN_LIST(type, __VA_ARGS__)
#endif

/** A shape: the arguments `rank, dims`. */
#define kiln_shape(...) KILN_COUNTED_LIST(size_t, __VA_ARGS__)

/** The shape of a single element: the arguments `rank, dims`. */
#define KILN_SCALAR ((size_t)0), ((const size_t *)0)

/** Axes: the arguments `n_axes, axes`. */
#define kiln_axes(...) KILN_COUNTED_LIST(int, __VA_ARGS__)

/** All axes: the arguments `n_axes, axes`. */
#define KILN_ALL_AXES ((size_t)0), ((const int *)0)

/** Tensors: the arguments `n, tensors`. */
#define kiln_tensors(...) KILN_COUNTED_LIST(kiln_tensor, __VA_ARGS__)

/** A number for each dimension, as kiln_pad() and kiln_transpose() take them. */
#define kiln_dims(...) KILN_LIST(size_t, __VA_ARGS__)

/** A position for each dimension, as kiln_slice() takes them. */
#define kiln_positions(...) KILN_LIST(int64_t, __VA_ARGS__)

#endif
