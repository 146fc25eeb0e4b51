# SPDX-License-Identifier: Apache-2.0
"""numpy's universal functions of tensors: np.sin(x) records kiln.sin(x)."""
from __future__ import annotations

from typing import Any

import numpy as np

from . import _arithmetic, _operations, linalg

_NAMES = {
    'absolute': 'abs', 'arccos': 'acos', 'arccosh': 'acosh', 'arcsin': 'asin', 'arcsinh': 'asinh',
    'arctan': 'atan', 'arctan2': 'atan2', 'arctanh': 'atanh', 'fabs': 'abs', 'rint': 'round',
    'left_shift': 'bitwise_left_shift', 'right_shift': 'bitwise_right_shift', 'invert': 'bitwise_invert',
    'bitwise_not': 'bitwise_invert', 'mod': 'remainder', 'acos': 'acos', 'conjugate': 'conj',
    'power': 'power', 'pow': 'power',
}
# Those whose names mean the same.
_SAME = """acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_or
    bitwise_right_shift bitwise_xor ceil copysign cos cosh divide equal exp exp2 expm1 floor floor_divide
    fmod greater greater_equal hypot isfinite isinf isnan less less_equal log log10 log1p log2
    logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply negative nextafter
    not_equal positive reciprocal remainder sign signbit sin sinh sqrt square subtract tan tanh
    trunc true_divide""".split()


def _function(name: str) -> Any:
    """kiln's function of this name of numpy's, if it has one."""
    if name in ('matmul', 'vecdot'):
        return getattr(linalg, name)
    name = _NAMES.get(name, name if name in _SAME else '')
    return getattr(_arithmetic, name, None) if name in _arithmetic.__all__ else \
        getattr(_operations, name, None)


def _as_array(x: Any) -> Any:
    from ._tensor import Operators
    return np.asarray(x) if isinstance(x, Operators) else x


def apply(ufunc: Any, method: str, inputs: tuple[Any, ...], options: dict[Any, Any]) -> Any:
    """What numpy calls for a universal function of tensors. Without a function of kiln's, or with
    options (`out`, `where`, reduce()), it is numpy's, of the evaluated tensors."""
    function = _function(ufunc.__name__)
    if function is not None and method == '__call__' and not options:
        return function(*inputs)
    from ._tensor import Operators
    if any(isinstance(x, Operators) for x in options.get('out', ())):
        return NotImplemented
    return getattr(ufunc, method)(*map(_as_array, inputs),
                                  **{name: _as_array(value) for name, value in options.items()})
