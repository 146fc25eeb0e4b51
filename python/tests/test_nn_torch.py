# SPDX-License-Identifier: Apache-2.0
"""Layers with the weights of PyTorch's: beside PyTorch itself where it is, and beside what it gave once
everywhere (PyTorch 2.15 on x86-64; `python3 test_nn_torch.py` prints that anew)."""
import unittest

import numpy as np

import kiln

try:
    import torch
except ImportError:
    torch = None

nn = kiln.nn


def wave(shape, seed):
    """Numbers from a formula, so that everybody has the same."""
    count = int(np.prod(shape))
    return np.sin(np.arange(count) * 0.7 + seed).reshape(shape).astype(np.float32)


def filled(state):
    """{name: values} for the names and shapes of a state."""
    made = {}
    for i, (name, shape) in enumerate(sorted(state.items())):
        values = wave(shape, i)
        made[name] = np.abs(values) + 0.5 if name.endswith('running_var') else values
    return made


PADDING = np.array([[0, 0, 1], [0, 1, 0]], bool)
TRIANGLE = np.triu(np.ones((3, 3), bool), 1)

# How a layer is made, by words that both libraries have, and called; then the first three numbers that
# PyTorch gave, and the sum.
CASES = {
    'linear': (lambda nn: nn.Linear(3, 2), [(4, 3)], {}),
    'conv': (lambda nn: nn.Conv2d(2, 4, (3, 2), 2, (1, 0), 1, 2), [(1, 2, 5, 4)], {}),
    'same': (lambda nn: nn.Conv1d(2, 3, 4, padding='same'), [(2, 2, 5)], {}),
    'around': (lambda nn: nn.Sequential(
        nn.Conv2d(2, 2, 3, padding=(1, 2), padding_mode='reflect'), nn.Conv2d(2, 2, 2, padding=1, padding_mode='replicate'),
        nn.Conv2d(2, 2, 3, padding='same', padding_mode='circular')), [(1, 2, 5, 4)], {}),
    'transposed': (lambda nn: nn.ConvTranspose2d(2, 4, 3, 2, 1, 1, 2), [(1, 2, 3, 3)], {}),
    'maxpool': (lambda nn: nn.MaxPool2d(3, 2, 1, ceil_mode=True), [(1, 2, 6, 5)], {}),
    'avgpool': (lambda nn: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), [(1, 2, 6, 5)], {}),
    'layernorm': (lambda nn: nn.LayerNorm((2, 4)), [(3, 2, 4)], {}),
    'rmsnorm': (lambda nn: nn.RMSNorm(4), [(3, 4)], {}),
    'groupnorm': (lambda nn: nn.GroupNorm(2, 4), [(2, 4, 3)], {}),
    'instancenorm': (lambda nn: nn.Sequential(nn.InstanceNorm1d(3, affine=True), nn.ReLU(inplace=True), nn.InstanceNorm1d(3)),
                     [(2, 3, 5)], {}),
    'batchnorm': (lambda nn: nn.BatchNorm2d(3), [(2, 3, 2, 2)], {}),
    'gelu': (lambda nn: nn.Sequential(nn.GELU(approximate='tanh'), nn.SiLU(), nn.Softplus(2.0)), [(7,)], {}),
    'activations': (lambda nn: nn.Sequential(
        nn.Hardswish(), nn.PReLU(2), nn.Mish(), nn.SELU(), nn.Softsign(), nn.Hardtanh(-0.5, 0.4), nn.GLU(),
        nn.Hardsigmoid(), nn.ReLU6(), nn.LogSigmoid(), nn.Unflatten(-1, (1, 2))), [(3, 2, 4)], {}),
    'adaptive': (lambda nn: nn.Sequential(nn.AdaptiveMaxPool2d((3, None)), nn.AdaptiveAvgPool2d((1, 2))),
                 [(1, 2, 6, 4)], {}),
    'attention': (lambda nn: nn.MultiheadAttention(4, 2, batch_first=True), [(2, 3, 4)] * 3,
                  {'key_padding_mask': PADDING, 'attn_mask': TRIANGLE, 'need_weights': True}),
    'encoder': (lambda nn: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 6, 0.0), 2), [(3, 2, 4)],
                {'src_key_padding_mask': PADDING}),
    'prenorm': (lambda nn: nn.TransformerEncoderLayer(4, 2, 6, 0.0, 'gelu', norm_first=True), [(3, 2, 4)], {}),
    'rnn': (lambda nn: nn.RNN(3, 2, 2), [(4, 2, 3), (2, 2, 2)], {}),
    'gru': (lambda nn: nn.GRU(3, 2, bidirectional=True, batch_first=True), [(2, 4, 3)], {}),
    'lstm': (lambda nn: nn.LSTM(3, 2, 2, bidirectional=True), [(4, 2, 3)], {}),
    'rnncell': (lambda nn: nn.RNNCell(3, 2), [(4, 3), (4, 2)], {}),
    'grucell': (lambda nn: nn.GRUCell(3, 2, bias=False), [(3,), (2,)], {}),
    'lstmcell': (lambda nn: nn.LSTMCell(3, 2), [(4, 3)], {}),
    'crossentropy': (lambda nn: nn.CrossEntropyLoss(label_smoothing=0.1), [(3, 4, 2)],
                     {'target': np.int64([[0, 3], [-100, 1], [2, 2]])}),
    'bce': (lambda nn: nn.BCEWithLogitsLoss(), [(3, 4)], {'target': np.abs(wave((3, 4), 5))}),
    'huber': (lambda nn: nn.HuberLoss(delta=0.5), [(3, 4)], {'target': wave((3, 4), 5)}),
    'smooth': (lambda nn: nn.SmoothL1Loss(beta=0.5), [(3, 4)], {'target': wave((3, 4), 5)}),
    'kl': (lambda nn: nn.KLDivLoss(reduction='batchmean'), [(3, 4)], {'target': np.abs(wave((3, 4), 5))}),
}
KNOWN = {
    'linear': [-2.02741, 2.10559, 0.394142, 11.8927, -6.56207],
    'conv': [-1.33462, -1.95696, 1.0651, 48.3775, 2.2929],
    'same': [-3.16159, -4.19243, -3.21458, -34.6094, -76.6344],
    'around': [-7.10222, -11.7544, -9.36452, -65970.2, 46395.9],
    'transposed': [0.332864, 0.49202, 0.585325, 289.091, 20.6084],
    'maxpool': [0.998027, 0.998027, 0.23151, 15.6547, 1.93509],
    'avgpool': [0.0752887, -0.0828249, -0.167109, -2.74445, 0.347446],
    'layernorm': [-0.596107, -0.605363, 0.168001, -49.5704, -20.3693],
    'rmsnorm': [-0.0, -0.820168, -1.20567, 16.7707, 5.73667],
    'groupnorm': [-0.317224, -0.866499, -0.816837, 81.7752, -8.36448],
    'instancenorm': [-0.562957, -0.562957, -0.562957, 0.00258494, 3.76013],
    'batchnorm': [-0.0777794, -0.160431, -0.152958, 17.6675, 38.5585],
    'gelu': [0.31121, 0.310699, 0.310218, 2.94675, 0.649156],
    'activations': [-0.474077, -0.474077, -0.471222, -5.63556, 0.219352],
    'adaptive': [0.365511, 0.769805, 0.776543, 2.37278, 0.00197842],
    'attention': [-1.18256, 2.68837, -2.42441, 285.657, 72.5156],
    'encoder': [-0.756172, 0.993373, 0.321389, 23.0716, -1.91554],
    'prenorm': [-3.98368, 0.397962, -1.24837, 311.394, -432.593],
    'rnn': [0.705055, 0.977666, 0.950522, 14.1375, 2.99844],
    'gru': [-0.0534547, 0.617656, -0.195072, -10.6744, 9.89123],
    'lstm': [-0.0493242, -0.169652, -0.199661, -18.0002, 6.02468],
    'rnncell': [0.721827, 0.997088, -0.0426943, 0.668159, -0.822888],
    'grucell': [-0.271457, -0.3794, -1.27905, -0.186745],
    'lstmcell': [0.142679, -0.244375, 0.00634725, -2.91164, 2.25083],
    'crossentropy': [1.94064, 1.94064, 1.94064],
    'bce': [0.751785, 0.751785, 0.751785],
    'huber': [0.247402, 0.247402, 0.247402],
    'smooth': [0.494805, 0.494805, 0.494805],
    'kl': [-0.439071, -0.439071, -0.439071],
}


