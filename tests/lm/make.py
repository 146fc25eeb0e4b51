# SPDX-License-Identifier: Apache-2.0
"""Makes tiny.gguf and known.def beside it, which are checked in: python3 make.py, with the packages
gguf, numpy and tokenizers. Weights are random; what is known of them comes from numpy in float64,
tokens from tokenizers."""
import json
import os

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers as pre, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
LAYERS, WIDTH, HEADS, PAIRS, INNER, CONTEXT, WORDS = 2, 64, 4, 2, 256, 96, 400
SIZE, BASE, EPSILON = WIDTH // HEADS, 10000.0, 1e-5
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
random = np.random.default_rng(4)

# ---- a tokenizer ----

CORPUS = ["The sun is out and the rain is over: they're going to the river, aren't they? ",
          "In 1984 there were 25 sunny days, 1,234 in 10 years. ", "for (int i = 0; i < n; i++)\n\tx[i] += y;\n",
          "Où est le café? Là-bas, à côté. ", "Привет, как дела? ", "日本語の文章。 ", "नमस्ते दुनिया "]
LINES = ["", "The sun", " the  sun   is out!", "they're HERE'S isn't 'tis we'LL", "12345 in 2024: 1,234.5",
         "a\n\n b\r\n\tc  \n", "  trailing   ", "Où café côté", "Привет, мир!", "日本語の文章 123",
         "नमस्ते दुनिया", "x²³ ½ Ⅷ ٣٤", "🙂👩‍👩‍👧 ok", "a\u00a0b\u3000c\u2028d\u0085e", "'ſ 'S", "e\u0301a\u0300 zwj\u200dx",
         "<|im_start|>user<|im_end|>", "tab\tand\vfeed\f", "\r\n\r\n x\n", "____---....", "\u0000\u0001\u007f"]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = {"gpt-2": [pre.Split(Regex(GPT2), "isolated")],
            "smollm": [pre.Digits(individual_digits=True), pre.Split(Regex(GPT2), "isolated")],
            "llama-bpe": [pre.Split(Regex(LLAMA3 % 3), "isolated")],
            "qwen2": [pre.Split(Regex(LLAMA3 % 1), "isolated")]}


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True),
                                            pre.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(CORPUS * 3, trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=SPECIAL, initial_alphabet=pre.ByteLevel.alphabet(),
        show_progress=False))
    assert tokenizer.get_vocab_size() == WORDS
    return tokenizer


# ---- weights ----

