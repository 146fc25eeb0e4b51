# SPDX-License-Identifier: Apache-2.0
"""What checks of real models share: lines in many scripts for tokenizers, a file's keys, results."""
import sys
import unicodedata

import numpy as np

LINES = 10000
results = []


def result(fine, words):
    results.append(fine)
    print("ok" if fine else "not ok", "-", words, flush=True)


def end():
    """Says how many passed, and ends the program."""
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    sys.exit(not all(results))


def fields(reader):
    """A function that gives the value of a GGUF file's key."""
    return lambda name: reader.fields[name].contents()


def make_lines():
    """Words of one script or of several, numbers, marks, white space of every kind."""
    random = np.random.default_rng(1)
    scripts = [(0x20, 0x7f), (0x41, 0x7b), (0x61, 0x7b), (0xa0, 0x250), (0x370, 0x400), (0x400, 0x500),
               (0x530, 0x590), (0x590, 0x600), (0x600, 0x700), (0x900, 0x980), (0x980, 0xa00),
               (0xb80, 0xc00), (0xe00, 0xe80), (0x10a0, 0x1100), (0x1200, 0x1380), (0x1780, 0x1800),
               (0x2000, 0x2100), (0x2150, 0x2190), (0x3040, 0x3100), (0x4e00, 0x9fff), (0xac00, 0xd7a4),
               (0x1f300, 0x1f700), (0x1d400, 0x1d7ff), (0x20000, 0x20100)]
    parts = ["'s", "'LL", "'re", " ", "  ", "\t", "\n", "\r\n", "\n\n ", "0", "12345", "...", "!?", "<|im_start|>",
             "\u00a0", "\u3000", "\u200d", "\u0301", "the", " The", " und", "http://", "_", "==", "\0"]
    for _ in range(LINES):
        line = ""
        low, high = scripts[random.integers(len(scripts))]
        for _ in range(random.integers(1, 12)):
            if random.integers(3) == 0:
                line += parts[random.integers(len(parts))]
                low, high = scripts[random.integers(len(scripts))]
            line += " " * int(random.integers(2)) + "".join(map(chr, random.integers(low, high, random.integers(1, 9))))
        yield "".join(c for c in line if unicodedata.category(c) != "Cn")  # younger Unicodes differ
