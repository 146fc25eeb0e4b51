/* SPDX-License-Identifier: Apache-2.0 */
/* The inbox, the queue, the choice of a context and the histogram of an executor, without a device.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "executor/future.h"

#define MS ((int64_t)1000000)

/* ---- the queue ---- */

static kiln_future requests[8];
static struct kiln__request_queue queue;

/* Of one row, from this moment on, waiting 10 ms at most. */
static kiln_future *push(unsigned number, unsigned priority, int64_t now)
{
    kiln_future *request = &requests[number];
    request->rows = 1;
    request->priority = priority;
    request->submitted = now;
    request->due = now + 10 * MS;
    request->deadline = KILN__NEVER;
    kiln__request_queue_push(&queue, request);
    return request;
}

static void expect_order(const unsigned *order, size_t count)
{
    cr_assert_eq(queue.count, count);
    for (size_t i = 0; i < count; i++) {
        kiln_future *first = kiln__request_queue_first(&queue);
        cr_expect_eq(first - requests, order[i], "request %zu", i);
        kiln__request_queue_remove(&queue, first);
    }
    cr_expect_null(kiln__request_queue_first(&queue));
    cr_expect_eq(queue.count + queue.rows + queue.deadlines, 0u);
    cr_expect_eq(kiln__request_queue_due(&queue), KILN__NEVER);
}

Test(executor_parts, the_queue_goes_by_priority_and_then_by_time)
{
    push(0, 2, 0);
    push(1, 1, 1);
    push(2, 0, 2);
    push(3, 1, 3);
    push(4, 0, 4);
    expect_order((const unsigned[]){2, 4, 1, 3, 0}, 5);
}

Test(executor_parts, a_request_that_comes_back_is_first_of_its_priority)
{
    push(0, 1, 0);
    push(1, 0, 1);
    push(2, 1, 2);
    kiln__request_queue_remove(&queue, &requests[0]);
    kiln__request_queue_push_front(&queue, &requests[0]);
    expect_order((const unsigned[]){1, 0, 2}, 3);
}

Test(executor_parts, the_queue_is_due_when_its_most_impatient_request_is)
{
    push(0, 2, 5 * MS);
    push(1, 0, 6 * MS);
    cr_expect_eq(kiln__request_queue_due(&queue), 15 * MS);
    kiln_future *hasty = &requests[2];
    *hasty = (kiln_future){.rows = 3, .priority = 1, .due = 9 * MS, .deadline = 10 * MS};
    kiln__request_queue_push(&queue, hasty);
    cr_expect_eq(kiln__request_queue_due(&queue), 9 * MS);
    cr_expect_eq(queue.rows, 5u);
    kiln__request_queue_remove(&queue, hasty);
    cr_expect_eq(kiln__request_queue_due(&queue), 15 * MS);
    kiln__request_queue_remove(&queue, &requests[0]);
    cr_expect_eq(kiln__request_queue_due(&queue), 16 * MS);
    expect_order((const unsigned[]){1}, 1);
}

Test(executor_parts, a_length_leads_that_has_rows_enough)
{
    requests[1].length_number = requests[2].length_number = 5;
    for (unsigned i = 0; i < 3; i++)
        push(i, 1, 0);
    cr_expect_eq(kiln__request_queue_next_length(&queue, 1), 0u);
    cr_expect_eq(kiln__request_queue_next_length(&queue, 2), 5u);
    cr_expect_eq(kiln__request_queue_next_length(&queue, 3), 0u, "none has: the first request's");
    cr_expect_eq(kiln__request_queue_missing_rows(&queue, 5), 3u);
    cr_expect_eq(kiln__request_queue_missing_rows(&queue, 2), 0u);
    queue.most_of[5] = 2; /* a full batch */
    cr_expect_eq(kiln__request_queue_next_length(&queue, 3), 5u);
    cr_expect_eq(kiln__request_queue_missing_rows(&queue, 3), 0u);
    queue.most_of[5] = queue.most_of[7] = 3;
    cr_expect_eq(kiln__request_queue_next_length(&queue, 9), 0u);
    cr_expect_eq(kiln__request_queue_missing_rows(&queue, 9), 1u);
    queue.most_of[5] = queue.most_of[7] = 0;
    kiln__request_queue_remove(&queue, &requests[0]);
    cr_expect_eq(kiln__request_queue_next_length(&queue, 3), 5u);
    cr_expect_eq(queue.rows_of[0], 0u);
}

