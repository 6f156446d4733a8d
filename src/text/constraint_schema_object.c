/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects. Declared properties come in the schema's order, optional ones may be left out; then, if
 * the schema allows them, keys that it doesn't declare.
 *
 *     choice(i)   one of the members i, i + 1, … that may come next: each optional one may be
 *                 skipped, a required one not; after the last, the undeclared keys
 *     after(i)    ws "}" if nothing from i on is required; or ws "," ws choice(i)
 *
 * Undeclared keys are written as automata: any string, minus the declared names, minus (for
 * additionalProperties) what patternProperties match. Escapes spell the same key, so they are
 * excluded too, and a key that began like a declared one can always be made longer.
 */
#include "src/text/constraint_schema_parts.h"

typedef struct member {
    const char *key;
    size_t key_len;
    const json_t *schema;
    bool is_required;
} member;

typedef struct object_rules {
    const json_t *properties; /* or NULL */
    const json_t *patterns;   /* patternProperties or NULL */
    const json_t *additional; /* additionalProperties as given, or NULL */
    const json_t *required;   /* or NULL */
    bool is_closed; /* the rule of the documentation: properties given, additional absent */
    member *members;
    uint32_t n_members, cap_members;
} object_rules;

/* ---- what is declared ---- */

static ech_status check_object(ech_schema *const s, const json_t *const value,
                               const char *const key)
{
    if (value == NULL || json_is_object(value)) return ECH_OK;
    return ech_schema_fail(s, ECH_EFORMAT, key, "it must be an object");
}

static bool is_required(const object_rules *const r, const char *const key, const size_t len)
{
    for (size_t i = 0; i < json_array_size(r->required); i++) {
        const json_t *const name = json_array_get(r->required, i);
        if (json_is_string(name) && json_string_length(name) == len &&
            memcmp(json_string_value(name), key, len) == 0) {
            return true;
        }
    }
    return false;
}

/* Keys are borrowed from the JSON tree, which lives as long as the compilation. */
static ech_status add_member(ech_schema *const s, object_rules *const r, const char *const key,
                             const size_t len, const json_t *const schema, const bool required)
{
    if (r->n_members >= ECH_SCHEMA_MAX_LIST / 4) {
        return ech_schema_fail(s, ECH_ELIMIT, "properties", "there are over 5000 properties");
    }
    if (!ECH_VEC_GROW(r->members, r->cap_members, r->n_members, 1)) {
        return ech_schema_fail(s, ECH_ENOMEM, NULL, "");
    }
    r->members[r->n_members++] = (member){ key, len, schema, required };
    return ECH_OK;
}

/* The schema of a declared key, joined with those of the patterns it matches. */
static ech_status join_patterns(ech_schema *const s, const object_rules *const r, const ech_str key,
                                const json_t **const schema)
{
    const char *pattern;
    json_t *other;
    json_object_foreach((json_t *)(uintptr_t)r->patterns, pattern, other)
    {
        ech_dfa *dfa = NULL;
        json_t *const text = json_string(pattern);
        const ech_status rc =
            ech_schema_pattern(s, text, "patternProperties", ECH_REGEX_WIDE, &dfa);
        json_decref(text);
        ECH_TRY(rc);
        const bool matches = ech_dfa_accepts(dfa, key);
        ech_dfa_free(&dfa);
        if (matches) ECH_TRY(ech_schema_merge(s, *schema, other, schema));
    }
    return ECH_OK;
}

static ech_status list_members(ech_schema *const s, object_rules *const r)
{
    const char *key;
    size_t len;
    json_t *schema;
    json_object_keylen_foreach((json_t *)(uintptr_t)r->properties, key, len, schema)
    {
        ECH_TRY(add_member(s, r, key, len, schema, is_required(r, key, len)));
    }
    /* Required keys that are not declared: whatever an undeclared key may be. */
    for (size_t i = 0; i < json_array_size(r->required); i++) {
        const json_t *const name = json_array_get(r->required, i);
        if (!json_is_string(name)) {
            return ech_schema_fail(s, ECH_EFORMAT, "required", "it must be an array of strings");
        }
        const char *const text = json_string_value(name);
        bool known = false;
        for (uint32_t k = 0; k < r->n_members && !known; k++) {
            known = r->members[k].key_len == json_string_length(name) &&
                    memcmp(r->members[k].key, text, r->members[k].key_len) == 0;
        }
        if (known) continue;
        const json_t *const any = r->additional != NULL ? r->additional : json_true();
        ECH_TRY(add_member(s, r, text, json_string_length(name), any, true));
    }
    return ECH_OK;
}

/*
 * An object that declares properties and says nothing about others is closed (a rule of the
 * documentation): a model would otherwise be free to invent members.
 */
