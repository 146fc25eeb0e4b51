/* SPDX-License-Identifier: Apache-2.0 */
/* Windows' way back: what was picked or cut out of images is put together again. */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "onnx/onnx.pb-c.h"
#include "onnx/windows.h"

enum { INT64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64 };

/* Sizes that a caller asks for, as many as an image has dimensions. */
static bool take_sizes(struct kiln__onnx_call *call, const char *what, const int64_t *list,
                       size_t count, size_t n, size_t *sizes)
{
    if (count != n)
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "%zu sizes of %s, not %zu", count, what, n);
    for (size_t i = 0; i < n && !kiln__onnx_failed(call); i++) {
        if (list[i] < 1 || list[i] > INT32_MAX)
            kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "a size of %s is %" PRId64, what,
                              list[i]);
        sizes[i] = (size_t)list[i];
    }
    return !kiln__onnx_failed(call);
}

/* ---- MaxUnpool ---- */

/* The shape that the positions count in: that of the image the pool is of, as far as its windows
 * reached. */
static bool find_origin(struct kiln__onnx_call *call, const struct kiln__onnx_windows *w,
                        size_t *dims)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    memcpy(dims, x->dims, 2 * sizeof *dims);
    for (size_t i = 0; i < w->n; i++) {
        uint64_t reach = w->in[i] ? (uint64_t)(w->in[i] - 1) * w->stride[i] + w->window[i] : 0;
        uint64_t padding = (uint64_t)w->before[i] + w->after[i];
        if (reach <= padding || reach - padding > INT32_MAX) {
            kiln__onnx_refuse(call, reach <= padding ? KILN_INVALID_ARGUMENT : KILN_TOO_LARGE,
                              "dimension %zu would have %" PRIu64
                              " elements without its padding of %" PRIu64,
                              2 + i, reach, padding);
            return false;
        }
        dims[2 + i] = (size_t)(reach - padding);
    }
    return true;
}

/* x in an image of `dims`, with zeros behind it up to the sizes that operand 2 has. */
static kiln_tensor widen(struct kiln__onnx_call *call, kiln_tensor x, const size_t *dims)
{
    size_t rank = kiln__onnx_operand(call, 0)->rank, n, sizes[KILN_MAX_RANK];
    size_t none[KILN_MAX_RANK] = {0}, behind[KILN_MAX_RANK] = {0};
    const int64_t *list = kiln__onnx_integers(call, 2, &n);
    if (!list || !take_sizes(call, "the result", list, n, rank, sizes))
        return x;
    for (size_t i = 0; i < rank; i++) {
        if (sizes[i] < dims[i])
            kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH,
                              "dimension %zu of the result has %zu elements, its image %zu", i,
                              sizes[i], dims[i]);
        behind[i] = sizes[i] - dims[i];
    }
    return kiln__onnx_failed(call) ? x : kiln_pad(call->batch, x, none, behind, 0);
}

static void max_unpool(struct kiln__onnx_call *call)
{
    struct kiln__onnx_windows windows;
    const size_t none[3] = {0};
    size_t dims[KILN_MAX_RANK], all, count;
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return;
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    if (!kiln__onnx_windows(call, x->rank < 2 ? 0 : x->rank - 2, none, &windows) ||
        !find_origin(call, &windows, dims))
        return;
    if (!kiln__onnx_count(x->rank, dims, &all) || all > INT32_MAX ||
        !kiln__onnx_count(x->rank, x->dims, &count)) {
        kiln__onnx_refuse(call, KILN_TOO_LARGE, "the image has too many elements");
        return;
    }
    kiln_type type = kiln__onnx_type(x->type)->computed;
    kiln_tensor values = kiln_cast(call->batch, kiln__onnx_tensor(call, 0), type);
    values = kiln_reshape(call->batch, values, 1, &count);
    kiln_tensor places = kiln_reshape(call->batch, kiln__onnx_tensor(call, 1), 1, &count);
    kiln_tensor y = kiln_fill(call->batch, type, 1, &all, 0);
    y = kiln_scatter(call->batch, y, places, values, 0, KILN_SCATTER_SET);
    y = widen(call, kiln_reshape(call->batch, y, x->rank, dims), dims);
    kiln__onnx_give(call, 0, y, x->type);
}

/* ---- Col2Im ---- */

/* Blocks [N, C * block, L], of which each is a window at one of L places, over images that are
 * wider by their padding. */
struct blocks {
    size_t n, images, area, places, padded; /* images: N * C; elements of a block and an image */
    size_t image[3], block[3], stride[3], dilation[3], before[3], after[3], along[3];
};

