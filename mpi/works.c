/* SPDX-License-Identifier: Apache-2.0 */
/* Works of the ranks: begun by those who want them, brought to their end by a thread. */
#include "mpi/ranks.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "util/format.h"

/* ---- sentences and time ---- */

kiln_status kiln__mpi_fail(kiln_status status, const char *format, ...)
{
    char sentence[480];
    va_list arguments;
    va_start(arguments, format);
    kiln__vformat(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return kiln_error_set(status, sentence);
}

void kiln__mpi_words(char *sentence, size_t size, const char *doing, int code)
{
    char words[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(code, words, &length);
    snprintf(sentence, size, "%s: MPI says: %.300s", doing, words);
}

double kiln__mpi_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Other ranks may need the processor, and the device certainly does. A rank that is a second late
 * is compiling, or worse. */
void kiln__mpi_pause(double began)
{
    double waited = kiln__mpi_now() - began;
    if (waited < 20e-6)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = waited < 1 ? 50 * 1000 : 1000 * 1000}, NULL);
}

/* ---- for those who want works ---- */

/* With the lock. */
static kiln_status say_broken(const kiln_mpi *mpi)
{
    return mpi->broken ? kiln_error_set(mpi->broken, mpi->sentence) : KILN_OK;
}

kiln_status kiln__mpi_begin(kiln_mpi *mpi, const struct kiln__mpi_work *work)
{
    pthread_mutex_lock(&mpi->lock);
    while (mpi->begun - mpi->done == KILN__MPI_MOST_WORKS && !mpi->broken)
        pthread_cond_wait(&mpi->changed, &mpi->lock);
    kiln_status status = say_broken(mpi);
    if (!status) {
        mpi->works[mpi->begun++ % KILN__MPI_MOST_WORKS] = *work;
        pthread_cond_broadcast(&mpi->changed);
    }
    pthread_mutex_unlock(&mpi->lock);
    return status;
}

kiln_status kiln__mpi_wait(kiln_mpi *mpi)
{
    pthread_mutex_lock(&mpi->lock);
    while (mpi->done == mpi->awaited && !mpi->broken)
        pthread_cond_wait(&mpi->changed, &mpi->lock);
    kiln_status status = say_broken(mpi);
    if (!status)
        mpi->awaited++;
    pthread_mutex_unlock(&mpi->lock);
    return status;
}

kiln_status kiln__mpi_do(kiln_mpi *mpi, const struct kiln__mpi_work *work)
{
    kiln_status status = kiln__mpi_begin(mpi, work);
    return status ? status : kiln__mpi_wait(mpi);
}

/* ---- the thread ---- */

static void break_down(kiln_mpi *mpi, kiln_status status, const char *sentence)
{
    if (mpi->options.aborts) {
        fprintf(stderr, "%s\n", sentence);
        MPI_Abort(mpi->comm, 1);
    }
    pthread_mutex_lock(&mpi->lock);
    mpi->broken = status;
    snprintf(mpi->sentence, sizeof mpi->sentence, "%s", sentence);
    pthread_cond_broadcast(&mpi->changed);
    pthread_mutex_unlock(&mpi->lock);
}

static void break_by_mpi(kiln_mpi *mpi, int code)
{
    char doing[64], sentence[480];
    snprintf(doing, sizeof doing, "kiln_mpi: rank %d of %d", mpi->rank, mpi->ranks);
    kiln__mpi_words(sentence, sizeof sentence, doing, code);
    break_down(mpi, KILN_IO_ERROR, sentence);
}

static void break_by_time(kiln_mpi *mpi)
{
    char sentence[480];
    snprintf(sentence, sizeof sentence,
             "kiln_mpi: rank %d of %d has waited %u s for the others: one has ended or does not "
             "answer",
             mpi->rank, mpi->ranks, mpi->options.timeout_s);
    break_down(mpi, KILN_TIMED_OUT, sentence);
}

/* Sleeps until there is a work under way; none comes any more if there is none then. */
static bool next_work(kiln_mpi *mpi, size_t *begun)
{
    pthread_mutex_lock(&mpi->lock);
    while (mpi->begun == mpi->done && !mpi->over)
        pthread_cond_wait(&mpi->changed, &mpi->lock);
    bool is_there = mpi->begun != mpi->done;
    *begun = mpi->begun;
    pthread_mutex_unlock(&mpi->lock);
    return is_there;
}

static void note_done(kiln_mpi *mpi)
{
    pthread_mutex_lock(&mpi->lock);
    mpi->done++;
    pthread_cond_broadcast(&mpi->changed);
    pthread_mutex_unlock(&mpi->lock);
}

void *kiln__mpi_work_thread(void *argument)
{
    kiln_mpi *mpi = argument;
    size_t started = 0, done = 0, begun;
    double since = 0;
    while (next_work(mpi, &begun)) { /* however late it is, it looks once more */
        int code = MPI_SUCCESS, is_done = 0;
        if (started == done)
            since = kiln__mpi_now();
        for (; started < begun && code == MPI_SUCCESS; started++) {
            struct kiln__mpi_work *work = &mpi->works[started % KILN__MPI_MOST_WORKS];
            code = work->begin(mpi, work);
        }
        const bool is_late = kiln__mpi_now() - since > mpi->options.timeout_s;
        if (code == MPI_SUCCESS)
            code = MPI_Test(&mpi->works[done % KILN__MPI_MOST_WORKS].request, &is_done,
                            MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) {
            break_by_mpi(mpi, code);
            return NULL;
        }
        if (is_done) {
            done++;
            since = kiln__mpi_now();
            note_done(mpi);
        } else if (is_late) {
            break_by_time(mpi);
            return NULL;
        } else {
            kiln__mpi_pause(since);
        }
    }
    return NULL;
}
