# SPDX-License-Identifier: Apache-2.0
"""Losses, as PyTorch has them: functions, and modules that call them."""
from __future__ import annotations

from typing import Any, List, Optional, Union

from . import _functions as _f
from . import _operations as _o
from ._library import Error
from ._manipulation import moveaxis
from ._nn_module import Module, shown
from ._record import operands
from ._tensor import Array, Tensor

__all__ = ['BCELoss', 'BCEWithLogitsLoss', 'CrossEntropyLoss', 'HuberLoss', 'KLDivLoss', 'L1Loss', 'MSELoss',
           'NLLLoss', 'SmoothL1Loss', 'binary_cross_entropy', 'binary_cross_entropy_with_logits',
           'cross_entropy', 'huber_loss', 'kl_div', 'l1_loss', 'mse_loss', 'nll_loss', 'smooth_l1_loss']


def _reduced(losses: Tensor, reduction: str) -> Tensor:
    if reduction == 'none':
        return losses
    if reduction not in ('mean', 'sum'):
        raise ValueError(f'reduction is "mean", "sum" or "none", not {reduction!r}')
    return (_o.mean if reduction == 'mean' else _o.sum)(losses, None, False)


def _alike(name: str, input: Array, target: Array) -> List[Tensor]:
    x, y = operands(input, target)
    if x.shape != y.shape:
        raise Error('SHAPE_MISMATCH', f'{name}: input {shown(x)} and target {shown(y)} are of other shapes')
    return [x, y]


def mse_loss(input: Array, target: Array, reduction: str = 'mean') -> Tensor:
    """(input - target)^2, of tensors of one shape."""
    x, y = _alike('mse_loss', input, target)
    return _reduced(_o.square(x - y), reduction)


def l1_loss(input: Array, target: Array, reduction: str = 'mean') -> Tensor:
    """|input - target|, of tensors of one shape."""
    x, y = _alike('l1_loss', input, target)
    return _reduced(abs(x - y), reduction)


def huber_loss(input: Array, target: Array, reduction: str = 'mean', delta: float = 1.0) -> Tensor:
    """d^2 / 2 of d = input - target up to |d| = delta, and delta (|d| - delta / 2) beyond."""
    if not delta > 0:
        raise ValueError(f'delta is above 0, not {delta}')
    x, y = _alike('huber_loss', input, target)
    far = abs(x - y)
    near = _o.minimum(far, delta)
    return _reduced(near * (far - 0.5 * near), reduction)


def smooth_l1_loss(input: Array, target: Array, reduction: str = 'mean', beta: float = 1.0) -> Tensor:
    """huber_loss() / beta, with a delta of beta; l1_loss() where that is 0."""
    if not beta >= 0:
        raise ValueError(f'beta is 0 or above, not {beta}')
    x, y = _alike('smooth_l1_loss', input, target)
    return huber_loss(x, y, reduction, beta) / beta if beta else l1_loss(x, y, reduction)


def kl_div(input: Array, target: Array, reduction: str = 'mean', log_target: bool = False) -> Tensor:
    """target (log(target) - input), of logarithms of probabilities beside probabilities, or with
    `log_target` their logarithms: 0 where the target is. "batchmean" is the sum for each row of the first
    dimension."""
    x, y = _alike('kl_div', input, target)
    some = _o.not_equal(y, 0.0)
    losses = _o.exp(y) * (y - x) if log_target else y * (_o.log(_o.where(some, y, 1.0)) - _o.where(some, x, 0.0))
    if reduction != 'batchmean':
        return _reduced(losses, reduction)
    if not x.ndim:
        raise Error('SHAPE_MISMATCH', f'kl_div: input {shown(x)} has no rows to take the mean of')
    return _o.sum(losses, None, False) / x.shape[0]


def binary_cross_entropy(input: Array, target: Array, weight: Optional[Array] = None,
                         reduction: str = 'mean') -> Tensor:
    """-(target log(input) + (1 - target) log(1 - input)) weight, of probabilities. A logarithm is -100 at
    least, and has no gradient there. binary_cross_entropy_with_logits() is more accurate."""
    x, y = _alike('binary_cross_entropy', input, target)
    y = y.astype('f32')

    def logarithm(p: Tensor) -> Tensor:
        some = _o.not_equal(p, 0.0)
        return _o.where(some, _o.maximum(_o.log(_o.where(some, p, 1.0)), -100.0), -100.0)
    losses = -(y * logarithm(x) + (1 - y) * logarithm(1 - x))
    return _reduced(losses if weight is None else losses * weight, reduction)


def binary_cross_entropy_with_logits(input: Array, target: Array, weight: Optional[Array] = None,
                                     reduction: str = 'mean',
                                     pos_weight: Optional[Array] = None) -> Tensor:
    """-(pos_weight target log(p) + (1 - target) log(1 - p)) weight, p = sigmoid(input), accurate where p
    is next to 0 or 1. Targets are from 0 to 1; the weights broadcast."""
    x, y = _alike('binary_cross_entropy_with_logits', input, target)
    y = y.astype('f32')
    positive = y * _o.softplus(-x)
    if pos_weight is not None:
        positive = positive * pos_weight
    losses = positive + (1 - y) * _o.softplus(x)
    return _reduced(losses if weight is None else losses * weight, reduction)


def _classes_last(name: str, x: Tensor) -> Tensor:
    """Logits [classes], [N, classes] or [N, classes, ...]."""
    if not x.ndim:
        raise Error('SHAPE_MISMATCH', f'{name}: input {shown(x)} has no dimension of classes')
    return x if x.ndim < 3 else moveaxis(x, 1, -1)


