/* SPDX-License-Identifier: Apache-2.0 */
/* Types that are only stored: every bit pattern both ways, halfway cases and whole numbers, on the
 * host and in kernels, against a decoder and a rounding of this file's own. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "../support/graph.h"
#include "ops/ops.h"

/* What IEEE 754 says of a format of 16 bits, without lib/ops. */
struct format {
    kiln_type type;
    int mantissa, bias; /* bits without the leading one */
};

static const struct format formats[] = {{KILN_F16, 10, 15}, {KILN_BF16, 7, 127}};
#define FORMATS (sizeof formats / sizeof *formats)
#define PATTERNS 65536

static double decode(const struct format *format, unsigned bits)
{
    unsigned ones = (1u << (15 - format->mantissa)) - 1, exponent = bits >> format->mantissa & ones;
    double sign = bits & 0x8000 ? -1 : 1, fraction = bits & ((1u << format->mantissa) - 1);
    fraction = ldexp(fraction, -format->mantissa);
    if (exponent == ones)
        return fraction != 0 ? NAN : sign * INFINITY;
    return exponent ? sign * ldexp(1 + fraction, (int)exponent - format->bias)
                    : sign * ldexp(fraction, 1 - format->bias);
}

/* The value rounded once: scaled so that the format's last place is 1. */
static double round_to(const struct format *format, double value)
{
    int exponent;
    if (!isfinite(value) || value == 0)
        return value;
    frexp(value, &exponent);
    exponent = exponent - 1 < 1 - format->bias ? 1 - format->bias : exponent - 1;
    double rounded =
        ldexp(nearbyint(ldexp(value, format->mantissa - exponent)), exponent - format->mantissa);
    return fabs(rounded) >= ldexp(1, format->bias + 1) ? copysign(INFINITY, value)
                                                       : copysign(rounded, value);
}

