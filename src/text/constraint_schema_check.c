/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions about schemas and values: does a value satisfy a schema, do two schemas exclude each
 * other. Both know their limits: where they can't tell they say so, and the compiler refuses the
 * schema instead of guessing.
 *
 * Who asks: enum and const, whose values must fit the rest of their schema, and oneOf, whose
 * alternatives must not both hold, since a grammar can't forbid what another branch accepts.
 *
 * Invariant: nothing is changed and nothing reported. s->err is NULL while others are asked, so
 * that an error on the way leaves no text, and is put back before the answer. JSON values are
 * borrowed from the schema.
 *
 * As in JSON Schema a keyword of another type than the value's says nothing about it: minLength
 * lets every number through. Thread: the one that compiles.
 */
#include "src/text/constraint_schema_parts.h"

#include <math.h>

#define YES     1
#define NO      0
#define UNKNOWN (-1)

/* Reals beyond 2^53 are all whole, and count. */
static bool is_integral(const json_t *const value)
{
    return json_is_integer(value) ||
           (json_is_real(value) && floor(json_real_value(value)) == json_real_value(value));
}

/* 1.0 is an integer to JSON Schema: the type is a matter of the value, not of its spelling. */
static unsigned type_of(const json_t *const value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return ECH_TYPE_OBJECT;
    case JSON_ARRAY:
        return ECH_TYPE_ARRAY;
    case JSON_STRING:
        return ECH_TYPE_STRING;
    case JSON_TRUE:
    case JSON_FALSE:
        return ECH_TYPE_BOOLEAN;
    case JSON_NULL:
        return ECH_TYPE_NULL;
    default:
        return is_integral(value) ? ECH_TYPE_INTEGER : ECH_TYPE_NUMBER;
    }
}

/*
 * A number bound: whether sign * (value - bound) is at least 0, or above it. A bound that is no
 * number bounds nothing here; the compiler names it where the keyword is read.
 */
static bool keeps_bound(const json_t *const schema, const char *const key, const double value,
                        const int sign, const bool exclusive)
{
    const json_t *const bound = json_object_get(schema, key);
    if (!json_is_number(bound)) return true;
    const double d = (value - json_number_value(bound)) * sign;
    return exclusive ? d > 0 : d >= 0;
}

/*
 * Draft 4 had exclusiveMinimum as a boolean beside minimum; which draft is meant isn't known here,
 * so such a schema is not judged. fmod of a fraction is inexact: only whole divisors give a certain
 * no. A `no` must be certain: it drops a value from an enum, or lets a oneOf through.
 */
static int admits_number(const json_t *const schema, const double value)
{
    if (json_is_boolean(json_object_get(schema, "exclusiveMinimum")) ||
        json_is_boolean(json_object_get(schema, "exclusiveMaximum"))) {
        return UNKNOWN;
    }
    const json_t *const multiple = json_object_get(schema, "multipleOf");
    if (multiple != NULL && fmod(value, json_number_value(multiple)) != 0) {
        return json_is_integer(multiple) ? NO : UNKNOWN;
    }
    return keeps_bound(schema, "minimum", value, 1, false) &&
           keeps_bound(schema, "exclusiveMinimum", value, 1, true) &&
           keeps_bound(schema, "maximum", value, -1, false) &&
           keeps_bound(schema, "exclusiveMaximum", value, -1, true);
}

/*
 * What minLength counts: code points, neither bytes nor UTF-16 units. A double, as the bounds are.
 */
static double code_points(const ech_str text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += ((unsigned char)text.ptr[i] & 0xC0) != 0x80;
    return (double)n;
}

/*
 * Patterns and formats, which merging may have made lists. They are compiled for one question and
 * thrown away; schemas with many values are rare. A pattern that can't be compiled gives no answer,
 * not a no.
 */
static int admits_patterns(ech_schema *const s, const json_t *const schema, const char *const key,
                           const ech_str text)
{
    const json_t *const value = json_object_get(schema, key);
    const size_t n = value == NULL ? 0 : json_is_array(value) ? json_array_size(value) : 1;
    ech_error *const err = s->err;
    int answer = YES;
    for (size_t i = 0; i < n && answer == YES; i++) {
        const json_t *const item = json_is_array(value) ? json_array_get(value, i) : value;
        ech_dfa *dfa = NULL;
        s->err = NULL;
        const ech_status rc = strcmp(key, "format") == 0
                                  ? ech_schema_format(s, json_string_value(item), &dfa)
                                  : ech_schema_pattern(s, item, key, ECH_REGEX_STRICT, &dfa);
        s->err = err;
        answer = rc != ECH_OK ? UNKNOWN : ech_dfa_accepts(dfa, text) ? YES : NO;
        ech_dfa_free(&dfa);
    }
    return answer;
}

