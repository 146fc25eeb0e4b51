/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Models in ONNX files, run with kiln: libkiln-onnx, a library of its own (pkg-config: kiln-onnx).
 *
 *  A file is read once; its weights go to device memory, where all batches of the model share
 *  them. Recording walks the graph for inputs of known shapes: what depends on shapes alone (Shape,
 *  Gather, Concat, Reshape, ... of integers) is computed on the host meanwhile, exactly, and is no
 *  part of the batch. Dimensions that the file leaves open are those of the inputs; those of one
 * name have to be equal.
 *
 *  Types: f64 is read and computed as f32, i16 and u16 as i32, u32 and u64 as i64; what
 *  integers become wraps around in the bits that ONNX has. Of u64 what a file or an input has from
 *  2^63 on is an error, and what is computed beyond is negative. kiln_model_notes() says where
 *  numbers of the file changed by that. Operators:
 *  versions 7 to 23 of ONNX's set, see doc/onnx.md or kiln_model_operators().
 *
 *  Sentences of errors are in kiln_last_error(): they name the node, its operator, operands and
 *  shapes, as in "node 'encoder/MatMul_3' (MatMul): ...". A damaged or hostile file is an error.
 *
 *  The handle is not executor.h's `kiln_model`; a recorder of such a one may call
 *  kiln_model_record(). */
#ifndef KILN_ONNX_H
#define KILN_ONNX_H

#include <kiln/files.h>
#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A model that has been read, with its weights on a device. */
typedef struct kiln_onnx_model kiln_onnx_model;

/** How a model is read. Start from kiln_model_options_init() or KILN_MODEL_OPTIONS_INIT; zero in a
 *  field is its default. */
typedef struct kiln_model_options {
    size_t size;       /**< sizeof(kiln_model_options), set by the initialiser */
    kiln_type weights; /**< KILN_F16 or KILN_BF16: f32 weights of two dimensions and more are stored
                            so, rounded once. KILN_Q8_0 or KILN_Q4_0: matrices that MatMul and Gemm
                            multiply by are (kiln_quantize_blocks(), along k), but for the smallest,
                            those that blocks cannot hold, and those that they make larger. 0 or KILN_F32: as the file has
                            them */
    size_t batches;    /**< most batches that are kept for kiln_model_batch() and kiln_model_run(),
                            those on lease not counted; 0: 16 */
    const char *folder; /**< of kiln_model_load_memory(): where files of external data lie; NULL:
                             a model that names such is refused */
    int plain;          /**< nonzero: every node by itself, without recognising layers that
                             exporters write as several nodes (attention, gelu, normalisation) */
    uint64_t most_elements; /**< of a node's result: one of more is refused when it is recorded, as
                               a small file may ask for any work; 0: 2^32 */
} kiln_model_options;

/** Options with every default. */
#define KILN_MODEL_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(kiln_model_options), (kiln_type)0, 0, 0, 0, 0                                       \
    }

/** Options with every default, for callers without macros. NULL does nothing.
 *  Threads: any. Errors: none. */
KILN_API void kiln_model_options_init(kiln_model_options *options, size_t size);
#define kiln_model_options_init(...)                                                               \
    kiln_model_options_init(__VA_ARGS__, sizeof(kiln_model_options))

/** Rank of a value of which the file says none. */
#define KILN_MODEL_ANY_RANK ((size_t)-1)

/** An input or output of a model. */
typedef struct kiln_model_value {
    const char *name;                   /**< as the file has it */
    kiln_type type;                     /**< kiln's type for the file's, see above */
    size_t rank;                        /**< dimensions, or KILN_MODEL_ANY_RANK */
    size_t dims[KILN_MAX_RANK];         /**< 0 where the file leaves one open */
    const char *symbols[KILN_MAX_RANK]; /**< the name of such a dimension, NULL without one */
    int content;                        /**< of an input, nonzero: shapes depend on its content,
                                             which recording needs therefore */
} kiln_model_value;

/** Read a model from a file. Weights in files of their own are looked for in its folder, and have
 *  to lie inside it. `options` may be NULL. The file stays open, and is not to be changed while the
 *  model or a batch of it lives: large weights may be read from it again
 * (kiln_buffer_set_source()). Owner: the caller, until kiln_model_release(); it holds the context.
 * Threads: any; the model itself may be used by many threads at once. Errors: INVALID_ARGUMENT
 * (also for a file that is no model, or a damaged one), IO_ERROR, UNSUPPORTED (the sentence lists
 * all operators that are missing, with their counts), TOO_LARGE, TYPE_MISMATCH, SHAPE_MISMATCH,
 * OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY, DEVICE_ERROR, FORKED; *model is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_model_load(kiln_context *context, const char *path,
                                                     const kiln_model_options *options,
                                                     kiln_onnx_model **model);

/** The same from `bytes` bytes of memory, which are not needed afterwards. Errors: as
 *  kiln_model_load(). */
KILN_API KILN_MUST_CHECK kiln_status kiln_model_load_memory(kiln_context *context, const void *data,
                                                            size_t bytes,
                                                            const kiln_model_options *options,
                                                            kiln_onnx_model **model);

/** Release a model. Batches that it was recorded in go on; those on lease have to be given back
 *  before. NULL does nothing. Threads: any, the last that uses it. Errors: none. */
KILN_API void kiln_model_release(kiln_onnx_model *model);

