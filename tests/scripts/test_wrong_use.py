#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command used wrongly: one line on stderr, the exit code of the documentation, nothing on stdout.

usage: test_wrong_use.py [TEST…]      environment: ECHELON, the program
"""
import contextlib
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile

ECHELON = os.path.abspath(os.environ["ECHELON"])
TALE, GGUF = "models/tale", "tests/golden/gguf/gqa-tied-quant.gguf"
COMMANDS = ["generate", "chat", "serve", "inspect", "tokenize", "pack", "cache", "doctor", "embed", "perplexity", "kld",
            "template render", "template check", "bench model", "bench runtime", "bench serve", "version", "help"]
TESTS = []


def test(fn):
    TESTS.append(fn)
    return fn


def run(*args, env=None, **kw):
    kw.setdefault("stdin", subprocess.DEVNULL)
    kw.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([ECHELON, *args], stderr=subprocess.PIPE, timeout=60, env={**os.environ, **(env or {})}, **kw)


def options(command):
    """(name, name of its value or "") of every option."""
    text = run(*command.split(), "--help").stdout.decode()
    return re.findall(r"^ +(?:-\w, )?--([\w-]+)(?: ([A-Z]\S*))? ", text, re.M)


def check_line(r, code, said=b""):
    err = r.stderr
    assert r.returncode == code, (r.args[:8], r.returncode, err[:300])
    assert err.startswith(b"echelon: ") and err.endswith(b"\n") and err.count(b"\n") == 1, (r.args[:8], err)
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", err) and len(err) < 700, (r.args[:8], err)
    assert said in err, (r.args[:8], said, err)
    assert not r.stdout, (r.args[:8], r.stdout[:200])


@test
def numbers_are_checked():
    n = 0
    for command in COMMANDS:
        for name, arg in options(command):
            if arg not in ("N", "T", "P", "BYTES", "S", "MS"):
                continue
            for value in ("", "abc", "nan", "inf", "0x10", " 5", "5 ", "-9e99", "9" * 30, "1\n2", "\udcff", "x" * 5000):
                check_line(run(*command.split(), f"--{name}", value), 2, f"--{name}".encode())
                n += 1
    assert n > 500, n


@test
def lists_of_ids_have_ids_between_their_commas():
    for ids in ("1,,2", "1,", ",1", ",", "1 2", " 1", "1, ,2", "+1", "-1", "1;2", "1,2x", "0x1", "1.0", "2147483648", "9" * 30):
        check_line(run("generate", "--prompt-ids", ids, "-n", "1"), 2, b"--prompt-ids")
        check_line(run("embed", "--ids", TALE, "--", ids), 2, b"is no list like 1,2,3")
    for ids in ("1", "1,2", "1, 2,  3"):
        assert run("generate", "--prompt-ids", ids, "-n", "1").returncode == 0, ids


@test
def a_name_that_is_too_long_is_what_is_blamed():
    for name in ("n" * 5000, "n" * 4094, "n" * 4060, "/tmp/" + "n/" * 2040):
        check_line(run("pack", "--cache-dir", name, TALE), 2, b"too long")
        check_line(run("pack", TALE, env={"ECHELON_CACHE_DIR": name}), 2, b"too long")
        check_line(run("pack", "-o", name + "n" * 40, TALE), 2, b"too long")


@test
def options_are_known_and_complete():
    for command in COMMANDS:
        c = command.split()
        check_line(run(*c, "--no-such-option"), 2, b"--no-such-option is no option")
        check_line(run(*c, "--no-such-option=" + "x" * 5000), 2, b"is no option")
        check_line(run(*c, "-Z"), 2, b"-Z is no option")
        for name, arg in options(command):
            if arg:
                check_line(run(*c, f"--{name}"), 2, f"--{name} needs a value".encode())
            else:
                check_line(run(*c, f"--{name}=1"), 2, f"--{name}=1 takes no value".encode())
            if arg in ("FILE", "DIR") and command + name not in ("serveconfig", "template renderargs"):
                r = run(*c, f"--{name}", "", *(["-p", "x", "-n", "1"] if command == "generate" else []))
                assert r.returncode == 2, (command, name, r)
    check_line(run("generate", "-qZp", "x"), 2, b"-Z is no option")
    check_line(run("help", "generate", "chat"), 2, b"chat")
    check_line(run("no-such-command"), 2, b"no-such-command")


@test
def a_hostile_name_stays_one_line():
    for name in ("no\nsuch\r\x1b[31mfile", "\udcff\udcfe", "n" * 5000, "%s%n%s", "/dev/null/x"):
        for args in (["inspect", name], ["generate", "-p", "x", "-m", name], ["generate", "-f", name],
                     ["tokenize", "-m", name, "x"], ["embed", name, "x"], ["perplexity", name, name], ["pack", name],
                     ["kld", "--base", name, TALE, "README.md"], ["template", "check", name], ["cache", "list", "--cache-dir", name],
                     ["generate", "-p", "x", "--schema", name], ["generate", "--chat", name], ["bench", "model", name],
                     ["generate", "-p", "x", "--packed", name], ["serve", "--config", name], ["serve", "--api-key-file", name]):
            r = run(*args)
            if args[0] == "cache" and r.returncode == 0:
                continue  # a folder that isn't there is an empty cache
            check_line(r, r.returncode)
            assert r.returncode in (1, 2), r
    check_line(run("no\nsuch\x1bcommand"), 2)
    check_line(run("inspect", "--a\nb"), 2)


OUTPUTS = [["version"], ["help"], ["help", "generate"], ["help", "--man", "chat"], ["inspect", TALE], ["inspect", "--json", TALE],
           ["tokenize", "x"], ["embed", TALE, "x"], ["generate", "-p", "x", "-n", "2"], ["generate", "-p", "x", "-n", "2", "--json"],
           ["template", "check", f"{TALE}/chat_template.jinja"], ["serve", "--print-api"]]


@test
def an_answer_that_is_lost_is_a_failure():
    for args in OUTPUTS:
        with open("/dev/full", "wb") as full:
            check_line(run(*args, stdout=full), 1, b"standard output")
        check_line(run(*args, stdout=None, preexec_fn=lambda: os.close(1)), 1, b"standard output")
    full = ["tokenize", "--jsonl"]
    with open("/dev/full", "wb") as out:
        check_line(run(*full, stdin=None, input=b'"x"\n' * 20000, stdout=out), 1, b"standard output")


@contextlib.contextmanager
def open_folder():
    fd = os.open("/", os.O_RDONLY)
    yield fd
    os.close(fd)


@test
def streams_that_are_closed_hurt_nobody():
    expected = run("generate", "-p", "x", "-n", "4").stdout

    def without(fds):
        return run("generate", "-p", "x", "-n", "4", stdout=subprocess.PIPE, stdin=None,
                   preexec_fn=lambda: [os.close(fd) for fd in fds])
    for fds in ((0,), (2,), (0, 2)):
        r = without(fds)
        assert r.returncode == 0 and r.stdout == expected, (fds, r)
    for fds in ((1,), (0, 1), (1, 2), (0, 1, 2)):
        assert without(fds).returncode == 1, fds
    for args in (["generate"], ["generate", "--chat", "-"], ["tokenize"], ["tokenize", "--jsonl"]):
        check_line(run(*args, stdin=None, preexec_fn=lambda: os.close(0)), 1, b"input")
        with open_folder() as folder:
            check_line(run(*args, stdin=folder), 1, b"input")
    ours, theirs = socket.socketpair()  # what some programs give their children
    with ours, theirs:
        ours.sendall(b"Once upon")
        ours.shutdown(socket.SHUT_WR)
        assert run("tokenize", stdin=theirs).stdout == run("tokenize", "Once upon").stdout


@test
def a_file_is_written_whole_with_closed_output():
    """Nothing that was printed may land in a file that got standard output's number."""
    with tempfile.TemporaryDirectory() as d:
        files = [os.path.join(d, n) for n in "ab"]
        assert run("pack", "-o", files[0], TALE).returncode == 0
        run("pack", "-o", files[1], TALE, stdout=None, preexec_fn=lambda: os.close(1))
        args = ["generate", "-p", "x", "-n", "4", "--packed"]
        assert run(*args, files[0]).stdout == run(*args, files[1]).stdout != b""


