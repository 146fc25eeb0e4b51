/* SPDX-License-Identifier: Apache-2.0 */
/* Other extents: resizing, padding, pixels from channels. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "onnx/call.h"

/* The number of a word in a list; refuses the node where it is none. */
static int find_word(struct kiln__onnx_call *call, const char *name, const char *usual,
                     const char *const *words)
{
    const char *word = kiln__onnx_string(call, name, usual);
    for (int i = 0; words[i]; i++)
        if (!strcmp(words[i], word))
            return i;
    kiln__onnx_refuse(call, KILN_UNSUPPORTED, "attribute '%s' is '%s'", name, word);
    return 0;
}

/* ---- resize ---- */

static const char *const methods[] = {
    [KILN_RESIZE_NEAREST] = "nearest",
    [KILN_RESIZE_LINEAR] = "linear",
    [KILN_RESIZE_CUBIC] = "cubic",
    NULL,
};
static const char *const coordinates[] = {
    [KILN_HALF_PIXEL] = "half_pixel",
    [KILN_HALF_PIXEL_SYMMETRIC] = "half_pixel_symmetric",
    [KILN_PYTORCH_HALF_PIXEL] = "pytorch_half_pixel",
    [KILN_ALIGN_CORNERS] = "align_corners",
    [KILN_ASYMMETRIC] = "asymmetric",
    [KILN_TF_HALF_PIXEL] = "tf_half_pixel_for_nn",
    [KILN_CROP_AND_RESIZE] = "tf_crop_and_resize",
    NULL,
};
static const char *const roundings[] = {
    [KILN_NEAREST_FLOOR] = "floor",
    [KILN_NEAREST_CEIL] = "ceil",
    [KILN_NEAREST_PREFER_FLOOR] = "round_prefer_floor",
    [KILN_NEAREST_PREFER_CEIL] = "round_prefer_ceil",
    NULL,
};
static const char *const policies[] = {"stretch", "not_larger", "not_smaller", NULL};
enum { STRETCH, NOT_LARGER };

/* What a node asks for, per dimension of x. */
struct wish {
    size_t rank, axes[KILN_MAX_RANK], n; /* of the lists' entries */
    size_t dims[KILN_MAX_RANK];
    double scales[KILN_MAX_RANK], start[KILN_MAX_RANK], end[KILN_MAX_RANK];
};

/* The content of operand i as numbers; NULL if it is left out or has no elements. */
static const struct kiln__onnx_host *find_numbers(struct kiln__onnx_call *call, size_t i,
                                                  size_t count)
{
    const struct kiln__onnx_value *value = kiln__onnx_operand(call, i);
    if (!value || (value->rank == 1 && value->dims[0] == 0))
        return NULL;
    if (!value->host)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                          "operand %zu decides about shapes, and is not known when the model is "
                          "recorded",
                          i);
    else if (value->host->count != count)
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "operand %zu has %zu elements, not %zu", i,
                          value->host->count, count);
    return kiln__onnx_failed(call) ? NULL : value->host;
}

static double number_at(const struct kiln__onnx_host *host, size_t i)
{
    return host->floats ? host->cells[i].f : (double)host->cells[i].i;
}

/* The dimensions that the lists speak of. */
static bool begin(struct kiln__onnx_call *call, struct wish *wish)
{
    if (!kiln__onnx_need(call, 0))
        return false;
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    size_t n;
    const int64_t *axes = kiln__onnx_ints(call, "axes", &n);
    *wish = (struct wish){.rank = x->rank, .n = axes ? n : x->rank};
    if (wish->n > x->rank)
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "%zu axes of %zu dimensions", n, x->rank);
    for (size_t i = 0; i < wish->n && !kiln__onnx_failed(call); i++)
        wish->axes[i] = axes ? kiln__onnx_axis(call, axes[i], x->rank) : i;
    for (size_t d = 0; d < x->rank; d++) {
        wish->dims[d] = x->dims[d];
        wish->scales[d] = wish->end[d] = 1;
    }
    return !kiln__onnx_failed(call);
}

static void set_extent(struct kiln__onnx_call *call, struct wish *wish, size_t d, double extent)
{
    if (!(extent >= 0 && extent <= 0x1p40))
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "dimension %zu becomes %g elements", d,
                          extent);
    else
        wish->dims[d] = (size_t)extent;
}

