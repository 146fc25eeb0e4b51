# SPDX-License-Identifier: Apache-2.0
"""Loops and scans of many turns, which are recorded once, with what ONNX Runtime says:
make-loops.py FOLDER

FOLDER/NAME in the form of onnx's own tests, one set of data for each number of turns."""
import os
import shutil
import sys

import numpy as np
import onnxruntime
from onnx import numpy_helper, parser

random = np.random.default_rng(0)

HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'

# What a turn computes: tanh(s w + x).
STEP = 'product = MatMul(s, w) sum = Add(product, x) s2 = Tanh(sum)'

# By name: the graph, and the numbers of turns that it is asked for; None: it has no input n.
GRAPHS = {
    'elements': ('''g (float[64] x) => (float[64] y) <int64 n = {1000}, float k = {0.999}> {
        y = Loop(n, , x) <body = b (int64 i, bool on, float[64] s) => (bool on2, float[64] s2)
            { on2 = Identity(on) part = Mul(s, k) s2 = Add(part, k) }> }''', None),
    'products': (f'''g (float[4,32] x, float[32,32] w, int64 n) => (float[4,32] y) {{
        y = Loop(n, , x) <body = b (int64 i, bool on, float[4,32] s) => (bool on2, float[4,32] s2)
            {{ on2 = Identity(on) {STEP} }}> }}''', (0, 1, 16, 17, 1000, 5000)),
    'collected': (f'''g (float[4,32] x, float[32,32] w, int64 n)
        => (float[4,32] y, float[m,4,32] all, int64[m] turns) {{
        y, all, turns = Loop(n, , x) <body = b (int64 i, bool on, float[4,32] s)
            => (bool on2, float[4,32] s2, float[4,32] one, int64 turn)
            {{ on2 = Identity(on) {STEP} one = Neg(s2) turn = Identity(i) }}> }}''',
                  (1, 17, 400, 1500)),
    'until': ('''g (float[8] x, int64 n, bool start) => (float[8] y, int64 turns)
        <int64 zero = {0}, int64 one = {1}, float most = {1000.0}> {
        y, turns = Loop(n, start, x, zero) <body = b (int64 i, bool on, float[8] s, int64 k)
            => (bool on2, float[8] s2, int64 k2) { s2 = Add(s, s) sum = ReduceSum<keepdims = 0>(s2)
            on2 = Less(sum, most) k2 = Add(k, one) }> }''', (0, 1, 5, 17, 300)),
    'from_device': ('''g (float[8] x) => (float[8] y, float[8] z)
        <float most = {1000.0}, float few = {-1.0}, float k = {1.125}, int64 n = {100}> {
        sum = ReduceSum<keepdims = 0>(x) go = Less(sum, most) stop = Less(sum, few)
        y = Loop( , go, x) <body = b (int64 i, bool on, float[8] s) => (bool on2, float[8] s2)
            { s2 = Mul(s, k) sum2 = ReduceMax<keepdims = 0>(s2) on2 = Less(sum2, most) }>
        z = Loop(n, stop, x) <body = c (int64 j, bool on3, float[8] u) => (bool on4, float[8] u2)
            { on4 = Identity(on3) u2 = Mul(u, k) }> }''', None),
    'numbers': ('''g (float[16] x, float[100,16] table) => (float[16] y, float[100,16] all)
        <int64 n = {100}> {
        y, all = Loop(n, , x) <body = b (int64 i, bool on, float[16] s)
            => (bool on2, float[16] s2, float[16] one) { on2 = Identity(on) row = Gather(table, i)
            s2 = Sub(row, s) number = Cast<to = 1>(i) one = Add(s2, number) }> }''', None),
    'swapped': ('''g (float[4] x, float[4] w) => (float[4] y, float[4] z) <int64 n = {101}> {
        y, z = Loop(n, , x, w) <body = b (int64 i, bool on, float[4] s, float[4] u)
            => (bool on2, float[4] s2, float[4] u2)
            { on2 = Identity(on) s2 = Identity(u) u2 = Neg(s) }> }''', None),
    'nested': (f'''g (float[4,32] x, float[32,32] w, int64 n) => (float[4,32] y)
        <int64 m = {{40}}, float k = {{0.5}}> {{
        y = Loop(n, , x) <body = b (int64 i, bool on, float[4,32] t) => (bool on2, float[4,32] t2)
            {{ on2 = Identity(on) in = Loop(m, , t) <body = c (int64 j, bool on3, float[4,32] s)
                => (bool on4, float[4,32] s2) {{ on4 = Identity(on3) {STEP} }}>
            half = Mul(in, k) t2 = Add(half, t) }}> }}''', (3, 30)),
    'known': ('''g (float[100] x) => (float[50,2] y)
        <int64 n = {50}, int64 zero = {0}, int64 one = {1}, int64[1] rest = {-1}> {
        rows = Loop(n, , zero) <body = b (int64 i, bool on, int64 k) => (bool on2, int64 k2)
            { on2 = Identity(on) k2 = Add(k, one) }>
        list = Reshape(rows, rest) shape = Concat<axis = 0>(list, rest) y = Reshape(x, shape) }''', None),
    'growing': ('''g (float[3] x, int64 n) => (float[m] y) {
        y = Loop(n, , x) <body = b (int64 i, bool on, float[k] s) => (bool on2, float[l] s2)
            { on2 = Identity(on) s2 = Concat<axis = 0>(s, x) }> }''', (0, 40)),
    'scanned': (f'''g (float[4,32] s0, float[32,32] w, float[4,200,32] xs) => (float[4,32] y,
        float[4,200,32] all) {{
        y, all = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
            scan_input_directions = [1], scan_output_directions = [1], body = b (float[4,32] s,
            float[4,32] x) => (float[4,32] s2, float[4,32] one) {{ {STEP} one = Neg(s2) }}>(s0, xs) }}''',
                None),
    'two_ways': ('''g (float[2] s0, float[2,90] a, float[90,2] b) => (float[2] y, float[2,90] all) {
        y, all = Scan<num_scan_inputs = 2, scan_input_axes = [-1, 0], scan_output_axes = [-1],
            scan_input_directions = [1, 0], body = c (float[2] s, float[2] p, float[2] q)
            => (float[2] s2, float[2] one) { r = Sub(p, s) s2 = Mul(q, r) one = Identity(p) }>
            (s0, a, b) }''', None),
    'stateless': ('''g (float[70,5] xs) => (float[70,5] all) {
        all = Scan<num_scan_inputs = 1, body = b (float[5] x) => (float[5] y)
            { y = Softmax<axis = 0>(x) }>(xs) }''', None),
}


