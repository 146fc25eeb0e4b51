# SPDX-License-Identifier: Apache-2.0
"""Kernels of the program's own: text in OpenCL C, and expressions of elements."""
from __future__ import annotations

import ctypes
import math
import operator
import weakref
from collections import OrderedDict
from typing import Any, Callable, Optional, Sequence, Union

import numpy as np

from . import _tape, _tensor
from ._context import default_context
from ._library import MAX_RANK, Error, Handle, Owned, check, initialised, lib, name_text, struct
from ._record import dims_of, find_context, meet, scalar_type, several, take
from ._tape import Expression
from ._types import BY_VALUE, DType, as_dtype, bits_of_bf16, from_raw, promoted

Names = Union[str, Sequence[str]]


def _names(names: Names) -> list[Any]:
    return names.split() if isinstance(names, str) else list(names)


def _text(text: Optional[str]) -> Optional[bytes]:
    if text is not None and '\0' in text:
        raise ValueError('a text of OpenCL C has no NUL')
    return name_text(text)


def _three(counts: Any) -> tuple[Any, ...]:
    """Work sizes of up to three dimensions; 0 where there is none."""
    given = (counts,) if hasattr(counts, '__index__') else tuple(counts or ())
    if len(given) > 3:
        raise ValueError(f'{len(given)} dimensions of work-items, and three are the most')
    sizes = [operator.index(n) for n in given]
    if any(not 0 <= n < 1 << 63 for n in sizes):
        raise ValueError(f'{tuple(sizes)} are no numbers of work-items')
    return (*sizes, *(0,) * (3 - len(sizes)))


def _number(name: str, dtype: DType, value: Any) -> float:
    """A scalar as C has it: one that a double would round is refused."""
    number = float(value)
    if dtype.name != 'f32' and number != value:
        raise ValueError(f'{name}: {value} is no {dtype.name} that a double holds')
    return number


# ---- functions of Python's that the library calls ----

_HOST = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_double),
                         ctypes.c_void_p)
_GRADIENT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Handle),
                             ctypes.POINTER(Handle), ctypes.POINTER(Handle), ctypes.POINTER(Handle),
                             ctypes.POINTER(ctypes.c_double))
_FAILED = -1
_SCALARS = 64  # of so many values of a kernel's scalars the memory is kept


