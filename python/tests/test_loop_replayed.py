# SPDX-License-Identifier: Apache-2.0
"""Loops whose steps are several kernels and many, so that one is planned and run again and again: beside
numpy in float64."""
import os
import re
import unittest
import unittest.mock

import numpy as np

import kiln

SIZE = 23


def setUpModule():
    # tests/record/test_replay.c has such kernels optimised: here their order and number have to be right.
    flags = {'POCL_EXTRA_BUILD_FLAGS': os.environ.get('POCL_EXTRA_BUILD_FLAGS', '-cl-opt-disable')}
    cheap = unittest.mock.patch.dict(os.environ, flags)
    cheap.start()
    unittest.addModuleCleanup(cheap.stop)


def random(*shape, seed=1):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def definite():
    """A matrix with eigenvalues from 1 to about 5."""
    a = random(SIZE, SIZE)
    return (a @ a.T / SIZE + np.eye(SIZE)).astype(np.float32)


class Replayed(unittest.TestCase):
    def replayed(self, make, steps):
        """What `make` records in a batch, of which a part runs so often."""
        with kiln.batch() as batch:
            made = [batch.read(x) for x in make()]
            said = batch.explain()
        parts = re.findall('a part that runs ([0-9]+) times(?:, ([0-9]+) steps each)?', said)
        taken = [int(times) * int(each or 1) for times, each in parts]
        # Steps that are no whole stretch run one by one.
        self.assertTrue(steps in taken or steps in map(sum, zip(taken, taken[1:])), f'it is not replayed: {parts}')
        return made


class Steps(Replayed):
    def test_states_of_several_kernels(self):
        """heat that flows in two rooms, with their means: neighbours, products and reductions"""
        w = (random(6, 6) * 0.1).astype(np.float32)

        def step(m, i, s):
            a, b, mean = s
            flow = m.roll(a, 1, axis=0) + m.roll(a, -1, axis=0) - 2 * a
            after = a + 0.25 * flow + (b @ w) * 0.125 - mean
            return after, 0.5 * b + 0.25 * m.tanh(a - b) + 0.001 * i, m.mean(after) * 0.5

        a, b, steps = random(4, 6), random(4, 6, seed=2), 1009
        found = self.replayed(lambda: kiln.loop(steps, lambda i, s: step(kiln, i, s), (a, b, 0.25)), steps)
        expected = a.astype(float), b.astype(float), 0.25
        for i in range(steps):
            expected = step(np, i, expected)
        for y, wanted in zip(found, expected):
            np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-4, atol=1e-4)

    def test_scan(self):
        """a recurrent layer of 1,201 steps, there and back, and what each step leaves"""
        steps = 1201
        w, r, xs = random(5, 4) * 0.3, random(4, 4) * 0.3, random(steps, 3, 5)

        def step(m, h, x):
            z = h @ r + x @ w
            z = z - m.mean(z, axis=1, keepdims=True)
            h = m.tanh(z)
            return h, m.sum(h * h, axis=1)
        for reverse in False, True:
            h, left = self.replayed(lambda reverse=reverse: kiln.scan(
                lambda h, x: step(kiln, h, x), np.zeros((3, 4), 'f'), xs, reverse=reverse), steps)
            wanted, sums = np.zeros((3, 4)), np.zeros((steps, 3))
            for i in range(steps)[::-1 if reverse else 1]:
                wanted, sums[i] = step(np, wanted, xs[i].astype(float))
            np.testing.assert_allclose(h.numpy(), wanted, atol=1e-5)
            np.testing.assert_allclose(left.numpy(), sums, atol=1e-5)

    def test_in_a_function(self):
        """one recording, other arrays, more than once"""
        w = definite() / 5

        @kiln.function
        def f(x, shift):
            return kiln.loop(2000, lambda i, x: kiln.cumsum(kiln.tanh(x @ w - shift), axis=1) * 0.125, x)
        for seed in 1, 2, 1:
            x, shift = random(2, SIZE, seed=seed), random(SIZE, seed=seed)
            wanted = x.astype(float)
            for _ in range(2000):
                wanted = np.cumsum(np.tanh(wanted @ w - shift), axis=1) * 0.125
            np.testing.assert_allclose(f(x, shift).numpy(), wanted, atol=1e-4)
        self.assertEqual(f.recordings, 1)

    def test_a_loop_in_each_step(self):
        """3 steps of sums in each of 700"""
        x = random(2, 8)

        def settled(m, loop, x):
            return loop(700, lambda i, x: 0.5 * loop(3, lambda j, y: m.cumsum(y, axis=1) * 0.25 + 0.01 * j, x) +
                        0.001 * i, x)

        def one_by_one(n, step, x):
            for i in range(n):
                x = step(i, x)
            return x
        found, = self.replayed(lambda: [settled(kiln, kiln.loop, x)], 700)
        np.testing.assert_allclose(found.numpy(), settled(np, one_by_one, x.astype(float)), rtol=1e-5)


