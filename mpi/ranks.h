/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a communicator, and what they do together.
 *
 * All MPI calls of a kiln_mpi that wait for others are works, in an order that is the same in all
 * ranks. A thread begins each at once, lets MPI go on with those under way, and gives up on them
 * all where nothing has ended for too long. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include <kiln/mpi.h>

/* Works between the first that is under way and the last: who begins another one waits. */
#define KILN__MPI_MOST_WORKS 64

struct kiln__mpi_work {
    /* Answers what MPI has answered. */
    int (*begin)(kiln_mpi *mpi, struct kiln__mpi_work *work);
    void *values;
    const float *own; /* what this rank adds, if not in place */
    int count;
    int root;
    size_t bytes; /* of an element that is gathered */
    MPI_Request request;
};

struct kiln_mpi {
    MPI_Comm comm; /* a copy, which returns errors */
    int rank, ranks;
    kiln_mpi_options options;
    kiln_reducer reducer;
    pthread_t thread;
    bool has_thread;

    /* Works from `done` up to `begun` belong to the thread. */
    struct kiln__mpi_work works[KILN__MPI_MOST_WORKS];
    int *ranges; /* of each work: how many elements each rank has, and where they begin */

    /* Of a step's gradients, where a sum is not made in place. */
    float *copies;
    size_t copied, room;

    /* Of who agrees: MPI may have them for ever. */
    int pair[2];
    double numbers[2];

    pthread_mutex_t lock;   /* guards what follows */
    pthread_cond_t changed; /* any of it */
    size_t begun, done, awaited;
    bool over;
    kiln_status broken; /* for good; the sentence says why */
    char sentence[480];
};

/* The sentence becomes the thread's last error of kiln. Returns `status`. */
kiln_status kiln__mpi_fail(kiln_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What MPI's answer `code` means, in a sentence on `doing`, of at most `size` bytes. */
void kiln__mpi_words(char *sentence, size_t size, const char *doing, int code);

/* Seconds on a clock that nobody sets. */
double kiln__mpi_now(void);

/* Between two looks at what is under way since `began`. */
void kiln__mpi_pause(double began);

/* Begin a work: a copy of `work`. Errors: those that broke an earlier one. */
kiln_status kiln__mpi_begin(kiln_mpi *mpi, const struct kiln__mpi_work *work);

/* Wait for the oldest work that nobody has waited for. Errors: TIMED_OUT, IO_ERROR; the memory of
 * all works that are under way is MPI's for ever then. */
kiln_status kiln__mpi_wait(kiln_mpi *mpi);

/* Both of one. */
kiln_status kiln__mpi_do(kiln_mpi *mpi, const struct kiln__mpi_work *work);

/* Works: sums and largest numbers of each rank's, in place of them, or of its kiln_shard_range() at
 * their beginning; what each rank has in that range, to all; bytes of `root`'s. */
int kiln__mpi_sum_shard(kiln_mpi *mpi, struct kiln__mpi_work *work);
int kiln__mpi_gather_shards(kiln_mpi *mpi, struct kiln__mpi_work *work);
int kiln__mpi_sum_floats(kiln_mpi *mpi, struct kiln__mpi_work *work);
int kiln__mpi_sum_doubles(kiln_mpi *mpi, struct kiln__mpi_work *work);
int kiln__mpi_largest_doubles(kiln_mpi *mpi, struct kiln__mpi_work *work);
int kiln__mpi_broadcast_bytes(kiln_mpi *mpi, struct kiln__mpi_work *work);

/* KILN_OK if `own` is that in all ranks, else an error in all: `own`, whose sentence is the last
 * error already, or one that names the rank. */
kiln_status kiln__mpi_agree(kiln_mpi *mpi, kiln_status own, const char *call);

/* Whether a size is the same in all ranks. Errors: SHAPE_MISMATCH in all, naming the call. */
kiln_status kiln__mpi_compare(kiln_mpi *mpi, const char *call, const char *what, size_t size);

/* ---- content of buffers, through a bucket of host memory ---- */

/* What fails in one rank, the others go on with, as all wait for each other. */
struct kiln__mpi_passage {
    kiln_mpi *mpi;
    const char *call;
    char *memory;
    kiln_status status;  /* the first error of this rank's buffers */
    kiln_status travels; /* of MPI: nothing is sent any more */
};

/* INVALID_ARGUMENT, naming the call, if one is NULL, or there is no such rank. */
kiln_status kiln__mpi_check_buffers(size_t n, kiln_buffer *const *buffers, const char *call);
kiln_status kiln__mpi_check_root(const kiln_mpi *mpi, int root, const char *call);

/* Memory for it; an error in all if `own` is one in any. */
kiln_status kiln__mpi_depart(struct kiln__mpi_passage *passage, kiln_status own);

/* Bytes, a bucket at most, of rank `root`'s buffer from byte `at` on, to the memory of all. */
void kiln__mpi_send(struct kiln__mpi_passage *passage, int root, kiln_buffer *from, size_t at,
                    size_t bytes);

/* The same from byte `from` of the memory to a buffer of this rank. */
void kiln__mpi_take(struct kiln__mpi_passage *passage, kiln_buffer *to, size_t at, size_t from,
                    size_t bytes);

/* The end, to which also comes who has had an error that all know of. Errors: the same in all. */
kiln_status kiln__mpi_arrive(struct kiln__mpi_passage *passage, kiln_status made);

/* The thread, of a kiln_mpi. */
void *kiln__mpi_work_thread(void *argument);

/* What kiln_mpi_reducer() has. */
kiln_reducer kiln__mpi_make_reducer(kiln_mpi *mpi);
