# SPDX-License-Identifier: Apache-2.0
"""Hooks of gradients: functions that a gradient goes through on its way."""
from __future__ import annotations

from typing import Any, Callable, Optional

from . import _kernel

Hook = Callable[[Any], Optional[Any]]


class GradientHook:
    """A hook, until remove() or the end of a `with`."""

    def __init__(self, hook: Hook) -> None:
        self._hook: Optional[Hook] = hook

    def remove(self) -> None:
        """Have gradients go on as if it were not there; again it is nothing."""
        self._hook = None

    def __enter__(self) -> GradientHook:
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()

    def pass_on(self, gradient: Any) -> Any:
        """What the hook makes of a gradient."""
        changed = self._hook(gradient) if self._hook is not None else None
        return gradient if changed is None else changed


def hooked(x: Any, hook: GradientHook) -> Any:
    """A tensor of x's value whose gradient goes through the hook on its way to x."""
    if not x.dtype.is_floating:
        raise TypeError(f'a hook of a tensor of {x.dtype.name}: only floating types have gradients')
    copy = _kernel.kernel('const size_t i = get_global_id(0); STORE(y, i, LOAD(x, i));', name='hooked',
                          gradient=lambda inputs, outputs, flowed: hook.pass_on(flowed[0]), host=lambda x: x)
    return copy(x)
