/* SPDX-License-Identifier: Apache-2.0 */
/* How many kernels normalisations, what is before and behind them, and their gradients take, on a
 * CPU and on a GPU that exist only here. */
#include <criterion/criterion.h>

#include "../support/check.h"
#include "../support/graph.h"

enum { ROWS = 64, COLUMNS = 256 };

static const kiln_tensor none;
static const int last[] = {1};

static kiln_tensor rows(kiln_batch *b)
{
    return imagine_matrix(b, ROWS, COLUMNS);
}

static kiln_tensor norm(kiln_batch *b, kiln_tensor x)
{
    return kiln_layer_norm(b, x, imagine_vector(b, COLUMNS), imagine_vector(b, COLUMNS), 1, last,
                           1e-5);
}

static kiln_tensor softmax(kiln_batch *b, kiln_tensor x)
{
    return kiln_softmax(b, x, 1, last);
}

static kiln_tensor dropout(kiln_batch *b, kiln_tensor x)
{
    return kiln_dropout(b, x, 0.1, kiln_cast(b, imagine_vector(b, 2), KILN_I32));
}

/* Two products with a function between them, wider than the rows. */
static kiln_tensor feed(kiln_batch *b, kiln_tensor x)
{
    kiln_tensor wide = kiln_matmul(b, x, imagine_matrix(b, COLUMNS, 4 * COLUMNS));
    wide = kiln_gelu(b, kiln_add(b, wide, imagine_vector(b, 4 * COLUMNS)));
    wide = kiln_matmul(b, wide, imagine_matrix(b, 4 * COLUMNS, COLUMNS));
    return kiln_add(b, wide, imagine_vector(b, COLUMNS));
}

/* Of the sum of y with weights of its own, by x. */
static void ask_gradient(kiln_batch *b, kiln_tensor y, kiln_tensor x)
{
    kiln_tensor g, loss = kiln_sum(b, kiln_mul(b, y, rows(b)), 0, NULL, 0);
    expect_ok(kiln_grad(b, loss, &x, 1, &g));
    ask(b, g);
}

static void of_softmax(kiln_batch *b)
{
    ask(b, norm(b, softmax(b, rows(b))));
}

static void of_rounded_softmax(kiln_batch *b)
{
    kiln_tensor x = kiln_cast(b, softmax(b, rows(b)), KILN_F16);
    ask(b, norm(b, kiln_cast(b, x, KILN_F32)));
}

static void of_sum(kiln_batch *b)
{
    kiln_tensor x = kiln_add(b, rows(b), rows(b));
    ask(b, x);
    ask(b, norm(b, x));
}

static void of_sum_with_softmax(kiln_batch *b)
{
    kiln_tensor x = rows(b);
    ask(b, norm(b, kiln_add(b, x, softmax(b, x))));
}

static void of_function(kiln_batch *b)
{
    ask(b, norm(b, kiln_gelu(b, rows(b))));
}

static void of_gate(kiln_batch *b)
{
    ask(b, norm(b, kiln_mul(b, rows(b), kiln_sigmoid(b, rows(b)))));
}

static void of_dropout(kiln_batch *b)
{
    ask(b, norm(b, dropout(b, rows(b))));
}

static void of_norm(kiln_batch *b)
{
    ask(b, norm(b, norm(b, rows(b))));
}

static void of_running_sums(kiln_batch *b)
{
    ask(b, norm(b, kiln_cumsum(b, rows(b), 1, 0)));
}

static void of_reduced(kiln_batch *b)
{
    kiln_tensor x = imagine(b, 3, (size_t[]){ROWS, COLUMNS, 33});
    ask(b, norm(b, kiln_exp(b, kiln_sum(b, x, 1, (int[]){2}, 0))));
}

static void of_product(kiln_batch *b)
{
    kiln_tensor x = rows(b);
    ask(b, norm(b, kiln_add(b, x, kiln_matmul(b, x, imagine_matrix(b, COLUMNS, COLUMNS)))));
}

static void before_softmax(kiln_batch *b)
{
    ask(b, softmax(b, norm(b, rows(b))));
}

static void groups(kiln_batch *b)
{
    kiln_tensor x = kiln_exp(b, imagine(b, 4, (size_t[]){2, 8, 9, 9}));
    ask(b, kiln_group_norm(b, x, none, none, 2, 1, 1e-5));
}

static void variance(kiln_batch *b)
{
    ask(b, kiln_variance(b, softmax(b, rows(b)), 1, last, 0, 0));
}

enum { LAYERS = 6 };

static void layers_before(kiln_batch *b)
{
    kiln_tensor x = rows(b);
    for (int i = 0; i < LAYERS; i++)
        x = kiln_add(b, x, feed(b, norm(b, x)));
    ask(b, norm(b, x));
}

