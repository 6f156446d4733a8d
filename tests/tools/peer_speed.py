#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed of Echelon beside llama.cpp on the same GGUF files, alternating, and the machine's limits.

    peer_speed.py --echelon build/release/echelon --peer PYTHON PEER.py --out speed.json FILE...
                  [--rows pp512,pp2048,tg128,tg128@4096,x16] [--rounds 3] [--match TEXT]
                  [--peer-fa 1,0] [--bf16] [--minutes N] [--md speed.md]
    peer_speed.py --out speed.json --md -          the table of what is measured so far

PEER.py runs a file with llama.cpp (the Python package llama-cpp-python) and prints one JSON object:
`bench FILE -p N -n N -d N -r 1 --fa 0|1` and `streams FILE -b 16 -p 128 -n 128`. It gets
OMP_WAIT_POLICY=active, its best setting, and both cores.

A round of a row is: the machine's limits, llama.cpp, Echelon, which measures the limits again before
each repetition. In a row's first round llama.cpp runs with each of --peer-fa (flash attention on, off),
later with the faster one. Medians are over the rounds; ratios are of medians. All rows have their
first round before any has its second. Every finished round is appended to --out at once (one JSON object a
line), so the script can be stopped at any time: run again with the same --out it goes on with what
is missing. Leave the machine alone meanwhile.

    pp512, pp2048   a prompt from an empty cache
    tg128           generation from an empty cache; @4096: behind 4096 tokens
    x16             16 streams in one step, behind prompts of 128
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

ROWS = ["pp512", "pp2048", "tg128", "tg128@4096", "x16"]


def call(args, timeout, env=None):
    p = subprocess.run(args, capture_output=True, text=True, timeout=timeout,
                       env={**os.environ, **(env or {})})
    if p.returncode != 0:
        raise RuntimeError(f"{' '.join(args)}: exit {p.returncode}: {p.stderr.strip()[-400:]}")
    return json.loads(p.stdout)


def limits(a):
    d = call([a.echelon, "doctor", "--json"], 120)
    return {"read": d["measured"]["read_bytes_per_second"],
            **{k: v["macs_per_second"] for k, v in d["measured"]["peaks"].items()}}


def parse_row(row):
    m = re.fullmatch(r"(pp|tg)(\d+)(?:@(\d+))?|x(\d+)", row)
    if not m:
        sys.exit(f"there is no row {row}")
    if m[4]:
        return {"streams": int(m[4]), "n": 128, "depth": 128, "kind": "tg"}
    return {"streams": 1, "n": int(m[2]), "depth": int(m[3] or 0), "kind": m[1]}


def run_echelon(a, path, row, peaks):
    t = parse_row(row)
    args = [a.echelon, "bench", path, "-r", str(a.repetitions), "-o", "json", "-d", str(t["depth"]),
            "-p", str(t["n"] if t["kind"] == "pp" else 0),
            "-n", str(t["n"] if t["kind"] == "tg" else 0), "-b", str(t["streams"])]
    if a.bf16 and "BF16" in path and peaks["bf16"] > 1.5 * peaks["f32"]:
        args += ["--compute", "bf16"]
    r = call(args, a.timeout)[0]
    return {k: r[k] for k in ("median_ts", "samples_ts", "read_fraction", "peak_fraction", "product",
                              "read_bytes_per_second", "peak_macs_per_second", "version")}


def run_peer(a, path, row, fa):
    t = parse_row(row)
    if t["streams"] > 1:
        args = ["streams", path, "-b", str(t["streams"]), "-p", str(t["depth"]), "-n", str(t["n"]),
                "-r", "1"]
    else:
        args = ["bench", path, "-d", str(t["depth"]), "-r", str(a.repetitions),
                "-p", str(t["n"] if t["kind"] == "pp" else 0),
                "-n", str(t["n"] if t["kind"] == "tg" else 0)]
    r = call([*a.peer, *args, "--fa", str(fa)], a.timeout, {"OMP_WAIT_POLICY": "active"})
    if t["streams"] > 1:
        return {"median_ts": r["decode_tokens_per_second"]}
    one = r["results"][0]
    return {"median_ts": one["tokens_per_second"], "samples_ts": one["samples"],
            "version": r["version"]}


def read_log(path):
    if not path or not os.path.exists(path):
        return []
    rounds = []
    for line in open(path, encoding="utf-8"):
        try:
            rounds.append(json.loads(line))
        except ValueError:
            pass  # the last line of a run that was killed
    return rounds


def append(path, entry):
    with open(path, "a+b") as f:
        if f.tell() > 0:
            f.seek(-1, os.SEEK_END)
            if f.read(1) != b"\n":
                f.write(b"\n")  # after a line that was cut off
        f.write(json.dumps(entry).encode() + b"\n")
        f.flush()
        os.fsync(f.fileno())


def settings(a, path, row):
    """The best setting of the earlier rounds, or all of them."""
    rows = summarise([e for e in read_log(a.out)
                      if e["file"] == os.path.basename(path) and e["row"] == row])
    return [int(rows[0]["peer_setting"][2:])] if rows and rows[0]["peer_setting"] else a.peer_fa


