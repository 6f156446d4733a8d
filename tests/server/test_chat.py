#!/usr/bin/env python3
"""`echelon chat` as a person at a terminal meets it: a pseudo-terminal, against a stub server and in-process."""
import json
import os
import pty
import re
import select
import sys
import tempfile
import termios
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import ECHELON
from stub import Stub

PROMPT = ">>> "


class Terminal:
    def __init__(self, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.execv(ECHELON, [ECHELON, "chat", *args])
        self.status = None

    def read(self, until, seconds=30):
        """What is shown until some text is at its end; escape sequences are taken out."""
        shown, end = b"", time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    piece = os.read(self.fd, 65536)
                except OSError:
                    piece = b""
                if not piece:
                    break
                shown += piece
            text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode(errors="replace"))
            if until and text.endswith(until):
                return text.replace("\r\n", "\n")
        if until:
            raise AssertionError(f"{until!r} was never shown, but {shown!r}")
        return shown.decode(errors="replace")

    def type(self, data):
        """Types when the line editor has the terminal: it shows its prompt some microseconds before, and what
        comes between is edited by the terminal itself."""
        end = time.monotonic() + 10
        while termios.tcgetattr(self.fd)[3] & termios.ICANON and time.monotonic() < end:
            time.sleep(0.001)
        os.write(self.fd, data)

    def say(self, text, until=PROMPT):
        """Types a line; what is shown until the next prompt, without the line itself."""
        self.type(text.encode() + b"\r")
        return self.read(until).split("\n", 1)[-1]

    def exit_code(self, seconds=30):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
                return os.waitstatus_to_exitcode(status)
            self.read(None, 0.05)
        raise AssertionError("it did not end")

    def close(self):
        if self.status is None:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


