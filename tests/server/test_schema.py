#!/usr/bin/env python3
"""schemathesis over /openapi.json: whatever the schema allows or forbids, no answer is a 5xx but a 503 that says
when to come back, none hangs, and each has a body as the schema says. `test_schema.py SECONDS [SEED]`.

A check that fails, and a request without an answer, are faults; where the tool itself crashes it is run again."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Server

CHECKS = "only_503_and_when,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method,allow_header_conformance"

# A check of our own, in a module that schemathesis loads.
HOOKS = """
import schemathesis


@schemathesis.check
def only_503_and_when(ctx, response, case):
    if response.status_code >= 500:
        assert response.status_code == 503 and response.headers.get("retry-after"), f"a {response.status_code}"
"""


def read_report(folder):
    """(what the server did wrong, what went wrong in the tool itself), a line each."""
    from requests import exceptions
    wrong, tool, ended = [], [], False
    for name in os.listdir(folder):
        if not name.endswith(".ndjson"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            for line in f:
                (kind, event), = json.loads(line).items()
                ended |= kind == "EngineFinished"
                if kind == "ScenarioFinished" and event["status"] == "failure":
                    wrong.append(f"{event.get('label')}: a check failed")
                if kind in ("NonFatalError", "FatalError"):
                    error = event.get("value") or event.get("exception") or {}
                    what = error.get("type", "")
                    # No answer, half an answer: those of the client's library, and what the tool makes of several.
                    is_ours = hasattr(exceptions, what) or what in ("UnhealthyAPIError", "UnresponsiveOperationError", "TransportError")
                    (wrong if is_ours else tool).append(f"{event.get('label')}: {what}: {error.get('message', '')[:300]}")
    return wrong, tool if ended or tool else ["it ended without saying so"]


def run(tool, port, seconds, seed):
    """The exit code, what it printed, and the two lists of read_report."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "echelon_hooks.py"), "w") as f:
            f.write(HOOKS)
        done = subprocess.run(
            [tool, "run", f"http://127.0.0.1:{port}/openapi.json", "--checks", CHECKS, "--max-time", str(seconds), "--request-timeout", "60",
             "--workers", "2", "--seed", str(seed), "--no-shrink", "--continue-on-failure", "--phases", "coverage,fuzzing", "--suppress-health-check", "all",
             "--warnings", "off", "--exclude-path-regex", r"^/$|\.(js|css)$", "--report", "ndjson", "--report-dir", folder],
            cwd=folder, capture_output=True, text=True, timeout=1.5 * seconds + 120, env={**os.environ, "NO_COLOR": "1", "HYPOTHESIS_STORAGE_DIRECTORY": folder,
                                                                                        "SCHEMATHESIS_HOOKS": "echelon_hooks", "PYTHONPATH": folder})
        return done.returncode, done.stdout + done.stderr, *read_report(folder)


def run_until_whole(tool, port, seconds, seed):
    """What is wrong, [] for nothing. The tool's own crash says nothing of the server: another seed takes its place, twice at most."""
    for _ in range(3):
        code, said, wrong, crashes = run(tool, port, seconds, seed)
        print(f"seed {seed}, {seconds} s: exit code {code}, {len(wrong)} faults, {len(crashes)} crashes of the tool", *crashes, sep="\n  ", flush=True)
        if wrong or not crashes:
            if code != 0 or wrong:
                print(said[-6000:])
            return wrong or ([f"exit code {code}"] if code != 0 else [])
        seed, seconds = seed + 1, max(seconds // 4, 20)
    return ["the tool crashed each time"]


def main():
    seconds = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(3), "little")
    tool = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    if not os.path.exists(tool):
        print("skipped: no schemathesis: scripts/venv makes build/venv-clients from tests/server/requirements.txt where pip has a network")
        return 77
    # A small context bounds what one request may cost, whatever it asks for.
    server = Server("--max-seq-len", "128", "--max-tokens", "16")
    try:
        wrong = run_until_whole(tool, server.port, seconds, seed)
        assert server.process.poll() is None, "the server died"
        assert server.get("/health")[0] == 200
        assert server.wait_metric("num_requests_running", 0), server.get("/requests")
        answered = int(server.metric("http_requests_total"))
    finally:
        code = server.stop()
    print(f"{answered} requests", *wrong, sep="\n")
    assert code == 0
    assert answered > seconds, f"only {answered} requests"
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
