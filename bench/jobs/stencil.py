# SPDX-License-Identifier: Apache-2.0
"""The heat equation by explicit steps; the border is 0."""

import numpy as np

RATE = 0.2


class Heat:
    def __init__(self, size, steps):
        self.size, self.steps = size, steps

    def data(self):
        return np.random.default_rng(0).random((self.size, self.size), np.float32)

    def reference(self, data):
        return [self.by_numpy(data.astype(np.float64))]

    def by_numpy(self, grid):
        u = np.pad(grid, 1)
        for _ in range(self.steps):
            around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
            u[1:-1, 1:-1] += RATE * (around - 4 * u[1:-1, 1:-1])
        return u[1:-1, 1:-1]

    def numpy(self, data, device):
        return {"-": lambda: [self.by_numpy(data)]} if device == "cpu" else {}

    def kiln(self, data, device):
        import kiln

        @kiln.function
        def run(u):
            for _ in range(self.steps):
                p = kiln.pad(u, 1)
                around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
                u = u + RATE * (around - 4 * u)
            return u

        return {"-": lambda: [run(data).numpy()]}

    def jax(self, data, device):
        import jax
        import jax.numpy as jnp

        def step(_, u):
            p = jnp.pad(u, 1)
            around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
            return u + RATE * (around - 4 * u)

        run = jax.jit(lambda u: jax.lax.fori_loop(0, self.steps, step, u))
        return {"jit": lambda: [np.asarray(run(data))]}

    def pytorch(self, data, device):
        import torch
        import ways

        weights = torch.tensor([[0, 1, 0], [1, -4, 1], [0, 1, 0]], dtype=torch.float32)
        weights = (weights * RATE).reshape(1, 1, 3, 3).to(ways.place(device))

        def by_slices(u):
            for _ in range(self.steps):
                p = torch.nn.functional.pad(u, (1, 1, 1, 1))
                around = p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]
                u = u + RATE * (around - 4 * u)
            return u

        def by_convolution(u):
            u = u[None, None]
            for _ in range(self.steps):
                u = u + torch.nn.functional.conv2d(u, weights, padding=1)
            return u[0, 0]

        return {**ways.of(by_slices, [data], device),
                **{"conv " + n: f for n, f in ways.of(by_convolution, [data], device).items()}}
