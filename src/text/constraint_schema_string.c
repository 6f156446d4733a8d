/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings: lengths, patterns, formats. Lengths alone are a counter over characters. A pattern or a
 * format is an automaton over code points; several of them, and lengths, are their product, so that
 * no text is begun that can't be finished. A pattern alone whose automaton would be large is left
 * to the machine, which counts its repeats instead of unrolling them.
 *
 * The reference is JSON Schema 2020-12, with one difference: `format`, which is a mere annotation
 * there, is enforced. A pattern may match anywhere in the text; formats match as a whole.
 *
 * Invariant: a function that takes an automaton frees it on every way out; expressions belong to
 * the graph. Sizes are bounded where automata are made, so a small schema can't cost much. Thread:
 * the one that compiles.
 */
#include "src/text/constraint_schema_parts.h"

#include "src/text/constraint_regex.h"

/*
 * Above this many states, counters are the smaller form of a single pattern. The product needs
 * automata, so only a pattern alone has the choice.
 */
#define LARGE_PATTERN 1000u

/*
 * Days of months, leap years as they are; years 0001 to 9999. 0000 is no year to Python's datetime.
 */
#define YEAR "(?:000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})"
#define LEAP "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]"           \
    "|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP "-02-29)"
/*
 * RFC 3339's time without leap seconds: whether second 60 exists depends on the date and the
 * offset, and Python's datetime, for one, refuses it.
 */
#define TIME                                                                                       \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:[Zz]|[+-](?:[01]\\d|2[0-3]):"          \
    "[0-5]\\d)"
/*
 * RFC 3986's IPv4address and IPv6address, alternative by alternative: no zone, octets without
 * leading zeros.
 */
#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4  OCTET "(?:\\." OCTET "){3}"
#define H16   "[0-9A-Fa-f]{1,4}"
#define LS32  "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32      \
    "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16             \
    ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16       \
    ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16   \
    ")?::)"
/*
 * A label of RFC 1123. ATEXT is RFC 5322's atom without quoted strings and domain literals, which
 * no form of today takes. The last three are RFC 3986's pchar, userinfo and reg-name.
 */
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define ATEXT "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define PCHAR "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define USER  "(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})"
#define REGN  "(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"

/*
 * Bounded where the RFCs bound by total length, which an automaton would have to count: a few
 * labels, numbers of a few digits. A stricter text is still one of the format; a form too generous
 * would be an answer that fails its own schema.
 */
static const struct {
    const char *name;
    const char *regex; /* matched as a whole */
} FORMATS[] = {
    { "date", DATE },
    { "time", TIME },
    { "date-time", DATE "[Tt]" TIME },
    { "uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}" },
    { "ipv4", IPV4 },
    { "ipv6", IPV6 },
    { "hostname", LABEL "(?:\\." LABEL "){0,3}" },
    { "email", ATEXT "+(?:\\." ATEXT "+)*@" LABEL "(?:\\." LABEL "){0,3}" },
    { "uri", "[A-Za-z][A-Za-z0-9+.-]*:(?://(?:" USER "*@)?(?:\\[" IPV6 "\\]|" REGN "*)(?::\\d*)?"
             "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|" PCHAR "+(?:/" PCHAR "*)*|)"
             "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?" },
    { "duration", "P(?:\\d{1,9}W|(?:\\d{1,9}Y(?:\\d{1,9}M(?:\\d{1,9}D)?)?|\\d{1,9}M(?:\\d{1,9}D)?"
                  "|\\d{1,9}D)(?:T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?"
                  "|\\d{1,9}S))?|T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?"
                  "|\\d{1,9}S))" },
};

/*
 * Reports an error of a pattern with the schema's pointer. The regex knows what is wrong, the
 * schema where: a user needs both.
 */
static ech_status fail_pattern(ech_schema *const s, const ech_status rc, const char *const key,
                               const ech_error *const cause)
{
    return ech_schema_fail(s, rc, key, cause->text);
}

