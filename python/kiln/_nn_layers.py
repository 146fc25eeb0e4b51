# SPDX-License-Identifier: Apache-2.0
"""Layers of weights, pools, and what makes them one network. Names, parameters, layouts and what
they start with are PyTorch's."""
from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from . import _functions as _f
from . import _operations as _o
from . import random
from ._buffer import Buffer
from ._context import Context
from ._creation import full
from ._manipulation import pad, reshape
from ._nn_init import drawn
from ._nn_module import Module, parameter, shown
from ._tensor import Array, Tensor
from ._types import Type

__all__ = [
    'AdaptiveAvgPool1d', 'AdaptiveAvgPool2d', 'AdaptiveMaxPool1d', 'AdaptiveMaxPool2d', 'AvgPool1d', 'AvgPool2d',
    'AvgPool3d', 'Conv1d', 'Conv2d', 'Conv3d', 'ConvTranspose1d', 'ConvTranspose2d', 'ConvTranspose3d', 'Dropout',
    'Dropout1d', 'Dropout2d', 'Dropout3d', 'Embedding', 'Flatten', 'Identity', 'Linear', 'MaxPool1d', 'MaxPool2d',
    'MaxPool3d', 'Unflatten',
]

Sizes = Union[int, Sequence[int]]


def _each(value: Any, count: int, what: str) -> Tuple[Any, ...]:
    """A number for each dimension, of which one stands for all."""
    values = (value,) * count if isinstance(value, int) else tuple(value)
    if len(values) != count:
        raise ValueError(f'{what} has {count} numbers, one for each dimension, not {len(values)}')
    return values


class Linear(Module):
    """x weight' + bias over the last dimension of x; the weight is [out_features, in_features]."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, dtype: Type = 'f32',
                 context: Optional[Context] = None) -> None:
        self.in_features, self.out_features = in_features, out_features
        bound = 1 / math.sqrt(in_features) if in_features else 0.0
        self.weight = parameter(drawn((out_features, in_features), bound), dtype, context)
        self.bias = parameter(drawn(out_features, bound), dtype, context) if bias else None

    def forward(self, x: Array) -> Tensor:
        """[..., out_features] of x [..., in_features]."""
        x = self._operand(x)
        if not x.ndim or x.shape[-1] != self.in_features:
            self._refuse(f'x {shown(x)} has no {self.in_features} features along its last dimension')
        y = _o.matmul_transposed(x, False, self.weight, True)
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'in_features={self.in_features}, out_features={self.out_features}, ' \
               f'bias={self.bias is not None}'


class Embedding(Module):
    """The rows of a table [num_embeddings, embedding_dim] that x, of integers, says. A number that is
    negative or too large gives NaN. The row of `padding_idx` starts with zeros, and has no gradient."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: Optional[int] = None, *,
                 dtype: Type = 'f32', context: Optional[Context] = None) -> None:
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f'padding_idx {padding_idx} is not among {num_embeddings} rows')
        self.padding_idx = padding_idx if padding_idx is None else padding_idx % num_embeddings
        values = random.host.normal(size=(num_embeddings, embedding_dim)).astype(np.float32)
        if self.padding_idx is not None:
            values[self.padding_idx] = 0
        self.weight = parameter(values, dtype, context)

    def forward(self, x: Array) -> Tensor:
        """[..., embedding_dim] of x [...]."""
        x = self._operand(x)
        if x.dtype.is_floating:
            self._refuse(f'x {shown(x)} is of {x.dtype.name}, and rows are numbered by integers')
        y = _o.gather(self.weight, x, 0)
        if self.padding_idx is None:
            return y
        return _o.where(reshape(_o.equal(x, self.padding_idx), (*x.shape, 1)), _o.detach(y), y)

    def extra_repr(self) -> str:
        """Its arguments."""
        padding = '' if self.padding_idx is None else f', padding_idx={self.padding_idx}'
        return f'{self.num_embeddings}, {self.embedding_dim}{padding}'


# ---- windows ----

class _Windows(Module):
    """Over the last `_dimensions` dimensions of x [N, channels, ...], or of one without N."""

    _dimensions = 2

    def _batched(self, x: Array, channels: Optional[int]) -> Tuple[Tensor, bool]:
        x = self._operand(x)
        rank = self._dimensions + 2
        if x.ndim not in (rank - 1, rank) or channels not in (None, x.shape[-self._dimensions - 1]):
            wanted = 'channels' if channels is None else f'{channels} channels'
            self._refuse(f'x {shown(x)} is not [N,{wanted},...] of {rank} dimensions, nor one without N')
        return (x, False) if x.ndim == rank else (reshape(x, (1, *x.shape)), True)


