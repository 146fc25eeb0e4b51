# SPDX-License-Identifier: Apache-2.0
"""The C library: found, loaded once and never unloaded; its functions as the headers declare them."""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
import weakref
from typing import Any, Callable, Iterator, Optional

try:
    from ._table import CONSTANTS, ENUMS, FUNCTIONS, INITIALISERS, STATUSES, STRUCTS
except ImportError:
    raise ImportError(
        'kiln._table is missing: it is generated when the package is installed (pip install ./python) '
        'or kiln is built (make check)') from None

_NAMES = {value: name for name, value, _ in STATUSES}
OK = 0
MAX_RANK = CONSTANTS['KILN_MAX_RANK']


class Error(RuntimeError):
    """A call of kiln failed: `status` is its name, such as "SHAPE_MISMATCH", and the text says which
    call, which operand, which shapes."""

    def __init__(self, status: str, sentence: str) -> None:
        super().__init__(sentence or status)
        self.status = status

    def __reduce__(self) -> Any:
        return Error, (self.status, str(self))


# ---- types of C ----

_SIMPLE = {
    'void': None, 'int': ctypes.c_int, 'unsigned': ctypes.c_uint, 'double': ctypes.c_double,
    'float': ctypes.c_float, 'size_t': ctypes.c_size_t, 'char': ctypes.c_char,
    'uint8_t': ctypes.c_uint8, 'uint16_t': ctypes.c_uint16,
    'int32_t': ctypes.c_int32, 'uint32_t': ctypes.c_uint32,
    'int64_t': ctypes.c_int64, 'uint64_t': ctypes.c_uint64,
    'const char *': ctypes.c_char_p,
}
_structs: dict[str, Any] = {}


def _ctype(name: str) -> Any:
    if name in _SIMPLE:
        return _SIMPLE[name]
    if name.endswith('*') or name.endswith('const'):
        return ctypes.c_void_p
    if name in STRUCTS:
        return struct(name)
    if name.endswith(('_recorder', '_callback', '_updater', '_visitor')):
        return ctypes.c_void_p
    return ctypes.c_int  # an enum


def struct(name: str) -> Any:
    """The ctypes class of a structure of the headers."""
    if name not in _structs:
        fields = []
        for kind, field, length in STRUCTS[name]:
            ctype = _ctype(kind)
            if length:
                # "8", "KILN_MAX_RANK", "KILN_MAX_RANK - 1"
                count, _, less = length.partition(' - ')
                ctype = ctype * (int(CONSTANTS.get(count, count)) - int(less or 0))
            fields.append((field, ctype))
        _structs[name] = type(name, (ctypes.Structure,), {'_fields_': fields})
    return _structs[name]


def initialised(macro: str) -> Any:
    """A structure as one of the headers' KILN_X_INIT makes it."""
    name, values = INITIALISERS[macro]
    made = struct(name)()
    for (kind, field, length), value in zip(STRUCTS[name], values):
        if value.startswith('sizeof'):
            setattr(made, field, ctypes.sizeof(made))
        elif not length and not kind.endswith('*') and value != '0':
            number = CONSTANTS[value] if value in CONSTANTS else float(value)
            setattr(made, field, number if kind == 'double' else int(number))
    return made


def word(kind: str, value: Any) -> int:
    """The value of an enum that a word names, such as "channels_first" or "first" of kiln_layout."""
    if not isinstance(value, str):
        return int(value)
    known = ENUMS[kind]
    for name, number in known.items():
        if ('_' + name.lower()).endswith('_' + value.lower()):
            return number
    raise ValueError(f'{value!r} is none of ' + ', '.join(n[5:].lower() for n in known))


Handle = struct('kiln_tensor')
EMPTY = Handle(0)


# ---- the library ----

class Library:
    """A shared library whose functions are declared when they are first used."""

    def __init__(self, cdll: Any, path: str, functions: dict[str, Any]) -> None:
        self._cdll = cdll
        self._functions = functions
        self.path = path

    def __getattr__(self, name: str) -> Any:
        if name not in self._functions:
            raise AttributeError(name)
        result, parameters = self._functions[name]
        try:
            function = getattr(self._cdll, name)
        except AttributeError:
            raise Error('UNSUPPORTED', f'{name}: {self.path} is older than this package and has no '
                                       'such function') from None
        function.restype = _ctype(result)
        function.argtypes = [_ctype(kind) for kind in parameters]
        setattr(self, name, function)
        return function


