# SPDX-License-Identifier: Apache-2.0
"""Graphs of PyTorch's as batches of kiln's: which nodes kiln computes, in how many batches, and a call
that runs these and, between them, what is left to PyTorch."""
from __future__ import annotations

import operator
import threading
import weakref
from typing import Any, Callable, Iterable, Optional, Sequence

import numpy as np
import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from . import _tape, _torch_indices, _torch_layers, _torch_orders  # noqa: F401  (their rows)
from ._buffer import Buffer
from ._context import Context
from ._library import Error, check, lib
from ._tensor import Tensor, of_array
from ._torch_operators import ROWS, TYPES, Unsupported
from ._types import BY_NAME

_MOST_DIMENSIONS = 8

# Whatever a row or the library may say of an operator that it cannot take.
_REFUSALS = (Unsupported, Error, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError,
             ValueError)


def _refusal_of_type(value: Any) -> Optional[str]:
    """Why a tensor of PyTorch's can be none of kiln's."""
    if value.dtype not in TYPES:
        return f'no elements of {str(value.dtype)[6:]}'
    if value.layout != torch.strided or value.device.type != 'cpu':
        return f'a tensor that is {value.layout} on {value.device}'
    if value.dim() > _MOST_DIMENSIONS:
        return f'more than {_MOST_DIMENSIONS} dimensions'
    return None


# ---- layouts ----

def _order_of(value: torch.Tensor) -> Optional[list[int]]:
    """The order of dimensions in which the elements lie without a gap; None if they do not."""
    order = sorted(range(value.dim()), key=lambda i: (-value.stride(i), i))
    expected = 1
    for i in reversed(order):
        if value.shape[i] != 1 and value.stride(i) != expected:
            return None
        expected *= value.shape[i]
    return order


