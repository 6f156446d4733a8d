/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schemas as data: joining two into one that says both, showing that two exclude each other, and
 * checking a value. All of it works on JSON and knows nothing of expressions.
 *
 * Joining goes keyword by keyword. A combination (anyOf, oneOf, $ref, allOf) of the second schema
 * that meets one in the first is put under allOf, where the compiler finds it again after it has
 * taken the first apart; so every step has one combination less.
 *
 * Invariant: the result admits exactly what both schemas admit, or joining fails with the keyword.
 * What is made is owned by s->made; inputs are never changed. Comparison is JSON Schema's: 1 and
 * 1.0 are equal.
 */
#include "src/text/constraint_schema_parts.h"

#include <math.h>

/* ---- comparing values ---- */

/* Members have no order in JSON; sizes first, so one direction is enough. */
static bool same_members(const json_t *const a, const json_t *const b)
{
    if (json_object_size(a) != json_object_size(b)) return false;
    const char *key;
    size_t len;
    json_t *value;
    json_object_keylen_foreach((json_t *)(uintptr_t)a, key, len, value)
    {
        const json_t *const other = json_object_getn(b, key, len);
        if (other == NULL || !ech_json_same(value, other)) return false;
    }
    return true;
}

/* Integers are compared as integers: two large ones may round to one double. */
bool ech_json_same(const json_t *const a, const json_t *const b)
{
    if (json_is_number(a) && json_is_number(b)) {
        if (json_is_integer(a) && json_is_integer(b)) {
            return json_integer_value(a) == json_integer_value(b);
        }
        return json_number_value(a) == json_number_value(b);
    }
    if (json_typeof(a) != json_typeof(b)) return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        for (size_t i = 0; i < json_array_size(a); i++) {
            if (!ech_json_same(json_array_get(a, i), json_array_get(b, i))) return false;
        }
        return true;
    }
    return json_is_object(a) ? same_members(a, b)
                             : json_equal((json_t *)(uintptr_t)a, (json_t *)(uintptr_t)b) != 0;
}

static bool contains(const json_t *const list, const json_t *const value)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (ech_json_same(json_array_get(list, i), value)) return true;
    }
    return false;
}

/* ---- joining ---- */

static ech_status no_memory(ech_schema *const s)
{
    return ech_schema_fail(s, ECH_ENOMEM, NULL, "");
}

/* Takes the reference, also where it fails: jansson drops what it could not append. */
static json_t *own(ech_schema *const s, json_t *const made)
{
    return made != NULL && json_array_append_new(s->made, made) == 0 ? made : NULL;
}

/*
 * jansson counts references in the value, so it takes none that is const; what is pointed at stays
 * as it is.
 */
static json_t *unconst(const json_t *const v)
{
    return (json_t *)(uintptr_t)v;
}

/* Sets a member to a value that is owned elsewhere; false without memory. */
static bool put(json_t *const out, const char *const key, const json_t *const value)
{
    return json_object_set(out, key, unconst(value)) == 0;
}

/*
 * "integer" is only named where "number" isn't, which includes it. No type in common is an empty
 * list, which admits nothing.
 */
static ech_status merge_types(ech_schema *const s, const json_t *const a, const json_t *const b,
                              json_t *const out)
{
    static const struct {
        unsigned bit;
        const char *name;
    } NAMES[] = {
        { ECH_TYPE_NULL, "null" },   { ECH_TYPE_BOOLEAN, "boolean" }, { ECH_TYPE_OBJECT, "object" },
        { ECH_TYPE_ARRAY, "array" }, { ECH_TYPE_NUMBER, "number" },   { ECH_TYPE_STRING, "string" },
    };
    unsigned types_a = 0, types_b = 0;
    ECH_TRY(ech_schema_get_types(s, a, &types_a));
    ECH_TRY(ech_schema_get_types(s, b, &types_b));
    const unsigned both = types_a & types_b;
    json_t *const list = json_array();
    bool ok = list != NULL;
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (both & NAMES[i].bit)
            ok = ok && json_array_append_new(list, json_string(NAMES[i].name)) == 0;
    }
    if ((both & ECH_TYPE_INTEGER) && !(both & ECH_TYPE_NUMBER)) {
        ok = ok && json_array_append_new(list, json_string("integer")) == 0;
    }
    ok = ok && json_object_set_new(out, "type", list) == 0;
    return ok ? ECH_OK : no_memory(s);
}

/*
 * Bounds: the larger of minima, the smaller of maxima. The member itself is kept and not a computed
 * one, so its spelling and exactness stay. *ret_done tells the caller that the key was a bound.
 */
