# SPDX-License-Identifier: Apache-2.0
"""Makes gemma3.gguf, phi3.gguf, mistral.gguf and architectures.def beside it, which are checked in:
python3 make_architectures.py, with the packages gguf, numpy and sentencepiece. Weights are random; what
is known of them comes from numpy in float64, tokens from sentencepiece."""
import io
import os

import gguf
import numpy as np
import sentencepiece
from gguf import GGMLQuantizationType as T

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = ["The sun is out and the rain is over: they're going to the river, aren't they? ",
          "In 1984 there were 25 sunny days, 1,234 in 10 years. ", "for (int i = 0; i < n; i++) x[i] += y; ",
          "Où est le café? Là-bas, à côté. ", "Привет, как дела? ", "日本語の文章。 "]
LINES = ["", "The sun", " the  sun   is out!", "they're HERE'S isn't", "12345 in 2024: 1,234.5", "a\n\n b\n\n\nc  \n",
         "  trailing   ", "Où café côté", "Привет, мир!", "日本語の文章 123", "नमस्ते", "x²³ ½", "🙂👩 ok", "a\u00a0b\u3000c",
         "a\u2581b \u2581", "<h1>the sun</h1>", "\u0001\u007f"]
PROMPT, ANSWER, EPSILON = "the sun is over", 12, 1e-6
LONG_PROMPT = " and ".join(3 * [PROMPT, "25 rainy days in the river"]) + ", aren't they? x[i] += y;"

SIZES = {  # layers, width, heads, pairs, a head's size, inner, window
    "gemma3": (6, 32, 2, 1, 16, 64, 5),
    "phi3": (2, 64, 2, 2, 32, 96, 6),
    "mistral": (3, 64, 4, 2, 16, 96, 7)}  # in GGUF files a llama with a window
CONTEXTS = {"gemma3": 40, "phi3": 40, "mistral": 160}
random = np.random.default_rng(7)


def make_tokenizer(name):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 3), model_writer=model, model_type="bpe", vocab_size=460,
        hard_vocab_limit=False, byte_fallback=True, character_coverage=0.98, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=name != "gemma3", minloglevel=2,
        user_defined_symbols=["\n", "\n\n", "<h1>", "</h1>"])
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def make_weights(name, words):
    layers, width, heads, pairs, size, inner, _ = SIZES[name]
    made = {}

    def add(tensor, *shape):
        kind = T.F32 if len(shape) == 1 else T.Q8_0
        data = random.uniform(0.5, 1.5, shape) if len(shape) == 1 else \
            random.standard_normal(shape) * 2.5 * shape[-1] ** -0.5
        data = gguf.quantize(data.astype(np.float32), kind)
        made[tensor + ".weight"] = data, kind, gguf.dequantize(data, kind).astype(np.float64)

    add("token_embd", words, width)
    add("output_norm", width)
    q, k = heads * size, pairs * size
    block = (("attn_norm", width), ("attn_q", q, width), ("attn_k", k, width), ("attn_v", k, width),
             ("attn_output", width, q), ("ffn_norm", width), ("ffn_gate", inner, width), ("ffn_up", inner, width),
             ("ffn_down", width, inner))
    for i in range(layers):
        for tensor, *shape in {
                "gemma3": (("attn_norm", width), ("attn_q", q, width), ("attn_k", k, width), ("attn_v", k, width),
                           ("attn_q_norm", size), ("attn_k_norm", size), ("attn_output", width, q),
                           ("post_attention_norm", width), ("ffn_norm", width), ("ffn_gate", inner, width),
                           ("ffn_up", inner, width), ("ffn_down", width, inner), ("post_ffw_norm", width)),
                "phi3": (("attn_norm", width), ("attn_qkv", q + 2 * k, width), ("attn_output", width, q),
                         ("ffn_norm", width), ("ffn_up", 2 * inner, width), ("ffn_down", width, inner)),
                "mistral": block}[name]:
            add(f"blk.{i}.{tensor}", *shape)
    return made


