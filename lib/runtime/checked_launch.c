/* SPDX-License-Identifier: Apache-2.0 */
/* Checked kernels: what they take beside their launch's arguments, and what they have noted. */

#include "runtime/executable.h"

#include "plan/launch_text.h"

static cl_int set_long(cl_kernel kernel, cl_uint position, size_t value)
{
    cl_long wide = (cl_long)value;
    return clSetKernelArg(kernel, position, sizeof wide, &wide);
}

/* Where each memory argument may be used, in bytes. */
static cl_int set_limits(const struct kiln__plan *plan, const struct kiln__launch *launch,
                         cl_kernel kernel, cl_uint *position)
{
    cl_int code = CL_SUCCESS;
    for (size_t i = 0; i < launch->arguments.count && !code; i++) {
        if (launch->arguments.items[i].kind != KILN__ARGUMENT_MEMORY)
            continue;
        const struct kiln__slot *slot = &plan->slots.items[launch->arguments.items[i].slot];
        size_t low = slot->storage == KILN__STORAGE_ARENA ? slot->offset : 0;
        code = set_long(kernel, (*position)++, low);
        if (!code)
            code = set_long(kernel, (*position)++, low + slot->bytes);
    }
    return code;
}

kiln_status kiln__checked_arguments(struct kiln__executable *executable, size_t index,
                                    struct kiln__error *error)
{
    const struct kiln__launch *launch = &executable->plan->launches.items[index];
    cl_kernel kernel = executable->kernels[index];
    cl_uint position = (cl_uint)launch->arguments.count;
    const cl_int number = (cl_int)index + 1;
    cl_int code = set_limits(executable->plan, launch, kernel, &position);
    if (!code)
        code = clSetKernelArg(kernel, position, sizeof number, &number);
    if (!code)
        code = clSetKernelArg(kernel, position + 1, sizeof executable->wrong, &executable->wrong);
    return code ? kiln__cl_fail(error, "clSetKernelArg", code) : KILN_OK;
}

kiln_status kiln__checked_begin(struct kiln__executable *executable, struct kiln__error *error)
{
    char zeros[KILN__WRONG_BYTES] = {0};
    cl_int code;
    if (executable->wrong)
        return KILN_OK;
    executable->wrong =
        clCreateBuffer(executable->runtime->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                       sizeof zeros, zeros, &code);
    if (!code)
        return KILN_OK;
    executable->wrong = NULL;
    return kiln__cl_fail(error, "clCreateBuffer", code);
}

static const struct kiln__slot *memory_of(const struct kiln__plan *plan, uint32_t launch,
                                          cl_int number)
{
    const struct kiln__launch *of = &plan->launches.items[launch];
    size_t i = 0;
    for (; i < of->arguments.count; i++)
        if (of->arguments.items[i].kind == KILN__ARGUMENT_MEMORY && --number == 0)
            break;
    return i < of->arguments.count ? &plan->slots.items[of->arguments.items[i].slot] : NULL;
}

static kiln_status say_wrong(const struct kiln__plan *plan, const cl_int *found, const char *call,
                             struct kiln__error *error)
{
    struct kiln__text text = {0};
    uint32_t launch = (uint32_t)found[0] - 1;
    int64_t element = (int64_t)((uint64_t)(uint32_t)found[3] << 32 | (uint32_t)found[2]);
    const struct kiln__slot *slot = memory_of(plan, launch, found[1]);
    kiln__launch_title(plan, launch, &text);
    kiln__text_add(&text, " uses element %lld of ", (long long)element);
    if (slot && slot->node != KILN__SCRATCH) {
        const struct kiln__node *node = &plan->fusion.graph.nodes.items[slot->node];
        kiln__text_add(&text, "%s, %s%s, which has %zu", kiln__node_name(node),
                       kiln_type_name(node->type), kiln__shape_text(&node->shape).text,
                       kiln__node_count(node));
    } else {
        kiln__text_add(&text, "its working memory of %zu bytes", slot ? slot->bytes : 0);
    }
    kiln_status status =
        kiln__fail(error, KILN_WRONG_RESULT, "%s: %s", call, text.data ? text.data : "");
    kiln__text_free(&text);
    return status;
}

kiln_status kiln__checked_judge(struct kiln__executable *executable, struct kiln__stream *stream,
                                const char *call, struct kiln__error *error)
{
    cl_int found[4] = {0};
    if (!executable->wrong)
        return KILN_OK;
    cl_int code = clEnqueueReadBuffer(stream->queue, executable->wrong, CL_TRUE, 0, sizeof found,
                                      found, 0, NULL, NULL);
    if (code)
        return kiln__cl_fail(error, "clEnqueueReadBuffer", code);
    bool known = found[0] > 0 && (size_t)found[0] <= executable->plan->launches.count;
    return known ? say_wrong(executable->plan, found, call, error) : KILN_OK;
}
