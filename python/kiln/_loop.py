# SPDX-License-Identifier: Apache-2.0
"""Loops on the device: a step is recorded once, and taken many times."""
from __future__ import annotations

import ctypes
import operator
from typing import Any, Callable, Optional, Sequence

from . import _tape
from ._context import Context, default_context
from ._library import Handle, lib, struct
from ._record import find_context, several
from ._tape import Expression
from ._tensor import Tensor, as_tensor, make, present
from ._tree import leaves_of, rebuilt

__all__ = ['loop', 'scan', 'while_loop']


class _Loop:
    """A loop's call in C, from what its step was recorded with and gave."""

    def __init__(self, steps: int, states: Sequence[Tensor], following: Sequence[Tensor],
                 elements: Sequence[Tensor], outputs: Sequence[Tensor], step: Optional[Tensor],
                 until: Optional[Tensor], reverse: bool) -> None:
        self._steps, self._reverse = steps, reverse
        self._counts = len(states), len(elements), len(outputs)
        self.operands = (*states, *following, *elements, *outputs, step, until)

    @property
    def results(self) -> int:
        return self._counts[0] + self._counts[2]

    def enter(self, batch: Any, handles: list[Any]) -> list[Any]:
        states, elements, outputs = self._counts
        given = [(Handle * max(count, 1))() for count in (states, states, elements, outputs)]
        source = iter(handles)
        for array, count in zip(given, (states, states, elements, outputs)):
            for k in range(count):
                array[k] = next(source)
        options = struct('kiln_loop_options')()
        options.size, options.steps = ctypes.sizeof(options), self._steps
        options.state_count, options.element_count, options.output_count = self._counts
        for name, array in zip(('states', 'next', 'elements', 'outputs'), given):
            setattr(options, name, ctypes.addressof(array))
        options.step, options.until = next(source), next(source)
        options.reverse = self._reverse
        last, stacked = (Handle * states)(), (Handle * max(outputs, 1))()
        lib.kiln_loop(batch, ctypes.byref(options), last, stacked)
        return [Handle(each.id) for each in (*last, *stacked[:outputs])]


def _structure(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _structure(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(*map(_structure, tree)) if hasattr(tree, '_fields') else \
            type(tree)(map(_structure, tree))
    return None if tree is None else '*'


def _check_structure(first: Any, after: Any) -> None:
    before, behind = _structure(first), _structure(after)
    if before != behind or type(before) is not type(behind):
        raise TypeError(f'the state is {before!r} at first and {behind!r} after a step, '
                        'a * for each value')


def _following(value: Any, state: Tensor, context: Context) -> Tensor:
    """A state after a step; a number is one of the state's type."""
    if isinstance(value, (bool, int, float)):
        from ._creation import full
        return full(state.shape, value, dtype=state.dtype, context=context)
    return as_tensor(value, context)


def _record(steps: Any, function: Callable[[Any, Any, Any], Any], state: Any, xs: Any,
            until: Optional[Callable[[Any], Any]], reverse: bool) -> tuple[Any, ...]:
    """The state behind the last step, and what all have left."""
    steps = operator.index(steps)
    if steps < 0:
        raise ValueError(f'{steps} steps')
    given, along = present(leaves_of(state)), present(leaves_of(xs))
    context = find_context([*given, *along]) or default_context()
    first = [as_tensor(leaf, context) for leaf in given]
    if not first:
        raise TypeError('the state has no value')
    places = [make(context, Expression((x,), lambda b, h: lib.kiln_loop_state(b, h[0])))
              for x in first]
    elements = [make(context, Expression((as_tensor(x, context),),
                                         lambda b, h: lib.kiln_loop_element(b, h[0])))
                for x in along]
    step = make(context, Expression((), lambda b, h: lib.kiln_loop_step(b)))

    def trace() -> tuple[Any, ...]:
        now = rebuilt(state, iter(places))
        ended = None if until is None else as_tensor(present(until(now)), context)
        after, left = function(step, now, rebuilt(xs, iter(elements)))
        return ended, present(after), present(left)
    ended, after, left = _tape.trace(None, trace)
    _check_structure(state, after)
    following = [_following(leaf, place, context) for leaf, place in zip(leaves_of(after), places)]
    outputs = [as_tensor(leaf, context) for leaf in leaves_of(left)]
    call = _Loop(steps, places, following, elements, outputs, step, ended, reverse)
    results = several(context, call.operands, call.enter, call.results)
    return (rebuilt(state, iter(results[:len(places)])),
            rebuilt(left, iter(results[len(places):])))


def loop(n: int, function: Callable[[Tensor, Any], Any], state: Any, *,
         until: Optional[Callable[[Any], Any]] = None) -> Any:
    """Take `n` steps: state = function(i, state), for i = 0 to n - 1; the last state.

        x = kiln.loop(1000, lambda i, x: x - 0.1 * kiln.tanh(x), x)

    The state is a tensor, an array, a number, or a list, tuple or dict of them, nested as one likes;
    each keeps its shape and type. The function runs once, to be recorded: no value can be asked for
    in it, and numbers of kiln.random are the same in every step. i is an i32.

    A step of elementwise operations, on values of one shape or of one element, becomes one kernel
    with the loop inside. Others are recorded `n` times if they are few operations, else planned once
    and run `n` times. There are gradients of both; where steps are not in a kernel, of 65,536
    operations in all.

    `until` is a condition on the state, such as lambda x: abs(x) < 1e-6: a step is not taken where
    it holds, nor any behind it. Of the state's shape it ends the loop for each element by itself.
    NaN compares as false.
    """
    return _record(n, lambda i, now, x: (function(i, now), None), state, None, until, False)[0]


def while_loop(condition: Callable[[Any], Any], function: Callable[[Any], Any], state: Any,
               limit: int) -> Any:
    """Take steps, state = function(state), while condition(state) holds, and `limit` steps at most;
    the last state. See kiln.loop(), of which it is the opposite of `until`. Whoever wants to know
    how many steps there were counts them in the state."""
    def until(now: Any) -> Any:
        from . import _operations
        return _operations.logical_not(condition(now))
    return loop(limit, lambda i, now: function(now), state, until=until)


def scan(function: Callable[[Any, Any], Any], state: Any, xs: Any = None,
         length: Optional[int] = None, reverse: bool = False) -> tuple[Any, ...]:
    """Take a step for each x along the first dimension of `xs`: state, y = function(state, x). The
    last state, and the y of all steps, stacked along a first dimension.

        total, sums = kiln.scan(lambda s, x: (s + x, s + x), 0.0, xs)

    xs, and y, are a tensor or a list, tuple or dict of them, or None; `length` is needed where there
    is no xs. `reverse` begins with the last x; what is stacked stays beside its x. The rest is as
    kiln.loop() says.
    """
    lengths = {leaf.shape[0] if leaf.shape else None
               for leaf in map(_with_shape, leaves_of(xs))}
    if length is not None:
        lengths.add(operator.index(length))
    if len(lengths) != 1 or None in lengths:
        raise ValueError('scan() takes as many steps as xs has along the first dimension, all alike, '
                         f'or length says; here {sorted(map(str, lengths)) or "nothing does"}')
    return _record(lengths.pop(), lambda i, now, x: function(now, x), state, xs, None, reverse)


def _with_shape(leaf: Any) -> Any:
    import numpy as np
    return leaf if hasattr(leaf, 'shape') else np.asarray(leaf)
