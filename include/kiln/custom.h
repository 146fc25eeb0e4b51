/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Kernels of the program's own as operations of a batch: text in OpenCL C. They go through the
 *  kernel cache, stand in plans, traces and explanations as other operations do, and are never cut
 *  into parts or, but once for each micro-batch, computed twice. */
#ifndef KILN_CUSTOM_H
#define KILN_CUSTOM_H

#include <kiln/files.h>
#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What one kernel takes at most. */
#define KILN_CUSTOM_INPUTS 9   /**< tensors that it reads */
#define KILN_CUSTOM_OUTPUTS 8  /**< tensors that it writes */
#define KILN_CUSTOM_SCALARS 16 /**< numbers */

/** A tensor that a kernel reads or writes. This structure never grows. */
typedef struct kiln_custom_tensor {
    const char *name;           /**< what the text calls it: an identifier of OpenCL C */
    kiln_type type;             /**< of an output. Of an input: the one it must have; 0: any */
    int strided;                /**< an input may lie in any way that strides say; 0: row-major */
    size_t rank;                /**< of an output */
    size_t dims[KILN_MAX_RANK]; /**< of an output */
} kiln_custom_tensor;

/** A number that a kernel takes. It is part of the batch's plan, not of the kernel: another value
 *  makes another plan, and compiles nothing. What differs from run to run is better a tensor of one
 *  element. This structure never grows. */
typedef struct kiln_custom_scalar {
    const char *name; /**< what the text calls it */
    kiln_type type;   /**< KILN_F32, KILN_I32 or KILN_I64 */
    double value;     /**< one that the type holds */
} kiln_custom_scalar;

/** The same on the host, for validation (kiln_context_options): fill the outputs' elements, as they
 *  are stored and row-major. Called while a batch with the kernel is run, on the thread that runs
 *  it. */
typedef void (*kiln_custom_host)(const kiln_array *inputs, const kiln_array *outputs,
                                 const double *scalars, void *user);

/** Record what flows back through a kernel. flowed[k] is dL/d(output k), f32 and of its shape, or
 *  {0} of an output of integers; leave dL/d(input k), of its shape, in gradients[k], or {0} where
 *  nothing flows. Called by kiln_grad(). Errors of the batch are found without it; another status
 *  becomes the batch's. */
typedef kiln_status (*kiln_custom_gradient)(kiln_batch *batch, const kiln_tensor *inputs,
                                            const kiln_tensor *outputs, const kiln_tensor *flowed,
                                            kiln_tensor *gradients, void *user);

/** A kernel and how it is called. Start from KILN_CUSTOM_KERNEL_INIT. Texts and arrays are read
 *  during the call alone.
 *
 *  `source` is the body of the kernel. In it, for a tensor x: `x` is the pointer to its first
 *  element, `global const T *` of an input and `global T *` of an output, where T is float, int,
 *  long, char or uchar, ushort of f16 and bf16, uchar of bool; `x_type` is the type that kiln
 *  computes with instead, float of f16 and bf16; `LOAD(x, i)` is element i as such a one, and
 *  `STORE(x, i, value)` rounds to what is stored. `x_size` (long) is how many elements it has,
 *  `x_rank` its dimensions, `x_shape[d]` (long) the extent of one, and of a strided input
 *  `x_strides[d]` (long) how far apart its elements are. A scalar is a constant of its name. Inputs
 *  may be parts of larger memory: vload4() may be used on them, pointers to float4 may not.
 *
 *  Outputs are row-major and hold anything before the kernel has written to them; it writes every
 *  element. It reads nothing but its inputs, so that equal calls have equal results: kiln makes
 *  one of two. Items that exchange values do so within a work-group of `local` items. */
typedef struct kiln_custom_kernel {
    size_t size;        /**< sizeof(kiln_custom_kernel), set by the initialiser */
    const char *name;   /**< an identifier, of 64 bytes at most; traces and errors say it */
    const char *source; /**< the body */
    const char *header; /**< functions and macros before the kernel; NULL: none */
    size_t input_count; /**< 0 to KILN_CUSTOM_INPUTS */
    const kiln_custom_tensor *inputs;  /**< what each is */
    size_t output_count;               /**< 1 to KILN_CUSTOM_OUTPUTS */
    const kiln_custom_tensor *outputs; /**< what each is */
    size_t scalar_count;               /**< 0 to KILN_CUSTOM_SCALARS */
    const kiln_custom_scalar *scalars; /**< what each is */
    size_t global[3]; /**< work-items; all 0: as many as the first output has elements; else 0: 1 */
    size_t local[3];  /**< in a work-group, each dividing the global size; all 0: as the device
                           likes, the largest that divides it; else 0: 1 */
    kiln_custom_host host; /**< the same on the host; NULL: validation leaves out what it computes,
                                and what is computed from that */
    double tolerance; /**< by which floating results may differ from the host's, relative to these;
                           0: 1e-5. Integers are equal */
    kiln_custom_gradient gradient; /**< NULL: a gradient through the kernel is an error */
    void *user; /**< handed to both, which are used until the batch is released or reset. With the
                     functions it is part of the batch's plan: another one makes another plan */
} kiln_custom_kernel;

