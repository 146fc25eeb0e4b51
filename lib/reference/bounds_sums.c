/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of what is made of many values: reductions, running sums, scatters, orders, products. */
#include <math.h>
#include <stdlib.h>

#include "reference/bounds_rules.h"

/* What the elements of one result, or the products of one dot product, amount to. */
struct total {
    double n, magnitude, error, largest_error, chosen;
    double product, moved, most, least; /* its size, with errors, and the partial ones' range */
    bool endless;                       /* an infinity or NaN is among them */
    bool broken;                        /* not all are whole numbers without an error */
    bool doubtful;                      /* of a position: another one might be chosen */
};

static void add_up(struct total *total, double value, double error)
{
    total->n++;
    total->error += error;
    total->largest_error = fmax(total->largest_error, error);
    total->broken = total->broken || error > 0 || value != trunc(value);
    if (isfinite(value))
        total->magnitude += fabs(value);
    else
        total->endless = true;
    double moved = fabs(value) + error;
    total->product *= fabs(value);
    total->moved *= moved;
    total->most *= fmax(moved, 1);
    total->least *= fmin(fmax(moved - 2 * error, 0), 1);
}

static void begin_total(struct total *total, double value, double error)
{
    *total = (struct total){.product = 1, .moved = 1, .most = 1, .least = 1};
    add_up(total, value, error);
}

/* Of a product in any order: none of its partial ones may overflow or underflow. */
static double multiplied_error(const struct kiln__node *node, const struct total *total)
{
    if (!kiln__node_is_floating(node))
        return total->error > 0 ? INFINITY : 0;
    if (total->most > KILN__LARGEST || isnan(total->most) ||
        (total->product > 0 && total->least < KILN__SMALLEST))
        return INFINITY;
    if (total->endless || (!total->broken && total->most <= KILN__WHOLE))
        return 0;
    return total->moved - total->product + kiln__bound_gamma(total->n) * total->moved;
}

/* Of a sum of floats in any order. Small whole numbers add up exactly. One that follows a maximum
 * (fuse/loop_nest.h) is rescaled on its way: some eight roundings for many elements, fewer than the
 * lanes that add up beside each other save (lower/axis_mapping.c). What its elements are below
 * rounds no more for that: the steps of a top that grows add up to its whole way. */
static double summed_error(const struct kiln__bounding *walk, const struct total *total)
{
    double largest = total->magnitude + total->error;
    if (isinf(total->error) || largest > KILN__LARGEST)
        return INFINITY;
    if (total->endless || (!total->broken && largest <= KILN__WHOLE))
        return 0; /* infinities and NaN are what they are in any order */
    return total->error + kiln__bound_gamma(total->n) * largest + total->n * walk->denormal;
}

/* Of a sum of integers that are not all sure. */
static double whole_error(const struct kiln__node *node, const struct total *total)
{
    bool wraps = total->magnitude + total->error > kiln__type_row(node->type)->highest;
    return total->error > 0 && wraps ? INFINITY : total->error;
}

static double reduced_error(const struct kiln__bounding *walk, const struct kiln__node *node,
                            const struct total *total)
{
    const struct kiln__reduce_row *row = &kiln__reduce_rows[node->op];
    if (isinf(total->error))
        return INFINITY;
    switch (row->kind) {
    case KILN__REDUCES_INDEXED: return total->doubtful ? INFINITY : 0;
    case KILN__REDUCES_PRODUCT: return multiplied_error(node, total);
    case KILN__REDUCES_LARGEST:
    case KILN__REDUCES_SMALLEST: return total->largest_error;
    case KILN__REDUCES_SUM:
    case KILN__REDUCES_MEAN: break;
    }
    if (!kiln__node_is_floating(node))
        return whole_error(node, total);
    double error = summed_error(walk, total);
    if (row->kind != KILN__REDUCES_MEAN || total->endless || total->n == 0)
        return error;
    return error / total->n + 3 * kiln__type_ulp(KILN_F32, total->magnitude / total->n) +
           walk->denormal;
}

