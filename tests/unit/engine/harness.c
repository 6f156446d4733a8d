/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/engine/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "echelon/constraint.h"
#include "tests/unit/test.h"

ech_engine_options h_options(void)
{
    ech_engine_options o;
    ech_engine_options_default(&o);
    o.model_dir = ECH_SOURCE_DIR "/models/tale";
    o.threads = 2;
    o.max_seq_len = 512;
    o.kv_memory = UINT64_C(64) * 32 * 6 * 2 * 2 * 64 * 2; /* pages of the tale model in f16 */
    return o;
}

ech_engine *h_open(const ech_engine_options *o)
{
    ech_engine *e = NULL;
    ech_error err = { .code = ECH_OK };
    if (ech_engine_open(&e, o, &err) != ECH_OK ||
        ech_engine_wait_ready(e, 60000, NULL, &err) != ECH_OK)
        fail_msg("opening the engine: %s", err.text);
    return e;
}

ech_prompt h_text(const char *text)
{
    return (ech_prompt){ .text = text, .text_len = strlen(text) };
}

ech_request_options h_request(const ech_prompt *prompt)
{
    ech_request_options o;
    ech_request_options_default(&o);
    o.prompts = prompt;
    o.n_prompts = 1;
    o.max_tokens = 32;
    o.logprobs = 0;
    o.sampling.temperature = 0;
    return o;
}

static void add_prompt_token(h_choice *c, const ech_event *ev)
{
    c->prompt_ids = realloc(c->prompt_ids, (c->n_prompt + 1) * sizeof *c->prompt_ids);
    c->prompt_logprobs =
        realloc(c->prompt_logprobs, (c->n_prompt + 1) * sizeof *c->prompt_logprobs);
    c->prompt_ids[c->n_prompt] = ev->id;
    c->prompt_logprobs[c->n_prompt++] = ev->has_logprob ? ev->logprob : 0;
}

static void add_token(h_choice *c, const ech_event *ev)
{
    c->ids = realloc(c->ids, (c->n + 1) * sizeof *c->ids);
    c->logprobs = realloc(c->logprobs, (c->n + 1) * sizeof *c->logprobs);
    c->ids[c->n] = ev->id;
    c->logprobs[c->n++] = ev->has_logprob ? ev->logprob : 0;
    c->is_broken = c->is_broken || c->n_started != 1;
}

static void take_choice(h_choice *c, const ech_event *ev)
{
    c->is_broken = c->is_broken || c->n_finished > 0;
    switch (ev->kind) {
    case ECH_EVENT_STARTED:
        c->seed = ev->seed;
        c->n_started++;
        break;
    case ECH_EVENT_PROMPT_TOKEN:
        add_prompt_token(c, ev);
        break;
    case ECH_EVENT_TOKEN:
        add_token(c, ev);
        break;
    case ECH_EVENT_TEXT:
        (void)ech_buf_append(&c->text, ev->text, ev->text_len);
        break;
    case ECH_EVENT_FINISH:
        c->finish = ev->finish;
        c->stop = ev->stop;
        c->error = ev->error;
        c->usage = ev->usage;
        c->n_finished++;
        break;
    default:
        break;
    }
}

void h_take(h_result *r, const ech_event *ev)
{
    if (ev->kind == ECH_EVENT_QUEUED) {
        r->seed = ev->seed;
        return;
    }
    if (ev->kind == ECH_EVENT_DONE) {
        r->usage = ev->usage;
        r->error = ev->error;
        r->n_done++;
        return;
    }
    assert_true(ev->choice < H_MAX_CHOICES);
    if (ev->choice >= r->n_choices) r->n_choices = ev->choice + 1;
    take_choice(&r->choices[ev->choice], ev);
}

h_result *h_finish(ech_request **request)
{
    h_result *const r = calloc(1, sizeof *r);
    ech_event ev;
    ech_error err;
    while (r->n_done == 0) {
        const ech_status rc = ech_request_next(*request, 60000, &ev, &err);
        if (rc != ECH_OK) fail_msg("reading events: %s", err.text);
        h_take(r, &ev);
    }
    assert_int_equal(ech_request_next(*request, 0, &ev, NULL), ECH_ESTATE);
    for (uint32_t i = 0; i < r->n_choices; i++) {
        assert_int_equal(r->choices[i].n_finished, 1);
        assert_false(r->choices[i].is_broken);
    }
    ech_request_close(request);
    return r;
}

h_result *h_run(ech_engine *e, const ech_request_options *o)
{
    ech_request *request;
    ech_error err = { .code = ECH_OK };
    const ech_status rc = ech_engine_submit(e, o, &request, &err);
    if (rc == ECH_OK) return h_finish(&request);
    h_result *const r = calloc(1, sizeof *r);
    r->submitted = rc;
    r->error = err;
    return r;
}

