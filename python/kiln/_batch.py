# SPDX-License-Identifier: Apache-2.0
"""Batches: several results, and buffers that are written, in one run."""
from __future__ import annotations

import contextlib
import ctypes
from types import SimpleNamespace
from typing import Any, Iterator, Optional

import numpy as np

from . import _tape
from ._context import Context, default_context, option_word, values_of
from ._library import Owned, by_size, check, lib, name_text, struct
from ._tensor import Tensor, another, as_tensor, new_array, settle


class Batch:
    """What is recorded inside a `with kiln.batch(context) as b:` runs once, at the end of the block:
    the buffers that were written there get their content, and b.read(x) brings x back, so that
    x.numpy() costs nothing more. After the block b.run() runs the same again, with what uploaded
    arrays and buffers hold then.

    `precision` of its products is as a kiln.Context takes it; without one the context's own. With
    `batch_invariant` it adds up in orders that do not depend on how many rows there are: a row's result
    has the same bits in all batches of two rows or more. With `independent` its runs and those that
    other threads make of other batches do not wait for each other, unless they have a buffer in
    common: on a device with memory of its own one uploads while another computes. See kiln/batch.h.

    A batch belongs to one thread at a time. An error in the block leaves everything undone.
    """

    def __init__(self, context: Optional[Context] = None, precision: Optional[str] = None, *,
                 batch_invariant: bool = False, independent: bool = False) -> None:
        self.context = context or default_context()
        self._tape = _tape.Tape(self.context, option_word('precision', precision), batch_invariant,
                                independent)

    def __enter__(self) -> Batch:
        _tape.begin_block(self._tape)
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        _tape.end_block(self._tape)
        if kind is None and (self._tape.reads or self._tape.exports or self._tape.effects):
            self.run()

    def read(self, x: Any, out: Optional[np.ndarray] = None) -> Tensor:
        """Ask for x: its value is there after the block. `out`, a row-major array of its type and
        shape, is where it goes, in each run."""
        tensor = as_tensor(x, self.context)
        tape = self._tape
        if out is not None:
            good = out.shape == tensor.dtype.raw_shape(tensor.shape) and out.dtype == tensor.dtype.raw
            if not (good and out.flags.c_contiguous and out.flags.writeable):
                raise ValueError(f'out has to be a row-major array of {tensor.dtype.raw} and shape '
                                 f'{list(tensor.shape)} that can be written')
            # A tensor of its own: the same result may be wanted in several places.
            tensor = another(tensor)
            tape.reads[tensor] = out
        elif tensor not in tape.reads:
            tape.reads[tensor] = new_array(tensor)
        tape.try_out(tensor)
        return tensor

    def run(self) -> None:
        """Run it (again)."""
        self._tape.run()
        for tensor, array in self._tape.reads.items():
            settle(tensor, array)

    def cost(self) -> SimpleNamespace:
        """What a run costs: launches, uploads, downloads, peak_bytes and so on."""
        self._tape.finish_recording()
        cost = struct('kiln_batch_cost')()
        check(lib.kiln_batch_get_cost(self._tape.batch, *by_size(cost)))
        return values_of(cost)

    def explain(self) -> str:
        """The graph, what was fused and why not, the memory plan and the kernels' text."""
        self._tape.finish_recording()
        text = Owned(lib.kiln_free)
        check(lib.kiln_batch_explain(self._tape.batch, text.out))
        return text.text()

    def prepare(self, threads: int = 0) -> None:
        """Compile what the run needs, on so many threads (0: as many as there are cores)."""
        self._tape.finish_recording()
        check(lib.kiln_batch_prepare(self._tape.batch, threads))


def batch(context: Optional[Context] = None, precision: Optional[str] = None, *,
          batch_invariant: bool = False, independent: bool = False) -> Batch:
    """A batch, for `with kiln.batch(context) as b:`; kiln.Batch says what the options are."""
    return Batch(context, precision, batch_invariant=batch_invariant, independent=independent)


@contextlib.contextmanager
def names(name: Optional[str]) -> Iterator[None]:
    """Call everything that this thread makes in a `with kiln.names('layer3'):` so, as
    Tensor.named() does, which may say otherwise; None: nothing."""
    name_text(name)  # or an error, here
    before = _tape.thread.name
    try:
        _tape.thread.name = name
        yield
    finally:
        _tape.thread.name = before
