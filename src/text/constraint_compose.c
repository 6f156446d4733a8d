/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Putting a spec together:
 *
 *     reasoning   any bytes until the end marker           (rule with role REASONING)
 *     content     a schema, an expression, …, or free text
 *     calls       begin arguments end, once or repeatedly  (rules with role CALL)
 *
 * Free text that ends in a marker is an Aho-Corasick automaton over the marker's two spellings: its
 * control tokens, and its plain bytes. So a marker is found however tokens cut it, and a token that
 * holds the marker's end and more is checked against what follows.
 *
 * Invariant: the roles on rules are what constraint.c reads phases from, so every byte of reasoning
 * and of calls is inside a rule with its role. Markers count in both spellings, and wherever one
 * ends what follows must already be right. Runs on the compiling thread; sizes of all texts are
 * bounded first.
 */
#include "src/text/constraint_compose.h"

#include <jansson.h>

#include "src/text/constraint_gbnf.h"
#include "src/text/constraint_regex.h"
#include "src/text/constraint_schema.h"
#include "src/text/json_read.h"

#define MAX_MARKER 4096u /* bytes of a marker or of a call's begin or end */
#define MAX_CALLS  1024u

/* ---- text up to a marker ---- */

/* States are the prefixes of two patterns; the last state is "a pattern is complete". */
typedef struct matcher {
    ech_str patterns[2];
    int n_patterns;
    uint32_t n_states; /* without the complete one */
    uint32_t *next;    /* [n_states][256], UINT32_MAX: complete */
} matcher;

static uint32_t *child(matcher *const m, const uint32_t state, const char byte)
{
    return &m->next[(size_t)state * 256 + (uint8_t)byte];
}

/*
 * The tree of the patterns; 0 stands for a missing child, since no edge leads to the root.
 * depth_first[s] is the depth of state s. The complete state has no number yet: UINT32_MAX is its
 * edge.
 */
static void grow_tree(matcher *const m, uint32_t *const depth_first)
{
    m->n_states = 1;
    for (int p = 0; p < m->n_patterns; p++) {
        uint32_t at = 0;
        for (size_t i = 0; i < m->patterns[p].len; i++) {
            uint32_t *const to = child(m, at, m->patterns[p].ptr[i]);
            if (*to == UINT32_MAX) break; /* one pattern begins with the other */
            if (i + 1 == m->patterns[p].len)
                *to = UINT32_MAX;
            else if (*to == 0) {
                depth_first[m->n_states] = (uint32_t)i + 1;
                *to = m->n_states++;
            }
            at = *to;
        }
    }
}

/*
 * Completes the tree: a missing child of a state is that of the longest suffix that is a state.
 * Level by level, since a state's suffix is less deep than itself. A suffix that completes a
 * pattern completes it for the longer state too, hence the test of other.
 */
static void link_tree(matcher *const m, const uint32_t *const depth, uint32_t *const suffix)
{
    uint32_t deepest = 0;
    for (uint32_t s = 0; s < m->n_states; s++)
        deepest = depth[s] > deepest ? depth[s] : deepest;
    for (uint32_t d = 0; d <= deepest; d++) {
        for (uint32_t s = 0; s < m->n_states; s++) {
            if (depth[s] != d) continue;
            for (unsigned b = 0; b < 256; b++) {
                uint32_t *const to = child(m, s, (char)b);
                const uint32_t other = s == 0 ? 0 : *child(m, suffix[s], (char)b);
                if (s != 0 && (*to == 0 || other == UINT32_MAX))
                    *to = other;
                else if (*to != 0 && *to != UINT32_MAX && depth[*to] == d + 1)
                    suffix[*to] = other;
            }
        }
    }
}

/* At most one state per byte of the patterns, 1 KiB each: MAX_MARKER bounds it. */
static ech_status build_matcher(matcher *const m)
{
    size_t most = 1;
    for (int p = 0; p < m->n_patterns; p++)
        most += m->patterns[p].len;
    m->next = calloc(most * 256, sizeof *m->next);
    uint32_t *const depth = calloc(most * 2, sizeof *depth);
    if (m->next == NULL || depth == NULL) {
        free(depth);
        return ECH_ENOMEM;
    }
    grow_tree(m, depth);
    link_tree(m, depth, depth + most);
    free(depth);
    return ECH_OK;
}

/*
 * The edges of one state, bytes with one target joined. 256 transitions become a few edges: one per
 * target.
 */
