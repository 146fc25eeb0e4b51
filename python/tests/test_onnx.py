# SPDX-License-Identifier: Apache-2.0
"""Models in ONNX files; one is written here, byte by byte."""
import os
import tempfile
import unittest

import numpy as np

import kiln

W = np.float32([[1, -1, 2], [0, 3, -2]])


def number(value):
    """A variable-length integer of protobuf."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out + bytes([value]))


def field(tag, value):
    if isinstance(value, int):
        return number(tag << 3) + number(value)
    value = value.encode() if isinstance(value, str) else value
    return number(tag << 3 | 2) + number(len(value)) + value


def node(operator, inputs, output):
    return field(1, b''.join(field(1, name) for name in inputs) + field(2, output) +
                 field(4, operator))


def value_info(name, dims):
    shape = b''.join(field(1, field(2, d) if isinstance(d, str) else field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


def model():
    """y = relu(x W), x of [rows, 2]."""
    weights = b''.join(field(1, d) for d in W.shape) + field(2, 1) + field(8, 'W') + \
        field(9, W.tobytes())
    graph = node('MatMul', ['x', 'W'], 'h') + node('Relu', ['h'], 'y') + field(2, 'g') + \
        field(5, weights) + field(11, value_info('x', ['rows', 2])) + \
        field(12, value_info('y', ['rows', 3]))
    return field(1, 8) + field(7, graph) + field(8, field(1, '') + field(2, 17))


class Onnx(unittest.TestCase):
    def setUp(self):
        try:
            kiln._onnx.onnx_library()
        except ImportError as error:
            self.skipTest(str(error))

    def test_results(self):
        """results of any size are the caller's own, and outlive the model"""
        loaded = kiln.Model(model())
        kept = []
        for rows in (0, 1, 7, 5461, 5462, 20000, 7):  # 65,536 bytes are the first that are not copied
            x = np.random.default_rng(rows).standard_normal((rows, 2)).astype(np.float32)
            kept.append((loaded(x=x)['y'], np.maximum(x @ W, 0)))
        del loaded
        for found, wanted in kept:
            self.assertEqual(found.shape, wanted.shape)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
            found += 1
        for found, wanted in kept:
            np.testing.assert_allclose(found, wanted + 1, rtol=1e-5, atol=1e-6)

    def test_model(self):
        """a model runs, is recorded and derived, and says what is wrong"""
        loaded = kiln.Model(model())
        self.assertEqual(loaded.inputs[0].name, 'x')
        self.assertEqual(loaded.inputs[0].shape, ('rows', 2))
        self.assertEqual(loaded.inputs[0].dtype, kiln.f32)
        self.assertEqual([v.name for v in loaded.outputs], ['y'])
        x = np.float32([[1, 2], [-3, 1]])
        wanted = np.maximum(x @ W, 0)
        for result in (loaded(x=x), loaded(x), loaded({'x': x.astype(np.float64)})):
            np.testing.assert_allclose(result['y'], wanted)
        gradient = kiln.grad(lambda x: loaded.record(x)['y'].sum())(x)
        np.testing.assert_allclose(gradient.numpy(), (wanted > 0).astype(np.float32) @ W.T)
        with self.assertRaisesRegex(TypeError, "the inputs are 'x'"):
            loaded(z=x)
        with self.assertRaisesRegex(kiln.Error, 'x'):
            loaded(x=np.zeros((2, 5), np.float32))
        with self.assertRaises(kiln.Error):
            kiln.Model(b'no model at all')
        with tempfile.TemporaryDirectory() as folder, \
                self.assertRaisesRegex(kiln.Error, '/missing.onnx'):
            kiln.Model(os.path.join(folder, 'missing.onnx'))


if __name__ == '__main__':
    unittest.main()
