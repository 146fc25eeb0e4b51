/* SPDX-License-Identifier: Apache-2.0 */
/* Real programs by number for the cache tests: trivial kernels that fill a buffer. */
#include "fill.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "programs/fetch_interlock.h"
#include "programs/kernel_objects.h"

enum { ITEMS = 64 };

static char folder[256];

const char *fill_folder(void)
{
    const char *below = getenv("TMPDIR");
    if (*folder)
        return folder;
    snprintf(folder, sizeof folder, "%s/kiln-fill.XXXXXX", below && *below ? below : "/tmp");
    if (!mkdtemp(folder)) {
        perror(folder);
        exit(99);
    }
    return folder;
}

void fill_end(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command))
        fprintf(stderr, "%s is left over\n", folder);
}

/* Files in the cache that end so. */
int fill_files(const char *suffix)
{
    char path[300];
    int count = 0;
    snprintf(path, sizeof path, "%s/kiln", fill_folder());
    DIR *walk = opendir(path);
    for (struct dirent *found; walk && (found = readdir(walk));)
        count += strlen(found->d_name) > strlen(suffix) &&
                 !strcmp(found->d_name + strlen(found->d_name) - strlen(suffix), suffix);
    if (walk)
        closedir(walk);
    return count;
}

bool fill_start(struct fill *fill, kiln_cache_mode mode)
{
    char pocl[300], cache[300];
    const struct kiln__programs_options options = {cache, 0, mode, KILN_COMPILE_ALONE};
    snprintf(cache, sizeof cache, "%s/kiln", fill_folder());
    snprintf(pocl, sizeof pocl, "%s/pocl.%ld", fill_folder(), (long)getpid());
    mkdir(pocl, 0700);
    setenv("POCL_CACHE_DIR", pocl, 1);
    memset(fill, 0, sizeof *fill);
    if (kiln__device_choose(NULL, &fill->device, NULL))
        return false;
    fill->context = clCreateContext(NULL, 1, &fill->device.id, NULL, NULL, NULL);
    fill->queue = clCreateCommandQueue(fill->context, fill->device.id, 0, NULL);
    return fill->context && fill->queue && kiln__interlock_add_queue(fill->queue) &&
           !kiln__programs_create(fill->context, &fill->device, &options, &fill->programs, NULL);
}

void fill_stop(struct fill *fill)
{
    kiln__programs_destroy(fill->programs);
    kiln__interlock_remove_queue(fill->queue);
    clReleaseCommandQueue(fill->queue);
    clReleaseContext(fill->context);
}

/* Kernel `number` writes its number plus the item's. */
kiln_status fill_get(struct fill *fill, int number, struct kiln__program **program,
                     struct kiln__error *error)
{
    char source[160], name[16];
    snprintf(source, sizeof source,
             "__kernel void fill(__global int *out) { out[get_global_id(0)] = "
             "(int)get_global_id(0) + %d; }",
             number * 1000);
    snprintf(name, sizeof name, "fill %d", number);
    return kiln__programs_get(fill->programs, name, strlen(name), source, NULL, "fill", program,
                              error);
}

/* Launch it, hand the event over, and look at the result. */
bool fill_launch(struct fill *fill, struct kiln__program *program, int number)
{
    const size_t items = ITEMS, group = 1;
    int out[ITEMS];
    cl_event event = NULL;
    struct kiln__kernel *lent = NULL;
    bool same;
    if (kiln__kernel_borrow(program, "fill", kiln__kernel_borrower(), &lent, &same, NULL))
        return false;
    cl_kernel kernel = kiln__kernel_cl(lent);
    cl_mem buffer = clCreateBuffer(fill->context, CL_MEM_READ_WRITE, sizeof out, NULL, NULL);
    kiln__interlock_enter();
    bool good =
        !clSetKernelArg(kernel, 0, sizeof buffer, &buffer) &&
        !clEnqueueNDRangeKernel(fill->queue, kernel, 1, NULL, &items, &group, 0, NULL, &event);
    clFlush(fill->queue);
    if (good)
        kiln__program_launched(program, 1, &items, &group);
    kiln__interlock_leave();
    good = good &&
           !clEnqueueReadBuffer(fill->queue, buffer, CL_TRUE, 0, sizeof out, out, 0, NULL, NULL);
    for (int i = 0; good && i < ITEMS; i++)
        good = out[i] == number * 1000 + i;
    if (event)
        clReleaseEvent(event);
    kiln__kernel_return(lent);
    clReleaseMemObject(buffer);
    return good;
}

double fill_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
