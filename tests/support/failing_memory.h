/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that runs out: a program that includes this, in one file, is linked with
 * failing_memory_ldflags (local.mk), and so allocations of the library's fail in it when the test
 * says so. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

static struct {
    long left;    /* allocations that go well until one fails; below 0: all do */
    bool once;    /* those behind the one that fails go well again */
    bool ran_out; /* one has failed */
} memory = {.left = -1};

static bool may_allocate(void)
{
    if (memory.left != 0) {
        memory.left -= memory.left > 0;
        return true;
    }
    memory.ran_out = true;
    memory.left = memory.once ? -1 : 0;
    return false;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return may_allocate() ? __real_malloc(bytes) : NULL;
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return may_allocate() ? __real_calloc(count, bytes) : NULL;
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return may_allocate() ? __real_realloc(old, bytes) : NULL;
}
