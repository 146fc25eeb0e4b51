# SPDX-License-Identifier: Apache-2.0
"""Types, as mypy sees them: of the package itself, and of programs that use it."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import kiln

try:
    from mypy import version as _version
    MYPY = tuple(int(part) for part in _version.__version__.split('+')[0].split('.')[:2])
except ImportError:
    MYPY = ()

PROGRAM = '''
import kiln
from typing import Tuple

@kiln.function
def scaled(x: kiln.Tensor, by: int, *, shift: float = 0) -> kiln.Tensor:
    return x * by + shift

@kiln.function(precision='bf16')
def split(x: kiln.Tensor) -> Tuple[kiln.Tensor, kiln.Tensor]:
    return x, x

class Model:
    @kiln.function
    def step(self, x: kiln.Tensor) -> kiln.Tensor:
        return x

def loss(x: kiln.Tensor, y: float) -> kiln.Tensor:
    return kiln.sum(x * y)

x = kiln.tensor([1.0])
reveal_type(scaled(x, 2, shift=0.5))
reveal_type(split(x))
reveal_type(Model().step(x))
reveal_type(scaled.recordings)
reveal_type(kiln.arange(3))
reveal_type(kiln.value_and_grad(loss)(x, 1.0))
kiln.grad(loss, (0, 1))(x, 2.0)
scaled(x, 'two')
scaled(x)
split(x, x)
Model().step(1)
kiln.grad(loss)(x, y='one')
'''
REVEALED = ['kiln._tensor.Tensor', 'tuple[kiln._tensor.Tensor, kiln._tensor.Tensor]',
            'kiln._tensor.Tensor', 'int', 'kiln._tensor.Tensor', 'tuple[Any, Any]']
REFUSED = ['"str"; expected "int"', 'Missing positional argument "by"', 'Too many arguments',
           '"int"; expected "Tensor"', '"str"; expected "float"']


def mypy(*arguments):
    folder = pathlib.Path(kiln.__file__).parent.parent
    said = subprocess.run([sys.executable, '-m', 'mypy', '--cache-dir', os.devnull, *arguments],
                          capture_output=True, text=True, cwd=folder,
                          env={**os.environ, 'MYPYPATH': str(folder)})
    return said.stdout.splitlines()


@unittest.skipIf(MYPY < (1, 11), 'no mypy from 1.11 on is here')
class Typing(unittest.TestCase):
    def test_package(self):
        """the package has no error under --strict"""
        source = os.environ.get('KILN_SOURCE')
        if not source:
            self.skipTest('the configuration is in the source tree')
        lines = mypy('--config-file', os.path.join(source, 'python', 'pyproject.toml'), '-p', 'kiln')
        self.assertEqual([line for line in lines if ': error: ' in line], [])
        self.assertIn('Success', lines[-1])

    def test_programs(self):
        """functions that kiln decorates keep what they take and give"""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'program.py')
            with open(path, 'w', encoding='utf-8') as file:
                file.write(PROGRAM)
            lines = [line.lower() for line in mypy('--strict', path) if 'program.py' in line]
        revealed = [line for line in lines if 'revealed type' in line]
        errors = [line for line in lines if ': error: ' in line]
        for found, wanted in ((revealed, REVEALED), (errors, REFUSED)):
            self.assertEqual(len(found), len(wanted), lines)
            for line, words in zip(found, wanted):
                self.assertIn(words.lower(), line.replace('builtins.', ''))


if __name__ == '__main__':
    unittest.main()
