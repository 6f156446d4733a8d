#!/usr/bin/env python3
"""A GGUF file through the whole program: its tokenizer encodes the golden prompts, its weights give the golden ids.
ECHELON names the program."""
import json
import os
import subprocess
import sys

GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden")


def main():
    model = os.path.join(GOLDEN, "gguf", "gqa-tied-bf16-00001-of-00003.gguf")
    rows = json.load(open(os.path.join(GOLDEN, "qwen3", "gqa-tied-bf16.expected.json"), encoding="utf-8"))
    command = [os.environ["ECHELON"], "generate", "--model-dir", model, "--json", "--ignore-eos", "--quiet",
               "--max-new-tokens", str(len(rows[0]["greedy_ids"]))]
    for row in rows:
        command += ["--prompt", row["prompt"]]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if out.returncode != 0:
        sys.exit(out.stderr)
    failed = False
    for row, line in zip(rows, out.stdout.splitlines(), strict=True):
        got = json.loads(line)
        if got["token_ids"] != row["greedy_ids"] or got["usage"]["prompt_tokens"] != len(row["prompt_ids"]):
            print(f"{row['prompt']!r}: expected {row['greedy_ids']}, found {got}")
            failed = True
    return failed


sys.exit(main())
