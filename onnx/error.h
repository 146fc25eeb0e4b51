/* SPDX-License-Identifier: Apache-2.0 */
/* Sentences of errors: the thread's last error of kiln is set, so that there is one place to look.
 */
#pragma once

#include <stddef.h>

#include <kiln/status.h>

/* Returns `status`. */
kiln_status kiln__onnx_fail(kiln_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A growing text. Without memory it stays as it is, and `failed` is set. */
struct kiln__onnx_text {
    char *text; /* NULL while it is empty; the owner frees it */
    size_t length;
    int failed;
};

void kiln__onnx_say(struct kiln__onnx_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A shape in words, such as "[2,3]", to a text of at least 192 bytes; returns it. */
const char *kiln__onnx_shape(char *words, size_t rank, const size_t *dims);
#define KILN__ONNX_SHAPE 192
