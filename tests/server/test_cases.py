#!/usr/bin/env python3
"""Rows of the faults that users of other servers reported, as they show over HTTP: characters and streams
(U), the prefix cache (KV), determinism and limits (DT, TR). The engine's own tests carry the same names;
ctest knows these as NAME.http."""
import json
import os
import random
import re
import select
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, run

SUM = [{"role": "user", "content": "What is 12 + 6?"}]


def ids(seed, n):
    """A prompt of n ordinary token ids."""
    rng = random.Random(seed)
    return [rng.randrange(300, 2000) for _ in range(n)]


def complete(s, prompt, **more):
    status, out = s.post("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 24, "ignore_eos": True, "return_token_ids": True, **more})
    assert status == 200, out
    return out


def tokens(out):
    return [c["token_ids"] for c in out["choices"]]


def cached(out):
    return out["usage"]["prompt_tokens_details"]["cached_tokens"]


def cold(s, prompt, **more):
    """What a server that never saw the prompt says: nothing is shared among salts."""
    return tokens(complete(s, prompt, cache_salt=str(random.random()), **more))


def leave(s, body, after):
    """Sends a completion and closes the connection after some seconds."""
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", s.port), timeout=10) as c:
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        time.sleep(after)


# ---- 4: UTF-8 and streams

@case("U1")
def any_drawn_bytes_make_valid_json(s):
    def one(seed):
        body = {"prompt": "é", "temperature": 1.5, "top_k": 0, "top_p": 1, "max_tokens": 40, "seed": seed, "allowed_token_ids": list(range(256))}
        status, _, raw = s.call("POST", "/v1/completions", {**body, "logprobs": 1} if seed % 2 else body)
        text = json.loads(raw.decode())["choices"][0]["text"]
        assert status == 200
        frames = s.stream("/v1/completions", body)[:-1]
        assert "".join(f["choices"][0]["text"] for f in frames) == text, seed
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(200)))


@case("U2")
def a_character_of_four_tokens_comes_whole(s):
    for path, prompt in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": SUM, "chat_template_kwargs": {"enable_thinking": False}})):
        for text in ("😊", "漢字", "한국"):
            body = {**prompt, "max_tokens": 40, "temperature": 0, "structured_outputs": {"choice": [text]}, "allowed_token_ids": list(range(256))}
            pieces = [f["choices"][0].get("text", f["choices"][0].get("delta", {}).get("content")) for f in s.stream(path, body)[:-1]]
            assert [p for p in pieces if p] == list(text), pieces


@case("U4")
def bodies_that_are_not_utf8(s):
    for bad in (b'{"\xff', b'{"prompt": "\xc0\x80"}', b'{"prompt": "\xe0\x80\xaf"}', b'{"prompt": "\\ud83d"}', b'{"prompt": "\\ude0a\\ud83d"}', b"\xfe\xff\x00{", b"\x00"):
        for path in ("/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/tokenize"):
            status, _, raw = s.call("POST", path, bad)
            assert status == 400 and json.loads(raw)["error"]["message"], (path, bad, raw)


@case("U5")
def one_id_and_time_for_all_chunks(s):
    for path, body in (("/v1/chat/completions", {"messages": SUM}), ("/v1/completions", {"prompt": "a"})):
        frames = s.stream(path, {**body, "n": 3, "max_tokens": 20, "stream_options": {"include_usage": True}})[:-1]
        for key in ("id", "created", "model", "object"):
            assert len({f[key] for f in frames}) == 1, key


@case("U6")
def finish_reason_is_there_once_and_last(s):
    for body in ({"max_tokens": 4}, {"max_tokens": 200}, {"stop": [" ="]}, {"n": 3}):
        frames = [f["choices"][0] for f in s.stream("/v1/chat/completions", {"messages": SUM, "temperature": 0, **body})[:-1]]
        for k in {f["index"] for f in frames}:
            reasons = [f["finish_reason"] for f in frames if f["index"] == k]
            assert all(r is None for r in reasons[:-1]) and reasons[-1] in ("stop", "length"), reasons


@case("U7")
def the_last_chunk_names_its_choice(s):
    for n in (2, 3, 5):
        frames = s.stream("/v1/completions", {"prompt": "Once", "n": n, "max_tokens": 6, "ignore_eos": True})[:-1]
        assert sorted(f["choices"][0]["index"] for f in frames if f["choices"][0]["finish_reason"]) == list(range(n))


