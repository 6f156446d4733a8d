#!/usr/bin/env python3
"""What a server does under load, measured from outside: load.py WHAT [--model-dir DIR] [--small] [--json].

  health   /health while 32 streams run and a long prompt is prefilled: p50, p99, max
  cancel   how long after its client left a request still holds pages: running, prefilling, queued
  idle     memory of 1000 open streams that wait
  drop     connections opened and dropped at random points: descriptors, memory, pages afterwards
  drain    SIGTERM in the middle: how each stream ends
  all      each of them

Each prints what it measured beside its bound, and the exit code says whether every bound held. --small is
a run of seconds, as the tests do. ECHELON names the program, ECH_TEST_SEED takes a seed back.
"""
import argparse
import json
import os
import random
import resource
import select
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Server

FAILED = []
OPTIONS = None


def report(name, value, unit, bound=None, good=None):
    ok = good if good is not None else bound is None or value <= bound
    if not ok:
        FAILED.append(name)
    if OPTIONS.json:
        print(json.dumps({"name": name, "value": value, "unit": unit, "bound": bound, "ok": ok}), flush=True)
    else:
        limit = "" if bound is None else f"  (at most {bound} {unit})"
        print(f"{'ok  ' if ok else 'FAIL'} {name}: {value} {unit}{limit}", flush=True)


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))]


def post(path, body):
    data = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data


def completion(**fields):
    return post("/v1/completions", {"prompt": "Once upon a time", "ignore_eos": True, **fields})