def q6_k_blocks(rows, columns):
    """Random blocks of Q6_K whose scales are of a weight's size; gguf makes none."""
    blocks = random.integers(0, 256, (rows, columns // 256, 210), np.uint8)
    blocks[..., 208:210] = np.frombuffer(np.float16(0.00003).tobytes(), np.uint8)
    return blocks.reshape(rows, -1)


def make_weights():
    """{name: (what the file has, type, weights)}"""
    made = {}

    def add(name, kind, *shape):
        if kind == T.Q6_K:
            data = q6_k_blocks(*shape)
        elif len(shape) == 1:
            data = gguf.quantize(random.uniform(0.5, 1.5, shape).astype(np.float32), kind)
        else:
            data = random.standard_normal(shape, np.float32) * np.float32(2.5 * shape[-1] ** -0.5)
            data = gguf.quantize(data, kind)
        made[name] = data, kind, gguf.dequantize(data, kind).astype(np.float64)

    add("token_embd.weight", T.Q8_0, WORDS, WIDTH)
    add("output_norm.weight", T.F32, WIDTH)
    for i, (q, k, v, out, gate, up, down) in enumerate((
            (T.Q8_0, T.Q8_0, T.F16, T.Q8_0, T.Q8_0, T.Q8_0, T.Q6_K),
            (T.Q4_1, T.Q4_1, T.Q4_1, T.Q4_1, T.Q4_1, T.Q4_1, T.Q4_1))):
        for name, kind, *shape in (("attn_norm", T.F32, WIDTH), ("attn_q", q, WIDTH, WIDTH),
                                   ("attn_k", k, PAIRS * SIZE, WIDTH), ("attn_v", v, PAIRS * SIZE, WIDTH),
                                   ("attn_output", out, WIDTH, WIDTH), ("ffn_norm", T.F32, WIDTH),
                                   ("ffn_gate", gate, INNER, WIDTH), ("ffn_up", up, INNER, WIDTH),
                                   ("ffn_down", down, WIDTH, INNER)):
            add(f"blk.{i}.{name}.weight", kind, *shape)
    return made


def write_model(tokenizer, weights):
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer = gguf.GGUFWriter(os.path.join(HERE, "tiny.gguf"), "llama")
    writer.add_name("tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(PAIRS)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(BASE)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if token in SPECIAL else 1 for token, _ in vocabulary])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(
        "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
        "{{ '<|im_start|>system\nYou are tiny<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + "
        "'\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|im_start|>assistant\n' }}{% endif %}")
    for name, (data, kind, _) in weights.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- float64 ----

def normalize(x, scale):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * scale


def turn(x):
    angle = np.arange(len(x))[:, None] * BASE ** (-np.arange(0, SIZE, 2) / SIZE)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    y = np.empty_like(x)
    y[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    y[..., 1::2] = x[..., 1::2] * cos + x[..., 0::2] * sin
    return y


def logits(weights, tokens):
    w = {name: values for name, (_, _, values) in weights.items()}
    n = len(tokens)
    x = w["token_embd.weight"][tokens]
    for i in range(LAYERS):
        h = normalize(x, w[f"blk.{i}.attn_norm.weight"])
        q = turn((h @ w[f"blk.{i}.attn_q.weight"].T).reshape(n, HEADS, SIZE))
        k = turn((h @ w[f"blk.{i}.attn_k.weight"].T).reshape(n, PAIRS, SIZE))
        v = (h @ w[f"blk.{i}.attn_v.weight"].T).reshape(n, PAIRS, SIZE)
        seen = np.empty((n, HEADS, SIZE))
        for head in range(HEADS):
            pair = head * PAIRS // HEADS
            scores = np.where(np.tri(n, dtype=bool), q[:, head] @ k[:, pair].T / SIZE ** 0.5, -np.inf)
            share = np.exp(scores - scores.max(-1, keepdims=True))
            seen[:, head] = share / share.sum(-1, keepdims=True) @ v[:, pair]
        x = x + seen.reshape(n, -1) @ w[f"blk.{i}.attn_output.weight"].T
        h = normalize(x, w[f"blk.{i}.ffn_norm.weight"])
        gate = h @ w[f"blk.{i}.ffn_gate.weight"].T
        x = x + gate / (1 + np.exp(-gate)) * (h @ w[f"blk.{i}.ffn_up.weight"].T) @ w[f"blk.{i}.ffn_down.weight"].T
    return normalize(x[-1], w["output_norm.weight"]) @ w["token_embd.weight"].T


# ---- what is known ----

def c_text(text):
    """An octal escape ends after three digits, whatever follows."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}"
                         for b in text.encode()) + '"'


def numbers(values):
    return ", ".join(map(str, values))


def known_lines(tokenizer):
    for line in LINES:
        ids = tokenizer.encode(line).ids
        yield f'LINE({c_text(line)}, {len(line.encode())}, {len(ids)}, TOKENS({numbers(ids + [-1])}))'


def known_pieces():
    for name, parts in PATTERNS.items():
        cut = pre.Sequence(parts)
        for line in LINES:
            sizes = [len(piece.encode()) for piece, _ in cut.pre_tokenize_str(line)]
            yield f'PIECES("{name}", {c_text(line)}, {len(line.encode())}, TOKENS({numbers(sizes + [-1])}))'


def known_text(tokenizer, weights):
    prompt = tokenizer.encode("The sun is out, they're going to the river").ids
    text, margin = list(prompt), np.inf
    yield f'PROMPT({len(prompt)}, TOKENS({numbers(prompt + [-1])}))'
    yield f'LOGITS(REALS({numbers(f"{x:.7g}" for x in logits(weights, text))}))'
    for _ in range(40):
        last = logits(weights, text)
        first, second = np.sort(last)[:-3:-1]
        margin = min(margin, first - second)
        text.append(int(last.argmax()))
    yield f'ANSWER({len(text) - len(prompt)}, TOKENS({numbers(text[len(prompt):] + [-1])}))'
    print("least margin", margin)


tokenizer, weights = make_tokenizer(), make_weights()
write_model(tokenizer, weights)
with open(os.path.join(HERE, "known.def"), "w", encoding="ascii") as file:
    file.write("/* SPDX-License-Identifier: Apache-2.0 */\n/* Made by make.py; who includes it defines the rows "
               "that it wants. */\n")
    rows_wanted = ("LINE", "PIECES", "PROMPT", "LOGITS", "ANSWER")
    file.writelines(f"#ifndef {row}\n#define {row}(...)\n#endif\n" for row in rows_wanted)
    for rows in (known_lines(tokenizer), known_pieces(), known_text(tokenizer, weights)):
        file.writelines(row + "\n" for row in rows)
    file.writelines(f"#undef {row}\n" for row in rows_wanted)
