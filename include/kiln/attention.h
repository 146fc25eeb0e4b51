/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Scaled dot-product attention. */
#ifndef KILN_ATTENTION_H
#define KILN_ATTENTION_H

#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How scores are made. Start from KILN_ATTENTION_OPTIONS_INIT; zero in a field is its default. */
typedef struct kiln_attention_options {
    size_t size;      /**< sizeof(kiln_attention_options), set by the initialiser */
    double scale;     /**< factor of q k'; 0: 1 / sqrt(d) */
    int causal;       /**< nonzero: row i of q sees keys 0 to i + diagonal only */
    int64_t diagonal; /**< of causal: 0 counts from the first key; n - m counts from the last, as
                           where earlier keys come from a cache. With lengths 0 counts from the last
                           key that is there */
    /** Keys that a row sees at most, the last up to its own place: row i of a causal q sees keys
     *  i + diagonal - window + 1 to i + diagonal, which lengths shift as they do without it; a row
     *  that is not causal the last `window` keys that are there. 0: all. Blocks of earlier keys are
     *  not read; a gradient takes time by m n. */
    int64_t window;
} kiln_attention_options;

/** Options with every default. */
#define KILN_ATTENTION_OPTIONS_INIT                                                                \
    {                                                                                              \
        sizeof(kiln_attention_options), 0, 0, 0, 0                                                 \
    }

/** Fill a structure as KILN_ATTENTION_OPTIONS_INIT does. NULL does nothing. Threads: any.
 *  Errors: none. */
KILN_API void kiln_attention_options_init(kiln_attention_options *options, size_t size);
#define kiln_attention_options_init(...)                                                           \
    kiln_attention_options_init(__VA_ARGS__, sizeof(kiln_attention_options))

/** softmax(scale q k' + mask) v (Vaswani et al. 2017): f32 tensors q [..., m, d], k [..., n, d] and
 *  v [..., n, e] give [..., m, e].
 *
 *  Leading dimensions broadcast and nothing is copied for that: heads that share keys and values
 *  are a k and a v of 1 in a dimension. Transposed and sliced operands are read where they are. The
 *  m by n scores are never in memory: keys come in blocks, and the sums so far are scaled again
 *  whenever a larger score turns up (Milakov and Gimelshein 2018; Dao et al. 2022).
 *  Computed in f32; where q, k and v are all f16, or all bf16, the weights may be rounded to that
 * type before they meet v (tensor cores of NVIDIA's Hopper). Weighted rows of v are
 * added up before they are divided by the sum of their weights: where |v| over the keys adds up to
 * more than the largest f32, a result may be infinite.
 *
 *  `mask` is [..., m, n] and broadcasts with the others; the empty tensor means none. u8: a row
 *  sees the keys whose element is not 0. f32: added to the scores, and -infinity takes a key away.
 *  Finite numbers, however low, do not: where a row has no others, its keys count by what that
 *  gives (below -2.3e38 they count alike). A row that sees no key is 0. What a row does not see
 *  does not count, even if its score is NaN, nor in the gradient; v is expected to be finite there,
 *  and on tensor cores, for the gradient, q and k are, too.
 *
 *  The gradient (kiln_grad()) computes scores again, a block of rows of q at a time: 2^22 of them
 *  (on a GPU up to 2^26, where they take no more than a 256th of its memory) or a 32nd part of all,
 *  whichever is more, are in memory at once, a few times over. Of a row that
 *  sees a single key those by q and k are what rounding leaves, next to 0 and not always 0. On a
 *  GPU, where q, k and v are all f16, or all bf16, weights, the result's gradient and the scores'
 *  are rounded to that type. In f16 the result's gradient is scaled to its range first, a matrix at
 *  a time, so that an infinite one makes NaN of all its matrix's gradients.
 *
 *  `options` may be NULL. Owner: the result belongs to the batch. Threads: one at a time. Errors,
 *  sticky: INVALID_HANDLE, INVALID_ARGUMENT, SHAPE_MISMATCH, TYPE_MISMATCH, TOO_LARGE, UNSUPPORTED
 *  (d or e of several thousand, more than local memory holds),
 *  OUT_OF_HOST_MEMORY. */
KILN_API kiln_tensor kiln_attention(kiln_batch *batch, kiln_tensor q, kiln_tensor k, kiln_tensor v,
                                    kiln_tensor mask, const kiln_attention_options *options);

/** kiln_attention() over as many keys as `lengths` says: of k and v, which may be a cache with room
 *  for n keys, the first `length` rows of each matrix count. The others are neither read nor
 *  computed with, whatever lies there; the time goes by the length, not by n.
 *
 *  `lengths` are integers, a tensor whose shape broadcasts with the leading dimensions: [] is one
 *  length for all, [b, 1] one for each of b sequences, whatever their heads. Below 0 counts as 0,
 *  above n as n. With 0 keys the result is 0. Row i of a causal q sees keys 0 to
 *  length - m + i + diagonal: the queries are the last m tokens of what is there, such as the next
 *  chunk of a prompt, or the token that is generated now. A mask goes on top of that.
 *
 *  A length changes no bits but by the keys that it adds: the keys are taken in the same blocks
 *  whatever the lengths are, and lengths of other matrices do not matter. The gradient flows to q,
 *  k, v and the mask, and is 0 beyond the length; none flows to lengths. It takes time by n.
 *
 *  Everything else, errors too, as kiln_attention(). INVALID_HANDLE also for empty `lengths`,
 *  TYPE_MISMATCH for such that are no integers. */
KILN_API kiln_tensor kiln_attention_with_lengths(kiln_batch *batch, kiln_tensor q, kiln_tensor k,
                                                 kiln_tensor v, kiln_tensor mask,
                                                 kiln_tensor lengths,
                                                 const kiln_attention_options *options);

#ifdef __cplusplus
}
#endif

#endif
