/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of elementwise operations: one call at a time, recorded as a batch, one loop in C. */
#include "bench.h"
#include "peer_chain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FACTOR 1.5
#define LARGEST 16000000

/* Non-temporal stores of the triad need whole vectors: every size but the first is one. */
static const size_t sizes[] = {1000, 10000, 100000, 1000000, LARGEST};
static const size_t quick_sizes[] = {1000, 100000, LARGEST};

/* An operation in its three forms; `other` is a second operand for those that take one. */
struct step {
    kiln_status (*now)(kiln_context *context, size_t n, const float *x, const float *other,
                       float *y);
    kiln_tensor (*record)(kiln_batch *batch, kiln_tensor x, kiln_tensor other);
    double (*host)(double x, double other);
};

#define STEP(name, now_call, record_call, host_value)                                              \
    static kiln_status now_##name(kiln_context *context, size_t n, const float *x,                 \
                                  const float *other, float *y)                                    \
    {                                                                                              \
        (void)other;                                                                               \
        return now_call;                                                                           \
    }                                                                                              \
    static kiln_tensor record_##name(kiln_batch *batch, kiln_tensor x, kiln_tensor other)          \
    {                                                                                              \
        (void)other;                                                                               \
        return record_call;                                                                        \
    }                                                                                              \
    static double host_##name(double x, double other)                                              \
    {                                                                                              \
        (void)other;                                                                               \
        return host_value;                                                                         \
    }                                                                                              \
    static const struct step step_##name = {now_##name, record_##name, host_##name};

STEP(scale, kiln_now_scale(context, n, x, FACTOR, y), kiln_scale(batch, x, FACTOR), FACTOR *x)
STEP(add, kiln_now_add(context, n, x, other, y), kiln_add(batch, x, other), x + other)
STEP(sub, kiln_now_sub(context, n, x, other, y), kiln_sub(batch, x, other), x - other)
STEP(mul, kiln_now_mul(context, n, x, other, y), kiln_mul(batch, x, other), x *other)
STEP(relu, kiln_now_relu(context, n, x, y), kiln_relu(batch, x), fmax(x, 0))
STEP(sigmoid, kiln_now_sigmoid(context, n, x, y), kiln_sigmoid(batch, x), 1 / (1 + exp(-x)))
STEP(tanh, kiln_now_tanh(context, n, x, y), kiln_tanh(batch, x), tanh(x))
STEP(gelu, kiln_now_gelu(context, n, x, y), kiln_gelu(batch, x), 0.5 * x * erfc(-x * sqrt(0.5)))

static const struct chain {
    const char *name;
    size_t count;
    const struct step *steps[8];
    void (*peer)(size_t n, const float *x, const float *other, float *y);
    double of_eager; /* targets: 0 for none */
    double of_peer;  /* at the largest size */
    bool triad;      /* moves what the triad moves */
} chains[] = {
    {"1 operation", 1, {&step_relu}, peer_chain_1, 0, 0, false},
    {"3 operations", 3, {&step_relu, &step_scale, &step_add}, peer_chain_3, 1.3, 0.9, true},
    {"8 operations",
     8,
     {&step_scale, &step_add, &step_relu, &step_mul, &step_sigmoid, &step_tanh, &step_gelu,
      &step_sub},
     peer_chain_8,
     1.3,
     1.25,
     false},
};

static struct work {
    kiln_context *context;
    kiln_batch *batch, *anew;
    const struct chain *chain;
    size_t n;
    const float *x, *other;
    float *y, *between[2];
    double *want;
} work;

static void run_eager(void *user)
{
    const struct chain *chain = work.chain;
    const float *x = work.x;
    (void)user;
    for (size_t i = 0; i < chain->count; i++) {
        float *y = i + 1 == chain->count ? work.y : work.between[i % 2];
        bench_ok(chain->steps[i]->now(work.context, work.n, x, work.other, y), "the eager way");
        x = y;
    }
}

static void record(kiln_batch *batch)
{
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, &work.n, work.x);
    kiln_tensor other = work.chain->count > 1 ? kiln_upload(batch, KILN_F32, 1, &work.n, work.other)
                                              : (kiln_tensor){0};
    for (size_t i = 0; i < work.chain->count; i++)
        x = work.chain->steps[i]->record(batch, x, other);
    bench_ok(kiln_read(batch, x, work.y, work.n * sizeof *work.y), "recording");
}

