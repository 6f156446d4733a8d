/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/completions: raw prompts in, text out. Four shapes of prompt, echo, log-probabilities
 * in four columns, max_tokens 0 to score a prompt.
 *
 * Read on a text thread, written on the loop thread. Frames of a stream and the whole answer
 * have one shape (text_completion); after the last choice come the usage, if asked for, and
 * data: [DONE]. There are no roles, tools or reasoning here: what a model writes is text,
 * markers and all.
 */
#include <math.h>
#include <string.h>

#include "echelon/tokenizer.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/utf8.h"
#include "src/server/api.h"
#include "src/server/guide.h"
#include "src/server/prompt.h"
#include "src/server/reply.h"
#include "src/server/state.h"

enum { COL_TOKENS, COL_LOGPROBS, COL_TOP, COL_OFFSETS };

static ech_status put_head(const ech_exchange *const x, const ech_generation *const g,
                           ech_buf *const b)
{
    ECH_TRY(ech_buf_printf(
        b, "{\"id\":\"cmpl-%s\",\"object\":\"text_completion\",\"created\":%lld,\"model\":", x->id,
        (long long)g->created_s));
    return ech_json_put_cstring(b, g->model);
}

/*
 * Four lists of one length, one entry a token: OpenAI's older form, which tools that score texts
 * still read.
 */
static ech_status put_logprobs(ech_generation *const g, ech_choice *const c, ech_buf *const b,
                               const bool fresh)
{
    static const char *const NAMES[] = { "tokens", "token_logprobs", "top_logprobs",
                                         "text_offset" };
    if (!g->wants_logprobs) return ech_buf_puts(b, "null");
    for (size_t i = 0; i < ECH_LOGPROB_COLUMNS; i++) {
        const ech_str s = ech_logprobs_take(c, i, fresh);
        ECH_TRY(ech_buf_printf(b, "%s\"%s\":[", i == 0 ? "{" : ",", NAMES[i]));
        ECH_TRY(ech_buf_append(b, s.ptr, s.len));
        ECH_TRY(ech_buf_push(b, ']'));
    }
    return ech_buf_push(b, '}');
}

/* Ids and the prompt's scores only when the choice has ended: they are whole then. */
static ech_status put_choice(ech_generation *const g, const uint32_t k, const ech_str text,
                             const bool fresh, const char *const finish, ech_buf *const b)
{
    ech_choice *const c = &g->choices[k];
    ECH_TRY(ech_buf_printf(b, "{\"index\":%u,\"text\":", k));
    ECH_TRY(ech_json_put_string(b, text.ptr, text.len));
    ECH_TRY(ech_buf_puts(b, ",\"logprobs\":"));
    ECH_TRY(put_logprobs(g, c, b, fresh));
    if (finish != NULL) {
        ECH_TRY(ech_put_token_ids(b, g, k));
        ECH_TRY(ech_put_prompt(b, g, k));
    }
    return finish != NULL ? ech_buf_printf(b, ",\"finish_reason\":\"%s\"}", finish)
                          : ech_buf_puts(b, ",\"finish_reason\":null}");
}

