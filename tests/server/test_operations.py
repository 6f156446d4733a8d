#!/usr/bin/env python3
"""What an operator of the server relies on: sockets and TLS, keys and their limits, the audit log, metrics, contrib/."""
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import ECHELON, Server

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SHORT = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 5}
LONG = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True}


@contextlib.contextmanager
def serving(*flags, **kw):
    s = Server(*flags, **kw)
    try:
        yield s
    finally:
        code = s.stop()
        assert code == 0, code


@contextlib.contextmanager
def folder():
    with tempfile.TemporaryDirectory(prefix="ech-") as d:
        yield d


def refused(*flags):
    """The one line that a server which can't start says."""
    r = subprocess.run([ECHELON, "serve", *flags], capture_output=True, text=True, timeout=30)
    assert r.returncode != 0, r
    return r.stderr


def certificate(d, name, names="DNS:localhost,IP:127.0.0.1"):
    cert, key = os.path.join(d, name + ".pem"), os.path.join(d, name + ".key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=" + names, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=20)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(self.path)


def get_open(connection, path, headers=None):
    connection.request("GET", path, headers=headers or {})
    r = connection.getresponse()
    return r.status, r.read()


def get(connection, path, headers=None):
    try:
        return get_open(connection, path, headers)
    finally:
        connection.close()


