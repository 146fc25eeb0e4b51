/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/bounds.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "graph/attention.h"

#define UNIT 0x1p-24
#define OVERFLOW 0x1.ffffffp127 /* from here on a number rounds to infinity */

double kiln__float_ulp(double value)
{
    int exponent;
    if (!isfinite(value) || value == 0)
        return 0x1p-149;
    frexp(value, &exponent);
    exponent = exponent > 128 ? 128 : exponent < -125 ? -125 : exponent;
    return ldexp(1, exponent - 24);
}

struct walk {
    const struct kiln__graph *graph;
    const struct kiln__reference *reference;
    double **errors;
    double denormal;
    bool *failed; /* without memory */
};

/* An operand: its node, values and errors. */
struct operand {
    const struct kiln__node *node;
    const double *values, *errors;
};

static struct operand operand_of(const struct walk *walk, const struct kiln__node *node, unsigned i)
{
    uint32_t input = node->input[i];
    return (struct operand){&walk->graph->nodes.items[input], walk->reference->values[input],
                            walk->errors[input]};
}

static bool is_floating(const struct kiln__node *node)
{
    return kiln__type_row((kiln_type)node->type)->floating;
}

/* The indices of element `number` of a row-major shape. */
static void unravel(const struct kiln__shape *shape, size_t number, size_t *index)
{
    for (uint32_t d = shape->rank; d-- > 0; number /= shape->dims[d])
        index[d] = number % shape->dims[d];
}

static size_t ravel(const struct kiln__shape *shape, const size_t *index)
{
    size_t number = 0;
    for (uint32_t d = 0; d < shape->rank; d++)
        number = number * shape->dims[d] + index[d];
    return number;
}

/* ---- elementwise ---- */

/* The farthest that the row's function gets from its value at the centre when each operand moves
 * to either end: right for the rows that we have, which bend little or grow towards the ends. */
static double spread(const struct kiln__elementwise_row *row, const double *values,
                     const double *errors, bool integer, double centre)
{
    double farthest = 0;
    for (unsigned corner = 0; corner < 1u << row->arity; corner++) {
        double moved[3] = {0};
        for (unsigned k = 0; k < row->arity; k++)
            moved[k] = values[k] + (corner >> k & 1 ? errors[k] : -errors[k]);
        double value = row->host(moved[0], moved[1], moved[2], integer);
        double distance = value == centre ? 0 : fabs(value - centre);
        if (isnan(value) != isnan(centre) || distance > DBL_MAX)
            return INFINITY;
        farthest = fmax(farthest, distance);
    }
    return farthest * 1.001;
}

static bool may_be_zero(double value, double error)
{
    return error > 0 && fabs(value) <= error;
}

/* Where a function jumps between the ends: the centre and the corners do not tell. */
static bool is_wild(const struct kiln__node *node, const double *values, const double *errors)
{
    switch ((enum kiln__elementwise)node->op) {
    case KILN__OP_div: return may_be_zero(values[1], errors[1]);
    case KILN__OP_reciprocal:
    case KILN__OP_pow: return may_be_zero(values[0], errors[0]);
    case KILN__OP_sin:
    case KILN__OP_cos: return errors[0] > 1; /* turns round in between */
    case KILN__OP_equal:
    case KILN__OP_not_equal: return may_be_zero(values[0] - values[1], errors[0] + errors[1]);
    case KILN__OP_logical_not: return may_be_zero(values[0], errors[0]);
    case KILN__OP_logical_and:
    case KILN__OP_logical_or:
    case KILN__OP_logical_xor:
        return may_be_zero(values[0], errors[0]) || may_be_zero(values[1], errors[1]);
    default: return false;
    }
}

/* What rounding inside adds where the result can be far smaller than what it is made of. */
static double inner_error(const struct kiln__node *node, const double *values)
{
    double product = values[0] * values[1];
    if (node->op != KILN__OP_fma || isinf(product) || isnan(product))
        return 0;
    return fabs(product) >= OVERFLOW ? INFINITY : 0.5 * kiln__float_ulp(product);
}

