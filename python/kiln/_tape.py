# SPDX-License-Identifier: Apache-2.0
"""Recording: expressions, and the batches that they are recorded in.

A tensor is an expression over other tensors. It is recorded in the thread's current batch as soon as
it is made, so that a mistake is told by the line that makes it, and a shape is known at once. When a
value is asked for, that batch runs; what is wanted later of an expression that it held, and that
it did not bring a value of, is recorded again in the next batch. So no batch runs twice by surprise,
and most things are recorded once.
"""
from __future__ import annotations

import itertools
import re
import sys
import threading
import weakref
from types import FrameType
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence

import numpy as np

from ._library import EMPTY, Error, Owned, check, lib, name_text, sizes, status_name
from ._types import DType

if TYPE_CHECKING:
    from ._buffer import Buffer
    from ._context import Context
    from ._tensor import Tensor

numbers = itertools.count()  # of tapes and tensors, in the order in which they are made


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

    def __init__(self, operands: Sequence[Any], record: Callable[[Any, list[Any]], Any]) -> None:
        self.operands = operands
        self.record = record

    def enter(self, tape: Tape) -> Any:
        """Record it; its operands are recorded."""
        return self.enter_upon(tape, [tape.operand(o) for o in self.operands])

    def enter_upon(self, tape: Tape, handles: list[Any]) -> Any:
        """Record it upon these handles of its operands."""
        return self.record(tape.batch, handles)


class Tape:
    """A batch that is being recorded, and what it is asked for.

    An exception may come between any two lines: of Ctrl-C, or another of a signal handler. So a tape
    says that it is `torn` before its batch is reset, or the requests are recorded, and whole
    behind that; what is left torn is recorded anew before it runs, and until then nothing is recorded
    in it. The usual tape of a thread (see recorded()) is taken away while it is used, and put
    back when it is whole.
    """

    def __init__(self, context: Context, precision: int = 0, batch_invariant: bool = False,
                 independent: bool = False) -> None:
        self.number = next(numbers)
        self.context = context
        self.precision = precision  # of products; 0: the context's own
        self.batch_invariant, self.independent = batch_invariant, independent
        self.owned = self._batch_of(context)
        self.handles: dict[Tensor, Any] = {}
        self.outputs: dict[Any, list[Any]] = {}
        self.borrowed: list[Any] = []  # memory that the batch reads and writes
        self.imports: list[tuple[Buffer, int]] = []  # with their versions
        self.reads: dict[Tensor, np.ndarray] = {}
        self.exports: dict[Buffer, Tensor] = {}
        self.effects: list[Callable[[Tape], None]] = []
        self.written: set[Buffer] = set()  # by effects
        self.awaited: set[Buffer] = set()  # which are to be written by the next run
        self.keys: dict[Any, tuple[Any, ...]] = {}  # of random numbers, see kiln.random
        self.modes: dict[int, tuple[Any, ...]] = {}  # of modules that were asked whether they train
        self.asked: dict[Any, Any] = {}  # what the batch was asked for: see finish_recording()
        self.torn = False
        self._set_options()

    def _set_options(self) -> None:
        """What a batch forgets when it is reset."""
        if self.precision:
            check(lib.kiln_batch_set_precision(self.batch, self.precision))
        if self.batch_invariant:
            check(lib.kiln_batch_set_batch_invariant(self.batch))
        if self.independent:
            check(lib.kiln_batch_set_independent(self.batch))

    def _batch_of(self, context: Context) -> Any:
        owned = Owned(lib.kiln_batch_release)
        owned.pointer = lib.kiln_batch_create(context._held())
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
            if not lib.kiln_name(self.batch, handle, name_text(name)).id:
                self.fail()

    def _enter_value(self, tensor: Tensor, value: Any) -> Any:
        self.borrowed.append(value)
        if isinstance(value, np.ndarray):
            handle = lib.kiln_upload(self.batch, tensor.dtype.value, tensor.ndim, sizes(tensor.shape),
                                     value.ctypes.data)
        else:
            if tensor._version != value._version:
                raise Error('WRONG_STATE', 'a tensor was made of a buffer that has been written '
                                           'since; ask for its value before that, or make it anew')
            self.imports.append((value, value._version))
            handle = lib.kiln_import(self.batch, value._owned)
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
        self.torn = True
        check(lib.kiln_batch_reset(self.batch))
        self.handles.clear()
        self.outputs.clear()
        self.borrowed.clear()
        self.imports.clear()
        self.asked.clear()
        self._set_options()
        self.torn = False

    def forget_requests(self) -> None:
        self.reads.clear()
        self.exports.clear()
        self.effects.clear()
        self.written.clear()
        self.awaited.clear()
        self.keys.clear()

    def try_out(self, tensor: Tensor) -> None:
        """Have its mistakes told here, not when the batch runs."""
        if not self.torn:
            self.handle(tensor)

    def write(self, buffer: Buffer, tensor: Tensor) -> None:
        """Request that the buffer gets the tensor's value."""
        self.exports[buffer] = tensor
        self.awaited.add(buffer)

    def write_by(self, effect: Callable[[Tape], None], buffers: Sequence[Buffer]) -> None:
        """Request what `effect` records, which writes these buffers."""
        self.effects.append(effect)
        self.written.update(buffers)
        self.awaited.update(buffers)

    # ---- running ----

    def finish_recording(self) -> None:
        """Record the requests that are new since the last time. A buffer takes one result of a
        batch: where that has become another, everything is recorded anew."""
        if self.torn or any(self.asked.get(buffer, tensor) is not tensor
                            for buffer, tensor in self.exports.items()):
            self.renew()
        self.torn = True
        for tensor, array in tuple(self.reads.items()):
            if tensor in self.asked:
                continue
            handle = self.handle(tensor)
            if lib.kiln_read(self.batch, handle, array.ctypes.data, array.nbytes):
                self.fail()
            self.asked[tensor] = array
        for buffer, tensor in tuple(self.exports.items()):
            if buffer in self.asked:
                continue
            handle = self.handle(tensor)
            self.borrowed.append(buffer)
            if lib.kiln_export(self.batch, handle, buffer._owned):
                self.fail()
            self.asked[buffer] = tensor
        for effect in tuple(self.effects):
            if effect not in self.asked:
                effect(self)
                self.asked[effect] = self
        self.torn = False

    def run(self) -> None:
        """Run the batch, with the interpreter's lock given away, and wait for it."""
        self.finish_recording()
        self.note_written()
        check(calling_back(self, lib.kiln_batch_execute, self.batch))
        self.awaited.clear()

    def run_again(self) -> None:
        """Run what has been recorded to its end, and has had no further requests since."""
        if self.torn or self.awaited:
            return self.run()
        self.note_written()
        check(calling_back(self, lib.kiln_batch_execute, self.owned))

    def note_written(self) -> None:
        """It is about to run: what was made of the buffers that it writes is out of date."""
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


