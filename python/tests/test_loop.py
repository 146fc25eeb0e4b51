# SPDX-License-Identifier: Apache-2.0
"""Loops beside numpy and finite differences in float64, and beside the same steps one by one."""
import unittest
from collections import namedtuple

import numpy as np

import kiln

X = np.linspace(-2, 2, 37).astype('f')
W = np.linspace(0.5, 1.5, 37).astype('f')


def relaxed(tanh, x, w, i):
    return x - 0.1 * tanh(x) * w + 0.01 * i


class Loops(unittest.TestCase):
    def test_steps(self):
        for n in (0, 1, 7, 101):
            expected = X.astype(float)
            for i in range(n):
                expected = relaxed(np.tanh, expected, W, i)
            found = kiln.loop(n, lambda i, x: relaxed(kiln.tanh, x, W, i), X)
            np.testing.assert_allclose(found.numpy(), expected, atol=1e-4)

    def test_structures(self):
        State = namedtuple('State', 'a b')
        a, b = kiln.loop(5, lambda i, s: State(s.a + s.b['n'], {'n': s.b['n'] + 1, 'none': None}),
                         State(X, {'n': np.int32(1), 'none': None}))
        np.testing.assert_allclose(a.numpy(), X + 15, rtol=1e-6)
        self.assertEqual(b['n'].item(), 6)
        self.assertIsNone(b['none'])

    def test_number_after_a_step_has_the_states_type(self):
        self.assertEqual(kiln.loop(3, lambda i, s: (s[0] + s[1], 2), (X, 1.0))[1].item(), 2)

    def test_narrow(self):
        for dtype in ('f16', 'bf16'):
            x = kiln.tensor(X, dtype)
            found = kiln.loop(4, lambda i, x: (x * 1.1).astype(dtype), x)
            for _ in range(4):
                x = (x * 1.1).astype(dtype)
            np.testing.assert_array_equal(found.numpy(), x.numpy())

    def test_nested(self):
        found = kiln.loop(3, lambda i, x: kiln.loop(5, lambda j, y: y * 0.5 + i + j, x), X)
        expected = X.astype(float)
        for i in range(3):
            for j in range(5):
                expected = expected * 0.5 + i + j
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)

    def test_in_a_function(self):
        f = kiln.function(lambda x, w: kiln.loop(9, lambda i, x: relaxed(kiln.tanh, x, w, i), x))
        for x in (X, X * 2):
            expected = x
            for i in range(9):
                expected = relaxed(np.tanh, expected, W, np.float32(i))
            np.testing.assert_allclose(f(x, W).numpy(), expected, atol=1e-5)
        self.assertEqual(f.recordings, 1)

    def test_neighbours(self):
        u = np.arange(48, dtype='f').reshape(6, 8) % 7
        expected = u.astype(float)
        for _ in range(5):
            expected = expected + 0.1 * (np.roll(expected, 1, 0) + np.roll(expected, -1, 1)
                                         - 2 * expected)
        found = kiln.loop(5, lambda i, u: u + 0.1 * (
            kiln.roll(u, 1, axis=0) + kiln.roll(u, -1, axis=1) - 2 * u), u)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)

    def test_row_beside_all(self):
        row = np.arange(4, dtype='f')
        found = kiln.loop(6, lambda i, s: s * 0.5 + row, np.ones((3, 4), 'f'))
        expected = np.ones((3, 4))
        for _ in range(6):
            expected = expected * 0.5 + row
        np.testing.assert_array_equal(found.numpy(), expected)


