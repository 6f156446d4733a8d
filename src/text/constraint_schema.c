/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema compiler: from a subschema to an expression. Here are the dispatch over types,
 * references, combinations (allOf, anyOf, oneOf), and values that nothing constrains.
 *
 * Keywords of a combination's siblings apply to each of its alternatives, so they are merged into
 * them first (constraint_schema_merge.c); what is left has no combination and falls apart by type.
 *
 * Recursion goes through rules: every $ref target is one, compiled once.
 *
 * Invariants: a schema that is compiled admits only values that satisfy it (strict); what can't be
 * promised is refused with the pointer to the keyword. Schemas made on the way belong to s->made
 * and live until the end, so pointers into them are good throughout.
 *
 * Bounds, since a schema comes from a client: ECH_SCHEMA_MAX_NESTING of open subschemas, s->work of
 * subschemas in all, max_nodes of the graph. Runs on the thread that compiles.
 */
#include "src/text/constraint_schema_parts.h"

#include <math.h>
#include <stdio.h>

#include "src/text/json_read.h"

/* ---- errors and the path ---- */

/* key, if given, is put at the end of the path for the message only. */
ech_status ech_schema_fail(ech_schema *const s, const ech_status code, const char *const key,
                           const char *const why)
{
    if (code == ECH_ENOMEM) return ech_fail(s->err, code, "compiling a schema: out of memory");
    const size_t old = key != NULL ? ech_schema_enter(s, key, strlen(key)) : s->path.len;
    const char *const path = s->path.len > 0 ? s->path.data : "/";
    const size_t len = strlen(path);
    /* Long pointers keep their end, which says more. */
    const ech_status rc = ech_fail(s->err, code, "compiling a schema: at %s%s, %s",
                                   len > 300 ? "..." : "", path + (len > 300 ? len - 300 : 0), why);
    ech_schema_leave(s, old);
    return rc;
}

/* Escaped as a JSON pointer; the result is what ech_schema_leave wants back. */
size_t ech_schema_enter(ech_schema *const s, const char *const key, const size_t len)
{
    const size_t old = s->path.len;
    /* Without memory the path is too short, which only the text of an error shows. */
    (void)ech_buf_push(&s->path, '/');
    for (size_t i = 0; i < len; i++) {
        if (key[i] == '~')
            (void)ech_buf_puts(&s->path, "~0");
        else if (key[i] == '/')
            (void)ech_buf_puts(&s->path, "~1");
        else if ((unsigned char)key[i] < 0x20)
            (void)ech_buf_push(&s->path, '?');
        else
            (void)ech_buf_push(&s->path, key[i]);
    }
    return old;
}

size_t ech_schema_enter_index(ech_schema *const s, const char *const key, const size_t index)
{
    const size_t old = s->path.len;
    (void)ech_buf_printf(&s->path, "/%s/%zu", key, index);
    return old;
}

void ech_schema_leave(ech_schema *const s, const size_t old_len)
{
    if (s->path.data == NULL) return;
    s->path.len = old_len;
    s->path.data[old_len] = 0;
}

/* ---- keywords ---- */

/* 2.0 is an integer in JSON Schema. Counts from 1e9 on are one: no text is that long. */
ech_status ech_schema_get_count(ech_schema *const s, const json_t *const schema,
                                const char *const key, uint32_t *const ret)
{
    const json_t *const v = json_object_get(schema, key);
    if (v == NULL) return ECH_OK;
    const double d = json_number_value(v);
    if (!json_is_number(v) || d < 0 || d != floor(d)) {
        return ech_schema_fail(s, ECH_EFORMAT, key, "it must be a non-negative integer");
    }
    *ret = d >= 1e9 ? 1000000000u : (uint32_t)d;
    return ECH_OK;
}