static void take_scales(struct kiln__onnx_call *call, struct wish *wish,
                        const struct kiln__onnx_host *scales)
{
    for (size_t i = 0; i < wish->n; i++) {
        size_t d = wish->axes[i];
        double part = wish->end[d] - wish->start[d];
        wish->scales[d] = number_at(scales, i);
        set_extent(call, wish, d,
                   floor((double)kiln__onnx_operand(call, 0)->dims[d] * part * wish->scales[d]));
    }
}

static void take_sizes(struct kiln__onnx_call *call, struct wish *wish,
                       const struct kiln__onnx_host *sizes)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    int policy = find_word(call, "keep_aspect_ratio_policy", "stretch", policies);
    double common = 0;
    for (size_t i = 0; i < wish->n; i++) {
        size_t d = wish->axes[i];
        wish->scales[d] = number_at(sizes, i) / (double)x->dims[d];
        bool takes =
            i == 0 || (policy == NOT_LARGER ? wish->scales[d] < common : wish->scales[d] > common);
        common = takes ? wish->scales[d] : common;
    }
    for (size_t i = 0; i < wish->n; i++) {
        size_t d = wish->axes[i];
        if (policy != STRETCH)
            wish->scales[d] = common;
        set_extent(call, wish, d,
                   policy == STRETCH ? number_at(sizes, i)
                                     : floor(common * (double)x->dims[d] + 0.5));
    }
}

static void take_part(struct wish *wish, const struct kiln__onnx_host *roi)
{
    for (size_t i = 0; i < wish->n; i++) {
        wish->start[wish->axes[i]] = number_at(roi, i);
        wish->end[wish->axes[i]] = number_at(roi, wish->n + i);
    }
}

/* Whether samples and channels stay, as of images. */
static bool keeps_channels(struct kiln__onnx_call *call, const struct wish *wish)
{
    const struct kiln__onnx_value *x = kiln__onnx_operand(call, 0);
    bool keeps = wish->rank > 2;
    for (size_t d = 0; keeps && d < 2; d++)
        keeps = wish->dims[d] == x->dims[d] && wish->scales[d] == 1 && wish->start[d] == 0 &&
                wish->end[d] == 1;
    return keeps;
}

/* Entries of a list in the order that a transpose has. */
static void order_numbers(size_t rank, const size_t *order, double *numbers)
{
    double before[KILN_MAX_RANK];
    memcpy(before, numbers, sizeof before);
    for (size_t d = 0; d < rank; d++)
        numbers[d] = before[order[d]];
}

/* An image is resized with its channels last, as convolutions leave it: elements that go together
 * lie together, and between two convolutions nothing is turned. */
static kiln_tensor resize_image(struct kiln__onnx_call *call, struct wish *wish,
                                const kiln_resize_options *options)
{
    size_t order[KILN_MAX_RANK], back[KILN_MAX_RANK], dims[KILN_MAX_RANK];
    for (size_t d = 0; d < wish->rank; d++) {
        order[d] = d == 0 ? 0 : d + 1 < wish->rank ? d + 1 : 1;
        back[order[d]] = d;
        dims[d] = wish->dims[order[d]];
    }
    order_numbers(wish->rank, order, wish->scales);
    order_numbers(wish->rank, order, wish->start);
    order_numbers(wish->rank, order, wish->end);
    kiln_tensor x = kiln_transpose(call->batch, kiln__onnx_tensor(call, 0), order);
    return kiln_transpose(call->batch, kiln_resize(call->batch, x, dims, options), back);
}

static void finish(struct kiln__onnx_call *call, struct wish *wish, kiln_resize_options *options)
{
    options->scales = wish->scales;
    options->start = wish->start;
    options->end = wish->end;
    if (!kiln__onnx_failed(call))
        kiln__onnx_give_like(
            call, keeps_channels(call, wish)
                      ? resize_image(call, wish, options)
                      : kiln_resize(call->batch, kiln__onnx_tensor(call, 0), wish->dims, options));
}