class InnerTape(BorrowedTape):
    """What a call of the library has recorded while it records itself: of the same batch, which
    cannot begin again meanwhile."""

    def __init__(self, tape: Tape) -> None:
        self.__dict__.update(tape.__dict__)
        self._borrowed_batch = tape.batch
        self.number = next(numbers)
        self.torn = False  # whose requests are being recorded, perhaps


def is_tensor(operand: Any) -> bool:
    return operand is not None and type(operand) is not Scalar


# ---- the batches of a thread ----

class _Scope:
    """Where a thread records: in the batch of a `with kiln.batch()`, or of what runs in a frame and is
    recorded. It is over with that, also where an exception came before it could be left.

    Some buffers are something else in it: `inputs` stand for parameters that are derived by, and
    `writes`, where it takes any, are what buffers are to hold behind it."""

    __slots__ = ('_tape', '_frame', 'inputs', 'writes')

    def __init__(self, tape: Optional[Tape], frame: Optional[FrameType],
                 inputs: Optional[dict[Buffer, Tensor]] = None,
                 writes: Optional[dict[Buffer, Tensor]] = None) -> None:
        self._tape = None if tape is None else weakref.ref(tape)
        self._frame = frame
        self.inputs = {} if inputs is None else inputs
        self.writes = writes

    @property
    def tape(self) -> Optional[Tape]:
        return None if self._tape is None else self._tape()

    @property
    def traces(self) -> bool:
        """Whether no value can be had in it."""
        return self._frame is not None

    def end(self) -> None:
        """Let go of the frame, which refers to this."""
        self._frame = self._tape = None

    def is_over(self) -> bool:
        if self._frame is None:
            return self.tape is None
        running: Optional[FrameType] = sys._getframe(1)
        while running is not None and running is not self._frame:
            running = running.f_back
        return running is None


class _Thread(threading.local):
    def __init__(self) -> None:
        self.calling: Optional[Tape] = None  # whose batch a call works on that may call back
        self.raised: Optional[BaseException] = None  # by what it called back
        self.name: Optional[str] = None  # of what is made, see kiln.names()
        self.scopes: list[_Scope] = []  # the innermost is the last


thread = _Thread()


