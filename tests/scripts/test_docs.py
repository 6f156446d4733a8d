#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of the documents' ```sh blocks runs as it stands there, in a scratch folder, with the demo model.

Those that can't are named here with the reason; of them the options of echelon's commands are looked up. A name here that
no document has, or a command with a word in capitals that nothing stands for, is a failure too.

environment: ECHELON, the program; ECH_BUILD, the folder that it was built in
"""
import glob
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ECHELON, BUILD = os.environ["ECHELON"], os.environ["ECH_BUILD"]

# What can't run: the beginning of a command → why.
NOT_RUN = {
    "./demo": "installs packages and builds; it is how CI begins",
    "./test": "runs all tests, this one too",
    "cmake --preset": "builds; ./test does it",
    "ctest --preset": "tests within a test",
    "cc examples/embed.c": "needs an installation; test cli.installed does it",
    "build/release/tests/kernels/checker --bench": "minutes of measuring; tests run the checker",
    "build/release/echelon bench runtime": "minutes of measuring",
    "echelon bench MODEL.gguf": "minutes of measuring; test cli.bench_model runs it small",
    "pip download": "the network",
    "PEER.py quantize": "llama.cpp",
    "tests/tools/right_answers.py": "llama.cpp",
    "tests/tools/make_gguf.py": "gigabytes, and the gguf package",
    "tests/tools/peer_speed.py": "llama.cpp",
    "build/release/tests/tools/make_model 4b": "gigabytes",
    "build/release/echelon generate --model-dir FOLDER": "gigabytes",
    "ECHELON=build/release/echelon python3 tests/server/load.py": "minutes of load; test server.load runs it",
}
# What stands for the words in capitals and names of files.
STANDS_FOR = {"DIR": "models/tale", "MODEL.gguf": "models/tale", "MODEL-f32.gguf": "models/tale", "MODEL-q4.gguf": "models/tale"}
CAPITALS = re.compile(r"(?<![\w'{$/])[A-Z]{3,}(?![\w'}])")


def blocks():
    for path in ["README.md", "CONTRIBUTING.md", *sorted(glob.glob("docs/**/*.md", root_dir=ROOT, recursive=True))]:
        text = open(os.path.join(ROOT, path)).read()
        for m in re.finditer(r"^```sh\n(.*?)^```", text, re.M | re.S):
            lines = re.sub(r"\\\n\s*", "", m[1]).splitlines()
            yield path, [re.sub(r"(^|\s)#.*", "", line).strip() for line in lines if not line.lstrip().startswith("#")]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


class Scratch:
    """A folder that looks like the source tree after a build, with a server while a document needs one."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="echelon-docs-")
        os.makedirs(os.path.join(self.path, "build"))
        os.symlink(BUILD, os.path.join(self.path, "build", "release"))
        for name in ("models", "tests", "examples"):
            os.symlink(os.path.join(ROOT, name), os.path.join(self.path, name))
        with open(os.path.join(self.path, "text.txt"), "w") as f:
            f.write("Once upon a time there was a fox named Finn, who lived in a wood. " * 700)
        with open(os.path.join(self.path, "keys.txt"), "w") as f:
            f.write("a-key-of-this-test\n")
        self.env = dict(os.environ, ECHELON_CACHE_DIR=os.path.join(self.path, "cache"), ECHELON_OVERSUBSCRIBE="1",
                        PATH=os.path.dirname(ECHELON) + ":" + os.environ["PATH"])
        self.servers, self.port = [], free_port()

    def run(self, command):
        r = subprocess.run(["bash", "-ec", command], cwd=self.path, env=self.env, input="Hello\n", capture_output=True, text=True,
                           timeout=200)
        return r.returncode, r.stdout, r.stderr

    def serve(self, command):
        """On a port that is free, whatever the document says."""
        port = free_port()
        if not self.servers:
            self.port = port
        words = [w for w in shlex.split(command) if w != "8000"]
        words = [w for w in words if w != "--port"] + ["--port", port]
        p = subprocess.Popen(words, cwd=self.path, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.servers.append(p)
        for _ in range(300):
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status
            except OSError:
                if p.poll() is not None:
                    return p.stderr.read()
                time.sleep(0.1)
        return "it is not ready after 30 s"

    def stop(self):
        for p in self.servers:
            p.terminate()
        for p in self.servers:
            p.wait(timeout=60)
        self.servers = []

    def close(self):
        self.stop()
        shutil.rmtree(self.path)


def check_options(path, command):
    words = shlex.split(command)
    if not words or os.path.basename(words[0]) != "echelon":
        return []
    name = words[1:2] if words[1] != "bench" else ["bench", words[2] if words[2] in ("runtime", "serve") else "model"]
    known = subprocess.run([ECHELON, *name, "--help"], capture_output=True, text=True).stdout
    return [f"{path}: {command}\n    {w} is no option" for w in words[2:] if w.startswith("--") and not re.search(rf"{w}\b", known)]


def stands_for(command):
    for word, real in STANDS_FOR.items():
        command = re.sub(rf"(?<![\w-]){re.escape(word)}(?!\w)", real, command)
    return command


def try_command(scratch, path, command):
    real = stands_for(command)
    if CAPITALS.search(real.split(" '")[0]):
        return [f"{path}: {command}\n    nothing stands for {CAPITALS.search(real)[0]}"]
    if "echelon serve" in real:
        got = scratch.serve(real)
        print(f"{path}: {command}: {got}")
        return [] if got == 200 else [f"{path}: {command}\n    {got}"]
    if "127.0.0.1:8080" in real and not scratch.servers:
        scratch.serve("build/release/echelon serve")
    code, out, err = scratch.run(real.replace("127.0.0.1:8080", f"127.0.0.1:{scratch.port}"))
    print(f"{path}: {command}: {code}")
    if code != 0 or '"error"' in out:
        return [f"{path}: {command}\n    {code} {out[-300:]} {err[-300:]}"]
    return []


def main():
    scratch, wrong, seen, n = Scratch(), [], set(), 0
    try:
        for path, commands in blocks():
            for command in filter(None, commands):
                n += 1
                reason = next((k for k in NOT_RUN if command.startswith(k)), None)
                seen.add(reason)
                wrong += check_options(path, command) if reason else try_command(scratch, path, command)
            scratch.stop()
    finally:
        scratch.close()
    wrong += [f"no document has {k!r} any more" for k in NOT_RUN if k not in seen]
    if wrong or n < 20:
        sys.exit("\n".join(wrong) or f"only {n} commands were found")


main()