static void resize(struct kiln__onnx_call *call)
{
    struct wish wish;
    kiln_resize_options options = KILN_RESIZE_OPTIONS_INIT;
    if (!begin(call, &wish))
        return;
    options.method = (kiln_resize_method)find_word(call, "mode", "nearest", methods);
    options.coordinates = (kiln_coordinates)find_word(call, "coordinate_transformation_mode",
                                                      "half_pixel", coordinates);
    options.nearest =
        (kiln_nearest)find_word(call, "nearest_mode", "round_prefer_floor", roundings);
    options.cubic = kiln__onnx_float(call, "cubic_coeff_a", -0.75);
    options.exclude_outside = kiln__onnx_int(call, "exclude_outside", 0) != 0;
    options.antialias = kiln__onnx_int(call, "antialias", 0) != 0;
    options.extrapolation = kiln__onnx_float(call, "extrapolation_value", 0);
    if (options.coordinates == KILN_CROP_AND_RESIZE) {
        const struct kiln__onnx_host *roi = find_numbers(call, 1, 2 * wish.n);
        if (roi)
            take_part(&wish, roi);
    }
    const struct kiln__onnx_host *scales = find_numbers(call, 2, wish.n);
    const struct kiln__onnx_host *sizes = find_numbers(call, 3, wish.n);
    if (scales)
        take_scales(call, &wish, scales);
    else if (sizes)
        take_sizes(call, &wish, sizes);
    else
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "neither scales nor sizes are given");
    finish(call, &wish, &options);
}

/* Version 10 and Upsample: i / s, the one below; linear the same. */
static void upsample(struct kiln__onnx_call *call)
{
    struct wish wish;
    size_t n;
    kiln_resize_options options = KILN_RESIZE_OPTIONS_INIT;
    if (!begin(call, &wish))
        return;
    options.method = (kiln_resize_method)find_word(call, "mode", "nearest", methods);
    const float *list = kiln__onnx_floats(call, "scales", &n);
    const struct kiln__onnx_host *scales = list ? NULL : find_numbers(call, 1, wish.n);
    if (scales)
        take_scales(call, &wish, scales);
    else if (!list || n != wish.rank)
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "there are no %zu scales", wish.rank);
    for (size_t d = 0; list && d < wish.rank && !kiln__onnx_failed(call); d++) {
        wish.scales[d] = (double)list[d];
        set_extent(call, &wish, d,
                   floor((double)kiln__onnx_operand(call, 0)->dims[d] * wish.scales[d]));
    }
    finish(call, &wish, &options);
}

/* ---- pad ---- */

/* How many elements there are before and behind each dimension; negative ones go away. */
static bool read_pads(struct kiln__onnx_call *call, int64_t *low, int64_t *high)
{
    size_t rank = kiln__onnx_operand(call, 0)->rank, n, n_axes = 0;
    const int64_t *pads =
        call->version < 11 ? kiln__onnx_ints(call, "pads", &n) : kiln__onnx_integers(call, 1, &n);
    const int64_t *axes = call->version < 18 || !kiln__onnx_operand(call, 3)
                              ? NULL
                              : kiln__onnx_integers(call, 3, &n_axes);
    size_t count = axes ? n_axes : rank;
    if (!kiln__onnx_failed(call) && (n != 2 * count || count > rank))
        kiln__onnx_refuse(call, KILN_INVALID_ARGUMENT, "%zu pads of %zu dimensions", n, count);
    for (size_t i = 0; i < count && !kiln__onnx_failed(call); i++) {
        size_t d = axes ? kiln__onnx_axis(call, axes[i], rank) : i;
        if (pads[i] > INT32_MAX || pads[i] < -INT32_MAX || pads[count + i] > INT32_MAX ||
            pads[count + i] < -INT32_MAX)
            kiln__onnx_refuse(call, KILN_TOO_LARGE, "pads of %" PRId64 " and %" PRId64, pads[i],
                              pads[count + i]);
        if (kiln__onnx_failed(call))
            return false;
        low[d] = pads[i];
        high[d] = pads[count + i];
    }
    return !kiln__onnx_failed(call);
}