class _Functions:
    """A kernel's gradient and host function, as C calls them. Batches that have the kernel hold it."""

    def __init__(self, kernel: Kernel, gradient: Optional[Callable[..., Any]],
                 host: Optional[Callable[..., Any]]) -> None:
        self._name, self._counts = kernel.__name__, (len(kernel.inputs), len(kernel.outputs))
        self._types = kernel.scalars
        # Not bound methods: what C calls would hold itself.
        held: Callable[[], Any] = weakref.ref(self)
        self.gradient = _GRADIENT(lambda *given: held()._record(gradient, *given)) \
            if gradient else _GRADIENT()
        self.host = _HOST(lambda *given: held()._compute(host, *given)) if host else _HOST()
        self._values: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def user(self, scalars: Sequence[float]) -> Any:
        """Where the gradient finds the scalars: in the same place for the same values, as it is part of
        the batch's plan."""
        key = tuple(scalars)
        found = self._values.pop(key, None)
        if found is None:
            found = (ctypes.c_double * len(key))(*key)
        self._values[key] = found
        if len(self._values) > _SCALARS:
            self._values.popitem(last=False)
        return found

    def _numbers(self, scalars: Any) -> dict[Any, Any]:
        """The scalars as the kernel has them."""
        return {name: float(np.float32(scalars[i])) if dtype.name == 'f32' else int(scalars[i])
                for i, (name, dtype) in enumerate(self._types.items())}

    def _record(self, function: Callable[..., Any], batch: Any, inputs: Any, outputs: Any, flowed: Any,
                gradients: Any, user: Any) -> int:
        try:
            calling = _tape.thread.calling
            assert calling is not None  # who derives calls back
            tape = _tape.InnerTape(calling)

            def tensors(handles: Any, count: int) -> list[Any]:
                return [_tensor.placed(tape, handles[i]) if handles[i].id else None
                        for i in range(count)]
            given = (tensors(inputs, self._counts[0]), tensors(outputs, self._counts[1]),
                     tensors(flowed, self._counts[1]))
            made = _tape.trace(tape, lambda: self._called(function, tape, given,
                                                          self._numbers(user)))
            for i, gradient in enumerate(made):
                if gradient is not None:
                    gradients[i] = tape.handle(gradient)
            return 0
        except BaseException as error:
            _tape.keep_raised(error)
            return _FAILED

    def _called(self, function: Callable[..., Any], tape: Any, given: tuple[Any, ...],
                scalars: dict[Any, Any]) -> list[Any]:
        made = function(*given, **scalars)
        made = list(made) if isinstance(made, (list, tuple)) else [made]
        if len(made) != self._counts[0]:
            raise TypeError(f'{self._name}: the gradient gives {len(made)} tensors for '
                            f'{self._counts[0]} inputs')
        return [x if x is None else _tensor.as_tensor(x, tape.context) for x in made]

    def _compute(self, function: Callable[..., Any], inputs: Any, outputs: Any, scalars: Any, _: Any) -> None:
        try:
            places = (struct('kiln_array') * self._counts[1]).from_address(outputs)
            given = (struct('kiln_array') * self._counts[0]).from_address(inputs) \
                if self._counts[0] else ()
            made = function(*[from_raw(_elements(x).copy(), BY_VALUE[x.type]) for x in given],
                            **self._numbers(scalars))
            made = made if isinstance(made, (list, tuple)) else [made]
            if len(made) != len(places):
                raise TypeError(f'{self._name}: the host function gives {len(made)} arrays for '
                                f'{len(places)} outputs')
            for place, array in zip(places, made):
                self._store(place, np.asarray(array))
        except BaseException as error:
            _tape.keep_raised(error)

    def _store(self, place: Any, array: np.ndarray) -> None:
        elements = _elements(place)
        if array.shape != elements.shape:
            raise ValueError(f'{self._name}: the host function gives an array of shape '
                             f'{list(array.shape)} for an output of {list(elements.shape)}')
        elements[...] = bits_of_bf16(array).view(elements.dtype) \
            if BY_VALUE[place.type].name == 'bf16' else array


def _elements(place: Any) -> np.ndarray:
    """The memory of an array of C's, which does not stay."""
    shape, dtype = tuple(place.dims[:place.rank]), BY_VALUE[place.type].raw
    size = math.prod(shape)
    if not size:
        return np.empty(shape, dtype)
    memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(place.data)
    return np.frombuffer(memory, dtype).reshape(shape)


class Kernel:
    """What kiln.kernel() makes: a function of tensors."""

    def __init__(self, source: str, inputs: Names, outputs: Names, scalars: Optional[dict[Any, Any]],
                 header: Optional[str], name: str, shape: Any, dtype: Any, grid: Any, group: Any,
                 strided: Names, gradient: Optional[Callable[..., Any]], host: Optional[Callable[..., Any]],
                 tolerance: float) -> None:
        self.inputs, self.outputs = _names(inputs), _names(outputs)
        self.scalars = {n: as_dtype(t) for n, t in (scalars or {}).items()}
        self.__name__, self._source, self._header = name, source, header
        self._shape, self._dtype, self._grid, self._group = shape, dtype, grid, group
        self._strided = _names(strided)
        unknown = set(self._strided) - set(self.inputs)
        if unknown:
            raise ValueError(f'{name}: {", ".join(sorted(unknown))} is no input')
        self._functions = _Functions(self, gradient, host)
        self._tolerance = tolerance

    def __repr__(self) -> str:
        return f'<kiln.kernel {self.__name__}: {" ".join(self.inputs)} -> {" ".join(self.outputs)}>'

    def __call__(self, *operands: _tensor.Array, **scalars: float) -> Any:
        if len(operands) != len(self.inputs):
            raise TypeError(f'{self.__name__}() takes {len(self.inputs)} tensors '
                            f'({", ".join(self.inputs)}), not {len(operands)}')
        if set(scalars) != set(self.scalars):
            raise TypeError(f'{self.__name__}() takes the numbers {", ".join(self.scalars) or "-"}, '
                            f'not {", ".join(scalars) or "-"}')
        context = find_context(list(operands)) or default_context()
        tensors = [_tensor.as_tensor(x, context) for x in operands]
        called = _Call(self, tensors, scalars)
        made = several(context, tensors, called.enter, len(self.outputs))
        return made[0] if len(made) == 1 else tuple(made)

    def _each(self, given: Any, tensors: list[Any], usual: Callable[[], Any],
              one: Callable[..., Any]) -> list[Any]:
        """What is said of the outputs, of each: for all, in a list, or by a function."""
        given = given(*tensors) if callable(given) else given
        if given is None:
            given = usual()
        listed = isinstance(given, list)
        if listed and len(given) != len(self.outputs):
            raise ValueError(f'{self.__name__}: {len(given)} of {len(self.outputs)} outputs')
        return [one(value) for value in (given if listed else [given] * len(self.outputs))]


