/* SPDX-License-Identifier: Apache-2.0 */
/* Creation of executables: borrowed kernels, constant arguments, and the rebinding of memory
 * arguments that changed. */
#include "runtime/executable.h"

#include <stdlib.h>
#include <string.h>

#include "plan/launch_text.h"
#include "plan/names.h"
#include "plan/packing.h"
#include "programs/kernel_objects.h"
#include "runtime/memory_pool.h"

/* ---- making it ---- */

static cl_int set_index(cl_kernel kernel, cl_uint position, int64_t value, bool wide)
{
    cl_int narrow = (cl_int)value;
    return wide ? clSetKernelArg(kernel, position, sizeof value, &value)
                : clSetKernelArg(kernel, position, sizeof narrow, &narrow);
}

/* Numbers in vectors, behind the memory. */
static kiln_status set_packed(const struct kiln__launch *launch,
                              const struct kiln__packing *packing, cl_kernel kernel,
                              struct kiln__error *error)
{
    cl_long16 vectors[KILN__MOST_VECTORS] = {0};
    cl_int code = CL_SUCCESS;
    for (size_t k = 0; k < launch->arguments.count; k++) {
        const struct kiln__argument *argument = &launch->arguments.items[k];
        const unsigned place = packing->place[k];
        if (argument->kind != KILN__ARGUMENT_MEMORY)
            vectors[place / KILN__PACKED_LANES].s[place % KILN__PACKED_LANES] =
                kiln__argument_bits(argument);
    }
    for (unsigned v = 0; v < packing->vectors && !code; v++)
        code = clSetKernelArg(kernel, packing->memories + v, sizeof vectors[v], &vectors[v]);
    return code ? kiln__cl_fail(error, "clSetKernelArg", code) : KILN_OK;
}

static kiln_status set_constants(const struct kiln__launch *launch, cl_kernel kernel,
                                 struct kiln__error *error)
{
    for (cl_uint i = 0; i < launch->arguments.count; i++) {
        const struct kiln__argument *argument = &launch->arguments.items[i];
        cl_int code = CL_SUCCESS;
        if (argument->kind == KILN__ARGUMENT_INDEX)
            code = set_index(kernel, i, argument->integer, launch->variant.wide);
        else if (argument->kind == KILN__ARGUMENT_I32 || argument->kind == KILN__ARGUMENT_I64)
            code = set_index(kernel, i, argument->integer, argument->kind == KILN__ARGUMENT_I64);
        else if (argument->kind == KILN__ARGUMENT_F32)
            code = clSetKernelArg(kernel, i, sizeof argument->real, &argument->real);
        if (code)
            return kiln__cl_fail(error, "clSetKernelArg", code);
    }
    return KILN_OK;
}

static kiln_status make_table(struct kiln__executable *executable, size_t index,
                              struct kiln__error *error)
{
    const struct kiln__launch *launch = kiln__plan_launch_at(executable->plan, index);
    cl_mem *table = &executable->tables[index];
    cl_int code;
    if (!launch->table.count || *table)
        return KILN_OK;
    *table = clCreateBuffer(executable->runtime->context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR,
                            launch->table.count * sizeof *launch->table.items, launch->table.items,
                            &code);
    if (!code)
        return KILN_OK;
    *table = NULL;
    return kiln__cl_fail(error, "clCreateBuffer", code);
}

/* The driver keeps what a kernel's argument was set to only as long as somebody has it. */
static kiln_status set_table(struct kiln__executable *executable, size_t index,
                             struct kiln__error *error)
{
    const struct kiln__launch *launch = kiln__plan_launch_at(executable->plan, index);
    kiln_status status = make_table(executable, index, error);
    if (status || !launch->table.count)
        return status;
    cl_int code = clSetKernelArg(executable->kernels[index], (cl_uint)launch->arguments.count - 1,
                                 sizeof executable->tables[index], &executable->tables[index]);
    return code ? kiln__cl_fail(error, "clSetKernelArg", code) : KILN_OK;
}

