# SPDX-License-Identifier: Apache-2.0
"""PoCL beside a small library of OpenCL C's functions: small-pocl.py FOLDER FILE...

PoCL reads the whole library, 23,000 functions, in every context that compiles: half of a cold test's
time. FOLDER gets a copy of PoCL itself and a library of the functions that the FILEs name and of those
that these call, unchanged; and vendors/, for $OCL_ICD_VENDORS, with the system's other drivers. Kernels
become the same machine code. A function that is missing is an error of the linker, which names it.
Where PoCL or LLVM are built in another way there is no vendors/, and why is said: tests then take the
system's PoCL.
"""
import ctypes
import os
import re
import shutil
import sys

POINTER = ctypes.c_void_p
ICD_FOLDER = os.environ.get('OCL_ICD_VENDORS', '/etc/OpenCL/vendors')
# Of a distribution's PoCL, which has a library for each kind of processor, those that are common.
VARIANTS = (('avx512f', '-avx512.bc'), ('avx2', '-avx2.bc'))


def stop(why):
    print('the whole PoCL is used:', why)
    sys.exit(0)


def loaded(word):
    """The file of the library in this process whose name begins with a word."""
    with open('/proc/self/maps') as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith(word):
                return path
    return None


def drivers():
    """Names of the files that name drivers, and what they name."""
    names = sorted(os.listdir(ICD_FOLDER)) if os.path.isdir(ICD_FOLDER) else []
    for name in names:
        if name.endswith('.icd'):
            with open(os.path.join(ICD_FOLDER, name)) as file:
                yield name, file.readline().strip()


def is_pocl(library):
    return os.path.basename(library).startswith('libpocl')


def find_pocl():
    """The files of PoCL, of LLVM, and the folder of the libraries of functions."""
    for _, library in drivers():
        if is_pocl(library):
            ctypes.CDLL(library)
    pocl, llvm = loaded('libpocl'), loaded('libLLVM')
    if not pocl or not llvm:
        stop('there is none, or it has an LLVM of its own')
    return pocl, llvm, os.path.normpath(os.path.join(os.path.dirname(pocl), '../../share/pocl'))


def choose_library(data):
    """The library that PoCL takes on this processor: a wrong guess costs time alone."""
    names = [name for name in os.listdir(data) if re.fullmatch(r'kernel-.*\.bc', name)] \
        if os.path.isdir(data) else []
    with open('/proc/cpuinfo') as file:
        flags = set(file.read().split())
    for flag, ending in VARIANTS:
        for name in names:
            if flag in flags and name.endswith(ending):
                return name, names
    if len(names) != 1:
        stop('which library it takes here is not known')
    return names[0], names


class Llvm:
    """The few functions of LLVM's C interface that it takes."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)

    def __call__(self, name, result, *arguments):
        try:
            function = getattr(self.library, 'LLVM' + name)
        except AttributeError:
            stop(f'LLVM has no {name}')
        function.restype = result
        function.argtypes = [type(a) if isinstance(a, ctypes._SimpleCData) or isinstance(a, ctypes._CFuncPtr)
                             else POINTER for a in arguments]
        return function(*arguments)

    def name(self, value):
        length = ctypes.c_size_t()
        text = self('GetValueName2', POINTER, POINTER(value), ctypes.byref(length))
        return ctypes.string_at(text, length.value).decode()

    def values(self, module, kind):
        value = self(f'GetFirst{kind}', POINTER, module)
        while value:
            yield value
            value = self(f'GetNext{kind}', POINTER, POINTER(value))


def wanted(name, words):
    """Whether a function is kept for its own sake. What PoCL calls by itself has no mangled name;
    Sleef's functions are called by others."""
    mangled = re.match(r'_Z(\d+)', name)
    if not mangled:
        return not name.startswith('Sleef')
    plain = name[mangled.end():mangled.end() + int(mangled[1])].removeprefix('_cl_')
    # Of vload4 and convert_char4_sat the files may have the beginning alone.
    return plain in words or re.sub(r'\d*(_sat)?$', '', plain) in words


def shrink(llvm, source, target, words):
    buffer, module, error = POINTER(), POINTER(), POINTER()
    context = POINTER(llvm('ContextCreate', POINTER))
    if llvm('CreateMemoryBufferWithContentsOfFile', ctypes.c_int, ctypes.c_char_p(source.encode()),
            ctypes.byref(buffer), ctypes.byref(error)) or \
            llvm('ParseBitcodeInContext2', ctypes.c_int, context, buffer, ctypes.byref(module)):
        stop(f'{source} is not read')
    # All but what is wanted may go if nobody calls it; what stays gets its linkage back.
    kinds = ('Function', 'Global')
    linkage = {llvm.name(value): llvm('GetLinkage', ctypes.c_int, POINTER(value))
               for kind in kinds for value in llvm.values(module, kind)}
    kept = {name for name in linkage if wanted(name, words)}
    keep = ctypes.CFUNCTYPE(ctypes.c_int, POINTER, POINTER)(lambda value, _: llvm.name(value) in kept)
    passes = POINTER(llvm('CreatePassManager', POINTER))
    llvm('AddInternalizePassWithMustPreservePredicate', None, passes, POINTER(), keep)
    llvm('AddGlobalDCEPass', None, passes)
    llvm('RunPassManager', ctypes.c_int, passes, module)
    for kind in kinds:
        for value in llvm.values(module, kind):
            name = llvm.name(value)
            if name in linkage:
                llvm('SetLinkage', None, POINTER(value), ctypes.c_int(linkage[name]))
    if llvm('WriteBitcodeToFile', ctypes.c_int, module, ctypes.c_char_p(target.encode())):
        stop(f'{target} is not written')


def main(folder, files):
    words = set()
    for path in files:
        with open(path, encoding='utf-8') as file:
            words.update(re.findall(r'\w+', file.read()))
    shutil.rmtree(folder, ignore_errors=True)
    pocl, llvm, data = find_pocl()
    library, libraries = choose_library(data)
    # PoCL finds its parts from where it lies.
    home, share = os.path.join(folder, 'lib', 'pocl'), os.path.join(folder, 'share', 'pocl')
    os.makedirs(share)
    os.makedirs(os.path.join(home, 'pocl'))
    shutil.copy(pocl, home)
    for part in os.scandir(os.path.join(os.path.dirname(pocl), 'pocl')):
        shutil.copy(part.path, os.path.join(home, 'pocl'))
    for name in os.listdir(data):
        if name != library:
            os.symlink(os.path.join(data, name), os.path.join(share, name))
    shrink(Llvm(llvm), os.path.join(data, library), os.path.join(share, library), words)
    vendors = os.path.join(folder, 'vendors.new')
    os.mkdir(vendors)
    for name, driver in drivers():
        with open(os.path.join(vendors, name), 'w') as file:
            file.write((os.path.join(os.path.abspath(home), os.path.basename(pocl))
                        if is_pocl(driver) else driver) + '\n')
    os.rename(vendors, os.path.join(folder, 'vendors'))


main(sys.argv[1], sys.argv[2:])
