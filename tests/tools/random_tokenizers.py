#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random tokenizers, compared with the Python library `tokenizers`.

usage: tests/tools/random_tokenizers.py --echelon build/release/echelon [--count N] [--texts N] [--seed S]

Each tokenizer is a random choice of parts with random options, its vocabulary random too, so that parts meet that no public
model puts together. Texts are random strings. Compared: ids with and without special tokens, ids with what the post-processor
adds, decoded text. Exit code 1 if anything differs.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    from tokenizers import Tokenizer
except ImportError:
    print("skipped: the Python package tokenizers is not here (scripts/venv installs it)")
    sys.exit(77)

PATTERNS = [
    r"\s+", r"\w+|[^\w\s]+", r"\p{L}+|\p{N}", r" ?[^\s\p{L}\p{N}]+|\p{L}+", r"(?i:'s|'t|'re)|[a-c]+", r"[^\r\n\p{L}\p{N}]?+\p{L}+",
    r"\p{N}{1,3}", r"[a-z&&[^aeiou]]+", r"[^(\s|.,!?)]+", r"(?=[A-Z])", r"\s+(?!\S)|\s+", r"\b", r"x*", r"(?<=a)b", r"[\p{Lu}\p{M}]+\p{Ll}*",
    r"\d", r"[[:punct:]]", r"[^\S\n]+", r"\h+", r"(a|b)+?c", r"\p{P}\p{S}*", r"$", r"^", r"\n", r".", r"(?m:.)\w", r"[\x{e0}-\x{ff}\u4e00-\u9fff]+",
    r"\p{Han}+|\p{Hiragana}", r"a{,2}", r"(?:ab){2}", r"[^\p{L}]", r"\P{L}+", r"[\W_]+", r"a++|b*+c", r"\p{^N}", r"[\cj\c@\c_]", r"\cI|\c?",
]
WORDS = ("the The cat sat hello Hello HELLO world it's don't we'LL na\u00efve caf\u00e9 cafe\u0301 \u00dcber stra\u00dfe \u0130stanbul \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 "
         "\u4e2d\u6587 \u65e5\u672c\u8a9e \u3042\u3044 \ud55c\uad6d 123 4567 3.14 \u00bd \u0661\u0662 a aa aaa ab abc b c \ufb01 \u2460 \u212b \uff21 \u0345\u0301 \u0915\u094d\u0937 "
         "\U0001F60A \U0001F469\u200d\U0001F467 \u2581 <unk> <s> </s> <mark> word [CLS] ##a </w> <0x41> . , ! ? - _ ' \" ( ) < > | ` ^ ~ $ + = \u2014 \u3002 \u00bf").split(" ")
