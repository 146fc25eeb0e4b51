/* SPDX-License-Identifier: Apache-2.0 */
/* GridSample: elements of an image or a volume at places between its elements, and AffineGrid,
 * which makes such places. A place is between `taps` elements along each axis: one (nearest), two
 * (linear) or four (cubic); each combination of these is gathered, and weighted by its share along
 * each axis. */
#include <assert.h>
#include <string.h>

#include "onnx/call.h"

enum { MOST_AXES = 3, MOST_TAPS = 4 };
enum padding { ZEROS, BORDER, REFLECTION };

/* Along one axis, for each place: the elements it is between and their weights. */
struct axis {
    double extent;
    kiln_tensor index[MOST_TAPS], weight[MOST_TAPS], inside[MOST_TAPS];
};

struct sampling {
    kiln_batch *batch;
    enum padding padding;
    bool corners; /* -1 and 1 are the middles of the outermost elements, not their edges */
    size_t taps, n_axes, images, places;
    kiln_tensor image; /* the number of each, as a column */
    struct axis axes[MOST_AXES];
};

static kiln_tensor number(const struct sampling *s, double value)
{
    return kiln_constant(s->batch, KILN_F32, value);
}

static kiln_tensor linear(const struct sampling *s, kiln_tensor x, double factor, double offset)
{
    return kiln_add(s->batch, kiln_scale(s->batch, x, factor), number(s, offset));
}

/* x mirrored at low and high until it lies between them. */
static kiln_tensor reflect(const struct sampling *s, kiln_tensor x, double low, double high)
{
    double range = high - low;
    if (range <= 0)
        return number(s, low);
    kiln_tensor away = kiln_abs(s->batch, linear(s, x, 1, -low));
    kiln_tensor turns = kiln_floor(s->batch, kiln_scale(s->batch, away, 0.5 / range));
    kiln_tensor rest = kiln_sub(s->batch, away, kiln_scale(s->batch, turns, 2 * range));
    kiln_tensor mirrored = kiln_minimum(s->batch, rest, linear(s, rest, -1, 2 * range));
    return linear(s, mirrored, 1, low);
}

/* What lies outside is brought inside, unless it is to be 0. */
static kiln_tensor settle(const struct sampling *s, kiln_tensor x, double low, double high,
                          double extent)
{
    if (s->padding == BORDER)
        return kiln_clamp(s->batch, x, 0, extent - 1);
    return s->padding == REFLECTION ? reflect(s, x, low, high) : x;
}

/* The weights of taps -1, 0, 1, 2 around a place by its distance t from tap 0. */
static void weigh_cubic(const struct sampling *s, struct axis *axis, kiln_tensor t)
{
    static const double a = -0.75;
    for (int k = 0; k < 4; k++) {
        kiln_tensor d = kiln_abs(s->batch, linear(s, t, 1, 1 - k));
        bool near = k == 1 || k == 2;
        double c3 = near ? a + 2 : a, c2 = near ? -(a + 3) : -5 * a, c1 = near ? 0 : 8 * a;
        kiln_tensor y = linear(s, kiln_mul(s->batch, linear(s, d, c3, c2), d), 1, c1);
        axis->weight[k] = linear(s, kiln_mul(s->batch, y, d), 1, near ? 1 : -4 * a);
    }
}

static void weigh(const struct sampling *s, struct axis *axis, kiln_tensor x, kiln_tensor base)
{
    kiln_tensor t = kiln_sub(s->batch, x, base);
    if (s->taps == 4)
        weigh_cubic(s, axis, t);
    axis->weight[0] = s->taps == 2 ? linear(s, t, -1, 1) : axis->weight[0];
    axis->weight[1] = s->taps == 2 ? t : axis->weight[1];
}

/* Along an axis of so many elements, the places from -1 to 1. */
static void find_taps(struct sampling *s, struct axis *axis, kiln_tensor places, size_t extent)
{
    double n = (double)extent, low = s->corners ? 0 : -0.5, high = s->corners ? n - 1 : n - 0.5;
    kiln_tensor x = s->corners ? linear(s, places, (n - 1) / 2, (n - 1) / 2)
                               : linear(s, places, n / 2, (n - 1) / 2);
    if (s->taps == 1)
        x = kiln_round(s->batch, x);
    if (s->taps < 4) /* a cubic's taps are brought inside one by one: their weights go by x */
        x = settle(s, x, low, high, n);
    kiln_tensor base = s->taps == 1 ? x : kiln_floor(s->batch, x);
    axis->extent = n;
    weigh(s, axis, x, base);
    for (size_t k = 0; k < s->taps; k++) {
        kiln_tensor tap = linear(s, base, 1, (double)k - (s->taps == 4 ? 1 : 0));
        tap = settle(s, tap, low, high, n);
        axis->inside[k] =
            kiln_logical_and(s->batch, kiln_greater_equal(s->batch, tap, number(s, 0)),
                             kiln_less(s->batch, tap, number(s, n)));
        axis->index[k] = kiln_cast(s->batch, tap, KILN_I32);
    }
}

