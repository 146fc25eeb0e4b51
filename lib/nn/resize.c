/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing: along each dimension an element is a weighted sum of a few, whose numbers and weights
 * are tables that the host computes; pixels from channels are movements alone. */
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/reductions.h>
#include <kiln/resize.h>

#include <math.h>

#include "record/batch.h"
#include "record/call.h"
#include "util/structure.h"

/* Taps of one element, and entries of a table: more are a mistake. */
#define MOST_TAPS 4096
#define MOST_ENTRIES (1 << 24)

/* One dimension, and its tables. */
struct axis {
    kiln_batch *batch;
    const kiln_resize_options *options;
    uint32_t d;
    size_t in, out, taps;
    double scale, start, end;
    int32_t *from;   /* [out][taps] */
    float *weight;   /* the same; NULL: one tap of weight 1 */
    uint8_t *beyond; /* [out]; NULL: none is */
};

/* ---- coordinates ---- */

static double half_pixel(const struct axis *a, double i)
{
    return (i + 0.5) / a->scale - 0.5;
}

static double half_pixel_symmetric(const struct axis *a, double i)
{
    double rounded = (double)a->out / (a->scale * (double)a->in);
    return (double)a->in / 2 * (1 - rounded) + half_pixel(a, i);
}

static double pytorch_half_pixel(const struct axis *a, double i)
{
    return a->scale * (double)a->in == 1 ? -0.5 : half_pixel(a, i);
}

static double align_corners(const struct axis *a, double i)
{
    double length = a->scale * (double)a->in;
    return length == 1 ? 0 : i * ((double)a->in - 1) / (length - 1);
}

static double asymmetric(const struct axis *a, double i)
{
    return i / a->scale;
}

static double tf_half_pixel(const struct axis *a, double i)
{
    return (i + 0.5) / a->scale;
}

static double crop_and_resize(const struct axis *a, double i)
{
    double length = a->scale * (double)a->in, last = (double)a->in - 1;
    double part = length == 1 ? 0.5 : i / (length - 1);
    return (a->start + part * (a->end - a->start)) * last;
}

static double (*const coordinate[])(const struct axis *a, double i) = {
    [KILN_HALF_PIXEL] = half_pixel,
    [KILN_HALF_PIXEL_SYMMETRIC] = half_pixel_symmetric,
    [KILN_PYTORCH_HALF_PIXEL] = pytorch_half_pixel,
    [KILN_ALIGN_CORNERS] = align_corners,
    [KILN_ASYMMETRIC] = asymmetric,
    [KILN_TF_HALF_PIXEL] = tf_half_pixel,
    [KILN_CROP_AND_RESIZE] = crop_and_resize,
};
#define COORDINATES (sizeof coordinate / sizeof *coordinate)

static double nearest_to(kiln_nearest how, double x)
{
    switch (how) {
    case KILN_NEAREST_CEIL: return ceil(x);
    case KILN_NEAREST_PREFER_FLOOR: return ceil(x - 0.5);
    case KILN_NEAREST_PREFER_CEIL: return floor(x + 0.5);
    case KILN_NEAREST_FLOOR:
    default: return floor(x);
    }
}

/* ---- weights ---- */

static double linear_weight(double distance, double cubic)
{
    (void)cubic;
    return fmax(1 - fabs(distance), 0);
}

/* R. Keys, "Cubic convolution interpolation for digital image processing" (1981). */
static double cubic_weight(double distance, double a)
{
    double x = fabs(distance);
    return x <= 1  ? ((a + 2) * x - (a + 3)) * x * x + 1
           : x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
                   : 0;
}

/* What becomes smaller is averaged over as many more elements. */
static double squeeze_of(const struct axis *a)
{
    return a->options->antialias && a->scale < 1 ? a->scale : 1;
}

static double taps_of(const struct axis *a)
{
    double reach = a->options->method == KILN_RESIZE_CUBIC ? 2 : 1;
    return a->options->method == KILN_RESIZE_NEAREST ? 1
                                                     : 2 - 2 * (floor(-reach / squeeze_of(a)) + 1);
}

