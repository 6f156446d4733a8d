#!/usr/bin/env python3
"""The cache of packed weights as a user meets it: whatever is in it, the same tokens come out. ECHELON names the program."""
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models", "tale")
ECHELON = os.environ["ECHELON"]


def run(folder, *args, ok=True):
    env = dict(os.environ, ECHELON_CACHE_DIR=folder, ECHELON_OVERSUBSCRIBE="1")
    out = subprocess.run([ECHELON, *args], capture_output=True, text=True, timeout=100, env=env)
    if ok and out.returncode != 0:
        sys.exit(f"{args}: {out.stderr}")
    return out


def generate(folder, *args):
    out = run(folder, "generate", "-m", MODEL, "--prompt", "Once upon a time", "--max-new-tokens", "12", "--json",
              "--ignore-eos", "--logprobs", "2", "--max-seq-len", "64", *args)
    row = json.loads(out.stdout)
    return (row["token_ids"], row.get("logprobs")), out.stderr


def files(folder):
    return json.loads(run(folder, "cache", "list", "--json").stdout)["files"]


def check(what, right):
    if not right:
        sys.exit(f"wrong: {what}")


def loads_alike(folder):
    """Packed afresh, from the cache copied and mapped, from a file that was moved."""
    fresh, _ = generate(folder, "--no-cache")
    check("no cache was asked for", files(folder) == [])
    made = json.loads(run(folder, "pack", "--json", MODEL).stdout)
    check("it was not there", made["was_there"] is False)
    check("it is there now", json.loads(run(folder, "pack", "--json", MODEL).stdout)["was_there"] is True)
    check("one file", [f["path"] for f in files(folder)] == [made["path"]])
    moved = os.path.join(folder, "moved")
    run(folder, "pack", "-o", moved, MODEL)
    for args in (["--load", "copy"], ["--load", "map"], ["--packed", moved], ["--packed", moved, "--load", "map"],
                 ["--threads", "1"], ["--threads", "3", "--load", "map"]):
        got, err = generate(folder, *args)
        check(f"{args}: {got} instead of {fresh}", got == fresh)
        check(f"{args} says {err}", err == "")
    out = run(folder, "generate", "-m", MODEL, "--quantize", "q4", "--packed", moved, "--prompt", "x", ok=False)
    check(f"a file of another type: {out.stderr}", out.returncode == 1 and "which is not what" in out.stderr)
    os.unlink(moved)
    return fresh


