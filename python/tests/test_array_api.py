# SPDX-License-Identifier: Apache-2.0
"""The Python array API standard (2024.12): its names, and what its functions give, beside numpy."""
import unittest

import numpy as np

import kiln

# Every name of the standard, by its chapters.
NAMES = {
    'constants': 'e inf nan newaxis pi',
    'creation': """arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones
        ones_like tril triu zeros zeros_like""",
    'data types': """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64
        complex128""",
    'functions of data types': 'astype can_cast finfo iinfo isdtype result_type',
    'elementwise': """abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
        bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide
        equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less
        less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum
        minimum multiply negative nextafter not_equal positive pow real reciprocal remainder round sign
        signbit sin sinh square sqrt subtract tan tanh trunc""",
    'indexing': 'take take_along_axis',
    'inspection': '__array_namespace_info__',
    'linear algebra': 'matmul matrix_transpose tensordot vecdot',
    'manipulation': """broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat
        reshape roll squeeze stack tile unstack""",
    'searching': 'argmax argmin count_nonzero nonzero searchsorted where',
    'sets': 'unique_all unique_counts unique_inverse unique_values',
    'sorting': 'argsort sort',
    'statistics': 'cumulative_prod cumulative_sum max mean min prod std sum var',
    'utilities': 'all any diff',
    'version': '__array_api_version__',
}
LINALG = """cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank
    matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm"""
METHODS = """T device dtype mT ndim shape size to_device __abs__ __add__ __and__ __array_namespace__
    __bool__ __complex__ __dlpack__ __dlpack_device__ __eq__ __float__ __floordiv__ __ge__ __getitem__
    __gt__ __index__ __int__ __invert__ __le__ __lshift__ __lt__ __matmul__ __mod__ __mul__ __ne__
    __neg__ __or__ __pos__ __pow__ __rshift__ __setitem__ __sub__ __truediv__ __xor__"""

NO_TYPE = 'no type of kiln'
# Names of the standard that kiln does not have, and why.
ABSENT = {
    **dict.fromkeys('int16 uint16 uint32 uint64 float64 complex64 complex128'.split(), NO_TYPE),
    '__complex__': NO_TYPE,
    **dict.fromkeys("""cholesky det eigh eigvalsh inv matrix_rank pinv qr slogdet solve svd
        svdvals""".split(), 'no decompositions of matrices'),
}

random = np.random.default_rng(5)
A = random.normal(size=(3, 4)).astype(np.float32)
CUBE = random.normal(size=(2, 3, 4)).astype(np.float32)
I = random.integers(-9, 10, size=(3, 4)).astype(np.int32)
V = np.float32([3, 1, 2, 2, 7, 1, 0])
W = np.int64([5, 3, 5, 9, 3, 3, 0])
M = A > 0


