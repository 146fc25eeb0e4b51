# SPDX-License-Identifier: Apache-2.0
"""The jobs, a row each. A job is an object with data(), the host's arrays, the same for every library;
reference(data), the right results, or None; and a method for each library that can do it, which gives
its ways: {name: function that does the job and returns its results as arrays of the host}."""

from dataclasses import dataclass

import encoders
import everyday
import generation
import lines
import networks
import orders
import stencil
import training


@dataclass(frozen=True)
class Row:
    name: str
    job: object
    sets: tuple = ("cpu",)
    tolerance: float = 1e-3  # of results, relative to the largest element
    unit: str = "ms"  # of one thing, or things a second
    count: int = 1  # things that a job does

    def say(self, seconds):
        if self.unit == "ms":
            return f"{seconds * 1e3 / self.count:.3f} ms"
        return f"{self.count / seconds:,.0f} {self.unit}"


BOTH = ("cpu", "gpu")
NARROW = 3e-2  # what a network's results may be off by in 16 bits

ROWS = [
    *[Row(f"embedding, MiniLM-L6, {b} x {s}", encoders.Encoder(encoders.MINILM, b, s), sets, NARROW,
          "sentences/s", b)
      for b, s, sets in ((1, 16, BOTH), (32, 128, BOTH), (256, 256, ("gpu",)))],
    *[Row(f"embedding, BERT-base, {b} x {s}", encoders.Encoder(encoders.BERT, b, s), sets, NARROW,
          "sentences/s", b)
      for b, s, sets in ((1, 16, BOTH), (32, 128, ("gpu",)), (128, 128, ("gpu",)),
                         (256, 256, ("gpu",)))],
    *[Row(f"embedding, {name}, {count:,} lines to vectors", lines.Lines(shape, count), sets, NARROW,
          "sentences/s", count)
      for name, shape, count, sets in (("MiniLM-L6", encoders.MINILM, 200, ("cpu",)),
                                       ("MiniLM-L6", encoders.MINILM, 10000, ("gpu",)),
                                       ("BERT-base", encoders.BERT, 10000, ("gpu",)))],
    *[Row(f"a token, {name}, {b} rows", generation.Tokens(shape, b), sets, NARROW, "tokens/s",
          b * generation.STEPS)
      for name, shape, sets in (("SmolLM2-135M's shape", generation.SMOL, BOTH),
                                ("Llama-1B's shape", generation.LLAMA, ("gpu",)))
      for b in (1, 8)],
    *[Row(f"a prompt of 512, {name}", generation.Prompt(shape, 512), sets, NARROW, "tokens/s", 512)
      for name, shape, sets in (("SmolLM2-135M's shape", generation.SMOL, BOTH),
                                ("Llama-1B's shape", generation.LLAMA, ("gpu",)))],
    Row("ONNX, decoder of 8 layers of 512, cache grows by 32", networks.growing_cache(8, 512, 64, 32),
        count=32),
    Row("ONNX, text recogniser, 100 widths", networks.recogniser(100), count=100),
    Row("ONNX, GRU encoder, 64 steps of 256", networks.recurrent("GRU", 64, 256)),
    Row("ONNX, LSTM, two layers, 50 steps of 128", networks.recurrent("LSTM", 50, 128, layers=2)),
    Row("ONNX, voice detector, a frame", networks.recurrent("LSTM", 1, 64, convolutions=2)),
    Row("ONNX, residual network of 18 layers, 224 x 224", networks.residual(224)),
    Row("training step, MLP 64-128-10, 32 rows", training.Perceptron((64, 128, 10), 32),
        count=training.STEPS),
    Row("training step, MLP 784-512-512-10, 256 rows", training.Perceptron((784, 512, 512, 10), 256),
        BOTH, count=training.STEPS),
    Row("training step, convolutions, 64 x 28 x 28", training.Convolutions(64, 28), BOTH,
        count=training.STEPS),
    Row("training step, 4 transformer layers of 256, 8 x 128", training.Transformer(8, 128), BOTH,
        count=training.STEPS),
    Row("training step, character model, GRU of 256, 32 x 64", training.Characters(32, 64, 256), BOTH,
        count=training.STEPS),
    Row("stencil, 50 steps, 1024 x 1024", stencil.Heat(1024, 50), BOTH),
    Row("sort of 16M", orders.Sort(1 << 24), BOTH, 0),
    Row("Mandelbrot set, 50 steps, 400 x 600", everyday.Mandelbrot(400, 600, 50), BOTH, 0.02),
    Row("filter of frequencies, 64 signals of 4096", everyday.Filter(64, 4096, 100), BOTH),
    Row("sparse product, 100,000 rows of 8", everyday.Sparse(100_000, 16), BOTH),
    Row("unique of 1M integers below 1,000", everyday.Unique(1_000_000, 1000), BOTH, 0),
    Row("histogram of 1M, 64 bins", everyday.Histogram(1_000_000, 64), BOTH, 1e-4),
    Row("means of 100 groups of 100,000 x 8", everyday.Groups(100_000, 8, 100), BOTH),
    Row("k-means, 20,000 x 8, 16 clusters, 10 steps", everyday.Clusters(20_000, 8, 16, 10), BOTH),
    Row("1,024 bodies, 10 steps", everyday.Bodies(1024, 10), BOTH),
    *[Row(f"50 largest of {lines} x 151936", orders.Largest(lines, 151936, 50), BOTH, 0)
      for lines in (64, 1)],
]
