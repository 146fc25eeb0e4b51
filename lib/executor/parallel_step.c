/* SPDX-License-Identifier: Apache-2.0 */
/* step = derive (read meet average meet write)* meet update
 *
 * A thread for each context makes it, and they meet twice for each gradient: when all have read
 * theirs, and when each has averaged its part of it. Whoever fails goes on meeting the others, who
 * then do nothing in between.
 *
 * With a reducer the first thread hands over what has been averaged, and all write when the sums
 * are there:
 *
 *     step = derive (read meet average meet hand-over)* (await meet write)* meet agree meet
 *            update (read gather)* (await meet write)* meet agree meet
 *
 * (Where weights are divided, an average is the part whose shard this process updates; shards are
 * gathered behind the update.)
 *
 * Other processes wait for this one's buckets: it hands them over whatever has failed. After an
 * update that failed anywhere no step is made any more. */
#include "executor/parallel.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kiln/batch.h>
#include <kiln/buffer.h>

static const char step_call[] = "kiln_parallel_step";

/* Numbers that are averaged before the next ones are looked at. */
#define CACHED 4096

static void parallel_fail(struct kiln__member *member, kiln_status status, const char *doing)
{
    if (!status || member->error.status)
        return;
    member->error.status = status;
    snprintf(member->error.text, sizeof member->error.text, "%s: context %zu, %s: %s", step_call,
             member->number, doing, kiln_last_error());
}

/* Until all are here; whether nobody has failed so far. */
static bool wait_for_members(const struct kiln__member *member)
{
    kiln_parallel *parallel = member->parallel;
    if (member->error.status)
        atomic_store(&parallel->failed, true);
    pthread_barrier_wait(&parallel->meeting);
    bool well = !atomic_load(&parallel->failed);
    pthread_barrier_wait(&parallel->meeting); /* all have looked before somebody fails again */
    return well;
}

/* ---- within the process ---- */

/* The sum over the contexts in their order, whoever makes it; in place of each context's own, or of
 * the first one's if other processes have still to add theirs. */
static void average_some(const kiln_parallel *parallel, size_t first, size_t count)
{
    float sums[CACHED] = {0};
    size_t copies = parallel->reducer.begin ? 1 : parallel->count;
    for (size_t m = 0; m < parallel->count; m++) {
        const float *from = parallel->members[m].host + first;
        float share = (float)parallel->members[m].share;
        for (size_t i = 0; i < count; i++)
            sums[i] += share * from[i];
    }
    for (size_t m = 0; m < copies; m++)
        memcpy(parallel->members[m].host + first, sums, count * sizeof *sums);
}

/* The member's part, in buckets that stay in the caches. */
static void parallel_average(const struct kiln__member *member, size_t gradient)
{
    const kiln_parallel *parallel = member->parallel;
    const struct kiln__gradient_range *range = &parallel->ranges[gradient];
    size_t all = range->elements, each = all / parallel->count;
    size_t first = each * member->number;
    size_t end = member->number + 1 == parallel->count ? all : first + each;
    for (size_t i = first; i < end; i += CACHED)
        average_some(parallel, range->offset + i, end - i < CACHED ? end - i : CACHED);
}

/* From the device, and the average of all members' own; whether it is there. */
static bool collect(struct kiln__member *member, size_t gradient)
{
    const struct kiln__gradient_range *range = &member->parallel->ranges[gradient];
    if (!member->error.status)
        parallel_fail(member,
                      kiln_buffer_read(member->gradients[gradient], 0, member->host + range->offset,
                                       range->elements * sizeof(float)),
                      "reading a gradient");
    if (wait_for_members(member))
        parallel_average(member, gradient);
    return wait_for_members(member);
}

static void give_back(struct kiln__member *member, size_t gradient)
{
    const struct kiln__gradient_range *range = &member->parallel->ranges[gradient];
    parallel_fail(member,
                  kiln_buffer_write(member->gradients[gradient], 0, member->host + range->offset,
                                    range->kept * sizeof(float)),
                  "writing an average");
}

/* ---- with other processes: the first member's thread ---- */

static kiln_status begin_sum(const kiln_parallel *parallel,
                             const struct kiln__gradient_bucket *bucket)
{
    const kiln_reducer *reducer = &parallel->reducer;
    float *values = parallel->members[0].host + bucket->offset;
    return bucket->is_divided ? reducer->begin_shard(reducer->user, values, bucket->numbers)
                              : reducer->begin(reducer->user, values, bucket->numbers);
}

/* The buckets that are complete with this gradient. */
static void hand_over(struct kiln__member *member, size_t gradient)
{
    kiln_parallel *parallel = member->parallel;
    const struct kiln__gradient_bucket *buckets = parallel->buckets.items;
    for (; parallel->handed < parallel->buckets.count &&
           buckets[parallel->handed].gradient >= gradient;
         parallel->handed++)
        parallel_fail(member, begin_sum(parallel, &buckets[parallel->handed]),
                      "beginning a sum over processes");
}

/* What was begun first and not waited for. */
static void await_one(struct kiln__member *member, const char *doing)
{
    kiln_parallel *parallel = member->parallel;
    kiln_status status = parallel->reducer.wait(parallel->reducer.user);
    parallel->host_is_lost |= status != KILN_OK;
    parallel_fail(member, status, doing);
}