static bool is_packed(const struct kiln__executable *executable, size_t index,
                      struct kiln__packing *packing)
{
    const struct kiln__launch *launch = kiln__plan_launch_at(executable->plan, index);
    return !executable->programs[index].checked &&
           kiln__packing_of(executable->plan, launch, packing);
}

/* All that stays the same from run to run. */
static kiln_status set_arguments(struct kiln__executable *executable, size_t index,
                                 struct kiln__error *error)
{
    const struct kiln__launch *launch = kiln__plan_launch_at(executable->plan, index);
    const bool checked = executable->programs[index].checked;
    cl_kernel kernel = executable->kernels[index];
    struct kiln__packing packing;
    kiln_status status = is_packed(executable, index, &packing)
                             ? set_packed(launch, &packing, kernel, error)
                             : set_constants(launch, kernel, error);
    if (!status)
        status = set_table(executable, index, error);
    if (!status && checked)
        status = kiln__checked_begin(executable, error);
    return !status && checked ? kiln__checked_arguments(executable, index, error) : status;
}

static kiln_status borrow_kernel(struct kiln__executable *executable, size_t index,
                                 struct kiln__error *error)
{
    bool same;
    kiln_status status = kiln__kernel_borrow(
        executable->programs[index].program, kiln__plan_launch_at(executable->plan, index)->kernel,
        executable->borrower, &executable->lent[index], &same, error);
    if (status)
        return status;
    executable->kernels[index] = kiln__kernel_cl(executable->lent[index]);
    return same ? KILN_OK : set_arguments(executable, index, error);
}

kiln_status kiln__executable_borrow(struct kiln__executable *executable, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < kiln__plan_launches(executable->plan) && !status; i++)
        if (executable->programs[i].program)
            status = borrow_kernel(executable, i, error);
    return status;
}

static void return_kernels(struct kiln__executable *executable)
{
    for (size_t i = 0; executable->kernels && i < kiln__plan_launches(executable->plan); i++)
        if (executable->kernels[i]) {
            kiln__kernel_return(executable->lent[i]);
            executable->kernels[i] = NULL;
        }
}

/* Call `visit` for every memory argument, launch by launch. */
static void each_use(struct kiln__executable *executable,
                     void (*visit)(struct kiln__executable *, uint32_t slot, struct kiln__use use))
{
    for (uint32_t i = 0; i < kiln__plan_launches(executable->plan); i++) {
        const struct kiln__launch *launch = kiln__plan_launch_at(executable->plan, i);
        struct kiln__packing packing;
        const bool packed = is_packed(executable, i, &packing);
        for (uint32_t k = 0; k < launch->arguments.count; k++)
            if (launch->arguments.items[k].kind == KILN__ARGUMENT_MEMORY)
                visit(executable, launch->arguments.items[k].slot,
                      (struct kiln__use){i, packed ? packing.place[k] : k});
    }
}

static void count_use(struct kiln__executable *executable, uint32_t slot, struct kiln__use use)
{
    (void)use;
    executable->first_use[slot + 2]++;
}

static void put_use(struct kiln__executable *executable, uint32_t slot, struct kiln__use use)
{
    executable->uses[executable->first_use[slot + 1]++] = use;
}

/* All memory arguments, those of one slot together: a counting sort. While uses are put in their
 * places, first_use[s + 1] goes from where those of slot s begin to where they end. */
static bool list_uses(struct kiln__executable *executable)
{
    size_t slots = executable->plan->slots.count;
    each_use(executable, count_use);
    for (size_t s = 0; s < slots; s++)
        executable->first_use[s + 2] += executable->first_use[s + 1];
    executable->uses =
        calloc((size_t)executable->first_use[slots + 1] + 1, sizeof *executable->uses);
    if (executable->uses)
        each_use(executable, put_use);
    return executable->uses;
}

