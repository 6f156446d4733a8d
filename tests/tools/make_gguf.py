#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a GGUF file of a Qwen3 shape with random weights and a real tokenizer, to measure speed with.

    pip install gguf numpy
    make_gguf.py SHAPE TOKENIZER OUT.gguf [--seed N] [--pre qwen2]

SHAPE      0.6b, 1.7b, 4b: the published models' shapes; wide: a small one whose widths are
           multiples of 256, so that every K type can hold it
TOKENIZER  a folder with tokenizer.json (byte-level BPE), for example of Qwen3

Weights are BF16, normal with deviation 1 / sqrt(columns). They are taken from one pool of numbers at
random places, since the speed of dense products doesn't depend on the values. Other types are made
of this file by llama.cpp's quantisation.
"""
import argparse
import json
import os

import gguf
import numpy as np

# layers, hidden, ffn, heads, KV heads, head width, vocabulary (0: the tokenizer's)
SHAPES = {
    "0.6b": (28, 1024, 3072, 16, 8, 128, 151936),
    "1.7b": (28, 2048, 6144, 16, 8, 128, 151936),
    "4b": (36, 2560, 9728, 32, 8, 128, 151936),
    "wide": (6, 512, 1536, 8, 4, 64, 0),
}
POOL = 1 << 25


def read_tokenizer(folder, vocab):
    """Tokens, their types and the merges, as GGUF has them."""
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
        t = json.load(f)
    by_id = {i: (s, gguf.TokenType.NORMAL) for s, i in t["model"]["vocab"].items()}
    for a in t["added_tokens"]:
        kind = gguf.TokenType.CONTROL if a["special"] else gguf.TokenType.USER_DEFINED
        by_id[a["id"]] = (a["content"], kind)
    n = max(vocab, max(by_id) + 1)
    entries = [by_id.get(i, (f"[PAD{i}]", gguf.TokenType.UNUSED)) for i in range(n)]
    merges = [m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]]
    return [e[0] for e in entries], [e[1] for e in entries], merges


def write_fields(w, shape, tokens, types, merges, pre):
    layers, hidden, ffn, heads, kv_heads, width, _ = shape
    w.add_block_count(layers)
    w.add_context_length(40960)
    w.add_embedding_length(hidden)
    w.add_feed_forward_length(ffn)
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_key_length(width)
    w.add_value_length(width)
    w.add_rope_freq_base(1e6)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_eos_token_id(next(i for i, t in enumerate(tokens) if t == "<|im_end|>"))
    w.add_add_bos_token(False)


class Pool:
    """Standard normal numbers; a tensor is a run of them from a random place on."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.numbers = self.rng.standard_normal(POOL, dtype=np.float32)

    def matrix(self, rows, cols):
        # Rounded to nearest: half a unit of the last place kept is added before the cut.
        scaled = self.numbers * np.float32(1 / np.sqrt(cols))
        bits = ((scaled.view(np.uint32) + np.uint32(0x8000)) >> 16).astype(np.uint16)
        start = int(self.rng.integers(POOL))
        times = -(-(start + rows * cols) // POOL)
        return np.tile(bits, times)[start:start + rows * cols].reshape(rows, cols)


def tensors(shape, vocab):
    """Names, rows and columns; rows 0: a vector of ones."""
    layers, hidden, ffn, heads, kv_heads, width, _ = shape
    yield "token_embd.weight", vocab, hidden
    yield "output_norm.weight", 0, hidden
    for i in range(layers):
        b = f"blk.{i}."
        yield b + "attn_norm.weight", 0, hidden
        yield b + "attn_q.weight", heads * width, hidden
        yield b + "attn_k.weight", kv_heads * width, hidden
        yield b + "attn_v.weight", kv_heads * width, hidden
        yield b + "attn_q_norm.weight", 0, width
        yield b + "attn_k_norm.weight", 0, width
        yield b + "attn_output.weight", hidden, heads * width
        yield b + "ffn_norm.weight", 0, hidden
        yield b + "ffn_gate.weight", ffn, hidden
        yield b + "ffn_up.weight", ffn, hidden
        yield b + "ffn_down.weight", hidden, ffn


def write_tensors(w, shape, vocab, pool):
    """All descriptions, then one tensor's numbers after the other: the model is never in memory."""
    bf16, f32 = gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.F32
    for name, rows, cols in tensors(shape, vocab):
        if rows > 0:
            w.add_tensor_info(name, (rows, 2 * cols), np.dtype(np.uint8), 2 * rows * cols, bf16)
        else:
            w.add_tensor_info(name, (cols,), np.dtype(np.float32), 4 * cols, f32)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    for _, rows, cols in tensors(shape, vocab):
        if rows > 0:
            w.write_tensor_data(pool.matrix(rows, cols).view(np.uint8))
        else:
            w.write_tensor_data(np.ones(cols, dtype=np.float32))


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("shape", choices=SHAPES)
    p.add_argument("tokenizer")
    p.add_argument("out")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--pre", default="qwen2", help="name of the pre-tokenizer; default qwen2")
    a = p.parse_args()
    shape = SHAPES[a.shape]
    tokens, types, merges = read_tokenizer(a.tokenizer, shape[6])
    w = gguf.GGUFWriter(a.out + ".part", "qwen3")
    write_fields(w, shape, tokens, types, merges, a.pre)
    write_tensors(w, shape, len(tokens), Pool(a.seed))
    w.close()
    os.replace(a.out + ".part", a.out)
    print(json.dumps({"out": a.out, "bytes": os.path.getsize(a.out), "seed": a.seed}))


if __name__ == "__main__":
    main()
