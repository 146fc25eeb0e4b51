/* SPDX-License-Identifier: Apache-2.0 */
/* Narrow precision: where values are rounded, on devices that exist only here, and what comes of it
 * on the one there is. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/check.h"
#include "../support/graph.h"
#include "session/compile.h"
#include "session/context.h"

/* ---- an encoder's layers, on a Hopper that exists only here ---- */

static bool believes(struct kiln__self_tester *self_tester, const struct kiln__self_test *self_test)
{
    (void)self_tester;
    (void)self_test;
    return true;
}

static struct kiln__self_tester self_tester = {believes};

enum { LAYERS = 2, WIDTH = 768, HEADS = 12, FEED = 3072, LENGTH = 128 };

struct encoder {
    kiln_batch *batch;
    kiln_type hand; /* casts are written by hand; 0: there are none */
    size_t rows;
    bool splits; /* one product has queries, keys and values */
};

static kiln_tensor stored(const struct encoder *e, kiln_tensor x)
{
    return e->hand ? kiln_cast(e->batch, x, e->hand) : x;
}

static kiln_tensor dense(const struct encoder *e, kiln_tensor x, size_t in, size_t out)
{
    kiln_tensor w = stored(e, imagine_weights(e->batch, out, in));
    return kiln_add(e->batch, kiln_matmul_transposed(e->batch, x, 0, w, 1),
                    imagine_vector(e->batch, out));
}

static kiln_tensor norm(const struct encoder *e, kiln_tensor x)
{
    return kiln_layer_norm(e->batch, x, imagine_vector(e->batch, WIDTH),
                           imagine_vector(e->batch, WIDTH), 1, (int[]){-1}, 1e-12);
}

/* One product for all three, [rows, LENGTH, 3, HEADS, ...] as [3, rows, HEADS, LENGTH, ...]. */
static void split(const struct encoder *e, kiln_tensor x, kiln_tensor qkv[3])
{
    kiln_tensor y = stored(e, dense(e, x, WIDTH, 3 * WIDTH));
    y = kiln_reshape(e->batch, y, 5, (size_t[]){e->rows, LENGTH, 3, HEADS, WIDTH / HEADS});
    y = kiln_transpose(e->batch, y, (size_t[]){2, 0, 3, 1, 4});
    for (int64_t i = 0; i < 3; i++) {
        const int64_t start[5] = {i},
                      end[5] = {i + 1, (int64_t)e->rows, HEADS, LENGTH, WIDTH / HEADS};
        qkv[i] = kiln_reshape(e->batch, kiln_slice(e->batch, y, start, end, NULL), 4,
                              (size_t[]){e->rows, HEADS, LENGTH, WIDTH / HEADS});
    }
}

/* [rows, LENGTH, WIDTH] as heads, [rows, HEADS, LENGTH, WIDTH / HEADS]. */
static kiln_tensor heads(const struct encoder *e, kiln_tensor x)
{
    kiln_tensor y = kiln_reshape(e->batch, x, 4, (size_t[]){e->rows, LENGTH, HEADS, WIDTH / HEADS});
    return kiln_transpose(e->batch, y, (size_t[]){0, 2, 1, 3});
}

static kiln_tensor layer(const struct encoder *e, kiln_tensor x)
{
    kiln_batch *b = e->batch;
    kiln_tensor qkv[3], none = {0};
    for (int i = 0; i < 3 && !e->splits; i++)
        qkv[i] = heads(e, stored(e, dense(e, x, WIDTH, WIDTH)));
    if (e->splits)
        split(e, x, qkv);
    kiln_tensor a = stored(e, kiln_attention(b, qkv[0], qkv[1], qkv[2], none, NULL));
    a = kiln_reshape(b, kiln_transpose(b, a, (size_t[]){0, 2, 1, 3}), 2,
                     (size_t[]){e->rows * LENGTH, WIDTH});
    x = stored(e, norm(e, stored(e, kiln_add(b, dense(e, a, WIDTH, WIDTH), x))));
    kiln_tensor f = stored(e, kiln_gelu(b, dense(e, x, WIDTH, FEED)));
    return stored(e, norm(e, stored(e, kiln_add(b, dense(e, f, FEED, WIDTH), x))));
}

