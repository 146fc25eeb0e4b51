# SPDX-License-Identifier: Apache-2.0
"""Every operation of integers and every cast, at the ends of each type's range, with what onnx's
reference evaluator says: make-integers.py FOLDER PAGE

FOLDER/OPERATOR_TYPE and FOLDER/cast_FROM_TO in the form of onnx's own tests. PAGE lists the operators
of the library: one that takes integers and is neither here nor among MOVES is an error."""
import os
import re
import shutil
import sys

import ml_dtypes
import numpy as np
from onnx import defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

OPSET = 23
INTEGERS = tuple(np.dtype(name) for name in (
    'int8', 'int16', 'int32', 'int64', 'uint8', 'uint16', 'uint32', 'uint64'))
FLOATS = tuple(np.dtype(name) for name in ('float32', 'float16', ml_dtypes.bfloat16))
SIGNED = INTEGERS[:4]
UNSIGNED = INTEGERS[4:]
# uint64 is computed as int64: its numbers end there.
LARGEST = {np.dtype('uint64'): 2 ** 63 - 1}
MARKS = (2 ** 7, 2 ** 8, 2 ** 15, 2 ** 16, 2 ** 31, 2 ** 32, 2 ** 53, 2 ** 62, 46341, 3037000500)

# What only moves elements, counts them, or takes integers as positions, lengths and masks: of these
# integers onnx's own tests are enough.
MOVES = set('''
    AffineGrid Attention BlackmanWindow CenterCropPad Col2Im Compress Concat Constant ConstantOfShape DFT
    DepthToSpace Expand EyeLike Flatten GRU Gather GatherElements GatherND GridSample HammingWindow
    HannWindow Identity If LSTM Loop MaxUnpool MelWeightMatrix NegativeLogLikelihoodLoss
    NonMaxSuppression Pad RNN Reshape Resize ReverseSequence RoiAlign RotaryEmbedding STFT Scan Scatter
    Shape Size Slice SoftmaxCrossEntropyLoss SpaceToDepth Split Squeeze Tile Transpose Trilu Unsqueeze
    Upsample'''.split())


def ends(dtype):
    """What is at the ends of the range, beside places where other types end, and small."""
    info = np.iinfo(dtype)
    low, high = info.min, LARGEST.get(dtype, info.max)
    values = {low, low + 1, high, high - 1, 0, 1, 2, 3, 7, 16, -1, -2, -7}
    for mark in MARKS:
        values |= {sign * mark + step for sign in (1, -1) for step in (-1, 0, 1)}
    return np.array(sorted(v for v in values if low <= v <= high), dtype)


def pairs(dtype):
    a, b = np.meshgrid(ends(dtype), ends(dtype))
    return a.ravel(), b.ravel()


def not_zero(dtype):
    """Pairs for quotients: what is divided by 0 is left open."""
    a, b = pairs(dtype)
    return a[b != 0], b[b != 0]


