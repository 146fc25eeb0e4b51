# SPDX-License-Identifier: Apache-2.0
"""Layers beside numpy in float64 (nn_reference.py): what they give, and the gradients by their parameters
and by what they get beside finite differences of that."""
import math
import os
import unittest
import unittest.mock

import numpy as np

import kiln
import nn_reference as ref

nn = kiln.nn


def random(*shape, seed=1):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def flat(given):
    """The tensors that a layer gives, from left to right."""
    if isinstance(given, (tuple, list)):
        return [one for part in given for one in flat(part)]
    return [] if given is None else [given]


def slopes(loss, values):
    """The gradient of a number by float64 arrays, by central differences."""
    found = []
    for array in values:
        slope = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            before = array[place]
            step = 1e-5
            array[place] = before + step
            above = loss()
            array[place] = before - step
            slope[place] = (above - loss()) / (2 * step)
            array[place] = before
        found.append(slope)
    return found


def setUpModule():
    # Other tests have such kernels optimised: here they have to be right.
    flags = {'POCL_EXTRA_BUILD_FLAGS': os.environ.get('POCL_EXTRA_BUILD_FLAGS', '-cl-opt-disable')}
    cheap = unittest.mock.patch.dict(os.environ, flags)
    cheap.start()
    unittest.addModuleCleanup(cheap.stop)


