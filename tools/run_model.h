/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `kiln run` share: the request, and what became of it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include <kiln/kiln.h>
#include <kiln/onnx.h>

#include "precision.h"

/* NAME=VALUE of the command line. */
struct naming {
    const char *name; /* of `length` characters */
    size_t length;
    const char *value;
};

struct namings {
    struct naming *items;
    size_t count;
};

bool namings_add(struct namings *namings, const char *text);
const char *namings_find(const struct namings *namings, const char *name); /* NULL: not there */

struct run_request {
    const char *model, *device;
    struct namings inputs, outputs, dims;
    struct precision precision;
    unsigned bench; /* runs to time; 0: a few */
    bool random, profile, validate, json;
    bool plain; /* each node by itself */
};

/* One kernel or transfer of a run. */
struct run_launch {
    char name[48];
    char nodes[160]; /* of the model, that it computes */
    double seconds;  /* mean over the runs that were timed */
    double bytes;
};

struct run_times {
    double load, first;  /* seconds */
    size_t runs;         /* that were timed, after the first */
    double best, median; /* seconds of these */
    double mean;
    size_t spans;                      /* kernels and transfers of a run */
    uint64_t weight_bytes, peak_bytes; /* device memory of the model, and most beside it */
};

struct run_launches {
    struct run_launch *items;
    size_t count;
};

struct run_result {
    kiln_onnx_model *model;
    kiln_model_lease *lease; /* NULL: nothing ran */
    struct run_times times;
    char device[256];
};

/* Fill arrays for all inputs from files, or at random. False: what is missing was said. The caller
 * frees each array's data with run_free_arrays(). */
bool run_make_inputs(const struct run_request *request, const kiln_onnx_model *model,
                     kiln_array *arrays);
void run_free_arrays(kiln_array *arrays, size_t count);

/* Read the spans of the last runs from a trace. False: said. */
bool run_read_trace(const char *path, const struct run_times *times, struct run_launches *launches);

/* What is said while the model is there, */
void run_print_text(const struct run_request *request, const struct run_result *result);
json_t *run_make_json(const struct run_request *request, const struct run_result *result);

/* and what a trace says, which is written when all is released. */
void run_print_launches(const struct run_launches *launches);
void run_add_launches(json_t *root, const struct run_launches *launches);

/* Say at a terminal, on standard error, how many kernels are there, until the end; NULL: it is
 * none. */
struct run_progress *run_progress_begin(kiln_context *context, kiln_batch *batch);
void run_progress_end(struct run_progress *progress);
