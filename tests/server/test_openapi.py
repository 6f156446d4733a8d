#!/usr/bin/env python3
"""The description of the API: docs/api.md is current, /openapi.json is valid and true of a running server.

usage: test_openapi.py doc | document | random EXAMPLES [SEED]      exit code 77: a package is missing
"""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import ECHELON, Server

CHECKS = "not_a_server_error,response_schema_conformance,content_type_conformance,status_code_conformance"


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


def random(examples, seed="1"):
    """schemathesis: whatever a client sends, no 5xx but 503 with retry-after, and every answer as described."""
    program = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    if not os.path.exists(program):
        print("schemathesis is missing")
        sys.exit(77)
    server = Server("--max-seq-len", "2048", "--max-tokens", "8")
    folder = tempfile.mkdtemp()  # it leaves a cache where it runs
    try:
        done = subprocess.run([program, "run", f"http://127.0.0.1:{server.port}/openapi.json", "--checks", CHECKS, "--max-examples", examples,
                               "--request-timeout", "30", "--seed", seed, "--no-color", "--phases", "coverage,fuzzing",
                               "--continue-on-failure"], capture_output=True, text=True, cwd=folder)
        assert server.get("/health")[0] == 200
    finally:
        shutil.rmtree(folder)
        assert server.stop() == 0
    print(done.stdout[-4000:])
    assert done.returncode == 0, done.stderr[-2000:]


if __name__ == "__main__":
    {"doc": doc, "document": document, "random": random}[sys.argv[1]](*sys.argv[2:])