static unsigned type_bit(const char *const name)
{
    static const struct {
        const char *name;
        unsigned bit;
    } TYPES[] = {
        { "null", ECH_TYPE_NULL },
        { "boolean", ECH_TYPE_BOOLEAN },
        { "object", ECH_TYPE_OBJECT },
        { "array", ECH_TYPE_ARRAY },
        { "number", ECH_TYPE_NUMBER | ECH_TYPE_INTEGER },
        { "integer", ECH_TYPE_INTEGER },
        { "string", ECH_TYPE_STRING },
    };
    for (size_t i = 0; name != NULL && i < sizeof TYPES / sizeof TYPES[0]; i++) {
        if (strcmp(name, TYPES[i].name) == 0) return TYPES[i].bit;
    }
    return 0;
}

/* "number" includes the integers, so both bits; without "type" every type may be. */
ech_status ech_schema_get_types(ech_schema *const s, const json_t *const schema,
                                unsigned *const ret)
{
    const json_t *const type = json_object_get(schema, "type");
    unsigned bits = type == NULL ? ECH_TYPE_ALL : type_bit(json_string_value(type));
    bool ok = type == NULL || !json_is_string(type) || bits != 0;
    if (json_is_array(type)) {
        for (size_t i = 0; i < json_array_size(type); i++) {
            const unsigned bit = type_bit(json_string_value(json_array_get(type, i)));
            ok = ok && bit != 0;
            bits |= bit;
        }
    } else if (type != NULL && !json_is_string(type)) {
        ok = false;
    }
    if (!ok) return ech_schema_fail(s, ECH_EFORMAT, "type", "it must name JSON types");
    *ret = bits;
    return ECH_OK;
}

/* Keywords that restrict values and that nothing here enforces. */
static ech_status check_supported(ech_schema *const s, const json_t *const schema)
{
    static const char *const UNSUPPORTED[] = {
        "not",
        "if",
        "then",
        "else",
        "contains",
        "minContains",
        "maxContains",
        "propertyNames",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "unevaluatedProperties",
        "unevaluatedItems",
        "$dynamicRef",
        "$recursiveRef",
        "additionalItems",
    };
    for (size_t i = 0; i < sizeof UNSUPPORTED / sizeof UNSUPPORTED[0]; i++) {
        const char *const key = UNSUPPORTED[i];
        if (json_object_get(schema, key) == NULL) continue;
        /* additionalItems means something only beside an array of items. */
        if (strcmp(key, "additionalItems") == 0) continue;
        return ech_schema_fail(s, ECH_EUNSUPPORTED, key, "this keyword can't be enforced");
    }
    if (json_is_true(json_object_get(schema, "uniqueItems"))) {
        return ech_schema_fail(s, ECH_EUNSUPPORTED, "uniqueItems",
                               "this keyword can't be enforced");
    }
    return ECH_OK;
}

/* ---- values that nothing constrains ---- */

/* How many escapes may follow each other in a string without maxLength and pattern. */
#define MAX_ESCAPES_IN_A_ROW 256u

/*
 * The bound on escapes in a row keeps a model that has fallen into a loop of \n or \u0000 from
 * writing them until its budget is gone; an ordinary character sets it back.
 */
ech_cx ech_schema_any_string(ech_schema *const s)
{
    if (s->any_string != ECH_CX_FAIL) return s->any_string;
    ech_cx_graph *const g = s->g;
    ech_cp_range all = { 0, ECH_CP_MAX };
    const ech_cset every = { &all, 1, 1, false };
    const ech_cx plain = ech_cx_shared(g, ech_cx_json_plain(g, &every));
    const ech_cx escape = ech_cx_shared(g, ech_cx_json_escape(g, &every));
    /* State 0: after an ordinary character; 1: after escapes. */
    ech_cx_auto a = {
        .n_states = 2, .n_edges = 3, .edges = malloc(3 * sizeof *a.edges), .accepting = malloc(2)
    };
    if (a.edges == NULL || a.accepting == NULL) {
        g->rc = ECH_ENOMEM;
    } else {
        a.accepting[0] = a.accepting[1] = 1;
        a.edges[0] = (ech_cx_edge){ 0, 0, plain };
        a.edges[1] = (ech_cx_edge){ 0, 1, ech_cx_repeat(g, escape, 1, MAX_ESCAPES_IN_A_ROW) };
        a.edges[2] = (ech_cx_edge){ 1, 0, plain };
    }
    const ech_cx quote = ech_cx_range(g, '"', '"');
    s->any_string = ech_cx_shared(g, ech_cx_seq3(g, quote, ech_cx_auto_new(g, a), quote));
    return s->any_string;
}