def value_of(info, n):
    dims = [d.dim_value for d in info.type.tensor_type.shape.dim]
    if info.name == 'n':
        return np.array(n, np.int64)
    if info.name == 'start':
        return np.array(True)
    value = random.uniform(0.1, 0.3, dims)
    return (value * random.choice([-0.5, 0.5], dims) if info.name == 'w' else value).astype(np.float32)


def write(path, array):
    with open(path, 'wb') as file:
        file.write(numpy_helper.from_array(array).SerializeToString())


def main(folder):
    shutil.rmtree(folder, ignore_errors=True)
    for name, (graph, turns) in GRAPHS.items():
        model = parser.parse_model(HEAD + graph)
        place = os.path.join(folder, name)
        os.makedirs(place)
        with open(os.path.join(place, 'model.onnx'), 'wb') as file:
            file.write(model.SerializeToString())
        with open(os.path.join(place, 'tolerance'), 'w', encoding='ascii') as file:
            file.write('1e-5 1e-5\n')
        session = onnxruntime.InferenceSession(model.SerializeToString(),
                                               providers=['CPUExecutionProvider'])
        for number, n in enumerate(turns or (None,)):
            data = os.path.join(place, f'test_data_set_{number}')
            os.makedirs(data)
            given = {info.name: value_of(info, n) for info in model.graph.input}
            for i, array in enumerate(given.values()):
                write(os.path.join(data, f'input_{i}.pb'), array)
            for i, array in enumerate(session.run(None, given)):
                write(os.path.join(data, f'output_{i}.pb'), np.asarray(array))


main(sys.argv[1])
