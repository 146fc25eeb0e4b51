/* SPDX-License-Identifier: Apache-2.0 */
/* Train a network of two layers to read handwritten digits, by the ranks of MPI:
 *
 *     mpirun -n 2 examples/train_mpi
 *
 * Every rank has the same weights, derives the loss of its own rows of each batch, and updates its
 * weights by the averages over all ranks. So the losses are those of one rank, up to rounding,
 * however many there are. With --stop and --save it ends in between; --resume goes on from there
 * with as many ranks as one likes. With --shard each rank keeps a part of what the optimiser
 * remembers; what is saved is the same. */
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/kiln.h>
#include <kiln/mpi.h>

#include "digits_data.h"

enum {
    BATCH_ROWS = 128, /* of all ranks */
    HIDDEN = 128,
    CLASSES = 10,
    TEST_ROWS = 360, /* the last ones, by other writers */
    PARAMETERS = 4,
    MOST_SAVED = 32
};

static const char *const names[PARAMETERS] = {"hidden.weights", "hidden.biases", "output.weights",
                                              "output.biases"};

static struct {
    int epochs, stop;
    bool shard;
    const char *save, *resume;
    char **devices; /* for the ranks of a machine in turn; none: the default one */
    int device_count;
} options = {.epochs = 10};

static struct {
    int rank, ranks;
    kiln_context *context;
    kiln_mpi *mpi;
    struct digits digits;
    kiln_buffer *parameters[PARAMETERS], *epoch;
    kiln_buffer *shards[PARAMETERS]; /* what this rank updates of them: all without --shard */
    kiln_optimizer *optimizer;
    kiln_parallel *parallel;
    size_t first, rows; /* this rank's of each batch */
    uint8_t pixels[BATCH_ROWS * DIGIT_PIXELS], labels[BATCH_ROWS];
    float loss;
} world;

/* The other ranks are waiting: end them, too. */
static void ok(kiln_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "train_mpi: rank %d: %s: %s\n", world.rank, what, kiln_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* ---- data ---- */

/* The same sequence in every rank. */
static uint64_t random_state;

static unsigned next_random(unsigned below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((random_state >> 32) % below);
}

/* Another order in each epoch, whichever was the first. */
static void shuffle(int epoch, size_t *order, size_t count)
{
    random_state = 2026 + (uint64_t)epoch;
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count; i > 1; i--) {
        size_t k = next_random((unsigned)i), swap = order[k];
        order[k] = order[i - 1];
        order[i - 1] = swap;
    }
}

/* This rank's rows of a batch. */
static void put_rows(const size_t *order)
{
    for (size_t i = 0; i < world.rows; i++) {
        size_t row = order[world.first + i];
        memcpy(world.pixels + i * DIGIT_PIXELS, world.digits.pixels + row * DIGIT_PIXELS,
               DIGIT_PIXELS);
        world.labels[i] = world.digits.labels[row];
    }
}

/* ---- the network ---- */

static kiln_tensor logits_of(kiln_batch *b, const uint8_t *pixels, size_t rows,
                             kiln_tensor *parameters)
{
    for (int i = 0; i < PARAMETERS; i++)
        parameters[i] = kiln_import(b, world.parameters[i]);
    kiln_tensor x = kiln_upload(b, KILN_U8, 2, (size_t[]){rows, DIGIT_PIXELS}, pixels);
    x = kiln_scale(b, kiln_cast(b, x, KILN_F32), 1.0 / 16);
    x = kiln_relu(b, kiln_add(b, kiln_matmul(b, x, parameters[0]), parameters[1]));
    return kiln_add(b, kiln_matmul(b, x, parameters[2]), parameters[3]);
}

static kiln_status record(kiln_batch *b, size_t context, kiln_tensor *gradients, void *user)
{
    kiln_tensor parameters[PARAMETERS];
    (void)context, (void)user;
    kiln_tensor logits = logits_of(b, world.pixels, world.rows, parameters);
    kiln_tensor labels = kiln_upload(b, KILN_U8, 1, &world.rows, world.labels);
    kiln_tensor loss = kiln_cross_entropy(b, logits, labels);
    kiln_grad(b, loss, parameters, PARAMETERS, gradients);
    return kiln_read(b, loss, &world.loss, sizeof world.loss);
}

