#!/usr/bin/env python3
"""Random templates and conversations, rendered by jinja2 (set up as transformers does it) and by Echelon, and compared;
before them each method of str on every character.

usage: template_fuzz.py [--count N] [--seed S] [--only K] TEMPLATE_LINES

TEMPLATE_LINES is the program build/PRESET/tests/tools/template_lines. Exit code 1 when anything differs, 77 when jinja2
isn't installed. Case K of seed S is the same whatever the count; --only K shows it alone.
"""
import argparse
import datetime
import json
import random
import re
import subprocess
import sys
import unicodedata
import warnings

try:
    import jinja2
    import jinja2.ext
    import jinja2.nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("jinja2 is not installed")
    sys.exit(77)

warnings.simplefilter("ignore")
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    class Namespace(jinja2.utils.Namespace):
        def __init__(*args, **kwargs):
            self, args = args[0], args[1:]
            attrs = dict(*args, **kwargs)
            for name in attrs:
                Namespace.check(name)
            jinja2.utils.Namespace.__init__(self, attrs)

        def __setitem__(self, name, value):
            Namespace.check(name)
            jinja2.utils.Namespace.__setitem__(self, name, value)

        @staticmethod
        def check(name):
            if isinstance(name, str) and name.startswith("_"):
                raise jinja2.exceptions.SecurityError(name)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    env.globals["namespace"] = Namespace
    return env


ENV = environment()

WORDS = ["", " ", "a", "Ab", "hello world", "Grüße", "你好", "🦊", "  padded \n", "x,y,z", "a-b c_d", "<b>&\"'</b>", "\t", "\\n",
         "one\ntwo\r\nthree", "ǅ ﬁ ß", "ΑΣ ΣΑΣ.", "12", "-3.5", "0x1f", "1_000", "<|im_start|>", "%s and %d", "{} {0} {a}", "\u2028x\x85y",
         "e\u0301", "İstanbul", "\x00\x1f", "null", "True"]
NAMES = ["n", "k", "x", "s", "t", "xs", "ys", "words", "d", "e", "flag", "nothing", "messages", "tools", "missing", "big", "pairs", "rows"]


def conversation(r):
    messages = []
    for _ in range(r.randint(0, 4)):
        m = {"role": r.choice(["system", "user", "assistant", "tool"]), "content": r.choice(WORDS)}
        kind = r.random()
        if kind < 0.15:
            m["content"] = [{"type": "text", "text": r.choice(WORDS)} for _ in range(r.randint(0, 3))]
        elif kind < 0.25:
            m["content"] = None
        if r.random() < 0.2:
            m["tool_calls"] = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": r.choice(WORDS), "b": 1.5}}}]
        if r.random() < 0.2:
            m["reasoning_content"] = r.choice(WORDS)
        messages.append(m)
    return {
        "messages": messages,
        "tools": r.choice([None, [{"type": "function", "function": {"name": "g", "parameters": {"type": "object", "items": 1}}}]]),
        "n": r.randint(-5, 12), "k": r.choice([0, 1, 2, 3]), "x": r.choice([0.0, 1.5, -2.25, 1e20, 0.1, 1e-7, 123456789.125, 2.5, 3.0]),
        "s": r.choice(WORDS), "t": r.choice(WORDS), "xs": [r.randint(-3, 9) for _ in range(r.randint(0, 5))],
        "ys": [r.choice([1, "a", None, 2.5, True, [1, "b"], {"q": 1}, "B"]) for _ in range(r.randint(0, 4))],
        "words": [r.choice(WORDS) for _ in range(r.randint(0, 4))],
        "d": {r.choice(["a", "b", "items", "Z", "é"]): r.choice([1, "x", None, [1, 2], {"k": "v"}]) for _ in range(r.randint(0, 4))},
        "e": {"a": {"b": [1, {"c": "deep"}]}, "get": 3, "n": r.randint(0, 3)},
        "flag": r.random() < 0.5, "nothing": None, "big": 2 ** 40 + 1,
        "pairs": [["k%d" % i, i * i] for i in range(r.randint(0, 4))],
        "rows": [{"name": r.choice(["Bo", "al", "Cy", "bo"]), "age": r.randint(1, 4), "tag": {"id": i}} for i in range(r.randint(0, 5))],
        "bos_token": "<s>", "eos_token": "</s>",
    }


