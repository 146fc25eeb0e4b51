/* SPDX-License-Identifier: Apache-2.0 */
/* A busy server with cold caches: requests back to back, none of which may wait for a kernel to be
 * stored, and all kernels are stored all the same. 2 seconds, in which storing does not begin: who
 * waited for it would wait for ever. 100 with the argument "long", which wants a quiet machine: of
 * all requests, one of more than 50 ms is allowed then. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cold_work.h"
#include "support/cache.h"

enum { KERNELS = 6, MOST = 20000000 };

static float x[COLD_ELEMENTS], y[COLD_ELEMENTS];

static int by_size(const void *a, const void *b)
{
    float left = *(const float *)a, right = *(const float *)b;
    return (left > right) - (left < right);
}

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, kiln_last_error());
    return 1;
}

/* How long each request took, in ms. */
static size_t serve(kiln_batch *batches[KERNELS], double seconds, float *took, size_t most)
{
    double start = cold_seconds(), last = start;
    size_t count = 0;
    while (last - start < seconds && count < most) {
        if (kiln_batch_execute(batches[count % KERNELS]))
            return 0;
        double now = cold_seconds();
        took[count++] = (float)((now - last) * 1e3);
        last = now;
    }
    return count;
}

static int judge(float *took, size_t count, const kiln_context_stats *stats, bool strict)
{
    size_t slow = 0;
    qsort(took, count, sizeof *took, by_size);
    while (slow < count && took[count - 1 - slow] > 50)
        slow++;
    printf("%zu requests: half within %.3f ms, 99%% within %.3f ms, longest %.1f ms, %zu of more "
           "than 50 ms; %llu kernels compiled, %llu stored, %llu failures\n",
           count, (double)took[count / 2], (double)took[count - 1 - count / 100],
           (double)took[count - 1], slow, (unsigned long long)stats->kernels_compiled,
           (unsigned long long)stats->cache_stores, (unsigned long long)stats->cache_failures);
    if (strict && slow > 1) {
        puts("too many requests waited");
        return 1;
    }
    if (stats->cache_failures || stats->cache_stores < stats->kernels_compiled) {
        puts("not all kernels were stored while the server was busy");
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    bool strict = argc > 1 && !strcmp(argv[1], "long");
    kiln_context *context;
    kiln_batch *batches[KERNELS];
    kiln_context_stats stats;
    float *took = malloc(MOST * sizeof *took);
    if (!took)
        return 99;
    cold_folders();
    if (!strict)
        fake_store_held(NULL);
    if (kiln_context_create(NULL, &context)) {
        puts("no OpenCL device here");
        return 77;
    }
    for (unsigned i = 0; i < KERNELS; i++) {
        batches[i] = cold_batch(context, i, x, y);
        if (kiln_batch_execute(batches[i]))
            return fail("kiln_batch_execute");
    }
    size_t count = serve(batches, strict ? 100 : 2, took, MOST);
    if (!strict)
        fake_store_let_go();
    /* The server goes on until all is stored, however long that takes on a loaded machine. */
    while (count && count < MOST && !kiln_context_get_stats(context, &stats) && stats.cache_pending)
        count += serve(batches, 0.2, took + count, MOST - count);
    if (!count || kiln_context_get_stats(context, &stats))
        return fail("a request");
    int status = judge(took, count, &stats, strict);
    for (unsigned i = 0; i < KERNELS; i++)
        kiln_batch_release(batches[i]);
    kiln_context_release(context);
    free(took);
    fake_end();
    return status;
}