static void layers_behind(kiln_batch *b)
{
    kiln_tensor x = rows(b);
    for (int i = 0; i < LAYERS; i++)
        x = norm(b, kiln_add(b, x, dropout(b, feed(b, x))));
    ask(b, x);
}

static void gradient(kiln_batch *b)
{
    kiln_tensor x = rows(b);
    ask_gradient(b, norm(b, x), x);
}

static void gradient_through_softmax(kiln_batch *b)
{
    kiln_tensor x = rows(b);
    ask_gradient(b, norm(b, softmax(b, x)), x);
}

static void gradients_of_all(kiln_batch *b)
{
    kiln_tensor x = rows(b), s = imagine_vector(b, COLUMNS), in[] = {x, s, s}, g[3];
    in[2] = imagine_vector(b, COLUMNS);
    kiln_tensor y = kiln_layer_norm(b, kiln_add(b, x, rows(b)), s, in[2], 1, last, 1e-5);
    kiln_tensor loss = kiln_sum(b, kiln_mul(b, y, rows(b)), 0, NULL, 0);
    expect_ok(kiln_grad(b, loss, in, 3, g));
    for (int i = 0; i < 3; i++)
        ask(b, g[i]);
}

static void gradient_of_layers(kiln_batch *b)
{
    kiln_tensor x = rows(b), y = x;
    for (int i = 0; i < 3; i++)
        y = kiln_add(b, y, feed(b, norm(b, y)));
    ask_gradient(b, norm(b, y), x);
}

/* Launches of a batch, which goes with them. */
static size_t count_of(kiln_batch *batch)
{
    struct kiln__plan plan = plan_of(batch, false);
    size_t count = plan.launches.count;
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
    return count;
}

static size_t count_launches(kiln_context *context, void (*record)(kiln_batch *))
{
    kiln_batch *batch = kiln_batch_create(context);
    record(batch);
    return count_of(batch);
}

Test(fusion_normalization, takes_as_few_kernels)
{
    static const struct {
        const char *name;
        void (*record)(kiln_batch *);
        size_t launches;
    } cases[] = {{"of a softmax", of_softmax, 1},
                 {"of a softmax that was rounded", of_rounded_softmax, 1},
                 {"of a sum that is a result", of_sum, 1},
                 {"of a sum with a softmax", of_sum_with_softmax, 1},
                 {"of a function", of_function, 1},
                 {"of a gate", of_gate, 1},
                 {"of a dropout", of_dropout, 1},
                 {"of a norm", of_norm, 1},
                 {"of running sums", of_running_sums, 1},
                 {"of a function of sums", of_reduced, 2},
                 {"of a product and what went in", of_product, 2},
                 {"before a softmax", before_softmax, 1},
                 {"of groups of a function", groups, 1},
                 {"variance of a softmax", variance, 1},
                 {"layers with norms before them", layers_before, 3 * LAYERS + 1},
                 {"layers with norms behind them", layers_behind, 3 * LAYERS},
                 {"gradient", gradient, 1},
                 {"gradient through a softmax", gradient_through_softmax, 1},
                 {"gradients by all operands", gradients_of_all, 2},
                 {"gradient of layers", gradient_of_layers, 19}};
    for (int gpu = 0; gpu < 2; gpu++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            size_t count = count_launches(gpu ? imagined_gpu() : imagined_cpu(), cases[i].record);
            cr_expect_leq(count, cases[i].launches, "%s: %zu launches on a %s", cases[i].name,
                          count, gpu ? "GPU" : "CPU");
        }
}

/* Launches of a norm of a softmax over the same elements, however they lie. */
static size_t count_over(kiln_context *context, size_t rank, const size_t *dims, size_t n_axes,
                         const int *axes, bool rounded)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_softmax(batch, imagine(batch, rank, dims), n_axes, axes);
    if (rounded)
        x = kiln_cast(batch, kiln_cast(batch, x, KILN_F16), KILN_F32);
    ask(batch, kiln_layer_norm(batch, x, none, none, n_axes, axes, 1e-5));
    return count_of(batch);
}

