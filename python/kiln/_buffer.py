# SPDX-License-Identifier: Apache-2.0
"""Device memory that outlives batches: weights, tables, state."""
from __future__ import annotations

import contextlib
import ctypes
import operator
from typing import Any, Callable, Iterator, Optional

import numpy as np

from . import _tape
from ._context import Context, default_context
from ._library import MAX_RANK, Error, Owned, check, lib, sizes
from ._operators import Operators
from ._record import dims_of
from ._tensor import Array, Shape, Tensor, another, as_array, as_tensor, of_array, tensor
from ._types import BY_VALUE, DType, Type, as_dtype, from_raw


def _in_place(operation: Callable[[Any, Any], Tensor]) -> Callable[[Buffer, Array], Buffer]:
    def update(self: Buffer, other: Array) -> Buffer:
        return self._updated(operation, other)
    return update


class Buffer(Operators):
    """Memory of the device with a type and a shape, which can be written: weights, say.

    `kiln.Buffer(value)` makes one with this content. Everything that takes a tensor takes a buffer,
    and means the content at that moment: a tensor that was made of it before it is written, and
    asked for later, is an error that says so. `buffer[...] = value` replaces the content, and
    `buffer[2:5] = value` a part of it; an update of the buffer by what is computed from it, such as
    `w -= 0.1 * g` or `w[...] = w - 0.1 * g`, happens in place. In a `with kiln.batch()` or a kiln.function it is
    written when the batch runs, and lines that follow mean the new content.

    Any thread may use it.
    """

    __slots__ = ('_context', '_owned', '_version', '_imported', '_hooks', 'dtype', 'shape', '__weakref__')

    def __init__(self, value: Array, dtype: Optional[Type] = None,
                 context: Optional[Context] = None) -> None:
        context = context or getattr(value, '_context', None) or default_context()
        kind = None if dtype is None else as_dtype(dtype)
        source = tensor(value, kind, context) if kind and kind.block > 1 else as_tensor(value, context)
        kind = kind or source.dtype
        self._allocate(context, kind, list(source.shape))
        self[...] = source

    def _allocate(self, context: Context, dtype: DType, dims: list[int]) -> None:
        owned = Owned(lib.kiln_buffer_release)
        check(lib.kiln_buffer_create(context._held(), dtype.value, len(dims), sizes(dims), owned.out))
        self._adopt(context, owned)

    @classmethod
    def _of(cls, context: Context, owned: Owned) -> Buffer:
        """A buffer over one of C's."""
        made = cls.__new__(cls)
        made._adopt(context, owned)
        return made

    def _adopt(self, context: Context, owned: Owned) -> None:
        self._context = context
        self._owned = owned
        self._version = 0
        self._hooks: tuple[Any, ...] = ()
        self._imported: Optional[Tensor] = None
        kind, rank, dims = ctypes.c_int(), ctypes.c_size_t(), (ctypes.c_size_t * MAX_RANK)()
        check(lib.kiln_buffer_shape(owned, ctypes.byref(kind), ctypes.byref(rank), dims))
        self.dtype = BY_VALUE[kind.value]
        self.shape = tuple(dims[:rank.value])

    @classmethod
    def empty(cls, shape: Shape, dtype: Type = 'f32', context: Optional[Context] = None) -> Buffer:
        """A buffer whose content is undefined."""
        made = cls.__new__(cls)
        made._allocate(context or default_context(), as_dtype(dtype), dims_of(shape))
        return made

    @classmethod
    def zeros(cls, shape: Shape, dtype: Type = 'f32', context: Optional[Context] = None) -> Buffer:
        """A buffer of zeros."""
        made = cls.empty(shape, dtype, context)
        made._write(np.zeros(made.dtype.raw_shape(made.shape), made.dtype.raw))
        return made

    @property
    def context(self) -> Context:
        """The context whose device it lies on."""
        return self._context

    def register_hook(self, hook: Any) -> Any:
        """Have hook(gradient) say what kiln.grad() gives in place of the gradient by this buffer; None: the
        same. Gives an object with remove(). A kiln.function calls hooks when it is recorded."""
        from ._hooks import GradientHook
        made = GradientHook(hook)
        self._hooks = (*(hook for hook in self._hooks if hook._hook is not None), made)
        return made

    # ---- as a tensor ----

    def _tensor(self) -> Tensor:
        content = _tape.content(self)
        if content is not None:
            return content
        if self._imported is None or self._imported._version != self._version or \
                self._imported._changed is not None:
            made = Tensor(self._context, value=self)
            made.dtype, made.shape, made._version = self.dtype, self.shape, self._version
            self._imported = made
        return self._imported

    def tensor(self) -> Tensor:
        """The content of this moment as a tensor; nothing is copied."""
        return another(self._tensor())

    def numpy(self) -> np.ndarray:
        """A copy of the content as an array of numpy's."""
        return from_raw(self._host(), self.dtype)

    def _host(self) -> np.ndarray:
        _tape.refuse_while_tracing('a buffer is read')
        return self._read()

    def _refuse_if_awaited(self, what: str) -> None:
        tape = _tape.explicit_tape(self._context)
        if tape is not None and self in tape.awaited:
            raise Error('WRONG_STATE', f'a buffer is {what} in a batch that writes it and has not run')

    def _read(self) -> np.ndarray:
        self._refuse_if_awaited('read')
        array = np.empty(self.dtype.raw_shape(self.shape), self.dtype.raw)
        if array.nbytes:
            check(lib.kiln_buffer_read(self._owned, 0, array.ctypes.data, array.nbytes))
        return array

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        array = self.numpy()
        return array if dtype is None or array.dtype == dtype else array.astype(dtype)

    # ---- writing ----

    def _updated(self, operation: Callable[[Any, Any], Tensor], other: Array) -> Buffer:
        """With what the operation gives as the content."""
        content = operation(self, other)
        if content.dtype.is_floating and not self.dtype.is_floating:
            raise TypeError(f'a buffer of {self.dtype.name} is updated by a tensor of '
                            f'{content.dtype.name}')
        self[...] = content
        return self

    __iadd__ = _in_place(operator.add)
    __isub__ = _in_place(operator.sub)
    __imul__ = _in_place(operator.mul)
    __imatmul__ = _in_place(operator.matmul)
    __itruediv__ = _in_place(operator.truediv)
    __ifloordiv__ = _in_place(operator.floordiv)
    __imod__ = _in_place(operator.mod)
    __ipow__ = _in_place(operator.pow)
    __iand__ = _in_place(operator.and_)
    __ior__ = _in_place(operator.or_)
    __ixor__ = _in_place(operator.xor)
    __ilshift__ = _in_place(operator.lshift)
    __irshift__ = _in_place(operator.rshift)

    def __setitem__(self, key: Any, value: Array) -> None:
        from ._indexing import replaced
        if key is Ellipsis or (isinstance(key, slice) and key == slice(None)):
            content = self._whole(value)
        else:
            content = replaced(self, key, value)
        if _tape.write(self, content):
            return
        if isinstance(content._value, np.ndarray) and content.dtype == self.dtype:
            self._write(content._value)
        else:
            _tape.refuse_while_tracing('a buffer is written')
            _tape.run_now(self._context, lambda tape: tape.write(self, content))

    def _whole(self, value: Array) -> Tensor:
        """A value in the buffer's type and shape."""
        if not isinstance(value, Operators):
            array = np.asarray(as_array(value))
            if array.dtype != self.dtype.raw and array.dtype.kind in 'fiub' and array.dtype.itemsize == 8:
                array = array.astype(self.dtype.raw) if self.dtype.name in ('f32', 'i32') else array
            value = of_array(np.broadcast_to(array, self.shape), self._context)
        content: Tensor = value._tensor()
        if content.dtype != self.dtype:
            content = content.astype(self.dtype)
        return content if content.shape == self.shape else content.broadcast_to(self.shape)

    def _write(self, array: np.ndarray) -> None:
        self._version += 1
        if array.nbytes:
            check(lib.kiln_buffer_write(self._owned, 0, array.ctypes.data, array.nbytes))

    @contextlib.contextmanager
    def mapped(self) -> Iterator[np.ndarray]:
        """The content in the host's memory, to read and write in place, as an array that is valid
        inside the `with`. No batch may use the buffer meanwhile."""
        if not self.nbytes:  # there is no memory to show
            yield np.empty(self.dtype.raw_shape(self.shape), self.dtype.raw)
            return
        self._refuse_if_awaited('mapped')
        # For an exception that comes before it is unmapped.
        buffer = self._owned
        mapping = Owned(lambda _: lib.kiln_buffer_unmap(buffer))
        self._version += 1
        check(lib.kiln_buffer_map(self._owned, mapping.out))
        try:
            memory = (ctypes.c_char * self.nbytes).from_address(mapping.pointer or 0)
            yield np.frombuffer(memoryview(memory), self.dtype.raw).reshape(self.dtype.raw_shape(self.shape))
        finally:
            self._version += 1
            check(lib.kiln_buffer_unmap(self._owned))
            mapping.pointer = None

    def __deepcopy__(self, memo: Any) -> Buffer:
        made = Buffer.empty(self.shape, self.dtype, self._context)
        made._write(self._read())
        return made

    def __reduce__(self) -> Any:
        return Buffer, (self.numpy(), self.dtype)

    def __repr__(self) -> str:
        return f'<kiln.Buffer {list(self.shape)} {self.dtype.name} on {self._context.device.name}>'
