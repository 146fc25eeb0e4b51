# SPDX-License-Identifier: Apache-2.0
"""Graphs of PyTorch's as batches of kiln's: which nodes kiln computes, in how many batches, and a call
that runs these and, between them, what is left to PyTorch."""
from __future__ import annotations

import operator
from typing import Any, Callable, Iterable, Optional

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from . import _tape, _torch_indices, _torch_layers, _torch_orders  # noqa: F401  (their rows)
from ._context import Context
from ._library import Error
from ._torch_operators import ROWS, TYPES, Unsupported
from ._torch_steps import Layout, Program, Recorder, draws_alone, host_step, is_tensor, order_of

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


# ---- which nodes have rows ----

def is_random(target: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(target, 'tags', ())


def _without_a_row(node: Node) -> str:
    return "random, by PyTorch's generator" if is_random(node.target) else 'no row'


def _operands(node: Node, values: dict[Node, Any]) -> list[Node]:
    """The nodes that give it tensors."""
    return [n for n in node.all_input_nodes if not isinstance(values[n], (int, float, bool))]


def _tensors_of(value: Any) -> list[Any]:
    return [v for v in pytree.tree_leaves(value) if is_tensor(v)]


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
                    if not is_tensor(self.values[operand]):
                        return 'an operand of several tensors'
                    self.recorder.place(operand, Layout(self.values[operand]))
            self.recorder.record(node)
        except _REFUSALS as error:
            return str(error) or type(error).__name__
        if self.recorder.made[node] is None and node.users:
            self.recorder.made.pop(node)
            return 'a result that the row does not give'
        return None


# ---- a graph ----

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
                if node not in taken and not self._is_idle(node):
                    self._add_host(node, values)

    def _add_program(self, nodes: list[Node], taken: set[Node], values: dict[Node, Any],
                     context: Context) -> None:
        wanted = set(n for n in self.output if isinstance(n, Node))
        inside = set(nodes)
        outputs = [n for n in nodes if is_tensor(values[n]) and (
            n in wanted or any(user not in inside and user.op != 'output' for user in n.users))]
        outputs += _shared_bases(outputs, inside, values)
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
        program = Program(context, values, nodes, inputs, outputs)
        self.batches += 1
        sources, targets = [self._slot(n) for n in inputs], [self._slot(n) for n in outputs]

        def step(environment: list[Any]) -> None:
            for slot, made in zip(targets, program.run([environment[s] for s in sources])):
                environment[slot] = made
        self.steps.append(step)

    def _is_idle(self, node: Node) -> bool:
        """Whether nobody reads what a node gives: of a dropout's zeros the shape is enough."""
        return bool(node.users) and not is_random(node.target) and all(map(draws_alone, node.users))

    def _add_host(self, node: Node, values: dict[Node, Any]) -> None:
        self._slot(node)
        self.steps.append(host_step(node, self.slots, values))

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


def _shared_bases(outputs: list[Node], inside: set[Node], values: dict[Node, Any]) -> list[Node]:
    """What several results show whole, and is none itself: as the input of three products, each of which
    keeps a view for its gradient. A batch writes that once, where it would copy its second result."""
    shown: dict[Node, int] = {}
    for node in outputs:
        base = node
        while _is_view(base) and base.args[0] in inside:
            base = base.args[0]
        if base not in outputs and _is_dense(values[base]) and _is_dense(values[node]) and \
                values[base].numel() == values[node].numel():
            shown[base] = shown.get(base, 0) + 1
    return [base for base, count in shown.items() if count > 1]


def _is_dense(value: Any) -> bool:
    return is_tensor(value) and order_of(value) is not None


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
