/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Jinja of chat templates, feature by feature, in the order of Jinja's own documentation; then
 * what only Echelon has: origins, limits, error positions, and what a template says of itself.
 * Every expected text is what jinja2 gives.
 */
#include "tests/unit/test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/template.h"

static const char ARGS[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
                           "\"assistant\", \"content\": \"Yo\"}],"
                           " \"n\": 7, \"x\": 2.5, \"s\": \"a b  c\", \"t\": \"Grüße\", \"xs\": "
                           "[3, 1, 2], \"d\": {\"b\": 1, \"a\": [1, 2], \"items\": 9},"
                           " \"none\": null, \"yes\": true, \"html\": \"<b>&'\", \"users\": "
                           "[{\"name\": \"bo\", \"age\": 3}, {\"name\": \"Al\", \"age\": 2}],"
                           " \"bos_token\": \"<s>\", \"big\": 123456789012345678901234567890}";

static ech_status render(const char *const source, ech_rendered *const r, ech_error *const err)
{
    ech_template *t = NULL;
    ech_template_options opts;
    ech_template_options_default(&opts);
    opts.now = "2026-01-02T03:04:05";
    ech_status rc = ech_template_compile(source, strlen(source), &t, err);
    if (rc == ECH_OK) rc = ech_template_render(t, ARGS, sizeof ARGS - 1, &opts, r, err);
    ech_template_destroy(&t);
    return rc;
}

static void expect(const char *const source, const char *const text)
{
    ech_rendered r = { 0 };
    ech_error err = { 0 };
    if (render(source, &r, &err) != ECH_OK) fail_msg("%s\n%s", source, err.text);
    if (strcmp(r.text, text) != 0) fail_msg("%s\ngot  [%s]\nwant [%s]", source, r.text, text);
    ech_rendered_release(&r);
}

static void expect_error(const char *const source, const ech_status code, const char *const part)
{
    ech_rendered r = { 0 };
    ech_error err = { 0 };
    const ech_status rc = render(source, &r, &err);
    if (rc == ECH_OK) fail_msg("%s\nno error, but [%s]", source, r.text);
    if (rc != code || strstr(err.text, part) == NULL)
        fail_msg("%s\ngot %s: %s", source, ech_status_name(rc), err.text);
}

/* Rows of template, text. */
#define ROWS(name, ...)                                                                            \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        static const char *const rows[][2] = { __VA_ARGS__ };                                      \
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {                                \
            expect(rows[i][0], rows[i][1]);                                                        \
        }                                                                                          \
    }

ROWS(variables_are_looked_up, { "{{ n }}|{{ nope }}|{{ none }}|{{ yes }}", "7||None|True" },
     { "{{ d.b }}{{ d['b'] }}{{ d.a[1] }}{{ d.a.0 }}{{ messages[-1].role }}", "1121assistant" },
     { "{{ d['items'] }}{{ d.items() | list | length }}", "93" },
     { "{{ d.nope }}|{{ d.nope is defined }}|{{ xs[9] }}|{{ n.nope }}", "|False||" },
     { "{{ n.real }}{{ x.is_integer() }}{{ 'a'['upper']() }}", "7FalseA" },
     { "{{ big }}|{{ big | tojson }}|{{ [big] }}",
       "123456789012345678901234567890|123456789012345678901234567890|["
       "123456789012345678901234567890]" })

ROWS(white_space_is_controlled, { "a\n", "a" }, { "a\n\n", "a\n" }, { "a\r\nb\rc", "a\nb\nc" },
     { "  {% if yes %}\n  x\n  {% endif %}\ny", "  x\ny" },
     { "a  {%- if yes -%}  b  {%- endif -%}  c", "abc" },
     { "  {%+ if yes +%}\nx{% endif %}", "  \nx" }, { "a {{- n -}} b", "a7b" },
     { "{{ n }}\nb", "7\nb" }, { "a {# c #}\nb", "a b" }, { "a {#- c -#} b", "ab" },
     { "  {# c #}\nb", "b" }, { "{% raw %}{{ x }}{% endraw %}", "{{ x }}" },
     { "{%- raw -%}  {% a %}  {%- endraw -%}  b", "{% a %}b" },
     { "{{ '{{' }}{{ \"}}\" }}{{ {'a': {}}['a'] }}", "{{}}{}" })