@unittest.skipUnless(shutil.which("openssl"), "openssl makes the certificate")
class Tls(unittest.TestCase):
    def test_answers_streams_and_half_closed_clients(self):
        with folder() as d:
            cert, key = certificate(d, "a")
            context = ssl.create_default_context(cafile=cert)
            flags = ("--tls-cert", cert, "--tls-key", key, "--unix", os.path.join(d, "s"))
            with serving(*flags, wait=False) as s:
                end = time.monotonic() + 30
                while get(http.client.HTTPSConnection("localhost", s.port, context=context), "/health")[0] != 200:
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.02)
                c = http.client.HTTPSConnection("localhost", s.port, context=context)
                for stream in (False, True, False):
                    c.request("POST", "/v1/completions", json.dumps({**SHORT, "stream": stream}).encode())
                    r = c.getresponse()
                    self.assertEqual(r.status, 200)
                    self.assertIn(b"[DONE]" if stream else b"choices", r.read())
                c.request("POST", "/v1/completions", json.dumps({**SHORT, "metadata": "x" * 3000000}).encode())
                self.assertEqual(c.getresponse().status, 200)
                c.close()
                with context.wrap_socket(socket.create_connection(("localhost", s.port)), server_hostname="localhost") as t:
                    t.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\n\r\n")
                    out = b""
                    while chunk := t.recv(4096):
                        out += chunk
                    self.assertTrue(out.startswith(b"HTTP/1.1 400"), out)
                # The Unix socket is this machine's own: no TLS there. Plain bytes to TLS are hung up on.
                self.assertEqual(get(UnixConnection(os.path.join(d, "s")), "/health")[0], 200)
                self.assertNotIn(b"200", s.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"))
                with self.assertRaises(ssl.SSLError):
                    get(http.client.HTTPSConnection("localhost", s.port, context=ssl.create_default_context()), "/health")

    def test_a_new_certificate_on_hup(self):
        with folder() as d:
            cert, key = certificate(d, "a")
            first, second = (certificate(d, name) for name in "bc")

            def put(pair):
                for here, there in zip(pair, (cert, key)):
                    shutil.copyfile(here, there)

            def shown(port):
                return ssl.get_server_certificate(("localhost", port))

            def pem(path):
                with open(path, encoding="ascii") as f:
                    return f.read()

            def hup(s, until):
                s.process.send_signal(signal.SIGHUP)
                end = time.monotonic() + 10
                while not until():
                    self.assertLess(time.monotonic(), end, s.stderr())
                    time.sleep(0.02)
            put(first)
            keys = os.path.join(d, "keys")
            with open(keys, "w", encoding="ascii") as f:
                f.write("a sk-a\n")
            with serving("--tls-cert", cert, "--tls-key", key, "--api-key-file", keys, wait=False) as s:
                old = http.client.HTTPSConnection("localhost", s.port, context=ssl.create_default_context(cafile=first[0]), timeout=30)
                while get_open(old, "/health")[0] != 200:
                    time.sleep(0.02)
                self.assertEqual(shown(s.port), pem(first[0]))
                old.request("POST", "/v1/completions", json.dumps({**LONG, "max_tokens": 1500, "stream": True}).encode(), bearer("sk-a"))
                stream = old.getresponse()
                stream.read(10)
                put(second)
                hup(s, lambda: shown(s.port) == pem(second[0]))
                # Each fault leaves what was there, is one line, and doesn't keep the other file from its reload.
                for at, (bad, words) in enumerate((((first[0], second[1]), "not the key"), ((first[1], first[1]), "no PEM certificate"))):
                    put(bad)
                    with open(keys, "w", encoding="ascii") as f:
                        f.write(f"a sk-{at}\n")
                    hup(s, lambda: words in s.stderr())
                    self.assertEqual(s.stderr().count("\n"), at + 1, s.stderr())
                    self.assertEqual(shown(s.port), pem(second[0]))
                    new = http.client.HTTPSConnection("localhost", s.port, context=ssl.create_default_context(cafile=second[0]))
                    self.assertEqual(get(new, "/v1/models", bearer(f"sk-{at}"))[0], 200)
                put(first)
                with open(keys, "w", encoding="ascii") as f:
                    f.write("nonsense here too\n")
                hup(s, lambda: "line 1" in s.stderr())
                self.assertEqual(shown(s.port), pem(first[0]))
                # The connection that was there goes on with the certificate that it began with.
                self.assertTrue(stream.read().endswith(b"data: [DONE]\n\n"))
                self.assertEqual(get(old, "/health")[0], 200)

    def test_what_is_wrong_is_one_line(self):
        with folder() as d:
            cert, key = certificate(d, "a")
            _, other = certificate(d, "b")
            for flags, words in ((("--tls-cert", cert), "go together"), (("--tls-cert", "/nowhere.pem", "--tls-key", key), "/nowhere.pem"),
                                 (("--tls-cert", cert, "--tls-key", other), "not the key"), (("--tls-cert", key, "--tls-key", key), "no PEM certificate"),
                                 (("--tls-cert", cert, "--tls-key", cert), "no PEM private key")):
                text = refused("--port", "0", *flags)
                self.assertIn(words, text)
                self.assertEqual(text.count("\n"), 1, text)


def chat(*flags, env=None):
    """`echelon chat` with one question; what it shows."""
    r = subprocess.run([ECHELON, "chat", "--temperature", "0", "--max-tokens", "5", *flags], input="hi\n", capture_output=True, text=True, timeout=60,
                       env={**os.environ, **(env or {})})
    return r.stdout + r.stderr


@unittest.skipUnless(shutil.which("openssl"), "openssl makes the certificate")
class TlsClients(unittest.TestCase):
    """`echelon chat` and `bench serve` as clients of a server that speaks TLS."""
    def test_who_is_trusted(self):
        with folder() as d:
            cert, key = certificate(d, "a", "DNS:elsewhere.example,IP:127.0.0.1")
            other, _ = certificate(d, "b")
            with serving("--tls-cert", cert, "--tls-key", key, wait=False) as s:
                url = f"https://127.0.0.1:{s.port}/v1"
                context = ssl.create_default_context(cafile=cert)
                while get(http.client.HTTPSConnection("127.0.0.1", s.port, context=context), "/health")[0] != 200:
                    time.sleep(0.02)
                right = chat("--url", url, "--ca-file", cert)
                self.assertNotIn("(", right)
                self.assertGreater(len(right.strip()), 3)
                self.assertEqual(chat("--url", url, "--insecure"), right)
                for flags in ((), ("--ca-file", other)):
                    self.assertIn("certificate is not trusted", chat("--url", url, *flags))
                # Trusted, but under another name.
                self.assertIn("certificate is not trusted", chat("--url", f"https://localhost:{s.port}/v1", "--ca-file", cert))
                for file in ("/nowhere.pem", key):
                    self.assertIn(file, chat("--url", url, "--ca-file", file))
                self.assertIn("(", chat("--url", url.replace("https", "http")))  # plain to TLS: an error that is shown
                self.assertIn("http:// or https://", chat("--url", "ftp://localhost"))
                r = subprocess.run([ECHELON, "bench", "serve", "--url", url, "--ca-file", cert, "-n", "12", "-c", "4", "--random-input-len", "900",
                                    "--random-output-len", "20", "--json"], capture_output=True, text=True, timeout=60, check=True)
                result = json.loads(r.stdout)
                self.assertEqual((result["completed"], result["total_output_tokens"]), (12, 240))
                r = subprocess.run([ECHELON, "bench", "serve", "--url", url, "-n", "2", "--json"], capture_output=True, text=True, timeout=60)
                self.assertIn("not trusted", r.stderr)
                self.assertNotEqual(r.returncode, 0)

    def test_addresses_with_brackets(self):
        with serving("--host", "::1", wait=False) as s:
            self.assertEqual(s.url, f"http://[::1]:{s.port}")
            end = time.monotonic() + 30
            while "(HTTP 503" in (text := chat("--url", s.url + "/v1")):
                self.assertLess(time.monotonic(), end)
            self.assertNotIn("(", text)
            for bad in ("http://", "http://:80", "http://[::1", "http://[::1]x:80", "http://a:b", "http://a:123456789"):
                self.assertIn("reading the URL", chat("--url", bad))


class Sockets(unittest.TestCase):
    def test_several_listeners(self):
        with folder() as d, socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            free.close()
            path = os.path.join(d, "echelon.sock")
            with serving("--unix", path, "--listen", f"127.0.0.1:{port}") as s:
                for c in (http.client.HTTPConnection("127.0.0.1", s.port), http.client.HTTPConnection("127.0.0.1", port), UnixConnection(path)):
                    self.assertEqual(get(c, "/health")[0], 200)
                    c.close()
                self.assertIn("is taken", refused("--port", str(s.port)))
                self.assertIn(path, refused("--port", "0", "--unix", path))
                self.assertEqual(get(UnixConnection(path), "/health")[0], 200)
            self.assertFalse(os.path.exists(path))
            # What a killed server left is replaced.
            left = socket.socket(socket.AF_UNIX)
            left.bind(path)
            left.close()
            with serving("--unix", path):
                self.assertEqual(get(UnixConnection(path), "/health")[0], 200)

    def test_a_path_that_is_no_place_for_a_socket(self):
        with folder() as d:
            path = os.path.join(d, "notes")
            with open(path, "w", encoding="utf-8") as f:
                f.write("mine")
            os.symlink(path, os.path.join(d, "link"))
            for bad in (path, os.path.join(d, "link"), d, os.path.join(d, "x" * 200), os.path.join(d, "nowhere", "s"), ""):
                self.assertIn("binding " + bad, refused("--port", "0", "--unix", bad).replace("'", ""))
            with open(path, encoding="utf-8") as f:
                self.assertEqual(f.read(), "mine")
            self.assertTrue(os.path.islink(os.path.join(d, "link")))

    def test_addresses_that_are_none(self):
        for address in ("8080", "localhost", "a:b", "::1:80", "[::1]", "127.0.0.1:99999", "127.0.0.1:"):
            self.assertIn("--listen", refused("--port", "0", "--listen", address))
        self.assertIn("--api-key-file", refused("--port", "0", "--listen", ":0"))

    def test_inherited_socket(self):
        with folder() as d:
            tcp, unix = socket.socket(), socket.socket(socket.AF_UNIX)
            tcp.bind(("127.0.0.1", 0))
            path = os.path.join(d, "s")
            unix.bind(path)
            for x in (tcp, unix):
                x.listen()

            def hand_over():
                os.dup2(tcp.fileno(), 3)
                os.dup2(unix.fileno(), 4)
                os.environ["LISTEN_FDS"] = "2"
            code = "import os,sys; os.environ['LISTEN_PID']=str(os.getpid()); os.execv(sys.argv[1], sys.argv[1:])"
            p = subprocess.Popen([sys.executable, "-c", code, ECHELON, "serve", "--inherit"], stdout=subprocess.PIPE, text=True,
                                 preexec_fn=hand_over, pass_fds=(3, 4), env={**os.environ, "LISTEN_FDS": "2"})
            try:
                self.assertRegex(p.stdout.readline(), f":{tcp.getsockname()[1]}$")
                self.assertEqual(get(http.client.HTTPConnection("127.0.0.1", tcp.getsockname()[1]), "/health/live")[0], 200)
                self.assertEqual(get(UnixConnection(path), "/health/live")[0], 200)
            finally:
                p.terminate()
                self.assertEqual(p.wait(40), 0)
                p.stdout.close()
                tcp.close()
                unix.close()
            self.assertTrue(os.path.exists(path))  # the socket's file is its owner's

    def test_the_service_manager_is_told(self):
        with folder() as d:
            box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            box.bind(os.path.join(d, "notify"))
            box.settimeout(30)
            with serving(env={"NOTIFY_SOCKET": os.path.join(d, "notify")}) as s:
                self.assertIn(b"READY=1", box.recv(1000))
                s.process.send_signal(signal.SIGHUP)
                self.assertIn(b"RELOADING=1", box.recv(1000))
                self.assertIn(b"READY=1", box.recv(1000))
            self.assertIn(b"STOPPING=1", box.recv(1000))
            box.close()


def hang_up(connection):
    connection.sock.close()
    connection.close()


def bearer(secret):
    return {"Authorization": "Bearer " + secret}


class Cors(unittest.TestCase):
    def test_a_page_of_the_allowed_origin_may_use_an_sdk(self):
        ask = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
        sdk = "authorization,content-type,x-stainless-os,x-stainless-retry-count,anthropic-version"
        with serving("--cors-origin", "https://a.example", "--api-key", "sesame") as s:
            status, headers, body = s.call("OPTIONS", "/v1/chat/completions", headers={**ask, "Access-Control-Request-Headers": sdk})
            self.assertEqual((status, body, headers["access-control-allow-origin"], headers["access-control-allow-headers"]), (204, b"", "https://a.example", sdk))
            self.assertIn("POST", headers["access-control-allow-methods"])
            for strange in ("x: y", "a=b", "<b>", ""):  # nothing but names comes back
                headers = s.call("OPTIONS", "/v1/models", headers={**ask, "Access-Control-Request-Headers": strange})[1]
                self.assertEqual(headers["access-control-allow-headers"], "authorization, content-type, x-api-key")
            for path in ("/v1/models", "/nope"):
                headers = s.call("GET", path, headers={"Origin": "https://a.example"})[1]
                self.assertEqual(headers["access-control-allow-origin"], "https://a.example")
                self.assertIn("retry-after", headers["access-control-expose-headers"])
        with serving() as s:
            status, headers, _ = s.call("OPTIONS", "/v1/chat/completions", headers={**ask, "Origin": f"http://localhost:{s.port}"})
            self.assertEqual((status, [h for h in headers if h.startswith("access-control")]), (204, []))


class Keys(unittest.TestCase):
    def test_limits_and_reload(self):
        with folder() as d:
            path = os.path.join(d, "keys")

            def write(text):
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
            write("# keys\nalice sk-a max-requests=2\nbob sk-b requests-per-minute=3\n\ncarol sk-c tokens-per-minute=30 weight=5\nsk-d\n")
            with serving("--api-key-file", path) as s:
                ask = lambda key, **kw: s.call("POST", "/v1/completions", {**SHORT, **kw}, headers=bearer(key))
                begin = time.monotonic()
                is_late = lambda: time.monotonic() - begin > 18  # bob has a request more after 20 s: a machine as slow as that sees no refusal
                self.assertEqual([ask(k)[0] for k in ("sk-a", "sk-b", "sk-c", "sk-d", "sk-e")], [200, 200, 200, 200, 401])

                # At the same time: two run, the third is told to wait, and may come when one is done.
                held = []
                for _ in range(2):
                    c = s.connect()
                    c.request("POST", "/v1/completions", json.dumps({**LONG, "stream": True}).encode(), bearer("sk-a"))
                    c.getresponse().read(10)
                    held.append(c)
                status, headers, body = ask("sk-a")
                error = json.loads(body)["error"]
                self.assertEqual((status, error["code"], error["type"]), (429, "rate_limit_exceeded", "rate_limit_error"))
                self.assertIn("max-requests", error["message"])
                self.assertGreaterEqual(int(headers["retry-after"]), 1)
                hang_up(held[0])
                end = time.monotonic() + 5
                while ask("sk-a")[0] != 200:
                    self.assertLess(time.monotonic(), end)

                # In a minute.
                got = [ask("sk-b")[0] for _ in range(3)]
                status, headers, body = ask("sk-b")
                self.assertTrue(is_late() or got == [200, 200, 429], got)
                self.assertTrue(is_late() or 1 <= int(headers["retry-after"]) <= 21, headers)

                # Tokens are counted when they are known: one request may overdraw, the next waits.
                while (answer := ask("sk-c", max_tokens=20))[0] == 200:
                    pass
                self.assertIn(b"tokens-per-minute", answer[2])
                self.assertTrue(1 <= int(answer[1]["retry-after"]) <= 120)

                # A bad file changes nothing; a good one counts at once, and what was used stays used.
                write("alice sk-a max-requests=lots\n")
                s.process.send_signal(signal.SIGHUP)
                time.sleep(0.3)
                self.assertIn("line 1", s.stderr())
                self.assertEqual(ask("sk-a")[0], 200)
                write("alice sk-a2\nbob sk-b requests-per-minute=3\n")
                s.process.send_signal(signal.SIGHUP)
                end = time.monotonic() + 5
                while ask("sk-a2")[0] != 200:
                    self.assertLess(time.monotonic(), end)
                got = [ask(k)[0] for k in ("sk-a", "sk-b", "sk-c")]
                self.assertTrue(got == [401, 429, 401] or (is_late() and got == [401, 200, 401]), got)
                self.assertEqual(s.get("/requests", headers=bearer("sk-a2"))[0], 200)
                hang_up(held[1])

    def test_a_busy_key_does_not_starve_another(self):
        with folder() as d:
            path = os.path.join(d, "keys")
            with open(path, "w", encoding="utf-8") as f:
                f.write("many sk-m\nfew sk-f\n")
            with serving("--api-key-file", path, "--max-running", "2") as s:
                done = []

                def many():
                    s.call("POST", "/v1/completions", {**LONG, "max_tokens": 300}, headers=bearer("sk-m"))
                    done.append(time.monotonic())
                threads = [threading.Thread(target=many) for _ in range(12)]
                for t in threads:
                    t.start()
                while s.call("GET", "/requests", headers=bearer("sk-f"))[2].count(b'"state"') < 12:
                    time.sleep(0.01)
                self.assertEqual(s.call("POST", "/v1/completions", SHORT, headers=bearer("sk-f"))[0], 200)
                at = time.monotonic()
                for t in threads:
                    t.join()
                self.assertLess(sum(x < at for x in done), 6)

    def test_priority_of_a_key(self):
        with folder() as d:
            path = os.path.join(d, "keys")
            with open(path, "w", encoding="utf-8") as f:
                f.write("batch sk-b priority=10\nchat sk-c\n")
            with serving("--api-key-file", path, "--max-running", "1") as s:
                order = []

                def run(name, key, priority):
                    s.call("POST", "/v1/completions", {**SHORT, "max_tokens": 200, "ignore_eos": True, "priority": priority}, headers=bearer(key))
                    order.append(name)
                threads = []
                for name, key, priority in (("first", "sk-b", 0), ("batch", "sk-b", -100), ("chat", "sk-c", 5)):
                    threads.append(threading.Thread(target=run, args=(name, key, priority)))
                    threads[-1].start()
                    while s.call("GET", "/requests", headers=bearer("sk-c"))[2].count(b'"state"') < len(threads):
                        time.sleep(0.005)
                for t in threads:
                    t.join()
                self.assertLess(order.index("chat"), order.index("batch"))

    def test_files_that_are_wrong(self):
        with folder() as d:
            path = os.path.join(d, "keys")
            for text, words in (("", "no key"), ("# nothing\n", "no key"), ("".join(f"n sk-{i}\n" for i in range(4097)), "line 4097: more than 4096"), ("a b c=1\n", "line 1"), ("a b\nc d max-requests=0\n", "line 2"), ("a b max-requests\n", "max-requests")):
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
                self.assertIn(words, refused("--port", "0", "--api-key-file", path))
            self.assertIn("/nowhere", refused("--port", "0", "--api-key-file", "/nowhere"))

    def test_no_key_that_is_shorter_than_it_looks(self):
        """An empty key, or one that ends at a zero byte, would let in who sends nothing, or one letter."""
        for bad in ("", " ", "a b", "a\n", "k\u00e9y"):
            self.assertIn("reading --api-key", refused("--port", "0", "--api-key", bad))
        with folder() as d:
            path = os.path.join(d, "keys")
            def write(data):
                with open(path, "wb") as f:
                    f.write(data)
            for bad in (b"\0\0", "alice sk-secret\n".encode("utf-16-le"), "sk-secret\n".encode("utf-16"), b"alice sk-\0secret\n", b"al\0ice sk-secret\n", b"alice \x01\n",
                        b"alice \xc3\xa9\n", b"# good\nbob sk-b\nalice \x7f\n"):
                write(bad)
                self.assertIn("a key must be", refused("--port", "0", "--api-key-file", path), bad)
            write(b"\xef\xbb\xbf# secret\r\nalice sk-a\r\n")  # as some editors save it
            with serving("--api-key-file", path) as s:
                status = lambda key: s.call("GET", "/v1/models", headers=bearer(key))[0]
                self.assertEqual((status("sk-a"), status("secret"), status(""), status("#")), (200, 401, 401, 401))
                write(b"s\0k\0")
                s.process.send_signal(signal.SIGHUP)
                time.sleep(0.3)
                self.assertEqual((status("sk-a"), status("s")), (200, 401))


class Audit(unittest.TestCase):
    PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    def lines(self, path, n):
        end = time.monotonic() + 5
        while time.monotonic() < end:
            with open(path, encoding="utf-8") as f:
                lines = [json.loads(x) for x in f]
            if len(lines) >= n:
                return lines
            time.sleep(0.02)
        self.fail(lines)

    def test_a_line_for_each_request(self):
        with folder() as d:
            path, keys, trace = (os.path.join(d, x) for x in ("audit", "keys", "trace"))
            with open(keys, "w", encoding="utf-8") as f:
                f.write('al"ice sk-a\n')
            with serving("--audit", path, "--api-key-file", keys, "--trace", trace) as s:
                before = len(self.lines(path, 1))
                status, headers, _ = s.call("POST", "/v1/completions", SHORT, headers={**bearer("sk-a"), "traceparent": self.PARENT, "x-request-id": "mine\t1"})
                self.assertEqual(status, 200)
                line = self.lines(path, before + 1)[before]
                self.assertEqual((line["request"], line["key"], line["route"], line["status"]), (headers["x-request-id"], 'al"ice', "/completions", 200))
                self.assertEqual((line["prompt_tokens"], line["completion_tokens"], line["finish"]), (line["prompt_tokens"], 5, "length"))
                self.assertTrue(0 <= line["queue_ms"] <= line["ttft_ms"] <= line["ms"])
                self.assertEqual((line["trace"], line["parent"], line["client_id"]), ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "mine\t1"))
                self.assertNotIn("prompt", line)
                for bad in ("00-" + "0" * 32 + "-00f067aa0ba902b7-01", "ff" + self.PARENT[2:], self.PARENT[:-1], self.PARENT.upper(), "x"):
                    s.call("GET", "/version", headers={"traceparent": bad})
                s.call("POST", "/v1/completions", SHORT)
                s.raw(b"GET / HTTP/1.1\n\n")
                rest = self.lines(path, before + 8)[before + 1:]
                self.assertTrue(all("trace" not in x for x in rest))
                self.assertEqual([x["status"] for x in rest], [200] * 5 + [401, 400])
                self.assertEqual(rest[-1]["refused"], "bad_framing")
                # A client that leaves: its tokens are counted all the same.
                c = s.connect()
                c.request("POST", "/v1/completions", json.dumps({**LONG, "stream": True}).encode(), bearer("sk-a"))
                c.getresponse().read(10)
                hang_up(c)
                line = self.lines(path, before + 9)[-1]
                self.assertEqual(line["finish"], "cancelled")
                self.assertGreater(line["completion_tokens"], 0)
            with open(trace, encoding="utf-8") as f:
                spans = [e for e in json.load(f)["traceEvents"] if e.get("cat") == "request"]
            mine = [e for e in spans if e.get("args", {}).get("traceparent") == self.PARENT]
            self.assertTrue(mine, spans[:3])
            self.assertEqual(mine[0]["args"]["request"], headers["x-request-id"])

    def test_texts_only_when_asked(self):
        with folder() as d:
            path = os.path.join(d, "audit")
            with serving("--audit", path, "--audit-text") as s:
                before = len(self.lines(path, 1))
                out = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "What is 12 + 6?"}], "temperature": 0, "max_tokens": 60})[1]
                line = self.lines(path, before + 1)[before]
                self.assertIn("12 + 6", json.dumps(line["body"]))
                self.assertEqual(line["text"], [out["choices"][0]["message"]["content"]])


SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"')


def parse_metrics(text):
    """{family: (type, [(name, labels, value)])}, with the checks that promtool makes."""
    families, current = {}, None
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in families, f"{current} twice"
            assert line.split(" ", 3)[3].strip()
            families[current] = [None, []]
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current and kind in ("counter", "gauge", "histogram"), line
            assert (kind == "counter") == name.endswith("_total") or name.endswith(":iteration_tokens_total"), line  # vLLM's name of a histogram
            families[name][0] = kind
        else:
            m = SAMPLE.match(line)
            assert m, line
            kind, samples = families[current]
            assert m[1] == current or (kind == "histogram" and m[1] in (current + "_bucket", current + "_sum", current + "_count")), line
            labels = dict(LABEL.findall(m[2] or ""))
            assert (m[1], labels) not in [(n, l) for n, l, _ in samples], f"{line} twice"
            samples.append((m[1], labels, float(m[3])))
    for name, (kind, samples) in families.items():
        assert kind and samples, name
        if kind == "histogram":
            check_histogram(name, samples)
    return families


def check_histogram(name, samples):
    buckets = [(float(l["le"]), v) for n, l, v in samples if n.endswith("_bucket")]
    assert [b for b, _ in buckets] == sorted({b for b, _ in buckets}), name
    assert all(a <= b for (_, a), (_, b) in zip(buckets, buckets[1:])), name
    assert buckets[-1][0] == float("inf"), name
    assert buckets[-1][1] == next(v for n, _, v in samples if n.endswith("_count")), name
    assert next(v for n, _, v in samples if n.endswith("_sum")) >= 0