/*
 * Patterns come from the client: a construct without an automaton (look-around, back references) is
 * an error, not a guess.
 */
static ech_status parse_pattern(ech_schema *const s, const json_t *const pattern,
                                const char *const key, const ech_regex_reading reading,
                                ech_regex **const ret)
{
    if (!json_is_string(pattern))
        return ech_schema_fail(s, ECH_EFORMAT, key, "it must be a string");
    ech_error cause = { 0 };
    const ech_str text = { json_string_value(pattern), json_string_length(pattern) };
    const ech_status rc = ech_regex_parse(text, reading, ret, &cause);
    return rc == ECH_OK ? rc : fail_pattern(s, rc, key, &cause);
}

/* The automaton is the caller's. */
ech_status ech_schema_pattern(ech_schema *const s, const json_t *const pattern,
                              const char *const key, const ech_regex_reading reading,
                              ech_dfa **const ret_dfa)
{
    ech_regex *regex = NULL;
    ech_error cause = { 0 };
    ECH_TRY(parse_pattern(s, pattern, key, reading, &regex));
    const ech_status rc = ech_regex_dfa(regex, true, ret_dfa, &cause);
    ech_regex_free(&regex);
    return rc == ECH_OK ? rc : fail_pattern(s, rc, key, &cause);
}

/*
 * An unknown format is refused, though JSON Schema would ignore it: a client that asks for one
 * expects it to hold. NULL is no name of one.
 */
ech_status ech_schema_format(ech_schema *const s, const char *const name, ech_dfa **const ret_dfa)
{
    const char *regex = NULL;
    for (size_t i = 0; name != NULL && i < sizeof FORMATS / sizeof FORMATS[0]; i++) {
        if (strcmp(FORMATS[i].name, name) == 0) regex = FORMATS[i].regex;
    }
    if (regex == NULL) {
        return ech_schema_fail(s, ECH_EUNSUPPORTED, "format", "this format can't be enforced");
    }
    ech_regex *re = NULL;
    ech_error cause = { 0 };
    ech_status rc = ech_regex_parse(ech_str_from(regex), ECH_REGEX_STRICT, &re, &cause);
    if (rc == ECH_OK) rc = ech_regex_dfa(re, false, ret_dfa, &cause);
    ech_regex_free(&re);
    return rc == ECH_OK ? rc : fail_pattern(s, rc, "format", &cause);
}

/*
 * Makes *all its intersection with one, which is taken; *all may be NULL at first. On failure *all
 * is as it was.
 */
static ech_status intersect(ech_schema *const s, ech_dfa **const all, ech_dfa **const one)
{
    if (*all == NULL) {
        *all = *one;
        *one = NULL;
        return ECH_OK;
    }
    ech_dfa *both = NULL;
    ech_error cause = { 0 };
    const ech_status rc = ech_dfa_combine(*all, *one, false, &both, &cause);
    ech_dfa_free(one);
    if (rc != ECH_OK) return fail_pattern(s, rc, NULL, &cause);
    ech_dfa_free(all);
    *all = both;
    return ECH_OK;
}

/*
 * Patterns and formats: `pattern` is a string, or an array of them after merging. A text must
 * satisfy each, so the order is of no matter but for the size on the way.
 */
static ech_status intersect_all(ech_schema *const s, const json_t *const schema,
                                ech_dfa **const all)
{
    const char *const keys[2] = { "pattern", "format" };
    for (int k = 0; k < 2; k++) {
        const json_t *const value = json_object_get(schema, keys[k]);
        const size_t n = value == NULL ? 0 : json_is_array(value) ? json_array_size(value) : 1;
        for (size_t i = 0; i < n; i++) {
            const json_t *const item = json_is_array(value) ? json_array_get(value, i) : value;
            ech_dfa *one = NULL;
            if (k == 0)
                ECH_TRY(ech_schema_pattern(s, item, keys[k], ECH_REGEX_STRICT, &one));
            else
                ECH_TRY(ech_schema_format(s, json_string_value(item), &one));
            ECH_TRY(intersect(s, all, &one));
        }
    }
    return ECH_OK;
}

