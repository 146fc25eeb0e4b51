# SPDX-License-Identifier: Apache-2.0
"""Recording: expressions, and the batches that they are recorded in.

A tensor is an expression over other tensors. It is recorded in the thread's current batch as soon as
it is made, so that a mistake is told by the line that makes it, and a shape is known at once. When a
value is asked for, that batch runs; what is wanted later of an expression that it held, and that
it did not bring a value of, is recorded again in the next batch. So no batch runs twice by surprise,
and most things are recorded once.
"""
from __future__ import annotations

import contextlib
import re
import threading
from typing import TYPE_CHECKING, Any, Callable, Iterator, Optional, Sequence

import numpy as np

from ._library import EMPTY, Error, Owned, check, lib, sizes, status_name
from ._types import DType

if TYPE_CHECKING:
    from ._buffer import Buffer
    from ._context import Context
    from ._tensor import Tensor


class Scalar:
    """A number among the operands, of the type that the others have."""

    __slots__ = ('value', 'dtype')

    def __init__(self, value: float, dtype: DType) -> None:
        self.value = value
        self.dtype = dtype


class Expression:
    """What makes a tensor: `record(batch, handles of the operands)` gives its handle, or those of
    several tensors, of which each has its number. Operands are tensors, numbers, or None."""

    __slots__ = ('operands', 'record')

    def __init__(self, operands: Sequence[Any], record: Callable[[Any, list], Any]) -> None:
        self.operands = operands
        self.record = record

    def enter(self, tape: Tape) -> Any:
        """Record it; its operands are recorded."""
        return self.record(tape.batch, [tape.operand(o) for o in self.operands])


