# SPDX-License-Identifier: Apache-2.0
"""The C library: found, loaded once and never unloaded; its functions as the headers declare them."""
from __future__ import annotations

import atexit
import ctypes
import operator
import os
import threading
import weakref
from typing import Any, Callable, Optional, Sequence

from ._drivers import use_packaged
try:
    from ._table import CONSTANTS as CONSTANTS, STRUCTS as STRUCTS
    from ._table import ENUMS, FUNCTIONS, INITIALISERS, STATUSES
except ImportError:
    raise ImportError(
        'kiln._table is missing: it is generated when the package is installed (pip install ./python) '
        'or kiln is built (make check)') from None

_NAMES = {value: name for name, value, _ in STATUSES}
STATUS_VALUES = {name: value for name, value, _ in STATUSES}
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
_RANGES = {
    'int': (-2 ** 31, 2 ** 31 - 1), 'unsigned': (0, 2 ** 32 - 1), 'uint8_t': (0, 2 ** 8 - 1),
    'uint16_t': (0, 2 ** 16 - 1), 'int32_t': (-2 ** 31, 2 ** 31 - 1), 'uint32_t': (0, 2 ** 32 - 1),
    'int64_t': (-2 ** 63, 2 ** 63 - 1), 'uint64_t': (0, 2 ** 64 - 1),
    'size_t': (0, 2 ** (8 * ctypes.sizeof(ctypes.c_size_t)) - 1),
}
_structs: dict[str, Any] = {}


def _ctype(name: str) -> Any:
    if name in _SIMPLE:
        return _SIMPLE[name]
    if name.endswith('*') or name.endswith('const'):
        return ctypes.c_void_p
    if name in STRUCTS:
        return struct(name)
    if name == 'MPI_Comm':  # a pointer or an int, by the MPI: a register holds either
        return ctypes.c_void_p
    if name.endswith(('_recorder', '_callback', '_updater', '_visitor', '_host', '_gradient')):
        return ctypes.c_void_p
    return ctypes.c_int  # an enum


# ---- values for C, which ctypes would cut silently ----

def _number(value: Any, kind: str, what: str) -> int:
    """A whole number that a type of C holds."""
    number = operator.index(value)
    low, high = _RANGES[kind]
    if not low <= number <= high:
        raise OverflowError(f'{what}: {number} is beyond {kind}, which is from {low} to {high}')
    return number


def _text(value: Any, what: str) -> Any:
    """Bytes that end where C sees their end."""
    if isinstance(value, bytes) and b'\0' in value:
        raise ValueError(f'{what}: the text {value!r} has a NUL in it')
    return value


def _real(value: Any, what: str) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise OverflowError(f'{what}: {error}') from None


def _checked(kind: str) -> Optional[Callable[[Any, str], Any]]:
    """What looks at a value of this type; None where ctypes itself does."""
    if kind == 'const char *':
        return _text
    if kind == 'double':
        return _real
    whole = 'int' if _ctype(kind) is ctypes.c_int else kind  # enums, too
    return (lambda value, what: _number(value, whole, what)) if whole in _RANGES else None


def _all_checked(kind: str) -> Optional[Callable[[Any, str], Any]]:
    """The same of the values of an array."""
    check = _checked(kind)
    return check and (lambda values, what: tuple(check(value, what) for value in values))


class _Structure(ctypes.Structure):
    _checks: dict[str, Callable[[Any, str], Any]] = {}

    def __setattr__(self, field: str, value: Any) -> None:
        check = self._checks.get(field)
        super().__setattr__(field, check(value, field) if check else value)


def _array(ctype: Any, kind: str) -> Callable[[Any], Any]:
    def made(values: Any) -> Any:
        return (ctype * len(values))(*[_number(value, kind, 'a list of numbers') for value in values])
    made.__doc__ = f'An array of {kind}.'
    return made


sizes = _array(ctypes.c_size_t, 'size_t')
ints = _array(ctypes.c_int, 'int')
longs = _array(ctypes.c_int64, 'int64_t')


def texts(values: Any) -> Any:
    """An array of texts; with room for one where there is none."""
    return (ctypes.c_char_p * max(len(values), 1))(*map(name_text, values))


def name_text(name: Optional[str]) -> Optional[bytes]:
    """What a tensor is called, for C."""
    return None if name is None else _text(name.encode(errors='replace'), 'a name')


def optional_text(text: Optional[str]) -> Optional[bytes]:
    return None if text is None else os.fsencode(text)


def struct(name: str) -> Any:
    """The ctypes class of a structure of the headers."""
    if name not in _structs:
        fields, checks = [], {}
        for kind, field, length in STRUCTS[name]:
            ctype, check = _ctype(kind), (_all_checked if length else _checked)(kind)
            if check:
                checks[field] = check
            if length:
                # "8", "KILN_MAX_RANK", "KILN_MAX_RANK - 1"
                count, _, less = length.partition(' - ')
                ctype = ctype * (int(CONSTANTS.get(count, count)) - int(less or 0))
            fields.append((field, ctype))
        _structs[name] = type(name, (_Structure,), {'_fields_': fields, '_checks': checks})
    return _structs[name]


