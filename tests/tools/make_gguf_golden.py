#!/usr/bin/env python3
"""Writes tests/golden/gguf from the golden models in Hugging Face's layout.

    llama3-rope-bf16.gguf            bf16, rows of queries and keys reordered, frequency factors, the llama model's logits
    gqa-tied-bf16-0000N-of-00003.gguf  bf16, split in three, metadata of every type, the qwen3 model's logits
    gqa-tied-quant.gguf              every type that the gguf package can quantise; logits of transformers in
                                     gqa-tied-quant.expected.*, from the weights as the package dequantises them

Needs gguf, safetensors, torch and transformers.
"""
import glob
import json
import os
import shutil

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as T
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

GOLDEN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "golden")
OUT = os.path.join(GOLDEN, "gguf")
LAYER = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
QUANTS = [T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.MXFP4]


def name_of(hf):
    stem = hf.removesuffix(".weight")
    if stem in TOP:
        return TOP[stem] + ".weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{LAYER[rest]}.weight"


def permute(w, n_heads):
    """Pairs (i, i + n/2) of a head side by side, as llama files have them."""
    return w.reshape(n_heads, 2, w.shape[0] // n_heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def load(folder):
    config = json.load(open(os.path.join(folder, "config.json")))
    tensors = {}
    for path in glob.glob(os.path.join(folder, "*.safetensors")):
        with safe_open(path, "pt") as f:
            tensors.update({k: f.get_tensor(k) for k in f.keys()})
    return config, tensors


def add_config(w, c):
    rope = c.get("rope_parameters") or {"rope_theta": c["rope_theta"]}
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(rope["rope_theta"])
    w.add_vocab_size(c["vocab_size"])


def add_tokenizer(w, folder, c):
    tok = json.load(open(os.path.join(folder, "tokenizer.json")))
    tokens = [""] * c["vocab_size"]
    kinds = [gguf.TokenType.UNUSED] * c["vocab_size"]
    for text, i in tok["model"]["vocab"].items():
        tokens[i], kinds[i] = text, gguf.TokenType.NORMAL
    for added in tok["added_tokens"]:
        tokens[added["id"]] = added["content"]
        kinds[added["id"]] = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
    merges = [m if isinstance(m, str) else " ".join(m) for m in tok["model"]["merges"]]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types(kinds)
    w.add_token_merges(merges)
    w.add_eos_token_id(c["eos_token_id"])
    w.add_pad_token_id(c["pad_token_id"])
    w.add_bos_token_id(c["bos_token_id"])
    w.add_add_bos_token(False)
    w.add_chat_template(open(os.path.join(folder, "chat_template.jinja"), encoding="utf-8").read())


def add_every_type(w):
    w.add_uint8("test.u8", 200)
    w.add_int8("test.i8", -100)
    w.add_uint16("test.u16", 60000)
    w.add_int16("test.i16", -30000)
    w.add_uint32("test.u32", 4000000000)
    w.add_int32("test.i32", -2000000000)
    w.add_float32("test.f32", 0.5)
    w.add_uint64("test.u64", 2**63 + 5)
    w.add_int64("test.i64", -(2**62) - 1)
    w.add_float64("test.f64", 1e300)
    w.add_bool("test.bool", True)
    w.add_string("test.string", "caf\u00e9")
    w.add_array("test.strings", ["", "one", "\u4f60\u597d"])
    w.add_array("test.ints", [1, -2, 3])
    w.add_array("test.floats", [0.25, -1.5])
    w.add_array("test.bools", [True, False])


def add_tensor(w, name, t, kind):
    if t.dim() == 1:
        w.add_tensor(name, t.float().numpy())
        return t.float()
    data = gguf.quants.quantize(t.float().numpy(), kind)
    w.add_tensor(name, data, raw_dtype=kind)
    return torch.from_numpy(gguf.quants.dequantize(data, kind).reshape(t.shape).astype(np.float32))


def llama():
    folder = os.path.join(GOLDEN, "llama", "llama3-rope-bf16")
    c, tensors = load(folder)
    w = gguf.GGUFWriter(os.path.join(OUT, "llama3-rope-bf16.gguf"), "llama")
    add_config(w, c)
    w.add_rope_dimension_count(c["head_dim"])
    add_tokenizer(w, folder, c)
    # The factors, as the converter of llama.cpp computes them.
    rope = c["rope_parameters"]
    base = rope["rope_theta"] ** (torch.arange(0, c["head_dim"], 2, dtype=torch.float32) / c["head_dim"])
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    factors = []
    for wavelen in (2 * np.pi * base).tolist():
        smooth = (rope["original_max_position_embeddings"] / wavelen - rope["low_freq_factor"]) / (rope["high_freq_factor"] - rope["low_freq_factor"])
        factors.append(1.0 if wavelen < high else rope["factor"] if wavelen > low else 1 / ((1 - smooth) / rope["factor"] + smooth))
    w.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))
    for name, t in sorted(tensors.items()):
        if "q_proj" in name:
            t = permute(t, c["num_attention_heads"])
        if "k_proj" in name:
            t = permute(t, c["num_key_value_heads"])
        add_tensor(w, name_of(name), t, T.BF16)
    finish(w)


