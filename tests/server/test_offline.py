#!/usr/bin/env python3
"""Offline equals HTTP: one prompt, one sampling and one seed give the same ids by `generate`, completions, chat, responses and messages,
streamed or not. Also what chat needs of a model: its template, and nothing in the place of one.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import ECHELON, Server

MODEL = "models/tale"
QUESTION = [{"role": "user", "content": "Tell me a story about a fox."}]
# All of it is said: what a request leaves open is the model's generation_config.json over HTTP, and off in `generate`.
SAMPLINGS = [{"temperature": 0}, {"temperature": 0.8, "top_p": 0.9, "top_k": 0, "min_p": 0, "seed": 7},
             {"temperature": 1.3, "top_p": 1, "top_k": 20, "min_p": 0.02, "seed": 2**40 + 3}]
N = 24
SERVER = None


def setUpModule():
    global SERVER
    SERVER = Server()


def tearDownModule():
    assert SERVER.stop() == 0


def generate(ids, sampling):
    flags = [f"--{k.replace('_', '-')}={v}" for k, v in sampling.items()]
    done = subprocess.run([ECHELON, "generate", "--model-dir", MODEL, "--json", "--prompt-ids", ",".join(map(str, ids)),
                           "--max-new-tokens", str(N), *flags], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)["token_ids"]


class Offline(unittest.TestCase):
    def test_same_ids_everywhere(self):
        chat_ids = SERVER.post("/apply-template", {"messages": QUESTION})[1]["token_ids"]
        for sampling in SAMPLINGS:
            # Responses and messages have no field of their own for a request's seed; they take vLLM's.
            common = {**sampling, "return_token_ids": True}
            want = generate(chat_ids, sampling)
            asks = {
                "/v1/completions": {"prompt": chat_ids, "max_tokens": N},
                "/v1/chat/completions": {"messages": QUESTION, "max_tokens": N},
                "/v1/responses": {"input": QUESTION, "max_output_tokens": N},
                "/v1/messages": {"messages": QUESTION, "max_tokens": N},
            }
            for path, body in asks.items():
                with self.subTest(path=path, sampling=sampling):
                    status, out = SERVER.post(path, {**body, **common})
                    self.assertEqual(status, 200, out)
                    self.assertEqual(self.ids_of(out), (chat_ids, want))
                    frames = SERVER.stream(path, {**body, **common})
                    self.assertEqual(self.ids_of_frames(frames), (chat_ids, want))

    @staticmethod
    def ids_of(out):
        choice = out["choices"][0] if "choices" in out else out
        return out.get("prompt_token_ids") or choice["prompt_token_ids"], choice["token_ids"]

    def ids_of_frames(self, frames):
        found = []
        for f in frames:
            for node in ([f, f.get("response"), *(f.get("choices") or [])] if isinstance(f, dict) else []):
                if isinstance(node, dict) and "token_ids" in node:
                    found.append(({**f, **node}["prompt_token_ids"], node["token_ids"]))
        self.assertEqual(len(found), 1)
        return found[0]

    def test_raw_texts_too(self):
        text = "Long ago there was"
        ids = SERVER.post("/tokenize", {"prompt": text})[1]["tokens"]
        out = SERVER.post("/v1/completions", {"prompt": text, "max_tokens": N, "return_token_ids": True, "temperature": 0})[1]
        self.assertEqual(self.ids_of(out), (ids, generate(ids, {"temperature": 0})))


class Template(unittest.TestCase):
    def test_apply_template_is_what_chat_is_given(self):
        _, out = SERVER.post("/apply-template", {"messages": QUESTION})
        self.assertEqual(SERVER.post("/tokenize", {"prompt": out["prompt"], "add_special_tokens": False})[1]["tokens"], out["token_ids"])
        self.assertEqual(out["count"], len(out["token_ids"]))
        status, out = SERVER.post("/apply-template", {"messages": []})
        self.assertEqual((status, out["error"]["param"]), (400, "messages"))

    def test_a_model_without_one_answers_400(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        for name in os.listdir(MODEL):
            if name not in ("chat_template.jinja", "tokenizer_config.json"):
                os.symlink(os.path.abspath(os.path.join(MODEL, name)), os.path.join(folder, name))
        server = Server("--model-dir", folder)
        try:
            for path, body in (("/v1/chat/completions", {"messages": QUESTION}), ("/v1/responses", {"input": "a"}),
                               ("/v1/messages", {"messages": QUESTION, "max_tokens": 3}), ("/apply-template", {"messages": QUESTION})):
                status, out = server.post(path, body)
                self.assertEqual((status, out["error"]["code"]), (400, "no_chat_template"), path)
                self.assertIn("--chat-template", out["error"]["message"])
            self.assertEqual(server.post("/v1/completions", {"prompt": "Once", "max_tokens": 2})[0], 200)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_kwargs_of_the_server_and_the_name_of_reasoning(self):
        template = tempfile.NamedTemporaryFile("w", suffix=".jinja")
        template.write("{% for m in messages %}{{ m.content }}{% endfor %}{{ mood }}"
                       "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}")
        template.flush()
        self.addCleanup(template.close)
        for field, names in (("reasoning_content", {"reasoning_content"}), ("reasoning", {"reasoning"}), ("both", {"reasoning", "reasoning_content"})):
            server = Server("--chat-template", template.name, "--chat-template-kwargs", '{"mood": "calm"}', "--reasoning-field", field)
            try:
                def prompt(**more):
                    return server.post("/apply-template", {"messages": QUESTION, **more})[1]["prompt"]
                self.assertIn("calm<think>\n", prompt())
                self.assertIn("wild", prompt(chat_template_kwargs={"mood": "wild"}))
                self.assertIn("</think>", prompt(reasoning_effort="none"))
                self.assertNotIn("</think>", prompt(reasoning_effort="high"))
                status, out = server.post("/apply-template", {"messages": QUESTION, "chat_template_kwargs": []})
                self.assertEqual(status, 400, out)
                body = {"messages": QUESTION, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
                message = server.post("/v1/chat/completions", body)[1]["choices"][0]["message"]
                deltas = [f["choices"][0]["delta"] for f in server.stream("/v1/chat/completions", body) if f != "[DONE]"]
                for name in ("reasoning", "reasoning_content"):
                    self.assertEqual(name in message, name in names)
                    streamed = "".join(d.get(name, "") for d in deltas)
                    self.assertEqual(streamed, message.get(name, ""))
            finally:
                self.assertEqual(server.stop(), 0)

    def test_a_request_wins_over_the_kwargs_of_the_server(self):
        for thinks in (True, False):
            server = Server("--chat-template-kwargs", json.dumps({"enable_thinking": thinks}))
            try:
                def prompt(**more):
                    return server.post("/apply-template", {"messages": QUESTION, **more})[1]["prompt"]
                on, off = (prompt(chat_template_kwargs={"enable_thinking": v}) for v in (True, False))
                self.assertNotEqual(on, off)
                self.assertEqual(prompt(), on if thinks else off)
                self.assertEqual(prompt(reasoning_effort="none"), off)
                self.assertEqual(prompt(reasoning_effort="none", chat_template_kwargs={"enable_thinking": True}), on)
            finally:
                self.assertEqual(server.stop(), 0)


class Scores(unittest.TestCase):
    def test_prompt_logprobs_are_returned(self):
        ids = SERVER.post("/tokenize", {"prompt": "Once upon a time, xylophone 7 7 q"})[1]["tokens"]
        body = {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 0}
        want = SERVER.post("/v1/completions", body)[1]["choices"][0]["logprobs"]["token_logprobs"]
        out = SERVER.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "prompt_logprobs": 2})[1]["choices"][0]["prompt_logprobs"]
        self.assertEqual([out[0]] + [o[str(i)]["logprob"] for o, i in zip(out[1:], ids[1:], strict=True)], want)
        # Ranks: whatever is asked for beside it, and those of the best their places.
        ranks = lambda out: [o[str(i)]["rank"] for o, i in zip(out[1:], ids[1:], strict=True)]
        alone = SERVER.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "prompt_logprobs": 0})[1]["choices"][0]["prompt_logprobs"]
        self.assertEqual(ranks(alone), ranks(out))
        self.assertGreater(max(ranks(alone)), 2)
        for o, i in zip(out[1:], ids[1:], strict=True):
            self.assertEqual([t["rank"] for k, t in o.items() if k != str(i)], [r for r in (1, 2) if r != o[str(i)]["rank"]])
            best = sorted(o.values(), key=lambda t: t["rank"])
            self.assertEqual(best, sorted(best, key=lambda t: -t["logprob"]))
        chat = SERVER.post("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 1, "prompt_logprobs": 0})[1]
        self.assertEqual(len(chat["prompt_logprobs"]), chat["usage"]["prompt_tokens"])

    def test_suffix_needs_its_tokens(self):
        status, out = SERVER.post("/v1/completions", {"prompt": "a", "suffix": "b"})
        self.assertEqual((status, out["error"]["param"]), (400, "suffix"))

    def test_a_prompt_with_a_suffix(self):
        """Before, after, here; what the post-processor puts before a text comes first."""
        for names in (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), ("<PRE>", "<SUF>", "<MID>"),
                      ("<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>")):
            folder = tempfile.mkdtemp()
            self.addCleanup(shutil.rmtree, folder)
            with open(os.path.join(MODEL, "tokenizer.json"), encoding="utf-8") as f:
                tokenizer = json.load(f)
            first = tokenizer["added_tokens"][3]["id"]
            for token, name in zip(tokenizer["added_tokens"][3:6], names):
                token["content"] = name
            bos = tokenizer["added_tokens"][0]
            tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": bos["content"], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                                           "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                                           "special_tokens": {bos["content"]: {"id": bos["content"], "ids": [bos["id"]], "tokens": [bos["content"]]}}}
            with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
                json.dump(tokenizer, f)
            for name in os.listdir(MODEL):
                if name != "tokenizer.json":
                    os.symlink(os.path.abspath(os.path.join(MODEL, name)), os.path.join(folder, name))
            server = Server("--model-dir", folder)
            try:
                ids = {t: server.post("/tokenize", {"prompt": t, "add_special_tokens": False})[1]["tokens"] for t in ("Once upon", "the end.")}
                want = [first, *ids["Once upon"], first + 1, *ids["the end."], first + 2]
                for prompt in ("Once upon", ids["Once upon"]):
                    for extra, bos_ids in (({}, [bos["id"]]), ({"add_special_tokens": False}, [])):
                        body = {"prompt": prompt, "suffix": "the end.", "max_tokens": 3, "temperature": 0, "return_token_ids": True, **extra}
                        out = server.post("/v1/completions", body)[1]
                        self.assertEqual(out["choices"][0]["prompt_token_ids"], bos_ids + want)
                        self.assertEqual(out["usage"]["prompt_tokens"], len(bos_ids + want))
                        same = server.post("/v1/completions", {**body, "prompt": bos_ids + want, "suffix": None})[1]
                        self.assertEqual(out["choices"][0]["token_ids"], same["choices"][0]["token_ids"])
            finally:
                self.assertEqual(server.stop(), 0)

    def test_truncated_prompts_keep_their_end(self):
        ids = list(range(300, 340))
        out = SERVER.post("/v1/completions", {"prompt": ids, "truncate_prompt_tokens": 5, "max_tokens": 1, "return_token_ids": True})[1]
        self.assertEqual(out["choices"][0]["prompt_token_ids"], ids[-5:])
        status, _ = SERVER.post("/v1/completions", {"prompt": [300] * 50000, "truncate_prompt_tokens": -1, "max_tokens": 1})
        self.assertEqual(status, 200)


if __name__ == "__main__":
    unittest.main()