class Metrics(unittest.TestCase):
    NAMES = ["time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
             "request_prefill_time_seconds", "request_decode_time_seconds", "request_inference_time_seconds", "request_prompt_tokens",
             "request_generation_tokens", "request_params_n", "request_params_max_tokens", "request_time_per_output_token_seconds",
             "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total", "generation_tokens_total",
             "request_success_total", "num_preemptions_total", "prefix_cache_queries_total", "prefix_cache_hits_total", "iteration_tokens_total"]

    def scrape(self, s):
        status, headers, text = s.call("GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertTrue(headers["content-type"].startswith("text/plain; version=0.0.4"))
        return parse_metrics(text.decode())

    def test_names_buckets_and_counts(self):  # TR7
        with serving("--served-model-name", 'a"b\\c') as s:
            for name in self.NAMES:
                self.assertIn("echelon:" + name, self.scrape(s))
            for n in (1, 2):
                s.post("/v1/completions", {**SHORT, "n": n, "model": 'a"b\\c', "ignore_eos": True})
            c = s.connect()
            c.request("POST", "/v1/completions", json.dumps({**LONG, "stream": True}).encode())
            c.getresponse().read(10)
            hang_up(c)
            self.assertTrue(s.wait_metric("http_connections", 1))
            m = self.scrape(s)
            count = lambda name: next(v for n, _, v in m["echelon:" + name][1] if n.endswith("_count"))
            self.assertEqual((count("time_to_first_token_seconds"), count("e2e_request_latency_seconds"), count("request_params_n")), (4, 3, 3))
            self.assertGreaterEqual(count("inter_token_latency_seconds"), 3 * 4)
            self.assertEqual({l["finished_reason"]: v for _, l, v in m["echelon:request_success_total"][1]}, {"stop": 0, "length": 3, "abort": 1, "error": 0})
            self.assertEqual({l["model_name"] for _, samples in m.values() for _, l, _ in samples}, {'a\\"b\\\\c'})
            les = [l["le"] for n, l, _ in m["echelon:time_to_first_token_seconds"][1] if n.endswith("_bucket")]
            self.assertEqual([float(x) for x in les], [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560, float("inf")])
            les = [l["le"] for n, l, _ in m["echelon:e2e_request_latency_seconds"][1] if n.endswith("_bucket")]
            self.assertEqual([float(x) for x in les][:5], [0.3, 0.5, 0.8, 1, 1.5])

    def test_tokens_of_steps(self):  # TR7
        """Each step counts once, in a bucket of vLLM's, with the tokens that it computed."""
        with serving("--no-prefix-cache", "--prefill-chunk", "64") as s:
            s.post("/v1/completions", {"prompt": [5] * 100, "max_tokens": 3, "ignore_eos": True})
            self.assertTrue(s.wait_metric("num_requests_running", 0))
            m = self.scrape(s)
            samples = m["echelon:iteration_tokens_total"][1]
            buckets = {float(l["le"]): v for n, l, v in samples if n.endswith("_bucket")}
            self.assertEqual(list(buckets), [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, float("inf")])
            total, count = (next(v for n, _, v in samples if n.endswith(end)) for end in ("_sum", "_count"))
            self.assertEqual(count, m["echelon:steps_total"][1][0][2])
            self.assertEqual((buckets[64], buckets[16384]), (count, count))  # no chunk is above 64
            self.assertGreaterEqual(buckets[1], 2)  # the second and the third token
            self.assertTrue(102 <= total <= 104, total)  # a step ahead may be computed in vain

    def test_prefix_and_dashboard(self):
        with open(os.path.join(ROOT, "contrib/grafana.json"), encoding="utf-8") as f:
            board = json.load(f)
        wanted = set()
        for panel in board["panels"]:
            for target in panel["targets"]:
                wanted |= set(re.findall(r"echelon:\w+", target["expr"]))
        with folder() as d:
            keys = os.path.join(d, "keys")
            with open(keys, "w", encoding="utf-8") as f:
                f.write("alice sk-a\n")
            with serving("--api-key-file", keys, "--metrics-prefix", "vllm") as s:
                text = s.call("GET", "/metrics", headers=bearer("sk-a"))[2].decode()
        names = {n.replace("vllm:", "echelon:", 1) for _, samples in parse_metrics(text).values() for n, _, _ in samples}
        self.assertEqual(wanted - names, set())
        self.assertGreater(len(wanted), 15)
        # Dashboards for vLLM that are older than its names of today.
        m = parse_metrics(text)
        self.assertIn("vllm:gpu_cache_usage_perc", m)
        self.assertEqual([(n.rpartition("_")[2], l.get("le"), v) for n, l, v in m["vllm:time_per_output_token_seconds"][1]],
                         [(n.rpartition("_")[2], l.get("le"), v) for n, l, v in m["vllm:inter_token_latency_seconds"][1]])


class Config(unittest.TestCase):
    def test_flags_over_environment_over_file(self):
        with folder() as d:
            path = os.path.join(d, "serve.ini")

            def write(text):
                with open(path, "w", encoding="utf-8") as f:
                    f.write(text)
            write("# a server\nmax-tokens = 7\nmax-running=3 ; three\nstrict = true\ninsecure = false\nserved-model-name = a\nserved-model-name = b\n"
                  "[other]\nnonsense = 1\n[serve]\nmax-queued = 9\n")
            for env, flags, want in (({}, (), 7), ({"ECHELON_MAX_TOKENS": "8"}, (), 8), ({"ECHELON_MAX_TOKENS": "8"}, ("--max-tokens", "9"), 9)):
                with serving("--config", path, *flags, env=env) as s:
                    props = s.get("/props")[1]
                    self.assertEqual((props["limits"]["max_tokens"], props["max_running"]), (want, 3))
                    self.assertEqual([m["id"] for m in s.get("/v1/models")[1]["data"]], ["a", "b"])
                    self.assertEqual(s.post("/v1/completions", {**SHORT, "frobnicate": 1})[0], 400)
            with serving(env={"ECHELON_CONFIG": path}) as s:
                self.assertEqual(s.get("/props")[1]["limits"]["max_tokens"], 7)
            for text, words in (("max-tokens = lots\n", "line 1: max-tokens = lots must be"), ("\nnope = 1\n", "line 2: nope = 1 is no option"), ("strict = maybe\n", "true or false"),
                                ("config = x\n", "no option"), ("max-tokens\n", "line 1")):
                write(text)
                self.assertIn(words, refused("--port", "0", "--config", path))
            self.assertIn("/nowhere", refused("--port", "0", "--config=/nowhere"))


class Contrib(unittest.TestCase):
    def test_nginx(self):
        nginx = shutil.which("nginx") or os.environ.get("ECH_NGINX")
        if not nginx or not shutil.which("openssl"):
            self.skipTest("nginx and openssl check the example")
        with folder() as d, open(os.path.join(ROOT, "contrib/nginx.conf"), encoding="utf-8") as f:
            cert, key = certificate(d, "a")
            text = f.read().replace("/etc/ssl/llm.example.org.pem", cert).replace("/etc/ssl/llm.example.org.key", key)
            path = os.path.join(d, "nginx.conf")
            with open(path, "w", encoding="utf-8") as out:
                out.write(f"pid {d}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\nclient_body_temp_path {d}/b;\nproxy_temp_path {d}/p;\n"
                          f"fastcgi_temp_path {d}/f;\nuwsgi_temp_path {d}/u;\nscgi_temp_path {d}/s;\n{text}\n}}\n")
            r = subprocess.run([nginx, "-t", "-c", path, "-p", d], capture_output=True, text=True)
            self.assertEqual(r.returncode, 0, r.stderr)

    def test_units_name_options_that_are_there(self):
        with open(os.path.join(ROOT, "contrib/echelon.service"), encoding="utf-8") as f:
            start = next(line for line in f if line.startswith("ExecStart="))
        helped = subprocess.run([ECHELON, "help", "serve"], capture_output=True, text=True, check=True).stdout
        for flag in re.findall(r"--[a-z-]+", start):
            self.assertIn(flag + " ", helped)


if __name__ == "__main__":
    unittest.main(verbosity=1)
