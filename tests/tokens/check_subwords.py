# SPDX-License-Identifier: Apache-2.0
"""Tokens of `kiln embed` beside those of PyPI's `tokenizers`: check_subwords.py PROGRAM FOLDER TEXT...

Tokenizers of all kinds that kiln reads are trained on the files TEXT and lines of many scripts, and kept in FOLDER.
Unigram models are trained by `sentencepiece`, whose normalizer is that of XLM-R. PROGRAM prints the tokens of lines,
tests/tokens/print_tokens. Prints how many lines differ, and fails where one does.
"""
import io
import pathlib
import random
import subprocess
import sys
import unicodedata

import sentencepiece
import sentencepiece.sentencepiece_model_pb2 as model_proto
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

RANGES = """20-7e a0-ff 100-17f 180-24f 250-2af 300-36f 370-3ff 400-4ff 530-58f 590-5ff 600-6ff 700-74f 780-7bf
900-97f 980-9ff a00-a7f a80-aff b00-b7f b80-bff c00-c7f c80-cff d00-d7f d80-dff e00-e7f e80-eff f00-fff 1000-109f
10a0-10ff 1100-11ff 1200-137f 13a0-13ff 1400-167f 1680-169f 1780-17ff 1800-18af 1e00-1eff 1f00-1fff 2000-206f
2070-20cf 20d0-20ff 2100-214f 2150-218f 2190-21ff 2200-22ff 2300-23ff 2460-24ff 2500-25ff 2600-26ff 2700-27bf
2c60-2c7f 2d30-2d7f 2e80-2eff 3000-303f 3040-309f 30a0-30ff 3100-312f 3130-318f 3200-32ff 3300-33ff 3400-34ff
4e00-9fff a000-a0ff a720-a7ff a840-a87f ac00-d7a3 d7b0-d7ff e000-e0ff f900-faff fb00-fb4f fb50-fdff fe00-fe0f
fe20-fe6f fe70-feff ff00-ffef fff0-fffd 10000-1007f 10300-1034f 10400-1044f 10a00-10a5f 11000-1107f 12000-123ff
13000-1342f 1b000-1b0ff 1d100-1d1ff 1d400-1d7ff 1e900-1e95f 1f100-1f1ff 1f200-1f2ff 1f300-1f5ff 1f600-1f64f
1f680-1f6ff 1f900-1f9ff 20000-200ff 2f800-2fa1f e0100-e01ef""".split()
SPECIAL = ["<s>", "</s>", "<unk>", "<pad>", "<mask>", "<|im_start|>", "    ", "\u2581", "\u2581\u2581"]
BETWEEN = [" ", " ", " ", " ", "  ", "   ", "\t", "\u00a0", "\u3000", "\u2028", "\r", "\r\r", ", ", ". ", "-", "'s ",
           "'LL ", "\u200b", "\u200d", "\ufe0f", "\u0301", "\u00ad", "\ufeff", "\x01", "\x7f", "\x85", "12", "2024", ""]


def is_known(character):
    """Not younger than the tables of tokenizers' normalizers."""
    if unicodedata.category(character) in ("Cn", "Cs"):
        return False
    texts = ["a" + character + mark for mark in "\u0334\u0316\u0301\u0f71\u094d"]
    bare = "" if unicodedata.category(character)[0] == "M" else character
    return normalizers.StripAccents().normalize_str(character) == bare and all(
        normalizer.normalize_str(text) == unicodedata.normalize(form, text) for text in texts
        for form, normalizer in (("NFC", normalizers.NFC()), ("NFKD", normalizers.NFKD())))


def scripts():
    for ends in RANGES:
        first, last = (int(end, 16) for end in ends.split("-"))
        kept = [chr(point) for point in range(first, last + 1) if is_known(chr(point))]
        if kept:
            yield kept


def make_lines(texts, count):
    draw = random.Random(4)
    all_scripts = list(scripts())
    lines = ["", " ", "  ", "\t", "a", " a", "a ", "<mask>", " <mask> ", "a<mask>b", "<s></s>"]
    for text in texts:
        lines += pathlib.Path(text).read_text(errors="replace").split("\n")[:600]
    while len(lines) < count:
        mixed = draw.random() < 0.3
        script, line = draw.choice(all_scripts), ""
        for _ in range(draw.randrange(1, 14)):
            if mixed:
                script = draw.choice(all_scripts)
            if draw.random() < 0.06:
                line += draw.choice(SPECIAL)
            line += "".join(draw.choice(script) for _ in range(draw.randrange(1, 8)))
            line += draw.choice(BETWEEN)
        lines.append(line)
    return [line.replace("\n", " ") for line in lines]


# ---- byte-level BPE ----

