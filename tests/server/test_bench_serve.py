#!/usr/bin/env python3
"""`echelon bench serve` against our server and against a stub of another one: datasets, rates, sums, goodput,
the progress line, the plot."""
import json
import os
import pty
import select
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import ECHELON, Server
from stub import Stub

# What `vllm bench serve` writes; tools that read its results look for these.
FIELDS = {"date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts", "request_rate", "burstiness", "max_concurrency", "duration",
          "completed", "failed", "total_input_tokens", "total_output_tokens", "request_throughput", "request_goodput", "output_throughput",
          "total_token_throughput", "max_output_tokens_per_s", "max_concurrent_requests",
          *(f"{what}_{name}_ms" for what in ("mean", "median", "std", "p50", "p90", "p95", "p99") for name in ("ttft", "tpot", "itl", "e2el"))}


def bench(port, *args, check=True):
    out = subprocess.run([ECHELON, "bench", "serve", "--url", f"http://127.0.0.1:{port}/v1", *args], capture_output=True, text=True, timeout=120)
    if check and out.returncode:
        raise AssertionError(out)
    return out


def result(port, *args):
    return json.loads(bench(port, "--json", *args).stdout)


class Ours(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def test_random(self):
        r = result(self.server.port, "-n", "12", "-c", "4", "--random-input-len", "50", "--random-output-len", "20")
        self.assertEqual(set(r), FIELDS)
        self.assertEqual((r["completed"], r["failed"], r["total_input_tokens"], r["total_output_tokens"]), (12, 0, 600, 240))
        self.assertEqual((r["model_id"], r["request_rate"], r["request_goodput"]), ("tale", "inf", None))
        self.assertLessEqual(r["max_concurrent_requests"], 4)
        for name in ("ttft", "tpot", "itl", "e2el"):
            self.assertLessEqual(r[f"p50_{name}_ms"], r[f"p90_{name}_ms"])
            self.assertLessEqual(r[f"p95_{name}_ms"], r[f"p99_{name}_ms"])
            self.assertEqual(r[f"p50_{name}_ms"], r[f"median_{name}_ms"])
        self.assertAlmostEqual(r["output_throughput"], 240 / r["duration"], delta=1e-3 * r["output_throughput"])
        self.assertGreater(r["mean_e2el_ms"], r["mean_ttft_ms"])

    def test_shared_prefix_is_reused(self):
        before = self.server.metric("prefix_cache_hits_total")
        result(self.server.port, "-n", "8", "-c", "1", "--dataset-name", "shared-prefix", "--random-input-len", "160", "--random-prefix-len", "128", "--random-output-len", "2")
        self.assertGreaterEqual(self.server.metric("prefix_cache_hits_total") - before, 7 * 96)
        before = self.server.metric("prefix_cache_hits_total")
        result(self.server.port, "-n", "8", "-c", "1", "--seed", "99", "--random-input-len", "160", "--random-output-len", "2")
        self.assertLess(self.server.metric("prefix_cache_hits_total") - before, 64)

    def test_failures_are_counted(self):
        out = bench(self.server.port, "--json", "-n", "3", "--random-input-len", "5000", check=False)
        r = json.loads(out.stdout)
        self.assertEqual((out.returncode != 0, r["completed"], r["failed"]), (True, 0, 3))
        self.assertIn("3 of 3 requests failed", out.stderr)

    def test_text_and_plots(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plot.svg")
            text = bench(self.server.port, "-n", "6", "-c", "2", "--random-output-len", "8", "--plot", path).stdout
            with open(path) as f:
                svg = f.read()
        self.assertIn("mean_ttft_ms", text)
        for name in ("ttft", "tpot", "itl", "e2el"):
            self.assertRegex(text, rf"\n{name} +[\d.]+ ms ▕[ ▁▂▃▄▅▆▇█]{{48}}▏ [\d.]+ ms")
        self.assertEqual(svg.count("<rect"), 12)
        self.assertIn("</svg>", svg)
        import xml.dom.minidom
        xml.dom.minidom.parseString(svg)


class Another(unittest.TestCase):
    def setUp(self):
        self.stub = Stub([["a", 0.02, "b", 0.02, "c"]])

    def tearDown(self):
        self.stub.close()

    def test_what_is_asked(self):
        result(self.stub.port, "-n", "4", "-c", "2", "--random-input-len", "9", "--random-output-len", "5", "--api-key", "sesame")
        for path, body, headers in self.stub.asked:
            self.assertEqual((path, body["model"], body["max_tokens"], body["stream"], len(body["prompt"])), ("/v1/completions", "stub", 5, True, 9))
            self.assertEqual(headers["Authorization"], "Bearer sesame")
        self.assertEqual(len({tuple(b["prompt"]) for _, b, _ in self.stub.asked}), 4)
        again = [b["prompt"] for _, b, _ in self.stub.asked]
        self.stub.asked.clear()
        result(self.stub.port, "-n", "4", "-c", "2", "--random-input-len", "9", "--random-output-len", "5")
        self.assertEqual(sorted(b["prompt"] for _, b, _ in self.stub.asked), sorted(again))  # one seed, one load

    def test_dataset_of_lines(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
            f.write("first line\n\nsecond line\nlast without an end")
            f.flush()
            result(self.stub.port, "-n", "4", "-c", "1", "--dataset-name", "file", "--dataset-path", f.name)
        self.assertEqual([b["prompt"] for _, b, _ in self.stub.asked], ["first line", "second line", "last without an end", "first line"])
        for bad in (("file", "/no/such"), ("nonsense", "x")):
            self.assertNotEqual(bench(self.stub.port, "--dataset-name", bad[0], "--dataset-path", bad[1], check=False).returncode, 0)

    def test_times_and_detail(self):
        r = result(self.stub.port, "-n", "6", "-c", "3", "--save-detailed")
        self.assertEqual(set(r) - FIELDS, {"input_lens", "output_lens", "ttfts", "itls", "start_times", "errors"})
        self.assertEqual((r["output_lens"], r["input_lens"], r["errors"]), ([3] * 6, [7] * 6, [""] * 6))
        self.assertTrue(all(len(gaps) == 2 and min(gaps) > 0.015 for gaps in r["itls"]), r["itls"])
        self.assertGreater(r["median_itl_ms"], 15)
        self.assertAlmostEqual(r["mean_ttft_ms"], 1000 * sum(r["ttfts"]) / 6, delta=0.01)
        self.assertGreaterEqual(r["max_concurrent_requests"], 2)

    def test_goodput(self):
        all_good = result(self.stub.port, "-n", "4", "--goodput-ttft", "5000", "--goodput-e2el", "9000")
        self.assertAlmostEqual(all_good["request_goodput"], all_good["request_throughput"], delta=1e-6)
        self.assertEqual(result(self.stub.port, "-n", "4", "--goodput-tpot", "1")["request_goodput"], 0)

    def test_request_rate(self):
        r = result(self.stub.port, "-n", "20", "-c", "20", "--request-rate", "40", "--save-detailed")
        starts = sorted(r["start_times"])
        self.assertEqual(r["request_rate"], 40)
        self.assertGreater(starts[-1], 0.2)  # as fast as they go, all would start at once
        self.assertLess(starts[-1], 2)

    def test_errors_in_a_stream(self):
        self.stub.answers = [["a", {"error": "the chip died"}]]
        out = bench(self.stub.port, "--json", "-n", "2", check=False)
        self.assertEqual(json.loads(out.stdout)["failed"], 2)
        self.assertIn("the chip died", out.stderr)
        self.stub.answers = [["a", None]]
        self.assertEqual(json.loads(bench(self.stub.port, "--json", "-n", "2", check=False).stdout)["failed"], 2)
        self.stub.answers = [503]
        self.assertIn("HTTP 503", bench(self.stub.port, "-n", "2", check=False).stderr)

    def test_progress_line(self):
        self.stub.answers = [["a", 0.3, "b"]]
        master, slave = pty.openpty()
        p = subprocess.Popen([ECHELON, "bench", "serve", "--url", f"http://127.0.0.1:{self.stub.port}/v1", "-n", "4", "-c", "1", "--json"], stdout=subprocess.PIPE, stderr=slave)
        os.close(slave)
        out = p.stdout.read()
        p.stdout.close()
        p.wait(30)
        shown = b""
        while select.select([master], [], [], 0.2)[0]:
            try:
                shown += os.read(master, 65536)
            except OSError:
                break
        os.close(master)
        self.assertIn("of 4 requests", shown.decode())
        self.assertIn("\r", shown.decode())
        json.loads(out)  # the progress is not in the result


if __name__ == "__main__":
    unittest.main(verbosity=1)