class Chat(unittest.TestCase):
    def setUp(self):
        self.stub = Stub([["Hello", " there"]])
        self.t = Terminal("--url", f"http://127.0.0.1:{self.stub.port}/v1", "--temperature", "0.5")
        self.t.read(PROMPT)

    def tearDown(self):
        self.t.close()
        self.stub.close()

    def asked(self, at=-1):
        return self.stub.asked[at][1]

    def test_an_answer_and_the_history(self):
        self.assertTrue(self.t.say("hi").endswith("Hello there\n" + PROMPT))
        self.assertEqual(self.asked()["messages"], [{"role": "user", "content": "hi"}])
        self.assertEqual((self.asked()["model"], self.asked()["temperature"]), ("stub", 0.5))
        self.assertNotIn("chat_template_kwargs", self.asked())  # another server may not know it
        self.t.say("and?")
        self.assertEqual([m["content"] for m in self.asked()["messages"]], ["hi", "Hello there", "and?"])

    def test_line_editing(self):
        answered = "there\r\n" + PROMPT  # the editor shows a prompt again while it draws a line
        self.t.say("abc\x1b[D\x1b[DX", answered)
        self.assertEqual(self.asked()["messages"][-1]["content"], "aXbc")
        self.t.say("\x1b[A", answered)  # the line before
        self.assertEqual(self.asked()["messages"][-1]["content"], "aXbc")
        self.t.say("wrong\x15right", answered)
        self.assertEqual(self.asked()["messages"][-1]["content"], "right")

    def test_help_and_unknown_commands(self):
        text = self.t.say("/help")
        for word in ("/system", "/set", "/save", "/load", "/regen", "/clear", "/stats", "/bye", "Ctrl-C", '"""'):
            self.assertIn(word, text)
        self.assertIn("/frobnicate", self.t.say("/frobnicate x"))
        self.assertEqual(self.stub.asked, [])

    def test_system_and_set(self):
        self.t.say("/system Be brief.")
        self.assertIn("Be brief.", self.t.say("/system"))
        self.t.say("/set top_k 7")
        self.t.say('/set stop ["x"]')
        self.t.say("/set user Ella")
        self.assertIn('"top_k": 7', self.t.say("/set"))
        self.t.say("hi")
        body = self.asked()
        self.assertEqual(body["messages"][0], {"role": "system", "content": "Be brief."})
        self.assertEqual((body["top_k"], body["stop"], body["user"]), (7, ["x"], "Ella"))

    def test_regen_and_clear(self):
        self.assertIn("nothing", self.t.say("/regen"))
        self.t.say("hi")
        self.stub.answers = [["Other"]]
        self.assertIn("Other", self.t.say("/regen"))
        self.assertEqual(self.asked(0)["messages"], self.asked(1)["messages"])
        self.t.say("/clear")
        self.t.say("new")
        self.assertEqual(self.asked()["messages"], [{"role": "user", "content": "new"}])

    def test_save_and_load(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "talk.json")
            self.t.say("/system Be brief.")
            self.t.say("/set top_k 9")
            self.t.say("hi")
            self.assertIn("saved", self.t.say("/save " + path))
            with open(path) as f:
                self.assertEqual([m["role"] for m in json.load(f)["messages"]], ["user", "assistant"])
            self.assertIn("can't write", self.t.say("/save " + folder + "/no/such"))
            other = Terminal("--url", f"http://127.0.0.1:{self.stub.port}/v1")
            try:
                other.read(PROMPT)
                self.assertIn("2 messages", other.say("/load " + path))
                other.say("more")
            finally:
                other.close()
            self.assertEqual([m["content"] for m in self.asked()["messages"]], ["Be brief.", "hi", "Hello there", "more"])
            self.assertEqual(self.asked()["top_k"], 9)
            for bad in ("{", "[]", '{"messages": 5}'):
                with open(path, "w") as f:
                    f.write(bad)
                self.assertIn("can't read", self.t.say("/load " + path))
            self.assertIn("can't read", self.t.say("/load " + folder + "/none"))

    def test_stats(self):
        self.assertIn("no answer", self.t.say("/stats"))
        self.t.say("hi")
        self.assertRegex(self.t.say("/stats"), r"prompt 7 tokens, 0 of them reused; answer 2 tokens; first after [\d.]+ s; [\d.]+ tokens/s")

    def test_several_lines(self):
        self.t.say('"""first', "... ")
        self.t.say("second", "... ")
        self.t.say('third"""')
        self.assertEqual(self.asked()["messages"], [{"role": "user", "content": "first\nsecond\nthird"}])

    def test_ctrl_c_stops_the_answer_alone(self):
        self.stub.answers = [["one ", 0.1] + ["more ", 0.05] * 400]
        self.t.type(b"long\r")
        self.t.read("more ")
        os.write(self.t.fd, b"\x03")
        self.assertIn("(stopped)", self.t.read(PROMPT, 5))
        end = time.monotonic() + 10
        while self.stub.left == 0 and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(self.stub.left, 1, "the server was not told")
        self.t.type(b"half a line")  # at the prompt it gives up the line alone
        self.t.read("half a line")
        os.write(self.t.fd, b"\x03")
        self.t.read(PROMPT)
        self.stub.answers = [["Hello"]]
        self.assertIn("Hello", self.t.say("hi"))
        self.assertEqual(self.asked()["messages"][-1]["content"], "hi")
        self.assertTrue(self.asked()["messages"][1]["content"].startswith("one more"))

    def test_reasoning_and_errors(self):
        self.stub.answers = [[("reasoning", "Let me see."), "Seven."]]
        self.assertIn("Let me see.\nSeven.", self.t.say("3 + 4?"))
        self.assertEqual(self.asked(0)["messages"][-1]["content"], "3 + 4?")
        self.stub.answers = [["half ", {"error": "the chip died"}]]
        self.assertIn("the chip died", self.t.say("x"))
        self.stub.answers = [429]
        self.assertIn("429", self.t.say("x"))
        self.stub.answers = [["half", None]]
        self.t.say("x")
        self.stub.answers = [["fine"]]
        self.assertIn("fine", self.t.say("/regen"))

    def test_leaving(self):
        self.t.type(b"/bye\r")
        self.assertEqual(self.t.exit_code(), 0)
        other = Terminal("--url", f"http://127.0.0.1:{self.stub.port}/v1")
        other.read(PROMPT)
        other.type(b"\x04")
        self.assertEqual(other.exit_code(), 0)
        other.close()


class InProcess(unittest.TestCase):
    def test_the_demo_model(self):
        t = Terminal("--temperature", "0")
        try:
            t.read(PROMPT)
            self.assertIn("18", t.say("What is 12 + 6?"))
            self.assertIn("Oslo", t.say("What is the capital of Norway?"))
            self.assertRegex(t.say("/stats"), r"prompt \d+ tokens, [1-9]\d* of them reused")
            t.type(b"/bye\r")
            self.assertEqual(t.exit_code(), 0)
        finally:
            t.close()


if __name__ == "__main__":
    unittest.main(verbosity=1)
