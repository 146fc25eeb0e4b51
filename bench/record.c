/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of bench/libraries as kiln's caller writes them. */
#include "bench.h"
#include "work.h"

static const int axis_0[] = {0}, axis_1[] = {1};

/* The shape of an input. */
static void shape_of(const struct recording *r, size_t input, size_t dims[KILN_MAX_RANK])
{
    bench_ok(kiln_tensor_shape(r->batch, r->in[input], NULL, NULL, dims), "a shape");
}

/* out[1...]: derivatives of sum(y * slope) by the first n inputs, y being out[0]. */
static void differentiate(struct recording *r, kiln_tensor slope, size_t n)
{
    kiln_tensor loss = kiln_sum(r->batch, kiln_mul(r->batch, r->out[0], slope), 0, NULL, 0);
    kiln_grad(r->batch, loss, r->in, n, r->out + 1);
}

/* ---- element by element ---- */

void record_relu(struct recording *r)
{
    r->out[0] = kiln_relu(r->batch, r->in[0]);
}

void record_chain(struct recording *r)
{
    kiln_tensor sum = kiln_add(r->batch, kiln_mul(r->batch, r->in[0], r->in[1]), r->in[2]);
    r->out[0] = kiln_relu(r->batch, sum);
}

void record_relu2(struct recording *r)
{
    kiln_tensor twice = kiln_scale(r->batch, kiln_relu(r->batch, r->in[0]), 2);
    r->out[0] = kiln_add(r->batch, twice, r->in[1]);
}

/* min((relu(a b + c) a - b)^2 + c, a) */
void record_chain8(struct recording *r)
{
    kiln_batch *batch = r->batch;
    kiln_tensor a = r->in[0], b = r->in[1], c = r->in[2];
    kiln_tensor y = kiln_relu(batch, kiln_add(batch, kiln_mul(batch, a, b), c));
    y = kiln_sub(batch, kiln_mul(batch, y, a), b);
    r->out[0] = kiln_minimum(batch, kiln_add(batch, kiln_mul(batch, y, y), c), a);
}

void record_bias_add(struct recording *r)
{
    r->out[0] = kiln_add(r->batch, r->in[0], r->in[1]);
}

void record_gelu(struct recording *r)
{
    r->out[0] = kiln_gelu(r->batch, r->in[0]);
}

/* ---- sums, rows, movement ---- */

void record_sum(struct recording *r)
{
    r->out[0] = kiln_sum(r->batch, r->in[0], 0, NULL, 0);
}

void record_row_sums(struct recording *r)
{
    r->out[0] = kiln_sum(r->batch, r->in[0], 1, axis_1, 0);
}

void record_column_sums(struct recording *r)
{
    r->out[0] = kiln_sum(r->batch, r->in[0], 1, axis_0, 0);
}

void record_argmax(struct recording *r)
{
    r->out[0] = kiln_argmax(r->batch, r->in[0], 1, axis_1, 0);
}

void record_softmax(struct recording *r)
{
    r->out[0] = kiln_softmax(r->batch, r->in[0], 1, axis_1);
}

void record_log_softmax(struct recording *r)
{
    r->out[0] = kiln_log_softmax(r->batch, r->in[0], 1, axis_1);
}

void record_cross_entropy(struct recording *r)
{
    r->out[0] = kiln_cross_entropy(r->batch, r->in[0], r->in[1]);
}

void record_cross_entropy_grad(struct recording *r)
{
    record_cross_entropy(r);
    kiln_grad(r->batch, r->out[0], r->in, 1, r->out + 1);
}

void record_layer_norm(struct recording *r)
{
    r->out[0] = kiln_layer_norm(r->batch, r->in[0], r->in[1], r->in[2], 1, axis_1, 1e-5);
}

void record_layer_norm_grad(struct recording *r)
{
    record_layer_norm(r);
    differentiate(r, r->in[3], 3);
}

void record_rms_norm(struct recording *r)
{
    r->out[0] = kiln_rms_norm(r->batch, r->in[0], r->in[1], 1, axis_1, 1e-5);
}