def bytes_of(lines, cuts, normalizer=None, size=4000, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = cuts
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"]))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def cut_by(digits):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits +
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level(lines):
    roberta = bytes_of(lines, pre_tokenizers.ByteLevel(add_prefix_space=False))
    roberta.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    roberta.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    yield "roberta", roberta
    led = bytes_of(lines, pre_tokenizers.ByteLevel(add_prefix_space=True))
    led.add_special_tokens([AddedToken("<mask>", rstrip=True, special=True)])
    led.add_tokens([AddedToken("sun", single_word=True, normalized=False), AddedToken("the", normalized=True)])
    yield "gpt2-led", led
    modern = bytes_of(lines, pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC())
    modern.add_tokens([AddedToken(" " * count, normalized=True) for count in range(2, 8)])
    modern.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    yield "modernbert", modern
    llama = bytes_of(lines, cut_by(r"\p{N}{1,3}"), ignore_merges=True)
    llama.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])])
    yield "llama3", llama
    qwen = bytes_of(lines, cut_by(r"\p{N}"), normalizers.NFC())
    qwen.add_special_tokens(["<|im_start|>"])
    yield "qwen2", qwen
    yield "smollm", bytes_of(lines, pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]))


# ---- BPE of characters ----

def characters_of(lines, size=6000):
    """As Gemma has it: bytes in the place of characters that are no tokens."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    words = [word for line in lines for word in line.replace(" ", " \u2581").split(" ") if word]
    tokenizer.train_from_iterator(words, trainers.BpeTrainer(
        vocab_size=size, limit_alphabet=size // 3, show_progress=False,
        special_tokens=["<pad>", "<s>", "</s>", "<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)]))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def characters(lines):
    gemma = characters_of(lines)
    yield "gemma", gemma
    first = Tokenizer.from_str(gemma.to_str())
    first.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    first.pre_tokenizer = None
    yield "llama", first
    llama = Tokenizer.from_str(gemma.to_str())
    llama.normalizer = normalizers.NFC()
    llama.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    yield "llama-first", llama


# ---- unigram ----

def train_unigram(lines, size=16000, **options):
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for line in lines if line.strip() and "\0" not in line]), model_writer=made,
        model_type="unigram", vocab_size=size, character_coverage=0.98, hard_vocab_limit=False,
        minloglevel=2, num_threads=2, **options)
    proto = model_proto.ModelProto()
    proto.ParseFromString(made.getvalue())
    return proto


def unigram(proto, cuts, before=None, byte_fallback=False):
    """As XLM-R's converter has it: four tokens in front, <mask> behind."""
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    vocabulary = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)] + pieces[3:] + [("<mask>", 0.0)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, 3, byte_fallback))
    steps = (before or []) + [normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)]
    tokenizer.normalizer = steps[0] if len(steps) == 1 else normalizers.Sequence(steps)
    tokenizer.pre_tokenizer = cuts
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>",
                                  AddedToken("<mask>", lstrip=True, normalized=False, special=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return tokenizer


def unigrams(lines):
    space = pre_tokenizers.Metaspace
    proto = train_unigram(lines)
    yield "e5", unigram(proto, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), space()]))
    bge = unigram(proto, space(prepend_scheme="always"))
    bge.normalizer = normalizers.Sequence([bge.normalizer, normalizers.Replace(Regex(" {2,}"), " ")])
    yield "bge-m3", bge
    yield "albert", unigram(proto, space(), [
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
        normalizers.StripAccents(), normalizers.Lowercase()])
    first = unigram(proto, space(prepend_scheme="first"))
    first.normalizer = normalizers.NFKC()
    yield "first", first
    yield "never", unigram(proto, space(prepend_scheme="never", split=False), [normalizers.Strip()])
    yield "nfkc", unigram(train_unigram(lines, normalization_rule_name="nfkc_cf"), space())
    yield "bytes", unigram(train_unigram(lines, byte_fallback=True), space(), byte_fallback=True)
    plain = Tokenizer(models.Unigram())
    plain.normalizer = normalizers.NFKC()
    plain.pre_tokenizer = space()
    plain.train_from_iterator(lines[::9], trainers.UnigramTrainer(
        vocab_size=16000, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False))
    yield "own", plain


# ---- beside one another ----

def compare(program, path, tokenizer, lines):
    printed = subprocess.run([program, path], input="\n".join(lines).encode(), stdout=subprocess.PIPE, check=True)
    got = printed.stdout.decode().split("\n")[:-1]
    assert len(got) == len(lines), (len(got), len(lines))
    wanted = [" ".join(map(str, one.ids)) for one in tokenizer.encode_batch(lines)]
    wrong = [i for i in range(len(lines)) if got[i] != wanted[i]]
    for i in wrong[:5]:
        print(f"  {lines[i]!r}\n    {got[i]}\n    {wanted[i]}")
        print("   ", tokenizer.encode(lines[i]).tokens)
    return len(wrong)


def main(program, folder, *texts):
    folder = pathlib.Path(folder)
    folder.mkdir(exist_ok=True)
    lines = make_lines(texts, 12000)
    differ = 0
    for kind in (byte_level, characters, unigrams):
        for name, tokenizer in kind(lines):
            path = folder / f"{name}.json"
            tokenizer.save(str(path))
            wrong = compare(program, path, tokenizer, lines)
            print(f"{name}: {len(lines)} lines, {wrong} differ", flush=True)
            differ += wrong
    return differ != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