static ech_status merge_bound(ech_schema *const s, const char *const key, const json_t *const a,
                              const json_t *const b, json_t *const out, bool *const ret_done)
{
    static const struct {
        const char *key;
        int sign;
    } BOUNDS[] = {
        { "minimum", 1 },           { "exclusiveMinimum", 1 }, { "maximum", -1 },
        { "exclusiveMaximum", -1 }, { "minLength", 1 },        { "maxLength", -1 },
        { "minItems", 1 },          { "maxItems", -1 },        { "minProperties", 1 },
        { "maxProperties", -1 },
    };
    for (size_t i = 0; i < sizeof BOUNDS / sizeof BOUNDS[0]; i++) {
        if (strcmp(BOUNDS[i].key, key) != 0) continue;
        *ret_done = true;
        if (!json_is_number(a) || !json_is_number(b)) {
            return ech_schema_fail(s, ECH_EFORMAT, key, "it must be a number");
        }
        const double x = json_number_value(a), y = json_number_value(b);
        return put(out, key, (x - y) * BOUNDS[i].sign >= 0 ? a : b) ? ECH_OK : no_memory(s);
    }
    return ECH_OK;
}

/*
 * enum and const: the values of a that b has too. A const is an enum of one. The result is always
 * an enum, possibly an empty one, which admits nothing.
 */
static ech_status merge_values(ech_schema *const s, const json_t *const a, const json_t *const b,
                               json_t *const out)
{
    const json_t *lists[2] = { NULL, NULL };
    const json_t *const schemas[2] = { a, b };
    for (int i = 0; i < 2; i++) {
        lists[i] = json_object_get(schemas[i], "enum");
        const json_t *const one = json_object_get(schemas[i], "const");
        if (one != NULL) lists[i] = own(s, json_pack("[O]", one));
        if (one != NULL && lists[i] == NULL) return no_memory(s);
        if (lists[i] != NULL && !json_is_array(lists[i])) {
            return ech_schema_fail(s, ECH_EFORMAT, "enum", "it must be an array");
        }
    }
    const json_t *result = lists[0] != NULL ? lists[0] : lists[1];
    if (result == NULL) return ECH_OK;
    if (lists[0] != NULL && lists[1] != NULL) {
        json_t *const common = own(s, json_array());
        if (common == NULL) return no_memory(s);
        for (size_t i = 0; i < json_array_size(lists[0]); i++) {
            json_t *const value = json_array_get(lists[0], i);
            if (contains(lists[1], value) && json_array_append(common, value) != 0)
                return no_memory(s);
        }
        result = common;
    }
    (void)json_object_del(out, "const");
    return put(out, "enum", result) ? ECH_OK : no_memory(s);
}

/*
 * Patterns and formats: a list of both. JSON Schema has no place for two patterns: the list is
 * ours, and the string compiler knows it.
 */
static ech_status merge_lists(ech_schema *const s, const char *const key, const json_t *const a,
                              const json_t *const b, json_t *const out)
{
    json_t *const list = own(s, json_array());
    if (list == NULL) return no_memory(s);
    const json_t *const both[2] = { a, b };
    for (int i = 0; i < 2; i++) {
        const int rc = json_is_array(both[i])    ? json_array_extend(list, unconst(both[i]))
                       : contains(list, both[i]) ? 0
                                                 : json_array_append(list, unconst(both[i]));
        if (rc != 0) return no_memory(s);
    }
    return put(out, key, list) ? ECH_OK : no_memory(s);
}

/*
 * A schema for key that comes from properties, or else from additionalProperties. patternProperties
 * don't matter here: merge_members refuses the cases in which they would.
 */
static const json_t *schema_of_key(const json_t *const schema, const char *const key,
                                   const size_t len)
{
    const json_t *const declared =
        json_object_getn(json_object_get(schema, "properties"), key, len);
    if (declared != NULL) return declared;
    const json_t *const additional = json_object_get(schema, "additionalProperties");
    return additional != NULL ? additional : json_true();
}

/*
 * A key that one side alone declares still meets what the other says about undeclared ones: `false`
 * there forbids it.
 */
static ech_status merge_properties(ech_schema *const s, const json_t *const a,
                                   const json_t *const b, json_t *const out)
{
    json_t *const all = own(s, json_object());
    if (all == NULL) return no_memory(s);
    const json_t *const schemas[2] = { a, b };
    for (int i = 0; i < 2; i++) {
        const char *key;
        size_t len;
        json_t *value;
        json_object_keylen_foreach(unconst(json_object_get(schemas[i], "properties")), key, len,
                                   value)
        {
            if (json_object_getn(all, key, len) != NULL) continue;
            const json_t *both = NULL;
            ECH_TRY(
                ech_schema_merge(s, schema_of_key(a, key, len), schema_of_key(b, key, len), &both));
            if (json_object_setn(all, key, len, unconst(both)) != 0) return no_memory(s);
        }
    }
    return put(out, "properties", all) ? ECH_OK : no_memory(s);
}

