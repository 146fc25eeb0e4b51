/* SPDX-License-Identifier: Apache-2.0 */
/* What stands before kernels/generic.cl: every row of the tables of operations, reductions and
 * types as a case, and the names of the fields of its table (lower/generic.h). */
#include "lower/generic.h"

#include "codegen/emit.h"

static const kiln_type computed[] = {KILN_F32, KILN_I32, KILN_U8, KILN_I64, KILN_I8};
enum { COMPUTED = sizeof computed / sizeof *computed };

/* ---- cells ---- */

/* `cell` as a value of what `type` is computed in, and the reverse. */
static struct kiln__phrase from_cell(kiln_type type, const char *cell)
{
    kiln_type own = kiln__type_row(type)->computed;
    return own == KILN_F32 ? kiln__phrase("as_float((uint)(%s))", cell)
                           : kiln__phrase("(%s)(%s)", kiln__emit_type(own, 1).text, cell);
}

static struct kiln__phrase to_cell(kiln_type type, const char *value)
{
    return kiln__phrase(kiln__type_row(type)->computed == KILN_F32 ? "(ulong)as_uint(%s)"
                                                                   : "(ulong)(long)(%s)",
                        value);
}

static void generic_text_declare(const struct kiln__emit *emit, kiln_type type, char name,
                                 char cell)
{
    kiln__code_add(emit->code, "const %s %c = %s", kiln__emit_type(type, 1).text, name,
                   from_cell(type, (char[]){cell, 0}).text);
}

/* ---- functions of cases ---- */

static void open_function(const struct kiln__emit *emit, const char *signature, const char *key)
{
    kiln__code_function(emit->code, "%s", signature);
    kiln__code_switch(emit->code, "%s", key);
}

static void close_function(const struct kiln__emit *emit)
{
    kiln__code_add(emit->code, "default: return 0");
    kiln__code_end(emit->code);
    kiln__code_end(emit->code);
}

/* "const float y = ", to which the case's expression is appended. */
static struct kiln__text *declare_result(const struct kiln__emit *emit, const char *type)
{
    return kiln__code_add(emit->code, "const %s y = ", type);
}

static void close_case(const struct kiln__emit *emit, const char *cell)
{
    kiln__code_add(emit->code, "return %s", cell);
    kiln__code_end(emit->code);
}

/* ---- operations ---- */

static void emit_apply(const struct kiln__emit *emit, unsigned op, kiln_type type)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    kiln_type result = kiln__types_result(row->types, type);
    kiln__code_case(emit->code, "%u", KILN__GENERIC_KEY(op, type));
    for (unsigned k = 0; k < row->arity; k++)
        generic_text_declare(emit, kiln__types_operand(row->types, k, type), (char)('a' + k),
                             (char)('p' + k));
    struct kiln__text *text = declare_result(emit, kiln__emit_type(result, 1).text);
    kiln__emit_expression(text, row->device, "a", row->arity > 1 ? "b" : NULL,
                          row->arity > 2 ? "c" : NULL, type, 1);
    close_case(emit, to_cell(result, "y").text);
}

static void emit_applies(const struct kiln__emit *emit)
{
    open_function(
        emit, "static ulong g_apply(const int key, const ulong p, const ulong q, const ulong r)",
        "key");
    for (unsigned op = 0; op < KILN__OP_COUNT; op++)
        for (size_t i = 0; i < COMPUTED; i++)
            if (kiln__generic_has(op) &&
                kiln__types_accept(kiln__elementwise_rows[op].types, computed[i]))
                emit_apply(emit, op, computed[i]);
    close_function(emit);
}

static void emit_conversion(const struct kiln__emit *emit, kiln_type from, kiln_type to,
                            bool saturates)
{
    kiln__code_case(emit->code, "%d", KILN__GENERIC_CONVERT(to, from, saturates));
    generic_text_declare(emit, from, 'a', 'p');
    kiln__emit_convert(declare_result(emit, kiln__emit_type(to, 1).text), from, to, 1, "a",
                       saturates);
    close_case(emit, to_cell(to, "y").text);
}