ROWS(
    loops_know_where_they_are,
    { "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ "
      "loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
      "1032TrueFalse3 2121FalseFalse3 3210FalseTrue3 " },
    { "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
      "<3>1 3<1>2 1<2> " },
    { "{% for x in xs %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 2) }}{% endfor %}",
      "aTruebTrueaFalse" },
    { "{% for x in [] %}x{% else %}none{% endfor %}", "none" },
    { "{% for x in xs if x > 1 %}{{ x }}{{ loop.length }}{{ loop.last }}{% endfor %}",
      "32False22True" },
    { "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "b=1;a=[1, 2];items=9;" },
    { "{% for c in t %}{{ c }}.{% endfor %}", "G.r.ü.ß.e." },
    { "{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{{ loop.depth "
      "}}{% endfor %}",
      "11223321" },
    { "{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% "
      "endif %}{{ x }}{% endfor %}",
      "023" },
    { "{% for x in xs %}{% continue %}{% else %}e{% endfor %}", "e" },
    { "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123" },
    { "{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
      "1231 1232 1233 " },
    { "{% for m in messages %}{{ m.role }}:{{ m['content'] }} {% endfor %}",
      "user:Hi assistant:Yo " })

ROWS(branches_choose, { "{% if none %}a{% elif n > 5 %}b{% else %}c{% endif %}", "b" },
     { "{{ 'a' if yes else 'b' }}{{ 'a' if none }}|{{ 'x' if none else 'y' if none else 'z' }}",
       "a|z" },
     { "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' in 'abc' }}{{ 4 not in xs }}{{ not yes }}{{ not 4 in "
       "xs }}",
       "TrueFalseTrueTrueFalseTrue" },
     { "{{ none or 'x' }}{{ yes and n }}{{ '' and nope.a }}", "x7" })

ROWS(assignments_have_scopes,
     { "{% set a = 1 %}{% for x in xs %}{% set a = a + 1 %}{{ a }}{% endfor %}{{ a }}", "2221" },
     { "{% set ns = namespace(a=1) %}{% for x in xs %}{% set ns.a = ns.a + x %}{% endfor %}{{ ns.a "
       "}}",
       "7" },
     { "{% if yes %}{% set a = 1 %}{% endif %}{{ a }}", "1" },
     { "{% if none %}{% set n = 1 %}{% endif %}{{ n }}", "7" },
     { "{% for x in xs %}{% if loop.first %}{% set n = 1 %}{% endif %}{{ n }}{% endfor %}", "177" },
     { "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (a, b) = (b, a) %}{{ a }}{{ b }}", "1221" },
     { "{% set a %}x{{ n }}{% endset %}{{ a }}{% set b | upper | replace('A', '_') %}a{{ a }}{% "
       "endset %}{{ b }}",
       "x7_X7" },
     { "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}", "17" },
     { "{% block z %}{{ n }}{% endblock %}{% set q = 1 %}{% block y %}{{ q }}{% endblock %}",
       "71" },
     { "{% filter upper %}a{{ s }}{% endfilter %}", "AA B  C" },
     { "{% generation %}g{{ n }}{% endgeneration %}", "g7" })

ROWS(macros_are_functions,
     { "{% macro m(a, b=2) %}{{ a }}-{{ b }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) "
       "}}{{ m() }}",
       "1-2;1-3;4-5;-2;" },
     { "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, z=3) }}",
       "(1, 2){'z': 3}" },
     { "{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) m(4) %}{{ y * 2 }}{% endcall %}",
       "<8>" },
     { "{% macro m() %}{{ caller() if caller else 'no' }}{% endmacro %}{{ m() }}{% call m() "
       "%}yes{% endcall %}",
       "noyes" },
     { "{% macro f(k) %}{{ k }}{{ f(k - 1) if k > 0 }}{% endmacro %}{{ f(3) }}", "3210" },
     { "{% macro m() %}{{ z }}{% endmacro %}{% set z = 1 %}{{ m() }}{% set z = 2 %}{{ m() }}",
       "12" },
     { "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m.name }}{{ m.arguments }}",
       "11m('a', 'b')" })

ROWS(operators_are_pythons,
     { "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 "
       "}} {{ 5.5 // 2 }} {{ -5.5 % 2 }}",
       "3 -4 -2 2 3.5 1024 0.5 2.0 0.5" },
     { "{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ -2 | abs }} {{ 1 ~ 2 * 3 }} {{ 'a' ~ none ~ 1.0 }}",
       "7 9 2 16 aNone1.0" },
     { "{{ 'ab' * 2 }}{{ [1] * 2 }}{{ [1] + [2] }}{{ (1,) + (2,) }}{{ true + true }}",
       "abab[1, 1][1, 2](1, 2)2" },
     { "{{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1.0 }} {{ 123456789.125 "
       "}} {{ 1e22 }} {{ -0.0 }}",
       "0.30000000000000004 1e+16 1000000000000000.0 1e-05 0.0001 1.0 123456789.125 1e+22 -0.0" },
     { "{{ 1 == 1.0 == true }}{{ 'a' == 'a' }}{{ [1, {'a': 2}] == [1, {'a': 2}] }}{{ none == false "
       "}}{{ nope == nada }}",
       "TrueTrueTrueFalseTrue" },
     { "{{ 0x1f }} {{ 0b11 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5e1 }}", "31 3 15 1000 105.0" },
     { "{{ xs[1:] }}{{ xs[::-1] }}{{ xs[:-1] }}{{ 'abcdef'[1:5:2] }}{{ t[2:4] }}{{ t[::-1] }}{{ "
       "'abc'[5:] }}",
       "[1, 2][2, 1, 3][3, 1]bdüßeßürG" },
     { "{{ [1, 'a', none, true, 1.5, {'k': (1,)}, [], ()] }}",
       "[1, 'a', None, True, 1.5, {'k': (1,)}, [], ()]" },
     { "{{ ['it\\'s', '\"', '\\'\"', '\\n\\t\\\\', '\\x00', 'é'] }}",
       "[\"it's\", '\"', '\\'\"', '\\n\\t\\\\', '\\x00', 'é']" },
     { "{{ range(3) }}{{ range(1, 9, 3) | list }}{{ range(5)[1:3] | list }}{{ 3 in range(5) }}",
       "range(0, 3)[1, 4, 7][1, 2]True" })

ROWS(
    strings_have_methods,
    { "{{ s.upper() }}{{ t.upper() }}{{ 'ΑΣ'.lower() }}{{ 'hello world'.title() }}{{ "
      "'aBC'.capitalize() }}{{ 'aB'.swapcase() }}",
      "A B  CGRÜSSEαςHello WorldAbcAb" },
    { "{{ s.split() }}{{ s.split(' ') }}{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ "
      "'a\nb\r\nc'.splitlines() }}",
      "['a', 'b', 'c']['a', 'b', '', 'c']['a', 'b,c']['a,b', 'c']['a', 'b', 'c']" },
    { "[{{ '  a '.strip() }}][{{ '  a '.lstrip() }}][{{ '  a '.rstrip() }}][{{ 'xxaxx'.strip('x') "
      "}}][{{ 'ab'.removeprefix('a') }}]",
      "[a][a ][  a][a][b]" },
    { "{{ 'abcabc'.replace('b', 'X') }}{{ 'aaa'.replace('a', 'b', 2) }}{{ 'ab'.replace('', '-') }}",
      "aXcaXcbba-a-b-" },
    { "{{ t.find('ß') }}{{ t.count('ß') }}{{ 'abcb'.rfind('b') }}{{ 'a'.startswith(('x', 'a')) "
      "}}{{ 'abc'.endswith('c') }}",
      "313TrueTrue" },
    { "{{ ', '.join(['a', 'b']) }}|{{ 'a'.center(5) }}|{{ 'a'.ljust(3, '.') }}|{{ 'a'.rjust(3) "
      "}}|{{ '-5'.zfill(4) }}",
      "a, b|  a  |a..|  a|-005" },
    { "{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'abc'.partition('x') }}",
      "('a', '=', 'b=c')('a=b', '=', 'c')('abc', '', '')" },
    { "{{ '12'.isdigit() }}{{ 'a1'.isalpha() }}{{ ' '.isspace() }}{{ 'Ab'.istitle() }}{{ "
      "''.isupper() }}",
      "TrueFalseTrueTrueFalse" },
    /* Beyond general categories: Roman numerals, modifier letters, digits in circles. */
    { "{{ 'Ⅳ'.isupper() }}{{ 'ʰ'.islower() }}{{ 'ⅳⒶ'.swapcase() }}{{ 'Ⓐⓑ'.istitle() }}{{ "
      "'⑴⓪'.isdigit() }}{{ '①'.isdecimal() }}{{ '四十'.isnumeric() }}{{ '目'.isnumeric() }}",
      "TrueTrueⅣⓐTrueTrueFalseTrueFalse" },
    { "{{ '%s is %d, %.2f, %r, %5s|%-5s|%x %%' % ('a', 5, 1.5, 'b', 'c', 'd', 255) }}",
      "a is 5, 1.50, 'b',     c|d    |ff %" },
    { "{{ '{} {1} {a!r:>5}'.format(1, 2, a='x') if false else '{0} {1} {a!r:>5}'.format(1, 2, "
      "a='x') }}{{ '{:,} {:.1%} {:08.3f} {:^5}|'.format(1234567, 0.25, 3.14159, 'ab') }}",
      "1 2   'x'1,234,567 25.0% 0003.142  ab  |" })

ROWS(filters_are_jinjas,
     { "{{ xs | sort }}{{ xs | sort(reverse=true) }}{{ ['b', 'A'] | sort }}{{ ['b', 'A'] | "
       "sort(case_sensitive=true) }}{{ users | sort(attribute='age') | map(attribute='name') | "
       "list }}",
       "[1, 2, 3][3, 2, 1]['A', 'b']['A', 'b']['Al', 'bo']" },
     { "{{ xs | first }}{{ xs | last }}{{ [] | first }}{{ xs | length }}{{ xs | sum }}{{ xs | min "
       "}}{{ xs | max }}{{ xs | join('-') }}",
       "3236133-1-2" },
     { "{{ xs | reverse | list }}{{ 'abc' | reverse }}{{ [1, 1, 2] | unique | list }}{{ 'aA' | "
       "unique | list }}",
       "[2, 1, 3]cba[1, 2]['a']" },
     { "{{ xs | map('string') | list }}{{ xs | select('gt', 1) | list }}{{ xs | reject('odd') | "
       "list }}{{ users | selectattr('age', 'gt', 2) | map(attribute='name') | join }}",
       "['3', '1', '2'][3, 2][2]bo" },
     { "{{ [1, 2, 3] | batch(2) | list }}{{ [1, 2, 3] | batch(2, 0) | list }}{{ [1, 2, 3] | "
       "slice(2) | list }}",
       "[[1, 2], [3]][[1, 2], [3, 0]][[1, 2], [3]]" },
     { "{{ d | dictsort }}{{ d | items | list | length }}{{ users | groupby('age') | map('first') "
       "| list }}",
       "[('a', [1, 2]), ('b', 1), ('items', 9)]3[2, 3]" },
     { "{{ nope | default('x') }}{{ '' | default('x') }}{{ '' | default('x', true) }}{{ none | "
       "d('y') }}",
       "xxNone" },
     { "{{ ' a ' | trim }}{{ 'a' | upper }}{{ 'foo bar-baz' | title }}{{ 'aBC' | capitalize }}{{ "
       "'aab' | replace('a', 'x', 1) }}",
       "aAFoo Bar-BazAbcxab" },
     { "{{ '42' | int }}{{ 'x' | int }}{{ '3.9' | int }}{{ 'ff' | int(base=16) }}{{ 'x' | int(-1) "
       "}}{{ '1.5' | float }}{{ 2.5 | round }}{{ 3.14159 | round(2) }}{{ 2.1 | "
       "round(method='ceil') }}",
       "4203255-11.52.03.143.0" },
     { "{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, first=true) }}|{{ 'a\n\nb' | indent('> ', "
       "blank=true) }}",
       "a\n    b\n\n    c|  a\n  b|a\n> \n> b" },
     { "{{ 'foo bar baz' | truncate(9, leeway=0) }}{{ 'foo bar baz' | truncate(9, true, leeway=0) "
       "}}{{ 'a b' | wordcount }}",
       "foo...foo ba...2" },
     { "{{ html | e }}{{ html | escape | upper }}{{ ('<' | safe) ~ '<' }}{{ ('<' | safe) + '<' "
       "}}{{ '<' | forceescape }}",
       "&lt;b&gt;&amp;&#39;&LT;B&GT;&AMP;&#39;<<<&lt;&lt;" },
     { "{{ 1000000 | filesizeformat }}{{ 'a b/ü' | urlencode }}{{ {'a': 1, 'b': none} | xmlattr "
       "}}{{ -3 | abs }}{{ d | attr('get') is callable }}",
       "1.0 MBa%20b/%C3%BC a=\"1\"3True" },
     { "{{ '%s-%s' | format(1, 'a') }}{{ 'x' | center(5) }}|{{ t | list }}{{ 3 | string ~ 4 }}",
       "1-a  x  |['G', 'r', 'ü', 'ß', 'e']34" })

ROWS(tests_are_jinjas,
     { "{{ n is odd }}{{ n is even }}{{ n is divisibleby 7 }}{{ n is divisibleby(2) }}{{ n is "
       "number }}{{ n is integer }}{{ x is float }}{{ yes is boolean }}{{ yes is true }}{{ yes is "
       "integer }}",
       "TrueFalseTrueFalseTrueTrueTrueTrueTrueFalse" },
     { "{{ s is string }}{{ xs is sequence }}{{ d is mapping }}{{ d is sequence }}{{ xs is "
       "iterable }}{{ n is iterable }}{{ none is none }}{{ nope is none }}{{ nope is undefined }}",
       "TrueTrueTrueTrueTrueFalseTrueFalseTrue" },
     { "{{ 'a' is lower }}{{ 'A' is upper }}{{ 1 is eq 1 }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 2 is "
       "ge 2 }}{{ 1 is in [1] }}{{ none is sameas none }}{{ 'upper' is filter }}{{ 'odd' is test "
       "}}{{ range is callable }}{{ ('a' | safe) is escaped }}",
       "TrueTrueTrueTrueTrueTrueTrueTrueTrueTrueTrueTrue" },
     { "{{ n is not none }}{{ not n is none }}{{ n is defined and n is not string }}",
       "TrueTrueTrue" })

ROWS(json_is_pythons, { "{{ d | tojson }}", "{\"b\": 1, \"a\": [1, 2], \"items\": 9}" },
     { "{{ d | tojson(sort_keys=true, separators=(',', ':')) }}",
       "{\"a\":[1,2],\"b\":1,\"items\":9}" },
     { "{{ {'a': [1, {}], 'b': []} | tojson(indent=2) }}",
       "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}" },
     { "{{ [html, t, '\"\\\\\\n\\x01\\x7f', '🦊'] | tojson }}",
       "[\"<b>&'\", \"Grüße\", \"\\\"\\\\\\n\\u0001\x7f\", \"🦊\"]" },
     { "{{ [t, '🦊', '\\x7f'] | tojson(ensure_ascii=true) }}",
       "[\"Gr\\u00fc\\u00dfe\", \"\\ud83e\\udd8a\", \"\\u007f\"]" },
     { "{{ [1.0, 1e20, none, true, (1, 2)] | tojson }}{{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson "
       "}}",
       "[1.0, 1e+20, null, true, [1, 2]]{\"1\": 4, \"null\": 3, \"1.5\": 5}" })

ROWS(globals_are_there,
     { "{{ strftime_now('%Y-%m-%d %H:%M:%S %A') }}", "2026-01-02 03:04:05 Friday" },
     /* A method of dictionaries is none of the function, whose memory holds no dictionary. */
    { "{{ dict.get is defined }}{{ dict.items is defined }}{{ dict.keys is defined }}"
      "{{ dict.values is defined }}{{ dict.copy is defined }}",
      "FalseFalseFalseFalseFalse" },
    /* Long text that is no number is the default, as short text is. */
    { "{{ ('a' * 100)|int(3) }}{{ ('7' * 90 ~ 'x')|int(4) }}{{ ('f' * 90 ~ 'g')|int(5, 16) }}", "345" },
    { "{{ dict(a=1, **{'b': 2}) }}{{ dict([('k', 'v')]) }}{{ dict.fromkeys(['a']) }}",
       "{'a': 1, 'b': 2}{'k': 'v'}{'a': None}" },
     { "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}",
       "abaa" },
     { "{% set j = joiner('; ') %}{{ j() }}a{{ j() }}b", "a; b" },
     { "{{ namespace(a=1) }}{{ (lambda if lambda) }}", "<Namespace {'a': 1}>" })

ROWS(generators_run_once_and_late,
     { "{% set g = xs | map('string') %}{{ g | list }}{{ g | list }}", "['3', '1', '2'][]" },
     { "{% set g = xs | map('nosuch') %}fine", "fine" },
     { "{{ [1, 'a'] | map('abs') | first }}", "1" },
     { "{% set f = nope | map('upper') %}{{ f | list }}{{ f is iterable }}{{ (xs | select) is "
       "sequence }}",
       "[]TrueFalse" })

static void errors_have_a_kind_and_a_place(void **state)
{
    (void)state;
    static const struct {
        const char *source, *part;
        ech_status code;
    } rows[] = {
        { "{{ raise_exception('No: ' ~ n) }}", "No: 7", ECH_EINVAL },
        { "{{ nope.a }}", "'nope' is undefined", ECH_EFORMAT },
        { "{{ d.nope.a }}", "'dict object' has no attribute 'nope'", ECH_EFORMAT },
        { "{{ nope() }}", "'nope' is undefined", ECH_EFORMAT },
        { "{{ 'a' + 1 }}", "can only concatenate str (not \"int\") to str", ECH_EFORMAT },
        { "{{ xs.append(1) }}", "access to attribute 'append' of 'list' object is unsafe",
          ECH_EFORMAT },
        { "{{ d.update({}) }}", "unsafe", ECH_EFORMAT },
        { "{{ d.pop('a') }}", "unsafe", ECH_EFORMAT },
        { "{{ ''.__class__.__mro__ }}", "has no attribute '__class__'", ECH_EFORMAT },
        { "{% set ns = namespace() %}{% set ns._a = 1 %}", "underscore", ECH_EFORMAT },
        { "{{ namespace(_a=1) }}", "underscore", ECH_EFORMAT },
        { "{% set n.a = 1 %}", "non-namespace", ECH_EFORMAT },
        { "{{ 1 // 0 }}", "division or modulo by zero", ECH_EFORMAT },
        { "{{ 9223372036854775807 + 1 }}", "64 bits", ECH_EFORMAT },
        { "{{ big + 1 }}", "64 bits", ECH_EFORMAT },
        { "{{ 9223372036854775808 }}", "64 bits", ECH_EFORMAT },
        { "{{ xs | map('nosuch') | list }}", "no filter named 'nosuch'", ECH_EFORMAT },
        { "{{ 1 | nosuch }}", "no filter named 'nosuch'", ECH_EFORMAT },
        { "{{ 1 is nosuch }}", "no test named 'nosuch'", ECH_EFORMAT },
        { "{% if yes %}{{ 1 | nosuch }}{% endif %}", "no filter named 'nosuch' found",
          ECH_EFORMAT },
        { "{% for a, b in [1] %}{% endfor %}", "not iterable", ECH_EFORMAT },
        { "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "too many values", ECH_EFORMAT },
        { "{% set a, b = [1] %}", "not enough values", ECH_EFORMAT },
        { "{{ range(100001) }}", "range too big", ECH_EFORMAT },
        { "{{ none | length }}", "has no len()", ECH_EFORMAT },
        { "{{ (xs | select) | tojson }}", "not JSON serializable", ECH_EFORMAT },
        { "{{ nope | tojson }}", "not JSON serializable", ECH_EFORMAT },
        { "{{ {[]: 1} }}", "unhashable", ECH_EFORMAT },
        { "{{ xs | random }}", "not supported", ECH_EUNSUPPORTED },
        { "{% include 'a' %}", "not supported", ECH_EUNSUPPORTED },
        { "{% import 'a' as b %}", "not supported", ECH_EUNSUPPORTED },
        { "{% from 'a' import b %}", "not supported", ECH_EUNSUPPORTED },
        { "{% extends 'a' %}", "not supported", ECH_EUNSUPPORTED },
        { "{% break %}", "outside of a loop", ECH_EFORMAT },
        { "{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
          "outside of a loop", ECH_EFORMAT },
        { "{% for loop in xs %}{% endfor %}", "special variable loop", ECH_EFORMAT },
        { "{% set 1 = 2 %}", "cannot assign", ECH_EFORMAT },
        { "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "not more than 1", ECH_EFORMAT },
        { "{% macro m(a) %}{% endmacro %}{{ m(z=2) }}", "no keyword argument 'z'", ECH_EFORMAT },
        { "{% macro m(a=1, b) %}{% endmacro %}", "non-default", ECH_EFORMAT },
        { "{% for x in xs %}", "'endfor' is missing", ECH_EFORMAT },
        { "{% endif %}", "unknown tag 'endif'", ECH_EFORMAT },
        { "{% do x %}", "unknown tag 'do'", ECH_EFORMAT },
        { "{{ (1 }}", "unexpected '}'", ECH_EFORMAT },
        { "{{ 'a }}", "does not end", ECH_EFORMAT },
        { "{# a", "missing end of comment", ECH_EFORMAT },
        { "{% raw %}", "missing end of raw", ECH_EFORMAT },
        { "{{ a b }}", "expected '}}'", ECH_EFORMAT },
        { "{{ }}", "expected an expression", ECH_EFORMAT },
        { "{{ ! }}", "unexpected character", ECH_EFORMAT },
        { "{{ '\\ud800' }}", "no character", ECH_EFORMAT },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect_error(rows[i].source, rows[i].code, rows[i].part);
    }
    ech_rendered r = { 0 };
    ech_error err = { 0 };
    assert_int_equal(render("a\n  b {{ n }}\n {{ s +\n nope.z }}", &r, &err), ECH_EFORMAT);
    assert_int_equal(err.line, 4);
    assert_int_equal(err.column, 6);
    assert_int_equal(render("{{ raise_exception('exactly this') }}", &r, &err), ECH_EINVAL);
    assert_string_equal(err.text, "exactly this");
    assert_int_equal(render("é {% if %}", &r, &err), ECH_EFORMAT);
    assert_int_equal(err.column, 10);
    /* The first error counts, whether the lexer or the parser finds it. */
    assert_int_equal(render("{% 1 %}\n{{ ! }}", &r, &err), ECH_EFORMAT);
    assert_int_equal(err.line, 1);
    assert_int_equal(render("{% if x %}\n{{ ! }}\n{% 1 %}", &r, &err), ECH_EFORMAT);
    assert_int_equal(err.line, 2);
    assert_non_null(strstr(err.text, "unexpected character"));
    assert_int_equal(render("{% if x %}\n{# never closed", &r, &err), ECH_EFORMAT);
    assert_non_null(strstr(err.text, "missing end of comment"));
}

/* A template with its data's bytes replaced by "." and the template's own kept. */
static void expect_origin(const char *const source, const char *const mask)
{
    ech_rendered r = { 0 };
    ech_error err = { 0 };
    if (render(source, &r, &err) != ECH_OK) fail_msg("%s\n%s", source, err.text);
    size_t at = 0;
    for (size_t i = 0; i < r.n_spans; i++) {
        assert_true(r.spans[i].len > 0);
        assert_true(i == 0 || r.spans[i].origin != r.spans[i - 1].origin);
        if (r.spans[i].origin == ECH_ORIGIN_DATA) memset(r.text + at, '.', r.spans[i].len);
        at += r.spans[i].len;
    }
    assert_int_equal(at, r.len);
    if (strcmp(r.text, mask) != 0) fail_msg("%s\ngot  [%s]\nwant [%s]", source, r.text, mask);
    ech_rendered_release(&r);
}

static void every_byte_knows_who_wrote_it(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "<{{ s }}>", "<......>" },
        { "{{ bos_token }}{{ 'lit' }}{{ loop }}{{ 1 + 1 }}{{ true }}", "<s>lit2True" },
        { "{{ s + 'x' }}{{ 'x' ~ s ~ 'y' }}", "......xx......y" },
        { "{{ s.upper() }}{{ (s ~ '-x').upper() }}", "............-X" },
        { "{{ 'abc'.replace('b', s) }}{{ s.replace('a', 'Z') }}{{ s | replace(' ', '_') }}",
          "a......cZ......_.__." },
        { "{{ (s ~ '|' ~ s)[4:9] }}{{ (s ~ 'xyz')[::-1] }}", "..|..zyx......" },
        { "{{ '-'.join(['a', s]) }}{{ ['a', s] | join('+') }}", "a-......a+......" },
        { "{{ ('  ' ~ s ~ ' z ') | trim }}{{ s.split()[0] ~ 'q' }}", "...... z.q" },
        { "{{ xs }}{{ [1, s] }}{{ d | tojson }}{{ {'k': s} | tojson }}",
          ".........[1, ........].................................{\"k\": ........}" },
        { "{{ html | e }}{{ ('<' ~ html) | e }}", "...................&lt;..................." },
        { "{{ n }}{{ n + 1 }}{{ xs | length }}{{ x }}{{ yes }}", "..3......." },
        { "{{ '%s=%s' % ('k', s) }}{{ '{}={}'.format('k', s) }}", "k=......k=......" },
        { "{{ s | title }}{{ s | indent(1, true) }}{{ 'a' | center(3) }}", "...... ...... a " },
        { "{% set a %}<{{ s }}>{% endset %}{{ a }}{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(s) "
          "}}",
          "<......>[......]" },
        { "{% for c in s ~ 'q' %}{{ c }}{% endfor %}{% for k, v in d.items() %}{{ k }}{% endfor %}",
          "......q......." },
        { "{{ messages[0]['role'] }}{{ messages | map(attribute='role') | join(',') }}",
          "........,........." },
        { "{{ '12' | int }}{{ (n ~ '') | int }}{{ s[:1] * 3 }}{{ 'x' * 2 }}", "12....xx" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect_origin(rows[i][0], rows[i][1]);
    }
}

/* ---- threads ---- */

static const char SHARED[] =
    "{% macro m(x) %}{{ x | upper }}{% endmacro %}{% for c in 'äöü' ~ s %}{{ m(c) }}{{ "
    "'Grüße'[loop.index0 % 5] }}"
    "{% endfor %}{{ ['b', 'a'] | sort }}{{ 'x' * 3 }}{{ t | length }}{{ {'k': 'é'} | tojson }}";

static void *render_often(void *const arg)
{
    const ech_template *const t = arg;
    for (int i = 0; i < 50; i++) {
        ech_rendered r = { 0 };
        const ech_status rc = ech_template_render(t, ARGS, sizeof ARGS - 1, NULL, &r, NULL);
        const bool same =
            rc == ECH_OK && strcmp(r.text, "ÄGÖrÜüAß eBG r üCß['a', 'b']xxx5{\"k\": \"é\"}") == 0;
        ech_rendered_release(&r);
        if (!same) return (void *)1;
    }
    return NULL;
}

static void threads_share_a_template(void **state)
{
    (void)state;
    ech_template *t = NULL;
    pthread_t threads[4];
    assert_int_equal(ech_template_compile(SHARED, sizeof SHARED - 1, &t, NULL), ECH_OK);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, t), 0);
    }
    for (size_t i = 0; i < 4; i++) {
        void *failed = NULL;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
    ech_template_destroy(&t);
}

