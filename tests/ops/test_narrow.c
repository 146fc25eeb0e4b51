/* SPDX-License-Identifier: Apache-2.0 */
/* What is stored in fewer bits than it is computed in is read as it lies in memory, by every
 * operation that takes it: nowhere is there a wider copy. Nothing here needs a device. */
#include <criterion/criterion.h>

#include "../support/graph.h"

static kiln_tensor given(kiln_batch *batch, kiln_type type, size_t rank, const size_t *dims)
{
    static const int64_t nothing;
    return kiln_upload(batch, type, rank, dims, &nothing);
}
#define GIVEN(...)                                                                                 \
    given(batch, type, sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), (size_t[]){__VA_ARGS__})

static const kiln_tensor none = {0};
static const int last = -1;
static const size_t window[] = {2, 2};

/* ---- the operations; `type` is narrow ---- */

typedef kiln_tensor record(kiln_batch *batch, kiln_type type);

static kiln_tensor add(kiln_batch *batch, kiln_type type)
{
    return kiln_add(batch, GIVEN(30, 40), kiln_transpose(batch, GIVEN(40, 30), NULL));
}

static kiln_tensor reduce(kiln_batch *batch, kiln_type type)
{
    return kiln_sum(batch, GIVEN(30, 40), 1, &last, 0);
}

static kiln_tensor add_up(kiln_batch *batch, kiln_type type)
{
    return kiln_cumsum(batch, kiln_transpose(batch, GIVEN(40, 30), NULL), 1, 0);
}

static kiln_tensor find(kiln_batch *batch, kiln_type type)
{
    return kiln_argmax(batch, GIVEN(30, 40), 1, &last, 0);
}

static kiln_tensor normalise(kiln_batch *batch, kiln_type type)
{
    kiln_tensor x = kiln_layer_norm(batch, GIVEN(30, 40), GIVEN(40), GIVEN(40), 1, &last, 1e-5);
    return kiln_softmax(batch, x, 1, &last);
}

static kiln_tensor pool(kiln_batch *batch, kiln_type type)
{
    kiln_tensor x = GIVEN(2, 8, 8, 3);
    ask(batch, kiln_avg_pool2d(batch, x, window, NULL));
    return kiln_max_pool2d(batch, x, window, NULL);
}

static kiln_tensor look_up(kiln_batch *batch, kiln_type type)
{
    kiln_tensor rows = kiln_gather(batch, GIVEN(30, 40), given(batch, KILN_I64, 1, window), 0);
    return kiln_scale(batch, rows, 2);
}

static kiln_tensor scatter(kiln_batch *batch, kiln_type type)
{
    kiln_tensor indices = given(batch, KILN_I64, 1, (size_t[]){20});
    return kiln_scatter_add(batch, GIVEN(30, 40), indices, GIVEN(20, 40), 0);
}

static kiln_tensor lose(kiln_batch *batch, kiln_type type)
{
    kiln_tensor labels = given(batch, KILN_I64, 1, (size_t[]){30});
    ask(batch, kiln_mean_squared_error(batch, GIVEN(30, 40), GIVEN(30, 40)));
    return kiln_cross_entropy(batch, GIVEN(30, 40), labels);
}

static kiln_tensor multiply(kiln_batch *batch, kiln_type type)
{
    return kiln_matmul(batch, GIVEN(30, 40), GIVEN(40, 50));
}

static kiln_tensor multiply_few_rows(kiln_batch *batch, kiln_type type)
{
    return kiln_matmul_transposed(batch, GIVEN(3, 40), 0, GIVEN(50, 40), 1);
}

static kiln_tensor multiply_batches(kiln_batch *batch, kiln_type type)
{
    kiln_tensor heads = kiln_transpose(batch, GIVEN(5, 20, 4, 16), (size_t[]){0, 2, 1, 3});
    return kiln_matmul(batch, heads, GIVEN(16, 16));
}

/* What another kernel has stored in fewer bits. */
static kiln_tensor multiply_results(kiln_batch *batch, kiln_type type)
{
    kiln_tensor x = kiln_matmul(batch, GIVEN(30, 40), GIVEN(40, 50));
    x = kiln_cast(batch, kiln_relu(batch, x), type);
    ask(batch, x);
    return kiln_matmul(batch, x, GIVEN(50, 40));
}

static kiln_tensor convolve(kiln_batch *batch, kiln_type type)
{
    kiln_window_options options = KILN_WINDOW_OPTIONS_INIT;
    options.before[0] = options.after[1] = 1;
    return kiln_conv2d(batch, GIVEN(2, 9, 9, 4), GIVEN(3, 3, 4, 6), &options);
}

static kiln_tensor convolve_groups(kiln_batch *batch, kiln_type type)
{
    kiln_window_options options = KILN_WINDOW_OPTIONS_INIT;
    options.groups = 2;
    return kiln_conv2d(batch, GIVEN(2, 9, 9, 4), GIVEN(3, 3, 2, 6), &options);
}

