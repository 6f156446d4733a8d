#!/usr/bin/env python3
"""The web page in a headless Chromium: against the real server, and against a stub that says what a model
might. `test_page.py --pictures DIR` writes the pictures of the documentation instead."""
import json
import os
import random
import sys
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from cdp import Browser, find_chromium
from harness import Server
from stub import Stub

WEB = os.path.join(HERE, "../../web")
SERVER = BROWSER = STUB = None
ANSWERED = "!document.querySelector('.writing') && document.getElementById('stop').hidden"


def setUpModule():
    global SERVER, BROWSER, STUB
    SERVER = Server()
    STUB = Stub([["ok"]], WEB, SERVER.call("GET", "/")[1]["content-security-policy"])
    BROWSER = Browser()


def tearDownModule():
    BROWSER.close()
    STUB.close()
    assert SERVER.stop() == 0


def count(selector):
    return BROWSER.js(f"document.querySelectorAll({json.dumps(selector)}).length")


def text(selector):
    return BROWSER.js(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.innerText).join('|')")


def click(selector):
    BROWSER.js(f"document.querySelector({json.dumps(selector)}).click()")


def ask(what):
    """Types a message as a person does and waits for the end of its answer."""
    before = count(".msg.assistant")
    BROWSER.js("document.getElementById('input').focus()")
    BROWSER.type(what)
    BROWSER.key("Enter")
    BROWSER.wait(f"document.querySelectorAll('.msg.assistant').length > {before} && {ANSWERED}")


class Page(unittest.TestCase):
    """Each test begins with an empty browser storage on a page of the stub, or of the real server."""
    real = False
    noise = ()  # complaints that the test brings about

    def setUp(self):
        self.port = SERVER.port if self.real else STUB.port
        STUB.answers, STUB.asked, STUB.left = [["ok"]], [], 0
        BROWSER.size(1100, 800)
        BROWSER.dark(False)
        BROWSER.open(f"http://127.0.0.1:{self.port}/")
        BROWSER.js("sessionStorage.clear(), localStorage.clear()")
        self.reload()
        BROWSER.complaints()

    def reload(self):
        BROWSER.open(f"http://127.0.0.1:{self.port}/")
        BROWSER.wait("document.getElementById('messages').children.length > 0")

    def tearDown(self):
        asked = [u for u in BROWSER.requested() if not u.startswith((f"http://127.0.0.1:{self.port}/", "data:", "about:"))]
        self.assertEqual(asked, [], "the page asked a foreign server")
        self.assertEqual([c for c in BROWSER.complaints() if not any(n in c for n in self.noise)], [])


