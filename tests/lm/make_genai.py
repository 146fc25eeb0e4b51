# SPDX-License-Identifier: Apache-2.0
"""A tiny language model in onnxruntime-genai's form, of random weights: make_genai.py FOLDER

Two layers of 32 with 4 heads of 16 that share 2 heads of keys, MatMulNBits of 4 bits, the embedding of
4 bits too, and byte-level BPE with a few merges. With packages onnx and numpy."""
import json
import os
import sys

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save_model

LAYERS, WIDTH, HEADS, PAIRS, SIZE, INNER, CONTEXT, BLOCK = 2, 32, 4, 2, 16, 64, 64, 32
FLOAT = TensorProto.FLOAT
MERGES = ('Ġ t', 'h e', 'i n', 'e r', 'Ġ s', 'Ġt he', 'o u', 'Ġ a', 'r e')
END = '<|end|>'
random = np.random.default_rng(3)


def characters():
    """The characters that stand for bytes."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in kept]
    return [chr(b) if b in kept else chr(256 + others.index(b)) for b in range(256)]


def tokens():
    return [END, *characters(), *(merge.replace(' ', '') for merge in MERGES)]


def tokenizer():
    return {
        'version': '1.0', 'truncation': None, 'padding': None,
        'added_tokens': [{'id': 0, 'content': END, 'single_word': False, 'lstrip': False, 'rstrip': False,
                          'normalized': False, 'special': True}],
        'normalizer': None,
        'pre_tokenizer': {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True,
                          'use_regex': True},
        'post_processor': None,
        'decoder': {'type': 'ByteLevel', 'add_prefix_space': True, 'trim_offsets': True, 'use_regex': True},
        'model': {'type': 'BPE', 'dropout': None, 'unk_token': None, 'continuing_subword_prefix': None,
                  'end_of_word_suffix': None, 'fuse_unk': False, 'byte_fallback': False,
                  'vocab': {token: i for i, token in enumerate(tokens())}, 'merges': list(MERGES)}}


def config():
    return {
        'model': {
            'bos_token_id': 0, 'context_length': CONTEXT, 'eos_token_id': [0], 'pad_token_id': 0,
            'type': 'llama', 'vocab_size': len(tokens()),
            'decoder': {
                'filename': 'model.onnx', 'head_size': SIZE, 'hidden_size': WIDTH,
                'num_attention_heads': HEADS, 'num_key_value_heads': PAIRS, 'num_hidden_layers': LAYERS,
                'session_options': {'log_id': 'onnxruntime-genai', 'provider_options': []},
                'inputs': {'input_ids': 'input_ids', 'attention_mask': 'attention_mask',
                           'past_key_names': 'past_key_values.%d.key',
                           'past_value_names': 'past_key_values.%d.value'},
                'outputs': {'logits': 'logits', 'present_key_names': 'present.%d.key',
                            'present_value_names': 'present.%d.value'}}},
        'search': {'do_sample': False, 'max_length': CONTEXT, 'past_present_share_buffer': True}}


class Graph:
    def __init__(self):
        self.nodes, self.weights = [], []

    def weight(self, name, value):
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def node(self, op, inputs, outputs, domain='', **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def product(self, x, name, k, n, size=1.0):
        blocks = k // BLOCK
        scale = (np.abs(random.normal(size=(n, blocks))) + 0.5) * size / 8 / np.sqrt(k)
        return self.node('MatMulNBits', [
            x, self.weight(name + '.q', random.integers(0, 256, (n, blocks, BLOCK // 2), np.uint8)),
            self.weight(name + '.s', scale.astype(np.float32))], [name + '.y'], 'com.microsoft', K=k, N=n,
            bits=4, block_size=BLOCK)

    def norm(self, name):
        return self.weight(name, (1 + random.normal(size=WIDTH) / 10).astype(np.float32))


def layer(g, i, x, summed):
    """What the layer adds, and the sum so far before that is added."""
    past = [f'past_key_values.{i}.{kind}' for kind in ('key', 'value')]
    present = [f'present.{i}.{kind}' for kind in ('key', 'value')]
    q = g.product(x, f'q{i}', WIDTH, HEADS * SIZE, 2)
    k = g.product(x, f'k{i}', WIDTH, PAIRS * SIZE, 2)
    v = g.product(x, f'v{i}', WIDTH, PAIRS * SIZE)
    a = g.node('GroupQueryAttention', [q, k, v, *past, 'lengths', 'total', 'cosine', 'sine'],
               [f'a{i}', *present], 'com.microsoft', num_heads=HEADS, kv_num_heads=PAIRS, do_rotary=1)
    a = g.product(a, f'o{i}', HEADS * SIZE, WIDTH)
    x = g.node('SkipSimplifiedLayerNormalization', [summed, a, g.norm(f'inner{i}')],
               [f'x{i}', '', '', f'sum{i}'], 'com.microsoft', epsilon=1e-5)
    gate, up = g.product(x, f'gate{i}', WIDTH, INNER), g.product(x, f'up{i}', WIDTH, INNER)
    swish = g.node('Mul', [gate, g.node('Sigmoid', [gate], [f'sigmoid{i}'])], [f'swish{i}'])
    return g.product(g.node('Mul', [swish, up], [f'mul{i}']), f'down{i}', INNER, WIDTH), f'sum{i}'


def main(folder):
    os.makedirs(folder, exist_ok=True)
    g = Graph()
    vocabulary = len(tokens())
    mask = g.node('ReduceSum', ['attention_mask', g.weight('axis', np.array([1]))], ['seen'], keepdims=0)
    mask = g.node('Sub', [mask, g.weight('one', np.array([1]))], ['less'])
    g.node('Cast', [mask], ['lengths'], to=TensorProto.INT32)
    total = g.node('Gather', [g.node('Shape', ['attention_mask'], ['shape']), g.weight('second', np.array(1))],
                   ['total64'])
    g.node('Cast', [total], ['total'], to=TensorProto.INT32)
    angles = np.outer(np.arange(CONTEXT), 10000.0 ** (-np.arange(SIZE // 2) / (SIZE // 2)))
    g.weight('cosine', np.cos(angles).astype(np.float32))
    g.weight('sine', np.sin(angles).astype(np.float32))
    x = g.node('GatherBlockQuantized', [
        g.weight('words', random.integers(0, 256, (vocabulary, WIDTH // 2), np.uint8)), 'input_ids',
        g.weight('words.s', (np.abs(random.normal(size=(vocabulary, 1))) / 4).astype(np.float32))], ['x'],
        'com.microsoft', block_size=BLOCK, bits=4, gather_axis=0, quantize_axis=1)
    summed = x
    x = g.node('SimplifiedLayerNormalization', [x, g.norm('first')], ['first.y'], axis=-1, epsilon=1e-5)
    for i in range(LAYERS):
        added, summed = layer(g, i, x, summed)
        last = i + 1 == LAYERS
        x = g.node('SkipSimplifiedLayerNormalization', [summed, added, g.norm(f'norm{i}')],
                   [f'y{i}'] if last else [f'y{i}', '', '', f'all{i}'], 'com.microsoft', epsilon=1e-5)
        summed = f'all{i}'
    x = g.product(x, 'head', WIDTH, vocabulary, 4)
    g.nodes[-1].output[0] = 'logits'
    caches = [(f'{{}}.{i}.{kind}', ['batch', PAIRS, '{}', SIZE]) for i in range(LAYERS) for kind in ('key', 'value')]
    def values(name, rows):
        return [helper.make_tensor_value_info(
            n.format(name), FLOAT, [rows if d == '{}' else d for d in dims]) for n, dims in caches]
    ids = [helper.make_tensor_value_info(n, TensorProto.INT64, ['batch', rows])
           for n, rows in (('input_ids', 'sequence'), ('attention_mask', 'total'))]
    logits = helper.make_tensor_value_info('logits', FLOAT, ['batch', 'sequence', vocabulary])
    graph = helper.make_graph(g.nodes, 'tiny', ids + values('past_key_values', 'past'),
                              [logits] + values('present', 'total'), g.weights)
    model = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid('', 21), helper.make_opsetid('com.microsoft', 1)])
    save_model(model, os.path.join(folder, 'model.onnx'))
    for name, value in (('genai_config.json', config()), ('tokenizer.json', tokenizer())):
        with open(os.path.join(folder, name), 'w', encoding='utf-8') as file:
            json.dump(value, file, indent=1 if name[0] == 'g' else None)
            file.write('\n')


main(sys.argv[1])
