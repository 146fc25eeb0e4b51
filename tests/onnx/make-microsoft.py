# SPDX-License-Identifier: Apache-2.0
"""Operators of com.microsoft, and tensors of 4 bits, with what ONNX Runtime says:
make-microsoft.py FOLDER

FOLDER/OPERATOR_NUMBER in the form of onnx's own tests. Operands are inputs, or in the file: `Held`."""
import itertools
import os
import shutil
import sys

import ml_dtypes
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

DOMAIN = 'com.microsoft'
FLOAT, HALF, UINT8 = np.float32, np.float16, np.uint8
OPSET = 21

random = np.random.default_rng(0)


class Held:
    """An operand that the file has."""

    def __init__(self, value):
        self.value = value


def normal(*shape, dtype=FLOAT):
    return random.normal(size=shape).astype(dtype)


def bytes_of(*shape, below=256):
    return random.integers(0, below, shape, UINT8)


def tensor_of(value, name):
    return numpy_helper.from_array(np.asarray(value), name)


def write(path, message):
    with open(path, 'wb') as file:
        file.write(message.SerializeToString())


def model_of(nodes, operands, outputs):
    inputs, weights = [], []
    for name, value in operands.items():
        if isinstance(value, Held):
            weights.append(tensor_of(value.value, name))
        else:
            inputs.append(helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
    graph = helper.make_graph(nodes, 'graph', inputs, [
        helper.make_tensor_value_info(n, t, None) for n, t in outputs], weights)
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid('', OPSET), helper.make_opsetid(DOMAIN, 1)])


def node_of(op, operands, outputs, domain, **attributes):
    """One node, and its operands by name; None is left out."""
    named = {f'x{i}': value for i, value in enumerate(operands) if value is not None}
    names = [f'x{i}' if value is not None else '' for i, value in enumerate(operands)]
    return helper.make_node(op, names, outputs, domain=domain, **attributes), named


class Writer:
    def __init__(self, folder):
        self.folder = folder
        self.counts = {}

    def write(self, name, model, operands, tolerance):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                               providers=['CPUExecutionProvider'])
        given = {n: v for n, v in operands.items() if not isinstance(v, Held)}
        found = session.run(None, given)
        number = self.counts[name] = self.counts.get(name, -1) + 1
        data = os.path.join(self.folder, f'{name}_{number}', 'test_data_set_0')
        os.makedirs(data)
        write(os.path.join(self.folder, f'{name}_{number}', 'model.onnx'), model)
        with open(os.path.join(self.folder, f'{name}_{number}', 'tolerance'), 'w',
                  encoding='ascii') as file:
            file.write(f'{tolerance} {tolerance}\n')
        for word, values in (('input', given.values()), ('output', found)):
            for i, value in enumerate(values):
                write(os.path.join(data, f'{word}_{i}.pb'), tensor_of(value, f'{word}_{i}'))

    def node(self, op, operands, outputs=(TensorProto.FLOAT,), domain=DOMAIN, tolerance=1e-5,
             **attributes):
        """One node's results, of these types."""
        results = [(f'y{i}', kind) for i, kind in enumerate(outputs)]
        node, named = node_of(op, operands, [name if kind else '' for name, kind in results], domain,
                              **attributes)
        self.write(op, model_of([node], named, [r for r in results if r[1]]), named, tolerance)


