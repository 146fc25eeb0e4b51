# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers, as PyTorch has them: each layer and direction has weight_ih_l0, weight_hh_l0, bias_ih_l0
and bias_hh_l0, and so on, with the gates in PyTorch's order."""
from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _functions as _f
from ._context import Context
from ._manipulation import concat, permute_dims, reshape, stack
from ._nn_init import drawn
from ._nn_layers import Dropout
from ._nn_module import Module, dims, parameter, shown
from ._tensor import Array, Tensor
from ._types import Type

__all__ = ['GRU', 'GRUCell', 'LSTM', 'LSTMCell', 'RNN', 'RNNCell']


class _Gated(Module):
    """Whose parameters are those of a step, once or several times."""
    _cell: Callable[..., Tuple[Any, ...]]
    _gates = 1
    _states_of: Tuple[str, ...] = ('h',)
    input_size: int
    hidden_size: int
    bias: bool

    def _draw(self, inputs: int, ending: str, dtype: Type, context: Optional[Context]) -> None:
        bound, rows = 1 / math.sqrt(self.hidden_size), self._gates * self.hidden_size
        for name, shape in (('weight_ih', (rows, inputs)), ('weight_hh', (rows, self.hidden_size)),
                            ('bias_ih', (rows,)), ('bias_hh', (rows,))):
            if self.bias or name.startswith('weight'):
                setattr(self, name + ending, parameter(drawn(shape, bound), dtype, context))

    def _weights(self, endings: List[str]) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
        """[directions, ...], as the library takes them."""
        def of(name: str) -> List[Any]:
            return [getattr(self, name + ending) for ending in endings]

        def together(parts: List[Any]) -> Tensor:
            return reshape(parts[0], (1, *parts[0].shape)) if len(parts) == 1 else stack(parts)
        biases = [concat(pair, axis=0) for pair in zip(of('bias_ih'), of('bias_hh'))] if self.bias else []
        return together(of('weight_ih')), together(of('weight_hh')), together(biases) if biases else None


class _Recurrent(_Gated):
    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, *,
                 dtype: Type = 'f32', context: Optional[Context] = None) -> None:
        if num_layers < 1 or hidden_size < 1:
            raise ValueError(f'{num_layers} layers of {hidden_size} units')
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        self.dropout = Dropout(dropout)
        for layer in range(num_layers):
            inputs = input_size if layer == 0 else hidden_size * len(self._suffixes)
            for suffix in self._suffixes:
                self._draw(inputs, f'_l{layer}{suffix}', dtype, context)

    @property
    def _suffixes(self) -> Tuple[str, ...]:
        return ('', '_reverse') if self.bidirectional else ('',)

    def _layer(self, x: Tensor, layer: int, states: List[Any], lengths: Optional[Array]) -> Tuple[Any, ...]:
        weights = self._weights([f'_l{layer}{suffix}' for suffix in self._suffixes])
        return self._cell(x, *weights, lengths=lengths,
                          direction='bidirectional' if self.bidirectional else 'forward',
                          **dict(zip(self._states_of, states)))

    def _starts(self, x: Tensor, states: List[Any], alone: bool) -> List[Any]:
        """Each state before the first step, [layers * directions, N, hidden_size]."""
        wanted = (self.num_layers * len(self._suffixes), x.shape[1], self.hidden_size)
        made: List[Any] = []
        for name, state in zip(self._states_of, states):
            state = self._operand(state)
            if alone and state.ndim == 2:
                state = reshape(state, (state.shape[0], 1, state.shape[1]))
            if state.shape != wanted:
                self._refuse(f'the state {name} is {shown(state)}, not {dims(wanted)}')
            made.append(state)
        return made

    def _run(self, x: Any, states: List[Any], lengths: Optional[Array]) -> Tuple[Any, List[Tensor]]:
        given, packed = x, hasattr(x, 'padded')
        if packed:
            x, lengths = x.padded, x.lengths
        x = self._operand(x)
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            order = 'N,T' if self.batch_first else 'T,N'
            self._refuse(f'x {shown(x)} is not [{order},{self.input_size}], nor [T,{self.input_size}]')
        alone = x.ndim == 2
        x = reshape(x, (x.shape[0], 1, x.shape[1])) if alone else \
            permute_dims(x, (1, 0, 2)) if self.batch_first and not packed else x
        starts, directions = self._starts(x, states, alone), len(self._suffixes)
        ends: List[List[Tensor]] = []
        for layer in range(self.num_layers):
            x = self.dropout(x) if layer else x
            own = [start[layer * directions:(layer + 1) * directions] for start in starts]
            y, *last = self._layer(x, layer, own, lengths)
            ends.append(last)
            x = permute_dims(y, (0, 2, 1, 3))
            x = reshape(x, (*x.shape[:2], directions * self.hidden_size))
        states = [concat(of_layers, axis=0) for of_layers in zip(*ends)]
        if alone:
            x, *states = (reshape(y, (y.shape[0], y.shape[2])) for y in (x, *states))
            return x, states
        if packed:
            return given._replace(padded=x), states
        return (permute_dims(x, (1, 0, 2)) if self.batch_first else x), states

    def forward(self, x: Array, h: Optional[Array] = None, *,
                lengths: Optional[Array] = None) -> Tuple[Tensor, Tensor]:
        """(outputs of all steps, states after the last) of x [T, N, input_size], or [N, T, ...] with
        batch_first, or [T, input_size]. h is the states before the first step, [num_layers * directions,
        N, hidden_size]; `lengths` [N] how many steps of each sequence count: outputs behind are 0. Of what
        kiln.nn.utils.rnn has packed the outputs are packed."""
        y, (last,) = self._run(x, [] if h is None else [h], lengths)
        return y, last

    def extra_repr(self) -> str:
        """Its arguments, but for what is as usual."""
        usual = (('num_layers', 1), ('bias', True), ('batch_first', False), ('bidirectional', False))
        said = [f'{self.input_size}, {self.hidden_size}']
        return ', '.join(said + [f'{name}={getattr(self, name)}' for name, value in usual
                                 if getattr(self, name) != value])