@test
def the_environment_is_checked_too():
    for name, value in (("MAX_NEW_TOKENS", "-4"), ("KV_TYPE", "f64"), ("TEMPERATURE", "hot"), ("TOP_P", "2"), ("THREADS", "many"),
                        ("MAX_SEQ_LEN", "x" * 5000), ("KV_MEMORY", "1Q")):
        check_line(run("generate", "-p", "x", env={f"ECHELON_{name}": value}), 2, f"ECHELON_{name}".encode())
        r = run("generate", "-p", "x", "-n", "1", env={f"ECHELON_{name}": ""})
        assert r.returncode == 0 and r.stderr == b"", (name, r)


@test
def few_descriptors_are_an_error_or_enough():
    """Neither a hang nor a zygote that spins on when everybody else is gone."""
    for n in range(5, 24):
        r = run("generate", "-p", "x", "-n", "1", preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)))
        assert r.returncode in (0, 1, 127) and (r.returncode == 0 or b"open" in r.stderr), (n, r)


@test
def a_constraint_is_text():
    with tempfile.TemporaryDirectory() as d:
        with open(f"{d}/g", "wb") as f:
            f.write(b'root ::= "\xff"')
        for args in (["--regex", "a\udcff"], ["--choice", "a", "--choice", "\udcfe"], ["--grammar", f"{d}/g"]):
            check_line(run("generate", "-p", "x", *args), 2, b"not UTF-8")


