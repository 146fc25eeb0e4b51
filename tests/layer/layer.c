/* SPDX-License-Identifier: Apache-2.0 */
/* What the OpenCL loader and the tests call. */
#include "layer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "counts.h"
#include "failure.h"

#define EXPORTED __attribute__((visibility("default")))

static cl_icd_dispatch table;
static atomic_bool active;
static pid_t owner;

EXPORTED cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t size, void *value,
                                           size_t *size_ret)
{
    static const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    static const char name[] = "kiln test layer";
    const void *answer = what == CL_LAYER_NAME ? (const void *)name : &version;
    size_t length = what == CL_LAYER_NAME ? sizeof name : sizeof version;
    if (what != CL_LAYER_NAME && what != CL_LAYER_API_VERSION)
        return CL_INVALID_VALUE;
    if (value && size < length)
        return CL_INVALID_VALUE;
    if (value)
        memcpy(value, answer, length);
    if (size_ret)
        *size_ret = length;
    return CL_SUCCESS;
}

EXPORTED cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch *target,
                                        cl_uint *entries_ret, const cl_icd_dispatch **table_ret)
{
    const cl_uint known = sizeof table / sizeof(void *);
    const cl_uint shared = entries < known ? entries : known;
    if (!target || !entries_ret || !table_ret)
        return CL_INVALID_VALUE;
    const char *wrong = layer__arm_from_environment();
    if (wrong) {
        fprintf(stderr, "kiln test layer: %s makes no sense: %s\n", wrong, getenv(wrong));
        return CL_INVALID_VALUE;
    }
    /* A table of pointers; what a smaller loader lacks stays NULL. */
    memcpy(&layer__next, target, shared * sizeof(void *));
    table = layer__next;
    layer__install(&table);
    *entries_ret = shared;
    *table_ret = &table;
    owner = getpid();
    active = true;
    return CL_SUCCESS;
}

/* "%p" becomes the process number. */
static void output_path(char *path, size_t size, const char *pattern)
{
    const char *mark = strstr(pattern, "%p");
    if (mark)
        snprintf(path, size, "%.*s%ld%s", (int)(mark - pattern), pattern, (long)getpid(), mark + 2);
    else
        snprintf(path, size, "%s", pattern);
}

/* A destructor runs after the exit handlers of the program, the library and the driver. */
__attribute__((destructor)) static void write_output(void)
{
    const char *pattern = getenv("KILN_LAYER_OUTPUT");
    char path[4096];
    if (!active || !pattern || owner != getpid())
        return;
    output_path(path, sizeof path, pattern);
    FILE *file = fopen(path, "we");
    if (!file) {
        fprintf(stderr, "kiln test layer: cannot write %s\n", path);
        return;
    }
    fputs(layer__snapshot(), file);
    fclose(file);
}

EXPORTED bool kiln_layer_active(void)
{
    return active;
}

EXPORTED uint64_t kiln_layer_count(const char *key)
{
    return layer__count(key);
}

EXPORTED const char *kiln_layer_snapshot(void)
{
    return layer__snapshot();
}

EXPORTED void kiln_layer_reset(void)
{
    kiln_layer_fail(0, NULL, 0, KILN_LAYER_ONCE, KILN_LAYER_CALL);
    layer__counts_reset();
}

EXPORTED bool kiln_layer_fail(unsigned long n, const char *name, int code,
                              enum kiln_layer_mode mode, enum kiln_layer_where where)
{
    enum layer__call call = name ? layer__call_named(name, strlen(name)) : LAYER__CALLS;
    bool known = !name || call != LAYER__CALLS;
    layer__arm(known ? n : 0, call, code, mode, where);
    return known;
}
