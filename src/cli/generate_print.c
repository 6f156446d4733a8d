/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answers of `echelon generate` in text and JSON. See generate_print.h.
 *
 * Ownership: an ech_printed owns its buffers from the first event to ech_printed_fini().
 * Invariant: an answer is printed as a whole, after its FINISH, but for text that was streamed.
 * JSON here has a blank behind ':' and ',' and escapes line separators of Unicode: one object is
 * one line for every reader. Main thread.
 */
#include "src/cli/generate_print.h"

#include <math.h>

#include "src/base/clock.h"
#include "src/base/error.h"
#include "src/base/utf8.h"

void ech_printed_fini(ech_printed *p)
{
    ech_buf_fini(&p->text);
    ech_buf_fini(&p->reasoning);
    ech_buf_fini(&p->calls);
    ech_buf_fini(&p->calls_json);
    ech_buf_fini(&p->args);
    ech_buf_fini(&p->ids);
    ech_buf_fini(&p->logprobs);
}

/* ---- JSON ---- */

/*
 * One character, or U+FFFD for what is none; returns the bytes that were read. Bytes that are no
 * UTF-8 may come from a token that was cut by a limit; one U+FFFD stands for each run, as
 * decoders have it. U+2028 and U+2029 end lines in JavaScript.
 */
static size_t put_char(ech_buf *b, const char *s, size_t len, ech_status *rc)
{
    uint32_t cp;
    const int n = ech_utf8_decode(s, len, &cp);
    if (n <= 0) {
        *rc = ech_buf_puts(b, "\\ufffd");
        return ech_utf8_broken_len(s, len);
    }
    if (cp == '"' || cp == '\\')
        *rc = ech_buf_printf(b, "\\%c", (int)cp);
    else if (cp == '\n')
        *rc = ech_buf_puts(b, "\\n");
    else if (cp < 0x20 || cp == 0x7f || cp == 0x2028 || cp == 0x2029)
        *rc = ech_buf_printf(b, "\\u%04x", cp);
    else
        *rc = ech_buf_append(b, s, (size_t)n);
    return (size_t)n;
}

static ech_status put_string(ech_buf *b, const char *s, size_t len)
{
    ech_status rc = ech_buf_push(b, '"');
    for (size_t at = 0; at < len && rc == ECH_OK;)
        at += put_char(b, s + at, len - at, &rc);
    return rc == ECH_OK ? ech_buf_push(b, '"') : rc;
}

/* Nine digits give every f32 back exactly; -inf is no JSON number. */
static ech_status put_logprob(ech_buf *b, float logprob)
{
    return isfinite(logprob) ? ech_buf_printf(b, "%.9g", (double)logprob)
                             : ech_buf_puts(b, "-9999.0");
}

/* The object is left open: top_logprobs may follow. */
static ech_status put_token(ech_buf *b, const ech_tokenizer *t, int32_t id, float logprob)
{
    size_t len = 0;
    const char *const bytes = ech_tokenizer_token_bytes(t, id, &len);
    ECH_TRY(ech_buf_printf(b, "{\"id\": %d, \"token\": ", id));
    ECH_TRY(put_string(b, bytes != NULL ? bytes : "", len));
    ECH_TRY(ech_buf_puts(b, ", \"logprob\": "));
    return put_logprob(b, logprob);
}

/* Items are joined as they come; the list's brackets are written at the end. */
static ech_status put_logprobs(ech_buf *b, const ech_tokenizer *t, const ech_event *ev)
{
    if (b->len > 0) ECH_TRY(ech_buf_puts(b, ", "));
    ECH_TRY(put_token(b, t, ev->id, ev->logprob));
    ECH_TRY(ech_buf_puts(b, ", \"top_logprobs\": ["));
    for (size_t i = 0; i < ev->n_top; i++) {
        if (i > 0) ECH_TRY(ech_buf_puts(b, ", "));
        ECH_TRY(put_token(b, t, ev->top[i].id, ev->top[i].logprob));
        ECH_TRY(ech_buf_push(b, '}'));
    }
    return ech_buf_puts(b, "]}");
}

/* ---- collecting ---- */