static ech_status limited(const char *const source, const ech_template_options *const opts,
                          ech_error *const err)
{
    ech_template *t = NULL;
    ech_rendered r = { 0 };
    ech_status rc = ech_template_compile(source, strlen(source), &t, err);
    if (rc == ECH_OK) rc = ech_template_render(t, ARGS, sizeof ARGS - 1, opts, &r, err);
    ech_rendered_release(&r);
    ech_template_destroy(&t);
    return rc;
}

static void limits_stop_what_never_ends(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
        "{{ 'x' * 1000000000000 }}",
        "{{ [1] * 100000000 }}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% "
        "endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor "
        "%}{{ ns.l }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor "
        "%}{{ ns.l | tojson }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor "
        "%}{{ ns.l == [ns.l] }}",
        "{% set ns = namespace(a=1) %}{% set ns.me = ns %}{{ ns }}",
        "{% for x in [[]] recursive %}{{ loop([x]) }}{% endfor %}",
        "{{ '%999999999d' % 1 }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ 'a'.ljust(99999999999) }}",
        "{{ range(99999) | map('string') | join(range(99999) | list | string) }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        ech_error err = { 0 };
        const ech_status rc = limited(sources[i], NULL, &err);
        if (rc != ECH_ELIMIT) fail_msg("%s\n%s: %s", sources[i], ech_status_name(rc), err.text);
    }
}

