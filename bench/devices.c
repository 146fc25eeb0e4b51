/* SPDX-License-Identifier: Apache-2.0 */
/* Several devices beside one: an executor under full load, one large request split, a training
 * step, and on the first of them batches that run apart beside batches in order. Devices are named
 * by
 * --devices; figures are rates, and how many times that of one device they are.
 *
 *     bench/devices --devices 0,1 --rows 16384 --width 4096 --layers 4 */
#include <argp.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kiln/kiln.h>

enum { MOST = 16, MOST_LAYERS = 16 };

static struct {
    const char *names[MOST];
    size_t count, rows, width, layers, batch, requests, rounds, copied;
    const char *part; /* NULL: all */
} options = {.rows = 1024,
             .width = 256,
             .layers = 3,
             .batch = 1024,
             .requests = 64,
             .rounds = 5,
             .copied = 8};

static kiln_context *contexts[MOST];

static void ok(kiln_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "devices: %s: %s\n", what, kiln_last_error());
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void *memory(size_t bytes)
{
    void *made = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!made)
        exit(1);
    memset(made, 0, bytes);
    return made;
}

static float *values(size_t count, unsigned seed, float scale)
{
    float *made = memory(count * sizeof *made);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        made[i] = ((float)(seed >> 8) / (1 << 23) - 1) * scale;
    }
    return made;
}

/* Seconds of the best of some rounds, after one that compiles. */
static double best(void (*run)(void *), void *user)
{
    double least = INFINITY;
    run(user);
    for (size_t i = 0; i < options.rounds; i++) {
        double start = now();
        run(user);
        least = fmin(least, now() - start);
    }
    return least;
}

/* ---- layers of width x width, on each device ---- */

static kiln_buffer *weights[MOST][MOST_LAYERS];

static void make_weights(void)
{
    size_t width = options.width, bytes = width * width * sizeof(float);
    for (size_t d = 0; d < options.count; d++)
        for (size_t l = 0; l < options.layers; l++) {
            float *content = values(width * width, (unsigned)l + 1, sqrtf(6 / (float)width));
            ok(kiln_buffer_create(contexts[d], KILN_F32, 2, (size_t[]){width, width},
                                  &weights[d][l]),
               "a buffer");
            ok(kiln_buffer_write(weights[d][l], 0, content, bytes), "writing weights");
            free(content);
        }
}

static kiln_tensor record_layers(kiln_batch *batch, size_t device, kiln_tensor x,
                                 kiln_tensor *imported)
{
    for (size_t l = 0; l < options.layers; l++) {
        imported[l] = kiln_import(batch, weights[device][l]);
        x = kiln_matmul(batch, x, imported[l]);
        x = l + 1 < options.layers ? kiln_relu(batch, x) : x;
    }
    return x;
}

/* ---- an executor ---- */

static kiln_status record_model(kiln_batch *batch, size_t device, size_t rows,
                                const kiln_tensor *inputs, kiln_tensor *outputs, void *user)
{
    kiln_tensor imported[MOST_LAYERS];
    (void)rows, (void)user;
    outputs[0] = record_layers(batch, device, inputs[0], imported);
    return KILN_OK;
}

struct served {
    kiln_executor *executor;
    float *x, *y;
};

/* Full batches, all submitted before the first is awaited. */
static void serve(void *user)
{
    struct served *served = user;
    size_t row = options.width, bytes = options.batch * row * sizeof(float);
    kiln_future **futures = calloc(options.requests, sizeof(kiln_future *));
    for (size_t i = 0; i < options.requests; i++) {
        const kiln_input x = {served->x, bytes, KILN_F32};
        const kiln_output y = {served->y + i * options.batch * row, bytes, KILN_F32};
        ok(kiln_executor_submit(served->executor, &x, &y, options.batch, NULL, &futures[i]),
           "submitting");
    }
    for (size_t i = 0; i < options.requests; i++) {
        ok(kiln_future_wait(futures[i]), "a request");
        kiln_future_release(futures[i]);
    }
    free(futures);
}

static double executor_rate(size_t devices)
{
    const kiln_row row = {.type = KILN_F32, .rank = 1, .dims = {options.width}};
    const kiln_model model = {sizeof model,     record_model,          NULL, 1, &row, 1,
                              sizeof(kiln_row), KILN_PRECISION_DEFAULT};
    kiln_executor_options how = KILN_EXECUTOR_OPTIONS_INIT;
    size_t rows = options.batch * options.requests;
    struct served served = {.x = values(options.batch * options.width, 7, 1),
                            .y = memory(rows * options.width * sizeof(float))};
    how.max_batch = options.batch;
    how.max_queue = options.requests;
    ok(kiln_executor_create(contexts, devices, &model, &how, &served.executor), "an executor");
    serve(&served); /* each device is measured */
    double seconds = best(serve, &served);
    for (size_t d = 0; d < devices; d++) {
        kiln_executor_context_stats stats;
        ok(kiln_executor_get_context_stats(served.executor, d, &stats), "stats");
        printf("    %-40.40s %6lu batches\n", stats.device, (unsigned long)stats.batches);
    }
    kiln_executor_release(served.executor);
    free(served.x);
    free(served.y);
    return (double)rows / seconds;
}

