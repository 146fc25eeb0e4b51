# SPDX-License-Identifier: Apache-2.0
"""Generating text with a decoder of Llama's kind (random weights, 16 bits): STEPS tokens one after the
other, each the most probable one, and prompts. Keys and values lie in a cache of CONTEXT places."""

from dataclasses import dataclass

import numpy as np

STEPS, CONTEXT, THETA, EPSILON = 16, 512, 500000.0, 1e-5


@dataclass(frozen=True)
class Shape:
    width: int
    layers: int
    heads: int
    pairs: int  # of keys and values
    inner: int
    words: int

    @property
    def size(self):
        return self.width // self.heads


SMOL = Shape(576, 30, 9, 3, 1536, 49152)
LLAMA = Shape(2048, 16, 32, 8, 8192, 128256)


def make_weights(s):
    random = np.random.default_rng(0)

    def matrix(rows, columns):
        return random.standard_normal((rows, columns), np.float32) * np.float32(columns ** -0.5)

    p = {"words": matrix(s.words, s.width), "norm": np.ones(s.width, np.float32)}
    for i in range(s.layers):
        p[f"n{i}"] = p[f"m{i}"] = np.ones(s.width, np.float32)
        p[f"qkv{i}"] = matrix((s.heads + 2 * s.pairs) * s.size, s.width)
        p[f"out{i}"] = matrix(s.width, s.heads * s.size)
        p[f"up{i}"] = matrix(2 * s.inner, s.width)
        p[f"down{i}"] = matrix(s.width, s.inner)
    return p


def angles(s):
    angle = np.arange(CONTEXT)[:, None] * THETA ** (-np.arange(0, s.size, 2) / s.size)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


class Decoder:
    """What tokens and prompts share."""

    def __init__(self, shape, rows):
        self.shape, self.rows, self.weights = shape, rows, None

    def reference(self, data):
        return None

    def kiln_parts(self):
        import kiln
        s, p = self.shape, {}
        for name, value in self.data()[0].items():
            if value.ndim == 1:
                p[name] = kiln.Buffer(value)
            else:
                p[name] = kiln.Buffer.empty(value.shape, "bf16")
                p[name][...] = kiln.tensor(value).astype("bf16")
        caches = [[kiln.Buffer.zeros((self.rows, s.pairs, CONTEXT, s.size), "bf16") for _ in "kv"]
                  for _ in range(s.layers)]
        return p, caches, [kiln.Buffer(a) for a in angles(s)]

    def kiln_layers(self, p, x, length, cos, sin, attend, narrow):
        """x [rows * length, width]; attend(layer, q, k, v) gives [rows, length, heads * size]."""
        import kiln
        s, rows = self.shape, self.rows
        product = lambda x, w: kiln.matmul_transposed(narrow(x), False, w, True)
        for i in range(s.layers):
            qkv = product(kiln.rms_norm(x, p[f"n{i}"], epsilon=EPSILON), p[f"qkv{i}"])
            qkv = kiln.transpose(qkv.reshape(rows, length, s.heads + 2 * s.pairs, s.size), (0, 2, 1, 3))
            q, k, v = kiln.split(qkv, [s.heads, s.pairs, s.pairs], 1)
            q, k = kiln.rotary(q, cos, sin), kiln.rotary(k, cos, sin)
            a = attend(i, q.astype("bf16"), k.astype("bf16"), v.astype("bf16"))
            x = x + product(a.reshape(rows * length, s.heads * s.size), p[f"out{i}"])
            h = product(kiln.rms_norm(x, p[f"m{i}"], epsilon=EPSILON), p[f"up{i}"])
            x = x + product(kiln.swish(h[:, :s.inner]) * h[:, s.inner:], p[f"down{i}"])
        return x, lambda x: product(kiln.rms_norm(x, p["norm"], epsilon=EPSILON), p["words"])

    def torch_parts(self, device):
        import torch
        import ways
        s, place = self.shape, ways.place(device)
        p = {k: torch.from_numpy(v).to(place, torch.bfloat16) for k, v in self.data()[0].items()}
        caches = [[torch.zeros(self.rows, s.pairs, CONTEXT, s.size, dtype=torch.bfloat16, device=place)
                   for _ in "kv"] for _ in range(s.layers)]
        return p, caches, [torch.from_numpy(a).to(place, torch.bfloat16) for a in angles(s)]

    def torch_layers(self, p, x, length, cos, sin, attend):
        import torch
        f, s, rows = torch.nn.functional, self.shape, self.rows

        def turn(x):
            half = s.size // 2
            a, b = x[..., :half], x[..., half:]
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        for i in range(s.layers):
            qkv = f.linear(f.rms_norm(x, [s.width], p[f"n{i}"], EPSILON), p[f"qkv{i}"])
            qkv = qkv.reshape(rows, length, s.heads + 2 * s.pairs, s.size).transpose(1, 2)
            q, k, v = qkv.split([s.heads, s.pairs, s.pairs], 1)
            a = attend(i, turn(q), turn(k), v)
            x = x + f.linear(a.reshape(rows * length, s.heads * s.size), p[f"out{i}"])
            h = f.linear(f.rms_norm(x, [s.width], p[f"m{i}"], EPSILON), p[f"up{i}"])
            x = x + f.linear(f.silu(h[:, :s.inner]) * h[:, s.inner:], p[f"down{i}"])
        return x, lambda x: f.linear(f.rms_norm(x, [s.width], p["norm"], EPSILON), p["words"])