static kiln_status update(kiln_batch *b, size_t context, const kiln_tensor *gradients, void *user)
{
    (void)context, (void)user;
    return kiln_optimizer_step(b, world.optimizer, gradients);
}

static size_t right_ones(void)
{
    size_t first = world.digits.count - TEST_ROWS;
    kiln_tensor parameters[PARAMETERS];
    int64_t right = 0;
    kiln_batch *b = kiln_batch_create(world.context);
    kiln_tensor logits =
        logits_of(b, world.digits.pixels + first * DIGIT_PIXELS, TEST_ROWS, parameters);
    kiln_tensor labels =
        kiln_upload(b, KILN_U8, 1, (size_t[]){TEST_ROWS}, world.digits.labels + first);
    kiln_tensor answers = kiln_argmax(b, logits, 1, (const int[]){1}, 0);
    kiln_tensor hits = kiln_equal(b, answers, kiln_cast(b, labels, KILN_I32));
    kiln_read(b, kiln_sum(b, hits, 0, NULL, 0), &right, sizeof right);
    ok(kiln_batch_execute(b), "the test");
    kiln_batch_release(b);
    return (size_t)right;
}

/* ---- weights, in one rank and in all ---- */

/* Uniform with variance 2 / inputs; biases 0. */
static void make_parameter(int i, size_t rank, const size_t *dims, double reach)
{
    ok(kiln_buffer_create(world.context, KILN_F32, rank, dims, &world.parameters[i]), names[i]);
    size_t count = kiln_buffer_bytes(world.parameters[i]) / sizeof(float);
    float *values = calloc(count, sizeof *values);
    if (!values)
        ok(KILN_OUT_OF_HOST_MEMORY, names[i]);
    for (size_t k = 0; k < count; k++)
        values[k] = (float)(reach * (next_random(1 << 20) / (double)(1 << 19) - 1));
    ok(kiln_buffer_write(world.parameters[i], 0, values, count * sizeof *values), names[i]);
    free(values);
}

static kiln_optimizer *make_optimizer(kiln_buffer *const *of)
{
    kiln_optimizer_options how = KILN_ADAMW_INIT;
    kiln_optimizer *made;
    how.learning_rate = 0.005;
    ok(kiln_optimizer_create(world.context, &how, PARAMETERS, of, &made), "the optimizer");
    return made;
}

static void make_network(void)
{
    const kiln_reducer *reducer = options.shard ? kiln_mpi_reducer(world.mpi) : NULL;
    random_state = 2026;
    make_parameter(0, 2, (size_t[]){DIGIT_PIXELS, HIDDEN}, sqrt(6.0 / DIGIT_PIXELS));
    make_parameter(1, 1, (size_t[]){HIDDEN}, 0);
    make_parameter(2, 2, (size_t[]){HIDDEN, CLASSES}, sqrt(6.0 / HIDDEN));
    make_parameter(3, 1, (size_t[]){CLASSES}, 0);
    for (int i = 0; i < PARAMETERS; i++)
        ok(kiln_shard_create(world.context, reducer, world.parameters[i], &world.shards[i]),
           names[i]);
    world.optimizer = make_optimizer(world.shards);
    ok(kiln_buffer_create(world.context, KILN_I32, 0, NULL, &world.epoch), "the epoch");
}

/* What files are written from, and read into: in the first rank, and NULL in the others. */
static kiln_optimizer *open_whole(void)
{
    if (world.rank > 0)
        return NULL;
    return options.shard ? make_optimizer(world.parameters) : world.optimizer;
}

static void close_whole(kiln_optimizer *whole)
{
    if (options.shard)
        kiln_optimizer_release(whole);
}