/* x without what negative pads take away, which are 0 then. */
static kiln_tensor crop(struct kiln__onnx_call *call, kiln_tensor x, const int64_t *low,
                        const int64_t *high, size_t *before, size_t *after)
{
    const struct kiln__onnx_value *value = kiln__onnx_operand(call, 0);
    int64_t start[KILN_MAX_RANK], stop[KILN_MAX_RANK];
    bool cuts = false;
    for (size_t d = 0; d < value->rank; d++) {
        start[d] = low[d] < 0 ? -low[d] : 0;
        stop[d] = (int64_t)value->dims[d] + (high[d] < 0 ? high[d] : 0);
        before[d] = low[d] > 0 ? (size_t)low[d] : 0;
        after[d] = high[d] > 0 ? (size_t)high[d] : 0;
        cuts |= low[d] < 0 || high[d] < 0;
    }
    return cuts ? kiln_slice(call->batch, x, start, stop, NULL) : x;
}

static void pad(struct kiln__onnx_call *call)
{
    static const char *const modes[] = {"edge", "reflect", "wrap", "constant", NULL};
    static const kiln_padding paddings[] = {KILN_PAD_EDGE, KILN_PAD_REFLECT, KILN_PAD_WRAP};
    int64_t low[KILN_MAX_RANK] = {0}, high[KILN_MAX_RANK] = {0};
    size_t before[KILN_MAX_RANK], after[KILN_MAX_RANK];
    double value = kiln__onnx_float(call, "value", 0);
    int mode = find_word(call, "mode", "constant", modes);
    if (!kiln__onnx_need(call, 0) || !read_pads(call, low, high))
        return;
    kiln_tensor x = crop(call, kiln__onnx_tensor(call, 0), low, high, before, after);
    if (call->version >= 11 && kiln__onnx_operand(call, 2) && !kiln__onnx_scalar(call, 2, &value))
        kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                          "a value to pad with that is not known when the model is recorded");
    if (!kiln__onnx_failed(call))
        kiln__onnx_give_like(call, mode < 3
                                       ? kiln_pad_by(call->batch, x, before, after, paddings[mode])
                                       : kiln_pad(call->batch, x, before, after, value));
}

/* ---- blocks ---- */

static const char *const orders[] = {
    [KILN_BLOCK_FIRST] = "DCR", [KILN_CHANNEL_FIRST] = "CRD", NULL};

static void depth_to_space(struct kiln__onnx_call *call)
{
    int64_t block = kiln__onnx_int(call, "blocksize", 0);
    kiln_block_order order = (kiln_block_order)find_word(call, "mode", "DCR", orders);
    if (kiln__onnx_need(call, 0) && !kiln__onnx_failed(call))
        kiln__onnx_give_like(call, kiln_depth_to_space(call->batch, kiln__onnx_tensor(call, 0),
                                                       block > 0 ? (size_t)block : 0, order,
                                                       KILN_CHANNELS_FIRST));
}

/* The mode is of newer versions. */
static void space_to_depth(struct kiln__onnx_call *call)
{
    int64_t block = kiln__onnx_int(call, "blocksize", 0);
    kiln_block_order order = (kiln_block_order)find_word(call, "mode", "DCR", orders);
    if (kiln__onnx_need(call, 0) && !kiln__onnx_failed(call))
        kiln__onnx_give_like(call, kiln_space_to_depth(call->batch, kiln__onnx_tensor(call, 0),
                                                       block > 0 ? (size_t)block : 0, order,
                                                       KILN_CHANNELS_FIRST));
}

#define SCALES KILN__ONNX_BIT(1)
#define ALL (KILN__ONNX_BIT(1) | KILN__ONNX_BIT(2) | KILN__ONNX_BIT(3))

const struct kiln__onnx_row kiln__onnx_resize_rows[] = {
    KILN__ONNX_ROW("Resize", 11, resize, .known = ALL),
    KILN__ONNX_ROW_UNTIL("Resize", 10, 10, upsample, .known = SCALES),
    KILN__ONNX_ROW_UNTIL("Upsample", 7, 9, upsample, .known = SCALES),
    KILN__ONNX_ROW("Pad", 2, pad, .known = ALL),
    KILN__ONNX_ROW("DepthToSpace", 1, depth_to_space),
    KILN__ONNX_ROW("SpaceToDepth", 1, space_to_depth),
    {0},
};
