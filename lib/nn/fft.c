/* SPDX-License-Identifier: Apache-2.0 */
/* The passes of fast Fourier transforms: their radices, what is between them, the calls. */
#include "nn/fft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "record/call.h"
#include "util/text.h"

#define ITEMS 64 /* of a work-group */
#define PI 3.14159265358979323846

/* ---- radices ---- */

/* Whether butterflies are written for it. */
static bool is_written(size_t radix)
{
    return radix == 2 || radix == 4 || radix == 8 || radix == 16;
}

/* The next pass of what is left: powers of 2 come first, so that vectors are in order soon. */
static size_t next_radix(size_t left)
{
    for (size_t radix = 16; radix > 1; radix /= 2)
        if (left % radix == 0)
            return radix;
    for (size_t radix = 3; radix <= KILN__FFT_MOST_RADIX; radix += 2)
        if (left % radix == 0)
            return radix;
    return 0;
}

bool kiln__fft_supports(const struct kiln__record_limits *limits, size_t length)
{
    const size_t most = limits->vector ? KILN__FFT_MOST_RADIX : KILN__FFT_MOST_RADIX_GPU;
    while (length > 1) {
        const size_t radix = next_radix(length);
        if (!radix || (radix > most && !is_written(radix)))
            return false;
        length /= radix;
    }
    return length == 1;
}

/* Each but the last pass has what numbers are turned by, and a radix without butterflies its
 * roots. */
static size_t entries_of(size_t left, size_t radix)
{
    return (left > radix ? (radix - 1) * (left / radix) : 0) + (is_written(radix) ? 0 : radix);
}

bool kiln__fft_pass(const struct kiln__fft *fft, size_t inner, unsigned number,
                    struct kiln__fft_pass *pass)
{
    size_t left = fft->length, first = 0;
    *pass = (struct kiln__fft_pass){.fft = *fft, .inner = inner, .number = number};
    for (unsigned i = 0; i < number && left > 1; i++) {
        const size_t radix = next_radix(left);
        first += entries_of(left, radix);
        left /= radix;
    }
    if (left <= 1)
        return false;
    pass->radix = next_radix(left);
    pass->columns = fft->length / pass->radix * inner;
    pass->apart = fft->length / left * inner;
    pass->first = first;
    pass->is_first = number == 0;
    pass->is_last = left == pass->radix;
    pass->roots = first + (pass->is_last ? 0 : (pass->radix - 1) * (left / pass->radix));
    return true;
}

static unsigned passes_of(const struct kiln__fft *fft)
{
    struct kiln__fft_pass pass;
    unsigned count = 0;
    while (kiln__fft_pass(fft, 1, count, &pass))
        count++;
    return count;
}

/* ---- a call's numbers ---- */

enum {
    LENGTH,
    X_EXTENT,
    Y_EXTENT,
    X_PARTS,
    Y_PARTS,
    INVERSE,
    X_TWICE,
    Y_TWICE,
    SCALE,
    INNER,
    PASS
};

void kiln__fft_write(const struct kiln__fft_pass *pass, double *scalars)
{
    const struct kiln__fft *fft = &pass->fft;
    scalars[LENGTH] = (double)fft->length;
    scalars[X_EXTENT] = (double)fft->x_extent;
    scalars[Y_EXTENT] = (double)fft->y_extent;
    scalars[X_PARTS] = fft->x_parts;
    scalars[Y_PARTS] = fft->y_parts;
    scalars[INVERSE] = fft->inverse;
    scalars[X_TWICE] = fft->x_doubled;
    scalars[Y_TWICE] = fft->y_doubled;
    scalars[SCALE] = fft->scale;
    scalars[INNER] = (double)pass->inner;
    scalars[PASS] = pass->number;
}

void kiln__fft_read(const double *scalars, struct kiln__fft_pass *pass)
{
    const struct kiln__fft fft = {.length = (size_t)scalars[LENGTH],
                                  .x_extent = (size_t)scalars[X_EXTENT],
                                  .y_extent = (size_t)scalars[Y_EXTENT],
                                  .x_parts = (uint32_t)scalars[X_PARTS],
                                  .y_parts = (uint32_t)scalars[Y_PARTS],
                                  .inverse = scalars[INVERSE] != 0,
                                  .x_doubled = scalars[X_TWICE] != 0,
                                  .y_doubled = scalars[Y_TWICE] != 0,
                                  .scale = scalars[SCALE]};
    kiln__fft_pass(&fft, (size_t)scalars[INNER], (unsigned)scalars[PASS], pass);
}

/* ---- the table ---- */

/* exp(-2 pi i k / length) as a product of two, so that few are computed. */
struct turns {
    size_t length, step;
    double (*coarse)[2], (*fine)[2];
};

static void fill_turns(double (*turns)[2], size_t n, size_t by, size_t length)
{
    for (size_t i = 0; i < n; i++) {
        const double angle = -2 * PI * (double)(i * by % length) / (double)length;
        turns[i][0] = cos(angle);
        turns[i][1] = sin(angle);
    }
}

