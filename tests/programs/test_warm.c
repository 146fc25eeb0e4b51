/* SPDX-License-Identifier: Apache-2.0 */
/* A second process finds its kernels in kiln's cache. Each process is a child with an empty cache
 * of the driver's own, so that only kiln's can help; a layer counts where programs come from. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/kiln.h>

#include "../support/layer.h"

enum { ROWS = 16, INNER = 24, COLUMNS = 8, NO_LAYER = 77 };

/* What a child hands back through shared memory. */
struct outcome {
    kiln_context_stats stats;
    uint64_t from_source, from_binary, launches, alive;
    kiln_status status;
    char said[480]; /* of a failure */
    float results[ROWS * COLUMNS + ROWS + 1];
};

static char folder[64];
static struct outcome *outcomes;

static void make_folder(void)
{
    strcpy(folder, "/tmp/kiln-warm.XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    outcomes =
        mmap(NULL, 3 * sizeof *outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(outcomes != MAP_FAILED);
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command))
        fprintf(stderr, "%s is left over\n", folder);
}

TestSuite(warm, .init = make_folder, .fini = remove_folder, .timeout = 300);

/* ---- in a child ---- */

/* A map, reductions and a matrix product. */
static kiln_status run(kiln_context *context, float *results)
{
    static float a[ROWS * INNER], b[INNER * COLUMNS];
    static const int last = 1;
    for (int i = 0; i < ROWS * INNER; i++)
        a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < INNER * COLUMNS; i++)
        b[i] = (float)(i % 5 - 2);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){ROWS, INNER}, a);
    kiln_tensor w = kiln_upload(batch, KILN_F32, 2, (size_t[]){INNER, COLUMNS}, b);
    kiln_tensor product = kiln_relu(batch, kiln_matmul(batch, x, w));
    kiln_read(batch, product, results, ROWS * COLUMNS * sizeof *results);
    results += ROWS * COLUMNS;
    kiln_read(batch, kiln_sum(batch, x, 1, &last, 0), results, ROWS * sizeof *results);
    results += ROWS;
    kiln_read(batch, kiln_max(batch, kiln_exp(batch, w), 0, NULL, 0), results, sizeof *results);
    kiln_status status = kiln_batch_execute(batch);
    kiln_batch_release(batch);
    return status;
}

static int work(int number)
{
    struct outcome *outcome = &outcomes[number];
    kiln_context *context;
    char path[96];
    snprintf(path, sizeof path, "%s/driver.%d", folder, number);
    mkdir(path, 0700);
    setenv("POCL_CACHE_DIR", path, 1);
    snprintf(path, sizeof path, "%s/kiln", folder);
    setenv("KILN_CACHE_DIR", path, 1);
    if (!layer_available())
        return NO_LAYER;
    kiln_status status = kiln_context_create(NULL, &context);
    if (status)
        return status == KILN_NO_DEVICE ? NO_LAYER : 1;
    outcome->status = run(context, outcome->results);
    if (outcome->status)
        snprintf(outcome->said, sizeof outcome->said, "%s", kiln_last_error());
    if (kiln_context_get_stats(context, &outcome->stats))
        return 2;
    kiln_context_release(context); /* what is pending is stored */
    outcome->from_source = layer_count("source_programs");
    outcome->from_binary = layer_count("binary_programs");
    outcome->launches = layer_count("launches");
    outcome->alive = layer_count("alive");
    return 0;
}

/* ---- in the test ---- */

static const struct outcome *any_process(int number)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(work(number));
    cr_assert(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_LAYER)
        cr_skip("needs a device and OPENCL_LAYERS=.../kiln-layer.so");
    cr_assert_eq(status, 0, "a child ended with %#x", (unsigned)status);
    return &outcomes[number];
}

static const struct outcome *process(int number)
{
    const struct outcome *outcome = any_process(number);
    cr_assert_eq(outcome->status, KILN_OK, "%s", outcome->said);
    return outcome;
}

Test(warm, a_second_process_creates_no_program_from_source)
{
    const struct outcome *first = process(0), *second = process(1);
    cr_expect_gt(first->from_source, 2u);
    cr_expect_eq(first->from_binary, 0u);
    cr_expect_eq(first->stats.kernels_compiled, first->from_source);
    cr_expect_eq(second->from_source, 0u);
    cr_expect_eq(second->from_binary, first->from_source);
    cr_expect_eq(second->stats.kernels_compiled, 0u);
    cr_expect_eq(second->stats.kernels_from_disk, second->from_binary);
    cr_expect_eq(second->launches, first->launches);
    cr_expect_arr_eq(second->results, first->results, sizeof first->results);
    cr_expect_eq(first->alive, 0u);
    cr_expect_eq(second->alive, 0u);
}

/* What the driver refuses costs a compilation, and the third process has it again. */
Test(warm, a_refused_binary_is_replaced)
{
    const struct outcome *first = process(0);
    setenv("KILN_LAYER_FAIL", "clCreateProgramWithBinary", 1);
    setenv("KILN_LAYER_FAIL_CODE", "-42", 1); /* CL_INVALID_BINARY */
    const struct outcome *second = process(1);
    unsetenv("KILN_LAYER_FAIL");
    unsetenv("KILN_LAYER_FAIL_CODE");
    const struct outcome *third = process(2);
    cr_expect_eq(second->from_source, 1u);
    cr_expect_eq(second->from_binary, first->from_source - 1);
    cr_expect_eq(third->from_source, 0u);
    cr_expect_arr_eq(second->results, first->results, sizeof first->results);
    cr_expect_arr_eq(third->results, first->results, sizeof first->results);
    cr_expect_eq(second->alive, 0u);
}

Test(warm, where_nothing_may_be_compiled_a_miss_is_named_and_a_hit_runs)
{
    setenv("KILN_COMPILE", "never", 1);
    const struct outcome *cold = any_process(0);
    cr_expect_eq(cold->status, KILN_BUILD_FAILED);
    cr_expect(strstr(cold->said, "kernel 0 (") != NULL, "%s", cold->said);
    cr_expect(strstr(cold->said, ") is not in the kernel cache ") != NULL, "%s", cold->said);
    cr_expect(strstr(cold->said, "matmul") || strstr(cold->said, "sum") ||
                  strstr(cold->said, "exp"),
              "no operation is named: %s", cold->said);
    cr_expect_eq(cold->from_source, 0u);
    cr_expect_eq(cold->launches, 0u);
    cr_expect_eq(cold->alive, 0u);
    unsetenv("KILN_COMPILE");
    const struct outcome *filled = process(1);
    setenv("KILN_COMPILE", "never", 1);
    const struct outcome *warm = process(2);
    cr_expect_eq(warm->from_source, 0u);
    cr_expect_eq(warm->stats.kernels_from_disk, filled->from_source);
    cr_expect_arr_eq(warm->results, filled->results, sizeof filled->results);
    cr_expect_eq(warm->alive, 0u);
}
