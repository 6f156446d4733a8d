#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""echelon tokenize: one text, standard input, JSON lines, back, special tokens, wrong usage."""
import json
import os
import subprocess
import tempfile

ECHELON = os.environ["ECHELON"]


def run(*args, stdin=""):
    return subprocess.run([ECHELON, "tokenize", *args], input=stdin, capture_output=True, text=True, check=False)


def good(*args, stdin=""):
    p = run(*args, stdin=stdin)
    assert p.returncode == 0, (args, p.returncode, p.stderr)
    return p.stdout


def bad(code, *args, stdin=""):
    p = run(*args, stdin=stdin)
    assert p.returncode == code, (args, p.returncode, p.stderr)
    assert p.stderr.startswith("echelon"), p.stderr
    assert p.stderr.strip().count("\n") <= 1, p.stderr
    return p.stderr


TEXT = "Once upon a time<|im_end|>\n caf\u00e9 \U0001F60A"
ids = json.loads(good(TEXT))
assert ids and ids == json.loads(good(stdin=TEXT)), "an argument and standard input differ"
special = json.loads(good("--special", TEXT))
assert len(special) < len(ids), "the special token was not parsed"

lines = json.dumps(TEXT) + "\n\n" + json.dumps({"text": TEXT, "more": 1}) + "\n" + json.dumps("") + "\n"
got = [json.loads(line) for line in good("--jsonl", stdin=lines).splitlines()]
assert got == [{"ids": ids}, {"ids": ids}, {"ids": []}], got
back = good("--decode", stdin=json.dumps(ids) + "\n" + json.dumps({"ids": special}) + "\n[]\n").splitlines()
assert [json.loads(line) for line in back] == [{"text": TEXT}, {"text": TEXT}, {"text": ""}], back
skipped = json.loads(good("--decode", "--skip-special", stdin=json.dumps(special)))
assert skipped == {"text": TEXT.replace("<|im_end|>", "")}, skipped

# An answer comes before the next question is asked.
with subprocess.Popen([ECHELON, "tokenize", "--jsonl"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
    for _ in range(3):
        p.stdin.write(json.dumps(TEXT) + "\n")
        p.stdin.flush()
        assert json.loads(p.stdout.readline()) == {"ids": ids}
    p.stdin.close()
    assert p.wait() == 0

# Batches on several cores: the order and the ids of one.
many = "".join(json.dumps(TEXT * (i % 40) + f" line {i}") + "\n" for i in range(5000))
one = good("--jsonl", "--threads", "1", stdin=many)
assert one.count("\n") == 5000 and one == good("--jsonl", "--threads", "4", stdin=many) == good("--jsonl", stdin=many[:-1])
assert good("--decode", "--threads", "1", stdin=one) == good("--decode", "--threads", "3", stdin=one)
broken = run("--jsonl", "--threads", "4", stdin=many + "7\n" + many)
assert broken.returncode == 1 and broken.stdout == one and "line 5001" in broken.stderr, broken.stderr

bad(2, "one", "two")
bad(2, "--jsonl", "text")
bad(2, "--nonsense")
assert "line 2" in bad(1, "--jsonl", stdin='"a"\n{"text": 1}\n')
assert "line 1" in bad(1, "--jsonl", stdin='"a\n')
assert "line 1" in bad(1, "--decode", stdin="[1, -2]\n")
assert "line 1" in bad(1, "--decode", stdin='{"ids": "x"}\n')
with tempfile.TemporaryDirectory() as folder:
    assert folder in bad(1, "--model-dir", folder, "x")
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
        f.write('{"model": {"type": "Magic", "vocab": {}}}')
    assert "Magic" in bad(1, "--model-dir", folder, "x")
print("ok")