class Ends(Replayed):
    def test_at_each_number(self):
        """exact: before the first step, beside those before which the host looks, never"""
        start, places = np.arange(SIZE, dtype=np.float32), np.random.default_rng(3).permutation(SIZE)
        table = np.eye(SIZE, dtype=np.float32)[places]

        def step(s):
            return s[0] @ table + 1, s[1] + 1

        @kiln.function
        def f(limit):
            return kiln.loop(1500, lambda i, s: step(s), (start, 0), until=lambda s: kiln.max(s[0]) >= limit)
        for taken in 0, 1, 2, 3, 4, 5, 63, 64, 65, 66, 129, 1000, 1499, 1500, 1501:
            x, count = f(np.float32(SIZE - 1 + taken))
            wanted = start.astype(float)
            for _ in range(min(taken, 1500)):
                wanted = wanted @ table + 1
            self.assertEqual(count.item(), min(taken, 1500))
            np.testing.assert_array_equal(x.numpy(), wanted)
        self.assertEqual(f.recordings, 1)

    def test_conjugate_gradients(self):
        """a system of equations, until what is left is small: about as many steps as numpy's"""
        a, b = definite(), random(SIZE)

        def step(s):
            x, r, p, square, taken = s
            q = a @ p
            share = square / (p @ q)
            x, r = x + share * p, r - share * q
            after = r @ r
            return x, r, r + after / square * p, after, taken + 1

        def solved():
            return kiln.while_loop(lambda s: s[3] > 1e-6, step, (np.zeros(SIZE, 'f'), b, b, b @ b, 0), 3000)
        x, r, _, square, taken = self.replayed(solved, 3000)
        s = np.zeros(SIZE), b.astype(float), b.astype(float), float(b @ b), 0
        while s[3] > 1e-6:
            s = step(s)
        self.assertLess(abs(taken.item() - s[4]), 3)
        self.assertLessEqual(square.item(), 1e-6)
        np.testing.assert_allclose(x.numpy(), np.linalg.solve(a.astype(float), b), atol=1e-3)
        np.testing.assert_allclose(r.numpy(), b - a.astype(float) @ x.numpy(), atol=1e-5)

    def test_each_element_by_itself(self):
        """of the state's shape, NaN never: steps mix an array of elements that go on and that do not"""
        x = np.array([[1, 2, 3], [100, np.nan, 0.5]], 'f')

        def step(m, s):
            return s[0] * 2 - m.cumsum(0 * s[1], axis=1), s[1] + 1

        y, taken = kiln.loop(3000, lambda i, s: step(kiln, s), (x, np.zeros((2, 3), 'f')), until=lambda s: s[0] > 10)
        np.testing.assert_array_equal(taken.numpy(), [[4, 3, 2], [0, 3000, 5]])
        np.testing.assert_array_equal(y.numpy(), [[16, 16, 12], [100, np.nan, 16]])


class Gradients(Replayed):
    def test_finite_differences(self):
        """by the start, a matrix and what the steps get, of what they leave alone"""
        steps = 600
        given = [random(2, 3), random(3, 3) * 0.4, random(steps, 3)]

        def step(m, h, x, w):
            z = m.tanh(h @ w + x)
            return z - 0.25 * m.mean(z, axis=1, keepdims=True)

        def loss(m, scanned, h, w, xs):
            left = scanned(lambda h, x: (step(m, h, x, w),) * 2, h, xs)[1]
            return m.sum(left * left * left)

        def one_by_one(step, h, xs):
            left = []
            for x in xs:
                h, y = step(h, x)
                left.append(y)
            return h, np.stack(left)

        def replayed(*given):
            return loss(kiln, kiln.scan, *given)
        self.replayed(lambda: [replayed(*given)], steps)
        exact = [x.astype(float) for x in given]
        places = [(0, 0), (1, 2)], [(0, 1), (2, 2)], [(0, 1), (350, 0), (steps - 1, 2)]
        for k, gradient in enumerate(kiln.grad(replayed, (0, 1, 2))(*given)):
            for place in places[k]:
                ends = []
                for by in 1e-5, -1e-5:
                    moved = [x.copy() for x in exact]
                    moved[k][place] += by
                    ends.append(loss(np, one_by_one, *moved))
                slope = (ends[0] - ends[1]) / 2e-5
                self.assertAlmostEqual(gradient.numpy()[place], slope, delta=1e-3 * max(1, abs(slope)), msg=(k, place))

    def test_ended(self):
        """steps beyond the end have no part in it"""
        w = random(3, 3) * 0.2

        def f(x, w):
            y, _ = kiln.loop(450, lambda i, s: (kiln.cumsum(s[0], axis=0) + s[0] @ w, s[1] + 1), (x, 0),
                             until=lambda s: s[1] >= 5)
            return kiln.sum(y)

        def exact(x, w):
            for _ in range(5):
                x = np.cumsum(x, axis=0) + x @ w
            return x.sum()
        x = random(2, 3)
        for k, gradient in enumerate(kiln.grad(f, (0, 1))(x, w)):
            for place in np.ndindex(gradient.shape):
                ends = []
                for by in 1e-4, -1e-4:
                    moved = [x.astype(float), w.astype(float)]
                    moved[k][place] += by
                    ends.append(exact(*moved))
                self.assertAlmostEqual(gradient.numpy()[place], (ends[0] - ends[1]) / 2e-4, delta=1e-2)


if __name__ == '__main__':
    unittest.main()