static kiln_batch *encoder(size_t rows, kiln_type hand, kiln_precision precision, bool invariant,
                           bool splits)
{
    struct encoder e = {kiln_batch_create(imagined_gpu()), hand, rows, splits};
    cr_expect_eq(kiln_batch_set_precision(e.batch, precision), KILN_OK);
    if (invariant)
        cr_expect_eq(kiln_batch_set_batch_invariant(e.batch), KILN_OK);
    kiln_tensor x = imagine_matrix(e.batch, rows * LENGTH, WIDTH);
    x = stored(&e, norm(&e, x));
    for (int i = 0; i < LAYERS; i++)
        x = layer(&e, x);
    ask(e.batch, kiln_cast(e.batch, x, KILN_F32));
    cr_assert_eq(kiln_batch_status(e.batch), KILN_OK, "%s", kiln_batch_error(e.batch));
    return e.batch;
}

static struct kiln__plan planned(kiln_batch *batch)
{
    static struct kiln__device device;
    device = imagined_hopper();
    struct kiln__plan_options options = {.device = &device, .self_tester = &self_tester};
    struct kiln__plan plan;
    cr_assert_eq(kiln__compile_plan(&batch->graph, &options, NULL, &plan, NULL), KILN_OK, "%s",
                 kiln_last_error());
    return plan;
}

/* What computes a launch, and what it stores. */
static const char *name_of(const struct kiln__launch *launch)
{
    return launch->choice.taken ? launch->choice.taken->name : launch->kernel;
}

static kiln_type stored_type(const struct kiln__plan *plan, size_t launch, size_t store)
{
    const struct kiln__group *group =
        &plan->fusion.groups.items[plan->launches.items[launch].group];
    return plan->fusion.graph.nodes.items[group->stores.items[store].node].type;
}

static size_t stores_of(const struct kiln__plan *plan, size_t launch)
{
    return plan->fusion.groups.items[plan->launches.items[launch].group].stores.count;
}

static void free_planned(kiln_batch *batch, struct kiln__plan *plan)
{
    kiln__plan_free(plan);
    kiln_batch_release(batch);
}

/* Nine launches a layer, or seven, as with casts by hand, all between them narrow but for what
 * norms read; and the weights' casts, which are made once. */
static void expect_encoder(kiln_precision precision, kiln_type type, bool splits)
{
    kiln_batch *by_hand = encoder(128, type, KILN_PRECISION_EXACT, false, splits);
    struct kiln__plan hand = planned(by_hand);
    size_t launches = hand.launches.count;
    free_planned(by_hand, &hand);
    kiln_batch *batch = encoder(128, (kiln_type)0, precision, false, splits);
    struct kiln__plan plan = planned(batch);
    cr_expect_eq(plan.launches.count, launches);
    size_t maps = 0, tensor_cores = 0, rows = 0;
    for (size_t i = 0; i < plan.launches.count; i++) {
        const struct kiln__launch *launch = &plan.launches.items[i];
        const bool casts = launch->kernel && !strcmp(launch->kernel, "kiln_map");
        maps += casts;
        tensor_cores += !strcmp(name_of(launch), "wgmma");
        rows += !strcmp(name_of(launch), "kiln_rows");
        cr_expect_eq(casts, launch->prepacks != 0, "launch %zu", i);
        cr_expect_eq(stores_of(&plan, i), 1u, "launch %zu", i);
        const bool before_norm = i + 1 < launches && !casts &&
                                 !strcmp(name_of(&plan.launches.items[i + 1]), "kiln_rows");
        const bool whole = i + 1 == launches || before_norm;
        cr_expect_eq(stored_type(&plan, i, 0), whole ? KILN_F32 : type, "launch %zu", i);
    }
    cr_expect_eq(maps, LAYERS * (splits ? 4u : 6u));
    cr_expect_eq(tensor_cores, LAYERS * (splits ? 5u : 7u));
    cr_expect_eq(rows, LAYERS * 2u + 1u);
    free_planned(batch, &plan);
}

