#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the sampler with a numpy version written from the definitions.

    test_sampler.py TOOL [--seed S] [--combinations N] [--draws N]

For each sampler alone and for random combinations: the support must be the same set, a chi-square
test over the draws must not reject (p > 1e-4), and log-probabilities must be those of the raw
logits. A case in which numpy's own decision hangs on less than 1e-6 is drawn again.
"""
import argparse
import struct
import subprocess
import sys

try:
    import numpy as np
    from scipy import stats
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

ROW = np.dtype([
    ("seed", "<u8"), ("pos", "<u8"), ("mode", "<u4"), ("logit_row", "<u4"), ("target_id", "<i4"),
    ("out_slot", "<i4"), ("history", "<u4"), ("n_prompt", "<u4"), ("n_output", "<u4"),
    ("pending_slot", "<i4"), ("n_done", "<u4"), ("min_tokens", "<u4"), ("mask_row", "<i4"),
    ("want_logprob", "<u4"), ("n_top", "<u4"), ("temperature", "<f4"), ("top_k", "<u4"),
    ("top_p", "<f4"), ("min_p", "<f4"), ("typical_p", "<f4"), ("repetition", "<f4"),
    ("frequency", "<f4"), ("presence", "<f4"), ("dry_multiplier", "<f4"), ("dry_base", "<f4"),
    ("dry_allowed_length", "<u4"), ("dry_window", "<u4"), ("xtc_probability", "<f4"),
    ("xtc_threshold", "<f4"), ("mirostat", "<u4"), ("mirostat_tau", "<f4"),
    ("mirostat_eta", "<f4"), ("state_slot", "<u4"), ("state_parity", "<u4"), ("bias", "<u4", 2),
    ("allowed", "<u4", 2), ("banned", "<u4", 2), ("stop", "<u4", 2), ("bad_words", "<u4", 2),
    ("dry_breakers", "<u4", 2), ("dry_sequences", "<u4", 2)])
assert ROW.itemsize == 200, ROW.itemsize

OFF = dict(top_p=1, typical_p=1, repetition=1, dry_base=1, xtc_threshold=1, out_slot=-1,
           pending_slot=-1, mask_row=-1, temperature=1)
MARGIN = 1e-6


class Unclear(Exception):
    """A decision of this case is too close to call between two arithmetics."""


def philox(seed, pos):
    c = [pos & 0xffffffff, pos >> 32, 0, 0]
    k = [seed & 0xffffffff, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xffffffff, (a >> 32) ^ c[3] ^ k[1], a & 0xffffffff]
        k = [(k[0] + 0x9E3779B9) & 0xffffffff, (k[1] + 0xBB67AE85) & 0xffffffff]
    return c


def clear(x, limit):
    """x compared with limit, unless they are all but equal."""
    if np.any(np.abs(np.asarray(x) - limit) < MARGIN * np.maximum(1, np.abs(limit))):
        raise Unclear


def dry(case, logits):
    r = case["row"]
    ids = (case["prompt"] + case["output"])
    if r["dry_window"]:
        ids = ids[-int(r["dry_window"]):]
    longest = {}
    n = len(ids)
    begin = 0  # a repeat begins after every sequence that breaks
    for s in case["sequences"]:
        begin = max([begin] + [i + len(s) for i in range(n - len(s) + 1) if ids[i:i + len(s)] == s])
    for end in range(n - 1):  # a repeat that ends at `end` would be carried on by ids[end + 1]
        length = 0
        while (length <= end and n - 1 - length >= begin and ids[end - length] == ids[n - 1 - length]
               and ids[end - length] not in case["breakers"]):
            length += 1
        if length and length >= r["dry_allowed_length"]:
            t = ids[end + 1]
            longest[t] = max(longest.get(t, 0), length)
    for t, length in longest.items():
        p = float(r["dry_multiplier"]) * float(r["dry_base"]) ** (length - int(r["dry_allowed_length"]))
        logits[t] -= np.float32(min(p, 1e30))


def edited(case):
    """The logits before temperature, in f32."""
    r = case["row"]
    x = case["logits"].copy()
    inf = np.float32(np.inf)
    if case["mask"] is not None:
        x[~case["mask"]] = -inf
    if case["allowed"]:
        keep = np.zeros(len(x), bool)
        keep[case["allowed"]] = True
        x[~keep] = -inf
    x[case["banned"]] = -inf
    for word in case["bad_words"]:
        head = word[:-1]
        if not head or case["output"][-len(head):] == head:
            x[word[-1]] = -inf
    for i, b in case["bias"]:
        x[i] += np.float32(b)
    if r["n_done"] < r["min_tokens"]:
        x[case["stop"]] = -inf
    if r["repetition"] != 1 or r["frequency"] or r["presence"]:
        for t in set(case["prompt"]) | set(case["output"]):
            n = case["output"].count(t)
            x[t] = x[t] / r["repetition"] if x[t] > 0 else x[t] * r["repetition"]
            x[t] -= r["frequency"] * np.float32(n)
            if n:
                x[t] -= r["presence"]
    if r["dry_multiplier"]:
        dry(case, x)
    return x


def normal(p):
    return p / p.sum()


def top(p, n):
    """p with all but its first n places in descending order cut."""
    order = np.argsort(-p, kind="stable")[:n]
    q = np.zeros_like(p)
    q[order] = p[order]
    return normal(q)


def typical(p, want):
    on = p > 0
    logp = np.log(p, where=on, out=np.zeros_like(p))
    entropy = -(p * logp)[on].sum()
    score = np.where(on, np.abs(-logp - entropy), np.inf)
    order = np.argsort(score, kind="stable")
    gaps = np.diff(score[order][:on.sum()])
    cum = np.cumsum(p[order])
    clear(cum[:on.sum() - 1], want)
    n = min(int(np.searchsorted(cum, want)) + 1, on.sum())
    if n <= len(gaps) and gaps[n - 1] < MARGIN:
        raise Unclear
    q = np.zeros_like(p)
    q[order[:n]] = p[order[:n]]
    return normal(q)


def top_p(p, want):
    cum = np.cumsum(np.sort(p)[::-1])
    clear(cum[:(p > 0).sum() - 1], want)
    return top(p, min(int(np.searchsorted(cum, want)) + 1, (p > 0).sum()))


def mirostat_k(p, mu):
    q = np.sort(p[p > 0])[::-1]
    m = min(99, len(q) - 1)
    if m < 1:
        return len(p)
    i = np.arange(m)
    t, b = np.log((i + 2) / (i + 1)), np.log(q[i] / q[i + 1])
    if (t * b).sum() <= 0:
        return len(p)
    s = (t * b).sum() / (t * t).sum()
    eps = s - 1
    k = (eps * 2 ** mu / (1 - len(p) ** -eps)) ** (1 / s)
    if k < 1e6:
        clear(k, round(k))
    return int(max(1, min(k, len(p))))


def distributions(case, x):
    """Probabilities without and with XTC's exclusion, and mu's target (or None)."""
    r = case["row"]
    z = x.astype(np.float64) / float(r["temperature"])
    p = normal(np.exp(z - z.max()))
    if r["mirostat"]:
        mu = 2 * float(r["mirostat_tau"])
        if r["mirostat"] == 1:
            p = top(p, mirostat_k(p, mu))
        else:
            surprise = -np.log2(p, where=p > 0, out=np.full_like(p, -np.inf))
            clear(surprise[p > 0], mu)
            p = top(p, max(1, (surprise[p > 0] <= mu).sum()))
        return p, p
    if r["top_k"]:
        p = top(p, int(r["top_k"]))
    if r["typical_p"] < 1:
        p = typical(p, float(r["typical_p"]))
    if r["top_p"] < 1:
        p = top_p(p, float(r["top_p"]))
    if r["min_p"] > 0:
        limit = float(r["min_p"]) * p.max()
        clear(p[p > 0] / p.max(), float(r["min_p"]))
        p = normal(np.where(p >= limit, p, 0))
    cut = p
    if r["xtc_probability"] > 0 and r["xtc_threshold"] <= 0.5:
        t = float(r["xtc_threshold"])
        clear(p[p > 0], t)
        over = np.flatnonzero(p >= t)
        if len(over) > 1:
            order = over[np.argsort(-p[over], kind="stable")]
            cut = p.copy()
            cut[order[:-1]] = 0
            cut = normal(cut)
    return p, cut


def build(rng, options, vocab):
    """A random case in which these options are on."""
    row = np.zeros((), ROW)
    for k, v in OFF.items():
        row[k] = v
    row["seed"] = rng.integers(0, 2 ** 63)
    row["pos"] = rng.integers(0, 2 ** 40)
    row["n_top"] = 20
    case = dict(row=row, vocab=vocab, mask=None, allowed=[], banned=[], bad_words=[], bias=[],
                stop=[], breakers=[], sequences=[], prompt=[], output=[])
    x = rng.normal(0, rng.uniform(0.5, 3), vocab)
    if rng.random() < 0.3:
        x = np.round(x * 2) / 2  # ties
    if rng.random() < 0.3:
        x[rng.random(vocab) < 0.1] = -np.inf
    case["logits"] = x.astype(np.float32)
    few = min(vocab, 6)

    def ids(n):
        return [int(i) for i in rng.integers(0, vocab, n)]

    if any(o in options for o in ("repetition", "frequency", "presence", "dry", "bad_words")):
        case["prompt"] = [int(i) for i in rng.integers(0, few, rng.integers(0, 30))] + ids(3)
        case["output"] = [int(i) for i in rng.integers(0, few, rng.integers(1, 30))]
        row["n_done"] = len(case["output"])
    for o in options:
        u = rng.random()
        if o == "temperature": row["temperature"] = rng.uniform(0.3, 2.5)
        elif o == "top_k": row["top_k"] = rng.integers(1, vocab + 5)
        elif o == "top_p": row["top_p"] = u
        elif o == "min_p": row["min_p"] = u * 0.5
        elif o == "typical": row["typical_p"] = u
        elif o == "repetition": row["repetition"] = rng.uniform(0.5, 2)
        elif o == "frequency": row["frequency"] = rng.uniform(-1, 1)
        elif o == "presence": row["presence"] = rng.uniform(-1, 1)
        elif o == "dry":
            row["dry_multiplier"] = rng.uniform(0.1, 2)
            row["dry_base"] = rng.uniform(1, 2)
            row["dry_allowed_length"] = rng.integers(0, 4)
            row["dry_window"] = rng.integers(0, 40)
            case["breakers"] = ids(1) if u < 0.5 else []
            if rng.random() < 0.5:
                case["sequences"] = [[int(i) for i in rng.integers(0, few, 2)], ids(3)]
        elif o == "xtc":
            row["xtc_probability"] = rng.uniform(0.2, 1)
            row["xtc_threshold"] = rng.uniform(0.01, 0.5)
        elif o in ("mirostat1", "mirostat2"):
            row["mirostat"] = int(o[-1])
            row["mirostat_tau"] = rng.uniform(0.5, 4)
            row["mirostat_eta"] = 0.1
        elif o == "bias": case["bias"] = [(i, float(rng.uniform(-5, 5))) for i in ids(5)]
        elif o == "mask": case["mask"] = rng.random(vocab) < 0.6
        elif o == "allowed": case["allowed"] = ids(vocab // 2)
        elif o == "banned": case["banned"] = ids(4)
        elif o == "bad_words":
            case["bad_words"] = [ids(1), case["output"][-2:] + ids(1), ids(3)]
        elif o == "min_tokens":
            case["stop"] = ids(3)
            row["min_tokens"] = row["n_done"] + (2 if u < 0.7 else 0)
    return case


def encode(case, draws):
    row = case["row"]
    lists = []

    def put(name, values):
        row[name] = (len(lists), len(values))
        lists.extend(values)

    put("bias", [v for i, b in case["bias"]
                 for v in (i, struct.unpack("<i", struct.pack("<f", b))[0])])
    for name, key in (("allowed", "allowed"), ("banned", "banned"), ("stop", "stop"),
                      ("dry_breakers", "breakers")):
        put(name, case[key])
    for name, key in (("bad_words", "bad_words"), ("dry_sequences", "sequences")):
        put(name, [v for w in case[key] for v in [len(w)] + w])
    row["n_prompt"], row["n_output"] = len(case["prompt"]), len(case["output"])
    history = case["prompt"] + case["output"]
    mask = b""
    if case["mask"] is not None:
        row["mask_row"] = 0
        bits = np.packbits(case["mask"], bitorder="little").tobytes()
        mask = bits + b"\0" * (-len(bits) % 4)
    head = struct.pack("<6I", case["vocab"], len(history), len(lists), bool(mask), draws, 0)
    return (head + row.tobytes() + case["logits"].tobytes()
            + np.array(history, "<i4").tobytes() + np.array(lists, "<i4").tobytes() + mask)


def read(pipe, n):
    data = pipe.read(n)
    assert len(data) == n, "the tool ended early"
    return data


def check_logprobs(case, record):
    status, ident, logprob, mu, n_top = struct.unpack_from("<IiffI", record)
    x = case["logits"].astype(np.float64)
    lp = x - x.max() - np.log(np.exp(x - x.max()).sum())
    assert abs(logprob - lp[ident]) < 2e-6 * max(1, abs(lp[ident])), (logprob, lp[ident])
    order = [int(i) for i in np.argsort(-x, kind="stable") if np.isfinite(x[i])][:20]
    tops = [struct.unpack_from("<if", record, 32 + 8 * i) for i in range(n_top)]
    assert [t[0] for t in tops] == order, "top ids"
    for t, v in tops:
        assert abs(v - lp[t]) < 2e-6 * max(1, abs(lp[t]))
    return ident, mu


def check(tool, case, draws, expected):
    """Raises AssertionError with what differs."""
    p, cut = expected
    tool.stdin.write(encode(case, draws))
    tool.stdin.flush()
    record = read(tool.stdout, 32 + 160)
    supports = []
    for _ in range(2):
        n = struct.unpack("<I", read(tool.stdout, 4))[0]
        supports.append(set(np.frombuffer(read(tool.stdout, 4 * n), "<u4").tolist()))
    counts = np.frombuffer(read(tool.stdout, 4 * case["vocab"]), "<u4")
    assert struct.unpack_from("<I", record)[0] == 0, "status"
    row = case["row"]
    ident, mu = check_logprobs(case, record)
    assert supports[0] == set(np.flatnonzero(p).tolist()), "support"
    if row["xtc_probability"] > 0:
        assert supports[1] == set(np.flatnonzero(cut).tolist()), "support after XTC"
    if row["mirostat"]:
        surprise = -np.log2(p[ident])
        want = 2 * row["mirostat_tau"] - row["mirostat_eta"] * (surprise - row["mirostat_tau"])
        assert abs(mu - want) < 1e-4, ("mu", mu, want)
    x = float(row["xtc_probability"])
    mix = (1 - x) * p + x * cut
    assert counts.sum() == draws and counts[mix == 0].sum() == 0, "drawn outside the support"
    return chi_square(counts, mix, draws)


def chi_square(counts, p, draws):
    """p-value; ids expected fewer than ten times share one bin."""
    big = p * draws >= 10
    seen = np.append(counts[big], counts[~big].sum()).astype(float)
    want = np.append(p[big] * draws, p[~big].sum() * draws)
    if want[-1] < 10:  # too little for a bin of its own
        seen[0] += seen[-1]
        want[0] += want[-1]
        seen, want = seen[:-1], want[:-1]
    if len(seen) < 2:
        return 1.0
    return float(stats.chi2.sf(((seen - want) ** 2 / want).sum(), len(seen) - 1))


def first_draw(case, x):
    """The id that inverse CDF in descending probability gives, plain sampling only."""
    z = x.astype(np.float64) / float(case["row"]["temperature"])
    p = normal(np.exp(z - z.max()))
    order = np.argsort(-x, kind="stable")
    w = philox(int(case["row"]["seed"]), int(case["row"]["pos"]))
    u = (((w[0] << 32) | w[1]) >> 11) * 2.0 ** -53
    cum = np.cumsum(p[order])
    clear(cum, u)
    return int(order[np.searchsorted(cum, u, side="right")])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("tool")
    ap.add_argument("--seed", type=int, default=20)
    ap.add_argument("--combinations", type=int, default=200)
    ap.add_argument("--draws", type=int, default=100000)
    a = ap.parse_args()
    print(f"seed={a.seed}")
    single = ["temperature", "top_k", "top_p", "min_p", "typical", "repetition", "frequency",
              "presence", "dry", "xtc", "mirostat1", "mirostat2", "bias", "mask", "allowed",
              "banned", "bad_words", "min_tokens"]
    rng = np.random.default_rng(a.seed)
    plan = [[s] for s in single]
    for _ in range(a.combinations):
        plan.append([s for s in single if rng.random() < 0.35])
    tool = subprocess.Popen([a.tool], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    bad = 0
    for options in plan:
        while True:
            case = build(rng, options, int(rng.integers(2, 200)))
            x = edited(case)
            if not np.isfinite(x).any() or not np.isfinite(case["logits"]).any():
                continue
            try:
                expected = distributions(case, x)
                break
            except Unclear:
                continue
        try:
            p = check(tool, case, a.draws, expected)
            assert p > 1e-4, f"chi-square p={p:.2g}"
        except AssertionError as e:
            bad += 1
            print(f"FAILED {'+'.join(options)} vocab={case['vocab']}: {e}\n  {case['row']}")
    for _ in range(200):  # the very id, not only its distribution
        case = build(rng, ["temperature"], 300)
        try:
            want = first_draw(case, case["logits"])
        except Unclear:
            continue
        tool.stdin.write(encode(case, 0))
        tool.stdin.flush()
        got = struct.unpack_from("<Ii", read(tool.stdout, 192))[1]
        for _ in range(2):
            read(tool.stdout, 4 * struct.unpack("<I", read(tool.stdout, 4))[0])
        read(tool.stdout, 4 * 300)
        if got != want:
            bad += 1
            print(f"FAILED draw: id {got}, expected {want}")
    tool.stdin.close()
    if tool.wait() != 0:
        bad += 1
        print("the tool failed")
    print(f"{len(plan)} cases, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
