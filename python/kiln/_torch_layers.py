# SPDX-License-Identifier: Apache-2.0
"""Rows of ATen's layers: convolutions, pools, normalisations, attention, and their gradients."""
from __future__ import annotations

import math
from typing import Any, Callable, Optional, Sequence

import numpy as np

import kiln as _f
from . import _operations as _o
from ._gradient import gradients
from ._tensor import Tensor
from ._torch_operators import Unsupported, constant, row


def _pulled_back(function: Callable[..., Tensor], inputs: Sequence[Tensor],
                 gradient: Tensor) -> list[Tensor]:
    """The gradients by the inputs of what the function makes of them, from the one by the result."""
    own = [_o.mul(x.astype('f32'), 1) for x in inputs]
    result = function(*own)
    return gradients(_o.sum(_o.mul(result, gradient)), own)


# ---- convolution ----

def _convolved(x: Tensor, w: Tensor, stride: Sequence[int], padding: Sequence[int],
               dilation: Sequence[int], transposed: bool, output_padding: Sequence[int],
               groups: int) -> Tensor:
    options: dict[str, Any] = {'layout': 'channels_first', 'groups': groups, 'stride': list(stride),
                               'dilation': list(dilation), 'before': list(padding),
                               'after': list(padding)}
    if len(options['stride']) != x.ndim - 2:
        raise Unsupported('a convolution without a batch')
    if transposed:
        return _o.conv_transposed(x, w, output_padding=list(output_padding), **options)
    return _o.conv(x, w, **options)


@row('aten.convolution.default')
def _convolution(x: Tensor, w: Tensor, bias: Optional[Tensor], *options: Any) -> Tensor:
    y = _convolved(x.astype('f32'), w.astype('f32'), *options)
    return y if bias is None else y + bias.reshape((-1,) + (1,) * (x.ndim - 2))


@row('aten.convolution_backward.default')
def _convolution_backward(gradient: Tensor, x: Tensor, w: Tensor, bias_sizes: Any,
                          stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int],
                          transposed: bool, output_padding: Sequence[int], groups: int,
                          mask: Sequence[bool]) -> tuple[Any, ...]:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return _convolved(x, w, stride, padding, dilation, transposed, output_padding, groups)
    by_x, by_w = _pulled_back(function, [x, w], gradient.astype('f32'))
    by_bias = _o.sum(gradient, [i for i in range(x.ndim) if i != 1]) if mask[2] else None
    return by_x if mask[0] else None, by_w if mask[1] else None, by_bias


# ---- pools ----

def _all(values: Any, count: int) -> list[Any]:
    """A number for each dimension, of which one stands for all."""
    given = [values] if isinstance(values, int) else list(values)
    return given * count if len(given) == 1 else given


def _pool(x: Tensor, window: Any, stride: Any, padding: Any, ceil: bool, dilation: Any,
          count: int) -> tuple[Tensor, list[Any], dict[Any, Any]]:
    if x.ndim == count + 1:
        x = _f.expand_dims(x, 0)
    size = _all(window, count)
    padding = _all(padding, count)
    return x.astype('f32'), size, {
        'layout': 'channels_first', 'stride': _all(stride or size, count), 'before': padding,
        'after': padding, 'dilation': _all(dilation, count), 'ceil': ceil}


def _max_pool(count: int) -> Callable[..., Any]:
    def pooled(x: Tensor, window: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
               ceil: bool = False) -> tuple[Any, ...]:
        batched, size, options = _pool(x, window, stride, padding, ceil, dilation, count)
        made = _f.max_pool(batched, size, indices=True, **options)
        return tuple(y.reshape(y.shape[batched.ndim - x.ndim:]) for y in made)
    return pooled


def _max_pool_backward(count: int) -> Callable[..., Any]:
    def pulled(gradient: Tensor, x: Tensor, window: Any, stride: Any, padding: Any, dilation: Any,
               ceil: bool, indices: Tensor) -> Tensor:
        outer = x.shape[:-count]
        flat = [*outer, math.prod(x.shape[-count:])]
        seen = [*outer, math.prod(gradient.shape[-count:])]
        return _f.scatter_elements(_f.zeros(flat, 'f32'), indices.reshape(seen),
                                   gradient.astype('f32').reshape(seen), len(flat) - 1,
                                   'add').reshape(x.shape)
    return pulled


for _count in (2, 3):
    row(f'aten.max_pool{_count}d_with_indices.default')(_max_pool(_count))
    row(f'aten.max_pool{_count}d_with_indices_backward.default')(_max_pool_backward(_count))


def _avg_pool(count: int) -> Callable[..., Any]:
    def pooled(x: Tensor, window: Any, stride: Any = (), padding: Any = 0, ceil: bool = False,
               count_include_pad: bool = True, divisor_override: Optional[int] = None) -> Tensor:
        if divisor_override is not None:
            raise Unsupported('a divisor of its own')
        batched, size, options = _pool(x, window, stride, padding, ceil, 1, count)
        y = _f.avg_pool(batched, size, count_padding=count_include_pad, **options)
        return y.reshape(y.shape[batched.ndim - x.ndim:])
    return pooled


