/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks come together, and part. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/ranks.h"

enum { USUAL_SECONDS = 600, LARGEST_BUCKET = 1 << 30, USUAL_BUCKET = 4 << 20 };

static const char call[] = "kiln_mpi_create";

/* ---- options, in the caller's size ---- */

void(kiln_mpi_options_init)(kiln_mpi_options *options, size_t size)
{
    const kiln_mpi_options own = KILN_MPI_OPTIONS_INIT;
    if (!options || size < sizeof size)
        return;
    memset(options, 0, size);
    memcpy(options, &own, size < sizeof own ? size : sizeof own);
    options->size = size;
}

static kiln_status read_options(const kiln_mpi_options *options, kiln_mpi_options *own)
{
    *own = (kiln_mpi_options)KILN_MPI_OPTIONS_INIT;
    if (options) {
        const size_t size = options->size, common = size < sizeof *own ? size : sizeof *own;
        if (size < sizeof size || size > 4096 || size % _Alignof(kiln_mpi_options))
            return kiln__mpi_fail(KILN_INVALID_ARGUMENT,
                                  "%s: options->size is %zu; start from KILN_MPI_OPTIONS_INIT",
                                  call, size);
        for (size_t i = common; i < size; i++)
            if (((const char *)options)[i])
                return kiln__mpi_fail(KILN_UNSUPPORTED,
                                      "%s: options has fields that this version of kiln has not, "
                                      "and they are not 0",
                                      call);
        memcpy(own, options, common);
    }
    own->bucket_bytes = own->bucket_bytes ? own->bucket_bytes : USUAL_BUCKET;
    own->timeout_s = own->timeout_s ? own->timeout_s : USUAL_SECONDS;
    if (own->bucket_bytes < sizeof(float) || own->bucket_bytes > LARGEST_BUCKET)
        return kiln__mpi_fail(KILN_INVALID_ARGUMENT,
                              "%s: options->bucket_bytes is %zu, and 4 to %d are taken", call,
                              own->bucket_bytes, LARGEST_BUCKET);
    return KILN_OK;
}

/* ---- MPI ---- */

static kiln_status check_mpi(MPI_Comm comm)
{
    int begun = 0, ended = 0, level = 0, between = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    if (!begun || ended)
        return kiln__mpi_fail(KILN_WRONG_STATE, "%s: MPI is %s", call,
                              begun ? "finalized" : "not initialised: call MPI_Init_thread()");
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED)
        return kiln__mpi_fail(KILN_WRONG_STATE,
                              "%s: MPI is for one thread alone: call MPI_Init_thread() with "
                              "MPI_THREAD_SERIALIZED",
                              call);
    if (comm == MPI_COMM_NULL)
        return kiln__mpi_fail(KILN_INVALID_ARGUMENT, "%s: comm is MPI_COMM_NULL", call);
    MPI_Comm_test_inter(comm, &between);
    return between ? kiln__mpi_fail(KILN_INVALID_ARGUMENT,
                                    "%s: comm joins two groups; merge them first", call)
                   : KILN_OK;
}

/* MPI_Comm_dup() with a bound, of a communicator that returns errors. */
static kiln_status copy_returning(kiln_mpi *mpi, MPI_Comm comm)
{
    char sentence[480];
    MPI_Request request;
    int is_done = 0, code = MPI_Comm_idup(comm, &mpi->comm, &request);
    for (double began = kiln__mpi_now(); code == MPI_SUCCESS && !is_done;) {
        const bool is_late = kiln__mpi_now() - began > mpi->options.timeout_s;
        code = MPI_Test(&request, &is_done, MPI_STATUS_IGNORE);
        if (!is_done && is_late) {
            mpi->comm = MPI_COMM_NULL; /* MPI's for ever, as the structure is */
            return kiln__mpi_fail(KILN_TIMED_OUT,
                                  "%s: the other ranks have not called it within %u s", call,
                                  mpi->options.timeout_s);
        }
        if (!is_done)
            kiln__mpi_pause(began);
    }
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_rank(mpi->comm, &mpi->rank);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_size(mpi->comm, &mpi->ranks);
    if (code == MPI_SUCCESS)
        return KILN_OK;
    kiln__mpi_words(sentence, sizeof sentence, call, code);
    return kiln_error_set(KILN_IO_ERROR, sentence);
}

