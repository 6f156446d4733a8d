#!/usr/bin/env python3
"""Writes tests/golden/dequant.safetensors: random blocks of every quantised type of GGUF that Echelon reads, and what the
gguf package makes of them. Needs gguf and safetensors. Scales are finite; all else is any byte."""
import os

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize
from safetensors.numpy import save_file

N_BLOCKS = 6
# Bytes of a block at which an f16 scale stands.
SCALES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
    T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.MXFP4: [],
}


def main():
    rng = np.random.default_rng(1)
    tensors = {}
    for kind, scales in SCALES.items():
        elems, size = GGML_QUANT_SIZES[kind]
        blocks = rng.integers(0, 256, (N_BLOCKS, size), dtype=np.uint8)
        for at in scales:
            values = (rng.standard_normal(N_BLOCKS) * 0.1).astype(np.float16)
            values[0] = np.float16(3e-7)  # a subnormal
            blocks[:, at:at + 2] = values.view(np.uint8).reshape(N_BLOCKS, 2)
        if kind == T.MXFP4:
            blocks[:, 0] = [0, 1, 2, 100, 127, 140]
        name = kind.name.lower()
        tensors[name + ".blocks"] = blocks
        tensors[name + ".values"] = dequantize(blocks, kind).astype(np.float32).reshape(N_BLOCKS * elems)
    out = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden", "dequant.safetensors")
    save_file(tensors, out)


main()
