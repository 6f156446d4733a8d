/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls as JSON: the object {"name": …, "arguments": {…}} that Hermes, Llama and older Mistral
 * models write, and the bare object of arguments behind a name. Both are checked byte by byte and
 * given away verbatim as they come; an object that breaks before the call is announced is text.
 *
 * Invariant: arguments reach the client byte for byte as the model wrote them (those in a string
 * are unescaped once), and only after the name is known; the scan has checked each byte before.
 * Field names and strings are unescaped into buffers of bounded size. Left out: arguments as tagged
 * parameters (parser_qwen3_coder.c).
 */
#include "src/base/utf8.h"
#include "src/text/parser_state.h"

#define MAX_KEY  16 /* of a field that means something */
#define MAX_NAME 256

/* ---- strings ------------------------------------------------------------------------------- */

/* The scan has seen that these are hexadecimal digits. */
static uint32_t hex4(const char *const s)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        const char c = s[i];
        v = v * 16 + (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return v;
}

/* \uXXXX at s[0 .. len), a pair of surrogates taken as one; returns the bytes read. */
static size_t unescape_unicode(ech_parser *const p, ech_buf *const to, const char *const s,
                               const size_t len)
{
    uint32_t cp = hex4(s + 2);
    size_t used = 6;
    if (cp >= 0xd800 && cp < 0xdc00 && len >= 12 && s[6] == '\\' && s[7] == 'u') {
        const uint32_t low = hex4(s + 8);
        if (low >= 0xdc00 && low < 0xe000) {
            cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
            used = 12;
        }
    }
    char out[4];
    int n = ech_utf8_encode(cp, out);
    if (n == 0) n = ech_utf8_encode(0xfffd, out); /* half a pair */
    ech_flow_keep(p, to, out, (size_t)n);
    return used;
}

/* ptr is the inside of a JSON string that the scan accepted, so every escape is complete. */
void ech_call_unescape(ech_parser *const p, ech_buf *const to, const char *const ptr,
                       const size_t len)
{
    static const char from[] = "\"\\/bfnrt";
    static const char into[] = "\"\\/\b\f\n\r\t";
    for (size_t i = 0; i < len;) {
        if (ptr[i] != '\\') {
            ech_flow_keep(p, to, ptr + i++, 1);
        } else if (ptr[i + 1] == 'u') {
            i += unescape_unicode(p, to, ptr + i, len - i);
        } else {
            ech_flow_keep(p, to, into + (strchr(from, ptr[i + 1]) - from), 1);
            i += 2;
        }
    }
}

/* What JSON must escape and no more; UTF-8 passes as it is. */
void ech_call_escape(ech_parser *const p, ech_buf *const to, const char c)
{
    static const char named[] = "\b\f\n\r\t\"\\";
    static const char letters[] = "bfnrt\"\\";
    const char *const at = c != 0 ? strchr(named, c) : NULL;
    if (at != NULL) {
        const char out[2] = { '\\', letters[at - named] };
        ech_flow_keep(p, to, out, 2);
    } else if ((unsigned char)c < 0x20) {
        static const char digits[] = "0123456789abcdef";
        const char out[6] = { '\\', 'u', '0', '0', digits[c >> 4], digits[c & 15] };
        ech_flow_keep(p, to, out, 6);
    } else {
        ech_flow_keep(p, to, &c, 1);
    }
}

/* ---- the object of a call ------------------------------------------------------------------ */

void ech_call_begin_json(ech_parser *const p)
{
    ech_call_json *const j = &p->json;
    ech_buf_clear(&j->key);
    ech_buf_clear(&j->value);
    *j = (ech_call_json){ .key = j->key, .value = j->value };
    ech_buf_clear(&p->name);
    ech_buf_clear(&p->call_id);
    p->flow = ECH_FLOW_JSON;
}

static bool key_is(const ech_call_json *const j, const char *const name)
{
    return ech_str_eq(ech_buf_view(&j->key), ech_str_from(name));
}

