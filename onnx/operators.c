/* SPDX-License-Identifier: Apache-2.0 */
/* Look-up of an operator's row by domain, name and opset version, and the public list of operators.
 * */
#include "onnx/operators.h"

#include <string.h>

#include <kiln/onnx.h>

#include "onnx/error.h"
#include "onnx/structure.h"

static const struct kiln__onnx_row *const tables[] = {
#define TABLE(name) kiln__onnx_##name##_rows,
    KILN__ONNX_TABLES(TABLE)
#undef TABLE
};
enum { TABLES = sizeof tables / sizeof *tables };

static const char *domain_of(const struct kiln__onnx_row *row)
{
    return row->domain ? row->domain : "";
}

const struct kiln__onnx_row *kiln__onnx_find_row(const char *domain, const char *name, int version)
{
    for (size_t i = 0; i < TABLES; i++)
        for (const struct kiln__onnx_row *row = tables[i]; row->name; row++)
            if (row->first <= version && version <= row->last && !strcmp(row->name, name) &&
                !strcmp(domain_of(row), domain))
                return row;
    return NULL;
}

kiln_status(kiln_model_get_operator)(size_t number, kiln_model_operator *op, size_t size)
{
    if (!op)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT, "kiln_model_get_operator: op is NULL");
    kiln_model_operator own = {0};
    for (size_t i = 0; i < TABLES; i++)
        for (const struct kiln__onnx_row *row = tables[i]; row->name; row++)
            if (number-- == 0)
                own = (kiln_model_operator){domain_of(row), row->name, row->first, row->last};
    kiln__onnx_structure_fill(op, size, &own, sizeof own);
    return KILN_OK;
}
