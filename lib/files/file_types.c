/* SPDX-License-Identifier: Apache-2.0 */
/* The table of element types that safetensors and .npy files have. */
#include "files/file_types.h"

#include <stdint.h>
#include <string.h>

#define CONVERT(name, from_type, to_type, fits)                                                    \
    static bool name(const void *from, size_t count, void *to)                                     \
    {                                                                                              \
        const from_type *values = from;                                                            \
        to_type *results = to;                                                                     \
        for (size_t i = 0; i < count; i++) {                                                       \
            if (!(fits))                                                                           \
                return false;                                                                      \
            results[i] = (to_type)values[i];                                                       \
        }                                                                                          \
        return true;                                                                               \
    }
CONVERT(from_f64, double, float, true)
CONVERT(from_i16, int16_t, int32_t, true)
CONVERT(from_u16, uint16_t, int32_t, true)
CONVERT(from_u32, uint32_t, int64_t, true)
CONVERT(from_u64, uint64_t, int64_t, values[i] <= INT64_MAX)

static const struct kiln__file_type rows[] = {
    {'f', KILN_F32, 4, "F32", NULL},     {'f', KILN_F16, 2, "F16", NULL},
    {0, KILN_BF16, 2, "BF16", NULL},     {'i', KILN_I64, 8, "I64", NULL},
    {'i', KILN_I32, 4, "I32", NULL},     {'i', KILN_I8, 1, "I8", NULL},
    {'u', KILN_U8, 1, "U8", NULL},       {'b', KILN_BOOL, 1, "BOOL", NULL},
    {'f', KILN_F32, 8, "F64", from_f64}, {'i', KILN_I32, 2, "I16", from_i16},
    {'u', KILN_I32, 2, "U16", from_u16}, {'u', KILN_I64, 4, "U32", from_u32},
    {'u', KILN_I64, 8, "U64", from_u64},
};
enum { ROWS = sizeof rows / sizeof *rows };

const struct kiln__file_type *kiln__file_type_by_name(const char *word)
{
    for (size_t i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].word, word))
            return &rows[i];
    return NULL;
}

const struct kiln__file_type *kiln__file_type_by_letter(char kind, size_t bytes)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].kind == kind && rows[i].bytes == bytes)
            return &rows[i];
    return NULL;
}

const struct kiln__file_type *kiln__file_type_of(kiln_type type)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].type == type)
            return &rows[i];
    return NULL;
}
