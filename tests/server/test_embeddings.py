#!/usr/bin/env python3
"""POST /v1/embeddings against a real server with the demo model: shapes, formats, limits, batches, and rows of the fault list by name.

usage: test_embeddings.py [CLASS…]
"""
import base64
import os
import struct
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Server

SERVER = None


def setUpModule():
    global SERVER
    SERVER = Server()


def tearDownModule():
    assert SERVER.stop() == 0


def embed(text, **fields):
    status, out = SERVER.post("/v1/embeddings", {"input": text, **fields})
    assert status == 200, out
    return [d["embedding"] for d in out["data"]]


class Embeddings(unittest.TestCase):
    def test_four_shapes_of_input(self):
        text = "Once upon a time"
        ids = SERVER.post("/tokenize", {"prompt": text})[1]["tokens"]
        (one,) = embed(text)
        self.assertAlmostEqual(sum(x * x for x in one), 1, 4)
        for given in ([text], ids, [ids]):
            self.assertEqual(embed(given), [one])
        many = embed([text, "The end", text])
        self.assertEqual((many[0], many[2]), (one, one))
        self.assertNotEqual(many[1], one)

    def test_the_answer_is_openais(self):
        _, out = SERVER.post("/v1/embeddings", {"input": ["a", "b"], "model": SERVER.get("/v1/models")[1]["data"][0]["id"]})
        self.assertEqual((out["object"], [d["object"] for d in out["data"]], [d["index"] for d in out["data"]]), ("list", ["embedding"] * 2, [0, 1]))
        self.assertEqual(out["usage"], {"prompt_tokens": 2, "total_tokens": 2})
        self.assertEqual(SERVER.post("/embeddings", {"input": "a"})[0], 200)

    def test_base64_holds_the_same_floats(self):  # C7
        for n in (1, 2, 3, 64):
            (numbers,), (packed,) = (embed("Long ago", dimensions=n, encoding_format=f) for f in ("float", "base64"))
            raw = base64.b64decode(packed, validate=True)
            self.assertEqual(struct.pack(f"<{n}f", *numbers), raw)

    def test_dimensions_cut_then_scale(self):
        (whole,), (cut,) = embed("Once"), embed("Once", dimensions=10)
        norm = sum(x * x for x in whole[:10]) ** 0.5
        for a, b in zip(whole, cut):
            self.assertAlmostEqual(a / norm, b, 5)
        self.assertEqual(len(cut), 10)

    def test_wrong_fields_are_named(self):
        for field, bad in (("input", None), ("input", []), ("input", ""), ("input", [[]]), ("input", [1, "a"]), ("input", [10**9]), ("input", {}),
                           ("dimensions", 0), ("dimensions", 10**6), ("dimensions", "4"), ("encoding_format", "int8"), ("encoding_format", 3),
                           ("truncate_prompt_tokens", 0)):
            status, out = SERVER.post("/v1/embeddings", {"input": "a", field: bad})
            self.assertEqual((status, out["error"]["param"]), (400, field), (field, bad, out))
        self.assertEqual(SERVER.post("/v1/embeddings", {"input": "a", "model": "none such"})[0], 404)

    def test_as_many_inputs_as_openai_takes(self):
        ids = [[300 + i % 700] for i in range(2048)]
        got = embed(ids, encoding_format="base64", dimensions=1)
        self.assertEqual(len(got), 2048)
        self.assertEqual(SERVER.post("/v1/embeddings", {"input": [[300]] * 4097})[0], 400)

    def test_truncation_keeps_the_end(self):
        ids = list(range(300, 360))
        self.assertEqual(embed(ids, truncate_prompt_tokens=7), embed(ids[-7:]))

    def test_same_bits_among_answers(self):
        texts = ["Once upon a time there was a fox. " * n for n in (1, 5, 20)]
        alone = [embed(t)[0] for t in texts]
        stop = threading.Event()

        def talk():
            while not stop.is_set():
                SERVER.post("/v1/completions", {"prompt": "Long ago", "max_tokens": 30, "ignore_eos": True})

        talkers = [threading.Thread(target=talk) for _ in range(3)]
        for t in talkers:
            t.start()
        try:
            for _ in range(3):
                self.assertEqual(embed(texts), alone)
        finally:
            stop.set()
            for t in talkers:
                t.join()


class ME14(unittest.TestCase):
    def test_long_inputs(self):
        context = SERVER.get("/v1/models")[1]["data"][0]["max_model_len"]
        for n in (511, 512, 513, 8192, context, context + 1):
            status, out = SERVER.post("/v1/embeddings", {"input": [300 + i % 700 for i in range(n)]})
            self.assertEqual(status, 200 if n <= context else 400)
            if n > context:
                self.assertEqual((out["error"]["code"], out["error"]["param"]), ("context_length_exceeded", "input"))
            else:
                self.assertEqual(out["usage"]["prompt_tokens"], n)


class CX21(unittest.TestCase):
    def test_256_clients_at_once(self):
        texts = [f"Number {i} of many" for i in range(256)]
        together = embed(texts)
        got, barrier = [None] * 256, threading.Barrier(256)

        def ask(i):
            barrier.wait()
            got[i] = SERVER.post("/v1/embeddings", {"input": texts[i]})

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(256)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for i, (status, out) in enumerate(got):
            self.assertEqual(status, 200)
            self.assertEqual(out["data"][0]["embedding"], together[i])


if __name__ == "__main__":
    unittest.main()
