#!/usr/bin/env python3
"""Faults that users of other servers reported: cancellation, hangs, scheduling, memory. test_cases_load.py [ID …]

One function per row, by its ID; without an argument each of them. The servers run the demo model. Times are
held against what the same machine did a moment before, since it may be busy with other things.
"""
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import ECHELON, Server
from load import Client, completion, descriptors, drop_many, memory_kib, post, settle, used_pages

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


class serving:
    def __init__(self, *flags):
        self.flags = flags

    def __enter__(self):
        self.server = Server(*self.flags)
        return self.server

    def __exit__(self, kind, *_):
        code = self.server.stop()
        if kind is None:
            assert code == 0, code


def context_prompt(server, left=40):
    n = server.get("/props")[1]["max_seq_len"] - left
    return [random.randrange(5, 200) for _ in range(n)]


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.003)


def cpu_seconds(server):
    """Of the server and every process it started."""
    todo, total = [server.process.pid], 0.0
    while todo:
        pid = todo.pop()
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            fields = f.read().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            todo += [int(x) for x in f.read().split()]
    return total


@case
def CX1():
    """50 queued clients, 49 leave, the last is served at once: the dead ones don't run."""
    with serving("--max-running", "1") as s:
        runner = Client(s, completion(max_tokens=100000, stream=True))
        until(lambda: s.metric("num_requests_running") == 1)
        queued = [Client(s, completion(max_tokens=2000, stream=i % 2 == 0)) for i in range(49)]
        last = Client(s, completion(max_tokens=3))
        until(lambda: s.metric("num_requests_waiting") == 50)
        for c in queued:
            c.close()
        until(lambda: s.metric("num_requests_waiting") == 1)
        drawn = s.metric("generation_tokens_total")
        runner.close()
        assert b"200 OK" in last.sock.recv(4096)
        # Had a dead one run, its 2000 tokens would be here.
        assert s.metric("generation_tokens_total") - drawn < 2000
        last.close()


@case
def CX2():
    """A client leaves a stream while another request is being prefilled, again and again; then SIGTERM."""
    with serving("--no-prefix-cache", "--max-seq-len", "2048") as s:
        prompt = context_prompt(s)
        for i in range(int(os.environ.get("ECH_ROUNDS", "8"))):
            stream = Client(s, completion(max_tokens=100000, stream=True))
            stream.sock.recv(100)
            random.shuffle(prompt)
            other = Client(s, post("/v1/completions", {"prompt": prompt, "max_tokens": 1}))
            time.sleep(random.random() * 0.02)
            stream.close()
            if i % 2 == 0:
                assert b"200 OK" in other.sock.recv(4096)
            other.close()
        until(lambda: s.metric("num_requests_running") == 0)
        assert s.get("/health")[0] == 200


@case
def CX3():
    """Hundreds of chats with tools, one after another."""
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
    with serving() as s:
        for i in range(int(os.environ.get("ECH_ROUNDS", "60"))):
            body = {"messages": [{"role": "user", "content": f"What is the weather in Rome? {i}"}], "tools": tools, "max_tokens": 24, "temperature": 0,
                    "tool_choice": ["auto", "required", "none"][i % 3]}
            if i % 2:
                assert s.stream("/v1/chat/completions", body)[-1] == "[DONE]"
            else:
                assert s.post("/v1/chat/completions", body)[0] == 200
        assert s.metric("num_requests_running") == 0 and used_pages(s) == 0


@case
def CX5():
    """A client that leaves while its long prompt is prefilled: no CPU is burnt a step later."""
    with serving("--no-prefix-cache", "--max-seq-len", "2048") as s:
        prompt = context_prompt(s)
        whole = cpu_seconds(s)
        assert s.post("/v1/completions", {"prompt": prompt, "max_tokens": 1})[0] == 200
        whole = cpu_seconds(s) - whole
        for stream in (True, False):
            c = Client(s, post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "stream": stream}))
            until(lambda: s.metric("num_requests_running") == 1)
            c.close()
            until(lambda: s.metric("num_requests_running") == 0 and used_pages(s) == 0)
            steps, burnt = s.metric("steps_total"), cpu_seconds(s)
            time.sleep(0.5)
            assert s.metric("steps_total") <= steps + 1
            assert cpu_seconds(s) - burnt < max(0.2, whole / 2), (cpu_seconds(s) - burnt, whole)


