#!/usr/bin/env python3
"""Random schemas against jsonschema: test_constraint_random.py PROBE [COUNT] [SEED] [TOKENIZER].

For each schema: texts drawn from the masks must be JSON that validates; values made to satisfy the
schema must be accepted as Python writes them; damaged values that don't validate must be refused.
"""
import datetime
import ipaddress
import json
import random
import re
import subprocess
import sys
import uuid

try:
    import jsonschema
except ImportError:
    sys.exit(77)

WORDS = ["a", "b", "name", "id", "foo", "x y", "été", "q\"q", "tab\t", "", "value", "你好", "😀", "n/a", "\\"]
KEYS = ["a", "b", "name", "id", "foo", "ab", "x-y", "été", "type", "k\"q"]


def formats():
    checker = jsonschema.FormatChecker(formats=())

    def check(name):
        def deco(f):
            checker.checks(name, raises=(ValueError, AttributeError))(lambda v: not isinstance(v, str) or f(v))
            return f
        return deco

    check("date")(lambda v: bool(re.fullmatch(r"\d{4}-\d\d-\d\d", v)) and bool(datetime.date.fromisoformat(v)))
    check("uuid")(lambda v: len(v) == 36 and bool(uuid.UUID(v)))
    check("ipv4")(lambda v: bool(ipaddress.IPv4Address(v)))
    check("ipv6")(lambda v: bool(ipaddress.IPv6Address(v)) or True)
    check("email")(lambda v: "@" in v)
    check("time")(lambda v: bool(re.fullmatch(r"\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", v)))

    @check("date-time")
    def date_time(v):
        m = re.fullmatch(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)", v)
        return bool(m) and bool(datetime.date.fromisoformat(m[1])) and bool(datetime.time.fromisoformat(m[2]))
    return checker


FORMAT_CHECKER = formats()


