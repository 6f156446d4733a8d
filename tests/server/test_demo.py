#!/usr/bin/env python3
"""`./demo serve`: where the port is taken it takes the next free one and says so. The build itself is left out
(a cmake that does nothing comes first in PATH): it is what built the program that this test runs."""
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")


def main():
    ours = os.path.realpath(os.environ["ECHELON"])
    if ours != os.path.realpath(os.path.join(ROOT, "build/release/echelon")):
        print("skipped: ./demo runs build/release/echelon, and this is another build")
        return 77
    with tempfile.TemporaryDirectory() as folder, socket.socket() as taken:
        with open(os.path.join(folder, "cmake"), "w") as f:
            f.write("#!/bin/sh\nexit 0\n")
        os.chmod(os.path.join(folder, "cmake"), 0o755)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8080))
            taken.listen()
        except OSError:
            pass  # somebody else has it: as good
        p = subprocess.Popen(["./demo", "serve"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**os.environ, "PATH": folder + ":" + os.environ["PATH"]}, start_new_session=True)
        said, address = "", None
        try:
            for line in p.stdout:
                said += line
                if address := re.match(r"http://127\.0\.0\.1:(\d+)", line):
                    break
            assert address, said
            port = int(address[1])
            assert port != 8080, said
            assert "port 8080 is taken, this is the next free one" in said, said
            end = time.monotonic() + 30
            while True:
                try:
                    assert b"Echelon" in urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).read()
                    break
                except OSError:
                    assert time.monotonic() < end
                    time.sleep(0.05)
        finally:
            p.send_signal(signal.SIGINT)  # the script has become the server
            said += p.stdout.read()
            p.stdout.close()
            code = p.wait(40)
        assert code == 0, (code, said)
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
