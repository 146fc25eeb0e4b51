/* SPDX-License-Identifier: Apache-2.0 */
/* Everything asked for twice: a value as several results, as input and result, read and left in
 * buffers, in memory that changes between runs. What a run has to leave is computed beside.
 *
 *   KILN_TWICE_COUNT  structures in each mode (12)
 *   KILN_TWICE_SEED   the first one's seed (1) */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"

enum { COLUMNS = 5, MOST_ROWS = 600, MOST = MOST_ROWS * COLUMNS, ASKED = 8, PLACES = 3, RUNS = 5 };

static unsigned state;

static unsigned any(unsigned count)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % count;
}

/* ---- values ---- */

enum value {
    INPUT,     /* an upload */
    WEIGHTS,   /* a buffer's content */
    FILLED,    /* threes */
    DOUBLED,   /* 2 x input */
    SUM,       /* doubled + weights */
    SUM_AGAIN, /* recorded anew */
    FLAT,      /* the sum in another shape */
    TURNED,    /* the doubled, transposed */
    ROW_SUMS,  /* of the sum */
    PRODUCT,   /* sum x ones */
    VALUES
};

static const float ones[COLUMNS * COLUMNS] = {1, [7] = 1, [14] = 1, [3] = 1, [20] = 1};

struct scene {
    kiln_context *context;
    kiln_batch *batch;
    size_t rows;
    kiln_tensor values[VALUES];
    kiln_buffer *weights;
    float *input; /* one of: */
    float inputs[2][MOST];
    float wanted[VALUES][MOST]; /* of the next run */
};

static size_t count_of(const struct scene *scene, enum value value)
{
    return value == ROW_SUMS ? scene->rows : scene->rows * COLUMNS;
}

static bool is_matrix(enum value value)
{
    return value != ROW_SUMS && value != FLAT && value != TURNED;
}

static void record_values(struct scene *scene)
{
    kiln_batch *batch = scene->batch;
    kiln_tensor *v = scene->values;
    const size_t dims[] = {scene->rows, COLUMNS}, all = scene->rows * COLUMNS;
    v[INPUT] = kiln_upload(batch, KILN_F32, 2, dims, scene->input);
    v[WEIGHTS] = kiln_import(batch, scene->weights);
    v[FILLED] = kiln_fill(batch, KILN_F32, 2, dims, 3);
    v[DOUBLED] = kiln_scale(batch, v[INPUT], 2);
    v[SUM] = kiln_add(batch, v[DOUBLED], v[WEIGHTS]);
    v[SUM_AGAIN] = kiln_add(batch, v[DOUBLED], v[WEIGHTS]);
    v[FLAT] = kiln_reshape(batch, v[SUM], 1, &all);
    v[TURNED] = kiln_transpose(batch, v[DOUBLED], NULL);
    v[ROW_SUMS] = kiln_sum(batch, v[SUM], 1, (int[]){1}, 0);
    v[PRODUCT] = kiln_matmul(batch, v[SUM],
                             kiln_upload(batch, KILN_F32, 2, (size_t[]){COLUMNS, COLUMNS}, ones));
}

/* What the next run is to make of its inputs: small whole numbers, exact in f32. */
static void want_values(struct scene *scene)
{
    float(*w)[MOST] = scene->wanted;
    size_t count = scene->rows * COLUMNS;
    expect_ok(kiln_buffer_read(scene->weights, 0, w[WEIGHTS], count * sizeof(float)));
    for (size_t i = 0; i < count; i++) {
        size_t r = i / COLUMNS, c = i % COLUMNS;
        w[INPUT][i] = scene->input[i];
        w[FILLED][i] = 3;
        w[DOUBLED][i] = w[TURNED][c * scene->rows + r] = 2 * w[INPUT][i];
        w[SUM][i] = w[SUM_AGAIN][i] = w[FLAT][i] = w[DOUBLED][i] + w[WEIGHTS][i];
        w[ROW_SUMS][r] = (c ? w[ROW_SUMS][r] : 0) + w[SUM][i];
    }
    for (size_t i = 0; i < count; i++) {
        w[PRODUCT][i] = 0;
        for (size_t k = 0; k < COLUMNS; k++)
            w[PRODUCT][i] += w[SUM][i / COLUMNS * COLUMNS + k] * ones[k * COLUMNS + i % COLUMNS];
    }
}

/* ---- what is asked for ---- */

