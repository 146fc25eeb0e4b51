# SPDX-License-Identifier: Apache-2.0
"""Functions whose parameters take more than the generated ones do: numpy's manners on top of them."""
from __future__ import annotations

import builtins
import ctypes
import math
import operator
from typing import Any, Optional, Sequence, Union

import numpy as np

from . import _operations as _o
from . import _tensor
from ._context import default_context
from ._library import Handle, check, initialised, lib, longs, sizes, word
from ._record import axes_of, dims_of, find_context, is_none_at_all, options_of, record
from ._tape import Expression
from ._types import BY_NAME, Type, as_dtype

# ---- operands ----


def _operand(x: Any) -> Any:
    """The tensor that an operand is."""
    return _tensor.as_tensor(x, find_context([x]) or default_context())


def _of(x: Any, function: str, *arguments: Any) -> Any:
    """A function of one tensor, with arguments of C."""
    call = getattr(lib, 'kiln_' + function)
    return _tensor.make(x._context, Expression((x,), lambda b, h: call(b, h[0], *arguments)))


def _several(context: Any, operands: Sequence[Any], enter: Any, count: int) -> list:
    """The tensors of an expression that has several."""
    expression = Expression(tuple(operands), enter)
    return [_tensor.make(context, expression, i) for i in range(count)]


def _axis(axis: int, ndim: int) -> int:
    number = operator.index(axis)
    if not -ndim <= number < ndim:
        raise IndexError(f'axis {number} of a tensor of {ndim} dimensions')
    return number % ndim


# ---- shape ----

def astype(x: _tensor.Array, dtype: Type) -> _tensor.Tensor:
    """The elements of x as another type: kiln.cast(), and x itself where it is of that type."""
    x, wanted = _operand(x), as_dtype(dtype)
    return x if x.dtype.value == wanted.value else _of(x, 'cast', wanted.value)


def reshape(x: _tensor.Array, shape: _tensor.Shape) -> _tensor.Tensor:
    """The same elements in row-major order under another shape; one dimension may be -1: what is
    left."""
    x = _operand(x)
    dims = [operator.index(shape)] if hasattr(shape, '__index__') else [int(d) for d in shape]
    if dims.count(-1) == 1:
        known = math.prod(d for d in dims if d != -1)
        dims[dims.index(-1)] = x.size // known if known else 0
    dims = dims_of(dims)
    return x if tuple(dims) == x.shape else _of(x, 'reshape', len(dims), sizes(dims))


def transpose(x: _tensor.Array, axes: Optional[Sequence[int]] = None) -> _tensor.Tensor:
    """Dimensions in another order: dimension i of the result is dimension axes[i] of x. None: in
    the opposite order, as numpy has it."""
    x = _operand(x)
    order = list(range(x.ndim))[::-1] if axes is None else [_axis(a, x.ndim) for a in axes]
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(f'axes {list(axes or ())} are no order of {x.ndim} dimensions')
    return x if order == list(range(x.ndim)) else _of(x, 'transpose', sizes(order))


def swapaxes(x: _tensor.Array, first: int, second: int) -> _tensor.Tensor:
    """x with two dimensions swapped."""
    x = _operand(x)
    order = list(range(x.ndim))
    first, second = _axis(first, x.ndim), _axis(second, x.ndim)
    order[first], order[second] = second, first
    return transpose(x, order)


def expand_dims(x: _tensor.Array, axis: _tensor.Axis) -> _tensor.Tensor:
    """x with a further dimension of 1, or several, where `axis` says for the result."""
    x = _operand(x)
    axes = [axis] if hasattr(axis, '__index__') else list(axis or ())
    rank = x.ndim + len(axes)
    places = {_axis(a, rank) for a in axes}
    dims = iter(x.shape)
    return reshape(x, [1 if i in places else next(dims) for i in range(rank)])


def squeeze(x: _tensor.Array, axis: _tensor.Axis = None) -> _tensor.Tensor:
    """x without its dimensions of 1, or without these of them."""
    x = _operand(x)
    axes = [i for i, dim in enumerate(x.shape) if dim == 1] if axis is None else \
        [_axis(a, x.ndim) for a in ([axis] if hasattr(axis, '__index__') else axis)]
    if any(x.shape[a] != 1 for a in axes):
        raise ValueError(f'only dimensions of 1 can be dropped, of shape {list(x.shape)}')
    return reshape(x, [dim for i, dim in enumerate(x.shape) if i not in axes])


def broadcast_to(x: _tensor.Array, shape: _tensor.Shape) -> _tensor.Tensor:
    """x repeated to a larger shape by numpy's rule: aligned at the last dimension, 1 repeats."""
    x = _operand(x)
    dims = dims_of(shape)
    return x if tuple(dims) == x.shape else _of(x, 'broadcast', len(dims), sizes(dims))