@case
def CX6():
    """/health while a prompt is prefilled: many answers come before the prefill is over."""
    with serving("--no-prefix-cache", "--max-seq-len", "2048") as s:
        prompt = context_prompt(s)
        answers = []
        for _ in range(3):
            c = Client(s, post("/v1/completions", {"prompt": prompt, "max_tokens": 1}))
            until(lambda: s.metric("num_requests_running") == 1)
            before = time.monotonic()
            n = 0
            while s.metric("num_requests_running") == 1:
                assert s.get("/health")[0] == 200
                assert s.post("/tokenize", {"prompt": "abc"})[0] == 200
                n += 1
            answers.append((n, time.monotonic() - before))
            c.close()
        assert max(n for n, _ in answers) >= 3, answers


def leaves(stream):
    with serving() as s:
        for _ in range(3):
            c = Client(s, completion(max_tokens=100000, stream=stream))
            until(lambda: s.metric("num_requests_running") == 1)
            c.close()
            until(lambda: s.metric("num_requests_running") == 0)
            drawn = s.metric("generation_tokens_total")
            time.sleep(0.1)
            assert s.metric("generation_tokens_total") <= drawn + 1
        assert used_pages(s) == 0


@case
def CX7():
    """A client that leaves before its whole answer is there."""
    leaves(False)


@case
def CX8():
    """A client that leaves its stream: no zombie decodes on, the pages are back."""
    leaves(True)


@case
def CX10():
    """Prompts that keep coming don't starve a stream: its gaps stay within some steps' time."""
    with serving("--no-prefix-cache", "--max-itl", "50", "--max-seq-len", "1024") as s:
        prompt = context_prompt(s)
        stream = Client(s, completion(max_tokens=100000, stream=True))
        stream.sock.recv(100)
        stop = threading.Event()

        def arrive():
            while not stop.is_set():
                random.shuffle(prompt)
                c = Client(s, post("/v1/completions", {"prompt": prompt, "max_tokens": 1}))
                c.sock.recv(4096)
                c.close()
        threads = [threading.Thread(target=arrive) for _ in range(3)]
        for t in threads:
            t.start()
        gaps, last = [], time.monotonic()
        end = last + 3
        data = b""
        while last < end and b"[DONE]" not in data:
            data = stream.sock.recv(65536)
            now = time.monotonic()
            gaps.append(now - last)
            last = now
        stop.set()
        stream.close()
        for t in threads:
            t.join()
        assert len(gaps) > 10 and max(gaps) < 2.5, (len(gaps), max(gaps))
        assert s.metric("prompt_tokens_total") > len(prompt)


@case
def CX11():
    """A short prompt gets its first token while a long one is being prefilled, not after it."""
    with serving("--no-prefix-cache", "--max-seq-len", "2048") as s:
        prompt = context_prompt(s)
        ahead = 0
        for _ in range(3):
            done = []
            long_ = Client(s, post("/v1/completions", {"prompt": prompt * 1, "max_tokens": 1, "n": 1}))
            t = threading.Thread(target=lambda: (long_.sock.recv(4096), done.append("long")))
            t.start()
            until(lambda: s.metric("num_requests_running") >= 1)
            assert s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200
            done.append("short")
            t.join()
            long_.close()
            ahead += done[0] == "short"
        assert ahead >= 2, ahead