def flat(given):
    if isinstance(given, (tuple, list)):
        return [one for part in given for one in flat(part)]
    return [] if given is None else [given]


def inputs_of(shapes):
    return [wave(shape, 10 + i) for i, shape in enumerate(shapes)]


def of_kiln(name):
    """The layer's numbers, and the gradients by its parameters of their sum of squares."""
    make, shapes, options = CASES[name]
    module, inputs = make(nn), inputs_of(shapes)
    module.load_state_dict(filled({k: b.shape for k, b in module.state_dict().items()}))

    def loss(module):
        given = flat(module(*inputs, **options))
        return sum(kiln.sum(kiln.square(y)) for y in given), given
    (_, given), gradients = kiln.value_and_grad(loss, has_aux=True)(module)
    kiln.evaluate(*given, *gradients.values())
    state = {k: b.numpy() for k, b in module.state_dict().items()}
    return [y.numpy() for y in given], {k: g.numpy() for k, g in gradients.items()}, state


def of_torch(name):
    make, shapes, options = CASES[name]
    module = make(torch.nn)
    state = {k: tuple(v.shape) for k, v in module.state_dict().items() if not k.endswith('num_batches_tracked')}
    module.load_state_dict({k: torch.tensor(v) for k, v in filled(state).items()}, strict=False)
    options = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    given = flat(module(*map(torch.tensor, inputs_of(shapes)), **options))
    loss = sum((y ** 2).sum() for y in given)
    if list(module.parameters()):
        loss.backward()
    gradients = {k: p.grad.numpy() for k, p in module.named_parameters()}
    state = {k: v.numpy() for k, v in module.state_dict().items() if not k.endswith('num_batches_tracked')}
    return [y.detach().numpy() for y in given], gradients, state