static bool same(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static double largest(const struct format *format)
{
    return ldexp(2 - ldexp(1, -format->mantissa), format->bias);
}

/* Every number of the format, what is half way to the next one, and floats beside that; large and
 * small ones. */
static size_t make_floats(const struct format *format, float *values)
{
    size_t count = 0;
    for (unsigned bits = 0; bits < PATTERNS; bits++) {
        double value = decode(format, bits), next = decode(format, bits + 1);
        values[count++] = (float)value;
        if (isnan(value) || isinf(value) || bits == 0x7fff)
            continue;
        next = isinf(next) ? copysign(ldexp(1, format->bias + 1), value) : next;
        float half = (float)((value + next) / 2);
        values[count++] = half;
        values[count++] = nextafterf(half, INFINITY);
        values[count++] = nextafterf(half, -INFINITY);
    }
    for (int e = -149; e < 128; e++) {
        values[count++] = ldexpf(1, e);
        values[count++] = ldexpf(-1.2345678f, e);
    }
    return count;
}

#define MOST_FLOATS (4 * PATTERNS + 1000)

/* ---- on the host ---- */

Test(types, patterns_on_the_host)
{
    for (const struct format *format = formats; format < formats + FORMATS; format++) {
        for (unsigned bits = 0; bits < PATTERNS; bits++) {
            uint16_t pattern = (uint16_t)bits, back;
            double value = kiln__type_load(format->type, &pattern);
            cr_assert(same(value, decode(format, bits)), "%s %04x: %g",
                      kiln_type_name(format->type), bits, value);
            kiln__type_store(format->type, value, &back);
            cr_assert(back == pattern || isnan(value), "%s %04x: %04x",
                      kiln_type_name(format->type), bits, back);
        }
        cr_expect_eq(kiln__type_row(format->type)->highest, largest(format));
    }
}

Test(types, rounding_on_the_host)
{
    float *values = malloc(MOST_FLOATS * sizeof *values);
    cr_assert(values);
    for (const struct format *format = formats; format < formats + FORMATS; format++) {
        size_t count = make_floats(format, values);
        for (size_t i = 0; i < count; i++) {
            double wanted = round_to(format, values[i]),
                   found = kiln__type_round(format->type, values[i]);
            uint16_t stored;
            cr_assert(same(found, wanted), "%a: %a, not %a", (double)values[i], found, wanted);
            kiln__type_store(format->type, values[i], &stored);
            cr_assert(same(kiln__type_load(format->type, &stored), wanted));
        }
    }
    free(values);
}

/* ---- in kernels ---- */

Test(types, patterns_in_kernels)
{
    static uint16_t patterns[PATTERNS];
    for (unsigned i = 0; i < PATTERNS; i++)
        patterns[i] = (uint16_t)i;
    for (const struct format *format = formats; format < formats + FORMATS; format++) {
        kiln_batch *batch = check_begin();
        kiln_tensor x = check_given(batch, format->type, DIMS(PATTERNS), patterns);
        const float *wide = check_read(batch, kiln_cast(batch, x, KILN_F32));
        const uint16_t *back =
            check_read(batch, kiln_cast(batch, kiln_abs(batch, x), format->type));
        run_batch(batch);
        for (unsigned i = 0; i < PATTERNS; i++) {
            double value = decode(format, i);
            cr_assert(same((double)wide[i], value), "%s %04x: %a", kiln_type_name(format->type), i,
                      (double)wide[i]);
            cr_assert(back[i] == (i & 0x7fff) || isnan(value), "%s %04x: %04x",
                      kiln_type_name(format->type), i, back[i]);
        }
        check_end(batch);
    }
    check_close();
}

/* A cast that is stored, and one that stays in registers. */
Test(types, rounding_in_kernels)
{
    float *values = malloc(MOST_FLOATS * sizeof *values);
    cr_assert(values);
    for (const struct format *format = formats; format < formats + FORMATS; format++) {
        size_t count = make_floats(format, values);
        kiln_batch *batch = check_begin();
        kiln_tensor x = check_given(batch, KILN_F32, 1, &count, values);
        kiln_tensor narrow = kiln_cast(batch, x, format->type);
        const uint16_t *stored = check_read(batch, narrow);
        const float *kept = check_read(batch, kiln_neg(batch, narrow));
        run_batch(batch);
        for (size_t i = 0; i < count; i++) {
            double wanted = round_to(format, values[i]);
            if (check_denormal() > 0 && fabsf(values[i]) < 0x1p-126f)
                continue;
            cr_assert(same(decode(format, stored[i]), wanted), "%a: %04x, not %a",
                      (double)values[i], stored[i], wanted);
            cr_assert(same(-(double)kept[i], wanted), "%a: %a, not %a", (double)values[i],
                      -(double)kept[i], wanted);
        }
        check_end(batch);
    }
    free(values);
    check_close();
}

/* Whole numbers that f32 does not have are rounded once, not twice. */
Test(types, whole_numbers_in_kernels)
{
    enum { COUNT = 31 * 12 };
    int32_t values[COUNT];
    for (int i = 0; i < COUNT; i++) {
        int64_t power = INT64_C(1) << (i / 12), half = power + power / 256 * (i % 3 + 1);
        int64_t value = half + (i / 3 % 2 ? 1 : -1) * (i % 2);
        values[i] = (int32_t)((i / 6 % 2 ? -1 : 1) * (value > INT32_MAX ? INT32_MAX : value));
    }
    for (const struct format *format = formats; format < formats + FORMATS; format++) {
        kiln_batch *batch = check_begin();
        kiln_tensor x = check_given(batch, KILN_I32, DIMS(COUNT), values);
        const uint16_t *stored = check_read(batch, kiln_cast(batch, x, format->type));
        run_batch(batch);
        for (int i = 0; i < COUNT; i++)
            cr_expect(same(decode(format, stored[i]), round_to(format, values[i])),
                      "%d: %a, not %a", values[i], decode(format, stored[i]),
                      round_to(format, values[i]));
        check_end(batch);
    }
    check_close();
}

/* ---- operations ---- */

static const kiln_type stored_types[] = {
#define TYPE(name, value, bytes, ctype) KILN_##name,
    KILN_TYPE_MAP(TYPE)
#undef TYPE
};
#define TYPES (sizeof stored_types / sizeof *stored_types)

/* Those that operations compute with in another type; the others are swept in test_ops*.c. Many
 * operations of all types make a batch: few kernels are compiled. */
static size_t swept_types(kiln_type types[TYPES])
{
    size_t count = 0;
    for (size_t t = 0; t < TYPES; t++)
        if (kiln__type_row(stored_types[t])->computed != stored_types[t])
            types[count++] = stored_types[t];
    return count;
}

/* The next type that is computed in the same one, or that one. */
static kiln_type relative_of(kiln_type type)
{
    kiln_type computed = kiln__type_row(type)->computed;
    for (size_t t = 0; t < TYPES; t++)
        if (stored_types[t] > type && kiln__type_row(stored_types[t])->computed == computed)
            return stored_types[t];
    return computed;
}

static kiln_type type_of(kiln_batch *batch, kiln_tensor tensor)
{
    kiln_type type;
    expect_ok(kiln_tensor_shape(batch, tensor, &type, NULL, NULL));
    return type;
}

static void expect_type(kiln_batch *batch, kiln_tensor tensor, kiln_type wanted)
{
    kiln_type type = type_of(batch, tensor);
    cr_expect_eq(type, wanted, "%s, not %s", kiln_type_name(type), kiln_type_name(wanted));
    check_read(batch, tensor);
}

/* With one of its own type, and with one of another that is computed in the same. */
static void every_row(kiln_batch *batch, kiln_type type, size_t n, enum check_values values)
{
    kiln_type computed = kiln__type_row(type)->computed;
    kiln_tensor narrow = check_input(batch, type, DIMS(n), values),
                same = check_input(batch, type, DIMS(n), values),
                other = check_input(batch, relative_of(type), DIMS(n), values),
                mask = check_input(batch, KILN_BOOL, DIMS(n), CHECK_FEW);
    for (unsigned op = 0; op < KILN__OP_COUNT; op++) {
        enum kiln__types rule = (enum kiln__types)kiln__elementwise_rows[op].types;
        bool selects = rule == KILN__SELECTION;
        kiln_tensor operands[3] = {selects ? mask : narrow, op % 2 ? same : other, narrow};
        if (kiln__types_accept(rule, computed))
            expect_type(batch, check_elementwise(batch, op, operands),
                        kiln__types_result(rule, computed));
    }
}

static void sweep_rows(size_t n, enum check_values values)
{
    kiln_type types[TYPES];
    kiln_batch *batch = check_begin();
    for (size_t t = swept_types(types); t-- > 0;)
        every_row(batch, types[t], n, values);
    check_run(batch);
    check_end(batch);
}

Test(types, every_row_reads_them, .init = check_cheaply)
{
    sweep_rows(1009, CHECK_PLAIN);
    sweep_rows(333, CHECK_SPECIAL);
    check_close();
}

/* Rows that take other types say so. */
Test(types, every_other_row_refuses_them)
{
    kiln_type types[TYPES];
    unsigned refused = 0;
    for (size_t t = swept_types(types); t-- > 0;)
        for (unsigned op = 0; op < KILN__OP_COUNT; op++) {
            const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
            char sentence[128];
            kiln_type computed = kiln__type_row(types[t])->computed;
            if (kiln__types_accept(row->types, computed) ||
                kiln__elementwise_of((enum kiln__elementwise)op, computed) != op)
                continue;
            kiln_batch *batch = imagined_batch();
            kiln_tensor x = kiln_upload(batch, types[t], DIMS(4), "");
            cr_expect_eq(check_elementwise(batch, op, (kiln_tensor[]){x, x, x}).id, 0u);
            cr_expect_eq(kiln_batch_status(batch), KILN_TYPE_MISMATCH);
            snprintf(sentence, sizeof sentence, "%s: operands are %s, and only ", row->name,
                     kiln_type_name(types[t]));
            cr_expect(strstr(without_call(kiln_batch_error(batch)), sentence), "%s",
                      kiln_batch_error(batch));
            kiln_batch_release(batch);
            refused++;
        }
    cr_expect_gt(refused, 0u);
}

static void reduce_all(kiln_batch *batch, kiln_type type)
{
    const int rows = 1, columns = 0;
    kiln_type computed = kiln__type_row(type)->computed;
    kiln_tensor x = check_input(batch, type, DIMS(33, 70), CHECK_FEW);
    for (unsigned op = 0; op < KILN__REDUCE_COUNT; op++) {
        const struct kiln__reduce_row *row = &kiln__reduce_rows[op];
        if (!kiln__types_accept((enum kiln__types)row->types, computed))
            continue;
        kiln_type result = kiln__reduce_result(row, computed);
        expect_type(batch, check_reduction(batch, op, x, 1, &rows, 0), result);
        expect_type(batch, check_reduction(batch, op, x, 1, &columns, 0), result);
    }
    check_read(batch, kiln_cumsum(batch, x, 1, 0));
}

Test(types, reductions_read_them, .init = check_cheaply)
{
    kiln_type types[TYPES];
    kiln_batch *batch = check_begin();
    for (size_t t = swept_types(types); t-- > 0;)
        reduce_all(batch, types[t]);
    check_run(batch);
    check_end(batch);
    check_close();
}

/* What only moves keeps the type, and every bit of what is a number. */
static void move_all(kiln_batch *batch, kiln_type type)
{
    kiln_tensor x = check_input(batch, type, DIMS(33, 40), CHECK_WIDE),
                y = check_input(batch, type, DIMS(33, 40), CHECK_PLAIN),
                indices = check_input(batch, KILN_U8, DIMS(19), CHECK_FEW);
    const int64_t start[] = {1, 39}, stop[] = {30, -1}, step[] = {2, -3};
    const size_t low[] = {1, 2}, high[] = {0, 3};
    static int64_t places[33]; /* all ends of rows, and beyond */
    for (int i = 0; i < 33; i++)
        places[i] = i * i % 35 - 1;
    expect_type(batch, kiln_transpose(batch, x, NULL), type);
    expect_type(batch, kiln_reshape(batch, kiln_transpose(batch, x, NULL), DIMS(44, 30)), type);
    expect_type(batch, kiln_slice(batch, x, start, stop, step), type);
    expect_type(batch, kiln_concat(batch, 2, (kiln_tensor[]){x, y}, 1), type);
    expect_type(batch, kiln_pad(batch, x, low, high, 1), type);
    expect_type(batch, kiln_gather(batch, x, indices, 0), type);
    expect_type(batch, kiln_gather(batch, x, indices, 1), type);
    expect_type(batch, kiln_detach(batch, x), type);
    expect_type(batch, kiln_fill(batch, type, DIMS(3, 5), 1), type);
    expect_type(batch, kiln_broadcast(batch, kiln_constant(batch, type, 1), DIMS(3, 2)), type);
    kiln_tensor sum =
        kiln_add(batch, kiln_transpose(batch, x, NULL), kiln_reshape(batch, y, DIMS(40, 33)));
    expect_type(batch, sum, kiln__type_row(type)->computed);
    expect_type(batch, kiln_scatter_add(batch, x, indices, kiln_gather(batch, y, indices, 0), 0),
                kiln__type_row(type)->computed);
    expect_type(batch,
                kiln_scatter_add(batch, x, check_given(batch, KILN_I64, DIMS(33), places), y, 0),
                kiln__type_row(type)->computed);
}

Test(types, movements_keep_them, .init = check_cheaply)
{
    kiln_type types[TYPES];
    kiln_batch *batch = check_begin();
    for (size_t t = swept_types(types); t-- > 0;)
        move_all(batch, types[t]);
    check_run(batch);
    check_end(batch);
    check_close();
}

/* Parts and what they are put on. */
Test(types, movements_have_gradients_of_f32, .init = check_cheaply)
{
    const int64_t start[] = {1, 2};
    const size_t low[] = {1, 0}, high[] = {0, 2};
    kiln_batch *batch = check_begin();
    for (size_t t = 0; t < FORMATS; t++) {
        kiln_tensor x = check_input(batch, formats[t].type, DIMS(4, 6), CHECK_PLAIN),
                    part = check_input(batch, formats[t].type, DIMS(2, 3), CHECK_PLAIN),
                    gradients[2];
        kiln_tensor whole =
            kiln_pad(batch, kiln_insert_slice(batch, x, part, start, NULL), low, high, 1);
        whole = kiln_concat(batch, 2, (kiln_tensor[]){whole, whole}, 0);
        kiln_tensor loss = kiln_sum(batch, kiln_square(batch, whole), 0, NULL, 0);
        expect_ok(kiln_grad(batch, loss, (kiln_tensor[]){x, part}, 2, gradients));
        expect_type(batch, gradients[0], KILN_F32);
        expect_type(batch, gradients[1], KILN_F32);
    }
    check_run(batch);
    check_end(batch);
    check_close();
}

/* Each type to each other one, between operations. */
Test(types, casts_between_all, .init = check_cheaply)
{
    kiln_batch *batch = check_begin();
    for (size_t from = 0; from < TYPES; from++) {
        kiln_tensor x = check_input(batch, stored_types[from], DIMS(77), CHECK_WIDE);
        kiln_tensor y = check_input(batch, stored_types[from], DIMS(77), CHECK_PLAIN);
        for (size_t to = 0; to < TYPES; to++) {
            check_read(batch, kiln_cast(batch, x, stored_types[to]));
            kiln_tensor inside = kiln_cast(batch, kiln_add(batch, y, y), stored_types[to]);
            check_read(batch, kiln_sub(batch, inside, kiln_cast(batch, y, stored_types[to])));
        }
    }
    check_run(batch);
    check_end(batch);
    check_close();
}

/* ---- networks ---- */

static kiln_tensor loss_of(kiln_batch *batch, kiln_tensor x, kiln_tensor w)
{
    const int last = -1;
    kiln_tensor scale = kiln_constant(batch, KILN_F32, 1.5), none = {0};
    kiln_tensor h = kiln_layer_norm(batch, kiln_matmul(batch, x, w), scale, none, 1, &last, 1e-5);
    kiln_tensor target = kiln_fill(batch, KILN_F32, DIMS(6, 8), 0.25);
    return kiln_mean_squared_error(batch, kiln_softmax(batch, h, 1, &last), target);
}

/* Each operand is read in its own type: heads of one tensor, keys across their rows, a mask. */
static kiln_tensor attend(kiln_batch *batch, kiln_type type, kiln_type other)
{
    kiln_tensor q = check_input(batch, type, DIMS(9, 2, 35), CHECK_PLAIN),
                k = check_input(batch, other, DIMS(2, 35, 70), CHECK_PLAIN),
                v = check_input(batch, type, DIMS(70, 20), CHECK_PLAIN),
                mask = check_input(batch, other, DIMS(9, 70), CHECK_PLAIN);
    q = kiln_transpose(batch, q, (size_t[]){1, 0, 2});
    k = kiln_transpose(batch, k, (size_t[]){0, 2, 1});
    return kiln_attention(batch, q, k, v, mask, NULL);
}

/* What has a kernel of its own takes them. */
static void record_others(kiln_batch *batch, kiln_type type, kiln_tensor x)
{
    kiln_tensor image = check_input(batch, type, DIMS(1, 5, 6, 2), CHECK_PLAIN),
                filter = check_input(batch, type, DIMS(3, 3, 2, 4), CHECK_PLAIN),
                labels = check_input(batch, KILN_U8, DIMS(6), CHECK_FEW), none = {0};
    const kiln_tensor made[] = {
        kiln_conv2d(batch, image, filter, NULL), kiln_attention(batch, x, x, x, none, NULL),
        attend(batch, type, relative_of(type)), kiln_cross_entropy(batch, x, labels)};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        cr_expect_eq(type_of(batch, made[i]), KILN_F32);
}

Test(types, networks_read_them, .init = check_cheaply)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_input(batch, KILN_F16, DIMS(6, 12), CHECK_PLAIN),
                w = check_input(batch, KILN_F16, DIMS(12, 8), CHECK_PLAIN);
    kiln_tensor gradients[2], loss = loss_of(batch, x, w);
    expect_ok(kiln_grad(batch, loss, (kiln_tensor[]){x, w}, 2, gradients));
    expect_type(batch, loss, KILN_F32);
    expect_type(batch, gradients[0], KILN_F32);
    expect_type(batch, gradients[1], KILN_F32);
    record_others(batch, KILN_F16, x);
    record_others(batch, KILN_BF16, kiln_cast(batch, x, KILN_BF16));
    check_run(batch);
    check_end(batch);
    check_close();
}

