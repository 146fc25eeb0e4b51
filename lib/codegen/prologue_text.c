/* SPDX-License-Identifier: Apache-2.0 */
/* What a file of kernels/ makes of the elements of an operand as it reads them, as functions that
 * stand before its text and as the macros with which it calls them (kernels/operands.h); for its
 * operand A, and so for others:
 *
 *   OPERAND_A(from, batch, line, k)         the element at `from`
 *   OPERAND_A_VECTOR(from, batch, line, k)  form.vector ones, neighbours in memory from there on
 *
 * which is element k of row `line` of a product's first operand, or of column `line` of its
 * second. Elements of blocks are found by that place alone. To operands of kernels for a single
 * node, which are only converted, no place matters.
 */
#include "codegen/emit.h"
#include "lower/iteration_space.h"

struct hook {
    struct kiln__emit emit;
    struct kiln__operand operand;
    char letter; /* the file's name of it */
};

static const char *stored_type(const struct hook *hook)
{
    return kiln__emit_memory_type(kiln__emit_access_type(&hook->emit, hook->operand.access));
}

static void emit_function(const struct hook *hook, const char *name, unsigned width)
{
    const struct kiln__emit *emit = &hook->emit;
    const size_t own = hook->operand.access;
    const bool blocks = kiln__type_is_block(kiln__emit_access_type(emit, own));
    const kiln_type type = emit->group->steps.items[hook->operand.value].type;
    kiln__code_line(emit->code, "static inline __attribute__((always_inline)) %s",
                    kiln__emit_type(type, width).text);
    kiln__code_function(emit->code,
                        "operand_%c_%s(global const %s *%s, const long batch, const long line,\n"
                        "const long k OPERAND_%c_PARAMETERS)",
                        hook->letter, name, stored_type(hook),
                        blocks ? "from" : kiln__phrase("x%zu", own).text, hook->letter);
    if (!blocks)
        kiln__code_add(emit->code, "const long b%zu = 0", own);
    for (size_t k = own + !blocks; k < hook->operand.end; k++)
        kiln__code_add(emit->code,
                       "const long b%zu = o%zu + batch * s%zu_0 + line * s%zu_1 + k * s%zu_2", k, k,
                       k, k, k);
    kiln__emit_steps(emit, hook->operand.first, hook->operand.value + 1u, width, "b", "0");
    kiln__code_add(emit->code, "return v%u", hook->operand.value);
    kiln__code_end(emit->code);
}

/* What kernels read blocks by that take one after the other (kernels/matmul_cpu_blocks.cl). */
static void emit_whole_blocks(const struct hook *hook)
{
    const size_t k = hook->operand.access;
    const kiln_type type = kiln__emit_access_type(&hook->emit, k);
    const struct kiln__type_row *row = kiln__type_row(type);
    const char letter = hook->letter;
    const unsigned vector = hook->emit.variant->vector;
    if (!kiln__type_is_block(type))
        return;
    kiln__code_line(hook->emit.code,
                    "#define OPERAND_%c_BLOCK(batch, line) \\\n"
                    "    (x%zu + (o%zu + (batch) * s%zu_0 + (line) * s%zu_1) / %d * %d)\n"
                    "#define OPERAND_%c_SCALES struct kiln_%s_scales%u\n"
                    "#define OPERAND_%c_READY(block, i) kiln_%s_ready%u(block, i)\n"
                    "#define OPERAND_%c_MADE(block, i, ready) kiln_%s_made%u(block, i, ready)\n"
                    "#define OPERAND_%c_BYTES %d\n"
                    "#define OPERAND_%c_ELEMENTS %d\n"
                    "#define OPERAND_%c_SHARED %d",
                    letter, k, k, k, k, row->block, row->bytes, letter, row->name, vector, letter,
                    row->name, vector, letter, row->name, vector, letter, row->bytes, letter,
                    row->block, letter, row->shared);
}

static void emit_operand(const struct kiln__emit *given, char letter, unsigned number, bool across)
{
    struct hook hook = {*given, kiln__group_operand(given->group, number), letter};
    enum kiln__argument_section part =
        (enum kiln__argument_section)(KILN__SECTION_OPERAND_A + (letter - 'A'));
    hook.emit.along = 1 + (across ? KILN__BY_LINE : KILN__BY_DEPTH);
    kiln__code_line(given->code, "#define OPERAND_%c_TYPE %s", letter, stored_type(&hook));
    kiln__emit_section(given, kiln__phrase("OPERAND_%c_PARAMETERS", letter).text, part, true);
    kiln__emit_section(given, kiln__phrase("OPERAND_%c_ARGUMENTS", letter).text, part, false);
    emit_function(&hook, "element", 1);
    emit_function(&hook, "vector", given->variant->vector);
    kiln__code_line(given->code,
                    "#define OPERAND_%c(from, batch, line, k) \\\n"
                    "    operand_%c_element(from, batch, line, k OPERAND_%c_ARGUMENTS)\n"
                    "#define OPERAND_%c_VECTOR(from, batch, line, k) \\\n"
                    "    operand_%c_vector(from, batch, line, k OPERAND_%c_ARGUMENTS)",
                    letter, letter, letter, letter, letter, letter);
    emit_whole_blocks(&hook);
}

void kiln__emit_operands(const struct kiln__emit *emit)
{
    unsigned reads = emit->variant->operands, swapped = (reads & KILN__READS_SWAPPED) != 0;
    if (reads & KILN__READS_A)
        emit_operand(emit, 'A', swapped, reads & KILN__READS_A_ACROSS);
    if (reads & KILN__READS_B)
        emit_operand(emit, 'B', 1 - swapped, reads & KILN__READS_B_ACROSS);
    for (unsigned k = KILN__OPERANDS; k < KILN__READABLE; k++)
        if (reads & KILN__READS_A << k)
            emit_operand(emit, (char)('A' + k), k, false);
}