class Ends(unittest.TestCase):
    def test_each_element_by_itself(self):
        x = np.array([1, 2, 3, 100, np.nan], 'f')
        _, taken = kiln.loop(20, lambda i, s: (s[0] * 2, s[1] + 1), (x, np.zeros(5, 'i')),
                             until=lambda s: s[0] > 10)
        np.testing.assert_array_equal(taken.numpy(), [4, 3, 2, 0, 20])

    def test_while(self):
        def halve(limit):
            return kiln.while_loop(lambda s: s[0] > 1, lambda s: (s[0] / 2, s[1] + 1),
                                   (100.0, 0), limit)[1].item()
        self.assertEqual([halve(n) for n in (0, 3, 7, 1000)], [0, 3, 7, 7])

    def test_while_a_reduction_holds(self):
        x, taken = kiln.while_loop(lambda s: kiln.max(s[0]) > 1, lambda s: (s[0] / 2, s[1] + 1),
                                   (np.array([3, 9, 5], 'f'), 0), 12)
        self.assertEqual(taken.item(), 4)
        np.testing.assert_array_equal(x.numpy(), np.array([3, 9, 5], 'f') / 16)


class Scans(unittest.TestCase):
    def test_sums(self):
        xs = np.arange(12, dtype='f').reshape(4, 3)
        last, sums = kiln.scan(lambda s, x: (s + x, {'sum': s + x}), np.zeros(3, 'f'), xs)
        np.testing.assert_array_equal(last.numpy(), xs.sum(0))
        np.testing.assert_array_equal(sums['sum'].numpy(), xs.cumsum(0))
        _, sums = kiln.scan(lambda s, x: (s + x, s + x), np.zeros(3, 'f'), xs, reverse=True)
        np.testing.assert_array_equal(sums.numpy(), xs[::-1].cumsum(0)[::-1])

    def test_without_xs(self):
        last, powers = kiln.scan(lambda s, _: (s * 2, s), 1.0, length=5)
        self.assertEqual((last.item(), powers.tolist()), (32, [1, 2, 4, 8, 16]))
        self.assertEqual(kiln.scan(lambda s, _: (s, s), X, length=0)[1].shape, (0, 37))

    def test_products(self):
        w = np.full((3, 3), 0.25, 'f')
        xs = np.arange(6, dtype='f').reshape(2, 3)
        last, _ = kiln.scan(lambda s, x: (s @ w + x, None), np.ones((1, 3), 'f'), xs)
        np.testing.assert_allclose(last.numpy(), (np.ones((1, 3)) @ w + xs[0]) @ w + xs[1])


def loss_of_loop(x, w, k):
    s = kiln.loop(7, lambda i, s: (relaxed(kiln.tanh, s[0], w, i) + 0.1 * s[1], s[1] * k), (x, 2.0))
    return kiln.sum(s[0] * s[0]) + s[1]


def loss_of_steps(m, x, w, k):
    y = 2.0
    for i in range(7):
        x, y = relaxed(m.tanh, x, w, i) + 0.1 * y, y * k
    return m.sum(x * x) + y


