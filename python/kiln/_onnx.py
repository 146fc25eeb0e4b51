# SPDX-License-Identifier: Apache-2.0
"""Models in ONNX files, through libkiln-onnx."""
from __future__ import annotations

import ctypes
import functools
import math
import os
import sys
import weakref
from types import SimpleNamespace
from typing import Any, Mapping, Optional

import numpy as np

from . import _tape
from ._context import Context, default_context
from ._library import Handle, Library, Owned, by_size, check, lib, load_beside, struct
from ._record import several
from ._table import CONSTANTS, ONNX_FUNCTIONS
from ._tensor import Tensor, as_tensor, as_type
from ._types import BY_VALUE, Type, address_of, as_dtype, from_raw

_MAX_RANK = CONSTANTS['KILN_MAX_RANK']


@functools.lru_cache(maxsize=None)
def onnx_library() -> Library:
    """libkiln-onnx, loaded when the first model is."""
    return load_beside('onnx', 'which reads ONNX files', ONNX_FUNCTIONS)


def _value(value: Any) -> SimpleNamespace:
    """An input or output as users see it."""
    known = value.rank <= _MAX_RANK
    shape = tuple(
        dim if dim else symbol.decode() if symbol else None
        for dim, symbol in zip(value.dims[:value.rank], value.symbols[:value.rank])) if known else None
    return SimpleNamespace(name=value.name.decode(), dtype=BY_VALUE[value.type], shape=shape,
                           content=bool(value.content))


