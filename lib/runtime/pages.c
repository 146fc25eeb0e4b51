/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation of host memory aligned for huge pages (madvise), freed in the driver's destructor
 * callback. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* madvise() */
#endif
#include "runtime/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE ((size_t)1 << 21)  /* x86-64's and AArch64's, mostly */
#define LARGE ((size_t)1 << 22) /* of smaller memory too little lies in whole ones */

void *kiln__pages_alloc(size_t bytes, size_t alignment)
{
    if (bytes >= LARGE && alignment < PAGE)
        alignment = PAGE;
    if (bytes > SIZE_MAX - alignment)
        return NULL;
    void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
#ifdef MADV_HUGEPAGE /* a wish: without it all is as before */
    if (memory && bytes >= LARGE)
        madvise(memory, bytes / PAGE * PAGE, MADV_HUGEPAGE);
#endif
    return memory;
}

static void CL_CALLBACK pages_end(cl_mem memory, void *host)
{
    (void)memory;
    free(host);
}

cl_mem kiln__pages_create(cl_context context, size_t bytes, cl_int *code)
{
    if (bytes < LARGE)
        return clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, NULL, code);
    void *host = kiln__pages_alloc(bytes, PAGE);
    *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    cl_mem memory =
        host ? clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes, host, code)
             : NULL;
    if (memory)
        *code = clSetMemObjectDestructorCallback(memory, pages_end, host);
    if (!*code)
        return memory;
    if (memory)
        clReleaseMemObject(memory);
    free(host);
    return NULL;
}