/*
 * A call's name comes whole and before its arguments; those are collected, since they are
 * printed as one.
 */
static ech_status take_text(ech_printed *p, const ech_event *ev)
{
    switch (ev->channel) {
    case ECH_CHANNEL_CONTENT:
        return ech_buf_append(&p->text, ev->text, ev->text_len);
    case ECH_CHANNEL_REASONING:
        return ech_buf_append(&p->reasoning, ev->text, ev->text_len);
    case ECH_CHANNEL_TOOL_NAME:
        ech_buf_clear(&p->args);
        if (p->calls_json.len > 0) ECH_TRY(ech_buf_puts(&p->calls_json, ", "));
        ECH_TRY(ech_buf_puts(&p->calls_json, "{\"name\": "));
        ECH_TRY(put_string(&p->calls_json, ev->text, ev->text_len));
        return ech_buf_printf(&p->calls, "tool_call: %.*s ", (int)ev->text_len, ev->text);
    case ECH_CHANNEL_TOOL_ARGS:
        return ech_buf_append(&p->args, ev->text, ev->text_len);
    }
    return ECH_OK;
}

/* A call that was cut short is printed too, and said to be incomplete. */
static ech_status end_call(ech_printed *p, const ech_event *ev)
{
    const char *const state = ev->call_complete ? "" : " (incomplete)";
    const char *const flag = ev->call_complete ? "true" : "false";
    const char *const args = p->args.len > 0 ? p->args.data : "{}";
    ECH_TRY(ech_buf_printf(&p->calls, "%s%s\n", args, state));
    ECH_TRY(ech_buf_puts(&p->calls_json, ", \"arguments\": "));
    ECH_TRY(put_string(&p->calls_json, args, strlen(args)));
    return ech_buf_printf(&p->calls_json, ", \"complete\": %s}", flag);
}

/*
 * Events without a word for the printed answer are listed, so that the compiler names a new one.
 */
ech_status ech_printed_take(ech_printed *p, const ech_event *ev, const ech_tokenizer *tokenizer)
{
    switch (ev->kind) {
    case ECH_EVENT_STARTED:
        p->seed = ev->seed;
        return ECH_OK;
    case ECH_EVENT_TEXT:
        return take_text(p, ev);
    case ECH_EVENT_TOOL_END:
        return end_call(p, ev);
    case ECH_EVENT_TOKEN:
        ECH_TRY(ech_buf_printf(&p->ids, "%s%d", p->ids.len > 0 ? ", " : "", ev->id));
        return ev->has_logprob ? put_logprobs(&p->logprobs, tokenizer, ev) : ECH_OK;
    case ECH_EVENT_FINISH:
        p->finish = ev->finish;
        p->usage = ev->usage;
        p->error = ev->error;
        p->n_calls = ev->n_calls;
        p->is_done = true;
        return ECH_OK;
    case ECH_EVENT_QUEUED:
    case ECH_EVENT_PROGRESS:
    case ECH_EVENT_PROMPT_TOKEN:
    case ECH_EVENT_EMBEDDING:
    case ECH_EVENT_DONE:
        break;
    }
    return ECH_OK;
}

/* ---- writing ---- */

static const char *data_of(const ech_buf *b)
{
    return b->data != NULL ? b->data : "";
}

/* As OpenAI has it: calls that are complete end an answer with tool_calls. */
static const char *finish_of(const ech_printed *p)
{
    const bool has_calls = p->finish == ECH_FINISH_STOP && p->n_calls > 0;
    return has_calls ? "tool_calls" : ech_finish_name(p->finish);
}

/*
 * Lines for people and for tests that compare. Flushed, since the next answer may take minutes.
 */
void ech_printed_write_lines(const ech_printed *p, FILE *out, bool text_is_out)
{
    if (!text_is_out) {
        if (p->reasoning.len > 0) (void)fprintf(out, "reasoning: %s\n", p->reasoning.data);
        (void)fputs("text: ", out);
        (void)fwrite(data_of(&p->text), 1, p->text.len, out);
    }
    (void)fprintf(out, "\n%stoken_ids: [%s]\nfinish_reason: %s\n", data_of(&p->calls),
                  data_of(&p->ids), finish_of(p));
    if (p->logprobs.len > 0) (void)fprintf(out, "logprobs: [%s]\n", data_of(&p->logprobs));
    (void)fflush(out);
}

