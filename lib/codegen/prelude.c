/* SPDX-License-Identifier: Apache-2.0 */
/* What stands before a kernel: macros and functions that its operations use. */
#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "codegen/emit.h"
#include "fuse/loop_nest.h"
#include "util/kernel_texts.h"

/* ---- texts that differ by type, each a macro or a function with the type in its name ---- */

/* A helper for values of a type. */
struct instance {
    const struct kiln__emit *emit;
    kiln_type type;
    unsigned width;
    struct kiln__type_name name; /* of the type */
    bool floating, is_signed;
};

/* Add a node with the words of tables' expressions: F is the type, other helpers are this type's.
 */
static void add(const struct instance *of, enum kiln__code_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void add(const struct instance *of, enum kiln__code_kind kind, const char *format, ...)
{
    struct kiln__text words = {0};
    va_list arguments;
    va_start(arguments, format);
    kiln__text_vadd(&words, format, arguments);
    va_end(arguments);
    struct kiln__text *text = kiln__code_node(of->emit->code, kind, false, "%s", "");
    if (words.failed)
        text->failed = true; /* no kernel without it */
    else
        kiln__emit_expression(text, words.data, NULL, NULL, NULL, of->type, of->width);
    kiln__text_free(&words);
}

/* Whether b is -1: a vector has no place for a wider one. */
static const char *minus_one(const struct instance *of)
{
    return kiln_type_size(of->type) < sizeof(int32_t) ? "b == (F)(-1)" : "b == -1";
}

/* Of divisors that trap: 0, and -1 below INT_MIN. */
static struct kiln__phrase traps(const struct instance *of)
{
    return of->is_signed ? kiln__phrase("(b == (F)(0)) | (%s)", minus_one(of))
                         : kiln__phrase("(b == (F)(0))");
}

/* An integer quotient of 0 is 0, and INT_MIN / -1 wraps around: neither may trap. */
static void emit_divide(const struct instance *of)
{
    if (of->floating) {
        add(of, KILN__VERBATIM, "#define DIVIDE(a, b) ((a) / (b))");
        return;
    }
    add(of, KILN__FUNCTION, "static inline F DIVIDE(F a, F b)");
    add(of, KILN__STATEMENT, "F d = PICK(%s, (F)(1), b)\nF q = a / d", traps(of).text);
    if (of->is_signed) {
        struct kiln__text *text =
            kiln__code_add(of->emit->code, "q = %s(", of->width > 1 ? "PICK_VECTOR" : "PICK");
        kiln__emit_expression(text, minus_one(of), NULL, NULL, NULL, of->type, of->width);
        kiln__text_add(text, ", ");
        kiln__emit_expression(text, "-a", "a", NULL, NULL, of->type, of->width);
        kiln__text_add(text, ", q)");
    }
    add(of, KILN__STATEMENT, "return PICK(b == (F)(0), (F)(0), q)");
    kiln__code_end(of->emit->code);
}

/* The rest that the quotient towards zero leaves; of a division by 0 it is 0. */
static void emit_remainder(const struct instance *of)
{
    if (of->floating) {
        add(of, KILN__VERBATIM, "#define REMAINDER(a, b) fmod(a, b)");
        return;
    }
    add(of, KILN__FUNCTION, "static inline F REMAINDER(F a, F b)");
    add(of, KILN__STATEMENT, "return a %% PICK(%s, (F)(1), b)", traps(of).text);
    kiln__code_end(of->emit->code);
}

/* Such a rest with b's sign instead; a floating 0 has it, too. */
static void emit_modulo(const struct instance *of)
{
    add(of, KILN__FUNCTION, "static inline F MODULO(F rest, F b)");
    add(of, KILN__STATEMENT,
        "F moved = PICK((rest < (F)(0)) != (b < (F)(0)), rest + b, rest)\n"
        "return PICK(rest == (F)(0), %s, moved)",
        of->floating ? "copysign(rest, b)" : "rest");
    kiln__code_end(of->emit->code);
}

static void emit_width(const struct instance *of)
{
    add(of, KILN__VERBATIM, "#define WIDTH %d", 8 * kiln__type_row(of->type)->bytes);
}

static void emit_absolute(const struct instance *of)
{
    add(of, KILN__VERBATIM,
        of->floating    ? "#define ABSOLUTE(a) fabs(a)"
        : of->is_signed ? "#define ABSOLUTE(a) as_%s(abs(a))"
                        : "#define ABSOLUTE(a) (a)",
        of->name.text);
}

/* A condition over vectors is -1 or 0 in integers as wide as the elements, over scalars 1 or 0. */
static void emit_truth(const struct instance *of)
{
    add(of, KILN__VERBATIM, "#define TRUTH(m) convert_%s(%s(m))",
        kiln__emit_type(KILN_U8, of->width).text, of->width > 1 ? "-" : "");
}

static void emit_choose(const struct instance *of)
{
    if (of->width == 1)
        add(of, KILN__VERBATIM, "#define CHOOSE(m, x, y) ((m) ? (x) : (y))");
    else
        add(of, KILN__VERBATIM,
            "#define CHOOSE(m, x, y) select((y), (x), convert_%s%u((m) != (%s)(0)))",
            kiln__type_row(of->type)->mask, of->width, kiln__emit_type(KILN_U8, of->width).text);
}

/* The larger or the smaller of two; by PTX's instruction, of one element, which takes +0 for the
 * larger of zeros. */
static void emit_extreme(const struct instance *of, const char *word, const char *sign,
                         const char *instruction)
{
    if (!of->floating || !of->emit->variant->level_80) {
        add(of, KILN__VERBATIM, "#define %s(a, b) PICK(((a) %s (b))%s, (a), (b))", word, sign,
            of->floating ? " | ((a) != (a))" : "");
        return;
    }
    add(of, KILN__FUNCTION, "static inline F %s(F a, F b)", word);
    const struct kiln__type_name half = kiln__emit_type(of->type, of->width / 2);
    if (of->width == 1)
        kiln__code_add(of->emit->code,
                       "float y\n"
                       "asm(\"%s %%0, %%1, %%2;\" : \"=f\"(y) : \"f\"(a), \"f\"(b))\n"
                       "return y",
                       instruction);
    else
        add(of, KILN__STATEMENT, "return (F)(%s_%s(a.lo, b.lo), %s_%s(a.hi, b.hi))", word,
            half.text, word, half.text);
    kiln__code_end(of->emit->code);
}

static void emit_larger(const struct instance *of)
{
    emit_extreme(of, "LARGER", ">", "max.NaN.f32");
}

static void emit_smaller(const struct instance *of)
{
    emit_extreme(of, "SMALLER", "<", "min.NaN.f32");
}

/* By squares; a negative one is what a quotient of 1 is towards zero. */
static void emit_power(const struct instance *of)
{
    struct kiln__code *code = of->emit->code;
    add(of, KILN__FUNCTION, "static inline F POWER(F a, F b)");
    add(of, KILN__STATEMENT, "F y = (F)(1), odd = b & (F)(1), x = a, rest = b");
    add(of, KILN__FOR, "int bit = 0; bit < %d; bit++",
        8 * kiln__type_row(of->type)->bytes - of->is_signed);
    add(of, KILN__STATEMENT, "y = PICK((rest & (F)(1)) != (F)(0), ");
    kiln__emit_expression(&code->words, "a * b", "y", "x", NULL, of->type, of->width);
    kiln__text_add(&code->words, ", y)");
    kiln__emit_expression(kiln__code_add(code, "x = "), "a * b", "x", "x", NULL, of->type,
                          of->width);
    add(of, KILN__STATEMENT, "rest = rest >> (F)(1)");
    kiln__code_end(code);
    if (of->is_signed)
        add(of, KILN__STATEMENT,
            "x = PICK(a == (F)(1), (F)(1), (F)(0))\n"
            "x = PICK(a == (F)(-1), PICK(odd == (F)(0), (F)(1), (F)(-1)), x)\n"
            "y = PICK(b < (F)(0), x, y)");
    kiln__code_add(code, "return y");
    kiln__code_end(code);
}

static const struct helper {
    const char *word; /* what the tables' expressions call it */
    void (*emit)(const struct instance *of);
    bool halves; /* of halves of a vector, too, and of theirs */
} helpers[] = {
    {"DIVIDE", emit_divide, false},  {"REMAINDER", emit_remainder, false},
    {"MODULO", emit_modulo, false},  {"WIDTH", emit_width, false},
    {"TRUTH", emit_truth, false},    {"ABSOLUTE", emit_absolute, false},
    {"CHOOSE", emit_choose, false},  {"LARGER", emit_larger, true},
    {"SMALLER", emit_smaller, true}, {"POWER", emit_power, false},
};
#define HELPERS (sizeof helpers / sizeof *helpers)

bool kiln__emit_is_helper(const char *word, size_t length)
{
    for (size_t i = 0; i < HELPERS; i++)
        if (strlen(helpers[i].word) == length && !strncmp(word, helpers[i].word, length))
            return true;
    return false;
}

kiln_type kiln__emit_operands_type(const struct kiln__emit *emit, const struct kiln__step *step)
{
    return emit->group->steps.items[step->args[step->n_args - 1]].type;
}

/* The step's expression in its table, and the type that it is about. */
static const char *expression_of(const struct kiln__emit *emit, const struct kiln__step *step,
                                 kiln_type *type)
{
    if (step->kind == KILN__STEP_APPLY) {
        *type = kiln__emit_operands_type(emit, step);
        return kiln__elementwise_rows[step->op].device;
    }
    if (step->kind != KILN__STEP_REDUCED)
        return "";
    const struct kiln__reduce_row *row = &kiln__reduce_rows[step->op];
    *type = kiln__reduce_accumulator(row, emit->group->steps.items[step->args[0]].type);
    *type = kiln__type_row(*type)->computed;
    return row->combine;
}

/* Each helper that the group's operations name, once for a type. */
static void emit_helpers(const struct kiln__emit *emit)
{
    bool seen[HELPERS][16] = {{false}};
    for (size_t i = 0; i < emit->group->steps.count; i++) {
        kiln_type type = (kiln_type)0;
        const char *expression = expression_of(emit, &emit->group->steps.items[i], &type);
        for (size_t h = 0; h < HELPERS; h++) {
            if (seen[h][type] || !strstr(expression, helpers[h].word))
                continue;
            seen[h][type] = true;
            for (unsigned width = 1; width <= emit->variant->vector; width *= 2)
                if (width == 1 || width == emit->variant->vector || helpers[h].halves)
                    helpers[h].emit(&(struct instance){
                        emit, type, width, kiln__emit_type(type, width),
                        kiln__type_row(type)->floating, kiln__type_row(type)->lowest < 0});
        }
    }
}

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
        if (!strcmp(kiln__stored_type(earlier), row->stored) &&
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

void kiln__emit_custom(const struct kiln__emit *emit)
{
    const struct kiln__custom *custom = kiln__launch_custom(emit->plan, emit->launch);
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
    emit_helpers(emit);
    if (emit->variant->shuffles)
        emit_lanes(emit);
    emit_math(emit);
}