def pad(x: _tensor.Array, width: Any, value: float = 0.0, mode: str = 'constant') -> _tensor.Tensor:
    """x with elements of this value around it, or with its own: `mode` is "constant", "edge",
    "reflect", "symmetric" or "wrap". `width` is a number for all sides, a pair (before, behind) for
    all dimensions, or a pair for each."""
    x = _operand(x)
    widths = np.broadcast_to(np.asarray(width, np.int64), (x.ndim, 2)).tolist()
    if any(side < 0 for pair in widths for side in pair):
        raise ValueError(f'a width below 0: {width}')
    low, high = ([pair[i] for pair in widths] for i in (0, 1))
    if mode == 'constant':
        return _of(x, 'pad', sizes(low), sizes(high), float(value))
    return _of(x, 'pad_by', sizes(low), sizes(high), word('kiln_padding', mode))


def windows(x: _tensor.Array, axis: int, size: Sequence[int], step: Optional[Sequence[int]] = None,
            dilation: Optional[Sequence[int]] = None) -> _tensor.Tensor:
    """Windows of these sizes that slide over the dimensions of x from `axis` on, in place of these:
    first how many there are along each, then their sizes. No element is copied."""
    x = _operand(x)
    size = dims_of(size)
    count = len(size)
    lists = [None if v is None else sizes(dims_of(v)) for v in (step, dilation)]
    if any(v is not None and len(v) != count for v in lists):
        raise ValueError(f'step and dilation have {count} numbers, as size has')
    return _of(x, 'windows', _axis(axis, x.ndim), count, sizes(size), *lists)


def split(x: _tensor.Array, parts: Union[int, Sequence[int]], axis: int = 0) -> list:
    """x cut along an axis into so many equal parts, or into parts of these sizes. No element is
    copied."""
    x = _operand(x)
    count = parts if isinstance(parts, int) else len(parts)
    lengths = None if isinstance(parts, int) else sizes(dims_of(parts))

    def enter(batch: Any, handles: list) -> list:
        out = (Handle * builtins.max(count, 1))()
        lib.kiln_split(batch, handles[0], axis, count, lengths, out)
        return [Handle(out[i].id) for i in range(count)]
    return _several(x._context, [x], enter, count)


def concatenate(parts: Sequence[_tensor.Array], axis: int = 0) -> _tensor.Tensor:
    """The tensors one after the other along an axis: kiln.concat()."""
    return _o.concat(parts, axis)


# ---- indexing ----

def _normal_key(key: Any, ndim: int) -> list:
    """The key with an entry for each dimension, and None where one is new."""
    key = list(key) if isinstance(key, tuple) else [key]
    given = builtins.sum(map(_dimensions, key))
    if given > ndim:
        raise IndexError(f'{given} indices for a tensor of {ndim} dimensions')
    places = [i for i, k in enumerate(key) if k is Ellipsis]
    if len(places) > 1:
        raise IndexError('an index has at most one ...')
    place = places[0] if places else len(key)
    return key[:place] + [slice(None)] * (ndim - given) + key[place + 1:]


def _dimensions(k: Any) -> int:
    """How many dimensions an entry of a key is for."""
    return 0 if k is None or k is Ellipsis else k.ndim if _is_mask(k) else 1


def _is_truth_value(k: Any) -> bool:
    return isinstance(k, (bool, np.bool_))


def _by_truth(x: Any, key: tuple) -> Any:
    """x[key] with True or False in it: a mask of no dimensions, hence a further one, of 1 or 0."""
    if any(_is_array(k) for k in key) or builtins.sum(map(_is_truth_value, key)) > 1:
        raise IndexError('True or False is an index beside integers, slices, ... and None')
    i = next(i for i, k in enumerate(key) if _is_truth_value(k))
    before, behind = key[:i], key[i + 1:]
    axis = x.ndim - builtins.sum(map(_dimensions, behind)) if Ellipsis in before else \
        builtins.sum(map(_dimensions, before))
    return index(expand_dims(x, axis), (*before, slice(0, int(key[i])), *behind))


def _is_mask(k: Any) -> bool:
    return isinstance(k, np.ndarray) and k.dtype == np.bool_


def _as_entry(k: Any) -> list:
    """The entries that one of the key stands for."""
    if k is None or k is Ellipsis or isinstance(k, (slice, _tensor.Operators)):
        return [k]
    if hasattr(k, '__index__') and not isinstance(k, np.ndarray):
        return [operator.index(k)]
    array = np.asarray(k)
    if array.dtype == np.bool_:
        return list(np.nonzero(array))
    return [array.astype(np.int64) if array.size == 0 else array]


def _bounds(k: Any, length: int) -> tuple[int, int, int]:
    """start, stop, step of an entry, within the dimension."""
    if isinstance(k, slice):
        start, stop, step = k.indices(length)
        if len(range(start, stop, step)) == 0:
            return 0, 0, 1
        return start, stop, step
    if not -length <= k < length:
        raise IndexError(f'index {k} along a dimension of {length}')
    return k % length, k % length + 1, 1


