# SPDX-License-Identifier: Apache-2.0
"""check_model.py MODEL.gguf: kiln beside `tokenizers` and numpy in float64, on SmolLM2. Prints
"N passed, N failed" at its end."""
import json
import os
import sys
import tempfile

import numpy as np
from gguf import GGUFReader, dequantize
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers as pre

import kiln
from model_lines import LINES, end, fields, make_lines, result

ANSWER, CLOSE = 200, 1e-3
PROMPT, GOES_ON = "The capital of France is", " Paris.\n\nThe answer is"
reader = GGUFReader(sys.argv[1])
field = fields(reader)


# ---- tokens ----

def reference_tokenizer():
    tokens, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)},
                                     merges=[tuple(m.split(" ")) for m in field("tokenizer.ggml.merges")]))
    tokenizer.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True),
                                            pre.ByteLevel(add_prefix_space=False)])
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)
                                  for token, kind in zip(tokens, kinds, strict=True) if kind == 3])
    return tokenizer


def check_tokens(model):
    reference, wrong, tokens, back = reference_tokenizer(), 0, 0, 0
    for line in make_lines():
        wanted, found = reference.encode(line).ids, model.tokenize(line, control=True)
        tokens += len(wanted)
        if wanted != found:
            wrong += 1
            if wrong < 4:
                print("#", repr(line), wanted, found)
        plain = model.tokenize(line)
        back += b"".join(map(model.token_bytes, plain)) != line.encode()
    result(not wrong, f"{LINES} lines of many scripts, {tokens} tokens: {wrong} lines differ from tokenizers'")
    result(not back, f"{back} lines differ from their tokens' bytes")


# ---- an answer ----