@case("U9")
def proxies_do_not_hold_streams_back(s):
    s.stream("/v1/completions", {"prompt": "warm", "max_tokens": 2})
    best = 1.0
    for _ in range(10):
        c = s.connect()
        start = time.monotonic()
        c.request("POST", "/v1/chat/completions", json.dumps({"messages": SUM, "stream": True}).encode())
        r = c.getresponse()
        r.read(1)
        best = min(best, time.monotonic() - start)
        headers = {k.lower(): v for k, v in r.getheaders()}
        c.close()
        assert headers["content-type"].startswith("text/event-stream")
        assert headers["cache-control"] == "no-cache" and headers["x-accel-buffering"] == "no", headers
    assert best < 0.05, best


@case("U10", "--max-running", "1", "--ping-ms", "200")
def a_silent_stream_is_kept_alive(s):
    """Scaled from 60 s of prefill and 30 s of patience: the stream waits behind another one, its client gives up after a second of silence."""
    blocker = threading.Thread(target=leave, args=(s, {"prompt": "a", "max_tokens": 4000, "ignore_eos": True, "stream": False}, 3.0))
    blocker.start()
    while s.metric("num_requests_running") != 1:
        time.sleep(0.01)
    data = json.dumps({"messages": SUM, "stream": True, "temperature": 0}).encode()
    with socket.create_connection(("127.0.0.1", s.port)) as c:
        c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        raw = b""
        while True:
            assert select.select([c], [], [], 1.0)[0], "a second of silence"
            piece = c.recv(65536)
            if not piece:
                break
            raw += piece
    blocker.join()
    assert b": ping" in raw and b"data: [DONE]" in raw, raw[-400:]


# ---- 5: prefix cache and KV

@case("KV1", "--kv-memory", "64M")
def conversations_do_not_mix(s):
    a, b = ids(1, 300), ids(2, 300)
    want = {tuple(p): cold(s, p) for p in (a, b)}
    for p in (a, b, a, b, b, a):
        assert tokens(complete(s, p)) == want[tuple(p)]
    assert cached(complete(s, a)) > 0
    assert cached(complete(s, ids(3, 300))) == 0


NAMES = ["Ella", "Finn", "Molly", "Nora", "Rosie", "Max", "Greta", "Leo", "Mia", "Otto", "Lily", "Hugo", "Anna", "Ben", "Zoe", "Tom"]


def needles(s, disconnect):
    """Each conversation has a secret of its own: told alone, then all at once with others that leave."""
    def ask(name):
        history = [{"role": "user", "content": f"My name is {name}."}, {"role": "assistant", "content": f"Hello, {name}!"}, {"role": "user", "content": "What is my name?"}]
        return s.post("/v1/chat/completions", {"messages": history, "temperature": 0, "max_tokens": 40})[1]["choices"][0]["message"]["content"]
    alone = {name: ask(name) for name in NAMES}
    assert sum(name in alone[name] for name in NAMES) >= 8, alone  # the model does remember most
    rng = random.Random(4)
    with ThreadPoolExecutor(24) as pool:
        for _ in range(4):
            jobs = {name: pool.submit(ask, name) for name in NAMES}
            for _ in range(8 if disconnect else 0):
                pool.submit(leave, s, {"prompt": ids(rng.random(), 200), "max_tokens": 500, "ignore_eos": True, "stream": True}, rng.random() * 0.1)
            for name, job in jobs.items():
                assert job.result() == alone[name], (name, job.result())


@case("KV2")
def no_foreign_secret(s):
    needles(s, False)


@case("KV4")
def no_foreign_secret_while_clients_leave(s):
    needles(s, True)
    assert s.wait_metric("num_requests_running", 0)


@case("KV6")
def the_cache_works(s):
    page = s.get("/props")[1]["page_tokens"]
    prompt = ids(6, 10 * page)
    assert cached(complete(s, prompt)) == 0
    assert cached(complete(s, prompt)) >= 9 * page
    assert cached(complete(s, prompt + ids(7, 20))) >= 9 * page
    assert cached(complete(s, prompt[:5 * page] + ids(8, 40))) >= 4 * page
    assert cached(complete(s, ids(9, 3) + prompt)) == 0
    chat = [{"role": "user", "content": "Tell me a story about a fox named Finn. " * 8}]
    first = s.post("/v1/chat/completions", {"messages": chat, "temperature": 0, "max_tokens": 80})[1]
    chat += [{"role": "assistant", "content": first["choices"][0]["message"]["content"]}, {"role": "user", "content": "Go on."}]
    again = s.post("/v1/chat/completions", {"messages": chat, "temperature": 0, "max_tokens": 8})[1]
    assert cached(again) >= first["usage"]["prompt_tokens"] - page, (again["usage"], first["usage"])


