/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `kiln embed` share. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <kiln/kiln.h>
#include <kiln/onnx.h>

#include "precision.h"
#include "tokenizer.h"

enum embed_pooling { EMBED_AS_CONFIGURED, EMBED_MEAN, EMBED_CLS };

/* Most tokens of a sentence, and most sentences of a batch, that may be asked for. */
enum { EMBED_MOST_LENGTH = 8192, EMBED_MOST_BATCH = 4096 };

/* Most devices that share a command's lines. */
enum { EMBED_MOST_DEVICES = 16 };

/* Lines of a batch where nothing else is said. More are no faster, take more memory, and leave more
 * rows empty. */
enum { EMBED_CPU_BATCH = 16, EMBED_GPU_BATCH = 128 };

struct embed_request {
    const char *command; /* in sentences */
    const char *advice;  /* behind the sentence that there is no vocabulary */
    const char *model;   /* a folder or a file */
    const char *vocabulary, *input, *output, *device;
    size_t max_length, batch; /* 0: as configured, by the device */
    enum embed_pooling pooling;
    struct precision precision;
    bool no_normalize, json;
};

/* ---- files of a model (embed_files.c) ---- */

struct embed_files {
    char *model, *vocabulary;
    size_t max_length; /* 0: as many tokens as a GGUF file's encoder takes */
    bool cls;
    bool is_gguf; /* which has a vocabulary of its own */
};

/* Find what the request leaves out beside the model. False: what is missing was said. */
bool embed_find_files(const struct embed_request *request, struct embed_files *files);
void embed_free_files(struct embed_files *files);

/* ---- sentences (embed_lines.c) ---- */

/* Lines that are sorted together. More would be padded less, and answered later. */
enum { EMBED_WINDOW = 8192 };

/* A file that is read; by one thread. */
struct embed_source {
    const char *path;
    int fd, wake[2]; /* a pipe: what is in it stops the reader */
    char *buffer;
    size_t begin, end; /* what is in the buffer */
    size_t lines;      /* that were read */
    bool ended;
};

/* Some lines as tokens, in the order in which they came. */
struct embed_lines {
    size_t first; /* so many were before them in the file */
    size_t count;
    char *text;
    size_t text_bytes, text_capacity;
    size_t *ends; /* of each line in the text */
    int32_t *ids;
    size_t id_count, id_capacity;
    size_t *starts;  /* of each line in ids, and the end */
    uint32_t *order; /* lines, the longest first */
};

/* NULL and "-" are standard input. False: said why not; to be closed then, too. */
bool embed_open_source(struct embed_source *source, const char *path);
void embed_close_source(struct embed_source *source);

/* Another thread's embed_read_lines() gives up, even one that waits for input. */
void embed_stop_source(struct embed_source *source);

/* Read the next lines, as many as are sorted together; none: the file has ended. False: `errno`
 * says why not. */
bool embed_read_lines(struct embed_source *source, struct embed_lines *lines);

size_t embed_line_length(const struct embed_lines *lines, uint32_t line); /* in tokens */
void embed_free_lines(struct embed_lines *lines);

/* ---- tokens (embed_cut.c) ---- */

/* Threads, each with a share in the tokenizer. NULL: said that there is no memory. */
struct embed_cutters *embed_open_cutters(const struct tokenizer *tokenizer);
void embed_close_cutters(struct embed_cutters *all);

/* Cut lines into tokens, and sort them. One thread at a time. False: no memory. */
bool embed_cut_lines(struct embed_cutters *all, size_t max_length, struct embed_lines *lines);

/* ---- a model behind an executor (embed_model.c) ---- */

struct embed_model {
    const char *command;   /* in sentences */
    kiln_onnx_model *onnx; /* one of the two */
    struct kiln_lm *lm;
    kiln_executor *executor;
    enum embed_pooling pooling; /* of a GGUF file's */
    bool cls, normalize;
    size_t width;      /* of a vector */
    char problem[800]; /* a sentence, found while the model was recorded; empty: none */
};

/* Load the files' model, and learn of a GGUF file's how long a text may be. False: kiln's last
 * error says why not. */
bool embed_load(struct embed_model *model, kiln_context *context, kiln_type weights,
                struct embed_files *files);
void embed_close(struct embed_model *model);

/* On each of `count` contexts its own model; the executor is the first one's. False: said. */
bool embed_open_executor(struct embed_model *models, kiln_context *const *contexts, size_t count,
                         size_t max_length, const kiln_executor_options *options);

/* ---- vectors (embed_output.c) ---- */

struct embed_output {
    const struct embed_request *request;
    FILE *file;     /* of texts; NULL: an array is gathered */
    float *vectors; /* the array */
    size_t count, width;
};

struct embed_statistics {
    size_t sentences, tokens;
    double load;           /* seconds until the model is ready for all lengths */
    double first, seconds; /* from when the first line is read, to the first and the last vector */
    double padding;        /* share of what was computed */
    double busy; /* share of the time behind the first result, of all devices; 0: too short */
    uint64_t weight_bytes, other_bytes; /* of device memory */
    char device[1024];                  /* names of all */
};

/* All answer false after having said why not. */
bool embed_open_output(struct embed_output *output, const struct embed_request *request,
                       size_t width);
bool embed_write(struct embed_output *output, const float *vectors, size_t count);
bool embed_close_output(struct embed_output *output, const struct embed_statistics *statistics);

/* ---- from lines to vectors (embed_windows.c) ---- */

struct embed_windows_options {
    struct embed_source *source;
    struct embed_cutters *cutters;
    size_t max_length;
    const struct embed_model *model; /* and the output: complete before embed_run_windows() */
    struct embed_output *output;
    /* Called in the thread that runs windows as vectors of `lines` lines with `tokens` tokens come,
     * and now and then with 0. */
    void (*goes_on)(void *user, size_t lines, size_t tokens);
    void *user;
};

/* Read the first lines, which decide what the model is made ready for. The options are borrowed.
 * NULL: said why not. */
struct embed_windows *embed_begin_windows(const struct embed_windows_options *options,
                                          const struct embed_lines **first);

/* Write the vectors of all lines, in their order. False: said why not. */
bool embed_run_windows(struct embed_windows *windows);

/* Waits for what is under way. NULL does nothing. */
void embed_end_windows(struct embed_windows *all);
