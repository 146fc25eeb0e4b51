# SPDX-License-Identifier: Apache-2.0
"""Makes bert.gguf, nomic-bert.gguf, xlm-roberta.gguf, roberta.gguf and encoders.def beside it, which are checked
in: python3 make_encoders.py, with the packages gguf, tokenizers, torch and transformers. Weights are random, and
trainers do not answer twice alike: `make_encoders.py roberta` leaves the other models as they are. What is known of
them comes from transformers in float64, tokens from tokenizers, RoBERTa's from transformers."""
import base64
import json
import os
import sys

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as T
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (BertConfig, BertModel, NomicBertConfig, NomicBertModel, RobertaConfig, RobertaModel,
                          RobertaTokenizer, XLMRobertaConfig, XLMRobertaModel)

HERE = os.path.dirname(os.path.abspath(__file__))
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CORPUS = ["The sun is out and the rain is over: they're going to the river, aren't they? ",
          "In 1984 there were 25 sunny days, 1,234 in 10 years. ", "Où est le café? Là-bas, à côté. ",
          "Привет, как дела? ", "日本語の文章。 "]
LINES = ["", "The sun is out", "the  rain,\tis over\n", "they're going; AREN'T they?", "Où est le café côté",
         "Привет, мир!", "日本語の文章 123", "unheard-of words: qqq", "[MASK] is out", "naïve Ünder", "a\u0301b\u200dc",
         "in 1984 there were 25 sunny days in the river " * 7, "İstanbul ΣΑΣ ß", "नमस्ते दुनिया", "🙂 sun\u3000rain"]
PARTS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
SIZES = {"bert": dict(layers=2, width=32, heads=2, inner=64, context=40),
         "nomic-bert": dict(layers=2, width=64, heads=4, inner=96, context=64),
         "xlm-roberta": dict(layers=2, width=32, heads=2, inner=64, context=48),
         "roberta": dict(layers=2, width=32, heads=4, inner=96, context=44)}
MEANS = ["nomic-bert", "roberta"]  # pooling
ROBERTAS = ["xlm-roberta", "roberta"]
random = np.random.default_rng(11)


