/* SPDX-License-Identifier: Apache-2.0 */
/* Fused elementwise kernels over all kinds of shapes, operands and graphs, against the reference.
 */
#include <criterion/criterion.h>

#include "../support/check.h"

struct dims {
    size_t rank, dims[KILN_MAX_RANK];
};
#define SHAPE(...)                                                                                 \
    {                                                                                              \
        sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t),                                          \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define POINT                                                                                      \
    {                                                                                              \
        0,                                                                                         \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

static kiln_tensor input(kiln_batch *batch, const struct dims *shape)
{
    return check_input(batch, KILN_F32, shape->rank, shape->dims, CHECK_PLAIN);
}

/* ---- shapes ---- */

Test(ops_shapes, every_shape)
{
    static const struct dims shapes[] = {POINT,
                                         SHAPE(1),
                                         SHAPE(0),
                                         SHAPE(17),
                                         SHAPE(16),
                                         SHAPE(64),
                                         SHAPE(63),
                                         SHAPE(65),
                                         SHAPE(1009),
                                         SHAPE(65536),
                                         SHAPE(65537),
                                         SHAPE(131073),
                                         SHAPE(1, 1),
                                         SHAPE(0, 5),
                                         SHAPE(5, 0),
                                         SHAPE(17, 1009),
                                         SHAPE(70001, 3),
                                         SHAPE(3, 70001),
                                         SHAPE(2, 3, 5, 7),
                                         SHAPE(3, 0, 2),
                                         SHAPE(2, 1, 3, 1, 2, 1, 2, 3),
                                         SHAPE(1, 1, 1, 1, 1, 1, 1, 1)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        kiln_batch *batch = check_begin();
        kiln_tensor a = input(batch, &shapes[i]), b = input(batch, &shapes[i]);
        kiln_tensor c = kiln_constant(batch, KILN_F32, 0.75);
        check_tensor(batch, kiln_add(batch, kiln_mul(batch, a, b), kiln_maximum(batch, a, c)));
    }
    check_close();
}

Test(ops_shapes, broadcasting)
{
    static const struct dims pairs[][2] = {
        {SHAPE(50), POINT},
        {SHAPE(7, 1), SHAPE(1, 9)},
        {SHAPE(1009, 1), SHAPE(1, 17)},
        {SHAPE(7, 9), SHAPE(9)},
        {SHAPE(7, 9), SHAPE(7, 1)},
        {SHAPE(7, 9), SHAPE(1)},
        {SHAPE(4, 1, 6), SHAPE(5, 1)},
        {SHAPE(3, 1, 5, 1), SHAPE(1, 4, 1, 6)},
        {SHAPE(2, 3, 4, 5), SHAPE(3, 1, 5)},
        {SHAPE(2, 3, 4, 5), SHAPE(2, 1, 1, 1)},
        {SHAPE(2, 3, 4, 33), SHAPE(4, 1)},
        {SHAPE(17, 1009), SHAPE(1009)},
        {SHAPE(1009, 17), SHAPE(1009, 1)},
        {SHAPE(1, 1, 1), SHAPE(3)},
        {SHAPE(2, 1, 3, 1, 2, 1, 2, 3), SHAPE(1, 2, 1, 2, 1, 3, 2, 1)},
        {SHAPE(0, 3), SHAPE(1, 3)},
        {SHAPE(5, 0), SHAPE(1)},
        {SHAPE(1), SHAPE(0)},
        {SHAPE(70001, 3), SHAPE(3)},
        {SHAPE(3, 70001), SHAPE(3, 1)},
        {SHAPE(70001), SHAPE(1)},
        {SHAPE(64, 1), SHAPE(1, 16)},
        {SHAPE(63, 65), SHAPE(65)},
        {SHAPE(1, 1), SHAPE(1)}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        kiln_batch *batch = check_begin();
        kiln_tensor a = input(batch, &pairs[i][0]), b = input(batch, &pairs[i][1]);
        check_read(batch, kiln_sub(batch, a, b));
        check_read(batch, kiln_sub(batch, b, a));
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

/* Types whose lanes are narrow: a vector of u8 is not a vector of f32. */
Test(ops_shapes, broadcasting_bytes)
{
    static const struct dims pairs[][2] = {
        {SHAPE(37, 53), SHAPE(53)}, {SHAPE(37, 53), SHAPE(37, 1)}, {SHAPE(37, 1), SHAPE(1, 53)}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        kiln_batch *batch = check_begin();
        kiln_tensor a =
            check_input(batch, KILN_U8, pairs[i][0].rank, pairs[i][0].dims, CHECK_PLAIN);
        kiln_tensor b =
            check_input(batch, KILN_U8, pairs[i][1].rank, pairs[i][1].dims, CHECK_PLAIN);
        check_read(batch, kiln_sub(batch, a, b));
        check_read(batch, kiln_cast(batch, kiln_div(batch, a, b), KILN_F32));
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

/* ---- operands that are views ---- */

static kiln_tensor transposed(kiln_batch *batch, kiln_tensor x)
{
    return kiln_transpose(batch, x, NULL);
}

/* From the last to the first in both dimensions, every second column. */
static kiln_tensor reversed(kiln_batch *batch, kiln_tensor x)
{
    return kiln_slice(batch, x, (int64_t[]){32, 18}, (int64_t[]){-1, -1}, (int64_t[]){-1, -2});
}

static kiln_tensor middle(kiln_batch *batch, kiln_tensor x)
{
    return kiln_slice(batch, x, (int64_t[]){1, 3}, (int64_t[]){30, 18}, NULL);
}

static kiln_tensor every_third(kiln_batch *batch, kiln_tensor x)
{
    return kiln_slice(batch, x, (int64_t[]){0, 1}, (int64_t[]){33, 19}, (int64_t[]){3, 3});
}

static kiln_tensor repeated(kiln_batch *batch, kiln_tensor x)
{
    return kiln_broadcast(batch, x, DIMS(4, 33, 19));
}

static kiln_tensor one_row(kiln_batch *batch, kiln_tensor x)
{
    kiln_tensor row = kiln_slice(batch, x, (int64_t[]){7, 0}, (int64_t[]){8, 19}, NULL);
    return kiln_broadcast(batch, row, DIMS(33, 19));
}

static kiln_tensor one_column(kiln_batch *batch, kiln_tensor x)
{
    kiln_tensor column = kiln_slice(batch, x, (int64_t[]){0, 7}, (int64_t[]){33, 8}, NULL);
    return kiln_broadcast(batch, column, DIMS(33, 19));
}

static kiln_tensor turned_and_cut(kiln_batch *batch, kiln_tensor x)
{
    kiln_tensor view = kiln_transpose(batch, x, NULL);
    return kiln_slice(batch, view, (int64_t[]){18, 0}, (int64_t[]){3, 33}, (int64_t[]){-3, 2});
}

static kiln_tensor reshaped(kiln_batch *batch, kiln_tensor x)
{
    return kiln_reshape(batch, x, DIMS(3, 11, 19));
}

static kiln_tensor reshaped_after_turning(kiln_batch *batch, kiln_tensor x)
{
    return kiln_reshape(batch, kiln_transpose(batch, x, NULL), DIMS(33, 19));
}

Test(ops_shapes, views_are_fused)
{
    typedef kiln_tensor view(kiln_batch *, kiln_tensor);
    static view *const views[] = {
        transposed, reversed,   middle,         every_third, repeated,
        one_row,    one_column, turned_and_cut, reshaped,    reshaped_after_turning};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        kiln_batch *batch = check_begin();
        kiln_tensor x = check_input(batch, KILN_F32, DIMS(33, 19), CHECK_PLAIN);
        kiln_tensor z = check_input(batch, KILN_F32, DIMS(33, 19), CHECK_PLAIN);
        kiln_tensor y = views[i](batch, x);
        /* once as it is, once with a plain operand, once of a value that is not in memory */
        check_read(batch, y);
        check_read(batch, kiln_sub(batch, y, views[i](batch, z)));
        check_read(batch, kiln_relu(batch, views[i](batch, kiln_add(batch, x, z))));
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

/* Views of one tensor that only differ in where they start, in one kernel. */
Test(ops_shapes, neighbours_of_an_element)
{
    static const size_t sizes[] = {1, 16, 1009};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t n = (int64_t)sizes[i];
        kiln_batch *batch = check_begin();
        kiln_tensor x = check_input(batch, KILN_F32, DIMS(sizes[i] + 2), CHECK_PLAIN), part[3];
        for (int64_t k = 0; k < 3; k++)
            part[k] = kiln_slice(batch, x, &k, (int64_t[]){k + n}, NULL);
        check_read(batch, kiln_neg(batch, part[0]));
        check_read(batch, kiln_neg(batch, part[1]));
        check_read(batch, kiln_add(batch, kiln_sub(batch, part[2], part[1]), part[0]));
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

/* ---- graphs ---- */

Test(ops_shapes, several_results_of_one_kernel)
{
    static const size_t sizes[] = {1009, 1, 16, 0, 65537};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        kiln_batch *batch = check_begin();
        kiln_tensor a = check_input(batch, KILN_F32, DIMS(sizes[i]), CHECK_PLAIN);
        kiln_tensor b = check_input(batch, KILN_F32, DIMS(sizes[i]), CHECK_PLAIN);
        kiln_tensor sum = kiln_add(batch, a, b), product = kiln_mul(batch, sum, sum);
        kiln_tensor small = kiln_relu(batch, sum), last = kiln_sub(batch, product, small);
        check_read(batch, last);
        check_read(batch, sum);
        check_read(batch, kiln_cast(batch, product, KILN_I32));
        check_read(batch, sum); /* twice, to two places */
        check_read(batch, a);   /* an input as it is */
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

Test(ops_shapes, constants)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_input(batch, KILN_F32, DIMS(5, 1), CHECK_PLAIN);
    kiln_tensor half = kiln_constant(batch, KILN_F32, 0.5);
    kiln_tensor folded = kiln_exp(batch, kiln_mul(batch, half, half));
    check_read(batch, half);
    check_read(batch, folded);
    check_read(batch, kiln_broadcast(batch, folded, DIMS(3, 4)));
    check_read(batch, kiln_mul(batch, x, kiln_constant(batch, KILN_F32, 1)));
    check_read(batch, kiln_scale(batch, x, -0.1));
    check_read(batch, kiln_add(batch, x, kiln_broadcast(batch, half, DIMS(5, 3))));
    check_read(batch, kiln_constant(batch, KILN_I32, INT32_MIN));
    check_read(batch, kiln_constant(batch, KILN_U8, 255));
    check_run(batch);
    check_end(batch);
    check_close();
}

/* Longer than one kernel may be; every step depends on the one before. */
static kiln_tensor chain(kiln_batch *batch, kiln_tensor x, kiln_tensor z, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        switch (i % 5) {
        case 0: x = kiln_add(batch, x, z); break;
        case 1: x = kiln_minimum(batch, kiln_abs(batch, x), z); break;
        case 2: x = kiln_sub(batch, z, x); break;
        case 3: x = kiln_neg(batch, x); break;
        case 4: x = kiln_maximum(batch, x, kiln_sub(batch, x, z)); break;
        }
    }
    return x;
}

Test(ops_shapes, slow_chains_of_300)
{
    static const kiln_type types[] = {KILN_F32, KILN_I32, KILN_U8, KILN_I64, KILN_I8};
    for (size_t i = 0; i < 5; i++) {
        kiln_batch *batch = check_begin();
        kiln_tensor x = check_input(batch, types[i], DIMS(101), CHECK_PLAIN);
        kiln_tensor z = check_input(batch, types[i], DIMS(7, 1), CHECK_PLAIN);
        check_tensor(batch, chain(batch, x, z, 300));
    }
    check_close();
}

/* More operands than a kernel may have. */
Test(ops_shapes, sixty_operands)
{
    kiln_batch *batch = check_begin();
    kiln_tensor sum = check_input(batch, KILN_F32, DIMS(100), CHECK_PLAIN);
    for (int i = 0; i < 60; i++)
        sum = kiln_add(batch, kiln_scale(batch, sum, 0.5),
                       check_input(batch, KILN_F32, DIMS(100), CHECK_PLAIN));
    check_read(batch, sum);
    check_read(batch, kiln_exp(batch, sum));
    check_run(batch);
    check_end(batch);
    check_close();
}

/* ---- buffers ---- */

/* What a batch imports is what was there before it ran, even if it exports to the same buffer. */
Test(ops_shapes, exports_over_imports)
{
    kiln_buffer *state;
    float content[1009];
    fill(content, 1009, 7);
    expect_ok(kiln_buffer_create(check_context(), KILN_F32, DIMS(1009), &state));
    expect_ok(kiln_buffer_write(state, 0, content, sizeof content));
    kiln_batch *batch = check_begin();
    kiln_tensor old = kiln_import(batch, state);
    kiln_tensor fresh =
        kiln_add(batch, kiln_scale(batch, old, 2),
                 kiln_slice(batch, old, (int64_t[]){1008}, (int64_t[]){-1}, (int64_t[]){-1}));
    expect_ok(kiln_export(batch, fresh, state));
    run_batch(batch);
    float found[1009];
    expect_ok(kiln_buffer_read(state, 0, found, sizeof found));
    for (int i = 0; i < 1009; i++)
        cr_assert_eq(found[i], 2 * content[i] + content[1008 - i], "element %d", i);
    check_end(batch);
    kiln_buffer_release(state);
    check_close();
}