def write_model(name, tokenizer, weights):
    layers, width, heads, pairs, size, inner, window = SIZES[name]
    writer = gguf.GGUFWriter(os.path.join(HERE, f"{name}.gguf"), "llama" if name == "mistral" else name)
    writer.add_name(name)
    writer.add_block_count(layers)
    writer.add_context_length(CONTEXTS[name])
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(pairs)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(1e6 if name == "gemma3" else 1e4)
    writer.add_sliding_window(window)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    ids = range(tokenizer.vocab_size())
    writer.add_token_list([tokenizer.id_to_piece(i) for i in ids])
    writer.add_token_scores([tokenizer.get_score(i) for i in ids])
    writer.add_token_types([2 if tokenizer.is_unknown(i) else 3 if tokenizer.is_control(i) else
                            6 if tokenizer.is_byte(i) else 4 if tokenizer.id_to_piece(i) in
                            ("\n", "\n\n", "<h1>", "</h1>") else 1 for i in ids])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_space_prefix(name != "gemma3")
    for tensor, (data, kind, _) in weights.items():
        writer.add_tensor(tensor, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- float64 ----

def normalize(x, scale):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * scale


def turn(x, base, neighbours):
    half = x.shape[-1] // 2
    angle = np.arange(len(x))[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = (x[..., ::2], x[..., 1::2]) if neighbours else (x[..., :half], x[..., half:])
    pair = a * cos - b * sin, b * cos + a * sin
    return np.stack(pair, -1).reshape(x.shape) if neighbours else np.concatenate(pair, -1)


def logits(name, weights, tokens, has_window=True):
    layers, width, heads, pairs, size, inner, window = SIZES[name]
    is_gemma, n = name == "gemma3", len(tokens)
    w = {tensor: values for tensor, (_, _, values) in weights.items()}
    x = w["token_embd.weight"][tokens] * (width ** 0.5 if is_gemma else 1)
    far = np.arange(n)[:, None] - np.arange(n)
    for i in range(layers):
        def of(tensor, layer=i):
            return w[f"blk.{layer}.{tensor}.weight"]
        is_near = has_window and (not is_gemma or i % 6 < 5)
        h = normalize(x, of("attn_norm"))
        qkv = h @ (np.concatenate([of("attn_q"), of("attn_k"), of("attn_v")]) if name != "phi3" else of("attn_qkv")).T
        q, k, v = np.split(qkv.reshape(n, heads + 2 * pairs, size), [heads, heads + pairs], 1)
        if is_gemma:
            q, k = normalize(q, of("attn_q_norm")), normalize(k, of("attn_k_norm"))
        base = 1e6 if is_gemma and not is_near else 1e4
        q, k = turn(q, base, name == "mistral"), turn(k, base, name == "mistral")
        k, v = (np.repeat(part, heads // pairs, 1) for part in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / size ** 0.5
        sees = (far >= 0) & (far < window) if is_near else far >= 0
        share = np.exp(np.where(sees, scores, -np.inf) - scores.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        out = np.einsum("hij,jhd->ihd", share, v).reshape(n, -1) @ of("attn_output").T
        x = x + (normalize(out, of("post_attention_norm")) if is_gemma else out)
        h = normalize(x, of("ffn_norm"))
        gate, up = (h @ of("ffn_gate").T, h @ of("ffn_up").T) if name != "phi3" else \
            np.split(h @ of("ffn_up").T, 2, -1)
        gate = 0.5 * gate * (1 + np.tanh((2 / np.pi) ** 0.5 * (gate + 0.044715 * gate ** 3))) if is_gemma else \
            gate / (1 + np.exp(-gate))
        out = gate * up @ of("ffn_down").T
        x = x + (normalize(out, of("post_ffw_norm")) if is_gemma else out)
    return normalize(x[-1], w["output_norm.weight"]) @ w["token_embd.weight"].T


# ---- what is known ----

def c_text(text):
    """An octal escape ends after three digits, whatever follows."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}"
                         for b in text.encode()) + '"'


def numbers(values):
    return ", ".join(map(str, values))


def rows(name):
    tokenizer = make_tokenizer(name)
    weights = make_weights(name, tokenizer.vocab_size())
    write_model(name, tokenizer, weights)
    prompt = LONG_PROMPT if name == "mistral" else PROMPT
    for line in LINES if name != "mistral" else ():
        ids = tokenizer.encode(line)
        yield f'LINE("{name}.gguf", {c_text(line)}, {len(line.encode())}, {len(ids)}, TOKENS({numbers(ids + [-1])}))'
    text = [1] + tokenizer.encode(prompt)
    start, margin = len(text), np.inf
    first = logits(name, weights, text)
    for _ in range(ANSWER):
        last = logits(name, weights, text)
        second, best = np.sort(last)[-2:]
        margin = min(margin, best - second)
        text.append(int(last.argmax()))
    blind = abs(first - logits(name, weights, text[:start], False)).max()
    print(name, "prompt", start, "least margin", margin, "the window's difference", blind)
    yield (f'ANSWER("{name}.gguf", {c_text(prompt)}, {start}, TOKENS({numbers(text)}), '
           f'REALS({numbers(f"{x:.7g}" for x in first[:64])}))')


with open(os.path.join(HERE, "architectures.def"), "w", encoding="ascii") as file:
    file.write("/* SPDX-License-Identifier: Apache-2.0 */\n/* Made by make_architectures.py; who includes it defines "
               "the rows that it wants. */\n")
    wanted = ("LINE", "ANSWER")
    file.writelines(f"#ifndef {row}\n#define {row}(...)\n#endif\n" for row in wanted)
    for model in SIZES:
        file.writelines(row + "\n" for row in rows(model))
    file.writelines(f"#undef {row}\n" for row in wanted)
