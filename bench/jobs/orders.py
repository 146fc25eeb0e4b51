# SPDX-License-Identifier: Apache-2.0
"""Elements in order: all of a line, or the first few of each."""

import numpy as np


class Sort:
    def __init__(self, count):
        self.count = count

    def data(self):
        return np.random.default_rng(0).standard_normal(self.count, np.float32)

    def reference(self, data):
        return [np.sort(data)]

    def numpy(self, data, device):
        return {"-": lambda: [np.sort(data)]} if device == "cpu" else {}

    def kiln(self, data, device):
        import kiln

        run = kiln.function(kiln.sort)
        return {"-": lambda: [run(data).numpy()]}

    def pytorch(self, data, device):
        import torch
        import ways

        return ways.of(lambda x: torch.sort(x)[0], [data], device)


class Largest:
    """The k largest of each line, and where they are."""

    def __init__(self, lines, count, k):
        self.shape, self.k = (lines, count), k

    def data(self):
        return np.random.default_rng(0).standard_normal(self.shape, np.float32)

    def reference(self, data):
        return self.by_numpy(data)

    def by_numpy(self, data):
        at = np.argpartition(data, -self.k, 1)[:, -self.k:]
        values = np.take_along_axis(data, at, 1)
        order = np.argsort(-values, 1, kind="stable")
        return [np.take_along_axis(values, order, 1), np.take_along_axis(at, order, 1)]

    def numpy(self, data, device):
        return {"-": lambda: self.by_numpy(data)} if device == "cpu" else {}

    def kiln(self, data, device):
        import kiln

        run = kiln.function(lambda x: kiln.topk(x, self.k))
        return {"-": lambda: [result.numpy() for result in run(data)]}

    def pytorch(self, data, device):
        import torch
        import ways

        return ways.of(lambda x: tuple(torch.topk(x, self.k)), [data], device)