void record_transpose(struct recording *r)
{
    r->out[0] = kiln_transpose(r->batch, r->in[0], NULL);
}

void record_gather(struct recording *r)
{
    r->out[0] = kiln_gather(r->batch, r->in[0], r->in[1], 0);
}

void record_scatter_add(struct recording *r)
{
    r->out[0] = kiln_scatter_add(r->batch, r->in[0], r->in[1], r->in[2], 0);
}

void record_cumsum_rows(struct recording *r)
{
    r->out[0] = kiln_cumsum(r->batch, r->in[0], 1, 0);
}

void record_cumsum_columns(struct recording *r)
{
    r->out[0] = kiln_cumsum(r->batch, r->in[0], 0, 0);
}

void record_cumsum(struct recording *r)
{
    record_cumsum_columns(r);
}

/* ---- products ---- */

void record_matmul(struct recording *r)
{
    r->out[0] = kiln_matmul(r->batch, r->in[0], r->in[1]);
}

void record_matmul_nt(struct recording *r)
{
    r->out[0] = kiln_matmul_transposed(r->batch, r->in[0], 0, r->in[1], 1);
}

void record_matmul_tn(struct recording *r)
{
    r->out[0] = kiln_matmul_transposed(r->batch, r->in[0], 1, r->in[1], 0);
}

void record_matmul_int(struct recording *r)
{
    kiln_tensor none = {0};
    r->out[0] = kiln_matmul_quantized(r->batch, r->in[0], none, r->in[1], 0, none);
}

static kiln_tensor linear(kiln_batch *batch, kiln_tensor x, kiln_tensor w, kiln_tensor b)
{
    return kiln_add(batch, kiln_matmul(batch, x, w), b);
}

void record_linear_gelu(struct recording *r)
{
    r->out[0] = kiln_gelu_tanh(r->batch, linear(r->batch, r->in[0], r->in[1], r->in[2]));
}

void record_linear_gelu_residual(struct recording *r)
{
    record_linear_gelu(r);
    r->out[0] = kiln_add(r->batch, r->out[0], r->in[3]);
}

void record_linear_gelu_narrow(struct recording *r)
{
    record_linear_gelu(r);
    r->out[0] = kiln_cast(r->batch, r->out[0], KILN_BF16);
}

/* ---- convolution ---- */

void record_conv_plain(struct recording *r)
{
    kiln_window_options options = {.size = sizeof options, .before = {1, 1}, .after = {1, 1}};
    r->out[0] = kiln_conv2d(r->batch, r->in[0], r->in[1], &options);
}

void record_conv(struct recording *r)
{
    record_conv_plain(r);
    r->out[0] = kiln_relu(r->batch, kiln_add(r->batch, r->out[0], r->in[2]));
}

void record_conv_grad(struct recording *r)
{
    kiln_tensor gradients[2];
    record_conv_plain(r);
    kiln_tensor loss = kiln_sum(r->batch, kiln_mul(r->batch, r->out[0], r->in[2]), 0, NULL, 0);
    kiln_grad(r->batch, loss, r->in, 2, gradients);
    r->out[0] = gradients[0];
    r->out[1] = gradients[1];
}

/* ---- attention ---- */

void record_attention(struct recording *r)
{
    kiln_type type;
    kiln_tensor y = kiln_attention(r->batch, r->in[0], r->in[1], r->in[2], (kiln_tensor){0}, NULL);
    bench_ok(kiln_tensor_shape(r->batch, r->in[0], &type, NULL, NULL), "a type");
    r->out[0] = type == KILN_F32 ? y : kiln_cast(r->batch, y, type);
}

void record_attention_causal(struct recording *r)
{
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.causal = 1;
    r->out[0] = kiln_attention(r->batch, r->in[0], r->in[1], r->in[2], (kiln_tensor){0}, &options);
}

void record_attention_grad(struct recording *r)
{
    r->out[0] = kiln_attention(r->batch, r->in[0], r->in[1], r->in[2], (kiln_tensor){0}, NULL);
    differentiate(r, r->in[3], 3);
}

/* ---- networks ---- */

