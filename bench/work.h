/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of bench/libraries: what is worked out, of what, and how kiln records it. Peers know an
 * operation by its name (bench/peers.py). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <kiln/kiln.h>

#include "process.h"
#include "reference.h"

#define WORK_INPUTS 16
#define WORK_RESULTS 16

/* Where a row's sizes make sense. */
enum work_set {
    WORK_CPU = 1,
    WORK_GPU = 2,
    WORK_QUICK = 4, /* of the CPU's, those of --quick */
};

/* What limits a row's arithmetic, beside memory. */
enum work_unit {
    WORK_PLAIN,  /* multiply-adds in f32 */
    WORK_NARROW, /* a narrow product: units of its own, whose limit is not measured */
};

/* What an input holds: values from -2 to 2, times the scale; or, of `classes` above 0, whole
 * numbers from 0 to below it. */
struct work_input {
    struct process_shape shape;
    double scale;
    size_t classes;
};

/* A batch that is being recorded. */
struct recording {
    kiln_context *context;
    kiln_batch *batch;
    kiln_buffer *buffers[WORK_INPUTS]; /* of the inputs */
    kiln_tensor in[WORK_INPUTS], out[WORK_RESULTS];
    kiln_optimizer *optimizer; /* of what updates its inputs; else NULL */
};

struct work {
    const char *name, *operation;
    void (*record)(struct recording *r);
    unsigned sets;
    reference *reference; /* NULL: a peer's in double precision */
    double slack;         /* absolute and relative error; without a reference, of the largest */
    size_t input_count;
    struct work_input inputs[WORK_INPUTS];
    size_t result_count;
    struct process_shape results[WORK_RESULTS];
    double flops, bytes; /* of one run: what it cannot do without; 0 bytes: inputs and results */
    enum work_unit unit;
    size_t steps; /* runs before the look at the result, where each changes the inputs; else 0 */
};

extern const struct work works[]; /* a NULL name at the end */

/* ---- how they are recorded ---- */

typedef void work_record(struct recording *r);

work_record record_chain, record_relu2, record_chain8, record_bias_add, record_gelu, record_relu,
    record_sum, record_row_sums, record_column_sums, record_argmax, record_softmax,
    record_log_softmax, record_cross_entropy, record_cross_entropy_grad, record_layer_norm,
    record_layer_norm_grad, record_rms_norm, record_transpose, record_gather, record_scatter_add,
    record_cumsum_rows, record_cumsum_columns, record_cumsum, record_matmul, record_matmul_nt,
    record_matmul_tn, record_linear_gelu, record_linear_gelu_residual, record_linear_gelu_narrow,
    record_matmul_int, record_conv, record_conv_plain, record_conv_grad, record_attention,
    record_attention_causal, record_attention_grad, record_training_step, record_mlp_step,
    record_block, record_block_step, record_encoder;
