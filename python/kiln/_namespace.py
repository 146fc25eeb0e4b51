# SPDX-License-Identifier: Apache-2.0
"""What the Python array API standard (2024.12) asks of a module beside functions of tensors: its types
and what is known of them, constants, devices."""
from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, Optional, Sequence, Union

import numpy as np

from . import _tensor
from ._context import Context, default_context
from ._library import MAX_RANK
from ._types import BY_NAME, DType, Type, as_dtype, promoted, result_of, type_of_number

e, inf, nan, newaxis, pi = math.e, math.inf, math.nan, None, math.pi
# The standard's names of the types that kiln has.
TYPES = {'bool': 'bool', 'int8': 'i8', 'int32': 'i32', 'int64': 'i64', 'uint8': 'u8', 'float32': 'f32'}
KINDS = {
    'bool': ('bool',), 'signed integer': ('int8', 'int32', 'int64'), 'unsigned integer': ('uint8',),
    'integral': ('int8', 'int32', 'int64', 'uint8'), 'real floating': ('float32',),
    'complex floating': (), 'numeric': ('int8', 'int32', 'int64', 'uint8', 'float32'),
}


def _type_of(value: Any) -> DType:
    """The type of a tensor, or the type itself."""
    return value.dtype if isinstance(value, _tensor.Operators) else as_dtype(value)


def isdtype(dtype: Type, kind: Any) -> bool:
    """Whether a type is another one, or of a kind: "bool", "signed integer", "unsigned integer",
    "integral", "real floating" (f16 and bf16, too), "complex floating", "numeric"; of a tuple one of
    these."""
    given = as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(given, k) for k in kind)
    if not isinstance(kind, str):
        return given == as_dtype(kind)
    if kind not in KINDS:
        raise ValueError(f'{kind!r} is no kind of types: these are ' + ', '.join(map(repr, KINDS)))
    if kind in ('real floating', 'numeric') and given.is_floating and given.block == 1:
        return True
    return any(given == BY_NAME[TYPES[name]] for name in KINDS[kind])


def can_cast(from_: Any, to: Type) -> bool:
    """Whether a type, or a tensor's, becomes another one without a loss, as numpy has it."""
    given, wanted = _type_of(from_), as_dtype(to)
    if given == wanted:
        return True
    if 'bf16' in (given.name, wanted.name) or given.block > 1 or wanted.block > 1:
        return (given.name == 'bf16' or given.block > 1) and wanted.name == 'f32'
    return bool(np.can_cast(given.raw, wanted.raw))


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The type in which operands of these types meet; numbers of Python's go with the tensors and types
    among them, but a float makes it f32."""
    numbers = [v for v in arrays_and_dtypes if isinstance(v, (bool, int, float))]
    types = [_type_of(v) for v in arrays_and_dtypes if not isinstance(v, (bool, int, float))]
    if not arrays_and_dtypes:
        raise ValueError('result_type: there is neither a tensor nor a type')
    if not types:
        return promoted([type_of_number(v) for v in numbers])
    met = result_of(types)
    for number in numbers:
        kind = type_of_number(number)
        if kind.is_floating and not met.is_floating or met.name == 'bool' and kind.name != 'bool':
            met = kind
    return met


def _bits(dtype: DType) -> tuple[int, int]:
    """Of a floating type: bits of the fraction, and of the exponent."""
    return {'f32': (23, 8), 'f16': (10, 5), 'bf16': (7, 8)}[dtype.name]


def finfo(type: Any) -> SimpleNamespace:
    """What a floating type, or a tensor's, can hold: bits, eps, max, min, smallest_normal, dtype."""
    dtype = _type_of(type)
    if not dtype.is_floating or dtype.block > 1:
        raise TypeError(f'finfo: {dtype.name} is no floating type')
    fraction, exponent = _bits(dtype)
    top = 2 ** (exponent - 1) - 1
    largest = (2 - 2.0 ** -fraction) * 2.0 ** top
    return SimpleNamespace(bits=8 * dtype.itemsize, eps=2.0 ** -fraction, max=largest, min=-largest,
                           smallest_normal=2.0 ** (1 - top), dtype=dtype)


def iinfo(type: Any) -> SimpleNamespace:
    """What an integer type, or a tensor's, can hold: bits, max, min, dtype."""
    dtype = _type_of(type)
    if dtype.is_floating or dtype.name == 'bool':
        raise TypeError(f'iinfo: {dtype.name} is no integer type')
    known = np.iinfo(dtype.raw)
    return SimpleNamespace(bits=known.bits, max=int(known.max), min=int(known.min), dtype=dtype)


class Info:
    """What kiln.__array_namespace_info__() gives. A device is a kiln.Context."""

    def capabilities(self) -> dict[Any, Any]:
        """What of the standard depends on the library."""
        return {'boolean indexing': True, 'data-dependent shapes': True, 'max dimensions': MAX_RANK}

    def default_device(self) -> Context:
        """The context of everything that names none."""
        return default_context()

    def devices(self) -> list[Context]:
        """The default context; others are made by kiln.Context()."""
        return [default_context()]

    def default_dtypes(self, *, device: Optional[Context] = None) -> dict[str, DType]:
        """The types of what says nothing else."""
        return {'real floating': BY_NAME['f32'], 'integral': BY_NAME['i64'], 'indexing': BY_NAME['i32']}

    def dtypes(self, *, device: Optional[Context] = None,
               kind: Union[None, str, Sequence[str]] = None) -> dict[str, DType]:
        """The standard's types that there are, by their names there; of some kinds alone."""
        kinds = ['bool', 'numeric'] if kind is None else [kind] if isinstance(kind, str) else list(kind)
        return {name: BY_NAME[TYPES[name]] for k in kinds for name in KINDS[k]}


def __array_namespace_info__() -> Info:
    """What this module has of the array standard: devices and types."""
    return Info()


__array_api_version__ = '2024.12'
__all__ = ['can_cast', 'e', 'finfo', 'iinfo', 'inf', 'isdtype', 'nan', 'newaxis', 'pi', 'result_type']