static void limits_can_be_set(void **state)
{
    (void)state;
    ech_template_options opts;
    ech_error err = { 0 };
    ech_template_options_default(&opts);
    opts.max_steps = 100;
    assert_int_equal(limited("{% for a in range(99) %}{{ a }}{% endfor %}", &opts, &err),
                     ECH_ELIMIT);
    assert_non_null(strstr(err.text, "steps"));
    ech_template_options_default(&opts);
    opts.max_output = 10;
    assert_int_equal(limited("12345678901", &opts, &err), ECH_ELIMIT);
    assert_int_equal(limited("1234567890", &opts, &err), ECH_OK);
    ech_template_options_default(&opts);
    opts.max_depth = 5;
    assert_int_equal(limited("{{ [[[[[[1]]]]]] }}", &opts, &err), ECH_ELIMIT);
    ech_template_options_default(&opts);
    opts.max_memory = 200000;
    assert_int_equal(limited("{{ 'x' * 200000 }}", &opts, &err), ECH_ELIMIT);
}

static void sources_are_bounded(void **state)
{
    (void)state;
    static char source[2000000];
    ech_error err = { 0 };
    memset(source, 'x', sizeof source - 1);
    assert_int_equal(limited(source, NULL, &err), ECH_ELIMIT);
    static const char *const nests[][3] = { { "{{ ", "(", "1" },
                                            { "{{ ", "[", "1" },
                                            { "{{ ", "not ", "1 }}" },
                                            { "{{ ", "-", "1 }}" },
                                            { "{{ 1", " + 1", " }}" },
                                            { "", "{% if 1 %}", "" },
                                            { "", "{% for x in y %}", "" },
                                            { "{{ a", ".b", " }}" },
                                            { "{{ a", "|e", " }}" },
                                            { "{{ ", "1 if 1 else ", "1 }}" } };
    for (size_t i = 0; i < sizeof nests / sizeof nests[0]; i++) {
        char *p = source;
        p = stpcpy(p, nests[i][0]);
        for (int k = 0; k < 20000; k++) {
            p = stpcpy(p, nests[i][1]);
        }
        (void)stpcpy(p, nests[i][2]);
        const ech_status rc = limited(source, NULL, &err);
        if (rc != ECH_ELIMIT)
            fail_msg("%s%s: %s %s", nests[i][0], nests[i][1], ech_status_name(rc), err.text);
    }
}

