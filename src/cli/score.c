/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of a text, scored by the engine that generates and serves: a window is a prompt whose
 * ids' log-probabilities are asked for. See score.h. Main thread; the row hook runs on the
 * engine's.
 *
 * Ownership: *s has the engine, the ids and the sums from ech_score_open() on, also after its
 * failure; ech_score_close() frees them. Invariant: every window is computed alone, with the
 * same ids whatever runs beside it, so numbers don't depend on grouping.
 */
#include "src/cli/score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "echelon/tokenizer.h"
#include "src/base/buf.h"
#include "src/base/error.h"

#define MAX_TEXT_BYTES ((size_t)1 << 30)
/*
 * Windows of one request: two run at a time, the others wait. Enough that the engine never waits
 * for the next request; little enough that progress shows.
 */
#define GROUP 64u

ech_score_options ech_score_given = { .ctx = 512 };

/* The error is that of the mean, carried through exp: as llama.cpp prints it. */
double ech_score_perplexity(const ech_score_sum *sum, double *ret_stderr)
{
    const double n = (double)sum->n, mean = sum->nll / n;
    const double var = sum->sq / n - mean * mean;
    if (ret_stderr != NULL)
        *ret_stderr = sum->n > 1 && var > 0 ? exp(mean) * sqrt(var / (n - 1)) : 0;
    return exp(mean);
}

/* ---- opening ---- */

/* The queue holds exactly one group, in windows and in tokens. */
static ech_status open_engine(ech_score *s, const char *model, ech_error *err)
{
    const ech_score_options *const g = &ech_score_given;
    ech_engine_options o;
    ech_engine_options_default(&o);
    o.model_dir = model;
    o.threads = (uint32_t)g->threads;
    o.prefill_chunk = (uint32_t)g->prefill_chunk;
    ech_take_load_options(&o);
    o.max_seq_len = s->ctx;
    o.max_running = 2;
    o.max_queued = GROUP;
    o.max_queued_tokens = (uint64_t)GROUP * s->ctx;
    ECH_TRY(ech_engine_open(&s->engine, &o, err));
    ECH_TRY(ech_engine_wait_ready(s->engine, -1, NULL, err));
    s->info.struct_size = sizeof s->info;
    ech_engine_info_get(s->engine, &s->info);
    return ECH_OK;
}

/* Ids in digits; anything that is no digit, blank or comma is refused. */
static ech_status parse_ids(const ech_score *s, const ech_buf *text, const char *path, ech_ids *ids,
                            ech_error *err)
{
    static const char BLANKS[] = " \t\r\n,";
    const char *at = text->data != NULL ? text->data : "";
    for (at += strspn(at, BLANKS); *at != '\0'; at += strspn(at, BLANKS)) {
        char *end;
        const unsigned long v = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || v >= s->info.vocab_size)
            return ech_fail(err, ECH_EFORMAT, "reading %s: \"%.12s\" is no id below %u", path, at,
                            s->info.vocab_size);
        const int32_t id = (int32_t)v;
        if (ech_ids_append(ids, &id, 1) != ECH_OK)
            return ech_fail(err, ECH_ENOMEM, "reading %s: out of memory", path);
        at = end;
    }
    return ECH_OK;
}

/* What the tokenizer puts before an empty text is what it begins every text with. */
static ech_status tokenise(const ech_score *s, const ech_buf *text, ech_ids *ids, int32_t *ret_bos,
                           ech_error *err)
{
    const ech_tokenizer *const t = ech_engine_tokenizer(s->engine);
    ech_ids empty = { 0 };
    const ech_status rc = ech_tokenizer_encode(t, "", 0, ECH_ENCODE_ADD, &empty, err);
    *ret_bos = rc == ECH_OK && empty.n > 0 ? empty.data[0] : ECH_NO_ID;
    ech_ids_fini(&empty);
    ECH_TRY(rc);
    return ech_tokenizer_encode(t, text->data != NULL ? text->data : "", text->len, ECH_ENCODE_ADD,
                                ids, err);
}

/*
 * Windows lie next to each other, or begin every `stride` ids. BOS replaces the first id and
 * doesn't push the others: as llama.cpp, so that the numbers compare.
 */
static ech_status cut(ech_score *s, const ech_ids *ids, int32_t bos, const char *path,
                      ech_error *err)
{
    const ech_score_options *const g = &ech_score_given;
    const uint32_t step = g->stride > 0 ? (uint32_t)g->stride : s->ctx;
    uint64_t n = g->stride > 0 ? (ids->n > s->ctx ? (ids->n - s->ctx + step - 1) / step : 0)
                               : ids->n / s->ctx;
    if (g->chunks > 0 && n > (uint64_t)g->chunks) n = (uint64_t)g->chunks;
    if (n == 0)
        return ech_fail(
            err, ECH_EINVAL,
            "scoring %s: it has %zu tokens, one window takes %u; take a longer text or a "
            "smaller --ctx",
            path, ids->n, s->ctx);
    s->n_windows = (uint32_t)n;
    s->ids = calloc(n * s->ctx, sizeof *s->ids);
    s->sums = calloc(n, sizeof *s->sums);
    if (s->ids == NULL || s->sums == NULL)
        return ech_fail(err, ECH_ENOMEM, "scoring %s: out of memory", path);
    for (uint32_t w = 0; w < s->n_windows; w++) {
        int32_t *const to = s->ids + (size_t)w * s->ctx;
        memcpy(to, ids->data + (size_t)w * step, s->ctx * sizeof *to);
        if (bos != ECH_NO_ID && g->stride == 0) to[0] = bos;
    }
    return ECH_OK;
}

