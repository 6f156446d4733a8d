#!/usr/bin/env python3
"""echelon bench MODEL and echelon doctor as a user meets them: formats, fields, depths, saved runs,
the last run that is remembered, and what is refused."""
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ECHELON = os.environ["ECHELON"]
MODEL = "models/tale"
FAST = ["--read-bytes", "16M", "-r", "2"]


def run(*args, rc=0, env=None):
    p = subprocess.run([ECHELON, *args], capture_output=True, text=True, timeout=60,
                       env={**os.environ, **(env or {})})
    assert p.returncode == rc, f"{args}: exit {p.returncode}\n{p.stderr}"
    return p


def check_row(row):
    """What llama-bench's readers expect, and what must agree inside a row."""
    for key in ("cpu_info", "backends", "model_filename", "model_type", "test_time"):
        assert isinstance(row[key], str), key
    assert row["n_threads"] >= 1 and row["type_k"] == row["type_v"] == "f16"
    assert len(row["samples_ts"]) == len(row["samples_ns"]) == 2
    tokens = row["n_prompt"] or row["n_gen"] * row["n_streams"]
    for ns, ts in zip(row["samples_ns"], row["samples_ts"]):
        assert abs(ts * ns / 1e9 / tokens - 1) < 1e-6
    assert abs(sum(row["samples_ts"]) / 2 - row["avg_ts"]) < 1e-6 * row["avg_ts"]
    assert row["read_bytes_per_second"] > 1e6 and row["peak_macs_per_second"] > 1e6
    assert row["read_fraction"] > 0 and row["peak_fraction"] > 0


def formats(folder):
    saved = os.path.join(folder, "run.json")
    tests = ["-p", "40", "-n", "8", "-d", "0,70", "-b", "1,3"]
    rows = json.loads(run("bench", MODEL, *tests, *FAST, "-o", "json", "--save", saved).stdout)
    names = [r["test"] for r in rows]
    assert names == ["pp40", "tg8", "tg8 x3", "pp40 @ d70", "tg8 @ d70", "tg8 x3 @ d70"], names
    for row in rows:
        check_row(row)
    assert json.load(open(saved)) == rows

    again = run("bench", "model", MODEL, "-p", "0", "-n", "8", *FAST, "-o", "jsonl",
                "--compare", saved).stdout
    row = json.loads(again)
    assert row["saved_median_ts"] == rows[1]["median_ts"]
    assert abs(row["ratio"] * row["saved_median_ts"] / row["median_ts"] - 1) < 1e-9

    table = list(csv.DictReader(io.StringIO(
        run("bench", MODEL, "-p", "16", "-n", "0", *FAST, "-o", "csv").stdout)))
    assert len(table) == 1 and table[0]["n_prompt"] == "16" and float(table[0]["avg_ts"]) > 0

    md = run("bench", MODEL, "-p", "16", "-n", "0", *FAST, "--compare", saved).stdout.splitlines()
    assert md[0].startswith("| model | size | params | backend | threads |") and "ratio" in md[0]
    assert len(md) == 3 and "| pp16 |" in md[2] and " ± " in md[2]


def refusals(folder):
    broken = os.path.join(folder, "broken.json")
    open(broken, "w").write('{"no": "rows"}')
    assert "no array of rows" in run("bench", MODEL, *FAST, "--compare", broken, rc=1).stderr
    good = {"n_prompt": 0, "n_gen": 2, "n_depth": 0, "n_streams": 1, "median_ts": 5.0}
    for n, row in enumerate([1, None, {}, [], {**good, "median_ts": 0}, {**good, "median_ts": "5"}, {**good, "n_gen": "2"}]):
        open(broken, "w").write(json.dumps([good] * n + [row]))
        err = run("bench", MODEL, *FAST, "--compare", broken, rc=1).stderr
        assert broken in err and f"row {n} is none" in err, (row, err)
    whole = json.loads(run("bench", "runtime", "--stream-tasks", "256", "--json").stdout)
    name = next(k for k, v in whole.items() if isinstance(v, dict) and "p99" in v)
    for text in ("[]", "{}", "[1]", '{"other": 1}', json.dumps({name: 1}), json.dumps({**whole, name: {"p50": 1, "p99": "1", "p999": 1}}),
                 json.dumps({**whole, name: {"p50": 0, "p99": 1, "p999": 1}})):
        open(broken, "w").write(text)
        assert broken in run("bench", "runtime", "--stream-tasks", "256", "--compare", broken, rc=1).stderr, text
    open(broken, "w").write(json.dumps({name: whole[name]}))
    assert "ratio" in run("bench", "runtime", "--stream-tasks", "256", "--compare", broken).stdout
    assert "nothing-there" in run("bench", "nothing-there", rc=1).stderr
    for bad in (["-p", "x"], ["-p", "1,,2"], ["-b", "0"], ["-b", "65"], ["-o", "xml"], ["-r", "0"]):
        run("bench", MODEL, *bad, rc=2)
    # A KV memory that can't keep the depth beside what is measured is an error, not a number.
    text = run("bench", MODEL, "-p", "0", "-n", "8", "-b", "3", "-d", "64", "--kv-memory", "500K",
               *FAST, rc=1)
    assert "of a depth of 64 tokens" in text.stderr, text.stderr


