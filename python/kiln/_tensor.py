# SPDX-License-Identifier: Apache-2.0
"""Tensors: values that are computed when they are asked for."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Iterator, Optional, Sequence, Union

import numpy as np

from . import _dlpack, _tape
from ._context import Context, default_context
from ._library import MAX_RANK, Handle, check, lib, name_text
from ._operators import Operators as Operators
from ._tree import tree_map
from ._types import BY_VALUE, DType, Type, as_dtype, bits_of_bf16, from_raw, storable

if TYPE_CHECKING:
    from ._buffer import Buffer

# What functions take: tensors, buffers, numbers, numpy's arrays and what becomes one without a copy.
Array = Any
Axis = Union[None, int, Sequence[int]]
Shape = Union[int, Sequence[int]]


class Tensor(Operators):
    """A value of some shape and type, computed when it is asked for: by `numpy()`, by
    `kiln.evaluate()`, by print() or float(). Until then it is an expression, recorded and not run.

    It has numpy's operators, slices and the usual methods. `x[key] = value` makes it another value
    from then on: what was made of it before, slices too, keeps the old one, and so does an array
    that it was made of. What is recorded (a kiln.function, an executor, a kiln.Parallel) so writes
    its arguments and what it makes, and no tensor from outside. Memory that stays is a kiln.Buffer.
    Tensors may be made and asked for in any thread, and written by one at a time.
    """

    __slots__ = ('_changed', '_context', '_expression', '_name', '_number', '_output', '_value',
                 '_version', 'dtype', 'shape', '__weakref__')
    dtype: DType
    shape: tuple[int, ...]

    def __init__(self, context: Context, expression: Any = None, output: Optional[int] = None,
                 value: Any = None) -> None:
        self._context = context
        self._expression = expression
        self._output = output
        self._value = value
        self._version = 0
        self._changed: Optional[Tensor] = None  # what it is since it was written into
        self._name: Optional[str] = _tape.thread.name
        self._number = next(_tape.numbers)

    def named(self, name: Optional[str]) -> Tensor:
        """Have errors, explanations, traces and profiles call it by this name, and what its function
        records beside; None takes the name away. Returns the tensor: `q = (x @ w).named('q')`."""
        name_text(name)  # or an error, here
        self._name = name
        _tape.recorded(self._context, lambda tape: tape.call(self))
        return self

    def _tensor(self) -> Tensor:
        return self if self._changed is None else self._changed

    @property
    def context(self) -> Context:
        """The context that computes it."""
        return self._context

    # ---- its value ----

    def numpy(self, copy: bool = False) -> np.ndarray:
        """The value as an array of numpy's; what it takes is run now. The array is the tensor's own
        memory and cannot be written; with `copy` it is the caller's. bf16 comes as float32, unless
        the package ml_dtypes is there."""
        array = from_raw(self._host(), self.dtype)
        if copy:
            return array.copy()
        view = array.view()
        view.flags.writeable = False
        return view

    def _host(self) -> np.ndarray:
        x = self._tensor()
        if x._value is None:
            evaluate(x)
        value = x._value
        return value if isinstance(value, np.ndarray) else value._read()

    def eval(self) -> Tensor:
        """Compute it now, and leave the value on the device. Returns the tensor."""
        if self._tensor()._value is None:
            evaluate_on_device([self._tensor()])
        return self

    def item(self) -> Any:
        """The only element, as a number of Python's."""
        return self.numpy().item()

    def tolist(self) -> Any:
        """The elements as lists of Python's numbers."""
        return self.numpy().tolist()

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        array = self.numpy(copy=bool(copy))
        return array if dtype is None or array.dtype == dtype else array.astype(dtype)

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        return self.numpy().__index__()

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError('the truth of a tensor of several elements is ambiguous: use .any() or '
                             '.all()')
        return bool(self.item())

    def __repr__(self) -> str:
        if self._tensor()._value is None and _tape.is_recording():
            return f'<kiln.Tensor {list(self.shape)} {self.dtype.name}, not computed>'
        values = np.array2string(self.numpy(), separator=', ', prefix='kiln.tensor(')
        return f'kiln.tensor({values}, {self.dtype!r})'

    def __str__(self) -> str:
        return repr(self) if _tape.is_tracing() else str(self.numpy())

    def __format__(self, form: str) -> str:
        return format(self.item() if self.size == 1 and form else str(self), form)

    def __reduce__(self) -> Any:
        return tensor, (self.numpy(), self.dtype)

    def register_hook(self, hook: Any) -> Any:
        """Have hook(gradient), called while a gradient is recorded, say what goes on in place of the gradient by
        what is made of this tensor from now on; None: the same. What it gets has no value yet. Gives an
        object with remove(). The value is copied once, so that it is no longer fused with what makes it."""
        from ._hooks import GradientHook, hooked
        _tape.refuse_outside(self._number)
        made = GradientHook(hook)
        self._changed = hooked(self._tensor(), made)
        return made

    def __setitem__(self, key: Any, value: Any) -> None:
        from ._indexing import replaced
        _tape.refuse_outside(self._number)
        self._changed = replaced(self, key, value)


