/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of CLBlast's GEMM, behind a lock, with its process-wide parameter sets. */
#include "runtime/clblast.h"

#include "lower/matmul.h"

#ifdef HAVE_CLBLAST

#include <clblast_c.h>
#include <pthread.h>
#include <stdatomic.h>

#include "runtime/clblast_sets.h"
#include "util/log.h"

static atomic_uint users;

void kiln__clblast_begin(void)
{
    atomic_fetch_add(&users, 1);
}

void kiln__clblast_end(void)
{
    if (atomic_fetch_sub(&users, 1) == 1)
        CLBlastClearCache();
}

/* ---- parameters ---- */

/* CLBlast has one set per device for the whole process, and does not tell its own: each kernel's
 * latest one that was asked for counts for all contexts. */
enum { MOST_DEVICES = 16 };
static struct used {
    cl_device_id device;
    unsigned sets[KILN__CLBLAST_KERNELS];
} used[MOST_DEVICES];
static pthread_mutex_t using = PTHREAD_MUTEX_INITIALIZER; /* guards `used` */

/* With the lock. NULL: beyond the last device CLBlast's own stay. */
static struct used *find_used(cl_device_id device)
{
    for (size_t i = 0; i < MOST_DEVICES; i++)
        if (used[i].device == device || !used[i].device) {
            used[i].device = device;
            return &used[i];
        }
    return NULL;
}

/* A change has CLBlast compile its programs anew. */
static void use_set(struct used *device, size_t which, unsigned set)
{
    const struct kiln__clblast_kernel *kernel = &kiln__clblast_kernels[which];
    const char *names[KILN__CLBLAST_MOST];
    size_t values[KILN__CLBLAST_MOST];
    if (!set || set > KILN__CLBLAST_SETS || device->sets[which] == set)
        return;
    for (size_t i = 0; i < kernel->count; i++) {
        names[i] = kernel->parameters[i];
        values[i] = kernel->sets[set - 1][i];
    }
    CLBlastStatusCode code = CLBlastOverrideParameters(
        device->device, kernel->name, CLBlastPrecisionSingle, kernel->count, names, values);
    if (code)
        KILN__LOG(KILN__LOG_ERROR,
                  "CLBlast answered %d to set %u of %s's parameters, and keeps its own", (int)code,
                  set, kernel->name);
    device->sets[which] = set;
}

static void use_parameters(const struct kiln__device *device)
{
    const unsigned sets[KILN__CLBLAST_KERNELS] = {device->traits->gemm,
                                                  device->traits->gemm_direct};
    if (!sets[0] && !sets[1])
        return;
    pthread_mutex_lock(&using);
    struct used *known = find_used(device->id);
    for (size_t i = 0; known && i < KILN__CLBLAST_KERNELS; i++)
        use_set(known, i, sets[i]);
    pthread_mutex_unlock(&using);
}

/* ---- products ---- */

static size_t size_at(const struct kiln__launch *launch, enum kiln__clblast_argument position)
{
    return (size_t)launch->arguments.items[position].integer;
}

static CLBlastTranspose transpose_at(const struct kiln__launch *launch,
                                     enum kiln__clblast_argument position)
{
    return size_at(launch, position) ? CLBlastTransposeYes : CLBlastTransposeNo;
}

kiln_status kiln__clblast_enqueue(const struct kiln__device *device, cl_command_queue queue,
                                  const struct kiln__launch *launch, const cl_mem *memory,
                                  cl_event *event, struct kiln__error *error)
{
    const struct kiln__argument *arguments = launch->arguments.items;
    cl_mem a = memory[arguments[KILN__CLBLAST_A].slot];
    cl_mem b = memory[arguments[KILN__CLBLAST_B].slot];
    cl_mem c = memory[arguments[KILN__CLBLAST_C].slot];
    size_t m = size_at(launch, KILN__CLBLAST_M), n = size_at(launch, KILN__CLBLAST_N);
    size_t k = size_at(launch, KILN__CLBLAST_K), batch = size_at(launch, KILN__CLBLAST_BATCH);
    CLBlastTranspose transpose_a = transpose_at(launch, KILN__CLBLAST_A_TRANSPOSED);
    CLBlastTranspose transpose_b = transpose_at(launch, KILN__CLBLAST_B_TRANSPOSED);
    CLBlastStatusCode code;
    use_parameters(device);
    if (batch == 1)
        code = CLBlastSgemm(
            CLBlastLayoutRowMajor, transpose_a, transpose_b, m, n, k, 1.0f, a,
            size_at(launch, KILN__CLBLAST_A_OFFSET), size_at(launch, KILN__CLBLAST_A_LEAD), b,
            size_at(launch, KILN__CLBLAST_B_OFFSET), size_at(launch, KILN__CLBLAST_B_LEAD), 0.0f, c,
            size_at(launch, KILN__CLBLAST_C_OFFSET), size_at(launch, KILN__CLBLAST_C_LEAD), &queue,
            event);
    else
        code = CLBlastSgemmStridedBatched(
            CLBlastLayoutRowMajor, transpose_a, transpose_b, m, n, k, 1.0f, a,
            size_at(launch, KILN__CLBLAST_A_OFFSET), size_at(launch, KILN__CLBLAST_A_LEAD),
            size_at(launch, KILN__CLBLAST_A_STRIDE), b, size_at(launch, KILN__CLBLAST_B_OFFSET),
            size_at(launch, KILN__CLBLAST_B_LEAD), size_at(launch, KILN__CLBLAST_B_STRIDE), 0.0f, c,
            size_at(launch, KILN__CLBLAST_C_OFFSET), size_at(launch, KILN__CLBLAST_C_LEAD),
            size_at(launch, KILN__CLBLAST_C_STRIDE), batch, &queue, event);
    if (code == CLBlastSuccess)
        return KILN_OK;
    return kiln__fail(error, KILN_DEVICE_ERROR, "kiln_matmul: CLBlast answered %d", (int)code);
}

#else

void kiln__clblast_begin(void)
{
}

void kiln__clblast_end(void)
{
}

kiln_status kiln__clblast_enqueue(const struct kiln__device *device, cl_command_queue queue,
                                  const struct kiln__launch *launch, const cl_mem *memory,
                                  cl_event *event, struct kiln__error *error)
{
    (void)device, (void)queue, (void)launch, (void)memory, (void)event;
    return kiln__fail(error, KILN_UNSUPPORTED, "kiln_matmul: this build has no CLBlast");
}

#endif