@case
def CX12():
    """More threads than the affinity mask has CPUs: a warning, fewer threads, and it serves."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        with serving("-t", "5") as s:
            assert s.get("/props")[1]["threads"] == 1
            assert "5" in s.stderr()
            assert s.post("/v1/completions", {"prompt": "a", "max_tokens": 5})[0] == 200
    finally:
        os.sched_setaffinity(0, cpus)


@case
def CX13():
    """A tiny context and more max_tokens than fit: each answer ends with length, fast and repeatedly."""
    with serving("--max-seq-len", "64") as s:
        for i in range(30):
            status, out = s.post("/v1/completions", {"prompt": "a", "max_tokens": 1000, "ignore_eos": True, "seed": i})
            assert (status, out["choices"][0]["finish_reason"]) == (200, "length")
            assert out["usage"]["total_tokens"] <= 64
        assert s.post("/v1/completions", {"prompt": [5] * 64, "max_tokens": 1})[0] == 400


@case
def CX15():
    """An answer that takes longer than --request-timeout ends with an error, whole, streamed or still waiting; the rest goes on."""
    with serving("--request-timeout", "1", "--max-running", "2", "--no-prefix-cache") as s:
        endless = {"prompt": "a", "max_tokens": 100000, "ignore_eos": True, "n": 16}
        at = time.monotonic()
        streams = [Client(s, post("/v1/completions", {**endless, "stream": True})) for _ in range(2)]
        others = [Client(s, post(path, body)) for path, body in (
            ("/v1/completions", endless), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 100000, "ignore_eos": True, "n": 16}))]
        for c in streams:
            out = b""
            while not out.endswith(b"0\r\n\r\n"):
                out += c.sock.recv(65536)
            c.close()
            assert b'data: {"error"' in out and b'"code":"timeout"' in out and b"[DONE]" not in out, out[-300:]
        for c in others:
            head, _, body = c.sock.recv(65536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 504") and b"x-should-retry: false" in head, head
            assert json.loads(body)["error"]["code"] == "timeout", body
            c.close()
        assert time.monotonic() - at < 20
        until(lambda: s.metric("num_requests_running") == 0 and s.metric("num_requests_waiting") == 0 and used_pages(s) == 0)
        assert s.post("/v1/completions", {"prompt": "a", "max_tokens": 3})[0] == 200


@case
def CX16():
    """SIGTERM in the middle of a prefill: it exits within the drain time, streams get an error frame."""
    s = Server("--drain-timeout", "1", "--no-prefix-cache")
    prompt = context_prompt(s)
    stream = Client(s, completion(max_tokens=1000000, stream=True))
    stream.sock.recv(100)
    more = [Client(s, post("/v1/completions", {"prompt": random.sample(prompt, len(prompt)), "max_tokens": 100000, "ignore_eos": True, "stream": True})) for _ in range(4)]
    # All are known to the engine: one that came after the signal would be refused with a 503.
    until(lambda: s.metric("num_requests_running") + s.metric("num_requests_waiting") == 5)
    at = time.monotonic()
    code = s.stop(seconds=20)
    assert code == 0 and time.monotonic() - at < 10
    for c in (stream, *more):
        out = c.read_all()
        assert b'data: {"error"' in out and out.endswith(b"0\r\n\r\n"), out[-300:]
        c.close()


@case
def CX17():
    """What a shutdown is: not ready at once, live until the exit, new requests 503, running ones finish."""
    s = Server("--drain-timeout", "30")
    c = Client(s, completion(max_tokens=1500, stream=True))
    c.sock.recv(100)
    s.process.send_signal(signal.SIGTERM)
    until(lambda: s.get("/health")[0] == 503)
    assert s.get("/health")[1] == {"status": "draining"}
    assert s.get("/health/live")[0] == 200
    status, headers, _ = s.call("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})
    assert status == 503 and int(headers["retry-after"]) > 0
    assert b"data: [DONE]" in c.read_all()
    assert s.stop() == 0
    # A second signal doesn't wait.
    s = Server("--drain-timeout", "600")
    c = Client(s, completion(max_tokens=1000000, stream=True))
    c.sock.recv(100)
    s.process.send_signal(signal.SIGTERM)
    until(lambda: s.get("/health")[0] == 503)
    assert s.stop(seconds=20) == 0
    assert b'data: {"error"' in c.read_all()


@case
def CX18():
    """A queue of 4 and 20 clients: 429 with retry-after for the rest, and no memory is kept."""
    with serving("--max-running", "1", "--max-queued", "4") as s:
        runner = Client(s, completion(max_tokens=100000, stream=True))
        until(lambda: s.metric("num_requests_running") == 1)
        statuses, headers = [], []
        clients = [Client(s, completion(max_tokens=3)) for _ in range(20)]
        until(lambda: s.metric("num_requests_waiting") == 4)
        until(lambda: s.metric("http_requests_total") >= 21)
        time.sleep(0.3)
        refused = 0
        for c in clients:
            c.sock.settimeout(0.05)
            try:
                out = c.sock.recv(4096)
            except TimeoutError:
                continue
            assert out.startswith(b"HTTP/1.1 429") and b"retry-after: " in out.lower() and b"rate_limit_exceeded" in out, out
            refused += 1
        assert refused == 16, refused
        before = memory_kib(s.process.pid)
        for _ in range(300):
            assert s.call("POST", "/v1/completions", {"prompt": "a", "max_tokens": 3})[0] == 429
        assert memory_kib(s.process.pid) - before < 2000
        runner.close()
        for c in clients:
            c.close()


@case
def CX20():
    """One bad parameter hurts nobody else: every numeric field with what no number should be."""
    bad = [-1, 1e308, -1e308, 2**63, -(2**63), 2**64, 10**30, 0.01, "1", "", True, None, [], [1], {}]
    fields = ["temperature", "top_p", "min_p", "typical_p", "top_k", "n", "max_tokens", "min_tokens", "frequency_penalty", "presence_penalty", "repetition_penalty",
              "logprobs", "prompt_logprobs", "priority", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "xtc_probability",
              "xtc_threshold", "mirostat", "mirostat_tau", "mirostat_eta", "seed", "truncate_prompt_tokens", "thinking_budget", "stop_token_ids", "top_logprobs"]
    with serving() as s:
        stream = Client(s, completion(max_tokens=100000, stream=True))
        stream.sock.recv(100)
        c = s.connect()
        for field in fields:
            for value in bad:
                for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
                    c.request("POST", path, json.dumps({**body, "max_tokens": 1, field: value}).encode())
                    r = c.getresponse()
                    out = json.loads(r.read())
                    assert r.status in (200, 400), (field, value, r.status, out)
        c.close()
        assert len(stream.sock.recv(65536)) > 0
        assert s.metric("chip_replacements_total") == 0
        stream.close()


@case
def CX21():
    """256 connects at once: each is answered."""
    with serving() as s:
        clients = [socket.socket() for _ in range(256)]
        for c in clients:
            c.settimeout(30)
        barrier = threading.Barrier(8)

        def go(mine):
            barrier.wait()
            for c in mine:
                c.connect(("127.0.0.1", s.port))
                c.sendall(completion(max_tokens=2))
        threads = [threading.Thread(target=go, args=(clients[i::8],)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for c in clients:
            assert c.recv(4096).startswith(b"HTTP/1.1 200")
            c.close()


def slope(server, n, run):
    """KiB of memory that a request leaves behind, after a warm-up."""
    for _ in range(max(1200, n // 4)): # caches and pools fill up first
        run()
    first = memory_kib(server.process.pid)
    for _ in range(n):
        run()
    return (memory_kib(server.process.pid) - first) / n


@case
def ME1():
    """Memory after many requests of every kind, RAM and swap: none of it stays."""
    n = int(os.environ.get("ECH_ROUNDS", "400"))
    with open(ECHELON, "rb") as f:
        if b"__asan_init" in f.read():
            print("skipped: a sanitizer keeps what was freed")
            sys.exit(77)
    with serving() as s:
        kinds = [("/v1/completions", {"prompt": "Once", "max_tokens": 2}), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}),
                 ("/v1/completions", {"prompt": "Once", "max_tokens": 2, "logprobs": 3, "n": 2, "stop": ["x"]}), ("/v1/completions", {"prompt": 5}), ("/tokenize", {"prompt": "abc"}),
                 ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}), ("/v1/responses", {"input": "Hi", "max_output_tokens": 2}),
                 ("/v1/completions", {"prompt": "Once", "max_tokens": 3, "structured_outputs": {"regex": "[a-z]+"}})]
        c = s.connect()
        i = [0]

        def run():
            path, body = kinds[i[0] % len(kinds)]
            i[0] += 1
            c.request("POST", path, json.dumps({**body, "stream": i[0] % 3 == 0}).encode())
            c.getresponse().read()
        left = slope(s, n, run)
        assert left < 0.5, f"{left} KiB a request"
        end = time.monotonic() + 5  # a step that was computed ahead for the last answer ends after it
        while used_pages(s) != 0 and time.monotonic() < end:
            time.sleep(0.02)
        assert used_pages(s) == 0


ME2 = case(type(ME1)(ME1.__code__, globals(), "ME2"))


def odd_integers(fields):
    with serving() as s:
        for field in fields:
            for value in (-1, 0, -(2**31), 2**31 - 1, 2**31, -(2**63), 2**63 - 1, 2**63):
                status, out = s.post("/v1/completions", {"prompt": "a b c", "max_tokens": 2, field: value})
                assert status in (200, 400), (field, value, out)
                if status == 400: # a number beyond 64 bits is no JSON to the parser
                    assert out["error"]["param"] == field or field in out["error"]["message"] or "integer" in out["error"]["message"], out
        assert s.get("/health")[0] == 200 and s.metric("chip_replacements_total") == 0


@case
def ME4():
    """Whatever the cache's size, a request of the full context that the server names is answered; where the asked-for one has no room, it says why not."""
    for flags in ((), ("--kv-memory", "2M"), ("--max-seq-len", "512"), ("--kv-memory", "2M", "--max-seq-len", "4096")):
        with serving(*flags) as s:
            n = s.get("/props")[1]["max_seq_len"]
            status, out = s.post("/v1/completions", {"prompt": [5] * (n - 4), "max_tokens": 4, "ignore_eos": True})
            if status == 200:
                assert out["usage"]["total_tokens"] == n, out["usage"]
            else:
                assert len(flags) == 4 and status == 400 and "KV" in out["error"]["message"], (flags, status, out)
            assert s.post("/v1/completions", {"prompt": "a", "max_tokens": 4})[0] == 200


