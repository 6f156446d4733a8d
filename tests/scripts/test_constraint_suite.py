#!/usr/bin/env python3
"""The JSON-Schema-Test-Suite: test_constraint_suite.py PROBE [SUITE].

SUITE is the suite's folder "tests"; by default the one in jsonschema's source, where scripts/venv unpacked it. Every instance
that the suite calls invalid must be refused; every valid one taken, save by what docs/structured-output.md says; a schema may
be refused only for what the same page lists.
"""
import itertools
import json
import os
import re
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    sys.exit(77)

DRAFTS = {"draft2020-12": jsonschema.Draft202012Validator, "draft7": jsonschema.Draft7Validator}
SUITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/venv/json-schema-suite")
FORMATS = "date-time|date|time|duration|uuid|email|hostname|ipv4|ipv6|uri"

# What a schema may be refused for: the end of the pointer and the message.
REFUSALS = re.compile(
    r"/(not|if|then|else|(min|max)?[cC]ontains|uniqueItems|propertyNames|dependen\w+|unevaluated\w+|\$dynamicRef), this keyword can't"
    r"|/format, this format can't|/\$ref, only references into this document|/oneOf, alternatives \d+ and \d+ may both"
    r"|/multipleOf, (two of them|its digits)|/items, an array of schemas can't be joined|\\p\{\} knows general categories only"
    r"|line 1, column \d+: too big")
# Files whose instances aren't JSON schema's rules here: what is only an annotation there is enforced, or the other way round.
ANNOTATIONS = ("draft2020-12/format.json", "draft7/optional/content.json", "draft2020-12/vocabulary.json")
# Valid instances beyond the documented bounds and spellings, by file and JSON.
BEYOND = [
    ("bignum", r"^-?\d{41,}$"), ("float-overflow", r"e\+308"), ("time", r":60"), ("email", r'^"(\\"|.*@\[)'),
    ("ecmascript-regex", r"^\"(\\u07c0|\\u00e9|\\ufeff)\"$"), ("draft7/ref.json", r"\[1, 2, 3\]"),
]


def closed(schema):
    """Rule 1: properties without additionalProperties close an object."""
    if isinstance(schema, list):
        return [closed(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: v if k in ("enum", "const") else closed(v) for k, v in schema.items()}
    if isinstance(schema.get("properties"), dict):
        out.setdefault("additionalProperties", False)
    return out


def canonical(value):
    """Rule of spelling: a listed number is written without a needless .0."""
    if isinstance(value, dict):
        return {k: canonical(v) for k, v in value.items()}
    if isinstance(value, list):
        return [canonical(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def spellings(value):
    """Rule 2: the value with the keys of its objects in every order, while there are few."""
    if isinstance(value, dict):
        parts = [[(k, v) for v in spellings(value[k])[:4]] for k in value]
        return [dict(p) for o in itertools.islice(itertools.permutations(parts), 120) for p in itertools.islice(itertools.product(*o), 4)]
    if isinstance(value, list):
        return [list(p) for p in itertools.islice(itertools.product(*[spellings(v)[:4] for v in value]), 24)]
    return [value]


class Suite:
    def __init__(self, probe, folder):
        self.probe = subprocess.Popen([probe], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.folder = folder
        self.n = dict.fromkeys(("schemas", "refused", "taken", "excused", "rejected"), 0)
        self.bad = []

    def ask(self, schema, docs):
        line = {"kind": "json_schema", "text": json.dumps(schema), "docs": [json.dumps(d, ensure_ascii=False) for d in docs]}
        self.probe.stdin.write(json.dumps(line) + "\n")
        self.probe.stdin.flush()
        return json.loads(self.probe.stdout.readline())

    def excused(self, where, validator, schema, test):
        data = test["data"]
        if any(f in where and re.search(p, json.dumps(data)) for f, p in BEYOND):
            return True
        if canonical(data) is not data and self.ask(schema, [canonical(data)])["docs"][0][1]:
            return True
        return not validator(closed(schema)).is_valid(data)

    def case(self, where, validator, case):
        schema, tests = case["schema"], case["tests"]
        docs = [spellings(t["data"]) for t in tests]
        got = self.ask(schema, [d for ds in docs for d in ds])
        self.n["schemas"] += 1
        if "error" in got:
            self.n["refused"] += 1
            empty = not any(t["valid"] for t in tests) and re.search("no (value|text) satisfies", got["error"])
            fmt = re.search("this format", got["error"]) and re.search(f'"format": "({FORMATS})"', json.dumps(schema))
            if fmt or not (empty or REFUSALS.search(got["error"])):
                self.bad.append(f"{where}: refused: {got['error']}")
            return
        results = iter(got["docs"])
        for t, ds in zip(tests, docs):
            ok = any([next(results)[1] for _ in ds])
            if ok == t["valid"]:
                self.n["taken" if ok else "rejected"] += 1
            elif where.startswith(ANNOTATIONS) or (t["valid"] and self.excused(where, validator, schema, t)):
                self.n["excused"] += 1
            else:
                self.bad.append(f"{where}: {t['description']}: {'taken' if ok else 'not taken'}: {json.dumps(t['data'])}")

    def run(self):
        for draft, validator in DRAFTS.items():
            for folder, _, names in sorted(os.walk(os.path.join(self.folder, draft))):
                for path in (os.path.join(folder, n) for n in sorted(names)):
                    with open(path, encoding="utf-8") as f:
                        for case in json.load(f):
                            self.case(f"{os.path.relpath(path, self.folder)}: {case['description']}", validator, case)


def main():
    folder = sys.argv[2] if len(sys.argv) > 2 else SUITE
    if not os.path.isdir(folder):
        print("skipped: the suite is not here (scripts/venv unpacks it)")
        return 77
    suite = Suite(sys.argv[1], folder)
    suite.run()
    print(suite.n)
    print("\n".join(suite.bad))
    # The counts of the suite in jsonschema 4.26: fewer would be a suite that isn't read.
    return bool(suite.bad) or suite.n["taken"] < 1000 or suite.n["rejected"] < 800


if __name__ == "__main__":
    sys.exit(main())