Test(narrow, an_encoder_is_as_if_its_casts_were_written)
{
    for (int splits = 0; splits < 2; splits++) {
        expect_encoder(KILN_PRECISION_BF16, KILN_BF16, splits);
        expect_encoder(KILN_PRECISION_F16, KILN_F16, splits);
    }
}

/* However many rows there are: no element is added up in another order. */
Test(narrow, tensor_cores_take_batch_invariant_products_of_any_number_of_rows)
{
    const size_t rows[] = {1, 3, 128};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kiln_batch *batch = encoder(rows[i], (kiln_type)0, KILN_PRECISION_BF16, true, false);
        struct kiln__plan plan = planned(batch);
        size_t taken = 0;
        for (size_t k = 0; k < plan.launches.count; k++) {
            const struct kiln__launch *launch = &plan.launches.items[k];
            taken += !strcmp(name_of(launch), "wgmma");
            cr_expect(!strstr(launch->kernel, "sums"), "%s", launch->kernel);
        }
        cr_expect_eq(taken, LAYERS * 7u, "%zu rows: %zu", rows[i], taken);
        free_planned(batch, &plan);
    }
}

/* What computes x w of so many rows in a batch-invariant batch. */
static const char *invariant_product(size_t rows, bool kept)
{
    kiln_batch *batch = kiln_batch_create(imagined_gpu());
    cr_expect_eq(kiln_batch_set_precision(batch, KILN_PRECISION_F16), KILN_OK);
    cr_expect_eq(kiln_batch_set_batch_invariant(batch), KILN_OK);
    kiln_tensor w = kept ? imagine_weights(batch, WIDTH, FEED) : imagine_matrix(batch, WIDTH, FEED);
    ask(batch, kiln_matmul(batch, imagine_matrix(batch, rows, WIDTH), w));
    struct kiln__plan plan = planned(batch);
    const char *name = name_of(&plan.launches.items[plan.launches.count - 1]);
    free_planned(batch, &plan);
    return name;
}

/* Weights lie as they do whatever the number of rows; what comes with a request may be rows. */
Test(narrow, tensor_cores_take_batch_invariant_products_by_weights_across_the_sum)
{
    const size_t rows[] = {2, 31, 4096};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_expect_str_eq(invariant_product(rows[i], true), "wgmma");
        cr_expect_str_eq(invariant_product(rows[i], false), "tiled");
    }
}

/* ---- on the device ---- */

static kiln_batch *begin(kiln_precision precision)
{
    check_cheaply();
    kiln_batch *batch = check_begin();
    check_seed(3);
    cr_expect_eq(kiln_batch_set_precision(batch, precision), KILN_OK);
    return batch;
}

/* A norm of a product, whose width no vector divides, and a layer. */
static kiln_tensor layers(kiln_batch *b)
{
    kiln_tensor x = kiln_matmul(b, check_plain(b, DIMS(5, 8)), check_plain(b, DIMS(8, 33)));
    x = kiln_add(b, x, check_plain(b, DIMS(33)));
    x = kiln_layer_norm(b, x, (kiln_tensor){0}, (kiln_tensor){0}, 1, (int[]){-1}, 1e-5);
    kiln_tensor y = kiln_gelu(b, kiln_matmul(b, x, check_plain(b, DIMS(33, 8))));
    return kiln_matmul(b, y, check_plain(b, DIMS(8, 33)));
}

