# SPDX-License-Identifier: Apache-2.0
"""Own kernels, and expressions of elements, beside numpy."""
import gc
import threading
import unittest
import weakref

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


def squares(**more):
    """x * x + c, of a kernel with a gradient of kiln's operations."""
    options = {'gradient': lambda inputs, outputs, flowed, c: 2 * inputs[0] * flowed[0],
               'host': lambda x, c: x * x + c, **more}
    return kiln.kernel('const int i = get_global_id(0);\ny[i] = x[i] * x[i] + c;',
                       scalars={'c': 'f32'}, name='squares', **options)


class Gradients(unittest.TestCase):
    def slopes(self, function, *arguments):
        """Central differences of sum(function), in double precision: `function` is numpy's."""
        found = []
        for k, x in enumerate(arguments):
            slope = np.zeros(x.shape)
            for place in np.ndindex(x.shape):
                ends = []
                for step in (1e-6, -1e-6):
                    moved = [np.array(a, float) for a in arguments]
                    moved[k][place] += step
                    ends.append(np.sum(function(*moved)))
                slope[place] = (ends[0] - ends[1]) / 2e-6
            found.append(slope)
        return found

    def test_beside_differences(self):
        text = ('const int i = get_global_id(0);\n'
                'STORE(sum, i, a * x[i] + y[i]);\nSTORE(product, i, x[i] * y[i]);\nwhole[i] = i;')

        def gradient(inputs, outputs, flowed, a):
            (x, y), (to_sum, to_product, to_whole) = inputs, flowed
            self.assertIsNone(to_whole)
            self.assertEqual([t.dtype.name for t in outputs], ['f32', 'f32', 'i32'])
            return a * to_sum + y * to_product, to_sum + x * to_product
        pair = kiln.kernel(text, 'x y', 'sum product whole', scalars={'a': 'f32'}, name='pair',
                           dtype=['f32', 'f32', 'i32'], gradient=gradient)
        for shape in ((1,), (7,), (3, 5)):
            values = np.random.default_rng(7).normal(size=(2, *shape)).astype('f')

            def both(x, y, tanh):
                sums, products, *_ = pair(x, y, a=0.5) if tanh is kiln.tanh else (0.5 * x + y, x * y)
                return tanh(sums) * products
            made = kiln.grad(lambda x, y: kiln.sum(both(x, y, kiln.tanh)), (0, 1))(*values)
            for got, wanted in zip(made, self.slopes(lambda x, y: both(x, y, np.tanh), *values)):
                np.testing.assert_allclose(got.numpy(), wanted, 1e-4, 1e-5)
            # One output alone: zeros flow to the other.
            alone = kiln.grad(lambda x, y: kiln.sum(pair(x, y, a=0.5)[1]))(*values)
            np.testing.assert_array_equal(alone.numpy(), values[1])
        self.assertEqual(kiln.grad(lambda x: kiln.sum(squares()(x, c=1)))(np.ones((0, 2), 'f')).shape,
                         (0, 2))

    def test_second_derivatives(self):
        x = np.array([-1, 2, 3], 'f')
        square = squares()
        first = kiln.grad(lambda x: kiln.sum(square(x, c=1) * x))
        second = kiln.grad(lambda x: kiln.sum(first(x)))
        np.testing.assert_allclose(first(x).numpy(), 3 * x * x + 1, 1e-6)
        np.testing.assert_allclose(second(x).numpy(), 6 * x, 1e-6)
        back = kiln.kernel('const int i = get_global_id(0);\ny[i] = 2 * x[i] * g[i];', 'x g', 'y',
                           name='back')
        rough = squares(gradient=lambda inputs, outputs, flowed, c: back(inputs[0], flowed[0]))
        slope = kiln.grad(lambda x: kiln.sum(rough(x, c=1)))
        np.testing.assert_array_equal(slope(x).numpy(), 2 * x)
        with self.assertRaisesRegex(kiln.Error, 'through back, which has no derivative'):
            kiln.grad(lambda x: kiln.sum(slope(x)))(x)

    def test_scalars_and_what_is_around(self):
        """Each call's scalars, a tensor from outside, and a gradient amid the gradient."""
        scale = kiln.tensor(np.array([1, 10], 'f')) * 2

        def gradient(inputs, outputs, flowed, n):
            inner = kiln.grad(lambda x: kiln.sum(x * x))(inputs[0])
            return [flowed[0] * scale * n + 0 * inner, None]
        times = kiln.kernel('const int i = get_global_id(0);\nz[i] = n * x[i];', 'x y', 'z',
                            scalars={'n': 'i32'}, name='times', gradient=gradient)
        x = np.ones(2, 'f')
        made = kiln.grad(lambda x, y: kiln.sum(times(x, y, n=3) + times(times(x, y, n=5), y, n=7)),
                         (0, 1))(x, x)
        two = np.array([2, 20])
        np.testing.assert_array_equal(made[0].numpy(), 3 * two + 35 * two * two)
        np.testing.assert_array_equal(made[1].numpy(), [0, 0])
        for n in range(200):  # more than are kept
            made = kiln.grad(lambda x: kiln.sum(times(x, x, n=n)))(x)
            np.testing.assert_array_equal(made.numpy(), n * two)

    def test_recorded_functions(self):
        square = squares()

        @kiln.function
        def slope(x, w):
            return kiln.value_and_grad(lambda x: kiln.sum(square(x, c=1) * w))(x)
        for k in range(3):
            x, w = np.full(4, k, 'f'), np.arange(4, dtype='f')
            value, gradient = slope(x, w)
            np.testing.assert_allclose(gradient.numpy(), 2 * x * w)
            np.testing.assert_allclose(value.numpy(), np.sum((x * x + 1) * w))
        self.assertEqual(slope.recordings, 1)
        with kiln.batch() as b:
            wanted = b.read(kiln.grad(lambda x: kiln.sum(square(x, c=1)))(x))
        np.testing.assert_array_equal(wanted.numpy(), 2 * x)

    def test_what_is_raised(self):
        class Mine(BaseException):
            pass

        def stop(*given, **named):
            raise Mine('of mine')
        x = np.ones(3, 'f')
        unknown = kiln.kernel('y[0] = x[0];', gradient=lambda i, o, g: kiln.reshape(g[0], (5,)))
        for gradient, kind, words in (
                (stop, Mine, 'of mine'),
                (lambda i, o, g, c: [g[0], g[0]], TypeError, 'gives 2 tensors for 1 inputs'),
                (lambda i, o, g, c: kiln.sum(g[0]), kiln.Error,
                 r'squares: the gradient of input 0 is f32\[\], and .* \[3\]'),
                (lambda i, o, g, c: kiln.reshape(g[0], (5,)), kiln.Error, 'reshape'),
                (lambda i, o, g, c: g[0].numpy(), kiln.Error, 'no value yet')):
            with self.assertRaisesRegex(kind, words):
                kiln.grad(lambda x: kiln.sum(squares(gradient=gradient)(x, c=1)))(x)
            # The thread's batch goes on.
            np.testing.assert_array_equal((kiln.tensor(x) + 1).numpy(), x + 1)
        with self.assertRaises(Mine):
            kiln.function(kiln.grad(lambda x: kiln.sum(squares(gradient=stop)(x, c=1))))(x)
        with self.assertRaisesRegex(kiln.Error, 'reshape'):
            kiln.grad(lambda x: kiln.sum(unknown(x)))(x)

    def test_host(self):
        seen = []

        def host(x, c):
            seen.append((x.dtype, c))
            return x * x + c
        with kiln.Context(validate=1) as context:
            x = kiln.tensor(np.array([1, 2, 3], 'f'), context=context)
            self.assertEqual((squares(host=host)(x, c=0.1) * 2).numpy().shape, (3,))
            self.assertEqual(seen[0], (np.float32, float(np.float32(0.1))))
            for wrong in (lambda x, c: x * x, lambda x, c: (x * x + c) * 1.01):
                with self.assertRaises(kiln.Error) as caught:
                    squares(host=wrong)(x, c=1).numpy()
                self.assertEqual(caught.exception.status, 'WRONG_RESULT')
            squares(host=lambda x, c: (x * x + c) * 1.01, tolerance=0.1)(x, c=1).numpy()
            for wrong, kind, words in ((lambda x, c: x[:2], ValueError, r'shape \[2\] .* of \[3\]'),
                                       (lambda x, c: (x, x), TypeError, '2 arrays for 1 outputs'),
                                       (lambda x, c: 1 // 0, ZeroDivisionError, 'zero')):
                with self.assertRaisesRegex(kind, words):
                    squares(host=wrong)(x, c=1).numpy()
            for dtype in ('f16', 'bf16', 'i64', 'u8', 'bool'):
                copy = kiln.kernel('const int i = get_global_id(0);\nSTORE(y, i, LOAD(x, i));',
                                   name='copy_' + dtype, host=lambda x: x)
                made = copy(kiln.cast(kiln.tensor(np.array([0, 1, 1], 'f'), context=context), dtype))
                np.testing.assert_array_equal(np.asarray(made.numpy(), 'f'), [0, 1, 1])

    def test_lifetimes(self):
        """Functions live as long as what may call them, and no longer."""
        x = np.arange(3, dtype='f')
        square = squares(gradient=lambda inputs, outputs, flowed, c: 2 * inputs[0] * flowed[0])
        functions = weakref.ref(square._functions)
        loss = kiln.sum(square(x, c=2))
        with kiln.Context(validate=1) as context:
            with kiln.batch(context) as b:
                kept = b.read(squares()(kiln.tensor(x, context=context), c=2))
            del square
            gc.collect()
            junk = [squares() for _ in range(20)]  # closures in the memory that would be free
            b.run()
            np.testing.assert_array_equal(kept.numpy(), x * x + 2)
            del junk
        self.assertIsNotNone(functions())
        self.assertEqual(loss.item(), 11)
        del loss
        gc.collect()
        self.assertIsNone(functions())

    def test_threads(self):
        square, errors = squares(), []

        def derive(k):
            try:
                for n in range(5):
                    x = np.full(4, k + n, 'f')
                    made = kiln.grad(lambda x: kiln.sum(square(x, c=k)))(x)
                    np.testing.assert_array_equal(made.numpy(), 2 * x)
            except BaseException as error:
                errors.append(error)
        threads = [threading.Thread(target=derive, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])


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
        for text, words in (('x +', 'column 4 of "x [+]": a name'), ('x.shape', 'missing before "."'),
                            ('__import__("os")', 'missing before """'),
                            ('x[0]', 'missing before "."'), ('open(x)', 'no function'),
                            ('lambda: x', 'missing before ":"'), ('"x"', 'missing before'),
                            ('1 < x < 2', 'comparison'), ('x + 9 ** 9 ** 9', 'beyond 2.53'),
                            ('x + 1 // 0', 'divided by 0'), ('a\0b', 'NUL')):
            with self.assertRaisesRegex(ValueError, words):
                kiln.elementwise(text)
        with self.assertRaisesRegex(ValueError, 'y is none of the inputs'):
            kiln.elementwise('x + y', 'x')
        with self.assertRaisesRegex(TypeError, 'is of x, y'):
            kiln.elementwise('x + y')(np.ones(1, 'f'))
        with self.assertRaisesRegex(kiln.Error, r'column 3, add: shapes \[2\] and \[3\]'):
            kiln.elementwise('x + y')(np.ones(2, 'f'), np.ones(3, 'f'))

    def test_types(self):
        """Operands meet as those of the operators do."""
        made = {name: kiln.tensor(np.array([0, 1, 5]), name) for name in
                ('f32', 'f16', 'i64', 'i32', 'u8', 'i8', 'bool')}
        pairs = []
        for text in ('x + y', 'x / y', 'x // y', 'x % y', 'x ** 2', 'x < y', 'x * 2', 'x * 0.5',
                     'x if x else y', 'x == y', '-x'):
            function = kiln.elementwise(text, 'x y')
            for x in made.values():
                for y in made.values():
                    wanted = kiln.where(x, x, y) if 'if' in text else eval(text)
                    got = function(x, y)
                    self.assertEqual(got.dtype, wanted.dtype, f'{text}: {x.dtype} {y.dtype}')
                    if x is y:
                        pairs.append((got, wanted))
        kiln.evaluate(*(made for pair in pairs for made in pair))
        for got, wanted in pairs:
            np.testing.assert_array_equal(got.numpy(), wanted.numpy())
        for number in (2, 2.5, True, np.float32(3)):
            self.assertEqual(kiln.elementwise('x + y')(made['i32'], number).dtype,
                             (made['i32'] + number).dtype)


if __name__ == '__main__':
    unittest.main()
