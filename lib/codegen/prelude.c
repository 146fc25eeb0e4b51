/* SPDX-License-Identifier: Apache-2.0 */
/* What stands before a kernel: macros and functions that its operations use. */
#include <ctype.h>
#include <string.h>

#include "codegen/emit.h"
#include "fuse/loop_nest.h"
#include "util/kernel_texts.h"

/* ---- functions ---- */

static void emit_file(const struct kiln__emit *emit, const char *name)
{
    const char *file = kiln__kernel_text(name);
    if (emit->brief)
        kiln__code_line(emit->code, "/* kernels/%s.cl */", name);
    else
        kiln__text_add_bytes(kiln__code_line(emit->code, "%s", ""), file, strlen(file));
}

/* The functions that a row calls are defined, and how they are to be computed. */
static bool emit_needs(const struct kiln__emit *emit, const char *device, bool first)
{
    bool any = false;
    for (const char *at = strstr(device, "FN("); at; at = strstr(at, "FN(")) {
        if (first && !any && emit->variant->native_math)
            kiln__code_line(emit->code, "#define KILN_NATIVE_MATH");
        if (first && !any && emit->variant->no_fma)
            kiln__code_line(emit->code, "#define KILN_NO_FMA");
        any = true;
        struct kiln__text *text = kiln__code_line(emit->code, "#define KILN_NEED_");
        for (at += 3; *at != ')'; at++)
            kiln__text_add(text, "%c", toupper((unsigned char)*at));
    }
    return any;
}

static void emit_math_files(const struct kiln__emit *emit, unsigned lanes)
{
    static const char *const files[] = {"math", "math_special", "math_inverse", "math_random",
                                        "math_end"};
    kiln__code_line(emit->code, "#define KILN_LANES %u", lanes);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        emit_file(emit, files[i]);
}

/* Only what the group needs: every function costs time when a kernel is first compiled. */
static void emit_math(const struct kiln__emit *emit)
{
    bool any = false;
    for (size_t i = 0; i < emit->group->steps.count; i++) {
        const struct kiln__step *step = &emit->group->steps.items[i];
        if (step->kind == KILN__STEP_APPLY &&
            emit_needs(emit, kiln__elementwise_rows[step->op].device, !any))
            any = true;
    }
    if (!any)
        return;
    if (emit->variant->vector > 1) {
        emit_math_files(emit, emit->variant->vector);
        kiln__code_line(emit->code, "#undef KILN_LANES");
    }
    emit_math_files(emit, 1);
}

/* ---- all ---- */

/* Whether an own kernel stores it. */
static bool is_stored_by_own(const struct kiln__emit *emit, kiln_type type)
{
    if (emit->launch->source != KILN__SOURCE_CUSTOM)
        return false;
    const struct kiln__custom_call *call = &kiln__launch_custom(emit->plan, emit->launch)->call;
    for (unsigned k = 0; k < call->n_outputs; k++)
        if (call->outputs[k].type == type)
            return true;
    return false;
}

static bool uses(const struct kiln__emit *emit, kiln_type type)
{
    if (is_stored_by_own(emit, type))
        return true;
    for (size_t i = 0; i < emit->group->steps.count; i++)
        if (emit->group->steps.items[i].type == (uint8_t)type)
            return true;
    return false;
}

/* Most kernels load and store some of these. */
static bool is_usual(kiln_type type)
{
    return type == KILN_F32 || type == KILN_I32 || type == KILN_U8;
}

/* A vector with the alignment of an element: through its pointer an access anywhere is one
 * instruction. PoCL's vstore16 becomes four, and both take longer to compile. */
static void emit_loose_type(const struct kiln__emit *emit, kiln_type type)
{
    const struct kiln__type_row *row = kiln__type_row(type);
    unsigned width = emit->variant->vector;
    for (int earlier = 1; earlier < (int)type; earlier++)
        if (!strcmp(kiln__emit_memory_type(earlier), row->stored) &&
            (is_usual(type) || uses(emit, earlier)))
            return;
    if (is_usual(type) || uses(emit, type))
        kiln__code_add(emit->code, "typedef %s%u __attribute__((aligned(%d))) loose_%s%u",
                       row->stored, width, row->bytes, row->stored, width);
}