/*
 * properties, patternProperties and additionalProperties, which speak of each other.
 * additionalProperties means "not declared and not matched here", so with different patterns on the
 * two sides there is no single schema that says both.
 */
static ech_status merge_members(ech_schema *const s, const json_t *const a, const json_t *const b,
                                json_t *const out)
{
    const json_t *const patterns_a = json_object_get(a, "patternProperties");
    const json_t *const patterns_b = json_object_get(b, "patternProperties");
    const json_t *const add_a = json_object_get(a, "additionalProperties");
    const json_t *const add_b = json_object_get(b, "additionalProperties");
    const bool differ = patterns_a != patterns_b && (patterns_a == NULL || patterns_b == NULL ||
                                                     !ech_json_same(patterns_a, patterns_b));
    if (differ && ((patterns_a != NULL && add_b != NULL) || (patterns_b != NULL && add_a != NULL) ||
                   (patterns_a != NULL && patterns_b != NULL))) {
        return ech_schema_fail(s, ECH_EUNSUPPORTED, "patternProperties",
                               "it can't be joined with the other schema's");
    }
    if (patterns_b != NULL && !put(out, "patternProperties", patterns_b)) return no_memory(s);
    if (json_object_get(a, "properties") != NULL || json_object_get(b, "properties") != NULL) {
        ECH_TRY(merge_properties(s, a, b, out));
    }
    if (add_b == NULL) return ECH_OK;
    const json_t *both = add_b;
    if (add_a != NULL) ECH_TRY(ech_schema_merge(s, add_a, add_b, &both));
    return put(out, "additionalProperties", both) ? ECH_OK : no_memory(s);
}

/* What a schema says about position i: prefixItems, or else items; nothing means anything. */
static const json_t *item_schema(const json_t *const schema, const size_t i)
{
    const json_t *const prefix = json_object_get(schema, "prefixItems");
    if (i < json_array_size(prefix)) return json_array_get(prefix, i);
    const json_t *const items = json_object_get(schema, "items");
    return items != NULL ? items : json_true();
}

/*
 * Positions beyond one side's prefixItems meet that side's items. An array under `items`, as drafts
 * before 2020-12 have it, is refused: joined it would be prefixItems.
 */
static ech_status merge_items(ech_schema *const s, const json_t *const a, const json_t *const b,
                              json_t *const out)
{
    const json_t *const items_a = json_object_get(a, "items");
    const json_t *const items_b = json_object_get(b, "items");
    if (json_is_array(items_a) || json_is_array(items_b)) {
        return ech_schema_fail(s, ECH_EUNSUPPORTED, "items", "an array of schemas can't be joined");
    }
    const size_t n_a = json_array_size(json_object_get(a, "prefixItems"));
    const size_t n_b = json_array_size(json_object_get(b, "prefixItems"));
    const json_t *both = NULL;
    if (items_a != NULL || items_b != NULL) {
        ECH_TRY(ech_schema_merge(s, items_a != NULL ? items_a : json_true(),
                                 items_b != NULL ? items_b : json_true(), &both));
        if (!put(out, "items", both)) return no_memory(s);
    }
    if (n_a + n_b == 0) return ECH_OK;
    json_t *const prefix = own(s, json_array());
    if (prefix == NULL) return no_memory(s);
    for (size_t i = 0; i < (n_a > n_b ? n_a : n_b); i++) {
        ECH_TRY(ech_schema_merge(s, item_schema(a, i), item_schema(b, i), &both));
        if (json_array_append(prefix, unconst(both)) != 0) return no_memory(s);
    }
    return put(out, "prefixItems", prefix) ? ECH_OK : no_memory(s);
}

/* A copy is extended: the old list may be one of the inputs'. */
static ech_status extend_all_of(ech_schema *const s, const json_t *const parts, json_t *const out)
{
    json_t *const old = json_object_get(out, "allOf");
    json_t *const list = own(s, old != NULL ? json_copy(old) : json_array());
    if (list == NULL || json_array_extend(list, unconst(parts)) != 0 || !put(out, "allOf", list)) {
        return no_memory(s);
    }
    return ECH_OK;
}

/*
 * Puts a combination of b under allOf of out. json_pack's O takes a reference of its own: inputs
 * stay their owners'.
 */
static ech_status postpone(ech_schema *const s, const char *const key, const json_t *const value,
                           json_t *const out)
{
    json_t *const part = own(s, json_pack("[{s:O}]", key, value));
    return part == NULL ? no_memory(s) : extend_all_of(s, part, out);
}

/*
 * Only where one divides the other; the least common multiple of decimals isn't worth the trouble.
 */
