"""A server that says what a test tells it to, in OpenAI's stream format: what clients are tested against.

answers: what the next requests get, in order; the last one again and again. An answer is a list of pieces:
"text" (content), ("reasoning", text), a number (seconds of silence), {"error": message} (ends the stream),
None (closes the connection), or an int status followed by nothing (an error before any stream).
The bodies that came are kept in .asked, with their paths.
"""
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except ConnectionError:
            pass  # a client that leaves is what some tests are about

    def reply(self, status, body, kind="application/json", **headers):
        self.send_response(status)
        for k, v in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(k.replace("_", "-"), v)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        stub = self.server.stub
        path = self.path.split("?")[0]
        name = "index.html" if path == "/" else path[1:]
        if stub.web and "/" not in name and os.path.splitext(name)[1] in TYPES and os.path.exists(os.path.join(stub.web, name)):
            with open(os.path.join(stub.web, name), "rb") as f:
                self.reply(200, f.read(), TYPES[os.path.splitext(name)[1]], Content_Security_Policy=stub.policy)
        elif path.endswith("/models"):
            self.reply(200, json.dumps({"object": "list", "data": [{"id": "stub", "object": "model", "created": 0, "owned_by": "test"}]}).encode())
        else:
            self.reply(404, b'{"error": {"message": "not here"}}')

    def do_POST(self):
        stub = self.server.stub
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        stub.asked.append((self.path, body, dict(self.headers)))
        answer = stub.answers[0] if len(stub.answers) == 1 else stub.answers.pop(0)
        if isinstance(answer, int):
            self.reply(answer, json.dumps({"error": {"message": f"refused with {answer}", "type": "t", "param": None, "code": None}}).encode())
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self.write_stream(answer, body, self.path.endswith("/chat/completions"))
        except OSError:
            stub.left += 1

    def frame(self, data):
        self.wfile.write(b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n")
        self.wfile.flush()

    def write_stream(self, answer, body, is_chat):
        stub = self.server.stub
        head = {"id": "stub-1", "object": "chat.completion.chunk" if is_chat else "text_completion", "created": 0, "model": "stub"}

        def choice(piece, finish=None):
            if not is_chat:
                return {**head, "choices": [{"index": 0, "text": piece if isinstance(piece, str) else "", "logprobs": None, "finish_reason": finish}]}
            delta = {"content": piece} if isinstance(piece, str) else {"reasoning_content": piece[1]} if piece else {}
            return {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}
        n = 0
        for piece in answer:
            if piece is None:
                return
            if isinstance(piece, (int, float)):
                time.sleep(piece)
            elif isinstance(piece, dict):
                self.frame(piece if not isinstance(piece["error"], str) else {"error": {"message": piece["error"], "type": "server_error", "param": None, "code": None}})
                return
            else:
                self.frame(choice(piece))
                n += 1
        self.frame(choice(None, "stop"))
        if (body.get("stream_options") or {}).get("include_usage"):
            self.frame({**head, "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": n, "total_tokens": 7 + n}})
        self.frame(b"[DONE]")
        stub.finished += 1


class Stub:
    def __init__(self, answers, web=None, policy=""):
        self.answers, self.web, self.policy = list(answers), web, policy
        self.asked, self.left, self.finished = [], 0, 0
        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.httpd.daemon_threads = True
        self.httpd.stub = self
        self.port = self.httpd.server_address[1]
        self.thread = threading.Thread(target=self.httpd.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def close(self):
        self.httpd.shutdown()
        self.httpd.server_close()
        self.thread.join()