def make_tokenizer(cased):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(CORPUS * 3, trainers.WordPieceTrainer(
        vocab_size=260, special_tokens=SPECIAL, show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def make_unigram():
    """As XLM-R has it, with the table of characters of tests/tokens."""
    with open(os.path.join(HERE, "../tokens/unigram.json"), encoding="utf-8") as file:
        table = json.load(file)["normalizer"]["normalizers"][0]["precompiled_charsmap"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Precompiled(base64.b64decode(table))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    tokenizer.train_from_iterator(CORPUS * 3, trainers.UnigramTrainer(
        vocab_size=200, special_tokens=PARTS, unk_token="<unk>", show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return tokenizer, base64.b64decode(table)


def make_bytes():
    """As RoBERTa has it: numbers of PARTS at both ends."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(CORPUS * 3, trainers.BpeTrainer(
        vocab_size=380, special_tokens=PARTS[:4], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    mask = AddedToken("<mask>", lstrip=True, special=True, normalized=False)  # so has roberta-base's tokenizer.json it
    return RobertaTokenizer(vocab=model["vocab"] | {"<mask>": len(model["vocab"])}, merges=merges, mask_token=mask), merges


def add_tensor(made, name, kind, *shape):
    if len(shape) == 1:
        data = random.uniform(0.5, 1.5, shape) if name.endswith("norm.weight") else random.normal(0, 0.3, shape)
    else:
        data = random.standard_normal(shape) * (1.0 if name.startswith(("token", "position")) else 1.5 * shape[-1] ** -0.5)
    data = gguf.quantize(data.astype(np.float32), kind)
    made[name] = data, kind, torch.tensor(gguf.dequantize(data, kind).astype(np.float64))


def make_weights(name, words):
    """{name: (what the file has, type, weights)}"""
    made, size = {}, SIZES[name]
    width, inner, plain = size["width"], size["inner"], name != "nomic-bert"

    def norm(of):
        add_tensor(made, f"{of}.weight", T.F32, width)
        add_tensor(made, f"{of}.bias", T.F32, width)

    def product(of, kind, rows, columns):
        add_tensor(made, f"{of}.weight", kind, rows, columns)
        if plain:
            add_tensor(made, f"{of}.bias", T.F32, rows)

    add_tensor(made, "token_embd.weight", T.Q8_0, words, width)
    add_tensor(made, "token_types.weight", T.F32, 1 if name in ROBERTAS else 2, width)
    if plain:
        add_tensor(made, "position_embd.weight", T.F16, size["context"], width)
    norm("token_embd_norm")
    for i, kind in enumerate((T.Q8_0, T.F16)):
        for of in ("attn_q", "attn_k", "attn_v") if plain else ():
            product(f"blk.{i}.{of}", kind, width, width)
        if not plain:
            product(f"blk.{i}.attn_qkv", kind, 3 * width, width)
            product(f"blk.{i}.ffn_gate", kind, inner, width)
        product(f"blk.{i}.attn_output", kind, width, width)
        norm(f"blk.{i}.attn_output_norm")
        product(f"blk.{i}.ffn_up", T.Q4_0 if i else kind, inner, width)
        product(f"blk.{i}.ffn_down", kind, width, inner)
        norm(f"blk.{i}.layer_output_norm")
    return made


def write_words(writer, tokenizer):
    """As llama.cpp's converter has it."""
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("jina-v2-en")
    pieces = [piece for piece, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    writer.add_token_list([piece if piece in SPECIAL else piece[2:] if piece.startswith("##") else "\u2581" + piece
                           for piece in pieces])
    writer.add_token_types([3 if piece in SPECIAL else 1 for piece in pieces])
    for add, number in ((writer.add_unk_token_id, 1), (writer.add_sep_token_id, 3), (writer.add_pad_token_id, 0),
                        (writer.add_mask_token_id, 4)):
        add(number)
    writer.add_uint32("tokenizer.ggml.cls_token_id", 2)


def write_parts(writer, tokenizer, table):
    """As llama.cpp's converter has it."""
    parts = json.loads(tokenizer.to_str())["model"]["vocab"]
    writer.add_tokenizer_model("t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([part for part, _ in parts])
    writer.add_token_scores([score for _, score in parts])
    writer.add_token_types([2 if part == "<unk>" else 3 if part in PARTS else 1 for part, _ in parts])
    writer.add_add_space_prefix(True)
    writer.add_remove_extra_whitespaces(True)
    writer.add_precompiled_charsmap(table)
    for add, number in ((writer.add_bos_token_id, 0), (writer.add_eos_token_id, 2), (writer.add_unk_token_id, 3),
                        (writer.add_sep_token_id, 2), (writer.add_pad_token_id, 1), (writer.add_mask_token_id, 4)):
        add(number)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)


def write_bytes(writer, tokenizer, merges):
    """As llama.cpp's converter has it."""
    pieces = [piece for piece, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("roberta-bpe")
    writer.add_token_list(pieces)
    writer.add_token_types([3 if piece in PARTS else 1 for piece in pieces])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    for add, number in ((writer.add_bos_token_id, 0), (writer.add_eos_token_id, 2), (writer.add_unk_token_id, 3),
                        (writer.add_sep_token_id, 2), (writer.add_pad_token_id, 1),
                        (writer.add_mask_token_id, len(pieces) - 1)):
        add(number)
    writer.add_uint32("tokenizer.ggml.cls_token_id", 0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)


def epsilon(name):
    return 1e-5 if name == "roberta" else 1e-12


def write_model(name, weights, write_tokens):
    size = SIZES[name]
    writer = gguf.GGUFWriter(os.path.join(HERE, f"{name}.gguf"), "nomic-bert" if name == "nomic-bert" else "bert")
    writer.add_name(f"tiny {name}")
    writer.add_block_count(size["layers"])
    writer.add_context_length(size["context"])
    writer.add_embedding_length(size["width"])
    writer.add_feed_forward_length(size["inner"])
    writer.add_head_count(size["heads"])
    writer.add_layer_norm_eps(epsilon(name))
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN if name in MEANS else gguf.PoolingType.CLS)
    if name == "nomic-bert":
        writer.add_rope_freq_base(1000.0)
    writer.add_token_type_count(len(weights["token_types.weight"][0]))
    write_tokens(writer)
    for tensor, (data, kind, _) in weights.items():
        writer.add_tensor(tensor, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_reference(name, words, weights):
    """transformers' model with these weights, in float64."""
    size = SIZES[name]
    common = dict(vocab_size=words, hidden_size=size["width"], num_hidden_layers=size["layers"],
                  num_attention_heads=size["heads"], intermediate_size=size["inner"],
                  max_position_embeddings=size["context"], attn_implementation="eager", layer_norm_eps=epsilon(name))
    w = {key: value for key, (_, _, value) in weights.items()}
    if name == "bert":
        model = BertModel(BertConfig(**common), add_pooling_layer=False)
    elif name in ROBERTAS:  # their positions begin at 2, which files leave out
        common["max_position_embeddings"] += 2
        kind, config = ((XLMRobertaModel, XLMRobertaConfig) if name == "xlm-roberta" else (RobertaModel, RobertaConfig))
        model = kind(config(**common, type_vocab_size=1, pad_token_id=1), add_pooling_layer=False)
        places = w["position_embd.weight"]
        w["position_embd.weight"] = torch.cat([torch.zeros(2, places.shape[1], dtype=places.dtype), places])
    else:
        model = NomicBertModel(NomicBertConfig(
            **common, rope_parameters={"rope_type": "default", "rope_theta": 1000.0}), add_pooling_layer=False)
    model = model.double().eval()
    names = {"embeddings.word_embeddings.weight": "token_embd.weight",
             "embeddings.position_embeddings.weight": "position_embd.weight",
             "embeddings.token_type_embeddings.weight": "token_types.weight",
             "embeddings.LayerNorm": "token_embd_norm", "embeddings.norm": "token_embd_norm"}
    parts = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
             "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
             "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
             "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "post_attention_layernorm": "attn_output_norm",
             "mlp.up_proj": "ffn_up", "mlp.gate_proj": "ffn_gate", "mlp.down_proj": "ffn_down",
             "post_mlp_layernorm": "layer_output_norm"}
    for i in range(size["layers"]):
        if name == "nomic-bert":
            for part, rows in zip("qkv", w[f"blk.{i}.attn_qkv.weight"].chunk(3)):
                w[f"blk.{i}.attn_{part}.weight"] = rows
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            whole = names.get(key)
            if whole is None:
                stem, end = key.rsplit(".", 1)
                if stem in names:
                    whole = f"{names[stem]}.{end}"
                else:
                    before = "encoder.layer." if "encoder.layer." in stem else "layers."
                    number, part = stem.split(before)[1].split(".", 1)
                    whole = f"blk.{number}.{parts[part]}.{end}"
            assert parameter.shape == w[whole].shape, (key, whole)
            parameter.copy_(w[whole])
    return model


def vector(name, model, ids):
    most = SIZES[name]["context"]
    ids = ids if len(ids) <= most else ids[:most - 1] + ids[-1:]
    with torch.no_grad():
        hidden = model(torch.tensor([ids])).last_hidden_state[0]
    pooled = hidden.mean(0) if name in MEANS else hidden[0]
    return (pooled / pooled.norm()).tolist()


def c_text(text):
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\?' else f"\\{b:03o}"
                         for b in text.encode()) + '"'


def make(name):
    """Its tokenizer, how a file has this, what it makes of a text, and lines of its own."""
    if name == "xlm-roberta":
        tokenizer, table = make_unigram()
        return (tokenizer.get_vocab_size(), lambda writer: write_parts(writer, tokenizer, table),
                lambda line: tokenizer.encode(line).ids,
                ["<mask> is out", "\uff34he  \ufb01rst cafe\u0301 o\u200bver"])  # of the table
    if name == "roberta":
        tokenizer, merges = make_bytes()
        return (len(tokenizer), lambda writer: write_bytes(writer, tokenizer, merges),
                lambda line: tokenizer(line)["input_ids"],
                ["the \t\u3000<mask> river", "  it's THEY'LL we've  \n\n  12345<s>x</s> <mask>"])
    tokenizer = make_tokenizer(name == "nomic-bert")
    return (tokenizer.get_vocab_size(), lambda writer: write_words(writer, tokenizer),
            lambda line: tokenizer.encode(line).ids, LINES[8:10])


def write_known(name, file):
    words, write_tokens, encode, own = make(name)
    weights = make_weights(name, words)
    write_model(name, weights, write_tokens)
    model = make_reference(name, words, weights)
    for line in LINES[:8] + own + LINES[10:]:
        ids = encode(line)
        file.write(f'ENCODED("{name}.gguf", {c_text(line)}, TOKENS({", ".join(map(str, ids + [-1]))}), '
                   f'REALS({", ".join(f"{x:.7g}" for x in vector(name, model, ids))}))\n')


PATH = os.path.join(HERE, "encoders.def")
with open(PATH, encoding="ascii") as file:
    known = file.readlines()
with open(PATH, "w", encoding="ascii") as file:
    file.write("/* SPDX-License-Identifier: Apache-2.0 */\n/* Made by make_encoders.py: model, text, its tokens with "
               "those around it, its vector. */\n")
    for name in SIZES:
        if len(sys.argv) == 1 or name in sys.argv:
            write_known(name, file)
        else:
            file.writelines(line for line in known if line.startswith(f'ENCODED("{name}.gguf"'))
    file.write("#undef ENCODED\n")