static bool add_edges(ech_cx_graph *const g, const matcher *const m, const uint32_t s,
                      const bool with_end, ech_cx_auto *const a, uint32_t *const cap)
{
    bool done[256] = { false };
    for (unsigned b = 0; b < 256; b++) {
        const uint32_t to = m->next[(size_t)s * 256 + b];
        if (done[b] || (to == UINT32_MAX && !with_end)) continue;
        ech_byteset set = { { 0 } };
        for (unsigned c = b; c < 256; c++) {
            if (m->next[(size_t)s * 256 + c] != to) continue;
            done[c] = true;
            ech_byteset_add(&set, c, c);
        }
        if (!ECH_VEC_GROW(a->edges, *cap, a->n_edges, 1)) return false;
        a->edges[a->n_edges++] =
            (ech_cx_edge){ s, to == UINT32_MAX ? m->n_states : to, ech_cx_set(g, &set) };
    }
    return true;
}

/* with_end: text up to and with a pattern; else text in which no pattern occurs. */
static ech_cx matcher_expr(ech_cx_graph *const g, const matcher *const m, const bool with_end)
{
    ech_cx_auto a = { .n_states = m->n_states + with_end };
    a.accepting = malloc(a.n_states);
    uint32_t cap = 0;
    bool ok = a.accepting != NULL;
    for (uint32_t s = 0; s < m->n_states && ok; s++) {
        a.accepting[s] = !with_end;
        ok = add_edges(g, m, s, with_end, &a, &cap);
    }
    if (ok && with_end) a.accepting[m->n_states] = 1;
    if (!ok && g->rc == ECH_OK) g->rc = ECH_ENOMEM;
    return ech_cx_auto_new(g, a);
}

/* ---- the parts ---- */

typedef struct composer {
    ech_cx_graph *g;
    const ech_mask_vocab *vocab;
    const ech_constraint_spec *spec;
    const ech_constraint_options *options;
    ech_error *err;
} composer;

static ech_status fail_spec(const composer *const c, const char *const what)
{
    return ech_fail(c->err, ECH_EINVAL, "compiling a constraint: %s", what);
}

static ech_status no_memory(const composer *const c)
{
    return ech_fail(c->err, ECH_ENOMEM, "compiling a constraint: out of memory");
}

static ech_str str(const char *const ptr, const size_t len)
{
    return (ech_str){ len > 0 ? ptr : "", len };
}

/* A marker's text with its control tokens as such. */
static ech_status marker_expr(const composer *const c, const ech_str text, ech_cx *const ret)
{
    ech_buf encoded = { 0 };
    const ech_status rc = ech_mask_vocab_encode(c->vocab, text, &encoded);
    if (rc == ECH_OK) *ret = ech_cx_lit(c->g, encoded.data, encoded.len);
    ech_buf_fini(&encoded);
    return rc == ECH_OK ? rc : no_memory(c);
}

/* Free text up to the marker (with it), and free text without it. */
static ech_status free_text(const composer *const c, const ech_str marker, ech_cx *const ret_until,
                            ech_cx *const ret_without)
{
    ech_buf encoded = { 0 };
    ech_status rc = ech_mask_vocab_encode(c->vocab, marker, &encoded);
    matcher m = { .patterns = { marker, ech_buf_view(&encoded) } };
    if (rc == ECH_OK) {
        m.n_patterns = ech_str_eq(m.patterns[0], m.patterns[1]) ? 1 : 2;
        rc = build_matcher(&m);
    }
    if (rc == ECH_OK) {
        *ret_until = matcher_expr(c->g, &m, true);
        if (ret_without != NULL) *ret_without = matcher_expr(c->g, &m, false);
    }
    free(m.next);
    ech_buf_fini(&encoded);
    return rc == ECH_OK ? rc : no_memory(c);
}

/* A rule of its own per part, so that its frame is on the stack while the part is being written. */
static ech_cx role_rule(ech_cx_graph *const g, const ech_cx body, const ech_cx_role role)
{
    const uint32_t rule = ech_cx_rule_new(g, NULL, false);
    if (rule == ECH_CX_INF) return ECH_CX_FAIL;
    g->rules[rule].role = (uint8_t)role;
    ech_cx_rule_define(g, rule, body);
    return ech_cx_ref(g, rule);
}

/* ---- content ---- */

static ech_status regex_expr(const composer *const c, const ech_str text, ech_cx *const ret)
{
    ech_regex *regex = NULL;
    ECH_TRY(ech_regex_parse(text, ECH_REGEX_STRICT, &regex, c->err));
    /* The deterministic form where it is small: it never has to track two readings. */
    ech_dfa *dfa = NULL;
    ech_status rc = ech_regex_dfa(regex, false, &dfa, NULL);
    if (rc == ECH_OK && dfa->n_states <= 512)
        *ret = ech_dfa_expr(c->g, dfa, ECH_SPELL_RAW);
    else
        rc = ech_regex_expr(regex, false, ECH_SPELL_RAW, c->g, ret, c->err);
    ech_dfa_free(&dfa);
    ech_regex_free(&regex);
    return rc;
}

