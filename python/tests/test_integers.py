# SPDX-License-Identifier: Apache-2.0
"""Every operation of integers, and every cast, beside numpy, at the ends of each type's range."""
import itertools
import operator
import unittest

import numpy as np

import kiln

TYPES = (np.uint8, np.int8, np.int32, np.int64)
MARKS = (2 ** 31, 2 ** 32, 2 ** 53, 2 ** 62, 46341, 3037000500)
FLOATS = np.array([0, -0.5, 1.9, -1.9, 127.9, 128, -129, 255.5, 256, -1, 2 ** 31, -2.0 ** 31, 3e9, -3e9,
                   2.0 ** 63, -2.0 ** 63, 1e30, -1e30, np.inf, -np.inf, np.nan], np.float32)


def ends(dtype):
    """What is at the ends of the range, and beside places where other types end."""
    info = np.iinfo(dtype)
    values = {info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 16}
    for mark in MARKS:
        values |= {sign * mark + step for sign in (1, -1) for step in (-1, 0, 1)}
    values |= {-1, -2, -7}
    return np.array(sorted(v for v in values if info.min <= v <= info.max), dtype)


def pairs(dtype):
    a, b = np.meshgrid(ends(dtype), ends(dtype))
    return a.ravel(), b.ravel()


def towards_zero(a, b):
    """What is left open in numpy is 0: quotients by 0."""
    safe = np.where(b == 0, 1, b)
    quotient = a // safe
    quotient = np.where((quotient * safe != a) & ((a < 0) != (safe < 0)), quotient + 1, quotient)
    return np.where(b == 0, 0, quotient).astype(a.dtype)


def shifted(a, b, right):
    bits = 8 * a.dtype.itemsize
    inside = (b >= 0) & (b < bits)
    by = np.where(inside, b, 0).astype(a.dtype)
    beyond = np.where(a < 0, -1, 0).astype(a.dtype) if right else np.zeros_like(a)
    return np.where(inside, a >> by if right else a << by, beyond)


def power(a, b):
    bits = 8 * a.dtype.itemsize
    out = []
    for x, y in zip(a.tolist(), b.tolist()):
        out.append(pow(x, y, 2 ** bits) if y >= 0 else 1 if x == 1 else (-1) ** (-y) if x == -1 else 0)
    return np.array(out, object).astype(np.uint64 if bits == 64 else np.int64).astype(a.dtype) \
        if bits < 64 else np.array([v - 2 ** 64 if v >= 2 ** 63 else v for v in out], np.int64)


BINARY = {
    'add': np.add, 'sub': np.subtract, 'mul': np.multiply, 'div': towards_zero,
    'maximum': np.maximum, 'minimum': np.minimum, 'equal': np.equal, 'not_equal': np.not_equal,
    'less': np.less, 'less_equal': np.less_equal, 'greater': np.greater,
    'greater_equal': np.greater_equal, 'logical_and': np.logical_and, 'logical_or': np.logical_or,
    'logical_xor': np.logical_xor, 'fmod': np.fmod, 'mod': np.mod, 'bit_and': np.bitwise_and,
    'bit_or': np.bitwise_or, 'bit_xor': np.bitwise_xor, 'pow': power,
    'shift_left': lambda a, b: shifted(a, b, False), 'shift_right': lambda a, b: shifted(a, b, True),
}
UNARY = {
    'neg': np.negative, 'abs': np.abs, 'square': np.square, 'sign': np.sign, 'floor': np.array,
    'ceil': np.array, 'round': np.array, 'trunc': np.array, 'bit_not': np.bitwise_not,
    'logical_not': np.logical_not, 'relu': lambda a: np.maximum(a, 0),
}


def saturated(values, dtype):
    info = np.iinfo(dtype)
    return np.array([0 if v != v else info.max if v >= info.max else info.min if v <= info.min
                     else int(v) for v in values.tolist()], dtype)