/* Llama writes "parameters" for what others call "arguments". */
static ech_call_field field_of(const ech_call_json *const j)
{
    if (key_is(j, "name")) return ECH_FIELD_NAME;
    if (key_is(j, "id")) return ECH_FIELD_ID;
    return key_is(j, "arguments") || key_is(j, "parameters") ? ECH_FIELD_ARGS : ECH_FIELD_OTHER;
}

/*
 * The first byte of a field's value; false where such a value makes it no call. Arguments go out at
 * once if the name is known already; otherwise they wait in json.value. Two names, or two sets of
 * arguments, make it no call.
 */
static bool begin_value(ech_parser *const p, const char c)
{
    ech_call_json *const j = &p->json;
    j->in_value = true;
    j->is_number = c == '-' || (c >= '0' && c <= '9');
    j->is_object = c == '{';
    switch (j->field) {
    case ECH_FIELD_NAME:
        ech_buf_clear(&j->key); /* free again: it keeps the name while arguments wait in value */
        return c == '"' && !j->has_name;
    case ECH_FIELD_ARGS:
        if (j->has_args) return false;
        if (j->is_object && j->has_name) ech_flow_start(p);
        return j->is_object || c == '"' || c == 'n';
    default:
        return true;
    }
}

static bool value_byte(ech_parser *const p, const char c)
{
    ech_call_json *const j = &p->json;
    switch (j->field) {
    case ECH_FIELD_NAME:
        ech_flow_keep(p, &j->key, &c, 1);
        return j->key.len <= MAX_NAME;
    case ECH_FIELD_ID:
        ech_flow_keep(p, &p->call_id, &c, 1);
        return p->call_id.len <= MAX_NAME;
    case ECH_FIELD_ARGS:
        if (p->is_started) {
            ech_flow_args(p, &c, 1);
        } else {
            ech_flow_keep(p, &j->value, &c, 1);
        }
        return true;
    default:
        return true;
    }
}

/* Arguments that couldn't be given as they came: the name came later, or they are a string. */
static void give_kept(ech_parser *const p)
{
    ech_flow_start(p);
    ech_flow_args(p, p->json.value.data, p->json.value.len);
}

/* Arguments in a string are JSON written twice; null and "" are no arguments. */
static bool end_args(ech_parser *const p)
{
    ech_call_json *const j = &p->json;
    j->has_args = true;
    if (p->is_started) return true;
    if (!j->is_object) {
        ech_buf text = { 0 };
        if (j->value.data[0] == '"') {
            ech_call_unescape(p, &text, j->value.data + 1, j->value.len - 2);
        }
        if (text.len == 0) ech_flow_keep(p, &text, "{}", 2);
        const bool good =
            p->rc == ECH_OK && text.data[0] == '{' && ech_json_scan_whole(text.data, text.len);
        ech_buf_fini(&j->value);
        j->value = text;
        if (!good) return false;
    }
    if (j->has_name) give_kept(p);
    return true;
}

/*
 * Llama has no marker around its calls, so an object counts only if its name is one of the tools'.
 */
static bool end_name(ech_parser *const p)
{
    ech_call_json *const j = &p->json;
    ech_call_unescape(p, &p->name, j->key.data + 1, j->key.len - 2);
    j->has_name = true;
    if (p->name.len == 0) return false;
    if (p->tools == ECH_TOOLS_LLAMA3_JSON && !ech_parser_has_tool(p, p->name.data, p->name.len)) {
        return false;
    }
    if (j->has_args) give_kept(p);
    return true;
}

static void end_id(ech_parser *const p)
{
    ech_buf id = { 0 };
    if (p->call_id.data[0] == '"') {
        ech_call_unescape(p, &id, p->call_id.data + 1, p->call_id.len - 2);
    }
    ech_buf_fini(&p->call_id);
    p->call_id = id;
}