/* All that training goes on from; returns how much that is. */
static size_t list(const kiln_optimizer *whole, kiln_buffer **buffers, const char **words,
                   const char ***owned)
{
    size_t count, n = 0;
    kiln_buffer *const *state = kiln_optimizer_state(whole, &count);
    ok(kiln_optimizer_state_names(whole, names, owned), "names");
    words[n] = "epochs";
    buffers[n++] = world.epoch;
    for (size_t i = 0; i < PARAMETERS; i++, n++) {
        words[n] = names[i];
        buffers[n] = world.parameters[i];
    }
    for (size_t i = 0; i < count && n < MOST_SAVED; i++, n++) {
        words[n] = (*owned)[i];
        buffers[n] = state[i];
    }
    return n;
}

static void load(const kiln_optimizer *whole)
{
    kiln_buffer *buffers[MOST_SAVED];
    const char *words[MOST_SAVED], **owned;
    size_t n = list(whole, buffers, words, &owned);
    ok(kiln_load_into(options.resume, n, words, buffers), "going on");
    kiln_free(owned);
}

/* The first rank has the file; what it has then, all have. */
static int begin(void)
{
    size_t count;
    int32_t epoch = 0;
    kiln_optimizer *whole = open_whole();
    kiln_buffer *const *state = kiln_optimizer_state(world.optimizer, &count);
    ok(kiln_buffer_write(world.epoch, 0, &epoch, sizeof epoch), "the epoch");
    if (options.resume && world.rank == 0)
        load(whole);
    ok(kiln_mpi_broadcast(world.mpi, 1, &world.epoch, 0), "the first epoch");
    ok(kiln_mpi_broadcast(world.mpi, PARAMETERS, world.parameters, 0), "the first weights");
    if (options.shard)
        ok(kiln_mpi_scatter(world.mpi, count, kiln_optimizer_state(whole, NULL), state, 0),
           "the first state");
    else
        ok(kiln_mpi_broadcast(world.mpi, count, state, 0), "the first state");
    ok(kiln_buffer_read(world.epoch, 0, &epoch, sizeof epoch), "the epoch");
    close_whole(whole);
    return epoch;
}

static void write_file(const kiln_optimizer *whole, int32_t epoch)
{
    kiln_buffer *buffers[MOST_SAVED];
    const char *words[MOST_SAVED], **owned;
    size_t n = list(whole, buffers, words, &owned);
    ok(kiln_buffer_write(world.epoch, 0, &epoch, sizeof epoch), "the epoch");
    ok(kiln_save(options.save, n, words, buffers), "saving");
    kiln_free(owned);
}

/* All ranks do, as each may have a part. */
static void save(int32_t epoch)
{
    size_t count;
    kiln_optimizer *whole = open_whole();
    kiln_buffer *const *state = kiln_optimizer_state(world.optimizer, &count);
    if (options.shard)
        ok(kiln_mpi_gather(world.mpi, count, state, kiln_optimizer_state(whole, NULL)),
           "the whole state");
    if (world.rank == 0)
        write_file(whole, epoch);
    close_whole(whole);
}

/* ---- training ---- */

/* The mean loss over all rows of all ranks. */
static double run_epoch(int epoch, size_t *order, size_t rows)
{
    double sum = 0;
    shuffle(epoch, order, rows);
    size_t batches = rows / BATCH_ROWS;
    for (size_t i = 0; i < batches; i++) {
        put_rows(order + i * BATCH_ROWS);
        ok(kiln_parallel_step(world.parallel), "a step");
        sum += (double)world.loss * (double)world.rows;
    }
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum / (double)(batches * BATCH_ROWS);
}

static void train(void)
{
    const double share = (double)world.rows;
    const size_t rows = world.digits.count - TEST_ROWS;
    size_t *order = calloc(rows, sizeof *order);
    kiln_training training = KILN_TRAINING_INIT;
    training.record = record;
    training.update = update;
    training.gradient_count = PARAMETERS;
    training.shares = &share;
    training.reducer = kiln_mpi_reducer(world.mpi);
    if (options.shard) {
        training.weights = world.parameters;
        training.shards = world.shards;
    }
    int epoch = begin(), end = options.stop ? options.stop : options.epochs;
    ok(kiln_parallel_create(&world.context, 1, &training, &world.parallel), "training");
    for (; epoch < end; epoch++) {
        double loss = run_epoch(epoch, order, rows);
        if (world.rank == 0)
            printf("epoch %3d  loss %.5f\n", epoch + 1, loss);
    }
    if (options.save)
        save(end);
    kiln_parallel_release(world.parallel);
    free(order);
}

