# SPDX-License-Identifier: Apache-2.0
"""Gradients of functions."""
from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Callable, Sequence, Union

from . import _tape
from ._context import default_context
from ._library import Error, Handle, lib
from ._record import find_context
from ._tape import Expression, Tape, is_tensor
from ._tensor import Tensor, as_tensor, evaluate_on_device, learn_shape, make, present
from ._tree import Named, leaves_of, opened, rebuilt, tree_map
from ._types import P

if TYPE_CHECKING:
    from ._buffer import Buffer


class _Gradient(Expression):
    """The gradients of a loss by some tensors. It holds the loss's expression itself: the tensors on
    the way may get their values, and lose theirs, before the gradients are wanted."""

    __slots__ = ('between',)

    def __init__(self, loss: Tensor, inputs: Sequence[Tensor]) -> None:
        super().__init__((loss, *inputs), lib.kiln_grad)
        self.between = _between(loss, inputs)

    def enter_upon(self, tape: Tape, handles: list[Any]) -> list[Any]:
        count = len(handles) - 1
        out = (Handle * max(count, 1))()
        try:
            _tape.calling_back(tape, lib.kiln_grad, tape.batch, handles[0],
                               (Handle * max(count, 1))(*handles[1:]), count, out)
        except BaseException:  # of a kernel's gradient, amid the recording
            tape.renew()
            raise
        return [Handle(out[i].id) for i in range(count)]

    def enter(self, tape: Tape) -> list[Any]:
        loss, *inputs = self.operands
        handles = {x: tape.handle(x) for x in inputs}
        self._enter_between(tape, loss, handles)
        return self.enter_upon(tape, [handles[x] for x in self.operands])

    def _enter_between(self, tape: Tape, loss: Tensor, handles: dict[Any, Any]) -> None:
        """Record everything between the inputs and the loss upon the inputs' own handles."""
        outputs: dict[Any, list[Any]] = {}
        stack = [loss]
        while stack:
            top = stack[-1]
            expression = self.between.get(top)
            if top in handles:
                stack.pop()
            elif expression is None:
                handles[top] = tape.handle(top)
            else:
                missing = [o for o in expression.operands if is_tensor(o) and o not in handles]
                if missing:
                    stack.extend(missing)
                    continue
                if top._output is None or expression not in outputs:
                    made = expression.enter_upon(tape, [
                        handles[o] if is_tensor(o) else tape.operand(o) for o in expression.operands])
                    outputs[expression] = made
                made = outputs[expression]
                handles[top] = made if top._output is None else made[top._output]


def _between(loss: Tensor, inputs: Sequence[Tensor]) -> dict[Tensor, Expression]:
    """The expressions that lead from the inputs to the loss."""
    ends = set(map(id, inputs))
    found: dict[Tensor, Expression] = {}
    stack = [loss]
    while stack:
        top = stack.pop()
        if id(top) in ends or top in found or top._expression is None:
            continue
        found[top] = top._expression
        stack.extend(o for o in top._expression.operands if is_tensor(o))
    return found


