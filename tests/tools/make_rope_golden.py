#!/usr/bin/env python3
"""Writes tests/golden/rope.json: rotary frequencies as transformers computes them, for configs of every kind.

Needs torch and transformers. A line is one case: the fields to put into config.json, the bits of the f32
frequencies, and the attention factor.
"""
import json
import os
import struct

from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

BASE = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64,
        "num_hidden_layers": 1, "vocab_size": 32}


def yarn(**more):
    return {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, **more}


CASES = [
    {"head_dim": 128, "rope_theta": 1000000.0, "max_position_embeddings": 40960},
    {"head_dim": 64, "rope_theta": 10000, "max_position_embeddings": 2048},
    {"head_dim": 96, "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0}, "max_position_embeddings": 4096},
    {"head_dim": 64, "rope_theta": 10000.0, "max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 3.0}},
    {"head_dim": 64, "max_position_embeddings": 8192, "rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 500000.0}},
    {"head_dim": 128, "max_position_embeddings": 131072, "rope_theta": 500000.0,
     "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 8192}},
    {"head_dim": 64, "max_position_embeddings": 131072, "rope_theta": 500000.0,
     "rope_scaling": {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 8192}},
    {"head_dim": 128, "max_position_embeddings": 16384, "rope_theta": 1000000.0, "rope_scaling": yarn()},
    {"head_dim": 128, "max_position_embeddings": 131072, "rope_theta": 1000000.0, "rope_scaling": yarn(original_max_position_embeddings=32768)},
    {"head_dim": 64, "max_position_embeddings": 16384, "rope_theta": 10000.0, "rope_scaling": yarn(beta_fast=16.0, beta_slow=2.0)},
    {"head_dim": 64, "max_position_embeddings": 16384, "rope_theta": 10000.0, "rope_scaling": yarn(attention_factor=0.75)},
    {"head_dim": 64, "max_position_embeddings": 16384, "rope_theta": 10000.0, "rope_scaling": yarn(mscale=0.707, mscale_all_dim=1.2, factor=40.0)},
    {"head_dim": 64, "max_position_embeddings": 16384, "rope_theta": 10000.0, "rope_scaling": yarn(truncate=False)},
    {"head_dim": 32, "max_position_embeddings": 256, "rope_parameters": yarn(rope_theta=10000.0, original_max_position_embeddings=64)},
]


def main():
    out = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden", "rope.json")
    lines = []
    for case in CASES:
        rotary = Qwen3RotaryEmbedding(Qwen3Config(**BASE, **json.loads(json.dumps(case))))
        bits = [struct.unpack("<I", struct.pack("<f", x))[0] for x in rotary.inv_freq.tolist()]
        lines.append(json.dumps({"config": {"model_type": "qwen3", **BASE, **case}, "bits": bits,
                                 "attention_factor": rotary.attention_scaling}))
    with open(out, "w", encoding="ascii") as f:
        f.write("[\n" + ",\n".join(lines) + "\n]\n")


main()
