# SPDX-License-Identifier: Apache-2.0
"""What the generated functions call: operands of all kinds become tensors of one type, and the
library's function is recorded."""
from __future__ import annotations

import ctypes
import math
import operator
from typing import Any, Callable, Optional, Sequence

import numpy as np

from . import _tensor
from ._context import Context, default_context
from ._library import Error, Handle, ints, lib, sizes, struct, word
from ._table import STRUCTS
from ._tape import Expression, Scalar
from ._types import BY_NAME, DType, as_dtype, promoted

_F32, _I64, _I32, _U8, _BOOL = (BY_NAME[n] for n in ('f32', 'i64', 'i32', 'u8', 'bool'))
# Rows of floats that are exact of integers.
_EXACT = ('floor', 'ceil', 'round', 'trunc', 'pow')


def find_context(operands: Sequence[Any], found: Optional[Context] = None) -> Optional[Context]:
    """The context that tensors and buffers among the operands belong to, as others do that were
    found."""
    for operand in operands:
        context = getattr(operand, '_context', None)
        if context is None or not isinstance(context, Context):
            continue
        if found is not None and context is not found:
            raise Error('INVALID_ARGUMENT', f'operands of two contexts, {found!r} and {context!r}; '
                        'what is in none goes to the default one, unless context= says otherwise')
        found = context
    return found


def take(operand: Any, context: Context) -> Any:
    """A tensor, or the number itself."""
    if isinstance(operand, np.generic) and operand.dtype.kind in 'biuf':
        operand = operand.item()
    if isinstance(operand, (bool, int, float)):
        return operand
    return _tensor.as_tensor(operand, context)


def scalar_type(value: Any, dtype: Optional[DType]) -> DType:
    """The type for a number beside tensors that are computed in `dtype`; None: there are none."""
    if isinstance(value, bool):
        return dtype or _U8
    if isinstance(value, int):
        return dtype or (_I32 if -2**31 <= value < 2**31 else _I64)
    return _F32


def _holds(dtype: DType, value: int) -> bool:
    return dtype.is_floating or np.iinfo(dtype.raw).min <= value <= np.iinfo(dtype.raw).max


def _comparable(values: Sequence[Any]) -> list[Any]:
    """Whole numbers beyond all types of integers, which are compared with tensors of these, as
    infinities."""
    if any(v.dtype.is_floating for v in values if isinstance(v, _tensor.Tensor)):
        return list(values)
    return [math.copysign(math.inf, v) if type(v) is int and not _holds(_I64, v) else v for v in values]


def _common(values: Sequence[Any], kinds: str) -> DType:
    """The type in which the operands of a row meet."""
    if kinds.startswith('FLOATING'):
        return _F32
    dtypes = [v.dtype for v in values if isinstance(v, _tensor.Tensor)]
    dtype = promoted(dtypes) if dtypes else None
    all_masks = dtypes and all(d == _BOOL for d in dtypes)
    for value in values:
        if isinstance(value, _tensor.Tensor):
            continue
        wanted = scalar_type(value, None if all_masks else dtype)
        if kinds == 'TEST' and type(value) is int and not _holds(wanted, value):
            wanted = scalar_type(value, None)
        dtype = wanted if dtype is None else promoted([dtype, wanted])
    return dtype or _F32


def _all_masks(values: Sequence[Any]) -> bool:
    return all(v.dtype == _BOOL if isinstance(v, _tensor.Tensor) else isinstance(v, bool)
               for v in values)


def meet(value: Any, dtype: DType, context: Context) -> Any:
    """The operand in this type."""
    if isinstance(value, _tensor.Tensor):
        return value if value.dtype.computed is dtype else value.astype(dtype)
    if dtype is _I64 and isinstance(value, int) and int(float(value)) != value:
        return _tensor.of_array(np.array(value, np.int64), context)  # a constant is a double
    return Scalar(value, dtype)


