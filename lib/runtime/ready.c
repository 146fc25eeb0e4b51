/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/ready.h"

#include <stdlib.h>

#include "cache/gate.h"
#include "codegen/codegen.h"
#include "runtime/commands.h"

/* ---- making it ready ---- */

static void write_source(const struct kiln__plan *plan, const struct kiln__launch *launch,
                         bool checked, struct kiln__text *source)
{
    struct kiln__text plain = {0};
    kiln__codegen_source(plan, launch, checked ? &plain : source);
    if (checked && !plain.failed)
        kiln__codegen_check(plain.data, source);
    source->failed = source->failed || plain.failed;
    kiln__text_free(&plain);
}

static kiln_status find_program(struct kiln__ready *ready, const struct kiln__launch *launch,
                                struct kiln__program **program, struct kiln__error *error)
{
    struct kiln__text name = {0}, source = {0};
    kiln_status status = KILN_OK;
    bool checked = ready->wrong && kiln__codegen_is_checked(launch);
    kiln__codegen_name(ready->plan, launch, &name);
    if (checked)
        kiln__text_add(&name, " checked");
    if (!name.failed)
        *program = kiln__programs_find(ready->runtime->programs, name.data, name.length);
    if (!*program) {
        write_source(ready->plan, launch, checked, &source);
        if (name.failed || source.failed)
            status = kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for a kernel");
        else
            status =
                kiln__programs_get(ready->runtime->programs, name.data, name.length, source.data,
                                   launch->options, launch->kernel, program, error);
    }
    kiln__text_free(&name);
    kiln__text_free(&source);
    return status;
}

static cl_int set_index(cl_kernel kernel, cl_uint position, int64_t value, bool wide)
{
    cl_int narrow = (cl_int)value;
    return wide ? clSetKernelArg(kernel, position, sizeof value, &value)
                : clSetKernelArg(kernel, position, sizeof narrow, &narrow);
}

static kiln_status set_constants(const struct kiln__launch *launch, cl_kernel kernel,
                                 struct kiln__error *error)
{
    for (cl_uint i = 0; i < launch->arguments.count; i++) {
        const struct kiln__argument *argument = &launch->arguments.items[i];
        cl_int code = CL_SUCCESS;
        if (argument->kind == KILN__ARGUMENT_INDEX)
            code = set_index(kernel, i, argument->integer, launch->form.wide);
        else if (argument->kind == KILN__ARGUMENT_I32)
            code = set_index(kernel, i, argument->integer, false);
        else if (argument->kind == KILN__ARGUMENT_F32)
            code = clSetKernelArg(kernel, i, sizeof argument->real, &argument->real);
        if (code)
            return kiln__cl_fail(error, "clSetKernelArg", code);
    }
    return KILN_OK;
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
        int64_t low = slot->place == KILN__PLACE_ARENA ? (int64_t)slot->offset : 0;
        code = set_index(kernel, (*position)++, low, true);
        if (!code)
            code = set_index(kernel, (*position)++, low + (int64_t)slot->bytes, true);
    }
    return code;
}

static kiln_status set_checks(struct kiln__ready *ready, size_t index, struct kiln__error *error)
{
    const struct kiln__launch *launch = &ready->plan->launches.items[index];
    cl_kernel kernel = ready->kernels[index];
    cl_uint position = (cl_uint)launch->arguments.count;
    if (!ready->wrong || !kiln__codegen_is_checked(launch))
        return KILN_OK;
    cl_int code = set_limits(ready->plan, launch, kernel, &position);
    if (!code)
        code = set_index(kernel, position, (int64_t)index + 1, false);
    if (!code)
        code = clSetKernelArg(kernel, position + 1, sizeof ready->wrong, &ready->wrong);
    return code ? kiln__cl_fail(error, "clSetKernelArg", code) : KILN_OK;
}

static kiln_status make_wrong(struct kiln__ready *ready, struct kiln__error *error)
{
    char zeros[KILN__WRONG_BYTES] = {0};
    cl_int code;
    ready->wrong = clCreateBuffer(ready->runtime->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                  sizeof zeros, zeros, &code);
    if (!code)
        return KILN_OK;
    ready->wrong = NULL;
    return kiln__cl_fail(error, "clCreateBuffer", code);
}

