/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields to a guide, a guide to a compiled constraint; see guide.h. Text threads.
 *
 * Ownership: the exchange has its guide and one reference to its constraint; the cache has one
 * of its own, so that what falls out of it lives on in the requests that use it. Compiling may
 * take long for a large schema, which is why it is here and not on the loop.
 */
#include "src/server/guide.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/server/reply.h"
#include "src/server/state.h"
#include "src/text/json_dump.h"

/* Main thread, once. What the template shows decides; the options overrule it. */
ech_status ech_guides_open(ech_guides *const g, const char *const template_source, const size_t len,
                           const char *const reasoning_name, const char *const tools_name,
                           ech_error *const err)
{
    (void)pthread_mutex_init(&g->lock, NULL);
    if (template_source != NULL) ech_parser_pick(template_source, len, &g->reasoning, &g->tools);
    if (reasoning_name != NULL && !ech_reasoning_format_find(reasoning_name, &g->reasoning)) {
        return ech_fail(err, ECH_EINVAL, "opening the server: --reasoning-parser %s is not known",
                        reasoning_name);
    }
    if (tools_name != NULL && !ech_tools_format_find(tools_name, &g->tools)) {
        return ech_fail(err, ECH_EINVAL, "opening the server: --tool-call-parser %s is not known",
                        tools_name);
    }
    return ECH_OK;
}

void ech_guides_close(ech_guides *const g)
{
    for (size_t i = 0; i < ECH_GUIDE_CACHE; i++) {
        ech_buf_fini(&g->cache[i].key);
        ech_constraint_unref(&g->cache[i].constraint);
    }
    ech_mask_vocab_unref(&g->vocab);
}

/* ---- compiling, with the cache -------------------------------------------------------------- */

/*
 * A key is what the constraint is compiled from, each part with its length before it, so that two
 * specs never run together into one key. Agents send the same tools and schema with every request:
 * a handful of entries is enough.
 */
static ech_status key_part(ech_buf *const key, const void *const s, const size_t len)
{
    ECH_TRY(ech_buf_append(key, &len, sizeof len));
    return len > 0 ? ech_buf_append(key, s, len) : ECH_OK;
}

/*
 * Everything that ech_constraint_compile() reads of the spec has to be in it: a part that is
 * left out would give one request the other's constraint.
 */
static ech_status make_key(const ech_constraint_spec *const s, ech_buf *const key)
{
    ECH_TRY(ech_buf_printf(key, "%d %d %d %u ", (int)s->content_kind, (int)s->reasoning,
                           (int)s->call_mode, s->max_calls));
    ECH_TRY(key_part(key, s->content, s->content_len));
    ECH_TRY(key_part(key, s->call_separator, s->call_separator_len));
    for (size_t i = 0; i < s->n_calls; i++) {
        ECH_TRY(key_part(key, s->calls[i].begin, s->calls[i].begin_len));
        ECH_TRY(key_part(key, s->calls[i].schema, s->calls[i].schema_len));
        ECH_TRY(key_part(key, s->calls[i].end, s->calls[i].end_len));
    }
    return ECH_OK;
}

/*
 * A reference to what was compiled from the same, NULL: not there. Compared byte by byte with a
 * handful of keys: no hash, and no two specs that share one.
 */
static ech_constraint *look_up(ech_guides *const g, const ech_buf *const key)
{
    ech_constraint *found = NULL;
    (void)pthread_mutex_lock(&g->lock);
    for (size_t i = 0; i < ECH_GUIDE_CACHE && found == NULL; i++) {
        if (g->cache[i].constraint == NULL ||
            !ech_str_eq(ech_buf_view(&g->cache[i].key), ech_buf_view(key)))
            continue;
        g->cache[i].used = ++g->clock;
        found = ech_constraint_ref(g->cache[i].constraint);
    }
    (void)pthread_mutex_unlock(&g->lock);
    return found;
}

/* Keeps it in place of the one that was asked for the longest ago; takes the key. */
static void keep(ech_guides *const g, ech_buf *const key, ech_constraint *const constraint)
{
    (void)pthread_mutex_lock(&g->lock);
    size_t oldest = 0;
    for (size_t i = 1; i < ECH_GUIDE_CACHE; i++) {
        if (g->cache[i].used < g->cache[oldest].used) oldest = i;
    }
    ech_buf_fini(&g->cache[oldest].key);
    ech_constraint_unref(&g->cache[oldest].constraint);
    g->cache[oldest].key = *key;
    g->cache[oldest].constraint = ech_constraint_ref(constraint);
    g->cache[oldest].used = ++g->clock;
    (void)pthread_mutex_unlock(&g->lock);
    *key = (ech_buf){ 0 };
}

/* The vocabulary as masks need it, built by the first request that has a constraint: a server that
 * never gets one doesn't pay for it. */
static ech_status take_vocab(ech_server *const s, ech_mask_vocab **const ret, ech_error *const err)
{
    (void)pthread_mutex_lock(&s->guides.lock);
    ech_status rc = ECH_OK;
    if (s->guides.vocab == NULL) rc = ech_engine_mask_vocab(s->engine, &s->guides.vocab, err);
    *ret = s->guides.vocab;
    (void)pthread_mutex_unlock(&s->guides.lock);
    return rc;
}

