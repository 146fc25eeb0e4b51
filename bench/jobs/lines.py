# SPDX-License-Identifier: Apache-2.0
"""Sentence embedding from lines to vectors: text is cut into word pieces, lines of like length are
computed together, each one's vector has length 1. kiln's side is `kiln embed`."""

import json
import os
import pathlib
import subprocess
import tempfile

import numpy as np

from encoders import EPSILON, Encoder, make_weights
from libraries import Torch
from networks import Graph

LONGEST = 256  # tokens of a line
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def make_vocabulary(count, random):
    """Words of syllables; a quarter continue a word."""
    syllables = [c + v for c in "bcdfghjklmnprstvwz" for v in "aeiou"]
    names, known = [], set()
    while len(names) < count - len(SPECIAL):
        word = "".join(random.choice(syllables, random.integers(1, 5)))
        word = word if len(names) % 4 else "##" + word
        if word not in known:
            known.add(word)
            names.append(word)
    return SPECIAL + names


def make_lines(vocabulary, count, random):
    """Some 46 pieces in the middle, as a corpus of sentences has."""
    begin = np.array([w for w in vocabulary[len(SPECIAL):] if not w.startswith("##")])
    end = np.array([w[2:] if random.random() < 0.15 else "" for w in vocabulary if w.startswith("##")])
    lines = []
    for length in np.clip(random.lognormal(np.log(40), 0.5, count), 3, LONGEST - 20).astype(int):
        words = np.char.add(random.choice(begin, length), random.choice(end, length))
        lines.append(" ".join(words))
    return lines


def make_model(shape, p):
    """An ONNX file's bytes, as exporters write a BERT."""
    from onnx import TensorProto

    g, head = Graph(), shape.width // shape.heads

    def linear(x, w, b):
        return g.add("Add", g.add("MatMul", x, g.constant(w)), g.constant(b))

    def norm(x, name, at=""):
        return g.add("LayerNormalization", x, g.constant(p[f"scale{name}{at}"]),
                     g.constant(p[f"shift{name}{at}"]), axis=-1, epsilon=EPSILON)

    length = g.add("Slice", g.add("Shape", "input_ids"), *[g.constant(np.array([i])) for i in (1, 2)])
    places = g.add("Slice", g.constant(p["places"]), g.constant(np.array([0])), length,
                   g.constant(np.array([0])))
    x = norm(g.add("Add", g.add("Gather", g.constant(p["words"]), "input_ids"), places), "")
    outside = g.add("Sub", g.constant(np.float32(1)),
                    g.add("Cast", g.add("Unsqueeze", "attention_mask", g.constant(np.array([1, 2]))),
                          to=TensorProto.FLOAT))
    mask = g.add("Mul", outside, g.constant(np.float32(np.finfo(np.float32).min)))
    by_head = g.constant(np.array([0, 0, shape.heads, head]))
    whole = g.constant(np.array([0, 0, shape.width]))
    for i in range(shape.layers):
        q, k, v = [g.add("Transpose", g.add("Reshape", linear(x, w, b), by_head), perm=perm)
                   for w, b, perm in zip(np.split(p[f"qkv{i}"], 3, 1), np.split(p[f"qkv_b{i}"], 3),
                                         ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]))]
        scores = g.add("Div", g.add("MatMul", q, k), g.constant(np.float32(np.sqrt(head))))
        a = g.add("MatMul", g.add("Softmax", g.add("Add", scores, mask), axis=-1), v)
        a = g.add("Reshape", g.add("Transpose", a, perm=[0, 2, 1, 3]), whole)
        x = norm(g.add("Add", linear(a, p[f"out{i}"], p[f"out_b{i}"]), x), "_a", i)
        h = linear(x, p[f"up{i}"], p[f"up_b{i}"])
        half = g.add("Mul", h, g.add("Add", g.add("Erf", g.add("Div", h, g.constant(np.float32(np.sqrt(2))))),
                                     g.constant(np.float32(1))))
        h = g.add("Mul", half, g.constant(np.float32(0.5)))
        x = norm(g.add("Add", linear(h, p[f"down{i}"], p[f"down_b{i}"]), x), "_b", i)
    return g.bytes({n: ["batch", "length"] for n in ("input_ids", "attention_mask")},
                   {"last_hidden_state": x}, TensorProto.INT64)


