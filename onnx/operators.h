/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of operators: a row for each operator and the versions of its domain's set of
 * operators in which it means the same. A file onnx/ops_*.c has a table for what belongs together.
 */
#pragma once

#include <kiln/status.h>

struct kiln__onnx_call;

/* The tables, a line for each; kiln__onnx_NAME_rows ends with a row without a name. */
#define KILN__ONNX_TABLES(X)                                                                       \
    X(attention)                                                                                   \
    X(blocks)                                                                                      \
    X(channels)                                                                                    \
    X(content)                                                                                     \
    X(control)                                                                                     \
    X(conv)                                                                                        \
    X(elementwise)                                                                                 \
    X(fused)                                                                                       \
    X(grouped)                                                                                     \
    X(index)                                                                                       \
    X(language)                                                                                    \
    X(lines)                                                                                       \
    X(loss)                                                                                        \
    X(made)                                                                                        \
    X(math)                                                                                        \
    X(microsoft)                                                                                   \
    X(movement)                                                                                    \
    X(normalization)                                                                               \
    X(pool)                                                                                        \
    X(product)                                                                                     \
    X(qlinear)                                                                                     \
    X(quantize)                                                                                    \
    X(recurrence)                                                                                  \
    X(reduce)                                                                                      \
    X(region)                                                                                      \
    X(resize)                                                                                      \
    X(rnn)                                                                                         \
    X(sample)                                                                                      \
    X(shape)                                                                                       \
    X(signal)                                                                                      \
    X(unpool)

/* Last version of what has not changed since. */
#define KILN__ONNX_NEWEST 9999

/* Operands by their numbers, for kiln__onnx_row::known and roomy. */
#define KILN__ONNX_BIT(i) (1u << (i))

struct kiln__onnx_row {
    const char *name; /* of the operator, such as "MatMul" */
    int first, last;  /* versions of the set, not of the operator: first <= set's <= last */
    /* Record one node; see onnx/call.h. After a failure of its own it has called
     * kiln__onnx_refuse(); errors of the batch are found by the caller. */
    void (*record)(struct kiln__onnx_call *call);
    unsigned known;     /* operands whose content decides about shapes: known when it is recorded */
    const void *data;   /* for `record`, where several rows share one */
    const char *domain; /* NULL: ONNX's own */
    unsigned roomy;     /* operands with room for more texts than others have: caches */
};

/* Rows by what they have; more fields follow by their names: the second one's operator means
 * something else from version `until` + 1 on.
 *
 *     KILN__ONNX_ROW("Tile", 6, tile, .known = KILN__ONNX_BIT(1)) */
#define KILN__ONNX_ROW(operator, since, ...)                                                       \
    KILN__ONNX_ROW_UNTIL(operator, since, KILN__ONNX_NEWEST, __VA_ARGS__)
#define KILN__ONNX_ROW_UNTIL(operator, since, until, ...)                                          \
    {                                                                                              \
        .name = (operator), .first = (since), .last = (until), .record = __VA_ARGS__               \
    }

#define KILN__ONNX_MICROSOFT "com.microsoft" /* a domain */

#define KILN__ONNX_TABLE(name) extern const struct kiln__onnx_row kiln__onnx_##name##_rows[];
KILN__ONNX_TABLES(KILN__ONNX_TABLE)
#undef KILN__ONNX_TABLE

/* What is recorded for several nodes (patterns.c); no operators of files. */
extern const struct kiln__onnx_row kiln__onnx_attention_row, kiln__onnx_gelu_row,
    kiln__onnx_linear_row;

/* The row for an operator of a version of its domain ("" for ONNX's own), or NULL. */
const struct kiln__onnx_row *kiln__onnx_find_row(const char *domain, const char *name, int version);
