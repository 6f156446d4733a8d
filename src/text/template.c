/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public side of chat templates: compiling, rendering, and what a template is like.
 *
 * A template is one arena: source, tokens, tree and names. A rendering is another, which dies with
 * it; only the text and its spans are copied out.
 *
 * Invariant: a compiled template is never written again (names.err is taken out for that), so any
 * number of renderings may run over it at once, each with its own ech_tvm on its own thread. Limits
 * of memory, steps, depth and output hold for everything a rendering does, because a template and
 * its arguments are both input.
 */
#include <stdlib.h>

#include "src/base/utf8.h"
#include "src/text/template_builtin.h"

#define COMPILE_MEMORY (128u << 20)
#define DEFAULT_STEPS  20000000u
#define DEFAULT_MEMORY ((size_t)256 << 20)
#define DEFAULT_OUTPUT ((size_t)32 << 20)
#define DEFAULT_DEPTH  1200

struct ech_template {
    ech_arena arena;
    ech_tcompiler names; /* the buckets of all names */
    const ech_ttoken *tokens;
    size_t n_tokens;
    ech_tnodes body;
    ech_tscope scope;
    ech_tcode code;
    bool takes_parts;
};

/* ---- compiling ---- */

/* The source is bounded before anything is made of it; COMPILE_MEMORY bounds the rest. */
static ech_status compile_into(ech_template *const t, const char *const source, const size_t len,
                               ech_error *const err)
{
    size_t bad;
    if (len > ECH_TEMPLATE_SOURCE_MAX) {
        return ech_fail(err, ECH_ELIMIT, "template: %zu bytes, more than the limit of %u", len,
                        ECH_TEMPLATE_SOURCE_MAX);
    }
    if (!ech_utf8_valid(source, len, &bad)) {
        return ech_fail_at(err, ECH_EFORMAT, 0, 0, (int64_t)bad, "template: not UTF-8 at byte %zu",
                           bad);
    }
    t->arena.limit = COMPILE_MEMORY;
    t->names = (ech_tcompiler){ .arena = &t->arena, .err = err };
    ech_ttoken *tokens;
    ECH_TRY(ech_tlex(&t->names, source, len, &tokens, &t->n_tokens));
    t->tokens = tokens;
    ECH_TRY(ech_tparse(&t->names, tokens, &t->body));
    return ech_tscope_resolve(&t->names, t->body, &t->scope, &t->code);
}

/*
 * Whether a list of parts comes out as its text: rendered with parts, the text is there and the
 * list's own form is not.
 */
