/* SPDX-License-Identifier: Apache-2.0 */
/* The table of benchmark rows: operation, shapes, and the function that records it. */
#include "work.h"

/* ---- how a row is written ---- */

#define COUNT(...) (sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t))
#define OF(type, ...)                                                                              \
    {                                                                                              \
        type, COUNT(__VA_ARGS__),                                                                  \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define INPUT(type, scale, classes, ...)                                                           \
    {                                                                                              \
        OF(type, __VA_ARGS__), scale, classes                                                      \
    }
#define F(...) INPUT(KILN_F32, 1, 0, __VA_ARGS__)
#define F16(...) INPUT(KILN_F16, 1, 0, __VA_ARGS__)
#define BF16(...) INPUT(KILN_BF16, 1, 0, __VA_ARGS__)
#define I8(...) INPUT(KILN_I8, 50, 0, __VA_ARGS__)
#define WEIGHTS(...) INPUT(KILN_F32, 0.05, 0, __VA_ARGS__) /* as of a network */
#define CLASSES(n, ...) INPUT(KILN_I32, 0, n, __VA_ARGS__) /* labels, indices */
#define SCALAR                                                                                     \
    {                                                                                              \
        KILN_F32, 0,                                                                               \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }
#define R(...) OF(KILN_F32, __VA_ARGS__)

#define LIST(type, ...)                                                                            \
    sizeof((type[]){__VA_ARGS__}) / sizeof(type),                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define IN(...) LIST(struct work_input, __VA_ARGS__)
#define OUT(...) LIST(struct process_shape, __VA_ARGS__)

#define BOTH (WORK_CPU | WORK_QUICK)
#define MULTIPLY_ADDS(m, k, n) (2.0 * (m) * (k) * (n))

/* A CPU's row; a GPU's, of which a peer knows the right result. `...`: the fields after results,
 * by name. */
#define CPU(name, operation, sets, slack, in, out, ...)                                            \
    {                                                                                              \
        name, #operation, record_##operation, sets, reference_##operation, slack, in, out,         \
            __VA_ARGS__                                                                            \
    }
#define GPU(name, operation, slack, in, out, ...)                                                  \
    {                                                                                              \
        name, #operation, record_##operation, WORK_GPU, NULL, slack, in, out, __VA_ARGS__          \
    }
#define MOVES .flops = 0 /* memory alone counts */

/* One matrix in, another out. */
#define ROWS(name, operation, rows, columns)                                                       \
    GPU(name, operation, 1e-5, IN(F(rows, columns)), OUT(R(rows, columns)), MOVES)
#define CPU_PRODUCT(name, sets, n)                                                                 \
    CPU(name, matmul, sets, 1e-3, IN(F(n, n), F(n, n)), OUT(R(n, n)),                              \
        .flops = MULTIPLY_ADDS(n, n, n))
#define PRODUCT(name, m, k, n)                                                                     \
    GPU(name, matmul, 1e-5, IN(F(m, k), F(k, n)), OUT(R(m, n)), .flops = MULTIPLY_ADDS(m, k, n))
/* Tensor cores cut what they add up off: sums of 8192 are off by 1e-5 of the largest. */
#define BF16_PRODUCT(name, n)                                                                      \
    GPU(name, matmul, 2e-5, IN(BF16(n, n), BF16(n, n)), OUT(R(n, n)),                              \
        .flops = MULTIPLY_ADDS(n, n, n), .unit = WORK_NARROW)

/* h heads, n rows, d columns. */
#define HEADS(h, n, d) F(h, n, d), F(h, n, d), F(h, n, d)
#define PAIRS(h, n, d) (4.0 * (h) * (n) * (n) * (d)) /* q k' and the weighted sum */
#define HEADS_GRAD(name, h, n, d)                                                                  \
    GPU(name, attention_grad, 1e-5, IN(HEADS(h, n, d), F(h, n, d)),                                \
        OUT(R(h, n, d), R(h, n, d), R(h, n, d), R(h, n, d)), .flops = 3.5 * PAIRS(h, n, d))
#define HEADS_F16(name, h, n, d)                                                                   \
    GPU(name, attention, 2e-3, IN(F16(h, n, d), F16(h, n, d), F16(h, n, d)),                       \
        OUT(OF(KILN_F16, h, n, d)), .flops = PAIRS(h, n, d), .unit = WORK_NARROW)

/* n rows of p features, h hidden ones, c classes. */
#define STEP(name, sets, slack, n, p, h, c)                                                        \
    CPU(name, training_step, sets, slack,                                                          \
        IN(F(n, p), CLASSES(c, n), WEIGHTS(p, h), WEIGHTS(h), WEIGHTS(h, c), WEIGHTS(c)),          \
        OUT(R(p, h), R(h), R(h, c), R(c)),                                                         \
        .flops = MULTIPLY_ADDS(n, p, 2 * (h)) + MULTIPLY_ADDS(n, h, 3 * (c)))

/* b sequences of n rows of width w. */
#define BLOCK(b, n, w)                                                                             \
    F(b, n, w), F(b, n, w), F(w), F(w), WEIGHTS(w, w), WEIGHTS(w, w), WEIGHTS(w, w),               \
        WEIGHTS(w, w), F(w), F(w), WEIGHTS(w, 4 * (w)), WEIGHTS(4 * (w)), WEIGHTS(4 * (w), w),     \
        WEIGHTS(w)
#define BLOCK_FLOPS(b, n, w) (MULTIPLY_ADDS((b) * (n), w, 12 * (w)) + PAIRS(b, n, w))

/* b sentences of n tokens of width w through l layers. */
#define ENCODER(name, sets, b, n, w, l)                                                            \
    {                                                                                              \
        name, "encoder", record_encoder, sets, NULL, 1e-4,                                         \
            IN(F(b, n, w), CLASSES(8, b, n), WEIGHTS(l, w, w), WEIGHTS(l, w, w), WEIGHTS(l, w, w), \
               WEIGHTS(l, w, w), WEIGHTS(l, 4, w), WEIGHTS(l, w, 4 * (w)), WEIGHTS(l, 4 * (w)),    \
               WEIGHTS(l, 4 * (w), w), WEIGHTS(l, w), F(l, 4, w)),                                 \
            OUT(R(b, n, w)), .flops = (l)*BLOCK_FLOPS(b, n, w)                                     \
    }

#define M1 1000000
#define M16 16000000
#define M256 268435456
#define IMAGE(c) 32, 56, 56, c /* the GPU's convolutions */

/* clang-format off */
const struct work works[] = {
    /* ---- a CPU's sizes ---- */
    CPU("relu(a * b + c), 1000000", chain, BOTH, 1e-6, IN(F(M1), F(M1), F(M1)), OUT(R(M1)), MOVES),
    CPU("relu(a * b + c), 16000000", chain, WORK_CPU, 1e-6, IN(F(M16), F(M16), F(M16)),
        OUT(R(M16)), MOVES),
    CPU("sum of 16000000", sum, BOTH, 0.5, IN(F(M16)), OUT(SCALAR), MOVES),
    CPU("rows' sums, 4096 x 4096", row_sums, WORK_CPU, 1e-2, IN(F(4096, 4096)), OUT(R(4096)), MOVES),
    CPU("columns' sums, 4096 x 4096", column_sums, WORK_CPU, 1e-2, IN(F(4096, 4096)), OUT(R(4096)),
        MOVES),
    CPU("transpose, 4096 x 4096", transpose, BOTH, 0, IN(F(4096, 4096)), OUT(R(4096, 4096)), MOVES),
    CPU("softmax, 4096 x 1024", softmax, BOTH, 1e-5, IN(F(4096, 1024)), OUT(R(4096, 1024)), MOVES),
    CPU("layer norm, 4096 x 1024", layer_norm, BOTH, 1e-4, IN(F(4096, 1024), F(1024), F(1024)),
        OUT(R(4096, 1024)), MOVES),
    CPU_PRODUCT("product, 128", WORK_CPU, 128),
    CPU_PRODUCT("product, 256", WORK_CPU, 256),
    CPU_PRODUCT("product, 512", BOTH, 512),
    CPU_PRODUCT("product, 1024", WORK_CPU, 1024),
    CPU("gelu(x w + b), 384 x 384 x 1536", linear_gelu, BOTH, 2e-4,
        IN(F(384, 384), F(384, 1536), F(1536)), OUT(R(384, 1536)),
        .flops = MULTIPLY_ADDS(384, 384, 1536)),
    CPU("relu(conv 3x3 + b), 8 x 56 x 56 x 32 to 64", conv, BOTH, 1e-4,
        IN(F(8, 56, 56, 32), F(3, 3, 32, 64), F(64)), OUT(R(8, 56, 56, 64)),
        .flops = MULTIPLY_ADDS(8 * 56 * 56, 9 * 32, 64)),
    CPU("attention, 8 heads, 512 x 64", attention, BOTH, 1e-4, IN(HEADS(8, 512, 64)),
        OUT(R(8, 512, 64)), .flops = PAIRS(8, 512, 64)),
    CPU("attention, 2 heads, 2048 x 64", attention, WORK_CPU, 1e-4, IN(HEADS(2, 2048, 64)),
        OUT(R(2, 2048, 64)), .flops = PAIRS(2, 2048, 64)),
    ENCODER("encoder (MiniLM's 6 layers of 384), 32 x 128 tokens", BOTH, 32, 128, 384, 6),
    ENCODER("encoder (MiniLM's 6 layers of 384), 1 x 16 tokens", BOTH, 1, 16, 384, 6),
    STEP("training step, 64-128-10, 128 rows", BOTH, 1e-4, 128, 64, 128, 10),
    STEP("training step, 784-512-10, 256 rows", WORK_CPU, 1e-3, 256, 784, 512, 10),

    /* ---- a GPU's: element by element ---- */
    GPU("2 relu(x) + y, 256M", relu2, 1e-6, IN(F(M256), F(M256)), OUT(R(M256)), MOVES),
    GPU("chain of 8, 256M", chain8, 1e-6, IN(F(M256), F(M256), F(M256)), OUT(R(M256)), MOVES),
    GPU("x + bias, 32768 x 8192", bias_add, 1e-6, IN(F(32768, 8192), F(8192)), OUT(R(32768, 8192)),
        MOVES),
    GPU("gelu, 256M", gelu, 1e-6, IN(F(M256)), OUT(R(M256)), MOVES),

    /* ---- sums and rows ---- */
    GPU("sum, 256M", sum, 1e-3, IN(F(M256)), OUT(SCALAR), MOVES),
    GPU("rows' sums, 16384 x 4096", row_sums, 1e-5, IN(F(16384, 4096)), OUT(R(16384)), MOVES),
    GPU("columns' sums, 16384 x 4096", column_sums, 1e-5, IN(F(16384, 4096)), OUT(R(4096)), MOVES),
    GPU("columns' sums, 4096 x 16384", column_sums, 1e-5, IN(F(4096, 16384)), OUT(R(16384)), MOVES),
    GPU("argmax, 16384 x 4096", argmax, 0, IN(F(16384, 4096)), OUT(OF(KILN_I32, 16384)), MOVES),
    ROWS("softmax, 4096 x 1024", softmax, 4096, 1024),
    ROWS("softmax, 16384 x 4096", softmax, 16384, 4096),
    ROWS("softmax, 1024 x 50257", softmax, 1024, 50257),
    ROWS("log-softmax, 16384 x 4096", log_softmax, 16384, 4096),
    GPU("cross-entropy, 8192 x 32000", cross_entropy, 1e-5,
        IN(F(8192, 32000), CLASSES(32000, 8192)), OUT(SCALAR), MOVES),
    GPU("cross-entropy and gradient, 8192 x 32000", cross_entropy_grad, 1e-5,
        IN(F(8192, 32000), CLASSES(32000, 8192)), OUT(SCALAR, R(8192, 32000)), MOVES),
    GPU("layer norm, 4096 x 1024", layer_norm, 1e-5, IN(F(4096, 1024), F(1024), F(1024)),
        OUT(R(4096, 1024)), MOVES),
    GPU("layer norm, 16384 x 4096", layer_norm, 1e-5, IN(F(16384, 4096), F(4096), F(4096)),
        OUT(R(16384, 4096)), MOVES),
    GPU("layer norm and gradients, 16384 x 4096", layer_norm_grad, 1e-5,
        IN(F(16384, 4096), F(4096), F(4096), F(16384, 4096)),
        OUT(R(16384, 4096), R(16384, 4096), R(4096), R(4096)), MOVES),
    GPU("rms norm, 16384 x 4096", rms_norm, 1e-5, IN(F(16384, 4096), F(4096)), OUT(R(16384, 4096)),
        MOVES),
    ROWS("running sums along rows, 16384 x 4096", cumsum_rows, 16384, 4096),
    ROWS("running sums down columns, 16384 x 4096", cumsum_columns, 16384, 4096),
    GPU("running sum, 16M", cumsum, 1e-5, IN(F(16777216)), OUT(R(16777216)), MOVES),

    /* ---- movement ---- */
    GPU("transpose, 8192 x 8192", transpose, 0, IN(F(8192, 8192)), OUT(R(8192, 8192)), MOVES),
    GPU("transpose, 8191 x 8193", transpose, 0, IN(F(8191, 8193)), OUT(R(8193, 8191)), MOVES),
    GPU("gather, 16384 of 50000 x 768", gather, 0, IN(F(50000, 768), CLASSES(50000, 16384)),
        OUT(R(16384, 768)), .bytes = 2 * 16384 * 768 * 4.0),
    GPU("scatter-add, 16384 into 50000 x 768", scatter_add, 1e-6,
        IN(F(50000, 768), CLASSES(50000, 16384), F(16384, 768)), OUT(R(50000, 768)), MOVES),

    /* ---- products ---- */
    PRODUCT("product, 512", 512, 512, 512),
    PRODUCT("product, 1024", 1024, 1024, 1024),
    PRODUCT("product, 2048", 2048, 2048, 2048),
    PRODUCT("product, 4096", 4096, 4096, 4096),
    PRODUCT("product, 8192", 8192, 8192, 8192),
    GPU("product a b', 4096", matmul_nt, 1e-5, IN(F(4096, 4096), F(4096, 4096)), OUT(R(4096, 4096)),
        .flops = MULTIPLY_ADDS(4096, 4096, 4096)),
    GPU("product a' b, 4096", matmul_tn, 1e-5, IN(F(4096, 4096), F(4096, 4096)), OUT(R(4096, 4096)),
        .flops = MULTIPLY_ADDS(4096, 4096, 4096)),
    PRODUCT("product, 1 x 4096 x 4096", 1, 4096, 4096),
    PRODUCT("product, 8 x 4096 x 4096", 8, 4096, 4096),
    PRODUCT("product, 8 x 4096 x 16384", 8, 4096, 16384),
    PRODUCT("product, 256 x 16384 x 256", 256, 16384, 256),
    PRODUCT("product, 4096 x 512 x 10", 4096, 512, 10),
    PRODUCT("product, 4096 x 512 x 512", 4096, 512, 512),
    GPU("products, 64 of 512", matmul, 1e-5, IN(F(64, 512, 512), F(64, 512, 512)),
        OUT(R(64, 512, 512)), .flops = 64 * MULTIPLY_ADDS(512, 512, 512)),
    GPU("gelu(x w + b), 4096 x 1024 x 4096", linear_gelu, 1e-5,
        IN(F(4096, 1024), F(1024, 4096), F(4096)), OUT(R(4096, 4096)),
        .flops = MULTIPLY_ADDS(4096, 1024, 4096)),
    GPU("gelu(x w + b) + r, 4096 x 1024 x 4096", linear_gelu_residual, 1e-5,
        IN(F(4096, 1024), F(1024, 4096), F(4096), F(4096, 4096)), OUT(R(4096, 4096)),
        .flops = MULTIPLY_ADDS(4096, 1024, 4096)),
    BF16_PRODUCT("bf16 product, 1024", 1024),
    BF16_PRODUCT("bf16 product, 2048", 2048),
    BF16_PRODUCT("bf16 product, 4096", 4096),
    BF16_PRODUCT("bf16 product, 8192", 8192),
    GPU("bf16 gelu(x w + b), 8192 x 4096 x 8192", linear_gelu_narrow, 1e-2,
        IN(BF16(8192, 4096), BF16(4096, 8192), BF16(8192)), OUT(OF(KILN_BF16, 8192, 8192)),
        .flops = MULTIPLY_ADDS(8192, 4096, 8192), .unit = WORK_NARROW),
    GPU("i8 product, 4096", matmul_int, 1e-6, IN(I8(4096, 4096), I8(4096, 4096)),
        OUT(R(4096, 4096)), .flops = MULTIPLY_ADDS(4096, 4096, 4096), .unit = WORK_NARROW),

    /* ---- convolution, attention, networks ---- */
    GPU("conv 3x3, 32 x 56 x 56 x 64 to 64", conv_plain, 1e-5, IN(F(IMAGE(64)), F(3, 3, 64, 64)),
        OUT(R(IMAGE(64))), .flops = MULTIPLY_ADDS(32 * 56 * 56, 9 * 64, 64)),
    GPU("its gradients", conv_grad, 1e-4, IN(F(IMAGE(64)), F(3, 3, 64, 64), F(IMAGE(64))),
        OUT(R(IMAGE(64)), R(3, 3, 64, 64)), .flops = 2 * MULTIPLY_ADDS(32 * 56 * 56, 9 * 64, 64)),
    GPU("attention, 8 heads, 2048 x 64", attention, 1e-5, IN(HEADS(8, 2048, 64)),
        OUT(R(8, 2048, 64)), .flops = PAIRS(8, 2048, 64)),
    GPU("attention, causal, 8 heads, 2048 x 64", attention_causal, 1e-5, IN(HEADS(8, 2048, 64)),
        OUT(R(8, 2048, 64)), .flops = PAIRS(8, 2048, 64) / 2),
    GPU("attention, 32 heads, 1024 x 128", attention, 1e-5, IN(HEADS(32, 1024, 128)),
        OUT(R(32, 1024, 128)), .flops = PAIRS(32, 1024, 128)),
    HEADS_GRAD("attention and gradients, 8 heads, 2048 x 64", 8, 2048, 64),
    HEADS_GRAD("attention and gradients, 32 heads, 1024 x 128", 32, 1024, 128),
    HEADS_F16("f16 attention, 8 heads, 2048 x 64", 8, 2048, 64),
    HEADS_F16("f16 attention, 32 heads, 1024 x 128", 32, 1024, 128),
    GPU("MLP step, 784-512-512-10, 256 rows, Adam", mlp_step, 1e-3,
        IN(F(256, 784), CLASSES(10, 256), WEIGHTS(784, 512), WEIGHTS(512), WEIGHTS(512, 512),
           WEIGHTS(512), WEIGHTS(512, 10), WEIGHTS(10)), OUT(SCALAR),
        .flops = MULTIPLY_ADDS(256, 784, 2 * 512) + MULTIPLY_ADDS(256, 512, 3 * 522), .steps = 3),
    GPU("transformer block, 8 x 512 x 512", block, 1e-5, IN(BLOCK(8, 512, 512)), OUT(R(8, 512, 512)),
        .flops = BLOCK_FLOPS(8, 512, 512)),
    GPU("its training step, Adam", block_step, 1e-3, IN(BLOCK(8, 512, 512)), OUT(SCALAR),
        .flops = 3 * BLOCK_FLOPS(8, 512, 512), .steps = 3),
    {.name = NULL},
};
/* clang-format on */
