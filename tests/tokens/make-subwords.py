# SPDX-License-Identifier: Apache-2.0
"""Makes small tokenizers and known.def beside it, which are checked in: the tokens that PyPI's `tokenizers` 0.23 makes
of odd texts. python3 make-subwords.py FILE..., trained on these, with packages as check_subwords.py wants them."""
import json
import pathlib
import sys
import tempfile

import check_subwords as kinds
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors

HERE = pathlib.Path(__file__).parent
TEXTS = ["", " ", "   \t", "the sun is out", " The  sun's out", "THE SUN'S, they'll we'RE I've", "12345 3.14",
         "Où est le café? cafe\u0301", "Привет, мир", "日本語の文章", "a<mask>b", "a  <mask>  b", "<s>x</s> <unk>",
         "\u2581the \u2581\u2581sun", "\uff34\uff28\uff25 \uff11\uff12 \ufb01", "a\r\nb\rc", "a\u00a0b\u3000c\u2028d",
         "👩\u200d👩\u200d👧 🇩🇪", "x\u200by\u00adz\ufeff", "नमस्ते दुनिया", "for (int i = 0;  i < n;  i++)    {", "    ",
         "e\u0301\u0302 A\u0301", "suns sun sunsun", "the", "\x01\x7f"]
RULES = [("\r\n", " "), ("\r", " "), ("\t", " "), ("\u00a0", " "), ("\u3000", " "), ("\u2028", " "), ("\ufb01", "fi"),
         ("e\u0301", "\u00e9"), ("A\u0301", "\u00c1"), ("\u200b", ""), ("\x01", "")] + \
        [(chr(0xff21 + i), chr(0x41 + i)) for i in range(26)]


def small_charsmap(folder):
    path = pathlib.Path(folder) / "rules.tsv"
    path.write_text("".join(" ".join(f"{ord(c):X}" for c in key) + "\t" + " ".join(f"{ord(c):X}" for c in to) + "\n"
                            for key, to in RULES))
    return {"normalization_rule_tsv": str(path)}


def made(lines, folder):
    cut = pre_tokenizers
    bytes_ = kinds.bytes_of(lines, cut.ByteLevel(add_prefix_space=True), normalizers.NFC(), 330)
    bytes_.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    bytes_.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    bytes_.add_tokens([AddedToken("suns", single_word=True, normalized=False), AddedToken("  ", normalized=True)])
    yield "bytes", bytes_
    wide = kinds.bytes_of(lines, kinds.cut_by(r"\p{N}{1,3}"), None, 330, ignore_merges=True)
    wide.post_processor = processors.Sequence([
        processors.ByteLevel(), processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])])
    yield "wide", wide
    yield "characters", kinds.characters_of(lines, 420)
    proto = kinds.train_unigram(lines, 150, byte_fallback=False, **small_charsmap(folder))
    bge = kinds.unigram(proto, cut.Metaspace())
    bge.normalizer = normalizers.Sequence([bge.normalizer, normalizers.Replace(kinds.Regex(" {2,}"), " ")])
    yield "unigram", bge
    proto = kinds.train_unigram(lines, 420, byte_fallback=True, **small_charsmap(folder))
    yield "fallback", kinds.unigram(proto, cut.Sequence([cut.WhitespaceSplit(), cut.Metaspace()]), [
        normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()], True)


def quoted(text):
    return '"' + "".join(f"\\{byte:03o}" if byte < 32 or byte > 126 or chr(byte) in '"\\?' else chr(byte)
                         for byte in text.encode()) + '"'


def main(*files):
    lines = "\n".join(pathlib.Path(file).read_text() for file in files).split("\n")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, tokenizer in made(lines, folder):
            (HERE / f"{name}.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False,
                                                          separators=(",", ":")) + "\n")
            for text in TEXTS:
                ids = " ".join(map(str, tokenizer.encode(text).ids))
                rows.append(f"KNOWN({name}, {quoted(text)}, {len(text.encode())}, \"{ids}\")\n")
    (HERE / "known.def").write_text("/* SPDX-License-Identifier: Apache-2.0 */\n/* From make-subwords.py: file, text, "
                                    "its bytes, its tokens. */\n/* clang-format off */\n" + "".join(rows))


main(*sys.argv[1:])