static kiln_status make_kernels(struct kiln__ready *ready, struct kiln__error *error)
{
    for (size_t i = 0; i < ready->plan->launches.count; i++) {
        const struct kiln__launch *launch = &ready->plan->launches.items[i];
        if (launch->source == KILN__SOURCE_CLBLAST)
            continue;
        cl_int code;
        kiln_status status = find_program(ready, launch, &ready->programs[i], error);
        if (status)
            return status;
        ready->kernels[i] =
            clCreateKernel(kiln__program_cl(ready->programs[i]), launch->kernel, &code);
        if (code) {
            ready->kernels[i] = NULL;
            return kiln__cl_fail(error, "clCreateKernel", code);
        }
        status = set_constants(launch, ready->kernels[i], error);
        if (!status)
            status = set_checks(ready, i, error);
        if (status)
            return status;
    }
    return KILN_OK;
}

/* Call `visit` for every memory argument, launch by launch. */
static void each_use(struct kiln__ready *ready,
                     void (*visit)(struct kiln__ready *, uint32_t slot, struct kiln__use use))
{
    for (uint32_t i = 0; i < ready->plan->launches.count; i++) {
        const struct kiln__launch *launch = &ready->plan->launches.items[i];
        for (uint32_t k = 0; k < launch->arguments.count; k++)
            if (launch->arguments.items[k].kind == KILN__ARGUMENT_MEMORY)
                visit(ready, launch->arguments.items[k].slot, (struct kiln__use){i, k});
    }
}

static void count_use(struct kiln__ready *ready, uint32_t slot, struct kiln__use use)
{
    (void)use;
    ready->first_use[slot + 2]++;
}

static void put_use(struct kiln__ready *ready, uint32_t slot, struct kiln__use use)
{
    ready->uses[ready->first_use[slot + 1]++] = use;
}

/* All memory arguments, those of one slot together: a counting sort. While uses are put in their
 * places, first_use[s + 1] goes from where those of slot s begin to where they end. */
static bool list_uses(struct kiln__ready *ready)
{
    size_t slots = ready->plan->slots.count;
    each_use(ready, count_use);
    for (size_t s = 0; s < slots; s++)
        ready->first_use[s + 2] += ready->first_use[s + 1];
    ready->uses = calloc((size_t)ready->first_use[slots + 1] + 1, sizeof *ready->uses);
    if (ready->uses)
        each_use(ready, put_use);
    return ready->uses;
}

kiln_status kiln__ready_create(struct kiln__runtime *runtime, const struct kiln__plan *plan,
                               bool checked, struct kiln__ready **made, struct kiln__error *error)
{
    struct kiln__ready *ready = calloc(1, sizeof *ready);
    *made = NULL;
    if (ready) {
        ready->runtime = runtime;
        ready->plan = plan;
        ready->kernels = calloc(plan->launches.count + 1, sizeof *ready->kernels);
        ready->programs = calloc(plan->launches.count + 1, sizeof *ready->programs);
        ready->memory = calloc(plan->slots.count + 1, sizeof *ready->memory);
        ready->bound = calloc(plan->slots.count + 1, sizeof *ready->bound);
        ready->first_use = calloc(plan->slots.count + 2, sizeof *ready->first_use);
    }
    if (!ready || !ready->kernels || !ready->programs || !ready->memory || !ready->bound ||
        !ready->first_use || !list_uses(ready)) {
        kiln__ready_destroy(ready);
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for the kernels");
    }
    kiln_status status = checked ? make_wrong(ready, error) : KILN_OK;
    if (!status)
        status = make_kernels(ready, error);
    if (status)
        kiln__ready_destroy(ready);
    else
        *made = ready;
    return status;
}

static void forget(struct kiln__ready *ready, size_t slot)
{
    if (ready->bound[slot])
        clReleaseMemObject(ready->bound[slot]);
    ready->bound[slot] = NULL;
}

void kiln__ready_rest(struct kiln__ready *ready)
{
    for (size_t i = 0; ready->bound && i < ready->plan->slots.count; i++)
        forget(ready, i);
}

void kiln__ready_destroy(struct kiln__ready *ready)
{
    if (!ready)
        return;
    for (size_t i = 0; ready->kernels && i < ready->plan->launches.count; i++)
        if (ready->kernels[i])
            clReleaseKernel(ready->kernels[i]);
    kiln__ready_rest(ready);
    if (ready->wrong)
        clReleaseMemObject(ready->wrong);
    free(ready->uses);
    free(ready->kernels);
    free(ready->programs);
    free(ready->memory);
    free(ready->bound);
    free(ready->first_use);
    free(ready);
}

/* ---- checked indices ---- */

/* Operations of a kernel that a sentence names. */
#define MOST_NAMED 16

