#!/usr/bin/env python3
"""What clients send back and what they ask beside it: markers in an assistant's content, roles, reasoning, timings, the response's echo."""
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Server

# Shows what it was given, a line each.
TEMPLATE = """{% for m in messages %}{{ m.role }}|{{ m.content }}|{{ m.reasoning_content }}|{% for c in m.tool_calls or [] %}
{{- c.function.name }}={{ c.function.arguments | tojson }};{% endfor %}{{ "\\n" }}
{%- endfor %}{% if m is defined and m.role == 'observation' %}{% endif %}"""
USER = {"role": "user", "content": "hi"}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}]
SERVER = None


def setUpModule():
    global SERVER
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as f:
        f.write(TEMPLATE)
        f.flush()
        SERVER = Server("--chat-template", f.name, "--reasoning-parser", "think", "--tool-call-parser", "hermes")


def tearDownModule():
    assert SERVER.stop() == 0


def line(message, **fields):
    status, out = SERVER.post("/apply-template", {"messages": [USER, message, USER], **fields})
    assert status == 200, out
    return out["prompt"].split("\n")[1]


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


class Markers(unittest.TestCase):
    CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'

    def test_calls_and_reasoning_are_split_off(self):
        self.assertEqual(line(assistant("<think>\nhm\n</think>\n\nso\n" + self.CALL), tools=TOOLS), 'assistant|so|hm|add={"a": 1};')
        self.assertEqual(line(assistant(self.CALL + "\n" + self.CALL), tools=TOOLS), 'assistant|||add={"a": 1};add={"a": 1};')

    def test_fields_of_its_own_win(self):
        own = [{"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}]
        self.assertEqual(line(assistant("so\n" + self.CALL, tool_calls=own), tools=TOOLS), 'assistant|so||add={"a": 2};')
        self.assertEqual(line(assistant("<think>\nx\n</think>\n\nso", reasoning_content="own")), "assistant|so|own|")

    def test_what_is_not_whole_stays_text(self):
        cut = '<tool_call>\n{"name": "add", "arguments": {"a"'
        prompt = SERVER.post("/apply-template", {"messages": [assistant("so " + cut)], "tools": TOOLS})[1]["prompt"]
        self.assertEqual(prompt, f"assistant|so {cut}||\n")
        self.assertEqual(line(assistant("1 < 2 [x] {y}")), "assistant|1 < 2 [x] {y}||")

    def test_users_may_write_what_they_like(self):
        status, out = SERVER.post("/apply-template", {"messages": [{"role": "user", "content": self.CALL}], "tools": TOOLS})
        self.assertEqual(status, 200)
        self.assertIn("<tool_call>", out["prompt"])


class Roles(unittest.TestCase):
    def test_roles_that_nobody_knows_are_refused(self):
        for messages, param in (([{"role": "bogus", "content": "x"}], "messages[0].role"), ([USER, {"content": "x"}], "messages[1].role"),
                                ([USER, {"role": "tool", "content": "x"}], "messages[1].tool_call_id")):
            status, out = SERVER.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})
            self.assertEqual((status, out["error"]["param"]), (400, param))
        for role in ("observation", "function", "developer"):
            self.assertEqual(SERVER.post("/apply-template", {"messages": [{"role": role, "content": "x"}]})[0], 200, role)

    def test_messages_answers_errors_in_its_own_form(self):
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            status, out = SERVER.post(path, {"messages": []})
            self.assertEqual((status, out["type"], out["error"]["type"]), (400, "error", "invalid_request_error"))

    def test_limits_name_their_field(self):
        for field, value in (("max_tokens", 0), ("add_special_tokens", True)):
            status, out = SERVER.post("/v1/chat/completions", {"messages": [USER], field: value})
            self.assertEqual((status, out["error"]["param"]), (400, field))


class Beside(unittest.TestCase):
    def test_timings_are_given_when_asked_for(self):
        for path, body in (("/v1/chat/completions", {"messages": [USER]}), ("/v1/completions", {"prompt": "Once"})):
            body = {**body, "max_tokens": 5, "ignore_eos": True, "timings_per_token": True}
            timings = SERVER.post(path, body)[1]["timings"]
            self.assertEqual(timings["predicted_n"], 5)
            self.assertGreater(timings["prompt_ms"], 0)
            frames = [f for f in SERVER.stream(path, body) if f != "[DONE]"]
            self.assertEqual(frames[-1]["timings"]["predicted_n"], 5)
            self.assertTrue(all("timings" in f for f in frames))
            self.assertNotIn("timings", SERVER.post(path, {**body, "timings_per_token": False})[1])

    def test_a_response_says_what_was_asked(self):
        tools = [{"type": "function", "name": "add", "parameters": {"type": "object"}}]
        asked = {"instructions": "be brief", "max_output_tokens": 2, "metadata": {"a": "b"}, "tools": tools, "tool_choice": "none"}
        status, out = SERVER.post("/v1/responses", {"input": "hi", **asked})
        self.assertEqual(status, 200, out)
        for field, value in asked.items():
            self.assertEqual(out[field], value)
        states = [f["response"] for f in SERVER.stream("/v1/responses", {"input": "hi", **asked}) if "response" in f]
        self.assertEqual(len(states), 3)
        for state in states:
            self.assertEqual({field: state[field] for field in asked}, asked)
        _, out = SERVER.post("/v1/responses", {"input": "hi", "max_output_tokens": 1})
        self.assertEqual((out["tools"], out["tool_choice"], out["instructions"], out["text"]), ([], "auto", None, {"format": {"type": "text"}}))


if __name__ == "__main__":
    unittest.main()
