#!/usr/bin/env python3
"""The conformance list C1 to C15: what the SDKs of OpenAI's API rely on, each by its name."""
import base64
import json
import os
import random
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cases import case, need, run, skip
from harness import accumulate

SUM = [{"role": "user", "content": "What is 12 + 6?"}]
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}},
]
WEATHER = {"messages": [{"role": "user", "content": "What is the weather in Rome and in Cairo?"}], "tools": TOOLS, "temperature": 0, "max_tokens": 200}
# The model thinks when it may not close an empty block at once ("\n\n" is forbidden).
def thinking(s):
    blank = s.post("/tokenize", {"prompt": "\n\n"})[1]["tokens"]
    assert len(blank) == 1
    return {"messages": SUM, "temperature": 0, "max_tokens": 60, "logit_bias": {str(blank[0]): -100}}


CAT = {"type": "json_schema", "json_schema": {"name": "cat", "schema": {
    "type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}}, "required": ["name", "age"]}}}


def check(validator, raw, required):
    """raw against a type of the SDK, which is made from OpenAI's schema; required: keys that may be null, but not absent."""
    validator.validate_json(raw, strict=True)
    for path in required:
        nodes = [json.loads(raw)]
        for key in path.split("."):
            for node in nodes:
                assert key.rstrip("*") in node, (path, node)
            nodes = [n[key.rstrip("*")] for n in nodes]
            if key.endswith("*"):
                nodes = [x for n in nodes for x in n]


@case("C1")
def shapes_follow_the_schema(s):
    types = need("openai.types")
    chat_types = need("openai.types.chat")
    pydantic = need("pydantic")
    whole, chunk, text = (pydantic.TypeAdapter(t) for t in (chat_types.ChatCompletion, chat_types.ChatCompletionChunk, types.Completion))
    keys = ["id", "object", "created", "model", "usage", "choices*.finish_reason", "choices*.index", "choices*.logprobs",
            "choices*.message.role", "choices*.message.content", "choices*.message.refusal"]
    small = {"temperature": 0, "max_tokens": 12}
    variants = [{"messages": SUM, **small}, {"messages": SUM, **small, "n": 3, "seed": 1}, {"messages": SUM, **small, "logprobs": True},
                {"messages": SUM, **small, "logprobs": True, "top_logprobs": 5}, WEATHER, {**WEATHER, "tool_choice": "required"},
                {**WEATHER, "max_tokens": 9}, {"messages": SUM, "temperature": 0, "max_tokens": 90, "response_format": CAT},
                {"messages": SUM, **small, "stop": [" ="]}, {**thinking(s), "max_tokens": 90},
                {"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hello"}]}], **small},
                {"messages": SUM, "max_completion_tokens": 1}]
    assert len(variants) == 12
    for body in variants:
        status, _, raw = s.call("POST", "/v1/chat/completions", body)
        assert status == 200, raw
        check(whole, raw, keys)
        for frame in s.stream("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})[:-1]:
            check(chunk, json.dumps(frame).encode(), ["choices*.finish_reason", "choices*.logprobs", "choices*.delta", "usage"])
    for body in ({"prompt": "Once"}, {"prompt": ["a", "b"], "n": 2, "logprobs": 2}, {"prompt": "Once", "logprobs": 0}):
        status, _, raw = s.call("POST", "/v1/completions", {**body, **small})
        assert status == 200, raw
        check(text, raw, ["id", "object", "created", "model", "choices*.text", "choices*.logprobs", "choices*.finish_reason", "usage"])
    check(pydantic.TypeAdapter(types.Model), json.dumps(s.get("/v1/models/" + s.get("/v1/models")[1]["data"][0]["id"])[1]).encode(), ["owned_by"])
    check(pydantic.TypeAdapter(need("openai.types.responses").Response), s.call("POST", "/v1/responses", {"input": "Hello", "temperature": 0})[2],
          ["error", "incomplete_details", "instructions", "tools", "parallel_tool_calls", "output*.type"])


@case("C2")
def a_stream_carries_what_the_whole_answer_does(s):
    bodies = [{"messages": SUM, "temperature": 1.2, "seed": 5, "max_tokens": 60, "logprobs": True, "top_logprobs": 2}, WEATHER,
              {**WEATHER, "logprobs": True}, {**WEATHER, "max_tokens": 20}, {**thinking(s), "logprobs": True},
              {**WEATHER, "tool_choice": "required", "temperature": 1, "seed": 3}, {"messages": SUM, "stop": [" ="], "max_tokens": 40, "temperature": 0}]
    reasoned = False
    for body in bodies:
        answer = s.post("/v1/chat/completions", body)[1]
        whole = answer["choices"][0]
        frames = s.stream("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
        got = accumulate(frames)
        message = whole["message"]
        reasoned |= bool(message.get("reasoning_content"))
        assert got["content"] == (message["content"] or ""), (got, message)
        assert got["reasoning_content"] == message.get("reasoning_content", "")
        calls = [k["function"] for k in message.get("tool_calls", [])]
        assert got["calls"][:len(calls)] == calls, (got["calls"], calls)
        assert len(got["calls"]) == len(calls) or whole["finish_reason"] == "length"
        assert got["finish"] == whole["finish_reason"]
        assert got["logprobs"] == (whole["logprobs"] or {}).get("content", [])
        counts = lambda u: {k: u[k] for k in ("prompt_tokens", "completion_tokens", "total_tokens", "completion_tokens_details")}
        assert counts(frames[-2]["usage"]) == counts(answer["usage"])
    assert reasoned


@case("C3")
def the_sdk_accumulates_tool_calls(s):
    openai = need("openai")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none")
    with client.chat.completions.stream(model="tale", **WEATHER) as stream:
        done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0]
    assert [(e.name, json.loads(e.arguments)) for e in done] == [("get_weather", {"city": "Rome"}), ("get_weather", {"city": "Cairo"})], done
    assert [json.loads(c.function.arguments) for c in final.message.tool_calls] == [{"city": "Rome"}, {"city": "Cairo"}]
    assert final.finish_reason == "tool_calls"


@case("C4")
def usage_comes_once(s):
    for path, body in (("/v1/chat/completions", {"messages": SUM}), ("/v1/completions", {"prompt": "Once"})):
        for n in (1, 3):
            frames = s.stream(path, {**body, "n": n, "max_tokens": 8, "stream_options": {"include_usage": True}})
            assert frames[-1] == "[DONE]"
            assert all("usage" in f for f in frames[:-1])
            with_usage = [f for f in frames[:-1] if f["usage"] is not None]
            assert with_usage == [frames[-2]] and frames[-2]["choices"] == []
            assert sum(not f["choices"] for f in frames[:-1]) == 1
        plain = s.stream(path, {**body, "max_tokens": 8})
        assert all(f["choices"] for f in plain[:-1])


@case("C5", "--api-key", "sesame", "--max-body", "20K")
def errors_have_the_four_keys(s):
    key = {"Authorization": "Bearer sesame"}
    chat = "/v1/chat/completions"
    rows = [("GET", "/v1/models", None, {}, 401), ("POST", chat, {"messages": SUM}, {"Authorization": "Bearer wrong"}, 401),
            ("GET", "/v1/nothing", None, key, 404), ("GET", chat, None, key, 405), ("POST", chat, b"{", key, 400), ("POST", chat, b"", key, 400),
            ("POST", chat, b'"x"', key, 400), ("POST", chat, {"messages": SUM, "temperature": -1}, key, 400), ("POST", chat, {"messages": []}, key, 400),
            ("POST", chat, {"messages": SUM, "model": "none"}, key, 404), ("POST", chat, {"messages": [{"role": "user", "content": "x" * 30000}]}, key, 413),
            ("DELETE", "/v1/requests/0", None, key, 404), ("POST", "/v1/completions", {"prompt": [1] * 5000}, key, 400)]
    for method, path, body, headers, want in rows:
        status, got, raw = s.call(method, path, body, headers)
        assert status == want, (method, path, status, want, raw)
        error = json.loads(raw)["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert isinstance(error["message"], str) and isinstance(error["type"], str)
        assert isinstance(error["code"], (str, type(None))) and isinstance(error["param"], (str, type(None)))
        assert got["content-type"].startswith("application/json") and "x-request-id" in got


@case("C6")
def the_sdk_raises_on_an_error_in_the_stream(s):
    openai = need("openai")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="none", max_retries=0)
    stream = client.chat.completions.create(model="tale", messages=SUM, stream=True, max_tokens=4000, extra_body={"ignore_eos": True})
    try:
        for i, chunk in enumerate(stream):
            if i == 3:
                assert s.call("DELETE", "/requests/" + chunk.id)[0] == 204
        raise AssertionError("the stream ended as if it were whole")
    except openai.APIError as e:
        assert e.message, e


@case("C7")
def embeddings_in_base64(s):
    status, _, raw = s.call("POST", "/v1/embeddings", {"input": ["a fox", "the moon"], "encoding_format": "float"})
    if status == 404:
        skip("this server has no /v1/embeddings")
    floats = [d["embedding"] for d in json.loads(raw)["data"]]
    coded = s.post("/v1/embeddings", {"input": ["a fox", "the moon"], "encoding_format": "base64"})[1]["data"]
    for i, item in enumerate(coded):
        raw = base64.b64decode(item["embedding"], validate=True)
        assert item["index"] == i and len(raw) == 4 * len(floats[i])
        assert all(abs(a - b) < 1e-6 for a, b in zip(struct.unpack(f"<{len(floats[i])}f", raw), floats[i]))


@case("C8")
def choices_keep_their_index(s):
    for path, body in (("/v1/chat/completions", {"messages": SUM}), ("/v1/completions", {"prompt": "Once"})):
        frames = s.stream(path, {**body, "n": 3, "seed": 9, "temperature": 1, "max_tokens": 30})[:-1]
        assert {f["choices"][0]["index"] for f in frames} == {0, 1, 2}
        ends = [f["choices"][0]["index"] for f in frames if f["choices"][0]["finish_reason"]]
        assert sorted(ends) == [0, 1, 2]
        whole = s.post(path, {**body, "n": 3, "seed": 9, "temperature": 1, "max_tokens": 30})[1]["choices"]
        for c in whole:
            mine = [f["choices"][0] for f in frames if f["choices"][0]["index"] == c["index"]]
            text = "".join(m["text"] if "text" in m else m["delta"].get("content", "") for m in mine)
            assert text == (c["text"] if "text" in c else c["message"]["content"])


def one_byte_tokens(s, path, prompt, text):
    """Forces text to be drawn a byte at a time (the first 256 ids are the bytes); the frames' texts."""
    body = {**prompt, "max_tokens": 200, "temperature": 0, "structured_outputs": {"choice": [text]}, "allowed_token_ids": list(range(256)), "return_token_ids": True}
    frames = s.stream(path, body)[:-1]
    ids = frames[-1]["choices"][0]["token_ids"]
    assert len([i for i in ids if i < 256]) == len(text.encode()), ids
    return [f["choices"][0].get("text") or f["choices"][0].get("delta", {}).get("content") or "" for f in frames]


@case("C9")
def characters_stay_whole(s):
    text = "é😊 漢字 한국어 👨‍👩‍👧‍👦 नमस्ते \U0001f1f8\U0001f1ea"
    kwargs = {"chat_template_kwargs": {"enable_thinking": False}}
    for path, prompt in (("/v1/completions", {"prompt": "a"}), ("/v1/chat/completions", {"messages": SUM, **kwargs})):
        pieces = one_byte_tokens(s, path, prompt, text)
        assert "".join(pieces) == text, pieces
        assert "\ufffd" not in "".join(pieces)
        assert max(map(len, pieces)) <= 2, pieces  # a character at a time, none held back longer than it must be


@case("C10")
def stop_strings(s):
    ask = lambda stop, **kw: s.post("/v1/completions", {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 60, **({"stop": stop} if stop else {}), **kw})
    full = ask(None)[1]["choices"][0]["text"]
    for start in (0, 1, 9, 23, 40):
        word = full[start:start + 6]
        at = full.index(word)
        for stop in (word, [word], ["~~~~", word], [word, word + "x", word[:3] + "~"], ["\n\n\n\n", word, "##", word[1:] + "~"], [word[:2] + "^", word[2:] + "^", word]):
            got = ask(stop)[1]["choices"][0]
            assert (got["text"], got["finish_reason"]) == (full[:at], "stop"), (stop, got)
            frames = s.stream("/v1/completions", {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 60, "stop": stop})[:-1]
            assert "".join(f["choices"][0]["text"] for f in frames) == full[:at]
    assert ask([full[8:12], full[8:10]])[1]["choices"][0]["text"] == full[:full.index(full[8:10])]  # overlapping: the earliest end
    assert ask(full[5:11], include_stop_str_in_output=True)[1]["choices"][0]["text"] == full[:11]
    smile = {"structured_outputs": {"choice": ["ab😊cd"]}, "allowed_token_ids": list(range(256))}
    assert ask("😊", **smile)[1]["choices"][0]["text"] == "ab"
    assert ask("b😊c", **smile)[1]["choices"][0]["text"] == "a"
    assert ask("😋", **smile)[1]["choices"][0]["text"] == "ab😊cd"  # shares three bytes
    assert ask([""])[0] == 400


@case("C11")
def a_prompt_is_scored(s):
    text = "Once upon a time, there was a fox"
    ids = s.post("/tokenize", {"prompt": text})[1]["tokens"]
    for tokens in (0, 1):
        answer = s.post("/v1/completions", {"prompt": text, "max_tokens": tokens, "echo": True, "logprobs": 2, "temperature": 0})[1]
        choice = answer["choices"][0]
        lp = choice["logprobs"]
        assert choice["text"].startswith(text)
        assert len(lp["tokens"]) == len(lp["token_logprobs"]) == len(lp["top_logprobs"]) == len(lp["text_offset"]) == len(ids) + tokens
        assert lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
        assert all(x <= 0 for x in lp["token_logprobs"][1:])
        assert lp["text_offset"][0] == 0 and lp["text_offset"] == sorted(lp["text_offset"])
        assert answer["usage"]["completion_tokens"] == tokens


@case("C12")
def what_is_not_there(s):
    for method, path, body, want in (("POST", "/v1/chat/completions", {"messages": SUM, "model": "gpt-9"}, 404), ("GET", "/v1/models/gpt-9", None, 404),
                                     ("GET", "/v1/none", None, 404), ("POST", "/", b"{}", 405), ("GET", "/v1/chat/completions", None, 405),
                                     ("PUT", "/v1/completions", b"{}", 405), ("DELETE", "/health", None, 405)):
        status, headers, raw = s.call(method, path, body)
        assert status == want, (method, path, status)
        assert json.loads(raw)["error"]["code"]
        assert status != 405 or headers["allow"]


def read_response(f):
    """(status, headers, body) of one answer with a Content-Length."""
    status = int(f.readline().split()[1])
    headers = {}
    while (line := f.readline().strip()):
        name, value = line.split(b":", 1)
        headers[name.lower().decode()] = value.strip().decode()
    return status, headers, f.read(int(headers.get("content-length", 0)))


@case("C13")
def http_as_clients_send_it(s):
    body = json.dumps({"prompt": "abc"}).encode()
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\n"
    want = s.post("/tokenize", {"prompt": "abc"})[1]
    with socket.create_connection(("127.0.0.1", s.port), timeout=10) as c, c.makefile("rb") as f:
        c.sendall(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert f.readline().startswith(b"HTTP/1.1 100") and f.readline() == b"\r\n"
        c.sendall(body)
        assert json.loads(read_response(f)[2]) == want
        chunks = b"".join(b"%x;ext=1\r\n%c\r\n" % (1, byte) for byte in body) + b"0\r\nTrailer: x\r\n\r\n"
        c.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        assert json.loads(read_response(f)[2]) == want
        plain = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        c.sendall(plain * 5 + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for _ in range(5):
            assert json.loads(read_response(f)[2]) == want
        assert read_response(f)[0] == 200
        for byte in plain:  # a byte at a time
            c.sendall(bytes([byte]))
        assert json.loads(read_response(f)[2]) == want
    for path in ("/health", "/v1/models", "/"):
        whole = s.call("GET", path)
        status, headers, raw = s.call("HEAD", path)
        assert (status, raw, headers["content-length"]) == (whole[0], b"", whole[1]["content-length"])


@case("C14")
def a_body_must_be_utf8(s):
    for bad in (b"\xff", b"\xc3", b"\xc0\xaf", b"\xed\xa0\xbd", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\\ud83d", b"\\udc00x"):
        for body in (b'{"prompt": "' + bad + b'"}', b'{"' + bad + b'": 1, "prompt": "a"}', b'{"prompt": "a", "user": "' + bad + b'"}'):
            status, _, raw = s.call("POST", "/v1/completions", body)
            assert status == 400, (body, status, raw)
            json.loads(raw.decode())


@case("C15")
def clients_that_leave(s):
    def quiet():
        return s.metric("num_requests_running") == s.metric("num_requests_waiting") == 0
    rng = random.Random(15)
    s.post("/v1/completions", {"prompt": "warm up", "max_tokens": 2})
    base = s.metric("kv_cache_usage_perc")
    for turn in range(20):
        stream = turn % 4 != 0
        body = json.dumps({"prompt": [rng.randrange(2000) for _ in range(rng.randrange(1, 800))], "max_tokens": 3000, "ignore_eos": True, "stream": stream}).encode()
        request = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        with socket.create_connection(("127.0.0.1", s.port), timeout=10) as c:
            c.sendall(request[:rng.randrange(1, len(request))] if turn % 5 == 4 else request)
            time.sleep(rng.random() * 0.1)
            if stream and turn % 2:
                c.settimeout(0.2)
                try:
                    c.recv(rng.randrange(1, 4000))
                except TimeoutError:
                    pass
    end = time.monotonic() + 10
    while not quiet() and time.monotonic() < end:
        time.sleep(0.02)
    assert quiet(), s.get("/requests")
    assert s.metric("kv_cache_usage_perc") <= base, (s.metric("kv_cache_usage_perc"), base)
    assert s.get("/requests")[1]["data"] == []


if __name__ == "__main__":
    run()