/* ---- integers of 64 bits, truths ---- */

/* All of their bits come through uploads, buffers and results. */
Test(types, large_integers_stay_as_they_are)
{
    int64_t values[] = {1, INT64_MIN, INT64_MAX, INT64_C(3000000000), -1, 0}, found[6];
    kiln_batch *batch = check_begin();
    kiln_buffer *buffer;
    kiln_tensor x = kiln_upload(batch, KILN_I64, DIMS(2, 3), values);
    expect_ok(kiln_read(batch, kiln_transpose(batch, x, NULL), found, sizeof found));
    run_batch(batch);
    cr_expect_eq(found[1], INT64_C(3000000000));
    cr_expect_eq(found[2], INT64_MIN);
    cr_expect_eq(found[4], INT64_MAX);
    expect_ok(kiln_buffer_create(check_context(), KILN_I64, DIMS(6), &buffer));
    expect_ok(kiln_buffer_write(buffer, 0, values, sizeof values));
    expect_ok(kiln_buffer_read(buffer, 0, found, sizeof found));
    cr_expect_eq(found[2], INT64_MAX);
    kiln_buffer_release(buffer);
    check_end(batch);
    check_close();
}

/* Indices and masks as other programs have them. */
Test(types, indices_and_masks, .init = check_cheaply)
{
    static const int64_t places[] = {2, 0, -1, 3, 2};
    static const uint8_t truths[] = {1, 0, 200, 0};
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_input(batch, KILN_F32, DIMS(4, 4), CHECK_PLAIN);
    kiln_tensor at = check_given(batch, KILN_I64, DIMS(5), places);
    kiln_tensor mask = check_given(batch, KILN_BOOL, DIMS(4), truths);
    kiln_tensor zero = kiln_constant(batch, KILN_F32, 0);
    check_read(batch, kiln_gather(batch, x, at, 0));
    check_read(batch, kiln_scatter_add(batch, x, at, kiln_gather(batch, x, at, 1), 1));
    check_read(batch, kiln_one_hot(batch, at, 4, KILN_BOOL));
    const float *chosen = check_read(batch, kiln_where(batch, mask, x, zero));
    const uint8_t *copy = check_read(batch, kiln_logical_not(batch, mask));
    kiln_tensor greater = kiln_cast(batch, kiln_greater(batch, x, zero), KILN_BOOL);
    expect_type(batch, kiln_transpose(batch, greater, NULL), KILN_BOOL);
    check_run(batch);
    cr_expect(copy[0] == 0 && copy[1] == 1 && copy[2] == 0);
    cr_expect(chosen[1] == 0 && chosen[2] != 0);
    check_end(batch);
    check_close();
}
