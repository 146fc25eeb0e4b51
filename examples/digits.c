/* SPDX-License-Identifier: Apache-2.0 */
/* Classify handwritten digits by their nearest neighbour, in one batch.
 *
 * The squared distance of test digit i to training digit j is |t_i|^2 - 2 t_i . r_j + |r_j|^2, so
 * all distances are one matrix product, two sums of squares and a broadcast sum; argmin over j
 * names the neighbour. Only the 360 positions come back to the host. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kiln/kiln.h>

#include "digits_data.h"

/* The usual split: the last 360 of 1,797 digits, by other writers, are the test. */
#define TEST_ROWS 360

struct arguments {
    const char *data, *device;
    size_t rows;
    int explain;
};

static void check(kiln_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "digits: %s: %s\n", what, kiln_last_error());
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- in one batch ---- */

struct task {
    const uint8_t *train, *test; /* rows of DIGIT_PIXELS */
    size_t train_rows;
    int32_t nearest[TEST_ROWS];
};

static kiln_batch *record(kiln_context *context, struct task *task)
{
    const int last = 1;
    kiln_batch *b = kiln_batch_create(context);
    if (!b)
        check(KILN_OUT_OF_HOST_MEMORY, "no batch");
    kiln_tensor train = kiln_cast(
        b, kiln_upload(b, KILN_U8, 2, (size_t[]){task->train_rows, DIGIT_PIXELS}, task->train),
        KILN_F32);
    kiln_tensor test = kiln_cast(
        b, kiln_upload(b, KILN_U8, 2, (size_t[]){TEST_ROWS, DIGIT_PIXELS}, task->test), KILN_F32);
    kiln_tensor products = kiln_matmul_transposed(b, test, 0, train, 1);
    kiln_tensor train_norm = kiln_sum(b, kiln_square(b, train), 1, &last, 0);
    kiln_tensor test_norm = kiln_sum(b, kiln_square(b, test), 1, &last, 1);
    kiln_tensor distance =
        kiln_add(b, kiln_add(b, kiln_scale(b, products, -2), train_norm), test_norm);
    kiln_tensor nearest = kiln_argmin(b, distance, 1, &last, 0);
    kiln_read(b, nearest, task->nearest, sizeof task->nearest);
    return b;
}

/* ---- the eager way: a batch per operation, every intermediate through the host ---- */

struct array {
    float *data;
    size_t rows, columns;
};

typedef kiln_tensor operation(kiln_batch *b, kiln_tensor x, kiln_tensor y);

static kiln_tensor summed(kiln_batch *b, kiln_tensor x, kiln_tensor y)
{
    (void)y;
    return kiln_sum(b, x, 1, (const int[]){1}, 1);
}

static kiln_tensor squared(kiln_batch *b, kiln_tensor x, kiln_tensor y)
{
    (void)y;
    return kiln_square(b, x);
}

static kiln_tensor doubled(kiln_batch *b, kiln_tensor x, kiln_tensor y)
{
    (void)y;
    return kiln_scale(b, x, -2);
}

static kiln_tensor product(kiln_batch *b, kiln_tensor x, kiln_tensor y)
{
    return kiln_matmul_transposed(b, x, 0, y, 1);
}

static struct array eager(kiln_context *context, operation *op, struct array x, struct array y,
                          size_t rows, size_t columns)
{
    struct array result = {malloc(rows * columns * sizeof(float)), rows, columns};
    kiln_batch *b = kiln_batch_create(context);
    if (!b || !result.data)
        check(KILN_OUT_OF_HOST_MEMORY, "no batch");
    kiln_tensor a = kiln_upload(b, KILN_F32, 2, (size_t[]){x.rows, x.columns}, x.data);
    kiln_tensor c = kiln_upload(b, KILN_F32, 2, (size_t[]){y.rows, y.columns}, y.data);
    kiln_read(b, op(b, a, c), result.data, rows * columns * sizeof(float));
    check(kiln_batch_execute(b), "one operation");
    kiln_batch_release(b);
    return result;
}

static struct array as_floats(const uint8_t *pixels, size_t rows)
{
    struct array array = {malloc(rows * DIGIT_PIXELS * sizeof(float)), rows, DIGIT_PIXELS};
    for (size_t i = 0; array.data && i < rows * DIGIT_PIXELS; i++)
        array.data[i] = pixels[i];
    return array;
}

