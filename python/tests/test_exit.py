# SPDX-License-Identifier: Apache-2.0
"""Interpreters that end, children of fork(), libraries that are missing."""
import os
import subprocess
import sys
import tempfile
import unittest


class Exit(unittest.TestCase):
    maxDiff = None

    def run_program(self, text, **environment):
        done = subprocess.run([sys.executable, '-c', text], capture_output=True, text=True,
                              env={**os.environ, **environment}, timeout=600)
        return done.returncode, done.stdout, done.stderr

    def test_any_order(self):
        """objects that live at the end are released in whatever order"""
        status, out, errors = self.run_program('''
import sys, kiln, numpy as np
context = kiln.Context()
w = kiln.Buffer(np.ones(4, np.float32), context=context)
optimizer = kiln.optim.Adam([w])
f = kiln.function(lambda x: x + w, context=context)
lazy = w + 1
with kiln.batch(context) as b:
    y = b.read(w + 1)
sys.kept = [f(np.ones(4, np.float32)), optimizer, y]
context.close()
print(sys.kept[0].numpy())
try:
    kiln.Buffer(np.ones(3, np.float32), context=context)
except kiln.Error as error:
    print(error)
''')
        self.assertEqual((errors, status), ('', 0))
        self.assertIn('[2. 2. 2. 2.]', out)
        self.assertIn('the context is closed', out)

    def test_released(self):
        """contexts are released when the interpreter ends: a trace is written then"""
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, 'trace.json')
            status, _, errors = self.run_program(
                'import kiln\nkept = kiln.Buffer([1.0])', KILN_TRACE=trace)
            self.assertEqual((errors, status), ('', 0))
            self.assertTrue(os.path.exists(trace))

    def test_contexts_go(self):
        """a context that nobody refers to any more is released, with what was recorded in it"""
        status, out, errors = self.run_program('''
import gc, weakref, kiln, numpy as np
context = kiln.Context()
gone = weakref.ref(context)
x = kiln.tensor(np.ones(4, np.float32), context=context) + 1
x.numpy()
y = x + 1
del x, y, context
gc.collect()
print(gone())
''')
        self.assertEqual((errors, out, status), ('', 'None\n', 0))

    def test_daemon(self):
        """a thread that runs when the interpreter ends does not spoil it"""
        status, _, errors = self.run_program('''
import threading, kiln, numpy as np
f = kiln.function(lambda x: x + 1)
x = np.ones(4, np.float32)
f(x)
def work():
    while True:
        f(x)
threading.Thread(target=work, daemon=True).start()
''')
        self.assertEqual((errors, status), ('', 0))

    def test_fork(self):
        """a child of fork() is told, and ends well"""
        status, out, errors = self.run_program('''
import os, kiln, numpy as np
w = kiln.Buffer(np.ones(4, np.float32))
child = os.fork()
if not child:
    try:
        (w + 1).numpy()
    except kiln.Error as error:
        print(error.status, flush=True)
    raise SystemExit
print(os.waitpid(child, 0)[1], (w + 1).numpy())
''', PYTHONWARNINGS='ignore')  # newer ones warn of the fork
        self.assertEqual((errors, status), ('', 0))
        self.assertIn('FORKED', out)
        self.assertIn('0 [2. 2. 2. 2.]', out)

    def test_no_library(self):
        """a library that is not there is named"""
        with tempfile.TemporaryDirectory() as folder:
            missing = os.path.join(folder, 'libkiln.so')
            status, _, errors = self.run_program('import kiln', KILN_LIBRARY=missing)
        self.assertEqual(status, 1)
        self.assertIn('$KILN_LIBRARY names it', errors)
        self.assertIn(missing, errors)


if __name__ == '__main__':
    unittest.main()
