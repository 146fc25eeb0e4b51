# SPDX-License-Identifier: Apache-2.0
"""Modules: layers and networks, with their parameters.

A parameter is a kiln.Buffer that is an attribute, and nothing more. What derives by a module has, in its
thread and while it records, tensors stand for these buffers wherever they are used. So a loss may get
the module as an argument or find it elsewhere, the module stays the object that it is, and other threads
may use it meanwhile. Optimisers update the buffers in place.
"""
from __future__ import annotations

import threading
from typing import Any, Callable, Dict, FrozenSet, Iterator, List, Mapping, NoReturn, Optional, Set, Tuple

import numpy as np

from . import _tape
from ._batch import names
from ._buffer import Buffer
from ._context import Context, default_context
from ._library import Error
from ._tensor import Tensor, as_tensor, as_type, of_array
from ._tree import Named
from ._types import Type, as_dtype

__all__ = ['Module', 'ModuleDict', 'ModuleList', 'Parameter', 'Sequential']

Parameter = Buffer  # as programs of PyTorch write it


def parameter(values: Any, dtype: Type = 'f32', context: Optional[Context] = None) -> Buffer:
    """A buffer of these values, written now, also where a batch is recorded; they become the type on
    the host, without a kernel for that."""
    array = as_type(values, as_dtype(dtype))
    made = Buffer.empty(array.shape, dtype, context)
    made._write(array)
    return made


class _Calls(threading.local):
    """The modules that this thread is in."""

    def __init__(self) -> None:
        self.names: Dict[int, str] = {}  # of all modules of the outermost one
        self.prefix = ''


_calls = _Calls()


def _flat(name: str, value: Any) -> Iterator[Tuple[str, Any]]:
    """The buffers and modules that an attribute is, or has as a list, tuple or dict."""
    if isinstance(value, (Buffer, Module)):
        yield name, value
    elif isinstance(value, (list, tuple, dict)):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _flat(f'{name}.{key}', one)


def _mapped(value: Any, function: Callable[[Buffer], Buffer]) -> Any:
    """An attribute with other buffers in place of those that it is or has."""
    if isinstance(value, Buffer):
        return function(value)
    if isinstance(value, dict):
        value.update({key: _mapped(one, function) for key, one in value.items()})
    elif isinstance(value, list):
        value[:] = [_mapped(one, function) for one in value]
    elif isinstance(value, tuple):
        made = [_mapped(one, function) for one in value]
        return type(value)(*made) if hasattr(value, '_fields') else type(value)(made)
    return value


def _array(value: Any) -> Any:
    """What is loaded; PyTorch's tensors may be on a GPU, and be derived by."""
    return value.detach().cpu() if hasattr(value, 'detach') else value


def dims(shape: Any) -> str:
    """A shape, as sentences have it."""
    return str(list(shape)).replace(' ', '')


def shown(x: Any) -> str:
    """The shape of a tensor, as sentences have it."""
    return dims(x.shape)


class Hook:
    """A function that a module calls around its forward(), until remove() or the end of a `with`."""

    def __init__(self, module: Module, function: Callable[..., Any], is_before: bool) -> None:
        self.module, self.function, self.is_before = module, function, is_before
        module._forward_hooks += (self,)

    def remove(self) -> None:
        """Have the module call it no more; again it is nothing."""
        self.module._forward_hooks = tuple(h for h in self.module._forward_hooks if h is not self)

    def __enter__(self) -> Hook:
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()


