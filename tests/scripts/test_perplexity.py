#!/usr/bin/env python3
"""echelon perplexity and echelon kld as a user meets them; both are computed again here, from the
logits that kld saves."""
import array
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

ECHELON = os.environ["ECHELON"]
MODEL = "models/tale"
CTX, WINDOWS = 48, 3
TEXT = "Once upon a time there was a clever turtle who lived near the sea. " * 40


def run(*args, rc=0):
    p = subprocess.run([ECHELON, *args], capture_output=True, text=True, timeout=60)
    assert p.returncode == rc, f"{args}: exit {p.returncode}\n{p.stderr}"
    return p


def read_logits(path):
    """The file as logits_file.h describes it: windows of ids, and rows of each window."""
    data = open(path, "rb").read()
    assert data[:8] == b"ECHLOGIT" and data[32:64] == bytes(32)
    version, vocab, ctx, n, first, rows = struct.unpack("<6I", data[8:32])
    assert version == 1 and (ctx, n, first, rows) == (CTX, WINDOWS, CTX // 2, CTX - 1 - CTX // 2)
    ids = array.array("i", data[64:64 + 4 * n * ctx])
    logits = array.array("f", data[64 + 4 * n * ctx:])
    assert len(logits) == n * rows * vocab
    return [(list(ids[w * ctx:(w + 1) * ctx]),
             [logits[(w * rows + r) * vocab:(w * rows + r + 1) * vocab] for r in range(rows)])
            for w in range(n)]


def log_softmax(row):
    top = max(row)
    total = top + math.log(sum(math.exp(x - top) for x in row))
    return [x - total for x in row]


def perplexity_of(windows):
    nll = [-log_softmax(row)[ids[CTX // 2 + 1 + r]]
           for ids, rows in windows for r, row in enumerate(rows)]
    mean = sum(nll) / len(nll)
    var = sum(x * x for x in nll) / len(nll) - mean * mean
    return math.exp(mean), math.exp(mean) * math.sqrt(var / (len(nll) - 1)), len(nll)


def close(a, b, tolerance=2e-5):
    assert abs(a - b) <= tolerance * max(abs(a), abs(b)), (a, b)


def check_values(folder, text):
    base = os.path.join(folder, "base")
    common = [MODEL, text, "--ctx", str(CTX), "--chunks", str(WINDOWS), "--json"]
    saved = json.loads(run("kld", *common, "--save", base).stdout)
    windows = read_logits(base)
    ppl, error, n = perplexity_of(windows)
    got = json.loads(run("perplexity", *common).stdout)
    close(got["perplexity"], ppl)
    close(got["stderr"], error, 1e-3)
    close(saved["perplexity"], ppl)
    assert got["tokens"] == n == WINDOWS * (CTX - 1 - CTX // 2) and got["chunks"] == WINDOWS

    same = json.loads(run("kld", *common, "--base", base).stdout)
    assert same["mean_kld"] == same["max_kld"] == 0 and same["same_top"] == 1
    close(same["base_perplexity"], ppl)

    other = os.path.join(folder, "other")
    got = json.loads(run("kld", *common, "--base", base, "--save", other, "--quantize", "q4").stdout)
    kld, tops = [], 0
    for (_, a), (_, b) in zip(windows, read_logits(other)):
        for p, q in zip(a, b):
            tops += max(range(len(p)), key=p.__getitem__) == max(range(len(q)), key=q.__getitem__)
            kld.append(sum(math.exp(x) * (x - y) for x, y in zip(log_softmax(p), log_softmax(q))))
    kld.sort()
    close(got["mean_kld"], sum(kld) / n)
    close(got["median_kld"], kld[n // 2])
    close(got["p99_kld"], kld[n * 99 // 100])
    close(got["max_kld"], kld[-1])
    close(got["same_top"], tops / n)
    assert got["mean_kld"] > 0
    close(got["perplexity"], perplexity_of(read_logits(other))[0])
    assert sorted(os.listdir(folder)) == ["base", "other", "text"]
    return base


def check_stride(text):
    got = json.loads(run("perplexity", MODEL, text, "--ctx", "40", "--stride", "16", "--chunks", "4",
                         "--json").stdout)
    assert (got["ctx"], got["chunks"], got["tokens"]) == (48, 4, 64), got
    assert "below --ctx" in run("perplexity", MODEL, text, "--ctx", "40", "--stride", "40", rc=2).stderr


def check_ids(folder, text, base):
    """The same windows given as ids give the same numbers."""
    ids = os.path.join(folder, "ids")
    windows = [w for w, _ in read_logits(base)]
    open(ids, "w").write("\n".join(" ".join(map(str, w)) for w in windows))
    common = ["--ctx", str(CTX), "--chunks", str(WINDOWS), "--json"]
    assert run("perplexity", MODEL, ids, "--ids", *common).stdout == \
        run("perplexity", MODEL, text, *common).stdout
    for bad in ("1 2 x", "1 -2", "99999999999"):
        open(ids, "w").write(bad)
        assert "is no id below" in run("perplexity", MODEL, ids, "--ids", rc=1).stderr


def check_refusals(folder, text, base):
    common = [MODEL, text, "--ctx", str(CTX), "--chunks", str(WINDOWS)]
    good = open(base, "rb").read()
    bad = os.path.join(folder, "bad")
    damaged = {
        "too short": good[:40],
        "doesn't begin": b"X" + good[1:],
        "vocabulary is": good[:12] + struct.pack("<I", 7) + good[16:],
        "bytes, its header says": good[:-1],
        "token 3 is": good[:76] + struct.pack("<i", 12345) + good[80:],
        "number of windows is": good[:20] + struct.pack("<I", 0xffffffff) + good[24:],
    }
    for why, data in damaged.items():
        open(bad, "wb").write(data)
        p = run("kld", *common, "--base", bad, rc=1)
        assert why in p.stderr and bad in p.stderr, (why, p.stderr)
    assert "--base" in run("kld", *common, rc=2).stderr
    short = os.path.join(folder, "short")
    open(short, "w").write("Once upon a time")
    assert "one window takes 512" in run("perplexity", MODEL, short, rc=2).stderr
    run("perplexity", MODEL, rc=2)
    run("perplexity", MODEL, os.path.join(folder, "none"), rc=1)
    run("kld", *common, "--save", os.path.join(folder, "no/where"), rc=1)


def main():
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text")
        open(text, "w").write(TEXT)
        base = check_values(folder, text)
        check_stride(text)
        check_ids(folder, text, base)
        check_refusals(folder, text, base)
    print("ok")


sys.exit(main())
