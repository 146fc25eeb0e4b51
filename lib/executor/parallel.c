/* SPDX-License-Identifier: Apache-2.0 */
/* step = derive (read meet average meet write)* meet update
 *
 * A thread for each context makes it, and they meet twice for each gradient: when all have read
 * theirs, and when each has averaged its part of it. Whoever fails goes on meeting the others, who
 * then do nothing in between. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kiln/batch.h>
#include <kiln/buffer.h>
#include <kiln/context.h>
#include <kiln/parallel.h>

#include "util/error.h"
#include "util/structure.h"

static const char create_call[] = "kiln_parallel_create", step_call[] = "kiln_parallel_step";

#define MOST_CONTEXTS 64

/* Numbers that are averaged before the next ones are looked at. */
#define PIECE 4096

struct member {
    kiln_parallel *parallel;
    size_t number;
    kiln_context *context;
    double share; /* of 1 */
    kiln_batch *derive, *update;
    kiln_buffer **gradients; /* own ones, then averages */
    float **read;            /* the same in host memory; NULL where there is one context */
    pthread_t thread;
    struct kiln__error error; /* of the last step */
};

struct kiln_parallel {
    pid_t process;
    kiln_training training;
    size_t count;
    struct member *members;
    size_t *elements; /* of each gradient */
    pthread_barrier_t meeting;
    bool can_meet;
    atomic_bool failed; /* somebody did, in this step, before the update */

    pthread_mutex_t lock;   /* guards what follows */
    pthread_cond_t changed; /* `steps` or `over`; or `done` */
    unsigned long steps;
    size_t started, done; /* threads in all; those that have made the step */
    bool over;
};

/* ---- a step, in a member's thread ---- */

static void parallel_fail(struct member *member, kiln_status status, const char *doing)
{
    if (!status || member->error.status)
        return;
    member->error.status = status;
    snprintf(member->error.text, sizeof member->error.text, "%s: context %zu, %s: %s", step_call,
             member->number, doing, kiln_last_error());
}

/* The sum over the contexts in their order, whoever makes it; in place of each context's own. */
static void average_some(const kiln_parallel *parallel, size_t gradient, size_t first, size_t count)
{
    float sums[PIECE] = {0};
    for (size_t m = 0; m < parallel->count; m++) {
        const float *from = parallel->members[m].read[gradient] + first;
        float share = (float)parallel->members[m].share;
        for (size_t i = 0; i < count; i++)
            sums[i] += share * from[i];
    }
    for (size_t m = 0; m < parallel->count; m++)
        memcpy(parallel->members[m].read[gradient] + first, sums, count * sizeof *sums);
}

/* The member's part, in pieces that stay in the caches. */
static void parallel_average(const struct member *member, size_t gradient)
{
    const kiln_parallel *parallel = member->parallel;
    size_t all = parallel->elements[gradient], each = all / parallel->count;
    size_t first = each * member->number;
    size_t end = member->number + 1 == parallel->count ? all : first + each;
    for (size_t i = first; i < end; i += PIECE)
        average_some(parallel, gradient, i, end - i < PIECE ? end - i : PIECE);
}

/* Until all are here; whether nobody has failed so far. */
static bool meet(const struct member *member)
{
    kiln_parallel *parallel = member->parallel;
    if (member->error.status)
        atomic_store(&parallel->failed, true);
    pthread_barrier_wait(&parallel->meeting);
    bool well = !atomic_load(&parallel->failed);
    pthread_barrier_wait(&parallel->meeting); /* all have looked before somebody fails again */
    return well;
}

static void parallel_exchange(struct member *member, size_t gradient)
{
    kiln_parallel *parallel = member->parallel;
    kiln_buffer *buffer = member->gradients[gradient];
    size_t bytes = parallel->elements[gradient] * sizeof(float);
    if (!member->error.status)
        parallel_fail(member, kiln_buffer_read(buffer, 0, member->read[gradient], bytes),
                      "reading a gradient");
    if (meet(member))
        parallel_average(member, gradient);
    if (meet(member))
        parallel_fail(member, kiln_buffer_write(buffer, 0, member->read[gradient], bytes),
                      "writing an average");
}