/* Until the sums of this gradient are there. */
static void await(struct kiln__member *member, size_t gradient)
{
    kiln_parallel *parallel = member->parallel;
    const struct kiln__gradient_range *range = &parallel->ranges[gradient];
    for (; parallel->summed < parallel->buckets.count &&
           parallel->buckets.items[parallel->summed].offset < range->offset + range->elements;
         parallel->summed++)
        await_one(member, "adding up with other processes");
}

/* The first member's memory has the sums. */
static void take_sums(struct kiln__member *member, size_t gradient)
{
    const kiln_parallel *parallel = member->parallel;
    const struct kiln__gradient_range *range = &parallel->ranges[gradient];
    if (member->number)
        memcpy(member->host + range->offset, parallel->members[0].host + range->offset,
               range->kept * sizeof(float));
    give_back(member, gradient);
}

/* From the shard, to all processes. Those wait for it, whatever it is. */
static void begin_gather(struct kiln__member *member, size_t gradient)
{
    const kiln_reducer *reducer = &member->parallel->reducer;
    const struct kiln__gradient_range *range = &member->parallel->ranges[gradient];
    const size_t bytes = kiln_buffer_bytes(member->shards[gradient]), size = bytes / range->kept;
    char *whole = (char *)(member->host + range->offset);
    parallel_fail(member,
                  kiln_buffer_read(member->shards[gradient], 0, whole + range->first * size, bytes),
                  "reading a shard");
    parallel_fail(member, reducer->begin_gather(reducer->user, whole, range->elements, size),
                  "beginning to gather weights");
}

/* What all processes have updated becomes the weights of each. */
static void gather_weights(struct kiln__member *member)
{
    const kiln_parallel *parallel = member->parallel;
    const size_t gradients = parallel->training.gradient_count;
    const bool first = member->number == 0;
    for (size_t i = 0; i < gradients && first; i++)
        if (member->shards[i])
            begin_gather(member, i);
    for (size_t i = 0; i < gradients; i++) {
        if (!member->shards[i])
            continue;
        if (first)
            await_one(member, "gathering weights");
        if (wait_for_members(member))
            parallel_fail(member,
                          kiln_buffer_write(member->weights[i], 0,
                                            parallel->members[0].host + parallel->ranges[i].offset,
                                            kiln_buffer_bytes(member->weights[i])),
                          "writing weights");
    }
}

/* Of all contexts here and in the other processes; what has failed elsewhere, while `doing`. */
static void exchange_failures(struct kiln__member *member, bool well, const char *doing)
{
    const kiln_parallel *parallel = member->parallel;
    kiln_status own = KILN_OK;
    for (size_t m = 0; m < parallel->count && !own; m++)
        own = parallel->members[m].error.status;
    kiln_status status = parallel->reducer.agree(parallel->reducer.user, own);
    if (well)
        parallel_fail(member, status, doing);
}

/* ---- a step ---- */

static void exchange(struct kiln__member *member)
{
    const kiln_parallel *parallel = member->parallel;
    const size_t gradients = parallel->training.gradient_count;
    const bool alone = !parallel->reducer.begin, first = member->number == 0;
    for (size_t i = gradients; i-- > 0;) {
        bool well = collect(member, i);
        if (!alone && first)
            hand_over(member, i);
        else if (alone && well)
            give_back(member, i);
    }
    for (size_t i = gradients; i-- > 0 && !alone;) {
        if (first)
            await(member, i);
        if (wait_for_members(member))
            take_sums(member, i);
    }
}

/* Whether nobody has failed, here or elsewhere. */
static bool all_are_well(struct kiln__member *member, const char *doing)
{
    bool well = wait_for_members(member);
    if (!member->parallel->reducer.begin)
        return well;
    if (member->number == 0)
        exchange_failures(member, well, doing);
    return wait_for_members(member);
}

/* Whoever has it behind it knows what became of it in all processes. */
static void make_update(struct kiln__member *member)
{
    parallel_fail(member, kiln_batch_execute(member->update), "updating");
    gather_weights(member);
    if (!all_are_well(member, "updating"))
        atomic_store(&member->parallel->weights_differ, true);
}

static void step(struct kiln__member *member)
{
    kiln_event *event = NULL;
    member->error = (struct kiln__error){0};
    parallel_fail(member, kiln_batch_submit(member->derive, &event), "deriving");
    if (kiln__parallel_travels(member->parallel))
        exchange(member);
    if (event)
        parallel_fail(member, kiln_event_wait(event), "deriving");
    kiln_event_release(event);
    if (all_are_well(member, "waiting for other processes"))
        make_update(member);
}

void *kiln__parallel_work(void *argument)
{
    struct kiln__member *member = argument;
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
    KILN__RETURN_IF_NULL(NULL, step_call, parallel);
    if (parallel->process != getpid())
        return kiln__fail(NULL, KILN_FORKED, "%s: its threads are not in the child of a fork",
                          step_call);
    if (atomic_load(&parallel->weights_differ))
        return kiln__fail(NULL, KILN_WRONG_STATE,
                          "%s: an update has failed, and weights may differ; restore them in all "
                          "contexts, then create another kiln_parallel",
                          step_call);
    atomic_store(&parallel->failed, false);
    parallel->handed = parallel->summed = 0;
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