class Maker:
    """Templates from a grammar that knows types, and forgets them now and then."""

    def __init__(self, r):
        self.r = r
        self.vars = list(NAMES)
        self.macros = []
        self.fresh = 0
        self.in_loop = 0

    def pick(self, *choices):
        return self.r.choice(choices)

    def quote(self, text):
        q = self.pick("'", '"')
        out = ""
        for c in text:
            if c == q or c == "\\":
                out += "\\" + c
            elif c == "\n":
                out += self.pick("\\n", "\n")
            elif ord(c) < 32 or c in "\x85\u2028":
                out += "\\x%02x" % ord(c) if ord(c) < 256 else "\\u%04x" % ord(c)
            else:
                out += c
        return q + out + q

    def any(self, depth):
        kind = self.r.random()
        if kind < 0.06:
            return self.pick(*self.vars)
        return self.pick(self.str, self.str, self.int, self.num, self.list, self.dict, self.bool)(depth)

    def mixed(self, depth, make):
        return self.any(depth - 1) if self.r.random() < 0.04 else make(depth - 1)

    def str(self, d):
        if d <= 0:
            return self.pick("s", "t", self.quote(self.r.choice(WORDS)), "messages[0].role", "words[0]", "bos_token", "e.a.b[1].c")
        s = lambda: self.mixed(d, self.str)
        i = lambda: self.mixed(d, self.int)
        return self.r.choice([
            lambda: "(%s ~ %s)" % (s(), self.any(d - 1)),
            lambda: "(%s + %s)" % (s(), s()),
            lambda: "(%s * %s)" % (s(), self.pick("2", "k", "0")),
            lambda: "%s[%s]" % (self.atom(s()), self.slice(d - 1)),
            lambda: "%s.%s()" % (self.atom(s()), self.pick("upper", "lower", "title", "capitalize", "swapcase", "strip", "lstrip", "rstrip", "casefold", "expandtabs")),
            lambda: "%s.%s(%s)" % (self.atom(s()), self.pick("strip", "lstrip", "rstrip", "removeprefix", "removesuffix"), s()),
            lambda: "%s.replace(%s, %s)" % (self.atom(s()), s(), s()),
            lambda: "%s.%s(%s)" % (self.atom(s()), self.pick("center", "ljust", "rjust", "zfill"), self.pick("5", "k", "9")),
            lambda: "%s.join(%s)" % (self.atom(s()), self.pick("words", "s.split()", self.list(d - 1))),
            lambda: "(%s | %s)" % (s(), self.pick("upper", "lower", "title", "capitalize", "trim", "string", "safe", "e", "escape", "forceescape", "reverse", "urlencode")),
            lambda: "(%s | trim(%s))" % (s(), s()),
            lambda: "(%s | replace(%s, %s%s))" % (s(), s(), s(), self.pick("", ", 1", ", count=2")),
            lambda: "(%s | indent(%s%s))" % (s(), self.pick("2", "'> '", "k"), self.pick("", ", true", ", first=true, blank=true")),
            lambda: "(%s | truncate(%s%s))" % (s(), self.pick("5", "3", "9"), self.pick("", ", true", ", leeway=0", ", true, '…', 0")),
            lambda: "(%s | center(%s))" % (s(), self.pick("7", "k")),
            lambda: "(%s | tojson%s)" % (self.any(d - 1), self.pick("", "", "(indent=2)", "(ensure_ascii=true)", "(sort_keys=true)", "(separators=(',', ':'))", "(indent=1, sort_keys=true)", "(indent='--')")),
            lambda: "(%s | join(%s))" % (self.list(d - 1), s()),
            lambda: "(%s | join('-', attribute=%s))" % ("rows", self.pick("'name'", "'tag.id'")),
            lambda: "(%s | string)" % self.any(d - 1),
            lambda: "(%s | default(%s%s))" % (self.any(d - 1), s(), self.pick("", ", true")),
            lambda: "(%s if %s else %s)" % (s(), self.bool(d - 1), s()),
            lambda: "(%s if %s)" % (s(), self.bool(d - 1)),
            lambda: "('%s' | format(%s))" % (self.pick("%s", "[%5s]", "%-4s|", "%r", "%.2f", "%05d", "%x", "%+d", "%e", "%g", "%%%s", "%c", "%5.1f", "% d", "%#x", "%.3s"), self.any(d - 1)),
            lambda: "('%s' %% (%s, %s))" % (self.pick("%s-%s", "%s", "%d %s", "%r %r"), self.any(d - 1), self.any(d - 1)),
            lambda: "('%s' %% %s)" % (self.pick("%s", "%d", "x", "%(a)s", "%i"), self.any(d - 1)),
            lambda: "'%s'.format(%s, a=%s)" % (self.pick("{}", "{0}{a}", "{a!r}", "{:>5}", "{:05.1f}", "{:,}", "{:^7}|", "{0:x}", "{{}}{}", "{a[0]}", "{0.b}", "{:*<6}", "{:+}", "{:.2%}", "{:e}", "{:_}", "{:#b}", "{:.3}", "{:g}", "{:{a}}"), self.any(d - 1), self.any(d - 1)),
            lambda: "%s.split(%s)[%s]" % (self.atom(s()), self.pick("", s()), self.pick("0", "-1", "1")),
            lambda: "%s.partition(%s)[%s]" % (self.atom(s()), s(), self.pick("0", "1", "2")),
            lambda: "(%s | first)" % self.pick("words", s()),
            lambda: "(%s | last)" % self.pick("words", s()),
            lambda: "messages[%s].content" % i(),
            lambda: "messages[%s]['role']" % self.pick("0", "-1", "1"),
            lambda: self.macro_call(d),
            lambda: "strftime_now(%s)" % self.quote(self.pick("%Y-%m-%d", "%d %b %Y", "%H:%M", "%A %j")),
            lambda: "(%s | filesizeformat%s)" % (self.num(d - 1), self.pick("", "(true)")),
            lambda: "({'a': %s, 'b c': 1} | xmlattr)" % self.any(d - 1) if self.r.random() < 0.2 else "({'a': %s} | xmlattr)" % self.any(d - 1),
        ])()

    def macro_call(self, d):
        if not self.macros:
            return self.str(d - 1)
        name, n = self.r.choice(self.macros)
        args = [self.any(d - 1) for _ in range(self.r.randint(0, n + (self.r.random() < 0.1)))]
        if self.r.random() < 0.2:
            args.append("p%d=%s" % (n - 1, self.any(d - 1)))
        return "%s(%s)" % (name, ", ".join(args))

    def atom(self, text):
        return text if re.fullmatch(r"\w+|'[^'\\]*'", text) else "(" + text + ")"

    def int(self, d):
        if d <= 0:
            return self.pick("n", "k", "0", "1", "2", "-1", "7", "12", "loop.index0" if self.in_loop else "3", "big")
        i = lambda: self.mixed(d, self.int)
        return self.r.choice([
            lambda: "(%s %s %s)" % (i(), self.pick("+", "-", "*", "//", "%"), i()),
            lambda: "(%s ** %s)" % (i(), self.pick("2", "0", "3", "k")),
            lambda: "(%s | length)" % self.pick(self.str(d - 1), self.list(d - 1), "d", "messages"),
            lambda: "(%s | count)" % self.list(d - 1),
            lambda: "(%s | int%s)" % (self.any(d - 1), self.pick("", "(5)", "(base=16)", "(-1, 8)")),
            lambda: "(%s | abs)" % i(),
            lambda: "-%s" % self.atom(i()),
            lambda: "(%s | sum)" % self.pick("xs", self.list(d - 1)),
            lambda: "(rows | sum(attribute='age'))",
            lambda: "%s.%s(%s)" % (self.atom(self.str(d - 1)), self.pick("find", "rfind", "count"), self.str(d - 1)),
            lambda: "xs.%s(%s)" % (self.pick("count", "index"), i()),
            lambda: "(%s | %s)" % (self.pick("xs", self.list(d - 1)), self.pick("min", "max", "first", "last")),
            lambda: "(%s | wordcount)" % self.str(d - 1),
            lambda: "e.%s" % self.pick("n", "get", "a.b[0]"),
            lambda: "%s[%s]" % (self.pick("xs", "range(4)", "(1, 2, 3)"), i()),
        ])()

    def num(self, d):
        if d <= 0:
            return self.pick("x", "n", "1.5", "0.1", "2e3", "1e16", "3.0")
        a = lambda: self.mixed(d, self.num)
        return self.r.choice([
            lambda: self.int(d),
            lambda: "(%s %s %s)" % (a(), self.pick("+", "-", "*", "/", "//", "%"), a()),
            lambda: "(%s | round%s)" % (a(), self.pick("", "(1)", "(2, 'floor')", "(method='ceil')", "(-1)")),
            lambda: "(%s | float)" % self.any(d - 1),
            lambda: "(%s | abs)" % a(),
            lambda: "(%s ** %s)" % (a(), self.pick("2", "0.5", "-1")),
            lambda: "-%s" % self.atom(a()),
            lambda: "+%s" % self.atom(a()),
        ])()

    def list(self, d):
        if d <= 0:
            return self.pick("xs", "ys", "words", "messages", "pairs", "rows", "[]", "[1, 2, 3]", "('a', 'b')", "range(3)")
        seq = lambda: self.mixed(d, self.list)
        return self.r.choice([
            lambda: "[%s]" % ", ".join(self.any(d - 1) for _ in range(self.r.randint(0, 3))),
            lambda: "(%s,)" % ", ".join(self.any(d - 1) for _ in range(self.r.randint(1, 3))),
            lambda: "(%s + %s)" % (seq(), seq()),
            lambda: "(%s * %s)" % (seq(), self.pick("2", "k")),
            lambda: "%s[%s]" % (self.atom(seq()), self.slice(d - 1)),
            lambda: "(%s | %s)" % (seq(), self.pick("list", "sort", "reverse | list", "unique | list", "sort(reverse=true)", "sort(case_sensitive=true)")),
            lambda: "(%s | map(%s) | list)" % (seq(), self.pick("'upper'", "'string'", "'length'", "'int'", "attribute='name'", "attribute='a', default='q'", "'replace', 'a', 'b'", "'tojson'", "'default', 1")),
            lambda: "(%s | %s(%s) | list)" % (seq(), self.pick("select", "reject"), self.pick("", "'string'", "'odd'", "'gt', 1", "'in', xs", "'defined'", "'none'", "'number'")),
            lambda: "(%s | %s(%s) | list)" % (self.pick("rows", "messages", seq()), self.pick("selectattr", "rejectattr"), self.pick("'age'", "'age', 'gt', 2", "'name', 'equalto', 'Bo'", "'tag.id', 'odd'", "'role', 'in', ['user', 'system']", "'content', 'string'", "'nope', 'defined'")),
            lambda: "(%s | batch(%s%s) | list)" % (seq(), self.pick("2", "3"), self.pick("", ", 'f'")),
            lambda: "(%s | slice(%s%s) | list)" % (seq(), self.pick("2", "3"), self.pick("", ", 'f'")),
            lambda: "(%s | dictsort%s)" % (self.dict(d - 1), self.pick("", "(true)", "(by='value')", "(reverse=true)")),
            lambda: "(%s | items | list)" % self.dict(d - 1),
            lambda: "(%s.%s() | list)" % (self.atom(self.dict(d - 1)), self.pick("items", "keys", "values")),
            lambda: "%s.%s" % (self.atom(self.str(d - 1)), self.pick("split()", "split(',')", "rsplit(' ', 1)", "splitlines()", "split(None, 1)", "splitlines(true)", "rsplit()", "partition('a')", "split('a', 2)", "rsplit('a')")),
            lambda: "(rows | groupby(%s) | list)" % self.pick("'age'", "'name'", "'tag.id'", "attribute='zip', default=0"),
            lambda: "(rows | sort(attribute=%s))" % self.pick("'age'", "'name'", "'age,name'", "'tag.id', reverse=true"),
            lambda: "range(%s)" % self.pick("3", "1, 5", "5, 0, -2", "k"),
            lambda: "(%s | list)" % self.str(d - 1),
            lambda: "(%s if %s else %s)" % (seq(), self.bool(d - 1), seq()),
        ])()

    def dict(self, d):
        if d <= 0:
            return self.pick("d", "e", "{}", "{'a': 1, 'b': 'two'}", "rows[0]", "messages[0]")
        return self.r.choice([
            lambda: "{%s}" % ", ".join("%s: %s" % (self.pick("'a'", "'b'", "1", self.str(d - 1)), self.any(d - 1)) for _ in range(self.r.randint(0, 3))),
            lambda: "dict(a=%s, b=%s)" % (self.any(d - 1), self.any(d - 1)),
            lambda: "dict(%s, z=%s)" % (self.pick("pairs", "d", self.dict(d - 1)), self.any(d - 1)),
            lambda: "(%s | default({}))" % self.dict(d - 1),
            lambda: "e.a",
        ])()

    def bool(self, d):
        if d <= 0:
            return self.pick("flag", "true", "false", "missing is defined", "s == t", "n > 2", "loop.first" if self.in_loop else "not flag")
        b = lambda: self.mixed(d, self.bool)
        return self.r.choice([
            lambda: "(%s %s %s)" % (b(), self.pick("and", "or"), b()),
            lambda: "not %s" % b(),
            lambda: "(%s %s %s)" % (self.num(d - 1), self.pick("<", "<=", ">", ">=", "==", "!="), self.num(d - 1)),
            lambda: "(%s < %s <= %s)" % (self.int(d - 1), self.int(d - 1), self.int(d - 1)),
            lambda: "(%s %s %s)" % (self.any(d - 1), self.pick("==", "!="), self.any(d - 1)),
            lambda: "(%s %s %s)" % (self.str(d - 1), self.pick("in", "not in", "<", "=="), self.str(d - 1)),
            lambda: "(%s %s %s)" % (self.any(d - 1), self.pick("in", "not in"), self.pick("xs", "d", "words", self.list(d - 1), self.dict(d - 1))),
            lambda: "(%s is %s%s)" % (self.any(d - 1), self.pick("", "not "), self.pick("defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean", "true", "false", "callable", "escaped")),
            lambda: "(%s is %s)" % (self.int(d - 1), self.pick("odd", "even", "divisibleby 3", "divisibleby(2)", "eq 1", "gt 2", "in [1, 2]", "sameas 1", "lessthan(k)")),
            lambda: "(%s is %s)" % (self.str(d - 1), self.pick("lower", "upper", "eq 'a'", "in ['a', 's']", "filter", "test")),
            lambda: "%s.%s(%s)" % (self.atom(self.str(d - 1)), self.pick("startswith", "endswith"), self.pick(self.str(d - 1), "('a', 'x')", "'a', 1")),
            lambda: "%s.%s()" % (self.atom(self.str(d - 1)), self.pick("isdigit", "isalpha", "isalnum", "isspace", "isupper", "islower", "istitle", "isnumeric", "isdecimal", "isascii", "isidentifier", "isprintable")),
            lambda: "(%s)" % self.any(d - 1),
            lambda: "messages[%s].%s" % (self.pick("0", "-1"), self.pick("tool_calls", "content", "reasoning_content")),
        ])()

    def slice(self, d):
        part = lambda: self.pick("", "", "0", "1", "-1", "2", "-2", "k", "n")
        text = part() + ":" + part()
        if self.r.random() < 0.4:
            text += ":" + self.pick("", "-1", "2", "1", "-2")
        return text

    # ---- statements ----

    def tag(self, text):
        return "{%" + self.pick("", "", "", "-", "+") + " " + text + " " + self.pick("", "", "", "-", "+") + "%}"

    def text(self):
        return self.pick("", "\n", " ", "  \n", "text", "\n\n", "a\n  ", "\t", " {# c #} ", "{#- c -#}\n", "\r\n", "<|im_end|>", "{% raw %}{{ x }}{% endraw %}", "{%- raw -%} {% y {%- endraw +%}", "é")

    def name(self):
        self.fresh += 1
        return self.pick("v%d" % self.fresh, "v%d" % self.fresh, "s", "acc", "x")

    def body(self, d):
        return "".join(self.statement(d) + self.text() for _ in range(self.r.randint(1, 3)))

    def statement(self, d):
        kind = self.r.random()
        if kind < 0.35 or d <= 0:
            return "{{" + self.pick("", "", "-", "+") + " " + self.any(min(d + 1, 3)) + " " + self.pick("", "", "-") + "}}"
        return self.r.choice([self.s_if, self.s_if, self.s_for, self.s_for, self.s_for, self.s_set, self.s_set, self.s_set_block, self.s_macro, self.s_ns,
                              self.s_with, self.s_filter, self.s_call, self.s_generation, self.s_loopvars, self.s_recursive, self.s_control, self.s_print])(d - 1)

    def s_if(self, d):
        out = self.tag("if " + self.bool(2)) + self.text() + self.body(d)
        for _ in range(self.r.randint(0, 2) if self.r.random() < 0.3 else 0):
            out += self.tag("elif " + self.bool(1)) + self.body(d)
        if self.r.random() < 0.4:
            out += self.tag("else") + self.body(d)
        return out + self.tag("endif")

    def s_for(self, d):
        name = self.name()
        target, source = self.r.choice([
            (name, self.list(2)), (name, "messages"), (name + ", v0", self.pick("pairs", "d.items()", "d | items", "d | dictsort")),
            (name, self.pick("d", "s", "missing", "range(4)", "words")), ("v0, (%s, v00)" % name, "[(1, (2, 3)), (4, (5, 6))]")])
        cond = " if " + self.pick(self.bool(1), name + " is defined", name) if self.r.random() < 0.3 else ""
        out = self.tag("for %s in %s%s" % (target, source, cond)) + self.text()
        self.vars += [name, "v0"]
        self.in_loop += 1
        out += self.body(d)
        self.in_loop -= 1
        self.vars = self.vars[:-2]
        if self.r.random() < 0.25:
            out += self.tag("else") + self.body(d)
        return out + self.tag("endfor")

    def s_loopvars(self, d):
        out = self.tag("for m in %s%s" % (self.list(1), self.pick("", " if m", " if loop is defined")))
        for _ in range(self.r.randint(1, 3)):
            out += "{{ loop.%s }}," % self.pick("index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0", "previtem", "nextitem", "cycle('a', 'b')", "changed(m)", "changed(loop.index // 2)", "nope")
        return out + self.tag("else") + "none" + self.tag("endfor")

    def s_recursive(self, d):
        return self.tag("for q in [[1, [2, 3]], 4] recursive") + "{{ loop.depth }}{{ loop(q) if q is iterable else q }}" + self.pick("", "{{ loop.last }}") + self.tag("endfor")

    def s_control(self, d):
        return (self.tag("for i in range(5)") + self.body(d) + self.tag("if i %s %s" % (self.pick("==", ">", "<"), self.pick("0", "2", "4")))
                + self.tag(self.pick("break", "continue")) + self.tag("endif") + "{{ i }}" + (self.tag("else") + "E" if self.r.random() < 0.5 else "") + self.tag("endfor"))

    def s_set(self, d):
        name = self.name()
        kind = self.r.random()
        if kind < 0.15:
            out = self.tag("set %s, acc = %s" % (name, self.pick("1, 2", "pairs[0]", "'ab'", "[%s, 3]" % self.any(1))))
        else:
            out = self.tag("set %s = %s" % (name, self.any(2)))
        self.vars.append(name)
        return out

    def s_set_block(self, d):
        name = self.name()
        out = self.tag("set %s%s" % (name, self.pick("", "", " | upper", " | trim | replace('a', 'b')", " | indent(2)"))) + self.text() + self.body(d) + self.tag("endset")
        self.vars.append(name)
        return out + "{{ %s }}" % name

    def s_macro(self, d):
        n = self.r.randint(1, 3)
        params = ["p%d%s" % (i, "=" + self.any(1) if i >= n - 1 and self.r.random() < 0.6 else "") for i in range(n)]
        name = "m%d" % len(self.macros)
        saved = self.vars
        self.vars = self.vars + ["p%d" % i for i in range(n)] + self.pick([], ["varargs"], ["kwargs"])
        in_loop, self.in_loop = self.in_loop, 0
        macros, self.macros = self.macros, []
        out = self.tag("macro %s(%s)" % (name, ", ".join(params))) + self.body(d) + (self.pick("", "{{ caller() }}", "{{ caller(1) if caller }}")) + self.tag("endmacro")
        self.macros = macros + [(name, n)]
        self.vars, self.in_loop = saved, in_loop
        return out

    def s_call(self, d):
        if not self.macros:
            return self.s_macro(d)
        name, n = self.r.choice(self.macros)
        args = ", ".join(self.any(1) for _ in range(self.r.randint(0, n)))
        return self.tag("call%s %s(%s)" % (self.pick("", "", "(z)", "(z=2)"), name, args)) + self.body(d) + self.pick("", "{{ z }}") + self.tag("endcall")

    def s_ns(self, d):
        return (self.tag("set ns = namespace(a=%s, found=false)" % self.any(1)) + self.tag("for i in %s" % self.list(1))
                + self.tag("set ns.a = %s" % self.pick("ns.a ~ i", "i", "loop.index", self.any(1))) + self.tag("set ns.found = true") + self.tag("endfor") + "{{ ns.a }}{{ ns.found }}{{ ns.nope }}")

    def s_with(self, d):
        name = self.name()
        return self.tag("with %s = %s, w2 = %s" % (name, self.any(1), self.any(1))) + self.body(d) + "{{ %s }}{{ w2 }}" % name + self.tag("endwith")

    def s_filter(self, d):
        return self.tag("filter %s" % self.pick("upper", "trim", "replace('a', 'A')", "indent(3, true)", "title", "length")) + self.body(d) + self.tag("endfilter")

    def s_generation(self, d):
        return self.tag("generation") + self.body(d) + self.tag("endgeneration")

    def s_print(self, d):
        return self.tag("print %s, %s" % (self.any(1), self.any(1)))


