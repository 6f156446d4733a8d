#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Echelon's answers beside llama.cpp's on the same GGUF files, in one run.

    pip install llama-cpp-python gguf numpy
    right_answers.py --echelon build/release/echelon --peer PEER.py --text TEXT FILE.gguf...
                     [--chunks 64] [--ctx 512] [--prompts 50] [--work FOLDER] [--json OUT] [--md OUT]

PEER.py is a module with Model(path) and Context(model, ctx, threads=, fa=, kv=) around llama.cpp:
Context.run(rows of (id, position, sequence, wants logits)), .logits(i), .clear(); Model.tokens(text),
.bos(), .nv.

For each file:
 - an F32 copy of the same weights (dequantised by the package gguf), evaluated in f32 by llama.cpp;
   its logits are what both engines are held against, window by window of the text
 - perplexity: Echelon's within 0.5 % of llama.cpp's
 - mean Kullback-Leibler divergence from the copy: Echelon's at most 1.1 times llama.cpp's
 - teacher forcing: prompts from the text, 64 ids that llama.cpp draws greedily, fed to Echelon: its
   best id is the same wherever llama.cpp's margin is over 0.5, and at 97 % of all positions. Where
   they differ either may be off: how often each has the F32 copy's best id is shown beside
With --kld-only the first and the third are left out (random weights have no perplexity to speak of).
Exit 1 when a bound is missed.
"""
import argparse
import importlib.util
import json
import os
import struct
import subprocess
import sys

import gguf
import numpy as np

N_DRAWN, N_PROMPT = 64, 66  # windows of 130 whose second half is what was drawn


# ---- the F32 copy ----

def copy_fields(reader, writer):
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=sub)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def make_f32_copy(path, out):
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    copy_fields(reader, writer)
    for t in reader.tensors:
        shape = [int(n) for n in reversed(t.shape)]
        writer.add_tensor_info(t.name, shape, np.dtype(np.float32), 4 * int(np.prod(shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for t in reader.tensors:
        x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        writer.write_tensor_data(x.reshape([int(n) for n in reversed(t.shape)]))
    writer.close()


# ---- logits ----

def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def rows_of(context, ids):
    """Logits of the counted rows of one window."""
    half, n = len(ids) // 2, len(ids)
    context.clear()
    context.run([(t, j, 0, j >= half) for j, t in enumerate(ids)])
    return np.stack([context.logits(j).copy() for j in range(half, n - 1)])


class LogitsFile:
    """What `echelon kld --base` reads (src/cli/logits_file.h)."""

    def __init__(self, path, vocab, windows):
        ctx = len(windows[0])
        self.f = open(path, "wb")
        self.f.write(b"ECHLOGIT" + struct.pack("<6I", 1, vocab, ctx, len(windows), ctx // 2,
                                               ctx - 1 - ctx // 2) + bytes(32))
        self.f.write(np.array(windows, np.int32).tobytes())

    def add(self, rows):
        self.f.write(np.ascontiguousarray(rows, np.float32).tobytes())

    def close(self):
        self.f.close()


def read_logits(path, n_windows, ctx):
    with open(path, "rb") as f:
        vocab = struct.unpack("<I", f.read(16)[12:16])[0]
    rows = ctx - 1 - ctx // 2
    return np.memmap(path, np.float32, "r", 64 + 4 * n_windows * ctx, (n_windows, rows, vocab))


# ---- llama.cpp ----

def windows_of(model, text, ctx, chunks):
    ids = model.bos() + model.tokens(text)
    n = min(chunks, len(ids) // ctx)
    windows = [ids[k * ctx:(k + 1) * ctx] for k in range(n)]
    return [model.bos() + w[len(model.bos()):] for w in windows]


def evaluate_peer(a, peer, path, copy, base_path):
    """Perplexity and divergence of llama.cpp; the copy's logits go to base_path."""
    model, exact = peer.Model(path), peer.Model(copy)
    windows = windows_of(model, open(a.text, encoding="utf-8").read(), a.ctx, a.chunks)
    quantised = peer.Context(model, a.ctx, threads=a.threads, fa=1)
    reference = peer.Context(exact, a.ctx, threads=a.threads, fa=0, kv="f32")
    base = LogitsFile(base_path, model.nv, windows)
    nll, base_nll, kld, same = [], [], [], []
    for number, ids in enumerate(windows):
        target = ids[a.ctx // 2 + 1:]
        rows = rows_of(reference, ids)
        base.add(rows)
        p, q = log_softmax(rows), log_softmax(rows_of(quantised, ids))
        at = np.arange(len(target))
        base_nll += list(-p[at, target])
        nll += list(-q[at, target])
        kld += list((np.exp(p) * (p - q)).sum(axis=-1))
        same += list(p.argmax(axis=-1) == q.argmax(axis=-1))
        print(f"\r{os.path.basename(path)} [{number + 1}/{len(windows)}]", end="", file=sys.stderr)
    base.close()
    print(file=sys.stderr)
    return {"windows": len(windows), "tokens": len(nll), "perplexity": float(np.exp(np.mean(nll))),
            "base_perplexity": float(np.exp(np.mean(base_nll))), "mean_kld": float(np.mean(kld)),
            "p99_kld": float(np.quantile(kld, 0.99)), "same_top": float(np.mean(same))}


def draw_peer(a, peer, path):
    """Prompts of the text's own ids, each followed by what llama.cpp draws, and the margins."""
    model = peer.Model(path)
    context = peer.Context(model, N_PROMPT + N_DRAWN + 8, threads=a.threads, fa=1)
    ids = model.tokens(open(a.text, encoding="utf-8").read())
    step = (len(ids) - N_PROMPT) // a.prompts
    windows, margins = [], []
    for k in range(a.prompts):
        window = ids[k * step:k * step + N_PROMPT]
        context.clear()
        context.run([(t, j, 0, j == N_PROMPT - 1) for j, t in enumerate(window)])
        for j in range(N_DRAWN):
            row = context.logits(-1)
            two = np.partition(row, -2)[-2:]
            margins.append(float(two[1] - two[0]))
            window.append(int(row.argmax()))
            context.run([(window[-1], N_PROMPT + j, 0, True)])
        windows.append(window)
    return windows, np.array(margins).reshape(a.prompts, N_DRAWN)


# ---- Echelon ----

def echelon(a, *args):
    p = subprocess.run([a.echelon, *args], capture_output=True, text=True)
    if p.returncode != 0:
        sys.exit(f"{' '.join(args)}: {p.stderr}")
    return json.loads(p.stdout)


def best_ids(a, path, windows, *more):
    """Echelon's likeliest id at each position that the peer drew."""
    ids_path, saved = os.path.join(a.work, "forced.ids"), os.path.join(a.work, "forced.logits")
    with open(ids_path, "w", encoding="utf-8") as f:
        f.writelines(" ".join(map(str, w)) + "\n" for w in windows)
    echelon(a, "kld", path, ids_path, "--ids", "--ctx", str(N_PROMPT + N_DRAWN), "--save", saved,
            "--json", *more)
    best = read_logits(saved, len(windows), N_PROMPT + N_DRAWN).argmax(axis=-1)
    os.remove(saved)
    os.remove(ids_path)
    return best


def force(a, path, copy, windows, margins):
    drawn, clear = np.array(windows)[:, N_PROMPT:], margins > 0.5
    best, exact = best_ids(a, path, windows), best_ids(a, copy, windows, "--kv-type", "f32")
    same = best == drawn
    return {"forced_positions": int(same.size), "forced_same": float(same.mean()),
            "forced_clear": int(clear.sum()), "forced_clear_other": int((~same & clear).sum()),
            "peer_as_copy": float((drawn == exact).mean()),
            "echelon_as_copy": float((best == exact).mean())}


# ---- one file ----

def check_file(a, peer, path):
    copy = os.path.join(a.work, "copy-f32.gguf")
    base = os.path.join(a.work, "base.logits")
    make_f32_copy(path, copy)
    ours_peer = evaluate_peer(a, peer, path, copy, base)
    common = [a.text, "--ctx", str(a.ctx), "--chunks", str(a.chunks), "--base", base, "--json"]
    ours = echelon(a, "kld", path, *common)
    exact = echelon(a, "kld", copy, *common, "--kv-type", "f32")
    os.remove(base)
    r = {"file": os.path.basename(path), "peer": ours_peer, "echelon": ours,
         "echelon_f32_kld": exact["mean_kld"],
         "perplexity_ratio": ours["perplexity"] / ours_peer["perplexity"],
         "kld_ratio": ours["mean_kld"] / ours_peer["mean_kld"]}
    r["kld_ok"] = r["kld_ratio"] <= 1.1
    if not a.kld_only:
        r.update(force(a, path, copy, *draw_peer(a, peer, path)))
        r["perplexity_ok"] = abs(r["perplexity_ratio"] - 1) <= 0.005
        r["forced_ok"] = r["forced_clear_other"] == 0 and r["forced_same"] >= 0.97
    os.remove(copy)
    return r


def markdown(rows):
    lines = ["| file | ppl llama.cpp | ppl Echelon | ratio | KLD llama.cpp | KLD Echelon | ratio | "
             "F32 copy, KLD Echelon | forced: same | margin > 0.5: other | as the copy: llama.cpp | "
             "Echelon |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for r in rows:
        p, e = r["peer"], r["echelon"]
        forced = (f"{r['forced_same']:.2%} | {r['forced_clear_other']} of {r['forced_clear']} | "
                  f"{r['peer_as_copy']:.2%} | {r['echelon_as_copy']:.2%}"
                  if "forced_same" in r else "– | – | – | –")
        lines.append(f"| {r['file']} | {p['perplexity']:.3f} | {e['perplexity']:.3f} | "
                     f"{r['perplexity_ratio']:.4f} | {p['mean_kld']:.6f} | {e['mean_kld']:.6f} | "
                     f"{r['kld_ratio']:.3f} | {r['echelon_f32_kld']:.2g} | {forced} |")
    return "\n".join(lines) + "\n"


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("files", nargs="+")
    p.add_argument("--echelon", default="build/release/echelon")
    p.add_argument("--peer", required=True)
    p.add_argument("--text", required=True)
    p.add_argument("--ctx", type=int, default=512)
    p.add_argument("--chunks", type=int, default=64)
    p.add_argument("--prompts", type=int, default=50)
    p.add_argument("--threads", type=int, default=2, help="of llama.cpp")
    p.add_argument("--kld-only", action="store_true")
    p.add_argument("--work", default=".", help="for a copy of the weights and logits, removed again")
    p.add_argument("--json")
    p.add_argument("--md")
    return p.parse_args()


def main():
    a = arguments()
    spec = importlib.util.spec_from_file_location("peer", a.peer)
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    peer.quiet()
    os.makedirs(a.work, exist_ok=True)
    rows = []
    for path in a.files:
        rows.append(check_file(a, peer, path))
        if a.json:
            with open(a.json, "w", encoding="utf-8") as f:
                json.dump({"peer_version": peer.L.__version__, "rows": rows}, f, indent=1)
        print(markdown(rows[-1:]).splitlines()[-1], file=sys.stderr)
    table = markdown(rows)
    if a.md:
        with open(a.md, "w", encoding="utf-8") as f:
            f.write(table)
    print(table, end="")
    return 0 if all(v for r in rows for k, v in r.items() if k.endswith("_ok")) else 1


sys.exit(main())
