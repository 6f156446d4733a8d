#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""echelon template render and check as a user meets them: the text alone, or an error with its place and exit code 1."""
import json
import os
import subprocess
import tempfile

ECHELON = os.environ["ECHELON"]
GOLDEN = "tests/golden/templates"
NOW = ["--now", "2026-01-02T03:04:05"]


def run(*args):
    return subprocess.run([ECHELON, "template", *args], capture_output=True, check=False)


with open(f"{GOLDEN}/cases.json", encoding="utf-8") as f:
    cases = json.load(f)
with open(f"{GOLDEN}/expected.jsonl", encoding="utf-8") as f:
    rows = [json.loads(line) for line in f][::29]

with tempfile.TemporaryDirectory() as d:
    def write(name, text):
        path = os.path.join(d, name)
        with open(path, "w", encoding="utf-8", newline="") as out:
            out.write(text)
        return path

    for row in rows:
        args = write("args.json", json.dumps(cases[row["case"]]))
        p = run("render", f"{GOLDEN}/jinja/{row['template']}", "--args", args, *NOW)
        if "text" in row:
            assert (p.returncode, p.stdout, p.stderr) == (0, row["text"].encode(), b""), (row, p)
        else:
            assert p.returncode == 1 and p.stdout == b"" and p.stderr, (row, p)
            kind, message = row["error"].split(": ", 1)
            assert kind != "TemplateError" or message in p.stderr.decode(), (row, p)

    args = write("args.json", '{"messages": []}')
    for source, said in (("a\n{% if x %}\n{{ y }}\n", "line 3 column 8: unexpected end of template: 'endif' is missing"),
                         ("{{ 1 +\n }}", "line 2 column 2"), ("a\n {{ 1 + 'a' }}", "line 2 column 7"),
                         ("\n{{ raise_exception('no \u00e9') }}", "no \u00e9 (template, line 2 column"), ("{% include 'x' %}", "line 1")):
        path = write("t.jinja", source)
        p = run("render", path, "--args", args)
        assert p.returncode == 1 and said in p.stderr.decode() and p.stdout == b"", (source, p)
    good, bad = write("good.jinja", "{{ messages }}"), write("bad.jinja", "{% if %}")
    p = run("check", good, bad, os.path.join(d, "none"))
    assert p.returncode == 1 and p.stdout.decode() == f"{good}: ok\n" and p.stderr.count(b"\n") == 2, p
    assert b"line 1 column 7" in p.stderr and b"none" in p.stderr, p
    assert run("check", good).returncode == 0
    for wrong in (["render"], ["render", good], ["check"], ["nothing"], ["render", good, good, "--args", args]):
        assert run(*wrong).returncode == 2, wrong
    for what, said in ((write("broken.json", '{"a": [1'), b"byte"), (os.path.join(d, "none"), b"none"), (write("list.json", "[]"), b"object")):
        p = run("render", good, "--args", what)
        assert p.returncode == 1 and said in p.stderr, (what, p)
    assert run("render", good, "--args", args, "--now", "today").returncode == 0
    p = run("render", write("now.jinja", "{{ strftime_now('%Y') }}"), "--args", args, "--now", "today")
    assert p.returncode == 1 and b"2026-01-02T03:04:05" in p.stderr, p
print("ok")
