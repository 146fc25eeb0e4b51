# SPDX-License-Identifier: Apache-2.0
"""Everything asked for twice: one value as several results, as an argument and a result, read and
kept in buffers, by every way of asking."""
import os
import random
import unittest

import numpy as np

import kiln

SHAPE = (3, 4)
X = np.arange(12, dtype=np.float32).reshape(SHAPE)
COUNT = int(os.environ.get('KILN_TWICE_COUNT', 12))
SEED = int(os.environ.get('KILN_TWICE_SEED', 1))

# What a value is made of, for a tensor and for an array; some are the same tensor to the library.
WAYS = [
    lambda x, y: x,
    lambda x, y: y,
    lambda x, y: x * 2,
    lambda x, y: (x * 2).reshape(SHAPE),
    lambda x, y: (x * 2).astype('f4' if isinstance(x, np.ndarray) else 'f32'),
    lambda x, y: (x * 2)[:],
    lambda x, y: (x * 2).reshape((12,)),
    lambda x, y: (x + y).T,
    lambda x, y: (x + y).sum(1),
]


def pick(seed):
    """Some ways, each of them several times, in an order of its own."""
    chance = random.Random(seed)
    few = [chance.choice(WAYS) for _ in range(3)]
    return [chance.choice(few) for _ in range(chance.randrange(2, 7))]


def arrays(seed):
    y = np.random.RandomState(seed).randint(-9, 9, SHAPE).astype(np.float32)
    return X + seed % 7, y


class Twice(unittest.TestCase):
    def each(self):
        """The ways of each seed, arguments, and the results that are right."""
        for seed in range(SEED, SEED + COUNT):
            ways = pick(seed)
            x, y = arrays(seed)
            with self.subTest(seed=seed):
                yield seed, ways, x, y, [way(x, y) for way in ways]

    def expect(self, found, wanted):
        self.assertEqual(len(found), len(wanted))
        for f, w in zip(found, wanted):
            np.testing.assert_array_equal(np.asarray(f), w)

    def test_evaluated(self):
        """values that are one come as several arrays"""
        for _, ways, x, y, wanted in self.each():
            a, b = kiln.tensor(x), kiln.tensor(y)
            made = [way(a, b) for way in ways]
            kiln.evaluate(*made, *made)
            self.expect(made, wanted)
            self.expect([(m + 0).numpy() for m in made], wanted)

    def test_functions(self):
        """a function's results are moved, each by itself, in every call"""
        for seed, ways, x, y, wanted in self.each():
            made = kiln.function(lambda a, b: [way(a, b) for way in ways])
            first = made(x, y)
            self.expect(first, wanted)
            u, v = arrays(seed + 1)
            again = [way(u, v) for way in ways]
            self.expect(made(u, v), again)
            self.expect(made(kiln.tensor(u), v), again)
            self.expect(first, wanted)
            self.expect(made(u, u), [way(u, u) for way in ways])

    def test_batches(self):
        """what a batch reads twice, keeps in buffers and is asked for later, is all there"""
        for seed, ways, x, y, wanted in self.each():
            out = [np.full(np.shape(w), np.nan, np.float32) for w in wanted]
            u, v = x.copy(), y.copy()
            buffers = [kiln.Buffer.zeros(np.shape(w)) for w in wanted]
            with kiln.batch() as b:
                a, c = kiln.tensor(u), kiln.tensor(v)
                made = [way(a, c) for way in ways]
                first = [b.read(m) for m in made[::2]]
                b.cost()
                second = [b.read(m, out=o) for m, o in zip(made, out)]
                for buffer, m in zip(buffers, made):
                    buffer[...] = m
                b.explain()
                third = [b.read(m) for m in made]
            for found in first, third, second, out, buffers:
                self.expect(found, wanted[::2] if found is first else wanted)
            u[...], v[...] = arrays(seed + 1)
            b.run()
            wanted = [way(u, v) for way in ways]
            for found in third, out, buffers:
                self.expect(found, wanted)

    def test_buffers(self):
        """a buffer's content is read, changed, read and changed again in one batch"""
        for _, ways, x, y, _ in self.each():
            w = kiln.Buffer(x)
            with kiln.batch() as b:
                old = [b.read(way(w.tensor(), kiln.tensor(y))) for way in ways]
                b.cost()
                w[...] = w * 2
                b.cost()
                middle = [b.read(way(w.tensor(), kiln.tensor(y))) for way in ways]
                w[...] = w + 1
            new = [way(w.tensor(), kiln.tensor(y)) for way in ways]
            self.expect(old, [way(x, y) for way in ways])
            self.expect(middle, [way(x * 2, y) for way in ways])
            self.expect(new, [way(x * 2 + 1, y) for way in ways])

    def test_executors(self):
        """an executor's outputs that are one value"""
        def by_rows(inputs):
            doubled = inputs[0] * 2
            return doubled, inputs[0], doubled.reshape(doubled.shape), doubled, inputs[0]
        with kiln.Executor(by_rows, [kiln.Row((4,))], outputs=5) as executor:
            futures = [executor.submit(X[i % 3:i % 3 + 1]) for i in range(20)]
            for i, future in enumerate(futures):
                row = X[i % 3:i % 3 + 1]
                self.expect(future.result(), [row * 2, row, row * 2, row * 2, row])


if __name__ == '__main__':
    unittest.main()
