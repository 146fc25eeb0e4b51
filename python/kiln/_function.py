# SPDX-License-Identifier: Apache-2.0
"""Functions that are recorded once and run often."""
from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, Tuple, overload

import numpy as np

from . import _tape
from ._buffer import Buffer
from ._context import Context, default_context, option_word
from ._library import check, lib
from ._record import find_context
from ._tensor import Tensor, another, as_array, new_array, of_array, present
from ._tree import leaves_of, rebuilt, tree_map
from ._types import DType, P, R, as_dtype, storable

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec
    Q = ParamSpec('Q')  # without the first: those of a method

_SHAPES = 32  # most recordings that a function keeps

# The memory of an argument, and its type, which numpy's does not say of blocks and of bits of bf16.
_Input = Tuple[np.ndarray, DType]


class _Recording:
    """A batch of a function's operations for arguments of some shapes."""

    def __init__(self, function: Callable[..., Any], context: Context, precision: int,
                 arguments: Any, inputs: list[_Input]) -> None:
        self.tape = _tape.Tape(context, precision)
        places = [of_array(array, context, kind) for array, kind in inputs]
        filled = iter(places)
        leaves = [next(filled) if _varies(leaf) else leaf for leaf in leaves_of(arguments)]
        positional, named = rebuilt(arguments, iter(leaves))

        def trace() -> Any:
            result = present(function(*positional, **named))
            self.tape.reads = {leaf: new_array(leaf) for leaf in leaves_of(result)
                               if isinstance(leaf, Tensor)}
            self.tape.finish_recording()
            return result
        self.result = _tape.trace(self.tape, trace)
        self.inputs = [self.tape.handle(place) for place in places]
        for place in places:
            place._value = None

    def holds(self) -> bool:
        """Whether the modules whose mode it asked for are in that mode."""
        return all(module._trains == trains for module, trains in self.tape.modes.values())

    def run(self, inputs: list[_Input]) -> Any:
        """The results for these arrays, which are borrowed until then."""
        batch = self.tape.batch
        for handle, (array, _) in zip(self.inputs, inputs):
            check(lib.kiln_rebind_upload(batch, handle, array.ctypes.data))
        results = {}
        for number, tensor in enumerate(self.tape.reads):
            array = new_array(tensor)
            check(lib.kiln_rebind_read(batch, number, array.ctypes.data, array.nbytes))
            results[tensor] = of_array(array, self.tape.context, tensor.dtype)
        self.tape.run()
        leaves = [results[leaf] if isinstance(leaf, Tensor) else leaf
                  for leaf in leaves_of(self.result)]
        return rebuilt(self.result, iter(leaves))


def _varies(leaf: Any) -> bool:
    """Whether an argument's content may be another in each call."""
    return isinstance(leaf, (np.ndarray, np.generic, Tensor)) or (
        not isinstance(leaf, (Buffer, bool, int, float, complex, str, bytes)) and (
            hasattr(leaf, '__array__') or hasattr(leaf, '__array_interface__') or
            hasattr(leaf, '__dlpack__')))


def _structure(tree: Any) -> Any:
    if isinstance(tree, dict):
        return ('dict',) + tuple((key, _structure(value)) for key, value in tree.items())
    if isinstance(tree, (list, tuple)):
        return (type(tree),) + tuple(_structure(value) for value in tree)
    return None if tree is None else 0


class Function(Generic[P, R]):
    """See kiln.function()."""

    def __init__(self, function: Callable[P, R], context: Optional[Context] = None,
                 precision: Optional[str] = None) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._context = context
        self._precision = option_word('precision', precision)
        self._recordings: OrderedDict[Any, list[_Recording]] = OrderedDict()
        self._lock = threading.RLock()  # a finaliser may come between, and call it, too

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Function[P, R]: ...

    @overload
    def __get__(self: Function[Concatenate[Any, Q], R], instance: object,
                owner: Any = None) -> Callable[Q, R]: ...

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    @property
    def recordings(self) -> int:
        """For how many kinds of arguments batches are kept."""
        return len(self._recordings)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> R:
        if _tape.is_recording():
            # Part of what is being recorded. What it writes into its arguments is its own then, too.
            arguments, named = tree_map(lambda leaf: another(leaf) if isinstance(leaf, Tensor) else leaf,
                                        (arguments, named))
            return self._function(*arguments, **named)
        tree = (arguments, named)
        leaves = leaves_of(tree)
        context = self._context or find_context(leaves) or default_context()
        inputs = [_content(leaf) for leaf in leaves if _varies(leaf)]
        key = self._key(tree, leaves, inputs, context)
        recording = self._take(key) or _Recording(self._function, context,
                                                    self._precision, tree, inputs)
        result: R = recording.run(inputs)
        self._give_back(key, recording)
        return result

    def _key(self, tree: Any, leaves: list[Any], inputs: list[Any], context: Context) -> Any:
        kinds = iter(inputs)
        described: list[Any] = [id(context), _structure(tree)]
        for leaf in leaves:
            if _varies(leaf):
                array, kind = next(kinds)
                described.append((kind.name, array.shape))
            elif isinstance(leaf, Buffer):
                described.append(leaf)
            else:
                described.append((type(leaf), leaf))
        return tuple(described)

    def _take(self, key: Any) -> Optional[_Recording]:
        """A recording that no other thread runs."""
        with self._lock:
            idle = self._recordings.get(key, [])
            for i in reversed(range(len(idle))):
                if idle[i].holds():
                    self._recordings.move_to_end(key)
                    return idle.pop(i)
            return None

    def _give_back(self, key: Any, recording: _Recording) -> None:
        with self._lock:
            self._recordings.setdefault(key, []).append(recording)
            while len(self._recordings) > _SHAPES:
                self._recordings.popitem(last=False)


def _content(leaf: Any) -> _Input:
    if isinstance(leaf, Tensor):
        return leaf._host(), leaf.dtype
    array = storable(as_array(leaf))
    return array, as_dtype(array.dtype)


@overload
def function(function: Callable[P, R], *, context: Optional[Context] = None,
             precision: Optional[str] = None) -> Function[P, R]: ...


@overload
def function(function: None = None, *, context: Optional[Context] = None,
             precision: Optional[str] = None) -> Callable[[Callable[P, R]], Function[P, R]]: ...


def function(function: Optional[Callable[..., Any]] = None, *,
             context: Optional[Context] = None, precision: Optional[str] = None) -> Any:
    """Record a function once for each kind of arguments, and run it often: `@kiln.function`, or
    `f = kiln.function(g)`.

    Arrays and tensors among the arguments vary from call to call: each call reads theirs, which are
    not copied where they are row-major and of a type of kiln's. Everything else (numbers, texts,
    buffers, and what the function reads from elsewhere) is as it was when the function was recorded;
    another number is another recording. A number that varies is a numpy one: np.float32(rate).

    `precision` of its products is as kiln.Batch takes it.

    The function's own lines run when it is recorded: what it prints is printed once, and no value
    can be asked for. It may write buffers and step optimisers; each call does that.
    The results are tensors that are computed already. Threads may call it at once: each gets a
    recording of its own.
    """
    if function is None:
        return functools.partial(Function, context=context, precision=precision)
    return Function(function, context, precision)