static bool end_value(ech_parser *const p)
{
    p->json.in_value = false;
    switch (p->json.field) {
    case ECH_FIELD_NAME:
        return end_name(p);
    case ECH_FIELD_ARGS:
        return end_args(p);
    case ECH_FIELD_ID:
        end_id(p);
        return true;
    default:
        return true;
    }
}

/* The scan stands between fields: a value that was open is over. */
static bool is_between_fields(const ech_json_scan *const s)
{
    return s->depth == 0 ||
           (s->depth == 1 && (s->state == ECH_JSON_COMMA_OR_END || s->state == ECH_JSON_KEY));
}

/*
 * A byte of the object, after the scan took it; `before` is the scan before it. A number has no end
 * of its own: the byte behind it is the first that isn't part of the value.
 */
static bool follow(ech_parser *const p, const ech_json_scan *const before, const char c)
{
    ech_call_json *const j = &p->json;
    if (before->depth == 0) return ech_json_is_space(c) || c == '{';
    if (before->depth == 1 && before->in_key && ech_json_scan_in_string(before)) {
        if (j->scan.state == ECH_JSON_COLON) {
            j->field = field_of(j);
        } else if (j->key.len < MAX_KEY) {
            ech_flow_keep(p, &j->key, &c, 1);
        }
        return true;
    }
    if (before->depth == 1 && ech_json_scan_in_string(&j->scan) && j->scan.in_key) {
        ech_buf_clear(&j->key);
        return true;
    }
    if (before->depth == 1 && before->state == ECH_JSON_VALUE && !ech_json_is_space(c)) {
        if (!begin_value(p, c)) return false;
    }
    if (!j->in_value) return true;
    const bool ends = is_between_fields(&j->scan);
    if (!(ends && j->is_number) && !value_byte(p, c)) return false;
    return !ends || end_value(p);
}

/*
 * The object is over: whether it was a call. A call without arguments gets "{}", since clients
 * parse what they are given.
 */
static bool end_object(ech_parser *const p)
{
    ech_call_json *const j = &p->json;
    if (!j->has_name) return false;
    if (!j->has_args) {
        if (p->tools == ECH_TOOLS_LLAMA3_JSON) return false; /* any object may have a name */
        ech_flow_start(p);
        ech_flow_args(p, "{}", 2);
    }
    ech_flow_end(p, true);
    return true;
}

void ech_call_json_text(ech_parser *const p, const char c)
{
    const ech_json_scan before = p->json.scan;
    const ech_json_result r = ech_json_scan_push(&p->json.scan, c);
    if (r == ECH_JSON_BAD || r == ECH_JSON_PAST || !follow(p, &before, c)) {
        ech_flow_fail(p, c);
        return;
    }
    if (!p->is_started && r != ECH_JSON_END && !ech_flow_raw(p, c)) {
        ech_flow_fail(p, c);
        return;
    }
    if (r == ECH_JSON_END && !end_object(p)) ech_flow_fail(p, c);
}

/* ---- arguments alone ----------------------------------------------------------------------- */

void ech_call_begin_args(ech_parser *const p)
{
    p->json.scan = (ech_json_scan){ 0 };
    p->flow = ECH_FLOW_ARGS;
}

void ech_call_args_text(ech_parser *const p, const char c)
{
    const bool begun = p->is_started;
    if (!begun && c != '{') {
        if (!ech_json_is_space(c) || !ech_flow_raw(p, c)) ech_flow_fail(p, c);
        return;
    }
    const ech_json_result r = ech_json_scan_push(&p->json.scan, c);
    if (r == ECH_JSON_BAD) {
        ech_flow_fail(p, c);
        return;
    }
    if (!begun) ech_flow_start(p);
    ech_flow_args(p, &c, 1);
    if (r == ECH_JSON_END) ech_flow_end(p, true);
}

bool ech_call_in_string(const ech_parser *const p)
{
    return ech_json_scan_in_string(&p->json.scan);
}