static int32_t within(const struct axis *a, double at)
{
    double last = (double)a->in - 1;
    return (int32_t)(!(at >= 0) ? 0 : at > last ? last : at);
}

/* The elements around x, of which the one below or at it is in the middle, and their weights. */
static void fill_taps(struct axis *a, size_t i, double x)
{
    bool normalise = a->options->exclude_outside || squeeze_of(a) < 1;
    const size_t half = a->taps / 2;
    double first = ceil(x) - (double)half, total = 0, last = (double)a->in - 1;
    double (*weigh)(double, double) =
        a->options->method == KILN_RESIZE_CUBIC ? cubic_weight : linear_weight;
    for (size_t t = 0; t < a->taps; t++) {
        double at = first + (double)t;
        double weight = weigh((at - x) * squeeze_of(a), a->options->cubic);
        if (a->options->exclude_outside && (at < 0 || at > last))
            weight = 0;
        total += weight;
        a->from[i * a->taps + t] = within(a, at);
        a->weight[i * a->taps + t] = (float)weight;
    }
    for (size_t t = 0; normalise && total != 0 && t < a->taps; t++)
        a->weight[i * a->taps + t] = (float)((double)a->weight[i * a->taps + t] / total);
}

static void fill_tables(struct axis *a)
{
    for (size_t i = 0; i < a->out; i++) {
        double x = coordinate[a->options->coordinates](a, (double)i);
        if (a->weight)
            fill_taps(a, i, x);
        else
            a->from[i] = within(a, nearest_to(a->options->nearest, x));
        if (a->beyond)
            a->beyond[i] = x < 0 || x > (double)a->in - 1;
    }
}

static bool make_tables(struct axis *a)
{
    double taps = taps_of(a);
    if (!(taps <= MOST_TAPS) || a->in > INT32_MAX || (double)a->out * taps > MOST_ENTRIES) {
        kiln__fail(&a->batch->error, KILN_TOO_LARGE,
                   "kiln_resize: dimension %u of %zu elements cannot become %zu", a->d, a->in,
                   a->out);
        return false;
    }
    a->taps = (size_t)taps;
    a->from = kiln__batch_alloc(a->batch, a->out * a->taps, sizeof *a->from, "kiln_resize");
    if (a->options->method != KILN_RESIZE_NEAREST)
        a->weight = kiln__batch_alloc(a->batch, a->out * a->taps, sizeof *a->weight, "kiln_resize");
    if (a->options->coordinates == KILN_CROP_AND_RESIZE)
        a->beyond = kiln__batch_alloc(a->batch, a->out, sizeof *a->beyond, "kiln_resize");
    if (a->batch->error.status)
        return false;
    fill_tables(a);
    return true;
}

/* ---- one dimension ---- */

/* A table [out, ...] with dimensions of 1 behind it. */
static kiln_tensor record_table(const struct axis *a, kiln_type type, const void *data,
                                size_t columns, uint32_t behind)
{
    size_t dims[KILN_MAX_RANK] = {a->out, columns, 1, 1, 1, 1, 1, 1};
    uint32_t rank = 1 + (columns != 1) + behind;
    for (uint32_t d = 1 + (columns != 1); d < rank; d++)
        dims[d] = 1;
    return kiln_upload(a->batch, type, rank, dims, data);
}

static bool is_identity(const struct axis *a)
{
    bool same = !a->weight && a->in == a->out;
    for (size_t i = 0; same && i < a->out; i++)
        same = a->from[i] == (int32_t)i;
    return same;
}