class Chat(Page):
    def test_an_answer_comes_piece_by_piece(self):
        STUB.answers = [["Hello", 0.3, " world", 0.5, "!"]]
        BROWSER.type("hi")
        BROWSER.key("Enter")
        BROWSER.wait("document.querySelector('.assistant .body')?.innerText === 'Hello'")
        self.assertIn("first after", text("#status"))
        BROWSER.wait("document.querySelector('.assistant .body').innerText === 'Hello world'")
        BROWSER.wait(ANSWERED)
        self.assertEqual(text(".assistant .body"), "Hello world!")
        self.assertRegex(text(".assistant .meta"), r"^3 tokens · [\d.]+ tokens/s · first after [\d.]+ s · prompt 7$")
        body = STUB.asked[0][1]
        self.assertEqual(body["messages"], [{"role": "user", "content": "hi"}])
        self.assertTrue(body["stream"])

    def test_stop_keeps_what_came(self):
        STUB.answers = [["one ", "two ", 0.2] + ["more ", 0.05] * 400]
        BROWSER.type("count")
        BROWSER.key("Enter")
        BROWSER.wait("document.querySelector('.assistant .body')?.innerText.includes('two')")
        self.assertFalse(BROWSER.js("document.getElementById('stop').hidden"))
        BROWSER.key("Escape")
        BROWSER.wait(ANSWERED)
        self.assertIn("Stopped.", text(".failed"))
        self.assertTrue(text(".assistant .body").startswith("one two"))
        end = time.monotonic() + 10
        while STUB.left == 0 and time.monotonic() < end:
            time.sleep(0.02)
        self.assertEqual(STUB.left, 1, "the server was not told")

    def test_regenerate(self):
        STUB.answers = [["first"], ["second"]]
        ask("hi")
        click(".assistant .actions button")
        BROWSER.wait("document.querySelector('.assistant .body').innerText === 'second'")
        self.assertEqual(count(".msg"), 2)
        self.assertEqual(STUB.asked[0][1]["messages"], STUB.asked[1][1]["messages"])

    def test_edit(self):
        STUB.answers = [["a"], ["b"], ["c"]]
        ask("first")
        ask("second")
        click(".user .actions button")
        self.assertEqual(BROWSER.js("document.activeElement.value"), "first")
        BROWSER.key("Escape")
        self.assertEqual(text(".user .body"), "first|second")
        click(".user .actions button")
        BROWSER.js("document.activeElement.select()")
        BROWSER.type("other")
        BROWSER.key("Enter")
        BROWSER.wait("document.querySelectorAll('.msg').length === 2 && " + ANSWERED)
        self.assertEqual((text(".user .body"), text(".assistant .body")), ("other", "c"))
        self.assertEqual(STUB.asked[2][1]["messages"], [{"role": "user", "content": "other"}])

    def test_settings_are_sent(self):
        click("#open-settings")
        for name, value in (("system", "Be brief."), ("temperature", "0.3"), ("top_k", "7"), ("max_tokens", "55"), ("seed", "4"), ("key", "sesame")):
            BROWSER.js(f"(e => {{ e.value = {json.dumps(value)}; e.dispatchEvent(new Event('change', {{ bubbles: true }})); }})(document.getElementById('{name}'))")
        click("#thinking")
        click("#done")
        self.reload()  # they are kept
        ask("hi")
        _, body, headers = STUB.asked[0]
        self.assertEqual(body["messages"][0], {"role": "system", "content": "Be brief."})
        self.assertEqual((body["temperature"], body["top_k"], body["max_tokens"], body["seed"]), (0.3, 7, 55, 4))
        self.assertNotIn("top_p", body)
        self.assertEqual(body["chat_template_kwargs"], {"enable_thinking": True})
        self.assertEqual(headers["authorization"], "Bearer sesame")
        self.assertNotIn("sesame", BROWSER.js("JSON.stringify(localStorage)"))
        click("#open-settings")
        click("#reset")
        click("#done")
        ask("again")
        self.assertNotIn("temperature", STUB.asked[1][1])

    def test_reasoning_is_folded(self):
        STUB.answers = [[("reasoning", "Let me <b>see</b>."), 2, "Seven."]]
        BROWSER.type("3 + 4?")
        BROWSER.key("Enter")
        BROWSER.wait("document.querySelector('.thought summary')?.innerText === 'Thinking…'")
        BROWSER.wait(ANSWERED)
        self.assertEqual(text(".thought summary"), "Reasoning")
        self.assertFalse(BROWSER.js("document.querySelector('.thought').open"))
        click(".thought summary")
        self.assertIn("Let me <b>see</b>.", text(".thought"))
        self.assertEqual(text(".assistant .body"), "Seven.")
        ask("and?")
        self.assertNotIn("reasoning", json.dumps(STUB.asked[1][1]["messages"]))

    def test_history(self):
        ask("first talk")
        click("#new")
        ask("second talk")
        self.reload()
        self.assertEqual(text("#history .open"), "second talk|first talk")
        self.assertEqual(text(".user .body"), "second talk")
        click("#history li:last-child .open")
        self.assertEqual(text(".user .body"), "first talk")
        click("#history li:last-child .del")
        self.assertEqual(text("#history .open"), "second talk")
        click("#status button")
        self.assertEqual(text("#history .open"), "second talk|first talk")
        click("#history li .del")
        self.reload()
        self.assertEqual(text("#history .open"), "first talk")

    def test_two_tabs_keep_both(self):
        ask("mine")
        other = {"id": "other", "messages": [{"role": "user", "content": "theirs"}]}
        BROWSER.js(f"localStorage.setItem('echelon.chats', JSON.stringify([{json.dumps(other)}, ...JSON.parse(localStorage.getItem('echelon.chats'))]))")
        ask("more")
        self.assertEqual(text("#history .open"), "mine|theirs")

    def test_old_or_broken_storage(self):
        for broken in ("{broken", "5", "null", '[1, null, {}, {"id": "x", "messages": [{}]}]', '{"a": 1}'):
            BROWSER.js(f"['chats', 'settings', 'theme'].forEach(k => localStorage.setItem('echelon.' + k, {json.dumps(broken)}))")
            self.reload()
            ask("hi")
            self.assertEqual(text(".assistant .body"), "ok")