class Tape:
    """A batch that is being recorded, and what it is asked for."""

    def __init__(self, context: Context, precision: int = 0, sum_alike: bool = False,
                 run_apart: bool = False) -> None:
        self.context = context
        self.precision = precision  # of products; 0: the context's own
        self.sum_alike, self.run_apart = sum_alike, run_apart
        self.owned = self._batch_of(context)
        self.handles: dict[Tensor, Any] = {}
        self.outputs: dict[Any, list] = {}
        self.borrowed: list[Any] = []  # memory that the batch reads and writes
        self.imports: list[tuple[Buffer, int]] = []  # with their versions
        self.reads: dict[Tensor, np.ndarray] = {}
        self.exports: dict[Buffer, Tensor] = {}
        self.effects: list[Callable[[Tape], None]] = []
        self.written: set[Buffer] = set()
        self.keys: dict[Any, tuple] = {}  # of random numbers, see kiln.random
        self.asked: dict[Any, Any] = {}  # what the batch was asked for: see finish_recording()
        self._set_options()

    def _set_options(self) -> None:
        """What a batch forgets when it is reset."""
        if self.precision:
            check(lib.kiln_batch_set_precision(self.batch, self.precision))
        if self.sum_alike:
            check(lib.kiln_batch_sum_alike(self.batch))
        if self.run_apart:
            check(lib.kiln_batch_run_apart(self.batch))

    def _batch_of(self, context: Context) -> Any:
        with context._held() as pointer:
            owned = Owned(lib.kiln_batch_create(pointer), lib.kiln_batch_release)
        if not owned.pointer:
            raise Error('OUT_OF_HOST_MEMORY', 'no memory for a batch')
        return owned

    @property
    def batch(self) -> Any:
        return self.owned.pointer

    # ---- recording ----

    def operand(self, operand: Any) -> Any:
        if operand is None:
            return EMPTY
        if type(operand) is Scalar:
            handle = lib.kiln_constant(self.batch, operand.dtype.value, operand.value)
            return handle if handle.id else self.fail()
        return self.handle(operand)

    def handle(self, tensor: Tensor) -> Any:
        """The tensor in this batch; recorded there, with what it is made of, if it is not yet."""
        handles = self.handles
        if tensor in handles:
            return handles[tensor]
        stack = [tensor]
        while stack:
            top = stack[-1]
            if top in handles:
                stack.pop()
                continue
            # In this order: a tensor that gets its value in another thread loses its expression then.
            expression, value = top._expression, top._value
            if value is not None:
                handles[top] = self._enter_value(top, value)
                if top._name is not None:
                    self.call(top)
                continue
            if expression is None:
                raise Error('INVALID_HANDLE', 'the tensor is an argument of a kiln.function that '
                                              'has returned, and has no value')
            missing = [o for o in expression.operands if o in handles or not is_tensor(o)]
            if len(missing) != len(expression.operands):
                stack.extend(o for o in expression.operands if is_tensor(o) and o not in handles)
                continue
            self._enter_expression(top, expression)
            if top._name is not None:
                self.call(top)
        return handles[tensor]

    def call(self, tensor: Tensor) -> None:
        """Give the batch the tensor's name, if it has the tensor."""
        handle, name = self.handles.get(tensor), tensor._name
        if handle is not None:
            given = None if name is None else name.encode(errors='replace')
            if not lib.kiln_name(self.batch, handle, given).id:
                self.fail()

    def _enter_value(self, tensor: Tensor, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            handle = lib.kiln_upload(self.batch, tensor.dtype.value, value.ndim, sizes(value.shape),
                                     value.ctypes.data)
        else:
            if tensor._version != value._version:
                raise Error('WRONG_STATE', 'a tensor was made of a buffer that has been written '
                                           'since; ask for its value before that, or make it anew')
            handle = lib.kiln_import(self.batch, value._pointer)
            self.imports.append((value, value._version))
        self.borrowed.append(value)
        return handle if handle.id else self.fail()

    def _enter_expression(self, tensor: Tensor, expression: Expression) -> None:
        if tensor._output is None:
            handle = expression.enter(self)
            if not handle.id:
                self.fail()
            self.handles[tensor] = handle
            return
        outputs = self.outputs.get(expression)
        if outputs is None:
            outputs = expression.enter(self)
            if not all(output.id for output in outputs):
                self.fail()
            self.outputs[expression] = outputs
        self.handles[tensor] = outputs[tensor._output]

    def fail(self) -> Any:
        """Raise the batch's error, and begin it again: what is wanted of it is recorded anew."""
        status = lib.kiln_batch_status(self.batch)
        text = lib.kiln_batch_error(self.batch).decode(errors='replace')
        if not status:  # the call itself refused
            status, text = -1, lib.kiln_last_error().decode(errors='replace')
        self.renew()
        # Which call of the tape it was means nothing here: the traceback names the line.
        raise Error(status_name(status), re.sub(r', call \d+:', ':', text, count=1))

    def renew(self) -> None:
        """Begin the batch again, with the same requests."""
        self.handles.clear()
        self.outputs.clear()
        self.borrowed.clear()
        self.imports.clear()
        self.asked.clear()
        check(lib.kiln_batch_reset(self.batch))
        self._set_options()

    def forget_requests(self) -> None:
        self.reads.clear()
        self.exports.clear()
        self.effects.clear()
        self.written.clear()
        self.keys.clear()

    # ---- running ----

    def finish_recording(self) -> None:
        """Record the requests that are new since the last time. A buffer takes one result of a
        batch: where that has become another, everything is recorded anew."""
        if any(self.asked.get(buffer, tensor) is not tensor
               for buffer, tensor in self.exports.items()):
            self.renew()
        for tensor, array in self.reads.items():
            if tensor in self.asked:
                continue
            handle = self.handle(tensor)
            if lib.kiln_read(self.batch, handle, array.ctypes.data, array.nbytes):
                self.fail()
            self.asked[tensor] = array
        for buffer, tensor in self.exports.items():
            if buffer in self.asked:
                continue
            handle = self.handle(tensor)
            if lib.kiln_export(self.batch, handle, buffer._pointer):
                self.fail()
            self.borrowed.append(buffer)
            self.asked[buffer] = tensor
        for effect in self.effects:
            if effect not in self.asked:
                effect(self)
                self.asked[effect] = self

    def run(self) -> None:
        """Run the batch, with the interpreter's lock given away, and wait for it."""
        self.finish_recording()
        status = lib.kiln_batch_execute(self.batch)
        self.note_written()
        check(status)

    def note_written(self) -> None:
        """It has run: what was made of the buffers that it writes is out of date."""
        for buffer in (*self.exports, *self.written):
            buffer._version += 1


class BorrowedTape(Tape):
    """Over a batch of the library's, which has it recorded, and runs it."""

    def __init__(self, context: Context, batch: Any) -> None:
        self._borrowed_batch = batch
        super().__init__(context)

    def _batch_of(self, context: Context) -> Any:
        return None

    @property
    def batch(self) -> Any:
        return self._borrowed_batch

    def renew(self) -> None:
        """Its error stays: the library asks for it."""


def is_tensor(operand: Any) -> bool:
    return operand is not None and type(operand) is not Scalar


# ---- the batches of a thread ----

class _Thread(threading.local):
    def __init__(self) -> None:
        self.name: Optional[str] = None  # of what is made, see kiln.names()
        self.tapes: list[Tape] = []  # of `with kiln.batch()` and of functions that are recorded
        self.tracing = 0  # why no value can be had now


thread = _Thread()


@contextlib.contextmanager
def tracing(tape: Tape) -> Iterator[None]:
    """What this thread makes inside is recorded in the tape, and no value can be had."""
    thread.tapes.append(tape)
    thread.tracing += 1
    try:
        yield
    finally:
        thread.tracing -= 1
        thread.tapes.remove(tape)


def usual_tape(context: Context) -> Tape:
    """The batch of this thread for what is in no `with kiln.batch()`."""
    tape = getattr(context._thread, 'tape', None)
    if tape is None:
        tape = context._thread.tape = Tape(context)
    return tape


def current_tape(context: Context) -> Tape:
    tapes = thread.tapes
    return tapes[-1] if tapes and tapes[-1].context is context else usual_tape(context)


def explicit_tape(context: Context) -> Optional[Tape]:
    """The one of an enclosing `with kiln.batch()` or function, if there is one."""
    tapes = thread.tapes
    return tapes[-1] if tapes and tapes[-1].context is context else None


def run_now(context: Context, request: Callable[[Tape], None]) -> None:
    """Run what `request` asks of this thread's usual batch, which is empty afterwards."""
    tape = usual_tape(context)
    try:
        if any(buffer._version != version for buffer, version in tape.imports):
            tape.renew()  # another batch has written it: what is made of it before says so
        request(tape)
        tape.run()
    finally:
        tape.forget_requests()
        tape.renew()


def refuse_while_tracing(what: str) -> None:
    if thread.tracing:
        raise Error('WRONG_STATE', f'{what} while a kiln.function, kiln.grad, an executor or a '
                                   'kiln.Parallel records: there is no value yet')
