# SPDX-License-Identifier: Apache-2.0
"""Models of transformers and torchvision, made from small configurations, through torch.compile's
backend, beside PyTorch without it.

    check_torch_models.py [--steps N] [--bound X] [NAME ...]

prints for each model, or for those named: how far its results in inference and its losses over N steps
of training are from PyTorch's, relative to the largest; the graphs that PyTorch made and their batches;
the operators that PyTorch computed. A model that is further off than the bound, or whose graph is in
more parts than with PyTorch's own backend, is wrong. Losses may be twice as far off as PyTorch's own
are with weights that begin 1e-7 away: where that is beyond the bound it is said."""
import argparse
import collections
import copy
import logging
import sys
import time
import warnings

import torch
import torch.nn.functional as F

import kiln
import kiln.torch

MODELS = {}


def model(make):
    """A function that gives a model and what it is called with, found by its name."""
    MODELS[make.__name__] = make
    return make


# ---- transformers ----

ENCODER = {'hidden_size': 32, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'intermediate_size': 64}
TEXT = {**ENCODER, 'vocab_size': 96, 'max_position_embeddings': 64}
TOKENS = {'bos_token_id': 0, 'eos_token_id': 2, 'pad_token_id': 1}
PICTURE = {'image_size': 32, 'patch_size': 8, 'num_labels': 5}


def transformer(config, task, options, inputs):
    import transformers
    made = getattr(transformers, config + 'Config')(**options)
    return getattr(transformers, config + task)(made), inputs


def tokens(length=16):
    ids = torch.randint(3, 96, (2, length))
    return {'input_ids': ids, 'labels': ids.clone()}


def pictures():
    return {'pixel_values': torch.randn(4, 3, 32, 32), 'labels': torch.randint(5, (4,))}


def add_transformers(task, inputs, configurations):
    for config, options in configurations.items():
        MODELS[config.lower()] = lambda config=config, options=options: transformer(
            config, task, options, inputs())


add_transformers('ForMaskedLM', tokens, {
    'Bert': TEXT,
    'Roberta': TEXT,
    'DistilBert': {'vocab_size': 96, 'max_position_embeddings': 64, 'dim': 32, 'hidden_dim': 64,
                   'n_layers': 2, 'n_heads': 4},
    'Albert': {**TEXT, 'embedding_size': 16},
    'Electra': {**TEXT, 'embedding_size': 16},
})
add_transformers('LMHeadModel', tokens, {
    'GPT2': {'vocab_size': 96, 'n_positions': 64, 'n_embd': 32, 'n_layer': 2, 'n_head': 4, **TOKENS},
})
GROUPED = {**TEXT, **TOKENS, 'num_key_value_heads': 2, 'use_cache': False}
add_transformers('ForCausalLM', tokens, {
    'OPT': {**TEXT, **TOKENS, 'ffn_dim': 64, 'word_embed_proj_dim': 32},
    'GPTNeoX': {**TEXT, **TOKENS},
    'Llama': GROUPED,
    'Qwen2': GROUPED,
    'Qwen3': {**GROUPED, 'head_dim': 8},
    'Mistral': {**GROUPED, 'sliding_window': 8},
    'Gemma': {**GROUPED, 'head_dim': 8},
    'Phi': GROUPED,
})
SEQUENCES = {'vocab_size': 96, 'd_model': 32, 'encoder_layers': 2, 'decoder_layers': 2,
             'encoder_attention_heads': 4, 'decoder_attention_heads': 4, 'encoder_ffn_dim': 64,
             'decoder_ffn_dim': 64, 'decoder_start_token_id': 2, **TOKENS}
add_transformers('ForConditionalGeneration', tokens, {
    'T5': {'vocab_size': 96, 'd_model': 32, 'd_kv': 8, 'd_ff': 64, 'num_layers': 2, 'num_heads': 4,
           'decoder_start_token_id': 0},
    'Bart': {**SEQUENCES, 'max_position_embeddings': 64},
})
add_transformers('ForImageClassification', pictures, {
    'ViT': {**ENCODER, **PICTURE},
    'DeiT': {**ENCODER, **PICTURE},
    'Swin': {'embed_dim': 16, 'depths': [2, 2], 'num_heads': [2, 4], 'window_size': 4, **PICTURE,
             'patch_size': 4},
    'ConvNext': {'hidden_sizes': [8, 16, 24, 32], 'depths': [1, 1, 2, 1], **PICTURE, 'patch_size': 4},
})