static bool make_turns(size_t length, struct turns *turns)
{
    turns->length = length;
    turns->step = (size_t)sqrt((double)length) + 1;
    turns->coarse = malloc((turns->step + 1) * sizeof *turns->coarse);
    turns->fine = malloc((turns->step + 1) * sizeof *turns->fine);
    if (!turns->coarse || !turns->fine)
        return false;
    fill_turns(turns->coarse, turns->step, turns->step, length);
    fill_turns(turns->fine, turns->step, 1, length);
    return true;
}

static void turn_of(const struct turns *turns, size_t k, float *to)
{
    const double *a = turns->coarse[k / turns->step], *b = turns->fine[k % turns->step];
    to[0] = (float)(a[0] * b[0] - a[1] * b[1]);
    to[1] = (float)(a[0] * b[1] + a[1] * b[0]);
}

static void fill_pass(const struct turns *turns, const struct kiln__fft_pass *pass, float *table)
{
    const size_t left = turns->length / pass->apart, sets = left / pass->radix;
    for (size_t k = 1; k < pass->radix && !pass->is_last; k++)
        for (size_t p = 0; p < sets; p++)
            turn_of(turns, p * k * pass->apart, table + 2 * (pass->first + (k - 1) * sets + p));
    for (size_t k = 0; k < pass->radix && !is_written(pass->radix); k++)
        turn_of(turns, k * (turns->length / pass->radix), table + 2 * (pass->roots + k));
}

kiln_tensor kiln__fft_table(kiln_batch *batch, const char *name, size_t length)
{
    const struct kiln__fft fft = {.length = length};
    struct kiln__fft_pass pass;
    struct turns turns = {0};
    size_t dims[2] = {1, 2};
    for (unsigned i = 0; kiln__fft_pass(&fft, 1, i, &pass); i++)
        dims[0] = pass.roots + (is_written(pass.radix) ? 1 : pass.radix + 1);
    float *table =
        batch->error.status ? NULL : kiln__batch_alloc(batch, dims[0] * 2, sizeof *table, name);
    if (table && !make_turns(length, &turns))
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", name);
    if (table && !batch->error.status) {
        memset(table, 0, dims[0] * 2 * sizeof *table);
        for (unsigned i = 0; kiln__fft_pass(&fft, 1, i, &pass); i++)
            fill_pass(&turns, &pass, table);
    }
    free(turns.coarse);
    free(turns.fine);
    return batch->error.status ? kiln__none : kiln_upload(batch, KILN_F32, 2, dims, table);
}

/* ---- a call ---- */

struct call {
    kiln_batch *batch;
    const char *name;
    const struct kiln__fft_pass *pass;
    struct kiln__custom custom;
    struct kiln__custom_argument arguments[14];
    struct kiln__text text;
};

static kiln_tensor record_pass(kiln_batch *batch, const char *name,
                               const struct kiln__fft_pass *pass, kiln_tensor x, kiln_tensor table);

/* A transform's matrix is symmetric, so that its adjoint is the inverse transform without a factor.
 * Passes are undone in order: the last one's adjoint is the first pass of that. */
static kiln_status flow_back(kiln_batch *batch, const kiln_tensor *inputs,
                             const kiln_tensor *outputs, const kiln_tensor *flowed,
                             kiln_tensor *gradients, void *scalars)
{
    struct kiln__fft_pass pass;
    (void)outputs;
    kiln__fft_read(scalars, &pass);
    struct kiln__fft back = pass.fft;
    back.inverse = !pass.fft.inverse;
    back.x_extent = pass.fft.y_extent;
    back.y_extent = pass.fft.x_extent;
    back.x_parts = pass.fft.y_parts;
    back.y_parts = pass.fft.x_parts;
    back.x_doubled = pass.fft.y_doubled;
    back.y_doubled = pass.fft.x_doubled;
    kiln__fft_pass(&back, pass.inner, passes_of(&back) - 1 - pass.number, &pass);
    gradients[0] = record_pass(batch, "kiln_grad", &pass, flowed[0], inputs[1]);
    return batch->error.status;
}

static void add_argument(struct call *call, enum kiln__custom_kind kind, uint8_t number,
                         size_t integer, double real)
{
    call->arguments[call->custom.call.n_arguments++] = (struct kiln__custom_argument){
        .kind = (uint8_t)kind, .number = number, .integer = (int64_t)integer, .real = (float)real};
}

static void add_arguments(struct call *call)
{
    const struct kiln__fft_pass *pass = call->pass;
    const struct kiln__fft *fft = &pass->fft;
    add_argument(call, KILN__CUSTOM_INPUT, 0, 0, 0);
    add_argument(call, KILN__CUSTOM_INPUT, 1, 0, 0);
    add_argument(call, KILN__CUSTOM_OUTPUT, 0, 0, 0);
    const size_t x_row = pass->is_first ? fft->x_extent : fft->length;
    const size_t y_row = pass->is_last ? fft->y_extent : fft->length;
    const size_t numbers[] = {pass->columns, pass->apart, x_row * pass->inner, y_row * pass->inner,
                              pass->first,   pass->roots, fft->length};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        add_argument(call, KILN__CUSTOM_I64, 0, numbers[i], 0);
    add_argument(call, KILN__CUSTOM_F32, 0, 0, pass->is_last ? fft->scale : 1);
}