class Layers(unittest.TestCase):
    def check(self, module, reference, *inputs, call=None, derives=True, tolerance=2e-4):
        """The layer gives what `reference(parameters, *inputs)` does, and so do the gradients by parameters and by
        inputs that are floats."""
        call = call or (lambda module, *inputs: module(*inputs))
        for i, (name, buffer) in enumerate(module.state_dict().items()):
            if buffer.dtype.is_floating:  # nothing stays as simple as it starts
                values = random(*buffer.shape, seed=i)
                buffer[...] = np.abs(values) + 0.5 if name.endswith('running_var') else values * 0.5
        parameters = {name: b.numpy().astype(float) for name, b in module.state_dict().items()}
        exact = [x.astype(float) if x.dtype.kind == 'f' else x for x in inputs]
        derived = sum(x.dtype.kind == 'f' for x in inputs)
        expected = flat(reference(parameters, *exact))
        shares = [random(*y.shape, seed=99) for y in expected]

        def loss(module, *inputs):
            given = flat(call(module, *inputs))
            return sum(kiln.sum(y * share) for y, share in zip(given, shares)), given
        if not derives:
            for found, wanted in zip(flat(call(module, *inputs)), expected):
                np.testing.assert_allclose(found.numpy(), wanted, rtol=tolerance, atol=tolerance)
            return
        (_, given), gradients = kiln.value_and_grad(loss, tuple(range(derived + 1)), has_aux=True)(
            module, *inputs)
        of_parameters, *of_inputs = gradients
        kiln.evaluate(*given, *of_parameters.values(), *of_inputs)
        self.assertEqual([y.shape for y in given], [y.shape for y in expected])
        for found, wanted in zip(given, expected):
            np.testing.assert_allclose(found.numpy(), wanted, rtol=tolerance, atol=tolerance)
        names = [name for name, _ in module.named_parameters()]
        self.assertEqual(names, list(of_parameters))
        by = [parameters[name] for name in names] + exact[:derived]
        wanted = slopes(lambda: sum((y * share).sum() for y, share in
                                    zip(flat(reference(parameters, *exact)), shares)), by)
        for name, found, slope in zip([*names, *range(derived)], [*of_parameters.values(), *of_inputs], wanted):
            np.testing.assert_allclose(found.numpy(), slope, rtol=10 * tolerance, atol=10 * tolerance,
                                       err_msg=str(name))

    # ---- weights ----

    def test_linear(self):
        for bias in True, False:
            self.check(nn.Linear(5, 3, bias), lambda p, x: ref.linear(x, p['weight'], p.get('bias')),
                       random(2, 3, 5))
        self.check(nn.Linear(5, 1), lambda p, x: ref.linear(x, p['weight'], p['bias']), random(5))
        self.assertEqual(nn.Linear(5, 3)(np.zeros((0, 5), 'f')).numpy().shape, (0, 3))

    def test_embedding(self):
        x = np.int32([[0, 3, 6], [3, 3, 1]])
        self.check(nn.Embedding(7, 4), lambda p, x: p['weight'][x], x)
        table = nn.Embedding(7, 4, padding_idx=-4)
        self.assertEqual(table.weight.numpy()[3].tolist(), [0] * 4)
        value = kiln.grad(lambda table: kiln.sum(table(x)))(table)['weight'].numpy()
        np.testing.assert_array_equal(value.sum(1), [4, 4, 0, 0, 0, 0, 4])
        self.assertTrue(np.isnan(nn.Embedding(7, 4)(np.int32([-1, 7])).numpy()).all())

    def test_conv(self):
        for module, x, before in (
                (nn.Conv1d(2, 3, 3), random(2, 2, 7), [0]),
                (nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
                 random(2, 4, 6, 5), [1, 2]),
                (nn.Conv2d(3, 3, 3, padding=1, groups=3, bias=False), random(1, 3, 4, 4), [1, 1]),
                (nn.Conv2d(2, 3, 1, padding='valid'), random(2, 2, 3, 3), [0, 0]),
                (nn.Conv3d(1, 2, 2, padding=1), random(1, 1, 2, 3, 2), [1, 1, 1])):
            with self.subTest(module):
                self.check(module, lambda p, x: ref.conv(
                    x, p['weight'], p.get('bias'), module.stride, before, before, module.dilation, module.groups), x)
        same = nn.Conv1d(2, 2, 4, padding='same')
        self.check(same, lambda p, x: ref.conv(x, p['weight'], p['bias'], [1], [1], [2], [1], 1), random(1, 2, 5))
        self.assertEqual(same(random(2, 5)).shape, (2, 5))

    def test_conv_transposed(self):
        for module, x in (
                (nn.ConvTranspose1d(2, 3, 3, stride=2), random(2, 2, 4)),
                (nn.ConvTranspose2d(4, 4, (3, 2), stride=(2, 3), padding=(1, 0), output_padding=(1, 2),
                                    groups=2), random(1, 4, 3, 2)),
                (nn.ConvTranspose2d(2, 3, 2, dilation=2, bias=False), random(1, 2, 3, 3))):
            with self.subTest(module):
                self.check(module, lambda p, x: ref.conv_transposed(
                    x, p['weight'], p.get('bias'), module.stride, module.padding, module.output_padding,
                    module.dilation, module.groups), x)

    def test_pools(self):
        x = random(2, 3, 6, 5)
        for module, reduce, empty in ((nn.MaxPool2d(2), np.max, -np.inf),
                                      (nn.MaxPool2d((3, 2), stride=(2, 1), padding=(1, 1)), np.max, -np.inf),
                                      (nn.AvgPool2d(3, stride=2, padding=1), np.mean, 0.0)):
            with self.subTest(module):
                self.check(module, lambda p, x: ref.pool(x, module.kernel_size, module.stride, module.padding,
                                                         reduce, empty), x)
        self.check(nn.AvgPool1d(2), lambda p, x: ref.pool(x, [2], [2], [0], np.mean, 0), random(1, 2, 5))
        self.check(nn.AdaptiveAvgPool2d((3, 1)), lambda p, x: x.reshape(2, 3, 3, 2, 5).mean((3, 4))[..., None], x)
        self.check(nn.AdaptiveAvgPool2d(1), lambda p, x: x.mean((2, 3), keepdims=True), x)
        self.check(nn.AdaptiveAvgPool2d((3, None)), lambda p, x: x.reshape(2, 3, 3, 2, 5).mean(3), x, derives=False)
        self.check(nn.AdaptiveMaxPool2d((3, 1)), lambda p, x: x.reshape(2, 3, 3, 2, 5).max((3, 4))[..., None], x,
                   derives=False)
        self.check(nn.AdaptiveMaxPool1d(1), lambda p, x: x.max(2, keepdims=True), random(2, 3, 4))
        uneven = nn.AvgPool2d(2, padding=1, count_include_pad=False)(np.ones((1, 1, 2, 2), 'f')).numpy()
        self.assertEqual(uneven.tolist(), np.ones((1, 1, 2, 2)).tolist())
        self.assertEqual(nn.MaxPool2d(2, ceil_mode=True)(x).shape, (2, 3, 3, 3))

    # ---- normalisations ----

    def test_layer_norms(self):
        x = random(3, 2, 5)
        self.check(nn.LayerNorm(5), lambda p, x: ref.layer_norm(x, p['weight'], p['bias']), x)
        self.check(nn.LayerNorm((2, 5), bias=False),
                   lambda p, x: ref.normalised(x, (1, 2), 1e-5) * p['weight'], x)
        self.check(nn.LayerNorm(5, elementwise_affine=False), lambda p, x: ref.normalised(x, (2,), 1e-5), x)
        self.check(nn.RMSNorm(5), lambda p, x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 2.0 ** -23) *
                   p['weight'], x)
        self.check(nn.GroupNorm(2, 4), lambda p, x: ref.group_norm(x, p['weight'], p['bias'], 2, 1e-5),
                   random(2, 4, 3))

    def test_batch_norms(self):
        for module, x in ((nn.BatchNorm1d(3), random(5, 3)), (nn.BatchNorm1d(3), random(2, 3, 4)),
                          (nn.BatchNorm2d(2), random(2, 2, 3, 3)), (nn.BatchNorm3d(1), random(2, 1, 2, 2, 2))):
            with self.subTest(module):
                self.check(module, lambda p, x: ref.batch_norm_train(x, p['weight'], p['bias'], 1e-5), x,
                           tolerance=1e-3)
                self.check(module.eval(), lambda p, x: ref.batch_norm(
                    x, p['weight'], p['bias'], p['running_mean'], p['running_var'], 1e-5), x)

    # ---- activations ----

    def test_activations(self):
        x = random(3, 4)
        for module, reference in (
                (nn.ReLU(), lambda x: np.maximum(x, 0)), (nn.GELU(), ref.gelu),
                (nn.GELU('tanh'), lambda x: 0.5 * x * (1 + np.tanh(
                    math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))),
                (nn.SiLU(), lambda x: x * ref.sigmoid(x)), (nn.Tanh(), np.tanh), (nn.Sigmoid(), ref.sigmoid),
                (nn.Softmax(0), lambda x: ref.softmax(x, 0)), (nn.LogSoftmax(), ref.log_softmax),
                (nn.Softplus(2.0), lambda x: np.log1p(np.exp(2 * x)) / 2),
                (nn.LeakyReLU(0.2), lambda x: np.where(x > 0, x, 0.2 * x)),
                (nn.ELU(0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
                (nn.Identity(), lambda x: x), (nn.Flatten(0), lambda x: x.reshape(-1)),
                (nn.Unflatten(1, (2, -1)), lambda x: x.reshape(3, 2, 2)), (nn.GLU(), lambda x: x[:, :2] * ref.sigmoid(x[:, 2:])),
                (nn.GLU(0), None)):
            with self.subTest(module):
                if reference is None:
                    self.assertRaisesRegex(kiln.Error, r'x \[3,4\] has no two halves along dimension 0', module, x)
                else:
                    self.check(module, lambda p, x: reference(x), x)
        self.assertEqual(nn.Flatten(1, 2)(random(2, 3, 4, 5)).shape, (2, 12, 5))
        for sizes in (3, -1), (-1, -1), (5,), ():
            self.assertRaisesRegex(kiln.Error, 'no dimension 1 that is', nn.Unflatten(1, sizes), x)
        self.check(nn.PReLU(4), lambda p, x: np.where(x > 0, x, x * p['weight']), x)
        self.check(nn.PReLU(), lambda p, x: np.where(x > 0, x, x * p['weight']), random(2, 3, 2))

    def test_activations_of_one_element(self):
        """by their definitions, at their corners, and all in one kernel"""
        x = np.float32([-40, -7, -3.5, -1.25, -0.5, -0.0, 0.5, 0.75, 1.5, 3.5, 5, 6.5, 40])
        inf = np.float32([-np.inf, np.inf, np.nan])
        table = ((nn.ReLU6(), lambda x: np.clip(x, 0, 6), (0, 6)),
                 (nn.SELU(), lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
                  (-1.7580993, np.inf)),
                 (nn.Mish(), lambda x: x * np.tanh(np.logaddexp(0, x)), None),
                 (nn.LogSigmoid(), lambda x: -np.logaddexp(0, -x), (-np.inf, 0)),
                 (nn.Hardsigmoid(), lambda x: np.clip(x / 6 + 0.5, 0, 1), (0, 1)),
                 (nn.Hardswish(), lambda x: x * np.clip(x / 6 + 0.5, 0, 1), (0, np.inf)),
                 (nn.Softsign(), lambda x: x / (1 + abs(x)), None),
                 (nn.Hardtanh(-0.75, 2), lambda x: np.clip(x, -0.75, 2), (-0.75, 2)),
                 (nn.Hardtanh(), lambda x: np.clip(x, -1, 1), (-1, 1)))
        kiln.evaluate(*(found := [module(x) for module, *_ in table]),
                      *(far := [module(inf) for module, *_ in table]),
                      *(given := [kiln.grad(lambda x, m=module: kiln.sum(m(x)))(x) for module, *_ in table]))
        for (module, reference, ends), y, at, gradient in zip(table, found, far, given):
            with self.subTest(module):
                wide = x.astype(float)
                np.testing.assert_allclose(y.numpy(), reference(wide), rtol=1e-5, atol=1e-6)
                slope = (reference(wide + 1e-6) - reference(wide - 1e-6)) / 2e-6
                smooth = np.flatnonzero(x)  # at 0 some have a corner
                np.testing.assert_allclose(gradient.numpy()[smooth], slope[smooth], atol=1e-4)
                if ends:
                    np.testing.assert_allclose(at.numpy(), [*ends, np.nan], rtol=1e-6)

    # ---- attention ----

    def test_attention(self):
        x, other = random(2, 3, 4), random(2, 5, 4, seed=2)
        module = nn.MultiheadAttention(4, 2, batch_first=True)
        self.check(module, lambda p, x: ref.multihead(x, x, x, p, 2)[0], x)
        self.check(module, lambda p, q, k: ref.multihead(q, k, k, p, 2), x, other,
                   call=lambda m, q, k: m(q, k, need_weights=True, average_attn_weights=False))
        self.check(module, lambda p, q, k, v: ref.multihead(q, k, v, p, 2)[0], x, other, other + 1)
        late = nn.MultiheadAttention(4, 1)
        self.check(late, lambda p, x: ref.multihead(*[x.swapaxes(0, 1)] * 3, p, 1)[0].swapaxes(0, 1),
                   random(3, 2, 4))
        self.check(late, lambda p, x: ref.multihead(x[None], x[None], x[None], p, 1)[0][0], random(3, 4))

    def test_attention_masks(self):
        x, module = random(2, 3, 4), nn.MultiheadAttention(4, 2, batch_first=True)
        hidden = np.array([[0, 1, 1], [0, 0, 1], [1, 0, 0]], bool)
        padding = np.array([[0, 0, 1], [0, 1, 0]], bool)
        bias, both = random(3, 3), np.where(hidden | padding[:, None, None], -1e30, 0)
        causal = np.where(np.tri(3) > 0, 0, -1e30)
        for options, mask in (({'attn_mask': hidden}, np.where(hidden, -1e30, 0)),
                              ({'key_padding_mask': padding}, np.where(padding[:, None, None], -1e30, 0)),
                              ({'attn_mask': hidden, 'key_padding_mask': padding}, both),
                              ({'attn_mask': bias, 'is_causal': True}, bias + causal),
                              ({'attn_mask': bias, 'key_padding_mask': padding},
                               bias + np.where(padding[:, None, None], -1e30, 0)),
                              ({'attn_mask': np.stack([hidden, bias > 0, hidden, bias < 0]) &
                                ~np.eye(3, dtype=bool)}, None)):
            if mask is None:
                each = options['attn_mask'].reshape(2, 2, 3, 3)
                mask = np.where(each, -1e30, 0)
            for need_weights in False, True:
                with self.subTest(options=list(options), need_weights=need_weights):
                    def call(module, x):
                        y, weights = module(x, need_weights=need_weights, **options)
                        return (y, weights) if need_weights else y

                    def reference(p, x):
                        y, weights = ref.multihead(x, x, x, p, 2, mask)
                        return (y, weights.mean(1)) if need_weights else y
                    self.check(module, reference, x, call=call, derives=len(options) == 2 and mask is both)
        blind = module(x, attn_mask=np.ones((3, 3), bool), need_weights=True)[0].numpy()
        np.testing.assert_allclose(blind, np.broadcast_to(module.out_proj.bias.numpy(), blind.shape), atol=1e-6)

    def test_encoder(self):
        x = random(2, 3, 4)
        for norm_first, activation, function in (False, 'relu', lambda x: np.maximum(x, 0)), (True, 'gelu', ref.gelu):
            self.check(nn.TransformerEncoderLayer(4, 2, 6, 0.0, activation, batch_first=True, norm_first=norm_first),
                       lambda p, x: ref.encoder_layer(x, p, 2, norm_first, function), x, tolerance=1e-3)
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 6, 0.0, batch_first=True), 2, nn.LayerNorm(4))

        def reference(p, x):
            for i in range(2):
                x = ref.encoder_layer(x, {name[9:]: v for name, v in p.items() if name.startswith(f'layers.{i}.')}, 2,
                                      False, lambda x: np.maximum(x, 0))
            return ref.layer_norm(x, p['norm.weight'], p['norm.bias'])
        self.check(encoder, reference, x, tolerance=1e-3)

    # ---- recurrent layers ----

    def test_recurrent(self):
        for kind, step in (nn.RNN, ref.rnn_step), (nn.GRU, ref.gru_step), (nn.LSTM, ref.lstm_step):
            count = 2 if kind is nn.LSTM else 1
            states = [random(2, 2, 3, seed=5 + i) for i in range(count)]
            with self.subTest(kind.__name__):
                def call(m, x, *s):
                    return m(x, s if count == 2 else s[0])
                self.check(kind(2, 3, bidirectional=True),
                           lambda p, x, *s: ref.recurrent(step, x, s, p, 1, 2), random(3, 2, 2), *states,
                           call=call)
                zeros = [np.zeros((1, 2, 3))] * count
                self.check(kind(2, 3, batch_first=True),
                           lambda p, x: [y.swapaxes(0, 1) if i == 0 else y for i, y in enumerate(
                               ref.recurrent(step, x.swapaxes(0, 1), zeros, p, 1, 1))], random(2, 3, 2))

    def test_recurrent_without_a_batch_and_with_lengths(self):
        module = nn.GRU(2, 3, bias=False)
        x = random(4, 2, 2)
        y, last = module(x, lengths=np.int32([4, 2]))
        alone, ended = module(x[:2, 1])
        np.testing.assert_allclose(y.numpy()[:2, 1], alone.numpy(), atol=1e-6)
        np.testing.assert_allclose(last.numpy()[:, 1], ended.numpy(), atol=1e-6)
        self.assertFalse(y.numpy()[2:, 1].any())

    def test_steps(self):
        """a step of a recurrent layer, with a state and without, alone and in a batch"""
        for kind, step in (nn.RNNCell, ref.rnn_step), (nn.GRUCell, ref.gru_step), (nn.LSTMCell, ref.lstm_step):
            count = 2 if kind is nn.LSTMCell else 1
            for shape in (3, 2), (2,), (1, 2), (0, 2):
                states = [random(*shape[:-1], 5, seed=5 + i) for i in range(count)]

                def reference(p, x, *s):
                    made = step(x, s or [np.zeros((*shape[:-1], 5))] * count, *(
                        p[name] for name in ('weight_ih', 'weight_hh', 'bias_ih', 'bias_hh')))
                    return made if count == 2 else made[0]

                def call(m, x, *s):
                    return m(x, None if not s else s if count == 2 else s[0])
                with self.subTest(kind.__name__, shape=shape):
                    module = kind(2, 5)
                    if shape[0]:
                        self.check(module, reference, random(*shape), *states, call=call)
                        self.check(module, reference, random(*shape), call=call)
                    else:
                        self.assertEqual([y.numpy().shape for y in flat(call(module, random(*shape)))],
                                         [(0, 5)] * count)

    # ---- losses ----

    def test_losses(self):
        x, y = random(4, 3), random(4, 3, seed=2)
        share = ref.sigmoid(y)
        weight = np.abs(random(3)) + 0.1
        for module, reference, target in (
                (nn.MSELoss(), lambda x, y: ((x - y) ** 2).mean(), y), (nn.L1Loss('sum'), lambda x, y: abs(x - y).sum(), y),
                (nn.MSELoss('none'), lambda x, y: (x - y) ** 2, y),
                (nn.HuberLoss(delta=0.7), lambda x, y: np.where(
                    abs(x - y) < 0.7, (x - y) ** 2 / 2, 0.7 * (abs(x - y) - 0.35)).mean(), y),
                (nn.SmoothL1Loss(beta=0.7), lambda x, y: np.where(
                    abs(x - y) < 0.7, (x - y) ** 2 / 1.4, abs(x - y) - 0.35).mean(), y),
                (nn.SmoothL1Loss(beta=0), lambda x, y: abs(x - y).mean(), y),
                (nn.KLDivLoss('batchmean'), lambda x, y: np.where(
                    y > 0, y * (np.log(y + (y == 0)) - x), 0).sum() / 4, np.float32([[0, 0.5, 0.5]] * 4)),
                (nn.KLDivLoss(log_target=True), lambda x, y: (np.exp(y) * (y - x)).mean(), ref.log_softmax(y)),
                (nn.BCEWithLogitsLoss(pos_weight=weight), lambda x, y: -(
                    weight * y * np.log(ref.sigmoid(x)) + (1 - y) * np.log(1 - ref.sigmoid(x))).mean(), share),
                (nn.CrossEntropyLoss(weight, label_smoothing=0.1), lambda x, y: -(
                    ref.log_softmax(x) * weight * (y * 0.9 + 0.1 / 3)).sum(-1).mean(), ref.softmax(y))):
            with self.subTest(module):
                self.check(module, lambda p, x: reference(x, target), x, call=lambda m, x: m(x, target))

        p = (share * 0.9 + 0.05).astype(np.float32)
        self.check(nn.BCELoss(weight), lambda _, x: -(weight * (share * np.log(x) + (1 - share) * np.log(1 - x))).mean(),
                   p, call=lambda m, x: m(x, share.astype('f')))
        with self.assertRaisesRegex(ValueError, 'beta is 0 or above, not -1'):
            nn.smooth_l1_loss(x, x, beta=-1)
        with self.assertRaisesRegex(ValueError, 'reduction is'):
            nn.kl_div(x, x, 'all')

    def test_cross_entropy(self):
        x, labels = random(2, 3, 4), np.int32([[0, 2, -100, 1], [1, 1, 2, 0]])
        weight = np.abs(random(3)) + 0.1

        def rows(x, smoothing):
            logs, seen = ref.log_softmax(x, 1), labels >= 0
            picked = np.take_along_axis(logs, np.where(seen, labels, 0)[:, None], 1)[:, 0]
            counts = np.where(seen, weight[np.where(seen, labels, 0)], 0)
            all_of = (logs * weight[:, None]).sum(1) * seen
            return -(1 - smoothing) * picked * counts - smoothing / 3 * all_of, counts

        def mean(x, smoothing=0.0):
            losses, counts = rows(x, smoothing)
            return losses.sum() / counts.sum()
        for module, reference in ((nn.CrossEntropyLoss(weight), mean),
                                  (nn.CrossEntropyLoss(weight, label_smoothing=0.2), lambda x: mean(x, 0.2)),
                                  (nn.CrossEntropyLoss(weight, reduction='none'), lambda x: rows(x, 0.0)[0])):
            with self.subTest(module):
                self.check(module, lambda p, x: reference(x), x, call=lambda m, x: m(x, labels))
        self.check(nn.NLLLoss(weight), lambda p, x: mean(x), x,
                   call=lambda m, x: m(kiln.log_softmax(x, 1), labels))
        self.check(nn.CrossEntropyLoss(), lambda p, x: -ref.log_softmax(x)[1], random(3),
                   call=lambda m, x: m(x, np.int32(1)))

    def test_losses_far_out(self):
        x = np.float32([-200, -30, 30, 200])
        found = nn.binary_cross_entropy_with_logits(x, np.float32([0, 0, 1, 1]), reduction='none').numpy()
        np.testing.assert_allclose(found, [0, math.exp(-30), math.exp(-30), 0], rtol=1e-5)
        p, y = np.float32([0, 1, 0, 1, np.nan]), np.float32([0, 1, 1, 0, 1])
        losses, slope = nn.binary_cross_entropy(p, y, reduction='none'), kiln.grad(nn.binary_cross_entropy)(p, y)
        np.testing.assert_array_equal(losses.numpy(), [0, 0, 100, 100, np.nan])
        self.assertTrue(np.isfinite(slope.numpy()[:4]).all())


if __name__ == '__main__':
    unittest.main()
