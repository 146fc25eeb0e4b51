# SPDX-License-Identifier: Apache-2.0
"""Executors: many callers' small requests in full batches."""
from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import math
import sys
import time
import weakref
from collections import deque
from types import SimpleNamespace
from typing import Any, Callable, NamedTuple, Optional, Sequence

import numpy as np

from . import _tape
from ._context import Context, default_context, option_word, values_of
from ._library import (CONSTANTS, STATUS_VALUES, Error, Handle, Owned, by_size, check, initialised,
                       lib, pointers, struct, word)
from ._tensor import Tensor, as_type, placed, present
from ._tree import leaves_of
from ._types import DType, Type, as_dtype, from_raw

_RECORDER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t,
                             ctypes.POINTER(Handle), ctypes.POINTER(Handle), ctypes.c_void_p)
_PRESETS = {'balanced': 'KILN_EXECUTOR_OPTIONS_INIT', 'latency': 'KILN_EXECUTOR_LATENCY_INIT',
            'throughput': 'KILN_EXECUTOR_THROUGHPUT_INIT'}
_NOT_READY = 1
_WRONG_STATE = STATUS_VALUES['WRONG_STATE']
_FAILED = -1  # any error: the exception that is kept is what is raised


class Row(NamedTuple):
    """One row of an input: what a batch of n rows has n of. `shape` is () for one number. Integers
    may be bound to be from 0 to below - 1; with `sequence` the first dimension is the row's length,
    which each request says, and shape[0] the greatest."""

    shape: Sequence[int] = ()
    dtype: Type = 'f32'
    below: int = 0
    sequence: bool = False

_called: dict[int, Future] = {}  # futures whose callbacks are to come, by their tokens
_tokens = itertools.count(1)


def _notified(status: int, token: int) -> None:
    future = _called.get(token)
    if future is not None:
        future._call_back()


_NOTIFIED = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)(_notified)


class Future:
    """The end of one request. `result()` waits for it; `await future` does so in asyncio."""

    def __init__(self, executor: Executor, borrowed: Any,
                 outputs: list[tuple[np.ndarray, DType]]) -> None:
        self._owned = Owned(lib.kiln_future_release)
        self._executor = executor
        self._borrowed = borrowed
        self._outputs = outputs
        # No lock: a callback, a signal handler or a finaliser may come here between any two lines.
        # Whoever takes a function from here calls it.
        self._callbacks: deque[Callable[[Future], None]] = deque()
        self._token = next(_tokens)
        # To what lives while it is being submitted; an interrupt may end that before it has begun.
        self._submission: Callable[[], Any] = lambda: None

    def add_done_callback(self, function: Callable[[Future], None]) -> None:
        """Have `function(future)` called when it has completed: in a thread of the executor, or here
        at once if it has; while it runs, other requests wait. One that raises is told by
        sys.unraisablehook."""
        self._callbacks.append(function)
        _called[self._token] = self  # until then, whoever else forgets it
        status = lib.kiln_future_notify(self._owned, _NOTIFIED, self._token)
        if self.done():
            self._call_back()
        elif status != _WRONG_STATE:  # it is to be called already
            check(status)

    def _call_back(self) -> None:
        """It has completed: call the functions that nobody has called."""
        _called.pop(self._token, None)
        interrupt: Optional[BaseException] = None
        while self._callbacks:
            try:
                self._callbacks.popleft()(self)
            except IndexError:
                pass  # another thread was quicker
            except Exception as error:
                sys.unraisablehook(SimpleNamespace(
                    exc_type=type(error), exc_value=error, exc_traceback=error.__traceback__,
                    err_msg='Exception ignored in a callback of', object=self))
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def done(self) -> bool:
        """Whether it has completed."""
        return bool(lib.kiln_future_poll(self._owned) != _NOT_READY)

    def cancel(self) -> bool:
        """Cancel it, if it still waits; whether it did."""
        cancelled = bool(lib.kiln_future_cancel(self._owned) == 0)
        if cancelled:
            self._call_back()
        return cancelled

    def result(self, timeout: Optional[float] = None) -> Any:
        """What the request computed: an array, or a list where the executor has several outputs.
        Raises kiln.Error if it failed, and TimeoutError after so many seconds."""
        if timeout is not None and math.isnan(timeout):
            raise ValueError('a timeout is a number of seconds, not NaN')
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            # In pieces, so that an interrupt is seen.
            left = 0.2 if end is None else min(0.2, max(0.0, end - time.monotonic()))
            status = lib.kiln_future_wait_for(self._owned, int(left * 1e6))
            if status != _NOT_READY:
                break
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f'the request has not completed after {timeout} s')
        self._executor._forget(self)
        check(status)
        arrays = [from_raw(array, dtype) for array, dtype in self._outputs]
        return arrays[0] if len(arrays) == 1 else arrays

    def exception(self, timeout: Optional[float] = None) -> Optional[Error]:
        """The error that the request ended with, or None; waits as result() does."""
        try:
            self.result(timeout)
        except Error as error:
            return error
        return None

    async def _completed(self) -> Any:
        if not self.done():
            loop = asyncio.get_running_loop()
            ready = loop.create_future()

            def tell() -> None:
                if not ready.done():
                    ready.set_result(None)

            def completed(_: Future) -> None:
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                    loop.call_soon_threadsafe(tell)
            self.add_done_callback(completed)
            await ready
        return self.result()

    def __await__(self) -> Any:
        return self._completed().__await__()


