#!/usr/bin/env python3
"""The description of the API: docs/api.md is current and /openapi.json valid.

usage: test_openapi.py doc | document
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


if __name__ == "__main__":
    {"doc": doc, "document": document}[sys.argv[1]]()