static bool make_room(struct kiln__executable *executable,
                      const struct kiln__launch_program *programs)
{
    size_t launches = kiln__plan_launches(executable->plan), slots = executable->plan->slots.count;
    executable->kernels = calloc(launches + 1, sizeof *executable->kernels);
    executable->lent = calloc(launches + 1, sizeof *executable->lent);
    executable->programs = calloc(launches + 1, sizeof *executable->programs);
    executable->tables = calloc(launches + 1, sizeof *executable->tables);
    executable->bound = calloc(slots + 1, sizeof *executable->bound);
    executable->first_use = calloc(slots + 2, sizeof *executable->first_use);
    if (executable->programs)
        memcpy(executable->programs, programs, launches * sizeof *programs);
    return executable->kernels && executable->lent && executable->programs && executable->tables &&
           executable->bound && executable->first_use &&
           kiln__run_slots_begin(&executable->run, executable->plan) && list_uses(executable);
}

/* Without memory spans have no words. */
static void executable_describe(struct kiln__executable *executable)
{
    const struct kiln__plan *plan = executable->plan;
    struct kiln__trace *trace = executable->runtime->trace;
    if (trace)
        executable->described =
            calloc(kiln__plan_launches(plan) + 1, sizeof *executable->described);
    for (uint32_t i = 0; i < kiln__plan_launches(plan) && executable->described; i++) {
        struct kiln__text names = {0}, shapes = {0};
        kiln__launch_operation_names(plan, i, &names);
        kiln__launch_shapes(plan, i, &shapes);
        struct kiln__trace_words words = {
            names.data ? names.data : "", shapes.data ? shapes.data : "",
            kiln__plan_launch_at(plan, i)->group, kiln__launch_operations(plan, i)};
        executable->described[i] = kiln__trace_describe(trace, &words);
        kiln__text_free(&names);
        kiln__text_free(&shapes);
    }
}

/* Without memory spans have no names. */
void kiln__executable_set_labels(struct kiln__executable *executable,
                                 const struct kiln__labels *labels)
{
    struct kiln__trace *trace = executable->runtime->trace;
    size_t launches = kiln__plan_launches(executable->plan), slots = executable->plan->slots.count;
    uint64_t hash = trace ? kiln__labels_hash(labels) : 0;
    if (hash == executable->labels)
        return;
    executable->labels = hash;
    free(executable->called);
    executable->called = hash ? calloc(launches + slots + 1, sizeof *executable->called) : NULL;
    struct kiln__names names;
    kiln__names_make(executable->plan, labels, &names);
    for (uint32_t i = 0; i < launches + slots && executable->called; i++) {
        struct kiln__text lines = {0};
        if (i < launches)
            kiln__names_append(&names, i, "", "\n", &lines);
        else
            kiln__names_append_slot(&names, i - (uint32_t)launches, "\n", &lines);
        executable->called[i] = lines.data ? kiln__trace_call(trace, lines.data) : 0;
        kiln__text_free(&lines);
    }
    kiln__names_free(&names);
}

kiln_status kiln__executable_create(struct kiln__runtime *runtime, const struct kiln__plan *plan,
                                    const struct kiln__launch_program *programs,
                                    struct kiln__executable **made, struct kiln__error *error)
{
    struct kiln__executable *executable = calloc(1, sizeof *executable);
    kiln_status status = KILN_OK;
    *made = NULL;
    if (executable) {
        executable->runtime = runtime;
        executable->plan = plan;
        executable->borrower = kiln__kernel_borrower();
    }
    if (!executable || !make_room(executable, programs))
        status = kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for the kernels");
    if (!status)
        status = kiln__executable_borrow(executable, error);
    if (status) {
        kiln__executable_destroy(executable);
        return status;
    }
    executable_describe(executable);
    *made = executable;
    return status;
}

/* Where one piece is all, a pool takes it as it is if there is no room for more. */
uint64_t kiln__executable_pool_bytes(const struct kiln__plan *plan, uint64_t others)
{
    for (size_t i = 0; i < plan->slots.count; i++)
        if (plan->slots.items[i].storage == KILN__STORAGE_PREPACKED)
            others += kiln__pool_rounded(plan->slots.items[i].bytes);
    return others ? others + kiln__pool_rounded(plan->arena_bytes) : plan->arena_bytes;
}

