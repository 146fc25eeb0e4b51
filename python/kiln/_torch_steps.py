# SPDX-License-Identifier: Apache-2.0
"""What a compiled graph of PyTorch's consists of: batches of kiln's between PyTorch and the library, and
the nodes that PyTorch computes. This is what each call does, so that no line here is for nothing."""
from __future__ import annotations

import ctypes
import operator
import threading
import weakref
from typing import Any, Callable, Optional, Sequence

import numpy as np
import torch
from torch._C._dynamo import guards as _guards
from torch.fx import Node
from torch.utils import _pytree as pytree

from . import _tape
from ._buffer import Buffer
from ._context import Context
from ._library import check, lib
from ._tensor import Tensor, of_array
from ._torch_operators import ROWS, TYPES, Unsupported
from ._types import BY_NAME


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


# What torch.compile's own code makes its tensors with takes 0.4 us, torch.empty_strided() 0.8.
_empty: Callable[..., torch.Tensor] = getattr(_guards, '_empty_strided_cpu', None) or (
    lambda shape, stride, dtype: torch.empty_strided(shape, stride, dtype=dtype))

# Their errors stay with the batch: its run tells them.
_rebind_upload = lib.bare('kiln_rebind_upload')
_rebind_read = lib.bare('kiln_rebind_read')


# ---- layouts ----

def order_of(value: torch.Tensor) -> Optional[list[int]]:
    """The order of dimensions in which the elements lie without a gap; None if they do not."""
    order = sorted(range(value.dim()), key=lambda i: (-value.stride(i), i))
    expected = 1
    for i in reversed(order):
        if value.shape[i] != 1 and value.stride(i) != expected:
            return None
        expected *= value.shape[i]
    return order


