#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program where something runs out: descriptors, address space, file sizes, processes, disks; and where it is killed.

It works, or it says so in one line and leaves with a code; either way no process, no shared memory and no half a file is left.
What needs root is left out without it, by name.

usage: test_resources.py [TEST…]      environment: ECHELON, the program
"""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ECHELON, TALE = os.environ["ECHELON"], os.path.join(ROOT, "models", "tale")
ANSWER = ["generate", "-m", TALE, "-p", "Once", "-n", "2", "--max-seq-len", "64", "--threads", "2", "--no-cache"]
NOBODY = 65534
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def in_group(pgid):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                if f"ECH_TEST_MARK={pgid}\0".encode() in f.read():
                    found.append(pid)
        except OSError:
            pass
    return found


def run(args, limit=None, program=ECHELON, nobody=False, kill_after=None, later=None, said=""):
    """Its result, when nothing of it is left. The marked environment finds children that left the group."""
    def begin():
        if limit:
            resource.setrlimit(limit[0], (limit[1], limit[1]))
        if nobody:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
    mark = f"{os.getpid()}-{random.getrandbits(48)}"
    env = {**os.environ, "ECH_TEST_MARK": mark, "ECHELON_OVERSUBSCRIBE": "1"}
    p = subprocess.Popen([program, *args], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, preexec_fn=begin)
    if later is not None:
        time.sleep(later[0])
        later[1]()
    if kill_after is not None:
        time.sleep(kill_after)
        p.kill()
    out, err = p.communicate(said, timeout=60)
    until = time.monotonic() + 5
    while in_group(mark) and time.monotonic() < until:
        time.sleep(0.02)
    assert not in_group(mark), (args, "left processes")
    return subprocess.CompletedProcess(args, p.returncode, out, err)


def check(r, *what):
    """It worked, or there is one line that says what didn't."""
    if r.returncode == 0:
        return True
    assert r.returncode in (1, 2, 3, 4), (what, r.returncode, r.stderr)
    last = r.stderr.strip().splitlines()[-1:]
    assert len(last) == 1 and last[0].startswith("echelon: ") and len(last[0]) > 30, (what, r.returncode, r.stderr)
    assert r.stderr.count("\n") == 1 + r.stderr.count("echelon: warning"), (what, r.stderr)
    return False


def both_happen(results):
    assert any(results) and not all(results), results


@test
def limits_of_the_process(folder):
    """Each from far too little to enough."""
    both_happen([check(run(ANSWER, (resource.RLIMIT_NOFILE, n)), "descriptors", n) for n in (5, 6, 7, 8, 9, 10, 12, 16, 24, 64)])
    both_happen([check(run(ANSWER, (resource.RLIMIT_AS, mb << 20)), "address space", mb)
                 for mb in (50, 100, 150, 200, 250, 300, 350, 400, 500, 4000)])


@test
def files_that_may_not_grow(folder):
    """Without a file-size signal that kills it."""
    cache = os.path.join(folder, "cache")
    pack = ["pack", "--cache-dir", cache, TALE]
    for args in (ANSWER, pack):
        both_happen([check(run(args, (resource.RLIMIT_FSIZE, kb << 10)), "file size", args[0], kb)
                     for kb in (0, 1, 1000, 20000, 70000, 1 << 20)])
    assert [n for n in os.listdir(cache) if n.endswith(".tmp")] == []


@test
def processes_and_threads(folder):
    if os.geteuid() != 0:
        return "needs root, to become a user who has none"
    program = shutil.copy(ECHELON, folder)
    model = shutil.copytree(TALE, os.path.join(folder, "model"))
    os.chmod(folder, 0o755)
    args = [model if a == TALE else a for a in ANSWER]
    results = [check(run(args, (resource.RLIMIT_NPROC, n), program, nobody=True), "processes", n) for n in (0, 1, 2, 3, 4, 5, 64)]
    both_happen(results)


def mounted(folder, options, args, said=""):
    """A small file system at `folder`, for this command alone."""
    script = 'mount -t tmpfs -o "$0" none "$1" || exit 77; shift; "$@"; code=$?; ls -A "$FOLDER" | grep "[.]tmp$"; exit $code'
    r = run(["-m", "bash", "-c", f'FOLDER="{folder}"; {script}', options, folder, ECHELON, *args], program="unshare", said=said)
    assert ".tmp\n" not in r.stdout, (args, r.stdout)
    return r


@test
def disks_that_are_full(folder):
    if os.geteuid() != 0 or mounted(folder, "size=1m", ["version"]).returncode != 0:
        return "needs root and mounts, to make a small disk"
    for options in ("size=1m", "nr_inodes=1", "ro"):
        for args in (["pack", "--cache-dir", folder, TALE], ["pack", "-o", folder + "/file", TALE]):
            assert not check(mounted(folder, options, args), options, args[1]), (options, args)
    for place in ("/dev/shm", "/tmp"):
        if os.path.realpath(ECHELON).startswith(place) or ROOT.startswith(place):
            continue
        assert check(mounted(place, "ro", ANSWER), place), place