def initialised(macro: str) -> Any:
    """A structure as one of the headers' KILN_X_INIT makes it."""
    name, values = INITIALISERS[macro]
    made = struct(name)()
    for (kind, field, length), value in zip(STRUCTS[name], values):
        if value.startswith('sizeof'):
            setattr(made, field, ctypes.sizeof(struct(value[len('sizeof('):-1])))
        elif not length and not kind.endswith('*') and value not in ('0', '{0}'):
            number = CONSTANTS[value] if value in CONSTANTS else float(value)
            setattr(made, field, number if kind == 'double' else int(number))
    return made


def by_size(made: Any) -> tuple[Any, int]:
    """The arguments of a call that fills a structure as large as it is told."""
    return ctypes.byref(made), ctypes.sizeof(made)


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
        function = _checking(name, function, parameters)
        setattr(self, name, function)
        return function

    def bare(self, name: str) -> Any:
        """A function of the library that takes ctypes' own values and looks at none: for calls by the
        hundred, of which each takes half as long."""
        function = self._cdll[name]  # another object than the attribute
        function.restype = _ctype(self._functions[name][0])
        return function


def _checking(name: str, function: Any, parameters: list[str]) -> Any:
    """The function with its numbers and texts looked at first; itself where it has none."""
    checks = [(i, check) for i, check in enumerate(map(_checked, parameters)) if check]
    if not checks:
        return function

    def checked(*arguments: Any) -> Any:
        for i, check in checks:
            check(arguments[i], name)
        return function(*arguments)
    checked.unchecked = function  # type: ignore[attr-defined]  # for numbers that are known to be right
    return checked


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


# A wheel for one kind of machine carries it.
_packaged = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'libs', 'libkiln.so.0')
_left_out = use_packaged()
lib = load('KILN_LIBRARY',
           [_packaged] if os.path.exists(_packaged) else ['libkiln.so.0', 'libkiln.so'],
           'libkiln, the library of this package,', FUNCTIONS)


def load_beside(part: str, what: str, functions: dict[str, Any]) -> Library:
    """libkiln-`part`, which $KILN_`PART`_LIBRARY names, else that beside the library itself, else the
    first that the usual search finds."""
    names = [f'libkiln-{part}.so.0', f'libkiln-{part}.so']
    beside = os.path.join(os.path.dirname(lib.path), names[0])
    if os.path.dirname(lib.path) and os.path.exists(beside):
        names.insert(0, beside)
    return load(f'KILN_{part.upper()}_LIBRARY', names, f'libkiln-{part}, {what},', functions)


def library_version() -> str:
    """The version of the library that is loaded."""
    return str(lib.kiln_version().decode())


# ---- errors ----

def status_name(status: int) -> str:
    return _NAMES.get(status, str(status))


def check(status: int) -> None:
    """Raise what a call answered, unless it is KILN_OK."""
    if status != OK:
        name = status_name(status)
        sentence = (lib.kiln_last_error() or b'').decode(errors='replace')
        raise Error(name, sentence + _left_out if name == 'NO_DEVICE' else sentence)


# ---- objects that are released ----

class Owned:
    """A pointer of C that is released once: when nothing refers to it any more, or when the
    interpreter exits. In a child of fork() it is left alone. What makes the object writes the
    pointer through `out`: no exception can come between the two. Functions of C take it as it is,
    and hold it while they run, so that another thread may forget it meanwhile."""

    __slots__ = ('_as_parameter_', '_finalizer', '__weakref__')

    def __init__(self, release: Callable[[Any], Any], pointer: Any = None) -> None:
        self._as_parameter_ = ctypes.c_void_p(pointer)
        self._finalizer = weakref.finalize(self, _release, release, self._as_parameter_, os.getpid())
        self._finalizer.atexit = False  # see _release_all()
        if not _alive_at_exit:
            # Handlers run in reverse order, and weakref's, which the first finalizer adds, is the end
            # of all finalizers: so this one is added after it.
            _alive_at_exit.append(atexit.register(_release_all))
        _alive.add(self)

    @property
    def pointer(self) -> Any:
        """None before there is one."""
        return self._as_parameter_.value

    @pointer.setter
    def pointer(self, pointer: Any) -> None:
        self._as_parameter_.value = pointer

    @property
    def out(self) -> Any:
        """Where a function of C writes it."""
        return ctypes.byref(self._as_parameter_)

    def close(self) -> None:
        """Release it now: nobody uses it."""
        self._finalizer()

    def text(self) -> str:
        """The text that it is."""
        return ctypes.string_at(self.pointer).decode(errors='replace') if self.pointer else ''


def pointers(owned: Sequence[Owned]) -> Any:
    """An array of them; with room for one where there is none. They have to be held meanwhile."""
    return (ctypes.c_void_p * max(len(owned), 1))(*[one.pointer for one in owned])


_alive: weakref.WeakSet[Owned] = weakref.WeakSet()
_alive_at_exit: list[Any] = []


def _release(release: Callable[[Any], Any], holder: ctypes.c_void_p, process: int) -> None:
    pointer, holder.value = holder.value, None
    if pointer and os.getpid() == process:
        release(pointer)


def _release_all() -> None:
    """When the interpreter exits: release what is left, so that traces are written and kernels kept;
    but where a daemon thread may still be using it, leave it to the system."""
    if threading.active_count() == 1:
        for owned in list(_alive):
            owned._finalizer()