/* Whether a step computes values of the type, which are rounded to it. */
static bool rounds(const struct kiln__emit *emit, kiln_type type)
{
    if (is_stored_by_own(emit, type))
        return true;
    for (size_t i = 0; i < emit->group->steps.count; i++) {
        const struct kiln__step *step = &emit->group->steps.items[i];
        if (step->type == (uint8_t)type && !kiln__step_reads(step))
            return true;
    }
    return false;
}

/* The functions of a floating type that is only stored (kernels/narrow.cl). */
static void emit_narrow_type(const struct kiln__emit *emit, kiln_type type)
{
    const struct kiln__type_row *row = kiln__type_row(type);
    const bool by_instruction = emit->variant->level_80 && rounds(emit, type);
    if (!row->floating || row->computed == type || !uses(emit, type))
        return;
    kiln__code_line(emit->code,
                    "#define NARROW %s\n"
                    "#define STORED %s\n"
                    "#define BITS %d\n"
                    "#define DIGITS %d\n"
                    "#define LEAST %d",
                    row->name, row->stored, 8 * row->bytes, row->digits, row->least);
    if (by_instruction)
        kiln__code_line(emit->code, "#define LEVEL_80 1");
    for (unsigned lanes = emit->variant->vector; lanes; lanes = lanes > 1 ? 1 : 0) {
        kiln__code_line(emit->code, "#define NARROW_LANES %u", lanes);
        emit_file(emit, "narrow");
        kiln__code_line(emit->code, "#undef NARROW_LANES");
    }
    kiln__code_line(emit->code,
                    "#undef NARROW\n#undef STORED\n#undef BITS\n#undef DIGITS\n#undef LEAST");
    if (by_instruction)
        kiln__code_line(emit->code, "#undef LEVEL_80");
}

/* The functions of a type of blocks (kernels/blocks.cl). */
static void emit_block_type(const struct kiln__emit *emit, kiln_type type)
{
    const struct kiln__type_row *row = kiln__type_row(type);
    const unsigned widths[] = {1, emit->variant->vector};
    if (!uses(emit, type))
        return;
    kiln__code_line(emit->code,
                    "#define BLOCK %s\n"
                    "#define BLOCK_%s\n"
                    "#define BLOCK_BYTES %d\n"
                    "#define BLOCK_ELEMENTS %d\n"
                    "#define BLOCK_LOW %d",
                    row->name, row->name, row->bytes, row->block, row->low);
    for (unsigned i = 0; i < (widths[1] > 1 ? 2 : 1); i++) {
        kiln__code_line(emit->code, "#define BLOCK_LANES %u", widths[i]);
        emit_file(emit, "blocks");
        kiln__code_line(emit->code, "#undef BLOCK_LANES");
    }
    kiln__code_line(emit->code,
                    "#undef BLOCK\n#undef BLOCK_%s\n#undef BLOCK_BYTES\n#undef BLOCK_ELEMENTS\n"
                    "#undef BLOCK_LOW",
                    row->name);
}

/* Integers of 64 bits as floats whose last digit is odd where not all digits are there: what rounds
 * these to fewer digits rounds right. */
static void emit_odd(const struct kiln__emit *emit, unsigned width)
{
    const struct kiln__type_name l = kiln__emit_type(KILN_I64, width);
    const struct kiln__type_name f = kiln__emit_type(KILN_F32, width);
    const struct kiln__type_name i = kiln__emit_type(KILN_I32, width);
    const char *pick = width > 1 ? "PICK_VECTOR" : "PICK";
    kiln__code_function(emit->code, "static inline %s kiln_odd_%s(%s x)", f.text, l.text, l.text);
    kiln__code_add(emit->code,
                   "u%s size = %s(x < (%s)(0), as_u%s(-as_u%s(x)), as_u%s(x))\n"
                   "u%s more = (u%s)(40) - min((u%s)(40), clz(size))\n"
                   "u%s kept = size >> more\n"
                   "kept = %s(kept << more != size, kept | (u%s)(1), kept)\n"
                   "%s y = convert_%s(convert_%s(kept)) * as_%s((convert_%s(more) + 127) << 23)\n"
                   "return %s(convert_%s(x < (%s)(0)) != (%s)(0), -y, y)",
                   l.text, pick, l.text, l.text, l.text, l.text, l.text, l.text, l.text, l.text,
                   pick, l.text, f.text, f.text, i.text, f.text, i.text, pick, i.text, l.text,
                   i.text);
    kiln__code_end(emit->code);
}