class Maker:
    """A random schema and, with it, a function that makes values which satisfy it."""

    def __init__(self, rng):
        self.rng = rng

    def schema(self, depth=0):
        r = self.rng
        kinds = [self.string, self.integer, self.number, self.enum, self.const, self.scalar, self.pattern, self.fmt]
        if depth < 4:
            kinds += [self.object, self.object, self.array, self.prefix, self.any_of, self.map, self.all_of, self.patterns]
        if depth == 0 and r.random() < 0.1:
            return self.recursive()
        return r.choice(kinds)(depth)

    def word(self):
        return self.rng.choice(WORDS)

    def string(self, _):
        r = self.rng
        s, lo, hi = {"type": "string"}, 0, 12
        if r.random() < 0.4:
            lo = s["minLength"] = r.randrange(5)
        if r.random() < 0.5:
            hi = s["maxLength"] = lo + r.randrange(12)

        def make():
            text = "".join(self.word() for _ in range(6))[:r.randint(lo, hi)]
            return text + "z" * (lo - len(text))
        return s, make

    def pattern(self, _):
        r = self.rng
        p, make = r.choice([
            ("^[a-z]+$", lambda: "abc"), ("^[A-Z]{2,4}-\\d{3}$", lambda: "AB-123"), ("foo", lambda: "a foo b"),
            ("^(yes|no)", lambda: "yesterday"), ("x$", lambda: "axx"), ("^\\S+@\\S+$", lambda: "me@you"),
            ("^.{0,5}$", lambda: "été"), ("(a|b)*$", lambda: "zz"), ("^(?:ab)+c?$", lambda: "ababc"),
            ("[0-9]{2}", lambda: "n 42"), ("^$", lambda: ""), ("^[^\"\\\\]{1,9}$", lambda: "plain"),
        ])
        s = {"type": "string", "pattern": p}
        if r.random() < 0.3:
            s["maxLength"] = max(len(make()), r.randrange(12))
        return s, make

    def fmt(self, _):
        f, v = self.rng.choice([
            ("date", "2024-02-29"), ("date-time", "1999-12-31T23:59:59.5+01:00"), ("time", "00:00:00Z"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000"), ("email", "a.b@c.org"), ("ipv4", "10.0.255.1"),
            ("ipv6", "fe80::1"), ("uri", "https://a.b/c?d#e")])
        return {"type": "string", "format": f}, lambda: v

    def bounds(self, s, step, digits):
        r = self.rng
        lo = round(r.uniform(-200, 200), digits)
        hi = round(lo + r.uniform(4 * step, 300), digits)
        if digits == 0:
            lo, hi = int(lo), int(hi)
        if r.random() < 0.6:
            s[r.choice(["minimum", "exclusiveMinimum"])] = lo
        else:
            lo = -1000
        if r.random() < 0.6:
            s[r.choice(["maximum", "exclusiveMaximum"])] = hi
        else:
            hi = 1000 + int(lo)
        return lo, hi

    def integer(self, _):
        s = {"type": "integer"}
        lo, hi = self.bounds(s, 1, self.rng.choice([0, 0, 1]))
        m = 1
        if self.rng.random() < 0.2 and hi - lo > 100:
            m = s["multipleOf"] = self.rng.choice([2, 3, 5, 7, 10, 25])
        lo, hi = int(lo) // m + 2, int(hi) // m - 1
        return s, lambda: m * self.rng.randint(lo, max(lo, hi)) if hi >= lo else None

    def number(self, _):
        s = {"type": "number"}
        lo, hi = self.bounds(s, 0.5, self.rng.choice([0, 1, 2]))
        return s, lambda: round(self.rng.uniform(lo + 0.1, hi - 0.1), 2)

    def scalar(self, _):
        t, v = self.rng.choice([("boolean", True), ("null", None), (["string", "null"], "x"), (["integer", "boolean"], 7)])
        return {"type": t}, lambda: v

    def enum(self, _):
        r = self.rng
        values = r.sample([1, 2.5, True, None, "a", "été", "q\"", [1, "x"], {"k": [None]}, -7, "", "ab", "abc", 1e20], r.randint(1, 6))
        s = {"enum": values}
        if r.random() < 0.3:
            s["type"] = "string"
            values = [v for v in values if isinstance(v, str)]
        return s, (lambda: r.choice(values)) if values else None

    def const(self, _):
        v = self.rng.choice([1, "x", None, False, [1, 2], {"a": 1}, "tab\t"])
        return {"const": v}, lambda: v

    def object(self, depth):
        r = self.rng
        s = {"type": "object", "properties": {}}
        makers, required = {}, []
        for k in r.sample(KEYS, r.randint(0, 5)):
            s["properties"][k], makers[k] = self.schema(depth + 1)
            if r.random() < 0.5 and makers[k]:
                required.append(k)
        if required:
            s["required"] = required
        if r.random() < 0.3:
            s["additionalProperties"] = False

        def make():
            return {k: m() for k, m in makers.items() if m and (k in required or r.random() < 0.5)}
        return s, make

    def map(self, depth):
        sub, maker = self.schema(depth + 1)
        s = {"type": "object", "additionalProperties": sub}
        fixed = {}
        if self.rng.random() < 0.5:
            s["properties"] = {"id": {"type": "integer"}}
            s["required"] = ["id"]
            fixed = {"id": 3}
        keys = ["p", "ident", "i", "idx", "Ω"]
        return s, lambda: {**fixed, **({k: maker() for k in self.rng.sample(keys, 2)} if maker else {})}

    def patterns(self, depth):
        sub, maker = self.schema(depth + 1)
        s = {"type": "object", "patternProperties": {"^x": sub, "\\d$": {"type": ["integer", "string"]}},
             "additionalProperties": self.rng.choice([False, {"type": "boolean"}])}
        return s, lambda: {"x": maker(), "k1": 5} if maker else {"k1": "s"}

    def array(self, depth):
        r = self.rng
        sub, maker = self.schema(depth + 1)
        s, lo, hi = {"type": "array", "items": sub}, 0, 4
        if r.random() < 0.4:
            lo = s["minItems"] = r.randrange(3) if maker else 0
        if r.random() < 0.4:
            hi = s["maxItems"] = lo + r.randrange(4)
        return s, lambda: [maker() for _ in range(r.randint(lo, hi))] if maker else []

    def prefix(self, depth):
        r = self.rng
        parts = [self.schema(depth + 1) for _ in range(r.randint(1, 3))]
        s = {"type": "array", "prefixItems": [p for p, _ in parts], "items": r.choice([False, {"type": "null"}])}
        makers = [m for _, m in parts]
        return s, lambda: [m() for m in makers] if all(makers) else []

    def any_of(self, depth):
        parts = [self.schema(depth + 1) for _ in range(self.rng.randint(1, 3))]
        makers = [m for _, m in parts if m]
        return {"anyOf": [p for p, _ in parts]}, (lambda: self.rng.choice(makers)()) if makers else None

    def all_of(self, depth):
        a, b = self.object(depth + 1), self.object(depth + 1)
        shared = set(a[0]["properties"]) & set(b[0]["properties"])
        for k in shared:
            del b[0]["properties"][k]
        b[0]["required"] = [k for k in b[0].get("required", []) if k not in shared]
        for s in (a[0], b[0]):
            s.pop("additionalProperties", None)
        order = list(a[0]["properties"]) + list(b[0]["properties"])

        def make():
            both = a[1]()
            both.update({k: v for k, v in b[1]().items() if k not in shared})
            return {k: both[k] for k in order if k in both}
        return {"allOf": [a[0], b[0]]}, make

    def recursive(self):
        s = {"$ref": "#/$defs/node", "$defs": {"node": {
            "type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"},
                                             "all": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["v"]}}}

        def make(n=3):
            out = {"v": n}
            if n and self.rng.random() < 0.7:
                out["next"] = make(n - 1)
            if n and self.rng.random() < 0.5:
                out["all"] = [make(n - 1)]
            return out
        return s, make


