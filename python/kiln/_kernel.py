# SPDX-License-Identifier: Apache-2.0
"""Kernels of the program's own: text in OpenCL C, and expressions of elements."""
from __future__ import annotations

import ast
import ctypes
import functools
import operator
from typing import Any, Callable, Optional, Sequence, Union

from . import _operations, _tensor
from ._context import default_context
from ._library import MAX_RANK, Handle, initialised, lib, name_text, sizes, struct
from ._record import dims_of, find_context, several
from ._tape import Expression
from ._types import Type, as_dtype

Names = Union[str, Sequence[str]]


def _names(names: Names) -> list:
    return names.split() if isinstance(names, str) else list(names)


def _text(text: Optional[str]) -> Optional[bytes]:
    if text is not None and '\0' in text:
        raise ValueError('a text of OpenCL C has no NUL')
    return name_text(text)


def _three(counts: Any) -> tuple:
    """Work sizes of up to three dimensions; 0 where there is none."""
    given = (counts,) if hasattr(counts, '__index__') else tuple(counts or ())
    if len(given) > 3:
        raise ValueError(f'{len(given)} dimensions of work-items, and three are the most')
    counts = tuple(operator.index(n) for n in given)
    if any(not 0 <= n < 1 << 63 for n in counts):
        raise ValueError(f'{counts} are no numbers of work-items')
    return counts + (0,) * (3 - len(given))


def _number(name: str, dtype: Type, value: Any) -> float:
    """A scalar as C has it: one that a double would round is refused."""
    number = float(value)
    if dtype.name != 'f32' and number != value:
        raise ValueError(f'{name}: {value} is no {dtype.name} that a double holds')
    return number


class Kernel:
    """What kiln.kernel() makes: a function of tensors."""

    def __init__(self, source: str, inputs: Names, outputs: Names, scalars: Optional[dict],
                 header: Optional[str], name: str, shape: Any, dtype: Any, grid: Any, group: Any,
                 strided: Names) -> None:
        self.inputs, self.outputs = _names(inputs), _names(outputs)
        self.scalars = {n: as_dtype(t) for n, t in (scalars or {}).items()}
        self.__name__, self._source, self._header = name, source, header
        self._shape, self._dtype, self._grid, self._group = shape, dtype, grid, group
        self._strided = _names(strided)
        unknown = set(self._strided) - set(self.inputs)
        if unknown:
            raise ValueError(f'{name}: {", ".join(sorted(unknown))} is no input')

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

    def _each(self, given: Any, tensors: list, usual: Callable[[], Any], one: Callable) -> list:
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

    def __init__(self, kernel: Kernel, tensors: list, scalars: dict) -> None:
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

    def enter(self, batch: Any, handles: list) -> list:
        out = (Handle * len(self._outputs))()
        lib.kiln_custom(batch, ctypes.byref(self._made),
                        (Handle * max(len(handles), 1))(*handles), out)
        return [Handle(each.id) for each in out]


