# SPDX-License-Identifier: Apache-2.0
"""What pip builds the package with (PEP 517): no compiler, no further packages, no file left in the
source tree. The generated modules are made from the tables and headers of kiln's tree, in which this
folder lies; in a source distribution of the package alone they are there already.

With the setting libraries=FOLDER the wheel carries what lies there, libkiln.so.0 among it, and is for
this kind of machine; without, the library is found as any shared library."""
import base64
import hashlib
import io
import os
import sys
import sysconfig
import tarfile
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
GENERATED = ('_operations.py', '_table.py')
sys.path.insert(0, HERE)
import generate  # noqa: E402

METADATA = '''Metadata-Version: 2.1
Name: kiln
Version: {version}
Summary: Portable compute on OpenCL devices: tensors that are recorded, fused and run together
License: Apache-2.0
Requires-Python: >=3.9
Requires-Dist: numpy
Provides-Extra: intel
Requires-Dist: intel-opencl-rt; extra == "intel"
Requires-Dist: intel-cmplr-lib-rt; extra == "intel"
Requires-Dist: umf; extra == "intel"
Provides-Extra: pocl
Requires-Dist: pocl-binary-distribution; extra == "pocl"
Provides-Extra: torch
Requires-Dist: torch; extra == "torch"
'''
# So that torch.compile() knows the backend by its name.
ENTRY_POINTS = '''[torch_dynamo_backends]
kiln = kiln.torch:backend
'''
# The program of a wheel that carries it.
SCRIPTS = '''
[console_scripts]
kiln = kiln.__main__:main
'''
WHEEL = '''Wheel-Version: 1.0
Generator: kiln
Root-Is-Purelib: {pure}
Tag: {tag}
'''


def _package(folder):
    """{name: content} of the package's modules."""
    files = [os.path.join(place, n) for place, _, names in os.walk(folder) for n in names
             if n.endswith('.py') or n == 'py.typed']
    return {os.path.relpath(file, folder): open(file, 'rb').read() for file in sorted(files)}


def _libraries(folder):
    """{name: content} of what a wheel carries."""
    files = {name: open(os.path.join(folder, name), 'rb').read() for name in sorted(os.listdir(folder))}
    if 'libkiln.so.0' not in files:
        sys.exit(f'{folder}: there is no libkiln.so.0')
    return files


def _modules():
    modules = _package(os.path.join(HERE, 'kiln'))
    source = os.path.dirname(HERE)
    if os.path.exists(os.path.join(source, 'lib', 'ops', 'elementwise.def')):
        with tempfile.TemporaryDirectory() as folder:
            generate.generate(source, folder)
            modules.update(_package(folder))
    missing = [name for name in GENERATED if name not in modules]
    if missing:
        sys.exit(f'{", ".join(missing)}: not here, and kiln\'s tables are not beside this folder')
    return modules


def _version(modules):
    scope = {}
    exec(modules['_table.py'], scope)
    return scope['VERSION']


def _write_wheel(path, files):
    record = ''
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as wheel:
        for name, content in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()
            record += f'{name},sha256={digest},{len(content)}\n'
            # Of one date, so that the same tree is the same file.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if name.startswith('kiln/libs/') else 0o644) << 16
            wheel.writestr(entry, content, zipfile.ZIP_DEFLATED)
        name = next(n for n in files if n.endswith('/WHEEL')).replace('/WHEEL', '/RECORD')
        wheel.writestr(name, record + f'{name},,\n')


def _wheel(folder, modules, contents, libraries=None):
    """`libraries`: {name: content} of what it carries."""
    version = _version(modules)
    info = f'kiln-{version}.dist-info/'
    files = dict(contents)
    files.update({'kiln/libs/' + name: content for name, content in (libraries or {}).items()})
    tag = 'py3-none-any'
    if libraries:
        tag = 'py3-none-' + sysconfig.get_platform().replace('-', '_').replace('.', '_')
    files[info + 'METADATA'] = METADATA.format(version=version).encode()
    files[info + 'WHEEL'] = WHEEL.format(pure='false' if libraries else 'true', tag=tag).encode()
    files[info + 'entry_points.txt'] = (ENTRY_POINTS + (SCRIPTS if libraries else '')).encode()
    name = f'kiln-{version}-{tag}.whl'
    _write_wheel(os.path.join(folder, name), files)
    return name


def build_wheel(folder, settings=None, metadata=None):
    modules = _modules()
    libraries = (settings or {}).get('libraries')
    return _wheel(folder, modules, {'kiln/' + name: text for name, text in modules.items()},
                  _libraries(libraries) if libraries else None)


def build_editable(folder, settings=None, metadata=None):
    """The package as it lies here; what is generated is generated into it."""
    generate.generate(os.path.dirname(HERE), os.path.join(HERE, 'kiln'))
    return _wheel(folder, _modules(), {'kiln.pth': HERE.encode() + b'\n'})


def build_sdist(folder, settings=None):
    modules = _modules()
    version = _version(modules)
    files = {'kiln/' + name: content for name, content in modules.items()}
    for name in ('backend.py', 'generate.py', 'pyproject.toml'):
        files[name] = open(os.path.join(HERE, name), 'rb').read()
    files['PKG-INFO'] = METADATA.format(version=version).encode()
    name = f'kiln-{version}.tar.gz'
    with tarfile.open(os.path.join(folder, name), 'w:gz', format=tarfile.PAX_FORMAT) as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(f'kiln-{version}/{path}')
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return name
