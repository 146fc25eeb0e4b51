# SPDX-License-Identifier: Apache-2.0
"""Own kernels, and expressions of elements, beside numpy."""
import unittest

import numpy as np

import kiln

AXPY = 'const int i = get_global_id(0);\nz[i] = a * x[i] + y[i];'


class Kernels(unittest.TestCase):
    def test_axpy(self):
        axpy = kiln.kernel(AXPY, 'x y', 'z', scalars={'a': 'f32'}, name='axpy')
        x, y = np.arange(6, dtype='f').reshape(2, 3), np.ones((2, 3), 'f')
        z = axpy(x, y, a=0.5)
        self.assertEqual((z.shape, z.dtype), ((2, 3), kiln.f32))
        np.testing.assert_array_equal(kiln.relu(z).numpy(), x * 0.5 + 1)
        self.assertIn('axpy', repr(axpy))

    def test_several_outputs_of_other_shapes(self):
        parts = kiln.kernel('const int i = get_global_id(0);\n'
                            'STORE(low, i, LOAD(x, i) & 15);\nSTORE(high, i, LOAD(x, i) / 16);\n'
                            'if (i == 0) count[0] = x_size + x_shape[0];',
                            'x', 'low high count', dtype=['u8', 'f16', 'i64'],
                            shape=lambda x: [x.shape, x.shape, (1,)])
        low, high, count = parts(np.array([18, 255], np.uint8))
        self.assertEqual([t.dtype.name for t in (low, high, count)], ['u8', 'f16', 'i64'])
        np.testing.assert_array_equal(low.numpy(), [2, 15])
        np.testing.assert_array_equal(high.numpy(), [1, 15])
        np.testing.assert_array_equal(count.numpy(), [4])

    def test_sizes_of_work(self):
        sums = kiln.kernel('local float part[2];\n'
                           'const int row = get_group_id(0), lane = get_local_id(0);\n'
                           'part[lane] = 0;\n'
                           'for (int j = lane; j < x_shape[1]; j += 2)\n'
                           '    part[lane] += x[row * x_strides[0] + j * x_strides[1]];\n'
                           'barrier(CLK_LOCAL_MEM_FENCE);\n'
                           'if (lane == 0) y[row] = part[0] + part[1];',
                           shape=lambda x: x.shape[:1], grid=lambda x: 2 * x.shape[0], group=2,
                           strided='x', name='row_sums')
        x = np.arange(12, dtype='f').reshape(3, 4)
        np.testing.assert_array_equal(sums(kiln.transpose(kiln.tensor(x))).numpy(), x.sum(0))

    def test_mistakes(self):
        axpy = kiln.kernel(AXPY, 'x y', 'z', scalars={'a': 'f32'}, name='axpy')
        one = np.ones(2, 'f')
        for call, kind, words in (
                (lambda: axpy(one, a=1), TypeError, 'takes 2 tensors'),
                (lambda: axpy(one, one), TypeError, 'takes the numbers a, not -'),
                (lambda: axpy(one, one, b=1), TypeError, 'takes the numbers a, not b'),
                (lambda: kiln.kernel('', strided='z'), ValueError, 'z is no input'),
                (lambda: kiln.kernel('a\0b')(one), ValueError, 'NUL'),
                (lambda: kiln.kernel('', '', 'y')(), ValueError, 'no input'),
                (lambda: kiln.kernel('', grid=(1, 1, 1, 1))(one), ValueError, 'three are the most'),
                (lambda: kiln.kernel('', grid=-1)(one), ValueError, 'no numbers of work-items'),
                (lambda: kiln.kernel('', shape=(1,) * 9)(one), kiln.Error, '9 dimensions'),
                (lambda: kiln.kernel('', scalars={'n': 'i64'})(one, n=2**53 + 1), ValueError,
                 'is no i64 that a double holds'),
                (lambda: kiln.kernel('', name='2x')(one), kiln.Error, 'called 2x'),
                (lambda: kiln.kernel('y[0] = nowhere;', name='bad')(one).numpy(), kiln.Error,
                 'bad:1')):
            with self.assertRaisesRegex(kind, words):
                call()

    def test_gradient_without_one(self):
        twice = kiln.kernel('y[get_global_id(0)] = 2 * x[get_global_id(0)];', name='twice')
        with self.assertRaisesRegex(kiln.Error, 'through twice, which has no derivative'):
            kiln.grad(lambda x: kiln.sum(twice(x)))(np.ones(3, 'f')).numpy()


class Expressions(unittest.TestCase):
    def test_values(self):
        x, y = np.array([[1, -2, 3]], 'f'), np.array([[2], [4]], 'f')
        for text, wanted in (('x * y + 1', x * y + 1), ('x / (1 + exp(-x))', x / (1 + np.exp(-x))),
                             ('y - x ** 2', y - x ** 2), ('x if x > y else -x', np.where(x > y, x, -x)),
                             ('maximum(x, 0)', np.maximum(x, 0))):
            function = kiln.elementwise(text, 'x y')
            np.testing.assert_allclose(function(x, y).numpy(),
                                       np.broadcast_to(wanted, function(x, y).shape), 1e-6)

    def test_gradient_and_order(self):
        function = kiln.elementwise('b - a * a', 'a b')
        slope = kiln.grad(lambda a: kiln.sum(function(a, 5.0)))(np.array([1, 2], 'f'))
        np.testing.assert_array_equal(slope.numpy(), [-2, -4])
        np.testing.assert_array_equal(kiln.elementwise('b - a')(np.ones(1, 'f'),
                                                               np.zeros(1, 'f')).numpy(), [1])

    def test_refused(self):
        for text, words in (('x +', 'no expression'), ('x.shape', 'an expression has'),
                            ('__import__("os")', 'no function'), ('x[0]', 'an expression has'),
                            ('open(x)', 'no function'), ('lambda: x', 'an expression has'),
                            ('"x"', 'an expression has'), ('1 < x < 2', 'an expression has')):
            with self.assertRaisesRegex(ValueError, words):
                kiln.elementwise(text)
        with self.assertRaisesRegex(ValueError, 'y is none of the inputs'):
            kiln.elementwise('x + y', 'x')
        with self.assertRaisesRegex(TypeError, 'is of x, y'):
            kiln.elementwise('x + y')(np.ones(1, 'f'))
        for text in ('x + 9 ** 9 ** 9', 'x + (1 << 10 ** 12)', 'x + (9 ** 300) ** 300'):
            with self.assertRaisesRegex(ValueError, 'more than 1024 bits'):
                kiln.elementwise(text)(np.ones(1, 'f'))


if __name__ == '__main__':
    unittest.main()