/* The cheap question first. */
static int admits_string(ech_schema *const s, const json_t *const schema, const json_t *const value)
{
    const ech_str text = { json_string_value(value), json_string_length(value) };
    const double n = code_points(text);
    if (!keeps_bound(schema, "minLength", n, 1, false) ||
        !keeps_bound(schema, "maxLength", n, -1, false)) {
        return NO;
    }
    /* UNKNOWN stays UNKNOWN, though the format might say no: caution costs only a schema. */
    const int answer = admits_patterns(s, schema, "pattern", text);
    return answer == YES ? admits_patterns(s, schema, "format", text) : answer;
}

/*
 * Keywords of the type that are present and not looked at here. With one of them the answer would
 * need the whole of JSON Schema again, for values that hardly any enum has.
 */
static int admits_compound(const json_t *const schema, const bool is_object)
{
    static const char *const OF_OBJECTS[] = {
        "properties",    "patternProperties", "required", "additionalProperties",
        "minProperties", "maxProperties",     NULL
    };
    static const char *const OF_ARRAYS[] = { "items", "prefixItems", "minItems", "maxItems", NULL };
    for (const char *const *key = is_object ? OF_OBJECTS : OF_ARRAYS; *key != NULL; key++) {
        if (json_object_get(schema, *key) != NULL) return UNKNOWN;
    }
    return YES;
}

/*
 * Errors on the way are not the schema's: err is put aside, and what can't be read is UNKNOWN,
 * which the compiler meets again where it can name the place.
 */
int ech_schema_admits(ech_schema *const s, const json_t *const schema, const json_t *const value)
{
    if (json_is_boolean(schema)) return json_is_true(schema) ? YES : NO;
    static const char *const COMBINED[] = { "anyOf", "oneOf", "allOf", "$ref" };
    for (size_t i = 0; i < sizeof COMBINED / sizeof COMBINED[0]; i++) {
        if (json_object_get(schema, COMBINED[i]) != NULL) return UNKNOWN;
    }
    unsigned types = 0;
    ech_error *const err = s->err;
    s->err = NULL;
    const ech_status rc = ech_schema_get_types(s, schema, &types);
    s->err = err;
    if (rc != ECH_OK) return UNKNOWN;
    if ((types & type_of(value)) == 0) return NO;
    const json_t *const list = json_object_get(schema, "enum");
    const json_t *const one = json_object_get(schema, "const");
    bool listed = list == NULL;
    for (size_t i = 0; i < json_array_size(list) && !listed; i++) {
        listed = ech_json_same(json_array_get(list, i), value);
    }
    if (!listed || (one != NULL && !ech_json_same(one, value))) return NO;
    if (json_is_number(value)) return admits_number(schema, json_number_value(value));
    if (json_is_string(value)) return admits_string(s, schema, value);
    if (json_is_object(value) || json_is_array(value)) {
        return admits_compound(schema, json_is_object(value));
    }
    return YES;
}

/* ---- exclusion ---- */

static bool disjoint(ech_schema *s, const json_t *a, const json_t *b, int depth);

/*
 * Follows $ref; the schema itself when it can't be followed. References may go round in a circle:
 * hence the bound.
 */
static const json_t *look_through(ech_schema *const s, const json_t *schema)
{
    ech_error *const err = s->err;
    s->err = NULL;
    for (int i = 0; i < 20 && json_object_get(schema, "$ref") != NULL; i++) {
        const json_t *target = NULL;
        const char *const ref = json_string_value(json_object_get(schema, "$ref"));
        if (ech_schema_resolve(s, ref, &target) != ECH_OK) break;
        schema = target;
    }
    s->err = err;
    return schema;
}

/*
 * Whether a lists its values, and b refuses each of them. An empty enum has no values: nothing
 * satisfies it, so it excludes everything.
 */
static bool values_refused(ech_schema *const s, const json_t *const a, const json_t *const b)
{
    const json_t *const one = json_object_get(a, "const");
    const json_t *const list = json_object_get(a, "enum");
    if (one != NULL) return ech_schema_admits(s, b, one) == NO;
    if (!json_is_array(list)) return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (ech_schema_admits(s, b, json_array_get(list, i)) != NO) return false;
    }
    return true;
}

