# SPDX-License-Identifier: Apache-2.0
"""The page about the package, and its example, run."""
import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ.get('KILN_SOURCE', '')


@unittest.skipUnless(SOURCE, '$KILN_SOURCE does not say where the source tree is')
class Programs(unittest.TestCase):
    def run_program(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True,
                                  cwd=folder, timeout=600)
        self.assertEqual((done.stderr, done.returncode), ('', 0), done.stdout)
        return done.stdout

    def run_page(self, name, least):
        """The Python of a page that has `least` blocks of it or more."""
        with open(os.path.join(SOURCE, 'doc', name), encoding='utf-8') as file:
            blocks = re.findall(r'^```python\n(.*?)^```', file.read(), re.M | re.S)
        self.assertGreaterEqual(len(blocks), least)
        return self.run_program('-c', '\n'.join(blocks))


class Pages(Programs):
    def test_page(self):
        """the blocks of doc/python.md run, one after the other"""
        said = self.run_page('python.md', 9)
        self.assertIn('[[10. 24.]\n [10. 28.]]', said)
        self.assertIn('[[2.5, 2.5], [4.5, 4.5],', said)

    def test_example(self):
        """examples/digits.py reads as many digits as the C example"""
        self.assertRegex(self.run_program(os.path.join(SOURCE, 'python', 'examples', 'digits.py')),
                         r'\d+ of 360 right')


if __name__ == '__main__':
    unittest.main()
