"""Starts `echelon serve` for a test and talks to it with the standard library alone.

A server is a process of its own on a free port of loopback; stop() ends it and says whether it left
anything. ECHELON names the program (ctest sets it).
"""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

ECHELON = os.environ.get("ECHELON", "build/release/echelon")


def frames_of(raw):
    """The data of each frame of an event stream. Each line must be whole UTF-8, as clients decode line by line."""
    frames = []
    for part in raw.split(b"\n\n"):
        for line in part.split(b"\n"):
            text = line.decode()
            if text.startswith("data: "):
                frames.append("[DONE]" if text == "data: [DONE]" else json.loads(text[6:]))
    return frames


def accumulate(frames):
    """What a client puts together from the chunks of one choice of a chat."""
    message = {"content": "", "reasoning_content": "", "calls": [], "logprobs": []}
    for f in frames:
        if f == "[DONE]" or not f["choices"]:
            continue
        choice = f["choices"][0]
        delta = choice["delta"]
        message["content"] += delta.get("content") or ""
        message["reasoning_content"] += delta.get("reasoning_content") or ""
        message["logprobs"] += (choice["logprobs"] or {}).get("content", [])
        for call in delta.get("tool_calls", []):
            if call["index"] == len(message["calls"]):
                assert call["id"] and call["type"] == "function" and call["function"]["name"]
                message["calls"].append({"name": call["function"]["name"], "arguments": ""})
            else:
                assert "id" not in call
            message["calls"][call["index"]]["arguments"] += call["function"].get("arguments", "")
        message["finish"] = choice["finish_reason"]
    return message


class Server:
    def __init__(self, *flags, env=None, wait=True):
        self.log = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen([ECHELON, "serve", "--port", "0", *flags], stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, env={**os.environ, **(env or {})})
        line = self.process.stdout.readline()
        match = re.match(r"https?://(?:\[[^]]+\]|[^:[]+):(\d+)$", line)
        if not match:
            self.process.terminate()
            self.process.wait(30)
            text = self.stderr()
            self.process.stdout.close()
            self.log.close()
            raise RuntimeError("the server did not start: " + text)
        self.url, self.port = line.strip(), int(match.group(1))
        if wait:
            self.wait_ready()

    def stderr(self):
        self.log.seek(0)
        return self.log.read()

    def wait_ready(self, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.get("/health")[0] == 200:
                return
            time.sleep(0.02)
        raise RuntimeError("not ready: " + self.stderr())

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def call(self, method, path, body=None, headers=None, timeout=60):
        """(status, headers, body as bytes)"""
        c = self.connect(timeout)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        c.request(method, path, data, headers or {})
        r = c.getresponse()
        out = r.read()
        c.close()
        return r.status, {k.lower(): v for k, v in r.getheaders()}, out

    def get(self, path, **kw):
        status, headers, body = self.call("GET", path, **kw)
        return status, (json.loads(body) if body and headers.get("content-type", "").startswith("application/json") else body)

    def post(self, path, body, **kw):
        status, _, out = self.call("POST", path, body, **kw)
        return status, json.loads(out)

    def stream(self, path, body, headers=None):
        """The data of each frame, [DONE] as a string."""
        c = self.connect()
        c.request("POST", path, json.dumps({**body, "stream": True}).encode(), headers or {})
        r = c.getresponse()
        raw = r.read()
        c.close()
        if r.status != 200:
            raise RuntimeError(f"{r.status} {raw!r}")
        return frames_of(raw)

    def raw(self, data, timeout=10):
        """Sends bytes as they are; everything that comes back until the server closes or is silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as s:
            s.sendall(data)
            out = b""
            try:
                while chunk := s.recv(65536):
                    out += chunk
            except (TimeoutError, ConnectionResetError):
                pass
            return out

    def metric(self, name):
        _, _, text = self.call("GET", "/metrics")
        return float(re.search(r"^\w+:" + name + r"\{[^}]*\} (\S+)$", text.decode(), re.M).group(1))

    def wait_metric(self, name, value, seconds=10):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.metric(name) == value:
                return True
            time.sleep(0.02)
        return False

    def stop(self, sig=signal.SIGTERM, seconds=40):
        """The exit code; kills what doesn't end in time, which is an error."""
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RuntimeError("the server did not end: " + self.stderr()) from None
        finally:
            self.process.stdout.close()
            self.log.close()
        return code