/* How many sets an item takes: as a vector of them has one turn, or as many as there are. */
static size_t choose_lanes(const struct call *call, bool *rows)
{
    const size_t most = call->batch->limits.vector;
    size_t lanes = most ? most : 1;
    while (lanes >= 4 && call->pass->apart % lanes)
        lanes /= 2;
    *rows = lanes >= 4;
    if (*rows)
        return lanes;
    for (lanes = most; lanes >= 4 && lanes > call->pass->columns;)
        lanes /= 2;
    return lanes >= 4 ? lanes : 1;
}

static void write_macros(struct call *call, size_t lanes, bool rows)
{
    const struct kiln__fft_pass *pass = call->pass;
    const struct kiln__fft *fft = &pass->fft;
    kiln__text_add(&call->text,
                   "#define RADIX %zu\n#define LANES %zu\n#define X_PARTS %u\n#define Y_PARTS %u\n",
                   pass->radix, lanes, pass->is_first ? fft->x_parts : 2,
                   pass->is_last ? fft->y_parts : 2);
    const struct {
        const char *name;
        bool holds;
    } macros[] = {{"ROWS", rows},
                  {"LAST", pass->is_last},
                  {"X_SWAPPED", pass->is_first && fft->inverse},
                  {"Y_SWAPPED", pass->is_last && fft->inverse},
                  {"X_DOUBLED", pass->is_first && fft->x_doubled},
                  {"Y_DOUBLED", pass->is_last && fft->y_doubled}};
    for (size_t i = 0; i < sizeof macros / sizeof *macros; i++)
        if (macros[i].holds)
            kiln__text_add(&call->text, "#define %s\n", macros[i].name);
}

static void describe(struct call *call, size_t signals)
{
    struct kiln__custom_call *made = &call->custom.call;
    bool rows;
    const size_t lanes = choose_lanes(call, &rows), most = call->batch->limits.work_group;
    const size_t items = (call->pass->columns + lanes - 1) / lanes;
    size_t local = items < ITEMS ? items : ITEMS;
    local = most && most < local ? most : local;
    write_macros(call, lanes, rows);
    add_arguments(call);
    made->n_inputs = 2;
    made->n_outputs = 1;
    made->inputs[0] = made->inputs[1] = made->outputs[0].type = KILN_F32;
    made->global[0] = (items + local - 1) / local * local;
    made->global[1] = signals;
    made->local[0] = local;
    made->global[2] = made->local[1] = made->local[2] = 1;
    made->host = kiln__fft_host;
    made->spread = kiln__fft_spread;
    made->gradient = flow_back;
    made->tolerance = 1e-6;
    kiln__fft_write(call->pass, made->scalars);
    call->custom.arguments = call->arguments;
    call->custom.kernel = KILN__CUSTOM_PREFIX "fft";
    call->custom.file = "fft";
}

/* x is [signals, numbers, inner, parts], and so is what comes out. */
static kiln_tensor record_pass(kiln_batch *batch, const char *name,
                               const struct kiln__fft_pass *pass, kiln_tensor x, kiln_tensor table)
{
    struct call call;
    struct kiln__node node = {.kind = KILN__CUSTOM, .n_inputs = 2, .type = KILN_F32};
    if (batch->error.status)
        return kiln__none;
    memset(&call, 0, sizeof call); /* calls are compared as bytes */
    call.batch = batch;
    call.name = name;
    call.pass = pass;
    node.shape = kiln__tensor_node(batch, x)->shape;
    node.shape.dims[1] = pass->is_last ? pass->fft.y_extent : pass->fft.length;
    node.shape.dims[3] = pass->is_last ? pass->fft.y_parts : 2;
    describe(&call, node.shape.dims[0]);
    call.custom.call.outputs[0].shape = node.shape;
    node.input[0] = kiln__tensor_index(x);
    node.input[1] = kiln__tensor_index(table);
    call.custom.text = call.text.data;
    const struct kiln__custom *found = call.text.failed ? NULL : kiln__custom_find(&call.custom);
    kiln__text_free(&call.text);
    if (!found) {
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", name);
        return kiln__none;
    }
    node.custom = (struct kiln__custom_node){.call = found};
    x = kiln__batch_record(batch, &node, name);
    kiln__custom_release(found);
    return x;
}

kiln_tensor kiln__fft_record(kiln_batch *batch, const char *name, const struct kiln__fft *fft,
                             kiln_tensor x, kiln_tensor table)
{
    const size_t inner = batch->error.status ? 0 : kiln__tensor_node(batch, x)->shape.dims[2];
    struct kiln__fft_pass pass;
    for (unsigned i = 0; !batch->error.status && kiln__fft_pass(fft, inner, i, &pass); i++)
        x = record_pass(batch, name, &pass, x, table);
    return batch->error.status ? kiln__none : x;
}