static void step(struct member *member)
{
    kiln_parallel *parallel = member->parallel;
    kiln_event *event = NULL;
    member->error = (struct kiln__error){0};
    parallel_fail(member, kiln_batch_submit(member->derive, &event), "deriving");
    for (size_t i = parallel->training.gradient_count; i-- > 0 && parallel->count > 1;)
        parallel_exchange(member, i);
    if (event)
        parallel_fail(member, kiln_event_wait(event), "deriving");
    kiln_event_release(event);
    if (meet(member))
        parallel_fail(member, kiln_batch_execute(member->update), "updating");
}

static void *parallel_work(void *argument)
{
    struct member *member = argument;
    kiln_parallel *parallel = member->parallel;
    pthread_mutex_lock(&parallel->lock);
    for (unsigned long made = 0;;) {
        while (parallel->steps == made && !parallel->over)
            pthread_cond_wait(&parallel->changed, &parallel->lock);
        if (parallel->over)
            break;
        made = parallel->steps;
        pthread_mutex_unlock(&parallel->lock);
        step(member);
        pthread_mutex_lock(&parallel->lock);
        if (++parallel->done == parallel->count)
            pthread_cond_broadcast(&parallel->changed);
    }
    pthread_mutex_unlock(&parallel->lock);
    return NULL;
}

kiln_status kiln_parallel_step(kiln_parallel *parallel)
{
    if (!parallel)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: parallel is NULL", step_call);
    if (parallel->process != getpid())
        return kiln__fail(NULL, KILN_FORKED, "%s: its threads are not in the child of a fork",
                          step_call);
    atomic_store(&parallel->failed, false);
    pthread_mutex_lock(&parallel->lock);
    parallel->done = 0;
    parallel->steps++;
    pthread_cond_broadcast(&parallel->changed);
    while (parallel->done < parallel->count)
        pthread_cond_wait(&parallel->changed, &parallel->lock);
    pthread_mutex_unlock(&parallel->lock);
    for (size_t i = 0; i < parallel->count; i++)
        if (parallel->members[i].error.status)
            return kiln__fail(NULL, parallel->members[i].error.status, "%s",
                              parallel->members[i].error.text);
    return KILN_OK;
}

/* ---- making ---- */

static kiln_status parallel_check(kiln_context *const *contexts, size_t n,
                                  const kiln_training *training)
{
    if (!n || n > MOST_CONTEXTS)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %zu contexts, and 1 to %d are taken",
                          create_call, n, MOST_CONTEXTS);
    if (!training->record || !training->update || !training->gradient_count)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: training->%s is %s", create_call,
                          !training->record   ? "record"
                          : !training->update ? "update"
                                              : "gradient_count",
                          training->record && training->update ? "0" : "NULL");
    for (size_t i = 0; i < n; i++) {
        if (!contexts[i])
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: context %zu is NULL", create_call,
                              i);
        if (training->shares && !(training->shares[i] > 0 && training->shares[i] < 1e300))
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: share %zu is %g", create_call, i,
                              training->shares[i]);
        for (size_t k = 0; k < i; k++)
            if (contexts[k] == contexts[i])
                return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                                  "%s: contexts %zu and %zu are the same", create_call, k, i);
    }
    return KILN_OK;
}

static kiln_status no_memory(void)
{
    return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", create_call);
}

