#!/usr/bin/env python3
"""Structured output over HTTP: rows of the fault list by name. What the grammar itself does is tested in tests/cases; here it is what
a client sees.

usage: test_structured.py ROW…
"""
import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Server

SERVER = None
CHAT = {"messages": [{"role": "user", "content": "What is 12 + 6?"}], "max_tokens": 200, "temperature": 1, "seed": 5}


def setUpModule():
    global SERVER
    SERVER = Server()


def tearDownModule():
    assert SERVER.get("/health")[0] == 200
    assert SERVER.stop() == 0


def schema(s):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": s}}}


def ask(**fields):
    return SERVER.post("/v1/chat/completions", {**CHAT, **fields})


def content(**fields):
    status, out = ask(**fields)
    assert status == 200, out
    return out["choices"][0]["message"]["content"], out["choices"][0]["finish_reason"]


class Rows(unittest.TestCase):
    def JS1(self):
        """What can't be enforced is a 400 that says where, never an answer without the constraint."""
        for bad, pointer in (({"type": "string", "pattern": "(?=x)a"}, "/pattern"), ({"properties": {"a": {"not": {}}}}, "/properties/a/not"),
                             ({"if": {}}, "/if"), ({"$ref": "#/nowhere"}, "/$ref"), ({"type": "strange"}, "/type")):
            status, out = ask(**schema(bad))
            self.assertEqual(status, 400, bad)
            self.assertIn(pointer, out["error"]["message"])
            self.assertEqual(out["error"]["param"], "response_format.json_schema.schema")
        for field in ("grammar", "guided_grammar"):
            status, out = ask(**{field: "root ::= ("})
            self.assertEqual((status, out["error"]["param"]), (400, field))

    def JS2(self):
        text, reason = content(**schema({"type": "string", "minLength": 1, "maxLength": 100000}))
        if reason == "stop":
            self.assertIsInstance(json.loads(text), str)

    def JS4(self):
        for pattern, good in (("^(?=x)", False), ("(a|b)*$", True), ("", True), ("^[0-9]{3}$", True)):
            status, out = ask(**schema({"type": "string", "pattern": pattern, "maxLength": 20}))
            self.assertEqual(status, 200 if good else 400, (pattern, out))
        text, _ = content(**schema({"type": "string", "pattern": "^[0-9]{3}$"}))
        self.assertRegex(json.loads(text), "^[0-9]{3}$")

    def JS5(self):
        for grammar in ("root ::= " + "(" * 60000 + '"a"' + ")" * 60000, "root ::= root", 'root ::= "', "root ::= [", "x" * 100000, "root ::= nowhere"):
            status, _ = ask(structured_outputs={"grammar": grammar})
            self.assertEqual(status, 400, grammar[:40])

    def JS6(self):
        tree = {"$defs": {"t": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}]}},
                                "required": ["v", "next"]}}, "type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/t"}}
        text, reason = content(**schema(tree))
        if reason == "stop":
            self.assertLessEqual(len(json.loads(text)), 2)

    def JS7(self):
        deep = {"type": "integer"}
        for _ in range(200):
            deep = {"type": "object", "properties": {"a": deep}}
        self.assertIn(ask(**schema(deep))[0], (200, 400))
        nested = '{"properties":{"a":' * 10000 + "{}" + "}}" * 10000
        body = json.dumps({**CHAT, **schema({})}).replace('"schema": {}', '"schema": ' + nested)
        status, out = SERVER.post("/v1/chat/completions", body.encode())
        self.assertEqual(status, 400, out)

    def JS9(self):
        text, reason = content(**schema({"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2}))
        if reason == "stop":
            self.assertTrue(all(v == int(v) for v in json.loads(text).values()), text)
        for seed in range(6):
            text, _ = content(**schema({"enum": [1, True, None]}), seed=seed)
            self.assertIn(text, ("1", "true", "null"))

    def JS10(self):
        text, _ = content(**schema({"type": "object", "properties": {k: {"type": "boolean"} for k in "zya"}, "required": list("zya")}), temperature=0, max_tokens=1500)
        self.assertEqual(list(json.loads(text)), list("zya"))

    def JS11(self):
        for seed in range(4):
            text, reason = content(response_format={"type": "json_object"}, seed=seed, max_tokens=400)
            self.assertIsNone(re.search(r"\s{65}", text), text)
            if reason == "stop":
                json.loads(text)

    def JS12(self):
        for seed in range(4):
            text, _ = content(**schema({"type": "number"}), seed=seed)
            self.assertLessEqual(len(text), 60)
            json.loads(text)
        self.assertEqual(ask(**schema({}))[0], 200)

    def JS14(self):
        """With streaming, n, stop, log-probabilities and the other names of the fields."""
        want = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"]}
        for fields in (schema(want), {"structured_outputs": {"json": want}}, {"guided_json": want}, {"json_schema": json.dumps(want)},
                       {"response_format": {"type": "json_object", "schema": want}}):
            body = {**CHAT, **fields, "n": 3, "logprobs": True, "top_logprobs": 2, "stop": ["@@"]}
            status, out = SERVER.post("/v1/chat/completions", body)
            self.assertEqual(status, 200, out)
            frames = [f for f in SERVER.stream("/v1/chat/completions", body) if f != "[DONE]"]
            for c in out["choices"]:
                self.assertIn(json.loads(c["message"]["content"])["n"], range(100))
                mine = [f["choices"][0] for f in frames if f["choices"][0]["index"] == c["index"]]
                self.assertEqual("".join(m["delta"].get("content") or "" for m in mine), c["message"]["content"])
                self.assertEqual(sum((m["logprobs"]["content"] for m in mine), []), c["logprobs"]["content"])
        for field, value in (("structured_outputs", {"choice": ["yes", "no"]}), ("guided_choice", ["yes", "no"]), ("guided_regex", "yes|no"),
                             ("grammar", 'root ::= "yes" | "no"')):
            self.assertIn(content(**{field: value})[0], ("yes", "no"))
        status, out = ask(**schema(want), guided_regex="a")
        self.assertEqual(status, 400)


if __name__ == "__main__":
    names = sys.argv[1:] or [n for n in dir(Rows) if n.startswith("JS")]
    result = unittest.TextTestRunner().run(unittest.TestSuite(Rows(n) for n in names))
    sys.exit(not result.wasSuccessful())