static void forget(struct kiln__executable *executable, size_t slot)
{
    if (executable->bound[slot].retained)
        kiln__budget_release_object(&executable->runtime->memory, executable->bound[slot].memory,
                                    0);
    executable->bound[slot] = (struct kiln__bound){0};
}

void kiln__executable_unbind(struct kiln__executable *executable)
{
    executable->run.settled = 0;
    for (size_t i = 0; executable->bound && i < executable->plan->slots.count; i++)
        forget(executable, i);
}

void kiln__executable_return(struct kiln__executable *executable)
{
    kiln__executable_unbind(executable);
    return_kernels(executable);
}

void kiln__executable_destroy(struct kiln__executable *executable)
{
    if (!executable)
        return;
    return_kernels(executable);
    for (size_t i = 0; executable->tables && i < kiln__plan_launches(executable->plan); i++)
        if (executable->tables[i])
            kiln__budget_release_object(&executable->runtime->memory, executable->tables[i], 0);
    kiln__executable_unbind(executable);
    if (executable->wrong)
        kiln__budget_release_object(&executable->runtime->memory, executable->wrong, 0);
    free(executable->uses);
    free(executable->kernels);
    free(executable->lent);
    free(executable->programs);
    free(executable->tables);
    free(executable->described);
    free(executable->called);
    free(executable->bound);
    kiln__run_slots_end(&executable->run);
    free(executable->first_use);
    free(executable);
}

/* ---- running it ---- */

static uint64_t count_releases(const struct kiln__executable *executable)
{
    return atomic_load(&executable->runtime->memory.releases);
}

/* What was bound is compared with what the run takes from here on: an address that comes again may
 * be another object's, if one was released since the last run began. What is counted while this run
 * takes memory is looked at by the next one as well. */
void kiln__executable_begin(struct kiln__executable *executable)
{
    executable->run.releases = count_releases(executable);
}

static void forget_released(struct kiln__executable *executable)
{
    if (count_releases(executable) != executable->releases) {
        executable->run.settled = 0;
        for (size_t s = 0; s < executable->plan->slots.count; s++)
            if (!executable->bound[s].retained)
                forget(executable, s);
    }
    executable->releases = executable->run.releases;
}

/* Memory arguments of a slot, if its memory is another one than last time. */
static kiln_status bind_slot(struct kiln__executable *executable, size_t s,
                             struct kiln__error *error)
{
    cl_mem memory = executable->run.memory[s];
    if (memory == executable->bound[s].memory || !memory)
        return KILN_OK;
    forget(executable, s); /* should a call fail, all arguments are set again next time */
    for (uint32_t u = executable->first_use[s]; u < executable->first_use[s + 1]; u++) {
        const struct kiln__use *use = &executable->uses[u];
        if (!executable->kernels[use->launch])
            continue;
        cl_int code =
            clSetKernelArg(executable->kernels[use->launch], use->argument, sizeof memory, &memory);
        if (code)
            return kiln__cl_fail(error, "clSetKernelArg", code);
    }
    bool retained = executable->run.foreign[s];
    if (!retained || !clRetainMemObject(memory))
        executable->bound[s] = (struct kiln__bound){memory, retained};
    return KILN_OK;
}

kiln_status kiln__executable_bind(struct kiln__executable *executable, uint64_t bindings,
                                  struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    forget_released(executable);
    bool same = executable->run.settled == bindings;
    size_t count = same ? executable->run.anew_count : executable->plan->slots.count;
    executable->run.settled = 0;
    for (size_t i = 0; i < count && !status; i++)
        status = bind_slot(executable, same ? executable->run.anew[i] : i, error);
    executable->run.settled = status ? 0 : bindings;
    return status;
}

void kiln__executable_launched(struct kiln__executable *executable)
{
    if (executable->has_run)
        return;
    executable->has_run = true;
    for (size_t i = 0; i < kiln__plan_launches(executable->plan); i++) {
        const struct kiln__launch *launch = kiln__plan_launch_at(executable->plan, i);
        if (executable->programs[i].program)
            kiln__program_launched(executable->programs[i].program, launch->dimensions,
                                   launch->global, launch->local);
    }
}