/* Rounding leaves it as it is. */
static bool is_exact(double value)
{
    return (double)(float)value == value && (value == 0 || fabs(value) >= FLT_MIN);
}

static double elementwise_error(const struct walk *walk, const struct kiln__node *node,
                                const double *values, const double *errors)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[node->op];
    const struct kiln__type_row *type = kiln__type_row((kiln_type)node->type);
    bool integer = !is_floating(operand_of(walk, node, node->n_inputs - 1u).node);
    for (unsigned k = 0; k < row->arity; k++)
        if (isinf(errors[k]))
            return INFINITY;
    double centre = row->host(values[0], values[1], values[2], integer);
    double moved = spread(row, values, errors, integer, centre);
    if (isinf(moved) || is_wild(node, values, errors))
        return INFINITY;
    if (!type->floating) {
        bool wraps = centre + moved > type->highest || centre - moved < type->lowest;
        return (wraps && moved > 0) || fabs(centre) > 0x1p53 ? INFINITY : moved;
    }
    moved += inner_error(node, values);
    if (isinf(moved) || isinf(centre) || isnan(centre) ||
        (moved == 0 && row->max_ulp <= 0.5 && is_exact(centre)))
        return moved;
    return moved + row->max_ulp * kiln__float_ulp(fabs(centre) + moved) + walk->denormal;
}

static void bound_elementwise(const struct walk *walk, const struct kiln__node *node,
                              double *result)
{
    struct operand operands[3] = {0};
    size_t index[KILN_MAX_RANK];
    for (unsigned k = 0; k < node->n_inputs; k++)
        operands[k] = operand_of(walk, node, k);
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        double values[3] = {0}, errors[3] = {0};
        unravel(&node->shape, i, index);
        for (unsigned k = 0; k < node->n_inputs; k++) {
            const struct kiln__shape *shape = &operands[k].node->shape;
            size_t own[KILN_MAX_RANK];
            for (uint32_t d = 0; d < shape->rank; d++)
                own[d] = shape->dims[d] == 1 ? 0 : index[node->shape.rank - shape->rank + d];
            size_t at = ravel(shape, own);
            values[k] = operands[k].values[at];
            errors[k] = operands[k].errors[at];
        }
        result[i] = elementwise_error(walk, node, values, errors);
    }
}

/* ---- casts ---- */

static void bound_cast(const struct walk *walk, const struct kiln__node *node, double *result)
{
    struct operand x = operand_of(walk, node, 0);
    kiln_type type = (kiln_type)node->type;
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        double value = x.values[i], error = x.errors[i];
        if (isinf(error))
            result[i] = INFINITY;
        else if (is_floating(node))
            result[i] = error + (fabs(value) > 0x1p24 ? 0.5 * kiln__float_ulp(value) : 0);
        else if (error > 0)
            result[i] = fmax(kiln__type_round(type, value + error) - kiln__type_round(type, value),
                             kiln__type_round(type, value) - kiln__type_round(type, value - error));
        else
            result[i] = 0;
    }
}

/* ---- reductions ---- */

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

/* Of a product in any order: none of its partial ones may overflow or underflow. */
static double multiplied_error(const struct kiln__node *node, const struct total *total)
{
    if (!is_floating(node))
        return total->error > 0 || total->most > 0x1p53 ? INFINITY : 0;
    if (total->most > FLT_MAX || isnan(total->most) ||
        (total->product > 0 && total->least < FLT_MIN))
        return INFINITY;
    if (total->endless || (!total->broken && total->most <= 0x1p24))
        return 0;
    return total->moved - total->product + total->n * UNIT / (1 - total->n * UNIT) * total->moved;
}

/* Of a sum of floats in any order. Small whole numbers add up exactly. */
static double summed_error(const struct walk *walk, const struct total *total)
{
    double largest = total->magnitude + total->error;
    if (isinf(total->error) || largest > FLT_MAX)
        return INFINITY;
    if (total->endless || (!total->broken && largest <= 0x1p24))
        return 0; /* infinities and NaN are what they are in any order */
    return total->error + total->n * UNIT / (1 - total->n * UNIT) * largest +
           total->n * walk->denormal;
}

