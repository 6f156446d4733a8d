#!/usr/bin/env python3
"""The description of the API: docs/api.md is current, /openapi.json is valid, and its bounds are those of a running server.

usage: test_openapi.py doc | document | ranges
"""
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
    {"doc": doc, "document": document, "ranges": ranges}[sys.argv[1]]()
