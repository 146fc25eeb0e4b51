# SPDX-License-Identifier: Apache-2.0
"""Queues and memory lent to kiln and taken out of it: beside pyopencl, where it is there."""
import gc
import types
import unittest

import numpy as np

import kiln
import kiln.opencl

try:
    import pyopencl
except ImportError:
    pyopencl = None


def lend(queue):
    """What pyopencl would show of the queue of a context of kiln's."""
    found = kiln.opencl.objects(queue)
    context, device, queue = (types.SimpleNamespace(int_ptr=pointer) for pointer in found)
    queue.context, queue.device = context, device
    return queue


class Lent(unittest.TestCase):
    def test_queue_and_memory(self):
        own = kiln.Context()
        x = kiln.Buffer(np.arange(6, dtype='f').reshape(2, 3), context=own)
        with kiln.opencl.context(lend(own)) as context:
            self.assertEqual(kiln.opencl.objects(context), kiln.opencl.objects(own))
            self.assertEqual(context.device.name, own.device.name)
            same = kiln.opencl.buffer(kiln.opencl.memory(x), (3, 2), context=context)
            self.assertEqual(kiln.opencl.memory(same), kiln.opencl.memory(x))
            np.testing.assert_array_equal((same + 1).numpy(), np.arange(1, 7).reshape(3, 2))
            same[...] = same * 2
            np.testing.assert_array_equal(x.numpy(), 2 * np.arange(6).reshape(2, 3))
            del x, own
            gc.collect()
            np.testing.assert_array_equal(same.numpy()[0], [0, 2])
            half = kiln.opencl.buffer(kiln.opencl.memory(same), 12, 'f16', context=context)
            self.assertEqual(half.nbytes, same.nbytes)

    def test_options(self):
        own = kiln.Context()
        with kiln.opencl.context(lend(own), validate=1, precision='exact') as context:
            self.assertEqual((kiln.tensor([1.0, 2.0], context=context) * 2).tolist(), [2, 4])

    def test_refused(self):
        own = kiln.Context()
        x, nothing = kiln.Buffer.zeros(3, context=own), kiln.Buffer.zeros((0, 3), context=own)
        for call, kind, words in (
                (lambda: kiln.opencl.buffer(x, 4, context=own), AttributeError, 'int_ptr'),
                (lambda: kiln.opencl.buffer(kiln.opencl.memory(x), 400, context=own), kiln.Error,
                 'does not fit a cl_mem of'),
                (lambda: kiln.opencl.buffer(None, 4, context=own), kiln.Error, 'memory is NULL'),
                (lambda: kiln.opencl.memory(nothing), kiln.Error, 'without elements'),
                (lambda: kiln.opencl.context(lend(own), device=0), TypeError, 'has its device'),
                (lambda: kiln.opencl.context(lend(own), validate=2), kiln.Error, 'validate is 2'),
                (lambda: kiln.opencl.context(lend(own), nonsense=2), TypeError, 'nonsense')):
            with self.assertRaisesRegex(kind, words):
                call()

    @unittest.skipIf(pyopencl is None, 'pyopencl is not here')
    def test_beside_pyopencl(self):
        """The program of doc/opencl.md."""
        queue = pyopencl.CommandQueue(pyopencl.create_some_context(interactive=False))
        program = pyopencl.Program(queue.context, '''
            kernel void fill(global float *x) { x[get_global_id(0)] = get_global_id(0); }
            kernel void add(global float *y, global const float *x) {
                y[get_global_id(0)] += x[get_global_id(0)];
            }''').build()
        n = 1000
        x, y = (pyopencl.Buffer(queue.context, pyopencl.mem_flags.READ_WRITE, 4 * n) for _ in 'xy')
        context = kiln.opencl.context(queue)
        kx, ky = (kiln.opencl.buffer(m, n, context=context) for m in (x, y))
        program.fill(queue, (n,), None, x)
        ky[...] = kiln.sqrt(kx) * 2
        program.add(queue, (n,), None, y, x)
        found = np.empty(n, 'f')
        pyopencl.enqueue_copy(queue, found, y)
        np.testing.assert_allclose(found, 2 * np.sqrt(np.arange(n)) + np.arange(n), 1e-6)
        # And the other way: memory of kiln's in a command of pyopencl's.
        made = kiln.Buffer(np.arange(4, dtype='f'), context=context)
        seen = pyopencl.MemoryObject.from_int_ptr(kiln.opencl.memory(made))
        pyopencl.enqueue_copy(queue, found[:4], seen)
        np.testing.assert_array_equal(found[:4], [0, 1, 2, 3])


if __name__ == '__main__':
    unittest.main()
