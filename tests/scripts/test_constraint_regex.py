#!/usr/bin/env python3
"""Random regular expressions against Python's re: test_constraint_regex.py PROBE [COUNT] [SEED].

As a whole text (kind regex) and as a JSON schema's pattern, which searches. Only what ECMAScript and
Python read alike is generated. Texts are short strings over a small alphabet, so that many match.
"""
import json
import random
import re
import subprocess
import sys

ALPHABET = "ab1 -\né"


def atom(rng, depth):
    kind = rng.randrange(8)
    if kind == 0 and depth < 2:
        return "(" + alternatives(rng, depth + 1) + ")"
    if kind == 1 and depth < 2:
        return "(?:" + alternatives(rng, depth + 1) + ")"
    if kind == 2:
        return rng.choice(["[ab]", "[^a]", "[a-b1]", "[^ab\\n]", "[\\d-]", "[ -1]"])
    if kind == 3:
        return rng.choice(["\\d", "\\s", "\\w", "\\x61", "\\-", "[^\\n]"])
    return rng.choice(["a", "b", "1", " ", "é", "ab"])


def term(rng, depth):
    out = atom(rng, depth)
    if len(out) > 1 and out[0] not in "([\\":
        out = "(?:" + out + ")"
    if rng.random() < 0.4:
        low = rng.randrange(3)
        out += rng.choice(["*", "+", "?", "*?", "{%d}" % low, "{%d,}" % low, "{%d,%d}" % (low, low + rng.randrange(3))])
    return out


def sequence(rng, depth):
    return "".join(term(rng, depth) for _ in range(rng.randrange(4)))


def alternatives(rng, depth=0):
    return "|".join(sequence(rng, depth) for _ in range(rng.choice([1, 1, 2, 3])))


def main():
    probe, count, seed = sys.argv[1], int(sys.argv[2] if len(sys.argv) > 2 else 400), int(sys.argv[3] if len(sys.argv) > 3 else 1)
    print(f"seed={seed} count={count}")
    child = subprocess.Popen([probe], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    failures = checks = 0

    def ask(**line):
        child.stdin.write(json.dumps(line).encode() + b"\n")
        child.stdin.flush()
        return json.loads(child.stdout.readline())

    for i in range(count):
        rng = random.Random(seed * 1000003 + i)
        regex = alternatives(rng)
        texts = ["".join(rng.choice(ALPHABET) for _ in range(rng.randrange(7))) for _ in range(25)]
        whole = ask(kind="regex", text=regex, docs=texts, samples=0, seed=i)
        anchored = rng.choice(["", "^"]) + ("(?:%s)" % regex if rng.random() < 0.7 else regex)
        anchored += rng.choice(["", "$"])
        search = ask(kind="json_schema", text=json.dumps({"type": "string", "pattern": anchored}),
                     docs=[json.dumps(t, ensure_ascii=rng.random() < 0.5) for t in texts], samples=2, seed=i)
        if "error" in whole or "error" in search:
            if not any("no text" in r.get("error", "") or "no value" in r.get("error", "") for r in (whole, search)):
                failures += 1
                print(f"{regex!r} {anchored!r}: {whole.get('error')} {search.get('error')}")
            continue
        for text, (_, ends), (_, found) in zip(texts, whole["docs"], search["docs"]):
            checks += 2
            if bool(re.fullmatch(regex, text, re.ASCII)) != ends:
                failures += 1
                print(f"regex {regex!r} on {text!r}: {ends}")
            want = bool(re.search(anchored.replace("$", "\\Z"), text, re.ASCII))
            if want != found:
                failures += 1
                print(f"pattern {anchored!r} on {text!r}: {found}")
        for sample in search["samples"]:
            checks += 1
            if isinstance(sample, str) and not re.search(anchored, json.loads(sample)):
                failures += 1
                print(f"pattern {anchored!r} sampled {sample!r}")
        if failures > 10:
            break
    child.stdin.close()
    print(f"checks={checks} failures={failures}")
    return 1 if failures or child.wait() else 0


sys.exit(main())
