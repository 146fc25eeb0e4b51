/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers that a batch reads and overwrites: in place where that is possible, and the same result
 * where it is not. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"
#include "../support/layer.h"

#define MOST 4099 /* a prime beyond one chunk of any device */
#define RUNS 3

static float first[MOST], second[MOST], expected[MOST];

struct scene {
    kiln_context *context;
    kiln_batch *batch;
    kiln_buffer *a, *b;
    kiln_tensor old_a, old_b;
    size_t n;
};

static kiln_buffer *make_shaped(kiln_context *context, size_t rank, const size_t *dims,
                                const float *content)
{
    kiln_buffer *buffer;
    expect_ok(kiln_buffer_create(context, KILN_F32, rank, dims, &buffer));
    expect_ok(kiln_buffer_write(buffer, 0, content, kiln_buffer_bytes(buffer)));
    return buffer;
}

static struct scene begin_shaped(size_t rank, const size_t *dims)
{
    struct scene scene = {.context = open_context(), .n = 1};
    for (size_t d = 0; d < rank; d++)
        scene.n *= dims[d];
    fill(first, scene.n, 1);
    fill(second, scene.n, 2);
    scene.batch = kiln_batch_create(scene.context);
    scene.a = make_shaped(scene.context, rank, dims, first);
    scene.b = make_shaped(scene.context, rank, dims, second);
    scene.old_a = kiln_import(scene.batch, scene.a);
    scene.old_b = kiln_import(scene.batch, scene.b);
    return scene;
}

static struct scene begin(size_t n)
{
    return begin_shaped(1, &n);
}

/* Matrices, which can be turned. */
#define EDGE 61

static struct scene begin_square(void)
{
    return begin_shaped(2, (size_t[]){EDGE, EDGE});
}

static void end(struct scene *scene)
{
    kiln_buffer_release(scene->a);
    kiln_buffer_release(scene->b);
    kiln_batch_release(scene->batch);
    close_context(scene->context);
}

static unsigned count_in_place(kiln_batch *batch)
{
    char *text;
    unsigned count = 0;
    expect_ok(kiln_batch_explain(batch, &text));
    for (const char *at = text; (at = strstr(at, " in place")); at++)
        count++;
    kiln_free(text);
    return count;
}

static kiln_tensor number(kiln_batch *batch, double value)
{
    return kiln_constant(batch, KILN_F32, value);
}

/* ---- what is in place ---- */

/* No copy, no memory beyond the buffers. */
static void expect_free(struct scene *scene, unsigned in_place)
{
    kiln_batch_cost cost = cost_of(scene->batch);
    uint64_t copies = layer_available() ? layer_count("copy.count") : 0;
    cr_expect_eq(count_in_place(scene->batch), in_place);
    cr_expect_eq(cost.peak_bytes, 0u);
    for (int run = 0; run < RUNS; run++)
        run_batch(scene->batch);
    if (layer_available())
        cr_expect_eq(layer_count("copy.count"), copies, "%s", layer_snapshot());
}

Test(in_place, an_elementwise_update_needs_no_copy_and_no_memory)
{
    static const size_t sizes[] = {1, 7, 1024, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct scene s = begin(sizes[i]);
        kiln_tensor step = kiln_scale(s.batch, s.old_b, 0.5);
        expect_ok(kiln_export(s.batch, kiln_sub(s.batch, s.old_a, step), s.a));
        expect_free(&s, 1);
        for (size_t k = 0; k < s.n; k++)
            expected[k] = first[k] - RUNS * 0.5F * second[k];
        expect_buffer(s.a, s.n, expected);
        end(&s);
    }
}

Test(in_place, two_updates_share_a_kernel)
{
    struct scene s = begin(MOST);
    expect_ok(kiln_export(s.batch, kiln_sub(s.batch, s.old_a, s.old_b), s.a));
    expect_ok(kiln_export(s.batch, kiln_add(s.batch, s.old_b, s.old_a), s.b));
    expect_free(&s, 2);
    cr_expect_eq(cost_of(s.batch).launches, 1u);
    for (int run = 0; run < RUNS; run++)
        for (size_t k = 0; k < s.n; k++) {
            float a = first[k], b = second[k];
            first[k] = a - b;
            second[k] = a + b;
        }
    expect_buffer(s.a, s.n, first);
    expect_buffer(s.b, s.n, second);
    end(&s);
}

/* The kernel's own functions make pairs of vectors of it. */
Test(in_place, a_costly_update_is_made_once_for_each_element)
{
    struct scene s = begin(MOST);
    kiln_tensor step = kiln_square(s.batch, kiln_tanh(s.batch, s.old_b));
    expect_ok(kiln_export(s.batch, kiln_add(s.batch, s.old_a, step), s.a));
    expect_free(&s, 1);
    expect_ok(kiln_buffer_read(s.a, 0, expected, sizeof expected));
    for (size_t k = 0; k < s.n; k++) {
        double one = pow(tanh(second[k]), 2);
        cr_assert_float_eq(expected[k], first[k] + RUNS * one, 1e-4, "%zu", k);
    }
    end(&s);
}

