# SPDX-License-Identifier: Apache-2.0
"""Sentence embedding at a fixed shape: numbers of words in, unit vectors out; BERT's encoder with random
weights, half of the words of every second sentence masked."""

from dataclasses import dataclass

import numpy as np

from libraries import Kiln, Torch


@dataclass(frozen=True)
class Shape:
    width: int
    layers: int
    heads: int
    inner: int
    words: int = 30522


MINILM, BERT = Shape(384, 6, 12, 1536), Shape(768, 12, 12, 3072)
EPSILON = 1e-12


def make_weights(shape, length, random):
    def matrix(rows, columns):
        return (random.standard_normal((rows, columns), np.float32) * 0.04)

    def vector(columns, mean):
        return (mean + 0.1 * random.standard_normal(columns)).astype(np.float32)

    w, p = shape.width, {}
    p["words"], p["places"] = matrix(shape.words, w), matrix(length, w)
    p["scale"], p["shift"] = vector(w, 1), vector(w, 0)
    for i in range(shape.layers):
        for name, rows, columns in (("qkv", w, 3 * w), ("out", w, w), ("up", w, shape.inner),
                                    ("down", shape.inner, w)):
            p[f"{name}{i}"], p[f"{name}_b{i}"] = matrix(rows, columns), vector(columns, 0)
        for norm in ("a", "b"):
            p[f"scale_{norm}{i}"], p[f"shift_{norm}{i}"] = vector(w, 1), vector(w, 0)
    return p


class Encoder:
    def __init__(self, shape, rows, length):
        self.shape, self.rows, self.length = shape, rows, length

    def data(self):
        random = np.random.default_rng(0)
        words = random.integers(1000, self.shape.words, (self.rows, self.length)).astype(np.int32)
        lengths = np.full(self.rows, self.length, np.int32)
        lengths[1::2] = self.length // 2
        return make_weights(self.shape, self.length, random), words, lengths

    def reference(self, data):
        return None

    def encode(self, n, p, words, lengths, narrow):
        """The network over the functions of one library (`n`); `narrow` is what products read."""
        s, rows, length = self.shape, self.rows, self.length
        inside = n.before(length, lengths, rows)  # [rows, length], true where there is a word
        x = n.norm((n.rows(p["words"], words) + p["places"]).reshape(rows * length, s.width),
                   p["scale"], p["shift"], EPSILON)
        for i in range(s.layers):
            qkv = n.linear(narrow(x), p[f"qkv{i}"], p[f"qkv_b{i}"])
            qkv = n.transpose(narrow(qkv).reshape(rows, length, 3, s.heads, s.width // s.heads),
                              (2, 0, 3, 1, 4))
            a = n.attention(qkv[0], qkv[1], qkv[2], inside.reshape(rows, 1, 1, length))
            a = n.transpose(narrow(a), (0, 2, 1, 3)).reshape(rows * length, s.width)
            x = n.norm(n.linear(a, p[f"out{i}"], p[f"out_b{i}"]) + x,
                       p[f"scale_a{i}"], p[f"shift_a{i}"], EPSILON)
            h = n.gelu(n.linear(narrow(x), p[f"up{i}"], p[f"up_b{i}"]))
            x = n.norm(n.linear(narrow(h), p[f"down{i}"], p[f"down_b{i}"]) + x,
                       p[f"scale_b{i}"], p[f"shift_b{i}"], EPSILON)
        weights = n.floats(inside).reshape(rows, length, 1)
        mean = (x.reshape(rows, length, s.width) * weights).sum(1) / weights.sum(1)
        return mean / n.sqrt((mean * mean).sum(1).reshape(rows, 1))

    def kiln(self, data, device):
        import kiln
        weights, words, lengths = data
        ways = {}
        for way, kind, precision in (("f32", None, None), ("bf16, by casts", "bf16", None),
                                     ("bf16", None, "bf16")):
            if way != "f32" and device == "cpu":
                continue
            p = {}
            for name, value in weights.items():
                if kind and value.ndim == 2 and name not in ("words", "places"):
                    p[name] = kiln.Buffer.empty(value.shape, kind)
                    p[name][...] = kiln.tensor(value).astype(kind)
                else:
                    p[name] = kiln.Buffer(value)
            narrow = (lambda x, kind=kind: x.astype(kind)) if kind else (lambda x: x)
            run = kiln.function(lambda words, lengths, p=p, narrow=narrow:
                                self.encode(Kiln, p, words, lengths, narrow), precision=precision)
            ways[way] = lambda run=run: [run(words, lengths).numpy()]
        return ways

    def pytorch(self, data, device):
        import torch
        import ways
        weights, words, lengths = data
        result = {}
        for name, kind in (("f32", torch.float32), ("bf16", torch.bfloat16)):
            p = {k: torch.from_numpy(v).to(ways.place(device), kind) for k, v in weights.items()}
            run = lambda words, lengths, p=p: self.encode(Torch, p, words, lengths, lambda x: x)
            result |= {f"{name} {way}": step
                       for way, step in ways.of(run, [words, lengths], device).items()}
        return result