/* open (item (, item)*)? close, with whitespace. The array has room for five, four are used. */
static ech_cx bracketed(const ech_schema *const s, const char open, const ech_cx item,
                        const char close)
{
    ech_cx_graph *const g = s->g;
    const ech_cx comma = ech_cx_range(g, ',', ',');
    const ech_cx more = ech_cx_seq2(g, ech_cx_seq3(g, s->space, comma, s->space), item);
    const ech_cx list = ech_cx_seq2(g, item, ech_cx_repeat(g, more, 0, ECH_CX_INF));
    const ech_cx parts[5] = {
        ech_cx_range(g, (uint8_t)open, (uint8_t)open),
        s->space,
        ech_cx_opt(g, ech_cx_seq2(g, list, s->space)),
        ech_cx_range(g, (uint8_t)close, (uint8_t)close),
    };
    return ech_cx_seq(g, parts, 4);
}

/*
 * Rules that refer to each other: value counts towards max_depth, object and array by way of it.
 * The refs are stored before the bodies exist, since pair needs any_value.
 */
ech_status ech_schema_any(ech_schema *const s, ech_cx *const ret)
{
    ech_cx_graph *const g = s->g;
    if (s->any_value == ECH_CX_FAIL) {
        const uint32_t value = ech_cx_rule_new(g, "value", true);
        const uint32_t object = ech_cx_rule_new(g, "object", false);
        const uint32_t array = ech_cx_rule_new(g, "array", false);
        s->any_value = ech_cx_ref(g, value);
        s->any_object = ech_cx_ref(g, object);
        const json_t *const nothing = json_object();
        ech_cx number = ECH_CX_FAIL;
        const ech_status rc = ech_schema_number(s, nothing, ECH_TYPE_NUMBER, &number);
        json_decref((json_t *)(uintptr_t)nothing);
        if (rc != ECH_OK) return rc;
        const ech_cx pair[5] = { ech_schema_any_string(s), s->space, ech_cx_range(g, ':', ':'),
                                 s->space, s->any_value };
        ech_cx_rule_define(g, object, bracketed(s, '{', ech_cx_seq(g, pair, 5), '}'));
        ech_cx_rule_define(g, array, bracketed(s, '[', s->any_value, ']'));
        const ech_cx kinds[7] = {
            s->any_object,
            ech_cx_ref(g, array),
            ech_schema_any_string(s),
            number,
            ech_cx_lit(g, "true", 4),
            ech_cx_lit(g, "false", 5),
            ech_cx_lit(g, "null", 4),
        };
        ech_cx_rule_define(g, value, ech_cx_alt(g, kinds, 7));
    }
    *ret = s->any_value;
    return ech_cx_graph_check(g, s->err);
}

/* ---- references ---- */

/*
 * Decodes one step of a pointer: ~0, ~1 and %XX. The result gets room for one byte more, so that
 * data is never NULL, not even for an empty step.
 */
static bool decode_step(const char *const p, const size_t len, ech_buf *const out)
{
    ech_buf_clear(out);
    for (size_t i = 0; i < len; i++) {
        char c = p[i];
        unsigned code = 0;
        if (c == '~' && i + 1 < len && (p[i + 1] == '0' || p[i + 1] == '1')) {
            c = p[++i] == '0' ? '~' : '/';
        } else if (c == '%' && i + 2 < len && sscanf(p + i + 1, "%2x", &code) == 1) {
            c = (char)code;
            i += 2;
        }
        if (ech_buf_push(out, c) != ECH_OK) return false;
    }
    return ech_buf_reserve(out, 1) == ECH_OK;
}