def damage(rng, value):
    """The value with one thing changed."""
    if isinstance(value, dict) and value:
        out = dict(value)
        k = rng.choice(list(out))
        what = rng.random()
        if what < 0.3:
            del out[k]
        elif what < 0.45:
            out["zz"] = 1
        else:
            out[k] = damage(rng, out[k])
        return out
    if isinstance(value, list) and value:
        out = list(value)
        i = rng.randrange(len(out))
        if rng.random() < 0.3:
            out.append(out[i])
        elif rng.random() < 0.4:
            del out[i]
        else:
            out[i] = damage(rng, out[i])
        return out
    return rng.choice([None, True, 0, -1, 1.5, "", "zzz", "x" * 30, [], {}, 10**6, -10**6, "A1"])


def main():
    probe, count, seed = sys.argv[1], int(sys.argv[2] if len(sys.argv) > 2 else 300), int(sys.argv[3] if len(sys.argv) > 3 else 1)
    print(f"seed={seed} count={count}")
    child = subprocess.Popen([probe] + sys.argv[4:5], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    stats = {"schemas": 0, "empty": 0, "samples": 0, "unfinished": 0, "accepted": 0, "refused": 0}
    failures = 0

    def fail(i, what, schema, doc):
        nonlocal failures
        failures += 1
        if failures < 10:
            print(f"schema {i}: {what}\n  {json.dumps(schema, ensure_ascii=False)}\n  {doc}")

    for i in range(count):
        rng = random.Random(seed * 1000003 + i)
        schema, maker = Maker(rng).schema()
        validator = jsonschema.Draft202012Validator(schema, format_checker=FORMAT_CHECKER)
        good, bad = [], []
        for _ in range(3 if maker else 0):
            value = maker()
            if validator.is_valid(value):
                good.append(json.dumps(value, ensure_ascii=False))
                good.append(json.dumps(value, ensure_ascii=False, indent=2))
                good.append(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
            for _ in range(3):
                broken = damage(rng, value)
                if not validator.is_valid(broken):
                    bad.append(json.dumps(broken))
        line = {"kind": "json_schema", "text": json.dumps(schema), "docs": good + bad, "samples": 4, "seed": seed + i}
        child.stdin.write(json.dumps(line).encode() + b"\n")
        child.stdin.flush()
        reply = child.stdout.readline()
        if not reply:
            print(f"schema {i}: the probe died: {json.dumps(schema)}")
            return 1
        reply = json.loads(reply)
        stats["schemas"] += 1
        if "error" in reply:
            stats["empty"] += 1
            if good or "no " not in reply["error"]:
                fail(i, reply["error"], schema, "")
            continue
        for doc, (taken, ends) in zip(good + bad, reply["docs"]):
            if doc in good:
                stats["accepted"] += 1
                if not ends:
                    fail(i, f"refused at byte {taken}", schema, doc)
            else:
                stats["refused"] += 1
                if ends:
                    fail(i, "accepted", schema, doc)
        for sample in reply["samples"]:
            stats["samples"] += 1
            if isinstance(sample, dict):
                if "error" in sample:
                    fail(i, sample["error"], schema, "")
                else:
                    stats["unfinished"] += 1
                continue
            try:
                value = json.loads(sample)
                error = jsonschema.exceptions.best_match(validator.iter_errors(value))
            except ValueError as e:
                error = e
            if error is not None:
                fail(i, f"sampled, but {error}", schema, sample)
    child.stdin.close()
    print(stats, f"failures={failures}")
    return 1 if failures or child.wait() else 0


if __name__ == "__main__":
    sys.exit(main())