def _wrapped(indices: Any, length: int, context: Any) -> Any:
    """Indices that count from the end made ones from the start; those of numpy's arrays are
    checked."""
    if isinstance(indices, np.ndarray):
        if indices.dtype.kind not in 'iu':
            raise IndexError(f'elements are picked by integers, not by {indices.dtype}')
        if indices.size and not (-length <= indices.min() and indices.max() < length):
            raise IndexError(f'an index beyond a dimension of {length}')
        return _tensor.as_tensor(np.where(indices < 0, indices + length, indices).astype(np.int32),
                                 context)
    if indices.dtype == BY_NAME['bool']:
        raise IndexError('a mask that is a tensor cannot pick: how many it picks is not known; '
                         'use kiln.where(), or a mask of numpy\'s')
    if indices.dtype.is_floating:
        raise IndexError('elements are picked by integers')
    tensor = indices._tensor()
    if tensor.dtype.itemsize == 1:  # which need not hold the sum
        tensor = tensor.astype('i32')
    return _o.where(tensor < 0, tensor + length, tensor)


def _counted(indices: _tensor.Array, length: Any) -> Any:
    """Indices below a length, or below one for each of their last dimension, of which negative ones
    count from the end, counted from the start."""
    if not isinstance(indices, _tensor.Operators):
        indices = _tensor.as_array(indices)
        if indices.dtype.kind == 'i':
            indices = indices.astype(np.int64)
            return np.where(indices < 0, indices + length, indices)
        return indices
    tensor = indices._tensor()
    if tensor.dtype.is_floating or tensor.dtype.computed == BY_NAME['u8']:
        return tensor
    tensor = tensor.astype('i32') if tensor.dtype.itemsize == 1 else tensor
    if isinstance(length, np.ndarray):
        length = length.astype(np.int64 if tensor.dtype.itemsize == 8 else np.int32)
    return _o.where(tensor < 0, tensor + length, tensor)


def gather(x: _tensor.Array, indices: _tensor.Array, axis: int) -> _tensor.Tensor:
    """Elements of x picked along an axis, as numpy's take(): the result has the shape of x with the
    axis replaced by all dimensions of `indices` (integers). A negative index counts from the end. One
    beyond x picks NaN, of an integer type 0."""
    x = _operand(x)
    return _o.gather(x, _counted(indices, x.shape[axis]), axis)


def slice_at(x: _tensor.Array, start: _tensor.Array, count: int, axis: int) -> _tensor.Tensor:
    """A part of x whose place is a tensor: `count` elements along an axis from `start` (integers) on,
    all of the other dimensions. `start` is one position, or by broadcasting one for each element of
    x's dimensions before the axis. A negative one counts from the end; what is beyond x is what
    kiln.gather() picks there."""
    x = _operand(x)
    return _o.slice_at(x, _counted(start, x.shape[axis]), count, axis)


def update_slice(x: _tensor.Array, part: _tensor.Array, start: _tensor.Array,
                 axis: int) -> _tensor.Tensor:
    """x with the elements of `part`, as x's type, put where kiln.slice_at() would find them; what
    goes beyond x is left out. x itself stays as it is; but of a buffer that gets the result nothing
    else is touched, as with `buffer[:, start] = part`."""
    x = _operand(x)
    part = _tensor.as_tensor(part, x._context).astype(x.dtype)
    return _o.update_slice(x, part, _counted(start, x.shape[axis]), axis)


def gather_elements(x: _tensor.Array, indices: _tensor.Array, axis: int) -> _tensor.Tensor:
    """One element of x for each of `indices` (of x's rank), at its own position but for the axis,
    where the index is: numpy's take_along_axis(). A negative index counts from the end; one beyond x
    picks as with kiln.gather()."""
    x = _operand(x)
    return _o.gather_elements(x, _counted(indices, x.shape[axis]), axis)


def scatter(x: _tensor.Array, indices: _tensor.Array, values: _tensor.Array, axis: int,
            mode: Union[int, str] = 'set') -> _tensor.Tensor:
    """x with values put to the elements that kiln.gather() would pick, or, by `mode`, added to them
    ("add"), multiplied ("mul"), or the smaller or larger of both ("min", "max"). Values come in their
    order; one whose index is beyond x is left out. x itself stays as it is."""
    x = _operand(x)
    return _o.scatter(x, _counted(indices, x.shape[axis]), values, axis, mode)


def scatter_add(x: _tensor.Array, indices: _tensor.Array, values: _tensor.Array,
                axis: int) -> _tensor.Tensor:
    """kiln.scatter() with "add"."""
    return scatter(x, indices, values, axis, 'add')


def scatter_elements(x: _tensor.Array, indices: _tensor.Array, values: _tensor.Array, axis: int,
                     mode: Union[int, str] = 'set') -> _tensor.Tensor:
    """x with values, of indices' shape, put to the elements that kiln.gather_elements() would pick;
    the rest as with kiln.scatter()."""
    x = _operand(x)
    return _o.scatter_elements(x, _counted(indices, x.shape[axis]), values, axis, mode)


