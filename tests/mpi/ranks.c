/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks do together, case after case: tests/mpi/test_mpi.sh starts as many as it needs.
 *
 *     mpirun -n 2 ranks CASE...
 *
 * The exit status of each rank is 0 if all was as it should be; else it says what was not. */
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../../mpi/ranks.h"
#include "network.h"

kiln_mpi *mpi;

static void join(const kiln_mpi_options *options)
{
    ok(kiln_mpi_create(MPI_COMM_WORLD, options, &mpi), "kiln_mpi_create");
}

/* ---- cases ---- */

/* Two contexts in each rank, with memory of their own; buckets that end within gradients.
 * The losses of one context, to rounding; weights that are the same bits everywhere. */
static void losses(void)
{
    double wanted[STEPS], found[STEPS];
    kiln_mpi_options options = KILN_MPI_OPTIONS_INIT;
    options.bucket_bytes = 1204;
    open_world(1, 0, ROWS, 3);
    world.shares[0] = (double)ROWS / ranks; /* each rank has all rows */
    ok(create(NULL), "training alone");
    step_all(wanted);
    close_world();
    join(&options);
    open_share(CONTEXTS, rank ? 77 : 3); /* others get the first rank's weights */
    kiln_buffer *weights[] = {world.a[0], world.b[0], world.a[1], world.b[1]};
    ok(kiln_mpi_broadcast(mpi, 4, weights, 0), "kiln_mpi_broadcast");
    ok(create(kiln_mpi_reducer(mpi)), "training together");
    step_all(found);
    for (int i = 0; i < STEPS; i++)
        expect(fabs(found[i] - wanted[i]) <= 1e-5 * wanted[i], "another loss than one context's");
    expect(found[STEPS - 1] < found[0], "nothing is learned");
    expect_equal_weights();
    close_world();
}

/* A step that fails in the last rank changes no weights in any, and may be made again. */
static void step_fails(void)
{
    float before[WEIGHTS], after[WEIGHTS];
    char told[128];
    const int last = ranks - 1;
    snprintf(told, sizeof told, "rank %d of %d has failed (BAD_VALUE); its own sentence says why",
             last, ranks);
    join(NULL);
    open_share(1, 3);
    ok(create(kiln_mpi_reducer(mpi)), "training");
    ok(kiln_parallel_step(world.parallel), "the first step");
    read_weights(0, before);
    float whole = x[world.first[0] * IN];
    if (rank == last)
        x[world.first[0] * IN] = 3e38f; /* its square is too much */
    expect_error(kiln_parallel_step(world.parallel), KILN_BAD_VALUE,
                 rank == last ? "kiln_parallel_step: context 0, deriving: " : told);
    read_weights(0, after);
    expect(!memcmp(before, after, sizeof before), "weights changed in a step that failed");
    x[world.first[0] * IN] = whole;
    ok(kiln_parallel_step(world.parallel), "the step again");
    expect_equal_weights();
    close_world();
}

/* An update that fails in the last rank: no rank makes another step, until all have the same
 * weights again. */
static void update_fails(void)
{
    char told[128];
    const int last = ranks - 1;
    snprintf(told, sizeof told,
             "updating: kiln_parallel_step: rank %d of %d has failed (DEVICE_ERROR)", last, ranks);
    join(NULL);
    open_share(1, 3);
    ok(create(kiln_mpi_reducer(mpi)), "training");
    if (rank == last)
        fail_next_update();
    else
        ok(kiln_parallel_step(world.parallel), "the first step");
    expect_error(kiln_parallel_step(world.parallel), KILN_DEVICE_ERROR,
                 rank == last ? "kiln_parallel_step: context 0, updating: " : told);
    expect_error(kiln_parallel_step(world.parallel), KILN_WRONG_STATE,
                 "kiln_parallel_step: an update has failed, and weights may differ");
    kiln_parallel_release(world.parallel);
    kiln_buffer *weights[] = {world.a[0], world.b[0]};
    ok(kiln_mpi_broadcast(mpi, 2, weights, 0), "kiln_mpi_broadcast");
    ok(create(kiln_mpi_reducer(mpi)), "training again");
    ok(kiln_parallel_step(world.parallel), "a step");
    expect_equal_weights();
    close_world();
}

/* What is wrong in one rank, all are told. */
static void making_fails(void)
{
    const int last = ranks - 1;
    join(NULL);
    open_share(1, 3);
    world.answer = rank == last ? KILN_UNSUPPORTED : KILN_OK;
    expect_error(create(kiln_mpi_reducer(mpi)), KILN_UNSUPPORTED,
                 rank == last ? "the callback answered UNSUPPORTED" : "has failed (UNSUPPORTED)");
    expect(!world.parallel, "a training after an error");
    world.answer = KILN_OK;
    kiln_buffer *buffers[] = {world.a[0], world.b[0]};
    expect_error(kiln_mpi_broadcast(mpi, 1, buffers + (rank == last), 0), KILN_SHAPE_MISMATCH,
                 "kiln_mpi_broadcast: ");
    expect_error(kiln_mpi_broadcast(mpi, 1, buffers, rank == last ? ranks : 0),
                 KILN_INVALID_ARGUMENT, rank == last ? "root is" : "has failed (INVALID_ARGUMENT)");
    ok(kiln_mpi_broadcast(mpi, 2, buffers, last), "kiln_mpi_broadcast");
    ok(create(kiln_mpi_reducer(mpi)), "training");
    ok(kiln_parallel_step(world.parallel), "a step");
    close_world();
}