class Module(Named):
    """A layer or a network: what derives from it sets its parameters and modules in `__init__`, and
    computes in `forward`, which a call of the module calls.

        class Network(kiln.nn.Module):
            def __init__(self):
                self.hidden = kiln.nn.Linear(64, 128)
                self.out = kiln.nn.Linear(128, 10)

            def forward(self, x):
                return self.out(kiln.relu(self.hidden(x)))

    Each attribute that is a kiln.Buffer of a floating type is a parameter, and each that is a Module a
    part of it; so is what lists, tuples and dicts among the attributes have. `register_buffer()`
    sets what is no parameter. kiln.grad() and kiln.value_and_grad() derive by a module, a
    kiln.optim.Optimizer takes one, and kiln.save() and kiln.load_into() do.

    Inside a kiln.function the module's parts are as they were when the function was recorded, but for
    what buffers hold, and for whether it trains. Threads may call a module at once; train(), eval()
    and other changes are for one at a time.
    """

    # Here, so that an __init__ need not begin with super().__init__().
    _trains = True
    _frozen = False
    _states: FrozenSet[str] = frozenset()
    _unsaved: FrozenSet[str] = frozenset()
    _forward_hooks: Tuple[Hook, ...] = ()

    # Any signature will do, so that a type checker lets each module have its own.
    forward: Callable[..., Any]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """What forward() gives. What it records has the names of the modules that record it, in
        errors, explanations and profiles."""
        if not _calls.names:
            before = _tape.thread.name
            _calls.prefix = '' if before is None else before + '.'
            try:
                _calls.names = {id(module): name for name, module in self.named_modules()}
                return self._hooked(arguments, named)
            finally:
                _calls.names = {}
        name = _calls.names.get(id(self))
        if not name:
            return self._hooked(arguments, named)
        with names(_calls.prefix + name):
            return self._hooked(arguments, named)

    def _hooked(self, arguments: Tuple[Any, ...], named: Dict[str, Any]) -> Any:
        hooks = self._forward_hooks
        for hook in hooks:
            if hook.is_before and (changed := hook.function(self, arguments)) is not None:
                arguments = changed if isinstance(changed, tuple) else (changed,)
        given = self.forward(*arguments, **named)
        for hook in hooks:
            if not hook.is_before and (changed := hook.function(self, arguments, given)) is not None:
                given = changed
        return given

    def register_forward_pre_hook(self, hook: Callable[[Any, Any], Any]) -> Hook:
        """Call hook(module, arguments) before each forward(), which gets what it returns, a value or a
        tuple of arguments, unless that is None. A kiln.function calls hooks when it is recorded."""
        return Hook(self, hook, True)

    def register_forward_hook(self, hook: Callable[[Any, Any, Any], Any]) -> Hook:
        """Call hook(module, arguments, result) behind each forward(). What it returns takes the result's
        place, unless that is None."""
        return Hook(self, hook, False)

    # ---- its parts ----

    def _entries(self) -> List[Tuple[str, Any]]:
        return list(vars(self).items())

    def _own(self) -> Iterator[Tuple[str, Any]]:
        """The buffers and modules that it has itself."""
        for name, value in self._entries():
            yield from _flat(name, value)

    def _is_parameter(self, name: str, buffer: Buffer) -> bool:
        return name not in self._states and buffer.dtype.is_floating and buffer.dtype.block == 1

    def children(self) -> Iterator[Module]:
        """The modules that it has itself."""
        return (module for _, module in self.named_children())

    def named_children(self) -> Iterator[Tuple[str, Module]]:
        """The modules that it has itself, with their names."""
        return ((name, value) for name, value in self._own() if isinstance(value, Module))

    def modules(self) -> Iterator[Module]:
        """It and all modules in it, each once."""
        return (module for _, module in self.named_modules())

    def named_modules(self, prefix: str = '', _seen: Optional[Set[int]] = None) -> \
            Iterator[Tuple[str, Module]]:
        """It and all modules in it, each once, with their names; its own is the prefix."""
        seen = set() if _seen is None else _seen
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self
        for name, module in self.named_children():
            yield from module.named_modules(f'{prefix}.{name}' if prefix else name, seen)

    def _named(self, wanted: Callable[[Module, str, Buffer], bool], prefix: str = '') -> \
            Iterator[Tuple[str, Buffer]]:
        """The buffers in it that are wanted, each once."""
        seen = set()
        for path, module in self.named_modules(prefix):
            for name, value in module._own():
                if isinstance(value, Buffer) and id(value) not in seen and wanted(module, name, value):
                    seen.add(id(value))
                    yield f'{path}.{name}' if path else name, value

    def parameters(self) -> List[Buffer]:
        """All parameters, each once; see trainable_parameters()."""
        return [buffer for _, buffer in self.named_parameters()]

    def named_parameters(self, prefix: str = '') -> Iterator[Tuple[str, Buffer]]:
        """All parameters with their names, each once, under the first that it has."""
        return self._named(lambda module, name, buffer: module._is_parameter(name, buffer), prefix)

    def buffers(self) -> List[Buffer]:
        """What it keeps that is no parameter, such as running averages."""
        return [buffer for _, buffer in self.named_buffers()]

    def named_buffers(self, prefix: str = '') -> Iterator[Tuple[str, Buffer]]:
        """What it keeps that is no parameter, with its names."""
        return self._named(lambda module, name, buffer: not module._is_parameter(name, buffer), prefix)

    def register_buffer(self, name: str, value: Optional[Buffer], persistent: bool = True) -> None:
        """Set an attribute that is no parameter: nothing derives by it, and no optimiser updates it.
        What is not persistent is not in state_dict() either."""
        self._states = self._states | {name}
        self._unsaved = self._unsaved - {name} if persistent else self._unsaved | {name}
        setattr(self, name, value)

    def trainable_parameters(self) -> Dict[str, Buffer]:
        """{name: parameter} of those that are not frozen: what kiln.grad() derives a module by, and what
        an optimiser updates, in this order."""
        return dict(self._named(lambda module, name, buffer:
                                not module._frozen and module._is_parameter(name, buffer)))

    def _values(self) -> Dict[str, Any]:
        return self.trainable_parameters()

    @property
    def _context(self) -> Optional[Context]:
        """That of its buffers: what it computes with arrays is computed there."""
        return next((buffer._context for _, buffer in self._named(lambda *_: True)), None)

    # ---- modes ----

    @property
    def training(self) -> bool:
        """Whether it trains: layers such as Dropout do something else then. A kiln.function that has
        asked for this is recorded once for each answer."""
        _tape.note_mode(self, self._trains)
        return self._trains

    @training.setter
    def training(self, mode: bool) -> None:
        self._trains = bool(mode)

    def train(self, mode: bool = True) -> Any:
        """Have it and all modules in it train, or not. Returns the module."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Any:
        """train(False)."""
        return self.train(False)

    def apply(self, function: Callable[[Module], Any]) -> Any:
        """Call the function with each module in it, then with it: to write other first values, say.
        Returns the module."""
        for module in self.children():
            module.apply(function)
        function(self)
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Have its parameters be derived by and updated, or frozen. Optimisers are made behind that.
        Returns the module."""
        for module in self.modules():
            module._frozen = not requires_grad
        return self

    def to(self, dtype: Optional[Type] = None, context: Optional[Context] = None) -> Any:
        """Have it in another floating type, or in another context. Its buffers are other ones
        then, so that optimisers and functions are made behind that. Returns the module."""
        made: Dict[int, Buffer] = {}

        def moved(buffer: Buffer) -> Buffer:
            kind = buffer.dtype
            if dtype is not None and kind.is_floating and kind.block == 1:
                kind = as_dtype(dtype)
            where = context or buffer._context
            if kind is buffer.dtype and where is buffer._context:
                return buffer
            if id(buffer) not in made and kind is not buffer.dtype:
                made[id(buffer)] = parameter(buffer.numpy(), kind, where)
            elif id(buffer) not in made:
                made[id(buffer)] = copied = Buffer.empty(buffer.shape, kind, where)
                copied._write(buffer._read())
            return made[id(buffer)]
        for module in self.modules():
            for name, value in module._entries():
                other = _mapped(value, moved)
                if other is not value:
                    setattr(module, name, other)
        return self

    # ---- states ----

    def state_dict(self) -> Dict[str, Buffer]:
        """{name: buffer} of all parameters and of what else is kept: the buffers themselves, as
        kiln.save() takes them. One that has two names is there twice."""
        return self._state_below('', (id(self),))

    def _state_below(self, prefix: str, above: Tuple[int, ...]) -> Dict[str, Buffer]:
        found: Dict[str, Buffer] = {}
        for name, value in self._own():
            if isinstance(value, Buffer):
                if name not in self._unsaved:
                    found[prefix + name] = value
            elif id(value) not in above:
                found.update(value._state_below(f'{prefix}{name}.', (*above, id(value))))
        return found

    def _state(self) -> Dict[str, Any]:
        return self.state_dict()

    def _ignored(self) -> Set[str]:
        """Names that a state of another program's may have, and that say nothing here."""
        return set()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Write what state_dict() has given, of this model or of PyTorch's of the same layers, into
        the buffers: values are buffers, tensors, arrays, or PyTorch's tensors. Shapes are the same, types
        may differ. With `strict` so are the names. After an error nothing is written."""
        _tape.refuse_while_tracing('a state is loaded')
        own = self.state_dict()
        ignored = {f'{path}.{name}' if path else name
                   for path, module in self.named_modules() for name in module._ignored()}
        missing = sorted(own.keys() - state_dict.keys())
        unexpected = sorted(state_dict.keys() - own.keys() - ignored)
        given = {name: _array(state_dict[name]) for name in own if name in state_dict}
        shapes = {name: value.shape if isinstance(value, (Buffer, Tensor)) else np.shape(value)
                  for name, value in given.items()}
        wrong = [f'{name} is {dims(own[name].shape)}, given {dims(shape)}'
                 for name, shape in shapes.items() if shape != own[name].shape]
        said = [f'{what}: {", ".join(found)}' for what, found in
                (('missing', missing if strict else []), ('not known', unexpected if strict else []),
                 ('of other shapes', wrong)) if found]
        if said:
            raise Error('SHAPE_MISMATCH' if wrong else 'INVALID_ARGUMENT',
                        f'a state of {type(self).__name__}: {"; ".join(said)}')
        # All are brought to the host first: a value may be a buffer that is written.
        arrays = {}
        for name, value in given.items():
            value = value.numpy() if isinstance(value, (Buffer, Tensor)) else value
            arrays[name] = as_type(value, own[name].dtype)
        for name, array in arrays.items():
            own[name][...] = of_array(array, own[name]._context, own[name].dtype)

    # ---- what it says ----

    def extra_repr(self) -> str:
        """What repr() says of it besides its class and its modules."""
        return ''

    def __repr__(self) -> str:
        parts = [f'({name}): {module!r}'.replace('\n', '\n  ')
                 for name, module in self.named_children()]
        extra = self.extra_repr()
        if not parts:
            return f'{type(self).__name__}({extra})'
        lines = ([extra] if extra else []) + parts
        return f'{type(self).__name__}(\n  ' + '\n  '.join(lines) + '\n)'

    def _refuse(self, sentence: str) -> NoReturn:
        """Say that operands do not fit, and which layer that is."""
        name = _calls.names.get(id(self))
        raise Error('SHAPE_MISMATCH', f'{name + ": " if name else ""}{type(self).__name__}'
                                      f'({self.extra_repr()}): {sentence}')

    def _operand(self, x: Any) -> Tensor:
        """The tensor that an operand is, in the context of the module's buffers."""
        context = getattr(x, '_context', None) or self._context
        return as_tensor(x, context or default_context())


