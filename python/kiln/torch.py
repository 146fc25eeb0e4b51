# SPDX-License-Identifier: Apache-2.0
"""PyTorch's models on OpenCL devices: `torch.compile(model, backend="kiln")`.

The graphs that torch.compile() finds become batches of kiln's, forward and backward. Tensors stay
PyTorch's, on the CPU. An operator that kiln lacks runs in PyTorch, between two batches; the log
`kiln.torch` names it. doc/torch.md.
"""
from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any, Callable, Optional, Sequence

import torch
from torch._decomp import core_aten_decompositions, get_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses.fake_tensor import (DataDependentOutputException,
                                           DynamicOutputShapeException, FakeTensorMode)
from torch.fx import GraphModule, Interpreter, Node
from torch.nn.attention import SDPBackend, sdpa_kernel

from ._context import Context, default_context
from ._torch_graph import Compiled, is_random
from ._torch_operators import ROWS

_log = logging.getLogger('kiln.torch')
_told: set[str] = set()


# Not in PyTorch's list, and made of what has rows.
_FURTHER = ('_addmm_activation', '_batch_norm_no_update', '_batch_norm_with_update_functional',
            '_native_batch_norm_legit', '_native_batch_norm_legit_functional', 'addmv',
            'batch_norm_backward', 'dist', 'grid_sampler_2d', 'ldexp', 'narrow_copy',
            'native_batch_norm', 'permute_copy', 'tril_indices', 'triu_indices', 'unbind_copy',
            'upsample_bilinear2d', 'upsample_nearest2d', 'view_copy')


def _dropout(x: torch.Tensor, p: float, train: Optional[bool]) -> tuple[Any, ...]:
    """native_dropout, whose mask is drawn without x: one batch has what is before and behind it."""
    if train is False:
        return x, torch.ones_like(x, dtype=torch.bool)
    mask = torch.ops.aten.bernoulli.p(torch.zeros(x.shape, dtype=torch.bool), 1 - p)
    return x * mask * (0 if p == 1 else 1 / (1 - p)), mask


def decompositions() -> dict[Any, Any]:
    """What operators are made of that have no row. Random ones stay whole: PyTorch computes them, with
    its own generator, in the order in which it would without kiln."""
    table = core_aten_decompositions()
    table.update(get_decompositions([getattr(torch.ops.aten, name) for name in _FURTHER]))
    whole = {op: made_of for op, made_of in table.items() if str(op) not in ROWS and not is_random(op)}
    return {**whole, torch.ops.aten.native_dropout.default: _dropout}


def _tell(refusals: dict[str, str]) -> None:
    """A line for the operators of a graph that PyTorch computes."""
    new = {name: why for name, why in refusals.items() if name not in _told}
    if new:
        _told.update(new)
        _log.warning('PyTorch computes %s', ', '.join(f'{n} ({why})' for n, why in new.items()))


# ---- a graph ----

def _compiled(gm: GraphModule, values: dict[Node, Any], context: Context) -> Compiled:
    made = Compiled(gm, values, context)
    _tell(made.refusals)
    _log.info('%d operators in %d batches', len(values), made.batches)
    return made


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride()))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


class _Values(Interpreter):
    """What each node gives for these arguments, as tensors without content."""

    def __init__(self, gm: GraphModule) -> None:
        super().__init__(gm)
        self.values: dict[Node, Any] = {}

    def run_node(self, node: Node) -> Any:
        self.values[node] = made = super().run_node(node)
        return made


class _OfAnyShape:
    """A graph whose sizes are arguments: compiled for each set of them, and kept."""

    _KEPT = 32

    def __init__(self, gm: GraphModule, context: Context) -> None:
        self.gm, self.context = gm, context
        self.kept: dict[Any, Callable[..., Any]] = {}
        self.lock = threading.Lock()  # guards it

    def __call__(self, arguments: Sequence[Any]) -> list[Any]:
        key = tuple((a.shape, a.stride()) if isinstance(a, torch.Tensor) else a for a in arguments)
        made = self.kept.get(key)
        if made is None:
            made = self._made(arguments)
            with self.lock:
                while len(self.kept) >= self._KEPT:
                    self.kept.pop(next(iter(self.kept)))
                self.kept[key] = made
        return list(made(arguments))

    def _made(self, arguments: Sequence[Any]) -> Callable[..., Any]:
        try:
            values = self._values(arguments)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            operator = str(error).split('\n', 1)[0]
            _tell({'a whole graph': f'sizes are known once {operator} has run'})
            return self._by_pytorch
        return _compiled(self.gm, values, self.context)

    def _by_pytorch(self, arguments: Sequence[Any]) -> list[Any]:
        with torch.no_grad():
            return list(self.gm(*arguments))

    def _values(self, arguments: Sequence[Any]) -> dict[Node, Any]:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
        fake = [mode.from_tensor(a, static_shapes=True) if isinstance(a, torch.Tensor) else a
                for a in arguments]
        interpreter = _Values(self.gm)
        with mode, torch.no_grad():
            interpreter.run(*fake)
        return interpreter.values


def _compile(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """What aot_autograd calls for the forward and for the backward graph."""
    context = default_context()
    values = {node: node.meta.get('val') for node in gm.graph.nodes}
    for node in gm.graph.nodes:
        if node.op == 'get_attr':
            values[node] = getattr(gm, node.target)
    if any(_is_symbolic(v) for v in values.values()):
        return _boxed(_OfAnyShape(gm, context))
    return _boxed(_compiled(gm, values, context))


def _boxed(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call as aot_autograd has it: with a list, which is empty afterwards."""
    def boxed(arguments: list[Any]) -> list[Any]:
        results: list[Any] = call(arguments)
        arguments.clear()
        return results
    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def _is_training(inputs: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)


def backend(gm: GraphModule, inputs: Sequence[Any], *,
            options: Optional[dict[Any, Any]] = None) -> Callable[..., Any]:
    """The backend that torch.compile(model, backend="kiln") finds. It computes in
    kiln.default_context()."""
    compiler = aot_autograd(fw_compiler=_compile, bw_compiler=_compile, inference_compiler=_compile,
                            decompositions=decompositions())
    # In its parts: kiln has the gradient of each.
    parts = sdpa_kernel(SDPBackend.MATH) if _is_training(inputs) else contextlib.nullcontext()
    with parts:
        made: Callable[..., Any] = compiler(gm, inputs)
    return made
