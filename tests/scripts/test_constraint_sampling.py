#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random schemas through the engine: test_constraint_sampling.py [COUNT] [SEED] [THREADS].

A server with the demo model answers one completion for each random schema, sampled at temperature 2, many at a time.
Each answer that ended by itself must be JSON that jsonschema validates; one that was cut by the limit of tokens is counted.
Nothing else may happen: no failed request, no crash. Environment: ECHELON, the program.
"""
import collections
import json
import os
import random
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "server")]

try:
    import jsonschema
except ImportError:
    sys.exit(77)

from harness import Server  # noqa: E402
from test_constraint_random import FORMAT_CHECKER, Maker  # noqa: E402

PROMPTS = ["Once upon a time", "The answer as JSON: ", "{\"name\": ", "A list of numbers:\n", "Tom said"]
MAX_TOKENS = 600


def main():
    count, seed, n_threads = (int(v) for v in (sys.argv[1:] + ["60", "1", "16"][len(sys.argv) - 1:])[:3])
    print(f"seed={seed} count={count}", flush=True)
    server = Server("--max-running", "32")
    tally, failures, lock = collections.Counter(), [], threading.Lock()
    numbers = iter(range(count))

    def judge(i, status, out, validator):
        """What came of schema i, and what is wrong with it, if anything."""
        if status != 200:
            # A schema that nothing satisfies is refused; so may a random one be.
            text = out["error"]["message"]
            return ("empty", None) if status == 400 and "no " in text else ("refused", text)
        choice = out["choices"][0]
        if choice["finish_reason"] != "stop":
            return ("cut", None) if choice["finish_reason"] == "length" else ("failed", choice)
        try:
            error = jsonschema.exceptions.best_match(validator.iter_errors(json.loads(choice["text"])))
        except ValueError as e:
            error = e
        return ("valid", None) if error is None else ("invalid", f"{error}\n  {choice['text']!r}")

    def work():
        while True:
            with lock:
                i = next(numbers, None)
            if i is None or len(failures) > 20:
                return
            schema, _ = Maker(random.Random(seed * 1000003 + i)).schema()
            validator = jsonschema.Draft202012Validator(schema, format_checker=FORMAT_CHECKER)
            body = {"prompt": PROMPTS[i % len(PROMPTS)], "structured_outputs": {"json": schema}, "temperature": 2, "seed": seed + i,
                    "max_tokens": MAX_TOKENS}
            try:
                what, why = judge(i, *server.post("/v1/completions", body), validator)
            except (OSError, ValueError) as e:
                what, why = "lost", repr(e)
            with lock:
                tally[what] += 1
                if why is not None:
                    failures.append((i, what, why, schema))
                if sum(tally.values()) % 1000 == 0:
                    print(dict(tally), flush=True)

    threads = [threading.Thread(target=work) for _ in range(n_threads)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i, what, why, schema in failures[:10]:
        print(f"schema {i}: {what}: {why}\n  {json.dumps(schema, ensure_ascii=False)}")
    code = server.stop()
    print(dict(tally), f"failures={len(failures)} server={code}")
    sys.exit(1 if failures or sum(tally.values()) < count else 0)


main()
