# SPDX-License-Identifier: Apache-2.0
"""ATen's operators in kiln's functions: a row for each, found by the operator's name.

A row's function takes what the operator takes, with tensors of kiln's. What it gives is cast to the
type that PyTorch has for the result, so that types are promoted by PyTorch's rules. A row that
cannot do what it is asked raises Unsupported: the operator then runs in PyTorch.
"""
from __future__ import annotations

import math
from typing import Any, Callable, Optional, Sequence

import numpy as np
import torch

import kiln as _f
from . import _arithmetic
from . import _operations as _o
from ._tensor import Tensor, as_tensor

TYPES = {torch.float32: 'f32', torch.float16: 'f16', torch.bfloat16: 'bf16', torch.int64: 'i64',
         torch.int32: 'i32', torch.int8: 'i8', torch.uint8: 'u8', torch.bool: 'bool'}


class Unsupported(Exception):
    """Why a row cannot do what it is asked."""


def type_of(dtype: Optional[torch.dtype]) -> str:
    """kiln's name of a type of PyTorch's; by default that of its floats."""
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype not in TYPES:
        raise Unsupported(f'no elements of {str(dtype)[6:]}')
    return TYPES[dtype]


ROWS: dict[str, Callable[..., Any]] = {}


def row(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The row of these operators."""
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        ROWS.update(dict.fromkeys(names, function))
        return function
    return enter


def enter_rows(overloads: str, functions: dict[str, Callable[..., Any]]) -> None:
    for name, function in functions.items():
        ROWS.update(dict.fromkeys([f'aten.{name}.{o}' for o in overloads.split()], function))


# ---- elementwise ----

def _scaled(x: Any, alpha: Any) -> Any:
    return x if alpha == 1 else x * alpha


def _divided(a: Any, b: Any, rounding_mode: Optional[str] = None) -> Any:
    if rounding_mode is None:
        return _f.true_divide(a, b)
    if rounding_mode == 'floor':
        return _f.floor_divide(a, b)
    return _o.trunc(_o.div(a, b))


def _clamped(x: Any, low: Any = None, high: Any = None) -> Any:
    x = x if low is None else _o.maximum(x, low)
    return x if high is None else _o.minimum(x, high)


def _elu(x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    below = _o.mul(_o.expm1(_o.mul(_o.minimum(x, 0), input_scale)), alpha * scale)
    return _o.where(_o.greater(x, 0), _o.mul(x, scale), below)


def _softplus(x: Any, beta: float = 1, threshold: float = 20) -> Any:
    smooth = _o.softplus(x) if beta == 1 else _o.div(_o.softplus(_o.mul(x, beta)), beta)
    return _o.where(_o.greater(_o.mul(x, beta), threshold), x, smooth)


def _gelu(x: Any, approximate: str = 'none') -> Any:
    return _o.gelu(x) if approximate == 'none' else _o.gelu_tanh(x)


def _sign(x: Any) -> Any:
    return _o.where(_o.equal(x, x), _o.sign(x), 0)  # of NaN PyTorch's is 0


def _besides_nan(function: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(a: Any, b: Any) -> Any:
        return _o.where(_o.isnan(a), b, _o.where(_o.isnan(b), a, function(a, b)))
    return chosen


def _angle(x: Any) -> Any:
    if not x.dtype.is_floating:
        return _o.where(_o.less(x, 0), math.pi, 0.0)
    return _o.where(_o.isnan(x), x, _o.where(_o.less(x, 0), math.pi, 0.0))


def _rounded(x: Any, decimals: int) -> Any:
    factor = 10.0 ** abs(decimals)
    if decimals < 0:
        return _o.round(x / factor) * factor
    return _o.round(x * factor) / factor


enter_rows('default', {
    **{name: getattr(_o, name) for name in (
        'abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 floor isinf isnan '
        'log log1p log2 logical_not neg reciprocal relu round rsqrt sigmoid sin sinh sqrt square '
        'tan tanh trunc atan2 logical_and logical_or logical_xor maximum minimum').split()},
    'alias': lambda x: x,
    'angle': _angle,
    'bitwise_not': _f.bitwise_invert,
    'clamp': _clamped,
    'clamp_max': lambda x, high: _clamped(x, None, high),
    'clamp_min': lambda x, low: _clamped(x, low),
    'clone': lambda x, memory_format=None: x,
    'detach': lambda x: x,
    'elu': _elu,
    'fmax': _besides_nan(_o.maximum),
    'fmin': _besides_nan(_o.minimum),
    'gelu': _gelu,
    'hardsigmoid': _o.hard_sigmoid,
    'hardswish': _o.hard_swish,
    'hypot': _f.hypot,
    'hardtanh': lambda x, low=-1, high=1: _clamped(x, low, high),
    'leaky_relu': lambda x, slope=0.01: _o.where(_o.greater(x, 0), x, _o.mul(x, slope)),
    'lift_fresh_copy': lambda x: x,
    'log10': _f.log10,
    'positive': lambda x: x,
    'sgn': _sign,
    'sign': _sign,
    'signbit': _f.signbit,
    'silu': _o.swish,
    'softplus': _softplus,
})
enter_rows('Tensor Scalar', {
    'add': lambda a, b, alpha=1: a + _scaled(b, alpha),
    'sub': lambda a, b, alpha=1: a - _scaled(b, alpha),
    'mul': _o.mul,
    'div': _divided,
    'fmod': _o.fmod,
    'remainder': _o.mod,
    'eq': _o.equal, 'ne': _o.not_equal, 'lt': _o.less, 'le': _o.less_equal, 'gt': _o.greater,
    'ge': _o.greater_equal,
    'copysign': _f.copysign,
    'bitwise_and': lambda a, b: a & b,
    'bitwise_or': lambda a, b: a | b,
    'bitwise_xor': lambda a, b: a ^ b,
})
enter_rows('Tensor_mode Scalar_mode', {'div': _divided})
enter_rows('Tensor_Tensor Tensor_Scalar Scalar', {'pow': _f.power})
enter_rows('Tensor', {'clamp': _clamped})
enter_rows('decimals', {'round': _rounded})
enter_rows('self', {'where': _o.where})


@row('aten._to_copy.default')
def _converted(x: Tensor, dtype: Optional[torch.dtype] = None, **_: Any) -> Tensor:
    return x if dtype is None else x.astype(type_of(dtype))


ROWS['prims.convert_element_type.default'] = _converted
ROWS['aten.copy.default'] = lambda to, x, non_blocking=False: x.astype(to.dtype).broadcast_to(to.shape)
ROWS['aten.masked_fill.Scalar'] = lambda x, mask, value: _o.where(mask, value, x)


# ---- reductions ----

def _axes(x: Tensor, dim: Any) -> Any:
    """The axes that an argument names; none at all are all of them."""
    if dim is None or isinstance(dim, (list, tuple)) and not dim:
        return tuple(range(x.ndim))
    return dim


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(x: Tensor, dim: Any = None, keepdim: bool = False,
                dtype: Optional[torch.dtype] = None) -> Tensor:
        x = x if dtype is None else x.astype(type_of(dtype))
        return x + 0 if not x.ndim else function(x, _axes(x, dim), keepdim)
    return reduced


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        return x if not x.ndim else function(x, _axes(x, dim), keepdim)
    return reduced


def _truth(name: str) -> Callable[..., Any]:
    def reduced(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        return _o.not_equal(x, 0) if not x.ndim else _arithmetic.truth(x, name, _axes(x, dim), keepdim)
    return reduced


def _position(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(x: Tensor, dim: Optional[int] = None, keepdim: bool = False) -> Tensor:
        if not x.ndim:
            return _f.zeros((), 'i64')
        if dim is None:
            found: Tensor = function(x.reshape((-1,)), 0, False)
            return found.reshape((1,) * x.ndim) if keepdim else found
        position: Tensor = function(x, dim, keepdim)
        return position
    return reduced


def _extreme_at(largest: bool) -> Callable[..., Any]:
    def reduced(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Any, ...]:
        if not x.ndim:
            return x, _f.zeros((), 'i64')
        value, place = (_o.max, _o.argmax) if largest else (_o.min, _o.argmin)
        return value(x, dim, keepdim), place(x, dim, keepdim)
    return reduced


enter_rows('default dim_IntList dim', {'sum': _reduction(_o.sum), 'mean': _reduction(_o.mean)})
enter_rows('default dim_int', {'prod': _reduction(_o.product)})
enter_rows('default', {'amax': _extreme(_o.max), 'amin': _extreme(_o.min), 'max': _extreme(_o.max),
                  'min': _extreme(_o.min), 'argmax': _position(_o.argmax),
                  'argmin': _position(_o.argmin)})
enter_rows('dim', {'max': _extreme_at(True), 'min': _extreme_at(False)})
enter_rows('default dim dims', {'any': _truth('max'), 'all': _truth('min')})


@row('aten.var.correction', 'aten.var.dim')
def _variance(x: Tensor, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Tensor:
    return _o.variance(x, _axes(x, dim), float(1 if correction is None else correction), keepdim)


@row('aten.var_mean.correction')
def _variance_and_mean(x: Tensor, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> tuple[Any, ...]:
    return _variance(x, dim, correction, keepdim), _o.mean(x, _axes(x, dim), keepdim)


@row('aten._softmax.default')
def _softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return _o.softmax(x, dim) if x.ndim else _o.exp(x - x)


@row('aten._log_softmax.default')
def _log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return _o.log_softmax(x, dim) if x.ndim else x - x


# ---- made of nothing ----

@row('aten.full.default', 'aten.full_like.default')
def _full(shape: Any, value: Any, dtype: Optional[torch.dtype] = None, **_: Any) -> Tensor:
    like = shape if isinstance(shape, Tensor) else None
    if dtype is None and like is None:
        dtype = torch.bool if isinstance(value, bool) else \
            torch.int64 if isinstance(value, int) else None
    kind = like.dtype.name if like is not None and dtype is None else type_of(dtype)
    if isinstance(value, int) and int(float(value)) != value:
        raise Unsupported(f'{value} is no constant')
    return _f.full(like.shape if like is not None else shape, value, kind)


@row('aten.empty.memory_format', 'aten.empty_strided.default', 'aten.empty_permuted.default',
     'aten.new_empty_strided.default')
def _empty(*arguments: Any, dtype: Optional[torch.dtype] = None, **_: Any) -> Tensor:
    like = arguments[0] if isinstance(arguments[0], Tensor) else None
    kind = like.dtype.name if like is not None and dtype is None else type_of(dtype)
    return _f.zeros(arguments[0 if like is None else 1], kind)


@row('aten.scalar_tensor.default')
def _scalar_tensor(value: Any, dtype: Optional[torch.dtype] = None, **_: Any) -> Tensor:
    return _f.full((), value, type_of(dtype))


@row('aten.fill.Scalar')
def _filled(x: Tensor, value: Any) -> Tensor:
    return _f.full(x.shape, value, x.dtype)


@row('aten.arange.start_step')
def _arange(start: Any, stop: Any, step: Any = 1, dtype: Optional[torch.dtype] = None,
            **_: Any) -> Tensor:
    whole = all(isinstance(v, int) for v in (start, stop, step))
    return _f.arange(start, stop, step, type_of(torch.int64 if dtype is None and whole else dtype))


@row('prims.iota.default')
def _iota(length: int, start: int, step: int, dtype: torch.dtype, **_: Any) -> Tensor:
    return _f.arange(start, start + length * step, step, type_of(dtype))


# ---- shape ----

def axis_of(x: Any, dim: int, further: int = 0) -> int:
    return dim % (x.ndim + further) if x.ndim + further else 0


@row('aten.view.default', 'aten._unsafe_view.default', 'aten.reshape.default')
def _view(x: Tensor, shape: Sequence[int]) -> Tensor:
    return _f.reshape(x, shape)


@row('aten.expand.default')
def _expand(x: Tensor, shape: Sequence[int], implicit: bool = False) -> Tensor:
    fewer = len(shape) - x.ndim
    return _f.broadcast_to(x, [x.shape[i - fewer] if n == -1 else n for i, n in enumerate(shape)])


@row('aten.permute.default')
def _permute(x: Tensor, dims: Sequence[int]) -> Tensor:
    return _f.transpose(x, list(dims)) if x.ndim else x


@row('aten.transpose.int')
def _swapped(x: Tensor, first: int, second: int) -> Tensor:
    return _f.swapaxes(x, first, second) if x.ndim else x


@row('aten.t.default')
def _t(x: Tensor) -> Tensor:
    return _f.transpose(x) if x.ndim == 2 else x


@row('aten.unsqueeze.default')
def _unsqueeze(x: Tensor, dim: int) -> Tensor:
    return _f.expand_dims(x, dim)


@row('aten.squeeze.dim', 'aten.squeeze.dims', 'aten.squeeze.default')
def _squeeze(x: Tensor, dim: Any = None) -> Tensor:
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    gone = {axis_of(x, d) for d in dims}
    return _f.reshape(x, [n for i, n in enumerate(x.shape) if i not in gone or n != 1])


@row('aten.unfold.default')
def _unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    if not x.ndim:
        return x.reshape((1,))[:size]
    axis = axis_of(x, dim)
    seen = _f.windows(x, axis, [size], [step])
    return _f.transpose(seen, [i for i in range(seen.ndim) if i != axis + 1] + [axis + 1])


def _along(x: Any, dim: int, entry: Any) -> tuple[Any, ...]:
    """A key that has this entry for a dimension."""
    return (slice(None),) * axis_of(x, dim) + (entry,)


def _part(x: Any, dim: int, start: Any, end: Any, step: int) -> tuple[Any, ...]:
    """The key of a slice, which PyTorch clips as Python does."""
    return _along(x, dim, slice(start, end, step))


@row('aten.slice.Tensor')
def _slice(x: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    return x[_part(x, dim, start, end, step)]


@row('aten.slice_scatter.default')
def _slice_scatter(x: Tensor, part: Tensor, dim: int = 0, start: Any = None, end: Any = None,
                   step: int = 1) -> Tensor:
    return _f.replaced(x, _part(x, dim, start, end, step), part)


@row('aten.select.int')
def _select(x: Tensor, dim: int, index: int) -> Tensor:
    return x[_along(x, dim, index)]


@row('aten.select_scatter.default')
def _select_scatter(x: Tensor, part: Tensor, dim: int, index: int) -> Tensor:
    return _f.replaced(x, _along(x, dim, index), part)


@row('aten.split_with_sizes.default')
def _split(x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Any]:
    return _f.split(x, list(sizes), dim)


@row('aten.cat.default')
def _cat(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    # An empty tensor of one dimension goes with all.
    rank = max(p.ndim for p in parts)
    kept = [p for p in parts if p.ndim == rank]
    kinds = {p.dtype.name for p in kept}
    if len(kinds) > 1:
        raise Unsupported('parts of several types')
    return kept[0] if len(kept) == 1 else _o.concat(kept, dim)


@row('aten.flip.default')
def _flip(x: Tensor, dims: Sequence[int]) -> Tensor:
    turned = {axis_of(x, d) for d in dims}
    return x[tuple(slice(None, None, -1 if i in turned else 1) for i in range(x.ndim))]


@row('aten.repeat.default')
def _repeat(x: Tensor, repeats: Sequence[int]) -> Tensor:
    dims = (1,) * (len(repeats) - x.ndim) + x.shape
    spread = [n for pair in zip(repeats, dims) for n in pair]
    shown = [n for dim in dims for n in (1, dim)]
    whole = [r * n for r, n in zip(repeats, dims)]
    if len(spread) > 8:
        raise Unsupported('more than four dimensions are repeated')
    return x.reshape(shown).broadcast_to(spread).reshape(whole)


@row('aten.constant_pad_nd.default')
def _pad(x: Tensor, widths: Sequence[int], value: Any = 0) -> Tensor:
    pairs = [(0, 0)] * (x.ndim - len(widths) // 2) + list(zip(widths[-2::-2], widths[::-2]))
    x = x[tuple(slice(max(0, -low), n - max(0, -high)) for (low, high), n in zip(pairs, x.shape))]
    return _f.pad(x, [(max(0, low), max(0, high)) for low, high in pairs], value)


def _with_diagonal(x: Tensor, offset: int, dim1: int, dim2: int) -> tuple[Any, ...]:
    """x with these dimensions as one behind the others, where the diagonal is in that, and the order
    that they were taken in."""
    first, second = axis_of(x, dim1), axis_of(x, dim2)
    order = [i for i in range(x.ndim) if i not in (first, second)] + [first, second]
    rows, columns = x.shape[first], x.shape[second]
    start = offset if offset >= 0 else -offset * columns
    count = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    places = start + np.arange(count, dtype=np.int32) * (columns + 1)
    shown = _f.transpose(x, order)
    return shown.reshape(shown.shape[:-2] + (rows * columns,)), places, order


@row('aten.diagonal.default')
def _diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    flat, places, _ = _with_diagonal(x, offset, dim1, dim2)
    return _o.gather(flat, places, flat.ndim - 1)


@row('aten.diagonal_scatter.default')
def _diagonal_scatter(x: Tensor, part: Tensor, offset: int = 0, dim1: int = 0,
                      dim2: int = 1) -> Tensor:
    flat, places, order = _with_diagonal(x, offset, dim1, dim2)
    put = _f.scatter(flat, places, part.astype(x.dtype), flat.ndim - 1, 'set')
    return _f.transpose(put.reshape([x.shape[i] for i in order]), np.argsort(order).tolist())


# ---- products ----

enter_rows('default', {'mm': _o.matmul, 'bmm': _o.matmul})


@row('aten._trilinear.default')
def _trilinear(a: Tensor, b: Tensor, c: Tensor, expand_a: Sequence[int], expand_b: Sequence[int],
               expand_c: Sequence[int], dims: Sequence[int], unroll: int = 1) -> Tensor:
    def expanded(x: Tensor, places: Sequence[int]) -> Tensor:
        for place in places:
            x = _f.expand_dims(x, place)
        return x
    product = expanded(a, expand_a) * expanded(b, expand_b) * expanded(c, expand_c)
    return _o.sum(product, tuple(dims), False) if dims else product


def _distances(a: Tensor, b: Tensor, p: float) -> Tensor:
    """Between the last dimensions of both, by the norm of this number."""
    apart = _o.abs(a - b)
    if p == 0:
        return _o.sum(_o.not_equal(apart, 0).astype('f32'), -1, False)
    if p == math.inf:
        return _o.max(apart, -1, False)
    if p == 1:
        return _o.sum(apart, -1, False)
    if p == 2:
        return _o.sqrt(_o.sum(_o.square(apart), -1, False))
    return _o.pow(_o.sum(_o.pow(apart, p), -1, False), 1 / p)


@row('aten._cdist_forward.default')
def _cdist(a: Tensor, b: Tensor, p: float, mode: Optional[int] = None) -> Tensor:
    if not a.shape[-1]:
        return _f.zeros((*a.shape[:-1], b.shape[-2]), 'f32')
    return _distances(_f.expand_dims(a, -2), _f.expand_dims(b, -3), p)


@row('aten._pdist_forward.default')
def _pdist(x: Tensor, p: float = 2) -> Tensor:
    first, second = (i.astype(np.int32) for i in np.triu_indices(x.shape[0], 1))
    return _distances(_o.gather(x, first, 0), _o.gather(x, second, 0), p)


@row('aten.addmm.default', 'aten.baddbmm.default')
def _addmm(bias: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    product: Tensor = _scaled(_o.matmul(a, b), alpha)
    return product if beta == 0 else product + _scaled(bias, beta)


@row('aten.addbmm.default')
def _addbmm(bias: Tensor, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1) -> Tensor:
    product: Tensor = _scaled(_o.sum(_o.matmul(a, b), 0, False), alpha)
    return product if beta == 0 else product + _scaled(bias, beta)


# ---- what decompositions are made of ----

def _quotient(a: Any, b: Any) -> Any:
    whole = not any(getattr(x, 'dtype', None) is None or x.dtype.is_floating for x in (a, b))
    return _divided(a, b, 'trunc' if whole else None)


@row('prims.broadcast_in_dim.default')
def _broadcast_in_dim(x: Tensor, shape: Sequence[int], dims: Sequence[int]) -> Tensor:
    shown = [1] * len(shape)
    for i, n in zip(dims, x.shape):
        shown[i] = n
    return x.reshape(shown).broadcast_to(shape)


def _over(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(x: Tensor, dims: Sequence[int], **_: Any) -> Tensor:
        made: Tensor = function(x, tuple(dims), False)
        return made
    return reduced


ROWS.update({
    'prims.div.default': _quotient,
    'prims.where.default': _o.where,
    'prims.sum.default': _over(_o.sum),
    'prims.prod.default': _over(_o.product),
    'prims.amax.default': _over(_o.max),
    'prims.amin.default': _over(_o.min),
    'prims.var.default': lambda x, dims, correction=1, **_: _o.variance(
        x, tuple(dims), float(correction), False),
})


def constant(array: Any, like: Tensor) -> Tensor:
    """An array of numpy's in the context of a tensor."""
    return as_tensor(array, like._context)