class RNN(_Recurrent):
    """h = tanh(W_ih x + b_ih + W_hh h + b_hh), step by step."""
    _cell = staticmethod(_f.rnn)


class GRU(_Recurrent):
    """Gated recurrent units."""
    _cell = staticmethod(_f.gru)
    _gates = 3


class LSTM(_Recurrent):
    """Long short-term memory."""
    _cell = staticmethod(_f.lstm)
    _gates = 4
    _states_of = ('h', 'c')

    def forward(self, x: Array, state: Optional[Tuple[Array, Array]] = None, *,  # type: ignore[override]
                lengths: Optional[Array] = None) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        """(outputs of all steps, (h, c) after the last), as GRU has them; `state` is the pair before the
        first step."""
        y, (h, c) = self._run(x, [] if state is None else list(state), lengths)
        return y, (h, c)


class _Cell(_Gated):
    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, *, dtype: Type = 'f32',
                 context: Optional[Context] = None) -> None:
        if hidden_size < 1:
            raise ValueError(f'a step of {hidden_size} units')
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self._draw(input_size, '', dtype, context)

    def _step(self, x: Array, states: List[Any]) -> List[Tensor]:
        x = self._operand(x)
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            self._refuse(f'x {shown(x)} is not [N,{self.input_size}], nor [{self.input_size}]')
        wanted, rows = (*x.shape[:-1], self.hidden_size), x.shape[0] if x.ndim == 2 else 1
        starts: Dict[str, Tensor] = {}
        for name, state in zip(self._states_of, states):
            state = self._operand(state)
            if state.shape != wanted:
                self._refuse(f'the state {name} is {shown(state)}, not {dims(wanted)}')
            starts[name] = reshape(state, (1, rows, self.hidden_size))
        _, *ends = self._cell(reshape(x, (1, rows, self.input_size)), *self._weights(['']), **starts)
        return [reshape(end, wanted) for end in ends]

    def forward(self, x: Array, h: Optional[Array] = None) -> Tensor:
        """The state behind the step, [N, hidden_size], of x [N, input_size] and the state before it, zeros
        where that is None; without N, too."""
        return self._step(x, [] if h is None else [h])[0]

    def extra_repr(self) -> str:
        """Its arguments, but for what is as usual."""
        return f'{self.input_size}, {self.hidden_size}' + ('' if self.bias else ', bias=False')


class RNNCell(_Cell):
    """A step of RNN."""
    _cell = staticmethod(_f.rnn)


class GRUCell(_Cell):
    """A step of GRU."""
    _cell = staticmethod(_f.gru)
    _gates = GRU._gates


class LSTMCell(_Cell):
    """A step of LSTM, whose state is a pair."""
    _cell = staticmethod(_f.lstm)
    _gates, _states_of = LSTM._gates, LSTM._states_of

    def forward(self, x: Array,  # type: ignore[override]
                state: Optional[Tuple[Array, Array]] = None) -> Tuple[Tensor, Tensor]:
        """(h, c) behind the step, as GRUCell has h; `state` is the pair before it."""
        h, c = self._step(x, [] if state is None else list(state))
        return h, c