def row(name: str, kinds: str, operands: Sequence[Any], numbers: Sequence[float]) -> _tensor.Tensor:
    """Record a row of the table of elementwise operations."""
    context = find_context(operands) or default_context()
    values = [take(operand, context) for operand in operands]
    if kinds == 'SELECTION':
        mask, values = values[0], values[1:]
        dtype = _common(values, kinds)
        mask = mask if isinstance(mask, _tensor.Tensor) else Scalar(bool(mask), _U8)
        if isinstance(mask, _tensor.Tensor) and mask.dtype.computed is not _U8:
            mask = mask.astype(_BOOL)
        met = [mask] + [meet(value, dtype, context) for value in values]
    else:
        values = _comparable(values) if kinds == 'TEST' else values
        dtype = _common(values, 'NUMERIC' if name in _EXACT else kinds)
        met = [meet(value, dtype, context) for value in values]
    function = getattr(lib, 'kiln_' + name)
    if kinds.endswith('TEST') or kinds == 'SELECTION' and _all_masks(values):
        # A mask is a bool, as in numpy: u8 would pick rows where it is an index there.
        cast = lib.kiln_cast
        def record_test(batch: Any, handles: list[Any]) -> Any:
            return cast(batch, function(batch, *handles, *numbers), _BOOL.value)
        return _tensor.make(context, Expression(met, record_test))
    return _tensor.make(context, Expression(met, lambda b, h: function(b, *h, *numbers)))


# ---- what functions are written with that are not generated ----

def operand(x: Any) -> _tensor.Tensor:
    """The tensor that an operand is."""
    return _tensor.as_tensor(x, find_context([x]) or default_context())


def operands(*given: Any) -> list[_tensor.Tensor]:
    """The tensors that operands are, of one context."""
    context = find_context(given) or default_context()
    return [_tensor.as_tensor(x, context) for x in given]


def call(x: _tensor.Tensor, function: str, *arguments: Any) -> _tensor.Tensor:
    """The library's function of one tensor, with arguments of C."""
    of = getattr(lib, 'kiln_' + function)
    return _tensor.make(x._context, Expression((x,), lambda b, h: of(b, h[0], *arguments)))


def several(context: Context, given: Sequence[Any], enter: Any, count: int) -> list[_tensor.Tensor]:
    """The tensors of an expression that has several."""
    expression = Expression(tuple(given), enter)
    return [_tensor.make(context, expression, i) for i in range(count)]


def axis_in(axis: int, ndim: int) -> int:
    """An axis that is counted from either end, from the start."""
    number = operator.index(axis)
    if not -ndim <= number < ndim:
        raise IndexError(f'axis {number} of a tensor of {ndim} dimensions')
    return number % ndim


def axes_in(axis: Any, ndim: int) -> list[int]:
    """One axis, several, or None, all, as numbers from the start."""
    if axis is None:
        return list(range(ndim))
    return [axis_in(a, ndim) for a in ([axis] if hasattr(axis, '__index__') else axis)]


# ---- arguments of C ----

def axes_of(axis: Any) -> tuple[int, Any]:
    """n_axes and axes of C."""
    if axis is None:
        return 0, None
    axes = (axis,) if hasattr(axis, '__index__') else tuple(axis)
    return len(axes), ints(axes)


def is_none_at_all(axis: Any) -> bool:
    """Whether it is (), or [], which to C are all axes."""
    return isinstance(axis, (tuple, list)) and not axis


def _each_alone(x: _tensor.Tensor, function: Callable[[_tensor.Tensor, Any], _tensor.Tensor]
               ) -> _tensor.Tensor:
    """What a function over no axes at all gives: each element by itself is one over a further
    axis."""
    from ._manipulation import reshape
    return reshape(function(reshape(x, (*x.shape, 1)), -1), x.shape)


def reduce(name: str, kinds: str, x: Any, axis: Any, keepdims: bool) -> _tensor.Tensor:
    """Record a row of the table of reductions."""
    context = find_context([x]) or default_context()
    x = _tensor.as_tensor(x, context)
    if kinds.startswith('FLOATING') and not x.dtype.is_floating:
        x = x.astype(_F32)
    if is_none_at_all(axis):
        return _each_alone(x, lambda x, axis: reduce(name, kinds, x, axis, keepdims))
    count, axes = axes_of(axis)
    function = getattr(lib, 'kiln_' + name)
    return _tensor.make(context, Expression(
        (x,), lambda b, h: function(b, h[0], count, axes, bool(keepdims))))


