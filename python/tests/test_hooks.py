# SPDX-License-Identifier: Apache-2.0
"""Hooks of gradients: of tensors on the way, and of buffers."""
import unittest

import numpy as np

import kiln


class Hooks(unittest.TestCase):
    def test_tensors(self):
        """a gradient goes through the hook on its way to what the tensor was made of, and to nothing else"""
        x, calls = np.float32([1, -2, 3]), []

        def loss(x, form):
            h = x * 2
            before = kiln.sum(h)  # made of h as it was
            calls.append(h.register_hook(form))
            return kiln.sum(kiln.square(h)) + before
        for form, wanted in ((lambda g: -0.5 * g, -4 * x + 2), (lambda g: None, 8 * x + 2),
                             (lambda g: kiln.clip(g, -1, 1), 2 * np.sign(x) + 2)):
            value, found = kiln.value_and_grad(lambda x: loss(x, form))(x)
            np.testing.assert_allclose(found.numpy(), wanted)
            self.assertEqual(float(value), 60)

        def removed(x):
            with x.register_hook(lambda g: g * 100):
                pass
            return kiln.sum(x * x)
        np.testing.assert_allclose(kiln.grad(removed)(x).numpy(), 2 * x)

    def test_types(self):
        for kind in 'f16', 'bf16':
            x = kiln.tensor(np.float32([1, 2]), kind)

            def loss(x):
                x.register_hook(lambda g: g * 3)
                return kiln.sum(x.astype('f32') * 2)
            np.testing.assert_array_equal(np.asarray(kiln.grad(loss)(x).numpy(), np.float32), [6, 6])
        with self.assertRaisesRegex(TypeError, 'a hook of a tensor of i32'):
            kiln.tensor([1], 'i32').register_hook(print)
        empty = kiln.zeros((0, 2))
        empty.register_hook(lambda g: g)
        self.assertEqual(empty.numpy().shape, (0, 2))

    def test_buffers(self):
        """hooks of parameters, one behind the other, of those in a module too; in a function as well"""
        layer = kiln.nn.Linear(2, 1, bias=False)
        x = np.float32([[1, 2]])
        first = layer.weight.register_hook(lambda g: g + 1)
        layer.weight.register_hook(lambda g: g * 10)

        def loss(layer):
            return kiln.sum(layer(x))
        self.assertEqual(kiln.grad(loss)(layer)['weight'].tolist(), [[20, 30]])
        self.assertEqual(kiln.function(lambda: kiln.grad(loss)(layer)['weight'])().tolist(), [[20, 30]])
        first.remove()
        first.remove()
        self.assertEqual(kiln.grad(loss)(layer)['weight'].tolist(), [[10, 20]])
        w = kiln.Buffer(np.float32([1, 2]))
        w.register_hook(lambda g: g[:1])
        with self.assertRaisesRegex(kiln.Error, r'a hook gives \[1\] for a gradient \[2\]'):
            kiln.grad(kiln.sum)(w)

    def test_refusals(self):
        outside = kiln.tensor([1.0, 2.0])
        with self.assertRaisesRegex(kiln.Error, 'a tensor from outside'):
            kiln.function(lambda x: outside.register_hook(print) or x)(np.ones(2, np.float32))

        def wrong(g):
            raise ZeroDivisionError('in a hook')

        def loss(x):
            x.register_hook(wrong)
            return kiln.sum(x)
        with self.assertRaisesRegex(ZeroDivisionError, 'in a hook'):
            kiln.grad(loss)(np.float32([1, 2]))


if __name__ == '__main__':
    unittest.main()