def _counted_parts(x: Any, indices: Any, batch_dims: int) -> Any:
    """Positions of parts, counted from the start; those that fit no x are for the call to refuse."""
    shape = np.shape(indices)
    lengths = x.shape[batch_dims:batch_dims + (shape[-1] if shape else 0)]
    if not shape or len(lengths) != shape[-1] or not lengths:
        return indices
    return _counted(indices, np.array(lengths, np.int64))


def gather_nd(x: _tensor.Array, indices: _tensor.Array, batch_dims: int = 0) -> _tensor.Tensor:
    """Parts of x: the last dimension of `indices` (integers) has positions in as many dimensions of
    x, from number `batch_dims` on, in its place the part that is there. The first `batch_dims`
    dimensions of both are the same ones, each with indices of its own. A negative position counts
    from the end; one beyond x picks as with kiln.gather()."""
    x = _operand(x)
    return _o.gather_nd(x, _counted_parts(x, indices, batch_dims), batch_dims)


def scatter_nd(x: _tensor.Array, indices: _tensor.Array, values: _tensor.Array,
               mode: Union[int, str] = 'set') -> _tensor.Tensor:
    """x with values put to the parts that kiln.gather_nd() of `batch_dims` 0 would pick; the rest as
    with kiln.scatter()."""
    x = _operand(x)
    return _o.scatter_nd(x, _counted_parts(x, indices, 0), values, mode)


def _is_array(k: Any) -> bool:
    return isinstance(k, (np.ndarray, _tensor.Operators))


def _basic(x: Any, entries: list) -> Any:
    """The part that integers and slices name; where an array stands, all."""
    bounds = [_bounds(slice(None) if _is_array(k) else k, dim) for k, dim in zip(entries, x.shape)]
    if any(b != (0, dim, 1) for b, dim in zip(bounds, x.shape)):
        x = _of(x, 'slice', *(longs(column) for column in zip(*bounds)))
    return x


def index(x: _tensor.Array, key: Any) -> _tensor.Tensor:
    """x[key] as numpy has it: integers, slices (which are clipped), ..., None, arrays of integers,
    and masks of numpy's."""
    x = _operand(x)
    entries = []
    given = key if isinstance(key, tuple) else (key,)
    given = tuple(np.asarray(k) if isinstance(k, list) else k for k in given)
    if any(map(_is_truth_value, given)):
        return _by_truth(x, given)
    for k in _normal_key(given, x.ndim):
        entries += _as_entry(k)
    plain = [k for k in entries if k is not None]
    arrays = [i for i, k in enumerate(plain) if _is_array(k)]
    if arrays and arrays != list(range(arrays[0], arrays[-1] + 1)):
        raise IndexError('arrays among the indices have to stand side by side')
    x = _basic(x, plain)
    # What the result's dimensions are: an integer's is dropped, None's is new.
    dims, axis, at = [], None, 0
    for k in entries:
        if k is None:
            dims.append(1)
            continue
        if _is_array(k):
            axis = len(dims) if axis is None else axis
            dims.append(x.shape[at])
        elif isinstance(k, slice):
            dims.append(x.shape[at])
        at += 1
    x = reshape(x, dims)
    return _pick(x, [plain[i] for i in arrays], axis) if arrays else x


def _pick(x: Any, indices: list, axis: int) -> Any:
    """Elements that arrays of indices name together, along dimensions from `axis` on."""
    lengths = x.shape[axis:axis + len(indices)]
    picked = [_wrapped(k, n, x._context) for k, n in zip(indices, lengths)]
    if len(picked) == 1:
        return _o.gather(x, picked[0], axis)
    flat = picked[0].astype('i32') * 1
    for k, n in zip(picked[1:], lengths[1:]):
        flat = flat * n + k
    merged = x.shape[:axis] + (math.prod(lengths),) + x.shape[axis + len(indices):]
    return _o.gather(reshape(x, merged), flat, axis)


def _is_position(k: Any) -> bool:
    """Whether an entry of a key is a position that is a tensor: a scalar, or one in a row."""
    return isinstance(k, _tensor.Operators) and k.shape in ((), (1,)) and \
        not k.dtype.is_floating and k.dtype != BY_NAME['bool']


def _replaced_at(x: Any, entries: list, axis: int, value: Any) -> _tensor.Tensor:
    """x with a value where a tensor, the entry `axis` of the key, and numbers and slices say."""
    others = [slice(None) if i == axis else k for i, k in enumerate(entries)]
    kept = [k for k in others if isinstance(k, slice)]
    part = x
    if kept != others or any(k != slice(None) for k in others):
        part = _basic(x, [k if isinstance(k, slice) else operator.index(k) for k in others])
    shown = list(part.shape)
    shown[axis] = 1
    dims = [n for i, n in enumerate(shown)
            if isinstance(others[i], slice) and (i != axis or entries[axis].ndim)]
    value = reshape(broadcast_to(value, dims), shown)
    changed = update_slice(part, value, entries[axis], axis)
    if part is x:
        return changed
    return replaced(x, tuple(others), reshape(changed, [
        n for i, n in enumerate(changed.shape) if isinstance(others[i], slice)]))


