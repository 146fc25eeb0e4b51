/* SPDX-License-Identifier: Apache-2.0 */
/* Loads the interposed OpenCL layer into a test, and reads its counters. */
#include "layer.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool available;

/* NULL until the layer is found. */
static struct {
    __typeof__(&kiln_layer_active) active;
    __typeof__(&kiln_layer_count) count;
    __typeof__(&kiln_layer_snapshot) snapshot;
    __typeof__(&kiln_layer_reset) reset;
    __typeof__(&kiln_layer_fail) fail;
} layer;

static bool load(const char *path)
{
    /* The loader opens the same file, so that both get the same instance. */
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return false;
    *(void **)&layer.active = dlsym(handle, "kiln_layer_active");
    *(void **)&layer.count = dlsym(handle, "kiln_layer_count");
    *(void **)&layer.snapshot = dlsym(handle, "kiln_layer_snapshot");
    *(void **)&layer.reset = dlsym(handle, "kiln_layer_reset");
    *(void **)&layer.fail = dlsym(handle, "kiln_layer_fail");
    if (layer.active)
        return true;
    dlclose(handle); /* another layer */
    return false;
}

static void find(void)
{
    const char *paths = getenv("OPENCL_LAYERS");
    char path[4096];
    bool found = false;
    while (paths && *paths && !found) {
        size_t length = strcspn(paths, ":");
        snprintf(path, sizeof path, "%.*s", (int)length, paths);
        found = load(path);
        paths += length + (paths[length] == ':');
    }
    cl_uint platforms;
    if (found && !layer.active())
        clGetPlatformIDs(0, NULL, &platforms); /* the loader starts its layers at the first call */
    available = found && layer.active();
}

bool layer_available(void)
{
    pthread_once(&once, find);
    return available;
}

uint64_t layer_count(const char *key)
{
    return layer_available() ? layer.count(key) : UINT64_MAX;
}

const char *layer_snapshot(void)
{
    return layer_available() ? layer.snapshot() : "";
}

void layer_reset(void)
{
    if (layer_available())
        layer.reset();
}

bool layer_fail(unsigned long n, const char *name, int code, enum kiln_layer_mode mode,
                enum kiln_layer_where where)
{
    return layer_available() && layer.fail(n, name, code, mode, where);
}

bool layer_fail_next(const char *name, int code, enum kiln_layer_where where)
{
    return layer_fail(1, name, code, KILN_LAYER_ONCE, where);
}

uint64_t layer_failures(void)
{
    return layer_count("failures");
}
