# SPDX-License-Identifier: Apache-2.0
"""Answers of PyPI's gguf, and of numpy where that has none, for tests/ops/test_blocks.c: make-blocks.py >blocks.def.

KNOWN_BLOCK(type, block, values): the bytes of a block, and the floats that it is read as.
KNOWN_QUANTIZED(type, floats, blocks): what two blocks of floats become.
Floats are the hexadecimal digits of their bits, little-endian."""
import numpy
from gguf import GGMLQuantizationType, quants

WIDTH = 84


def text(data):
    digits = data.tobytes().hex()
    return '\n'.join(f'    "{digits[i:i + WIDTH]}"' for i in range(0, len(digits), WIDTH))


def scaled(random, size, places):
    """Random bytes; the f16 at `places` are such as scales are."""
    block = random.integers(0, 256, size, numpy.uint8)
    for place in places:
        scale = random.uniform(-1, 1) * 2.0 ** random.integers(-6, 3)
        block[place:place + 2] = numpy.frombuffer(numpy.float16(scale).tobytes(), numpy.uint8)
    return block


def main():
    random = numpy.random.default_rng(20)
    print('/* SPDX-License-Identifier: Apache-2.0 */')
    print('/* Made by make-blocks.py, which explains it; not to be edited. */')
    for name, places in (('Q8_0', (0,)), ('Q4_0', (0,)), ('Q4_1', (0, 2)), ('Q5_0', (0,)),
                         ('Q5_1', (0, 2)), ('Q4_K', (0, 2)), ('Q5_K', (0, 2)), ('Q6_K', (208,))):
        kind = GGMLQuantizationType[name]
        block = scaled(random, quants.GGML_QUANT_SIZES[kind][1], places)
        values = quants.dequantize(block.reshape(1, -1), kind).astype('<f4')
        print(f'KNOWN_BLOCK(KILN_{name},\n{text(block)},\n{text(values)})')
    random_z = numpy.random.default_rng(21)
    for name, count in (('Q4_Z', 16), ('Q8_Z', 32)):
        bytes_ = random_z.integers(0, 256, count, numpy.uint8)
        scale, zero = random_z.normal(size=2).astype('<f4') * numpy.float32((0.1, 20))
        whole = numpy.concatenate((bytes_ & 15, bytes_ >> 4)) if count == 16 else bytes_
        block = numpy.concatenate((numpy.array((scale, zero), '<f4').view(numpy.uint8), bytes_))
        print(f'KNOWN_BLOCK(KILN_{name},\n{text(block)},\n{text((whole.astype("<f4") - zero) * scale)})')
    for name in ('Q8_0', 'Q4_0'):
        values = random.normal(size=(2, 32)).astype('<f4')
        values[1] *= numpy.float32(1e-3)
        values[1, 3:9] = (0, -0.0, 0.5, -0.5, 0.25, -0.25)  # halves between whole numbers
        made = quants.quantize(values, GGMLQuantizationType[name])
        print(f'KNOWN_QUANTIZED(KILN_{name},\n{text(values)},\n{text(made)})')


main()