static const json_t *follow_step(const json_t *const at, const ech_buf *const step)
{
    if (json_is_object(at)) return json_object_getn(at, step->data, step->len);
    if (!json_is_array(at) || step->len == 0) return NULL;
    size_t index = 0;
    for (size_t i = 0; i < step->len; i++) {
        if (step->data[i] < '0' || step->data[i] > '9' || index > 1000000) return NULL;
        index = index * 10 + (size_t)(step->data[i] - '0');
    }
    return json_array_get(at, index);
}

/* Only within the document: nothing is fetched. */
ech_status ech_schema_resolve(ech_schema *const s, const char *const ref, const json_t **const ret)
{
    if (ref == NULL) return ech_schema_fail(s, ECH_EFORMAT, "$ref", "it must be a string");
    if (ref[0] != '#' || (ref[1] != 0 && ref[1] != '/')) {
        return ech_schema_fail(s, ECH_EUNSUPPORTED, "$ref",
                               "only references into this document are supported (#/...)");
    }
    const json_t *at = s->root;
    ech_buf step = { 0 };
    bool ok = true;
    for (const char *p = ref + 1; *p == '/' && at != NULL && ok;) {
        const size_t len = strcspn(++p, "/");
        ok = decode_step(p, len, &step);
        if (ok) at = follow_step(at, &step);
        p += len;
    }
    ech_buf_fini(&step);
    if (!ok) return ech_schema_fail(s, ECH_ENOMEM, NULL, "");
    if (!json_is_object(at) && !json_is_boolean(at)) {
        return ech_schema_fail(s, ECH_EFORMAT, "$ref", "it names no schema in this document");
    }
    *ret = at;
    return ECH_OK;
}

/* The target's value, with the path that leads to it in the document: errors point at its text. */
static ech_status value_at(ech_schema *const s, const char *const ref, const json_t *const schema,
                           ech_cx *const ret)
{
    ech_buf outer = s->path;
    s->path = (ech_buf){ 0 };
    (void)ech_buf_puts(&s->path, ref + 1);
    const ech_status rc = ech_schema_value(s, schema, ret);
    ech_buf_fini(&s->path);
    s->path = outer;
    return rc;
}

/*
 * Listed before its body is compiled, so a reference to it from within finds the rule. targets may
 * move meanwhile: hence the index.
 */
static ech_status compile_target(ech_schema *const s, const char *const ref,
                                 const json_t *const schema, const uint32_t rule)
{
    if (!ECH_VEC_GROW(s->targets, s->cap_targets, s->n_targets, 1)) {
        return ech_schema_fail(s, ECH_ENOMEM, NULL, "");
    }
    const uint32_t idx = s->n_targets++;
    s->targets[idx] = (ech_schema_target){ schema, rule, true };
    ech_cx body = ECH_CX_FAIL;
    ECH_TRY(value_at(s, ref, schema, &body));
    ech_cx_rule_define(s->g, rule, body);
    s->targets[idx].is_open = false;
    return ECH_OK;
}

/* A reference to a rule that is still open is recursion: that rule counts towards the nesting. */
static ech_status compile_ref(ech_schema *const s, const json_t *const schema, ech_cx *const ret)
{
    const json_t *target = NULL;
    const char *const ref = json_string_value(json_object_get(schema, "$ref"));
    ECH_TRY(ech_schema_resolve(s, ref, &target));
    for (uint32_t i = 0; i < s->n_targets; i++) {
        if (s->targets[i].schema != target) continue;
        if (s->targets[i].is_open) s->g->rules[s->targets[i].rule].is_nest = true;
        *ret = ech_cx_ref(s->g, s->targets[i].rule);
        return ECH_OK;
    }
    const uint32_t rule = ech_cx_rule_new(s->g, "a $ref", false);
    if (rule == ECH_CX_INF) return ech_cx_graph_check(s->g, s->err);
    ECH_TRY(compile_target(s, ref, target, rule));
    *ret = ech_cx_ref(s->g, rule);
    return ECH_OK;
}

