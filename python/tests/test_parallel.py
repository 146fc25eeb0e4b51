# SPDX-License-Identifier: Apache-2.0
"""Training on several contexts."""
import unittest

import numpy as np

import kiln


class Parallel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.contexts = [kiln.Context(), kiln.Context()]

    def weights(self, value=(1, 2)):
        return [{'w': kiln.Buffer(np.float32(value), context=c)} for c in self.contexts]

    def test_steps(self):
        """each context's rows count by its share, arrays are read anew, weights stay equal"""
        weights, calls = self.weights(), []
        rows = [np.float32([3, 0]), np.float32([0, 6])]

        def record(i):
            calls.append(i)
            return kiln.value_and_grad(lambda p: (p['w'] * rows[i]).sum())(weights[i])

        def update(i, gradients):
            weights[i]['w'][...] = weights[i]['w'] - gradients['w']
        with kiln.Parallel(record, update, self.contexts, shares=[2, 1]) as parallel:
            losses = parallel.step()
            self.assertEqual([loss.item() for loss in losses], [3, 12])
            for w in weights:
                np.testing.assert_allclose(w['w'].numpy(), [1 - 2, 2 - 2], 1e-6)
            rows[0][...] = [0, 3]
            again = parallel.step()
            np.testing.assert_allclose([loss.item() for loss in again], [0, 0], atol=1e-5)
            self.assertEqual([loss.item() for loss in losses], [3, 12])
            stale = weights[0]['w'] + 1
            parallel.step()
            with self.assertRaisesRegex(kiln.Error, 'written since'):
                stale.numpy()
        for w in weights:
            np.testing.assert_allclose(w['w'].numpy(), [-1, -8], 1e-6)
        self.assertEqual(calls, [0, 1])
        with self.assertRaisesRegex(kiln.Error, 'the training is closed'):
            parallel.step()
        parallel.close()

    def test_optimisers(self):
        """optimisers step by the averages; the value may be anything, or nothing"""
        weights = self.weights()
        optimizers = [kiln.optim.SGD(w, learning_rate=0.5) for w in weights]
        parallel = kiln.Parallel(
            lambda i: ({'sum': weights[i]['w'].sum(), 'i': i, 'none': None},
                       [kiln.full((2,), i + 1.0, 'f32', context=self.contexts[i])]),
            lambda i, gradients: optimizers[i].step(gradients), self.contexts)
        for expected in (3, 1.5):
            self.assertEqual([(v['sum'].item(), v['i'], v['none']) for v in parallel.step()],
                             [(expected, 0, None), (expected, 1, None)])
        np.testing.assert_allclose(weights[1]['w'].numpy(), [-0.5, 0.5])

    def test_refused(self):
        """what a callback raises arrives as it is, and the library's errors say the context"""
        weights = self.weights()

        def make(record, update=lambda i, gradients: None, **options):
            return kiln.Parallel(record, update, self.contexts, **options)

        def well(i):
            return None, weights[i]['w'] * 2
        with self.assertRaises(ZeroDivisionError):
            make(lambda i: 1 / (1 - i) and well(i))
        with self.assertRaises(KeyboardInterrupt):
            make(well, lambda i, gradients: (_ for _ in ()).throw(KeyboardInterrupt()))
        with self.assertRaisesRegex(kiln.Error, 'do not broadcast'):
            make(well, lambda i, gradients: gradients + np.zeros(5, np.float32))
        with self.assertRaisesRegex(ValueError, 'gives 1 gradients, not 2'):
            make(well, gradients=2)
        with self.assertRaisesRegex(TypeError, 'a value and gradients'):
            make(lambda i: weights[i]['w'])
        with self.assertRaisesRegex(ValueError, '1 shares for 2 contexts'):
            make(well, shares=[1])
        with self.assertRaisesRegex(kiln.Error, 'context 1: gradient 0|in context 1') as caught:
            make(lambda i: (None, kiln.zeros(2 + i, context=self.contexts[i])))
        self.assertEqual(caught.exception.status, 'SHAPE_MISMATCH')
        with self.assertRaisesRegex(kiln.Error, 'there is no value yet'):
            make(lambda i: (float(weights[i]['w'].sum()), weights[i]['w']))
        with self.assertRaisesRegex(kiln.Error, 'are the same'):
            kiln.Parallel(well, well, [self.contexts[0]] * 2)
        self.assertEqual((weights[0]['w'] + 1).numpy().tolist(), [2, 3])


if __name__ == '__main__':
    unittest.main()
