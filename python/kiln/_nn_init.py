# SPDX-License-Identifier: Apache-2.0
"""What parameters start with. Each function writes a kiln.Buffer and returns it; numbers are drawn on the
host, by kiln.random.seed(), or by a `seed` of the call's own. Fans are counted as PyTorch's: of a weight
[out, in, ...] as Linear and Conv have it."""
from __future__ import annotations

import math
from typing import Any, Optional, Tuple

import numpy as np

from . import random
from ._buffer import Buffer
from ._tensor import Shape, as_type, of_array

__all__ = ['calculate_gain', 'constant_', 'kaiming_normal_', 'kaiming_uniform_', 'normal_', 'ones_',
           'orthogonal_', 'trunc_normal_', 'uniform_', 'xavier_normal_', 'xavier_uniform_', 'zeros_']


def _source(seed: Optional[int]) -> np.random.Generator:
    return random.host if seed is None else np.random.Generator(np.random.Philox(seed))


def drawn(shape: Shape, bound: float) -> np.ndarray:
    """Uniform numbers from -bound to bound: how layers of PyTorch start."""
    return random.host.uniform(-bound, bound, shape).astype(np.float32)


def _written(buffer: Buffer, values: Any) -> Buffer:
    buffer[...] = of_array(as_type(np.broadcast_to(values, buffer.shape), buffer.dtype), buffer.context,
                           buffer.dtype)
    return buffer


def fans(shape: Tuple[int, ...]) -> Tuple[int, int]:
    """How many elements an output is summed over, and an input goes to."""
    if len(shape) < 2:
        raise ValueError(f'a weight of {len(shape)} dimensions has no fans: it takes 2 or more')
    window = math.prod(shape[2:])
    return shape[1] * window, shape[0] * window


def calculate_gain(nonlinearity: str, param: Optional[float] = None) -> float:
    """The factor by which a nonlinearity wants weights to be larger."""
    gains = {'linear': 1.0, 'sigmoid': 1.0, 'tanh': 5 / 3, 'relu': math.sqrt(2), 'selu': 0.75}
    if nonlinearity == 'leaky_relu':
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in gains:
        raise ValueError(f'no gain is known for {nonlinearity!r}: {", ".join([*gains, "leaky_relu"])}')
    return gains[nonlinearity]


def uniform_(buffer: Buffer, a: float = 0.0, b: float = 1.0, seed: Optional[int] = None) -> Buffer:
    """From a to b."""
    return _written(buffer, _source(seed).uniform(a, b, buffer.shape))


def normal_(buffer: Buffer, mean: float = 0.0, std: float = 1.0, seed: Optional[int] = None) -> Buffer:
    """Of a normal distribution."""
    return _written(buffer, _source(seed).normal(mean, std, buffer.shape))


def trunc_normal_(buffer: Buffer, mean: float = 0.0, std: float = 1.0, a: float = -2.0,
                  b: float = 2.0, seed: Optional[int] = None) -> Buffer:
    """Of a normal distribution, of which what is not from a to b is drawn anew."""
    source = _source(seed)
    values = source.normal(mean, std, buffer.shape)
    beyond = (values < a) | (values > b)
    for _ in range(1000):
        if not beyond.any():
            return _written(buffer, values)
        values[beyond] = source.normal(mean, std, int(beyond.sum()))
        beyond = (values < a) | (values > b)
    raise ValueError(f'hardly a number of mean {mean} and deviation {std} is from {a} to {b}')


def constant_(buffer: Buffer, value: float) -> Buffer:
    """One value."""
    return _written(buffer, np.float32(value))


def zeros_(buffer: Buffer) -> Buffer:
    """Zeros."""
    return constant_(buffer, 0.0)


def ones_(buffer: Buffer) -> Buffer:
    """Ones."""
    return constant_(buffer, 1.0)


def xavier_uniform_(buffer: Buffer, gain: float = 1.0, seed: Optional[int] = None) -> Buffer:
    """Uniform, of the variance 2 gain^2 / (fan in + fan out) (X. Glorot and Y. Bengio, AISTATS 2010)."""
    bound = gain * math.sqrt(6 / sum(fans(buffer.shape)))
    return uniform_(buffer, -bound, bound, seed)


def xavier_normal_(buffer: Buffer, gain: float = 1.0, seed: Optional[int] = None) -> Buffer:
    """Normal, of the same variance."""
    return normal_(buffer, 0.0, gain * math.sqrt(2 / sum(fans(buffer.shape))), seed)


def _kaiming(buffer: Buffer, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ('fan_in', 'fan_out'):
        raise ValueError(f'the mode is "fan_in" or "fan_out", not {mode!r}')
    return calculate_gain(nonlinearity, a) / math.sqrt(fans(buffer.shape)[mode == 'fan_out'])


def kaiming_uniform_(buffer: Buffer, a: float = 0.0, mode: str = 'fan_in',
                     nonlinearity: str = 'leaky_relu', seed: Optional[int] = None) -> Buffer:
    """Uniform, of the variance gain^2 / fan (K. He and others, ICCV 2015); `a` is leaky_relu's slope."""
    bound = math.sqrt(3) * _kaiming(buffer, a, mode, nonlinearity)
    return uniform_(buffer, -bound, bound, seed)


def kaiming_normal_(buffer: Buffer, a: float = 0.0, mode: str = 'fan_in',
                    nonlinearity: str = 'leaky_relu', seed: Optional[int] = None) -> Buffer:
    """Normal, of the same variance."""
    return normal_(buffer, 0.0, _kaiming(buffer, a, mode, nonlinearity), seed)


def orthogonal_(buffer: Buffer, gain: float = 1.0, seed: Optional[int] = None) -> Buffer:
    """Rows, or columns where there are fewer of them, that are orthogonal and of length `gain`
    (A. Saxe and others, ICLR 2014)."""
    if len(buffer.shape) < 2:
        raise ValueError(f'a weight of {len(buffer.shape)} dimensions: it takes 2 or more')
    rows, columns = buffer.shape[0], math.prod(buffer.shape[1:])
    drawn = _source(seed).normal(size=(max(rows, columns), min(rows, columns)))
    q, r = np.linalg.qr(drawn)
    q *= np.sign(np.diag(r))
    return _written(buffer, gain * (q.T if rows < columns else q).reshape(buffer.shape))
