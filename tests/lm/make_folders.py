# SPDX-License-Identifier: Apache-2.0
"""Makes folders/ and folders.def beside it, which are checked in: python3 make_folders.py, with the packages torch,
transformers and tokenizers. Tiny models of random weights as transformers saves them, and what it
computes with them in float64."""
import json
import os
import shutil
import tempfile

import numpy as np
import tokenizers
import torch
import transformers as tf

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPT, ANSWER, LOGITS = "The sun is out, they're going to 1984", 12, 64
COMMON = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
          "num_key_value_heads": 1, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 2,
          "pad_token_id": 0}
MODELS = {  # tokenizer of tests/tokens, words, type, configuration
    "llama": ("wide", 336, torch.bfloat16, tf.LlamaConfig, {
        "rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                            "high_freq_factor": 4.0, "original_max_position_embeddings": 32}}),
    "mistral": ("bytes", 333, torch.float32, tf.MistralConfig, {"sliding_window": 5}),
    "qwen2": ("wide", 340, torch.float16, tf.Qwen2Config, {"tie_word_embeddings": True}),
    "qwen3": ("wide", 331, torch.bfloat16, tf.Qwen3Config, {"head_dim": 16}),
    "gemma3": ("characters", 424, torch.bfloat16, tf.Gemma3TextConfig, {
        "num_hidden_layers": 7, "head_dim": 16, "sliding_window": 5, "query_pre_attn_scalar": 24,
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}),
    "phi3": ("characters", 424, torch.bfloat16, tf.Phi3Config, {"sliding_window": 6, "partial_rotary_factor": 0.5}),
}
SHARDED = ("qwen3",)


def make_model(name, words, kind, config, settings):
    model = tf.AutoModelForCausalLM.from_config(config(**{**COMMON, "vocab_size": words, **settings}))
    with torch.no_grad():
        for weight, values in model.named_parameters():
            if values.ndim > 1:
                values.copy_(torch.randn_like(values) * 2.5 * values.shape[-1] ** -0.5)
            else:
                least = 0 if name == "gemma3" or "bias" in weight else 0.5
                values.copy_(torch.rand_like(values) * (0.6 if least == 0 else 1) + least)
    return model.to(kind)


def keep(name, folder):
    """The files that are checked in."""
    os.makedirs(os.path.join(HERE, "folders"), exist_ok=True)
    for file in sorted(os.listdir(folder)):
        if file.endswith((".safetensors", ".index.json")) or file == "config.json":
            shutil.copy(os.path.join(folder, file), os.path.join(HERE, "folders", f"{name}.{file}"))


def c_text(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def numbers(values):
    return ", ".join(map(str, values))


def row(name):
    tokenizer, words, kind, config, settings = MODELS[name]
    with tempfile.TemporaryDirectory() as folder:
        make_model(name, words, kind, config, settings).save_pretrained(
            folder, max_shard_size="14KB" if name in SHARDED else "1GB")
        keep(name, folder)
        model = tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    encode = tokenizers.Tokenizer.from_file(os.path.join(HERE, "../tokens", f"{tokenizer}.json")).encode
    text = encode(PROMPT).ids
    if text[-1] == COMMON["eos_token_id"]:
        text.pop()  # an answer follows
    start, margin, first = len(text), np.inf, None
    for _ in range(ANSWER):
        with torch.no_grad():
            last = model(torch.tensor([text])).logits[0, -1].numpy()
        first = last if first is None else first
        margin = min(margin, np.diff(np.sort(last)[-2:])[0])
        text.append(int(last.argmax()))
    print(name, "prompt", start, "least margin", margin)
    return (f'FOLDER({c_text(name)}, {c_text(tokenizer)}, {words}, {start}, TOKENS({numbers(text)}), '
            f'REALS({numbers(f"{x:.7g}" for x in first[:LOGITS])}))\n')


torch.manual_seed(1)
with open(os.path.join(HERE, "folders.def"), "w", encoding="ascii") as out:
    out.write("/* SPDX-License-Identifier: Apache-2.0 */\n/* From make_folders.py: folder, tokenizer, words, tokens of "
              "the prompt, the text, logits behind the prompt. */\n/* clang-format off */\n")
    out.writelines(row(model) for model in MODELS)