/* What one combination of taps adds: [N, places, C] of rows [N * elements, C]. */
static kiln_tensor gather_taps(const struct sampling *s, kiln_tensor rows, size_t combination)
{
    kiln_tensor index = s->image, weight = number(s, 1);
    assert(s->taps > 0);
    for (size_t i = 0; i < s->n_axes; i++, combination /= s->taps) {
        const struct axis *axis = &s->axes[i];
        size_t k = combination % s->taps;
        index = kiln_mul(s->batch, index, kiln_constant(s->batch, KILN_I32, axis->extent));
        index = kiln_add(s->batch, index,
                         kiln_where(s->batch, axis->inside[k], axis->index[k],
                                    kiln_constant(s->batch, KILN_I32, 0)));
        weight = kiln_where(s->batch, axis->inside[k],
                            s->taps > 1 ? kiln_mul(s->batch, weight, axis->weight[k]) : weight,
                            number(s, 0));
    }
    weight = kiln_reshape(s->batch, weight, 3, (size_t[]){s->images, s->places, 1});
    return kiln_mul(s->batch, kiln_gather(s->batch, rows, index, 0), weight);
}

/* The grid's coordinate for an axis, [N, places]; the last axis comes first there. */
static kiln_tensor coordinate(const struct sampling *s, kiln_tensor grid, size_t axis)
{
    int64_t which = (int64_t)(s->n_axes - 1 - axis);
    kiln_tensor all = kiln_reshape(s->batch, grid, 3, (size_t[]){s->images, s->places, s->n_axes});
    kiln_tensor one =
        kiln_slice(s->batch, all, (int64_t[]){0, 0, which},
                   (int64_t[]){(int64_t)s->images, (int64_t)s->places, which + 1}, NULL);
    return kiln_reshape(s->batch, one, 2, (size_t[]){s->images, s->places});
}

/* An attribute that is one of some words, by its number; refuses the node at another. */
static size_t choose(struct kiln__onnx_call *call, const char *name, const char *const *words)
{
    const char *word = kiln__onnx_string(call, name, words[0]);
    for (size_t i = 0; words[i]; i++)
        if (!strcmp(word, words[i]))
            return i;
    kiln__onnx_refuse(call, KILN_UNSUPPORTED, "its %s is '%.40s'", name, word);
    return 0;
}

static bool begin(struct kiln__onnx_call *call, struct sampling *s)
{
    static const char *const modes[] = {"linear", "bilinear", "nearest", "cubic", "bicubic", NULL};
    static const size_t taps[] = {2, 2, 1, 4, 4};
    static const char *const paddings[] = {"zeros", "border", "reflection", NULL};
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    const struct kiln__onnx_value *grid = kiln__onnx_operand(call, 1);
    if (!kiln__onnx_need(call, 0) || !kiln__onnx_need(call, 1))
        return false;
    bool fits = x->rank >= 3 && x->rank - 2 <= MOST_AXES && grid->rank == x->rank &&
                grid->dims[0] == x->dims[0] && grid->dims[x->rank - 1] == x->rank - 2;
    if (!fits)
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "the grid's shape does not fit");
    *s = (struct sampling){.batch = call->batch,
                           .padding = (enum padding)choose(call, "padding_mode", paddings),
                           .corners = kiln__onnx_int(call, "align_corners", 0) != 0,
                           .taps = taps[choose(call, "mode", modes)],
                           .n_axes = x->rank - 2,
                           .images = x->dims[0],
                           .places = 1};
    for (size_t i = 1; fits && i + 1 < grid->rank; i++)
        s->places *= grid->dims[i];
    return !kiln__onnx_failed(call);
}

/* x as rows of channels, [N * elements, C]. */
static kiln_tensor as_rows(struct kiln__onnx_call *call, const struct kiln__onnx_value *x)
{
    size_t order[KILN_MAX_RANK] = {0}, rows = x->dims[0];
    for (size_t i = 2; i < x->rank; i++) {
        order[i - 1] = i;
        rows *= x->dims[i];
    }
    if (rows > INT32_MAX)
        kiln__onnx_refuse(call, KILN_TOO_LARGE, "its pictures have more elements than i32 counts");
    order[x->rank - 1] = 1;
    kiln_tensor y = kiln_transpose(call->batch, kiln__onnx_tensor(call, 0), order);
    return kiln_reshape(call->batch, y, 2, (size_t[]){rows, x->dims[1]});
}