static kiln_tensor attended(kiln_batch *b)
{
    return kiln_attention(b, check_plain(b, DIMS(2, 7, 16)), check_plain(b, DIMS(2, 9, 16)),
                          check_plain(b, DIMS(2, 9, 8)), (kiln_tensor){0}, NULL);
}

static kiln_tensor convolved(kiln_batch *b)
{
    kiln_conv_options options = KILN_CONV_OPTIONS_INIT;
    options.before[0] = options.before[1] = 1;
    kiln_tensor x =
        kiln_conv(b, check_plain(b, DIMS(2, 9, 8, 3)), check_plain(b, DIMS(3, 3, 3, 4)), &options);
    return kiln_max(b, kiln_relu(b, x), 2, (int[]){1, 2}, 0);
}

static kiln_tensor (*const works[])(kiln_batch *) = {layers, attended, convolved};

/* As near to the exact result as the type allows, and not the exact result: what is multiplied has
 * been rounded. */
static void expect_rounded(kiln_tensor (*work)(kiln_batch *), kiln_precision precision)
{
    kiln_batch *exact = begin(KILN_PRECISION_EXACT);
    kiln_tensor y = work(exact);
    kiln_batch *narrow = begin(precision);
    kiln_tensor z = work(narrow);
    size_t rank, dims[KILN_MAX_RANK], count = 1, differ = 0;
    kiln_type type;
    expect_ok(kiln_tensor_shape(narrow, z, &type, &rank, dims));
    cr_expect_eq(type, KILN_F32);
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    const float *expected = check_read(exact, y), *found = check_read(narrow, z);
    cr_expect(check_run(exact));
    cr_expect(check_run(narrow));
    const float ulp = precision == KILN_PRECISION_BF16 ? 0x1p-8f : 0x1p-11f;
    float top = 0, most = 0;
    for (size_t i = 0; i < count; i++) {
        top = fmaxf(top, fabsf(expected[i]));
        most = fmaxf(most, fabsf(expected[i] - found[i]));
        differ += expected[i] != found[i];
    }
    cr_expect(differ > count / 2, "%zu of %zu", differ, count);
    cr_expect(most < 8 * ulp * top, "%g of %g", most, top);
    check_end(exact);
    check_end(narrow);
}

Test(narrow, results_are_near_the_exact_ones)
{
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        expect_rounded(works[i], KILN_PRECISION_BF16);
        expect_rounded(works[i], KILN_PRECISION_F16);
    }
    check_close();
}

/* What is asked for is f32 to its last bit, though a product reads it rounded; so is what comes
 * from outside, for others than products. */
Test(narrow, what_is_asked_for_is_not_rounded)
{
    kiln_batch *batches[2];
    const float *powers[2], *sums[2];
    for (int i = 0; i < 2; i++) {
        kiln_batch *b = batches[i] = begin(i ? KILN_PRECISION_BF16 : KILN_PRECISION_EXACT);
        kiln_tensor x = check_plain(b, DIMS(6, 40)), w = check_plain(b, DIMS(40, 40));
        kiln_tensor y = kiln_exp(b, x);
        powers[i] = check_read(b, y);
        sums[i] = check_read(b, kiln_sum(b, w, 1, (int[]){0}, 0));
        check_read(b, kiln_matmul(b, y, w));
        cr_expect(check_run(b));
    }
    cr_expect_arr_eq(powers[0], powers[1], 6 * 40 * sizeof(float));
    cr_expect_arr_eq(sums[0], sums[1], 40 * sizeof(float));
    check_end(batches[0]);
    check_end(batches[1]);
    check_close();
}

/* Scores with a mask of finite numbers, one row masked whole: the mask is not rounded, to -inf say.
 * And the largest of what a product makes is the largest of what is read. */
