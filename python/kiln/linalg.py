# SPDX-License-Identifier: Apache-2.0
"""Products, norms and parts of matrices, in the last two dimensions."""
from __future__ import annotations

import math
from typing import Any, Optional, Sequence, Union

from . import _operations as _o
from . import _tensor
from ._functions import einsum
from ._manipulation import astype, broadcast_arrays, matrix_transpose, reshape, roll, transpose
from ._record import axes_in, axis_in, operand, operands
from ._statistics import sum as _sum
from ._types import BY_NAME, Type, promoted

# ---- products ----

def _met(x1: _tensor.Array, x2: _tensor.Array) -> tuple[list[Any], Any]:
    """Two tensors in the type in which they meet, and that."""
    given = operands(x1, x2)
    kind = promoted([x.dtype for x in given])
    # Narrow floats are read as they lie.
    return [x if x.dtype.computed is kind else astype(x, kind) for x in given], kind


def matmul(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """Matrix product of [..., m, k] and [..., k, n]; leading dimensions broadcast, and a vector is a row
    (left) or a column (right) whose dimension of 1 is dropped. Floats accumulate in f32; integers are
    exact and wrap around in the type in which both meet."""
    (a, b), kind = _met(x1, x2)
    if kind.name == 'f32':
        return _o.matmul(a, b)
    if not a.ndim or not b.ndim:
        raise ValueError('matmul: operands have one dimension or more')
    left = '...ij' if a.ndim > 1 else 'j'
    right = '...jk' if b.ndim > 1 else 'j'
    made = '...' * (max(a.ndim, b.ndim) > 2) + 'i' * (a.ndim > 1) + 'k' * (b.ndim > 1)
    if max(a.ndim, b.ndim) < 3:
        left, right = left.strip('.'), right.strip('.')
    return astype(einsum(f'{left},{right}->{made}', a, b), kind)


def vecdot(x1: _tensor.Array, x2: _tensor.Array, *, axis: int = -1) -> _tensor.Tensor:
    """Inner products along an axis, over which the others broadcast."""
    (a, b), kind = _met(x1, x2)
    if not -min(a.ndim, b.ndim) <= axis < 0 and a.ndim != b.ndim:
        raise ValueError(f'vecdot: axis {axis} of tensors of {a.ndim} and {b.ndim} dimensions')
    if a.shape[axis] != b.shape[axis]:
        raise ValueError(f'vecdot: {a.shape[axis]} and {b.shape[axis]} elements along the axis')
    a, b = broadcast_arrays(a, b)
    return astype(_o.sum(a * b, axis, False), kind, copy=False)


def tensordot(x1: _tensor.Array, x2: _tensor.Array, *,
              axes: Union[int, tuple[Sequence[int], Sequence[int]]] = 2) -> _tensor.Tensor:
    """Sums of products over some dimensions of both: so many, the last of x1 and the first of x2, or a
    list of each. The result has the others of x1, then those of x2."""
    a, b = operands(x1, x2)
    if isinstance(axes, int):
        gone1, gone2 = list(range(a.ndim - axes, a.ndim)), list(range(axes))
    else:
        gone1, gone2 = axes_in(axes[0], a.ndim), axes_in(axes[1], b.ndim)
    if [a.shape[i] for i in gone1] != [b.shape[i] for i in gone2]:
        raise ValueError(f'tensordot: dimensions {gone1} of {list(a.shape)} and {gone2} of '
                         f'{list(b.shape)} do not agree')
    kept1 = [i for i in range(a.ndim) if i not in gone1]
    kept2 = [i for i in range(b.ndim) if i not in gone2]
    count = math.prod(a.shape[i] for i in gone1)
    left = [a.shape[i] for i in kept1]
    right = [b.shape[i] for i in kept2]
    rows = reshape(transpose(a, kept1 + gone1), (math.prod(left), count))
    columns = reshape(transpose(b, gone2 + kept2), (count, math.prod(right)))
    return reshape(matmul(rows, columns), left + right)


def outer(x1: _tensor.Array, x2: _tensor.Array) -> _tensor.Tensor:
    """The products of all pairs of two vectors' elements."""
    a, b = operands(x1, x2)
    return reshape(a, (a.size, 1)) * reshape(b, (1, b.size))


def cross(x1: _tensor.Array, x2: _tensor.Array, *, axis: int = -1) -> _tensor.Tensor:
    """Cross products of vectors of three elements along an axis."""
    a, b = operands(x1, x2)
    if a.shape[axis_in(axis, a.ndim)] != 3 or b.shape[axis_in(axis, b.ndim)] != 3:
        raise ValueError('cross: vectors have three elements')
    def turned(x: _tensor.Tensor, by: int) -> _tensor.Tensor:
        return roll(x, by, axis=axis)
    return turned(a, -1) * turned(b, -2) - turned(a, -2) * turned(b, -1)


# ---- parts and norms ----

def diagonal(x: _tensor.Array, *, offset: int = 0) -> _tensor.Tensor:
    """A diagonal of each matrix, along the last dimension: 0 is the main one, numbers above 0 those above
    it."""
    x = operand(x)
    rows, columns = x.shape[-2:]
    row, column = max(-offset, 0), max(offset, 0)
    count = max(min(rows - row, columns - column), 0)
    first = row * columns + column
    flat = reshape(x, (*x.shape[:-2], rows * columns))
    return flat[..., first:first + count * (columns + 1):columns + 1] if count else flat[..., :0]


def trace(x: _tensor.Array, *, offset: int = 0, dtype: Optional[Type] = None) -> _tensor.Tensor:
    """The sum of a diagonal of each matrix; of integers i64 unless a type is given."""
    return _sum(diagonal(x, offset=offset), -1, dtype=dtype)


def vector_norm(x: _tensor.Array, *, axis: _tensor.Axis = None, keepdims: bool = False,
                ord: float = 2) -> _tensor.Tensor:
    """sum(|x|^ord)^(1/ord) over these dimensions; None: all. inf: the largest |x|, -inf: the smallest,
    0: how many are not 0."""
    x = astype(x, 'f32', copy=False)
    if ord == 2:
        return _o.norm(x, axis, keepdims)
    if ord == 0:
        return astype(_o.sum(_o.not_equal(x, 0), axis, keepdims), 'f32')
    size = _o.abs(x)
    if math.isinf(ord):
        return (_o.max if ord > 0 else _o.min)(size, axis, keepdims)
    if ord == 1:
        return _o.sum(size, axis, keepdims)
    return _o.pow(_o.sum(_o.pow(size, float(ord)), axis, keepdims), 1 / ord)


def matrix_norm(x: _tensor.Array, *, keepdims: bool = False, ord: Any = 'fro') -> _tensor.Tensor:
    """Norms of matrices: "fro" sqrt(sum(x^2)), 1 and inf the largest sum of |x| of a column or a row,
    -1 and -inf the smallest."""
    x = astype(x, 'f32', copy=False)
    if ord in ('fro', None):
        return _o.norm(x, (-2, -1), keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ValueError(f"matrix_norm: ord is 'fro', 1, -1, inf or -inf, not {ord!r}: others need "
                         'singular values')
    sums = _o.sum(_o.abs(x), -2 if abs(ord) == 1 else -1, True)
    made = (_o.max if ord > 0 else _o.min)(sums, (-2, -1), True)
    return made if keepdims else reshape(made, x.shape[:-2])


def matrix_power(x: _tensor.Array, n: int) -> _tensor.Tensor:
    """Square matrices times themselves, n times; 0 gives ones on the diagonal."""
    x = operand(x)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2] or n < 0:
        raise ValueError('matrix_power: square matrices, and n from 0 on: others need an inverse')
    if n == 0:
        from ._creation import eye
        return astype(eye(x.shape[-1], device=x._context), x.dtype).broadcast_to(x.shape)
    made, x = None, _tensor.another(x)
    while n:
        if n % 2:
            made = x if made is None else matmul(made, x)
        n //= 2
        x = matmul(x, x) if n else x
    return made  # type: ignore[return-value]


__all__ = [
    'cross', 'diagonal', 'matmul', 'matrix_norm', 'matrix_power', 'matrix_transpose', 'outer',
    'tensordot', 'trace', 'vecdot', 'vector_norm',
]