class Tokens(Decoder):
    """The results are the last token's logits; the words are the same for all libraries."""

    def data(self):
        if self.weights is None:
            words = np.random.default_rng(1).integers(0, self.shape.words, (STEPS, self.rows))
            self.weights = make_weights(self.shape), words.astype(np.int32)
        return self.weights

    def kiln(self, data, device):
        import kiln
        s, rows = self.shape, self.rows
        p, caches, (cos, sin) = self.kiln_parts()
        narrow = (lambda x: x.astype("bf16")) if device == "gpu" and rows > 1 else (lambda x: x)

        @kiln.function
        def token(words, at):
            def attend(i, q, k, v):
                for cache, new in zip(caches[i], (k, v), strict=True):
                    cache[:, :, at] = new
                keys, values = caches[i]
                q = q.reshape(rows, s.pairs, s.heads // s.pairs, s.size)
                return kiln.attention(q, keys, values, lengths=at + 1)

            x = kiln.gather(p["words"], words, 0).astype("f32")
            x, head = self.kiln_layers(p, x, 1, kiln.gather(cos, at, 0), kiln.gather(sin, at, 0), attend,
                                       narrow)
            return head(x)

        def step():
            for i, words in enumerate(data[1]):
                logits = token(words, np.array([i], np.int32)).numpy()
            return [logits]

        return {"bf16": step}

    def pytorch(self, data, device):
        import torch
        import ways
        s, rows = self.shape, self.rows
        p, caches, (cos, sin) = self.torch_parts(device)

        def token(words, at):
            seen = torch.arange(CONTEXT, device=at.device)[None, None, None] <= at

            def attend(i, q, k, v):
                keys, values = caches[i]
                keys.index_copy_(2, at, k)
                values.index_copy_(2, at, v)
                q = q.reshape(rows, s.pairs, s.heads // s.pairs, s.size)
                return torch.nn.functional.scaled_dot_product_attention(q, keys, values, seen)

            x, head = self.torch_layers(p, p["words"][words], 1, cos[at], sin[at], attend)
            return head(x).float()

        def runs(call):
            def step():
                with torch.inference_mode():
                    for i, words in enumerate(data[1]):
                        logits = call(*ways.tensors([words, np.array([i])], device))
                        result = logits.cpu()
                return [result.numpy()]
            return step

        result = {"eager": runs(token), "compiled": runs(torch.compile(token))}
        if device == "gpu":
            held = ways.tensors([data[1][0], np.array([0])], device)
            with torch.no_grad():
                replay = ways.graph(torch.compile(token), held)

            def by_graph(words, at):
                held[0].copy_(words)
                held[1].copy_(at)
                return replay()

            result["graph"] = runs(by_graph)
        return result


class Prompt(Decoder):
    """The results are the logits behind the prompt's last word."""

    def __init__(self, shape, length):
        super().__init__(shape, 1)
        self.length = length

    def data(self):
        if self.weights is None:
            words = np.random.default_rng(1).integers(0, self.shape.words, (1, self.length))
            self.weights = make_weights(self.shape), words.astype(np.int32)
        return self.weights

    def kiln(self, data, device):
        import kiln
        s, length = self.shape, self.length
        p, caches, (cos, sin) = self.kiln_parts()
        narrow = (lambda x: x.astype("bf16")) if device == "gpu" else (lambda x: x)

        @kiln.function
        def prompt(words):
            def attend(i, q, k, v):
                for cache, new in zip(caches[i], (k, v), strict=True):
                    cache[:, :, :length] = new
                a = kiln.attention(q.reshape(1, s.pairs, s.heads // s.pairs, length, s.size),
                                   k.reshape(1, s.pairs, 1, length, s.size),
                                   v.reshape(1, s.pairs, 1, length, s.size), causal=1)
                return kiln.transpose(a.reshape(1, s.heads, length, s.size), (0, 2, 1, 3))

            x = kiln.gather(p["words"], words.reshape(length), 0).astype("f32")
            x, head = self.kiln_layers(p, x, length, cos[:length], sin[:length], attend, narrow)
            return head(x[length - 1:])

        return {"bf16": lambda: [prompt(data[1]).numpy()]}

    def pytorch(self, data, device):
        import torch
        import ways
        s, length = self.shape, self.length
        p, caches, (cos, sin) = self.torch_parts(device)

        def prompt(words):
            def attend(i, q, k, v):
                for cache, new in zip(caches[i], (k, v), strict=True):
                    cache[:, :, :length] = new
                a = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True,
                                                                     enable_gqa=True)
                return a.transpose(1, 2)

            x, head = self.torch_layers(p, p["words"][words[0]], length, cos[:length], sin[:length], attend)
            return head(x[length - 1:]).float()

        return ways.of(prompt, [data[1]], device)
