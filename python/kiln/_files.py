# SPDX-License-Identifier: Apache-2.0
"""Buffers in files: safetensors, as most published weights are."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Optional, Sequence

from ._buffer import Buffer
from ._context import Context, default_context
from ._library import Owned, check, lib, pointers, struct, texts
from ._tree import Named
from ._types import BY_VALUE


def _named(tree: Any, prefix: str = '') -> dict[str, Any]:
    """{name: value} of nested dicts, lists, tuples and modules: names joined by points."""
    if isinstance(tree, Named):
        tree = tree._state()
    if isinstance(tree, dict):
        pairs = tree.items()
    elif isinstance(tree, (list, tuple)):
        pairs = enumerate(tree)  # type: ignore[assignment]
    else:
        return {} if tree is None else {prefix: tree}
    found: dict[str, Any] = {}
    for key, value in pairs:
        found.update(_named(value, f'{prefix}.{key}' if prefix else str(key)))
    return found


def save(path: Any, values: Any) -> None:
    """Write a dict of buffers, tensors and arrays to a safetensors file, under their names. Lists and
    dicts in it are taken apart: the first of "layers" is "layers.0"; a kiln.nn.Module is its
    state_dict(). The file is whole or not at all.

        kiln.save('training.safetensors', {'parameters': w, 'optimizer': optimizer.state})
    """
    named = _named(values)
    buffers = [v if isinstance(v, Buffer) else Buffer(v) for v in named.values()]
    check(lib.kiln_save(os.fsencode(path), len(named), texts(list(named)), pointers([b._owned for b in buffers])))


def saved(path: Any) -> dict[str, tuple[Any, ...]]:
    """{name: (type, shape)} of what a safetensors file has; the type is None if kiln has none."""
    listed, count = Owned(lib.kiln_free), ctypes.c_size_t()
    check(lib.kiln_saved_list(os.fsencode(path), listed.out, ctypes.byref(count),
                              ctypes.sizeof(struct('kiln_saved'))))
    entries = ctypes.cast(listed.pointer, ctypes.POINTER(struct('kiln_saved')))
    found = {}
    for i in range(count.value):
        entry = entries[i]
        found[entry.name.decode()] = BY_VALUE.get(entry.type), tuple(entry.dims[:entry.rank])
    return found


def load(path: Any, names: Optional[Sequence[str]] = None,
         context: Optional[Context] = None) -> dict[str, Buffer]:
    """{name: buffer} of a safetensors file, or of some of its names. Where memory is shared the file
    is mapped, and nothing is copied."""
    names = list(saved(path)) if names is None else list(names)
    context = context or default_context()
    made = (ctypes.c_void_p * max(len(names), 1))()
    owned = [Owned(lib.kiln_buffer_release) for _ in names]
    # What an exception leaves in the array.
    rest = Owned(lambda _: [lib.kiln_buffer_release(pointer) for pointer in made if pointer],
                 ctypes.addressof(made))
    check(lib.kiln_load(context._held(), os.fsencode(path), len(names), texts(names), made))
    for i, one in enumerate(owned):
        made[i], one.pointer = None, made[i]  # in this order: never both
    rest.close()
    return {name: Buffer._of(context, one) for name, one in zip(names, owned)}


def load_into(path: Any, values: Any) -> None:
    """Write what a safetensors file has into buffers, named as kiln.save() names them. All must have
    the file's types and shapes, else nothing is written."""
    named = _named(values)
    if not all(isinstance(b, Buffer) for b in named.values()):
        raise TypeError('a file is loaded into kiln.Buffers')
    for buffer in named.values():
        buffer._version += 1
    check(lib.kiln_load_into(os.fsencode(path), len(named), texts(list(named)),
                             pointers([b._owned for b in named.values()])))