def few(dtype):
    """A matrix whose products and sums wrap around."""
    values = ends(dtype)
    return np.resize(values[::max(1, len(values) // 12)], (3, 4))


def shifts(dtype):
    a, b = np.meshgrid(ends(dtype), np.arange(8 * dtype.itemsize, dtype=dtype))
    return a.ravel(), b.ravel()


def powers(dtype):
    """Small exponents: numbers to them wrap around."""
    a, b = np.meshgrid(ends(dtype), np.array([0, 1, 2, 3, 7], dtype))
    return a.ravel(), b.ravel()


def one(dtype):
    return (ends(dtype),)


def matrix(dtype):
    return (few(dtype),)


def matrices(dtype):
    return few(dtype), few(dtype).T.copy()


def along(axis):
    return lambda dtype: (few(dtype), np.array(axis, np.int64))


def quarters(dtype):
    """Whose sums do not wrap around: the evaluator's mean does so in the type, the library's not."""
    return few(dtype) // 4, np.array([1], np.int64)


def small(dtype):
    """Whose squares and products are exact in floats."""
    return np.array([[0, 1, 2, 7], [3, 16, 100, 127], [1, 1, 1, 1]], dtype), np.array([1], np.int64)


def chosen(dtype):
    a, b = pairs(dtype)
    return np.arange(len(a)) % 3 == 0, a, b


def between(dtype):
    values = ends(dtype)
    return values, values[2], values[-2]


def range_of(dtype):
    last = ends(dtype)[-1]
    return tuple(np.array(int(last) - back, dtype) for back in (9, 0)) + (np.array(2, dtype),)


def hot(dtype):
    return np.array([1, 0, 3], dtype), np.array(4, np.int64), ends(dtype)[[0, -1]]


def pictures(dtype):
    return np.resize(ends(dtype), (1, 1, 5, 5)), np.resize(ends(dtype)[::-1], (2, 1, 3, 3))


def scattered(dtype):
    data, updates = few(dtype), few(dtype)[::-1].copy()
    return data, np.array([[0, 0, 2, 1], [1, 2, 0, 0], [2, 2, 2, 2]], np.int64), updates


def scattered_rows(dtype):
    data = few(dtype)
    return data, np.array([[1], [1], [2]], np.int64), data[::-1].copy()


def scaled(dtype):
    return ends(dtype), np.array(0.5, np.float32), np.array(3, dtype)


BYTES = (np.dtype('int8'), np.dtype('uint8'))
SHORT = tuple(dtype for dtype in INTEGERS if dtype.itemsize <= 2)
WORDS = tuple(dtype for dtype in INTEGERS if dtype.itemsize == 4)
LONG = tuple(dtype for dtype in INTEGERS if dtype.itemsize == 8)
WIDE = WORDS + LONG
# Operator, types, operands, attributes. The evaluator has no MaxPool of int8, and its mean and Gemm of
# 64 bits go through float64.
TABLE = [
    ('Abs', INTEGERS, one, {}),
    ('Neg', SIGNED, one, {}),
    ('Sign', INTEGERS, one, {}),
    ('Relu', SIGNED, one, {}),
    ('BitwiseNot', INTEGERS, one, {}),
    ('Shrink', INTEGERS, lambda dtype: (ends(dtype)[abs(ends(dtype).astype(float)) < 2 ** 24],),
     {'lambd': 1.5, 'bias': 1.0}),
    ('Add', INTEGERS, pairs, {}),
    ('Sub', INTEGERS, pairs, {}),
    ('Mul', INTEGERS, pairs, {}),
    ('Div', INTEGERS, not_zero, {}),
    ('Mod', INTEGERS, not_zero, {'fmod': 0}),
    ('Mod', INTEGERS, not_zero, {'fmod': 1}),
    ('Pow', SIGNED[2:], powers, {}),
    ('Max', INTEGERS, pairs, {}),
    ('Min', INTEGERS, pairs, {}),
    ('Equal', INTEGERS, pairs, {}),
    ('Less', INTEGERS, pairs, {}),
    ('LessOrEqual', INTEGERS, pairs, {}),
    ('Greater', INTEGERS, pairs, {}),
    ('GreaterOrEqual', INTEGERS, pairs, {}),
    ('BitwiseAnd', INTEGERS, pairs, {}),
    ('BitwiseOr', INTEGERS, pairs, {}),
    ('BitwiseXor', INTEGERS, pairs, {}),
    ('BitShift', UNSIGNED, shifts, {'direction': 'LEFT'}),
    ('BitShift', UNSIGNED, shifts, {'direction': 'RIGHT'}),
    ('Clip', INTEGERS, between, {}),
    ('Where', INTEGERS, chosen, {}),
    ('PRelu', WIDE, pairs, {}),
    ('CumSum', WIDE, along(1), {}),
    ('CumSum', WIDE, along(0), {'exclusive': 1, 'reverse': 1}),
    ('ReduceSum', WIDE, along([1]), {}),
    ('ReduceProd', WIDE, along([1]), {}),
    ('ReduceL1', WIDE, along([1]), {}),
    ('ReduceSumSquare', WIDE, along([1]), {}),
    ('ReduceMean', WORDS, quarters, {}),
    ('ReduceMean', LONG, small, {}),
    ('ReduceL2', WIDE, small, {}),
    ('ReduceMax', WIDE + BYTES, along([1]), {}),
    ('ReduceMin', WIDE + BYTES, along([1]), {}),
    ('ArgMax', INTEGERS, matrix, {'axis': 1}),
    ('ArgMin', INTEGERS, matrix, {'axis': 1, 'select_last_index': 1}),
    ('TopK', INTEGERS, lambda dtype: (ends(dtype), np.array([5], np.int64)), {}),
    ('TopK', INTEGERS, lambda dtype: (ends(dtype), np.array([5], np.int64)), {'largest': 0}),
    ('Range', tuple(np.dtype(name) for name in ('int16', 'int32', 'int64')), range_of, {}),
    ('OneHot', INTEGERS, hot, {}),
    ('MatMul', WIDE, matrices, {}),
    ('Gemm', WORDS, matrices, {}),
    ('Gemm', LONG, lambda dtype: (small(dtype)[0], small(dtype)[0].T.copy()), {}),
    ('Einsum', INTEGERS, matrices, {'equation': 'ij,jk->ik'}),
    ('MatMulInteger', BYTES, matrices, {}),
    ('ConvInteger', BYTES, pictures, {}),
    ('MaxPool', BYTES[1:], lambda dtype: pictures(dtype)[:1], {'kernel_shape': [2, 2]}),
    ('ScatterElements', INTEGERS, scattered, {'axis': 1}),
    ('ScatterElements', INTEGERS, scattered, {'axis': 1, 'reduction': 'add'}),
    ('ScatterElements', INTEGERS, scattered, {'axis': 1, 'reduction': 'mul'}),
    ('ScatterElements', INTEGERS, scattered, {'axis': 1, 'reduction': 'max'}),
    ('ScatterElements', INTEGERS, scattered, {'axis': 1, 'reduction': 'min'}),
    ('ScatterND', INTEGERS, scattered_rows, {'reduction': 'add'}),
    ('DequantizeLinear', SHORT, scaled, {}),
]
# Casts are below; of logarithms onnx's evaluator takes no integers any more; onnx's own tests have the rest.
OTHERS = {'Cast', 'CastLike', 'NonZero', 'DynamicQuantizeLinear', 'QLinearConv', 'QLinearMatMul',
          'QuantizeLinear', 'ReduceLogSum', 'ReduceLogSumExp'}


def type_of(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def write(path, message):
    with open(path, 'wb') as file:
        file.write(message.SerializeToString())


def write_case(folder, operator, operands, attributes):
    """A model of one node, its operands, and what the reference evaluator makes of them."""
    schema = defs.get_schema(operator, OPSET)
    names = [f'x{i}' for i in range(len(operands))]
    results = [f'y{i}' for i in range(len(schema.outputs))] if operator != 'MaxPool' else ['y0']
    node = helper.make_node(operator, names, results, **attributes)
    inputs = [helper.make_tensor_value_info(name, type_of(x), x.shape)
              for name, x in zip(names, operands)]

    def model(types):
        outputs = [helper.make_tensor_value_info(name, dtype, None)
                   for name, dtype in zip(results, types)]
        graph = helper.make_graph([node], operator, inputs, outputs)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid('', OPSET)], ir_version=10)

    feeds = dict(zip(names, operands))
    evaluator = ReferenceEvaluator(model([type_of(operands[0])] * len(results)))
    wanted = [np.asarray(y) for y in evaluator.run(None, feeds)]
    for i, result in enumerate(schema.outputs[:len(wanted)]):
        if result.type_str == schema.inputs[0].type_str: # numpy widens some sums
            wanted[i] = wanted[i].astype(operands[0].dtype)
    data = os.path.join(folder, 'test_data_set_0')
    os.makedirs(data)
    write(os.path.join(folder, 'model.onnx'), model([type_of(y) for y in wanted]))
    for word, values in (('input', operands), ('output', wanted)):
        for i, value in enumerate(values):
            write(os.path.join(data, f'{word}_{i}.pb'), numpy_helper.from_array(value))


def write_operations(folder):
    for operator, dtypes, operands, attributes in TABLE:
        words = '_'.join(f'{key}{value}' for key, value in attributes.items()
                         if isinstance(value, (int, str)) and len(str(value)) < 6)
        for dtype in dtypes:
            name = '_'.join(filter(None, (operator.lower(), words.lower(), dtype.name)))
            write_case(os.path.join(folder, name), operator,
                       [np.asarray(x) for x in operands(dtype)], attributes)


def values_of(source, target):
    """What is cast: integers, and floats up to the ends of the target's range. What is beyond is
    left open."""
    if source == bool:
        return np.array([False, True])
    if source in INTEGERS:
        return ends(source)
    marks = [0, 0.5, 1, 1.9, 100, 2 ** 7, 2 ** 8 - 1, 2 ** 15, 2 ** 24, 2 ** 31, 2 ** 62]
    numbers = np.array(marks + [-mark for mark in marks], np.float32).astype(source)
    numbers = numbers[np.isfinite(numbers.astype(np.float32))]
    if target in INTEGERS:
        info = np.iinfo(target)
        whole = np.array([int(number) for number in numbers.tolist()], object)
        numbers = numbers[[info.min <= number <= info.max for number in whole]]
    return numbers


def write_casts(folder):
    everything = INTEGERS + FLOATS + (np.dtype(bool),)
    for source in everything:
        for target in everything:
            if source not in FLOATS or target not in FLOATS:
                write_case(os.path.join(folder, f'cast_{source.name}_{target.name}'), 'Cast',
                           [values_of(source, target)],
                           {'to': helper.np_dtype_to_tensor_dtype(target)})


def takes_integers(operator):
    try:
        schema = defs.get_schema(operator, OPSET)
    except defs.SchemaError:
        return False
    names = {f'tensor({dtype.name})' for dtype in INTEGERS}
    kinds = {kind.type_param_str: set(kind.allowed_type_strs) for kind in schema.type_constraints}
    return any(kinds.get(x.type_str, {x.type_str}) & names for x in schema.inputs)


def main(folder, page):
    with open(page, encoding='utf-8') as file:
        operators = re.search('```operators(.*?)```', file.read(), re.S).group(1).split()
    known = MOVES | OTHERS | {row[0] for row in TABLE}
    forgotten = [name for name in operators if takes_integers(name) and name not in known]
    if forgotten:
        sys.exit(f'make-integers.py: operators of integers without a row: {forgotten}')
    shutil.rmtree(folder, ignore_errors=True)
    with np.errstate(all='ignore'):
        write_operations(folder)
        write_casts(folder)


if __name__ == '__main__':
    main(*sys.argv[1:])
