/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a context. */
#pragma once

#include <pthread.h>

#include "device/device.h"
#include "device/tunables.h"
#include "record/batch.h"
#include "runtime/runtime.h"
#include "session/plan_cache.h"
#include "session/sample.h"

struct kiln_context {
    atomic_int references;
    struct kiln__runtime runtime;
    struct kiln__traits traits; /* the device's, as tuned, */
    struct kiln__tuning tuning; /* and what single works have instead */
    struct kiln__plan_cache *plan_cache;
    struct kiln__self_tester *self_tester; /* NULL where no kernel has to be proved */
    uint8_t product;                       /* enum kiln__product_name of what batches record */
    char *matmul;                          /* implementation to use where it can be, or NULL */
    struct kiln__sample validate;          /* runs that are compared with the host */
    struct kiln__sample check_values;      /* runs whose values are looked at before */
    struct {
        pthread_mutex_t mutex; /* held while it is looked for, device and disk included */
        kiln_type type;        /* 0: nobody has asked */
    } precision;
};

struct kiln_event {
    atomic_int references;
    kiln_context *context;
    struct kiln__run *run;
};

/* Say which option or variable out of a few words has a value that nobody knows, or which file
 * cannot be written, on behalf of `call` (option_words.c). Errors: INVALID_ARGUMENT, IO_ERROR. */
kiln_status kiln__option_words_check(const char *call, const kiln_context_options *options);

/* The same of a kiln_precision. */
kiln_status kiln__precision_check(const char *call, int precision);

/* A buffer whose memory is the host's, from `host` on, which has what the buffer is to hold. NULL
 * where the device has memory of its own, or cannot work on that. `ended` is called with `user`,
 * from whichever thread, once neither buffer nor device use the memory any more; not at all for
 * NULL. */
kiln_buffer *kiln__buffer_wrap(kiln_context *context, kiln_type type,
                               const struct kiln__shape *shape, void *host,
                               void (*ended)(void *user), void *user);

/* Wait for the latest run of a batch. `call` is for the sentence. Errors: DEVICE_ERROR. */
kiln_status kiln__batch_await(const kiln_batch *batch, const char *call, struct kiln__error *error);