def matmul_n_bits(write):
    for bits, block, (rows, k, n), held, zeros, dtype in itertools.product(
            (4, 8), (16, 32, 128), (((1,), 64, 3), ((2, 3), 70, 5), ((9,), 256, 33)), (True, False),
            (None, 'packed', 'float'), (FLOAT, HALF)):
        if dtype == HALF and (zeros == 'float' or block == 16 or not held):
            continue
        if bits == 8 and zeros == 'float':  # ONNX Runtime has none of these
            continue
        blocks = -(-k // block)
        keep = Held if held else lambda value: value
        zero = {None: None, 'packed': bytes_of(n, (blocks * bits + 7) // 8),
                'float': normal(n, blocks) + FLOAT(8)}[zeros]
        scale = (normal(n, blocks) * 0.1).astype(dtype)
        write.node('MatMulNBits', [normal(*rows, k, dtype=dtype),
                                   keep(bytes_of(n, blocks, block * bits // 8)), keep(scale),
                                   None if zero is None else keep(zero), None,
                                   normal(n, dtype=dtype) if k == 70 else None],
                   outputs=(TensorProto.FLOAT if dtype == FLOAT else TensorProto.FLOAT16,),
                   tolerance=2e-2 if dtype == HALF else 2e-4 if bits == 8 else 2e-5, K=k, N=n,
                   bits=bits, block_size=block)


def gather_block_quantized(write):
    for kind, zeros, bits, dtype in itertools.product(('uint8', 'int4', 'uint4'), (False, True), (4, 8),
                                                      (FLOAT, HALF)):
        if kind != 'uint8' and bits == 8:
            continue
        packed = kind == 'uint8' and bits == 4
        types = {'uint8': UINT8, 'int4': ml_dtypes.int4, 'uint4': ml_dtypes.uint4}[kind]
        low, high = {'uint8': (0, 256), 'int4': (-8, 8), 'uint4': (0, 16)}[kind]
        rows = random.integers(low, high, (7, 80 // (2 if packed else 1))).astype(types)
        zero = random.integers(low, high, (7, (5 + packed) // (2 if packed else 1))).astype(types)
        write.node('GatherBlockQuantized', [Held(rows), np.array([[3, 0], [6, 3]]),
                                            Held(normal(7, 5, dtype=dtype)), Held(zero) if zeros else None],
                   outputs=(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)),),
                   tolerance=1e-6 if dtype == FLOAT else 1e-3, block_size=16, bits=bits,
                   gather_axis=0, quantize_axis=1)


def four_bits(write):
    for types, block, axis in itertools.product((ml_dtypes.int4, ml_dtypes.uint4), (0, 16), (0, 1)):
        low, high = (-8, 8) if types == ml_dtypes.int4 else (0, 16)
        shape = (33, 64) if axis else (64, 33)
        scales = shape[axis] // block if block else shape[axis]
        of_scales = ((33, scales) if axis else (scales, 33)) if block else (scales,)
        w = random.integers(low, high, shape).astype(types)
        zero = random.integers(low, high, of_scales).astype(types)
        scale = np.abs(normal(*of_scales)) + FLOAT(0.01)
        for with_zero in (False, True):
            write.node('DequantizeLinear', [Held(w), Held(scale)] + [Held(zero)] * with_zero, domain='',
                       tolerance=1e-6, axis=axis, block_size=block)
        names = {'x': normal(*shape) * 4, 's': Held(scale), 'z': Held(zero)}
        nodes = [helper.make_node('QuantizeLinear', ['x', 's', 'z'], ['q'], axis=axis, block_size=block),
                 helper.make_node('DequantizeLinear', ['q', 's', 'z'], ['y'], axis=axis, block_size=block)]
        write.write('QuantizeLinear4', model_of(nodes, names, [('y', TensorProto.FLOAT)]), names, 1e-6)


def four_bit_products(write):
    """DequantizeLinear, perhaps a Transpose, and MatMul."""
    cases = itertools.product((ml_dtypes.int4, ml_dtypes.uint4), ((70, 5), (256, 33), (1, 1)), (0, 16, 32, 128),
                              (False, True), (False, True), (FLOAT, HALF))
    for types, (k, n), block, turned, with_zero, dtype in cases:
        if dtype == HALF and block not in (0, 32):
            continue
        low, high = (-8, 8) if types == ml_dtypes.int4 else (0, 16)
        scales = (-(-k // block), n) if block else (n,)
        shape = (n, k) if turned else (k, n)
        of_scales = scales[::-1] if turned else scales
        axis = int(turned) if block else 1 - int(turned)
        names = {'x': normal(3, k, dtype=dtype), 'w': Held(random.integers(low, high, shape).astype(types)),
                 's': Held((np.abs(normal(*of_scales)) * 0.1 + 0.01).astype(dtype)),
                 'z': Held(random.integers(low, high, of_scales).astype(types))}
        nodes = [helper.make_node('DequantizeLinear', ['w', 's'] + ['z'] * with_zero, ['d'], axis=axis,
                                  **({'block_size': block} if block else {}))]
        if turned:
            nodes.append(helper.make_node('Transpose', ['d'], ['t'], perm=[1, 0]))
        nodes.append(helper.make_node('MatMul', ['x', 't' if turned else 'd'], ['y']))
        if not with_zero:
            del names['z']
        write.write('DequantizeLinearMatMul', model_of(nodes, names, [('y', helper.np_dtype_to_tensor_dtype(
            np.dtype(dtype)))]), names, 2e-2 if dtype == HALF else 2e-5)


def angles(size):
    turned = np.outer(np.arange(64), 0.7 ** np.arange(size // 2)).astype(FLOAT)
    return Held(np.cos(turned)), Held(np.sin(turned))


def group_query_attention(write):
    """A prompt, a prompt with texts of several lengths, a token, and a chunk, with a cache that has room
    or grows."""
    heads, pairs, size = 6, 2, 16
    places = {'prompt': (4, (4, 4), 0, 4), 'ragged': (5, (5, 3), 0, 5), 'token': (1, (8, 5), 7, 8),
              'room': (1, (6, 9), 12, 9), 'chunk': (3, (9,), 6, 9), 'chunk_room': (3, (9,), 16, 9)}
    cases = itertools.product(places.values(), (False, True), (False, True), (-1, 3), (0.0, 5.0))
    for (rows, lengths, past, total), packed, rotary, window, cap in cases:
        if (packed and window > 0) or (packed and cap):
            continue
        batch = len(lengths)
        widths = [heads * size, pairs * size, pairs * size]
        parts = [normal(batch, rows, width) for width in widths]
        if packed:
            parts = [np.concatenate(parts, 2), None, None]
        cached = [normal(batch, pairs, past, size) for _ in range(2)] if past else [None, None]
        for index, length in enumerate(lengths):
            for c in cached:
                if c is not None:
                    c[index, :, length - rows:] = 0
        operands = parts + cached + [np.array(lengths, np.int32) - np.int32(1),
                                     Held(np.array(total, np.int32))]
        operands += list(angles(size)) if rotary else []
        node, named = node_of('GroupQueryAttention', operands, ['all', 'keys', 'values'], DOMAIN, num_heads=heads,
                              kv_num_heads=pairs, do_rotary=int(rotary), local_window_size=window,
                              rotary_interleaved=int(packed), softcap=cap)
        # Rows behind the end of a prompt's text are anything.
        there = np.arange(rows)[None, :, None] < np.array(lengths)[:, None, None]
        named['there'] = Held((there | (total > rows)).astype(FLOAT))
        mul = helper.make_node('Mul', ['all', 'there'], ['y'])
        write.write(node.op_type, model_of([node, mul], named, [
            (name, TensorProto.FLOAT) for name in ('y', 'keys', 'values')]), named, 2e-5)


def scale_of(*shape):
    return np.abs(normal(*shape)) * FLOAT(0.02) + FLOAT(0.005)


def signed(*shape):
    return random.integers(-128, 128, shape, np.int8)


def qlinear(write):
    """With DequantizeLinear behind: results differ by one step where a quotient is near a half."""
    x = {UINT8: bytes_of, np.int8: signed}
    rows = (
        ('QLinearAdd', 2, {}, (((3, 4), (3, 4)), ((2, 3, 4), (4,)), ((5, 1), (1, 7)))),
        ('QLinearMul', 2, {}, (((3, 4), (3, 4)), ((2, 3, 4), (4,)))),
        ('QLinearSigmoid', 1, {}, (((3, 50),),)),
        ('QLinearLeakyRelu', 1, {'alpha': 0.1}, (((3, 50),),)),
        ('QLinearSoftmax', 1, {'axis': -1, 'opset': 13}, (((3, 50),), ((2, 3, 7),))),
        ('QLinearSoftmax', 1, {'axis': 1, 'opset': 12}, (((2, 3, 7),),)),
        ('QLinearGlobalAveragePool', 1, {}, (((2, 3, 5, 7),),)),
        ('QLinearAveragePool', 1, {'kernel_shape': [3, 3], 'pads': [1, 1, 1, 1], 'strides': [2, 2]},
         (((2, 3, 9, 8),),)),
        ('QLinearWhere', 2, {}, (((3, 4), (3, 4)),)),
        ('QLinearConcat', 3, {'axis': 1}, (((2, 3), (2, 1), (2, 4)),)),
    )
    for (op, n, attributes, all_shapes), kind in itertools.product(rows, (UINT8, np.int8)):
        for shapes in all_shapes:
            operands = []
            for shape in shapes:
                operands += [x[kind](*shape), Held(scale_of()[()] if shape else 0), Held(x[kind](1)[0])]
            scale = FLOAT(1 / 256) if op in ('QLinearSoftmax', 'QLinearSigmoid') else scale_of()[()] * 4
            result = [Held(scale), Held(x[kind](1)[0])]
            if op == 'QLinearWhere':
                operands.insert(0, random.random(shapes[0]) < 0.5)
            node, named = node_of(op, result + operands if op == 'QLinearConcat' else operands + result,
                                  ['q'], DOMAIN, **attributes)
            named.update(scale=result[0], zero=result[1])
            behind = helper.make_node('DequantizeLinear', ['q', 'scale', 'zero'], ['y'])
            write.write(op, model_of([node, behind], named, [('y', TensorProto.FLOAT)]), named,
                        float(scale) * 1.01)


def quantized_products(write):
    for (m, k, n), columns, zeros, bias, kind in itertools.product(
            ((1, 8, 3), (5, 300, 33)), (False, True), (False, True), (False, True), (UINT8, np.int8)):
        weights = bytes_of(k, n) if kind == UINT8 else signed(k, n)
        zero = (bytes_of if kind == UINT8 else signed)(*([n] if columns else [1]))
        scale = scale_of(n) if columns else scale_of(1)
        added = normal(n) if bias else None
        write.node('MatMulIntegerToFloat', [
            bytes_of(2, m, k), Held(weights), Held(scale_of(1)), Held(scale),
            Held(bytes_of(1)) if zeros else None, Held(zero) if zeros else None, added], tolerance=1e-3)
        write.node('DynamicQuantizeMatMul', [
            normal(2, m, k), Held(weights), Held(scale), Held(zero) if zeros else None, added],
            tolerance=1e-3)
        turn = columns
        operands = [bytes_of(k, m) if turn else bytes_of(m, k), Held(scale_of()[()]), Held(bytes_of(1)[0]),
                    Held(weights.T.copy() if turn else weights), Held(scale_of()[()]), Held(zero[:1][0]),
                    random.integers(-1000, 1000, n).astype(np.int32) if bias else None]
        write.node('QGemm', operands, transA=int(turn), transB=int(turn), alpha=0.5, tolerance=1e-3)
        if zeros:
            result = [Held(FLOAT(3)), Held(UINT8(100))]
            node, named = node_of('QGemm', operands + result, ['q'], DOMAIN, transA=int(turn),
                                  transB=int(turn), alpha=0.5)
            named.update(scale=result[0], zero=result[1])
            behind = helper.make_node('DequantizeLinear', ['q', 'scale', 'zero'], ['y'])
            write.write('QGemm', model_of([node, behind], named, [('y', TensorProto.FLOAT)]), named, 3.01)


def attention(write):
    heads, size, width = 3, 8, 24
    for past, causal, mask, quantized in itertools.product((0, 4), (0, 1), (None, 2, 1), (False, True)):
        if past and mask == 1:
            continue
        cached = normal(2, 2, heads, past, size) if past else None
        seen = {None: None, 1: np.array([5, 3], np.int32),
                2: (random.random((2, 5 + past)) < 0.7).astype(np.int32)}[mask]
        if mask == 2:
            seen[:, 0] = 1
        outputs = (TensorProto.FLOAT,) * (2 if past else 1)
        if quantized:
            write.node('QAttention', [
                bytes_of(2, 5, 16), Held(signed(16, 3 * width)), Held(normal(3 * width)),
                Held(FLOAT(0.01)), Held(FLOAT(0.005)), seen, Held(UINT8(120)), Held(np.int8(3)), cached],
                outputs, tolerance=1e-4, num_heads=heads, unidirectional=causal)
        else:
            write.node('Attention', [normal(2, 5, 16), Held(normal(16, 3 * width)), Held(normal(3 * width)),
                                     seen, cached], outputs, tolerance=1e-4, num_heads=heads,
                       unidirectional=causal)


def quantized_lstm(write):
    """ONNX Runtime rounds rows of x and of the state to 8 bits, too: hence the tolerance."""
    for direction, columns in itertools.product(('forward', 'reverse', 'bidirectional'), (False, True)):
        n, hidden, width = 2 if direction == 'bidirectional' else 1, 8, 6
        shape = (n, 4 * hidden) if columns else (n,)
        write.node('DynamicQuantizeLSTM', [
            normal(7, 3, width), Held(signed(n, width, 4 * hidden)), Held(signed(n, hidden, 4 * hidden)),
            Held(normal(n, 8 * hidden)), None, normal(n, 3, hidden) * FLOAT(0.5), None, None,
            Held(scale_of(*shape) * FLOAT(0.2)), Held(signed(*shape) if not columns else np.zeros(shape, np.int8)),
            Held(scale_of(*shape) * FLOAT(0.2)), Held(np.zeros(shape, np.int8))],
            (TensorProto.FLOAT,) * 3, tolerance=4e-2, hidden_size=hidden, direction=direction)


def fused(write):
    for name, numbers in (('Relu', []), ('Sigmoid', []), ('Tanh', []), ('LeakyRelu', [0.2]),
                          ('HardSigmoid', [0.3, 0.4]), ('Clip', [-0.5, 0.7])):
        x, w = normal(2, 4, 7, 6), Held(normal(3, 4, 3, 3))
        for operands in ([x, w, Held(normal(3))], [x, w]):
            write.node('FusedConv', operands, tolerance=1e-4, kernel_shape=[3, 3], pads=[1, 1, 1, 1],
                       activation=name, **({'activation_params': numbers} if numbers else {}))
        named = {'activation_alpha': numbers[0]} if numbers else {}
        if len(numbers) > 1:
            named['activation_beta'] = numbers[1]
        if name != 'Clip':
            write.node('FusedGemm', [normal(5, 4), Held(normal(3, 4)), Held(normal(3))], tolerance=1e-4,
                       transB=1, alpha=0.5, activation=name, **named)
    write.node('FusedConv', [normal(2, 4, 7, 6), Held(normal(3, 4, 3, 3)), Held(normal(3)),
                             normal(2, 3, 7, 6)], tolerance=1e-4, kernel_shape=[3, 3], pads=[1, 1, 1, 1],
               activation='Relu')


def few(write):
    """What language models have of further operators."""
    x = normal(2, 5, 32)
    write.node('BiasGelu', [x, normal(32)])
    write.node('FastGelu', [x, normal(32)])
    write.node('FastGelu', [x])
    write.node('QuickGelu', [x], alpha=1.2)
    write.node('Gelu', [x])
    write.node('SimplifiedLayerNormalization', [x, normal(32)], domain='', axis=-1, epsilon=1e-5)
    for bias in (None, normal(32)):
        write.node('SkipSimplifiedLayerNormalization', [x, normal(2, 5, 32), normal(32), bias],
                   (TensorProto.FLOAT, None, None, TensorProto.FLOAT), epsilon=1e-5)
        write.node('SkipLayerNormalization', [x, normal(2, 5, 32), normal(32), normal(32), bias],
                   epsilon=1e-5)
    for turned in (0, 1):
        write.node('FusedMatMul', [normal(2, 3, 5), normal(2, 4, 5) if turned else normal(2, 5, 4)],
                   transB=turned, alpha=0.25)
        write.node('RotaryEmbedding', [normal(2, 3, 32), np.array([[0, 1, 2], [5, 6, 7]])] +
                   list(angles(16)), num_heads=2, interleaved=turned)


MAKERS = (attention, few, fused, qlinear, quantized_lstm, quantized_products, group_query_attention,
          matmul_n_bits, gather_block_quantized, four_bits, four_bit_products)


def main(folder):
    shutil.rmtree(folder, ignore_errors=True)
    for maker in MAKERS:
        maker(Writer(folder))


main(sys.argv[1])