static ech_status choice_words(const composer *const c, const json_t *const list, ech_cx *const ret)
{
    const size_t n = json_array_size(list);
    if (n == 0) return fail_spec(c, "a choice must be an array of at least one string");
    ech_str *const words = malloc(n * sizeof *words);
    if (words == NULL) return no_memory(c);
    for (size_t i = 0; i < n; i++) {
        const json_t *const item = json_array_get(list, i);
        if (!json_is_string(item)) {
            free(words);
            return ech_fail(c->err, ECH_EFORMAT,
                            "compiling a choice: at /%zu, only strings can be "
                            "chosen from",
                            i);
        }
        words[i] = (ech_str){ json_string_value(item), json_string_length(item) };
    }
    *ret = ech_cx_words(c->g, words, n);
    free(words);
    return ECH_OK;
}

static ech_status choice_expr(const composer *const c, const ech_str text, ech_cx *const ret)
{
    json_error_t error;
    json_t *const list = ech_json_read(text.ptr, text.len, JSON_ALLOW_NUL, &error);
    if (list == NULL) {
        return ech_fail_at(c->err, ECH_EFORMAT, error.line, error.column, error.position,
                           "compiling a choice: line %d, column %d: %s", error.line, error.column,
                           error.text);
    }
    const ech_status rc = choice_words(c, list, ret);
    json_decref(list);
    return rc;
}

static ech_status content_expr(const composer *const c, ech_cx *const ret)
{
    const ech_str text = str(c->spec->content, c->spec->content_len);
    if (text.len > c->options->max_source_bytes) {
        return ech_fail(c->err, ECH_ELIMIT,
                        "compiling a constraint: its text has %zu bytes, the "
                        "most is %zu (max_source_bytes)",
                        text.len, c->options->max_source_bytes);
    }
    switch (c->spec->content_kind) {
    case ECH_CONSTRAINT_JSON_SCHEMA:
        return ech_schema_expr(c->g, text, c->options, ret, c->err);
    case ECH_CONSTRAINT_JSON_OBJECT:
        return ech_schema_any_object(c->g, c->options, ret, c->err);
    case ECH_CONSTRAINT_REGEX:
        return regex_expr(c, text, ret);
    case ECH_CONSTRAINT_CHOICE:
        return choice_expr(c, text, ret);
    case ECH_CONSTRAINT_GBNF:
        return ech_gbnf_expr(c->g, text, ret, c->err);
    case ECH_CONSTRAINT_TEXT:
        *ret = ech_cx_repeat(c->g, ech_cx_range(c->g, 0, 255), 0, ECH_CX_INF);
        return ECH_OK;
    }
    return fail_spec(c, "unknown content_kind");
}

/* ---- calls ---- */

static ech_status call_schema(const composer *const c, const size_t i, ech_cx *const ret)
{
    const ech_constraint_call *const call = &c->spec->calls[i];
    if (call->schema == NULL) return ech_schema_any_object(c->g, c->options, ret, c->err);
    if (call->schema_len > c->options->max_source_bytes) {
        return ech_fail(c->err, ECH_ELIMIT,
                        "compiling a constraint: the schema of call %zu has %zu "
                        "bytes, the most is %zu (max_source_bytes)",
                        i, call->schema_len, c->options->max_source_bytes);
    }
    const ech_status rc =
        ech_schema_expr(c->g, str(call->schema, call->schema_len), c->options, ret, c->err);
    return rc == ECH_OK ? rc : ech_error_prefix(c->err, rc, "the schema of call %zu", i);
}

/*
 * One call, without its first skip bytes, which came before. skip is the trigger's length after
 * free text, which has already read it.
 */
static ech_status call_expr(const composer *const c, const size_t i, const size_t skip,
                            ech_cx *const ret)
{
    const ech_constraint_call *const call = &c->spec->calls[i];
    if (call->begin_len == 0 || call->begin_len > MAX_MARKER || call->end_len > MAX_MARKER) {
        return fail_spec(c, "a call's begin must have 1 to 4096 bytes, its end 0 to 4096");
    }
    const ech_str begin = str(call->begin, call->begin_len);
    const ech_str trigger = str(c->spec->call_trigger, c->spec->call_trigger_len);
    if (skip > begin.len || memcmp(begin.ptr, trigger.ptr, skip) != 0) {
        return fail_spec(c, "the begin of every call must start with call_trigger");
    }
    ech_cx parts[3];
    ECH_TRY(marker_expr(c, str(begin.ptr + skip, begin.len - skip), &parts[0]));
    ECH_TRY(call_schema(c, i, &parts[1]));
    ECH_TRY(marker_expr(c, str(call->end, call->end_len), &parts[2]));
    *ret = ech_cx_seq(c->g, parts, 3);
    return ECH_OK;
}

