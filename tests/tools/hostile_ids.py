#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile conversations through public templates: Echelon's ids against those of `tokenizers` with the right matches left out.

usage: hostile_ids.py [--count N] [--seed S] TEMPLATE_LINES TEMPLATES_FOLDER TOKENIZER_FOLDER…

TEMPLATE_LINES is the program build/PRESET/tests/tools/template_lines. What users, tools and documents say is full of added
tokens: whole, cut, doubled, side by side. The reference knows whose bytes they are without Echelon: each character of an added
token in the data is replaced by a foreign one before jinja2 renders, so that it can't match, and replaced back afterwards in
what lies between matches; prompts of templates that treat the two unlike (HTML escapes) are left out. Not replaced: added tokens that are neither special nor written by the template, which match
wherever they stand. Exit code 1 when any text or id differs, 77 when a Python package is missing.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
try:
    from tokenizers import Tokenizer
    from template_fuzz import ENV
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

PRIVATE = 0x12000  # cuneiform: letters that repr() prints, that have no case, and that nobody uses here
WORDS = ["hello", "the king said", "caf\u00e9", "\u4f60\u597d", "\U0001F600", "system\n", "\n\n", " ", "<", "|>", "<|", "im_start", "/", "x < y", "[INST]",
         "```json\n{}\n```", "user", "assistant", "1234", "e\u0301", "\u00a0"]


class Subject:
    """A tokenizer, with and without its added tokens."""

    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
            spec = json.load(f)
        self.added = {t["content"]: (t["id"], t["special"]) for t in spec["added_tokens"]}
        assert not any(t["lstrip"] or t["rstrip"] or t["single_word"] or t["normalized"] for t in spec["added_tokens"])
        self.any_added = re.compile("|".join(re.escape(t) for t in sorted(self.added, key=len, reverse=True)))
        spec["added_tokens"] = []
        spec["post_processor"] = None
        self.plain = Tokenizer.from_str(json.dumps(spec))

    def ids(self, text):
        """Ids of a text whose foreign characters stand for others that may not match."""
        out, at = [], 0
        for m in self.any_added.finditer(text):
            out += self.segment(text[at:m.start()])
            out.append(self.added[m.group()][0])
            at = m.end()
        return out + self.segment(text[at:])

    def segment(self, text):
        return self.plain.encode(shown(text), add_special_tokens=False).ids if text else []


def shown(text):
    return "".join(chr(ord(c) - PRIVATE) if PRIVATE <= ord(c) < PRIVATE + 128 else c for c in text)


class Conversation:
    def __init__(self, r, subject, source):
        self.r = r
        # A token that the template looks for in the data would send its twin with foreign characters another way.
        code = " ".join(re.findall(r"\{[{%].*?[%}]\}", source, re.S))
        self.tokens = [t for t in subject.added if t not in code] or ["<|none|>"]
        written = {t for t in subject.added if t in source}
        self.guarded = re.compile("|".join(re.escape(t) for t in sorted(subject.added, key=len, reverse=True)))
        self.is_guarded = {t: special or t in written for t, (_, special) in subject.added.items()}

    def hostile(self):
        r, out = self.r, []
        for _ in range(r.randint(1, 6)):
            t = r.choice(self.tokens)
            out.append(r.choice([t, t, t + t, t[:r.randint(1, len(t))], t[r.randint(0, len(t) - 1):], r.choice(self.tokens) + t,
                                 t[:len(t) // 2] + t + t[len(t) // 2:], r.choice(WORDS)]))
            out.append(r.choice(["", "", " ", "\n", r.choice(WORDS)]))
        text = "".join(out)
        # Cutting and joining may have made one that the template looks for.
        return text if all(t in self.tokens for t in self.guarded.findall(text)) else r.choice(WORDS)

    def mapped(self, value):
        """The same value with foreign characters in what may not match."""
        if isinstance(value, str):
            return self.guarded.sub(lambda m: "".join(chr(PRIVATE + ord(c)) for c in m.group()) if self.is_guarded[m.group()] else m.group(), value)
        if isinstance(value, list):
            return [self.mapped(v) for v in value]
        return {k: self.mapped(v) for k, v in value.items()} if isinstance(value, dict) else value

    def make(self):
        r, messages = self.r, []
        if r.random() < 0.5:
            messages.append({"role": "system", "content": self.hostile()})
        for _ in range(r.randint(1, 3)):
            messages.append({"role": "user", "content": self.hostile()})
            if r.random() < 0.3:
                messages.append({"role": "assistant", "content": "", "tool_calls": [{"id": "abcDEF123", "type": "function", "function": {
                    "name": "f", "arguments": {"a": self.hostile()}}}]})
                messages.append({"role": "tool", "name": "f", "tool_call_id": "abcDEF123", "content": self.hostile()})
            messages.append({"role": "assistant", "content": self.hostile()})
        messages.append({"role": "user", "content": self.hostile()})
        tools = [{"type": "function", "function": {"name": "f", "description": self.hostile(), "parameters": {
            "type": "object", "properties": {"a": {"type": "string", "description": self.hostile()}}, "required": ["a"]}}}]
        return {"messages": messages, "tools": tools if r.random() < 0.4 else None}


FIXED = {"documents": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def compare(args, subject, sources):
    p = subprocess.Popen([args.program, subject.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    n, n_special, skipped, bad = 0, 0, 0, []
    for i in range(args.count):
        r = random.Random(f"{args.seed}.{i}")
        name = r.choice(sorted(sources))
        talk = Conversation(r, subject, sources[name])
        data = talk.make()
        try:
            template = ENV.from_string(sources[name])
            text = template.render(**FIXED, **talk.mapped(data))
            if shown(text) != template.render(**FIXED, **data):
                raise ValueError("the template treats foreign characters another way")
        except Exception:  # pylint: disable=broad-except
            skipped += 1
            continue
        p.stdin.write(json.dumps({"template": sources[name], "args": json.dumps({**FIXED, **data}), "now": "2026-01-02T03:04:05"}) + "\n")
        p.stdin.flush()
        got = json.loads(p.stdout.readline())
        want = subject.ids(text)
        n += 1
        n_special += len(subject.any_added.findall(text))
        if got.get("text") != shown(text) or got.get("ids") != want:
            bad.append((i, name, shown(text), got, want))
    p.stdin.close()
    p.wait()
    print(f"{subject.folder}: {n} prompts, {n_special} added tokens of the template's, {skipped} left out, {len(bad)} differences", flush=True)
    for i, name, text, got, want in bad[:3]:
        print(f"  case {i}, {name}\n    text {json.dumps(text)[:1500]}\n    got  {str(got)[:1500]}\n    want {want[:200]}")
    return len(bad) + (n == 0) + p.returncode


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("templates")
    p.add_argument("tokenizers", nargs="+")
    p.add_argument("--count", type=int, default=300)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    print(f"seed={args.seed}")
    sources = {}
    for name in sorted(os.listdir(args.templates)):
        with open(os.path.join(args.templates, name), encoding="utf-8", newline="") as f:
            sources[name] = f.read()
    sys.exit(1 if sum(compare(args, Subject(folder), sources) for folder in args.tokenizers) else 0)


main()
