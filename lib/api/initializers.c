/* SPDX-License-Identifier: Apache-2.0 */
/* The initialisers of the headers as functions, for callers that have no macros. Each fills as much
 * as the caller says that its structure has. */
#include <string.h>

#include <kiln/kiln.h>

#include "util/structure.h"

/* The caller's form of what an initialiser made. */
static void initializer_fill(void *options, size_t size, const void *own, size_t own_size)
{
    if (!options || size < sizeof size)
        return;
    kiln__structure_fill(options, size, own, own_size);
    memcpy(options, &size, sizeof size);
}

#define INIT(function, type, initialiser)                                                          \
    void(function)(type * options, size_t size)                                                    \
    {                                                                                              \
        static const type own = initialiser;                                                       \
        initializer_fill(options, size, &own, sizeof own);                                         \
    }

INIT(kiln_attention_options_init, kiln_attention_options, KILN_ATTENTION_OPTIONS_INIT)
INIT(kiln_context_options_init, kiln_context_options, KILN_CONTEXT_OPTIONS_INIT)
INIT(kiln_conv_options_init, kiln_conv_options, KILN_CONV_OPTIONS_INIT)
INIT(kiln_cross_entropy_options_init, kiln_cross_entropy_options, KILN_CROSS_ENTROPY_INIT)
INIT(kiln_executor_options_init, kiln_executor_options, KILN_EXECUTOR_OPTIONS_INIT)
INIT(kiln_executor_options_init_latency, kiln_executor_options, KILN_EXECUTOR_LATENCY_INIT)
INIT(kiln_executor_options_init_throughput, kiln_executor_options, KILN_EXECUTOR_THROUGHPUT_INIT)
INIT(kiln_pool_options_init, kiln_pool_options, KILN_POOL_OPTIONS_INIT)
INIT(kiln_reducer_init, kiln_reducer, KILN_REDUCER_INIT)
INIT(kiln_request_options_init, kiln_request_options, KILN_REQUEST_OPTIONS_INIT)
INIT(kiln_custom_kernel_init, kiln_custom_kernel, KILN_CUSTOM_KERNEL_INIT)
INIT(kiln_loop_options_init, kiln_loop_options, KILN_LOOP_INIT)
INIT(kiln_recurrent_init, kiln_recurrent, KILN_RECURRENT_INIT)
INIT(kiln_resize_options_init, kiln_resize_options, KILN_RESIZE_OPTIONS_INIT)
INIT(kiln_training_init, kiln_training, KILN_TRAINING_INIT)
INIT(kiln_window_options_init, kiln_window_options, KILN_WINDOW_OPTIONS_INIT)

void(kiln_model_init)(kiln_model *model, size_t size, size_t row_size)
{
    static const kiln_model usual = KILN_MODEL_INIT;
    kiln_model own;
    memcpy(&own, &usual, sizeof own); /* with what lies behind the last field */
    own.row_size = row_size;
    initializer_fill(model, size, &own, sizeof own);
}

void(kiln_optimizer_options_init)(kiln_optimizer_method method, kiln_optimizer_options *options,
                                  size_t size)
{
    static const kiln_optimizer_options all[] = {KILN_SGD_INIT, KILN_ADAM_INIT, KILN_ADAMW_INIT};
    static const kiln_optimizer_options none;
    const kiln_optimizer_options *own = &none;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].method == method)
            own = &all[i];
    if (own != &none)
        initializer_fill(options, size, own, sizeof *own);
    else if (options)
        memset(options, 0, size); /* which no call takes */
}