/* The usual handler of the program's communicator would end the process. It is there again
 * afterwards. */
static kiln_status copy_communicator(kiln_mpi *mpi, MPI_Comm comm)
{
    MPI_Errhandler usual;
    MPI_Comm_get_errhandler(comm, &usual);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    kiln_status status = copy_returning(mpi, comm);
    MPI_Comm_set_errhandler(comm, usual);
    MPI_Errhandler_free(&usual);
    return status;
}

/* Signals are for the program's own threads. */
static kiln_status start_thread(kiln_mpi *mpi)
{
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int error = pthread_create(&mpi->thread, NULL, kiln__mpi_work_thread, mpi);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    mpi->has_thread = !error;
    return error
               ? kiln__mpi_fail(KILN_OUT_OF_HOST_MEMORY, "%s: no thread: %s", call, strerror(error))
               : KILN_OK;
}

static kiln_status no_memory(void)
{
    return kiln__mpi_fail(KILN_OUT_OF_HOST_MEMORY, "%s: no memory", call);
}

kiln_status kiln_mpi_create(MPI_Comm comm, const kiln_mpi_options *options, kiln_mpi **result)
{
    kiln_mpi_options own;
    if (!result)
        return kiln__mpi_fail(KILN_INVALID_ARGUMENT, "%s: mpi is NULL", call);
    *result = NULL;
    kiln_status status = read_options(options, &own);
    if (!status)
        status = check_mpi(comm);
    if (status)
        return status;
    kiln_mpi *mpi = calloc(1, sizeof *mpi);
    if (!mpi)
        return no_memory();
    mpi->options = own;
    mpi->comm = MPI_COMM_NULL;
    pthread_mutex_init(&mpi->lock, NULL);
    pthread_cond_init(&mpi->changed, NULL);
    status = copy_communicator(mpi, comm);
    if (status && own.aborts) {
        fprintf(stderr, "%s\n", kiln_last_error());
        MPI_Abort(comm, 1);
    }
    if (status == KILN_TIMED_OUT)
        return status;
    if (!status)
        status = start_thread(mpi);
    if (!status) {
        mpi->ranges = calloc((size_t)mpi->ranks * 2 * KILN__MPI_MOST_WORKS, sizeof *mpi->ranges);
        status = kiln__mpi_agree(mpi, mpi->ranges ? KILN_OK : no_memory(), call);
    }
    if (!status) /* pieces end where those of the other ranks do */
        status = kiln__mpi_compare(mpi, call, "bytes in a bucket", own.bucket_bytes);
    mpi->reducer = kiln__mpi_make_reducer(mpi);
    if (status)
        kiln_mpi_release(mpi);
    else
        *result = mpi;
    return status;
}

const kiln_reducer *kiln_mpi_reducer(const kiln_mpi *mpi)
{
    return mpi ? &mpi->reducer : NULL;
}

void kiln_mpi_release(kiln_mpi *mpi)
{
    int ended = 0;
    if (!mpi)
        return;
    pthread_mutex_lock(&mpi->lock);
    mpi->over = true;
    pthread_cond_broadcast(&mpi->changed);
    pthread_mutex_unlock(&mpi->lock);
    if (mpi->has_thread)
        pthread_join(mpi->thread, NULL);
    if (mpi->broken) /* MPI may still write into it */
        return;
    MPI_Finalized(&ended);
    if (!ended && mpi->comm != MPI_COMM_NULL)
        MPI_Comm_free(&mpi->comm);
    pthread_cond_destroy(&mpi->changed);
    pthread_mutex_destroy(&mpi->lock);
    free(mpi->copies);
    free(mpi->ranges);
    free(mpi);
}
