/* SPDX-License-Identifier: Apache-2.0 */
/* Parses a workload's line, and records a batch that has it. */
#include "tune_work.h"

#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tune_family {
    const char *name;
    size_t least, most; /* sizes */
    void (*inputs)(const struct tune_work *work, size_t counts[TUNE_INPUTS]);
    size_t (*results)(const struct tune_work *work);
    kiln_tensor (*record)(kiln_batch *b, const struct tune_work *work, kiln_buffer *const *in);
    double (*element)(const struct tune_work *work, size_t i, double *size);
};

float tune_work_value(unsigned number, size_t i)
{
    uint32_t mixed = ((uint32_t)i + number * 40503u + 1u) * UINT32_C(2654435761);
    mixed = (mixed ^ mixed >> 15) * UINT32_C(2246822519);
    return (float)((int)(mixed >> 25) - 48) / 64;
}

static double value(unsigned number, size_t i)
{
    return (double)tune_work_value(number, i);
}

static size_t product_of(const size_t *sizes, size_t count)
{
    size_t product = 1;
    for (size_t i = 0; i < count; i++)
        product *= sizes[i];
    return product;
}

static size_t all_sizes(const struct tune_work *work)
{
    return product_of(work->sizes, work->count);
}

static kiln_tensor shaped(kiln_batch *b, kiln_buffer *buffer, size_t rank, const size_t *dims)
{
    return kiln_reshape(b, kiln_import(b, buffer), rank, dims);
}

/* ---- maps ---- */

/* The other operand of a map repeats along every second dimension, so that none are merged. */
static void other_dims(const struct tune_work *work, size_t dims[TUNE_SIZES])
{
    for (size_t d = 0; d < work->count; d++)
        dims[d] = (work->count - 1 - d) % 2 ? 1 : work->sizes[d];
}

static void map_inputs(const struct tune_work *work, size_t counts[TUNE_INPUTS])
{
    size_t dims[TUNE_SIZES];
    other_dims(work, dims);
    counts[0] = all_sizes(work);
    counts[1] = product_of(dims, work->count);
}

static kiln_tensor map_record(kiln_batch *b, const struct tune_work *work, kiln_buffer *const *in)
{
    size_t dims[TUNE_SIZES];
    other_dims(work, dims);
    kiln_tensor x = shaped(b, in[0], work->count, work->sizes);
    kiln_tensor y = shaped(b, in[1], work->count, dims);
    return work->costly ? kiln_gelu(b, kiln_add(b, x, y)) : kiln_add(b, kiln_relu(b, x), y);
}

static double map_element(const struct tune_work *work, size_t i, double *size)
{
    size_t dims[TUNE_SIZES], rest = i, at = 0, run = 1;
    other_dims(work, dims);
    for (size_t d = work->count; d-- > 0; rest /= work->sizes[d]) {
        at += dims[d] > 1 ? rest % work->sizes[d] * run : 0;
        run *= dims[d];
    }
    *size = 2;
    double x = value(0, i), y = value(1, at);
    return work->costly ? 0.5 * (x + y) * (1 + erf((x + y) * 0.70710678118654752)) : fmax(x, 0) + y;
}

static void one_input(const struct tune_work *work, size_t counts[TUNE_INPUTS])
{
    counts[0] = all_sizes(work);
}

static kiln_tensor transpose_record(kiln_batch *b, const struct tune_work *work,
                                    kiln_buffer *const *in)
{
    size_t dims[TUNE_SIZES], axes[TUNE_SIZES], last = work->count - 1;
    for (size_t d = 0; d < work->count; d++)
        dims[d] = work->sizes[axes[d] = d];
    dims[last] = work->sizes[last - 1];
    dims[last - 1] = work->sizes[last];
    axes[last] = last - 1;
    axes[last - 1] = last;
    return kiln_scale(b, kiln_transpose(b, shaped(b, in[0], work->count, dims), axes), 2);
}

static double transpose_element(const struct tune_work *work, size_t i, double *size)
{
    size_t columns = work->sizes[work->count - 1], rows = work->sizes[work->count - 2];
    size_t matrix = i / (rows * columns), r = i / columns % rows, c = i % columns;
    *size = 2;
    return 2 * value(0, (matrix * columns + c) * rows + r);
}