static ech_status get_rules(ech_schema *const s, const json_t *const schema, object_rules *const r)
{
    r->properties = json_object_get(schema, "properties");
    r->patterns = json_object_get(schema, "patternProperties");
    r->additional = json_object_get(schema, "additionalProperties");
    r->required = json_object_get(schema, "required");
    ECH_TRY(check_object(s, r->properties, "properties"));
    ECH_TRY(check_object(s, r->patterns, "patternProperties"));
    if (r->required != NULL && !json_is_array(r->required)) {
        return ech_schema_fail(s, ECH_EFORMAT, "required", "it must be an array of strings");
    }
    r->is_closed = r->additional == NULL && r->properties != NULL;
    return list_members(s, r);
}

/* Counts of members can't be tracked beside names; what follows from the rest is let through. */
static ech_status check_counts(ech_schema *const s, const json_t *const schema,
                               const object_rules *const r, bool *const ret_nonempty,
                               uint32_t *const ret_max)
{
    uint32_t min = 0, max = ECH_CX_INF, n_required = 0;
    ECH_TRY(ech_schema_get_count(s, schema, "minProperties", &min));
    ECH_TRY(ech_schema_get_count(s, schema, "maxProperties", &max));
    for (uint32_t i = 0; i < r->n_members; i++)
        n_required += r->members[i].is_required;
    *ret_nonempty = min == 1 && n_required == 0;
    *ret_max = max;
    if (min > 1 && min > n_required) {
        return ech_schema_fail(s, ECH_EUNSUPPORTED, "minProperties",
                               "over 1, and over the number "
                               "of required properties, it can't be enforced");
    }
    const bool open = !r->is_closed && !json_is_false(r->additional);
    if (max != ECH_CX_INF && r->n_members > 0 && (open || max < r->n_members)) {
        return ech_schema_fail(s, ECH_EUNSUPPORTED, "maxProperties",
                               "beside properties it can't be enforced");
    }
    return ECH_OK;
}

/* ---- members ---- */

/* "key" ws : ws value */
static ech_cx pair(const ech_schema *const s, const ech_cx key, const ech_cx value)
{
    const ech_cx parts[5] = { key, s->space, ech_cx_range(s->g, ':', ':'), s->space, value };
    return ech_cx_seq(s->g, parts, 5);
}

static ech_status member_expr(ech_schema *const s, const object_rules *const r,
                              const member *const m, ech_cx *const ret)
{
    const ech_str key = { m->key, m->key_len };
    const json_t *schema = m->schema;
    const size_t old = ech_schema_enter(s, "properties", 10);
    (void)ech_schema_enter(s, m->key, m->key_len);
    ECH_TRY(join_patterns(s, r, key, &schema));
    ech_cx value = ECH_CX_FAIL;
    ECH_TRY(ech_schema_value(s, schema, &value));
    ech_schema_leave(s, old);
    ech_buf quoted = { 0 };
    const ech_status rc = ech_schema_quote(s, key, &quoted);
    if (rc == ECH_OK) *ret = pair(s, ech_cx_lit(s->g, quoted.data, quoted.len), value);
    ech_buf_fini(&quoted);
    return rc;
}

/* ---- undeclared keys ---- */

static ech_status fail_dfa(ech_schema *const s, const ech_status rc, const char *const key,
                           const ech_error *const cause)
{
    return ech_schema_fail(s, rc, key, cause->text);
}

/*
 * keys loses (minus) or keeps only (not minus) what other accepts. On failure *keys stays the
 * caller's, as it was.
 */
static ech_status narrow(ech_schema *const s, ech_dfa **const keys, const ech_dfa *const other,
                         const bool minus, const char *const key)
{
    ech_dfa *out = NULL;
    ech_error cause = { 0 };
    const ech_status rc = ech_dfa_combine(*keys, other, minus, &out, &cause);
    if (rc != ECH_OK) return fail_dfa(s, rc, key, &cause);
    ech_dfa_free(keys);
    *keys = out;
    return ECH_OK;
}

/* Any string but the declared names. */
static ech_status undeclared(ech_schema *const s, const object_rules *const r, ech_dfa **const ret)
{
    ech_dfa *names = NULL;
    ech_error cause = { 0 };
    ech_status rc = ech_dfa_any(ret, &cause);
    ech_str *const words = malloc(((size_t)r->n_members + 1) * sizeof *words);
    if (words == NULL) rc = ECH_ENOMEM;
    for (uint32_t i = 0; words != NULL && i < r->n_members; i++) {
        words[i] = (ech_str){ r->members[i].key, r->members[i].key_len };
    }
    if (rc == ECH_OK && r->n_members > 0) {
        rc = ech_dfa_words(words, r->n_members, &names, &cause);
        if (rc == ECH_OK) rc = narrow(s, ret, names, true, NULL);
    }
    ech_dfa_free(&names);
    free(words);
    return rc == ECH_OK ? rc : fail_dfa(s, rc, NULL, &cause);
}