static kiln_tensor interpolate(const struct axis *a, kiln_tensor x)
{
    kiln_batch *batch = a->batch;
    uint32_t behind = kiln__tensor_node(batch, x)->shape.rank - a->d - 1;
    x = kiln_gather(batch, x, record_table(a, KILN_I32, a->from, a->taps, 0), (int)a->d);
    if (a->weight) {
        x = kiln_mul(batch, x, record_table(a, KILN_F32, a->weight, a->taps, behind));
        x = kiln_sum(batch, x, 1, (int[]){(int)a->d + 1}, 0);
    }
    if (!a->beyond || batch->error.status)
        return x;
    const struct kiln__node *node = kiln__tensor_node(batch, x);
    kiln_tensor value = kiln__batch_number(batch, kiln__node_computed(node),
                                           a->options->extrapolation, "kiln_resize");
    return kiln_where(batch, record_table(a, KILN_BOOL, a->beyond, 1, behind), value, x);
}

static kiln_tensor resize_axis(struct axis *a, kiln_tensor x)
{
    if (!make_tables(a) || is_identity(a))
        return a->batch->error.status ? kiln__none : x;
    return interpolate(a, x);
}

/* ---- repetition ---- */

/* How often each element of a dimension comes, if that is all; else 0. */
static size_t resize_repeats(const struct axis *a)
{
    size_t times = a->in && a->out % a->in == 0 ? a->out / a->in : 0;
    bool plain = times > 1 && a->options->method == KILN_RESIZE_NEAREST &&
                 a->options->coordinates != KILN_CROP_AND_RESIZE;
    /* Where an element comes from only grows: both ends of the first and of the last run tell of
     * all, however long they are. */
    for (size_t i = 0; plain && i < 2; i++)
        for (size_t j = 0; plain && j < 2; j++) {
            double at = (double)(i * (times - 1) + j * (a->out - times));
            double x = coordinate[a->options->coordinates](a, at);
            plain = within(a, nearest_to(a->options->nearest, x)) == (j ? (int32_t)(a->in - 1) : 0);
        }
    return plain && a->scale == (double)times ? times : 0;
}

/* Every dimension whose `times` is above 1 repeated at once, by one view. */
static kiln_tensor resize_repeat(kiln_batch *batch, kiln_tensor x, const size_t *times)
{
    const struct kiln__shape from = kiln__tensor_node(batch, x)->shape;
    struct kiln__shape apart = {0}, repeated = {0}, to = from;
    for (uint32_t d = 0; d < from.rank; d++) {
        apart.dims[apart.rank++] = repeated.dims[repeated.rank++] = from.dims[d];
        if (times[d] < 2)
            continue;
        apart.dims[apart.rank++] = 1;
        repeated.dims[repeated.rank++] = times[d];
        to.dims[d] *= times[d];
    }
    x = kiln_reshape(batch, x, apart.rank, apart.dims);
    x = kiln_broadcast(batch, x, repeated.rank, repeated.dims);
    return kiln_reshape(batch, x, to.rank, to.dims);
}

/* ---- the call ---- */

static bool check_options(kiln_batch *batch, const kiln_resize_options *options,
                          const struct kiln__node *node, const size_t *dims)
{
    bool crops = options->coordinates == KILN_CROP_AND_RESIZE;
    if ((unsigned)options->method > KILN_RESIZE_CUBIC ||
        (size_t)options->coordinates >= COORDINATES ||
        (unsigned)options->nearest > KILN_NEAREST_PREFER_CEIL || !isfinite(options->cubic))
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "kiln_resize: no method %d with coordinates %d, nearest %d, cubic %g",
                   (int)options->method, (int)options->coordinates, (int)options->nearest,
                   options->cubic);
    else if (crops && (!options->start || !options->end))
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "kiln_resize: %s is NULL",
                   options->start ? "end" : "start");
    else if (node->shape.rank && !dims)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT, "kiln_resize: dims is NULL");
    else if (options->method != KILN_RESIZE_NEAREST && !kiln__node_is_floating(node))
        kiln__fail(&batch->error, KILN_TYPE_MISMATCH,
                   "kiln_resize: operand x is %s, and only floating types are taken; cast it",
                   kiln_type_name(node->type));
    else if (options->method != KILN_RESIZE_NEAREST && node->shape.rank == KILN_MAX_RANK)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "kiln_resize: shape %s has 8 dimensions, and 7 are the most",
                   kiln__shape_text(&node->shape).text);
    return !batch->error.status;
}

