# SPDX-License-Identifier: Apache-2.0
"""kiln.nn.functional and kiln.nn.utils.rnn: beside PyTorch where it is, and beside what it gave once
everywhere (PyTorch 2.15 on x86-64; `python3 test_nn_functional.py` prints that anew)."""
import inspect
import unittest

import numpy as np

import kiln
import kiln.nn.functional as F
import kiln.nn.utils.rnn as rnn
from test_nn_torch import flat, summary, wave

try:
    import torch
except ImportError:
    torch = None

IDS = np.int64([[1, 0, 3], [3, 3, 2]])
SEEN = np.array([[1, 0, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]], bool)


def activated(F, x):
    """All that are elementwise or of one dimension."""
    return [f(x) for f in (F.relu, F.relu6, F.elu, F.selu, F.gelu, F.silu, F.mish, F.leaky_relu, F.softplus, F.softsign,
                           F.sigmoid, F.logsigmoid, F.tanh, F.hardsigmoid, F.hardswish, F.hardtanh, F.tanhshrink,
                           F.hardshrink, F.softshrink, F.celu)] + \
        [F.glu(x, 0), F.softmax(x, dim=0), F.log_softmax(x, dim=-1), F.softmin(x, dim=1), F.gelu(x, approximate='tanh'),
         F.hardtanh(x, -0.5, 0.25), F.celu(x, 0.5), F.relu(x, inplace=True) if F.__name__.startswith('kiln') else F.relu(x)]


# What is called with floats of these shapes; then, as PyTorch gave it, the first three numbers and two sums over all
# results and gradients of their sum of squares by what is called with.
CASES = {
    'activations': (activated, [(4, 6)]),
    'linear': (lambda F, x, w, b: F.linear(x, w, b), [(2, 3, 4), (5, 4), (5,)]),
    'embedding': (lambda F, w: F.embedding(fixed(F, IDS), w, padding_idx=-1), [(4, 3)]),
    'prelu': (lambda F, x, w: F.prelu(x, w), [(2, 3, 4), (3,)]),
    'conv': (lambda F, x, w, b: F.conv2d(x, w, b, stride=2, padding=(1, 0), groups=2), [(2, 4, 5, 4), (6, 2, 3, 2), (6,)]),
    'convs': (lambda F, x, w: [F.conv1d(x, w, padding='same'), F.conv3d(x[..., None, None], w[..., None, None])],
              [(2, 3, 5), (4, 3, 2)]),
    'transposed': (lambda F, x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1, 2), [(1, 4, 3, 3), (4, 3, 3, 3), (6,)]),
    'pools': (lambda F, x: [F.max_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.adaptive_avg_pool2d(x, 2),
                            F.adaptive_max_pool2d(x, (1, 4)), F.max_pool1d(x[0], 3, 1, 1)], [(1, 2, 4, 4)]),
    'norms': (lambda F, x, w, b: [F.layer_norm(x, (4,), w, b), F.rms_norm(x, [4], w, 1e-5), F.group_norm(x, 2, w, b),
                                  F.instance_norm(x, weight=w, bias=b), F.normalize(x), F.normalize(x, 1.0, -1)],
              [(3, 4, 4), (4,), (4,)]),
    'batchnorm': (lambda F, x, w, b: [F.batch_norm(x, fixed(F, wave((3,), 1)), fixed(F, np.float32([1, 2, 3])), w, b, eps=0.01),
                                      F.batch_norm(x, None, None, w, b, training=True)], [(4, 3, 5), (3,), (3,)]),
    'cosine': (lambda F, x, y: F.cosine_similarity(x, y, dim=-1), [(3, 5), (5,)]),
    'attention': (lambda F, q, k, v: [F.scaled_dot_product_attention(q, k, v, fixed(F, SEEN)),
                                      F.scaled_dot_product_attention(q, k[..., :3, :], v[..., :3, :], is_causal=True, scale=0.3)],
                  [(2, 3, 8), (2, 4, 8), (2, 4, 5)]),
    'shared': (lambda F, q, k, v: F.scaled_dot_product_attention(q, k, v, fixed(F, SEEN), enable_gqa=True),
               [(2, 4, 3, 8), (2, 2, 4, 8), (2, 2, 4, 8)]),
    'pads': (lambda F, x: [F.pad(x, (1, 2), value=0.5), F.pad(x, (2, 1, 0, 1), mode='reflect'),
                           F.pad(x, (1, 1, 1, 0), mode='replicate'), F.pad(x, (3, 0), mode='circular'),
                           F.pad(x, (-1, 2, 1, -2))], [(2, 3, 4)]),
    'resized': (lambda F, x: [F.interpolate(x, size=(5, 3)), F.interpolate(x, scale_factor=1.7, mode='bilinear'),
                              F.interpolate(x, (7, 2), mode='bilinear', align_corners=True),
                              F.interpolate(x, scale_factor=(0.5, 2), mode='nearest-exact'),
                              F.interpolate(x, scale_factor=1.5, mode='bicubic', recompute_scale_factor=True),
                              F.interpolate(x[0], 6, mode='linear'),
                              F.interpolate(x, scale_factor=0.5, mode='bicubic', antialias=True)], [(2, 3, 4, 4)]),
    'shuffled': (lambda F, x: [F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2)], [(2, 8, 2, 4)]),
    'losses': (lambda F, x, y: [F.mse_loss(x, y), F.l1_loss(x, y, reduction='sum'), F.huber_loss(x, y), F.smooth_l1_loss(x, y),
                                F.cross_entropy(x, fixed(F, IDS[:, 0] % 3)),
                                F.nll_loss(x, fixed(F, IDS[:, 0] % 3))], [(2, 3), (2, 3)]),
}
KNOWN = {
    'activations': [0.0, 0.0, 0.0, 127.727, -6.53337],
    'linear': [0.659909, -1.63585, 2.87764, -24.3169, -25.8267],
    'embedding': [-0.449647, 0.23151, 0.803784, -7.31312, -4.28922],
    'prelu': [0.544016, 0.956626, 0.91932, 9.10393, -1.13307],
    'conv': [0.309288, 0.0073908, -0.630209, 70.8896, 119.029],
    'convs': [-0.112932, 0.59209, 1.01864, 39.6249, -53.1364],
    'transposed': [-1.58523, -2.57299, -2.36149, 819.532, -23.7368],
    'pools': [0.803784, 0.998027, 0.247834, 57.2752, 17.8368],
    'norms': [-1.31236, 0.948852, 0.889994, 2.48701, 46.8945],
    'batchnorm': [0.84203, 1.25259, 1.21547, -52.0602, -61.575],
    'cosine': [0.560403, -0.823118, 0.966691, -1.78677, 0.0516878],
    'attention': [-0.190649, 0.178497, 0.463692, 15.0607, -1.47551],
    'shared': [-0.72227, -0.647859, -0.268751, -0.770682, 8.52962],
    'pads': [0.5, -0.544021, -0.956635, -16.3277, 5.80366],
    'resized': [-0.544021, -0.956635, -0.919329, -27.6257, 20.106],
    'shuffled': [-0.544021, 0.107754, -0.956635, -11.0284, -7.18532],
    'losses': [0.376109, 4.82257, 3.74304],
}


