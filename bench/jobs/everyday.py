# SPDX-License-Identifier: Apache-2.0
"""What people write for numpy every day, as jobs: a fractal, a filter of frequencies, a sparse product,
groups, clusters and bodies. Each library has the program as its users would write it; with the stencil,
the sort, the largest of lines and the training of an MLP these are twelve. python/tests/test_everyday.py
has them at small sizes, beside numpy in float64."""

import numpy as np


class Job:
    """by_numpy(*data) is the program, in float64 the reference too, and with_kiln(*data) kiln's; with_jax() and
    with_torch() give a function of the library's own arrays."""

    def reference(self, data):
        exact = [x.astype(np.float64) if x.dtype == np.float32 else x for x in data]
        return self.results(self.by_numpy(*exact))

    @staticmethod
    def results(made):
        return [np.asarray(x) for x in (made if isinstance(made, (tuple, list)) else [made])]

    def numpy(self, data, device):
        return {"-": lambda: self.results(self.by_numpy(*data))} if device == "cpu" else {}

    def kiln(self, data, device):
        run = self.with_kiln()
        return {"-": lambda: self.results(self.shown(run(*data)))}

    @staticmethod
    def shown(made):
        """What is made, on the host, in one run."""
        import kiln

        made = list(made) if isinstance(made, (tuple, list)) else [made]
        kiln.evaluate(*made)
        return [x.numpy() for x in made]

    def jax(self, data, device):
        import jax

        run = jax.jit(self.with_jax())
        return {"jit": lambda: self.results(run(*data))}

    def pytorch(self, data, device):
        import ways

        return ways.of(self.with_torch(), data, device)