def replaced(x: _tensor.Array, key: Any, value: _tensor.Array) -> _tensor.Tensor:
    """x with the elements that the key names (integers, slices, ..., and one position that is a
    tensor) replaced by a value, which broadcasts to their shape. x itself stays as it is."""
    x = _operand(x)
    entries = _normal_key(key, x.ndim)
    positions = [i for i, k in enumerate(entries) if _is_position(k)]
    if len(positions) == 1 and all(
            i in positions or isinstance(k, slice) or (hasattr(k, '__index__') and not _is_array(k)
                                                       and not _is_truth_value(k))
            for i, k in enumerate(entries)):
        value = _tensor.as_tensor(value, x._context).astype(x.dtype)
        return _replaced_at(x, entries, positions[0], value)
    if any(k is None or not (isinstance(k, slice) or hasattr(k, '__index__')) for k in entries) or \
            any(isinstance(k, _tensor.Operators) or _is_truth_value(k) for k in entries):
        raise IndexError('parts are replaced by integers, slices, one position that is a tensor, '
                         'and ...; see kiln.where() and kiln.scatter_add() for others')
    bounds = [_bounds(k if isinstance(k, slice) else operator.index(k), n)
              for k, n in zip(entries, x.shape)]
    counts = [len(range(*b)) for b in bounds]
    value = _tensor.as_tensor(value, x._context).astype(x.dtype)
    shown = [n for n, k in zip(counts, entries) if isinstance(k, slice)]
    part = reshape(broadcast_to(value, shown), counts)
    if 0 in counts:
        return x
    start, step = longs([b[0] for b in bounds]), longs([b[2] for b in bounds])
    return _tensor.make(x._context, Expression(
        (x, part), lambda b, h: lib.kiln_insert_slice(b, h[0], h[1], start, step)))


def insert_slice(x: _tensor.Array, part: _tensor.Array, start: Sequence[int],
          step: Optional[Sequence[int]] = None) -> _tensor.Tensor:
    """x with some of its elements replaced by those of `part`, of x's type and rank: in dimension i
    the elements start[i], start[i] + step[i], ... as many as part has there."""
    x = _operand(x)
    steps = [1] * x.ndim if step is None else list(step)
    if len(start) != x.ndim or len(steps) != x.ndim:
        raise ValueError(f'start and step have {x.ndim} numbers, one for each dimension')
    part = _tensor.as_tensor(part, x._context)
    begin, by = longs(list(start)), longs(steps)
    return _tensor.make(x._context, Expression(
        (x, part), lambda b, h: lib.kiln_insert_slice(b, h[0], h[1], begin, by)))


# ---- arithmetic in Python's manner ----

def _whole(*operands: Any) -> bool:
    """Whether all operands are of integer types, masks among them."""
    def one(x: Any) -> bool:
        if isinstance(x, _tensor.Operators):
            return not x.dtype.is_floating
        return np.asarray(x).dtype.kind in 'iub'
    return all(one(x) for x in operands)


def true_divide(a: _tensor.Array, b: _tensor.Array) -> _tensor.Tensor:
    """a / b as Python has it: f32 also of integers. (kiln.div() divides integers towards zero.)"""
    if _whole(a, b):
        a = a if isinstance(a, (bool, int)) else astype(a, 'f32')
        b = b if isinstance(b, (bool, int)) else astype(b, 'f32')
    return _o.div(a, b)


def floor_divide(a: _tensor.Array, b: _tensor.Array) -> _tensor.Tensor:
    """a // b as Python has it: towards minus infinity, and so that (a // b) * b + a % b is a. By 0
    integers are 0, and floats what a / b is."""
    rest = _o.fmod(a, b)
    below = _o.logical_and(_o.not_equal(rest, 0), _o.not_equal(_o.less(rest, 0), _o.less(b, 0)))
    if _whole(a, b):
        quotient = _o.div(a, b)
        return quotient if quotient.dtype == BY_NAME['u8'] else \
            _o.sub(quotient, astype(below, quotient.dtype))
    # Not a / b, which may be rounded up to a whole number that a does not reach.
    quotient = _o.sub(_o.round(_o.div(_o.sub(a, rest), b)), below)
    if isinstance(b, (int, float)) and b:
        return quotient
    return _o.where(_o.equal(b, 0), _o.floor(_o.div(a, b)), quotient)


def truth(x: _tensor.Array, name: str, axis: _tensor.Axis, keepdims: bool) -> _tensor.Tensor:
    """Whether any element ("max") or each ("min") is not 0."""
    mask = _o.not_equal(x, 0)
    if mask.size:
        return getattr(_o, name)(mask, axis, keepdims).astype('bool')
    nothing = _o.sum(mask, axis, keepdims)  # 0, where a result has an element
    return _o.equal(nothing, 0) if name == 'min' else _o.not_equal(nothing, 0)


