# SPDX-License-Identifier: Apache-2.0
"""Operators, functions and slices against numpy."""
import pickle
import unittest

import numpy as np

import kiln
from kiln._tensor import as_type
from kiln._types import as_dtype, bits_of_bf16

random = np.random.default_rng(11)
A = random.normal(size=(3, 4)).astype(np.float32)
B = random.uniform(0.5, 2, size=(3, 4)).astype(np.float32)
I = random.integers(-9, 10, size=(3, 4)).astype(np.int32)
J = random.integers(1, 5, size=(3, 4)).astype(np.int32)
M = A > 0
CUBE = random.normal(size=(4, 3, 5)).astype(np.float32)


class Tensors(unittest.TestCase):
    def check_all(self, cases, tolerance=2e-6):
        """Compare many results with numpy's, all of one run."""
        kiln.evaluate(*(got for _, got, _ in cases))
        for name, got, wanted in cases:
            with self.subTest(name):
                wanted = np.asarray(wanted)
                self.assertEqual(got.shape, wanted.shape)
                if wanted.dtype.kind == 'f':
                    np.testing.assert_allclose(got.numpy(), wanted, tolerance, tolerance)
                else:
                    np.testing.assert_array_equal(got.numpy(), wanted)

    def test_operators(self):
        """operators of floating tensors, numbers and arrays"""
        a, b = kiln.tensor(A), kiln.tensor(B)
        self.check_all([(text, eval(text, {'a': a, 'b': b, 'A': A, 'B': B, 'kiln': kiln}),
                         eval(text, {'a': A, 'b': B, 'A': A, 'B': B})) for text in (
            'a + b', 'a - b', 'a * b', 'a / b', 'a // b', 'a % b', 'b ** a', 'a ** 3', 'a ** 2',
            '2 - a', '1 / b', 'a + 1', '2.5 * a', '3 // b', '2 ** a', 'B + a', 'A * b', 'A[0] - b',
            'abs(a)', '-a', '+a', 'a < b', 'a <= 0', 'a > b', 'a >= 0.5', 'a == a', 'a != b',
            '(a > 0) & (b > 1)', '(a > 0) | (b > 1)', '(a > 0) ^ (b > 1)', '~(a > 0)',
            'a.clip(-0.5, 0.5)')])

    def test_integers(self):
        """operators of integers have Python's manners"""
        i, j = kiln.tensor(I), kiln.tensor(J)
        self.check_all([(text, eval(text, {'i': i, 'j': j}), eval(text, {'i': I, 'j': J}))
                        for text in ('i + j', 'i * 3', 'i // j', 'i % j', 'i // -3', 'i % -3',
                                     'i ** 3', '~i', '-i', 'i > j', 'i & 3', 'i | j', 'i ^ j',
                                     'i << 2', 'i >> j')])
        self.assertEqual((i + 1).dtype, 'i32')
        self.check_all([('i / j', i / j, I / J), ('i + 0.5', i + 0.5, I + 0.5),
                        ('mask * f32', kiln.tensor(M) * kiln.tensor(A), M * A),
                        ('exp of integers', kiln.exp(j), np.exp(J))])

    def test_floor_divide(self):
        """// and % of floats and integers belong together, at infinity and 0 as numpy's do"""
        special = np.float32([np.inf, -np.inf, np.nan, 0, -0.0, 1, -1, 5, .2, -84, 2.8, 87, .6, 3e38])
        a, b = (m.ravel() for m in np.meshgrid(special, special))
        near = np.float32(np.arange(1, 4001)) / np.float32(10)  # quotients that are nearly whole
        with np.errstate(all='ignore'):
            self.check_all([('special', kiln.tensor(a) // b, a // b),
                            ('by a number', kiln.tensor(near) // 0.1, near // np.float32(0.1)),
                            ('of a number', 7.5 // kiln.tensor(near), np.float32(7.5) // near),
                            ('by 0', kiln.tensor(special) // 0, special // np.float32(0))], 0)
        x, y = kiln.tensor(near), kiln.tensor(-near[::-1] / 7)
        whole, rest = (z.numpy().astype(np.float64) for z in (x // y, x % y))
        np.testing.assert_allclose(whole * y.numpy() + rest, near, rtol=1e-6, atol=4e-6)
        a, b = (m.ravel().astype(np.int32) for m in np.meshgrid(
            [-7, 7, 0, 5, -5, 2 ** 31 - 1, 1 - 2 ** 31], [2, -2, 3, -1, 1, 0]))
        with np.errstate(all='ignore'):
            self.check_all([('integers', kiln.tensor(a) // b, a // b), ('rest', kiln.tensor(a) % b, a % b)])

    def test_nothing(self):
        """all and any of nothing, and reductions over no axes, are what numpy says"""
        for shape in ((0,), (0, 3), (2, 0, 3)):
            empty = kiln.zeros(shape)
            for axis in (None, *range(-1, len(shape))):
                for keepdims in (False, True):
                    for name in ('all', 'any'):
                        wanted = getattr(np.zeros(shape), name)(axis=axis, keepdims=keepdims)
                        got = getattr(empty, name)(axis, keepdims)
                        self.assertEqual(got.dtype, kiln.bool_)
                        np.testing.assert_array_equal(got.numpy(), wanted)
        a = np.float32([[1, 2, 0], [4, -5, 6]])
        for none in ((), []):
            for name in ('sum', 'prod', 'mean', 'max', 'min', 'var', 'std', 'any', 'all'):
                for keepdims in (False, True):
                    wanted = getattr(a, name)(axis=(), keepdims=keepdims)
                    np.testing.assert_array_equal(
                        getattr(kiln.tensor(a), name)(axis=none, keepdims=keepdims).numpy(), wanted,
                        name)
            np.testing.assert_array_equal(kiln.softmax(a, none).numpy(), np.ones((2, 3)))
            np.testing.assert_array_equal(kiln.norm(a, none).numpy(), np.abs(a))
            np.testing.assert_array_equal(kiln.argmax(a, none).numpy(), np.zeros((2, 3)))

    def test_truth_as_index(self):
        """True and False as an index are masks of no dimensions"""
        a = kiln.tensor(CUBE)
        keys = [True, False, (True, 1), (False, 1), (slice(0, 2), True, 2), (..., True),
                (..., False, 1), (None, True), np.True_, (0, True)]
        self.check_all([(str(key), a[key], CUBE[key]) for key in keys])
        for wrong in ((True, True), (True, [0, 1])):
            with self.assertRaises(IndexError):
                a[wrong]

    def test_reductions(self):
        """reductions over one axis, several, all"""
        a = kiln.tensor(CUBE)
        self.check_all([(text, eval(text, {'a': a}), eval(text, {'a': CUBE})) for text in (
            'a.sum()', 'a.sum(1)', 'a.mean(axis=-1, keepdims=True)', 'a.max(axis=(0, 1))',
            'a.argmax(axis=2)', 'a.std(axis=0)', 'a.var(axis=2, ddof=1)',
            '(a > 0).any(axis=0)', '(a > 0).sum(axis=0)')], 1e-5)

    def test_medians(self):
        """medians along an axis and of all, of odd and even counts, of NaN, of integers"""
        odd = np.float32(np.random.default_rng(3).normal(size=(5, 7, 4)))
        holes, whole = odd.copy(), np.arange(12, dtype=np.int32)[::-1].reshape(3, 4) ** 2
        holes[1, 2, 3] = np.nan
        self.check_all(
            [(str(axis), kiln.median(x, axis), np.median(x, axis))
             for x, axis in ((odd, None), (odd, -1), (holes, 0), (holes, 1), (whole, None), (whole, 0))] +
            [('kept', kiln.median(odd, 1, keepdims=True), np.median(odd, 1, keepdims=True)),
             ('of all, kept', kiln.median(odd, keepdims=True), np.median(odd, keepdims=True))])
        with self.assertRaisesRegex(ValueError, 'nothing along'):
            kiln.median(np.float32([]))

    def test_slices(self):
        """slices as numpy has them: clipped, backwards, with ..., None and arrays"""
        a = kiln.tensor(CUBE)
        keys = [np.s_[1], np.s_[-1, 2], np.s_[::-1], np.s_[1:99, :, -2:], np.s_[..., 0],
                np.s_[3:0:-2, ..., ::2], np.s_[:, None, 1], np.s_[-9:2], np.s_[2, ..., None],
                np.s_[[0, -1, 2]], np.s_[:, [2, 0]], np.s_[[0, 1], [2, -1]], np.s_[2:1],
                np.s_[CUBE[:, 0, 0] > 0], np.s_[1, [[0, 2], [1, 1]], 1:3]]
        self.check_all([(str(key), a[key], CUBE[key]) for key in keys])
        with self.assertRaises(IndexError):
            a[4]
        with self.assertRaises(IndexError):
            a[0, 0, 0, 0]
        with self.assertRaises(IndexError):
            a[[0, 4]]

    def test_movement(self):
        """shapes: reshape, transpose, squeeze, concat, pad, split and their like"""
        a = kiln.tensor(CUBE)
        parts = kiln.split(a, [1, 2], axis=1)
        self.check_all([
            ('reshape', a.reshape(2, -1), CUBE.reshape(2, -1)), ('T', a.T, CUBE.T),
            ('transpose', a.transpose(1, 2, 0), CUBE.transpose(1, 2, 0)),
            ('swapaxes', a.swapaxes(0, -1), CUBE.swapaxes(0, -1)),
            ('flatten', a.flatten(), CUBE.ravel()),
            ('squeeze', a[:, :1].squeeze(1), CUBE[:, 0]),
            ('expand_dims', kiln.expand_dims(a, (0, -1)), CUBE[None, ..., None]),
            ('concat', kiln.concat([a, a], 1), np.concatenate([CUBE, CUBE], 1)),
            ('stack', kiln.stack([a, a], -1), np.stack([CUBE, CUBE], -1)),
            ('pad', kiln.pad(a, ((1, 0), (0, 2), (0, 0)), 3), np.pad(
                CUBE, ((1, 0), (0, 2), (0, 0)), constant_values=3)),
            ('split', parts[1], CUBE[:, 1:]), ('first of split', parts[0], CUBE[:, :1]),
            ('broadcast', kiln.broadcast_to(a[0], (2, 3, 5)), np.broadcast_to(CUBE[0], (2, 3, 5))),
            ('arange', kiln.arange(2, 9, 3), np.arange(2, 9, 3)),
            ('one row after another', list(a)[2], CUBE[2])])

    def test_networks(self):
        """products, softmax, attention, convolution, pools, picking"""
        q = kiln.tensor(CUBE)
        scores = CUBE @ CUBE.transpose(0, 2, 1) / np.sqrt(5)
        weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
        indices = np.int32([[2, 0, 1, 1]])
        self.check_all([
            ('softmax', kiln.softmax(q @ q.mT / 5 ** 0.5), weights),
            ('attention', kiln.attention(q, q, q), weights @ CUBE),
            ('conv', kiln.conv(CUBE, kiln.ones((2, 3, 1)), layout='channels_first', stride=2)[0, 0],
             [CUBE[0].sum(0)[i] for i in (0, 2, 4)]),
            ('max_pool and where', kiln.max_pool(CUBE, 5, layout='first', indices=True)[1][..., 0],
             CUBE.argmax(-1)),
            ('pad', kiln.pad(A, 2, mode='reflect'), np.pad(A, 2, mode='reflect')),
            ('gather_elements', kiln.gather_elements(A, indices, 0),
             np.take_along_axis(A, indices, 0)),
            ('triangle', kiln.triangle(A, upper=False, diagonal=-1), np.tril(A, -1))], 1e-5)

    def test_recorded(self):
        """functions with several results and many options record with the shapes that they promise"""
        image, x = kiln.ones((1, 8, 6, 2)), kiln.zeros((5, 2, 3))

        def shapes(*tensors):
            return [t.shape for t in tensors]
        for name, got, wanted in (
                ('conv2d', shapes(kiln.conv2d(image, kiln.ones((3, 3, 2, 4)), before=1, after=1)),
                 [(1, 8, 6, 4)]),
                ('conv_transposed', shapes(kiln.conv_transposed(
                    image, kiln.ones((2, 2, 4, 2)), stride=2)), [(1, 16, 12, 4)]),
                ('max_pool2d', shapes(kiln.max_pool2d(image, 2)), [(1, 4, 3, 2)]),
                ('avg_pool2d', shapes(kiln.avg_pool2d(image, (2, 3))), [(1, 4, 2, 2)]),
                ('avg_pool', shapes(kiln.avg_pool(image, 5, ceil=True)), [(1, 2, 2, 2)]),
                ('lp_pool', shapes(kiln.lp_pool(image, 2, 2.0)), [(1, 4, 3, 2)]),
                ('resize', shapes(kiln.resize(image, scale=(1, 2, 0.5, 1), method='linear')),
                 [(1, 16, 3, 2)]),
                ('windows', shapes(kiln.windows(image, 1, (3, 3), step=(2, 1))), [(1, 3, 4, 3, 3, 2)]),
                ('sort', shapes(kiln.sort(x), kiln.argsort(x, 0, descending=True)), [x.shape] * 2),
                ('topk', shapes(*kiln.topk(x, 2, axis=0)), [(2, 2, 3)] * 2),
                ('scatter', shapes(kiln.scatter(x, np.int32([1]), x[:1], 0, 'max')), [x.shape]),
                ('quantize', shapes(*kiln.quantize(x, axis=1)), [x.shape, (5, 1, 3)]),
                ('clip_by_norm', shapes(*kiln.clip_by_norm([x, image], 1.0)[0]),
                 [x.shape, image.shape]),
                ('batch_norm', shapes(*kiln.batch_norm_train(image), kiln.batch_norm(
                    image, None, None, kiln.zeros(2), kiln.ones(2), -1)),
                 [image.shape, (2,), (2,), image.shape]),
                ('cross_entropy', shapes(kiln.cross_entropy(
                    kiln.zeros((4, 3)), np.arange(4), reduction='none', ignored_label=3,
                    class_weights=np.ones(3)), kiln.cross_entropy(kiln.zeros((4, 3)), np.arange(4))),
                 [(4,), ()]),
                ('einsum', shapes(kiln.einsum('tbi,ki->btk', x, np.ones((7, 3)))), [(2, 5, 7)]),
                ('rnn', shapes(*kiln.rnn(x, kiln.ones((1, 4, 3)), kiln.ones((1, 4, 4)))),
                 [(5, 1, 2, 4), (1, 2, 4)]),
                ('gru', shapes(*kiln.gru(x, kiln.ones((2, 12, 3)), kiln.ones((2, 12, 4)),
                                         direction='bidirectional')), [(5, 2, 2, 4), (2, 2, 4)]),
                ('lstm', shapes(*kiln.lstm(x, kiln.ones((1, 16, 3)), kiln.ones((1, 16, 4)),
                                           bias=kiln.ones((1, 32)))),
                 [(5, 1, 2, 4), (1, 2, 4), (1, 2, 4)])):
            with self.subTest(name):
                self.assertEqual(got, wanted)
        with self.assertRaisesRegex(ValueError, 'channels_first'):
            kiln.max_pool(CUBE, 2, layout='sideways')

    def test_types(self):
        """types: conversions in, out and between"""
        a = kiln.tensor(A.astype(np.float64))
        self.assertEqual(a.dtype, kiln.f32)
        self.assertEqual(a.dtype, np.float32)
        self.assertEqual(kiln.tensor([1, 2]).dtype, 'i32')
        self.assertEqual(kiln.tensor([True]).dtype, bool)
        self.assertEqual(kiln.tensor(np.uint16([7])).dtype, 'i32')
        self.assertEqual(kiln.tensor(np.int64([7])).dtype, 'i64')
        narrow = a.astype('bf16')
        half = a.astype(np.float16)
        kiln.evaluate(narrow, half)
        np.testing.assert_allclose(np.asarray(narrow, np.float32), A, 1 / 256)
        np.testing.assert_array_equal(half.numpy(), A.astype(np.float16))
        np.testing.assert_array_equal((half + 0).numpy(), A.astype(np.float16).astype(np.float32))
        # Its value is brought in again as it is stored.
        np.testing.assert_array_equal((narrow * 1).numpy(), np.asarray(narrow, np.float32))
        with self.assertRaises(TypeError):
            kiln.tensor(np.zeros(3, complex))

    def test_bits(self):
        """bf16 without ml_dtypes: numbers become their bits, which stay what they are"""
        x = np.float32([1, -2.5, 1 + 1 / 256, 1 + 3 / 256, 3e38, np.inf])
        bits = bits_of_bf16(x)
        self.assertEqual(bits.tolist(), [0x3f80, 0xc020, 0x3f80, 0x3f82, 0x7f62, 0x7f80])
        nan = np.uint32([0x7fffffff]).view(np.float32)
        self.assertEqual(bits_of_bf16(nan).tolist(), [0x7fff])
        bf16 = as_dtype('bf16')
        if bf16.raw != np.uint16:
            self.skipTest('ml_dtypes has the type')
        given = as_type(x, bf16)
        self.assertEqual((given.dtype, given.tolist()), (np.uint16, bits.tolist()))
        self.assertEqual(as_type(given, bf16).dtype, np.uint16)
        with kiln.Executor(lambda inputs: inputs[0] * 2, [kiln.Row((2,), 'bf16')],
                           max_batch=1) as executor:
            self.assertEqual(executor.run([[1.5, -3]]).tolist(), [[3, -6]])

    def test_blocks(self):
        """bytes of blocks are what they stand for, in tensors and buffers"""
        x = random.normal(size=(5, 64)).astype(np.float32)
        blocks = kiln.quantize_blocks(x, 'q8_0')
        rows = blocks.reshape(5, 2, 34)
        scales = rows[:, :, :2].copy().view(np.float16).astype(np.float32)
        wanted = (scales * rows[:, :, 2:].view(np.int8)).reshape(5, 64)
        w, held = kiln.tensor(blocks, 'q8_0'), kiln.Buffer(blocks, kiln.q8_0)
        self.assertEqual((w.shape, w.dtype, w.nbytes), ((5, 64), kiln.q8_0, 340))
        for tensor in w, held, pickle.loads(pickle.dumps(w)), pickle.loads(pickle.dumps(held)):
            np.testing.assert_array_equal(tensor.numpy(), blocks)
            np.testing.assert_array_equal(tensor.astype('f32').numpy(), wanted)
        np.testing.assert_allclose((A[:, :1] * x[:3] @ held.T).numpy(), A[:, :1] * x[:3] @ wanted.T,
                                   1e-5, 1e-5)
        np.testing.assert_array_equal(kiln.gather(held, [3, 0], 0).numpy(), wanted[[3, 0]])
        self.assertEqual(w.T.dtype, kiln.f32)
        self.assertEqual(kiln.Buffer.zeros((2, 256), 'q6_k').astype('f32').numpy().sum(), 0)
        doubled = kiln.function(lambda t: t * 2)
        for _ in range(2):
            np.testing.assert_array_equal(doubled(w).numpy(), (w * 2).numpy())
        narrow = kiln.tensor(np.float32([1, 1.5]), 'bf16')
        np.testing.assert_array_equal(doubled(narrow).numpy(), [2, 3])
        copied = kiln.kernel('y[get_global_id(0)] = x[get_global_id(0)];')(w)
        np.testing.assert_array_equal(copied.numpy(), (w * 1).numpy())
        with self.assertRaisesRegex(kiln.Error, 'kiln_custom: q8_0 is a type of blocks'):
            kiln.kernel('y[0] = 1;', dtype='q8_0')(w)
        with self.assertRaisesRegex(ValueError, 'q4_0 is made of uint8 whose rows are blocks of 18 bytes'):
            kiln.tensor(blocks, 'q4_0')
        with self.assertRaisesRegex(ValueError, r'shape \[5, 63\] has no rows of whole blocks of q4_0'):
            kiln.quantize_blocks(x[:, 1:], 'q4_0')
        with self.assertRaisesRegex(kiln.Error, 'q8_0 is a type of blocks'):
            kiln.tensor(x).astype('q8_0')

    def test_shown(self):
        """devices, and what notebooks show of tensors and buffers"""
        device = kiln.devices()[0]
        for part in (device.name, device.type, device.platform):
            self.assertIn(part, repr(device))
        self.assertRegex(repr(device), '^<kiln.Device ')
        for shown in (kiln.tensor([1.5]) + 1, kiln.Buffer([1.5])):
            text = shown._repr_html_()
            self.assertRegex(text, '^<pre>[^<>]*</pre>$')
        self.assertIn('&lt;kiln.Buffer', text)
        with kiln.batch():
            self.assertIn('not computed', (kiln.tensor([1.5]) + 1)._repr_html_())

    def test_foreign_arrays(self):
        """buffers, arrays that are not row-major, DLPack"""
        class Shown:
            def __dlpack__(self, **options):
                return A.__dlpack__(**options)

            def __dlpack_device__(self):
                return A.__dlpack_device__()
        self.check_all([
            ('bytearray', kiln.tensor(memoryview(bytearray(b'abc'))), [97, 98, 99]),
            ('columns', kiln.tensor(A.T), A.T), ('every other', kiln.tensor(A[:, ::2]), A[:, ::2]),
            ('big-endian', kiln.tensor(A.astype('>f4')), A),
            ('DLPack', kiln.tensor(Shown()), A)])
        np.testing.assert_array_equal(np.from_dlpack(kiln.tensor(A) * 2), A * 2)

    def test_numbers(self):
        """tensors of one element are numbers"""
        one = kiln.tensor(A).sum() * 0 + 3
        self.assertEqual((float(one), int(one), one.item()), (3.0, 3, 3.0))
        self.assertTrue(one > 2)
        with self.assertRaises(ValueError):
            bool(kiln.tensor(A))
        self.assertEqual(repr(kiln.tensor(I[:2, :2]) + 1), f'kiln.tensor({np.array2string(I[:2, :2] + 1, separator=", ", prefix="kiln.tensor(")}, kiln.i32)')
        with kiln.batch():
            self.assertIn('not computed', repr(kiln.tensor(A) + 1))
        self.assertIn('3.', str(one))
        self.assertEqual(f'{one:.2f}', '3.00')
        copied = pickle.loads(pickle.dumps(kiln.tensor(A).astype('bf16')))
        self.assertEqual(copied.dtype, 'bf16')


if __name__ == '__main__':
    unittest.main()
