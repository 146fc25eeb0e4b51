/* SPDX-License-Identifier: Apache-2.0 */
/* Distribution of missing programs over worker processes, and polling of their answers. */
#include "programs/compile_workers.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "programs/compile_job.h"
#include "programs/program_state.h"
#include "programs/store_thread.h"

/* One process, and what it is given. */
struct party {
    struct kiln__text errands;
    size_t count, weight; /* bytes of text, which say how long it takes */
};

bool kiln__apart_is_possible(const struct kiln__programs *programs)
{
    return kiln__store_writes(programs->store) && kiln__storing_folder(programs->storing);
}

/* ---- what is missing ---- */

/* In memory and on disk there is no need for it. */
static bool is_missing(struct kiln__programs *programs, const struct kiln__program_wish *wish,
                       const struct kiln__key *key)
{
    struct kiln__loaded loaded;
    if (kiln__programs_has(programs, wish->name, wish->name_length))
        return false;
    bool there = kiln__store_get(programs->store, key, &loaded);
    if (there)
        kiln__store_unload(&loaded);
    return !there;
}

static void add_missing(struct kiln__programs *programs, const struct kiln__program_wish *wish,
                        struct kiln__errands *errands)
{
    struct kiln__missing *missing = &errands->items[errands->count];
    struct kiln__key key = {0};
    *missing = (struct kiln__missing){.wish = wish};
    kiln__program_options(programs, wish->options, &missing->options);
    if (!missing->options.failed &&
        kiln__key_make(&programs->shared_key, missing->options.data, wish->source, &key) &&
        is_missing(programs, wish, &key)) {
        missing->hash = kiln__hash64(key.bytes, key.length);
        errands->count++;
    } else
        kiln__text_free(&missing->options);
    kiln__key_free(&key);
}

/* Without memory there is none. */
void kiln__errands_find(struct kiln__programs *programs, const struct kiln__program_wish *wishes,
                        size_t count, struct kiln__errands *errands)
{
    *errands = (struct kiln__errands){calloc(count, sizeof *errands->items), 0};
    for (size_t i = 0; errands->items && i < count; i++)
        add_missing(programs, &wishes[i], errands);
}

void kiln__errands_drop_last(struct kiln__errands *errands)
{
    kiln__text_free(&errands->items[--errands->count].options);
}

void kiln__errands_free(struct kiln__errands *errands)
{
    while (errands->count)
        kiln__errands_drop_last(errands);
    free(errands->items);
    errands->items = NULL;
}

/* ---- whose it is ---- */

static void begin_party(struct kiln__programs *programs, struct party *party)
{
    const struct kiln__errand_head head = {kiln__storing_folder(programs->storing),
                                           programs->limit,
                                           {programs->shared_key.data, programs->shared_key.length},
                                           true};
    kiln__errand_write_head(&head, &party->errands);
}

/* Kernels of one source go to the same process, which stores one binary for them; else the one
 * with the least to do takes it. */
static unsigned choose_party(const struct kiln__errands *errands, size_t index,
                             const struct party *parties, unsigned count)
{
    unsigned least = 0;
    for (size_t i = 0; i < index; i++)
        if (errands->items[i].hash == errands->items[index].hash)
            return errands->items[i].party;
    for (unsigned i = 1; i < count; i++)
        if (parties[i].weight < parties[least].weight)
            least = i;
    return least;
}

static void assign(struct kiln__programs *programs, struct kiln__errands *errands, size_t index,
                   struct party *parties, unsigned count)
{
    struct kiln__missing *missing = &errands->items[index];
    const struct kiln__program_wish *wish = missing->wish;
    char variants[KILN__PROGRAM_VARIANTS];
    const struct kiln__errand errand = {missing->options.data, wish->source, wish->kernel,
                                        variants};
    missing->party = choose_party(errands, index, parties, count);
    struct party *party = &parties[missing->party];
    kiln__program_variants(wish->dimensions, wish->global, wish->local, variants);
    if (!party->count++)
        begin_party(programs, party);
    party->weight += strlen(wish->source);
    kiln__errand_write(&errand, &party->errands);
}