/* ---- the inbox ---- */

static struct kiln__inbox inbox;

static bool put(unsigned number, size_t rows)
{
    requests[number].rows = rows;
    cr_expect(kiln__inbox_enter(&inbox, rows, 8));
    return kiln__inbox_put(&inbox, &requests[number], 8);
}

Test(executor_parts, the_inbox_gives_requests_in_the_order_in_which_they_came)
{
    cr_expect_null(kiln__inbox_empty(&inbox));
    for (unsigned i = 0; i < 5; i++)
        put(i, 1);
    kiln_future *request = kiln__inbox_empty(&inbox);
    for (unsigned i = 0; i < 5; i++, request = request->next)
        cr_expect_eq(request - requests, i);
    cr_expect_null(request);
    cr_expect_null(kiln__inbox_empty(&inbox));
}

Test(executor_parts, a_submitter_wakes_a_worker_once_there_are_rows_enough)
{
    cr_expect(kiln__inbox_set_alarm(&inbox, KILN__NO_ALARM));
    cr_expect(!put(0, 100), "no worker sleeps");
    kiln__inbox_empty(&inbox);
    cr_expect(kiln__inbox_set_alarm(&inbox, 108));
    cr_expect(!put(1, 7));
    cr_expect(put(2, 1));
    cr_expect(!kiln__inbox_set_alarm(&inbox, 200), "two came meanwhile");
    kiln__inbox_empty(&inbox);
    kiln__inbox_leave(&inbox, 3, 108);
    cr_expect(!put(3, 199));
    cr_expect(put(4, 1));
}

Test(executor_parts, the_inbox_holds_so_many_with_those_in_the_queue)
{
    kiln__inbox_set_alarm(&inbox, 1000);
    for (unsigned i = 0; i < 8; i++)
        cr_expect_eq(put(i, 1), i == 7, "the last one fills it");
    kiln__inbox_empty(&inbox);
    cr_expect(!kiln__inbox_enter(&inbox, 1, 8), "they are in the queue");
    kiln__inbox_leave(&inbox, 1, 1);
    cr_expect(kiln__inbox_enter(&inbox, 1, 8));
    kiln__inbox_leave(&inbox, 1, 1);
    kiln__inbox_return(&inbox, 1, 1);
    cr_expect(!kiln__inbox_enter(&inbox, 1, 8), "one came back");
}

/* ---- which context takes a batch ---- */

static struct kiln__device_queue device_queues[2];
static struct kiln_executor executor = {
    .options = {.max_batch = 4, .min_batch = 1, .max_queue = 100, .retry_us = 1000},
    .model = {.size_count = 3, .length_count = 1, .sizes = {{1, 0}, {2, 0}, {4, 0}}},
    .device_queue_count = 2,
    .device_queues = device_queues,
};

/* A context that takes so long for each size, and has run just now. */
static void make_lane(unsigned number, int64_t cost, int64_t now)
{
    struct kiln__device_queue *lane = &device_queues[number];
    for (unsigned size = 0; size < 3; size++) {
        kiln__device_queue_measured(lane, size, 1000 * MS); /* with the compiler: no measure */
        kiln__device_queue_measured(lane, size, cost);
    }
    lane->last = now;
    lane->waiting = 1;
}

static void submit(unsigned number, int64_t now)
{
    queue = executor.queue;
    push(number, 1, now);
    executor.queue = queue;
}

