/* SPDX-License-Identifier: Apache-2.0 */
/* RoiAlign: regions of pictures brought to one size. Every cell of a result has so many samples
 * along each axis, each between two rows and two columns: four gathers, weighted, and then the mean
 * or the largest of a cell's. */
#include <string.h>

#include "onnx/call.h"

struct regions {
    kiln_batch *batch;
    size_t n, cells[2], samples; /* samples of a cell along each axis */
    size_t extent[2];            /* of a picture: rows, columns */
    double scale, offset;        /* of coordinates */
    bool at_least_one;           /* regions are an element wide and high */
};

/* Along one axis, for each region and sample, [n, samples]: the two elements it is between. */
struct between {
    kiln_tensor index[2], weight[2];
};

static kiln_tensor number(const struct regions *r, double value)
{
    return kiln_constant(r->batch, KILN_F32, value);
}

/* Column `which` of the regions' coordinates, [n, 1], in elements. */
static kiln_tensor coordinate(const struct regions *r, kiln_tensor rois, int64_t which)
{
    kiln_tensor x = kiln_slice(r->batch, rois, (const int64_t[]){0, which},
                               (const int64_t[]){(int64_t)r->n, which + 1}, NULL);
    return kiln_sub(r->batch, kiln_scale(r->batch, x, r->scale), number(r, r->offset));
}

static struct between find(const struct regions *r, kiln_tensor rois, size_t axis)
{
    size_t n = r->cells[axis] * r->samples;
    double last = (double)r->extent[axis] - 1;
    kiln_tensor start = coordinate(r, rois, axis ? 0 : 1), stop = coordinate(r, rois, axis ? 2 : 3);
    kiln_tensor size = kiln_sub(r->batch, stop, start);
    if (r->at_least_one)
        size = kiln_maximum(r->batch, size, number(r, 1));
    kiln_tensor i = kiln_cast(r->batch, kiln_iota(r->batch, 2, (size_t[]){1, n}, 1), KILN_F32);
    kiln_tensor share = kiln_scale(r->batch, kiln_add(r->batch, i, number(r, 0.5)), 1 / (double)n);
    kiln_tensor x = kiln_add(r->batch, start, kiln_mul(r->batch, size, share));
    kiln_tensor inside = kiln_logical_and(r->batch, kiln_greater_equal(r->batch, x, number(r, -1)),
                                          kiln_less_equal(r->batch, x, number(r, last + 1)));
    x = kiln_clamp(r->batch, x, 0, last);
    kiln_tensor low = kiln_floor(r->batch, x), t = kiln_sub(r->batch, x, low);
    kiln_tensor high =
        kiln_minimum(r->batch, kiln_add(r->batch, low, number(r, 1)), number(r, last));
    struct between between = {
        {kiln_cast(r->batch, low, KILN_I32), kiln_cast(r->batch, high, KILN_I32)},
        {kiln_where(r->batch, inside, kiln_sub(r->batch, number(r, 1), t), number(r, 0)),
         kiln_where(r->batch, inside, t, number(r, 0))}};
    return between;
}

/* One of the four elements around each sample, weighted: [n, rows, columns, C]. */
static kiln_tensor corner(const struct regions *r, kiln_tensor elements, kiln_tensor image,
                          const struct between *y, const struct between *x, size_t which)
{
    size_t rows = r->cells[0] * r->samples, columns = r->cells[1] * r->samples;
    size_t down[3] = {r->n, rows, 1}, across[3] = {r->n, 1, columns};
    size_t weights[4] = {r->n, rows, columns, 1};
    size_t a = which / 2, b = which % 2;
    kiln_tensor index =
        kiln_add(r->batch,
                 kiln_mul(r->batch, image, kiln_constant(r->batch, KILN_I32, (double)r->extent[0])),
                 kiln_reshape(r->batch, y->index[a], 3, down));
    index = kiln_mul(r->batch, index, kiln_constant(r->batch, KILN_I32, (double)r->extent[1]));
    index = kiln_add(r->batch, index, kiln_reshape(r->batch, x->index[b], 3, across));
    kiln_tensor weight = kiln_mul(r->batch, kiln_reshape(r->batch, y->weight[a], 3, down),
                                  kiln_reshape(r->batch, x->weight[b], 3, across));
    return kiln_mul(r->batch, kiln_gather(r->batch, elements, index, 0),
                    kiln_reshape(r->batch, weight, 4, weights));
}