/*
 * Two threads may compile the same at once; the second result then takes another slot and the
 * first grows old. The lock is not held meanwhile: other requests' look-ups would wait for it.
 */
static ech_status compile(ech_server *const s, const ech_constraint_spec *const spec,
                          ech_constraint **const ret, ech_error *const err)
{
    ech_buf key = { 0 };
    ech_mask_vocab *vocab;
    ech_status rc = make_key(spec, &key);
    if (rc != ECH_OK) (void)ech_fail(err, rc, "compiling a constraint: out of memory");
    ech_constraint *c = rc == ECH_OK ? look_up(&s->guides, &key) : NULL;
    if (rc == ECH_OK && c == NULL) {
        rc = take_vocab(s, &vocab, err);
        if (rc == ECH_OK) rc = ech_constraint_compile(vocab, spec, NULL, &c, err);
        if (rc == ECH_OK) keep(&s->guides, &key, c);
    }
    ech_buf_fini(&key);
    if (rc == ECH_OK) *ret = c;
    return rc;
}

/* ---- a request's guide ---------------------------------------------------------------------- */

static void set(json_t *const request, const char *const name, const json_t *const v)
{
    if (v != NULL) (void)json_object_set(request, name, (json_t *)v);
}

/* The fields that guide.h looks at, as every dialect brought them to chat's names. */
static ech_status put_request(const ech_params *const p, ech_buf *const b)
{
    json_t *const r = json_object();
    set(r, "tools", p->tools);
    set(r, "tool_choice", p->tool_choice);
    set(r, "response_format", p->response_format);
    set(r, "structured_outputs", p->structured_outputs);
    set(r, "json_schema", p->json_schema);
    set(r, "guided_json", p->guided_json);
    set(r, "guided_regex", p->guided_regex);
    set(r, "guided_choice", p->guided_choice);
    set(r, "guided_grammar", p->guided_grammar);
    set(r, "grammar", p->grammar);
    (void)json_object_set_new(r, "parallel_tool_calls", json_boolean(p->parallel_tool_calls));
    if (p->thinking_budget >= 0)
        (void)json_object_set_new(r, "thinking_budget", json_integer(p->thinking_budget));
    const ech_status rc = r != NULL ? ech_json_dump(b, r) : ECH_ENOMEM;
    json_decref(r);
    return rc;
}

/* response_format.json_schema.schema → text.format.schema: in responses it lies flat. */
static void put_name(const ech_exchange *const x, const char *field,
                     char ret[ECH_GUIDE_FIELD_BYTES])
{
    static const char OWN[] = "response_format", NESTED[] = ".json_schema";
    const char *name = "";
    if (x->format_name != NULL && strncmp(field, OWN, sizeof OWN - 1) == 0) {
        name = x->format_name;
        field += sizeof OWN - 1;
        if (strncmp(field, NESTED, sizeof NESTED - 1) == 0) field += sizeof NESTED - 1;
    }
    (void)snprintf(ret, ECH_GUIDE_FIELD_BYTES, "%s%s", name, field);
}

/* A schema that can't be compiled is the client's; only memory is ours. */
static void refuse(ech_exchange *const x, const char *const field, const ech_error *const err)
{
    const int status = err->code == ECH_ENOMEM ? 503 : 400;
    const char *const code = err->code == ECH_EUNSUPPORTED ? "unsupported_value" : "invalid_value";
    char name[ECH_GUIDE_FIELD_BYTES];
    put_name(x, field, name);
    ech_reply_error(x, status, code, name[0] != '\0' ? name : NULL, "%s", err->text);
}

/*
 * Before the template is rendered: whether there are tools decides what it is given. is_text:
 * completions, where there are neither tools nor reasoning.
 */
bool ech_guide_take(ech_exchange *const x, const ech_params *const p, const bool is_text)
{
    char field[ECH_GUIDE_FIELD_BYTES] = "";
    ech_error err = { 0 };
    ech_buf request = { 0 };
    ech_guide_options o = ech_guide_options_default();
    o.reasoning = x->server->guides.reasoning;
    o.tools = x->server->guides.tools;
    o.is_text = is_text;
    ech_status rc = put_request(p, &request);
    if (rc != ECH_OK)
        (void)ech_fail(&err, rc, "there is no memory for the request now");
    else
        rc = ech_guide_create(&x->guide, request.data, request.len, &o, field, &err);
    ech_buf_fini(&request);
    if (rc != ECH_OK) refuse(x, field, &err);
    return rc == ECH_OK;
}

/* After it: how the prompt ends says in which state the parser begins, inside <think> or not. */
bool ech_guide_apply(ech_exchange *const x, ech_request_options *const options)
{
    const ech_constraint_spec *const spec = ech_guide_spec(x->guide);
    ech_error err;
    options->parser = ech_guide_parser(x->guide);
    options->thinking_budget = ech_guide_thinking_budget(x->guide);
    if (spec == NULL) return true;
    if (compile(x->server, spec, &x->constraint, &err) != ECH_OK) {
        refuse(x, ech_guide_spec_field(x->guide), &err);
        return false;
    }
    options->constraint = x->constraint;
    return true;
}