class Client:
    """A socket that has asked for something."""
    def __init__(self, server, data, timeout=120):
        self.sock = socket.create_connection(("127.0.0.1", server.port), timeout=timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(data)

    def read_all(self):
        out = b""
        try:
            while chunk := self.sock.recv(65536):
                out += chunk
        except OSError:
            pass
        return out

    def close(self):
        self.sock.close()


def start(*flags):
    more = ["--model-dir", OPTIONS.model_dir] if OPTIONS.model_dir else []
    return Server(*more, *flags)


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [int(x) for x in f.read().split()]


def memory_kib(pid):
    """What is the process's own, in RAM or swapped out: leaks hide from RSS alone."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        rows = dict(line.split(":", 1) for line in f)
    return sum(int(rows[k].split()[0]) for k in ("RssAnon", "VmSwap"))


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def long_prompt(server):
    """As many tokens as fit the context, but for a few, or 32 k."""
    room = server.get("/props")[1]["max_seq_len"] - 64
    return [random.randrange(5, 200) for _ in range(min(room, 32768))]


# ---- health ------------------------------------------------------------------------------------


def ask_health(server, seconds):
    """One request after another on one connection, a few ms apart: a list of ms."""
    asked = []
    c = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.003)
        at = time.perf_counter()
        c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        c.recv(4096)
        asked.append((time.perf_counter() - at) * 1e3)
    c.close()
    return asked


def ask_health_apart(server, seconds):
    """The same from a process of its own: beside threads that read streams it would wait for the interpreter's lock."""
    here, there = os.pipe()
    pid = os.fork()
    if pid == 0:
        with os.fdopen(there, "w", encoding="ascii") as f:
            json.dump(ask_health(server, seconds), f)
        os._exit(0)
    os.close(there)
    with os.fdopen(here, encoding="ascii") as f:
        asked = json.load(f)
    os.waitpid(pid, 0)
    return asked


def drink(client):
    threading.Thread(target=client.read_all, daemon=True).start()


def health():
    """The best of some windows: a machine may be busy with other things for a while."""
    seconds, n_streams = (2, 8) if OPTIONS.small else (20, 32)
    s = start("--max-running", "64")
    prompt = long_prompt(s)
    report("health: idle p99", round(percentile(ask_health(s, min(seconds, 3)), 0.99), 2), "ms")
    clients = [Client(s, completion(max_tokens=100000, stream=True, seed=i)) for i in range(n_streams)]
    for c in clients:
        drink(c)
    s.wait_metric("num_requests_running", n_streams)
    stopping = threading.Event()
    prefills = [0]

    def prefill():
        while not stopping.is_set():
            random.shuffle(prompt)
            Client(s, post("/v1/completions", {"prompt": prompt, "max_tokens": 1})).read_all()
            prefills[0] += 1
    t = threading.Thread(target=prefill, daemon=True)
    t.start()
    windows = []
    for _ in range(10 if OPTIONS.small else 5):
        window = ask_health_apart(s, seconds)
        if s.metric("num_requests_running") < n_streams:
            break  # streams have reached their context's end: this window was not under full load
        windows.append(window)
        if percentile(window, 0.99) <= 5:
            break
    if not windows:
        sys.exit("health: the streams ended within the first window; a longer context is needed")
    best = min(windows, key=lambda window: percentile(window, 0.99))
    stopping.set()
    for c in clients:
        c.sock.shutdown(socket.SHUT_RDWR)
    t.join(60)
    s.wait_metric("num_requests_running", 0)
    report(f"health: {len(best)} requests beside {n_streams} streams and prompts of {len(prompt)} tokens ({prefills[0]} done), p50", round(percentile(best, 0.5), 2), "ms")
    report("health: p99 of each window", [round(percentile(window, 0.99), 2) for window in windows], "ms", good=True)
    report("health: p99", round(percentile(best, 0.99), 2), "ms", 5)
    report("health: max", round(max(best), 2), "ms")
    s.stop()


# ---- cancel ------------------------------------------------------------------------------------


def used_pages(server):
    return server.metric("kv_cache_usage_perc")


def cancel():
    s = start("--max-running", "4", "--no-prefix-cache")
    prompt = long_prompt(s)
    at = time.perf_counter()
    s.post("/v1/completions", {"prompt": prompt, "max_tokens": 1})
    prefill_step = (time.perf_counter() - at) * 1e3 / (len(prompt) / s.get("/props")[1]["prefill_chunk"])
    rounds = 3 if OPTIONS.small else 20
    times = {"running": [], "prefilling": [], "queued": []}
    for i in range(rounds):
        for what in times:
            others = []
            if what == "queued":
                others = [Client(s, completion(max_tokens=100000, stream=True)) for _ in range(4)]
                s.wait_metric("num_requests_running", 4)
            body = {"prompt": prompt if what == "prefilling" else "a", "max_tokens": 100000, "ignore_eos": True, "stream": i % 2 == 0}
            c = Client(s, post("/v1/completions", body))
            s.wait_metric("num_requests_waiting" if what == "queued" else "num_requests_running", 1)
            if what == "prefilling":
                time.sleep(random.random() * 0.05)
            at = time.perf_counter()
            c.close()
            gone = (lambda: s.metric("num_requests_waiting") == 0) if what == "queued" else (lambda: used_pages(s) == 0)
            while not gone():
                if time.perf_counter() - at > 30:
                    break
            times[what].append((time.perf_counter() - at) * 1e3)
            for o in others:
                o.close()
            while used_pages(s) > 0:
                time.sleep(0.001)
    step = s.metric("step_seconds_total") / s.metric("steps_total") * 1e3
    report("cancel: a step of the prefill", round(prefill_step, 2), "ms")
    for what, values in times.items():
        # Two steps are in flight at most; beside them: noticing, looks at /metrics, who else wants the core.
        bound = 2 * (prefill_step if what == "prefilling" else step) + 20
        report(f"cancel: pages of a {what} request are back after, p50", round(percentile(values, 0.5), 2), "ms", round(bound, 1))
        report(f"cancel: {what}, max", round(max(values), 2), "ms")
    s.stop()


# ---- idle --------------------------------------------------------------------------------------


def idle():
    n = 200 if OPTIONS.small else 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    s = start("--max-running", "1", "--max-queued", "4000", "--ping-ms", "1000")
    pid = s.process.pid
    first = Client(s, completion(max_tokens=100000, stream=True))
    drink(first)
    s.wait_metric("num_requests_running", 1)
    before, fds = memory_kib(pid), descriptors(pid)
    clients = [Client(s, completion(max_tokens=5, stream=True, seed=i)) for i in range(n)]
    s.wait_metric("num_requests_waiting", n, 30)
    time.sleep(2.5)
    pinged = 0
    for c in clients:
        c.sock.setblocking(False)
        try:
            pinged += b": ping" in c.sock.recv(65536)
        except OSError:
            pass
    grown = (memory_kib(pid) - before) / 1024
    report(f"idle: {n} waiting streams take", round(grown, 1), "MiB", 50 * n / 1000 + (5 if OPTIONS.small else 0))
    report("idle: of these, a comment came to", pinged, "streams", good=pinged == n)
    report("idle: descriptors of a stream", round((descriptors(pid) - fds) / n, 2), "", 3.01)
    for c in clients:
        c.close()
    gone = s.wait_metric("num_requests_waiting", 0, 10)
    report("idle: waiting after all have gone", s.metric("num_requests_waiting"), "", good=gone)
    first.sock.shutdown(socket.SHUT_RDWR)
    s.stop()


# ---- drop --------------------------------------------------------------------------------------


def drop_one(server, rng):
    """Opens, sends a part of a request or all of it, reads a part of the answer or none, drops."""
    stream = rng.random() < 0.5
    kind = rng.random()
    if kind < 0.15:
        data = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * rng.randrange(1, 4)
    elif kind < 0.3:
        data = post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 30, "stream": stream})
    elif kind < 0.4:
        data = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"pro\r\n"
    else:
        data = completion(max_tokens=rng.choice([1, 5, 50, 1000]), stream=stream)
    if rng.random() < 0.3:
        data = data[:rng.randrange(len(data))]
    try:
        s = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    except OSError:
        return
    try:
        s.sendall(data)
        how = rng.random()
        if how < 0.3:
            time.sleep(rng.random() * 0.01)
        elif how < 0.6:
            s.settimeout(0.05)
            s.recv(rng.choice([1, 100, 10000]))
        if rng.random() < 0.3:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    except OSError:
        pass
    s.close()


