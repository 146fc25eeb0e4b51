# SPDX-License-Identifier: Apache-2.0
"""OpenCL drivers that PyPI has, beside the system's.

PyPI's packages of Intel's runtime and of PoCL (the extras `kiln[intel]` and `kiln[pocl]`) bring drivers
for CPUs that no file of the system names. OpenCL's loader reads one folder of such files: so one is
made, in the user's cache, which names the system's drivers and these. Where $OCL_ICD_VENDORS is set
the user has chosen, and nothing is done.
"""
import glob
import hashlib
import importlib.metadata
import os
import shutil
import tempfile
from typing import Iterator

SYSTEM = '/etc/OpenCL/vendors'
# The package, how its library's name begins, and the programs without which it ends the process.
PACKAGES = (('intel-opencl-rt', 'libintelocl.so', ()),
            ('pocl-binary-distribution', 'libpocl', ('gcc', 'ld')))


def _packaged() -> Iterator[tuple[str, str, str, list[str]]]:
    """Of each package that is installed: its name, its library's, the library, what it lacks."""
    for package, name, programs in PACKAGES:
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name.startswith(name) and file.suffix == '.so':
                lacks = [program for program in programs if not shutil.which(program)]
                yield package, name, os.path.realpath(str(file.locate())), lacks


def _system() -> dict[str, str]:
    """The system's files of drivers: {name: the library that it names}."""
    files = {}
    for path in sorted(glob.glob(os.path.join(SYSTEM, '*.icd'))):
        with open(path, encoding='utf-8', errors='surrogateescape') as file:
            files[os.path.basename(path)] = file.read()
    return files


def _folder(files: dict[str, str]) -> str:
    """A folder with these files, which is made whole or not at all."""
    cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
    key = hashlib.sha256(repr(sorted(files.items())).encode('utf-8', 'surrogateescape')).hexdigest()[:16]
    folder = os.path.join(cache, 'kiln-drivers', key)
    if not os.path.isdir(folder):
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        made = tempfile.mkdtemp(dir=os.path.dirname(folder))
        for name, text in files.items():
            with open(os.path.join(made, name), 'w', encoding='utf-8', errors='surrogateescape') as file:
                file.write(text)
        try:
            os.rename(made, folder)
        except OSError:  # another process was first
            shutil.rmtree(made, ignore_errors=True)
    return folder


def use_packaged() -> str:
    """Let the loader find the packages' drivers, before OpenCL is used for the first time. A sentence
    on those that cannot be used, or nothing."""
    if 'OCL_ICD_VENDORS' in os.environ:
        return ''
    left_out = ''
    try:
        files = _system()
        added = {}
        for package, name, library, lacks in _packaged():
            if lacks:
                left_out += f'; {package} is left out, since it needs {" and ".join(lacks)}'
            elif not any(name in text for text in files.values()):  # the system's own is newer
                added[package + '.icd'] = library + '\n'
        if added:
            os.environ['OCL_ICD_VENDORS'] = _folder({**files, **added})
    except OSError as error:  # the system's drivers are still there
        left_out += f'; drivers from PyPI are left out: {error}'
    return left_out
