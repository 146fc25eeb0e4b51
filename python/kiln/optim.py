# SPDX-License-Identifier: Apache-2.0
"""Optimisers: how parameters, which are buffers, follow their gradients."""
from __future__ import annotations

import ctypes
from typing import Any

from . import _tape
from ._buffer import Buffer
from ._library import Handle, Owned, check, initialised, lib, pointers
from ._record import find_context
from ._tensor import as_tensor
from ._tree import leaves_of, opened


class Optimizer:
    """Parameters with what their method remembers about them, on the device.

    `parameters` is a buffer of a floating type, a kiln.nn.Module, which stands for those of its
    parameters that are not frozen, or a list, tuple or dict of them. `step(gradients)`,
    with gradients in the same structure, updates them in place: when the batch runs, inside a
    `with kiln.batch()` or a kiln.function, and at once elsewhere. What else that batch computes sees
    the parameters before the step.
    """

    def __init__(self, macro: str, parameters: Any, fields: dict[str, Any]) -> None:
        self.parameters: list[Buffer] = leaves_of(opened(parameters))
        if not self.parameters or not all(isinstance(p, Buffer) for p in self.parameters):
            raise TypeError('an optimiser updates kiln.Buffers')
        options = initialised(macro)
        for field, value in fields.items():
            setattr(options, field, value)
        context = find_context(self.parameters)
        assert context is not None
        self._context = context
        self._owned = Owned(lib.kiln_optimizer_release)
        check(lib.kiln_optimizer_create(self._context._held(), ctypes.byref(options),
                                        len(self.parameters),
                                        pointers([p._owned for p in self.parameters]),
                                        self._owned.out))
        self._rate: float = options.learning_rate

    def step(self, gradients: Any) -> None:
        """Update the parameters by these gradients."""
        given = [as_tensor(g, self._context) for g in leaves_of(gradients)]
        if len(given) != len(self.parameters):
            raise ValueError(f'{len(given)} gradients for {len(self.parameters)} parameters')

        def effect(tape: _tape.Tape) -> None:
            handles = [tape.handle(g) for g in given]
            if lib.kiln_optimizer_step(tape.batch, self._owned,
                                       (Handle * len(handles))(*handles)):
                tape.fail()
            tape.borrowed.append(self)

        def request(tape: _tape.Tape) -> None:
            tape.write_by(effect, self.parameters)
        tape = _tape.explicit_tape(self._context)
        if tape is not None:
            request(tape)
        else:
            _tape.refuse_while_tracing('an optimiser steps')
            _tape.run_now(self._context, request)

    @property
    def learning_rate(self) -> float:
        """The learning rate; another one costs nothing, also in functions recorded before."""
        return self._rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        check(lib.kiln_optimizer_set_learning_rate(self._owned, rate))
        self._rate = rate

    @property
    def state(self) -> list[Buffer]:
        """The optimiser's own buffers, to save training and go on later: write copies of them, and
        of the parameters, back."""
        count = ctypes.c_size_t()
        owned, context = self._owned, self._context

        def hold(_: Any) -> None:
            """Nothing: that of C goes with the optimiser, `owned`."""
            assert owned
        array = lib.kiln_optimizer_state(owned, ctypes.byref(count))
        buffers = ctypes.cast(array, ctypes.POINTER(ctypes.c_void_p))
        # Each holds the optimiser, which holds the buffer of C.
        return [Buffer._of(context, Owned(hold, buffers[i]))
                for i in range(count.value)]


class SGD(Optimizer):
    """Gradient descent, with momentum (Nesterov's too) and weight decay."""

    def __init__(self, parameters: Any, learning_rate: float = 0.01, momentum: float = 0.0,
                 nesterov: bool = False, weight_decay: float = 0.0) -> None:
        super().__init__('KILN_SGD_INIT', parameters, {
            'learning_rate': learning_rate, 'momentum': momentum, 'nesterov': bool(nesterov),
            'weight_decay': weight_decay})


class Adam(Optimizer):
    """Adam (D. Kingma and J. Ba, ICLR 2015)."""

    def __init__(self, parameters: Any, learning_rate: float = 0.001, beta1: float = 0.9,
                 beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0.0) -> None:
        super().__init__('KILN_ADAM_INIT', parameters, {
            'learning_rate': learning_rate, 'beta1': beta1, 'beta2': beta2, 'epsilon': epsilon,
            'weight_decay': weight_decay})


class AdamW(Optimizer):
    """Adam with decoupled weight decay (I. Loshchilov and F. Hutter, ICLR 2019)."""

    def __init__(self, parameters: Any, learning_rate: float = 0.001, beta1: float = 0.9,
                 beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0.01) -> None:
        super().__init__('KILN_ADAMW_INIT', parameters, {
            'learning_rate': learning_rate, 'beta1': beta1, 'beta2': beta2, 'epsilon': epsilon,
            'weight_decay': weight_decay})