/*
 * Lengths count code points, and so does the automaton before it is spelled as JSON: an escape of
 * six bytes is one character. It comes last: the fewer texts are left, the smaller is the product
 * with the counter.
 */
static ech_status with_length(ech_schema *const s, const uint32_t min, const uint32_t max,
                              ech_dfa **const all)
{
    if (min == 0 && max == ECH_CX_INF) return ECH_OK;
    ech_dfa *out = NULL;
    ech_error cause = { 0 };
    const ech_status rc = ech_dfa_length(*all, min, max, &out, &cause);
    if (rc != ECH_OK) return fail_pattern(s, rc, NULL, &cause);
    ech_dfa_free(all);
    *all = out;
    return ECH_OK;
}

/* The content is spelled as inside of a string already; only the quotes are missing. */
static ech_cx quoted(ech_cx_graph *const g, const ech_cx content)
{
    const ech_cx quote = ech_cx_range(g, '"', '"');
    return ech_cx_seq3(g, quote, content, quote);
}

/*
 * A single pattern and nothing else: counters where its automaton is large. An automaton that can't
 * be built at all is no error here: the expression is the second try, and only its failure is told.
 */
static ech_status lone_pattern(ech_schema *const s, const json_t *const pattern, ech_cx *const ret)
{
    ech_regex *regex = NULL;
    ech_dfa *dfa = NULL;
    ech_error cause = { 0 };
    ech_cx content = ECH_CX_FAIL;
    ECH_TRY(parse_pattern(s, pattern, "pattern", ECH_REGEX_STRICT, &regex));
    ech_status rc = ech_regex_dfa(regex, true, &dfa, NULL);
    if (rc == ECH_OK && dfa->n_states <= LARGE_PATTERN) {
        content = ech_dfa_expr(s->g, dfa, ECH_SPELL_JSON);
    } else {
        rc = ech_regex_expr(regex, true, ECH_SPELL_JSON, s->g, &content, &cause);
    }
    ech_dfa_free(&dfa);
    ech_regex_free(&regex);
    if (rc != ECH_OK) return fail_pattern(s, rc, "pattern", &cause);
    *ret = quoted(s->g, content);
    return ECH_OK;
}

/*
 * Three ways, the smallest form first: counters where only lengths bound the text, the pattern by
 * itself where it is alone, the product of everything else.
 */
ech_status ech_schema_string(ech_schema *const s, const json_t *const schema, ech_cx *const ret)
{
    uint32_t min = 0, max = ECH_CX_INF;
    ECH_TRY(ech_schema_get_count(s, schema, "minLength", &min));
    ECH_TRY(ech_schema_get_count(s, schema, "maxLength", &max));
    const json_t *const pattern = json_object_get(schema, "pattern");
    const bool has_format = json_object_get(schema, "format") != NULL;
    if (pattern == NULL && !has_format) {
        if (min == 0 && max == ECH_CX_INF) {
            *ret = ech_schema_any_string(s);
        } else {
            /* One rule for a character, however often it is repeated. */
            const ech_cx any = ech_cx_shared(s->g, ech_cx_any_char(s->g, ECH_SPELL_JSON));
            *ret = quoted(s->g, ech_cx_repeat(s->g, any, min, max));
        }
        return ech_cx_graph_check(s->g, s->err);
    }
    if (!has_format && min == 0 && max == ECH_CX_INF && !json_is_array(pattern)) {
        return lone_pattern(s, pattern, ret);
    }
    ech_dfa *all = NULL;
    ech_status rc = intersect_all(s, schema, &all);
    if (rc == ECH_OK) rc = with_length(s, min, max, &all);
    if (rc == ECH_OK) *ret = quoted(s->g, ech_dfa_expr(s->g, all, ECH_SPELL_JSON));
    ech_dfa_free(&all);
    return rc;
}