static double reduced_error(const struct walk *walk, const struct kiln__node *node,
                            const struct total *total)
{
    const struct kiln__reduce_row *row = &kiln__reduce_rows[node->op];
    if (isinf(total->error))
        return INFINITY;
    if (row->indexed)
        return total->doubtful ? INFINITY : 0;
    if (node->op == KILN__REDUCE_product)
        return multiplied_error(node, total);
    if (row->identity != KILN__IDENTITY_0)
        return total->largest_error;
    if (!is_floating(node))
        return total->error;
    double error = summed_error(walk, total);
    if (node->op != KILN__REDUCE_mean || total->endless || total->n == 0)
        return error;
    return error / total->n + 3 * kiln__float_ulp(total->magnitude / total->n) + walk->denormal;
}

/* The index of the result that element `index` goes to, and its place among the reduced. */
static size_t reduced_number(const struct kiln__node *node, const struct kiln__shape *shape,
                             const size_t *index, size_t *place)
{
    size_t number = 0;
    *place = 0;
    for (uint32_t d = 0; d < shape->rank; d++) {
        size_t *to = node->axes >> d & 1 ? place : &number;
        *to = *to * shape->dims[d] + index[d];
    }
    return number;
}

static void bound_reduce(const struct walk *walk, const struct kiln__node *node, double *result)
{
    struct operand x = operand_of(walk, node, 0);
    const double *chosen = walk->reference->values[node - walk->graph->nodes.items];
    const bool indexed = kiln__reduce_rows[node->op].indexed;
    size_t count = kiln__node_count(x.node), results = kiln__node_count(node);
    size_t index[KILN_MAX_RANK], place;
    struct total *totals = calloc(results + 1, sizeof *totals);
    *walk->failed = *walk->failed || !totals;
    for (size_t i = 0; totals && i < results; i++)
        totals[i].product = totals[i].moved = totals[i].most = totals[i].least = 1;
    for (int round = 0; totals && round < 2; round++) {
        for (size_t i = 0; i < count; i++) {
            unravel(&x.node->shape, i, index);
            struct total *total = &totals[reduced_number(node, &x.node->shape, index, &place)];
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
static void bound_scan(const struct walk *walk, const struct kiln__node *node, double *result)
{
    struct operand x = operand_of(walk, node, 0);
    size_t stride = kiln__scan_stride(node), count = kiln__node_count(node);
    size_t n = node->shape.dims[kiln__scan_axis(node)];
    for (size_t line = 0; n && line < count / n; line++) {
        struct total total = {0};
        for (size_t k = 0; k < n; k++) {
            size_t place = node->op == KILN__SCAN_BACKWARD ? n - 1 - k : k;
            size_t i = (line / stride * n + place) * stride + line % stride;
            add_up(&total, x.values[i], x.errors[i]);
            result[i] = is_floating(node) ? summed_error(walk, &total) : total.error;
        }
    }
}

/* ---- movement ---- */

static void bound_view(const struct walk *walk, const struct kiln__node *node, double *result)
{
    struct operand x = operand_of(walk, node, 0);
    size_t index[KILN_MAX_RANK];
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        unravel(&node->shape, i, index);
        result[i] =
            x.errors[kiln__view_number(&node->view, node->shape.rank, index, &x.node->shape)];
    }
}

static void bound_place(const struct walk *walk, const struct kiln__node *node, double *result)
{
    struct operand part = operand_of(walk, node, 0);
    size_t index[KILN_MAX_RANK];
    for (size_t i = 0; i < kiln__node_count(node); i++)
        result[i] = node->n_inputs > 1 ? operand_of(walk, node, 1).errors[i] : INFINITY;
    for (size_t i = 0; i < kiln__node_count(part.node); i++) {
        unravel(&part.node->shape, i, index);
        result[kiln__view_number(&node->view, part.node->shape.rank, index, &node->shape)] =
            part.errors[i];
    }
}

static void bound_gather(const struct walk *walk, const struct kiln__node *node, double *result)
{
    struct operand data = operand_of(walk, node, 0), indices = operand_of(walk, node, 1);
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        size_t number =
            kiln__gathered_number(node, &data.node->shape, &indices.node->shape, indices.values, i);
        result[i] = number == SIZE_MAX ? 0 : data.errors[number];
    }
}

/* A sum of the base's element and of all values that come to it. */
static void bound_scatter(const struct walk *walk, const struct kiln__node *node, double *result)
{
    struct operand values = operand_of(walk, node, KILN__SCATTER_VALUES);
    struct operand indices = operand_of(walk, node, KILN__SCATTER_INDICES);
    struct operand base = operand_of(walk, node, KILN__SCATTER_BASE);
    size_t count = kiln__node_count(node);
    struct total *totals = calloc(count + 1, sizeof *totals);
    *walk->failed = *walk->failed || !totals;
    for (size_t i = 0; totals && i < count; i++)
        add_up(&totals[i], base.values[i], base.errors[i]);
    for (size_t i = 0; totals && i < kiln__node_count(values.node); i++) {
        size_t number =
            kiln__gathered_number(node, &node->shape, &indices.node->shape, indices.values, i);
        if (number != SIZE_MAX)
            add_up(&totals[number], values.values[i], values.errors[i]);
    }
    for (size_t i = 0; totals && i < count; i++)
        result[i] =
            is_floating(node) && totals[i].n > 1 ? summed_error(walk, &totals[i]) : totals[i].error;
    free(totals);
}

static void bound_reshape(const struct walk *walk, const struct kiln__node *node, double *result)
{
    struct operand x = operand_of(walk, node, 0);
    for (size_t i = 0; i < kiln__node_count(node); i++)
        result[i] = x.errors[i];
}

/* ---- products ---- */

static double product_error(const struct walk *walk, struct operand a, struct operand b, size_t at,
                            size_t bt, size_t k, size_t n)
{
    struct total total = {0};
    for (size_t q = 0; q < k; q++) {
        double x = a.values[at + q], y = b.values[bt + q * n];
        double ex = a.errors[at + q], ey = b.errors[bt + q * n];
        double error = (ex > 0 ? ex * (fabs(y) + ey) : 0) + (ey > 0 ? fabs(x) * ey : 0);
        add_up(&total, x * y, isnan(error) ? INFINITY : error);
    }
    double error = summed_error(walk, &total);
    return total.broken ? error + (double)k * 0x1p-149 : error;
}

static void bound_matmul(const struct walk *walk, const struct kiln__node *node, double *result)
{
    const struct kiln__shape *shape = &node->shape;
    struct operand a = operand_of(walk, node, 0), b = operand_of(walk, node, 1);
    size_t m = shape->dims[shape->rank - 2], n = shape->dims[shape->rank - 1];
    size_t k = a.node->shape.dims[a.node->shape.rank - 1];
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        size_t batch = i / (m * n), row = i / n % m, column = i % n;
        result[i] = product_error(walk, a, b, (batch * m + row) * k, batch * k * n + column, k, n);
    }
}

