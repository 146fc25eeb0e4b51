# SPDX-License-Identifier: Apache-2.0
"""Layers, and what else has options or several results: what the generated functions cannot say."""
from __future__ import annotations

import builtins
import ctypes
from typing import Any, Optional, Sequence, Union

import numpy as np

from . import _operations as _o
from . import _tensor
from ._context import default_context
from ._library import Handle, check, initialised, lib, sizes, word
from ._manipulation import reshape
from ._record import (axes_of, call, dims_of, find_context, is_none_at_all, operand, options_of,
                      several)
from ._tape import Expression
from ._tree import leaves_of, rebuilt
from ._types import Type, as_dtype

# ---- pools, quantisation, clipping ----

Sizes = Union[int, Sequence[int]]


def _window(x: Any, window: Any, name: str, fields: dict[Any, Any]) -> tuple[Any, ...]:
    """C's window and options, for the dimensions of x between rows and channels."""
    dimensions = x.ndim - 2
    size = [window] * dimensions if hasattr(window, '__index__') else dims_of(window)
    if len(size) != dimensions or dimensions < 1:
        raise ValueError(f'a window over a tensor of {x.ndim} dimensions has {dimensions} sizes, '
                         f'not {len(size)}')
    return sizes(size), ctypes.byref(options_of(name, fields, dimensions))


def max_pool2d(x: _tensor.Array, window: Sizes, *, stride: Sizes = 0, dilation: Sizes = 0,
               before: Sizes = 0, after: Sizes = 0) -> _tensor.Tensor:
    """The largest element of each window of each channel of images [N,H,W,C]; a stride of 0 is the
    window's own size."""
    x = operand(x)
    return call(x, 'max_pool2d', *_window(x, window, 'kiln_window_options', {
        'stride': stride, 'dilation': dilation, 'before': before, 'after': after}))


def avg_pool2d(x: _tensor.Array, window: Sizes, *, stride: Sizes = 0, dilation: Sizes = 0,
               before: Sizes = 0, after: Sizes = 0) -> _tensor.Tensor:
    """The mean of each window, as kiln.max_pool2d() has them; padding is zeros and counts."""
    x = operand(x)
    return call(x, 'avg_pool2d', *_window(x, window, 'kiln_window_options', {
        'stride': stride, 'dilation': dilation, 'before': before, 'after': after}))


def max_pool(x: _tensor.Array, window: Sizes, *, layout: Union[int, str] = 0, stride: Sizes = 0,
             dilation: Sizes = 0, before: Sizes = 0, after: Sizes = 0, ceil: bool = False,
             indices: bool = False) -> Any:
    """The largest element of each window of each channel, over one to three dimensions; `layout` is
    "channels_last" or "channels_first". With `indices` a pair: each one's row-major number among
    its channel's elements comes second."""
    x = operand(x)
    size, options = _window(x, window, 'kiln_pool_options', {
        'layout': layout, 'stride': stride, 'dilation': dilation, 'before': before,
        'after': after, 'ceil': bool(ceil)})
    if not indices:
        return call(x, 'max_pool', size, options, None)

    def enter(batch: Any, handles: list[Any]) -> list[Any]:
        where = Handle()
        return [lib.kiln_max_pool(batch, handles[0], size, options, ctypes.byref(where)), where]
    return tuple(several(x._context, [x], enter, 2))


def avg_pool(x: _tensor.Array, window: Sizes, *, layout: Union[int, str] = 0, stride: Sizes = 0,
             dilation: Sizes = 0, before: Sizes = 0, after: Sizes = 0, ceil: bool = False,
             count_padding: bool = False) -> _tensor.Tensor:
    """The mean of each window, as kiln.max_pool() has them."""
    x = operand(x)
    return call(x, 'avg_pool', *_window(x, window, 'kiln_pool_options', {
        'layout': layout, 'stride': stride, 'dilation': dilation, 'before': before,
        'after': after, 'ceil': bool(ceil), 'count_padding': bool(count_padding)}))


def lp_pool(x: _tensor.Array, window: Sizes, p: float, *, layout: Union[int, str] = 0,
            stride: Sizes = 0, dilation: Sizes = 0, before: Sizes = 0, after: Sizes = 0,
            ceil: bool = False) -> _tensor.Tensor:
    """sum(|x|^p)^(1/p) of each window, as kiln.max_pool() has them."""
    x = operand(x)
    size, options = _window(x, window, 'kiln_pool_options', {
        'layout': layout, 'stride': stride, 'dilation': dilation, 'before': before,
        'after': after, 'ceil': bool(ceil)})
    return call(x, 'lp_pool', size, float(p), options)