/* A result, in one of its places, or in a buffer. */
struct asked {
    enum value value;
    kiln_buffer *buffer; /* NULL: a read */
    size_t read;         /* its number */
    size_t at;
    float *places[PLACES]; /* of MOST elements; the scene's input, too */
};

static const float canary = -777;

static void ask_to_read(struct scene *scene, struct asked *asked)
{
    for (size_t k = 0; k < PLACES; k++)
        cr_assert(asked->places[k] = malloc(MOST * sizeof(float)));
    asked->read = kiln_batch_read_count(scene->batch);
    expect_ok(kiln_read(scene->batch, scene->values[asked->value], asked->places[0],
                        count_of(scene, asked->value) * sizeof(float)));
}

/* The first that may goes over the buffer that is imported. */
static void ask_to_store(struct scene *scene, struct asked *asked, bool over)
{
    if (over) {
        kiln_buffer_retain(scene->weights);
        asked->buffer = scene->weights;
    } else
        expect_ok(kiln_buffer_create(scene->context, KILN_F32, 2, (size_t[]){scene->rows, COLUMNS},
                                     &asked->buffer));
    expect_ok(kiln_export(scene->batch, scene->values[asked->value], asked->buffer));
}

/* Few values, so that most are asked for twice. */
static size_t ask(struct scene *scene, struct asked *all)
{
    const enum value values[] = {(enum value)any(VALUES), (enum value)any(VALUES),
                                 (enum value)any(VALUES)};
    size_t n = 2 + any(ASKED - 1);
    bool over = any(2);
    for (size_t i = 0; i < n; i++) {
        all[i] = (struct asked){.value = values[any(3)]};
        if (is_matrix(all[i].value) && !any(3)) {
            ask_to_store(scene, &all[i], over);
            over = false;
        } else
            ask_to_read(scene, &all[i]);
    }
    return n;
}

static void move_to(struct scene *scene, struct asked *asked, size_t at)
{
    asked->at = at;
    expect_ok(kiln_rebind_read(scene->batch, asked->read, asked->places[at],
                               count_of(scene, asked->value) * sizeof(float)));
}

/* Reads go elsewhere, or exchange their places with another's; the input may be another. */
static void move_some(struct scene *scene, struct asked *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct asked *one = &all[i], *other = &all[any((unsigned)n)];
        if (one->buffer || any(2))
            continue;
        if (any(2) && !other->buffer) {
            float *places[PLACES];
            memcpy(places, one->places, sizeof places);
            memcpy(one->places, other->places, sizeof places);
            memcpy(other->places, places, sizeof places);
            move_to(scene, other, other->at);
        }
        move_to(scene, one, any(PLACES));
    }
    if (any(2)) {
        scene->input = scene->inputs[any(2)];
        expect_ok(kiln_rebind_upload(scene->batch, scene->values[INPUT], scene->input));
    }
}

/* One read of the input's shape goes over the input in this run. */
static struct asked *move_over_input(struct scene *scene, struct asked *all, size_t n)
{
    struct asked *one = &all[any((unsigned)n)];
    size_t bytes = scene->rows * COLUMNS * sizeof(float);
    if (one->buffer || one->value == ROW_SUMS || any(2))
        return NULL;
    expect_ok(kiln_rebind_read(scene->batch, one->read, scene->input, bytes));
    return one;
}

/* ---- running ---- */

static void expect_same(const struct scene *scene, enum value value, const float *found,
                        const char *where)
{
    for (size_t i = 0; i < count_of(scene, value); i++)
        cr_assert_eq(found[i], scene->wanted[value][i], "value %d, %s, element %zu: %g for %g",
                     value, where, i, found[i], scene->wanted[value][i]);
}

static void spoil(struct asked *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < PLACES && !all[i].buffer; k++)
            for (size_t e = 0; e < MOST; e++)
                all[i].places[k][e] = canary;
}

static void expect_results(struct scene *scene, struct asked *all, size_t n,
                           const struct asked *over)
{
    static float content[MOST];
    for (size_t i = 0; i < n; i++) {
        size_t bytes = count_of(scene, all[i].value) * sizeof(float);
        if (all[i].buffer) {
            expect_ok(kiln_buffer_read(all[i].buffer, 0, content, bytes));
            expect_same(scene, all[i].value, content, "in a buffer");
        }
        for (size_t k = 0; k < PLACES && !all[i].buffer; k++)
            if (&all[i] != over && k == all[i].at)
                expect_same(scene, all[i].value, all[i].places[k], "read");
            else
                cr_assert_eq(all[i].places[k][0], canary, "an old place is written to");
    }
    if (over)
        expect_same(scene, over->value, scene->input, "over the input");
}