class ArrayApi(unittest.TestCase):
    def check_all(self, cases, tolerance=2e-6):
        """Compare many results with numpy's, in values, shape and kind of type, all of one run."""
        flat = []
        for name, got, wanted in cases:
            several = isinstance(got, (tuple, list))
            for i, (g, w) in enumerate(zip(got, wanted) if several else [(got, wanted)]):
                flat.append((f'{name} {i}', g, np.asarray(w)))
        kiln.evaluate(*(got for _, got, _ in flat))
        for name, got, wanted in flat:
            with self.subTest(name):
                self.assertEqual(got.shape, wanted.shape)
                self.assertEqual(got.numpy().dtype.kind, wanted.dtype.kind)
                if wanted.dtype.kind == 'f':
                    np.testing.assert_allclose(got.numpy(), wanted, tolerance, tolerance)
                else:
                    np.testing.assert_array_equal(got.numpy(), wanted)

    def test_names(self):
        """each name is there, or ABSENT says why not"""
        places = [(kiln, name) for names in NAMES.values() for name in names.split()]
        places += [(kiln.linalg, name) for name in LINALG.split()]
        places += [(kiln.Tensor, name) for name in METHODS.split()]
        missing = {name for place, name in places if not hasattr(place, name)}
        self.assertEqual(sorted(missing - set(ABSENT)), [])
        self.assertEqual(sorted(set(ABSENT) - missing), [], 'kiln has these now')
        self.assertEqual((len(places), len(missing)), (217, 20))

    def test_inspection(self):
        """types, devices and what is known of both"""
        x = kiln.asarray([1, 2])
        self.assertIs(x.__array_namespace__(), kiln)
        self.assertIs(kiln.Buffer(A).__array_namespace__(api_version='2024.12'), kiln)
        with self.assertRaises(ValueError):
            x.__array_namespace__(api_version='1999.01')
        info = kiln.__array_namespace_info__()
        self.assertEqual(info.capabilities()['max dimensions'], 8)
        self.assertIn(info.default_device(), info.devices())
        self.assertEqual(x.device, info.default_device())
        self.assertIs(x.to_device(x.device), x)
        self.assertEqual(info.default_dtypes()['integral'], x.dtype)
        self.assertEqual(sorted(info.dtypes(kind='integral')), ['int32', 'int64', 'int8', 'uint8'])
        self.assertEqual(sorted(info.dtypes()), ['bool', 'float32', 'int32', 'int64', 'int8', 'uint8'])
        for name in info.dtypes():
            self.assertEqual(kiln.zeros(1, dtype=getattr(kiln, name)).dtype, getattr(kiln, name))
        for name in ('float32', 'float16'):
            ours, numpys = kiln.finfo(getattr(kiln, name)), np.finfo(name)
            for field in ('bits', 'eps', 'max', 'min', 'smallest_normal'):
                self.assertEqual(getattr(ours, field), float(getattr(numpys, field)), name + field)
        self.assertEqual((kiln.finfo('bf16').eps, kiln.finfo('bf16').max), (2 ** -7, 2.0 ** 127 * (2 - 2 ** -7)))
        self.assertEqual((kiln.iinfo('i8').min, kiln.iinfo(x).max), (-128, 2 ** 63 - 1))
        for wrong in (lambda: kiln.finfo('i32'), lambda: kiln.iinfo('f32'), lambda: kiln.iinfo('bool')):
            with self.assertRaises(TypeError):
                wrong()

    def test_types_that_meet(self):
        """result_type(), can_cast() and isdtype()"""
        for types, wanted in ((('i8', 'i32'), 'i32'), (('u8', 'u8'), 'u8'), (('bool', 'bool'), 'bool'),
                              (('i64', 'f32'), 'f32'), ((kiln.tensor(I), 2 ** 40), 'i32'),
                              (('i32', 1.5), 'f32'), (('bool', 1), 'i64'), (('f32', 1), 'f32')):
            self.assertEqual(kiln.result_type(*types), wanted, types)
        with self.assertRaises(ValueError):
            kiln.result_type()
        for given, to, wanted in (('i8', 'i32', True), ('i64', 'i32', False), ('u8', 'i8', False),
                                  ('bf16', 'f32', True), ('f32', 'bf16', False), ('f16', 'f32', True),
                                  (kiln.tensor(I), 'i64', True)):
            self.assertIs(kiln.can_cast(given, to), wanted, (given, to))
        self.assertTrue(kiln.isdtype('i32', 'signed integer') and kiln.isdtype('bf16', 'real floating'))
        self.assertTrue(kiln.isdtype('u8', ('bool', 'integral')) and kiln.isdtype('u8', kiln.uint8))
        self.assertFalse(kiln.isdtype('bool', 'numeric') or kiln.isdtype('f32', 'complex floating'))
        with self.assertRaises(ValueError):
            kiln.isdtype('f32', 'number')

    def test_creation(self):
        """tensors of numbers, lists and shapes"""
        self.check_all([
            ('asarray', kiln.asarray([[1, 2], [3, 4]]), np.int64([[1, 2], [3, 4]])),
            ('mixed', kiln.asarray([1, 2.5]), np.float32([1, 2.5])), ('bool', kiln.asarray(True), True),
            ('as u8', kiln.asarray([1, 2], dtype='u8'), np.uint8([1, 2])),
            ('arange', kiln.arange(5), np.arange(5)), ('down', kiln.arange(5, 0, -2), np.arange(5, 0, -2)),
            ('beyond 2^53', kiln.arange(2 ** 60, 2 ** 60 + 3), np.arange(2 ** 60, 2 ** 60 + 3)),
            ('broken steps', kiln.arange(0, 2, 0.5, 'i32'), np.int32([0, 0, 1, 1])),
            ('linspace', kiln.linspace(0, 1, 7), np.linspace(0, 1, 7)),
            ('down to whole', kiln.linspace(-3, 3, 5, dtype='i32'), np.linspace(-3, 3, 5, dtype=np.int32)),
            ('true', kiln.full(2, 2, 'bool'), np.full(2, 2, bool)), ('open', kiln.linspace(2, -3, 5, endpoint=False), np.linspace(2, -3, 5, endpoint=False)),
            ('eye', kiln.eye(3, 4, k=1), np.eye(3, 4, 1)), ('far', kiln.eye(2, k=10 ** 30), np.zeros((2, 2))),
            ('full', kiln.full((2, 3), 7), np.full((2, 3), 7)),
            ('full i64', kiln.full(2, 2 ** 62 + 1), np.full(2, 2 ** 62 + 1)),
            ('full bool', kiln.full((2,), True), np.full((2,), True)),
            ('like', kiln.ones_like(kiln.tensor(I)), np.ones_like(I)),
            ('full_like', kiln.full_like(kiln.tensor(A), 2), np.full_like(A, 2)),
            ('tril', kiln.tril(kiln.tensor(CUBE), k=-1), np.tril(CUBE, -1)),
            ('triu', kiln.triu(kiln.tensor(I), k=1), np.triu(I, 1)),
            ('meshgrid', kiln.meshgrid([1, 2], [3, 4, 5]), np.meshgrid([1, 2], [3, 4, 5])),
            ('ij', kiln.meshgrid(V, [0, 1], indexing='ij'), np.meshgrid(V, [0, 1], indexing='ij'))])
        self.assertEqual(kiln.arange(0).shape, (0,))
        self.assertEqual(kiln.zeros(3, device=kiln.default_context()).dtype, kiln.float32)
        for wrong in (lambda: kiln.asarray([1j]), lambda: kiln.asarray(['a'])):
            with self.assertRaises(TypeError):
                wrong()
        with self.assertRaises(ValueError):
            kiln.meshgrid(V, indexing='yx')

    def test_copies(self):
        """asarray() borrows, copies or refuses, as it is told"""
        given = V.copy()
        borrowed, copied = kiln.asarray(given, copy=False), kiln.asarray(given, copy=True)
        given[0] = 9
        self.assertEqual((float(borrowed[0]), float(copied[0])), (9, 3))
        for what in ([1, 2], V.astype(np.float64)):
            with self.assertRaises(ValueError):
                kiln.asarray(what, copy=False)
        x = kiln.tensor(V)
        self.assertIs(kiln.asarray(x), x)
        with self.assertRaises(ValueError):
            kiln.asarray(x, dtype='i32', copy=False)

    def test_manipulation(self):
        """orders of elements, repetitions, joints"""
        c, i = kiln.tensor(CUBE), kiln.tensor(I)
        self.check_all([
            ('flip', kiln.flip(c, axis=(0, 2)), np.flip(CUBE, (0, 2))), ('flip all', kiln.flip(i), np.flip(I)),
            ('roll', kiln.roll(c, 5), np.roll(CUBE, 5)),
            ('roll axes', kiln.roll(c, (1, -6), axis=(0, -1)), np.roll(CUBE, (1, -6), (0, -1))),
            ('tile', kiln.tile(i, (2, 1, 3)), np.tile(I, (2, 1, 3))), ('none', kiln.tile(i, (0,)), np.tile(I, 0)),
            ('repeat', kiln.repeat(c, 3, axis=1), np.repeat(CUBE, 3, 1)), ('flat', kiln.repeat(i, 2), np.repeat(I, 2)),
            ('repeats', kiln.repeat(i, kiln.tensor([2, 0, 1]), axis=0), np.repeat(I, [2, 0, 1], 0)),
            ('moveaxis', kiln.moveaxis(c, (0, 1), (-1, 0)), np.moveaxis(CUBE, (0, 1), (-1, 0))),
            ('permute_dims', kiln.permute_dims(c, (2, 0, 1)), CUBE.transpose(2, 0, 1)),
            ('unstack', kiln.unstack(c, axis=1), list(CUBE.swapaxes(0, 1))),
            ('concat', kiln.concat([i, kiln.tensor(I > 0)], axis=None), np.concatenate([I, I > 0], None)),
            ('stack', kiln.stack([i, kiln.tensor(A)]), np.stack([I, A]).astype(np.float32)),
            ('broadcast', kiln.broadcast_arrays(i, V[:4]), np.broadcast_arrays(I, V[:4]))])
        for wrong in (lambda: kiln.moveaxis(c, (0, 0), (1, 2)), lambda: kiln.repeat(i, [1, 2], axis=0),
                      lambda: kiln.repeat(i, -1), lambda: kiln.moveaxis(c, 0, (0, 1))):
            with self.assertRaises(ValueError):
                wrong()
        with self.assertRaises(IndexError):
            kiln.flip(c, axis=3)

    def test_elementwise(self):
        """the standard's names, masks and integers as what they are"""
        a, i, m = kiln.tensor(A), kiln.tensor(I), kiln.tensor(M)
        self.check_all([
            ('divide', kiln.divide(i, 4), I / np.float32(4)), ('remainder', kiln.remainder(i, -4), np.remainder(I, -4)),
            ('clip', kiln.clip(i, -2, 3), np.clip(I, -2, 3)), ('lower', a.clip(min=0), np.clip(A, 0, None)),
            ('clip by', kiln.clip(a, A[0], None), np.maximum(A, A[0])), ('none', kiln.clip(a), A),
            ('and', kiln.bitwise_and(i, 6), I & 6), ('or', kiln.bitwise_or(m, I > 0), M | (I > 0)),
            ('invert', kiln.bitwise_invert(m), ~M), ('shift', kiln.bitwise_left_shift(i, 3), I << 3),
            ('where', kiln.where(m, m, I > 0), np.where(M, M, I > 0)), ('mixed', kiln.where(m, i, 0), np.where(M, I, 0)),
            ('imag', kiln.imag(a), A.imag), ('round', kiln.round(i), I), ('isnan', kiln.isnan(i), np.isnan(I))])

    def test_floats(self):
        """copysign(), hypot() and their like, at 0, -0, infinities and the ends of the range"""
        ends = np.float32([0, -0.0, 1, -2.5, 1e-30, 3e38, -3e38, np.inf, -np.inf, np.nan])
        a, b = (x.ravel() for x in np.meshgrid(ends, ends))
        x, y = kiln.tensor(a), kiln.tensor(b)
        with np.errstate(all='ignore'):
            self.check_all([
                ('signbit', kiln.signbit(ends[:-1]), np.signbit(ends[:-1])),
                ('hypot', kiln.hypot(x, y), np.hypot(a, b)), ('logaddexp', kiln.logaddexp(x, y), np.logaddexp(a, b)),
                ('log10', kiln.log10(10 ** ends[2:6].clip(-30, 30)), np.log10(10 ** ends[2:6].clip(-30, 30))),
                ('of integers', kiln.hypot(I, 3), np.hypot(I, np.float32(3)))])
            known = ~np.isnan(b)
            found = kiln.copysign(x, y).numpy()[known]
            wanted = np.copysign(a, b)[known]
            np.testing.assert_array_equal(found, wanted)
            np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0]))
            # From 0 there are denormal numbers, which not every device has.
            np.testing.assert_array_equal(kiln.nextafter(x, y).numpy()[a != 0],
                                          np.nextafter(a, b)[a != 0])
        self.assertEqual(kiln.nextafter(np.float32([[1]]), np.float32([2, 0])).shape, (1, 2))
        gradient = kiln.grad(lambda x: kiln.nextafter(x, 4.0).sum())(np.float32([3, 0]))
        np.testing.assert_array_equal(gradient.numpy(), [1, 1])
        gradient = kiln.grad(lambda x: kiln.hypot(x, 4.0).sum())(np.float32([3, 0]))
        np.testing.assert_allclose(gradient.numpy(), [0.6, 0], 1e-6)

    def test_statistics(self):
        """sums, products, variances; running ones; counts"""
        c, i, m = kiln.tensor(CUBE), kiln.tensor(I), kiln.tensor(M)
        nothing = kiln.zeros((0, 3))
        self.check_all([
            ('sum', kiln.sum(i, axis=(0, 1)), I.sum()), ('as f32', kiln.sum(i, axis=0, dtype='f32'), I.sum(0, dtype=np.float32)),
            ('prod', kiln.prod(c, axis=1, keepdims=True), CUBE.prod(1, keepdims=True)), ('of masks', kiln.sum(m), M.sum()),
            ('in i8', kiln.sum(np.int8([100, 100]), dtype='i8'), np.int8(-56)),
            ('var', kiln.var(c, axis=(0, 2), correction=1), CUBE.var((0, 2), ddof=1)), ('std', kiln.std(c), CUBE.std()), ('of integers', kiln.std(i), np.float32(I.std())),
            ('half', kiln.var(c, axis=1, correction=0.5), CUBE.var(1, ddof=0.5)),
            ('too few', kiln.var(c, axis=0, correction=2), np.full((3, 4), np.nan)),
            ('cumulative_sum', kiln.cumulative_sum(i, axis=1, include_initial=True), np.pad(I.cumsum(1), ((0, 0), (1, 0)))),
            ('cumulative_prod', kiln.cumulative_prod(kiln.tensor(V[:5])), V[:5].cumprod()),
            ('along', kiln.cumulative_prod(i, axis=0, dtype='i32'), I.cumprod(0, dtype=np.int32)),
            ('first', kiln.cumulative_prod(c, axis=-1, include_initial=True),
             np.concatenate([np.ones((2, 3, 1), np.float32), CUBE.cumprod(-1)], -1)),
            ('diff', kiln.diff(c, axis=1, n=2), np.diff(CUBE, 2, 1)), ('masks', kiln.diff(m), np.diff(M)),
            ('ends', kiln.diff(i, axis=0, prepend=I[:1], append=I[:2]), np.diff(I, 1, 0, I[:1], I[:2])),
            ('count_nonzero', kiln.count_nonzero(i, axis=0), np.count_nonzero(I, 0)),
            ('all', kiln.all(m, axis=1), M.all(1)), ('any', kiln.any(nothing, axis=0), np.zeros(3, bool))])
        with self.assertRaisesRegex(ValueError, 'axis has to be given'):
            kiln.cumulative_sum(c)

    def test_counts(self):
        """bincount() and histogram(), with weights, given edges and nothing to count"""
        w, v = kiln.tensor(W), kiln.tensor(V)
        spread = (np.arange(200) ** 2 % 71 / 7).astype(np.float32)
        edges = np.float32([0, 1, 2.5, 7])
        self.check_all([
            ('bincount', kiln.bincount(w), np.bincount(W)), ('longer', kiln.bincount(w, minlength=12), np.bincount(W, minlength=12)),
            ('weights', kiln.bincount(w, V), np.bincount(W, V).astype(np.float32)),
            ('length', kiln.bincount(w, length=4), np.bincount(W)[:4]),
            ('nothing', kiln.bincount(kiln.tensor(W[:0])), np.bincount(W[:0])),
            ('histogram', kiln.histogram(spread, 7), np.histogram(spread, 7)),
            ('range', kiln.histogram(v, 4, (1, 3)), np.histogram(V, 4, (1, 3))),
            ('edges', kiln.histogram(v, edges, weights=W), tuple(np.float32(r) for r in np.histogram(V, edges, weights=W))),
            ('density', kiln.histogram(v, edges, density=True), np.histogram(V, edges, density=True)),
            ('same', kiln.histogram(np.ones(3), 2), np.histogram(np.ones(3), 2)),
            ('NaN', kiln.histogram(np.float32([np.nan, 1, 9]), 3, (0, 2))[0], [0, 1, 0])])
        counted = kiln.function(lambda x: kiln.bincount(x, length=10))
        np.testing.assert_array_equal(counted(W).numpy(), np.bincount(W))
        for low, high, bins in ((0, 1, 64), (-2.5, 3.75, 7), (1e3, 1001, 100), (1e6, 1e6 + 1, 16), (5, 5, 3)):
            with self.subTest('beside the edges', low=low, high=high, bins=bins):
                edges = kiln.histogram(np.float32([]), bins, (low, high))[1].numpy()
                x = np.concatenate([np.nextafter(edges, np.float32(to)) for to in (-np.inf, 0, np.inf)] + [edges])
                self.assertEqual(kiln.histogram(x, bins, (low, high))[0].tolist(),
                                 np.histogram(x, edges)[0].tolist())

        for wrong in (lambda: kiln.bincount(v), lambda: kiln.bincount(-w), lambda: kiln.histogram(v, 0),
                      lambda: kiln.histogram(v, range=(3, 1)), lambda: kiln.histogram(v, [1])):
            with self.assertRaises(ValueError):
                wrong()

    def test_searches(self):
        """searchsorted(), nonzero(), orders, indices along an axis"""
        ordered, among = np.sort(V), np.float32([-1, 0, 1, 1.5, 7, 8, np.nan])
        i, order = kiln.tensor(I), np.argsort(I, 1, kind='stable')
        cases = [(side, kiln.searchsorted(ordered, among, side=side), np.searchsorted(ordered, among, side))
                 for side in ('left', 'right')]
        with_nan = np.float32([1, 2, np.nan, np.nan])
        cases += [(side + ' NaN', kiln.searchsorted(with_nan, among, side=side), np.searchsorted(with_nan, among, side))
                  for side in ('left', 'right')]
        self.check_all(cases + [
            ('sorter', kiln.searchsorted(V, among, sorter=np.argsort(V, kind='stable')), np.searchsorted(ordered, among)),
            ('i64', kiln.searchsorted(np.int64([2 ** 60, 2 ** 60 + 1]), np.int64([[2 ** 60 + 1]])), [[1]]),
            ('in nothing', kiln.searchsorted(V[:0], among), np.zeros(7, int)),
            ('nonzero', kiln.nonzero(i > 2), np.nonzero(I > 2)), ('of 0', kiln.nonzero(kiln.zeros((2, 0))), np.nonzero(np.zeros((2, 0)))),
            ('where', kiln.where(i == 99), np.where(I == 99)), ('argwhere', kiln.argwhere(i < 0), np.argwhere(I < 0)),
            ('argsort', kiln.argsort(i, axis=1), order), ('down', kiln.sort(i, axis=0, descending=True), np.sort(I, 0)[::-1]),
            ('argmax', kiln.argmax(i, axis=1, keepdims=True), I.argmax(1, keepdims=True)),
            ('take', kiln.take(i, kiln.tensor([2, -1]), axis=1), np.take(I, [2, -1], 1)),
            ('along', kiln.take_along_axis(i, order, axis=1), np.take_along_axis(I, order, 1)),
            ('broadcast', kiln.take_along_axis(i, order[:1], axis=1), I[:, order[0]])])
        for wrong in (lambda: kiln.searchsorted(A, V), lambda: kiln.searchsorted(V, V, side='both'),
                      lambda: kiln.nonzero(kiln.tensor(1)), lambda: kiln.take_along_axis(i, order[0])):
            with self.assertRaises(ValueError):
                wrong()
        with self.assertRaises(TypeError):
            kiln.where(i, i)

    def test_sets(self):
        """unique elements, where they come first, of integers, floats with NaN and -0, masks, nothing"""
        for x in (W, I, V, M, W[:0], W.astype(np.int8)):
            found = kiln.unique_all(x)
            values, first, inverse, counts = np.unique(x, True, True, True)
            self.check_all([('unique', found, (values, first, inverse.reshape(x.shape), counts))])
            self.assertEqual(found.values.numpy().dtype, x.dtype)
            self.check_all([('values', (kiln.unique_values(x),), (values,))])
        found = kiln.unique_all(np.float32([0, np.nan, -0.0, 2, np.nan]))
        np.testing.assert_array_equal(found.values.numpy(), [0, 2, np.nan, np.nan])
        self.assertEqual((found.counts.tolist(), found.indices.tolist()), ([2, 1, 1, 1], [0, 3, 1, 4]))
        self.assertEqual(kiln.unique(W, return_counts=True)[1].tolist(), [1, 3, 2, 1])
        self.assertEqual(kiln.unique_counts(W).counts.tolist(), [1, 3, 2, 1])
        self.assertEqual(kiln.unique_inverse(W).inverse_indices.shape, W.shape)

    def test_shapes_of_values(self):
        """what has a shape that depends on values says so in a function"""
        for f, what in ((kiln.nonzero, r'nonzero\(\)'), (kiln.unique_values, 'unique elements'),
                        (kiln.bincount, r"bincount\(\)'s length"), (lambda x: x[x > 2], r'nonzero\(\)'),
                        (lambda x: kiln.repeat(x, x), r'repeat\(\)')):
            with self.assertRaisesRegex(kiln.Error, what + '.* depends on values'):
                kiln.function(f)(W)

    def test_products(self):
        """matrices, vectors and what is summed up over several dimensions, of floats and integers"""
        j = random.integers(-2 ** 20, 2 ** 20, (4, 5)).astype(np.int32)
        three = np.float32([[1, 2, 3], [-1, 0.5, 2]])
        u = np.uint8([[200, 100]])
        self.check_all([
            ('matmul', kiln.matmul(I, j), I @ j), ('batches', kiln.matmul(np.int64([I, I + 1]), j), np.int64([I, I + 1]) @ j),
            ('vectors', kiln.tensor(j[0]) @ j.T, j[0] @ j.T), ('u8', kiln.matmul(u, u.T), u @ u.T), ('floats', A @ kiln.tensor(A.T), A @ A.T),
            ('vecdot', kiln.vecdot(CUBE, CUBE[:1], axis=1), (CUBE * CUBE[:1]).sum(1)), ('ints', kiln.vecdot(I, I), (I * I).sum(1)),
            ('tensordot', kiln.tensordot(CUBE, A), np.tensordot(CUBE, A)), ('outer', kiln.tensordot(V, W, axes=0), np.tensordot(V, np.float32(W), 0)),
            ('by names', kiln.tensordot(CUBE, A, axes=((2, 1), (1, 0))), np.tensordot(CUBE, A, ((2, 1), (1, 0)))),
            ('linalg.outer', kiln.linalg.outer(V, V), np.outer(V, V)), ('cross', kiln.linalg.cross(three, three[::-1]), np.cross(three, three[::-1])),
            ('diagonal', kiln.linalg.diagonal(CUBE, offset=1), CUBE.diagonal(1, 1, 2)), ('below', kiln.linalg.diagonal(CUBE, offset=-2), CUBE.diagonal(-2, 1, 2)),
            ('outside', kiln.linalg.diagonal(A, offset=9), A.diagonal(9)), ('trace', kiln.linalg.trace(I, offset=1), np.trace(I, 1)),
            ('power', kiln.linalg.matrix_power(I[:, :3], 5), np.linalg.matrix_power(I[:, :3], 5)), ('0', kiln.linalg.matrix_power(A[:, :3], 0), np.eye(3))])
        for order in (2, 1, 0, np.inf, -np.inf, 3):
            self.check_all([(f'norm {order}', kiln.linalg.vector_norm(CUBE, axis=1, ord=order), np.linalg.norm(CUBE, order, 1))], 1e-5)
        for order in ('fro', 1, -1, np.inf, -np.inf):
            self.check_all([(f'norm {order}', kiln.linalg.matrix_norm(CUBE, ord=order), np.linalg.norm(CUBE, order, (1, 2)))], 1e-5)
        for wrong in (lambda: kiln.tensordot(A, A.T), lambda: kiln.linalg.cross(A, A), lambda: kiln.linalg.matrix_norm(A, ord='nuc'),
                      lambda: kiln.vecdot(A, CUBE[..., :3]), lambda: kiln.linalg.matrix_power(A, 2)):
            with self.assertRaises(ValueError):
                wrong()

    def test_indexing(self):
        """arrays, tensors and masks as indices, in every order, beside integers and slices"""
        a, c = kiln.tensor(CUBE), CUBE
        at, also = np.array([1, 0, -1]), np.array([[2], [-3]])
        keys = [np.s_[0, :, at], np.s_[:, 0, at], np.s_[at - 1, :, also], np.s_[..., at, also], np.s_[0, at, also],
                np.s_[None, at - 1, 0], np.s_[at, None, 1] if False else np.s_[[0, 1], None, at[:2]]]
        cases = [(str(k), a[k], c[k]) for k in keys]
        as_tensors = [tuple(kiln.tensor(e) if isinstance(e, np.ndarray) else e for e in k) for k in keys]
        cases += [(str(k) + ' tensors', a[t], c[k]) for k, t in zip(keys, as_tensors)]
        mask = c > 0
        cases += [('mask', a[a > 0], c[mask]), ('rows', a[kiln.tensor(mask[:, :, 0])], c[mask[:, :, 0]]),
                  ('one side', a[:, kiln.tensor([True, False, True])], c[:, [True, False, True]]),
                  ('no dimensions', a[kiln.tensor(True)], c[np.True_])]
        self.check_all(cases)
        for wrong in (lambda: a[kiln.tensor(mask[:, :2])], lambda: a[mask[:, :2]], lambda: a[kiln.tensor([1.5])]):
            with self.assertRaises(IndexError):
                wrong()

    def test_writing(self):
        """a tensor that is written into is another value; what was made of it before keeps the old one"""
        for key, value in ((0, 1), (np.s_[1, ::2], 7), (np.s_[..., 1], V[:3]), (M, -1), ([2, 0], A[:2] + 1), ((at := np.array([0, 2]), [1, 3]), 5),
                           (np.s_[:, [0, -1]], 9), (np.s_[1:, None], 3), (M[:, 0], V[:4]), (True, 4)):
            x, y = kiln.tensor(A), A.copy()
            before = x + 0
            x[key] = value
            y[key] = value
            np.testing.assert_array_equal(x.numpy(), y, str(key))
            np.testing.assert_array_equal(before.numpy(), A)
            buffer = kiln.Buffer(A)
            buffer[key] = value
            np.testing.assert_array_equal(buffer.numpy(), y, str(key))
        x = kiln.tensor(A)
        x[x > 0] = 0
        x[kiln.tensor([5, 1]), 0] = 8  # the first is beyond x
        x[2, 3] += 1
        wanted = np.minimum(A, 0)
        wanted[1, 0], wanted[2, 3] = 8, wanted[2, 3] + 1
        np.testing.assert_array_equal(x.numpy(), wanted)
        m = kiln.tensor(M)
        m[kiln.tensor([0])] = False
        self.assertEqual((m.dtype, m[0].numpy().any()), (kiln.bool_, False))

        def written(x, by):
            x[x < 0] = by
            x[0] *= 2
            return x
        wanted = np.where(A < 0, 3, A)
        wanted[0] *= 2
        run = kiln.function(written)
        for _ in range(2):
            np.testing.assert_array_equal(run(A, 3).numpy(), wanted)
        gradient = kiln.grad(lambda x: written(x, 3).sum())(A)
        np.testing.assert_array_equal(gradient.numpy(), np.where(A < 0, 0, 1) * np.float32([[2], [1], [1]]))

    def test_writing_beside(self):
        """what changes nothing gives another tensor: a write into it, or into what it is made of, is not the other's"""
        ways = (lambda x: x[:], lambda x: x.T, lambda x: x.flatten(), lambda x: x.broadcast_to(3), lambda x: x ** 1,
                lambda x: kiln.roll(x, 3), lambda x: kiln.diff(x, n=0), lambda x: kiln.replaced(x, slice(0), 1), kiln.tensor)
        content = V[:3].tolist()
        for way in ways:
            for x in (kiln.tensor(V[:3]), kiln.tensor(V[:3]) * 1, kiln.Buffer(V[:3])):
                first, second = way(x), way(x)
                first[0] = 9
                self.assertEqual([y.numpy().tolist() for y in (x, second, way(x))], [content] * 3)
            x = kiln.tensor(V[:3])
            y = way(x)
            x[0] = 9
            self.assertEqual(y.tolist(), content)
        buffer = kiln.Buffer(V[:3])
        for y in (buffer.tensor(), kiln.asarray(buffer)):
            y[0] = 9
            self.assertEqual([kiln.asarray(buffer).tolist(), buffer.tensor().tolist()], [content] * 2)

        @kiln.function
        def written(x):
            x[0] = 9
            return x
        x = kiln.tensor(V[:3])
        with kiln.batch() as b:
            y = b.read(written(x))
        self.assertEqual([written(x).tolist(), y.tolist(), x.tolist()], [[9, *content[1:]]] * 2 + [content])

    def test_far_keys(self):
        """positions beyond one of several dimensions pick and write nothing; narrow types of indices"""
        at = kiln.tensor([0, 2, -9]), kiln.tensor([5, 1, 1])
        x = kiln.tensor(I)
        np.testing.assert_array_equal(x[at].numpy(), [0, I[2, 1], 0])
        x[at] = 99
        wanted = I.copy()
        wanted[2, 1] = 99
        np.testing.assert_array_equal(x.numpy(), wanted)
        long = np.arange(300)
        for narrow in (np.int8([-1, 3]), np.uint8([1, 255])):
            np.testing.assert_array_equal(kiln.tensor(long)[narrow].numpy(), long[narrow])
        with self.assertRaisesRegex(kiln.Error, 'broadcast'):
            kiln.zeros((3, 1))[M[:, 0]] = V[:5]

    def test_other_context(self):
        """arrays beside a tensor go to its context"""
        with kiln.Context() as context:
            x, i = (kiln.tensor(y, context=context) for y in (V, I))
            self.check_all([
                ('//', i // 2, I // 2), ('// array', i // I[:1].clip(1), I // I[:1].clip(1)),
                ('sorter', kiln.searchsorted(x, V, sorter=np.argsort(V)), np.searchsorted(np.sort(V), V)),
                ('along', kiln.take_along_axis(x, np.argsort(V), axis=0), np.sort(V)), ('diff', kiln.diff(x, prepend=V[:1]), np.diff(V, prepend=V[:1])),
                ('range', kiln.histogram(x, 3, (0, 6))[0], np.histogram(V, 3, (0, 6))[0]),
                ('edges', kiln.histogram(x, np.float32([0, 2, 9]), weights=W)[0], np.float32(np.histogram(V, [0, 2, 9], weights=W)[0])),
                ('weights', kiln.bincount(kiln.tensor(W, context=context), V), np.bincount(W, V).astype(np.float32))])

    def test_numpy(self):
        """numpy's functions of tensors"""
        a, i = kiln.tensor(A), kiln.tensor(I)
        lazy = [('sin', np.sin(a), np.sin(A)), ('add', np.add(A, a), A + A), ('matmul', np.matmul(a, A.T), A @ A.T),
                ('arctan2', np.arctan2(a, 2), np.arctan2(A, 2)), ('sum', np.sum(a, axis=0), A.sum(0)),
                ('mean', np.mean(a), A.mean()), ('max', np.max(i, axis=1, keepdims=True), I.max(1, keepdims=True)),
                ('std', np.std(a, axis=0), A.std(0)), ('prod', np.prod(i), I.prod()), ('all', np.all(i), I.all()),
                ('argmax', np.argmax(a), A.argmax()), ('invert', ~i, ~I), ('clip', np.clip(a, 0, 1), A.clip(0, 1)), ('power', np.power(i, 2.0), I ** 2.0)]
        self.assertEqual([name for name, got, _ in lazy if not isinstance(got, kiln.Tensor)], [])
        self.check_all(lazy)
        np.testing.assert_allclose(np.cbrt(a), np.cbrt(A))  # which kiln has not
        np.testing.assert_array_equal(np.add.reduce(i), I.sum(0))
        out = A.astype(np.float64)
        out += a
        np.testing.assert_array_equal(out, A.astype(np.float64) + A)
        self.assertEqual(np.concatenate([a, a]).shape, (6, 4))
        for wrong in (lambda: np.add(A, A, out=a), lambda: np.sum(a, axis=0, out=A[0].copy())):
            with self.assertRaises(TypeError):
                wrong()
        self.assertEqual(np.std(a, dtype=np.float16).dtype, kiln.f16)

    def test_dlpack(self):
        """memory of others is borrowed, and what others get is theirs"""
        given = A.copy()
        x = kiln.from_dlpack(given)
        given[0, 0] = 5
        self.assertEqual(float(x[0, 0]), 5)
        shown = np.from_dlpack(x)
        np.testing.assert_array_equal(shown, given)
        self.assertFalse(np.shares_memory(shown, given))
        np.testing.assert_array_equal(np.from_dlpack(kiln.tensor(I) * 2), I * 2)
        self.assertEqual(kiln.from_dlpack(x, copy=True).numpy()[0, 0], 5)
        self.assertEqual(x.__dlpack_device__(), (1, 0))


if __name__ == '__main__':
    unittest.main()