class Failures(Page):
    noise = ("Failed to load resource", "net::ERR")

    def test_what_goes_wrong_is_said(self):
        rows = ((401, "API key"), (429, "refused with 429"), (500, "refused with 500"), (["half ", {"error": "the chip died"}], "the chip died"),
                (["half ", None], "ended before its end mark"))
        for answer, want in rows:
            with self.subTest(want=want):
                STUB.answers = [answer]
                ask("hi")
                self.assertIn(want, BROWSER.js("[...document.querySelectorAll('.failed')].at(-1).innerText"))
        self.assertEqual(BROWSER.js("[...document.querySelectorAll('.assistant .body')].at(-1).innerText"), "half")
        STUB.answers = [["fine"]]
        ask("hi")
        self.assertEqual(BROWSER.js("[...document.querySelectorAll('.assistant .body')].at(-1).innerText"), "fine")


EVIL = """Hello <img src=x onerror="window.hacked=1"> <script>window.hacked=2</script> <svg onload="window.hacked=3"></svg>

<iframe src="javascript:parent.hacked=4"></iframe> [click](javascript:window.hacked=5) [d](data:text/html,<script>hacked=6</script>) [v](vbscript:x)

![picture](http://evil.example/x.png) ![p](javascript:hacked=7) <a href="javascript:hacked=8" onclick="hacked=8">a</a> https://ok.example/"onmouseover="hacked=9

- item <b onmouseover=hacked=10>x</b>
  - [j](JavaScript:hacked=11)

| a<script>hacked=12</script> | [x](  javascript:hacked=13) |
| --- | --- |
| <style>*{display:none}</style> | &lt;script&gt;hacked=14&lt;/script&gt; |

> <object data="javascript:hacked=15"></object>

```html"><script>hacked=16</script>
</code></pre><script>hacked=17</script><img src=x onerror=hacked=18>
```
<math><mtext></mtext><mglyph><style><img src=x onerror=hacked=19>
"""

ALLOWED = {"P", "STRONG", "EM", "DEL", "CODE", "PRE", "A", "BR", "UL", "OL", "LI", "TABLE", "THEAD", "TBODY", "TR", "TH", "TD", "DIV", "SPAN", "BUTTON",
           "BLOCKQUOTE", "H2", "H3", "H4", "H5", "H6", "HR"}