@model
def clip():
    ids = torch.randint(3, 95, (4, 8))
    ids[:, -1] = 95
    config = {'text_config': {**TEXT, **TOKENS, 'eos_token_id': 95},
              'vision_config': {**ENCODER, 'image_size': 32, 'patch_size': 8}, 'projection_dim': 16}
    return transformer('CLIP', 'Model', config, {
        'input_ids': ids, 'pixel_values': torch.randn(4, 3, 32, 32), 'return_loss': True})


@model
def whisper():
    options = {**SEQUENCES, 'num_mel_bins': 8, 'max_source_positions': 20, 'max_target_positions': 20}
    return transformer('Whisper', 'ForConditionalGeneration', options, {
        'input_features': torch.randn(2, 8, 40), 'labels': torch.randint(3, 96, (2, 10))})


@model
def wav2vec2():
    options = {**ENCODER, 'conv_dim': [16, 16, 16], 'conv_stride': [5, 2, 2], 'conv_kernel': [10, 3, 3],
               'num_conv_pos_embeddings': 16, 'num_conv_pos_embedding_groups': 4, 'layerdrop': 0.0,
               'apply_spec_augment': False, 'num_labels': 5, 'classifier_proj_size': 16}
    return transformer('Wav2Vec2', 'ForSequenceClassification', options, {
        'input_values': torch.randn(2, 800), 'labels': torch.randint(5, (2,))})


# ---- torchvision ----