@case("KV7", "--prefill-chunk", "32")
def a_prompt_again_after_its_prefill_was_cancelled(s):
    prompt = ids(70, 2000)
    want = cold(s, prompt)
    for i in range(6):
        leave(s, {"prompt": prompt, "max_tokens": 100, "stream": i % 2 == 0}, 0.01 + 0.02 * i)
        assert tokens(complete(s, prompt)) == want
    assert s.wait_metric("num_requests_running", 0)


@case("KV9")
def a_salt_given_on_first_use(s):
    prompt = ids(90, 200)
    first = complete(s, prompt, cache_salt="session-1")
    again = complete(s, prompt, cache_salt="session-1")
    other = complete(s, prompt, cache_salt="session-2")
    assert cached(first) == 0 and cached(again) > 0 and cached(other) == 0
    assert tokens(first) == tokens(again) == tokens(other)


@case("KV10", "--max-seq-len", "128")
def a_tiny_context(s):
    body = {"messages": [{"role": "user", "content": "What is the meaning of life?"}], "temperature": 0, "max_tokens": 128, "ignore_eos": True}
    ask = lambda _: s.post("/v1/chat/completions", body)[1]
    alone = ask(0)
    assert alone["choices"][0]["finish_reason"] == "length" and alone["usage"]["total_tokens"] <= 128
    with ThreadPoolExecutor(4) as pool:
        for out in pool.map(ask, range(8)):
            assert out["choices"] == alone["choices"]