class Safety(Page):
    def rendered(self):
        """(tags, attribute names, hrefs) of what the last answer became."""
        return BROWSER.js("""(() => { const all = [...[...document.querySelectorAll('.assistant .body')].at(-1).querySelectorAll('*')];
            return [[...new Set(all.map(e => e.tagName))], [...new Set(all.flatMap(e => [...e.attributes].map(a => a.name)))], all.filter(e => e.href).map(e => e.href)]; })()""")

    def check(self):
        tags, attributes, hrefs = self.rendered()
        self.assertEqual(set(tags) - ALLOWED, set())
        self.assertEqual(set(attributes) - {"href", "rel", "target", "class", "tabindex", "type", "start"}, set())
        self.assertTrue(all(h.startswith(("http://", "https://")) for h in hrefs), hrefs)
        self.assertIsNone(BROWSER.js("window.hacked ?? null"))

    def test_nothing_of_a_model_runs(self):
        STUB.answers = [[EVIL], [c for c in EVIL], [("reasoning", EVIL), EVIL]]
        for _ in range(3):
            ask(EVIL)
            self.check()
        BROWSER.js("document.querySelectorAll('.assistant .body a').forEach(a => a.dispatchEvent(new MouseEvent('mouseover', { bubbles: true })))")
        self.check()
        self.assertIn("<img src=x onerror", text(".assistant .body"))
        self.reload()  # and from the history
        self.check()

    def test_random_pieces(self):
        rng = random.Random(3)
        bits = ["<img src=x onerror=hacked=1>", "[a](javascript:hacked=2)", "```", "\n", "\n\n", "|", "- ", "> ", "*", "**", "_", "`", "<", ">", "[", "](", ")", "![", "http://a.b/c", "# ",
                "| --- |\n", "1. ", "    ", "&", "\\", '"', "'", "~~", "x", "<script>hacked=3</script>"]
        for _ in range(40):
            source = "".join(rng.choice(bits) for _ in range(rng.randrange(1, 120)))
            shown = BROWSER.js(f"import('/markdown.js').then(m => {{ const d = document.createElement('div'); document.body.append(d); m.show(d, {json.dumps(source)});"
                               "const all = [...d.querySelectorAll('*')]; const out = [all.map(e => e.tagName), all.flatMap(e => [...e.attributes].map(a => a.name)), all.filter(e => e.href).map(e => e.href)];"
                               "d.remove(); return out; })")
            self.assertEqual(set(shown[0]) - ALLOWED, set(), source)
            self.assertEqual(set(shown[1]) - {"href", "rel", "target", "class", "tabindex", "type", "start"}, set(), source)
            self.assertTrue(all(h.startswith(("http://", "https://")) for h in shown[2]), source)
        self.assertIsNone(BROWSER.js("window.hacked ?? null"))


class Policy(Page):
    noise = ("Content Security Policy", "violates")

    def test_even_html_by_mistake_could_not_run(self):
        policy = STUB.policy
        for part in ("default-src 'none'", "script-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"):
            self.assertIn(part, policy)
        self.assertNotIn("unsafe", policy)
        BROWSER.js("document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"window.hacked=1\"><a id=j href=\"javascript:window.hacked=2\">j</a><p style=\"color:red\">x</p>')")
        BROWSER.js("{ const s = document.createElement('script'); s.textContent = 'window.hacked=3'; document.body.append(s); }")
        BROWSER.js("document.getElementById('j').click()")
        blocked = BROWSER.js("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'blocked')")
        time.sleep(0.3)
        self.assertIsNone(BROWSER.js("window.hacked ?? null"))
        self.assertEqual(blocked, "blocked")
        self.assertTrue(any("Content Security Policy" in c for c in BROWSER.complaints()))