/* What the options alone can say wrong comes before the text and the model are read. */
ech_status ech_score_open(ech_score *s, const char *model, const char *text_path, ech_error *err)
{
    const ech_score_options *const g = &ech_score_given;
    ech_buf text = { 0 };
    ech_ids ids = { 0 };
    int32_t bos = ECH_NO_ID;
    s->ctx = (uint32_t)(g->ctx + g->stride / 2);
    s->first = g->stride > 0 ? s->ctx - (uint32_t)g->stride - 1 : s->ctx / 2;
    if (g->stride >= g->ctx)
        return ech_fail(err, ECH_EINVAL, "--stride is %lld, must be below --ctx, %lld",
                        (long long)g->stride, (long long)g->ctx);
    ech_status rc = ech_buf_read_file(&text, text_path, MAX_TEXT_BYTES, err);
    if (rc == ECH_OK) rc = open_engine(s, model, err);
    if (rc == ECH_OK)
        rc = g->is_ids ? parse_ids(s, &text, text_path, &ids, err)
                       : tokenise(s, &text, &ids, &bos, err);
    if (rc == ECH_OK) rc = cut(s, &ids, bos, text_path, err);
    ech_buf_fini(&text);
    ech_ids_fini(&ids);
    return rc;
}

/* May be called after any failure, and twice. */
void ech_score_close(ech_score *s)
{
    (void)ech_engine_close(&s->engine);
    free(s->ids);
    free(s->sums);
    s->ids = NULL;
    s->sums = NULL;
}

/* ---- running ---- */

/*
 * The windows of one request. At most GROUP of them; a choice of the request is a window, in
 * order.
 */
typedef struct group {
    ech_score *s;
    uint32_t begin, n;
} group;

/* On the engine's thread, which waits for it: nothing else runs meanwhile. */
static void on_row(void *ctx, uint32_t choice, uint32_t pos, const float *row)
{
    const group *const g = ctx;
    const ech_score *const s = g->s;
    const uint32_t window = g->begin + choice;
    s->row(s->row_ctx, window, pos - 1 - s->first, s->ids[(size_t)window * s->ctx + pos], row);
}

/* Ids without a score are those of the first half. */
static void take(group *g, const ech_event *ev)
{
    ech_score_sum *const sum = &g->s->sums[g->begin + ev->choice];
    if (!ev->has_logprob) return;
    sum->nll -= ev->logprob;
    sum->sq += (double)ev->logprob * ev->logprob;
    sum->n++;
}

/* The mean of what is there so far, over all windows: a group's order doesn't matter. */
static void show(const ech_score *s, uint32_t n_done)
{
    ech_score_sum so_far = { 0 };
    for (uint32_t w = 0; w < s->n_windows; w++) {
        so_far.nll += s->sums[w].nll;
        so_far.n += s->sums[w].n;
    }
    if (isatty(STDERR_FILENO))
        (void)fprintf(stderr, "\r\033[K[%u/%u] perplexity %.4f", n_done, s->n_windows,
                      exp(so_far.nll / (double)so_far.n));
}

/* The first error ends the run: a perplexity of a part would be taken for the whole. */
static ech_status read_events(group *g, ech_request *req, ech_error *err)
{
    ech_event ev = { 0 };
    uint32_t n_done = g->begin;
    while (ev.kind != ECH_EVENT_DONE) {
        ECH_TRY(ech_request_next(req, -1, &ev, err));
        if (ev.kind == ECH_EVENT_PROMPT_TOKEN) take(g, &ev);
        if (ev.kind == ECH_EVENT_FINISH && ev.error.code == ECH_OK) show(g->s, ++n_done);
    }
    if (ev.error.code == ECH_OK) return ECH_OK;
    return ech_fail(err, ev.error.code, "%s", ev.error.text);
}

/* Nothing is drawn (max_tokens 0); scores begin behind the first half. */
static ech_status run_group(group *g, ech_error *err)
{
    const ech_score *const s = g->s;
    ech_prompt prompts[GROUP];
    ech_request_options o;
    ech_request *req;
    for (uint32_t i = 0; i < g->n; i++)
        prompts[i] =
            (ech_prompt){ .ids = s->ids + (size_t)(g->begin + i) * s->ctx, .n_ids = s->ctx };
    ech_request_options_default(&o);
    o.prompts = prompts;
    o.n_prompts = g->n;
    o.max_tokens = 0;
    o.prompt_logprobs = 0;
    o.prompt_logprobs_from = s->first + 1;
    o.logits = s->row != NULL ? on_row : NULL;
    o.logits_ctx = g;
    ECH_TRY(ech_engine_submit(s->engine, &o, &req, err));
    const ech_status rc = read_events(g, req, err);
    ech_request_close(&req);
    return rc;
}

/* Sums are added in the order of the windows, so that the last digit is the same in every run. */
ech_status ech_score_run(ech_score *s, ech_error *err)
{
    for (uint32_t w = 0; w < s->n_windows; w += GROUP) {
        group g = { .s = s, .begin = w };
        g.n = s->n_windows - w < GROUP ? s->n_windows - w : GROUP;
        ECH_TRY(run_group(&g, err));
    }
    if (isatty(STDERR_FILENO)) (void)fputs("\r\033[K", stderr);
    for (uint32_t w = 0; w < s->n_windows; w++) {
        s->total.nll += s->sums[w].nll;
        s->total.sq += s->sums[w].sq;
        s->total.n += s->sums[w].n;
    }
    return ECH_OK;
}