@test
def a_model_folder_may_hold_anything():
    """A pipe that nobody writes to, a folder, a device that never ends, in the place of each file."""
    files = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
             "model.safetensors", "model.safetensors.index.json"]
    makers = [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)]
    for name in files:
        for make in makers:
            with tempfile.TemporaryDirectory() as folder:
                for other in os.listdir(TALE):
                    if other != name:
                        os.symlink(os.path.abspath(os.path.join(TALE, other)), os.path.join(folder, other))
                if name.endswith("index.json"):
                    os.unlink(os.path.join(folder, "model.safetensors"))
                make(os.path.join(folder, name))
                with open(os.path.join(folder, "messages"), "w", encoding="utf-8") as f:
                    json.dump([{"role": "user", "content": "Hello"}], f)
                r = run("generate", "--model-dir", folder, "-n", "1", "--chat", f.name)
                check_line(r, 1, name.encode())


# Every command that writes a file at its end, with work that nobody would wait for.
WRITERS = [["pack", TALE, "-o"], ["bench", TALE, "-p", "0", "-n", "2", "-r", "100", "--read-bytes", "16M", "--save"],
           ["kld", TALE, "README.md", "-c", "32", "--save"], ["generate", "-p", "x", "-n", "1", "--trace"],
           ["serve", "--port", "0", "--trace"], ["bench", "runtime", "--trace"],
           ["bench", "serve", "--url", "http://127.0.0.1:1", "-n", "1000000", "--plot"]]


@test
def a_file_that_cannot_be_written_is_said_before_the_work():
    """And what stands there stays: a device that a file was renamed over would be gone for everybody."""
    with tempfile.TemporaryDirectory() as d:
        os.mkfifo(f"{d}/pipe")
        os.symlink("/dev/null", f"{d}/link")
        before = os.stat("/dev/null").st_rdev, os.stat("/dev/full").st_rdev
        for args in WRITERS:
            for place in ("/nowhere/file", d, "README.md/file", "/dev/full", "/dev/null", f"{d}/pipe", f"{d}/link", "/proc/file"):
                r = run(*args, place)
                check_line(r, r.returncode, place.encode())
                assert r.returncode in (1, 2), r
        assert before == (os.stat("/dev/null").st_rdev, os.stat("/dev/full").st_rdev)
        assert sorted(os.listdir(d)) == ["link", "pipe"], os.listdir(d)
        for place in ("/proc/folder", "README.md/folder"):
            check_line(run("pack", TALE, "--cache-dir", place), 1, place.encode())
        check_line(run("bench", "runtime", "--compare", "/nowhere/file"), 1, b"/nowhere/file")


@test
def a_start_that_fails_leaves_no_file():
    with tempfile.TemporaryDirectory() as d:
        for args in (["generate", "-m", "/nowhere", "-p", "x", "--trace"], ["bench", "/nowhere", "--save"], ["pack", "/nowhere", "-o"],
                     ["kld", "/nowhere", "README.md", "--save"]):
            check_line(run(*args, f"{d}/file"), 1)
            assert os.listdir(d) == [], (args, os.listdir(d))


@test
def what_cannot_be_done_is_said_before_it_is_tried():
    """With the limit itself, to the last digit: more memory than there is, a text that is too short, nothing to measure."""
    check_line(run("generate", "-p", "x", "-n", "0"), 2, b"(1 to 1073741824)")
    check_line(run("perplexity", TALE, "README.md", "-c", "3"), 2, b"(4 to 1048576)")
    for command in (["doctor"], ["bench", TALE, "-p", "8", "-n", "0"]):
        for size in ("8T", "8000T"):
            check_line(run(*command, "--read-bytes", size), 1, b"MiB are free")
    check_line(run("bench", TALE, "-p", "0", "-n", "0"), 2, b"nothing to measure")
    with tempfile.NamedTemporaryFile() as f:
        f.write(b"hello")
        f.flush()
        check_line(run("perplexity", TALE, f.name), 2, b"smaller --ctx")
        check_line(run("kld", TALE, f.name, "--save", f.name + "l"), 2, b"smaller --ctx")


