#!/usr/bin/env python3
"""Writes tests/golden/templates/ids.jsonl: how many ids `tokenizers` makes of each golden text, and their FNV-1a digest.

usage: make_template_ids.py NAME=TOKENIZER_JSON …

Left out: conversations whose data holds control tokens, since there Echelon differs on purpose.
"""
import json
import os
import struct
import sys

from tokenizers import Tokenizer

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "templates")
MARKED = {"hostile", "think-in-content"}


def digest(ids):
    h = 0xCBF29CE484222325
    for byte in struct.pack("<%di" % len(ids), *ids):
        h = ((h ^ byte) * 0x100000001B3) & (2**64 - 1)
    return "%016x" % h


def main():
    tokenizers = {name: Tokenizer.from_file(path) for name, path in (arg.split("=", 1) for arg in sys.argv[1:])}
    with open(os.path.join(HERE, "expected.jsonl"), encoding="utf-8") as lines, open(os.path.join(HERE, "ids.jsonl"), "w") as out:
        for line in map(json.loads, lines):
            if "text" not in line or line["case"] in MARKED:
                continue
            row = {"template": line["template"], "case": line["case"]}
            for name, tokenizer in tokenizers.items():
                ids = tokenizer.encode(line["text"], add_special_tokens=False).ids
                row[name] = [len(ids), digest(ids)]
            out.write(json.dumps(row) + "\n")


main()
