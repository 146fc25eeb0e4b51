/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of rows of elementwise.def, and of casts. */
#include <float.h>
#include <math.h>

#include "reference/bounds_rules.h"

/* The farthest that the row's function gets from its value at the centre when each operand moves
 * to either end: right for the rows that we have, which bend little or grow towards the ends. */
static double bounds_spread(const struct kiln__elementwise_row *row, const double *values,
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

/* Of a base that is not above 0 powers by whole numbers are unlike those by what lies next to them.
 */
static bool may_be_whole(double value, double error)
{
    return error > 0 && floor(value + error) >= ceil(value - error);
}

static bool quotient_may_be_whole(const double *values, const double *errors)
{
    double quotient = values[0] / values[1], size = fabs(values[1]) - errors[1];
    return size <= 0 ||
           may_be_whole(quotient, (errors[0] + fabs(quotient) * errors[1]) / size * 1.001);
}

#define PI 3.14159265358979323846

/* Where a function jumps between the ends: the centre and the corners do not tell. */
static bool is_wild(const struct kiln__node *node, const double *values, const double *errors)
{
    switch ((enum kiln__elementwise)node->op) {
    case KILN__OP_div: return may_be_zero(values[1], errors[1]);
    case KILN__OP_reciprocal: return may_be_zero(values[0], errors[0]);
    case KILN__OP_pow:
        return may_be_zero(values[0], errors[0]) ||
               (values[0] <= 0 && may_be_whole(values[1], errors[1])) ||
               (isnan(values[1]) && may_be_zero(values[0] - 1, errors[0])) || /* 1, else NaN */
               (isnan(values[0]) && may_be_zero(values[1], errors[1]));
    case KILN__OP_sin:
    case KILN__OP_cos: return errors[0] > 1; /* turns round in between */
    case KILN__OP_tan: return may_be_whole(values[0] / PI - 0.5, errors[0] / PI); /* a pole */
    case KILN__OP_atan2: return may_be_zero(values[0], errors[0]) && values[1] <= errors[1];
    case KILN__OP_fmod:
    case KILN__OP_mod: return errors[0] + errors[1] > 0 && quotient_may_be_whole(values, errors);
    case KILN__OP_bit_and:
    case KILN__OP_bit_or:
    case KILN__OP_bit_xor:
    case KILN__OP_bit_not:
    case KILN__OP_shift_left:
    case KILN__OP_shift_right: return errors[0] + errors[1] > 0; /* bits are no magnitudes */
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
    return fabs(product) >= KILN__OVERFLOW ? INFINITY : 0.5 * kiln__type_ulp(KILN_F32, product);
}

/* Rounding leaves it as it is. */
static bool is_exact(double value)
{
    return kiln__type_round(KILN_F32, value) == value &&
           (value == 0 || fabs(value) >= KILN__SMALLEST);
}

static double elementwise_error(const struct kiln__bounding *walk, const struct kiln__node *node,
                                const double *values, const double *errors)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[node->op];
    const struct kiln__type_row *type = kiln__type_row(node->type);
    bool integer =
        !kiln__node_is_floating(kiln__bounded_operand(walk, node, node->n_inputs - 1u).node);
    double error = 0;
    for (unsigned k = 0; k < row->arity; k++)
        error += errors[k];
    if (isinf(error) || (integer && error == 0)) /* integers are exact */
        return error;
    double centre = row->host(values[0], values[1], values[2], integer);
    double moved = bounds_spread(row, values, errors, integer, centre);
    if (isinf(moved) || is_wild(node, values, errors))
        return INFINITY;
    if (!type->floating) {
        bool wraps = centre + moved > type->highest || centre - moved < type->lowest;
        return wraps || fabs(centre) > 0x1p53 ? INFINITY : moved;
    }
    moved += inner_error(node, values);
    if (isinf(moved) || isinf(centre) || isnan(centre) ||
        (moved == 0 && row->max_ulp <= 0.5 && is_exact(centre)))
        return moved;
    return moved + row->max_ulp * kiln__type_ulp(KILN_F32, fabs(centre) + moved) + walk->denormal;
}

void kiln__bound_elementwise(const struct kiln__bounding *walk, const struct kiln__node *node,
                             double *result)
{
    struct kiln__bounded operands[3] = {0};
    size_t index[KILN_MAX_RANK];
    for (unsigned k = 0; k < node->n_inputs; k++)
        operands[k] = kiln__bounded_operand(walk, node, k);
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        double values[3] = {0}, errors[3] = {0};
        kiln__shape_indices(&node->shape, i, index);
        for (unsigned k = 0; k < node->n_inputs; k++) {
            size_t at = kiln__shape_number(&operands[k].node->shape, index, node->shape.rank);
            values[k] = operands[k].values[at];
            errors[k] = operands[k].errors[at];
        }
        result[i] = elementwise_error(walk, node, values, errors);
    }
}

/* How far rounding takes `moved` from where it takes `value`. */
static double rounded_distance(kiln_type type, double value, double moved)
{
    double a = kiln__type_round(type, value), b = kiln__type_round(type, moved);
    return a == b || isnan(a) ? 0 : fabs(a - b);
}

/* Whether an integer may become another one that does not hold it. */
static bool wraps(kiln_type from, kiln_type to, double value, double error)
{
    const struct kiln__type_row *row = kiln__type_row(to);
    return !kiln__type_row(from)->floating && !row->floating &&
           (value + error > row->highest || value - error < row->lowest);
}

/* Rounding keeps the order of numbers: no value in between gets farther than the ends. */
void kiln__bound_cast(const struct kiln__bounding *walk, const struct kiln__node *node,
                      double *result)
{
    struct kiln__bounded x = kiln__bounded_operand(walk, node, 0);
    kiln_type type = node->type;
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        double value = x.values[i], error = x.errors[i];
        if (isinf(error) ||
            (type != KILN_F32 && error > 0 && wraps(x.node->type, type, value, error)))
            result[i] = INFINITY;
        else if (type == KILN_F32) /* the value may be rounded already */
            result[i] =
                error + (fabs(value) > KILN__WHOLE ? 0.5001 * kiln__type_ulp(type, value) : 0);
        else if (error > 0)
            result[i] = fmax(rounded_distance(type, value, value + error),
                             rounded_distance(type, value, value - error));
        else
            result[i] = 0;
    }
}
