# SPDX-License-Identifier: Apache-2.0
"""Models in ONNX files, through libkiln-onnx."""
from __future__ import annotations

import ctypes
import functools
import os
from types import SimpleNamespace
from typing import Any, Mapping, Optional

import numpy as np

from . import _tape
from ._context import Context, default_context
from ._library import Handle, Library, Owned, by_size, check, lib, load_beside, struct
from ._record import several
from ._table import CONSTANTS, ONNX_FUNCTIONS
from ._tensor import Tensor, as_tensor, as_type
from ._types import BY_VALUE, Type, as_dtype, from_raw

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
    `batches` shapes. `weights` "f16" or "bf16" stores them so. `folder` is where files of external
    data lie, for bytes. `plain` records each node by itself. A node's result of more than
    `most_elements` (0: 2^32) is refused. `notes` says what reading changed.

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
        lease = Owned(self._lib.kiln_model_batch_return)
        check(self._lib.kiln_model_batch(self._owned, _contents(arrays), lease.out))
        try:
            return self._run(ctypes.cast(
                lease.pointer, ctypes.POINTER(struct('kiln_model_lease'))).contents, arrays)
        finally:
            lease.close()

    def _run(self, lease: Any, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
        def items(pointer: Any, name: str) -> Any:
            return ctypes.cast(pointer, ctypes.POINTER(struct(name)))
        tensors = items(lease.input_tensors, 'kiln_tensor')
        for i, array in enumerate(arrays):
            if tensors[i].id and array.nbytes:
                check(lib.kiln_rebind_upload(lease.batch, tensors[i], array.ctypes.data))
        shapes = items(lease.outputs, 'kiln_array')
        results = {}
        for i, spec in enumerate(self.outputs):
            dtype = BY_VALUE[shapes[i].type]
            array = np.empty(tuple(shapes[i].dims[:shapes[i].rank]), dtype.raw)
            if array.nbytes:
                check(lib.kiln_rebind_read(lease.batch, i, array.ctypes.data, array.nbytes))
            results[spec.name] = (array, dtype)
        check(lib.kiln_batch_execute(lease.batch))
        return {name: from_raw(array, dtype) for name, (array, dtype) in results.items()}

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


def _contents(arrays: list[Any]) -> Any:
    """An array of kiln_array."""
    described = (struct('kiln_array') * max(len(arrays), 1))()
    described._arrays = arrays  # whose memory it names
    for entry, array in zip(described, arrays):
        if array is None:
            continue
        entry.type = as_dtype(array.dtype).value
        entry.rank = array.ndim
        entry.dims = array.shape
        entry.data = array.ctypes.data
    return described
