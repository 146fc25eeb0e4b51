# SPDX-License-Identifier: Apache-2.0
"""Run the tests of this folder but for those that have a program of their own, or of the modules that are
named, and speak TAP."""
import glob
import os
import sys
import unittest

# Modules of tests/python/test_arrays.sh, test_loops.sh and test_nn.sh begin so.
APART = ('test_array_api', 'test_integers', 'test_tensors', 'test_loop', 'test_kernel', 'test_nn')


class Tap(unittest.TestResult):
    """One line for each test; what a failure says as comments."""

    def __init__(self):
        super().__init__()
        self.number = 0

    def say(self, test, word, comment=''):
        self.number += 1
        name = test.id() if not test.shortDescription() else \
            f'{type(test).__module__}: {test.shortDescription()}'
        print(f'{word} {self.number} - {name}{comment}', flush=True)

    def addSuccess(self, test):
        self.say(test, 'ok')

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say(test, 'ok', f' # SKIP {reason}')

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.fail_with(test, self.failures[-1][1])

    def addError(self, test, error):
        super().addError(test, error)
        self.fail_with(test, self.errors[-1][1])

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            said = self.failures if issubclass(error[0], test.failureException) else self.errors
            self.fail_with(test, f'{subtest}\n{said[-1][1]}')  # nobody adds the test itself then

    def fail_with(self, test, text):
        self.say(test, 'not ok')
        print('# ' + text.replace('\n', '\n# '), flush=True)

    def stopTest(self, test):
        super().stopTest(test)


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, folder)
    names = sys.argv[1:] or [os.path.basename(path)[:-3] for path in sorted(glob.glob(f'{folder}/test_*.py'))
                             if not os.path.basename(path).startswith(APART)]
    suite = unittest.TestLoader().loadTestsFromNames(names)
    result = Tap()
    suite.run(result)
    print(f'1..{result.number}')
    sys.exit(not result.wasSuccessful())


if __name__ == '__main__':
    main()