static void run_batch(void *user)
{
    (void)user;
    bench_ok(kiln_batch_execute(work.batch), "the batch");
}

static void run_anew(void *user)
{
    (void)user;
    bench_ok(kiln_batch_reset(work.anew), "resetting");
    record(work.anew);
    bench_ok(kiln_batch_execute(work.anew), "the batch recorded anew");
}

static void run_peer(void *user)
{
    (void)user;
    work.chain->peer(work.n, work.x, work.other, work.y);
}

static void run_triad(void *user)
{
    (void)user;
    peer_triad(work.n, work.x, work.other, work.y);
}

static void run_triad_stream(void *user)
{
    (void)user;
    peer_triad_stream(work.n, work.x, work.other, work.y);
}

/* And wipes it, so that the next way cannot pass by doing nothing. */
static bool check(void *user)
{
    (void)user;
    bool right = bench_close(work.chain->name, work.n, work.y, work.want, 4e-6, 4e-6);
    for (size_t i = 0; i < work.n; i++)
        work.y[i] = NAN;
    return right;
}

static void compute_reference(void)
{
    for (size_t i = 0; i < work.n; i++) {
        double value = work.x[i];
        for (size_t s = 0; s < work.chain->count; s++)
            value = work.chain->steps[s]->host(value, work.other[i]);
        work.want[i] = value;
    }
}

static void describe_row(struct bench_row *row)
{
    const struct chain *chain = work.chain;
    bench_way(row, "batch", run_batch, check, NULL);
    bench_way(row, "recorded anew", run_anew, check, NULL);
    bench_way(row, "eager", run_eager, check, NULL);
    bench_peer(row, "C loop", run_peer, check, NULL);
    if (chain->triad)
        bench_peer(row, "triad", run_triad, NULL, NULL);
    if (chain->triad && peer_can_stream() && work.n % 16 == 0)
        bench_peer(row, "triad, stream", run_triad_stream, NULL, NULL);
    bench_at_least(row, "batch", "eager", chain->of_eager);
    bench_at_least(row, "recorded anew", "eager", chain->of_eager);
    bench_at_least(row, "batch", "C loop", work.n == LARGEST ? chain->of_peer : 0);
    if (chain->triad)
        bench_compare(row, "batch", "triad");
    if (chain->triad && peer_can_stream() && work.n % 16 == 0)
        bench_compare(row, "batch", "triad, stream");
}

static void measure(const struct chain *chain, size_t n)
{
    char name[64];
    snprintf(name, sizeof name, "%s, %zu elements", chain->name, n);
    if (!bench_wants(name))
        return;
    struct bench_row row = {.name = name, .amount = (double)n, .unit = BENCH_NS_PER_ELEMENT};
    work.chain = chain;
    work.n = n;
    work.batch = kiln_batch_create(work.context);
    work.anew = kiln_batch_create(work.context);
    compute_reference();
    record(work.batch);
    describe_row(&row);
    bench_measure(&row);
    kiln_batch_release(work.batch);
    kiln_batch_release(work.anew);
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        .name = "chain",
        .purpose = "Chains of elementwise operations, eager, as a batch, and in C"};
    work.context = bench_start(&program, argc, argv);
    work.x = bench_floats(LARGEST, 1);
    work.other = bench_floats(LARGEST, 2);
    work.y = bench_memory(LARGEST * sizeof *work.y);
    work.between[0] = bench_memory(LARGEST * sizeof *work.y);
    work.between[1] = bench_memory(LARGEST * sizeof *work.y);
    work.want = bench_memory(LARGEST * sizeof *work.want);
    size_t count =
        bench_is_quick() ? sizeof quick_sizes / sizeof *quick_sizes : sizeof sizes / sizeof *sizes;
    for (size_t c = 0; c < sizeof chains / sizeof *chains; c++)
        for (size_t i = 0; i < count; i++)
            measure(&chains[c], bench_is_quick() ? quick_sizes[i] : sizes[i]);
    return bench_end(work.context);
}
