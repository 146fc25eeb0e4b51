/* SPDX-License-Identifier: Apache-2.0 */
/* Passes, fusion and planning of small graphs, enumerated and random: groups and plans computed on
 * the host are what the reference says. Nothing here needs a device or compiles a kernel. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "../support/check.h"
#include "../support/graph.h"
#include "../support/interpret.h"
#include "../support/random.h"
#include "../support/samples.h"

struct small {
    kiln_batch *batch;
    kiln_tensor x;
};

static struct small begin(kiln_context *context)
{
    struct small small = {.batch = kiln_batch_create(context)};
    cr_assert(small.batch);
    check_seed(1);
    small.x = check_plain(small.batch, DIMS(SAMPLE_SIZE, SAMPLE_SIZE));
    return small;
}

static kiln_tensor add(struct small *small, const struct sample *sample, kiln_tensor x)
{
    kiln_tensor made = sample->record(small->batch, x);
    check_read(small->batch, made);
    return made;
}

enum { MOST_FAILURES = 5 }; /* of a test: what else fails has mostly the same reason */

static size_t failures;

static void expect_right(struct small *small, const char *a, const char *b, const char *c)
{
    bool right = interpret_batch(small->batch);
    bool in_place = !right || interpret_taken_over(small->batch);
    failures += !right || !in_place;
    cr_expect(right, "%s, %s, %s", a, b, c);
    cr_expect(in_place, "%s, %s, %s in the input's buffer", a, b, c);
    check_end(small->batch);
}

/* Each beside each, and behind it. */
static void try_pair(kiln_context *context, const struct sample *a, const struct sample *b)
{
    struct small small = begin(context);
    add(&small, a, small.x);
    add(&small, b, small.x);
    expect_right(&small, a->name, b->name, "");
    small = begin(context);
    kiln_tensor made = add(&small, a, small.x);
    add(&small, b, sample_square(small.batch, made));
    expect_right(&small, a->name, "then", b->name);
}

static void try_pairs(kiln_context *context)
{
    for (size_t a = 0; a < sample_count; a++)
        for (size_t b = 0; b < sample_count && failures < MOST_FAILURES; b++)
            try_pair(context, &samples[a], &samples[b]);
}

static void try_triple(kiln_context *context, const struct sample *a, const struct sample *b,
                       const struct sample *c)
{
    struct small small = begin(context);
    add(&small, a, small.x);
    add(&small, b, small.x);
    add(&small, c, small.x);
    expect_right(&small, a->name, b->name, c->name);
}

static kiln_context *imagined(size_t number)
{
    return number % 2 ? imagined_gpu() : imagined_cpu();
}

/* The first of each kind stands for it. */
static void try_kinds(kiln_context *context)
{
    for (int a = 0; a < SAMPLE_KINDS; a++)
        for (int b = 0; b < SAMPLE_KINDS; b++)
            for (int c = 0; c < SAMPLE_KINDS && failures < MOST_FAILURES; c++)
                try_triple(context, sample_of((enum sample_kind)a), sample_of((enum sample_kind)b),
                           sample_of((enum sample_kind)c));
}

/* Triples of all operations: one of so many. */
static void try_triples(size_t one_in)
{
    const size_t n = sample_count;
    for (size_t i = 0; i < n * n * n && failures < MOST_FAILURES; i += one_in)
        try_triple(imagined(i / one_in), &samples[i / n / n], &samples[i / n % n], &samples[i % n]);
}

