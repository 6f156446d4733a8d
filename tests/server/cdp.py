"""A headless Chromium, driven over a pipe with the DevTools protocol: no driver, no web socket, no package.

One page at a time. Messages are JSON with a zero byte after each; answers carry the id of their question,
events are kept in a list.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

# What a slow machine may take, in seconds.
PATIENCE = 30


def find_chromium():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


class Browser:
    def __init__(self):
        self.home = tempfile.mkdtemp(prefix="echelon-chromium-")
        theirs_in, self.out = os.pipe()
        self.inp, theirs_out = os.pipe()
        # The protocol's pipe is descriptors 3 and 4.
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "chromium", find_chromium(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
             "--disable-extensions", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
             "--disable-dev-shm-usage", "--hide-scrollbars", "--lang=en-US", f"--user-data-dir={self.home}", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "HOME": self.home, "XDG_CONFIG_HOME": self.home, "XDG_CACHE_HOME": self.home})
        os.close(theirs_in)
        os.close(theirs_out)
        self.rest, self.next_id, self.events, self.session = b"", 0, [], None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")

    def receive(self, seconds):
        """The next message, None after some seconds without one."""
        while b"\0" not in self.rest:
            if not select.select([self.inp], [], [], seconds)[0]:
                return None
            piece = os.read(self.inp, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium went away")
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            answer = self.receive(1)
            if answer and answer.get("id") == self.next_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            if answer and "method" in answer:
                self.events.append(answer)
        raise RuntimeError(f"{method}: no answer in {PATIENCE} s")

    def js(self, expression):
        """The value of an expression in the page; a promise is awaited."""
        out = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in out:
            raise RuntimeError(out["exceptionDetails"].get("exception", {}).get("description", str(out)))
        return out["result"].get("value")

    def wait(self, expression, seconds=PATIENCE):
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while not (value := self.js(expression)):
            if time.monotonic() > end:
                raise RuntimeError("never true: " + expression)
            time.sleep(0.03)
        return value

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def size(self, width, height, phone=False, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=phone)

    def dark(self, on):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])

    def key(self, name, text="", shift=False):
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37, " ": 32}
        common = {"key": name, "code": name, "windowsVirtualKeyCode": codes.get(name, 0), "modifiers": 8 if shift else 0}
        text = text or ("\r" if name == "Enter" else " " if name == " " else "")
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **common, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))

    def complaints(self):
        """What the page's console and the policy complained about since the last call."""
        self.js("1")
        found = []
        for e in self.events:
            if e["method"] == "Runtime.exceptionThrown":
                found.append(str(e["params"]["exceptionDetails"].get("exception", {}).get("description", e["params"])))
            elif e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error":
                found.append(e["params"]["entry"]["text"] + " " + e["params"]["entry"].get("url", ""))
        self.events.clear()
        return found

    def requested(self):
        """Every address that was asked for since the last complaints()."""
        self.js("1")
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (RuntimeError, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)  # its own session: the browser and its children
            self.process.wait()
        os.close(self.out)
        os.close(self.inp)
        shutil.rmtree(self.home, ignore_errors=True)