/*
 * Whether the highest a allows is below the lowest b allows. Counts and numbers alike. Bounds that
 * are equal share a value; exclusive ones are not looked at, and only missed.
 */
static bool is_below(const json_t *const a, const json_t *const b, const char *const max,
                     const char *const min)
{
    const json_t *const high = json_object_get(a, max), *const low = json_object_get(b, min);
    return json_is_number(high) && json_is_number(low) &&
           json_number_value(high) < json_number_value(low);
}

static bool requires(const json_t *const schema, const char *const key)
{
    const json_t *const list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *const name = json_string_value(json_array_get(list, i));
        if (name != NULL && strcmp(name, key) == 0) return true;
    }
    return false;
}

/*
 * A key that a requires, and that b forbids, or gives another value. Required on one side is enough
 * where the other forbids it or gives it a value that never fits: an object with the key fails
 * there, one without it fails here.
 */
static bool key_tells_apart(ech_schema *const s, const json_t *const a, const json_t *const b,
                            const char *const key, const int depth)
{
    const json_t *const in_a = json_object_get(json_object_get(a, "properties"), key);
    const json_t *const in_b = json_object_get(json_object_get(b, "properties"), key);
    if (in_b == NULL) {
        return json_is_false(json_object_get(b, "additionalProperties")) &&
               json_object_get(b, "patternProperties") == NULL;
    }
    return in_a != NULL && disjoint(s, in_a, in_b, depth + 1);
}

/*
 * One required key is enough, asked from both sides: the discriminator of a tagged union. A key
 * that is optional tells nothing: both allow the object without it.
 */
static bool objects_disjoint(ech_schema *const s, const json_t *const a, const json_t *const b,
                             const int depth)
{
    const json_t *const pairs[2][2] = { { a, b }, { b, a } };
    for (int i = 0; i < 2; i++) {
        const json_t *const list = json_object_get(pairs[i][0], "required");
        for (size_t k = 0; k < json_array_size(list); k++) {
            const char *const key = json_string_value(json_array_get(list, k));
            if (key != NULL && requires(pairs[i][0], key) &&
                key_tells_apart(s, pairs[i][0], pairs[i][1], key, depth)) {
                return true;
            }
        }
    }
    return false;
}

/*
 * Whether the values of one type that a and b allow have nothing in common. Only what is plain to
 * see: two patterns may exclude each other and are still called joint. A wrong "joint" refuses a
 * schema; a wrong "disjoint" would let an answer through that two alternatives of a oneOf accept.
 */
static bool type_disjoint(ech_schema *const s, const json_t *const a, const json_t *const b,
                          const unsigned type, const int depth)
{
    switch (type) {
    case ECH_TYPE_OBJECT:
        return objects_disjoint(s, a, b, depth);
    case ECH_TYPE_ARRAY:
        return is_below(a, b, "maxItems", "minItems") || is_below(b, a, "maxItems", "minItems");
    case ECH_TYPE_STRING:
        return is_below(a, b, "maxLength", "minLength") || is_below(b, a, "maxLength", "minLength");
    case ECH_TYPE_NUMBER:
    case ECH_TYPE_INTEGER:
        return is_below(a, b, "maximum", "minimum") || is_below(b, a, "maximum", "minimum");
    default:
        return false;
    }
}

/*
 * Each type on its own: two schemas exclude each other if for every type that both allow they do.
 * The depth is bounded because properties may lead back to the schema itself by $ref. Types that
 * can't be read count as all of them.
 */
static bool disjoint(ech_schema *const s, const json_t *a, const json_t *b, const int depth)
{
    a = look_through(s, a);
    b = look_through(s, b);
    if (json_is_false(a) || json_is_false(b)) return true;
    if (!json_is_object(a) || !json_is_object(b) || depth > 6) return false;
    /* The strongest sign, a const against a const, comes first. */
    if (values_refused(s, a, b) || values_refused(s, b, a)) return true;
    unsigned types_a = ECH_TYPE_ALL, types_b = ECH_TYPE_ALL;
    ech_error *const err = s->err;
    s->err = NULL;
    (void)ech_schema_get_types(s, a, &types_a);
    (void)ech_schema_get_types(s, b, &types_b);
    s->err = err;
    for (unsigned type = 1; type <= ECH_TYPE_STRING; type <<= 1) {
        if ((types_a & types_b & type) && !type_disjoint(s, a, b, type, depth)) return false;
    }
    return true;
}

bool ech_schema_disjoint(ech_schema *const s, const json_t *const a, const json_t *const b)
{
    return disjoint(s, a, b, 0);
}