def another(x: Tensor) -> Tensor:
    """A tensor of its own with x's value."""
    x = x._tensor()
    if x._value is None or _tape.is_recording():
        return make(x._context, _tape.Expression((x,), lambda b, h: Handle(h[0].id)))
    made = Tensor(x._context, value=x._value)
    made.dtype, made.shape, made._version = x.dtype, x.shape, x._version
    return made


def present(tree: Any) -> Any:
    """The same structure, with what has been written into as what it is now."""
    return tree_map(lambda leaf: leaf._tensor() if isinstance(leaf, Tensor) else leaf, tree)


def known(x: Tensor, what: str) -> np.ndarray:
    """The value of what a shape depends on: it is computed now."""
    _tape.refuse_while_tracing(f'{what} depends on values, which are asked for')
    return x.numpy()


def make(context: Context, expression: Any, output: Optional[int] = None) -> Tensor:
    """A tensor of an expression: recorded at once, so that mistakes are told here."""
    tensor = Tensor(context, expression, output)
    _tape.recorded(context, lambda tape: learn_shape(tensor, tape.batch, tape.handle(tensor)))
    return tensor


def learn_shape(tensor: Tensor, batch: Any, handle: Any) -> None:
    kind, rank, dims = ctypes.c_int(), ctypes.c_size_t(), (ctypes.c_size_t * MAX_RANK)()
    check(lib.kiln_tensor_shape(batch, handle, ctypes.byref(kind), ctypes.byref(rank), dims))
    tensor.dtype = BY_VALUE[kind.value]
    tensor.shape = tuple(dims[:rank.value])


def placed(tape: _tape.Tape, handle: Any) -> Tensor:
    """A tensor that is in the tape's batch already."""
    made = Tensor(tape.context)
    tape.handles[made] = Handle(handle.id)  # a copy: the library's array does not stay
    learn_shape(made, tape.batch, tape.handles[made])
    return made


def of_array(array: np.ndarray, context: Context, dtype: Optional[DType] = None) -> Tensor:
    """A tensor over an array's memory."""
    shape = dtype.shape_of(array) if dtype else array.shape
    raw = storable(array, dtype)
    if raw.ndim > MAX_RANK:
        raise ValueError(f'a tensor has at most {MAX_RANK} dimensions, not {raw.ndim}')
    made = Tensor(context, value=raw)
    made.dtype = dtype or as_dtype(raw.dtype)
    made.shape = shape
    return made