void h_clear(h_result *r)
{
    for (uint32_t i = 0; i < r->n_choices; i++) {
        free(r->choices[i].ids);
        free(r->choices[i].logprobs);
        free(r->choices[i].prompt_ids);
        free(r->choices[i].prompt_logprobs);
        ech_buf_fini(&r->choices[i].text);
        r->choices[i] = (h_choice){ 0 };
    }
    r->n_choices = r->n_done = 0;
}

void h_free(h_result **result)
{
    if (*result == NULL) return;
    h_clear(*result);
    free(*result);
    *result = NULL;
}

bool h_is_same(const h_choice *a, const h_choice *b)
{
    return a->n == b->n && memcmp(a->ids, b->ids, a->n * sizeof *a->ids) == 0 &&
           memcmp(a->logprobs, b->logprobs, a->n * sizeof *a->logprobs) == 0 &&
           ech_str_eq(ech_buf_view(&a->text), ech_buf_view(&b->text)) && a->finish == b->finish &&
           a->n_prompt == b->n_prompt &&
           (a->n_prompt == 0 || memcmp(a->prompt_logprobs, b->prompt_logprobs,
                                       a->n_prompt * sizeof *a->prompt_logprobs) == 0);
}

void h_print_choice(const char *name, const h_choice *c)
{
    print_message("%s: %s, %u ids, \"%.*s\"\n", name, ech_finish_name(c->finish), c->n,
                  (int)c->text.len, c->text.data != NULL ? c->text.data : "");
    for (uint32_t i = 0; i < c->n; i++)
        print_message(" %d(%.9g)", c->ids[i], (double)c->logprobs[i]);
    print_message("\n%s\n", c->error.text);
}

void h_assert_same(const h_choice *a, const h_choice *b)
{
    if (h_is_same(a, b)) return;
    h_print_choice("one", a);
    h_print_choice("other", b);
    fail_msg("the answers differ");
}

struct ech_constraint *h_constraint(ech_engine *e, int kind, const char *text)
{
    ech_mask_vocab *vocab = NULL;
    ech_constraint *constraint = NULL;
    ech_error err = { .code = ECH_OK };
    ech_constraint_spec spec = ech_constraint_spec_default();
    spec.content_kind = (ech_constraint_kind)kind;
    spec.content = text;
    spec.content_len = strlen(text);
    if (ech_engine_mask_vocab(e, &vocab, &err) != ECH_OK ||
        ech_constraint_compile(vocab, &spec, NULL, &constraint, &err) != ECH_OK)
        fail_msg("making a constraint: %s", err.text);
    ech_mask_vocab_unref(&vocab);
    return constraint;
}

static ech_status hook_open(void *self, void **ret_state, ech_error *err)
{
    ech_constraint_state *state = NULL;
    const ech_status rc = ech_constraint_state_create(self, -1, &state, err);
    *ret_state = state;
    return rc;
}

static ech_status hook_mask(void *state, uint32_t *words, size_t n_words, ech_error *err)
{
    return ech_constraint_state_mask(state, words, n_words, err);
}

static ech_status hook_accept(void *state, int32_t id, bool *ret_ended, ech_error *err)
{
    const ech_status rc = ech_constraint_state_accept(state, id, err);
    *ret_ended = ech_constraint_state_is_complete(state);
    return rc;
}

static void hook_close(void *state)
{
    ech_constraint_state *s = state;
    ech_constraint_state_destroy(&s);
}

ech_constraint_hook h_plain_hook(struct ech_constraint *constraint)
{
    return (ech_constraint_hook){ .self = constraint,
                                  .open = hook_open,
                                  .mask = hook_mask,
                                  .accept = hook_accept,
                                  .close = hook_close };
}

ech_engine_counters h_counters(ech_engine *e)
{
    ech_engine_counters c = { .struct_size = sizeof c };
    ech_engine_counters_get(e, &c);
    return c;
}

void h_assert_idle(ech_engine *e)
{
    ech_engine_counters c = { 0 };
    for (int i = 0; i < 2000; i++) {
        c = h_counters(e);
        if (c.requests == 0 && c.running == 0 && c.queued == 0 && c.pages_used == 0) break;
        (void)usleep(1000);
    }
    assert_int_equal(c.requests, 0);
    assert_int_equal(c.queued, 0);
    assert_int_equal(c.queued_tokens, 0);
    assert_int_equal(c.pages_used, 0);
    assert_int_equal(c.pages_free + c.pages_cached, c.pages_total);
}

uint64_t h_seed(uint64_t seed)
{
    const char *const given = getenv("ECH_SEED");
    if (given != NULL) seed = strtoull(given, NULL, 0);
    print_message("seed=%llu\n", (unsigned long long)seed);
    return seed;
}

uint32_t h_draw(uint64_t *rng, uint32_t n)
{
    *rng = *rng * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)((*rng >> 33) % n);
}