void kiln__bound_reduce(const struct kiln__bounding *walk, const struct kiln__node *node,
                        double *result)
{
    struct kiln__bounded x = kiln__bounded_operand(walk, node, 0);
    const double *chosen = walk->reference->values[node - walk->graph->nodes.items];
    const bool indexed = kiln__reduce_rows[node->op].indexed;
    size_t count = kiln__node_count(x.node), results = kiln__node_count(node);
    size_t index[KILN_MAX_RANK], place;
    struct total *totals = calloc(results + 1, sizeof *totals);
    *walk->failed = *walk->failed || !totals;
    for (size_t i = 0; totals && i < results; i++)
        totals[i] = (struct total){.product = 1, .moved = 1, .most = 1, .least = 1};
    for (int round = 0; totals && round < 2; round++) {
        for (size_t i = 0; i < count; i++) {
            kiln__shape_indices(&x.node->shape, i, index);
            struct total *total =
                &totals[kiln__reduced_number(node, &x.node->shape, index, &place)];
            if (round == 0)
                add_up(total, x.values[i], x.errors[i]);
            else if ((double)place != chosen[total - totals] && total->largest_error > 0 &&
                     !(fabs(x.values[i] - total->chosen) > 2 * total->largest_error))
                total->doubtful = true; /* another one might be chosen */
            if (round == 0 && indexed && (double)place == chosen[total - totals])
                total->chosen = x.values[i];
        }
    }
    for (size_t i = 0; totals && i < results; i++)
        result[i] = reduced_error(walk, node, &totals[i]);
    free(totals);
}

/* Each running sum is a sum in some order. */
void kiln__bound_scan(const struct kiln__bounding *walk, const struct kiln__node *node,
                      double *result)
{
    struct kiln__bounded x = kiln__bounded_operand(walk, node, 0);
    size_t stride = kiln__scan_stride(node), count = kiln__node_count(node);
    size_t n = node->shape.dims[kiln__scan_axis(node)];
    for (size_t line = 0; n && line < count / n; line++) {
        struct total total = {0};
        for (size_t k = 0; k < n; k++) {
            size_t place = node->op == KILN__SCAN_BACKWARD ? n - 1 - k : k;
            size_t i = (line / stride * n + place) * stride + line % stride;
            add_up(&total, x.values[i], x.errors[i]);
            result[i] = kiln__node_is_floating(node) ? summed_error(walk, &total)
                                                     : whole_error(node, &total);
        }
    }
}

/* ---- scatters ---- */

static double scattered_error(const struct kiln__bounding *walk, const struct kiln__node *node,
                              const struct total *total)
{
    if (isinf(total->error))
        return INFINITY;
    if (node->op == KILN_SCATTER_MUL)
        return multiplied_error(node, total) + (total->n > 1 ? total->n * walk->denormal : 0);
    if (node->op != KILN_SCATTER_ADD)
        return total->largest_error;
    if (!kiln__node_is_floating(node))
        return whole_error(node, total);
    return total->n > 1 ? summed_error(walk, total) : total->error;
}

/* Of the base's element and of all values that come to it; of set ones the last alone counts. */
void kiln__bound_scatter(const struct kiln__bounding *walk, const struct kiln__node *node,
                         double *result)
{
    struct kiln__bounded values = kiln__bounded_operand(walk, node, KILN__SCATTER_VALUES);
    struct kiln__bounded indices = kiln__bounded_operand(walk, node, KILN__SCATTER_INDICES);
    struct kiln__bounded base = kiln__bounded_operand(walk, node, KILN__SCATTER_BASE);
    size_t count = kiln__node_count(node);
    bool open = false; /* a value may come elsewhere */
    for (size_t i = 0; i < kiln__node_count(indices.node); i++)
        open = open || indices.errors[i] > 0;
    struct total *totals = calloc(count + 1, sizeof *totals);
    *walk->failed = *walk->failed || !totals;
    for (size_t i = 0; totals && i < count; i++)
        begin_total(&totals[i], base.values[i], base.errors[i]);
    for (size_t i = 0; totals && i < kiln__node_count(values.node); i++) {
        size_t number =
            kiln__gathered_number(node, &node->shape, &indices.node->shape, indices.values, i);
        if (number != SIZE_MAX && (node->op == KILN_SCATTER_SET || kiln__node_puts_part(node)))
            begin_total(&totals[number], values.values[i], values.errors[i]);
        else if (number != SIZE_MAX)
            add_up(&totals[number], values.values[i], values.errors[i]);
    }
    for (size_t i = 0; totals && i < count; i++)
        result[i] = open ? INFINITY : scattered_error(walk, node, &totals[i]);
    free(totals);
}

/* ---- order ---- */

