#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A library for Python as a peer: does a row's work when bench/libraries asks for it.

    peers.py numpy | pytorch | pyopencl

Lines on standard input, an answer to each on standard output (bench/process.h):
    row NAME FILE INPUTS RANK DIM... RANK DIM... ... COUNT    "ok", or "no" if it has no such thing
    run                                                      the seconds that one run took
    result                                                   "ok": the result is in the file
The file holds the inputs, f32, one after the other, and behind them room for COUNT results.
"""

import math
import sys
import time

try:
    import numpy
except ImportError:
    sys.exit(1)

SAMPLE_SECONDS = 1e-3


class Numpy:
    """What a user of numpy would write."""

    def put(self, array):
        return numpy.array(array)

    def get(self, result):
        return numpy.asarray(result)

    def wait(self):
        pass

    def chain(self, a, b, c):
        return numpy.maximum(a * b + c, 0)

    def sum(self, x):
        return x.sum()

    def row_sums(self, x):
        return x.sum(axis=1)

    def column_sums(self, x):
        return x.sum(axis=0)

    def transpose(self, x):
        return numpy.ascontiguousarray(x.T)

    def softmax(self, x):
        powers = numpy.exp(x - x.max(axis=-1, keepdims=True))
        powers /= powers.sum(axis=-1, keepdims=True)
        return powers

    def layer_norm(self, x, scale, shift):
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = numpy.sqrt(numpy.square(centred).mean(axis=-1, keepdims=True) + 1e-5)
        return centred / deviation * scale + shift

    def linear_gelu(self, x, w, b):
        y = x @ w + b
        return 0.5 * y * (1 + numpy.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))

    def attention(self, q, k, v):
        scores = q @ k.swapaxes(-1, -2) * (1 / math.sqrt(q.shape[-1]))
        return self.softmax(scores) @ v

    def training_step(self, x, labels, w1, b1, w2, b2):
        before = x @ w1 + b1
        hidden = numpy.maximum(before, 0)
        slope = self.softmax(hidden @ w2 + b2)
        slope[numpy.arange(len(x)), labels.astype(int)] -= 1
        slope /= len(x)
        back = (slope @ w2.T) * (before > 0)
        return [
            w1 - 0.1 * (x.T @ back),
            b1 - 0.1 * back.sum(axis=0),
            w2 - 0.1 * (hidden.T @ slope),
            b2 - 0.1 * slope.sum(axis=0),
        ]


class PyTorch:
    """PyTorch on the CPU."""

    def __init__(self):
        import torch

        self.torch = torch
        self.F = torch.nn.functional

    def put(self, array):
        return self.torch.from_numpy(numpy.array(array))

    def get(self, result):
        return result.detach().numpy()

    def wait(self):
        pass

    def chain(self, a, b, c):
        return self.torch.relu(self.torch.addcmul(c, a, b))

    def sum(self, x):
        return x.sum()

    def row_sums(self, x):
        return x.sum(dim=1)

    def column_sums(self, x):
        return x.sum(dim=0)

    def transpose(self, x):
        return x.t().contiguous()

    def softmax(self, x):
        return self.torch.softmax(x, dim=-1)

    def layer_norm(self, x, scale, shift):
        return self.F.layer_norm(x, x.shape[-1:], scale, shift, 1e-5)

    def linear_gelu(self, x, w, b):
        return self.F.gelu(self.torch.addmm(b, x, w), approximate="tanh")

    def attention(self, q, k, v):
        if hasattr(self.F, "scaled_dot_product_attention"):
            return self.F.scaled_dot_product_attention(q, k, v)
        scores = self.torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        return self.torch.matmul(self.torch.softmax(scores, dim=-1), v)

    def conv(self, x, w, b):
        images, kernel = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1)
        return self.torch.relu(self.F.conv2d(images, kernel, b, padding=1)).permute(0, 2, 3, 1)

    def training_step(self, x, labels, *parameters):
        w1, b1, w2, b2 = (p.detach().requires_grad_() for p in parameters)
        hidden = self.torch.relu(self.torch.addmm(b1, x, w1))
        logits = self.torch.addmm(b2, hidden, w2)
        loss = self.F.cross_entropy(logits, labels.long())
        gradients = self.torch.autograd.grad(loss, (w1, b1, w2, b2))
        return [p - 0.1 * g for p, g in zip(parameters, gradients)]


class PyOpenCL:
    """Arrays of PyOpenCL on the first CPU; rows they have no operation for are left out."""

    def __init__(self):
        import pyopencl
        import pyopencl.array
        import pyopencl.elementwise

        devices = [
            device
            for platform in pyopencl.get_platforms()
            for device in platform.get_devices()
            if device.type & pyopencl.device_type.CPU
        ]
        self.array = pyopencl.array
        context = pyopencl.Context(devices[:1])
        self.queue = pyopencl.CommandQueue(context)
        self.kernel = pyopencl.elementwise.ElementwiseKernel(
            context,
            "const float *a, const float *b, const float *c, float *y",
            "y[i] = fmax(a[i] * b[i] + c[i], 0.0f)",
        )

    def put(self, array):
        return self.array.to_device(self.queue, numpy.array(array))

    def get(self, result):
        return result.get()

    def wait(self):
        self.queue.finish()

    def chain(self, a, b, c):
        y = self.array.empty_like(a)
        self.kernel(a, b, c, y)
        return y

    def sum(self, x):
        return self.array.sum(x)


class Row:
    """One row's inputs and its latest result."""

    def __init__(self, library, words):
        self.library = library
        self.work = getattr(library, words[0])
        dims = [int(word) for word in words[3:]]
        shapes = []
        for _ in range(int(words[2])):
            rank = dims.pop(0)
            shapes.append([dims.pop(0) for _ in range(rank)])
        total = sum(math.prod(shape) for shape in shapes)
        self.file = numpy.memmap(words[1], numpy.float32, "r+", shape=total + dims[0])
        self.output = self.file[total:]
        self.inputs = []
        place = 0
        for shape in shapes:
            count = math.prod(shape)
            self.inputs.append(library.put(self.file[place : place + count].reshape(shape)))
            place += count
        self.runs = 1
        self.run()

    def sample(self):
        start = time.perf_counter()
        for _ in range(self.runs):
            self.value = self.work(*self.inputs)
        self.library.wait()
        return time.perf_counter() - start

    def run(self):
        """A sample is long enough for the clock."""
        seconds = self.sample()
        while seconds < SAMPLE_SECONDS and self.runs < 100000:
            self.runs *= 2
            seconds = self.sample()
        return seconds / self.runs

    def result(self):
        parts = self.value if isinstance(self.value, list) else [self.value]
        flat = numpy.concatenate([self.library.get(part).reshape(-1) for part in parts])
        self.output[:] = flat


def answer(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main():
    libraries = {"numpy": Numpy, "pytorch": PyTorch, "pyopencl": PyOpenCL}
    try:
        library = libraries[sys.argv[1]]()
    except ImportError:
        sys.exit(1)
    row = None
    answer("ok")
    for line in sys.stdin:
        words = line.split()
        if words[0] == "row" and not hasattr(library, words[1]):
            answer("no")
        elif words[0] == "row":
            row = Row(library, words[1:])
            answer("ok")
        elif words[0] == "run":
            answer("%.9f" % row.run())
        else:
            row.result()
            answer("ok")


if __name__ == "__main__":
    main()