_AROUND = {'zeros': '', 'reflect': 'reflect', 'replicate': 'edge', 'circular': 'wrap'}


class _Conv(_Windows):
    _transposed = False
    weight: Any
    bias: Any

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1,
                 padding: Union[str, Sizes] = 0, dilation: Sizes = 1, groups: int = 1,
                 bias: bool = True, padding_mode: str = 'zeros', *, dtype: Type = 'f32',
                 context: Optional[Context] = None) -> None:
        self._arrange(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        ends = (in_channels, out_channels) if self._transposed else (out_channels, in_channels)
        shape = (ends[0], ends[1] // groups, *self.kernel_size)
        fan = math.prod(shape[1:])
        bound = 1 / math.sqrt(fan) if fan else 0.0
        self.weight = parameter(drawn(shape, bound), dtype, context)
        self.bias = parameter(drawn(out_channels, bound), dtype, context) if bias else None

    def _arrange(self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes,
                 padding: Union[str, Sizes], dilation: Sizes, groups: int, padding_mode: str = 'zeros') -> None:
        """All but the weights."""
        count = self._dimensions
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = _each(kernel_size, count, 'kernel_size')
        self.stride, self.dilation = _each(stride, count, 'stride'), _each(dilation, count, 'dilation')
        self.padding = padding if isinstance(padding, str) else _each(padding, count, 'padding')
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(f'{in_channels} and {out_channels} channels do not make up {groups} groups')
        if isinstance(padding, str) and (padding not in ('same', 'valid') or self._transposed):
            raise ValueError(f'padding is numbers, "same" or "valid" (of no transposed one), not {padding!r}')
        if padding == 'same' and set(self.stride) != {1}:
            raise ValueError('padding "same" takes a stride of 1')
        if padding_mode not in _AROUND or (self._transposed and padding_mode != 'zeros'):
            raise ValueError(f'padding_mode is {", ".join(map(repr, _AROUND))} (of no transposed one), not '
                             f'{padding_mode!r}')
        self.padding_mode = padding_mode

    def _paddings(self) -> Tuple[List[int], List[int]]:
        """Before and after each dimension."""
        if self.padding == 'valid':
            return [0] * self._dimensions, [0] * self._dimensions
        if isinstance(self.padding, str):
            total = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size)]
            return [t // 2 for t in total], [t - t // 2 for t in total]
        return list(self.padding), list(self.padding)

    def _convolved(self, x: Tensor, before: List[int], after: List[int]) -> Tensor:
        return _o.conv(x, self.weight, layout='channels_first', groups=self.groups, stride=self.stride,
                       dilation=self.dilation, before=before, after=after)

    def forward(self, x: Array) -> Tensor:
        """[N, out_channels, ...] of x [N, in_channels, ...], or both without N."""
        x, alone = self._batched(x, self.in_channels)
        before, after = self._paddings()
        if self.padding_mode != 'zeros' and any((*before, *after)):
            x = pad(x, [(0, 0), (0, 0), *zip(before, after)], mode=_AROUND[self.padding_mode])
            before = after = [0] * self._dimensions
        y = self._convolved(x, before, after)
        if self.bias is not None:
            y = y + reshape(self.bias, (-1,) + (1,) * self._dimensions)
        return reshape(y, y.shape[1:]) if alone else y

    def extra_repr(self) -> str:
        """Its arguments, but for what is as usual."""
        usual = (('padding', (0,) * self._dimensions), ('dilation', (1,) * self._dimensions),
                 ('groups', 1), ('output_padding', (0,) * self._dimensions), ('padding_mode', 'zeros'))
        said = [f'{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}',
                f'stride={self.stride}']
        said += [f'{name}={getattr(self, name)!r}' for name, value in usual
                 if getattr(self, name, value) != value]
        return ', '.join(said + ([] if self.bias is not None else ['bias=False']))


class Conv2d(_Conv):
    """A convolution of images [N, in_channels, H, W] with a weight [out_channels, in_channels / groups,
    KH, KW]. `padding` is how much is around, or "same" or "valid"; what that is says `padding_mode`: "zeros",
    "reflect", "replicate" or "circular"."""


class Conv1d(_Conv):
    """Conv2d over one dimension: x [N, in_channels, L]."""
    _dimensions = 1


class Conv3d(_Conv):
    """Conv2d over three dimensions: x [N, in_channels, D, H, W]."""
    _dimensions = 3


class _ConvTranspose(_Conv):
    _transposed = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1,
                 padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, bias: bool = True,
                 dilation: Sizes = 1, padding_mode: str = 'zeros', *, dtype: Type = 'f32',
                 context: Optional[Context] = None) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias,
                         padding_mode, dtype=dtype, context=context)
        self.output_padding = _each(output_padding, self._dimensions, 'output_padding')

    def _convolved(self, x: Tensor, before: List[int], after: List[int]) -> Tensor:
        return _o.conv_transposed(x, self.weight, layout='channels_first', groups=self.groups,
                                  stride=self.stride, dilation=self.dilation, before=before,
                                  after=after, output_padding=self.output_padding)