def load(variable: str, names: list[str], what: str, functions: dict[str, Any]) -> Library:
    """The library that $variable names, else the first of these that the usual search finds."""
    chosen = os.environ.get(variable)
    failures = []
    for name in [chosen] if chosen else names:
        try:
            return Library(ctypes.CDLL(name), name, functions)
        except OSError as error:
            failures.append(str(error))
    where = f'${variable} names it' if chosen else f'set ${variable} to its path, or install it'
    raise ImportError(f'{what} cannot be loaded ({where}): ' + '; '.join(failures))


lib = load('KILN_LIBRARY', ['libkiln.so.0', 'libkiln.so'], 'libkiln, the library of this package,',
           FUNCTIONS)


def library_version() -> str:
    """The version of the library that is loaded."""
    return lib.kiln_version().decode()


# ---- errors ----

def status_name(status: int) -> str:
    return _NAMES.get(status, str(status))


def check(status: int) -> None:
    """Raise what a call answered, unless it is KILN_OK."""
    if status != OK:
        raise Error(status_name(status), (lib.kiln_last_error() or b'').decode(errors='replace'))


def take_text(pointer: ctypes.c_void_p) -> str:
    """A text that kiln handed out, which is freed."""
    text = ctypes.string_at(pointer.value).decode(errors='replace') if pointer.value else ''
    lib.kiln_free(pointer)
    return text


# ---- objects that are released ----

class Owned:
    """A pointer of C that is released once: when nothing refers to it any more, or when the
    interpreter exits. In a child of fork() it is left alone. What one thread may close while another
    uses it has `retain`, and is used as held() gives it."""

    __slots__ = ('pointer', '_retain', '_drop', '_lock', '_finalizer', '__weakref__')

    def __init__(self, pointer: Any, release: Callable[[Any], Any],
                 retain: Optional[Callable[[Any], Any]] = None) -> None:
        self.pointer = pointer
        self._retain, self._drop = retain, release
        self._lock = threading.RLock() if retain else None
        self._finalizer = weakref.finalize(self, _release, release, pointer, os.getpid())
        self._finalizer.atexit = False  # see _release_all()
        if not _alive_at_exit:
            # Handlers run in reverse order, and weakref's, which the first finalizer adds, is the end
            # of all finalizers: so this one is added after it.
            _alive_at_exit.append(atexit.register(_release_all))
        _alive.add(self)

    @contextlib.contextmanager
    def held(self, what: str) -> Iterator[Any]:
        """The pointer with a reference of the call's own, or an error that says it is closed."""
        assert self._lock and self._retain
        with self._lock:
            pointer = self.pointer
            if pointer is None:
                raise Error('WRONG_STATE', f'the {what} is closed')
            self._retain(pointer)
        try:
            yield pointer
        finally:
            self._drop(pointer)

    def close(self) -> None:
        """Release it now."""
        with self._lock or contextlib.nullcontext():
            self.pointer = None
        self._finalizer()


_alive: weakref.WeakSet[Owned] = weakref.WeakSet()
_alive_at_exit: list[Any] = []


def _release(release: Callable[[Any], Any], pointer: Any, process: int) -> None:
    if os.getpid() == process:
        release(pointer)


def _release_all() -> None:
    """When the interpreter exits: release what is left, so that traces are written and kernels kept;
    but where a daemon thread may still be using it, leave it to the system."""
    if threading.active_count() == 1:
        for owned in list(_alive):
            owned._finalizer()


def sizes(values: Any) -> Any:
    """An array of size_t."""
    return (ctypes.c_size_t * len(values))(*values)


def ints(values: Any) -> Any:
    """An array of int."""
    return (ctypes.c_int * len(values))(*values)


def longs(values: Any) -> Any:
    """An array of int64_t."""
    return (ctypes.c_int64 * len(values))(*values)


def optional_text(text: Optional[str]) -> Optional[bytes]:
    return None if text is None else os.fsencode(text)
