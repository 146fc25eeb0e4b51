# SPDX-License-Identifier: Apache-2.0
"""Operators and methods, of tensors and of buffers alike."""
from __future__ import annotations

import html
import math
from types import ModuleType
from typing import TYPE_CHECKING, Any, Iterator, Optional

from . import _dlpack

if TYPE_CHECKING:
    import numpy as np

    from ._context import Context
    from ._tensor import Axis, Shape, Tensor
    from ._types import DType, Type


def _refuse_out(out: Any) -> None:
    """A result is a tensor of its own, and written nowhere."""
    if out is not None:
        raise TypeError('out: a result of kiln is a tensor of its own')


class Operators:
    """What tensors and buffers can do."""

    __slots__ = ()
    shape: tuple[int, ...]
    dtype: DType

    def _repr_html_(self) -> str:
        """What notebooks show: the text of repr()."""
        return f'<pre>{html.escape(repr(self))}</pre>'

    def _tensor(self) -> Tensor:
        raise NotImplementedError

    def _host(self) -> np.ndarray:
        """Its elements as they are stored."""
        raise NotImplementedError

    # ---- numpy, and the array standard ----

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return _ufuncs.apply(ufunc, method, inputs, options)

    def __array_namespace__(self, *, api_version: Optional[str] = None) -> ModuleType:
        """The module kiln, which follows the Python array API standard."""
        import kiln
        if api_version not in (None, '2021.12', '2022.12', '2023.12', '2024.12'):
            raise ValueError(f'kiln follows the array standard of 2024.12, not of {api_version}')
        return kiln

    @property
    def device(self) -> Context:
        """The context that computes it, as the array standard calls it."""
        return self._tensor()._context

    def to_device(self, device: Context, *, stream: Any = None) -> Tensor:
        """It in another context: through the host's memory, where it is not in this one."""
        from ._tensor import tensor
        x = self._tensor()
        return x if device is x._context else tensor(x.numpy(), x.dtype, device)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
                   copy: Optional[bool] = None) -> Any:
        """A copy of the elements in the host's memory, which is the reader's. With False for `copy` a
        tensor's own memory, only to be read; BufferError where a reader does not know of such."""
        return _dlpack.capsule_of(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the host's memory

    # ---- shape ----

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return self.size // self.dtype.block * self.dtype.itemsize

    @property
    def T(self) -> Tensor:
        """Its dimensions in the opposite order."""
        return _m.transpose(self)

    @property
    def mT(self) -> Tensor:
        """Its last two dimensions swapped."""
        return _m.swapaxes(self, -1, -2)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError('a tensor without dimensions has no length')
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        from ._tensor import iterate
        return iterate(self._tensor())

    def __getitem__(self, key: Any) -> Tensor:
        return _i.index(self, key)

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements under another shape; one dimension may be -1: what is left."""
        return _m.reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Tensor:
        """Dimensions in another order; without axes in the opposite one."""
        return _m.transpose(self, axes[0] if len(axes) == 1 else axes or None)

    def swapaxes(self, first: int, second: int) -> Tensor:
        """Two dimensions swapped."""
        return _m.swapaxes(self, first, second)

    def flatten(self) -> Tensor:
        """All elements along one dimension."""
        return _m.reshape(self, (-1,))

    ravel = flatten

    def squeeze(self, axis: Axis = None) -> Tensor:
        """Without its dimensions of 1, or these of them."""
        return _m.squeeze(self, axis)

    def broadcast_to(self, shape: Shape) -> Tensor:
        """Repeated to a larger shape by numpy's rule."""
        return _m.broadcast_to(self, shape)

    def astype(self, dtype: Type, copy: bool = True) -> Tensor:
        """Its elements as another type: kiln.cast()."""
        return _m.astype(self, dtype, copy=copy)

    # ---- reductions ----
    # `out` is what numpy's functions hand over, as np.sum(x) does: nothing.

    def sum(self, axis: Axis = None, keepdims: bool = False, dtype: Optional[Type] = None,
            out: None = None) -> Tensor:
        """The sum over these dimensions; None: all."""
        _refuse_out(out)
        return _s.sum(self, axis, keepdims, dtype)

    def prod(self, axis: Axis = None, keepdims: bool = False, dtype: Optional[Type] = None,
             out: None = None) -> Tensor:
        """The product over these dimensions; None: all."""
        _refuse_out(out)
        return _s.prod(self, axis, keepdims, dtype)

    def mean(self, axis: Axis = None, keepdims: bool = False, dtype: Optional[Type] = None,
             out: None = None) -> Tensor:
        """The mean over these dimensions; None: all."""
        _refuse_out(out)
        made = _o.mean(self, axis, keepdims)
        return made if dtype is None else made.astype(dtype)

    def max(self, axis: Axis = None, keepdims: bool = False, out: None = None) -> Tensor:
        """The largest element over these dimensions; None: all."""
        _refuse_out(out)
        return _o.max(self, axis, keepdims)

    def min(self, axis: Axis = None, keepdims: bool = False, out: None = None) -> Tensor:
        """The smallest element over these dimensions; None: all."""
        _refuse_out(out)
        return _o.min(self, axis, keepdims)

    def argmax(self, axis: Axis = None, keepdims: bool = False, out: None = None) -> Tensor:
        """Where the largest element is, over these dimensions; None: all."""
        _refuse_out(out)
        return _o.argmax(self, axis, keepdims)

    def argmin(self, axis: Axis = None, keepdims: bool = False, out: None = None) -> Tensor:
        """Where the smallest element is, over these dimensions; None: all."""
        _refuse_out(out)
        return _o.argmin(self, axis, keepdims)

    def var(self, axis: Axis = None, ddof: float = 0, keepdims: bool = False,
            dtype: Optional[Type] = None, out: None = None) -> Tensor:
        """The variance over these dimensions; None: all."""
        _refuse_out(out)
        made = _s.var(self, axis, ddof, keepdims)
        return made if dtype is None else made.astype(dtype)

    def std(self, axis: Axis = None, ddof: float = 0, keepdims: bool = False,
            dtype: Optional[Type] = None, out: None = None) -> Tensor:
        """The standard deviation over these dimensions; None: all. Its gradient is 0 where it is."""
        _refuse_out(out)
        made = _s.std(self, axis, ddof, keepdims)
        return made if dtype is None else made.astype(dtype)

    def any(self, axis: Axis = None, keepdims: bool = False, out: None = None) -> Tensor:
        """Whether an element is not 0, over these dimensions; None: all. Of nothing: no."""
        _refuse_out(out)
        return _s.any(self, axis, keepdims)

    def all(self, axis: Axis = None, keepdims: bool = False, out: None = None) -> Tensor:
        """Whether no element is 0, over these dimensions; None: all. Of nothing: yes."""
        _refuse_out(out)
        return _s.all(self, axis, keepdims)

    def cumsum(self, axis: int) -> Tensor:
        """Running sums along a dimension."""
        return _o.cumsum(self, axis)

    def clip(self, min: Optional[Any] = None, max: Optional[Any] = None, out: None = None) -> Tensor:
        """At least `min` and at most `max`; None: no such bound."""
        _refuse_out(out)
        return _a.clip(self, min, max)

    def dot(self, other: Any) -> Tensor:
        """As @."""
        return _l.matmul(self, other)

    # ---- operators ----

    def __add__(self, other: Any) -> Tensor:
        return _o.add(self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _o.add(other, self)

    def __sub__(self, other: Any) -> Tensor:
        return _o.sub(self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _o.sub(other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _o.mul(self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _o.mul(other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return _a.true_divide(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _a.true_divide(other, self)

    def __floordiv__(self, other: Any) -> Tensor:
        return _a.floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return _a.floor_divide(other, self)

    def __mod__(self, other: Any) -> Tensor:
        return _o.mod(self, other)

    def __rmod__(self, other: Any) -> Tensor:
        return _o.mod(other, self)

    def __pow__(self, other: Any) -> Tensor:
        return _a.power(self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return _a.power(other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return _l.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return _l.matmul(other, self)

    def __neg__(self) -> Tensor:
        return _o.neg(self)

    def __pos__(self) -> Tensor:
        return _a.positive(self)

    def __abs__(self) -> Tensor:
        return _o.abs(self)

    def __invert__(self) -> Tensor:
        return _a.invert(self)

    def __and__(self, other: Any) -> Tensor:
        return _a.bits('and', self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Tensor:
        return _a.bits('or', self, other)

    __ror__ = __or__

    def __xor__(self, other: Any) -> Tensor:
        return _a.bits('xor', self, other)

    __rxor__ = __xor__

    def __lshift__(self, other: Any) -> Tensor:
        return _o.shift_left(self, other)

    def __rlshift__(self, other: Any) -> Tensor:
        return _o.shift_left(other, self)

    def __rshift__(self, other: Any) -> Tensor:
        return _o.shift_right(self, other)

    def __rrshift__(self, other: Any) -> Tensor:
        return _o.shift_right(other, self)

    def __lt__(self, other: Any) -> Tensor:
        return _o.less(self, other)

    def __le__(self, other: Any) -> Tensor:
        return _o.less_equal(self, other)

    def __gt__(self, other: Any) -> Tensor:
        return _o.greater(self, other)

    def __ge__(self, other: Any) -> Tensor:
        return _o.greater_equal(self, other)

    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]
        return _o.equal(self, other)

    def __ne__(self, other: Any) -> Tensor:  # type: ignore[override]
        return _o.not_equal(self, other)

    # By identity: == answers a tensor.
    __hash__ = object.__hash__

    def __round__(self, digits: int = 0) -> Tensor:
        if not digits:
            return _o.round(self)
        return _o.round(self * 10.0 ** digits) / 10.0 ** digits

    def __floor__(self) -> Tensor:
        return _o.floor(self)

    def __ceil__(self) -> Tensor:
        return _o.ceil(self)

    def __trunc__(self) -> Tensor:
        return _o.trunc(self)


# Behind the class: these modules need it.
from . import _operations as _o  # noqa: E402
from . import _arithmetic as _a  # noqa: E402
from . import _indexing as _i  # noqa: E402
from . import _manipulation as _m  # noqa: E402
from . import _statistics as _s  # noqa: E402
from . import _ufuncs  # noqa: E402
from . import linalg as _l  # noqa: E402