static kiln_tensor convolve_channels(kiln_batch *batch, kiln_type type)
{
    kiln_window_options options = KILN_WINDOW_OPTIONS_INIT;
    options.groups = 4;
    return kiln_conv2d(batch, GIVEN(2, 9, 9, 4), GIVEN(3, 3, 1, 4), &options);
}

static kiln_tensor attend(kiln_batch *batch, kiln_type type)
{
    return kiln_attention(batch, GIVEN(2, 30, 16), GIVEN(2, 20, 16), GIVEN(2, 20, 8), none, NULL);
}

/* Heads of one tensor, keys and values that they share, a mask. */
static kiln_tensor attend_with_heads(kiln_batch *batch, kiln_type type)
{
    kiln_tensor q = kiln_transpose(batch, GIVEN(2, 30, 4, 16), (size_t[]){0, 2, 1, 3});
    return kiln_attention(batch, q, GIVEN(2, 1, 30, 16), GIVEN(2, 1, 30, 16), GIVEN(30, 30), NULL);
}

static kiln_tensor learn(kiln_batch *batch, kiln_tensor y, kiln_tensor x, kiln_tensor w)
{
    kiln_tensor gradients[2] = {{0}};
    kiln_tensor loss = kiln_sum(batch, kiln_square(batch, y), 0, NULL, 0);
    cr_assert_eq(kiln_grad(batch, loss, (kiln_tensor[]){x, w}, 2, gradients), KILN_OK);
    ask(batch, gradients[0]);
    return gradients[1];
}

static kiln_tensor learn_product(kiln_batch *batch, kiln_type type)
{
    kiln_tensor x = GIVEN(30, 40), w = GIVEN(40, 50);
    return learn(batch, kiln_matmul(batch, x, w), x, w);
}

static kiln_tensor learn_convolution(kiln_batch *batch, kiln_type type)
{
    kiln_tensor x = GIVEN(2, 9, 9, 4), w = GIVEN(3, 3, 4, 6);
    return learn(batch, kiln_conv2d(batch, x, w, NULL), x, w);
}

static kiln_tensor learn_rows(kiln_batch *batch, kiln_type type)
{
    kiln_tensor x = GIVEN(30, 40), w = GIVEN(40);
    return learn(batch, kiln_rms_norm(batch, x, w, 1, &last, 1e-5), x, w);
}

static const struct row {
    const char *name;
    record *record;
    bool integers; /* are taken, too */
} rows[] = {
    {"additions", add, true},
    {"sums", reduce, true},
    {"running sums", add_up, true},
    {"positions", find, true},
    {"norms and softmax", normalise, false},
    {"pools", pool, false},
    {"gathers", look_up, true},
    {"scatters", scatter, true},
    {"losses", lose, false},
    {"products", multiply, false},
    {"products of few rows", multiply_few_rows, false},
    {"batches of products", multiply_batches, false},
    {"products of results", multiply_results, false},
    {"convolutions", convolve, false},
    {"convolutions in groups", convolve_groups, false},
    {"convolutions of channels", convolve_channels, false},
    {"attention", attend, false},
    {"attention with heads", attend_with_heads, false},
    {"gradients of products", learn_product, false},
    {"gradients of convolutions", learn_convolution, false},
    {"gradients of norms", learn_rows, false},
};

/* ---- */

/* The node whose elements this one has, moved and converted. */
static const struct kiln__node *origin(const struct kiln__graph *graph,
                                       const struct kiln__node *node)
{
    while (kiln__node_is_movement(node) || node->kind == KILN__CAST)
        node = &graph->nodes.items[node->input[0]];
    return node;
}

static unsigned count_copies(const struct kiln__fusion *fusion)
{
    unsigned copies = 0;
    for (size_t i = 0; i < fusion->graph.nodes.count; i++) {
        const struct kiln__node *node = &fusion->graph.nodes.items[i];
        const struct kiln__node *from = origin(&fusion->graph, node);
        copies += fusion->stored[i] && kiln_type_size(node->type) > kiln_type_size(from->type);
    }
    return copies;
}

Test(narrow, operands_have_no_wider_copy_in_memory)
{
    const kiln_type types[] = {KILN_F16, KILN_BF16, KILN_I8};
    for (size_t i = 0; i < 3 * sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i / 3];
        kiln_type type = types[i % 3];
        if (type == KILN_I8 && !row->integers)
            continue;
        kiln_batch *batch = imagined_batch();
        ask(batch, row->record(batch, type));
        struct kiln__fusion fusion = fusion_of(batch);
        cr_expect_eq(count_copies(&fusion), 0u, "%s of %s: %u copies", row->name,
                     kiln_type_name(type), count_copies(&fusion));
        kiln__fusion_free(&fusion);
        kiln_batch_release(batch);
    }
}

/* CLBlast takes memory as it is, in f32. */
Test(narrow, operands_of_products_for_a_library_are_copied)
{
    const kiln_type type = KILN_F16;
    kiln_batch *batch = imagined_batch();
    ask(batch, kiln_matmul(batch, GIVEN(2048, 512), GIVEN(512, 2048)));
    struct kiln__fusion fusion = fusion_of(batch);
    cr_expect_eq(count_copies(&fusion), 2u);
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
}