/* Whose disk is full says so; what was saved before is there, and all ranks go on. */
static void disk_fills(void)
{
    static const char *const names[] = {"a", "b"};
    const struct rlimit small = {1000, RLIM_INFINITY};
    const char *folder = getenv("TMPDIR");
    float saved[WEIGHTS], found[WEIGHTS];
    char path[1024];
    struct rlimit usual;
    join(NULL);
    open_share(1, 3);
    kiln_buffer *buffers[] = {world.a[0], world.b[0]};
    ok(create(kiln_mpi_reducer(mpi)), "training");
    snprintf(path, sizeof path, "%s/kiln-ranks-%ld", folder ? folder : "/tmp", (long)getpid());
    read_weights(0, saved);
    if (rank == 0)
        ok(kiln_save(path, 2, names, buffers), "saving");
    ok(kiln_parallel_step(world.parallel), "a step");
    if (rank == 0) {
        signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &usual);
        setrlimit(RLIMIT_FSIZE, &small);
        expect_error(kiln_save(path, 2, names, buffers), KILN_IO_ERROR, "kiln_save: ");
        setrlimit(RLIMIT_FSIZE, &usual);
    }
    ok(kiln_parallel_step(world.parallel), "a step afterwards");
    expect_equal_weights();
    if (rank == 0) {
        ok(kiln_load_into(path, 2, names, buffers), "what was saved before");
        read_weights(0, found);
        expect(!memcmp(saved, found, sizeof saved), "other weights than were saved");
        remove(path);
    }
    close_world();
}

static void arguments(void)
{
    kiln_mpi_options options = KILN_MPI_OPTIONS_INIT;
    MPI_Comm halves;
    expect_error(kiln_mpi_create(MPI_COMM_NULL, NULL, &mpi), KILN_INVALID_ARGUMENT,
                 "kiln_mpi_create: comm is MPI_COMM_NULL");
    expect_error(kiln_mpi_create(MPI_COMM_WORLD, NULL, NULL), KILN_INVALID_ARGUMENT,
                 "kiln_mpi_create: mpi is NULL");
    options.bucket_bytes = 3;
    expect_error(kiln_mpi_create(MPI_COMM_WORLD, &options, &mpi), KILN_INVALID_ARGUMENT,
                 "kiln_mpi_create: options->bucket_bytes is 3, and 4 to 1073741824 are taken");
    options.size = 3;
    expect_error(kiln_mpi_create(MPI_COMM_WORLD, &options, &mpi), KILN_INVALID_ARGUMENT,
                 "options->size is 3");
    struct {
        kiln_mpi_options known;
        size_t more;
    } longer = {KILN_MPI_OPTIONS_INIT, 1};
    longer.known.size = sizeof longer;
    expect_error(kiln_mpi_create(MPI_COMM_WORLD, &longer.known, &mpi), KILN_UNSUPPORTED,
                 "options has fields that this version of kiln has not");
    kiln_mpi_options_init(&options);
    expect(options.size == sizeof options && !options.bucket_bytes, "no initialised options");
    expect_error(kiln_mpi_broadcast(NULL, 0, NULL, 0), KILN_INVALID_ARGUMENT,
                 "kiln_mpi_broadcast: mpi is NULL");
    expect(!kiln_mpi_reducer(NULL), "a reducer of nothing");
    kiln_mpi_release(NULL);
    options.bucket_bytes = rank ? 64 : 68;
    if (ranks > 1)
        expect_error(kiln_mpi_create(MPI_COMM_WORLD, &options, &mpi), KILN_SHAPE_MISMATCH,
                     "bytes in a bucket in rank");
    /* Each rank by itself, in a communicator of its own. */
    MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &halves);
    longer.more = 0;
    ok(kiln_mpi_create(halves, &longer.known, &mpi), "a communicator of one rank");
    open_world(1, 0, ROWS, 3);
    ok(create(kiln_mpi_reducer(mpi)), "training");
    ok(kiln_parallel_step(world.parallel), "a step");
    close_world();
    MPI_Comm_free(&halves);
}

/* The last rank does something else than the others, after a step. Only from then on `seconds` are
 * the most that is waited: until then the ranks are as late as a busy machine makes them. */