class _Layout:
    """How a tensor that goes between PyTorch and a batch lies in memory: dense, in an order of its
    dimensions, as the graph has it; row-major where that is no order."""

    def __init__(self, value: torch.Tensor) -> None:
        self.shape = tuple(value.shape)
        self.order = list(range(value.dim()))
        self.stride = torch.empty(self.shape, device='meta').stride()
        if not value.is_contiguous():
            order = _order_of(value)
            if order is not None:
                self.order, self.stride = order, tuple(value.stride())
        self.dtype = value.dtype
        self.kind = BY_NAME[TYPES[value.dtype]]
        self.is_row_major = self.order == list(range(value.dim()))
        self.bytes = value.numel() * value.element_size()
        self.inverse = np.argsort(self.order).tolist()

    def array(self) -> np.ndarray:
        """Memory for the elements, as they lie."""
        return np.empty([self.shape[i] for i in self.order], self.kind.raw)

    def fits(self, value: torch.Tensor) -> bool:
        return bool(value.is_contiguous() if self.is_row_major else value.stride() == self.stride)

    def new(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype)

    def laid_out(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor of the same values whose memory is as a batch reads it."""
        if value.is_neg() or not self.fits(value):
            return self.new().copy_(value.detach())
        return value

    def placed(self, context: Context) -> Tensor:
        """An input of a batch."""
        return of_array(self.array(), context, self.kind)


# ---- recording ----

def is_random(target: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(target, 'tags', ())


def _without_a_row(node: Node) -> str:
    return "random, by PyTorch's generator" if is_random(node.target) else 'no row'


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


class Recorder:
    """Records nodes in the tape of the function that is being traced."""

    def __init__(self, context: Context, values: dict[Node, Any]) -> None:
        self.context = context
        self.values = values
        self.made: dict[Node, Any] = {}

    def place(self, node: Node, layout: _Layout, weight: Optional[_Weight] = None) -> Tensor:
        """Have the node be an input, or a weight's buffer; the tensor whose memory that is."""
        source = layout.placed(self.context) if weight is None else weight.buffer.tensor()
        self.made[node] = source if layout.is_row_major else source.transpose(layout.inverse)
        return source

    def _argument(self, argument: Any) -> Any:
        if not isinstance(argument, Node):
            return argument
        if _is_tensor(self.values[argument]) or argument in self.made:
            return self.made[argument]
        return self.values[argument]

    def record(self, node: Node) -> None:
        """Record a node; its operands are recorded."""
        arguments, named = pytree.tree_map_only(Node, self._argument, (node.args, node.kwargs))
        if node.target is operator.getitem:
            made = arguments[0][arguments[1]]
        else:
            made = ROWS[str(node.target)](*arguments, **named)
        self.made[node] = self._as_declared(made, self.values[node])

    def _as_declared(self, made: Any, value: Any) -> Any:
        """What a row gave in PyTorch's types; shapes are those already."""
        if _is_tensor(value):
            if made is None:
                return None
            if tuple(made.shape) != tuple(value.shape):
                raise Unsupported(f'a result of {list(made.shape)}, not {list(value.shape)}')
            kind = BY_NAME[TYPES[value.dtype]]
            return made if made.dtype == kind else made.astype(kind)
        if isinstance(value, (list, tuple)):
            return [self._as_declared(m, v) for m, v in zip(made, value)]
        return made


def _operands(node: Node, values: dict[Node, Any]) -> list[Node]:
    """The nodes that give it tensors."""
    return [n for n in node.all_input_nodes if not isinstance(values[n], (int, float, bool))]


def _tensors_of(value: Any) -> list[Any]:
    return [v for v in pytree.tree_leaves(value) if _is_tensor(v)]


class _Trial:
    """Records each node once to see whether a row takes it."""

    def __init__(self, context: Context, values: dict[Node, Any]) -> None:
        self.recorder = Recorder(context, values)
        self.values = values
        self.refusals: dict[Node, str] = {}

    def takes(self, node: Node) -> bool:
        refusal = self._refusal(node)
        if refusal is not None:
            self.refusals[node] = refusal
        return refusal is None

    def _refusal(self, node: Node) -> Optional[str]:
        source = node.args[0] if node.target is operator.getitem else None
        if source is not None:
            if source in self.refusals:
                return self.refusals[source]
        elif str(node.target) not in ROWS:
            return _without_a_row(node)
        for value in _tensors_of([self.values[n] for n in (node, *node.all_input_nodes)]):
            refusal = _refusal_of_type(value)
            if refusal:
                return refusal
        try:
            for operand in _operands(node, self.values):
                if operand not in self.recorder.made:
                    if not _is_tensor(self.values[operand]):
                        return 'an operand of several tensors'
                    self.recorder.place(operand, _Layout(self.values[operand]))
            self.recorder.record(node)
        except _REFUSALS as error:
            return str(error) or type(error).__name__
        if self.recorder.made[node] is None and node.users:
            self.recorder.made.pop(node)
            return 'a result that the row does not give'
        return None


# ---- what runs ----

class _Weight:
    """A buffer of a batch that has a parameter's content as it was when it was sent last."""

    def __init__(self, layout: _Layout, context: Context) -> None:
        self.layout = layout
        self.buffer = Buffer.empty([layout.shape[i] for i in layout.order], layout.kind, context)
        self.sent: Any = (None, None, None)

    def send(self, value: torch.Tensor) -> None:
        """Send the content, unless it is there: PyTorch counts what is written into a tensor."""
        reference, version, address = self.sent
        if reference is not None and reference() is value and version == value._version and \
                address == value.data_ptr():
            return
        laid_out = self.layout.laid_out(value)
        if self.layout.bytes:
            check(lib.kiln_buffer_write(self.buffer._owned, 0, laid_out.data_ptr(), self.layout.bytes))
        self.sent = (weakref.ref(value), value._version, value.data_ptr())


class _Program:
    """A batch of nodes: an input for each tensor from outside, a read for each that is wanted. It is
    recorded when it first runs: then it is known which inputs are parameters. On a device with
    memory of its own these are kept there; else all inputs are read where PyTorch has them."""

    def __init__(self, context: Context, values: dict[Node, Any], nodes: Sequence[Node],
                 inputs: Sequence[Node], outputs: Sequence[Node]) -> None:
        self.context = context
        self.graph: Any = (values, nodes, inputs, outputs)
        self.layouts = [_Layout(values[n]) for n in inputs]
        self.results = [_Layout(values[n]) for n in outputs]
        self.tape: Any = None
        self.lock = threading.Lock()
        self.weights: dict[int, _Weight] = {}
        self.uploads: list[tuple[int, Any]] = []  # which input, and its handle
        self.bound: list[int] = [0] * len(inputs)

    def _record(self, given: Sequence[torch.Tensor]) -> None:
        values, nodes, inputs, outputs = self.graph
        if not self.context.shares_host_memory:
            self.weights = {i: _Weight(self.layouts[i], self.context) for i, value in enumerate(given)
                            if isinstance(value, torch.nn.Parameter)}
        recorder = Recorder(self.context, values)
        self.tape = _tape.Tape(self.context)  # anew, where an exception came the last time

        def trace() -> None:
            places = [recorder.place(n, layout, self.weights.get(i))
                      for i, (n, layout) in enumerate(zip(inputs, self.layouts))]
            for node in nodes:
                recorder.record(node)
            handles = [self._laid_out(recorder.made[n], layout)
                       for n, layout in zip(outputs, self.results)]
            self.uploads = [(i, self.tape.handle(place)) for i, place in enumerate(places)
                            if i not in self.weights]
            # Until the first run gives them others, the reads have these places.
            self.first = [layout.array() for layout in self.results]
            for handle, array in zip(handles, self.first):
                check(lib.kiln_read(self.tape.batch, handle, array.ctypes.data, array.nbytes))
        _tape.trace(self.tape, trace)
        self.graph = None

    def _laid_out(self, made: Tensor, layout: _Layout) -> Any:
        return self.tape.handle(made if layout.is_row_major else made.transpose(layout.order))

    def run(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        bound = self.bound
        results = [layout.new() for layout in self.results]
        with self.lock:
            if self.graph is not None:
                self._record(values)
            batch = self.tape.batch
            for i, weight in self.weights.items():
                weight.send(values[i])
            held = []  # until it has run
            for i, handle in self.uploads:
                value = self.layouts[i].laid_out(values[i])
                held.append(value)
                address = value.data_ptr()
                if address != bound[i] and address:
                    check(lib.kiln_rebind_upload(batch, handle, address))
                    bound[i] = address
            for i, result in enumerate(results):
                address = result.data_ptr()
                if address:
                    check(lib.kiln_rebind_read(batch, i, address, self.results[i].bytes))
            check(lib.kiln_batch_execute(batch))
        return results


class _Host:
    """A node that PyTorch computes."""

    def __init__(self, node: Node, slots: dict[Node, int], values: dict[Node, Any]) -> None:
        self.node, self.slots, self.values = node, slots, values
        # What it is called with; None and where they are in the environment: tensors. Known at the first call.
        self.arguments: Any = None

    def _value(self, node: Node, environment: list[Any]) -> Any:
        slot = self.slots.get(node)
        return self.values[node] if slot is None else environment[slot]

    def _prepare(self) -> None:
        """Arguments are mostly tensors and constants: no tree is walked for these in each call."""
        given = [*self.node.args, *self.node.kwargs.values()]
        slots = [self.slots.get(x) if isinstance(x, Node) else None for x in given]
        constants = [self.values[x] if isinstance(x, Node) and slot is None else x for x, slot in zip(given, slots)]
        trees = [i for i, x in enumerate(given) if not isinstance(x, Node) and
                 any(isinstance(leaf, Node) for leaf in pytree.tree_leaves(x))]
        self.arguments = constants, [(i, slot) for i, slot in enumerate(slots) if slot is not None], trees

    def run(self, environment: list[Any]) -> Any:
        if self.arguments is None:
            self._prepare()
        constants, places, trees = self.arguments
        given = list(constants)
        for i, slot in places:
            given[i] = environment[slot]
        for i in trees:
            given[i] = pytree.tree_map_only(Node, lambda node: self._value(node, environment), constants[i])
        count = len(self.node.args)
        return self.node.target(*given[:count], **dict(zip(self.node.kwargs, given[count:])))


class Compiled:
    """A graph that runs: steps over an environment of tensors. It is called as the graph is."""

    def __init__(self, gm: GraphModule, values: dict[Node, Any], context: Context) -> None:
        self.refusals: dict[str, str] = {}
        self.slots: dict[Node, int] = {}
        self.steps: list[Callable[[list[Any]], None]] = []
        self.batches = 0
        nodes = list(gm.graph.nodes)
        self.arguments = [self._slot(n) for n in nodes if n.op == 'placeholder']
        self.constants = [(self._slot(n), _attribute(gm, n.target)) for n in nodes
                          if n.op == 'get_attr']
        self.output = pytree.arg_tree_leaves(*next(n for n in nodes if n.op == 'output').args)
        calls = [n for n in nodes if n.op == 'call_function' and
                 not isinstance(values[n], (int, float, bool, torch.SymInt))]
        self._plan(calls, values, context)
        self.results = [(self.slots[n], None) if n in self.slots else
                        (None, values[n] if isinstance(n, Node) else n) for n in self.output]
        self.size = len(self.slots)

    def _slot(self, node: Node) -> int:
        return self.slots.setdefault(node, len(self.slots))

    # ---- which nodes run where ----

    def _plan(self, calls: list[Node], values: dict[Node, Any], context: Context) -> None:
        trial = _Trial(context, values)
        taken: set[Node] = set()

        def try_all() -> None:
            taken.update(n for n in calls if trial.takes(n))
        _tape.trace(_tape.Tape(context), try_all)
        _take_whole(calls, taken, trial.refusals)
        # What PyTorch alone wants and is made of nothing is no reason for a batch.
        taken.difference_update([n for n in taken if n.users and not _operands(n, values) and
                                 not any(user in taken or user.op == 'output' for user in n.users)])
        for node, refusal in trial.refusals.items():
            if node.target is not operator.getitem:
                self.refusals.setdefault(str(node.target), refusal)
        stages = _stages(calls, taken, values)
        for stage in sorted(set(stages.values())):
            here = [n for n in calls if stages[n] == stage]
            self._add_program([n for n in here if n in taken], taken, values, context)
            for node in here:
                if node not in taken:
                    self._add_host(node, values)

    def _add_program(self, nodes: list[Node], taken: set[Node], values: dict[Node, Any],
                     context: Context) -> None:
        wanted = set(n for n in self.output if isinstance(n, Node))
        inside = set(nodes)
        outputs = [n for n in nodes if _is_tensor(values[n]) and (
            n in wanted or any(user not in inside and user.op != 'output' for user in n.users))]
        views = {n: _views_of(n, inside, outputs) for n in outputs}
        self._add_batch(nodes, [n for n in outputs if not views[n]], values, context)
        for node in (n for chain in views.values() for n in chain):
            if node not in self.slots:
                self._add_host(node, values)

    def _add_batch(self, nodes: list[Node], outputs: list[Node], values: dict[Node, Any],
                   context: Context) -> None:
        if not outputs:
            return
        inside = set(nodes)
        inputs = list(dict.fromkeys(o for n in nodes for o in _operands(n, values)
                                    if o not in inside))
        program = _Program(context, values, nodes, inputs, outputs)
        self.batches += 1
        sources, targets = [self._slot(n) for n in inputs], [self._slot(n) for n in outputs]

        def step(environment: list[Any]) -> None:
            for slot, made in zip(targets, program.run([environment[s] for s in sources])):
                environment[slot] = made
        self.steps.append(step)

    def _add_host(self, node: Node, values: dict[Node, Any]) -> None:
        host, slot = _Host(node, self.slots, values), self._slot(node)

        def step(environment: list[Any]) -> None:
            environment[slot] = host.run(environment)
        self.steps.append(step)

    # ---- calling ----

    def __call__(self, arguments: Iterable[Any]) -> list[Any]:
        environment: list[Any] = [None] * self.size
        for slot, argument in zip(self.arguments, arguments):
            environment[slot] = argument
        for slot, value in self.constants:
            environment[slot] = value
        with torch.no_grad():
            for step in self.steps:
                step(environment)
        return [value if slot is None else environment[slot] for slot, value in self.results]


def _attribute(gm: GraphModule, path: str) -> Any:
    return operator.attrgetter(path)(gm)


def _is_view(node: Node) -> bool:
    returns = getattr(getattr(node.target, '_schema', None), 'returns', ())
    return any(r.alias_info is not None for r in returns) and isinstance(node.args[0], Node)


def _views_of(node: Node, inside: set[Node], outputs: list[Node]) -> list[Node]:
    """The nodes, in order, by which PyTorch makes a result without a copy, where it is a view of what
    is outside of the batch, or of another result: such as a weight's transpose, which the backward
    graph is to have. None: it is made by the batch."""
    chain = [node]
    while _is_view(chain[0]):
        base = chain[0].args[0]
        if base not in inside or base in outputs:
            return chain
        chain.insert(0, base)
    return []


def _take_whole(calls: list[Node], taken: set[Node], refusals: dict[Node, str]) -> None:
    """A node of several results stays with PyTorch where one of them does, and all of them with it."""
    parts = [n for n in calls if n.target is operator.getitem]
    for part in parts:
        source = part.args[0]
        if part not in taken and source in taken:
            taken.discard(source)
            refusals[source] = refusals[part]
    taken.difference_update(p for p in parts if p.args[0] not in taken)


def _stages(calls: list[Node], taken: set[Node], values: dict[Node, Any]) -> dict[Node, int]:
    """A number for each node: a stage is a batch of the nodes that kiln takes, and behind it those
    that PyTorch computes from it. A batch has as many nodes as can be without another between. Random
    numbers are drawn in the graph's order."""
    stages: dict[Node, int] = {}
    drawn = -1
    for node in calls:
        stage = 0 if node in taken else -1
        for operand in _operands(node, values):
            if operand in stages:
                behind = node in taken and operand not in taken
                stage = max(stage, stages[operand] + behind)
        if is_random(node.target):
            stage = drawn = max(stage, drawn)
        stages[node] = stage
    return stages
