# SPDX-License-Identifier: Apache-2.0
"""Batches, buffers, functions, gradients, optimisers; errors; what is copied; threads."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock

import numpy as np

import kiln
from kiln._types import address_of

A = np.arange(12, dtype=np.float32).reshape(3, 4)


class Running(unittest.TestCase):
    def test_errors(self):
        """an error is told by the line that makes it, in the library's words, and nothing else is
        spoilt"""
        a = kiln.tensor(A) + 1
        with self.assertRaisesRegex(kiln.Error, r'^kiln_add: shapes \[3,4\] and \[5\] do not broad') \
                as caught:
            a + np.zeros(5, np.float32)
        self.assertEqual(caught.exception.status, 'SHAPE_MISMATCH')
        np.testing.assert_array_equal((a * 1).numpy(), A + 1)
        with self.assertRaisesRegex(kiln.Error, 'nonesuch'):
            kiln.Context('nonesuch')
        with self.assertRaisesRegex(ValueError, "'on'"):
            kiln.Context(cache='sometimes')

    def test_first_call(self):
        """a function's first call runs by quick kernels where the driver has such, with the same
        result, and a line says so, unless another way is asked for"""
        text = """
import kiln, numpy as np
x = np.linspace(-1, 1, 6 * 7, dtype=np.float32).reshape(6, 7)
@kiln.function
def f(x):
    y = kiln.tanh(x @ np.ones((7, 5), np.float32))
    return y.sum(0), kiln.softmax(y, 1), kiln.sort(x)