/* ---- combinations ---- */

/* Members that don't restrict: a $ref beside only these needs no merging. */
static bool is_annotation(const char *const key)
{
    static const char *const ANNOTATIONS[] = {
        "title",      "description", "default",   "examples", "example",
        "$comment",   "$schema",     "$id",       "$defs",    "definitions",
        "deprecated", "readOnly",    "writeOnly", "$anchor",  "$vocabulary",
    };
    for (size_t i = 0; i < sizeof ANNOTATIONS / sizeof ANNOTATIONS[0]; i++) {
        if (strcmp(key, ANNOTATIONS[i]) == 0) return true;
    }
    return false;
}

/* With keyword "" the question is whether the schema says anything at all. */
static bool has_siblings(const json_t *const schema, const char *const keyword)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)schema, key, value)
    {
        if (strcmp(key, keyword) != 0 && !is_annotation(key)) return true;
    }
    return false;
}

/* A shallow copy without one member; owned by s->made. */
static ech_status without(ech_schema *const s, const json_t *const schema, const char *const key,
                          const json_t **const ret)
{
    json_t *const copy = json_copy((json_t *)(uintptr_t)schema);
    if (copy == NULL || json_array_append_new(s->made, copy) != 0) {
        return ech_schema_fail(s, ECH_ENOMEM, NULL, "");
    }
    (void)json_object_del(copy, key);
    *ret = copy;
    return ECH_OK;
}

static ech_status check_list(ech_schema *const s, const json_t *const list, const char *const key)
{
    if (json_is_array(list) && json_array_size(list) > 0) return ECH_OK;
    return ech_schema_fail(s, ECH_EFORMAT, key, "it must be an array of at least one schema");
}

/*
 * allOf: its members joined with the rest, one after the other. $refs are opened, because merging
 * needs the keywords behind them. A circle of references alone would go on for ever: s->work ends
 * it.
 */
static ech_status compile_all_of(ech_schema *const s, const json_t *const schema, ech_cx *const ret)
{
    const json_t *const list = json_object_get(schema, "allOf");
    const json_t *all = NULL;
    ECH_TRY(check_list(s, list, "allOf"));
    ECH_TRY(without(s, schema, "allOf", &all));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const size_t old = ech_schema_enter_index(s, "allOf", i);
        const json_t *part = json_array_get(list, i);
        while (json_is_object(part) && json_object_get(part, "$ref") != NULL) {
            const json_t *target = NULL, *rest = NULL;
            if (++s->work > ECH_SCHEMA_MAX_LIST) {
                return ech_schema_fail(s, ECH_ELIMIT, NULL, "references go round in circles");
            }
            ECH_TRY(
                ech_schema_resolve(s, json_string_value(json_object_get(part, "$ref")), &target));
            ECH_TRY(without(s, part, "$ref", &rest));
            ECH_TRY(ech_schema_merge(s, target, rest, &part));
        }
        ECH_TRY(ech_schema_merge(s, all, part, &all));
        ech_schema_leave(s, old);
    }
    return ech_schema_value(s, all, ret);
}

/*
 * "Exactly one" is "any of" where no two can hold at once; that is shown pair by pair or refused.
 */
static ech_status check_disjoint(ech_schema *const s, const json_t *const list)
{
    const size_t n = json_array_size(list);
    if (n > 256) return ech_schema_fail(s, ECH_ELIMIT, "oneOf", "it has over 256 alternatives");
    for (size_t i = 0; i < n; i++) {
        for (size_t k = i + 1; k < n; k++) {
            if (ech_schema_disjoint(s, json_array_get(list, i), json_array_get(list, k))) continue;
            char why[160];
            (void)snprintf(why, sizeof why,
                           "alternatives %zu and %zu may both be satisfied, which "
                           "can't be prevented: use anyOf, or tell them apart by type or a const",
                           i, k);
            return ech_schema_fail(s, ECH_EUNSUPPORTED, "oneOf", why);
        }
    }
    return ECH_OK;
}