Test(narrow, what_is_made_of_products_is_not_rounded)
{
    enum { ROWS = 4, COLUMNS = 8 };
    static const kiln_precision precisions[] = {KILN_PRECISION_BF16, KILN_PRECISION_F16};
    for (size_t p = 0; p < sizeof precisions / sizeof *precisions; p++) {
        static float hides[ROWS][COLUMNS];
        for (int i = 0; i < COLUMNS; i++)
            hides[0][i] = -FLT_MAX;
        kiln_batch *b = begin(precisions[p]);
        kiln_tensor score =
            kiln_matmul(b, check_plain(b, DIMS(ROWS, 16)), check_plain(b, DIMS(16, COLUMNS)));
        kiln_tensor masked =
            kiln_add(b, score, check_given(b, KILN_F32, DIMS(ROWS, COLUMNS), hides));
        const float *weights = check_read(b, kiln_softmax(b, masked, 1, (int[]){-1}));
        const float *scores = check_read(b, score);
        const float *largest = check_read(b, kiln_max(b, score, 1, (int[]){1}, 0));
        const int32_t *place = check_read(b, kiln_argmax(b, score, 1, (int[]){1}, 0));
        run_batch(b);
        for (int i = 0; i < COLUMNS; i++)
            cr_expect_float_eq(weights[i], 1.0f / COLUMNS, 1e-6f, "%g", (double)weights[i]);
        for (int r = 0; r < ROWS; r++)
            cr_expect_eq(scores[r * COLUMNS + place[r]], largest[r]);
        check_end(b);
    }
    check_close();
}

/* Angles: what is not added up is multiplied as it is. */
Test(narrow, products_of_depth_1_are_exact)
{
    enum { POSITIONS = 5 };
    static float position[POSITIONS] = {255, 257, 511, 1023, 4095};
    kiln_batch *b = begin(KILN_PRECISION_BF16);
    static float one[1] = {1};
    const float *angles =
        check_read(b, kiln_matmul(b, check_given(b, KILN_F32, DIMS(POSITIONS, 1), position),
                                  check_given(b, KILN_F32, DIMS(1, 1), one)));
    cr_expect(check_run(b));
    cr_expect_arr_eq(angles, position, sizeof position);
    check_end(b);
    check_close();
}

/* Numbers beyond 256, of which bf16 has not all. */
Test(narrow, whole_numbers_are_not_rounded)
{
    enum { ROWS = 600 };
    static float table[ROWS][4];
    kiln_batch *b = begin(KILN_PRECISION_BF16);
    for (int i = 0; i < ROWS; i++)
        table[i][0] = (float)i;
    kiln_tensor number = kiln_iota(b, DIMS(ROWS), 0);
    kiln_tensor next = kiln_add(b, number, kiln_constant(b, KILN_I32, 1));
    kiln_tensor rows = kiln_gather(b, check_given(b, KILN_F32, DIMS(ROWS, 4), table), number, 0);
    kiln_tensor product = kiln_matmul(b, rows, check_plain(b, DIMS(4, 4)));
    const int32_t *whole = check_read(b, next);
    const float *read = check_read(b, rows);
    check_read(b, product);
    cr_expect(check_run(b));
    for (int i = 0; i < ROWS; i++) {
        cr_expect_eq(whole[i], i + 1);
        cr_expect_eq(read[4 * i], (float)i);
    }
    check_end(b);
    check_close();
}

/* ---- batch-invariant ---- */

/* The first row of so many, through the layers. */
static void run_row(size_t rows, float row[33])
{
    static float all[64 * 33];
    kiln_batch *b = begin(KILN_PRECISION_BF16);
    expect_ok(kiln_batch_set_batch_invariant(b));
    kiln_tensor weights = check_plain(b, DIMS(33, 48)), back = check_plain(b, DIMS(48, 33));
    for (size_t i = 0; i < rows * 33; i++)
        all[i] = (float)(i % 97) / 31 - 1;
    kiln_tensor x = check_given(b, KILN_F32, DIMS(rows, 33), all), none = {0};
    for (int i = 0; i < 2; i++) {
        kiln_tensor y = kiln_matmul(b, kiln_tanh(b, kiln_matmul(b, x, weights)), back);
        x = kiln_layer_norm(b, kiln_add(b, y, x), none, none, 1, (int[]){-1}, 1e-5);
    }
    const float *found = check_read(b, x);
    run_batch(b);
    memcpy(row, found, 33 * sizeof *row);
    check_end(b);
}

