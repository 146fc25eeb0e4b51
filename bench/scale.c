/* SPDX-License-Identifier: Apache-2.0 */
/* How a training step grows with the ranks: what it takes alone and what the network does are
 * measured, a model puts them together, and a step of these ranks is measured beside it. Then the
 * model speaks of more machines than there are.
 *
 *     for n in 1 2 4 8; do mpirun -n $n bench/scale; done
 *     mpirun -n 2 bench/scale --latency 2 --rate 12
 *
 * The model. A step alone takes C seconds, and P of processors. Its gradients have N bytes. Between
 * two ranks a message of n bytes takes a + n b seconds, and n bytes are added in n g.
 *   Ranks that share this machine: cores do all the work, whoever's it is. R ranks take C or, if
 * that is more, R P / cores for what they compute and, as each sum sends (R - 1) N bytes there and
 * back and adds half of them, (R - 1) N (2 b + g) / min(R, cores) for what they send. Ranks with
 * machines of their own: C, and behind it a ring of 2 (R - 1) messages of N / R bytes for each sum
 * (of two or three ranks a tree of 2 ceil(log2 R) messages of N). On devices with memory of their
 * own gradients travel while others are derived, for which there are two thirds of C; on others
 * they travel afterwards. */
#include <argp.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <kiln/kiln.h>
#include <kiln/mpi.h>

enum { MOST_LAYERS = 16, BUCKET = 4 << 20 };

static struct {
    size_t rows, width, layers, steps;
    double latency, rate; /* of the machines that are not there; 0: as measured */
    const char *device;
} options = {.rows = 256, .width = 1024, .layers = 4, .steps = 5};

static struct {
    int rank, ranks, cores;
    kiln_context *context;
    kiln_buffer *weights[MOST_LAYERS];
    float *x, loss;
    bool travels_early; /* while others are derived */
} world;

/* Seconds; of a step also those of processors, for bytes those of one. */
static struct {
    double step, processors, latency, byte, sum;
} cost;