/* The alternatives may begin alike: the machine follows all of them until they differ. */
static ech_status any_call(const composer *const c, const size_t skip, ech_cx *const ret)
{
    const size_t n = c->spec->n_calls;
    if (n == 0 || n > MAX_CALLS) return fail_spec(c, "calls need 1 to 1024 ways to write one");
    ech_cx *const calls = malloc(n * sizeof *calls);
    if (calls == NULL) return no_memory(c);
    ech_status rc = ECH_OK;
    for (size_t i = 0; i < n && rc == ECH_OK; i++)
        rc = call_expr(c, i, skip, &calls[i]);
    if (rc == ECH_OK) *ret = role_rule(c->g, ech_cx_alt(c->g, calls, n), ECH_ROLE_CALL);
    free(calls);
    return rc;
}

static uint32_t max_calls(const composer *const c)
{
    return c->spec->max_calls == 0 ? ECH_CX_INF : c->spec->max_calls;
}

/* call (separator call)* */
static ech_status calls_expr(const composer *const c, ech_cx *const ret)
{
    ech_cx call = ECH_CX_FAIL, separator = ECH_CX_FAIL;
    ECH_TRY(any_call(c, 0, &call));
    ECH_TRY(marker_expr(c, str(c->spec->call_separator, c->spec->call_separator_len), &separator));
    const uint32_t most = max_calls(c);
    const ech_cx more = ech_cx_repeat(c->g, ech_cx_seq2(c->g, separator, call), 0,
                                      most == ECH_CX_INF ? most : most - 1);
    *ret = ech_cx_seq2(c->g, call, more);
    return ECH_OK;
}

/*
 * (text up to the trigger, the rest of a call)* text. The trigger in free text always begins a
 * call: text without calls is text without the trigger.
 */
static ech_status text_and_calls(const composer *const c, ech_cx *const ret)
{
    const ech_str trigger = str(c->spec->call_trigger, c->spec->call_trigger_len);
    if (trigger.len == 0 || trigger.len > MAX_MARKER) {
        return fail_spec(c, "call_trigger must have 1 to 4096 bytes");
    }
    ech_cx until = ECH_CX_FAIL, without = ECH_CX_FAIL, call = ECH_CX_FAIL;
    ECH_TRY(free_text(c, trigger, &until, &without));
    ECH_TRY(any_call(c, trigger.len, &call));
    const ech_cx one = ech_cx_seq2(c->g, until, call);
    *ret = ech_cx_seq2(c->g, ech_cx_repeat(c->g, one, 0, max_calls(c)), without);
    return ECH_OK;
}

/*
 * Content and calls, whichever are asked for. With constrained content the answer is either content
 * or calls; with free text both may mix.
 */
static ech_status answer_expr(const composer *const c, ech_cx *const ret)
{
    ech_cx calls = ECH_CX_FAIL, content = ECH_CX_FAIL;
    switch (c->spec->call_mode) {
    case ECH_CALLS_NONE:
        return c->spec->n_calls == 0 ? content_expr(c, ret)
                                     : fail_spec(c, "calls are given but call_mode is NONE");
    case ECH_CALLS_REQUIRED:
        return calls_expr(c, ret);
    case ECH_CALLS_AUTO:
        if (c->spec->content_kind == ECH_CONSTRAINT_TEXT) return text_and_calls(c, ret);
        ECH_TRY(calls_expr(c, &calls));
        ECH_TRY(content_expr(c, &content));
        *ret = ech_cx_alt2(c->g, content, calls);
        return ECH_OK;
    }
    return fail_spec(c, "unknown call_mode");
}

/* ---- reasoning ---- */

static bool is_free_text(const composer *const c)
{
    return c->spec->content_kind == ECH_CONSTRAINT_TEXT && c->spec->call_mode != ECH_CALLS_REQUIRED;
}

/*
 * The rules that end reasoning by force. Without a control token the marker may be half written
 * when the budget ends, so each rest of it has a rule.
 */
