/* SPDX-License-Identifier: Apache-2.0 */
/* A GGUF model on disk: one file, or several of which each has some of the tensors, as llama.cpp's
 * gguf-split makes them. */
#ifndef KILN_LM_GGUF_FILES_H
#define KILN_LM_GGUF_FILES_H

#include "lm/gguf.h"

struct kiln__gguf_file;

struct kiln__gguf_files {
    struct kiln__gguf gguf; /* the first file's keys, and all files' tensors */
    size_t count;
    struct kiln__gguf_file *files; /* in memory while the tensors are used */
};

/* Read the model whose only or first file `path` is; the path is kept. Errors: IO_ERROR, those of
 * kiln__gguf_read(); nothing is to be closed then. */
kiln_status kiln__gguf_open(const char *path, struct kiln__gguf_files *files);
void kiln__gguf_close(struct kiln__gguf_files *files);

#endif