/*
 * anyOf and oneOf: the rest joined with each alternative. Alternatives that turn out to match
 * nothing vanish in ech_cx_alt2.
 */
static ech_status compile_alternatives(ech_schema *const s, const json_t *const schema,
                                       const char *const key, ech_cx *const ret)
{
    const json_t *const list = json_object_get(schema, key);
    const json_t *rest = NULL;
    ECH_TRY(check_list(s, list, key));
    if (json_array_size(list) > ECH_SCHEMA_MAX_LIST) {
        return ech_schema_fail(s, ECH_ELIMIT, key, "it has over 20000 alternatives");
    }
    if (strcmp(key, "oneOf") == 0) ECH_TRY(check_disjoint(s, list));
    const bool alone = !has_siblings(schema, key);
    ECH_TRY(without(s, schema, key, &rest));
    ech_cx out = ECH_CX_FAIL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const size_t old = ech_schema_enter_index(s, key, i);
        const json_t *part = json_array_get(list, i);
        if (!alone) ECH_TRY(ech_schema_merge(s, part, rest, &part));
        ech_cx one = ECH_CX_FAIL;
        ECH_TRY(ech_schema_value(s, part, &one));
        out = ech_cx_alt2(s->g, out, one);
        ech_schema_leave(s, old);
    }
    *ret = out;
    return ech_cx_graph_check(s->g, s->err);
}

/* A $ref with siblings says both. */
static ech_status compile_ref_and_more(ech_schema *const s, const json_t *const schema,
                                       ech_cx *const ret)
{
    const json_t *target = NULL, *rest = NULL, *both = NULL;
    ECH_TRY(ech_schema_resolve(s, json_string_value(json_object_get(schema, "$ref")), &target));
    ECH_TRY(without(s, schema, "$ref", &rest));
    ECH_TRY(ech_schema_merge(s, target, rest, &both));
    return ech_schema_value(s, both, ret);
}

/* ---- dispatch ---- */

/* A schema without combinations: the alternatives are its types. */
static ech_status compile_types(ech_schema *const s, const json_t *const schema, ech_cx *const ret)
{
    unsigned types = 0;
    ECH_TRY(ech_schema_get_types(s, schema, &types));
    ech_cx kinds[7];
    size_t n = 0;
    if (types & ECH_TYPE_NULL) kinds[n++] = ech_cx_lit(s->g, "null", 4);
    if (types & ECH_TYPE_BOOLEAN) {
        kinds[n++] = ech_cx_lit(s->g, "true", 4);
        kinds[n++] = ech_cx_lit(s->g, "false", 5);
    }
    if (types & ECH_TYPE_OBJECT) ECH_TRY(ech_schema_object(s, schema, &kinds[n++]));
    if (types & ECH_TYPE_ARRAY) ECH_TRY(ech_schema_array(s, schema, &kinds[n++]));
    if (types & ECH_TYPE_STRING) ECH_TRY(ech_schema_string(s, schema, &kinds[n++]));
    if (types & (ECH_TYPE_NUMBER | ECH_TYPE_INTEGER)) {
        const ech_json_type type = types & ECH_TYPE_NUMBER ? ECH_TYPE_NUMBER : ECH_TYPE_INTEGER;
        ECH_TRY(ech_schema_number(s, schema, type, &kinds[n++]));
    }
    *ret = ech_cx_alt(s->g, kinds, n);
    return ech_cx_graph_check(s->g, s->err);
}

