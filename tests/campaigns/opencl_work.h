/* SPDX-License-Identifier: Apache-2.0 */
/* The work during which OpenCL calls fail: everything that kiln does with a device, in parts that
 * are short enough to be done once for each of their calls. */
#pragma once

#include <stdbool.h>

#include <kiln/kiln.h>

/* One go at one part. */
struct trial {
    const struct work *work;
    const char *folder;    /* of the part's kernel cache */
    kiln_context *context; /* NULL if the part makes its own, or released it */
    kiln_batch *batch;     /* NULL, or one that is kept */
    kiln_buffer *buffers[2];
    kiln_event *event;
    bool once;    /* one call fails, and none after it */
    bool returns; /* a call that fails is made first: what it did stays done */
    bool failed;  /* a call answered an error, the first one this: */
    kiln_status status;
    bool speechless; /* an error came without a sentence, or with what was asked for */
    bool wrong;      /* a call answered success, and its result is wrong */
    bool late;       /* a command failed, and what was computed after it may be anything */
};

struct work {
    const char *name;
    const char *host_memory; /* as $KILN_HOST_MEMORY */
    bool profile;
    bool validate;  /* each run is compared with the host */
    bool cold;      /* nothing is in the kernel cache; otherwise everything is */
    bool no_device; /* the part makes and releases its own context */
    bool silent;    /* the part is releases, which report nothing */
    bool reruns;    /* what fails is done again elsewhere: an error may stay unseen */
    bool slow;      /* only in the long form */
    void (*prepare)(struct trial *trial); /* before calls fail; may be NULL */
    void (*act)(struct trial *trial);     /* while calls fail */
    void (*inspect)(struct trial *trial); /* afterwards; may be NULL */
};

/* Of the trial's buffers: f32. */
enum { WORK_BUFFER_ROWS = 8, WORK_BUFFER_COLUMNS = 4 };

extern const struct work works[];
extern const int work_count;

/* A context as the part's. */
kiln_status work_open(const struct trial *trial, kiln_context **context);

/* Make the context and whatever else the part starts from. */
void work_begin(struct trial *trial);

/* A batch that has to go well now. */
void work_verify(struct trial *trial);

/* Release everything. */
void work_end(struct trial *trial);

/* ---- for parts: note what a call answered ---- */

/* Whether it went well. */
bool trial_good(struct trial *trial, kiln_status status);

/* The same where something is handed out, at `object`: NULL if it did not go well. */
bool trial_made(struct trial *trial, kiln_status status, const void *object);

kiln_batch *trial_begin(struct trial *trial, kiln_context *context);
bool trial_recorded(struct trial *trial, const kiln_batch *batch);
void trial_expect(struct trial *trial, bool right);