void record_training_step(struct recording *r)
{
    const kiln_tensor *in = r->in;
    kiln_batch *batch = r->batch;
    kiln_tensor gradients[4];
    kiln_tensor hidden = kiln_relu(batch, linear(batch, in[0], in[2], in[3]));
    kiln_tensor logits = linear(batch, hidden, in[4], in[5]);
    kiln_grad(batch, kiln_cross_entropy(batch, logits, in[1]), in + 2, 4, gradients);
    for (int i = 0; i < 4; i++)
        r->out[i] = kiln_sub(batch, in[2 + i], kiln_scale(batch, gradients[i], 0.1));
}

/* Adam updates inputs `first` to first + n - 1; the result is the loss. */
static void train(struct recording *r, kiln_tensor loss, size_t first, size_t n)
{
    kiln_optimizer_options options = KILN_ADAM_INIT;
    kiln_tensor gradients[WORK_INPUTS];
    bench_ok(kiln_optimizer_create(r->context, &options, n, r->buffers + first, &r->optimizer),
             "an optimiser");
    kiln_grad(r->batch, loss, r->in + first, n, gradients);
    bench_ok(kiln_optimizer_step(r->batch, r->optimizer, gradients), "a step");
    r->out[0] = loss;
}

/* x, labels, three layers of weights and biases. */
void record_mlp_step(struct recording *r)
{
    const kiln_tensor *in = r->in;
    kiln_tensor y = kiln_relu(r->batch, linear(r->batch, in[0], in[2], in[3]));
    y = kiln_relu(r->batch, linear(r->batch, y, in[4], in[5]));
    train(r, kiln_cross_entropy(r->batch, linear(r->batch, y, in[6], in[7]), in[1]), 2, 6);
}

#define HEAD 64 /* columns of a head */

/* [sequences, rows, width] of [sequences * rows, width] to [sequences, heads, rows, HEAD] */
static kiln_tensor split_heads(struct recording *r, kiln_tensor x, const size_t dims[KILN_MAX_RANK])
{
    size_t axes[4] = {0, 2, 1, 3};
    kiln_tensor parts =
        kiln_reshape(r->batch, x, 4, (size_t[]){dims[0], dims[1], dims[2] / HEAD, HEAD});
    return kiln_transpose(r->batch, parts, axes);
}

static kiln_tensor attend(struct recording *r, kiln_tensor x, const size_t dims[KILN_MAX_RANK])
{
    size_t axes[4] = {0, 2, 1, 3};
    kiln_tensor heads[3];
    for (size_t i = 0; i < 3; i++)
        heads[i] = split_heads(r, kiln_matmul(r->batch, x, r->in[4 + i]), dims);
    kiln_tensor y = kiln_attention(r->batch, heads[0], heads[1], heads[2], (kiln_tensor){0}, NULL);
    y = kiln_reshape(r->batch, kiln_transpose(r->batch, y, axes), 2,
                     (size_t[]){dims[0] * dims[1], dims[2]});
    return kiln_matmul(r->batch, y, r->in[7]);
}

/* A transformer's block: x, target, scale and shift of a layer norm, wq, wk, wv, wo, scale and
 * shift of the other, w1, b1, w2, b2. */
void record_block(struct recording *r)
{
    const kiln_tensor *in = r->in;
    kiln_batch *batch = r->batch;
    size_t dims[KILN_MAX_RANK];
    shape_of(r, 0, dims);
    kiln_tensor x = kiln_reshape(batch, in[0], 2, (size_t[]){dims[0] * dims[1], dims[2]});
    kiln_tensor y = kiln_layer_norm(batch, x, in[2], in[3], 1, axis_1, 1e-5);
    x = kiln_add(batch, x, attend(r, y, dims));
    y = kiln_layer_norm(batch, x, in[8], in[9], 1, axis_1, 1e-5);
    y = kiln_gelu_tanh(batch, linear(batch, y, in[10], in[11]));
    x = kiln_add(batch, x, linear(batch, y, in[12], in[13]));
    r->out[0] = kiln_reshape(batch, x, 3, dims);
}