static bool rounds_long(const struct kiln__emit *emit)
{
    for (size_t i = 0; i < emit->group->steps.count; i++) {
        const struct kiln__step *step = &emit->group->steps.items[i];
        const struct kiln__type_row *to = kiln__type_row(step->type);
        if (step->kind == KILN__STEP_CONVERT && to->floating && to->computed != step->type &&
            emit->group->steps.items[step->args[0]].type == KILN_I64)
            return true;
    }
    return false;
}

static void emit_types(const struct kiln__emit *emit)
{
    for (unsigned width = emit->variant->vector; rounds_long(emit) && width;
         width = width > 1 ? 1 : 0)
        emit_odd(emit, width);
#define EMIT(name, value, bytes, ctype)                                                            \
    if (emit->variant->vector > 1)                                                                 \
        emit_loose_type(emit, KILN_##name);                                                        \
    emit_narrow_type(emit, KILN_##name);
    KILN_TYPE_MAP(EMIT)
#undef EMIT
#define EMIT(name, value, bytes, elements) emit_block_type(emit, KILN_##name);
    KILN_BLOCK_TYPE_MAP(EMIT)
#undef EMIT
}

/* Whether a reduction or a running sum exchanges integers that are neither int nor uchar. */
static bool totals_wide(const struct kiln__emit *emit, const struct kiln__step *step)
{
    const kiln_type value = emit->group->steps.items[step->args[0]].type;
    const unsigned op = step->kind == KILN__STEP_SCANNED ? KILN__REDUCE_sum : step->op;
    const kiln_type type = kiln__reduce_accumulator(&kiln__reduce_rows[op], value);
    return type == KILN_I64 || type == KILN_I8;
}

static void emit_lanes(const struct kiln__emit *emit)
{
    bool further = false;
    for (size_t i = 0; i < emit->group->steps.count; i++) {
        const struct kiln__step *step = &emit->group->steps.items[i];
        if (step->kind == KILN__STEP_REDUCED || step->kind == KILN__STEP_SCANNED)
            further = further || totals_wide(emit, step);
    }
    emit_file(emit, "lanes");
    if (further)
        emit_file(emit, "lanes_integers");
}

/* A file of kernels/ behind macros, and the functions that these name. */
static void emit_own_file(const struct kiln__emit *emit, const struct kiln__custom *custom)
{
    const bool any = emit_needs(emit, custom->text, true);
    if (any)
        emit_math_files(emit, emit->variant->vector);
    kiln__code_line(emit->code, "%s",
                    any ? "#undef KILN_LANES\n#define FN(name) kiln_##name##_vec" : "");
    kiln__text_add_bytes(kiln__code_line(emit->code, "%s", ""), custom->text, strlen(custom->text));
    emit_file(emit, custom->file);
}

void kiln__emit_custom(const struct kiln__emit *emit)
{
    const struct kiln__custom *custom = kiln__launch_custom(emit->plan, emit->launch);
    if (custom->file) {
        emit_own_file(emit, custom);
        return;
    }
    if (custom->loop) {
        kiln__emit_loop(emit, custom);
        return;
    }
    emit_types(emit);
    kiln__text_add_bytes(kiln__code_line(emit->code, "%s", ""), custom->text, strlen(custom->text));
}

void kiln__emit_prelude(const struct kiln__emit *emit)
{
    kiln__code_line(emit->code, "#pragma OPENCL FP_CONTRACT OFF\n"
                                "#define PICK(mask, x, y) ((mask) ? (x) : (y))\n"
                                "#define PICK_VECTOR(mask, x, y) select((y), (x), (mask))");
    kiln__code_add(emit->code, "typedef %s idx", emit->variant->wide ? "long" : "int");
    emit_types(emit);
    kiln__emit_helpers(emit);
    if (emit->variant->shuffles)
        emit_lanes(emit);
    emit_math(emit);
}
