# SPDX-License-Identifier: Apache-2.0
"""Twelve programs as people write them every day, which `make bench-jobs` times beside numpy, scipy, JAX and
PyTorch (bench/jobs): each at a small size, beside numpy in float64."""
import os
import sys
import unittest

import numpy as np

SOURCE = os.environ.get('KILN_SOURCE', '')
JOBS = os.path.join(SOURCE, 'bench', 'jobs')


@unittest.skipUnless(SOURCE and os.path.isdir(JOBS), 'the programs are in the source tree')
class Everyday(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, JOBS)
        import everyday
        import orders
        import stencil
        import training
        sys.path.remove(JOBS)
        cls.programs = {
            'a fractal': (everyday.Mandelbrot(37, 41, 20), 0.02),
            'a filter of frequencies': (everyday.Filter(3, 250, 17), 1e-5),
            'a sparse product': (everyday.Sparse(300, 7), 1e-5),
            'unique elements': (everyday.Unique(1000, 70), 0),
            'a histogram': (everyday.Histogram(1000, 7), 0),
            'means of groups': (everyday.Groups(40, 5, 30), 1e-5),
            'clusters': (everyday.Clusters(300, 4, 5, 4), 1e-4),
            'bodies': (everyday.Bodies(31, 3), 1e-5),
            'a stencil': (stencil.Heat(19, 5), 1e-5),
            'a sort': (orders.Sort(1001), 0),
            'the largest of lines': (orders.Largest(3, 200, 7), 0),
            'training': (training.Perceptron((12, 16, 4), 8), None),
        }

    def test_programs(self):
        """twelve everyday programs give what numpy does"""
        self.assertEqual(len(self.programs), 12)
        for name, (job, tolerance) in self.programs.items():
            with self.subTest(name):
                data = job.data()
                ways = job.kiln(data, 'cpu')
                wanted = job.reference(data)
                for way in ways.values():
                    results = way()
                    if wanted is None:  # losses
                        self.assertTrue(np.isfinite(results[0]).all() and len(results[0]) == 10)
                        continue
                    self.assertEqual([np.shape(x) for x in results], [np.shape(x) for x in wanted])
                    for found, value in zip(results, wanted):
                        np.testing.assert_allclose(found, value, rtol=tolerance, atol=tolerance * np.abs(value).max())


if __name__ == '__main__':
    unittest.main()