/* A mode or transformation that is one of two words: whether it is the second. */
static bool second(struct kiln__onnx_call *call, const char *name, const char *usual,
                   const char *first, const char *other)
{
    const char *word = kiln__onnx_string(call, name, usual);
    if (strcmp(word, first) && strcmp(word, other))
        kiln__onnx_refuse(call, KILN_UNSUPPORTED, "its %s is '%.40s'", name, word);
    return !strcmp(word, other);
}

static size_t size(struct kiln__onnx_call *call, const char *name, int64_t usual)
{
    int64_t value = kiln__onnx_int(call, name, usual);
    if (value >= 1 && value <= 4096)
        return (size_t)value;
    kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                      value ? "its %s is %lld" : "its %s is %lld, as many as content says", name,
                      (long long)value);
    return 1;
}

static bool begin(struct kiln__onnx_call *call, struct regions *r)
{
    for (size_t i = 0; i < 3; i++)
        if (!kiln__onnx_need(call, i))
            return false;
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    const struct kiln__onnx_value *rois = kiln__onnx_operand(call, 1);
    const struct kiln__onnx_value *image = kiln__onnx_operand(call, 2);
    if (x->rank != 4 || rois->rank != 2 || rois->dims[1] != 4 || image->rank != 1 ||
        image->dims[0] != rois->dims[0])
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "the regions do not fit the pictures");
    else if (x->dims[0] * x->dims[2] * x->dims[3] > INT32_MAX)
        kiln__onnx_refuse(call, KILN_TOO_LARGE, "its pictures have more elements than i32 counts");
    bool whole = second(call, "coordinate_transformation_mode",
                        call->version < 16 ? "output_half_pixel" : "half_pixel", "half_pixel",
                        "output_half_pixel");
    *r = (struct regions){.batch = call->batch,
                          .n = rois->dims[0],
                          .cells = {size(call, "output_height", 1), size(call, "output_width", 1)},
                          .samples = size(call, "sampling_ratio", 0),
                          .extent = {x->dims[2], x->dims[3]},
                          .scale = kiln__onnx_float(call, "spatial_scale", 1),
                          .offset = whole ? 0 : 0.5,
                          .at_least_one = whole};
    return !kiln__onnx_failed(call);
}

static void roi_align(struct kiln__onnx_call *call)
{
    struct regions r;
    if (!begin(call, &r))
        return;
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    bool largest = second(call, "mode", "avg", "avg", "max");
    kiln_tensor rois = kiln_cast(call->batch, kiln__onnx_tensor(call, 1), KILN_F32);
    kiln_tensor image =
        kiln_reshape(call->batch, kiln__onnx_positions(call, kiln__onnx_tensor(call, 2)), 3,
                     (const size_t[]){r.n, 1, 1});
    kiln_tensor elements = kiln_reshape(
        call->batch,
        kiln_transpose(call->batch, kiln__onnx_tensor(call, 0), (const size_t[]){0, 2, 3, 1}), 2,
        (const size_t[]){x->dims[0] * x->dims[2] * x->dims[3], x->dims[1]});
    struct between down = find(&r, rois, 0), across = find(&r, rois, 1);
    kiln_tensor y = {0};
    for (size_t which = 0; which < 4; which++) {
        kiln_tensor part = corner(&r, elements, image, &down, &across, which);
        y = !which    ? part
            : largest ? kiln_maximum(call->batch, y, part) /* so wants the specification */
                      : kiln_add(call->batch, y, part);
    }
    const size_t cells[6] = {r.n, r.cells[0], r.samples, r.cells[1], r.samples, x->dims[1]};
    const int within[2] = {2, 4};
    y = kiln_reshape(call->batch, y, 6, cells);
    y = largest ? kiln_max(call->batch, y, 2, within, 0) : kiln_mean(call->batch, y, 2, within, 0);
    kiln__onnx_give(call, 0, kiln_transpose(call->batch, y, (const size_t[]){0, 3, 1, 2}), x->type);
}

const struct kiln__onnx_row kiln__onnx_region_rows[] = {
    KILN__ONNX_ROW("RoiAlign", 10, roi_align),
    {0},
};
