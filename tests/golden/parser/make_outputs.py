#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes outputs.jsonl: what models write, and what it means.

Well-formed outputs are rendered from the answer that they mean, so that neither side knows the
parser; malformed ones and corner cases are written out by hand at the end. One JSON object a line:

    name, reasoning, tools, start   the parser's options (and stops, include_stop, tool_names, types)
    in                              the output
    out                             [["text", …] | ["reasoning", …] | ["call", name, arguments,
                                    complete] | ["stop", index]], joined
    mode                            "text": no marker is a token; "ids": all are; absent: both
"""
import json
import os

CASES = []
DS = {k: f"<｜tool▁{v}｜>" for k, v in dict(
    calls="calls▁begin", calls_end="calls▁end", call="call▁begin", call_end="call▁end",
    sep="sep").items()}


def add(name, inp, out, reasoning="none", tools="none", **more):
    CASES.append(dict(name=name, reasoning=reasoning, tools=tools, **more, **{"in": inp, "out": out}))


def hermes(calls):
    return "\n".join(f'<tool_call>\n{{"name": "{n}", "arguments": {a}}}\n</tool_call>'
                     for n, a in calls)


def coder(calls):
    out = []
    for n, a in calls:
        params = "".join(
            f"<parameter={k}>\n{v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)}\n"
            "</parameter>\n" for k, v in json.loads(a).items())
        out.append(f"<tool_call>\n<function={n}>\n{params}</function>\n</tool_call>")
    return "\n".join(out)


def llama(calls):
    return "; ".join(f'{{"name": "{n}", "parameters": {a}}}' for n, a in calls)


def mistral_list(calls):
    return "[TOOL_CALLS] [" + ", ".join(
        f'{{"name": "{n}", "arguments": {a}, "id": "abcdefgh{i}"}}'
        for i, (n, a) in enumerate(calls)) + "]"


def mistral_args(calls):
    return "".join(f"[TOOL_CALLS]{n}[ARGS]{a}" for n, a in calls)


def mistral_ids(calls):
    return "".join(f"[TOOL_CALLS]{n}[CALL_ID]abcdefgh{i}[ARGS]{a}"
                   for i, (n, a) in enumerate(calls))


def deepseek_v3(calls):
    return DS["calls"] + "\n".join(
        f"{DS['call']}function{DS['sep']}{n}\n```json\n{a}\n```{DS['call_end']}"
        for n, a in calls) + DS["calls_end"]


def deepseek_v31(calls):
    return DS["calls"] + "".join(f"{DS['call']}{n}{DS['sep']}{a}{DS['call_end']}"
                                 for n, a in calls) + DS["calls_end"]


FORMATS = dict(hermes=[hermes], qwen3_coder=[coder], llama3_json=[llama],
               mistral=[mistral_list, mistral_args, mistral_ids],
               deepseek=[deepseek_v3, deepseek_v31])
THINKS = dict(hermes=("<think>", "</think>"), qwen3_coder=("<think>", "</think>"),
              llama3_json=("<think>", "</think>"), mistral=("[THINK]", "[/THINK]"),
              deepseek=("<think>", "</think>"))

ARGS = [
    '{"city": "Rome"}',
    '{}',
    '{"a": 1, "b": -2.5e3}',
    '{"q": "say \\"hi\\" {now}"}',
    '{"text": "a\\nb\\tc\\\\d", "n": null}',
    '{"list": [1, [2, {"x": []}]], "ok": true}',
    '{"city": "Zürich 🚀", "u": "\\u00e9"}',
]
# Without escapes that a rewritten value would spell differently.
CODER_ARGS = [
    '{"city": "Rome"}',
    '{}',
    '{"a": 1, "b": -2.5}',
    '{"q": "say \\"hi\\" {now}"}',
    '{"code": "if a < b:\\n    c()", "n": null}',
    '{"list": [1, [2, {"x": []}]], "ok": true}',
    '{"city": "Zürich 🚀"}',
]


def calls_of(calls):
    return [["call", n, a, True] for n, a in calls]


def well_formed():
    for tools, renders in FORMATS.items():
        begin, end = THINKS[tools]
        reasoning = "mistral" if tools == "mistral" else "think"
        args = CODER_ARGS if tools == "qwen3_coder" else ARGS
        for render in renders:
            r = render.__name__
            for i, a in enumerate(args):
                add(f"{r}/one/{i}", render([("f", a)]), calls_of([("f", a)]), tools=tools)
            for i in range(len(args) - 1):
                two = [("get_weather", args[i]), ("g2", args[i + 1])]
                add(f"{r}/two/{i}", render(two), calls_of(two), tools=tools)
            three = [("f", args[0]), ("f", args[0]), ("h", args[2])]
            add(f"{r}/three", render(three), calls_of(three), tools=tools)
            one = [("f", args[0])]
            if tools != "llama3_json":
                add(f"{r}/text-before", "Sure, let me look.\n\n" + render(one),
                    [["text", "Sure, let me look."]] + calls_of(one), tools=tools)
                add(f"{r}/text-tight", "Sure." + render(one),
                    [["text", "Sure."]] + calls_of(one), tools=tools)
                add(f"{r}/text-after", render(one) + "\nDone.",
                    calls_of(one) + [["text", "Done."]], tools=tools)
            add(f"{r}/blank-around", "\n " + render(one) + "\n", calls_of(one), tools=tools)
            add(f"{r}/reasoned", f"{begin}\nHm.\n\nRome it is.\n{end}\n\n" + render(one),
                [["reasoning", "Hm.\n\nRome it is."]] + calls_of(one), tools=tools,
                reasoning=reasoning)
            add(f"{r}/open", f"Hm.\n{end}\n\n" + render(one), [["reasoning", "Hm."]] + calls_of(one),
                tools=tools, reasoning=reasoning, start="open")
            add(f"{r}/closed", render(one), calls_of(one), tools=tools, reasoning=reasoning,
                start="closed")
            add(f"{r}/off", render(one), [["text", render(one)]], mode="text")


def reasoning():
    for name, begin, end in (("think", "<think>", "</think>"), ("mistral", "[THINK]", "[/THINK]")):
        def r(n, i, o, **more):
            add(f"{name}/{n}", i, o, reasoning=name, **more)
        r("plain", f"{begin}\nI think.\n{end}\n\nYes.", [["reasoning", "I think."], ["text", "Yes."]])
        r("tight", f"{begin}a{end}b", [["reasoning", "a"], ["text", "b"]])
        r("empty", f"{begin}\n\n{end}\n\nYes.", [["text", "Yes."]])
        r("open", f"I think.\n{end}\n\nYes.", [["reasoning", "I think."], ["text", "Yes."]],
          start="open")
        r("open-again", f"{begin}\nI think.\n{end}\nYes.", [["reasoning", "I think."], ["text", "Yes."]],
          start="open")
        r("never-closed", f"{begin}\nI think.\n", [["reasoning", "I think.\n"]])
        r("never-closed-open", "I think", [["reasoning", "I think"]], start="open")
        r("none", "Yes.\n\nNo.\n", [["text", "Yes.\n\nNo.\n"]])
        r("closed", "Yes.", [["text", "Yes."]], start="closed")
        r("closed-marker", f"{begin}x{end}", [["text", f"{begin}x{end}"]], start="closed")
        r("late", f"Yes. {begin}x{end}", [["text", f"Yes. {begin}x{end}"]])
        r("twice", f"{begin}a{end}b{begin}c", [["reasoning", "a"], ["text", f"b{begin}c"]])
        r("blank-first", f"\n {begin}a{end}b", [["reasoning", "a"], ["text", "b"]])
        r("almost", f"{begin[:-1]} x", [["text", f"{begin[:-1]} x"]])
        r("almost-end", f"{begin}a{end[:-1]} b{end}c", [["reasoning", f"a{end[:-1]} b"], ["text", "c"]])
        r("breaks", f"{begin}\n\na\n\n\nb\n\n{end}\n\n\nc\n\n", [["reasoning", "a\n\n\nb"],
                                                                  ["text", "c\n\n"]])
        r("unicode", f"{begin}é🚀{end}日本", [["reasoning", "é🚀"], ["text", "日本"]])
        r("stop-in-reasoning", f"{begin}a STOP b{end}c STOP d",
          [["reasoning", "a STOP b"], ["text", "c "], ["stop", 0]], stops=["STOP"])
        r("only-blank", " \n ", [["text", " \n "]])


def stops():
    def s(n, i, o, stops, **more):
        add(f"stop/{n}", i, o, stops=stops, **more)
    s("simple", "one two three", [["text", "one "], ["stop", 0]], ["two"])
    s("at-start", "two three", [["stop", 0]], ["two"])
    s("at-end", "one two", [["text", "one "], ["stop", 0]], ["two"])
    s("inside-word", "brown fox", [["text", "br"], ["stop", 0]], ["own fox"])
    s("none", "one tw", [["text", "one tw"]], ["two"])
    s("prefix-twice", "ENDEND_OF", [["text", "END"], ["stop", 0]], ["END_OF"])
    s("prefix-lives", "aab aaab", [["text", "aab "], ["stop", 0]], ["aaab"])
    s("self-overlap", "ababac", [["text", "ab"], ["stop", 0]], ["abac"])
    s("shorter-first", "xabc", [["text", "x"], ["stop", 0]], ["ab", "abc"])
    s("longer-first", "xabc", [["text", "x"], ["stop", 1]], ["abc", "ab"])
    s("same-end", "xabc", [["text", "x"], ["stop", 1]], ["bc", "abc"])
    s("earliest-end", "abcd", [["text", "a"], ["stop", 1]], ["abcd", "bc"])
    s("two-lines", "a\nAlice: b", [["text", "a"], ["stop", 0]], ["\n", "Alice:"])
    s("second", "a Alice: b\n", [["text", "a "], ["stop", 1]], ["\n", "Alice:"])
    s("emoji", "hi 😊 there", [["text", "hi "], ["stop", 0]], ["😊"])
    s("emoji-near", "hi 😀 there", [["text", "hi 😀 there"]], ["😊"])
    s("half-char", "é è", [["text", "é "], ["stop", 0]], ["è"])
    s("cjk", "你好世界", [["text", "你好"], ["stop", 0]], ["世界"])
    s("include", "one two three", [["text", "one two"], ["stop", 0]], ["two"], include_stop=True)
    s("include-longest", "xabc", [["text", "xabc"], ["stop", 1]], ["bc", "abc"], include_stop=True)
    s("many", "a63;", [["text", "a"], ["stop", 63]], [f"{i};" for i in range(64)])
    s("duplicate", "xyz", [["text", "x"], ["stop", 0]], ["yz", "yz"])
    s("break-and-think", "<think>\na\n</think>\n\nb\nc", [["reasoning", "a"], ["text", "b"], ["stop", 0]],
      ["\n"], reasoning="think")
    s("like-think", "<th<think>", [["text", "<th<think>"]], ["<thx"], reasoning="think")
    s("like-marker", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
      [["call", "f", "{}", True]], ["<tool", "</tool_call>"], tools="hermes")
    s("in-arguments", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"STOP\"}}\n</tool_call>\nx STOP",
      [["call", "f", "{\"a\": \"STOP\"}", True], ["text", "x "], ["stop", 0]], ["STOP"], tools="hermes")
    s("not-across", "ab<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>cd",
      [["text", "ab"], ["call", "f", "{}", True], ["text", "cd"]], ["abcd", "bc"], tools="hermes")
    s("in-malformed", "a <tool_call>no", [["text", "a "], ["stop", 0]], ["<tool_call>n"],
      tools="hermes")
    s("break-before-call", "a\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
      [["text", "a"], ["stop", 0]], ["\n"], tools="hermes")


def malformed():
    def h(n, i, o, **more):
        add(f"hermes/{n}", i, o, tools="hermes", **more)
    for n, body in (("no-json", "hello"), ("array", "[1]"), ("no-name", '{"arguments": {}}'),
                    ("name-number", '{"name": 5}'), ("empty-name", '{"name": ""}'),
                    ("single-quotes", "{'name': 'f'}"), ("empty", ""), ("bare", "{}"),
                    ("args-number", '{"name": "f", "arguments": 5}'),
                    ("args-string-no-json", '{"name": "f", "arguments": "x"}'),
                    ("raw-break-in-name", '{"name": "f\n"}'), ("two-names", '{"name": "f", "name": "g"}')):
        text = f"<tool_call>\n{body}\n</tool_call>"
        h(f"bad/{n}", text, [["text", text]])
        h(f"bad-in-text/{n}", f"a\n\n{text}\nb", [["text", f"a\n\n{text}\nb"]])
    good = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    h("bad-then-good", f"<tool_call>x {good}", [["text", "<tool_call>x "], ["call", "f", "{}", True]])
    h("good-then-bad", f"{good}<tool_call>x", [["call", "f", "{}", True], ["text", "<tool_call>x"]])
    h("bad-in-reasoning", "<think>use <tool_call> now</think>ok",
      [["reasoning", "use <tool_call> now"], ["text", "ok"]], reasoning="think")
    h("good-then-bad-no-reasoning", f"<think>a{good}<tool_call>x</think>",
      [["reasoning", "a"], ["call", "f", "{}", True], ["text", "<tool_call>x"]],
      reasoning="think")
    h("in-reasoning", f"<think>\nI call.\n{good}", [["reasoning", "I call."], ["call", "f", "{}", True]],
      reasoning="think")
    h("no-break-between", good + good, [["call", "f", "{}", True]] * 2)
    h("no-end-marker", '<tool_call>{"name": "f", "arguments": {}}', [["call", "f", "{}", True]])
    h("text-for-end-marker", '<tool_call>{"name": "f", "arguments": {}} ok',
      [["call", "f", "{}", True], ["text", " ok"]])
    h("marker-in-string", '<tool_call>{"name": "f", "arguments": {"a": "</tool_call><tool_call>"}}</tool_call>',
      [["call", "f", '{"a": "</tool_call><tool_call>"}', True]])
    h("args-first", '<tool_call>{"arguments": {"a": [1]}, "name": "f"}</tool_call>',
      [["call", "f", '{"a": [1]}', True]])
    h("no-args", '<tool_call>{"name": "f"}</tool_call>', [["call", "f", "{}", True]])
    h("null-args", '<tool_call>{"name": "f", "arguments": null}</tool_call>', [["call", "f", "{}", True]])
    h("parameters", '<tool_call>{"name": "f", "parameters": {"a": 1}}</tool_call>',
      [["call", "f", '{"a": 1}', True]])
    h("args-string", '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"b\\"}"}</tool_call>',
      [["call", "f", '{"a": "b"}', True]])
    h("args-empty-string", '<tool_call>{"name": "f", "arguments": ""}</tool_call>',
      [["call", "f", "{}", True]])
    h("more-keys", '<tool_call>{"id": 7, "type": "function", "name": "f", "x": [{"name": "g"}], '
      '"arguments": {"name": "h"}, "y": -1.5}</tool_call>', [["call", "f", '{"name": "h"}', True]])
    h("escaped-name", '<tool_call>{"name": "g\\u00e9\\"", "arguments": {}}</tool_call>',
      [["call", 'gé"', "{}", True]])
    h("blank-everywhere", '<tool_call> \n { "name" : "f" , "arguments" : { "a" : 1 } } \n </tool_call> ',
      [["call", "f", '{ "a" : 1 }', True]])
    h("cut-before-name", '<tool_call>\n{"name": "f', [["text", '<tool_call>\n{"name": "f']])
    h("cut-in-args", '<tool_call>\n{"name": "f", "arguments": {"a": "b',
      [["call", "f", '{"a": "b', False]])
    h("cut-behind-args", '<tool_call>\n{"name": "f", "arguments": {"a": "b"}',
      [["call", "f", '{"a": "b"}', True]])
    h("missing-brace", '<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call>x',
      [["call", "f", '{"a": 1}', True], ["text", "x"]])
    h("broken-in-args", '<tool_call>{"name": "f", "arguments": {"a": b}} more',
      [["call", "f", '{"a": ', False], ["text", "b}} more"]])
    h("break-in-string", '<tool_call>{"name": "f", "arguments": {"a": "x\ny"}}',
      [["call", "f", '{"a": "x', False], ["text", 'y"}}']])
    h("stray-end", "a</tool_call>b", [["text", "a</tool_call>b"]])
    h("almost", "a <tool_cal b", [["text", "a <tool_cal b"]])
    h("less-than", "if a<b then </b>", [["text", "if a<b then </b>"]])
    h("trailing-breaks", "text\n\n", [["text", "text\n\n"]])
    h("double-open", '<tool_call><tool_call>{"name": "f", "arguments": {}}</tool_call>',
      [["text", "<tool_call>"], ["call", "f", "{}", True]])

    def c(n, i, o, **more):
        add(f"coder/{n}", i, o, tools="qwen3_coder", **more)
    def one(params):
        return f"<tool_call>\n<function=f>\n{params}</function>\n</tool_call>"
    c("typed-string", one("<parameter=a>\n42\n</parameter>\n"), [["call", "f", '{"a": "42"}', True]],
      types={"a": "string"})
    c("untyped-number", one("<parameter=a>\n42\n</parameter>\n"), [["call", "f", '{"a": 42}', True]])
    c("typed-json", one("<parameter=a>\n[1, 2]\n</parameter>\n"), [["call", "f", '{"a": [1, 2]}', True]],
      types={"a": "json"})
    c("typed-json-bad", one("<parameter=a>\n[1, 2\n</parameter>\n"),
      [["call", "f", '{"a": "[1, 2"}', True]], types={"a": "json"})
    c("number-like", one("<parameter=a>\n1.2.3\n</parameter>\n"), [["call", "f", '{"a": "1.2.3"}', True]])
    c("true-like", one("<parameter=a>\ntrue story\n</parameter>\n"),
      [["call", "f", '{"a": "true story"}', True]])
    c("quoted", one('<parameter=a>\n"x"\n</parameter>\n'), [["call", "f", '{"a": "\\"x\\""}', True]])
    c("empty-value", one("<parameter=a>\n\n</parameter>\n"), [["call", "f", '{"a": ""}', True]])
    c("blank-kept", one("<parameter=a>\n\n  x\n\n</parameter>\n"),
      [["call", "f", '{"a": "\\n  x\\n"}', True]])
    c("tight", "<tool_call><function=f><parameter=a>x</parameter></function></tool_call>",
      [["call", "f", '{"a": "x"}', True]])
    c("no-outer", "<function=f>\n<parameter=a>\nx\n</parameter>\n</function>",
      [["call", "f", '{"a": "x"}', True]])
    c("marker-in-value", one("<parameter=a>\n<b></function><parameter=c>\n</parameter>\n"),
      [["call", "f", '{"a": "<b></function><parameter=c>"}', True]])
    c("control", one("<parameter=a>\na\tb\\c\"d\n</parameter>\n"),
      [["call", "f", '{"a": "a\\tb\\\\c\\"d"}', True]])
    c("function-not-closed", "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</tool_call>ok",
      [["call", "f", '{"a": "x"}', True], ["text", "ok"]])
    c("bad/json", '<tool_call>\n{"name": "f"}\n</tool_call>',
      [["text", '<tool_call>\n{"name": "f"}\n</tool_call>']])
    c("bad/no-name", "<tool_call>\n<function=>\n</tool_call>",
      [["text", "<tool_call>\n<function=>\n</tool_call>"]])
    c("bad/name-broken", "<function=f\n>", [["text", "<function=f\n>"]])
    c("bad/body", "<function=f>\nno</function>", [["call", "f", "", False], ["text", "no</function>"]])
    c("cut-in-value", "<tool_call>\n<function=f>\n<parameter=a>\nxy",
      [["call", "f", '{"a": "xy', False]])
    c("cut-in-name", "<tool_call>\n<function=f", [["text", "<tool_call>\n<function=f"]])
    c("double-open", "<tool_call>\n<tool_call>\n<function=f>\n</function>\n</tool_call>",
      [["text", "<tool_call>"], ["call", "f", "{}", True]])

    def l(n, i, o, **more):
        add(f"llama/{n}", i, o, tools="llama3_json", **more)
    l("python-tag", '<|python_tag|>{"name": "f", "parameters": {}}', [["call", "f", "{}", True]])
    l("python-code", '<|python_tag|>print(1)', [["text", "<|python_tag|>print(1)"]])
    l("answer-json", '{"city": "Rome", "n": 5}', [["text", '{"city": "Rome", "n": 5}']])
    l("answer-with-name", '{"name": "Bob", "age": 5}', [["text", '{"name": "Bob", "age": 5}']])
    l("unknown-tool", '{"name": "g", "parameters": {}}', [["text", '{"name": "g", "parameters": {}}']],
      tool_names=["f"])
    l("known-tool", '{"name": "f", "parameters": {}}', [["call", "f", "{}", True]],
      tool_names=["a", "f"])
    l("not-first", 'Well: {"name": "f", "parameters": {}}',
      [["text", 'Well: {"name": "f", "parameters": {}}']])
    l("type", '{"type": "function", "name": "f", "parameters": {"a": 1}}',
      [["call", "f", '{"a": 1}', True]])
    l("text-after", '{"name": "f", "parameters": {}} thanks', [["call", "f", "{}", True],
                                                               ["text", " thanks"]])
    l("half", '{"name": "f", "param', [["text", '{"name": "f", "param']])
    l("second-broken", '{"name": "f", "parameters": {}}; {x', [["call", "f", "{}", True],
                                                               ["text", "; {x"]])
    l("semicolon-text", '{"name": "f", "parameters": {}};', [["call", "f", "{}", True]])

    def m(n, i, o, **more):
        add(f"mistral/{n}", i, o, tools="mistral", **more)
    m("object", '[TOOL_CALLS]{"name": "f", "arguments": {}}', [["call", "f", "{}", True]])
    m("no-args-marker", '[TOOL_CALLS]f{"a": 1}', [["call", "f", '{"a": 1}', True]])
    m("args-blank", '[TOOL_CALLS]f[ARGS] {"a": 1}', [["call", "f", '{"a": 1}', True]])
    m("bad/args", '[TOOL_CALLS]f[ARGS]x', [["text", "[TOOL_CALLS]f[ARGS]x"]])
    m("bad/name", '[TOOL_CALLS]f g', [["text", "[TOOL_CALLS]f g"]])
    m("bad/list", '[TOOL_CALLS] [1]', [["text", "[TOOL_CALLS] [1]"]])
    m("bad/empty-list", '[TOOL_CALLS][]', [["text", "[TOOL_CALLS][]"]])
    m("bad/cut", '[TOOL_CALLS]f[AR', [["text", "[TOOL_CALLS]f[AR"]])
    m("cut-in-list", '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"na',
      [["call", "f", "{}", True], ["text", ', {"na']])
    m("brackets", "see [1] and [TOOL", [["text", "see [1] and [TOOL"]])

    def d(n, i, o, **more):
        add(f"deepseek/{n}", i, o, tools="deepseek", **more)
    d("tool-named-function", f"{DS['calls']}{DS['call']}function{DS['sep']}{{}}{DS['call_end']}{DS['calls_end']}",
      [["call", "function", "{}", True]])
    d("no-outer", f"{DS['call']}f{DS['sep']}{{}}{DS['call_end']}", [["call", "f", "{}", True]])
    d("no-ends", f"{DS['calls']}{DS['call']}f{DS['sep']}{{}}", [["call", "f", "{}", True]])
    d("bad/no-call", f"{DS['calls']}x", [["text", f"{DS['calls']}x"]])
    d("bad/no-name", f"{DS['call']}{DS['sep']}{{}}", [["text", f"{DS['call']}{DS['sep']}{{}}"]])
    d("bad/no-object", f"{DS['call']}f{DS['sep']}x", [["text", f"{DS['call']}f{DS['sep']}x"]])
    d("bad/cut", f"a{DS['call']}f", [["text", f"a{DS['call']}f"]])
    d("cut-in-args", f"{DS['call']}f{DS['sep']}{{\"a\"{DS['call_end']}b",
      [["call", "f", '{"a"', False], ["text", f"{DS['call_end']}b"]])
    d("almost", "<｜tool｜>", [["text", "<｜tool｜>"]])


def harmony():
    def g(n, i, o, **more):
        add(f"harmony/{n}", i, o, reasoning="harmony", tools=more.pop("tools", "harmony"), **more)
    think = "<|channel|>analysis<|message|>We add.\n<|end|>"
    final = "<|start|>assistant<|channel|>final<|message|>It is 4."
    call = ('<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>'
            '{"a": 1}<|call|>')
    g("both", think + final + "<|return|>", [["reasoning", "We add.\n"], ["text", "It is 4."]])
    g("no-return", think + final, [["reasoning", "We add.\n"], ["text", "It is 4."]])
    g("final-only", "<|channel|>final<|message|>Hi\n\n", [["text", "Hi\n\n"]])
    g("call", think + call, [["reasoning", "We add.\n"], ["call", "f", '{"a": 1}', True]])
    g("call-no-end", think + call[:-8], [["reasoning", "We add.\n"], ["call", "f", '{"a": 1}', True]])
    g("recipient-first", "<|start|>assistant to=functions.f<|channel|>commentary<|message|>{}<|call|>",
      [["call", "f", "{}", True]], start="closed")
    g("recipient-at-once", " to=functions.f<|channel|>commentary<|message|>{}<|call|>",
      [["call", "f", "{}", True]])
    g("two-calls", '<|channel|>commentary to=functions.f<|message|>{}<|call|>' + call,
      [["call", "f", "{}", True], ["call", "f", '{"a": 1}', True]])
    g("preamble", "<|channel|>commentary<|message|>Looking.<|end|>" + call,
      [["text", "Looking."], ["call", "f", '{"a": 1}', True]])
    g("two-thoughts", think + "<|start|>assistant" + think + final,
      [["reasoning", "We add.\nWe add.\n"], ["text", "It is 4."]])
    g("plain", "Hello there", [["text", "Hello there"]])
    g("plain-odd", " today", [["text", " today"]])
    g("open", "We add.<|end|>" + final, [["reasoning", "We add."], ["text", "It is 4."]], start="open")
    g("closed", "It is 4.<|return|>", [["text", "It is 4."]], start="closed")
    g("cut-in-header", think + "<|start|>assist", [["reasoning", "We add.\n"]])
    g("cut-in-thought", "<|channel|>analysis<|message|>We", [["reasoning", "We"]])
    g("cut-in-args", '<|channel|>commentary to=functions.f<|message|>{"a', [["call", "f", '{"a', False]])
    g("bad-args", "<|channel|>commentary to=functions.f<|message|>no<|call|>", [["text", "no"]])
    g("marker-in-string", '<|channel|>commentary to=functions.f<|message|>{"a": "<|end|>"}<|call|>',
      [["call", "f", '{"a": "<|end|>"}', True]])
    g("no-tools", "<|channel|>commentary to=functions.f<|message|>{}<|call|>", [["text", "{}"]],
      tools="none")
    g("stop", think + final + " STOP more",
      [["reasoning", "We add.\n"], ["text", "It is 4. "], ["stop", 0]], stops=["STOP"])


def plain():
    add("plain/empty", "", [])
    add("plain/text", "Hello\n\nWörld 🚀\n", [["text", "Hello\n\nWörld 🚀\n"]])
    add("plain/markers", "<think>a</think><tool_call>[TOOL_CALLS]{}",
        [["text", "<think>a</think><tool_call>[TOOL_CALLS]{}"]])


def main():
    for part in (plain, well_formed, reasoning, stops, malformed, harmony):
        part()
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "outputs.jsonl")
    with open(path, "w", encoding="utf-8") as f:
        for c in CASES:
            f.write(json.dumps(c, ensure_ascii=False) + "\n")
    print(f"{len(CASES)} cases")


main()
