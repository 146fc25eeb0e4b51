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

/* Name one parameter, as a declaration or as an argument. */
static void emit_name(const struct kiln__emit *emit, bool declares, const char *type,
                      const char *name, size_t number)
{
    kiln__text_add(emit->text, ", %s%s%s%zu", declares ? type : "", declares ? " " : "", name,
                   number);
}

static const char *device_type(const struct kiln__emit *emit, uint32_t node)
{
    return kiln__stored_type((kiln_type)emit->plan->fusion.graph.nodes.items[node].type);
}

static void emit_access(const struct kiln__emit *emit, bool declares, size_t k)
{
    const struct kiln__access *access = &emit->group->accesses.items[k];
    char type[64], stride[24];
    snprintf(type, sizeof type, "global const %s *restrict", device_type(emit, access->node));
    if (!emit->form->updates[k] && access->kind != KILN__ACCESS_NUMBER)
        emit_name(emit, declares, type, "x", k);
    emit_name(emit, declares, "const long", "o", k);
    snprintf(stride, sizeof stride, "s%zu_", k);
    for (uint32_t d = 0; d < emit->form->rank; d++)
        emit_name(emit, declares, "const long", stride, d);
    if (access->kind == KILN__ACCESS_GATHER) {
        emit_name(emit, declares, "const long", "g", k);
        emit_name(emit, declares, "const int", "e", k);
    }
}

/* In the order of kiln__launch_epilogue(), on one line. Stores may be the kernel's own result, so
 * that they are not restricted. */
static void emit_parameters(const struct kiln__emit *emit, bool declares)
{
    const struct kiln__group *group = emit->group;
    char type[64];
    kiln__text_add(emit->text, declares ? ", const long epilogue_m, const long epilogue_n"
                                        : ", epilogue_m, epilogue_n");
    for (uint32_t d = 1; d < emit->form->kept; d++)
        emit_name(emit, declares, "const long", "d", d);
    for (size_t k = KILN__OPERANDS; k < group->accesses.count; k++)
        emit_access(emit, declares, k);
    for (size_t k = 0; k < group->stores.count; k++) {
        snprintf(type, sizeof type, "global %s *", device_type(emit, group->stores.items[k].node));
        emit_name(emit, declares, type, "y", k);
        emit_name(emit, declares, "const long", "q", k);
    }
    for (size_t i = 0; i < group->steps.count; i++) {
        const struct kiln__step *step = &group->steps.items[i];
        bool floating = kiln__type_row((kiln_type)step->type)->floating;
        if (step->kind == KILN__STEP_SCALAR)
            emit_name(emit, declares, floating ? "const float" : "const int", "c", step->index);
    }
    kiln__text_add(emit->text, "\n");
}

static void emit_stores(const struct kiln__emit *emit, unsigned width)
{
    const struct kiln__group *group = emit->group;
    for (size_t k = 0; k < group->stores.count; k++) {
        const struct kiln__store *store = &group->stores.items[k];
        struct kiln__phrase pointer = kiln__phrase("y%zu", k);
        struct kiln__phrase offset = kiln__phrase("q%zu + line * epilogue_n + column", k);
        struct kiln__elements elements = {.type = (kiln_type)group->steps.items[store->step].type,
                                          .width = width,
                                          .fit = kiln__emit_fit(emit),
                                          .pointer = pointer.text,
                                          .offset = offset.text};
        if (k + 1 != emit->form->result)
            kiln__emit_store(emit->text, &elements, kiln__phrase("v%u", store->step).text, false);
    }
}

static void emit_function(const struct kiln__emit *emit, const char *name, unsigned width)
{
    const struct kiln__group *group = emit->group;
    uint32_t kept = emit->form->kept;
    const char *type = kiln__emit_type(KILN_F32, width).text;
    kiln__text_add(emit->text,
                   "static inline __attribute__((always_inline)) %s\n"
                   "%s(const %s value, const long batch, const long row, const long column\n"
                   "    EPILOGUE_PARAMETERS)\n{\n"
                   "    const long line = batch * epilogue_m + row;\n",
                   type, name, type);
    kiln__emit_updated(emit);
    if (group->accesses.count > KILN__OPERANDS)
        kiln__emit_coordinates(emit, "    ", "line", 0, kept);
    for (size_t k = KILN__OPERANDS; k < group->accesses.count; k++) {
        kiln__text_add(emit->text, "    const long b%zu = o%zu%s;\n", k, k,
                       kiln__emit_dot(k, 0, kept).text);
    }
    kiln__emit_steps(emit, "    ", KILN__PRODUCT_STEP, (unsigned)group->steps.count, width, "b",
                     "column");
    emit_stores(emit, width);
    unsigned result = emit->form->result;
    kiln__text_add(emit->text, "    return v%u;\n}\n",
                   result ? group->stores.items[result - 1].step : KILN__PRODUCT_STEP);
}

void kiln__emit_epilogue(const struct kiln__emit *emit)
{
    kiln__text_add(emit->text, "#define EPILOGUE_PARAMETERS ");
    emit_parameters(emit, true);
    kiln__text_add(emit->text, "#define EPILOGUE_ARGUMENTS ");
    emit_parameters(emit, false);
    emit_function(emit, "epilogue_element", 1);
    emit_function(emit, "epilogue_vector", emit->form->vector);
    kiln__text_add(emit->text,
                   "#define EPILOGUE(value, batch, row, column) \\\n"
                   "    epilogue_element(value, batch, row, column EPILOGUE_ARGUMENTS)\n"
                   "#define EPILOGUE_VECTOR(values, batch, row, column) \\\n"
                   "    epilogue_vector(values, batch, row, column EPILOGUE_ARGUMENTS)\n");
}