static ech_status merge_multiple(ech_schema *const s, const json_t *const a, const json_t *const b,
                                 json_t *const out)
{
    const double x = json_number_value(a), y = json_number_value(b);
    if (x > 0 && y > 0 && fmod(x, y) == 0) return put(out, "multipleOf", a) ? ECH_OK : no_memory(s);
    if (x > 0 && y > 0 && fmod(y, x) == 0) return put(out, "multipleOf", b) ? ECH_OK : no_memory(s);
    return ech_schema_fail(s, ECH_EUNSUPPORTED, "multipleOf", "two of them can't be joined");
}

/* Names of either side, each once. */
static ech_status merge_required(ech_schema *const s, const json_t *const a, const json_t *const b,
                                 json_t *const out)
{
    json_t *const list = own(s, json_copy(unconst(a)));
    if (list == NULL) return no_memory(s);
    for (size_t i = 0; i < json_array_size(b); i++) {
        json_t *const name = json_array_get(b, i);
        if (!contains(list, name) && json_array_append(list, name) != 0) return no_memory(s);
    }
    return put(out, "required", list) ? ECH_OK : no_memory(s);
}

/* One keyword that both have. */
static ech_status merge_keyword(ech_schema *const s, const char *const key, const json_t *const a,
                                const json_t *const b, json_t *const out)
{
    bool done = false;
    ECH_TRY(merge_bound(s, key, a, b, out, &done));
    if (done) return ECH_OK;
    if (strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0 || strcmp(key, "$ref") == 0) {
        return ech_json_same(a, b) ? ECH_OK : postpone(s, key, b, out);
    }
    if (strcmp(key, "pattern") == 0 || strcmp(key, "format") == 0) {
        return merge_lists(s, key, a, b, out);
    }
    if (strcmp(key, "required") == 0) return merge_required(s, a, b, out);
    if (strcmp(key, "multipleOf") == 0) return merge_multiple(s, a, b, out);
    return ECH_OK; /* an annotation: the first one's stays */
}

/* Keywords that are joined together and not one by one, after the others. */
static bool is_grouped(const char *const key)
{
    static const char *const GROUPED[] = {
        "type",  "enum",        "const", "properties", "patternProperties", "additionalProperties",
        "items", "prefixItems",
    };
    for (size_t i = 0; i < sizeof GROUPED / sizeof GROUPED[0]; i++) {
        if (strcmp(key, GROUPED[i]) == 0) return true;
    }
    return false;
}

/* out begins as a copy of a: only what b adds or narrows has to be done. */
static ech_status merge_objects(ech_schema *const s, const json_t *const a, const json_t *const b,
                                json_t *const out)
{
    const char *key;
    json_t *value;
    json_object_foreach(unconst(b), key, value)
    {
        const json_t *const mine = json_object_get(a, key);
        if (is_grouped(key)) continue;
        if (strcmp(key, "allOf") == 0) {
            ECH_TRY(extend_all_of(s, value, out));
            continue;
        }
        if (mine != NULL)
            ECH_TRY(merge_keyword(s, key, mine, value, out));
        else if (!put(out, key, value))
            return no_memory(s);
    }
    if (json_object_get(a, "type") != NULL || json_object_get(b, "type") != NULL) {
        ECH_TRY(merge_types(s, a, b, out));
    }
    ECH_TRY(merge_values(s, a, b, out));
    ECH_TRY(merge_members(s, a, b, out));
    return merge_items(s, a, b, out);
}

/*
 * Booleans are schemas: false wins over everything, true changes nothing. Both counts bound what a
 * small schema with nested combinations could blow up to.
 */
ech_status ech_schema_merge(ech_schema *const s, const json_t *const a, const json_t *const b,
                            const json_t **const ret)
{
    if (json_is_false(a) || json_is_true(b)) {
        *ret = a;
        return ECH_OK;
    }
    if (json_is_false(b) || json_is_true(a)) {
        *ret = b;
        return ECH_OK;
    }
    if (!json_is_object(a) || !json_is_object(b)) {
        return ech_schema_fail(s, ECH_EFORMAT, NULL, "a schema must be an object or a boolean");
    }
    if (++s->work > ECH_SCHEMA_MAX_LIST * 2) {
        return ech_schema_fail(s, ECH_ELIMIT, NULL,
                               "the schema combines into over 40000 subschemas");
    }
    if (++s->nesting > ECH_SCHEMA_MAX_NESTING) {
        return ech_schema_fail(s, ECH_ELIMIT, NULL, "subschemas nest over 120 deep");
    }
    json_t *const out = own(s, json_copy(unconst(a)));
    if (out == NULL) return no_memory(s);
    ECH_TRY(merge_objects(s, a, b, out));
    s->nesting--;
    *ret = out;
    return ECH_OK;
}
