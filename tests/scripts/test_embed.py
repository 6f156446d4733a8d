#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`echelon embed` as a user meets it, and its vectors against those of transformers (tests/golden/embeddings.json).

environment: ECHELON, the program
"""
import json
import math
import os
import shutil
import subprocess
import tempfile
import unittest

ECHELON = os.environ["ECHELON"]
MODEL = "models/tale"
NEEDED = 0.99999


def embed(model, texts, *flags, code=0):
    done = subprocess.run([ECHELON, "embed", "--json", *flags, model, *texts], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, (done.returncode, done.stderr)
    return [json.loads(line)["embedding"] for line in done.stdout.splitlines()] if code == 0 else done.stderr


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def as_text(ids):
    return ",".join(map(str, ids))


class Golden(unittest.TestCase):
    def test_cosine_to_transformers(self):
        with open("tests/golden/embeddings.json") as f:
            rows = json.load(f)
        worst = 1
        for model in sorted({r["model"] for r in rows}):
            mine = [r for r in rows if r["model"] == model]
            for pooling in ("mean", "cls", "last"):
                vectors = embed(model, [as_text(r["ids"]) for r in mine], "--ids", "--pooling", pooling)
                for r, v in zip(mine, vectors, strict=True):
                    worst = min(worst, cosine(v, r[pooling]))
                    self.assertGreaterEqual(cosine(v, r[pooling]), NEEDED, (model, pooling, len(r["ids"])))
        print("least cosine:", worst)


class Exactness(unittest.TestCase):
    TEXTS = ["Once upon a time", "The end.", "a", "Long ago there was a king. " * 30, "Once upon a time there was a fox"]

    def test_same_bits_alone_in_a_batch_and_in_chunks(self):
        for pooling in ("mean", "cls", "last"):
            together = embed(MODEL, self.TEXTS, "--pooling", pooling)
            for text, vector in zip(self.TEXTS, together, strict=True):
                self.assertEqual(embed(MODEL, [text], "--pooling", pooling), [vector])
            for flags in (("--prefill-chunk", "7"), ("--prefill-chunk", "1", "--threads", "1")):
                self.assertEqual(embed(MODEL, self.TEXTS, "--pooling", pooling, *flags), together)

    def test_length_is_one_and_dimensions_cut_first(self):
        (whole,), (cut,) = (embed(MODEL, ["Once"], *flags) for flags in ((), ("--dimensions", "16")))
        self.assertAlmostEqual(sum(x * x for x in whole), 1, 5)
        self.assertAlmostEqual(sum(x * x for x in cut), 1, 5)
        self.assertEqual(len(cut), 16)
        self.assertAlmostEqual(cosine(whole[:16], cut), 1, 6)


class Pooling(unittest.TestCase):
    """What a folder's 1_Pooling/config.json says."""

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        for name in os.listdir(MODEL):
            os.symlink(os.path.abspath(os.path.join(MODEL, name)), os.path.join(self.folder, name))
        os.mkdir(os.path.join(self.folder, "1_Pooling"))

    def write(self, text):
        with open(os.path.join(self.folder, "1_Pooling", "config.json"), "w") as f:
            f.write(text if isinstance(text, str) else json.dumps(text))

    def test_the_file_decides_and_the_flag_wins(self):
        text = ["Once upon a time"]
        for word, pooling in (("cls_token", "cls"), ("mean_tokens", "mean"), ("lasttoken", "last")):
            want = embed(MODEL, text, "--pooling", pooling)
            modes = {f"pooling_mode_{w}": w == word for w in ("cls_token", "mean_tokens", "lasttoken", "max_tokens")}
            self.write({"word_embedding_dimension": 192, **modes})
            self.assertEqual(embed(self.folder, text), want)
            self.write({"pooling_mode": word.split("_")[0]})
            self.assertEqual(embed(self.folder, text), want)
        self.assertEqual(embed(self.folder, text, "--pooling", "cls"), embed(MODEL, text, "--pooling", "cls"))

    def test_what_is_not_computed_is_refused_by_name(self):
        for bad in ({"pooling_mode_max_tokens": True}, {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
                    {"pooling_mode": "weightedmean"}, {"pooling_mode": "none such"}, {"pooling_mode_cls_token": 1}, "[", "[]"):
            self.write(bad)
            self.assertIn("1_Pooling/config.json", embed(self.folder, ["a"], code=1))
            self.assertEqual(len(embed(self.folder, ["a"], "--pooling", "last")), 1)


    def test_steps_after_pooling_are_refused_by_name(self):
        def modules(*names):
            with open(os.path.join(self.folder, "modules.json"), "w") as f:
                json.dump([{"idx": i, "name": str(i), "path": f"{i}_{n}", "type": f"sentence_transformers.models.{n}"} for i, n in enumerate(names)], f)
        self.write({"pooling_mode_mean_tokens": True})
        want = embed(MODEL, ["Once"], "--pooling", "mean")
        for good in (("Transformer", "Pooling"), ("Transformer", "Pooling", "Normalize")):
            modules(*good)
            self.assertEqual(embed(self.folder, ["Once"]), want)
        for bad in ("Dense", "LayerNorm", "CNN"):
            modules("Transformer", "Pooling", bad, "Normalize")
            text = embed(self.folder, ["Once"], code=1)
            self.assertIn("modules.json", text)
            self.assertIn("." + bad, text)
            self.assertEqual(embed(self.folder, ["Once"], "--pooling", "mean"), want)  # who says so knows it
        for bad in ("{}", "[5]", "[{}]", "["):
            with open(os.path.join(self.folder, "modules.json"), "w") as f:
                f.write(bad)
            self.assertIn("modules.json", embed(self.folder, ["Once"], code=1))

    def test_what_a_gguf_file_says(self):
        source = "tests/golden/gguf/gqa-tied-quant.gguf"
        with open(source, "rb") as f:
            data = f.read()
        path = os.path.join(self.folder, "model.gguf")

        def string(text):
            return len(text).to_bytes(8, "little") + text.encode()
        for kind, pooling in ((0, "last"), (1, "mean"), (2, "cls"), (3, "last"), (4, None), (-1, None)):
            pair = string("qwen3.pooling_type") + (5).to_bytes(4, "little") + kind.to_bytes(4, "little", signed=True)
            pair += string("x.pad") + (8).to_bytes(4, "little") + string("12345")  # 64 bytes: tensors stay aligned
            count = int.from_bytes(data[16:24], "little") + 2
            with open(path, "wb") as f:
                f.write(data[:16] + count.to_bytes(8, "little") + pair + data[24:])
            if pooling is None:
                self.assertIn("qwen3.pooling_type", embed(path, ["5,6,7"], "--ids", code=1))
            else:
                self.assertEqual(embed(path, ["5,6,7"], "--ids"), embed(source, ["5,6,7"], "--ids", "--pooling", pooling))

    def test_a_model_saved_without_its_head(self):  # as embedding models are published: no "model." before the names
        path = os.path.join(self.folder, "model.safetensors")
        with open(path, "rb") as f:
            size = int.from_bytes(f.read(8), "little")
            header, rest = f.read(size), f.read()
        header = header.replace(b'"model.', b'"')
        os.remove(path)
        with open(path, "wb") as f:
            f.write((len(header) + -len(header) % 8).to_bytes(8, "little") + header + b" " * (-len(header) % 8) + rest)
        self.assertEqual(embed(self.folder, ["Once"]), embed(MODEL, ["Once"]))


class Usage(unittest.TestCase):
    def test_wrong_usage(self):
        for args in (["embed"], ["embed", MODEL], ["embed", "--pooling", "none", MODEL, "a"], ["embed", "--dimensions", "0", MODEL, "a"],
                     ["embed", "--dimensions", "100000", MODEL, "a"], ["embed", "--ids", MODEL, "a"], ["embed", "--ids", MODEL, "99999999"],
                     ["embed", MODEL, ""]):
            done = subprocess.run([ECHELON, *args], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, (args, done.stderr))
            self.assertTrue(done.stderr)

    def test_too_long_names_the_limit(self):  # the whole context may be used, one token more is refused
        fits = as_text([5] * 64)
        self.assertEqual(len(embed(MODEL, [fits], "--ids", "--max-seq-len", "64")), 1)
        self.assertIn("65 tokens", embed(MODEL, [fits + ",5"], "--ids", "--max-seq-len", "64", code=1))


unittest.main()