def kernel(source: str, inputs: Names = 'x', outputs: Names = 'y', *,
           scalars: Optional[dict] = None, header: Optional[str] = None, name: str = 'kernel',
           shape: Any = None, dtype: Any = None, grid: Any = None, group: Any = None,
           strided: Names = ()) -> Kernel:
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
    row-major. Several outputs come as a tuple."""
    return Kernel(source, inputs, outputs, scalars, header, name, shape, dtype, grid, group, strided)


# ---- expressions ----

_BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
           ast.Div: operator.truediv, ast.Pow: operator.pow, ast.Mod: operator.mod,
           ast.FloorDiv: operator.floordiv, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
           ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift}
_MOST_BITS = 1024  # as float has them
_UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}
_COMPARED = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
             ast.Eq: operator.eq, ast.NotEq: operator.ne}


def _binary(operation: type, a: Any, b: Any) -> Any:
    """Whole numbers by themselves grow as they like: 9 ** 9 ** 9 has 369 million digits."""
    if isinstance(a, int) and isinstance(b, int) and \
            (operation is ast.Pow and abs(a) > 1 and a.bit_length() * b > _MOST_BITS or
             operation is ast.LShift and b > _MOST_BITS):
        raise ValueError(f'a number of an expression has more than {_MOST_BITS} bits')
    return _BINARY[operation](a, b)


def _called(name: str) -> Callable:
    if name in _operations.__all__:
        return getattr(_operations, name)
    raise ValueError(f'{name}() is no function of elements that kiln has')


class _Reader:
    """An expression as a function of its names; what it may not have is refused before it runs."""

    def __init__(self, text: str) -> None:
        try:
            self._tree = ast.parse(text.strip(), mode='eval').body
        except SyntaxError as error:
            raise ValueError(f'{text!r} is no expression: {error.msg}') from None
        self.names: list = []
        self._check(self._tree)

    def _refuse(self, node: Any) -> None:
        raise ValueError(f'{ast.unparse(node)}: an expression has names, numbers, operators, '
                         'comparisons, "a if m else b" and functions of elements')

    def _check(self, node: Any) -> None:
        children = [node.left, node.right] if isinstance(node, ast.BinOp) else \
            [node.operand] if isinstance(node, ast.UnaryOp) else \
            [node.left, *node.comparators] if isinstance(node, ast.Compare) else \
            [node.test, node.body, node.orelse] if isinstance(node, ast.IfExp) else \
            node.args if isinstance(node, ast.Call) else []
        if isinstance(node, ast.Name):
            if node.id not in self.names:
                self.names.append(node.id)
        elif isinstance(node, ast.Constant):
            if type(node.value) not in (int, float):
                self._refuse(node)
        elif isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.keywords:
                self._refuse(node)
            _called(node.func.id)
        elif not children or (isinstance(node, ast.BinOp) and type(node.op) not in _BINARY) or \
                (isinstance(node, ast.UnaryOp) and type(node.op) not in _UNARY) or \
                (isinstance(node, ast.Compare) and
                 (len(node.ops) != 1 or type(node.ops[0]) not in _COMPARED)):
            self._refuse(node)
        for child in children:
            self._check(child)

    def value(self, given: dict) -> Any:
        return self._value(self._tree, given)

    def _value(self, node: Any, given: dict) -> Any:
        value = functools.partial(self._value, given=given)
        if isinstance(node, ast.Name):
            return given[node.id]
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.BinOp):
            return _binary(type(node.op), value(node.left), value(node.right))
        if isinstance(node, ast.UnaryOp):
            return _UNARY[type(node.op)](value(node.operand))
        if isinstance(node, ast.Compare):
            return _COMPARED[type(node.ops[0])](value(node.left), value(node.comparators[0]))
        if isinstance(node, ast.IfExp):
            return _operations.where(value(node.test), value(node.body), value(node.orelse))
        return _called(node.func.id)(*map(value, node.args))


def elementwise(text: str, inputs: Optional[Names] = None) -> Callable[..., _tensor.Tensor]:
    """A function of elements, from an expression such as 'x * y + z': of its names in their order,
    or in that of `inputs`. It is recorded as kiln's own operations: it fuses with what is around it,
    broadcasts, has a gradient and is validated.

        swish = kiln.elementwise('x / (1 + exp(-b * x))')
        y = swish(x, b)
    """
    reader = _Reader(text)
    names = reader.names if inputs is None else _names(inputs)
    missing = [name for name in reader.names if name not in names]
    if missing:
        raise ValueError(f'{text!r}: {", ".join(missing)} is none of the inputs')

    def computed(*operands: _tensor.Array) -> _tensor.Tensor:
        if len(operands) != len(names):
            raise TypeError(f'{text!r} is of {", ".join(names)}, not of {len(operands)} operands')
        context = find_context(list(operands)) or default_context()
        given = {name: x if isinstance(x, (int, float)) else _tensor.as_tensor(x, context)
                 for name, x in zip(names, operands)}
        return _tensor.as_tensor(reader.value(given), context)
    computed.__doc__ = text
    return computed
