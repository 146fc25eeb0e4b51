# SPDX-License-Identifier: Apache-2.0
"""Devices and contexts."""
from __future__ import annotations

import ctypes
import os
import threading
from types import SimpleNamespace
from typing import Any, Optional

import numpy as np

from ._library import (CONSTANTS, STRUCTS, Error, Owned, by_size, check, initialised, lib,
                       optional_text, struct)
from ._types import BY_VALUE, DType, Type, as_dtype

_WORDS = {
    'cache': {None: 0, 'on': 1, 'ro': 2, 'off': 3},
    'host_memory': {None: 0, 'shared': 1, 'separate': 2},
    'compile': {None: 0, 'together': 1, 'alone': 2, 'never': 3, 'background': 4,
                'quick': 5},
    'precision': {None: 0, 'exact': 1, 'tf32': 2, 'f32x3': 3, 'bf16': 4, 'f16': 5},
}


def option_word(field: str, word: Optional[str]) -> int:
    """The value that a word has as an option of this name; None is its default."""
    if word not in _WORDS[field]:
        known = ', '.join(repr(w) for w in _WORDS[field])
        raise ValueError(f'{field} is one of {known}, not {word!r}')
    return _WORDS[field][word]


def values_of(structure: Any) -> SimpleNamespace:
    """The fields of a structure of C, with texts as str and flags as bool."""
    fields = {}
    for kind, field, length in STRUCTS[type(structure).__name__]:
        value = getattr(structure, field)
        if isinstance(value, bytes):
            value = value.decode(errors='replace')
        elif kind == 'int':
            value = bool(value)
        elif kind in STRUCTS:
            value = values_of(value)
        elif length:
            value = list(value)
        fields[field] = value
    return SimpleNamespace(**fields)


class Device(SimpleNamespace):
    """What an OpenCL device says of itself: name, type, platform and the rest of kiln_device_info."""

    def __repr__(self) -> str:
        return f'<kiln.Device {self.name!r}, {self.type} of {self.platform!r}>'


def devices() -> list[Device]:
    """What each OpenCL device of this machine says of itself, in the order of their numbers."""
    count = ctypes.c_size_t()
    check(lib.kiln_device_count(ctypes.byref(count)))
    return [_describe(index) for index in range(count.value)]


def _describe(index: int) -> Device:
    info = struct('kiln_device_info')()
    check(lib.kiln_device_describe(index, *by_size(info)))
    return _device(info)


def _device(info: Any) -> Device:
    described = Device(**vars(values_of(info)))
    described.type = lib.kiln_device_type_name(info.type).decode()
    return described