static void emit_converts(const struct kiln__emit *emit)
{
    open_function(emit, "static ulong g_convert(const int key, const ulong p)", "key");
#define EMIT(name, value, bytes, ctype)                                                            \
    for (size_t i = 0; i < COMPUTED; i++)                                                          \
        emit_conversion(emit, computed[i], KILN_##name, false);
    KILN_TYPE_MAP(EMIT)
#undef EMIT
    emit_conversion(emit, KILN_I64, KILN_I32, true);
    close_function(emit);
}

/* ---- memory ---- */

static struct kiln__elements element_of(kiln_type type, const char *constant)
{
    return (struct kiln__elements){
        .type = type,
        .width = 1,
        .fit = KILN__FIT_LOOSE,
        .pointer = kiln__phrase("((global %s%s *)x)", constant, kiln__emit_memory_type(type)),
        .offset = kiln__phrase("at")};
}

static void emit_load(const struct kiln__emit *emit, kiln_type type)
{
    struct kiln__elements element = element_of(type, "const ");
    kiln__code_case(emit->code, "%d", (int)type);
    kiln__emit_load(declare_result(emit, kiln__emit_type(type, 1).text), &element);
    close_case(emit, to_cell(type, "y").text);
}

static void emit_store(const struct kiln__emit *emit, kiln_type type)
{
    struct kiln__elements element = element_of(type, "");
    kiln__code_case(emit->code, "%d", (int)type);
    generic_text_declare(emit, type, 'a', 'p');
    kiln__emit_store(emit->code, &element, "a", false);
    kiln__code_add(emit->code, "break");
    kiln__code_end(emit->code);
}

static void emit_memory(const struct kiln__emit *emit)
{
#define LOAD(name, value, bytes, ctype) emit_load(emit, KILN_##name);
#define STORE(name, value, bytes, ctype) emit_store(emit, KILN_##name);
    open_function(emit, "static ulong g_load(const int type, global const uchar *x, const int at)",
                  "type");
    KILN_TYPE_MAP(LOAD)
    close_function(emit);
    open_function(
        emit, "static void g_store(const int type, global uchar *x, const int at, const ulong p)",
        "type");
    KILN_TYPE_MAP(STORE)
    kiln__code_end(emit->code);
    kiln__code_end(emit->code);
#undef LOAD
#undef STORE
}

/* ---- reductions ---- */

/* Floats are added up by the kernel itself. Of an indexed reduction: whether the value is better.
 */
static void emit_combine(const struct kiln__emit *emit, unsigned op, kiln_type type)
{
    const struct kiln__reduce_row *row = &kiln__reduce_rows[op];
    kiln__code_case(emit->code, "%u", KILN__GENERIC_KEY(op, type));
    generic_text_declare(emit, type, 'a', 'p');
    generic_text_declare(emit, type, 'b', 'q');
    struct kiln__text *text =
        declare_result(emit, row->indexed ? "bool" : kiln__emit_type(type, 1).text);
    kiln__emit_expression(text, row->combine, "a", "b", NULL, type, 1);
    close_case(emit, row->indexed ? "(ulong)y" : to_cell(type, "y").text);
}

static void emit_finish(const struct kiln__emit *emit, unsigned op, kiln_type type)
{
    struct kiln__phrase count = kiln__phrase("((%s)(count))", kiln__emit_type(type, 1).text);
    kiln__code_case(emit->code, "%u", KILN__GENERIC_KEY(op, type));
    generic_text_declare(emit, type, 'a', 'p');
    struct kiln__text *text = declare_result(emit, kiln__emit_type(type, 1).text);
    kiln__emit_expression(text, kiln__reduce_rows[op].finish, "a", NULL, count.text, type, 1);
    close_case(emit, to_cell(type, "y").text);
}

static void emit_reductions(const struct kiln__emit *emit)
{
    open_function(emit, "static ulong g_combine(const int key, const ulong p, const ulong q)",
                  "key");
    for (unsigned op = 0; op < KILN__REDUCE_COUNT; op++)
        for (size_t i = 0; i < COMPUTED; i++)
            if (kiln__types_accept(kiln__reduce_rows[op].types, computed[i]))
                emit_combine(emit, op, computed[i]);
    close_function(emit);
    open_function(emit, "static ulong g_finish(const int key, const ulong p, const int count)",
                  "key");
    for (unsigned op = 0; op < KILN__REDUCE_COUNT; op++)
        for (size_t i = 0; i < COMPUTED; i++)
            if (!kiln__reduce_rows[op].indexed &&
                kiln__types_accept(kiln__reduce_rows[op].types, computed[i]))
                emit_finish(emit, op, computed[i]);
    close_function(emit);
}

/* ---- all ---- */

static void emit_names(const struct kiln__emit *emit)
{
#define NAME(name) {"G_" #name, KILN__GENERIC_##name},
    static const struct {
        const char *name;
        int value;
    } names[] = {{"G_SCALAR", KILN__STEP_SCALAR},
                 {"G_APPLY", KILN__STEP_APPLY},
                 {"G_CONVERT", KILN__STEP_CONVERT},
                 {"G_NUMBER", KILN__STEP_NUMBER},
                 {"G_GATHER", KILN__STEP_GATHER},
                 {"G_REDUCED_STEP", KILN__STEP_REDUCED},
                 {"G_PRODUCT", KILN__STEP_PRODUCT},
                 {"G_BYTES", KILN_U8},
                 {"G_PHASE_INTS", KILN__GENERIC_PHASE_INTS},
                 {"G_STEP_INTS", KILN__GENERIC_STEP_INTS},
                 {"G_ACCESS_INTS", KILN__GENERIC_ACCESS_INTS},
                 {"G_STORE_INTS", KILN__GENERIC_STORE_INTS},
                 {"G_MOST_STEPS", KILN__GENERIC_MOST_STEPS},
                 {"G_MOST_RANK", KILN_MAX_RANK},
                 KILN__GENERIC_HEAD(NAME) KILN__GENERIC_PHASE(NAME) KILN__GENERIC_STEP(NAME)
                     KILN__GENERIC_ACCESS(NAME) KILN__GENERIC_STORE(NAME)};
#undef NAME
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        kiln__code_line(emit->code, "#define %s %d", names[i].name, names[i].value);
}

/* A group of no plan, with a step for each row that is a case: what the prelude goes by. */
struct all {
    struct kiln__group group;
    struct kiln__step steps[KILN__OP_COUNT * COMPUTED + 32];
};

static uint16_t add_step(struct all *all, struct kiln__step step)
{
    all->group.steps.items = all->steps;
    all->steps[all->group.steps.count] = step;
    return (uint16_t)all->group.steps.count++;
}

static void list_all(struct all *all)
{
    uint16_t value[COMPUTED];
#define LOAD(name, number, bytes, ctype)                                                           \
    add_step(all, (struct kiln__step){.kind = KILN__STEP_LOAD, .type = KILN_##name});
    KILN_TYPE_MAP(LOAD)
#undef LOAD
    const uint16_t whole =
        add_step(all, (struct kiln__step){.kind = KILN__STEP_LOAD, .type = KILN_I64});
    add_step(all, (struct kiln__step){
                      .kind = KILN__STEP_CONVERT, .type = KILN_BF16, .n_args = 1, .args = {whole}});
    for (size_t i = 0; i < COMPUTED; i++) {
        value[i] = add_step(all, (struct kiln__step){.kind = KILN__STEP_LOAD, .type = computed[i]});
        for (unsigned op = 0; op < KILN__OP_COUNT; op++)
            if (kiln__generic_has(op) &&
                kiln__types_accept(kiln__elementwise_rows[op].types, computed[i]))
                add_step(all, (struct kiln__step){.kind = KILN__STEP_APPLY,
                                                  .op = (uint8_t)op,
                                                  .type = computed[i],
                                                  .n_args = 1,
                                                  .args = {value[i]}});
    }
}

void kiln__emit_generic_prelude(const struct kiln__emit *emit)
{
    struct all all = {.group = {.kind = KILN__GROUP_MAP}};
    struct kiln__emit own = *emit;
    list_all(&all);
    own.group = &all.group;
    kiln__emit_prelude(&own);
    emit_names(&own);
}

void kiln__emit_generic(const struct kiln__emit *emit)
{
    emit_converts(emit);
    emit_applies(emit);
    emit_memory(emit);
    emit_reductions(emit);
}