def one_round(a, path, row):
    before = limits(a)
    peer = {}
    for fa in settings(a, path, row):
        try:
            peer[f"fa{fa}"] = run_peer(a, path, row, fa)
        except (RuntimeError, ValueError, KeyError, subprocess.TimeoutExpired) as e:
            peer[f"fa{fa}"] = {"error": str(e)[:300]}
    try:
        ours = run_echelon(a, path, row, before)
    except (RuntimeError, ValueError, KeyError, subprocess.TimeoutExpired) as e:
        ours = {"error": str(e)[:300]}
    return {"file": os.path.basename(path), "row": row, "time": time.strftime("%FT%TZ", time.gmtime()),
            "limits": before, "peer": peer, "echelon": ours}


def measure(a):
    jobs = [(f, r) for f in a.files for r in a.rows if not a.match or re.search(a.match, f"{f} {r}")]
    began = time.monotonic()
    for number in range(a.rounds):
        for path, row in jobs:
            name = os.path.basename(path)
            done = sum(e["file"] == name and e["row"] == row for e in read_log(a.out))
            if done > number:
                continue
            if a.minutes and time.monotonic() - began > 60 * a.minutes:
                print("the time is up; run again to go on", file=sys.stderr)
                return
            print(f"{time.strftime('%T')} round {number + 1}: {name} {row}", file=sys.stderr, flush=True)
            append(a.out, one_round(a, path, row))


def median(xs):
    xs = [x for x in xs if x is not None]
    return statistics.median(xs) if xs else None


def summarise(rounds):
    """A dict for each file and row, in the order of their first round."""
    out = []
    for key in dict.fromkeys((e["file"], e["row"]) for e in rounds):
        mine = [e for e in rounds if (e["file"], e["row"]) == key]
        ours = median([e["echelon"].get("median_ts") for e in mine])
        settings = {s for e in mine for s in e["peer"]}
        by_setting = {s: median([e["peer"].get(s, {}).get("median_ts") for e in mine])
                      for s in settings}
        best = max(((v, s) for s, v in by_setting.items() if v is not None), default=(None, None))
        product = next((e["echelon"]["product"] for e in mine if "product" in e["echelon"]), "int8")
        limit = {k: median([e["limits"][k] for e in mine] +
                           [e["echelon"].get(same) for e in mine])
                 for k, same in (("read", "read_bytes_per_second"),
                                 (product, "peak_macs_per_second"))}
        out.append({"file": key[0], "row": key[1], "rounds": len(mine), "echelon": ours,
                    "peer": best[0], "peer_setting": best[1], "peer_by_setting": by_setting,
                    "ratio": ours / best[0] if ours and best[0] else None,
                    "read_fraction": median([e["echelon"].get("read_fraction") for e in mine]),
                    "peak_fraction": median([e["echelon"].get("peak_fraction") for e in mine]),
                    "product": product, "read_gb": limit["read"] / 1e9,
                    "peak_gmac": limit[product] / 1e9,
                    "errors": [str(x["error"]) for e in mine
                               for x in [e["echelon"], *e["peer"].values()] if "error" in x]})
    return out


def number(x, form="{:.1f}"):
    return form.format(x) if x is not None else "–"


def markdown(rows):
    lines = ["| file | test | Echelon t/s | llama.cpp t/s | setting | ratio | of read | of peak | "
             "read GB/s | peak GMAC/s | rounds |",
             "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for r in rows:
        lines.append(f"| {r['file']} | {r['row']} | {number(r['echelon'])} | {number(r['peer'])} | "
                     f"{r['peer_setting'] or '–'} | {number(r['ratio'], '{:.2f}')} | "
                     f"{number(r['read_fraction'], '{:.0%}')} | {number(r['peak_fraction'], '{:.0%}')} "
                     f"{r['product']} | {number(r['read_gb'])} | {number(r['peak_gmac'], '{:.0f}')} | "
                     f"{r['rounds']} |")
    errors = [f"- {r['file']} {r['row']}: {e}" for r in rows for e in r["errors"]]
    return "\n".join(lines + ([""] + errors if errors else [])) + "\n"


def arguments():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("files", nargs="*")
    p.add_argument("--echelon", default="build/release/echelon")
    p.add_argument("--peer", nargs=2, metavar=("PYTHON", "PEER.py"))
    p.add_argument("--out", required=True, help="rounds, a JSON object a line; appended to")
    p.add_argument("--md", help="write the table here; -: print it")
    p.add_argument("--summary", help="write medians and ratios here, as JSON")
    p.add_argument("--rows", type=lambda s: s.split(","), default=ROWS)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--repetitions", type=int, default=1, help="inside a round, after a warm-up")
    p.add_argument("--match", help="a pattern that 'FILE ROW' must hold")
    p.add_argument("--peer-fa", type=lambda s: [int(x) for x in s.split(",")], default=[1, 0])
    p.add_argument("--bf16", action="store_true", help="BF16 files with --compute bf16, on a CPU with such products")
    p.add_argument("--minutes", type=float, help="no round begins after so long")
    p.add_argument("--timeout", type=int, default=900, help="seconds of one program")
    a = p.parse_args()
    for row in a.rows:
        parse_row(row)
    if a.files and not a.peer:
        p.error("--peer is needed to measure")
    return a


def main():
    a = arguments()
    try:
        if a.files:
            measure(a)
    except KeyboardInterrupt:
        pass
    rows = summarise(read_log(a.out))
    if a.summary:
        with open(a.summary, "w", encoding="utf-8") as f:
            json.dump(rows, f, indent=1)
    table = markdown(rows)
    if a.md and a.md != "-":
        with open(a.md, "w", encoding="utf-8") as f:
            f.write(table)
    else:
        print(table, end="")


main()