static void bound_attention(const struct walk *walk, const struct kiln__node *node, double *result)
{
    if (!kiln__attention_bound(walk->graph, node, walk->reference->values, walk->errors,
                               walk->denormal, result))
        *walk->failed = true;
}

/* ---- all ---- */

static void bound_nothing(const struct walk *walk, const struct kiln__node *node, double *result)
{
    (void)walk;
    for (size_t i = 0; i < kiln__node_count(node); i++)
        result[i] = 0;
}

typedef void bound(const struct walk *walk, const struct kiln__node *node, double *result);

static bound *const rules[] = {
    [KILN__UPLOAD] = bound_nothing,      [KILN__IMPORT] = bound_nothing,
    [KILN__CONSTANT] = bound_nothing,    [KILN__ELEMENTWISE] = bound_elementwise,
    [KILN__CAST] = bound_cast,           [KILN__REDUCE] = bound_reduce,
    [KILN__VIEW] = bound_view,           [KILN__RESHAPE] = bound_reshape,
    [KILN__MATMUL] = bound_matmul,       [KILN__ATTENTION] = bound_attention,
    [KILN__PLACE] = bound_place,         [KILN__IOTA] = bound_nothing,
    [KILN__GATHER] = bound_gather,       [KILN__SCAN] = bound_scan,
    [KILN__SCATTER_ADD] = bound_scatter,
};