def fixed(functions, array):
    """What nothing is derived by, for one of the two."""
    return array if functions is F else torch.tensor(array)


def inputs_of(name):
    return [wave(shape, 10 + i) for i, shape in enumerate(CASES[name][1])]


def of_kiln(name):
    inputs = inputs_of(name)

    def loss(inputs):
        given = flat(CASES[name][0](F, *inputs))
        return sum(kiln.sum(kiln.square(y)) for y in given), given
    (_, given), gradients = kiln.value_and_grad(loss, has_aux=True)(inputs)
    kiln.evaluate(*given, *gradients)
    return [y.numpy() for y in given], [g.numpy() for g in gradients]


def of_torch(name):
    inputs = [torch.tensor(x, requires_grad=True) for x in inputs_of(name)]
    given = flat(CASES[name][0](torch.nn.functional, *inputs))
    sum((y ** 2).sum() for y in given).backward()
    return [y.detach().numpy() for y in given], [x.grad.numpy() for x in inputs]


def said(given, gradients):
    return summary([np.float32(y) for y in given], dict(enumerate(gradients)))


class Functional(unittest.TestCase):
    def test_known_answers(self):
        for name in CASES:
            with self.subTest(name):
                np.testing.assert_allclose(said(*of_kiln(name)), KNOWN[name], rtol=2e-4, atol=2e-3)

    @unittest.skipUnless(torch, 'there is no PyTorch')
    def test_beside_torch(self):
        for name in CASES:
            with self.subTest(name):
                for found, wanted in zip(of_kiln(name), of_torch(name)):
                    self.assertEqual([y.shape for y in found], [y.shape for y in wanted])
                    for y, z in zip(found, wanted):
                        np.testing.assert_allclose(y, z, rtol=1e-3, atol=2e-4)

    @unittest.skipUnless(torch, 'there is no PyTorch')
    def test_signatures(self):
        """arguments have PyTorch's names and order"""
        for name in F.__all__:
            ours, theirs = ([p for p in inspect.signature(getattr(of, name)).parameters if p not in (
                'size_average', 'reduce', '_stacklevel', 'dtype')] if takes_apart(of, name) else []
                for of in (F, torch.nn.functional))
            if theirs and name not in ('softmin',):
                common = [p for p in theirs if p in ours]
                self.assertEqual([p for p in ours if p in theirs], common, name)
                self.assertEqual([p for p in ours if p not in (*theirs, 'inplace')], [], name)

    def test_dropout(self):
        x = np.ones((50, 40, 3), np.float32)
        self.assertTrue((F.dropout(x, 0.5, training=False).numpy() == 1).all())
        y = F.dropout(x, 0.25).numpy()
        self.assertEqual(set(np.unique(y)), {np.float32(0), np.float32(1 / 0.75)})
        self.assertAlmostEqual(y.mean(), 1, delta=0.1)
        self.assertTrue((np.ptp(F.dropout1d(x, 0.5).numpy(), axis=2) == 0).all())
        q = kiln.tensor(x[:2])
        y = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5).numpy()
        self.assertGreater(np.ptp(y), 0.1)

    def test_running_averages(self):
        """batch_norm() that trains writes buffers, as the layer does"""
        x, layer = wave((8, 3, 2), 1), kiln.nn.BatchNorm1d(3, momentum=0.3)
        layer(x)
        mean, variance = kiln.Buffer.zeros(3), kiln.Buffer(np.ones(3, np.float32))
        F.batch_norm(x, mean, variance, training=True, momentum=0.3)
        np.testing.assert_array_equal(mean.numpy(), layer.running_mean.numpy())
        np.testing.assert_array_equal(variance.numpy(), layer.running_var.numpy())

    def test_classes(self):
        self.assertEqual(F.one_hot(np.int64([2, 0])).tolist(), [[0, 0, 1], [1, 0, 0]])
        self.assertEqual((F.one_hot([0], 2).dtype.name, F.one_hot(np.zeros(0, np.int64)).shape), ('i64', (0, 0)))

    def test_refusals(self):
        x = wave((2, 3, 4), 1)
        for sentence, call in (
                (r'linear: weight \[3\] is not of 2 dimensions', lambda: F.linear(x, x[0, :, 0])),
                (r'Conv2d: weight \[2,3,4\] is not of 4 dimensions', lambda: F.conv2d(x, x)),
                (r'pad has a pair for each of up to 3 dimensions, not \(1,\)', lambda: F.pad(x, (1,))),
                (r'mode is .*not .edge.', lambda: F.pad(x, (1, 1), mode='edge')),
                (r'takes more away than shape', lambda: F.pad(x, (0, -5))),
                (r'a mode for 3 dimensions, not .bilinear.', lambda: F.interpolate(x, 2, mode='bilinear')),
                (r'size or scale_factor', lambda: F.interpolate(x)),
                (r'instance_norm: there are no running averages', lambda: F.instance_norm(x, use_input_stats=False)),
                (r'without training it takes', lambda: F.batch_norm(x, None, None)),
                (r'input \[3\] has no channels', lambda: F.group_norm(x[0, :, 0], 1)),
                (r'\[4\] is no image', lambda: F.pixel_shuffle(x[0, 0], 2)),
                (r'heads of query \[3,3,4\] do not share those of key \[2,3,4\]', lambda: F.scaled_dot_product_attention(
                    np.zeros((3, 3, 4), np.float32), x, x, enable_gqa=True)),
                (r'padding_mode is .*not .edge.', lambda: kiln.nn.Conv1d(1, 1, 1, padding_mode='edge')),
                (r'InstanceNorm1d has no running averages', lambda: kiln.nn.InstanceNorm1d(2, track_running_stats=True))):
            with self.assertRaisesRegex((kiln.Error, ValueError), sentence):
                call()


