/* SPDX-License-Identifier: Apache-2.0 */
/* Operators whose results' shapes depend on content: they are computed on the host, where what
 * decides is known when the model is recorded, such as masks made of shapes. */
#include <math.h>
#include <stdlib.h>

#include "onnx/onnx.pb-c.h"
#include "onnx/values.h"

enum { INT64 = ONNX__TENSOR_PROTO__DATA_TYPE__INT64 };

/* Operand i on the host; NULL after refusing the node. */
static const struct kiln__onnx_host *known(struct kiln__onnx_call *call, size_t i)
{
    if (!kiln__onnx_need(call, i))
        return NULL;
    const struct kiln__onnx_host *host = kiln__onnx_operand(call, i)->host;
    if (!host)
        kiln__onnx_refuse(call, KILN_UNSUPPORTED,
                          "the shape of its result depends on operand %zu, whose content is not "
                          "known when the model is recorded",
                          i);
    return host;
}

static bool is_set(const struct kiln__onnx_host *host, size_t i)
{
    return host->floats ? host->cells[i].f != 0 : host->cells[i].i != 0;
}

/* [rank, n]: the positions of what is not 0, a column each. */
static void non_zero(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_host *x = known(call, 0);
    size_t n = 0, column = 0;
    if (!x)
        return;
    for (size_t i = 0; i < x->count; i++)
        n += is_set(x, i);
    struct kiln__onnx_host *y =
        kiln__onnx_give_host(call, 0, INT64, 2, (const size_t[]){x->rank, n});
    for (size_t i = 0; y && i < x->count; i++) {
        size_t rest = i;
        for (size_t d = x->rank; d-- > 0 && is_set(x, i); rest /= x->dims[d])
            y->cells[d * n + column].i = (int64_t)(rest % x->dims[d]);
        column += is_set(x, i);
    }
}

/* The elements along an axis, or of all in one row, whose condition holds. */
static void compress(struct kiln__onnx_call *call)
{
    const struct kiln__onnx_host *condition = known(call, 1);
    if (!condition || !kiln__onnx_need(call, 0))
        return;
    struct kiln__onnx_value *given = kiln__onnx_operand(call, 0), x = *given, picked = {0};
    size_t axis = 0, n = 0, all = 1;
    if (kiln__onnx_has_attribute(call, "axis")) {
        axis = kiln__onnx_axis(call, kiln__onnx_int(call, "axis", 0), x.rank);
    } else {
        for (size_t d = 0; d < x.rank; d++)
            all *= x.dims[d];
        x = kiln__onnx_reshape(call, given, 1, &all);
    }
    if (kiln__onnx_failed(call) || !x.rank)
        return;
    size_t most = condition->count < x.dims[axis] ? condition->count : x.dims[axis];
    for (size_t i = 0; i < most; i++)
        n += is_set(condition, i);
    struct kiln__onnx_host *where = kiln__onnx_new_host(call, INT64, 1, &n);
    for (size_t i = 0, k = 0; where && i < most; i++)
        if (is_set(condition, i))
            where->cells[k++].i = (int64_t)i;
    if (!where)
        return;
    struct kiln__onnx_value indices = {.type = INT64, .rank = 1, .dims = {n}, .host = where};
    picked = kiln__onnx_gather(call, &x, &indices, axis);
    if (picked.type)
        kiln__onnx_give_value(call, 0, &picked);
}

/* ---- boxes ---- */

struct suppression {
    const struct kiln__onnx_host *boxes, *scores; /* [images, n, 4] and [images, classes, n] */
    size_t images, classes, n, most;              /* most: of each class and image */
    double overlap, least;                        /* what is not above `least` is left out */
    bool centers;                                 /* boxes are x, y, width, height */
    size_t *order, *kept; /* boxes of one class by score; those of them that stay */
};

/* One side of a box, along axis 0 or 1 of what it has four numbers of. */
static void side(const struct suppression *s, const union kiln__onnx_cell *box, size_t axis,
                 double *low, double *high)
{
    double a = box[axis].f, b = box[axis + 2].f;
    *low = s->centers ? a - b / 2 : fmin(a, b);
    *high = s->centers ? a + b / 2 : fmax(a, b);
}

static bool overlaps(const struct suppression *s, const union kiln__onnx_cell *a,
                     const union kiln__onnx_cell *b)
{
    double both = 1, first = 1, second = 1;
    for (size_t axis = 0; axis < 2; axis++) {
        double low[2], high[2];
        side(s, a, axis, &low[0], &high[0]);
        side(s, b, axis, &low[1], &high[1]);
        first *= high[0] - low[0];
        second *= high[1] - low[1];
        both *= fmax(0, fmin(high[0], high[1]) - fmax(low[0], low[1]));
    }
    double either = first + second - both;
    return first > 0 && second > 0 && either > 0 && both / either > s->overlap;
}

