/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products beside OpenBLAS and CLBlast; with --each also every implementation of kiln by
 * itself. The matrices stay on the device. */
#include "bench.h"
#include "peer_matmul.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct shape {
    struct peer_product product;
    bool quick;
    double of_openblas, of_sgemv; /* targets on a CPU; 0 for none */
} shapes[] = {
    /* clang-format off */
    {{128, 128, 128, false}, true, 0.85, 0},
    {{256, 256, 256, false}, false, 0.95, 0},
    {{512, 512, 512, false}, true, 0.95, 0},
    {{1024, 1024, 1024, false}, false, 0.95, 0},
    {{2048, 2048, 2048, false}, false, 0.95, 0},
    {{1, 4096, 4096, false}, true, 0, 1.1},
    {{8, 4096, 4096, false}, true, 2.0, 0},
    {{384, 384, 1536, false}, false, 0.95, 0},
    {{360, 1437, 64, true}, true, 0, 0},
    /* clang-format on */
};

/* Of these, --each times those that fit a shape. */
static const char *const each[] = {"single", "packed", "small", "skinny",
                                   "dots",   "rows",   "tiled", "clblast"};
enum { EACH = sizeof each / sizeof *each };

/* CLBlast without tuning takes seconds for larger products on a CPU. */
#define MOST_CLBLAST 1.2e9

/* A small product takes no longer than starting the device and waiting for it: here a program
 * submits several before it waits. */
#define MOST_QUEUED 1e8
enum { QUEUED = 32 };

static bool wants_each;

/* A context is tied to one implementation. */
static struct side {
    const char *name;
    kiln_context *context;
    kiln_batch *batch;
    kiln_buffer *a, *b, *c;
    cl_command_queue queue; /* of CLBlast */
} own, sides[EACH], clblast;

static struct work {
    struct peer_product product;
    const float *a, *b;
    float *c;      /* of OpenBLAS; and what is read back */
    double *want;  /* of the samples */
    double *bound; /* sum of |a| |b| */
} work;

/* ---- checking: every element of some rows ---- */

enum { SAMPLE_ROWS = 8 };

static size_t sample_row(size_t sample)
{
    return sample * (work.product.m - 1) / (SAMPLE_ROWS - 1);
}

static void compute_reference(void)
{
    size_t n = work.product.n, k = work.product.k;
    for (size_t s = 0; s < SAMPLE_ROWS; s++)
        for (size_t j = 0; j < n; j++) {
            double sum = 0, bound = 0;
            for (size_t l = 0; l < k; l++) {
                double b = work.product.transpose_b ? work.b[j * k + l] : work.b[l * n + j];
                double term = work.a[sample_row(s) * k + l] * b;
                sum += term;
                bound += fabs(term);
            }
            work.want[s * n + j] = sum;
            work.bound[s * n + j] = bound;
        }
}

/* |error| <= gamma_k * sum |a| |b|, gamma_k = k u / (1 - k u). */
static bool is_right(const char *name)
{
    size_t n = work.product.n;
    double ku = (double)work.product.k * ldexp(1, -24), gamma = ku / (1 - ku);
    for (size_t i = 0; i < SAMPLE_ROWS * n; i++) {
        double got = work.c[sample_row(i / n) * n + i % n];
        if (!(fabs(got - work.want[i]) <= gamma * work.bound[i])) {
            fprintf(stderr, "%s: row %zu, column %zu is %.9g, not %.9g\n", name, sample_row(i / n),
                    i % n, got, work.want[i]);
            return false;
        }
    }
    memset(work.c, 0xff, work.product.m * n * sizeof *work.c);
    return true;
}

static bool check_side(void *user)
{
    const struct side *side = user;
    size_t bytes = work.product.m * work.product.n * sizeof *work.c;
    bench_ok(kiln_buffer_read(side->c, 0, work.c, bytes), "reading");
    return is_right(side->name);
}

static bool check_host(void *user)
{
    (void)user;
    return is_right("OpenBLAS");
}

/* ---- ways ---- */

static void run_side(void *user)
{
    const struct side *side = user;
    bench_ok(kiln_batch_execute(side->batch), side->name);
}

static double queued_seconds;

static void run_queued(void *user)
{
    const struct side *side = user;
    double start = bench_now();
    for (int i = 0; i < QUEUED; i++)
        bench_ok(kiln_batch_submit(side->batch, NULL), side->name);
    bench_ok(kiln_context_finish(side->context), side->name);
    queued_seconds = (bench_now() - start) / QUEUED;
}

static double read_queued(void *user)
{
    (void)user;
    return queued_seconds;
}

static void run_clblast(void *user)
{
    const struct side *side = user;
    if (!peer_clblast(&work.product, side->queue, kiln_buffer_cl(side->a), kiln_buffer_cl(side->b),
                      kiln_buffer_cl(side->c)))
        bench_fail("CLBlast failed");
}

static void run_openblas(void *user)
{
    (void)user;
    peer_openblas(&work.product, work.a, work.b, work.c);
}

static void run_openblas_row(void *user)
{
    (void)user;
    peer_openblas_row(&work.product, work.a, work.b, work.c);
}

/* ---- rows ---- */

static kiln_buffer *make_buffer(const struct side *side, size_t rows, size_t columns,
                                const float *values)
{
    kiln_buffer *buffer;
    size_t dims[2] = {rows, columns};
    bench_ok(kiln_buffer_create(side->context, KILN_F32, 2, dims, &buffer), "making a buffer");
    if (values)
        bench_ok(kiln_buffer_write(buffer, 0, values, rows * columns * sizeof *values), "writing");
    return buffer;
}

