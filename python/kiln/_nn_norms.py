# SPDX-License-Identifier: Apache-2.0
"""Normalisations, as PyTorch has them."""
from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Set, Tuple, Union

import numpy as np

from . import _functions as _f
from . import _operations as _o
from . import _tape
from ._buffer import Buffer
from ._context import Context
from ._manipulation import reshape
from ._nn_module import Module, parameter, shown
from ._tensor import Array, Tensor, evaluate_on_device
from ._types import Type

__all__ = ['BatchNorm1d', 'BatchNorm2d', 'BatchNorm3d', 'GroupNorm', 'InstanceNorm1d', 'InstanceNorm2d',
           'InstanceNorm3d', 'LayerNorm', 'RMSNorm']


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) weight + bias over the last dimensions, which
    `normalized_shape` says."""

    def __init__(self, normalized_shape: Union[int, Sequence[int]], eps: float = 1e-5,
                 elementwise_affine: bool = True, bias: bool = True, *, dtype: Type = 'f32',
                 context: Optional[Context] = None) -> None:
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else \
            tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight = parameter(np.ones(self.normalized_shape, np.float32), dtype, context) \
            if elementwise_affine else None
        self._begin_bias(bias and elementwise_affine, dtype, context)

    def _begin_bias(self, bias: bool, dtype: Type, context: Optional[Context]) -> None:
        self.bias = parameter(np.zeros(self.normalized_shape, np.float32), dtype, context) \
            if bias else None

    def _axes(self, x: Tensor) -> Tuple[int, ...]:
        count = len(self.normalized_shape)
        if not count or x.shape[-count:] != self.normalized_shape:
            self._refuse(f'x {shown(x)} does not end with {list(self.normalized_shape)}')
        return tuple(range(-count, 0))

    def forward(self, x: Array) -> Tensor:
        """Of x's shape."""
        x = self._operand(x)
        return _o.layer_norm(x, self.weight, self.bias, self._axes(x), self.eps)

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}'


class RMSNorm(LayerNorm):
    """x / sqrt(mean of x^2 + eps) weight over the last dimensions. Without eps it is f32's, 2^-23."""

    def __init__(self, normalized_shape: Union[int, Sequence[int]], eps: Optional[float] = None,
                 elementwise_affine: bool = True, *, dtype: Type = 'f32',
                 context: Optional[Context] = None) -> None:
        super().__init__(normalized_shape, 2.0 ** -23 if eps is None else eps, elementwise_affine,
                         dtype=dtype, context=context)

    def _begin_bias(self, bias: bool, dtype: Type, context: Optional[Context]) -> None:
        """It has none."""

    def forward(self, x: Array) -> Tensor:
        """Of x's shape."""
        x = self._operand(x)
        return _o.rms_norm(x, self.weight, self._axes(x), self.eps)


class GroupNorm(Module):
    """Each of num_groups groups of channels of each x [N, num_channels, ...] by its own mean and
    variance, then weight and bias of each channel."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, *,
                 dtype: Type = 'f32', context: Optional[Context] = None) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f'{num_channels} channels do not make up {num_groups} groups')
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.weight = parameter(np.ones(num_channels, np.float32), dtype, context) if affine else None
        self.bias = parameter(np.zeros(num_channels, np.float32), dtype, context) if affine else None

    def forward(self, x: Array) -> Tensor:
        """Of x's shape."""
        x = self._operand(x)
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            self._refuse(f'x {shown(x)} has no {self.num_channels} channels in dimension 1')
        return _o.group_norm(x, self.weight, self.bias, self.num_groups, 1, self.eps)

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}'


class InstanceNorm2d(Module):
    """Each channel of each x [N, num_features, H, W], or of one without N, by its own mean and variance, then
    weight and bias of each channel where it is affine. It has no running averages."""
    _dimensions = 2

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
                 track_running_stats: bool = False, *, dtype: Type = 'f32',
                 context: Optional[Context] = None) -> None:
        if track_running_stats:
            raise ValueError(f'{type(self).__name__} has no running averages')
        self.num_features, self.eps, self.affine = num_features, eps, affine
        self.weight = parameter(np.ones(num_features, np.float32), dtype, context) if affine else None
        self.bias = parameter(np.zeros(num_features, np.float32), dtype, context) if affine else None

    def forward(self, x: Array) -> Tensor:
        """Of x's shape."""
        x = self._operand(x)
        rank = self._dimensions + 2
        if x.ndim not in (rank - 1, rank) or x.shape[-self._dimensions - 1] != self.num_features:
            self._refuse(f'x {shown(x)} is not [N,{self.num_features},...] of {rank} dimensions, nor one without N')
        y = _o.instance_norm(x if x.ndim == rank else reshape(x, (1, *x.shape)), self.weight, self.bias, 1, self.eps)
        return y if x.ndim == rank else reshape(y, x.shape)

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'{self.num_features}, eps={self.eps}, affine={self.affine}'


