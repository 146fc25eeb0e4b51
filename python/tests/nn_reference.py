# SPDX-License-Identifier: Apache-2.0
"""What layers compute, in numpy and float64, written down from their definitions: loops where they are
plainest, no kiln."""
import itertools
import math

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def erf(x):
    return np.vectorize(math.erf, otypes=[float])(x)


def gelu(x):
    return x * (1 + erf(x / math.sqrt(2))) / 2


def log_softmax(x, axis=-1):
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def softmax(x, axis=-1):
    return np.exp(log_softmax(x, axis))


def linear(x, weight, bias=None):
    y = np.einsum('...i,oi->...o', x, weight)
    return y if bias is None else y + bias


def padded(x, before, after, value=0.0):
    return np.pad(x, [(0, 0), (0, 0), *zip(before, after)], constant_values=value)


def conv(x, weight, bias, stride, before, after, dilation, groups):
    """x [N,C,...], weight [O,C/groups,...]"""
    x = padded(x, before, after)
    window, outs = weight.shape[2:], weight.shape[0]
    extent = [(n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(x.shape[2:], dilation, window, stride)]
    y = np.zeros((x.shape[0], outs, *extent))
    ins, each = weight.shape[1], outs // groups
    for o in range(outs):
        channels = slice(o // each * ins, (o // each + 1) * ins)
        for place in itertools.product(*map(range, extent)):
            for tap in itertools.product(*map(range, window)):
                at = tuple(p * s + t * d for p, s, t, d in zip(place, stride, tap, dilation))
                y[(slice(None), o, *place)] += x[(slice(None), channels, *at)] @ weight[(o, slice(None), *tap)]
    return y if bias is None else y + bias.reshape(-1, *[1] * len(window))


def conv_transposed(x, weight, bias, stride, padding, output_padding, dilation, groups):
    """x [N,C,...], weight [C,O/groups,...]"""
    window, each, ins = weight.shape[2:], weight.shape[1], x.shape[1] // groups
    whole = [(n - 1) * s + d * (k - 1) + 1 + o
             for n, s, d, k, o in zip(x.shape[2:], stride, dilation, window, output_padding)]
    y = np.zeros((x.shape[0], each * groups, *whole))
    for c in range(x.shape[1]):
        outs = slice(c // ins * each, (c // ins + 1) * each)
        for place in itertools.product(*map(range, x.shape[2:])):
            for tap in itertools.product(*map(range, window)):
                at = tuple(p * s + t * d for p, s, t, d in zip(place, stride, tap, dilation))
                y[(slice(None), outs, *at)] += np.outer(x[(slice(None), c, *place)], weight[(c, slice(None), *tap)])
    y = y[(slice(None), slice(None), *(slice(p, n - p) for p, n in zip(padding, whole)))]
    return y if bias is None else y + bias.reshape(-1, *[1] * len(window))


def pool(x, window, stride, padding, reduce, empty):
    x = padded(x, padding, padding, empty)
    extent = [(n - k) // s + 1 for n, k, s in zip(x.shape[2:], window, stride)]
    y = np.zeros((*x.shape[:2], *extent))
    for place in itertools.product(*map(range, extent)):
        parts = tuple(slice(p * s, p * s + k) for p, s, k in zip(place, stride, window))
        part = x[(slice(None), slice(None), *parts)].reshape(*x.shape[:2], -1)
        y[(slice(None), slice(None), *place)] = reduce(part, -1)
    return y


def normalised(x, axes, eps):
    mean = x.mean(axes, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + eps)


def channels(values, ndim):
    return values.reshape(-1, *[1] * (ndim - 2))


def group_norm(x, weight, bias, groups, eps):
    parts = x.reshape(x.shape[0], groups, -1)
    y = normalised(parts, (2,), eps).reshape(x.shape)
    return y * channels(weight, x.ndim) + channels(bias, x.ndim)


def batch_norm_train(x, weight, bias, eps):
    axes = (0, *range(2, x.ndim))
    return normalised(x, axes, eps) * channels(weight, x.ndim) + channels(bias, x.ndim)


def batch_norm(x, weight, bias, mean, var, eps):
    y = (x - channels(mean, x.ndim)) / np.sqrt(channels(var, x.ndim) + eps)
    return y * channels(weight, x.ndim) + channels(bias, x.ndim)


def multihead(q, k, v, p, heads, mask=None, prefix=''):
    """Batch first; a mask that broadcasts to [N,heads,L,S] is added."""
    n, length, width = q.shape
    parts = [linear(x, w, b) for x, w, b in zip((q, k, v), np.split(p[prefix + 'in_proj_weight'], 3),
                                                np.split(p[prefix + 'in_proj_bias'], 3))]
    q, k, v = (x.reshape(n, -1, heads, width // heads).swapaxes(1, 2) for x in parts)
    scores = q @ k.swapaxes(2, 3) / math.sqrt(width // heads)
    weights = softmax(scores if mask is None else scores + mask)
    y = (weights @ v).swapaxes(1, 2).reshape(n, length, width)
    return linear(y, p[prefix + 'out_proj.weight'], p[prefix + 'out_proj.bias']), weights


def layer_norm(x, weight, bias, eps=1e-5):
    return normalised(x, (-1,), eps) * weight + bias


def encoder_layer(x, p, heads, norm_first, activation):
    def attended(x):
        return multihead(x, x, x, p, heads, prefix='self_attn.')[0]

    def fed(x):
        inner = activation(linear(x, p['linear1.weight'], p['linear1.bias']))
        return linear(inner, p['linear2.weight'], p['linear2.bias'])
    first, second = ((p[f'norm{i}.weight'], p[f'norm{i}.bias']) for i in (1, 2))
    if norm_first:
        x = x + attended(layer_norm(x, *first))
        return x + fed(layer_norm(x, *second))
    x = layer_norm(x + attended(x), *first)
    return layer_norm(x + fed(x), *second)


# ---- recurrent steps: x [N,I], weights of PyTorch's order ----

def rnn_step(x, state, w, r, b, d):
    (h,) = state
    h = np.tanh(linear(x, w, b) + linear(h, r, d))
    return (h,)


def gru_step(x, state, w, r, b, d):
    (h,) = state
    (xr, xz, xn), (hr, hz, hn) = np.split(linear(x, w, b), 3, -1), np.split(linear(h, r, d), 3, -1)
    z, n = sigmoid(xz + hz), np.tanh(xn + sigmoid(xr + hr) * hn)
    return ((1 - z) * n + z * h,)


def lstm_step(x, state, w, r, b, d):
    h, c = state
    i, f, g, o = np.split(linear(x, w, b) + linear(h, r, d), 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def recurrent(step, x, states, p, layers, directions):
    """(outputs [T,N,...], last states) of x [T,N,I], states [layers * directions,N,H] each."""
    last = []
    for layer in range(layers):
        outputs = []
        for number, suffix in enumerate(('', '_reverse')[:directions]):
            weights = [p[f'{name}_l{layer}{suffix}'] for name in ('weight_ih', 'weight_hh', 'bias_ih', 'bias_hh')]
            state = tuple(s[layer * directions + number] for s in states)
            made = [None] * len(x)
            for t in range(len(x))[::-1 if number else 1]:
                state = step(x[t], state, *weights)
                made[t] = state[0]
            outputs.append(np.stack(made))
            last.append(state)
        x = np.concatenate(outputs, -1)
    return (x, *(np.stack(s) for s in zip(*last)))
