# SPDX-License-Identifier: Apache-2.0
"""Activations, as PyTorch has them. `inplace` is taken, and says nothing: x keeps its value, and nothing is
copied for that."""
from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from . import _operations as _o
from ._context import Context
from ._manipulation import reshape
from ._nn_module import Module, parameter, shown
from ._tensor import Array, Tensor
from ._types import Type

__all__ = [
    'ELU', 'GELU', 'GLU', 'Hardsigmoid', 'Hardswish', 'Hardtanh', 'LeakyReLU', 'LogSigmoid', 'LogSoftmax', 'Mish',
    'PReLU', 'ReLU', 'ReLU6', 'SELU', 'SiLU', 'Sigmoid', 'Softmax', 'Softplus', 'Softsign', 'Tanh',
]


class _Elementwise(Module):
    _function: Callable[[Tensor], Tensor]

    def __init__(self, inplace: bool = False) -> None:
        pass

    def forward(self, x: Array) -> Tensor:
        """Of x's shape."""
        return self._function(self._operand(x))


class ReLU(_Elementwise):
    """The larger of x and 0."""
    _function = staticmethod(_o.relu)


class ReLU6(_Elementwise):
    """The larger of x and 0, but at most 6."""
    _function = staticmethod(lambda x: _o.clamp(x, 0.0, 6.0))


class SELU(_Elementwise):
    """1.0507 x where it is positive, else 1.7581 (exp(x) - 1)."""
    _function = staticmethod(lambda x: 1.0507009873554805 * _o.elu(x, 1.6732632423543772))


class SiLU(_Elementwise):
    """x sigmoid(x)."""
    _function = staticmethod(_o.swish)


class Mish(_Elementwise):
    """x tanh(softplus(x))."""
    _function = staticmethod(lambda x: x * _o.tanh(_o.softplus(x)))


class Tanh(_Elementwise):
    """The hyperbolic tangent."""
    _function = staticmethod(_o.tanh)


class Sigmoid(_Elementwise):
    """1 / (1 + exp(-x))."""
    _function = staticmethod(_o.sigmoid)


class LogSigmoid(_Elementwise):
    """-log(1 + exp(-x))."""
    _function = staticmethod(lambda x: -_o.softplus(-x))


class Hardsigmoid(_Elementwise):
    """x / 6 + 1/2, from 0 to 1."""
    _function = staticmethod(_o.hard_sigmoid)


class Hardswish(_Elementwise):
    """x times what Hardsigmoid gives."""
    _function = staticmethod(_o.hard_swish)


class Softsign(_Elementwise):
    """x / (1 + |x|)."""
    _function = staticmethod(lambda x: x / (1 + abs(x)))


class GELU(Module):
    """kiln.gelu(), or kiln.gelu_tanh() where `approximate` is "tanh"."""

    def __init__(self, approximate: str = 'none') -> None:
        if approximate not in ('none', 'tanh'):
            raise ValueError(f'approximate is "none" or "tanh", not {approximate!r}')
        self.approximate = approximate

    def forward(self, x: Array) -> Tensor:
        """Of x's shape."""
        return (_o.gelu if self.approximate == 'none' else _o.gelu_tanh)(self._operand(x))

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'approximate={self.approximate!r}'


class Softplus(Module):
    """log(1 + exp(beta x)) / beta."""

    def __init__(self, beta: float = 1.0) -> None:
        self.beta = beta

    def forward(self, x: Array) -> Tensor:
        """Of x's shape."""
        x = self._operand(x)
        return _o.softplus(x) if self.beta == 1 else _o.softplus(x * self.beta) / self.beta

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'beta={self.beta}'


class LeakyReLU(Module):
    """x where it is positive, else negative_slope x."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope = negative_slope

    def forward(self, x: Array) -> Tensor:
        """Of x's shape."""
        return _o.leaky_relu(self._operand(x), self.negative_slope)

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'negative_slope={self.negative_slope}'


class ELU(Module):
    """x where it is positive, else alpha (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha = alpha

    def forward(self, x: Array) -> Tensor:
        """Of x's shape."""
        return _o.elu(self._operand(x), self.alpha)

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'alpha={self.alpha}'


class Hardtanh(Module):
    """x, but at least min_val and at most max_val."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        if not min_val < max_val:
            raise ValueError(f'min_val {min_val} is not below max_val {max_val}')
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Array) -> Tensor:
        """Of x's shape."""
        return _o.clamp(self._operand(x), self.min_val, self.max_val)

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'min_val={self.min_val}, max_val={self.max_val}'


class PReLU(Module):
    """x where it is positive, else weight x; the weight is one number, or one for each channel of
    x [N, channels, ...]."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, *, dtype: Type = 'f32',
                 context: Optional[Context] = None) -> None:
        self.num_parameters = num_parameters
        self.weight = parameter(np.full(num_parameters, init, np.float32), dtype, context)

    def forward(self, x: Array) -> Tensor:
        """Of x's shape."""
        x = self._operand(x)
        weight: Any = self.weight
        if self.num_parameters != 1:
            if x.ndim < 2 or x.shape[1] != self.num_parameters:
                self._refuse(f'x {shown(x)} has no {self.num_parameters} channels in dimension 1')
            weight = reshape(weight, (-1,) + (1,) * (x.ndim - 2))
        elif not x.ndim:
            weight = reshape(weight, ())
        return _o.where(x > 0, x, weight * x)

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'num_parameters={self.num_parameters}'


class GLU(Module):
    """The first half of x along a dimension times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Array) -> Tensor:
        """Half as long as x along the dimension."""
        x = self._operand(x)
        dim = self.dim + x.ndim if self.dim < 0 else self.dim
        if not 0 <= dim < x.ndim or x.shape[dim] % 2:
            self._refuse(f'x {shown(x)} has no two halves along dimension {self.dim}')
        half, before = x.shape[dim] // 2, (slice(None),) * dim
        made: Tensor = x[(*before, slice(None, half))] * _o.sigmoid(x[(*before, slice(half, None))])
        return made

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'dim={self.dim}'


class Softmax(Module):
    """kiln.softmax() over a dimension."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def forward(self, x: Array) -> Tensor:
        """Of x's shape."""
        return _o.softmax(self._operand(x), self.dim)

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'dim={self.dim}'


class LogSoftmax(Softmax):
    """kiln.log_softmax() over a dimension."""

    def forward(self, x: Array) -> Tensor:
        """Of x's shape."""
        return _o.log_softmax(self._operand(x), self.dim)
