/* SPDX-License-Identifier: Apache-2.0 */
/* Operations by the number of their row. */
#include "check.h"
#include "record/operations.h"

double check_number(kiln_type type, unsigned which)
{
    static const double floats[] = {0.25, 1.75}, integers[] = {3, 90};
    return (type == KILN_F32 ? floats : integers)[which];
}

kiln_tensor check_elementwise(kiln_batch *batch, unsigned op, const kiln_tensor *operands)
{
    kiln_type type = KILN_F32;
    size_t rank, dims[KILN_MAX_RANK];
    expect_ok(kiln_tensor_shape(batch, operands[0], &type, &rank, dims));
    const double first = check_number(type, 0), second = check_number(type, 1);
#define CALL_1(name) kiln_##name(batch, operands[0])
#define CALL_2(name) kiln_##name(batch, operands[0], operands[1])
#define CALL_3(name) kiln_##name(batch, operands[0], operands[1], operands[2])
#define CALL_1N(name) kiln_##name(batch, operands[0], first)
#define CALL_1NN(name) kiln_##name(batch, operands[0], first, second)
#define SIGNATURE_1 CALL_1
#define SIGNATURE_2 CALL_2
#define SIGNATURE_3 CALL_3
#define SIGNATURE_1N(number) CALL_1N
#define SIGNATURE_1NN(number, other) CALL_1NN
#define CALL(signature, name) signature(name)
#define ROW(name, call)                                                                            \
    case KILN__OP_##name: return call;
    switch (op) {
#define KILN_OP(name, arity, ...) ROW(name, CALL(SIGNATURE_##arity, name))
#define KILN_OP_INTERNAL(name, ...)                                                                \
    ROW(name, kiln__record_elementwise(batch, KILN__OP_##name, #name, operands))
#include "ops/elementwise.def"
#undef KILN_OP_INTERNAL
#undef KILN_OP
    }
    return (kiln_tensor){0};
}

kiln_tensor check_reduction(kiln_batch *batch, unsigned op, kiln_tensor x, size_t n_axes,
                            const int *axes, int keep_dims)
{
    switch (op) {
#define KILN_REDUCE(name, ...)                                                                     \
    case KILN__REDUCE_##name:                                                                      \
        return kiln_##name(batch, x, n_axes, axes, keep_dims);
#include "ops/reduce.def"
#undef KILN_REDUCE
    }
    return (kiln_tensor){0};
}