/** How many inputs the model has, without weights; *values points to them, in the file's order.
 *  `values` may be NULL; for a NULL model there are none.
 *  Owner: the model. Threads: any. Errors: none, but where headers and library are of two versions
 *  there are none without memory. */
KILN_API size_t kiln_model_inputs(const kiln_onnx_model *model, const kiln_model_value **values,
                                  size_t size);
#define kiln_model_inputs(...) kiln_model_inputs(__VA_ARGS__, sizeof(kiln_model_value))

/** The same for outputs. */
KILN_API size_t kiln_model_outputs(const kiln_onnx_model *model, const kiln_model_value **values,
                                   size_t size);
#define kiln_model_outputs(...) kiln_model_outputs(__VA_ARGS__, sizeof(kiln_model_value))

/** What reading the file changed, a sentence a line: weights that were rounded, inputs of types
 *  that kiln has not. Empty where nothing was. Owner: the model. Threads: any. Errors: none. */
KILN_API const char *kiln_model_notes(const kiln_onnx_model *model);

/** Record the model: inputs[i] and outputs[i] go by kiln_model_inputs() and kiln_model_outputs().
 *  The weights are imported from the model's buffers, which the batch holds.
 *
 *  `contents` may be NULL. Otherwise contents[i].data, unless NULL, is the content of input i, with
 *  its type and shape (of a shape with a dimension of 0 it may be NULL); it is only read during
 * this call, and where results depend on it they are those of this content. Inputs whose `content`
 * is nonzero need it. For an input with content inputs[i] may be the empty tensor: it is then a
 * constant.
 *
 *  Owner: the tensors belong to the batch. Threads: one at a time for a batch, any for the model.
 *  Errors: those of the batch, with the node that led to them; INVALID_ARGUMENT, SHAPE_MISMATCH,
 *  TOO_LARGE (kiln_model_options::most_elements), TYPE_MISMATCH (an input that does not fit what
 * the file says), UNSUPPORTED. After an error outputs are empty tensors and the batch has a part of
 * the model: reset or release it.
 *
 *  What is recorded is called as its node (kiln_name_calls(), which this call ends). */
KILN_API KILN_MUST_CHECK kiln_status kiln_model_record(kiln_onnx_model *model, kiln_batch *batch,
                                                       const kiln_tensor *inputs,
                                                       const kiln_array *contents,
                                                       kiln_tensor *outputs);

/** A batch of a model for inputs of certain shapes, on lease to one thread. */
typedef struct kiln_model_lease {
    size_t size;                /**< of the structure, as the library has it */
    kiln_batch *batch;          /**< to execute or submit; it is not to be reset or released */
    size_t n_inputs;            /**< as kiln_model_inputs() */
    kiln_array *inputs;         /**< data: memory that runs read; write the inputs there. Of
                                     inputs that decide about shapes: NULL */
    kiln_tensor *input_tensors; /**< their uploads, for kiln_rebind_upload(); those that decide
                                     about shapes are empty */
    size_t n_outputs;           /**< as kiln_model_outputs() */
    kiln_array *outputs;        /**< types and shapes; data: memory that runs write. Output i is
                                     the batch's read number i (kiln_rebind_read()) */
} kiln_model_lease;

/** A batch for inputs of the types and shapes of `inputs`, one for each input of the model; their
 *  data counts only where kiln_model_value::content is nonzero. One that is kept is taken, else one
 *  is recorded. What a lease has rebound is bound to its own memory again when it is given back.
 *  Owner: the caller, until kiln_model_batch_return(). Threads: any; the lease one at a time.
 *  Errors: as kiln_model_record(), OUT_OF_HOST_MEMORY; *lease is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_model_batch(kiln_onnx_model *model,
                                                      const kiln_array *inputs,
                                                      kiln_model_lease **lease);

/** Give a batch back, after its last run has completed: it is kept for the next who asks for its
 *  shapes, and beyond the bound of options the one that was longest without use is released. NULL
 *  does nothing. Threads: any. Errors: none. */
KILN_API void kiln_model_batch_return(kiln_model_lease *lease);

/** Run the model once: host arrays in, one for each input, host arrays out, one for each output. An
 *  array may have another type than its input if both are computed as the same, or are signed
 *  integers, such as i32 for i64. Large arrays are read and written where they are, without a copy.
 *  Owner: `inputs` are only read; the caller frees each outputs[i].data with kiln_free().
 *  Threads: any. Errors: as kiln_model_batch() and kiln_batch_execute(), INVALID_ARGUMENT for
 * numbers of u64 from 2^63 on; outputs are then all zeros.
 */
KILN_API KILN_MUST_CHECK kiln_status kiln_model_run(kiln_onnx_model *model,
                                                    const kiln_array *inputs, kiln_array *outputs);

/** An operator that models may use. */
typedef struct kiln_model_operator {
    const char *domain; /**< "" is ONNX's own */
    const char *name;   /**< such as "MatMul" */
    int first;          /**< the first version of its domain's set with which it is understood */
    int last;           /**< the last one */
} kiln_model_operator;

/** Operator `number`, from 0; beyond the last one operator->name is NULL.
 *  Owner: the caller's structure is filled with static texts. Threads: any.
 *  Errors: INVALID_ARGUMENT for NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_model_get_operator(size_t number, kiln_model_operator *op,
                                                             size_t size);
#define kiln_model_get_operator(...)                                                               \
    kiln_model_get_operator(__VA_ARGS__, sizeof(kiln_model_operator))

#ifdef __cplusplus
}
#endif

#endif