/* ---- a training step ---- */

struct trained {
    kiln_parallel *parallel;
    size_t devices;
    float *x[MOST], *target[MOST], loss[MOST];
};

static kiln_status record_loss(kiln_batch *batch, size_t device, kiln_tensor *gradients, void *user)
{
    struct trained *trained = user;
    const size_t dims[] = {options.rows, options.width};
    kiln_tensor imported[MOST_LAYERS];
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, dims, trained->x[device]);
    kiln_tensor target = kiln_upload(batch, KILN_F32, 2, dims, trained->target[device]);
    kiln_tensor y = record_layers(batch, device, x, imported);
    kiln_tensor loss = kiln_mean_squared_error(batch, y, target);
    kiln_status status = kiln_grad(batch, loss, imported, options.layers, gradients);
    return status ? status : kiln_read(batch, loss, &trained->loss[device], sizeof(float));
}

static kiln_status record_update(kiln_batch *batch, size_t device, const kiln_tensor *gradients,
                                 void *user)
{
    (void)user;
    for (size_t l = 0; l < options.layers; l++) {
        kiln_tensor old = kiln_import(batch, weights[device][l]);
        kiln_tensor step = kiln_mul(batch, gradients[l], kiln_constant(batch, KILN_F32, 0.01));
        kiln_export(batch, kiln_sub(batch, old, step), weights[device][l]);
    }
    return KILN_OK;
}

static void train(void *user)
{
    ok(kiln_parallel_step(((struct trained *)user)->parallel), "a step");
}

/* Where a device that has memory of its own fetches them by itself. */
static float *pinned_values(size_t device, size_t count, unsigned seed)
{
    void *place;
    float *content = values(count, seed, 1);
    ok(kiln_host_alloc(contexts[device], count * sizeof *content, &place), "host memory");
    memcpy(place, content, count * sizeof *content);
    free(content);
    return place;
}

/* As many rows for each device. */
static double training_rate(size_t devices)
{
    kiln_training training = KILN_TRAINING_INIT;
    struct trained trained = {.devices = devices};
    size_t count = options.rows * options.width;
    for (size_t d = 0; d < devices; d++) {
        trained.x[d] = pinned_values(d, count, 11 + (unsigned)d);
        trained.target[d] = pinned_values(d, count, 101 + (unsigned)d);
    }
    training.record = record_loss;
    training.update = record_update;
    training.user = &trained;
    training.gradient_count = options.layers;
    ok(kiln_parallel_create(contexts, devices, &training, &trained.parallel), "a training");
    double seconds = best(train, &trained);
    printf("    %.3f ms a step, loss %g\n", seconds * 1e3, (double)trained.loss[0]);
    kiln_parallel_release(trained.parallel);
    for (size_t d = 0; d < devices; d++) {
        ok(kiln_host_free(contexts[d], trained.x[d]), "freeing");
        ok(kiln_host_free(contexts[d], trained.target[d]), "freeing");
    }
    return (double)(options.rows * devices) / seconds;
}

/* ---- one device: batches in order, and apart ---- */

enum { AHEAD = 3 };

struct flow {
    kiln_batch *batches[AHEAD];
    float *in[AHEAD], *out[AHEAD];
};

static void stream(void *user)
{
    struct flow *flow = user;
    kiln_event *events[AHEAD] = {NULL};
    for (size_t i = 0; i < options.requests + AHEAD; i++) {
        kiln_event **event = &events[i % AHEAD];
        if (*event)
            ok(kiln_event_wait(*event), "a batch");
        kiln_event_release(*event);
        *event = NULL;
        if (i < options.requests)
            ok(kiln_batch_submit(flow->batches[i % AHEAD], event), "submitting");
    }
}