/* The first context says what the others have to have. */
static kiln_status take_gradient(struct member *member, size_t i, kiln_tensor tensor)
{
    kiln_parallel *parallel = member->parallel;
    size_t rank, dims[KILN_MAX_RANK], elements = 1;
    kiln_type type;
    kiln_status status = kiln_tensor_shape(member->derive, tensor, &type, &rank, dims);
    if (status)
        return kiln__fail(NULL, status, "%s: context %zu: gradient %zu is no tensor of its batch",
                          create_call, member->number, i);
    for (size_t k = 0; k < rank; k++)
        elements *= dims[k];
    if (type != KILN_F32)
        return kiln__fail(NULL, KILN_TYPE_MISMATCH, "%s: context %zu: gradient %zu is %s, not f32",
                          create_call, member->number, i, kiln_type_name(type));
    if (member->number && elements != parallel->elements[i])
        return kiln__fail(NULL, KILN_SHAPE_MISMATCH,
                          "%s: gradient %zu has %zu elements in context %zu, and %zu in the first",
                          create_call, i, elements, member->number, parallel->elements[i]);
    parallel->elements[i] = elements;
    status = kiln_buffer_create(member->context, type, rank, dims, &member->gradients[i]);
    return status ? status : kiln_export(member->derive, tensor, member->gradients[i]);
}

/* What became of a batch that a callback recorded in and answered `status`. */
static kiln_status parallel_look(const struct member *member, const kiln_batch *batch,
                                 kiln_status status)
{
    if (kiln_batch_status(batch))
        return kiln__fail(NULL, kiln_batch_status(batch), "%s: context %zu: %s", create_call,
                          member->number, kiln_batch_error(batch));
    return status ? kiln__fail(NULL, status < 0 ? status : KILN_INVALID_ARGUMENT,
                               "%s: context %zu: the callback answered %s", create_call,
                               member->number, kiln_status_name(status))
                  : KILN_OK;
}

static kiln_status record_derive(struct member *member, kiln_tensor *tensors)
{
    const kiln_training *training = &member->parallel->training;
    member->derive = kiln_batch_create(member->context);
    if (!member->derive)
        return KILN_OUT_OF_HOST_MEMORY;
    kiln_status status = kiln_batch_set_independent(member->derive);
    if (!status)
        status = parallel_look(
            member, member->derive,
            training->record(member->derive, member->number, tensors, training->user));
    for (size_t i = 0; i < training->gradient_count && !status; i++)
        status = take_gradient(member, i, tensors[i]);
    return status;
}

static kiln_status record_update(struct member *member, kiln_tensor *tensors)
{
    const kiln_training *training = &member->parallel->training;
    member->update = kiln_batch_create(member->context);
    if (!member->update)
        return KILN_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; i < training->gradient_count; i++)
        tensors[i] = kiln_import(member->update, member->gradients[i]);
    return parallel_look(member, member->update,
                         training->update(member->update, member->number, tensors, training->user));
}

static kiln_status parallel_record(struct member *member)
{
    size_t count = member->parallel->training.gradient_count;
    kiln_tensor *tensors = calloc(count, sizeof *tensors);
    kiln_status status = tensors ? record_derive(member, tensors) : no_memory();
    if (!status)
        status = record_update(member, tensors);
    free(tensors);
    return status;
}

/* Host memory for the gradients of each context. */
static bool parallel_reserve(kiln_parallel *parallel)
{
    for (size_t i = 0; i < parallel->training.gradient_count && parallel->count > 1; i++) {
        size_t bytes = parallel->elements[i] * sizeof(float) + 1;
        bool done = true;
        for (size_t m = 0; m < parallel->count && done; m++) {
            struct member *member = &parallel->members[m];
            void *own = NULL;
            done = !kiln_host_alloc(member->context, bytes, &own);
            member->read[i] = own;
        }
        if (!done)
            return false;
    }
    return true;
}

static bool parallel_allocate(kiln_parallel *parallel, size_t n)
{
    size_t gradients = parallel->training.gradient_count;
    parallel->elements = calloc(gradients, sizeof *parallel->elements);
    parallel->members = calloc(n, sizeof *parallel->members);
    if (!parallel->elements || !parallel->members)
        return false;
    parallel->count = n;
    for (size_t i = 0; i < n; i++) {
        struct member *member = &parallel->members[i];
        member->gradients = calloc(gradients, sizeof(kiln_buffer *));
        member->read = calloc(gradients, sizeof(float *));
        if (!member->gradients || !member->read)
            return false;
    }
    return true;
}