Test(in_place, what_a_reduction_ends_with_is_in_place)
{
    enum { ROWS = 37, COLUMNS = 53 };
    for (int columns = 0; columns < 2; columns++) {
        struct scene s = begin(columns ? COLUMNS : ROWS);
        float *rows = malloc(sizeof(float) * ROWS * COLUMNS);
        fill(rows, ROWS * COLUMNS, 5);
        kiln_tensor x = kiln_upload(s.batch, KILN_F32, 2, (size_t[]){ROWS, COLUMNS}, rows);
        kiln_tensor sum = kiln_sum(s.batch, x, 1, (int[]){columns ? 0 : 1}, 0);
        expect_ok(kiln_export(s.batch, kiln_sub(s.batch, s.old_a, sum), s.a));
        cr_expect_eq(count_in_place(s.batch), 1u);
        cr_expect_eq(cost_of(s.batch).launches, 1u);
        for (int run = 0; run < RUNS; run++)
            run_batch(s.batch);
        for (size_t i = 0; i < ROWS; i++)
            for (size_t k = 0; k < COLUMNS; k++)
                first[columns ? k : i] -= RUNS * rows[i * COLUMNS + k];
        expect_buffer(s.a, s.n, first);
        free(rows);
        end(&s);
    }
}

/* A row is visited several times: its old content has to stay until the last. */
Test(in_place, rows_of_several_phases_are_copied)
{
    const int last = -1;
    struct scene s = begin_square();
    kiln_tensor y = kiln_softmax(s.batch, s.old_a, 1, &last);
    kiln_tensor z = kiln_layer_norm(s.batch, s.old_b, y, y, 1, &last, 1e-5);
    expect_ok(kiln_export(s.batch, y, s.a));
    expect_ok(kiln_export(s.batch, z, s.b));
    cr_expect_eq(count_in_place(s.batch), 0u);
    run_batch(s.batch);
    expect_ok(kiln_buffer_read(s.a, 0, second, sizeof(float) * EDGE * EDGE));
    for (size_t row = 0; row < EDGE; row++) {
        double total = 0;
        for (size_t i = 0; i < EDGE; i++)
            total += exp(first[row * EDGE + i]);
        for (size_t i = 0; i < EDGE; i++)
            cr_assert_float_eq(second[row * EDGE + i], exp(first[row * EDGE + i]) / total, 1e-6);
    }
    end(&s);
}

/* ---- order ---- */

/* The sum is recorded after the update; its kernel runs before. */
Test(in_place, readers_of_the_old_content_run_first)
{
    struct scene s = begin(MOST);
    float sum, total = 0;
    expect_ok(kiln_export(s.batch, kiln_mul(s.batch, s.old_a, number(s.batch, 2)), s.a));
    expect_ok(kiln_read(s.batch, kiln_sum(s.batch, s.old_a, 0, NULL, 0), &sum, sizeof sum));
    cr_expect_eq(count_in_place(s.batch), 1u);
    run_batch(s.batch);
    for (size_t k = 0; k < s.n; k++)
        total += first[k];
    cr_expect_eq(sum, total);
    run_batch(s.batch);
    cr_expect_eq(sum, 2 * total);
    end(&s);
}

/* What reads the old content needs the new one as well: it is kept until the end. */
Test(in_place, an_update_that_is_needed_first_is_copied)
{
    struct scene s = begin(MOST);
    kiln_tensor next = kiln_add(s.batch, s.old_a, number(s.batch, 1));
    kiln_tensor sum = kiln_sum(s.batch, next, 0, NULL, 0);
    float total = 0;
    expect_ok(kiln_export(s.batch, next, s.a));
    expect_ok(kiln_export(s.batch, kiln_add(s.batch, s.old_a, sum), s.b));
    cr_expect_eq(count_in_place(s.batch), 1u, "b, which nothing reads");
    run_batch(s.batch);
    for (size_t k = 0; k < s.n; k++)
        total += first[k] + 1;
    for (size_t k = 0; k < s.n; k++) {
        second[k] = first[k] + total;
        first[k] += 1;
    }
    expect_buffer(s.a, s.n, first);
    expect_buffer(s.b, s.n, second);
    end(&s);
}