class Reference:
    def __init__(self):
        self.w = {t.name: dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
        self.layers, self.heads = field("llama.block_count"), field("llama.attention.head_count")
        self.pairs, self.base = field("llama.attention.head_count_kv"), field("llama.rope.freq_base")
        self.epsilon = field("llama.attention.layer_norm_rms_epsilon")

    def normalize(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * self.w[name]

    def turn(self, x):
        size = x.shape[-1]
        angle = np.arange(len(x))[:, None] * self.base ** (-np.arange(0, size, 2) / size)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
        a, b = x[..., 0::2], x[..., 1::2]
        return np.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x.shape)

    def logits(self, tokens):
        """Those behind each token."""
        w, n = self.w, len(tokens)
        x = w["token_embd.weight"][tokens]
        for i in range(self.layers):
            h = self.normalize(x, f"blk.{i}.attn_norm.weight")
            q, k, v = ((h @ w[f"blk.{i}.attn_{part}.weight"].T).reshape(n, heads, -1)
                       for part, heads in (("q", self.heads), ("k", self.pairs), ("v", self.pairs)))
            q, k, shared = self.turn(q), self.turn(k), self.heads // self.pairs
            scores = np.einsum("ihd,jhd->hij", q, np.repeat(k, shared, 1)) / q.shape[-1] ** 0.5
            share = np.exp(np.where(np.tri(n, dtype=bool), scores, -np.inf) - scores.max(-1, keepdims=True))
            share /= share.sum(-1, keepdims=True)
            seen = np.einsum("hij,jhd->ihd", share, np.repeat(v, shared, 1)).reshape(n, -1)
            x = x + seen @ w[f"blk.{i}.attn_output.weight"].T
            h = self.normalize(x, f"blk.{i}.ffn_norm.weight")
            gate = h @ w[f"blk.{i}.ffn_gate.weight"].T
            x = x + gate / (1 + np.exp(-gate)) * (h @ w[f"blk.{i}.ffn_up.weight"].T) @ w[f"blk.{i}.ffn_down.weight"].T
        return self.normalize(x, "output_norm.weight") @ w["token_embd.weight"].T


def check_answer(model):
    session = model.session()
    text = model.tokenize(PROMPT)
    start = len(text)
    session.feed(text)
    for _ in range(ANSWER):
        text.append(session.next())
    words = b"".join(map(model.token_bytes, text[start:])).decode()
    result(words.startswith(GOES_ON), f"{PROMPT!r} goes on with {words[:40]!r}")
    known = Reference().logits(text)
    steps = known[start - 1:-1]
    behind = steps.max(-1) - steps[np.arange(ANSWER), text[start:]]
    result((behind < CLOSE).all(), f"{ANSWER} greedy tokens are float64's: the furthest is {behind.max():.2g} "
           "below the largest logit")
    off = np.abs(session.logits() - known[-1]).max() / np.abs(known[-1]).max()
    result(off < 1e-4, f"logits are off by {off:.2g} of the largest")


# ---- the same model in a folder of transformers' ----

NAMES = {"token_embd": "embed_tokens", "output_norm": "norm", "attn_norm": "input_layernorm",
         "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}


def folder_weights():
    """Pairs that are turned are halves there, not neighbours."""
    for tensor in reader.tensors:
        *layer, name, end = tensor.name.split(".")
        data = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if name in ("attn_q", "attn_k"):
            heads = field("llama.attention.head_count" + ("_kv" if name == "attn_k" else ""))
            data = data.reshape(heads, -1, 2, data.shape[1]).swapaxes(1, 2).reshape(data.shape)
        yield ".".join(["model", *(["layers", layer[1]] if layer else []), NAMES[name], end]), data


def write_folder(folder):
    weights, header, at = dict(folder_weights()), {}, 0
    for name, data in weights.items():
        header[name] = {"dtype": "F32", "shape": data.shape, "data_offsets": [at, at := at + data.nbytes]}
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        text = json.dumps(header).encode()
        file.write(len(text).to_bytes(8, "little") + text)
        for data in weights.values():
            data.tofile(file)
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
        json.dump({"model_type": "llama", "tie_word_embeddings": True,
                   "vocab_size": len(field("tokenizer.ggml.tokens")), **{key: field("llama." + name) for key, name in (
                       ("num_hidden_layers", "block_count"), ("hidden_size", "embedding_length"),
                       ("intermediate_size", "feed_forward_length"), ("max_position_embeddings", "context_length"),
                       ("num_attention_heads", "attention.head_count"), ("rope_theta", "rope.freq_base"),
                       ("num_key_value_heads", "attention.head_count_kv"),
                       ("rms_norm_eps", "attention.layer_norm_rms_epsilon"))}}, file)
    reference_tokenizer().save(os.path.join(folder, "tokenizer.json"))


def check_folder():
    with tempfile.TemporaryDirectory() as folder:
        write_folder(folder)
        model, same = kiln.LanguageModel(folder), kiln.LanguageModel(sys.argv[1], weights="f32")
    reference = reference_tokenizer()
    wrong = sum(model.tokenize(line, control=True) != reference.encode(line).ids for line in make_lines())
    result(not wrong, f"a folder: {wrong} of {LINES} lines differ from tokenizers'")
    sessions, off = (model.session(), same.session()), 0
    for token in same.tokenize(PROMPT + GOES_ON):
        for session in sessions:
            session.feed([token])
        found, wanted = (session.logits() for session in sessions)
        off = max(off, np.abs(found - wanted).max() / np.abs(wanted).max())
    result(off < 1e-5, f"a folder's logits are off by {off:.2g} of the largest from the GGUF file's in f32")


def check_chat(model):
    messages = [("user", "What is the capital of France?")]
    first = "".join(model.chat(messages))
    second = "".join(model.chat(messages + [("assistant", first), ("user", "And of Italy?")]))
    result(first == "The capital of France is Paris." and second == "The capital of Italy is Rome.",
           f"a conversation: {first!r}, {second!r}")


language_model = kiln.LanguageModel(sys.argv[1])
check_tokens(language_model)
check_answer(language_model)
check_chat(language_model)
check_folder()
end()
