# SPDX-License-Identifier: Apache-2.0
"""Sequences of several lengths, with torch.nn.utils.rnn's names.

    packed = pack_padded_sequence(x, lengths, batch_first=True)
    y, state = kiln.nn.LSTM(3, 4)(packed)
    y, lengths = pad_packed_sequence(y, batch_first=True)

Packed sequences stay padded in memory, and their lengths go with them: recurrent layers leave out what is
behind. So no order is asked for, and lengths may be a tensor that a kiln.function gets.
"""
from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ... import _operations as _o
from ..._context import default_context
from ..._creation import arange
from ..._library import Error
from ..._manipulation import moveaxis, pad as _padded, reshape, stack
from ..._nn_module import shown
from ..._record import find_context, operands
from ..._tensor import Array, Tensor, as_tensor

__all__ = ['PackedSequence', 'pack_padded_sequence', 'pack_sequence', 'pad_packed_sequence', 'pad_sequence',
           'unpack_sequence', 'unpad_sequence']


class PackedSequence(NamedTuple):
    """Sequences `padded` [T, N, ...] of which the first lengths[n] elements count; `lengths` is an array
    of numpy's, or a tensor where only the device knows them."""

    padded: Tensor
    lengths: Any

    def _known(self) -> np.ndarray:
        if not isinstance(self.lengths, np.ndarray):
            raise Error('WRONG_STATE', 'packed sequences whose lengths are a tensor have no shape that is known: '
                                       'their lengths are to be a list or an array')
        return self.lengths

    @property
    def batch_sizes(self) -> np.ndarray:
        """How many sequences have a first, a second element and so on."""
        lengths = self._known()
        return np.array([(lengths > step).sum() for step in range(lengths.max(initial=0))], np.int64)

    @property
    def data(self) -> Tensor:
        """[sum of lengths, ...]: all first elements, the longest sequence's first, then all second ones."""
        lengths = self._known()
        order = np.argsort(-lengths, kind='stable')
        places = [step * len(lengths) + n for step, count in enumerate(self.batch_sizes) for n in order[:count]]
        rows = reshape(self.padded, (self.padded.shape[0] * self.padded.shape[1], *self.padded.shape[2:]))
        return _o.gather(rows, np.array(places, np.int32), 0)


def pack_padded_sequence(input: Array, lengths: Any, batch_first: bool = False,
                         enforce_sorted: bool = False) -> PackedSequence:
    """Sequences [T, N, ...], or [N, T, ...] with batch_first, of these lengths [N]. They need not be sorted."""
    x, = operands(input)
    if x.ndim < 2:
        raise Error('SHAPE_MISMATCH', f'pack_padded_sequence: input {shown(x)} has no dimensions of steps and sequences')
    x = moveaxis(x, 0, 1) if batch_first else x
    if not isinstance(lengths, Tensor) and not hasattr(lengths, '_tensor'):
        lengths = np.asarray(lengths)
        if lengths.size and not (lengths.min() >= 0 and lengths.max() <= x.shape[0]):
            raise ValueError(f'pack_padded_sequence: lengths from {lengths.min()} to {lengths.max()} of sequences of '
                             f'{x.shape[0]} steps')
        lengths = lengths.astype(np.int32)
    if lengths.shape != x.shape[1:2]:
        raise Error('SHAPE_MISMATCH', f'pack_padded_sequence: lengths {shown(lengths)} are not one for each of '
                                      f'{x.shape[1]} sequences')
    return PackedSequence(x, lengths)


def pad_packed_sequence(sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0,
                        total_length: Optional[int] = None) -> Tuple[Tensor, Any]:
    """(sequences [T, N, ...], or [N, T, ...] with batch_first, lengths): T is the longest one's length where
    that is known, else as it was, or `total_length`; behind a sequence is padding_value."""
    x, lengths = sequence.padded, sequence.lengths
    longest = x.shape[0] if not isinstance(lengths, np.ndarray) else int(lengths.max(initial=0))
    if total_length is not None and total_length < longest:
        raise ValueError(f'total_length {total_length} is below {longest}, which is there')
    x = x[:longest]
    counted = as_tensor(lengths, x.context)
    seen = reshape(_o.less(reshape(arange(longest, dtype=counted.dtype, context=x.context), (-1, 1)), counted),
                   (*x.shape[:2], *(1,) * (x.ndim - 2)))
    x = _o.where(seen, x, padding_value)
    if total_length is not None and total_length > longest:
        x = _padded(x, [(0, total_length - longest)] + [(0, 0)] * (x.ndim - 1), padding_value)
    return moveaxis(x, 0, 1) if batch_first else x, lengths


def pad_sequence(sequences: Sequence[Array], batch_first: bool = False, padding_value: float = 0.0) -> Tensor:
    """Sequences [length, ...] of several lengths as one tensor [T, N, ...], T the longest one's, or [N, T, ...]."""
    context = find_context(sequences) or default_context()
    given = [as_tensor(x, context) for x in sequences]
    if not given or any(not x.ndim for x in given):
        raise ValueError('pad_sequence takes one sequence or more, each of one dimension or more')
    longest = max(x.shape[0] for x in given)
    return stack([_padded(x, [(0, longest - x.shape[0])] + [(0, 0)] * (x.ndim - 1), padding_value) for x in given],
                 axis=0 if batch_first else 1)


def pack_sequence(sequences: Sequence[Array], enforce_sorted: bool = False) -> PackedSequence:
    """Sequences [length, ...] of several lengths, packed. They need not be sorted."""
    return PackedSequence(pad_sequence(sequences), np.array([len(x) for x in sequences], np.int32))


def unpad_sequence(padded_sequences: Array, lengths: Any, batch_first: bool = False) -> List[Tensor]:
    """Each sequence [length, ...] of a padded tensor; the lengths are a list or an array."""
    x, = operands(padded_sequences)
    x = x if batch_first else moveaxis(x, 0, 1)
    return [x[n, :int(length)] for n, length in enumerate(np.asarray(lengths))]


def unpack_sequence(packed_sequences: PackedSequence) -> List[Tensor]:
    """Each sequence [length, ...] of packed ones."""
    return unpad_sequence(packed_sequences.padded, packed_sequences._known())
