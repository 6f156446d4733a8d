#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An Echelon in a prefix as a newcomer has it: what is installed, C programs built against it, the examples of every --help, run
word by word with the installed program.

usage: test_installed.py      environment: ECH_BUILD, the build folder
"""
import filecmp
import json
import os
import shutil
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TALE = os.path.join(ROOT, "models", "tale")
COMMANDS = ["generate", "chat", "serve", "inspect", "tokenize", "pack", "cache", "doctor", "embed", "perplexity", "kld",
            "template render", "template check", "bench model", "bench runtime", "bench serve", "version", "help"]
# They need a server, or measure for long; tests of their own run them.
ELSEWHERE = ("echelon serve", "curl", "echelon chat --url", "echelon bench", "echelon doctor", "echelon embed DIR")


def sh(line, folder, env, **kw):
    r = subprocess.run(line, shell=True, cwd=folder, env=env, capture_output=True, timeout=120, **kw)
    assert r.returncode == 0, (line, r.returncode, r.stdout[-500:], r.stderr[-500:])
    return r


def environment(prefix, home):
    pc = [d for d, _, files in os.walk(prefix) if "echelon.pc" in files]
    assert len(pc) == 1, pc
    env = {k: v for k, v in os.environ.items() if not k.startswith("ECHELON")}
    return {**env, "PATH": f"{prefix}/bin:{env['PATH']}", "PKG_CONFIG_PATH": pc[0], "HOME": home, "XDG_CACHE_HOME": f"{home}/cache",
            "LD_LIBRARY_PATH": os.path.dirname(pc[0])}


def check_model(prefix):
    installed = os.path.join(prefix, "share", "echelon", "models", "tale")
    names = os.listdir(TALE)
    assert filecmp.cmpfiles(TALE, installed, names, shallow=False)[0] == names, installed


def check_programs(folder, env):
    for name in ("embed", "pipeline"):
        source = os.path.join(ROOT, "examples", f"{name}.c")
        sh(f"cc {source} $(pkg-config --cflags --libs echelon) -o {name} && ./{name}", folder, env)
    for header in os.listdir(os.path.join(ROOT, "include", "echelon")):
        for flags in ("-x c -std=c99 -Wpedantic", "-x c++ -std=c++11"):
            sh(f"echo '#include <echelon/{header}>' | cc {flags} -Wall -Wextra -Werror -fsyntax-only $(pkg-config --cflags echelon) -",
               folder, env)


def put_files(folder):
    """What the examples name."""
    ask = {"messages": [{"role": "user", "content": "What is the weather in Rome?"}]}
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}, "required": ["name"]}
    for name, value in (("messages.json", ask), ("conversation.json", ask), ("tools.json", tools), ("cat.schema.json", schema)):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(value, f)
    for name in ("a.txt", "b.txt", "text.txt"):
        shutil.copy(os.path.join(ROOT, "README.md"), os.path.join(folder, name))
    os.mkdir(os.path.join(folder, "models"))
    for name in ("DIR", "MODEL.gguf", "MODEL-f32.gguf", "MODEL-q4.gguf", "models/tale"):
        os.symlink(TALE, os.path.join(folder, name))
    shutil.copy(os.path.join(TALE, "chat_template.jinja"), folder)


def examples(env, folder):
    for command in COMMANDS:
        text = sh(f"echelon {command} --help", folder, env).stdout.decode()
        for line in text.split("\nexample:\n", 1)[1].split("\n\n")[0].splitlines():
            if line.strip():
                yield line.strip()


def check_examples(folder, env):
    n = 0
    for line in examples(env, folder):
        if not line.startswith(ELSEWHERE):
            sh(line, folder, env, input=b"")
            n += 1
    assert n > 20, n


def main():
    with tempfile.TemporaryDirectory() as d:
        prefix, folder = os.path.join(d, "prefix"), os.path.join(d, "work")
        os.mkdir(folder)
        sh(f"cmake --install {os.environ['ECH_BUILD']} --prefix {prefix}", d, os.environ)
        env = environment(prefix, d)
        check_model(prefix)
        check_programs(folder, env)
        put_files(folder)
        check_examples(folder, env)


main()
