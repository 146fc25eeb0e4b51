/* SPDX-License-Identifier: Apache-2.0 */
/* Data-parallel training is made, and ended. */
#include "executor/parallel.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kiln/batch.h>
#include <kiln/buffer.h>
#include <kiln/context.h>
#include <kiln/movement.h>

#include "record/batch.h"
#include "util/hash.h"
#include "util/structure.h"

static const char create_call[] = "kiln_parallel_create";

#define MOST_CONTEXTS 64
#define USUAL_BUCKET ((size_t)1 << 20)

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
    return !training->shards == !training->weights
               ? KILN_OK
               : kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: training->%s is NULL alone",
                            create_call, training->shards ? "weights" : "shards");
}

static kiln_status no_memory(void)
{
    return kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no memory", create_call);
}

/* The first context says what the others have to have. */
static kiln_status take_gradient(struct kiln__member *member, size_t i, kiln_tensor tensor)
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
    struct kiln__gradient_range *range = &parallel->ranges[i];
    if (member->number && elements != range->elements)
        return kiln__fail(NULL, KILN_SHAPE_MISMATCH,
                          "%s: gradient %zu has %zu elements in context %zu, and %zu in the first",
                          create_call, i, elements, member->number, range->elements);
    range->elements = elements;
    status = kiln__parallel_take_shard(member, i);
    if (!status)
        status = kiln_buffer_create(member->context, type, rank, dims, &member->gradients[i]);
    return status ? status : kiln_export(member->derive, tensor, member->gradients[i]);
}