/* `transfers`, `computes`: leave out the other part, to see what each takes alone. */
static double flow_seconds(bool apart, bool transfers, bool computes)
{
    struct flow flow;
    const size_t rows = options.copied * 262144 / options.width, row = options.width;
    const size_t bytes = rows * row * sizeof(float);
    kiln_buffer *kept;
    ok(kiln_buffer_create(contexts[0], KILN_F32, 2, (size_t[]){rows, row}, &kept), "a buffer");
    for (int i = 0; i < AHEAD; i++) {
        kiln_tensor imported[MOST_LAYERS];
        kiln_batch *batch = flow.batches[i] = kiln_batch_create(contexts[0]);
        flow.in[i] = values(rows * row, (unsigned)i, 1);
        flow.out[i] = memory(bytes);
        if (apart)
            ok(kiln_batch_set_independent(batch), "apart");
        kiln_tensor x = transfers
                            ? kiln_upload(batch, KILN_F32, 2, (size_t[]){rows, row}, flow.in[i])
                            : kiln_import(batch, kept);
        kiln_tensor y = computes ? record_layers(batch, 0, x, imported) : kiln_neg(batch, x);
        kiln_tensor sum = kiln_sum(batch, y, 1, (const int[]){1}, 0);
        kiln_read(batch, transfers ? y : sum, flow.out[i],
                  transfers ? bytes : rows * sizeof(float));
    }
    double seconds = best(stream, &flow) / (double)options.requests;
    for (int i = 0; i < AHEAD; i++) {
        kiln_batch_release(flow.batches[i]);
        free(flow.in[i]);
        free(flow.out[i]);
    }
    kiln_buffer_release(kept);
    return seconds;
}

static void show_overlap(void)
{
    printf("batches of %zu MiB up and down on the first device, %d ahead, ms a batch\n",
           options.copied, AHEAD);
    double copies = flow_seconds(false, true, false), computes = flow_seconds(false, false, true);
    double in_order = flow_seconds(false, true, true), apart = flow_seconds(true, true, true);
    printf("    transfers alone %.3f, computation alone %.3f, in order %.3f, apart %.3f\n",
           copies * 1e3, computes * 1e3, in_order * 1e3, apart * 1e3);
}

/* ---- the program ---- */

static void show(const char *name, double (*rate)(size_t))
{
    double one = 0;
    for (size_t n = 1; n <= options.count; n++) {
        printf("%s on %zu\n", name, n);
        double found = rate(n);
        one = n == 1 ? found : one;
        printf("    %.0f rows/s, %.2f times one device, %.2f of linear\n", found, found / one,
               found / one / (double)n);
        fflush(stdout);
    }
}

static bool wants(const char *part)
{
    return !options.part || !strcmp(options.part, part);
}

static size_t number(const char *text)
{
    long value = atol(text);
    if (value < 1) {
        fprintf(stderr, "devices: %s is no number above 0\n", text);
        exit(2);
    }
    return (size_t)value;
}

static error_t option(int key, char *value, struct argp_state *state)
{
    char *save = NULL;
    (void)state;
    switch (key) {
    case 'd':
        for (char *name = strtok_r(value, ",", &save); name && options.count < MOST;
             name = strtok_r(NULL, ",", &save))
            options.names[options.count++] = name;
        return 0;
    case 'r': options.rows = number(value); return 0;
    case 'w': options.width = number(value); return 0;
    case 'l': options.layers = number(value) < MOST_LAYERS ? number(value) : MOST_LAYERS; return 0;
    case 'b': options.batch = number(value); return 0;
    case 'q': options.requests = number(value); return 0;
    case 'n': options.rounds = number(value); return 0;
    case 'c': options.copied = number(value); return 0;
    case 'p': options.part = value; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option known[] = {
    {"devices", 'd', "NAMES", 0, "devices, with commas between them; the default one if left out",
     0},
    {"rows", 'r', "N", 0, "rows of a training step on each device", 0},
    {"width", 'w', "N", 0, "numbers in a row", 0},
    {"layers", 'l', "N", 0, "products of width by width", 0},
    {"batch", 'b', "N", 0, "rows of a request of the executor", 0},
    {"requests", 'q', "N", 0, "requests, or batches, in a round", 0},
    {"rounds", 'n', "N", 0, "rounds, of which the best counts", 0},
    {"copied", 'c', "MIB", 0, "of a batch that runs apart, each way", 0},
    {"part", 'p', "NAME", 0, "executor, training or overlap alone", 0},
    {0}};

int main(int argc, char **argv)
{
    const struct argp parser = {known, option, NULL, "Several devices beside one.",
                                NULL,  NULL,   NULL};
    if (argp_parse(&parser, argc, argv, 0, NULL, NULL))
        return 2;
    options.count = options.count ? options.count : 1;
    for (size_t i = 0; i < options.count; i++) {
        kiln_context_options how = KILN_CONTEXT_OPTIONS_INIT;
        kiln_device_info info;
        how.device = options.names[i];
        ok(kiln_context_create(&how, &contexts[i]), "a context");
        ok(kiln_context_device(contexts[i], &info), "a device");
        printf("device %zu: %s\n", i, info.name);
    }
    printf("%zu layers of %zu x %zu\n", options.layers, options.width, options.width);
    make_weights();
    if (wants("executor"))
        show("executor", executor_rate);
    if (wants("training"))
        show("training", training_rate);
    if (wants("overlap"))
        show_overlap();
    for (size_t d = 0; d < options.count; d++) {
        for (size_t l = 0; l < options.layers; l++)
            kiln_buffer_release(weights[d][l]);
        kiln_context_release(contexts[d]);
    }
    return 0;
}