static bool probe_parts(const ech_template *const t)
{
    static const char args[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"part0probe\"}"
        "]}],"
        "\"tools\":null,\"documents\":null,\"add_generation_prompt\":true,"
        "\"bos_token\":\"\",\"eos_token\":\"\",\"pad_token\":\"\",\"unk_token\":\"\"}";
    ech_rendered r = { 0 };
    ech_template_options opts;
    ech_template_options_default(&opts);
    opts.max_steps = 200000;
    opts.max_memory = (size_t)16 << 20;
    opts.max_output = (size_t)1 << 20;
    opts.now = "2026-01-02T03:04:05";
    if (ech_template_render(t, args, sizeof args - 1, &opts, &r, NULL) != ECH_OK) return false;
    const char *const text = strstr(r.text, "part0probe");
    const bool as_list = strstr(r.text, "'text': 'part0probe'") != NULL ||
                         strstr(r.text, "\"text\": \"part0probe\"") != NULL;
    ech_rendered_release(&r);
    return text != NULL && !as_list;
}

ech_status ech_template_compile(const char *const source, const size_t len,
                                ech_template **const ret_t, ech_error *const err)
{
    ech_template *t = calloc(1, sizeof *t);
    if (t == NULL) return ech_fail(err, ECH_ENOMEM, "compiling a template: out of memory");
    const ech_status rc = compile_into(t, source, len, err);
    t->names.err = NULL;
    if (rc != ECH_OK) {
        ech_template_destroy(&t);
        return rc;
    }
    t->takes_parts = probe_parts(t);
    *ret_t = t;
    return ECH_OK;
}

void ech_template_destroy(ech_template **const t)
{
    if (t == NULL || *t == NULL) return;
    ech_arena_fini(&(*t)->arena);
    free(*t);
    *t = NULL;
}

/* ---- rendering ---- */

void ech_template_options_default(ech_template_options *const opts)
{
    *opts = (ech_template_options){ .struct_size = sizeof *opts };
}

/* A copy of the options in which every limit is set. */
static ech_template_options with_defaults(const ech_template_options *const opts)
{
    ech_template_options o;
    ech_template_options_default(&o);
    if (opts != NULL) memcpy(&o, opts, opts->struct_size < sizeof o ? opts->struct_size : sizeof o);
    if (o.max_steps == 0) o.max_steps = DEFAULT_STEPS;
    if (o.max_memory == 0) o.max_memory = DEFAULT_MEMORY;
    if (o.max_output == 0) o.max_output = DEFAULT_OUTPUT;
    if (o.max_depth == 0) o.max_depth = DEFAULT_DEPTH;
    return o;
}

/* Neighbouring bytes of one origin are one span. */
static size_t count_spans(const uint8_t *const origin, const size_t len)
{
    size_t n = len > 0;
    for (size_t i = 1; i < len; i++) {
        n += origin[i] != origin[i - 1];
    }
    return n;
}

/*
 * Copies text and spans out of the rendering's memory. Text and spans are the caller's from here
 * on; the arena with everything else is dropped.
 */
static ech_status copy_out(const ech_tbuild *const out, ech_rendered *const ret,
                           ech_error *const err)
{
    const size_t len = ech_tbuild_len(out);
    const uint8_t *const origin = len > 0 ? out->mem->origin + out->start : NULL;
    ech_rendered r = { .len = len, .n_spans = count_spans(origin, len) };
    r.text = malloc(len + 1);
    r.spans = r.n_spans > 0 ? malloc(r.n_spans * sizeof *r.spans) : NULL;
    if (r.text == NULL || (r.n_spans > 0 && r.spans == NULL)) {
        ech_rendered_release(&r);
        return ech_fail(err, ECH_ENOMEM, "rendering a template: out of memory");
    }
    if (len > 0) memcpy(r.text, out->mem->data + out->start, len);
    r.text[len] = '\0';
    size_t k = 0;
    for (size_t i = 0; i < len; i++) {
        if (i == 0 || origin[i] != origin[i - 1]) {
            r.spans[k++] =
                (ech_span){ .len = 0,
                            .origin = origin[i] != 0 ? ECH_ORIGIN_DATA : ECH_ORIGIN_TEMPLATE };
        }
        r.spans[k - 1].len++;
    }
    *ret = r;
    return ECH_OK;
}

/* Frame and scope of the top level: names that nothing stores are loaded from the arguments. */
static ech_status run(ech_tvm *const vm, const ech_trender *const job)
{
    const ech_template *const t = vm->t;
    ech_tframe *f;
    ECH_TRY(ech_targs_parse(vm, job->args, job->args_len, &vm->args));
    if (job->prepare != NULL) ECH_TRY(job->prepare(vm, job->ctx));
    ECH_TRY(ech_tdict_new(vm, &vm->vars));
    ECH_TRY(ech_tframe_new(vm, &t->code, NULL, &f));
    ECH_TRY(ech_tscope_enter(vm, f, &t->scope));
    return ech_texec(vm, f, t->body);
}

ech_status ech_template_run(const ech_template *const t, const ech_trender *const job,
                            const ech_template_options *const opts, ech_rendered *const ret,
                            ech_error *const err)
{
    const ech_template_options o = with_defaults(opts);
    ech_tvm vm = {
        .t = t,
        .arena = { .limit = o.max_memory },
        .steps_left = o.max_steps,
        .max_depth = o.max_depth,
        .max_output = o.max_output,
        .err = err,
        .now = o.now,
        .spelled_numbers = o.spelled_numbers,
    };
    ech_tbuild out = { .vm = &vm, .max_len = o.max_output };
    vm.out = &out;
    ech_status rc = run(&vm, job);
    if (rc == ECH_OK) rc = copy_out(&out, ret, err);
    ech_arena_fini(&vm.arena);
    return rc;
}

ech_status ech_template_render(const ech_template *const t, const char *const args,
                               const size_t args_len, const ech_template_options *const opts,
                               ech_rendered *const ret, ech_error *const err)
{
    const ech_trender job = { .args = args, .args_len = args_len };
    return ech_template_run(t, &job, opts, ret, err);
}

void ech_rendered_release(ech_rendered *const r)
{
    free(r->text);
    free(r->spans);
    *r = (ech_rendered){ 0 };
}

/* ---- what it is like ---- */

static const ech_tname *find_name(const ech_template *const t, const char *const name)
{
    for (size_t i = 0; t->names.buckets != NULL && i < ECH_TNAME_BUCKETS; i++) {
        for (const ech_tname *n = t->names.buckets[i]; n != NULL; n = n->next) {
            if (strcmp(n->ptr, name) == 0) return n;
        }
    }
    return NULL;
}

bool ech_template_reads_variable(const ech_template *const t, const char *const name)
{
    const ech_tname *const n = find_name(t, name);
    return n != NULL && n->is_variable;
}

/*
 * Names are interned for the whole template, so this says that some expression reads such a field.
 */
bool ech_template_reads_field(const ech_template *const t, const char *const name)
{
    const ech_tname *const n = find_name(t, name);
    return n != NULL && n->is_field;
}

/* Looks into text and into string constants, but not into comments or names. */
bool ech_template_has_text(const ech_template *const t, const char *const text)
{
    for (size_t i = 0; i < t->n_tokens; i++) {
        const ech_ttoken *const tok = &t->tokens[i];
        if (tok->kind != ECH_TOK_DATA && tok->kind != ECH_TOK_STRING) continue;
        if (memmem(tok->ptr, tok->len, text, strlen(text)) != NULL) return true;
    }
    return false;
}

bool ech_template_takes_parts(const ech_template *const t)
{
    return t->takes_parts;
}
