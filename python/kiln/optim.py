# SPDX-License-Identifier: Apache-2.0
"""Optimisers: how parameters, which are buffers, follow their gradients; and schedules of their rates."""
from __future__ import annotations

import bisect
import ctypes
import math
from typing import Any, Callable, Optional, Sequence

from . import _tape
from ._buffer import Buffer
from ._library import Error, Handle, Owned, check, initialised, lib, pointers
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
        self._initial: Optional[float] = None  # the rate that its first schedule found

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


# ---- schedules, as torch.optim.lr_scheduler has them ----

def _refuse_while_recording() -> None:
    if _tape.is_tracing():
        raise Error('WRONG_STATE', 'a schedule steps while a kiln.function or the like records, which '
                                   'happens once: step it behind each call')


class LRScheduler:
    """An optimiser's learning rate as a function of the steps taken: the rate at first is `initial`, the
    one that the optimiser had when the first of its schedules was made, times factor(0). Call step()
    behind each epoch or step, outside of what a kiln.function records: a recording has the rate of the
    moment in which it runs."""

    def __init__(self, optimizer: Optimizer) -> None:
        if optimizer._initial is None:
            optimizer._initial = optimizer.learning_rate
        self.optimizer, self.initial = optimizer, optimizer._initial
        self.last_epoch = 0
        optimizer.learning_rate = self.rate(0)

    def rate(self, epoch: int) -> float:
        """The learning rate behind so many steps."""
        return self.initial * self.factor(epoch)

    def factor(self, epoch: int) -> float:
        """The share of the initial rate behind so many steps."""
        raise NotImplementedError

    def step(self) -> None:
        """One step further."""
        _refuse_while_recording()
        self._go_to(self.last_epoch + 1)

    def _go_to(self, epoch: int) -> None:
        self.optimizer.learning_rate = self.rate(epoch)
        self.last_epoch = epoch

    def get_last_lr(self) -> list[float]:
        """The rate that it has set, in a list, as PyTorch has it."""
        return [self.rate(self.last_epoch)]

    def state_dict(self) -> dict[str, Any]:
        """What load_state_dict() takes to go on here."""
        return {'last_epoch': self.last_epoch, 'initial': self.initial}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another schedule of this kind was; the optimiser has its rate."""
        self.initial = self.optimizer._initial = float(state['initial'])
        self._go_to(int(state['last_epoch']))


def _steps(name: str, count: int) -> int:
    if count < 1:
        raise ValueError(f'{name} is a number of steps, from 1 on, not {count}')
    return count


class LambdaLR(LRScheduler):
    """The initial rate times lr_lambda(steps)."""

    def __init__(self, optimizer: Optimizer, lr_lambda: Callable[[int], float]) -> None:
        self.lr_lambda = lr_lambda
        super().__init__(optimizer)

    def factor(self, epoch: int) -> float:
        return self.lr_lambda(epoch)


class StepLR(LRScheduler):
    """The rate times gamma, every step_size steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = _steps('step_size', step_size), gamma
        super().__init__(optimizer)

    def factor(self, epoch: int) -> float:
        return float(self.gamma ** (epoch // self.step_size))


class ExponentialLR(StepLR):
    """The rate times gamma, every step."""

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        super().__init__(optimizer, 1, gamma)


class MultiStepLR(LRScheduler):
    """The rate times gamma, at each of these numbers of steps."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer)

    def factor(self, epoch: int) -> float:
        return float(self.gamma ** bisect.bisect_right(self.milestones, epoch))


class LinearLR(LRScheduler):
    """From start_factor to end_factor of the initial rate in total_iters steps: to warm up, say."""

    def __init__(self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0,
                 total_iters: int = 5) -> None:
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = _steps('total_iters', total_iters)
        super().__init__(optimizer)

    def factor(self, epoch: int) -> float:
        share = min(epoch, self.total_iters) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * share


class CosineAnnealingLR(LRScheduler):
    """From the initial rate to eta_min in T_max steps, along half a cosine (I. Loshchilov and F. Hutter,
    ICLR 2017), and back in the next."""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        self.T_max, self.eta_min = _steps('T_max', T_max), eta_min
        super().__init__(optimizer)

    def rate(self, epoch: int) -> float:
        """The learning rate behind so many steps."""
        share = (1 + math.cos(math.pi * epoch / self.T_max)) / 2
        return self.eta_min + (self.initial - self.eta_min) * share


class SequentialLR(LRScheduler):
    """One schedule of the same optimiser after another: the next begins at each of these numbers of steps."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]) -> None:
        if len(schedulers) != len(milestones) + 1 or sorted(milestones) != list(milestones) or any(s.optimizer is not optimizer for s in schedulers):
            raise ValueError(f'{len(schedulers)} schedules, of this optimiser all, have {len(schedulers) - 1} '
                             f'milestones between them, in order, not {list(milestones)}')
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        super().__init__(optimizer)

    def rate(self, epoch: int) -> float:
        """The learning rate behind so many steps."""
        i = bisect.bisect_right(self.milestones, epoch)
        return self.schedulers[i].rate(epoch - (self.milestones[i - 1] if i else 0))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for schedule in self.schedulers:
            schedule.initial = float(state['initial'])
        super().load_state_dict(state)


class ReduceLROnPlateau:
    """The rate times `factor`, but `min_lr` at least, when more than `patience` values in a row were no better
    than the best one: lower, or with mode "max" higher, by the share `threshold` of it, or with
    threshold_mode "abs" by `threshold` itself. The next `cooldown` values do not count then. step(value)
    stands behind each epoch, outside of what a kiln.function records; NaN is no better than any."""

    _KEPT = ('best', 'num_bad_epochs', 'cooldown_counter', 'last_epoch')

    def __init__(self, optimizer: Optimizer, mode: str = 'min', factor: float = 0.1, patience: int = 10,
                 threshold: float = 1e-4, threshold_mode: str = 'rel', cooldown: int = 0, min_lr: float = 0.0,
                 eps: float = 1e-8) -> None:
        if not factor < 1:
            raise ValueError(f'factor is below 1, not {factor}')
        if mode not in ('min', 'max') or threshold_mode not in ('rel', 'abs'):
            raise ValueError(f'mode is "min" or "max", threshold_mode "rel" or "abs", not {mode!r} and '
                             f'{threshold_mode!r}')
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.min_lr, self.eps = cooldown, min_lr, eps
        self.best = math.inf if mode == 'min' else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0

    def _is_better(self, value: float) -> bool:
        sign = 1 if self.mode == 'min' else -1
        if self.threshold_mode == 'abs':
            return sign * value < sign * self.best - self.threshold
        return sign * value < sign * self.best * (1 - sign * self.threshold)

    def step(self, metrics: Any) -> None:
        """One step further, with what is to become better: a number, or a tensor of one."""
        _refuse_while_recording()
        value = float(metrics)
        self.last_epoch += 1
        if self._is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            rate = self.optimizer.learning_rate
            lower = max(rate * self.factor, self.min_lr)
            if rate - lower > self.eps:
                self.optimizer.learning_rate = lower
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def get_last_lr(self) -> list[float]:
        """The optimiser's rate, in a list, as PyTorch has it."""
        return [self.optimizer.learning_rate]

    def state_dict(self) -> dict[str, Any]:
        """What load_state_dict() takes to go on here."""
        return {'rate': self.optimizer.learning_rate, **{name: getattr(self, name) for name in self._KEPT}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another one was; the optimiser has its rate."""
        for name in self._KEPT:
            setattr(self, name, state[name])
        self.optimizer.learning_rate = float(state['rate'])