/* The order matters: what combines is taken apart first, a list of values is complete in itself. */
static ech_status compile_schema(ech_schema *const s, const json_t *const schema, ech_cx *const ret)
{
    if (json_is_true(schema)) return ech_schema_any(s, ret);
    if (json_is_false(schema)) {
        *ret = ECH_CX_FAIL;
        return ECH_OK;
    }
    if (!json_is_object(schema)) {
        return ech_schema_fail(s, ECH_EFORMAT, NULL, "a schema must be an object or a boolean");
    }
    ECH_TRY(check_supported(s, schema));
    if (json_object_get(schema, "$ref") != NULL) {
        return has_siblings(schema, "$ref") ? compile_ref_and_more(s, schema, ret)
                                            : compile_ref(s, schema, ret);
    }
    if (json_object_get(schema, "allOf") != NULL) return compile_all_of(s, schema, ret);
    if (json_object_get(schema, "anyOf") != NULL) {
        return compile_alternatives(s, schema, "anyOf", ret);
    }
    if (json_object_get(schema, "oneOf") != NULL) {
        return compile_alternatives(s, schema, "oneOf", ret);
    }
    if (json_object_get(schema, "enum") != NULL || json_object_get(schema, "const") != NULL) {
        return ech_schema_literals(s, schema, ret);
    }
    return has_siblings(schema, "") ? compile_types(s, schema, ret) : ech_schema_any(s, ret);
}

/* work counts all subschemas and is never given back; nesting counts those that are open. */
ech_status ech_schema_value(ech_schema *const s, const json_t *const schema, ech_cx *const ret)
{
    if (++s->work > ECH_SCHEMA_MAX_LIST * 2) {
        return ech_schema_fail(s, ECH_ELIMIT, NULL,
                               "the schema combines into over 40000 subschemas");
    }
    if (++s->nesting > ECH_SCHEMA_MAX_NESTING) {
        return ech_schema_fail(s, ECH_ELIMIT, NULL, "subschemas nest over 120 deep");
    }
    const ech_status rc = compile_schema(s, schema, ret);
    s->nesting--;
    return rc;
}

/* ---- entry points ---- */

ech_cx ech_schema_space(ech_cx_graph *const g, const uint32_t max)
{
    ech_byteset set = { { 0 } };
    ech_byteset_add(&set, ' ', ' ');
    ech_byteset_add(&set, '\t', '\n');
    ech_byteset_add(&set, '\r', '\r');
    return ech_cx_repeat(g, ech_cx_set(g, &set), 0, max);
}

static void begin(ech_schema *const s, ech_cx_graph *const g,
                  const ech_constraint_options *const options, ech_error *const err)
{
    *s = (ech_schema){ .g = g, .options = options, .err = err };
    s->space = ech_schema_space(g, options->max_whitespace);
}

ech_status ech_schema_any_object(ech_cx_graph *const g, const ech_constraint_options *const options,
                                 ech_cx *const ret_expr, ech_error *const err)
{
    ech_schema s;
    begin(&s, g, options, err);
    ech_cx any = ECH_CX_FAIL;
    ECH_TRY(ech_schema_any(&s, &any));
    *ret_expr = s.any_object;
    return ECH_OK;
}

ech_status ech_schema_expr(ech_cx_graph *const g, const ech_str text,
                           const ech_constraint_options *const options, ech_cx *const ret_expr,
                           ech_error *const err)
{
    ech_schema s;
    begin(&s, g, options, err);
    json_error_t error;
    s.root = ech_json_read(text.ptr, text.len,
                           JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
    if (s.root == NULL) {
        return ech_fail_at(err, ECH_EFORMAT, error.line, error.column, error.position,
                           "compiling a schema: line %d, column %d: %s", error.line, error.column,
                           error.text);
    }
    s.made = json_array();
    ech_cx out = ECH_CX_FAIL;
    ech_status rc = s.made == NULL ? ech_schema_fail(&s, ECH_ENOMEM, NULL, "")
                                   : ech_schema_value(&s, s.root, &out);
    if (rc == ECH_OK) rc = ech_cx_graph_check(g, err);
    if (rc == ECH_OK && out == ECH_CX_FAIL) {
        rc = ech_schema_fail(&s, ECH_EINVAL, NULL, "no value satisfies the schema");
    }
    if (rc == ECH_OK) *ret_expr = out;
    json_decref(s.made);
    json_decref(s.root);
    ech_buf_fini(&s.path);
    free(s.targets);
    return rc;
}
