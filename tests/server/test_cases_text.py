#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rows of the list of faults that users of other servers reported, where text meets HTTP: reasoning, stop strings, tools,
log-probabilities, structured output. One row an argument: test_cases_text.py CT4. Environment: ECHELON, the program.
"""
import itertools
import json
import re
import sys

from harness import Server, accumulate

CHAT, TEXT, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Get the weather in a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "description": "Add two numbers", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}]
QUESTION = {"messages": [{"role": "user", "content": "What is the weather in Rome and in Cairo?"}], "tools": TOOLS, "temperature": 0,
            "max_tokens": 200}
CASES = {}


def case(fn):
    CASES[fn.__name__] = fn
    return fn


def ask(server, body, path=CHAT):
    status, out = server.post(path, body)
    assert status == 200, (body, out)
    return out


def whole(server, body):
    """The message of a chat that isn't streamed, in accumulate()'s shape."""
    c = ask(server, body)["choices"][0]
    m = c["message"]
    return {"content": m["content"] or "", "reasoning_content": m.get("reasoning_content", ""), "finish": c["finish_reason"],
            "calls": [k["function"] for k in m.get("tool_calls", [])], "logprobs": (c["logprobs"] or {}).get("content", [])}


def both(server, body):
    """Streamed and not: the same message."""
    a, b = whole(server, body), accumulate(server.stream(CHAT, body))
    for key in a:
        assert a[key] == b[key], (key, body, a[key], b[key])
    return a


@case
def CT4(server):
    """With thinking off the answer is content, with and without tools; with thinking on, reasoning is apart from it."""
    for extra in ({}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"}):
        body = {"messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0, "max_tokens": 60, **extra}
        off = both(server, {**body, "chat_template_kwargs": {"enable_thinking": False}})
        assert off["reasoning_content"] == "" and (off["content"] or off["calls"]), off
        assert "think>" not in off["content"], off
    # What is sampled hot from an open <think> is reasoning until the marker, never content before it.
    hot = {"messages": [{"role": "user", "content": "Think about cats."}], "temperature": 1, "seed": 3, "max_tokens": 80,
           "structured_outputs": {"regex": "[a-z ]{4,20}"}, "thinking_budget": 8}
    on = both(server, {**hot, "chat_template_kwargs": {"enable_thinking": True}})
    assert re.fullmatch("[a-z ]{4,20}", on["content"]) or on["finish"] == "length", on


@case
def CT7(server):
    """Reasoning is left out of history, and still everything before the last assistant turn is reused."""
    messages, before = [], 0
    for turn in range(5):
        messages.append({"role": "user", "content": f"Question {turn}: tell me more about the {'old ' * turn}king."})
        out = ask(server, {"messages": messages, "temperature": 0, "max_tokens": 40, "chat_template_kwargs": {"enable_thinking": True}})
        usage = out["usage"]
        # The generation prompt of the turn before is followed by other text now; a few tokens of it may differ.
        if before:
            assert usage["prompt_tokens_details"]["cached_tokens"] >= before - 8, (turn, before, usage)
        before = usage["prompt_tokens"]
        message = out["choices"][0]["message"]
        messages.append({"role": "assistant", "content": message["content"] or "",
                         "reasoning_content": message.get("reasoning_content", "I think.")})


@case
def ST4(server):
    """Stop strings cut alike on every endpoint, streamed or not."""
    free = ask(server, {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 60}, TEXT)["choices"][0]["text"]
    words = free.split()
    for stops in ([words[3]], [words[5], words[2]], [free[10:14]], [free[4:9], free[6:12]], ["\u2603none"]):
        # The first to be complete wins.
        at = min([(free.index(s) + len(s), free.index(s)) for s in stops if s in free] or [(0, len(free))])[1]
        body = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 60, "stop": stops}
        text = ask(server, body, TEXT)["choices"][0]["text"]
        streamed = "".join(f["choices"][0]["text"] for f in server.stream(TEXT, body) if f != "[DONE]" and f["choices"])
        assert text == streamed, (stops, text, streamed)
        assert text == free[:at], (stops, text, free)
    turn = {"messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0, "max_tokens": 60}
    story = whole(server, turn)["content"]
    stop = story.split()[4]
    cut = both(server, {**turn, "stop": [stop]})
    assert cut["content"] == story[:story.index(stop)] and cut["finish"] == "stop", (story, cut)
    out = ask(server, {**turn, "stop_sequences": [stop]}, MESSAGES)
    assert out["content"][0]["text"] == cut["content"] and out["stop_reason"] == "stop_sequence", out


@case
def TC10(server):
    """Each fragment of a call has its index; id, type and name come once, with the first."""
    seen = {}
    for frame in server.stream(CHAT, QUESTION):
        for choice in frame["choices"] if frame != "[DONE]" else ():
            for call in choice["delta"].get("tool_calls", []):
                index = call["index"]
                assert ("id" in call) == (index not in seen) == ("name" in call["function"]), call
                seen.setdefault(index, [call.get("id"), call["function"].get("name"), ""])[2] += call["function"]["arguments"]
    assert sorted(seen) == [0, 1] and len({c[0] for c in seen.values()}) == 2, seen
    assert [json.loads(seen[k][2]) for k in (0, 1)] == [{"city": "Rome"}, {"city": "Cairo"}], seen


@case
def TC11(server):
    """tool_choice and max_completion_tokens are honoured or refused, never ignored."""
    assert "tool_calls" not in ask(server, {**QUESTION, "tool_choice": "none"})["choices"][0]["message"]
    hello = {**QUESTION, "messages": [{"role": "user", "content": "Hello."}]}
    for choice, names in (("required", {"get_weather", "add"}), ({"type": "function", "function": {"name": "add"}}, {"add"}),
                          ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
                              {"type": "function", "function": {"name": "add"}}]}}, {"add"})):
        calls = both(server, {**hello, "tool_choice": choice})["calls"]
        assert calls and {c["name"] for c in calls} <= names, (choice, calls)
    one = both(server, {**QUESTION, "parallel_tool_calls": False})
    assert len(one["calls"]) == 1, one
    for bad in ("maybe", {"type": "function", "function": {"name": "none_such"}}, 7):
        assert server.post(CHAT, {**QUESTION, "tool_choice": bad})[0] == 400, bad
    for n in (1, 3):
        out = ask(server, {**hello, "max_completion_tokens": n, "max_tokens": 50})
        assert out["usage"]["completion_tokens"] == n and out["choices"][0]["finish_reason"] == "length", out
    for bad in (0, -1, "5", 1.5):
        assert server.post(CHAT, {**hello, "max_completion_tokens": bad})[0] == 400, bad


@case
def TC13(server):
    """A named call ends with stop, a required one with tool_calls, as OpenAI has it; cut ones with length."""
    named = {"tool_choice": {"type": "function", "function": {"name": "add"}}}
    assert both(server, {**QUESTION, **named})["finish"] == "stop"
    assert both(server, {**QUESTION, "tool_choice": "required"})["finish"] == "tool_calls"
    assert both(server, QUESTION)["finish"] == "tool_calls"
    for extra in (named, {"tool_choice": "required"}, {}):
        assert both(server, {**QUESTION, **extra, "max_tokens": 12})["finish"] == "length"


def scored(server, prompt, ids):
    """The log-probabilities of ids after prompt, from scoring them as a prompt."""
    out = ask(server, {"prompt": prompt + ids, "max_tokens": 0, "echo": True, "logprobs": 0, "temperature": 0}, TEXT)
    return out["choices"][0]["logprobs"]["token_logprobs"][len(prompt):]


@case
def TC15(server):
    """Log-probabilities are those of plain decoding where ids were forced by a constraint, not missing and not 0.0."""
    prompt = ask(server, {"content": "Once upon a time"}, "/tokenize")["tokens"]
    for so in ({"regex": "there was a (king|queen) in the forest[.]"}, {"choice": ["a very long choice with one end"]},
               {"json": {"type": "object", "properties": {"name": {"enum": ["Tom"]}, "age": {"const": 17}}, "required": ["name", "age"]}}):
        body = {"prompt": prompt, "max_tokens": 80, "temperature": 1, "seed": 5, "logprobs": 2, "structured_outputs": so,
                "return_token_ids": True}
        c = ask(server, body, TEXT)["choices"][0]
        got = c["logprobs"]["token_logprobs"]
        want = scored(server, prompt, c["token_ids"][:len(got)])
        assert len(got) > 4 and got == want, (so, got, want)
        assert any(v < -1e-3 for v in got), got


@case
def TC16(server):
    """Every token has its own alternatives, best first, and its own value among them where it is one of them."""
    body = {"messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0, "max_tokens": 30, "logprobs": True,
            "top_logprobs": 5}
    items = both(server, body)["logprobs"]
    assert len(items) >= 20, items
    tops = [tuple((t["token"], t["logprob"]) for t in i["top_logprobs"]) for i in items]
    assert len(set(tops)) > len(tops) * 3 // 4, tops
    for item, top in zip(items, tops):
        assert len(top) == 5 and [v for _, v in top] == sorted((v for _, v in top), reverse=True), top
        assert top[0] == (item["token"], item["logprob"]), (item, top)


@case
def TC17(server):
    """/v1/completions has log-probabilities in its own form, with and without echo."""
    for echo, n in itertools.product((False, True), (0, 3)):
        body = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "logprobs": n, "echo": echo}
        c = ask(server, body, TEXT)["choices"][0]
        p = c["logprobs"]
        size = len(p["tokens"])
        assert size == len(p["token_logprobs"]) == len(p["text_offset"]) == len(p["top_logprobs"]), p
        assert "".join(p["tokens"]) == c["text"] and size >= 12, (p, c["text"])
        assert p["text_offset"][0] == 0 and all(c["text"][o:].startswith(t) for o, t in zip(p["text_offset"], p["tokens"])), p
        assert all(isinstance(v, float) and v <= 0 for v in p["token_logprobs"][echo:]) and (p["token_logprobs"][0] is None) == echo, p
        for top, value in list(zip(p["top_logprobs"], p["token_logprobs"]))[echo:]:
            assert n == 0 or (len(top) in (n, n + 1) and value <= max(top.values())), (top, value)
    assert ask(server, {"prompt": "Once", "max_tokens": 2}, TEXT)["choices"][0]["logprobs"] is None


SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "n": {"type": "integer", "minimum": 0, "maximum": 99}},
          "required": ["name", "n"]}


def good_json(text):
    value = json.loads(text)
    return set(value) == {"name", "n"} and len(value["name"]) <= 8 and 0 <= value["n"] <= 99


FORMS = [({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}, good_json),
         ({"structured_outputs": {"regex": "[a-z]{3,9}-[0-9]{1,3}"}}, lambda t: re.fullmatch("[a-z]{3,9}-[0-9]{1,3}", t)),
         ({"structured_outputs": {"choice": ["red", "green", "greenish"]}}, ["red", "green", "greenish"].__contains__),
         ({"grammar": 'root ::= "(" [a-c]+ ")" | root2\nroot2 ::= "x"'}, lambda t: re.fullmatch(r"\([a-c]+\)|x", t))]


def messages_of(server, body, n):
    """The n answers, streamed and not, that must be the same."""
    out = ask(server, body)
    frames = [f for f in server.stream(CHAT, body) if f != "[DONE]"]
    answers = []
    for k, c in enumerate(out["choices"]):
        mine = accumulate([{"choices": [x for x in f["choices"] if x["index"] == k]} for f in frames])
        assert mine["content"] == (c["message"]["content"] or "") and mine["finish"] == c["finish_reason"], (body, c, mine)
        assert mine["reasoning_content"] == c["message"].get("reasoning_content", ""), (body, c, mine)
        answers.append({**mine, "whole": (c["logprobs"] or {}).get("content")})
        assert mine["logprobs"] == (answers[-1]["whole"] or []), body
    assert len(answers) == n
    return answers


def check_answer(a, check, body):
    if a["finish"] == "stop" and "stop" not in body:
        assert check(a["content"]), (body, a["content"])
    if body.get("logprobs"):
        raw = b"".join(bytes(i["bytes"]) for i in a["whole"]).decode(errors="replace")
        # The raw text holds the content behind what reasoning there was; nothing comes after it.
        assert a["content"] in raw and a["reasoning_content"].strip() in raw, (body, raw)
    for stop in body.get("stop", []):
        assert stop not in a["content"], (body, a["content"])


@case
def JS14(server):
    """Structured output with reasoning, stop strings, log-probabilities and several choices, in every combination."""
    reasonings = ({"chat_template_kwargs": {"enable_thinking": False}},
                  {"chat_template_kwargs": {"enable_thinking": True}, "thinking_budget": 6},
                  {"messages": [{"role": "user", "content": "Describe."}, {"role": "assistant", "content": "<think>\nwell"}],
                   "continue_final_message": True, "thinking_budget": 4})
    plain = {"messages": [{"role": "user", "content": "Describe a cat."}], "temperature": 1.2, "seed": 11, "max_tokens": 120}
    for (form, check), reasoning, stop, logprobs, n in itertools.product(FORMS, reasonings, ([], ["e", "}"]), (False, True), (1, 3)):
        body = {**plain, **form, **reasoning, "n": n}
        if stop:
            body["stop"] = stop
        if logprobs:
            body.update(logprobs=True, top_logprobs=1)
        answers = messages_of(server, body, n)
        for a in answers:
            check_answer(a, check, body)
        if n > 1:
            alone = whole(server, {**body, "n": 1, "seed": 11 + n - 1})
            assert alone["content"] == answers[-1]["content"], (body, alone, answers)


def main():
    server = Server()
    try:
        for name in sys.argv[1:] or CASES:
            CASES[name](server)
            print(name, "ok", flush=True)
    finally:
        code = server.stop()
    assert code == 0, code


main()
