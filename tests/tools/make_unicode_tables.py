#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/text/unicode_tables.c.

The `tokenizers` library takes its character properties from several sources of several Unicode
versions (normal forms of 9.0, a regex engine of 16.0, the newest ones for lower case). Which
properties a character has there is found by asking the library itself, one character at a time, so
that ids are the same whatever Unicode version this system's PCRE2 and utf8proc have.

usage: tests/tools/make_unicode_tables.py > src/text/unicode_tables.c
needs: python3 with tokenizers 0.23 and Unicode 14 (Python 3.11), perl >= 5.36
"""
import subprocess
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

CPS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp "
              "Cc Cf Co").split()
SCRIPTS = ("Han Hiragana Katakana Hangul Bopomofo Latin Greek Cyrillic Armenian Georgian Hebrew "
           "Arabic Syriac Thaana Devanagari Bengali Gurmukhi Gujarati Oriya Tamil Telugu Kannada "
           "Malayalam Sinhala Thai Lao Tibetan Myanmar Khmer Mongolian Ethiopic").split()


def perl_set(prop):
    """Code points that Perl gives a property."""
    code = ('for my $c (0..0x10FFFF){next if $c>=0xD800&&$c<0xE000;'
            f'print "$c\\n" if chr($c)=~/\\p{{{prop}}}/}}')
    out = subprocess.run(["perl", "-e", code], capture_output=True, check=True, text=True).stdout
    return set(map(int, out.split()))


def removed_by(pre_tokenizer):
    """Code points that a pre-tokenizer with behaviour "removed" takes out."""
    gone = set()
    for i in range(0, len(CPS), 4096):
        chunk = CPS[i:i + 4096]
        kept = set()
        for piece, _ in pre_tokenizer.pre_tokenize_str("".join(map(chr, chunk))):
            kept.update(map(ord, piece))
        gone.update(c for c in chunk if c not in kept)
    return gone


def regex_set(pattern):
    return removed_by(pre_tokenizers.Split(Regex(pattern), "removed"))


def deleted_by(normalizer):
    return {c for c in CPS if normalizer.normalize_str(chr(c)) == ""}


def unsafe(form, known, second):
    """Known characters that a normal form may change, alone or after another character."""
    composes = form in ("NFC", "NFKC")
    return {c for c in CPS if c in known and (
        unicodedata.combining(chr(c)) or unicodedata.normalize(form, chr(c)) != chr(c)
        or (composes and c in second))}


def runs(flag_sets):
    out, prev = [], None
    for c in range(0x110000):
        value = sum(1 << i for i, s in enumerate(flag_sets) if c in s)
        if value != prev:
            out.append((c, value))
            prev = value
    return out


def ranges(values):
    out = []
    for c in sorted(values):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def lower_rows():
    lower = normalizers.Lowercase()
    rows = []
    for c in CPS:
        low = lower.normalize_str(chr(c))
        if len(low) != 1 or low == chr(c):  # U+0130 alone has two: unicode.c knows it
            continue
        delta = ord(low) - c
        row = rows[-1] if rows else None
        if row and row[3] == delta and c - row[1] in (1, 2) and row[2] in (0, c - row[1]):
            row[2], row[1] = c - row[1], c
        else:
            rows.append([c, c, 0, delta])
    return [(a, b, s or 1, d) for a, b, s, d in rows]


def emit(name, ctype, items, per_line):
    print(f"const {ctype} {name}[] = {{")
    for i in range(0, len(items), per_line):
        print("    " + " ".join(items[i:i + per_line]))
    print("};")
    print(f"const size_t {name}_n = sizeof {name} / sizeof {name}[0];\n")


def main():
    in9 = perl_set("In=9.0")
    second = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    for c in in9:
        d = unicodedata.decomposition(chr(c))
        if d and not d.startswith("<") and " " in d:
            second.add(int(d.split()[1], 16))
    bert = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    word_split = pre_tokenizers.Whitespace()
    word = {c for c in CPS if word_split.pre_tokenize_str(f"a{chr(c)}b") == [(f"a{chr(c)}b", (0, 3))]}
    digits = pre_tokenizers.Digits(individual_digits=True)
    sets = [unsafe(f, in9, second) for f in ("NFC", "NFD", "NFKC", "NFKD")] + [
        set(CPS) - in9,
        {c for c in CPS if len(digits.pre_tokenize_str(f"a{chr(c)}b")) == 3},
        removed_by(pre_tokenizers.Punctuation("removed")),
        deleted_by(normalizers.StripAccents()),
        deleted_by(normalizers.BertNormalizer(**{**bert, "strip_accents": True})),
        deleted_by(normalizers.BertNormalizer(**{**bert, "clean_text": True})),
        word,
    ]
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print("/* Written by tests/tools/make_unicode_tables.py: change that. unicode.h says what it is. */")
    print('#include "src/text/unicode.h"\n')
    items = [f"0x{c << 11 | v:08X}," for c, v in runs(sets)]
    emit("ech_unicode_runs", "uint32_t", items, 8)
    emit("ech_unicode_lower", "ech_lower_row",
         [f"{{ 0x{a:04X}, 0x{b:04X}, {s}, {d} }}," for a, b, s, d in lower_rows()], 3)
    fresh = []
    for cat in CATEGORIES:
        old = {c for c in CPS if unicodedata.category(chr(c)) == cat}
        fresh += [(cat, a, b) for a, b in ranges(regex_set(f"\\p{{{cat}}}") - old)]
    for name in SCRIPTS:
        fresh += [(name, a, b) for a, b in ranges(regex_set(f"\\p{{{name}}}") - perl_set(f"sc={name}"))]
    emit("ech_unicode_fresh", "ech_fresh_row",
         [f'{{ "{n}", 0x{a:04X}, 0x{b:04X} }},' for n, a, b in fresh], 3)
    letters = set()
    for cat in ("L", "M", "Nd", "Nl", "Pc"):
        letters |= regex_set(f"\\p{{{cat}}}")
    emit("ech_unicode_word", "ech_fresh_row",
         [f'{{ "w", 0x{a:04X}, 0x{b:04X} }},' for a, b in ranges(regex_set("\\w") - letters)], 3)


main()