class Scopes:
    """Templates about what a name means: few names, stored and read in every kind of scope."""

    def __init__(self, r):
        self.r = r
        self.blocks = 0

    def name(self):
        return self.r.choice("aabbcdn")

    def show(self):
        n = self.name()
        return self.r.choice(["{{ %s }}" % n, "{{ %s is defined }}" % n, "{{ %s | default('-') }}" % n, "{{ %s ~ '' }}," % n])

    def value(self):
        return self.r.choice(["1", "2", "'s'", self.name(), "%s ~ 'x'" % self.name(), "%s | default(0)" % self.name(), "n"])

    def body(self, d):
        return "".join(self.statement(d) for _ in range(self.r.randint(1, 4)))

    def statement(self, d):
        r = self.r
        if d <= 0 or r.random() < 0.35:
            return r.choice([self.show(), self.show(), "{%% set %s = %s %%}" % (self.name(), self.value())])
        n, m = self.name(), self.name()
        return r.choice([
            lambda: "{%% if %s %%}%s{%% endif %%}" % (r.choice([n, "flag", "%s is defined" % n]), self.body(d - 1)),
            lambda: "{%% if %s %%}%s{%% else %%}%s{%% endif %%}" % (n, self.body(d - 1), self.body(d - 1)),
            lambda: "{%% if %s %%}%s{%% elif %s %%}%s{%% endif %%}" % (n, self.body(d - 1), m, self.body(d - 1)),
            lambda: "{%% for %s in %s %%}%s{%% endfor %%}" % (n, r.choice(["[1, 2]", "xs", "[]", "(%s, 3)" % m]), self.body(d - 1)),
            lambda: "{%% for %s in xs if %s %%}%s{%% else %%}%s{%% endfor %%}" % (n, r.choice([n, m, "n"]), self.body(d - 1), self.body(d - 1)),
            lambda: "{%% for %s, %s in [(1, 2), (3, 4)] %%}%s{{ loop.index }}%s{%% endfor %%}" % (n, m, self.body(d - 1), self.show()),
            lambda: "{%% for %s in xs %%}%s{%% if loop.first %%}%s{%% endif %%}%s{%% endfor %%}" % (n, self.show(), self.body(d - 1), self.show()),
            lambda: "{%% for q in [1, [2]] recursive %%}{{ loop(q) if q is iterable else q }}%s{%% endfor %%}" % self.body(d - 1),
            lambda: "{%% macro %s(p%s) %%}%s{%% endmacro %%}{{ %s(%s) }}" % (n, r.choice(["", "=1", ", %s=%s" % (m, m), ", %s=%s" % (m, self.value())]), self.body(d - 1), n, r.choice(["", "1", self.value()])),
            lambda: "{%% macro mm() %%}%s{%% endmacro %%}%s{{ mm() }}" % (self.body(d - 1), self.body(d - 1)),
            lambda: "{%% macro cc() %%}[{{ caller() }}]%s{%% endmacro %%}{%% call cc() %%}%s{%% endcall %%}" % (self.show(), self.body(d - 1)),
            lambda: "{%% with %s = %s, %s = %s %%}%s{%% endwith %%}" % (n, self.value(), m, self.value(), self.body(d - 1)) if n != m else "{%% with %s = %s %%}%s{%% endwith %%}" % (n, self.value(), self.body(d - 1)),
            lambda: "{%% set %s %%}%s{%% endset %%}" % (n, self.body(d - 1)),
            lambda: "{%% filter upper %%}%s{%% endfilter %%}" % self.body(d - 1),
            lambda: "{%% generation %%}%s{%% endgeneration %%}" % self.body(d - 1),
            lambda: "{%% set %s, %s = %s, %s %%}" % (n, m, self.value(), self.value()),
            lambda: "{%% set ns = namespace(v=%s) %%}%s{%% set ns.v = %s %%}{{ ns.v }}" % (self.value(), self.body(d - 1), self.value()),
            lambda: "{%% for %s in xs %%}%s{%% if %s %%}{%% break %%}{%% endif %%}%s{%% endfor %%}" % (n, self.body(d - 1), m, self.show()),
            self.block,
        ])() + (self.show() if r.random() < 0.3 else "")

    def block(self):
        self.blocks += 1
        return "{%% block k%d %%}%s{%% endblock %%}" % (self.blocks, self.body(1))