class Executor:
    """Gathers requests of some rows each into batches, on one context or several.

    `function(inputs)` is recorded for batches of several sizes: inputs[i] is a tensor [rows, ...the
    shape of row i], and it gives a tensor [rows, ...], or so many of them as `outputs` says. Rows
    must not depend on each other. It is called when the executor is made, and never later; with
    several contexts it uses the buffers of inputs[0].context. With sequences two more inputs come
    last: each row's length, and a mask.

    `preset` is "balanced", "latency" or "throughput", and `precision` is as kiln.Batch takes it; the
    other options are those of kiln_executor_options, max_wait and retry in seconds. Any thread may submit. At
    the end of a `with` what still waits is run.
    """

    def __init__(self, function: Callable[..., Any], inputs: Sequence[Row], outputs: int = 1, *,
                 contexts: Optional[Sequence[Context]] = None, preset: str = 'balanced',
                 max_batch: Optional[int] = None, min_batch: Optional[int] = None,
                 max_wait: Optional[float] = None, max_queue: Optional[int] = None,
                 prepare: bool = False, precision: Optional[str] = None, retry: Optional[float] = None,
                 close_lengths: bool = False, max_elements: Optional[int] = None) -> None:
        self._contexts = list(contexts) if contexts else [default_context()]
        self._rows = [Row(*row) for row in inputs]
        self._types = [as_dtype(row.dtype) for row in self._rows]
        self._recorded: list[tuple[int, list[Tensor]]] = []
        self._error: Optional[BaseException] = None
        self._waiting: dict[int, Future] = {}
        self._sweep = 64
        options = initialised(_PRESETS[preset])
        for field, value in (('max_batch', max_batch), ('min_batch', min_batch),
                             ('max_queue', max_queue), ('prepare', prepare or None),
                             ('close_lengths', close_lengths or None), ('max_elements', max_elements),
                             ('retry_us', None if retry is None else int(retry * 1e6)),
                             ('max_wait_us', None if max_wait is None else int(max_wait * 1e6))):
            if value is not None:
                setattr(options, field, int(value))
        self._create(function, outputs, options, option_word('precision', precision))
        self._outputs = [self._row_of_output(i) for i in range(outputs)]

    def _create(self, function: Callable[..., Any], outputs: int, options: Any,
                precision: int) -> None:
        rows = (struct('kiln_row') * max(len(self._rows), 1))()
        for entry, row, dtype in zip(rows, self._rows, self._types):
            entry.type, entry.rank = dtype.value, len(row.shape)
            entry.below, entry.sequence = row.below, bool(row.sequence)
            entry.dims = row.shape
        recorder = _RECORDER(lambda *given: self._record(function, outputs, *given))
        model = initialised('KILN_MODEL_INIT')
        model.record = ctypes.cast(recorder, ctypes.c_void_p).value
        model.input_count, model.output_count = len(self._rows), outputs
        model.inputs = ctypes.addressof(rows)
        model.precision = precision
        made = Owned(lib.kiln_executor_release)
        held = [context._held() for context in self._contexts]
        status = lib.kiln_executor_create(pointers(held), len(held), ctypes.byref(model),
                                          ctypes.byref(options), made.out)
        if self._error is not None:
            raise self._error
        check(status)
        self._owned: Optional[Owned] = made

    # ---- recording ----

    def _record(self, function: Callable[..., Any], count: int, batch: Any, context: int, rows: int,
                inputs: Any, outputs: Any, _: Any) -> int:
        """Called by the library: record the function in its batch."""
        try:
            tape = _tape.BorrowedTape(self._contexts[context], batch)
            given = len(self._rows) + (2 if any(row.sequence for row in self._rows) else 0)
            tensors = [placed(tape, inputs[i]) for i in range(given)]
            results = self._record_in(tape, function, tensors)
            if len(results) != count:
                raise ValueError(f'the function gives {len(results)} outputs, not {count}')
            for i, result in enumerate(results):
                outputs[i] = tape.handle(result)
            length = next((t.shape[1] for t, row in zip(tensors, self._rows) if row.sequence), 0)
            self._recorded.append((length, results))
            return 0
        except BaseException as error:  # nothing may go through the library's frames
            self._error = self._error or error
            return _FAILED

    @staticmethod
    def _record_in(tape: Any, function: Callable[..., Any], tensors: list[Tensor]) -> list[Tensor]:
        results: list[Tensor] = _tape.trace(tape, lambda: leaves_of(present(function(tensors))))
        if tape.exports or tape.effects:
            raise Error('WRONG_STATE', 'the function of an executor writes a buffer: batches may '
                                       'run twice')
        return results

    def _row_of_output(self, i: int) -> tuple[tuple[int, ...], DType, bool]:
        """The shape of an output's row, its type, and whether its first dimension is the length."""
        shapes = [(length, results[i].shape) for length, results in self._recorded]
        lengths = all(length and len(shape) > 1 and shape[1] == length for length, shape in shapes)
        return shapes[-1][1][1:], self._recorded[-1][1][i].dtype, lengths

    # ---- requests ----

    def _request(self, arrays: Sequence[Any], length: int) -> tuple[Any, ...]:
        """C's inputs and outputs of a request, its rows, and what holds their memory."""
        if len(arrays) != len(self._rows):
            raise TypeError(f'{len(arrays)} inputs, not {len(self._rows)}')
        given = [as_type(array, dtype) for array, dtype in zip(arrays, self._types)]
        for array, row in zip(given, self._rows):
            wanted = list(row.shape)
            if row.sequence:
                wanted[0] = length or wanted[0]
            if list(array.shape[1:]) != wanted or array.ndim == 0:
                raise ValueError(f'an input has shape {list(array.shape)}, not [rows, '
                                 f'{", ".join(map(str, wanted))}]')
        count = len(given[0])
        greatest = next((row.shape[0] for row in self._rows if row.sequence), 0)
        results = []
        for shape, dtype, sequence in self._outputs:
            shape = (length or greatest, *shape[1:]) if sequence else shape
            results.append((np.empty((count, *shape), dtype.raw), dtype))
        inputs = (struct('kiln_input') * len(given))()
        for entry, array, dtype in zip(inputs, given, self._types):
            entry.data, entry.bytes, entry.type = array.ctypes.data, array.nbytes, dtype.value
        outputs = (struct('kiln_output') * len(results))()
        for entry, (array, dtype) in zip(outputs, results):
            entry.data, entry.bytes, entry.type = array.ctypes.data, array.nbytes, dtype.value
        return inputs, outputs, count, given, results

    @staticmethod
    def _options(priority: str, deadline: float, wait: bool, room: float, length: int) -> Any:
        options = initialised('KILN_REQUEST_OPTIONS_INIT')
        options.priority = word('kiln_priority', priority)
        options.deadline_us = int(deadline * 1e6)
        options.when_full = CONSTANTS['KILN_WHEN_FULL_' + ('WAIT' if wait else 'FAIL')]
        options.room_us = int(room * 1e6)
        options.length = length
        return options

    def submit(self, *arrays: Any, priority: str = 'normal', deadline: float = 0, wait: bool = True,
               room: float = 0, length: int = 0) -> Future:
        """Submit rows: an array [rows, ...] for each input. `priority` is "high", "normal" or "low";
        `deadline` and `room` (how long to wait for room in the queue) are seconds, 0: as long as it
        takes; without `wait` a full queue is BUSY. `length` is that of each row of a sequence.
        The arrays must not change until the request has completed."""
        inputs, outputs, rows, given, results = self._request(arrays, length)
        options = self._options(priority, deadline, wait, room, length)
        future = Future(self, given, results)
        future._submission = weakref.ref(options)
        self._sweep_waiting()
        self._waiting[id(future)] = future  # before the memory is lent
        status = lib.kiln_executor_submit(self._held(), inputs, outputs, rows, ctypes.byref(options),
                                          future._owned.out)
        if status:
            self._forget(future)
        check(status)
        return future

    def run(self, *arrays: Any, length: int = 0) -> Any:
        """Run any number of rows now, spread over all contexts, and wait for them."""
        inputs, outputs, rows, _, results = self._request(arrays, length)
        options = self._options('normal', 0, True, 0, length)
        check(lib.kiln_executor_run(self._held(), inputs, outputs, rows, ctypes.byref(options)))
        made = [from_raw(array, dtype) for array, dtype in results]
        return made[0] if len(made) == 1 else made

    def _sweep_waiting(self) -> None:
        """Let go of the memory of requests that have completed, and that nobody waited for; not of
        one that another thread, or what a signal has interrupted, is about to submit."""
        if len(self._waiting) < self._sweep:
            return
        for future in list(self._waiting.values()):
            submitted = future._owned.pointer or future._submission() is None  # or given up
            if submitted and future.done():
                self._forget(future)
        self._sweep = max(64, 2 * len(self._waiting))

    def _forget(self, future: Future) -> None:
        self._waiting.pop(id(future), None)

    # ---- the rest ----

    def _held(self) -> Owned:
        """What is released when it is closed and nobody holds this any more."""
        owned = self._owned
        if owned is None:
            raise Error('WRONG_STATE', 'the executor is closed')
        return owned

    @property
    def stats(self) -> SimpleNamespace:
        """What it has done so far: requests, batches, fill, wait.p99 and so on."""
        stats = struct('kiln_executor_stats')()
        check(lib.kiln_executor_get_stats(self._held(), *by_size(stats)))
        return values_of(stats)

    def metrics(self, form: str = 'json') -> str:
        """The metrics as text: "json" or "prometheus"."""
        text = Owned(lib.kiln_free)
        check(lib.kiln_executor_metrics(self._held(), word('kiln_metrics_format', form), text.out))
        return text.text()

    def close(self, cancel: bool = False) -> None:
        """Take no more requests; run those that wait, or cancel them, and return when all have
        completed."""
        how = 'KILN_SHUTDOWN_CANCEL' if cancel else 'KILN_SHUTDOWN_DRAIN'
        owned = self._owned
        if owned is None:
            return  # closed already
        check(lib.kiln_executor_shutdown(owned, CONSTANTS[how]))
        self._owned = None
        self._waiting.clear()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        self.close(cancel=kind is not None)