static enum kiln__flush decide(unsigned number, int64_t now)
{
    int64_t again;
    return kiln__device_queue_decide(&executor, &device_queues[number], now, &again);
}

Test(executor_parts, a_batch_goes_to_the_context_that_is_done_first)
{
    make_lane(0, 10 * MS, 0);
    make_lane(1, 4 * MS, 0);
    cr_expect_eq(decide(1, 0), KILN__FLUSH_NOT, "there is nothing to do");
    submit(0, 0);
    cr_expect_eq(decide(0, 0), KILN__FLUSH_NOT);
    cr_expect_eq(decide(1, 0), KILN__FLUSH_IDLE);
    kiln__device_queue_begin(&device_queues[1], 0, 0);
    cr_expect_eq(decide(0, 0), KILN__FLUSH_NOT, "8 ms there are less than 10 here");
    kiln__device_queue_begin(&device_queues[1], 0, 0);
    cr_expect_eq(decide(0, 0), KILN__FLUSH_IDLE, "12 ms there are more");
    cr_expect_eq(decide(0, 2 * MS), KILN__FLUSH_IDLE);
    cr_expect_eq(decide(0, 3 * MS), KILN__FLUSH_NOT, "9 ms are left");
}

Test(executor_parts, a_context_that_hangs_is_passed_by)
{
    make_lane(0, 10 * MS, 0);
    make_lane(1, 1 * MS, 0);
    kiln__device_queue_begin(&device_queues[1], 0, 0);
    submit(0, 0);
    cr_expect_eq(decide(0, 5 * MS), KILN__FLUSH_NOT, "it should be done soon");
    cr_expect_eq(decide(0, 12 * MS), KILN__FLUSH_WAIT, "it should have been done long ago");
}

Test(executor_parts, a_context_whose_workers_call_back_is_passed_by)
{
    make_lane(0, 5 * MS, MS);
    make_lane(1, 10 * MS, MS);
    device_queues[0].waiting = 0;
    submit(0, MS);
    cr_expect_eq(decide(1, 5 * MS), KILN__FLUSH_NOT, "one of them should be back soon");
    cr_expect_eq(decide(1, 7 * MS), KILN__FLUSH_IDLE, "they have been away for long");
    device_queues[0].waiting = 1;
    cr_expect_eq(decide(1, 7 * MS), KILN__FLUSH_NOT);
}

Test(executor_parts, an_old_estimate_is_tried_again)
{
    make_lane(0, 10 * MS, 0);
    make_lane(1, 1 * MS, 400 * MS);
    submit(0, 310 * MS);
    cr_expect_eq(decide(0, 310 * MS), KILN__FLUSH_NOT);
    cr_expect_eq(decide(0, 321 * MS), KILN__FLUSH_WAIT, "32 times 10 ms ago");
}

Test(executor_parts, a_context_that_fails_is_left_out_for_longer_and_longer)
{
    int64_t now = 0;
    submit(0, 0);
    for (int i = 0; i < 9; i++) {
        int64_t pause = (1 << (i < 6 ? i : 6)) * MS;
        kiln__device_queue_failed(&executor, &device_queues[0], now);
        cr_expect_eq(device_queues[0].out_until, now + pause, "after failure %d", i);
        cr_expect_eq(decide(0, now + pause - 1), KILN__FLUSH_NOT);
        now += pause;
        cr_expect_neq(decide(0, now), KILN__FLUSH_NOT, "it is to be tried");
    }
    cr_expect(!kiln__device_queue_has_other(&executor, &device_queues[1]));
    kiln__device_queue_failed(&executor, &device_queues[1], now - 1);
    cr_expect_eq(device_queues[1].out_until, 0, "the last one stays");
    kiln__device_queue_failed(&executor, &device_queues[1], now);
    cr_expect_eq(device_queues[0].out_until, 0, "it is as good as the other");
    cr_expect_eq(device_queues[1].out_until, now + MS);
    kiln__device_queue_measured(&device_queues[1], 0, MS);
    cr_expect_eq(device_queues[1].out_until, 0, "it is back");
    cr_expect(kiln__device_queue_has_other(&executor, &device_queues[1]));
}