/** A kernel of nothing yet. */
#define KILN_CUSTOM_KERNEL_INIT                                                                    \
    {                                                                                              \
        sizeof(kiln_custom_kernel), 0, 0, 0, 0, 0, 0, 0, 0, 0, {0}, {0}, 0, 0, 0, 0                \
    }

/** Fill a structure as KILN_CUSTOM_KERNEL_INIT does. NULL does nothing. Threads: any.
 *  Errors: none. */
KILN_API void kiln_custom_kernel_init(kiln_custom_kernel *kernel, size_t size);
#define kiln_custom_kernel_init(...)                                                               \
    kiln_custom_kernel_init(__VA_ARGS__, sizeof(kiln_custom_kernel))

/** Record one launch of a kernel. inputs[k] is what it reads as its input k, with the types that
 *  the tensors are stored in; outputs[k] receives its output k. Where all outputs are empty nothing
 *  is launched. The compiler's words come when the batch is run or prepared: BUILD_FAILED, with the
 *  lines of `source` under the kernel's name.
 *  Owner: the tensors belong to the batch. Threads: one at a time.
 *  Errors, sticky: INVALID_HANDLE, INVALID_ARGUMENT (names, counts, work sizes), TYPE_MISMATCH,
 *  TOO_LARGE (a shape, work sizes, more than 1,024 bytes of arguments), UNSUPPORTED (fields that
 *  this library lacks), OUT_OF_HOST_MEMORY. After one the outputs are {0}. */
KILN_API kiln_status kiln_custom(kiln_batch *batch, const kiln_custom_kernel *kernel,
                                 const kiln_tensor *inputs, kiln_tensor *outputs);

/** Record an expression of elements, as kiln's own operations: it fuses with what is around it, its
 *  operands broadcast, and it has a gradient and is validated as they are.
 *
 *      y = kiln_elementwise(batch, "x / (1 + exp(-b * x))", "x b", 2, (kiln_tensor[]){x, b});
 *
 *  `names` are those of the n operands, with blanks between them; NULL: the names of the text, in
 * the order in which they first stand there. The text has these, numbers, parentheses and
 *  - operators, the tightest first: `**` (from the right); `-`, `+`, `~`, `!` before an operand;
 * `*`,
 *    `/`, `//` (towards minus infinity), `%` (with the divisor's sign); `+`, `-`; `<<`, `>>`; `&`;
 * `^`;
 *    `|`; `<`, `<=`, `>`, `>=`, `==`, `!=`; `&&`; `||`. As in Python, and not as in C, comparisons
 * bind looser than bits;
 *  - choices: `m ? a : b`, and `a if m else b`;
 *  - the functions of kiln/elementwise.h without their prefix, and types, which cast: `f32(x)`.
 *
 *  Operands meet in the type that numpy takes for them, where f32 is the only floating one. A whole
 *  number has the type of the tensors that it meets, beside bools and other numbers that of i32, or
 *  of i64 if it has to; another number is f32. `/` gives f32 of integers, too,
 * and
 *  `&`, `|`, `^` and `~` of bools are and, or, exclusive or and not. A comparison is a bool.
 *
 *  Owner: the tensor belongs to the batch. Threads: one at a time. Errors, sticky: INVALID_ARGUMENT
 *  (the text, with the column; another n than names), INVALID_HANDLE, SHAPE_MISMATCH,
 * TYPE_MISMATCH, TOO_LARGE, OUT_OF_HOST_MEMORY. After one the result is {0}. */
KILN_API kiln_tensor kiln_elementwise(kiln_batch *batch, const char *text, const char *names,
                                      size_t n, const kiln_tensor *operands);

/** The names that such a text has, in the order in which they first stand there, with a blank
 * between two; nothing is recorded. Owner: the caller frees *names with kiln_free(). Threads: any.
 *  Errors: INVALID_ARGUMENT (what is wrong in the text, with the column), OUT_OF_HOST_MEMORY;
 * *names is NULL then. */
KILN_API KILN_MUST_CHECK kiln_status kiln_elementwise_names(const char *text, char **names);

#ifdef __cplusplus
}
#endif

#endif
