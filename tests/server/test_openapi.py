#!/usr/bin/env python3
"""The description of the API: docs/api.md is current, /openapi.json is valid, and its bounds are those of a running server.

usage: test_openapi.py doc | document | ranges | large
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import ECHELON, Server


def doc():
    made = subprocess.run([ECHELON, "serve", "--print-api"], capture_output=True, text=True, check=True).stdout
    with open("docs/api.md") as f:
        assert f.read() == made, "docs/api.md is stale: echelon serve --print-api > docs/api.md"


def refs(node):
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for v in node.values():
            yield from refs(v)
    elif isinstance(node, list):
        for v in node:
            yield from refs(v)


def document():
    server = Server()
    try:
        status, d = server.get("/openapi.json")
    finally:
        assert server.stop() == 0
    assert status == 200 and d["openapi"].startswith("3.1")
    for ref in refs(d):
        assert ref.rpartition("/")[2] in d["components"]["schemas"], ref
    chat = d["paths"]["/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert chat["required"] == ["messages"] and {"temperature", "tools", "seed"} <= set(chat["properties"])
    assert "input" in d["paths"]["/embeddings"]["post"]["requestBody"]["content"]["application/json"]["schema"]["required"]
    try:
        from openapi_spec_validator import validate
    except ImportError:
        print("openapi-spec-validator is missing: the document's own schema was not checked")
        return
    validate(d)


NEEDED = {"/chat/completions": {"messages": [{"role": "user", "content": "a"}]}, "/completions": {"prompt": "a"}, "/responses": {"input": "a"},
          "/messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}, "/embeddings": {"input": "a"}}


def numbers(d):
    """(path, field, its schema) for each field that is a number."""
    for path in NEEDED:
        schema = d["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        for name, field in schema["properties"].items():
            s = next((f for f in field.get("anyOf", [field]) if f.get("type") in ("number", "integer")), None)
            if s and all(f.get("type") in ("number", "integer", "null") for f in field.get("anyOf", [])):
                yield path, name, s


def beyond(s):
    """Values that no number of this schema may have."""
    yield from ("1", [], {}, True, 1e300, -1e300)
    if s.get("type") == "integer":
        yield 0.5
    if "minimum" in s:
        yield from (s["minimum"] - 1, s["maximum"] + 1, 2 * s["maximum"] + 2, -(2**62), 2**62)


class Spelled(str):
    """A number as it stands in a body; Python's own writer knows no 1e400."""


def body(fields):
    """The fields as JSON, each Spelled as itself."""
    out, spelled = {}, []
    for name, value in fields.items():
        spelled += [value] if isinstance(value, Spelled) else []
        out[name] = f"@{len(spelled) - 1}@" if isinstance(value, Spelled) else value
    text = json.dumps(out)
    for i, value in enumerate(spelled):
        text = text.replace(f'"@{i}@"', value)
    return text.encode()


# JSON all of them; more than the reader's integers hold, or its doubles.
LARGE = [Spelled(x) for x in ("9223372036854775808", "18446744073709551615", "18446744073709551616", "-9223372036854775809",
                              "-18446744073709551616", "1" + "0" * 400, "-" + "9" * 5000, "1e400", "-1e400", "1.5E+999")]