def make_scopes(r):
    args = {k: v for k, v in {"a": 7, "b": "B", "n": 0, "d": [1]}.items() if r.random() < 0.5}
    args.update(xs=[[], [1], [0, 1, 2]][r.randint(0, 2)], flag=r.random() < 0.5)
    return Scopes(r).body(3), args


def make(seed, k):
    r = random.Random("%d/%d" % (seed, k))
    if k % 4 == 3:
        return make_scopes(r)
    maker = Maker(r)
    # Most are small: an error anywhere hides the rest.
    template = maker.text() + (maker.body(r.choice([1, 2, 2, 3])) if r.random() < 0.3 else maker.statement(r.choice([0, 1, 1, 2])))
    if r.random() < 0.03:
        cut = r.randint(0, len(template))
        template = template[:cut] + r.choice(["", "{%", "}}", "'", "(", "{{", "%}", "|"]) + template[cut + r.randint(0, 3):]
    return template, conversation(r)


# What Python prints with an address in it, or what only Python has.
UNPRINTABLE = re.compile(r"<generator object|object at 0x|<built-in method|<bound method|<function |<class |reverseiterator|<jinja2|async_generator", re.I)


def reference(template, args):
    """The text, the error, and the line of an error of the syntax: that of others is jinja2's guess."""
    try:
        return ENV.from_string(template).render(**args), None, None
    except RecursionError:
        raise
    except jinja2.TemplateSyntaxError as e:
        return None, "%s: %s" % (type(e).__name__, e), e.lineno
    except Exception as e:
        return None, "%s: %s" % (type(e).__name__, e), None


