#!/usr/bin/env python3
"""Writes tests/golden/embeddings.json: the last_hidden_state of the golden models as transformers computes it in f32, pooled three
ways and scaled to length 1, for prompts of 1 to 200 ids. Needs torch and transformers; run it from the project's folder."""
import json
import pathlib

import torch
from transformers import AutoModel

GOLDEN = pathlib.Path("tests/golden")
MODELS = [GOLDEN / "qwen3" / n for n in ("gqa-tied-bf16", "mha-f16", "mqa-sharded-bf16", "untied-f32", "yarn-bf16")]
MODELS += [GOLDEN / "llama" / n for n in ("llama3-rope-bf16", "tied-f32")]
LENGTHS = (1, 7, 40, 200)


def pooled(hidden):
    rows = {"mean": hidden.double().mean(0), "cls": hidden[0].double(), "last": hidden[-1].double()}
    return {k: [float(f"{x:.7g}") for x in v / v.norm()] for k, v in rows.items()}


def main():
    out = []
    for path in MODELS:
        model = AutoModel.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
        generator = torch.Generator().manual_seed(1)
        for n in LENGTHS:
            ids = torch.randint(0, model.config.vocab_size, (1, n), generator=generator)
            with torch.no_grad():
                hidden = model(ids).last_hidden_state[0]
            out.append({"model": str(path), "ids": ids[0].tolist(), **pooled(hidden)})
    lines = ",\n".join(json.dumps(row) for row in out)
    (GOLDEN / "embeddings.json").write_text("[\n" + lines + "\n]\n")


main()
