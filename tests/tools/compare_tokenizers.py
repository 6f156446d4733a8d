#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `echelon tokenize` with the Python library `tokenizers`, text by text.

usage: tests/tools/compare_tokenizers.py --echelon build/release/echelon --tokenizer DIR [--tokenizer DIR …]
           [--texts PATH …] [--skip N] [--megabytes N] [--random N] [--seed S]

Texts are the files under each PATH (a file or a folder, "packages" for the installed Python packages; what isn't UTF-8 is left out), cut into pieces
of random length, up to N megabytes for each tokenizer (--skip leaves out as many before, so that a long comparison can be done
in parts), and N random strings from a seeded generator. Each text is encoded with and without special tokens, its ids are
decoded, and so are random ids. Prints one line per tokenizer and the first differences; exit code 1 if there is any.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import sysconfig
import threading

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
try:
    from tokenizers import Tokenizer  # noqa: E402
except ImportError:
    print("skipped: the Python package tokenizers is not here (scripts/venv installs it)")
    sys.exit(77)

BATCH = 2000
CONTRACTIONS = ["'s", "'S", "'t", "'re", "'VE", "'m", "'ll", "'LL", "'d", "\u2019s", "n't", "'\u017f", "'"]
EMOJI = ["\U0001F60A", "\U0001F469\u200D\U0001F469\u200D\U0001F467", "\U0001F44D\U0001F3FD", "\u2764\ufe0f",
         "\U0001F1E9\U0001F1EA", "\U0001F9D1\u200D\U0001F680"]
MARKS = [chr(c) for c in (0x300, 0x301, 0x302, 0x303, 0x308, 0x30A, 0x327, 0x323, 0x331, 0x338, 0x345, 0x5B0,
                          0x64B, 0x93C, 0x94D, 0xE38, 0x1161, 0x11A8, 0x3099, 0x20D2, 0x1D165, 0x11938, 0x16FF0)]
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\u00a0", "\u2003", "\u3000", "\u200b", "\u0085",
          "\u2028", "\u180e", "\ufeff", " \n ", "\n  ", "\v", "\f", "\u1680", "\x00", "\x1c", "\u2581"]
SNIPPETS = ["->", "(x):\n", "3.14159", "2024", "a\\nb", "if (a[i] != b) {\r\n", "SELECT * FROM t;--", "https://x.org/?a=1&b=%20",
            "<0x0A>", "##ing", "</w>", "[UNK]", "e\u0301", "\u00e9", "\uac00", "\u1100\u1161\u11a8", "\ufb01", "\u2460", "\u00bd",
            "\u0130", "\u01c5", "\u03c2", "\u1e9e", "\uff21", "\u212b", "\u0344", "\u0958", "\u2126", "\ufdfa"]


class Generator:
    """Random strings; the same seed gives the same strings."""

    def __init__(self, seed, words, added):
        self.r = random.Random(seed)
        self.words = words
        self.added = added or ["<|x|>"]

    def code_point(self):
        r = self.r
        top = r.choice((0x100, 0x250, 0x3000, 0x10000, 0x20000, 0x110000))
        while True:
            c = r.randrange(top)
            if not 0xD800 <= c < 0xE000:
                return chr(c)

    def token(self):
        r, t = self.r, self.r.choice(self.added)
        kind = r.randrange(5)
        if kind == 0:
            return t[:r.randint(0, len(t))]
        if kind == 1:
            return t + t
        if kind == 2:
            return t[r.randint(0, len(t)):]
        if kind == 3:
            return r.choice((" ", "\n", "")) + t + r.choice((" ", "x", "\n", ""))
        return t

    def part(self):
        r = self.r
        k = r.randrange(16)
        if k < 5:
            return r.choice(self.words) + r.choice(("", " ", " "))
        if k == 5:
            return "".join(r.choice("0123456789") for _ in range(r.randint(1, 9)))
        if k == 6:
            return r.choice(SPACES) * r.choice((1, 1, 1, 2, 5))
        if k == 7:
            return " " * r.randint(1, 40)
        if k == 8:
            return r.choice("aeoun\u05d0\u0627\u0915\u304b") + "".join(r.choice(MARKS) for _ in range(r.randint(1, 4)))
        if k == 9:
            return r.choice(EMOJI)
        if k == 10:
            return r.choice(self.words) + r.choice(CONTRACTIONS)
        if k == 11:
            return "".join(self.code_point() for _ in range(r.randint(1, 6)))
        if k == 12:
            return self.token()
        if k == 13:
            return r.choice(SNIPPETS)
        if k == 14:
            return "".join(r.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(r.randint(1, 5)))
        return r.choice(self.words).upper()

    def text(self):
        return "".join(self.part() for _ in range(self.r.randint(1, 12)))


