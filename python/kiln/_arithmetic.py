# SPDX-License-Identifier: Apache-2.0
"""Elementwise functions and operators in Python's and numpy's manner, upon the rows of the table."""
from __future__ import annotations

import functools
from typing import Any, Optional

import numpy as np

from . import _operations as _o
from . import _tensor
from ._context import default_context
from ._manipulation import astype, broadcast_arrays
from ._record import find_context, operand, operands, take
from ._types import BY_NAME

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
    context = find_context([a, b]) or default_context()
    a, b = take(a, context), take(b, context)
    rest, is_number = _o.fmod(a, b), isinstance(b, (bool, int, float))
    negative = b < 0 if is_number else _o.less(b, 0)
    below = _o.logical_and(_o.not_equal(rest, 0), _o.not_equal(_o.less(rest, 0), negative))
    if _whole(a, b):
        quotient = _o.div(a, b)
        return quotient if quotient.dtype == BY_NAME['u8'] else \
            _o.sub(quotient, astype(below, quotient.dtype))
    # Not a / b, which may be rounded up to a whole number that a does not reach.
    quotient = _o.sub(_o.round(_o.div(_o.sub(a, rest), b)), below)
    if is_number and b:
        return quotient
    return _o.where(_o.equal(b, 0), _o.floor(_o.div(a, b)), quotient)

def truth(x: _tensor.Array, name: str, axis: _tensor.Axis, keepdims: bool) -> _tensor.Tensor:
    """Whether any element ("max") or each ("min") is not 0."""
    mask = _o.not_equal(x, 0)
    if mask.size:
        reduced: _tensor.Tensor = getattr(_o, name)(mask, axis, keepdims)
        return reduced.astype('bool')
    nothing = _o.sum(mask, axis, keepdims)  # 0, where a result has an element
    return _o.equal(nothing, 0) if name == 'min' else _o.not_equal(nothing, 0)

def power(a: _tensor.Array, b: _tensor.Array) -> _tensor.Tensor:
    """a ** b; small whole exponents are products."""
    if isinstance(b, (int, float)) and not isinstance(b, bool):
        if isinstance(b, float) and _whole(a):
            a = astype(a, 'f32')
        if b == 0.5:
            return _o.sqrt(a)
        if b == -1:
            return _o.reciprocal(a)
        if b == 2:
            return _o.square(a)
        if isinstance(b, int) and 1 <= b <= 16:
            return _product(_tensor.another(operand(a)), b)
    return _o.pow(a, b)

def _product(a: _tensor.Tensor, exponent: int) -> _tensor.Tensor:
    """a to a whole power from 1 on, by squares."""
    result = None
    while exponent > 1:
        if exponent % 2:
            result = a if result is None else _o.mul(result, a)
        exponent //= 2
        a = _o.square(a)
    return a if result is None else _o.mul(result, a)

def bits(what: str, a: Any, b: Any) -> _tensor.Tensor:
    """& | ^: of masks the logical ones, of integers bit by bit."""
    if not _whole(a, b):
        raise TypeError(f'bit by bit {what} of floating types')
    kind = 'logical_' if all(_is_truth(x) for x in (a, b)) else 'bit_'
    made: _tensor.Tensor = getattr(_o, kind + what)(a, b)
    return made

def _is_truth(x: Any) -> bool:
    if isinstance(x, _tensor.Operators):
        return x.dtype == BY_NAME['bool']
    return np.asarray(x).dtype == np.bool_

def invert(a: Any) -> _tensor.Tensor:
    """~a: of masks the logical one, of integers bit by bit."""
    if not _whole(a):
        raise TypeError('bit by bit not of floating types')
    return _o.logical_not(a) if _is_truth(a) else _o.bit_not(a)


# ---- names of the array standard ----