def gradients(loss: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The gradient of a loss by each of some tensors that it was computed from just now."""
    if not inputs:
        return []
    expression = _Gradient(loss, inputs)
    made = [Tensor(loss._context, expression, i) for i in range(len(inputs))]

    def record(tape: Tape) -> None:
        # All of it was recorded in this batch a moment ago.
        handles = expression.enter_upon(tape, [tape.handle(x) for x in expression.operands])
        if not all(handle.id for handle in handles):
            tape.fail()
        tape.outputs[expression] = handles
        for tensor, handle in zip(made, handles):
            tape.handles[tensor] = handle
            learn_shape(tensor, tape.batch, handle)
    _tape.recorded(loss._context, record)
    return made


def value_and_grad(function: Callable[P, Any], argnums: Union[int, Sequence[int]] = 0,
                   has_aux: bool = False) -> Callable[P, tuple[Any, Any]]:
    """A function that computes what `function` does, one number, and its gradient by the argument
    number `argnums`, or by several: (value, gradient).

    Such an argument is a tensor, a buffer, an array, or a list, tuple or dict of them, and the
    gradient has its structure. Inside, the function gets tensors in their place. Of a kiln.nn.Module
    the gradient is {name: tensor}, by the parameters that are not frozen: the function gets the
    module itself, and in this thread tensors stand for its parameters meanwhile. With `has_aux` it
    gives (value, something else), and the result is ((value, something else), gradient).

    No value can be asked for while the function is derived; what it computes otherwise may be.
    Buffers that the function writes, such as running averages, are written when it has been derived;
    outside a kiln.function and a `with kiln.batch()` that runs everything at once.
    """
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(function)
    def derived(*arguments: P.args, **named: P.kwargs) -> tuple[Any, Any]:
        by = [arguments[n] for n in numbers]
        structure = opened(by)
        leaves = leaves_of(structure)
        context = find_context(leaves) or find_context(leaves_of(arguments)) or default_context()
        # One of the caller's tensors given twice is two inputs, each with its own gradient.
        inputs = [_input(leaf, context) for leaf in leaves]
        source = iter(inputs)
        stand_for: dict[Buffer, Tensor] = {}

        def inside(leaf: Any) -> Any:
            if not isinstance(leaf, Named):
                return next(source)
            stand_for.update((parameter, next(source)) for parameter in leaf._values().values())
            return leaf
        given: Any = list(arguments)
        for n, value in zip(numbers, tree_map(inside, by)):
            given[n] = value

        def trace() -> tuple[Any, ...]:
            result = function(*given, **named)
            loss = as_tensor(result[0] if has_aux else result, context)
            return result, loss, [_hooked(leaf, g) for leaf, g in zip(leaves, gradients(loss, inputs))]
        writes: dict[Buffer, Tensor] = {}
        result, loss, made = _tape.trace(None, trace, stand_for, writes)
        _write(writes, present([*leaves_of(result), loss, *made]))
        gradient = rebuilt(structure, iter(made))
        gradient = gradient[0] if isinstance(argnums, int) else tuple(gradient)
        return ((loss, result[1]) if has_aux else loss), gradient
    return derived


def _hooked(leaf: Any, gradient: Tensor) -> Tensor:
    """What the hooks of a buffer make of the gradient by it."""
    for hook in getattr(leaf, '_hooks', ()):
        changed = as_tensor(hook.pass_on(gradient), gradient._context)
        if changed.shape != gradient.shape:
            raise Error('SHAPE_MISMATCH', f'a hook gives {list(changed.shape)} for a gradient {list(gradient.shape)}')
        gradient = changed
    return gradient


def _write(writes: dict[Buffer, Tensor], tensors: Sequence[Any]) -> None:
    """Have buffers written that the function has written while it was derived: by what records it, else
    now, and what else it gave is computed in the same run."""
    if writes and not _tape.is_recording():
        evaluate_on_device([t for t in tensors if isinstance(t, Tensor)], writes)
        return
    for buffer, content in writes.items():
        buffer[...] = content


def _input(leaf: Any, context: Any) -> Tensor:
    """A tensor of its own for an argument, of the same value."""
    source = as_tensor(leaf, context)
    if not source.dtype.is_floating:
        raise TypeError(f'a gradient by a tensor of {source.dtype.name}: only floating types have one')
    return make(context, Expression((source,), lambda b, h: lib.kiln_cast(b, h[0], 1)))


def grad(function: Callable[P, Any], argnums: Union[int, Sequence[int]] = 0) -> Callable[P, Any]:
    """A function that computes the gradient of `function`, which gives one number, by the argument
    number `argnums`, or by several. See kiln.value_and_grad()."""
    both = value_and_grad(function, argnums)

    @functools.wraps(function)
    def derived(*arguments: P.args, **named: P.kwargs) -> Any:
        return both(*arguments, **named)[1]
    return derived