print([part.numpy().tobytes().hex() for part in f(x)])
"""
        said = {}
        for way in ('', 'together'):
            folder = tempfile.mkdtemp()
            # What stores kernels may outlive the program, and make files in there meanwhile.
            self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
            done = subprocess.run(
                [sys.executable, '-c', text], capture_output=True, text=True, timeout=600,
                env={**os.environ, 'KILN_COMPILE': way, 'KILN_LOG': 'info', 'KILN_CACHE': 'on',
                     'KILN_CACHE_DIR': os.path.join(folder, 'kiln'), 'KILN_CACHE_WAIT': '1'})
            self.assertEqual(done.returncode, 0, done.stderr)
            said[way] = (done.stdout, 'by ones that are not optimised' in done.stderr)
        quick = kiln.default_context().device.platform == 'Portable Computing Language'
        self.assertEqual(said[''], (said['together'][0], quick))
        self.assertFalse(said['together'][1])

    def test_names(self):
        """names stand in errors and in explanations, wherever a tensor is recorded again"""
        a = (kiln.tensor(A) + 1).named('layer3.q')
        with self.assertRaisesRegex(kiln.Error, r'\(a is "layer3.q"\)'):
            a + np.zeros(5, np.float32)
        with kiln.batch() as b:
            b.read((a * 2).named('twice'))
            self.assertIn(', for layer3.q, twice', b.explain())

    def test_names_of_many(self):
        """what is made within kiln.names() has its name, but for what has one of its own"""
        with kiln.names('layer3'):
            a = kiln.tensor(A) + 1
            q = (a * 2).named('q')
        with self.assertRaisesRegex(kiln.Error, r'\(a is "layer3"\)'):
            a + np.zeros(5, np.float32)
        with self.assertRaisesRegex(kiln.Error, r'\(a is "q"\)'):
            q + np.zeros(5, np.float32)
        with self.assertRaisesRegex(kiln.Error, r'\[5\] do not broadcast$'):
            kiln.tensor(A) + np.zeros(5, np.float32)

    def test_precision(self):
        """products are computed as their batch says, also when it is recorded again"""
        lib = kiln._library.lib
        with unittest.mock.patch.object(lib, 'kiln_batch_set_precision',
                                        wraps=lib.kiln_batch_set_precision) as said:
            with kiln.batch(precision='tf32') as b:
                with self.assertRaises(kiln.Error):
                    kiln.tensor(A) + np.zeros(5, np.float32)
                x = b.read(kiln.tensor(A) @ np.eye(4, dtype=np.float32))
        self.assertEqual([call.args[1] for call in said.call_args_list], [2, 2])
        np.testing.assert_array_equal(x.numpy(), A)
        with self.assertRaisesRegex(ValueError, "'tf32'"):
            kiln.batch(precision='half')

    def test_narrow_precision(self):
        """operands of products are rounded, and results are f32, of batches, functions, executors"""
        x, w = np.float32([[1 + 2 ** -10, 300]]), np.float32([[1], [1]])
        with kiln.batch(precision='bf16') as b:
            y = b.read(kiln.tensor(x) @ w)
        self.assertEqual(y.numpy(), 301)
        product = kiln.function(lambda x: x @ w, precision='f16')
        self.assertEqual(product(x).numpy(), np.float32(301 + 2 ** -10))
        self.assertEqual(kiln.function(lambda x: x @ w)(x).numpy(), np.float32(301 + 2 ** -10))
        x[0, 0] = 1 + 2 ** -12
        self.assertEqual(product(x).numpy(), 301)
        weights = kiln.Buffer(w)
        with kiln.Executor(lambda inputs: inputs[0] @ weights, [kiln.Row((2,))],
                           precision='bf16') as executor:
            result = executor.submit(x).result()
        self.assertEqual(result.dtype, np.float32)
        self.assertEqual(result[0, 0], 301)
        with self.assertRaisesRegex(ValueError, "'tf32'"):
            kiln.function(lambda x: x, precision='half')

    def test_options_of_a_batch(self):
        """how a batch adds up and runs is said again when it is recorded anew; rows add up alike"""
        lib = kiln._library.lib
        x, w = np.float32(np.random.RandomState(1).rand(9, 40)), np.ones((40, 3), np.float32)
        made = []
        with unittest.mock.patch.object(lib, 'kiln_batch_set_batch_invariant',
                                        wraps=lib.kiln_batch_set_batch_invariant) as alike, \
                unittest.mock.patch.object(lib, 'kiln_batch_set_independent',
                                           wraps=lib.kiln_batch_set_independent) as apart:
            for rows in (2, 9):
                with kiln.batch(batch_invariant=True, independent=True) as b:
                    with self.assertRaises(kiln.Error):
                        kiln.tensor(A) + np.zeros(5, np.float32)
                    made.append(b.read(kiln.tensor(x[:rows]) @ w))
            with kiln.batch() as b:
                b.read(kiln.tensor(A) + 1)
        self.assertEqual((alike.call_count, apart.call_count), (4, 4))
        np.testing.assert_array_equal(made[0].numpy(), made[1].numpy()[:2])

    def test_rematerialise(self):
        """what was recorded in a batch that ran without it is recorded again"""
        a = kiln.tensor(A)
        b = a * 2
        c = b + 1
        d = a + 5
        np.testing.assert_array_equal(d.numpy(), A + 5)
        np.testing.assert_array_equal(c.numpy(), A * 2 + 1)
        np.testing.assert_array_equal(b.numpy(), A * 2)
        with self.assertRaises(ValueError):
            c.numpy()[0] = 1
        c.numpy(copy=True)[0] = 1

    def test_deep(self):
        """an expression of thousands of operations is recorded again without recursion"""
        a = kiln.tensor(np.ones(3, np.float32))
        b = a
        for _ in range(3000):
            b = b + 1
        other = kiln.tensor(A).sum()
        other.numpy()
        self.assertEqual(kiln._tape.recorded(b.context, lambda tape: tape.handle(b)).id != 0, True)

    def test_in_place(self):
        """the operators that write update a buffer, which stays the same object"""
        w = same = kiln.Buffer(np.float32([1, 2, 3]))
        before = w * 1
        w -= 0.5 * w
        self.assertIs(w, same)
        np.testing.assert_array_equal(same.numpy(), np.float32([0.5, 1, 1.5]))
        with self.assertRaisesRegex(kiln.Error, 'written since'):
            before.numpy()
        w += 1
        w *= [1, 2, 4]
        w /= 2
        w **= 2
        w //= 3
        w %= 2
        np.testing.assert_array_equal(same.numpy(), (np.float32([.75, 2, 5]) ** 2 // 3) % 2)
        m = kiln.Buffer(np.eye(2, dtype=np.float32))
        m @= np.float32([[1, 2], [3, 4]])
        np.testing.assert_array_equal(m.numpy(), [[1, 2], [3, 4]])
        n = kiln.Buffer(np.int32([5, 6]))
        n <<= 2
        n >>= 1
        n |= 1
        n &= 13
        n ^= 2
        np.testing.assert_array_equal(n.numpy(), ((np.int32([5, 6]) << 2 >> 1 | 1) & 13) ^ 2)
        with self.assertRaisesRegex(TypeError, 'a buffer of i32 is updated by a tensor of f32'):
            n /= 2
        with self.assertRaises(kiln.Error):
            m += np.zeros((3, 2, 2), np.float32)
        with kiln.batch() as b:
            m += 1
            read = b.read(m * 2)
        np.testing.assert_array_equal(read.numpy(), [[4, 6], [8, 10]])

    def test_position(self):
        """a buffer is written where a tensor says, in its own type, by one launch, and nowhere else"""
        rng = np.random.default_rng(0)
        for name in ('f32', 'bf16', 'f16', 'i8', 'u8', 'bool', 'i32', 'i64'):
            cache = kiln.Buffer.empty((2, 3, 8, 4), name)
            cache[...] = kiln.tensor(rng.integers(0, 99, (2, 3, 8, 4)).astype(np.float32)).astype(name)
            old, new = cache.numpy().copy(), rng.integers(0, 2, (2, 3, 1, 4)).astype(np.float32)
            row, one = kiln.Buffer(np.int32([0])), kiln.Buffer(np.int32(0))
            given = kiln.Buffer(new)
            with kiln.batch() as in_row:
                cache[:, :, row] = given * 1
            with kiln.batch() as alone:
                cache[:, :, one] = given.reshape(2, 3, 4)
            with kiln.batch() as beside:
                cache[1, 1:, one] = 1
            self.assertEqual([in_row.cost().launches, alone.cost().launches], [1, 1])
            for at in (0, 5, 7, -1, -8, 8, -9):
                row[...], one[...] = np.int32([at]), np.int32(at)
                for batch, where, value in ((in_row, np.s_[:, :, at], new[:, :, 0]),
                                            (alone, np.s_[:, :, at], new[:, :, 0]),
                                            (beside, np.s_[1, 1:, at], 1)):
                    cache[...], wanted = old, old.copy()
                    if -8 <= at < 8:
                        wanted[where] = value
                    batch.run()
                    np.testing.assert_array_equal(cache.numpy(), wanted)

    def test_position_in_each_row(self):
        """rows at positions of their own, what was there before and is there behind"""
        cache = kiln.Buffer(np.arange(24, dtype=np.float32).reshape(2, 4, 3))
        old, at = cache.numpy().copy(), np.int32([2, -4])
        with kiln.batch() as b:
            before = b.read(kiln.slice_at(cache, at, 1, 1))
            cache[...] = kiln.update_slice(cache, -kiln.ones((2, 1, 3)), at, 1)
            after = b.read(cache + 0)
        wanted = old.copy()
        wanted[[0, 1], at] = -1
        np.testing.assert_array_equal(before.numpy(), old[[0, 1], at][:, None])
        np.testing.assert_array_equal(after.numpy(), wanted)
        np.testing.assert_array_equal(cache.numpy(), wanted)

    def test_as_much_of_a_cache_as_there_is(self):
        """attention over the rows that were put there, in chunks of other sizes, beside numpy"""
        rng = np.random.default_rng(3)
        q, k, v = (rng.standard_normal((2, 3, 7, 8)).astype(np.float32) for _ in 'qkv')
        room = np.full((2, 3, 10, 8), np.nan, np.float32)
        keys, values = kiln.Buffer(room), kiln.Buffer(room)
        scores = q @ k.swapaxes(2, 3) / np.sqrt(8) + np.where(np.tril(np.ones((7, 7))), 0, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        wanted = weights / weights.sum(-1, keepdims=True) @ v

        @kiln.function
        def step(q, k, v, at):
            for cache, new in ((keys, k), (values, v)):
                cache[...] = kiln.update_slice(cache, new, at, 2)
            return kiln.attention(q, keys, values, lengths=at + q.shape[2], causal=1)

        for first, end in ((0, 3), (3, 4), (4, 5), (5, 7)):
            y = step(*(x[:, :, first:end] for x in (q, k, v)), np.int32(first))
            np.testing.assert_allclose(y.numpy(), wanted[:, :, first:end], rtol=1e-5, atol=1e-6)
        own = kiln.attention(q, keys, values, lengths=np.int32([7]), causal=1, window=1)
        np.testing.assert_allclose(own.numpy(), v, rtol=1e-6)
        for given in ({}, {'lengths': np.int32([7])}):
            last = kiln.attention(q, k, v, window=1, **given)
            np.testing.assert_allclose(last.numpy(), np.broadcast_to(v[:, :, 6:], v.shape), rtol=1e-6)
        each = kiln.attention(q[:, :, 6:], k, v, lengths=np.int32([[0], [7]])).numpy()
        np.testing.assert_array_equal(each[0], 0)
        np.testing.assert_allclose(each[1], wanted[1, :, 6:], rtol=1e-5, atol=1e-6)

    def test_content_that_is_to_come(self):
        """a buffer has no content to read while a batch is to write it"""
        w = kiln.Buffer(A)
        with kiln.batch() as b:
            w[...] = w + 1
            with self.assertRaisesRegex(kiln.Error, 'is read in a batch that writes it'):
                w.numpy()
            with self.assertRaisesRegex(kiln.Error, 'is mapped in a batch that writes it'):
                w.mapped().__enter__()
            b.run()
            np.testing.assert_array_equal(w.numpy(), A + 1)

    def test_asked_after_cost(self):
        """what is asked of a batch after its cost is computed, too"""
        w = kiln.Buffer(A)
        with kiln.batch() as b:
            x = b.read(kiln.tensor(A) * 2)
            b.cost()
            y = b.read(kiln.tensor(A) * 3)
            b.explain()
            w[...] = w + 1
        for got, wanted in ((x, A * 2), (y, A * 3), (w, A + 1)):
            np.testing.assert_array_equal(got.numpy(), wanted)

    def test_batch(self):
        """a batch runs once at its end, and again with new content"""
        x = A.copy()
        w = kiln.Buffer(np.zeros(4, np.float32))
        out = np.empty((3, 4), np.float32)
        with kiln.batch() as b:
            t = kiln.tensor(x)
            total = b.read((t + w).sum(axis=0))
            b.read(t + 0, out=out)
            w[...] = w + t[0]
            twice = b.read(w * 2)  # w as it is written above
        np.testing.assert_array_equal(total.numpy(), A.sum(0))
        np.testing.assert_array_equal(twice.numpy(), A[0] * 2)
        np.testing.assert_array_equal(out, A)
        x += 1
        b.run()
        np.testing.assert_array_equal(w.numpy(), A[0] * 2 + 1)
        self.assertGreater(b.cost().launches, 0)
        self.assertIn('sum', b.explain())
        with self.assertRaises(ZeroDivisionError):
            with kiln.batch():
                w[...] = w + 1
                1 / 0
        np.testing.assert_array_equal(w.numpy(), A[0] * 2 + 1)

    def test_launches(self):
        """neither a reshape nor a square makes a launch of its own"""
        x, w, bias = np.ones((6, 4), np.float32), np.ones((4, 8), np.float32), np.ones(8, np.float32)
        half = kiln.Buffer.zeros((2, 3, 4, 8), 'f16')

        def grows():
            z = 0 * kiln.tensor(bias)
            for _ in range(20):
                z = z * z + bias
            return z

        for record, wanted in (
                (lambda: kiln.gelu(kiln.tensor(x) @ w + bias).reshape(2, 3, 8), 1),
                (lambda: kiln.tanh((kiln.tensor(x) @ w).reshape(2, 3, 8) + bias), 1),
                (lambda: kiln.attention(half, half, half).transpose(0, 2, 1, 3).reshape(8, 24), 1),
                (grows, 2)):
            with kiln.batch() as b:
                b.read(record())
            self.assertLessEqual(b.cost().launches, wanted)

    def test_buffers(self):
        """buffers are written whole and in parts, and what was made of them before says so"""
        w = kiln.Buffer(A)
        before = w + 1
        late = w.tensor()
        kiln.function(lambda: w.__setitem__(1, w[1] * 2))()  # in a batch of its own
        with self.assertRaisesRegex(kiln.Error, 'written since'):
            before.numpy()
        w[1] = -1
        w[:, ::3] = np.float32([7, 8])
        wanted = A.copy()
        wanted[1] = -1
        wanted[:, ::3] = [7, 8]
        np.testing.assert_array_equal(w.numpy(), wanted)
        with self.assertRaisesRegex(kiln.Error, 'written since'):
            before.numpy()
        with self.assertRaisesRegex(kiln.Error, 'written since'):
            late + 1
        with w.mapped() as array:
            array[...] = 2
        np.testing.assert_array_equal(np.asarray(w + A), A + 2)
        with kiln.Buffer.empty((0, 3)).mapped() as array:
            self.assertEqual(array.shape, (0, 3))
        i = kiln.Buffer.zeros((2,), 'i32')
        i[...] = [1, 2]
        self.assertEqual(i.numpy().tolist(), [1, 2])
        kept = (kiln.tensor(A) + w).eval()
        np.testing.assert_array_equal(kept.numpy(), A + 2)

    def test_functions(self):
        """functions are recorded for each kind of arguments, and run without planning"""
        calls = []

        @kiln.function
        def f(x, factor, names):
            calls.append(x.shape)
            return {'y': x * factor, 'z': (x.sum(), names['bias'] + 1)}
        for k in range(3):
            y = f(A + k, 2, {'bias': np.ones(3, np.float32) * k})
            np.testing.assert_array_equal(y['y'].numpy(), (A + k) * 2)
            self.assertEqual(y['z'][0].item(), (A + k).sum())
            self.assertEqual(y['z'][1].numpy().tolist(), [k + 1] * 3)
        before = kiln.default_context().stats
        f(kiln.tensor(A) , 2, {'bias': np.ones(3, np.float32)})
        after = kiln.default_context().stats
        self.assertEqual(calls, [(3, 4)])
        self.assertEqual(after.plans_made + after.plans_reused,
                         before.plans_made + before.plans_reused)
        f(A[:2], 2, {'bias': np.ones(3, np.float32)})
        f(A, 3, {'bias': np.ones(3, np.float32)})
        self.assertEqual(f.recordings, 3)
        for asks in (lambda x: x * float(x[0, 0]), lambda x: x * x.numpy().max(), lambda x: x * float(x),
                     lambda x: x * 2 if (np.asarray(x) > 0).any() else x):
            with self.assertRaisesRegex(kiln.Error, 'there is no value yet'):
                kiln.function(asks)(A[:1, :1])
        with self.assertRaisesRegex(kiln.Error, 'a value is asked for'):
            kiln.function(lambda x: float(x.sum()))(A)
        leaked = []
        kiln.function(lambda x: leaked.append(x) or x + 1)(A)
        with self.assertRaisesRegex(kiln.Error, 'has returned'):
            leaked[0] + 1

    def test_arguments(self):
        """a function reads this call's arguments wherever they lie, and keeps calls apart"""
        f = kiln.function(lambda tree, more=None, **named: (
            tree, kiln.sum(kiln.stack([kiln.sum(x) for x in kiln._tree.leaves_of((tree, more, named))]))))
        x, y = A[0] + 1, A[1] * 3
        calls = [((x, (y,)), {}), (((x,), y), {}), (([x], y), {}), (([x, y],), {}), (((x, y),), {}),
                 ((((x,), y),), {}), ((((x, y),),), {}),
                 (({'a': x, 'b': y},), {}), (({'b': x, 'a': y},), {}), ((x,), {'named': y}),
                 ((x, {'named': y}), {}), ((x, y), {}), (((x, None), y), {}), (((None, x), y), {}),
                 ((x, y), {'third': 2.0}), ((x, y), {'third': np.float32(2)})]
        for again in range(2):
            for arguments, named in calls:
                tree, total = f(*arguments, **named)
                self.assertIs(type(tree), kiln.Tensor if arguments[0] is x else type(arguments[0]))
                leaves = kiln._tree.leaves_of((arguments, named))
                self.assertAlmostEqual(total.item(), sum(float(np.sum(leaf)) for leaf in leaves), 3)
        self.assertEqual(f.recordings, len(calls))
        # Memory of all kinds, each read where it is now; what was given before stays as it was.
        double = kiln.function(lambda x: x * 2)
        written = kiln.tensor(x)
        written[1] = 7
        wide, frozen = np.arange(8, dtype=np.float32), y.copy()
        frozen.flags.writeable = False
        given = [x, y, x + y, frozen, wide[::2], wide[::-2], x.astype(np.float64), x.astype('>f4'),
                 x.view(np.memmap), kiln.tensor(y), written, kiln.tensor(x) + 1,
                 np.frombuffer(b'.' + x.tobytes(), np.float32, 4, 1)]
        made = [double(g) for g in given for _ in range(2)]
        self.assertEqual(double.recordings, 1)
        for i, result in enumerate(made):
            np.testing.assert_array_equal(result.numpy(), np.asarray(given[i // 2], np.float32) * 2)
        x += 1
        np.testing.assert_array_equal(double(x).numpy(), x * 2)
        for array in [x, wide[::2], wide[3:], wide[:0], np.full((), 3, np.float32), frozen]:
            self.assertEqual(address_of(array), array.ctypes.data)
        # Of kinds that come and go the last 32 are kept.
        for n in (*range(40), 0, 39):
            np.testing.assert_array_equal(double(np.ones(n, np.float32)).numpy(), np.full(n, 2))
        self.assertEqual(double.recordings, 32)

    def test_writing_outside(self):
        """what is recorded writes into no tensor from outside, which keeps its value; into others it does"""
        outside = kiln.tensor(A) * 2

        def written(x):
            made = kiln.tensor(A)
            made[0], x[1] = x[0], made[1]
            outside[0] = x[0]
            return x + made

        def derived(x):
            return (), kiln.grad(lambda y: kiln.sum(written(y)))(x)
        x = kiln.tensor(A)
        for record in (lambda: kiln.function(written)(x), lambda: kiln.Executor(lambda rows: written(rows[0]), [((4,),)]),
                       lambda: kiln.Parallel(lambda i: derived(x), lambda i, g: None, [kiln.default_context()])):
            with self.assertRaisesRegex(kiln.Error, 'writes into a tensor from outside'):
                record()
        np.testing.assert_array_equal(outside.numpy(), 2 * A)
        kiln.grad(lambda y: kiln.sum(written(y)))(x)  # which records nothing that stays
        np.testing.assert_array_equal(outside.numpy(), np.concatenate([A[:1], 2 * A[1:]]))

    def test_gradients(self):
        """gradients agree with finite differences, of nested arguments and of gradients"""
        def loss(p, x):
            return kiln.sum(kiln.tanh(x @ p['w'] + p['b']) ** 2)
        rng = np.random.default_rng(5)
        p = {'w': rng.normal(size=(4, 2)).astype(np.float32) / 4, 'b': np.ones(2, np.float32) / 2}
        x = rng.normal(size=(3, 4)).astype(np.float32)
        value, gradient = kiln.value_and_grad(loss)(p, x)
        # The value alone first: the gradient is recorded again, through what has lost its expression.
        reference = np.sum(np.tanh(x @ p['w'] + p['b']) ** 2)
        np.testing.assert_allclose(value.item(), reference, 1e-5)
        for name in p:
            wanted = np.empty_like(p[name])
            for at in np.ndindex(*p[name].shape):
                ends = []
                for step in (1e-4, -1e-4):
                    moved = {k: v.astype(np.float64) for k, v in p.items()}
                    moved[name][at] += step
                    ends.append(np.sum(np.tanh(x @ moved['w'] + moved['b']) ** 2))
                wanted[at] = (ends[0] - ends[1]) / 2e-4
            np.testing.assert_allclose(gradient[name].numpy(), wanted, 1e-3, 1e-4)
        second = kiln.grad(lambda t: kiln.grad(lambda u: kiln.sum(u ** 3))(t).sum())
        made = second(np.float32([1, 2]))
        other = kiln.tensor(A) + 1
        other.numpy()
        np.testing.assert_allclose(made.numpy(), [6, 12], 1e-5)
        with self.assertRaisesRegex(TypeError, 'only floating'):
            kiln.grad(kiln.sum)(np.int32([1]))
        with self.assertRaisesRegex(kiln.Error, 'a single element'):
            kiln.grad(lambda t: t * 2)(A)

    def test_optimisers(self):
        """an optimiser follows its method, by itself and inside of a function"""
        w = [kiln.Buffer(np.float32([1, 2])), kiln.Buffer(np.float32([[3]]))]
        optimizer = kiln.optim.SGD(w, learning_rate=0.5, momentum=0.5)

        @kiln.function
        def step(x):
            value, gradients = kiln.value_and_grad(
                lambda p: (p[0] * x).sum() + p[1].sum())(w)
            optimizer.step(gradients)
            return value
        x = np.float32([1, -1])
        self.assertEqual(step(x).item(), 2)
        np.testing.assert_allclose(w[0].numpy(), [0.5, 2.5])
        optimizer.learning_rate = 1
        self.assertEqual(step(x).item(), 0.5 - 2.5 + 2.5)
        np.testing.assert_allclose(w[0].numpy(), [0.5 - 1.5, 2.5 + 1.5])
        optimizer.step([kiln.zeros(2), kiln.ones((1, 1))])
        np.testing.assert_allclose(w[0].numpy(), [-1 - 0.75, 4 + 0.75])
        self.assertEqual(len(optimizer.state), 3)
        self.assertEqual(step.recordings, 1)

    def test_nothing_is_copied(self):
        """where memory is shared arrays are used in place, both ways"""
        context = kiln.default_context()
        if not context.device.shares_host_memory:
            self.skipTest('the device has memory of its own')
        f = kiln.function(lambda x: x + 1)
        big = np.zeros((256, 1024), np.float32)
        f(big)
        before = context.stats
        result = f(big)
        lazy = (kiln.tensor(big) + 1).numpy()
        after = context.stats
        self.assertEqual(after.upload_bytes - before.upload_bytes, 0)
        self.assertEqual(after.download_bytes - before.download_bytes, 0)
        self.assertTrue(np.shares_memory(result.numpy(), result.numpy()))
        self.assertEqual(lazy[0, 0], 1)
        self.assertTrue(np.shares_memory(kiln.tensor(big).numpy(), big))

    def test_files(self):
        """buffers and what an optimiser remembers go into a file and come back"""
        w = {'layers': [kiln.Buffer(A), kiln.Buffer(np.float32(2))], 'n': kiln.Buffer(np.int32([7]))}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / 'a.safetensors'
            kiln.save(path, {**w, 'array': np.float16([1, 2])})
            self.assertEqual(kiln.saved(path)['layers.0'], (kiln.f32, (3, 4)))
            loaded = kiln.load(path)
            self.assertEqual(set(loaded), {'layers.0', 'layers.1', 'n', 'array'})
            np.testing.assert_array_equal(loaded['layers.0'].numpy(), A)
            self.assertEqual(loaded['array'].dtype, np.float16)
            w['layers'][0][...] = 0
            kiln.load_into(path, w)
            np.testing.assert_array_equal(w['layers'][0].numpy(), A)
            with self.assertRaisesRegex(kiln.Error, 'nonesuch'):
                kiln.load(path, ['nonesuch'])
            with self.assertRaises(kiln.Error) as caught:
                kiln.load(path / 'none')
            self.assertEqual(caught.exception.status, 'IO_ERROR')

    def test_threads(self):
        """threads share contexts, functions and tensors"""
        f = kiln.function(lambda x, y: x * 2 + y)
        shared = kiln.tensor(A) + 3
        failures = []

        def work(number):
            try:
                for k in range(5):
                    got = f(A + number, np.float32([k] * 4)).numpy()
                    np.testing.assert_array_equal(got, (A + number) * 2 + k)
                np.testing.assert_array_equal((shared + number).numpy(), A + 3 + number)
            except Exception as error:
                failures.append(error)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


if __name__ == '__main__':
    unittest.main()