Test(narrow, a_row_has_the_same_bits_alone_and_in_company)
{
    float two[33], many[33];
    run_row(2, two);
    run_row(64, many);
    cr_expect_arr_eq(two, many, sizeof two);
    check_close();
}

/* ---- training ---- */

enum { SAMPLES = 32, IN = 8, HIDDEN = 16, RUNS = 30 };

static kiln_tensor loss_of(kiln_batch *b, kiln_tensor x, kiln_tensor target, const kiln_tensor w[2])
{
    kiln_tensor y = kiln_matmul(b, kiln_tanh(b, kiln_matmul(b, x, w[0])), w[1]);
    return kiln_mean(b, kiln_square(b, kiln_sub(b, y, target)), 0, NULL, 0);
}

/* A small step down: most of it is too small for a weight in bf16. */
static void step(kiln_batch *b, kiln_tensor loss, kiln_tensor w[2])
{
    kiln_tensor slopes[2];
    expect_ok(kiln_grad(b, loss, w, 2, slopes));
    for (int i = 0; i < 2; i++)
        w[i] = kiln_sub(b, w[i], kiln_scale(b, slopes[i], 0x1p-9));
}

/* The loss before and after, of two steps in each run. */
static void learn(kiln_precision precision, float *first, float *last)
{
    kiln_batch *b = begin(precision);
    kiln_buffer *kept[2];
    kiln_tensor x = check_plain(b, DIMS(SAMPLES, IN)), w[2];
    const size_t dims[2][2] = {{IN, HIDDEN}, {HIDDEN, 1}};
    for (int i = 0; i < 2; i++) {
        float content[IN * HIDDEN];
        for (size_t k = 0; k < dims[i][0] * dims[i][1]; k++)
            content[k] = (float)check_value(KILN_F32, CHECK_PLAIN) / 4;
        expect_ok(kiln_buffer_create(check_context(), KILN_F32, 2, dims[i], &kept[i]));
        expect_ok(kiln_buffer_write(kept[i], 0, content, dims[i][0] * dims[i][1] * sizeof(float)));
        w[i] = kiln_import(b, kept[i]);
    }
    kiln_tensor target = kiln_sum(b, x, 1, (int[]){1}, 1), loss = loss_of(b, x, target, w);
    float now;
    expect_ok(kiln_read(b, loss, &now, sizeof now));
    step(b, loss, w);
    step(b, loss_of(b, x, target, w), w);
    for (int i = 0; i < 2; i++)
        expect_ok(kiln_export(b, w[i], kept[i]));
    for (int i = 0; i < RUNS; i++) {
        run_batch(b);
        *first = i ? *first : now;
        *last = now;
    }
    check_end(b);
    kiln_buffer_release(kept[0]);
    kiln_buffer_release(kept[1]);
}

/* Weights are f32 from step to step, within one batch, too. */
Test(narrow, slow_a_network_learns_as_it_does_in_f32)
{
    float first, exact, last;
    learn(KILN_PRECISION_EXACT, &first, &exact);
    cr_expect(exact < first / 2, "%g after %g", exact, first);
    learn(KILN_PRECISION_BF16, &first, &last);
    cr_expect(fabsf(last - exact) < 0.02f * first, "%g, not %g", last, exact);
    learn(KILN_PRECISION_F16, &first, &last);
    cr_expect(fabsf(last - exact) < 0.002f * first, "%g, not %g", last, exact);
    check_close();
}