static uint64_t number_in(const char *variable, uint64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

Test(groups, slow_of_every_pair_of_operations_are_right_for_a_cpu, .timeout = 600)
{
    try_pairs(imagined_cpu());
}
Test(groups, slow_of_every_pair_of_operations_are_right_for_a_gpu, .timeout = 600)
{
    try_pairs(imagined_gpu());
}

Test(groups, of_every_triple_of_kinds_are_right_for_a_cpu, .timeout = 600)
{
    try_kinds(imagined_cpu());
}
Test(groups, slow_of_every_triple_of_kinds_are_right_for_a_gpu, .timeout = 600)
{
    try_kinds(imagined_gpu());
}

/* Where each row is one element, what comes once per row has the shape of them all. */
Test(groups, of_rows_of_one_element_are_right)
{
    struct small small = {.batch = kiln_batch_create(imagined_cpu())};
    cr_assert(small.batch);
    kiln_tensor x = check_plain(small.batch, DIMS(4, 1));
    kiln_tensor sum = kiln_sum(small.batch, kiln_tanh(small.batch, x), 1, (int[]){1}, 1);
    check_read(small.batch, sum);
    check_read(small.batch, kiln_exp(small.batch, sum));
    expect_right(&small, "sum", "exp", "");
}

/* One value that a group uses along two dimensions: as positions along the first, and as it is
 * along the last. */
Test(groups, that_use_a_value_along_two_dimensions_are_right)
{
    struct small small = begin(imagined_cpu());
    kiln_tensor where = kiln_abs(small.batch, check_plain(small.batch, DIMS(SAMPLE_SIZE)));
    where = kiln_cast(small.batch, kiln_scale(small.batch, where, 3), KILN_I32);
    kiln_tensor rows = kiln_gather(small.batch, small.x, where, 0);
    check_read(small.batch, kiln_add(small.batch, rows, kiln_cast(small.batch, where, KILN_F32)));
    expect_right(&small, "cast", "gather", "add");
}

/* A gather is no company for the kernel that puts its data into memory, which work-item after
 * work-item reads elsewhere. */
Test(groups, of_gathers_from_constants_are_right)
{
    struct small small = begin(imagined_cpu());
    kiln_tensor data = kiln_reshape(small.batch, kiln_constant(small.batch, KILN_F32, 3), DIMS(1));
    check_read(small.batch, kiln_gather(small.batch, data, kiln_iota(small.batch, DIMS(1), 0), 0));
    expect_right(&small, "constant", "iota", "gather");
}

/* An offset into nothing may be any. */
/* The second launch adds up what the first has left, and reads a bias that is uploaded after that:
 * nothing keeps the upload before the first. */
Test(groups, of_a_product_in_two_launches_are_right_whenever_the_bias_comes)
{
    for (int i = 0; i < 8; i++) {
        kiln_batch *batch = kiln_batch_create(imagined_cpu());
        check_seed(1);
        kiln_tensor x = check_plain(batch, DIMS(1, 1030)), w = check_plain(batch, DIMS(1030, 16));
        kiln_tensor bias = check_plain(batch, DIMS(16));
        check_read(batch, kiln_add(batch, kiln_matmul(batch, x, w), bias));
        cr_expect(interpret_batch(batch));
        check_end(batch);
    }
}

/* ---- steps of a stencil, which pad what they leave (rewrite/pads.c) ---- */

enum stencil {
    STENCIL_ALONE,
    STENCIL_ASKED,     /* every state is a result */
    STENCIL_READ_LATE, /* the padding of a step is read by the last one, too */
    STENCIL_TWO,       /* states, each of which reads the other's padding */
    STENCIL_OTHERS,    /* two are padded with 0, and two with 1 */
    STENCIL_SUMMED,    /* a state goes through a sum as well */
    STENCILS
};

static kiln_tensor padded(kiln_batch *batch, kiln_tensor u, double value)
{
    return kiln_pad(batch, u, (size_t[]){1, 1}, (size_t[]){1, 2}, value);
}

static kiln_tensor neighbours(kiln_batch *batch, kiln_tensor p)
{
    const int64_t n = SAMPLE_SIZE;
    kiln_tensor up = kiln_slice(batch, p, (int64_t[]){0, 1}, (int64_t[]){n, n + 1}, NULL);
    kiln_tensor down = kiln_slice(batch, p, (int64_t[]){2, 2}, (int64_t[]){n + 2, n + 2}, NULL);
    return kiln_scale(batch, kiln_add(batch, up, down), 0.25);
}

static void add_stencil(kiln_batch *batch, kiln_tensor u, enum stencil kind)
{
    kiln_tensor v = kiln_scale(batch, u, 0.5), first = {0};
    for (int step = 0; step < 6; step++) {
        kiln_tensor p = padded(batch, u, kind == STENCIL_OTHERS ? step / 2 % 2 : 0);
        if (step == 1)
            first = p;
        u = kiln_add(batch, kiln_scale(batch, u, 0.5), neighbours(batch, p));
        if (kind == STENCIL_TWO)
            v = kiln_sub(batch, neighbours(batch, padded(batch, v, 0)), neighbours(batch, p));
        if (kind == STENCIL_TWO)
            u = kiln_add(batch, u, v);
        if (kind == STENCIL_SUMMED)
            u = kiln_sub(batch, u, kiln_sum(batch, u, 1, (int[]){1}, 1));
        if (kind == STENCIL_ASKED)
            check_read(batch, u);
    }
    if (kind == STENCIL_READ_LATE)
        u = kiln_add(batch, u, neighbours(batch, first));
    if (kind == STENCIL_TWO)
        check_read(batch, v);
    check_read(batch, u);
}

Test(groups, of_steps_that_pad_are_right)
{
    for (enum stencil kind = STENCIL_ALONE; kind < STENCILS; kind++) {
        struct small small = begin(imagined_cpu());
        add_stencil(small.batch, small.x, kind);
        expect_right(&small, "steps", "that pad", (char[]){(char)('0' + kind), 0});
    }
}

/* A launch for each, before which the first is copied, and three are padded. */
Test(groups, of_steps_that_pad_are_a_kernel_each)
{
    struct small small = begin(imagined_cpu());
    size_t kernels = 0;
    add_stencil(small.batch, small.x, STENCIL_ALONE);
    struct kiln__fusion fusion = fusion_of(small.batch);
    for (size_t i = 0; i < fusion.groups.count; i++)
        kernels += fusion.groups.items[i].stores.count != 0;
    cr_expect_eq(kernels, 10u, "%zu", kernels);
    kiln__fusion_free(&fusion);
    check_end(small.batch);
}

/* The first result is written while exp(x) is needed once more. */
Test(groups, that_keep_a_value_from_phase_to_phase_are_right)
{
    struct small small = begin(imagined_cpu());
    kiln_batch *batch = small.batch;
    kiln_tensor powers = kiln_exp(batch, small.x);
    kiln_tensor apart = kiln_sub(batch, powers, kiln_sum(batch, powers, 1, (int[]){1}, 1));
    kiln_tensor squares = kiln_sum(batch, kiln_square(batch, apart), 1, (int[]){1}, 1);
    check_read(batch, apart);
    check_read(batch, kiln_div(batch, powers, squares));
    expect_right(&small, "exp", "what its sums leave", "what their squares leave");
}

Test(groups, of_no_elements_are_right)
{
    struct small small = begin(imagined_cpu());
    kiln_tensor none = check_plain(small.batch, DIMS(4, 0, 64));
    kiln_tensor part =
        kiln_slice(small.batch, none, (int64_t[]){0, 0, 21}, (int64_t[]){4, 0, 64}, NULL);
    check_read(small.batch, kiln_mean(small.batch, kiln_exp(small.batch, part), 0, NULL, 0));
    expect_right(&small, "slice", "exp", "mean");
}

/* A place takes what is nothing, and so does a reshape. */
Test(groups, of_running_sums_of_no_elements_are_right)
{
    struct small small = begin(imagined_cpu());
    kiln_batch *batch = small.batch;
    kiln_tensor sums = kiln_neg(batch, kiln_cumsum(batch, check_plain(batch, DIMS(3, 0, 8)), 0, 0));
    kiln_tensor whole = kiln_fill(batch, KILN_F32, DIMS(6, 2, 11), 0);
    check_read(batch, kiln_reshape(batch, sums, DIMS(0, 8)));
    check_read(batch, kiln_insert_slice(batch, whole, sums, (int64_t[]){3, 0, 3}, NULL));
    expect_right(&small, "cumsum", "neg", "place");
}

/* KILN_TRIPLES=1 takes all of them, check-random-long takes more. */
Test(groups, of_some_triples_of_operations_are_right, .timeout = 3600)
{
    try_triples(number_in("KILN_TRIPLES", 117));
}

/* ---- random graphs ---- */

/* One of `share` graphs. */
static void try_random(uint64_t first, uint64_t share, size_t operations)
{
    const uint64_t count = number_in("KILN_RANDOM_GRAPHS", 2000) / share;
    first += number_in("KILN_RANDOM_SEED", 1);
    for (uint64_t i = 0; i < count && failures < MOST_FAILURES; i++) {
        kiln_batch *batch = kiln_batch_create(imagined(i));
        cr_assert(batch);
        random_record(batch, first + i, 0, operations);
        bool right = interpret_batch(batch) && interpret_taken_over(batch);
        cr_expect(right, "this was KILN_RANDOM_SEED=%llu, %zu operations",
                  (unsigned long long)(first + i), operations);
        failures += !right;
        check_end(batch);
    }
}

Test(groups, of_small_random_graphs_are_right, .timeout = 360000)
{
    try_random(0, 1, 6);
}
Test(groups, of_large_random_graphs_are_right, .timeout = 360000)
{
    try_random(100000000, 16, 40);
}