class Context:
    """One device with its queue, its cache of kernels and its memory.

    `device` is a number, a type ("gpu", "cpu", "accelerator") or a part of a name; None: what
    $KILN_DEVICE says, else the best one. The other options are those of kiln_context_options:
    `cache` is "on", "ro" or "off", `host_memory` "shared" or "separate", `precision` (of products
    of f32) "exact", "tf32", "f32x3", "bf16" or "f16", `validate` and `check_values` shares of the
    runs that are looked at.

    `compile` is "together", "alone", "never", "background" or "quick"; None: what $KILN_COMPILE
    says, else "quick". That is: where the driver can (PoCL), what lacks three kernels or more, as
    the first call of a kiln.function(), runs by kernels that are not optimised, while other
    processes compile its own; the first call after that has these. Results have the same bits, and
    with KILN_LOG=info a line says so. "together" waits for the kernels, as other devices do.

    Any thread may use it. In a child of fork() that was started after it was made, every call says
    FORKED: make contexts in the child, or start processes by "spawn" (multiprocessing).
    """

    def __init__(self, device: Optional[object] = None, *, cache_dir: Optional[str] = None,
                 cache_limit: int = 0, cache: Optional[str] = None,
                 host_memory: Optional[str] = None, matmul: Optional[str] = None,
                 profile: bool = False, trace: Optional[str] = None, validate: float = 0.0,
                 memory_limit: int = 0, compile: Optional[str] = None,
                 precision: Optional[str] = None, check_values: float = 0.0) -> None:
        options = initialised('KILN_CONTEXT_OPTIONS_INIT')
        options.device = optional_text(None if device is None else str(device))
        options.cache_dir = optional_text(cache_dir)
        options.cache_limit = cache_limit
        options.matmul = optional_text(matmul)
        options.profile = bool(profile)
        options.trace = optional_text(trace)
        options.validate = validate
        options.check_values = check_values
        options.memory_limit = memory_limit
        if compile is None and not os.environ.get('KILN_COMPILE'):
            compile = 'quick'
        for field, word in (('cache', cache), ('host_memory', host_memory), ('compile', compile),
                            ('precision', precision)):
            setattr(options, field, option_word(field, word))
        self._owned: Optional[Owned] = Owned(lib.kiln_context_release)
        check(self._create(ctypes.byref(options), self._owned.out))
        self._thread = threading.local()  # each one's batch for what is in no other
        self._generator: Any = None  # see kiln.random.default_generator()
        self.device = self._describe_device()
        # Whether its batches read and write the host's memory in place.
        self.shares_host_memory = self.device.shares_host_memory and host_memory != 'separate'

    def _create(self, options: Any, out: Any) -> int:
        status: int = lib.kiln_context_create(options, out)
        return status

    def _describe_device(self) -> Device:
        info = struct('kiln_device_info')()
        check(lib.kiln_context_device(self._held(), *by_size(info)))
        return _device(info)

    def _held(self) -> Owned:
        """What is released when it is closed and nobody holds this any more."""
        owned = self._owned
        if owned is None:
            raise Error('WRONG_STATE', 'the context is closed')
        return owned

    @property
    def stats(self) -> SimpleNamespace:
        """What the context has done so far: uploads, upload_bytes, launches, kernels_compiled and
        so on, as kiln_context_stats has them."""
        stats = struct('kiln_context_stats')()
        check(lib.kiln_context_get_stats(self._held(), *by_size(stats)))
        return values_of(stats)

    def finish(self) -> None:
        """Wait until everything submitted so far has completed."""
        check(lib.kiln_context_finish(self._held()))

    def sync_cache(self) -> None:
        """Wait until the kernels compiled so far are in the disk cache."""
        check(lib.kiln_context_sync_cache(self._held()))

    def trim(self) -> None:
        """Give idle memory back to the device."""
        check(lib.kiln_context_trim(self._held()))

    def best_precision(self) -> DType:
        """Which type pays on this device as storage of what matrix products read; measured once."""
        value = ctypes.c_int()
        check(lib.kiln_context_best_precision(self._held(), ctypes.byref(value)))
        return BY_VALUE[value.value]

    def host_array(self, shape: Any, dtype: Type = 'f32') -> np.ndarray:
        """A numpy array in memory that the device reads and writes at full speed (pinned, where it
        has memory of its own): for what is uploaded again and again. Its content is undefined."""
        raw = as_dtype(dtype).raw
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        count = int(np.prod(shape, dtype=np.int64))
        context = self._held()
        # The array refers to `holder`, and that to the memory, which refers to the context.
        memory = Owned(lambda address: lib.kiln_host_free(context, address))
        check(lib.kiln_host_alloc(context, count * raw.itemsize, memory.out))
        holder = (ctypes.c_char * max(count * raw.itemsize, 1)).from_address(memory.pointer or 0)
        holder._owned = memory  # type: ignore[attr-defined]
        return np.frombuffer(memoryview(holder), raw, count).reshape(shape)

    def close(self) -> None:
        """Release the context; buffers and batches that there are still hold it. What else is made
        of it says WRONG_STATE from now on."""
        self._thread = threading.local()
        self._generator = None
        self._owned = None

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ', closed' if self._owned is None else ''
        return f'<kiln.Context on {self.device.name}{closed}>'


_default: Optional[Context] = None
# The thread that makes the context may come here again meanwhile, in a signal handler or a finaliser.
_default_lock = threading.RLock()


def default_context() -> Context:
    """The context of everything that names none: made when it is first wanted, on the best
    device, or on the one that $KILN_DEVICE names."""
    global _default
    context = _default
    if context is not None and context._owned is not None:
        return context
    with _default_lock:
        context = _default
        if context is None or context._owned is None:
            made, context = Context(), _default
            if context is None or context._owned is None:
                context = _default = made
        return context


def set_default_context(context: Optional[Context]) -> None:
    """Let this be the context of everything that names none; None: a new one when it is wanted."""
    global _default
    if not isinstance(context, (Context, type(None))):
        raise TypeError(f'the default context is a kiln.Context or None, not {context!r}')
    _default = context


assert CONSTANTS['KILN_PRECISION_F16'] == _WORDS['precision']['f16']
assert CONSTANTS['KILN_COMPILE_QUICK'] == _WORDS['compile']['quick']
