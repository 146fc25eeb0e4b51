/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Data types and the handles that the other headers share. */
#ifndef KILN_TYPES_H
#define KILN_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include <kiln/export.h>
#include <kiln/typemap.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @page structures Structures that can grow
 *  A program may run with a library that is newer than the headers it was built with, or older, and
 *  the newer of both may have structures with more fields, behind those that there were. So:
 *  - **What a program fills**, such as options, begins with `size`, which the initialiser sets. A
 *    field that the program's structure lacks is 0, and means what was so before there was a field.
 *    Fields that the library lacks have to be 0, else the call is UNSUPPORTED.
 *  - **What the library fills** is filled by a call that is told the size. A macro of the
 * function's name adds it: programs write `kiln_context_get_stats(context, &stats)`, bindings
 * without macros pass it as the last argument. Fields that the library lacks become 0.
 *  - **What the library hands out**, such as a kiln_model_lease, begins with `size`, as it has it.
 *
 *  Some structures never change; their comments say so. */

/** Most dimensions that a tensor can have. */
#define KILN_MAX_RANK 8

/** The type of a tensor's elements.
 *
 *  Operations compute in f32, i64, i32, i8 and u8. The other types are only stored: every operation
 * reads them as one of these and its result is of that one. They are converted where they are
 * loaded; but matrix products that are large enough for CLBlast, from 2,048 rows, 2,048 columns and
 * 512 elements between them on, read a converted copy: beside so much arithmetic it is nothing.
 *
 *  f16 (IEEE 754 binary16, on every device) and bf16 (the upper half of an f32) are read as
 *  f32: the sum of two f16 is f32, and so is that of an f16 and an f32. bool,
 *  a byte that is 0 or not, is read as u8, 0 or 1, a mask. Where a comment says f32 or u8,
 *  it means what is read as that, too. What only moves elements (reshape, transpose, slice, gather,
 *  concat, pad and their like) keeps the type.
 *
 *  kiln_cast() rounds once, to nearest, of two as near to the even one, to infinity beyond the
 *  range, wherever the value is used, stored or not. NaN stays NaN. Gradients are f32.
 *
 *  Integers are exact and wrap around in the bits of their type, in casts to fewer bits, too. Sums,
 *  running sums and products of all elements are i64. Floating numbers that become integers go
 *  towards zero; beyond the range they become its ends, and NaN becomes 0. A constant is a double,
 * which holds integers up to 2^53 and multiples of powers of two beyond; others are uploaded.
 *
 *  q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k and q6_k are blocks of 32 or 256 quantised numbers with
 *  scales of their own, as GGUF files have them. Uploads and buffers may be of them, where the last
 *  dimension is of whole blocks, and no operation gives them. Every operation reads them as f32,
 *  each number to the bit as the Python package gguf has it: what only moves elements gives f32, too.
 *  q4_z and q8_z are 32 numbers as ONNX has them: a scale and a zero point, both f32 with the lowest
 *  byte first, then 16 bytes whose lower halves are the first numbers, or 32 bytes; each number is
 *  read as (q - zero point) * scale.
 *  Products and gathers read the blocks as they lie in memory, on every device, and nowhere is more
 *  kept than they are. They have no gradient; what they are multiplied with has. */
typedef enum kiln_type {
#define KILN_TYPE_ENUM(name, value, bytes, ctype) KILN_##name = (value),
    KILN_TYPE_MAP(KILN_TYPE_ENUM) KILN_BLOCK_TYPE_MAP(KILN_TYPE_ENUM)
#undef KILN_TYPE_ENUM
} kiln_type;

/** Bytes of one element, or of one block of kiln_type_block() elements; 0 for a value that is no
 *  type.
 *  Threads: any. Errors: none. */
KILN_API size_t kiln_type_size(kiln_type type);

/** How many elements lie together in one block of kiln_type_size() bytes: 1 where they lie apart, 32
 *  or 256 in types of blocks; 0 for a value that is no type.
 *  Threads: any. Errors: none. */
KILN_API size_t kiln_type_block(kiln_type type);

/** The name of a type in lower case, such as "f32"; "unknown" for a value that is none.
 *  Owner: static text. Threads: any. Errors: none. */
KILN_API const char *kiln_type_name(kiln_type type);

/** One device with its queue, kernel cache and buffer pool. */
typedef struct kiln_context kiln_context;

/** Device memory that outlives batches. */
typedef struct kiln_buffer kiln_buffer;

/** Operations recorded and not yet run. */
typedef struct kiln_batch kiln_batch;

/** The completion of one submitted batch. */
typedef struct kiln_event kiln_event;

/** A value inside one batch. A plain number: copy it freely, nothing is to be released.
 *  `{0}` names nothing. This structure never grows. */
typedef struct kiln_tensor {
    uint64_t id; /**< batch and position; only kiln reads it */
} kiln_tensor;

#ifdef __cplusplus
}
#endif

#endif