class Model:
    """A model in an ONNX file (or in bytes), its weights on the device:

        model = kiln.Model('model.onnx')
        result = model(input_ids=ids, attention_mask=mask)['last_hidden_state']

    `inputs` and `outputs` are what the file says: name, dtype, shape (with the name of a dimension,
    or None, where it is left open; None where nothing is said). A batch is kept for each of
    `batches` shapes. `weights` "f16" or "bf16" stores them so, "q8_0" or "q4_0" the matrices of
    products in blocks. `folder` is where files of external data lie, for bytes. `plain` records each
    node by itself. A node's result of more than `most_elements` (0: 2^32) is refused. `notes` says what reading changed.

    Any thread may call it.
    """

    def __init__(self, source: Any, *, weights: Optional[Type] = None, batches: int = 0,
                 folder: Optional[str] = None, plain: bool = False,
                 most_elements: int = 0,
                 context: Optional[Context] = None) -> None:
        self._lib = onnx_library()
        self._context = context or default_context()
        options = struct('kiln_model_options')()
        self._lib.kiln_model_options_init(*by_size(options))
        options.weights = as_dtype(weights).value if weights else 0
        options.batches = batches
        options.folder = None if folder is None else os.fsencode(folder)
        options.plain = bool(plain)
        options.most_elements = most_elements
        self._owned = Owned(self._lib.kiln_model_release)
        held, asked, out = self._context._held(), ctypes.byref(options), self._owned.out
        if isinstance(source, (bytes, bytearray, memoryview)):
            content = np.frombuffer(source, np.uint8)
            check(self._lib.kiln_model_load_memory(held, content.ctypes.data, content.nbytes, asked,
                                                   out))
        else:
            check(self._lib.kiln_model_load(held, os.fsencode(source), asked, out))
        self.inputs = self._values(self._lib.kiln_model_inputs)
        self.outputs = self._values(self._lib.kiln_model_outputs)
        self.notes: str = self._lib.kiln_model_notes(self._owned).decode(errors='replace')

    def _values(self, ask: Any) -> list[SimpleNamespace]:
        values = ctypes.c_void_p()
        value = struct('kiln_model_value')
        count = ask(self._owned, ctypes.byref(values), ctypes.sizeof(value))
        array = ctypes.cast(values, ctypes.POINTER(value))
        return [_value(array[i]) for i in range(count)]

    def _given(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        """The inputs in the file's order."""
        if len(arguments) == 1 and isinstance(arguments[0], Mapping):
            named = {**arguments[0], **named}
            arguments = ()
        names = [value.name for value in self.inputs]
        given = dict(zip(names, arguments))
        if len(arguments) > len(names):
            raise TypeError(f'{len(arguments)} inputs for a model of {len(names)}')
        for name, value in named.items():
            if name not in names or name in given:
                raise TypeError(f'{name!r} is no input, or given twice; the inputs are '
                                + ', '.join(map(repr, names)))
            given[name] = value
        missing = [name for name in names if name not in given]
        if missing:
            raise TypeError('inputs are missing: ' + ', '.join(map(repr, missing)))
        return [given[name] for name in names]

    def __call__(self, *arguments: Any, **named: Any) -> dict[str, np.ndarray]:
        """Run it: arrays by the names of the inputs, in their order, or as one dict; a dict of arrays
        by the names of the outputs. Arrays of the inputs' types are not copied."""
        _tape.refuse_while_tracing('a model runs (see Model.record())')
        arrays = [as_type(value, spec.dtype)
                  for value, spec in zip(self._given(arguments, named), self.inputs)]
        described = _contents(arrays)
        outputs = (struct('kiln_array') * max(len(self.outputs), 1))()
        try:
            check(self._lib.kiln_model_run(self._owned, described, outputs))
            return {spec.name: _taken(outputs[i]) for i, spec in enumerate(self.outputs)}
        finally:
            for output in outputs:
                if output.data:
                    lib.kiln_free(output.data)

    def record(self, *arguments: Any, **named: Any) -> dict[str, Tensor]:
        """Record it over tensors, as a part of something larger: a dict of tensors by the names of
        the outputs. Inputs whose content decides about shapes are arrays."""
        given = self._given(arguments, named)
        tensors, contents = [], []
        for value, spec in zip(given, self.inputs):
            content = None
            if spec.content:
                content = as_type(value, spec.dtype)
                value = content
            contents.append(content)
            tensors.append(as_tensor(value, self._context).astype(spec.dtype))
        described = _contents(contents)
        count = len(self.outputs)

        def enter(batch: Any, handles: list[Any]) -> list[Any]:
            outputs = (Handle * count)()
            check(self._lib.kiln_model_record(self._owned, batch,
                                              (Handle * max(len(handles), 1))(*handles),
                                              described, outputs))
            return [Handle(output.id) for output in outputs]
        made = several(self._context, tensors, enter, count)
        return {spec.name: tensor for spec, tensor in zip(self.outputs, made)}

    def __repr__(self) -> str:
        def words(values: list[Any]) -> str:
            return ', '.join(f'{v.name} {v.dtype.name} {v.shape}' for v in values)
        return f'<kiln.Model ({words(self.inputs)}) -> ({words(self.outputs)})>'


@functools.lru_cache(maxsize=1024)
def _head(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """What a kiln_array of this type and shape begins with: all but the address."""
    entry = struct('kiln_array')()
    entry.type = as_dtype(dtype).value
    entry.rank = len(shape)
    entry.dims = shape
    return bytes(entry)[:type(entry).data.offset]


def _contents(arrays: list[Any]) -> Any:
    """An array of kiln_array."""
    kind = struct('kiln_array')
    described = (kind * max(len(arrays), 1)).from_buffer_copy(b''.join(
        bytes(ctypes.sizeof(kind)) if array is None else
        _head(array.dtype, array.shape) + address_of(array).to_bytes(8, sys.byteorder)
        for array in arrays or [None]))
    described._arrays = arrays  # whose memory it names
    return described


# Smaller ones are copied: to have memory freed with an array takes longer.
_LARGE = 65536


def _taken(output: Any) -> np.ndarray:
    """What a kiln_array names, which it does no more then."""
    dtype = BY_VALUE[output.type]
    shape = tuple(output.dims[:output.rank])
    address, size = output.data, dtype.itemsize * math.prod(shape)
    if size < _LARGE:
        array = np.empty(shape, dtype.raw)
        ctypes.memmove(address_of(array), address, size)
        return from_raw(array, dtype)
    held = (ctypes.c_char * size).from_address(address)
    output.data = None
    weakref.finalize(held, lib.kiln_free, address).atexit = False  # arrays may outlive all else
    return from_raw(np.frombuffer(held, dtype.raw).reshape(shape), dtype)