@case
def ME5():
    """What can't fit is refused before it is allocated, with the whole plan in the message."""
    for flags in (("--kv-memory", "100T"), ("--kv-memory", "100T", "--max-seq-len", "128")):
        done = subprocess.run([ECHELON, "serve", "--port", "0", *flags], capture_output=True, text=True, timeout=30)
        assert done.returncode == 1 and not done.stdout, done
        for word in ("expected at most", "found a need of", "weights", "KV cache", "step", "--max-seq-len"):
            assert word in done.stderr, (word, done.stderr)
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert most < 300 * 1024, f"{most} kB"


@case
def ME6():
    """Every integer field with -1 and the ends of its type."""
    odd_integers(["top_k", "n", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs", "priority", "mirostat", "seed", "truncate_prompt_tokens"])


@case
def ME7():
    """Lengths that could wrap around: DRY's, and n without a bound."""
    odd_integers(["dry_allowed_length", "dry_penalty_last_n", "n"])


def nested(field, opening=b"[", closing=b"]"):
    with serving() as s:
        for depth in (10, 3000, 10000, 100000):
            body = b'{"prompt": "a", "max_tokens": 1, "' + field + b'": ' + opening * depth + closing * depth + b"}"
            status, _, out = s.call("POST", "/v1/completions", body)
            assert status in (200, 400) and (status == 400 or depth == 10), (depth, status)
            assert "error" in json.loads(out) or status == 200
        assert s.get("/health")[0] == 200


@case
def ME9():
    """Ten thousand nested arrays in a field that nobody reads."""
    nested(b"metadata")
    nested(b"whatever", b'{"a":[', b"]}")


@case
def ME10():
    """The same where it is read: tools, logit_bias, schemas."""
    for field in (b"logit_bias", b"response_format", b"structured_outputs"):
        nested(field)
    with serving() as s:
        for field in (b"tools", b"messages"):
            body = b'{"messages": [{"role":"user","content":"a"}], "max_tokens": 1, "' + field + b'": ' + b"[" * 3000 + b"]" * 3000 + b"}"
            assert s.call("POST", "/v1/chat/completions", body)[0] == 400


@case
def ME11():
    """A prompt of 2 GB: 413 before any of it is kept, however its length is told."""
    with serving("--max-body", "1M") as s:
        before = memory_kib(s.process.pid)
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        out = s.raw(head + b"Content-Length: 2147483648\r\n\r\n" + b'{"prompt": "' + b"a" * 100000)
        assert out.startswith(b"HTTP/1.1 413") and b"body_too_large" in out, out
        out = s.raw(head + b"Transfer-Encoding: chunked\r\n\r\n80000000\r\n" + b"a" * 1000)
        assert out.startswith(b"HTTP/1.1 413"), out
        with socket.create_connection(("127.0.0.1", s.port), timeout=20) as c:
            c.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
            try:
                for _ in range(2000):
                    c.sendall(b"10000\r\n" + b"a" * 65536 + b"\r\n")
            except OSError:
                pass
            assert c.recv(4096).startswith(b"HTTP/1.1 413")
        assert memory_kib(s.process.pid) - before < 8000
        assert s.get("/health")[0] == 200


@case
def ME12():
    """Two and more at the same time give what each gives alone."""
    with serving() as s:
        bodies = [{"prompt": p, "max_tokens": 20, "temperature": 0} for p in ("Once upon a time", "Long ago", "What is 12 + 6?", "The")]
        alone = [s.post("/v1/completions", b)[1]["choices"][0]["text"] for b in bodies]
        for _ in range(5):
            got = [None] * len(bodies)
            threads = [threading.Thread(target=lambda i=i: got.__setitem__(i, s.post("/v1/completions", bodies[i])[1]["choices"][0]["text"])) for i in range(len(bodies))]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            assert got == alone


@case
def ME14():
    """Embedding inputs around 512 tokens and far above: an answer or a 400, never a 500."""
    with serving() as s:
        if s.call("POST", "/v1/embeddings", {"input": "a"})[0] == 404:
            print("skipped: there is no /v1/embeddings yet")
            sys.exit(77)
        room = s.get("/props")[1]["max_seq_len"]
        for n in (1, 511, 512, 513, 2048, room - 1, room, room + 1, 8192):
            status, out = s.post("/v1/embeddings", {"input": [5] * n})
            assert status == (200 if n <= room else 400), (n, status, out)
            if status == 200:
                assert out["usage"]["prompt_tokens"] == n


@case
def ME15():
    """Long prompts without the cache, by flag and by field."""
    for flags in (("--no-prefix-cache", "--max-seq-len", "2048"), ("--max-seq-len", "2048")):
        with serving(*flags) as s:
            prompt = context_prompt(s)
            first = s.post("/v1/completions", {"prompt": prompt, "max_tokens": 4, "temperature": 0, "cache_prompt": False})
            again = s.post("/v1/completions", {"prompt": prompt, "max_tokens": 4, "temperature": 0, "cache_prompt": False})
            assert first[0] == again[0] == 200 and first[1]["choices"] == again[1]["choices"]


@case
def dropped():
    """Connections dropped at random points leave descriptors, memory and pages as they were."""
    seed = int(os.environ.get("ECH_TEST_SEED", time.time_ns() % 10**6))
    print(f"seed={seed}")
    with serving("--no-prefix-cache") as s:
        drop_many(s, 80, seed)
        assert settle(s)
        fds = descriptors(s.process.pid)
        drop_many(s, 240, seed + 1)
        assert settle(s) and used_pages(s) == 0
        until(lambda: descriptors(s.process.pid) <= fds + 3)  # who asks is a client too


def main():
    random.seed(int(os.environ.get("ECH_TEST_SEED", "1")))
    for name in sys.argv[1:] or CASES:
        CASES[name]()
        print(f"{name} ok", flush=True)


if __name__ == "__main__":
    main()