Test(executor_parts, a_request_that_failed_once_is_not_what_a_context_is_tried_with)
{
    submit(0, 0);
    requests[0].rerun = true;
    kiln__device_queue_failed(&executor, &device_queues[0], 0);
    cr_expect_eq(decide(0, 20 * MS), KILN__FLUSH_NOT);
    cr_expect_eq(decide(1, 20 * MS), KILN__FLUSH_WAIT);
}

/* Sizes 32, 64 and 128; 0: not measured. */
static size_t most_of(size_t rows, int64_t of_64, int64_t of_128)
{
    kiln_executor of_many = {
        .options = {.max_batch = 128},
        .model = {.size_count = 3, .length_count = 1, .sizes = {{32, 0}, {64, 0}, {128, 0}}}};
    const struct kiln__device_queue lane = {.cost = {MS, of_64, of_128}};
    of_many.queue.rows_of[0] = rows;
    return kiln__device_queue_most(&of_many, &lane, 0);
}

Test(executor_parts, a_batch_is_cut_where_that_costs_less_a_row)
{
    cr_expect_eq(most_of(70, 6 * MS, 10 * MS), 64u);
    cr_expect_eq(most_of(120, 6 * MS, 10 * MS), 128u, "few of its rows are nobody's");
    cr_expect_eq(most_of(70, 10 * MS, 10 * MS), 128u, "a batch costs as much whatever its rows");
    cr_expect_eq(most_of(70, 0, 10 * MS), 64u, "that is to be measured");
    cr_expect_eq(most_of(70, 6 * MS, 0), 128u, "nothing is known of it");
    cr_expect_eq(most_of(64, 6 * MS, 10 * MS), 128u, "it fits");
    cr_expect_eq(most_of(20, 1 * MS, 10 * MS), 128u, "it is too small");
    cr_expect_eq(most_of(300, 6 * MS, 100 * MS), 128u, "it is full");
}

/* ---- histograms ---- */

Test(executor_parts, quantiles_are_within_a_sixteenth)
{
    static struct kiln__histogram histogram;
    for (int64_t i = 1; i <= 100000; i++)
        kiln__histogram_add(&histogram, i * 1000);
    kiln_latency l = kiln__histogram_read(&histogram);
    const double found[] = {l.p50, l.p90, l.p99, l.p999}, wanted[] = {0.05, 0.09, 0.099, 0.0999};
    for (int i = 0; i < 4; i++)
        cr_expect(found[i] >= wanted[i] && found[i] <= wanted[i] * 17 / 16, "%g for %g", found[i],
                  wanted[i]);
    cr_expect_eq(l.count, 100000u);
    cr_expect_float_eq(l.mean, 0.0500005, 1e-9);
    cr_expect_float_eq(l.most, 0.1, 1e-9);
}

Test(executor_parts, a_histogram_takes_any_number)
{
    static struct kiln__histogram histogram;
    static const int64_t odd[] = {INT64_MIN, -1, 0, 1, 31, 32, 33, 1023, 1024, INT64_MAX};
    cr_expect_eq(kiln__histogram_read(&histogram).p99, 0);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        struct kiln__histogram one = {0};
        kiln__histogram_add(&histogram, odd[i]);
        kiln__histogram_add(&one, odd[i]);
        double value = odd[i] > 0 ? 1e-9 * (double)odd[i] : 0;
        cr_expect_float_eq(kiln__histogram_read(&one).p50,
                           odd[i] == INT64_MAX ? 140737.488355327 : value, 1e-3, "%lld",
                           (long long)odd[i]);
    }
    cr_expect_eq(kiln__histogram_read(&histogram).count, 10u);
}