/* What became of a batch that a callback recorded in and answered `status`. */
static kiln_status parallel_look(const struct kiln__member *member, const kiln_batch *batch,
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

static kiln_status record_derive(struct kiln__member *member, kiln_tensor *tensors)
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

/* The average, or what this process keeps of it, which is at its beginning. */
static kiln_tensor import_average(const struct kiln__member *member, size_t i)
{
    const struct kiln__gradient_range *range = &member->parallel->ranges[i];
    kiln_tensor average = kiln_import(member->update, member->gradients[i]);
    if (!kiln__parallel_divides(member->parallel, i))
        return average;
    average = kiln_reshape(member->update, average, 1, &range->elements);
    return kiln_slice(member->update, average, (const int64_t[]){0},
                      (const int64_t[]){(int64_t)range->kept}, NULL);
}

static kiln_status record_update(struct kiln__member *member, kiln_tensor *tensors)
{
    const kiln_training *training = &member->parallel->training;
    member->update = kiln_batch_create(member->context);
    if (!member->update)
        return KILN_OUT_OF_HOST_MEMORY;
    for (size_t i = 0; i < training->gradient_count; i++) {
        tensors[i] = import_average(member, i);
        member->update->divided |= kiln__parallel_divides(member->parallel, i);
    }
    return parallel_look(member, member->update,
                         training->update(member->update, member->number, tensors, training->user));
}

static kiln_status parallel_record(struct kiln__member *member)
{
    size_t count = member->parallel->training.gradient_count;
    kiln_tensor *tensors = calloc(count, sizeof *tensors);
    kiln_status status = tensors ? record_derive(member, tensors) : no_memory();
    if (!status)
        status = record_update(member, tensors);
    free(tensors);
    return status;
}

/* Of numbers from `begin` to `end`, those that fill buckets, or all. Returns where they end. */
static size_t add_buckets(kiln_parallel *parallel, size_t begin, size_t end, size_t gradient,
                          bool all)
{
    for (size_t most = parallel->reducer.piece; begin < end && (all || end - begin >= most);) {
        struct kiln__gradient_bucket *bucket = kiln__vector_push(&parallel->buckets);
        if (!bucket)
            return SIZE_MAX;
        bucket->offset = begin;
        bucket->numbers = end - begin < most ? end - begin : most;
        bucket->gradient = gradient;
        begin += bucket->numbers;
    }
    return begin;
}

/* Neighbours that are not divided share buckets. */
static kiln_status parallel_partition(kiln_parallel *parallel)
{
    size_t begin = 0;
    for (size_t i = parallel->training.gradient_count; i-- > 0 && begin != SIZE_MAX;) {
        const struct kiln__gradient_range *range = &parallel->ranges[i];
        if (!kiln__parallel_divides(parallel, i)) {
            begin = add_buckets(parallel, begin, range->offset + range->elements, i, i == 0);
            continue;
        }
        const struct kiln__gradient_bucket bucket = {range->offset, range->elements, i, true};
        const bool added = add_buckets(parallel, begin, range->offset, i + 1, true) != SIZE_MAX &&
                           kiln__vector_add(&parallel->buckets, bucket);
        begin = added ? range->offset + range->elements : SIZE_MAX;
    }
    return begin == SIZE_MAX ? no_memory() : KILN_OK;
}

/* Host memory for the gradients of each context, where they travel. */
static kiln_status parallel_reserve(kiln_parallel *parallel)
{
    for (size_t i = parallel->training.gradient_count; i-- > 0;) {
        parallel->ranges[i].offset = parallel->numbers;
        parallel->numbers += parallel->ranges[i].elements;
    }
    kiln_status status = parallel->reducer.begin ? parallel_partition(parallel) : KILN_OK;
    for (size_t m = 0; m < parallel->count && kiln__parallel_travels(parallel) && !status; m++) {
        void *host = NULL;
        size_t bytes = parallel->numbers * sizeof(float) + 1;
        status = kiln_host_alloc(parallel->members[m].context, bytes, &host);
        parallel->members[m].host = host;
        if (!status) /* of a step that fails early other processes get what there is */
            memset(host, 0, bytes);
    }
    return status;
}

static bool parallel_allocate(kiln_parallel *parallel, size_t n)
{
    size_t gradients = parallel->training.gradient_count;
    parallel->ranges = calloc(gradients, sizeof *parallel->ranges);
    parallel->members = calloc(n, sizeof *parallel->members);
    if (!parallel->ranges || !parallel->members)
        return false;
    parallel->count = n;
    for (size_t i = 0; i < n; i++) {
        struct kiln__member *member = &parallel->members[i];
        member->gradients = calloc(gradients, sizeof(kiln_buffer *));
        member->weights = calloc(gradients, sizeof(kiln_buffer *));
        member->shards = calloc(gradients, sizeof(kiln_buffer *));
        if (!member->gradients || !member->weights || !member->shards)
            return false;
    }
    return true;
}

static void open_members(kiln_parallel *parallel, kiln_context *const *contexts)
{
    for (size_t i = 0; i < parallel->count; i++) {
        struct kiln__member *member = &parallel->members[i];
        member->parallel = parallel;
        member->number = i;
        member->context = contexts[i];
        kiln_context_retain(contexts[i]);
    }
}

/* Of how the gradients travel, a number that tells others from these. */
static uint32_t hash_layout(const kiln_parallel *parallel)
{
    uint64_t row[3] = {0};
    for (size_t i = 0; i < parallel->training.gradient_count; i++) {
        row[1] = parallel->ranges[i].elements;
        row[2] = kiln__parallel_divides(parallel, i);
        row[0] = kiln__hash64(row, sizeof row);
    }
    return (uint32_t)row[0];
}

/* Of the contexts of all processes. */
static kiln_status divide_shares(kiln_parallel *parallel)
{
    const double *shares = parallel->training.shares;
    const kiln_reducer *reducer = &parallel->reducer;
    double sum = 0;
    for (size_t i = 0; i < parallel->count; i++)
        sum += shares ? shares[i] : 1;
    kiln_status status = KILN_OK;
    if (reducer->join)
        status =
            reducer->join(reducer->user, KILN_OK, parallel->numbers, hash_layout(parallel), &sum);
    for (size_t i = 0; i < parallel->count; i++)
        parallel->members[i].share = (shares ? shares[i] : 1) / sum;
    return status;
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
        error = pthread_create(&parallel->members[i].thread, NULL, kiln__parallel_work,
                               &parallel->members[i]);
        parallel->started += !error;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? kiln__fail(NULL, KILN_OUT_OF_HOST_MEMORY, "%s: no thread: %s", create_call,
                              strerror(error))
                 : KILN_OK;
}

static kiln_status parallel_make(kiln_context *const *contexts, size_t n,
                                 const kiln_training *training, const kiln_reducer *reducer,
                                 kiln_parallel **result)
{
    kiln_status status = parallel_check(contexts, n, training);
    if (status)
        return status;
    kiln_parallel *parallel = calloc(1, sizeof *parallel);
    if (!parallel)
        return no_memory();
    *result = parallel;
    parallel->process = getpid();
    parallel->training = *training;
    parallel->reducer = *reducer;
    pthread_mutex_init(&parallel->lock, NULL);
    pthread_cond_init(&parallel->changed, NULL);
    if (!parallel_allocate(parallel, n))
        return no_memory();
    open_members(parallel, contexts);
    for (size_t i = 0; i < n && !status; i++)
        status = parallel_record(&parallel->members[i]);
    if (!status)
        status = parallel_reserve(parallel);
    for (size_t i = 0; i < n && !status; i++)
        status = kiln__parallel_fill_shards(&parallel->members[i]);
    return status ? status : parallel_start(parallel);
}

kiln_status kiln__read_reducer(const kiln_reducer *reducer, kiln_reducer *own, const char *call)
{
    kiln_status status = KILN__STRUCTURE_READ(NULL, call, reducer, "KILN_REDUCER_INIT", own);
    own->piece = own->piece ? own->piece : USUAL_BUCKET;
    bool lacks = !(own->join && own->begin && own->wait && own->agree) ||
                 (own->processes && !(own->begin_shard && own->begin_gather));
    if (!status && lacks)
        status = kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: the reducer lacks a function", call);
    return status;
}

/* Structures in our form. */
static kiln_status read_training(const kiln_training *training, kiln_training *own,
                                 kiln_reducer *reducer)
{
    *reducer = (kiln_reducer)KILN_REDUCER_INIT;
    kiln_status status =
        KILN__STRUCTURE_READ(NULL, create_call, training, "KILN_TRAINING_INIT", own);
    return status || !own->reducer ? status
                                   : kiln__read_reducer(own->reducer, reducer, create_call);
}

/* What has failed here, the other processes have to know; the sentence stays. */
static kiln_status fail_for_all(const kiln_reducer *reducer, kiln_status status)
{
    char sentence[sizeof(((struct kiln__error *)0)->text)];
    double none = 0;
    snprintf(sentence, sizeof sentence, "%s", kiln_last_error());
    return reducer->join && reducer->join(reducer->user, status, 0, 0, &none)
               ? kiln__fail(NULL, status, "%s", sentence)
               : status;
}

kiln_status kiln_parallel_create(kiln_context *const *contexts, size_t n,
                                 const kiln_training *training, kiln_parallel **result)
{
    kiln_training own;
    kiln_reducer reducer;
    if (!result)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: parallel is NULL", create_call);
    *result = NULL;
    KILN__RETURN_IF_NULL(NULL, create_call, contexts, training);
    kiln_status status = read_training(training, &own, &reducer);
    if (status)
        return status;
    kiln_parallel *parallel = NULL;
    status = parallel_make(contexts, n, &own, &reducer, &parallel);
    status = status ? fail_for_all(&reducer, status) : divide_shares(parallel);
    if (status)
        kiln_parallel_release(parallel);
    else
        *result = parallel;
    return status;
}

/* ---- ending ---- */

/* Memory that a failed reducer may still write is never freed. */
static void close_member(struct kiln__member *member, size_t gradients, bool host_is_lost)
{
    kiln_batch_release(member->derive);
    kiln_batch_release(member->update);
    kiln_buffer **const lists[] = {member->gradients, member->weights, member->shards};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        for (size_t i = 0; i < gradients && lists[k]; i++)
            kiln_buffer_release(lists[k][i]);
        free(lists[k]);
    }
    if (member->host && !host_is_lost)
        kiln_host_free(member->context, member->host);
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
        close_member(&parallel->members[i], parallel->training.gradient_count,
                     parallel->host_is_lost);
    if (parallel->can_meet)
        pthread_barrier_destroy(&parallel->meeting);
    pthread_cond_destroy(&parallel->changed);
    pthread_mutex_destroy(&parallel->lock);
    kiln__vector_free(&parallel->buckets);
    free(parallel->ranges);
    free(parallel->members);
    free(parallel);
}
