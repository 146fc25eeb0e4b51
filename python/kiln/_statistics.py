# SPDX-License-Identifier: Apache-2.0
"""Sums, means and counts over dimensions, and running along one. Of integers sums are i64."""
from __future__ import annotations

import builtins
import math
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np

from . import _operations as _o
from . import _tensor
from ._context import default_context
from ._arithmetic import truth
from ._functions import topk
from ._manipulation import astype, concat, reshape
from ._record import axes_in, axis_in, find_context, operand, operands
from ._search import searchsorted
from ._types import BY_NAME, Type, as_dtype, result_of

# ---- over dimensions ----

def _summed(x: _tensor.Array, dtype: Optional[Type], add: Callable[[Any], _tensor.Tensor]) -> _tensor.Tensor:
    """What adds or multiplies up, in a type if one is given: each element is of it before."""
    x = operand(x)
    if dtype is None:
        return add(x)
    kind = as_dtype(dtype)
    return astype(add(astype(x, kind, copy=False)), kind, copy=False)


def sum(x: _tensor.Array, axis: _tensor.Axis = None, keepdims: bool = False,
        dtype: Optional[Type] = None) -> _tensor.Tensor:
    """The sum over the dimensions `axis`, an int or several; None: all of them. Of integers i64,
    which wraps around, unless a type is given."""
    return _summed(x, dtype, lambda y: _o.sum(y, axis, keepdims))


def prod(x: _tensor.Array, axis: _tensor.Axis = None, keepdims: bool = False,
         dtype: Optional[Type] = None) -> _tensor.Tensor:
    """The product over the dimensions `axis`, an int or several; None: all of them. Of integers i64,
    which wraps around, unless a type is given."""
    return _summed(x, dtype, lambda y: _o.product(y, axis, keepdims))


def _count(x: Any, axis: _tensor.Axis) -> int:
    return math.prod(x.shape[a] for a in axes_in(axis, x.ndim))


def var(x: _tensor.Array, axis: _tensor.Axis = None, correction: float = 0.0,
        keepdims: bool = False) -> _tensor.Tensor:
    """The variance over these dimensions; None: all. What is added up is divided by the number of
    elements less the correction: 0 is the population's variance, 1 the sample's. NaN where nothing
    is left to divide by."""
    x = operand(x)
    x = x if x.dtype.is_floating else astype(x, 'f32')
    if _count(x, axis) <= correction or correction < 0:
        # Which the library's variance leaves open, or refuses.
        mean = _o.mean(x, axis, True)
        n = builtins.max(_count(x, axis) - correction, 0)
        return _o.sum(_o.square(x - mean), axis, keepdims) / n if n else \
            _o.sum(x, axis, keepdims) * math.nan
    return _o.variance(x, axis, float(correction), keepdims)


def std(x: _tensor.Array, axis: _tensor.Axis = None, correction: float = 0.0,
        keepdims: bool = False) -> _tensor.Tensor:
    """The standard deviation over these dimensions: the root of kiln.var(). Its gradient is 0 where
    it is."""
    variance = var(x, axis, correction, keepdims)
    is_zero = _o.equal(variance, 0.0)
    return _o.where(is_zero, 0.0, _o.sqrt(_o.where(is_zero, 1.0, variance)))


def all(x: _tensor.Array, axis: _tensor.Axis = None, keepdims: bool = False) -> _tensor.Tensor:
    """Whether no element is 0, over these dimensions; None: all. Of nothing: yes."""
    return truth(operand(x), 'min', axis, keepdims)


def any(x: _tensor.Array, axis: _tensor.Axis = None, keepdims: bool = False) -> _tensor.Tensor:
    """Whether an element is not 0, over these dimensions; None: all. Of nothing: no."""
    return truth(operand(x), 'max', axis, keepdims)


def count_nonzero(x: _tensor.Array, axis: _tensor.Axis = None, keepdims: bool = False) -> _tensor.Tensor:
    """How many elements are not 0, over these dimensions; None: all."""
    return _o.sum(_o.not_equal(operand(x), 0), axis, keepdims)