def same(want, error, line, got):
    if error is not None:
        if "error" not in got or (line is not None and got["line"] != line):
            return False
        return not error.startswith("TemplateError: ") or got["error"] == error[15:]
    if "error" in got:
        return "64 bit" in got["error"] or got["code"] == "EUNSUPPORTED" or UNPRINTABLE.search(want) is not None
    return got["text"] == want or UNPRINTABLE.search(want) is not None


METHODS = ("isupper islower isalpha isalnum isdigit isnumeric isdecimal isspace isprintable istitle upper lower title casefold "
           "swapcase capitalize").split()


def characters(proc):
    """Every character that Unicode 3.2 had, in each method that depends on what it is: newer ones differ between Pythons."""
    known = [chr(c) for c in range(32, 0x20000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs")]
    bad = 0
    for method in METHODS:
        for at in range(0, len(known), 8000):
            part = known[at:at + 8000]
            ask = {"template": "{% for c in cs %}{{ c." + method + "() }}\x01{% endfor %}", "args": json.dumps({"cs": part})}
            proc.stdin.write(json.dumps(ask) + "\n")
            proc.stdin.flush()
            got = json.loads(proc.stdout.readline())["text"].split("\x01")
            differ = [c for c, g in zip(part, got) if str(getattr(c, method)()) != g]
            bad += len(differ)
            if differ:
                print("%s: %d characters differ: %s" % (method, len(differ), " ".join("%x" % ord(c) for c in differ[:40])))
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--count", type=int, default=5000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", type=int)
    p.add_argument("--show", type=int, default=5)
    a = p.parse_args()
    print("seed=%d count=%d jinja2=%s" % (a.seed, a.count, jinja2.__version__))
    proc = subprocess.Popen([a.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    bad, errors = characters(proc) if a.only is None else 0, 0
    for k in range(a.count) if a.only is None else [a.only]:
        template, args = make(a.seed, k)
        want, error, line_no = reference(template, args)
        try:
            json.dumps(want).encode()
            (want or "").encode()
        except UnicodeEncodeError:
            continue
        proc.stdin.write(json.dumps({"template": template, "args": json.dumps(args), "now": "2026-01-02T03:04:05"}) + "\n")
        proc.stdin.flush()
        line = proc.stdout.readline()
        if not line:
            print("case %d: the program died on\n%s\n%s" % (k, template, json.dumps(args)))
            return 1
        got = json.loads(line)
        errors += error is not None
        if a.only is not None:
            print(template, "\nARGS", json.dumps(args), "\nWANT", repr(want), error, "\nGOT ", got)
        if not same(want, error, line_no, got):
            bad += 1
            if bad <= a.show:
                print("---- case %d\n%s\nWANT %r %s line %s\nGOT  %r" % (k, template, want, error or "", line_no, got.get("text", got.get("error"))))
    print("%d differ, %d are errors in both or one" % (bad, errors))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
