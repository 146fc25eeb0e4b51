/* SPDX-License-Identifier: Apache-2.0 */
/* Short launches that the last work-groups of a product do, on the tests' device, for which kernels
 * are made as for a GPU: the same bits as launches of their own give, run after run. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "../support/check.h"
#include "../support/grouped.h"

enum { MOST_ROWS = 8, WIDTH = 260, INNER = 516, RUNS = 4 };

static float x[MOST_ROWS * WIDTH], up[INNER * WIDTH], down[WIDTH * INNER], scale[WIDTH];

static void begin(void)
{
    check_cheaply();
    setenv("KILN_MATMUL", "rows", 1);
    fill(x, MOST_ROWS * WIDTH, 1);
    fill(up, INNER * WIDTH, 2);
    fill(down, WIDTH * INNER, 3);
    fill(scale, WIDTH, 4);
    x[3] = NAN;
    x[WIDTH + 5] = INFINITY;
}

/* What a network has between two norms. */
struct layer {
    size_t rows;
    bool across; /* the weights' columns lie beside each other, not their rows */
    bool keeps;  /* every value between is asked for, too */
};

struct results {
    float norm[MOST_ROWS * WIDTH], between[2][MOST_ROWS * INNER];
};

static kiln_tensor product(kiln_batch *batch, const struct layer *layer, kiln_tensor a, size_t k,
                           size_t n, const float *weights)
{
    const size_t plain[] = {k, n}, turned[] = {n, k};
    kiln_tensor w = kiln_upload(batch, KILN_F32, 2, layer->across ? plain : turned, weights);
    return kiln_matmul(batch, a, layer->across ? w : kiln_transpose(batch, w, (size_t[]){1, 0}));
}

/* How many launches a run has; 0 where other kernels are taken, which have nothing behind them. */
static size_t run_layer(kiln_context *context, const struct layer *layer, struct results *results)
{
    const size_t m = layer->rows;
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor in = kiln_upload(batch, KILN_F32, 2, (size_t[]){m, WIDTH}, x);
    kiln_tensor g = kiln_upload(batch, KILN_F32, 1, (size_t[]){WIDTH}, scale);
    kiln_tensor h = product(batch, layer, in, WIDTH, INNER, up);
    /* Halves that meet are no epilogue of the product that has both. */
    kiln_tensor gate =
        kiln_slice(batch, h, (int64_t[]){0, 0}, (int64_t[]){(int64_t)m, INNER / 2}, NULL);
    kiln_tensor other =
        kiln_slice(batch, h, (int64_t[]){0, INNER / 2}, (int64_t[]){(int64_t)m, INNER}, NULL);
    kiln_tensor met = kiln_mul(batch, kiln_tanh(batch, gate), other);
    kiln_tensor y = product(batch, layer, met, INNER / 2, WIDTH, down);
    kiln_tensor sum = kiln_add(batch, y, in);
    kiln_tensor norm = layer->across
                           ? kiln_layer_norm(batch, sum, g, (kiln_tensor){0}, 1, (int[]){1}, 1e-5)
                           : kiln_rms_norm(batch, sum, g, 1, (int[]){1}, 1e-5);
    norm = product(batch, layer, norm, WIDTH, WIDTH, up);
    if (layer->keeps) {
        expect_ok(kiln_read(batch, h, results->between[0], m * INNER * sizeof(float)));
        expect_ok(kiln_read(batch, sum, results->between[1], m * WIDTH * sizeof(float)));
    }
    expect_ok(kiln_read(batch, norm, results->norm, m * WIDTH * sizeof(float)));
    for (int i = 0; i < RUNS; i++) {
        memset(results->norm, 0, sizeof results->norm);
        run_batch(batch);
    }
    const size_t launches = explains(batch, "product by rows") ? cost_of(batch).launches : 0;
    kiln_batch_release(batch);
    return launches;
}

Test(last_groups, bits_are_those_of_launches_of_their_own)
{
    static struct results apart, joined;
    begin();
    kiln_context *many = open_grouped("off"), *one = open_grouped("on");
    static const struct layer layers[] = {
        {1, false, false}, {8, false, true}, {1, true, true}, {5, true, false}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const struct layer layer = layers[i];
        memset(&apart, 0, sizeof apart);
        memset(&joined, 0, sizeof joined);
        const size_t before = run_layer(many, &layer, &apart);
        if (!before)
            cr_skip_test("the device has no kernel with anything behind it");
        const size_t behind = run_layer(one, &layer, &joined);
        cr_expect_eq(memcmp(&apart, &joined, sizeof apart), 0, "%zu rows, case %zu", layer.rows, i);
        /* What is read has a step of its own behind its launch, but for shared memory. */
        if (!layer.keeps || one->runtime.host_mode != KILN__HOST_SEPARATE)
            cr_expect_lt(behind, before, "case %zu: %zu launches", i, behind);
    }
    close_context(many);
    close_context(one);
}