static void ok(kiln_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "scale: rank %d: %s: %s\n", world.rank, what, kiln_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Seconds that all threads of this rank have had. */
static double processors(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static float *memory(size_t count)
{
    float *made = calloc(count, sizeof *made);
    if (!made)
        ok(kiln_error_set(KILN_OUT_OF_HOST_MEMORY, "no memory"), "memory");
    return made;
}

/* Until all are here, without taking a core from those who are not. */
static void meet(void)
{
    MPI_Request request;
    int is_done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (!is_done) {
        MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
        if (!is_done)
            nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return values[count / 2];
}

/* ---- what is trained ---- */

static kiln_status record(kiln_batch *batch, size_t context, kiln_tensor *gradients, void *user)
{
    kiln_tensor imported[MOST_LAYERS];
    (void)context, (void)user;
    kiln_tensor y =
        kiln_upload(batch, KILN_F32, 2, (size_t[]){options.rows, options.width}, world.x);
    for (size_t l = 0; l < options.layers; l++) {
        imported[l] = kiln_import(batch, world.weights[l]);
        y = kiln_relu(batch, kiln_matmul(batch, y, imported[l]));
    }
    kiln_tensor loss = kiln_mean(batch, kiln_square(batch, y), 0, NULL, 0);
    kiln_grad(batch, loss, imported, options.layers, gradients);
    return kiln_read(batch, loss, &world.loss, sizeof world.loss);
}

static kiln_status update(kiln_batch *batch, size_t context, const kiln_tensor *gradients,
                          void *user)
{
    (void)context, (void)user;
    for (size_t l = 0; l < options.layers; l++) {
        kiln_tensor old = kiln_import(batch, world.weights[l]);
        kiln_export(batch, kiln_sub(batch, old, kiln_scale(batch, gradients[l], 1e-3)),
                    world.weights[l]);
    }
    return KILN_OK;
}

static void open_world(void)
{
    const size_t width = options.width, dims[] = {width, width};
    kiln_context_options how = KILN_CONTEXT_OPTIONS_INIT;
    kiln_device_info info;
    how.device = options.device;
    ok(kiln_context_create(&how, &world.context), "a context");
    ok(kiln_context_device(world.context, &info), "a device");
    world.travels_early = !info.shares_host_memory;
    world.cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    world.x = memory(options.rows * width);
    for (size_t i = 0; i < options.rows * width; i++)
        world.x[i] = (float)(i * 7919 % 1009) / 1009;
    float *content = memory(width * width);
    for (size_t i = 0; i < width * width; i++)
        content[i] = ((float)(i * 6151 % 1013) / 1013 - 0.5f) / sqrtf((float)width);
    for (size_t l = 0; l < options.layers; l++) {
        ok(kiln_buffer_create(world.context, KILN_F32, 2, dims, &world.weights[l]), "weights");
        ok(kiln_buffer_write(world.weights[l], 0, content, width * width * sizeof *content),
           "weights");
    }
    free(content);
}

static void close_world(void)
{
    for (size_t l = 0; l < options.layers; l++)
        kiln_buffer_release(world.weights[l]);
    kiln_context_release(world.context);
    free(world.x);
}

/* Seconds of a step by the ranks of a communicator, after two that compile. */
static double time_step(MPI_Comm comm)
{
    double *times = calloc(options.steps, sizeof *times);
    kiln_training training = KILN_TRAINING_INIT;
    kiln_parallel *parallel;
    kiln_mpi *mpi;
    ok(kiln_mpi_create(comm, NULL, &mpi), "the ranks");
    training.record = record;
    training.update = update;
    training.gradient_count = options.layers;
    training.reducer = kiln_mpi_reducer(mpi);
    ok(kiln_parallel_create(&world.context, 1, &training, &parallel), "training");
    for (int i = 0; i < 2; i++)
        ok(kiln_parallel_step(parallel), "a step");
    const double busy = processors();
    for (size_t i = 0; i < options.steps && times; i++) {
        double began = now();
        ok(kiln_parallel_step(parallel), "a step");
        times[i] = now() - began;
    }
    cost.processors = (processors() - busy) / (double)options.steps;
    double time = times ? median(times, options.steps) : 0;
    kiln_parallel_release(parallel);
    kiln_mpi_release(mpi);
    free(times);
    return time;
}

/* ---- the network, between the first rank and the last ---- */

/* Seconds of a message of so many bytes. */
static double time_message(float *values, int bytes, int rounds)
{
    const int other = world.rank ? 0 : world.ranks - 1;
    double began = now();
    for (int i = 0; i < rounds; i++) {
        if (world.rank == 0)
            MPI_Send(values, bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD);
        MPI_Recv(values, bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (world.rank > 0)
            MPI_Send(values, bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD);
    }
    return (now() - began) / rounds / 2;
}

static double time_sum(float *a, const float *b, size_t count, int rounds)
{
    double began = now();
    for (int i = 0; i < rounds; i++)
        MPI_Reduce_local(b, a, (int)count, MPI_FLOAT, MPI_SUM);
    return (now() - began) / rounds;
}

static void measure_network(void)
{
    float *a = memory(BUCKET / sizeof(float)), *b = memory(BUCKET / sizeof(float));
    if (world.ranks > 1 && (world.rank == 0 || world.rank == world.ranks - 1)) {
        time_message(a, BUCKET, 3);
        cost.byte = time_message(a, BUCKET, 30) / BUCKET;
        cost.latency = time_message(a, 8, 300);
    }
    meet();
    if (world.rank == 0) {
        time_sum(a, b, BUCKET / sizeof(float), 3);
        cost.sum = time_sum(a, b, BUCKET / sizeof(float), 30) / BUCKET;
    }
    meet();
    free(a);
    free(b);
}

/* ---- the model ---- */

static double gradient_bytes(void)
{
    return (double)(options.layers * options.width * options.width * sizeof(float));
}

/* Of ranks that share the cores of this machine. */
static double predict_here(int ranks)
{
    double cores = fmin(ranks, world.cores), bytes = (ranks - 1) * gradient_bytes();
    return fmax(cost.step, ranks * cost.processors / world.cores) +
           bytes * (2 * cost.byte + cost.sum) / cores;
}

/* Of ranks with machines of their own. */
static double predict_apart(int ranks)
{
    const double latency = options.latency > 0 ? options.latency * 1e-6 : cost.latency;
    const double byte = options.rate > 0 ? 1e-9 / options.rate : cost.byte;
    const double bytes = gradient_bytes(), sums = ceil(bytes / BUCKET);
    double stages = 2.0 * (ranks - 1), sent = bytes * stages / ranks, added = sent / 2;
    if (ranks < 4) {
        stages = 2 * ceil(log2(ranks));
        sent = bytes * stages;
        added = sent / 2;
    }
    double travel = sums * stages * latency + sent * byte + added * cost.sum;
    double hidden = world.travels_early ? cost.step * 2 / 3 : 0;
    return cost.step + fmax(travel - hidden, travel / sums);
}

static void say(double measured)
{
    const double bytes = gradient_bytes();
    const int ranks = world.ranks;
    printf("%d ranks on %d cores: a step alone %.1f ms (%.1f of processors), %.1f MB of gradients, "
           "of which a rank sends %.1f MB in a step\n",
           ranks, world.cores, cost.step * 1e3, cost.processors * 1e3, bytes / 1e6,
           2e-6 * bytes * (ranks - 1) / ranks);
    if (ranks == 1)
        return;
    printf("two ranks: %.1f us, %.2f GB/s; sums of %.2f GB/s\n", cost.latency * 1e6,
           1e-9 / cost.byte, 1e-9 / cost.sum);
    double predicted = predict_here(ranks);
    printf("a step of %d ranks on this machine: predicted %.1f ms, measured %.1f ms: %+.1f%%\n",
           ranks, predicted * 1e3, measured * 1e3, 100 * (predicted / measured - 1));
    const int more[] = {2, 8, 64, 512};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        double time = predict_apart(more[i]);
        printf("%4d machines, %s: %.1f ms, %.2f of linear\n", more[i],
               options.latency > 0 || options.rate > 0 ? "the network as said"
                                                       : "the network as between two ranks here",
               time * 1e3, cost.step / time);
    }
}

/* ---- the program ---- */

static error_t take_option(int key, char *argument, struct argp_state *state)
{
    switch (key) {
    case 'r': options.rows = strtoul(argument, NULL, 10); break;
    case 'w': options.width = strtoul(argument, NULL, 10); break;
    case 'l': options.layers = strtoul(argument, NULL, 10); break;
    case 's': options.steps = strtoul(argument, NULL, 10); break;
    case 'a': options.latency = strtod(argument, NULL); break;
    case 'b': options.rate = strtod(argument, NULL); break;
    case 'd': options.device = argument; break;
    case ARGP_KEY_END:
        if (!options.rows || !options.width || !options.steps || !options.layers ||
            options.layers > MOST_LAYERS)
            argp_error(state, "rows, width and steps are 1 or more, layers 1 to %d", MOST_LAYERS);
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp_option known[] = {
    {"rows", 'r', "N", 0, "rows of each rank (256)", 0},
    {"width", 'w', "N", 0, "of layers (1024)", 0},
    {"layers", 'l', "N", 0, "so many (4)", 0},
    {"steps", 's', "N", 0, "of which the median counts (5)", 0},
    {"latency", 'a', "US", 0, "microseconds of a message between machines (as here)", 0},
    {"rate", 'b', "GB/S", 0, "gigabytes a second between machines (as here)", 0},
    {"device", 'd', "DEVICE", 0, "of all ranks (the default one)", 0},
    {0}};

int main(int argc, char **argv)
{
    const struct argp parser = {
        known, take_option, NULL, "How a training step grows with the ranks of MPI.",
        NULL,  NULL,        NULL};
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.ranks);
    if (argp_parse(&parser, argc, argv, 0, NULL, NULL))
        return 2;
    open_world();
    meet();
    if (world.rank == 0) /* the others sleep */
        cost.step = time_step(MPI_COMM_SELF);
    const double alone = cost.processors;
    meet();
    measure_network();
    double measured = time_step(MPI_COMM_WORLD);
    cost.processors = alone;
    if (world.rank == 0)
        say(measured);
    close_world();
    MPI_Finalize();
    return 0;
}