class Layout:
    """How a tensor that goes between PyTorch and a batch lies in memory: dense, in an order of its
    dimensions, as the graph has it; row-major where that is no order."""

    def __init__(self, value: torch.Tensor) -> None:
        self.shape = tuple(value.shape)
        self.order = list(range(value.dim()))
        self.stride = torch.empty(self.shape, device='meta').stride()
        if not value.is_contiguous():
            order = order_of(value)
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
        return _empty(self.shape, self.stride, self.dtype)

    def laid_out(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor of the same values whose memory is as a batch reads it."""
        if value.is_neg() or not self.fits(value):
            return self.new().copy_(value.detach())
        return value

    def placed(self, context: Context) -> Tensor:
        """An input of a batch."""
        return of_array(self.array(), context, self.kind)


# ---- recording ----

class Recorder:
    """Records nodes in the tape of the function that is being traced."""

    def __init__(self, context: Context, values: dict[Node, Any]) -> None:
        self.context = context
        self.values = values
        self.made: dict[Node, Any] = {}

    def place(self, node: Node, layout: Layout, weight: Optional[_Weight] = None) -> Tensor:
        """Have the node be an input, or a weight's buffer; the tensor whose memory that is."""
        source = layout.placed(self.context) if weight is None else weight.buffer.tensor()
        self.made[node] = source if layout.is_row_major else source.transpose(layout.inverse)
        return source

    def _argument(self, argument: Any) -> Any:
        if not isinstance(argument, Node):
            return argument
        if is_tensor(self.values[argument]) or argument in self.made:
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
        if is_tensor(value):
            if made is None:
                return None
            if tuple(made.shape) != tuple(value.shape):
                raise Unsupported(f'a result of {list(made.shape)}, not {list(value.shape)}')
            kind = BY_NAME[TYPES[value.dtype]]
            return made if made.dtype == kind else made.astype(kind)
        if isinstance(value, (list, tuple)):
            return [self._as_declared(m, v) for m, v in zip(made, value)]
        return made


# ---- what runs ----

class _Weight:
    """A buffer of a batch that has a parameter's content as it was when it was sent last."""

    def __init__(self, layout: Layout, context: Context) -> None:
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


class Program:
    """A batch of nodes: an input for each tensor from outside, a read for each that is wanted. It is
    recorded when it first runs: then it is known which inputs are parameters. On a device with
    memory of its own these are kept there; else all inputs are read where PyTorch has them."""

    def __init__(self, context: Context, values: dict[Node, Any], nodes: Sequence[Node],
                 inputs: Sequence[Node], outputs: Sequence[Node]) -> None:
        self.context = context
        self.graph: Any = (values, nodes, inputs, outputs)
        self.layouts = [Layout(values[n]) for n in inputs]
        self.results = [Layout(values[n]) for n in outputs]
        self.tape: Any = None
        self.lock = threading.Lock()
        self.weights: dict[int, _Weight] = {}
        # Where runs read and write: an address, and the arguments of the call that changes it.
        self.uploads: list[tuple[int, Layout, Any, tuple[Any, ...]]] = []  # of which input
        self.reads: list[tuple[Any, tuple[Any, ...]]] = []

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
            batch = ctypes.c_void_p(self.tape.batch)
            self.uploads = [_upload(batch, i, self.tape.handle(place), self.layouts[i])
                            for i, place in enumerate(places) if i not in self.weights]
            self.reads = [_read(batch, i, layout) for i, layout in enumerate(self.results)]
            # Until the first run gives them others, the reads have these places.
            self.first = [layout.array() for layout in self.results]
            for handle, array in zip(handles, self.first):
                check(lib.kiln_read(self.tape.batch, handle, array.ctypes.data, array.nbytes))
        _tape.trace(self.tape, trace)
        self.graph = None

    def _laid_out(self, made: Tensor, layout: Layout) -> Any:
        return self.tape.handle(made if layout.is_row_major else made.transpose(layout.order))

    def run(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        results = [layout.new() for layout in self.results]
        with self.lock:
            if self.graph is not None:
                self._record(values)
            for i, weight in self.weights.items():
                weight.send(values[i])
            held = self._bind(values, results)
            check(lib.kiln_batch_execute(self.tape.batch))
            held.clear()
        return results

    def _bind(self, values: Sequence[torch.Tensor], results: list[torch.Tensor]) -> list[torch.Tensor]:
        """Have the batch read these inputs and write these results; the copies that it reads instead of some."""
        copies = []
        for i, layout, bound, arguments in self.uploads:
            value = values[i]
            if value.is_neg() or not (value.is_contiguous() if layout.is_row_major else layout.fits(value)):
                value = layout.laid_out(value)
                copies.append(value)
            address = value.data_ptr()
            if address and address != bound.value:
                bound.value = address
                _rebind_upload(*arguments)
        for result, (bound, arguments) in zip(results, self.reads):
            address = result.data_ptr()
            if address and address != bound.value:
                bound.value = address
                _rebind_read(*arguments)
        return copies


def _upload(batch: Any, i: int, handle: Any, layout: Layout) -> tuple[int, Layout, Any, tuple[Any, ...]]:
    bound = ctypes.c_void_p()
    return i, layout, bound, (batch, handle, bound)


def _read(batch: Any, i: int, layout: Layout) -> tuple[Any, tuple[Any, ...]]:
    bound = ctypes.c_void_p()
    return bound, (batch, ctypes.c_size_t(i), bound, ctypes.c_size_t(layout.bytes))


# ---- what PyTorch computes ----

# Views as methods: these take half the time of calling the operators.
_METHODS: dict[str, Callable[..., Any]] = {
    f'aten.{name}': method for name, method in (
        ('detach.default', torch.Tensor.detach), ('expand.default', torch.Tensor.expand),
        ('permute.default', torch.Tensor.permute), ('t.default', torch.Tensor.t),
        ('transpose.int', torch.Tensor.transpose), ('unsqueeze.default', torch.Tensor.unsqueeze),
        ('view.default', torch.Tensor.view))}


def draws_alone(node: Node) -> bool:
    """Whether a node's numbers depend on its operand's shape alone."""
    return str(node.target) == 'aten.bernoulli.p' and not node.kwargs and not isinstance(node.args[1], Node)


def host_step(node: Node, slots: dict[Node, int], values: dict[Node, Any]) -> Callable[[list[Any]], None]:
    """A step that has PyTorch compute a node, whose operands have slots or are constants."""
    if draws_alone(node):
        return _drawing(Layout(values[node]), node.args[1], slots[node])
    if node.args and isinstance(node.args[0], Node) and node.args[0] in slots and not any(
            isinstance(x, Node) for x in pytree.tree_leaves((node.args[1:], node.kwargs))):
        return _of_one(node, slots[node.args[0]], slots[node])
    return Host(node, slots, values).run


def _drawing(layout: Layout, p: Any, target: int) -> Callable[[list[Any]], None]:
    def step(environment: list[Any]) -> None:
        environment[target] = layout.new().bernoulli_(p)
    return step


def _of_one(node: Node, source: int, target: int) -> Callable[[list[Any]], None]:
    """Of one tensor and constants, as most views are."""
    function: Any = _METHODS.get(str(node.target), node.target)
    rest, named = node.args[1:], dict(node.kwargs)

    def step(environment: list[Any]) -> None:
        environment[target] = function(environment[source], *rest, **named)
    return step


class Host:
    """A node that PyTorch computes, of any arguments."""

    def __init__(self, node: Node, slots: dict[Node, int], values: dict[Node, Any]) -> None:
        self.node, self.slots, self.values = node, slots, values
        self.target = slots[node]
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

    def run(self, environment: list[Any]) -> None:
        if self.arguments is None:
            self._prepare()
        constants, places, trees = self.arguments
        given = list(constants)
        for i, slot in places:
            given[i] = environment[slot]
        for i in trees:
            given[i] = pytree.tree_map_only(Node, lambda node: self._value(node, environment), constants[i])
        count = len(self.node.args)
        target: Any = self.node.target
        environment[self.target] = target(*given[:count], **dict(zip(self.node.kwargs, given[count:])))