static void record_sample(struct kiln__onnx_call *call)
{
    struct sampling s;
    size_t shape[KILN_MAX_RANK], combinations = 1;
    if (!begin(call, &s))
        return;
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    kiln_tensor grid = kiln__onnx_tensor(call, 1), rows = as_rows(call, x), y = {0};
    s.image = kiln_iota(call->batch, 2, (size_t[]){s.images, 1}, 0);
    for (size_t i = 0; i < s.n_axes; i++, combinations *= s.taps)
        find_taps(&s, &s.axes[i], coordinate(&s, grid, i), x->dims[i + 2]);
    for (size_t c = 0; c < combinations; c++) {
        kiln_tensor part = gather_taps(&s, rows, c);
        y = c ? kiln_add(call->batch, y, part) : part;
    }
    memcpy(shape, x->dims, sizeof shape);
    for (size_t i = 2; i < x->rank; i++)
        shape[i] = kiln__onnx_operand(call, 1)->dims[i - 1];
    y = kiln_transpose(call->batch, y, (size_t[]){0, 2, 1});
    kiln__onnx_give(call, 0, kiln_reshape(call->batch, y, x->rank, shape), x->type);
}

/* ---- places ---- */

/* Of so many elements their middles between -1 and 1, along dimension `axis` of `rank`. */
static kiln_tensor middles(struct kiln__onnx_call *call, size_t rank, size_t axis, size_t extent)
{
    size_t dims[KILN_MAX_RANK];
    bool corners = kiln__onnx_int(call, "align_corners", 0) != 0;
    double n = (double)extent, between = corners ? n - 1 : n;
    for (size_t i = 0; i < rank; i++)
        dims[i] = i == axis ? extent : 1;
    kiln_tensor i = kiln_cast(call->batch, kiln_iota(call->batch, rank, dims, (int)axis), KILN_F32);
    kiln_tensor twice = kiln_scale(call->batch, i, between > 0 ? 2 / between : 0);
    return kiln_add(
        call->batch, twice,
        kiln_constant(call->batch, KILN_F32, (corners ? 0 : 1 / n) - (n > 1 || !corners)));
}

/* theta [N, d, d + 1] and the shape [N, C, d extents]: theta times (place, 1), [N, extents, d]. */
static void record_affine(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_value *theta = kiln__onnx_operand(call, 0);
    size_t n, shape[KILN_MAX_RANK], places = 1, axes;
    const int64_t *size = kiln__onnx_integers(call, 1, &n);
    kiln_tensor columns[MOST_AXES + 1];
    if (!kiln__onnx_need(call, 0) || kiln__onnx_failed(call))
        return;
    axes = n - 2;
    bool fits = (n == 4 || n == 5) && theta->rank == 3 && theta->dims[1] == axes &&
                theta->dims[2] == axes + 1;
    for (size_t i = 2; fits && i < n; i++) {
        fits = size[i] > 0 && size[i] <= INT32_MAX;
        shape[i - 2] = (size_t)size[i];
        places *= (size_t)size[i];
    }
    if (!fits) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "theta does not fit the shape");
        return;
    }
    for (size_t i = 0; i < axes; i++) {
        kiln_tensor x = middles(call, axes, axes - 1 - i, shape[axes - 1 - i]);
        columns[i] = kiln_broadcast(call->batch, x, axes, shape);
        columns[i] = kiln_reshape(call->batch, columns[i], 1, &places);
    }
    columns[axes] = kiln_fill(call->batch, KILN_F32, 1, &places, 1);
    kiln_tensor base = kiln_stack(call->batch, axes + 1, columns, 1);
    kiln_tensor y = kiln_matmul_transposed(call->batch, base, 0, kiln__onnx_tensor(call, 0), 1);
    memmove(shape + 1, shape, axes * sizeof *shape);
    shape[0] = theta->dims[0];
    shape[axes + 1] = axes;
    kiln__onnx_give(call, 0, kiln_reshape(call->batch, y, axes + 2, shape), theta->type);
}

const struct kiln__onnx_row kiln__onnx_sample_rows[] = {
    KILN__ONNX_ROW("GridSample", 16, record_sample),
    KILN__ONNX_ROW("AffineGrid", 20, record_affine, .known = KILN__ONNX_BIT(1)),
    {0},
};