class Lines:
    """Of `count` lines; a job is all of them."""

    def __init__(self, shape, count):
        self.shape, self.count = shape, count

    def data(self):
        random = np.random.default_rng(0)
        vocabulary = make_vocabulary(self.shape.words, random)
        return (make_weights(self.shape, LONGEST, random), vocabulary,
                make_lines(vocabulary, self.count, random))

    def reference(self, data):
        return None

    def kiln(self, data, device):
        weights, vocabulary, lines = data
        self.folder = tempfile.TemporaryDirectory(prefix="kiln-lines.")
        folder = pathlib.Path(self.folder.name)
        (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
        (folder / "lines.txt").write_text("\n".join(lines) + "\n")
        (folder / "model.onnx").write_bytes(make_model(self.shape, weights))
        return {kind: Embed(folder, kind) for kind in ("f32",) + (("bf16",) if device == "gpu" else ())}

    def pytorch(self, data, device):
        import torch
        import ways
        from tokenizers import BertWordPieceTokenizer

        weights, vocabulary, lines = data
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("\n".join(vocabulary) + "\n")
            file.flush()
            tokenizer = BertWordPieceTokenizer(file.name)
        tokenizer.enable_truncation(LONGEST)
        rows = 256 if device == "gpu" else 16

        def encode(p, words, lengths):
            encoder = Encoder(self.shape, *words.shape)
            return encoder.encode(Torch, {**p, "places": p["places"][:words.shape[1]]}, words, lengths,
                                  lambda x: x)

        def runs(p, function):
            def step():
                pieces = [e.ids for e in tokenizer.encode_batch(lines)]
                order = sorted(range(len(lines)), key=lambda i: -len(pieces[i]))
                vectors = []
                with torch.inference_mode():
                    for first in range(0, len(order), rows):
                        chosen = [pieces[i] for i in order[first:first + rows]]
                        lengths = [len(line) for line in chosen]
                        words = np.zeros((len(chosen), -(-lengths[0] // 8) * 8), np.int32)
                        for row, line in zip(words, chosen):
                            row[:len(line)] = line
                        given = ways.tensors([words, np.array(lengths, np.int32)], device)
                        vectors.append(function(p, *given))
                    sorted_vectors = torch.cat(vectors).float().cpu().numpy()
                result = np.empty_like(sorted_vectors)
                result[order] = sorted_vectors
                return [result]
            return step

        result = {}
        for name, kind in (("f32", torch.float32), ("bf16", torch.bfloat16)):
            p = {k: torch.from_numpy(v).to(ways.place(device), kind) for k, v in weights.items()}
            result[f"{name} eager"] = runs(p, encode)
            result[f"{name} compiled"] = runs(p, torch.compile(encode, dynamic=True))
        return result


class Embed:
    """Runs the program, which says the seconds from the first line on: a model that serves is loaded."""

    def __init__(self, folder, precision):
        self.folder, self.precision, self.seconds = folder, precision, None

    def __call__(self):
        program = os.environ.get("KILN_PROGRAM", os.path.abspath("kiln"))
        ran = subprocess.run(
            [program, "embed", "--json", "--model", self.folder, "--precision", self.precision,
             "--output", self.folder / "vectors.npy", self.folder / "lines.txt"],
            check=True, stdout=subprocess.PIPE, text=True)
        self.said = json.loads(ran.stdout)
        self.seconds = self.said["seconds"]
        return [np.load(self.folder / "vectors.npy")]
