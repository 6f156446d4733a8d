#!/usr/bin/env python3
"""Requests whose end two readers could see in different places: each is refused and the connection closed.

The table of what the guard refuses is in tests/unit/server/test_guard.c; here the same kinds go over a
socket, whole and byte by byte, and the answer is an error body like any other.
"""
import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import socket
import ssl
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import Server
from test_operations import certificate, folder

SERVER = None
BODY = b'{"prompt":"a","max_tokens":1}'
N = str(len(BODY)).encode()
POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
LENGTH = b"Content-Length: " + N + b"\r\n"
CHUNK = b"%x\r\n" % len(BODY) + BODY + b"\r\n"

REFUSED = {
    "two lengths": (400, POST + LENGTH + LENGTH + b"\r\n" + BODY),
    "length and coding": (400, POST + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n" + BODY),
    "x, chunked": (400, POST + b"Transfer-Encoding: x, chunked\r\n\r\n0\r\n\r\n"),
    "folded": (400, POST + b"X-A: b\r\n c\r\n" + LENGTH + b"\r\n" + BODY),
    "bare LF": (400, POST + b"X-A: b\n" + LENGTH + b"\r\n" + BODY),
    "space before the colon": (400, POST + b"Content-Length : " + N + b"\r\n\r\n" + BODY),
    "+5": (400, POST + b"Content-Length: +5\r\n\r\n{}   "),
    "0x5": (400, POST + b"Content-Length: 0x5\r\n\r\n{}   "),
    "NUL in a value": (400, POST + b"X: a\0b\r\n" + LENGTH + b"\r\n" + BODY),
    "no version": (400, b"GET /health\r\n\r\n"),
    "two spaces": (400, b"GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "no host": (400, b"GET /health HTTP/1.1\r\n\r\n"),
    "HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "TLS": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "a large header": (431, POST + b"X: " + b"a" * 40000 + b"\r\n\r\n"),
    "many headers": (431, POST + b"X: a\r\n" * 101 + b"\r\n"),
    "a long target": (414, b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "a chunk of 2^64": (413, CHUNKED + b"ffffffffffffffff\r\n"),
    "a chunk of -1": (400, CHUNKED + b"-1\r\n"),
    "a chunk that ends late": (400, CHUNKED + b"1\r\n" + BODY + b"\r\n0\r\n\r\n"),
    "LF after a chunk": (400, CHUNKED + CHUNK[:-2] + b"\n0\r\n\r\n"),
    "a trailer with a length": (400, CHUNKED + CHUNK + b"0\r\nContent-Length: 5\r\n\r\n"),
}
ACCEPTED = {
    "length": POST + LENGTH + b"Connection: close\r\n\r\n" + BODY,
    "chunks": POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + CHUNK + b"0\r\nX: y\r\n\r\n",
    "an empty line first": b"\r\nGET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "HTTP/1.0": b"GET /health HTTP/1.0\r\n\r\n",
    "an absolute target": b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "its own host, a port, a query": b"GET HTTP://127.0.0.1:80/v1/models?a=b HTTP/1.1\r\nHost: elsewhere\r\nConnection: close\r\n\r\n",
    "https": b"GET https://localhost/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "an absolute POST": POST.replace(b" /", b" http://localhost/") + LENGTH + b"Connection: close\r\n\r\n" + BODY,
}


def setUpModule():
    global SERVER
    SERVER = Server()


def tearDownModule():
    assert SERVER.stop() == 0


def exchange(data, step=None, seconds=20):
    """Sends, then reads until the server closes; an answer may come before everything is sent."""
    with socket.create_connection(("127.0.0.1", SERVER.port), timeout=seconds) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for i in range(0, len(data), step or len(data)):
                s.sendall(data[i:i + (step or len(data))])
        except OSError:
            pass
        out = b""
        while chunk := s.recv(65536):
            out += chunk
        return out


def statuses(out):
    return [int(x) for x in re.findall(rb"HTTP/1\.1 (\d+) ", out)]


class Framing(unittest.TestCase):
    def check_refused(self, name, out, want):
        self.assertEqual(statuses(out), [want], (name, out[:200]))
        head, _, body = out.partition(b"\r\n\r\n")
        error = json.loads(body)["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertRegex(head, rb"(?i)x-request-id: \w{24}")
        self.assertRegex(head, rb"(?i)connection: close")

    def test_refused_and_closed(self):
        for name, (want, data) in REFUSED.items():
            for step in (None, 1) if len(data) < 1000 else (None, 777):
                with self.subTest(name=name, step=step):
                    self.check_refused(name, exchange(data, step), want)

    def test_sound_requests_pass_in_every_cut(self):
        for name, data in ACCEPTED.items():
            for step in (None, 1, 7):
                with self.subTest(name=name, step=step):
                    self.assertEqual(statuses(exchange(data, step)), [200])

    def test_refusals_come_after_the_answers_before_them(self):
        good = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        self.assertEqual(statuses(exchange(good + good + REFUSED["folded"][1])), [200, 200, 400])
        self.assertEqual(statuses(exchange(POST + LENGTH + b"\r\n" + BODY + REFUSED["bare LF"][1])), [200, 400])

    def test_refusals_of_bodies_come_after_the_answers_before_them(self):
        """Also where everything is there at once; but an answer that came before the body is the last word."""
        first = {"GET": GET, "POST": POST + LENGTH + b"\r\n" + BODY, "stream": HalfClosed().request(max_tokens=30, stream=True)}
        bad = {"a chunk's size": (CHUNKED + b"zz\r\n", 400), "a chunk's end": (CHUNKED + b"1\r\nxy\r\n", 400),
               "a chunk that is too large": (CHUNKED + b"ffffffff\r\n", 413), "a trailer": (CHUNKED + b"1\r\n \r\n0\r\nHost: x\r\n", 400)}
        for before in first.values():
            for name, (data, want) in bad.items():
                for n in (1, 2):
                    with self.subTest(name=name, n=n):
                        out = exchange(before * n + data)
                        self.assertEqual(statuses(out), [200] * n + [want], out[:300])
        early = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        self.assertEqual(statuses(exchange(GET + early + b"1\r\n \r\nzz\r\n")), [200, 404])

    def test_an_absolute_target_reaches_what_its_path_does(self):
        """The host it names is the one that must be local without a key, whatever the header says."""
        for want, target in ((403, b"http://elsewhere/health"), (403, b"http://user@localhost/health"), (404, b"http://localhost/nothing"),
                             (404, b"http:///health"), (404, b"ftp://localhost/health"), (405, b"http://localhost/v1/completions")):
            with self.subTest(target=target):
                out = exchange(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                self.assertEqual(statuses(out), [want], out)
        page = [exchange(b"GET " + t + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").partition(b"\r\n\r\n")[2]
                for t in (b"/", b"http://localhost", b"http://localhost/")]
        self.assertTrue(page[0] and page[0] == page[1] == page[2])

    def test_expect_then_a_bad_chunk(self):
        with socket.create_connection(("127.0.0.1", SERVER.port), timeout=10) as s:
            s.sendall(POST + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.assertEqual(statuses(s.recv(1000)), [100])
            s.sendall(b"zz\r\n")
            out = b""
            while chunk := s.recv(1000):
                out += chunk
            self.assertEqual(statuses(out), [400])

    def test_a_body_that_is_too_large_is_answered_while_it_comes(self):
        out = exchange(POST + b"Content-Length: 99999999999\r\n\r\n" + b" " * 3000000)
        self.assertEqual(statuses(out), [413])

    def test_a_large_body_passes(self):
        status, out = SERVER.post("/v1/completions", {"prompt": "a", "max_tokens": 1, "metadata": "x" * 5000000})
        self.assertEqual(status, 200, out)


class HalfClosed(unittest.TestCase):
    def request(self, **fields):
        body = json.dumps({"prompt": "a", "ignore_eos": True, "temperature": 0, **fields}).encode()
        return POST + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def test_a_client_that_only_stops_sending_gets_its_answer(self):
        whole = SERVER.post("/v1/completions", {"prompt": "a", "ignore_eos": True, "temperature": 0, "max_tokens": 60})[1]
        for stream in (False, True):
            for pause in (0, 0.002, 0.02):
                with socket.create_connection(("127.0.0.1", SERVER.port), timeout=20) as s:
                    s.sendall(self.request(max_tokens=60, stream=stream))
                    time.sleep(pause)
                    s.shutdown(socket.SHUT_WR)
                    out = b""
                    while chunk := s.recv(65536):
                        out += chunk
                if stream:
                    self.assertIn(b"data: [DONE]", out)
                    frames = [json.loads(x) for x in re.findall(rb"^data: (\{.*)$", out, re.M)]
                    text = "".join(f["choices"][0]["text"] for f in frames)
                else:
                    text = json.loads(out.rpartition(b"\r\n\r\n")[2])["choices"][0]["text"]
                self.assertEqual(text, whole["choices"][0]["text"])

    def test_a_client_that_leaves_is_noticed(self):
        for stream in (False, True):
            for first in ("close", "shutdown", "reset"):
                s = socket.create_connection(("127.0.0.1", SERVER.port), timeout=20)
                s.sendall(self.request(max_tokens=4000, stream=stream))
                self.assertTrue(SERVER.wait_metric("num_requests_running", 1))
                if first == "shutdown":
                    s.shutdown(socket.SHUT_WR)
                    time.sleep(0.05)
                if first == "reset":
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                s.close()
                self.assertTrue(SERVER.wait_metric("num_requests_running", 0, 2), (stream, first))


def drip(connect, starts, piece, pause=0.1, seconds=15):
    """Sends one start after the answer to the one before, then a piece again and again until it is hung up: (what came, after how long)."""
    begin = time.monotonic()
    with connect() as s:
        s.settimeout(pause)
        out = b""
        for start in starts:
            before = len(out)
            s.sendall(start)
            while start is not starts[-1] and len(out) == before:
                with contextlib.suppress(TimeoutError):
                    out += s.recv(65536)
        while time.monotonic() - begin < seconds:
            try:
                while chunk := s.recv(65536):
                    out += chunk
                break
            except TimeoutError:
                if b"HTTP/1.1 4" not in out:
                    s.sendall(piece)
        return out, time.monotonic() - begin


GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
WIDE = POST + b"Content-Length: 100000\r\n\r\n"
# What a client may begin and never finish: what it sends at once, and then for ever.
TRICKLES = {
    "a request line": (b"GET /", b"a"),
    "an empty line": (b"\r\n", b""),
    "a header": (POST + b"X: ", b"a"),
    "headers": (POST, b"X: y\r\n"),
    "a head that rests": (POST, b""),
    "a body": (WIDE, b" "),
    "a body in pieces": (WIDE, b" " * 20),
    "a body that rests": (WIDE + BODY, b""),
    "a body that came fast at first": (POST + b"Content-Length: 5000000\r\n\r\n" + b" " * 3000000, b" "),
    "a body after a 100": (POST + b"Expect: 100-continue\r\nContent-Length: 9000\r\n\r\n", b""),
    "chunks": (CHUNKED, b"1\r\n \r\n"),
    "chunks that come whole": (CHUNKED + CHUNK, b""),
    "one chunk": (CHUNKED + b"fffff\r\n", b" "),
    "a chunk's line": (CHUNKED + b"1;", b"a"),
    "a chunk's end": (CHUNKED + b"1\r\n \r", b""),
    "trailers": (CHUNKED + CHUNK + b"0\r\n", b"X: y\r\n"),
    "a trailer": (CHUNKED + CHUNK + b"0\r\nX: ", b"y"),
    "a second head": (GET, b"GET /health", b"a"),
    "a second body": (GET, WIDE, b" "),
    "a head after a body": (POST + LENGTH + b"\r\n" + BODY, POST, b"X: y\r\n"),
    "at once: a second head": (GET + b"GET /health", b"a"),
    "at once: a second body": (GET + WIDE, b" "),
    "at once: a body after a body": (POST + LENGTH + b"\r\n" + BODY + WIDE, b""),
    "at once: a third body": (GET + GET + WIDE, b" "),
    "at once: chunks": (GET + CHUNKED, b"1\r\n \r\n"),
}


class Pace(unittest.TestCase):
    """A client that sends too slowly, whatever it sends, is told 408 and let go; one that is only slow is served."""
    def check_trickles(self, connect):
        with concurrent.futures.ThreadPoolExecutor(len(TRICKLES)) as pool:
            runs = {name: pool.submit(drip, connect, what[:-1], what[-1]) for name, what in TRICKLES.items()}
        for name, run in runs.items():
            with self.subTest(name=name):
                out, seconds = run.result()
                before = [100] if "Expect" in repr(TRICKLES[name]) else [200] * (len(TRICKLES[name]) - 2)
                if name.startswith("at once"):
                    before = [200] * (TRICKLES[name][0].count(b"HTTP/1.1\r\n") - (name != "at once: a second head"))
                self.assertEqual(statuses(out), before + [408], (name, out[:300]))
                self.assertEqual(json.loads(out.rpartition(b"\r\n\r\n")[2])["error"]["code"], "request_timeout")
                self.assertTrue(0.8 < seconds < 8, (name, seconds))

    def test_what_trickles_is_ended(self):
        s = Server("--header-timeout", "1")
        try:
            self.check_trickles(lambda: socket.create_connection(("127.0.0.1", s.port), timeout=10))
            self.assertTrue(s.wait_metric("num_requests_running", 0))
        finally:
            self.assertEqual(s.stop(), 0)

    @unittest.skipUnless(shutil.which("openssl"), "openssl makes the certificate")
    def test_what_trickles_through_tls_is_ended(self):
        with folder() as d:
            cert, key = certificate(d, "a")
            context = ssl.create_default_context(cafile=cert)
            s = Server("--header-timeout", "1", "--tls-cert", cert, "--tls-key", key, wait=False)

            def connect():
                plain = socket.create_connection(("127.0.0.1", s.port), timeout=10)
                return context.wrap_socket(plain, server_hostname="localhost")
            try:
                end = time.monotonic() + 60
                while statuses(drip(connect, [ACCEPTED["HTTP/1.0"]], b"")[0]) != [200]:
                    self.assertLess(time.monotonic(), end)
                self.check_trickles(connect)
                # Shaking hands: nothing can be said, so it is hung up. A record of which the rest never comes is no byte.
                for start, piece in ((b"\x16\x03\x01\x02\x00", b"\x01"), (b"", b"")):
                    begin = time.monotonic()
                    with self.subTest(start=start), contextlib.suppress(ConnectionError):
                        drip(lambda: socket.create_connection(("127.0.0.1", s.port), timeout=10), [start], piece)
                    self.assertLess(time.monotonic() - begin, 8)
            finally:
                self.assertEqual(s.stop(), 0)

    def test_slow_but_honest_uploads_are_served(self):
        """Twice the least pace, for a multiple of the time that a rest may take."""
        s = Server("--header-timeout", "1")
        body = b" " * 4000 + BODY
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 50]), body[i:i + 50]) for i in range(0, len(body), 50))
        ways = [POST + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body,
                POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"]

        def upload(data):
            with socket.create_connection(("127.0.0.1", s.port), timeout=20) as c:
                for i in range(0, len(data), 100):
                    c.sendall(data[i:i + 100])
                    time.sleep(0.1)
                out = b""
                while chunk := c.recv(65536):
                    out += chunk
                return out
        try:
            with concurrent.futures.ThreadPoolExecutor(len(ways)) as pool:
                for out in pool.map(upload, ways):
                    self.assertEqual(statuses(out), [200], out)
        finally:
            self.assertEqual(s.stop(), 0)

    def test_a_request_is_not_idle(self):
        """--idle-timeout runs between requests alone: not while a body rests, nor while the client takes its answer slowly."""
        s = Server("--header-timeout", "30", "--idle-timeout", "1", "--write-timeout", "30")
        long = json.dumps({"content": "one two " * 100000}).encode()  # an answer that no buffers hold
        try:
            with socket.create_connection(("127.0.0.1", s.port), timeout=30) as rests, socket.socket() as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.settimeout(30)
                slow.connect(("127.0.0.1", s.port))
                slow.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(long) + long)
                rests.sendall(POST + LENGTH + b"\r\n" + BODY[:5])
                time.sleep(4)
                rests.sendall(BODY[5:])
                self.assertEqual(statuses(rests.recv(65536)), [200])
                out = b""
                while chunk := slow.recv(65536):  # until it is closed, a second after the answer
                    out += chunk
                self.assertGreater(len(json.loads(out.partition(b"\r\n\r\n")[2])["tokens"]), 200000)
                begin = time.monotonic()
                while rests.recv(65536):
                    pass
                self.assertLess(time.monotonic() - begin, 5)
        finally:
            self.assertEqual(s.stop(), 0)

    def test_waiting_for_the_answer_before_is_no_rest(self):
        """A second request that waits for its 100 behind an answer which takes longer than a rest may."""
        s = Server("--header-timeout", "1", "--max-running", "1", "--max-tokens", "100000")
        try:
            with socket.create_connection(("127.0.0.1", s.port), timeout=30) as first, \
                    socket.create_connection(("127.0.0.1", s.port), timeout=30) as c:
                endless = b'{"prompt":"a","max_tokens":2000,"n":32,"ignore_eos":true}'
                first.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(endless) + endless)
                self.assertTrue(s.wait_metric("num_requests_running", 1))
                c.sendall(POST + LENGTH + b"\r\n" + BODY)
                time.sleep(0.3)
                c.sendall(POST + b"Expect: 100-continue\r\nConnection: close\r\n" + LENGTH + b"\r\n")
                time.sleep(2.5)
                first.close()
                out = c.recv(65536)
                while not out.endswith(b"HTTP/1.1 100 Continue\r\n\r\n") and (chunk := c.recv(65536)):
                    out += chunk
                c.sendall(BODY)
                while chunk := c.recv(65536):
                    out += chunk
                self.assertEqual(statuses(out), [200, 100, 200], out)
        finally:
            self.assertEqual(s.stop(), 0)


class Limits(unittest.TestCase):
    def test_times(self):
        s = Server("--header-timeout", "1", "--idle-timeout", "1")
        try:
            with socket.create_connection(("127.0.0.1", s.port), timeout=10) as slow, \
                    socket.create_connection(("127.0.0.1", s.port), timeout=10) as silent:
                slow.sendall(b"GET /health HT")
                start = time.monotonic()
                self.assertEqual(statuses(slow.recv(1000)), [408])
                self.assertEqual(silent.recv(1000), b"")
                self.assertLess(time.monotonic() - start, 5)
        finally:
            s.stop()

    def test_counts(self):
        s = Server("--max-connections", "3", "--max-header-bytes", "2K")
        try:
            for _ in range(5):  # the connection that asked whether the server is ready may not be gone yet
                held = [socket.create_connection(("127.0.0.1", s.port), timeout=10) for _ in range(3)]
                time.sleep(0.1)
                if out := s.raw(b"", timeout=2):
                    break
                for c in held:
                    c.close()
                time.sleep(0.2)
            self.assertEqual(statuses(out), [503])
            self.assertIn(b"retry-after", out)
            json.loads(out.partition(b"\r\n\r\n")[2])
            for c in held:
                c.close()
            time.sleep(0.1)
            self.assertEqual(statuses(s.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 2100 + b"\r\n\r\n")), [431])
        finally:
            self.assertEqual(s.stop(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=1)
