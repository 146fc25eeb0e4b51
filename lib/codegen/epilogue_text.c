/* SPDX-License-Identifier: Apache-2.0 */
/* What a matrix product's kernel does to its elements before it stores them, as functions that
 * stand before the text of kernels/matmul_*.cl and as the macros with which it calls them:
 *
 *   EPILOGUE(value, batch, row, column)          one element
 *   EPILOGUE_VECTOR(values, batch, row, column)  form.vector elements of a row from `column` on
 *
 * Both give what the kernel is to store as its own result, and store all others themselves. `line`
 * counts the rows of all matrices: batches that the kernel takes as one tall matrix make no
 * difference. */
#include <stdio.h>

#include "codegen/emit.h"

static void emit_stores(const struct kiln__emit *emit, unsigned width)
{
    const struct kiln__group *group = emit->group;
    for (size_t k = 0; k < group->stores.count; k++) {
        const struct kiln__store *store = &group->stores.items[k];
        struct kiln__elements elements =
            kiln__emit_run(emit, kiln__emit_store_type(emit, k), width, kiln__phrase("y%zu", k),
                           kiln__phrase("q%zu + line * epilogue_n + column", k));
        if (k + 1 != emit->variant->result)
            kiln__emit_store(emit->code, &elements, kiln__phrase("v%u", store->step).text, false);
    }
}

static void emit_function(const struct kiln__emit *emit, const char *name, unsigned width)
{
    const struct kiln__group *group = emit->group;
    uint32_t kept = emit->variant->kept;
    struct kiln__type_name type = kiln__emit_type(KILN_F32, width);
    kiln__code_line(emit->code, "static inline __attribute__((always_inline)) %s", type.text);
    kiln__code_function(emit->code,
                        "%s(const %s value, const long batch, const long row, const long column\n"
                        "EPILOGUE_PARAMETERS)",
                        name, type.text);
    kiln__code_add(emit->code, "const long line = batch * epilogue_m + row");
    kiln__emit_in_place_accesses(emit);
    size_t first = kiln__group_operand_accesses(group);
    if (group->accesses.count > first)
        kiln__emit_coordinates(emit, "line", 0, kept);
    for (size_t k = first; k < group->accesses.count; k++)
        kiln__code_add(emit->code, "const long b%zu = o%zu%s", k, k,
                       kiln__emit_dot(k, 0, kept).text);
    kiln__emit_steps(emit, group->reduced_step, (unsigned)group->steps.count, width, "b", "column");
    emit_stores(emit, width);
    unsigned result = emit->variant->result;
    kiln__code_add(emit->code, "return v%u",
                   result ? group->stores.items[result - 1].step : group->reduced_step);
    kiln__code_end(emit->code);
}

void kiln__emit_epilogue(const struct kiln__emit *emit)
{
    kiln__emit_section(emit, "EPILOGUE_PARAMETERS", KILN__SECTION_GROUP, true);
    kiln__emit_section(emit, "EPILOGUE_ARGUMENTS", KILN__SECTION_GROUP, false);
    emit_function(emit, "epilogue_element", 1);
    emit_function(emit, "epilogue_vector", emit->variant->vector);
    kiln__code_line(emit->code,
                    "#define EPILOGUE(value, batch, row, column) \\\n"
                    "    epilogue_element(value, batch, row, column EPILOGUE_ARGUMENTS)\n"
                    "#define EPILOGUE_VECTOR(values, batch, row, column) \\\n"
                    "    epilogue_vector(values, batch, row, column EPILOGUE_ARGUMENTS)");
}
