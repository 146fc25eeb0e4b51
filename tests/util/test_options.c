/* SPDX-License-Identifier: Apache-2.0 */
/* What spares callers words: defaults by functions, lists as arguments. No device. */
#include <criterion/criterion.h>
#include <stddef.h>
#include <string.h>

#include <kiln/kiln.h>

#define EXPECT_SAME_BYTES(bytes, type, call, ...)                                                  \
    do {                                                                                           \
        type wanted, options;                                                                      \
        memset(&wanted, 0, sizeof wanted);                                                         \
        memset(&options, 0, sizeof options);                                                       \
        wanted = (type)__VA_ARGS__;                                                                \
        call;                                                                                      \
        cr_expect(!memcmp(&options, &wanted, bytes), #call);                                       \
    } while (0)
#define EXPECT_SAME(type, initialiser, call)                                                       \
    EXPECT_SAME_BYTES(sizeof(type), type, call, initialiser)

Test(options, have_the_same_defaults_from_functions_as_from_macros)
{
    EXPECT_SAME(kiln_attention_options, KILN_ATTENTION_OPTIONS_INIT,
                kiln_attention_options_init(&options));
    EXPECT_SAME(kiln_context_options, KILN_CONTEXT_OPTIONS_INIT,
                kiln_context_options_init(&options));
    EXPECT_SAME(kiln_conv_options, KILN_CONV_OPTIONS_INIT, kiln_conv_options_init(&options));
    EXPECT_SAME(kiln_pool_options, KILN_POOL_OPTIONS_INIT, kiln_pool_options_init(&options));
    EXPECT_SAME(kiln_window_options, KILN_WINDOW_OPTIONS_INIT, kiln_window_options_init(&options));
    EXPECT_SAME(kiln_cross_entropy_options, KILN_CROSS_ENTROPY_INIT,
                kiln_cross_entropy_options_init(&options));
    EXPECT_SAME(kiln_executor_options, KILN_EXECUTOR_OPTIONS_INIT,
                kiln_executor_options_init(&options));
    EXPECT_SAME(kiln_executor_options, KILN_EXECUTOR_LATENCY_INIT,
                kiln_executor_options_init_latency(&options));
    EXPECT_SAME(kiln_executor_options, KILN_EXECUTOR_THROUGHPUT_INIT,
                kiln_executor_options_init_throughput(&options));
    EXPECT_SAME(kiln_request_options, KILN_REQUEST_OPTIONS_INIT,
                kiln_request_options_init(&options));
    EXPECT_SAME(kiln_recurrent, KILN_RECURRENT_INIT, kiln_recurrent_init(&options));
    EXPECT_SAME(kiln_resize_options, KILN_RESIZE_OPTIONS_INIT, kiln_resize_options_init(&options));
    EXPECT_SAME_BYTES(offsetof(kiln_model, precision) + sizeof(kiln_precision), kiln_model,
                      kiln_model_init(&options), KILN_MODEL_INIT); /* behind it is no field */
    EXPECT_SAME(kiln_training, KILN_TRAINING_INIT, kiln_training_init(&options));
    EXPECT_SAME(kiln_optimizer_options, KILN_SGD_INIT,
                kiln_optimizer_options_init(KILN_SGD, &options));
    EXPECT_SAME(kiln_optimizer_options, KILN_ADAM_INIT,
                kiln_optimizer_options_init(KILN_ADAM, &options));
    EXPECT_SAME(kiln_optimizer_options, KILN_ADAMW_INIT,
                kiln_optimizer_options_init(KILN_ADAMW, &options));
    EXPECT_SAME(kiln_optimizer_options, {0},
                kiln_optimizer_options_init((kiln_optimizer_method)9, &options));
    kiln_context_options_init(NULL);
    kiln_optimizer_options_init(KILN_SGD, NULL);
}

/* ---- lists ---- */

static int calls;

static size_t product(size_t rank, const size_t *dims)
{
    size_t all = 1;
    for (size_t i = 0; i < rank; i++)
        all *= dims[i];
    return all;
}

static int sum(size_t n, const int *axes)
{
    int all = 0;
    for (size_t i = 0; i < n; i++)
        all += axes[i];
    return all;
}

static size_t next(void)
{
    return (size_t)++calls;
}

Test(options, count_the_elements_of_a_list)
{
    size_t n = 5;
    cr_expect_eq(product(kiln_shape(7)), 7u);
    cr_expect_eq(product(kiln_shape(2, 3, n)), 30u);
    cr_expect_eq(product(KILN_SCALAR), 1u);
    cr_expect_eq(product(kiln_shape(next(), next())), 2u, "elements are evaluated once");
    cr_expect_eq(sum(kiln_axes(-1, 0, 3)), 2);
    cr_expect_eq(sum(KILN_ALL_AXES), 0);
    cr_expect_eq(product(2, kiln_dims(4, 5)), 20u);
    cr_expect_eq(kiln_positions(-1, INT64_MIN)[1], INT64_MIN);
}