static int64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000) + time.tv_nsec / 1000000;
}

/* False: there is no use in starting another one. */
static bool start_party(const struct party *party, struct kiln__apart_party *started)
{
    pid_t child;
    int answers = kiln__errand_start(&party->errands, &child);
    if (answers >= 0 && !kiln__errand_let_go(child)) {
        close(answers);
        answers = -1;
    }
    *started = (struct kiln__apart_party){.answers = answers, .heard_ms = now_ms()};
    return answers >= 0;
}

void kiln__apart_start(struct kiln__programs *programs, struct kiln__errands *errands,
                       unsigned count, struct kiln__apart *apart)
{
    struct party parties[KILN__MOST_APART] = {0};
    *apart = (struct kiln__apart){.programs = programs, .parties = count, .asked = errands->count};
    for (size_t i = 0; i < errands->count; i++)
        assign(programs, errands, i, parties, count);
    bool possible = true;
    for (unsigned i = 0; i < count; i++) {
        apart->party[i].answers = -1;
        if (parties[i].count && possible)
            possible = start_party(&parties[i], &apart->party[i]);
        kiln__text_free(&parties[i].errands);
    }
}

/* ---- what becomes of it ---- */

/* What is left of the time within which it has to say something. */
static int patience_ms(const struct kiln__apart_party *party)
{
    int64_t longest = (party->ready ? KILN__ERRAND_SILENCE : KILN__ERRAND_SOON) * INT64_C(1000);
    int64_t left = party->heard_ms + longest - now_ms();
    return left > 0 ? (int)left : 0;
}

static void take_answers(struct kiln__apart *apart, const char *heard, ssize_t count)
{
    for (ssize_t i = 0; i < count; i++) {
        apart->stored += heard[i] == KILN__ERRAND_STORED;
        apart->present += heard[i] == KILN__ERRAND_PRESENT;
        if (heard[i] == KILN__ERRAND_STORED)
            atomic_fetch_add(&apart->programs->stored_apart, 1);
    }
}

/* False: it has ended, or stalled; what it did not come to nobody has compiled. */
static bool listen_to(struct kiln__apart *apart, struct kiln__apart_party *party)
{
    char heard[64];
    ssize_t got = 1;
    while (got > 0 || (got < 0 && errno == EINTR)) {
        got = recv(party->answers, heard, sizeof heard, MSG_DONTWAIT);
        if (got <= 0)
            continue;
        take_answers(apart, heard, got);
        party->ready = true;
        party->heard_ms = now_ms();
    }
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && patience_ms(party);
}

/* Whether it is at work still; `waits`: until it is not. */
static bool is_at_work(struct kiln__apart *apart, struct kiln__apart_party *party, bool waits)
{
    bool works = party->answers >= 0;
    if (!works)
        return false;
    while ((works = listen_to(apart, party)) && waits)
        poll(&(struct pollfd){.fd = party->answers, .events = POLLIN}, 1, patience_ms(party));
    if (!works) {
        close(party->answers);
        party->answers = -1;
    }
    return works;
}

static bool are_at_work(struct kiln__apart *apart, bool wait)
{
    bool works = false;
    for (unsigned i = 0; i < apart->parties; i++)
        works = is_at_work(apart, &apart->party[i], wait) || works;
    return works;
}

bool kiln__apart_is_over(struct kiln__apart *apart)
{
    return !are_at_work(apart, false);
}

void kiln__apart_await(struct kiln__apart *apart)
{
    are_at_work(apart, true);
}

void kiln__apart_leave(struct kiln__apart *apart)
{
    for (unsigned i = 0; i < apart->parties; i++)
        if (apart->party[i].answers >= 0)
            close(apart->party[i].answers);
    *apart = (struct kiln__apart){.programs = NULL};
}