class Mandelbrot(Job):
    """After how many steps points leave; the mean of each row of the picture."""

    def __init__(self, height, width, steps):
        self.height, self.width, self.steps = height, width, steps

    def data(self):
        return [np.linspace(-2, 0.6, self.width, dtype=np.float32)[None],
                np.linspace(-1.2, 1.2, self.height, dtype=np.float32)[:, None]]

    @staticmethod
    def step(state, cr, ci):
        zr, zi, count = state
        zr, zi = zr * zr - zi * zi + cr, 2 * zr * zi + ci
        return zr, zi, count + (zr * zr + zi * zi < 4)

    def start(self, module, **options):
        shape = self.height, self.width
        return (*(module.zeros(shape, **options) for _ in range(2)), module.zeros(shape, dtype=module.int32))

    @staticmethod
    def results(made):
        return [np.asarray(made[0] if isinstance(made, list) else made).mean(1)]

    def by_numpy(self, cr, ci):
        state = self.start(np, dtype=cr.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(self.steps):
                state = self.step(state, cr, ci)
        return state[2]

    def with_kiln(self):
        import kiln

        return kiln.function(lambda cr, ci: kiln.loop(
            self.steps, lambda i, state: self.step(state, cr, ci), self.start(kiln))[2])

    def with_jax(self):
        import jax
        import jax.numpy as jnp

        return lambda cr, ci: jax.lax.fori_loop(
            0, self.steps, lambda i, state: self.step(state, cr, ci), self.start(jnp))[2]

    def with_torch(self):
        import torch

        def run(cr, ci):
            state = self.start(torch, device=cr.device)
            for _ in range(self.steps):
                state = self.step(state, cr, ci)
            return state[2]
        return run


class Filter(Job):
    """Of each signal the lowest frequencies alone."""

    def __init__(self, signals, length, kept):
        self.shape, self.kept = (signals, length), kept

    def data(self):
        return [np.random.default_rng(0).standard_normal(self.shape, np.float32)]

    def by(self, module, x):
        frequencies = module.fft.rfft(x)
        return module.fft.irfft(frequencies * (module.arange(frequencies.shape[1]) < self.kept), n=self.shape[1])

    def by_numpy(self, x):
        return self.by(np, x)

    def scipy(self, data, device):
        import scipy.fft

        def run():
            frequencies = scipy.fft.rfft(data[0])
            frequencies[:, self.kept:] = 0
            return [scipy.fft.irfft(frequencies, n=self.shape[1])]
        return {"-": run}

    def with_kiln(self):
        import kiln

        def run(x):
            frequencies = kiln.dft(x[..., None], 1, 0, "half")
            low = kiln.reshape(kiln.arange(frequencies.shape[1]) < self.kept, (-1, 1))
            return kiln.dft(frequencies * low, 1, self.shape[1], "real")[..., 0]
        return kiln.function(run)

    def with_jax(self):
        import jax.numpy as jnp

        return lambda x: self.by(jnp, x)

    def with_torch(self):
        import torch

        def run(x):
            frequencies = torch.fft.rfft(x)
            low = torch.arange(frequencies.shape[1], device=x.device) < self.kept
            return torch.fft.irfft(frequencies * low, n=self.shape[1])
        return run


class Sparse(Job):
    """A sparse matrix, of rows of several lengths, by a vector, as in the steps of PageRank."""

    def __init__(self, size, most):
        self.size, self.most = size, most

    def data(self):
        random = np.random.default_rng(0)
        counts = random.integers(0, self.most + 1, self.size)
        rows = np.repeat(np.arange(self.size), counts)
        columns = random.integers(0, self.size, len(rows))
        return [rows.astype(np.int32), columns.astype(np.int32), random.random(len(rows), np.float32),
                random.random(self.size, np.float32)]

    def by_numpy(self, rows, columns, values, x):
        return np.bincount(rows, values * x[columns], self.size)

    def scipy(self, data, device):
        import scipy.sparse

        rows, columns, values, x = data
        matrix = scipy.sparse.csr_array((values, (rows, columns)), shape=(self.size, self.size))
        return {"csr": lambda: [matrix @ x]}

    def with_kiln(self):
        import kiln

        return kiln.function(lambda rows, columns, values, x: kiln.bincount(
            rows, values * kiln.gather(x, columns, 0), length=self.size))

    def with_jax(self):
        import jax

        return lambda rows, columns, values, x: jax.ops.segment_sum(
            values * x[columns], rows, self.size, indices_are_sorted=True)

    def with_torch(self):
        import torch

        def run(rows, columns, values, x):
            return torch.zeros(self.size, device=x.device).index_add(0, rows, values * x[columns])
        return run


class Unique(Job):
    """The different ones among integers, which nobody knows how many they are."""

    def __init__(self, count, below):
        self.count, self.below = count, below

    def data(self):
        return [np.random.default_rng(0).integers(0, self.below, self.count, np.int32)]

    def by_numpy(self, x):
        return np.unique(x)

    def with_kiln(self):
        import kiln

        return kiln.unique_values  # a shape that depends on values is in no function

    def jax(self, data, device):
        import jax.numpy as jnp

        return {"eager": lambda: self.results(jnp.unique(data[0]))}

    def pytorch(self, data, device):
        import torch
        import ways

        return {"eager": lambda: ways.host(torch.unique(*ways.tensors(data, device)))}


class Histogram(Job):
    def __init__(self, count, bins):
        self.count, self.bins = count, bins

    def data(self):
        return [np.random.default_rng(0).random(self.count, np.float32)]

    def by_numpy(self, x):
        return np.histogram(x, self.bins, (0, 1))[0]

    def with_kiln(self):
        import kiln

        return kiln.function(lambda x: kiln.histogram(x, self.bins, (0, 1))[0])

    def with_jax(self):
        import jax.numpy as jnp

        return lambda x: jnp.histogram(x, self.bins, (0, 1))[0]

    def with_torch(self):
        import torch

        return lambda x: torch.histc(x, self.bins, 0, 1)


class Groups(Job):
    """The mean of each group's rows, as a table's `group by` has it."""

    def __init__(self, rows, columns, groups):
        self.shape, self.groups = (rows, columns), groups

    def data(self):
        random = np.random.default_rng(0)
        return [random.integers(0, self.groups, self.shape[0], np.int32), random.random(self.shape, np.float32)]

    def by_numpy(self, group, x):
        sums = np.zeros((self.groups, self.shape[1]), x.dtype)
        np.add.at(sums, group, x)
        return sums / np.maximum(np.bincount(group, minlength=self.groups), 1)[:, None]

    def with_kiln(self):
        import kiln

        def run(group, x):
            sums = kiln.scatter_add(kiln.zeros((self.groups, self.shape[1])), group, x, 0)
            return sums / kiln.maximum(kiln.bincount(group, length=self.groups), 1)[:, None]
        return kiln.function(run)

    def with_jax(self):
        import jax
        import jax.numpy as jnp

        return lambda group, x: jax.ops.segment_sum(x, group, self.groups) / jnp.maximum(
            jnp.bincount(group, length=self.groups), 1)[:, None]

    def with_torch(self):
        import torch

        def run(group, x):
            sums = torch.zeros(self.groups, self.shape[1], device=x.device).index_add(0, group, x)
            counts = torch.zeros(self.groups, device=x.device).index_add(0, group, torch.ones_like(x[:, 0]))
            return sums / counts.clamp(min=1)[:, None]
        return run


class Clusters(Job):
    """k means by Lloyd's steps, from the first k points."""

    def __init__(self, points, width, clusters, steps):
        self.shape, self.clusters, self.steps = (points, width), clusters, steps

    def data(self):
        random = np.random.default_rng(0)
        centres = random.standard_normal((self.clusters, self.shape[1])) * 4
        of = np.arange(self.shape[0]) % self.clusters
        return [(centres[of] + random.standard_normal(self.shape)).astype(np.float32)]

    def by(self, module, x, one_hot):
        centres = x[:self.clusters]
        for _ in range(self.steps):
            distances = (centres * centres).sum(1) - 2 * (x @ centres.T)
            of = one_hot(distances.argmin(1))
            centres = (of.T @ x) / module.maximum(of.sum(0), module.ones_like(of[0]))[:, None]
        return centres

    def by_numpy(self, x):
        return self.by(np, x, lambda of: (of[:, None] == np.arange(self.clusters)).astype(x.dtype))

    def with_kiln(self):
        import kiln

        return kiln.function(lambda x: self.by(kiln, x, lambda of: kiln.one_hot(of, self.clusters, "f32")))

    def with_jax(self):
        import jax
        import jax.numpy as jnp

        return lambda x: self.by(jnp, x, lambda of: jax.nn.one_hot(of, self.clusters))

    def with_torch(self):
        import torch

        return lambda x: self.by(torch, x, lambda of: torch.nn.functional.one_hot(of, self.clusters).float())


class Bodies(Job):
    """Steps of bodies that attract each other."""

    def __init__(self, count, steps):
        self.count, self.steps = count, steps

    def data(self):
        random = np.random.default_rng(0)
        return [random.standard_normal((self.count, 3), np.float32), random.random(self.count, np.float32)]

    @staticmethod
    def pull(places, masses):
        """Where each is drawn to, by how far all others are."""
        away = places[None] - places[:, None]
        squares = (away * away).sum(2) + 0.01
        return (away * (masses / (squares * squares ** 0.5))[..., None]).sum(1)

    def by(self, places, masses):
        speeds = places * 0
        for _ in range(self.steps):
            speeds = speeds + 1e-3 / self.count * self.pull(places, masses)
            places = places + speeds
        return places, speeds

    def by_numpy(self, places, masses):
        return self.by(places, masses)

    def with_kiln(self):
        import kiln

        return kiln.function(self.by)

    def with_jax(self):
        return self.by

    def with_torch(self):
        return self.by