def median(x: _tensor.Array, axis: Optional[int] = None, keepdims: bool = False) -> _tensor.Tensor:
    """The middle element in order, or the mean of both, along an axis; None: of all. NaN where an
    element is; of integers f32."""
    x = operand(x)
    flat = reshape(x, -1) if axis is None else x
    along = axis_in(0 if axis is None else axis, flat.ndim)
    n = flat.shape[along]
    if n == 0:
        raise ValueError('kiln.median: there is nothing along the axis')
    ordered, _ = topk(flat, n // 2 + 1, along, smallest=True)
    lower, upper = ([slice(None)] * along + [slice(at, at + 1)] for at in ((n - 1) // 2, n // 2))
    ordered = astype(ordered, 'f32')
    middle = ordered[tuple(upper)]
    if n % 2 == 0:
        middle = 0.5 * ordered[tuple(lower)] + 0.5 * middle
    if x.dtype.is_floating:
        middle = _o.where((flat != flat).any(along, True), math.nan, middle)
    shape = [1] * x.ndim if axis is None else list(middle.shape)
    if not keepdims:
        shape = [] if axis is None else shape[:along] + shape[along + 1:]
    return reshape(middle, shape)


# ---- running along a dimension ----

def _running(x: _tensor.Array, axis: Optional[int], dtype: Optional[Type], include_initial: bool,
             run: Callable[[Any, int], _tensor.Tensor], first: int) -> _tensor.Tensor:
    x = operand(x)
    if axis is None:
        if x.ndim > 1:
            raise ValueError(f'axis has to be given for a tensor of {x.ndim} dimensions')
        x, axis = reshape(x, -1), 0
    axis = axis_in(axis, x.ndim)
    made = _summed(x, dtype, lambda y: run(y, axis))
    if not include_initial:
        return made
    shape = [1 if i == axis else n for i, n in enumerate(made.shape)]
    return concat([_o.fill(made.dtype, shape, float(first), context=made._context), made], axis)


def cumulative_sum(x: _tensor.Array, *, axis: Optional[int] = None, dtype: Optional[Type] = None,
                   include_initial: bool = False) -> _tensor.Tensor:
    """Running sums along an axis, which a vector's may be left out of; with `include_initial` a 0
    comes before them. Of integers i64 unless a type is given."""
    return _running(x, axis, dtype, include_initial, _o.cumsum, 0)


def _products(x: Any, axis: int) -> _tensor.Tensor:
    """Running products, each of twice as many elements as in the step before."""
    made = astype(x, x.dtype if x.dtype.is_floating else 'i64')
    by, before = 1, [slice(None)] * axis
    while by < x.shape[axis]:
        made = concat([made[(*before, slice(0, by))],
                       made[(*before, slice(by, None))] * made[(*before, slice(0, -by))]], axis)
        by *= 2
    return made


def cumulative_prod(x: _tensor.Array, *, axis: Optional[int] = None, dtype: Optional[Type] = None,
                    include_initial: bool = False) -> _tensor.Tensor:
    """Running products along an axis, which a vector's may be left out of; with `include_initial` a 1
    comes before them. Of integers i64 unless a type is given."""
    return _running(x, axis, dtype, include_initial, _products, 1)


def diff(x: _tensor.Array, *, axis: int = -1, n: int = 1, prepend: Optional[_tensor.Array] = None,
         append: Optional[_tensor.Array] = None) -> _tensor.Tensor:
    """Differences of neighbours along an axis, n times over; `prepend` and `append` are put before and
    behind x first."""
    parts = operands(*(y for y in (prepend, x, append) if y is not None))
    made = concat(parts, axis) if len(parts) > 1 else _tensor.another(parts[0])
    axis = axis_in(axis, made.ndim)
    if n < 0:
        raise ValueError(f'diff: n is {n}, below 0')
    before = [slice(None)] * axis
    for _ in range(n):
        later, earlier = made[(*before, slice(1, None))], made[(*before, slice(0, -1))]
        made = later ^ earlier if made.dtype == BY_NAME['bool'] else later - earlier
    return made


# ---- counts of values ----

def bincount(x: _tensor.Array, weights: Optional[_tensor.Array] = None, minlength: int = 0, *,
             length: Optional[int] = None) -> _tensor.Tensor:
    """How often each of 0, 1, 2, ... occurs among integers, i64; with weights, the sums of these where
    it does, f32. As numpy has it, the largest says how many there are: it is evaluated. With `length`
    nothing is: there are so many, and what is beyond does not count."""
    x = operand(x) if weights is None else operands(x, weights)[0]
    if x.ndim != 1 or x.dtype.is_floating:
        raise ValueError(f'bincount: a vector of integers, not {x.dtype.name} of shape {list(x.shape)}')
    if length is None:
        length = minlength
        if x.size:
            least, most = _tensor.known(_o.stack([_o.min(x), _o.max(x)], 0), "bincount()'s length")
            if least < 0:
                raise ValueError(f'bincount: {least} is negative')
            length = builtins.max(minlength, int(most) + 1)
    kind = 'i32' if x.size < 2 ** 31 else 'i64'
    ones = _o.fill(kind, x.shape, 1.0, context=x._context)
    values = ones if weights is None else \
        astype(_tensor.as_tensor(weights, x._context), 'f32', copy=False).broadcast_to(x.shape)
    nothing = _o.fill(values.dtype, (length,), 0.0, context=x._context)
    made = _o.scatter(nothing, x, values, 0, 'add')
    return astype(made, 'i64', copy=False) if weights is None else made


def _edges(x: Any, bins: int, range: Optional[Sequence[float]]) -> _tensor.Tensor:
    """`bins` + 1 numbers evenly apart over a range, x's own unless one is given."""
    if bins < 1:
        raise ValueError(f'histogram: {bins} bins')
    if range is not None or not x.size:
        start, stop = (0.0, 1.0) if range is None else map(float, range)
        if not start <= stop:
            raise ValueError(f'histogram: a range from {start} to {stop}')
        start, stop = (start - 0.5, stop + 0.5) if start == stop else (start, stop)
        return _tensor.as_tensor(np.linspace(start, stop, bins + 1).astype(np.float32), x._context)
    low, high = _o.min(x), _o.max(x)
    same = _o.equal(low, high)
    low, high = low - _o.where(same, 0.5, 0.0), high + _o.where(same, 0.5, 0.0)
    steps = (np.arange(bins + 1) / bins).astype(np.float32)
    return low * (1 - steps) + high * steps


def _is_fine(bins: int, range: Sequence[float]) -> bool:
    """Whether in f32 an element's bin by a division is off by one at most."""
    start, stop = map(float, range)
    return stop > start and bins * builtins.max(abs(start), abs(stop)) <= 2.0 ** 20 * (stop - start)


def _places(x: Any, edges: Any, start: float, stop: float) -> Any:
    """The bin of each element, of bins evenly over a range; -1 outside."""
    count = edges.size - 1
    inside = _o.logical_and(_o.less_equal(edges[0], x), _o.less_equal(x, edges[count]))
    wide = (_o.where(inside, x, start) - start) * (count / (stop - start))
    guess = _o.minimum(astype(wide, 'i32'), count - 1)
    guess = guess - astype(_o.less(x, _o.gather(edges, guess, 0)), 'i32')
    further = _o.minimum(guess + 1, count - 1)
    guess = _o.where(_o.less_equal(_o.gather(edges, further, 0), x), further, guess)
    return _o.where(inside, guess, -1)


def histogram(x: _tensor.Array, bins: Union[int, _tensor.Array] = 10,
              range: Optional[Sequence[float]] = None, density: bool = False,
              weights: Optional[_tensor.Array] = None) -> tuple[_tensor.Tensor, _tensor.Tensor]:
    """(counts, edges): how many elements lie between each pair of neighbouring edges, the upper one
    excluded but of the last. `bins` is how many there are, evenly over `range` or from the least
    element to the largest, or the edges. Counts are i64; with `weights`, or as a `density` whose
    integral is 1, f32."""
    context = find_context([x, bins, weights]) or default_context()
    x = reshape(astype(_tensor.as_tensor(x, context), 'f32', copy=False), -1)
    edges = _edges(x, int(bins), range) if isinstance(bins, (int, np.integer)) else \
        astype(_tensor.as_tensor(bins, context), 'f32', copy=False)
    count = edges.size - 1
    if edges.ndim != 1 or count < 1:
        raise ValueError('histogram: edges are a vector of two or more')
    if isinstance(bins, (int, np.integer)) and range is not None and _is_fine(count, range):
        place = _places(x, edges, *map(float, range))
    else:
        place = searchsorted(edges, x, side='right') - 1
        place = _o.where(_o.equal(x, edges[count]), count - 1, place)
    given = None if weights is None else reshape(_tensor.as_tensor(weights, context), -1)
    counts = bincount(place, given, length=count)
    if not density:
        return counts, edges
    counts = astype(counts, 'f32', copy=False)
    return counts / (counts.sum() * diff(edges)), edges


__all__ = [
    'all', 'any', 'bincount', 'count_nonzero', 'cumulative_prod', 'cumulative_sum', 'diff',
    'histogram', 'median', 'prod', 'std', 'sum', 'var',
]
