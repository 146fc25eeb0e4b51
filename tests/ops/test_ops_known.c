/* SPDX-License-Identifier: Apache-2.0 */
/* Every row of elementwise.def with every type: answers from outside (mpmath, 15 digits), which
 * stand in tests/known. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "../support/check.h"
#include "ops/ops.h"
#include "record/batch.h"
#include "reference/bounds.h"

struct known {
    unsigned op;
    double a, b, answer, c;
};

#define KNOWN3(name, a, b, c, answer)                                                              \
    {                                                                                              \
        KILN__OP_##name, a, b, answer, c                                                           \
    }
#define KNOWN(name, a, b, answer) KNOWN3(name, a, b, 0, answer)

static const struct known floats[] = {
#include "../known/f32.def"
};

#define MIN INT32_MIN
#define MAX INT32_MAX
static const struct known integers[] = {
#include "../known/i32.def"
};

static const struct known bytes[] = {
#include "../known/u8.def"
};

static const struct {
    kiln_type type;
    const struct known *rows;
    size_t count;
} tables[] = {
    {KILN_F32, floats, sizeof floats / sizeof *floats},
    {KILN_I32, integers, sizeof integers / sizeof *integers},
    {KILN_U8, bytes, sizeof bytes / sizeof *bytes},
};

/* Right to what the row allows; the sign of a zero too. */
static bool is_right(const struct known *known, kiln_type type, double found)
{
    double ulp = kiln__elementwise_rows[known->op].max_ulp;
    double error =
        type == KILN_F32 ? ulp * kiln__type_ulp(KILN_F32, known->answer) + check_denormal() : 0;
    error += type == KILN_F32 && isfinite(known->answer) ? 1e-14 * fabs(known->answer) : 0;
    if (known->answer == 0 && found == 0)
        return type != KILN_F32 || signbit(found) == signbit(known->answer);
    return kiln__bounds_allow(type == KILN_F32 ? type : KILN_I32, known->answer, error, found);
}

/* A row over tensors alone: numbers are operands like others. */
static kiln_tensor record_row(kiln_batch *batch, unsigned op, const kiln_tensor *operands)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[op];
    struct kiln__node node = {.kind = KILN__ELEMENTWISE, .op = (uint8_t)op, .n_inputs = row->arity};
    if (row->tensors == row->arity)
        return check_elementwise(batch, op, operands);
    for (unsigned k = 0; k < row->arity; k++)
        node.input[k] = kiln__tensor_index(operands[k]);
    const struct kiln__node *first = kiln__batch_node(batch, operands[0], "record_row", "a");
    node.shape = first->shape;
    node.type = (uint8_t)kiln__types_result((enum kiln__types)row->types, (kiln_type)first->type);
    return kiln__batch_record(batch, &node, "record_row");
}

/* Where the second copy of `count` answers begins: an odd number of lanes on,
 * so that each answer stands in another lane of a vector. */
static size_t second(size_t count)
{
    return count | 1;
}

static kiln_tensor give(kiln_batch *batch, kiln_type type, const struct known *known, size_t count,
                        unsigned k)
{
    size_t size = kiln_type_size(type), n = second(count) + count;
    char *lanes = calloc(n, size);
    cr_assert(lanes);
    for (size_t i = 0; i < count; i++) {
        double value = k == 0 ? known[i].a : k == 1 ? known[i].b : known[i].c;
        kiln__type_store(type, value, lanes + i * size);
        kiln__type_store(type, value, lanes + (second(count) + i) * size);
    }
    kiln_tensor tensor = check_given(batch, type, DIMS(n), lanes);
    free(lanes);
    return tensor;
}

static void expect_known(const struct known *known, kiln_type type, const char *answers, size_t at)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[known->op];
    kiln_type result = kiln__types_result((enum kiln__types)row->types, type);
    double found = kiln__type_load(result, answers + at * kiln_type_size(result));
    cr_expect(is_right(known, result, found),
              "%s %s of %.10g, %.10g and %.10g is %.10g, not %.15g (lane %zu)",
              kiln_type_name(type), row->name, known->a, known->b, known->c, found, known->answer,
              at);
}

static void expect_all_known(const struct known *known, size_t count, kiln_type type)
{
    const char *answers[KILN__OP_COUNT] = {NULL};
    size_t rows[KILN__OP_COUNT] = {0};
    kiln_batch *batch = check_begin();
    kiln_tensor operands[3], masked[3];
    for (unsigned k = 0; k < 3; k++)
        masked[k] = operands[k] = give(batch, type, known, count, k);
    masked[0] = give(batch, KILN_U8, known, count, 0);
    for (unsigned op = 0; op < KILN__OP_COUNT; op++) {
        enum kiln__types rule = (enum kiln__types)kiln__elementwise_rows[op].types;
        if (kiln__types_accept(rule, type))
            answers[op] = check_read(
                batch, record_row(batch, op, rule == KILN__SELECTION ? masked : operands));
    }
    run_batch(batch);
    for (size_t i = 0; i < count; i++) {
        rows[known[i].op]++;
        cr_assert(answers[known[i].op]);
        expect_known(&known[i], type, answers[known[i].op], i);
        expect_known(&known[i], type, answers[known[i].op], second(count) + i);
    }
    for (unsigned op = 0; op < KILN__OP_COUNT; op++)
        cr_expect(!answers[op] || rows[op] >= 2, "%s %s has no known answers", kiln_type_name(type),
                  kiln__elementwise_rows[op].name);
    check_end(batch);
}

Test(ops, known_answers)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        expect_all_known(tables[t].rows, tables[t].count, tables[t].type);
    check_close();
}