static ech_cx key_expr(const ech_schema *const s, const ech_dfa *const keys)
{
    const ech_cx quote = ech_cx_range(s->g, '"', '"');
    return ech_cx_seq3(s->g, quote, ech_dfa_expr(s->g, keys, ECH_SPELL_JSON), quote);
}

/*
 * Adds the members whose keys are in keys and whose values satisfy schema. The automaton of every
 * string is recognised, so that it shares the expression for any string.
 */
static ech_status add_members(ech_schema *const s, const ech_dfa *const keys,
                              const json_t *const schema, ech_cx *const out)
{
    if (ech_dfa_is_empty(keys)) return ECH_OK;
    ech_cx value = ECH_CX_FAIL;
    ECH_TRY(ech_schema_value(s, schema, &value));
    const bool is_any = keys->n_states == 1 && keys->n_classes == 1;
    const ech_cx key = is_any ? ech_schema_any_string(s) : key_expr(s, keys);
    *out = ech_cx_alt2(s->g, *out, pair(s, key, value));
    return ECH_OK;
}

/* The automata of the patterns, in their order. */
static ech_status pattern_dfas(ech_schema *const s, const object_rules *const r,
                               const ech_regex_reading reading, ech_dfa **const list)
{
    const char *pattern;
    json_t *schema;
    size_t n = 0;
    json_object_foreach((json_t *)(uintptr_t)r->patterns, pattern, schema)
    {
        json_t *const text = json_string(pattern);
        const ech_status rc = ech_schema_pattern(s, text, "patternProperties", reading, &list[n++]);
        json_decref(text);
        ECH_TRY(rc);
    }
    return ECH_OK;
}

/*
 * The keys that match exactly the patterns of a subset, for every subset that has some: their
 * values satisfy all the subset's schemas. match and avoid: [n] what patterns match for certain,
 * and what they may match; taken: bits of the subset.
 */
static ech_status add_pattern_members(ech_schema *const s, const object_rules *const r,
                                      ech_dfa *const *const match, ech_dfa *const *const avoid,
                                      const size_t n, const ech_dfa *const free_keys,
                                      const unsigned taken, ech_cx *const out)
{
    ech_dfa *keys = NULL;
    const json_t *schema = json_true();
    ech_dfa *any = NULL;
    ech_error cause = { 0 };
    ECH_TRY(ech_dfa_any(&any, &cause));
    ech_status rc = ech_dfa_combine(free_keys, any, false, &keys, &cause);
    ech_dfa_free(&any);
    const char *pattern;
    json_t *one;
    size_t i = 0;
    json_object_foreach((json_t *)(uintptr_t)r->patterns, pattern, one)
    {
        if (rc != ECH_OK || i >= n) break;
        const bool is_in = (taken >> i) & 1;
        rc = narrow(s, &keys, is_in ? match[i] : avoid[i], !is_in, "patternProperties");
        if (rc == ECH_OK && is_in && !ech_dfa_is_empty(keys)) {
            rc = ech_schema_merge(s, schema, one, &schema);
        }
        i++;
    }
    if (rc == ECH_OK) rc = add_members(s, keys, schema, out);
    ech_dfa_free(&keys);
    return rc;
}

/*
 * One undeclared member; FAIL when there may be none. 2^n subsets of patterns: hence at most 6.
 * STRICT for what must match, WIDE for what must not, so that a key on which engines disagree is
 * not written at all.
 */
static ech_status other_members(ech_schema *const s, const object_rules *const r, ech_cx *const ret)
{
    const bool open = !r->is_closed && !json_is_false(r->additional);
    const size_t n = json_object_size(r->patterns);
    *ret = ECH_CX_FAIL;
    if (!open && n == 0) return ECH_OK;
    if (n > 6) {
        return ech_schema_fail(s, ECH_ELIMIT, "patternProperties", "there are over 6 patterns");
    }
    ech_dfa *keys = NULL, *match[6] = { NULL }, *avoid[6] = { NULL };
    ech_status rc = undeclared(s, r, &keys);
    if (rc == ECH_OK) rc = pattern_dfas(s, r, ECH_REGEX_STRICT, match);
    if (rc == ECH_OK) rc = pattern_dfas(s, r, ECH_REGEX_WIDE, avoid);
    for (unsigned taken = 1; taken < 1u << n && rc == ECH_OK; taken++) {
        const size_t old = ech_schema_enter(s, "patternProperties", 17);
        rc = add_pattern_members(s, r, match, avoid, n, keys, taken, ret);
        ech_schema_leave(s, old);
    }
    for (size_t i = 0; i < n && rc == ECH_OK; i++) {
        rc = narrow(s, &keys, avoid[i], true, "patternProperties");
    }
    if (rc == ECH_OK && open) {
        const size_t old = ech_schema_enter(s, "additionalProperties", 20);
        rc = add_members(s, keys, r->additional != NULL ? r->additional : json_true(), ret);
        ech_schema_leave(s, old);
    }
    ech_dfa_free(&keys);
    for (size_t i = 0; i < n; i++) {
        ech_dfa_free(&match[i]);
        ech_dfa_free(&avoid[i]);
    }
    return rc;
}