static bool read_axis(struct axis *a, const struct kiln__shape *shape, const size_t *dims)
{
    const kiln_resize_options *options = a->options;
    a->in = shape->dims[a->d];
    a->out = dims[a->d];
    a->scale = options->scales ? options->scales[a->d] : (double)a->out / (double)a->in;
    if (options->coordinates == KILN_CROP_AND_RESIZE) {
        a->start = options->start[a->d];
        a->end = options->end[a->d];
    }
    if (a->out == 0 ||
        (a->in > 0 && a->scale > 0 && isfinite(a->scale) && isfinite(a->start) && isfinite(a->end)))
        return true;
    kiln__fail(&a->batch->error, KILN_INVALID_ARGUMENT,
               "kiln_resize: dimension %u of shape %s cannot become %zu elements by a scale of %g",
               a->d, kiln__shape_text(shape).text, a->out, a->scale);
    return false;
}

/* Whether nothing is to be done in this dimension. */
static bool resize_stays(const struct axis *a)
{
    return a->in == a->out && a->options->coordinates != KILN_CROP_AND_RESIZE &&
           (a->scale == 1 || a->in == 0);
}

static kiln_tensor resize(kiln_batch *batch, kiln_tensor x, const size_t *dims,
                          const kiln_resize_options *options)
{
    const struct kiln__shape from = kiln__tensor_node(batch, x)->shape;
    size_t times[KILN_MAX_RANK] = {0}, rank = from.rank;
    bool any = false;
    for (uint32_t d = from.rank; d-- > 0 && !batch->error.status;) {
        struct axis a = {.batch = batch, .options = options, .d = d};
        if (!read_axis(&a, &from, dims))
            return kiln__none;
        times[d] = resize_repeats(&a);
        if (times[d] > 1 && rank < KILN_MAX_RANK) {
            rank++;
            any = true;
            continue;
        }
        times[d] = 0;
        x = resize_stays(&a) ? x : resize_axis(&a, x);
    }
    return any && !batch->error.status ? resize_repeat(batch, x, times) : x;
}

kiln_tensor kiln_resize(kiln_batch *batch, kiln_tensor x, const size_t *dims,
                        const kiln_resize_options *options)
{
    KILN__CALL(batch);
    kiln_resize_options own = KILN_RESIZE_OPTIONS_INIT;
    const struct kiln__node *node = kiln__batch_node(batch, x, __func__, "x");
    struct kiln__shape shape;
    if (!node ||
        (options && KILN__STRUCTURE_READ(&batch->error, __func__, options,
                                         "KILN_RESIZE_OPTIONS_INIT", &own)) ||
        !check_options(batch, &own, node, dims) ||
        !kiln__check_dims(batch, __func__, node->shape.rank, dims, &shape))
        return kiln__none;
    if (kiln__shape_count(&shape) == 0)
        return kiln__record_fill(batch, __func__, node->type, &shape, 0);
    x = resize(batch, x, dims, &own);
    return batch->error.status ? kiln__none : x;
}

/* ---- blocks ---- */

/* Where rows, columns and channels are, and the three parts of the channels. */
struct blocks {
    uint32_t row, column, channel;
    bool block_first;
};

static bool read_blocks(kiln_batch *batch, const char *call, kiln_tensor x, size_t block,
                        kiln_block_order order, kiln_layout layout, struct blocks *blocks,
                        struct kiln__shape *shape)
{
    const struct kiln__node *node = kiln__batch_node(batch, x, call, "x");
    if (!node)
        return false;
    *shape = node->shape;
    if (shape->rank != 4)
        kiln__fail(&batch->error, KILN_SHAPE_MISMATCH,
                   "%s: operand x of shape %s has not 4 dimensions", call,
                   kiln__shape_text(shape).text);
    else if (block == 0 || block > INT32_MAX || (unsigned)order > KILN_CHANNEL_FIRST ||
             (unsigned)layout > KILN_CHANNELS_FIRST)
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: no blocks of %zu in order %d, layout %d", call, block, (int)order,
                   (int)layout);
    bool last = layout == KILN_CHANNELS_LAST;
    *blocks = (struct blocks){last ? 1 : 2, last ? 2 : 3, last ? 3 : 1, order == KILN_BLOCK_FIRST};
    return !batch->error.status;
}