def takes_apart(of, name):
    """Whether a function says what it takes."""
    try:
        return not any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(getattr(of, name)).parameters.values())
    except ValueError:
        return False


class Packed(unittest.TestCase):
    def test_beside_torch(self):
        """recurrent layers of packed sequences, in whatever order, give what each sequence by itself does"""
        x, lengths = wave((5, 4, 3), 3), [2, 5, 1, 4]
        for make, batch_first in ((kiln.nn.LSTM, False), (kiln.nn.GRU, True), (kiln.nn.RNN, False)):
            layer = make(3, 2, 2, batch_first=batch_first, bidirectional=True)
            packed = rnn.pack_padded_sequence(np.swapaxes(x, 0, 1) if batch_first else x, lengths, batch_first)
            y, state = layer(packed)
            padded, found = rnn.pad_packed_sequence(y, batch_first, padding_value=7, total_length=6)
            self.assertEqual((padded.shape, found.tolist()), ((4, 6, 4) if batch_first else (6, 4, 4), lengths))
            padded = padded.numpy() if batch_first else np.swapaxes(padded.numpy(), 0, 1)
            for n, length in enumerate(lengths):
                alone, ends = layer(x[:length, n])
                np.testing.assert_allclose(padded[n, :length], alone.numpy(), atol=1e-5)
                self.assertTrue((padded[n, length:] == 7).all())
                for end, of_all in zip(flat(ends), flat(state)):
                    np.testing.assert_allclose(of_all.numpy()[:, n], end.numpy(), atol=1e-5)
            if torch:
                theirs = getattr(torch.nn, make.__name__)(3, 2, 2, batch_first=batch_first, bidirectional=True)
                theirs.load_state_dict({k: torch.tensor(b.numpy()) for k, b in layer.state_dict().items()})
                of = torch.nn.utils.rnn
                wanted, last = theirs(of.pack_padded_sequence(torch.tensor(x), torch.tensor(lengths), False, False))
                np.testing.assert_allclose(y.data.numpy(), wanted.data.detach().numpy(), atol=1e-5)
                self.assertEqual(y.batch_sizes.tolist(), wanted.batch_sizes.tolist())
                for a, b in zip(flat(state), flat(last)):
                    np.testing.assert_allclose(a.numpy(), b.detach().numpy(), atol=1e-5)

    def test_lists(self):
        sequences = [wave((n, 2), n) for n in (2, 0, 3)]
        packed = rnn.pack_sequence(sequences)
        self.assertEqual(packed.data.tolist(), [*(sequences[i][t].tolist() for t, i in ((0, 2), (0, 0), (1, 2), (1, 0), (2, 2)))])
        for found, wanted in zip(rnn.unpack_sequence(packed), sequences):
            np.testing.assert_array_equal(found.numpy(), wanted)
        padded = rnn.pad_sequence(sequences, batch_first=True, padding_value=-1)
        self.assertEqual((padded.shape, padded.numpy()[1].tolist()), ((3, 3, 2), [[-1, -1]] * 3))
        for found, wanted in zip(rnn.unpad_sequence(padded, [2, 0, 3], batch_first=True), sequences):
            np.testing.assert_array_equal(found.numpy(), wanted)

    def test_lengths_of_a_function(self):
        """lengths may be a tensor that varies, and the gradient leaves out what is behind"""
        layer, x = kiln.nn.GRU(3, 2), wave((4, 2, 3), 1)

        @kiln.function
        def slopes(x, lengths):
            def loss(x):
                y, _ = layer(rnn.pack_padded_sequence(x, lengths))
                return kiln.sum(rnn.pad_packed_sequence(y)[0])
            return kiln.grad(loss)(x)
        for lengths in ([4, 1], [2, 3]):
            slope = slopes(x, np.int32(lengths)).numpy()
            for n, length in enumerate(lengths):
                self.assertTrue(slope[:length, n].all() and not slope[length:, n].any())
        self.assertEqual(slopes.recordings, 1)
        with self.assertRaisesRegex(kiln.Error, 'lengths are to be a list or an array'):
            rnn.pack_padded_sequence(x, kiln.tensor([1, 2], 'i32')).data

    def test_refusals(self):
        x = wave((4, 2, 3), 1)
        for sentence, call in (
                (r'lengths from 1 to 5 of sequences of 4 steps', lambda: rnn.pack_padded_sequence(x, [5, 1])),
                (r'lengths \[3\] are not one for each of 2 sequences', lambda: rnn.pack_padded_sequence(x, [1, 1, 1])),
                (r'total_length 2 is below 3', lambda: rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [3, 1]), total_length=2)),
                (r'one sequence or more', lambda: rnn.pad_sequence([]))):
            with self.assertRaisesRegex((kiln.Error, ValueError), sentence):
                call()


if __name__ == '__main__':
    for name in CASES:
        print(f'    {name!r}: {said(*of_torch(name))},')