@test
def files_of_the_end_that_do_not_fit(folder):
    """What a command writes when its work is done: it fails with one line, and nothing is left of the file."""
    if os.geteuid() != 0 or mounted(folder, "size=1m", ["version"]).returncode != 0:
        return "needs root and mounts, to make a small disk"
    text = os.path.join(ROOT, "README.md")
    file, bench = folder + "/file", ["bench", TALE, "-p", "0", "-n", "1,2,3,4,5,6,7,8", "-r", "3", "--read-bytes", "16M", "--output", "jsonl"]
    for args in ([*ANSWER, "-n", "40", "--trace", file], ["chat", "-m", TALE, "--no-cache", "--trace", file], [*bench, "--save", file],
                 ["bench", "runtime", "--stream-tasks", "256", "--trace", file], ["kld", TALE, text, "-c", "32", "--save", file]):
        r = mounted(folder, "size=4k", args, "Tell me a tale.\n")
        assert not check(r, args[0], args[-1]) and file in r.stderr and "Success" not in r.stderr, (args, r.returncode, r.stderr)
        r = mounted(folder, "size=200m", args, "Tell me a tale.\n")
        assert r.returncode == 0 and r.stderr.count("echelon: error") == 0, (args, r.returncode, r.stderr)


def served(trace, n_requests, most):
    """Serves so many requests, then no file may be larger than `most`: (exit code, standard error)."""
    p = subprocess.Popen([ECHELON, "serve", "-m", TALE, "--port", "0", "--no-cache", "--trace", trace], text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    url = p.stdout.readline().strip()
    body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
    for _ in range(n_requests):
        urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"}), timeout=60).read()
    if most is not None:
        resource.prlimit(p.pid, resource.RLIMIT_FSIZE, (most, most))
    p.terminate()
    err = p.communicate(timeout=60)[1]
    return p.returncode, err


@test
def a_trace_is_whole_or_not_there(folder):
    """Where the requests don't fit behind the steps, the steps alone are there: JSON at any size."""
    trace = os.path.join(folder, "trace")
    assert served(trace, 60, None) == (0, "")
    with open(trace, encoding="utf-8") as f:
        text = f.read()
    json.loads(text)
    steps, size = text.index('"cat":"request"'), len(text)
    assert size - steps > 12000, (steps, size)
    for most, has_steps in ((0, False), (steps // 2, False), ((steps + size) // 2, True)):
        os.unlink(trace)
        code, err = served(trace, 60, most)
        assert code == 1 and err.count("\n") == 1 and trace in err and "File too large" in err, (most, code, err)
        assert os.path.exists(trace) == has_steps, most
        if has_steps:
            with open(trace, encoding="utf-8") as f:
                kinds = {e.get("cat") for e in json.load(f)["traceEvents"]}
            assert kinds and "request" not in kinds, kinds
        else:
            with open(trace, "w", encoding="utf-8") as f:
                f.write("older")
            assert served(trace, 1, 0)[0] == 1
            with open(trace, encoding="utf-8") as f:
                assert f.read() == "older"


@test
def killed_while_it_packs(folder):
    """At any moment: the next one packs, and nothing of the first is left."""
    pack = ["pack", "--cache-dir", folder, TALE]
    for i in range(12):
        run(pack, kill_after=0.01 * i)
        assert check(run(pack), "after a kill")
        names = os.listdir(folder)
        assert len(names) == 1 and names[0].endswith(".echelon"), names
        os.unlink(os.path.join(folder, names[0]))


@test
def models_that_are_cut(folder):
    """Between two starts, by a page or to nothing; the cache keeps nothing of it."""
    model = shutil.copytree(TALE, os.path.join(folder, "model"))
    cache, weights = os.path.join(folder, "cache"), os.path.join(model, "model.safetensors")
    args = [model if a == TALE else a for a in ANSWER if a != "--no-cache"] + ["--cache-dir", cache]
    assert check(run(["pack", "--cache-dir", cache, model])) and check(run(args))
    size = os.path.getsize(weights)
    for left in (size - 1, size // 2, 100, 0):
        os.truncate(weights, left)
        r = run(args)
        assert not check(r, "cut") and weights in r.stderr, r.stderr
    for name in ("tokenizer.json", "config.json"):
        shutil.copy(os.path.join(TALE, "model.safetensors"), weights)
        os.truncate(os.path.join(model, name), 50)
        r = run(args)
        assert not check(r, "cut") and model in r.stderr, r.stderr
        shutil.copy(os.path.join(TALE, name), model)


@test
def files_that_are_cut_while_they_are_read(folder):
    """At any moment of a start: the model while it is packed, packed weights while they are copied or mapped."""
    model, packed = shutil.copytree(TALE, os.path.join(folder, "model")), os.path.join(folder, "packed")
    assert check(run(["pack", "-o", packed, model]))
    args = [model if a == TALE else a for a in ANSWER if a != "--no-cache"]
    for name, more in ((os.path.join(model, "model.safetensors"), ["--no-cache"]), (packed, ["--packed", packed]),
                       (packed, ["--packed", packed, "--load", "map"])):
        with open(name, "rb") as f:
            whole = f.read()
        for i in range(12):
            r = run(args + more, later=(0.004 * i, lambda name=name: os.truncate(name, 4096)))
            with open(name, "wb") as f:
                f.write(whole)
            errors = [line for line in r.stderr.splitlines() if "warning: " not in line]
            assert r.returncode in (0, 1) and len(errors) == r.returncode, (more, i, r.returncode, r.stderr)
            assert all(name in line for line in errors), (more, i, r.stderr)


def main():
    for fn in TESTS:
        if sys.argv[1:] and fn.__name__ not in sys.argv[1:]:
            continue
        folder = tempfile.mkdtemp(prefix="echelon-resources-")
        before = set(os.listdir("/dev/shm"))
        try:
            skipped = fn(folder)
            assert not [n for n in set(os.listdir("/dev/shm")) - before if "echelon" in n]
        finally:
            shutil.rmtree(folder)
        print(f"skipped {fn.__name__}: {skipped}" if skipped else f"ok {fn.__name__}", flush=True)


main()