def dims_of(shape: Any) -> list[int]:
    dims = [int(shape)] if hasattr(shape, '__index__') else [int(dim) for dim in shape]
    if any(dim < 0 for dim in dims):
        raise ValueError(f'a shape has no negative dimensions: {dims}')
    return dims


def options_of(name: str, fields: dict[str, Any], dimensions: Optional[int] = None) -> Any:
    """A structure of options with these fields; zero in the others is their default. Where a field
    has a number for each of so many dimensions, one stands for all of them."""
    options = struct(name)()
    kinds = {field: kind for kind, field, _ in STRUCTS[name]}
    for field, value in fields.items():
        if isinstance(getattr(options, field), ctypes.Array):
            target = getattr(options, field)
            count = len(target) if dimensions is None else max(0, min(dimensions, len(target)))
            values = [value] * count if hasattr(value, '__index__') else list(value)
            if len(values) != count:
                raise ValueError(f'{field} has {count} numbers, not {len(values)}')
            setattr(options, field, tuple(values))
        else:
            setattr(options, field, word(kinds[field], value) if isinstance(value, str) else value)
    options.size = ctypes.sizeof(options)
    return options


def _plain_arguments(kind: str, value: Any, dimensions: Optional[int]) -> list[Any]:
    """What C takes for a parameter that is no tensor."""
    if kind == 'axes':
        return list(axes_of(value))
    if kind == 'shape':
        dims = dims_of(value)
        return [len(dims), sizes(dims)]
    if kind == 'type':
        return [as_dtype(value).value]
    if kind == 'word':
        return [word(*value)]
    if kind == 'options':
        return [ctypes.byref(options_of(value[0], value[1], dimensions))]
    return [int(value) if isinstance(value, bool) else value]


def record(name: str, items: Sequence[tuple[str, Any]],
           function: Optional[Callable[..., Any]] = None) -> _tensor.Tensor:
    """Record a function of the library. Each item is a kind of parameter and its value; numbers
    among tensors get the type of the first tensor, or f32."""
    tensors = [v for kind, v in items if kind == 'tensor']
    for kind, value in items:
        if kind == 'tensors':
            tensors.extend(value)
    given = next((v for kind, v in items if kind == 'context'), None)
    context = given or find_context(tensors) or default_context()
    if any(kind == 'axes' and is_none_at_all(value) for kind, value in items):
        (_, x), *others = items
        return _each_alone(_tensor.as_tensor(x, context), lambda x, axis: record(
            name, [('tensor', x)] + [(kind, axis if kind == 'axes' else value)
                                     for kind, value in others], function))
    first = next((_tensor.as_tensor(t, context) for t in tensors
                  if t is not None and not isinstance(t, (bool, int, float))), None)
    dtype = first.dtype.computed if first is not None else _F32
    # Windows lie over all dimensions but rows and channels.
    dimensions = first.ndim - 2 if first is not None else None

    def one(value: Any) -> Any:
        value = None if value is None else take(value, context)
        return Scalar(value, _F32 if isinstance(value, float) else dtype) \
            if isinstance(value, (bool, int, float)) else value

    # Arguments of C, with None where the next operand's handle belongs, or a count of several.
    operands: list[Any] = []
    plan: list[tuple[str, Any]] = []
    for kind, value in items:
        if kind == 'tensor':
            operands.append(one(value))
            plan.append(('tensor', len(operands) - 1))
        elif kind == 'tensors':
            values = [one(v) for v in value]
            plan.append(('tensors', (len(operands), len(values))))
            operands.extend(values)
        elif kind != 'context':
            plan.extend(('plain', argument) for argument in _plain_arguments(kind, value, dimensions))
    call = function or getattr(lib, 'kiln_' + name)

    def enter(batch: Any, handles: list[Any]) -> Any:
        arguments = []
        for kind, value in plan:
            if kind == 'plain':
                arguments.append(value)
            elif kind == 'tensor':
                arguments.append(handles[value])
            else:
                start, count = value
                arguments += [count, (Handle * count)(*handles[start:start + count])]
        return call(batch, *arguments)
    return _tensor.make(context, Expression(operands, enter))