class _Call:
    """One call: a structure of C, and all that it points to."""

    def __init__(self, kernel: Kernel, tensors: list[Any], scalars: dict[Any, Any]) -> None:
        def usual(what: str) -> Callable[[], Any]:
            if not tensors:
                raise ValueError(f'{kernel.__name__} has no input: it needs the {what} of its output')
            return lambda: getattr(tensors[0], what)
        shapes = kernel._each(kernel._shape, tensors, lambda: usual('shape')(), dims_of)
        dtypes = kernel._each(kernel._dtype, tensors, lambda: usual('dtype')().apart, as_dtype)
        grid, group = (g(*tensors) if callable(g) else g for g in (kernel._grid, kernel._group))
        of_tensor, of_scalar = struct('kiln_custom_tensor'), struct('kiln_custom_scalar')
        self._inputs = (of_tensor * max(len(tensors), 1))()
        self._outputs = (of_tensor * len(shapes))()
        self._scalars = (of_scalar * max(len(scalars), 1))()
        for place, name in zip(self._inputs, kernel.inputs):
            place.name, place.strided = _text(name), name in kernel._strided
        for place, name, shape, dtype in zip(self._outputs, kernel.outputs, shapes, dtypes):
            place.name, place.type, place.rank = _text(name), dtype.value, len(shape)
            for d, extent in enumerate(shape[:MAX_RANK]):
                place.dims[d] = extent
        for place, (name, dtype) in zip(self._scalars, kernel.scalars.items()):
            place.name, place.type = _text(name), dtype.value
            place.value = _number(name, dtype, scalars[name])
        self._made = made = initialised('KILN_CUSTOM_KERNEL_INIT')
        made.name, made.source = _text(kernel.__name__), _text(kernel._source)
        made.header = _text(kernel._header)
        made.input_count, made.inputs = len(tensors), ctypes.addressof(self._inputs)
        made.output_count, made.outputs = len(shapes), ctypes.addressof(self._outputs)
        made.scalar_count, made.scalars = len(scalars), ctypes.addressof(self._scalars)
        for d, (items, local) in enumerate(zip(_three(grid), _three(group))):
            getattr(made, 'global')[d], made.local[d] = items, local
        self._functions = functions = kernel._functions  # as long as the batch may call them
        made.gradient = ctypes.cast(functions.gradient, ctypes.c_void_p).value
        made.host = ctypes.cast(functions.host, ctypes.c_void_p).value
        made.tolerance = kernel._tolerance
        if made.gradient and scalars:
            self._user = functions.user([place.value for place in self._scalars])
            made.user = ctypes.addressof(self._user)

    def enter(self, batch: Any, handles: list[Any]) -> list[Any]:
        out = (Handle * len(self._outputs))()
        lib.kiln_custom(batch, ctypes.byref(self._made),
                        (Handle * max(len(handles), 1))(*handles), out)
        return [Handle(each.id) for each in out]