static ech_status put_frame(ech_exchange *const x, ech_generation *const g, const uint32_t k,
                            const ech_str text, const char *const finish)
{
    ECH_TRY(ech_buf_puts(&x->out, "data: "));
    ECH_TRY(put_head(x, g, &x->out));
    ECH_TRY(ech_buf_puts(&x->out, ",\"choices\":["));
    ECH_TRY(put_choice(g, k, text, true, finish, &x->out));
    ECH_TRY(ech_buf_push(&x->out, ']'));
    ECH_TRY(ech_put_timings(&x->out, g));
    return ech_buf_puts(&x->out, g->include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
}

/* No first frame without text: what a client shows begins with the first delta. */
static ech_status on_begin(ech_exchange *const x, ech_generation *const g)
{
    (void)x;
    (void)g;
    return ECH_OK;
}

/* The end of the text that no frame has carried. */
static ech_str take_held(ech_choice *const c)
{
    const ech_str all = ech_buf_view(&c->text[ECH_CHANNEL_CONTENT]);
    const size_t n = c->held;
    c->held = 0;
    return (ech_str){ all.ptr + (all.len - n), n };
}

/* An echo comes before its scores are computed; it waits for the frame that can carry both. */
static ech_status on_delta(ech_exchange *const x, ech_generation *const g, const uint32_t choice,
                           const ech_event *const ev)
{
    ech_choice *const c = &g->choices[choice];
    c->held += ev->text_len;
    if (g->params.echo && g->wants_logprobs && c->items[COL_TOKENS].len == 0) return ECH_OK;
    return put_frame(x, g, choice, take_held(c), NULL);
}

/* It may carry text: what an echo held back, when no token came after it. */
static ech_status on_finish(ech_exchange *const x, ech_generation *const g, const uint32_t choice)
{
    ech_choice *const c = &g->choices[choice];
    return put_frame(x, g, choice, take_held(c), ech_finish_name(c->finish));
}

/* An empty list of choices, as in chat. */
static ech_status on_done(ech_exchange *const x, ech_generation *const g)
{
    if (g->include_usage) {
        ECH_TRY(ech_buf_puts(&x->out, "data: "));
        ECH_TRY(put_head(x, g, &x->out));
        ECH_TRY(ech_buf_puts(&x->out, ",\"choices\":[],\"usage\":"));
        ECH_TRY(ech_put_usage(&x->out, &g->usage));
        ECH_TRY(ech_buf_puts(&x->out, "}\n\n"));
    }
    return ech_buf_puts(&x->out, "data: [DONE]\n\n");
}

/*
 * {" the": -1.5, …}. An object by the tokens' texts, as OpenAI has it: two ids with one text
 * (cut characters) give one key twice, which JSON allows and readers resolve by the last.
 */
static ech_status put_top(const ech_exchange *const x, const ech_event *const ev, ech_buf *const b)
{
    const ech_tokenizer *const tok = ech_engine_tokenizer(x->server->engine);
    ECH_TRY(ech_buf_push(b, '{'));
    for (size_t i = 0; i < ev->n_top; i++) {
        size_t len;
        const char *const bytes = ech_tokenizer_token_bytes(tok, ev->top[i].id, &len);
        if (i > 0) ECH_TRY(ech_buf_push(b, ','));
        ECH_TRY(ech_json_put_string(b, bytes, bytes != NULL ? len : 0));
        ECH_TRY(ech_buf_push(b, ':'));
        ECH_TRY(ech_json_put_float(b, ev->top[i].logprob));
    }
    return ech_buf_push(b, '}');
}

/* Characters, as offsets into the text count them: continuation bytes are not counted. */
static size_t count_chars(const char *const s, const size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        n += ((unsigned char)s[i] & 0xC0) != 0x80;
    }
    return n;
}

/*
 * Four columns that grow side by side. A token's text is that of its bytes, with U+FFFD where a
 * character is cut; offsets count the characters of the text before it.
 */
static ech_status on_logprob(ech_exchange *const x, ech_generation *const g, ech_choice *const c,
                             const ech_event *const ev)
{
    (void)g;
    size_t len;
    const char *const bytes =
        ech_tokenizer_token_bytes(ech_engine_tokenizer(x->server->engine), ev->id, &len);
    if (bytes == NULL) len = 0;
    for (size_t i = 0; i < ECH_LOGPROB_COLUMNS; i++) {
        ECH_TRY(ech_logprobs_next(c, i));
    }
    ECH_TRY(ech_json_put_string(&c->items[COL_TOKENS], bytes, len));
    /* The first id of a prompt has nothing before it that could give it a probability. */
    if (ev->has_logprob) {
        ECH_TRY(ech_json_put_float(&c->items[COL_LOGPROBS], ev->logprob));
        ECH_TRY(put_top(x, ev, &c->items[COL_TOP]));
    } else {
        ECH_TRY(ech_buf_puts(&c->items[COL_LOGPROBS], "null"));
        ECH_TRY(ech_buf_puts(&c->items[COL_TOP], "null"));
    }
    ECH_TRY(ech_buf_printf(&c->items[COL_OFFSETS], "%zu", c->text_offset));
    c->text_offset += count_chars(bytes, len);
    return ECH_OK;
}

