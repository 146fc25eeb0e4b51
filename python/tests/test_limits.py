# SPDX-License-Identifier: Apache-2.0
"""What C could not take as it is, is an error: numbers beyond its types, texts with a NUL in them."""
import unittest

import numpy as np

import kiln
from kiln import _library, _table
from kiln._library import lib, struct

X = np.arange(12, dtype=np.float32).reshape(3, 4)
BEYOND = 2 ** 64 + 3


def parameters():
    """(function, number of the parameter, its type, parameters) of each that is a number or a text."""
    for name, (_, kinds) in _table.FUNCTIONS.items():
        for i, kind in enumerate(kinds):
            if kind == 'const char *' or _library._ctype(kind) in (
                    _library._SIMPLE[k] for k in _library._RANGES):
                yield name, i, kind, kinds


class Limits(unittest.TestCase):
    def test_every_parameter(self):
        """every parameter of every function refuses what its type does not hold, before C sees it"""
        found = 0
        for name, i, kind, kinds in parameters():
            given = [0] * len(kinds)
            if kind == 'const char *':
                given[i], error = b'a\0b', ValueError
            else:
                given[i], error = BEYOND, OverflowError
            with self.assertRaisesRegex(error, '^' + name + ': '):
                getattr(lib, name)(*given)
            if kind.startswith(('size_t', 'u')):
                given[i] = -1
                with self.assertRaisesRegex(OverflowError, f'^{name}: -1 is beyond {kind}'):
                    getattr(lib, name)(*given)
            found += 1
        self.assertGreater(found, 150)

    def test_every_field(self):
        """and so do the fields of structures"""
        found = 0
        for name, fields in _table.STRUCTS.items():
            for kind, field, length in fields:
                if kind not in _library._RANGES and kind != 'const char *':
                    continue
                value, error = (b'a\0b', ValueError) if '*' in kind else (BEYOND, OverflowError)
                with self.assertRaisesRegex(error, '^' + field + ': '):
                    setattr(struct(name)(), field, [value] if length else value)
                found += 1
        self.assertGreater(found, 100)

    def test_numbers(self):
        """axes, sizes and counts as functions of the package take them"""
        t = kiln.tensor(X)
        for call in (lambda: kiln.zeros((BEYOND,)), lambda: kiln.softmax(X, 2 ** 32 + 1),
                     lambda: t.sum(axis=2 ** 32), lambda: t.reshape((BEYOND, 4)),
                     lambda: t.cumsum(2 ** 32), lambda: kiln.topk(X, 2 ** 64 + 2),
                     lambda: t.broadcast_to((BEYOND, 3, 4)), lambda: kiln.Buffer.zeros((BEYOND,)),
                     lambda: kiln.concat([X, X], 2 ** 32), lambda: kiln.split(X, 2 ** 64 + 2, 0),
                     lambda: kiln.pad(X, [(BEYOND, 0), (0, 0)]), lambda: t * 10 ** 400,
                     lambda: kiln.full((2,), 10 ** 400), lambda: kiln.Context(memory_limit=-1),
                     lambda: kiln.Context(memory_limit=BEYOND),
                     lambda: kiln.Executor(lambda x: x[0], [kiln.Row((8,))], max_batch=BEYOND),
                     lambda: kiln.Executor(lambda x: x[0], [kiln.Row((-8,))]),
                     lambda: kiln.Executor(lambda x: x[0], [kiln.Row((8,))], max_wait=-1),
                     lambda: kiln.conv2d(np.ones((1, 4, 4, 1)), np.ones((2, 2, 1, 1)),
                                         stride=2 ** 64 + 1)):
            with self.assertRaises(OverflowError):
                call()
        for call in (lambda: kiln.zeros((-1,)), lambda: kiln.pad(X, -1)):
            with self.assertRaises(ValueError):
                call()

    def test_texts(self):
        """names and paths"""
        b = kiln.Buffer(X)
        for call in (lambda: kiln.save('a\0b', {'a': b}), lambda: kiln.save('/tmp/a', {'a\0x': b}),
                     lambda: kiln.load('a\0b'), lambda: kiln.Context('cpu\0gpu'),
                     lambda: kiln.Context(cache_dir='a\0b'), lambda: b.tensor().named('a\0b'),
                     lambda: kiln.names('a\0b').__enter__(), lambda: kiln.einsum('ij\0->ij', b)):
            with self.assertRaisesRegex(ValueError, 'NUL'):
                call()

    def test_default_context(self):
        """only a context can be the default one"""
        for wrong in (5, 'cpu', kiln.Context):
            with self.assertRaisesRegex(TypeError, 'the default context is a kiln.Context or None'):
                kiln.set_default_context(wrong)
        kiln.default_context()

    def test_timeouts(self):
        """a time below 0 has passed; NaN is none"""
        with kiln.Executor(lambda x: x[0], [kiln.Row((8,))], min_batch=64, max_batch=64,
                           max_wait=600) as executor:
            future = executor.submit(X.reshape(-1, 4)[:2].reshape(1, 8))
            for passed in (-1, 0, -1e300):
                with self.assertRaises(TimeoutError):
                    future.result(passed)
            with self.assertRaises(ValueError):
                future.result(float('nan'))
            for wrong in (float('nan'), -1, 1e300, float('inf')):
                with self.assertRaises((ValueError, OverflowError)):
                    executor.submit(np.zeros((1, 8)), deadline=wrong)
            future.cancel()


if __name__ == '__main__':
    unittest.main()