/* Numbers stay small although results become inputs. */
static void renew(struct scene *scene, unsigned seed)
{
    static float content[MOST];
    fill(content, MOST, seed);
    fill(scene->inputs[0], MOST, seed + 1);
    fill(scene->inputs[1], MOST, seed + 2);
    expect_ok(kiln_buffer_write(scene->weights, 0, content, scene->rows * COLUMNS * sizeof(float)));
}

static kiln_status run(struct scene *scene, struct asked *all, size_t n, bool may_go_over)
{
    struct asked *over = may_go_over ? move_over_input(scene, all, n) : NULL;
    spoil(all, n);
    want_values(scene);
    kiln_status status = kiln_batch_execute(scene->batch);
    if (!status)
        expect_results(scene, all, n, over);
    if (!status && over)
        move_to(scene, over, over->at);
    return status;
}

static void end(struct scene *scene, struct asked *all, size_t n)
{
    kiln_batch_release(scene->batch);
    kiln_buffer_release(scene->weights);
    for (size_t i = 0; i < n; i++) {
        kiln_buffer_release(all[i].buffer);
        for (size_t k = 0; k < PLACES; k++)
            free(all[i].places[k]);
    }
    free(scene);
}

/* The structure of a seed; how many of its runs there were. */
static unsigned check(kiln_context *context, unsigned seed, size_t rows, bool in_parts)
{
    struct scene *scene = calloc(1, sizeof *scene);
    struct asked all[ASKED];
    cr_assert(scene);
    state = seed;
    scene->context = context;
    scene->rows = rows;
    scene->input = scene->inputs[0];
    scene->batch = kiln_batch_create(context);
    expect_ok(kiln_buffer_create(context, KILN_F32, 2, (size_t[]){rows, COLUMNS}, &scene->weights));
    record_values(scene);
    size_t n = ask(scene, all);
    if (any(2))
        expect_ok(kiln_batch_set_independent(scene->batch));
    unsigned done = 0;
    for (unsigned i = 0; i < RUNS; i++) {
        renew(scene, seed + i);
        kiln_status status = run(scene, all, n, !in_parts);
        cr_assert(!status || (in_parts && status == KILN_OUT_OF_DEVICE_MEMORY),
                  "seed %u, run %u: %s", seed, i, kiln_last_error());
        done += !status;
        move_some(scene, all, n);
    }
    end(scene, all, n);
    return done;
}

static unsigned number_of(const char *name, unsigned usual)
{
    const char *text = getenv(name);
    return text ? (unsigned)strtoul(text, NULL, 10) : usual;
}

static void check_all(const char *mode)
{
    setenv("KILN_HOST_MEMORY", mode, 1);
    kiln_context *context = open_context();
    unsigned count = number_of("KILN_TWICE_COUNT", 12), first = number_of("KILN_TWICE_SEED", 1);
    for (unsigned i = 0; i < count; i++)
        check(context, first + i, 7, false);
    printf("# %u structures, %u runs each, memory %s\n", count, RUNS, mode);
    close_context(context);
}

/* With room for a few rows; where results lie in each other's way, a batch says that it cannot. */
static void check_in_parts(void)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.memory_limit = 12 * 1024;
    options.validate = 0;
    setenv("KILN_HOST_MEMORY", "separate", 1);
    kiln_context *context = open_context_with(&options);
    unsigned count = number_of("KILN_TWICE_COUNT", 12), first = number_of("KILN_TWICE_SEED", 1);
    unsigned done = 0;
    for (unsigned i = 0; i < count; i++)
        done += check(context, first + i, MOST_ROWS, true);
    uint64_t batches = stats_of(context).batches;
    printf("# %u structures, %u runs in %llu batches\n", count, done, (unsigned long long)batches);
    cr_assert_gt(batches, done + done / 2, "hardly any ran in parts");
    close_context(context);
}

Test(twice, of_a_program_with_the_device_in_its_memory)
{
    check_all("shared");
}

Test(twice, of_a_program_whose_memory_is_copied)
{
    check_all("separate");
}

Test(twice, of_a_program_that_runs_in_parts)
{
    check_in_parts();
}