@test
def an_error_in_a_file_names_the_file():
    """Of each file of a model, of a GGUF file's parts, of what options name; whatever is wrong in it."""
    with tempfile.TemporaryDirectory() as d:
        def broken(name, content):
            folder = os.path.join(d, name)
            os.mkdir(folder)
            for other in os.listdir(TALE):
                if other != name:
                    os.symlink(os.path.abspath(os.path.join(TALE, other)), os.path.join(folder, other))
            with open(os.path.join(folder, name), "wb") as f:
                f.write(content)
            return folder

        with open(f"{d}/chat", "w", encoding="utf-8") as f:
            json.dump([{"role": "user", "content": "Hello"}], f)
        for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                     "model.safetensors"):
            for content in (b"{% if", b"\xff\xfe"):
                folder = broken(name, content)
                for args in (["generate", "-m", folder, "-n", "1", "--chat", f"{d}/chat"],
                             ["generate", "-m", TALE, "-n", "1", "--chat", f"{d}/chat", "--chat-template", f"{folder}/{name}"],
                             ["serve", "-m", TALE, "--port", "0", "--chat-template", f"{folder}/{name}"]):
                    check_line(run(*args), 1, folder.encode())
                shutil.rmtree(folder)
        with open(GGUF, "rb") as f:
            whole = f.read()
        for old, new in ((b"assistant", b"assist\xffnt"), (b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenz"),
                         (b"tokenizer.ggml.model", b"tokenizer.ggml.modem"), (b"qwen3.block_count", b"qwen3.block_counp"), (b"GGUF", b"GGUG")):
            assert old in whole
            with open(f"{d}/a.gguf", "wb") as f:
                f.write(whole.replace(old, new))
            for args in (["generate", "-m", f"{d}/a.gguf", "-p", "x"], ["tokenize", "-m", f"{d}/a.gguf", "x"]):
                check_line(run(*args), 1, f"{d}/a.gguf".encode())


@test
def a_home_that_is_none_gets_no_folders():
    with tempfile.TemporaryDirectory() as d:
        model = os.path.abspath(TALE)
        for home in ("", "relative", ".", "../x"):
            env = {"HOME": home, "XDG_CACHE_HOME": "also-relative", "ECHELON_CACHE_DIR": ""}
            check_line(run("pack", model, env=env, cwd=d), 1, b"HOME to a path from the root")
            r = run("generate", "-m", model, "-p", "x", "-n", "1", env=env, cwd=d)
            assert r.returncode == 0 and r.stderr.count(b"\n") == 1, r
            run("bench", model, "-p", "4", "-n", "0", "-r", "1", "--read-bytes", "16M", env=env, cwd=d)
            assert os.listdir(d) == [], (home, os.listdir(d))


@test
def json_is_json():
    with tempfile.TemporaryDirectory() as d:
        for args in (["version"], ["inspect", TALE], ["cache", "list", "--cache-dir", d], ["pack", TALE, "--cache-dir", d],
                     ["cache", "list", "--cache-dir", d], ["cache", "clear", "--cache-dir", d], ["doctor", "--read-bytes", "16M"],
                     ["generate", "-p", "x\n\"\\\x01", "-n", "3", "--logprobs", "20"], ["embed", TALE, "x"],
                     ["perplexity", TALE, "README.md", "--chunks", "1", "-c", "32"],
                     ["kld", TALE, "README.md", "--chunks", "1", "-c", "32", "--save", f'{d}/a "b\\c\n'],
                     ["kld", TALE, "README.md", "--chunks", "1", "-c", "32", "--base", f'{d}/a "b\\c\n']):
            r = run(*args, "--json")
            assert r.returncode == 0, r
            if r.stdout or "--save" not in args:
                json.loads(r.stdout, parse_constant=lambda c: sys.exit(f"{args} prints {c}"))


def main():
    for t in TESTS:
        if not sys.argv[1:] or t.__name__ in sys.argv[1:]:
            t()
            print(f"ok {t.__name__}", flush=True)


main()
