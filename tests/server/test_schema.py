#!/usr/bin/env python3
"""schemathesis over /openapi.json: whatever the schema allows or forbids, no answer is a 5xx but a 503 that says
when to come back, none hangs, and each has a body as the schema says. `test_schema.py SECONDS [SEED]`."""
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


def main():
    seconds = int(sys.argv[1])
    seed = sys.argv[2] if len(sys.argv) > 2 else str(int.from_bytes(os.urandom(3), "little"))
    tool = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    if not os.path.exists(tool):
        print("skipped: no schemathesis: scripts/venv makes build/venv-clients from tests/server/requirements.txt where pip has a network")
        return 77
    print(f"seed {seed}", flush=True)
    # A small context bounds what one request may cost, whatever it asks for.
    server = Server("--max-seq-len", "128", "--max-tokens", "16")
    try:
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "echelon_hooks.py"), "w") as f:
                f.write(HOOKS)
            done = subprocess.run(
                [tool, "run", f"http://127.0.0.1:{server.port}/openapi.json", "--checks", CHECKS, "--max-time", str(seconds), "--request-timeout", "20",
                 "--workers", "2", "--seed", seed, "--no-shrink", "--continue-on-failure", "--phases", "coverage,fuzzing", "--suppress-health-check", "all", "--warnings", "off",
                 "--exclude-path-regex", r"^/$|\.(js|css)$", "--report", "ndjson", "--report-dir", folder],
                cwd=folder, capture_output=True, text=True, timeout=seconds + 120, env={**os.environ, "NO_COLOR": "1", "HYPOTHESIS_STORAGE_DIRECTORY": folder,
                                                                                            "SCHEMATHESIS_HOOKS": "echelon_hooks", "PYTHONPATH": folder})
        assert server.process.poll() is None, "the server died"
        assert server.get("/health")[0] == 200
        assert server.wait_metric("num_requests_running", 0), server.get("/requests")
        answered = int(server.metric("http_requests_total"))
    finally:
        code = server.stop()
    print(done.stdout[-6000:] if done.returncode else f"{answered} requests")
    assert code == 0
    assert answered > 2 * seconds, f"only {answered} requests: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return 1 if done.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
