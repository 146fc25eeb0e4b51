/* SPDX-License-Identifier: Apache-2.0 */
/* How a training step grows with the ranks. What a step computes is measured, alone; what a rank's
 * link does, and how many bytes leave it; a model puts them together, and steps of these ranks are
 * measured in turns with their links. Then the model speaks of more machines than there are.
 *
 *     for n in 2 4 8; do mpirun --oversubscribe -n $n bench/scale --slow 0.01; done
 *     mpirun -n 2 bench/scale --latency 2 --rate 12
 *
 * Ranks on one machine share its cores. So that they behave as machines of their own, their
 * computation is measured once and then slept through, and each rank's link is slowed to a rate
 * that the cores can serve many times (--slow, scale_link.h). What is in between is what trains:
 * libkiln-mpi, its thread and MPI, called as kiln_parallel_step() calls them.
 *
 * The model. A step computes for C seconds, the last two thirds of which it derives gradients, N
 * bytes of them. They are handed over in buckets, as soon as they are there on devices with memory
 * of their own, else at the end of C. A bucket of n bytes needs a link for so long:
 *
 *     R > 3    2 log2(R) a + 2 n (R - 1) / R (b + g / 2)    halves are exchanged, and added
 *     R <= 3   ceil(log2 R) (a + n (b + g))                 to one rank,
 *              ceil(log2 R) (a + n b)                       and back, while the next one comes
 *
 * where n bytes are added in n g, and a message of n bytes takes a + n b: for R > 3 one that is
 * exchanged for another, by all ranks at once. Links serve one bucket after the other; behind the
 * last of them ranks agree twice. */
#include "scale_link.h"

#include <argp.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kiln/kiln.h>
#include <kiln/mpi.h>

enum { MOST_LAYERS = 16, MOST_STEPS = 99, BUCKET = 4 << 20 };

static struct {
    size_t rows, width, layers, steps;
    double compute;       /* milliseconds; 0: as measured */
    double slow;          /* gigabytes a second of each rank's link; 0: as it is */
    double latency, rate; /* of the machines that are not there; 0: as measured */
    bool late;            /* nothing travels before all is derived */
    const char *device;
} options = {.rows = 256, .width = 1024, .layers = 4, .steps = 7};

static struct {
    int rank, ranks, cores;
    kiln_context *context;
    kiln_buffer *weights[MOST_LAYERS];
    float *x, loss;
    float *sent, *received;
} world;

/* Seconds: of a step's computation, a message, a byte, a byte that is added, and of agreeing. */
static struct {
    double step, latency, byte, sum, agree;
} cost;