/* Boxes of one class, the best first; of equal ones the first. A heap would not be shorter. */
static size_t sort_boxes(struct suppression *s, const union kiln__onnx_cell *scores)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!(scores[i].f > s->least))
            continue;
        size_t at = n++;
        for (; at && scores[s->order[at - 1]].f < scores[i].f; at--)
            s->order[at] = s->order[at - 1];
        s->order[at] = i;
    }
    return n;
}

/* Which boxes stay of one class of an image: none overlaps a better one. */
static size_t select_boxes(struct suppression *s, size_t image, size_t class)
{
    const union kiln__onnx_cell *boxes = s->boxes->cells + image * s->n * 4;
    size_t n = sort_boxes(s, s->scores->cells + (image * s->classes + class) * s->n), kept = 0;
    for (size_t i = 0; i < n && kept < s->most; i++) {
        bool stays = true;
        for (size_t k = 0; k < kept && stays; k++)
            stays = !overlaps(s, boxes + s->order[i] * 4, boxes + s->kept[k] * 4);
        if (stays)
            s->kept[kept++] = s->order[i];
    }
    return kept;
}

/* Operand i, of one number; the usual one where it is left out. */
static double option(struct kiln__onnx_call *call, size_t i, double usual)
{
    double number = usual;
    if (kiln__onnx_operand(call, i) && known(call, i) && !kiln__onnx_scalar(call, i, &number))
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "operand %zu is no single number", i);
    return number;
}

static bool read_boxes(struct kiln__onnx_call *call, struct suppression *s)
{
    s->boxes = known(call, 0);
    s->scores = s->boxes ? known(call, 1) : NULL;
    if (!s->scores)
        return false;
    if (s->boxes->rank != 3 || s->boxes->dims[2] != 4 || s->scores->rank != 3 ||
        s->scores->dims[0] != s->boxes->dims[0] || s->scores->dims[2] != s->boxes->dims[1] ||
        !s->boxes->floats || !s->scores->floats) {
        kiln__onnx_refuse(call, KILN_SHAPE_MISMATCH, "scores do not fit the boxes");
        return false;
    }
    s->images = s->boxes->dims[0];
    s->n = s->boxes->dims[1];
    s->classes = s->scores->dims[1];
    double most = option(call, 2, 0);
    s->most = most > 0 ? (size_t)fmin(most, (double)s->n) : 0;
    s->overlap = option(call, 3, 0);
    s->least = option(call, 4, -INFINITY);
    s->centers = kiln__onnx_int(call, "center_point_box", 0) != 0;
    return !kiln__onnx_failed(call);
}

/* [n, 3]: image, class and box of each that stays. */
static void suppress(struct kiln__onnx_call *call)
{
    struct suppression s = {0};
    if (!read_boxes(call, &s))
        return;
    size_t rows = s.n && s.most ? s.images * s.classes : 0, n = 0;
    int64_t *list = calloc(rows * s.most * 3 + 1, sizeof *list);
    s.order = calloc(s.n + 1, sizeof *s.order);
    s.kept = calloc(s.n + 1, sizeof *s.kept);
    if (!list || !s.order || !s.kept) {
        kiln__onnx_refuse(call, KILN_OUT_OF_HOST_MEMORY, "no memory");
        rows = 0;
    }
    for (size_t row = 0; row < rows; row++) {
        size_t image = row / s.classes, class = row % s.classes;
        size_t kept = select_boxes(&s, image, class);
        for (size_t k = 0; k < kept; k++, n++) {
            list[n * 3] = (int64_t)image;
            list[n * 3 + 1] = (int64_t) class;
            list[n * 3 + 2] = (int64_t)s.kept[k];
        }
    }
    struct kiln__onnx_host *y =
        kiln__onnx_failed(call) ? NULL
                                : kiln__onnx_give_host(call, 0, INT64, 2, (const size_t[]){n, 3});
    for (size_t i = 0; y && i < n * 3; i++)
        y->cells[i].i = list[i];
    free(list);
    free(s.order);
    free(s.kept);
}

enum { BOXES = 31 /* all five operands */ };

const struct kiln__onnx_row kiln__onnx_content_rows[] = {
    KILN__ONNX_ROW("NonZero", 7, non_zero, .known = KILN__ONNX_BIT(0)),
    KILN__ONNX_ROW("Compress", 9, compress, .known = KILN__ONNX_BIT(1)),
    KILN__ONNX_ROW("NonMaxSuppression", 10, suppress, .known = BOXES),
    {0},
};