static bool read_blocks(struct kiln__onnx_call *call, struct blocks *b)
{
    size_t n_image, n_block, pads[6] = {0};
    const int64_t *image = kiln__onnx_integers(call, 1, &n_image);
    const int64_t *block = kiln__onnx_integers(call, 2, &n_block);
    if (kiln__onnx_failed(call))
        return false;
    if (n_image < 1 || n_image > 3)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "images of %zu dimensions; 1 to 3 are taken",
                          n_image);
    *b = (struct blocks){.n = n_image, .area = 1, .places = 1, .padded = 1};
    if (kiln__onnx_failed(call) || !take_sizes(call, "the image", image, n_image, b->n, b->image) ||
        !take_sizes(call, "the block", block, n_block, b->n, b->block))
        return false;
    kiln__onnx_sizes(call, "strides", b->n, 1, 1, b->stride);
    kiln__onnx_sizes(call, "dilations", b->n, 1, 1, b->dilation);
    kiln__onnx_sizes(call, "pads", 2 * b->n, 0, 0, pads);
    memcpy(b->before, pads, b->n * sizeof *pads);
    memcpy(b->after, pads + b->n, b->n * sizeof *pads);
    return !kiln__onnx_failed(call);
}

/* How many places there are, and whether the operand has them. */
static bool count_places(struct kiln__onnx_call *call, struct blocks *b)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    bool fits = x->rank == 3;
    for (size_t i = 0; i < b->n && fits; i++) {
        uint64_t width = (uint64_t)b->image[i] + b->before[i] + b->after[i];
        uint64_t reach = (uint64_t)(b->block[i] - 1) * b->dilation[i] + 1;
        assert(b->stride[i] > 0);
        fits = reach <= width && width * b->padded <= INT32_MAX;
        b->along[i] = fits ? (size_t)((width - reach) / b->stride[i]) + 1 : 0;
        b->places *= b->along[i];
        b->area *= b->block[i];
        b->padded *= fits ? (size_t)width : 1;
    }
    /* Without an image nothing bounds the blocks' number. */
    if (!fits || !x->dims[0] || !x->dims[1] || x->dims[1] % b->area || x->dims[2] != b->places) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "the blocks do not fit the image");
        return false;
    }
    b->images = x->dims[0] * (x->dims[1] / b->area);
    return true;
}

/* Which element of the padded image each element of each block is, block elements first. */
static kiln_tensor find_elements(struct kiln__onnx_call *call, const struct blocks *b)
{
    size_t count = b->area * b->places;
    struct kiln__onnx_host *host = kiln__onnx_new_host(call, INT64, 1, &count);
    if (!host)
        return (kiln_tensor){0};
    for (size_t i = 0; i < count; i++) {
        size_t element = i / b->places, place = i % b->places, below = 1, at = 0;
        for (size_t d = b->n; d-- > 0;) {
            at += below *
                  (place % b->along[d] * b->stride[d] + element % b->block[d] * b->dilation[d]);
            place /= b->along[d];
            element /= b->block[d];
            below *= b->image[d] + b->before[d] + b->after[d];
        }
        host->cells[i].i = (int64_t)at;
    }
    struct kiln__onnx_value value = {.type = INT64, .rank = 1, .dims = {count}, .host = host};
    return kiln_cast(call->batch, kiln__onnx_tensor_of(call, &value), KILN_I32);
}

static void join_blocks(struct kiln__onnx_call *call)
{
    struct blocks b;
    size_t shape[KILN_MAX_RANK];
    int64_t begin[KILN_MAX_RANK] = {0}, end[KILN_MAX_RANK];
    if (!kiln__onnx_need(call, 0) || !read_blocks(call, &b) || !count_places(call, &b))
        return;
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    kiln_type type = kiln__onnx_type(x->type)->computed;
    kiln_tensor blocks = kiln_cast(call->batch, kiln__onnx_tensor(call, 0), type);
    blocks = kiln_reshape(call->batch, blocks, 2, (size_t[]){b.images, b.area * b.places});
    kiln_tensor y = kiln_fill(call->batch, type, 2, (size_t[]){b.images, b.padded}, 0);
    y = kiln_scatter_add(call->batch, y, find_elements(call, &b), blocks, 1);
    shape[0] = x->dims[0];
    shape[1] = x->dims[1] / b.area;
    end[0] = (int64_t)shape[0];
    end[1] = (int64_t)shape[1];
    for (size_t i = 0; i < b.n; i++) {
        shape[2 + i] = b.image[i] + b.before[i] + b.after[i];
        begin[2 + i] = (int64_t)b.before[i];
        end[2 + i] = (int64_t)(b.before[i] + b.image[i]);
    }
    y = kiln_reshape(call->batch, y, b.n + 2, shape);
    kiln__onnx_give(call, 0, kiln_slice(call->batch, y, begin, end, NULL), x->type);
}

const struct kiln__onnx_row kiln__onnx_unpool_rows[] = {
    KILN__ONNX_ROW("MaxUnpool", 9, max_unpool, .known = KILN__ONNX_BIT(2)),
    KILN__ONNX_ROW("Col2Im", 18, join_blocks, .known = KILN__ONNX_BIT(1) | KILN__ONNX_BIT(2)),
    {0},
};