def resize(x: _tensor.Array, shape: Optional[Sequence[int]] = None, *,
           scale: Optional[Sequence[float]] = None, method: str = 'nearest',
           coordinates: str = 'asymmetric', nearest: str = 'floor', cubic: float = -0.75,
           exclude_outside: bool = False, antialias: bool = False) -> _tensor.Tensor:
    """x with another extent in each dimension: `shape`, or x's times `scale`, each with a number for
    every dimension. `method` is "nearest", "linear" or "cubic"; `coordinates` where elements lie:
    "asymmetric", "half_pixel", "align_corners" and so on, and `nearest` which one that is: "floor",
    "ceil", "prefer_floor", "prefer_ceil" (kiln/resize.h)."""
    x = operand(x)
    if shape is None:
        shape = [int(dim * factor) for dim, factor in zip(x.shape, scale or ())]
    if len(shape) != x.ndim or scale is not None and len(scale) != x.ndim:
        raise ValueError(f'shape and scale have {x.ndim} numbers, one for each dimension')
    options = initialised('KILN_RESIZE_OPTIONS_INIT')
    options.method = word('kiln_resize_method', method)
    options.coordinates = word('kiln_coordinates', coordinates)
    options.nearest = word('kiln_nearest', nearest)
    options.cubic = cubic
    options.exclude_outside, options.antialias = bool(exclude_outside), bool(antialias)
    # The closure below holds the numbers that the options name.
    scales = None if scale is None else (ctypes.c_double * x.ndim)(*scale)
    options.scales = None if scales is None else ctypes.addressof(scales)
    dims = sizes(dims_of(shape))

    def enter(batch: Any, handles: list[Any], _: Any = scales) -> Any:
        return lib.kiln_resize(batch, handles[0], dims, ctypes.byref(options))
    return _tensor.make(x._context, Expression((x,), enter))


def cross_entropy(logits: _tensor.Array, labels: _tensor.Array, *, reduction: str = 'mean',
                  class_weights: Optional[_tensor.Array] = None, label_smoothing: float = 0.0,
                  ignored_label: Optional[int] = None,
                  log_probabilities: bool = False) -> _tensor.Tensor:
    """Minus the logarithm of the probability that softmax gives to the label: logits are
    [..., classes], labels integers of the shape before `classes`. `reduction` over the rows is
    "mean", "sum" or "none"; a row counts as its label's of `class_weights`, and not at all where it
    has the ignored label; the share `label_smoothing` of the label's 1 goes to all classes evenly."""
    context = find_context([logits, labels, class_weights]) or default_context()
    operands = [_tensor.as_tensor(x, context) for x in (logits, labels, class_weights)
                if x is not None]
    options = initialised('KILN_CROSS_ENTROPY_INIT')
    options.reduction = word('kiln_loss_reduction', reduction)
    options.label_smoothing, options.log_probabilities = label_smoothing, bool(log_probabilities)
    options.ignores, options.ignored_label = ignored_label is not None, ignored_label or 0

    def enter(batch: Any, handles: list[Any]) -> Any:
        mine = type(options).from_buffer_copy(options)
        if len(handles) > 2:
            mine.class_weights = handles[2]
        return lib.kiln_cross_entropy_with(batch, handles[0], handles[1], ctypes.byref(mine))
    return _tensor.make(context, Expression(operands, enter))


def attention(q: _tensor.Array, k: _tensor.Array, v: _tensor.Array,
              mask: Optional[_tensor.Array] = None, *, lengths: Optional[_tensor.Array] = None,
              scale: float = 0, causal: int = 0, diagonal: int = 0, window: int = 0) -> _tensor.Tensor:
    """softmax(scale q k' + mask) v of q [..., m, d], k [..., n, d] and v [..., n, e], without the
    scores in memory; leading dimensions broadcast. A bool or u8 mask says which keys are seen, one of
    floats is added. `causal`: row i of q sees keys 0 to i + diagonal. `window`: of these the last so
    many, or, if not causal, of all; 0 is all. scale 0 is 1 / sqrt(d).

    `lengths`, integers that broadcast with the leading dimensions, say how many keys there are: k and
    v may be a cache of which the first so many rows count, and no others are read. Then row i of a
    causal q sees keys 0 to length - m + i + diagonal. See kiln.attention_with_lengths()."""
    if lengths is None:
        return _o.attention(q, k, v, mask, scale=scale, causal=causal, diagonal=diagonal,
                            window=window)
    return _o.attention_with_lengths(q, k, v, mask, lengths, scale=scale, causal=causal,
                                     diagonal=diagonal, window=window)