class Markdown(Page):
    def show(self, source):
        return BROWSER.js(f"import('/markdown.js').then(m => {{ const d = document.createElement('div'); m.show(d, {json.dumps(source)}); return d.innerHTML; }})")

    def test_structures(self):
        rows = [
            ("a **b** _c_ `d<e` ~~f~~", "<p>a <strong>b</strong> <em>c</em> <code>d&lt;e</code> <del>f</del></p>"),
            ("snake_case_name and 2*3*4", "<p>snake_case_name and 2<em>3</em>4</p>"),
            ("a * b * c, \\*not\\*", "<p>a * b * c, *not*</p>"),
            ("# Title #\ntext\nmore", "<h2>Title</h2><p>text<br>more</p>"),
            ("- a\n  - b\n    1. c\n- d", "<ul><li>a<ul><li>b<ol start=\"1\"><li>c</li></ol></li></ul></li><li>d</li></ul>"),
            ("3. a\n4. b", "<ol start=\"3\"><li>a</li><li>b</li></ol>"),
            ("- [x] done\n- [ ] open", "<ul><li>☑ done</li><li>☐ open</li></ul>"),
            ("> a\n> - b", "<blockquote><p>a</p><ul><li>b</li></ul></blockquote>"),
            ("---", "<hr>"),
            ("see https://a.example/x_y_z.", "<p>see <a href=\"https://a.example/x_y_z\" rel=\"noopener noreferrer nofollow\" target=\"_blank\">https://a.example/x_y_z</a>.</p>"),
        ]
        for source, want in rows:
            self.assertEqual(self.show(source), want, source)
        table = self.show("| a | b |\n| :-- | --: |\n| 1 \\| 2 | **3** |\n| only |\nafter")
        self.assertIn('<td class="right"><strong>3</strong></td>', table)
        self.assertIn("<td>1 | 2</td>", table)
        self.assertIn("<p>after</p>", table)
        code = self.show("1. step\n   ```py\n   x = 'a' # c\n   ```\n2. next\n\n```\n**raw**\n```")
        self.assertIn('<span class="t-string">\'a\'</span> <span class="t-comment"># c</span>', code)
        self.assertIn("**raw**", code)
        self.assertEqual(code.count("<ol"), 1)

    def test_hostile_lengths(self):
        for piece in ("*", "**", "_", "`", "[", "![", "](", "<", "> ", "- ", "|", "| --- ", "~~", "\\", "https://", "a_", "\n", "    - ", "1. ", "# ", "```\n", "[a](http://"):
            start = time.monotonic()
            self.show(piece * 4000)
            self.assertLess(time.monotonic() - start, 5, piece)

    def test_unchanged_blocks_keep_their_nodes(self):
        kept = BROWSER.js("""import('/markdown.js').then(m => { const d = document.createElement('div'); m.show(d, 'one\\n\\n```c\\nint'); const [p, c] = d.childNodes;
            m.show(d, 'one\\n\\n```c\\nint x;\\n```\\n\\ntwo'); return [d.childNodes[0] === p, d.childNodes[1] === c, d.childNodes.length]; })""")
        self.assertEqual(kept, [True, False, 3])


class Look(Page):
    noise = ("/metrics",)  # the stub has none

    def background(self):
        return BROWSER.js("getComputedStyle(document.body).backgroundColor")

    def test_dark_and_light(self):
        light = self.background()
        BROWSER.dark(True)
        dark = self.background()
        self.assertNotEqual(light, dark)
        click("#theme")
        self.assertEqual(self.background(), light)
        self.reload()
        self.assertEqual(self.background(), light)  # kept, against the system's wish
        BROWSER.dark(False)
        click("#theme")
        self.assertEqual(self.background(), dark)

    def test_contrast(self):
        """Text against what lies behind it: at least 4.5 to 1, in both sets of colours."""
        STUB.answers = [["# Head\n\ntext `code` [l](https://a.example)\n\n```c\nint x = 1; // no \"s\"\nchar *s = \"t\";\n```"]]
        ask("hi")
        for dark in (False, True):
            BROWSER.dark(dark)
            low = BROWSER.js("""(() => { const rgb = c => c.match(/[\\d.]+/g).map(Number);
                const lum = ([r, g, b]) => [r, g, b].map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
                const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0.99) return c; } return [255, 255, 255]; };
                const bad = [];
                for (const e of document.querySelectorAll('body *')) {
                  if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility()) continue;
                  const [a, b] = [lum(rgb(getComputedStyle(e).color)), lum(behind(e))];
                  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
                  if (ratio < 4.5) bad.push([e.tagName, e.className, e.textContent.slice(0, 20), ratio]);
                } return bad; })()""")
            self.assertEqual(low, [], "dark" if dark else "light")

    def test_keyboard_only(self):
        def active():
            return BROWSER.js("document.activeElement.id || document.activeElement.textContent.slice(0, 20) || document.activeElement.tagName")
        ask("hi")
        BROWSER.js("document.activeElement.blur()")
        seen = []
        for _ in range(30):
            BROWSER.key("Tab")
            seen.append(active())
        for what in ("tab-chat", "open-settings", "theme", "new", "hi", "messages", "Edit", "Regenerate", "input", "send"):
            self.assertIn(what, seen)
        BROWSER.js("document.getElementById('tab-chat').focus()")
        BROWSER.key("ArrowRight")
        self.assertEqual((active(), BROWSER.js("document.getElementById('view-state').hidden")), ("tab-state", False))
        BROWSER.key("ArrowLeft")
        self.assertEqual(active(), "tab-chat")
        BROWSER.js("document.getElementById('open-settings').focus()")
        BROWSER.key("Enter")
        self.assertTrue(BROWSER.js("document.getElementById('settings').open"))
        BROWSER.key("Escape")
        self.assertFalse(BROWSER.js("document.getElementById('settings').open"))
        BROWSER.js("document.getElementById('input').focus()")
        BROWSER.type("two")
        BROWSER.key("Enter", shift=True)
        BROWSER.type("lines")
        self.assertEqual(count(".msg"), 2)
        BROWSER.key("Enter")
        BROWSER.wait("document.querySelectorAll('.msg').length === 4 && " + ANSWERED)
        self.assertEqual(STUB.asked[-1][1]["messages"][-1]["content"], "two\nlines")

    def test_everything_has_a_name(self):
        nameless = BROWSER.js("[...document.querySelectorAll('button, input, textarea, [role]')].filter(e => !(e.innerText?.trim() || e.getAttribute('aria-label') || e.labels?.length || e.getAttribute('aria-labelledby') || e.getAttribute('role') === 'status' || e.id === 'away')).map(e => e.outerHTML)")
        self.assertEqual(nameless, [])

    def test_phone(self):
        BROWSER.size(390, 844, phone=True)
        STUB.answers = [["A long line of code:\n\n```c\n" + "int x = 1; " * 40 + "\n```\n\n| a | b |\n| --- | --- |\n| " + "wide " * 60 + " | x |\n\n" + "w" * 500]]
        ask("hi")
        for tab in ("state", "chat"):
            click("#tab-" + tab)
            self.assertLessEqual(BROWSER.js("document.documentElement.scrollWidth"), 390, tab)
        wide = BROWSER.js("[...document.querySelectorAll('header *, #form *, .msg')].filter(e => e.checkVisibility() && e.getBoundingClientRect().right > 391).map(e => e.outerHTML.slice(0, 80))")
        self.assertEqual(wide, [])
        self.assertGreaterEqual(float(BROWSER.js("getComputedStyle(document.getElementById('input')).fontSize")[:-2]), 16)  # or phones zoom
        BROWSER.wait("!document.getElementById('new').checkVisibility({ visibilityProperty: true })")
        click("#menu")
        BROWSER.wait("document.getElementById('new').checkVisibility({ visibilityProperty: true })")
        click("#history .open")
        self.assertEqual(BROWSER.js("document.getElementById('menu').getAttribute('aria-expanded')"), "false")