/* Each would have to run before the other; one is kept aside. */
Test(in_place, of_two_that_wait_for_each_other_one_is_copied)
{
    struct scene s = begin_square();
    kiln_tensor turned_a = kiln_transpose(s.batch, s.old_a, NULL);
    kiln_tensor turned_b = kiln_transpose(s.batch, s.old_b, NULL);
    expect_ok(kiln_export(s.batch, kiln_neg(s.batch, turned_b), s.a));
    expect_ok(kiln_export(s.batch, kiln_square(s.batch, turned_a), s.b));
    cr_expect_eq(count_in_place(s.batch), 1u);
    run_batch(s.batch);
    for (size_t i = 0; i < EDGE; i++)
        for (size_t k = 0; k < EDGE; k++)
            expected[i * EDGE + k] = -second[k * EDGE + i];
    expect_buffer(s.a, s.n, expected);
    for (size_t i = 0; i < EDGE; i++)
        for (size_t k = 0; k < EDGE; k++)
            expected[i * EDGE + k] = first[k * EDGE + i] * first[k * EDGE + i];
    expect_buffer(s.b, s.n, expected);
    end(&s);
}

/* ---- what cannot be in place ---- */

/* a := a + f(a), f turning: no element may be overwritten before it has been read. */
Test(in_place, a_turned_operand_is_copied)
{
    struct scene s = begin_square();
    kiln_tensor turned = kiln_transpose(s.batch, s.old_a, NULL);
    expect_ok(kiln_export(s.batch, kiln_add(s.batch, s.old_a, turned), s.a));
    cr_expect_eq(count_in_place(s.batch), 0u);
    run_batch(s.batch);
    for (size_t i = 0; i < EDGE; i++)
        for (size_t k = 0; k < EDGE; k++)
            expected[i * EDGE + k] = first[i * EDGE + k] + first[k * EDGE + i];
    expect_buffer(s.a, s.n, expected);
    end(&s);
}

/* Another operand is turned: the update is in place and no tile overlaps its neighbour. */
Test(in_place, beside_a_turned_operand_each_element_is_updated_once)
{
    struct scene s = begin_square();
    kiln_tensor turned = kiln_transpose(s.batch, s.old_b, NULL);
    expect_ok(kiln_export(s.batch, kiln_add(s.batch, s.old_a, turned), s.a));
    expect_free(&s, 1);
    for (size_t i = 0; i < EDGE; i++)
        for (size_t k = 0; k < EDGE; k++)
            expected[i * EDGE + k] = first[i * EDGE + k] + RUNS * second[k * EDGE + i];
    expect_buffer(s.a, s.n, expected);
    end(&s);
}

/* Without anything that follows a product its sums are the result. */
Test(in_place, a_product_alone_replaces_what_it_is_made_from)
{
    struct scene s = begin_square();
    fill(first, EDGE * EDGE, 3);
    for (int i = 0; i < EDGE * EDGE; i++)
        first[i] = first[i] > 0;
    expect_ok(kiln_buffer_write(s.a, 0, first, sizeof *first * EDGE * EDGE));
    kiln_tensor below = kiln_cumsum(s.batch, s.old_a, 0, 0);
    expect_ok(kiln_export(s.batch, kiln_matmul(s.batch, below, below), s.a));
    cr_expect_eq(count_in_place(s.batch), 1u);
    run_batch(s.batch);
    for (int i = EDGE; i < EDGE * EDGE; i++)
        first[i] += first[i - EDGE];
    for (int i = 0; i < EDGE; i++)
        for (int k = 0; k < EDGE; k++) {
            expected[i * EDGE + k] = 0;
            for (int q = 0; q < EDGE; q++)
                expected[i * EDGE + k] += first[i * EDGE + q] * first[q * EDGE + k];
        }
    expect_buffer(s.a, s.n, expected);
    end(&s);
}

Test(in_place, an_old_content_that_is_asked_for_is_delivered)
{
    struct scene s = begin(MOST);
    expect_ok(kiln_export(s.batch, kiln_neg(s.batch, s.old_a), s.a));
    expect_ok(kiln_export(s.batch, s.old_a, s.b));
    run_batch(s.batch);
    expect_buffer(s.b, s.n, first);
    for (size_t k = 0; k < s.n; k++)
        first[k] = -first[k];
    expect_buffer(s.a, s.n, first);
    end(&s);
}

/* One result for two buffers: it is computed in the first and copied to the second. */
Test(in_place, one_result_updates_two_buffers)
{
    struct scene s = begin(MOST);
    kiln_tensor sum = kiln_add(s.batch, s.old_a, s.old_b);
    expect_ok(kiln_read(s.batch, sum, expected, sizeof expected));
    expect_ok(kiln_export(s.batch, sum, s.a));
    expect_ok(kiln_export(s.batch, sum, s.b));
    cr_expect_eq(count_in_place(s.batch), 1u);
    run_batch(s.batch);
    for (size_t k = 0; k < s.n; k++)
        first[k] += second[k];
    cr_expect_eq(memcmp(expected, first, sizeof first), 0);
    expect_buffer(s.a, s.n, first);
    expect_buffer(s.b, s.n, first);
    end(&s);
}

Test(in_place, importing_again_is_the_same_tensor)
{
    struct scene s = begin(MOST);
    cr_expect_eq(kiln_import(s.batch, s.a).id, s.old_a.id);
    cr_expect_neq(s.old_a.id, s.old_b.id);
    end(&s);
}