def einsum(equation: str, *operands: _tensor.Array) -> _tensor.Tensor:
    """Einstein's sum of the operands, as numpy has it: "bij,bjk->bik" names the dimensions of each
    operand and of the result by letters."""
    context = find_context(operands) or default_context()
    given = [_tensor.as_tensor(x, context) for x in operands]
    text, count = equation.encode(), len(given)
    return _tensor.make(context, Expression(given, lambda b, h: lib.kiln_einsum(
        b, text, count, (Handle * builtins.max(count, 1))(*h))))


def batch_norm_train(x: _tensor.Array, scale: Optional[_tensor.Array] = None,
                     shift: Optional[_tensor.Array] = None, axis: int = -1,
                     epsilon: float = 1e-5) -> tuple[Any, ...]:
    """(normalised x, mean, variance): kiln.batch_norm() with the statistics of x itself, over all
    dimensions but the axis, which come too, for running averages of them."""
    x = operand(x)
    operands = [None if o is None else _tensor.as_tensor(o, x._context) for o in (scale, shift)]

    def enter(batch: Any, handles: list[Any]) -> list[Any]:
        mean, variance = Handle(), Handle()
        return [lib.kiln_batch_norm_train(batch, *handles, axis, epsilon, ctypes.byref(mean),
                                          ctypes.byref(variance)), mean, variance]
    return tuple(several(x._context, [x, *operands], enter, 3))


def topk(x: _tensor.Array, k: int, axis: int = -1, smallest: bool = False) -> tuple[Any, ...]:
    """(the k largest elements along an axis, the largest first, and their positions); with
    `smallest` the smallest. Of equal ones those come that are first in x."""
    x = operand(x)

    def enter(batch: Any, handles: list[Any]) -> list[Any]:
        where = Handle()
        return [lib.kiln_topk(batch, handles[0], k, axis, bool(smallest), ctypes.byref(where)), where]
    return tuple(several(x._context, [x], enter, 2))


# ---- recurrent layers ----

def _recurrent(name: str, operands: dict[Any, Any], options: dict[Any, Any], states: int) -> list[Any]:
    """A recurrent layer over these operands, of which some are None: all states, then the last."""
    context = find_context(list(operands.values())) or default_context()
    given = {field: _tensor.as_tensor(x, context) for field, x in operands.items() if x is not None}
    layer = initialised('KILN_RECURRENT_INIT')
    layer.direction = word('kiln_direction', options.pop('direction'))
    layer.gates = word('kiln_gates', options.pop('gates'))
    for field, value in options.items():
        setattr(layer, field, value)
    fields = list(given)

    def enter(batch: Any, handles: list[Any]) -> list[Any]:
        mine = type(layer).from_buffer_copy(layer)  # another thread may record it, too
        for field, handle in zip(fields, handles):
            setattr(mine, field, handle)
        last = [Handle() for _ in range(states)]
        call = getattr(lib, 'kiln_' + name)
        return [call(batch, ctypes.byref(mine), *map(ctypes.byref, last)), *last]
    return several(context, list(given.values()), enter, 1 + states)


def rnn(x: _tensor.Array, w: _tensor.Array, r: _tensor.Array, bias: Optional[_tensor.Array] = None,
        h: Optional[_tensor.Array] = None, lengths: Optional[_tensor.Array] = None, *,
        direction: str = 'forward', clip: float = 0.0) -> tuple[Any, ...]:
    """(all states [T,D,B,H], the last ones [D,B,H]) of h = tanh(x w' + h r' + bias), over x [T,B,I]
    with w [D,H,I], r [D,H,H] and bias [D,2H]; D is 2 where the direction is "bidirectional", else 1
    ("forward", "reverse"). h is the state before the first step; `lengths` [B] each sequence's."""
    made = _recurrent('rnn', {'x': x, 'w': w, 'r': r, 'bias': bias, 'h': h, 'lengths': lengths},
                      {'direction': direction, 'gates': 'onnx', 'clip': clip}, 1)
    return tuple(made)