void kiln__ready_name_launch(const struct kiln__plan *plan, uint32_t launch,
                             struct kiln__text *text)
{
    const struct kiln__group *group =
        &plan->fusion.groups.items[plan->launches.items[launch].group];
    kiln__text_add(text, "kernel %u (%s", launch, plan->launches.items[launch].kernel);
    for (size_t i = 0; i < group->nodes.count && i < MOST_NAMED; i++)
        kiln__text_add(text, "%s%s", i ? ", " : ": ",
                       kiln__node_name(&plan->fusion.graph.nodes.items[group->nodes.items[i]]));
    if (group->nodes.count > MOST_NAMED)
        kiln__text_add(text, " and %zu more", group->nodes.count - MOST_NAMED);
    kiln__text_add(text, ")");
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
    kiln__ready_name_launch(plan, launch, &text);
    kiln__text_add(&text, " uses element %lld of ", (long long)element);
    if (slot && slot->node != KILN__SCRATCH) {
        const struct kiln__node *node = &plan->fusion.graph.nodes.items[slot->node];
        kiln__text_add(&text, "%s, %s%s, which has %zu", kiln__node_name(node),
                       kiln_type_name((kiln_type)node->type), kiln__shape_text(&node->shape).text,
                       kiln__node_count(node));
    } else {
        kiln__text_add(&text, "its working memory of %zu bytes", slot ? slot->bytes : 0);
    }
    kiln_status status =
        kiln__fail(error, KILN_WRONG_RESULT, "%s: %s", call, text.data ? text.data : "");
    kiln__text_free(&text);
    return status;
}

kiln_status kiln__ready_judge(struct kiln__ready *ready, const char *call,
                              struct kiln__error *error)
{
    cl_int found[4] = {0};
    if (!ready->wrong)
        return KILN_OK;
    cl_int code = clEnqueueReadBuffer(ready->runtime->queue, ready->wrong, CL_TRUE, 0, sizeof found,
                                      found, 0, NULL, NULL);
    if (code)
        return kiln__cl_fail(error, "clEnqueueReadBuffer", code);
    bool known = found[0] > 0 && (size_t)found[0] <= ready->plan->launches.count;
    return known ? say_wrong(ready->plan, found, call, error) : KILN_OK;
}

/* ---- running it ---- */

/* Memory arguments of slots whose memory is another one than last time. The bound memory is
 * retained, so that an address that comes again is the same object. */
static kiln_status bind_arguments(struct kiln__ready *ready, struct kiln__error *error)
{
    for (uint32_t s = 0; s < ready->plan->slots.count; s++) {
        cl_mem memory = ready->memory[s];
        if (memory == ready->bound[s] || !memory)
            continue;
        forget(ready, s); /* should a call fail, all arguments are set again next time */
        for (uint32_t u = ready->first_use[s]; u < ready->first_use[s + 1]; u++) {
            const struct kiln__use *use = &ready->uses[u];
            if (!ready->kernels[use->launch])
                continue;
            cl_int code =
                clSetKernelArg(ready->kernels[use->launch], use->argument, sizeof memory, &memory);
            if (code)
                return kiln__cl_fail(error, "clSetKernelArg", code);
        }
        if (!clRetainMemObject(memory))
            ready->bound[s] = memory;
    }
    return KILN_OK;
}

/* Programs that were compiled are stored once they have been launched. */
static void store_programs(struct kiln__ready *ready)
{
    if (ready->has_run)
        return;
    ready->has_run = true;
    for (size_t i = 0; i < ready->plan->launches.count; i++) {
        const struct kiln__launch *launch = &ready->plan->launches.items[i];
        if (ready->programs[i])
            kiln__program_launched(ready->programs[i], launch->dimensions, launch->global,
                                   launch->local);
    }
}

kiln_status kiln__ready_run(struct kiln__ready *ready, struct kiln__bindings *bindings,
                            struct kiln__run **run, struct kiln__error *error)
{
    struct kiln__runtime *runtime = ready->runtime;
    *run = NULL;
    kiln_status status = kiln__runtime_check_process(runtime, error);
    if (status)
        return status;
    *run = kiln__run_create();
    if (!*run)
        return kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    struct kiln__commands commands = {.ready = ready, .bindings = bindings, .run = *run};
    if (runtime->gated)
        kiln__gate_enter();
    if (!kiln__bindings_check(bindings))
        status = kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to run the batch");
    if (!status)
        status = kiln__commands_begin(&commands, error);
    if (!status)
        status = bind_arguments(ready, error);
    if (!status)
        status = kiln__commands_enqueue(&commands, error);
    if (status) {
        kiln__cl_finish(runtime->queue);
        kiln__run_release(*run);
        *run = NULL;
    } else {
        store_programs(ready);
        atomic_fetch_add(&runtime->counters.batches, 1);
    }
    kiln__commands_end(&commands);
    if (runtime->gated)
        kiln__gate_leave();
    return status;
}
