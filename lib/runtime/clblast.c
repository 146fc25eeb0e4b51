/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/clblast.h"

#include "plan/matmul.h"

#ifdef HAVE_CLBLAST

#include <clblast_c.h>
#include <stdatomic.h>

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

static size_t size_at(const struct kiln__launch *launch, enum kiln__clblast_argument position)
{
    return (size_t)launch->arguments.items[position].integer;
}

static CLBlastTranspose transpose_at(const struct kiln__launch *launch,
                                     enum kiln__clblast_argument position)
{
    return size_at(launch, position) ? CLBlastTransposeYes : CLBlastTransposeNo;
}

kiln_status kiln__clblast_enqueue(cl_command_queue queue, const struct kiln__launch *launch,
                                  const cl_mem *memory, cl_event *event, struct kiln__error *error)
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

kiln_status kiln__clblast_enqueue(cl_command_queue queue, const struct kiln__launch *launch,
                                  const cl_mem *memory, cl_event *event, struct kiln__error *error)
{
    (void)queue, (void)launch, (void)memory, (void)event;
    return kiln__fail(error, KILN_UNSUPPORTED, "kiln_matmul: this build has no CLBlast");
}

#endif