def gru(x: _tensor.Array, w: _tensor.Array, r: _tensor.Array, bias: Optional[_tensor.Array] = None,
        h: Optional[_tensor.Array] = None, lengths: Optional[_tensor.Array] = None, *,
        direction: str = 'forward', gates: str = 'pytorch', clip: float = 0.0,
        linear_before_reset: bool = True) -> tuple[Any, ...]:
    """(all states, the last ones) of a gated recurrent unit, as kiln.rnn() has them; w [D,3H,I],
    r [D,3H,H], bias [D,6H]. `gates` is the order of their rows: "pytorch" or "onnx"."""
    made = _recurrent('gru', {'x': x, 'w': w, 'r': r, 'bias': bias, 'h': h, 'lengths': lengths},
                      {'direction': direction, 'gates': gates, 'clip': clip,
                       'linear_before_reset': bool(linear_before_reset)}, 1)
    return tuple(made)


def lstm(x: _tensor.Array, w: _tensor.Array, r: _tensor.Array, bias: Optional[_tensor.Array] = None,
         h: Optional[_tensor.Array] = None, c: Optional[_tensor.Array] = None,
         lengths: Optional[_tensor.Array] = None, *, peephole: Optional[_tensor.Array] = None,
         direction: str = 'forward', gates: str = 'pytorch', clip: float = 0.0,
         input_forget: bool = False) -> tuple[Any, ...]:
    """(all states, the last ones, the last cells) of long short-term memory, as kiln.rnn() has them;
    w [D,4H,I], r [D,4H,H], bias [D,8H]. `gates` is the order of their rows: "pytorch" or "onnx"."""
    made = _recurrent('lstm', {'x': x, 'w': w, 'r': r, 'bias': bias, 'h': h, 'c': c,
                               'peephole': peephole, 'lengths': lengths},
                      {'direction': direction, 'gates': gates, 'clip': clip,
                       'input_forget': bool(input_forget)}, 2)
    return tuple(made)


def quantize(x: _tensor.Array, axis: _tensor.Axis = None) -> tuple[Any, ...]:
    """(q, scale): x in i8, and the scale of each slice over the dimensions `axis`; q times scale is
    near x."""
    x = operand(x)
    if is_none_at_all(axis):
        return tuple(reshape(y, x.shape) for y in quantize(reshape(x, (*x.shape, 1)), -1))
    count, axes = axes_of(axis)

    def enter(batch: Any, handles: list[Any]) -> list[Any]:
        scale = Handle()
        q = lib.kiln_quantize(batch, handles[0], count, axes, ctypes.byref(scale))
        return [q, scale]
    return tuple(several(x._context, [x], enter, 2))


def quantize_blocks(x: _tensor.Array, dtype: Type) -> np.ndarray:
    """Blocks of 'q8_0' or 'q4_0' of floats, whose rows are whole blocks, on the host: bytes, as
    kiln.tensor() and kiln.Buffer() of that type take them."""
    wanted, array = as_dtype(dtype), np.ascontiguousarray(x, np.float32)
    if wanted.block == 1 or not array.ndim or array.shape[-1] % wanted.block:
        raise ValueError(f'shape {list(array.shape)} has no rows of whole blocks of {wanted.name}')
    blocks = np.empty(wanted.raw_shape(array.shape), np.uint8)
    check(lib.kiln_quantize_blocks(wanted.value, array.size, array.ctypes.data, blocks.ctypes.data,
                                   blocks.nbytes))
    return blocks


def clip_by_norm(gradients: Any, max_norm: float) -> tuple[Any, ...]:
    """(clipped gradients, norm): gradients, a list, tuple or dict of them, scaled down so that their
    common norm is at most max_norm, and the norm before."""
    operands = [operand(g) for g in leaves_of(gradients)]
    count = len(operands)

    def enter(batch: Any, handles: list[Any]) -> list[Any]:
        out = (Handle * builtins.max(count, 1))()
        norm = lib.kiln_clip_by_norm(batch, count, (Handle * builtins.max(count, 1))(*handles),
                                     max_norm, out)
        return [Handle(out[i].id) for i in range(count)] + [norm]
    *clipped, norm = several(operands[0]._context, operands, enter, count + 1)
    return rebuilt(gradients, iter(clipped)), norm


__all__ = [
    'attention', 'avg_pool', 'avg_pool2d', 'batch_norm_train', 'clip_by_norm', 'cross_entropy', 'einsum',
    'gru', 'lp_pool', 'lstm', 'max_pool', 'max_pool2d', 'quantize', 'quantize_blocks', 'resize', 'rnn',
    'topk',
]