static void ok(kiln_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "scale: rank %d: %s: %s\n", world.rank, what, kiln_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* ---- helpers ---- */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
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

static void sleep_until(double time)
{
    for (double left = time - now(); left > 0; left = time - now())
        nanosleep(&(struct timespec){(time_t)left, (long)(1e9 * (left - floor(left)))}, NULL);
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
    options.late |= info.shares_host_memory != 0;
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

/* Seconds of a step without others, after two that compile. */
static double time_step(void)
{
    double *times = calloc(options.steps, sizeof *times), time = 0;
    kiln_training training = KILN_TRAINING_INIT;
    kiln_parallel *parallel;
    training.record = record;
    training.update = update;
    training.gradient_count = options.layers;
    ok(kiln_parallel_create(&world.context, 1, &training, &parallel), "training");
    for (int i = 0; i < 2; i++)
        ok(kiln_parallel_step(parallel), "a step");
    for (size_t i = 0; i < options.steps && times; i++) {
        double began = now();
        ok(kiln_parallel_step(parallel), "a step");
        times[i] = now() - began;
    }
    if (times)
        time = median(times, options.steps);
    kiln_parallel_release(parallel);
    free(times);
    return time;
}

/* ---- the same with others, asleep while the device would compute ---- */

static size_t gradient_numbers(void)
{
    return options.layers * options.width * options.width;
}

/* When so many of a step's gradients are there, from the last layer's on. */
static double derived_at(size_t gradients)
{
    return options.late ? cost.step
                        : cost.step * (1 + 2 * (double)gradients / (double)options.layers) / 3;
}

static void sleep_step(const kiln_reducer *reducer, float *gradients)
{
    const size_t layer = options.width * options.width, all = gradient_numbers();
    const double began = now();
    size_t handed = 0, pieces = 0;
    for (size_t made = 1; made <= options.layers; made++) {
        sleep_until(began + derived_at(made));
        for (size_t there = made * layer; there - handed >= reducer->piece || there == all;) {
            size_t count = there - handed < reducer->piece ? there - handed : reducer->piece;
            if (!count)
                break;
            ok(reducer->begin(reducer->user, gradients + handed, count), "beginning a sum");
            handed += count;
            pieces++;
        }
    }
    while (pieces--)
        ok(reducer->wait(reducer->user), "a sum");
    for (int i = 0; i < 2; i++) /* before the update, and after it */
        ok(reducer->agree(reducer->user, KILN_OK), "agreeing");
}

/* ---- the network ---- */

static void wait_for(MPI_Request *requests, int count)
{
    for (int is_done = 0; !is_done;) {
        MPI_Testall(count, requests, &is_done, MPI_STATUSES_IGNORE);
        if (!is_done)
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
}

static void send_to(int to, int bytes)
{
    MPI_Request request;
    MPI_Isend(world.sent, bytes, MPI_BYTE, to, 0, MPI_COMM_WORLD, &request);
    wait_for(&request, 1);
}

static void receive_from(int from, int bytes)
{
    MPI_Request request;
    MPI_Irecv(world.received, bytes, MPI_BYTE, from, 0, MPI_COMM_WORLD, &request);
    wait_for(&request, 1);
}

/* Seconds of a message from the first rank to the last. */
static double time_one_way(int bytes)
{
    const int last = world.ranks - 1;
    double began = now();
    if (world.rank == 0) {
        send_to(last, bytes);
        receive_from(last, bytes);
    } else if (world.rank == last) {
        receive_from(0, bytes);
        send_to(0, bytes);
    }
    return (now() - began) / 2;
}

/* Seconds that it takes all ranks to exchange messages with one other, and then with others. */
static double time_exchange(int bytes)
{
    double time = 0;
    int distances = 0;
    for (int distance = 1; distance < world.ranks; distance *= 2, distances++) {
        const int other = world.rank ^ distance;
        MPI_Request requests[2];
        meet();
        double began = now();
        if (other >= world.ranks)
            continue;
        MPI_Irecv(world.received, bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(world.sent, bytes, MPI_BYTE, other, 0, MPI_COMM_WORLD, &requests[1]);
        wait_for(requests, 2);
        time += now() - began;
    }
    return time / distances;
}

/* As sums have them. */
static double time_message(int bytes)
{
    meet();
    return world.ranks > 3 ? time_exchange(bytes) : time_one_way(bytes);
}

static double time_sum(float *a, const float *b, size_t count, int rounds)
{
    double began = now();
    for (int i = 0; i < rounds; i++)
        MPI_Reduce_local(b, a, (int)count, MPI_FLOAT, MPI_SUM);
    return (now() - began) / rounds;
}

static double mean_of_ranks(double *values)
{
    double mean = median(values, options.steps) / world.ranks;
    MPI_Allreduce(MPI_IN_PLACE, &mean, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return mean;
}

static double largest_of_ranks(double value)
{
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
}

/* Messages of two sizes and steps, by turns. Returns the seconds of a step until all have ended it;
 * *sent is how many bytes leave a rank, at most. */
static double take_turns(const kiln_reducer *reducer, float *gradients, double *sent)
{
    const int large = world.ranks > 3 ? BUCKET / 2 : BUCKET, small = large / 4;
    double times[3][MOST_STEPS];
    *sent = 0;
    for (size_t i = 0; i < options.steps; i++) {
        times[0][i] = time_message(small);
        times[1][i] = time_message(large);
        meet();
        double before = link_bytes(), began = now();
        sleep_step(reducer, gradients);
        times[2][i] = largest_of_ranks(now() - began);
        *sent = fmax(*sent, link_bytes() - before);
    }
    *sent = largest_of_ranks(*sent);
    double least = mean_of_ranks(times[0]), most = mean_of_ranks(times[1]);
    if (world.ranks < 4) { /* the others only wait */
        least *= world.ranks / 2.0;
        most *= world.ranks / 2.0;
    }
    cost.byte = (most - least) / (large - small);
    cost.latency = fmax(least - small * cost.byte, 0);
    return median(times[2], options.steps);
}

static double measure(double *sent)
{
    enum { AGREE = 40 };
    const size_t numbers = fmax(gradient_numbers(), BUCKET / sizeof(float));
    float *gradients = memory(numbers);
    double share = 1;
    kiln_mpi *mpi;
    world.sent = memory(numbers);
    world.received = memory(numbers);
    ok(kiln_mpi_create(MPI_COMM_WORLD, NULL, &mpi), "the ranks");
    const kiln_reducer *reducer = kiln_mpi_reducer(mpi);
    ok(reducer->join(reducer->user, KILN_OK, gradient_numbers(), 0, &share), "joining");
    if (world.rank == 0)
        cost.sum = time_sum(world.sent, world.received, BUCKET / sizeof(float), 30) / BUCKET;
    time_message(BUCKET); /* connections are made */
    sleep_step(reducer, gradients);
    slow_link(1e9 * options.slow);
    double began = now();
    for (int i = 0; i < AGREE; i++)
        ok(reducer->agree(reducer->user, KILN_OK), "agreeing");
    cost.agree = (now() - began) / AGREE;
    double time = world.ranks > 1 ? take_turns(reducer, gradients, sent) : 0;
    kiln_mpi_release(mpi);
    free(gradients);
    free(world.sent);
    free(world.received);
    return time;
}

/* ---- the model ---- */

/* A rank's, in both directions: what a message and its bytes take, and until when they are busy. */
struct links {
    double latency, byte, there, back;
};

/* What a rank sends of so many bytes. */
static double bytes_sent(double bytes, int ranks)
{
    return ranks > 3 ? 2 * bytes * (ranks - 1) / ranks : ranks > 1 ? bytes * ceil(log2(ranks)) : 0;
}

/* When the links have served one more bucket, which is there at `time`. */
static void serve(struct links *links, double time, double bytes, int ranks)
{
    const double stages = ceil(log2(ranks)), message = links->latency + bytes * links->byte;
    if (ranks > 3) {
        links->back = fmax(links->back, time) + 2 * stages * links->latency +
                      bytes_sent(bytes, ranks) * (links->byte + cost.sum / 2);
        return;
    }
    links->there = fmax(links->there, time) + stages * (message + bytes * cost.sum);
    links->back = fmax(links->back, links->there) + stages * message;
}

/* A step of so many ranks. */
static double predict(int ranks, double latency, double byte)
{
    const double layer = (double)(options.width * options.width * sizeof(float));
    const double all = layer * (double)options.layers, agree = cost.agree / log2(world.ranks);
    struct links links = {latency, byte, 0, 0};
    for (double begin = 0; begin < all; begin += BUCKET) {
        double end = fmin(begin + BUCKET, all);
        serve(&links, derived_at((size_t)ceil(end / layer)), end - begin, ranks);
    }
    return fmax(links.back, cost.step) + 2 * agree * log2(ranks);
}

static void say_prediction(const char *what, int ranks, double time)
{
    printf("%4d machines, %s: %.1f ms, %.2f of linear\n", ranks, what, time * 1e3,
           cost.step / time);
}

static void say(double measured, double sent)
{
    const double bytes = (double)(gradient_numbers() * sizeof(float));
    const double latency = options.latency > 0 ? options.latency * 1e-6 : cost.latency;
    const double byte = options.rate > 0 ? 1e-9 / options.rate : cost.byte;
    const int ranks = world.ranks, more[] = {2, 8, 64, 512};
    printf(
        "%d ranks on %d cores: a step computes for %.1f ms%s, %.1f MB of gradients, which travel "
        "%s\n",
        ranks, world.cores, cost.step * 1e3, options.compute > 0 ? " as said" : "", bytes / 1e6,
        options.late ? "afterwards" : "meanwhile");
    if (ranks == 1)
        return;
    printf("messages %s: %.3f ms, %.4f GB/s; sums of %.2f GB/s; agreeing takes %.1f ms\n",
           ranks > 3 ? "that are exchanged" : "from one to another", cost.latency * 1e3,
           1e-9 / cost.byte, 1e-9 / cost.sum, cost.agree * 1e3);
    if (sent < 1)
        printf("MPI does not send over TCP here: links are as they are\n");
    else
        printf("a rank sends %.1f MB at most in a step, by the model %.1f\n", sent * 1e-6,
               bytes_sent(bytes, ranks) * 1e-6);
    double predicted = predict(ranks, cost.latency, cost.byte);
    printf("a step of %d ranks: predicted %.1f ms, measured %.1f ms: %+.1f%%\n", ranks,
           predicted * 1e3, measured * 1e3, 100 * (predicted / measured - 1));
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        say_prediction(options.latency > 0 || options.rate > 0 ? "the network as said"
                                                               : "the network as here",
                       more[i], predict(more[i], latency, byte));
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
    case 'c': options.compute = strtod(argument, NULL); break;
    case 'S': options.slow = strtod(argument, NULL); break;
    case 'L': options.late = true; break;
    case 'd': options.device = argument; break;
    case ARGP_KEY_END:
        if (!options.rows || !options.width || !options.steps || options.steps > MOST_STEPS ||
            !options.layers || options.layers > MOST_LAYERS)
            argp_error(state, "rows and width are 1 or more, steps 1 to %d, layers 1 to %d",
                       MOST_STEPS, MOST_LAYERS);
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp_option known[] = {
    {"rows", 'r', "N", 0, "rows of each rank (256)", 0},
    {"width", 'w', "N", 0, "of layers (1024)", 0},
    {"layers", 'l', "N", 0, "so many (4)", 0},
    {"steps", 's', "N", 0, "of which the median counts (7)", 0},
    {"compute", 'c', "MS", 0, "milliseconds that a step computes (as measured)", 0},
    {"late", 'L', NULL, 0, "nothing travels before all is derived, as on CPUs", 0},
    {"slow", 'S', "GB/S", 0, "gigabytes a second of each rank's link here, over TCP (as it is)", 0},
    {"latency", 'a', "US", 0, "microseconds of a message between machines (as here)", 0},
    {"rate", 'b', "GB/S", 0, "gigabytes a second between machines (as here)", 0},
    {"device", 'd', "DEVICE", 0, "of all ranks (the default one)", 0},
    {0}};

/* Of Open MPI. It would ask for each message first, and what it asks would queue behind messages:
 * they go at once. */
static void use_tcp(void)
{
    static const char *const variables[][2] = {{"btl", "tcp,self"},
                                               {"pml", "ob1"},
                                               {"btl_tcp_eager_limit", "16777216"},
                                               {"btl_tcp_rndv_eager_limit", "16777216"},
                                               {"btl_tcp_max_send_size", "16777216"}};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        char name[64];
        snprintf(name, sizeof name, "OMPI_MCA_%s", variables[i][0]);
        setenv(name, variables[i][1], 0);
    }
}

int main(int argc, char **argv)
{
    const struct argp parser = {
        known, take_option, NULL, "How a training step grows with the ranks of MPI.",
        NULL,  NULL,        NULL};
    int level;
    double bytes, measured;
    if (argp_parse(&parser, argc, argv, 0, NULL, NULL))
        return 2;
    if (options.slow > 0)
        use_tcp();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.ranks);
    world.cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    meet();
    if (world.rank == 0 && options.compute <= 0) { /* the others sleep */
        open_world();
        cost.step = time_step();
        close_world();
    } else {
        cost.step = options.compute * 1e-3;
    }
    int late = options.late;
    MPI_Bcast(&cost.step, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    MPI_Bcast(&late, 1, MPI_INT, 0, MPI_COMM_WORLD);
    options.late = late;
    measured = measure(&bytes);
    if (world.rank == 0)
        say(measured, bytes);
    MPI_Finalize();
    return 0;
}
