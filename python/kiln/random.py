# SPDX-License-Identifier: Apache-2.0
"""Keys of random numbers."""
from __future__ import annotations

from typing import Optional

import numpy as np

from . import _operations as _o
from . import _tape
from ._buffer import Buffer
from ._context import Context, default_context
from ._library import lib
from ._tape import Expression, Tape
from ._tensor import Shape, Tensor, make


class Generator:
    """Hands out keys for kiln.random_uniform(), kiln.random_normal() and kiln.dropout(), each used
    once. Inside a kiln.function, or a `with kiln.batch()`, a key is another one in each run; its
    state, two numbers, is then on the device. One seed gives the same numbers everywhere.
    """

    def __init__(self, seed: int = 0, context: Optional[Context] = None) -> None:
        if not 0 <= seed < 2 ** 31:
            raise ValueError('a seed is from 0 to 2^31 - 1')
        self._seed = seed
        self._context = context or default_context()
        self._count = 0
        self._state = Buffer(np.array([seed, 0], np.int32), context=self._context)

    def key(self) -> Tensor:
        """A key that nobody had yet."""
        tape = _tape.explicit_tape(self._context)
        if tape is not None:
            return self._key_of_run(tape)
        # The state's second numbers do not get as far.
        of_seed = _o.random_key(self._seed | 1 << 63, context=self._context)
        self._count += 1
        return _o.random_split(of_seed, self._count - 1)

    def _key_of_run(self, tape: Tape) -> Tensor:
        of_run, count = tape.keys.get(self, (None, 0))
        if of_run is None:
            state = self._state
            of_run = make(self._context, Expression(
                (), lambda batch, _: lib.kiln_random_next(batch, state._owned)))
        tape.keys[self] = of_run, count + 1
        return _o.random_split(of_run, count)

    def uniform(self, shape: Shape) -> Tensor:
        """f32 from [0, 1)."""
        return _o.random_uniform(shape, self.key())

    def normal(self, shape: Shape) -> Tensor:
        """f32 of mean 0 and variance 1."""
        return _o.random_normal(shape, self.key())