/* ---- the program ---- */

static void open_rank(void)
{
    kiln_context_options how = KILN_CONTEXT_OPTIONS_INIT;
    MPI_Comm machine;
    int local;
    MPI_Comm_rank(MPI_COMM_WORLD, &world.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world.ranks);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_rank(machine, &local);
    MPI_Comm_free(&machine);
    if (options.device_count)
        how.device = options.devices[local % options.device_count];
    size_t rank = (size_t)world.rank, ranks = (size_t)world.ranks;
    world.first = BATCH_ROWS * rank / ranks;
    world.rows = BATCH_ROWS * (rank + 1) / ranks - world.first;
    if (world.ranks > BATCH_ROWS)
        ok(kiln_error_set(KILN_INVALID_ARGUMENT, "more ranks than rows of a batch"), "ranks");
    ok(kiln_context_create(&how, &world.context), "a context");
    ok(kiln_mpi_create(MPI_COMM_WORLD, NULL, &world.mpi), "the ranks");
    if (digits_read(DIGITS_DATA, &world.digits))
        ok(kiln_error_set(KILN_IO_ERROR, "no digits"), "reading");
}

static void close_rank(void)
{
    kiln_mpi_release(world.mpi);
    kiln_optimizer_release(world.optimizer);
    for (int i = 0; i < PARAMETERS; i++) {
        kiln_buffer_release(world.shards[i]);
        kiln_buffer_release(world.parameters[i]);
    }
    kiln_buffer_release(world.epoch);
    kiln_context_release(world.context);
    digits_free(&world.digits);
}

static const char usage[] =
    "usage: mpirun -n RANKS train_mpi [--epochs N] [--stop EPOCH] [--save FILE] [--resume FILE] "
    "[--shard] [DEVICE...]\n"
    "      --epochs N     so many epochs (10)\n"
    "      --stop EPOCH   end training after that epoch\n"
    "      --save FILE    leave there, then, all that training goes on from\n"
    "      --resume FILE  go on from there, with any number of ranks\n"
    "      --shard        each rank keeps a part of the optimiser's state\n"
    "  DEVICE...          devices for the ranks of a machine, in turn\n";

static int read_options(int argc, char **argv)
{
    static const struct option known[] = {{"epochs", required_argument, NULL, 'e'},
                                          {"stop", required_argument, NULL, 't'},
                                          {"save", required_argument, NULL, 's'},
                                          {"resume", required_argument, NULL, 'r'},
                                          {"shard", no_argument, NULL, 'd'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    for (int key; (key = getopt_long(argc, argv, "h", known, NULL)) != -1;)
        switch (key) {
        case 'e': options.epochs = atoi(optarg); break;
        case 't': options.stop = atoi(optarg); break;
        case 's': options.save = optarg; break;
        case 'r': options.resume = optarg; break;
        case 'd': options.shard = true; break;
        default: fputs(usage, key == 'h' ? stdout : stderr); return key == 'h' ? 0 : 2;
        }
    options.devices = argv + optind;
    options.device_count = argc - optind;
    return -1;
}

int main(int argc, char **argv)
{
    int level, answer = read_options(argc, argv);
    if (answer >= 0)
        return answer;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    open_rank();
    make_network();
    train();
    size_t right = right_ones();
    if (world.rank == 0)
        printf("%zu of %d right (%.1f%%) by %d ranks\n", right, TEST_ROWS,
               100.0 * (double)right / TEST_ROWS, world.ranks);
    close_rank();
    MPI_Finalize();
    int ended =
        !options.stop || options.stop >= options.epochs; /* else it has not learned enough yet */
    return right * 100 >= TEST_ROWS * 85 || !ended || options.epochs < 10 ? 0 : 1;
}