static void open_side(struct side *side)
{
    const struct peer_product *p = &work.product;
    side->a = make_buffer(side, p->m, p->k, work.a);
    side->b = make_buffer(side, p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n, work.b);
    side->c = make_buffer(side, p->m, p->n, NULL);
    side->batch = kiln_batch_create(side->context);
    kiln_tensor a = kiln_import(side->batch, side->a), b = kiln_import(side->batch, side->b);
    kiln_tensor c = kiln_matmul_transposed(side->batch, a, 0, b, p->transpose_b);
    bench_ok(kiln_export(side->batch, c, side->c), "recording");
}

static void close_side(struct side *side)
{
    kiln_batch_release(side->batch);
    kiln_buffer_release(side->a);
    kiln_buffer_release(side->b);
    kiln_buffer_release(side->c);
}

/* What runs where a forced implementation does not fit is not that implementation. */
static bool side_fits(const struct side *side)
{
    char *text = NULL;
    bench_ok(kiln_batch_explain(side->batch, &text), "explaining");
    static const char *const kernel[EACH] = {"matmul_packed", "matmul_small", "matmul_skinny",
                                             "matmul_dots",   "matmul_gpu_a", "matmul_gpu",
                                             "CLBlastSgemm"};
    bool fits = strstr(text, kernel[side - sides]);
    kiln_free(text);
    return fits;
}

static void add_sides(struct bench_row *row)
{
    for (size_t i = 0; wants_each && i < EACH; i++) {
        open_side(&sides[i]);
        bool slow = !strcmp(each[i], "clblast") && row->amount > MOST_CLBLAST;
        if (side_fits(&sides[i]) && !slow)
            bench_way(row, each[i], run_side, check_side, &sides[i]);
    }
}

static void add_peers(struct bench_row *row, const struct shape *shape)
{
    bool queued = row->amount <= MOST_QUEUED;
    if (queued)
        bench_way(row, "kiln, queued", run_queued, check_side, &own)->seconds = read_queued;
    if (peer_has_openblas()) {
        bench_peer(row, "OpenBLAS", run_openblas, check_host, NULL);
        bench_at_least(row, queued ? "kiln, queued" : "kiln", "OpenBLAS", shape->of_openblas);
    }
    if (peer_has_openblas() && shape->product.m == 1) {
        bench_peer(row, "OpenBLAS sgemv", run_openblas_row, check_host, NULL);
        bench_at_least(row, "kiln", "OpenBLAS sgemv", shape->of_sgemv);
    }
    if (peer_has_clblast() && row->amount <= MOST_CLBLAST) {
        open_side(&clblast);
        bench_peer(row, "CLBlast", run_clblast, check_side, &clblast);
        bench_compare(row, "kiln", "CLBlast");
    }
}

static void measure(const struct shape *shape)
{
    const struct peer_product *p = &shape->product;
    char name[64];
    snprintf(name, sizeof name, "%zu x %zu x %zu%s", p->m, p->n, p->k,
             p->transpose_b ? ", b transposed" : "");
    if (!bench_wants(name) || (bench_is_quick() && !shape->quick))
        return;
    struct bench_row row = {.name = name,
                            .unit = BENCH_GFLOPS,
                            .amount = 2.0 * (double)p->m * (double)p->n * (double)p->k};
    work.product = *p;
    compute_reference();
    open_side(&own);
    bench_way(&row, "kiln", run_side, check_side, &own);
    add_sides(&row);
    add_peers(&row, shape);
    bench_measure(&row);
    close_side(&own);
    for (size_t i = 0; wants_each && i < EACH; i++)
        close_side(&sides[i]);
    if (clblast.batch)
        close_side(&clblast);
    clblast.batch = NULL;
}

static void make_sides(void)
{
    own = (struct side){.name = "kiln", .context = own.context};
    clblast = (struct side){.name = "CLBlast", .context = own.context};
    bench_ok(kiln_context_cl(own.context, NULL, NULL, &clblast.queue), "asking for the queue");
    for (size_t i = 0; wants_each && i < EACH; i++) {
        kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
        options.matmul = each[i];
        options.device = bench_device();
        bench_ok(kiln_context_create(&options, &sides[i].context), "making a context");
        sides[i].name = each[i];
    }
}

static const struct argp_option program_options[] = {
    {"each", 'e', 0, 0, "time each implementation of kiln that fits, too", 0}, {0}};

static int take_option(int key, const char *value)
{
    (void)value;
    if (key != 'e')
        return ARGP_ERR_UNKNOWN;
    wants_each = true;
    return 0;
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {.name = "matmul",
                                                 .purpose = "Matrix products",
                                                 .options = program_options,
                                                 .option = take_option};
    const size_t most = (size_t)4096 * 4096, rows = (size_t)SAMPLE_ROWS * 4096;
    own.context = bench_start(&program, argc, argv);
    work.a = bench_floats(most, 1);
    work.b = bench_floats(most, 2);
    work.c = bench_memory(most * sizeof *work.c);
    work.want = bench_memory(rows * sizeof *work.want);
    work.bound = bench_memory(rows * sizeof *work.bound);
    make_sides();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        measure(&shapes[i]);
    for (size_t i = 0; i < EACH; i++)
        kiln_context_release(sides[i].context);
    return bench_end(own.context);
}