/*
 * The prompt's ids and scores stand in each choice here, in chat beside the choices: as vLLM has
 * both.
 */
static ech_status on_body(ech_exchange *const x, ech_generation *const g)
{
    ech_buf *const b = &x->reply;
    ECH_TRY(put_head(x, g, b));
    ECH_TRY(ech_buf_puts(b, ",\"choices\":["));
    for (uint32_t k = 0; k < g->n_choices; k++) {
        if (k > 0) ECH_TRY(ech_buf_push(b, ','));
        ECH_TRY(put_choice(g, k, ech_buf_view(&g->choices[k].text[ECH_CHANNEL_CONTENT]), false,
                           ech_finish_name(g->choices[k].finish), b));
    }
    ECH_TRY(ech_buf_puts(b, "],\"usage\":"));
    ECH_TRY(ech_put_usage(b, &g->usage));
    ECH_TRY(ech_put_timings(b, g));
    return ech_buf_push(b, '}');
}

static const ech_dialect COMPLETIONS = {
    .begin = on_begin,
    .delta = on_delta,
    .finish = on_finish,
    .done = on_done,
    .logprob = on_logprob,
    .body = on_body,
};

/* logprobs is a count here; llama-server's n_probs says the same. */
/* true is what newer clients send, by chat's habit: the drawn token's own, no alternatives. */
static bool take_logprobs(ech_exchange *const x, ech_generation *const g)
{
    const json_t *const v = g->params.logprobs;
    if (json_is_true(v)) {
        g->wants_logprobs = true;
    } else if (v != NULL && !json_is_false(v)) {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 20) {
            ech_reply_error(x, 400, "invalid_value", "logprobs",
                            "logprobs must be a whole number from 0 to 20");
            return false;
        }
        g->wants_logprobs = true;
        g->n_top = (int32_t)json_integer_value(v);
    }
    if (g->params.top_logprobs > 0) {
        g->wants_logprobs = true;
        g->n_top = (int32_t)g->params.top_logprobs;
    }
    return true;
}

/* More than n would be drawn and thrown away; less OpenAI refuses as well. */
static bool take_best_of(ech_exchange *const x, const ech_params *const p)
{
    return p->best_of < 0 || p->best_of == p->n ||
           ech_reply_refuse(x, "best_of", "must be n: every answer that is drawn is returned");
}

/*
 * The order: fields, then prompts, then the guide, which needs no prompt. With echo the prompt's
 * own tokens are scored as well, in the same columns before the answer's.
 */
void ech_api_completions(ech_exchange *const x)
{
    const json_t *const body = ech_exchange_json(x);
    ech_generation *const g = body != NULL ? ech_generation_new(x) : NULL;
    if (g == NULL) return;
    g->params.max_tokens = 16; /* OpenAI's default */
    ech_request_options options;
    if (!ech_generation_parse(x, g, body, ECH_IN_COMPLETIONS) || !take_best_of(x, &g->params) ||
        !take_logprobs(x, g) ||
        !ech_generate_options(x, g, &options) ||
        !ech_prompts_take(x, g->params.prompt, "prompt", &options) ||
        !ech_prompts_prepare(x, &g->params, &options)) {
        return;
    }
    if (!ech_guide_take(x, &g->params, true) || !ech_guide_apply(x, &options)) return;
    if (g->params.echo && g->wants_logprobs) options.prompt_logprobs = g->n_top;
    g->prompt_param = "prompt";
    ech_generate_start(x, &COMPLETIONS, g, &options);
}