static ech_status add_closers(const composer *const c, const ech_cx after, ech_composed *const out)
{
    const ech_str end = str(c->spec->reasoning_end, c->spec->reasoning_end_len);
    ech_buf encoded = { 0 };
    const ech_status rc = ech_mask_vocab_encode(c->vocab, end, &encoded);
    const bool has_control = rc == ECH_OK && !ech_str_eq(end, ech_buf_view(&encoded));
    out->n_closers = has_control ? 1 : (uint32_t)end.len;
    out->closers = malloc((out->n_closers + 1) * sizeof *out->closers);
    if (rc != ECH_OK || out->closers == NULL) {
        ech_buf_fini(&encoded);
        return no_memory(c);
    }
    for (uint32_t i = 0; i < out->n_closers; i++) {
        const ech_cx rest = has_control ? ech_cx_lit(c->g, encoded.data, encoded.len)
                                        : ech_cx_lit(c->g, end.ptr + i, end.len - i);
        out->closers[i] = ech_cx_rule_new(c->g, NULL, false);
        ech_cx_rule_define(c->g, out->closers[i],
                           ech_cx_seq2(c->g, role_rule(c->g, rest, ECH_ROLE_REASONING), after));
    }
    ech_buf_fini(&encoded);
    return ECH_OK;
}

static ech_status with_reasoning(const composer *const c, const ech_cx answer,
                                 ech_composed *const out)
{
    const ech_str begin = str(c->spec->reasoning_begin, c->spec->reasoning_begin_len);
    const ech_str end = str(c->spec->reasoning_end, c->spec->reasoning_end_len);
    if (end.len == 0 || end.len > MAX_MARKER || begin.len > MAX_MARKER) {
        return fail_spec(c, "reasoning_end must have 1 to 4096 bytes, reasoning_begin 0 to 4096");
    }
    /* Line breaks behind the marker are the marker's: the parser takes them with it. A blank would
     * be content, which the answer's own language must have let through. */
    const ech_cx breaks = ech_cx_repeat(c->g, ech_cx_range(c->g, '\n', '\n'), 0,
                                        is_free_text(c) ? 0 : c->options->max_whitespace);
    const ech_cx after = ech_cx_shared(c->g, ech_cx_seq2(c->g, breaks, answer));
    ech_cx until = ECH_CX_FAIL;
    ECH_TRY(free_text(c, end, &until, NULL));
    ECH_TRY(add_closers(c, after, out));
    const ech_cx reasoning = role_rule(c->g, until, ECH_ROLE_REASONING);
    out->root = ech_cx_seq2(c->g, reasoning, after);
    if (c->spec->reasoning == ECH_THINKING_OPEN) return ECH_OK;
    if (begin.len == 0) return fail_spec(c, "optional reasoning needs reasoning_begin");
    ech_cx opening = ECH_CX_FAIL;
    ECH_TRY(marker_expr(c, begin, &opening));
    out->root = ech_cx_alt2(c->g, answer, ech_cx_seq2(c->g, opening, out->root));
    return ECH_OK;
}

static ech_status check_strings(const composer *const c)
{
    const ech_constraint_spec *const s = c->spec;
    const struct {
        const void *ptr;
        size_t len;
    } all[] = {
        { s->content, s->content_len },
        { s->reasoning_begin, s->reasoning_begin_len },
        { s->reasoning_end, s->reasoning_end_len },
        { s->call_trigger, s->call_trigger_len },
        { s->call_separator, s->call_separator_len },
        { s->calls, s->n_calls },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].ptr == NULL && all[i].len > 0) {
            return fail_spec(c, "a text of the spec is NULL but has a length");
        }
    }
    if (s->call_separator_len > MAX_MARKER) {
        return fail_spec(c, "call_separator has more than 4096 bytes");
    }
    return ECH_OK;
}

ech_status ech_compose(ech_cx_graph *const g, const ech_mask_vocab *const vocab,
                       const ech_constraint_spec *const spec,
                       const ech_constraint_options *const options,
                       ech_composed *const ret_composed, ech_error *const err)
{
    const composer c = { g, vocab, spec, options, err };
    ECH_TRY(check_strings(&c));
    ech_composed out = { .root = ECH_CX_FAIL };
    ech_cx answer = ECH_CX_FAIL;
    ECH_TRY(answer_expr(&c, &answer));
    ech_status rc = ECH_OK;
    if (spec->reasoning == ECH_THINKING_NONE)
        out.root = answer;
    else
        rc = with_reasoning(&c, answer, &out);
    if (rc == ECH_OK) rc = ech_cx_graph_check(g, err);
    if (rc != ECH_OK) {
        free(out.closers);
        return rc;
    }
    *ret_composed = out;
    return ECH_OK;
}