@case("KV11", "--kv-memory", "24M", "--max-running", "4")
def a_runaway_does_not_end_the_others(s):
    prompts = [ids(110 + i, 100) for i in range(3)]
    want = [cold(s, p, max_tokens=300) for p in prompts]
    with ThreadPoolExecutor(4) as pool:
        runaway = pool.submit(s.post, "/v1/completions", {"prompt": ids(119, 100), "max_tokens": 4000, "ignore_eos": True, "temperature": 0})
        jobs = [pool.submit(complete, s, p, max_tokens=300) for p in prompts for _ in range(4)]
        for i, job in enumerate(jobs):
            assert tokens(job.result()) == want[i // 4]
        assert runaway.result()[1]["choices"][0]["finish_reason"] == "length"


@case("KV12", "--kv-memory", "24M")
def cold_warm_and_after_eviction(s):
    prompt = ids(120, 600)
    ask = lambda **kw: complete(s, prompt, max_tokens=60, logprobs=3, **kw)
    same = lambda out: [(c["token_ids"], c["logprobs"]) for c in out["choices"]]
    first = ask()
    want = same(first)
    warm = ask()
    assert cached(first) == 0 and cached(warm) > 0 and same(warm) == want
    for i in range(16):  # other prompts take its pages
        complete(s, ids(121 + i, 900))
    after = ask()
    assert cached(after) == 0, "nothing was evicted: the test's memory is too large"
    assert same(after) == want


@case("KV15")
def an_aborted_turn_leaves_nothing(s):
    chat = [{"role": "user", "content": "What is 3 + 4?"}]
    ask = lambda messages: s.post("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 40})[1]["choices"][0]["message"]["content"]
    reply = ask(chat)
    more = chat + [{"role": "assistant", "content": reply}, {"role": "user", "content": "What is the capital of Norway?"}]
    want = ask(more)
    for i in range(8):
        c = s.connect()
        c.request("POST", "/v1/chat/completions", json.dumps({"messages": more, "stream": True, "max_tokens": 2000, "ignore_eos": True}).encode())
        c.getresponse().read(50 * (i + 1))
        c.close()
        assert ask(more) == want
    assert s.wait_metric("num_requests_running", 0)
    assert s.wait_metric("kv_cache_usage_perc", 0), s.metric("kv_cache_usage_perc")


@case("KV19", "--kv-memory", "8M", "--max-seq-len", "2048")
def one_request_larger_than_the_pool(s):
    for n in (1, 4):
        out = s.post("/v1/completions", {"prompt": ids(190, 200), "max_tokens": 2000, "n": n, "ignore_eos": True, "temperature": 0})
        assert out[0] in (200, 400), out
        if out[0] == 200:
            assert {c["finish_reason"] for c in out[1]["choices"]} == {"length"}
    assert tokens(complete(s, ids(191, 50))) == cold(s, ids(191, 50))


# ---- 11: determinism, limits

@case("DT1")
def alone_among_others_and_warm(s):
    prompt = ids(201, 150)
    ask = lambda: [(c["token_ids"], c["logprobs"]) for c in complete(s, prompt, max_tokens=60, logprobs=5)["choices"]]
    alone = ask()
    stop = threading.Event()

    def noise(seed):
        while not stop.is_set():
            complete(s, ids(random.Random(seed).random(), 40 + 30 * seed), max_tokens=30 + seed)
    threads = [threading.Thread(target=noise, args=(i,)) for i in range(15)]
    for t in threads:
        t.start()
    try:
        for _ in range(4):
            assert ask() == alone
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert ask() == alone


@case("DT2")
def seeds_hold_under_load(s):
    body = {"messages": [{"role": "user", "content": "Tell me a story about a fox named Finn."}], "temperature": 1, "top_p": 1, "top_k": 0, "max_tokens": 40}
    ask = lambda seed: s.post("/v1/chat/completions", {**body, "seed": seed})[1]["choices"][0]["message"]["content"]
    alone = [ask(seed) for seed in range(8)]
    assert len(set(alone)) == 8
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(ask, list(range(8)) * 4)) == alone * 4
    assert len({ask(None) for _ in range(4)}) > 1


@case("DT3")
def choices_are_all_there(s):
    body = {"prompt": "Once upon a time", "n": 8, "seed": 40, "temperature": 1, "top_k": 0, "top_p": 1, "max_tokens": 24}
    first = s.post("/v1/completions", body)[1]["choices"]
    assert [c["index"] for c in first] == list(range(8)) and len({c["text"] for c in first}) == 8
    assert s.post("/v1/completions", body)[1]["choices"] == first
    frames = s.stream("/v1/completions", body)[:-1]
    for c in first:
        assert "".join(f["choices"][0]["text"] for f in frames if f["choices"][0]["index"] == c["index"]) == c["text"]
        assert s.post("/v1/completions", {**body, "n": 1, "seed": 40 + c["index"]})[1]["choices"][0]["text"] == c["text"]


@case("TR2", "--max-tokens", "50")
def an_answer_has_a_cap(s):
    for path, body in (("/v1/chat/completions", {"messages": SUM}), ("/v1/responses", {"input": "Hello"})):
        out = s.post(path, {**body, "ignore_eos": True})[1]
        usage = out["usage"].get("completion_tokens", out["usage"].get("output_tokens"))
        assert usage == 50, out
    assert s.post("/v1/completions", {"prompt": "a", "ignore_eos": True})[1]["usage"]["completion_tokens"] == 16
    asked = s.post("/v1/completions", {"prompt": "a", "ignore_eos": True, "max_tokens": 90})[1]
    assert (asked["usage"]["completion_tokens"], asked["choices"][0]["finish_reason"]) == (90, "length")


@case("TR7", "--metrics-prefix", "vllm")
def dashboards_find_their_metrics(s):
    """vLLM's names, and its buckets for the times."""
    for i in range(3):
        s.post("/v1/chat/completions", {"messages": SUM, "max_tokens": 5 + i})
    text = s.call("GET", "/metrics")[2].decode()
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total", "generation_tokens_total",
                 "num_preemptions_total", "prefix_cache_queries_total", "prefix_cache_hits_total"):
        assert re.search(rf'^vllm:{name}\{{model_name="tale"[^}}]*\}} \S+$', text, re.M), name
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds",
                 "request_decode_time_seconds", "request_prompt_tokens", "request_generation_tokens"):
        buckets = [(float(b), int(n)) for b, n in re.findall(rf'^vllm:{name}_bucket\{{[^}}]*le="([^"]+)"\}} (\d+)$', text, re.M)]
        assert buckets and buckets == sorted(buckets) and [n for _, n in buckets] == sorted(n for _, n in buckets), (name, buckets)
        assert buckets[-1][0] == float("inf") and buckets[-1][1] == 3, (name, buckets)
        assert f"# TYPE vllm:{name} histogram" in text and f"vllm:{name}_sum{{" in text and f"vllm:{name}_count{{" in text
    assert {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0} <= {
        float(b) for b in re.findall(r'vllm:time_to_first_token_seconds_bucket\{[^}]*le="([^"]+)"', text)}


@case("TR8")
def an_unknown_model_is_told_the_served_ones(s):
    for path, body in (("/v1/chat/completions", {"messages": SUM}), ("/v1/completions", {"prompt": "a"}), ("/v1/responses", {"input": "a"}),
                       ("/v1/messages", {"messages": SUM, "max_tokens": 5})):
        status, out = s.post(path, {**body, "model": "gpt-9"})
        assert status == 404 and "tale" in out["error"]["message"] and "gpt-9" in out["error"]["message"], out


if __name__ == "__main__":
    run()