void record_block_step(struct recording *r)
{
    record_block(r);
    train(r, kiln_mean_squared_error(r->batch, r->out[0], r->in[1]), 2, 12);
}

/* ---- an encoder ---- */

#define NARROW_HEAD 32

/* Part `i` of the layer `l` of weights that are stacked, [layers, parts, rest...]; of
 * [layers, rest...] with parts of 0. */
static kiln_tensor part_of(struct recording *r, size_t input, size_t l, size_t parts, size_t i)
{
    size_t dims[KILN_MAX_RANK], rank, cut = parts ? 2 : 1;
    int64_t start[KILN_MAX_RANK] = {(int64_t)l, (int64_t)i}, stop[KILN_MAX_RANK];
    bench_ok(kiln_tensor_shape(r->batch, r->in[input], NULL, &rank, dims), "a shape");
    for (size_t d = 0; d < rank; d++)
        stop[d] = d < cut ? start[d] + 1 : (int64_t)dims[d];
    kiln_tensor part = kiln_slice(r->batch, r->in[input], start, stop, NULL);
    return kiln_reshape(r->batch, part, rank - cut, dims + cut);
}

/* x w + b of [sequences * rows, width] as [sequences, heads, rows, NARROW_HEAD]. */
static kiln_tensor narrow_heads(struct recording *r, kiln_tensor x, size_t l, size_t i,
                                const size_t dims[KILN_MAX_RANK])
{
    kiln_tensor y = linear(r->batch, x, part_of(r, 2 + i, l, 0, 0), part_of(r, 6, l, 4, i));
    y = kiln_reshape(r->batch, y, 4,
                     (size_t[]){dims[0], dims[1], dims[2] / NARROW_HEAD, NARROW_HEAD});
    return kiln_transpose(r->batch, y, (size_t[]){0, 2, 1, 3});
}

static kiln_tensor norm_sum(struct recording *r, kiln_tensor x, kiln_tensor y, size_t l, size_t i)
{
    return kiln_layer_norm(r->batch, kiln_add(r->batch, x, y), part_of(r, 11, l, 4, i),
                           part_of(r, 11, l, 4, i + 1), 1, axis_1, 1e-5);
}

/* Of sentences, as BERT and its like (Devlin et al. 2018): x, tokens (0: none there), and of all
 * layers wq, wk, wv, wo, their biases, w1, b1, w2, b2, scales and shifts of two layer norms. */
void record_encoder(struct recording *r)
{
    kiln_batch *batch = r->batch;
    size_t dims[KILN_MAX_RANK], layers[KILN_MAX_RANK];
    shape_of(r, 0, dims);
    shape_of(r, 2, layers);
    kiln_tensor mask = kiln_not_equal(batch, r->in[1], kiln_constant(batch, KILN_I32, 0));
    kiln_tensor x = kiln_reshape(batch, r->in[0], 2, (size_t[]){dims[0] * dims[1], dims[2]});
    mask = kiln_reshape(batch, mask, 4, (size_t[]){dims[0], 1, 1, dims[1]});
    for (size_t l = 0; l < layers[0]; l++) {
        kiln_tensor heads[3];
        for (size_t i = 0; i < 3; i++)
            heads[i] = narrow_heads(r, x, l, i, dims);
        kiln_tensor y = kiln_attention(batch, heads[0], heads[1], heads[2], mask, NULL);
        y = kiln_transpose(batch, y, (size_t[]){0, 2, 1, 3});
        y = kiln_reshape(batch, y, 2, (size_t[]){dims[0] * dims[1], dims[2]});
        y = linear(batch, y, part_of(r, 5, l, 0, 0), part_of(r, 6, l, 4, 3));
        x = norm_sum(r, x, y, l, 0);
        y = kiln_gelu(batch, linear(batch, x, part_of(r, 7, l, 0, 0), part_of(r, 8, l, 0, 0)));
        x = norm_sum(r, x, linear(batch, y, part_of(r, 9, l, 0, 0), part_of(r, 10, l, 0, 0)), l, 2);
    }
    r->out[0] = kiln_reshape(batch, x, 3, dims);
}