def power(a: _tensor.Array, b: _tensor.Array) -> _tensor.Tensor:
    """a ** b; small whole exponents are products."""
    if isinstance(b, (int, float)) and not isinstance(b, bool):
        if b == 0.5:
            return _o.sqrt(a)
        if b == -1:
            return _o.reciprocal(a)
        if b == 2:
            return _o.square(a)
        if isinstance(b, int) and 1 <= b <= 16:
            return _product(_operand(a), b)
    return _o.pow(a, b)


def _product(a: Any, exponent: int) -> Any:
    """a to a whole power, by squares."""
    result = None
    while exponent:
        if exponent % 2:
            result = a if result is None else _o.mul(result, a)
        exponent //= 2
        a = _o.square(a) if exponent else a
    return result


def bits(what: str, a: Any, b: Any) -> Any:
    """& | ^: of masks the logical ones, of integers bit by bit."""
    if not _whole(a, b):
        raise TypeError(f'bit by bit {what} of floating types')
    if all(_is_truth(x) for x in (a, b)):
        return getattr(_o, 'logical_' + what)(a, b)
    return getattr(_o, 'bit_' + what)(a, b)


def _is_truth(x: Any) -> bool:
    if isinstance(x, _tensor.Operators):
        return x.dtype == BY_NAME['bool']
    return np.asarray(x).dtype == np.bool_


def invert(a: Any) -> Any:
    """~a: of masks the logical one, of integers bit by bit."""
    if not _whole(a):
        raise TypeError('bit by bit not of floating types')
    return _o.logical_not(a) if _is_truth(a) else _o.bit_not(a)


# ---- pools, quantisation, clipping ----

Sizes = Union[int, Sequence[int]]


def _window(x: Any, window: Any, name: str, fields: dict) -> tuple:
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
    x = _operand(x)
    return _of(x, 'max_pool2d', *_window(x, window, 'kiln_window_options', {
        'stride': stride, 'dilation': dilation, 'before': before, 'after': after}))


def avg_pool2d(x: _tensor.Array, window: Sizes, *, stride: Sizes = 0, dilation: Sizes = 0,
               before: Sizes = 0, after: Sizes = 0) -> _tensor.Tensor:
    """The mean of each window, as kiln.max_pool2d() has them; padding is zeros and counts."""
    x = _operand(x)
    return _of(x, 'avg_pool2d', *_window(x, window, 'kiln_window_options', {
        'stride': stride, 'dilation': dilation, 'before': before, 'after': after}))


def max_pool(x: _tensor.Array, window: Sizes, *, layout: Union[int, str] = 0, stride: Sizes = 0,
             dilation: Sizes = 0, before: Sizes = 0, after: Sizes = 0, ceil: bool = False,
             indices: bool = False) -> Any:
    """The largest element of each window of each channel, over one to three dimensions; `layout` is
    "channels_last" or "channels_first". With `indices` a pair: each one's row-major number among
    its channel's elements comes second."""
    x = _operand(x)
    size, options = _window(x, window, 'kiln_pool_options', {
        'layout': layout, 'stride': stride, 'dilation': dilation, 'before': before,
        'after': after, 'ceil': bool(ceil)})
    if not indices:
        return _of(x, 'max_pool', size, options, None)

    def enter(batch: Any, handles: list) -> list:
        where = Handle()
        return [lib.kiln_max_pool(batch, handles[0], size, options, ctypes.byref(where)), where]
    return tuple(_several(x._context, [x], enter, 2))


def avg_pool(x: _tensor.Array, window: Sizes, *, layout: Union[int, str] = 0, stride: Sizes = 0,
             dilation: Sizes = 0, before: Sizes = 0, after: Sizes = 0, ceil: bool = False,
             count_padding: bool = False) -> _tensor.Tensor:
    """The mean of each window, as kiln.max_pool() has them."""
    x = _operand(x)
    return _of(x, 'avg_pool', *_window(x, window, 'kiln_pool_options', {
        'layout': layout, 'stride': stride, 'dilation': dilation, 'before': before,
        'after': after, 'ceil': bool(ceil), 'count_padding': bool(count_padding)}))


def lp_pool(x: _tensor.Array, window: Sizes, p: float, *, layout: Union[int, str] = 0,
            stride: Sizes = 0, dilation: Sizes = 0, before: Sizes = 0, after: Sizes = 0,
            ceil: bool = False) -> _tensor.Tensor:
    """sum(|x|^p)^(1/p) of each window, as kiln.max_pool() has them."""
    x = _operand(x)
    size, options = _window(x, window, 'kiln_pool_options', {
        'layout': layout, 'stride': stride, 'dilation': dilation, 'before': before,
        'after': after, 'ceil': bool(ceil)})
    return _of(x, 'lp_pool', size, float(p), options)