class Integers(unittest.TestCase):
    checked = 0

    def same(self, found, wanted, what):
        self.assertEqual(found.dtype, wanted.dtype, what)
        wrong = np.flatnonzero(found != wanted)
        self.assertEqual(wrong.size, 0, f'{what}: {found[wrong][:4]} is not {wanted[wrong][:4]}')
        Integers.checked += found.size

    def test_operations(self):
        """every operation of every integer type is numpy's, at the ends of its range"""
        with np.errstate(all='ignore'):
            for dtype in TYPES:
                a, b = pairs(dtype)
                x, y = kiln.tensor(a), kiln.tensor(b)
                made = {name: getattr(kiln, name)(x, y) for name in BINARY}
                made.update({name: getattr(kiln, name)(x) for name in UNARY})
                kiln.evaluate(*made.values())
                for name, tensor in made.items():
                    wanted = BINARY[name](a, b) if name in BINARY else UNARY[name](a)
                    self.same(tensor.numpy(), wanted, f'{name} of {dtype.__name__}')

    def test_casts(self):
        """integers that are cast wrap around; floats saturate, and NaN is 0"""
        for source, target in itertools.product(TYPES, TYPES):
            values = ends(source)
            self.same(kiln.cast(values, target).numpy(), values.astype(target),
                      f'{source.__name__} to {target.__name__}')
        for target in TYPES:
            self.same(kiln.cast(FLOATS, target).numpy(), saturated(FLOATS, target),
                      f'float32 to {target.__name__}')
        for source in TYPES:
            values = ends(source)
            self.same(kiln.cast(values, np.float32).numpy(), values.astype(np.float32),
                      f'{source.__name__} to float32')
            self.same(kiln.cast(values, bool).numpy(), values != 0, f'{source.__name__} to bool')

    def test_reductions(self):
        """sums and products are i64; what is chosen keeps its type"""
        with np.errstate(all='ignore'):
            for dtype in TYPES + (np.bool_,):
                values = np.tile(ends(dtype) if dtype != np.bool_ else [True, False, True], 37)
                x = kiln.tensor(values)
                for name in ('sum', 'product', 'cumsum'):
                    own = {'sum': np.sum, 'product': np.prod, 'cumsum': np.cumsum}[name]
                    wanted = np.atleast_1d(own(values, dtype=np.int64))
                    found = kiln.cumsum(x, 0) if name == 'cumsum' else getattr(kiln, name)(x)
                    self.same(np.atleast_1d(found.numpy()), wanted, f'{name} of {dtype.__name__}')
                if dtype == np.bool_:
                    continue
                for name in ('max', 'min', 'argmax', 'argmin'):
                    wanted = np.atleast_1d(getattr(np, name)(values))
                    found = np.atleast_1d(getattr(kiln, name)(x).numpy())
                    self.same(found, wanted.astype(found.dtype), f'{name} of {dtype.__name__}')
                order = kiln.argsort(x, 0, 0).numpy()
                self.same(order, np.argsort(values, kind='stable').astype(order.dtype), 'argsort')

    def test_pictures(self):
        """a white picture's sum is what it is"""
        self.assertEqual(int(kiln.tensor(np.full(9_000_000, 255, np.uint8)).sum().numpy()), 2295000000)
        self.assertEqual(int(kiln.tensor(np.full(4, 2 ** 30, np.int32)).sum().numpy()), 2 ** 32)

    def test_types_that_meet(self):
        """integers of several types meet as numpy's do, and numbers beyond 2^53 are exact"""
        x = kiln.tensor(np.int64([2 ** 60]))
        self.assertEqual((x + (2 ** 53 + 1)).numpy()[0], 2 ** 60 + 2 ** 53 + 1)
        for a, b, both in ((np.int8, np.int32, np.int32), (np.int32, np.int64, np.int64),
                           (np.uint8, np.int8, np.int32), (np.int64, np.float32, np.float32)):
            found = kiln.tensor(np.ones(3, a)) + kiln.tensor(np.ones(3, b))
            self.assertEqual(found.numpy().dtype, both)

    def test_indices(self):
        """negative indices count from the end; what is beyond picks nothing"""
        x = np.arange(1, 13, dtype=np.int32).reshape(3, 4)
        for dtype in (np.int8, np.int32, np.int64):
            at = np.array([-1, 0, -3, 2], dtype)
            for given in (at, kiln.tensor(at)):
                np.testing.assert_array_equal(kiln.gather(x, given, 0).numpy(), np.take(x, at, 0))
                np.testing.assert_array_equal(kiln.tensor(x)[given].numpy(), x[at])
                wanted = x.copy()
                np.add.at(wanted, at, 5)
                found = kiln.scatter_add(x, given, np.full((4, 4), 5, np.int32), 0)
                np.testing.assert_array_equal(found.numpy(), wanted)
        along = np.array([[-1, 0], [1, -4], [2, -2]], np.int64)
        np.testing.assert_array_equal(kiln.gather_elements(x, along, 1).numpy(),
                                      np.take_along_axis(x, along, 1))
        beyond = np.array([3, -4, 2 ** 32, -2 ** 40], np.int64)
        np.testing.assert_array_equal(kiln.gather(x, kiln.tensor(beyond), 0).numpy(),
                                      np.zeros((4, 4), np.int32))

    def test_positions_of_parts(self):
        """of gather_nd() and scatter_nd() they count from the end, too, along each dimension"""
        x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
        for dtype in (np.int8, np.int32, np.int64):
            at = np.array([[-1, -1], [0, -3], [1, 2]], dtype)
            for given in (at, kiln.tensor(at)):
                np.testing.assert_array_equal(kiln.gather_nd(x, given).numpy(),
                                              x[at[:, 0], at[:, 1]])
                wanted = x.copy()
                wanted[at[:, 0], at[:, 1]] = 7
                found = kiln.scatter_nd(x, given, np.full((3, 4), 7, np.float32))
                np.testing.assert_array_equal(found.numpy(), wanted)
        within = np.array([[[-1]], [[-3]]])  # each of the first dimension by itself
        np.testing.assert_array_equal(kiln.gather_nd(x, within, 1).numpy(),
                                      np.stack([x[0, [-1]], x[1, [-3]]]))
        self.assertTrue(np.isnan(kiln.gather_nd(x, np.array([[2, 0], [-3, 0]])).numpy()).all())
        with self.assertRaises(kiln.Error):
            kiln.gather_nd(x, np.array([[0, 0, 0, 0]]))

    def test_beyond_int64(self):
        """is said of numpy's uint64, wherever it comes in; what i64 holds is exact"""
        held, beyond = np.uint64([2 ** 63 - 1, 5]), np.uint64([2 ** 63, 5])
        np.testing.assert_array_equal(kiln.tensor(held).numpy(), held.astype(np.int64))
        for use in (kiln.tensor, kiln.Buffer, kiln.neg, lambda x: kiln.add(x, x)):
            with self.assertRaisesRegex(OverflowError, 'uint64 array is beyond int64'):
                use(beyond)

    def test_numbers_beyond(self):
        """a tensor is compared with a whole number that its type does not hold"""
        numbers = [sign * 2 ** bits - step for bits in (7, 8, 31, 63, 70) for sign in (1, -1) for step in (0, 1)]
        compares = operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne
        for dtype, compare in itertools.product(TYPES, compares):
            a = ends(dtype)
            whole = a.astype(object)  # numpy before 2 compares i64 with 2^63 as f64
            found = [(number, compare(kiln.tensor(a), number), compare(whole, number)) for number in numbers]
            found += [(number, compare(number, kiln.tensor(a)), compare(number, whole)) for number in numbers]
            for number, got, wanted in found:  # all have run together
                np.testing.assert_array_equal(got.numpy(), wanted.astype(bool), f'{dtype} {compare} {number}', strict=True)
        self.assertEqual((kiln.tensor([True, False]) < 2 ** 70).tolist(), [True, True])
        self.assertEqual((kiln.tensor([1e30, -1e30]) < 2 ** 70).tolist(), [False, True])
        with self.assertRaisesRegex(kiln.Error, 'u8 cannot hold 300'):  # as in numpy
            kiln.tensor(np.uint8([1])) + 300

    def test_means(self):
        """of integers are those of their f32"""
        for dtype in (np.int8, np.uint8, np.int32, np.int64, np.bool_):
            x = np.array([1, 0, 1, 3]).astype(dtype)
            found = kiln.mean(x).numpy()
            self.assertEqual(found.dtype, np.float32)
            np.testing.assert_allclose(found, x.mean(), rtol=1e-6)


if __name__ == '__main__':
    unittest.main()
