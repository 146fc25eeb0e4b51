# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training."""
from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable, Optional, Sequence

from . import _tape
from ._buffer import Buffer
from ._context import Context
from ._library import Error, Handle, Owned, check, initialised, lib, pointers
from ._mpi import Ranks
from ._tensor import Tensor, as_tensor, new_array, of_array, placed, present
from ._tree import leaves_of, rebuilt

# A kiln_parallel_recorder, and a kiln_parallel_updater.
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(Handle),
                             ctypes.c_void_p)
_FAILED = -1  # any error: the exception that is kept is what is raised


class _Part:
    """What one context computes: the values and gradients of its rows, and the update by the
    averages."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.value: Any = None
        self.gradients: Any = None
        self.derive: Any = None
        self.update: Any = None

    def record(self, batch: Any, function: Callable[[], Any], count: int, out: Any) -> None:
        self.derive = tape = _tape.BorrowedTape(self.context, batch)

        def trace() -> None:
            made = function()
            if not isinstance(made, tuple) or len(made) != 2:
                raise TypeError('record gives a value and gradients, as kiln.value_and_grad() does')
            self.value, self.gradients = present(made)
            given = [as_tensor(leaf, self.context) for leaf in leaves_of(self.gradients)]
            if len(given) != count:
                raise ValueError(f'record gives {len(given)} gradients, not {count}')
            for i, gradient in enumerate(given):
                out[i] = tape.handle(gradient)
            tape.reads = {leaf: new_array(leaf) for leaf in leaves_of(self.value)
                          if isinstance(leaf, Tensor)}
            tape.finish_recording()
        _tape.trace(tape, trace)

    def record_update(self, batch: Any, function: Callable[[Any], Any], count: int,
                      averages: Any) -> None:
        self.update = tape = _tape.BorrowedTape(self.context, batch)

        def trace() -> None:
            given = [placed(tape, averages[i]) for i in range(count)]
            function(rebuilt(self.gradients, iter(given)))
            tape.finish_recording()
        _tape.trace(tape, trace)

    def note_step(self) -> None:
        self.derive.note_written()
        self.update.note_written()

    def result(self) -> Any:
        """The value of the last step, as tensors that stay as they are."""
        leaves = [of_array(self.derive.reads[leaf].copy(), self.context, leaf.dtype)
                  if isinstance(leaf, Tensor) else leaf for leaf in leaves_of(self.value)]
        return rebuilt(self.value, iter(leaves))


class Parallel:
    """Training on several contexts at once, all different: each has the same weights, in buffers of
    its own, and derives the loss of its own share of the rows; each updates its weights by the
    averages of all gradients.

    `record(i)` gives what context number i computes: a value, such as the loss, as the mean over
    its rows, and its gradients, as kiln.value_and_grad() does. These are so many tensors of f32 as
    `gradients` says, nested as one likes, of the same shapes in all contexts.
    `update(i, gradients)` gets the averages in the same structure, and writes the buffers of
    context i, by optimiser or by hand. Both are called once for each context, when it is made, and
    never later. Arrays among what `record` uses are borrowed: fill them with other rows between
    steps.

    `shares` says how much each context counts in the averages, such as how many rows it has;
    without it all count the same. With `ranks`, a kiln.Ranks, other processes train with this one:
    all of them make it, and each step, and shares are of all contexts together. Any thread may make
    a step, which waits for another's.

    With `weights` and `shards` each rank keeps a part of what optimisers remember: `weights` are the
    buffers that the gradients of all contexts are derivatives by, one context after the other and
    in the gradients' order, `shards` what Ranks.shards() made of them. `update` then gets flat
    gradients of the shards, and writes these; after it the weights have all shards of all ranks.
    """

    def __init__(self, record: Callable[[int], Any], update: Callable[[int, Any], Any],
                 contexts: Sequence[Context], gradients: int = 1, *,
                 shares: Optional[Sequence[float]] = None,
                 ranks: Optional[Ranks] = None, weights: Any = None, shards: Any = None) -> None:
        self._ranks = ranks  # held
        self._weights: list[Any] = leaves_of(weights) if weights is not None else []
        self._shards: list[Any] = leaves_of(shards) if shards is not None else []
        self._parts = [_Part(context) for context in contexts]
        # Who makes a step may come here again in a signal handler or a finaliser.
        self._lock = threading.RLock()
        if shares is not None and len(shares) != len(self._parts):
            raise ValueError(f'{len(shares)} shares for {len(self._parts)} contexts')
        for given in self._weights, self._shards:
            if not all(isinstance(leaf, Buffer) for leaf in given):
                raise TypeError('weights and shards are kiln.Buffers')
            if given and len(given) != len(self._parts) * gradients:
                raise ValueError(f'{len(given)} weights or shards for {gradients} gradients of '
                                 f'{len(self._parts)} contexts')
        errors: list[BaseException] = []

        def called(function: Callable[[Any, int, Any], None]) -> Any:
            def callback(batch: Any, i: int, tensors: Any, _: Any) -> int:
                try:
                    function(batch, i, tensors)
                    return 0
                except BaseException as error:  # nothing may go through the library's frames
                    errors.append(error)
                    return _FAILED
            return _CALLBACK(callback)

        self._owned = self._create(
            called(lambda batch, i, out: self._parts[i].record(
                batch, lambda: record(i), gradients, out)),
            called(lambda batch, i, averages: self._parts[i].record_update(
                batch, lambda given: update(i, given), gradients, averages)),
            gradients, shares, errors)

    def _create(self, record: Any, update: Any, gradients: int, shares: Optional[Sequence[float]],
                errors: list[BaseException]) -> Owned:
        training = initialised('KILN_TRAINING_INIT')
        training.record = ctypes.cast(record, ctypes.c_void_p).value
        training.update = ctypes.cast(update, ctypes.c_void_p).value
        training.gradient_count = gradients
        training.reducer = self._ranks and self._ranks._reducer()
        numbers = (ctypes.c_double * len(self._parts))(*(shares or ()))
        training.shares = None if shares is None else ctypes.addressof(numbers)
        lists = [pointers([b._owned for b in given]) if given else None
                 for given in (self._weights, self._shards)]
        training.weights, training.shards = [
            given and ctypes.cast(given, ctypes.c_void_p).value for given in lists]
        made = Owned(lib.kiln_parallel_release)
        held = [part.context._held() for part in self._parts]
        status = lib.kiln_parallel_create(pointers(held), len(held), ctypes.byref(training), made.out)
        if errors:
            raise errors[0]
        check(status)
        return made

    def step(self) -> list[Any]:
        """Make one step on all contexts, and wait for it. Gives what `record` gave as the value, as
        it is now, for each context. After an error before the update no weights have changed, and
        the step may be tried again; an error of the update says so, and no step is made after it:
        restore weights and optimisers, and make another Parallel."""
        _tape.refuse_while_tracing('a step is made')
        with self._lock:
            if self._owned.pointer is None:
                raise Error('WRONG_STATE', 'the training is closed')
            if self._ranks is not None:
                self._ranks._reducer()  # there still, or an error
            for part in self._parts:
                part.note_step()
            for buffer in self._weights:
                buffer._version += 1
            check(lib.kiln_parallel_step(self._owned))
            return [part.result() for part in self._parts]

    def close(self) -> None:
        """End its threads and release it; weights and optimisers stay."""
        with self._lock:
            self._owned.close()

    def __enter__(self) -> Parallel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