/* ---- the object ---- */

/*
 * ws "}" where the object may close, or ws "," ws and more. The comma belongs to the member that
 * follows.
 */
static ech_cx after(const ech_schema *const s, const bool may_close, const ech_cx more)
{
    ech_cx_graph *const g = s->g;
    const ech_cx close = may_close ? ech_cx_range(g, '}', '}') : ECH_CX_FAIL;
    const ech_cx comma = ech_cx_seq3(g, ech_cx_range(g, ',', ','), s->space, more);
    return ech_cx_seq2(g, s->space, ech_cx_alt2(g, close, comma));
}

/* Undeclared members, up to most of them, and the closing brace. */
static ech_cx others_to_end(const ech_schema *const s, const ech_cx other, const uint32_t most)
{
    ech_cx_graph *const g = s->g;
    if (other == ECH_CX_FAIL || most == 0) return ECH_CX_FAIL;
    const ech_cx comma = ech_cx_seq3(g, s->space, ech_cx_range(g, ',', ','), s->space);
    const ech_cx more =
        ech_cx_repeat(g, ech_cx_seq2(g, comma, other), 0, most == ECH_CX_INF ? most : most - 1);
    const ech_cx parts[4] = { other, more, s->space, ech_cx_range(g, '}', '}') };
    return ech_cx_shared(g, ech_cx_seq(g, parts, 4));
}

/*
 * Built from the last member to the first: choice is everything that may stand from member i on.
 * Members come in the order of the schema, each at most once, optional ones may be left out;
 * undeclared ones come last. That order is what keeps the automaton linear in the number of
 * members.
 */
static ech_status object_expr(ech_schema *const s, const json_t *const schema,
                              const object_rules *const r, ech_cx *const ret)
{
    ech_cx_graph *const g = s->g;
    bool nonempty = false;
    uint32_t most = ECH_CX_INF;
    ECH_TRY(check_counts(s, schema, r, &nonempty, &most));
    ech_cx other = ECH_CX_FAIL;
    ECH_TRY(other_members(s, r, &other));
    ech_cx choice = others_to_end(s, other, most);
    bool may_close = true; /* nothing from i on is required */
    for (uint32_t i = r->n_members; i > 0; i--) {
        const member *const m = &r->members[i - 1];
        ech_cx here = ECH_CX_FAIL;
        ECH_TRY(member_expr(s, r, m, &here));
        const ech_cx taken = ech_cx_seq2(g, here, after(s, may_close, choice));
        choice = m->is_required ? taken : ech_cx_alt2(g, taken, choice);
        choice = ech_cx_shared(g, choice); /* a rule each: keeps the nesting of expressions flat */
        may_close = may_close && !m->is_required;
    }
    const ech_cx close = may_close && !nonempty ? ech_cx_range(g, '}', '}') : ECH_CX_FAIL;
    *ret = ech_cx_seq3(g, ech_cx_range(g, '{', '{'), s->space, ech_cx_alt2(g, close, choice));
    return ech_cx_graph_check(g, s->err);
}

/* Whether nothing is said about members. */
static bool is_free(const json_t *const schema)
{
    static const char *const KEYS[] = { "properties", "patternProperties", "required",
                                        "minProperties", "maxProperties" };
    for (size_t i = 0; i < sizeof KEYS / sizeof KEYS[0]; i++) {
        if (json_object_get(schema, KEYS[i]) != NULL) return false;
    }
    const json_t *const additional = json_object_get(schema, "additionalProperties");
    return additional == NULL || json_is_true(additional);
}

ech_status ech_schema_object(ech_schema *const s, const json_t *const schema, ech_cx *const ret)
{
    if (is_free(schema)) {
        ECH_TRY(ech_schema_any(s, ret));
        *ret = s->any_object;
        return ECH_OK;
    }
    object_rules r = { 0 };
    ech_status rc = get_rules(s, schema, &r);
    if (rc == ECH_OK) rc = object_expr(s, schema, &r, ret);
    free(r.members);
    return rc;
}
