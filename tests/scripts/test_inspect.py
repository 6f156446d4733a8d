#!/usr/bin/env python3
"""echelon inspect as a user meets it: text, JSON, sizes that add up, errors with the right exit code. ECHELON names the program."""
import json
import os
import subprocess
import sys

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GOLDEN = os.path.join(TESTS, "golden")
TALE = os.path.join(os.path.dirname(TESTS), "models", "tale")


def run(*args, **env):
    return subprocess.run([os.environ["ECHELON"], "inspect", *args], capture_output=True, text=True, timeout=60,
                          env={**os.environ, **env})


def check(what, ok, out):
    if not ok:
        sys.exit(f"{what}: exit code {out.returncode}\n{out.stdout[:2000]}{out.stderr}")


def check_json(path):
    out = run("--json", path)
    check(path, out.returncode == 0, out)
    m = json.loads(out.stdout)
    tensors = m["tensors"]
    check(path, sum(t["bytes"] for t in tensors) == m["source_bytes"], out)
    check(path, sum(t["packed_bytes"] for t in tensors if t["read_per_step"]) <= m["step_bytes"] <= m["packed_bytes"], out)
    elements = 0
    for t in tensors:
        n = 1
        for d in t["shape"]:
            n *= d
        elements += n
        check(path, os.path.getsize(t["file"]) >= t["offset"] + t["bytes"], out)
    check(path, elements == m["parameters"], out)
    text = run(path)
    check(path, text.returncode == 0 and m["architecture"] in text.stdout and "a step reads" in text.stdout, text)


def main():
    for path in [TALE, *(os.path.join(GOLDEN, "qwen3", n) for n in ("untied-f32", "mqa-sharded-bf16")),
                 os.path.join(GOLDEN, "gguf", "gqa-tied-quant.gguf"), os.path.join(GOLDEN, "gguf", "llama3-rope-bf16.gguf")]:
        check_json(path)
    out = run(ECHELON_MODEL=TALE)
    check("the default model", out.returncode == 0 and TALE in out.stdout, out)
    out = run("--tensors", TALE)
    check("--tensors", out.returncode == 0 and "model.layers.5.mlp.down_proj.weight" in out.stdout, out)
    whole = json.loads(run("--json", TALE).stdout)["packed_bytes"]
    small = json.loads(run("--json", "--quantize", "q4", TALE).stdout)["packed_bytes"]
    check("--quantize", small * 2 < whole, out)
    out = run("/no/such/model")
    check("a missing model", out.returncode == 1 and "/no/such/model" in out.stderr and not out.stdout, out)
    out = run(TALE, TALE)
    check("two models", out.returncode == 2, out)
    out = run("--quantize", "q7", TALE)
    check("a wrong type", out.returncode == 2 and "q8" in out.stderr, out)


main()
