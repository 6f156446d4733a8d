/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows CT2, CT3 and CT9 of the list of faults that users of other servers reported: templates, as
 * far as no server is needed. One row an argument.
 */
#include "tests/unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echelon/template.h"

static ech_status render(const char *const source, const char *const args, ech_rendered *const r,
                         ech_error *const err)
{
    ech_template *t = NULL;
    ech_status rc = ech_template_compile(source, strlen(source), &t, err);
    if (rc == ECH_OK) rc = ech_template_render(t, args, strlen(args), NULL, r, err);
    ech_template_destroy(&t);
    return rc;
}

static void expect(const char *const source, const char *const args, const char *const text)
{
    ech_rendered r = { 0 };
    ech_error err = { 0 };
    if (render(source, args, &r, &err) != ECH_OK) fail_msg("%s: %s", source, err.text);
    assert_string_equal(r.text, text);
    ech_rendered_release(&r);
}

/* Expected texts are those of Python's json.dumps with the same keywords. */
static void ct2_tojson_takes_every_keyword(void **state)
{
    (void)state;
    static const char args[] = "{\"a\": {\"z\": [1, \"é\"], \"b\": {}}}";
    expect("{{ a | tojson(ensure_ascii=False) }}", args, "{\"z\": [1, \"é\"], \"b\": {}}");
    expect("{{ a | tojson(ensure_ascii=True) }}", args, "{\"z\": [1, \"\\u00e9\"], \"b\": {}}");
    expect("{{ a | tojson(sort_keys=True) }}", args, "{\"b\": {}, \"z\": [1, \"é\"]}");
    expect("{{ a | tojson(separators=(',', ':')) }}", args, "{\"z\":[1,\"é\"],\"b\":{}}");
    expect("{{ a | tojson(indent=2) }}", args,
           "{\n  \"z\": [\n    1,\n    \"é\"\n  ],\n  \"b\": {}\n}");
    expect(
        "{{ a | tojson(indent=4, ensure_ascii=False, sort_keys=True, separators=(', ', ' = ')) }}",
        args, "{\n    \"b\" = {}, \n    \"z\" = [\n        1, \n        \"é\"\n    ]\n}");
    expect("{{ a | tojson(indent=None) }}", args, "{\"z\": [1, \"é\"], \"b\": {}}");
    expect("{{ a.z | tojson(indent=0) }}", args, "[\n1,\n\"é\"\n]");
    expect("{{ a.z | tojson(indent='\t') }}", args, "[\n\t1,\n\t\"é\"\n]");
}

static void ct3_tojson_is_pythons(void **state)
{
    (void)state;
    static const char tools[] =
        "{\"tools\": "
        "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"It's "
        "<b>\\\"now\\\"</b> & here: Zürich 🦊\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{\"zeta\":{\"type\":\"number\","
        "\"default\":1.0},\"alpha\":{\"enum\":[1e3,-0.5,null,true]}},\"required\":[]}}}]}";
    static const char want[] =
        "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": "
        "\"It's <b>\\\"now\\\"</b> & here: Zürich 🦊\", "
        "\"parameters\": {\"type\": \"object\", \"properties\": {\"zeta\": {\"type\": \"number\", "
        "\"default\": 1.0}, \"alpha\": {\"enum\": [1000.0, -0.5, null, true]}}, \"required\": "
        "[]}}}]";
    expect("{{ tools | tojson }}", tools, want);
    expect("{{ s | tojson }}", "{\"s\": \"</script>\\u2028\\u2029\\u0000\\b\\f\\/\\u007f\"}",
           "\"</script>\xe2\x80\xa8\xe2\x80\xa9\\u0000\\b\\f/\x7f\"");
}

static void ct9_hostile_templates_are_bounded(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "{% set ns = namespace() %}{% set ns.self = ns %}{{ ns }}",
        "{% set ns = namespace() %}{% set ns.self = [ns] %}{{ ns.self }}",
        "{% set ns = namespace() %}{% set ns.self = {'a': ns} %}{{ [ns, ns.self] | string }}",
        "{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{{ a }}",
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
        "{% macro a() %}{% call a() %}{{ caller() }}{% endcall %}{% endmacro %}{{ a() }}",
        "{% for x in [[]] recursive %}{{ loop([x]) }}{% endfor %}",
        "{% set ns = namespace(f=none) %}{% macro m() %}{{ ns.f() }}{% endmacro %}{% set ns.f = m "
        "%}{{ m() }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(50000) %}{% set ns.l = [ns.l] %}{% endfor "
        "%}{{ ns.l }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(50000) %}{% set ns.l = [ns.l] %}{% endfor "
        "%}{{ ns.l | tojson }}",
        "{% set ns = namespace(l=()) %}{% for i in range(50000) %}{% set ns.l = (ns.l,) %}{% "
        "endfor %}{{ {ns.l: 1} }}",
        "{% set ns = namespace(g=[1]) %}{% for i in range(50000) %}{% set ns.g = ns.g | "
        "map('string') %}{% endfor %}{{ ns.g | list }}",
        "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        ech_rendered r = { 0 };
        ech_error err = { 0 };
        const ech_status rc = render(sources[i], "{}", &r, &err);
        if (rc != ECH_ELIMIT) fail_msg("%s: %s %s", sources[i], ech_status_name(rc), err.text);
    }
}

int main(const int argc, char **const argv)
{
    static const struct {
        const char *id;
        struct CMUnitTest test;
    } rows[] = {
        { "CT2", cmocka_unit_test(ct2_tojson_takes_every_keyword) },
        { "CT3", cmocka_unit_test(ct3_tojson_is_pythons) },
        { "CT9", cmocka_unit_test(ct9_hostile_templates_are_bounded) },
    };
    for (size_t i = 0; argc == 2 && i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(argv[1], rows[i].id) == 0)
            return _cmocka_run_group_tests(rows[i].id, &rows[i].test, 1, NULL, NULL);
    }
    (void)fprintf(stderr, "usage: %s ID\n", argv[0]);
    return 2;
}