def kernel(source: str, inputs: Names = 'x', outputs: Names = 'y', *,
           scalars: Optional[dict[Any, Any]] = None, header: Optional[str] = None, name: str = 'kernel',
           shape: Any = None, dtype: Any = None, grid: Any = None, group: Any = None,
           strided: Names = (), gradient: Optional[Callable[..., Any]] = None,
           host: Optional[Callable[..., Any]] = None, tolerance: float = 0.0) -> Kernel:
    """A kernel of one's own, in OpenCL C, as a function of tensors: doc/custom.md tells what its text
    finds.

        axpy = kiln.kernel('int i = get_global_id(0); z[i] = a * x[i] + y[i];', 'x y', 'z',
                           scalars={'a': 'f32'}, name='axpy')
        z = axpy(x, y, a=2)

    `source` is the body, `header` stands before the kernel. `inputs`, `outputs` and `scalars` (with
    their types: f32, i32 or i64) are the names that the text goes by; scalars are given by name.
    `shape` and `dtype` are those of the outputs, in a list where they differ (first input's);
    `grid` counts work-items (one for each element of the first output), `group` those of a
    work-group. Each may be a function of the input tensors. `strided` inputs are not copied to be
    row-major. Several outputs come as a tuple.

    `gradient(inputs, outputs, flowed)`, with the scalars by name, gets lists of tensors; flowed[k] is
    the loss's gradient by output k, or None of integers. It gives the gradient by each input, of
    its shape, or None where nothing flows, written with kiln's operations or other kernels; these
    decide whether there are second derivatives. It runs when a gradient is recorded.

    `host(*inputs)`, with the scalars by name, gives the outputs as numpy's arrays, of arrays. Runs
    that are validated compare with it, to within `tolerance` (0: 1e-5), relative to its results.

        axpy = kiln.kernel(..., gradient=lambda inputs, outputs, flowed, a: (a * flowed[0], flowed[0]),
                           host=lambda x, y, a: a * x + y)
    """
    return Kernel(source, inputs, outputs, scalars, header, name, shape, dtype, grid, group, strided,
                  gradient, host, tolerance)


# ---- expressions ----

def elementwise(text: str, inputs: Optional[Names] = None) -> Callable[..., _tensor.Tensor]:
    """A function of elements, from an expression such as 'x * y + z': of its names in their order,
    or in that of `inputs`. It is recorded as kiln's own operations: it fuses with what is around it,
    broadcasts, has a gradient and is validated. It has Python's operators and "a if m else b", C's
    "m ? a : b", and kiln's functions of elements (kiln/custom.h); ValueError tells a mistake's column.

        swish = kiln.elementwise('x / (1 + exp(-b * x))')
        y = swish(x, b)
    """
    given, found = _text(text), Owned(lib.kiln_free)
    try:
        check(lib.kiln_elementwise_names(given, found.out))
    except Error as error:
        raise ValueError(str(error).partition(': ')[2]) from None
    used = found.text().split()
    names = used if inputs is None else _names(inputs)
    missing = [name for name in used if name not in names]
    if missing:
        raise ValueError(f'{text!r}: {", ".join(missing)} is none of the inputs')

    def enter(batch: Any, handles: list[Any]) -> Any:
        return lib.kiln_elementwise(batch, given, _text(' '.join(names)), len(names),
                                    (Handle * max(len(names), 1))(*handles))

    def computed(*operands: _tensor.Array) -> _tensor.Tensor:
        if len(operands) != len(names):
            raise TypeError(f'{text!r} is of {", ".join(names)}, not of {len(operands)} operands')
        context = find_context(list(operands)) or default_context()
        values = [take(x, context) for x in operands]
        dtypes = [x.dtype for x in values if isinstance(x, _tensor.Tensor) and x.dtype != 'bool']
        dtype = promoted(dtypes) if dtypes else None
        return _tensor.make(context, Expression([
            x if isinstance(x, _tensor.Tensor) else meet(x, scalar_type(x, dtype), context)
            for x in values], enter))
    computed.__doc__ = text
    return computed