static void arguments_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = { "",
                                       "[]",
                                       "1",
                                       "{",
                                       "{\"a\"}",
                                       "{\"a\":}",
                                       "{\"a\":1,}",
                                       "{\"a\":01}",
                                       "{\"a\":1.}",
                                       "{\"a\":NaN}",
                                       "{\"a\":\"\\ud800\"}",
                                       "{\"a\":\"\\x\"}",
                                       "{\"a\":\"\n\"}",
                                       "{\"a\":\"\xff\"}",
                                       "{} x",
                                       "{\"a\":\"b}",
                                       "{'a':1}",
                                       "{\"a\":tru}" };
    ech_template *t = NULL;
    ech_error err = { 0 };
    ech_rendered r = { 0 };
    assert_int_equal(ech_template_compile("{{ a }}", 7, &t, NULL), ECH_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const ech_status rc = ech_template_render(t, bad[i], strlen(bad[i]), NULL, &r, &err);
        if (rc != ECH_EFORMAT) fail_msg("%s: %s", bad[i], ech_status_name(rc));
        assert_int_equal(err.line, 0);
    }
    static char deep[1000];
    memset(deep, '[', 999);
    memcpy(deep, "{\"a\":", 5);
    assert_int_equal(ech_template_render(t, deep, 999, NULL, &r, &err), ECH_EFORMAT);
    static const char good[] =
        " {\"a\" : \"\\u00e9\\ud83e\\udd8a\\n\\/\", \"b\":[1,-2.5e3 , {}] } ";
    assert_int_equal(ech_template_render(t, good, sizeof good - 1, NULL, &r, &err), ECH_OK);
    assert_string_equal(r.text, "é🦊\n/");
    ech_rendered_release(&r);
    static const char twice[] = "{\"a\":1,\"a\":2}";
    assert_int_equal(ech_template_render(t, twice, sizeof twice - 1, NULL, &r, &err), ECH_OK);
    assert_string_equal(r.text, "2");
    ech_rendered_release(&r);
    ech_template_destroy(&t);
    ech_template_destroy(&t);
}