static void open_members(kiln_parallel *parallel, kiln_context *const *contexts)
{
    const double *shares = parallel->training.shares;
    double sum = 0;
    for (size_t i = 0; i < parallel->count; i++)
        sum += shares ? shares[i] : 1;
    for (size_t i = 0; i < parallel->count; i++) {
        struct member *member = &parallel->members[i];
        member->parallel = parallel;
        member->number = i;
        member->share = (shares ? shares[i] : 1) / sum;
        member->context = contexts[i];
        kiln_context_retain(contexts[i]);
    }
}

/* Signals are for the program's own threads. */
static kiln_status parallel_start(kiln_parallel *parallel)
{
    sigset_t every, before;
    int error = pthread_barrier_init(&parallel->meeting, NULL, (unsigned)parallel->count);
    parallel->can_meet = !error;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    for (size_t i = 0; i < parallel->count && !error; i++) {
        error = pthread_create(&parallel->members[i].thread, NULL, parallel_work,
                               &parallel->members[i]);
        parallel->started += !error;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no thread: %s", create_call,
                              strerror(error))
                 : KILN_OK;
}

kiln_status kiln_parallel_create(kiln_context *const *contexts, size_t n,
                                 const kiln_training *training, kiln_parallel **result)
{
    if (!result)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: parallel is NULL", create_call);
    *result = NULL;
    if (!contexts || !training)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is NULL", create_call,
                          contexts ? "training" : "contexts");
    kiln_training own;
    kiln_status status =
        KILN__STRUCTURE_READ(NULL, create_call, training, "KILN_TRAINING_INIT", &own);
    if (!status)
        status = parallel_check(contexts, n, &own);
    if (status)
        return status;
    kiln_parallel *parallel = calloc(1, sizeof *parallel);
    if (!parallel)
        return no_memory();
    parallel->process = getpid();
    parallel->training = own;
    pthread_mutex_init(&parallel->lock, NULL);
    pthread_cond_init(&parallel->changed, NULL);
    if (!parallel_allocate(parallel, n))
        status = no_memory();
    else
        open_members(parallel, contexts);
    for (size_t i = 0; i < n && !status; i++)
        status = parallel_record(&parallel->members[i]);
    if (!status && !parallel_reserve(parallel))
        status = no_memory();
    if (!status)
        status = parallel_start(parallel);
    if (status)
        kiln_parallel_release(parallel);
    else
        *result = parallel;
    return status;
}

/* ---- ending ---- */

static void close_member(struct member *member, size_t gradients)
{
    kiln_batch_release(member->derive);
    kiln_batch_release(member->update);
    for (size_t i = 0; i < gradients && member->gradients; i++)
        kiln_buffer_release(member->gradients[i]);
    for (size_t i = 0; i < gradients && member->read; i++)
        kiln_host_free(member->context, member->read[i]);
    free(member->gradients);
    free(member->read);
    kiln_context_release(member->context);
}

void kiln_parallel_release(kiln_parallel *parallel)
{
    if (!parallel || parallel->process != getpid())
        return;
    pthread_mutex_lock(&parallel->lock);
    parallel->over = true;
    pthread_cond_broadcast(&parallel->changed);
    pthread_mutex_unlock(&parallel->lock);
    for (size_t i = 0; i < parallel->started; i++)
        pthread_join(parallel->members[i].thread, NULL);
    for (size_t i = 0; i < parallel->count; i++)
        close_member(&parallel->members[i], parallel->training.gradient_count);
    if (parallel->can_meet)
        pthread_barrier_destroy(&parallel->meeting);
    pthread_cond_destroy(&parallel->changed);
    pthread_mutex_destroy(&parallel->lock);
    free(parallel->elements);
    free(parallel->members);
    free(parallel);
}
