# SPDX-License-Identifier: Apache-2.0
"""Functions that are recorded once and run often."""
from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Callable, Generic, Iterable, Optional, Tuple, overload

import numpy as np

from . import _tape
from ._buffer import Buffer
from ._context import Context, default_context, option_word
from ._library import check, lib
from ._record import find_context
from ._tensor import Tensor, another, computed, new_array, of_array, present, raw_array
from ._tree import leaves_of, rebuilt, tree_map
from ._types import OF_NUMPY, DType, P, R, address_of, as_dtype, storable

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
            for place in places:
                self.inputs.append(self.tape.handle(place))
                place._value = None  # whoever asked for it would have the first call's in every call
            result = present(function(*positional, **named))
            self.tape.reads = {leaf: new_array(leaf) for leaf in leaves_of(result)
                               if isinstance(leaf, Tensor)}
            self.tape.finish_recording()
            return result
        self.inputs: list[Any] = []
        self.result = _tape.trace(self.tape, trace)
        # Where the batch reads each, and writes each result; 0: nobody knows.
        self.read_at, self.written_at = [0] * len(places), [0] * len(self.tape.reads)
        # Of each result its shape and type in numpy, and both of the tensor.
        self.kinds = [(t.dtype.raw_shape(t.shape), t.dtype.raw, t.dtype, t.shape)
                      for t in self.tape.reads]

    def holds(self) -> bool:
        """Whether the modules whose mode it asked for are in that mode."""
        modes = self.tape.modes
        return not modes or all(module._trains == trains for module, trains in modes.values())

    def run(self, inputs: list[_Input]) -> Any:
        """The results for these arrays, which are borrowed until then."""
        tape, at = self.tape, self.read_at
        batch, context = tape.owned, tape.context
        for i, (array, _) in enumerate(inputs):
            address = address_of(array)
            if at[i] != address:
                check(_rebind_upload(batch, self.inputs[i], address))
                at[i] = address
        results, at = [], self.written_at
        for i, (raw_shape, raw, dtype, shape) in enumerate(self.kinds):
            array = np.empty(raw_shape, raw)
            address = address_of(array)
            if at[i] != address:
                check(_rebind_read(batch, i, address, array.nbytes))
                at[i] = address
            results.append(computed(context, array, dtype, shape))
        tape.run_again()
        if type(self.result) is Tensor:
            return results[0]
        of = dict(zip(tape.reads, results))
        leaves = [of[leaf] if isinstance(leaf, Tensor) else leaf for leaf in leaves_of(self.result)]
        return rebuilt(self.result, iter(leaves))


# Their numbers are right: nobody needs to look at them.
_rebind_upload = lib.kiln_rebind_upload
_rebind_read = lib.kiln_rebind_read.unchecked


def _varies(leaf: Any) -> bool:
    """Whether an argument's content may be another in each call."""
    return isinstance(leaf, (np.ndarray, np.generic, Tensor)) or (
        not isinstance(leaf, (Buffer, bool, int, float, complex, str, bytes)) and (
            hasattr(leaf, '__array__') or hasattr(leaf, '__array_interface__') or
            hasattr(leaf, '__dlpack__')))


def _content(leaf: Any) -> _Input:
    if isinstance(leaf, Tensor):
        return leaf._host(), leaf.dtype
    array, dtype = raw_array(leaf)
    array = storable(array, dtype)
    return array, dtype or as_dtype(array.dtype)