class Real(Page):
    real = True

    def test_chat(self):
        ask("What is the capital of Norway?")
        self.assertIn("Oslo", text(".assistant .body"))
        self.assertRegex(text(".assistant .meta"), r"\d+ tokens · .*first after [\d.]+ s · prompt \d+")
        self.assertEqual(text("#model"), "tale")

    def test_stop_frees_the_server(self):
        BROWSER.js("localStorage.setItem('echelon.settings', JSON.stringify({ max_tokens: '4000', temperature: '2' }))")
        self.reload()
        BROWSER.type("Tell me a story about a fox named Finn.")
        BROWSER.key("Enter")
        BROWSER.wait("document.querySelector('.assistant .body')?.innerText.length > 20")
        BROWSER.key("Escape")
        BROWSER.wait(ANSWERED)
        self.assertTrue(SERVER.wait_metric("num_requests_running", 0))

    def test_state(self):
        click("#tab-state")
        BROWSER.wait("document.querySelectorAll('.gauge').length >= 8 && document.querySelectorAll('.ring').length > 0")
        # Long enough to be seen by a page that looks once a second.
        body = {"prompt": ["a"] * 8, "n": 4, "max_tokens": 4000, "ignore_eos": True}
        done = []
        thread = threading.Thread(target=lambda: done.append(SERVER.post("/v1/completions", body)[0]))
        thread.start()
        try:
            BROWSER.wait("document.querySelectorAll('#requests tbody tr').length === 1")
            self.assertIn("running", text("#requests tbody tr"))
            click("#requests button")
        finally:
            thread.join(60)
        self.assertNotEqual(done, [200])
        BROWSER.wait("document.querySelectorAll('#requests tbody tr').length === 0")
        BROWSER.wait("document.querySelectorAll('.chart polyline').length === 4")
        self.assertIn("at most", text(".ring"))
        self.assertIn("KV", text("#plan"))
        self.assertTrue(BROWSER.js("document.getElementById('away').hidden"))
        ring = SERVER.call("GET", "/metrics")[2].decode()
        self.assertRegex(ring, r'echelon:ring_high_water\{model_name="tale",ring="task_window",depth="0"\} [1-9]')


