# SPDX-License-Identifier: Apache-2.0
"""Training with Adam: a job is STEPS steps, each with a batch of the host's and its loss read back. A
network is written once, over the functions that both libraries have (`n`)."""

import numpy as np

from libraries import Kiln, Torch

STEPS = 10
RATE = 1e-3


class Training:
    """parameters(random) and batches(random) are the subclass's, and loss(n, p, x, y)."""

    def data(self):
        random = np.random.default_rng(0)
        parameters = {k: v.astype(np.float32) for k, v in self.parameters(random).items()}
        return parameters, [self.batch(random) for _ in range(STEPS)]

    def reference(self, data):
        return None

    def kiln(self, data, device):
        import kiln
        parameters, batches = data
        p = {k: kiln.Buffer(v) for k, v in parameters.items()}
        optimizer = kiln.optim.Adam(p, learning_rate=RATE)

        @kiln.function
        def step(x, y):
            value, gradients = kiln.value_and_grad(lambda p: self.loss(Kiln, p, x, y))(p)
            optimizer.step(gradients)
            return value

        return {"function": lambda: [np.array([float(step(x, y)) for x, y in batches])]}

    def pytorch(self, data, device):
        import torch
        import ways
        batches = [ways.tensors(b, device) for b in data[1]]

        def fresh():
            p = {k: torch.from_numpy(v.copy()).to(ways.place(device)).requires_grad_()
                 for k, v in data[0].items()}
            return p, torch.optim.Adam(p.values(), lr=RATE, fused=True, capturable=device == "gpu")

        def stepper(compiled, p, optimizer):
            loss = lambda x, y: self.loss(Torch, p, x, y)
            loss = torch.compile(loss) if compiled else loss

            def step(x, y):
                optimizer.zero_grad()
                value = loss(x, y)
                value.backward()
                optimizer.step()
                return value.detach()

            return step

        def runs(step):
            return lambda: [np.array([float(step(*ways.tensors(b, device))) for b in data[1]])]

        result = {"eager": runs(stepper(False, *fresh())), "compiled": runs(stepper(True, *fresh()))}
        if device == "gpu":
            held = [t.clone() for t in batches[0]]
            p, optimizer = fresh()
            replay = ways.graph(stepper(True, p, optimizer), held)
            # Capturing trains, too: back to the beginning, in the memory that the graph knows.
            with torch.no_grad():
                for k, v in data[0].items():
                    p[k].copy_(torch.from_numpy(v))
                for state in optimizer.state.values():
                    for t in state.values():
                        t.zero_()

            def by_graph():
                values = []
                for given in data[1]:
                    for h, g in zip(held, given, strict=True):
                        h.copy_(torch.from_numpy(g), non_blocking=True)
                    values.append(float(replay()))
                return [np.array(values)]

            result["graph"] = by_graph
        return result


def scaled(random, *shape):
    return random.standard_normal(shape) / np.sqrt(shape[0])


class Perceptron(Training):
    def __init__(self, sizes, rows):
        self.sizes, self.rows = sizes, rows

    def parameters(self, random):
        layers = list(zip(self.sizes, self.sizes[1:]))
        return {**{f"w{i}": scaled(random, m, n) for i, (m, n) in enumerate(layers)},
                **{f"b{i}": np.zeros(n) for i, (_, n) in enumerate(layers)}}

    def batch(self, random):
        return (random.random((self.rows, self.sizes[0]), np.float32),
                random.integers(0, self.sizes[-1], self.rows).astype(np.int32))

    def loss(self, n, p, x, y):
        last = len(self.sizes) - 2
        for i in range(last + 1):
            x = n.linear(x, p[f"w{i}"], p[f"b{i}"])
            x = n.relu(x) if i < last else x
        return n.cross_entropy(x, y)


