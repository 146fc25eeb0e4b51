/* SPDX-License-Identifier: Apache-2.0 */
/* What a program writes that includes the public headers, in the words that C11 and C++11 share:
 * tests/check-headers.sh compiles it as both. */
#include <kiln/kiln.h>
#include <kiln/opencl.h>

#include <stddef.h>

int use(const float *values, float *results, size_t n);

static void done(kiln_status status, void *user)
{
    *(kiln_status *)user = status;
}

static const char *const names[] = {
#define NAME(name, value, text) #name,
    KILN_STATUS_MAP(NAME)
#undef NAME
};

static const size_t sizes[] = {
#define SIZE(name, value, bytes, ctype) sizeof(ctype) == (bytes) ? (bytes) : 0,
    KILN_TYPE_MAP(SIZE)
#undef SIZE
};

int use(const float *values, float *results, size_t n)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context = NULL;
    kiln_event *event = NULL;
    kiln_status told = KILN_NOT_READY;
    cl_command_queue queue = NULL;
    const int axis = 0;
    kiln_context_options_init(&options);
    options.device = "cpu";
    options.cache = KILN_CACHE_READ_ONLY;
    if (kiln_context_create(&options, &context) != KILN_OK)
        return names[0][0];
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, &n, values);
    kiln_tensor mean = kiln_mean(batch, kiln_exp(batch, x), 1, &axis, 1);
    kiln_tensor both = kiln_concat(batch, kiln_tensors(x, mean), -1);
    both = kiln_reshape(batch, both, kiln_shape(2, n));
    both = kiln_slice(batch, both, kiln_positions(0, -1), kiln_positions(1, 4), NULL);
    both = kiln_sum(batch, kiln_transpose(batch, both, kiln_dims(1, 0)), kiln_axes(0, 1), 0);
    x = kiln_add(batch, x, kiln_add(batch, both, kiln_fill(batch, KILN_F32, KILN_SCALAR, 1)));
    mean = kiln_add(batch, mean, kiln_sum(batch, x, KILN_ALL_AXES, 0));
    kiln_read(batch, kiln_sub(batch, x, mean), results, n * sizeof *results);
    kiln_status status = kiln_batch_submit(batch, &event);
    if (!status)
        status = kiln_event_notify(event, done, &told);
    if (!status)
        status = kiln_context_cl(context, NULL, NULL, &queue);
    kiln_event_release(event);
    kiln_batch_release(batch);
    kiln_context_release(context);
    return status < 0 ? (int)sizes[0] : KILN_MAX_RANK;
}