class ConvTranspose2d(_ConvTranspose):
    """The transpose of Conv2d: x [N, in_channels, H, W] with a weight [in_channels, out_channels /
    groups, KH, KW]."""


class ConvTranspose1d(_ConvTranspose):
    """ConvTranspose2d over one dimension."""
    _dimensions = 1


class ConvTranspose3d(_ConvTranspose):
    """ConvTranspose2d over three dimensions."""
    _dimensions = 3


class _Pool(_Windows):
    def _options(self, kernel_size: Sizes, stride: Optional[Sizes], padding: Sizes,
                 ceil_mode: bool) -> None:
        count = self._dimensions
        self.kernel_size = _each(kernel_size, count, 'kernel_size')
        self.stride = self.kernel_size if stride is None else _each(stride, count, 'stride')
        self.padding, self.ceil_mode = _each(padding, count, 'padding'), ceil_mode

    def _given(self) -> Dict[str, Any]:
        return {'layout': 'channels_first', 'stride': self.stride, 'before': self.padding,
                'after': self.padding, 'ceil': self.ceil_mode}

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}'


class _MaxPool(_Pool):
    def __init__(self, kernel_size: Sizes, stride: Optional[Sizes] = None, padding: Sizes = 0,
                 dilation: Sizes = 1, ceil_mode: bool = False) -> None:
        self._options(kernel_size, stride, padding, ceil_mode)
        self.dilation = _each(dilation, self._dimensions, 'dilation')

    def forward(self, x: Array) -> Tensor:
        """The largest element of each window; what is around x is none."""
        x, alone = self._batched(x, None)
        y: Tensor = _f.max_pool(x, self.kernel_size, dilation=self.dilation, **self._given())
        return reshape(y, y.shape[1:]) if alone else y


class MaxPool2d(_MaxPool):
    """The largest element of each window of each channel; the stride is the window's own unless given."""


class MaxPool1d(_MaxPool):
    """MaxPool2d over one dimension."""
    _dimensions = 1


class MaxPool3d(_MaxPool):
    """MaxPool2d over three dimensions."""
    _dimensions = 3