def drop_many(server, n, seed):
    rngs = [random.Random(seed * 100 + i) for i in range(8)]

    def run(rng):
        for _ in range(n // len(rngs)):
            drop_one(server, rng)
    threads = [threading.Thread(target=run, args=(r,)) for r in rngs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def settle(server, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.metric("num_requests_running") == server.metric("num_requests_waiting") == 0 and server.metric("http_connections") == 1:
            return True
        time.sleep(0.05)
    return False


def descriptors_after(pid, before):
    """How many more there are; the connection of the last question may take a moment to go."""
    end = time.monotonic() + 5
    while descriptors(pid) > before and time.monotonic() < end:
        time.sleep(0.05)
    return descriptors(pid) - before


def drop():
    n = 400 if OPTIONS.small else 10000
    seed = int(os.environ.get("ECH_TEST_SEED", time.time_ns() % 10**6))
    print(f"seed={seed}")
    s = start("--no-prefix-cache")
    pid = s.process.pid
    drop_many(s, max(n // 4, 400), seed)  # threads' heaps grow at first
    settle(s)
    fds, memory = descriptors(pid), memory_kib(pid)
    at = time.monotonic()
    drop_many(s, n, seed + 1)
    took = time.monotonic() - at
    settled = settle(s)
    report(f"drop: {n} connections in {took:.1f} s; of the pages in use", used_pages(s), "", good=settled and used_pages(s) == 0)
    report("drop: descriptors more than before", descriptors_after(pid, fds), "", 0)
    report("drop: memory more than before, per connection", round(max(memory_kib(pid) - memory, 0) / n, 3), "KiB", 10 if OPTIONS.small else 0.2)  # a few MiB move with the heaps
    status = s.post("/v1/completions", {"prompt": "a", "max_tokens": 3})[0]
    report("drop: the server still answers", status, "", good=status == 200)
    s.stop()


# ---- drain -------------------------------------------------------------------------------------


def drain():
    n = 8 if OPTIONS.small else 32
    s = start("--drain-timeout", "2", "--max-running", str(max(1, n - 4)))
    short = [Client(s, completion(max_tokens=200, stream=True, seed=i)) for i in range(n // 2)]
    long_ = [Client(s, completion(max_tokens=1000000, stream=True, seed=i)) for i in range(n // 2)]
    whole = [Client(s, completion(max_tokens=1000000)) for _ in range(2)]
    outs = {}
    threads = [threading.Thread(target=lambda c=c: outs.__setitem__(c, c.read_all())) for c in short + long_ + whole]
    for t in threads:
        t.start()
    while s.metric("generation_tokens_total") < n:
        time.sleep(0.002)
    at = time.monotonic()
    s.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    ready, live = s.get("/health")[0], s.get("/health/live")[0]
    refused = s.call("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})
    code = s.process.wait(60)
    took = time.monotonic() - at
    for t in threads:
        t.join(10)
    ends = {"[DONE]": 0, "error": 0, "nothing": 0}
    for c in short + long_:
        tail = outs.get(c, b"")[-600:]
        ends["[DONE]" if b"data: [DONE]" in tail else "error" if b'data: {"error"' in tail else "nothing"] += 1
        if not outs.get(c, b"").endswith(b"0\r\n\r\n"):
            ends["nothing"] += 1
    report("drain: streams that ended with [DONE] / an error frame / neither", list(ends.values()), "", good=ends["nothing"] == 0 and sum(ends.values()) == n)
    report("drain: whole answers ended", sum(b"HTTP/1.1 " in outs.get(c, b"") for c in whole), "of 2", good=all(b"HTTP/1.1 " in outs.get(c, b"") for c in whole))
    report("drain: /health, /health/live, a new request", [ready, live, refused[0]], "", good=(ready, live, refused[0]) == (503, 200, 503) and "retry-after" in refused[1])
    report("drain: exit code", code, "", 0)
    report("drain: from the signal to the exit", round(took, 2), "s", 2 + 3)
    s.process.stdout.close()


COMMANDS = {"health": health, "cancel": cancel, "idle": idle, "drop": drop, "drain": drain}


def main():
    global OPTIONS
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=[*COMMANDS, "all"])
    p.add_argument("--model-dir")
    p.add_argument("--small", action="store_true")
    p.add_argument("--json", action="store_true")
    OPTIONS = p.parse_args()
    for name, run in COMMANDS.items():
        if OPTIONS.what in (name, "all"):
            run()
    return 1 if FAILED else 0


if __name__ == "__main__":
    sys.exit(main())