# ---- pictures ------------------------------------------------------------------------------

CODE = """Here is a ring buffer in C. It never allocates after `ring_open`, and a full ring says so instead of losing a byte.

```c
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Bytes between head and tail; size is a power of two. */
typedef struct ring {
    uint8_t *bytes;        // [size]
    uint32_t size, head, tail;
} ring;

bool ring_open(ring *r, uint32_t size)
{
    *r = (ring){ .bytes = malloc(size), .size = size };
    return r->bytes != NULL && (size & (size - 1)) == 0;
}

bool ring_push(ring *r, uint8_t byte)
{
    if (r->head - r->tail == r->size) return false; // full
    r->bytes[r->head++ & (r->size - 1)] = byte;
    return true;
}
```

What each part costs:

| call | time | memory |
| :--- | :---: | ---: |
| `ring_open` | once | *size* bytes |
| `ring_push` | **O(1)** | none |

1. `head` and `tail` only grow, so *full* and *empty* differ.
2. Their difference is right even when they wrap:
   - both are unsigned,
   - and the size is a power of two.
"""


def settle():
    time.sleep(0.4)


def pictures(folder):
    """chat.png, code.png, phone.png, state.png."""
    os.makedirs(folder, exist_ok=True)
    where = lambda name: os.path.join(folder, name + ".png")
    BROWSER.dark(False)
    BROWSER.size(1100, 720)
    BROWSER.open(f"http://127.0.0.1:{SERVER.port}/")
    BROWSER.js("localStorage.setItem('echelon.settings', JSON.stringify({ temperature: '0' }))")
    BROWSER.open(f"http://127.0.0.1:{SERVER.port}/")
    for question in ("Describe a cat named Mia, 4 years old, as JSON.", "Make a table of three animals and their colours.", "Tell me a story about a fox named Finn."):
        click("#new")
        ask(question)
    ask("What is the capital of Norway?")
    settle()
    BROWSER.picture(where("chat"))
    BROWSER.size(390, 760, phone=True)
    BROWSER.dark(True)
    settle()
    BROWSER.js("document.getElementById('messages').scrollTop = 1e9")
    BROWSER.picture(where("phone"))
    STUB.answers = [[CODE]]
    BROWSER.size(1100, 980)
    BROWSER.open(f"http://127.0.0.1:{STUB.port}/")
    ask("Write a ring buffer in C, and say what it costs.")
    settle()
    BROWSER.js("document.getElementById('messages').scrollTop = 0")
    BROWSER.picture(where("code"))
    state_picture(where("state"))


def state_picture(path):
    """The state tab while six clients keep the server busy."""
    stop = threading.Event()

    def load(k):
        while not stop.is_set():
            SERVER.post("/v1/completions", {"prompt": list(range(300, 340 + 60 * k)), "max_tokens": 150 + 90 * k, "ignore_eos": True})
            time.sleep(0.4 * k)
    threads = [threading.Thread(target=load, args=(k,)) for k in range(6)]
    BROWSER.dark(False)
    BROWSER.size(1100, 900)
    BROWSER.open(f"http://127.0.0.1:{SERVER.port}/")
    click("#tab-state")
    for t in threads:
        t.start()
    try:
        time.sleep(40)
        BROWSER.wait("document.querySelectorAll('#requests tbody tr').length >= 3")
        BROWSER.picture(path)
    finally:
        stop.set()
        for t in threads:
            t.join()


def main():
    if find_chromium() is None:
        print("skipped: there is no chromium; scripts/deps test installs it")
        return 77
    if sys.argv[1:2] == ["--pictures"]:
        setUpModule()
        try:
            pictures(sys.argv[2])
        finally:
            tearDownModule()
        return 0
    unittest.main(verbosity=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