class Echelon:
    """A process that answers line by line."""

    def __init__(self, program, folder, *flags):
        self.p = subprocess.Popen([program, "tokenize", "--model-dir", folder, *flags],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, values):
        data = "".join(json.dumps(v) + "\n" for v in values).encode()

        def write():
            self.p.stdin.write(data)
            self.p.stdin.flush()

        t = threading.Thread(target=write)
        t.start()
        lines = [self.p.stdout.readline() for _ in values]
        t.join()
        if not lines[-1]:
            sys.exit(f"echelon ended with {self.p.wait()}")
        return lines

    def ids(self, texts):
        """A line of ids for each text, as str() writes a list: comparing lines is much cheaper than parsing them."""
        return [line[8:-2].decode() for line in self.ask(texts)]

    def close(self):
        self.p.stdin.close()
        return self.p.wait()


def files_of(paths):
    for path in paths:
        if path == "packages":
            path = sysconfig.get_paths()["purelib"]
        if os.path.isfile(path):
            yield path
        for folder, _, names in sorted(os.walk(path)):
            for name in sorted(names):
                if name.endswith((".py", ".txt", ".md", ".rst", ".json", ".html", ".js", ".c", ".h", ".css", ".pyi")):
                    yield os.path.join(folder, name)


def texts_of(paths, skip, limit, r):
    """Pieces of files: short and long ones, up to limit bytes after the first skip bytes."""
    total = -skip
    for path in files_of(paths):
        try:
            text = open(path, encoding="utf-8", newline="").read()
        except (UnicodeDecodeError, OSError):
            continue
        at = 0
        while at < len(text) and total < limit:
            n = r.choice((200, 2000, 20000, 20000))
            piece = text[at:at + n]
            at += n
            total += len(piece.encode())
            if total > 0:
                yield piece
        if total >= limit:
            return


def differs(oracle, ours, texts, kind, bad):
    for text, want, got in zip(texts, oracle, ours):
        if want != got:
            bad.append((kind, text, want, got))


def batches(items):
    batch, size = [], 0
    for item in items:
        batch.append(item)
        size += len(item)
        if len(batch) == BATCH or size > 4 << 20:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def compare(args, folder):
    path = os.path.join(folder, "tokenizer.json")
    tok = Tokenizer.from_file(path)
    tok.no_truncation()
    tok.no_padding()
    plain = Tokenizer.from_file(path)
    plain.no_truncation()
    plain.no_padding()
    plain.encode_special_tokens = True
    r = random.Random(args.seed)
    words = args.words
    added = [t.content for t in tok.get_added_tokens_decoder().values()]
    gen = Generator(args.seed, words, added)
    special = Echelon(args.echelon, folder, "--jsonl", "--special")
    ordinary = Echelon(args.echelon, folder, "--jsonl")
    around = Echelon(args.echelon, folder, "--jsonl", "--special", "--add-special")
    decode = Echelon(args.echelon, folder, "--decode")
    n_ids = max(tok.get_vocab(with_added_tokens=True).values()) + 1
    bad, n_texts, n_bytes = [], 0, 0

    def items():
        yield from texts_of(args.texts, args.skip << 20, args.megabytes << 20, r)
        for _ in range(args.random):
            yield gen.text()

    for batch in batches(items()):
        n_texts += len(batch)
        n_bytes += sum(len(t.encode()) for t in batch)
        want = [e.ids for e in tok.encode_batch_fast(batch, add_special_tokens=False)]
        differs([str(x) for x in want], special.ids(batch), batch, "special", bad)
        small = batch[:400] if not args.full else batch
        differs([str(e.ids) for e in plain.encode_batch_fast(small, add_special_tokens=False)], ordinary.ids(small), small,
                "ordinary", bad)
        differs([str(e.ids) for e in tok.encode_batch_fast(small)], around.ids(small), small, "around", bad)
        lists = want[:400] + [[r.randrange(n_ids) for _ in range(r.randint(1, 12))] for _ in range(100)]
        differs([tok.decode(x, skip_special_tokens=False) for x in lists], [json.loads(x)["text"] for x in decode.ask(lists)],
                lists, "decode", bad)
        if len(bad) > 200:
            break
    for p in (special, ordinary, around, decode):
        p.close()
    print(f"{folder}: {n_texts} texts, {n_bytes / 1e6:.1f} MB, {len(bad)} differences", flush=True)
    for kind, text, want, got in bad[:args.show]:
        print(f"  {kind} {json.dumps(text)[:600]}\n    want {json.dumps(want)[:400]}\n    got  {json.dumps(got)[:400]}")
    return len(bad)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--echelon", required=True)
    p.add_argument("--tokenizer", action="append", required=True)
    p.add_argument("--texts", action="append", default=[])
    p.add_argument("--words", help="a file whose words the random strings are made of")
    p.add_argument("--skip", type=int, default=0)
    p.add_argument("--megabytes", type=int, default=1)
    p.add_argument("--random", type=int, default=1000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", type=int, default=5)
    p.add_argument("--full", action="store_true", help="all texts without special tokens too, not a sample")
    args = p.parse_args()
    args.words = open(args.words, encoding="utf-8").read().split() if args.words else "the cat \u043a\u043e\u0442 \u732b gato".split()
    print(f"seed={args.seed}")
    bad = [compare(args, folder) for folder in args.tokenizer]
    sys.exit(1 if any(bad) else 0)


main()