class Convolutions(Training):
    def __init__(self, rows, size):
        self.rows, self.size = rows, size

    def parameters(self, random):
        left = (self.size // 4) ** 2
        return {"c0": random.standard_normal((16, 1, 3, 3)) / 3,
                "c1": random.standard_normal((32, 16, 3, 3)) / 12,
                "w": scaled(random, 32 * left, 10), "b": np.zeros(10)}

    def batch(self, random):
        return (random.random((self.rows, 1, self.size, self.size), np.float32),
                random.integers(0, 10, self.rows).astype(np.int32))

    def loss(self, n, p, x, y):
        x = n.pool(n.relu(n.convolution(x, p["c0"])))
        x = n.pool(n.relu(n.convolution(x, p["c1"])))
        return n.cross_entropy(n.linear(x.reshape(self.rows, -1), p["w"], p["b"]), y)


class Transformer(Training):
    """Predicts the next of a sequence of words."""

    WORDS, WIDTH, HEADS, LAYERS = 1000, 256, 8, 4

    def __init__(self, rows, length):
        self.rows, self.length = rows, length

    def parameters(self, random):
        w, p = self.WIDTH, {}
        for i in range(self.LAYERS):
            p |= {f"qkv{i}": scaled(random, w, 3 * w), f"out{i}": scaled(random, w, w),
                  f"up{i}": scaled(random, w, 4 * w), f"down{i}": scaled(random, 4 * w, w),
                  f"s{i}": np.ones(w), f"t{i}": np.zeros(w), f"u{i}": np.ones(w), f"v{i}": np.zeros(w)}
        return {**p, "words": 0.02 * random.standard_normal((self.WORDS, w)),
                "places": 0.02 * random.standard_normal((self.length, w))}

    def batch(self, random):
        words = random.integers(0, self.WORDS, (self.rows, self.length + 1)).astype(np.int32)
        return words[:, :-1].copy(), words[:, 1:].copy()

    def loss(self, n, p, x, y):
        rows, width, heads = self.rows * self.length, self.WIDTH, self.HEADS
        x = (n.rows(p["words"], x) + p["places"]).reshape(rows, width)
        for i in range(self.LAYERS):
            qkv = n.norm(x, p[f"s{i}"], p[f"t{i}"]) @ p[f"qkv{i}"]
            qkv = n.transpose(qkv.reshape(self.rows, self.length, 3, heads, width // heads),
                              (2, 0, 3, 1, 4))
            a = n.transpose(n.attention(qkv[0], qkv[1], qkv[2], causal=True), (0, 2, 1, 3))
            x = x + a.reshape(rows, width) @ p[f"out{i}"]
            h = n.gelu(n.norm(x, p[f"u{i}"], p[f"v{i}"]) @ p[f"up{i}"])
            x = x + h @ p[f"down{i}"]
        return n.cross_entropy(x @ n.transpose(p["words"], (1, 0)), y.reshape(rows))


class Characters(Training):
    """Predicts the next character with a gated recurrent unit."""

    LETTERS = 64

    def __init__(self, rows, length, width):
        self.rows, self.length, self.width = rows, length, width

    def parameters(self, random):
        w = self.width
        return {"letters": 0.1 * random.standard_normal((self.LETTERS, w)),
                "w": random.standard_normal((3 * w, w)) / np.sqrt(w),
                "r": random.standard_normal((3 * w, w)) / np.sqrt(w), "bias": np.zeros(6 * w),
                "out": scaled(random, w, self.LETTERS), "b": np.zeros(self.LETTERS)}

    def batch(self, random):
        text = random.integers(0, self.LETTERS, (self.length + 1, self.rows)).astype(np.int32)
        return text[:-1].copy(), text[1:].copy()

    def loss(self, n, p, x, y):
        h = n.gru(n.rows(p["letters"], x), p["w"], p["r"], p["bias"])
        h = h.reshape(self.length * self.rows, self.width)
        return n.cross_entropy(n.linear(h, p["out"], p["b"]), y.reshape(self.length * self.rows))
