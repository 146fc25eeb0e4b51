# SPDX-License-Identifier: Apache-2.0
"""The page about layers, run."""
import unittest

import test_pages


class Page(test_pages.Programs):
    def test_page(self):
        """the blocks of doc/nn.md run, one after the other"""
        self.assertIn('(convs.0): Conv2d(1, 8, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))',
                      self.run_page('nn.md', 5))


if __name__ == '__main__':
    unittest.main()