class Gradients(unittest.TestCase):
    def test_finite_differences(self):
        found = kiln.grad(loss_of_loop, (0, 1, 2))(X, W, np.float32(0.9))
        given = [X.astype(float), W.astype(float), np.array(0.9)]
        for k, gradient in enumerate(found):
            flat = gradient.numpy().reshape(-1)
            for i in range(given[k].size):
                ends = []
                for step in (1e-4, -1e-4):
                    moved = [g.copy() for g in given]
                    moved[k].reshape(-1)[i] += step
                    ends.append(loss_of_steps(np, *moved))
                self.assertAlmostEqual(flat[i], (ends[0] - ends[1]) / 2e-4, delta=2e-4)

    def test_of_a_loop_in_a_loop(self):
        # Of the inner loop's results one is used, and what the other is made of as well.
        for used in (0, 1):
            def loss(x, steps):
                def outer(i, x):
                    y = x * 2
                    pair = (x, y)
                    if steps is np:
                        for _ in range(3):
                            pair = (pair[0] * 0.9 + pair[1] * 0.1, pair[1] * pair[0])
                    else:
                        pair = kiln.loop(3, lambda j, p: (p[0] * 0.9 + p[1] * 0.1, p[1] * p[0]), pair)
                    return pair[used] * 0.1 + y * 0.01
                if steps is np:
                    return outer(1, outer(0, x)).sum()
                return kiln.sum(kiln.loop(2, outer, x))
            found = kiln.grad(lambda x: loss(x, kiln))(X).numpy()
            x = X.astype(float)
            for at in np.ndindex(x.shape):
                step = np.zeros_like(x)
                step[at] = 1e-5
                expected = (loss(x + step, np) - loss(x - step, np)) / 2e-5
                self.assertAlmostEqual(found[at], expected, delta=1e-4 * max(1, abs(expected)))

    def test_same_as_of_the_steps(self):
        for rev in (False, True):
            def scanned(s, xs, k, rev=rev):
                last, left = kiln.scan(lambda s, x: (kiln.sin(s) * k + x, s * x), s, xs, reverse=rev)
                return kiln.sum(last * last) + kiln.sum(left * left * left)

            def one_by_one(s, xs, k, rev=rev):
                left = [None] * 6
                for i in (range(5, -1, -1) if rev else range(6)):
                    left[i], s = s * xs[i], kiln.sin(s) * k + xs[i]
                left = kiln.stack(left)
                return kiln.sum(s * s) + kiln.sum(left * left * left)
            given = X[:5], np.sin(np.arange(30, dtype='f')).reshape(6, 5), np.full(5, 0.7, 'f')
            for a, b in zip(kiln.grad(scanned, (0, 1, 2))(*given),
                            kiln.grad(one_by_one, (0, 1, 2))(*map(kiln.tensor, given))):
                np.testing.assert_array_equal(a.numpy(), b.numpy())

    def test_elements_of_one_number(self):
        def loss(s, xs):
            last, left = kiln.scan(lambda s, x: (s * x, x * x), s, xs)
            return kiln.sum(last) + kiln.sum(left)
        xs = np.array([0.5, 2, 3], 'f')
        a, b = kiln.grad(loss, (0, 1))(X, xs)
        np.testing.assert_allclose(a.numpy(), np.full(37, 3), rtol=1e-6)
        np.testing.assert_allclose(b.numpy(), X.sum(dtype=float) * 3 / xs + 2 * xs, atol=1e-4)

    def test_ended(self):
        f = kiln.grad(lambda x: kiln.sum(kiln.loop(20, lambda i, x: x * 2, x,
                                                   until=lambda x: x > 10)))
        np.testing.assert_array_equal(f(np.array([1, 2, 3, 100], 'f')).numpy(), [16, 8, 4, 1])

    def test_of_a_gradient(self):
        def cubed(x):
            return kiln.sum(kiln.loop(2, lambda i, y: y * x, x))
        second = kiln.grad(lambda x: kiln.sum(kiln.grad(cubed)(x)))
        np.testing.assert_allclose(second(X).numpy(), 6 * X, atol=1e-5)


class Refused(unittest.TestCase):
    def test_sentences(self):
        for step, sentence in ((lambda i, x: kiln.sum(x), r'state 0 has shape \[37\] at first and \[\]'),
                               (lambda i, x: x.astype('i32'), 'state 0 is f32 at first and i32'),
                               (lambda i, x: (x, x), 'at first and'),
                               (lambda i, x: x if float(x[0]) else x, 'asked for')):
            with self.assertRaisesRegex((kiln.Error, TypeError), sentence):
                kiln.loop(3, step, X)
        with self.assertRaisesRegex(ValueError, 'as many steps as xs'):
            kiln.scan(lambda s, x: (s, s), X, [np.ones(3, 'f'), np.ones(4, 'f')])
        with self.assertRaisesRegex(ValueError, '-1 steps'):
            kiln.loop(-1, lambda i, x: x, X)
        with self.assertRaisesRegex(kiln.Error, 'takes a mask'):
            kiln.loop(3, lambda i, x: x, X, until=lambda x: x)


if __name__ == '__main__':
    unittest.main()