/* ---- rows: kept elements, and those of each ---- */

static size_t row_at(const struct tune_work *work, size_t kept, size_t r)
{
    return work->columns ? r * work->sizes[0] + kept : kept * work->sizes[1] + r;
}

static kiln_tensor as_rows(kiln_batch *b, const struct tune_work *work, kiln_buffer *buffer)
{
    const size_t dims[] = {work->sizes[work->columns], work->sizes[!work->columns]};
    return shaped(b, buffer, 2, dims);
}

static int row_axis(const struct tune_work *work)
{
    return work->columns ? 0 : 1;
}

static size_t reduce_results(const struct tune_work *work)
{
    return work->sizes[0];
}

static kiln_tensor reduce_record(kiln_batch *b, const struct tune_work *work,
                                 kiln_buffer *const *in)
{
    const int axis = row_axis(work);
    return kiln_sum(b, as_rows(b, work, in[0]), 1, &axis, 0);
}

static double reduce_element(const struct tune_work *work, size_t i, double *size)
{
    double sum = 0;
    for (size_t r = 0; r < work->sizes[1]; r++) {
        double x = value(0, row_at(work, i, r));
        sum += x;
        *size += fabs(x);
    }
    return sum;
}

static void rows_inputs(const struct tune_work *work, size_t counts[TUNE_INPUTS])
{
    for (unsigned k = 0; k < work->operands; k++)
        counts[k] = all_sizes(work);
}

/* Softmax; of two operands its gradient; of three something added to that. */
static kiln_tensor rows_record(kiln_batch *b, const struct tune_work *work, kiln_buffer *const *in)
{
    const int axis = row_axis(work);
    kiln_tensor x = as_rows(b, work, in[0]);
    if (work->operands < 2)
        return kiln_softmax(b, x, 1, &axis);
    kiln_tensor g = as_rows(b, work, in[1]);
    kiln_tensor sum = kiln_sum(b, kiln_mul(b, x, g), 1, &axis, 1);
    kiln_tensor y = kiln_mul(b, x, kiln_sub(b, g, sum));
    return work->operands < 3 ? y : kiln_add(b, y, as_rows(b, work, in[2]));
}

static double rows_element(const struct tune_work *work, size_t i, double *size)
{
    size_t kept = work->columns ? i % work->sizes[0] : i / work->sizes[1];
    double sum = 0, x = value(0, i);
    for (size_t r = 0; r < work->sizes[1]; r++) {
        size_t at = row_at(work, kept, r);
        double term = work->operands < 2 ? exp(value(0, at)) : value(0, at) * value(1, at);
        sum += term;
        *size += fabs(term);
    }
    if (work->operands < 2) {
        *size = exp(x) / sum;
        return *size;
    }
    *size += 2;
    return x * (value(1, i) - sum) + (work->operands < 3 ? 0 : value(2, i));
}

static kiln_tensor scan_record(kiln_batch *b, const struct tune_work *work, kiln_buffer *const *in)
{
    return kiln_cumsum(b, as_rows(b, work, in[0]), row_axis(work), 0);
}

static double scan_element(const struct tune_work *work, size_t i, double *size)
{
    size_t kept = work->columns ? i % work->sizes[0] : i / work->sizes[1];
    size_t end = work->columns ? i / work->sizes[0] : i % work->sizes[1];
    double sum = 0;
    for (size_t r = 0; r <= end; r++) {
        double x = value(0, row_at(work, kept, r));
        sum += x;
        *size += fabs(x);
    }
    return sum;
}

/* ---- products ---- */

struct product {
    size_t batch, m, k, n;
};

static struct product product_sizes(const struct tune_work *work)
{
    const size_t *last = work->sizes + work->count - 3;
    return (struct product){work->count > 3 ? work->sizes[0] : 1, last[0], last[1], last[2]};
}

static void product_inputs(const struct tune_work *work, size_t counts[TUNE_INPUTS])
{
    struct product p = product_sizes(work);
    counts[0] = p.batch * p.m * p.k;
    counts[1] = p.batch * p.k * p.n;
}

