"""Runs the tests of one file by name, as ctest does: `python3 FILE NAME…`; without a name all of them.

A case is a function with @case("NAME", flags of its server…). Cases in one call with equal flags share
a server. skip(why) ends a case as skipped: exit 77, with the reason on the last line.
"""
import sys
import traceback

from harness import Server

CASES = {}


class Skipped(Exception):
    pass


def skip(why):
    raise Skipped(why)


def case(name, *flags):
    def add(f):
        assert name not in CASES, name
        CASES[name] = (flags, f)
        return f
    return add


def need(module):
    """The module of a package from tests/server/requirements.txt."""
    try:
        return __import__(module, fromlist=["_"])
    except ImportError as why:
        skip(f"{why}: scripts/venv makes build/venv-clients from tests/server/requirements.txt where pip has a network")


def run_one(name, flags, f, server):
    try:
        f(server)
        print(f"{name}: ok")
        return 0
    except Skipped as why:
        print(f"{name}: skipped: {why}")
        return 77
    except Exception:
        traceback.print_exc()
        print(f"{name}: failed, with the server's words:\n{server.stderr()[-2000:]}")
        return 1


def main(argv):
    names = argv or list(CASES)
    results, server, running = [], None, None
    for name in names:
        flags, f = CASES[name]
        if running != flags and server:
            assert server.stop() == 0
            server = None
        server, running = server or Server(*flags), flags
        results.append(run_one(name, flags, f, server))
    assert server.stop() == 0
    if any(r == 1 for r in results):
        return 1
    return 77 if results and all(r == 77 for r in results) else 0


def run():
    sys.exit(main(sys.argv[1:]))