static void leave(int aborts, unsigned seconds, void (*instead)(void))
{
    kiln_mpi_options options = KILN_MPI_OPTIONS_INIT;
    options.aborts = aborts;
    join(&options);
    open_share(1, 3);
    ok(create(kiln_mpi_reducer(mpi)), "training");
    ok(kiln_parallel_step(world.parallel), "a step");
    if (rank == ranks - 1)
        instead();
    mpi->options.timeout_s = seconds;
    expect_error(kiln_parallel_step(world.parallel), KILN_TIMED_OUT,
                 "has waited 1 s for the others: one has ended or does not answer");
    /* Nothing goes on from here, nor waits. */
    expect_error(kiln_parallel_step(world.parallel), KILN_TIMED_OUT, "has waited 1 s");
    expect_error(kiln_mpi_broadcast(mpi, 1, world.a, 0), KILN_TIMED_OUT, "has waited 1 s");
    fprintf(stderr, "rank %d: %s\n", rank, kiln_last_error());
    close_world();
    kiln_mpi_release(mpi);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/* No process is ended by the handlers of the program's communicators. */
static void mpi_fails(void)
{
    MPI_Errhandler before, after;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    failing = COMM_IDUP;
    expect_error(kiln_mpi_create(MPI_COMM_WORLD, NULL, &mpi), KILN_IO_ERROR,
                 "kiln_mpi_create: MPI says: ");
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
    expect(before == after && before == MPI_ERRORS_ARE_FATAL, "the program's handler has changed");
    join(NULL);
    open_share(1, 3);
    ok(create(kiln_mpi_reducer(mpi)), "training");
    failing = IALLREDUCE;
    expect_error(kiln_parallel_step(world.parallel), KILN_IO_ERROR, "MPI says: ");
    expect_error(kiln_mpi_broadcast(mpi, 1, world.a, 0), KILN_IO_ERROR, "MPI says: ");
    close_world();
}

static void sleep_long(void)
{
    sleep(600);
}

static void die(void)
{
    raise(SIGKILL);
}

static void is_silent(void)
{
    leave(0, 1, sleep_long);
}

static void is_silent_and_aborts(void)
{
    leave(1, 1, sleep_long);
}

/* The launcher is sooner. */
static void dies(void)
{
    leave(0, 600, die);
}

/* Where the launcher does not look: tests/mpi/test_mpi.sh hides it. */
static void dies_unseen(void)
{
    leave(0, 1, die);
}

static kiln_mpi_options hasty(int aborts)
{
    kiln_mpi_options options = KILN_MPI_OPTIONS_INIT;
    options.timeout_s = 1;
    options.aborts = aborts;
    return options;
}

static void comes_not(void)
{
    const kiln_mpi_options options = hasty(0);
    if (rank == ranks - 1)
        sleep_long();
    expect_error(kiln_mpi_create(MPI_COMM_WORLD, &options, &mpi), KILN_TIMED_OUT,
                 "kiln_mpi_create: the other ranks have not called it within 1 s");
    fprintf(stderr, "rank %d: %s\n", rank, kiln_last_error());
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void comes_not_and_aborts(void)
{
    const kiln_mpi_options options = hasty(1);
    if (rank == ranks - 1)
        sleep_long();
    expect(kiln_mpi_create(MPI_COMM_WORLD, &options, &mpi), "all came");
}

static void one_thread(void)
{
    expect_error(kiln_mpi_create(MPI_COMM_WORLD, NULL, &mpi), KILN_WRONG_STATE,
                 "kiln_mpi_create: MPI is for one thread alone");
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"losses", losses},
             {"step-fails", step_fails},
             {"update-fails", update_fails},
             {"mpi-fails", mpi_fails},
             {"making-fails", making_fails},
             {"disk-fills", disk_fills},
             {"sharded", sharded},
             {"sharding-fails", sharding_fails},
             {"arguments", arguments},
             {"silent", is_silent},
             {"silent-aborts", is_silent_and_aborts},
             {"dies", dies},
             {"dies-unseen", dies_unseen},
             {"comes-not", comes_not},
             {"comes-not-aborts", comes_not_and_aborts},
             {"one-thread", one_thread}};

static void run(const char *name)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(cases[i].name, name)) {
            cases[i].run();
            kiln_mpi_release(mpi);
            mpi = NULL;
            return;
        }
    expect(0, "no such case");
}

int main(int argc, char **argv)
{
    int level;
    bool single = argc > 1 && !strcmp(argv[1], "one-thread");
    expect_error(kiln_mpi_create(MPI_COMM_WORLD, NULL, &mpi), KILN_WRONG_STATE,
                 "kiln_mpi_create: MPI is not initialised");
    MPI_Init_thread(&argc, &argv, single ? MPI_THREAD_SINGLE : MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i < argc; i++)
        run(argv[i]);
    MPI_Finalize();
    for (int i = 1; i < argc && rank == 0; i++)
        printf("%s%s", argv[i], i + 1 < argc ? " " : ": well\n");
    return 0;
}