def qwen_split():
    folder = os.path.join(GOLDEN, "qwen3", "gqa-tied-bf16")
    c, tensors = load(folder)
    w = gguf.GGUFWriter(os.path.join(OUT, "gqa-tied-bf16.gguf"), "qwen3", split_max_tensors=9)
    add_config(w, c)
    add_tokenizer(w, folder, c)
    add_every_type(w)
    for name, t in sorted(tensors.items()):
        add_tensor(w, name_of(name), t, T.BF16)
    finish(w)


def qwen_quantised():
    folder = os.path.join(GOLDEN, "qwen3", "gqa-tied-bf16")
    c, tensors = load(folder)
    # Widths that are whole blocks; the golden model's 176 isn't.
    c["intermediate_size"] = 160
    w = gguf.GGUFWriter(os.path.join(OUT, "gqa-tied-quant.gguf"), "qwen3")
    add_config(w, c)
    add_tokenizer(w, folder, c)
    kinds = [k for k in QUANTS if can_quantise(k)]
    weights = {}
    for i, (name, t) in enumerate(sorted(tensors.items())):
        if "gate_proj" in name or "up_proj" in name:
            t = t[:160].contiguous()
        if "down_proj" in name:
            t = t[:, :160].contiguous()
        weights[name] = add_tensor(w, name_of(name), t, kinds[i % len(kinds)])
    finish(w)
    expect(c, weights)


def can_quantise(kind):
    try:
        gguf.quants.quantize(np.ones((1, 32), dtype=np.float32), kind)
        return True
    except NotImplementedError:
        return False


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def expect(config, weights):
    folder = os.path.join(OUT, "hf")
    os.makedirs(folder)
    config["dtype"] = config["torch_dtype"] = "float32"
    json.dump(config, open(os.path.join(folder, "config.json"), "w"))
    save_file({k: v.contiguous() for k, v in weights.items()}, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    prompts = json.load(open(os.path.join(GOLDEN, "qwen3", "gqa-tied-bf16.expected.json")))[:3]
    tensors, rows = {}, []
    for i, p in enumerate(prompts):
        ids = list(p["prompt_ids"])
        greedy = []
        with torch.no_grad():
            for _ in range(12):
                greedy.append(int(model(torch.tensor([ids + greedy])).logits[0, -1].argmax()))
            logits = model(torch.tensor([ids + greedy])).logits[0]
        top = logits.topk(16, -1)
        rows.append({"prompt": p["prompt"], "prompt_ids": ids, "greedy_ids": greedy})
        tensors.update({f"ids.{i}": torch.tensor(ids + greedy, dtype=torch.int32), f"top_ids.{i}": top.indices.int().contiguous(),
                        f"top_logits.{i}": top.values.contiguous(), f"logsumexp.{i}": logits.logsumexp(-1).contiguous()})
    json.dump(rows, open(os.path.join(OUT, "gqa-tied-quant.expected.json"), "w"), indent=1)
    save_file(tensors, os.path.join(OUT, "gqa-tied-quant.expected.safetensors"))
    shutil.rmtree(folder)


shutil.rmtree(OUT, ignore_errors=True)
os.makedirs(OUT)
llama()
qwen_split()
qwen_quantised()
for p in glob.glob(os.path.join(OUT, "*")):
    os.chmod(p, 0o644)