def _describe(leaves: Iterable[Any], key: list[Any], inputs: list[_Input],
              context: Optional[Context]) -> Optional[Context]:
    """Append to `key` what tells arguments from such as need another recording: their structure, types
    and shapes of what varies, the rest as it is. The words of an argument say by the first one's type
    which they are, and how many. What varies goes to `inputs`. The context that all belong to."""
    for leaf in leaves:
        kind = type(leaf)
        array, dtype = leaf, None
        if kind is np.ndarray:
            if leaf.flags.c_contiguous:
                dtype = OF_NUMPY.get(leaf.dtype)
            if dtype is None:
                array, dtype = _content(leaf)
        elif kind is Tensor:
            array, dtype = leaf._value, leaf.dtype
            if type(array) is not np.ndarray or leaf._changed is not None:
                array = leaf._host()
            if context is not leaf._context:
                context = find_context((leaf,), context)
        elif isinstance(leaf, (list, tuple)):
            key += (kind, len(leaf))
            context = _describe(leaf, key, inputs, context)
            continue
        elif isinstance(leaf, dict):
            key += (dict, tuple(leaf))
            context = _describe(leaf.values(), key, inputs, context)
            continue
        else:
            context = find_context((leaf,), context)
            if not _varies(leaf):
                key.append(leaf if leaf is None or isinstance(leaf, Buffer) else (kind, leaf))
                continue
            array, dtype = _content(leaf)
        key += (dtype.name, array.shape)
        inputs.append((array, dtype))
    return context


class Function(Generic[P, R]):
    """See kiln.function()."""

    def __init__(self, function: Callable[P, R], context: Optional[Context] = None,
                 precision: Optional[str] = None) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._context = context
        self._precision = option_word('precision', precision)
        self._recordings: OrderedDict[Any, list[_Recording]] = OrderedDict()
        self._newest: Any = None  # of its values, the one that was used last
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
        if _tape.thread.scopes and _tape.is_recording():
            # Part of what is being recorded. What it writes into its arguments is its own then, too.
            arguments, named = tree_map(lambda leaf: another(leaf) if isinstance(leaf, Tensor) else leaf,
                                        (arguments, named))
            return self._function(*arguments, **named)
        key: list[Any] = [len(arguments)]
        inputs: list[_Input] = []
        found = _describe(arguments, key, inputs, None)
        if named:
            found = _describe((named,), key, inputs, found)
        context = self._context or found or default_context()
        key.append(id(context))
        kept = tuple(key)
        recording = self._take(kept) or _Recording(self._function, context, self._precision,
                                                   (arguments, named), inputs)
        result: R = recording.run(inputs)
        self._give_back(kept, recording)
        return result

    def _take(self, key: Any) -> Optional[_Recording]:
        """A recording that no other thread runs."""
        idle = self._recordings.get(key)
        if not idle:
            return None
        if idle is not self._newest:
            with self._lock:
                if key in self._recordings:
                    self._recordings.move_to_end(key)
                self._newest = idle
        try:
            recording = idle.pop()
        except IndexError:  # another thread has it
            return None
        return recording if recording.holds() else self._other_mode(idle, recording)

    def _other_mode(self, idle: list[_Recording], refused: _Recording) -> Optional[_Recording]:
        """One beside this."""
        idle.insert(0, refused)
        for recording in reversed(idle.copy()):
            if recording.holds():
                try:
                    idle.remove(recording)
                    return recording
                except ValueError:  # another thread has it
                    pass
        return None

    def _give_back(self, key: Any, recording: _Recording) -> None:
        idle = self._recordings.get(key)
        if idle is not None:  # which may be forgotten meanwhile, and this recording with it
            idle.append(recording)
            return
        with self._lock:
            self._newest = self._recordings.setdefault(key, [])
            self._newest.append(recording)
            while len(self._recordings) > _SHAPES:
                self._recordings.popitem(last=False)


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

    The first call does not wait for optimised kernels where the driver can compile without (PoCL):
    see `compile` of kiln.Context, which also switches that off.

    The function's own lines run when it is recorded: what it prints is printed once, and no value
    can be asked for. It may write buffers and step optimisers; each call does that.
    The results are tensors that are computed already. Threads may call it at once: each gets a
    recording of its own.
    """
    if function is None:
        return functools.partial(Function, context=context, precision=precision)
    return Function(function, context, precision)