def resize(x: _tensor.Array, shape: Optional[Sequence[int]] = None, *,
           scale: Optional[Sequence[float]] = None, method: str = 'nearest',
           coordinates: str = 'asymmetric', nearest: str = 'floor', cubic: float = -0.75,
           exclude_outside: bool = False, antialias: bool = False) -> _tensor.Tensor:
    """x with another extent in each dimension: `shape`, or x's times `scale`, each with a number for
    every dimension. `method` is "nearest", "linear" or "cubic"; `coordinates` where elements lie:
    "asymmetric", "half_pixel", "align_corners" and so on, and `nearest` which one that is: "floor",
    "ceil", "prefer_floor", "prefer_ceil" (kiln/resize.h)."""
    x = _operand(x)
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

    def enter(batch: Any, handles: list, _: Any = scales) -> Any:
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

    def enter(batch: Any, handles: list) -> Any:
        mine = type(options).from_buffer_copy(options)
        if len(handles) > 2:
            mine.class_weights = handles[2]
        return lib.kiln_cross_entropy_with(batch, handles[0], handles[1], ctypes.byref(mine))
    return _tensor.make(context, Expression(operands, enter))


def attention(q: _tensor.Array, k: _tensor.Array, v: _tensor.Array,
              mask: Optional[_tensor.Array] = None, *, lengths: Optional[_tensor.Array] = None,
              scale: float = 0, causal: int = 0, diagonal: int = 0) -> _tensor.Tensor:
    """softmax(scale q k' + mask) v of q [..., m, d], k [..., n, d] and v [..., n, e], without the
    scores in memory; leading dimensions broadcast. A bool or u8 mask says which keys are seen, one of
    floats is added. `causal`: row i of q sees keys 0 to i + diagonal. scale 0 is 1 / sqrt(d).

    `lengths`, integers that broadcast with the leading dimensions, say how many keys there are: k and
    v may be a cache of which the first so many rows count, and no others are read. Then row i of a
    causal q sees keys 0 to length - m + i + diagonal. See kiln.attention_with_lengths()."""
    if lengths is None:
        return _o.attention(q, k, v, mask, scale=scale, causal=causal, diagonal=diagonal)
    return _o.attention_with_lengths(q, k, v, mask, lengths, scale=scale, causal=causal,
                                     diagonal=diagonal)


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
                     epsilon: float = 1e-5) -> tuple:
    """(normalised x, mean, variance): kiln.batch_norm() with the statistics of x itself, over all
    dimensions but the axis, which come too, for running averages of them."""
    x = _operand(x)
    operands = [None if o is None else _tensor.as_tensor(o, x._context) for o in (scale, shift)]

    def enter(batch: Any, handles: list) -> list:
        mean, variance = Handle(), Handle()
        return [lib.kiln_batch_norm_train(batch, *handles, axis, epsilon, ctypes.byref(mean),
                                          ctypes.byref(variance)), mean, variance]
    return tuple(_several(x._context, [x, *operands], enter, 3))


def topk(x: _tensor.Array, k: int, axis: int = -1, smallest: bool = False) -> tuple:
    """(the k largest elements along an axis, the largest first, and their positions); with
    `smallest` the smallest. Of equal ones those come that are first in x."""
    x = _operand(x)

    def enter(batch: Any, handles: list) -> list:
        where = Handle()
        return [lib.kiln_topk(batch, handles[0], k, axis, bool(smallest), ctypes.byref(where)), where]
    return tuple(_several(x._context, [x], enter, 2))


def median(x: _tensor.Array, axis: Optional[int] = None, keepdims: bool = False) -> _tensor.Tensor:
    """The middle element in order, or the mean of both, along an axis; None: of all. NaN where an
    element is; of integers f32."""
    x = _operand(x)
    flat = reshape(x, -1) if axis is None else x
    along = _axis(0 if axis is None else axis, flat.ndim)
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


# ---- recurrent layers ----

def _recurrent(name: str, operands: dict, options: dict, states: int) -> list:
    """A recurrent layer over these operands, of which some are None: all states, then the last."""
    context = find_context(list(operands.values())) or default_context()
    given = {field: _tensor.as_tensor(x, context) for field, x in operands.items() if x is not None}
    layer = initialised('KILN_RECURRENT_INIT')
    layer.direction = word('kiln_direction', options.pop('direction'))
    layer.gates = word('kiln_gates', options.pop('gates'))
    for field, value in options.items():
        setattr(layer, field, value)
    fields = list(given)

    def enter(batch: Any, handles: list) -> list:
        mine = type(layer).from_buffer_copy(layer)  # another thread may record it, too
        for field, handle in zip(fields, handles):
            setattr(mine, field, handle)
        last = [Handle() for _ in range(states)]
        call = getattr(lib, 'kiln_' + name)
        return [call(batch, ctypes.byref(mine), *map(ctypes.byref, last)), *last]
    return _several(context, list(given.values()), enter, 1 + states)