def subtract(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """x1 - x2."""
    return _o.sub(x1, x2)


def multiply(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """x1 * x2."""
    return _o.mul(x1, x2)


def divide(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """x1 / x2: kiln.true_divide(). (kiln.div() divides integers towards zero.)"""
    return true_divide(x1, x2)


def remainder(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """x1 % x2 as Python has it: kiln.mod()."""
    return _o.mod(x1, x2)


def negative(x: _tensor.Array) -> _tensor.Tensor:
    """-x."""
    return _o.neg(x)


def positive(x: _tensor.Array) -> _tensor.Tensor:
    """x itself, as a tensor of its own."""
    return _tensor.another(operand(x))


def clip(x: _tensor.Array, min: Optional[_tensor.Array] = None,
         max: Optional[_tensor.Array] = None) -> _tensor.Tensor:
    """x, but at least `min` and at most `max`, of which each may be None; NaN where one is."""
    made = operand(x)
    if min is not None:
        made = _o.maximum(made, min)
    return positive(made) if max is None else _o.minimum(made, max)


def bitwise_and(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """The bits that both have; of masks where both are true."""
    return bits('and', x1, x2)


def bitwise_or(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """The bits that one has, or both; of masks where one is true."""
    return bits('or', x1, x2)


def bitwise_xor(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """The bits that one has and the other has not; of masks where they differ."""
    return bits('xor', x1, x2)


def bitwise_invert(x: _tensor.Array) -> _tensor.Tensor:
    """The bits that x has not; of a mask where it is false."""
    return invert(x)


def bitwise_left_shift(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """The bits of x1, x2 places higher: kiln.shift_left()."""
    return _o.shift_left(x1, x2)


def bitwise_right_shift(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """The bits of x1, x2 places lower, with x1's sign above: kiln.shift_right()."""
    return _o.shift_right(x1, x2)


# ---- floats upon other rows ----

def _floats(*given: _tensor.Array) -> list[Any]:
    return [astype(x, x.dtype.computed if x.dtype.is_floating else 'f32', copy=False)
            for x in operands(*given)]


def signbit(x: _tensor.Array) -> _tensor.Tensor:
    """A mask: whether x is below 0 or -0. That of a NaN is not seen: false."""
    x, = _floats(x)
    return _o.less(_o.where(_o.equal(x, 0), _o.reciprocal(x), x), 0)


def copysign(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """x1 with x2's sign, that of 0, too."""
    size, by = _floats(x1, x2)
    size = _o.abs(size)
    return _o.where(signbit(by), _o.neg(size), size)


def hypot(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """sqrt(x1^2 + x2^2), which overflows only where the result does; infinite where either is."""
    a, b = (_o.abs(x) for x in _floats(x1, x2))
    larger, smaller = _o.maximum(a, b), _o.minimum(a, b)
    ratio = _o.div(smaller, _o.where(_o.equal(larger, 0), 1.0, larger))
    made = _o.mul(larger, _o.sqrt(_o.add(1.0, _o.square(ratio))))
    return _o.where(_o.logical_or(_o.isinf(a), _o.isinf(b)), np.inf, made)


@functools.lru_cache(None)
def _next() -> Any:
    """OpenCL C has it: no row of the table does, which would need the bits of a float."""
    from ._kernel import kernel
    return kernel('const size_t i = get_global_id(0);\nz[i] = nextafter(x[i], y[i]);', 'x y', 'z',
                  name='nextafter', host=np.nextafter,
                  gradient=lambda inputs, outputs, flowed: (flowed[0], None))


def nextafter(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """The f32 next to x1 in the direction of x2, which is x1 where both are equal; NaN where one is.
    The gradient is x1's. On a device without denormal numbers those are 0."""
    made: _tensor.Tensor = _next()(*broadcast_arrays(*_floats(x1, x2)))
    return made


def logaddexp(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """log(exp(x1) + exp(x2)), without overflow."""
    a, b = _floats(x1, x2)
    further = _o.log1p(_o.exp(_o.neg(_o.abs(_o.sub(a, b)))))
    return _o.add(_o.maximum(a, b), _o.where(_o.equal(a, b), float(np.log(2)), further))


def log10(x: _tensor.Array) -> _tensor.Tensor:
    """The logarithm of x to base 10; -inf for 0, NaN below."""
    return _o.mul(_o.log2(x), float(np.log10(2)))


# ---- complex numbers, of which there are none ----

def real(x: _tensor.Array) -> _tensor.Tensor:
    """x: kiln has no complex numbers."""
    return positive(x)


def conj(x: _tensor.Array) -> _tensor.Tensor:
    """x: kiln has no complex numbers."""
    return positive(x)


def imag(x: _tensor.Array) -> _tensor.Tensor:
    """Zeros of x's shape and type: kiln has no complex numbers."""
    x = operand(x)
    return _o.fill(x.dtype.apart, x.shape, 0.0, context=x._context)


__all__ = [
    'bitwise_and', 'bitwise_invert', 'bitwise_left_shift', 'bitwise_or', 'bitwise_right_shift',
    'bitwise_xor', 'clip', 'conj', 'copysign', 'divide', 'floor_divide', 'hypot', 'imag', 'log10',
    'logaddexp', 'multiply', 'negative', 'nextafter', 'positive', 'power', 'real', 'remainder', 'signbit', 'subtract',
    'true_divide',
]