static void numbers_can_keep_their_spelling(void **state)
{
    (void)state;
    static const char args[] = "{\"a\":[1.50,1e5,-0.0,7,12345678901234567890]}";
    ech_template *t = NULL;
    ech_rendered r = { 0 };
    ech_template_options opts;
    ech_template_options_default(&opts);
    assert_int_equal(ech_template_compile("{{ a | tojson }}{{ a[0] }}{{ a[0] + 1 }}", 41, &t, NULL),
                     ECH_OK);
    assert_int_equal(ech_template_render(t, args, sizeof args - 1, &opts, &r, NULL), ECH_OK);
    assert_string_equal(r.text, "[1.5, 100000.0, -0.0, 7, 12345678901234567890]1.52.5");
    ech_rendered_release(&r);
    opts.spelled_numbers = true;
    assert_int_equal(ech_template_render(t, args, sizeof args - 1, &opts, &r, NULL), ECH_OK);
    assert_string_equal(r.text, "[1.50, 1e5, -0.0, 7, 12345678901234567890]1.502.5");
    ech_rendered_release(&r);
    ech_template_destroy(&t);
}

static void a_template_says_what_it_reads(void **state)
{
    (void)state;
    static const char source[] =
        "{%- if tools %}<tool_call>{{ tools | tojson }}{% endif %}"
        "{% for message in messages %}{% if message.reasoning_content is defined %}{{ '<think>' "
        "}}{% endif %}"
        "{% if message.content is string %}{{ message['content'] }}{% else %}{% for p in "
        "message.content %}{{ p.text }}{% endfor %}{% endif %}"
        "{{ message.get('tool_call_id') }}{% set mine = 1 %}{{ mine }}{% endfor %}{{ "
        "enable_thinking }}";
    ech_template *t = NULL;
    assert_int_equal(ech_template_compile(source, sizeof source - 1, &t, NULL), ECH_OK);
    assert_true(ech_template_reads_variable(t, "tools"));
    assert_true(ech_template_reads_variable(t, "enable_thinking"));
    assert_false(ech_template_reads_variable(t, "mine"));
    assert_false(ech_template_reads_variable(t, "documents"));
    assert_true(ech_template_reads_field(t, "reasoning_content"));
    assert_true(ech_template_reads_field(t, "tool_call_id"));
    assert_false(ech_template_reads_field(t, "reasoning"));
    assert_true(ech_template_has_text(t, "<tool_call>"));
    assert_true(ech_template_has_text(t, "<think>"));
    assert_false(ech_template_has_text(t, "[TOOL_CALLS]"));
    assert_true(ech_template_takes_parts(t));
    ech_template_destroy(&t);
    static const char plain[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    assert_int_equal(ech_template_compile(plain, sizeof plain - 1, &t, NULL), ECH_OK);
    assert_false(ech_template_takes_parts(t));
    ech_template_destroy(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_are_looked_up),
        cmocka_unit_test(white_space_is_controlled),
        cmocka_unit_test(loops_know_where_they_are),
        cmocka_unit_test(branches_choose),
        cmocka_unit_test(assignments_have_scopes),
        cmocka_unit_test(macros_are_functions),
        cmocka_unit_test(operators_are_pythons),
        cmocka_unit_test(strings_have_methods),
        cmocka_unit_test(filters_are_jinjas),
        cmocka_unit_test(tests_are_jinjas),
        cmocka_unit_test(json_is_pythons),
        cmocka_unit_test(globals_are_there),
        cmocka_unit_test(generators_run_once_and_late),
        cmocka_unit_test(errors_have_a_kind_and_a_place),
        cmocka_unit_test(every_byte_knows_who_wrote_it),
        cmocka_unit_test(threads_share_a_template),
        cmocka_unit_test(limits_stop_what_never_ends),
        cmocka_unit_test(limits_can_be_set),
        cmocka_unit_test(sources_are_bounded),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(numbers_can_keep_their_spelling),
        cmocka_unit_test(a_template_says_what_it_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