/* A value beyond f32 is infinite on the device and not in the reference: what is computed from it
 * cannot be compared. The value itself can. */
static bool overflows(const struct kiln__node *node, double value, double error)
{
    return is_floating(node) && isfinite(value) && fabs(value) + error >= OVERFLOW;
}

static bool has_user(const struct walk *walk, uint32_t index)
{
    for (uint32_t i = index + 1; i < walk->reference->count; i++) {
        const struct kiln__node *user = &walk->graph->nodes.items[i];
        for (unsigned k = 0; k < user->n_inputs; k++)
            if (walk->reference->values[i] && user->input[k] == index)
                return true;
    }
    return false;
}

static void mark_overflow(const struct walk *walk, uint32_t index)
{
    const struct kiln__node *node = &walk->graph->nodes.items[index];
    bool used = has_user(walk, index);
    for (size_t i = 0; i < kiln__node_count(node) && used; i++)
        if (overflows(node, walk->reference->values[index][i], walk->errors[index][i]))
            walk->errors[index][i] = INFINITY;
}

bool kiln__bounds_make(const struct kiln__graph *graph, const struct kiln__reference *reference,
                       double denormal, struct kiln__bounds *bounds)
{
    *bounds =
        (struct kiln__bounds){calloc(reference->count + 1, sizeof(double *)), reference->count};
    bool failed = !bounds->errors;
    struct walk walk = {graph, reference, bounds->errors, denormal, &failed};
    for (uint32_t i = 0; i < reference->count && !failed; i++) {
        const struct kiln__node *node = &graph->nodes.items[i];
        if (!reference->values[i])
            continue;
        bounds->errors[i] = malloc((kiln__node_count(node) + 1) * sizeof(double));
        failed = !bounds->errors[i];
        if (failed)
            break;
        rules[node->kind](&walk, node, bounds->errors[i]);
        mark_overflow(&walk, i);
    }
    if (failed)
        kiln__bounds_free(bounds);
    return !failed;
}

/* As many zeros as the largest operand has elements. */
static double *no_errors(const struct kiln__graph *graph, const struct kiln__node *node)
{
    size_t most = 0;
    for (unsigned k = 0; k < node->n_inputs; k++) {
        size_t count = kiln__node_count(&graph->nodes.items[node->input[k]]);
        most = count > most ? count : most;
    }
    return calloc(most + 1, sizeof(double));
}

bool kiln__bounds_node(const struct kiln__graph *graph, uint32_t index,
                       const struct kiln__reference *given, double *const *unknown, double denormal,
                       double *result)
{
    const struct kiln__node *node = &graph->nodes.items[index];
    double **errors = calloc(graph->nodes.count + 1, sizeof *errors);
    double *zeros = no_errors(graph, node);
    bool failed = !errors || !zeros;
    struct walk walk = {graph, given, errors, denormal, &failed};
    for (unsigned k = 0; k < node->n_inputs && !failed; k++)
        errors[node->input[k]] = unknown[node->input[k]] ? unknown[node->input[k]] : zeros;
    if (!failed)
        rules[node->kind](&walk, node, result);
    free(zeros);
    free(errors);
    return !failed;
}

void kiln__bounds_free(struct kiln__bounds *bounds)
{
    for (size_t i = 0; bounds->errors && i < bounds->count; i++)
        free(bounds->errors[i]);
    free(bounds->errors);
    *bounds = (struct kiln__bounds){0};
}

bool kiln__bounds_allow(double wanted, double error, double found)
{
    if (isinf(error))
        return true;
    if (isnan(wanted) || isnan(found))
        return isnan(wanted) && isnan(found);
    if (isinf(wanted))
        return found == wanted;
    if (isinf(found))
        return fabs(wanted) + error >= OVERFLOW && signbit(found) == signbit(wanted);
    return fabs(found - wanted) <= error;
}
