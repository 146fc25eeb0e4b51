# SPDX-License-Identifier: Apache-2.0
"""Memory shown to other libraries and taken from them by DLPack: beside a reader and a writer of capsules
that are made here with ctypes, beside numpy, and beside PyTorch where it is."""
import ctypes
import gc
import os
import subprocess
import sys
import threading
import tracemalloc
import unittest

import numpy as np

import kiln

try:
    import torch
except ImportError:
    torch = None

FLAGS = np.lib.NumpyVersion(np.__version__) >= '2.1.0'  # numpy has DLPack 1
WRITES = np.from_dlpack(np.zeros(1)).flags.writeable  # numpy 2.2 makes all of them read-only
X = np.float32([1, -2.5, 0, 3])
# Of each type of kiln's: DLPack's code and bits, and numpy's type of the bits.
TYPES = {'f32': (2, 32, 'f4'), 'i32': (0, 32, 'i4'), 'u8': (1, 8, 'u1'), 'f16': (2, 16, 'f2'), 'bf16': (4, 16, 'u2'),
         'i64': (0, 64, 'i8'), 'bool': (6, 8, 'u1'), 'i8': (0, 8, 'i1')}
READ_ONLY, IS_COPIED = 1, 2


class DLTensor(ctypes.Structure):
    _fields_ = [('data', ctypes.c_void_p), ('device', 2 * ctypes.c_int32), ('rank', ctypes.c_int32),
                ('code', ctypes.c_uint8), ('bits', ctypes.c_uint8), ('lanes', ctypes.c_uint16),
                ('shape', ctypes.POINTER(ctypes.c_int64)), ('strides', ctypes.POINTER(ctypes.c_int64)),
                ('offset', ctypes.c_uint64)]


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [('tensor', DLTensor), ('context', ctypes.c_void_p), ('deleter', ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [('version', 2 * ctypes.c_uint32), ('context', ctypes.c_void_p), ('deleter', ctypes.c_void_p),
                ('flags', ctypes.c_uint64), ('tensor', DLTensor)]


def function(name, result, *arguments):
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
new_capsule = function('PyCapsule_New', ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, Destructor)
get_name = function('PyCapsule_GetName', ctypes.c_char_p, ctypes.py_object)
get_name_at = function('PyCapsule_GetName', ctypes.c_char_p, ctypes.c_void_p)
get_pointer = function('PyCapsule_GetPointer', ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
get_pointer_at = function('PyCapsule_GetPointer', ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
set_name = function('PyCapsule_SetName', ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
USED = {b'dltensor': b'used_dltensor', b'dltensor_versioned': b'used_dltensor_versioned'}


class Reader:
    """What has taken a capsule: `bits` of the elements, until release()."""

    def __init__(self, capsule):
        name = get_name(capsule)
        kind = {b'dltensor': Managed, b'dltensor_versioned': Versioned}[name]
        self.address = get_pointer(capsule, name)
        self.held = kind.from_address(self.address)
        set_name(capsule, USED[name])
        t = self.held.tensor
        self.flags = self.held.flags if kind is Versioned else None
        self.type = t.code, t.bits, t.lanes
        self.shape = tuple(t.shape[i] for i in range(t.rank))
        self.device = tuple(t.device)
        strides = [t.strides[i] for i in range(t.rank)] if t.strides else None
        assert strides is None or t.rank < 2 or 0 in self.shape or strides[-1] == 1, 'row-major'
        count = int(np.prod(self.shape, dtype=int))
        size = count * t.bits // 8
        memory = (ctypes.c_char * size).from_address((t.data or 0) + t.offset) if size else b''
        self.bits = np.frombuffer(memory, f'u{t.bits // 8}').reshape(self.shape)

    def release(self):
        """In a thread that Python does not know of, as it were: without the interpreter's lock."""
        thread = threading.Thread(target=Deleter(self.held.deleter), args=(self.address,))
        self.held = self.bits = None
        thread.start()
        thread.join()


class Writer:
    """Shows an array by capsules, and counts how often each is released."""
    alive, count = {}, 0

    def __init__(self, array, code, bits, versions=True, lanes=1, device=1, flags=0, offset=0, strides=True,
                 major=1):
        self.array, self.code, self.bits, self.lanes = array, code, bits, lanes
        self.versions, self.device, self.flags, self.offset = versions, device, flags, offset
        self.strides, self.major = strides, major
        self.capsules, self.asked = [], []

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **options):
        self.asked.append(options)
        if options and not self.versions:
            raise TypeError('no options here')
        versioned = bool(options.get('max_version'))
        held = Versioned() if versioned else Managed()
        t, a = held.tensor, self.array
        shape = (ctypes.c_int64 * a.ndim)(*a.shape)
        strides = (ctypes.c_int64 * a.ndim)(*(s // a.itemsize for s in a.strides))
        t.data, t.offset = a.__array_interface__['data'][0] - self.offset, self.offset
        t.device[:], t.rank, t.code, t.bits, t.lanes = (self.device, 0), a.ndim, self.code, self.bits, self.lanes
        t.shape = ctypes.cast(shape, type(t.shape))
        if self.strides:
            t.strides = ctypes.cast(strides, type(t.strides))
        held.deleter = ctypes.cast(self.delete, ctypes.c_void_p).value
        if versioned:
            held.version[:], held.flags = (self.major, 0), self.flags
        address = ctypes.addressof(held)
        self.alive[address] = held, shape, strides, a
        capsule = new_capsule(address, b'dltensor_versioned' if versioned else b'dltensor', self.destroy)
        self.capsules.append(capsule)
        return capsule

    @Deleter
    def delete(address):
        del Writer.alive[address]
        Writer.count += 1

    @Destructor
    def destroy(capsule):
        name = get_name_at(capsule)
        if name in USED:
            Writer.delete(get_pointer_at(capsule, name))


def bits_of(tensor):
    """Of the elements, by the reader here."""
    reader = Reader(tensor.__dlpack__())
    bits = reader.bits.copy()
    reader.release()
    return bits


class Shown(unittest.TestCase):
    """kiln's memory."""

    def made(self, name, values=X):
        return kiln.tensor(np.abs(values) if name in ('u8', 'bool') else values).astype(name)

    def test_types(self):
        """each type of kiln's has its code, in tensors and in buffers"""
        for name, (code, bits, form) in TYPES.items():
            t = self.made(name)
            for x in t, t * 1 if name != 'bool' else t, kiln.Buffer(t), t.astype(name).eval():
                for version in None, (0, 8), (1, 0), (2, 0):
                    with self.subTest(name, kind=type(x), version=version):
                        if x.dtype != name:
                            continue
                        reader = Reader(x.__dlpack__(max_version=version))
                        flagged = FLAGS and version is not None and version[0] >= 1
                        self.assertEqual(reader.flags, IS_COPIED if flagged else None)
                        self.assertEqual((reader.type, reader.shape, reader.device), ((code, bits, 1), (4,), (1, 0)))
                        self.assertEqual(reader.bits.tobytes(), x._host().tobytes())
                        reader.bits[...] = 0
                        reader.release()
                        np.testing.assert_array_equal(x.astype('f32').numpy(), t.astype('f32').numpy())
        self.assertEqual(bits_of(self.made('bf16')).tolist(), [0x3f80, 0xc020, 0, 0x4040])
        self.assertEqual(bits_of(self.made('bool')).tolist(), [1, 1, 0, 1])

    def test_shapes(self):
        """numbers, empty ones, many dimensions; blocks are bytes"""
        for shape in (), (0,), (3, 0, 2), (1, 1), (2, 3, 1, 2), (1,) * 8:
            for name in 'f32', 'bf16':
                values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
                reader = Reader(self.made(name, values).__dlpack__(max_version=(1, 0)))
                self.assertEqual(reader.shape, shape)
                if name == 'f32':
                    self.assertEqual(reader.bits.tobytes(), values.tobytes())
                reader.release()
        blocks = kiln.quantize_blocks(np.ones((2, 64), np.float32), 'q8_0')
        np.testing.assert_array_equal(bits_of(kiln.tensor(blocks, 'q8_0')), blocks)
        np.testing.assert_array_equal(bits_of(kiln.Buffer(blocks, 'q8_0')), blocks)

    def test_lent(self):
        """what is not copied is only to be read, by those who know that"""
        t = (kiln.tensor(X) * 2).astype('bf16')
        with self.assertRaisesRegex(BufferError, 'a tensor never changes.*DLPack 1.0'):
            t.__dlpack__(copy=False)
        with self.assertRaisesRegex(BufferError, 'DLPack 1.0'):
            t.__dlpack__(copy=False, max_version=(0, 8))
        if FLAGS:
            reader = Reader(t.__dlpack__(copy=False, max_version=(1, 0)))
            self.assertEqual((reader.flags, reader.type), (READ_ONLY, (4, 16, 1)))
            self.assertTrue(np.shares_memory(reader.bits, t._host()))
            value = t._host()
            held = sys.getrefcount(value)
            reader.release()
            self.assertEqual(sys.getrefcount(value), held - 1)
            f = kiln.tensor(X) * 3
            lent = np.from_dlpack(f, copy=False)
            self.assertFalse(lent.flags.writeable)
            del f
            gc.collect()
            np.testing.assert_array_equal(lent, X * 3)
            for x in kiln.Buffer(X), (kiln.tensor(X) + 1).eval():
                with self.assertRaisesRegex(BufferError, 'lies on the device'):
                    x.__dlpack__(copy=False, max_version=(1, 0))

    def test_numpy(self):
        """numpy's arrays are copies that can be written"""
        for x in kiln.tensor(X.copy()), kiln.tensor(X) * 1, kiln.Buffer(X):
            array = np.from_dlpack(x)
            np.testing.assert_array_equal(array, X)
            if WRITES:
                array[0] = 99
            np.testing.assert_array_equal(x.numpy(), X)
        w = kiln.Buffer(X)
        before = np.from_dlpack(w)
        w[...] = w + 1
        np.testing.assert_array_equal(before, X)

    def test_refused(self):
        """devices, streams and batches where it cannot be"""
        t = kiln.tensor(X)
        self.assertEqual([x.__dlpack_device__() for x in (t, kiln.Buffer(X))], [(1, 0), (1, 0)])
        for name, value, words in (('dl_device', (2, 1), r'of the host, device \(1, 0\), not of device \(2, 1\)'),
                                   ('stream', 1, 'has no stream, and this is 1')):
            with self.assertRaisesRegex(BufferError, words):
                t.__dlpack__(**{name: value})
        Reader(t.__dlpack__(stream=-1, dl_device=(1, 0), copy=True)).release()
        w = kiln.Buffer(X)
        with kiln.batch():
            w[...] = w + 1
            with self.assertRaisesRegex(kiln.Error, 'has not run'):
                w.__dlpack__()
        with self.assertRaisesRegex(kiln.Error, 'there is no value yet'):
            kiln.function(lambda x: np.from_dlpack(x + 1))(t)

    def test_not_taken(self):
        """a capsule that nobody takes, and one that is taken long after, leave nothing"""
        t = (kiln.zeros(100_000) + 1).eval()

        def round_trip():
            t.__dlpack__()
            for options in {}, {'max_version': (1, 0)}:
                Reader(t.__dlpack__(**options)).release()
        round_trip()
        gc.collect()
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(50):
            round_trip()
        gc.collect()
        self.assertLess(tracemalloc.get_traced_memory()[0] - before, 400_000)

    def test_end(self):
        """capsules and memory may be released when Python is gone"""
        done = subprocess.run([sys.executable, '-c', '''
import ctypes, sys, numpy as np, kiln
from test_dlpack import Reader, FLAGS
libc = ctypes.CDLL(None)
libc.__cxa_atexit.argtypes = [ctypes.c_void_p] * 3
t = kiln.ones(3) * 2
kinds = [{}, {'max_version': (1, 0)}] + [{'max_version': (1, 0), 'copy': False}] * FLAGS
for options in kinds:
    sys.kept = getattr(sys, 'kept', []) + [t.__dlpack__(**options), np.from_dlpack(t), kiln.from_dlpack(np.ones(3))]
    reader = Reader(t.__dlpack__(**options))
    libc.__cxa_atexit(reader.held.deleter, reader.address, None)
'''], capture_output=True, text=True, timeout=600, env={**os.environ, 'PYTHONPATH': os.pathsep.join(
            [os.path.dirname(os.path.abspath(__file__)), os.environ.get('PYTHONPATH', '')])})
        self.assertEqual((done.stderr, done.returncode), ('', 0))


class Taken(unittest.TestCase):
    """The memory of others."""

    def take(self, writer, take=None, released=None):
        """A copy of what kiln makes of it; nothing of the writer's is left, and each was released once."""
        before = Writer.count
        made = (take or kiln.from_dlpack)(writer)
        value, dtype = made.numpy().copy(), made.dtype
        borrowed = np.shares_memory(made._host(), writer.array)
        if borrowed:
            self.assertEqual(len(Writer.alive), 1)
            self.assertEqual(get_name(writer.capsules[-1]), USED[
                b'dltensor_versioned' if writer.asked[-1].get('max_version') else b'dltensor'])
        del made
        writer.capsules.clear()
        gc.collect()
        self.assertEqual(Writer.alive, {})
        self.assertGreater(Writer.count, before)
        return value, dtype, borrowed

    def test_types(self):
        """each type comes as it is, or as the next one of kiln's"""
        for name, (code, bits, form) in TYPES.items():
            numbers = {'bf16': [0x3f80, 0xc020, 0, 0x7f80], 'bool': [0, 1, 1, 0]}.get(name, [1, 2, 0, 100])
            wanted = {'bf16': [1, -2.5, 0, np.inf], 'bool': [False, True, True, False]}.get(name, numbers)
            for versions in True, False:
                for take in kiln.from_dlpack, kiln.tensor, kiln.asarray, lambda x: kiln.function(lambda y: y)(x):
                    value, dtype, borrowed = self.take(Writer(np.array(numbers, form), code, bits, versions), take)
                    self.assertEqual((dtype, value.tolist()), (name, wanted))
                    if take in (kiln.from_dlpack, kiln.tensor, kiln.asarray):
                        self.assertTrue(borrowed)
        for code, form, wanted in ((2, 'f8', 'f32'), (0, 'i2', 'i32'), (1, 'u2', 'i32'), (1, 'u4', 'i64'), (1, 'u8', 'i64')):
            array = np.array([1, 2, 100], form)
            value, dtype, borrowed = self.take(Writer(array, code, array.itemsize * 8))
            self.assertEqual((dtype, value.tolist(), borrowed), (wanted, [1, 2, 100], False))

    def test_wanted(self):
        """in another type, as content of a buffer, among operands"""
        def bf16():
            return Writer(np.array([0x3f80, 0xc020], 'u2'), 4, 16)
        for take, wanted in ((lambda x: kiln.tensor(x, 'f32'), 'f32'), (lambda x: kiln.asarray(x, dtype='f16'), 'f16'),
                             (kiln.Buffer, 'bf16'), (lambda x: kiln.tensor(x, 'bf16'), 'bf16'),
                             (lambda x: kiln.zeros(2) + x, 'f32'), (lambda x: kiln.asarray(x, copy=True), 'bf16')):
            before = len(Writer.alive)
            made = take(bf16())
            self.assertEqual((made.dtype, made.numpy().tolist()), (wanted, [1, -2.5]))
            del made
            gc.collect()
            self.assertEqual(len(Writer.alive), before)
        w = kiln.Buffer.zeros(2, 'bf16')
        w[...] = bf16()
        w[1:] = Writer(np.array([0x4040], 'u2'), 4, 16)
        self.assertEqual(w.numpy().tolist(), [1, 3])
        picked = kiln.tensor(X)[kiln.from_dlpack(Writer(np.uint8([1, 0, 0, 1]), 6, 8))]
        self.assertEqual(picked.numpy().tolist(), [1, 3])

    def test_layouts(self):
        """strides of any sign, an offset in bytes, none, no dimension"""
        a = np.arange(24, dtype=np.uint16).reshape(2, 3, 4) << 7
        for code, wide in ((1, a.astype(np.int32)), (4, (a.astype(np.uint32) << 16).view(np.float32))):
            for name, pick in {'rows': lambda x: x, 'columns': lambda x: x.T, 'every other': lambda x: x[:, ::2, 1::2],
                               'backwards': lambda x: x[::-1, :, ::-1], 'a number': lambda x: x[1, 2, 3:].reshape(()),
                               'empty': lambda x: x[:, :0], 'repeated': lambda x: np.broadcast_to(x[:1], x.shape)}.items():
                with self.subTest(name, code=code):
                    value = self.take(Writer(pick(a), code, 16))[0]
                    np.testing.assert_array_equal(value, pick(wide))
            for offset in 2, 64:
                value = self.take(Writer(a, code, 16, offset=offset, strides=False))[0]
                np.testing.assert_array_equal(value, wide)

    def test_copies(self):
        """a copy where one is asked for, and none where it is forbidden"""
        for writer in Writer(X.copy(), 2, 32), Writer(np.array([0x3f80], 'u2'), 4, 16), Writer(X, 2, 32, flags=READ_ONLY):
            self.assertTrue(self.take(writer)[2])
            self.assertTrue(self.take(writer, lambda x: kiln.from_dlpack(x, copy=False))[2])
            if FLAGS:
                self.assertIs(writer.asked[-1]['copy'], False)
            self.assertFalse(self.take(writer, lambda x: kiln.from_dlpack(x, copy=True))[2])
        for array, bits in (X.astype(np.float64), 64), (X[::2], 32):
            with self.assertRaisesRegex(ValueError, 'it needs a copy'):
                kiln.from_dlpack(Writer(array, 2, bits), copy=False)
        gc.collect()
        self.assertEqual(Writer.alive, {})

    def test_refused(self):
        """what kiln cannot take is refused in a sentence, and released"""
        for options, words in (({'device': 2}, r'Writer lies in memory of CUDA \(DLPack.s device type 2\)'),
                               ({'device': 99}, 'in memory of a device'),
                               ({'code': 10, 'bits': 8}, "no type for elements of DLPack's type code 10 with 8 bits"),
                               ({'lanes': 4}, '32 bits and 4 lanes'), ({'code': 3}, 'type code 3')):
            for take in kiln.from_dlpack, kiln.tensor:
                for versions in True, False:
                    with self.assertRaisesRegex(BufferError, words):
                        take(Writer(X, **{'code': 2, 'bits': 32, 'versions': versions, **options}))
        if FLAGS:
            with self.assertRaises(BufferError):
                kiln.from_dlpack(Writer(X, 2, 32, major=2))
        with self.assertRaisesRegex(TypeError, 'complex64'):
            kiln.from_dlpack(Writer(X.view(np.complex64), 5, 64))
        with self.assertRaisesRegex(TypeError, 'list has no __dlpack__'):
            kiln.from_dlpack([1])

        class Used:
            def __dlpack__(self, **options):
                return capsule

            def __dlpack_device__(self):
                return 1, 0
        capsule = kiln.tensor(X).__dlpack__()
        Reader(capsule).release()
        with self.assertRaises((ValueError, BufferError)):
            kiln.from_dlpack(Used())
        gc.collect()
        self.assertEqual(Writer.alive, {})

    def test_pinned(self):
        """memory of the host that is pinned for a device is taken"""
        for device in 3, 11:
            value, _, borrowed = self.take(Writer(X, 2, 32, device=device))
            self.assertEqual((value.tolist(), borrowed), (X.tolist(), True))

    def test_rounds(self):
        """nothing is left of many rounds"""
        array = np.full(100_000, 0x3f80, np.uint16)
        kiln.from_dlpack(Writer(array, 4, 16)).numpy()
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        before, count = tracemalloc.get_traced_memory()[0], Writer.count
        for _ in range(50):
            kiln.from_dlpack(Writer(array, 4, 16)).sum().numpy()
        gc.collect()
        self.assertEqual(Writer.count - count, 50)
        self.assertLess(tracemalloc.get_traced_memory()[0] - before, 200_000)


@unittest.skipUnless(torch, 'PyTorch is not here')
class Torch(unittest.TestCase):
    def test_given(self):
        """PyTorch has tensors and buffers of each type, which it may write"""
        for name, kind in (('f32', 'float32'), ('f16', 'float16'), ('bf16', 'bfloat16'), ('i64', 'int64'),
                           ('i32', 'int32'), ('i8', 'int8'), ('u8', 'uint8'), ('bool', 'bool')):
            t = kiln.tensor(np.abs(X)).astype(name)
            for x in t, kiln.Buffer(t):
                got = torch.from_dlpack(x)
                self.assertEqual(got.dtype, getattr(torch, kind))
                wanted = x.numpy().tolist()
                self.assertEqual(got.tolist(), wanted)
                got[0] = 0
                self.assertEqual(x.numpy().tolist(), wanted)
        self.assertEqual(torch.from_dlpack(kiln.ones((2, 0, 3))).shape, (2, 0, 3))
        self.assertEqual(float(torch.from_dlpack(kiln.tensor(2.5))), 2.5)
        t = kiln.ones(3) * 2
        if FLAGS:
            self.assertEqual(torch.from_dlpack(t, copy=False).data_ptr(), t._host().ctypes.data)
        kept = torch.utils.dlpack.from_dlpack(t)
        del t
        gc.collect()
        self.assertEqual(kept.tolist(), [2, 2, 2])

    def test_taken(self):
        """kiln has PyTorch's tensors, bf16 too, and borrows them where it can"""
        for kind in torch.float32, torch.bfloat16, torch.float16, torch.bool, torch.int64, torch.uint8:
            given = torch.tensor([[1, 0, 3], [0, 5, 6]]).to(kind)
            for take in kiln.tensor, kiln.from_dlpack, kiln.asarray, kiln.Buffer:
                for x in given, given.T, given[:, ::2], given[:0], given[0, 0]:
                    made = take(x)
                    self.assertEqual(made.dtype, 'bf16' if kind is torch.bfloat16 else str(kind)[6:])
                    self.assertEqual(made.numpy().tolist(), x.tolist())
            borrowed = kiln.from_dlpack(given)
            given[0, 0] = 0
            self.assertEqual(borrowed.numpy()[0, 0], 0)
        tripled = kiln.function(lambda x: x * 3)(torch.tensor([1.5, 2], dtype=torch.bfloat16))
        self.assertEqual(tripled.numpy().tolist(), [4.5, 6])
        with self.assertRaisesRegex(BufferError, 'requires? grad'):
            kiln.from_dlpack(torch.ones(2, requires_grad=True))
        with self.assertRaisesRegex(BufferError, 'type code 10'):
            kiln.from_dlpack(torch.ones(2).to(torch.float8_e4m3fn))

    def test_lives(self):
        """each holds the other's memory, and no longer than it is used"""
        for kind in torch.float32, torch.bfloat16:
            made = kiln.from_dlpack(torch.full((100_000,), 2.0, dtype=kind))
            gc.collect()
            torch.full((100_000,), 3.0, dtype=kind)
            self.assertEqual(float(made.astype('f32').mean()), 2)
            kept = torch.from_dlpack(made)
            del made
            gc.collect()
            self.assertEqual(float(kept.float().mean()), 2)


if __name__ == '__main__':
    unittest.main()
