# SPDX-License-Identifier: Apache-2.0
"""check_gemma.py MODEL.gguf: kiln beside sentencepiece and numpy in float64, on gemma3-270m, with a
prompt that is longer than its window. Prints "N passed, N failed" at its end."""
import sys

import numpy as np
import sentencepiece
from gguf import GGUFReader, dequantize
from sentencepiece import sentencepiece_model_pb2

import kiln
from model_lines import LINES, end, fields, make_lines, result

ANSWER, CLOSE = 40, 1e-3
PROMPT = "".join(f"The sun rose at {i} and the rain was over by {i + 3}, so they went to the river. " for i in range(25))
reader = GGUFReader(sys.argv[1])
field = fields(reader)


# ---- tokens ----

def reference_tokenizer():
    """What users define is written out in the file, with spaces as they are."""
    model = sentencepiece_model_pb2.ModelProto()
    model.trainer_spec.model_type = model.trainer_spec.BPE
    model.trainer_spec.byte_fallback = True
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = model.normalizer_spec.remove_extra_whitespaces = False
    for i, (text, score, kind) in enumerate(zip(*(field("tokenizer.ggml." + name) for name in (
            "tokens", "scores", "token_type")), strict=True)):
        unknown = i == field("tokenizer.ggml.unknown_token_id")
        model.pieces.add(piece=text.replace(" ", "\u2581") if kind == 4 else text, score=score,
                         type=2 if unknown else kind)
    return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())


def check_tokens(model):
    reference, wrong, tokens = reference_tokenizer(), 0, 0
    for line in make_lines():
        wanted, found = reference.encode(line), model.tokenize(line, begin=False)
        tokens += len(wanted)
        if wanted != found:
            wrong += 1
            if wrong < 4:
                print("#", repr(line), wanted, found)
    result(not wrong, f"{LINES} lines of many scripts, {tokens} tokens: {wrong} lines differ from sentencepiece's")


# ---- an answer ----

def of(name):
    tensor = next(t for t in reader.tensors if t.name == name)
    return dequantize(tensor.data, tensor.tensor_type)


def normalize(x, name):
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + field("gemma3.attention.layer_norm_rms_epsilon")) * of(name)


def turn(x, base):
    half = x.shape[-1] // 2
    angle = np.arange(len(x))[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def known_logits(tokens, last):
    """Those behind the last tokens."""
    n, heads, pairs = len(tokens), field("gemma3.attention.head_count"), field("gemma3.attention.head_count_kv")
    words, window = of("token_embd.weight"), field("gemma3.attention.sliding_window")
    x = words[tokens].astype(np.float64) * words.shape[1] ** 0.5
    behind = np.arange(n)[:, None] - np.arange(n)
    for i in range(field("gemma3.block_count")):
        b, is_near = f"blk.{i}.", i % 6 < 5
        h = normalize(x, b + "attn_norm.weight")
        q, k, v = ((h @ of(f"{b}attn_{part}.weight").T).reshape(n, count, -1)
                   for part, count in (("q", heads), ("k", pairs), ("v", pairs)))
        base = 1e4 if is_near else field("gemma3.rope.freq_base")
        q, k = (turn(normalize(part, f"{b}attn_{name}_norm.weight"), base) for part, name in ((q, "q"), (k, "k")))
        scores = np.einsum("ihd,jhd->hij", q, np.repeat(k, heads // pairs, 1)) / q.shape[-1] ** 0.5
        sees = (behind >= 0) & (behind < (window if is_near else n))
        share = np.exp(np.where(sees, scores, -np.inf) - scores.max(-1, keepdims=True, where=sees, initial=-np.inf))
        share /= share.sum(-1, keepdims=True)
        seen = np.einsum("hij,jhd->ihd", share, np.repeat(v, heads // pairs, 1)).reshape(n, -1)
        x = x + normalize(seen @ of(b + "attn_output.weight").T, b + "post_attention_norm.weight")
        h = normalize(x, b + "ffn_norm.weight")
        gate = h @ of(b + "ffn_gate.weight").T
        gate = 0.5 * gate * (1 + np.tanh((2 / np.pi) ** 0.5 * (gate + 0.044715 * gate ** 3)))
        x = x + normalize(gate * (h @ of(b + "ffn_up.weight").T) @ of(b + "ffn_down.weight").T, b + "post_ffw_norm.weight")
    h = normalize(x[-last:], "output_norm.weight")
    return np.concatenate([h @ part.T for part in np.array_split(words, 32)], -1)  # 1.3 GB less


def check_answer(model):
    session, text = model.session(), model.tokenize(PROMPT)
    start = len(text)
    session.feed(text)
    for _ in range(ANSWER):
        text.append(session.next())
    known = known_logits(text, ANSWER + 1)
    behind = known[:-1].max(-1) - known[np.arange(ANSWER), text[start:]]
    result((behind < CLOSE).all(), f"{ANSWER} greedy tokens behind {start}, {b''.join(map(model.token_bytes, text[start:]))[:40]!r}, "
           f"are float64's: the furthest is {behind.max():.2g} below the largest logit")
    off = np.abs(session.logits() - known[-1]).max() / np.abs(known[-1]).max()
    result(off < 1e-4, f"logits are off by {off:.2g} of the largest")


language_model = kiln.LanguageModel(sys.argv[1])
check_tokens(language_model)
check_answer(language_model)
end()