Test(fusion_normalization, goes_over_all_that_a_softmax_does_at_once)
{
    static const struct {
        const char *name;
        size_t rank, dims[4], n_axes;
        int axes[2];
    } cases[] = {{"columns", 2, {256, 64}, 1, {0}},
                 {"the longest columns", 2, {2048, 64}, 1, {0}},
                 {"columns between", 3, {3, 100, 64}, 1, {1}},
                 {"a column alone", 2, {512, 1}, 1, {0}},
                 {"pieces", 3, {8, 16, 64}, 2, {0, 2}},
                 {"two dimensions between", 4, {4, 3, 5, 6}, 2, {1, 2}},
                 {"short rows", 2, {64, 8}, 1, {1}},
                 {"long rows", 2, {4, 16384}, 1, {1}}};
    for (int gpu = 0; gpu < 2; gpu++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            for (int rounded = 0; rounded < 2; rounded++) {
                size_t count = count_over(gpu ? imagined_gpu() : imagined_cpu(), cases[i].rank,
                                          cases[i].dims, cases[i].n_axes, cases[i].axes, rounded);
                cr_expect_eq(count, 1, "%s%s: %zu launches on a %s", cases[i].name,
                             rounded ? ", rounded" : "", count, gpu ? "GPU" : "CPU");
            }
}

/* They are no dimension that rows end before. */
Test(fusion_normalization, dimensions_of_1_behind_rows_do_not_matter)
{
    static const size_t dims[][5] = {{4, 1000}, {4, 1000, 1}, {4, 1, 1000, 1, 1}},
                        long_dims[][3] = {{4, 40000}, {4, 40000, 1}};
    for (int gpu = 0; gpu < 2; gpu++) {
        kiln_context *context = gpu ? imagined_gpu() : imagined_cpu();
        for (size_t i = 0; i < 3; i++) {
            kiln_batch *b = kiln_batch_create(context);
            kiln_tensor x = kiln_exp(b, imagine(b, i < 2 ? 2 + i : 5, dims[i]));
            ask(b, kiln_layer_norm(b, x, none, none, 1, (int[]){i < 2 ? 1 : 2}, 1e-5));
            cr_expect_eq(count_of(b), 1, "of shape %zu", i);
        }
        for (size_t i = 0; i < 2; i++) {
            kiln_batch *b = kiln_batch_create(context);
            ask(b, kiln_softmax(b, imagine(b, 2 + i, long_dims[i]), 1, last));
            cr_expect_eq(count_of(b), 1, "of long shape %zu", i);
        }
    }
}

/* Of more than one kernel goes over: of the elements, and of the norms of parts. */
Test(fusion_normalization, long_norms_are_of_norms_of_parts)
{
    static const struct {
        const char *name;
        size_t rank, dims[4], n_axes;
        int axes[2];
        size_t launches;
    } cases[] = {{"all", 1, {1000000}, 0, {0}, 2},
                 {"all of a matrix", 2, {1000, 1000}, 0, {0}, 2},
                 {"rows", 2, {3, 200000}, 1, {1}, 2},
                 {"rows before a dimension of 1", 3, {3, 200000, 1}, 1, {1}, 2},
                 {"rows of pictures", 3, {3, 1024, 1024}, 2, {1, 2}, 2},
                 {"columns", 2, {100000, 16}, 1, {0}, 2},
                 {"pieces", 3, {64, 3, 4096}, 2, {0, 2}, 2},
                 {"norms of norms of parts", 2, {6000000, 2}, 1, {0}, 3},
                 {"no number of parts", 1, {1000003}, 0, {0}, 4}};
    for (int gpu = 0; gpu < 2; gpu++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            kiln_batch *b = kiln_batch_create(gpu ? imagined_gpu() : imagined_cpu());
            kiln_tensor x = imagine(b, cases[i].rank, cases[i].dims);
            ask(b, kiln_norm(b, x, cases[i].n_axes, cases[i].axes, 0));
            cr_expect_eq(count_of(b), cases[i].launches, "of %s", cases[i].name);
        }
}

/* The row's first element is computed again where the row is. */
Test(fusion_normalization, computes_what_the_reference_does)
{
    static const size_t shapes[][2] = {{5, 7}, {3, 16}, {9, 250}, {2, 8200}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const size_t *dims = shapes[i];
        kiln_batch *b = check_begin();
        kiln_tensor x = check_plain(b, DIMS(dims[0], dims[1]));
        kiln_tensor y = check_plain(b, DIMS(dims[0], dims[1]));
        check_read(b, kiln_layer_norm(b, softmax(b, x), none, none, 1, last, 1e-3));
        kiln_tensor columns = kiln_softmax(b, x, 1, (int[]){0});
        check_read(b, kiln_layer_norm(b, columns, none, none, 1, (int[]){0}, 1e-3));
        check_read(b, kiln_layer_norm(b, kiln_gelu(b, x), none, none, 1, last, 1e-3));
        x = kiln_mul(b, x, kiln_sigmoid(b, y));
        check_read(b, kiln_layer_norm(b, x, none, none, 1, last, 1e-3));
        check_read(b, kiln_variance(b, kiln_cumsum(b, y, 1, dims[0] % 2), 1, last, 0, 0));
        check_run(b);
        check_end(b);
    }
    check_close();
}