/* Equal NaNs stay as they lie, unless one of them may be a number on a device. */
static bool may_turn(double a, double b, double worst)
{
    return !(fabs(a - b) > 2 * worst) && (isinf(worst) || !(isnan(a) && isnan(b)));
}

/* How many of a line's elements may be on either side of the one of value `last`. */
static size_t count_near(const double *values, size_t n, double last, double worst)
{
    size_t near = 0;
    for (size_t k = 0; k < n; k++)
        near += may_turn(values[k], last, worst);
    return near;
}

/* Neighbours in order that may be the other way round, and so all of a run of such, may be anywhere
 * in it; so may the last ones, if others that are not among the first few may come before them. */
void kiln__bound_sort(const struct kiln__bounding *walk, const struct kiln__node *node,
                      double *result)
{
    const struct kiln__bounded x = kiln__bounded_operand(walk, node, 0);
    const double *order = walk->reference->values[node - walk->graph->nodes.items];
    const size_t n = x.node->shape.dims[node->shape.rank - 1];
    const size_t kept = node->shape.dims[node->shape.rank - 1];
    const size_t lines = kept ? kiln__node_count(node) / kept : 0;
    for (size_t line = 0; line < lines; line++, order += kept, result += kept) {
        const double *values = x.values + line * n;
        double worst = 0, last = values[(size_t)order[kept - 1]];
        size_t near = 0;
        for (size_t k = 0; k < n; k++)
            worst = fmax(worst, x.errors[line * n + k]);
        for (size_t k = 0; k < kept; k++) {
            result[k] = 0;
            near += may_turn(values[(size_t)order[k]], last, worst);
        }
        for (size_t k = 1; worst > 0 && k < kept; k++)
            if (may_turn(values[(size_t)order[k - 1]], values[(size_t)order[k]], worst))
                result[k - 1] = result[k] = INFINITY;
        if (worst > 0 && count_near(values, n, last, worst) > near)
            result[kept - 1] = INFINITY;
    }
}

/* ---- products ---- */

/* What a product loses beside its additions, as a share of the magnitudes of what it adds up: both
 * operands in 11 bits, cut off at worst; or the product of what each lacks in 11 bits, which is
 * left out, and what those lack in 11 more. */
static const double lost[] = {[KILN__PRODUCT_EXACT] = 0,
                              [KILN__PRODUCT_TF32] = 0x1p-9,
                              [KILN__PRODUCT_F32X3] = 0x1p-20,
                              [KILN__PRODUCT_EXACT_INTEGER] = 0};

static double product_error(const struct kiln__bounding *walk, const struct kiln__node *node,
                            struct kiln__bounded a, struct kiln__bounded b, size_t at, size_t bt,
                            size_t k, size_t n)
{
    struct total total = {0};
    for (size_t q = 0; q < k; q++) {
        double x = a.values[at + q], y = b.values[bt + q * n];
        double ex = a.errors[at + q], ey = b.errors[bt + q * n];
        double error = (ex > 0 ? ex * (fabs(y) + ey) : 0) + (ey > 0 ? fabs(x) * ey : 0);
        add_up(&total, x * y, isnan(error) ? INFINITY : error);
    }
    if (node->op == KILN__PRODUCT_F32X3 && total.endless)
        return INFINITY; /* what an infinity lacks in 11 bits is 0: times another one it is NaN */
    if (node->op == KILN__PRODUCT_EXACT_INTEGER && !total.broken)
        return kiln__type_ulp(KILN_F32, total.magnitude) / 2;
    double error = summed_error(walk, &total);
    if (lost[node->op] > 0) /* of nothing, however much there is, nothing is lost */
        error += lost[node->op] * (total.magnitude + total.error);
    return total.broken ? error + (double)k * KILN__DENORMAL : error;
}

void kiln__bound_matmul(const struct kiln__bounding *walk, const struct kiln__node *node,
                        double *result)
{
    const struct kiln__shape *shape = &node->shape;
    struct kiln__bounded a = kiln__bounded_operand(walk, node, 0),
                         b = kiln__bounded_operand(walk, node, 1);
    size_t m = shape->dims[shape->rank - 2], n = shape->dims[shape->rank - 1];
    size_t k = a.node->shape.dims[a.node->shape.rank - 1];
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        size_t batch = i / (m * n), row = i / n % m, column = i % n;
        result[i] =
            product_error(walk, node, a, b, (batch * m + row) * k, batch * k * n + column, k, n);
    }
}