def rnn(x: _tensor.Array, w: _tensor.Array, r: _tensor.Array, bias: Optional[_tensor.Array] = None,
        h: Optional[_tensor.Array] = None, lengths: Optional[_tensor.Array] = None, *,
        direction: str = 'forward', clip: float = 0.0) -> tuple:
    """(all states [T,D,B,H], the last ones [D,B,H]) of h = tanh(x w' + h r' + bias), over x [T,B,I]
    with w [D,H,I], r [D,H,H] and bias [D,2H]; D is 2 where the direction is "bidirectional", else 1
    ("forward", "reverse"). h is the state before the first step; `lengths` [B] each sequence's."""
    made = _recurrent('rnn', {'x': x, 'w': w, 'r': r, 'bias': bias, 'h': h, 'lengths': lengths},
                      {'direction': direction, 'gates': 'onnx', 'clip': clip}, 1)
    return tuple(made)


def gru(x: _tensor.Array, w: _tensor.Array, r: _tensor.Array, bias: Optional[_tensor.Array] = None,
        h: Optional[_tensor.Array] = None, lengths: Optional[_tensor.Array] = None, *,
        direction: str = 'forward', gates: str = 'pytorch', clip: float = 0.0,
        linear_before_reset: bool = True) -> tuple:
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
         input_forget: bool = False) -> tuple:
    """(all states, the last ones, the last cells) of long short-term memory, as kiln.rnn() has them;
    w [D,4H,I], r [D,4H,H], bias [D,8H]. `gates` is the order of their rows: "pytorch" or "onnx"."""
    made = _recurrent('lstm', {'x': x, 'w': w, 'r': r, 'bias': bias, 'h': h, 'c': c,
                               'peephole': peephole, 'lengths': lengths},
                      {'direction': direction, 'gates': gates, 'clip': clip,
                       'input_forget': bool(input_forget)}, 2)
    return tuple(made)


def quantize(x: _tensor.Array, axis: _tensor.Axis = None) -> tuple:
    """(q, scale): x in i8, and the scale of each slice over the dimensions `axis`; q times scale is
    near x."""
    x = _operand(x)
    if is_none_at_all(axis):
        return tuple(reshape(y, x.shape) for y in quantize(reshape(x, (*x.shape, 1)), -1))
    count, axes = axes_of(axis)

    def enter(batch: Any, handles: list) -> list:
        scale = Handle()
        q = lib.kiln_quantize(batch, handles[0], count, axes, ctypes.byref(scale))
        return [q, scale]
    return tuple(_several(x._context, [x], enter, 2))


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


def clip_by_norm(gradients: Sequence[_tensor.Array], max_norm: float) -> tuple:
    """(clipped gradients, norm): gradients scaled down so that their common norm is at most
    max_norm, and the norm before."""
    operands = [_operand(g) for g in gradients]
    count = len(operands)

    def enter(batch: Any, handles: list) -> list:
        out = (Handle * builtins.max(count, 1))()
        norm = lib.kiln_clip_by_norm(batch, count, (Handle * builtins.max(count, 1))(*handles),
                                     max_norm, out)
        return [Handle(out[i].id) for i in range(count)] + [norm]
    *clipped, norm = _several(operands[0]._context, operands, enter, count + 1)
    return clipped, norm


def zeros(shape: _tensor.Shape, dtype: Type = 'f32', *, context: Any = None) -> _tensor.Tensor:
    """Zeros of a shape; no memory is filled where they are only read."""
    return _o.fill(dtype, shape, 0.0, context=context)


def ones(shape: _tensor.Shape, dtype: Type = 'f32', *, context: Any = None) -> _tensor.Tensor:
    """Ones of a shape; no memory is filled where they are only read."""
    return _o.fill(dtype, shape, 1.0, context=context)


def full(shape: _tensor.Shape, value: float, dtype: Type = 'f32', *,
         context: Any = None) -> _tensor.Tensor:
    """A value of a shape; no memory is filled where it is only read."""
    return _o.fill(dtype, shape, float(value), context=context)


def arange(start: float, stop: Optional[float] = None, step: float = 1,
           dtype: Optional[Type] = None, *, context: Any = None) -> _tensor.Tensor:
    """start, start + step, ... before stop, as numpy's arange(); of integers i32, else f32."""
    if stop is None:
        start, stop = 0, start
    if dtype is None:
        dtype = 'i32' if all(isinstance(v, int) for v in (start, stop, step)) else 'f32'
    return record('arange', [('type', dtype), ('number', float(start)), ('number', float(stop)),
                             ('number', float(step)), ('context', context)])


__all__ = [
    'arange', 'astype', 'attention', 'avg_pool', 'avg_pool2d', 'batch_norm_train', 'broadcast_to',
    'clip_by_norm', 'concatenate', 'cross_entropy', 'einsum', 'expand_dims', 'floor_divide',
    'full', 'gather', 'gather_elements', 'gather_nd', 'gru', 'insert_slice', 'lp_pool', 'lstm', 'max_pool',
    'max_pool2d', 'median', 'ones', 'pad', 'power', 'quantize', 'quantize_blocks', 'replaced',
    'reshape', 'resize', 'rnn', 'scatter', 'scatter_add', 'scatter_elements', 'scatter_nd', 'slice_at', 'split', 'squeeze',
    'swapaxes', 'topk', 'transpose', 'true_divide', 'update_slice', 'windows', 'zeros',
]