static void refuse_block(kiln_batch *batch, const char *call, const struct kiln__shape *shape,
                         size_t block)
{
    kiln__fail(&batch->error, KILN_SHAPE_MISMATCH, "%s: shape %s has no blocks of %zu by %zu", call,
               kiln__shape_text(shape).text, block, block);
}

/* Six dimensions of a deep image, three of which its channels are, and their order in the flat one.
 */
struct six {
    uint32_t rank, ordered;
    size_t dims[6], order[6];
};

static uint32_t add_six(struct six *six, size_t extent)
{
    six->dims[six->rank] = extent;
    return six->rank++;
}

static struct six six_of(const struct kiln__shape *deep, size_t flat_channels,
                         const struct blocks *at, size_t block)
{
    struct six six = {0};
    uint32_t place[4], row = 0, column = 0;
    for (uint32_t d = 0; d < 4; d++) {
        const bool channels = d == at->channel;
        const size_t extent = channels ? flat_channels : deep->dims[d];
        if (!channels || !at->block_first)
            place[d] = add_six(&six, extent);
        if (channels) {
            row = add_six(&six, block);
            column = add_six(&six, block);
        }
        if (channels && at->block_first)
            place[d] = add_six(&six, extent);
    }
    for (uint32_t d = 0; d < 4; d++) {
        six.order[six.ordered++] = place[d];
        if (d == at->row || d == at->column)
            six.order[six.ordered++] = d == at->row ? row : column;
    }
    return six;
}

static kiln_tensor move_six(kiln_batch *batch, kiln_tensor x, const size_t *dims,
                            const size_t *order, const struct kiln__shape *to)
{
    x = kiln_reshape(batch, x, 6, dims);
    x = kiln_transpose(batch, x, order);
    return kiln_reshape(batch, x, to->rank, to->dims);
}

kiln_tensor kiln_depth_to_space(kiln_batch *batch, kiln_tensor x, size_t block,
                                kiln_block_order order, kiln_layout layout)
{
    KILN__CALL(batch);
    struct blocks at;
    struct kiln__shape shape;
    if (!read_blocks(batch, __func__, x, block, order, layout, &at, &shape))
        return kiln__none;
    if (shape.dims[at.channel] % block || shape.dims[at.channel] / block % block) {
        refuse_block(batch, __func__, &shape, block);
        return kiln__none;
    }
    const size_t channels = shape.dims[at.channel] / block / block;
    const struct six six = six_of(&shape, channels, &at, block);
    shape.dims[at.channel] = channels;
    shape.dims[at.row] *= block;
    shape.dims[at.column] *= block;
    return move_six(batch, x, six.dims, six.order, &shape);
}

kiln_tensor kiln_space_to_depth(kiln_batch *batch, kiln_tensor x, size_t block,
                                kiln_block_order order, kiln_layout layout)
{
    KILN__CALL(batch);
    struct blocks at;
    struct kiln__shape shape;
    size_t dims[6], back[6];
    if (!read_blocks(batch, __func__, x, block, order, layout, &at, &shape))
        return kiln__none;
    if (shape.dims[at.row] % block || shape.dims[at.column] % block) {
        refuse_block(batch, __func__, &shape, block);
        return kiln__none;
    }
    const size_t channels = shape.dims[at.channel];
    shape.dims[at.channel] *= block * block;
    shape.dims[at.row] /= block;
    shape.dims[at.column] /= block;
    const struct six six = six_of(&shape, channels, &at, block);
    for (uint32_t i = 0; i < 6; i++) {
        dims[i] = six.dims[six.order[i]];
        back[six.order[i]] = i;
    }
    return move_six(batch, x, dims, back, &shape);
}