SPACES = [" ", " ", " ", "", "  ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u200b", "\x00", "\u0085", "   ", "\x1f", "\ufeff"]


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def flag(self):
        return self.r.random() < 0.5

    def char(self):
        r = self.r
        top = r.choice((0x80, 0x250, 0x3100, 0x20000, 0x110000))
        while True:
            c = r.randrange(top)
            if not 0xD800 <= c < 0xE000:
                return chr(c)

    def text(self):
        r = self.r
        out = []
        for _ in range(r.randint(0, 14)):
            out.append(r.choice(WORDS) if r.random() < 0.85 else self.char())
            out.append(r.choice(SPACES))
        return "".join(out)

    def pattern(self):
        if self.flag():
            return {"String": self.r.choice((" ", "a", "\u2581", "the", "--", ".", "\n"))}
        return {"Regex": self.r.choice(PATTERNS)}

    def sequence(self, key, make, top):
        n = self.r.randint(0, top)
        if n == 0:
            return None
        return make() if n == 1 else {"type": "Sequence", key: [make() for _ in range(n)]}

    def normalizer(self):
        r = self.r
        k = r.choice(("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Replace", "Prepend", "Nmt", "BertNormalizer"))
        o = {"type": k}
        if k == "Strip":
            o.update(strip_left=self.flag(), strip_right=self.flag())
        elif k == "Replace":
            o.update(pattern=self.pattern(), content=r.choice(("", "_", "\u2581", "xy")))
        elif k == "Prepend":
            o.update(prepend=r.choice(("\u2581", "a", " ")))
        elif k == "BertNormalizer":
            o.update(clean_text=self.flag(), handle_chinese_chars=self.flag(), strip_accents=r.choice((None, True, False)), lowercase=self.flag())
        return o

    def behavior(self):
        return self.r.choice(("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"))

    def pre_tokenizer(self):
        r = self.r
        k = r.choice(("Split", "Split", "Split", "ByteLevel", "Digits", "Metaspace", "Punctuation", "Whitespace", "WhitespaceSplit",
                      "BertPreTokenizer", "CharDelimiterSplit"))
        o = {"type": k}
        if k == "Split":
            o.update(pattern=self.pattern(), behavior=self.behavior(), invert=self.flag())
        elif k == "ByteLevel":
            o.update(add_prefix_space=self.flag(), trim_offsets=True, use_regex=self.flag())
        elif k == "Digits":
            o.update(individual_digits=self.flag())
        elif k == "Metaspace":
            o.update(replacement=r.choice(("\u2581", "_")), prepend_scheme=r.choice(("always", "never", "first")), split=self.flag())
        elif k == "Punctuation":
            o.update(behavior=self.behavior())
        elif k == "CharDelimiterSplit":
            o.update(delimiter=r.choice((" ", "a", "-")))
        return o

    def decoder(self):
        r = self.r
        k = r.choice(("ByteLevel", "ByteFallback", "Fuse", "Replace", "Strip", "Metaspace", "WordPiece", "BPEDecoder", "CTC"))
        o = {"type": k}
        if k == "Replace":
            o.update(pattern={"String": r.choice(("\u2581", "a", " "))}, content=r.choice((" ", "", "x")))
        elif k == "Strip":
            o.update(content=r.choice((" ", "a")), start=r.randint(0, 2), stop=r.randint(0, 1))
        elif k == "Metaspace":
            o.update(replacement="\u2581", prepend_scheme=r.choice(("always", "never", "first")), split=True)
        elif k == "WordPiece":
            o.update(prefix="##", cleanup=self.flag())
        elif k == "BPEDecoder":
            o.update(suffix="</w>")
        elif k == "CTC":
            o.update(pad_token="a", word_delimiter_token="_", cleanup=self.flag())
        return o

    def vocabulary(self, chars):
        """Characters, most of those that occur, and what merges make of them."""
        r = self.r
        vocab = {}
        for t in ["<unk>", "<s>", "</s>"] + [c for c in chars if r.random() < 0.9]:
            vocab.setdefault(t, len(vocab))
        if self.flag():
            for b in range(256):
                if r.random() < 0.98:
                    vocab.setdefault(f"<0x{b:02X}>", len(vocab))
        return vocab

    def bpe(self, chars):
        r = self.r
        prefix, suffix = r.choice((None, None, None, "##", "")), r.choice((None, None, None, "</w>", ""))
        vocab = self.vocabulary(chars)
        base = [t for t in vocab if len(t) == 1]
        if prefix:
            for c in base:
                vocab.setdefault(prefix + c, len(vocab))
        if suffix:
            for c in base:
                vocab.setdefault(c + suffix, len(vocab))
                if prefix:
                    vocab.setdefault(prefix + c + suffix, len(vocab))
        pool, merges = list(vocab)[3:], []
        for _ in range(r.randint(0, 400)):
            a, b = r.choice(pool), r.choice(pool)
            if prefix and not b.startswith(prefix) or suffix and a.endswith(suffix):
                continue
            new = a + (b[len(prefix):] if prefix else b)
            if len(new) > 12:
                continue
            if new not in vocab:
                vocab[new] = len(vocab)
                pool.append(new)
            merges.append([a, b])
        r.shuffle(merges)
        return {"type": "BPE", "vocab": vocab, "merges": merges, "unk_token": r.choice((None, "<unk>")), "fuse_unk": self.flag(),
                "byte_fallback": self.flag(), "ignore_merges": self.flag(), "continuing_subword_prefix": prefix, "end_of_word_suffix": suffix}

    def unigram(self, chars):
        r = self.r
        texts = list(self.vocabulary(chars))
        for _ in range(r.randint(0, 300)):
            texts.append("".join(r.choice(texts[3:]) for _ in range(r.randint(2, 3)))[:8])
        return {"type": "Unigram", "unk_id": 0, "byte_fallback": self.flag(),
                "vocab": [[t, round(-r.random() * 10, 3)] for t in dict.fromkeys(texts)]}

    def wordpiece(self, chars):
        r = self.r
        vocab = self.vocabulary(chars)
        for c in list(vocab)[3:]:
            if r.random() < 0.9:
                vocab.setdefault("##" + c, len(vocab))
        for w in WORDS:
            if r.random() < 0.3:
                vocab.setdefault(w, len(vocab))
                vocab.setdefault("##" + w[1:], len(vocab))
        return {"type": "WordPiece", "vocab": vocab, "unk_token": "<unk>", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": r.choice((3, 10, 100))}

    def wordlevel(self, chars):
        vocab = self.vocabulary(chars)
        for w in WORDS:
            vocab.setdefault(w, len(vocab))
        return {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}

    def added(self):
        r = self.r
        out = []
        for content in r.sample(["<s>", "</s>", "<mark>", "word", "\u00dcber", "the", " x", "HELLO", "a b", "\u4e2d", "[CLS]", "ab", "abc", "\n"],
                                r.randint(0, 7)):
            out.append({"id": 0, "content": content, "single_word": r.random() < 0.3, "lstrip": r.random() < 0.3, "rstrip": r.random() < 0.3,
                        "normalized": self.flag(), "special": self.flag()})
        return out

    def post(self, model):
        r = self.r
        k = r.choice((None, "TemplateProcessing", "BertProcessing", "RobertaProcessing", "ByteLevel"))
        if k is None:
            return None
        if k == "TemplateProcessing":
            s, a = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
            return {"type": k, "single": r.choice(([s, a], [a, s], [s, a, s], [a])), "pair": [a, {"Sequence": {"id": "B", "type_id": 1}}],
                    "special_tokens": {"<s>": {"id": "<s>", "ids": [1, 2] if self.flag() else [1], "tokens": ["<s>", "</s>"]}}}
        if k == "ByteLevel":
            return {"type": k, "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
        o = {"type": k, "sep": ["</s>", 2], "cls": ["<s>", 1]}
        if k == "RobertaProcessing":
            o.update(trim_offsets=True, add_prefix_space=True)
        return o

    def tokenizer(self):
        r = self.r
        chars = sorted({c for w in WORDS for c in w} | {" ", "\u2581", "_", "\u0120", "\u010a", "\u00c3", "\u00a9", "x", "y"})
        r.shuffle(chars)
        model = r.choice((self.bpe, self.bpe, self.unigram, self.wordpiece, self.wordlevel))(chars)
        return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": self.added(),
                "normalizer": self.sequence("normalizers", self.normalizer, 3),
                "pre_tokenizer": self.sequence("pretokenizers", self.pre_tokenizer, 3), "post_processor": self.post(model),
                "decoder": self.sequence("decoders", self.decoder, 3), "model": model}


def ask(program, folder, flags, values):
    data = "".join(json.dumps(v) + "\n" for v in values)
    p = subprocess.run([program, "tokenize", "--model-dir", folder, *flags], input=data, capture_output=True, text=True, check=False)
    if p.returncode:
        return p.stderr
    return [json.loads(line) for line in p.stdout.split("\n") if line]


def quietly(fn):
    """The library's panics become None."""
    try:
        return fn()
    except BaseException as e:  # pylint: disable=broad-except
        if isinstance(e, KeyboardInterrupt):
            raise
        return None


def try_one(args, number, folder):
    maker = Maker(f"{args.seed}.{number}")
    spec = maker.tokenizer()
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(spec, f)
    tok = quietly(lambda: Tokenizer.from_str(json.dumps(spec)))
    if tok is None:
        return "refused by the reference", []
    normal = [tok.normalizer.normalize_str(t["content"]) if tok.normalizer and t["normalized"] else t["content"]
              for t in spec["added_tokens"]]
    if "" in normal or len(set(normal)) < len(normal):
        return "ambiguous: two added tokens look the same, or like nothing, once normalised", []
    if '"first"' in json.dumps(spec["pre_tokenizer"]) and (
            spec["pre_tokenizer"]["type"] == "Sequence" or '"Prepend"' in json.dumps(spec["normalizer"])):
        return "left out: several pieces that stand at the source's start", []
    texts = [maker.text() for _ in range(args.texts)]
    want = [quietly(lambda t=t: tok.encode(t, add_special_tokens=False).ids) for t in texts]
    around = [quietly(lambda t=t: tok.encode(t).ids) for t in texts]
    tok.encode_special_tokens = True
    plain = [quietly(lambda t=t: tok.encode(t, add_special_tokens=False).ids) for t in texts]
    keep = [i for i in range(len(texts)) if want[i] is not None and plain[i] is not None and around[i] is not None]
    texts = [texts[i] for i in keep]
    n = max(tok.get_vocab().values()) + 1
    lists = [want[i] for i in keep] + [[maker.r.randrange(n) for _ in range(maker.r.randint(1, 8))] for _ in range(10)]
    decoded = [quietly(lambda x=x: tok.decode(x, skip_special_tokens=False)) for x in lists]
    lists = [x for x, d in zip(lists, decoded) if d is not None]
    decoded = [d for d in decoded if d is not None]
    bad = []
    for name, flags, values, expected, key in (
            ("special", ["--jsonl", "--special"], texts, [want[i] for i in keep], "ids"),
            ("around", ["--jsonl", "--special", "--add-special"], texts, [around[i] for i in keep], "ids"),
            ("plain", ["--jsonl"], texts, [plain[i] for i in keep], "ids"),
            ("decode", ["--decode"], lists, decoded, "text")):
        if not values:
            continue
        got = ask(args.echelon, folder, flags, values)
        if isinstance(got, str):
            return f"refused: {got.strip()[:150]}", []
        bad += [(name, v, e, g[key]) for v, e, g in zip(values, expected, got) if g[key] != e]
    return "compared", bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--echelon", required=True)
    p.add_argument("--count", type=int, default=100)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--texts", type=int, default=40)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", type=int, default=8)
    args = p.parse_args()
    print(f"seed={args.seed}")
    outcomes, n_bad = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.first, args.first + args.count):
            outcome, bad = try_one(args, number, folder)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            n_bad += bool(bad)
            if bad and n_bad <= args.show:
                spec = json.load(open(os.path.join(folder, "tokenizer.json"), encoding="utf-8"))
                model = {k: v for k, v in spec["model"].items() if k not in ("vocab", "merges")}
                print(f"--- tokenizer {number}: {len(bad)} differences")
                for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens"):
                    print(f"    {key}: {json.dumps(spec[key])[:700]}")
                print(f"    model: {model}")
                for name, value, want, got in bad[:2]:
                    print(f"  {name} {json.dumps(value)[:300]}\n     want {json.dumps(want)[:200]}\n     got  {json.dumps(got)[:200]}")
    for outcome, n in sorted(outcomes.items(), key=lambda x: -x[1]):
        print(f"{n:6} {outcome}")
    print(f"{n_bad} tokenizers differ")
    sys.exit(1 if n_bad else 0)


main()