class InstanceNorm1d(InstanceNorm2d):
    """InstanceNorm2d of x [N, num_features, L]."""
    _dimensions = 1


class InstanceNorm3d(InstanceNorm2d):
    """InstanceNorm2d of x [N, num_features, D, H, W]."""
    _dimensions = 3


class _BatchNorm(Module):
    _ranks: Tuple[int, ...] = (4,)
    running_mean: Optional[Buffer]
    running_var: Optional[Buffer]
    num_batches_tracked: Optional[Buffer]

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: Optional[float] = 0.1,
                 affine: bool = True, track_running_stats: bool = True, *, dtype: Type = 'f32',
                 context: Optional[Context] = None) -> None:
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        one, zero = np.ones(num_features, np.float32), np.zeros(num_features, np.float32)
        self.weight = parameter(one, dtype, context) if affine else None
        self.bias = parameter(zero, dtype, context) if affine else None
        tracks = track_running_stats
        self.register_buffer('running_mean', parameter(zero, 'f32', context) if tracks else None)
        self.register_buffer('running_var', parameter(one, 'f32', context) if tracks else None)
        # Only a mean over all batches counts them.
        self.register_buffer('num_batches_tracked', parameter(np.zeros((), np.int32), 'i32', context)
                             if tracks and momentum is None else None)

    def _ignored(self) -> Set[str]:
        return set() if self.num_batches_tracked is not None else {'num_batches_tracked'}

    def forward(self, x: Array) -> Tensor:
        """Of x's shape."""
        x = self._operand(x)
        if x.ndim not in self._ranks or x.shape[1] != self.num_features:
            self._refuse(f'x {shown(x)} is not [N,{self.num_features}'
                         f'{",..." if self._ranks != (2,) else ""}] of '
                         f'{" or ".join(map(str, self._ranks))} dimensions')
        mean, variance = self.running_mean, self.running_var
        if mean is not None and variance is not None and not self.training:
            return _o.batch_norm(x, self.weight, self.bias, mean, variance, 1, self.eps)
        y: Tensor
        y, of_mean, of_variance = _f.batch_norm_train(x, self.weight, self.bias, 1, self.eps)
        if mean is None or variance is None or not self.training:
            return y
        count = x.size // self.num_features if self.num_features else 0
        if count < 2:
            self._refuse(f'x {shown(x)} has one value of each channel, and no variance to train by')
        self._follow(y, {mean: of_mean, variance: of_variance * (count / (count - 1))})
        return y

    def _follow(self, y: Tensor, statistics: Dict[Buffer, Tensor]) -> None:
        """Have the running averages go on by the batch's; its variance is a sample's."""
        counted = self.num_batches_tracked
        writes: Dict[Buffer, Tensor] = {}
        if counted is not None:
            writes[counted] = counted + 1
        share: Any = self.momentum if counted is None else 1 / (counted + 1).astype('f32')
        for running, of_batch in statistics.items():
            writes[running] = running + share * (of_batch - running)
        if not _tape.is_recording():
            # With y, so that what leads to it runs once.
            evaluate_on_device([y], writes)
            return
        for running, value in writes.items():
            running[...] = value

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, ' \
               f'track_running_stats={self.track_running_stats}'


class BatchNorm2d(_BatchNorm):
    """Each channel of x [N, num_features, H, W] by its mean and variance, then weight and bias of each
    channel. While it trains these are the batch's, and running averages of them follow by the share
    `momentum` (None: a mean over all batches), of the variance with n - 1; else they are those
    averages. In a kiln.function each run writes them, and elsewhere each call, which computes what it
    gives at once."""


class BatchNorm1d(_BatchNorm):
    """BatchNorm2d of x [N, num_features] or [N, num_features, L]."""
    _ranks = (2, 3)


class BatchNorm3d(_BatchNorm):
    """BatchNorm2d of x [N, num_features, D, H, W]."""
    _ranks = (5,)