def calling_back(tape: Tape, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of the library answers that may call functions of Python's: an exception of one
    goes on here, once the library has returned."""
    own = thread.__dict__  # this thread's, found once
    before = own['calling'], own['raised']
    try:
        own['calling'], own['raised'] = tape, None
        answer = function(*arguments)
        error = own['raised']
    finally:
        own['calling'], own['raised'] = before
    if error is not None:
        raise error
    return answer


def keep_raised(error: BaseException) -> None:
    """What has been raised may not go through the library's frames. On a thread of the library's
    nobody waits for it: there Python says it by itself."""
    if thread.calling is None:
        raise error
    thread.raised = thread.raised or error


def _scopes() -> list[_Scope]:
    """This thread's."""
    scopes = thread.scopes
    while scopes and scopes[-1].is_over():
        scopes.pop()
    return scopes


def begin_block(tape: Tape) -> None:
    """Of a `with kiln.batch()`."""
    _scopes().append(_Scope(tape, None))


def end_block(tape: Tape) -> None:
    scopes = thread.scopes
    scopes[:] = [scope for scope in scopes if scope.tape is not tape]


def trace(tape: Optional[Tape], function: Callable[[], Any],
          inputs: Optional[dict[Buffer, Tensor]] = None,
          writes: Optional[dict[Buffer, Tensor]] = None) -> Any:
    """What `function` gives. What it makes is recorded in the tape, if there is one, and no value can
    be had. A tensor of `inputs` stands for its buffer meanwhile. Where there is no tape that writes
    buffers, what they are to hold goes into `writes`."""
    scope = _Scope(tape, sys._getframe(), inputs, writes)
    scopes = _scopes()
    try:
        scopes.append(scope)
        return function()
    finally:
        if scope in scopes:
            scopes.remove(scope)
        scope.end()


def is_tracing() -> bool:
    return any(scope.traces for scope in _scopes())


def is_recording() -> bool:
    """Whether it traces, or is in a `with kiln.batch()`."""
    return bool(_scopes())


def explicit_tape(context: Context) -> Optional[Tape]:
    """The one of an enclosing `with kiln.batch()` or function, if there is one."""
    for scope in reversed(_scopes()):
        tape = scope.tape
        if tape is not None:
            return tape if tape.context is context else None
    return None


def content(buffer: Buffer) -> Optional[Tensor]:
    """What this thread takes for a buffer's content where it records, if that is not what it holds."""
    has_tape = False
    for scope in reversed(_scopes()):
        if buffer in scope.inputs:
            return scope.inputs[buffer]
        if scope.writes and buffer in scope.writes:
            return scope.writes[buffer]
        tape = scope.tape
        if tape is not None and not has_tape:
            has_tape = True
            if tape.context is buffer._context and buffer in tape.exports:
                return tape.exports[buffer]
    return None


def write(buffer: Buffer, tensor: Tensor) -> bool:
    """Have the buffer written by what this thread records, if that can be."""
    scopes = _scopes()
    if any(buffer in scope.inputs for scope in scopes):
        raise Error('WRONG_STATE', 'a parameter is written while kiln.grad derives by it')
    tape = explicit_tape(buffer._context)
    if tape is not None:
        tape.try_out(tensor)
        tape.write(buffer, tensor)
        return True
    if not scopes or scopes[-1].writes is None:
        return False
    scopes[-1].writes[buffer] = tensor
    return True


def note_mode(module: Any, trains: bool) -> None:
    """What is being recorded depends on whether the module trains."""
    for scope in _scopes():
        tape = scope.tape
        if tape is not None:
            tape.modes[id(module)] = module, trains


def _take_usual_tape(context: Context) -> Tape:
    """The batch of this thread for what is in no `with kiln.batch()`, until it is put back: who
    comes between (a signal handler, a finaliser) has another, and what an exception tears is
    forgotten."""
    return context._thread.__dict__.pop('tape', None) or Tape(context)


def recorded(context: Context, record: Callable[[Tape], Any]) -> Any:
    """What `record` makes in this thread's batch."""
    tape = explicit_tape(context)
    if tape is not None and not tape.torn:
        return record(tape)
    tape = _take_usual_tape(context)
    made = record(tape)
    context._thread.tape = tape
    return made


def run_now(context: Context, request: Callable[[Tape], None]) -> None:
    """Run what `request` asks of this thread's usual batch, which is empty afterwards."""
    tape = _take_usual_tape(context)
    if any(buffer._version != version for buffer, version in tape.imports):
        tape.renew()  # another batch has written it: what is made of it before says so
    request(tape)
    tape.run()
    tape.forget_requests()
    tape.renew()
    context._thread.tape = tape


def refuse_outside(number: int) -> None:
    """A tensor that was made before what records began is not written there: what is recorded may
    run often, or never, and its values are no tensor's of elsewhere."""
    for scope in _scopes():
        tape = scope.tape
        if scope.traces and tape is not None and tape.number > number:
            raise Error('WRONG_STATE', 'a kiln.function, an executor or a kiln.Parallel writes into a '
                                       'tensor from outside: return the new value, or write a '
                                       'kiln.Buffer')


def refuse_while_tracing(what: str) -> None:
    if is_tracing():
        raise Error('WRONG_STATE', f'{what} while a kiln.function, kiln.grad, an executor or a '
                                   'kiln.Parallel records: there is no value yet')
