/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers that expressions of tables name in upper case: texts that differ by type, each a macro or
 * a function with the type in its name. */
#include <stdarg.h>
#include <string.h>

#include "codegen/emit.h"

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
static struct kiln__phrase trap_condition(const struct instance *of)
{
    return of->is_signed ? kiln__phrase("(b == (F)(0)) | (%s)", minus_one(of))
                         : kiln__phrase("(b == (F)(0))");
}

/* An integer quotient of 0 is 0, and INT_MIN / -1 wraps around: neither may trap. A floating one
 * keeps its last place (QUOTIENT() of kernels/math.cl). */
static void emit_divide(const struct instance *of)
{
    if (of->floating) {
        add(of, KILN__VERBATIM, "#define DIVIDE(a, b) ((a) / (b)%s)",
            of->emit->variant->native_math
                ? " * (F)(as_float(0x3f800000 + (int)get_global_offset(0)))"
                : "");
        return;
    }
    add(of, KILN__FUNCTION, "static inline F DIVIDE(F a, F b)");
    add(of, KILN__STATEMENT, "F d = PICK(%s, (F)(1), b)\nF q = a / d", trap_condition(of).text);
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
    add(of, KILN__STATEMENT, "return a %% PICK(%s, (F)(1), b)", trap_condition(of).text);
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

void kiln__emit_helpers(const struct kiln__emit *emit)
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
