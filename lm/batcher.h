/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that go on together: who waits, who has a slot, and what a step runs. */
#ifndef KILN_LM_BATCHER_H
#define KILN_LM_BATCHER_H

#include <pthread.h>

#include "executor/histogram.h"
#include "lm/prefixes.h"
#include "lm/session.h"

enum {
    KILN__LM_FEWEST_SLOTS = 2, /* that share runs */
    KILN__LM_MOST_SLOTS = 64,
    KILN__LM_LANES = 7,      /* numbers of lanes: 1, 2, 4, ... */
    KILN__LM_LENGTHS = 20,   /* of moves: KILN__LM_PART, four times as many, ... */
    KILN__LM_PRIORITIES = 3, /* high, normal, low */
    KILN__LM_MOST_FAILURES = 3,
};

struct kiln_lm_request {
    kiln_lm_batcher *batcher;
    int references; /* the caller's, and the queue's or the slot's */
    struct kiln__sampling sampling;
    uint64_t seed;
    unsigned rank;               /* 0: among the first */
    int32_t *text;               /* of `most` tokens: */
    size_t prompt, length, most; /* the prompt's, and how many there are so far */
    bool waits;                  /* in the queue */
    bool going;                  /* its keys are in its slot but for the last token's */
    bool ended;
    kiln_status status;          /* once it has ended */
    char *sentence;              /* of an error; NULL: none */
    unsigned failures;           /* runs that failed with it */
    int64_t submitted, deadline; /* nanoseconds */
    size_t kept;                 /* log-probabilities of each token of the answer: */
    kiln_lm_logprob *logprobs;
    const float *logits;          /* by which the last token was chosen, until the next step */
    struct kiln_lm_request *next; /* in the queue */
};

struct kiln__lm_queue {
    struct kiln_lm_request *first, *last;
};

struct kiln_lm_batcher {
    kiln_lm *lm;
    size_t max_queue;

    /* Under the lock; only who steps takes requests out of slots. */
    pthread_mutex_t lock;
    size_t references; /* the caller's and requests' */
    bool closed;
    struct kiln__lm_queue queues[KILN__LM_PRIORITIES];
    size_t queued;
    kiln_lm_request *slots[KILN__LM_MOST_SLOTS];
    kiln_lm_batcher_stats stats; /* what counts up; the rest is made when it is asked for */
    uint64_t lanes_run, texts_run;
    struct kiln__histogram first, step, total;

    /* Of who steps. */
    struct kiln__lm_caches caches;
    struct kiln__lm_prefixes prefixes; /* of prompts that were read; texts that take turns: none */
    /* Of prompts, one after another: the first one. Of a model in an ONNX file that takes one text
     * at a time each slot has a session of its own, and no keys are moved. */
    bool alone;
    kiln_lm_session *readers[KILN__LM_MOST_SLOTS];
    kiln_lm_request *reading; /* whose prompt; NULL: nobody's */
    size_t reading_slot;
    bool has_begun; /* the reader has its text */
    kiln_batch *steps[KILN__LM_LANES], *moves[KILN__LM_LENGTHS];
    int32_t tokens[KILN__LM_MOST_SLOTS], positions[KILN__LM_MOST_SLOTS]; /* what steps read */
    int32_t move_start;                       /* of a slot in all slots' keys; of an ONNX file */
    int32_t move_starts[KILN__LM_MOST_SLOTS]; /* in each slot's: nowhere but in one */
    float *logits;                            /* [slots,words] */
};

int64_t kiln__lm_now(void); /* nanoseconds */

/* Find out whether texts share runs, and have `caches` say type, slots and context, as the options
 * and the memory limit allow. Errors: OUT_OF_DEVICE_MEMORY, TOO_LARGE, those of recording. */
kiln_status kiln__lm_batcher_choose_slots(kiln_lm_batcher *batcher,
                                          const kiln_lm_batcher_options *options);

/* How many pages of prompts' beginnings are kept, beside those slots. */
size_t kiln__lm_batcher_count_pages(const kiln_lm_batcher *batcher,
                                    const kiln_lm_batcher_options *options);

/* Of the token that comes next, before it is there. */
void kiln__lm_keep_logprobs(kiln_lm_request *request, const float *logits, int32_t token);

/* Whose session the prompt that is read belongs to. */
kiln_lm_session *kiln__lm_batcher_reader(const kiln_lm_batcher *batcher);

/* The batch of a step of so many lanes. Errors: those of recording. */
kiln_status kiln__lm_record_lanes(kiln_lm_batcher *batcher, size_t lanes, kiln_batch **step);

/* Record and try all that steps run; no text is there. Errors: as kiln__lm_session_try(). */
kiln_status kiln__lm_batcher_prepare(kiln_lm_batcher *batcher);

/* Under the lock. A request that ends with an error has the thread's last sentence. */
void kiln__lm_request_end(kiln_lm_request *request, kiln_status status);
void kiln__lm_request_drop(kiln_lm_request *request); /* a reference */
void kiln__lm_queue_put_first(kiln_lm_request *request);
void kiln__lm_queue_expire(kiln_lm_batcher *batcher, int64_t now);

/* The first that waits, with the queue's reference; NULL: none. */
kiln_lm_request *kiln__lm_queue_take(kiln_lm_batcher *batcher);

#endif