def _avg_pool_backward(count: int) -> Callable[..., Any]:
    def pulled(gradient: Tensor, x: Tensor, *options: Any) -> Tensor:
        return _pulled_back(lambda x: _avg_pool(count)(x, *options), [x], gradient)[0]
    return pulled


for _count in (1, 2, 3):
    row(f'aten.avg_pool{_count}d.default')(_avg_pool(_count))
    row(f'aten.avg_pool{_count}d_backward.default')(_avg_pool_backward(_count))


def _shares(extent: int, wanted: int) -> np.ndarray:
    """[wanted, extent]: what each element adds to the mean of each part of an adaptive pool."""
    made = np.zeros((wanted, extent), np.float32)
    for i in range(wanted):
        start, end = i * extent // wanted, -(-(i + 1) * extent // wanted)
        made[i, start:end] = 1 / (end - start)
    return made


def _spread(x: Tensor, shares: Sequence[np.ndarray]) -> Tensor:
    """x with each of its last dimensions multiplied by a matrix [wanted, extent]."""
    x = x.astype('f32')
    for i, matrix in enumerate(shares):
        dim = x.ndim - len(shares) + i
        x = _f.swapaxes(_f.swapaxes(x, dim, -1) @ constant(matrix.T, x), dim, -1)
    return x


def _adaptive_pool(x: Tensor, size: Sequence[int]) -> Tensor:
    last = x.shape[x.ndim - len(size):]
    if all(n == 1 for n in size):
        return _o.mean(x, tuple(range(-len(size), 0)), True)
    x = x.astype('f32')
    for i, (extent, wanted) in enumerate(zip(last, size)):
        x = x if extent == wanted else _means(x, x.ndim - len(size) + i, wanted)
    return x


def _means(x: Tensor, dim: int, wanted: int) -> Tensor:
    """Of so many parts along a dimension; an infinite element is in none but its own."""
    places = _windows_of(x.shape[dim], wanted)
    counts = np.diff(places, prepend=-1) != 0  # not those that repeat
    behind = (1,) * (x.ndim - dim - 1)
    parts = _o.where(constant(counts.reshape(counts.shape + behind), x), _o.gather(x, places, dim), 0)
    count = counts.sum(1).astype(np.float32).reshape((wanted, *behind))
    return _o.div(_o.sum(parts, dim + 1, False), constant(count, x))


def _adaptive_pool_backward(count: int) -> Callable[..., Any]:
    def pulled(gradient: Tensor, x: Tensor) -> Tensor:
        return _spread(gradient, [_shares(*pair).T for pair in
                                  zip(x.shape[-count:], gradient.shape[-count:])])
    return pulled


for _count in (2, 3):
    row(f'aten._adaptive_avg_pool{_count}d.default')(_adaptive_pool)
    row(f'aten._adaptive_avg_pool{_count}d_backward.default')(_adaptive_pool_backward(_count))