class _AvgPool(_Pool):
    def __init__(self, kernel_size: Sizes, stride: Optional[Sizes] = None, padding: Sizes = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True) -> None:
        self._options(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad = count_include_pad

    def forward(self, x: Array) -> Tensor:
        """The mean of each window."""
        x, alone = self._batched(x, None)
        y = _f.avg_pool(x, self.kernel_size, count_padding=self.count_include_pad, **self._given())
        return reshape(y, y.shape[1:]) if alone else y


class AvgPool2d(_AvgPool):
    """The mean of each window of each channel; zeros around x count, unless `count_include_pad` is
    false."""


class AvgPool1d(_AvgPool):
    """AvgPool2d over one dimension."""
    _dimensions = 1


class AvgPool3d(_AvgPool):
    """AvgPool2d over three dimensions."""
    _dimensions = 3


class _AdaptivePool(_Windows):
    _whole = staticmethod(_o.mean)
    _parts: Callable[..., Any] = staticmethod(_f.avg_pool)

    def __init__(self, output_size: Union[int, Sequence[Optional[int]]]) -> None:
        self.output_size = _each(output_size, self._dimensions, 'output_size')

    def forward(self, x: Array) -> Tensor:
        """One element of each of so many equal parts of each channel as output_size says; None: as many
        as there are."""
        x, alone = self._batched(x, None)
        extents = x.shape[2:]
        sizes = [extent if n is None else n for extent, n in zip(extents, self.output_size)]
        if any(not n or extent % n for extent, n in zip(extents, sizes)):
            self._refuse(f'x {shown(x)} has no {list(self.output_size)} equal parts')
        window = [extent // n for extent, n in zip(extents, sizes)]
        y = self._whole(x, tuple(range(2, x.ndim)), True) if set(sizes) == {1} else \
            self._parts(x, window, layout='channels_first')
        return reshape(y, y.shape[1:]) if alone else y

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'output_size={self.output_size}'


class AdaptiveAvgPool2d(_AdaptivePool):
    """The means of [output_size] parts of each channel, which have to be equal ones."""


class AdaptiveAvgPool1d(_AdaptivePool):
    """AdaptiveAvgPool2d over one dimension."""
    _dimensions = 1


class AdaptiveMaxPool2d(_AdaptivePool):
    """The largest elements of [output_size] parts of each channel, which have to be equal ones."""
    _whole = staticmethod(_o.max)
    _parts = staticmethod(_f.max_pool)


class AdaptiveMaxPool1d(AdaptiveMaxPool2d):
    """AdaptiveMaxPool2d over one dimension."""
    _dimensions = 1


# ---- dropping out ----

class Dropout(Module):
    """While it trains, each element is 0 with the probability p, and else divided by 1 - p. Which
    ones is another matter in each call, and in each run of a kiln.function; kiln.random.seed(), or a
    generator of its own, makes it the same again."""

    def __init__(self, p: float = 0.5, inplace: bool = False, *,
                 generator: Optional[random.Generator] = None) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f'a probability is from 0 to 1, not {p}')
        self.p, self.generator = p, generator

    def _drop(self, y: Tensor) -> Tensor:
        generator = self.generator or random.default_generator(y.context)
        return _o.dropout(y.astype('f32'), self.p, generator.key())

    def forward(self, x: Array) -> Tensor:
        """x, with elements dropped out while it trains."""
        y = self._operand(x)
        return self._drop(y) if self.training and self.p else y

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'p={self.p}'


class Dropout2d(Dropout):
    """Dropout of whole channels of x [N, channels, H, W], or of one without N."""
    _dimensions = 2

    def forward(self, x: Array) -> Tensor:
        """x, with channels dropped out while it trains."""
        y = self._operand(x)
        if y.ndim not in (self._dimensions + 1, self._dimensions + 2):
            self._refuse(f'x {shown(y)} is not [N,channels,...] of {self._dimensions + 2} dimensions, nor one '
                         'without N')
        if not self.training or not self.p:
            return y
        return y * self._drop(full((*y.shape[:-self._dimensions], *(1,) * self._dimensions), 1.0, dtype='f32',
                                   context=y.context))


class Dropout1d(Dropout2d):
    """Dropout2d of x [N, channels, L]."""
    _dimensions = 1


class Dropout3d(Dropout2d):
    """Dropout2d of x [N, channels, D, H, W]."""
    _dimensions = 3


# ---- shapes ----

class Identity(Module):
    """x itself; arguments are taken, and say nothing."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        pass

    def forward(self, x: Array) -> Tensor:
        """x."""
        return self._operand(x)


class Flatten(Module):
    """The dimensions from start_dim to end_dim as one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Array) -> Tensor:
        """x with fewer dimensions."""
        x = self._operand(x)
        start, end = (dim + x.ndim if dim < 0 else dim for dim in (self.start_dim, self.end_dim))
        if not 0 <= start <= end < x.ndim:
            self._refuse(f'x {shown(x)} has no such dimensions')
        return reshape(x, (*x.shape[:start], math.prod(x.shape[start:end + 1]), *x.shape[end + 1:]))

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'start_dim={self.start_dim}, end_dim={self.end_dim}'


class Unflatten(Module):
    """The dimension `dim` as those of `unflattened_size`, of which one may be -1."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Array) -> Tensor:
        """x with more dimensions."""
        x = self._operand(x)
        dim = self.dim + x.ndim if self.dim < 0 else self.dim
        sizes = self.unflattened_size
        known = math.prod(size for size in sizes if size != -1)
        if 0 <= dim < x.ndim and sizes.count(-1) == 1 and known > 0 and not x.shape[dim] % known:
            sizes = tuple(x.shape[dim] // known if size == -1 else size for size in sizes)
        if not 0 <= dim < x.ndim or min(sizes, default=0) < 0 or math.prod(sizes) != x.shape[dim]:
            self._refuse(f'x {shown(x)} has no dimension {self.dim} that is {list(self.unflattened_size)}')
        return reshape(x, (*x.shape[:dim], *sizes, *x.shape[dim + 1:]))

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'dim={self.dim}, unflattened_size={self.unflattened_size}'