def summary(given, gradients):
    """A few numbers that speak for all."""
    everything = np.concatenate([y.ravel() for y in [*given, *(gradients[k] for k in sorted(gradients))]])
    weights = np.cos(np.arange(everything.size))
    return [float(f'{v:.6g}') for v in (*given[0].ravel()[:3], everything.sum(dtype=float),
                                        (everything * weights).sum(dtype=float))]


class Torch(unittest.TestCase):
    def test_known_answers(self):
        for name in CASES:
            with self.subTest(name):
                given, gradients, _ = of_kiln(name)
                np.testing.assert_allclose(summary(given, gradients), KNOWN[name], rtol=1e-4, atol=1e-3)

    @unittest.skipUnless(torch, 'there is no PyTorch')
    def test_beside_torch(self):
        for name in CASES:
            with self.subTest(name):
                given, gradients, state = of_kiln(name)
                wanted, of_parameters, after = of_torch(name)
                self.assertEqual(len(given), len(wanted))
                for found, value in zip(given, wanted):
                    np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)
                for found, value in (gradients, of_parameters), (state, after):
                    self.assertEqual(sorted(found), sorted(value))
                    for k in found:
                        np.testing.assert_allclose(found[k], value[k], rtol=1e-3, atol=1e-4, err_msg=k)

    @unittest.skipUnless(torch, 'there is no PyTorch')
    def test_states_of_torch(self):
        """a state of PyTorch's loads as it is, of narrow types and with counts of batches, and goes back"""
        made = [make.Sequential(make.Linear(3, 4), make.BatchNorm1d(4), make.Linear(4, 2)) for make in (torch.nn, nn)]
        theirs, ours = made
        ours.load_state_dict(theirs.state_dict())
        x = wave((5, 3), 1)
        np.testing.assert_allclose(ours.eval()(x).numpy(), theirs.eval()(torch.tensor(x)).detach().numpy(), atol=1e-6)
        theirs.to(torch.bfloat16)
        ours.to('bf16').load_state_dict(theirs.state_dict())
        np.testing.assert_array_equal(ours[0].weight.numpy(), theirs[0].weight.detach().float().numpy())
        ours.to('f32')
        again = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
        again.load_state_dict({k: torch.tensor(b.numpy()) for k, b in ours.state_dict().items()})
        np.testing.assert_array_equal(again[2].bias.detach().numpy(), ours[2].bias.numpy())


if __name__ == '__main__':
    for name in CASES:
        print(f'    {name!r}: {summary(*of_torch(name)[:2])},')