def _windows_of(extent: int, wanted: int) -> np.ndarray:
    """[wanted, width]: the positions of each part of an adaptive pool, the last of which repeats."""
    start = np.arange(wanted) * extent // wanted
    end = -(-(np.arange(wanted) + 1) * extent // wanted)
    places = start[:, None] + np.arange((end - start).max())
    return np.minimum(places, end[:, None] - 1).astype(np.int32)


def _adaptive_max_pool(x: Tensor, size: Sequence[int]) -> tuple[Any, ...]:
    """The largest element of each part, and its number among its channel's elements."""
    count = len(size)
    outer, last = x.shape[:x.ndim - count], x.shape[x.ndim - count:]
    if 0 in (*x.shape, *size):
        raise Unsupported('no elements')
    windows = [_windows_of(*pair) for pair in zip(last, size)]
    number = np.zeros((), np.int32)
    for i, places in reversed(list(enumerate(windows))):
        x = _o.gather(x, places, len(outer) + i)
    for places, extent in zip(windows, last):
        number = number[..., None, None] * extent + places
    parts, within = range(0, 2 * count, 2), range(1, 2 * count, 2)
    order = [*parts, *within]
    shape = [*size, math.prod(w.shape[1] for w in windows)]
    x = _f.transpose(x, [*range(len(outer)), *(len(outer) + i for i in order)])
    x = x.reshape([*outer, *shape])
    where = _o.argmax(x, -1, True)
    numbers = constant(np.ascontiguousarray(number.transpose(order)).reshape(shape), x)
    found = _f.gather_elements(_f.broadcast_to(numbers, x.shape), where, -1)
    return _o.max(x, -1, False), _f.squeeze(found, -1)


for _count in (2, 3):
    row(f'aten.adaptive_max_pool{_count}d.default')(_adaptive_max_pool)


# ---- other extents ----

def _resized(count: int, aligns: bool, **options: Any) -> Callable[..., Any]:
    """A row of so many dimensions that are interpolated; some say whether corners are aligned."""
    def resized(x: Tensor, size: Sequence[int], *further: Any) -> Tensor:
        chosen = dict(options)
        if aligns and further[0]:
            chosen['coordinates'] = 'align_corners'
        scales = [s for s in further[1 if aligns else 0:] if s is not None]
        outer = list(x.shape[:x.ndim - count])
        given: dict[str, Any] = {'scale': [1.0] * len(outer) + scales} if len(scales) == count and \
            chosen['coordinates'] != 'align_corners' else {}
        return _f.resize(x.astype('f32'), outer + list(size), **given, **chosen)
    return resized


def _resized_backward(function: Callable[..., Any]) -> Callable[..., Any]:
    def pulled(gradient: Tensor, size: Sequence[int], shape: Sequence[int], *further: Any) -> Tensor:
        # Of which tensor makes no difference: each element is a sum of some with constant weights.
        return _pulled_back(lambda x: function(x, size, *further), [_f.zeros(shape, 'f32')],
                            gradient.astype('f32'))[0]
    return pulled


_NEAREST = {'method': 'nearest', 'coordinates': 'asymmetric'}
_NEAREST_EXACT = {'method': 'nearest', 'coordinates': 'tf_half_pixel'}
_LINEAR = {'method': 'linear', 'coordinates': 'half_pixel'}
_CUBIC = {'method': 'cubic', 'coordinates': 'half_pixel'}
_AVERAGED = {'exclude_outside': True, 'antialias': True}

for _name, _count, _aligns, _options in (
        ('upsample_nearest1d', 1, False, _NEAREST), ('upsample_nearest2d', 2, False, _NEAREST),
        ('upsample_nearest3d', 3, False, _NEAREST),
        ('_upsample_nearest_exact1d', 1, False, _NEAREST_EXACT),
        ('_upsample_nearest_exact2d', 2, False, _NEAREST_EXACT),
        ('_upsample_nearest_exact3d', 3, False, _NEAREST_EXACT),
        ('upsample_linear1d', 1, True, _LINEAR), ('upsample_bilinear2d', 2, True, _LINEAR),
        ('upsample_trilinear3d', 3, True, _LINEAR), ('upsample_bicubic2d', 2, True, _CUBIC),
        ('_upsample_bilinear2d_aa', 2, True, {**_LINEAR, **_AVERAGED}),
        ('_upsample_bicubic2d_aa', 2, True, {**_CUBIC, **_AVERAGED, 'cubic': -0.5})):
    _function = row(f'aten.{_name}.default')(_resized(_count, _aligns, **_options))
    row(f'aten.{_name}_backward.default')(_resized_backward(_function))


# ---- normalisation ----

@row('aten.native_layer_norm.default')
def _layer_norm(x: Tensor, shape: Sequence[int], scale: Optional[Tensor], shift: Optional[Tensor],
                epsilon: float) -> tuple[Any, ...]:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    mean = _o.mean(x, axes, True)
    rate = _o.rsqrt(_o.variance(x, axes, 0.0, True) + epsilon)
    y = _o.layer_norm(x, scale, shift, axes, epsilon)
    return y, mean, rate


@row('aten.native_group_norm.default')
def _group_norm(x: Tensor, scale: Optional[Tensor], shift: Optional[Tensor], n: int, channels: int,
                rest: int, groups: int, epsilon: float) -> tuple[Any, ...]:
    parts = x.reshape((n, groups, -1))
    rate = _o.rsqrt(_o.variance(parts, -1, 0.0, False) + epsilon)
    return _o.group_norm(x, scale, shift, groups, 1, epsilon), _o.mean(parts, -1, False), rate


@row('aten._native_batch_norm_legit_no_training.default')
def _batch_norm(x: Tensor, scale: Optional[Tensor], shift: Optional[Tensor], mean: Tensor,
                variance: Tensor, momentum: float, epsilon: float) -> tuple[Any, ...]:
    nothing = _f.zeros((0,), 'f32')
    return _o.batch_norm(x, scale, shift, mean, variance, 1, epsilon), nothing, nothing


@row('aten._weight_norm_interface_backward.default')
def _weight_norm_backward(gradient: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Any, ...]:
    axes = tuple(i for i in range(v.ndim) if i != dim % v.ndim)
    along = _o.sum(gradient * v, axes, True)
    by_v = (g / norms) * (gradient - v * (along / _o.square(norms)))
    return by_v, along / norms


# ---- attention ----

@row('aten._scaled_dot_product_flash_attention_for_cpu.default')
def _attention(q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, causal: bool = False, *,
               attn_mask: Optional[Tensor] = None, scale: Optional[float] = None) -> tuple[Any, ...]:
    if dropout:
        raise Unsupported('attention with dropout')
    if scale == 0:
        raise Unsupported('a scale of 0')
    y = _o.attention(q, k, v, attn_mask, scale=scale or 0, causal=int(causal))
    return y, None