def large():
    """Numbers of any size are JSON: a field that takes a number names itself and its bounds, a field that doesn't matter doesn't."""
    server = Server("--max-seq-len", "64", "--max-tokens", "2")
    quiet = {"/completions": {"max_tokens": 1}, "/chat/completions": {"max_tokens": 1}, "/responses": {"max_output_tokens": 1}, "/messages": {"max_tokens": 1}}
    try:
        _, d = server.get("/openapi.json")
        n = 0
        for path, name, s in numbers(d):
            for value in LARGE:
                status, out = server.post(path, body({**NEEDED[path], name: value}))
                error = out.get("error") or {}
                assert status == 400 and error.get("param") == name, (path, name, value[:30], status, out)
                assert "minimum" not in s or f"is out of range: {s['minimum']:.10g} to " in error["message"], (path, name, value[:30], out)
                n += 1
        assert n > 800, n
        # Fields that take numbers within: none is "no JSON", all have their name.
        chat = NEEDED["/chat/completions"]
        for value in LARGE:
            ids, bias, made = Spelled(f"[1,{value}]"), Spelled(f'{{"1":{value}}}'), Spelled(f"[[1,{value}]]")
            for path, fields, param in (("/completions", {"prompt": ids}, "prompt"), ("/completions", {"prompt": made}, "prompt"),
                                        ("/completions", {"prompt": value}, "prompt"), ("/embeddings", {"input": ids}, "input"),
                                        ("/detokenize", {"tokens": ids}, "tokens"), ("/tokenize", {"prompt": value}, "prompt"),
                                        ("/tokenize", {"content": value}, "content"), ("/tokenize", {"text": value}, "text"),
                                        ("/completions", {"prompt": "a", "stop_token_ids": ids}, "stop_token_ids"),
                                        ("/completions", {"prompt": "a", "allowed_token_ids": ids}, "allowed_token_ids"),
                                        ("/completions", {"prompt": "a", "logit_bias": bias}, "logit_bias"),
                                        ("/completions", {"prompt": "a", "logprobs": value}, "logprobs"),
                                        ("/completions", {"prompt": "a", "stop": value}, "stop"),
                                        ("/chat/completions", {**chat, "model": value}, "model"),
                                        ("/chat/completions", {"messages": value}, "messages"),
                                        ("/messages", {**chat, "max_tokens": 1, "thinking": Spelled(f'{{"type":"enabled","budget_tokens":{value}}}')}, "thinking")):
                status, out = server.post(path, body(fields))
                assert status == 400 and out["error"]["param"].startswith(param), (path, param, value[:30], status, out)
        # Nobody looks at them, however deep they lie.
        for path, needed in {**NEEDED, "/tokenize": {"content": "a"}, "/detokenize": {"tokens": [1]}, "/apply-template": chat,
                             "/messages/count_tokens": NEEDED["/messages"]}.items():
            for value in LARGE:
                for deep in (value, Spelled(f'{{"a":[1,{value},"{value}"]}}')):
                    status, out = server.post(path, body({**needed, **quiet.get(path, {}), "some_field": deep, "metadata": deep}))
                    assert status == 200, (path, value[:30], status, out)
        # A tool's schema is shown to the model as it was written, and holds it.
        tool = '[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"n":{"type":"integer","maximum":%s}}}}}]'
        status, out = server.post("/apply-template", body({**chat, "tools": Spelled(tool % "18446744073709551615")}))
        assert status == 200 and '"maximum": 18446744073709551615}' in out["prompt"], out
        status, out = server.post("/chat/completions", body({**chat, "max_tokens": 40, "temperature": 0,
                                                             "json_schema": Spelled('{"const":18446744073709551615}')}))
        assert status == 200 and "18446744073709551615".startswith(out["choices"][0]["message"]["content"]), out
        # What is no JSON is still none, at its own place.
        broken = [server.post("/completions", b'{"prompt":"a","x":1' + pad * 30 + b',"y":01}') for pad in (b"0", b" ")]
        assert broken[0] == broken[1] and broken[0][1]["error"]["code"] == "invalid_json", broken
    finally:
        assert server.stop() == 0


def ranges():
    """Beyond a field's bounds: a 400 whose param is its name. At its bounds: no 400 that names nothing, so the engine's are no narrower."""
    server = Server("--max-seq-len", "32", "--max-tokens", "2")
    n = 0
    try:
        _, d = server.get("/openapi.json")
        for path, name, s in numbers(d):
            for value in beyond(s):
                status, out = server.post(path, {**NEEDED[path], name: value})
                error = out.get("error") or {}
                assert status == 400 and error.get("param") == name, (path, name, value, status, out)
            n += 1
            for value in (s["minimum"], s["maximum"]) if "minimum" in s else ():
                status, out = server.post(path, {**NEEDED[path], name: value})
                assert status == 200 or out["error"]["param"] == name, (path, name, value, status, out)
    finally:
        assert server.stop() == 0
    assert n > 80, n


if __name__ == "__main__":
    {"doc": doc, "document": document, "ranges": ranges, "large": large}[sys.argv[1]]()