static void run_eagerly(kiln_context *context, const struct task *task, int32_t *nearest)
{
    size_t n = task->train_rows;
    struct array train = as_floats(task->train, n), test = as_floats(task->test, TEST_ROWS);
    struct array a = eager(context, product, test, train, TEST_ROWS, n);
    struct array b = eager(context, doubled, a, a, TEST_ROWS, n);
    struct array c = eager(context, squared, train, train, n, DIGIT_PIXELS);
    struct array d = eager(context, summed, c, c, n, 1);
    struct array norms = {d.data, 1, n};
    struct array e = eager(context, kiln_add, b, norms, TEST_ROWS, n);
    struct array f = eager(context, squared, test, test, TEST_ROWS, DIGIT_PIXELS);
    struct array g = eager(context, summed, f, f, TEST_ROWS, 1);
    struct array h = eager(context, kiln_add, e, g, TEST_ROWS, n);
    for (size_t i = 0; i < TEST_ROWS; i++) {
        nearest[i] = 0;
        for (size_t j = 1; j < n; j++)
            if (h.data[i * n + j] < h.data[i * n + (size_t)nearest[i]])
                nearest[i] = (int32_t)j;
    }
    float *all[] = {train.data, test.data, a.data, b.data, c.data,
                    d.data,     e.data,    f.data, g.data, h.data};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* ---- what it prints ---- */

static size_t count_right(const struct digits *digits, const struct task *task, size_t first_test)
{
    size_t right = 0;
    for (size_t i = 0; i < TEST_ROWS; i++)
        right += digits->labels[task->nearest[i]] == digits->labels[first_test + i];
    return right;
}

/* The first four test digits, and the first one that is taken for another. */
static void show(const struct digits *digits, const struct task *task, size_t first_test)
{
    size_t which[5], count = 0;
    char text[5][24];
    const char *captions[5];
    for (size_t i = 0; i < TEST_ROWS && count < 5; i++) {
        int label = digits->labels[first_test + i], answer = digits->labels[task->nearest[i]];
        if (count == 4 && label == answer)
            continue;
        which[count] = first_test + i;
        snprintf(text[count], sizeof text[count], label == answer ? "%d" : "%d, taken for %d",
                 label, answer);
        captions[count] = text[count];
        count++;
    }
    digits_print(digits, which, captions, count);
}

static double median_of_5(double *t)
{
    for (int i = 0; i < 5; i++)
        for (int j = i + 1; j < 5; j++)
            if (t[j] < t[i]) {
                double swap = t[i];
                t[i] = t[j];
                t[j] = swap;
            }
    return t[2];
}

static int run(kiln_context *context, const struct digits *digits, const struct arguments *options)
{
    size_t first_test = digits->count - TEST_ROWS;
    struct task task = {.train = digits->pixels,
                        .test = digits->pixels + first_test * DIGIT_PIXELS,
                        .train_rows = options->rows ? options->rows : first_test};
    kiln_device_info device;
    kiln_context_stats stats;
    int32_t eager_nearest[TEST_ROWS];
    double batch_time[5], eager_time[5];
    kiln_batch *batch = record(context, &task);
    if (options->explain) {
        char *text;
        check(kiln_batch_explain(batch, &text), "explain");
        fputs(text, stdout);
        kiln_free(text);
    }
    double start = now();
    check(kiln_batch_execute(batch), "the batch");
    double first = now() - start;
    check(kiln_context_device(context, &device), "device");
    check(kiln_context_get_stats(context, &stats), "stats");
    size_t right = count_right(digits, &task, first_test);
    show(digits, &task, first_test);
    printf("\n%zu of %d right (%.1f%%), by the nearest of %zu digits\n", right, TEST_ROWS,
           100.0 * (double)right / TEST_ROWS, task.train_rows);
    printf("device     %s (%s)\n", device.name, device.platform);
    printf("batch      %zu operations in %llu launches, %llu transfers up, %llu down\n",
           kiln_batch_operation_count(batch), (unsigned long long)stats.launches,
           (unsigned long long)stats.uploads, (unsigned long long)stats.downloads);
    printf("kernels    %llu compiled, %llu found in the cache\n",
           (unsigned long long)stats.kernels_compiled, (unsigned long long)stats.kernels_from_disk);
    for (int i = 0; i < 6; i++) { /* the first round warms up */
        start = now();
        run_eagerly(context, &task, eager_nearest);
        eager_time[i % 5] = now() - start;
        start = now();
        check(kiln_batch_execute(batch), "the batch");
        batch_time[i % 5] = now() - start;
    }
    double fast = median_of_5(batch_time), slow = median_of_5(eager_time);
    printf("time       %.2f ms first, %.2f ms again; the eager way %.2f ms, %.1f times as long\n",
           first * 1e3, fast * 1e3, slow * 1e3, slow / fast);
    int same = !memcmp(eager_nearest, task.nearest, sizeof eager_nearest);
    kiln_batch_release(batch);
    if (!same)
        fprintf(stderr, "digits: the eager way found other neighbours\n");
    return same && (options->rows || right == 344) ? 0 : 1;
}

/* ---- the command line ---- */

const char *argp_program_version = "digits (kiln) " KILN_VERSION;

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    char *end;
    switch (key) {
    case 'd': arguments->device = value; return 0;
    case 'f': arguments->data = value; return 0;
    case 'e': arguments->explain = 1; return 0;
    case 'r':
        arguments->rows = strtoul(value, &end, 10);
        if (*end || !arguments->rows)
            argp_error(state, "%s is no number of rows", value);
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"device", 'd', "CHOICE", 0, "Run on this device: index, type or part of its name", 0},
        {"data", 'f', "FILE", 0, "Read the digits from this file", 0},
        {"explain", 'e', NULL, 0, "Explain the batch before it runs", 0},
        {"rows", 'r', "N", 0, "Compare with the first N training digits only", 0},
        {0}};
    static const struct argp argp = {
        options, parse,
        NULL,    "Classify 360 handwritten digits by their nearest neighbour, in one batch.",
        0,       0,
        0};
    struct arguments arguments = {.data = DIGITS_DATA};
    argp_parse(&argp, argc, argv, 0, NULL, &arguments);
    struct digits digits;
    if (digits_read(arguments.data, &digits))
        return 1;
    if (digits.count <= TEST_ROWS || arguments.rows > digits.count - TEST_ROWS) {
        fprintf(stderr, "digits: %s has %zu digits, too few\n", arguments.data, digits.count);
        digits_free(&digits);
        return 1;
    }
    kiln_context_options context_options = KILN_CONTEXT_OPTIONS_INIT;
    context_options.device = arguments.device;
    kiln_context *context;
    check(kiln_context_create(&context_options, &context), "no context");
    int result = run(context, &digits, &arguments);
    kiln_context_release(context);
    digits_free(&digits);
    return result;
}