def cross_entropy(input: Array, target: Array, weight: Optional[Array] = None,
                  ignore_index: int = -100, reduction: str = 'mean',
                  label_smoothing: float = 0.0) -> Tensor:
    """Minus the logarithm of the probability that softmax gives to the target, of logits [N, classes],
    [N, classes, ...] or [classes]. Targets are integers without the dimension of classes, or
    probabilities of the logits' shape. Those of `ignore_index` do not count; `weight` is one for each
    class. kiln.cross_entropy() is the same with the classes last."""
    x, y = operands(input, target)
    x = _classes_last('cross_entropy', x)
    if y.dtype.is_floating:
        return _of_probabilities(x, _classes_last('cross_entropy', y), weight, reduction, label_smoothing)
    _check_labels('cross_entropy', x, y)
    return _f.cross_entropy(x, y, reduction=reduction, class_weights=weight,
                            label_smoothing=label_smoothing, ignored_label=ignore_index)


def _check_labels(name: str, x: Tensor, y: Tensor) -> None:
    if y.shape != x.shape[:-1]:
        raise Error('SHAPE_MISMATCH', f'{name}: target {shown(y)} is not one for each row, '
                                      f'{list(x.shape[:-1])}, nor of the logits\' shape')


def _of_probabilities(x: Tensor, y: Tensor, weight: Optional[Array], reduction: str,
                      smoothing: float) -> Tensor:
    if x.shape != y.shape:
        raise Error('SHAPE_MISMATCH', f'cross_entropy: probabilities {shown(y)} beside logits {shown(x)}, '
                                      'classes last')
    if smoothing:
        y = y * (1 - smoothing) + smoothing / x.shape[-1]
    losses = -_o.log_softmax(x, -1) * y
    rows = _o.sum(losses if weight is None else losses * weight, -1, False)
    return _reduced(rows, reduction)


def nll_loss(input: Array, target: Array, weight: Optional[Array] = None, ignore_index: int = -100,
             reduction: str = 'mean') -> Tensor:
    """cross_entropy() of logarithms of probabilities, as log_softmax() gives them."""
    x, y = operands(input, target)
    x = _classes_last('nll_loss', x)
    _check_labels('nll_loss', x, y)
    return _f.cross_entropy(x, y, reduction=reduction, class_weights=weight,
                            ignored_label=ignore_index, log_probabilities=True)


# ---- the same as modules ----

class _Loss(Module):
    def __init__(self, reduction: str = 'mean') -> None:
        self.reduction = reduction

    def extra_repr(self) -> str:
        """Its arguments."""
        return f'reduction={self.reduction!r}'


class MSELoss(_Loss):
    """mse_loss() as a module."""

    def forward(self, input: Array, target: Array) -> Tensor:
        """The loss."""
        return mse_loss(input, target, self.reduction)


class L1Loss(_Loss):
    """l1_loss() as a module."""

    def forward(self, input: Array, target: Array) -> Tensor:
        """The loss."""
        return l1_loss(input, target, self.reduction)


class HuberLoss(_Loss):
    """huber_loss() as a module."""

    def __init__(self, reduction: str = 'mean', delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def forward(self, input: Array, target: Array) -> Tensor:
        """The loss."""
        return huber_loss(input, target, self.reduction, self.delta)


class SmoothL1Loss(_Loss):
    """smooth_l1_loss() as a module."""

    def __init__(self, reduction: str = 'mean', beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def forward(self, input: Array, target: Array) -> Tensor:
        """The loss."""
        return smooth_l1_loss(input, target, self.reduction, self.beta)


class KLDivLoss(_Loss):
    """kl_div() as a module."""

    def __init__(self, reduction: str = 'mean', log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, input: Array, target: Array) -> Tensor:
        """The loss."""
        return kl_div(input, target, self.reduction, self.log_target)


class _Weighted(_Loss):
    """A weight is an array that stays as it is, and no parameter."""

    def __init__(self, weight: Optional[Array] = None, reduction: str = 'mean') -> None:
        super().__init__(reduction)
        self._states = self._states | {'weight', 'pos_weight'}
        self.weight = weight


class BCELoss(_Weighted):
    """binary_cross_entropy() as a module."""

    def forward(self, input: Array, target: Array) -> Tensor:
        """The loss."""
        return binary_cross_entropy(input, target, self.weight, self.reduction)


class BCEWithLogitsLoss(_Weighted):
    """binary_cross_entropy_with_logits() as a module."""

    def __init__(self, weight: Optional[Array] = None, reduction: str = 'mean',
                 pos_weight: Optional[Array] = None) -> None:
        super().__init__(weight, reduction)
        self.pos_weight = pos_weight

    def forward(self, input: Array, target: Array) -> Tensor:
        """The loss."""
        return binary_cross_entropy_with_logits(input, target, self.weight, self.reduction,
                                                self.pos_weight)


class NLLLoss(_Weighted):
    """nll_loss() as a module."""

    def __init__(self, weight: Optional[Array] = None, ignore_index: int = -100,
                 reduction: str = 'mean') -> None:
        super().__init__(weight, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Array, target: Array) -> Tensor:
        """The loss."""
        return nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class CrossEntropyLoss(NLLLoss):
    """cross_entropy() as a module."""

    def __init__(self, weight: Optional[Array] = None, ignore_index: int = -100,
                 reduction: str = 'mean', label_smoothing: float = 0.0) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.label_smoothing = label_smoothing

    def forward(self, input: Array, target: Array) -> Tensor:
        """The loss."""
        return cross_entropy(input, target, self.weight, self.ignore_index, self.reduction,
                             self.label_smoothing)
