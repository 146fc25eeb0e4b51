# SPDX-License-Identifier: Apache-2.0
"""Keys of random numbers, and the seed of what names none."""
from __future__ import annotations

import threading
import weakref
from typing import Any, Optional

import numpy as np

from . import _operations as _o
from . import _tape
from ._buffer import Buffer
from ._context import Context, default_context
from ._library import lib
from ._tape import Expression, Tape
from ._tensor import Shape, Tensor, make


def _checked(seed: int) -> int:
    if not 0 <= seed < 2 ** 31:
        raise ValueError('a seed is from 0 to 2^31 - 1')
    return seed


class Generator:
    """Hands out keys for kiln.random_uniform(), kiln.random_normal() and kiln.dropout(), each used
    once. Inside a kiln.function, or a `with kiln.batch()`, a key is another one in each run; its
    state, two numbers, is then on the device. One seed gives the same numbers everywhere.
    """

    def __init__(self, seed: int = 0, context: Optional[Context] = None) -> None:
        self._seed = _checked(seed)
        self._context = context or default_context()
        self._count = 0
        self._state = Buffer.empty(2, 'i32', self._context)
        self._begin()

    def _begin(self) -> None:
        """Write the state, now: where a batch is recorded, it is to go on from there."""
        self._state._write(np.array([self._seed, 0], np.int32))

    def seed(self, seed: int) -> None:
        """Begin anew with this seed, also in functions that were recorded before."""
        _tape.refuse_while_tracing('a generator is seeded')
        self._seed, self._count = _checked(seed), 0
        self._begin()

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

    def __deepcopy__(self, memo: Any) -> Generator:
        """Copies of what draws from it draw from it, too."""
        return self

    def uniform(self, shape: Shape) -> Tensor:
        """f32 from [0, 1)."""
        return _o.random_uniform(shape, self.key())

    def normal(self, shape: Shape) -> Tensor:
        """f32 of mean 0 and variance 1."""
        return _o.random_normal(shape, self.key())


# ---- of layers that are given none ----

# A signal handler or a finaliser may come here while it is held.
_lock = threading.RLock()
_seed = 0
_generators: weakref.WeakSet[Generator] = weakref.WeakSet()
host = np.random.Generator(np.random.Philox(0))  # draws what layers start with


def seed(seed: int) -> None:
    """Seed what kiln.nn draws: the values that layers start with, and what they drop out where they
    have no generator of their own. Without it the seed is 0."""
    global _seed, host
    with _lock:
        _seed, host = _checked(seed), np.random.Generator(np.random.Philox(seed))
        for generator in list(_generators):
            generator.seed(seed)


def default_generator(context: Optional[Context] = None) -> Generator:
    """The generator of a context's layers that have none of their own: see kiln.random.seed()."""
    context = context or default_context()
    with _lock:
        if context._generator is None:
            context._generator = made = Generator(_seed, context)
            _generators.add(made)
        found: Generator = context._generator
        return found
