/* SPDX-License-Identifier: Apache-2.0 */
/* Names to numbers, in scopes: a graph inside a node sees the names of the graph around it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kiln__onnx_names {
    const struct kiln__onnx_names *outer; /* NULL: none */
    size_t count, places;
    struct kiln__onnx_name *table; /* names are borrowed */
};

/* Whether the scope itself has the name. */
bool kiln__onnx_names_have(const struct kiln__onnx_names *names, const char *name);

/* The number of a name in this scope or one around it. */
bool kiln__onnx_names_find(const struct kiln__onnx_names *names, const char *name,
                           uint32_t *number);

/* Add a name that the scope has not; false without memory. */
bool kiln__onnx_names_add(struct kiln__onnx_names *names, const char *name, uint32_t number);

void kiln__onnx_names_free(struct kiln__onnx_names *names);