static double ms(int64_t ns)
{
    return ns > 0 ? (double)ns / ECH_NS_PER_MS : 0;
}

/* 0 instead of a division by no time: a JSON number in any case. */
static double rate(uint32_t tokens, int64_t ns)
{
    return ns > 0 ? tokens / ((double)ns / ECH_NS_PER_S) : 0;
}

/*
 * llama-server's names. Tokens that were reused aren't computed and don't count in the prompt's
 * rate.
 */
static ech_status put_timings(ech_buf *b, const ech_usage *u, int64_t load_ns)
{
    const bool has_first = u->first_token_ns > 0;
    const int64_t prompt_ns = has_first ? u->first_token_ns - u->started_ns : 0;
    const int64_t answer_ns = has_first ? u->finished_ns - u->first_token_ns : 0;
    const uint32_t computed = u->prompt_tokens - u->cached_tokens;
    return ech_buf_printf(b,
                          "{\"load_ms\": %.3f, \"queue_ms\": %.3f, \"prompt_ms\": %.3f, "
                          "\"prompt_per_second\": %.2f, \"predicted_ms\": %.3f, "
                          "\"predicted_per_second\": %.2f}",
                          ms(load_ns), u->started_ns > 0 ? ms(u->started_ns - u->queued_ns) : 0,
                          ms(prompt_ns), rate(computed, prompt_ns), ms(answer_ns),
                          rate(u->completion_tokens > 0 ? u->completion_tokens - 1 : 0, answer_ns));
}

/*
 * The error is a member like others: whoever reads lines of JSON gets one object for each
 * prompt, good or bad.
 */
static ech_status put_object(ech_buf *b, const ech_printed *p, bool has_logprobs, int64_t load_ns)
{
    const ech_usage *const u = &p->usage;
    ECH_TRY(ech_buf_puts(b, "{\"text\": "));
    ECH_TRY(put_string(b, data_of(&p->text), p->text.len));
    if (p->reasoning.len > 0) {
        ECH_TRY(ech_buf_puts(b, ", \"reasoning_content\": "));
        ECH_TRY(put_string(b, p->reasoning.data, p->reasoning.len));
    }
    if (p->calls_json.len > 0)
        ECH_TRY(ech_buf_printf(b, ", \"tool_calls\": [%s]", p->calls_json.data));
    ECH_TRY(ech_buf_printf(b, ", \"token_ids\": [%s], \"finish_reason\": \"%s\"", data_of(&p->ids),
                           finish_of(p)));
    if (p->error.code != ECH_OK) {
        ECH_TRY(ech_buf_puts(b, ", \"error\": "));
        ECH_TRY(put_string(b, p->error.text, strlen(p->error.text)));
    }
    if (has_logprobs) ECH_TRY(ech_buf_printf(b, ", \"logprobs\": [%s]", data_of(&p->logprobs)));
    ECH_TRY(ech_buf_printf(b,
                           ", \"seed\": %llu, \"usage\": {\"prompt_tokens\": %u, "
                           "\"completion_tokens\": %u, \"total_tokens\": %u, \"cached_tokens\": "
                           "%u}, \"timings\": ",
                           (unsigned long long)p->seed, u->prompt_tokens, u->completion_tokens,
                           u->prompt_tokens + u->completion_tokens, u->cached_tokens));
    ECH_TRY(put_timings(b, u, load_ns));
    return ech_buf_puts(b, "}\n");
}

/* Made in memory first: a failure writes nothing instead of half a line. */
ech_status ech_printed_write_json(const ech_printed *p, FILE *out, bool has_logprobs,
                                  int64_t load_ns)
{
    ech_buf b = { 0 };
    const ech_status rc = put_object(&b, p, has_logprobs, load_ns);
    if (rc == ECH_OK) (void)fwrite(b.data, 1, b.len, out);
    (void)fflush(out);
    ech_buf_fini(&b);
    return rc;
}