def survives_damage(folder, fresh):
    path = files(folder)[0]["path"]
    size = os.path.getsize(path)
    whole = open(path, "rb").read()
    damages = [whole[:size // 2], whole[:100], b"", b"x" * 5000, whole[:20] + b"\xff" + whole[21:],
               whole[:size // 3] + bytes([whole[size // 3] ^ 1]) + whole[size // 3 + 1:]]
    for i, bad in enumerate(damages):
        with open(path + "2", "wb") as f:
            f.write(bad)
        os.rename(path + "2", path)
        got, err = generate(folder)
        check(f"damage {i}: {got}", got == fresh)
        check(f"damage {i} is one line: {err!r}", err.count("\n") == 1 and "packed again" in err)
        run(folder, "pack", MODEL)
    check("written again", [f["state"] for f in files(folder)] == ["usable"])


def two_at_a_time(folder):
    run(folder, "cache", "clear")
    env = dict(os.environ, ECHELON_CACHE_DIR=folder, ECHELON_OVERSUBSCRIBE="1")
    both = [subprocess.Popen([ECHELON, "pack", MODEL], env=env, stdout=subprocess.DEVNULL) for _ in range(3)]
    check("all of them pack", [p.wait(timeout=100) for p in both] == [0, 0, 0])
    check("into one file", [f["state"] for f in files(folder)] == ["usable"])


def tokenizer_tables(folder, fresh):
    """They are in the file, and used until the tokenizer is another one."""
    made = "another tokenizer's tables"
    model = os.path.join(folder, "model")
    shutil.copytree(MODEL, model)
    args = ["generate", "-m", model, "--prompt", "Once upon a time", "--max-new-tokens", "12", "--json", "--ignore-eos",
            "--logprobs", "2", "--max-seq-len", "64", "--log-level", "info"]
    run(folder, "pack", model)
    for load in ("copy", "map"):
        out = run(folder, *args, "--load", load)
        check(f"tables are used: {out.stderr}", made not in out.stderr)
    with open(os.path.join(model, "tokenizer.json"), "a") as f:
        f.write("\n")
    out = run(folder, *args)
    check(f"another tokenizer is seen: {out.stderr}", made in out.stderr)
    row = json.loads(out.stdout)
    check("and right", (row["token_ids"], row.get("logprobs")) == fresh)
    shutil.rmtree(model)


def unwritable(folder, fresh):
    run(folder, "cache", "clear")
    out = run("/proc/nowhere", "pack", MODEL, ok=False)
    check(f"no folder: {out.stderr}", out.returncode == 1 and "/proc/nowhere" in out.stderr)
    check("it runs without", generate("/proc/nowhere")[0] == fresh)
    check("nothing is left", os.listdir(folder) == [])


@contextlib.contextmanager
def serving(folder, *args):
    """Its URL, when it is ready; and its standard error, when it has ended."""
    env = dict(os.environ, ECHELON_CACHE_DIR=folder, ECHELON_OVERSUBSCRIBE="1")
    server = subprocess.Popen([ECHELON, "serve", "-m", MODEL, "--port", "0", "--load", "map", "--max-seq-len", "64", *args],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    said = []
    try:
        url = server.stdout.readline().strip()
        until = time.monotonic() + 60
        while get(url + "/health")[0] != 200:
            check("it is ready", time.monotonic() < until)
            time.sleep(0.1)
        yield url, said
    finally:
        server.terminate()
        said.append(server.communicate(timeout=30)[1])
    check("it ends", server.returncode == 0)


def get(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    try:
        r = urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=60)
        return r.status, json.loads(r.read())
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read())


def ask(url):
    return get(url + "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "ignore_eos": True, "seed": 1})


def replaced_while_mapped(folder, fresh):
    """Clearing the cache takes nothing from an engine that has the file mapped, nor does looking at it."""
    run(folder, "pack", MODEL)
    with serving(folder) as (url, _):
        before = ask(url)[1]["choices"]
        run(folder, "pack", MODEL)
        files(folder)
        run(folder, "cache", "clear")
        check("the same text", ask(url)[1]["choices"] == before)


def written_over_while_mapped(folder, fresh):
    """What the file is now is not what was checked: no token of it, no hang, no chip after chip, and it says what to do."""
    def cut(path, size):
        return lambda: os.truncate(path, size)

    def over(path):
        def write():
            with open(path, "r+b") as f:
                f.seek(size // 2)
                f.write(os.urandom(4096))
        return write
    packed = os.path.join(folder, "packed")
    run(folder, "pack", "-o", packed, MODEL)
    whole, size = open(packed, "rb").read(), os.path.getsize(packed)
    for how in (cut(packed, 0), cut(packed, size // 2), cut(packed, size - 1), over(packed)):
        with open(packed, "wb") as f:
            f.write(whole)
        with serving(folder, "--packed", packed) as (url, said):
            check("it answers", ask(url)[0] == 200)
            how()
            for _ in range(3):
                code, body = ask(url)
                check(f"no answer of it: {body}", code >= 500 and packed in body["error"]["message"])
                check(f"what to do: {body}", "start again" in body["error"]["message"])
            code, body = get(url + "/health")
            check(f"not healthy: {body}", code == 503 and packed in body["error"]["message"])
        check(f"one chip at most: {said}", said[0].count("is gone") <= 1 and said[0].count(packed) == 1)
    os.unlink(packed)


def little_may_be_locked(folder, fresh):
    """Nothing, less than the weights, or what the system allows: the same tokens, and it says what became of the lock."""
    run(folder, "pack", MODEL)
    most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    for limit in (0, 65536, most):
        env = dict(os.environ, ECHELON_CACHE_DIR=folder, ECHELON_OVERSUBSCRIBE="1")
        args = [ECHELON, "generate", "-m", MODEL, "--prompt", "Once upon a time", "--max-new-tokens", "12", "--json", "--ignore-eos",
                "--logprobs", "2", "--max-seq-len", "64", "--load", "map"]
        set_limit = lambda limit=limit: resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, most))
        for more in ([], ["--log-level", "info"]):
            out = subprocess.run(args + more, capture_output=True, text=True, timeout=100, env=env, preexec_fn=set_limit)
            row = json.loads(out.stdout)
            check(f"{limit}: {row}", (row["token_ids"], row["logprobs"]) == fresh)
            check(f"{limit}: {out.stderr}", bool(more) or out.stderr == "")
        locked, not_locked = ", locked in memory\n" in out.stderr, "not locked: 'ulimit -l' is too small" in out.stderr
        may = may_lock_all() or limit > os.path.getsize(files(folder)[0]["path"])
        check(f"{limit}: {out.stderr}", locked != not_locked and (locked or not may))


def may_lock_all():
    with open("/proc/self/status", encoding="utf-8") as f:
        caps = int(next(line for line in f if line.startswith("CapEff:")).split()[1], 16)
    return bool(caps >> 14 & 1)  # CAP_IPC_LOCK


def main():
    folder = tempfile.mkdtemp(prefix="echelon-cache-")
    try:
        fresh = loads_alike(folder)
        survives_damage(folder, fresh)
        tokenizer_tables(folder, fresh)
        two_at_a_time(folder)
        unwritable(folder, fresh)
        replaced_while_mapped(folder, fresh)
        written_over_while_mapped(folder, fresh)
        little_may_be_locked(folder, fresh)
    finally:
        shutil.rmtree(folder)


main()
