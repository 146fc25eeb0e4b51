/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `kiln embed` share. */
#ifndef KILN_TOOLS_EMBED_H
#define KILN_TOOLS_EMBED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <kiln/kiln.h>
#include <kiln/onnx.h>

#include "wordpiece.h"

enum embed_pooling { EMBED_AS_CONFIGURED, EMBED_MEAN, EMBED_CLS };

/* Most tokens of a sentence, and most sentences of a batch, that may be asked for. */
enum { EMBED_MOST_LENGTH = 8192, EMBED_MOST_BATCH = 4096 };

struct embed_request {
    const char *model; /* a folder or a file */
    const char *vocabulary, *input, *output, *device;
    size_t max_length, batch; /* 0: as configured, by the device */
    enum embed_pooling pooling;
    kiln_type precision;
    bool no_normalize, json;
};

/* ---- files of a model (embed_files.c) ---- */

struct embed_files {
    char *model, *vocabulary;
    size_t max_length;
    bool cls;
};

/* Find what the request leaves out beside the model. False: what is missing was said. */
bool embed_find_files(const struct embed_request *request, struct embed_files *files);
void embed_free_files(struct embed_files *files);

/* ---- sentences (embed_lines.c) ---- */

/* Some lines as tokens, in the order in which they came, and their vectors. */
struct embed_lines {
    int32_t *ids;
    size_t id_count, id_capacity;
    size_t *starts;  /* of each line in ids, and the end */
    uint32_t *order; /* lines, the longest first */
    size_t count;
};

/* Read as many lines as make a chunk. False: no memory, or the file could not be read. */
bool embed_read_lines(FILE *file, struct wordpiece *wordpiece, size_t max_length,
                      struct embed_lines *lines);
void embed_free_lines(struct embed_lines *lines);

/* ---- a model behind an executor (embed_model.c) ---- */

struct embed_model {
    kiln_onnx_model *onnx;
    kiln_executor *executor;
    bool cls, normalize;
    size_t width;      /* of a vector */
    char problem[800]; /* a sentence, found while the model was recorded; empty: none */
};

/* The model is the caller's. False: said. */
bool embed_open_executor(struct embed_model *model, kiln_context *context, size_t max_length,
                         size_t batch);

/* ---- vectors (embed_output.c) ---- */

struct embed_output {
    const struct embed_request *request;
    FILE *file;     /* of texts; NULL: an array is gathered */
    float *vectors; /* the array */
    size_t count, width;
};

struct embed_statistics {
    size_t sentences, tokens;
    double load, first, seconds; /* seconds: from the first submission to the last result */
    double padding;              /* share of what was computed */
    double busy;                 /* share of the time behind the first result; 0: too short */
    uint64_t weight_bytes, other_bytes; /* of device memory */
    char device[256];
};

/* All answer false after having said why not. */
bool embed_open_output(struct embed_output *output, const struct embed_request *request,
                       size_t width);
bool embed_write(struct embed_output *output, const float *vectors, size_t count);
bool embed_close_output(struct embed_output *output, const struct embed_statistics *statistics);

#endif