class _Container(Module):
    """Of modules that have numbers or names of their own."""

    def _entries(self) -> List[Tuple[str, Any]]:
        entries: List[Tuple[str, Any]] = []
        for name, value in vars(self).items():
            entries += self._contents() if name == '_modules' else [(name, value)]
        return entries

    def _contents(self) -> List[Tuple[str, Any]]:
        raise NotImplementedError


class ModuleList(_Container):
    """Modules in a list, as PyTorch has it; a list of Python's as an attribute does as well."""

    def __init__(self, modules: Any = ()) -> None:
        self._modules: List[Module] = []
        self.extend(modules)

    def _contents(self) -> List[Tuple[str, Any]]:
        return [(str(i), module) for i, module in enumerate(self._modules)]

    def append(self, module: Module) -> Any:
        """Add a module at the end. Returns the list."""
        if not isinstance(module, Module):
            raise TypeError(f'{type(module).__name__} is no kiln.nn.Module')
        self._modules.append(module)
        return self

    def extend(self, modules: Any) -> Any:
        """Add modules at the end. Returns the list."""
        for module in modules:
            self.append(module)
        return self

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules)

    def __getitem__(self, key: Any) -> Any:
        return type(self)(*self._arguments(self._modules[key])) if isinstance(key, slice) else \
            self._modules[key]

    def __setitem__(self, key: int, module: Module) -> None:
        self._modules[key] = module

    def _arguments(self, modules: List[Module]) -> Any:
        return (modules,)


class Sequential(ModuleList):
    """Modules one behind the other: each gets what the one before gives."""

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    def _arguments(self, modules: List[Module]) -> Any:
        return modules

    def forward(self, x: Any) -> Any:
        """What the last one gives."""
        for module in self._modules:
            x = module(x)
        return x


class ModuleDict(_Container):
    """Modules under names, as PyTorch has it; a dict as an attribute does as well."""

    def __init__(self, modules: Optional[Mapping[str, Module]] = None) -> None:
        self._modules: Dict[str, Module] = dict(modules or {})

    def _contents(self) -> List[Tuple[str, Any]]:
        return list(self._modules.items())

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __getitem__(self, name: str) -> Module:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self._modules[name] = module

    def items(self) -> Any:
        """(name, module) of each."""
        return self._modules.items()

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()