def computed(context: Context, array: np.ndarray, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    """A tensor over an array that new_array() has made for it."""
    made = Tensor(context, None, None, array)
    made.dtype, made.shape = dtype, shape
    return made


def raw_array(value: Any) -> tuple[np.ndarray, Optional[DType]]:
    """What numpy makes of a value, without a copy where it has memory of its own to show, and the type
    of the elements where numpy's may not say it: bits of bf16."""
    if isinstance(value, np.ndarray):
        return value, None
    if hasattr(value, '__dlpack__') and not hasattr(value, '__array__'):
        return _dlpack.array_of(value)
    try:
        array = np.asarray(value)
    except TypeError:  # as PyTorch says of bf16
        if not hasattr(value, '__dlpack__'):
            raise
        return _dlpack.array_of(value)
    if array.dtype == object:
        raise TypeError(f'a tensor cannot be made of {type(value).__name__}')
    if array.dtype == np.int64 and not hasattr(value, '__array_interface__') and \
            isinstance(value, (list, tuple, int)) and np.array_equal(array, array.astype(np.int32)):
        array = array.astype(np.int32)
    return array, None


def as_array(value: Any) -> np.ndarray:
    """The same in a type of numpy's: bf16 as users see it."""
    array, dtype = raw_array(value)
    return array if dtype is None else from_raw(array, dtype)


def as_tensor(value: Any, context: Context) -> Tensor:
    """The tensor that a value is or becomes."""
    if isinstance(value, Operators):
        return value._tensor()
    array, dtype = raw_array(value)
    return of_array(array, context, dtype)


def as_type(value: Any, dtype: DType) -> np.ndarray:
    """A value as an array of this type, not copied where it is one."""
    array = value._host() if isinstance(value, Tensor) else np.asarray(as_array(value))
    if array.dtype != dtype.raw:
        bits = dtype.name == 'bf16' and dtype.raw == np.uint16
        array = bits_of_bf16(array) if bits else array.astype(dtype.raw)
    return storable(array, dtype)


def tensor(value: Array, dtype: Optional[Type] = None, context: Optional[Context] = None) -> Tensor:
    """A tensor of a numpy array, of lists and numbers, or of whatever shows its memory (the buffer
    protocol, __array_interface__, DLPack).

    Nothing is copied where the array is row-major and of a type of kiln's: the tensor borrows its
    memory and holds it, and reads it when it is computed with, so that the array had better not
    change until then. float64 becomes f32. Of a type of blocks, such as 'q4_0', the value is bytes
    (uint8) whose rows are rows of blocks, as those of PyPI's gguf are.
    """
    if context is None:
        context = getattr(value, '_context', None) or default_context()
    wanted = None if dtype is None else as_dtype(dtype)
    if wanted and wanted.block > 1 and not isinstance(value, Operators):
        return of_array(as_array(value), context, wanted)
    made = as_tensor(value, context)
    if wanted is None:
        return another(made) if isinstance(value, Operators) else made
    return made.astype(wanted)


# ---- computing ----

def _not_computed(tensors: Sequence[Tensor], context: Context) -> list[Tensor]:
    return [t for t in tensors if t._value is None and t._context is context]


def _contexts(tensors: Sequence[Tensor]) -> list[Context]:
    return list(dict.fromkeys(t._context for t in tensors if t._value is None))


def new_array(t: Tensor) -> np.ndarray:
    return np.empty(t.dtype.raw_shape(t.shape), t.dtype.raw)


def settle(tensor: Tensor, value: Any) -> None:
    """The tensor has its value now, and is no expression any more."""
    tensor._value = value
    tensor._expression = None


def evaluate(*tensors: Tensor) -> None:
    """Compute these tensors, in one run for each context, and bring their values to the host:
    `numpy()` of each costs nothing more."""
    tensors = tuple(t._tensor() for t in tensors)
    for context in _contexts(tensors):
        _tape.refuse_while_tracing('a value is asked for')
        arrays = {t: new_array(t) for t in _not_computed(tensors, context)}
        _tape.run_now(context, lambda tape: tape.reads.update(arrays))
        for t, array in arrays.items():
            settle(t, array)


def evaluate_on_device(tensors: Sequence[Tensor], writes: dict[Buffer, Tensor] = {}) -> None:
    """Compute tensors, and leave their values on the device; the same run writes buffers."""
    from ._buffer import Buffer
    for context in dict.fromkeys([*_contexts(tensors), *(buffer._context for buffer in writes)]):
        _tape.refuse_while_tracing('a value is asked for')
        buffers = {Buffer.empty(t.shape, t.dtype, context=context): t
                   for t in _not_computed(tensors, context)}

        def request(tape: _tape.Tape) -> None:
            tape.exports.update(buffers)
            for buffer, tensor in writes.items():
                if buffer._context is context:
                    tape.write(buffer, tensor)
        _tape.run_now(context, request)
        for buffer, t in buffers.items():
            t._version = buffer._version
            settle(t, buffer)


def iterate(t: Tensor) -> Iterator[Tensor]:
    if not t.shape:
        raise TypeError('a tensor without dimensions cannot be iterated over')
    return (t[i] for i in range(t.shape[0]))
