#!/usr/bin/env python3
"""Writes tests/fuzz/corpus/gguf: tiny whole models and odd headers. Needs gguf."""
import os

import gguf
import numpy as np

OUT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fuzz", "corpus", "gguf")


def model(arch, kind, factors=False):
    w = gguf.GGUFWriter(os.path.join(OUT, f"{arch}-{kind.name.lower()}"), arch)
    w.add_block_count(1)
    w.add_context_length(64)
    w.add_embedding_length(32)
    w.add_feed_forward_length(32)
    w.add_head_count(2)
    w.add_head_count_kv(1)
    w.add_key_length(16)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_freq_base(10000.0)
    w.add_token_list(["a", "b", "c", "d"])
    w.add_token_types([1, 1, 1, 3])
    w.add_eos_token_id(3)
    w.add_bool("test.bool", True)
    w.add_float64("test.f64", 0.5)
    if arch == "qwen3":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(4.0)
        w.add_rope_scaling_orig_ctx_len(16)
    shapes = {"token_embd": (4, 32), "output_norm": (32,), "blk.0.attn_norm": (32,), "blk.0.ffn_norm": (32,),
              "blk.0.attn_q": (32, 32), "blk.0.attn_k": (16, 32), "blk.0.attn_v": (16, 32), "blk.0.attn_output": (32, 32),
              "blk.0.ffn_gate": (32, 32), "blk.0.ffn_up": (32, 32), "blk.0.ffn_down": (32, 32)}
    if arch == "qwen3":
        shapes.update({"blk.0.attn_q_norm": (16,), "blk.0.attn_k_norm": (16,)})
    for name, shape in shapes.items():
        data = np.ones(shape, dtype=np.float32)
        if len(shape) == 1:
            w.add_tensor(name + ".weight", data)
        else:
            w.add_tensor(name + ".weight", gguf.quants.quantize(data, kind), raw_dtype=kind)
    if factors:
        w.add_tensor("rope_freqs.weight", np.ones(8, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


os.makedirs(OUT, exist_ok=True)
model("qwen3", gguf.GGMLQuantizationType.Q8_0)
model("llama", gguf.GGMLQuantizationType.Q4_0, factors=True)
