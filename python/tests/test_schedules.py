# SPDX-License-Identifier: Apache-2.0
"""Schedules of learning rates, beside known rates, and beside PyTorch's where it is."""
import math
import unittest

import numpy as np

import kiln
from kiln import optim

try:
    import torch
except ImportError:
    torch = None


def warm(of, optimizer):
    """A schedule that warms up, and then falls."""
    return of.SequentialLR(optimizer, [of.LinearLR(optimizer, 0.1, 1.0, 3), of.CosineAnnealingLR(optimizer, 4, 0.2)],
                           [3])


# How each is made, and its rates of 2 at first.
CASES = {
    'lambda': (lambda of, o: of.LambdaLR(o, lambda n: 1 / (1 + n)), [2, 1, 2 / 3, 1 / 2]),
    'step': (lambda of, o: of.StepLR(o, 2, 0.5), [2, 2, 1, 1, 0.5]),
    'exponential': (lambda of, o: of.ExponentialLR(o, 0.5), [2, 1, 0.5, 0.25]),
    'milestones': (lambda of, o: of.MultiStepLR(o, [3, 1], 0.5), [2, 1, 1, 0.5, 0.5]),
    'linear': (lambda of, o: of.LinearLR(o, 0.5, 1.0, 2), [1, 1.5, 2, 2]),
    'cosine': (lambda of, o: of.CosineAnnealingLR(o, 4, 1), [2, 1 + (1 + math.sqrt(0.5)) / 2, 1.5]),
    'sequence': (lambda of, o: of.SequentialLR(o, [of.ExponentialLR(o, 0.5), of.StepLR(o, 1, 0.1)], [2]),
                 [2, 1, 2, 0.2]),
    'warm': (warm, [0.2, 0.8, 1.4, 2, 0.2 + 0.9 * (1 + math.sqrt(0.5)), 1.1]),
}


def rates(schedule, optimizer, count):
    """Of so many steps; the schedule says those that the optimiser has."""
    found = []
    for _ in range(count):
        found.append(optimizer.learning_rate)
        assert schedule.get_last_lr() == found[-1:]
        schedule.step()
    return found


class Schedules(unittest.TestCase):
    def made(self):
        self.w = kiln.Buffer(np.float32([1, 1]))
        return optim.SGD([self.w], learning_rate=2)

    def test_rates(self):
        """known rates, and PyTorch's"""
        for name, (make, known) in CASES.items():
            with self.subTest(name):
                optimizer = self.made()
                found = rates(make(optim, optimizer), optimizer, 9)
                np.testing.assert_allclose(found[:len(known)], known, rtol=1e-12)
                if torch:
                    other = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=2)
                    schedule, wanted = make(torch.optim.lr_scheduler, other), []
                    for _ in range(len(known) if name in ('sequence', 'warm') else 9):
                        wanted += schedule.get_last_lr()
                        other.step()
                        schedule.step()
                    np.testing.assert_allclose(found[:len(wanted)], wanted, rtol=1e-6)

    def test_going_on(self):
        """a state goes on in another schedule"""
        for make, _ in CASES.values():
            optimizer = self.made()
            schedule = make(optim, optimizer)
            rates(schedule, optimizer, 4)
            state, wanted = schedule.state_dict(), rates(schedule, optimizer, 4)
            another = optim.SGD([self.w], learning_rate=7)
            restored = make(optim, another)
            restored.load_state_dict(state)
            self.assertEqual(rates(restored, another, 4), wanted)

    def test_plateaus(self):
        """lower rates where values are no better, as PyTorch's; NaN is not better; a state goes on"""
        values = [3, 2, 2, 1.99, 2, 1.9, math.nan, 1.9, 1.9, 5, 1, -1, -1, -1.05, -0.99, -0.99, -1, -3, -3, -3]
        for options, known in (
                ({'patience': 1, 'factor': 0.5}, [2, 2, 2, 2, 2, 2, 2, 1, 1, 0.5]),
                ({'patience': 1, 'factor': 0.5, 'threshold': 0.02}, [2, 2, 2, 1, 1, 1]),
                ({'patience': 0, 'threshold': 0.5, 'threshold_mode': 'abs'}, [2, 2, 0.2, 0.02]),
                ({'patience': 0, 'cooldown': 2, 'min_lr': 0.1}, [2, 2, 0.2, 0.2, 0.2, 0.2, 0.1, 0.1]),
                ({'patience': 2, 'mode': 'max', 'factor': 0.5}, [2, 2, 2, 1, 1, 1, 0.5]),
                ({'patience': 0, 'mode': 'max', 'threshold_mode': 'abs', 'threshold': 1, 'eps': 0.5}, [2, 0.2, 0.2])):
            with self.subTest(options):
                optimizer = self.made()
                schedule, found = optim.ReduceLROnPlateau(optimizer, **options), []
                for value in values:
                    schedule.step(kiln.tensor(value) if len(found) == 1 else value)
                    found += schedule.get_last_lr()
                    self.assertEqual(optimizer.learning_rate, found[-1])
                    if len(found) == 4:
                        another = self.made()
                        restored = optim.ReduceLROnPlateau(another, **options)
                        restored.load_state_dict(schedule.state_dict())
                    if len(found) > 4:
                        restored.step(value)
                        self.assertEqual(another.learning_rate, found[-1])
                np.testing.assert_allclose(found[:len(known)], known, rtol=1e-12)
                if torch:
                    other = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=2)
                    theirs, wanted = torch.optim.lr_scheduler.ReduceLROnPlateau(other, **options), []
                    for value in values:
                        theirs.step(value)
                        wanted.append(other.param_groups[0]['lr'])
                    np.testing.assert_allclose(found, wanted, rtol=1e-12)
        schedule = optim.ReduceLROnPlateau(self.made())
        with self.assertRaisesRegex(kiln.Error, 'step it behind each call'):
            kiln.function(lambda x: schedule.step(1) or x)(np.ones(2))
        for wrong in {'factor': 1}, {'mode': 'least'}, {'threshold_mode': 'relative'}:
            with self.assertRaisesRegex(ValueError, 'factor is below 1|mode is "min" or "max"'):
                optim.ReduceLROnPlateau(self.made(), **wrong)

    def test_function(self):
        """a recording follows the rate, and does not step a schedule"""
        optimizer = self.made()
        schedule = optim.ExponentialLR(optimizer, 0.5)
        step = kiln.function(lambda: optimizer.step([np.ones(2, np.float32)]))
        for wanted in -1, -2, -2.5:
            step()
            schedule.step()
            self.assertEqual(self.w.numpy().tolist(), [wanted] * 2)
        with self.assertRaisesRegex(kiln.Error, 'step it behind each call'):
            kiln.function(lambda x: schedule.step() or x)(np.ones(2))
        for schedules, milestones in ([schedule], [1]), ([schedule] * 3, [2, 1]), ([optim.StepLR(self.made(), 1)], []):
            with self.assertRaisesRegex(ValueError, 'schedules, of this optimiser all, have . milestones'):
                optim.SequentialLR(optimizer, schedules, milestones)
        for wrong in (lambda: optim.StepLR(optimizer, 0), lambda: optim.CosineAnnealingLR(optimizer, 0),
                      lambda: optim.LinearLR(optimizer, total_iters=0)):
            with self.assertRaisesRegex(ValueError, 'is a number of steps, from 1 on, not 0'):
                wrong()


if __name__ == '__main__':
    unittest.main()