static size_t product_results(const struct tune_work *work)
{
    struct product p = product_sizes(work);
    return p.batch * p.m * p.n;
}

/* A batch of rows x columns, in memory the other way round if it is transposed. */
static kiln_tensor operand(kiln_batch *b, kiln_buffer *buffer, size_t batch, size_t rows,
                           size_t columns, bool transposed)
{
    const size_t dims[] = {batch, transposed ? columns : rows, transposed ? rows : columns};
    const size_t axes[] = {0, 2, 1};
    kiln_tensor x = shaped(b, buffer, 3, dims);
    return transposed ? kiln_transpose(b, x, axes) : x;
}

static kiln_tensor product_record(kiln_batch *b, const struct tune_work *work,
                                  kiln_buffer *const *in)
{
    struct product p = product_sizes(work);
    kiln_tensor x = operand(b, in[0], p.batch, p.m, p.k, work->transposed[0]);
    return kiln_matmul(b, x, operand(b, in[1], p.batch, p.k, p.n, work->transposed[1]));
}

static double product_element(const struct tune_work *work, size_t i, double *size)
{
    struct product p = product_sizes(work);
    size_t matrix = i / (p.m * p.n), row = i / p.n % p.m, column = i % p.n;
    double sum = 0;
    for (size_t k = 0; k < p.k; k++) {
        size_t a = work->transposed[0] ? k * p.m + row : row * p.k + k;
        size_t c = work->transposed[1] ? column * p.k + k : k * p.n + column;
        double term = value(0, matrix * p.m * p.k + a) * value(1, matrix * p.k * p.n + c);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

/* ---- convolutions: images, height, width, channels, window, results; padded to the same size ----
 */

enum { IMAGES, HEIGHT, WIDTH, CHANNELS, DOWN, ACROSS, RESULTS };

static void window_inputs(const struct tune_work *work, size_t counts[TUNE_INPUTS])
{
    counts[0] = product_of(work->sizes, 4);
    counts[1] = product_of(work->sizes + CHANNELS, 4);
}

static size_t window_results(const struct tune_work *work)
{
    return product_of(work->sizes, 3) * work->sizes[RESULTS];
}

static kiln_tensor window_record(kiln_batch *b, const struct tune_work *work,
                                 kiln_buffer *const *in)
{
    const size_t *s = work->sizes;
    const size_t weights[] = {s[DOWN], s[ACROSS], s[CHANNELS], s[RESULTS]};
    kiln_window_options options = KILN_WINDOW_OPTIONS_INIT;
    for (int d = 0; d < 2; d++) {
        options.before[d] = (s[DOWN + d] - 1) / 2;
        options.after[d] = s[DOWN + d] / 2;
    }
    return kiln_conv2d(b, shaped(b, in[0], 4, s), shaped(b, in[1], 4, weights), &options);
}

static double window_element(const struct tune_work *work, size_t i, double *size)
{
    const size_t *s = work->sizes;
    size_t o = i % s[RESULTS], x = i / s[RESULTS] % s[WIDTH];
    size_t y = i / s[RESULTS] / s[WIDTH] % s[HEIGHT], image = i / s[RESULTS] / s[WIDTH] / s[HEIGHT];
    double sum = 0;
    for (size_t k = 0; k < s[DOWN] * s[ACROSS] * s[CHANNELS]; k++) {
        size_t c = k % s[CHANNELS], from_y = y + k / s[CHANNELS] / s[ACROSS],
               from_x = x + k / s[CHANNELS] % s[ACROSS];
        from_y -= (s[DOWN] - 1) / 2; /* wraps above the image, where it counts as below it */
        from_x -= (s[ACROSS] - 1) / 2;
        if (from_y >= s[HEIGHT] || from_x >= s[WIDTH])
            continue;
        size_t from = ((image * s[HEIGHT] + from_y) * s[WIDTH] + from_x) * s[CHANNELS] + c;
        double term = value(0, from) * value(1, k * s[RESULTS] + o);
        sum += term;
        *size += fabs(term);
    }
    return sum;
}

/* ---- attention: batches, queries, keys, columns of keys, of values ---- */

static void attention_inputs(const struct tune_work *work, size_t counts[TUNE_INPUTS])
{
    const size_t *s = work->sizes;
    counts[0] = s[0] * s[1] * s[3];
    counts[1] = s[0] * s[2] * s[3];
    counts[2] = s[0] * s[2] * s[4];
}

static size_t attention_results(const struct tune_work *work)
{
    return work->sizes[0] * work->sizes[1] * work->sizes[4];
}

static kiln_tensor attention_record(kiln_batch *b, const struct tune_work *work,
                                    kiln_buffer *const *in)
{
    const size_t *s = work->sizes;
    const size_t q[] = {s[0], s[1], s[3]}, k[] = {s[0], s[2], s[3]}, v[] = {s[0], s[2], s[4]};
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.causal = work->causal;
    options.window = work->window;
    return kiln_attention(b, shaped(b, in[0], 3, q), shaped(b, in[1], 3, k), shaped(b, in[2], 3, v),
                          (kiln_tensor){0}, &options);
}

static double attention_element(const struct tune_work *work, size_t i, double *size)
{
    const size_t *s = work->sizes;
    size_t e = i % s[4], row = i / s[4] % s[1], batch = i / s[4] / s[1];
    double total = 0, sum = 0;
    const size_t window = (size_t)work->window;
    const size_t end = work->causal && row + 1 < s[2] ? row + 1 : s[2];
    const size_t place = work->causal ? row + 1 : s[2];
    for (size_t n = window && place > window ? place - window : 0; n < end; n++) {
        double score = 0;
        for (size_t d = 0; d < s[3]; d++)
            score +=
                value(0, (batch * s[1] + row) * s[3] + d) * value(1, (batch * s[2] + n) * s[3] + d);
        double weight = exp(score / sqrt((double)s[3]));
        total += weight;
        sum += weight * value(2, (batch * s[2] + n) * s[4] + e);
    }
    *size = 1;
    return total == 0 ? 0 : sum / total;
}

/* ---- all ---- */

static const struct tune_family families[] = {
    /* clang-format off */
    {"map",         1, 4, map_inputs,       all_sizes,         map_record,       map_element},
    {"transpose",   2, 4, one_input,        all_sizes,         transpose_record, transpose_element},
    {"reduce",      2, 2, one_input,        reduce_results,    reduce_record,    reduce_element},
    {"rows",        2, 2, rows_inputs,      all_sizes,         rows_record,      rows_element},
    {"scan",        2, 2, one_input,        all_sizes,         scan_record,      scan_element},
    {"product",     3, 4, product_inputs,   product_results,   product_record,   product_element},
    {"convolution", 7, 7, window_inputs,    window_results,    window_record,    window_element},
    {"attention",   5, 5, attention_inputs, attention_results, attention_record, attention_element},
    /* clang-format on */
};
enum { FAMILIES = sizeof families / sizeof *families };

/* ---- reading ---- */

/* "513x777x1031", behind what is there. False: that is no list of sizes. */
static bool read_sizes(const char *word, struct tune_work *work)
{
    char *end = NULL;
    for (; work->count < TUNE_SIZES; word = end + 1) {
        unsigned long long size = isdigit((unsigned char)*word) ? strtoull(word, &end, 10) : 0;
        if (!size || size > UINT32_MAX)
            return false;
        work->sizes[work->count++] = (size_t)size;
        if (!*end)
            return true;
        if (*end != 'x')
            return false;
    }
    return false;
}

static bool read_type(const char *word, struct tune_work *work)
{
    static const kiln_type types[] = {KILN_F32, KILN_F16, KILN_BF16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(word, kiln_type_name(types[i]))) {
            work->type = types[i];
            return true;
        }
    return false;
}

static size_t divisor_of(size_t number, size_t least, size_t most)
{
    for (size_t i = most; i >= least && i > 1; i--)
        if (number % i == 0)
            return i;
    return 1;
}

/* A product of windows, as it is recorded, as a convolution with as many of them. */
static void make_convolution(struct tune_work *work)
{
    size_t m = work->sizes[0], k = work->sizes[1], n = work->sizes[2];
    size_t height = divisor_of(m, 1, (size_t)sqrt((double)m));
    size_t edge = k % 9 == 0 ? 3 : k % 25 == 0 ? 5 : 1, width = edge > 1 ? edge : k;
    const size_t sizes[] = {1, height, m / height, k / edge / width, edge, width, n};
    memcpy(work->sizes, sizes, sizeof sizes);
    work->count = 7;
    work->family = &families[FAMILIES - 2];
}

static bool read_word(const char *word, struct tune_work *work, bool *windows)
{
    if (isdigit((unsigned char)*word) && work->operands == 0) {
        work->operands = (unsigned)strtoul(word, NULL, 10);
        work->operands = work->operands > TUNE_INPUTS ? TUNE_INPUTS : work->operands;
        return work->operands > 0;
    }
    if (isdigit((unsigned char)*word) && work->window < 0) {
        work->window = strtoll(word, NULL, 10);
        return work->window > 0;
    }
    if (isdigit((unsigned char)*word))
        return read_sizes(word, work);
    if (strlen(word) == 2 && strspn(word, "nt") == 2) {
        work->transposed[0] = word[0] == 't';
        work->transposed[1] = word[1] == 't';
        return true;
    }
    if (!strcmp(word, "of"))
        work->operands = 0; /* to be read */
    else if (!strcmp(word, "columns"))
        work->columns = true;
    else if (!strcmp(word, "causal"))
        work->causal = true;
    else if (!strcmp(word, "window"))
        work->window = -1; /* to be read */
    else if (!strcmp(word, "costly"))
        work->costly = true;
    else if (!strcmp(word, "windows"))
        *windows = true;
    else if (!strcmp(word, "tf32"))
        work->precision = KILN_PRECISION_TF32;
    else if (!strcmp(word, "f32x3"))
        work->precision = KILN_PRECISION_F32X3;
    else
        return read_type(word, work);
    return true;
}

static const struct tune_family *find_family(const char *word)
{
    for (size_t i = 0; i < FAMILIES; i++)
        if (!strcmp(word, families[i].name))
            return &families[i];
    return NULL;
}

bool tune_work_read(const char *text, struct tune_work *work, const char **why)
{
    char words[TUNE_NAME], *rest = words;
    bool windows = false;
    *work = (struct tune_work){.operands = 1, .type = KILN_F32, .precision = KILN_PRECISION_EXACT};
    int length = (int)strcspn(text, "#\n");
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    *why = "it is too long";
    if (length >= TUNE_NAME)
        return false;
    snprintf(words, sizeof words, "%.*s", length, text);
    memcpy(work->name, words, sizeof words);
    char *word = strtok_r(words, " \t\r", &rest);
    work->family = word ? find_family(word) : NULL;
    *why = "no such kind of kernel is tuned";
    if (!work->family)
        return false;
    *why = "its sizes or words are not understood";
    while ((word = strtok_r(NULL, " \t\r", &rest)))
        if (!read_word(word, work, &windows))
            return false;
    if (windows && work->count == 3)
        make_convolution(work);
    return work->operands && work->window >= 0 && work->count >= work->family->least &&
           work->count <= work->family->most;
}

/* ---- asking ---- */

size_t tune_work_input(const struct tune_work *work, unsigned number)
{
    size_t counts[TUNE_INPUTS] = {0};
    work->family->inputs(work, counts);
    return counts[number];
}

size_t tune_work_results(const struct tune_work *work)
{
    return work->family->results(work);
}

kiln_tensor tune_work_record(kiln_batch *batch, const struct tune_work *work,
                             kiln_buffer *const inputs[TUNE_INPUTS])
{
    const kiln_tensor none = {0};
    if (kiln_batch_set_precision(batch, work->precision))
        return none;
    return work->family->record(batch, work, inputs);
}

double tune_work_element(const struct tune_work *work, size_t i, double *size)
{
    *size = 0;
    return work->family->element(work, i, size);
}