def loading(folder):
    """What generate takes to load a model, those that measure take too."""
    text = os.path.join(folder, "text")
    open(text, "w").write("Once upon a time there was a king. " * 60)
    how = ["--quantize", "q8", "--cache-dir", os.path.join(folder, "packed")]
    outputs = []
    for args in (["--no-cache"], ["--load", "copy"], ["--load", "map"]):
        outputs.append(run("perplexity", MODEL, text, "--ctx", "64", "--chunks", "4", "--json", *how, *args).stdout)
        run("bench", MODEL, "-p", "16", "-n", "8", *FAST, *how, *args)
        outputs[-1] += run("embed", MODEL, "One", *how, *args).stdout
    assert outputs[0] == outputs[1] == outputs[2], outputs


def doctor(folder):
    env = {"XDG_CACHE_HOME": os.path.join(folder, "cache")}
    d = json.loads(run("doctor", "--json", "--read-bytes", "16M", env=env).stdout)
    assert d["last_run"] is None and d["threads"] >= 1 and d["cores"] >= 1
    for level in (2, 3):  # as the kernel sees them; sysconf counts other guests' CPUs in
        for index in range(8):
            at = f"/sys/devices/system/cpu/cpu0/cache/index{index}/"
            if os.path.exists(at + "level") and open(at + "level").read().strip() == str(level):
                size = open(at + "size").read().strip()
                assert d[f"l{level}_bytes"] == int(size[:-1]) << {"K": 10, "M": 20}[size[-1]], size
    kernels = {(p["weights"], p["activations"]): p["kernels"] for p in d["paths"]}
    assert ("q8", "q8") in kernels and ("f32", "f32") in kernels
    assert d["measured"]["read_bytes_per_second"] > 1e6
    assert all(p["macs_per_second"] > 1e6 for p in d["measured"]["peaks"].values())

    run("bench", MODEL, "-p", "16", "-n", "8", *FAST, env=env)
    d = json.loads(run("doctor", "--json", "--read-bytes", "16M", env=env).stdout)
    assert d["last_run"]["command"] == "bench" and d["last_run"]["read_fraction"] > 0
    run("generate", "-m", MODEL, "-p", "One", "-n", "8", env=env)
    text = run("doctor", "--read-bytes", "16M", env=env).stdout
    assert "last run     generate of " in text and "of the read" in text, text
    with subprocess.Popen([ECHELON, "serve", "-m", MODEL, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          env={**os.environ, **env}) as server:
        url = server.stdout.readline().strip()
        ask = urllib.request.Request(url + "/v1/completions", data=b'{"prompt": "One", "max_tokens": 8}')
        for _ in range(100):  # until the weights are there
            try:
                assert urllib.request.urlopen(ask, timeout=30).status == 200
                break
            except urllib.error.HTTPError as e:
                assert e.code == 503, e.code
                time.sleep(0.1)
        server.terminate()
        assert server.wait(30) == 0
    assert "last run     serve of " in run("doctor", "--read-bytes", "16M", env=env).stdout

    # A file that is anything at all is no last run.
    path = os.path.join(folder, "cache/echelon/last-run.json")
    for bad in ("[]", "x" * 100000, '{"command": "a", "model": "b", "time": 1, '
                '"product": 77, "bytes_per_second": 1.0, "macs_per_second": 1.0}'):
        open(path, "w").write(bad)
        assert "none remembered" in run("doctor", "--read-bytes", "16M", env=env).stdout
    # Plain C too has limits; a word that is none is refused.
    ref = json.loads(run("doctor", "--json", "--read-bytes", "16M",
                         env={**env, "ECHELON_CPU": "ref"}).stdout)
    assert {p["kernels"] for p in ref["paths"]} == {"ref"}
    assert "ECHELON_CPU" in run("doctor", env={**env, "ECHELON_CPU": "mmx"}, rc=2).stderr


def main():
    with tempfile.TemporaryDirectory() as folder:
        for check in (formats, refusals, loading, doctor):
            check(folder)
            print(check.__name__, "ok")


sys.exit(main())