class Classifier(torch.nn.Module):
    """A model of pictures with its loss, called as those of transformers are."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, pixel_values, labels):
        scores = self.body(pixel_values)
        return {'loss': F.cross_entropy(scores, labels), 'logits': scores}


def add_vision(name, make, size=32):
    def made():
        from torchvision import models
        return Classifier(make(models)), {'pixel_values': torch.randn(4, 3, size, size),
                                          'labels': torch.randint(5, (4,))}
    MODELS[name] = made


def blocks_of_mobilenet(models):
    kind = models.mobilenetv3.InvertedResidualConfig
    return [kind(16, 3, 16, 16, True, 'RE', 2, 1, 1), kind(16, 5, 32, 24, True, 'HS', 1, 1, 1),
            kind(24, 3, 48, 24, False, 'HS', 1, 1, 1)]


def blocks_of_efficientnet(models):
    kind = models.efficientnet.MBConvConfig
    return [kind(1, 3, 1, 16, 16, 1), kind(4, 3, 2, 16, 24, 2), kind(4, 5, 2, 24, 32, 1)]


def blocks_of_convnext(models):
    kind = models.convnext.CNBlockConfig
    return [kind(16, 32, 1), kind(32, None, 2)]


add_vision('resnet', lambda m: m.resnet.ResNet(m.resnet.BasicBlock, [1, 1, 1, 1], 5))
add_vision('resnext', lambda m: m.resnet.ResNet(m.resnet.Bottleneck, [1, 1, 1, 1], 5, groups=4,
                                                width_per_group=8))
add_vision('mobilenet_v2', lambda m: m.MobileNetV2(5, 0.5, [[1, 16, 1, 1], [6, 24, 2, 2],
                                                            [6, 32, 1, 2]]))
add_vision('mobilenet_v3', lambda m: m.MobileNetV3(blocks_of_mobilenet(m), 64, 5))
add_vision('efficientnet', lambda m: m.EfficientNet(blocks_of_efficientnet(m), 0.2, num_classes=5,
                                                    last_channel=64))
add_vision('vgg', lambda m: torch.nn.Sequential(
    m.vgg.make_layers([8, 'M', 16, 'M', 32, 'M'], True), torch.nn.Flatten(), torch.nn.Linear(512, 5)))
add_vision('densenet', lambda m: m.DenseNet(4, (2, 2, 2, 2), 8, num_classes=5))
add_vision('squeezenet', lambda m: m.SqueezeNet('1_1', 5), 64)
add_vision('shufflenet', lambda m: m.ShuffleNetV2([1, 1, 1], [16, 32, 64, 128, 64], 5))
add_vision('regnet', lambda m: m.RegNet(m.regnet.BlockParams([1, 1], [16, 32], [8, 8], [1.0, 1.0],
                                                             [2, 2], 0.25), 5, stem_width=8))
add_vision('vision_transformer', lambda m: m.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=5))


# ---- beside PyTorch ----

class Fallbacks(logging.Handler):
    """The operators that kiln.torch says PyTorch computes, and the batches of each graph."""

    def __init__(self):
        super().__init__()
        self.refused, self.batches = {}, []

    def emit(self, record):
        if record.levelno >= logging.WARNING:
            self.refused[record.getMessage()] = None
        else:
            self.batches.append(record.args[-1])


def counting(backend, graphs):
    def compile_(gm, inputs, **options):
        graphs.append(gm)
        return backend(gm, inputs, **options)
    return compile_


def distance(got, expected):
    """The largest difference of tensors, relative to the largest element."""
    worst = 0.0
    for a, b in zip(got, expected):
        scale = b.abs().max().clamp(min=1e-6)
        worst = max(worst, float(((a - b).abs().max() / scale).nan_to_num(nan=float('inf'))))
    return worst


def inferred(call, inputs):
    torch.manual_seed(1)
    with torch.no_grad():
        result = call(**inputs)
    return [t.float() for t in torch.utils._pytree.tree_leaves(dict(result))
            if isinstance(t, torch.Tensor)]


def trained(network, call, inputs, steps):
    """The losses of steps of training, as tensors."""
    torch.manual_seed(1)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = call(**inputs)['loss']
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def nudged(network):
    """A copy whose weights are 1e-7 away, as if rounded otherwise."""
    other = copy.deepcopy(network)
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1 + 1e-7 * torch.sign(torch.randn(weight.shape)))
    return other


def graphs_by_pytorch(network, inputs):
    """How many graphs PyTorch makes of a model with a backend that computes nothing itself."""
    torch._dynamo.reset()
    graphs = []
    torch.compile(network, backend=counting(torch._dynamo.lookup_backend('eager'), graphs))(**inputs)
    return len(graphs)


def compare(name, steps, bound):
    """What became of a model: distances, graphs, batches, and what PyTorch computed."""
    torch.manual_seed(0)
    network, inputs = MODELS[name]()
    other, third, fresh = (copy.deepcopy(network).train() for _ in range(3))
    alone = graphs_by_pytorch(third.eval(), inputs)
    torch._dynamo.reset()
    kiln.torch._told.clear()
    heard, graphs = Fallbacks(), []
    log = logging.getLogger('kiln.torch')
    log.addHandler(heard)
    log.setLevel(logging.INFO)
    try:
        call = torch.compile(other, backend=counting(kiln.torch.backend, graphs))
        network.eval(), other.eval()
        forward = distance(inferred(call, inputs), inferred(network, inputs))
        made = len(graphs)
        network.train(), other.train()
        got, expected = (trained(n, c, inputs, steps) for n, c in ((other, call), (network, network)))
    finally:
        log.removeHandler(heard)
    losses, of_rounding = distance([torch.stack(got)], [torch.stack(expected)]), 0.0
    if losses > bound:  # otherwise rounding is of no interest
        others = [nudged(fresh) for _ in range(3)]
        of_rounding = max(distance([torch.stack(trained(n, n, inputs, steps))], [torch.stack(expected)])
                          for n in others)
    return {'forward': forward, 'losses': losses, 'of_rounding': of_rounding, 'first': float(expected[0]),
            'last': float(expected[-1]), 'graphs': made, 'alone': alone, 'batches': heard.batches,
            'helped': list(heard.refused)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('names', nargs='*', metavar='NAME')
    parser.add_argument('--steps', type=int, default=20)
    parser.add_argument('--bound', type=float, default=1e-3)
    options = parser.parse_args()
    warnings.simplefilter('ignore')
    logging.getLogger('kiln.torch').propagate = False
    ends = collections.Counter()
    for name in options.names or MODELS:
        start = time.time()
        try:
            found = compare(name, options.steps, options.bound)
        except Exception as error:
            ends['failed'] += 1
            print(f'failed: {name}: {" ".join(str(error).split())[:400]}', flush=True)
            continue
        right = found['forward'] <= options.bound and found['graphs'] <= found['alone'] and \
            found['losses'] <= max(options.bound, 2 * found['of_rounding'])
        rounded = f" ({found['of_rounding']:.0e} with weights 1e-7 away)" if found['of_rounding'] else ''
        ends['right' if right else 'wrong'] += 1
        print(f"{'right' if right else 'WRONG'}: {name}: inference {found['forward']:.0e}, losses "
              f"{found['losses']:.0e}{rounded} ({found['first']:.3f} to {found['last']:.3f}), "
              f"{found['graphs']} graphs ({found['alone']} by PyTorch), batches "
              f"{' '.join(map(str, found['batches']))}, {time.time() - start:.0f} s",
              *found['helped'], sep='\n    ', flush=True)
    print('models:', dict(ends))
    return min(1, ends['wrong'] + ends['failed'])


if __name__ == '__main__':
    sys.exit(main())
